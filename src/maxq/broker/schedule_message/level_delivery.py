"""LevelDelivery: delivers the messages of one delay level, in their order, until it is cancelled.

A put into the own log is over at once, so the offset of a level and the delivered records change in one turn of the
loop: what delayOffset.json says of a place of the log is exact. Messages that are due together are delivered in
slices, each dispatched as one, and between two slices others get their turn. A slave that acts as master sends to
another broker group and waits for its answer; with enableScheduleAsyncDeliver up to
scheduleAsyncDeliverMaxPendingLimit messages of a level are under way then, and their offset moves on in order.

Source:
    broker/schedule/ScheduleMessageService.java (DeliverDelayedMessageTimerTask, HandlePutResultTask).
"""

import asyncio
import contextlib
import logging
from collections import deque
from typing import Final, NamedTuple, Protocol

from maxq.broker.schedule_message.delay_level_queue import DelayedUnit, DelayLevelQueue
from maxq.broker.schedule_message.delayed_delivery import DelayedDelivery, Undelivered
from maxq.config.message_store_config import MessageStoreConfig
from maxq.protocol.message.message import MessageExt
from maxq.runtime.background import count_failure
from maxq.store.append.message_ext_broker_inner import MessageExtBrokerInner
from maxq.store.store_results import PutMessageResult

log = logging.getLogger(__name__)

_LONGEST_WAIT: Final = 0.1  # seconds; short, because the wall clock may be set meanwhile
_IDLE_WAIT: Final = 5.0  # an empty queue: `wake` tells of the next message
_LOOKS: Final = 50  # tries to read a message that is not readable yet
_AFTER_FAILURE: Final = 10.0
_SLICE: Final = 32  # messages until others get their turn, as many as one pull takes …
_SLICE_BYTES: Final = 256 * 1024  # … also of large ones
_SLOW_SLICE: Final = 16


class FastPath(Protocol):
    """A fast path of delivery, as `FastPathDelivery` describes it."""

    def is_possible(self) -> bool: ...

    def deliver(self, physical_offset: int) -> int: ...

    def delivered(self) -> None: ...


class LevelOwner(Protocol):
    """The service that runs the levels of one broker (ScheduleMessageService)."""

    @property
    def fast_path(self) -> FastPath:
        """Delivers those messages of a slice that it can; they are told to `on_delivered_together`."""
        ...

    def config(self) -> MessageStoreConfig:
        """Return the settings of the message store."""
        ...

    def message_at(self, physical_offset: int) -> MessageExt | None:
        """Decode the record at a physical offset; None if there is none."""
        ...

    async def put(self, message: MessageExtBrokerInner) -> PutMessageResult:
        """Store a message here, or at another broker group."""
        ...

    def is_local(self) -> bool:
        """Return whether this broker stores the messages that it delivers, instead of sending them to another
        broker."""
        ...

    def is_sure(self) -> bool:
        """Return whether it is this broker that delivers: one that stood still may have been replaced."""
        ...

    def may_postpone(self) -> bool:
        """Return whether one more message can be postponed."""
        ...

    def on_delivered(self, level: int, unit: DelayedUnit, result: PutMessageResult | Undelivered) -> None:
        """Note what became of one message, and postpone it if that is not final. Called in the order of the level."""
        ...

    def on_delivered_together(self, level: int, next_offset: int, messages: int, size: int) -> None:
        """Note that the fast path delivered messages, of `size` bytes together, up to the queue offset
        `next_offset`."""
        ...


class _Pending(NamedTuple):
    unit: DelayedUnit
    delivery: DelayedDelivery
    task: "asyncio.Task[PutMessageResult | Undelivered]"


