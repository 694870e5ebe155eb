"""What was put, as the store's topic tails count it: on the fast path and on the slow one alike."""

from collections.abc import Callable, Iterator, Mapping
from operator import attrgetter

from maxq.broker.stats.broker_stats_manager import BrokerStatsManager
from maxq.store.log.tails_cy import TopicTail

_TOPICS_PER_TURN = 100  # then other work of the loop gets its turn
_put_nums = attrgetter("put_nums")


class TopicPuts:
    """A source of statistics: the increase of each topic's counters since the last sample."""

    def __init__(self, topics: Callable[[], Mapping[bytes, TopicTail]]) -> None:
        """`topics`: those of the store, by name in UTF-8."""
        self._topics = topics
        self._seen: dict[TopicTail, tuple[int, int]] = {}  # messages, bytes; a topic made again has another tail

    def sample(self, stats: BrokerStatsManager) -> Iterator[None]:
        """Add what is new; the loop may turn at each yield. Tails of deleted topics are let go."""
        for position, tail in enumerate(list(self._topics().values())):
            self._add(tail, stats)
            if position % _TOPICS_PER_TURN == _TOPICS_PER_TURN - 1:
                yield
        for gone in self._seen.keys() - set(self._topics().values()):
            del self._seen[gone]

    def sample_topic(self, topic: str, stats: BrokerStatsManager) -> None:
        """Add what is new of one topic."""
        tail = self._topics().get(topic.encode())
        if tail is not None:
            self._add(tail, stats)

    def _add(self, tail: TopicTail, stats: BrokerStatsManager) -> None:
        nums = tail.put_nums
        old_nums, old_size = self._seen.get(tail, (0, 0))
        if nums != old_nums:
            size = tail.put_bytes
            self._seen[tail] = (nums, size)
            stats.add_topic_put(tail.topic, nums - old_nums, size - old_size, nums - old_nums)

    def total(self) -> int:
        """Messages put since start."""
        return sum(map(_put_nums, self._topics().values()))
