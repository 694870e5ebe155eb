"""DelayedMessages: all that a broker does for delay levels, put together (see Features)."""

from typing import Final

from maxq.broker.bundles import Environment, Messages, Tables
from maxq.broker.failover.assembly import Failover
from maxq.broker.schedule_message.delay_hook import DelayHook
from maxq.broker.schedule_message.delay_levels import DelayLevels, queue_id_of
from maxq.broker.schedule_message.schedule_message_service import ScheduleMessageService
from maxq.broker.tables.topic.topic_validator import SCHEDULE_TOPIC
from maxq.remoting.server import RemotingServer

SCHEDULE_CONSUMER_GROUP: Final = "SCHEDULE_CONSUMER"


class DelayedMessages:
    """The feature of delay levels: hook, service, statistics.

    Attributes:
        levels: the table of messageDelayLevel.
        service: what delivers.
        hook: what makes delayed messages.
    """

    def __init__(self, env: Environment, tables: Tables, messages: Messages, failover: Failover) -> None:
        self._settings = env.settings
        self._stats = env.stats
        self.levels = DelayLevels(env.settings.store.message_delay_level)
        self.service = ScheduleMessageService(
            env, tables, messages, self.levels, failover.escape.put_message, failover.acting.doubt, self._count
        )
        self.hook = DelayHook(self.levels, self.service.wake)

    def register(self, server: RemotingServer) -> None:
        """Registers nothing: delayed messages have no request code of their own."""

    async def load(self) -> None:
        """Load nothing: the service reads its file when it starts, because a slave's file is written by its master
        until then."""

    def start(self) -> None:
        """Do nothing: MasterOnlyServices starts the service."""

    async def shutdown(self) -> None:
        """Stop the service, and wait until it has ended and delayOffset.json is written."""
        await self.service.shutdown()

    def _count(self, level: int, messages: int, size: int) -> None:
        """Count a delivery as a read of the schedule topic by a group of its own (enableScheduleMessageStats)."""
        if not self._settings.store.enable_schedule_message_stats:
            return
        counter = self._stats.get_counter(SCHEDULE_CONSUMER_GROUP, SCHEDULE_TOPIC, queue_id_of(level))
        counter.nums += messages
        counter.size += size
        counter.times += messages
