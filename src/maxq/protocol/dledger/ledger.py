"""The contract of a DLedger member's log, term and vote.

The Raft core (`replication/raft`), its driver (`replication/dledger`) and its log in files (`store/dledger/ledger.py`,
of a bare `maxq dledger` or of the broker's store, whose CommitLog the entries are) meet here, below all of them.

Life of an entry: *appended* (it has an index and lies in the log), *durable* (a flush has passed it, so the member may
tell others), *committed* (it is durable on a quorum, so readers may see it). The log flushes by itself: what was
appended in one turn of the loop is a group, one sync is in flight, and `on_durable` reports its end; without a running
loop the sync happens within the append. Committing is the caller's decision, and the store then dispatches.

All methods run on the loop's thread. Those that say "Blocks" wait for the disk; they are rare (a new term, a
truncation). Errors of the disk (OSError) pass through the core to the driver, which stops the member.
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol

from maxq.protocol.dledger.dledger_messages import DLedgerEntry, EntryRun


class HardState(NamedTuple):
    """The term and vote of a member. They are durable before any message that depends on them is sent (S3).

    Attributes:
        term: the current term (Java's currTerm).
        voted_for: the member it voted for in that term; None if it has not voted.
    """

    term: int = 0
    voted_for: str | None = None


class EntryUnit(NamedTuple):
    """The index unit of one entry.

    Attributes:
        position: first byte of the entry, counted from the start of the stream of entries.
        size: bytes of the entry, its header of 48 included.
        term: term of the leader that wrote it.
    """

    position: int
    size: int
    term: int


class Ledger(Protocol):
    """One member's log, its term and vote.

    An empty log has begin, end, durable index and end term -1, or, after `reset(index, …)`, begin `index` and end
    `index - 1`. The core reads, appends a leader's entries, truncates and resets; the rest is the driver's.
    """

    # --- facts ---

    @property
    def begin_index(self) -> int:
        """Index of the first entry that is still there."""
        ...

    @property
    def end_index(self) -> int:
        """Index of the last entry, durable or not."""
        ...

    @property
    def end_term(self) -> int:
        """Return the term of the last entry."""
        ...

    @property
    def durable_index(self) -> int:
        """Return the index of the last entry that survives a loss of power."""
        ...

    @property
    def committed_index(self) -> int:
        """Return the index of the last committed entry: the last argument of `commit`; after a start, the last entry
        known to have been committed before. Entries up to here are never truncated."""
        ...

    @property
    def committed_position(self) -> int:
        """Return the position behind the last committed entry: an entry that ends at or below it is committed."""
        ...

    @property
    def amnesiac_until(self) -> int:
        """Return -1, or the index up to which this member must match a leader's log, because it has lost durable
        entries or its vote. Until then it must not vote, stand for election or be counted in a quorum; afterwards
        call `remembered`. A ledger in files that never had an entry nor a vote returns 0: its disk may have been
        replaced."""
        ...

    @property
    def has_room(self) -> bool:
        """Return True if it accepts own appends; False while its disk is full, or would be."""
        ...

    def remembered(self) -> None:
        """Note, durably, that this member may vote again: its log has been made the same as a leader's up to
        `amnesiac_until`, so it has all that it had lost. Blocks.

        Raises:
            OSError: no room on the disk; nothing has changed.
        """
        ...

    # --- reading; IndexError if the entry is not in the log ---

    def term_of(self, index: int) -> int:
        """Return the term of an entry; -1 for the index before the first one of a log that begins at 0."""
        ...

    def unit(self, index: int) -> EntryUnit:
        """Return the position and size of an entry."""
        ...

    def entry(self, index: int) -> DLedgerEntry:
        """Return the entry at an index, with a copy of its body."""
        ...

    def entries(self, first: int, max_bytes: int) -> EntryRun:
        """Return entries from `first` on that lie in one file, at most `max_bytes` of them but at least one. `data` is
        a slice of the mapped file: it stays valid, but send or copy it before the next truncation."""
        ...

    # --- term and vote ---

    @property
    def term_state(self) -> HardState:
        """Return term and vote as stored last, or as the start found them: with amnesia at least the last entry's term,
        and no vote."""
        ...

    def store_term(self, state: HardState) -> None:
        """Make term and vote durable (S3). Blocks; may run on another thread, one at a time.

        Raises:
            OSError: it is not known to be durable: neither vote nor answer, stop.
        """
        ...

    # --- writing ---

    def begin_leading(self, term: int) -> None:
        """Append own entries with `term` until `end_leading`. The broker's store numbers queue offsets from the
        uncommitted end of the log on, and accepts messages."""
        ...

    def end_leading(self) -> None:
        """Accept no own appends until the next `begin_leading`; the broker's store refuses messages."""
        ...

    def append(self, body: bytes) -> int:
        """Append a leader's own entry (bare server, barrier), call `on_appended`, and return its index.

        Raises:
            OSError: no room on the disk; nothing was written.
            MessageIllegalError: the body is longer than 4 MiB - 48 bytes, or the entry than a data file takes.
        """
        ...

    def barrier(self) -> bytes:
        """Return the body of the entry with which a new leader begins its term: every reader of this kind of log skips
        it. The caller appends it."""
        ...

    def append_entries(self, run: EntryRun) -> int:
        """Append a leader's entries, which begin at or before `end_index + 1`. Existing ones must have the same term
        and are skipped. `on_appended` is not called. Returns the new end index.

        Raises:
            LedgerMismatchError: they do not continue this log: index, term, position, magic, size or body CRC. Nothing
                of the run behind the entry it names was written.
            OSError: no room on the disk.
        """
        ...

    def truncate(self, index: int) -> None:
        """Delete all entries behind entry `index`; a crash or a loss of power cannot bring them back (S7). Blocks, and
        is durable on return.

        Raises:
            LedgerMismatchError: `index` is below the committed index (S8) or the log's begin; nothing changed.
            OSError: no room on the disk; nothing changed.
        """
        ...

    def reset(self, index: int, position: int) -> None:
        """Delete all entries; the next one is `index` at `position` of the stream of entries: the leader's log begins
        behind this one's end. Blocks, and is durable on return.

        Raises:
            LedgerMismatchError: something below `index` is committed here and not above the leader's begin.
            OSError: no room on the disk; nothing changed.
        """
        ...

    def commit(self, index: int) -> None:
        """Note that a quorum has everything up to `index`: readers may see it. An index beyond the end counts as the
        end; one below the committed index is ignored."""
        ...

    def retain_from(self, index: int) -> None:
        """Forbid retention to delete `index` and later entries: the slowest live follower still needs them (S17)."""
        ...

    def set_listeners(self, on_appended: Callable[[int, int], None], on_durable: Callable[[int], None]) -> None:
        """Set the listeners. `on_appended(first, last)`: own entries were appended (a group) and are not durable yet;
        called from within the append. `on_durable(index)`: everything up to `index` is durable; called on the
        loop."""
        ...
