"""PopResult: what a pop brought, each message with its receipt handle.

Source:
    client/consumer/{PopResult,PopStatus}.java, client/impl/MQClientAPIImpl.java processPopResponse.
"""

from dataclasses import dataclass, field
from enum import Enum, auto

from maxq.codes import ResponseCode
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.protocol.header.pull import PopMessageResponseHeader
from maxq.protocol.message import message_const as const
from maxq.protocol.message.message import MessageExt
from maxq.protocol.message.pop_extra_info import ExtraInfo, parse_extra_info
from maxq.protocol.message.popped import popped_messages


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
    messages = popped_messages(reply, header, topic, broker_name, order=order)
    return PopResult(status, messages, header.pop_time, header.invisible_time, header.rest_num)


def handle_of(message: MessageExt) -> ExtraInfo:
    """Return the receipt handle of a popped message. Raises RemoteProtocolError if it has none."""
    return parse_extra_info(message.properties.get(const.PROPERTY_POP_CK, ""))
