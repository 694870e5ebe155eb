"""Consumer groups of the shipped client on the shipped broker, in virtual time, on a network that cuts and resets.

Members join, leave and die; links break. What must hold whatever happens: every acknowledged message reaches the group
at least once, no commit passes a message that nobody consumed, and an orderly group sees each queue in order.
"""

import asyncio
from collections import defaultdict
from pathlib import Path, PurePath

import pytest

from maxq.client.admin.admin import Admin
from maxq.client.client_config import ClientConfig, ClientEnvironment, ProducerConfig, PushConsumerConfig
from maxq.client.consumer.push_consumer import PushConsumer
from maxq.client.producer.producer import Producer
from maxq.client.results.consume_result import ConsumeContext, ConsumeResult
from maxq.errors import MaxQError
from maxq.protocol.enums import ConsumeFromWhere
from maxq.protocol.message.message import Message, MessageExt
from maxq.protocol.message.message_queue import MessageQueue
from maxq.standalone import StandaloneServer
from maxq.testing.sim_network import LinkSettings
from maxq.testing.simulation import SimWorld, run_simulation
from tests.short_form import seeds

pytestmark = pytest.mark.usefixtures("quiet")

BROKER, PRODUCER = "10.0.0.1", "10.0.0.2"
NAMESRV = f"{BROKER}:9876"
TOPIC, GROUP, QUEUES = "Simulated", "G", 4
SETTINGS = {"mappedFileSizeCommitLog": "1048576", "maxHashSlotNum": "1000", "maxIndexNum": "4000"}


class Group:
    """What a group has seen, whoever of its members it was."""

    def __init__(self, world: SimWorld, *, orderly: bool) -> None:
        self.world = world
        self.orderly = orderly
        self.bodies: set[bytes] = set()
        self.consumed: dict[int, set[int]] = defaultdict(set)  # queue id → offsets, those sent back included
        self.first_seen: dict[int, list[int]] = defaultdict(list)  # queue id → offsets in the order of first delivery
        self.members: list[PushConsumer] = []
        self._count = 0

    async def join(self) -> PushConsumer:
        """One more member, on a host of its own."""
        self._count += 1
        host = f"10.0.1.{self._count}"
        config = PushConsumerConfig(
            namesrv_addr=NAMESRV, consumer_group=GROUP, consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
        )
        environment = ClientEnvironment(self.world.clock, self.world.rng, self.world.disk, host, 1, PurePath("/home"))
        with self.world.network.on_host(host):
            member = PushConsumer(config, environment, self._listen, orderly=self.orderly)
            member.subscribe(TOPIC)
            await asyncio.ensure_future(member.start())
        self.members.append(member)
        return member

    def leave(self, member: PushConsumer) -> "asyncio.Future[None]":
        self.members.remove(member)
        return asyncio.ensure_future(member.shutdown())

    def die(self, member: PushConsumer) -> None:
        """Its host goes away without a word."""
        self.members.remove(member)
        host = member.client_id.split("@")[0]
        self.world.network.crash_host(host)

    async def _listen(self, messages: list[MessageExt], context: ConsumeContext) -> ConsumeResult | None:
        rng = self.world.rng
        await asyncio.sleep(rng.uniform(0, 0.02))
        if rng.chance(0.02):
            if self.orderly:
                return ConsumeResult.SUSPEND_CURRENT_QUEUE_A_MOMENT
            for message in messages:  # they come again from the retry topic
                if not message.reconsume_times:
                    self.consumed[message.queue_id].add(message.queue_offset)
            return ConsumeResult.RECONSUME_LATER
        for message in messages:
            self.bodies.add(message.body)
            if message.reconsume_times and not self.orderly:
                continue  # its queue is the retry topic's
            if message.queue_offset not in self.consumed[message.queue_id]:
                self.consumed[message.queue_id].add(message.queue_offset)
                self.first_seen[message.queue_id].append(message.queue_offset)
        return None


async def produce(world: SimWorld, number: int, acknowledged: set[bytes], stop: asyncio.Event) -> None:
    config = ProducerConfig(namesrv_addr=NAMESRV, producer_group=f"P{number}", default_topic_queue_nums=QUEUES)
    environment = ClientEnvironment(world.clock, world.rng, world.disk, PRODUCER, number, PurePath("/home"))
    async with Producer(config, environment) as producer:
        for n in range(10_000):
            body = f"{number}-{n}".encode()
            try:
                await producer.send(Message(TOPIC, body))
                acknowledged.add(body)
            except MaxQError:
                await asyncio.sleep(0.1)
            await asyncio.sleep(world.rng.uniform(0, 0.4))
            if stop.is_set():
                return


