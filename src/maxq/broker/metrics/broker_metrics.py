"""BrokerMetrics: all that a broker shows, put together.

Source:
    broker/metrics/BrokerMetricsManager.java.
"""

import asyncio
from collections.abc import Callable, Iterator
from typing import Final

from maxq.broker.client.consumer_manager import ConsumerManager
from maxq.broker.client.producer_manager import ProducerManager
from maxq.broker.fast_failure import FastFailure
from maxq.broker.longpolling.pull_request_hold_service import PullRequestHoldService
from maxq.broker.metrics.client_metrics import ClientMetrics
from maxq.broker.metrics.labels import flag, forget_deleted
from maxq.broker.metrics.lag_metrics import LagMetrics
from maxq.broker.metrics.pop_metrics import PopMetrics
from maxq.broker.metrics.rpc_latency import RpcLatency
from maxq.broker.metrics.store_metrics import StoreMetrics, TimerMetricsView
from maxq.broker.metrics.traffic_metrics import TrafficMetrics
from maxq.broker.offset.consumer_offset_manager import ConsumerOffsetManager
from maxq.broker.pop.pop_messages import PopMessages
from maxq.broker.stats.broker_stats_manager import BrokerStatsManager
from maxq.broker.subscription.subscription_group_manager import SubscriptionGroupManager
from maxq.broker.timer.timer_service import TimerService
from maxq.broker.topic.topic_config_manager import TopicConfigManager
from maxq.broker.transaction.transaction_metrics import TransactionMetrics
from maxq.codes import RequestCode, ResponseCode
from maxq.config.settings import BrokerSettings
from maxq.lazy_dataclass import dataclass
from maxq.protocol.body.ha_runtime_info import HAConnectionRuntimeInfo, HARuntimeInfo
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.runtime.interfaces import Clock, Disk
from maxq.runtime.metrics.registry import Histogram, MetricsRegistry, Sample
from maxq.store.message_store import MessageStore

DISABLE: Final = "DISABLE"
CREATION_BOUNDS: Final = (10, 100, 1000, 3000, 5000)
FINISH_BOUNDS: Final = (5, 60, 600, 3600, 43_200, 86_400)  # seconds, though the name says otherwise, as in Java


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsParts:
    """What is looked at."""

    settings: BrokerSettings
    disk: Disk
    clock: Clock
    store: MessageStore
    topics: TopicConfigManager
    groups: SubscriptionGroupManager
    offsets: ConsumerOffsetManager
    consumers: ConsumerManager
    producers: ProducerManager
    stats: BrokerStatsManager
    fast_failure: FastFailure
    hold_service: PullRequestHoldService
    transactions: TransactionMetrics
    timer: TimerService
    popping: PopMessages
    connections: Callable[[], int]
    ha_runtime_info: Callable[[], HARuntimeInfo]


