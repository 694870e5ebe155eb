"""A slave's timer, and what it does when it takes over from its master."""

from pathlib import PurePath

import pytest

from maxq.protocol.body.data_version import DataVersion
from maxq.protocol.body.timer_checkpoint import TimerCheckpoint
from maxq.store.store_results import PutMessageStatus
from tests.unit.broker.timer.timer_world import TimerWorld, in_virtual_time, lateness


def test_a_slave_fills_its_wheel_as_far_as_its_master_and_delivers_only_when_it_is_active() -> None:
    async def story(world: TimerWorld) -> None:
        await world.open()
        for delay in (2_000, 3_000, 8_000, 9_000):
            world.send_in(delay, str(world.clock.wall_ms() + delay))
        await world.sleep_ms(1_500)
        await world.close()
        for name in ("/store/timerwheel", "/store/config/timercheck", "/store/config/timermetrics"):
            world.disk.delete(PurePath(name))
        world.disk.delete_tree(PurePath("/store/timerlog"))
        world.configure(broker_role="SLAVE")
        await world.open(dequeue=False)
        await world.sleep_ms(1_000)
        assert world.service.timer.pending == 0  # it does not know yet how far its master is
        begin = world.service.timer.floor(world.clock.wall_ms()) - 4_000
        world.service.exchange.take_checkpoint(TimerCheckpoint(begin, 0, 0, 3, DataVersion(5, 0, 5)))
        await world.sleep_ms(1_500)
        assert (world.service.timer.pending, world.service.timer.topic.queue_offset) == (3, 3)
        await world.sleep_ms(2_000)
        assert world.delivered() == []
        world.configure(broker_role="ASYNC_MASTER")
        world.store.update_config(world.settings.store)
        world.service.start()
        await world.sleep_ms(8_000)
        assert len({message.uniq_key for message in world.delivered()}) == len(world.delivered()) == 4
        await world.close()

    in_virtual_time(story)


def test_what_a_timer_is_told_right_after_it_was_stopped_is_not_dropped() -> None:
    async def story(world: TimerWorld) -> None:
        await world.open()
        await world.sleep_ms(1_000)
        exchange, told = world.service.exchange, world.service.timer.floor(world.clock.wall_ms()) + 60_000
        world.service.stop()
        exchange.take_checkpoint(TimerCheckpoint(told, 0, 0, 0, DataVersion(5, 0, 5)))
        await world.sleep_ms(100)
        assert exchange.known_read_time_ms() == told
        await world.close()

    in_virtual_time(story)


def test_the_read_time_that_was_told_last_is_known_before_it_is_saved_and_until_this_broker_delivers() -> None:
    async def story(world: TimerWorld) -> None:
        await world.open(dequeue=False)
        exchange, saved = world.service.exchange, world.service.timer.saved.last_read_time_ms
        assert exchange.known_read_time_ms() == saved
        began = world.service.timer.floor(world.clock.wall_ms())
        world.follows(0, began - 5_000)
        assert exchange.known_read_time_ms() == began - 5_000
        await world.sleep_ms(100)
        world.follows(0, began - 9_000)  # a late message has come to its master
        assert exchange.known_read_time_ms() == began - 9_000
        world.promote()
        await world.sleep_ms(2_000)
        assert exchange.known_read_time_ms() == world.service.timer.saved.last_read_time_ms > began
        await world.close()

    in_virtual_time(story)


def test_what_its_master_had_delivered_a_slave_does_not_deliver_again() -> None:
    async def story(world: TimerWorld) -> None:
        await world.open()
        for delay in (1_000, 2_000, 6_000):
            world.send_in(delay, str(world.clock.wall_ms() + delay))
        began = world.service.timer.floor(world.clock.wall_ms())
        await world.sleep_ms(4_000)
        await world.kill()
        world.configure(broker_role="SLAVE")
        await world.open(dequeue=False)
        # the checkpoint that it copied last is older than the copies in its log
        world.service.exchange.take_checkpoint(TimerCheckpoint(began, 0, 0, 1, DataVersion(5, 0, 5)))
        await world.sleep_ms(1_000)
        world.configure(broker_role="ASYNC_MASTER")
        world.store.update_config(world.settings.store)
        world.service.start()
        await world.sleep_ms(5_000)
        assert len(world.delivered()) == 3
        assert min(lateness(world)) >= 0
        await world.close()

    in_virtual_time(story)


async def _becomes_a_slave_that_takes_over(world: TimerWorld, told: bytes, filled_ms: int = 1_000) -> None:
    """Another broker of the group, which has its log and what it said of its timer, and nothing else.

    Args:
        filled_ms: for how long it fills its wheel before it takes over.
    """
    for name in ("/store/timerwheel", "/store/config/timercheck", "/store/config/timermetrics"):
        world.disk.delete(PurePath(name))
    world.disk.delete_tree(PurePath("/store/timerlog"))
    world.configure(broker_role="SLAVE")
    await world.open(dequeue=False)
    world.service.exchange.take_checkpoint(TimerCheckpoint.decode(told))
    if filled_ms:
        await world.sleep_ms(filled_ms)
    world.configure(broker_role="ASYNC_MASTER")
    world.store.update_config(world.settings.store)
    world.service.start()


