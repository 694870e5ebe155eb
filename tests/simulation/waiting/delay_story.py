"""One seed, one story of messages that wait: a broker's store with its timer and its delay levels lives, its clock
stands still and jumps, it dies in some way and starts again, and each message comes once, none early.

What is sent has a delivery time or a delay level; some are recalled. In some stories the store is busy now and then, or
a failure of our own meets a delivery from a level. The rules:

* nothing is in its topic twice, whatever happened;
* a timer message is never there before its time by the wall clock of its delivery; one with a level has waited for its
  delay by that clock, or by the clock that is never set;
* what was durable is there at the end; what was recalled, by a durable marker while it waited, is not;
* what is due in the last life, in which the clock is right, comes within the precision of the wheel.
"""

from collections import Counter
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, ClassVar, Final

from maxq.broker.schedule_message.delay_hook import DelayHook
from maxq.broker.schedule_message.delay_levels import DelayLevels
from maxq.broker.schedule_message.schedule_message_service import ScheduleMessageService
from maxq.broker.slave.replicated_config_files import ReplicatedConfigFiles
from maxq.protocol.message import message_const as const
from maxq.protocol.message.message import MessageExt
from maxq.protocol.message.message_properties import decode_properties
from maxq.store.append.message_ext_broker_inner import MessageExtBrokerInner
from maxq.store.append.record_copy_cy import RecordCopy
from maxq.store.store_results import PutMessageResult, PutMessageStatus
from maxq.store.timer.timer_record import delete_key
from maxq.testing.sim_clock import SimClock
from maxq.testing.sim_disk import PowerLoss, SimDisk
from maxq.testing.sim_rng import SimRng
from maxq.testing.simulation import SimWorld, run_simulation
from tests.unit.broker.bundles_of import messages, tables
from tests.unit.broker.timer.timer_world import TOPIC, TimerWorld, small_wheel

LEVELS: Final = "1s 3s 10s 20s"
DELAYS_MS: Final = (50, 900, 3_000, 10_000, 45_000, 100_000)
JUMPS_MS: Final = (300, 1_000, 2_500, 10_000, 60_000, 400_000)
FAR_MS: Final = 40 * 86_400_000  # more than an int32 holds
CHECKS_AFTER_MS: Final = 1_000
LATE_MOST_MS: Final = 300  # beyond the precision
GIVE_UP_MS: Final = 1_500_000


class DelayNode(TimerWorld):
    """A store with both services, as a broker joins them.

    Attributes:
        failures: draws which deliveries from delay levels fail; None: none does.
    """

    failures: SimRng | None = None
    _busy_until_ms = 0  # by the clock that is never set: so long the store takes nothing from delay levels

    async def open(self, *, dequeue: bool = True) -> "DelayNode":
        await super().open(dequeue=dequeue)
        levels = DelayLevels(self.settings.store.message_delay_level)
        files = ReplicatedConfigFiles(self.disk, PurePath(self.settings.store.store_path_root_dir) / "config")
        files.set_timer(self.service.exchange)
        self.schedule = ScheduleMessageService(
            self.env,
            tables(files=files),
            messages(store=self.store),
            levels,
            self._put_delayed,
            lambda: None,
            lambda level, messages, size: None,
        )
        self.delay_hook = DelayHook(levels, self.schedule.wake)
        self.schedule.start()
        return self

    def on_try(self, key: str) -> None:
        """Told of every delivery from a delay level that is begun."""

    async def _put_delayed(self, message: MessageExtBrokerInner) -> PutMessageResult:
        self.on_try(message.properties[_KEY])
        failures, now_ms = self.failures, self.clock.monotonic_ms()
        if failures is not None and failures.chance(0.15):
            raise RuntimeError("a failure of ours, as told")
        if failures is not None and failures.chance(0.1):
            self._busy_until_ms = now_ms + failures.below(3_000)
        if now_ms < self._busy_until_ms:
            return PutMessageResult(PutMessageStatus.OS_PAGE_CACHE_BUSY, remark="as told")
        return await self._put(message)

    async def close(self) -> None:
        await self.schedule.shutdown()
        await super().close()

    def put(self, message: MessageExtBrokerInner) -> PutMessageResult | None:
        """As a send goes; None: it was refused."""
        if self.hook(message) is not None or self.delay_hook(message) is not None:
            return None
        return self.store.put_message(message)


