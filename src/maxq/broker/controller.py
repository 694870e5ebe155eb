"""BrokerController: builds a broker from its parts, starts it and stops it.

Order of a start: configuration tables, store (recovery), listening, schedules, registration with the name servers.
Order of a stop: unregister, answer what is unfinished, stop listening, store, configuration tables. Parts get what they
use; none of them knows the controller.

Source:
    broker/BrokerController.java; broker-api.md §23, §27.
"""

import asyncio
import logging
from collections.abc import Callable
from pathlib import PurePath

from maxq.broker.acknowledgement import Acknowledgement
from maxq.broker.acting.assembly import GroupMember, GroupParts
from maxq.broker.attributes import QUEUE_TYPE
from maxq.broker.batch_path import BatchPath
from maxq.broker.broker_identity import BrokerAddress, resolve
from maxq.broker.client.consumer_ids_notifier import ConsumerIdsNotifier
from maxq.broker.client.consumer_manager import ConsumerManager
from maxq.broker.client.housekeeping import ClientHousekeepingService
from maxq.broker.client.producer_manager import ProducerManager
from maxq.broker.client.rebalance_lock_manager import RebalanceLockManager
from maxq.broker.fast_failure import FastFailure
from maxq.broker.longpolling.pull_request_hold_service import HeldPullsOfClosed, PullRequestHoldService
from maxq.broker.offset.lmq_consumer_offset_manager import create_consumer_offset_manager
from maxq.broker.outer_api import BrokerOuterApi
from maxq.broker.persistent_manager import PersistentManager
from maxq.broker.processors.assembly import AdminParts, register_admin
from maxq.broker.processors.message_request_mode_manager import FILE_NAME as REQUEST_MODE_FILE
from maxq.broker.processors.message_request_mode_manager import MessageRequestModeManager
from maxq.broker.processors.pull_message import PullMessageProcessor
from maxq.broker.processors.pull_subscription import PullSubscriptions
from maxq.broker.processors.query_message import QueryMessageProcessor
from maxq.broker.processors.reply_message import ReplyMessageProcessor
from maxq.broker.processors.send_message import BATCH_CQ, SendMessageProcessor
from maxq.broker.pull_path import PullPath
from maxq.broker.registration import BrokerRegistration
from maxq.broker.role import check_role
from maxq.broker.runtime_info import RuntimeInfo
from maxq.broker.schedule import BrokerSchedule, ScheduledParts
from maxq.broker.send_path import SendPath
from maxq.broker.slave.carried_files import CarriedFiles
from maxq.broker.slave.master_api import MasterApi
from maxq.broker.slave.role_service import RoleParts, RoleService
from maxq.broker.slave.slave_synchronize import SlaveSynchronize, SlaveTables
from maxq.broker.stats.broker_stats import BrokerStats
from maxq.broker.stats.broker_stats_manager import BrokerStatsManager
from maxq.broker.stats.topic_puts import TopicPuts
from maxq.broker.store_owner import StoreOwner
from maxq.broker.subscription.subscription_group_manager import FILE_NAME as GROUP_FILE
from maxq.broker.subscription.subscription_group_manager import SubscriptionGroupManager
from maxq.broker.topic.topic_config_manager import FILE_NAME as TOPIC_FILE
from maxq.broker.topic.topic_config_manager import TopicConfigManager
from maxq.broker.topic.topic_tails import TopicTails
from maxq.codes import RequestCode
from maxq.config.settings import BrokerSettings
from maxq.protocol.message import UniqIdGenerator
from maxq.remoting.client import RemotingClient
from maxq.remoting.server import RemotingServer
from maxq.remoting.tls import ClientTls, ServerTls
from maxq.replication.ha.full_copy import FullCopy
from maxq.replication.ha.ha_service import HAService
from maxq.replication.ha.log_care import LogCare
from maxq.runtime.blocking import run_blocking
from maxq.runtime.interfaces import Clock, Disk, Rng
from maxq.store.message_store import MessageStore
from maxq.store.store_context import StoreIdentity

log = logging.getLogger(__name__)

