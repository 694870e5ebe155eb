"""Receipt handles, and what brokers are asked with them.

A handle is a broker's (protocol/message/pop_extra_info.py) and, behind it, the physical offset of the message, by which
dead letters are made.

Source:
    common/consumer/ReceiptHandle.java, proxy/processor/{ConsumerProcessor,ProducerProcessor}.java.
"""

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from maxq.codes import RequestCode, ResponseCode
from maxq.errors import RemoteProtocolError
from maxq.protocol.body.pop import BatchAck, encode_batch_acks
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.protocol.grpc import messages as pb
from maxq.protocol.header.pull import (
    AckMessageRequestHeader,
    ChangeInvisibleTimeRequestHeader,
    ChangeInvisibleTimeResponseHeader,
)
from maxq.protocol.header.send import ConsumerSendMsgBackRequestHeader
from maxq.protocol.message.pop_extra_info import ExtraInfo, parse_extra_info, real_topic
from maxq.proxy.brokers import OnReply
from maxq.proxy.clients import Client
from maxq.proxy.statuses import CallRefusedError, refusal_of_reply

_NUMBER: Final = "([0-9]{1,18})"
#: A handle as servers write it.
_PLAIN: Final = re.compile(f"{f'{_NUMBER} ' * 4}([012]) ([!-~]{{1,255}}) {_NUMBER} {_NUMBER} {_NUMBER}").fullmatch
_MOST_DISTANCE: Final = 1 << 16  # of a message from the start of its check point
_PARTS: Final = 8  # of a broker's handle
_TO_DEAD_LETTERS: Final = -1  # delay level


class ReceiptHandle(NamedTuple):
    """A receipt handle of gRPC clients. `physical_offset` is -1 if it does not say."""

    extra_info: ExtraInfo
    physical_offset: int

    def __str__(self) -> str:
        return f"{self.extra_info} {self.physical_offset}"

    @property
    def broker_name(self) -> str:
        return self.extra_info.broker_name

    @property
    def may_be_in_batch(self) -> bool:
        """Return whether the message may be acknowledged together with others."""
        info = self.extra_info
        distance = (info.queue_offset or 0) - info.start_offset
        return not info.is_order and 0 <= distance < _MOST_DISTANCE

    @property
    def visible_again_ms(self) -> int:
        """Return when others may get the message, in ms since 1970."""
        return self.extra_info.pop_time + self.extra_info.invisible_time

    @classmethod
    def decode(cls, text: str) -> "ReceiptHandle":
        """Decode a client's handle. Raises CallRefusedError, INVALID_RECEIPT_HANDLE, if it is none."""
        plain = _PLAIN(text)
        if plain is not None:
            start, popped, invisible, revive, retry, broker_name, queue_id, offset, physical = plain.groups()
            info = ExtraInfo(
                int(start), int(popped), int(invisible), int(revive), retry, broker_name, int(queue_id), int(offset)
            )
            return cls(info, int(physical))
        parts = text.split(" ")
        physical = parts[_PARTS] if len(parts) > _PARTS else "-1"
        try:
            if len(parts) < _PARTS:
                raise RemoteProtocolError(f"it has {len(parts)} parts, {_PARTS} are needed")
            if not (physical == "-1" or (physical.isascii() and physical.isdigit() and len(physical) < 19)):
                raise RemoteProtocolError("its last part is no physical offset")
            return cls(parse_extra_info(" ".join(parts[:_PARTS])), int(physical))
        except RemoteProtocolError as error:
            raise CallRefusedError(pb.Code.INVALID_RECEIPT_HANDLE, f"receipt handle is invalid: {error}") from None


def ask_to_ack(client: Client, handle: ReceiptHandle, topic: str, group: str, on_reply: OnReply) -> None:
    """Ask the broker of a message to take it as consumed."""
    info = handle.extra_info
    header = AckMessageRequestHeader(
        group, real_topic(topic, group, info.retry), info.queue_id or 0, str(info), info.queue_offset or 0
    )
    client.ask(info.broker_name, RemotingCommand(RequestCode.ACK_MESSAGE, header.encode()), on_reply)


