"""Messages and bytes in and out, by topic and group, and how large messages are.

Messages are counted once: received ones in the TopicWriteState of each topic, delivered ones in the counters of the
statistics. The sizes are read off the ConsumeQueues when somebody asks, at most the last 1000 units of a queue since
the last time; further messages are assumed to have similar sizes. `_count` and `_sum` are exact.

Topics are handled in blocks. A block is computed again only if one of its topics has received a message, or their
configs have changed; otherwise its text is kept. All that one scrape shows of a topic is of one moment, unless another
scrape looks meanwhile.

The message type is that of the topic (its `message.type`; the half topic's is transaction, that of delayed and timed
messages delay): the fast path does not look at their properties.

Source:
    broker/metrics/BrokerMetricsManager.java initRequestMetrics.
"""

import struct
from bisect import bisect_left
from collections.abc import Iterator
from operator import attrgetter
from typing import Final

from maxq.broker.metrics.labels import flag, is_system_group
from maxq.broker.stats import names
from maxq.broker.stats.broker_stats_manager import BrokerStatsManager
from maxq.broker.tables.attributes import MESSAGE_TYPE
from maxq.broker.tables.topic.topic_config_manager import TopicConfigManager
from maxq.broker.tables.topic.topic_validator import SCHEDULE_TOPIC, TIMER_TOPIC, TRANS_HALF_TOPIC
from maxq.protocol.body.topic_config import TopicConfig
from maxq.protocol.message.pop_extra_info import normal_topic
from maxq.runtime.metrics.registry import HistogramSample, MetricsRegistry, Sample
from maxq.store.log.tails_cy import TopicWriteState
from maxq.store.message_store import MessageStore
from maxq.store.queue.consume_queue import CQ_STORE_UNIT_SIZE, ConsumeQueue

SIZE_BOUNDS: Final = (1 << 10, 4 << 10, 512 << 10, 1 << 20, 2 << 20, 4 << 20)
_SIZES: Final = struct.Struct(">8xi8x")
_UNITS_LOOKED_AT: Final = 1000
_TOPICS_IN_BLOCK: Final = 64
_TYPES: Final = {TRANS_HALF_TOPIC: "transaction", SCHEDULE_TOPIC: "delay", TIMER_TOPIC: "delay"}
_LABELS_IN: Final = ("topic", "message_type", "is_system")
_LABELS_OUT: Final = ("topic", "consumer_group", "is_retry", "is_system")
_NOT_POPPED: Final = ""  # pulls have no label is_retry

_Labels = tuple[str, str, str]
_topic = attrgetter("topic")
_put_nums = attrgetter("put_nums")


class _Block:
    """Some topics with the numbers of messages put into them at one moment. Never changed, only replaced.

    Attributes:
        messages, sizes, bytes: samples of the topics that something was put into.
    """

    __slots__ = ("bytes", "configs", "labels", "messages", "put_nums", "sizes", "states")

    def __init__(
        self,
        states: list[TopicWriteState],
        put_nums: list[int],
        configs: list[TopicConfig | None],
        labels: list[_Labels],
    ) -> None:
        """`put_nums`, `configs`, `labels`: of each topic. Samples may be of later puts than these, never of earlier
        ones."""
        self.states = states
        self.put_nums = put_nums
        self.configs = configs
        self.labels = labels
        self.messages: list[Sample] = []
        self.bytes: list[Sample] = []
        self.sizes: list[HistogramSample] = []


