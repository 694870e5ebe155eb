"""Requests of clients to a bare DLedger server: APPEND and GET. (METADATA every member answers.)

An append is answered when it is committed. A get shows committed entries only, and only after a round of heart-beats
that began after it came has found a quorum (ReadIndex): Java shows what may be lost again (S13, S16).

Source:
    openmessaging/dledger DLedgerServer.java (handleAppend, handleGet).
"""

from typing import Final

from maxq.errors import RemoteProtocolError, StoreError
from maxq.protocol.dledger.dledger_codec import decode_request
from maxq.protocol.dledger.dledger_messages import (
    AppendReply,
    AppendRequest,
    DLedgerRequestCode,
    DLedgerResponseCode,
    GetReply,
    GetRequest,
    PullReply,
)
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.remoting.server import Connection
from maxq.replication.dledger.dledger_server import DLedgerServer
from maxq.replication.dledger.member_port import answer

_CODE: Final = DLedgerResponseCode


class ClientRequests:
    """Answers the client requests of a bare DLedger server (append, get)."""

    def __init__(self, member: DLedgerServer) -> None:
        self._member = member
        member.server.register(DLedgerRequestCode.APPEND, self._append)
        member.server.register(DLedgerRequestCode.GET, self._get)
        member.server.register(DLedgerRequestCode.PULL, self._pull)

    async def _append(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        try:
            request = decode_request(command.code, command.body)
        except RemoteProtocolError:
            return answer(command, AppendReply(group=self._member.config.group, code=_CODE.UNEXPECTED_ARGUMENT))
        assert isinstance(request, AppendRequest), "the code says so"
        return answer(command, await self.append(request))

    async def append(self, request: AppendRequest) -> AppendReply:
        """Append one body and wait until it is committed."""
        member, store = self._member, self._member.store
        refusal = member.member_port.refusal(request) or member.append_refusal()
        if refusal is None and request.body is None:
            refusal = _CODE.REQUEST_WITH_EMPTY_BODYS
        if refusal is not None or request.body is None:
            return self._append_reply(request, refusal or _CODE.REQUEST_WITH_EMPTY_BODYS)
        term = member.node.term
        try:
            index = store.append(request.body)
        except StoreError:  # the body is longer than an entry may be
            return self._append_reply(request, _CODE.UNEXPECTED_ARGUMENT)
        except OSError:
            return self._append_reply(request, _CODE.DISK_FULL)
        position, size, _ = store.unit(index)
        code = await member.commit_outcome(position + size)
        return AppendReply(
            group=request.group, remote_id=request.remote_id, leader_id=member.node.leader_id, term=term, code=code,
            index=index, pos=position,
        )  # fmt: skip

    def _append_reply(self, request: AppendRequest, code: DLedgerResponseCode) -> AppendReply:
        return AppendReply(
            group=request.group, remote_id=request.remote_id, leader_id=self._member.node.leader_id, code=code
        )

    async def _get(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        try:
            request = decode_request(command.code, command.body)
        except RemoteProtocolError:
            return answer(command, GetReply(group=self._member.config.group, code=_CODE.UNEXPECTED_ARGUMENT))
        assert isinstance(request, GetRequest), "the code says so"
        return answer(command, await self.get(request))

    async def get(self, request: GetRequest) -> GetReply:
        """Returns the committed entry at an index."""
        member = self._member
        code = member.member_port.refusal(request)
        if code is None:
            code, index = await member.read_index()
            store = member.store
            if code is _CODE.SUCCESS:
                if store.begin_index <= request.begin_index <= min(index, store.committed_index):
                    return GetReply(group=request.group, entries=(store.entry(request.begin_index),))
                code = _CODE.INDEX_OUT_OF_RANGE
        return GetReply(group=request.group, remote_id=request.remote_id, leader_id=member.node.leader_id, code=code)

    def _pull(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        return answer(command, PullReply(group=self._member.config.group, code=_CODE.UNSUPPORTED))