class LevelDelivery:
    """Delivers the messages of one delay level as they become due."""

    def __init__(self, level: int, queue: DelayLevelQueue, owner: LevelOwner) -> None:
        self._level = level
        self._queue = queue
        self._owner = owner
        self._pending: deque[_Pending] = deque()
        self._woken = asyncio.Event()

    def wake(self) -> None:
        """Wake the delivery, because a message of this level is about to be stored."""
        self._woken.set()

    async def run(self) -> None:
        """Deliver the messages of the level, until the task is cancelled."""
        try:
            while True:
                try:
                    await self._deliver_due()
                    await self._wait()
                except Exception:  # nothing may end the level's delivery
                    count_failure(f"delay level {self._level}")
                    log.exception("delivery of level %d failed, it continues in %g s", self._level, _AFTER_FAILURE)
                    self._queue.forget_read_ahead()
                    await asyncio.sleep(_AFTER_FAILURE)
        finally:
            await self._cancel_pending()

    async def _deliver_due(self) -> None:
        while self._owner.is_sure() and not self._is_blocked():
            is_local = self._owner.is_local()
            if is_local:
                await self._settle_all()
            if not await (self._deliver_here() if is_local else self._deliver_elsewhere()):
                return
            self._settle()
            await asyncio.sleep(0)

    async def _deliver_here(self) -> bool:
        """Deliver a slice of messages, up to and including the first that needs single delivery. Returns False if
        nothing was due."""
        count = size = next_offset = 0
        fast_path = self._owner.fast_path
        is_possible = fast_path.is_possible()
        while count < _SLICE and size < _SLICE_BYTES:
            unit = self._queue.take_due()
            if unit is None:
                break
            stored = self._deliver_fast(unit) if is_possible else 0
            if not stored:
                self._tell(next_offset, count, size)
                self._done(unit, await self._deliver(self._delivery(unit)))
                return True
            count, size, next_offset = count + 1, size + stored, unit.queue_offset + 1
        self._tell(next_offset, count, size)
        return count > 0

    def _deliver_fast(self, unit: DelayedUnit) -> int:
        try:
            return self._owner.fast_path.deliver(unit.physical_offset)
        except Exception:  # the failure may be limited to the fast path: the slow path is tried next
            log.exception(
                "delayed message %d of level %d cannot be delivered by the fast path", unit.queue_offset, self._level
            )
            return 0

    def _delivery(self, unit: DelayedUnit) -> DelayedDelivery:
        return DelayedDelivery(self._level, unit, self._owner.message_at, self._owner.put)

    async def _deliver(self, delivery: DelayedDelivery) -> PutMessageResult | Undelivered:
        """Deliver one message; returns when the level may continue."""
        while True:
            result = await delivery.run()
            if not isinstance(result, Undelivered) or result.is_final or self._owner.may_postpone():
                return result
            await asyncio.sleep(_AFTER_FAILURE)

    def _tell(self, next_offset: int, count: int, size: int) -> None:
        if count:
            self._owner.on_delivered_together(self._level, next_offset, count, size)
            self._owner.fast_path.delivered()

    async def _deliver_elsewhere(self) -> bool:
        """Deliver one message to another broker group; returns when the level may continue."""
        for count in range(_SLOW_SLICE):
            unit = None if self._is_blocked() else self._queue.take_due()
            if unit is None:
                return count > 0
            delivery = self._delivery(unit)
            if self._owner.config().enable_schedule_async_deliver:
                self._pending.append(_Pending(unit, delivery, asyncio.create_task(self._deliver(delivery))))
            else:
                await self._settle_all()
                self._done(unit, await self._deliver(delivery))
        return True

    def _is_blocked(self) -> bool:
        """Returns whether the level must wait: too many deliveries are under way, or the first of them keeps
        failing."""
        self._settle()
        if not self._pending:
            return False
        config = self._owner.config()
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

    def _done(self, unit: DelayedUnit, result: PutMessageResult | Undelivered) -> None:
        self._owner.on_delivered(self._level, unit, result)

    async def _wait(self) -> None:
        """Wait until a message may be due or a delivery has ended."""
        wait_ms = self._queue.wait_ms()
        if self._pending:
            await asyncio.wait([self._pending[0].task], timeout=_LONGEST_WAIT)
        elif not self._owner.is_sure():
            await asyncio.sleep(_LONGEST_WAIT)
        elif wait_ms is not None:
            await asyncio.sleep(min(wait_ms / 1000, _LONGEST_WAIT))
        else:
            with contextlib.suppress(TimeoutError):
                # not wait_for, which would lose a cancellation that comes together with the wake
                async with asyncio.timeout(_IDLE_WAIT):
                    # returns at once if it was set since the last wait, even during a delivery
                    await self._woken.wait()
                self._woken.clear()
                await self._until_visible()

    async def _until_visible(self) -> None:
        """Wait until the message is visible. It is put in this turn of the loop, unless it is refused, and gets into
        its queue when it is durable."""
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
