"""RoleService: what follows a broker's role. Replication, the slave's copies of its master's tables, its id at the name
servers; and how a role changes while the broker runs.

A slave learns where its master is from the answers to its registrations. While the link to it is not open, it asks
again every two seconds, so a master that comes back elsewhere is found at once and not at the next registration. A
configured haMasterAddress is never replaced.

Source:
    broker/BrokerController.java (handleRegisterBrokerResult, changeToMaster, changeToSlave), controller/ReplicasManager
    .java.
"""

import logging
from dataclasses import replace
from typing import Final, Protocol

from maxq.broker.bundles import Environment, Messages, Tables
from maxq.broker.identity.outer_api import RegisterResult
from maxq.broker.identity.registration import BrokerRegistration
from maxq.broker.identity.role import MASTER_ID, SLAVE
from maxq.broker.identity.store_owner import StoreOwner
from maxq.broker.longpolling.pull_request_hold_service import PullRequestHoldService
from maxq.broker.slave.slave_synchronize import SlaveSynchronize
from maxq.errors import ConfigError
from maxq.runtime.blocking import TABLES
from maxq.runtime.periodic import PeriodicTasks

log = logging.getLogger(__name__)

_ASK_SECONDS: Final = 2.0


class Replication(Protocol):
    """The part of HAService that a change of the broker's role needs."""

    @property
    def is_client_connected(self) -> bool:
        """Whether this slave has a link to its master."""
        ...

    def update_master_ha_address(self, address: str) -> None:
        """Set the address, host:port, of the master's HA port, as name servers report it."""
        ...

    async def start(self, host: str, port: int) -> int:
        """Listen for slaves. Returns the port; raises OSError if it is in use."""
        ...

    def rule(self) -> str:
        """Return in a sentence what sends wait for."""
        ...

    def facts(self) -> dict[str, str]:
        """Return the facts `role` and `sends` of what a broker prints when it is ready."""
        ...

    async def change_to_master(self) -> None:
        """End the link to the master; slaves keep theirs. Change brokerRole afterwards."""
        ...

    def change_to_slave(self, address: str) -> None:
        """Follow the master with the HA address `address` from now on."""
        ...


class RoleService:
    """The role of a broker and the services that depend on it. Runs between `start` and `stop`."""

    def __init__(
        self,
        env: Environment,
        tables: Tables,
        messages: Messages,
        replication: Replication,
        synchronize: SlaveSynchronize,
        registration: BrokerRegistration,
        hold_service: PullRequestHoldService,
        owner: StoreOwner,
    ) -> None:
        self._settings = env.settings
        self._synchronize = synchronize
        self._address = env.own
        self._replication = replication
        self._store = messages.store
        self._registration = registration
        self._hold_service = hold_service
        self._offsets = tables.offsets
        self._owner = owner
        self._tasks = PeriodicTasks()
        self._is_running = False

    @property
    def is_slave(self) -> bool:
        return self._settings.store.broker_role == SLAVE

    @property
    def master_address(self) -> str:
        """Return the address of the master; empty while it is not known."""
        return self._synchronize.master_address

    async def listen(self) -> None:
        """Listen for slaves, in any role. haListenPort 0 is the port above listenPort, or a free one if that is 0, too.

        Raises:
            ConfigError: the port is in use.
        """
        settings = self._settings
        host, clients = settings.server.bind_address, settings.broker.listen_port
        port = settings.store.ha_listen_port or (clients + 1 if clients else 0)
        try:
            self._address.ha_port = await self._replication.start(host, port)
        except (OSError, OverflowError) as error:
            raise ConfigError(
                f"haListenPort={port}: this broker cannot listen for slaves on {host}:{port} ({error}); set "
                "haListenPort to a port that is free"
            ) from error

    def rule(self) -> str:
        """Return in a sentence what a send waits for."""
        return self._replication.rule()

    def facts(self) -> dict[str, str]:
        """Return the role and what sends wait for, as a broker prints it when it is ready."""
        return self._replication.facts()

    def start_line(self) -> str:
        """Return the line printed at a start: name and address of this broker, its role, and what a send waits for."""
        address = self._address
        text = (
            f"broker {address.broker_name} of {address.cluster} serves at {address.address}, slaves at "
            f"{address.ha_address}; {self.rule()}"
        )
        if not self.is_slave:
            return text
        master = self._settings.store.ha_master_address or "the master that the name servers tell"
        return f"{text}; id {address.broker_id}, copies {master}"

    def start(self) -> None:
        """Start what the broker's role at start needs; a slave begins to copy its master's tables."""
        self._is_running = True
        self._tasks.every("master address", _ASK_SECONDS, self._ask_master)
        if self.is_slave:
            self._synchronize.start()

    async def stop(self) -> None:
        """Stop the services that `start` began, except replication, which its owner stops."""
        self._is_running = False
        await self._tasks.stop()
        await self._synchronize.stop()

    def registered(self, result: RegisterResult) -> None:
        """Adopt a name server's answer to a registration. Fields it leaves empty are kept: a master that is away for a
        while comes back to the same address, and other name servers may still know it."""
        if not self.is_slave:
            return
        if result.master_address:
            self.set_master_address(result.master_address)
        if result.ha_address:
            self._replication.update_master_ha_address(result.ha_address)

    def set_master_address(self, address: str) -> None:
        """Set the address of the master, which this slave's refusals name; empty: not known."""
        self._synchronize.set_master_address(address)
        self._store.set_master_address(address)

    async def _ask_master(self) -> None:
        is_known = self._replication.is_client_connected and self._synchronize.master_address
        if self.is_slave and not is_known:
            await self._registration.ask_master()

    # --- changes ------------------------------------------------------------------------------------------------------

    async def change_to_master(self, role: str = "SYNC_MASTER") -> None:
        """Accept messages from now on, with broker id 0. The tables continue from the copies of the master's."""
        log.warning("this broker becomes %s (it was %s)", role, self._settings.store.broker_role)
        await self._synchronize.stop()
        self._offsets.slave_commits.forget()
        self.set_master_address("")
        await self._replication.change_to_master()
        await self._take(role, MASTER_ID)
        self._hold_service.notify_all()
        self._registration.register_all()

    async def change_to_slave(self, broker_id: int, master_address: str = "", ha_address: str = "") -> None:
        """Accept no more messages, and copy this master's.

        Args:
            broker_id: at least 1.
            master_address, ha_address: where the master answers and where its log is, `host:port`; empty: the name
                servers say it.
        """
        assert broker_id > MASTER_ID, "a slave has an id of its own"
        whose = f" of {master_address}" if master_address else "; the name servers say who its master is"
        log.log(logging.INFO if self.is_slave else logging.WARNING, "this broker is slave %d%s", broker_id, whose)
        await self._take(SLAVE, broker_id)
        self._replication.change_to_slave(self._settings.store.ha_master_address or ha_address)
        self.set_master_address(master_address)
        if self._is_running:
            self._synchronize.start()
        self._registration.register_all()

    async def _take(self, role: str, broker_id: int) -> None:
        settings = self._settings
        settings.store = replace(settings.store, broker_role=role)
        settings.broker = replace(settings.broker, broker_id=broker_id)
        self._address.broker_id = broker_id
        self._store.update_config(settings.store)
        self._offsets.begin_as_master(self._store.max_physical_offset)
        # a role change before dispatch has caught up (the disk was full) leaves queues that are too short
        if role != SLAVE and not self._store.dispatch_behind_bytes:
            self._offsets.not_beyond(self._store.max_offset)
        await TABLES.run(self._owner.record, role)
