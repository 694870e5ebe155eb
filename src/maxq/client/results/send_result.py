"""What a send gives back.

Source: apache/rocketmq client/producer/{SendResult,SendStatus}.java.
"""

from enum import Enum
from typing import NamedTuple, Protocol

from maxq.codes import ResponseCode
from maxq.protocol.message.message_queue import MessageQueue


class SendStatus(Enum):
    """How safely a message was stored. It is stored in every case; values other than SEND_OK name the step that was not
    confirmed in time."""

    SEND_OK = "SEND_OK"
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
    FLUSH_SLAVE_TIMEOUT = "FLUSH_SLAVE_TIMEOUT"
    SLAVE_NOT_AVAILABLE = "SLAVE_NOT_AVAILABLE"


STATUS_OF_CODE: dict[int, SendStatus] = {
    ResponseCode.SUCCESS: SendStatus.SEND_OK,
    ResponseCode.FLUSH_DISK_TIMEOUT: SendStatus.FLUSH_DISK_TIMEOUT,
    ResponseCode.FLUSH_SLAVE_TIMEOUT: SendStatus.FLUSH_SLAVE_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE: SendStatus.SLAVE_NOT_AVAILABLE,
}


class SendResult(NamedTuple):
    """Where a message was stored.

    Attributes:
        send_status: how safely the message is stored; it is stored in every case.
        msg_id: the id that the client gave it (UNIQ_KEY); of a batch, its messages' ids joined by commas.
        message_queue: topic, broker and number of the queue.
        queue_offset: its place in the queue; of a batch, that of the first message.
        offset_msg_id: the id that the broker gave it, which contains its place.
        transaction_id: of a message of a transaction.
        region_id: of the broker.
        trace_on: the broker asks for message trace.
        recall_handle: of a message with a delivery time, for `recall_message`.
    """

    send_status: SendStatus
    msg_id: str
    message_queue: MessageQueue
    queue_offset: int
    offset_msg_id: str
    transaction_id: str | None = None
    region_id: str = "DefaultRegion"
    trace_on: bool = True
    recall_handle: str | None = None


class SendWaiter(Protocol):
    """Interface of an object that waits for the outcome of the first try of a send, such as asyncio.Future."""

    def done(self) -> bool:
        """Return whether the outcome is known, or not wanted any more."""

    def set_result(self, result: SendResult | None, /) -> None:
        """Take the result; None: the try failed."""
