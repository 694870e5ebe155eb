"""What a member of a DLedger group needs of its log: the one contract of the file store (a bare `maxq dledger` and the
broker's store, whose CommitLog the entries are) and the memory store.

Life of an entry: *appended* (it has an index and lies in the log), *durable* (a flush has come behind it: the member
may say so to others), *committed* (a quorum has it durable: readers may see it). The store flushes by itself: what was
appended in one turn of the loop is a group, one sync is in flight, and `on_durable` tells of its end; without a
running loop the sync happens within the append. Committing is the caller's decision, and the store then dispatches.

All methods run on the loop's thread. Those that say "blocks" wait for the disk; they are rare (a new term, a
truncation).
"""

from collections.abc import Callable
from dataclasses import field
from typing import NamedTuple, Protocol

from maxq.lazy_dataclass import dataclass
from maxq.protocol.dledger.dledger_messages import DLedgerEntry, EntryRun


class EntryUnit(NamedTuple):
    """What the index says of an entry: first byte in the data stream, size with the 48 bytes of header, term."""

    position: int
    size: int
    term: int


@dataclass(frozen=True, slots=True)
class TermState:
    """What a member promised and must not forget.

    Attributes:
        term: currTerm.
        voted_for: whom it voted for in that term; None: nobody yet.
    """

    term: int = 0
    voted_for: str | None = None


@dataclass(slots=True)
class LedgerReport:
    """What `load` found and did.

    Attributes:
        amnesia: why this member must be taken as having forgotten what it promised (S10); empty if it has not.
        faults: what was wrong with files and what became of it, one line each.
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


class LedgerStore(Protocol):
    """One member's log, its term and vote.

    An empty log has begin, end, durable index and end term -1, or, after `reset(index, …)`, begin `index` and end
    `index - 1`.
    """

    # --- facts ---

    @property
    def begin_index(self) -> int:
        """Of the first entry."""
        ...

    @property
    def end_index(self) -> int:
        """Of the last entry."""
        ...

    @property
    def end_term(self) -> int:
        """Term of the last entry."""
        ...

    @property
    def durable_index(self) -> int:
        """Everything up to this entry outlives a loss of power."""
        ...

    @property
    def committed_index(self) -> int:
        """As `commit` was told last; after a start, what is known to have been committed before."""
        ...

    @property
    def committed_position(self) -> int:
        """Behind the last committed entry. What ends at or below it is committed."""
        ...

    @property
    def amnesiac_until(self) -> int:
        """-1, or: this member has lost durable entries or its vote. Until it has matched a leader's log up to this
        index it must not vote, stand for election or be counted in a quorum; then call `remembered`."""
        ...

    @property
    def has_room(self) -> bool:
        """Does it take own appends? False while its disk is full, or would be."""
        ...

    def remembered(self) -> None:
        """End of amnesia: a leader's log was matched up to `amnesiac_until`, durably here. Blocks.

        Raises:
            OSError: no room on the disk; nothing has changed.
        """
        ...

    # --- reading; IndexError if the entry is not in the log ---

    def term_of(self, index: int) -> int:
        """Term of an entry; -1 for the index before the first one of a log that begins at 0."""
        ...

    def unit(self, index: int) -> EntryUnit:
        """Where an entry is."""
        ...

    def entry(self, index: int) -> DLedgerEntry:
        """An entry, its body copied."""
        ...

    def entries(self, first: int, max_bytes: int) -> EntryRun:
        """Entries from `first` on that lie in one file, at most `max_bytes` of them but at least one. `data` is a slice
        of the mapped file: it stays valid, but send or copy it before the next truncation."""
        ...

    # --- term and vote ---

    @property
    def term_state(self) -> TermState:
        """As stored last, or as found by the start: with amnesia at least the last entry's term, and no vote."""
        ...

    def store_term(self, state: TermState) -> None:
        """Make term and vote durable (S3). Blocks; may run on another thread, one at a time.

        Raises:
            OSError: it is not known to be durable: neither vote nor answer, stop.
        """
        ...

    # --- writing ---

    def begin_leading(self, term: int) -> None:
        """From now on own appends get `term`. The broker's store numbers queue offsets from the uncommitted end of the
        log on, and takes messages."""
        ...

    def end_leading(self) -> None:
        """No own appends any more; the broker's store refuses messages."""
        ...

    def append(self, body: bytes) -> int:
        """A leader's own entry (bare server, barrier). Calls `on_appended`. Returns its index.

        Raises:
            OSError: no room on the disk; nothing was written.
            MessageTooLargeError: the body is longer than 4 MiB - 48 bytes, or the entry than a data file takes.
        """
        ...

    def barrier(self) -> bytes:
        """The body of the entry with which a new leader begins its term: one that every reader of this kind of log
        passes over. The caller appends it."""
        ...

    def append_entries(self, run: EntryRun) -> int:
        """A follower's: take entries that begin at or before `end_index + 1`; those it has already must have the term
        they have here and are passed over. Does not call `on_appended`. Returns the new end index.

        Raises:
            LedgerMismatchError: they do not continue this log: index, term, position, magic, size or body CRC. Nothing
                of the run behind the entry it names was written.
            OSError: no room on the disk.
        """
        ...

    def truncate(self, index: int) -> None:
        """Let entry `index` be the last one; what was behind it cannot come back, whatever happens (S7). Blocks.

        Raises:
            LedgerMismatchError: `index` is below the committed index (S8) or the log's begin; nothing changed.
            OSError: no room on the disk; nothing changed.
        """
        ...

    def reset(self, index: int, position: int) -> None:
        """Forget all entries; the next one is `index` at `position` of the data stream: the leader's log begins behind
        this one's end. Blocks.

        Raises:
            LedgerMismatchError: something below `index` is committed here and not above the leader's begin.
            OSError: no room on the disk; nothing changed.
        """
        ...

    def commit(self, index: int) -> None:
        """A quorum has everything up to `index`: readers may see it. Beyond the end or below the committed index it
        counts as the end or does nothing."""
        ...

    def retain_from(self, index: int) -> None:
        """Retention may not delete `index` or what is behind it: the slowest live follower still needs it (S17)."""
        ...

    def set_listeners(self, on_appended: Callable[[int, int], None], on_durable: Callable[[int], None]) -> None:
        """`on_appended(first, last)`: own entries were appended (a group), not durable yet; called from within the
        append. `on_durable(index)`: everything up to `index` is durable; called on the loop."""
        ...