def ask_to_ack_all(
    client: Client, broker_name: str, handles: Iterable[ReceiptHandle], topic: str, group: str, on_reply: OnReply
) -> None:
    """Ask the broker of several messages, which were not popped in order, to take them as consumed."""
    batches: dict[tuple[object, ...], BatchAck] = {}
    for handle, _ in handles:
        key = handle.retry, handle.queue_id, handle.start_offset, handle.pop_time
        batch = batches.get(key)
        if batch is None:
            batch = batches[key] = BatchAck(
                topic, group, handle.retry, handle.start_offset, handle.queue_id or 0, handle.revive_qid,
                handle.pop_time, handle.invisible_time, [],
            )  # fmt: skip
        batch.bits.append((handle.queue_offset or 0) - handle.start_offset)
    body = encode_batch_acks(broker_name, batches.values())
    client.ask(broker_name, RemotingCommand(RequestCode.BATCH_ACK_MESSAGE, {}, body), on_reply)


def ask_to_change(
    client: Client,
    handle: ReceiptHandle,
    topic: str,
    group: str,
    invisible_ms: int,
    on_reply: OnReply,
    *,
    suspend: bool = False,
) -> None:
    """Ask the broker of a message to hide it from others for `invisible_ms` from now on.

    Args:
        suspend: it is not counted as a try when it comes again.
    """
    info = handle.extra_info
    header = ChangeInvisibleTimeRequestHeader(
        group, real_topic(topic, group, info.retry), info.queue_id or 0, str(info), info.queue_offset or 0,
        invisible_ms, suspend=suspend,
    )  # fmt: skip
    client.ask(info.broker_name, RemotingCommand(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, header.encode()), on_reply)


def changed_handle(handle: ReceiptHandle, reply: RemotingCommand | None) -> ReceiptHandle:
    """Return the handle of a message whose invisible time was changed, by the broker's answer.

    Raises:
        CallRefusedError: it was not.
    """
    if reply is None or reply.code != ResponseCode.SUCCESS:
        raise refusal_of_reply(reply)
    header = ChangeInvisibleTimeResponseHeader.decode(reply.ext)
    info = handle.extra_info
    return ReceiptHandle(
        info._replace(
            start_offset=info.queue_offset or 0,
            pop_time=header.pop_time,
            invisible_time=header.invisible_time,
            revive_qid=header.revive_qid,
        ),
        handle.physical_offset,
    )


def ask_to_forward(
    client: Client, handle: ReceiptHandle, topic: str, group: str, message_id: str, on_reply: OnReply
) -> None:
    """Ask the broker of a message to put it into the group's dead letters. It is acknowledged when that is done.

    Raises:
        CallRefusedError: INVALID_RECEIPT_HANDLE: the handle does not say where the message is.
    """
    if handle.physical_offset < 0:
        raise CallRefusedError(pb.Code.INVALID_RECEIPT_HANDLE, "commit log offset is empty")
    info = handle.extra_info
    header = ConsumerSendMsgBackRequestHeader(
        handle.physical_offset, group, _TO_DEAD_LETTERS, message_id, real_topic(topic, group, info.retry), False, 0
    )

    def forwarded(reply: RemotingCommand | None) -> None:
        if reply is not None and reply.code == ResponseCode.SUCCESS:
            ask_to_ack(client, handle, topic, group, ignored)
        on_reply(reply)

    client.ask(info.broker_name, RemotingCommand(RequestCode.CONSUMER_SEND_MSG_BACK, header.encode()), forwarded)


def ignored(reply: RemotingCommand | None) -> None:
    """Hear of an answer on which nothing depends: what was not done is found out when the message comes again."""
