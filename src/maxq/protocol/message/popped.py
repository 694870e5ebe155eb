"""What a pop brought: its messages with their receipt handles.

Source:
    client/impl/MQClientAPIImpl.java processPopResponse.
"""

from maxq.errors import RemoteProtocolError
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.protocol.header.pull import PopMessageResponseHeader
from maxq.protocol.message import message_const as const
from maxq.protocol.message.message import MessageExt, decode_records
from maxq.protocol.message.pop_extra_info import (
    ExtraInfo,
    parse_msg_offset_info,
    parse_order_count_info,
    parse_start_offset_info,
    queue_offset_key,
    retry_mark,
)


def popped_messages(
    reply: RemotingCommand, header: PopMessageResponseHeader, topic: str, broker_name: str, *, order: bool
) -> list[MessageExt]:
    """Decode the messages of a successful answer to a pop of `topic`.

    Every message gets POP_CK, its receipt handle, and 1ST_POP_TIME, and stands under `topic` whichever retry topic it
    was read from.

    Raises:
        RemoteProtocolError: the answer does not fit together.
    """
    messages = decode_records(reply.body_bytes, inflate=True, broker_name=broker_name)
    starts = parse_start_offset_info(header.start_offset_info or "")
    known = {key: set(offsets) for key, offsets in parse_msg_offset_info(header.msg_offset_info or "").items()}
    counts = parse_order_count_info(header.order_count_info or "") if order else {}
    for message in messages:
        if const.PROPERTY_POP_CK not in message.properties:
            _give_handle(message, _place_in(topic, message), header, starts, known, counts, broker_name)
        message.properties.setdefault(const.PROPERTY_FIRST_POP_TIME, str(header.pop_time))
        message.topic = topic
    return messages


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
