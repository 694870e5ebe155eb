"""How far the tasks of a session's running jobs are, from Spark's status tracker."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from pyspark.sql import SparkSession

_EVERY_SECONDS = 0.25


@dataclass(frozen=True)
class TaskCount:
    """Numbers of tasks of the stages that run now; 0 of 0 between jobs."""

    done: int
    running: int
    total: int


def task_count(spark: SparkSession) -> TaskCount:
    """Return how many tasks of the stages that run now have ended, are running, and exist."""
    tracker = spark.sparkContext.statusTracker()
    stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    known = [stage for stage in stages if stage is not None]
    return TaskCount(
        sum(stage.numCompletedTasks for stage in known),
        sum(stage.numActiveTasks for stage in known),
        sum(stage.numTasks for stage in known),
    )


@contextlib.contextmanager
def watching(spark: SparkSession, tell: Callable[[TaskCount], None]) -> Iterator[None]:
    """Call `tell` from a thread of its own, several times a second, while the block runs."""
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(_EVERY_SECONDS):
            tell(task_count(spark))

    thread = threading.Thread(target=watch, name="maxq-spark-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
