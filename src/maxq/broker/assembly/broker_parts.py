"""BrokerParts: what a broker consists of, put together and not started: what answers requests, on BrokerBase.

Source:
    broker/BrokerController.java (registerProcessor).
"""

from maxq.broker.access import register_access
from maxq.broker.acting.assembly import GroupMember, GroupParts
from maxq.broker.assembly.broker_base import BrokerBase
from maxq.broker.assembly.operations import OperationParts, Operations
from maxq.broker.dledger.send_relay import SendRelay
from maxq.broker.fast_path.batch_path import BatchPath
from maxq.broker.fast_path.pull_path import PullPath
from maxq.broker.fast_path.send_back_path import SendBackPath
from maxq.broker.fast_path.send_path import SendPath
from maxq.broker.identity.authority import Authority
from maxq.broker.identity.role import MASTER_ID, SLAVE
from maxq.broker.metrics.broker_metrics import MetricsParts
from maxq.broker.pop.pop_messages import PopMessages, PopParts
from maxq.broker.processors.admin.purge_topic import PurgeTopicProcessor
from maxq.broker.processors.assembly import AdminParts, register_admin
from maxq.broker.processors.pull.pull_message import PullMessageProcessor
from maxq.broker.processors.pull.pull_subscription import PullSubscriptions
from maxq.broker.processors.pull.query_message import QueryMessageProcessor
from maxq.broker.processors.send.reply_message import ReplyMessageProcessor
from maxq.broker.processors.send.retry_topics import RetryTopics
from maxq.broker.processors.send.send_back import SendBackParts, SendBackProcessor
from maxq.broker.processors.send.send_message import SendMessageProcessor
from maxq.broker.runtime_info import RuntimeInfo
from maxq.broker.schedule_message.delayed_messages import DelayedMessages, DelayedParts
from maxq.broker.staged.staged_messages import StagedMessages, StagedParts
from maxq.broker.static_topic.moved_queue_hook import MovedQueueHook
from maxq.broker.static_topic.other_brokers import OtherBrokers
from maxq.broker.static_topic.static_topics import StaticTopics
from maxq.broker.static_topic.topic_queue_mapping_clean_service import TopicQueueMappingCleanService
from maxq.broker.timer.timed_messages import TimedMessages, TimedParts
from maxq.broker.transaction.transactions import Transactions, TransactionSurroundings
from maxq.protocol.message.message import UniqIdGenerator


