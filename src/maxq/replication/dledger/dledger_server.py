"""DLedgerServer: one member of a group. Feeds the core (replication/raft) with requests, answers, time and what the
store has made durable, and does what the core then wants, in its order: sends, stores terms, commits.

    store = open_ledger(…)                                  # store/dledger: one for the bare server, or the broker's
    server = DLedgerServer(config, store, clock=clock, rng=rng)
    server.set_role_listener(…)
    await server.start(host, port)
    server.when_committed(store.append(body), done)

Order of things. A member's own appends reach the peers once in a turn of the loop, however many arrivals there were in
it; what the store syncs meanwhile, it syncs meanwhile. The committer (committer.py) reports committed entries. Nothing
is answered before what it promises is durable: the core keeps such answers back.

Source:
    openmessaging/dledger DLedgerServer.java, DLedgerRpcNettyService.java.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable
from typing import Final, TypeVar, TypeVarTuple

from maxq.config.netty_client_config import NettyClientConfig
from maxq.config.netty_server_config import NettyServerConfig
from maxq.errors import MaxQError, StoreFailedError
from maxq.protocol.dledger.dledger_messages import (
    DLedgerResponseCode,
    PushRequest,
    PushType,
    Reply,
    Request,
    TransferRequest,
)
from maxq.protocol.dledger.ledger import HardState, Ledger
from maxq.remoting.client import RemotingClient
from maxq.remoting.connection import Connection
from maxq.remoting.peer_addresses import PeerAddresses
from maxq.remoting.server import RemotingServer
from maxq.replication.dledger.commit_waiters import Done
from maxq.replication.dledger.committer import Committer
from maxq.replication.dledger.config import DLedgerConfig
from maxq.replication.dledger.member_port import MemberPort, answer_token
from maxq.replication.dledger.peer_link import PeerLink
from maxq.replication.dledger.term_writer import TermWriter
from maxq.replication.raft.node import RaftNode
from maxq.replication.raft.outputs import (
    Alarm,
    Answer,
    BarrierWanted,
    Commit,
    Output,
    ReadReady,
    Role,
    RoleChange,
    SendRequest,
    StoreTerm,
)
from maxq.runtime.interfaces import Clock, Rng
from maxq.store.files.disk_room import lacks_room

log: Final = logging.getLogger(__name__)

_LOOK_SECONDS: Final = 0.25
_RESIGN_SECONDS: Final = 1.0

_T = TypeVar("_T")
Ts = TypeVarTuple("Ts")
RoleListener = Callable[[RoleChange], None]


class DLedgerServer:
    """One member of a group; see the module's docstring.

    Attributes:
        port: where it listens; 0 before.
        peers: the addresses that may connect there.
        member_port: handles the requests there.
    """

    def __init__(
        self,
        config: DLedgerConfig,
        store: Ledger,
        *,
        clock: Clock,
        rng: Rng,
        server_config: NettyServerConfig | None = None,
        client_config: NettyClientConfig | None = None,
        peers: PeerAddresses | None = None,
    ) -> None:
        """
        Args:
            store: loaded; this server is its only user from now on.
            peers: who may connect; None: everybody.
        """
        self.config = config
        self.store = store
        self._clock = clock
        raft = config.raft()
        self.node = RaftNode(raft, store, store.term_state, rng, clock.monotonic_ms())
        self.peers = peers or PeerAddresses("", clock)
        self.server = RemotingServer(server_config or NettyServerConfig(), clock=clock, peers=self.peers)
        self.client = RemotingClient(client_config or NettyClientConfig(), clock=clock, rng=rng)
        self._links = {
            peer: PeerLink(
                peer, config.peers[peer], self.client, clock,
                timeout_ms=raft.rpc_timeout_ms, on_reply=self._replied, on_lost=self._link_lost,
            )
            for peer in raft.others
        }  # fmt: skip
        self.client.add_listener(_OwnConnections(self._links.values()))
        self._committer = Committer(store, self._fail)
        self.waiters = self._committer.waiters
        self._reads: dict[object, Callable[[DLedgerResponseCode, int], None]] = {}
        self._role_listeners: list[RoleListener] = []
        self._on_failure: Callable[[str, BaseException], None] = _stop_nothing
        # first and last entry of this leader that the core has not been told of
        self._appended: tuple[int, int] | None = None
        self._is_draining = False
        self._is_running = False
        self._terms = TermWriter(store, self._term_stored, self._fail)
        self._lacks_barrier = False  # this leader's disk had no room for the first entry of its term
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0
        self._late_timer: asyncio.TimerHandle | None = None
        self.port = 0
        store.set_listeners(self._own_appended, self._durable)
        self.member_port = MemberPort(config, self, self.server)

    # --- life ---------------------------------------------------------------------------------------------------------

    async def start(self, host: str, port: int) -> int:
        """Listen, and take part in the group from now on. Returns the port, a free one for 0.

        Raises:
            OSError: the port is in use.
        """
        self.port = await self.server.start(host, port)
        self._is_running = True
        log.info(
            "DLedger: %s of group %s listens on %s:%d; term %d, entries %d … %d, committed %d", self.config.self_id,
            self.config.group, host, self.port, self.store.term_state.term, self.store.begin_index,
            self.store.end_index, self.store.committed_index,
        )  # fmt: skip
        self.peers.log_who_may_connect(
            host, f"the port of DLedger member {self.config.self_id}, {self.port},",
            "can speak as any member: depose the leader, write to the log, or cut its uncommitted end",
        )  # fmt: skip
        self._drain()
        self._check_late_later()
        return self.port

    async def shutdown(self) -> None:
        """Leave the group. Waiters are told that the outcome is unknown. The store stays open."""
        self._is_running = False
        self._committer.finish()
        for handle in (self._timer, self._late_timer):
            if handle is not None:
                handle.cancel()
        await self._terms.close()
        for link in self._links.values():
            await link.close()
        self.waiters.fail(DLedgerResponseCode.TERM_CHANGED)
        await self.server.shutdown()
        await self.client.close()

    def set_role_listener(self, listener: RoleListener) -> None:
        """Set the listener of changes of role, term or leader. It is called in order, on the event loop."""
        self._role_listeners.append(listener)

    def set_commit_listener(self, listener: Callable[[int], None]) -> None:
        """Set the listener that is called as `listener(index)` when everything up to `index` is committed and readers
        of the store see it."""
        self._committer.add_listener(listener)

    def set_service_failed(self, callback: Callable[[str, BaseException], None]) -> None:
        """Set the callback `callback(name, error)` for errors of this member's disk. The member cannot continue then,
        and the process should stop."""
        self._on_failure = callback

    # --- what a client or the broker may ask --------------------------------------------------------------------------

    @property
    def role(self) -> Role:
        return self.node.role

    @property
    def is_leader(self) -> bool:
        return self.node.role is Role.LEADER

    @property
    def leader_id(self) -> str | None:
        """Return the id of the leader, as far as this member knows."""
        return self.node.leader_id

    @property
    def leader_is_java(self) -> bool:
        """Return whether the present leader is known to be a Java member."""
        return self.node.leader_is_java

    def promise_refusal(self) -> DLedgerResponseCode | None:
        """Returns why this member may not act as the group's leader now; None if it may."""
        return self.node.promise_refusal(self._clock.monotonic_ms())

    def append_refusal(self) -> DLedgerResponseCode | None:
        """Returns why nothing may be appended here now; None if appends are possible."""
        return self.node.append_refusal(self._clock.monotonic_ms())

    def when_committed(self, end_position: int, done: Done) -> bool:
        """Call `done(SUCCESS)` when the entry that ends at this position of the log is committed, or `done(code)` when
        that is not known after maxWaitAckTimeMs or can no longer become known. Returns False without a call of
        `done` if the entry is committed already."""
        if self.store.committed_position >= end_position:
            return False
        self.waiters.wait(end_position, self._clock.monotonic_ms() + self.config.max_wait_ack_time_ms, done)
        return True

    async def commit_outcome(self, end_position: int) -> DLedgerResponseCode:
        """Wait as `when_committed` does, for a coroutine."""
        future: asyncio.Future[DLedgerResponseCode] = asyncio.get_running_loop().create_future()
        if not self.when_committed(end_position, lambda code: _resolve(future, code)):
            return DLedgerResponseCode.SUCCESS
        return await future

    async def read_index(self) -> tuple[DLedgerResponseCode, int]:
        """Return the index that a linearizable read must show (ReadIndex); code NOT_LEADER if this member cannot
        tell."""
        future: asyncio.Future[tuple[DLedgerResponseCode, int]] = asyncio.get_running_loop().create_future()
        token = object()
        self._reads[token] = lambda code, index: _resolve(future, (code, index))
        self._hear(self.node.read_index, token)
        return await future

    async def transfer(self, transferee: str) -> DLedgerResponseCode:
        """Transfer the leadership to a member. Returns SUCCESS when that member leads."""
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        own = self.config.self_id
        request = TransferRequest(
            group=self.config.group, remote_id=own, local_id=own, leader_id=self.node.leader_id, term=self.node.term,
            transfer_id=own, transferee_id=transferee,
        )  # fmt: skip
        self._hear(self.node.request, future, request)
        return (await future).code

    async def resign(self) -> None:
        """Hand over the leadership before this member stops: if it leads, the living follower with the most entries is
        to lead. Takes a second at most; if that fails, the others elect when they miss this one."""
        status = self.status()
        live = [peer for peer in self._links if status.get(f"live.{peer}") == "true"]
        if self.is_leader and live:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_RESIGN_SECONDS):
                    await self.transfer(max(live, key=self.node.mark))

    def status(self) -> dict[str, str]:
        """Return the state for operators: role, term, leader, indexes, and the progress of each peer."""
        status = {key: str(value) for key, value in self.node.status().items()}
        for link in self._links.values():
            status[f"{link.peer}.connected"] = str(link.is_connected).lower()
        return status

    # --- inputs -------------------------------------------------------------------------------------------------------

    def requested(self, token: object, request: Request) -> None:
        """Handle a request for the core; see Member (member_port.py)."""
        self._hear(self.node.request, token, request)
        if isinstance(request, PushRequest) and request.type is PushType.TRUNCATE and not self.is_leader:
            for link in self._links.values():
                link.drop_unsent()

    def _replied(self, request_id: int, reply: Reply | None) -> None:
        if self._is_running:
            self._hear(self.node.reply, request_id, reply)

    def _link_lost(self, peer: str) -> None:
        """Handle that this member's connection to another one broke."""
        if self._is_running:
            self._hear(self.node.link_lost, peer)
            self._look_for(peer)

    def went(self, peer: str) -> None:
        """Handle that the connection over which `peer` last sent a heartbeat has ended (Member, member_port.py)."""
        if self._is_running:
            self._look_for(peer)

    def _look_for(self, peer: str) -> None:
        """Check whether a member is gone. The system closes all connections of a process that ends; while one is open
        the process may live, and lead."""
        if not self._links[peer].is_connected and not self.member_port.hears(peer):
            self._hear(self.node.peer_lost, peer)

    def _own_appended(self, first: int, last: int) -> None:
        """Note an append that the core itself caused. The core is told at the end of this turn of the event loop, or
        before its next other input."""
        if self._appended is None:
            self._appended = first, last
            asyncio.get_running_loop().call_soon(self._tell_appended)
        else:
            self._appended = self._appended[0], last

    def _tell_appended(self) -> None:
        if self._appended is not None:
            self._drain()

    def _before_input(self) -> None:
        if self._appended is not None:
            (first, last), self._appended = self._appended, None
            self.node.appended(first, last, self._clock.monotonic_ms())

    def _durable(self, index: int) -> None:
        self._hear(self.node.durable, index)

    def _hear(self, hear: Callable[[*Ts, int], None], *args: *Ts) -> None:
        """Give one input to the core and carry out its outputs. An error of this member's own disk stops the member,
        whichever input caused the access."""
        try:
            self._before_input()
            hear(*args, self._clock.monotonic_ms())
        except (StoreFailedError, OSError) as error:
            self._fail(error)
        self._drain()

    # --- outputs ------------------------------------------------------------------------------------------------------

    def _drain(self) -> None:
        """Carry out the outputs of the core, including those that result from carrying them out."""
        if self._is_draining or not self._is_running:
            return
        self._is_draining = True
        try:
            while True:
                self._before_input()
                outputs = self.node.take()
                if not outputs:
                    break
                for output in outputs:
                    self._do(output)
        except (MaxQError, OSError) as error:
            self._fail(error)
        finally:
            self._is_draining = False
        self._arm_timer()

    def _do(self, output: Output) -> None:
        match output:
            case SendRequest(peer, request_id, message):
                self._links[peer].send(request_id, message)
            case Answer(token, reply):
                answer_token(token, reply)
            case Commit(index):
                if self.is_leader:
                    self._committer.at_once(index)
                else:
                    self._committer.soon(index)
            case StoreTerm(state):
                self._terms.put(state)
            case RoleChange(role):
                self._role_changed(output, role)
            case BarrierWanted(term):
                self.store.begin_leading(term)
                self._append_barrier()
            case ReadReady(token, code, index):
                self._reads.pop(token)(code, index)
            case Alarm(text):
                log.critical("DLedger: %s of group %s: %s", self.config.self_id, self.config.group, text)

    def _role_changed(self, change: RoleChange, role: Role) -> None:
        self._committer.finish()
        log.info(
            "DLedger: %s of group %s is %s in term %d; leader %s", self.config.self_id, self.config.group, role.value,
            change.term, change.leader_id or "unknown",
        )  # fmt: skip
        self._keep_leader()
        if role is not Role.LEADER:
            self._lacks_barrier = False
            self.store.end_leading()
            self.waiters.fail(DLedgerResponseCode.TERM_CHANGED)
        for listener in self._role_listeners:
            listener(change)

    def _keep_leader(self) -> None:
        """Keep a connection to the leader that is followed: its end is a hint that the leader's process ended."""
        link = self._links.get(self.node.leader_id or "")
        if link is not None and self.node.role is Role.FOLLOWER and self._is_running:
            link.keep(self.config.group, self.config.self_id)

    def _append_barrier(self) -> None:
        """Append the first entry of a leader's term. Without room on the disk the core retries later, as long as this
        member leads."""
        try:
            self.store.append(self.store.barrier())
        except OSError as error:
            if not lacks_room(error):
                raise
            self._lacks_barrier = True
        else:
            self._lacks_barrier = False

    def _term_stored(self, state: HardState) -> None:
        self._hear(self.node.term_stored, state)

    def _fail(self, error: BaseException) -> None:
        """Stop this member, which can neither vote nor answer any more. Does nothing while it ends already."""
        if not self._is_running:
            return
        self._is_running = False
        log.critical("DLedger: %s of group %s stops", self.config.self_id, self.config.group, exc_info=error)
        self.waiters.fail(DLedgerResponseCode.DISK_ERROR)
        self._on_failure("DLedger", error)

    # --- time ---------------------------------------------------------------------------------------------------------

    def _arm_timer(self) -> None:
        """Arm the one timer for the earliest time at which the core asked to be called."""
        if not self._is_running:
            return
        due_ms = self.node.next_tick()
        if self._timer is not None:
            if self._timer_ms <= due_ms:
                return
            self._timer.cancel()
        wait_ms = max(due_ms - self._clock.monotonic_ms(), 0)
        self._timer_ms = due_ms
        self._timer = asyncio.get_running_loop().call_later(wait_ms / 1000, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        if not self._is_running:
            return
        if self.node.next_tick() <= self._clock.monotonic_ms():
            self._hear(self.node.tick)
        else:
            self._drain()

    def _check_late_later(self) -> None:
        self._late_timer = asyncio.get_running_loop().call_later(_LOOK_SECONDS, self._check_late)

    def _check_late(self) -> None:
        """Handle what is late: requests without answer, senders without quorum. Also tell the store which files
        retention must keep, and tell the core whether the disk has room."""
        now_ms = self._clock.monotonic_ms()
        for link in self._links.values():
            link.expire(now_ms)
        self._keep_leader()
        self.waiters.expire(now_ms)
        self.store.retain_from(self.node.retain_index)
        if self._is_running:
            self.node.room(self.store.has_room)
            self._barrier_again()
            self._check_late_later()

    def _barrier_again(self) -> None:
        if self._lacks_barrier:
            try:
                self._append_barrier()
            except (MaxQError, OSError) as error:
                self._fail(error)


class _OwnConnections:
    """Tells links which of this member's outgoing connections have ended (ConnectionListener)."""

    def __init__(self, links: Iterable[PeerLink]) -> None:
        self._links = links

    def on_connect(self, connection: Connection) -> None: ...

    def on_close(self, connection: Connection) -> None:
        for link in self._links:
            link.closed(connection)

    def on_idle(self, connection: Connection) -> None: ...

    def on_exception(self, connection: Connection) -> None: ...


def _resolve(future: "asyncio.Future[_T]", value: _T) -> None:
    if not future.done():
        future.set_result(value)


def _stop_nothing(service: str, error: BaseException) -> None:
    """Do nothing: the failure listener of a member for which none was set."""
