"""DLedgerBroker: the broker's member of its group. It stands where HAService stands in a broker that replicates
otherwise: the log is copied by the group, and where the master is, the name servers say.

Source:
    broker/BrokerController.java (initialize), store/dledger/DLedgerCommitLog.java (constructor).
"""

import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Final

from maxq.broker.bundles import Environment
from maxq.broker.dledger.member_settings import member_config, slave_id
from maxq.broker.dledger.quorum_acknowledgement import QuorumAcknowledgement
from maxq.broker.dledger.role_changes import DLedgerRoleChangeHandler
from maxq.broker.identity.role import SLAVE
from maxq.broker.processors.acknowledgement import Acknowledgement
from maxq.config.netty_server_config import NettyServerConfig
from maxq.config.settings import BrokerSettings
from maxq.errors import ConfigError
from maxq.protocol.dledger.dledger_messages import DLedgerResponseCode
from maxq.remoting.client import split_address
from maxq.remoting.peer_addresses import PeerAddresses
from maxq.replication.dledger.dledger_server import DLedgerServer
from maxq.replication.raft.outputs import Role, RoleChange
from maxq.store.message_store import MessageStore

log: Final = logging.getLogger(__name__)

#: Time after a change of leader during which a slave keeps asking the name servers where the master is.
_ASK_MS: Final = 15_000
#: Time after the start of a member during which clients may still send to it because it led before.
_REMEMBERED_MS: Final = 20_000


