"""Counters of a store, for GET_BROKER_RUNTIME_INFO and the metrics (StoreStatsService.java)."""

from collections import deque
from collections.abc import Collection

from maxq.store.context.store_context import StoreContext
from maxq.store.log.tails_cy import TopicWriteState

_SECOND_MS = 1000
_SAMPLES = 60 * 10


class StoreStats:
    """Counters of puts and gets since start, and rates from samples taken once a second.

    Attributes:
        damaged_ranges: damaged ranges of the log met by recovery.
    """

    def __init__(self, context: StoreContext) -> None:
        self._context = context
        self._started_ms = context.clock.wall_ms()
        self.get_times = 0
        self.get_found_times = 0
        self.get_messages = 0
        self.damaged_ranges = 0
        self._samples: deque[tuple[int, int, int, int, int]] = deque(maxlen=_SAMPLES + 1)

    def count_get(self, messages: int) -> None:
        """Count one get_message call that found `messages` messages."""
        self.get_times += 1
        if messages:
            self.get_found_times += 1
            self.get_messages += messages

    def sample(self, put_messages: int) -> None:
        """Sample the counters. Called about once a second."""
        now = self._context.clock.monotonic_ms()
        missed = self.get_times - self.get_found_times
        self._samples.append((now, put_messages, self.get_found_times, missed, self.get_messages))

    def _rates(self, column: int) -> str:
        """Return the rates per second over the last 10, 60 and 600 seconds, as RocketMQ prints them."""
        return " ".join(self._rate(column, seconds) for seconds in (10, 60, 600))

    def _rate(self, column: int, seconds: int) -> str:
        if len(self._samples) < 2:
            return "0.0"
        last = self._samples[-1]
        before = self._samples[max(0, len(self._samples) - 1 - seconds)]
        duration = max(1, last[0] - before[0])
        return str(round((last[column] - before[column]) * _SECOND_MS / duration, 6))

    def runtime_info(self, topics: Collection[TopicWriteState]) -> dict[str, str]:
        """Return the counters by RocketMQ's names, those of puts summed over `topics`."""
        puts = sum(topic.put_nums for topic in topics)
        put_bytes = sum(topic.put_bytes for topic in topics)
        return {
            "bootTimestamp": str(self._started_ms),
            "runtime": _runtime_text(self._context.clock.wall_ms() - self._started_ms),
            "putMessageTimesTotal": str(puts),
            "putMessageSizeTotal": str(put_bytes),
            "putMessageAverageSize": str(put_bytes / puts if puts else 0.0),
            "getMessageTimesTotal": str(self.get_times),
            "getTransferedMsgCountTotal": str(self.get_messages),
            "putTps": self._rates(1),
            "getFoundTps": self._rates(2),
            "getMissTps": self._rates(3),
            "getTotalTps": self._total_rates(),
            "getTransferedTps": self._rates(4),
        }

    def _total_rates(self) -> str:
        found, missed = self._rates(2).split(), self._rates(3).split()
        return " ".join(str(round(float(a) + float(b), 6)) for a, b in zip(found, missed, strict=True))


def _runtime_text(duration_ms: int) -> str:
    seconds = duration_ms // 1000
    days, hours, minutes = seconds // 86400, seconds // 3600 % 24, seconds // 60 % 60
    return f"[ {days} days, {hours} hours, {minutes} minutes, {seconds % 60} seconds ]"
