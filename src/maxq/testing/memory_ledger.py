"""A DLedger member's log in memory (DLedgerMemoryStore.java): nothing outlives the process.

Unlike Java's it truncates, reports its end to elections and shows what is committed only.
"""

import asyncio
from collections.abc import Callable

from maxq.errors import LedgerMismatchError
from maxq.protocol.dledger.dledger_messages import ENTRY_HEADER_SIZE, DLedgerEntry, EntryRun
from maxq.protocol.dledger.ledger import EntryUnit, HardState

_MIN_BLANK_LENGTH = 8


class MemoryLedger:
    """A Ledger in memory. Appended entries count as durable in the next turn of the loop, or at once if no loop runs.

    Attributes:
        log: the entries.
        has_room: set it to False for a disk that is full.
        leading_term: as `begin_leading` was told; -1 while this member does not lead.
    """

    def __init__(self, data_file_size: int = 1 << 30) -> None:
        """`data_file_size`: positions are those in files of this size; equal on all members."""
        self.log: list[DLedgerEntry] = []
        self.begin_index = self.end_index = self.end_term = self.durable_index = self.committed_index = -1
        self.committed_position = 0
        self.amnesiac_until = -1
        self.has_room = True
        self.leading_term = -1
        self.term_state = HardState()
        self._file_size = data_file_size
        self._end_position = 0
        self._on_appended: Callable[[int, int], None] = lambda first, last: None
        self._on_durable: Callable[[int], None] = lambda index: None

    def set_listeners(self, on_appended: Callable[[int, int], None], on_durable: Callable[[int], None]) -> None:
        self._on_appended, self._on_durable = on_appended, on_durable

    def remembered(self) -> None:
        self.amnesiac_until = -1

    # --- reading ---

    def term_of(self, index: int) -> int:
        if index == self.end_index:
            return self.end_term
        return -1 if index == -1 and self.begin_index <= 0 else self.unit(index).term

    def unit(self, index: int) -> EntryUnit:
        entry = self.entry(index)
        return EntryUnit(entry.pos, entry.size, entry.term)

    def entry(self, index: int) -> DLedgerEntry:
        if not self.begin_index <= index <= self.end_index or index < 0:
            raise IndexError(f"entry {index} is not in the log, which has {self.begin_index} to {self.end_index}")
        return self.log[index - self.begin_index]

    def entries(self, first: int, max_bytes: int) -> EntryRun:
        run = [self.entry(first)]
        size = run[0].size
        for entry in self.log[first - self.begin_index + 1 :]:
            size += entry.size
            if entry.pos != run[-1].pos + run[-1].size or size > max_bytes:
                break
            run.append(entry)
        return EntryRun.of(b"".join(entry.encode() for entry in run))

    # --- writing ---

    def store_term(self, state: HardState) -> None:
        self.term_state = state

    def begin_leading(self, term: int) -> None:
        self.leading_term = term

    def end_leading(self) -> None:
        self.leading_term = -1

    def barrier(self) -> bytes:
        return b""

    def append(self, body: bytes) -> int:
        size = ENTRY_HEADER_SIZE + len(body)
        left = self._file_size - self._end_position % self._file_size
        position = self._end_position if size + _MIN_BLANK_LENGTH <= left else self._end_position + left
        index = self.end_index + 1
        self._add(DLedgerEntry(size=size, index=index, term=self.leading_term, pos=position, body=body))
        self._on_appended(index, index)
        self._flush_soon()
        return index

    def append_entries(self, run: EntryRun) -> int:
        for entry in run.entries():
            if self.begin_index <= entry.index <= self.end_index:
                if self.entry(entry.index) != entry:
                    raise LedgerMismatchError(f"entry {entry.index} is not the one that is here", index=entry.index)
                continue
            left = self._file_size - self._end_position % self._file_size
            may_be = (self._end_position, self._end_position + left)
            if entry.index != self.end_index + 1 or entry.term < self.end_term or entry.pos not in may_be:
                raise LedgerMismatchError(f"entry {entry.index} does not follow {self.end_index}", index=entry.index)
            self._add(entry)
        self._flush_soon()
        return self.end_index

    def _add(self, entry: DLedgerEntry) -> None:
        self.log.append(entry)
        self.begin_index = max(self.begin_index, 0)
        self.end_index, self.end_term, self._end_position = entry.index, entry.term, entry.pos + entry.size

    def truncate(self, index: int) -> None:
        if index >= self.end_index:
            return
        if index < self.committed_index or index < self.begin_index - 1:
            raise LedgerMismatchError(f"entries behind {index} are committed or not here", index=index)
        kept = index + 1 - self.begin_index
        self._end_position = self.log[kept].pos
        del self.log[kept:]
        if self.log:
            self._end_position = self._end_of(index)
        self.end_index, self.end_term = index, self.log[-1].term if self.log else -1
        self.durable_index = min(self.durable_index, index)
        if index < 0:
            self.begin_index = -1

    def reset(self, index: int, position: int) -> None:
        if self.committed_index >= index:
            raise LedgerMismatchError(f"{self.committed_index} is committed here", index=index)
        self.log.clear()
        self.begin_index, self.end_index, self.end_term, self._end_position = index, index - 1, -1, position
        self.durable_index = self.committed_index = index - 1
        self.committed_position = position
        if index == 0:
            self.begin_index = -1

    def retain_from(self, index: int) -> None:
        """Do nothing: this ledger keeps all entries."""

    # --- durable, committed ---

    def commit(self, index: int) -> None:
        index = min(index, self.end_index)
        if index > self.committed_index:
            self.committed_index = index
            self.committed_position = self._end_of(index)

    def _end_of(self, index: int) -> int:
        unit = self.unit(index)
        return unit.position + unit.size

    def _flush_soon(self) -> None:
        try:
            asyncio.get_running_loop().call_soon(self._flushed)
        except RuntimeError:
            self._flushed()

    def _flushed(self) -> None:
        if self.end_index > self.durable_index:
            self.durable_index = self.end_index
            self._on_durable(self.end_index)
