"""MaxQ's changes in a Python worker of Spark: which objects its garbage collector examines, and how errors are
shown."""

import gc
import os
import sys
from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any, Final, TypeVar

from maxq.errors import MaxQError

#: The main module of the process that forks Spark's workers, and so of the workers.
_DAEMON: Final = "pyspark.daemon"
_HIDE_TRACEBACK: Final = "SPARK_HIDE_TRACEBACK"  # pyspark.util.handle_worker_exception

T = TypeVar("T")
C = TypeVar("C", bound=type)


def _is_worker() -> bool:
    return getattr(sys.modules["__main__"].__spec__, "name", "") == _DAEMON


class _Frozen:
    """The objects that the garbage collector of this process does not examine.

    Attributes:
        modules: how many modules had been loaded when `freeze_modules` took effect last.
    """

    modules = 0


def freeze_modules() -> None:
    """Take all objects that exist out of the garbage collector's rounds, if modules were loaded since the last time.

    Spark's worker collects after every task and every answer to the driver (pyspark/daemon.py), which over the modules
    of PySpark, pyarrow and MaxQ takes 35 ms of CPU; what pyarrow loads when it is first used is a third of it. Nothing
    happens in a process that is not a worker of Spark.
    """
    loaded = len(sys.modules)
    if loaded > _Frozen.modules and _is_worker():
        _Frozen.modules = loaded
        gc.freeze()


def then_freeze_modules(batches: Iterator[T]) -> Iterator[T]:
    """Yield the batches of a task, and call `freeze_modules` at their end. Errors of MaxQ are shown as by
    `readable_errors`."""
    try:
        yield from batches
    except MaxQError:
        _hide_traceback()
        raise
    finally:
        freeze_modules()


def readable_errors(source: C) -> C:
    """Decorate a class that Spark calls: errors of MaxQ that its methods raise are shown without lines of code."""
    for name, member in list(vars(source).items()):
        if callable(member) and not name.startswith("__"):
            setattr(source, name, _readable(member))
    return source


def _readable(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def call(*args: Any, **named: Any) -> Any:
        try:
            return method(*args, **named)
        except MaxQError:
            _hide_traceback()
            raise

    return call


def _hide_traceback() -> None:
    """Make Spark's worker report the raised error without a traceback. The worker ends with that error, so no other one
    is affected."""
    if _is_worker():
        os.environ[_HIDE_TRACEBACK] = "1"
