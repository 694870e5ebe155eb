"""Timer messages when another broker of the group delivers, or this one does again."""

import errno

import pytest

from maxq.protocol.body.timer_checkpoint import MovedMessage
from maxq.store.append.message_ext_broker_inner import MessageExtBrokerInner
from maxq.store.timer.timer_log import TimerUnit
from tests.unit.broker.timer.timer_world import MEMBER, TOPIC, TimerWorld, in_virtual_time, small_wheel


def deliver_as_master(world: TimerWorld, physical_offset: int) -> None:
    """Put the copy into the log that the master, of which this broker is the slave, has made of a message."""
    message = world.store.look_message_by_offset(physical_offset)
    assert message is not None
    role = world.settings.store.broker_role
    world.be("ASYNC_MASTER")
    properties = {name: value for name, value in message.properties.items() if not name.startswith("REAL_")}
    copy = MessageExtBrokerInner(
        TOPIC, 0, message.body, properties, born_timestamp=message.born_timestamp, born_host=message.born_host
    )
    assert world.store.put_message(copy).ok
    world.be(role)


def test_a_leader_that_is_elected_again_at_once_delivers_on() -> None:
    async def story(world: TimerWorld) -> None:
        await world.open(dequeue=False)
        world.lead(1)
        for delay in (1_000, 5_000, 9_000):
            world.send_in(delay, f"after {delay}")
        await world.sleep_ms(3_000)
        world.service.stop()
        world.lead(2)
        await world.sleep_ms(20_000)
        assert world.bodies() == ["after 1000", "after 5000", "after 9000"]
        assert world.service.timer.pending == 0
        await world.close()

    with small_wheel():
        in_virtual_time(story, broker_role="SLAVE", **MEMBER)


def test_a_slave_that_acts_again_at_once_looks_for_what_its_master_has_delivered() -> None:
    async def story(world: TimerWorld) -> None:
        await world.open(dequeue=False)
        world.is_local = False
        world.send_in(4_000, "once")
        world.service.start()
        await world.sleep_ms(3_000)
        world.service.rests = lambda: True  # its master asks what it has
        await world.sleep_ms(3_000)
        deliver_as_master(world, 0)
        world.service.rests = lambda: False
        world.service.stop()
        world.service.start()
        await world.sleep_ms(5_000)
        assert world.bodies() == ["once"]
        await world.close()

    with small_wheel():
        in_virtual_time(story)


def test_what_the_master_had_moved_comes_as_soon_as_the_timer_log_takes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(world: TimerWorld) -> None:
        await world.open(dequeue=False)
        world.send_in(3_000, "moved")
        message = world.store.look_message_by_offset(0)
        assert message is not None
        await world.sleep_ms(6_000)
        slot_ms = world.clock.wall_ms() // 1000 * 1000 + 10_000
        world.follows(1, moved=(MovedMessage(0, message.store_size, slot_ms),))
        await world.sleep_ms(3_000)

        def refuse(unit: TimerUnit) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(world.service.timer.log, "append", refuse)
            world.promote()
            await world.sleep_ms(2_000)
        await world.sleep_ms(15_000)
        assert world.bodies() == ["moved"]
        assert world.service.timer.moved.all() == ()
        await world.close()

    with small_wheel():
        in_virtual_time(story)


def test_a_slave_that_was_restarted_after_its_clock_was_set_back_takes_what_was_delivered_for_that() -> None:
    async def story(world: TimerWorld) -> None:
        await world.open(dequeue=False)
        began_ms = world.clock.wall_ms()
        world.send_in(100_000, "old")
        world.follows(1)
        await world.sleep_ms(120_000)
        deliver_as_master(world, 0)
        world.follows(1, began_ms + 118_000)
        await world.sleep_ms(3_000)
        world.clock.jump_wall_ms(-60_000)
        world.be("ASYNC_MASTER")
        world.send("new", TIMER_DELIVER_MS=str(began_ms + 90_000))
        world.follows(2, began_ms + 89_000)
        await world.sleep_ms(5_000)
        await world.close()
        await world.open(dequeue=False)
        assert world.service.timer.pending == 1
        await world.sleep_ms(3_000)
        world.promote()
        await world.sleep_ms(100_000)
        assert world.bodies() == ["old", "new"]
        await world.close()

    with small_wheel():
        in_virtual_time(story)


MINUTE_MS = 60_000


@pytest.mark.parametrize("reserved_hours", [1, 72])
def test_a_slave_with_another_roll_window_delivers_what_it_takes_over_once(reserved_hours: int) -> None:
    """Its master has the window of the other one of the two, and dies before it puts the message round."""

    async def story(world: TimerWorld) -> None:
        window_ms = {1: 9_940_000, 72: 2_400_000}[reserved_hours]
        await world.open(dequeue=False)
        world.send_in(180 * MINUTE_MS, "once")
        world.configure(file_reserved_time=reserved_hours)
        for _ in range(3 if reserved_hours == 72 else 70):
            world.follows(1, window_ms=window_ms, precision_ms=1_000)
            await world.sleep_ms(MINUTE_MS)
        world.promote()
        await world.sleep_ms(181 * MINUTE_MS)
        assert world.bodies() == ["once"]
        assert world.service.timer.pending == 0
        await world.close()

    with small_wheel():
        in_virtual_time(story, timer_flush_interval_ms=MINUTE_MS)


@pytest.mark.parametrize("late_minutes", [75, 172])
def test_a_slave_that_reads_late_what_its_master_has_put_round_delivers_it_once(late_minutes: int) -> None:
    async def story(world: TimerWorld) -> None:
        told = {"window_ms": 9_940_000, "precision_ms": 1_000}
        await world.open(dequeue=False)
        world.send_in(240 * MINUTE_MS, "once")
        message = world.store.look_message_by_offset(0)
        assert message is not None
        await world.sleep_ms(late_minutes * MINUTE_MS)
        if late_minutes < 165:
            world.follows(1, **told)
        await world.sleep_ms((173 - late_minutes) * MINUTE_MS)
        world.be("ASYNC_MASTER")
        properties = {**message.properties, "TIMER_ROLL_TIMES": "1"}
        world.store_timed(int(properties["TIMER_OUT_MS"]), "once", **properties)
        world.follows(2, **told)
        await world.sleep_ms(5 * MINUTE_MS)
        world.promote()
        await world.sleep_ms(100 * MINUTE_MS)
        assert world.bodies() == ["once"]
        await world.close()

    with small_wheel():
        in_virtual_time(story, timer_flush_interval_ms=MINUTE_MS)
