"""The reading side of a ledger in files: entries by their index.

An index unit is believed when the entry's header says the same; damaged ones are made anew from the entries.
"""

import logging
from bisect import bisect_right

from maxq.errors import StoreFailedError
from maxq.protocol.dledger.dledger_messages import ENTRY_HEADER, DLedgerEntry, EntryRun
from maxq.protocol.dledger.ledger import EntryUnit, HardState
from maxq.store.dledger.dledger_commit_log import ENTRY_HEADER_SIZE, DLedgerCommitLog
from maxq.store.dledger.entries_cy import ANY_INDEX, scan_entries
from maxq.store.dledger.ledger_index import LedgerIndex

log = logging.getLogger(__name__)


class EntryReader:
    """Reads the entries of a log between its bounds.

    Attributes:
        begin_index, end_index, end_term, durable_index, committed_index, committed_position, amnesiac_until,
        term_state: see Ledger; `FileLedger` keeps them.
    """

    def __init__(self, commit_log: DLedgerCommitLog, index: LedgerIndex) -> None:
        self.begin_index = self.end_index = self.end_term = self.durable_index = self.committed_index = -1
        self.committed_position = 0
        self.amnesiac_until = -1
        self.term_state = HardState()
        self._log = commit_log
        self._index = index
        self._last_run: EntryRun | None = None  # last run that was read; forgotten when the log is cut

    @property
    def divided_offset(self) -> int:
        """Physical offset of the first data file; below it lies the log that was written before DLedger."""
        return self._log.divided_offset

    @property
    def begin_position(self) -> int:
        """Position of the first entry if it is not at the start of its file, else -1."""
        return self._log.begin_position

    @property
    def is_empty(self) -> bool:
        """Return whether the DLedger log has no entry."""
        return self.end_index < max(self.begin_index, 0)

    def term_of(self, index: int) -> int:
        if index == self.end_index:
            return self.end_term
        return -1 if index == -1 and self.begin_index <= 0 else self.unit(index).term

    def unit(self, index: int) -> EntryUnit:
        if not self.begin_index <= index <= self.end_index or index < 0:
            raise IndexError(f"entry {index} is not in the log, which has {self.begin_index} to {self.end_index}")
        found = self._index.unit(index)
        if found is None or not self._is_there(index, found):
            found = self._mended(index)
        return found

    def _is_there(self, index: int, unit: EntryUnit) -> bool:
        head = self._log.get(unit.position, ENTRY_HEADER_SIZE)
        return head is not None and ENTRY_HEADER.unpack_from(head)[1:5] == (unit.size, index, unit.term, unit.position)

    def _mended(self, index: int) -> EntryUnit:
        """Rebuild the index units of the file that holds an entry whose unit is damaged, and return the unit of that
        entry."""
        for file in reversed(self._log.data_files):
            base = file.file_from_offset
            start = max(0, self._log.begin_position - base)
            first = int.from_bytes(file.view[start + 8 : start + 16], "big")
            if first > index:
                continue
            stop = min(file.file_size, self._log.max_offset - base)
            after, *_ = scan_entries(file.view, start, stop, base, ANY_INDEX, 0, False)
            changed = self._index.put(file.view, start, after, first)
            log.error("DLedger: %d damaged units of the entries in %s were written again", changed, file.path)
            break
        found = self._index.unit(index)
        if found is None or not self._is_there(index, found):
            raise StoreFailedError(
                f"entry {index} cannot be read any more: its place in {self._log.files.folder} is damaged. Stop this "
                "member, empty its store and start it again; the others give it all of it"
            )
        return found

    def entry(self, index: int) -> DLedgerEntry:
        unit = self.unit(index)
        data = self._log.get(unit.position, unit.size)
        assert data is not None, f"entry {index} is in the log"
        magic, size, own, term, position, channel, chain, crc, _ = ENTRY_HEADER.unpack_from(data)
        return DLedgerEntry(
            magic=magic, size=size, index=own, term=term, pos=position, channel=channel, chain_crc=chain, body_crc=crc,
            body=bytes(data[ENTRY_HEADER_SIZE:]),
        )  # fmt: skip

    def entries(self, first: int, max_bytes: int) -> EntryRun:
        run = self._last_run
        if (
            run is not None
            and run.first_index == first
            and run.last_index == self.end_index
            and len(run.data) <= max_bytes
        ):
            return run  # usually asked for by the other followers
        unit = self.unit(first)
        file_size = self._log.files.file_size
        limit = min(unit.position + max_bytes, unit.position - unit.position % file_size + file_size)
        last, final = self.end_index, unit if first == self.end_index else self.unit(self.end_index)
        if final.position + final.size > limit:
            last = max(
                first,
                first - 1 + bisect_right(range(first, self.end_index + 1), limit, key=self._end_of),
            )
            final = self.unit(last)
        data = self._log.get(unit.position, final.position + final.size - unit.position)
        assert data is not None, f"entries {first} to {last} are in one file"
        run = self._last_run = EntryRun(first, last, final.term, unit.position, data)
        return run

    def _end_of(self, index: int) -> int:
        unit = self.unit(index)
        return unit.position + unit.size

    def index_at(self, position: int) -> int:
        """Returns the index of the first entry that ends behind `position`."""
        return self.begin_index + bisect_right(range(self.begin_index, self.end_index + 1), position, key=self._end_of)
