"""One seed, one story of messages that two consumers hold: a master answered pops that its slave did not learn of, and
the slave that acted for it gave the same messages to others. The check points of both come together at the master
(shipped code: CheckPointBuffer and what a slave hands back); the journal and the revive topic are lists.

Receipts of both are acknowledged, their times are changed, time passes, the master is killed and started in order. What
was acknowledged in time, by whichever receipt, does not come again; everything else does.
"""

from collections import Counter
from pathlib import PurePath
from typing import Any, Final, NamedTuple, cast

from maxq.broker.pop import hand_back
from maxq.broker.pop.check_point_buffer import CheckPointBuffer
from maxq.broker.pop.order_service import OrderService
from maxq.broker.pop.pop_journal import NO_SLAVE, PopJournal
from maxq.broker.tables.offset.consumer_offset_manager import ConsumerOffsetManager
from maxq.protocol.body.pop import PopCheckPoint
from maxq.runtime.interfaces import Disk
from maxq.store.durability.log_marks import LogMark
from maxq.store.log.deletions import Deletions
from maxq.testing.sim_clock import SimClock
from maxq.testing.sim_rng import SimRng

_MESSAGES: Final = 24
_STEP_MS: Final = 200  # two check points of one start offset need different times


class _Offsets:
    """Of the one queue."""

    def __init__(self, committed: int = 0) -> None:
        self.committed = committed

    def query_offset(self, group: str, topic: str, queue_id: int) -> int:
        return self.committed

    def commit_offset(self, host: str, group: str, topic: str, queue_id: int, offset: int) -> None:
        self.committed = offset


class _Journal:
    """The master's, or what a slave has of it, which it may not write."""

    def __init__(self, records: list[dict[str, list[Any]]], *, may_write: bool = True) -> None:
        self.records = records
        self.known_end = NO_SLAVE  # what the slave has; it has all, unless it is away
        self._may_write = may_write

    def copied_end(self) -> int:
        return self.known_end

    @property
    def end(self) -> int:
        return len(self.records)

    def noted_end(self) -> int:
        return self.end

    def mark(self) -> LogMark:
        return LogMark(self.end, 0)

    def is_final(self, mark: LogMark) -> bool:
        return True

    def write(self, entries: dict[str, list[Any]]) -> tuple[int, int]:
        if not self._may_write:
            return -1, 0
        self.records.append(entries)
        return self.end - 1, self.end


class _NoOrders:
    """Nothing is consumed in order."""

    def hand_back(self) -> list[list[Any]]:
        return []

    def take_back(self, rows: list[list[Any]]) -> None:
        """Nothing comes."""


class _Receipt(NamedTuple):
    """`is_old`: the message has another one since, of which its holder did not hear."""

    point: PopCheckPoint
    offset: int
    due_ms: int
    is_old: bool = False


