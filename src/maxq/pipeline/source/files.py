"""`readFrom=files`: ranges of queue offsets out of the files of a store, for those offsets that its files hold.

The ConsumeQueue says where the messages of a range lie. Where a read takes most of a stretch of the log, the stretch is
cut into pieces and each record is looked at once, whichever of the queues it is of; where it takes little, each message
is fetched from its own place. Every partition knows which queue offsets it is to give.

Messages that the files do not have are read over the wire: those that the plan notices (the newest messages of a broker
that is writing, expired ones, log files that are missing or cut short, queues with units of another kind), and those
that a task misses when it reads (files that expired meanwhile, damaged records). So a message is lost only if its
broker does not have it either, and whether that is an error is decided in one place, by the reader over the wire.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from maxq.errors import ConfigError, PipelineError
from maxq.pipeline.records import places_cy
from maxq.pipeline.records.record_batches import MAX_ROWS, RecordBatches, Rows, scan_rows
from maxq.pipeline.records.row_filter import topic_numbers, with_tags
from maxq.pipeline.source.offsets import OffsetRange
from maxq.pipeline.store.log_pieces import LogPiece, PieceReader, log_pieces, usual_piece_bytes
from maxq.pipeline.store.store_folder import OWNER_FILE, open_store, owner_of
from maxq.pipeline.wire.queue_range import QueueRange
from maxq.protocol.message.message_queue import MessageQueue
from maxq.protocol.message.message_sys_flag import TRANSACTION_MASK, MessageSysFlag
from maxq.protocol.message.record_layout import MIN_RECORD_SIZE
from maxq.protocol.offset_runs import runs
from maxq.store.log import record_cy as rc
from maxq.store.tools.offsets import TopicNames
from maxq.store.tools.queue_files import PRE_BLANK_SIZE, UNIT_SIZE, QueueFiles
from maxq.store.tools.store_files import StoreFiles

_UNITS: Final = np.dtype([("offset", ">i8"), ("size", ">i4"), ("tags", ">i8")])
_DENSE: Final = 0.2  # least share of a stretch that is wanted; below it, single records are fetched
_QUEUES: Final = 1 << 20  # queue ids are below this number


@dataclass(frozen=True, slots=True)
class FileRange:
    """Offsets first … last - 1 of a queue, whose records begin at physical offsets low … high - 1.

    Attributes:
        incarnation: see OffsetRange.
    """

    topic: str
    queue_id: int
    first: int
    last: int
    low: int
    high: int
    incarnation: int | None = None


@dataclass(frozen=True, slots=True)
class FilesPartition:
    """The work of one task that reads files.

    Attributes:
        path: the store's folder, as the option gives it.
        piece: the piece of the log to read; None: each message is fetched from its own place.
        ranges: the queue offsets to return.
    """

    path: str
    broker_name: str
    piece: LogPiece | None
    ranges: tuple[FileRange, ...]


@dataclass(frozen=True, slots=True)
class FilesPlan:
    """The ranges that are read from files, and those left for the wire."""

    partitions: list[FilesPartition]
    rest: list[OffsetRange]


@dataclass(frozen=True, slots=True)
class _Held:
    """A range for which the ConsumeQueue has units that point into the log.

    Attributes:
        places: physical offsets of the records of `asked.first` and those behind it, ascending.
        size: bytes of all these records.
    """

    asked: OffsetRange
    places: NDArray[np.int64]
    size: int

    def within(self, low: int, high: int) -> FileRange | None:
        """Return the part whose records begin at physical offsets [low, high); None if it is empty."""
        first, last = (int(place) for place in np.searchsorted(self.places, (low, high)))
        if first == last:
            return None
        queue, base = self.asked.queue, self.asked.first
        ends = int(self.places[first]), int(self.places[last - 1]) + 1
        return FileRange(queue.topic, queue.queue_id, base + first, base + last, *ends, self.asked.incarnation)


def plan_files(
    path: str,
    broker_name: str,
    ranges: Sequence[OffsetRange],
    *,
    lows: Mapping[MessageQueue, int] | None = None,
    min_parts: int | None,
    max_records: int | None,
) -> FilesPlan:
    """Cut `ranges` of one broker, whose store is at `path`.

    Args:
        lows: the first offset of queues that the broker shows: files are not asked for what lies before.
        min_parts, max_records: as scan.wire_partitions takes them; pieces are made smaller for them.

    Raises:
        ConfigError: there is no store, or it is another broker's.
    """
    files = open_store(path)
    owner = owner_of(files)
    if owner not in (None, broker_name):
        raise ConfigError(
            f"rocketmq: option storePath gives {path!r} as the store of broker {broker_name}, but it is that of "
            f"{owner} (its {OWNER_FILE} says so; if the broker was renamed since, delete that file of the copy)"
        )
    special = TopicNames(files).special
    found: list[_Held] = []
    for one in ranges:
        first = max(one.first, (lows or {}).get(one.queue, 0))
        held = None if files.dledger or first >= one.last else _held(files, one._replace(first=first), special)
        if held is not None:
            found.append(held)
    partitions: list[FilesPartition] = []
    if found:
        span = int(max(one.places[-1] for one in found) - min(one.places[0] for one in found))
        if sum(one.size for one in found) >= _DENSE * span:
            partitions = _pieces(files, path, broker_name, found, _piece_bytes(found, span, min_parts, max_records))
        else:
            partitions = _single_records(files, path, broker_name, found, min_parts, max_records)
    return FilesPlan(partitions, _left(ranges, partitions))


def _pieces(
    files: StoreFiles, path: str, broker_name: str, found: Sequence[_Held], piece_bytes: int
) -> list[FilesPartition]:
    """Return pieces of the log with the ranges that have messages in them."""
    low, high = min(int(one.places[0]) for one in found), max(int(one.places[-1]) for one in found) + 1
    partitions = []
    for piece in log_pieces(files, piece_bytes=piece_bytes, low=low, high=high):
        start, end = piece.from_offset + piece.start, piece.from_offset + piece.end
        inside = tuple(part for one in found if (part := one.within(start, end)) is not None)
        if inside:
            partitions.append(FilesPartition(path, broker_name, piece, inside))
    return partitions


def _single_records(
    files: StoreFiles,
    path: str,
    broker_name: str,
    found: Sequence[_Held],
    min_parts: int | None,
    max_records: int | None,
) -> list[FilesPartition]:
    """Return partitions for ranges whose messages are fetched one by one, each from one file of the log."""
    inside = [
        part
        for one in found
        for file in files.log
        if (part := one.within(file.from_offset, file.from_offset + file.size)) is not None
    ]
    rows = sum(one.last - one.first for one in inside)
    share = max_records or max(1, -(-rows // (min_parts or len(found))))
    return [
        FilesPartition(path, broker_name, None, (replace(one, first=first, last=min(first + share, one.last)),))
        for one in inside
        for first in range(one.first, one.last, share)
    ]


def _left(ranges: Sequence[OffsetRange], partitions: Sequence[FilesPartition]) -> list[OffsetRange]:
    """Return the part of `ranges` that is in no partition."""
    taken: dict[tuple[str, int], list[tuple[int, int]]] = {}
    for partition in partitions:
        for part in partition.ranges:
            taken.setdefault((part.topic, part.queue_id), []).append((part.first, part.last))
    left = []
    for one in ranges:
        position = one.first
        for first, last in sorted(taken.get((one.queue.topic, one.queue.queue_id), [])):
            if position < first:
                left.append(one._replace(first=position, last=first))
            position = last
        if position < one.last:
            left.append(one._replace(first=position))
    return left


def _piece_bytes(found: Sequence[_Held], span: int, min_parts: int | None, max_records: int | None) -> int:
    size = usual_piece_bytes(span)
    if min_parts:
        size = min(size, -(-span // min_parts))
    if max_records:
        rows = sum(len(one.places) for one in found)
        size = min(size, max(1, span * max_records // max(rows, 1)))
    return max(size, 4096)


def _held(files: StoreFiles, asked: OffsetRange, special: frozenset[str]) -> _Held | None:
    """Return the leading part of a range for which there are units; None if there are none at its start."""
    key = (asked.queue.topic, asked.queue.queue_id)
    if key not in files.queues or key[0] in special:
        return None
    queue = QueueFiles(files, files.queues[key])
    try:
        units = _units(queue, asked.first, asked.last)
    finally:
        queue.close()
    places = units["offset"].astype(np.int64)
    good = (units["size"] > 0) & (units["size"] != PRE_BLANK_SIZE) & (places >= 0) & (np.diff(places, prepend=-1) >= 0)
    count = len(units) if good.all() else int(np.argmin(good))
    if count and not _is_record(files, int(places[count - 1])):
        count = _whole_files(files, units[:count])  # the newest units point to bytes that are not in the files yet
    if not count:
        return None
    return _Held(asked, places[:count], int(units["size"][:count].sum(dtype=np.int64)))


def _units(queue: QueueFiles, first: int, last: int) -> NDArray[Any]:
    """Read the units [first, last), up to the first gap between files."""
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
    """Count the leading units that lie before the newest file of the log; fewer than all."""
    newest = files.log[-1].from_offset if files.log else 0
    return min(int(np.count_nonzero(units["offset"] < newest)), len(units) - 1)


class FilesReader:
    """Reads one partition of files.

    Attributes:
        missing: once `read` is used up: offsets of the partition that the files do not give.
    """

    def __init__(self, columns: Sequence[str], *, tags: frozenset[str] = frozenset()) -> None:
        """
        Args:
            tags: rows have one of these; empty: any.
        """
        self._columns = tuple(columns)
        self._tags = tags
        self.missing: list[QueueRange] = []

    def read(self, partition: FilesPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one partition.

        Raises:
            PipelineError: there is no store here, as there was where the plan was made.
        """
        batches = RecordBatches(self._columns, partition.broker_name)
        files = self._open(partition.path)
        wanted = _Ranges(partition.ranges)
        found = (
            self._fetch(files, partition)
            if partition.piece is None
            else PieceReader(files.disk, partition.piece).rows()
        )
        for view, rows in found:
            chosen = wanted.select(view, rows)
            if self._tags:
                chosen = with_tags(view, chosen, self._tags)
            if len(chosen):
                yield from batches.batches(view, chosen)
        self.missing = [
            QueueRange(one.topic, partition.broker_name, one.queue_id, first, end, one.incarnation)
            for one, first, end in wanted.not_seen()
        ]

    def _open(self, path: str) -> StoreFiles:
        try:
            return open_store(path)
        except ConfigError as error:
            raise PipelineError(
                f"this worker cannot read the files that the driver planned to read: {error}; mount the folder on "
                "every worker, or set readFrom to broker"
            ) from None

    def _fetch(self, files: StoreFiles, partition: FilesPartition) -> Iterator[tuple[memoryview, Rows]]:
        for one in partition.ranges:
            file = files.log_file_at(one.low)
            queue = QueueFiles(files, files.queues.get((one.topic, one.queue_id), []))
            units = _units(queue, one.first, one.last)
            queue.close()
            for first in range(0, len(units) if file is not None else 0, MAX_ROWS):
                assert file is not None
                try:
                    region = files.disk.map(file.path, file.size, read_only=True)
                except FileNotFoundError:
                    break  # the file has expired
                view = _gathered(region.view, units[first : first + MAX_ROWS], file.from_offset)
                region.close()
                yield view, _all_rows(view)


