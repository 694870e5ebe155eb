"""`readFrom=files`: ranges of queue offsets out of the files of a store, for those offsets that its files hold.

The ConsumeQueue says where the messages of a range lie. Where a read takes most of a stretch of the log, the stretch is
cut into pieces and each record is looked at once, whichever of the queues it is of; where it takes little, each message
is fetched from its own place. What the files do not hold for sure (the newest messages of a broker that is writing,
what has expired, queues whose units are of another kind) is left to be read over the wire.
"""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from maxq.errors import ConfigError, DataLossError, PipelineError
from maxq.pipeline.records import arrow_cy as ac
from maxq.pipeline.records.record_batches import MAX_ROWS, RecordBatches, Rows, scan_rows
from maxq.pipeline.records.row_filter import topic_numbers, with_tags
from maxq.pipeline.source.offsets import OffsetRange
from maxq.pipeline.store.log_pieces import LogPiece, PieceReader, log_pieces, usual_piece_bytes
from maxq.pipeline.store.store_folder import open_store
from maxq.protocol.message_sys_flag import TRANSACTION_MASK, MessageSysFlag
from maxq.store import record_cy as rc
from maxq.store.tools.offsets import TopicNames
from maxq.store.tools.queue_files import UNIT_SIZE, QueueFiles
from maxq.store.tools.store_files import StoreFiles

log: Final = logging.getLogger(__name__)

_UNITS: Final = np.dtype([("offset", ">i8"), ("size", ">i4"), ("tags", ">i8")])
_DENSE: Final = 0.2  # of a stretch; below it, fetching single records reads less
_QUEUES: Final = 1 << 20  # queue ids are below it


@dataclass(frozen=True, slots=True)
class FileRange:
    """Offsets first … last - 1 of a queue, whose records lie at physical offsets low … high - 1."""

    topic: str
    queue_id: int
    first: int
    last: int
    low: int
    high: int
    size: int  # bytes of all its records


@dataclass(frozen=True, slots=True)
class FilesPartition:
    """One task.

    Attributes:
        path: the store, as the option says it.
        piece: of the log; None: each message is fetched from its own place.
        ranges: what to take.
    """

    path: str
    broker_name: str
    piece: LogPiece | None
    ranges: tuple[FileRange, ...]


@dataclass(frozen=True, slots=True)
class FilesPlan:
    """What is read from files, and what is left for the wire."""

    partitions: list[FilesPartition]
    rest: list[OffsetRange]


