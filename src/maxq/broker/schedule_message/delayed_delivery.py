"""Delivery: one delayed message to its real topic, tried until the store has it or cannot ever take it.

    put                                  done
    store busy, full, slave, unreachable tried again, after 100 ms, 200 ms … 5 s; the level waits, as every other would
    the message itself is refused        given up: logged with its place in the log, where it stays readable
    record gone or unreadable            given up
    a failure of ours                    postponed: the level goes on, and the message is tried again and again

So a message that cannot be delivered delays no other one, and no message is given up because of an error of MaxQ. (Java
repeats a refused message without end while its level stands still, and silently skips one that raises.)

Source:
    broker/schedule/ScheduleMessageService.java (syncDeliver, deliverMessage, PutResultProcess).
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

from maxq.broker.schedule_message.delay_level_queue import DelayedUnit
from maxq.broker.schedule_message.delayed_message import time_up
from maxq.errors import MessageIllegalError, RemoteProtocolError
from maxq.protocol.message.message import MessageExt
from maxq.store.append.message_ext_broker_inner import MessageExtBrokerInner
from maxq.store.recovery.damage_names import is_filler
from maxq.store.store_results import PutMessageResult, PutMessageStatus

log = logging.getLogger(__name__)

Put = Callable[[MessageExtBrokerInner], Awaitable[PutMessageResult]]

_AGAIN_STEP: Final = 0.1  # seconds
_AGAIN_MOST: Final = 5.0
#: Results with which the store has the message, even if the disk or slaves did not confirm it.
_STORED: Final = (PutMessageStatus.PUT_OK, PutMessageStatus.FLUSH_DISK_TIMEOUT)
_NEVER: Final = (
    PutMessageStatus.MESSAGE_ILLEGAL,
    PutMessageStatus.PROPERTIES_SIZE_EXCEEDED,
)
#: Results after which other messages can be stored, and this one once an operator has changed something or another
#: broker group is back.
_LATER: Final = (
    PutMessageStatus.LMQ_CONSUME_QUEUE_NUM_EXCEEDED,
    PutMessageStatus.QUEUE_HAS_MOVED,
    PutMessageStatus.NO_REMOTE_BROKER_TAKES_IT,
)


class Undelivered(NamedTuple):
    """Raised when a message was not delivered. `is_final` means that it never can be; otherwise it is retried later."""

    reason: str
    is_final: bool


class DelayedDelivery:
    """The delivery of one message of one level.

    Attributes:
        tries: how often the store could not take it so far.
    """

    def __init__(self, level: int, unit: DelayedUnit, look: Callable[[int], MessageExt | None], put: Put) -> None:
        """`look` decodes the record at a physical offset, None if there is none."""
        self._level = level
        self._unit = unit
        self._message_at = look
        self._put = put
        self.tries = 0

    async def run(self) -> PutMessageResult | Undelivered:
        """Deliver the message. Suspends only in the put, or to wait before another attempt.

        Returns:
            The result of the store if it has the message.
        """
        while True:
            try:
                result = await self._put(self._message())
            except (MessageIllegalError, RemoteProtocolError) as error:
                return self._given_up(str(error))
            except Exception as error:
                log.exception("delivering %s failed", self)
                return Undelivered(f"{type(error).__name__}: {error}", is_final=False)
            if result.status in _STORED:
                if self.tries:
                    log.info("%s is delivered, after %d tries", self, self.tries)
                return result
            if result.status in _NEVER:
                return self._given_up(f"{result.status.name} {result.remark}")
            if result.status in _LATER:
                return Undelivered(f"{result.status.name} {result.remark}", is_final=False)
            await self._wait(result)

    def _message(self) -> MessageExtBrokerInner:
        delayed = self._message_at(self._unit.physical_offset)
        if delayed is None:
            raise MessageIllegalError("there is no record at its place of the log")
        if is_filler(delayed.sys_flag, delayed.properties):
            raise MessageIllegalError("its record was damaged, a filler is in its place")
        return time_up(delayed)

    async def _wait(self, result: PutMessageResult) -> None:
        if self.tries == 0:
            log.warning("%s cannot be delivered now and is tried again: %s %s", self, result.status.name, result.remark)
        self.tries += 1
        await asyncio.sleep(min(self.tries * _AGAIN_STEP, _AGAIN_MOST))

    def _given_up(self, reason: str) -> Undelivered:
        log.error("%s is not delivered: %s", self, reason)
        return Undelivered(reason, is_final=True)

    def __str__(self) -> str:
        unit = self._unit
        return (
            f"delayed message {unit.queue_offset} of level {self._level} (physical offset {unit.physical_offset}, "
            f"{unit.size} bytes)"
        )