async def upheaval(world: SimWorld, group: Group, seconds: float) -> None:
    """Members come and go, links break and heal."""
    rng = world.rng.fork("upheaval")
    end = world.loop.time() + seconds
    while world.loop.time() < end:
        await asyncio.sleep(rng.uniform(0.5, 5))
        what = rng.below(6)
        if what == 0 and len(group.members) < 5:
            await group.join()
        elif what == 1 and len(group.members) > 1:
            await group.leave(group.members[rng.below(len(group.members))])
        elif what == 2 and len(group.members) > 1:
            group.die(group.members[rng.below(len(group.members))])
        elif what == 3:
            world.network.reset(BROKER)
        elif group.members:
            host = group.members[rng.below(len(group.members))].client_id.split("@")[0]
            world.network.partition(BROKER, host, both_ways=rng.chance(0.5))
            await asyncio.sleep(rng.uniform(0.1, 20))
            world.network.heal()


async def live(world: SimWorld, *, orderly: bool) -> tuple[Group, set[bytes], dict[MessageQueue, int]]:
    """One story; returns the group, what was acknowledged, and what is committed at the end."""
    world.network.default_link = LinkSettings(delay_ms=(0.1, 15), chunk_bytes=(1, 4000), whole=0.4, loss=0.005)
    server = StandaloneServer(
        Path("/store"), BROKER, 9876, 10911, SETTINGS, disk=world.disk, clock=world.clock, rng=world.rng
    )
    with world.network.on_host(BROKER):
        await server.start()
    group, acknowledged, stop = Group(world, orderly=orderly), set[bytes](), asyncio.Event()
    with world.network.on_host(PRODUCER):
        producers = [asyncio.ensure_future(produce(world, n, acknowledged, stop)) for n in range(2)]
    await asyncio.sleep(1)
    for _ in range(2):
        await group.join()
    await upheaval(world, group, 120)
    stop.set()
    await asyncio.gather(*producers)
    # Quiet at last. A dead member's queue locks expire after 60 s, its channel after 120 s.
    end = world.loop.time() + 400
    while not acknowledged <= group.bodies and world.loop.time() < end:  # noqa: ASYNC110 - virtual time costs nothing
        await asyncio.sleep(1)
    await asyncio.gather(*(group.leave(member) for member in list(group.members)))
    environment = ClientEnvironment(world.clock, world.rng, world.disk, PRODUCER, 9, PurePath("/home"))
    with world.network.on_host(PRODUCER):
        async with Admin(ClientConfig(namesrv_addr=NAMESRV), environment) as admin:
            # A reset may have cost the broker its registration, which comes again within 30 s.
            while TOPIC not in await admin.topics.names():  # noqa: ASYNC110
                await asyncio.sleep(1)
            queues = await admin.offsets.queues(TOPIC)
            committed = {queue: await admin.offsets.committed(GROUP, queue) or 0 for queue in queues}
    with world.network.on_host(BROKER):
        await server.shutdown()
    return group, acknowledged, committed


def check(group: Group, acknowledged: set[bytes], committed: dict[MessageQueue, int]) -> None:
    assert len(acknowledged) > 100
    missing = acknowledged - group.bodies
    assert not missing, f"{len(missing)} acknowledged messages never reached the group: {sorted(missing)[:5]}"
    for queue, offset in committed.items():
        skipped = set(range(offset)) - group.consumed[queue.queue_id]
        assert not skipped, f"{queue} is committed up to {offset}, but nobody consumed {sorted(skipped)[:5]}"


@pytest.mark.parametrize("seed", seeds([0], range(3)))
def test_a_group_gets_every_acknowledged_message_and_commits_nothing_it_did_not_consume(seed: int) -> None:
    check(*run_simulation(lambda world: live(world, orderly=False), seed=seed))


@pytest.mark.parametrize("seed", seeds([0], range(2)))
def test_an_orderly_group_sees_every_queue_in_order_whoever_holds_it(seed: int) -> None:
    group, acknowledged, committed = run_simulation(lambda world: live(world, orderly=True), seed=seed)
    check(group, acknowledged, committed)
    for queue_id, offsets in group.first_seen.items():
        assert offsets == sorted(offsets), f"queue {queue_id} was first seen out of order: {offsets}"
