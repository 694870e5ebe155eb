"""PopReviveService: reads the revive topic, where check points and acks come when their time is over.

Records there were handed over by this broker (CheckPointBuffer), or written by a Java broker that used this store
before. A check point is kept until everything that was acknowledged in its time must have come too; what is open then
is revived. An ack is kept, too, until its check point must have arrived. The offset of REVIVE_GROUP is the last record
that is not needed any more, as Java's is.

Source:
    broker/processor/PopReviveService.java.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import field
from itertools import islice
from typing import Any, Final

from maxq.broker.bundles import Environment, Messages, Tables
from maxq.broker.pop.check_point_buffer import CheckPointBuffer, LateAck
from maxq.broker.pop.retry_writer import RetryWriter
from maxq.broker.pop.revive_record_writer import ACK_INTERVAL_MS, LOGGED_AT, ReviveRecordWriter
from maxq.broker.tables.topic.topic_validator import REVIVE_GROUP
from maxq.errors import RemoteProtocolError
from maxq.lazy_dataclass import dataclass
from maxq.protocol.body.pop import ACK_TAG, BATCH_ACK_TAG, CK_TAG, AckMsg, PopCheckPoint
from maxq.protocol.message import message_const as const
from maxq.protocol.message.message import MessageExt, decode_record
from maxq.runtime.passed_over import PassedOver
from maxq.store.append.message_ext_broker_inner import MessageExtBrokerInner
from maxq.store.store_results import PutMessageResult, PutMessageStatus

log = logging.getLogger(__name__)


_LATE_ACKS_MS: Final = ACK_INTERVAL_MS + 1_000
_UNITS: Final = 100
_SHOWN_SECONDS: Final = 0.01
_SHOWN_TRIES: Final = 100
_AGAIN_SECONDS: Final = (10, 20, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200)

Key = tuple[str, str, int, int, int, str]


@dataclass(slots=True)
class _EarlyAck:
    """An ack that has come before its check point, if that comes at all.

    A master that comes back writes what was acknowledged at its slave. Messages that are due by then come at once, and
    the check point when the timer has caught up.

    Attributes:
        revive_offset: queue offset of its record.
        stored_ms: when it was stored (wall): its check point was due by then.
    """

    revive_offset: int
    stored_ms: int
    offsets: set[int] = field(default_factory=set)


@dataclass(slots=True)
class _Queue:
    """One queue of the revive topic.

    The committed offset is the last record before the first open check point. Messages behind it that were revived
    already are in the journal, so that they are not revived again after a kill.

    Attributes:
        position: queue offset of the record to be read next.
        points: check points that came and are not handled, in the order of their records.
        early: acks that came and whose check points may still come, in the order of their records.
        done: records of check points that were revived, above the committed offset → where the journal tells of it.
    """

    queue_id: int
    position: int
    points: dict[Key, PopCheckPoint] = field(default_factory=dict)
    early: dict[Key, _EarlyAck] = field(default_factory=dict)
    done: dict[int, int] = field(default_factory=dict)

    @property
    def reached(self) -> int:
        """Return the offset of the last record that is no longer needed."""
        oldest = [one.revive_offset for one in islice(self.points.values(), 1)]
        oldest += [one.revive_offset for one in islice(self.early.values(), 1)]
        return min(oldest, default=self.position) - 1

    def forget_early(self, until_ms: int) -> None:
        """Forget acks whose check points will not come: what was due before `until_ms` is read."""
        for key in [key for key, ack in self.early.items() if ack.stored_ms + _LATE_ACKS_MS < until_ms]:
            del self.early[key]


class PopReviveService:
    """Reads the revive topic of one broker, between `start` and `stop`.

    Attributes:
        records: writes check points and acks into the revive topic.
        reviver: puts messages into retry topics.
        revived: check points handled since the start.
    """

    def __init__(
        self,
        env: Environment,
        tables: Tables,
        messages: Messages,
        records: ReviveRecordWriter,
        reviver: RetryWriter,
        buffer: CheckPointBuffer,
        delivered_until: Callable[[], int],
        doubt: Callable[[], str | None],
    ) -> None:
        """
        Args:
            delivered_until: timer messages due before that moment (wall ms) are in the log.
            doubt: why this broker cannot be sure that it is still the one that works for its group; None: it is.
        """
        self._settings = env.settings
        self._store = messages.store
        self._offsets = tables.offsets
        self.records = records
        self.reviver = reviver
        self._clock = env.clock
        self._own = env.own
        self._delivered_until = delivered_until
        self._buffer = buffer
        self._kept: dict[Key, set[int]] = {}  # what this slave knew when it began to act as master
        self._doubt = doubt
        self._passed_over = PassedOver(log)
        self._queues: list[_Queue] = []
        self._journal = buffer.journal
        self._counts = records.counts
        # records of revived check points that the journal names; used until `start`
        self._noted: dict[int, dict[int, int]] = {}
        self._needed_at_stop = -1
        self.revived = 0

    def start(self) -> None:
        """Start at the committed offsets, or at the queue's end if that lies before."""
        topic = self.records.topic
        self._needed_at_stop = -1
        self._kept = self._buffer.kept_for_master()
        self._queues = [
            _Queue(
                queue_id,
                min(
                    self._offsets.query_offset(REVIVE_GROUP, topic, queue_id) + 1,
                    self._store.max_offset(topic, queue_id),
                ),
            )
            for queue_id in range(self._settings.broker.revive_queue_num)
        ]
        for queue in self._queues:
            noted = self._noted.get(queue.queue_id, {})
            queue.done = {at: journal for at, journal in noted.items() if at >= queue.position}

    def replay(self, offset: int, entries: dict[str, list[Any]]) -> None:
        """Apply a journal record, which has queue offset `offset`. Call this before `start`."""
        for queue_id, at in entries.get("d", ()):
            self._noted.setdefault(queue_id, {})[at] = offset

    def oldest_needed(self) -> int:
        """Return the queue offset of the first journal record that concerns a message above the committed offsets; -1
        if there is none. After `stop` it is the one of that moment."""
        first = (next(iter(queue.done.values())) for queue in self._queues if queue.done)
        return min(first, default=self._needed_at_stop)

    def stop(self) -> None:
        """Stop, because another broker of the group is active now, or this one ends."""
        self._needed_at_stop = self.oldest_needed()
        self._queues = []
        self._noted = {}

    @property
    def waiting(self) -> int:
        """Return the check points that were read and are not handled yet."""
        return sum(len(queue.points) for queue in self._queues)

    def behind(self, queue_id: int) -> tuple[int, int]:
        """Return the number of messages of the revive queue that were not read, and by how many ms the oldest check
        point is late."""
        if queue_id >= len(self._queues):
            return 0, 0
        queue = self._queues[queue_id]
        unread = max(0, self._store.max_offset(self.records.topic, queue_id) - queue.position)
        oldest = min((point.revive_time for point in queue.points.values()), default=0)
        return unread, max(0, self._clock.wall_ms() - oldest) if oldest else 0

    async def run_once(self) -> int:
        """Read new records and revive due check points. Returns how many records and check points that were."""
        busy = [queue for queue in self._queues if not self._is_idle(queue)]
        if not busy:
            return 0
        until_ms = await self._shown_until()
        ends = [self._store.max_offset(self.records.topic, queue.queue_id) for queue in busy]
        done = 0
        for queue, end in zip(busy, ends, strict=True):
            done += await self._read(queue)
            if queue.position >= end:  # unless all records were read, there may be acks among the rest
                queue.forget_early(until_ms)
                done += await self._handle_due(queue, until_ms)
        await self._commit(busy)
        return done

    async def _shown_until(self) -> int:
        """Return the wall-clock time, in ms, up to which acks that the timer delivers can be read here; 0 if unknown. A
        delivery is readable only once it is as safe as the settings promise, and after a pause the timer may be
        seconds behind."""
        until_ms, end = self._delivered_until(), self._store.appended_offset
        for _ in range(_SHOWN_TRIES):
            if self._store.confirm_offset >= end:
                return until_ms
            await asyncio.sleep(_SHOWN_SECONDS)
        return 0

    def _is_idle(self, queue: _Queue) -> bool:
        if queue.points or queue.early or queue.reached > self._committed(queue):
            return False
        return queue.position >= self._store.max_offset(self.records.topic, queue.queue_id)

    def _committed(self, queue: _Queue) -> int:
        return self._offsets.query_offset(REVIVE_GROUP, self.records.topic, queue.queue_id)

    # --- reading -----------------------------------------------------------------------------------------------------

    async def _read(self, queue: _Queue) -> int:
        topic = self.records.topic
        queue.position = max(queue.position, self._store.min_offset(topic, queue.queue_id), 0)
        ends_ms = self._clock.monotonic_ms() + self._settings.broker.revive_scan_time
        done = 0
        while self._is_current(queue) and self._clock.monotonic_ms() < ends_ms:
            step = min(_UNITS, self._store.max_offset(topic, queue.queue_id) - queue.position)
            if step <= 0:
                break
            for at in range(queue.position, queue.position + step):
                self._take_unit(queue, at)
            queue.position += step
            done += step
            await asyncio.sleep(0)
        return done

    def _is_current(self, queue: _Queue) -> bool:
        return any(queue is other for other in self._queues)

    def _take_unit(self, queue: _Queue, at: int) -> None:
        record = self._store.record_in_queue(self.records.topic, queue.queue_id, at)
        if record is None:
            return
        with self._passed_over("record %d of revive queue %d", at, queue.queue_id):
            self._take(queue, decode_record(record), at)

    def _take(self, queue: _Queue, message: MessageExt, at: int) -> None:
        if message.tags == CK_TAG:
            point = PopCheckPoint.decode(message.body)
            self._counts.got[point.group, point.topic, str(queue.queue_id), "CK"] += 1
            if at in queue.done:
                return
            point.revive_offset = at
            logged_at = message.properties.get(LOGGED_AT, "")
            point.logged_at = int(logged_at) if logged_at.isascii() and logged_at.isdigit() else -1
            queue.points.pop(point.key, None)
            _mark(point, self._kept.get(point.key, ()))
            early = queue.early.pop(point.key, None)
            if early is not None:
                _mark(point, early.offsets)
            if point.open_offsets():
                queue.points[point.key] = point
        elif message.tags in (ACK_TAG, BATCH_ACK_TAG):
            ack = AckMsg.decode(message.body, is_batch=message.tags == BATCH_ACK_TAG)
            self._counts.got[ack.group, ack.topic, str(queue.queue_id), "ACK"] += 1
            ack.broker_name = ack.broker_name or self._own.broker_name
            if not self._acked(queue, ack):
                early = queue.early.setdefault(ack.key, _EarlyAck(at, message.store_timestamp))
                early.stored_ms = max(early.stored_ms, message.store_timestamp)
                early.offsets.update(ack.offsets)

    @staticmethod
    def _acked(queue: _Queue, ack: AckMsg) -> bool:
        """Mark messages of a check point as acknowledged. Returns whether it is there."""
        found = queue.points.get(ack.key)
        if found is None:
            return False
        _mark(found, ack.offsets)
        if not found.open_offsets():
            del queue.points[ack.key]
        return True

    def keep_ack(self, message: MessageExtBrokerInner) -> PutMessageResult | None:
        """Keep an ack that the timer of an acting slave delivers, if the master had delivered the check point here: in
        another group the ack would not meet it. Returns what was done with it; None if it is no such ack."""
        tag = message.properties.get(const.PROPERTY_TAGS)
        if message.topic != self.records.topic or tag not in (ACK_TAG, BATCH_ACK_TAG):
            return None
        queue = next((queue for queue in self._queues if queue.queue_id == message.queue_id), None)
        if queue is None or queue.position < self._store.max_offset(message.topic, message.queue_id):
            remark = "the check points that are in the revive topic are read first"
            return PutMessageResult(PutMessageStatus.SERVICE_NOT_AVAILABLE, remark=remark)
        try:
            ack = AckMsg.decode(message.body, is_batch=tag == BATCH_ACK_TAG)
        except RemoteProtocolError:
            return None
        ack.broker_name = ack.broker_name or self._own.broker_name
        point = queue.points.get(ack.key)
        if point is None:
            return None
        self._acked(queue, ack)
        self._buffer.keep_for_master(LateAck(point, ack.offsets, queue.queue_id))
        return PutMessageResult(PutMessageStatus.PUT_OK, message_count=1)

    # --- reviving ----------------------------------------------------------------------------------------------------

    async def _handle_due(self, queue: _Queue, until_ms: int) -> int:
        due = [point for point in queue.points.values() if point.revive_time + _LATE_ACKS_MS < until_ms]
        for point in due:
            if not self._is_current(queue) or self._doubt() is not None:
                break
            if not self._own.is_master and not self.reviver.knows(point):
                continue
            given = failed = [] if self._is_gone(point) else point.open_offsets()
            with self._passed_over("the check point at record %d of revive queue %d, which is tried again",
                                   point.revive_offset, queue.queue_id):  # fmt: skip
                failed = await self.reviver.revive(point) if given else []
            left = [offset for offset in failed if not await self._put_again(point, offset, queue.queue_id)]
            delivered = [offset for offset in given if offset not in left]
            if delivered and not self._own.is_master:  # the master would otherwise deliver these messages once more
                self._buffer.keep_for_master(LateAck(point, delivered, queue.queue_id))
            if left:  # the record stays needed for these messages; those that were revived are not revived again
                point.leave_open(left)
                break
            queue.points.pop(point.key, None)
            offset, _ = self._journal.write({"d": [[queue.queue_id, point.revive_offset]]})
            queue.done[point.revive_offset] = offset if offset >= 0 else self._journal.end
            self.revived += 1
        return len(due)

    def _is_gone(self, point: PopCheckPoint) -> bool:
        """Return whether the topic of a check point was deleted since. One of that name that was made later has other
        messages at its places."""
        is_here = point.broker_name in ("", self._own.broker_name)
        if not is_here or point.logged_at < 0 or not self._store.is_gone(point.topic, point.logged_at):
            return False
        log.warning("%s was deleted: %d messages popped before are not revived", point.topic, point.num)
        return True

    async def _put_again(self, old: PopCheckPoint, offset: int, queue_id: int) -> bool:
        """Give a message that could not be revived a check point of its own, with more time at each attempt."""
        times = old.re_put_times
        if times >= len(_AGAIN_SECONDS) and self._settings.broker.skip_when_ck_re_put_reach_max_times:
            log.warning("message %d of %s-%d is given up after %d tries", offset, old.topic, old.queue_id, times)
            return True
        point = PopCheckPoint(
            old.topic, old.group, old.queue_id, offset, old.pop_time, old.invisible_time, old.broker_name, [0], 1,
            re_put_times=times + 1, suspend=old.suspend,
        )  # fmt: skip
        if old.revive_time <= self._clock.wall_ms():
            point.invisible_time += _AGAIN_SECONDS[min(times, len(_AGAIN_SECONDS) - 1)] * 1000
        return (await self.records.put_check_point(point, queue_id)).ok

    async def _commit(self, queues: list[_Queue]) -> None:
        """Commit the progress of these queues once the copies made on the way can no longer be lost: the messages
        themselves may have been safe for long."""
        reached = [(queue, queue.reached) for queue in queues if queue.reached > self._committed(queue)]
        marks = self._store.marks
        if not reached or not await marks.make_final(marks.mark()):
            return
        for queue, offset in reached:
            if self._is_current(queue) and offset > self._committed(queue):
                self._offsets.commit_offset("pop revive", REVIVE_GROUP, self.records.topic, queue.queue_id, offset)
                queue.done = {at: journal for at, journal in queue.done.items() if at > offset}


def _mark(point: PopCheckPoint, queue_offsets: Iterable[int]) -> None:
    """Mark these messages of the check point as acknowledged."""
    for offset in queue_offsets:
        index = point.index_of(offset)
        if index >= 0:
            point.bit_map |= 1 << index