def plan_files(
    path: str, broker_name: str, ranges: Sequence[OffsetRange], *, min_parts: int | None, max_records: int | None
) -> FilesPlan:
    """Cut `ranges` of one broker, whose store is at `path`.

    Args:
        min_parts, max_records: as scan.wire_partitions takes them; pieces are made smaller for them.

    Raises:
        ConfigError: there is no store.
    """
    files = open_store(path)
    special = TopicNames(files).special
    held: list[FileRange] = []
    rest: list[OffsetRange] = []
    for one in ranges:
        found = None if files.dledger else _held(files, one, special)
        if found is None:
            rest.append(one)
            continue
        held.append(found)
        if found.last < one.last:
            rest.append(OffsetRange(one.queue, found.last, one.last))
    if not held:
        return FilesPlan([], rest)
    span = max(one.high for one in held) - min(one.low for one in held)
    if sum(one.size for one in held) >= _DENSE * span:
        spans = _stretches(files, held, _piece_bytes(held, span, min_parts, max_records))
        return FilesPlan([FilesPartition(path, broker_name, piece, some) for piece, some in spans], rest)
    rows = sum(one.last - one.first for one in held)
    share = max_records or max(1, -(-rows // (min_parts or len(held))))
    parts = [
        replace(one, first=first, last=min(first + share, one.last))
        for one in held
        for first in range(one.first, one.last, share)
    ]
    return FilesPlan([FilesPartition(path, broker_name, None, (part,)) for part in parts], rest)


def _stretches(
    files: StoreFiles, held: Sequence[FileRange], piece_bytes: int
) -> Iterator[tuple[LogPiece, tuple[FileRange, ...]]]:
    """Pieces of the log with the ranges that have something there."""
    low, high = min(one.low for one in held), max(one.high for one in held)
    for piece in log_pieces(files, piece_bytes=piece_bytes, low=low, high=high):
        start, end = piece.from_offset + piece.start, piece.from_offset + piece.end
        some = tuple(one for one in held if one.low < end and start < one.high)
        if some:
            yield piece, some


def _piece_bytes(held: list[FileRange], span: int, min_parts: int | None, max_records: int | None) -> int:
    size = usual_piece_bytes(span)
    if min_parts:
        size = min(size, -(-span // min_parts))
    if max_records:
        rows = sum(one.last - one.first for one in held)
        size = min(size, max(1, span * max_records // max(rows, 1)))
    return max(size, 4096)


def _held(files: StoreFiles, asked: OffsetRange, special: frozenset[str]) -> FileRange | None:
    """The leading part of a range that the files hold for sure; None if it does not begin there."""
    key = (asked.queue.topic, asked.queue.queue_id)
    if key not in files.queues or key[0] in special:
        return None
    queue = QueueFiles(files, files.queues[key])
    try:
        units = _units(queue, asked.first, asked.last)
    finally:
        queue.close()
    good = (units["size"] > 0) & (units["offset"] >= 0)
    count = len(units) if good.all() else int(np.argmin(good))
    while count:
        last = units[count - 1]
        if _is_record(files, int(last["offset"])):
            break
        count = _whole_files(files, units[:count])  # the newest bytes are not in the files yet
    if not count:
        return None
    units = units[:count]
    low, high = int(units["offset"].min()), int((units["offset"] + units["size"]).max())
    size = int(units["size"].sum(dtype=np.int64))
    return FileRange(*key, asked.first, asked.first + count, low, high, size)


def _units(queue: QueueFiles, first: int, last: int) -> NDArray[Any]:
    """Units of [first, last), as far as there are files without a gap."""
    parts = []
    index = first
    while index < last:
        number = next((f for f in queue.sequence if f.from_offset <= index * UNIT_SIZE < f.from_offset + f.size), None)
        if number is None:
            break
        end = min(last, (number.from_offset + number.size) // UNIT_SIZE)
        found = queue.read(index * UNIT_SIZE, (end - index) * UNIT_SIZE)
        if found is None:
            break
        parts.append(np.frombuffer(bytes(found), _UNITS))
        index = end
    return np.concatenate(parts) if parts else np.empty(0, _UNITS)


def _is_record(files: StoreFiles, physical_offset: int) -> bool:
    file = files.log_file_at(physical_offset)
    if file is None:
        return False
    region = files.disk.map(file.path, file.size, read_only=True)
    try:
        position = physical_offset - file.from_offset
        return len(scan_rows(region.view, position, file.size, file.from_offset, 1)[0]) > 0
    finally:
        region.close()


def _whole_files(files: StoreFiles, units: NDArray[Any]) -> int:
    """How many leading units lie before the newest file of the log; fewer than all."""
    newest = files.log[-1].from_offset if files.log else 0
    return min(int(np.count_nonzero(units["offset"] < newest)), len(units) - 1)


class FilesReader:
    """Reads partitions of files."""

    def __init__(
        self, columns: Sequence[str], *, tags: frozenset[str] = frozenset(), fail_on_data_loss: bool = True
    ) -> None:
        """
        Args:
            tags: rows have one of these; empty: any.
            fail_on_data_loss: a file that expired after the plan was made is an error.
        """
        self._columns = tuple(columns)
        self._tags = tags
        self._fail_on_data_loss = fail_on_data_loss

    def read(self, partition: FilesPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one partition.

        Raises:
            PipelineError: there is no store here, as there was where the plan was made.
            DataLossError: see `fail_on_data_loss`.
        """
        batches = RecordBatches(self._columns, partition.broker_name)
        for view, rows in self._rows(partition):
            chosen = with_tags(view, rows, self._tags) if self._tags else rows
            if len(chosen):
                yield from batches.batches(view, chosen)

    def _rows(self, partition: FilesPartition) -> Iterator[tuple[memoryview, Rows]]:
        files = self._open(partition.path)
        if partition.piece is None:
            for one in partition.ranges:
                yield from self._fetch(files, partition.broker_name, one)
            return
        chosen = _Ranges(partition.ranges)
        reader = PieceReader(files.disk, partition.piece)
        for view, rows in reader.rows():
            yield view, chosen.select(view, rows)
        if reader.expired:
            self._lost(partition.broker_name, partition.ranges[0])

    def _open(self, path: str) -> StoreFiles:
        try:
            return open_store(path)
        except ConfigError as error:
            raise PipelineError(
                f"this worker cannot read the files that the driver planned to read: {error}; mount the folder on "
                "every worker, or set readFrom to broker"
            ) from None

    def _fetch(self, files: StoreFiles, broker: str, one: FileRange) -> Iterator[tuple[memoryview, Rows]]:
        sequence = files.queues.get((one.topic, one.queue_id), [])
        queue = QueueFiles(files, sequence)
        units = _units(queue, one.first, one.last)
        queue.close()
        found = 0
        for first in range(0, len(units), MAX_ROWS):
            some = units[first : first + MAX_ROWS]
            for file in files.log:
                inside = some[(some["offset"] >= file.from_offset) & (some["offset"] < file.from_offset + file.size)]
                if len(inside):
                    found += len(inside)
                    region = files.disk.map(file.path, file.size, read_only=True)
                    view = _gathered(region.view, inside, file.from_offset)
                    region.close()
                    yield view, _all_rows(view)
        if found < one.last - one.first:
            self._lost(broker, one)

    def _lost(self, broker: str, one: FileRange) -> None:
        queue = f"{one.topic}/{broker}/{one.queue_id}"
        reason = "files of the log expired while they were read"
        if self._fail_on_data_loss:
            raise DataLossError(queue, one.first, (one.first, one.last), reason)
        log.warning("queue %s: messages before offset %d may be missing: %s", queue, one.last, reason)


def _gathered(view: memoryview, units: NDArray[Any], from_offset: int) -> memoryview:
    """The records of units, one behind the other; places that hold no good record are left out."""
    table = np.empty((len(units), 2), np.int64)
    table[:, 0] = units["offset"] - from_offset
    table[:, 1] = units["size"]
    single = np.empty(rc.SCAN_WIDTH, np.int64)
    good = [
        rc.scan(view, at, min(at + size, len(view)), from_offset, single)[0] == 1 and int(single[rc.C_SIZE]) == size
        for at, size in table.tolist()
    ]
    table = np.ascontiguousarray(table[np.array(good, bool)])
    data = np.empty(int(table[:, 1].sum()), np.uint8)
    offsets = np.empty(len(table) + 1, np.int32)
    ac.gather(view, bytearray(), table.reshape(-1), 2, 0, len(table), offsets, data, np.empty(0, np.uint8))
    return data.data


def _all_rows(view: memoryview) -> Rows:
    room = len(view) // 91 + 1
    return scan_rows(view, 0, len(view), 0, room, check_crc=False, check_offset=False)[0]


class _Ranges:
    """Which records of a stretch of the log belong to ranges of queues."""

    def __init__(self, ranges: Sequence[FileRange]) -> None:
        self._topics = sorted({one.topic for one in ranges})
        ordered = sorted(ranges, key=self._key)
        self._keys = np.array([self._key(one) for one in ordered], np.int64)
        self._bounds = np.array([(one.first, one.last, one.low, one.high) for one in ordered], np.int64)

    def _key(self, one: FileRange) -> int:
        return self._topics.index(one.topic) * _QUEUES + one.queue_id

    def select(self, view: memoryview, rows: Rows) -> Rows:
        """The rows that a consumer of the ranges gets. Records that no queue has a unit of are none of them: prepared
        and rolled back ones, and those of a topic of this name that was deleted."""
        keys = topic_numbers(view, rows, self._topics)
        keys = np.where(keys < 0, -1, keys * _QUEUES + rows[:, rc.C_QUEUE_ID])
        places = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        bounds = self._bounds[places]
        offsets, physical = rows[:, rc.C_QUEUE_OFFSET], rows[:, rc.C_PHYSICAL_OFFSET]
        kind = rows[:, rc.C_SYS_FLAG] & TRANSACTION_MASK
        mask = (self._keys[places] == keys) & ((kind == 0) | (kind == MessageSysFlag.TRANSACTION_COMMIT))
        mask &= (bounds[:, 0] <= offsets) & (offsets < bounds[:, 1])
        mask &= (bounds[:, 2] <= physical) & (physical < bounds[:, 3])
        chosen: Rows = rows[mask]
        return chosen
