"""The log from its first record to its last, over whatever is broken in between.

The one question that matters at a bad place is whether it is the end. **A torn tail is the end; damage in the middle
is not**: if a good record (magic, size, own physical offset, CRC) follows, in the same file or at the beginning of a
later one, the range between is damage, and the log goes on behind it.
"""

from array import array
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from itertools import count as count_from
from typing import Final

from maxq.runtime.interfaces import MappedRegion
from maxq.store.context.progress import Progress, no_progress
from maxq.store.dledger import entries_cy as entries
from maxq.store.dledger.ledger_checkpoint import LedgerCheckpoint, LedgerCheckpointFile
from maxq.store.files.mapped_file import holds_data
from maxq.store.log import record_cy as rc
from maxq.store.log.log_search import find_record
from maxq.store.tools.store_files import DataFile, Fault, StoreFiles

_ROWS: Final = 2048
_PAGE: Final = 64 << 10  # larger than most messages
#: Bytes before the record of a DLedger entry.
ENTRY_HEAD: Final = 48
_SIZE_AT, _INDEX_AT, _TERM_AT = 4, 8, 16  # positions of size, index and term in an entry
_OTHER_MEMBERS: Final = "see the other members"
_FILLER_MAGIC: Final = b"\xff\xff\xff\xff"
_BLANK_MAGIC: Final = b"\xcb\xd4\x31\x94"
REASONS: Final = {
    rc.STOP_ZERO: "zeros where a record should be",
    rc.STOP_BAD_MAGIC: "no magic code of a record",
    rc.STOP_BAD_SIZE: "the size of the record is not the sum of its parts",
    rc.STOP_BAD_CRC: "the CRC of the body is wrong",
    rc.STOP_BAD_OFFSET: "the record says it belongs to another physical offset",
    rc.STOP_END: "the file ends in a record",
}


