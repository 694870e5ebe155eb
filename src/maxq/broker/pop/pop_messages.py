"""PopMessages: pop consumption of one broker, put together (see Features)."""

from functools import partial
from pathlib import PurePath
from typing import Final

from maxq.broker.bundles import Clients, Environment, Limits, Messages, Tables
from maxq.broker.failover.assembly import Failover
from maxq.broker.fast_path.ack_path import AckPath
from maxq.broker.longpolling.pop_long_polling import PopLongPollingService
from maxq.broker.pop.ack_message import AckMessageProcessor
from maxq.broker.pop.check_point_buffer import CheckPointBuffer, QueueKey
from maxq.broker.pop.hand_back import HandBackProcessor
from maxq.broker.pop.notification import NotificationProcessor
from maxq.broker.pop.order_info import FILE_NAME as ORDER_FILE
from maxq.broker.pop.order_info import ConsumerOrderInfoManager
from maxq.broker.pop.order_service import OrderService
from maxq.broker.pop.pop_checks import PopChecks
from maxq.broker.pop.pop_counts import PopCounts
from maxq.broker.pop.pop_journal import PopJournal
from maxq.broker.pop.pop_message import PopMessageProcessor
from maxq.broker.pop.pop_reader import PopReader
from maxq.broker.pop.pop_revive import PopReviveService
from maxq.broker.pop.pop_service import PopService
from maxq.broker.pop.retry_writer import RetryWriter
from maxq.broker.pop.revive_record_writer import ReviveRecordWriter
from maxq.broker.tables.static_topic.other_brokers import OtherBrokers
from maxq.broker.tables.static_topic.pull_answers import STANDS_IN
from maxq.broker.timer.timer_service import TimerService
from maxq.codes import RequestCode, ResponseCode
from maxq.errors import MaxQError, StoreRefusedError
from maxq.protocol.body.topic_config import TopicConfig
from maxq.protocol.header.pull import PULL_FLAG_SUBSCRIPTION, PullMessageRequestHeader
from maxq.protocol.message.message import MessageExt, decode_record
from maxq.protocol.message.pop_extra_info import normal_topic
from maxq.remoting.server import RemotingServer
from maxq.runtime.blocking import run_blocking
from maxq.runtime.periodic import PeriodicTasks

_SAFETY_NET_SECONDS: Final = 5.0
_READER: Final = "TOOLS_CONSUMER"
#: Answers of a broker that no longer has the message.
_GONE: Final = (
    ResponseCode.PULL_OFFSET_MOVED,
    ResponseCode.PULL_RETRY_IMMEDIATELY,
    ResponseCode.TOPIC_NOT_EXIST,
)
KEY_VALUE_FOLDER: Final = "kvStore"
_RECORD_FILES: Final = (".sst", ".log")