def _gathered(view: memoryview, units: NDArray[Any], from_offset: int) -> memoryview:
    """Copy the records of units one behind the other. Positions without a good record are left out."""
    table = np.empty((len(units), 2), np.int64)
    table[:, 0] = units["offset"].astype(np.int64) - from_offset
    table[:, 1] = units["size"]
    single = np.empty(rc.SCAN_WIDTH, np.int64)
    good = [
        0 <= at <= at + size <= len(view)
        and rc.scan(view, at, at + size, from_offset, single)[0] == 1
        and int(single[rc.C_SIZE]) == size
        for at, size in table.tolist()
    ]
    table = np.ascontiguousarray(table[np.array(good, bool)])
    data = np.empty(int(table[:, 1].sum()), np.uint8)
    places_cy.gather(view, table.reshape(-1), data)
    return data.data


def _all_rows(view: memoryview) -> Rows:
    room = len(view) // MIN_RECORD_SIZE + 1
    return scan_rows(view, 0, len(view), 0, room, check_crc=False, check_offset=False)[0]


class _Ranges:
    """The ranges of queues to read: selects their records, and knows which of their offsets were not seen."""

    def __init__(self, ranges: Sequence[FileRange]) -> None:
        self._topics = sorted({one.topic for one in ranges})
        self._ordered = sorted(ranges, key=self._key)
        self._keys = np.array([self._key(one) for one in self._ordered], np.int64)
        self._bounds = np.array([(one.first, one.last, one.low, one.high) for one in self._ordered], np.int64)
        sizes = self._bounds[:, 1] - self._bounds[:, 0]
        self._bases = np.cumsum(sizes) - sizes  # start of each range of `_seen` in the joined array
        self._seen = np.zeros(int(sizes.sum()), np.bool_)

    def _key(self, one: FileRange) -> int:
        return self._topics.index(one.topic) * _QUEUES + one.queue_id

    def select(self, view: memoryview, rows: Rows) -> Rows:
        """Return the rows that a consumer of the ranges gets. Records without a queue unit are left out: prepared and
        rolled back ones, and those of a deleted topic of this name."""
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
        self._seen[(self._bases[places] + offsets - bounds[:, 0])[mask]] = True
        return chosen

    def not_seen(self) -> Iterator[tuple[FileRange, int, int]]:
        """Yield ranges with the parts [first, end) of them that `select` never saw."""
        if self._seen.all():
            return
        for one, base in zip(self._ordered, self._bases.tolist(), strict=True):
            missing = np.flatnonzero(~self._seen[base : base + one.last - one.first])
            for first, end in runs(missing.tolist()):
                yield one, one.first + first, one.first + end
