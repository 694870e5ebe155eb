"""What the core sees of the log, and of the term file. The stores of `store/dledger` are such a `Ledger`."""

from typing import NamedTuple, Protocol

from maxq.protocol.dledger.dledger_messages import DLedgerEntry, EntryRun


class HardState(NamedTuple):
    """What a member promised: durable before anybody hears of it (S3)."""

    term: int = 0
    voted_for: str | None = None


class Unit(Protocol):
    """What the index says of one entry."""

    @property
    def position(self) -> int:
        """Where the entry begins, bytes from the start of the stream of entries."""
        ...

    @property
    def size(self) -> int:
        """Bytes of the entry, its header of 48 among them."""
        ...

    @property
    def term(self) -> int:
        """Of the leader that wrote it."""
        ...


class Ledger(Protocol):
    """One member's log. Writes are in memory at once and durable later, when the driver calls `RaftNode.durable`;
    `truncate`, `reset` and `remembered` are durable on return. Errors of the disk (OSError) pass through the core to
    the driver, which stops the member. An empty log has begin, end, durable index and end term -1."""

    @property
    def begin_index(self) -> int:
        """The first entry that is still there."""
        ...

    @property
    def end_index(self) -> int:
        """The last entry, durable or not."""
        ...

    @property
    def end_term(self) -> int:
        """Its term."""
        ...

    @property
    def durable_index(self) -> int:
        """Up to here a loss of power takes nothing."""
        ...

    @property
    def committed_index(self) -> int:
        """Up to here a majority has it: these entries are never truncated."""
        ...

    @property
    def amnesiac_until(self) -> int:
        """Up to here this member has lost what it had promised, and gives no vote until it has that again; -1: it has
        everything. A ledger in files that never had an entry nor a vote says 0: its disk may have been replaced."""
        ...

    def remembered(self) -> None:
        """It has them again."""
        ...

    def term_of(self, index: int) -> int:
        """The term of an entry that is there."""
        ...

    def unit(self, index: int) -> Unit:
        """What the index says of an entry that is there."""
        ...

    def entry(self, index: int) -> DLedgerEntry:
        """One entry that is there."""
        ...

    def entries(self, first: int, max_bytes: int) -> EntryRun:
        """Entries from `first` on, at most `max_bytes` of them but at least one. Their bytes are a slice of the mapped
        log: send or copy them before the next truncation."""
        ...

    def append_entries(self, run: EntryRun) -> int:
        """LedgerMismatchError if the run does not continue the log."""
        ...

    def truncate(self, index: int) -> None:
        """`index` becomes the last entry. LedgerMismatchError below committed."""
        ...

    def reset(self, index: int, position: int) -> None:
        """An empty log whose first entry will be `index` at `position`."""
        ...
