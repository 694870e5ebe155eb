"""DelayLevelQueue: which message of one delay level is due, and when the next one will be. No waiting.

A unit of SCHEDULE_TOPIC_XXXX carries the moment at which its message is due: store time + delay, by the wall clock.
When that clock is set back, or the level's delay was made shorter, a unit is due further off than the whole delay.
Java then delivers at once, which may be too early. Here everything that was in the queue when this was noticed is due
one delay after that moment, by the clock that is never set: by then each of them has waited for its whole delay.

Source:
    broker/schedule/ScheduleMessageService.java DeliverDelayedMessageTimerTask (correctDeliverTimestamp).
"""

import logging
from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

from maxq.runtime.interfaces import Clock

log = logging.getLogger(__name__)

_READ_AHEAD: Final = 128


class DelayedUnit(NamedTuple):
    """One waiting message: its offset in its queue and in the log, and its due time (wall clock, ms)."""

    queue_offset: int
    physical_offset: int
    size: int
    due_ms: int


class ScheduleQueue(Protocol):
    """The queue of SCHEDULE_TOPIC_XXXX that holds the messages of one delay level."""

    @property
    def min_offset(self) -> int: ...

    @property
    def max_offset(self) -> int: ...

    def units(self, offset: int, most: int) -> Sequence[tuple[int, int, int] | None]:
        """Return some units from `offset` on, at most `most` and at least one below `max_offset`: (physical offset,
        size, tags code); None where the queue has a gap."""
        ...


class DelayLevelQueue:
    """Reads the queue of one level.

    Attributes:
        next_offset: of the first message that was not taken yet.
    """

    def __init__(self, queue: ScheduleQueue, delay_ms: int, clock: Clock, next_offset: int) -> None:
        self._queue = queue
        self._delay_ms = delay_ms
        self._clock = clock
        self._ahead: deque[DelayedUnit] = deque()
        self._late_below = 0  # units below this queue offset …
        self._late_at_ms = 0  # … are due at this moment of the monotonic clock, whatever they say
        self.next_offset = next_offset

    def take_due(self) -> DelayedUnit | None:
        """Return the next message if it is due, and advance to the one behind it."""
        unit = self._head()
        if unit is None or self._remaining_ms(unit) > 0:
            return None
        self._ahead.popleft()
        self.next_offset = unit.queue_offset + 1
        return unit

    def wait_ms(self) -> int | None:
        """Return the ms until the next message is due, 0 if it is due now; None if no message waits."""
        unit = self._head()
        return None if unit is None else max(0, self._remaining_ms(unit))

    def forget_read_ahead(self) -> None:
        """Drop the units that were read ahead, because the queue may have changed (truncated, deleted)."""
        self._ahead.clear()

    def _head(self) -> DelayedUnit | None:
        if not self._ahead:
            self._read()
        return self._ahead[0] if self._ahead else None

    def _read(self) -> None:
        low, high = self._queue.min_offset, self._queue.max_offset
        if self.next_offset < low:
            log.error(
                "%d delayed messages of the level of %d s (queue offsets %d to %d) are lost: retention deleted them "
                "before they were delivered, as it does when the disk is full",
                low - self.next_offset, self._delay_ms // 1000, self.next_offset, low - 1,
            )  # fmt: skip
            self.next_offset = low
        offset = max(self.next_offset, low)
        while offset < high and not self._ahead:
            self.next_offset = offset
            units = self._queue.units(offset, min(_READ_AHEAD, high - offset))
            self._ahead.extend(DelayedUnit(offset + at, *unit) for at, unit in enumerate(units) if unit is not None)
            offset += len(units)
            if not self._ahead:
                self.next_offset = offset

    def _remaining_ms(self, unit: DelayedUnit) -> int:
        remaining = unit.due_ms - self._clock.wall_ms()
        if remaining <= 0:
            return remaining
        if unit.queue_offset >= self._late_below:
            if remaining <= self._delay_ms:
                return remaining
            self._late_below = self._queue.max_offset
            self._late_at_ms = self._clock.monotonic_ms() + self._delay_ms
        return min(remaining, self._late_at_ms - self._clock.monotonic_ms())