class DLedgerBroker:
    """The broker's part of DLedger. It is made with the broker and joins its group when the store is loaded.

    Attributes:
        member: this broker's member; None before `start`.
    """

    def __init__(
        self,
        env: Environment,
        store: MessageStore,
        acknowledgement: QuorumAcknowledgement,
        peers: PeerAddresses,
    ) -> None:
        """`peers` says who may connect to the member's port."""
        self._settings = env.settings
        self._store = store
        self._acknowledgement = acknowledgement
        self._clock = env.clock
        self._rng = env.rng
        self._peers = peers
        self._on_failure = env.on_failure
        self._config = member_config(env.settings.store)
        self._roles: DLedgerRoleChangeHandler | None = None
        self._leader_changed_ms = 0
        self._has_led = False
        self._remembered_until_ms = 0
        self._on_leader_changed: Callable[[], None] = lambda: None
        self.member: DLedgerServer | None = None

    # --- life ---------------------------------------------------------------------------------------------------------

    async def start(self, host: str, port: int) -> int:
        """Listen to the other members, at this member's address in dLegerPeers. Returns `port`, which replication that
        is not DLedger's would listen on.

        Raises:
            ConfigError: the member's port is in use.
        """
        ledger = self._store.ledger
        assert ledger is not None, "enableDLegerCommitLog makes a store that is a ledger"
        member = DLedgerServer(
            self._config,
            ledger,
            clock=self._clock,
            rng=self._rng,
            server_config=NettyServerConfig(highest_descriptor=self._settings.server.highest_descriptor),
            peers=self._peers,
        )
        _, own_port = split_address(self._config.self_address)
        if not ledger.is_empty:
            self._remembered_until_ms = self._clock.monotonic_ms() + _REMEMBERED_MS
        member.set_service_failed(self._on_failure)
        member.set_role_listener(self._leader_changed)
        self.member = member
        self._roles = DLedgerRoleChangeHandler(member, slave_id(self._settings.store))
        self._acknowledgement.set_quorum(member)
        try:
            await member.start(host, own_port)
        except OSError as error:
            raise ConfigError(
                f"dLegerPeers={self._settings.store.dleger_peers}: {self._config.self_id} cannot listen on "
                f"{host}:{own_port} ({error}); free the port, or give this member another one on all members"
            ) from error
        return port

    def follow(
        self, change_to_master: Callable[[], Awaitable[None]], change_to_slave: Callable[[int], Awaitable[None]]
    ) -> None:
        """Change the broker's role with that of its member from now on."""
        assert self._roles is not None, "it has started"
        self._roles.start(change_to_master, change_to_slave, self._refuse_writes)

    def _refuse_writes(self) -> None:
        settings = self._settings
        settings.store = replace(settings.store, broker_role=SLAVE)
        self._store.update_config(settings.store)

    async def leave(self) -> None:
        """Hand the leadership to another member if one can lead, and ignore later changes of role. The member itself
        keeps running."""
        if self._roles is not None:
            if self.member is not None:
                await self.member.resign()
            await self._roles.stop()

    async def shutdown(self) -> None:
        """Stop the tasks that follow changes of the leader, and leave the DLedger group."""
        if self._roles is not None:
            await self._roles.stop()
        if self.member is not None:
            await self.member.shutdown()

    def doubt(self) -> str | None:
        """Return why a broker that takes itself for the leader's cannot be sure of it (see Authority); None if it is
        sure."""
        code = DLedgerResponseCode.NOT_LEADER if self.member is None else self.member.promise_refusal()
        if code is None:
            return None
        if code is DLedgerResponseCode.LEADER_TRANSFERRING:
            return "the leadership of its DLedger group is being handed over"
        return "no majority of its DLedger group takes it for the leader now, and another one may lead"

    @property
    def has_tables_in_log(self) -> bool:
        """Return whether topics, groups, mappings and request modes come from the log alone (TableRecords): unless the
        leader is a Java member, which writes none of them."""
        return self.member is None or not self.member.leader_is_java

    def set_leader_listener(self, listener: Callable[[], None]) -> None:
        """Set the listener that is called when another member becomes the leader, or when there is none."""
        self._on_leader_changed = listener

    def _leader_changed(self, change: RoleChange) -> None:
        self._leader_changed_ms = self._clock.monotonic_ms()
        self._has_led |= change.role is Role.LEADER
        self._on_leader_changed()

    def may_be_taken_for_leader(self) -> bool:
        """Return whether a client may have a route that names this broker as the master: if this broker has led since
        its start, and for 20 s after a start with entries, because it may have led before."""
        return self._has_led or self._clock.monotonic_ms() < self._remembered_until_ms

    # --- what RoleService asks of replication -------------------------------------------------------------------------

    @property
    def is_client_connected(self) -> bool:
        """Return whether this slave is sure where the master is. A name server may name the old one for a while."""
        return self._clock.monotonic_ms() - self._leader_changed_ms > _ASK_MS

    def update_master_ha_address(self, address: str) -> None:
        """Does nothing: the group knows its members."""

    def rule(self) -> str:
        """Return what sends wait for, as a sentence."""
        facts = self.facts()
        return f"{facts['role']} ({facts['members']}): sends {facts['sends']}"

    def facts(self) -> dict[str, str]:
        """Return role, members and what sends wait for, as a broker prints it when it is ready."""
        raft = self._config.raft()
        return {
            "role": f"member {self._config.self_id} of DLedger group {self._config.group}",
            "members": ", ".join(f"{peer}-{address}" for peer, address in self._config.peers.items()),
            "sends": f"wait until {raft.quorum} of {len(raft.peers)} members have the message on their disks",
        }

    async def change_to_master(self) -> None:
        """Does nothing: the group has copied the log."""

    def change_to_slave(self, address: str) -> None:
        """Does nothing: the leader finds its followers."""


def acknowledgement_of(settings: BrokerSettings, store: MessageStore) -> Acknowledgement:
    """Return what sends of this broker wait for: the group's quorum, or disk and slaves."""
    if settings.store.enable_dleger_commit_log:
        return QuorumAcknowledgement(store.flusher)
    return Acknowledgement(store.flusher)


def dledger_broker_of(
    env: Environment, store: MessageStore, acknowledgement: Acknowledgement, peers: PeerAddresses
) -> DLedgerBroker | None:
    """Make the broker's DLedger member; None without enableDLegerCommitLog. `peers` as of DLedgerBroker."""
    if not isinstance(acknowledgement, QuorumAcknowledgement):
        return None
    return DLedgerBroker(env, store, acknowledgement, peers)
