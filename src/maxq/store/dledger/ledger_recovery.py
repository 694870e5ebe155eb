"""From DLedger's files to a log that can be written (DLedgerMmapFileStore.recover).

As in Java: begin with the third last data file, or an earlier one whose first entry and index unit agree; continue
entry by entry; rewrite index units that differ; the log ends at the first bytes that do not continue it. In addition:

* The scan begins no later than the first entry that the checkpoint does not call durable.
* A body that does not match its CRC ends the log, too (S9).
* Nothing behind the end is kept, because it could become valid again (S7).
* A member that has lost entries reports it (S10). The loss is certain if the checkpoint knows of entries that are
  missing. Otherwise the end of the log decides: a loss of power leaves zeros where bytes were not written, in whole
  sectors or from some byte of a sector on. So an invalid entry without zeros at the borders of its sectors was complete
  once, and has a changed bit. Whether other members were told of the entry cannot be known, so the member is amnesiac.
"""

import logging
from collections.abc import Callable
from dataclasses import field, replace
from typing import NamedTuple

from maxq.lazy_dataclass import dataclass
from maxq.store.context.store_context import StoreContext
from maxq.store.dledger.dledger_commit_log import DLedgerCommitLog
from maxq.store.dledger.entries_cy import (
    ANY_INDEX,
    STOP_BAD,
    STOP_BAD_CRC,
    STOP_END,
    STOP_FILLER,
    find_entry,
    scan_entries,
)
from maxq.store.dledger.ledger_checkpoint import LedgerCheckpoint
from maxq.store.dledger.ledger_index import UNIT_SIZE, LedgerIndex
from maxq.store.files.mapped_file import MappedFile, bring_in, clear

log = logging.getLogger(__name__)

_FILES_TO_SCAN = 3
_SECTOR = 512
_HEADER = 48
_MAGIC = b"\0\0\0\x01"
_FILLER = b"\xff\xff\xff\xff"
DAMAGED_FOLDER = "damaged"


@dataclass(slots=True)
class LedgerReport:
    """Findings and repairs of one `load`.

    Attributes:
        amnesia: why this member must be assumed to have lost entries that it had acknowledged (S10); empty if it has
            not.
        faults: faults of files and how they were handled, one line each.
    """

    amnesia: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    begin_index: int = -1
    end_index: int = -1
    end_term: int = -1
    committed_index: int = -1
    cut_bytes: int = 0
    scanned_entries: int = 0
    rewritten_units: int = 0


class LedgerFound(NamedTuple):
    """Begin and end of the log. `next_index` is the index of the next entry; see Ledger for the other fields."""

    begin_index: int
    end_index: int
    end_term: int
    next_index: int
    committed_index: int
    committed_position: int
    amnesiac_until: int


class _End(NamedTuple):
    """Where a scan stopped: behind entry `last` of `term`, at `position` of file number `number`, because of `stop`."""

    number: int
    position: int
    last: int
    term: int
    stop: int


