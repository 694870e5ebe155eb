"""A log in memory (DLedgerMemoryStore.java): nothing outlives the process. For tests, and for looking at a group.

Unlike Java's it truncates, reports its end to elections and shows what is committed only.
"""

import asyncio

from maxq.errors import LedgerMismatchError
from maxq.protocol.dledger.dledger_messages import ENTRY_HEADER_SIZE, DLedgerEntry, EntryRun
from maxq.store.dledger.interfaces import EntryUnit, TermState
from maxq.store.dledger.ledger_facts import LedgerFacts, not_the_one

_MIN_BLANK_LENGTH = 8


class DLedgerMemoryStore(LedgerFacts):
    """See LedgerStore. What is appended counts as durable in the next turn of the loop, at once if none runs."""

    def __init__(self, data_file_size: int = 1 << 30) -> None:
        """`data_file_size`: positions are those that files of this size give; equal on all members."""
        super().__init__()
        self._file_size = data_file_size
        self._entries: list[DLedgerEntry] = []
        self._end_position = 0
        self._leading_term = -1

    @property
    def has_room(self) -> bool:
        """See LedgerStore."""
        return True

    def remembered(self) -> None:
        """See LedgerStore; what was forgotten with the process nobody can know."""

    def unit(self, index: int) -> EntryUnit:
        """See LedgerStore."""
        entry = self.entry(index)
        return EntryUnit(entry.pos, entry.size, entry.term)

    def entry(self, index: int) -> DLedgerEntry:
        """See LedgerStore."""
        self._check_has(index)
        return self._entries[index - self._begin]

    def entries(self, first: int, max_bytes: int) -> EntryRun:
        """See LedgerStore."""
        run = [self.entry(first)]
        size = run[0].size
        for entry in self._entries[first - self._begin + 1 :]:
            size += entry.size
            if entry.pos != run[-1].pos + run[-1].size or size > max_bytes:
                break
            run.append(entry)
        return EntryRun.of(b"".join(entry.encode() for entry in run))

    def store_term(self, state: TermState) -> None:
        """See LedgerStore."""
        self._term_state = state

    def begin_leading(self, term: int) -> None:
        """See LedgerStore."""
        self._leading_term = term

    def end_leading(self) -> None:
        """See LedgerStore."""
        self._leading_term = -1

    def append(self, body: bytes) -> int:
        """See LedgerStore."""
        size = ENTRY_HEADER_SIZE + len(body)
        left = self._file_size - self._end_position % self._file_size
        position = self._end_position if size + _MIN_BLANK_LENGTH <= left else self._end_position + left
        index = self._end + 1
        self._add(DLedgerEntry(size=size, index=index, term=self._leading_term, pos=position, body=body))
        self._on_appended(index, index)
        self._flush_soon()
        return index

    def append_entries(self, run: EntryRun) -> int:
        """See LedgerStore."""
        for entry in run.entries():
            if self._begin <= entry.index <= self._end:
                if self.entry(entry.index) != entry:
                    raise not_the_one(entry.index, entry.term, entry.pos)
                continue
            left = self._file_size - self._end_position % self._file_size
            may_be = (self._end_position, self._end_position + left)
            if entry.index != self._end + 1 or entry.term < self._end_term or entry.pos not in may_be:
                raise LedgerMismatchError(f"entry {entry.index} does not follow {self._end}", index=entry.index)
            self._add(entry)
        self._flush_soon()
        return self._end

    def _add(self, entry: DLedgerEntry) -> None:
        self._entries.append(entry)
        self._begin = max(self._begin, 0)
        self._end, self._end_term, self._end_position = entry.index, entry.term, entry.pos + entry.size

    def _flush_soon(self) -> None:
        try:
            asyncio.get_running_loop().call_soon(self._flushed)
        except RuntimeError:
            self._flushed()

    def _flushed(self) -> None:
        self._durable_up_to(self._end)

    def truncate(self, index: int) -> None:
        """See LedgerStore."""
        if index >= self._end:
            return
        self._check_truncation(index)
        kept = index + 1 - self._begin
        self._end_position = self._entries[kept].pos
        del self._entries[kept:]
        if self._entries:
            self._end_position = self._end_of(index)
        self._end, self._end_term = index, self._entries[-1].term if self._entries else -1
        self._durable = min(self._durable, index)
        if index < 0:
            self._begin = -1

    def reset(self, index: int, position: int) -> None:
        """See LedgerStore."""
        self._check_reset(index)
        self._entries.clear()
        self._begin, self._end, self._end_term, self._end_position = index, index - 1, -1, position
        self._durable = self._committed = index - 1
        self._committed_position = position
        if index == 0:
            self._begin = -1

    def retain_from(self, index: int) -> None:
        """See LedgerStore: it keeps everything."""
