"""Staged messages: this part of a broker, put together."""

from maxq.access.guard import Guard
from maxq.broker.acknowledgement import Acknowledgement
from maxq.broker.acting.special_services import SpecialServices
from maxq.broker.identity.broker_identity import BrokerAddress
from maxq.broker.periodic import PeriodicTasks
from maxq.broker.processors.send.send_checks import SendChecks
from maxq.broker.processors.send.send_properties import BrokerProperties
from maxq.broker.put_hooks import PutHooks
from maxq.broker.staged.delivery import StagedDelivery
from maxq.broker.staged.staged_processor import StagedProcessor
from maxq.broker.staged.staged_service import StagedService
from maxq.broker.static_topic.topic_queue_mapping_manager import TopicQueueMappingManager
from maxq.broker.stats.broker_stats_manager import BrokerStatsManager
from maxq.broker.topic.topic_config_manager import TopicConfigManager
from maxq.config.settings import BrokerSettings
from maxq.lazy_dataclass import dataclass
from maxq.remoting.server import RemotingServer
from maxq.runtime.interfaces import Clock
from maxq.store.message_store import MessageStore
from maxq.store.store_results import PutMessageResult

_SNAPSHOT_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedParts:
    """What the broker gives this part."""

    settings: BrokerSettings
    clock: Clock
    store: MessageStore
    acknowledgement: Acknowledgement
    topics: TopicConfigManager
    mappings: TopicQueueMappingManager
    hooks: PutHooks
    stats: BrokerStatsManager
    services: SpecialServices
    own: BrokerAddress
    guard: Guard | None


class StagedMessages:
    """A MessageKind."""

    def __init__(self, parts: StagedParts) -> None:
        settings, store = parts.settings, parts.store
        self._stats = parts.stats
        checks = SendChecks(settings, parts.topics)
        delivery = StagedDelivery(
            store,
            checks,
            parts.mappings,
            parts.hooks,
            BrokerProperties(parts.own, lambda: settings.broker),
            settings.server.frame_max_length,
            self._count,
        )
        self.service = StagedService(settings, parts.clock, store, parts.acknowledgement, delivery)
        self._processor = StagedProcessor(
            settings, store, parts.acknowledgement, parts.topics, checks, self.service, parts.guard
        )
        self._tasks = PeriodicTasks()
        parts.services.register("staged messages", self.service)

    def _count(self, topic: str, queue_id: int, result: PutMessageResult) -> None:
        self._stats.put_counter(topic, queue_id).add(result.message_count, result.size, 0)

    def register(self, server: RemotingServer) -> None:
        self._processor.register(server)

    async def load(self) -> None:
        """The ledger is read when it is asked for."""

    def start(self) -> None:
        self._tasks.every("snapshot of staged messages", _SNAPSHOT_SECONDS, self.service.keep_short)

    async def shutdown(self) -> None:
        await self._tasks.stop()