class BrokerParts(BrokerBase):
    """BrokerBase and, as soon as `build_processors` has been called, processors and kinds of messages.

    Attributes:
        send_relay: None until then, and on a broker that is no member of a DLedger group.
    """

    send_relay: SendRelay | None = None

    def build_processors(self) -> None:
        """Once the port of the address is known."""
        self._build_group_member()
        self._build_message_processors()
        register_admin(self.server, self._admin_parts())
        register_access(self.server, self.access, self.address)
        sends, pulls = self._send_path(), self._pull_path()
        self._build_message_kinds()
        self._build_static_topics(pulls)
        backs = self._send_back_parts()
        SendBackProcessor(backs).register(self.server)
        self._build_operations(sends, pulls)
        self._build_send_relay()
        self.authority = self.server.authority = Authority(
            self.address,
            speaks=lambda: self.member.services.is_running,
            doubt=self.member.acting.doubt if self.dledger is None else self.dledger.doubt,
            gives_way=lambda: self.popping.service.gives_way(),
            keeps=lambda request: self.send_relay is not None and self.send_relay.keeps(request),
            copied=self._tables_copied,
        )
        self.server.batch_path = batches = BatchPath(
            self.authority,
            sends=sends,
            pulls=pulls,
            ends=self.transactions.ends,
            backs=SendBackPath(backs),
            acks=self.popping.acks,
        )
        self.server.batched_reads.path = batches.take
        self.server.batched_reads.may_rest = self.store.flusher.joins_next

    async def _tables_copied(self) -> bool:
        """Have those the tables as they are now that a send waits for? Of a DLedger group a majority, in the log; of a
        SYNC_MASTER the slaves that ask, or are linked and will ask in a moment, topics and groups."""
        if self.table_records is not None:
            return await self.table_records.are_safe()
        store = self._settings.store
        return store.broker_role != "SYNC_MASTER" or await self.table_changes.copied(
            lambda asking: max(asking, self.ha_service.table_copies), store.slave_timeout
        )

    def _build_message_processors(self) -> None:
        """Sending, pulling, querying, replying."""
        settings, clock, store = self._settings, self._clock, self.store
        unique_ids = UniqIdGenerator(
            self._rng.below(1 << 16), self.address.resolved_ip or self.address.ip, clock, self._rng
        )
        self.retries = RetryTopics(self.topics, self.groups, self.locks, self.stats)
        self.send_processor = SendMessageProcessor(
            settings=settings,
            store=store,
            acknowledgement=self.acknowledgement,
            topics=self.topics,
            stats=self.stats,
            fast_failure=self.fast_failure,
            broker=self.address,
            clock=clock,
            rng=self._rng,
            unique_id=unique_ids.next,
            hooks=self.put_hooks,
            retries=self.retries,
            quotas=self.quotas,
        )
        self.pull_processor = PullMessageProcessor(
            settings=settings,
            store=store,
            topics=self.topics,
            groups=self.groups,
            offsets=self.offsets,
            subscriptions=PullSubscriptions(settings, self.consumers, self.groups, self.filters, self.topics),
            hold_service=self.hold_service,
            stats=self.stats,
            fast_failure=self.fast_failure,
            clock=clock,
            broker=self.address,
            quotas=self.quotas,
            guard=self.access.guard,
        )
        self.send_processor.register(self.server)
        self.pull_processor.register(self.server)
        acting = self.member.acting
        self.pull_processor.rules.set_group(
            is_acting_master=lambda: acting.is_acting_master, min_broker_id=lambda: acting.min_broker_id
        )
        QueryMessageProcessor(settings=settings, store=store, guard=self.access.guard).register(self.server)
        ReplyMessageProcessor(
            settings=settings,
            put_message=self.member.escape.put_message,
            topics=self.topics,
            producers=self.producers,
            fast_failure=self.fast_failure,
            broker=self.address,
            clock=clock,
            quotas=self.quotas,
            guard=self.access.guard,
        ).register(self.server)

    def _send_path(self) -> SendPath:
        return SendPath(
            self.store,
            self.acknowledgement,
            self.fast_failure,
            settings=self._settings,
            clock=self._clock,
            store_host=self.address.store_host,
            half_stored=self.put_hooks.half_stored,
            stages=self.stages,
            quotas=self.quotas,
            guard=self.access.guard,
        )

    def _pull_path(self) -> PullPath:
        return PullPath(
            settings=self._settings,
            store=self.store,
            topics=self.topics,
            groups=self.groups,
            offsets=self.offsets,
            consumers=self.consumers,
            filters=self.filters,
            stats=self.stats,
            clock=self._clock,
            rules=self.pull_processor.rules,
            quotas=self.quotas,
            hold_service=self.hold_service,
            replay=self.pull_processor.replay,
            guard=self.access.guard,
        )

    def _build_static_topics(self, pulls: PullPath) -> None:
        settings = self._settings
        topic_route = self.outer_api.topic_route
        others = OtherBrokers(self.client, topic_route, lambda: settings.broker.forward_timeout)
        self.static_topics = StaticTopics(
            self.mappings,
            others,
            registration=self.registration,
            tails=self.topic_tails,
            pulls=pulls,
            hold_service=self.hold_service,
            cleaner=TopicQueueMappingCleanService(
                self.mappings, others, topic_route, config=lambda: settings.store, clock=self._clock
            ),
            guard=self.access.guard,
            is_slave=lambda: settings.store.broker_role == SLAVE,
        )
        self.kinds.add(self.static_topics, self.server)
        self.pull_processor.set_learn(self.static_topics.learn)

    def _build_message_kinds(self) -> None:
        """Their put hooks run in this order, which is that of HookUtils.handleScheduleMessage: half messages, timers,
        delay levels, and then those whose queue has moved."""
        self.transactions = self._transactions()
        self.kinds.add(self.transactions, self.server)
        self.timed = self._timed()
        self.kinds.add(self.timed, self.server)
        self.delayed = self._delayed()
        self.kinds.add(self.delayed, self.server)
        self.put_hooks.add(MovedQueueHook(self.mappings, self.delayed.hook.deliver_soon))
        self.staged = self._staged()
        self.kinds.add(self.staged, self.server)
        self.popping = self._popping()
        self.kinds.add(self.popping, self.server)
        for waiting in (self.hold_service, self.popping.polling, self.popping.notified):
            self.store.add_arrival_listener(waiting.messages_arrived)

    def _transactions(self) -> Transactions:
        return Transactions(
            TransactionSurroundings(
                settings=self._settings,
                disk=self._disk,
                clock=self._clock,
                store=self.store,
                acknowledgement=self.acknowledgement,
                topics=self.topics,
                offsets=self.offsets,
                producers=self.producers,
                hooks=self.put_hooks,
                stats=self.stats,
                services=self.member.services,
                broker=self.address,
                escape=self.member.escape.put_message,
                guard=self.access.guard,
                on_failure=self._on_failure,
            )
        )

    def _timed(self) -> TimedMessages:
        return TimedMessages(
            TimedParts(
                settings=self._settings,
                disk=self._disk,
                clock=self._clock,
                rng=self._rng,
                store=self.store,
                files=self.carried_files,
                hooks=self.put_hooks,
                acknowledgement=self.acknowledgement,
                topics=self.topics,
                member=self.member,
                own=self.address,
                stats=self.stats,
                on_failure=self._on_failure,
            )
        )

    def _delayed(self) -> DelayedMessages:
        return DelayedMessages(
            DelayedParts(
                settings=self._settings,
                clock=self._clock,
                store=self.store,
                files=self.carried_files,
                hooks=self.put_hooks,
                member=self.member,
                own=self.address,
                stats=self.stats,
                on_failure=self._on_failure,
            )
        )

    def _staged(self) -> StagedMessages:
        return StagedMessages(
            StagedParts(
                settings=self._settings,
                clock=self._clock,
                store=self.store,
                acknowledgement=self.acknowledgement,
                topics=self.topics,
                mappings=self.mappings,
                hooks=self.put_hooks,
                stats=self.stats,
                services=self.member.services,
                own=self.address,
                guard=self.access.guard,
            )
        )

    def _popping(self) -> PopMessages:
        return PopMessages(
            PopParts(
                settings=self._settings,
                disk=self._disk,
                clock=self._clock,
                rng=self._rng,
                store=self.store,
                acknowledgement=self.acknowledgement,
                topics=self.topics,
                groups=self.groups,
                offsets=self.offsets,
                consumers=self.consumers,
                filters=self.filters,
                hooks=self.put_hooks,
                stats=self.stats,
                fast_failure=self.fast_failure,
                member=self.member,
                own=self.address,
                timer=self.timed.service,
                others=OtherBrokers(
                    self.client, self.outer_api.topic_route, lambda: self._settings.broker.forward_timeout
                ),
                quotas=self.quotas,
                guard=self.access.guard,
                on_failure=self._on_failure,
            )
        )

    def _send_back_parts(self) -> SendBackParts:
        return SendBackParts(
            settings=self._settings,
            own=self.address,
            store=self.store,
            acknowledgement=self.acknowledgement,
            topics=self.topics,
            retries=self.retries,
            levels=self.delayed.levels,
            hooks=self.put_hooks,
            rng=self._rng,
            on_delayed=self.delayed.service.wake,
            guard=self.access.guard,
        )

    def _build_operations(self, sends: SendPath, pulls: PullPath) -> None:
        self.operations = Operations(
            OperationParts(
                registry=self.metrics,
                metrics=MetricsParts(
                    settings=self._settings,
                    disk=self._disk,
                    clock=self._clock,
                    store=self.store,
                    topics=self.topics,
                    groups=self.groups,
                    offsets=self.offsets,
                    consumers=self.consumers,
                    producers=self.producers,
                    stats=self.stats,
                    fast_failure=self.fast_failure,
                    hold_service=self.hold_service,
                    transactions=self.transactions.metrics,
                    timer=self.timed.service,
                    popping=self.popping,
                    connections=lambda: len(self.server.connections),
                    ha_runtime_info=self.ha_service.runtime_info,
                ),
                fast_failure=self.fast_failure,
                stages=self.stages,
                quotas=self.quotas,
                purges=PurgeTopicProcessor(
                    settings=self._settings, topics=self.topics, offsets=self.offsets, store=self.store
                ),
            )
        )
        self.kinds.add(self.operations, self.server)
        self.server.add_listener(self.operations)
        self.pull_processor.on_held_answer = self.operations.held_answered
        sends.rpc_latency = self.operations.metrics.rpc_latency
        pulls.tell(self.operations.metrics.rpc_latency)

    def _build_send_relay(self) -> None:
        """It stands before everything else that sends meet, so it is built when that is registered."""
        if (dledger := self.dledger) is None:
            return
        self.send_relay = relay = SendRelay(
            leads=lambda: self.address.broker_id == MASTER_ID and dledger.doubt() is None,
            is_asked=dledger.may_be_taken_for_leader,
            own=self.address,
            client=self.client,
            topic_route=self.outer_api.topic_route,
            clock=self._clock,
            guard=self.access.guard,
            hindrance=self.store.flags.why,
        )
        relay.register(self.server)
        dledger.set_leader_listener(relay.leader_changed)
        self.server.answers_to_the_end = relay.keeps

    def _build_group_member(self) -> None:
        self.member = GroupMember(
            GroupParts(
                settings=self._settings,
                own=self.address,
                clock=self._clock,
                store=self.store,
                client=self.client,
                outer_api=self.outer_api,
                registration=self.registration,
                topics=self.topics,
                mappings=self.mappings,
                offsets=self.offsets,
                locks=self.locks,
                carried_files=self.carried_files,
                hold_service=self.hold_service,
                sync=self.role,
                ha=self.ha_service,
            )
        )
        self.member.processor.register(self.server)
        self.ha_service.alive_replicas = lambda: self.member.acting.alive_replicas

    def _admin_parts(self) -> AdminParts:
        return AdminParts(
            settings=self._settings,
            disk=self._disk,
            clock=self._clock,
            broker_address=lambda: self.address.address,
            store=self.store,
            table_changes=self.table_changes,
            topics=self.topics,
            mappings=self.mappings,
            groups=self.groups,
            offsets=self.offsets,
            consumers=self.consumers,
            filters=self.filters,
            producers=self.producers,
            locks=self.locks,
            request_modes=self.request_modes,
            carried_files=self.carried_files,
            stats=self.stats,
            guard=self.access.guard,
            acknowledgement=self.acknowledgement,
            runtime_info=RuntimeInfo(
                settings=self._settings,
                disk=self._disk,
                clock=self._clock,
                store=self.store,
                stats=self.stats,
                broker_stats=self.broker_stats,
                fast_failure=self.fast_failure,
                hold_service=self.hold_service,
                ha_service=self.ha_service,
                log_care=self.log_care,
                timer_info=lambda: {**self.timed.runtime_info(), **self.delayed.service.runtime_info()},
                access_info=self.access.runtime_info,
                subscribing_differently=self.consumers.subscribing_differently,
                other_holder=lambda: self.registration.other_holder,
            ).collect,
            ha_runtime_info=self.ha_service.runtime_info,
            topic_route=self.outer_api.topic_route,
            on_permission_changed=self.registration.register_all,
        )
