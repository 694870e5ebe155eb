"""What a pull gives back.

Source: apache/rocketmq client/consumer/{PullResult,PullStatus}.java.
"""

from dataclasses import dataclass, field
from enum import Enum

from maxq.protocol.message.message import MessageExt
from maxq.protocol.message.received_cy import PulledRecords


class PullStatus(Enum):
    """The outcome of a pull. FOUND: messages. NO_NEW_MSG: the end of the queue. NO_MATCHED_MSG: none passed the filter
    so far, pull on. OFFSET_ILLEGAL: the offset is outside the queue; `next_begin_offset` is inside."""

    FOUND = "FOUND"
    NO_NEW_MSG = "NO_NEW_MSG"
    NO_MATCHED_MSG = "NO_MATCHED_MSG"
    OFFSET_ILLEGAL = "OFFSET_ILLEGAL"


@dataclass(slots=True)
class PullResult:
    """The result of one pull. Offsets are queue offsets; `min_offset` and `max_offset` are the queue's at the broker.

    `offset_delta`: of a global queue of a static topic, what makes the records' own offsets global ones.
    `records`: the messages, if the consumer keeps them as records; `messages` is empty then.
    """

    status: PullStatus
    next_begin_offset: int
    min_offset: int
    max_offset: int
    suggest_which_broker_id: int = 0
    offset_delta: int | None = None
    messages: list[MessageExt] = field(default_factory=list)
    records: PulledRecords | None = None
