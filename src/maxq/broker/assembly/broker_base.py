"""BrokerBase: what a broker has before its port is known: tables, store, services and replication.

Parts get what they use; none of them knows the controller, which starts and stops them.

Source:
    broker/BrokerController.java (its constructor, initialize).
"""

from collections.abc import Callable
from pathlib import PurePath

from maxq.access.access_control import AccessControl
from maxq.broker.access import broker_access, broker_client
from maxq.broker.assembly.message_kinds import MessageKinds
from maxq.broker.assembly.schedule import ScheduledParts
from maxq.broker.attributes import QUEUE_TYPE
from maxq.broker.client.consumer_ids_notifier import ConsumerIdsNotifier
from maxq.broker.client.consumer_manager import ConsumerManager
from maxq.broker.client.housekeeping import ClientHousekeepingService
from maxq.broker.client.producer_manager import ProducerManager
from maxq.broker.client.rebalance_lock_manager import RebalanceLockManager
from maxq.broker.dledger.dledger_broker import acknowledgement_of, dledger_broker_of
from maxq.broker.dledger.table_records import TableRecords
from maxq.broker.fast_failure import FastFailure
from maxq.broker.filter.consumer_filter_manager import FILE_NAME as FILTER_FILE
from maxq.broker.filter.consumer_filter_manager import ConsumerFilterManager
from maxq.broker.identity.broker_identity import BrokerAddress
from maxq.broker.identity.deleted_names import DeletedNames
from maxq.broker.identity.outer_api import BrokerOuterApi
from maxq.broker.identity.registration import BrokerRegistration
from maxq.broker.identity.store_owner import StoreOwner
from maxq.broker.longpolling.pull_request_hold_service import HeldPullsOfClosed, PullRequestHoldService
from maxq.broker.metrics.labels import broker_registry
from maxq.broker.metrics.metrics_export import MetricsExport
from maxq.broker.offset.lmq_consumer_offset_manager import create_consumer_offset_manager
from maxq.broker.processors.admin.table_changes import TableChangesProcessor
from maxq.broker.processors.clients.message_request_mode_manager import FILE_NAME as REQUEST_MODE_FILE
from maxq.broker.processors.clients.message_request_mode_manager import MessageRequestModeManager
from maxq.broker.processors.send.send_message import BATCH_CQ
from maxq.broker.put_hooks import PutHooks
from maxq.broker.quota.quotas import Quotas
from maxq.broker.slave.carried_files import CarriedFiles
from maxq.broker.slave.gone_master import GoneMaster
from maxq.broker.slave.master_api import MasterApi
from maxq.broker.slave.role_service import RoleParts, RoleService
from maxq.broker.slave.slave_synchronize import SlaveSynchronize, SlaveTables
from maxq.broker.static_topic.topic_queue_mapping_manager import FILE_NAME as MAPPING_FILE
from maxq.broker.static_topic.topic_queue_mapping_manager import TopicQueueMappingManager
from maxq.broker.stats.broker_stats import BrokerStats
from maxq.broker.stats.broker_stats_manager import BrokerStatsManager
from maxq.broker.stats.stage_times import StageTimes
from maxq.broker.stats.topic_puts import TopicPuts
from maxq.broker.status_pages import StatusPages
from maxq.broker.subscription.subscription_group_manager import FILE_NAME as GROUP_FILE
from maxq.broker.subscription.subscription_group_manager import SubscriptionGroupManager
from maxq.broker.topic.compaction_topics import CompactionTopics
from maxq.broker.topic.topic_config_manager import FILE_NAME as TOPIC_FILE
from maxq.broker.topic.topic_config_manager import TopicConfigManager
from maxq.broker.topic.topic_tails import TopicTails
from maxq.config.host import listening
from maxq.config.settings import BrokerSettings
from maxq.remoting.server import RemotingServer
from maxq.remoting.tls import ServerTls
from maxq.replication.ha.full_copy import FullCopy
from maxq.replication.ha.ha_service import HAService
from maxq.replication.ha.log_care import LogCare
from maxq.runtime.interfaces import Clock, Disk, Rng
from maxq.store.message_store import MessageStore
from maxq.store.store_context import StoreIdentity