class TrafficMetrics:
    """Registers its metrics with the registry it is given."""

    def __init__(
        self, registry: MetricsRegistry, *, store: MessageStore, stats: BrokerStatsManager, topics: TopicConfigManager
    ) -> None:
        self._store = store
        self._stats = stats
        self._topics = topics
        self._sizes: dict[TopicWriteState, _MessageSizes] = {}
        self._blocks: list[_Block] = []
        registry.before(stats.collect_gets_in_turns)
        registry.before(self._sample)
        registry.counter_in_blocks(
            "rocketmq_messages_in_total",
            "Messages stored",
            lambda: (block.messages for block in self._blocks),
            _LABELS_IN,
        )
        registry.counter_in_blocks(
            "rocketmq_throughput_in_total",
            "Bytes of messages stored",
            lambda: (block.bytes for block in self._blocks),
            _LABELS_IN,
        )
        registry.observed_counter(
            "rocketmq_messages_out_total",
            "Messages delivered to consumers",
            lambda: self._got(names.GROUP_GET_NUMS, 0),
            _LABELS_OUT,
        )
        registry.observed_counter(
            "rocketmq_throughput_out_total",
            "Bytes of messages delivered to consumers",
            lambda: self._got(names.GROUP_GET_SIZE, 1),
            _LABELS_OUT,
        )
        registry.histogram_in_blocks(
            "rocketmq_message_size",
            "Size of stored messages in the commit log, in bytes",
            SIZE_BOUNDS,
            lambda: (block.sizes for block in self._blocks),
            _LABELS_IN,
        )

    def _sample(self) -> Iterator[None]:
        """Rebuild the blocks that have changed, once for all metrics of a scrape."""
        table, kept = self._topics.topic_config_table, self._blocks
        states = list(self._store.topics.values())
        blocks: list[_Block] = []
        for start in range(0, len(states), _TOPICS_IN_BLOCK):
            some = states[start : start + _TOPICS_IN_BLOCK]
            put_nums, configs = list(map(_put_nums, some)), list(map(table.get, map(_topic, some)))
            block = kept[len(blocks)] if len(blocks) < len(kept) else None
            if block is None or block.states != some or block.configs != configs:
                block = _Block(some, put_nums, configs, list(map(self._labels, some, configs)))
                yield from self._fill(block)
            elif block.put_nums != put_nums:
                block = _Block(some, put_nums, configs, block.labels)
                yield from self._fill(block)
            blocks.append(block)
            yield
        self._blocks = blocks
        for gone in self._sizes.keys() - set(states):
            del self._sizes[gone]

    def _labels(self, state: TopicWriteState, config: TopicConfig | None) -> _Labels:
        return state.topic, _message_type(state.topic, config), flag(self._topics.is_system_topic(state.topic))

    def _fill(self, block: _Block) -> Iterator[None]:
        for state, labels in zip(block.states, block.labels, strict=True):
            put_nums, put_bytes = state.put_nums, state.put_bytes
            if put_nums:
                sizes = self._sizes.get(state)
                if sizes is None:
                    sizes = self._sizes[state] = _MessageSizes(state)
                yield from sizes.look(put_nums, put_bytes)
                block.messages.append((labels, put_nums))
                block.bytes.append((labels, put_bytes))
                block.sizes.append((labels, tuple(sizes.counts), float(put_bytes)))

    def _got(self, name: str, which: int) -> Iterator[Sample]:
        """Yield samples of column `which` of `BrokerStatsManager.popped`. Pops are labelled separately; messages from
        retry topics count under the topic that was requested."""
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
            else:  # a retry topic, whose name can be spelled in two ways
                labels = self._labels_out(asked, group, flag(True))
                retried[labels] = retried.get(labels, 0) + popped
        yield from retried.items()

    def _labels_out(self, topic: str, group: str, is_retry: str) -> tuple[str, ...]:
        return topic, group, is_retry, flag(self._topics.is_system_topic(topic) or is_system_group(group))


def _message_type(topic: str, config: TopicConfig | None) -> str:
    known = _TYPES.get(topic)
    if known is not None:
        return known
    given = "" if config is None else config.attributes.get(MESSAGE_TYPE, "")
    return "normal" if given in ("", "UNSPECIFIED", "MIXED") else given.lower()


class _MessageSizes:
    """Histogram of the sizes of a topic's messages.

    Attributes:
        counts: by bucket, the last one without bound.
    """

    def __init__(self, state: TopicWriteState) -> None:
        self._state = state
        self.counts = [0] * (len(SIZE_BOUNDS) + 1)
        self._seen: dict[int, int] = {}  # by queue: the queue offset up to which sizes were looked at

    def look(self, put_nums: int, put_bytes: int) -> Iterator[None]:
        """Count new messages until the sum of `counts` is `put_nums`. The loop may run other tasks after each queue
        with new messages."""
        new = put_nums - sum(self.counts)
        if new == 0:
            return
        found = [0] * len(self.counts)
        for queue_id, queue in list(self._state.queues.items()):
            if isinstance(queue.owner, ConsumeQueue) and self._sample_units(queue_id, queue.owner, found, new):
                yield
        new = put_nums - sum(self.counts)
        if new <= 0:
            return  # another scrape looked meanwhile
        if not any(found):
            # there is no message to look at: use the mean size
            found[bisect_left(SIZE_BOUNDS, put_bytes // put_nums)] = 1
        total, given = sum(found), 0
        counts = list(self.counts)
        for index, number in enumerate(found):
            counts[index] += new * number // total
            given += new * number // total
        counts[found.index(max(found))] += new - given
        self.counts = counts

    def _sample_units(self, queue_id: int, queue: ConsumeQueue, found: list[int], new: int) -> bool:
        """Count new messages of one queue, as far as their units are in mapped files: to map a file takes longer than
        all else of a topic. Returns whether there were any."""
        end = queue.max_offset
        start = max(self._seen.get(queue_id, end - new), end - _UNITS_LOOKED_AT, 0)
        self._seen[queue_id] = end
        looked = start < end
        while start < end:
            file = queue.files.find(start * CQ_STORE_UNIT_SIZE)
            if file is None or not file.is_mapped:
                break
            units = queue.units_from(start)
            if units is None:
                break
            view, first, last = units
            last = min(last, first + (end - start) * CQ_STORE_UNIT_SIZE)
            for (size,) in _SIZES.iter_unpack(view[first:last]):
                found[bisect_left(SIZE_BOUNDS, size)] += 1
            start += max(1, (last - first) // CQ_STORE_UNIT_SIZE)
        return looked
