"""Timer messages from their send to their delivery, through restarts, crashes and jumps of the clock."""

import asyncio
import errno
from collections.abc import Callable
from pathlib import PurePath
from unittest.mock import patch

import pytest

from maxq.broker.processors.refusal import Refusal
from maxq.broker.timer.timer_service import TimerService
from maxq.codes import ResponseCode
from maxq.errors import StoreRefusedError
from maxq.store.queue.unit_scan_cy import DAMAGED_TAGS_CODE
from maxq.store.store_results import PutMessageStatus
from maxq.store.timer import moved_messages
from maxq.store.timer.timer_record import TIMER_TOPIC, delete_key
from tests.short_form import long_form, seeds
from tests.unit.broker.bundles_of import messages
from tests.unit.broker.timer.timer_world import (
    MEMBER,
    SLOTS,
    TOPIC,
    TimerWorld,
    in_virtual_time,
    lateness,
    small_wheel,
    through_power_losses,
)

DAY_MS = 86_400_000


def test_a_message_comes_when_it_is_due_and_never_before() -> None:
    async def story(world: TimerWorld) -> None:
        await world.open()
        for delay in (1, 500, 999, 1000, 1001, 2500, 10_000, 61_234):
            world.send_in(delay, str(world.clock.wall_ms() + delay))
        await world.sleep_ms(63_000)
        late = lateness(world)
        assert len(late) == 8
        assert all(0 <= value <= 1_100 for value in late), late
        await world.close()

    in_virtual_time(story)


@pytest.mark.parametrize("name", ["TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS"])
def test_each_property_sets_the_time(name: str) -> None:
    async def story(world: TimerWorld) -> None:
        await world.open()
        due = world.clock.wall_ms() + 7_000
        value = {"TIMER_DELAY_SEC": "7", "TIMER_DELAY_MS": "7000", "TIMER_DELIVER_MS": str(due)}[name]
        world.send(str(due), **{name: value})
        await world.sleep_ms(6_900)
        assert world.delivered() == []
        await world.sleep_ms(1_300)
        assert [0 <= value <= 1_100 for value in lateness(world)] == [True]
        await world.close()

    in_virtual_time(story)


def test_what_is_delivered_keeps_its_properties_and_says_when_it_waited() -> None:
    async def story(world: TimerWorld) -> None:
        await world.open()
        sent = world.clock.wall_ms()
        world.send_in(3_000, "b", TAGS="TagA", KEYS="k")
        await world.sleep_ms(5_000)
        (message,) = world.delivered()
        properties = message.properties
        assert (properties["TAGS"], properties["KEYS"], properties["UNIQ_KEY"]) == ("TagA", "k", "ID1")
        assert (properties["REAL_TOPIC"], properties["REAL_QID"]) == ("T", "0")
        assert sent - 1000 <= int(properties["TIMER_ENQUEUE_MS"]) <= sent
        assert int(properties["TIMER_DEQUEUE_MS"]) >= sent + 3_000
        await world.close()

    in_virtual_time(story)


def test_the_past_is_now_and_the_far_future_is_refused() -> None:
    async def story(world: TimerWorld) -> None:
        await world.open()
        now = world.clock.wall_ms()
        world.send("past", TIMER_DELIVER_MS=str(now - 1))
        assert world.bodies() == ["past"]
        for name, value in (
            ("TIMER_DELAY_SEC", str(3 * 86_400 + 1)),
            ("TIMER_DELAY_SEC", str((1 << 63) - 1)),
            ("TIMER_DELAY_MS", str((1 << 63) - 1)),
            ("TIMER_DELIVER_MS", str((1 << 63) - 1)),
            ("TIMER_DELIVER_MS", "99999999999999999999"),
            ("TIMER_DELAY_MS", "soon"),
        ):
            refusal = world.send("far", **{name: value})
            assert isinstance(refusal, Refusal) and refusal.code == ResponseCode.MESSAGE_ILLEGAL, (name, value)
        limit = world.send("far", TIMER_DELAY_SEC=str(3 * 86_400 + 1))
        assert isinstance(limit, Refusal) and "259200000ms (timerMaxDelaySec)" in limit.remark
        assert world.bodies() == ["past"]
        await world.close()

    in_virtual_time(story)


def test_a_far_message_goes_round_and_comes_once_at_its_time() -> None:
    async def story(world: TimerWorld) -> None:
        await world.open()
        due = world.clock.wall_ms() + 200_000
        world.send(str(due), TIMER_DELIVER_MS=str(due))
        await world.sleep_ms(199_000)
        assert world.delivered() == []
        await world.sleep_ms(2_500)
        assert [0 <= value <= 1_100 for value in lateness(world)] == [True]
        assert int(world.delivered()[0].properties["TIMER_ROLL_TIMES"]) >= 3
        assert (world.service.timer.pending, world.service.timer.metrics.counts) == (0, {"T": 0})
        await world.close()

    in_virtual_time(story, timer_roll_window_slot=60)


@pytest.mark.parametrize("plain", [True, False])
def test_a_marker_takes_its_message_back_in_either_form(plain: bool) -> None:
    async def story(world: TimerWorld) -> None:
        await world.open()
        due = str(world.clock.wall_ms() + 5_500)
        world.send("stays", TIMER_DELIVER_MS=due)
        world.send("goes", TIMER_DELIVER_MS=due)
        await world.sleep_ms(1_000)
        world.send("marker", TIMER_DELIVER_MS=due, TIMER_DEL_UNIQKEY="ID2" if plain else "T+ID2")
        await world.sleep_ms(8_000)
        assert world.bodies() == ["stays"]
        assert world.service.timer.pending == 0
        assert world.service.timer.metrics.counts == {"T": 0}
        await world.close()

    in_virtual_time(story)


