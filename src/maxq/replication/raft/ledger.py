"""What the core sees of the log, and of the term file. The stores of `store/dledger` are such a `Ledger`."""

from typing import NamedTuple, Protocol

from maxq.protocol.dledger_messages import DLedgerEntry, EntryRun


class HardState(NamedTuple):
    """What a member promised: durable before anybody hears of it (S3)."""

    term: int = 0
    voted_for: str | None = None


class Unit(Protocol):
    """What the index says of one entry."""

    @property
    def position(self) -> int: ...

    @property
    def size(self) -> int: ...

    @property
    def term(self) -> int: ...


class Ledger(Protocol):
    """One member's log. Writes are in memory at once and durable later, when the driver calls `RaftNode.durable`;
    `truncate`, `reset` and `remembered` are durable on return. Errors of the disk (OSError) pass through the core to
    the driver, which stops the member. An empty log has begin, end, durable index and end term -1."""

    @property
    def begin_index(self) -> int: ...

    @property
    def end_index(self) -> int: ...

    @property
    def end_term(self) -> int: ...

    @property
    def durable_index(self) -> int: ...

    @property
    def committed_index(self) -> int: ...

    @property
    def amnesiac_until(self) -> int: ...

    def remembered(self) -> None: ...

    def term_of(self, index: int) -> int: ...

    def unit(self, index: int) -> Unit: ...

    def entry(self, index: int) -> DLedgerEntry: ...

    def entries(self, first: int, max_bytes: int) -> EntryRun: ...

    def append_entries(self, run: EntryRun) -> int:
        """LedgerMismatchError if the run does not continue the log."""
        ...

    def truncate(self, index: int) -> None:
        """`index` becomes the last entry. LedgerMismatchError below committed."""
        ...

    def reset(self, index: int, position: int) -> None:
        """An empty log whose first entry will be `index` at `position`."""
        ...
