"""MemberPort: handles the requests of other members and of operators to a member.

Source:
    openmessaging/dledger DLedgerRpcNettyService.java.
"""

import asyncio
import logging
from typing import Final, NamedTuple, Protocol

from maxq.errors import RemoteProtocolError
from maxq.protocol.dledger.dledger_codec import decode_request, encode_reply
from maxq.protocol.dledger.dledger_messages import (
    DLedgerMessage,
    DLedgerRequestCode,
    DLedgerResponseCode,
    HeartBeatRequest,
    MetadataReply,
    Reply,
    Request,
    TransferReply,
)
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.remoting.server import Connection, RemotingServer
from maxq.replication.dledger.config import DLedgerConfig

log: Final = logging.getLogger(__name__)

#: Header code of every answer, whatever its body says.
HEADER_CODE: Final = 200
_CORE_CODES: Final = (
    DLedgerRequestCode.VOTE,
    DLedgerRequestCode.HEART_BEAT,
    DLedgerRequestCode.PUSH,
    DLedgerRequestCode.LEADERSHIP_TRANSFER,
)


class _Remote(NamedTuple):
    """Token of a request that came over a connection."""

    connection: Connection
    command: RemotingCommand


class Member(Protocol):
    """The part of a member that its port uses (DLedgerServer)."""

    @property
    def leader_id(self) -> str | None: ...

    def status(self) -> dict[str, str]: ...

    def requested(self, token: object, request: Request) -> None:
        """Handle a request for the core, which `answer_token` answers."""

    def went(self, peer: str) -> None:
        """Handle that the connection over which this peer last sent a heartbeat has ended."""


class MemberPort:
    """The port of one member for other members and clients."""

    def __init__(self, config: DLedgerConfig, member: Member, server: RemotingServer) -> None:
        self._config = config
        self._member = member
        self._others = frozenset(config.peers) - {config.self_id}
        self._heard_on: dict[str, Connection] = {}  # member → connection of its last heart-beat
        server.add_listener(self)
        for code in _CORE_CODES:
            server.register(code, self._requested)
        server.register(DLedgerRequestCode.METADATA, self._metadata)

    def _requested(self, connection: Connection, command: RemotingCommand) -> RemotingCommand | None:
        try:
            request = decode_request(command.code, command.body)
        except RemoteProtocolError as error:
            log.warning("%s sent a request %d that is refused: %s", connection.remote_address, command.code, error)
            return answer(command, TransferReply(group=self._config.group, code=DLedgerResponseCode.UNSUPPORTED))
        if isinstance(request, HeartBeatRequest) and (peer := request.local_id) in self._others:
            self._heard_on[peer] = connection
        self._member.requested(_Remote(connection, command), request)
        return None

    def hears(self, peer: str) -> bool:
        """Return whether the connection is open over which this peer last sent a heart-beat."""
        return peer in self._heard_on

    def on_connect(self, connection: Connection) -> None: ...

    def on_close(self, connection: Connection) -> None:
        for peer in [peer for peer, heard_on in self._heard_on.items() if heard_on is connection]:
            del self._heard_on[peer]
            self._member.went(peer)

    def on_idle(self, connection: Connection) -> None: ...

    def on_exception(self, connection: Connection) -> None: ...

    def _metadata(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        request, leader_id = decode_request(command.code, command.body), self._member.leader_id
        refusal = self.refusal(request)
        if refusal is not None:
            return answer(
                command,
                MetadataReply(group=request.group, remote_id=request.remote_id, leader_id=leader_id, code=refusal),
            )
        return answer(
            command,
            MetadataReply(
                group=self._config.group, leader_id=leader_id, peers=self._config.peers, status=self._member.status()
            ),
        )

    def refusal(self, request: DLedgerMessage) -> DLedgerResponseCode | None:
        """Returns the refusal of a request that is meant for another member or group."""
        if request.remote_id != self._config.self_id:
            return DLedgerResponseCode.UNKNOWN_MEMBER
        return DLedgerResponseCode.UNKNOWN_GROUP if request.group != self._config.group else None


def answer(command: RemotingCommand, reply: Reply) -> RemotingCommand:
    """Make the frame that answers `command` with `reply`."""
    return command.reply(HEADER_CODE, body=encode_reply(reply))


def answer_token(token: object, reply: Reply) -> None:
    """Answer a request that came over a connection, or one of this process, whose token is a future."""
    if isinstance(token, _Remote):
        token.connection.send(answer(token.command, reply))
    elif isinstance(token, asyncio.Future) and not token.done():
        token.set_result(reply)