class LedgerRecovery:
    """Recovery of one member's log at one start."""

    def __init__(
        self,
        context: StoreContext,
        commit_log: DLedgerCommitLog,
        index: LedgerIndex,
        checkpoint: LedgerCheckpoint,
        report: LedgerReport,
        save: Callable[[LedgerCheckpoint], None],
    ) -> None:
        """`save` is the function that makes a checkpoint durable."""
        self._context = context
        self._log = commit_log
        self._index = index
        self._checkpoint = checkpoint
        self._report = report
        self._save = save
        self._files = commit_log.data_files
        self._amnesiac_until = checkpoint.amnesiac_until
        self._unsure_from = 0  # entries behind this position may not be durable

    def run(self) -> LedgerFound:
        """Recover; the log is then open at its end. Blocks."""
        if self._checkpoint.amnesiac_until > 0 or self._checkpoint.end_index >= 0 <= self._checkpoint.amnesiac_until:
            self._forgot(self._checkpoint.amnesiac_until, "it had lost entries before the last stop")
        fault = self._index.load()
        if fault:
            self._report.faults.append(fault)
        if self._begins_elsewhere():
            return self._empty()
        if self._index_lacks_its_start():
            self._report.faults.append(f"{self._index.files.folder} lacks its first units: the index is made again")
            self._index.clear()
        self._write_again()
        end = self._scan()
        self._judge(end)
        if end.last < 0:
            return self._empty()
        self._open_at(end)
        return self._bounds(end)

    def _write_again(self) -> None:
        """Write the data and index behind the durable entries of the checkpoint again before reading them, because the
        process may have ended after a failed sync. Linux then shows pages as clean that are not on the disk, a later
        sync succeeds without writing them, and the leader would count entries that the next loss of power takes."""
        start = self._unsure_from = self._durable_position()
        for file in self._files:
            if file.end_offset > start:
                bring_in(file)
                file.region.write_again(max(0, start - file.file_from_offset), file.file_size)
        first_unit = (self._checkpoint.end_index + 1) * UNIT_SIZE
        for file in self._index.files.files:
            if file.end_offset > first_unit:
                file.region.write_again(max(0, first_unit - file.file_from_offset), file.file_size)

    def _durable_position(self) -> int:
        """Return the position behind the last durable entry of the checkpoint; the start of the scan if that entry is
        not found."""
        end_index = self._checkpoint.end_index
        unit = self._index.unit(end_index) if end_index >= 0 else None
        for file in self._files:
            if unit is not None and file.file_from_offset <= unit.position < file.end_offset:
                start = unit.position - file.file_from_offset
                head = file.view[start : start + 16]
                if head[:4] == _MAGIC and int.from_bytes(head[8:16], "big") == end_index:
                    return unit.position + unit.size
        return self._files[self._first_number()].file_from_offset

    # --- where it begins ---

    def _begins_elsewhere(self) -> bool:
        """Returns whether the log has no entry, or was being emptied when the process ended."""
        position = self._checkpoint.begin_position
        if not self._files or position >= self._files[-1].end_offset:
            return True
        first = self._files[0]
        if first.file_from_offset < position < first.end_offset:
            self._log.begin_position = position
            start = position - first.file_from_offset
            return not any(first.view[start : start + 8])
        return False

    def _empty(self) -> LedgerFound:
        checkpoint = self._checkpoint
        position = max(self._log.divided_offset, checkpoint.begin_position)
        next_index = max(checkpoint.begin_index, 0)
        lost = max(checkpoint.end_index, checkpoint.committed_index)
        if lost >= next_index and not self._report.amnesia:
            self._forgot(lost, f"it had entries up to {lost}, and there are none")
        self._log.begin_at(position)
        self._index.clear()
        begin = next_index if next_index else -1
        return LedgerFound(begin, next_index - 1, -1, next_index, next_index - 1, position, self._amnesiac_until)

    def _index_lacks_its_start(self) -> bool:
        start = self._start_of(self._files[0])
        first = int.from_bytes(self._files[0].view[start + 8 : start + 16], "big")
        return bool(self._index.files.files) and self._index.files.min_offset > first * UNIT_SIZE

    def _start_of(self, file: MappedFile) -> int:
        """Return the position of a file's first entry within that file."""
        return max(0, self._log.begin_position - file.file_from_offset) if file is self._files[0] else 0

    def _first_index(self, file: MappedFile) -> int:
        """Returns the index of the file's first entry if its header and its unit are good, else -1."""
        start = self._start_of(file)
        index = self._header_index(file)
        return index if index >= 0 and self._index.is_right(index, file.view[start : start + _HEADER]) else -1

    def _stated_index(self, file: MappedFile) -> int:
        """Return the index of the file's first entry if its header is good; -1 if not. Its index unit may be lost;
        reading the unit of a file that no start scanned rebuilds it."""
        return self._header_index(file) if self._is_start(file) else -1

    def _header_index(self, file: MappedFile) -> int:
        """Returns the index in the header of the file's first entry; -1 if no entry is there."""
        start = self._start_of(file)
        size = int.from_bytes(file.view[start + 4 : start + 8], "big")
        stop = min(file.file_size, start + max(size, _HEADER))
        after, index, _, _ = scan_entries(file.view, start, stop, file.file_from_offset, ANY_INDEX, 0, False)
        return index if after > start else -1

    def _is_start(self, file: MappedFile) -> bool:
        """Return whether the file's first entry, whose header may have no CRC, has the index that it states. Its unit,
        its position or the next entry confirm it."""
        start, view = self._start_of(file), file.view
        stated, size = (
            int.from_bytes(view[start + 8 : start + 16], "big"),
            int.from_bytes(view[start + 4 : start + 8], "big"),
        )
        if view[start : start + 4] != _MAGIC or size < _HEADER:
            return True  # there is no entry: the scan will report it
        if int.from_bytes(view[start + 36 : start + 40], "big") or self._index.is_right(
            stated, view[start : start + 48]
        ):
            return True
        if file is self._files[0] and file.file_from_offset + start in (0, self._log.divided_offset):
            return stated == 0
        if self._log.begin_position >= 0 and file is self._files[0]:
            return stated == self._checkpoint.begin_index
        behind = start + max(size, _HEADER)
        _, index, _, _ = scan_entries(view, start, file.file_size, file.file_from_offset, ANY_INDEX, 0, False)
        return behind < file.file_size and index > stated

    # --- where it ends ---

    def _first_number(self) -> int:
        """Returns the number of the file with which the scan begins."""
        number = max(0, len(self._files) - _FILES_TO_SCAN)
        while number > 0 and not 0 <= self._first_index(self._files[number]) <= self._checkpoint.end_index:
            number -= 1
        return number

    def _scan(self) -> _End:
        number = self._first_number()
        end = self._scan_from(number)
        # the file should have had durable entries and has none: begin one file earlier
        while end.last < 0 and number > 0:
            number -= 1
            end = self._scan_from(number)
        return end

    def _scan_from(self, first_number: int) -> _End:
        files, report = self._files, self._report
        index, term = ANY_INDEX, 0
        end = _End(0, 0, -1, -1, STOP_END)
        for number in range(first_number, len(files)):
            file = files[number]
            bring_in(file)
            start, before = self._start_of(file), index
            if index == ANY_INDEX and not self._is_start(file):
                return _End(number, start, -1, 0, STOP_BAD)
            after, index, term, stop = scan_entries(
                file.view, start, file.file_size, file.file_from_offset, index, term, True
            )
            if after > start:
                first = int.from_bytes(file.view[start + 8 : start + 16], "big")
                report.rewritten_units += self._index.put(file.view, start, after, first)
                report.scanned_entries += index - first + 1
                end = _End(number, after, index, term, stop)
            elif end.last < 0 or stop in (STOP_BAD, STOP_BAD_CRC):
                end = _End(number, after, before if before >= 0 else -1, term, stop)
            if stop not in (STOP_END, STOP_FILLER) and not self._is_damaged_filler(end):
                break
        return end

    def _is_damaged_filler(self, end: _End) -> bool:
        """Return whether the next file continues with the very next entry; then the bytes here were filler, which is
        written again."""
        if end.last < 0 or end.number + 1 >= len(self._files):
            return False
        file, following = self._files[end.number], self._files[end.number + 1]
        head = following.view[:_HEADER]
        size = int.from_bytes(head[4:8], "big")
        after, index, _, _ = scan_entries(
            following.view, 0, min(max(size, _HEADER), following.file_size), following.file_from_offset, end.last,
            end.term, True,
        )  # fmt: skip
        if not after or index != end.last + 1:
            return False
        left = file.file_size - end.position
        if file.file_from_offset + end.position + size + 8 <= file.end_offset:
            return False  # the next entry would have fitted into this file
        filler = _FILLER + left.to_bytes(4, "big")
        file.view[end.position : end.position + len(filler)] = filler
        file.region.flush(end.position, end.position + len(filler))
        self._report.faults.append(f"{file.path}: the filler at byte {end.position} was damaged, and is written again")
        return True

    def _judge(self, end: _End) -> None:
        """Record what is wrong if the log does not end where it should: amnesia if durable entries are gone, and faults
        for the report."""
        checkpoint = self._checkpoint
        known = max(checkpoint.end_index, checkpoint.committed_index)
        file = self._files[end.number]
        behind = self._newest_behind(end)
        is_bad = end.stop in (STOP_BAD, STOP_BAD_CRC)
        has = max(end.last, checkpoint.begin_index - 1 if end.last < 0 else -1, -1)
        if has < known:
            self._forgot(max(known, behind), f"the log ends with entry {end.last}, it had {known} durably")
        elif is_bad and not may_be_torn(file.view, end.position, _HEADER if end.stop == STOP_BAD_CRC else 0):
            why = "has changed bits: no loss of power leaves such a thing"
            self._forgot(max(has + 1, behind), f"what follows entry {end.last} {why}")
        if is_bad or behind >= 0:
            self._report.faults.append(
                f"{file.path}: the log ends at byte {end.position}, behind entry {end.last}, with something that does "
                f"not follow it" + (f"; there are good entries up to {behind} behind it" if behind >= 0 else "")
            )
            if self._report.amnesia:
                self._keep(end)
        if self._amnesiac_until > checkpoint.amnesiac_until:  # durable before anything is cut
            self._save(replace(checkpoint, amnesiac_until=self._amnesiac_until))

    def _newest_behind(self, end: _End) -> int:
        """Return the largest index of good entries behind the end; -1 if there are none."""
        newest = -1
        for number in range(end.number, len(self._files)):
            file = self._files[number]
            position = end.position if number == end.number else 0
            for begin, stop in file.region.data_ranges(position, file.file_size):
                at = max(begin, position)
                while at < stop:
                    at, found = find_entry(file.view, at, file.file_size, file.file_from_offset, end.last)
                    if at < 0:
                        break
                    newest = max(newest, found)
                    at += int.from_bytes(file.view[at + 4 : at + 8], "big")
                if at < 0:
                    break
        return newest

    def _keep(self, end: _End) -> None:
        """Copy bytes that are cut off, and may be needed, to a folder of their own."""
        folder = self._log.files.folder.parent / DAMAGED_FOLDER
        file = self._files[end.number]
        rest = bytes(file.view[end.position :]).rstrip(b"\0")
        self._context.disk.make_dirs(folder)
        self._context.disk.write(folder / f"{file.file_from_offset + end.position:020d}", rest)
        for later in self._files[end.number + 1 :]:
            rest = bytes(later.view).rstrip(b"\0")
            if rest:
                self._context.disk.write(folder / f"{later.file_from_offset:020d}", rest)
        self._report.faults.append(f"the bytes behind it are kept in {folder}")

    def _forgot(self, until: int, reason: str) -> None:
        self._amnesiac_until = max(self._amnesiac_until, until)
        self._report.amnesia.append(reason)

    def _open_at(self, end: _End) -> None:
        file = self._files[end.number]
        position = file.file_from_offset + end.position
        rest = bytes(file.view[end.position : end.position + (64 << 20)])
        self._report.cut_bytes = len(rest.rstrip(b"\0")) if end.stop != STOP_FILLER else 0
        for scanned in self._files[: end.number + 1]:
            if scanned.end_offset > self._unsure_from:
                # After a kill, pages may never have been synced.
                scanned.region.flush(0, scanned.file_size)
        while self._log.files.files and self._log.files.files[-1].file_from_offset > file.file_from_offset:
            self._log.files.files[-1].destroy()
            self._log.files.files.pop()
        clear(file.region, end.position, file.file_size)
        self._log.open_at(position)
        self._index.truncate(end.last + 1)

    def _bounds(self, end: _End) -> LedgerFound:
        first = next((found for file in self._files if (found := self._stated_index(file)) >= 0), -1)
        file = self._files[0]
        begin_position = file.file_from_offset + self._start_of(file)
        if first < 0:
            first = int.from_bytes(file.view[self._start_of(file) + 8 :][:8], "big")
        committed = min(self._checkpoint.committed_index, end.last)
        if committed < first:
            return LedgerFound(first, end.last, end.term, end.last + 1, first - 1, begin_position, self._amnesiac_until)
        unit = self._index.unit(committed)
        if unit is None:  # its unit lies far back and was not read: read it now
            return LedgerFound(first, end.last, end.term, end.last + 1, first - 1, begin_position, self._amnesiac_until)
        return LedgerFound(
            first, end.last, end.term, end.last + 1, committed, unit.position + unit.size, self._amnesiac_until
        )


def may_be_torn(view: memoryview, position: int, known: int) -> bool:
    """Return whether a loss of power can have left the bytes at `position` of a file if they were an entry: then one of
    its sectors, or all but its beginning or its end, was not written and is zero.

    Args:
        known: number of its first bytes that are certainly as written, because they are plausible.
    """
    if len(view) - position < _HEADER or view[position + 3] == 0:
        return True
    stated = (
        int.from_bytes(view[position + 4 : position + 8], "big"),
        int.from_bytes(view[position + 44 : position + 48], "big") + _HEADER,
    )
    sizes = [size for size in stated if _HEADER <= size <= len(view) - position] or [_HEADER]
    borders = range(position // _SECTOR * _SECTOR + _SECTOR, position + max(sizes), _SECTOR)
    doubtful = [at for border in borders for at in (border - 1, border) if at >= position + known]
    return all(view[position + size - 1] == 0 for size in sizes) or any(view[at] == 0 for at in doubtful)
