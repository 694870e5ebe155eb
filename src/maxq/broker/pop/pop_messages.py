"""PopMessages: pop consumption of one broker, put together (see MessageKinds)."""

from collections.abc import Callable
from pathlib import PurePath
from typing import Final

from maxq.access.guard import Guard
from maxq.broker.acknowledgement import Acknowledgement
from maxq.broker.acting.assembly import GroupMember
from maxq.broker.client.consumer_manager import ConsumerManager
from maxq.broker.fast_failure import FastFailure
from maxq.broker.fast_path.ack_path import AckPath
from maxq.broker.filter.consumer_filter_manager import ConsumerFilterManager
from maxq.broker.identity.broker_identity import BrokerAddress
from maxq.broker.offset.consumer_offset_manager import ConsumerOffsetManager
from maxq.broker.periodic import PeriodicTasks
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
from maxq.broker.pop.pop_long_polling import PopLongPollingService
from maxq.broker.pop.pop_message import PopFilters, PopMessageProcessor
from maxq.broker.pop.pop_reader import PopReader
from maxq.broker.pop.pop_revive import PopReviveService
from maxq.broker.pop.pop_service import PopService, PopServiceParts
from maxq.broker.pop.revive_records import ReviveRecords
from maxq.broker.pop.reviver import Reviver, ReviverParts
from maxq.broker.processors.pull.pull_subscription import PullSubscriptions
from maxq.broker.put_hooks import PutHooks
from maxq.broker.quota.quotas import Quotas
from maxq.broker.static_topic.other_brokers import OtherBrokers
from maxq.broker.stats.broker_stats_manager import BrokerStatsManager
from maxq.broker.subscription.subscription_group_manager import SubscriptionGroupManager
from maxq.broker.timer.timer_service import TimerService
from maxq.broker.topic.topic_config_manager import TopicConfigManager
from maxq.codes import RequestCode, ResponseCode
from maxq.config.settings import BrokerSettings
from maxq.errors import MaxQError, StoreRefusedError
from maxq.lazy_dataclass import dataclass
from maxq.protocol.body.route import MASTER_ID
from maxq.protocol.body.topic_config import TopicConfig
from maxq.protocol.header.pull import PULL_FLAG_SUBSCRIPTION, PullMessageRequestHeader
from maxq.protocol.message.message import MessageExt, decode_record
from maxq.protocol.message.pop_extra_info import normal_topic
from maxq.remoting.server import RemotingServer
from maxq.runtime.blocking import run_blocking
from maxq.runtime.interfaces import Clock, Disk, Rng
from maxq.store.message_store import MessageStore

_SAFETY_NET_SECONDS: Final = 5.0
_READER: Final = "TOOLS_CONSUMER"
KEY_VALUE_FOLDER: Final = "kvStore"
_RECORD_FILES: Final = (".sst", ".log")


@dataclass(frozen=True, slots=True, kw_only=True)
class PopParts:
    """What it is made of."""

    settings: BrokerSettings
    disk: Disk
    clock: Clock
    rng: Rng
    store: MessageStore
    acknowledgement: Acknowledgement
    topics: TopicConfigManager
    groups: SubscriptionGroupManager
    offsets: ConsumerOffsetManager
    consumers: ConsumerManager
    filters: ConsumerFilterManager
    hooks: PutHooks
    stats: BrokerStatsManager
    fast_failure: FastFailure
    member: GroupMember
    own: BrokerAddress
    timer: TimerService
    others: OtherBrokers
    quotas: Quotas
    guard: Guard | None
    on_failure: Callable[[str, BaseException], None]


