"""Numbers of stored messages, as the store's topics count them: on the fast path and on the slow path alike."""

from collections.abc import Callable, Iterator, Mapping
from operator import attrgetter

from maxq.broker.stats.broker_stats_manager import BrokerStatsManager
from maxq.store.log.tails_cy import TopicWriteState

_TOPICS_PER_TURN = 100  # then other work of the loop gets its turn
_put_nums = attrgetter("put_nums")


class TopicPuts:
    """A source of statistics: the increase of each topic's counters since the last sample."""

    def __init__(self, topics: Callable[[], Mapping[bytes, TopicWriteState]]) -> None:
        """`topics`: those of the store, by name in UTF-8."""
        self._topics = topics
        self._seen: dict[TopicWriteState, tuple[int, int]] = {}  # messages, bytes; a topic made again has another state

    def sample(self, stats: BrokerStatsManager) -> Iterator[None]:
        """Add what is new; the loop may turn at each yield. States of deleted topics are let go."""
        for position, state in enumerate(list(self._topics().values())):
            self._add(state, stats)
            if position % _TOPICS_PER_TURN == _TOPICS_PER_TURN - 1:
                yield
        for gone in self._seen.keys() - set(self._topics().values()):
            del self._seen[gone]

    def sample_topic(self, topic: str, stats: BrokerStatsManager) -> None:
        """Add what was put into one topic since the last sample to `stats`."""
        state = self._topics().get(topic.encode())
        if state is not None:
            self._add(state, stats)

    def _add(self, state: TopicWriteState, stats: BrokerStatsManager) -> None:
        nums = state.put_nums
        old_nums, old_size = self._seen.get(state, (0, 0))
        if nums != old_nums:
            size = state.put_bytes
            self._seen[state] = (nums, size)
            stats.add_topic_put(state.topic, nums - old_nums, size - old_size, nums - old_nums)

    def total(self) -> int:
        """Return how many messages were put since the broker started."""
        return sum(map(_put_nums, self._topics().values()))
