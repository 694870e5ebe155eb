"""PopService: the background work of pop consumption. A MasterOnlyService.

When it begins it reads the journal, so that it knows what was given away. Then, ten times a second as long as something
is open, it revives messages that were not acknowledged in time, hands over to the revive topic check points that have
been open for long, and moves the place from which a start reads the journal. Once a second it looks at the revive
topic.

Source:
    broker/processor/{PopBufferMergeService,PopReviveService}.java (their threads), BrokerController.java
    changeSpecialServiceStatus.
"""

import asyncio
import contextlib
import logging
from collections.abc import Collection, Iterable
from typing import Any, Final

from maxq.broker.bundles import Environment, Messages, Tables
from maxq.broker.failover.assembly import Failover
from maxq.broker.pop import hand_back
from maxq.broker.pop.check_point_buffer import CheckPointBuffer, LateAck, LiveCheckPoint, ack_of, point_of, row_of_ack
from maxq.broker.pop.order_service import OrderService
from maxq.broker.pop.pop_journal import NOT_NOTED, queues_told
from maxq.broker.pop.pop_revive import PopReviveService
from maxq.broker.pop.unfinished_revives import Key, UnfinishedRevives
from maxq.broker.processors.acknowledgement import remark_of
from maxq.broker.processors.refusal import Refusal
from maxq.broker.tables.offset.offset_table import split_key
from maxq.codes import ResponseCode
from maxq.errors import RequestRefusedError
from maxq.protocol.body.pop import AckMsg, PopCheckPoint
from maxq.runtime.background import supervise
from maxq.runtime.blocking import TABLES
from maxq.runtime.passed_over import PassedOver
from maxq.runtime.refusals import Cause
from maxq.store.durability.log_marks import LogMark
from maxq.store.store_results import PutMessageResult

log = logging.getLogger(__name__)

NOTHING_NOTED: Final = (
    "no messages are delivered now, because the broker cannot record who has them: its log cannot be written (the disk "
    "is full or fails, or this broker is not the master any more); ask again, or look at the disk"
)

NOT_KEPT: Final = (
    "it is done, but a restart would not know of it, because the log takes nothing now (the disk is full or fails, or "
    "this broker is not the master any more): order it again, or look at the disk"
)

_TICK_SECONDS: Final = 0.1
_SAVE_MS: Final = 10_000
_CLEAN_MS: Final = 30_000
_AGAIN_MS: Final = 1_000
_A_TURN: Final = 100
_READY_SECONDS: Final = 2.0
_UNWRITTEN_MS: Final = 60_000  # how long behind a check point's time an ack is retried: the timer may be late
# kinds of rows that a start or an administrator's order may write before a missing ack is written
_OF_STARTS: Final = frozenset("ruce")


class _TakenResets:
    """Finds in the journal's records, taken in order, which resets groups have taken.

    Attributes:
        taken: where groups were set last, by topic, group and queue, if they were given messages since.
    """

    def __init__(self) -> None:
        self._last: dict[tuple[Any, ...], int] = {}
        self.taken: dict[tuple[Any, ...], int] = {}

    def take(self, entries: dict[str, list[Any]]) -> None:
        """Add what the next record of the pop journal says, given as its rows by their letter."""
        for queue in queues_told({name: entries[name] for name in ("p", "o") if name in entries}):
            if queue in self._last:
                self.taken[queue] = self._last[queue]
        for topic, group, queue_id, offset in entries.get("r", ()):
            queue = topic, group, queue_id
            self._last[queue] = offset
            self.taken.pop(queue, None)