class BrokerMetrics:
    """Fills a registry.

    Attributes:
        rpc_latency: to be told of requests; None if nobody wants to know.
    """

    def __init__(self, registry: MetricsRegistry, parts: MetricsParts) -> None:
        self._registry = registry
        self._parts = parts
        self.rpc_latency: RpcLatency | None = None
        self._creations: dict[int, Histogram] = {}
        broker = parts.settings.broker
        if broker.metrics_exporter_type == DISABLE:
            return
        registry.number("target_info", lambda: 1)
        for enabled, register in (
            (broker.enable_stats_metrics, self._register_stats),
            (broker.enable_request_metrics, self._register_traffic),
            (broker.enable_connection_metrics, self._register_clients),
            (broker.enable_lag_and_dlq_metrics, self._register_lag),
            (broker.enable_transaction_metrics, self._register_transactions),
            (broker.enable_message_store_metrics, self._register_store),
            (broker.enable_pop_metrics, self._register_pop),
        ):
            if enabled:
                register()
        if broker.enable_remoting_metrics:
            self.rpc_latency = RpcLatency(registry)
        self._register_own()

    def answered(
        self, request: RemotingCommand, response: RemotingCommand, milliseconds: int, *, long_polling: bool = False
    ) -> None:
        """A request was answered that did not take a plain path."""
        if self.rpc_latency is not None:
            self.rpc_latency.answered(request, response, milliseconds, long_polling=long_polling)
        creation = self._creations.get(request.code)
        if creation is not None:
            status = "success" if response.code == ResponseCode.SUCCESS else "failure"
            is_system = self._parts.topics.is_system_topic(request.ext.get("topic", ""))
            creation.observe(milliseconds, status, flag(is_system))

    def _register_stats(self) -> None:
        parts, registry = self._parts, self._registry
        registry.gauge("rocketmq_processor_watermark", self._water_marks, ("processor",))
        registry.number("rocketmq_broker_permission", lambda: parts.settings.broker.broker_permission)
        registry.number("rocketmq_topic_number", lambda: len(parts.topics.topic_config_table))
        registry.number("rocketmq_consumer_group_number", lambda: len(parts.groups.subscription_group_table))

    def _water_marks(self) -> Iterator[Sample]:
        """Unfinished requests by kind. What is worked off at once never waits in a queue: 0."""
        unfinished = self._parts.fast_failure
        waiting = {
            "send": unfinished.sends.count,
            "pull": unfinished.pulls.count + self._parts.hold_service.held_count,
            "reply": unfinished.replies.count,
        }
        for processor in (
            "send", "async_put", "pull", "ack", "query_message", "client_manager", "heartbeat", "lite_pull",
            "transaction", "consumer_manager", "admin", "reply",
        ):  # fmt: skip
            yield (processor,), waiting.get(processor, 0)

    def _register_traffic(self) -> None:
        parts = self._parts
        TrafficMetrics(self._registry, store=parts.store, stats=parts.stats, topics=parts.topics)
        labels = ("invocation_status", "is_system")
        topics = self._registry.histogram(
            "rocketmq_topic_create_execution_time_milliseconds",
            CREATION_BOUNDS,
            labels,
            about="The distribution of create topic time",
        )
        groups = self._registry.histogram(
            "rocketmq_consumer_group_create_execution_time_milliseconds",
            CREATION_BOUNDS,
            labels,
            about="The distribution of create subscription time",
        )
        self._creations = {
            int(RequestCode.UPDATE_AND_CREATE_TOPIC): topics,
            int(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST): topics,
            int(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP): groups,
            int(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST): groups,
        }

    def _register_clients(self) -> None:
        ClientMetrics(self._registry, consumers=self._parts.consumers, producers=self._parts.producers)

    def _register_lag(self) -> None:
        parts = self._parts
        LagMetrics(
            self._registry,
            settings=parts.settings,
            clock=parts.clock,
            store=parts.store,
            topics=parts.topics,
            consumers=parts.consumers,
            offsets=parts.offsets,
            stats=parts.stats,
        )

    def _register_transactions(self) -> None:
        registry, counts, clock = self._registry, self._parts.transactions, self._parts.clock
        registry.gauge("rocketmq_half_messages", lambda: _by_topic(counts.open_transactions()), ("topic",))
        registry.observed_counter("rocketmq_commit_messages_total", lambda: _by_topic(counts.committed), ("topic",))
        registry.observed_counter("rocketmq_rollback_messages_total", lambda: _by_topic(counts.rolled_back), ("topic",))
        latency = registry.histogram(
            "rocketmq_finish_message_latency_milliseconds",
            FINISH_BOUNDS,
            ("topic",),
            about="Transaction finish latency",
        )
        forget_deleted(self._parts.topics, latency)
        counts.on_committed = lambda topic, born_ms: latency.observe(max(0, clock.wall_ms() - born_ms) // 1000, topic)

    def _register_store(self) -> None:
        parts = self._parts
        StoreMetrics(self._registry, config=parts.settings.store, store=parts.store, disk=parts.disk, clock=parts.clock)
        if parts.settings.store.timer_wheel_enable:
            TimerMetricsView(self._registry, parts.timer, parts.topics, clock=parts.clock)

    def _register_pop(self) -> None:
        parts = self._parts
        popping = parts.popping
        PopMetrics(
            self._registry, settings=parts.settings, buffer=popping.buffer, revive=popping.revive, counts=popping.counts
        )

    def _register_own(self) -> None:
        parts, registry = self._parts, self._registry
        registry.number("maxq_connections", parts.connections)
        registry.number("maxq_tasks", lambda: len(asyncio.all_tasks()))
        registry.number("maxq_held_pulls", lambda: parts.hold_service.held_count)
        registry.number("maxq_damaged_queue_units", lambda: parts.store.reader.damaged_units)
        registry.gauge("maxq_ha_slaves", lambda: self._slaves(len))
        registry.gauge(
            "maxq_ha_slaves_in_sync", lambda: self._slaves(lambda slaves: sum(one.in_sync for one in slaves))
        )
        registry.gauge(
            "maxq_ha_largest_gap_bytes",
            lambda: self._slaves(lambda slaves: max((one.diff for one in slaves), default=0)),
        )

    def _slaves(self, number: Callable[[list[HAConnectionRuntimeInfo]], int]) -> Iterator[Sample]:
        """Of a master; a slave shows nothing."""
        info = self._parts.ha_runtime_info()
        if info.master:
            yield (), number(info.ha_connection_info)


def _by_topic(counts: dict[str, int]) -> Iterator[Sample]:
    for topic, count in list(counts.items()):
        yield (topic,), count