class PopMessages:
    """The feature of pop consumption.

    Attributes:
        acks: the batch path of acks.
        buffer: check points in memory.
        revive: the reader of the revive topic.
        polling: pops that wait.
        notified: notifications that wait.
        service: the background work.
        counts: counters for the metrics.
    """

    def __init__(
        self,
        env: Environment,
        tables: Tables,
        clients: Clients,
        messages: Messages,
        limits: Limits,
        failover: Failover,
        timer: TimerService,
        others: OtherBrokers,
    ) -> None:
        settings, clock, own = env.settings, env.clock, env.own
        self._settings = settings
        self._clock = clock
        self._disk = env.disk
        self._own = own
        self._failover = failover
        self._timer = timer
        self._topics = tables.topics
        self._groups = tables.groups
        self._gives_way = False  # this slave stops acting, because its master comes back
        self._tasks = PeriodicTasks()
        self.polling, self.notified = (
            PopLongPollingService(
                messages.store, settings=settings, clock=clock, queue_count=self._queue_count, guard=env.guard
            )
            for _ in range(2)
        )
        journal = PopJournal(messages.store, tables.offsets, clock, may_write=lambda: own.is_master)
        self.buffer = CheckPointBuffer(tables.offsets, journal, clock)
        self.buffer.on_ended = self._ended
        order_file = PurePath(settings.store.store_path_root_dir) / "config" / ORDER_FILE
        self._orders = OrderService(
            env,
            tables,
            ConsumerOrderInfoManager(env.disk, order_file, clock=clock, is_there=self._queues_for),
            journal,
            self._wake,
        )
        self.counts = PopCounts()
        put, doubt = failover.escape.put_message, failover.acting.doubt
        records = ReviveRecordWriter(env, messages, put, self.counts)
        reviver = RetryWriter(
            env, tables, messages, put, partial(read_elsewhere, others), self.counts,
            lambda topic, group: self._wake(topic, group, -1),
        )  # fmt: skip
        self.revive = PopReviveService(
            env, tables, messages, records, reviver, self.buffer, self._delivered_until, doubt
        )
        self.service = PopService(env, tables, messages, failover, self.buffer, self._orders, self.revive)
        checks = PopChecks(env, tables, clients, messages)
        reader = PopReader(env, tables, messages, self.buffer, self._orders)
        self._pops = PopMessageProcessor(env, clients, messages, limits, checks, reader, self.polling, self.service)
        self._acks = AckMessageProcessor(
            env, messages, checks, self.buffer, self._orders, records, self.service.ready,
            lambda: self.service.log_began_at,
        )  # fmt: skip
        self._notifications = NotificationProcessor(env, tables, messages, checks, reader, self.notified, self.polling)
        self.acks = AckPath(env, messages, self.buffer)

    # --- life --------------------------------------------------------------------------------------------------------

    def register(self, server: RemotingServer) -> None:
        """Register the request codes of pop, acks and notifications."""
        hand_back = HandBackProcessor(self._failover.acting, self.service, self._rest)
        for processor in (self._pops, self._acks, self._notifications, hand_back):
            processor.register(server)

    async def load(self) -> None:
        """Read the order infos; the journal is read by the group's active broker. StoreRefusedError if a Java broker
        left check points where they cannot be read."""
        await run_blocking(self._refuse_key_value_store)
        await run_blocking(self._orders.table.load)

    def _refuse_key_value_store(self) -> None:
        folder = PurePath(self._settings.store.store_path_root_dir) / KEY_VALUE_FOLDER
        files = self._disk.list(folder)
        if any(file.size and PurePath(file.name).suffix in _RECORD_FILES for file in files):
            raise StoreRefusedError(
                f"{folder} has check points that a broker with popConsumerKVServiceEnable left, in RocksDB's format, "
                "which is not read here: messages that were given out and not acknowledged would never come again. On "
                "the Java broker set popConsumerKVServiceEnable=false, run mqadmin exportPopRecord and stop it; then "
                "remove the folder"
            )

    def start(self) -> None:
        """Start the periodic check of parked requests."""
        self._tasks.every("waiting pops", _SAFETY_NET_SECONDS, self._look_again)

    async def shutdown(self) -> None:
        """Shut down (see Feature), and hand open check points over to the revive topic."""
        await self._tasks.stop()
        self.polling.stop()
        self.notified.stop()
        await self._pops.drain()
        await self.service.shutdown()

    # --- what the parts are told -------------------------------------------------------------------------------------

    def _wake(self, topic: str, group: str, queue_id: int) -> None:
        self.polling.poke(topic, group, queue_id)
        self.notified.poke(topic, group, queue_id)

    def _ended(self, queue: QueueKey) -> None:
        """Wake the requests that wait because too many messages of a queue are open."""
        if self._settings.broker.enable_pop_message_threshold:
            topic, group, queue_id = queue
            self._wake(normal_topic(topic, group), group, queue_id)

    def sends_nothing(self) -> bool:
        """Return whether this slave leaves messages for other groups to its master."""
        return not self._failover.services.is_running or (self._gives_way and self.leaves_deliveries())

    def leaves_deliveries(self) -> bool:
        """Return whether deliveries are left to another broker of the group that is active, or may be."""
        return self.service.gives_way() is not None or self._failover.acting.doubt() is not None

    async def _rest(self) -> None:
        """Stop sending to other groups when a slave's master comes back, because the master would deliver the same
        messages once more. The timer's open slot is delivered first."""
        if not self._own.is_master and self._settings.broker.enable_remote_escape:
            self._gives_way = False
            await self._timer.wait_idle()
            self._gives_way = True
            await self._failover.escape.wait_idle()
            await self._timer.write_checkpoint()

    def _look_again(self) -> None:
        self.polling.watch_again()
        self.notified.watch_again()

    def _delivered_until(self) -> int:
        """Return the time up to which the timer has delivered (see PopReviveService). Until it delivers, acks may wait
        in it."""
        if not self._settings.store.timer_wheel_enable:
            return self._clock.wall_ms()
        return self._timer.delivered_until_ms

    def _queue_count(self, topic: str) -> int:
        config = self._topics.select_topic_config(topic)
        return 0 if config is None else config.read_queue_nums

    def _queues_for(self, topic: str, group: str) -> int:
        return self._queue_count(topic) if self._groups.contains_subscription_group(group) else 0

    def topics_changed(self, changed: list[TopicConfig], deleted: list[str]) -> None:
        """Forget the state of deleted topics: a topic that is made again under the same name begins anew."""
        gone = set(deleted)
        if gone:
            self.buffer.forget([queue for queue in self.buffer.queues() if queue[0] in gone])
            self._orders.forget(gone)


async def read_elsewhere(
    others: OtherBrokers, broker_name: str, topic: str, queue_id: int, offset: int
) -> MessageExt | None:
    """Read one message from another broker, for a check point whose messages a slave gave out while it acted as master.
    Returns None if it is gone, which only a master can say.

    Raises:
        MaxQError: that broker does not have it yet, or does not give it now.
    """
    header = PullMessageRequestHeader(
        _READER, topic, queue_id, offset, 1, PULL_FLAG_SUBSCRIPTION, 0, 0, 0, subscription="*", expression_type="TAG",
    )  # fmt: skip
    answer = await others.ask(broker_name, topic, RequestCode.PULL_MESSAGE, header.encode())
    if answer.code == ResponseCode.SUCCESS:
        return decode_record(answer.body_bytes)
    if answer.code not in _GONE or STANDS_IN in answer.ext:
        raise MaxQError(f"{broker_name} does not give it now: {answer.code} {answer.remark}")
    return None
