"""The tasks of an audit: they read the log and what it should have been dispatched to, index files, and two logs side
by side.

Faults: store, file, position (byte in the file; null where there is no place), kind, expected, found.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from maxq.pipeline.jobs.rebuild.log_dispatch import DispatchSettings, PieceResult, dispatch_piece
from maxq.pipeline.store.log_pieces import LogPiece
from maxq.pipeline.store.store_tables import TableTask, read_written_units
from maxq.runtime.files.system import SystemDisk
from maxq.store.tools.index_files import HEADER_SIZE, SLOT_SIZE, Geometry, IndexHeader, IndexReader
from maxq.store.tools.offsets import TopicNames
from maxq.store.tools.store_files import DataFile, StoreFiles

#: What the log says there should be, and ranges of it that are no records. `what` tells which columns a row has.
LOG_ROWS: Final = pa.schema(
    [
        pa.field("what", pa.string()),
        pa.field("topic", pa.string()),
        pa.field("queueId", pa.int32()),
        pa.field("queueOffset", pa.int64()),
        pa.field("physicalOffset", pa.int64()),
        pa.field("size", pa.int32()),
        pa.field("tagsCode", pa.int64()),
        pa.field("keyHash", pa.int32()),
        pa.field("storeTimestamp", pa.int64()),
        pa.field("file", pa.string()),
        pa.field("position", pa.int64()),
        pa.field("found", pa.string()),
    ]
)
#: A unit of a queue: topic, queueId, queueOffset, physicalOffset, size, tagsCode.
UNIT: Final = "unit"
#: An index entry: keyHash, physicalOffset, storeTimestamp (milliseconds).
ENTRY: Final = "entry"
#: Damage: file, position, found.
DAMAGE: Final = "damage"
#: Entries that the index has; `begin` is the begin time of the file in milliseconds.
FOUND_ENTRIES: Final = pa.schema(
    [
        pa.field("file", pa.string()),
        pa.field("position", pa.int64()),
        pa.field("number", pa.int32()),
        pa.field("keyHash", pa.int32()),
        pa.field("physicalOffset", pa.int64()),
        pa.field("seconds", pa.int32()),
        pa.field("begin", pa.int64()),
    ]
)
FAULTS: Final = pa.schema(
    [
        pa.field("store", pa.string()),
        pa.field("file", pa.string()),
        pa.field("position", pa.int64()),
        pa.field("kind", pa.string()),
        pa.field("expected", pa.string()),
        pa.field("found", pa.string()),
    ]
)
_UNITS: Final = np.dtype([("offset", ">i8"), ("size", ">i4"), ("tags", ">i8")])
_COLLECTED: Final = np.dtype([("hash", ">i4"), ("offset", ">i8"), ("stored", ">i8")])
_ENTRIES: Final = np.dtype([("hash", ">i4"), ("offset", ">i8"), ("seconds", ">i4"), ("previous", ">i4")])
_MOST_FAULTS_OF_A_FILE: Final = 1000
_NEAR: Final = 64  # bytes: differences closer than this are reported as one range
_CHUNK: Final = 8 << 20
_SHOWN_BYTES: Final = 16


@dataclass(frozen=True, slots=True)
class AuditPiece:
    """A piece of a store's log, and the settings that its records do not contain."""

    piece: LogPiece
    settings: DispatchSettings
    topics: TopicNames


@dataclass(frozen=True, slots=True)
class IndexTask:
    """One IndexFile that a task of the audit reads."""

    root: str
    file: DataFile
    geometry: Geometry


@dataclass(frozen=True, slots=True)
class CompareTask:
    """Physical offsets [start, end) of a master's log and of a copy's log, which are compared.

    Attributes:
        master, copy: their files that hold some of it.
        store, root: of the copy: its name in faults, and its folder.
    """

    store: str
    root: str
    master: tuple[DataFile, ...]
    copy: tuple[DataFile, ...]
    start: int
    end: int


