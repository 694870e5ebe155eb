"""BrokerController: starts a broker and stops it. What it consists of: broker_base.py, broker_parts.py.

Order of a start: configuration tables, store (recovery), listening, schedules, registration with the name servers.
Order of a stop: unregister, answer what is unfinished, stop listening, store, configuration tables.

Source:
    broker/BrokerController.java.
"""

import asyncio
import logging
from collections.abc import Callable, Collection

from maxq.access.access_control import AccessControl
from maxq.broker.assembly.broker_parts import BrokerParts
from maxq.broker.assembly.schedule import BrokerSchedule
from maxq.broker.filter.filter_expressions import load_sql92
from maxq.broker.identity.broker_identity import resolve
from maxq.broker.identity.role import SLAVE, check_role
from maxq.broker.persistent_manager import PersistentManager
from maxq.codes import RequestCode
from maxq.config.settings import BrokerSettings
from maxq.runtime.blocking import TABLES, end_threads, run_blocking
from maxq.runtime.holds import CURRENT
from maxq.runtime.interfaces import Clock, Disk, Rng

log = logging.getLogger(__name__)

_FIRST_REGISTRATION_SECONDS = 6.0  # a name server that does not answer must not keep the broker from serving
_VIP_DISTANCE = 2
#: What the VIP port does not serve.
_VIP_EXCLUDED = (
    RequestCode.PULL_MESSAGE,
    RequestCode.LITE_PULL_MESSAGE,
    RequestCode.PEEK_MESSAGE,
    RequestCode.POP_MESSAGE,
    RequestCode.NOTIFICATION,
    RequestCode.POLLING_INFO,
)