class BrokerBase:
    """Tables, store, services and replication of one broker, put together and not started.

    Args:
        on_failure: called with the name of a service that ended by an error, and the error.

    Attributes:
        address: name and address of this broker; its port is 0 until it listens.
    """

    def __init__(
        self,
        settings: BrokerSettings,
        *,
        disk: Disk,
        clock: Clock,
        rng: Rng,
        on_failure: Callable[[str, BaseException], None],
        access: AccessControl | None = None,
    ) -> None:
        broker = settings.broker
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
        self._settings = settings
        self._disk = disk
        self._clock = clock
        self._rng = rng
        self._on_failure = on_failure
        self.metrics = broker_registry(broker)
        self._build_tables()
        self._build_store()
        self._build_services()
        self._build_replication()
        self.exports = MetricsExport(broker, self.metrics, clock)
        self.pages = StatusPages(settings, self.metrics, clock=clock, not_ready=self._not_ready)

    def _not_ready(self) -> list[str]:
        """Why clients cannot use this broker."""
        return [self.store.flags.why()] if not self.store.flags.writable else []

    def _build_tables(self) -> None:
        settings, disk, clock = self._settings, self._disk, self._clock
        folder = PurePath(settings.store.store_path_root_dir) / "config"
        self.topics = TopicConfigManager(disk, folder / TOPIC_FILE, settings=settings, clock=clock)
        self.groups = SubscriptionGroupManager(disk, folder / GROUP_FILE, settings=settings, clock=clock)
        self.offsets = create_consumer_offset_manager(disk, folder, settings=settings, clock=clock)
        self.table_changes = TableChangesProcessor(
            topics=self.topics, groups=self.groups, offsets=self.offsets, clock=clock
        )
        self.mappings = TopicQueueMappingManager(
            disk, folder / MAPPING_FILE, broker_name=self.address.broker_name, clock=clock
        )
        self.request_modes = MessageRequestModeManager(disk, folder / REQUEST_MODE_FILE)
        self.carried_files = CarriedFiles(disk, folder)
        self.consumers = ConsumerManager(settings=settings, clock=clock)
        self.producers = ProducerManager(settings=settings, clock=clock)
        self.put_hooks = PutHooks()
        self.kinds = MessageKinds()
        self.locks = RebalanceLockManager(clock=clock)

    def _build_store(self) -> None:
        settings, clock = self._settings, self._clock
        self.stats = BrokerStatsManager(
            self.address.cluster,
            clock=clock,
            is_system_topic=self.topics.is_system_topic,
            detail=lambda: settings.broker.enable_detail_stat,
        )
        self.fast_failure = FastFailure(settings, clock=clock)
        self.stages = StageTimes(clock)
        self.store = MessageStore(
            settings.store,
            disk=self._disk,
            clock=clock,
            broker=StoreIdentity(
                self.address.cluster, self.address.broker_name, self.address.broker_id, region=settings.broker.region_id
            ),
        )
        self.filters = ConsumerFilterManager(
            self._disk,
            PurePath(settings.store.store_path_root_dir) / "config" / FILTER_FILE,
            settings=settings,
            clock=clock,
            max_physical_offset=lambda: self.store.max_physical_offset,
        )
        DeletedNames(
            settings,
            self.topics,
            self.groups,
            request_modes=self.request_modes,
            filters=self.filters,
            silent=self.consumers.silent,
            stats=self.stats,
        )
        self.consumers.add_offline_listener(self.filters.unregister)
        self.store.dispatch.bit_map_of = self.filters.bit_map
        self.acknowledgement = acknowledgement_of(settings, self.store)
        self.hold_service = PullRequestHoldService(
            self.store, clock=clock, long_polling=lambda: settings.broker.long_polling_enable, guard=self.access.guard
        )
        self.store.queues.is_batch_topic = self._is_batch_topic
        self.store.set_service_failed(self._on_failure)
        settings.on_change(lambda changes: self.store.update_config(settings.store))

    def _build_services(self) -> None:
        settings, clock = self._settings, self._clock
        self.server = RemotingServer(settings.server, clock=clock, tls=ServerTls(settings.server, self._disk))
        self.client = broker_client(settings, self.access, disk=self._disk, clock=clock, rng=self._rng)
        self.outer_api = BrokerOuterApi(self.client, self.topics.row_json)
        self.registration = BrokerRegistration(
            self.outer_api,
            self.topics,
            self.address,
            config=lambda: settings.broker,
            name_servers=lambda: self.client.name_servers,
            is_elected=settings.store.enable_dleger_commit_log,
        )
        self.client.on_lost = self.registration.connection_lost
        self.topics.add_change_listener(self.registration.topics_changed)
        self.compaction_topics = CompactionTopics(self.topics, settings, self.store.compaction.topics)
        self.topic_tails = TopicTails(self.topics, settings, self.store.topic_tail)
        self.quotas = Quotas(
            settings,
            clock=clock,
            topics=self.topics,
            groups=self.groups,
            tails=self.topic_tails,
            tail_of=self.store.topic_tail,
            refusals=self.fast_failure.refused,
        )
        self.ids_notifier = ConsumerIdsNotifier(self.consumers, settings=settings)
        self.housekeeping = ClientHousekeepingService(
            self.consumers, self.producers, self.locks, count_event=self.stats.on_channel_event
        )
        self.server.gate = self.fast_failure.gate
        self.access.stand_before(self.server)
        self.server.add_listener(self.housekeeping)
        self.server.add_listener(HeldPullsOfClosed(self.hold_service))
        self.topic_puts = TopicPuts(lambda: self.store.topics)
        self.stats.add_source(self.topic_puts)
        self.broker_stats = BrokerStats(self.topic_puts.total, self.stats.messages_got)

    def _build_replication(self) -> None:
        settings, clock = self._settings, self._clock
        tables = SlaveTables(
            topics=self.topics,
            mappings=self.mappings,
            groups=self.groups,
            offsets=self.offsets,
            request_modes=self.request_modes,
            files=self.carried_files,
            deletions=self.store.deletions,
        )
        self.slave_synchronize = SlaveSynchronize(
            MasterApi(self.client),
            tables,
            clock=clock,
            own_address=lambda: self.address.address,
            timer_wheel=lambda: settings.store.timer_wheel_enable,
            log_end=lambda: self.store.max_physical_offset,
            joins_master=lambda: self.dledger is not None or self.ha_service.joins_master,
            compaction=self.store.compaction,
        )
        full_copy = FullCopy(lambda: settings.store.ha_full_copy, self.slave_synchronize.master_min_offset)
        self.ha_service = HAService(settings, self.store, clock, first_offset=full_copy)
        self.ha_service.set_joined_listener(self._master_joined)
        self.client.add_listener(
            GoneMaster(lambda: self.slave_synchronize.master_address, self.ha_service.client.begin_again)
        )
        self.ha_service.set_service_failed(self._on_failure)
        self.acknowledgement.set_replicas(self.ha_service)
        self.store.cleaner.hidden.needed_from = self.ha_service.copied_by_all
        self.log_care = LogCare(
            self.store,
            clock,
            config=lambda: settings.store,
            master_address=lambda: self.ha_service.client.master_address,
        )
        self.ha_service.set_offer_listener(self.log_care.offered)
        settings.on_change(lambda changes: self.log_care.config_changed())
        self.store_owner = StoreOwner(self._disk, settings.store, self.address)
        self.dledger = dledger_broker_of(
            settings,
            self.store,
            self.acknowledgement,
            clock=clock,
            rng=self._rng,
            peers=self.ha_service.peers,
            on_failure=self._on_failure,
        )
        self.table_records: TableRecords | None = None
        if self.dledger is not None:
            self.table_records = TableRecords(self.store, self.acknowledgement, tables)
        self.role = RoleService(
            RoleParts(
                settings=settings,
                address=self.address,
                store=self.store,
                replication=self.dledger or self.ha_service,
                synchronize=self.slave_synchronize,
                registration=self.registration,
                offsets=self.offsets,
                hold_service=self.hold_service,
                owner=self.store_owner,
            )
        )

    def _master_joined(self) -> None:
        """This slave has found on a new connection that its log and its master's are one."""
        self.slave_synchronize.wake()
        self.log_care.master_connected()

    def _is_batch_topic(self, topic: str) -> bool:
        config = self.topics.select_topic_config(topic)
        return config is not None and config.attributes.get(QUEUE_TYPE) == BATCH_CQ

    def refresh_name_servers(self) -> None:
        """Those that the settings name now."""
        addresses = self._settings.broker.namesrv_addr.split(";")
        self.client.update_name_servers([address.strip() for address in addresses if address.strip()])

    def scheduled_parts(self) -> ScheduledParts:
        """What the schedule needs."""
        return ScheduledParts(
            settings=self._settings,
            clock=self._clock,
            store=self.store,
            stats=self.stats,
            broker_stats=self.broker_stats,
            offsets=self.offsets,
            groups=self.groups,
            filters=self.filters,
            registration=self.registration,
            refresh_name_servers=self.refresh_name_servers,
            housekeeping=self.housekeeping,
            hold_service=self.hold_service,
            fast_failure=self.fast_failure,
            ha_service=self.ha_service,
        )