def test_a_marker_of_another_topic_takes_nothing_back() -> None:
    async def story(world: TimerWorld) -> None:
        await world.open()
        due = str(world.clock.wall_ms() + 3_000)
        world.send("stays", TIMER_DELIVER_MS=due)
        world.send("marker", topic="U", TIMER_DELIVER_MS=due, TIMER_DEL_UNIQKEY="ID1")
        await world.sleep_ms(5_000)
        assert (world.bodies(), world.bodies("U")) == (["stays"], [])
        assert world.service.timer.metrics.counts == {"T": 0, "U": 0}
        await world.close()

    in_virtual_time(story)


def test_a_marker_without_a_time_is_refused() -> None:
    async def story(world: TimerWorld) -> None:
        await world.open()
        refusal = world.send("marker", TIMER_DEL_UNIQKEY="ID1")
        assert isinstance(refusal, Refusal) and "TIMER_DELIVER_MS" in refusal.remark
        await world.close()

    in_virtual_time(story)


@pytest.mark.parametrize("clean", [True, False])
def test_a_restart_loses_nothing_and_delivers_nothing_twice(clean: bool) -> None:
    async def story(world: TimerWorld) -> None:
        await world.open()
        for second in range(30):
            for _ in range(3):
                world.send_in(second * 1_000 + 300, str(world.clock.wall_ms() + second * 1_000 + 300))
        for pause in (4_321, 7_050, 1_010, 2_000):
            await world.sleep_ms(pause)
            await (world.close() if clean else world.kill())
            await world.sleep_ms(2_500)
            await world.open()
        await world.sleep_ms(30_000)
        assert len(world.delivered()) == len({message.uniq_key for message in world.delivered()}) == 90
        assert min(lateness(world)) >= 0
        assert world.service.timer.metrics.counts == {"T": 0} or not clean
        await world.close()

    in_virtual_time(story)


def test_a_unit_that_a_loss_of_power_tore_costs_no_message() -> None:
    """Behind the checkpoint any sectors may be missing: here the end of a unit's record size is."""

    async def story(world: TimerWorld) -> None:
        await world.open()
        for number in range(4):
            world.send_in(10_000, str(number))
        await world.sleep_ms(500)
        await world.kill()
        (path,) = [file.name for file in world.disk.list(PurePath("/store/timerlog"))]
        view = world.disk.map(PurePath("/store/timerlog") / path, 5200).view
        size_at = 2 * 52 + 36  # of the third unit
        assert 0 < int.from_bytes(view[size_at : size_at + 4], "big") < 1 << 16
        view[size_at + 2 : size_at + 4] = b"\x01\x00"
        await world.open()
        await world.sleep_ms(15_000)
        assert sorted(world.bodies()) == ["0", "1", "2", "3"]
        await world.close()

    in_virtual_time(story)


@pytest.mark.parametrize("precision", [100, 500])
def test_another_precision_is_refused_while_messages_wait_and_taken_when_none_does(precision: int) -> None:
    """What waits says in which slot of the old precision it is due, and so does what recalls it."""

    async def story(world: TimerWorld) -> None:
        await world.open()
        world.send_in(30_000, "waits")
        await world.sleep_ms(3_000)
        await world.close()
        world.configure(timer_precision_ms=precision)
        with pytest.raises(
            StoreRefusedError, match=f"timerPrecisionMs is {precision}, .* Set timerPrecisionMs to 1000"
        ):
            await world.open()
        await world.store.shutdown()
        world.configure(timer_precision_ms=1000)
        await world.open()
        await world.sleep_ms(30_000)
        assert world.bodies() == ["waits"]
        await world.close()
        world.configure(timer_precision_ms=precision)
        await world.open()
        due = world.clock.wall_ms() + 7_777
        world.send(str(due), TIMER_DELIVER_MS=str(due))
        await world.sleep_ms(10_000)
        assert 0 <= world.delivered()[-1].store_timestamp - due <= precision + 100
        await world.close()

    in_virtual_time(story)


@pytest.mark.parametrize("is_new", [True, False])
def test_a_kill_before_the_first_checkpoint_leaves_the_precision_known(is_new: bool) -> None:
    """What waits is in the wheel and in its log, neither of which says it."""

    async def story(world: TimerWorld) -> None:
        world.configure(timer_precision_ms=100 if is_new else 1000, timer_flush_interval_ms=3_600_000)
        await world.open()
        if not is_new:
            await world.close()
            world.configure(timer_precision_ms=100)
            await world.open()
        due = world.clock.wall_ms() // 1000 * 1000 + 20_000
        world.send("waits", TIMER_DELIVER_MS=str(due))
        await world.sleep_ms(3_000)
        await world.kill()
        world.configure(timer_precision_ms=1000)
        with pytest.raises(StoreRefusedError, match="Set timerPrecisionMs to 100"):
            await world.open()
        await world.store.shutdown()
        world.configure(timer_precision_ms=100)
        await world.open()
        await world.sleep_ms(20_000)
        assert world.bodies() == ["waits"]
        await world.close()

    in_virtual_time(story)