class BrokerController(BrokerParts):
    """One broker."""

    def __init__(
        self,
        settings: BrokerSettings,
        *,
        disk: Disk,
        clock: Clock,
        rng: Rng,
        access: AccessControl | None = None,
    ) -> None:
        """Nothing is opened yet. `settings` have an address and a store folder (config.host.broker_on). `access`:
        shared with another server of this process.

        Raises:
            ConfigError: brokerRole and brokerId do not fit.
        """
        check_role(settings)
        super().__init__(settings, disk=disk, clock=clock, rng=rng, on_failure=self._service_failed, access=access)
        self._running = False
        self._failure_listener: Callable[[str, BaseException], None] = self._stop_after_failure
        self._stopping: asyncio.Task[None] | None = None
        self._registering: asyncio.Task[None] | None = None

    @property
    def port(self) -> int:
        """Where clients connect."""
        return self.address.port

    def set_failure_listener(self, listener: Callable[[str, BaseException], None]) -> None:
        """`listener(service, error)` is called when a service of the store has ended by an error, and should have the
        process shut down: a broker that no longer flushes must not go on answering. Without a listener the broker shuts
        itself down."""
        self._failure_listener = listener

    # ---- starting ---------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Load, recover, listen, register. On return clients can send, and every name server that answers in time knows
        this broker: once one does, the others are waited for a moment only.

        Raises:
            StoreRefusedError: the store cannot be used: which file, what is wrong, what to do.
            ConfigError: a configuration table cannot be read, haListenPort is in use, or another broker has this one's
                name and id.
            OSError: the port is in use, or the disk refuses. What was opened is closed again.
        """
        CURRENT.set(self.server.holds)
        try:
            await self.pages.start()
            self.exports.start()
            await self._resolve_address()
            self.refresh_name_servers()
            taken_name = asyncio.get_running_loop().create_task(self.registration.refuse_taken_name())
            try:
                await self._load()
                await taken_name
            finally:
                taken_name.cancel()
            await self._listen()
            await self.role.listen()
            await self.kinds.load()
        except BaseException:
            await self._close()
            raise
        self._running = True
        load_sql92()
        self.hold_service.start()
        self.schedule = BrokerSchedule(self.scheduled_parts())
        self.schedule.start()
        self.role.start()
        self.access.start()
        self.kinds.start()
        if self.dledger is None:
            self.log_care.start()
        else:
            self.dledger.follow(self.change_to_master, self.change_to_slave)
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
        await run_blocking(self.store_owner.check, role)
        for table in self._tables():
            await run_blocking(table.load)
        await run_blocking(self.access.load)
        self.topics.create_system_topics()
        if self._settings.broker.enable_create_sys_group:
            self.groups.create_system_groups()
        await run_blocking(self.store.load)  # long after a crash; the loop hears signals meanwhile
        if self.table_records is not None:
            self.table_records.start()
        self.offsets.follow_deletions(self.store.deletions.since, self.store.deletions.newest, self.store.max_offset)
        self.store.set_deletion_listener(self._take_deletion)
        if role != SLAVE:  # who becomes the master later looks then (RoleService)
            self.store.reader.may_lack_messages |= self.store_owner.was_slave
            self.offsets.not_beyond(self.store.max_offset)
        await run_blocking(self.store_owner.record, role)
        self.topic_tails.refresh_all()
        self.compaction_topics.refresh_all()
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
        self.build_processors()

    async def _listen_vip(self, host: str, port: int) -> None:
        """Old clients use a second port. Doing without it harms nobody else, so its failure stops nothing."""
        try:
            await self.server.listen(host, port, excluded_codes=_VIP_EXCLUDED)
        except OSError as error:
            log.warning("the VIP port %d is not served: %s; clients with vipChannelEnabled cannot send", port, error)

    async def _register_first(self) -> None:
        loop = asyncio.get_running_loop()
        self._registering = loop.create_task(self.member.acting.go_online())
        known = loop.create_task(self.registration.known())
        try:
            await asyncio.wait(
                [self._registering, known], timeout=_FIRST_REGISTRATION_SECONDS, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            known.cancel()
        if self.registration.is_isolated:
            log.warning("preparations to go online have not ended within %g s; going on", _FIRST_REGISTRATION_SECONDS)
        elif not self._registering.done():
            silent = ", ".join(self.registration.silent_servers)
            log.warning("no answer from name server %s yet; going on, it is told when it answers", silent)
        self.member.acting.start()

    # ---- changing the role ------------------------------------------------------------------------------------

    async def change_to_master(self, role: str = "SYNC_MASTER") -> None:
        """Become this group's master while running; see RoleService."""
        await self.role.change_to_master(role)
        if self.table_records is not None:
            self.table_records.write()
        self.member.acting.role_changed()

    async def change_to_slave(self, broker_id: int, master_address: str = "", ha_address: str = "") -> None:
        """Become a slave while running; see RoleService."""
        await self.role.change_to_slave(broker_id, master_address, ha_address)
        self.member.acting.role_changed()

    # ---- stopping ---------------------------------------------------------------------------------------------

    def _take_deletion(self, topics: Collection[str], incarnation: int) -> None:
        """Topics were deleted at that physical offset, here or on the master."""
        self.offsets.take_deletion(topics, incarnation)
        self.transactions.metrics.forget(topics)

    async def shutdown(self) -> None:
        """Leave the name servers, finish what is under way, and put everything on the disk. What was acknowledged is
        durable on return, and the next start is a clean one."""
        if not self._running:
            return
        self._running = False
        if self._registering is not None:
            self._registering.cancel()
        if self.dledger is not None:
            await self.dledger.leave()
        await self.member.acting.shutdown()
        await self.registration.unregister()
        await self.role.stop()
        await self.schedule.stop()
        self.ids_notifier.close()
        await self.hold_service.stop()
        await self.send_processor.drain()
        await self.pull_processor.drain()
        await self.server.shutdown()
        await self.kinds.shutdown()
        await self._close()
        log.info("broker %s has ended", self.address.broker_name)

    def _not_ready(self) -> list[str]:
        if not self._running:
            return ["the broker is starting or ending"]
        return super()._not_ready()

    def _service_failed(self, service: str, error: BaseException) -> None:
        self._failure_listener(service, error)

    def _stop_after_failure(self, service: str, error: BaseException) -> None:
        log.critical("%s failed, the broker stops: %s", service, error)
        self._stopping = asyncio.get_running_loop().create_task(self.shutdown())

    async def _close(self) -> None:
        """Close whatever is open, in the order of a shutdown; also after a start that failed half way."""
        await self.exports.shutdown()
        await self.pages.shutdown()
        await self.server.shutdown()
        if self.send_relay is not None:
            await self.send_relay.stop()
        await self.access.shutdown()
        await self.ha_service.shutdown()
        await self.log_care.shutdown()
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
        for table in self._tables():
            try:
                await TABLES.run(table.persist)
            except OSError as error:
                log.error("%s could not be written: %s", type(table).__name__, error)

    def _tables(self) -> list[PersistentManager]:
        return [self.topics, self.mappings, self.groups, self.offsets, self.request_modes, self.filters]