_FIRST_REGISTRATION_SECONDS = 6.0  # a name server that does not answer must not keep the broker from serving
_VIP_DISTANCE = 2
#: What the VIP port does not serve (broker-api §11.3).
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
        address: name and address of this broker; its port is 0 until `start` has returned.
    """

    def __init__(self, settings: BrokerSettings, *, disk: Disk, clock: Clock, rng: Rng) -> None:
        """Nothing is opened yet. `settings` have an address and a store folder (config.host.broker_on).

        Raises:
            ConfigError: brokerRole and brokerId do not fit.
        """
        check_role(settings)
        self._settings = settings
        self._disk = disk
        self._clock = clock
        self._rng = rng
        broker = settings.broker
        self.address = BrokerAddress(
            broker.broker_cluster_name,
            broker.broker_name,
            broker.broker_id,
            broker.broker_ip1 or "127.0.0.1",
            ha_ip=broker.broker_ip2,
            ha_port=settings.store.ha_listen_port,
        )
        self._running = False
        self._on_failure: Callable[[str, BaseException], None] = self._stop_after_failure
        self._stopping: asyncio.Task[None] | None = None
        self._registering: asyncio.Task[None] | None = None
        self._build_tables()
        self._build_services()

    @property
    def port(self) -> int:
        """Where clients connect."""
        return self.address.port

    def set_failure_listener(self, listener: Callable[[str, BaseException], None]) -> None:
        """`listener(service, error)` is called when a service of the store has ended by an error, and should have the
        process shut down: a broker that no longer flushes must not go on answering. Without a listener the broker shuts
        itself down."""
        self._on_failure = listener

    # ---- building ---------------------------------------------------------------------------------------------

    def _build_tables(self) -> None:
        settings, disk, clock = self._settings, self._disk, self._clock
        folder = PurePath(settings.store.store_path_root_dir) / "config"
        self.topics = TopicConfigManager(disk, folder / TOPIC_FILE, settings=settings, clock=clock)
        self.groups = SubscriptionGroupManager(disk, folder / GROUP_FILE, settings=settings, clock=clock)
        self.offsets = create_consumer_offset_manager(disk, folder, settings=settings, clock=clock)
        self.request_modes = MessageRequestModeManager(disk, folder / REQUEST_MODE_FILE)
        self.carried_files = CarriedFiles(disk, folder)
        self.consumers = ConsumerManager(settings=settings, clock=clock)
        self.producers = ProducerManager(settings=settings, clock=clock)
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
        self.acknowledgement = Acknowledgement(self.store)
        self.hold_service = PullRequestHoldService(
            self.store, clock=clock, long_polling=lambda: settings.broker.long_polling_enable
        )
        self.store.set_arrival_listener(self.hold_service.messages_arrived)
        self.store.set_batch_topics(self._is_batch_topic)
        self.store.set_service_failed(lambda name, error: self._on_failure(name, error))
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
        self._build_replication()

    def _build_replication(self) -> None:
        settings, clock = self._settings, self._clock
        self.slave_synchronize = SlaveSynchronize(
            MasterApi(self.client),
            SlaveTables(
                topics=self.topics,
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
        self.ha_service.set_service_failed(lambda name, error: self._on_failure(name, error))
        self.acknowledgement.set_replicas(self.ha_service)
        self.log_care = LogCare(
            self.store,
            self._disk,
            clock,
            config=lambda: settings.store,
            master_address=lambda: self.ha_service.client.master_address,
        )
        settings.on_change(lambda changes: self.log_care.config_changed())
        self._store_owner = StoreOwner(self._disk, settings.store, self.address)
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
                owner=self._store_owner,
            )
        )

    def _master_connected(self) -> None:
        """This slave's link to its master is there."""
        self.slave_synchronize.wake()
        self.log_care.master_connected()

    def _is_batch_topic(self, topic: str) -> bool:
        config = self.topics.select_topic_config(topic)
        return config is not None and config.attributes.get(QUEUE_TYPE) == BATCH_CQ

    def _build_processors(self) -> None:
        """Once the address is known."""
        settings, clock, store = self._settings, self._clock, self.store
        self._build_group_member()
        unique_ids = UniqIdGenerator(
            self._rng.below(1 << 16), self.address.resolved_ip or self.address.ip, clock, self._rng
        )
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
        )
        self.pull_processor = PullMessageProcessor(
            settings=settings,
            store=store,
            topics=self.topics,
            groups=self.groups,
            offsets=self.offsets,
            subscriptions=PullSubscriptions(settings, self.consumers, self.groups),
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
            stats=self.stats,
            clock=clock,
            rules=self.pull_processor.rules,
        )
        self.pull_processor.set_learn(pulls.learn)
        acting = self.member.acting
        self.pull_processor.rules.set_group(
            is_acting_master=lambda: acting.is_acting_master, min_broker_id=lambda: acting.min_broker_id
        )
        self.server.batch_path = BatchPath(sends, pulls)

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
            groups=self.groups,
            offsets=self.offsets,
            consumers=self.consumers,
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
            ).collect,
            ha_runtime_info=self.ha_service.runtime_info,
            topic_route=self.outer_api.topic_route,
            on_permission_changed=self.registration.register_all,
        )

    # ---- starting ---------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Load, recover, listen, register. On return clients can send, and every name server that answers knows this
        broker.

        Raises:
            StoreRefusedError: the store cannot be used: which file, what is wrong, what to do.
            ConfigError: a configuration table cannot be read, or haListenPort is in use.
            OSError: the port is in use, or the disk refuses. What was opened is closed again.
        """
        try:
            await self._resolve_address()
            await self._load()
            await self._listen()
            await self.role.listen()
        except BaseException:
            await self._close()
            raise
        self._running = True
        self.hold_service.start()
        self.schedule = BrokerSchedule(self._scheduled_parts())
        self.schedule.start()
        self.role.start()
        self.log_care.start()
        try:
            await self._register_first()
        except BaseException:  # told to end while a name server takes its time
            await self.shutdown()
            raise
        log.info("%s", self.start_line())

    def start_line(self) -> str:
        """Who and where this broker is, its role, and what a send waits for."""
        return self.role.start_line()

    async def _resolve_address(self) -> None:
        self.address.resolved_ip = await resolve(self.address.ip)

    async def _load(self) -> None:
        role = self._settings.store.broker_role
        await run_blocking(self._store_owner.check, role)
        for table in self._tables():
            await run_blocking(table.load)
        self.topics.create_system_topics()
        if self._settings.broker.enable_create_sys_group:
            self.groups.create_system_groups()
        await run_blocking(self.store.load)  # long after a crash; the loop hears signals meanwhile
        await run_blocking(self._store_owner.record, role)
        self.topic_tails.refresh_all()
        self.store.start()

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
        self._build_processors()

    async def _listen_vip(self, host: str, port: int) -> None:
        """Old clients use a second port. Doing without it harms nobody else, so its failure stops nothing."""
        try:
            await self.server.listen(host, port, excluded_codes=_VIP_EXCLUDED)
        except OSError as error:
            log.warning("the VIP port %d is not served: %s; clients with vipChannelEnabled cannot send", port, error)

    async def _register_first(self) -> None:
        self._refresh_name_servers()
        self._registering = asyncio.get_running_loop().create_task(self.member.acting.go_online())
        done, _ = await asyncio.wait([self._registering], timeout=_FIRST_REGISTRATION_SECONDS)
        if not done:
            is_isolated = self.registration.is_isolated
            what = "preparations to go online have not ended" if is_isolated else "some name server has not answered"
            log.warning("%s within %g s; going on", what, _FIRST_REGISTRATION_SECONDS)
        self.member.acting.start()

    def _refresh_name_servers(self) -> None:
        addresses = self._settings.broker.namesrv_addr.split(";")
        self.client.update_name_servers([address.strip() for address in addresses if address.strip()])

    def _scheduled_parts(self) -> ScheduledParts:
        return ScheduledParts(
            settings=self._settings,
            clock=self._clock,
            store=self.store,
            stats=self.stats,
            broker_stats=self.broker_stats,
            offsets=self.offsets,
            groups=self.groups,
            registration=self.registration,
            refresh_name_servers=self._refresh_name_servers,
            housekeeping=self.housekeeping,
            hold_service=self.hold_service,
            fast_failure=self.fast_failure,
        )

    # ---- changing the role ------------------------------------------------------------------------------------

    async def change_to_master(self, role: str = "SYNC_MASTER") -> None:
        """Become this group's master while running; see RoleService."""
        await self.role.change_to_master(role)
        self.member.acting.role_changed()

    async def change_to_slave(self, broker_id: int, master_address: str = "", ha_address: str = "") -> None:
        """Become a slave while running; see RoleService."""
        await self.role.change_to_slave(broker_id, master_address, ha_address)
        self.member.acting.role_changed()

    # ---- stopping ---------------------------------------------------------------------------------------------

    async def shutdown(self) -> None:
        """Leave the name servers, finish what is under way, and put everything on the disk. What was acknowledged is
        durable on return, and the next start is a clean one."""
        if not self._running:
            return
        self._running = False
        if self._registering is not None:
            self._registering.cancel()
        await self.member.acting.shutdown()
        await self.registration.unregister()
        await self.role.stop()
        await self.schedule.stop()
        self.ids_notifier.close()
        await self.hold_service.stop()
        await self.send_processor.drain()
        await self.pull_processor.drain()
        await self._close()
        log.info("broker %s has ended", self.address.broker_name)

    def _stop_after_failure(self, service: str, error: BaseException) -> None:
        log.critical("%s failed, the broker stops: %s", service, error)
        self._stopping = asyncio.get_running_loop().create_task(self.shutdown())

    async def _close(self) -> None:
        """Close whatever is open, in the order of a shutdown; also after a start that failed half way."""
        await self.server.shutdown()
        await self.ha_service.shutdown()
        await self.log_care.shutdown()
        await self.store.shutdown()
        if self.address.port:
            await self._persist_tables()
        await self.client.close()

    async def _persist_tables(self) -> None:
        for table in self._tables():
            try:
                await run_blocking(table.persist)
            except OSError as error:
                log.error("%s could not be written: %s", type(table).__name__, error)

    def _tables(self) -> list[PersistentManager]:
        return [self.topics, self.groups, self.offsets, self.request_modes]