@pytest.mark.parametrize("rested_ms", [0, 300, 1_500])
def test_what_comes_in_the_second_before_an_orderly_end_is_delivered_once(rested_ms: int) -> None:
    """A broker stops to deliver before it ends; the wheel is filled until then."""

    async def story(world: TimerWorld) -> None:
        for _ in range(3):
            await world.open()
            await world.sleep_ms(2_000)
            world.send_in(20_000, "x")
            await world.sleep_ms(500)
            world.service.stop()
            await world.sleep_ms(rested_ms)
            await world.close()
        await world.open()
        await world.sleep_ms(30_000)
        assert len(world.delivered()) == 3
        await world.close()

    in_virtual_time(story)


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
@pytest.mark.parametrize("seed", seeds([0], range(6)))
def test_a_power_loss_loses_no_durable_message_and_delivers_nothing_twice(seed: int, flush: str) -> None:
    async def send(world: TimerWorld) -> None:
        await world.open()
        for number in range(120):
            delay = 1_000 + number * 97 % 9_000
            world.send_in(delay, str(world.clock.wall_ms() + delay))
        await world.store.flush()
        await world.sleep_ms(1_500 + seed * 311)

    async def go_on(world: TimerWorld) -> None:
        await world.open()
        await world.sleep_ms(700 + seed * 431)

    async def end(world: TimerWorld) -> None:
        await world.open()
        await world.sleep_ms(15_000)
        messages = world.delivered()
        assert len({message.uniq_key for message in messages}) == 120
        assert len(messages) == 120
        assert min(lateness(world)) >= 0
        await world.close()

    through_power_losses([send, go_on, go_on, end], seed, flush_disk_type=flush)


FAILING = [("*/timerlog/*", True), ("*/timerwheel", False), ("*/timercheck*", True)]


@pytest.mark.parametrize(
    ("failing", "restarts"), [*FAILING, *long_form((files, not restarts) for files, restarts in FAILING)]
)
def test_a_failed_sync_of_the_timers_files_costs_no_message_when_the_power_goes_later(
    failing: str, restarts: bool
) -> None:
    async def fails_once(world: TimerWorld) -> None:
        await world.open()
        await world.sleep_ms(2_500)
        for number in range(8):
            world.send_in(40_000 + number * 500, str(world.clock.wall_ms() + 40_000 + number * 500))
        await world.store.flush()
        world.sim.disk.fail_flush(failing)
        if restarts:  # no reboot: the next process finds the lost pages in memory, which the system calls clean
            await world.sleep_ms(1_500)
            await world.kill()
            await world.open()
        await world.sleep_ms(15_000)

    async def goes_on(world: TimerWorld) -> None:
        await world.open()
        await world.sleep_ms(50_000)
        assert len(world.delivered()) == len({message.uniq_key for message in world.delivered()}) == 8
        assert min(lateness(world)) >= 0
        await world.close()

    for seed in range(3):
        through_power_losses([fails_once, goes_on], seed, flush_disk_type="SYNC_FLUSH")


def test_the_place_of_a_damaged_message_which_shows_the_next_one_delivers_nothing() -> None:
    async def story(world: TimerWorld) -> None:
        await world.open()
        world.send_in(1_000, "good")
        queue = world.store.queue(TIMER_TOPIC, 0)
        assert queue is not None
        unit = queue.unit(0)
        assert unit is not None
        queue.append(unit[0], unit[1], DAMAGED_TAGS_CODE)
        await world.sleep_ms(3_000)
        assert (world.bodies(), world.service.timer.topic.queue_offset) == (["good"], 2)
        await world.close()

    in_virtual_time(story)


@pytest.mark.parametrize("jump", [-15_000, 3_600_000, *long_form([-300_000, 15_000, 20 * DAY_MS])])
def test_a_clock_that_jumps_makes_nothing_early_lost_or_double(jump: int) -> None:
    async def story(world: TimerWorld) -> None:
        await world.open()
        for delay in (2_000, 8_000, 20_000, 30_000):
            world.send_in(delay, str(world.clock.wall_ms() + delay))
        await world.sleep_ms(10_000)
        world.clock.jump_wall_ms(jump)
        for delay in (2_000, 12_000):
            world.send_in(delay, str(world.clock.wall_ms() + delay))
        await world.sleep_ms(13_500)
        assert len({message.uniq_key for message in world.delivered()} & {"ID5", "ID6"}) == 2
        await world.sleep_ms(30_000 + max(0, -jump))
        late = [message.store_timestamp - int(message.body) for message in world.delivered()]
        assert len(late) == len({message.uniq_key for message in world.delivered()}) == 6
        assert min(late) >= 0
        await world.close()

    in_virtual_time(story)


@pytest.mark.parametrize("restarts", [False, True])
def test_what_was_recalled_while_the_clock_was_behind_does_not_come_when_it_is_set_right(restarts: bool) -> None:
    async def story(world: TimerWorld) -> None:
        await world.open()
        world.send_in(500, "before")
        await world.sleep_ms(3_000)
        world.clock.jump_wall_ms(-60_000)
        due = str(world.clock.wall_ms() + 5_000)
        world.send("recalled", TIMER_DELIVER_MS=due)
        world.send("marker", TIMER_DELIVER_MS=due, TIMER_DEL_UNIQKEY=delete_key(TOPIC, "ID2"))
        world.send("kept", TIMER_DELIVER_MS=due)
        if restarts:
            await world.kill()
        world.clock.jump_wall_ms(60_000)
        if restarts:
            await world.open()
        await world.sleep_ms(5_000)
        assert world.bodies() == ["before", "kept"]
        await world.close()

    in_virtual_time(story)


def test_what_was_recalled_while_the_clock_went_back_and_came_again_between_two_turns_does_not_come() -> None:
    """The marker is the 101st of what the timer finds at its next turn, and that turn puts 100 into the wheel."""

    async def story(world: TimerWorld) -> None:
        await world.open()
        await world.sleep_ms(2_000)
        world.clock.jump_wall_ms(-10_000)
        due = str(world.clock.wall_ms() + 4_000)
        world.send("recalled", TIMER_DELIVER_MS=due)
        for number in range(99):
            world.send_in(6_000, f"other {number}")
        world.send("marker", TIMER_DELIVER_MS=due, TIMER_DEL_UNIQKEY=delete_key(TOPIC, "ID1"))
        world.clock.jump_wall_ms(10_000)
        await world.sleep_ms(5_000)
        assert "recalled" not in world.bodies()
        assert len(world.bodies()) == 99
        await world.close()

    in_virtual_time(story)


