"""TimedMessages: all that a broker does for messages with a delivery time, put together (see MessageKinds)."""

from collections.abc import Callable

from maxq.broker.acknowledgement import Acknowledgement
from maxq.broker.acting.assembly import GroupMember
from maxq.broker.identity.broker_identity import BrokerAddress
from maxq.broker.put_hooks import PutHooks
from maxq.broker.slave.carried_files import CarriedFiles
from maxq.broker.stats.broker_stats_manager import BrokerStatsManager
from maxq.broker.timer.recall_message import RecallMessageProcessor
from maxq.broker.timer.timer_admin import TimerAdminProcessor
from maxq.broker.timer.timer_hook import TimerHook
from maxq.broker.timer.timer_service import TimerParts, TimerService
from maxq.broker.timer.timer_status import TimerStatus
from maxq.broker.topic.topic_config_manager import TopicConfigManager
from maxq.config.settings import BrokerSettings
from maxq.lazy_dataclass import dataclass
from maxq.protocol.body.route import MASTER_ID
from maxq.protocol.body.topic_config import TopicConfig
from maxq.remoting.server import RemotingServer
from maxq.runtime.interfaces import Clock, Disk, Rng
from maxq.store.append.message_ext_broker_inner import MessageExtBrokerInner
from maxq.store.message_store import MessageStore
from maxq.store.store_results import PutMessageResult


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedParts:
    """What they are made of."""

    settings: BrokerSettings
    disk: Disk
    clock: Clock
    rng: Rng
    store: MessageStore
    files: CarriedFiles
    hooks: PutHooks
    acknowledgement: Acknowledgement
    topics: TopicConfigManager
    member: GroupMember
    own: BrokerAddress
    stats: BrokerStatsManager
    on_failure: Callable[[str, BaseException], None]


class TimedMessages:
    """Hook, service, recall.

    Attributes:
        service: what fills the wheel and delivers; it does neither with timerWheelEnable=false.
    """

    def __init__(self, parts: TimedParts) -> None:
        self._is_enabled = parts.settings.store.timer_wheel_enable
        self._files = parts.files
        self._stats = parts.stats
        self.service = TimerService(
            TimerParts(
                settings=parts.settings,
                store=parts.store,
                disk=parts.disk,
                clock=parts.clock,
                put=parts.member.escape.put_message,
                is_local=lambda: parts.own.broker_id == MASTER_ID,
                on_delivered=self._count,
                on_failure=parts.on_failure,
            )
        )
        parts.hooks.add(
            TimerHook(
                parts.settings,
                clock=parts.clock,
                rng=parts.rng,
                wheel=lambda: self.service.timer if self.service.is_loaded else None,
                on_timed=self.service.wake,
            )
        )
        self._status = TimerStatus(self.service, parts.settings, parts.clock)
        self._recall = RecallMessageProcessor(
            settings=parts.settings,
            store=parts.store,
            acknowledgement=parts.acknowledgement,
            topics=parts.topics,
            broker=parts.own,
            clock=parts.clock,
            hooks=parts.hooks,
        )
        self._admin = TimerAdminProcessor(
            settings=parts.settings,
            store=parts.store,
            service=self.service,
            status=self._status,
            recall=self._recall,
            broker=parts.own,
            clock=parts.clock,
        )
        self._topics = parts.topics
        if self._is_enabled:
            parts.member.services.register("timer messages", self.service)
            parts.topics.add_change_listener(self._topics_changed)

    def register(self, server: RemotingServer) -> None:
        """The codes of RecallMessageProcessor and TimerAdminProcessor."""
        self._recall.register(server)
        self._admin.register(server)

    async def load(self) -> None:
        """See MessageKind. Without the wheel nothing is read."""
        if self._is_enabled:
            await self.service.load()
            self._files.set_timer(self.service.exchange)

    def start(self) -> None:
        """Fill the wheel; SpecialServices says when to deliver."""
        if self._is_enabled:
            self.service.begin()

    async def shutdown(self) -> None:
        """Return when the last checkpoint is written."""
        await self.service.shutdown()

    def runtime_info(self) -> dict[str, str]:
        """See TimerStatus."""
        return self._status.runtime_info()

    def _topics_changed(self, changed: list[TopicConfig], deleted: list[str]) -> None:
        if deleted and self.service.is_loaded:
            self.service.timer.metrics.keep(self._topics.topic_config_table)

    def _count(self, message: MessageExtBrokerInner, result: PutMessageResult) -> None:
        """A delivery counts as a put, as a client's does."""
        if result.physical_offset >= 0:
            self._stats.put_counter(message.topic, message.queue_id).add(1, result.size, 0)
