"""CommitLog files cut into pieces that can be read side by side, each record by exactly one of them.

A piece takes the records that begin in it. Where it does not begin with a file, the records before it lead to the first
of them: a client may have sent a body that looks like records (magic, size, parts, body CRC, and even their physical
offsets), and whoever begins within it takes them for messages. So a piece is examined from one longest record before
its beginning: a body in which the examination begins has ended where the piece begins. Damage is passed over and noted
by the piece that holds the record before it; files of a broker that is writing are read up to the last whole record.
"""

import logging
from bisect import bisect_left
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import PurePath
from time import sleep
from typing import Final

import numpy as np

from maxq.pipeline.records.losses import Losses
from maxq.pipeline.records.record_batches import MAX_ROWS, Rows, scan_rows
from maxq.runtime.interfaces import Disk, MappedRegion
from maxq.store.files.mapped_file import holds_data
from maxq.store.log import record_cy as rc
from maxq.store.tools.log_walk import ENTRY_HEAD, REASONS, Committed, Damage, LogWalk, committed_of
from maxq.store.tools.queue_files import UNIT_SIZE, QueueEntry, QueueFiles
from maxq.store.tools.store_files import DataFile, StoreFiles

log: Final = logging.getLogger(__name__)

#: A piece is a quarter of what is read, within these bounds: a task costs some 60 ms of CPU in Spark and its worker,
#: what 40 MiB of log cost; the last pieces of a read should not leave processors idle for long.
_PIECES: Final = 4
_SMALLEST_PIECE: Final = 64 * 1024 * 1024
_LARGEST_PIECE: Final = 256 * 1024 * 1024
#: How much larger a piece is if bodies and properties are skipped, so that a task costs as much.
_PASSING: Final = 2

#: Most bytes of a record that begins in a piece and ends behind it; longer ones are found by reading on.
MAX_RECORD: Final = 16 * 1024 * 1024
_BLANK_SIZE: Final = 8
_ROWS_BEFORE: Final = 256  # records before a piece that are examined together
#: Times, and how long, a reader waits for a broker to finish its newest record: a write to memory, by a process that
#: may have to wait for its turn.
_WRITER_LOOKS: Final = 1_000
_WRITER_WAIT_S: Final = 0.001
_NO_LOG: Final = "the store has no file of the log; link one that storePathCommitLog keeps elsewhere as commitlog"


@dataclass(frozen=True, slots=True)
class LogPiece:
    """The bytes [start, end) of one file of a log, which one task reads.

    Attributes:
        root: the store's folder.
        path: the file.
        from_offset, size: physical offset of the file's first byte, and bytes.
        dledger: entries of a DLedger log; the piece is the whole file then.
        live: the broker runs.
        followed: a later file holds records.
        committed: of a DLedger log, leave out what is not among this; None: all entries are read.
    """

    root: str
    path: str
    from_offset: int
    size: int
    start: int
    end: int
    dledger: bool
    live: bool
    followed: bool
    committed: Committed | None = None


@dataclass(frozen=True, slots=True)
class Corruption:
    """Bytes [position, end) of a file that hold no record.

    Attributes:
        message: topic, queue id and queue offset of the one message it was, if that can still be read.
        is_tail: no good record follows: a broker would cut the log here at its next start.
    """

    file: str
    position: int
    end: int
    physical_offset: int
    reason: str
    message: tuple[str, int, int] | None = None
    is_tail: bool = False