@dataclass(slots=True)
class Sent:
    """One message that was taken.

    Attributes:
        due_ms: of a timer message, wall clock.
        delay_ms: of one with a level, from `stored_ms` (wall) or `sent_ms` (monotonic) on.
        end: of its record in the log; _NEVER while it is not acknowledged: its process may die there.
        is_settled: the life in which it was sent has ended; `is_durable` says whether it must come.
        marker_end: of the record that recalls it, in the life in which that was sent.
    """

    key: str
    due_ms: int
    delay_ms: int
    stored_ms: int
    sent_ms: int
    end: int
    is_settled: bool = False
    is_durable: bool = False
    marker_end: int = 0
    is_recalled: bool = False


class DelayStory:
    """Attributes:
    ENDINGS: how a life may end: in order; by a kill or a loss of power, at any moment, within an operation or a start.
    marks: what happened, for the campaign's statistics.
    history: the same in order, for whoever reads a failure.
    """

    ENDINGS: ClassVar[tuple[str, ...]] = ("shutdown", "kill", "kill", "moment", "operation", "operation", "start")

    NODE: ClassVar[type[DelayNode]] = DelayNode
    FAR: ClassVar[float] = 0.15  # chance that a step of the clock is one of weeks

    def __init__(self, seed: int) -> None:
        self.rng = SimRng(seed)
        self.clock = SimClock()
        rng = self.rng.fork("disk")
        self.disk = SimDisk(rng, self.clock, write_back=rng.choice((0.0, 0.2, 0.6)), kill_keeps_cache=True)
        self.settings = self._settings(self.rng.fork("settings"))
        self.marks: set[str] = {str(self.settings["flush_disk_type"])}
        self.history: list[str] = [str(self.settings)]
        self.sent: dict[str, Sent] = {}
        self._delivered_at: dict[str, int] = {}  # monotonic
        self._came_late_enough: set[str] = set()  # with levels; one whose copy the power took may come again at once
        self._node: DelayNode | None = None
        self._kept_from: int | None = None  # end of the log that was durable when its process was killed: the rest is
        # there as long as the machine has power, and durable when a start has found it
        self._kept_to = _ALL  # what lay behind was in the memory of the process that was killed, and is gone with it
        self._number = 0
        failures = self.rng.fork("failures")
        self._failures = failures if failures.chance(0.4) else None  # of deliveries from delay levels
        self._far = self.rng.fork("far")
        self._behind_ms = 0  # so far the clock was set back, and it is put right with its next step
        self._right_from_ms = 0  # monotonic; what is sent from then on comes in time

    @staticmethod
    def _settings(rng: SimRng) -> dict[str, object]:
        return {
            "flush_disk_type": rng.choice(("SYNC_FLUSH", "ASYNC_FLUSH")),
            "flush_interval_commit_log": rng.choice((20, 500)),
            "flush_commit_log_thorough_interval": rng.choice((50, 10_000)),
            "timer_precision_ms": rng.choice((100, 500, 1000, 1000)),
            "timer_flush_interval_ms": rng.choice((50, 1000, 5000)),
            "timer_roll_window_slot": rng.choice((8, 40, 172_800)),
            "mapped_file_size_timer_log": rng.choice((520, 5200)),
            "mapped_file_size_commit_log": 65_536,
            "flush_delay_offset_interval": rng.choice((50, 10_000)),
            "message_delay_level": LEVELS,
        }

    def run(self) -> None:
        """Live, die, start again; in the last life everything comes."""
        with small_wheel():
            self._tell()

    def _tell(self) -> None:
        for life in range(self.rng.between(1, 4)):
            self._live(life, self.rng.choice(self.ENDINGS))
            self._move_clock(self.rng, "while nobody was there")
        if self._behind_ms:
            self._set_right()
        self._live(99, "to the end")

    # -- one life --

    def _live(self, life: int, ending: str) -> None:
        rng, disk = self.rng.fork(f"life {life}"), self.disk
        if "start" in ending:  # the power goes while it starts
            disk.cut_power_after(rng.below(60), process_only="kill" in ending)
        try:
            run_simulation(lambda world: self._main(world, rng, ending), seed=rng.seed, disk=disk, clock=self.clock)
        except PowerLoss:
            self._note_loss(disk)
        self._node = None
        self.marks.add(f"ending: {ending}")
        self.history.append(f"life {life} ended: {ending} {disk.lost_at}; wall {self.clock.wall_ms()}")
        self.disk = disk.boot()

    async def _main(self, world: SimWorld, rng: SimRng, ending: str) -> None:
        node = self.NODE(world, world.disk)
        node.configure(**self.settings)
        node.failures = None if ending == "to the end" else self._failures
        await node.open()
        self._node = node
        if self._kept_from is not None:
            self._kept_from = None
            self._durable_up_to(self._kept_to)
        self._watch(node)
        self._judge(node)
        if ending == "to the end":
            await self._finish(node, rng)
            return
        if "operation" in ending:
            world.disk.cut_power_after(rng.below(600), process_only="kill" in ending)
        await self._work(node, rng, rng.between(5, 60))
        if ending == "shutdown":
            await node.close()
            self._durable_up_to(_ALL)
        elif "shutdown" in ending:
            world.disk.cut_power_after(rng.below(40))
            await node.close()
            world.disk.cut_power()
            raise PowerLoss
        elif "kill" in ending:
            world.disk.kill_process()
            raise PowerLoss
        else:
            world.disk.cut_power()
            raise PowerLoss

    def _watch(self, node: DelayNode) -> None:
        """Note when each message is delivered, by the clock that is never set."""
        inner = node.store.put_message

        def put_message(message: MessageExtBrokerInner) -> PutMessageResult:
            if message.topic == TOPIC:
                self._note_delivery(message.properties[_KEY])
            return inner(message)

        plainly = node.store.fast_path_writer.append_copy

        def append_copy(
            record: memoryview, copy: RecordCopy, topic: bytes, queue_id: int, properties: bytes, *others: Any
        ) -> int:
            if node.failures is not None and node.failures.chance(0.3):
                return 0  # this one must take the slow path
            key = decode_properties(properties)[_KEY]
            node.on_try(key)
            stored = plainly(record, copy, topic, queue_id, properties, *others)
            if stored and topic == TOPIC.encode():
                self._note_delivery(key)
            return stored

        node.store.put_message = put_message  # type: ignore[method-assign]
        node.store.fast_path_writer.append_copy = append_copy  # type: ignore[method-assign]
        node.on_try = self._note_try  # type: ignore[method-assign]

    def _note_delivery(self, key: str) -> None:
        self._delivered_at[key] = self.clock.monotonic_ms()

    def _note_try(self, key: str) -> None:
        """What was due when its delivery began is not early when the store takes it, whatever the clock says then."""
        sent = self.sent.get(key)
        if sent is not None and sent.delay_ms <= max(
            self.clock.monotonic_ms() - sent.sent_ms, self.clock.wall_ms() - sent.stored_ms
        ):
            self._came_late_enough.add(key)

    def _note_kill(self, node: DelayNode) -> None:
        """With SYNC_FLUSH only what was flushed was acknowledged."""
        if node.store.flusher.is_sync:
            self._durable_up_to(node.store.flushed_offset)
        else:
            self._kept_from = node.store.flushed_offset
            self._kept_to = self._written_to(node)

    def _written_to(self, node: DelayNode) -> int:
        """End of what the process has given to the system."""
        return _ALL

    def _note_loss(self, disk: SimDisk) -> None:
        if disk.lost_process_only:
            if self._node is not None:
                self._note_kill(self._node)
            self.marks.add("killed in: " + (disk.lost_at.split() or ["a moment"])[0])
            return
        if self._node is not None:
            self._durable_up_to(self._node.store.flushed_offset)
        elif self._kept_from is not None:
            self._durable_up_to(self._kept_from)
            self.marks.add("power lost after a kill")
        self._kept_from = None
        if disk.lost_at:
            self.marks.add("power lost in: " + disk.lost_at.split()[0] + " " + disk.lost_at.split("/")[2])

    def _durable_up_to(self, end: int) -> None:
        """A life has ended, and the log is there up to `end`. What lies behind may be gone or not: it need not come."""
        for sent in self.sent.values():
            if not sent.is_settled:
                sent.is_settled, sent.is_durable = True, sent.end <= end
            if sent.marker_end:
                sent.is_recalled = sent.marker_end <= end
                sent.is_durable = sent.is_durable and sent.is_recalled
                sent.marker_end = 0

    # -- what happens --

    async def _work(self, node: DelayNode, rng: SimRng, steps: int) -> None:
        for _ in range(steps):
            for _ in range(rng.choice((0, 1, 1, 3, 12))):
                self._send(node, rng)
            if rng.chance(0.2):
                self._recall(node, rng)
            if rng.chance(0.1):
                self._move_clock(rng, "in operation")
            await node.sleep_ms(rng.choice((0, 7, 100, 400, 1_000, 4_000)))

    def _send(self, node: DelayNode, rng: SimRng) -> None:
        self._number += 1
        key, now = f"K{self._number}", self.clock.wall_ms()
        delay_ms, due_ms, properties = 0, 0, {_KEY: key}
        if rng.chance(0.4):
            level = rng.between(1, 4)
            properties[const.PROPERTY_DELAY_TIME_LEVEL] = str(level)
            delay_ms = DelayLevels(LEVELS).delay_ms(level)
        else:
            due_ms = now + rng.below(rng.choice(DELAYS_MS)) + 1
            properties[const.PROPERTY_TIMER_DELIVER_MS] = str(due_ms)
        message = MessageExtBrokerInner(TOPIC, 0, self._body(rng), properties, born_timestamp=now, born_host=_HOST)
        sent = self.sent[key] = Sent(key, due_ms, delay_ms, now, self.clock.monotonic_ms(), _NEVER)
        result = node.put(message)
        if result is not None and result.ok:
            sent.end = result.end_offset
        else:
            del self.sent[key]

    def _body(self, rng: SimRng) -> bytes:
        return b"x"

    def _recall(self, node: DelayNode, rng: SimRng) -> None:
        """Of what waits; a message that came already, before the clock was set back, cannot be recalled."""
        now = self.clock.wall_ms()
        waiting = [
            sent for sent in self.sent.values()
            if sent.due_ms > now and not sent.marker_end and not sent.is_recalled
            and sent.key not in self._delivered_at
        ]  # fmt: skip
        if not waiting:
            return
        sent = rng.choice(waiting)
        recalled = delete_key(TOPIC, sent.key) if rng.chance(0.5) else sent.key
        properties = {
            const.PROPERTY_TIMER_DEL_UNIQKEY: recalled,
            const.PROPERTY_TIMER_DELIVER_MS: str(sent.due_ms),
            _KEY: sent.key,
        }
        result = node.put(MessageExtBrokerInner(TOPIC, 0, b"0", properties, born_timestamp=now, born_host=_HOST))
        if result is not None and result.ok:
            sent.marker_end = result.end_offset
            self.marks.add("recalled")

    def _move_clock(self, rng: SimRng, when: str) -> None:
        if self._behind_ms:
            self._set_right()
        elif self._far.chance(self.FAR):
            self._set_far(when)
            return
        kind = rng.choice(("jumps ahead", "jumps back", "stands still", "goes on"))
        if kind == "goes on":
            return
        delta = rng.below(rng.choice(JUMPS_MS)) + 1
        if kind == "stands still":
            self.clock.advance_ms(delta)
        self.clock.jump_wall_ms(delta if kind == "jumps ahead" else -delta)
        self.marks.add(f"clock {kind} {when}")
        self.history.append(f"clock {kind} {when}: {delta} ms; wall {self.clock.wall_ms()}")

    def _set_far(self, when: str) -> None:
        """By weeks: ahead for good, or back until the next step."""
        ahead = self._far.chance(0.4)
        delta = FAR_MS if ahead else -FAR_MS
        self.clock.jump_wall_ms(delta)
        self._behind_ms = 0 if ahead else FAR_MS
        self.marks.add(f"clock is weeks {'ahead' if ahead else 'behind'} {when}")
        self.history.append(f"clock jumps {when}: {delta} ms; wall {self.clock.wall_ms()}")

    def _set_right(self) -> None:
        self.clock.jump_wall_ms(self._behind_ms)
        self._behind_ms = 0
        self.history.append(f"clock is set right; wall {self.clock.wall_ms()}")

    # -- rules --

    async def _finish(self, node: DelayNode, rng: SimRng) -> None:
        """The clock is right from now on."""
        there = {message.uniq_key for message in self._delivered(node)}  # what was delivered before may be lost
        self._delivered_at = {key: at_ms for key, at_ms in self._delivered_at.items() if key in there}
        self._right_from_ms = self.clock.monotonic_ms() + CHECKS_AFTER_MS
        for _ in range(20):
            self._send(node, rng)
        await node.sleep_ms(CHECKS_AFTER_MS)
        for _ in range(20):
            self._send(node, rng)
        await node.sleep_ms(CHECKS_AFTER_MS)
        self._durable_up_to(_ALL)
        gave_up_ms = self.clock.monotonic_ms() + GIVE_UP_MS
        while missing := self._missing():
            assert self.clock.monotonic_ms() < gave_up_ms, f"lost: {missing[:3]}"
            await node.sleep_ms(5_000)
        await node.sleep_ms(25_000)  # nothing may come twice, or though it was recalled
        self._judge(node)
        await node.close()

    def _missing(self) -> list[Sent]:
        return [
            sent
            for sent in self.sent.values()
            if sent.is_durable and not sent.is_recalled and sent.key not in self._delivered_at
        ]

    def _delivered(self, node: DelayNode) -> list[MessageExt]:
        """What is in the topic, but for copies whose properties a loss of power has torn, for they were not flushed and
        have no check sum: such a one does not say any more of what it is the copy, and its message comes again."""
        return [one for one in node.delivered() if one.uniq_key in self.sent and not self._is_torn(one)]

    def _is_torn(self, message: MessageExt) -> bool:
        if self.settings.get("force_verify_prop_crc"):
            return False
        is_timed = bool(self.sent[str(message.uniq_key)].due_ms)
        lacks = is_timed and const.PROPERTY_TIMER_OUT_MS not in message.properties
        return lacks or any("\0" in value for value in message.properties.values())

    def _judge(self, node: DelayNode) -> None:
        delivered = self._delivered(node)
        twice = [key for key, count in Counter(message.uniq_key for message in delivered).items() if count > 1]
        assert not twice, f"delivered more than once: {[self.sent[str(key)] for key in twice]}"
        for message in delivered:
            sent = self.sent[str(message.uniq_key)]
            assert not sent.is_recalled, f"recalled, and came: {sent}"
            sent.is_durable = True  # it survived a start: its copy does from now on
            if sent.due_ms:
                self._judge_timer(sent, message)
            else:
                self._judge_level(sent, message)

    def _judge_timer(self, sent: Sent, message: MessageExt) -> None:
        came = message.store_timestamp
        assert came >= sent.due_ms, f"early: {sent} came at {came}"
        if const.PROPERTY_TIMER_ROLL_TIMES in message.properties:
            self.marks.add("rolled")
        if self._right_from_ms and sent.sent_ms >= self._right_from_ms:
            most = int(str(self.settings["timer_precision_ms"])) + LATE_MOST_MS
            assert came - sent.due_ms <= most, f"late: {sent} came at {came}"
            self.marks.add("in time")

    def _judge_level(self, sent: Sent, message: MessageExt) -> None:
        waited_ms = self._delivered_at[sent.key] - sent.sent_ms
        by_wall_ms = message.store_timestamp - sent.stored_ms
        assert max(waited_ms, by_wall_ms) >= sent.delay_ms or sent.key in self._came_late_enough, (
            f"early: {sent} came after {waited_ms} ms, {by_wall_ms} ms"
        )
        self.marks.add("level")


_ALL: Final = 1 << 62
_NEVER: Final = _ALL + 1
_KEY: Final = const.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX
_HOST: Final = b"\x7f\0\0\1\0\0\x12\x34"
