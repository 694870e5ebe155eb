"""What MaxQ does to a Python worker of Spark."""

import gc
import os
import sys
from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any, Final, TypeVar

from maxq.errors import MaxQError

#: The program that forks Spark's workers, and theirs: nobody else's process is touched.
_DAEMON: Final = "pyspark.daemon"
_HIDE_TRACEBACK: Final = "SPARK_HIDE_TRACEBACK"  # pyspark.util.handle_worker_exception

T = TypeVar("T")
C = TypeVar("C", bound=type)


def _is_worker() -> bool:
    return getattr(sys.modules["__main__"].__spec__, "name", "") == _DAEMON


class _Spared:
    """Of this process: how many modules there were when they were last taken out of the collector's rounds."""

    modules = 0


def spare_collections() -> None:
    """Take what is there out of the garbage collector's rounds, if modules were loaded since that was done. Spark's
    worker makes a full one after every task and every answer to the driver (pyspark/daemon.py), which over the modules
    of PySpark, pyarrow and ours takes 35 ms of CPU; what pyarrow loads when it is first used is a third of it."""
    loaded = len(sys.modules)
    if loaded > _Spared.modules and _is_worker():
        _Spared.modules = loaded
        gc.freeze()


def sparing_collections(batches: Iterator[T]) -> Iterator[T]:
    """The same, with `spare_collections` when they are used up, and errors of ours as `readable_errors` has them."""
    try:
        yield from batches
    except MaxQError:
        _hide_traceback()
        raise
    finally:
        spare_collections()


def readable_errors(source: C) -> C:
    """Have the methods of a class for Spark raise errors of ours so that Spark shows what they say and no lines of code
    around it."""
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
    """Spark's worker ends with the error that it is about to report, so that nobody else's is shortened."""
    if _is_worker():
        os.environ[_HIDE_TRACEBACK] = "1"
