"""Ctrl-C ends a command on Spark: a stream as one that is done, anything else with exit code 130; no stacks."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import maxq
from maxq.api import Message, Producer
from maxq.cli.app import run
from maxq.cli.terminal.ctrl_c import ctrl_c_ends_start
from maxq.pipeline.archive.folder import ArchiveFolder
from maxq.pipeline.spark.start import watching_start

PATIENCE_SECONDS = 120
LONG = "SELECT count(*) FROM range(1000000000000) WHERE id % 7 = length(uuid()) % 2"


@contextmanager
def pressed_when(ready: Callable[[], bool]) -> Iterator[None]:
    """Ctrl-C once that is so; none that hits another test, if the block ends before."""
    is_over = threading.Event()

    def wait() -> None:
        end = time.monotonic() + PATIENCE_SECONDS
        while not ready() and time.monotonic() < end:
            if is_over.wait(0.05):
                return
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=wait)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def test_a_stream_ends_with_its_result(
    spark: SparkSession, standalone: maxq.Standalone, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with Producer("endless", standalone.namesrv_address) as producer:
        for number in range(20):
            producer.send(Message("Endless", b"%d" % number))
    folder = ArchiveFolder(str(tmp_path / "archive"))
    arguments = ["archive", "run", folder.root, "-t", "Endless", "-n", standalone.namesrv_address]
    before = signal.getsignal(signal.SIGINT)
    with pressed_when(lambda: sum(entry.rows for entry in folder.manifest().files) == 20):
        assert run(["pipeline", *arguments, "--every", "1 second"]) == 0
    printed = capfd.readouterr()
    assert "messages                        : 20" in printed.out
    assert "Traceback" not in printed.err and "\tat " not in printed.err
    assert signal.getsignal(signal.SIGINT) is before
    assert not spark.streams.active


def test_a_query_is_cancelled(
    spark: SparkSession, standalone: maxq.Standalone, capfd: pytest.CaptureFixture[str]
) -> None:
    tracker = spark.sparkContext.statusTracker()
    with pressed_when(lambda: bool(tracker.getActiveStageIds())):
        assert run(["sql", LONG, "-n", standalone.namesrv_address]) == 130
    printed = capfd.readouterr()
    assert "Traceback" not in printed.err and "\tat " not in printed.err
    assert printed.out == ""
    assert spark.range(3).count() == 3, "the session goes on"


def test_what_fails_in_a_start_that_nobody_interrupts_is_told() -> None:
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(RuntimeError, match="no Java"), watching_start() as java, ctrl_c_ends_start(java):
        raise RuntimeError("no Java")
    assert signal.getsignal(signal.SIGINT) is before