class PopMessages:
    """A MessageKind.

    Attributes:
        acks: the batch path of acks.
        buffer: check points in memory.
        revive: the reader of the revive topic.
        polling: pops that wait.
        notified: notifications that wait.
        service: what goes on by itself.
        counts: what it did, for the metrics.
    """

    def __init__(self, parts: PopParts) -> None:
        self._parts = parts
        settings, clock, store = parts.settings, parts.clock, parts.store
        own = parts.own
        self.polling = self._polling()
        self.notified = self._polling()
        self._journal = PopJournal(store, parts.offsets, clock, may_write=lambda: own.broker_id == MASTER_ID)
        self.buffer = CheckPointBuffer(parts.offsets, self._journal, clock)
        self.buffer.on_ended = self._ended
        self._orders = OrderService(
            ConsumerOrderInfoManager(
                parts.disk,
                PurePath(settings.store.store_path_root_dir) / "config" / ORDER_FILE,
                clock=clock,
                is_there=self._queues_for,
            ),
            settings=settings,
            offsets=parts.offsets,
            journal=self._journal,
            clock=clock,
            wake=self._wake,
        )
        self.counts = PopCounts()
        self._records = ReviveRecords(settings, own, parts.hooks, clock, parts.member.escape.put_message, self.counts)
        self._build_services()
        self._build_processors()
        self.acks = AckPath(self.buffer, parts.acknowledgement, parts.stats, own, parts.guard)
        self._tasks = PeriodicTasks()
        parts.topics.add_change_listener(self._topics_changed)
        self._sends_nothing = False  # while it gives way
        parts.timer.rests = self._leaves_deliveries
        parts.member.escape.rests = lambda: (
            not parts.member.services.is_running or (self._sends_nothing and self._leaves_deliveries())
        )
        parts.member.escape.keeps = self.revive.keep_ack
        parts.member.services.register("pop consumption", self.service)

    def _polling(self) -> PopLongPollingService:
        parts = self._parts
        return PopLongPollingService(
            parts.store, settings=parts.settings, clock=parts.clock, queue_count=self._queue_count, guard=parts.guard
        )

    def _build_services(self) -> None:
        parts, settings = self._parts, self._parts.settings
        reviver = Reviver(
            ReviverParts(
                settings=settings,
                own=parts.own,
                store=parts.store,
                topics=parts.topics,
                groups=parts.groups,
                offsets=parts.offsets,
                stats=parts.stats,
                put=parts.member.escape.put_message,
                read_elsewhere=self._read_elsewhere,
                counts=self.counts,
                wake=lambda topic, group: self._wake(topic, group, -1),
            )
        )
        self.revive = PopReviveService(
            settings=settings,
            store=parts.store,
            offsets=parts.offsets,
            records=self._records,
            reviver=reviver,
            clock=parts.clock,
            broker_name=lambda: parts.own.broker_name,
            journal=self._journal,
            counts=self.counts,
            delivered_until=self._delivered_until,
            keep=self.buffer.keep_for_master,
            doubt=parts.member.acting.doubt,
        )
        self.service = PopService(
            PopServiceParts(
                settings=settings,
                store=parts.store,
                journal=self._journal,
                buffer=self.buffer,
                orders=self._orders,
                records=self._records,
                reviver=reviver,
                revive=self.revive,
                clock=parts.clock,
                counts=self.counts,
                is_there=self._is_there,
                find_group=parts.groups.find_subscription_group_config,
                speaks=lambda: parts.member.services.is_running,
                doubt=parts.member.acting.doubt,
                stands_in=lambda: parts.member.acting.is_acting_master,
                begin_again=parts.member.services.begin_again,
                persist_offsets=self._persist_offsets,
                handed_back=parts.member.metadata.take_pops,
                on_failure=parts.on_failure,
            )
        )

    def _build_processors(self) -> None:
        parts, settings = self._parts, self._parts.settings
        checks = PopChecks(settings, parts.own, parts.topics, parts.groups, parts.store)
        subscriptions = PullSubscriptions(settings, parts.consumers, parts.groups, parts.filters, parts.topics)
        filters = PopFilters(settings, subscriptions)
        reader = PopReader(
            settings=settings,
            store=parts.store,
            topics=parts.topics,
            groups=parts.groups,
            offsets=parts.offsets,
            buffer=self.buffer,
            orders=self._orders,
            stats=parts.stats,
            clock=parts.clock,
            rng=parts.rng,
            broker_name=lambda: parts.own.broker_name,
        )
        self._pops = PopMessageProcessor(
            settings=settings,
            own=parts.own,
            checks=checks,
            filters=filters,
            reader=reader,
            polling=self.polling,
            stats=parts.stats,
            fast_failure=parts.fast_failure,
            clock=parts.clock,
            service=self.service,
            quotas=parts.quotas,
            silent=parts.consumers.silent,
            acknowledgement=parts.acknowledgement,
            guard=parts.guard,
        )
        self._acks = AckMessageProcessor(
            own=parts.own,
            store=parts.store,
            checks=checks,
            buffer=self.buffer,
            orders=self._orders,
            records=self._records,
            acknowledgement=parts.acknowledgement,
            stats=parts.stats,
            clock=parts.clock,
            ready=self.service.ready,
        )
        self._notifications = NotificationProcessor(
            settings=settings,
            store=parts.store,
            topics=parts.topics,
            groups=parts.groups,
            checks=checks,
            filters=filters,
            reader=reader,
            orders=self._orders,
            notified=self.notified,
            popping=self.polling,
            stats=parts.stats,
            clock=parts.clock,
            rng=parts.rng,
        )

    # --- life --------------------------------------------------------------------------------------------------------

    def register(self, server: RemotingServer) -> None:
        """The codes of pop, acks and notifications."""
        hand_back = HandBackProcessor(self.service.hand_back, self._rest)
        for processor in (self._pops, self._acks, self._notifications, hand_back):
            processor.register(server)

    async def load(self) -> None:
        """Read the order infos; the journal is read by who speaks for the group. StoreRefusedError if a Java broker
        left check points where they cannot be read."""
        await run_blocking(self._refuse_key_value_store)
        await run_blocking(self._orders.table.load)

    def _refuse_key_value_store(self) -> None:
        folder = PurePath(self._parts.settings.store.store_path_root_dir) / KEY_VALUE_FOLDER
        files = self._parts.disk.list(folder)
        if any(file.size and PurePath(file.name).suffix in _RECORD_FILES for file in files):
            raise StoreRefusedError(
                f"{folder} has check points that a broker with popConsumerKVServiceEnable left, in RocksDB's format, "
                "which is not read here: messages that were given out and not acknowledged would never come again. On "
                "the Java broker set popConsumerKVServiceEnable=false, run mqadmin exportPopRecord and stop it; then "
                "remove the folder"
            )

    def start(self) -> None:
        """The safety net of long polling."""
        self._tasks.every("waiting pops", _SAFETY_NET_SECONDS, self._look_again)

    async def shutdown(self) -> None:
        """See MessageKind: what is open is handed over to the revive topic."""
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
        """Who waits because too many messages of a queue are open may get more."""
        if self._parts.settings.broker.enable_pop_message_threshold:
            topic, group, queue_id = queue
            self._wake(normal_topic(topic, group), group, queue_id)

    def _leaves_deliveries(self) -> bool:
        """To another broker of the group, which is there, or may be."""
        return self.service.gives_way() is not None or self._parts.member.acting.doubt() is not None

    async def _rest(self) -> None:
        """A slave whose master comes back sends nothing to other groups, for the master would deliver it once more. The
        slot of the timer that is open is delivered before."""
        parts = self._parts
        if parts.own.broker_id != MASTER_ID and parts.settings.broker.enable_remote_escape:
            self._sends_nothing = False
            await parts.timer.settled()
            self._sends_nothing = True
            await parts.member.escape.settled()
            await parts.timer.write_checkpoint()

    async def _persist_offsets(self) -> None:
        self._parts.offsets.request_persist()
        await self._parts.offsets.persisted()

    def _look_again(self) -> None:
        self.polling.watch_again()
        self.notified.watch_again()

    def _delivered_until(self) -> int:
        """See PopReviveService. Until the timer delivers, acks may be in it."""
        parts = self._parts
        if not parts.settings.store.timer_wheel_enable:
            return parts.clock.wall_ms()
        return parts.timer.timer.read_time_ms if parts.timer.is_dequeuing else 0

    def _queue_count(self, topic: str) -> int:
        config = self._parts.topics.select_topic_config(topic)
        return 0 if config is None else config.read_queue_nums

    def _queues_for(self, topic: str, group: str) -> int:
        return self._queue_count(topic) if group in self._parts.groups.subscription_group_table else 0

    def _is_there(self, topic: str, group: str, queue_id: int) -> bool:
        """A topic that is in the log is there, whether or not the table has it: see Reviver."""
        parts = self._parts
        known = parts.topics.select_topic_config(topic) is not None or parts.store.max_offset(topic, queue_id) > 0
        return known and group in parts.groups.subscription_group_table

    def _topics_changed(self, changed: list[TopicConfig], deleted: list[str]) -> None:
        """A topic that comes again under its name begins anew."""
        gone = set(deleted)
        if gone:
            self.buffer.forget([queue for queue in self.buffer.queues() if queue[0] in gone])

    async def _read_elsewhere(self, broker_name: str, topic: str, queue_id: int, offset: int) -> MessageExt | None:
        """One message of another broker: what a slave gave out while it acted as master was noted here."""
        header = PullMessageRequestHeader(
            _READER, topic, queue_id, offset, 1, PULL_FLAG_SUBSCRIPTION, 0, 0, 0, subscription="*",
            expression_type="TAG",
        )  # fmt: skip
        answer = await self._parts.others.ask(broker_name, topic, RequestCode.PULL_MESSAGE, header.encode())
        if answer.code == ResponseCode.SUCCESS:
            return decode_record(answer.body_bytes)
        if answer.code == ResponseCode.PULL_NOT_FOUND:
            raise MaxQError(f"{broker_name} does not have it yet")
        return None
