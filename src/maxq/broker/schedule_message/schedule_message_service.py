"""ScheduleMessageService: delivers what waits in SCHEDULE_TOPIC_XXXX, while this broker is its group's active one.

A start reads delayOffset.json, moves its offsets into the queues, looks in the log for what was delivered since, and
then lets every level run. A message that could not be delivered because of an error of MaxQ is postponed: it is tried
again after 10 s, then after twice as long each time, at most 10 minutes, and is named in the file until it is
delivered. The file is written every flushDelayOffsetInterval and at the end, never ahead of the log: a table that says
"delivered" is written when the delivered messages are durable, and in a DLedger group, where slaves take over what was
written last, when they are committed.

Source:
    broker/schedule/ScheduleMessageService.java.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Final, NamedTuple

from maxq.broker.bundles import Environment, Messages, Tables
from maxq.broker.schedule_message.delay_level_queue import DelayedUnit, DelayLevelQueue
from maxq.broker.schedule_message.delay_levels import DelayLevels, level_of
from maxq.broker.schedule_message.delay_offset_table import DelayOffsetTable
from maxq.broker.schedule_message.delayed_delivery import DelayedDelivery, Put, Undelivered
from maxq.broker.schedule_message.delivery_recovery import UNDELIVERED_MOST, DeliveryRecovery
from maxq.broker.schedule_message.fast_path_delivery import FastPathDelivery
from maxq.broker.schedule_message.level_delivery import LevelDelivery
from maxq.broker.schedule_message.store_schedule_queue import StoreScheduleQueue
from maxq.broker.tables.topic.topic_validator import SCHEDULE_TOPIC
from maxq.config.message_store_config import MessageStoreConfig
from maxq.errors import MessageIllegalError, RemoteProtocolError, StoreRefusedError
from maxq.protocol.message import message_const as const
from maxq.protocol.message.message import MessageExt
from maxq.runtime.background import supervise
from maxq.runtime.blocking import TABLES, run_blocking
from maxq.runtime.turns import Turns
from maxq.store.append.message_ext_broker_inner import MessageExtBrokerInner
from maxq.store.store_results import PutMessageResult

log = logging.getLogger(__name__)

SERVICE_NAME: Final = "ScheduleMessageService"
_POSTPONED_MOST: Final = 1_000  # most postponed messages; above, levels wait
_POSTPONED_MS: Final = 10_000
_POSTPONED_MOST_MS: Final = 600_000
_POSTPONED_LOOK: Final = 1.0  # seconds
# seconds between a delivery to another broker and the write of the table that records it
_ELSEWHERE_SECONDS: Final = 0.2
# skipped messages after which the table is written, because the log has no trace of them
_UNTOLD_MOST: Final = UNDELIVERED_MOST // 2
_LOOKED_AT: Final = 32  # units of a queue that are read at once, to find the first one whose message is in the log
_HOUR_MS: Final = 3_600_000
_SEARCHED_MOST: Final = 256 * 1024 * 1024  # bytes of log that a start after a crash looks through, about


class _Postponed(NamedTuple):
    """A message that could not be delivered: the number of attempts, and the time of the next one (monotonic clock)."""

    unit: DelayedUnit
    tries: int
    due_ms: int


class ScheduleMessageService:
    """A master-only service: `start` when this broker becomes its group's active one, `stop` when it no longer is.

    Attributes:
        given_up: messages that could not be delivered since this broker runs.
    """

    def __init__(
        self,
        env: Environment,
        tables: Tables,
        messages: Messages,
        levels: DelayLevels,
        put: Put,
        doubt: Callable[[], str | None],
        on_delivered: Callable[[int, int, int], None],
    ) -> None:
        self._settings = env.settings
        self._on_failure = env.on_failure
        self._files = tables.files
        self._store = messages.store
        self.fast_path = FastPathDelivery(messages.store)
        self._own = env.own
        self._clock = env.clock
        self._put = put
        self._doubt = doubt
        self._on_delivered = on_delivered
        self._levels = levels
        self._table = DelayOffsetTable(env.clock, lambda: env.settings.broker.delay_offset_update_version_step)
        self._deliveries: dict[int, LevelDelivery] = {}
        # level → queue offset behind which messages were stored by this run, so no table knows them
        self._ends: dict[int, int] = {}
        self._runs: list[asyncio.Task[None]] = []  # the last run, and earlier ones that have not ended yet
        self._is_wanted = False
        self._is_loaded = False
        self._written_state: tuple[object, object] | None = None
        self._postponed: dict[tuple[int, int], _Postponed] = {}  # by level and queue offset
        self._written_end = 0
        self._written = b""
        self._term = 0  # term of the leadership in which this broker delivers (LogMark)
        # set when something was done that leaves no trace in the log, so the table must be written soon
        self._is_untold = asyncio.Event()
        self._passed_over = 0  # messages that were skipped since the table was written
        # physical offset from which on the master delivers what comes into its log
        self._masters_from: int | None = None
        self.given_up = 0
        messages.store.cleaner.needs[SERVICE_NAME] = self._what_waits_below

    # ---- starting and stopping ----------------------------------------------------------------------------------

    def start(self) -> None:
        """Start to deliver the messages of all levels, after deliveries of an earlier start have ended."""
        if not self._is_wanted:
            self._is_wanted = True
            for level in {*self._levels.levels(), *self._stored_levels()}:
                self._note_end(level)
            before = [run for run in self._runs if not run.done()]
            task = asyncio.get_running_loop().create_task(self._run(before), name=SERVICE_NAME)
            self._runs = [*before, task]
            supervise(task, self._on_failure, SERVICE_NAME)

    def stop(self) -> None:
        """Stop delivering. The table is written in the background; `shutdown` waits for it."""
        if self._is_wanted:
            self._is_wanted = False
            self._ends = {}
            self._runs[-1].cancel()

    async def shutdown(self) -> None:
        """Stop, and wait until the table is durable."""
        self.stop()
        if self._runs:
            await asyncio.wait(self._runs)

    @property
    def is_running(self) -> bool:
        """Return whether the task that delivers messages is running."""
        return any(not run.done() for run in self._runs)

    def wake(self, level: int) -> None:
        """Wake the delivery of a level, because a message of this level is about to be stored."""
        if not self._is_wanted and self._settings.store.broker_role != "SLAVE":
            self._note_end(level)  # a new master accepts messages a moment before its delivery starts
        delivery = self._deliveries.get(level)
        if delivery is not None:
            delivery.wake()

    def _note_end(self, level: int) -> None:
        self._ends.setdefault(level, self._queue(level).taken_offset)

    async def _run(self, before: "list[asyncio.Task[None]]") -> None:
        if before:
            await asyncio.wait(before)
        self._is_loaded, self._written_state = False, None
        tasks: list[asyncio.Task[None]] = []
        try:
            await self._load()
            tasks = [asyncio.create_task(level.run(), name=f"delay level {n}") for n, level in self._deliveries.items()]
            tasks.append(asyncio.create_task(self._try_again_and_again(), name="postponed delayed messages"))
            await self._persist_again_and_again()
        finally:
            await _cancelled(tasks)
            if self._is_loaded:
                await self._persist()
            self._files.set_delay_offsets(None)
            self._deliveries = {}

    # ---- loading -------------------------------------------------------------------------------------------------

    async def _load(self) -> None:
        await self._store.wait_for_dispatch()
        if self._settings.store.broker_role == "SLAVE":  # a slave stores nothing itself
            self._ends = {level: self._queue(level).max_offset for level in self._ends}
        self._term = self._store.marks.mark().term
        self._masters_from = None if self._own.is_master else self._store.max_physical_offset
        await self._read()
        levels = self._known_levels()
        for level in levels:
            self._note_end(level)
            before = self._table.offset(level)
            corrected = self._queue(level).corrected(before, self._ends[level])
            if corrected != before:
                self._say_corrected(level, before, corrected)
                self._table.update(level, corrected)
        delivered = DeliveryRecovery(self._store, levels, self._queue, self._table)
        await delivered.find()
        self._postponed, self._table.postponed = {}, set()
        for level, unit in delivered.missed:
            log.warning("delayed message %d of level %d is delivered now: the log has messages that were delivered "
                        "after it, but not this one", unit.queue_offset, level)  # fmt: skip
            self._postpone(level, unit, "")
        for level in levels:
            queue = DelayLevelQueue(
                self._queue(level), self._levels.delay_ms(level), self._clock, self._table.offset(level)
            )
            self._deliveries[level] = LevelDelivery(level, queue, self)
        self._is_loaded = True
        self._written = self._table.encode(self._known_end())
        self._files.set_delay_offsets(self._encode)

    def _say_corrected(self, level: int, before: int, corrected: int) -> None:
        """Log what it means that the queue of a level does not have the offset that delayOffset.json says."""
        delay_s = self._levels.delay_ms(level) // 1000
        if corrected < before:
            log.warning(
                "delay level %d (%d s): delayOffset.json says that messages up to queue offset %d were delivered, but "
                "the queue ends at %d: the log has lost its end since, or is another one. What is stored from now on "
                "is delivered; look for older messages in a copy of the log", level, delay_s, before, corrected,
            )  # fmt: skip
        elif level not in self._table.offsets():
            log.info("delay level %d (%d s): nothing says what was delivered; its queue begins at offset %d",
                     level, delay_s, corrected)  # fmt: skip
        else:
            log.error(
                "up to %d messages of delay level %d (%d s; queue offsets %d to %d) are lost: they were deleted with "
                "their log files before they were delivered, while the broker was down or the disk was full; what "
                "was delivered in the ten seconds before the last end counts, too. Their senders must send them again, "
                "or restore the log from a copy. Make room, or raise fileReservedTime",
                corrected - before, level, delay_s, before, corrected - 1,
            )  # fmt: skip

    async def _read(self) -> None:
        """Read the file, else its backup. Without either, only the log tells which messages were delivered.

        Raises:
            StoreRefusedError: the disk, or a permission, does not let one of them be read.
        """
        for backup in (False, True):
            try:
                text = await run_blocking(self._files.read_delay_offsets, backup)
                self._table.decode(text)
            except RemoteProtocolError as error:
                log.error("%s cannot be read: %s", "the backup of delayOffset.json" if backup else "delayOffset.json",
                          error)  # fmt: skip
                continue
            except OSError as error:
                raise StoreRefusedError(
                    f"how far delayed messages were delivered cannot be read: {error}. Give this user permission to "
                    "read and write the file, or move it away: then the log is searched for what was delivered."
                ) from error
            if text is not None:
                return
        self._table.decode(None)

    def _known_levels(self) -> list[int]:
        """Returns the configured levels, and those of an earlier, longer configuration in which messages still wait."""
        levels, earlier = list(self._levels.levels()), []
        for level in self._stored_levels():
            if level > len(levels) and self._queue(level).max_offset > self._table.offset(level):
                earlier.append(level)
        return levels + earlier

    def _stored_levels(self) -> list[int]:
        """Return the levels whose queues are in the store, whatever the configuration had then."""
        return [level_of(queue.queue_id) for queue in self._store.queues.of_topic(SCHEDULE_TOPIC)]

    def _queue(self, level: int) -> StoreScheduleQueue:
        return StoreScheduleQueue(self._store, level)

    # ---- what its levels ask and tell (LevelOwner) -----------------------------------------------------------------

    def config(self) -> MessageStoreConfig:
        """Implement LevelOwner, whose docstring says what is promised."""
        return self._settings.store

    def is_local(self) -> bool:
        """Implement LevelOwner, whose docstring says what is promised."""
        return self._own.is_master

    def is_sure(self) -> bool:
        """Implement LevelOwner, whose docstring says what is promised."""
        return self._doubt() is None

    def may_postpone(self) -> bool:
        """Implement LevelOwner, whose docstring says what is promised."""
        return len(self._postponed) < _POSTPONED_MOST

    async def put(self, message: MessageExtBrokerInner) -> PutMessageResult:
        """Implement LevelOwner, whose docstring says what is promised."""
        return await self._put(message)

    def on_delivered(self, level: int, unit: DelayedUnit, result: PutMessageResult | Undelivered) -> None:
        """Implement LevelOwner, whose docstring says what is promised."""
        self._table.update(level, unit.queue_offset + 1)
        if isinstance(result, Undelivered):
            self._passed_over += 1
            if self._passed_over >= _UNTOLD_MOST:
                self._is_untold.set()
        if isinstance(result, Undelivered) and not result.is_final:
            self._postpone(level, unit, result.reason)
        else:
            self._count(level, result)

    def _count(self, level: int, result: PutMessageResult | Undelivered) -> None:
        if isinstance(result, Undelivered):
            self.given_up += 1
        elif result.physical_offset >= 0:
            self._on_delivered(level, result.message_count, result.size)
        else:
            self._is_untold.set()

    # ---- what retention must leave -------------------------------------------------------------------------------

    async def _what_waits_below(self, physical_offset: int) -> str:
        """Return, in a clause for the log, of which level a message waits whose record lies before this physical
        offset; empty if there is none. A broker that does not deliver goes by the table that it has of its master.

        A message that was postponed until fileReservedTime after it was due may never be storable, and must not keep
        the log."""
        table = DelayOffsetTable(self._clock, lambda: 1)
        try:
            text = await run_blocking(self._files.delay_offsets)
            table.decode(text)
        except OSError as error:
            return f"how far delayed messages were delivered cannot be read: {error}"
        except RemoteProtocolError:
            text = None
        if text is None:  # no file says what was delivered
            return ""
        low = self._store.min_physical_offset
        given_up_ms = self._store.time.now_ms() - self._settings.store.file_reserved_time * _HOUR_MS
        for level in sorted(self._stored_levels()):
            queue = self._queue(level)
            postponed = [queue.unit(offset) for of, offset in table.postponed if of == level]
            waiting = [unit for unit in postponed if unit is not None and unit[2] >= given_up_ms]
            unread = await self._first_in_log(queue, table.offset(level))
            if any(unit is not None and low <= unit[0] < physical_offset for unit in (*waiting, unread)):
                return f"delayed messages of level {level} wait in it"
        return ""

    async def _first_in_log(self, queue: StoreScheduleQueue, offset: int) -> tuple[int, int, int] | None:
        """Return the unit of the first message of a level, from a queue offset on, that is not damaged and whose record
        is in the log; None if there is none. Those behind it lie behind it in the log, too."""
        turns, offset = Turns(), max(offset, queue.min_offset)
        while offset < queue.max_offset:
            units = queue.units(offset, _LOOKED_AT)
            for unit in units:
                if unit is not None and unit[0] >= self._store.min_physical_offset:
                    return unit
            offset += len(units)
            await turns.rest()
        return None

    # ---- what is postponed ---------------------------------------------------------------------------------------

    def _postpone(self, level: int, unit: DelayedUnit, reason: str) -> None:
        """Postpone a message. `reason` is why it could not be delivered; empty if it was not tried."""
        key = level, unit.queue_offset
        tries = self._postponed[key].tries + 1 if key in self._postponed else bool(reason)
        wait_ms = min(_POSTPONED_MS << min(tries - 1, 20), _POSTPONED_MOST_MS) if tries else 0
        self._postponed[key] = _Postponed(unit, tries, self._clock.monotonic_ms() + wait_ms)
        self._table.postpone(*key)
        if reason:
            log.error("delayed message %d of level %d (physical offset %d) could not be delivered %d times, and is "
                      "tried again: %s", unit.queue_offset, level, unit.physical_offset, tries, reason)  # fmt: skip

    async def _try_again_and_again(self) -> None:
        while True:
            for (level, offset), postponed in list(self._postponed.items()):
                if postponed.due_ms <= self._clock.monotonic_ms():
                    await self._try_again(level, offset, postponed.unit)
            await asyncio.sleep(_POSTPONED_LOOK)

    async def _try_again(self, level: int, offset: int, unit: DelayedUnit) -> None:
        result = await DelayedDelivery(level, unit, self.message_at, self._put).run()
        if isinstance(result, Undelivered) and not result.is_final:
            self._postpone(level, unit, result.reason)
            return
        del self._postponed[level, offset]
        self._table.forget_postponed(level, offset)
        self._count(level, result)

    def on_delivered_together(self, level: int, next_offset: int, messages: int, size: int) -> None:
        """Implement LevelOwner, whose docstring says what is promised."""
        self._table.update(level, next_offset)
        self._on_delivered(level, messages, size)

    # ---- writing -------------------------------------------------------------------------------------------------

    def _encode(self) -> bytes:
        """Return the bytes that slaves copy. On a DLedger leader they cover only committed deliveries, because a member
        that becomes the leader has no others."""
        return self._table.encode(self._known_end()) if self._store.ledger is None else self._written

    def _known_end(self) -> int:
        """Return the physical offset up to which the table knows all deliveries. An acting slave stores no deliveries
        itself: its log grows when the master is back, which may have delivered before the slave knows of it."""
        return self._store.max_physical_offset if self._masters_from is None else self._masters_from

    async def _persist_again_and_again(self) -> None:
        """Persist every flushDelayOffsetInterval, and soon after a message was sent to another broker, or many were
        passed over, because the log has no trace of that."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._settings.store.flush_delay_offset_interval / 1000):
                    await self._is_untold.wait()
                    await asyncio.sleep(_ELSEWHERE_SECONDS)
            self._is_untold.clear()
            await self._persist()

    async def _persist(self) -> None:
        """Write the table as soon as the deliveries it names can no longer be lost."""
        store = self._store
        state, end, mark = self._table.state(), self._known_end(), store.marks.mark()
        passed_over = self._passed_over
        text = self._table.encode(end)
        if state == self._written_state and end - self._written_end < _SEARCHED_MOST:
            return
        if mark.term != self._term or not await store.marks.make_final(mark):
            return
        self._written = text
        try:
            await TABLES.run(self._files.write_delay_offsets, text)
        except OSError as error:
            log.error("delayOffset.json cannot be written, it is tried again: %s", error)
            return
        self._written_state, self._written_end = state, end
        self._passed_over -= passed_over

    def message_at(self, physical_offset: int) -> MessageExt | None:
        """Return the delayed message at a physical offset; None if there is none.

        Raises:
            MessageIllegalError: its topic was deleted since, and it with the topic.
        """
        message = self._store.look_message_by_offset(physical_offset)
        topic = "" if message is None else message.properties.get(const.PROPERTY_REAL_TOPIC, "")
        if self._store.is_gone(topic, physical_offset):
            raise MessageIllegalError(f"its topic {topic} was deleted after it was stored")
        return message

    # ---- looking -------------------------------------------------------------------------------------------------

    def runtime_info(self) -> dict[str, str]:
        """Return `scheduleMessageOffset_<level>` for each level: its delivery offset, and the end of its queue."""
        return {
            f"scheduleMessageOffset_{level}": f"{offset},{self._queue(level).max_offset}"
            for level, offset in sorted(self._table.offsets().items())
        }


async def _cancelled(tasks: "list[asyncio.Task[None]]") -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
