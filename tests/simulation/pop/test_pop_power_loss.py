"""Pop consumption in virtual time, over a power loss: nothing is lost, nothing acknowledged comes back.

The shipped broker runs with SYNC_FLUSH on a simulated disk that keeps what was flushed and a torn part of the rest.
"""

import asyncio
from dataclasses import dataclass, field
from pathlib import PurePath

import pytest

from maxq.client.client_config import ClientEnvironment, ProducerConfig, SimpleConsumerConfig
from maxq.client.consumer.simple_consumer import SimpleConsumer
from maxq.client.producer.producer import Producer
from maxq.client.results.send_result import SendStatus
from maxq.errors import MaxQError
from maxq.protocol.enums import ConsumeFromWhere
from maxq.protocol.message.message import Message
from maxq.protocol.message.pop_extra_info import retry_topic_v1
from maxq.testing.sim_clock import SimClock
from maxq.testing.sim_disk import PowerLoss, SimDisk
from maxq.testing.sim_network import LinkSettings
from maxq.testing.sim_rng import SimRng
from maxq.testing.simulation import SimWorld, run_simulation
from tests.short_form import seeds
from tests.simulation.servers.test_broker_power_loss import BROKER, CLIENT, NAMESRV_PORT, new_server

TOPIC, GROUP = "Simulated", "Poppers"
INVISIBLE_MS = 8_000
SAFE_MS = 4_000


@dataclass
class Story:
    """What was promised, and what came."""

    sent: set[bytes] = field(default_factory=set)
    acknowledged: set[bytes] = field(default_factory=set)
    maybe: set[bytes] = field(default_factory=set)  # an ack was on its way
    received: set[bytes] = field(default_factory=set)
    came_back: set[bytes] = field(default_factory=set)

    async def send_for_ever(self, world: SimWorld) -> None:
        config = ProducerConfig(namesrv_addr=f"{BROKER}:{NAMESRV_PORT}", producer_group="PG")
        number = 0
        async with Producer(config, _environment(world)) as producer:
            while True:
                number += 1
                body = b"%d" % number
                try:
                    result = await producer.send(Message(TOPIC, body))
                except MaxQError:
                    await asyncio.sleep(0.1)
                    continue
                if result.send_status is SendStatus.SEND_OK:
                    self.sent.add(body)

    async def consume_for_ever(self, world: SimWorld, name: str) -> None:
        rng = world.rng.fork(name)
        config = SimpleConsumerConfig(
            namesrv_addr=f"{BROKER}:{NAMESRV_PORT}", consumer_group=GROUP, instance_name=name,
            consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        )  # fmt: skip
        consumer = SimpleConsumer(config, _environment(world))
        await consumer.subscribe(TOPIC)
        async with consumer:
            while True:
                try:
                    await self._consume(world, consumer, rng)
                except MaxQError:
                    await asyncio.sleep(0.2)

    async def _consume(self, world: SimWorld, consumer: SimpleConsumer, rng: SimRng) -> None:
        messages = await consumer.receive(rng.between(1, 8), INVISIBLE_MS, wait_ms=1_000)
        began_ms = world.clock.monotonic_ms()
        for message in messages:
            self.received.add(message.body)
            if message.body in self.acknowledged:
                self.came_back.add(message.body)
        kept = [message for message in messages if rng.chance(0.8)]
        if rng.chance(0.5):
            self.maybe |= {message.body for message in kept}
            await consumer.ack_all(kept)
            self._acked({message.body for message in kept}, world.clock.monotonic_ms() - began_ms)
            return
        for message in kept:
            self.maybe.add(message.body)
            await consumer.ack(message)
            self._acked({message.body}, world.clock.monotonic_ms() - began_ms)

    def _acked(self, bodies: set[bytes], after_ms: int) -> None:
        if after_ms < SAFE_MS:
            self.acknowledged |= bodies


