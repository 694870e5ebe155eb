"""`format("rocketmq")`: the adapter between Spark's data source classes and batch_source, stream_source, wire_reader.

Objects here are pickled to workers: they hold options and nothing else that matters. Needs PySpark 4.2 or later.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    Filter,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from maxq.arrow.schemas import spark_schema
from maxq.pipeline.options.option_values import OptionValues
from maxq.pipeline.options.predicate import given_conditions
from maxq.pipeline.options.read_options import FORMAT, ReadOptions, columns_of
from maxq.pipeline.source.batch_source import plan_batch
from maxq.pipeline.source.pushdown import conditions_of
from maxq.pipeline.source.scan import ScanPartition, read_scan
from maxq.pipeline.source.stream_source import TopicStream
from maxq.pipeline.spark.worker import freeze_modules, readable_errors, then_freeze_modules


@readable_errors
class RocketMQDataSource(DataSource):
    """The data source of topics of RocketMQ brokers. Its options: docs/reference/spark-options.md and options.py."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        freeze_modules()
        return spark_schema(columns_of(self.options))

    def reader(self, schema: StructType) -> "BatchReader":
        options = ReadOptions.parse(self.options, streaming=False)
        return BatchReader(options, given_conditions(OptionValues(self.options, FORMAT)))

    def streamReader(self, schema: StructType) -> "StreamReader":
        return StreamReader(ReadOptions.parse(self.options, streaming=True))

    # Modules of the sink are loaded only where something is written, which saves every reading process 70 ms of
    # imports.

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        from maxq.pipeline.options.write_options import WriteOptions
        from maxq.pipeline.sink.writers import BatchSink

        return BatchSink(WriteOptions.parse(self.options), schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        from maxq.pipeline.options.write_options import WriteOptions
        from maxq.pipeline.sink.writers import StreamSink

        # complete results are appended, as Kafka's are
        return StreamSink(WriteOptions.parse(self.options, streaming=True), schema)


class SourcePartition(InputPartition):
    """The part of a read from topics that one Spark task does."""

    def __init__(self, scan: ScanPartition) -> None:
        super().__init__(scan)
        self.scan = scan


@readable_errors
class BatchReader(DataSourceReader):
    """The reader behind spark.read.

    Args:
        given: conditions that every wanted row meets (options/predicate.py).
    """

    def __init__(self, options: ReadOptions, given: Sequence[Filter] = ()) -> None:
        self._options = options
        self._conditions = conditions_of(given, with_hint=options.sub_expression == "*")

    def partitions(self) -> list[SourcePartition]:
        found = plan_batch(self._options, self._conditions)
        freeze_modules()
        # For no partition Spark makes an empty one and reads it, so there is always at least one.
        return [SourcePartition(one) for one in found] or [SourcePartition(ScanPartition(()))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, SourcePartition), "Spark gives back what partitions() returned"
        return then_freeze_modules(read_scan(self._options, partition.scan, self._conditions.hint))


@readable_errors
class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The reader behind spark.readStream. On the driver it lives as long as the query; on workers it only reads."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._stream: TopicStream | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"_options": self._options, "_stream": None}

    def _on_driver(self) -> TopicStream:
        if self._stream is None:
            self._stream = TopicStream(self._options)
        return self._stream

    def initialOffset(self) -> dict[str, Any]:
        return self._on_driver().initial_offset()

    def getDefaultReadLimit(self) -> ReadLimit:
        options = self._options
        if options.max_offsets_per_trigger is not None:
            return ReadMaxRows(options.max_offsets_per_trigger)
        if options.max_bytes_per_trigger is not None:
            return ReadMaxBytes(options.max_bytes_per_trigger)
        if options.min_offsets_per_trigger is not None:
            return ReadMinRows(options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        # Spark passes one limit, although the options know several: either all of them apply, or none
        # (ReadAllAvailable).
        return self._on_driver().latest_offset(start, limited=not isinstance(limit, ReadAllAvailable))

    def reportLatestOffset(self) -> dict[str, Any] | None:
        return self._on_driver().report_latest()

    def prepareForTriggerAvailableNow(self) -> None:
        self._on_driver().prepare_for_available_now()

    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[SourcePartition]:
        return [SourcePartition(one) for one in self._on_driver().partitions(start, end)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, SourcePartition), "Spark gives back what partitions() returned"
        return then_freeze_modules(read_scan(self._options, partition.scan))

    def commit(self, end: dict[str, Any]) -> None:
        self._on_driver().commit(end)

    def stop(self) -> None:
        if self._stream is not None:
            self._stream.stop()
