"""The floor of Spark's interface for sources in Python: rows that are there already, in Arrow batches.

    spark.dataSource.register(FloorSource)
    spark.read.format("floor").options(rows=1_000_000, size=200).load()

What a source takes longer than this is its own work; the rest is Spark's.
"""

from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition

_PARTITIONS: Final = 4
_BATCH: Final = 10_000
_STREAM_ROWS: Final = 50  # of each of two partitions of a micro-batch


class FloorSource(DataSource):
    """The format `floor`: one column, `value`. Options: `rows` of all partitions together, and `size` of a value in
    bytes."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "floor"

    def schema(self) -> str:
        """Return the columns."""
        return "value binary"

    def reader(self, schema: Any) -> DataSourceReader:
        """Return the reader of a batch."""
        return _Reader(int(self.options["rows"]), int(self.options["size"]))

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        """Return the reader of a stream, which has 100 new rows whenever it is asked."""
        return _StreamReader()


class _Reader(DataSourceReader):
    def __init__(self, rows: int, size: int) -> None:
        self._rows, self._size = rows, size

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(self._rows // _PARTITIONS) for _ in range(_PARTITIONS)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        full = pa.record_batch([pa.array([b"x" * self._size] * _BATCH, pa.binary())], names=["value"])
        for left in range(partition.value, 0, -_BATCH):
            yield full if left >= _BATCH else full.slice(0, left)


class _StreamReader(DataSourceStreamReader):
    def __init__(self) -> None:
        self._end = 0

    def initialOffset(self) -> dict[str, int]:
        return {"n": 0}

    def latestOffset(self, *limits: Any) -> dict[str, int]:
        self._end += 2 * _STREAM_ROWS
        return {"n": self._end}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        return [InputPartition(_STREAM_ROWS), InputPartition(_STREAM_ROWS)]

    def read(self, partition: InputPartition) -> Iterator[tuple[bytes]]:
        for _ in range(partition.value):
            yield (b"x" * 200,)

    def commit(self, end: dict[str, int]) -> None:
        """Do nothing: there is nothing to forget."""
