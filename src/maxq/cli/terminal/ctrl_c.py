"""Ctrl-C while Spark works: what runs is ended in good order, where PySpark prints stacks of Python and of Java.

PySpark's own handler asks Java over the connection on which the interrupted call still waits. This one asks from a
thread, which has a connection of its own: streams are stopped, so that waiting for one returns, and jobs are cancelled,
so that the call fails. A second Ctrl-C, or one while nobody waits for Java, ends the command as anywhere else.
"""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from maxq.pipeline.spark.start import StartingJava

_JAVA_CALLS = "py4j"


@contextmanager
def ended_by_ctrl_c(spark: Any) -> Iterator[None]:
    """End a block of the main thread at Ctrl-C; in other threads, which get no signals, nothing is changed.

    Args:
        spark: the session whose streams and jobs are ended.

    Raises:
        KeyboardInterrupt: in place of the error of a job that was cancelled.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    interrupt = _Interrupt(spark)
    before = signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    except Exception:
        if interrupt.has_come:
            raise KeyboardInterrupt from None
        raise
    finally:
        interrupt.wait()
        signal.signal(signal.SIGINT, before)


@contextmanager
def ctrl_c_ends_start(java: "StartingJava") -> Iterator[None]:
    """End the Java process that is starting at Ctrl-C, in a block of the main thread that starts Spark, so that the
    block raises. A Java process whose Python parent ends first would stay.

    Raises:
        KeyboardInterrupt: replaces that failure, or is raised after a block that ended normally in spite of Ctrl-C.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    has_come = False

    def end(_number: int, _frame: FrameType | None) -> None:
        nonlocal has_come
        if not has_come:
            has_come = True
            java.end()

    before = signal.signal(signal.SIGINT, end)
    try:
        yield
    except Exception:
        if not has_come:
            raise
        java.reap()
    finally:
        signal.signal(signal.SIGINT, before)
    if has_come:
        raise KeyboardInterrupt


class _Interrupt:
    """Handles SIGINT while Spark runs: it cancels Spark's jobs if the program waits for Java, and otherwise, or at the
    second time, raises KeyboardInterrupt."""

    def __init__(self, spark: Any) -> None:
        self._spark = spark
        self._ending = threading.Thread(target=self._end, daemon=True)
        self.has_come = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if self.has_come or not _waits_for_java(frame):
            raise KeyboardInterrupt
        self.has_come = True
        self._ending.start()

    def wait(self) -> None:
        """Wait until the interrupted call has returned: waiting for a stream ends before the call that stops it."""
        if self.has_come:
            self._ending.join()

    def _end(self) -> None:
        for query in self._spark.streams.active:
            query.stop()
        self._spark.sparkContext.cancelAllJobs()


def _waits_for_java(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_globals.get("__name__", "").partition(".")[0] == _JAVA_CALLS:
            return True
        frame = frame.f_back
    return False