@pytest.mark.parametrize("is_recalled", [False, True])
def test_what_was_recalled_before_the_wheel_was_filled_again_does_not_come(is_recalled: bool) -> None:
    async def story(world: TimerWorld) -> None:
        await world.open()
        world.configure(timer_stop_enqueue=True)
        due = str(world.clock.wall_ms() + 2_000)
        world.send("it", TIMER_DELIVER_MS=due)
        for _ in range(200):  # more than one turn puts into the wheel
            world.send_in(1_500, "another", topic="Other")
        if is_recalled:
            world.send("marker", TIMER_DELIVER_MS=due, TIMER_DEL_UNIQKEY=delete_key(TOPIC, "ID1"))
        await world.sleep_ms(10_000)
        world.configure(timer_stop_enqueue=False)
        await world.sleep_ms(3_000)
        assert world.bodies() == ([] if is_recalled else ["it"])
        assert len(world.bodies("Other")) == 200
        await world.close()

    in_virtual_time(story)


def test_what_comes_late_does_not_wait_for_a_slot_that_holds_the_next_lap() -> None:
    async def story(world: TimerWorld) -> None:
        await world.open()
        world.send_in(600_000, "next lap")
        await world.sleep_ms(3_000)
        world.clock.jump_wall_ms(-SLOTS * 1000)
        world.send_in(597_000, "late")
        world.clock.jump_wall_ms(SLOTS * 1000)
        await world.sleep_ms(3_000)
        assert world.bodies() == ["late"]
        await world.sleep_ms(600_000)
        assert world.bodies() == ["late", "next lap"]
        await world.close()

    with small_wheel():
        in_virtual_time(story)


def test_what_is_recalled_behind_a_message_whose_slot_is_taken_does_not_come() -> None:
    async def story(world: TimerWorld) -> None:
        await world.open()
        world.send_in(600_000, "next lap")
        await world.sleep_ms(3_000)
        world.clock.jump_wall_ms(-SLOTS * 1000)
        due = world.clock.wall_ms() + 597_000
        for body, delay in (("soon", 5_000), ("kept", 5_000), ("waits", 597_000), ("waits, too", 597_000)):
            world.send_in(delay, body)
        await world.sleep_ms(100)
        assert world.service.timer.topic.unread == 0  # those whose slot is taken lie beside it
        for key, recalled_ms in (("ID2", due - 592_000), ("ID4", due)):
            world.send("", TIMER_DELIVER_MS=str(recalled_ms), TIMER_DEL_UNIQKEY=delete_key(TOPIC, key))
        await world.sleep_ms(7_000)
        assert world.bodies() == ["kept"]
        await world.sleep_ms(600_000)
        assert world.bodies() == ["kept", "waits, too"]
        world.clock.jump_wall_ms(SLOTS * 1000)
        await world.sleep_ms(3_000)
        assert world.bodies() == ["kept", "waits, too", "next lap"]
        assert world.service.timer.pending == 0
        assert world.service.timer.metrics.counts == {TOPIC: 0}
        await world.close()

    with small_wheel():
        in_virtual_time(story)


def test_what_was_recalled_and_goes_round_behind_a_message_that_waits_for_its_slot_does_not_come() -> None:
    async def story(world: TimerWorld) -> None:
        await world.open()
        due = world.clock.wall_ms() + 12_000
        world.send("recalled", TIMER_DELIVER_MS=str(due))  # it goes round after 8 s
        world.send("kept", TIMER_DELIVER_MS=str(due))
        await world.sleep_ms(5_000)
        world.send("", TIMER_DELIVER_MS=str(due), TIMER_DEL_UNIQKEY=delete_key(TOPIC, "ID1"))
        await world.sleep_ms(10)
        world.clock.jump_wall_ms(SLOTS * 1000)
        world.send("next lap", TIMER_DELIVER_MS=str(due + SLOTS * 1000))  # its slot is the marker's
        await world.sleep_ms(1_000)
        assert world.bodies() == ["kept"]
        assert world.service.timer.moved.all() == ()
        await world.sleep_ms(9_000)
        assert world.bodies() == ["kept", "next lap"]
        assert world.service.timer.pending == 0
        assert world.service.timer.metrics.counts == {TOPIC: 0}
        await world.close()

    with small_wheel():
        in_virtual_time(story, timer_roll_window_slot=8)


def test_behind_laps_of_standstill_all_comes_though_the_wheel_is_searched_in_parts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("maxq.broker.timer.timer_service._SKIP_AT_ONCE", 200)

    async def story(world: TimerWorld) -> None:
        await world.open()
        for delay in range(1, 40):
            world.send_in(delay * 400_000, f"before {delay}")
        await world.sleep_ms(100)
        world.clock.jump_wall_ms(3 * SLOTS * 1000)
        for number in range(40):
            world.send_in(1_000, f"meanwhile {number}")
            await world.sleep_ms(1)
        await world.sleep_ms(4_000)
        assert len(world.bodies()) == len(set(world.bodies())) == 79
        await world.close()

    with small_wheel():
        in_virtual_time(story)


@pytest.mark.parametrize("seed", seeds([0], range(4)))
def test_what_was_delivered_before_the_first_checkpoint_does_not_come_again_after_weeks(seed: int) -> None:
    async def begins(world: TimerWorld) -> None:
        await world.open()
        world.send_in(2_000, "once")
        await world.sleep_ms(4_000)
        assert world.bodies() == ["once"]
        world.send_in(60_000, "later")
        await world.sleep_ms(500)

    async def goes_on(world: TimerWorld) -> None:
        world.clock.jump_wall_ms(40 * DAY_MS)
        await world.open()
        world.send_in(1_000, "new")
        await world.sleep_ms(3_000)
        assert world.bodies() == ["once", "later", "new"]
        await world.close()

    through_power_losses([begins, goes_on], seed, flush_disk_type="SYNC_FLUSH", timer_flush_interval_ms=100_000)


