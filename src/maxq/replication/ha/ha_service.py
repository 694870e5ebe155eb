"""HAService: this broker's part in replication, whatever its role.

Every broker listens on haListenPort, and whoever connects there is a slave (`HAConnectionLink`, `HAConnection`). A
broker in the role SLAVE also connects to its master (`HAClientService`, `HAClient`). Senders that wait for slaves are
in `GroupTransfer`; how many slaves they wait for is `AckRule`'s.

No threads and no polling. An append pushes to all slaves before it is dispatched; a report lets senders go; timers do
heartbeats, housekeeping, reconnecting and timeouts.

Source:
    store/ha/DefaultHAService.java, GroupTransferService.java.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine

from maxq.config.message_store_config import MessageStoreConfig
from maxq.config.settings import BrokerSettings
from maxq.protocol.body.ha_runtime_info import HAClientRuntimeInfo, HAConnectionRuntimeInfo, HARuntimeInfo
from maxq.remoting.peer_addresses import PeerAddresses
from maxq.replication.ha.group_transfer import AckRule, GroupTransfer, kth_offset
from maxq.replication.ha.ha_client import FirstOffset, HAClient
from maxq.replication.ha.ha_client_service import HAClientService
from maxq.replication.ha.ha_connection import FROM_THE_BEGINNING, HAConnection, HAConnectionState
from maxq.replication.ha.ha_connection_link import HAConnectionLink
from maxq.replication.ha.log_mark import has_other_bytes, log_mark
from maxq.runtime.background import supervise
from maxq.runtime.interfaces import Clock
from maxq.store.message_store import MessageStore

log = logging.getLogger(__name__)

#: States of the connection of a slave that has said how much it has.
_BEGUN = (HAConnectionState.TRANSFER, HAConnectionState.SUSPEND)


class HAService:
    """Replicates the log to slaves and from a master; see the module's text. Implements `ReplicaAcks` of the broker's
    acknowledgement.

    Attributes:
        port: where it listens; 0 before `start`.
        peers: who may connect there.
        push2_slave_max_offset: the largest offset any slave ever had; never goes back.
        alive_replicas: asked for the number of live brokers of the group, this one included (enableSlaveActingMaster).
        client: the link to the master, in role SLAVE.
    """

    def __init__(
        self, settings: BrokerSettings, store: MessageStore, clock: Clock, *, first_offset: FirstOffset | None = None
    ) -> None:
        """
        Args:
            settings: read anew each time, so live updates take effect at once.
            store: loaded; its append listener is taken.
            first_offset: what a slave without a log asks for first; None: its master's last file.
        """
        self._settings = settings
        self._store = store
        self._clock = clock
        self._links: list[HAConnectionLink] = []
        self._left_at: dict[str, list[int]] = {}  # host → ends of the logs of its slaves that have gone
        self._slaves_of: dict[str, int] = {}  # host → most slaves of it that were connected at once, if several
        self._server: asyncio.Server | None = None
        self._group_transfer = GroupTransfer()
        self._timeout_timer: asyncio.TimerHandle | None = None
        self._began_at: dict[str, int] = {}  # HAConnection.began_at by host
        self._waiting_for_transfer: list[tuple[str, asyncio.Future[bool]]] = []
        self._on_joined: Callable[[], None] | None = None
        self._on_offer: Callable[[str], Coroutine[None, None, bool]] | None = None
        self._offer: asyncio.Task[None] | None = None
        self._rule = AckRule(settings, self._in_sync)
        self.alive_replicas: Callable[[], int] = lambda: settings.store.total_replicas
        self.push2_slave_max_offset = 0
        self.port = 0
        self._is_full = False  # the last connection was one too many, which is logged once
        self.peers = PeerAddresses(settings.store.peer_addresses, clock)
        client = HAClient(
            store, self._config, first_offset, clock.monotonic_ms(), own_port=lambda: self.port,
            broker_name=settings.broker.broker_name,
        )  # fmt: skip
        self.client = HAClientService(client, clock, lambda: self._transfer_began(""), self._joined)

    def _config(self) -> MessageStoreConfig:
        return self._settings.store

    # --- life ---

    async def start(self, host: str, port: int) -> int:
        """Listen, and as a SLAVE connect to haMasterAddress, if that is given. Returns the port, a free one for 0.

        Raises:
            OSError: the port is in use.
        """
        self._server = await asyncio.get_running_loop().create_server(self._accepted, host, port)
        self.port = int(self._server.sockets[0].getsockname()[1])
        self._store.add_append_listener(self._push)
        log.info("HA: listening on %s:%d; %s", host, self.port, self.rule())
        self.peers.log_who_may_connect(
            host, self._port_name, "can copy the whole log, and can acknowledge messages as a slave does"
        )
        if self._config().broker_role == "SLAVE":
            self.change_to_slave(self._config().ha_master_address)
        return self.port

    async def shutdown(self) -> None:
        """End all connections; waiting senders are told that no slave has their messages."""
        if self._server is not None:
            self._server.close()
        if self._offer is not None:
            self._offer.cancel()
            await asyncio.gather(self._offer, return_exceptions=True)
        await self.client.shutdown()
        self._close_connections("this broker shuts down")
        self._group_transfer.release()
        if self._timeout_timer is not None:
            self._timeout_timer.cancel()
            self._timeout_timer = None
        for _, future in self._waiting_for_transfer:
            _resolve(future, False)

    async def change_to_master(self) -> None:
        """Become master: the link to the master ends, and slaves keep theirs. Change brokerRole after it."""
        await self.client.shutdown()
        self.client.is_apart = False

    def change_to_slave(self, master_address: str) -> None:
        """Become slave: this broker's slaves connect again, and senders stop waiting. Change brokerRole before it.

        Args:
            master_address: host:port of the master's HA port; empty: wait for `update_master_ha_address`.
        """
        self._close_connections("this broker became a slave")
        self._group_transfer.release()
        self.client.set_master_address(master_address)
        self.client.start()

    def update_master_ha_address(self, address: str) -> None:
        """Set the master's HA address, host:port, as the name server or the master says it; empty: there is no master.
        If haMasterAddress is set, it is used instead of any address."""
        self.client.set_master_address(self._config().ha_master_address or address if address else "")

    def set_apart(self, is_apart: bool, listener: Callable[[bool, bool], None]) -> None:
        """Set whether this slave's log was found to be another than its master's before it was started, and the
        listener of HAClientService.on_apart."""
        self.client.is_apart, self.client.on_apart = is_apart, listener

    def set_joined_listener(self, listener: Callable[[], None]) -> None:
        """Set the listener that is called each time this slave and its master have found on a new connection that their
        logs agree."""
        self._on_joined = listener

    def set_offer_listener(self, listener: Callable[[str], Coroutine[None, None, bool]]) -> None:
        """Set the listener `await listener(address)` of a slave's offer to restore ranges that a start of this master
        has filled; `address` is host:port of the slave's HA port. If it returns True, a range was restored, and all
        slaves reconnect and are told."""
        self._on_offer = listener

    def set_service_failed(self, callback: Callable[[str, BaseException], None]) -> None:
        """Set the callback that is called as `callback(name, error)` when a task ends by an error. The process should
        then stop."""
        self.client.on_failed = callback

    # --- slaves ---

    @property
    def connections(self) -> list[HAConnection]:
        """The connections of slaves, oldest first."""
        return [link.connection for link in self._links]

    @property
    def connection_count(self) -> int:
        return len(self._links)

    def copied_by_all(self) -> int | None:
        """Return the physical offset below which every connected slave has the log; None if no slave is connected."""
        return min((connection.slave_ack_offset for connection in self.connections), default=None)

    def known_to_slaves(self) -> int | None:
        """Return the physical offset below which each slave has the log that has been connected since the start, also
        one that is away; -1 if none has. None: no slave may act as master (enableSlaveActingMaster, totalReplicas)."""
        if not self._settings.broker.enable_slave_acting_master or self._settings.store.total_replicas <= 1:
            return None
        copying = [one.replicated_offset for one in self.connections if one.replicated_offset >= 0]
        return min((*copying, *(offset for left_at in self._left_at.values() for offset in left_at)), default=-1)

    @property
    def suspended(self) -> list[str]:
        """Return why connected slaves get no data, one sentence each."""
        return [connection.reason for connection in self.connections if connection.reason]

    @property
    def _port_name(self) -> str:
        return f"haListenPort {self.port}"

    def admits(self, transport: asyncio.BaseTransport) -> bool:
        """Return whether this connection may stay. It may not if peerAddresses does not list its address, or if its
        descriptor is above highestDescriptor: higher ones are reserved for the store's files, which the broker
        cannot work without."""
        peer, own = transport.get_extra_info("peername") or ("", 0), transport.get_extra_info("socket")
        highest = self._settings.server.highest_descriptor
        if highest and own is not None and own.fileno() > highest:
            if not self._is_full:
                log.warning(
                    "%s is disconnected from %s: too many connections, this one's descriptor is %d, the limit is %d "
                    "(highestDescriptor); set peerAddresses, or raise the limit of open files (ulimit -n, LimitNOFILE)",
                    peer[0], self._port_name, own.fileno(), highest,
                )  # fmt: skip
            self._is_full = True
            return False
        self._is_full = False
        return self.peers.admits(str(peer[0]), self._port_name)

    def _accepted(self) -> HAConnectionLink:
        return HAConnectionLink(self, self._clock)

    def make_connection(self, client_address: str) -> HAConnection:
        """Implement LinkOwner, whose docstring says what is promised."""
        return HAConnection(
            self._store, self._config, client_address, self._clock.monotonic_ms(),
            broker_name=self._settings.broker.broker_name,
        )  # fmt: skip

    def on_open(self, link: HAConnectionLink) -> None:
        """Implement LinkOwner, whose docstring says what is promised."""
        self._count_slaves_of(link.connection.host)
        for other in self.connections:
            if other.host == link.connection.host:
                other.is_distinct = False
        self._links.append(link)
        log.info("slave %s connected, %d now", link.connection.client_address, len(self._links))

    def on_closed(self, link: HAConnectionLink) -> None:
        """Implement LinkOwner, whose docstring says what is promised."""
        connection = link.connection
        self._count_slaves_of(connection.host)
        self._links.remove(link)
        if connection.replicated_offset >= 0:
            self._left_at.setdefault(connection.host, []).append(connection.replicated_offset)
            if not connection.is_distinct:
                self._note_back(connection.host)  # a newer connection of the slave counts, or has counted
        connection.state = HAConnectionState.SHUTDOWN
        log.info(
            "slave %s gone (%s); it had acknowledged %d; %d connected", connection.client_address, link.close_reason,
            connection.slave_ack_offset, len(self._links),
        )  # fmt: skip

    def _count_slaves_of(self, host: str) -> None:
        """Note how many slaves of this host are here, before one of its connections comes or goes."""
        count = self._count_here(host)
        if count > 1:
            self._slaves_of[host] = max(count, self._slaves_of.get(host, 1))

    def _count_here(self, host: str) -> int:
        """Return how many slaves of this host are here that have begun to copy, as far as is known."""
        return sum(one.host == host and one.is_distinct and one.replicated_offset >= 0 for one in self.connections)

    def _note_back(self, host: str) -> bool:
        """Take a slave of this host for one that is back if more are here or gone than the host has, as far as is
        known. If several have gone, it counts as the one whose log was longest, so that no remaining one counts as
        having more than it has.

        Returns:
            False: it may be another connection of one that is here.
        """
        left_at = self._left_at.get(host)
        if not left_at:
            return True
        if len(left_at) + self._count_here(host) <= self._slaves_of.get(host, 1):
            return False
        left_at.remove(max(left_at))
        if not left_at:
            del self._left_at[host]
        return True

    def _close_connections(self, reason: str) -> None:
        for link in list(self._links):
            link.close(reason)

    def _push(self) -> None:
        for link in self._links:
            link.push()

    def on_report(self, link: HAConnectionLink) -> None:
        """Implement LinkOwner, whose docstring says what is promised."""
        connection = link.connection
        if not connection.is_counted and connection.replicated_offset >= 0:
            connection.is_counted = self._note_back(connection.host)
        began_at, connection.began_at = connection.began_at, 0
        if began_at and len(self._group_transfer):  # without waiters nobody needs copies of what was stored before
            self._began_at[connection.host] = began_at
        self.notify_transfer_some(connection.replicated_offset)
        if self._waiting_for_transfer and connection.state in _BEGUN:
            self._transfer_began(connection.host, connection.state is HAConnectionState.TRANSFER)

    def on_offer(self, link: HAConnectionLink, port: int) -> None:
        """Implement LinkOwner, whose docstring says what is promised."""
        is_busy = self._offer is not None and not self._offer.done()
        is_slave_like = link.connection.has_shown_record
        if self._on_offer is None or is_busy or not is_slave_like or self._config().broker_role == "SLAVE":
            link.close("the master does not need the ranges that it offers now")
        else:
            address = f"{link.connection.host}:{port}"
            self._offer = asyncio.get_running_loop().create_task(
                self._take(self._on_offer(address), link), name="HA offer"
            )
            supervise(self._offer, _goes_on_without)

    async def _take(self, offer: Coroutine[None, None, bool], link: HAConnectionLink) -> None:
        try:
            if await offer:
                self._close_connections("ranges that earlier starts marked as damaged are restored")
        finally:
            link.close("the ranges that it offered were examined")

    def notify_transfer_some(self, offset: int) -> None:
        """Note that some slave has everything below `offset`: raise push2SlaveMaxOffset, and answer senders that have
        enough copies."""
        self.push2_slave_max_offset = max(self.push2_slave_max_offset, offset)
        if len(self._group_transfer):
            self._group_transfer.on_acknowledged(self._acknowledged())

    def _acknowledged(self) -> list[int]:
        """Return the slaves' acknowledged offsets, the largest first; two connections that may be one slave's count
        once."""
        links = self._links
        if self._began_at:
            partial = self._partial_hosts()
            links = [link for link in links if link.connection.host not in partial]
        if len(links) == 1:
            return [links[0].connection.replicated_offset]
        all_offsets = [link.connection.replicated_offset for link in links]
        offsets = [link.connection.replicated_offset for link in links if link.connection.is_distinct]
        offsets.sort(reverse=True)
        if offsets:  # the largest one counts, whichever connection it came from
            offsets[0] = max(all_offsets)
        return offsets

    def _partial_hosts(self) -> set[str]:
        """Return the slaves that began with the last file while senders waited who still do: their logs may begin
        behind those senders' messages. They count again when those senders have their answers, after slaveTimeout at
        the latest."""
        first = self._group_transfer.first_end_offset()
        self._began_at = {host: at for host, at in self._began_at.items() if first is not None and first <= at}
        return set(self._began_at)

    @property
    def table_copies(self) -> int:
        """Return how many living slaves copy this broker's tables as well: MaxQ's whose logs have joined; two
        connections that may be one slave's count once."""
        return sum(connection.copies_tables and connection.is_distinct for connection in self.connections)

    def in_sync_replicas_num(self, master_offset: int) -> int:
        """Return the number of in-sync replicas: this broker, and the slaves that are less than haMaxGapNotInSync
        behind."""
        return 1 + sum(connection.is_in_sync(master_offset) for connection in self.connections)

    def _in_sync(self) -> int:
        return min(self.alive_replicas(), self.in_sync_replicas_num(self._store.max_physical_offset))

    # --- senders ---

    def needed_acks(self) -> int:
        """Return the number of copies, this broker's included, for which a send waits under the present settings."""
        return self._rule.needed_acks()

    def rule(self) -> str:
        """Return in a sentence what sends wait for."""
        return self._rule.sentence()

    def facts(self) -> dict[str, str]:
        """Return the facts `role` and `sends` of what a broker prints when it is ready."""
        role, sends = self._rule.role_and_sends()
        return {"role": role, "sends": sends}

    def refusal(self) -> str | None:
        """Return why nothing may be stored now (IN_SYNC_REPLICAS_NOT_ENOUGH); None if messages may be stored."""
        return self._rule.refusal()

    def asks(self) -> bool:
        """Return whether a send has to wait for slaves under the current settings and number of slaves in sync."""
        return self._rule.needed_acks() > 1

    def when(self, end_offset: int, done: Callable[[bool], None]) -> bool:
        """Call `done(True)` when enough slaves have everything below `end_offset`, or `done(False)` after slaveTimeout.
        Returns False without a call of `done` if they have it already, or if no slave is required."""
        needed = self._rule.needed_acks()
        if needed <= 1 or kth_offset(self._acknowledged(), needed) >= end_offset:
            return False
        deadline_ms = self._clock.monotonic_ms() + self._config().slave_timeout
        self._group_transfer.wait(end_offset, needed, deadline_ms, done)
        if self._timeout_timer is None:
            self._arm_timeout()
        return True

    def _arm_timeout(self) -> None:
        deadline_ms = self._group_transfer.next_deadline_ms()
        self._timeout_timer = None
        if deadline_ms is not None:
            wait_ms = max(deadline_ms - self._clock.monotonic_ms(), 1)
            self._timeout_timer = asyncio.get_running_loop().call_later(wait_ms / 1000, self._on_timeout)

    def _on_timeout(self) -> None:
        self._group_transfer.on_time(self._clock.monotonic_ms())
        if len(self._group_transfer):
            self._group_transfer.on_acknowledged(self._acknowledged())
        self._arm_timeout()

    # --- the master's link ---

    @property
    def is_client_connected(self) -> bool:
        """Whether this slave has a link to its master."""
        return self.client.is_connected

    @property
    def joins_master(self) -> bool:
        """Return whether this slave's log, as far as it goes, is the log of the connected master. An empty log is part
        of any other. False without a connection, because the master may come back with another log."""
        return self.client.client.is_joined or self._store.last_record_offset < 0

    @property
    def is_apart(self) -> bool:
        """Return whether this slave's log was found to differ from its master's, and has not been found equal since:
        offsets that it knows then belong to other messages than the master's."""
        return self.client.is_apart

    def log_mark(self) -> str:
        """Return the check sum of the end of this broker's log, by which others see whether theirs is the same
        (log_mark.py)."""
        return log_mark(self._store)

    def has_other_log(self, mark: str) -> bool:
        """Return whether the log with this mark is found to be another than this broker's."""
        return has_other_bytes(self._store, mark)

    def hear_master_mark(self, mark: str) -> None:
        """Compare this slave's log with its master's, which has this mark, if the link has not done so: a master that
        has less than the slave sends nothing that could be compared."""
        if not self.client.client.is_joined and has_other_bytes(self._store, mark):
            self.client.note_other_log()

    def _joined(self) -> None:
        if self._on_joined is not None:
            self._on_joined()

    async def wait_until_transfer(self, host: str, timeout_ms: int) -> bool:
        """Wait until this slave's link to its master exists; on a master, until that of a slave from `host` does.
        Returns False after `timeout_ms`, or at once for a slave that has more than this master, which sends it
        nothing."""
        is_slave = self._config().broker_role == "SLAVE"
        wanted = "" if is_slave else host
        if is_slave and self.is_client_connected:
            return True
        states = {one.state for one in self.connections if one.host == wanted}
        if states.intersection(_BEGUN):
            return HAConnectionState.TRANSFER in states
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting_for_transfer.append((wanted, future))
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                return await future
        except TimeoutError:
            return False
        finally:
            self._waiting_for_transfer.remove((wanted, future))

    def _transfer_began(self, host: str, is_sent: bool = True) -> None:
        for wanted, future in self._waiting_for_transfer:
            if wanted == host:
                _resolve(future, is_sent)

    # --- facts ---

    def runtime_info(self) -> HARuntimeInfo:
        """Return the answer of GET_BROKER_HA_STATUS (907)."""
        master_offset = self._store.max_physical_offset
        if self._config().broker_role == "SLAVE":
            return HARuntimeInfo(ha_client_runtime_info=self._client_info())
        connections = [self._connection_info(connection, master_offset) for connection in self.connections]
        return HARuntimeInfo(
            master=True,
            master_commit_log_max_offset=master_offset,
            in_sync_slave_nums=sum(one.in_sync for one in connections),
            ha_connection_info=connections,
        )

    def _connection_info(self, connection: HAConnection, master_offset: int) -> HAConnectionRuntimeInfo:
        acked = connection.slave_ack_offset
        if acked == FROM_THE_BEGINNING:  # the slave has no log and asks for all of it
            acked = 0
        return HAConnectionRuntimeInfo(
            addr=connection.client_address,
            slave_ack_offset=acked,
            diff=master_offset - acked,
            in_sync=connection.is_in_sync(master_offset),
            transferred_byte_in_second=connection.sent.bytes_per_second(self._clock.monotonic_ms()),
            transfer_from_where=connection.next_offset,
        )

    def _client_info(self) -> HAClientRuntimeInfo:
        client, now_ms = self.client.client, self._clock.monotonic_ms()
        to_wall_ms = self._clock.wall_ms() - now_ms
        return HAClientRuntimeInfo(
            master_addr=self.client.master_address or None,
            transferred_byte_in_second=client.received.bytes_per_second(now_ms),
            max_offset=self._store.max_physical_offset,
            last_read_timestamp=client.last_read_ms + to_wall_ms if self.client.connects else 0,
            last_write_timestamp=client.last_write_ms + to_wall_ms if self.client.connects else 0,
        )


def _resolve(future: "asyncio.Future[bool]", outcome: bool) -> None:
    if not future.done():
        future.set_result(outcome)


def _goes_on_without(name: str, error: BaseException) -> None:
    """Ignore the failure, because the slave offers the range again."""
    log.critical("%s failed", name, exc_info=error)
