"""Messages and bytes in and out, by topic and group, and how large messages are.

Nothing is counted twice: what came in stands in the store's topic tails, what went out in the statistics' counters. The
sizes are read off the ConsumeQueues when somebody asks, at most the last 1000 units of a queue since the last time;
of more messages than these the sizes are taken to be alike. `_count` and `_sum` are exact.

The message type is that of the topic (its `message.type`; the half topic's is transaction, that of delayed and timed
messages delay): the path that takes plain sends does not look at their properties.

Source:
    broker/metrics/BrokerMetricsManager.java initRequestMetrics; commands.md §2.3.
"""

import struct
from bisect import bisect_left
from collections.abc import Callable, Iterator
from typing import Final

from maxq.broker.attributes import MESSAGE_TYPE
from maxq.broker.metrics.labels import flag, is_system_group
from maxq.broker.stats import names
from maxq.broker.stats.broker_stats_manager import BrokerStatsManager
from maxq.broker.topic.topic_config_manager import TopicConfigManager
from maxq.broker.topic.topic_validator import SCHEDULE_TOPIC, TIMER_TOPIC, TRANS_HALF_TOPIC
from maxq.protocol.body.topic_config import TopicConfig
from maxq.protocol.pop_extra_info import normal_topic
from maxq.runtime.metrics import HistogramSample, MetricsRegistry, Sample
from maxq.store.consume_queue import CQ_STORE_UNIT_SIZE, ConsumeQueue
from maxq.store.message_store import MessageStore
from maxq.store.tails_cy import TopicTail

SIZE_BOUNDS: Final = (1 << 10, 4 << 10, 512 << 10, 1 << 20, 2 << 20, 4 << 20)
_SIZES: Final = struct.Struct(">8xi8x")
_UNITS_LOOKED_AT: Final = 1000
_TOPICS_AT_ONCE: Final = 200
_TYPES: Final = {TRANS_HALF_TOPIC: "transaction", SCHEDULE_TOPIC: "delay", TIMER_TOPIC: "delay"}
_LABELS_IN: Final = ("topic", "message_type", "is_system")
_LABELS_OUT: Final = ("topic", "consumer_group", "is_retry", "is_system")
_NOT_POPPED: Final = ""  # pulls have no label is_retry

_TopicLabels = tuple[str, str, str]


