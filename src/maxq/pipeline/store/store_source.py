"""`format("rocketmq-store")`: store directories as tables, broker up or down, files untouched.

A thin adapter to Spark's data source classes; what is read is decided in log_pieces.py and store_tables.py.
"""

import json
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import numpy as np
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
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.types import StructType

from maxq.arrow.schemas import message_columns, spark_schema
from maxq.errors import ConfigError, PipelineError
from maxq.pipeline.options.option_values import OptionValues
from maxq.pipeline.options.predicate import PREDICATE, given_conditions
from maxq.pipeline.records.losses import Losses
from maxq.pipeline.records.record_batches import RecordBatches, Rows, is_narrow
from maxq.pipeline.records.row_filter import Condition, Removed, RowFilter, can_decide
from maxq.pipeline.spark.worker import freeze_modules, readable_errors, then_freeze_modules
from maxq.pipeline.store.log_pieces import Corruption, LogPiece, PieceReader, log_pieces, tell_what_is_lost
from maxq.pipeline.store.store_folder import open_folder, open_store
from maxq.pipeline.store.store_tables import TABLES, TableTask, read_table, table_ddl, table_tasks
from maxq.protocol.message.message import decode_record
from maxq.protocol.message.message_sys_flag import TRANSACTION_MASK
from maxq.store.log import record_cy as rc
from maxq.store.log.deletions import FILE_NAME, deleted_names
from maxq.store.recovery.damage_names import DAMAGED_TOPIC
from maxq.store.tools.message_lines import is_deletion, is_filler
from maxq.store.tools.offsets import purged_offsets
from maxq.store.tools.store_files import StoreFiles

log: Final = logging.getLogger(__name__)

FORMAT: Final = "rocketmq-store"
OPTIONS: Final = (
    "path", "paths", "table", "columns", "brokerName", "splitBytes", "failOnDataLoss", PREDICATE,
)  # fmt: skip
_OPERATORS: Final[dict[type[Filter], str]] = {
    EqualTo: "=",
    LessThan: "<",
    LessThanOrEqual: "<=",
    GreaterThan: ">",
    GreaterThanOrEqual: ">=",
}
_MIN_PIECE: Final = 1024 * 1024
_NONE: Final = Removed()


def store_options(options: Mapping[str, str]) -> dict[str, str]:
    """Return those options of format("rocketmq") that mean the same for store directories."""
    return {name: value for name, value in options.items() if name.lower() == "failondataloss"}


def condition_of(given: Filter) -> Condition | None:
    """Express a condition of the option `predicate` in a RowFilter's terms; None if it is of another kind."""
    if isinstance(given, In):
        return Condition(given.attribute[0], "in", tuple(given.value))
    operator = _OPERATORS.get(type(given))
    if operator is None:
        return None
    return Condition(given.attribute[0], operator, (given.value,))  # type: ignore[attr-defined]


def _decided(filters: Iterable[Filter]) -> tuple[Condition, ...]:
    """Return the conditions among these that a RowFilter decides."""
    found = (condition_of(one) for one in filters)
    return tuple(one for one in found if one is not None and can_decide(one))


class _Partition(InputPartition):
    """`value`: a LogPiece of messages, or a TableTask; None: nothing. `removed`: messages that are not shown.
    `is_live`: a broker runs on the store, and may delete topics now."""

    value: LogPiece | TableTask | None

    def __init__(
        self,
        path: str,
        value: LogPiece | TableTask | None,
        removed: Removed = _NONE,
        *,
        is_live: bool = False,
    ) -> None:
        super().__init__(value)
        self.path = path
        self.removed = removed
        self.is_live = is_live


def _nothing(paths: Sequence[str]) -> _Partition:
    """Return a partition without rows, for an empty read: Spark would make one of None itself."""
    return _Partition(paths[0], None)


