"""What was put, as the store's topic tails count it: on the plain path and on the general one alike."""

from collections.abc import Callable, Iterable

from maxq.broker.stats.broker_stats_manager import BrokerStatsManager
from maxq.store.log_cy import TopicTail


class TopicPuts:
    """A statistics source: the increase of each topic's counters since the last look."""

    def __init__(self, tails: Callable[[], Iterable[TopicTail]]) -> None:
        self._tails = tails
        self._seen: dict[str, tuple[int, int]] = {}  # topic → messages, bytes

    def sample(self, stats: BrokerStatsManager) -> None:
        """Add what is new. A topic that was deleted and made again starts from zero."""
        seen = self._seen
        for tail in self._tails():
            nums, size = tail.put_nums, tail.put_bytes
            old_nums, old_size = seen.get(tail.topic, (0, 0))
            if nums == old_nums:
                continue
            if nums < old_nums:
                old_nums = old_size = 0
            seen[tail.topic] = (nums, size)
            stats.add_topic_put(tail.topic, nums - old_nums, size - old_size, nums - old_nums)

    def total(self) -> int:
        """Messages put since start."""
        return sum(tail.put_nums for tail in self._tails())
