"""BrokerMetrics: all that a broker shows, put together.

Source:
    broker/metrics/BrokerMetricsManager.java.
"""

import asyncio
from collections.abc import Callable, Iterator
from typing import Final

from maxq.broker.assembly.features import Features
from maxq.broker.bundles import Clients, Environment, Limits, Messages, Tables
from maxq.broker.longpolling.pull_request_hold_service import PullRequestHoldService
from maxq.broker.metrics.client_metrics import ClientMetrics
from maxq.broker.metrics.labels import flag, forget_deleted
from maxq.broker.metrics.lag_metrics import LagMetrics
from maxq.broker.metrics.pop_metrics import PopMetrics
from maxq.broker.metrics.rpc_latency import DISABLE
from maxq.broker.metrics.store_metrics import StoreMetrics, TimerMetricsView
from maxq.broker.metrics.traffic_metrics import TrafficMetrics
from maxq.codes import RequestCode, ResponseCode
from maxq.protocol.body.ha_runtime_info import HAConnectionRuntimeInfo
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.remoting.server import RemotingServer
from maxq.replication.ha.ha_service import HAService
from maxq.runtime.metrics.registry import Histogram, MetricsRegistry, Sample
from maxq.store.message_store import MessageStore

CREATION_BOUNDS: Final = (10, 100, 1000, 3000, 5000)
FINISH_BOUNDS: Final = (5, 60, 600, 3600, 43_200, 86_400)  # seconds, though the name says otherwise, as in Java


