"""`format("rocketmq-store")`: store directories as tables, broker up or down, files untouched.

A thin adapter to Spark's data source classes; what is read is decided in log_pieces.py and store_tables.py.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.types import StructType

from maxq.errors import ConfigError
from maxq.pipeline.options.option_values import OptionValues
from maxq.pipeline.options.predicate import PREDICATE, PUSH_DOWN, given_conditions
from maxq.pipeline.records.record_batches import RecordBatches, is_narrow
from maxq.pipeline.records.row_filter import Condition, RowFilter, can_decide
from maxq.pipeline.records.schemas import message_columns, spark_schema
from maxq.pipeline.spark.push_filters import PushFilters
from maxq.pipeline.spark.worker import spare_collections, sparing_collections
from maxq.pipeline.store.log_pieces import LogPiece, PieceReader, log_pieces
from maxq.pipeline.store.store_folder import open_folder, open_store
from maxq.pipeline.store.store_tables import TABLES, TableTask, read_table, table_ddl, table_tasks
from maxq.store.tools.store_files import StoreFiles

FORMAT: Final = "rocketmq-store"
OPTIONS: Final = ("path", "paths", "table", "columns", "brokerName", "splitBytes", PREDICATE, PUSH_DOWN)
_OPERATORS: Final[dict[type[Filter], str]] = {
    EqualTo: "=",
    LessThan: "<",
    LessThanOrEqual: "<=",
    GreaterThan: ">",
    GreaterThanOrEqual: ">=",
}
_MIN_PIECE: Final = 1024 * 1024


def condition_of(pushed: Filter) -> Condition | None:
    """A filter of Spark's in our terms; None if it is of another kind."""
    if isinstance(pushed, In) and len(pushed.attribute) == 1:
        return Condition(pushed.attribute[0], "in", tuple(pushed.value))
    if isinstance(pushed, IsNotNull) and len(pushed.attribute) == 1:
        return Condition(pushed.attribute[0], "notnull", ())
    operator = _OPERATORS.get(type(pushed))
    if operator is None or len(pushed.attribute) != 1:  # type: ignore[attr-defined]
        return None
    return Condition(pushed.attribute[0], operator, (pushed.value,))  # type: ignore[attr-defined]


def _decided(filters: Iterable[Filter]) -> tuple[tuple[Condition, ...], list[Filter]]:
    """What a RowFilter decides of these filters, and the others."""
    taken: list[Condition] = []
    left: list[Filter] = []
    for one in filters:
        condition = condition_of(one)
        if condition is not None and can_decide(condition):
            taken.append(condition)
        else:
            left.append(one)
    return tuple(taken), left


class _Partition(InputPartition):
    """`value`: a LogPiece of messages, or a TableTask."""

    value: LogPiece | TableTask

    def __init__(self, path: str, value: LogPiece | TableTask) -> None:
        super().__init__(value)
        self.path = path


class RocketMQStoreDataSource(DataSource):
    """Options: `OPTIONS`; `paths` is a JSON list of several `path`."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def _values(self) -> OptionValues:
        values = OptionValues(self.options, FORMAT)
        values.check_names(OPTIONS)
        return values

    def schema(self) -> str:
        spare_collections()
        values = self._values()
        table = _table(values)
        if table != "messages":
            return table_ddl(table)
        return spark_schema(message_columns(values.text("columns")))

    def reader(self, schema: StructType) -> DataSourceReader:
        values = self._values()
        table = _table(values)
        split = values.size("splitBytes", low=_MIN_PIECE)
        if table != "messages":
            for name in (PREDICATE, PUSH_DOWN):
                if values.has(name):
                    raise values.contradiction(f"option {name} is for the table messages, not for {table}")
            return _TableReader(_paths(values), table, split)
        columns, broker_name = message_columns(values.text("columns")), values.text("brokerName") or ""
        given, push_down = given_conditions(values), values.flag(PUSH_DOWN, False)
        return _MessageReader(_paths(values), columns, broker_name, split, given, push_down=push_down)


def _table(values: OptionValues) -> str:
    return values.choice("table", ("messages", *TABLES), "messages")


def _paths(values: OptionValues) -> tuple[str, ...]:
    """Spark gives several paths of one `load` as the JSON list `paths`."""
    single, several = values.text("path"), values.text("paths")
    found: list[str] = [single] if single else []
    if several:
        try:
            listed = json.loads(several)
        except ValueError:
            listed = None
        if not isinstance(listed, list) or not all(isinstance(path, str) for path in listed):
            raise values.wrong("paths", several, 'a JSON list of folders, such as ["/a", "/b"]')
        found += listed
    if not found:
        raise ConfigError(f"{FORMAT}: option path is missing: the storePathRootDir of a broker, or a copy of it")
    return tuple(found)


class _MessageReader(DataSourceReader):
    """The table `messages`.

    Args:
        given: conditions that every wanted row meets (options/predicate.py).
        push_down: take over Spark's filters as well.
    """

    def __init__(
        self,
        paths: tuple[str, ...],
        columns: tuple[str, ...],
        broker_name: str,
        split: int | None,
        given: Iterable[Filter],
        *,
        push_down: bool,
    ) -> None:
        self._paths = paths
        self._columns = columns
        self._broker_name = broker_name
        self._split = split
        self._given, _ = _decided(given)
        self._filter = RowFilter(self._given)
        if push_down:
            self.pushFilters = PushFilters(self.push)  # type: ignore[method-assign]

    def push(self, filters: list[Filter]) -> list[Filter]:
        """Take over what a RowFilter decides; the rest is Spark's."""
        taken, left = _decided(filters)
        self._filter = RowFilter(self._given + taken)
        return left

    def partitions(self) -> Sequence[InputPartition]:
        return [
            _Partition(path, piece)
            for path in self._paths
            for piece in log_pieces(open_store(path), piece_bytes=self._split, narrow=is_narrow(self._columns))
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, _Partition) and isinstance(partition.value, LogPiece)
        return sparing_collections(self._batches(partition.path, partition.value))

    def _batches(self, path: str, piece: LogPiece) -> Iterator[pa.RecordBatch]:
        disk, root = open_folder(path)
        batches = RecordBatches(self._columns, self._broker_name or root.name)
        for view, rows in PieceReader(disk, piece, max_rows=batches.max_rows).rows():
            chosen = self._filter.select(view, rows)
            if len(chosen):
                yield from batches.batches(view, chosen)


class _TableReader(DataSourceReader):
    """Every other table."""

    def __init__(self, paths: tuple[str, ...], table: str, split: int | None) -> None:
        self._paths = paths
        self._table = table
        self._split = split

    def partitions(self) -> Sequence[InputPartition]:
        return [_Partition(path, task) for path in self._paths for task in self._tasks(open_store(path))]

    def _tasks(self, files: StoreFiles) -> list[TableTask]:
        pieces = log_pieces(files, piece_bytes=self._split) if self._table == "corruption" else []
        return table_tasks(files, self._table, pieces, _PARTS)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, _Partition) and isinstance(partition.value, TableTask)
        disk, _ = open_folder(partition.path)
        yield from read_table(disk, partition.value)


#: Tasks for the many small files of ConsumeQueues.
_PARTS: Final = 16
