"""The tables of a store directory beside its messages: what stands in its queue, index, checkpoint and timer files.

Each table is a schema, a way to cut it into tasks, and a generator of Arrow batches for one task.
"""

import struct
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from maxq.errors import StoreError, StoreRefusedError
from maxq.pipeline.records.record_batches import microsecond, microseconds
from maxq.pipeline.store.log_pieces import LogPiece, PieceReader
from maxq.runtime.files.overlay_disk import OverlayDisk
from maxq.runtime.interfaces import Disk
from maxq.store.timer.offline_timer import OfflineTimer
from maxq.store.tools.index_files import IndexReader, infer_geometry
from maxq.store.tools.offsets import queue_offsets
from maxq.store.tools.queue_files import PRE_BLANK_SIZE
from maxq.store.tools.store_files import DataFile, StoreFiles

_TIME: Final = pa.timestamp("us", tz="UTC")
_UNITS: Final = np.dtype([("offset", ">i8"), ("size", ">i4"), ("tags", ">i8")])
_BATCH_UNITS: Final = np.dtype(
    [
        ("offset", ">i8"), ("size", ">i4"), ("tags", ">i8"), ("stored", ">i8"),
        ("base", ">i8"), ("count", ">i2"), ("compacted", ">i4"), ("reserved", ">i4"),
    ]
)  # fmt: skip
_ENTRIES: Final = np.dtype([("hash", ">i4"), ("offset", ">i8"), ("seconds", ">i4"), ("previous", ">i4")])
_CHECKPOINT: Final = struct.Struct(">qqqqqq")
_ROWS: Final = 65_536
_TIMER_PAGE: Final = 500
_PRIVATE_FROM: Final = 1 << 20

#: Table → columns with Arrow type and Spark type.
TABLES: Final[dict[str, dict[str, tuple[pa.DataType, str]]]] = {
    "consumequeue": {
        "topic": (pa.string(), "string"),
        "queueId": (pa.int32(), "int"),
        "queueOffset": (pa.int64(), "bigint"),
        "physicalOffset": (pa.int64(), "bigint"),
        "size": (pa.int32(), "int"),
        "tagsCode": (pa.int64(), "bigint"),
        "messageCount": (pa.int32(), "int"),
        "file": (pa.string(), "string"),
    },
    "index": {
        "file": (pa.string(), "string"),
        "number": (pa.int32(), "int"),
        "keyHash": (pa.int32(), "int"),
        "physicalOffset": (pa.int64(), "bigint"),
        "storeTimestamp": (_TIME, "timestamp"),
        "slot": (pa.int32(), "int"),
        "previous": (pa.int32(), "int"),
    },
    "offsets": {
        "topic": (pa.string(), "string"),
        "queueId": (pa.int32(), "int"),
        "minOffset": (pa.int64(), "bigint"),
        "maxOffset": (pa.int64(), "bigint"),
    },
    "checkpoint": {
        "physicMsgTimestamp": (_TIME, "timestamp"),
        "logicsMsgTimestamp": (_TIME, "timestamp"),
        "indexMsgTimestamp": (_TIME, "timestamp"),
        "masterFlushedOffset": (pa.int64(), "bigint"),
        "confirmPhyOffset": (pa.int64(), "bigint"),
        "logicsPhysicalOffset": (pa.int64(), "bigint"),
    },
    "timer": {
        "dueTimestamp": (_TIME, "timestamp"),
        "state": (pa.string(), "string"),
        "topic": (pa.string(), "string"),
        "queueId": (pa.int32(), "int"),
        "msgId": (pa.string(), "string"),
        "physicalOffset": (pa.int64(), "bigint"),
        "size": (pa.int32(), "int"),
        "timerLogPosition": (pa.int64(), "bigint"),
        "storeTimestamp": (_TIME, "timestamp"),
        "recalls": (pa.string(), "string"),
    },
    "corruption": {
        "file": (pa.string(), "string"),
        "position": (pa.int64(), "bigint"),
        "end": (pa.int64(), "bigint"),
        "physicalOffset": (pa.int64(), "bigint"),
        "reason": (pa.string(), "string"),
    },
}


