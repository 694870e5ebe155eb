"""Spark's writers for `write` and `writeStream`: the adapter between its classes and sink_task, sink_commit.

Writers are pickled: to the tasks, and to the process that commits.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from maxq.arrow.sink_columns import check_columns
from maxq.errors import PipelineError
from maxq.pipeline.options.write_options import WriteOptions
from maxq.pipeline.sink.sink_commit import BatchName, WriteRun, commit
from maxq.pipeline.sink.sink_task import SinkTask, TaskResult
from maxq.pipeline.spark.worker import freeze_modules
from maxq.runtime.files.system import SystemClock, SystemRng

#: What Spark tells its tasks about a streaming query: its id, the same after a restart, and the id of this start.
_QUERY_ID: Final = "sql.streaming.queryId"
_QUERY_RUN: Final = "spark.jobGroup.id"
#: Columns with a delivery time, in lower case.
_MOMENTS: Final = ("delivertimestamp", "sendat")


class TaskCommit(WriterCommitMessage):
    """The report of a task to the driver, and the streaming query to which it belongs: ids of the query and of its
    start."""

    def __init__(self, result: TaskResult, query: str, query_run: str) -> None:
        self.result = result
        self.query = query
        self.query_run = query_run


class _Sink:
    """Common part of the batch writer and the stream writer."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        self._options = options
        self._names = _names(options, schema)
        self._began_ms = SystemClock().wall_ms()

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskCommit:
        result = SinkTask(self._options, self._names).run(iterator)
        freeze_modules()
        context = TaskContext.get()
        query = context.getLocalProperty(_QUERY_ID) if context is not None else None
        run = context.getLocalProperty(_QUERY_RUN) if query and context is not None else None
        return TaskCommit(result, query or "", run or "")

    def _commit(self, name: BatchName, commits: Sequence[TaskCommit]) -> None:
        query, query_run = (commits[0].query, commits[0].query_run) if commits else ("", "")
        run = WriteRun(self._began_ms, query, query_run, self._options.topic or "")
        commit(self._options, name, [one.result for one in commits], run)


class BatchSink(_Sink, DataSourceArrowWriter):
    """Writes the rows of `df.write` to topics; Spark calls it."""

    def __init__(self, options: WriteOptions, schema: StructType, *, overwrite: bool) -> None:
        if overwrite:
            raise PipelineError('a topic cannot be overwritten; write with mode("append")')
        super().__init__(options, schema)
        self._application = options.application_id or f"batch-{SystemRng().bytes(12).hex()}"

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        if self._options.exactly_once:
            is_named = self._options.application_id is not None
            name = BatchName(self._application, self._options.batch_id, comes_again=is_named)
            self._commit(name, _commits(messages))


class StreamSink(_Sink, DataSourceStreamArrowWriter):
    """Writes the rows of `df.writeStream` to topics; Spark calls it for each micro-batch."""

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        commits = _commits(messages)
        if not self._options.exactly_once:
            return
        application = self._options.application_id or (commits[0].query if commits else None)
        if application:
            self._commit(BatchName(application, batchId), commits)
        elif commits:
            raise PipelineError(
                "Spark does not tell the id of the query; name the writer with the option applicationId"
            )


def _names(options: WriteOptions, schema: StructType) -> dict[str, str]:
    columns = [(field.name, field.dataType.simpleString()) for field in schema.fields]
    for name, kind in columns:
        if kind == "timestamp_ntz" and name.lower() in _MOMENTS:
            raise PipelineError(
                f"column {name} is timestamp_ntz, which has no time zone and so is no moment: cast it to timestamp, "
                "which takes the time zone of the session"
            )
    return check_columns(columns, has_topic=options.topic is not None)


def _commits(messages: Sequence[WriterCommitMessage | None]) -> list[TaskCommit]:
    return [one for one in messages if isinstance(one, TaskCommit)]
