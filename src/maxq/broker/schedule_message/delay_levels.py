"""DelayLevels: the table of messageDelayLevel, and how it is read off a message.

Source:
    broker/schedule/ScheduleMessageService.java parseDelayLevel, delayLevel2QueueId.
"""

from collections.abc import Mapping

from maxq.protocol.message import message_const as const
from maxq.store.dispatch.dispatcher import parse_delay_levels


class DelayLevels:
    """The delay levels, which begin at 1. A level above the last one counts as the last."""

    def __init__(self, text: str) -> None:
        """`text`: messageDelayLevel, such as `1s 5s 2h`."""
        self._delays_ms = parse_delay_levels(text)

    @property
    def max_level(self) -> int:
        return len(self._delays_ms)

    def levels(self) -> range:
        return range(1, self.max_level + 1)

    def delay_ms(self, level: int) -> int:
        """Return how long, in ms, a message of this level waits."""
        return self._delays_ms[self.capped(level) - 1]

    def capped(self, level: int) -> int:
        """Return the effective level for a positive `level`: at most the last one."""
        return min(level, self.max_level)

    def not_shorter_than(self, delay_ms: int) -> int:
        """Return the shortest level that waits at least `delay_ms`; the longest of all if none does."""
        enough = [level for level in self.levels() if self.delay_ms(level) >= delay_ms]
        return min(enough or self.levels(), key=self.delay_ms) if enough else max(self.levels(), key=self.delay_ms)


def queue_id_of(level: int) -> int:
    """Return the queue id of SCHEDULE_TOPIC_XXXX in which a level waits."""
    return level - 1


def level_of(queue_id: int) -> int:
    """Return the delay level whose messages are in the queue of SCHEDULE_TOPIC_XXXX with this id."""
    return queue_id + 1


def delay_level_of(properties: Mapping[str, str]) -> int:
    """Return the DELAY property; 0 if it is absent or no number. Negative values are returned as they are: no delay."""
    text = properties.get(const.PROPERTY_DELAY_TIME_LEVEL, "")
    digits = text.removeprefix("-")
    return int(text) if digits.isascii() and digits.isdigit() and len(digits) < 10 else 0
