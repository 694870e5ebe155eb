"""DLedgerClient: append to, read and steer a DLedger group as a client.

It asks any member for METADATA to learn who leads, and asks again when the answer is NOT_LEADER or does not come.

Source:
    openmessaging/dledger client/DLedgerClient.java.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Final, TypeVar

from maxq.config.netty_client_config import NettyClientConfig
from maxq.errors import DLedgerError, MaxQError, RemotingConnectError, RemotingError
from maxq.protocol.dledger.dledger_codec import decode_reply, encode_request, request_code
from maxq.protocol.dledger.dledger_messages import (
    AppendReply,
    AppendRequest,
    DLedgerEntry,
    DLedgerResponseCode,
    GetReply,
    GetRequest,
    MetadataReply,
    MetadataRequest,
    Reply,
    Request,
    TransferReply,
    TransferRequest,
)
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.remoting.client import RemotingClient
from maxq.runtime.interfaces import Clock, Rng

_T = TypeVar("_T")
_RETRY_SECONDS: Final = 0.05
_ASK_AGAIN: Final = frozenset(
    (DLedgerResponseCode.NOT_LEADER, DLedgerResponseCode.LEADER_NOT_READY, DLedgerResponseCode.LEADER_TRANSFERRING)
)


class DLedgerClient:
    """A client of one DLedger group. Close it after use."""

    def __init__(self, group: str, peers: Mapping[str, str], *, clock: Clock, rng: Rng, timeout_ms: int = 3000) -> None:
        """
        Args:
            peers: id → `host:port` of all members.
            timeout_ms: of each request; twice as long for finding a leader.
        """
        self._group = group
        self._peers = dict(peers)
        self._clock = clock
        self._timeout_ms = timeout_ms
        self._remoting = RemotingClient(NettyClientConfig(), clock=clock, rng=rng)
        self._leader: str | None = None

    async def close(self) -> None:
        """Close the connections to all members."""
        await self._remoting.close()

    async def metadata(self, peer: str) -> MetadataReply:
        """Return one member's view of the group and of itself.

        Raises:
            RemotingError: it cannot be reached, or does not answer.
            DLedgerError: it is of another group, or is not this member.
        """
        reply = await self._ask(peer, MetadataRequest(), MetadataReply)
        if reply.code is not DLedgerResponseCode.SUCCESS:
            raise self._refused(reply, peer)
        return reply

    async def leader(self) -> str:
        """Return the id of the leader according to the members. Waits for an election that is under way.

        Raises:
            DLedgerError: METADATA_ERROR: no member knows a leader within twice the time of a request.
        """
        if self._leader is not None:
            return self._leader
        deadline_ms = self._clock.monotonic_ms() + 2 * self._timeout_ms
        while self._clock.monotonic_ms() < deadline_ms:
            for peer in self._peers:
                try:
                    reply = await self.metadata(peer)
                except MaxQError:
                    continue
                if reply.leader_id in self._peers:
                    self._leader = reply.leader_id
                    return self._leader
            await asyncio.sleep(_RETRY_SECONDS)
        text = f"no member of group {self._group} knows a leader ({', '.join(self._peers.values())})"
        raise DLedgerError(DLedgerResponseCode.METADATA_ERROR, text)

    async def append(self, body: bytes) -> AppendReply:
        """Append one entry. Returns when it is committed.

        Raises:
            DLedgerError: refused, or (`is_unknown`) it may be in the log.
            RemotingError: no answer: it may be in the log.
        """
        return await self._ask_leader(AppendRequest(body=body), AppendReply)

    async def get(self, index: int) -> DLedgerEntry | None:
        """Return a committed entry; None if there is none with this index.

        Raises:
            DLedgerError, RemotingError: nobody can say.
        """
        try:
            reply = await self._ask_leader(GetRequest(begin_index=index), GetReply, is_read=True)
        except DLedgerError as error:
            if error.code == DLedgerResponseCode.INDEX_OUT_OF_RANGE:
                return None
            raise
        return reply.entries[0] if reply.entries else None

    async def transfer(self, transferee: str) -> None:
        """Make the leader hand over to a member; returns when that member leads.

        Raises:
            DLedgerError: it lags too far behind, is not there, or did not become leader.
        """
        leader = await self.leader()
        term = await self._term()
        request = TransferRequest(transfer_id=leader, transferee_id=transferee, leader_id=leader, term=term)
        reply = await self._ask(leader, request, TransferReply, timeout_ms=2 * self._timeout_ms)
        self._leader = None
        if reply.code is not DLedgerResponseCode.SUCCESS:
            raise self._refused(reply, leader)

    async def _term(self) -> int:
        """Return the group's term, which a transfer must name. MaxQ's members report it to clients, Java's do not."""
        terms = [-1]
        for peer in self._peers:
            try:
                terms.append(int(((await self.metadata(peer)).status or {}).get("term", -1)))
            except MaxQError:
                continue
        return max(terms)

    async def _ask_leader(self, request: Request, kind: type[_T], *, is_read: bool = False) -> _T:
        deadline_ms = self._clock.monotonic_ms() + 2 * self._timeout_ms
        while True:
            leader = await self.leader()
            try:
                reply = await self._ask(leader, request, kind)
            except RemotingError as error:
                self._leader = None
                was_sent = not is_read and not isinstance(error, RemotingConnectError)
                if was_sent or self._clock.monotonic_ms() >= deadline_ms:
                    raise
            else:
                assert isinstance(reply, AppendReply | GetReply), "only these are asked of leaders"
                if reply.code is DLedgerResponseCode.SUCCESS:
                    return reply
                self._leader = None
                if reply.code not in _ASK_AGAIN or self._clock.monotonic_ms() >= deadline_ms:
                    raise self._refused(reply, leader)
            await asyncio.sleep(_RETRY_SECONDS)

    async def _ask(self, peer: str, request: Request, kind: type[_T], *, timeout_ms: int | None = None) -> _T:
        address = self._peers[peer]
        named = replace(request, group=self._group, remote_id=peer)
        command = RemotingCommand(request_code(request), body=encode_request(named))
        response = await self._remoting.invoke(address, command, timeout_ms or self._timeout_ms)
        reply = decode_reply(command.code, response.body)
        assert isinstance(reply, kind), "the code says what the answer is"
        return reply

    def _refused(self, reply: Reply, peer: str) -> DLedgerError:
        address = self._peers[peer]
        return DLedgerError(reply.code, f"{peer} of group {self._group} answered {reply.code.name}", address=address)