def log_rows(task: AuditPiece) -> Iterator[pa.RecordBatch]:
    """Yield LOG_ROWS of a piece, which is read once; messages of deleted topics have no units."""
    result = dispatch_piece(SystemDisk(), task.piece, task.settings)
    for (topic, queue_id), run in result.runs.items():
        if task.topics.is_deleted(topic):
            continue
        for segment in run.segments():
            units = np.frombuffer(b"".join(segment.chunks), _UNITS)
            yield _rows_of(
                UNIT,
                len(units),
                topic=pa.repeat(topic, len(units)),
                queueId=pa.repeat(pa.scalar(queue_id, pa.int32()), len(units)),
                queueOffset=pa.array(np.arange(segment.first, segment.first + len(units))),
                physicalOffset=pa.array(units["offset"].astype(np.int64)),
                size=pa.array(units["size"].astype(np.int32)),
                tagsCode=pa.array(units["tags"].astype(np.int64)),
            )
    yield from _batch_units(task, result)
    for chunk in result.entries:
        entries = np.frombuffer(chunk, _COLLECTED)
        yield _rows_of(
            ENTRY,
            len(entries),
            keyHash=pa.array(entries["hash"].astype(np.int32)),
            physicalOffset=pa.array(entries["offset"].astype(np.int64)),
            storeTimestamp=pa.array(entries["stored"].astype(np.int64)),
        )
    for damage in result.corruption:
        yield _rows_of(
            DAMAGE,
            1,
            file=pa.array([damage.file]),
            position=pa.array([damage.position]),
            found=pa.array([f"{damage.reason}, up to {damage.end}"]),
        )


def _rows_of(what: str, count: int, **columns: pa.Array) -> pa.RecordBatch:
    """Return `count` rows of LOG_ROWS of the kind `what` with these columns; the other columns are null."""
    columns["what"] = pa.repeat(what, count)
    arrays = [columns.get(column.name, pa.nulls(count, column.type)) for column in LOG_ROWS]
    return pa.RecordBatch.from_arrays(arrays, schema=LOG_ROWS)


def _batch_units(task: AuditPiece, result: PieceResult) -> Iterator[pa.RecordBatch]:
    for (topic, queue_id), units in result.batch_units.items():
        if not task.topics.is_deleted(topic):
            yield _rows_of(
                UNIT,
                len(units),
                topic=pa.repeat(topic, len(units)),
                queueId=pa.repeat(pa.scalar(queue_id, pa.int32()), len(units)),
                queueOffset=pa.array([unit.base_offset for unit in units], pa.int64()),
                physicalOffset=pa.array([unit.physical_offset for unit in units], pa.int64()),
                size=pa.array([unit.size for unit in units], pa.int32()),
                tagsCode=pa.array([unit.tags_code for unit in units], pa.int64()),
            )


def found_units(task: TableTask) -> Iterator[pa.RecordBatch]:
    """Yield units as the table `consumequeue` of store_tables.py has them, and also the positions whose content cannot
    be a unit."""
    return read_written_units(SystemDisk(), task)


def _reader(task: IndexTask) -> tuple[StoreFiles, IndexReader]:
    files = StoreFiles(SystemDisk(), PurePath(task.root))
    return files, IndexReader(files, task.file, task.geometry)


def _entries_of(reader: IndexReader) -> NDArray[Any]:
    at = reader.geometry.entry_position(1)
    data = bytes(reader.view[at : at + reader.entry_count * _ENTRIES.itemsize])
    return np.frombuffer(data, _ENTRIES)


def found_entries(task: IndexTask) -> Iterator[pa.RecordBatch]:
    """Yield the entries that an IndexFile has, as FOUND_ENTRIES."""
    files, reader = _reader(task)
    entries = _entries_of(reader)
    numbers = np.arange(1, len(entries) + 1)
    yield pa.RecordBatch.from_arrays(
        [
            pa.repeat(files.name(task.file.path), len(entries)),
            pa.array(task.geometry.entry_position(0) + numbers * _ENTRIES.itemsize),
            pa.array(numbers.astype(np.int32)),
            pa.array(entries["hash"].astype(np.int32)),
            pa.array(entries["offset"].astype(np.int64)),
            pa.array(entries["seconds"].astype(np.int32)),
            pa.repeat(pa.scalar(reader.header.begin_timestamp, pa.int64()), len(entries)),
        ],
        schema=FOUND_ENTRIES,
    )
    reader.close()


def index_structure(task: IndexTask) -> Iterator[pa.RecordBatch]:
    """Yield FAULTS of the structure of a file: chains, slots, header."""
    files, reader = _reader(task)
    name = files.name(task.file.path)
    found = [
        (task.root, name, position, kind, expected, shown)
        for position, kind, expected, shown in structure_faults(reader.header, _entries_of(reader), reader)
    ]
    reader.close()
    yield batch_of(FAULTS, found[:_MOST_FAULTS_OF_A_FILE])


