"""BrokerParts: what a broker consists of, put together and not started.

Parts get what they use; none of them knows the controller, which starts and stops them.

Source:
    broker/BrokerController.java (its constructor, initialize, registerProcessor); broker-api.md §23.
"""

from collections.abc import Callable
from pathlib import PurePath

from maxq.broker.acknowledgement import Acknowledgement
from maxq.broker.acting.assembly import GroupMember, GroupParts
from maxq.broker.attributes import QUEUE_TYPE
from maxq.broker.batch_path import BatchPath
from maxq.broker.broker_identity import BrokerAddress
from maxq.broker.client.consumer_ids_notifier import ConsumerIdsNotifier
from maxq.broker.client.consumer_manager import ConsumerManager
from maxq.broker.client.housekeeping import ClientHousekeepingService
from maxq.broker.client.producer_manager import ProducerManager
from maxq.broker.client.rebalance_lock_manager import RebalanceLockManager
from maxq.broker.fast_failure import FastFailure
from maxq.broker.filter.consumer_filter_manager import FILE_NAME as FILTER_FILE
from maxq.broker.filter.consumer_filter_manager import ConsumerFilterManager
from maxq.broker.longpolling.pull_request_hold_service import HeldPullsOfClosed, PullRequestHoldService
from maxq.broker.message_kinds import MessageKinds
from maxq.broker.offset.lmq_consumer_offset_manager import create_consumer_offset_manager
from maxq.broker.outer_api import BrokerOuterApi
from maxq.broker.processors.assembly import AdminParts, register_admin
from maxq.broker.processors.message_request_mode_manager import FILE_NAME as REQUEST_MODE_FILE
from maxq.broker.processors.message_request_mode_manager import MessageRequestModeManager
from maxq.broker.processors.pull_message import PullMessageProcessor
from maxq.broker.processors.pull_subscription import PullSubscriptions
from maxq.broker.processors.query_message import QueryMessageProcessor
from maxq.broker.processors.reply_message import ReplyMessageProcessor
from maxq.broker.processors.retry_topics import RetryTopics
from maxq.broker.processors.send_back import SendBackParts, SendBackProcessor
from maxq.broker.processors.send_message import BATCH_CQ, SendMessageProcessor
from maxq.broker.pull_path import PullPath
from maxq.broker.put_hooks import PutHooks
from maxq.broker.registration import BrokerRegistration
from maxq.broker.runtime_info import RuntimeInfo
from maxq.broker.schedule import ScheduledParts
from maxq.broker.schedule_message.delayed_messages import DelayedMessages, DelayedParts
from maxq.broker.send_path import SendPath
from maxq.broker.slave.carried_files import CarriedFiles
from maxq.broker.slave.master_api import MasterApi
from maxq.broker.slave.role_service import RoleParts, RoleService
from maxq.broker.slave.slave_synchronize import SlaveSynchronize, SlaveTables
from maxq.broker.static_topic.other_brokers import OtherBrokers
from maxq.broker.static_topic.static_topics import StaticTopics
from maxq.broker.static_topic.topic_queue_mapping_manager import FILE_NAME as MAPPING_FILE
from maxq.broker.static_topic.topic_queue_mapping_manager import TopicQueueMappingManager
from maxq.broker.stats.broker_stats import BrokerStats
from maxq.broker.stats.broker_stats_manager import BrokerStatsManager
from maxq.broker.stats.topic_puts import TopicPuts
from maxq.broker.store_owner import StoreOwner
from maxq.broker.subscription.subscription_group_manager import FILE_NAME as GROUP_FILE
from maxq.broker.subscription.subscription_group_manager import SubscriptionGroupManager
from maxq.broker.timer.timed_messages import TimedMessages, TimedParts
from maxq.broker.topic.compaction_topics import CompactionTopics
from maxq.broker.topic.topic_config_manager import FILE_NAME as TOPIC_FILE
from maxq.broker.topic.topic_config_manager import TopicConfigManager
from maxq.broker.topic.topic_tails import TopicTails
from maxq.broker.transaction.transactions import Transactions, TransactionSurroundings
from maxq.config.settings import BrokerSettings
from maxq.protocol.message import UniqIdGenerator
from maxq.remoting.client import RemotingClient
from maxq.remoting.server import RemotingServer
from maxq.remoting.tls import ClientTls, ServerTls
from maxq.replication.ha.full_copy import FullCopy
from maxq.replication.ha.ha_service import HAService
from maxq.replication.ha.log_care import LogCare
from maxq.runtime.interfaces import Clock, Disk, Rng
from maxq.store.message_store import MessageStore
from maxq.store.store_context import StoreIdentity


