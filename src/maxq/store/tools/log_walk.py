"""The log from its first record to its last, over whatever is broken in between.

The one question that matters at a bad place is whether it is the end. **A torn tail is the end; damage in the middle
is not**: if a good record (magic, size, own physical offset, CRC) follows, in the same file or at the beginning of a
later one, the range between is damage, and the log goes on behind it.
"""

import struct
from array import array
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import Final

from maxq.runtime.interfaces import MappedRegion
from maxq.store.context.progress import Progress, no_progress
from maxq.store.log import record_cy as rc
from maxq.store.recovery.log_scanner import find_record
from maxq.store.tools.store_files import DataFile, Fault, StoreFiles

_ROWS: Final = 2048
_PAGE: Final = 64 << 10  # larger than most messages
_DLEDGER_HEAD_SIZE: Final = 48
_ENTRY_BEGIN: Final = struct.Struct(">ii")  # magic and size of an entry
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
    """Bytes [start, end) of a file that are no records, with good ones behind them."""

    file: DataFile
    start: int
    end: int
    reason: str

    def covers(self, physical_offset: int) -> bool:
        return self.file.from_offset + self.start <= physical_offset < self.file.from_offset + self.end


class LogWalk:
    """One walk over the log.

    After `batches` is used up: `damages`, `faults` (the same and everything else, in words), `notes`, `end_offset`
    (behind the last good record), `records`, `blanks`, `max_store_timestamp`.
    """

    def __init__(self, files: StoreFiles, progress: Progress = no_progress) -> None:
        self.files = files
        self.damages: list[Damage] = []
        self.faults: list[Fault] = []
        self.notes: list[str] = []
        self.start_offset = files.log[0].from_offset if files.log else 0
        self.end_offset = self.start_offset
        self.records = 0
        self.blanks = 0
        self.max_store_timestamp = 0
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
                continue  # cleaned up under our eyes
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
            return position  # a broker was just writing here
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
        if self.files.is_live:  # it may be held up for long in the middle of a record, by the disk or a busy machine
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
        position = count = 0
        is_end = False
        rows = memoryview(self._rows)
        while position + _DLEDGER_HEAD_SIZE <= len(view):
            magic, size = _ENTRY_BEGIN.unpack_from(view, position)
            if magic == -1:
                self.blanks += 1
                break
            start, end = position + _DLEDGER_HEAD_SIZE, position + size
            if magic != 1 or not start <= end <= len(view):
                if any(view[position : position + _DLEDGER_HEAD_SIZE]):
                    self._tail(file, view, position, rc.STOP_BAD_MAGIC)
                is_end = True
                break
            row = rows[count * rc.SCAN_WIDTH : (count + 1) * rc.SCAN_WIDTH]
            found, _, stop = rc.scan(view, start, end, file.from_offset, row)
            count += found
            if start < end and not found:  # a leader of the bare kind begins its term with an empty entry
                self._fault(file, start, f"the entry's body is no message: {REASONS[stop]}", "see the other members")
            position = end
            if count == _ROWS:
                yield self._batch(file, view, count)
                count = 0
                self._progress("log", done + position, self._total)
        if count:
            yield self._batch(file, view, count)
        self._progress("log", done + position, self._total)
        return is_end


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
    low, high = 0, -(-len(view) // _PAGE)  # pages before `low` hold something, those from `high` on do not
    while low < high:
        middle = (low + high) // 2
        if any(bytes(view[middle * _PAGE : (middle + 1) * _PAGE])):
            low = middle + 1
        else:
            high = middle
    return min(low * _PAGE, len(view))