@dataclass(frozen=True, slots=True)
class TableTask:
    """The part of a table that one task reads: some of its files, or all of it."""

    root: str
    table: str
    files: tuple[tuple[str, int, DataFile], ...] = ()  # (topic, queue id, file)
    piece: LogPiece | None = None


def table_schema(table: str) -> pa.Schema:
    """Return the Arrow schema of a table."""
    return pa.schema([pa.field(name, kind) for name, (kind, _) in TABLES[table].items()])


def table_ddl(table: str) -> str:
    """Return the schema of a table as Spark writes it."""
    return ", ".join(f"`{name}` {kind}" for name, (_, kind) in TABLES[table].items())


def table_tasks(files: StoreFiles, table: str, pieces: list[LogPiece], parts: int) -> list[TableTask]:
    """Make the tasks of a table that is not `messages`.

    Args:
        pieces: of the log, for `corruption`.
        parts: about so many tasks for files that are many.
    """
    root = str(files.root)
    if table == "corruption":
        return [TableTask(root, table, piece=piece) for piece in pieces]
    if table == "consumequeue":
        listed = [
            (topic, queue_id, file)
            for queues in (files.queues, files.batch_queues)
            for (topic, queue_id), sequence in sorted(queues.items())
            for file in sequence
        ]
        share = max(1, -(-len(listed) // max(parts, 1)))
        return [TableTask(root, table, tuple(listed[at : at + share])) for at in range(0, len(listed), share)]
    if table == "index":
        return [TableTask(root, table, (("", 0, file),)) for file in files.index]
    return [TableTask(root, table)]


def read_table(disk: Disk, task: TableTask) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a table that one task is to read."""
    schema = table_schema(task.table)
    if task.table == "corruption":
        assert task.piece is not None
        reader = PieceReader(disk, task.piece)
        for _ in reader.rows():
            pass
        yield from _rows(schema, [[d.file, d.position, d.end, d.physical_offset, d.reason] for d in reader.corruption])
        return
    files = StoreFiles(disk, PurePath(task.root))
    if task.table == "consumequeue":
        for topic, queue_id, file in task.files:
            yield from _units(files, topic, queue_id, file, _in_use)
    elif task.table == "index":
        yield from _entries(files, schema, task.files[0][2])
    elif task.table == "offsets":
        found = queue_offsets(files)
        yield from _rows(schema, [[one.topic, one.queue_id, one.min_offset, one.max_offset] for one in found])
    elif task.table == "checkpoint":
        path = files.root / "checkpoint"
        data = disk.read(path) if disk.exists(path) else b""
        if len(data) >= _CHECKPOINT.size:
            values = _CHECKPOINT.unpack_from(data)
            yield from _rows(schema, [[*map(microsecond, values[:3]), *values[3:]]])
    else:
        yield from _timer(disk, files, schema)


def _rows(schema: pa.Schema, rows: list[list[Any]]) -> Iterator[pa.RecordBatch]:
    columns = list(zip(*rows, strict=True)) or [()] * len(schema)
    arrays = [pa.array(column, kind) for column, kind in zip(columns, schema.types, strict=True)]
    yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _bytes(files: StoreFiles, file: DataFile) -> bytes:
    try:
        return files.disk.read(file.path)
    except FileNotFoundError:
        return b""  # the file was removed meanwhile


def read_written_units(disk: Disk, task: TableTask) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a task of `consumequeue`, and also other bytes in the place of a unit, except zeros."""
    files = StoreFiles(disk, PurePath(task.root))
    for topic, queue_id, file in task.files:
        yield from _units(files, topic, queue_id, file, _written)


def _in_use(units: NDArray[Any]) -> NDArray[np.bool_]:
    """Return which units are in use; units that only fill a queue's first file are not."""
    used: NDArray[np.bool_] = (units["size"] > 0) & (units["offset"] >= 0) & (units["size"] != PRE_BLANK_SIZE)
    return used


def _written(units: NDArray[Any]) -> NDArray[np.bool_]:
    is_blank = ((units["size"] == PRE_BLANK_SIZE) | (units["size"] == 0)) & (units["offset"] == 0)
    written: NDArray[np.bool_] = ~(is_blank & (units["tags"] == 0))
    return written


def _units(
    files: StoreFiles, topic: str, queue_id: int, file: DataFile, chosen: Callable[[NDArray[Any]], NDArray[np.bool_]]
) -> Iterator[pa.RecordBatch]:
    """Yield the units of one file of a queue for which `chosen` is true."""
    data = _bytes(files, file)
    is_batch = file.path.parts[-4] == "batchconsumequeue"
    kind = _BATCH_UNITS if is_batch else _UNITS
    units = np.frombuffer(data, kind, len(data) // kind.itemsize)
    numbers = np.flatnonzero(chosen(units))
    for first in range(0, len(numbers), _ROWS):
        some = numbers[first : first + _ROWS]
        found = units[some]
        count = len(some)
        queue_offsets_ = found["base"] if is_batch else some + file.from_offset // kind.itemsize
        messages = found["count"] if is_batch else np.ones(count, np.int32)
        yield pa.RecordBatch.from_arrays(
            [
                pa.repeat(topic, count),
                pa.repeat(pa.scalar(queue_id, pa.int32()), count),
                pa.array(queue_offsets_.astype(np.int64)),
                pa.array(found["offset"].astype(np.int64)),
                pa.array(found["size"].astype(np.int32)),
                pa.array(found["tags"].astype(np.int64)),
                pa.array(messages.astype(np.int32)),
                pa.repeat(files.name(file.path), count),
            ],
            schema=table_schema("consumequeue"),
        )


def _entries(files: StoreFiles, schema: pa.Schema, file: DataFile) -> Iterator[pa.RecordBatch]:
    try:
        geometry = infer_geometry(files, file)
    except StoreError as error:
        raise StoreError(f"{files.name(file.path)}: {error}") from None
    if geometry is None:
        return
    reader = IndexReader(files, file, geometry)
    begin = microsecond(reader.header.begin_timestamp) // 1000
    for first in range(1, reader.entry_count + 1, _ROWS):
        count = min(_ROWS, reader.entry_count + 1 - first)
        at = geometry.entry_position(first)
        found = np.frombuffer(bytes(reader.view[at : at + count * _ENTRIES.itemsize]), _ENTRIES)
        hashes = found["hash"].astype(np.int32)
        times = microseconds(begin + found["seconds"].astype(np.int64) * 1000)
        yield pa.RecordBatch.from_arrays(
            [
                pa.repeat(files.name(file.path), count),
                pa.array(np.arange(first, first + count, dtype=np.int32)),
                pa.array(hashes),
                pa.array(found["offset"].astype(np.int64)),
                pa.array(times, _TIME),
                pa.array((np.abs(hashes.astype(np.int64)) % geometry.slots).astype(np.int32)),
                pa.array(found["previous"].astype(np.int32)),
            ],
            schema=schema,
        )
    reader.close()


def _timer(disk: Disk, files: StoreFiles, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the messages that wait in the wheel; a store that never had a timer has no rows."""
    with tempfile.TemporaryDirectory(prefix="maxq-timer-") as upper:
        overlay = OverlayDisk(files.root, PurePath(upper), private_from=_PRIVATE_FROM)
        try:
            timer = OfflineTimer(overlay, files.root, files.log, precision_ms=1000)
        except StoreRefusedError:
            return
        begin = timer.read_time_ms if timer.earliest_ms is None else timer.earliest_ms
        cursor = ""
        while True:
            page = timer.listing.page(begin, timer.latest_ms + 1, begin, limit=_TIMER_PAGE, cursor=cursor)
            yield from _rows(schema, [_timer_row(entry.to_json()) for entry in page.entries])
            cursor = page.next
            if not cursor:
                return


def _timer_row(found: dict[str, Any]) -> list[Any]:
    return [
        microsecond(found["dueMs"]), found["state"], found.get("topic"), found.get("queueId"), found.get("msgId"),
        found["physicalOffset"], found["size"], found["timerLogPosition"],
        microsecond(found["storedMs"]) if "storedMs" in found else None, found.get("recalls"),
    ]  # fmt: skip