class BrokerParts:
    """Tables, services, replication and processors of one broker.

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
    ) -> None:
        broker = settings.broker
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
        self._build_tables()
        self._build_services()
        self._build_replication()

    def _build_tables(self) -> None:
        settings, disk, clock = self._settings, self._disk, self._clock
        folder = PurePath(settings.store.store_path_root_dir) / "config"
        self.topics = TopicConfigManager(disk, folder / TOPIC_FILE, settings=settings, clock=clock)
        self.groups = SubscriptionGroupManager(disk, folder / GROUP_FILE, settings=settings, clock=clock)
        self.offsets = create_consumer_offset_manager(disk, folder, settings=settings, clock=clock)
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

    def _build_services(self) -> None:
        settings, clock = self._settings, self._clock
        self.stats = BrokerStatsManager(
            self.address.cluster,
            clock=clock,
            is_system_topic=self.topics.is_system_topic,
            detail=lambda: settings.broker.enable_detail_stat,
        )
        self.fast_failure = FastFailure(settings, clock=clock)
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
        self.consumers.add_offline_listener(self.filters.unregister)
        self.store.set_bit_map_source(self.filters.bit_map)
        self.acknowledgement = Acknowledgement(self.store)
        self.hold_service = PullRequestHoldService(
            self.store, clock=clock, long_polling=lambda: settings.broker.long_polling_enable
        )
        self.store.set_arrival_listener(self.hold_service.messages_arrived)
        self.store.set_batch_topics(self._is_batch_topic)
        self.store.set_service_failed(self._on_failure)
        settings.on_change(lambda changes: self.store.update_config(settings.store))
        self.server = RemotingServer(settings.server, clock=clock, tls=ServerTls(settings.server, self._disk))
        self.client = RemotingClient(
            settings.client,
            clock=clock,
            rng=self._rng,
            tls=ClientTls(settings.client, self._disk) if settings.client.use_tls else None,
        )
        self.outer_api = BrokerOuterApi(self.client)
        self.registration = BrokerRegistration(
            self.outer_api,
            self.topics,
            self.address,
            config=lambda: settings.broker,
            name_servers=lambda: self.client.name_servers,
        )
        self.topics.add_change_listener(self.registration.topics_changed)
        self.compaction_topics = CompactionTopics(self.topics, settings, self.store.compaction.topics)
        self.topic_tails = TopicTails(self.topics, settings, self.store.topic_tail)
        self.ids_notifier = ConsumerIdsNotifier(self.consumers, settings=settings)
        self.housekeeping = ClientHousekeepingService(
            self.consumers, self.producers, self.locks, count_event=self.stats.on_channel_event
        )
        self.server.gate = self.fast_failure.gate
        self.server.add_listener(self.housekeeping)
        self.server.add_listener(HeldPullsOfClosed(self.hold_service))
        self.topic_puts = TopicPuts(lambda: self.store.topics.values())
        self.stats.add_source(self.topic_puts.sample)
        self.broker_stats = BrokerStats(self.topic_puts.total, self.stats.messages_got)

    def _build_replication(self) -> None:
        settings, clock = self._settings, self._clock
        self.slave_synchronize = SlaveSynchronize(
            MasterApi(self.client),
            SlaveTables(
                topics=self.topics,
                mappings=self.mappings,
                groups=self.groups,
                offsets=self.offsets,
                request_modes=self.request_modes,
                files=self.carried_files,
            ),
            clock=clock,
            own_address=lambda: self.address.address,
            timer_wheel=lambda: settings.store.timer_wheel_enable,
        )
        full_copy = FullCopy(lambda: settings.store.ha_full_copy, self.slave_synchronize.master_min_offset)
        self.ha_service = HAService(settings, self.store, clock, first_offset=full_copy)
        self.ha_service.set_connected_listener(self._master_connected)
        self.ha_service.set_service_failed(self._on_failure)
        self.acknowledgement.set_replicas(self.ha_service)
        self.log_care = LogCare(
            self.store,
            clock,
            config=lambda: settings.store,
            master_address=lambda: self.ha_service.client.master_address,
        )
        self.ha_service.set_offer_listener(self.log_care.offered)
        settings.on_change(lambda changes: self.log_care.config_changed())
        self.store_owner = StoreOwner(self._disk, settings.store, self.address)
        self.role = RoleService(
            RoleParts(
                settings=settings,
                address=self.address,
                store=self.store,
                replication=self.ha_service,
                synchronize=self.slave_synchronize,
                registration=self.registration,
                offsets=self.offsets,
                hold_service=self.hold_service,
                owner=self.store_owner,
            )
        )

    def _master_connected(self) -> None:
        """This slave's link to its master is there."""
        self.slave_synchronize.wake()
        self.log_care.master_connected()

    def _is_batch_topic(self, topic: str) -> bool:
        config = self.topics.select_topic_config(topic)
        return config is not None and config.attributes.get(QUEUE_TYPE) == BATCH_CQ

    def build_processors(self) -> None:
        """Once the port of the address is known."""
        settings, clock, store = self._settings, self._clock, self.store
        self._build_group_member()
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
        )
        self.pull_processor = PullMessageProcessor(
            settings=settings,
            store=store,
            topics=self.topics,
            groups=self.groups,
            offsets=self.offsets,
            subscriptions=PullSubscriptions(settings, self.consumers, self.groups, self.filters),
            hold_service=self.hold_service,
            stats=self.stats,
            fast_failure=self.fast_failure,
            clock=clock,
            broker=self.address,
        )
        self.send_processor.register(self.server)
        self.pull_processor.register(self.server)
        QueryMessageProcessor(settings=settings, store=store).register(self.server)
        ReplyMessageProcessor(
            settings=settings,
            put_message=self.member.escape.put_message,
            topics=self.topics,
            producers=self.producers,
            fast_failure=self.fast_failure,
            broker=self.address,
            clock=clock,
        ).register(self.server)
        register_admin(self.server, self._admin_parts())
        sends = SendPath(
            store,
            self.acknowledgement,
            self.fast_failure,
            settings=settings,
            clock=clock,
            store_host=self.address.store_host,
        )
        pulls = PullPath(
            settings=settings,
            store=store,
            topics=self.topics,
            groups=self.groups,
            offsets=self.offsets,
            consumers=self.consumers,
            filters=self.filters,
            stats=self.stats,
            clock=clock,
            rules=self.pull_processor.rules,
        )
        self.static_topics = StaticTopics(
            self.mappings,
            OtherBrokers(self.client, self.outer_api.topic_route, lambda: settings.broker.forward_timeout),
            registration=self.registration,
            tails=self.topic_tails,
            pulls=pulls,
            hold_service=self.hold_service,
        )
        self.static_topics.place(self.server)
        self.pull_processor.set_learn(self.static_topics.learn)
        acting = self.member.acting
        self.pull_processor.rules.set_group(
            is_acting_master=lambda: acting.is_acting_master, min_broker_id=lambda: acting.min_broker_id
        )
        self.server.batch_path = BatchPath(sends, pulls)
        self._build_message_kinds()

    def _build_message_kinds(self) -> None:
        """One call a part. Their put hooks run in this order, which is that of HookUtils.handleScheduleMessage: half
        messages, timers, delay levels."""
        self.transactions = Transactions(
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
                on_failure=self._on_failure,
            )
        )
        self.kinds.add(self.transactions, self.server)
        self.timed = TimedMessages(
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
        self.kinds.add(self.timed, self.server)
        self.delayed = DelayedMessages(
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
        self.kinds.add(self.delayed, self.server)
        SendBackProcessor(
            SendBackParts(
                settings=self._settings,
                own=self.address,
                store=self.store,
                acknowledgement=self.acknowledgement,
                topics=self.topics,
                retries=self.retries,
                levels=self.delayed.levels,
                hooks=self.put_hooks,
                rng=self._rng,
            )
        ).register(self.server)

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
                subscribing_differently=self.consumers.subscribing_differently,
            ).collect,
            ha_runtime_info=self.ha_service.runtime_info,
            topic_route=self.outer_api.topic_route,
            on_permission_changed=self.registration.register_all,
        )

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
