"""Transactions: this part of a broker, put together."""

from collections.abc import Callable
from pathlib import PurePath

from maxq.access.guard import Guard
from maxq.broker.acknowledgement import Acknowledgement
from maxq.broker.acting.special_services import SpecialServices
from maxq.broker.client.producer_manager import ProducerManager
from maxq.broker.fast_path.end_path import EndPath
from maxq.broker.identity.broker_identity import BrokerAddress
from maxq.broker.offset.consumer_offset_manager import ConsumerOffsetManager
from maxq.broker.periodic import PeriodicTasks
from maxq.broker.put_hooks import PutHooks
from maxq.broker.stats.broker_stats_manager import BrokerStatsManager
from maxq.broker.topic.topic_config_manager import TopicConfigManager
from maxq.broker.topic.topic_validator import TRANS_CHECK_MAX_TIME_TOPIC
from maxq.broker.transaction.end_transaction import EndTransactionProcessor
from maxq.broker.transaction.half_message import turn_away
from maxq.broker.transaction.transaction_metrics import FILE_NAME, TransactionMetrics
from maxq.broker.transaction.transactional_message_check_service import (
    Escape,
    TransactionalMessageCheckService,
)
from maxq.broker.transaction.transactional_message_service import TransactionalMessageService, TransactionParts
from maxq.config.settings import BrokerSettings
from maxq.lazy_dataclass import dataclass
from maxq.protocol.body.topic_config import PERM_READ, PERM_WRITE
from maxq.remoting.server import RemotingServer
from maxq.runtime.blocking import TABLES, run_blocking
from maxq.runtime.interfaces import Clock, Disk
from maxq.store.message_store import MessageStore


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionSurroundings:
    """What the broker gives this part."""

    settings: BrokerSettings
    disk: Disk
    clock: Clock
    store: MessageStore
    acknowledgement: Acknowledgement
    topics: TopicConfigManager
    offsets: ConsumerOffsetManager
    producers: ProducerManager
    hooks: PutHooks
    stats: BrokerStatsManager
    services: SpecialServices
    broker: BrokerAddress
    escape: Escape
    guard: Guard | None
    on_failure: Callable[[str, BaseException], None]


class Transactions:
    """A MessageKind."""

    def __init__(self, around: TransactionSurroundings) -> None:
        settings = around.settings
        path = PurePath(settings.store.store_path_root_dir) / "config" / FILE_NAME
        self.metrics = TransactionMetrics(around.disk, path, clock=around.clock)
        self.service = TransactionalMessageService(
            TransactionParts(
                settings=settings,
                clock=around.clock,
                store=around.store,
                offsets=around.offsets,
                hooks=around.hooks,
                stats=around.stats,
                metrics=self.metrics,
                broker=around.broker,
                create_discard_topic=lambda: around.topics.create_topic_in_send_message_back_method(
                    TRANS_CHECK_MAX_TIME_TOPIC, 1, PERM_READ | PERM_WRITE, 0
                ),
            )
        )
        self.checks = TransactionalMessageCheckService(
            self.service,
            settings=settings,
            clock=around.clock,
            store=around.store,
            producers=around.producers,
            guard=around.guard,
            broker=around.broker,
            is_slave=lambda: settings.store.broker_role == "SLAVE",
            escape=around.escape,
            on_failure=around.on_failure,
        )
        self.processor = EndTransactionProcessor(
            self.service,
            self.checks,
            settings=settings,
            store=around.store,
            acknowledgement=around.acknowledgement,
            guard=around.guard,
        )
        self.ends = EndPath(self.service, self.checks, around.store, around.acknowledgement, around.guard)
        self._settings = settings
        self._tasks = PeriodicTasks()
        around.hooks.set_half(turn_away, self.service.prepared)
        around.services.register("transactions", self.checks)

    def register(self, server: RemotingServer) -> None:
        self.processor.register(server)

    async def load(self) -> None:
        """Which transactions are open is learnt when this broker speaks for its group."""
        await run_blocking(self.metrics.load)

    def start(self) -> None:
        def interval() -> float:
            return self._settings.broker.transaction_metric_flush_interval / 1000

        self._tasks.every("transaction metrics", interval, self.metrics.request_persist)

    async def shutdown(self) -> None:
        await self._tasks.stop()
        await self.checks.shutdown()
        await TABLES.run(self.metrics.persist)
