"""BrokerController: one broker. How it is put together, in the order of its constructor; how it starts, changes its
role and stops.

Parts get what they use; none of them knows the controller. `_connect` connects parts that need each other, and adds
listeners in the order in which they are called.

Order of a start: configuration tables, store (recovery), features, listening, schedules, registration with the name
servers; nobody is answered before all is loaded. Order of a stop: unregister, answer what is unfinished, stop
listening, features, store, configuration tables.

Source:
    broker/BrokerController.java.
"""

import asyncio
import logging
from collections.abc import Callable, Collection
from pathlib import PurePath

from maxq.access.access_control import AccessControl
from maxq.broker.admission.access import broker_access, broker_client, register_access
from maxq.broker.admission.fast_failure import FastFailure
from maxq.broker.admission.quotas import Quotas
from maxq.broker.assembly.features import Features
from maxq.broker.assembly.grpc_door import GrpcDoor
from maxq.broker.assembly.operations import Operations
from maxq.broker.assembly.schedule import BrokerSchedule
from maxq.broker.bundles import Clients, Environment, Limits, Messages, Peers, Tables
from maxq.broker.dledger.dledger_broker import acknowledgement_of, dledger_broker_of
from maxq.broker.dledger.send_relay import SendRelay
from maxq.broker.dledger.table_records import TableRecords
from maxq.broker.failover.assembly import Failover
from maxq.broker.fast_path.batch_path import BatchPath
from maxq.broker.fast_path.pull_path import PullPath
from maxq.broker.fast_path.pull_plans import PullPlans
from maxq.broker.fast_path.send_back_path import SendBackPath
from maxq.broker.fast_path.send_path import SendPath
from maxq.broker.identity.authority import Authority
from maxq.broker.identity.broker_identity import BrokerAddress, resolve
from maxq.broker.identity.deleted_names import DeletedNames
from maxq.broker.identity.outer_api import BrokerOuterApi
from maxq.broker.identity.registration import BrokerRegistration
from maxq.broker.identity.role import SLAVE, check_role
from maxq.broker.identity.store_owner import StoreOwner
from maxq.broker.longpolling.pull_request_hold_service import HeldPullsOfClosed, PullRequestHoldService
from maxq.broker.metrics.broker_metrics import BrokerMetrics, register_own
from maxq.broker.metrics.labels import broker_registry
from maxq.broker.metrics.metrics_export import MetricsExport
from maxq.broker.metrics.rpc_latency import rpc_latency_of
from maxq.broker.metrics.status_pages import StatusPages
from maxq.broker.pop.pop_messages import PopMessages
from maxq.broker.processors.admin.admin_config import AdminConfigProcessor
from maxq.broker.processors.admin.purge_topic import PurgeTopicProcessor
from maxq.broker.processors.admin.table_changes import TableChangesProcessor
from maxq.broker.processors.assembly import admin_processors
from maxq.broker.processors.clients.message_request_mode_manager import FILE_NAME as REQUEST_MODE_FILE
from maxq.broker.processors.clients.message_request_mode_manager import MessageRequestModeManager
from maxq.broker.processors.pull.pull_message import PullMessageProcessor
from maxq.broker.processors.pull.pull_read_rules import ReadRules
from maxq.broker.processors.pull.pull_subscription import PullSubscriptions
from maxq.broker.processors.pull.query_message import QueryMessageProcessor
from maxq.broker.processors.send.put_hooks import PutHooks
from maxq.broker.processors.send.reply_message import ReplyMessageProcessor
from maxq.broker.processors.send.retry_topics import RetryTopics
from maxq.broker.processors.send.send_back import SendBackProcessor
from maxq.broker.processors.send.send_message import SendMessageProcessor
from maxq.broker.processors.support import Registers
from maxq.broker.schedule_message.delayed_messages import DelayedMessages
from maxq.broker.slave.master_api import MasterApi
from maxq.broker.slave.master_loss_listener import MasterLossListener
from maxq.broker.slave.replicated_config_files import ReplicatedConfigFiles
from maxq.broker.slave.role_service import RoleService
from maxq.broker.slave.slave_synchronize import SlaveSynchronize, SlaveTables
from maxq.broker.stats.broker_stats import BrokerStats
from maxq.broker.stats.broker_stats_manager import BrokerStatsManager
from maxq.broker.stats.runtime_info import RuntimeInfo
from maxq.broker.stats.stage_times import StageTimes
from maxq.broker.stats.topic_puts import TopicPuts
from maxq.broker.tables.attributes import BATCH_CQ, QUEUE_TYPE
from maxq.broker.tables.client.consumer_ids_notifier import ConsumerIdsNotifier
from maxq.broker.tables.client.consumer_manager import ConsumerManager
from maxq.broker.tables.client.housekeeping import ClientHousekeepingService
from maxq.broker.tables.client.producer_manager import ProducerManager
from maxq.broker.tables.client.rebalance_lock_manager import RebalanceLockManager
from maxq.broker.tables.filter.consumer_filter_manager import FILE_NAME as FILTER_FILE
from maxq.broker.tables.filter.consumer_filter_manager import ConsumerFilterManager
from maxq.broker.tables.filter.filter_expressions import load_sql92
from maxq.broker.tables.offset.lmq_consumer_offset_manager import create_consumer_offset_manager
from maxq.broker.tables.persistent_manager import PersistentManager
from maxq.broker.tables.static_topic.moved_queue_hook import MovedQueueHook
from maxq.broker.tables.static_topic.other_brokers import OtherBrokers
from maxq.broker.tables.static_topic.static_topics import StaticTopics
from maxq.broker.tables.static_topic.topic_queue_mapping_clean_service import TopicQueueMappingCleanService
from maxq.broker.tables.static_topic.topic_queue_mapping_manager import FILE_NAME as MAPPING_FILE
from maxq.broker.tables.static_topic.topic_queue_mapping_manager import TopicQueueMappingManager
from maxq.broker.tables.subscription.subscription_group_manager import FILE_NAME as GROUP_FILE
from maxq.broker.tables.subscription.subscription_group_manager import SubscriptionGroupManager
from maxq.broker.tables.topic.compaction_topics import CompactionTopics
from maxq.broker.tables.topic.topic_config_manager import FILE_NAME as TOPIC_FILE
from maxq.broker.tables.topic.topic_config_manager import TopicConfigManager
from maxq.broker.tables.topic.topic_write_states import TopicWriteStates
from maxq.broker.timer.timed_messages import TimedMessages
from maxq.broker.transaction.half_message import turn_away
from maxq.broker.transaction.transactions import Transactions
from maxq.broker.two_phase.two_phase_batches import TwoPhaseBatches
from maxq.codes import RequestCode
from maxq.config.host import listening
from maxq.config.settings import BrokerSettings
from maxq.errors import BrokerEndedError, MaxQError, StoreFailedError
from maxq.remoting.server import RemotingServer
from maxq.remoting.tls.contexts import ServerTls
from maxq.replication.ha.full_copy import FullCopy
from maxq.replication.ha.ha_service import HAService
from maxq.replication.ha.log_maintenance import LogMaintenance
from maxq.runtime.background import FAILURES
from maxq.runtime.blocking import TABLES, end_threads, run_blocking
from maxq.runtime.holds import CURRENT
from maxq.runtime.interfaces import Clock, Disk, Rng
from maxq.store.context.store_context import StoreIdentity
from maxq.store.message_store import MessageStore

