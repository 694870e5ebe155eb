"""TransactionLedger: which half messages are finished, by their queue offsets. Pure: no store, no clock.

Java reads the op topic anew in each check round and so sees the end of a transaction up to three seconds late, in which
a check can overtake it. Here the end is known the moment it arrives, and the op topic is only what remembers it.

Representation: one byte for each half message from `base` on. `bytearray.find` goes from one open transaction to the
next at the speed of memory; a million transactions that end in order cost nothing, a million that wait a megabyte.

    base ─────────── low ──────────────────────────────── end of `_marks`
    forgotten soon   first open one                        beyond: open, not heard of yet

A transaction is its first half message (the origin). A check writes the half message again and finishes the old place;
`_latest` leads from the origin to the copy that counts.
"""

from enum import IntEnum
from typing import Final

_OPEN: Final = b"\x00"
_FORGET_BYTES: Final = 1 << 16


class TransactionOutcome(IntEnum):
    """What became of a half message."""

    OPEN = 0
    COMMITTED = 1
    ROLLED_BACK = 2
    COPIED = 3  # replaced by a later half message
    GIVEN_UP = 4  # asked too often or too old: moved to TRANS_CHECK_MAX_TIME_TOPIC
    ESCAPED = 5  # given to another broker group
    REMEMBERED = 6  # an op message, or the progress of the last run, says that it is finished


class TransactionLedger:
    """The outcomes of half messages; one per broker that runs checks.

    Args:
        low: queue offset below which every half message is finished.
    """

    def __init__(self, low: int) -> None:
        self._base = low
        self._marks = bytearray()
        self._latest: dict[int, int] = {}
        self.low = low

    def ending(self, offset: int) -> TransactionOutcome:
        """Return the outcome of the half message at `offset`."""
        if offset < self._base:
            return TransactionOutcome.REMEMBERED
        place = offset - self._base
        return TransactionOutcome(self._marks[place]) if place < len(self._marks) else TransactionOutcome.OPEN

    def is_open(self, offset: int) -> bool:
        place = offset - self._base
        return place >= len(self._marks) or (place >= 0 and self._marks[place] == 0)

    def standing_for(self, offset: int, origin: int) -> int:
        """Return the present half message of the transaction of the one at `offset`."""
        return self._latest.get(origin, offset)

    def standing(self, origin: int, copy: int) -> None:
        """Note that the half message at `copy` is the present one of the transaction that began at `origin`."""
        self._latest[origin] = copy

    def finish(self, offset: int, how: TransactionOutcome) -> None:
        """Note that the half message at `offset` is finished."""
        assert how is not TransactionOutcome.OPEN, "nothing opens again; a copy does"
        place = offset - self._base
        if place < 0:
            return
        marks = self._marks
        if place >= len(marks):
            marks.extend(bytes(place + 1 - len(marks)))
        marks[place] = how
        if offset == self.low:
            self._advance()

    def end(self, offset: int, origin: int, how: TransactionOutcome) -> None:
        """Note that the transaction whose present half message is at `offset` has ended."""
        self._latest.pop(origin, None)
        self.finish(offset, how)

    def copied(self, offset: int, origin: int, copy: int) -> None:
        """Note that the half message at `copy` replaces the one at `offset`."""
        self._latest[origin] = copy
        self.finish(offset, TransactionOutcome.COPIED)

    def next_open(self, offset: int) -> int:
        """Return the first half message at or behind `offset` that is not known to be finished."""
        place = max(offset - self._base, 0)
        if place >= len(self._marks):
            return self._base + place
        found = self._marks.find(_OPEN, place)
        return self._base + (found if found >= 0 else len(self._marks))

    def skip_to(self, offset: int) -> int:
        """Skip half messages below `offset`, because they are no longer in the store. Returns how many of them were
        open."""
        if offset <= self.low:
            return 0
        end = min(max(offset - self._base, 0), len(self._marks))
        skipped = self._marks.count(_OPEN, self.low - self._base, end) + max(
            0, offset - max(self.low, self._base + end)
        )
        self.low = offset
        self._latest = {origin: copy for origin, copy in self._latest.items() if copy >= offset}
        if offset >= self._base + len(self._marks):
            self._marks.clear()
            self._base = offset
        self._advance()
        return skipped

    def _advance(self) -> None:
        self.low = self.next_open(self.low)
        if self.low - self._base >= _FORGET_BYTES:
            del self._marks[: self.low - self._base]
            self._base = self.low