class TwinStory:
    """Attributes:
    marks: how often each kind of thing happened.
    history: what happened, for whoever reads a failure.
    """

    def __init__(self, seed: int) -> None:
        self.marks: Counter[str] = Counter()
        self.history: list[str] = []
        self._rng = SimRng(seed).fork("twins")
        self._clock = SimClock()
        self._orders = cast(OrderService, _NoOrders())
        self._deletions = Deletions(cast(Disk, None), PurePath("/store"))  # there was none
        self._records: list[dict[str, list[Any]]] = []
        self._master = self._buffer(_Journal(self._records), _Offsets())
        self._receipts: list[_Receipt] = []
        self._revive_topic: dict[Any, tuple[set[int], int]] = {}  # open offsets by key, and when they come
        self._acked: dict[int, str] = {}
        self._came: set[int] = set()

    def run(self) -> None:
        """Tell it. AssertionError: a rule is broken."""
        for _ in range(self._rng.between(1, 3)):
            self._master_dies_and_comes_back()
            for _ in range(self._rng.between(3, 12)):
                self._step()
        self._pass_time(300_000)
        given = {receipt.offset for receipt in self._receipts}
        lost = given - self._came - self._acked.keys()
        assert not lost, f"messages {sorted(lost)} were given, not acknowledged, and do not come"
        assert self._master._offsets.query_offset("G", "T", 0) >= max(given, default=-1) + 1, "the group is held up"

    def _buffer(self, journal: _Journal, offsets: _Offsets) -> CheckPointBuffer:
        buffer = CheckPointBuffer(cast(ConsumerOffsetManager, offsets), cast(PopJournal, journal), self._clock)
        buffer.is_open = True
        return buffer

    def _tell(self, what: str) -> None:
        self.marks[what.split(":")[0]] += 1
        self.history.append(f"{self._clock.monotonic_ms():7} {what}")

    # --- what a broker does -----------------------------------------------------------------------------------------

    def _pop(self, buffer: CheckPointBuffer, who: str) -> None:
        self._clock.advance_ms(_STEP_MS)
        committed = buffer._offsets.query_offset("G", "T", 0)
        start, count = max(committed, buffer.latest_offset("T", "G", 0)), self._rng.between(1, 4)
        if start + count > _MESSAGES:
            return
        invisible_ms = self._rng.choice((4_000, 20_000, 60_000))
        now_ms = self._clock.wall_ms()
        point = PopCheckPoint("T", "G", 0, start, now_ms, invisible_ms, "b", list(range(count)), count)
        buffer.add([(point, 0, start + count)])
        self._tell(f"pop at the {who}: {start}–{start + count - 1} for {invisible_ms} ms")
        self._hold(point, range(start, start + count))

    def _hold(self, point: PopCheckPoint, offsets: range) -> None:
        due_ms = self._clock.monotonic_ms() + point.invisible_time
        self._receipts += [_Receipt(point, offset, due_ms) for offset in offsets]

    def _ack(self, buffer: CheckPointBuffer, who: str) -> None:
        receipt = self._some_receipt()
        if receipt is None:
            return
        live = buffer.holder(receipt.point.key, receipt.offset)
        if live is not None:
            buffer.ack(live, [receipt.offset])
        elif who == "slave":
            return  # it is refused: the check point is not known there
        elif receipt.point.key in self._revive_topic:
            self._revive_topic[receipt.point.key][0].discard(receipt.offset)
        what = f"ack at the {who}: {receipt.offset}, popped at {receipt.point.pop_time}"
        self._tell(what)
        self._acked.setdefault(receipt.offset, what)

    def _some_receipt(self) -> _Receipt | None:
        in_time = [one for one in self._receipts if one.due_ms > self._clock.monotonic_ms() + _STEP_MS]
        return self._rng.choice(in_time) if in_time else None

    def _change_time(self, buffer: CheckPointBuffer, who: str) -> None:
        """The answer may be lost, and the consumer go on with the receipt that it has."""
        receipt = self._some_receipt()
        live = None if receipt is None else buffer.holder(receipt.point.key, receipt.offset)
        if receipt is None or live is None:
            return
        self._clock.advance_ms(_STEP_MS)
        now_ms, invisible_ms = self._clock.wall_ms(), self._rng.choice((2_000, 30_000))
        point = PopCheckPoint("T", "G", 0, receipt.offset, now_ms, invisible_ms, "b", [0], 1)
        buffer.replace(point, 0, live, receipt.offset, by=receipt.point.key)
        self._receipts.remove(receipt)
        if self._rng.chance(0.3):
            self._tell(f"change of a time at the {who}: {receipt.offset}, for {invisible_ms} ms, answer lost")
            due_ms = self._clock.monotonic_ms() + invisible_ms
            self._receipts.append(receipt._replace(due_ms=due_ms, is_old=True))
            return
        self._tell(f"change of a time at the {who}: {receipt.offset}, for {invisible_ms} ms")
        self._hold(point, range(receipt.offset, receipt.offset + 1))

    # --- what happens to the master ---------------------------------------------------------------------------------

    def _step(self) -> None:
        chance = self._rng.below(10)
        if chance < 4:
            self._ack(self._master, "master")
        elif chance < 6:
            self._change_time(self._master, "master")
        elif chance < 8:
            self._pass_time(self._rng.choice((1_000, 5_000, 25_000)))
        else:
            self._start_again(in_order=chance == 8)

    def _pass_time(self, for_ms: int) -> None:
        self._tell(f"time: {for_ms} ms")
        end_ms = self._clock.monotonic_ms() + for_ms
        while self._clock.monotonic_ms() < end_ms:
            self._clock.advance_ms(_STEP_MS)
            for live in self._master.take_due():
                self._master.leave_to_twins(live)
                if not live.ended:
                    self._come_again(set(live.point.open_offsets()))
                    self._master.finish([live])
            for key, (offsets, due_ms) in list(self._revive_topic.items()):
                if due_ms <= self._clock.monotonic_ms():
                    del self._revive_topic[key]
                    self._come_again(offsets)

    def _come_again(self, offsets: set[int]) -> None:
        self._came |= offsets
        for offset in offsets:
            assert offset not in self._acked, f"message {offset} comes again after {self._acked[offset]}"

    def _hand_over(self, *, before_ms: int) -> None:
        """What the master may hand over of the check points that were popped before that time."""
        lives = self._master.take_old(before_ms, len(self._master))
        for live in lives:
            due_ms = self._clock.monotonic_ms() + live.point.revive_time - self._clock.wall_ms()
            self._revive_topic[live.point.key] = set(live.point.open_offsets()), due_ms
        gone = [one for one in self._receipts if one.is_old and self._master.holder(one.point.key, one.offset) in lives]
        self._receipts = [one for one in self._receipts if one not in gone]  # they name nothing in the revive topic
        self._master.handed_over(lives)
        if lives:
            self._tell(f"handed over: those popped at {[live.point.pop_time for live in lives]}")

    def _start_again(self, *, in_order: bool) -> None:
        """The journal is read from the first record that is needed. An end in order hands over what may be."""
        self._tell("an end in order" if in_order else "a kill")
        if in_order:
            self._hand_over(before_ms=1 << 62)
        needed = self._master.oldest_needed()
        offsets = _Offsets(self._master._offsets.query_offset("G", "T", 0))
        self._master = self._buffer(_Journal(self._records), offsets)
        self._replay(self._master, needed if needed >= 0 else len(self._records), len(self._records))

    def _replay(self, buffer: CheckPointBuffer, begin: int, end: int) -> None:
        for at in range(begin, end):
            buffer.replay(at, self._records[at])

    def _master_dies_and_comes_back(self) -> None:
        """Of its last pops its slave does not learn, nor of what it hands over then."""
        for _ in range(self._rng.between(0, 2)):
            self._pop(self._master, "master")
        needed, known = self._master.oldest_needed(), len(self._records)
        offsets = _Offsets(self._master._offsets.query_offset("G", "T", 0))
        slave = self._buffer(_Journal(self._records[:known], may_write=False), offsets)
        self._replay(slave, needed if needed >= 0 else known, known)
        slave.keep_ended(known)
        journal = cast(_Journal, self._master.journal)
        journal.known_end = known
        for _ in range(self._rng.between(0, 2)):
            self._pop(self._master, "master, alone")
        if self._rng.chance(0.3):
            self._hand_over(before_ms=self._clock.wall_ms() - self._rng.choice((0, _STEP_MS, 2 * _STEP_MS)))
        for _ in range(self._rng.between(0, 3)):
            self._pop(slave, "slave")
            if self._rng.chance(0.5):
                self._ack(slave, "slave")
            if self._rng.chance(0.3):
                self._change_time(slave, "slave")
        self._start_again(in_order=self._rng.chance(0.4))
        body = hand_back.encode(known, slave, self._orders, 0)
        late = hand_back.take_in(body, len(self._records), self._master, self._orders, self._deletions)
        for one in late:
            if one.point.key in self._revive_topic:
                self._revive_topic[one.point.key][0].difference_update(one.offsets)
        self._tell("a hand-back")
        if any(live.has_twins for live in self._master.those([receipt.point.key for receipt in self._receipts])):
            self.marks["messages that two hold"] += 1