YEARS_OFF = [(days, restarts) for days in (26, 365 * 80, -26, -365 * 50) for restarts in ("", "ordered", "killed")]


@pytest.mark.parametrize(("days", "restarts"), [*YEARS_OFF[2::4], *long_form(YEARS_OFF, YEARS_OFF[2::4])])
def test_a_clock_that_is_years_off_for_a_while_stops_nothing_and_loses_nothing(days: int, restarts: str) -> None:
    async def story(world: TimerWorld) -> None:
        async def restart() -> None:
            if restarts:
                await (world.close() if restarts == "ordered" else world.kill())
                await world.open()

        await world.open()
        for delay in (2_000, 8_000, 20_000, 40_000, 300_000):
            world.send_in(delay, str(world.clock.wall_ms() + delay))
        await world.sleep_ms(10_000)
        world.send_in(30_000, str(world.clock.wall_ms() + 30_000))  # the wheel has not seen it when the clock steps
        for step in (days, -days):
            world.clock.jump_wall_ms(step * DAY_MS)
            await restart()
            for delay in (2_000, 12_000):
                world.send_in(delay, str(world.clock.wall_ms() + delay))
            await world.sleep_ms(13_500)
            new = 2 if step == days else 4
            assert len({message.uniq_key for message in world.delivered()} & {"ID7", "ID8", "ID9", "ID10"}) == new
            await restart()
        await world.sleep_ms(300_000)
        late = [message.store_timestamp - int(message.body) for message in world.delivered()]
        assert len(late) == len({message.uniq_key for message in world.delivered()}) == 10
        assert min(late) >= 0
        await world.close()

    with small_wheel():
        in_virtual_time(story)


def test_a_clock_that_stood_still_during_a_restart_delivers_nothing_early_or_twice() -> None:
    async def story(world: TimerWorld) -> None:
        await world.open()
        for delay in (2_000, 6_000):
            world.send_in(delay, str(world.clock.wall_ms() + delay))
        await world.sleep_ms(4_000)
        await world.close()
        await world.sleep_ms(60_000)
        world.clock.jump_wall_ms(-60_000)
        await world.open()
        await world.sleep_ms(1_000)
        assert len(world.delivered()) == 1
        await world.sleep_ms(3_000)
        assert len(world.delivered()) == 2
        assert all(0 <= value <= 1_100 for value in lateness(world))
        await world.close()

    in_virtual_time(story)


def test_a_message_that_cannot_be_delivered_delays_no_other() -> None:
    async def story(world: TimerWorld) -> None:
        await world.open()
        world.failing["Bad"] = PutMessageStatus.MESSAGE_ILLEGAL
        due = str(world.clock.wall_ms() + 2_000)
        world.send("bad", topic="Bad", TIMER_DELIVER_MS=due)
        world.send("good", TIMER_DELIVER_MS=due)
        world.send_in(4_000, "later")
        await world.sleep_ms(6_000)
        assert world.bodies() == ["good", "later"]
        (failure,) = world.service.failures.all()
        assert "MESSAGE_ILLEGAL as told" in failure.reason
        world.failing.clear()
        await world.sleep_ms(15_000)
        assert world.bodies("Bad") == ["bad"]
        assert (world.service.failures.all(), world.service.timer.pending) == ([], 0)
        await world.close()

    in_virtual_time(story)


def test_a_store_that_takes_nothing_delays_everything_and_loses_nothing() -> None:
    async def story(world: TimerWorld) -> None:
        await world.open()
        for number in range(5):
            world.send_in(1_000 + number * 500, str(number))
        world.failing["T"] = PutMessageStatus.SERVICE_NOT_AVAILABLE
        await world.sleep_ms(20_000)
        assert world.delivered() == [] and "as told" in world.service.closed
        world.failing.clear()
        await world.sleep_ms(2_000)
        assert sorted(world.bodies()) == list("01234")
        assert world.service.closed == ""
        await world.close()

    in_virtual_time(story)


def test_too_many_messages_of_one_moment_are_refused() -> None:
    async def story(world: TimerWorld) -> None:
        await world.open()
        due = str(world.clock.wall_ms() + 60_500)
        refused = 0
        for _ in range(300):
            refused += isinstance(world.send("x", TIMER_DELIVER_MS=due), Refusal)
            await world.sleep_ms(25)
        assert world.service.timer.pending == 300 - refused
        assert 100 < world.service.timer.pending <= 201
        refusal = world.send("x", TIMER_DELIVER_MS=due)
        if isinstance(refusal, Refusal):
            assert "timerCongestNumEachSlot" in refusal.remark
        world.send_in(70_000, "free")
        await world.close()

    in_virtual_time(story, timer_congest_num_each_slot=100)


def test_it_begins_to_deliver_while_messages_keep_coming() -> None:
    async def story(world: TimerWorld) -> None:
        await world.open(dequeue=False)
        world.send_in(60_000)
        world.service.start()
        for _ in range(200):
            world.send_in(60_000)
            await asyncio.sleep(0)
        assert world.service.is_dequeuing
        await world.close()

    in_virtual_time(story)


