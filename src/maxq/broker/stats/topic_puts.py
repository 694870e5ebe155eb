"""What was put, as the store's topic tails count it: on the plain path and on the general one alike."""

from collections.abc import Callable, Iterable, Iterator
from operator import attrgetter

from maxq.broker.stats.broker_stats_manager import BrokerStatsManager
from maxq.store.tails_cy import TopicTail

_TOPICS_PER_TURN = 500  # then other work of the loop gets its turn
_put_nums = attrgetter("put_nums")


class TopicPuts:
    """A statistics source: the increase of each topic's counters since the last look."""

    def __init__(self, tails: Callable[[], Iterable[TopicTail]]) -> None:
        self._tails = tails
        self._seen: dict[str, tuple[int, int]] = {}  # topic → messages, bytes

    def sample(self, stats: BrokerStatsManager) -> Iterator[None]:
        """Add what is new; the loop may turn at each yield. A topic deleted and made again starts from zero."""
        for position, tail in enumerate(list(self._tails())):
            self._add(tail, stats)
            if position % _TOPICS_PER_TURN == _TOPICS_PER_TURN - 1:
                yield

    def _add(self, tail: TopicTail, stats: BrokerStatsManager) -> None:
        nums, size = tail.put_nums, tail.put_bytes
        old_nums, old_size = self._seen.get(tail.topic, (0, 0))
        if nums == old_nums:
            return
        if nums < old_nums:
            old_nums = old_size = 0
        self._seen[tail.topic] = (nums, size)
        stats.add_topic_put(tail.topic, nums - old_nums, size - old_size, nums - old_nums)

    def total(self) -> int:
        """Messages put since start."""
        return sum(map(_put_nums, self._tails()))
