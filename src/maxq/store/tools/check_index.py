"""IndexFiles against themselves (chains, slots, header) and against the log (every entry, every record)."""

import sys
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from maxq.errors import StoreError
from maxq.store.tools.check_cy import Confirmation, IndexCursor
from maxq.store.tools.expectation import Expectation
from maxq.store.tools.index_files import (
    SLOT_SIZE,
    Geometry,
    IndexEntry,
    IndexHeader,
    IndexReader,
    infer_geometry,
)
from maxq.store.tools.store_files import DataFile, Fault, StoreFiles

_REBUILD = "a restart makes files that are missing; for the rest stop the broker and run `maxq store recover --rebuild`"


class _Entry(NamedTuple):
    """An index entry, and its position in its file."""

    file: DataFile
    position: int
    header: IndexHeader
    number: int
    is_last: bool
    entry: IndexEntry
    # time from which its seconds count: the file's begin time; for entry 1 the end time of the file before; -1: unknown
    counted_from: int


@dataclass(slots=True)
class _Gap:
    """Consecutive records with keys that the index lacks."""

    file: str
    position: int
    first_offset: int
    first_end: int  # physical offset behind the first record
    last_offset: int
    records: int


class IndexCheck:
    """Compares an index with its log in one pass, because entries are in log order: call `expect` for each record, then
    `finish`. Only entries of restored records stand behind later ones (restore_places.py).

    Args:
        expectation_at: of the record at a physical offset, looked up in the log; None if no record starts there.
        is_damaged: does a physical offset lie in a damaged range of the log?
        confirmation: what `expect` is not called for. It goes over the entries of the same files.
    """

    def __init__(
        self,
        files: StoreFiles,
        expectation_at: Callable[[int], Expectation | None],
        is_damaged: Callable[[int], bool],
        confirmation: Confirmation,
    ) -> None:
        self.faults: list[Fault] = []
        self.notes: list[str] = []
        self._files = files
        self._expectation_at = expectation_at
        self._is_damaged = is_damaged
        self._log_start = files.log[0].from_offset if files.log else 0
        self._confirmation = confirmation
        self._entries = 0  # entries that were examined here and not by `confirmation`
        self._gaps: list[_Gap] = []
        self._gap_open = False
        # physical offsets of messages that were restored after a filler had covered them
        self._came_back: set[int] = set()
        self._readers = self._all_readers()
        self._reader: IndexReader | None = None  # reader of the current file
        self._end_before = -1  # end time of the file before; the file before the oldest one may have been deleted
        self._last_place: tuple[str, int] | None = None  # place of the last entry, set when all have been passed
        self._current()

    @property
    def entries(self) -> int:
        """Number of entries that were examined."""
        return self._entries + self._confirmation.entries

    @property
    def is_gap_open(self) -> bool:
        """Return whether the index has ended without the entries of the last record with keys."""
        return self._gap_open and self._confirmation.cursor is None

    def passed(self, records: int, last_offset: int) -> None:
        """Note that `records` records with keys, the last one at `last_offset`, were confirmed without `expect`: their
        entries were found, or they continue a gap that is open."""
        if not records:
            return
        if self.is_gap_open:
            self._gaps[-1].records += records
            self._gaps[-1].last_offset = last_offset
        else:
            self._gap_open = False

    @property
    def enabled(self) -> bool:
        return self._files.settings.index_enabled

    def expect(self, expected: Expectation) -> None:
        """Find the entries of the next record of the log."""
        current = self._current()
        while current is not None and current.entry.physical_offset < expected.physical_offset:
            self._check_stray(current)
            current = self._next()
        missing = set(expected.key_hashes)
        while current is not None and current.entry.physical_offset == expected.physical_offset:
            self._check_entry(current, expected)
            missing.discard(current.entry.key_hash)
            current = self._next()
        if missing:
            self._note_gap(expected)
        elif expected.key_hashes:
            self._gap_open = False

    def finish(self, is_behind: Callable[[int], bool]) -> None:
        """Finish at the end of the log: remaining entries point past it.

        Args:
            is_behind: is dispatch, as the queues show it, not further than this physical offset?
        """
        current = self._current()
        while current is not None:
            self._check_stray(current)
            current = self._next()
        if not self._files.index and self._gaps and self.enabled:
            records = sum(gap.records for gap in self._gaps)
            # The first file is made when the first record with keys is dispatched, behind the unit of that record.
            is_made_now = self._files.has_abort and self._files.look_again().index
            if is_made_now or is_behind(self._gaps[0].first_end):
                self.notes.append(f"index: {records} messages are not indexed yet; the next start does it")
                return
            self.faults.append(Fault("index", 0, f"no index files; {records} messages have keys", _REBUILD))
            return
        for gap in self._gaps if self.enabled else []:
            self._report_gap(gap)
        if self._came_back and self.enabled:
            self.notes.append(f"index: {len(self._came_back)} restored messages are not in it")

    # -- entries --

    def _current(self) -> _Entry | None:
        """Return the entry at the cursor after checking its chain; in the next file if this one is at its end."""
        while True:
            cursor, reader = self._confirmation.cursor, self._reader
            if cursor is None or reader is None:
                if not self._open_next():
                    return None
            elif cursor.number > cursor.count:
                self._close(cursor, reader)
            else:
                return self._entry(cursor, reader)

    def _next(self) -> _Entry | None:
        """Move to the next entry, and return it; None behind the last one of the last file."""
        cursor = self._confirmation.cursor
        assert cursor is not None, "there is a current one"
        cursor.advance()
        return self._current()

    def _entry(self, cursor: IndexCursor, reader: IndexReader) -> _Entry:
        number, entry = cursor.number, reader.entry(cursor.number)
        position = reader.geometry.entry_position(number)
        counted_from = reader.header.begin_timestamp if number > 1 else self._end_before
        found = _Entry(reader.file, position, reader.header, number, number == cursor.count, entry, counted_from)
        if not cursor.is_entered:
            self._entries += 1
            if entry.key_hash < 0:
                self._entry_fault(found, f"entry {number}: hash {entry.key_hash} is negative")
            offset = entry.physical_offset
            is_last = number == 1 or offset > cursor.last_offset or not self._is_damaged(offset)
            before = cursor.enter(entry.key_hash, offset, is_last)
            if entry.previous != before:
                what = f"entry {number}: its chain continues at entry {entry.previous}, not at {before}"
                self._entry_fault(found, what)
        return found

    def _check_entry(self, found: _Entry, expected: Expectation) -> None:
        if found.entry.key_hash not in expected.key_hashes and found.entry.key_hash not in expected.tag_hashes:
            place = expected.physical_offset
            what = f"entry {found.number}: hash {found.entry.key_hash} is of no key of the message at {place}"
            self._entry_fault(found, what)
        self._check_time(found, expected.store_timestamp)

    def _check_time(self, found: _Entry, store_timestamp: int) -> None:
        header = found.header
        if found.number == 1 and header.begin_timestamp != store_timestamp:
            what = f"begin time {header.begin_timestamp}, the first message has {store_timestamp}"
            self._header_fault(found, 0, what)
        if found.counted_from >= 0:
            # Seconds are truncated towards zero, never negative, at most 2^31 - 1; none if nothing was before.
            passed = int((store_timestamp - found.counted_from) / 1000) if found.counted_from else 0
            seconds = max(0, min((1 << 31) - 1, passed))
            if seconds != found.entry.seconds:
                what = f"entry {found.number}: {found.entry.seconds} s after begin, the message says {seconds}"
                self._entry_fault(found, what)
        if found.is_last and header.end_timestamp != store_timestamp:
            self._header_fault(found, 8, f"end time {header.end_timestamp}, the last message has {store_timestamp}")

    def _check_stray(self, found: _Entry) -> None:
        """Judge an entry that the walk over the log did not meet: expired, re-dispatched out of order, live, or
        wrong."""
        offset = found.entry.physical_offset
        if 0 <= offset < self._log_start or self._is_damaged(offset):
            self._came_back.discard(offset)
            return
        expected = self._expectation_at(offset) if offset >= 0 else None
        if expected is None:
            self._entry_fault(found, f"entry {found.number}: no message starts at physical offset {offset}")
        else:
            self._check_entry(found, expected)

    def _entry_fault(self, found: _Entry, what: str) -> None:
        self.faults.append(Fault(self._files.name(found.file.path), found.position, what, _REBUILD))

    def _header_fault(self, found: _Entry, position: int, what: str) -> None:
        self.faults.append(Fault(self._files.name(found.file.path), position, what, _REBUILD))

    # -- gaps --

    def _note_gap(self, expected: Expectation) -> None:
        first = expected.physical_offset
        if self._is_damaged(first):
            self._came_back.add(first)
            return
        if self._gap_open:
            self._gaps[-1].last_offset = first
            self._gaps[-1].records += 1
            return
        near = self._current()
        place = (self._files.name(near.file.path), near.position) if near is not None else self._last_place
        file, position = place or ("index", 0)
        self._gaps.append(_Gap(file, position, first, first + expected.size, first, 1))
        self._gap_open = True

    def _report_gap(self, gap: _Gap) -> None:
        is_tail = self._gap_open and gap is self._gaps[-1]
        if is_tail and (self._files.has_abort or self._files.dledger):
            self.notes.append(
                f"index: {gap.records} messages from physical offset {gap.first_offset} on are not indexed yet; "
                "the next start does it"
            )
            return
        what = f"{gap.records} messages from physical offset {gap.first_offset} to {gap.last_offset} lack index entries"
        self.faults.append(Fault(gap.file, gap.position, what, _REBUILD))

    # -- files --

    def _all_readers(self) -> Iterator[IndexReader]:
        """Return readers of all readable files, oldest first."""
        geometry: Geometry | None = None
        for file in self._files.index:
            try:
                geometry = self._geometry(file, geometry)
                if geometry is None:
                    continue  # new and empty
                reader = IndexReader(self._files, file, geometry)
            except FileNotFoundError:
                continue  # deleted during the check
            except (StoreError, ValueError) as error:
                self.faults.append(Fault(self._files.name(file.path), 0, str(error), _REBUILD))
                continue
            yield reader

    def _geometry(self, file: DataFile, known: Geometry | None) -> Geometry | None:
        if known is not None and known.file_size == file.size:
            return known
        return infer_geometry(self._files, file)

    def _open_next(self) -> bool:
        """Open the next index file. Returns False if there is none."""
        reader = self._reader = next(self._readers, None)
        if reader is None:
            return False
        self._check_header_counts(reader, self._files.name(reader.file.path))
        self._confirmation.cursor = IndexCursor(
            reader.view,
            reader.geometry.entry_position(0),
            reader.entry_count,
            array("i", bytes(SLOT_SIZE * reader.geometry.slots)),
            reader.header.begin_timestamp,
        )
        return True

    def _close(self, cursor: IndexCursor, reader: IndexReader) -> None:
        """Check header and slots of a file after all its entries were examined."""
        name = self._files.name(reader.file.path)
        if cursor.count:
            self._check_header(reader, name, cursor)
            self._last_place = name, reader.geometry.entry_position(cursor.count)
        self._check_slots(reader, name, cursor.newest_of_slot, reader.file is self._files.index[-1])
        self._end_before = reader.header.end_timestamp
        self._confirmation.cursor = self._reader = None
        cursor.close()
        reader.close()

    def _check_header_counts(self, reader: IndexReader, name: str) -> None:
        count = reader.header.index_count
        if not 0 <= count <= reader.geometry.entries:
            what = f"next entry number {count} is not between 0 and {reader.geometry.entries}"
            self.faults.append(Fault(name, 36, what, _REBUILD))

    def _check_header(self, reader: IndexReader, name: str, cursor: IndexCursor) -> None:
        header = reader.header
        pairs = (
            (16, "begin physical offset", header.begin_physical_offset, cursor.first_offset),
            (24, "end physical offset", header.end_physical_offset, cursor.last_offset),
            (32, "slots in use", header.hash_slot_count, cursor.slots_used),
        )
        for position, what, stated, real in pairs:
            if stated != real:
                self.faults.append(Fault(name, position, f"{what} {stated}, the entries say {real}", _REBUILD))

    def _check_slots(self, reader: IndexReader, name: str, newest_of_slot: "array[int]", newest: bool) -> None:
        if sys.byteorder == "little":
            newest_of_slot.byteswap()
        stored, wanted = reader.slots().tobytes(), newest_of_slot.tobytes()
        if stored == wanted:
            return
        for position in range(0, len(wanted), SLOT_SIZE):
            if stored[position : position + SLOT_SIZE] != wanted[position : position + SLOT_SIZE]:
                value = int.from_bytes(stored[position : position + SLOT_SIZE], "big", signed=True)
                if newest and self._files.has_abort and value > reader.entry_count:
                    continue  # written since the header was read
                slot = position // SLOT_SIZE
                real = int.from_bytes(wanted[position : position + SLOT_SIZE], "big")
                what = f"slot {slot} points to entry {value}, its newest entry is {real}"
                self.faults.append(Fault(name, reader.geometry.slot_position(slot), what, _REBUILD))