log = logging.getLogger(__name__)

_FIRST_REGISTRATION_SECONDS = 6.0  # a name server that does not answer must not keep the broker from serving
_VIP_DISTANCE = 2
_CHANNEL_SCAN_SECONDS = 10.0
#: Requests that are refused on the VIP port.
_VIP_EXCLUDED = (
    RequestCode.PULL_MESSAGE,
    RequestCode.LITE_PULL_MESSAGE,
    RequestCode.PEEK_MESSAGE,
    RequestCode.POP_MESSAGE,
    RequestCode.NOTIFICATION,
    RequestCode.POLLING_INFO,
)


class BrokerController:
    """One broker.

    Attributes:
        env: where its parts run.
        address: name and address of this broker; its port is 0 until it listens.
        send_relay: None on a broker that is not a member of a DLedger group, as are `dledger` and `table_records`.
    """

    # ---- putting together ---------------------------------------------------------------------------------------

    def __init__(
        self,
        settings: BrokerSettings,
        *,
        disk: Disk,
        clock: Clock,
        rng: Rng,
        access: AccessControl | None = None,
    ) -> None:
        """Make all parts; nothing is opened yet. `settings` have an address and a store folder (config.host.broker_on).
        `access` is shared with another server of this process.

        Raises:
            ConfigError: brokerRole and brokerId do not fit.
        """
        check_role(settings)
        self._settings = settings
        self._running = False
        self._failure_listener: Callable[[str, BaseException], None] = self._stop_after_failure
        self._stopping: asyncio.Task[None] | None = None
        self._notes: set[asyncio.Task[None]] = set()  # tasks that record in a file what was found out about the log
        self._closed: asyncio.Event | None = None  # made by `start`; set when everything is closed
        self._why_not: MaxQError | None = None  # the reason why a start that is under way will fail
        self._registering: asyncio.Task[None] | None = None
        self._make_environment(disk, clock, rng, access)
        self._make_tables()
        self._make_store()
        self._make_network()
        self._make_limits()
        self._make_replication()
        self._make_processors()
        self._make_features()
        self._make_fast_path()
        self._make_operations()
        self._connect()
        self._register()

    def _make_environment(self, disk: Disk, clock: Clock, rng: Rng, access: AccessControl | None) -> None:
        settings, broker = self._settings, self._settings.broker
        self.access = access or broker_access(settings, disk=disk, clock=clock)
        settings.server = listening(settings.server, self.access.guard is not None)
        self.address = BrokerAddress(
            broker.broker_cluster_name,
            broker.broker_name,
            broker.broker_id,
            broker.broker_ip1 or "127.0.0.1",
            ha_ip=broker.broker_ip2,
            ha_port=settings.store.ha_listen_port,
        )
        self.metrics = broker_registry(broker)
        self.stats = BrokerStatsManager(
            self.address.cluster,
            clock=clock,
            is_system_topic=lambda topic: self.topics.is_system_topic(topic),
            detail=lambda: settings.broker.enable_detail_stat,
        )
        self.env = Environment(
            settings=settings,
            disk=disk,
            clock=clock,
            rng=rng,
            own=self.address,
            stats=self.stats,
            rpc_latency=rpc_latency_of(broker, self.metrics),
            guard=self.access.guard,
            on_failure=self.service_failed,
        )

    def _make_tables(self) -> None:
        settings, disk, clock = self._settings, self.env.disk, self.env.clock
        folder = PurePath(settings.store.store_path_root_dir) / "config"
        self.topics = TopicConfigManager(disk, folder / TOPIC_FILE, settings=settings, clock=clock)
        self.groups = SubscriptionGroupManager(disk, folder / GROUP_FILE, settings=settings, clock=clock)
        self.offsets = create_consumer_offset_manager(disk, folder, settings=settings, clock=clock)
        self.mappings = TopicQueueMappingManager(
            disk, folder / MAPPING_FILE, broker_name=self.address.broker_name, clock=clock
        )
        self.request_modes = MessageRequestModeManager(disk, folder / REQUEST_MODE_FILE)
        self.carried_files = ReplicatedConfigFiles(disk, folder)
        self._tables = Tables(
            topics=self.topics,
            mappings=self.mappings,
            groups=self.groups,
            offsets=self.offsets,
            request_modes=self.request_modes,
            files=self.carried_files,
        )
        self.consumers = ConsumerManager(settings=settings, clock=clock)
        self.producers = ProducerManager(settings=settings, clock=clock)
        self.locks = RebalanceLockManager(clock=clock)
        self.filters = ConsumerFilterManager(
            disk, folder / FILTER_FILE, settings=settings, clock=clock,
            max_physical_offset=lambda: self.store.max_physical_offset,
        )  # fmt: skip
        self._clients = Clients(
            consumers=self.consumers,
            producers=self.producers,
            filters=self.filters,
            subscriptions=PullSubscriptions(settings, self.groups, self.consumers, self.filters),
            locks=self.locks,
        )
        self.table_changes = TableChangesProcessor(topics=self.topics, groups=self.groups, clock=clock)
        self.deleted_names = DeletedNames(self.env, self._tables, self._clients)

    def _make_store(self) -> None:
        settings, address = self._settings, self.address
        self.store = MessageStore(
            settings.store,
            disk=self.env.disk,
            clock=self.env.clock,
            broker=StoreIdentity(
                address.cluster, address.broker_name, address.broker_id, region=settings.broker.region_id
            ),
        )
        self.store_owner = StoreOwner(self.env.disk, settings.store, address)
        self.put_hooks = PutHooks()
        self.acknowledgement = acknowledgement_of(settings, self.store)
        self._messages = Messages(store=self.store, hooks=self.put_hooks, acknowledgement=self.acknowledgement)
        self.hold_service = PullRequestHoldService(
            self.store,
            clock=self.env.clock,
            long_polling=lambda: settings.broker.long_polling_enable,
            guard=self.env.guard,
        )
        self.topic_puts = TopicPuts(lambda: self.store.topics)
        self.broker_stats = BrokerStats(self.topic_puts.total, self.stats.messages_got)

    def _make_network(self) -> None:
        settings, env = self._settings, self.env
        self.server = RemotingServer(settings.server, clock=env.clock, tls=ServerTls(settings.server, env.disk))
        self.client = broker_client(settings, self.access, disk=env.disk, clock=env.clock, rng=env.rng)
        self.outer_api = BrokerOuterApi(self.client, self.topics.row_json)
        self.registration = BrokerRegistration(
            self.outer_api,
            self.topics,
            self.address,
            config=lambda: settings.broker,
            name_servers=lambda: self.client.name_servers,
            mappings=self.mappings.infos,
            is_elected=settings.store.enable_dleger_commit_log,
        )
        self._peers = Peers(client=self.client, outer_api=self.outer_api, registration=self.registration)
        self.ids_notifier = ConsumerIdsNotifier(self.consumers, settings=settings)
        self.housekeeping = ClientHousekeepingService(
            self.consumers, self.producers, self.locks, count_event=self.stats.on_channel_event
        )

    def _make_limits(self) -> None:
        settings, clock = self._settings, self.env.clock
        self.fast_failure = FastFailure(settings, clock=clock)
        self.compaction_topics = CompactionTopics(self.topics, settings, self.store.compaction.topics)
        self.topic_write_states = TopicWriteStates(
            self.topics,
            settings,
            self.store.queues.topic_write_state,
            self.mappings.is_static,
            self.store.queues.take_kind,
        )
        self.quotas = Quotas(
            settings,
            clock=clock,
            topics=self.topics,
            groups=self.groups,
            write_states=self.topic_write_states,
            write_state_of=self.store.queues.topic_write_state,
            refusals=self.fast_failure.refused,
        )
        self._limits = Limits(fast_failure=self.fast_failure, quotas=self.quotas)

    def _make_replication(self) -> None:
        settings, clock, store = self._settings, self.env.clock, self.store
        copies = SlaveTables(
            topics=self.topics,
            mappings=self.mappings,
            groups=self.groups,
            offsets=self.offsets,
            request_modes=self.request_modes,
            files=self.carried_files,
            deletions=store.deletions,
        )
        self.slave_synchronize = SlaveSynchronize(
            MasterApi(self.client),
            copies,
            clock=clock,
            own_address=lambda: self.address.address,
            timer_wheel=lambda: settings.store.timer_wheel_enable,
            own_log=store,
            joins_master=lambda: self.dledger is not None or self.ha_service.joins_master,
            tables_in_log=lambda: self.dledger is not None and self.dledger.has_tables_in_log,
        )
        full_copy = FullCopy(lambda: settings.store.ha_full_copy, self.slave_synchronize.master_min_offset)
        self.ha_service = HAService(settings, store, clock, first_offset=full_copy)
        self.log_maintenance = LogMaintenance(
            store,
            clock,
            config=lambda: settings.store,
            master_address=lambda: self.ha_service.client.master_address,
        )
        self.dledger = dledger_broker_of(self.env, store, self.acknowledgement, self.ha_service.peers)
        self.table_records: TableRecords | None = None
        self.send_relay: SendRelay | None = None
        if (dledger := self.dledger) is not None:
            self.table_records = TableRecords(store, self.acknowledgement, copies)
            self.send_relay = SendRelay(
                self.env,
                self._peers,
                leads=lambda: self.address.is_master and dledger.doubt() is None,
                is_asked=dledger.may_be_taken_for_leader,
                hindrance=store.flags.why,
            )
        self.role = RoleService(
            self.env,
            self._tables,
            self._messages,
            self.dledger or self.ha_service,
            self.slave_synchronize,
            self.registration,
            self.hold_service,
            self.store_owner,
        )
        self.failover = Failover(
            self.env,
            self._tables,
            self._messages,
            self._peers,
            self.ha_service,
            self.role,
            self.hold_service.notify_all,
        )
        acting = self.failover.acting
        self.authority = Authority(
            self.address,
            is_active=lambda: self.failover.services.is_running,
            doubt=acting.doubt_of_state if self.dledger is None else self.dledger.doubt,
            gives_way=lambda: (
                (None if self.address.is_master else acting.may_be_replaced())
                or acting.preparation()
                or self.popping.service.gives_way()
            ),
            keeps=lambda request: self.send_relay is not None and self.send_relay.keeps(request),
            copied=self._tables_copied,
        )

    def _make_processors(self) -> None:
        """Make the parts that answer the requests of producers and consumers one at a time. The fast path, which is
        made later, answers most requests in batches."""
        env, tables, clients = self.env, self._tables, self._clients
        messages, limits = self._messages, self._limits
        self.retries = RetryTopics(env, tables, clients)
        self.send_processor = SendMessageProcessor(env, tables, messages, limits, self.retries)
        self.pull_plans = PullPlans(env, tables, clients, ReadRules(self._settings, self.failover.acting))
        self.pull_processor = PullMessageProcessor(
            env, tables, clients, messages, limits, self.pull_plans, self.hold_service
        )
        self.query_processor = QueryMessageProcessor(env, messages)
        self.reply_processor = ReplyMessageProcessor(env, tables, clients, limits, self.failover.escape.put_message)

    def _make_features(self) -> None:
        env, tables, clients, messages = self.env, self._tables, self._clients, self._messages
        failover, peers = self.failover, self._peers
        others = OtherBrokers(peers.client, peers.outer_api.topic_route, lambda: self._settings.broker.forward_timeout)
        self.transactions = Transactions(env, tables, clients, messages, failover)
        self.timed = TimedMessages(env, tables, messages, failover)
        self.delayed = DelayedMessages(env, tables, messages, failover)
        self.staged = TwoPhaseBatches(env, tables, messages)
        self.popping = PopMessages(env, tables, clients, messages, self._limits, failover, self.timed.service, others)
        self.static_topics = StaticTopics(
            env,
            tables,
            self.locks,
            others,
            TopicQueueMappingCleanService(
                self.mappings,
                others,
                peers.outer_api.topic_route,
                config=lambda: self._settings.store,
                clock=env.clock,
            ),
            self.topic_write_states,
            self.pull_plans,
            self.hold_service,
        )
        self.send_back_processor = SendBackProcessor(env, tables, messages, self.retries, self.delayed.levels)

    def _make_fast_path(self) -> None:
        """Make the parts that answer the leading frames of an arrival in batches, without an object for each frame."""
        env, tables, messages, limits = self.env, self._tables, self._messages, self._limits
        self.stages = StageTimes(env.clock)
        self.batches = BatchPath(
            self.authority,
            sends=SendPath(env, messages, limits, self.stages),
            pulls=PullPath(
                env,
                tables,
                self._clients,
                messages,
                limits,
                self.pull_plans,
                self.hold_service,
                self.pull_processor.replay,
            ),
            ends=self.transactions.ends,
            backs=SendBackPath(env, tables, messages, self.retries, self.delayed.levels, self.delayed.service.wake),
            acks=self.popping.acks,
        )

    def _make_operations(self) -> None:
        """Make the list of features and the parts that operators use: metrics, exports, status pages, runtime info."""
        env, tables, clients = self.env, self._tables, self._clients
        messages, limits = self._messages, self._limits
        self.features = Features(
            transactions=self.transactions,
            timed=self.timed,
            delayed=self.delayed,
            staged=self.staged,
            popping=self.popping,
            static_topics=self.static_topics,
        )
        metrics = BrokerMetrics(self.metrics, env, tables, clients, messages, limits, self.hold_service, self.features)
        register_own(self.metrics, env, self.store, self.server, self.hold_service, self.ha_service)
        self.operations = Operations(self.metrics, env, tables, messages, limits, metrics, self.stages)
        self.runtime_info = RuntimeInfo(
            env, clients, messages, limits, self.broker_stats, self.hold_service, self.ha_service,
            (
                self.log_maintenance.runtime_info,
                self.timed.runtime_info,
                self.delayed.service.runtime_info,
                self.access.runtime_info,
                lambda: {"brokerNameAlsoAt": self.registration.other_holder},
            ),
        )  # fmt: skip
        self.schedule = BrokerSchedule(
            env, tables, clients, messages, limits, self.broker_stats, self.hold_service, self.ha_service
        )
        self.config_processor = AdminConfigProcessor(
            self.env, self._tables, self.runtime_info.collect, self.registration.register_all
        )
        self.grpc = GrpcDoor(env, tables, self.server)
        self.exports = MetricsExport(self._settings.broker, self.metrics, env.clock)
        self.pages = StatusPages(self._settings, self.metrics, clock=env.clock, not_ready=self._not_ready)

    # ---- who hears of what --------------------------------------------------------------------------------------

    def _connect(self) -> None:
        """Connect the parts: tell each which functions it calls. Those of a list are called in this order."""
        for topics_hear in (
            self._clients.subscriptions,
            self.deleted_names,
            self.registration,
            self.compaction_topics,
            self.topic_write_states,
            self.quotas,
            self.pull_plans,
            self.timed,
            self.popping,
            self.operations.retention,
            self.grpc,
        ):
            self.topics.add_change_listener(topics_hear.topics_changed)
        self.topics.set_known_elsewhere(self.registration.changes_known)
        for groups_hear in (self.deleted_names, self.quotas, self.pull_plans, self.popping.service):
            self.groups.add_change_listener(groups_hear.groups_changed)
        self.mappings.add_change_listener(self.static_topics.mappings_changed)
        for waiting in (self.hold_service, self.popping.polling, self.popping.notified):
            self.store.add_arrival_listener(waiting.messages_arrived)
        self.consumers.add_change_listener(self.ids_notifier.group_changed)
        self.consumers.add_offline_listener(self.filters.unregister)
        for table in (self.topics, self.groups):
            table.when_changed.append(self.table_changes.table_changed)
        self.offsets.when_set += (self.table_changes.offsets_set, self.popping.service.offsets_set)
        self.offsets.also_kept.append(self.popping.service.changes_are_kept)
        self.offsets.when_begun.append(self.popping.service.group_begun)
        self.stats.add_source(self.topic_puts)
        self._connect_put_hooks()
        self._connect_master_only_services()
        self._connect_store()
        self._connect_replication()
        self._connect_server()

    def _connect_put_hooks(self) -> None:
        """Register the put hooks, in the order of HookUtils.handleScheduleMessage: half messages, timers, delay levels,
        and then those whose queue has moved."""
        self.put_hooks.set_half(turn_away, self.transactions.service.prepared, self.timed.hook.judge_half)
        self.put_hooks.add(self.timed.hook)
        self.put_hooks.add(self.delayed.hook)
        self.put_hooks.add(MovedQueueHook(self.mappings, self.delayed.hook.deliver_soon))

    def _connect_master_only_services(self) -> None:
        """Register the services that run on the active broker only. They start and stop in this order when this broker
        begins or ceases to work for its group."""
        services = self.failover.services
        services.register("queue locks", self.locks)
        services.register("consumer offsets", self.failover.offset_ownership)
        services.register("transactions", self.transactions.checks)
        if self._settings.store.timer_wheel_enable:
            services.register("timer messages", self.timed.service)
        services.register("delayed messages", self.delayed.service)
        services.register("staged messages", self.staged.service)
        services.register("pop consumption", self.popping.service)
        self.timed.service.rests = self.popping.leaves_deliveries
        self.failover.escape.rests = self.popping.sends_nothing
        self.failover.escape.keeps = self.popping.revive.keep_ack

    def _connect_store(self) -> None:
        store, settings = self.store, self._settings
        store.dispatch.bit_map_of = self.filters.bit_map
        store.queues.is_batch_topic = self._is_batch_topic
        store.set_service_failed(self.service_failed)
        store.cleaner.hidden.needed_from = self.ha_service.copied_by_all
        settings.on_change(lambda changes: store.update_config(settings.store))
        settings.on_change(self.topic_write_states.settings_changed)
        settings.on_change(lambda changes: self.quotas.users_changed())
        settings.on_change(lambda changes: self.log_maintenance.config_changed())
        settings.on_change(self.config_processor.settings_changed)
        settings.on_change(lambda changes: self.grpc.settings_changed())

    def _connect_replication(self) -> None:
        self.acknowledgement.set_replicas(self.ha_service)
        self.popping.buffer.journal.known_to_slaves = self.ha_service.known_to_slaves
        self.ha_service.set_joined_listener(self._master_joined)
        self.ha_service.set_service_failed(self.service_failed)
        self.ha_service.set_offer_listener(self.log_maintenance.offered)
        self.ha_service.alive_replicas = lambda: self.failover.acting.alive_replicas
        self.registration.set_result_listener(self.role.registered)
        self.client.on_lost = self.registration.connection_lost
        self.client.add_listener(
            MasterLossListener(lambda: self.slave_synchronize.master_address, self.ha_service.client.begin_again)
        )
        if self.dledger is not None and self.send_relay is not None:
            self.dledger.set_leader_listener(self.send_relay.leader_changed)
        if (records := self.table_records) is not None:
            self.store.set_table_listener(records.dispatched, records.persist)
            for table in (self.topics, self.groups, self.mappings, self.request_modes):
                table.when_changed.append(records.table_changed)
            self.offsets.when_set.append(records.offsets_set)

    def _connect_server(self) -> None:
        server = self.server
        self.access.stand_before(server)
        server.gate = self.operations.gate
        server.on_answer = self.operations.answered
        server.authority = self.authority
        server.batch_path = self.batches
        server.batched_reads.path = self.batches.take
        server.batched_reads.may_rest = self.store.flusher.joins_next
        if self.send_relay is not None:
            server.answers_to_the_end = self.send_relay.keeps
        for listener in (self.housekeeping, HeldPullsOfClosed(self.hold_service), self.operations):
            server.add_listener(listener)

    def _register(self) -> None:
        """Register the processors of request codes. Wrappers come after the processors that they wrap: static topics,
        and last the relay of a DLedger member, which wraps every processor of sends."""
        env = self.env
        processors: tuple[Registers, ...] = (
            self.failover.processor,
            self.send_processor,
            self.pull_processor,
            self.query_processor,
            self.reply_processor,
            *admin_processors(
                env,
                self._tables,
                self._clients,
                self._messages,
                ha_runtime_info=self.ha_service.runtime_info,
                topic_route=self.outer_api.topic_route,
            ),
            self.config_processor,
            self.table_changes,
            *self.features.in_order,
            self.send_back_processor,
            PurgeTopicProcessor(env, self._tables, self._messages),
            self.operations,
        )
        for processor in processors:
            processor.register(self.server)
        register_access(self.server, self.access, self.address)
        if self.send_relay is not None:
            self.send_relay.register(self.server)

    # ---- what parts ask the controller --------------------------------------------------------------------------

    @property
    def port(self) -> int:
        """Return the port on which clients connect, once the broker has started."""
        return self.address.port

    def set_failure_listener(self, listener: Callable[[str, BaseException], None]) -> None:
        """Set the listener that is called as `listener(service, error)` when a service of the store has ended by an
        error. It should shut the process down, because a broker that no longer flushes must not go on answering.
        Without a listener the broker shuts itself down."""
        self._failure_listener = listener

    def _not_ready(self) -> list[str]:
        """Return why clients cannot use this broker; None if they can."""
        if not self._running:
            return ["the broker is starting or ending"]
        return [self.store.flags.why()] if not self.store.flags.writable else []

    async def _tables_copied(self) -> bool:
        """Return whether the tables have been copied to the brokers that a send waits for: in a DLedger group a
        majority, by the log; for a SYNC_MASTER the slaves that fetch topics and groups, or are linked and will fetch
        them soon."""
        if self.table_records is not None:
            return await self.table_records.are_safe()
        store = self._settings.store
        return store.broker_role != "SYNC_MASTER" or await self.table_changes.copied(
            lambda asking: max(asking, self.ha_service.table_copies), store.slave_timeout
        )

    def _master_joined(self) -> None:
        """Called when this slave has found, on a new connection, that its log continues its master's."""
        self.slave_synchronize.wake()
        self.log_maintenance.master_connected()

    def _log_compared(self, is_another: bool, is_sure: bool) -> None:
        """Called when this slave has found that its log is another than its master's, or that it is so no more. It is
        not sure if that may have been a master of another group."""
        if is_another:
            self.pull_plans.forget_all()
        if self.store_owner.log_is_another is (is_another and is_sure):
            return
        self.store_owner.log_is_another = is_another and is_sure
        task = asyncio.get_running_loop().create_task(self._record_log(), name="owner of the store")
        self._notes.add(task)
        task.add_done_callback(self._notes.discard)

    async def _record_log(self) -> None:
        try:
            await TABLES.run(self.store_owner.record_log)
        except OSError as error:
            log.warning("owner.json does not say for the next start how this log compares with the master's: %s", error)

    def _is_batch_topic(self, topic: str) -> bool | None:
        config = self.topics.select_topic_config(topic)
        return None if config is None else config.attributes.get(QUEUE_TYPE) == BATCH_CQ

    def _take_deletion(self, topics: Collection[str], incarnation: int) -> None:
        """Apply the deletion of topics at a physical offset, by this broker or its master."""
        self.offsets.take_deletion(topics, incarnation)
        self.transactions.metrics.forget(topics)
        if self.operations.retention.take_deletion(topics) and self.table_records is None:
            self.topics.differ_from_master()

    def refresh_name_servers(self) -> None:
        """Take over the name servers that the settings name at present."""
        addresses = self._settings.broker.namesrv_addr.split(";")
        self.client.update_name_servers([address.strip() for address in addresses if address.strip()])

    def service_failed(self, service: str, error: BaseException) -> None:
        """Tell the failure listener that a service which the broker cannot work without has ended by `error`."""
        self._failure_listener(service, error)

    def _stop_after_failure(self, service: str, error: BaseException) -> None:
        log.critical("%s failed, the broker stops: %s", service, error)
        self._why_not = StoreFailedError(f"{service} failed while the broker started: {error}")
        self._why_not.__cause__ = error
        if self._running:
            self._stopping = asyncio.get_running_loop().create_task(self.shutdown())

    # ---- starting ---------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Load, recover, listen, register. On return clients can send, and every name server that answers in time knows
        this broker: once one does, the others are waited for a moment only.

        Raises:
            StoreRefusedError: the store cannot be used: which file, what is wrong, what to do.
            ConfigError: a configuration table cannot be read, haListenPort is in use, or another broker has this one's
                name and id.
            StoreFailedError: a service that was started failed, and no failure listener was set.
            BrokerEndedError: `shutdown` was called meanwhile.
            OSError: the port is in use, or the disk refuses. Everything that was opened is closed again.
        """
        CURRENT.set(self.server.holds)
        FAILURES.set(self.operations.failures)
        self._closed, self._why_not = asyncio.Event(), None
        try:
            await self.pages.start()
            self.exports.start()
            await self._resolve_address()
            self.refresh_name_servers()
            taken_name = asyncio.get_running_loop().create_task(self.registration.refuse_taken_name())
            try:
                with self.store.refusing():
                    await self._load()
                await taken_name
            finally:
                taken_name.cancel()
            with self.store.refusing():
                await self.features.load()
                await self.operations.load()
                if self.dledger is None:
                    self.log_maintenance.load()
            self._refuse_to_go_on()
            await self._listen()
            await self.role.listen()
            self._refuse_to_go_on()
        except BaseException:
            await self._close()
            raise
        self._running = True
        try:
            self._start_services()
            await self._register_first()
            await self.grpc.start()
            self._refuse_to_go_on()
        except BaseException:  # the start may be cancelled while it waits for a name server
            await self.shutdown()
            raise
        self.failover.acting.start()
        log.info("%s", self.start_line())

    def _start_services(self) -> None:
        load_sql92()
        self.hold_service.start()
        self.schedule.start(
            {
                "name server address": (
                    self._settings.broker.update_name_server_addr_period / 1000,
                    self.refresh_name_servers,
                ),
                "register": (
                    self._settings.broker.register_name_server_period / 1000,
                    self.registration.register_now,
                ),
                "client channels": (_CHANNEL_SCAN_SECONDS, self.housekeeping.scan),
            }
        )
        self.role.start()
        self.access.start()
        self.features.start()
        self.operations.start()
        if self.dledger is None:
            self.log_maintenance.start()
        else:
            self.dledger.follow(self.change_to_master, self.change_to_slave)

    def _refuse_to_go_on(self) -> None:
        if self._why_not is not None:
            raise self._why_not

    def start_line(self) -> str:
        """Returns one line with this broker's name, address and role, and what a send waits for."""
        return self.role.start_line()

    async def _resolve_address(self) -> None:
        self.address.resolved_ip = await resolve(self.address.ip)

    async def _load(self) -> None:
        role = self._settings.store.broker_role
        # waits for a broker that is ending on this folder: it writes its tables last
        await run_blocking(self.store.lock)
        await run_blocking(self.store_owner.check, role)
        self.ha_service.set_apart(self.store_owner.log_is_another and role == SLAVE, self._log_compared)
        for table in self._persistent_tables():
            await run_blocking(table.load)
        await run_blocking(self.access.load)
        self.topics.create_system_topics()
        if self._settings.broker.enable_create_sys_group:
            self.groups.create_system_groups()
        # after a crash it takes long; on a thread, so that the loop can still handle signals
        await run_blocking(self.store.load)
        if self.table_records is not None:
            self.table_records.start()
        self.offsets.follow_deletions(self.store.deletions.since, self.store.deletions.newest, self.store.max_offset)
        self.store.set_deletion_listener(self._take_deletion)
        await run_blocking(self.topics.begin, self._topics_with_messages)
        slave_until = 0
        if role != SLAVE:  # a slave that becomes master later does this then (RoleService)
            was_slave = self.store_owner.was_slave
            self.store.reader.may_lack_messages |= was_slave
            if was_slave:
                found = (self._topics_with_messages, self._newest_message_ms, self._has_batches)
                await run_blocking(self.topics.add_found, *found)
            slave_until = self.store.max_physical_offset if was_slave else self.store_owner.slave_until
            self.offsets.begin_as_master(self.store.max_physical_offset)
            self.offsets.not_beyond(self.store.max_offset)
            if self.table_records is None:
                self.operations.retention.end_purges()
        self.groups.begin(slave_until)
        await run_blocking(self.store_owner.record, role, slave_until)
        self.topic_write_states.refresh_all()
        self.compaction_topics.refresh_all()
        self.failover.acting.loaded()
        self.store.start()

    def _topics_with_messages(self) -> dict[str, int]:
        """Return the topics of which the store has messages, with the number of their queues up to the last one that
        has any, where no other broker, and no log of a group, tells what topics there are."""
        store = self.store
        if self._settings.store.broker_role == SLAVE or self.table_records is not None:
            return {}
        plain = [(name.decode(errors="replace"), list(state.queues)) for name, state in list(store.topics.items())]
        queues = [(name, queue_id) for name, queue_ids in plain for queue_id in queue_ids]
        counts: dict[str, int] = {}
        for name, queue_id in (*queues, *list(store.queues.batch_queues)):
            if store.max_offset(name, queue_id) > 0:
                counts[name] = max(counts.get(name, 0), queue_id + 1)
        return counts

    def _has_batches(self, topic: str) -> bool:
        return self.store.queues.topic_write_state(topic).has_batch_queues

    def _newest_message_ms(self, topic: str, queues: int) -> int:
        """Return when the newest message of a topic with so many queues was stored, in ms; -1: it has none."""
        store = self.store
        return max(store.store_time_at(topic, queue, store.max_offset(topic, queue) - 1) for queue in range(queues))

    async def _listen(self) -> None:
        host, port = self._settings.server.bind_address, self._settings.broker.listen_port
        if port:
            self._take_port(port)
        taken = await self.server.start(host, port)
        if not port:
            self._take_port(taken)
        if port > _VIP_DISTANCE:
            await self._listen_vip(host, port - _VIP_DISTANCE)

    def _take_port(self, port: int) -> None:
        self.address.port = port
        self.store.set_store_host(self.address.store_host)

    async def _listen_vip(self, host: str, port: int) -> None:
        """Listen on the second port that old clients use. A failure is only logged, because nobody else needs that
        port."""
        try:
            await self.server.listen(host, port, excluded_codes=_VIP_EXCLUDED)
        except OSError as error:
            log.warning("the VIP port %d is not served: %s; clients with vipChannelEnabled cannot send", port, error)

    async def _register_first(self) -> None:
        loop = asyncio.get_running_loop()
        self._registering = loop.create_task(self.failover.acting.go_online())
        known = loop.create_task(self.registration.known())
        try:
            await asyncio.wait(
                [self._registering, known], timeout=_FIRST_REGISTRATION_SECONDS, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            known.cancel()
        if self.failover.acting.is_isolated:
            log.warning("preparations to go online have not ended within %g s; continuing", _FIRST_REGISTRATION_SECONDS)
        elif not self._registering.done():
            silent = ", ".join(self.registration.silent_servers)
            log.warning("no answer from name server %s yet; continuing, the broker registers when it answers", silent)

    # ---- changing the role ------------------------------------------------------------------------------------

    async def change_to_master(self, role: str = "SYNC_MASTER") -> None:
        """Become this group's master while running; see RoleService."""
        await self.role.change_to_master(role)
        if self.table_records is not None:
            self.table_records.write()
        self.failover.acting.role_changed()

    async def change_to_slave(self, broker_id: int, master_address: str = "", ha_address: str = "") -> None:
        """Become a slave while running; see RoleService."""
        await self.role.change_to_slave(broker_id, master_address, ha_address)
        self.failover.acting.role_changed()

    # ---- stopping ---------------------------------------------------------------------------------------------

    async def shutdown(self) -> None:
        """Leave the name servers, finish requests under way, and write everything to the disk. On return everything
        acknowledged is durable, and the next start is a clean one. A start that is under way fails; a second caller
        waits for the first."""
        if not self._running:
            self._why_not = self._why_not or BrokerEndedError("the broker was told to end while it started")
            if self._closed is not None:
                await self._closed.wait()
            return
        self._running = False
        self._why_not = self._why_not or BrokerEndedError("the broker was told to end while it started")
        try:
            await self._leave()
        finally:
            await self._close()
        log.info("broker %s has ended", self.address.broker_name)

    async def _leave(self) -> None:
        """Leave the group, the name servers and the clients, and stop the services."""
        if self._registering is not None:
            self._registering.cancel()
        if self.dledger is not None:
            await self.dledger.leave()
        await self.failover.acting.shutdown()
        await self.registration.unregister()
        await self.role.stop()
        await self.schedule.stop()
        self.ids_notifier.close()
        await self.grpc.stop()
        await self.hold_service.stop()
        await self.send_processor.drain()
        await self.pull_processor.drain()
        await self.server.shutdown()
        await self.operations.shutdown()
        await self.features.shutdown()

    async def _close(self) -> None:
        """Close whatever is open, in the order of a shutdown; also after a start that failed half way."""
        try:
            await self._close_all()
        finally:
            self.store.unlock()
            assert self._closed is not None, "something was opened"
            self._closed.set()

    async def _close_all(self) -> None:
        await self.exports.shutdown()
        await self.pages.shutdown()
        await self.server.shutdown()
        if self.send_relay is not None:
            await self.send_relay.stop()
        await self.access.shutdown()
        await self.ha_service.shutdown()
        await asyncio.gather(*self._notes)
        await self.log_maintenance.shutdown()
        self.timed.service.release()  # frees the timer if the start failed after it was loaded
        if self.table_records is not None:
            await self.table_records.stop()
        if self.dledger is not None:
            await self.dledger.shutdown()
        await self.store.shutdown()
        if self.address.port:
            await self._persist_tables()
        await self.client.close()
        end_threads()

    async def _persist_tables(self) -> None:
        for table in self._persistent_tables():
            try:
                await TABLES.run(table.persist)
            except OSError as error:
                log.error("%s could not be written: %s", type(table).__name__, error)

    def _persistent_tables(self) -> list[PersistentManager]:
        return [self.topics, self.mappings, self.groups, self.offsets, self.request_modes, self.filters]
