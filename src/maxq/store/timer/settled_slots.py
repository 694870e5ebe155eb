"""SettledSlots: what in this wheel another broker has delivered.

The wheel of a Java broker, or of a slave, keeps slots that were delivered as they were. They are recognised by pairs of
a time and a position in the timer log: in slots before the one, units before the other are over. There may be several
pairs: the next master's clock can be behind the last one's, and what it still has to deliver is not over.
"""

from typing import Final

_MOST_PAIRS: Final = 15


class SettledSlots:
    """See the module."""

    def __init__(self) -> None:
        self._pairs: list[tuple[int, int]] = []  # times fall, positions rise

    def add(self, before_ms: int, position: int) -> None:
        """Units that lie before `position` (bytes in the timer log) in slots before `before_ms` are over."""
        later = [pair for pair in self._pairs if pair[0] > before_ms][-_MOST_PAIRS:]
        self._pairs = [*later, (before_ms, position)]

    def position_of(self, slot_ms: int) -> int:
        """Units of this slot that lie before this position are over."""
        return max((position for before_ms, position in self._pairs if slot_ms < before_ms), default=0)