def _environment(world: SimWorld) -> ClientEnvironment:
    return ClientEnvironment(world.clock, world.rng, world.disk, CLIENT, 1, PurePath("/home"))


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("seed", seeds([0], range(3)))
def test_acks_survive_a_power_loss_and_so_do_messages_that_nobody_acknowledged(seed: int) -> None:
    rng = SimRng(seed)
    clock = SimClock()
    disk = SimDisk(rng.fork("disk"), clock)
    story = Story()

    async def first_life(world: SimWorld) -> None:
        world.network.default_link = LinkSettings(delay_ms=(0.1, 20), chunk_bytes=(1, 3000), whole=0.3)
        with world.network.on_host(BROKER):
            await new_server(world).start()
        with world.network.on_host(CLIENT):
            tasks = [asyncio.ensure_future(story.send_for_ever(world))]
            tasks += [asyncio.ensure_future(story.consume_for_ever(world, name)) for name in ("a", "b")]
        world.disk.cut_power_after(rng.between(300, 900))
        done, _ = await asyncio.wait(tasks, timeout=60, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
        world.disk.cut_power()

    async def second_life(world: SimWorld) -> None:
        server = new_server(world)
        with world.network.on_host(BROKER):
            await server.start()
        with world.network.on_host(CLIENT):
            consumer = asyncio.ensure_future(story.consume_for_ever(world, "c"))
            async with asyncio.timeout(300):
                while not story.sent <= story.acknowledged | story.maybe:  # noqa: ASYNC110 - virtual time
                    await asyncio.sleep(0.5)
            await asyncio.sleep(INVISIBLE_MS / 1000 + 5)
            consumer.cancel()
            await asyncio.gather(consumer, return_exceptions=True)
        await server.shutdown()

    with pytest.raises(PowerLoss):
        run_simulation(first_life, seed=seed, disk=disk, clock=clock)
    assert len(story.acknowledged) > 10
    run_simulation(second_life, seed=seed + 1_000, disk=disk.boot(), clock=clock)
    assert story.came_back == set()
    assert story.sent <= story.received


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("is_handed_over", [True, False])
@pytest.mark.parametrize("is_noted", [True, False])
@pytest.mark.parametrize("is_changed", [True, False])
def test_with_asynchronous_flushes_a_message_that_was_made_durable_comes_again_after_a_power_loss(
    is_handed_over: bool, is_noted: bool, is_changed: bool
) -> None:
    """The copy that is made for a message nobody acknowledged may be lost with what is flushed later, and so may the
    record of its pop, and that of a change of its invisible time; the group's offset, and the check point that it was
    made for, count until then."""
    rng, clock = SimRng(1), SimClock()
    disk = SimDisk(rng.fork("disk"), clock, write_back=0.0)
    stays_ms = "500" if is_handed_over else "600000"
    later = {
        "flushDiskType": "ASYNC_FLUSH", "flushCommitLogLeastPages": "1000", "flushCommitLogThoroughInterval": "600000",
        "flushConsumerOffsetInterval": "500", "popCkStayBufferTime": stays_ms, "popCkStayBufferTimeOut": "500",
        "timerPrecisionMs": "100", "timerWheelEnable": str(is_handed_over).lower(),
        "flushDelayOffsetInterval": "600000",
    }  # fmt: skip
    bodies: list[bytes] = []

    async def receive(world: SimWorld, *, is_changed: bool = False) -> list[bytes]:
        config = SimpleConsumerConfig(
            namesrv_addr=f"{BROKER}:{NAMESRV_PORT}", consumer_group=GROUP,
            consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        )  # fmt: skip
        with world.network.on_host(CLIENT):
            consumer = SimpleConsumer(config, _environment(world))
            await consumer.subscribe(TOPIC)
            async with consumer, asyncio.timeout(120):
                while not (messages := await consumer.receive(8, INVISIBLE_MS, wait_ms=1_000)):
                    pass
                if is_changed:
                    await consumer.change_invisible_duration(messages[0], INVISIBLE_MS)
        return [message.body for message in messages]

    async def first_life(world: SimWorld) -> None:
        server = new_server(world, later)
        with world.network.on_host(BROKER):
            await server.start()
        with world.network.on_host(CLIENT):
            config = ProducerConfig(namesrv_addr=f"{BROKER}:{NAMESRV_PORT}", producer_group="PG")
            async with Producer(config, _environment(world)) as producer:
                await producer.send(Message(TOPIC, b"x"))
        assert server._broker is not None
        store = server._broker.store
        await store.flush()
        assert await receive(world, is_changed=is_changed) == [b"x"]
        await asyncio.sleep(2)
        if is_noted:
            await store.flush()
        async with asyncio.timeout(120):
            while store.max_offset(retry_topic_v1(TOPIC, GROUP), 0) <= 0:  # noqa: ASYNC110 - virtual time
                await asyncio.sleep(0.05)
        await asyncio.sleep(4)  # tables are written
        world.disk.cut_power()

    async def second_life(world: SimWorld) -> None:
        server = new_server(world, later)
        with world.network.on_host(BROKER):
            await server.start()
        bodies.extend(await receive(world))
        await server.shutdown()

    with pytest.raises(PowerLoss):
        run_simulation(first_life, seed=1, disk=disk, clock=clock)
    run_simulation(second_life, seed=2, disk=disk.boot(), clock=clock)
    assert bodies == [b"x"]
