"""TimerDelivery: a timer message that is due becomes an ordinary one, or goes round again.

The copy has the property bytes of its message and TIMER_ENQUEUE_MS (when it was put into the wheel; the largest number
if never), TIMER_DEQUEUE_MS (now) and, put into the topic again, TIMER_ROLL_TIMES. REAL_TOPIC and REAL_QID stay in it.

Source:
    store/timer/TimerMessageStore.java convert, convertMessage, doPut.
"""

import logging
from collections.abc import Awaitable, Callable
from enum import Enum, auto
from typing import Final

from maxq.broker.schedule_message.delayed_message import own_properties
from maxq.broker.tables.topic.topic_validator import is_not_allowed_send_topic
from maxq.broker.timer.prior_run_deliveries import PriorRunDeliveries
from maxq.lazy_dataclass import dataclass
from maxq.protocol.message import message_const as const
from maxq.protocol.message.message_properties import encode_properties
from maxq.runtime.interfaces import Clock
from maxq.runtime.passed_over import PassedOver
from maxq.store.append.message_ext_broker_inner import MessageExtBrokerInner
from maxq.store.store_results import PutMessageResult, PutMessageStatus
from maxq.store.timer.timer_record import TIMER_TOPIC, TimerRecord

log = logging.getLogger(__name__)

#: TIMER_ENQUEUE_MS of a message that was due before it could be put into the wheel.
NEVER_ENQUEUED: Final = (1 << 63) - 1

_STORED: Final = (
    PutMessageStatus.PUT_OK,
    PutMessageStatus.FLUSH_DISK_TIMEOUT,
)
#: Results with which the store accepts no message at all, whatever the message is.
_CLOSED: Final = (
    PutMessageStatus.SERVICE_NOT_AVAILABLE,
    PutMessageStatus.OS_PAGE_CACHE_BUSY,
    PutMessageStatus.CREATE_MAPPED_FILE_FAILED,
)


class TimerOutcome(Enum):
    """How an attempt to deliver a due message ended."""

    DELIVERED = auto()
    AGAIN = auto()  # this message cannot be delivered now; others can
    CLOSED = auto()  # no message can be delivered now


@dataclass(frozen=True, slots=True)
class TimerDeliveryResult:
    """How an attempt to deliver a due message ended, and why it was not delivered."""

    outcome: TimerOutcome
    reason: str = ""


class TimerDelivery:
    """Makes the copies of due messages for their real topics, and stores them."""

    def __init__(
        self,
        clock: Clock,
        put: Callable[[MessageExtBrokerInner], Awaitable[PutMessageResult]],
        on_delivered: Callable[[MessageExtBrokerInner, PutMessageResult], None],
        earlier: PriorRunDeliveries,
        is_gone: Callable[[str, int], bool],
    ) -> None:
        """
        Args:
            put: stores a message here, or in another broker group if this broker may not store it.
            on_delivered: told of everything that was put.
            earlier: messages whose copies exist already.
            is_gone: whether a topic was deleted after the record at a physical offset was stored.
        """
        self._clock = clock
        self._put = put
        self._on_delivered = on_delivered
        self._earlier = earlier
        self._is_gone = is_gone
        self._passed_over = PassedOver(log)

    async def deliver(self, record: TimerRecord, enqueue_ms: int, *, rolls: bool) -> TimerDeliveryResult:
        """Put the copy of `record`; with `rolls` into the timer's topic again."""
        if self._earlier.take(record):
            return TimerDeliveryResult(TimerOutcome.DELIVERED)
        if self._is_gone(record.real_topic, record.physical_offset):
            log.warning(
                "the timer message at physical offset %d is not delivered: its topic %s was deleted since",
                record.physical_offset, record.real_topic,
            )  # fmt: skip
            return TimerDeliveryResult(TimerOutcome.DELIVERED)
        if is_not_allowed_send_topic(record.real_topic):
            log.error(
                "the timer message at physical offset %d is not delivered: its real topic, %s, is the broker's own",
                record.physical_offset, record.real_topic,
            )  # fmt: skip
            return TimerDeliveryResult(TimerOutcome.DELIVERED)
        try:
            message = self._copy(record, enqueue_ms, rolls)
            result = await self._put(message)
        except Exception as error:  # only this message is affected
            log.exception("the timer message at physical offset %d cannot be delivered", record.physical_offset)
            return TimerDeliveryResult(TimerOutcome.AGAIN, f"{type(error).__name__}: {error}")
        if result.status in _STORED:
            with self._passed_over("a timer message in the statistics"):  # a failure must not have it delivered again
                self._on_delivered(message, result)
            return TimerDeliveryResult(TimerOutcome.DELIVERED)
        closed = result.status in _CLOSED
        return TimerDeliveryResult(
            TimerOutcome.CLOSED if closed else TimerOutcome.AGAIN, f"{result.status.name} {result.remark}".strip()
        )

    def _copy(self, record: TimerRecord, enqueue_ms: int, rolls: bool) -> MessageExtBrokerInner:
        source = record.message
        stored = own_properties(source)
        stored[const.PROPERTY_TIMER_ENQUEUE_MS] = str(enqueue_ms)
        if rolls:
            stored[const.PROPERTY_TIMER_ROLL_TIMES] = str(record.rolls + 1)
        stored[const.PROPERTY_TIMER_DEQUEUE_MS] = str(self._clock.wall_ms())
        properties = {**stored, const.PROPERTY_WAIT_STORE_MSG_OK: "false"}  # nobody waits for it
        topic, queue_id = TIMER_TOPIC, 0
        if not rolls:
            topic, queue_id = record.real_topic, int(properties.pop(const.PROPERTY_REAL_QUEUE_ID, "0"))
            del properties[const.PROPERTY_REAL_TOPIC]
        return MessageExtBrokerInner(
            topic,
            queue_id,
            source.body,
            properties,
            encode_properties(stored).encode(),
            flag=source.flag,
            sys_flag=source.sys_flag,
            born_timestamp=source.born_timestamp,
            born_host=source.born_host,
            store_host=source.store_host,
            reconsume_times=source.reconsume_times,
        )