class TrafficMetrics:
    """Registers itself."""

    def __init__(
        self, registry: MetricsRegistry, *, store: MessageStore, stats: BrokerStatsManager, topics: TopicConfigManager
    ) -> None:
        self._store = store
        self._stats = stats
        self._topics = topics
        self._sizes = _MessageSizes()
        self._known: dict[str, tuple[TopicConfig | None, _TopicLabels]] = {}
        self._tails: list[tuple[_TopicLabels, TopicTail]] = []
        registry.before(stats.collect_gets_in_turns)
        registry.before(self._look)
        registry.observed_counter(
            "rocketmq_messages_in_total", lambda: self._put(lambda tail: tail.put_nums), _LABELS_IN
        )
        registry.observed_counter(
            "rocketmq_throughput_in_total", lambda: self._put(lambda tail: tail.put_bytes), _LABELS_IN
        )
        registry.observed_counter(
            "rocketmq_messages_out_total", lambda: self._got(names.GROUP_GET_NUMS, 0), _LABELS_OUT
        )
        registry.observed_counter(
            "rocketmq_throughput_out_total", lambda: self._got(names.GROUP_GET_SIZE, 1), _LABELS_OUT
        )
        registry.observed_histogram(
            "rocketmq_message_size", SIZE_BOUNDS, self._message_sizes, _LABELS_IN, about="Incoming messages size"
        )

    def _look(self) -> Iterator[None]:
        """Labels of the topics that something was put into, once for all metrics of a scrape."""
        found = []
        if len(self._known) > 2 * len(self._store.topics):  # most of them are gone
            self._known.clear()
        for position, tail in enumerate(list(self._store.topics.values())):
            if tail.put_nums:
                found.append((self._labels(tail.topic), tail))
            if position % _TOPICS_AT_ONCE == _TOPICS_AT_ONCE - 1:
                yield
        self._tails = found

    def _labels(self, topic: str) -> _TopicLabels:
        """They are as they were while the topic's config is the same object."""
        config = self._topics.topic_config_table.get(topic)
        known = self._known.get(topic)
        if known is None or known[0] is not config:
            labels = topic, _message_type(topic, config), flag(self._topics.is_system_topic(topic))
            known = self._known[topic] = (config, labels)
        return known[1]

    def _put(self, number: Callable[[TopicTail], int]) -> Iterator[Sample]:
        for labels, tail in self._tails:
            yield labels, number(tail)

    def _got(self, name: str, which: int) -> Iterator[Sample]:
        """`which` of what `BrokerStatsManager.popped` tells. Pops are told apart, those of retry topics under the topic
        that was asked for, in whichever topic they stood."""
        retried: dict[tuple[str, ...], int] = {}
        for key, value in self._stats.totals(name):
            topic, _, group = key.partition("@")
            popped = self._stats.popped(key)[which]
            if value > popped:
                yield self._labels_out(topic, group, _NOT_POPPED), value - popped
            if not popped:
                continue
            asked = normal_topic(topic, group)
            if asked == topic:
                yield self._labels_out(topic, group, flag(False)), popped
            else:  # of the two spellings of a retry topic
                labels = self._labels_out(asked, group, flag(True))
                retried[labels] = retried.get(labels, 0) + popped
        yield from retried.items()

    def _labels_out(self, topic: str, group: str, is_retry: str) -> tuple[str, ...]:
        return topic, group, is_retry, flag(self._topics.is_system_topic(topic) or is_system_group(group))

    def _message_sizes(self) -> Iterator[HistogramSample]:
        for labels, tail in self._tails:
            yield labels, self._sizes.counts(tail), float(tail.put_bytes)


def _message_type(topic: str, config: TopicConfig | None) -> str:
    known = _TYPES.get(topic)
    if known is not None:
        return known
    given = "" if config is None else config.attributes.get(MESSAGE_TYPE, "")
    return "normal" if given in ("", "UNSPECIFIED", "MIXED") else given.lower()


class _MessageSizes:
    """How many messages of a topic were at most each bound."""

    def __init__(self) -> None:
        self._counts: dict[str, list[int]] = {}
        self._seen: dict[tuple[str, int], int] = {}  # the queue offset up to which sizes were looked at

    def counts(self, tail: TopicTail) -> list[int]:
        """By bucket, the last one without bound; their sum is `tail.put_nums`."""
        counts = self._counts.get(tail.topic)
        if counts is None or sum(counts) > tail.put_nums:  # new, or the topic was deleted and made again
            counts = self._counts[tail.topic] = [0] * (len(SIZE_BOUNDS) + 1)
        new = tail.put_nums - sum(counts)
        if new == 0:
            return counts
        found = [0] * len(counts)
        for queue in list(tail.queues.values()):
            if isinstance(queue.owner, ConsumeQueue):
                self._look(queue.owner, found, new)
        if not any(found):
            found[bisect_left(SIZE_BOUNDS, tail.put_bytes // tail.put_nums)] = 1  # nothing to look at: by the mean
        total, given = sum(found), 0
        for index, number in enumerate(found):
            counts[index] += new * number // total
            given += new * number // total
        counts[found.index(max(found))] += new - given
        return counts

    def _look(self, queue: ConsumeQueue, found: list[int], new: int) -> None:
        end = queue.max_offset
        key = (queue.topic, queue.queue_id)
        start = max(self._seen.get(key, end - new), end - _UNITS_LOOKED_AT, 0)
        self._seen[key] = end
        while start < end:
            units = queue.units_from(start)
            if units is None:
                break
            view, first, last = units
            last = min(last, first + (end - start) * CQ_STORE_UNIT_SIZE)
            for (size,) in _SIZES.iter_unpack(view[first:last]):
                found[bisect_left(SIZE_BOUNDS, size)] += 1
            start += max(1, (last - first) // CQ_STORE_UNIT_SIZE)
