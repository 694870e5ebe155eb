"""LevelDelivery: delivers the messages of one delay level, in their order, until it is cancelled.

A put into the own log is over at once, so the offset of a level and the delivered records change in one turn of the
loop: what delayOffset.json says of a place of the log is exact. A slave that acts as master sends to another broker
group and waits for its answer; with enableScheduleAsyncDeliver up to scheduleAsyncDeliverMaxPendingLimit messages of a
level are under way then, and their offset moves on in order.

Source:
    broker/schedule/ScheduleMessageService.java (DeliverDelayedMessageTimerTask, HandlePutResultTask).
"""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

from maxq.broker.schedule_message.delay_level_queue import DelayedUnit, DelayLevelQueue
from maxq.broker.schedule_message.delivery import Delivery, Put
from maxq.config.message_store_config import MessageStoreConfig
from maxq.protocol.message import MessageExt
from maxq.store.store_results import PutMessageResult

log = logging.getLogger(__name__)

_LONGEST_WAIT: Final = 0.1  # seconds; the wall clock may be set meanwhile
_IDLE_WAIT: Final = 5.0  # an empty queue: `wake` tells of the next message
_LOOKS: Final = 50  # for a message that is on its way
_AFTER_FAILURE: Final = 10.0
_SLICE: Final = 64  # messages until others get their turn


class DeliveryPorts(NamedTuple):
    """What the levels of one broker share.

    Attributes:
        config: the settings now.
        look: decodes the record at a physical offset.
        put: stores here, or at another broker group.
        is_local: are messages stored here?
        delivered: (level, next queue offset, result or None if given up); called in order.
    """

    config: Callable[[], MessageStoreConfig]
    look: Callable[[int], MessageExt | None]
    put: Put
    is_local: Callable[[], bool]
    delivered: Callable[[int, int, PutMessageResult | None], None]


class _Pending(NamedTuple):
    unit: DelayedUnit
    delivery: Delivery
    task: "asyncio.Task[PutMessageResult | None]"


class LevelDelivery:
    """One level."""

    def __init__(self, level: int, queue: DelayLevelQueue, ports: DeliveryPorts) -> None:
        self._level = level
        self._queue = queue
        self._ports = ports
        self._pending: deque[_Pending] = deque()
        self._woken = asyncio.Event()

    def wake(self) -> None:
        """A message of this level is on its way into the log."""
        self._woken.set()

    async def run(self) -> None:
        """Until cancelled."""
        try:
            while True:
                try:
                    await self._deliver_due()
                    await self._wait()
                except Exception:  # the level must live
                    log.exception("delivery of level %d failed, it goes on in %g s", self._level, _AFTER_FAILURE)
                    self._queue.forget_read_ahead()
                    await asyncio.sleep(_AFTER_FAILURE)
        finally:
            await self._cancel_pending()

    async def _deliver_due(self) -> None:
        count = 0
        while not self._is_blocked():
            unit = self._queue.take_due()
            if unit is None:
                return
            delivery = Delivery(self._level, unit, self._ports.look, self._ports.put)
            if self._ports.is_local() or not self._ports.config().enable_schedule_async_deliver:
                await self._settle_all()
                self._done(unit, await delivery.run())
            else:
                self._pending.append(_Pending(unit, delivery, asyncio.create_task(delivery.run())))
            count += 1
            if count % _SLICE == 0:
                self._settle()
                await asyncio.sleep(0)

    def _is_blocked(self) -> bool:
        """As many are under way as may be, or the first of them does not get through."""
        self._settle()
        if not self._pending:
            return False
        config = self._ports.config()
        return (
            len(self._pending) >= config.schedule_async_deliver_max_pending_limit
            or self._pending[0].delivery.tries > config.schedule_async_deliver_max_resend_num2_blocked
        )

    def _settle(self) -> None:
        while self._pending and self._pending[0].task.done():
            first = self._pending.popleft()
            self._done(first.unit, first.task.result())

    async def _settle_all(self) -> None:
        while self._pending:
            await asyncio.wait([self._pending[0].task])
            self._settle()

    def _done(self, unit: DelayedUnit, result: PutMessageResult | None) -> None:
        self._ports.delivered(self._level, unit.queue_offset + 1, result)

    async def _wait(self) -> None:
        """Until something may be due, or under way no longer."""
        wait_ms = self._queue.wait_ms()
        self._woken.clear()
        if self._pending:
            await asyncio.wait([self._pending[0].task], timeout=_LONGEST_WAIT)
        elif wait_ms is not None:
            await asyncio.sleep(min(wait_ms / 1000, _LONGEST_WAIT))
        else:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._woken.wait(), _IDLE_WAIT)
                await self._until_visible()

    async def _until_visible(self) -> None:
        """It is put in this turn of the loop, unless it is refused, and in its queue when it is durable."""
        for _ in range(_LOOKS):
            await asyncio.sleep(_LONGEST_WAIT)
            if self._queue.wait_ms() is not None:
                return

    async def _cancel_pending(self) -> None:
        tasks = [pending.task for pending in self._pending]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._settle_finished()

    def _settle_finished(self) -> None:
        while self._pending and not self._pending[0].task.cancelled():
            first = self._pending.popleft()
            self._done(first.unit, first.task.result())
