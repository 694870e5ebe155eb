"""A log in memory for the driver's tests: durable a turn of the loop after it was written."""

import asyncio
from collections.abc import Callable

from maxq.protocol.dledger.dledger_messages import ENTRY_HEADER_SIZE, DLedgerEntry, EntryRun
from maxq.store.dledger.interfaces import EntryUnit, TermState


class MemoryLedger:
    """See LedgerStore."""

    def __init__(self) -> None:
        self.log: list[DLedgerEntry] = []
        self.durable_index = -1
        self.committed_index = -1
        self.amnesiac_until = -1
        self.has_room = True
        self.term_state = TermState()
        self.leading_term = -1
        self._on_appended: Callable[[int, int], None] = lambda first, last: None
        self._on_durable: Callable[[int], None] = lambda index: None

    @property
    def begin_index(self) -> int:
        return 0 if self.log else -1

    @property
    def end_index(self) -> int:
        return len(self.log) - 1

    @property
    def end_term(self) -> int:
        return self.log[-1].term if self.log else -1

    @property
    def committed_position(self) -> int:
        return 0 if self.committed_index < 0 else self._end(self.committed_index)

    def _end(self, index: int) -> int:
        return self.log[index].pos + self.log[index].size

    def remembered(self) -> None:
        self.amnesiac_until = -1

    def term_of(self, index: int) -> int:
        return -1 if index < 0 else self.log[index].term

    def unit(self, index: int) -> EntryUnit:
        entry = self.log[index]
        return EntryUnit(entry.pos, entry.size, entry.term)

    def entry(self, index: int) -> DLedgerEntry:
        return self.log[index]

    def entries(self, first: int, max_bytes: int) -> EntryRun:
        data = b""
        for entry in self.log[first:]:
            if data and len(data) + entry.size > max_bytes:
                break
            data += entry.encode()
        return EntryRun.of(memoryview(data))

    def store_term(self, state: TermState) -> None:
        self.term_state = state

    def begin_leading(self, term: int) -> None:
        self.leading_term = term

    def end_leading(self) -> None:
        self.leading_term = -1

    def barrier(self) -> bytes:
        return b""

    def append(self, body: bytes) -> int:
        assert self.leading_term >= 0, "only a leader appends"
        size = ENTRY_HEADER_SIZE + len(body)
        pos = self._end(self.end_index) if self.log else 0
        index = len(self.log)
        self.log.append(DLedgerEntry(size=size, index=index, term=self.leading_term, pos=pos, body=body))
        self._on_appended(index, index)
        self._flush_soon()
        return index

    def append_entries(self, run: EntryRun) -> int:
        for entry in run.entries():
            if entry.index < len(self.log):
                assert self.log[entry.index] == entry
            else:
                self.log.append(entry)
        self._flush_soon()
        return self.end_index

    def _flush_soon(self) -> None:
        asyncio.get_running_loop().call_soon(self._flushed, self.end_index)

    def _flushed(self, index: int) -> None:
        index = min(index, self.end_index)
        if index > self.durable_index:
            self.durable_index = index
            self._on_durable(index)

    def truncate(self, index: int) -> None:
        del self.log[index + 1 :]
        self.durable_index = min(self.durable_index, index)

    def reset(self, index: int, position: int) -> None:
        raise NotImplementedError

    def commit(self, index: int) -> None:
        self.committed_index = max(self.committed_index, min(index, self.end_index))

    def retain_from(self, index: int) -> None:
        pass

    def set_listeners(self, on_appended: Callable[[int, int], None], on_durable: Callable[[int], None]) -> None:
        self._on_appended, self._on_durable = on_appended, on_durable
