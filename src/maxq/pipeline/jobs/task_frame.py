"""Work cut into tasks, as a DataFrame: each task's function yields Arrow batches, and runs where Spark puts it."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from maxq.pipeline.spark.worker import then_freeze_modules

Task = TypeVar("Task")
#: One task's work. It is sent to workers by reference: a function of a module, or functools.partial of one.
TaskFunction = Callable[[Task], Iterator[pa.RecordBatch]]


def task_frame(spark: SparkSession, function: TaskFunction[Any], tasks: Sequence[Any], schema: pa.Schema) -> DataFrame:
    """Return what `function` yields for each of `tasks`, one partition a task, in their order.

    Args:
        tasks: plain values that can be pickled.
        schema: of the batches.
    """

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        numbers = (number for batch in batches for number in batch.column("id").to_pylist())
        return then_freeze_modules(found for number in numbers for found in function(tasks[number]))

    numbers = spark.range(0, len(tasks), 1, max(1, len(tasks)))
    return numbers.mapInArrow(run, from_arrow_schema(schema))


#: Runs a function over tasks and gives all rows as dictionaries, in the order of the tasks.
Runner = Callable[[TaskFunction[Any], Sequence[Any], pa.Schema], list[dict[str, Any]]]


def spark_runner(spark: SparkSession) -> Runner:
    """Return a runner that runs tasks on Spark."""

    def run(function: TaskFunction[Any], tasks: Sequence[Any], schema: pa.Schema) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = task_frame(spark, function, tasks, schema).toArrow().to_pylist()
        return found

    return run


def inline_runner(function: TaskFunction[Any], tasks: Sequence[Any], schema: pa.Schema) -> list[dict[str, Any]]:
    """Run the tasks in this process, one after the other."""
    return [row for task in tasks for batch in function(task) for row in batch.cast(schema).to_pylist()]