@pytest.mark.parametrize("has_checkpoint", [True, False])
def test_what_was_moved_before_a_crash_and_is_delivered_then_comes_once(has_checkpoint: bool) -> None:
    async def story(world: TimerWorld) -> None:
        await world.open()
        world.send_in(2_500, "due")
        await world.sleep_ms(1_500)  # a checkpoint is written, or none yet
        world.configure(timer_flush_interval_ms=100_000)
        world.failing["T"] = PutMessageStatus.MESSAGE_ILLEGAL
        await world.sleep_ms(3_000)
        assert len(world.service.failures.all()) == 1
        await world.kill()
        world.failing.clear()
        await world.open()
        await world.sleep_ms(15_000)
        assert world.bodies() == ["due"]
        assert world.service.timer.pending == 0
        await world.close()

    in_virtual_time(story, timer_flush_interval_ms=1_000 if has_checkpoint else 100_000)


@pytest.mark.parametrize("follows_first", [False, True], ids=["leads at once", "follows first"])
def test_a_member_that_was_killed_delivers_nothing_twice_that_its_checkpoint_knows(follows_first: bool) -> None:
    """At its start a member of a DLedger group does not know yet that its newest entries are committed."""

    async def story(world: TimerWorld) -> None:
        await world.open(dequeue=False)
        world.lead(1)
        for delay in (100, 6_000, 7_000, 500_000):
            world.send_in(delay, f"after {delay}")
        await world.sleep_ms(500)
        assert world.bodies() == ["after 100"]
        await world.service.checkpoints.write(dequeues=True)
        await world.kill()

        await world.open(dequeue=False)
        assert world.store.max_offset(TIMER_TOPIC, 0) < 4 <= world.service.timer.saved.last_timer_queue_offset
        if follows_first:
            world.follow()
            await world.sleep_ms(1_000)
        world.lead(2)
        await world.sleep_ms(30_000)
        assert world.bodies() == ["after 100", "after 6000", "after 7000"]
        assert world.service.timer.pending == 1
        await world.close()

    with small_wheel():
        in_virtual_time(
            story, broker_role="SLAVE", timer_precision_ms=100, timer_roll_window_slot=100,
            flush_interval_consume_queue=60_000, **MEMBER,
        )  # fmt: skip


def test_a_member_that_leads_before_its_queue_has_what_is_committed_delivers_nothing_twice() -> None:
    async def story(world: TimerWorld) -> None:
        await world.open(dequeue=False)
        world.lead(1)
        for delay in (100, 6_000, 7_000, 500_000):
            world.send_in(delay, f"after {delay}")
        await world.sleep_ms(500)
        assert world.bodies() == ["after 100"]
        await world.service.checkpoints.write(dequeues=True)
        await world.kill()

        await world.open(dequeue=False)
        world.disk.faults = lambda kind, path: errno.ENOSPC if f"consumequeue/{TIMER_TOPIC}" in path else 0
        world.lead(2)
        await world.sleep_ms(2_000)
        assert world.store.max_offset(TIMER_TOPIC, 0) == 0
        world.disk.faults = lambda kind, path: 0
        await world.sleep_ms(30_000)
        assert world.bodies() == ["after 100", "after 6000", "after 7000"]
        assert world.service.timer.pending == 1
        await world.close()

    with small_wheel():
        in_virtual_time(
            story, broker_role="SLAVE", timer_precision_ms=100, timer_roll_window_slot=100,
            flush_interval_consume_queue=60_000, **MEMBER,
        )  # fmt: skip


def test_a_file_of_the_timer_log_that_could_not_be_deleted_goes_before_any_other() -> None:
    """A start refuses a timer log with a gap."""

    async def story(world: TimerWorld) -> None:
        await world.open()
        for _ in range(450):
            world.send_in(20_000, "x" * 3_000)
        await world.sleep_ms(25_000)
        log = world.disk.paths("/store/timerlog/*")
        assert len(log) > 3 and len(world.delivered()) == 450
        for _ in range(100):
            world.send(body="x" * 16_000)
        world.disk.faults = lambda kind, path: errno.EIO if kind == "delete" and path == log[0] else 0
        world.store.cleaner._check_disk = lambda: (True, True)  # type: ignore[method-assign]
        while await world.store.cleaner.clean():
            pass
        await world.sleep_ms(35_000)
        await world.close()
        world.disk.faults = lambda kind, path: 0
        await world.open()
        await world.close()

    in_virtual_time(story)


@pytest.mark.parametrize("out_ms", [-9_999_999_999_999_999_999, -(1 << 63), -1, (1 << 63) - 1])
def test_a_record_with_a_time_beyond_all_slots_holds_up_no_other(out_ms: int) -> None:
    async def story(world: TimerWorld) -> None:
        await world.open()
        world.send_in(4_000, "before")
        await world.sleep_ms(1_000)
        world.store_timed(out_ms, "odd")
        world.send_in(2_000, "after")
        await world.sleep_ms(6_000)
        assert [body for body in world.bodies() if body != "odd"] == ["after", "before"]
        await world.close()
        await world.open()
        world.send_in(2_000, "later")
        await world.sleep_ms(4_000)
        assert [body for body in world.bodies() if body != "odd"] == ["after", "before", "later"]
        await world.close()

    in_virtual_time(story)


@pytest.mark.parametrize("restarts", [False, True])
def test_times_between_two_slots_are_delivered_with_the_earlier_one(restarts: bool) -> None:
    """Brokers with a smaller timerPrecisionMs write them."""

    async def story(world: TimerWorld) -> None:
        await world.open()
        due = world.clock.wall_ms() // 1000 * 1000 + 8_000
        for after in (300, 800, 0):
            world.store_timed(due + after, str(due + after))
        world.store_timed(due + 300, "recalled")
        world.store_timed(due + 600, "marker", TIMER_DEL_UNIQKEY=delete_key(TOPIC, "ID4"))
        world.send_in(10_000, str(world.clock.wall_ms() + 10_000))
        await world.sleep_ms(3_000)
        if restarts:
            await world.kill()
            world.disk.delete(PurePath("/store/timerwheel"))
            await world.open()
        await world.sleep_ms(17_000)
        late = lateness(world)
        assert len(late) == 4 and min(late) >= 0 and max(late) <= 1_100
        assert world.service.timer.pending == 0
        await world.close()

    in_virtual_time(story)


