"""`format("rocketmq-cluster")`: what a cluster says of itself (maxq.pipeline.cluster.cluster_tables), as tables.

spark.read.format("rocketmq-cluster").option("rocketmq.namesrv", "127.0.0.1:9876").option("table", "groups").load()
"""

from collections.abc import Iterator
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from maxq.errors import ConfigError
from maxq.pipeline.cluster.cluster_tables import TABLES, cluster_table
from maxq.pipeline.options.option_values import OptionValues
from maxq.pipeline.options.read_options import CONNECTION_OPTIONS, ConnectionOptions
from maxq.pipeline.spark.worker import readable_errors

FORMAT: Final = "rocketmq-cluster"


@readable_errors
class RocketMQClusterDataSource(DataSource):
    """The data source of cluster tables. Options: those of the connection (`rocketmq.namesrv`, …) and `table`, one of
    TABLES."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def _parsed(self) -> tuple[ConnectionOptions, str]:
        values = OptionValues(self.options, FORMAT)
        values.check_names((*CONNECTION_OPTIONS, "table"))
        if not values.has("table"):
            raise ConfigError(f"{FORMAT}: option table is missing: one of {', '.join(TABLES)}")
        return ConnectionOptions.parse(values), values.choice("table", tuple(TABLES), "")

    def schema(self) -> str:
        _, table = self._parsed()
        return ", ".join(f"`{name}` {spark}" for name, (_, spark) in TABLES[table].items())

    def reader(self, schema: StructType) -> DataSourceReader:
        return _Reader(*self._parsed())


@readable_errors
class _Reader(DataSourceReader):
    def __init__(self, connection: ConnectionOptions, table: str) -> None:
        self._connection = connection
        self._table = table

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return iter((cluster_table(self._connection, self._table),))
