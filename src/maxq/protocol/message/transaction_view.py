"""Which transactions are open, from the half and op topics alone: for tools, which have no broker's memory to ask.

Op messages name finished half messages by their queue offsets (`5,6,7,`); with the property MAXQ_COPIED those for which
a later copy stands. A copy says which half message its transaction began with. A transaction that ended in the last
seconds (transactionOpBatchInterval) is in no op message yet, and looks open.

Source:
    broker/transaction/queue/TransactionalMessageServiceImpl.java (fillOpRemoveMap, checkPrepareQueueOffset).
"""

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Final

from maxq.protocol.message import message_const as const
from maxq.protocol.message.message import MessageExt
from maxq.protocol.message.message_sys_flag import MessageSysFlag, transaction_type

HALF_TOPIC: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
OP_TOPIC: Final = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
DISCARD_TOPIC: Final = "TRANS_CHECK_MAX_TIME_TOPIC"
GROUP: Final = "CID_RMQ_SYS_TRANS"
REMOVE_TAG: Final = "d"
SEPARATOR: Final = ","
PROPERTY_COPIED: Final = "MAXQ_COPIED"


def half_offsets(body: bytes) -> list[int]:
    """Return the queue offsets that an op message names. Old brokers wrote one, without a comma."""
    return [int(text) for text in body.decode("ascii", "replace").split(SEPARATOR) if text.isascii() and text.isdigit()]


def origin_of(half: MessageExt) -> int:
    """Return the queue offset of the first half message of the transaction."""
    return number(half.properties, const.PROPERTY_TRANSACTION_PREPARED_QUEUE_OFFSET, half.queue_offset)


def number(properties: Mapping[str, str], name: str, default: int) -> int:
    """Return a property that is a number; `default` if it is absent or none."""
    text = properties.get(name, "")
    digits = text.removeprefix("-")
    return int(text) if digits.isascii() and digits.isdigit() and len(digits) < 19 else default


class TransactionView:
    """Derives open transactions. Give it all op messages from the op progress on, then half messages in their order.

    Args:
        low: half progress: what lies below is finished.

    Attributes:
        open: origin → the half message that counts.
    """

    def __init__(self, low: int) -> None:
        self.low = low
        self.open: dict[int, MessageExt] = {}
        self._ended: set[int] = set()
        self._copied: set[int] = set()

    def take_op(self, message: MessageExt) -> None:
        if message.tags == REMOVE_TAG:
            named = self._copied if PROPERTY_COPIED in message.properties else self._ended
            named.update(offset for offset in half_offsets(message.body) if offset >= self.low)

    def take_half(self, half: MessageExt) -> None:
        offset, origin = half.queue_offset, origin_of(half)
        if offset < self.low or offset in self._ended or offset in self._copied:
            return
        if origin != offset and origin in self._ended:  # Java ends a copy by naming its origin
            self.open.pop(origin, None)
            return
        self.open[origin] = half


class Verdict(Enum):
    """The outcome of a transaction, as far as its records show it."""

    OPEN = "OPEN"
    COMMITTED = "COMMITTED"
    ROLLED_BACK = "ROLLED_BACK"
    GIVEN_UP = "GIVEN_UP"


def verdict(open_keys: set[str], forms: Sequence[MessageExt]) -> Verdict:
    """Find the outcome of a transaction from all messages with its unique key, and from the keys of open ones."""
    if any(is_final(message) for message in forms):
        return Verdict.COMMITTED
    if any(message.topic == HALF_TOPIC and message.uniq_key in open_keys for message in forms):
        return Verdict.OPEN
    if any(message.topic == DISCARD_TOPIC for message in forms):
        return Verdict.GIVEN_UP
    return Verdict.ROLLED_BACK


def is_final(message: MessageExt) -> bool:
    """Return whether consumers get this message, now or when its delay is over."""
    return transaction_type(message.sys_flag) == MessageSysFlag.TRANSACTION_COMMIT


def form_of(message: MessageExt) -> str:
    """Return the kind of a transaction's message: half, copy, delivered or given up."""
    if message.topic == HALF_TOPIC:
        return "copy" if const.PROPERTY_TRANSACTION_CHECK_TIMES in message.properties else "half"
    return "given up" if message.topic == DISCARD_TOPIC else "delivered"
