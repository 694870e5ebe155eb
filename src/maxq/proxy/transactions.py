"""Transactions: their ids, their ends, and what is asked about those that were left open.

A transaction id says where its half message is, so any server that reaches the broker can end it: Java's proxy keeps
this in its memory for half a minute, and a restart or another proxy behind a load balancer does not know it.

Source:
    proxy/grpc/v2/transaction/EndTransactionActivity.java, proxy/service/transaction/TransactionData.java.
"""

from typing import Final, NamedTuple

from maxq.codes import RequestCode, ResponseCode
from maxq.errors import RemoteProtocolError
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.protocol.grpc import messages as pb
from maxq.protocol.header.send import (
    CheckTransactionStateRequestHeader,
    EndTransactionRequestHeader,
    SendMessageResponseHeader,
)
from maxq.protocol.message import message_const as const
from maxq.protocol.message.message import decode_record
from maxq.protocol.message.message_id import decode_message_id
from maxq.protocol.message.message_sys_flag import MessageSysFlag
from maxq.proxy.clients import Clients
from maxq.proxy.context import Context
from maxq.proxy.message_codec import grpc_message
from maxq.proxy.statuses import CallRefusedError, status_of_reply
from maxq.proxy.validation import topic_name
from maxq.remoting.connection import Connection

_SEPARATOR: Final = ":"
_MOST_DIGITS: Final = 18


class TransactionId(NamedTuple):
    """The place of a half message: broker, offset in the queue of half messages, physical offset; and its message's
    id."""

    message_id: str
    broker_name: str
    queue_offset: int
    physical_offset: int

    def __str__(self) -> str:
        return _SEPARATOR.join(map(str, self))

    @classmethod
    def decode(cls, text: str) -> "TransactionId":
        """Decode the text of a client. Raises CallRefusedError, INVALID_TRANSACTION_ID, if it is none."""
        parts = text.rsplit(_SEPARATOR, 3)
        if len(parts) == 4 and all(
            part.isascii() and part.isdigit() and len(part) <= _MOST_DIGITS for part in parts[2:]
        ):
            return cls(parts[0], parts[1], int(parts[2]), int(parts[3]))
        raise CallRefusedError(pb.Code.INVALID_TRANSACTION_ID, f"{text!r:.200} is no transaction id of this server")


def transaction_id(message_id: str, broker_name: str, header: SendMessageResponseHeader) -> str:
    """Return the id of the transaction that the half message opens whose send was answered so."""
    _, physical_offset = decode_message_id(header.msg_id)
    return str(TransactionId(message_id, broker_name, header.queue_offset, physical_offset))


class Transactions:
    """Ends transactions, and passes on what brokers ask about open ones."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients

    def end(self, context: Context, request: pb.EndTransactionRequest) -> None:
        """Commit or roll back. An end that says neither leaves the transaction open."""
        topic = topic_name(request.topic)
        if not request.transaction_id.strip():
            raise CallRefusedError(pb.Code.INVALID_TRANSACTION_ID, "transaction id cannot be empty")
        place = TransactionId.decode(request.transaction_id)
        if request.resolution == pb.TransactionResolution.COMMIT:
            kind = MessageSysFlag.TRANSACTION_COMMIT
        elif request.resolution == pb.TransactionResolution.ROLLBACK:
            kind = MessageSysFlag.TRANSACTION_ROLLBACK
        else:
            context.answer(pb.EndTransactionResponse(status=status_of_reply(RemotingCommand(ResponseCode.SUCCESS))))
            return
        header = EndTransactionRequestHeader(
            topic, place.queue_offset, place.physical_offset, kind, request.message_id, topic,
            request.source == pb.TransactionSource.SOURCE_SERVER_CHECK, place.message_id,
        )  # fmt: skip
        command = RemotingCommand(RequestCode.END_TRANSACTION, header.encode())
        context.client.ask(place.broker_name, command, context.guarded(self._ended, context))

    @staticmethod
    def _ended(context: Context, reply: RemotingCommand | None) -> None:
        context.answer(pb.EndTransactionResponse(status=status_of_reply(reply)))

    def check(self, link: Connection, request: RemotingCommand) -> None:
        """Ask the client behind a connection, or one of those that send to the topic, what became of a transaction. It
        answers by ending it."""
        header = CheckTransactionStateRequestHeader.decode(request.ext)
        try:
            message = decode_record(request.body_bytes, inflate=True)
        except RemoteProtocolError:
            return
        client = Clients.behind(link)
        if client is None:
            client = self._clients.producer_of(message.properties.get(const.PROPERTY_PRODUCER_GROUP, ""))
        if client is None:
            return
        place = TransactionId(
            message.msg_id, request.ext.get("bname", ""), header.tran_state_table_offset, header.commit_log_offset
        )
        client.tell(
            pb.TelemetryCommand(
                recover_orphaned_transaction_command=pb.RecoverOrphanedTransactionCommand(
                    message=grpc_message(message), transaction_id=str(place)
                )
            )
        )
