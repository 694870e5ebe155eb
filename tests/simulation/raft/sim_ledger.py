"""A log in memory that forgets, at a crash, what was not flushed: the `Ledger` of simulated members.

Entries are shared between the members' logs, never copied: a run is a slice of a list.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from maxq.errors import LedgerMismatchError
from maxq.protocol.dledger.dledger_messages import ENTRY_HEADER_SIZE, DLedgerEntry, EntryRun
from maxq.protocol.dledger.ledger import HardState
from maxq.testing.sim_rng import SimRng

Wrote = Callable[["SimLedger", DLedgerEntry, int], None]


class SimRun(EntryRun):
    """A run that is not made of bytes."""

    __slots__ = ("shared",)

    def __init__(self, entries: list[DLedgerEntry]) -> None:
        first, last = entries[0], entries[-1]
        EntryRun.__init__(self, first.index, last.index, last.term, first.pos, b"")
        object.__setattr__(self, "shared", entries)

    def entries(self) -> Iterator[DLedgerEntry]:
        return iter(self.shared)


class SimUnit(NamedTuple):
    position: int
    size: int
    term: int


class BrokenRuleError(AssertionError):
    """A rule of dledger.md §19 does not hold."""


class SimLedger:
    """One member's log.

    Args:
        wrote: told of every entry that is written, with the term of the one before it (-1: there is none here).
    """

    def __init__(self, owner: str, wrote: Wrote) -> None:
        self.owner = owner
        self.begin_index = -1
        self.end_index = -1
        self.end_term = -1
        self.durable_index = -1
        self.committed_index = -1
        self.amnesiac_until = -1
        self.has_stopped = False  # see StoredLedger
        self.is_led = False  # its owner leads: nothing may be cut
        self.live_commit = -1  # what its owner has shown as committed in this run
        self._base = 0  # index of _entries[0]
        self._entries: list[DLedgerEntry] = []
        self._end_position = 0
        self._flush_target = -1
        self._wrote = wrote

    # --- Ledger ---

    def remembered(self) -> None:
        if self.end_index >= 0 and self.durable_index < self.amnesiac_until:
            raise BrokenRuleError(f"{self.owner} remembers {self.amnesiac_until} before it is durable")
        self.amnesiac_until = -1

    def term_of(self, index: int) -> int:
        if index == -1:
            return -1
        return self.entry(index).term

    def unit(self, index: int) -> SimUnit:
        entry = self.entry(index)
        return SimUnit(entry.pos, entry.size, entry.term)

    def entry(self, index: int) -> DLedgerEntry:
        if not self.begin_index <= index <= self.end_index:
            raise IndexError(f"{self.owner} has {self.begin_index}..{self.end_index}, not {index}")
        return self._entries[index - self._base]

    def entries(self, first: int, max_bytes: int) -> EntryRun:
        self.entry(first)
        start = first - self._base
        return SimRun(self._entries[start : start + max(1, max_bytes // 64)])

    def append_entries(self, run: EntryRun) -> int:
        for entry in run.entries():
            if entry.index <= self.end_index:
                if entry.index >= self.begin_index and self.entry(entry.index).term != entry.term:
                    raise LedgerMismatchError(f"{entry.index} has another term here", index=entry.index)
                continue
            self._write(entry)
        return self.end_index

    def truncate(self, index: int) -> None:
        if index < self.live_commit or index < self.committed_index:
            raise BrokenRuleError(f"{self.owner} cuts behind {index}, {self.live_commit} is committed there")
        if self.is_led:
            raise BrokenRuleError(f"{self.owner} leads and cuts its log behind {index}")
        del self._entries[index + 1 - self._base :]
        self.end_index = index
        last = self._entries[-1]
        self.end_term = last.term
        self._end_position = last.pos + last.size
        self.durable_index = min(self.durable_index, index)
        self._flush_target = min(self._flush_target, index)

    def reset(self, index: int, position: int) -> None:
        if index <= self.live_commit or self.is_led:
            raise BrokenRuleError(f"{self.owner} begins anew with {index}, {self.live_commit} is committed there")
        self._entries.clear()
        self._base = self.begin_index = index
        self.end_index = self.durable_index = self._flush_target = index - 1
        self.end_term = -1
        self._end_position = position

    # --- for the world ---

    def append_own(self, term: int, body: bytes) -> int:
        """A leader's entry."""
        size = ENTRY_HEADER_SIZE + len(body)
        self._write(DLedgerEntry(size=size, index=self.end_index + 1, term=term, pos=self._end_position, body=body))
        return self.end_index

    @property
    def end_position(self) -> int:
        """Behind the last entry."""
        return self._end_position

    def has(self, entry: DLedgerEntry) -> bool:
        """Is it here?"""
        offset = entry.index - self._base
        return 0 <= offset < len(self._entries) and self._entries[offset] == entry

    def begin_flush(self) -> None:
        """A sync of what there is begins."""
        self._flush_target = self.end_index

    def end_flush(self) -> None:
        """It is done."""
        self.durable_index = max(self.durable_index, self._flush_target)

    def term_stored(self, state: HardState) -> None:
        """Term and vote are kept by the world."""

    def stored_term(self) -> HardState | None:
        """What a term file says; None: there is none."""
        return None

    def forget_before(self, index: int) -> None:
        """Retention: `index` becomes the first entry."""
        del self._entries[: index - self._base]
        self._base = self.begin_index = index

    def crash(self, rng: SimRng, loses_synced: int = 0) -> None:
        """Loss of power: some of what was not flushed may have reached the disk, in order, for a scan ends at a gap.
        `loses_synced` entries go that were durable (a damaged file): the checkpoint tells the next start."""
        survivors = self.durable_index + rng.below(self.end_index - self.durable_index + 1)
        self.committed_index = min(self.live_commit, self.durable_index)
        if loses_synced and self.durable_index - loses_synced >= self.begin_index >= 0:
            self.amnesiac_until = max(self.amnesiac_until, self.durable_index)
            survivors = self.durable_index - loses_synced
            self.committed_index = min(self.committed_index, survivors)
        if self.end_index >= 0:
            del self._entries[survivors + 1 - self._base :]
            self.end_index = self.durable_index = self._flush_target = survivors
            self.end_term = self._entries[-1].term if self._entries else -1
            self._end_position = self._entries[-1].pos + self._entries[-1].size if self._entries else 0
            if not self._entries and self._base == 0:
                self.begin_index = -1
        self.is_led = False
        self.live_commit = self.committed_index

    def replace_disk(self) -> None:
        """Begin with nothing, as a member whose disk was replaced, or of a new group (MemberState.is_new)."""
        self._entries.clear()
        self._base = self._end_position = 0
        self.begin_index = self.end_index = self.end_term = -1
        self.durable_index = self._flush_target = self.committed_index = self.live_commit = -1
        self.amnesiac_until = 0

    def _write(self, entry: DLedgerEntry) -> None:
        if entry.index != self.end_index + 1:
            raise LedgerMismatchError(f"{entry.index} does not follow {self.end_index}", index=entry.index)
        if entry.pos != self._end_position or entry.term < self.end_term:
            raise LedgerMismatchError(f"{entry.index} at {entry.pos}, not {self._end_position}", index=entry.index)
        self._wrote(self, entry, self.end_term)
        if self.end_index < 0:
            self._base = self.begin_index = entry.index
        self._entries.append(entry)
        self.end_index = entry.index
        self.end_term = entry.term
        self._end_position = entry.pos + entry.size