def usual_piece_bytes(total: int, *, narrow: bool = False) -> int:
    """Return the default size of a piece in bytes.

    Args:
        total: bytes to be read.
        narrow: bodies and properties are passed over.
    """
    more = _PASSING if narrow else 1
    return min(max(-(-more * total // _PIECES), more * _SMALLEST_PIECE), more * _LARGEST_PIECE)


def log_pieces(
    files: StoreFiles,
    *,
    piece_bytes: int | None = None,
    low: int = 0,
    high: int = 1 << 62,
    narrow: bool = False,
    committed_only: bool = False,
) -> list[LogPiece]:
    """Cut a store's log into pieces, where it holds records at physical offsets [low, high).

    Args:
        piece_bytes: of a piece; None: as is usual for so much.
        narrow: bodies and properties are passed over.
        committed_only: of a DLedger log, leave out what is not known to be committed: it may be lost again.
    """
    committed = committed_of(files) if committed_only else None
    live = files.is_live
    stretches: list[tuple[DataFile, int, int, bool]] = []
    followed = False
    for file in reversed(files.log):
        region = files.disk.map(file.path, file.size, read_only=True)
        try:
            ranges = region.data_ranges(0, file.size)
            data_end = ranges[-1][1] if ranges else 0
            holds_records = _holds_records(region.view, data_end, file)
        finally:
            region.close()
        first = 0 if files.holds_entries(file) else max(0, low - file.from_offset)
        stretches.append((file, first, min(data_end, high - file.from_offset), followed))
        followed = followed or holds_records
    step = piece_bytes or usual_piece_bytes(sum(max(0, end - first) for _, first, end, _ in stretches), narrow=narrow)
    return [
        LogPiece(
            str(files.root), str(file.path), file.from_offset, file.size, start, min(start + size, end),
            files.holds_entries(file), live, is_followed, committed,
        )
        for file, first, end, is_followed in reversed(stretches)
        for size in (file.size if files.holds_entries(file) else step,)
        for start in range(first, end, size)
    ]  # fmt: skip


def _holds_records(view: memoryview, data_end: int, file: DataFile) -> bool:
    return (
        len(scan_rows(view, 0, data_end, file.from_offset, 1)[0]) > 0
        or rc.find_record(view, 0, data_end, file.from_offset) >= 0
    )


class PieceReader:
    """Reads one piece.

    After `rows` is used up, `corruption` lists the bytes that were skipped, and `expired` says whether the file was
    gone.
    """

    def __init__(self, disk: Disk, piece: LogPiece, *, max_rows: int = MAX_ROWS) -> None:
        """`max_rows`: the most rows that one batch has."""
        self._disk = disk
        self._piece = piece
        self._max_rows = max_rows
        self.corruption: list[Corruption] = []
        self.expired = False

    def rows(self) -> Iterator[tuple[memoryview, Rows]]:
        """Yield the records in log order: the file's bytes, and a table of record_cy.scan with positions in them. The
        table is valid until the next one is asked for."""
        piece = self._piece
        if piece.dledger:
            yield from self._dledger_rows()
            return
        try:
            region = self._disk.map(PurePath(piece.path), piece.size, read_only=True)
        except FileNotFoundError:
            self.expired = True
            return
        try:
            yield from self._file_rows(region)
        finally:
            region.close()

    def _file_rows(self, region: MappedRegion) -> Iterator[tuple[memoryview, Rows]]:
        piece, view = self._piece, region.view
        position = piece.start
        if position:
            position = self._first_record(view)
        table = np.empty(self._max_rows * rc.SCAN_WIDTH, np.int64)
        while position < piece.end:
            rows, stopped, stop = scan_rows(view, position, piece.size, piece.from_offset, table)
            mine = rows[: int(np.searchsorted(rows[:, rc.C_POSITION], piece.end))]
            is_newest = piece.live and not piece.followed and 0 < len(mine) == len(rows)
            if is_newest and stop in (rc.STOP_ZERO, rc.STOP_END) and not _is_finished(view, mine[-1]):
                log.warning(
                    "%s: the record at byte %d, the newest, is left out: its broker has not finished writing it",
                    piece.path, mine[-1][rc.C_POSITION],
                )  # fmt: skip
                if len(mine) > 1:
                    yield view, mine[:-1]
                return
            if len(mine):
                yield view, mine
            position = stopped
            if len(mine) < len(rows):
                return
            if stop == rc.STOP_ROWS_FULL and position >= piece.end:
                _, _, stop = scan_rows(view, position, piece.size, piece.from_offset, 1)
            if stop == rc.STOP_BLANK or (stop == rc.STOP_END and piece.size - position < _BLANK_SIZE):
                return
            if stop != rc.STOP_ROWS_FULL:  # also if the last record ends in another piece
                position = self._behind_damage(region, position, stop)

    def _first_record(self, view: memoryview) -> int:
        """Return where the first record of the piece begins; the piece's end if none begins in it."""
        piece = self._piece
        stop_at = min(piece.end + MAX_RECORD, piece.size)
        table = np.empty(_ROWS_BEFORE * rc.SCAN_WIDTH, np.int64)
        at = max(0, piece.start - MAX_RECORD)
        stop = rc.STOP_BAD_MAGIC if at else rc.STOP_ROWS_FULL  # the end lies within a record, or where one begins
        while True:
            if stop != rc.STOP_ROWS_FULL or at >= piece.start:
                at = rc.find_record(view, at, stop_at, piece.from_offset)
            if not 0 <= at < piece.start:
                return at if 0 <= at < piece.end else piece.end
            rows, at, stop = scan_rows(view, at, piece.size, piece.from_offset, table)
            mine = int(np.searchsorted(rows[:, rc.C_POSITION], piece.start))
            if mine < len(rows):
                return min(int(rows[mine, rc.C_POSITION]), piece.end)

    def _behind_damage(self, region: MappedRegion, position: int, stop: int) -> int:
        """Return the position at which the file continues behind damage, or its size if it does not."""
        piece, view = self._piece, region.view
        good = -1
        if stop != rc.STOP_ZERO or holds_data(region, position, piece.size):  # much faster than a search for a record
            good = rc.find_record(view, position + 1, piece.size, piece.from_offset)
        if len(scan_rows(view, position, piece.size, piece.from_offset, 1)[0]):
            return position  # the broker was writing this record
        if good < 0:
            if piece.followed:
                self._note(position, piece.size, REASONS[stop])
            elif stop != rc.STOP_ZERO and not piece.live:
                self._note(position, piece.size, f"torn tail: {REASONS[stop]}", is_tail=True)
            return piece.size
        self._note(position, good, REASONS[stop], message=_message_at(view, position, good))
        return good

    def _note(
        self,
        position: int,
        end: int,
        reason: str,
        *,
        message: tuple[str, int, int] | None = None,
        is_tail: bool = False,
    ) -> None:
        piece = self._piece
        name = PurePath(piece.path)
        shown = str(name.relative_to(piece.root)) if name.is_relative_to(piece.root) else str(name)
        place = piece.from_offset + position
        self.corruption.append(Corruption(shown, position, end, place, reason, message, is_tail))

    def _dledger_rows(self) -> Iterator[tuple[memoryview, Rows]]:
        piece = self._piece
        files = StoreFiles(self._disk, PurePath(piece.root))
        files.log = [file for file in files.log if str(file.path) == piece.path]
        self.expired = not files.log
        walk = LogWalk(files, bound=piece.committed, followed=piece.followed)
        try:
            for batch in walk.batches():
                rows = np.frombuffer(batch.rows, np.int64)[: batch.count * rc.SCAN_WIDTH]
                yield batch.view, rows.reshape(-1, rc.SCAN_WIDTH)
        finally:
            walk.close()
        self._note_damages(walk.damages)
        known = {one.start for one in walk.damages}
        end = walk.end_offset - piece.from_offset
        for fault in walk.faults:
            if fault.position not in known:
                self._note(fault.position, piece.size, fault.what, is_tail=True)
        if piece.committed is not None and not piece.followed and 0 <= walk.last_index < piece.committed.index:
            lost = f"the log ends with entry {walk.last_index}, and {piece.committed.index} is committed"
            self._note(end, piece.size, lost)
        if walk.uncommitted:
            log.warning(
                "%s: %d messages behind byte %d are left out: they are not known to be committed (they come when the "
                "group says so)", piece.path, walk.uncommitted, end,
            )  # fmt: skip

    def _note_damages(self, damages: list[Damage]) -> None:
        """Note what of a file of entries is damaged, and which messages that were."""
        if not damages:
            return
        region = self._disk.map(PurePath(self._piece.path), self._piece.size, read_only=True)
        try:
            for one in damages:
                # positions of the record, and of its entry's record in a DLedger log
                starts = one.start, one.start + ENTRY_HEAD
                found = (_message_at(region.view, start, one.end) for start in starts if start < one.end)
                self._note(one.start, one.end, one.reason, message=next((name for name in found if name), None))
        finally:
            region.close()


def _is_finished(view: memoryview, row: Rows) -> bool:
    """Return whether a broker has had enough time to finish the newest record of its log.

    A record is written from its head to its end. CRCs cover the body, which lies before topic and properties: a reader
    that comes between finds the record good and zeros in these. A record whose last property ends in a zero, as a
    client may have it, looks so, too, until another one follows.
    """
    end = int(row[rc.C_POSITION] + row[rc.C_SIZE])
    if not row[rc.C_PROPERTIES_SIZE]:
        end -= 2  # without properties, the two bytes of their length behind the topic are zeros
    for _ in range(_WRITER_LOOKS):
        if view[end - 1]:
            return True
        sleep(_WRITER_WAIT_S)
    return False


def _message_at(view: memoryview, position: int, end: int) -> tuple[str, int, int] | None:
    """Return topic, queue id and queue offset of a record of which only the body is damaged; None for other damage."""
    rows, stopped, _ = scan_rows(view, position, end, 0, 2, check_crc=False, check_offset=False)
    if len(rows) != 1 or stopped != end:
        return None
    at, size = rows[0, (rc.C_TOPIC_POSITION, rc.C_TOPIC_SIZE)].tolist()
    topic = bytes(view[at : at + size]).decode("utf-8", "replace")
    return topic, int(rows[0, rc.C_QUEUE_ID]), int(rows[0, rc.C_QUEUE_OFFSET])


# --- what is lost ----------------------------------------------------------------------------------------------------


def tell_what_is_lost(
    files: StoreFiles, name: str, losses: Losses, topics: Collection[str] | None = None, *, with_queues: bool = True
) -> None:
    """Report to `losses` the messages that a store's files show to be lost: stretches of the log without a file, and,
    in a store without a running broker, messages whose queue units point behind the end of the log; all of them if
    it has no log.

    Args:
        name: of the broker.
        topics: only their queues are looked at; None: all.
        with_queues: look at ConsumeQueues at all.

    Raises:
        DataLossError: see Losses.
    """
    for before, after in pairwise(files.log):
        end = before.from_offset + before.size
        if end != after.from_offset:
            losses.bytes_of(
                f"{files.root}: physical offsets {end} to {after.from_offset} (excluded) of the log",
                "there is no file of the log that has them, or its size is wrong",
            )
    if not with_queues or files.dledger or (files.is_live and files.log):
        return
    newest = files.log[-1] if files.log else None
    region = files.disk.map(newest.path, newest.size, read_only=True) if newest else None
    reason = "the log ends before the records that the units of the ConsumeQueue point to" if newest else _NO_LOG
    try:
        for (topic, queue_id), sequence in files.queues.items():
            if (topics is None or topic in topics) and sequence:
                first, end = _behind_the_log(files, sequence, newest, region)
                if first < end:
                    losses.offsets(f"{topic}/{name}/{queue_id}", first, end, None, reason)
    finally:
        if region is not None:
            region.close()


def _behind_the_log(
    files: StoreFiles, sequence: list[DataFile], newest: DataFile | None, region: MappedRegion | None
) -> tuple[int, int]:
    """Return the queue offset from which on units point behind the log's end, and the one behind the last unit.

    Args:
        newest, region: the last file of the log, and its bytes; None: there is none.
    """

    def is_gone(index: int) -> bool:
        """Return whether the log ends before this unit's record. Damage in front of good records does not count."""
        unit = queue.unit(index)
        assert unit is not None, "the files have a unit here"
        if newest is None or region is None or unit.is_pre_blank:
            return not unit.is_pre_blank
        at = unit.physical_offset - newest.from_offset
        if at < 0:
            return False
        reach = min(newest.size, at + unit.size + MAX_RECORD)
        return at >= newest.size or rc.find_record(region.view, at, reach, newest.from_offset) < 0

    queue = QueueFiles(files, sequence)
    try:
        first = sequence[-1].from_offset // UNIT_SIZE
        last = first + sequence[-1].size // UNIT_SIZE
        end = first + bisect_left(range(first, last), True, key=lambda index: not _is_good(queue.unit(index)))
        if end == first or not is_gone(end - 1):
            return end, end
        return first + bisect_left(range(first, end), True, key=is_gone), end
    finally:
        queue.close()


def _is_good(unit: QueueEntry | None) -> bool:
    return unit is not None and unit.is_good