class BrokerMetrics:
    """Registers all metrics of a broker with a registry."""

    def __init__(
        self,
        registry: MetricsRegistry,
        env: Environment,
        tables: Tables,
        clients: Clients,
        messages: Messages,
        limits: Limits,
        hold_service: PullRequestHoldService,
        features: Features,
    ) -> None:
        self._registry = registry
        self._topics = tables.topics
        self._settings = env.settings
        self._groups = tables.groups
        self._fast_failure = limits.fast_failure
        self._hold_service = hold_service
        self._features = features
        self._store = messages.store
        self._stats = env.stats
        self._consumers = clients.consumers
        self._producers = clients.producers
        self._clock = env.clock
        self._offsets = tables.offsets
        self._disk = env.disk
        self._creations: dict[int, Histogram] = {}
        broker = env.settings.broker
        if broker.metrics_exporter_type == DISABLE:
            return
        registry.number("target_info", "Always 1; the labels say which broker this is", lambda: 1)
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

    def answered(self, request: RemotingCommand, response: RemotingCommand, milliseconds: int) -> None:
        """Record an answered request, except those of the fast path."""
        creation = self._creations.get(request.code)
        if creation is not None:
            status = "success" if response.code == ResponseCode.SUCCESS else "failure"
            is_system = self._topics.is_system_topic(request.ext.get("topic", ""))
            creation.observe(milliseconds, status, flag(is_system))

    def _register_stats(self) -> None:
        registry = self._registry
        registry.gauge(
            "rocketmq_processor_watermark",
            "Requests that the broker has received and not finished, by kind of request",
            self._water_marks,
            ("processor",),
        )
        registry.number(
            "rocketmq_broker_permission",
            "What the broker allows: 2 to write, 4 to read, 6 both",
            lambda: self._settings.broker.broker_permission,
        )
        registry.number(
            "rocketmq_topic_number",
            "Topics of the broker, its own system topics included",
            lambda: len(self._topics.topic_config_table),
        )
        registry.number(
            "rocketmq_consumer_group_number",
            "Consumer groups of the broker, its own system groups included",
            lambda: len(self._groups.subscription_group_table),
        )

    def _water_marks(self) -> Iterator[Sample]:
        """Returns the unfinished requests by kind; 0 for kinds that are answered at once and never wait."""
        unfinished = self._fast_failure
        waiting = {
            "send": unfinished.sends.count,
            "pull": unfinished.pulls.count + self._hold_service.held_count,
            "reply": unfinished.replies.count,
        }
        for processor in (
            "send", "async_put", "pull", "ack", "query_message", "client_manager", "heartbeat", "lite_pull",
            "transaction", "consumer_manager", "admin", "reply",
        ):  # fmt: skip
            yield (processor,), waiting.get(processor, 0)

    def _register_traffic(self) -> None:
        TrafficMetrics(self._registry, store=self._store, stats=self._stats, topics=self._topics)
        labels = ("invocation_status", "is_system")
        topics = self._registry.histogram(
            "rocketmq_topic_create_execution_time_milliseconds",
            "Time that requests to create or change topics took, in milliseconds",
            CREATION_BOUNDS,
            labels,
        )
        groups = self._registry.histogram(
            "rocketmq_consumer_group_create_execution_time_milliseconds",
            "Time that requests to create or change consumer groups took, in milliseconds",
            CREATION_BOUNDS,
            labels,
        )
        self._creations = {
            int(RequestCode.UPDATE_AND_CREATE_TOPIC): topics,
            int(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST): topics,
            int(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP): groups,
            int(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST): groups,
        }

    def _register_clients(self) -> None:
        ClientMetrics(self._registry, consumers=self._consumers, producers=self._producers)

    def _register_lag(self) -> None:
        LagMetrics(
            self._registry,
            settings=self._settings,
            clock=self._clock,
            store=self._store,
            topics=self._topics,
            consumers=self._consumers,
            offsets=self._offsets,
            stats=self._stats,
        )

    def _register_transactions(self) -> None:
        registry, counts, clock = self._registry, self._features.transactions.metrics, self._clock
        registry.gauge(
            "rocketmq_half_messages",
            "Transactions that are neither committed nor rolled back",
            lambda: _by_topic(counts.open_transactions()),
            ("topic",),
        )
        registry.observed_counter(
            "rocketmq_commit_messages_total",
            "Transactions that were committed",
            lambda: _by_topic(counts.committed),
            ("topic",),
        )
        registry.observed_counter(
            "rocketmq_rollback_messages_total",
            "Transactions that were rolled back",
            lambda: _by_topic(counts.rolled_back),
            ("topic",),
        )
        latency = registry.histogram(
            "rocketmq_finish_message_latency_milliseconds",
            "Time from a transactional message to its commit; in seconds in spite of the name, as in Java",
            FINISH_BOUNDS,
            ("topic",),
        )
        forget_deleted(self._topics, latency)
        counts.on_committed = lambda topic, born_ms: latency.observe(max(0, clock.wall_ms() - born_ms) // 1000, topic)

    def _register_store(self) -> None:
        StoreMetrics(self._registry, config=self._settings.store, store=self._store, disk=self._disk, clock=self._clock)
        if self._settings.store.timer_wheel_enable:
            TimerMetricsView(self._registry, self._features.timed.service, self._topics, clock=self._clock)

    def _register_pop(self) -> None:
        popping = self._features.popping
        PopMetrics(
            self._registry, settings=self._settings, buffer=popping.buffer, revive=popping.revive, counts=popping.counts
        )


def _by_topic(counts: dict[str, int]) -> Iterator[Sample]:
    for topic, count in list(counts.items()):
        yield (topic,), count


def register_own(
    registry: MetricsRegistry,
    env: Environment,
    store: MessageStore,
    server: RemotingServer,
    hold_service: PullRequestHoldService,
    ha_service: HAService,
) -> None:
    """Register the metrics that RocketMQ does not have."""
    if env.settings.broker.metrics_exporter_type == DISABLE:
        return

    def slaves(number: Callable[[list[HAConnectionRuntimeInfo]], int]) -> Iterator[Sample]:
        """Returns the numbers of a master's slaves; nothing on a slave."""
        info = ha_service.runtime_info()
        if info.master:
            yield (), number(info.ha_connection_info)

    registry.number(
        "maxq_connections", "Open connections, of clients and of other servers", lambda: len(server.connections)
    )
    registry.number("maxq_tasks", "Tasks on the broker's event loop", lambda: len(asyncio.all_tasks()))
    registry.number("maxq_held_pulls", "Pull requests that wait for new messages", lambda: hold_service.held_count)
    registry.number(
        "maxq_damaged_queue_units",
        "Queue entries that were found without their message in the commit log",
        lambda: store.reader.damaged_units,
    )
    registry.gauge("maxq_ha_slaves", "Slaves that are connected to this master", lambda: slaves(len))
    registry.gauge(
        "maxq_ha_slaves_in_sync",
        "Connected slaves that are close enough to the master to count for synchronous replication",
        lambda: slaves(lambda ones: sum(one.in_sync for one in ones)),
    )
    registry.gauge(
        "maxq_ha_largest_gap_bytes",
        "How many bytes of the commit log the slowest connected slave still lacks",
        lambda: slaves(lambda ones: max((one.diff for one in ones), default=0)),
    )