class PopService:
    """The pop service of one broker.

    Attributes:
        reign: how often this broker has become its group's active one.
        log_began_at: physical end of the log when it did so last. Messages behind it were given out in this reign.
    """

    def __init__(
        self,
        env: Environment,
        tables: Tables,
        messages: Messages,
        failover: Failover,
        buffer: CheckPointBuffer,
        orders: OrderService,
        revive: PopReviveService,
    ) -> None:
        self._own = env.own
        self._acting = failover.acting
        self._services = failover.services
        self._journal = buffer.journal
        self._buffer = buffer
        self._clock = env.clock
        self._orders = orders
        self._store = messages.store
        self._acknowledgement = messages.acknowledgement
        self._settings = env.settings
        self._on_failure = env.on_failure
        self._handed_back = failover.metadata.take_pops
        self._offsets = tables.offsets
        self._records = revive.records
        self._topics = tables.topics
        self._groups = tables.groups
        self._reviver = revive.reviver
        self._counts = revive.records.counts
        self._revive = revive
        self._passed_over = PassedOver(log)
        self._ready = asyncio.Event()
        self._knows = False  # the state in memory is complete
        self._task: asyncio.Task[None] | None = None
        self._filled = asyncio.Event()
        buffer.on_filled = self._filled.set
        self._saved_ms = 0
        self._cleaned_ms = 0
        self._revived_ms = 0
        self._again_ms = 0
        self._needed = -1
        self._appended_before = 0  # physical end of the log when this broker became the active one, visible or not
        self._unfinished = UnfinishedRevives(self._store, self._journal, self._clock, self._appended_before)
        self._read_end = 0  # queue offset up to which the journal was read
        self._renewed: list[list[int]] = []  # rows "w" of the last record that has rows of kinds outside `_OF_STARTS`
        self._unwritten: list[LateAck] = []  # acks that the log did not take yet
        self._unwritten_from = -1  # queue offset of the first record of the journal that names any of them; -1: none
        self._written_up_to: LogMark | None = None  # the acks that the log has taken lie before this mark
        self._held_until_ms = 0  # monotonic ms until which a slave that has handed back waits for its master
        self._stood_in = False  # this broker was last active as a slave that acts as master
        self._kept = b""  # on a slave that no longer acts: its state, in the form in which it is handed back
        self._kept_end = 0  # end of the journal at which that state was taken
        self._kept_until_ms = 0  # monotonic ms: the master takes the state over before this, or never
        # id of the master's return for which the state was handed back; None: for none yet
        self._asked_for: str | None = None
        self.reign = 0
        self.log_began_at = 0

    def not_ready(self) -> Refusal | None:
        """Return why this broker gives out no messages at the moment; None if it does."""
        if not self._services.is_running:
            return Refusal(
                ResponseCode.SERVICE_NOT_AVAILABLE,
                "this broker is not the active one of its group: pop consumption is its master's; ask the master",
            )
        doubt = self._acting.doubt()
        if doubt is not None:
            return Refusal(
                ResponseCode.SERVICE_NOT_AVAILABLE, f"[{Cause.NOT_SURE}]no messages are delivered now: {doubt}"
            )
        if not self._ready.is_set():
            return Refusal(
                ResponseCode.SYSTEM_BUSY,
                "this broker is reading the pop records of its last run, or hands them to its master: ask again soon",
            )
        if self._journal.takes_nothing():
            return Refusal(ResponseCode.SYSTEM_BUSY, NOTHING_NOTED)
        return None

    def is_as_in(self, reign: int) -> bool:
        """Return whether messages that this broker read for a pop in reign number `reign` may be given out now. They
        may not if another broker has taken over since, or may have."""
        return self.reign == reign and self.not_ready() is None

    async def ready(self) -> None:
        """Return when this broker knows which messages were popped. Raises RequestRefusedError if it is not the active
        broker, or if that takes too long."""
        if self._ready.is_set():
            return
        if self._services.is_running:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_READY_SECONDS):
                    await self._ready.wait()
        refusal = self.not_ready()
        if refusal is not None:
            raise RequestRefusedError(refusal.code, refusal.remark)

    def give_way(self) -> None:
        """Stop promising, because this slave's master comes back. Its state is handed back when no request is under way
        any more (`hand_back`)."""
        if self._task is None or self._acting.is_acting_master:
            self._held_until_ms = self._clock.monotonic_ms() + hand_back.HELD_MS
            self._ready.clear()
            self._buffer.is_open = False

    def hand_back(self, return_id: str) -> bytes:
        """Answer the returning master of an acting slave with the slave's pop state (hand_back.py). A master that asks
        again, because the answer was lost, gets it again; so does one whose return a name server reported before it
        could ask. A slave that begins to act only now, because no name server knows its master yet, promises nothing
        either. A master has no state to hand back."""
        self.give_way()
        if self._task is None:
            has_asked = self._asked_for is not None and self._asked_for != (return_id or None)
            # otherwise that master ended before it wrote anything to the journal
            was_told = has_asked and self._journal.end > self._kept_end
            if self._clock.monotonic_ms() >= self._kept_until_ms or was_told:
                return b""
            self._asked_for = return_id
            return self._kept
        if not self._acting.is_acting_master:
            return b""
        if not self._knows:
            raise RequestRefusedError(
                ResponseCode.SERVICE_NOT_AVAILABLE, "this slave began to act and is reading the pop records: ask again"
            )
        self._asked_for = return_id
        return self._told()

    def left(self) -> bytes:
        """Return what this slave knew when it ended to act, for another slave that is to act; empty if it did not act
        for the last seconds."""
        return self._kept if self._clock.monotonic_ms() < self._kept_until_ms else b""

    def copy(self) -> bytes:
        """Return what this slave knows while it acts, for other slaves; empty if it does not act, or promises nothing
        now."""
        is_acting = self._task is not None and self._stood_in and self._knows
        return self._told() if is_acting and not self._held_until_ms else b""

    def _told(self) -> bytes:
        return hand_back.encode(self._read_end, self._buffer, self._orders, self._store.max_physical_offset)

    def gives_way(self) -> str | None:
        """Return why this slave, which acts as master, may promise nothing at the moment (its master has taken over its
        pop state); None if it may."""
        if not self._held_until_ms:  # reset when this broker begins to act again
            return None
        return "its master comes back, and has taken over the acks and offsets of this slave"

    def offsets_set(self, key: str, queue_ids: Collection[int]) -> None:
        """Let a group, `topic@group`, continue at the offsets that an operator has set for these queues: otherwise
        journal records of earlier pops would move the offsets at the next start, and acks of open messages before that.
        `@group`: its offsets were removed, and it begins anew; messages that were delivered to it no longer count."""
        if self._task is None:
            return
        topic, group = split_key(key)
        if not topic:
            self._orders.forget_group(group)
            self._begin_again(group)
        told = [queue_id for queue_id in queue_ids if self._journal.tells_of(topic, group, queue_id)]
        self._buffer.set_cursors(
            {(topic, group, queue_id): self._offsets.query_offset(group, topic, queue_id) for queue_id in told}
        )

    def group_begun(self, topic: str, group: str, queue_id: int, offset: int) -> None:
        """Note where a group begins by a pull: the journal may tell what one of its name has popped before it was
        deleted."""
        if self._task is not None:
            self._buffer.begins((topic, group, queue_id), offset)

    def groups_changed(self, names: Iterable[str]) -> None:
        """Forget what deleted groups have popped: a start, which finds it in the journal, would make them again."""
        if self._task is not None and not self._stood_in:
            for group in frozenset(names) - self._groups.subscription_group_table.keys():
                self._begin_again(group)

    async def changes_are_kept(self) -> None:
        """Return when the journal has what `offsets_set` and `groups_changed` have noted, as safe as the settings
        promise. Raises RequestRefusedError if it has not in time: a start may go on as if nothing had been changed."""
        if self._task is None:
            return
        end = self._buffer.noted_end()
        if end == NOT_NOTED:
            raise RequestRefusedError(ResponseCode.SYSTEM_ERROR, NOT_KEPT)
        outcome = self._acknowledgement.outcome(end) if end > 0 else None
        code = ResponseCode.SUCCESS if outcome is None else await outcome
        if code is not ResponseCode.SUCCESS:
            raise RequestRefusedError(code, remark_of(code, "the change", "it may be lost: order it again"))

    def _begin_again(self, group: str) -> None:
        queues = {queue for queue in self._buffer.queues() if queue[1] == group}
        self._buffer.begin_again([*queues | self._journal.queues_of(group)])

    # --- life --------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start: this broker is its group's active broker from now on."""
        if self._task is None:
            self.reign += 1
            self.log_began_at, self._appended_before = self._store.max_physical_offset, self._store.appended_offset
            self._knows = False
            self._stood_in = self._acting.is_acting_master
            if not self._stood_in or self._held_until_ms <= self._clock.monotonic_ms():
                self._held_until_ms = 0
            self._task = asyncio.get_running_loop().create_task(self._run(), name="pop")
            supervise(self._task, self._on_failure, "pop")

    def stop(self) -> None:
        """Stop: another broker of the group is active now."""
        if self._task is not None:
            self._task.cancel()
            self._task = None
            if self._stood_in and self._knows:
                self._kept = self._told()
                self._kept_end = self._read_end
                self._asked_for = self._asked_for if self._held_until_ms else None
                self._kept_until_ms = self._clock.monotonic_ms() + hand_back.HELD_MS
            self._held_until_ms = 0
            self._ready.clear()
            self._buffer.is_open = False
            self._orders.stop()
            self._revive.stop()

    async def shutdown(self) -> None:
        """Hand over all open check points, so that the next broker on this store, Java's too, finds them; a Java broker
        delivers again the messages that only the journal knows. `stop` must have been called."""
        self.stop()
        await asyncio.sleep(0)
        if self._knows and self._journal.may_write:
            if self._settings.store.timer_wheel_enable:
                await self._hand_over(self._buffer.take_old(1 << 62, len(self._buffer)))
            await self._settle()
            self._commit_journal(at_once=True)
        await self._save()

    # --- the task ----------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        self._knows = False
        self._needed = -1
        self._buffer.clear()
        self._journal.forget_late()
        self._unwritten = []
        self._unwritten_from = -1
        self._unfinished = UnfinishedRevives(self._store, self._journal, self._clock, self._appended_before)
        await self._replay()
        with self._passed_over("the repair of records that a kill interrupted, so some messages may come twice"):
            self._finish_interrupted()
        unwritten, self._unwritten = self._unwritten, []
        await self._ack_late([*unwritten, *self._buffer.unacknowledged(self._renewed)])
        if self._stood_in:
            self._buffer.keep_ended(self._read_end)
        # other slaves may know what happened later
        for told in filter(None, (self._still_known(), *self._handed_back())):
            body = await self._untaken(told)
            await self._ack_late(
                hand_back.take_in(body, self._read_end, self._buffer, self._orders, self._store.deletions)
            )
            with self._passed_over("offsets that a slave reported, which are written again later"):
                await self._settle()
                self._offsets.request_persist()
                await self._offsets.persisted()  # the group offsets are the only trace of what is done
            self._make_groups(hand_back.groups_of(body))
        self._knows = True
        self._kept = b""
        self._orders.start()
        self._revive.start()
        if not self._held_until_ms:
            self._open()
        while True:
            with self._passed_over("a step of pop consumption, which is tried again") as turn:
                if self._held_until_ms and self._clock.monotonic_ms() >= self._held_until_ms:
                    await self._held_for_long()
                elif not self._is_held():
                    await self._tick()
            await (asyncio.sleep(_AGAIN_MS / 1000) if turn.failed else self._pause())

    def _still_known(self) -> bytes:
        """Return what this slave knew when it last stopped acting, unless its master has led since."""
        is_passed = self._kept_end != self._read_end and self._clock.monotonic_ms() >= self._kept_until_ms
        return b"" if not self._stood_in or is_passed else self._kept

    async def _untaken(self, told: bytes) -> bytes:
        """Return a slave's state without what the master has taken over before: the journal has that, even when a start
        no longer needs it because it has ended."""
        begin = hand_back.known_end(told)
        if begin is None:
            return told
        taken: set[Key] = set()
        for batch in self._journal.read(begin):
            taken.update(point_of(row).key for _, entries in batch for row in entries.get("p", ()))
            await asyncio.sleep(0)
        taken.difference_update([live.point.key for live in self._buffer.those(taken)])
        return hand_back.without(told, taken) if taken else told

    async def _ack_late(self, acks: list[LateAck]) -> None:
        """Write acks whose check points are in the revive topic, or were revived. Acks that the log does not take are
        noted in the journal, for the next start, and tried again. A slave keeps them for its master, and for the check
        points that come to it."""
        if self._stood_in:
            for late in acks:
                self._buffer.keep_for_master(late)
            return
        refused = await self._write_acks(acks)
        if refused:
            offset, _ = self._journal.write({"m": [row_of_ack(late) for late in refused]})
            if self._unwritten_from < 0:
                self._unwritten_from = offset if offset >= 0 else self._journal.end
            self._unwritten += refused

    async def _write_acks(self, acks: Iterable[LateAck]) -> list[LateAck]:
        """Write acks. Returns those that the log did not take."""
        refused: list[LateAck] = []
        for late in acks:
            is_written = False
            with self._passed_over("acks of messages of %s for %s, which are written again later",
                                   late.point.topic, late.point.group):  # fmt: skip
                is_written = await self._write_ack(late)
            refused += [] if is_written else [late]
        self._written_up_to = self._journal.mark()
        return refused

    async def _write_unwritten(self) -> None:
        """Try once more to write the acks that the log did not take, as long as they may count."""
        if self._unwritten:
            oldest_ms = self._clock.wall_ms() - _UNWRITTEN_MS
            young = [late for late in self._unwritten if late.point.revive_time > oldest_ms]
            self._unwritten = await self._write_acks(young)

    def _oldest_unwritten(self) -> int:
        """Return the queue offset of the first journal record that names an ack that the log has not taken, or that may
        still be lost; -1 if there is none."""
        if not self._unwritten and self._written_up_to is not None and self._journal.is_final(self._written_up_to):
            self._unwritten_from = -1
        return self._unwritten_from

    async def _write_ack(self, late: LateAck) -> bool:
        """Write an ack. Returns whether the log has taken it."""
        point = late.point
        ack = AckMsg(
            point.topic, point.group, point.queue_id, point.start_offset, point.pop_time, point.broker_name,
            late.offsets, is_batch=True,
        )  # fmt: skip
        result = await self._records.put_ack(ack, late.revive_qid, point.revive_time)
        if not result.ok:
            log.error("acks of %s@%s that were taken are not stored, so %d messages may be delivered again: %s",
                      ack.topic, ack.group, len(ack.offsets), result.remark or result.status.name)  # fmt: skip
        return result.ok

    def _open(self) -> None:
        self._held_until_ms = 0
        self._buffer.is_open = True
        self._ready.set()

    def _is_held(self) -> bool:
        """Return whether this broker waits for a master that takes over its check points, or until it is sure of its
        active role. Another broker may hold acks of check points that look open here."""
        return self._held_until_ms > 0 or self._acting.doubt() is not None

    async def _held_for_long(self) -> None:
        """Act again, because the master that took the state over did not register; but not while it answers: it may
        serve although no name server knows it."""
        if (await self._acting.hear_returning_master()).is_answer:
            log.warning(
                "the master that asked for this slave's pop records lives, although no name server reports it: waiting"
            )
            self._held_until_ms = self._clock.monotonic_ms() + hand_back.HELD_MS
        else:
            log.warning("the master that asked for the pop records of this slave did not come: continuing")
            self._services.begin_again()

    async def _pause(self) -> None:
        """Wait a tenth of a second while check points are open; otherwise until one comes, or until the revive topic
        has new records."""
        if len(self._buffer):
            await asyncio.sleep(_TICK_SECONDS)
            return
        self._filled.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._settings.broker.revive_interval / 1000):
                await self._filled.wait()

    async def _replay(self) -> None:
        """Apply the records of the pop journal to check points, orders and offsets."""
        self._renewed = []
        known: dict[tuple[Any, ...], int] = {}
        resets = _TakenResets()
        count = 0
        await self._store.wait_for_dispatch()
        self._read_end = self._journal.end
        for batch in self._journal.read():
            for offset, entries in batch:
                with self._passed_over("record %d of the pop journal", offset):
                    self._take(offset, entries, known)
                    resets.take(entries)
            count += len(batch)
            await asyncio.sleep(0)
        self._end_resets(resets)
        self._not_beyond_ends({*known, *self._buffer.queues()})
        self._make_groups({group for _, group, _ in self._buffer.queues()})
        self._cleaned_ms = self._clock.monotonic_ms()
        if count:
            log.info("pop consumption: %d records of the journal read, %d check points are open", count,
                     len(self._buffer))  # fmt: skip

    def _end_resets(self, resets: _TakenResets) -> None:
        """End resets that pops have taken before a kill, which came before the file of offsets was written: the group
        would get again what it has acknowledged since."""
        for (topic, group, queue_id), offset in resets.taken.items():
            is_waiting = self._offsets.has_offset_reset(topic, group, queue_id)
            if is_waiting and self._offsets.query_offset(group, topic, queue_id) == offset:
                self._offsets.query_then_erase_reset_offset(topic, group, queue_id)

    def _not_beyond_ends(self, queues: Collection[tuple[Any, ...]]) -> None:
        """Have groups go on at the ends of queues where they are behind these: the journal's record of the last message
        that was given out may be whole where the message is damaged, and the next message gets its place. A check point
        of the lost message would have that one delivered again.

        Args:
            queues: those of which the journal tells, by topic, group and queue id; groups may have acknowledged all
                that they were given there.
        """
        self._orders.table.not_beyond(self._store.max_offset)
        if not self._own.is_master:
            return
        ends: dict[tuple[str, str, int], int] = {}
        for topic, group, queue_id in sorted(queues):
            queue, end = (topic, group, queue_id), self._store.max_offset(topic, queue_id)
            ends[queue] = end
            if end < max(self._buffer.latest_offset(*queue), self._offsets.query_offset(group, topic, queue_id)):
                log.warning("%s@%s queue %d: the journal tells of lost messages, going on at %d", *queue, end)
                self._buffer.set_cursors({queue: end})
        self._buffer.not_beyond(ends)

    def _make_groups(self, groups: Collection[str]) -> None:
        """Make groups that have popped, if this broker has not heard of them, where it was a slave and elsewhere where
        that is allowed: they may have been made by their first pop, just before a kill or at a slave that acted. A
        slave makes those that come to it."""
        for group in () if self._stood_in else sorted(groups):
            with self._passed_over("group %s of the pop journal", group):
                if self._groups.find_named_group(group, -1) is None:
                    self._groups.find_subscription_group_config(group)

    def _finish_interrupted(self) -> None:
        self._unfinished.begin()
        self._reviver.go_on_with(self._unfinished)
        if len(self._buffer):
            keys = self._unfinished.handed_over(self._records.topic, self._settings.broker.revive_queue_num)
            self._buffer.finish(self._buffer.those(keys))

    def _take(self, offset: int, entries: dict[str, list[Any]], known: dict[tuple[Any, ...], int]) -> None:
        """Apply a record. `known` holds the offsets (topic, group and queue → offset) before this start applied
        records: if the table already has the offset of a record, it may be newer, and it counts."""
        for queue in queues_told(entries):
            topic, group, queue_id = queue
            known.setdefault(queue, self._offsets.query_offset(group, topic, queue_id))
        self._buffer.replay(offset, entries, known if self._journal.has_set(offset) else {})
        if "r" in entries:
            self._journal.note_set(offset)
        self._orders.replay(offset, entries)
        self._revive.replay(offset, entries)
        if entries.keys() - _OF_STARTS:
            self._renewed = entries.get("w", [])
        self._unfinished.replay(offset, entries)
        if unwritten := [ack_of(row) for row in entries.get("m", ())]:
            self._unwritten += unwritten
            self._unwritten_from = self._unwritten_from if self._unwritten_from >= 0 else offset

    async def _tick(self) -> None:
        self._journal.catch_up()
        self._buffer.settle()
        now_ms = self._clock.monotonic_ms()
        if len(self._buffer) and now_ms >= self._again_ms:
            await self._revive_due()
            await self._hand_over_old()
            self._counts.scanned(self._clock.monotonic_ms() - now_ms)
        if now_ms - self._revived_ms >= self._settings.broker.revive_interval:
            self._revived_ms = now_ms
            await self._settle()
            await self._write_unwritten()
            await self._revive.run_once()
            self._commit_journal()
        if now_ms - self._cleaned_ms >= _CLEAN_MS:
            self._cleaned_ms = now_ms
            self._clean()
        if now_ms - self._saved_ms >= _SAVE_MS:
            self._saved_ms = now_ms
            await self._save()

    async def _settle(self) -> None:
        """Settle acknowledged check points as `CheckPointBuffer.settle` does; with ASYNC_FLUSH the log may become
        durable late."""
        if not self._buffer.is_settled:
            await self._store.marks.make_final(self._store.marks.mark())
            self._buffer.settle()

    async def _revive_due(self) -> None:
        due = self._buffer.take_due()
        for start in range(0, len(due), _A_TURN):
            for live in due[start : start + _A_TURN]:
                if self._is_held():
                    return
                if self._stood_in and not self._reviver.knows(live.point):
                    continue
                self._buffer.leave_to_twins(live)
                if not live.ended and await self._revive_one(live):
                    self._buffer.revived(live)
            await asyncio.sleep(0)

    async def _revive_one(self, live: LiveCheckPoint) -> bool:
        """Revive one check point. Returns False if that failed and must be retried."""
        failed = live.point.open_offsets()
        with self._passed_over("the check point of messages %d… of %s-%d for %s, which is tried again",
                               live.point.start_offset, *live.queue[::2], live.point.group):  # fmt: skip
            failed = await self._reviver.revive(live.point)
        if not failed:
            return True
        if not self._settings.store.timer_wheel_enable:
            self._again_ms = self._clock.monotonic_ms() + _AGAIN_MS
            self._buffer.revived_but(live, failed)
            return False
        rest = _only(live.point, failed)
        rest.re_put_times = 1
        rest.invisible_time += 10_000
        stored = await self._records.put_check_point(rest, live.revive_qid)
        if not stored.ok:
            self._again_ms = self._clock.monotonic_ms() + _AGAIN_MS
            self._buffer.revived_but(live, failed)
        return stored.ok

    async def _hand_over_old(self) -> None:
        broker = self._settings.broker
        if self._stood_in or not self._settings.store.timer_wheel_enable:
            return
        now_ms = self._clock.wall_ms()
        old = self._buffer.take_old(now_ms - broker.pop_ck_stay_buffer_time, broker.pop_ck_max_buffer_size)
        soon_ms = now_ms + broker.pop_ck_stay_buffer_time_out
        await self._hand_over([live for live in old if live.point.revive_time > soon_ms])

    async def _hand_over(self, lives: list[LiveCheckPoint]) -> None:
        """Write check points to the revive topic, with their open messages only."""
        for start in range(0, len(lives), _A_TURN):
            done: list[LiveCheckPoint] = []
            for live in lives[start : start + _A_TURN]:
                if live.ended:
                    continue
                given = live.point.open_offsets()
                result = await self._records.put_check_point(_only(live.point, given), live.revive_qid)
                if result.ok and live.point.open_offsets() != given:
                    result = await self._put_acks(live, given)
                if not result.ok:
                    log.warning("a check point could not be handed over: %s", result.remark or result.status.name)
                    self._again_ms = self._clock.monotonic_ms() + _AGAIN_MS
                    self._buffer.handed_over(done)
                    return
                done.append(live)
            self._buffer.handed_over(done)
            await asyncio.sleep(0)

    async def _put_acks(self, live: LiveCheckPoint, given: list[int]) -> PutMessageResult:
        """Write acks for messages that were acknowledged while an acting slave gave the check point to another
        group."""
        point = live.point
        offsets = sorted(set(given) - set(point.open_offsets()))
        ack = AckMsg(
            point.topic, point.group, point.queue_id, point.start_offset, point.pop_time, point.broker_name, offsets,
            is_batch=True,
        )  # fmt: skip
        return await self._records.put_ack(ack, live.revive_qid, point.revive_time)

    def _commit_journal(self, *, at_once: bool = False) -> None:
        """Commit the journal up to the first record that a start needs: one that concerns an open check point, one
        revived above the committed offsets of the revive topic, an ordered queue that is not in the file yet, a copy
        that a kill left without a note, or an ack that the log has not taken yet.

        The value of one turn ago is committed: a thread writes the file of offsets while they change, so that the file
        may have a newer offset of the journal than of a group."""
        sources = (
            self._buffer.oldest_needed(), self._orders.unsaved, self._revive.oldest_needed(),
            self._unfinished.oldest_needed(), self._oldest_unwritten(),
        )  # fmt: skip
        before, self._needed = self._needed, min((at for at in sources if at >= 0), default=self._journal.end)
        if at_once or before >= 0:
            self._journal.commit(self._needed if at_once else before)

    def _is_there(self, topic: str, group: str, queue_id: int) -> bool:
        """Return whether topic, group and queue still exist. A topic in the log exists, also if the table lacks it: see
        RetryWriter."""
        known = self._topics.select_topic_config(topic) is not None or self._store.max_offset(topic, queue_id) > 0
        return known and self._groups.contains_subscription_group(group)

    def _clean(self) -> None:
        """Forget deleted topics and groups. A slave leaves that to its master: its tables are copies, which may lack
        what was made just before the master went, or here."""
        if self._stood_in:
            return
        gone = [queue for queue in self._buffer.queues() if not self._is_there(*queue)]
        of_groups = [queue for queue in gone if not self._groups.contains_subscription_group(queue[1])]
        if of_groups:
            self._buffer.begin_again(of_groups)
        if gone:
            self._buffer.forget(gone)
        self._counts.forget(lambda topic, group: not self._is_there(topic, group, 0))
        self._orders.table.clean(self._store.time.now_ms())

    async def _save(self) -> None:
        """Write the order infos, if they changed. Until they are durable the journal's records of them are needed: a
        start that finds neither would deliver acknowledged messages again. The present blocks are written to the
        journal again, because a slave that becomes master does not have the file."""
        orders = self._orders
        if not orders.table.is_dirty and orders.unsaved < 0:
            return
        unsaved = orders.unsaved
        orders.note_blocks()
        if not orders.table.is_dirty:
            return
        orders.table.is_dirty = False
        try:
            await TABLES.run(orders.table.persist)
        except BaseException:  # cancellation included: the file may or may not have been written
            orders.table.is_dirty = True
            orders.unsaved = unsaved if unsaved >= 0 else orders.unsaved
            raise


def _only(point: PopCheckPoint, offsets: list[int]) -> PopCheckPoint:
    """Return the same check point with only these messages."""
    return PopCheckPoint(
        point.topic, point.group, point.queue_id, point.start_offset, point.pop_time, point.invisible_time,
        point.broker_name, [offset - point.start_offset for offset in offsets], len(offsets), suspend=point.suspend,
    )  # fmt: skip
