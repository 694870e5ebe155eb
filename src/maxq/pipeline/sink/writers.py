"""Spark's writers for `write` and `writeStream`: the adapter between its classes and sink_task, sink_commit.

Writers are pickled: to the tasks, and to the process that commits.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from maxq.errors import PipelineError
from maxq.pipeline.options.write_options import WriteOptions
from maxq.pipeline.sink.sink_columns import check_columns
from maxq.pipeline.sink.sink_commit import BatchName, commit
from maxq.pipeline.sink.sink_task import SinkTask, TaskResult
from maxq.pipeline.spark.worker import spare_collections
from maxq.runtime.system import SystemRng

_QUERY_ID: Final = "sql.streaming.queryId"  # of the checkpoint: the same after a restart


class TaskCommit(WriterCommitMessage):
    """What a task tells the driver; `application` is empty unless its messages are staged."""

    def __init__(self, result: TaskResult, application: str) -> None:
        self.result = result
        self.application = application


class BatchSink(DataSourceArrowWriter):
    """df.write."""

    def __init__(self, options: WriteOptions, schema: StructType, *, overwrite: bool) -> None:
        if overwrite:
            raise PipelineError('a topic cannot be overwritten; write with mode("append")')
        self._options = options
        self._names = _names(options, schema)
        self._application = options.application_id or f"batch-{SystemRng().bytes(12).hex()}"

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskCommit:
        result = SinkTask(self._options, self._names).run(iterator)
        spare_collections()
        return TaskCommit(result, self._application)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        if self._options.exactly_once:
            name = BatchName(self._application, 0, comes_again=self._options.application_id is not None)
            commit(self._options, name, [one.result for one in _commits(messages)])


class StreamSink(DataSourceStreamArrowWriter):
    """df.writeStream."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        self._options = options
        self._names = _names(options, schema)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskCommit:
        result = SinkTask(self._options, self._names).run(iterator)
        spare_collections()
        return TaskCommit(result, self._application())

    def _application(self) -> str:
        """Spark tells its tasks which query they work for."""
        if self._options.application_id or not self._options.exactly_once:
            return self._options.application_id or ""
        context = TaskContext.get()
        found = context.getLocalProperty(_QUERY_ID) if context is not None else None
        if not found:
            raise PipelineError(
                "Spark does not tell the id of the query; name the writer with the option applicationId"
            )
        return found

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        commits = _commits(messages)
        if self._options.exactly_once and commits:
            commit(self._options, BatchName(commits[0].application, batchId), [one.result for one in commits])


def _names(options: WriteOptions, schema: StructType) -> dict[str, str]:
    columns = [(field.name, field.dataType.simpleString()) for field in schema.fields]
    return check_columns(columns, has_topic=options.topic is not None)


def _commits(messages: Sequence[WriterCommitMessage | None]) -> list[TaskCommit]:
    return [one for one in messages if isinstance(one, TaskCommit)]
