"""Programs of users in virtual time: what maxq.testing.simulate lets happen to them, and what a failure says."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from maxq.api import ConsumeFromWhere, Message, Producer, async_producer, async_push_consumer
from maxq.errors import MaxQError
from maxq.machine import simulated_environment
from maxq.testing import Simulation, simulate
from maxq.testing.simulated_cluster import KINDS
from tests.short_form import long_form

pytestmark = pytest.mark.usefixtures("quiet")

TOPIC, GROUP = "Orders", "billing"


class Program:
    """A consumer, of which any number may run."""

    def __init__(self, sim: Simulation, seconds: float = 0.0) -> None:
        self.namesrv_address = sim.namesrv_address
        self.seconds = seconds
        self.billed: list[bytes] = []
        self.by: set[str] = set()
        self.ended = 0
        self.stored_ms: list[int] = []

    async def run(self) -> None:
        async def listener(messages: list[Any], context: Any) -> None:
            await asyncio.sleep(self.seconds)
            self.by.add(consumer.client_id)
            self.billed.extend(message.body for message in messages)
            self.stored_ms.extend(message.store_timestamp for message in messages)

        consumer = async_push_consumer(
            GROUP, self.namesrv_address, listener, consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
        )
        consumer.subscribe(TOPIC)
        async with consumer:
            try:
                await asyncio.Event().wait()
            finally:
                self.ended += 1

    def has(self, *bodies: bytes) -> Callable[[], bool]:
        return lambda: set(bodies) <= set(self.billed)


async def begin(sim: Simulation, seconds: float = 0.0, members: int = 1) -> Program:
    await sim.create_topic(TOPIC)
    program = Program(sim, seconds)
    for _ in range(members):
        sim.add_member(program.run)
    return program


async def send(sim: Simulation, *bodies: bytes) -> None:
    async with async_producer("shop", sim.namesrv_address) as producer:
        for body in bodies:
            await producer.send(Message(TOPIC, body))


def bodies(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


def test_a_killed_member_is_given_again_what_it_had_not_finished() -> None:
    async def story(sim: Simulation) -> tuple[int, list[bytes]]:
        program = await begin(sim, seconds=5)
        await send(sim, b"one")
        await asyncio.sleep(3)
        (member,) = sim.members
        member.kill()
        await asyncio.sleep(30)
        assert program.billed == [] and not member.is_up
        await member.start()
        await sim.until(program.has(b"one"))
        return program.ended, program.billed

    assert simulate(story, seed=1) == (0, [b"one"])


def test_a_stopped_member_finishes_and_commits() -> None:
    async def story(sim: Simulation) -> tuple[int, list[bytes]]:
        program = await begin(sim)
        await send(sim, *bodies(5))
        await sim.until(program.has(*bodies(5)))
        await sim.members[0].restart()
        await asyncio.sleep(60)
        return program.ended, sorted(program.billed)

    assert simulate(story, seed=1) == (1, bodies(5))


def test_more_members_share_the_queues() -> None:
    async def story(sim: Simulation) -> int:
        program = await begin(sim)
        await asyncio.sleep(30)
        sim.add_member(program.run)
        await asyncio.sleep(30)
        await send(sim, *bodies(20))
        await sim.until(program.has(*bodies(20)))
        return len(program.by)

    assert simulate(story, seed=2) == 2


def test_messages_are_delivered_again() -> None:
    async def story(sim: Simulation) -> tuple[list[bytes], list[bytes]]:
        program = await begin(sim)
        await send(sim, b"old")
        await asyncio.sleep(100)
        await send(sim, b"new")
        await sim.until(program.has(b"old", b"new"))
        await asyncio.sleep(30)
        await sim.deliver_again(GROUP, TOPIC, seconds=60)
        await asyncio.sleep(30)
        some = list(program.billed)
        await sim.deliver_again(GROUP, TOPIC)
        await asyncio.sleep(30)
        return some, program.billed

    some, everything = simulate(story, seed=3)
    assert sorted(some) == [b"new", b"new", b"old"]
    assert sorted(everything) == [b"new", b"new", b"new", b"old", b"old"]


def test_another_broker_leads_when_the_master_is_killed() -> None:
    async def story(sim: Simulation) -> None:
        program = await begin(sim)
        await send(sim, b"one")
        old = sim.master
        old.kill()
        new = await sim.wait_for_master()
        assert new is not old and not old.is_up
        await send(sim, b"two")
        await sim.until(program.has(b"one", b"two"))
        await old.start()

    simulate(story, seed=4, brokers=3)


def test_a_master_hands_over() -> None:
    async def story(sim: Simulation) -> None:
        program = await begin(sim)
        old = sim.master
        new = await sim.hand_over()
        assert new is not old and new is sim.master and old.is_up
        await send(sim, b"one")
        await sim.until(program.has(b"one"))

    simulate(story, seed=5, brokers=3)


def test_a_slave_serves_readers_while_the_master_is_down() -> None:
    async def story(sim: Simulation) -> None:
        await sim.create_topic(TOPIC)
        await send(sim, b"one")
        await asyncio.sleep(10)
        sim.master.kill()
        program = Program(sim)
        sim.add_member(program.run)
        await sim.until(program.has(b"one"))
        with pytest.raises(AssertionError, match="no broker is the master now"):
            _ = sim.master

    simulate(story, seed=6, brokers=2)


def test_a_broker_alone_comes_back_with_what_it_had() -> None:
    async def story(sim: Simulation) -> None:
        program = await begin(sim)
        await send(sim, b"one")
        await sim.until(program.has(b"one"))
        await sim.master.restart()
        await send(sim, b"two")
        await sim.until(program.has(b"two"))
        assert sorted(program.billed) == [b"one", b"two"]

    simulate(story, seed=7)


def test_clocks_jump_and_machines_stand_still() -> None:
    async def story(sim: Simulation) -> int:
        program = await begin(sim)
        sim.master.jump_clock(3600)
        await send(sim, b"one")
        await sim.until(program.has(b"one"))
        sim.jump_clocks(-7200)
        await send(sim, b"two")
        await sim.until(program.has(b"two"))
        await sim.members[0].pause(200)
        await sim.members[0].cut_off(200)
        await send(sim, b"three")
        await sim.until(program.has(b"three"))
        return program.stored_ms[1] - program.stored_ms[0]

    assert -7200_000 < simulate(story, seed=8) < -7100_000


def test_one_seed_tells_one_story() -> None:
    async def story(sim: Simulation) -> tuple[list[str], list[bytes]]:
        program = await begin(sim, members=2)
        await send(sim, *bodies(10))
        await sim.trouble(30)
        await sim.until(program.has(*bodies(10)))
        return sim.history, program.billed

    told = [simulate(story, seed=seed, brokers=3) for seed in (9, 9, 10)]
    assert told[0] == told[1] != told[2]


@pytest.mark.parametrize("brokers", [2, *long_form([1, 3])])
def test_trouble_of_every_kind_ends(brokers: int) -> None:
    async def story(sim: Simulation) -> None:
        program = await begin(sim, members=2)
        await send(sim, *bodies(10))
        for kind in KINDS:
            await sim.trouble(12, kinds=[kind])
        assert all(one.is_up for one in (*sim.brokers, *sim.members))
        await send(sim, b"last")
        await sim.until(program.has(*bodies(10), b"last"))

    simulate(story, seed=11, brokers=brokers)


def test_time_passes_quickly_and_ends() -> None:
    async def story(sim: Simulation) -> None:
        await asyncio.sleep(10_000)

    with pytest.raises(Exception, match="virtual time limit of 600 s reached"):
        simulate(story, seed=12, time_limit_s=600)


def test_what_is_wrong_with_a_story_is_said() -> None:
    async def story(sim: Simulation) -> None:
        await sim.trouble(5, kinds=["kill brokers"])

    with pytest.raises(TypeError, match="a story is a coroutine function"):
        simulate(lambda sim: None, seed=1)  # type: ignore[arg-type, return-value]
    with pytest.raises(ValueError, match="there is no trouble 'kill brokers'; there is kill broker"):
        simulate(story, seed=1)
    with (
        pytest.warns(UserWarning, match=r"unknown setting messageDelayLevels; did you mean messageDelayLevel\?"),
        pytest.raises(ValueError),
    ):
        simulate(story, seed=1, settings={"messageDelayLevels": "1s"})


def test_a_failure_tells_its_seed_and_what_happened() -> None:
    async def story(sim: Simulation) -> None:
        await begin(sim)
        sim.members[0].kill()
        sim.log("a remark of the story's own")
        await sim.until(lambda: False, seconds=5, what="a miracle")

    with pytest.raises(AssertionError, match="still not so after 5 s of virtual time: a miracle") as failure:
        simulate(story, seed=4711)
    (note,) = failure.value.__notes__
    assert note.startswith("simulation with seed 4711:\n")
    assert "member 1 is killed" in note and "a remark of the story's own" in note


def ends_by(error: BaseException) -> Callable[[Simulation], Coroutine[Any, Any, None]]:
    """A story of a member that runs for 3 s."""

    async def member() -> None:
        await asyncio.sleep(3)
        raise error

    async def story(sim: Simulation) -> None:
        sim.add_member(member, name="the shop")
        await asyncio.sleep(1000)
        assert not sim.members[0].is_up

    return story


def test_an_error_that_leaves_a_member_is_the_failure() -> None:
    with pytest.raises(ZeroDivisionError) as failure:
        simulate(ends_by(ZeroDivisionError("of the shop")), seed=13)
    assert "the shop ended by ZeroDivisionError" in failure.value.__notes__[0]
    with pytest.raises(pytest.fail.Exception, match="of pytest"):
        simulate(ends_by(pytest.fail.Exception("of pytest")), seed=13)
    with pytest.raises(AssertionError, match=r"the shop ended by sys\.exit\(3\)"):
        simulate(ends_by(SystemExit(3)), seed=13)


def test_a_member_may_end_in_order() -> None:
    simulate(ends_by(SystemExit(0)), seed=14)


def test_blocking_clients_and_loops_are_refused_with_the_reason() -> None:
    async def story(sim: Simulation) -> None:
        with Producer("shop", sim.namesrv_address):
            pass

    with pytest.raises(MaxQError, match="use the asynchronous ones"):
        simulate(story, seed=15)

    async def nested() -> None:
        simulate(story, seed=15)

    with pytest.raises(RuntimeError, match="not in a coroutine"):
        asyncio.run(nested())
    assert simulated_environment.get() is None


def test_wrong_arguments_are_named() -> None:
    async def story(sim: Simulation) -> None:
        await sim.trouble(10, kinds=["kill broker", "flood"])

    with pytest.raises(ValueError, match="brokers=4"):
        simulate(story, seed=16, brokers=4)
    with pytest.raises(ValueError, match="there is no trouble 'flood'; there is kill broker, "):
        simulate(story, seed=16)

    async def hand_over(sim: Simulation) -> None:
        await sim.hand_over()

    with pytest.raises(AssertionError, match="brokers=3"):
        simulate(hand_over, seed=16, brokers=2)


def test_settings_are_the_brokers() -> None:
    async def story(sim: Simulation) -> None:
        await send(sim, b"one")

    simulate(story, seed=17)
    with pytest.raises(MaxQError):
        simulate(story, seed=17, settings={"autoCreateTopicEnable": "false"})
