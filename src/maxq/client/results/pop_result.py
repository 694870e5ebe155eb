"""PopResult: what a pop brought, each message with its receipt handle.

Source:
    client/consumer/{PopResult,PopStatus}.java, client/impl/MQClientAPIImpl.java processPopResponse.
"""

from dataclasses import dataclass, field
from enum import Enum, auto

from maxq.codes import ResponseCode
from maxq.errors import RemoteProtocolError
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.protocol.header.pull import PopMessageResponseHeader
from maxq.protocol.message import message_const as const
from maxq.protocol.message.message import MessageExt, decode_records
from maxq.protocol.message.pop_extra_info import (
    ExtraInfo,
    parse_extra_info,
    parse_msg_offset_info,
    parse_order_count_info,
    parse_start_offset_info,
    queue_offset_key,
    retry_mark,
)


class PopStatus(Enum):
    """The outcome of one pop request."""

    FOUND = auto()
    NO_NEW_MSG = auto()
    POLLING_FULL = auto()
    POLLING_NOT_FOUND = auto()


_STATUS = {
    ResponseCode.SUCCESS: PopStatus.FOUND,
    ResponseCode.POLLING_FULL: PopStatus.POLLING_FULL,
    ResponseCode.POLLING_TIMEOUT: PopStatus.POLLING_NOT_FOUND,
    ResponseCode.PULL_NOT_FOUND: PopStatus.POLLING_NOT_FOUND,
}


@dataclass(slots=True)
class PopResult:
    """The result of one pop. Times are in ms, by the broker's clock.

    Attributes:
        rest_num: messages that are left for the group.
    """

    status: PopStatus
    messages: list[MessageExt] = field(default_factory=list)
    pop_time: int = 0
    invisible_time: int = 0
    rest_num: int = 0


def decode_pop_answer(reply: RemotingCommand, topic: str, broker_name: str, *, order: bool) -> PopResult | None:
    """Decode the answer to a pop of `topic`. Returns None for a refusal, whose code the caller examines.

    Every message gets POP_CK, its receipt handle, and 1ST_POP_TIME, and stands under `topic` whichever retry topic it
    was read from.

    Raises:
        RemoteProtocolError: the answer does not fit together.
    """
    status = _STATUS.get(ResponseCode(reply.code)) if reply.code in _STATUS else None
    if status is not PopStatus.FOUND:
        return None if status is None else PopResult(status)
    header = PopMessageResponseHeader.decode(reply.ext)
    messages = decode_records(reply.body_bytes, inflate=True, broker_name=broker_name)
    starts = parse_start_offset_info(header.start_offset_info or "")
    known = {key: set(offsets) for key, offsets in parse_msg_offset_info(header.msg_offset_info or "").items()}
    counts = parse_order_count_info(header.order_count_info or "") if order else {}
    for message in messages:
        if const.PROPERTY_POP_CK not in message.properties:
            _give_handle(message, _place_in(topic, message), header, starts, known, counts, broker_name)
        message.properties.setdefault(const.PROPERTY_FIRST_POP_TIME, str(header.pop_time))
        message.topic = topic
    return PopResult(status, messages, header.pop_time, header.invisible_time, header.rest_num)


def _place_in(topic: str, message: MessageExt) -> tuple[int, int]:
    """Return the queue id and the queue offset at which a message of `topic` was popped. A message that was sent to
    another topic and to light queues tells its offset in each of these, which have one queue."""
    names = message.properties.get(const.PROPERTY_INNER_MULTI_DISPATCH, "").split(",")
    offsets = message.properties.get(const.PROPERTY_INNER_MULTI_QUEUE_OFFSET, "").split(",")
    told = dict(zip(names, offsets, strict=False)).get(topic, "")
    if topic != message.topic and told.isdecimal():
        return 0, int(told)
    return message.queue_id, message.queue_offset


def _give_handle(
    message: MessageExt,
    place: tuple[int, int],
    header: PopMessageResponseHeader,
    starts: dict[str, int],
    known: dict[str, set[int]],
    counts: dict[str, int],
    broker_name: str,
) -> None:
    mark = retry_mark(message.topic)
    queue_id, offset = place
    key = f"{mark}@{queue_id}"
    start = starts.get(key, offset) if not starts else starts.get(key)
    if start is None or (known and offset not in known.get(key, ())):
        raise RemoteProtocolError(
            f"the answer brings message {offset} of queue {queue_id}, which its offset lists do not name"
        )
    message.properties[const.PROPERTY_POP_CK] = str(
        ExtraInfo(
            start,
            header.pop_time,
            header.invisible_time,
            header.revive_qid,
            mark,
            broker_name,
            queue_id,
            offset,
        )
    )
    count = counts.get(f"{mark}@{queue_offset_key(queue_id, offset)}", counts.get(key, 0))
    if count > 0:
        message.reconsume_times = count


def handle_of(message: MessageExt) -> ExtraInfo:
    """Return the receipt handle of a popped message. Raises RemoteProtocolError if it has none."""
    return parse_extra_info(message.properties.get(const.PROPERTY_POP_CK, ""))
