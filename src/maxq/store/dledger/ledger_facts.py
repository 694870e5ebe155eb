"""What every ledger, in files or in memory, knows of its log, and what it refuses because of that (LedgerStore)."""

from abc import ABC, abstractmethod
from collections.abc import Callable

from maxq.errors import LedgerMismatchError
from maxq.store.dledger.interfaces import EntryUnit, TermState


class LedgerFacts(ABC):
    """The numbers of a log, and who listens to it. An empty log has -1 everywhere."""

    def __init__(self) -> None:
        self._begin = self._end = self._end_term = self._durable = self._committed = -1
        self._committed_position = 0
        self._amnesiac_until = -1
        self._term_state = TermState()
        self._on_appended: Callable[[int, int], None] = lambda first, last: None
        self._on_durable: Callable[[int], None] = lambda index: None

    @property
    def begin_index(self) -> int:
        """See LedgerStore."""
        return self._begin

    @property
    def end_index(self) -> int:
        """See LedgerStore."""
        return self._end

    @property
    def end_term(self) -> int:
        """See LedgerStore."""
        return self._end_term

    @property
    def durable_index(self) -> int:
        """See LedgerStore."""
        return self._durable

    @property
    def committed_index(self) -> int:
        """See LedgerStore."""
        return self._committed

    @property
    def committed_position(self) -> int:
        """See LedgerStore."""
        return self._committed_position

    @property
    def amnesiac_until(self) -> int:
        """See LedgerStore."""
        return self._amnesiac_until

    @property
    def term_state(self) -> TermState:
        """See LedgerStore."""
        return self._term_state

    @property
    def is_empty(self) -> bool:
        """Has it no entry?"""
        return self._end < max(self._begin, 0)

    def set_listeners(self, on_appended: Callable[[int, int], None], on_durable: Callable[[int], None]) -> None:
        """See LedgerStore."""
        self._on_appended, self._on_durable = on_appended, on_durable

    def barrier(self) -> bytes:
        """See LedgerStore: an empty body, as Java's controller writes."""
        return b""

    @abstractmethod
    def unit(self, index: int) -> EntryUnit:
        """See LedgerStore."""

    def term_of(self, index: int) -> int:
        """See LedgerStore."""
        if index == self._end:
            return self._end_term
        return -1 if index == -1 and self._begin <= 0 else self.unit(index).term

    def _end_of(self, index: int) -> int:
        unit = self.unit(index)
        return unit.position + unit.size

    def commit(self, index: int) -> None:
        """See LedgerStore."""
        index = min(index, self._end)
        if index > self._committed:
            self._committed = index
            self._committed_position = self._end_of(index)

    def _durable_up_to(self, index: int) -> None:
        """A flush has come behind entry `index`."""
        if index > self._durable:
            self._durable = index
            self._on_durable(index)

    # --- refusals ---

    def _check_has(self, index: int) -> None:
        """IndexError if there is no such entry."""
        if not self._begin <= index <= self._end or index < 0:
            raise IndexError(f"entry {index} is not in the log, which has {self._begin} to {self._end}")

    def _check_truncation(self, index: int) -> None:
        """LedgerMismatchError if what is behind `index` must not go (S8)."""
        if index < self._committed or index < self._begin - 1:
            raise LedgerMismatchError(
                f"entries behind {index} are to go, but {self._committed} is committed here, and the log begins with "
                f"{self._begin}: a member of this group has lost something, or runs with unsafe rules",
                index=index,
            )

    def _check_reset(self, index: int) -> None:
        """LedgerMismatchError if the log must not begin with `index`."""
        if self._committed >= index:
            raise LedgerMismatchError(
                f"the log is to begin with {index}, but {self._committed} is committed here", index=index
            )


def not_the_one(index: int, term: int, position: int) -> LedgerMismatchError:
    """A follower has another entry at `index` than the one that is to be appended."""
    return LedgerMismatchError(f"entry {index} of term {term} at {position} is not the one that is here", index=index)
