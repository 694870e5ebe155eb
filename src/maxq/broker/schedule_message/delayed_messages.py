"""DelayedMessages: all that a broker does for delay levels, put together (see MessageKinds)."""

from collections.abc import Callable
from typing import Final

from maxq.broker.acting.assembly import GroupMember
from maxq.broker.identity.broker_identity import BrokerAddress
from maxq.broker.put_hooks import PutHooks
from maxq.broker.schedule_message.delay_hook import DelayHook
from maxq.broker.schedule_message.delay_levels import DelayLevels, queue_id_of
from maxq.broker.schedule_message.schedule_message_service import ScheduleMessageService, ScheduleParts
from maxq.broker.slave.carried_files import CarriedFiles
from maxq.broker.stats.broker_stats_manager import BrokerStatsManager
from maxq.broker.topic.topic_validator import SCHEDULE_TOPIC
from maxq.config.settings import BrokerSettings
from maxq.lazy_dataclass import dataclass
from maxq.protocol.body.route import MASTER_ID
from maxq.remoting.server import RemotingServer
from maxq.runtime.interfaces import Clock
from maxq.store.message_store import MessageStore

SCHEDULE_CONSUMER_GROUP: Final = "SCHEDULE_CONSUMER"


@dataclass(frozen=True, slots=True, kw_only=True)
class DelayedParts:
    """What they are made of."""

    settings: BrokerSettings
    clock: Clock
    store: MessageStore
    files: CarriedFiles
    hooks: PutHooks
    member: GroupMember
    own: BrokerAddress
    stats: BrokerStatsManager
    on_failure: Callable[[str, BaseException], None]


class DelayedMessages:
    """Hook, service, statistics.

    Attributes:
        levels: the table of messageDelayLevel.
        service: what delivers.
        hook: what makes delayed messages.
    """

    def __init__(self, parts: DelayedParts) -> None:
        self._settings = parts.settings
        self._stats = parts.stats
        self.levels = DelayLevels(parts.settings.store.message_delay_level)
        self.service = ScheduleMessageService(
            ScheduleParts(
                settings=parts.settings,
                clock=parts.clock,
                store=parts.store,
                files=parts.files,
                levels=self.levels,
                put=parts.member.escape.put_message,
                is_local=lambda: parts.own.broker_id == MASTER_ID,
                doubt=parts.member.acting.doubt,
                on_delivered=self._count,
                on_failure=parts.on_failure,
            )
        )
        self.hook = DelayHook(self.levels, self.service.wake)
        parts.hooks.add(self.hook)
        parts.member.services.register("delayed messages", self.service)

    def register(self, server: RemotingServer) -> None:
        """No request code is theirs alone."""

    async def load(self) -> None:
        """The service reads its file when it starts: a slave's is written by its master until then."""

    def start(self) -> None:
        """SpecialServices starts the service."""

    async def shutdown(self) -> None:
        """Return when the service has ended and delayOffset.json is written."""
        await self.service.shutdown()

    def _count(self, level: int, messages: int, size: int) -> None:
        """enableScheduleMessageStats: a delivery is a read of the schedule topic by a group of its own."""
        if not self._settings.store.enable_schedule_message_stats:
            return
        counter = self._stats.get_counter(SCHEDULE_CONSUMER_GROUP, SCHEDULE_TOPIC, queue_id_of(level))
        counter.nums += messages
        counter.size += size
        counter.times += messages
