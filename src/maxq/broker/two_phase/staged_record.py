"""The forms of staged messages.

    request        the messages of one request for one queue of one topic, as a batch body, with the attempt it belongs
                   to and its sequence number there
    staged record  the same as one message in STAGED_TOPIC, queue 0; its queue offset there is what the sender is told
    delivered      the messages in their topic, as if they had been sent; nothing tells that they were staged
    ledger entry   a JSON object in STAGED_LEDGER_TOPIC, queue 0 (ledger.py)

Both topics exist in the store only: clients neither see nor send to them. Nothing but the log is kept, so slaves have
all of it, and it goes with the log when that expires.
"""

import struct
from typing import Final

from maxq.broker.tables.topic.topic_validator import STAGED_TOPIC
from maxq.errors import RemoteProtocolError
from maxq.lazy_dataclass import dataclass
from maxq.protocol.frame.header_fields import CommandHeader, Long, header
from maxq.protocol.message import message_const as const
from maxq.protocol.message.message import MessageExt
from maxq.store.append.message_ext_broker_inner import MessageExtBrokerInner

_ATTEMPT: Final = "MAXQ_ATTEMPT"
_SEQUENCE: Final = "MAXQ_SEQUENCE"
_COUNT: Final = "MAXQ_COUNT"
_PLAIN: Final = "MAXQ_PLAIN"
_INT: Final = struct.Struct(">i")


@header
class StageMessagesRequestHeader(CommandHeader):
    """Header of request 30070. With `plain` the messages may be stored as one batch; otherwise each is stored by itself
    (delays …)."""

    topic: str
    queue_id: int
    attempt: str
    sequence: int
    count: int
    plain: bool
    born_timestamp: Long
    default_topic: str = ""
    default_topic_queue_nums: int = 0


@dataclass(frozen=True)
class Staged:
    """A staged record, decoded.

    Attributes:
        body: of the request: a batch body.
    """

    topic: str
    queue_id: int
    attempt: str
    sequence: int
    count: int
    plain: bool
    born_timestamp: int
    born_host: bytes
    body: bytes


def staged_message(request: StageMessagesRequestHeader, body: bytes, born_host: bytes) -> MessageExtBrokerInner:
    """Returns the message that is stored for a request."""
    properties = {
        const.PROPERTY_REAL_TOPIC: request.topic,
        const.PROPERTY_REAL_QUEUE_ID: str(request.queue_id),
        _ATTEMPT: request.attempt,
        _SEQUENCE: str(request.sequence),
        _COUNT: str(request.count),
        _PLAIN: "true" if request.plain else "false",
    }
    return MessageExtBrokerInner(
        STAGED_TOPIC, 0, body, properties, born_timestamp=request.born_timestamp, born_host=born_host
    )


def read_staged(message: MessageExt) -> Staged | None:
    """Returns the staged request in a record; None if the record is not one."""
    properties = message.properties
    try:
        return Staged(
            properties[const.PROPERTY_REAL_TOPIC],
            int(properties[const.PROPERTY_REAL_QUEUE_ID]),
            properties[_ATTEMPT],
            int(properties[_SEQUENCE]),
            int(properties[_COUNT]),
            properties[_PLAIN] == "true",
            message.born_timestamp,
            message.born_host,
            message.body,
        )
    except (KeyError, ValueError):
        return None


def batch_positions(body: bytes) -> list[int]:
    """Return the positions at which the messages of a batch body begin, and its end.

    Raises:
        RemoteProtocolError: the sizes do not fit together.
    """
    found = [0]
    at, end = 0, len(body)
    while at < end:
        size = _INT.unpack_from(body, at)[0] if end - at >= 22 else 0
        if size < 22 or size > end - at:
            raise RemoteProtocolError(f"the batch body has no message at byte {at} of {end}")
        at += size
        found.append(at)
    return found
