"""How far the groups are behind that are online or pop, and dead letters.

A line for each group and topic it subscribes to (retry topics are left out). One walk over the queues gives all five
numbers; it is made when somebody asks, in turns of some dozen queues. Filters are not estimated: a group that takes
one tag of a topic counts as behind by all messages of it.

Source:
    broker/metrics/{ConsumerLagCalculator,BrokerMetricsManager}.java.
"""

from collections.abc import Callable, Iterator
from typing import Final

from maxq.broker.metrics.labels import flag, is_system_group
from maxq.broker.stats import names
from maxq.broker.stats.broker_stats_manager import BrokerStatsManager
from maxq.broker.tables.client.consumer_manager import ConsumerManager
from maxq.broker.tables.offset.consumer_offset_manager import ConsumerOffsetManager
from maxq.broker.tables.topic.topic_config_manager import TopicConfigManager
from maxq.broker.tables.topic.topic_validator import RETRY_PREFIX
from maxq.config.settings import BrokerSettings
from maxq.lazy_dataclass import dataclass
from maxq.protocol.body.topic_config import PERM_READ, PERM_WRITE
from maxq.runtime.interfaces import Clock
from maxq.runtime.metrics.registry import MetricsRegistry, Sample
from maxq.store.message_store import MessageStore

_LABELS: Final = ("consumer_group", "topic", "is_retry", "is_system")
_QUEUES_PER_TURN: Final = 32  # some microseconds each


@dataclass(slots=True)
class Lag:
    """Lag of one group and topic. Times are store times in wall-clock milliseconds; 0: nothing waits."""

    lag: int = 0
    inflight: int = 0
    ready: int = 0
    oldest_unconsumed_ms: int = 0
    oldest_unpulled_ms: int = 0


class LagMetrics:
    """Registers its metrics with the registry it is given."""

    def __init__(
        self,
        registry: MetricsRegistry,
        *,
        settings: BrokerSettings,
        clock: Clock,
        store: MessageStore,
        topics: TopicConfigManager,
        consumers: ConsumerManager,
        offsets: ConsumerOffsetManager,
        stats: BrokerStatsManager,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._store = store
        self._topics = topics
        self._consumers = consumers
        self._offsets = offsets
        self._stats = stats
        self._lags: dict[tuple[str, str], Lag] = {}
        registry.before(self._sample)
        registry.gauge(
            "rocketmq_consumer_lag_messages",
            "Messages that the group has not consumed yet",
            lambda: self._each(lambda lag: lag.lag),
            _LABELS,
        )
        registry.gauge(
            "rocketmq_consumer_inflight_messages",
            "Messages that were delivered to the group and that it has not consumed yet",
            lambda: self._each(lambda lag: lag.inflight),
            _LABELS,
        )
        registry.gauge(
            "rocketmq_consumer_ready_messages",
            "Messages that were not delivered to the group yet",
            lambda: self._each(lambda lag: lag.ready),
            _LABELS,
        )
        registry.gauge(
            "rocketmq_consumer_lag_latency_milliseconds",
            "Age of the oldest message that the group has not consumed yet, in milliseconds",
            lambda: self._each(lambda lag: self._age(lag.oldest_unconsumed_ms)),
            _LABELS,
        )
        registry.gauge(
            "rocketmq_consumer_queueing_latency_milliseconds",
            "Age of the oldest message that was not delivered to the group yet, in milliseconds",
            lambda: self._each(lambda lag: self._age(lag.oldest_unpulled_ms)),
            _LABELS,
        )
        registry.observed_counter(
            "rocketmq_send_to_dlq_messages_total",
            "Messages that became dead letters, because the group failed to consume them too often",
            self._dead_letters,
            ("consumer_group", "topic", "is_system"),
        )

    def _age(self, stored_ms: int) -> int:
        return max(0, self._clock.wall_ms() - stored_ms) if stored_ms > 0 else 0

    def _each(self, number: Callable[[Lag], int]) -> Iterator[Sample]:
        for (group, topic), lag in list(self._lags.items()):
            yield (group, topic, "false", self._is_system(topic, group)), number(lag)

    def _is_system(self, topic: str, group: str) -> str:
        return flag(self._topics.is_system_topic(topic) or is_system_group(group))

    def _sample(self) -> Iterator[None]:
        lags: dict[tuple[str, str], Lag] = {}
        queues = 0
        for group, topics in self._subscriptions():
            for topic in topics:
                queues += 1  # counted even if no value is shown for it
                if queues >= _QUEUES_PER_TURN:
                    queues = 0
                    yield
                config = self._topics.topic_config_table.get(topic)
                if topic.startswith(RETRY_PREFIX) or config is None:
                    continue
                if not config.perm & self._settings.broker.broker_permission & (PERM_READ | PERM_WRITE):
                    continue
                lag = lags[group, topic] = Lag()
                for queue_id in range(config.write_queue_nums):
                    self._add_queue(lag, group, topic, queue_id)
                queues += config.write_queue_nums
        self._lags = lags

    def _subscriptions(self) -> Iterator[tuple[str, list[str]]]:
        """Yield the groups with their topics: those online, and those that pop without heartbeats."""
        table = self._consumers.consumer_table
        for group, info in list(table.items()):
            yield group, list(info.subscription_table)
        for group, topics in self._consumers.silent.topics().items():
            if group not in table:
                yield group, topics

    def _add_queue(self, lag: Lag, group: str, topic: str, queue_id: int) -> None:
        offsets = self._offsets
        end = max(0, self._store.max_offset(topic, queue_id))
        consumed = offsets.query_offset(group, topic, queue_id)
        pulled = offsets.query_pull_offset(group, topic, queue_id)
        lag.lag += max(0, end - consumed) if consumed >= 0 else 0
        lag.ready += max(0, end - pulled) if pulled >= 0 else 0
        if consumed >= 0 and pulled >= 0:
            lag.inflight += max(0, pulled - consumed)
        if 0 <= consumed < end:
            lag.oldest_unconsumed_ms = self._older(lag.oldest_unconsumed_ms, topic, queue_id, consumed)
        if 0 <= pulled < end:
            lag.oldest_unpulled_ms = self._older(lag.oldest_unpulled_ms, topic, queue_id, pulled)

    def _older(self, known_ms: int, topic: str, queue_id: int, offset: int) -> int:
        stored_ms = self._store.store_time_at(topic, queue_id, offset)
        if stored_ms <= 0:
            return known_ms
        return stored_ms if known_ms == 0 else min(known_ms, stored_ms)

    def _dead_letters(self) -> Iterator[Sample]:
        for key, value in self._stats.totals(names.DLQ_PUT_NUMS):
            topic, _, group = key.partition("@")
            yield (group, topic, self._is_system(topic, group)), value