def test_a_slave_with_another_precision_delivers_all_when_it_is_promoted() -> None:
    async def story(world: TimerWorld) -> None:
        await world.open(dequeue=False)
        world.configure(timer_precision_ms=100)  # the master's
        for number in range(5):
            world.send_in(20_300 + 100 * number, str(world.clock.wall_ms() + 20_300 + 100 * number))
        world.configure(timer_precision_ms=1000)
        world.follows(5)
        await world.sleep_ms(5_000)
        assert world.service.timer.pending == 5
        world.promote()
        await world.sleep_ms(30_000)
        assert len(world.delivered()) == 5 and min(lateness(world)) >= 0
        await world.close()

    in_virtual_time(story)


@pytest.mark.parametrize("recalls", [False, True])
def test_a_slave_with_a_finer_precision_delivers_no_message_early_and_takes_recalls_when_it_is_promoted(
    recalls: bool,
) -> None:
    """Its master rounded the times down to its own precision."""

    async def story(world: TimerWorld) -> None:
        world.configure(timer_precision_ms=100)
        await world.open(dequeue=False)
        world.configure(timer_precision_ms=1000)  # the master's
        at = world.clock.wall_ms() + 20_000
        for number in range(5):
            due = at + 100 + 200 * number
            world.send(str(due), TIMER_DELIVER_MS=str(due), UNIQ_KEY=f"ID{number}")
        world.configure(timer_precision_ms=100)
        world.follows(5)
        await world.sleep_ms(5_000)
        world.promote()
        if recalls:
            due = at + 100 + 200 * 3
            world.send("marker", TIMER_DELIVER_MS=str(due), TIMER_DEL_UNIQKEY=delete_key(TOPIC, "ID3"))
        await world.sleep_ms(30_000)
        assert world.bodies() == [str(at + 100 + 200 * number) for number in range(5) if number != 3 or not recalls]
        late = [message.store_timestamp - int(message.body) for message in world.delivered()]
        assert min(late) >= 0 and max(late) <= 300
        assert world.service.timer.pending == 0
        await world.close()

    in_virtual_time(story)


def test_nothing_is_delivered_into_the_topics_that_only_the_broker_writes() -> None:
    """A client may send to the timer's topic, as brokers that act for others do."""

    async def story(world: TimerWorld) -> None:
        await world.open()
        world.store_timed(world.clock.wall_ms() + 1_000, "forged", REAL_TOPIC="RMQ_SYS_TRANS_OP_HALF_TOPIC")
        world.store_timed(world.clock.wall_ms() + 1_000, "good")
        await world.sleep_ms(3_000)
        assert world.bodies() == ["good"]
        assert world.bodies("RMQ_SYS_TRANS_OP_HALF_TOPIC") == []
        await world.close()

    in_virtual_time(story)