@dataclass(frozen=True, slots=True)
class Batch:
    """Consecutive good records of one file: `count` rows of record_cy.SCAN_WIDTH columns, positions in `view`."""

    file: DataFile
    view: memoryview
    rows: "array[int]"
    count: int


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes [start, end) of a file that are not records, with good ones behind them."""

    file: DataFile
    start: int
    end: int
    reason: str

    def covers(self, physical_offset: int) -> bool:
        return self.file.from_offset + self.start <= physical_offset < self.file.from_offset + self.end


class LogWalk:
    """One walk over the log.

    After `batches` is used up: `damages`, `faults` (the same and everything else, in words), `notes`, `end_offset`
    (behind the last good record), `records`, `blanks`, `max_store_timestamp`; of a DLedger log also `last_index`, of
    its last entry, and `uncommitted`, how many entries were left out.
    """

    def __init__(
        self,
        files: StoreFiles,
        progress: Progress = no_progress,
        *,
        bound: "Committed | None" = None,
        followed: bool = False,
    ) -> None:
        """
        Args:
            bound: of a DLedger log, leave out what is not among this; None: give all entries.
            followed: files with records follow those of `files`.
        """
        self.files = files
        self.damages: list[Damage] = []
        self.faults: list[Fault] = []
        self.notes: list[str] = []
        self.start_offset = files.log[0].from_offset if files.log else 0
        self.end_offset = self.start_offset
        self.records = 0
        self.blanks = 0
        self.max_store_timestamp = 0
        self.uncommitted = 0
        self.last_index = self._known_index = entries.ANY_INDEX
        self._last_term = 0
        self._ledger = _ledger_checkpoint(files)
        self._bound, self._followed = bound, followed
        self._progress = progress
        self._rows = array("q", bytes(8 * rc.SCAN_WIDTH * _ROWS))
        self._single = array("q", bytes(8 * rc.SCAN_WIDTH))
        self._regions: dict[int, MappedRegion] = {}
        self._total = self._used_bytes()

    def batches(self) -> Iterator[Batch]:
        """Yield every good record, in log order, in batches. The rows are reused: copy what you need before asking for
        the next batch."""
        done = 0
        for number, file in enumerate(self.files.log):
            view = self._view(file)
            if view is None:
                continue  # deleted during the check
            reader = self._dledger_file if self.files.holds_entries(file) else self._file
            at_end = yield from reader(number, file, view, done)
            self._release(file)
            done += file.size
            if at_end:
                break
        self._progress("log", self._total, self._total)

    def record_at(self, physical_offset: int) -> Batch | None:
        """Return the good record that starts at `physical_offset`, looked up at this moment (the log may have grown
        since the walk)."""
        if self.files.log_file_at(physical_offset) is None:
            self.files.refresh_log()
        file = self.files.log_file_at(physical_offset)
        view = self._view(file) if file else None
        if file is None or view is None:
            return None
        rows = array("q", bytes(8 * rc.SCAN_WIDTH))
        position = physical_offset - file.from_offset
        count, _, _ = rc.scan(view, position, len(view), file.from_offset, rows)
        return Batch(file, view, rows, 1) if count else None

    def _used_bytes(self) -> int:
        """Return roughly how many bytes of the files hold data: files are made at their full size, some ahead of
        time."""
        total = sum(file.size for file in self.files.log)
        for file in reversed(self.files.log):
            view = self._view(file)
            used = _used_bytes(view) if view is not None else 0
            self._release(file)
            total -= file.size - used
            if used:
                break
        return total

    def close(self) -> None:
        """Unmap the files of the log."""
        for region in self._regions.values():
            region.close()
        self._regions.clear()

    # -- files --

    def _view(self, file: DataFile) -> memoryview | None:
        region = self._regions.get(file.from_offset)
        if region is None:
            try:
                region = self.files.disk.map(file.path, file.size, read_only=True)
            except FileNotFoundError:
                return None
            self._regions[file.from_offset] = region
        return region.view

    def _release(self, file: DataFile) -> None:
        region = self._regions.pop(file.from_offset, None)
        if region is not None:
            region.close()

    def _file(self, number: int, file: DataFile, view: memoryview, done: int) -> Generator[Batch, None, bool]:
        """Yield the records of one file. Returns True if the log ends in it."""
        position = 0
        while True:
            count, stopped_at, stop = rc.scan(view, position, len(view), file.from_offset, self._rows)
            if count:
                yield self._batch(file, view, count)
            self._progress("log", done + stopped_at, self._total)
            position = stopped_at
            if stop == rc.STOP_ROWS_FULL:
                continue
            if stop == rc.STOP_BLANK:
                self._blank(file, view, position)
                return False
            if stop == rc.STOP_END and position == len(view):
                return False
            behind = self._behind_damage(number, file, view, position, stop)
            if behind is None:
                self._tail(file, view, position, stop)
                return True
            if behind == len(view):
                return False
            position = behind

    def _batch(self, file: DataFile, view: memoryview, count: int) -> Batch:
        self.records += count
        last = (count - 1) * rc.SCAN_WIDTH
        self.end_offset = file.from_offset + self._rows[last + rc.C_POSITION] + self._rows[last + rc.C_SIZE]
        newest = max(self._rows[rc.C_STORE_TIMESTAMP : count * rc.SCAN_WIDTH : rc.SCAN_WIDTH])
        self.max_store_timestamp = max(self.max_store_timestamp, newest)
        return Batch(file, view, self._rows, count)

    def _blank(self, file: DataFile, view: memoryview, position: int) -> None:
        self.blanks += 1
        left = len(view) - position
        stated = int.from_bytes(view[position : position + 4], "big")
        if stated != left:
            self._fault(
                file,
                position,
                f"the BLANK record says {stated} bytes, {left} are left in the file",
                "brokers ignore it: the next file is read all the same",
            )

    def _behind_damage(self, number: int, file: DataFile, view: memoryview, position: int, stop: int) -> int | None:
        """Return where in this file the log continues behind damage; the file's size if it continues in the next file;
        None if nowhere."""
        good = find_record(self._regions[file.from_offset], position + 1, file.from_offset)
        if good < 0 and self._a_later_file_begins_well(number):
            good = _find_blank(view, position + 1)
        if rc.scan(view, position, len(view), file.from_offset, self._single)[0]:
            return position  # a broker was writing this record
        if good < 0:
            return None
        damage = Damage(file, position, good, REASONS[stop])
        self.damages.append(damage)
        what = f"damage of {good - position} bytes (up to byte {good}): {damage.reason}; good records follow"
        remedy = "those are kept, the damaged ones are lost unless a replica or backup has them"
        self._fault(file, position, what, remedy)
        return good

    def _a_later_file_begins_well(self, number: int) -> bool:
        for later in self.files.log[number + 1 :]:
            view = self._view(later)
            if view is not None:
                count, _, _ = rc.scan(view, 0, len(view), later.from_offset, self._single)
                if count or find_record(self._regions[later.from_offset], 0, later.from_offset) >= 0:
                    return True
        return False

    def _tail(self, file: DataFile, view: memoryview, position: int, stop: int) -> None:
        if stop == rc.STOP_ZERO:
            return
        if self.files.is_live:  # the broker may be held up in the middle of a record, by the disk or by other processes
            name = self.files.name(file.path)
            self.notes.append(f"{name}: byte {position}: the running broker has not finished this record yet")
        else:
            what = f"torn tail: {REASONS[stop]}; no good record follows"
            self._fault(file, position, what, "the end of the log: a broker cuts it here at its next start")

    def _fault(self, file: DataFile, position: int, what: str, remedy: str) -> None:
        self.faults.append(Fault(self.files.name(file.path), position, what, remedy))

    # -- DLedger --

    def _dledger_file(self, number: int, file: DataFile, view: memoryview, done: int) -> Generator[Batch, None, bool]:
        """Yield the records of a DLedger data file, whose entries have 48-byte heads, as `_file` does."""
        position = min(max(0, self._ledger.begin_position - file.from_offset), len(view))
        follows, term = self._known_index, self._last_term
        is_next = False  # the entry at `position` follows the one before, whatever its index says
        while True:
            begun = position
            position, index, term, stop = entries.scan_entries(
                view, position, len(view), file.from_offset, follows, term, False
            )
            if position > begun:
                count = index - int.from_bytes(view[begun + _INDEX_AT : begun + _INDEX_AT + 8], "big") + 1
                if count > 1 or follows != entries.ANY_INDEX:
                    self._known_index, self._last_term = index, term
                else:  # its index is not confirmed by another entry
                    following, next_index = entries.find_entry(view, position, len(view), file.from_offset, follows)
                    index = min(index, next_index - 1) if following == position else index
                    if is_next:
                        index = min(index, self.last_index + 1)
                self.last_index = index
                yield from self._records_of_entries(file, view, begun, position, index - count + 1)
            self._progress("log", done + position, self._total)
            if stop == entries.STOP_FILLER:
                self.blanks += 1
                return False
            if stop == entries.STOP_END or (self._bound is not None and self._known_index >= self._bound.index >= 0):
                return stop != entries.STOP_END
            good = self._next_entry(file, view, position)
            if good < 0 and not self._goes_on(number):
                if stop != entries.STOP_ZERO or holds_data(self._regions[file.from_offset], position, len(view)):
                    self._tail(file, view, position, rc.STOP_BAD_MAGIC)
                return True
            behind = good if good >= 0 else _find_filler(view, position)
            if behind > position:
                what = f"bytes up to {behind} are no entry; good ones follow"
                self.damages.append(Damage(file, position, behind, what))
                self._fault(file, position, what, _OTHER_MEMBERS)
            if good < 0:
                return False
            is_next = good == position > begun
            position, follows, term = good, entries.ANY_INDEX, 0

    def _records_of_entries(
        self, file: DataFile, view: memoryview, position: int, end: int, index: int
    ) -> Iterator[Batch]:
        """Yield the records of the entries in view[position:end], the first of which is number `index`."""
        rows, count = memoryview(self._rows), 0
        for number in count_from(index):
            if position == end:
                break
            start = position + ENTRY_HEAD
            position += int.from_bytes(view[position + _SIZE_AT : position + _SIZE_AT + 4], "big")
            if self._bound is not None and not self._bound.has(number, file.from_offset + position):
                self.uncommitted += 1
                continue
            row = rows[count * rc.SCAN_WIDTH : (count + 1) * rc.SCAN_WIDTH]
            found, _, stop = rc.scan(view, start, position, file.from_offset, row)
            count += found
            if start < position and not found:  # a leader of the bare kind begins its term with an empty entry
                what = f"the entry's body is no message: {REASONS[stop]}"
                self.damages.append(Damage(file, start, position, what))
                self._fault(file, start, what, _OTHER_MEMBERS)
            if count == _ROWS:
                yield self._batch(file, view, count)
                count = 0
        if count:
            yield self._batch(file, view, count)

    def _next_entry(self, file: DataFile, view: memoryview, position: int) -> int:
        """Return where the next entry of the log begins, at or behind a place where entries stop to follow each other;
        -1 if there is none in this file.

        Entries that a member has cut off may still be in the file, behind newer ones: their terms are older.
        """
        if not holds_data(self._regions[file.from_offset], position, len(view)):
            return -1
        at = position
        while True:
            at, index = entries.find_entry(view, at, len(view), file.from_offset, self._known_index)
            if at < 0 or index <= self._ledger.committed_index:
                return at
            if int.from_bytes(view[at + _TERM_AT : at + _TERM_AT + 8], "big") >= self._last_term:
                return at
            at += 1

    def _goes_on(self, number: int) -> bool:
        """Return whether a data file behind the one with this number has entries of the DLedger log."""
        for later in self.files.log[number + 1 :]:
            view = self._view(later)
            if view is None or not holds_data(self._regions[later.from_offset], 0, len(view)):
                continue
            if entries.find_entry(view, 0, len(view), later.from_offset, self._known_index)[0] >= 0:
                return True
        return self._followed


@dataclass(frozen=True, slots=True)
class Committed:
    """What of a DLedger log is known to be committed: entries up to `index`, and whatever ends at or before physical
    offset `position`."""

    index: int
    position: int

    def has(self, index: int, end: int) -> bool:
        """Return whether an entry that ends at physical offset `end` is among it."""
        return index <= self.index or end <= self.position


def committed_of(files: StoreFiles) -> Committed | None:
    """Return what the store's own notes call committed; None if its log is not a DLedger one."""
    if not files.dledger:
        return None
    inventory = files.inventory()
    dispatched = 0 if inventory is None else inventory.dispatched_offset
    return Committed(_ledger_checkpoint(files).committed_index, max(dispatched, files.divided_offset))


