"""Stories of messages that wait while clocks jump and brokers die, and every seed that ever failed."""

import asyncio
import contextlib
import errno
from functools import partial
from typing import Any

import pytest

from maxq.protocol.message import message_const as const
from maxq.store.append.message_ext_broker_inner import MessageExtBrokerInner
from maxq.store.store_results import PutMessageResult
from maxq.testing.sim_clock import SimClock
from maxq.testing.sim_disk import PowerLoss, SimDisk
from maxq.testing.sim_rng import SimRng
from maxq.testing.simulation import SimWorld, run_simulation
from tests.simulation.told import always, cases, check, marks
from tests.simulation.waiting.delay_story import DelayNode
from tests.unit.broker.timer.timer_world import MEMBER, TOPIC, small_wheel

pytestmark = pytest.mark.usefixtures("quiet")

SEEDS = range(5)
POWER_SEEDS = range(2)


@pytest.mark.parametrize("seed", cases("delay", (0, 1), SEEDS, newest=1))
def test_what_waits_comes_once_and_not_early(seed: int) -> None:
    check(seed, "delay")


@pytest.mark.parametrize("seed", cases("delay-power", (0,), POWER_SEEDS, newest=0))
def test_what_waits_comes_once_whatever_the_power_takes(seed: int) -> None:
    check(seed, "delay-power")


def test_a_delivered_message_that_was_lost_comes_again_though_later_ones_are_there() -> None:
    clock = SimClock()
    disk = SimDisk(SimRng(1), clock)
    copies: list[int] = []
    came: list[bytes] = []

    async def delivers(world: SimWorld) -> None:
        node = DelayNode(world, world.disk, message_delay_level="1s")
        await node.open()
        for number in range(4):
            message = MessageExtBrokerInner(
                TOPIC, 0, b"%d" % number * 50,
                {const.PROPERTY_DELAY_TIME_LEVEL: "1", const.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX: f"K{number}"},
                born_timestamp=clock.wall_ms(), born_host=bytes(8),
            )  # fmt: skip
            result = node.put(message)
            assert result is not None and result.ok
        await node.sleep_ms(2_000)
        copies.extend(message.physical_offset for message in node.delivered())
        world.disk.kill_process()

    async def goes_on(world: SimWorld) -> None:
        node = DelayNode(world, world.disk, message_delay_level="1s")
        await node.open()
        await node.sleep_ms(2_000)
        came.extend(message.body[:1] for message in node.delivered())
        await node.close()

    with small_wheel(), pytest.raises(PowerLoss):
        run_simulation(delivers, seed=1, disk=disk, clock=clock)
    assert len(copies) == 4
    disk = disk.boot()
    disk.flip_bit(f"/store/commitlog/{0:020d}", copies[1] + 100, 0)  # in its body: it is no record any more
    for _ in range(2):  # the second start finds what the first one delivered
        came.clear()
        with small_wheel():
            run_simulation(goes_on, seed=2, disk=disk, clock=clock)
        disk = disk.boot()
        assert sorted(came) == [b"0", b"1", b"2", b"3"]


@pytest.mark.parametrize("ending", ["shutdown", "kill"])
def test_a_message_that_a_failure_of_ours_keeps_back_delays_no_other_and_comes_once_when_that_is_over(
    ending: str,
) -> None:
    clock = SimClock()
    disk = SimDisk(SimRng(1), clock, kill_keeps_cache=True)
    came: list[list[bytes]] = []

    def fails(node: DelayNode) -> None:
        plainly, put = node.store.fast_path_writer.append_copy, node.store.put_message

        def append_copy(record: memoryview, *others: Any) -> int:
            if b"bad" in bytes(record):
                raise RuntimeError("a bug of ours")
            return plainly(record, *others)

        def put_message(message: MessageExtBrokerInner) -> PutMessageResult:
            if message.topic == TOPIC and message.body == b"bad":
                raise RuntimeError("a bug of ours")
            return put(message)

        node.store.fast_path_writer.append_copy = append_copy  # type: ignore[method-assign]
        node.store.put_message = put_message  # type: ignore[method-assign]

    async def life(world: SimWorld, bodies: tuple[bytes, ...], *, is_mended: bool) -> None:
        node = DelayNode(world, world.disk, message_delay_level="1s", flush_disk_type="SYNC_FLUSH")
        await node.open()
        if not is_mended:
            fails(node)
        for body in bodies:
            properties = {const.PROPERTY_DELAY_TIME_LEVEL: "1", const.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX: "K"}
            message = MessageExtBrokerInner(
                TOPIC, 0, body, properties, born_timestamp=clock.wall_ms(), born_host=bytes(8)
            )
            result = node.put(message)
            assert result is not None and result.ok
        await node.sleep_ms(75_000)
        came.append([message.body for message in node.delivered()])
        if ending == "shutdown":
            await node.close()
        else:
            world.disk.kill_process()
            raise PowerLoss

    with small_wheel():
        for bodies, is_mended in (((b"1", b"bad", b"2"), False), ((b"3",), False), ((b"4",), True), ((b"5",), True)):
            with contextlib.suppress(PowerLoss):
                run_simulation(partial(life, bodies=bodies, is_mended=is_mended), seed=1, disk=disk, clock=clock)
            disk = disk.boot()
    assert came[:2] == [[b"1", b"2"], [b"1", b"2", b"3"]]
    assert sorted(came[2]) == [b"1", b"2", b"3", b"4", b"bad"]
    assert sorted(came[3]) == [b"1", b"2", b"3", b"4", b"5", b"bad"]