@pytest.mark.parametrize("restarted", [False, True])
def test_what_a_master_could_not_deliver_the_slave_that_takes_over_delivers_once(restarted: bool) -> None:
    async def story(world: TimerWorld) -> None:
        await world.open()
        world.failing["Bad"] = PutMessageStatus.MESSAGE_ILLEGAL
        for topic in ("T", "Bad"):
            world.send("due", topic, TIMER_DELAY_MS="1000")
        await world.sleep_ms(4_000)
        assert (world.bodies(), world.bodies("Bad")) == (["due"], [])
        if restarted:
            await world.close()
            await world.open()
            await world.sleep_ms(1_500)
        told = world.service.exchange.checkpoint().encode_answer()
        await world.close()
        world.failing.clear()
        await _becomes_a_slave_that_takes_over(world, told)
        await world.sleep_ms(20_000)
        assert (world.bodies(), world.bodies("Bad")) == (["due"], ["due"])
        await world.close()

    in_virtual_time(story)


def test_a_slave_whose_wheel_is_not_filled_yet_delivers_nothing_that_its_master_delivered() -> None:
    async def story(world: TimerWorld) -> None:
        await world.open()
        world.send_in(1_000, "early")
        await world.sleep_ms(10_000)
        world.send_in(90_000, "late")
        await world.sleep_ms(25_000)
        assert world.bodies() == ["early"]
        told = world.service.exchange.checkpoint().encode_answer()
        await world.close()
        await _becomes_a_slave_that_takes_over(world, told, filled_ms=0)
        await world.sleep_ms(80_000)
        assert world.bodies() == ["early", "late"]
        await world.close()

    in_virtual_time(story)


def test_a_slave_puts_a_far_message_into_the_slot_that_its_master_put_it_into() -> None:
    """Else who takes over between the two slots would lose it, or put it into the topic twice."""

    def slots(world: TimerWorld) -> list[int]:
        return [unit.due_ms for unit in world.service.timer.log.units(0) if unit.rolls]

    async def story(world: TimerWorld) -> None:
        await world.open()
        world.send_in(200_000, "far")
        await world.sleep_ms(5_000)
        of_master, told = slots(world), world.service.exchange.checkpoint().encode_answer()
        await world.close()
        await _becomes_a_slave_that_takes_over(world, told)
        assert slots(world) == of_master != []
        await world.close()

    in_virtual_time(story, timer_roll_window_slot=60)


def test_a_slave_does_not_take_for_delivered_what_its_log_does_not_have() -> None:
    async def story(world: TimerWorld) -> None:
        await world.open()
        world.send_in(1_000, "due")
        await world.sleep_ms(500)
        world.configure(broker_role="SLAVE")
        world.service.stop()  # this log ends here; the master delivered and was lost before it could send that
        await world.sleep_ms(5_000)
        now = world.service.timer.write_time_ms
        end = world.store.max_physical_offset + 1
        told = TimerCheckpoint(now, 0, 1, 1, DataVersion(5, 0, 5), moved=(), log_end=end)
        world.service.exchange.take_checkpoint(TimerCheckpoint.decode(told.encode_answer()))
        await world.sleep_ms(3_000)
        world.configure(broker_role="ASYNC_MASTER")
        world.service.start()
        await world.sleep_ms(3_000)
        assert world.bodies() == ["due"]
        await world.close()

    in_virtual_time(story)


@pytest.mark.parametrize("filled_ms", [500, 2_500])
def test_a_master_that_comes_back_delivers_what_the_slave_that_acted_had_not_copied(filled_ms: int) -> None:
    """Its wheel has those messages in slots that the slave has passed, be they found at the start or known to the
    checkpoint."""

    async def story(world: TimerWorld) -> None:
        await world.open()
        for body in ("copied", "not copied"):
            world.send_in(5_000, body)
        await world.sleep_ms(filled_ms)
        await world.kill()
        await world.sleep_ms(10_000)
        await world.open(dequeue=False)
        read_ms, log_end = world.service.timer.write_time_ms - 1_000, world.store.max_physical_offset
        # the slave had the first one only, and has given it to another group
        told = TimerCheckpoint(read_ms, 0, 1, 1, DataVersion(5, 0, 5), moved=(), log_end=log_end, dedupe_position=0)
        world.service.exchange.take_checkpoint(TimerCheckpoint.decode(told.encode_answer()))
        world.service.start()
        await world.sleep_ms(3_000)
        assert world.bodies() == ["not copied"]
        await world.close()

    in_virtual_time(story)