def _ledger_checkpoint(files: StoreFiles) -> LedgerCheckpoint:
    if not files.dledger or files.dledger_folder is None:
        return LedgerCheckpoint()
    return LedgerCheckpointFile(files.disk, files.dledger_folder).load()[0] or LedgerCheckpoint()


def _find_filler(view: memoryview, start: int) -> int:
    """Return where the filler that ends this file of entries begins; the file's size if there is none."""
    data = bytes(view[start:])
    at = data.find(_FILLER_MAGIC)
    while at >= 0:
        if int.from_bytes(data[at + 4 : at + 8], "big") == len(data) - at:
            return start + at
        at = data.find(_FILLER_MAGIC, at + 1)
    return len(view)


def _find_blank(view: memoryview, start: int) -> int:
    """Return where the BLANK record that ends this file begins; the file's size if there is none."""
    step = 1 << 20
    for begin in range(start, len(view), step):
        chunk = bytes(view[begin + 4 : begin + 4 + step + 3])
        at = chunk.find(_BLANK_MAGIC)
        while at >= 0:
            if int.from_bytes(view[begin + at : begin + at + 4], "big") == len(view) - begin - at:
                return begin + at
            at = chunk.find(_BLANK_MAGIC, at + 1)
    return len(view)


def _used_bytes(view: memoryview) -> int:
    """Return the start of the zeros at the end of a file, rounded to a page. A page of zeros within a message may be
    mistaken for them."""
    low, high = 0, -(-len(view) // _PAGE)  # pages before `low` have data, pages from `high` on have none
    while low < high:
        middle = (low + high) // 2
        if any(bytes(view[middle * _PAGE : (middle + 1) * _PAGE])):
            low = middle + 1
        else:
            high = middle
    return min(low * _PAGE, len(view))