@pytest.mark.parametrize("is_first", [False, True], ids=["later", "first checkpoint"])
@pytest.mark.parametrize("failing", ["checkpoint file", "behind the wheel"])
def test_what_is_moved_when_a_checkpoint_ends_half_way_and_its_broker_is_killed_comes_once(
    failing: str, is_first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(world: TimerWorld) -> None:
        world.configure(timer_flush_interval_ms=7_000 if is_first else 500)
        await world.open()
        world.failing[TOPIC] = PutMessageStatus.QUEUE_HAS_MOVED
        world.send_in(3_000, "moved")
        await world.sleep_ms(2_500)
        timer = world.service.timer

        def write(
            pages: dict[int, bytearray], write: Callable[[dict[int, bytearray]], None] = timer.wheel.write
        ) -> None:
            write(pages)
            world.disk.faults = lambda kind, path: errno.ENOSPC if "timercheck" in path else 0

        if failing == "behind the wheel":
            monkeypatch.setattr(timer.wheel, "write", write)
        else:
            world.disk.faults = lambda kind, path: errno.ENOSPC if "timercheck" in path else 0
        await world.sleep_ms(5_000)
        assert timer.moved.all()
        await world.kill()
        world.failing.clear()
        world.disk.faults = lambda kind, path: 0
        await world.open()
        await world.sleep_ms(60_000)
        assert world.bodies() == ["moved"]
        assert world.service.timer.pending == 0
        await world.close()

    with small_wheel():
        in_virtual_time(story)


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("refused", [PutMessageStatus.SERVICE_NOT_AVAILABLE, PutMessageStatus.MESSAGE_ILLEGAL])
def test_what_is_recalled_after_the_clock_was_set_back_from_its_delivery_does_not_come(
    refused: PutMessageStatus, restarts: bool
) -> None:
    """It lies in another slot then: the one behind the slot that was open, or that of its next try."""

    async def story(world: TimerWorld) -> None:
        await world.open()
        due = world.clock.wall_ms() + 3_500
        world.send("recalled", TIMER_DELIVER_MS=str(due))
        world.failing[TOPIC] = refused
        await world.sleep_ms(6_000)
        world.clock.jump_wall_ms(-60_000)
        world.failing.clear()
        await world.sleep_ms(2_000)
        if restarts:
            await world.kill()
            await world.open()
        world.send("marker", TIMER_DELIVER_MS=str(due), TIMER_DEL_UNIQKEY=delete_key(TOPIC, "ID1"))
        await world.sleep_ms(90_000)
        assert world.bodies() == []
        assert (world.service.timer.pending, world.service.timer.moved.all()) == (0, ())
        await world.close()

    in_virtual_time(story)


@pytest.mark.parametrize("restarts", [False, True])
def test_a_lower_file_reserved_time_deletes_no_file_in_which_a_message_waits(restarts: bool) -> None:
    async def story(world: TimerWorld) -> None:
        await world.open()
        world.send_in(9_000_000, "waits")
        for _ in range(100):
            world.send("x" * 16_000, topic="Other")
        await world.sleep_ms(1_000)
        assert world.store.max_physical_offset > 1 << 20 and world.service.timer.pending == 1
        if restarts:
            await world.close()
        world.configure(file_reserved_time=1)
        if restarts:
            await world.open()
        else:
            world.store.update_config(world.settings.store)
        await world.sleep_ms(8_998_000)
        assert world.store.min_physical_offset == 0
        await world.sleep_ms(700_000)
        assert world.bodies() == ["waits"]
        assert world.store.min_physical_offset > 0
        await world.close()

    with small_wheel():
        in_virtual_time(
            story, delete_when=";".join(f"{hour:02}" for hour in range(24)), timer_flush_interval_ms=60_000,
            clean_resource_interval=600_000,
        )  # fmt: skip


@pytest.mark.parametrize(("named", "newer"), [(10_000, ["in another file"]), (1, [])])
def test_a_message_that_fails_keeps_its_file_for_file_reserved_time_and_no_longer(named: int, newer: list[str]) -> None:
    async def story(world: TimerWorld) -> None:
        await world.open()
        world.failing = dict.fromkeys(("Bad", TOPIC), PutMessageStatus.PROPERTIES_SIZE_EXCEEDED)
        for delay in (10_000, 30_000):
            world.send("never storable", topic="Bad", TIMER_DELAY_MS=str(delay))
        world.send_in(4_500_000, "late")
        for _ in range(100):
            world.send("x" * 16_000, topic="Other")
        for body in newer:
            world.send_in(8_000_000, body)
        await world.sleep_ms(2_000)
        world.configure(file_reserved_time=1)
        world.store.update_config(world.settings.store)
        await world.sleep_ms(6_000_000)
        assert world.store.min_physical_offset == 0
        del world.failing[TOPIC]
        await world.sleep_ms(900_000)
        assert world.bodies() == ["late"]
        assert world.store.min_physical_offset > 0
        await world.close()

    with small_wheel(), patch.object(moved_messages, "_MOST", named):
        in_virtual_time(
            story, delete_when=";".join(f"{hour:02}" for hour in range(24)), timer_flush_interval_ms=600_000,
            clean_resource_interval=200_000,
        )  # fmt: skip


def test_a_message_that_fails_while_the_clock_is_ahead_keeps_its_file() -> None:
    async def story(world: TimerWorld) -> None:
        await world.open()
        world.failing[TOPIC] = PutMessageStatus.MESSAGE_ILLEGAL
        world.send_in(2_000, "late")
        await world.sleep_ms(5_000)
        world.clock.jump_wall_ms(10 * DAY_MS)
        await world.sleep_ms(30_000)
        assert world.service.failures.all()[0].times > 1
        assert await world.service.has_waiting_below(world.store.max_physical_offset)
        await world.close()

    with small_wheel():
        in_virtual_time(story)


def test_retention_does_not_read_the_timer_log_anew_while_the_same_message_waits() -> None:
    async def story(world: TimerWorld) -> None:
        await world.open()
        for number in range(300):
            world.send_in(1_000 + number * 10, "soon")
        for delay in (20_000, 60_000):
            world.send_in(delay, "later")
        await world.sleep_ms(6_000)
        assert len(world.delivered()) == 300
        service, end = world.service, world.store.max_physical_offset
        assert await service.has_waiting_below(end)
        with patch.object(service.timer.log, "read", wraps=service.timer.log.read) as read:
            assert await service.has_waiting_below(end)
            assert read.call_count == 1
            await world.sleep_ms(20_000)
            read.reset_mock()
            assert await service.has_waiting_below(end)
            assert read.call_count == 2
            await world.sleep_ms(40_000)
            read.reset_mock()
            assert not await service.has_waiting_below(end)
            assert read.call_count == 302
        await world.close()

    with small_wheel():
        in_virtual_time(story)


def test_a_message_sent_while_the_clock_was_laps_ahead_holds_up_no_later_one() -> None:
    async def story(world: TimerWorld) -> None:
        await world.open()
        ahead_ms = (SLOTS * 100 + 3600) * 1000
        world.clock.jump_wall_ms(ahead_ms)
        await world.sleep_ms(3_000)
        world.send_in(60_000, "far ahead")
        await world.sleep_ms(3_000)
        world.clock.jump_wall_ms(-ahead_ms)
        await world.sleep_ms(3_000)
        for delay in range(3_640_000, 3_670_000, 1_000):
            world.send_in(delay, str(world.clock.wall_ms() + delay))
        await world.sleep_ms(3_000)
        world.send_in(5_000, str(world.clock.wall_ms() + 5_000))
        await world.sleep_ms(10_000)
        assert len(world.bodies()) == 1
        await world.sleep_ms(3_700_000)
        late = lateness(world)
        assert len(late) == 31 and min(late) >= 0 and max(late) <= 2_200
        await world.close()

    with small_wheel():
        in_virtual_time(story)


def test_a_broker_without_the_wheel_says_how_many_messages_wait(caplog: pytest.LogCaptureFixture) -> None:
    async def story(world: TimerWorld) -> None:
        await world.open()
        for _ in range(3):
            world.send_in(60_000, "waits")
        await world.sleep_ms(1_000)
        await world.close()
        service = TimerService(world.env, messages(store=world.store), world._put, lambda message, result: None)
        await service.warn_of_waiting()
        assert "timerWheelEnable is false, and 3 timer messages wait" in caplog.text

    with small_wheel():
        in_virtual_time(story)
