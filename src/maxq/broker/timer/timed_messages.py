"""TimedMessages: all that a broker does for messages with a delivery time, put together (see Features)."""

from maxq.broker.bundles import Environment, Messages, Tables
from maxq.broker.failover.assembly import Failover
from maxq.broker.timer.recall_message import RecallMessageProcessor
from maxq.broker.timer.timer_admin import TimerAdminProcessor
from maxq.broker.timer.timer_hook import TimerHook
from maxq.broker.timer.timer_service import TimerService
from maxq.broker.timer.timer_status import TimerStatus
from maxq.protocol.body.topic_config import TopicConfig
from maxq.remoting.server import RemotingServer
from maxq.store.append.message_ext_broker_inner import MessageExtBrokerInner
from maxq.store.store_results import PutMessageResult


class TimedMessages:
    """The feature of timer messages: hook, service, recall.

    Attributes:
        hook: what makes timer messages.
        service: what fills the wheel and delivers; it does neither with timerWheelEnable=false.
    """

    def __init__(self, env: Environment, tables: Tables, messages: Messages, failover: Failover) -> None:
        self._is_enabled = env.settings.store.timer_wheel_enable
        self._files = tables.files
        self._topics = tables.topics
        self._stats = env.stats
        self.service = TimerService(env, messages, failover.escape.put_message, self._count)
        self.hook = TimerHook(
            env.settings,
            clock=env.clock,
            rng=env.rng,
            wheel=lambda: self.service.timer if self.service.is_loaded else None,
            on_timed=self.service.wake,
        )
        self._status = TimerStatus(self.service, env.settings, env.clock)
        self._recall = RecallMessageProcessor(env, tables, messages, self._may_have_delivered)
        self._admin = TimerAdminProcessor(env, messages, self.service, self._status, self._recall)

    def register(self, server: RemotingServer) -> None:
        """Register the codes of RecallMessageProcessor and TimerAdminProcessor."""
        self._recall.register(server)
        self._admin.register(server)

    async def load(self) -> None:
        """Load the timer (see Feature). Without the wheel only the number of messages that wait is read."""
        if self._is_enabled:
            await self.service.load()
            self._files.set_timer(self.service.exchange)
        else:
            await self.service.warn_of_waiting()

    def start(self) -> None:
        """Start filling the wheel; MasterOnlyServices starts and stops delivery."""
        if self._is_enabled:
            self.service.begin()

    async def shutdown(self) -> None:
        """Stop the timer, and wait until its last checkpoint is written."""
        await self.service.shutdown()

    def runtime_info(self) -> dict[str, str]:
        """Return what the runtime information shows of the timer (see `TimerStatus.runtime_info`)."""
        return self._status.runtime_info()

    def topics_changed(self, changed: list[TopicConfig], deleted: list[str]) -> None:
        """Forget how many timed messages wait for deleted topics."""
        if deleted and self.service.is_loaded:
            self.service.timer.metrics.keep(self._topics.topic_config_table)

    def _may_have_delivered(self, deliver_ms: int) -> bool:
        return self.service.is_loaded and self.service.timer.may_have_delivered(deliver_ms)

    def _count(self, message: MessageExtBrokerInner, result: PutMessageResult) -> None:
        """Count a delivery as a put, as for a client's message."""
        if result.physical_offset >= 0:
            self._stats.put_counter(message.topic, message.queue_id).add(1, result.size, 0)
