"""The Java process that PySpark starts, while it starts: how it is ended before Python has a connection to it."""

import contextlib
import logging
import signal
import subprocess
import threading
from collections.abc import Iterator
from typing import Any, Final

from pyspark import SparkContext, java_gateway
from pyspark.sql import SparkSession

_SECONDS: Final = 2  # time for Java to end by itself, and to remove its files


class StartingJava:
    """The Java processes that PySpark starts within a block of `watching_start`; `end` ends them."""

    def __init__(self) -> None:
        self._processes: list[subprocess.Popen[Any]] = []
        self._is_ended = False

    def started(self, process: "subprocess.Popen[Any]") -> None:
        """Remember a process that PySpark has started, to be able to end it."""
        self._processes.append(process)
        if self._is_ended:
            process.send_signal(signal.SIGTERM)

    def end(self) -> None:
        """End all of them, also those that PySpark is about to start. Calls in this process that wait for them fail."""
        logging.getLogger("py4j").setLevel(logging.CRITICAL + 1)  # py4j logs each call without an answer, …
        logging.getLogger().addFilter(_is_not_of_py4j)  # … some of them with the root logger
        self._is_ended = True
        for process in self._processes:
            process.send_signal(signal.SIGTERM)
        killing = threading.Timer(_SECONDS, self._kill)
        killing.daemon = True
        killing.start()

    def reap(self) -> None:
        """Wait until they have ended, and make PySpark forget them, so that its next session starts another one."""
        for process in self._processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(2 * _SECONDS)
        SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
        SparkSession._instantiatedSession = None

    def _kill(self) -> None:
        for process in self._processes:
            process.kill()


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    return record.module != "java_gateway"


@contextlib.contextmanager
def watching_start() -> Iterator[StartingJava]:
    """Context manager: while PySpark starts Java inside the block, Ctrl-C ends that Java process."""
    java = StartingJava()
    module: Any = java_gateway
    popen = module.Popen

    def start(*arguments: Any, **named: Any) -> "subprocess.Popen[Any]":
        process: subprocess.Popen[Any] = popen(*arguments, **named)
        java.started(process)
        return process

    module.Popen = start
    try:
        yield java
    finally:
        module.Popen = popen
