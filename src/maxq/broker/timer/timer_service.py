"""TimerService: fills the wheel, and delivers what is due.

One task does both, in turns: what has come is put into the wheel first, so that a marker that recalls a message is
there when the message is due. Another task writes checkpoints (timer_checkpoints.py). The rules are in
store/timer/timer_message_store.py.

Only the master of a group, or the slave that acts for it, dequeues (MasterOnlyServices starts and stops it). A slave
fills its wheel as far as its master has (timer_exchange.py).

Of a message that cannot be delivered only itself is late: it goes back into the wheel, and is dropped only when
retention has deleted its record (timer_failures.py). While the store takes nothing at all, everything waits.

Source:
    store/timer/TimerMessageStore.java (its services).
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from maxq.broker.bundles import Environment, Messages
from maxq.broker.timer.prior_run_deliveries import PriorRunDeliveries
from maxq.broker.timer.slot_work import SlotWork
from maxq.broker.timer.timer_checkpoints import TimerCheckpoints
from maxq.broker.timer.timer_delivery import NEVER_ENQUEUED, TimerDelivery, TimerDeliveryResult, TimerOutcome
from maxq.broker.timer.timer_exchange import TimerExchange
from maxq.broker.timer.timer_failures import TimerFailures
from maxq.broker.timer.unread_markers import UnreadMarkers
from maxq.runtime.background import supervise
from maxq.runtime.blocking import run_blocking
from maxq.runtime.passed_over import PassedOver
from maxq.runtime.turns import Turns
from maxq.store.append.message_ext_broker_inner import MessageExtBrokerInner
from maxq.store.store_results import PutMessageResult
from maxq.store.timer.timer_log import TimerUnit
from maxq.store.timer.timer_message_store import TimerMessageStore
from maxq.store.timer.timer_record import TimerRecord

log = logging.getLogger(__name__)

SERVICE_NAME: Final = "timer"

_ENQUEUE_AT_ONCE: Final = 100
_DELIVER_AT_ONCE: Final = 50
_SKIP_AT_ONCE: Final = 20_000
_POLL_SECONDS: Final = 0.02  # with SYNC_FLUSH a message can be read a little after it was put
_REST_LOOKS: Final = 50
_POLLED_MS: Final = 1_000
_CLOSED_SECONDS: Final = 0.5
_CLEAN_SECONDS: Final = 30.0
_AFTER_FAILURE: Final = 1.0
_COUNTING: Final = "a timer message in the metrics"


class TimerService:
    """The timer of one broker. `load`, `begin` and `shutdown` are for every broker, `start` and `stop` for the active
    one of its group.

    Attributes:
        timer: the state.
        exchange: exchanges checkpoints with other brokers of the group.
        checkpoints: writes them.
        is_loaded: the files were read, and shutdown has not begun.
        is_dequeuing: this broker delivers.
        term: of the leadership that delivers (LogMark).
        failures: messages that could not be delivered yet.
        closed: why nothing can be delivered now; empty if it can.
        enqueued, dequeued: messages since the start.
        rests: no slot is begun, for another broker is about to deliver, and asks how far this one has come.
    """

    def __init__(
        self,
        env: Environment,
        messages: Messages,
        put: Callable[[MessageExtBrokerInner], Awaitable[PutMessageResult]],
        on_delivered: Callable[[MessageExtBrokerInner, PutMessageResult], None],
    ) -> None:
        self._clock = env.clock
        self._on_failure = env.on_failure
        self._settings = env.settings
        self._store = messages.store
        self._own = env.own
        self.timer = TimerMessageStore(messages.store, disk=env.disk, clock=env.clock)
        self.exchange = TimerExchange(messages.store, self.timer)
        self.checkpoints = TimerCheckpoints(
            self.timer, self, settings=env.settings, store=messages.store, clock=env.clock
        )
        self._earlier = PriorRunDeliveries(messages.store, self.timer)
        self._unread = UnreadMarkers(self.timer)
        self._delivery = TimerDelivery(env.clock, put, on_delivered, self._earlier, messages.store.is_gone)
        self._passed_over = PassedOver(log)
        self._tasks: list[asyncio.Task[None]] = []
        self._woken = asyncio.Event()
        self._polled_until_ms = 0
        self._is_wanted = False
        self._starts = 0  # how often `start` was called
        self._began_with = 0  # value of `_starts` at the call that let this broker deliver
        self._work: SlotWork | None = None
        self._tick_ms = 0
        self._tick_offset = 0
        self._is_enqueue_stuck = False
        # first slot in which messages may be due that are not in the wheel yet
        self._unread_since_ms: int | None = None
        self._began_ms = 0
        self._waiting_at = 0  # position of the unit of a message that waited when retention asked last
        # physical offset from which on the master delivers what comes into its log
        self._masters_from: int | None = None
        self.rests: Callable[[], bool] = lambda: False
        self.is_loaded = False
        self.is_dequeuing = False
        self.term = 0
        self.failures = TimerFailures()
        self.closed = ""
        self.enqueued = 0
        self.dequeued = 0
        self.on_enqueued: Callable[[TimerRecord], None] = lambda record: None  # for the metrics
        self.on_dequeued: Callable[[TimerRecord], None] = lambda record: None

    # ---- life -------------------------------------------------------------------------------------------------------

    async def load(self) -> None:
        """Read the files. Raises StoreRefusedError or OSError if they cannot be read."""
        await run_blocking(self.timer.load)
        self.is_loaded = True
        self._store.cleaner.needs[SERVICE_NAME] = self._what_waits_below

    async def warn_of_waiting(self) -> None:
        """Say in the log how many messages wait that a broker without the wheel does not deliver."""
        await run_blocking(self.timer.metrics.load)
        waiting = sum(count for count in self.timer.metrics.counts.values() if count > 0)
        if waiting:
            log.warning(
                "timerWheelEnable is false, and %d timer messages wait: none is delivered until it is true again, and "
                "those are lost whose log files retention deletes until then",
                waiting,
            )

    def begin(self) -> None:
        """Start filling the wheel and writing checkpoints."""
        self._began_ms = self._clock.monotonic_ms()
        for name, run in (("", self._run()), (" checkpoint", self.checkpoints.run()), (" cleaning", self._clean())):
            task = asyncio.get_running_loop().create_task(run, name=SERVICE_NAME + name)
            supervise(task, self._on_failure)
            self._tasks.append(task)

    def start(self) -> None:
        """Start delivering."""
        self._is_wanted = True
        self._starts += 1
        self.wake()

    def stop(self) -> None:
        """Stop delivering."""
        self._is_wanted = False
        self.wake()

    async def wait_idle(self) -> None:
        """Wait until the open slot is delivered, at most a second."""
        for _ in range(_REST_LOOKS):
            if self._work is None:
                break
            await asyncio.sleep(_POLL_SECONDS)

    async def write_checkpoint(self) -> None:
        """Make the deliveries so far durable, so that other brokers can ask for them."""
        if self.is_loaded and self.is_dequeuing:
            await self.checkpoints.write(dequeues=True)

    async def shutdown(self) -> None:
        """End everything, and write the last checkpoint."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()
        if not self.is_loaded:
            return
        self.is_loaded = False
        dequeued = self.is_dequeuing
        if dequeued:
            self._end_dequeue()
        await self.checkpoints.write(dequeues=dequeued, is_last=True)
        self.timer.release()

    def release(self) -> None:
        """Unmap the files, and write nothing: a broker whose start failed has changed nothing in them."""
        if self.is_loaded:
            self.is_loaded = False
            self.timer.release()

    async def _what_waits_below(self, physical_offset: int) -> str:
        return "timer messages wait in it" if await self.has_waiting_below(physical_offset) else ""

    async def has_waiting_below(self, physical_offset: int) -> bool:
        """Return whether a message whose record lies before this physical offset waits in the wheel, or for its way
        into it: after fileReservedTime was lowered, one may be older than that. One that failed until fileReservedTime
        after it was due does not count. Other tasks run in between."""
        timer, turns = self.timer, Turns()
        if not self.is_loaded:
            return False
        if self._is_unread_below(physical_offset):
            return True
        found_at = self._waiting_at
        for start, end in ((found_at, timer.log.max_offset), (0, found_at)):
            if await self._has_waiting_unit(start, end, physical_offset, turns):
                return True
        for moved in timer.moved.all() or ():  # read at the end, because messages are moved meanwhile
            if self.is_loaded and moved.physical_offset < physical_offset and timer.needs_record(*moved):
                return True
            await turns.rest()
        return False

    async def _has_waiting_unit(self, start: int, end: int, physical_offset: int, turns: Turns) -> bool:
        """Return whether a unit of the timer log, between these positions, is of a message that waits in the wheel and
        whose record lies before this physical offset, and note where."""
        timer = self.timer
        position = max(start, timer.log.min_offset)
        while self.is_loaded and position < end:
            unit = timer.log.read(position)
            if unit is not None and unit.physical_offset < physical_offset:
                if timer.waits(unit) and timer.needs_record(unit.physical_offset, unit.size, unit.due_ms):
                    self._waiting_at = position
                    return True
            elif unit is not None and not unit.is_moved:
                break  # units lie in the order of their records, except for moved messages
            position = timer.log.next_position(position)
            await turns.rest()
        return False

    def _is_unread_below(self, physical_offset: int) -> bool:
        if not self.is_dequeuing:
            return False
        record = self.timer.topic.next_record()
        return record is not None and record.physical_offset < physical_offset

    def wake(self) -> None:
        """Wake the service, because a message has arrived or a setting has changed."""
        self._poll()
        self._woken.set()

    # ---- the task ---------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            self._woken.clear()
            has_more = False
            with self._passed_over("a step of the timer, which is tried again") as turn:
                has_more = await self._turn()
            if turn.failed:
                await asyncio.sleep(_AFTER_FAILURE)
            else:
                await (asyncio.sleep(0) if has_more else self._wait())

    async def _turn(self) -> bool:
        """Do the work that is due now. Returns False if there was none, so that the service may wait."""
        if self.is_dequeuing and not self._is_still_wanted():
            self._end_dequeue()
        self.exchange.apply(is_dequeuing=self.is_dequeuing)
        if self._is_wanted and not self.is_dequeuing:
            await self._begin_dequeue()
        moved = await self._enqueue(_ENQUEUE_AT_ONCE)
        worked = self.may_dequeue() and await self._dequeue()
        return moved or worked

    async def _wait(self) -> None:
        """Wait until the present slot of the wheel has ended, or a timer message arrives."""
        precision = self.timer.precision_ms
        seconds = (precision - self._clock.wall_ms() % precision + 1) / 1000
        if self.closed:
            seconds = min(seconds, _CLOSED_SECONDS)
        elif self._clock.monotonic_ms() < self._polled_until_ms:
            seconds = min(seconds, _POLL_SECONDS)
        try:
            async with asyncio.timeout(seconds):
                await self._woken.wait()
        except TimeoutError:
            pass

    # ---- enqueue ----------------------------------------------------------------------------------------------------

    async def _enqueue(self, most: int) -> bool:
        """Put at most `most` received messages into the wheel. Returns whether there were any."""
        self._is_enqueue_stuck = True
        if self._settings.store.timer_stop_enqueue:
            return False
        for done in range(most):
            if not self.may_enqueue():
                return done > 0
            record = self.timer.topic.next_record()
            if record is None:
                self._is_enqueue_stuck = False
                return done > 0
            if not await self._enqueue_one(record):
                return done > 0
            self.timer.topic.advance()
            self.enqueued += 1
            with self._passed_over(_COUNTING):
                self.on_enqueued(record)
        self._is_enqueue_stuck = False
        return True

    def may_enqueue(self) -> bool:
        """Return whether the wheel may be filled. A slave stops at its master's position; a master that is not its
        group's active broker yet waits."""
        if self.is_dequeuing:
            return True
        return self._is_slave() and self.timer.topic.queue_offset < self.timer.master_queue_offset

    def _is_slave(self) -> bool:
        return self._settings.store.broker_role == "SLAVE"

    async def _enqueue_one(self, record: TimerRecord) -> bool:
        """Put one message into the wheel. Returns False if it must be retried later."""
        if not self.is_dequeuing:
            return self.timer.is_done_elsewhere(record) or self.timer.put(record)
        if self.timer.was_passed(record) or self._earlier.take(record):
            return True  # it was delivered from an earlier slot than the one that it has now
        if not self.timer.is_past(record.out_ms):
            if not self.timer.put(record, beside=True):
                return False
            # the slot is over, and the marker that recalls the message may follow it in the topic
            if record.out_ms < self._tick_ms:
                self._tick_offset = self._taken_offset()
            self._count(record.real_topic, -1 if record.delete_key is not None else 1)
            return True
        if record.delete_key is not None:
            log.warning("the recall at physical offset %d came too late", record.physical_offset)
            return True
        self._tick()
        if not await self._look_for_markers():
            return False
        return self._unread.recall(record) or await self._deliver(record, NEVER_ENQUEUED, rolls=False)

    async def _look_for_markers(self) -> bool:
        """Read the messages of the topic that are not in the wheel yet, to find those that recall due messages. Returns
        False if they cannot be read yet."""
        end = min(self._tick_offset, self.timer.topic.max_queue_offset)
        while not self._unread.look(end, _ENQUEUE_AT_ONCE):  # noqa: ASYNC110
            await asyncio.sleep(0)  # lets other tasks run
        if self.timer.topic.max_queue_offset >= self._tick_offset:
            return True
        self._poll()
        return False

    def _count(self, topic: str, count: int) -> None:
        self.timer.metrics.add(topic, count, self._clock.wall_ms())

    # ---- dequeue ----------------------------------------------------------------------------------------------------

    @property
    def delivered_until_ms(self) -> int:
        """Return the wall-clock time up to which all messages that are due have been delivered; 0 if unknown. While the
        wheel is not filled, those that wait before it may be due, too."""
        if not self.is_dequeuing:
            return 0
        return self.timer.read_time_ms if self._unread_since_ms is None else self._unread_since_ms

    def may_dequeue(self) -> bool:
        """Return whether this broker delivers and no setting pauses it."""
        config = self._settings.store
        waited_ms = self._clock.monotonic_ms() - self._began_ms
        return self.is_dequeuing and not config.timer_stop_dequeue and waited_ms >= config.disappear_time_after_start

    async def _dequeue(self) -> bool:
        """Deliver a part of a slot whose time is over. Returns whether there was one."""
        if self._work is None:
            if self.rests():
                return False
            self._tick()
            if self.timer.topic.queue_offset < self._tick_offset:
                if self.timer.is_refused:  # a marker that could not be put may recall a message that is due
                    return False
                if not self._is_enqueue_stuck:
                    return self._is_next_visible()
                if not await self._look_for_markers():
                    return False
                if self._unread_since_ms is None:
                    self._unread_since_ms = self.timer.read_time_ms
            else:
                self._unread_since_ms = None
            slot = self.timer.next_slot(_SKIP_AT_ONCE)
            if slot is None:
                self._earlier.forget_passed(self._tick_ms)
                return self.timer.read_time_ms < self._tick_ms
            self._work = SlotWork(slot, self.timer.open(slot), self._store.max_physical_offset)
        return await self._work_on(self._work)

    async def _is_final(self) -> bool:
        """Return whether the deliveries can no longer be lost. In a DLedger group the wheel clears a slot only then, so
        that slaves learn only what is true of any leader's log."""
        marks = self._store.marks
        if self._store.ledger is None:
            return True  # outside of a DLedger group, checkpoints wait for the disk anyway
        mark = marks.mark()
        return mark.term == self.term and await marks.make_final(mark)

    def _tick(self) -> None:
        """Wait until the next slot's time is over. All messages put before that may recall messages in it."""
        now = self.timer.write_time_ms
        if now != self._tick_ms:
            self._tick_ms, self._tick_offset = now, self._taken_offset()

    def _taken_offset(self) -> int:
        """Return the topic's end as writers see it; with SYNC_FLUSH the last messages become readable a little
        later."""
        return self.timer.topic.taken_queue_offset if self._own.is_master else self.timer.topic.max_queue_offset

    def _is_next_visible(self) -> bool:
        if self.timer.topic.queue_offset < self.timer.topic.max_queue_offset:
            return True
        self._poll()
        return False

    def _poll(self) -> None:
        """Check often for messages that become readable within a moment."""
        self._polled_until_ms = self._clock.monotonic_ms() + _POLLED_MS

    async def _work_on(self, work: SlotWork) -> bool:
        for _ in range(_DELIVER_AT_ONCE):
            unit = work.next_unit()
            if unit is None:
                if not await self._is_final():
                    return False
                for topic in work.idle_markers():
                    self._count(topic, 1)
                for physical_offset in work.marker_offsets:
                    self.timer.moved.forget(physical_offset)
                self.timer.finish(work.slot)
                self._work = None
                return True
            if not self._is_still_wanted() or not await self._dequeue_unit(work, unit):
                return False
            work.done()
        return True

    async def _dequeue_unit(self, work: SlotWork, unit: TimerUnit) -> bool:
        """Deliver one unit. Returns False if no delivery is possible at the moment."""
        if not self.timer.moved.counts(unit):
            return True
        record = self.timer.topic.record_at(unit.physical_offset, unit.size)
        if record is None:
            self.timer.moved.forget(unit.physical_offset)
            return True
        if unit.rolls:
            return await self._roll(record, unit)
        if record.delete_key is not None:
            work.add_marker(record)
            return True
        if work.is_recalled(record):
            self._is_done(record)
            return True
        if self._unread.recall(record):
            self._is_done(record)
            self._count(record.real_topic, -1)  # its marker will not find it any more
            return True
        now_ms = self._clock.wall_ms()
        if record.earliest_ms > now_ms:  # never early, whatever the wheel says
            # The move counts only in a checkpoint that names it; otherwise the old place counts. If the broker before
            # had a coarser precision, the new slot is that of the marker which recalls the message.
            return self.timer.move(record, 0 if record.out_ms > now_ms else record.earliest_ms - 1)
        delivered = await self._deliver(record, unit.write_time_ms, rolls=False)
        if delivered:
            self.dequeued += 1
            with self._passed_over(_COUNTING):  # a failure must not have it delivered again
                self.on_dequeued(record)
        return delivered

    async def _roll(self, record: TimerRecord, unit: TimerUnit) -> bool:
        """Append a message that is not due yet to the log again, so that retention does not delete its record. Where
        this broker may not write, the wheel alone keeps the message. The same holds for a message that is due by now
        and would be read late: its marker, or the message it recalls, is in a slot that comes soon."""
        if not self._own.is_master:
            return self.timer.move(record, 0)
        is_read_late = self._is_enqueue_stuck and record.out_ms < self.timer.write_time_ms
        if (
            is_read_late
            and self.timer.moved.has_room(record.physical_offset)
            and not self._earlier.take(record)
            and self.timer.move(record, 0)
        ):
            return True
        delivered = await self._deliver(record, unit.write_time_ms, rolls=True)
        self._tick_offset = self._taken_offset()  # such a message may be due in the next slot, or recall one that is
        return delivered

    async def _deliver(self, record: TimerRecord, enqueue_ms: int, *, rolls: bool) -> bool:
        """Deliver a message. Returns False if no delivery is possible at the moment."""
        delivery = await self._delivery.deliver(record, enqueue_ms, rolls=rolls)
        if delivery.outcome is TimerOutcome.CLOSED:
            if not self.closed:
                log.warning("timer messages wait because none can be stored: %s", delivery.reason)
            self.closed = delivery.reason
            return False
        self.closed = ""
        if delivery.outcome is TimerOutcome.AGAIN:
            return self._postpone(record, delivery, rolls=rolls)
        self._is_done(record)
        if enqueue_ms != NEVER_ENQUEUED:
            self._count(record.real_topic, 1 if record.delete_key is not None else -1)
        return True

    def _is_done(self, record: TimerRecord) -> None:
        self.failures.forget(record.physical_offset)
        self.timer.moved.forget(record.physical_offset)

    def _postpone(self, record: TimerRecord, delivery: TimerDeliveryResult, *, rolls: bool) -> bool:
        failure = self.failures.next(record.physical_offset, delivery.reason)
        now = self._clock.wall_ms()
        # a message that is rolled on keeps its own time, at which a marker meets the message that it recalls
        if not self.timer.move(record, now + failure.wait_ms if record.out_ms <= now and not rolls else 0):
            return False
        self.failures.put(record.physical_offset, failure)
        log.error(
            "a timer message of %s (%s, physical offset %d), due at %d, could not be delivered %d times, and is tried "
            "again: %s", record.real_topic, record.unique_key, record.physical_offset, record.out_ms,
            failure.times, failure.reason,
        )  # fmt: skip
        return True

    # ---- who dequeues -----------------------------------------------------------------------------------------------

    async def _begin_dequeue(self) -> None:
        """Find out which deliveries the checkpoint does not record. If that is not possible yet, or delivery is no
        longer wanted or was started again, nothing begins."""
        self._began_with = self._starts
        await self._store.wait_for_dispatch()
        if not self._is_still_wanted():
            return
        self.term = self._store.marks.mark().term
        self._masters_from = None if self._own.is_master else self._store.max_physical_offset
        await self._earlier.look_for()
        if not self._is_still_wanted():
            return
        self.timer.take_over()
        if not self._take_moved():
            return
        self.is_dequeuing = True
        log.info("the timer delivers messages that are due from %d on", self.timer.read_time_ms)

    def _is_still_wanted(self) -> bool:
        """Return whether this broker is to deliver, without a break since it began to: in a break another broker may
        have delivered."""
        return self._is_wanted and self._began_with == self._starts

    def _take_moved(self) -> bool:
        """Adopt moved messages again: the previous broker may have delivered them; those that it had moved and not
        delivered are due now. Returns False if the wheel does not take one of them yet."""
        for record, is_here in self.timer.moved_records():
            if self._earlier.take(record):
                self.timer.moved.forget(record.physical_offset)
            elif not is_here and not self.timer.move(record, self._clock.wall_ms()):
                return False
        return True

    def _end_dequeue(self) -> None:
        if self._store.ledger is None:
            self.timer.dedupe_position = self.dedupe_position()
            self.timer.master_queue_offset = self.timer.topic.queue_offset
        else:  # deliveries since the last checkpoint may be lost, so the next leader begins there
            self.timer.master_queue_offset = self.timer.saved.master_timer_queue_offset
            self.timer.moved.take_again(self.timer.saved.moved)
        self.timer.close()
        self._work = self._unread_since_ms = None
        self.is_dequeuing = False
        log.info("the timer no longer delivers")

    def dedupe_position(self) -> int:
        """Return the physical offset behind which the copies of those messages lie that a checkpoint of this moment
        does not record as delivered."""
        if self._earlier.scanned_from is not None:
            return self._earlier.scanned_from
        # the master may be back, and may have delivered messages that wait here for another try
        if self._masters_from is not None:
            return self._masters_from
        return self._store.max_physical_offset if self._work is None else self._work.began_at

    async def _clean(self) -> None:
        """Delete files of the timer log whose messages are gone from the CommitLog."""
        while True:
            await asyncio.sleep(_CLEAN_SECONDS)
            try:
                while await run_blocking(self.timer.log.has_expired, self._store.min_physical_offset):
                    with self.timer.log.without_first() as first:
                        await run_blocking(first.destroy)
            except OSError as error:
                log.error("a file of the timer log cannot be deleted now: %s", error)