@readable_errors
class RocketMQStoreDataSource(DataSource):
    """The data source of store directories. Options: `OPTIONS`; `paths` is a JSON list of several `path`."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def _values(self) -> OptionValues:
        values = OptionValues(self.options, FORMAT)
        values.check_names(OPTIONS)
        return values

    def schema(self) -> str:
        freeze_modules()
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
            if values.has(PREDICATE):
                raise values.contradiction(f"option {PREDICATE} is for the table messages, not for {table}")
            return _TableReader(_paths(values), table, split)
        columns, broker_name = message_columns(values.text("columns")), values.text("brokerName") or ""
        return _MessageReader(
            _paths(values),
            columns,
            broker_name,
            split,
            given_conditions(values),
            fail_on_data_loss=values.flag("failOnDataLoss", True),
        )


def _table(values: OptionValues) -> str:
    return values.choice("table", ("messages", *TABLES), "messages")


def _paths(values: OptionValues) -> tuple[str, ...]:
    """Return the paths of a read. Spark gives several paths of one `load` as the JSON list `paths`."""
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


@readable_errors
class _MessageReader(DataSourceReader):
    """Reads the table `messages`.

    Args:
        given: conditions that every wanted row meets (options/predicate.py).
        fail_on_data_loss: what the log should hold and does not is an error; else it is logged.
    """

    def __init__(
        self,
        paths: tuple[str, ...],
        columns: tuple[str, ...],
        broker_name: str,
        split: int | None,
        given: Iterable[Filter],
        *,
        fail_on_data_loss: bool,
    ) -> None:
        self._paths = paths
        self._columns = columns
        self._broker_name = broker_name
        self._split = split
        self._fail_on_data_loss = fail_on_data_loss
        self._filter = RowFilter(_decided(given))

    def partitions(self) -> Sequence[InputPartition]:
        return [partition for path in self._paths for partition in self._pieces(path)] or [_nothing(self._paths)]

    def _pieces(self, path: str) -> list[_Partition]:
        files, losses = open_store(path), Losses(fail=self._fail_on_data_loss)
        is_near = "://" not in path  # a file of another file system is copied each time it is read
        name = self._broker_name or files.root.name
        tell_what_is_lost(files, name, losses, self._filter.topics, with_queues=is_near)
        losses.tell()
        pieces = log_pieces(files, piece_bytes=self._split, narrow=is_narrow(self._columns), committed_only=True)
        removed, is_live = Removed(files.deletions(), purged_offsets(files)), files.is_live
        return [_Partition(path, piece, removed, is_live=is_live) for piece in pieces]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, _Partition) and not isinstance(partition.value, TableTask)
        return then_freeze_modules(self._batches(partition, partition.value) if partition.value else iter(()))

    def _batches(self, partition: _Partition, piece: LogPiece) -> Iterator[pa.RecordBatch]:
        path, removed = partition.path, partition.removed
        disk, root = open_folder(path)
        name, losses = self._broker_name or root.name, Losses(fail=self._fail_on_data_loss)
        batches = RecordBatches(self._columns, name)
        reader = PieceReader(disk, piece, max_rows=batches.max_rows)
        try:
            for view, rows in reader.rows():
                if not partition.is_live:
                    _check_deletions(view, rows, path, removed.deletions)
                chosen = self._filter.select(view, self._without_fillers(view, rows, name, losses, removed))
                chosen = removed.without(view, chosen)
                if len(chosen):
                    yield from batches.batches(view, chosen)
            for one in reader.corruption:
                self._tell(one, path, name, losses, removed)
            if reader.expired:
                losses.bytes_of(
                    f"{piece.path}: bytes {piece.start} to {piece.end}", "the file expired while it was read"
                )
        finally:
            losses.tell()

    def _without_fillers(self, view: memoryview, rows: Rows, name: str, losses: Losses, removed: Removed) -> Rows:
        """Leave out the rows of fillers, which a start of the broker has put over damaged records."""
        rolled_back = np.flatnonzero((rows[:, rc.C_SYS_FLAG] & TRANSACTION_MASK) == TRANSACTION_MASK)
        fillers = [row for row in rolled_back.tolist() if is_filler(view, rows[row].tolist())]
        for row in fillers:
            topic_at, size = rows[row, (rc.C_TOPIC_POSITION, rc.C_TOPIC_SIZE)].tolist()
            topic = bytes(view[topic_at : topic_at + size]).decode("utf-8", "replace")
            what = "the record was damaged when its broker started, which put a filler in its place"
            if size and topic != DAMAGED_TOPIC:
                queue_id, offset = rows[row, (rc.C_QUEUE_ID, rc.C_QUEUE_OFFSET)].tolist()
                if not removed.has((topic, queue_id, offset), int(rows[row, rc.C_PHYSICAL_OFFSET])):
                    self._lose_message((topic, queue_id, offset), name, what, losses)
            else:
                losses.bytes_of(f"{name}: physical offset {rows[row, rc.C_PHYSICAL_OFFSET]}", what)
        return np.delete(rows, fillers, 0) if fillers else rows

    def _tell(self, found: Corruption, path: str, name: str, losses: Losses, removed: Removed) -> None:
        where = f"{path}: {found.file}: bytes {found.position} to {found.end} (excluded) are no record"
        if found.is_tail:
            log.warning("%s: %s; a broker that starts here cuts the log there", where, found.reason)
        elif found.message is not None:
            if not removed.has(found.message, found.physical_offset):
                self._lose_message(found.message, name, f"{where}: {found.reason}", losses)
        else:
            losses.bytes_of(f"{where} (physical offset {found.physical_offset})", found.reason)

    def _lose_message(self, message: tuple[str, int, int], name: str, reason: str, losses: Losses) -> None:
        topic, queue_id, offset = message
        if self._filter.topics is None or topic in self._filter.topics:
            losses.offsets(f"{topic}/{name}/{queue_id}", offset, offset + 1, None, reason)


def _check_deletions(view: memoryview, rows: Rows, path: str, deletions: Mapping[str, int]) -> None:
    """Raise PipelineError if a record deletes a topic that the list lacks: earlier messages of it may have been
    returned already."""
    for row in np.flatnonzero((rows[:, rc.C_SYS_FLAG] & TRANSACTION_MASK) == TRANSACTION_MASK).tolist():
        values = rows[row].tolist()
        if not is_deletion(view, values):
            continue
        start, at = values[rc.C_POSITION], values[rc.C_PHYSICAL_OFFSET]
        names = deleted_names(decode_record(view[start : start + values[rc.C_SIZE]]))
        unknown = [name for name in names if deletions.get(name, -1) < at]
        if unknown:
            raise PipelineError(
                f"{path}: the record at physical offset {at} deletes {', '.join(unknown[:3])}, which {FILE_NAME} does "
                "not know: it is missing or old, and deleted messages would be shown. Start the store's broker on it "
                "once: it writes the file again from the log"
            )


@readable_errors
class _TableReader(DataSourceReader):
    """Reads a table of a store's files for Spark; the table `messages` has a reader of its own."""

    def __init__(self, paths: tuple[str, ...], table: str, split: int | None) -> None:
        self._paths = paths
        self._table = table
        self._split = split

    def partitions(self) -> Sequence[InputPartition]:
        found = [_Partition(path, task) for path in self._paths for task in self._tasks(open_store(path))]
        return found or [_nothing(self._paths)]

    def _tasks(self, files: StoreFiles) -> list[TableTask]:
        pieces = log_pieces(files, piece_bytes=self._split) if self._table == "corruption" else []
        return table_tasks(files, self._table, pieces, _PARTS)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, _Partition) and not isinstance(partition.value, LogPiece)
        if partition.value is not None:
            disk, _ = open_folder(partition.path)
            yield from read_table(disk, partition.value)


#: Number of tasks for the many small files of ConsumeQueues.
_PARTS: Final = 16
