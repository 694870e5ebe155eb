"""What MaxQ does to a Python worker of Spark."""

import gc
import sys
from collections.abc import Iterator
from typing import Final, TypeVar

#: The program that forks Spark's workers, and theirs: nobody else's garbage collector is touched.
_DAEMON: Final = "pyspark.daemon"

T = TypeVar("T")


class _Spared:
    """Of this process: how many modules there were when they were last taken out of the collector's rounds."""

    modules = 0


def spare_collections() -> None:
    """Take what is there out of the garbage collector's rounds, if modules were loaded since that was done. Spark's
    worker makes a full one after every task and every answer to the driver (pyspark/daemon.py), which over the modules
    of PySpark, pyarrow and ours takes 35 ms of CPU; what pyarrow loads when it is first used is a third of it."""
    loaded = len(sys.modules)
    if loaded > _Spared.modules and getattr(sys.modules["__main__"].__spec__, "name", "") == _DAEMON:
        _Spared.modules = loaded
        gc.freeze()


def sparing_collections(batches: Iterator[T]) -> Iterator[T]:
    """The same, with `spare_collections` when they are used up."""
    try:
        yield from batches
    finally:
        spare_collections()