def structure_faults(
    header: IndexHeader, entries: NDArray[Any], reader: IndexReader
) -> Iterator[tuple[int, str, str, str]]:
    """Yield (position, kind, expected, found) of the faults in one file's entries, slots and header."""
    geometry = reader.geometry
    slots = np.abs(entries["hash"].astype(np.int64)) % geometry.slots
    order = np.argsort(slots, kind="stable")
    grouped = slots[order]
    follows = np.flatnonzero(grouped[1:] == grouped[:-1])
    previous = np.zeros(len(entries), np.int64)
    previous[order[follows + 1]] = order[follows] + 1
    stated = entries["previous"].astype(np.int64)
    for place in np.flatnonzero(previous != stated):
        position = geometry.entry_position(int(place) + 1) + 16
        yield position, "index chain", f"entry {previous[place]} before", f"entry {stated[place]}"
    heads = np.zeros(geometry.slots, np.int64)
    heads[slots] = np.arange(1, len(entries) + 1)
    there = np.frombuffer(bytes(reader.slots()), ">i4").astype(np.int64)
    for slot in np.flatnonzero(heads != there):
        yield HEADER_SIZE + SLOT_SIZE * int(slot), "index slot", f"entry {heads[slot]}", f"entry {there[slot]}"
    if len(entries):
        yield from _header_faults(header, int(np.count_nonzero(heads)), entries)


def _header_faults(header: IndexHeader, slots: int, entries: NDArray[Any]) -> Iterator[tuple[int, str, str, str]]:
    wanted = {16: ("begin offset", int(entries["offset"][0]), header.begin_physical_offset)}
    wanted[24] = ("end offset", int(entries["offset"].max()), header.end_physical_offset)
    wanted[32] = ("slots in use", slots, header.hash_slot_count)
    for position, (what, expected, found) in wanted.items():
        if expected != found:
            yield position, "index header", f"{what} {expected}", f"{what} {found}"


def compare(task: CompareTask) -> Iterator[pa.RecordBatch]:
    """Yield FAULTS of a copy: byte ranges that differ from the master's."""
    rows = []
    for start in range(task.start, task.end, _CHUNK):
        size = min(_CHUNK, task.end - start)
        ours, theirs = read_range(task.master, start, size), read_range(task.copy, start, size)
        for first, end in differing(ours, theirs):
            file = next(one for one in task.copy if one.from_offset <= start + first < one.from_offset + one.size)
            path = PurePath(file.path)
            name = str(path.relative_to(task.root)) if path.is_relative_to(task.root) else str(path)
            position = start + first - file.from_offset
            rows.append(
                (task.store, name, position, "copy differs", _shown(ours, first, end), _shown(theirs, first, end))
            )
    yield batch_of(FAULTS, rows)


def read_range(files: Sequence[DataFile], start: int, size: int) -> NDArray[np.uint8]:
    """Return the bytes [start, start + size) of a log; zeros where no file has them."""
    found = np.zeros(size, np.uint8)
    for file in files:
        first, end = max(start, file.from_offset), min(start + size, file.from_offset + file.size)
        if first < end:
            data = np.fromfile(file.path, np.uint8, end - first, offset=first - file.from_offset)
            found[first - start : first - start + len(data)] = data
    return found


def differing(ours: NDArray[np.uint8], theirs: NDArray[np.uint8]) -> list[tuple[int, int]]:
    """Return [first, end) of the bytes that differ; ranges near each other are joined."""
    places = np.flatnonzero(ours != theirs)
    if not len(places):
        return []
    breaks = np.flatnonzero(np.diff(places) > _NEAR)
    firsts = places[np.concatenate(([0], breaks + 1))]
    ends = places[np.concatenate((breaks, [len(places) - 1]))] + 1
    return list(zip(firsts.tolist(), ends.tolist(), strict=True))


def _shown(data: NDArray[np.uint8], first: int, end: int) -> str:
    head = data[first : min(end, first + _SHOWN_BYTES)].tobytes().hex(" ")
    return f"{end - first} bytes: {head}" + (" …" if end - first > _SHOWN_BYTES else "")


def batch_of(schema: pa.Schema, rows: Sequence[Sequence[Any]]) -> pa.RecordBatch:
    """Return rows as a record batch with the columns of `schema`."""
    columns = list(zip(*rows, strict=True)) or [()] * len(schema)
    arrays = [pa.array(column, kind) for column, kind in zip(columns, schema.types, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