def test_a_run_waits_for_all_before_it_that_still_end() -> None:
    """The role changes twice while the disk takes its time with what the first run leaves."""

    async def main(world: SimWorld) -> None:
        node = DelayNode(world, world.disk, message_delay_level="1s")
        await node.open()
        await node.sleep_ms(500)
        may_write, persist = asyncio.Event(), node.schedule._persist

        async def slowly() -> None:
            await may_write.wait()
            await persist()

        node.schedule._persist = slowly  # type: ignore[method-assign]
        for _ in range(2):
            node.schedule.stop()
            node.schedule.start()
            await node.sleep_ms(100)
        may_write.set()
        await node.sleep_ms(1_000)
        message = MessageExtBrokerInner(
            TOPIC, 0, b"in time",
            {const.PROPERTY_DELAY_TIME_LEVEL: "1", const.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX: "K"},
            born_timestamp=world.clock.wall_ms(), born_host=bytes(8),
        )  # fmt: skip
        result = node.put(message)
        assert result is not None and result.ok
        await node.sleep_ms(1_500)
        assert node.bodies() == ["in time"]
        await node.close()

    with small_wheel():
        run_simulation(main, seed=1)


@pytest.mark.slow
def test_the_clock_did_everything() -> None:
    wanted = {
        "clock jumps ahead in operation", "clock jumps back in operation", "clock stands still in operation",
        "clock jumps back while nobody was there", "ending: kill", "ending: shutdown", "ending: operation",
        "in time", "level", "recalled", "rolled",
    }  # fmt: skip
    assert wanted - set(marks(always("delay", SEEDS), "delay")) == set()


def test_a_member_that_leads_before_its_queues_have_what_is_committed_delivers_nothing_twice() -> None:
    async def main(world: SimWorld) -> None:
        node = DelayNode(world, world.disk, message_delay_level="1s 1h", broker_role="SLAVE",
                         flush_interval_consume_queue=60_000, **MEMBER)  # fmt: skip
        await node.open(dequeue=False)
        node.lead(1)
        for number in range(4):
            message = MessageExtBrokerInner(
                TOPIC, 0, b"%d" % number,
                {const.PROPERTY_DELAY_TIME_LEVEL: "1", const.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX: f"K{number}"},
                born_timestamp=world.clock.wall_ms(), born_host=bytes(8),
            )  # fmt: skip
            result = node.put(message)
            assert result is not None and result.ok
        await node.sleep_ms(1_100)
        assert node.bodies() == ["0", "1", "2", "3"]
        await node.schedule.shutdown()
        await node.kill()

        node.configure(broker_role="SLAVE")
        await node.open(dequeue=False)
        await node.schedule.shutdown()  # a member begins with it when it leads
        world.disk.faults = lambda kind, path: errno.ENOSPC if "consumequeue/SCHEDULE_TOPIC" in path else 0
        node.lead(2)
        node.schedule.start()
        await node.sleep_ms(2_000)
        assert node.store.max_offset("SCHEDULE_TOPIC_XXXX", 0) == 0
        world.disk.faults = lambda kind, path: 0
        await node.sleep_ms(30_000)
        assert node.bodies() == ["0", "1", "2", "3"]
        await node.close()

    with small_wheel():
        run_simulation(main, seed=1)
