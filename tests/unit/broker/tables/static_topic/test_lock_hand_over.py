"""Locks of global queues that move: one client consumes a queue in order, whatever broker leads it."""

import asyncio
import inspect
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import cast

import pytest

from maxq.broker.tables.client.rebalance_lock_manager import RebalanceLockManager
from maxq.broker.tables.static_topic.lock_hand_over import LockHandOver
from maxq.broker.tables.static_topic.other_brokers import OtherBrokers
from maxq.broker.tables.static_topic.topic_queue_mapping_manager import TopicQueueMappingManager
from maxq.codes import RequestCode, ResponseCode
from maxq.errors import RequestRefusedError
from maxq.protocol.body.offsets import LockBatchRequestBody, LockBatchResponseBody
from maxq.protocol.body.static_topic import LogicQueueMappingItem, TopicQueueMappingDetail
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.protocol.message.message_queue import MessageQueue
from maxq.remoting.connection import Connection, Processor
from maxq.remoting.server import RemotingServer
from maxq.testing.sim_clock import SimClock
from maxq.testing.sim_disk import SimDisk
from maxq.testing.sim_rng import SimRng
from maxq.testing.simulation import SimWorld, run_simulation
from tests.unit.broker.broker_world import FakeConnection, connection

QUEUE = MessageQueue("T", "__syslo__global__", 0)
ORDINARY = MessageQueue("Plain", "a", 0)
STAYS, MOVED = "a", "a b"


class Broker:
    """The locks of one broker."""

    def __init__(self, name: str, brokers: "Brokers") -> None:
        self.name, self.brokers = name, brokers
        clock = brokers.clock
        self.mappings = TopicQueueMappingManager(
            SimDisk(SimRng(1), clock), PurePosixPath("mappings.json"), broker_name=name, clock=clock
        )
        self.locks = RebalanceLockManager(clock=clock)
        self.processors: dict[int, Processor] = {}
        LockHandOver(self.mappings, cast(OtherBrokers, brokers), self.locks).place(cast(RemotingServer, self))

    def processor(self, code: int) -> Processor:
        def process(connection: Connection, request: RemotingCommand) -> RemotingCommand:
            body = LockBatchRequestBody.decode(request.body_bytes)
            group, queues, client = body.consumer_group, body.mq_set, body.client_id
            if code == RequestCode.UNLOCK_BATCH_MQ:
                self.locks.unlock_batch(group, queues, client)
                return request.reply()
            locked = self.locks.try_lock_batch(group, queues, client)
            return request.reply(body=LockBatchResponseBody(sorted(locked)).encode())

        return process

    def register(self, code: int, processor: Processor) -> None:
        self.processors[int(code)] = processor

    async def process(self, code: int, body: bytes | None, ext: Mapping[str, str]) -> RemotingCommand:
        request = RemotingCommand(code, dict(ext), body)
        answer = self.processors[int(code)](connection(FakeConnection()), request)
        return cast(RemotingCommand, await answer if inspect.isawaitable(answer) else answer)

    async def lock(self, client: str, *queues: MessageQueue) -> list[MessageQueue]:
        """What the client owns then."""
        body = LockBatchRequestBody("G", client, mq_set=list(queues or (QUEUE,))).encode()
        answer = await self.process(RequestCode.LOCK_BATCH_MQ, body, {})
        return LockBatchResponseBody.decode(answer.body_bytes).lock_ok_mq_set

    async def unlock(self, client: str) -> None:
        body = LockBatchRequestBody("G", client, mq_set=[QUEUE]).encode()
        await self.process(RequestCode.UNLOCK_BATCH_MQ, body, {})


class Brokers:
    """Brokers a, b and c, of which `away` cannot be asked, and `slow` answer after three seconds. They answer who
    unlocks when `unlocked` is set."""

    def __init__(self) -> None:
        self.clock = SimClock()
        self.away: set[str] = set()
        self.slow: set[str] = set()
        self.asked = 0
        self.unlocked = asyncio.Event()
        self.unlocked.set()
        self.a, self.b, self.c = (Broker(name, self) for name in "abc")

    def lead(self, chain: str) -> None:
        """Put the queue on each broker of the chain in turn."""
        items = [LogicQueueMappingItem(gen, 0, name, 10_000 * gen) for gen, name in enumerate(chain.split())]
        for broker in (self.a, self.b, self.c):
            detail = TopicQueueMappingDetail("T", "__global__", 1, broker.name, len(items), False, None, {0: items})
            broker.mappings.update(detail, force=False)

    async def ask(
        self,
        name: str,
        topic: str,
        code: int,
        ext: Mapping[str, str],
        body: bytes | None = None,
        until: float | None = None,
    ) -> RemotingCommand:
        self.asked += 1
        if name in self.slow:
            try:
                async with asyncio.timeout_at(until):
                    await asyncio.sleep(3)
            except TimeoutError:
                raise RequestRefusedError(ResponseCode.SYSTEM_ERROR, f"{name} did not answer") from None
        if name in self.away:
            raise RequestRefusedError(ResponseCode.SYSTEM_ERROR, f"{name} is away")
        unlocked = self.unlocked
        answer = await getattr(self, name).process(code, body, {**ext, "lo": "false"})
        if code == RequestCode.UNLOCK_BATCH_MQ:
            await unlocked.wait()
        return cast(RemotingCommand, answer)


@pytest.fixture
def brokers() -> Brokers:
    brokers = Brokers()
    brokers.lead(STAYS)
    return brokers


async def test_who_has_locked_a_queue_keeps_it_over_its_move(brokers: Brokers) -> None:
    assert await brokers.a.lock("old") == [QUEUE]
    brokers.lead(MOVED)
    assert await brokers.b.lock("new") == []
    assert await brokers.b.lock("old") == [QUEUE]
    assert await brokers.b.lock("new") == []
    await brokers.b.unlock("old")
    assert await brokers.b.lock("new") == [QUEUE]


async def test_who_has_not_heard_of_the_move_gets_no_more_time(brokers: Brokers) -> None:
    await brokers.a.lock("old")
    brokers.lead(MOVED)
    brokers.clock.advance_ms(40_000)
    assert await brokers.a.lock("old") == []
    assert await brokers.b.lock("new") == []
    brokers.clock.advance_ms(20_001)
    assert await brokers.b.lock("new") == [QUEUE]
    assert await brokers.a.lock("old") == []


async def test_a_queue_that_moves_on_while_its_lock_is_taken_over_has_one_holder(brokers: Brokers) -> None:
    brokers.lead(MOVED)
    passed, held_up = brokers.unlocked, asyncio.Event()
    brokers.unlocked = held_up
    at_b = asyncio.create_task(brokers.b.lock("new", QUEUE, ORDINARY))
    for _ in range(5):
        await asyncio.sleep(0)
    assert brokers.asked == 2, "to lock and to unlock"
    brokers.unlocked = passed
    brokers.lead("a b c")
    assert await brokers.c.lock("newer") == [QUEUE]
    held_up.set()
    assert await at_b == [ORDINARY]


async def test_who_ends_releases_what_it_has_locked_before_the_move(brokers: Brokers) -> None:
    await brokers.a.lock("old")
    brokers.lead(MOVED)
    await brokers.b.unlock("other")
    assert await brokers.b.lock("new") == []
    await brokers.b.unlock("old")
    assert await brokers.b.lock("new") == [QUEUE]


async def test_a_former_leader_is_asked_once_for_each_holder(brokers: Brokers) -> None:
    brokers.lead(MOVED)
    assert await brokers.b.lock("new") == [QUEUE]
    brokers.asked = 0
    assert await brokers.b.lock("new") == [QUEUE]
    assert await brokers.b.lock("other") == []
    await brokers.b.unlock("new")
    assert not brokers.asked


async def test_one_that_is_away_has_no_say(brokers: Brokers) -> None:
    await brokers.a.lock("old")
    brokers.lead(MOVED)
    brokers.away.add("a")
    assert await brokers.b.lock("new", QUEUE, ORDINARY) == [ORDINARY, QUEUE]


def test_one_that_does_not_answer_has_no_say_before_the_client_gives_up() -> None:
    """Java's clients wait one second for a lock."""

    async def story(world: SimWorld) -> float:
        brokers = Brokers()
        brokers.lead(MOVED)
        brokers.slow.add("a")
        begun = world.loop.time()
        assert await brokers.b.lock("new") == [QUEUE]
        return world.loop.time() - begun

    assert run_simulation(story, seed=1) == pytest.approx(0.7, abs=0.01)


async def test_other_queues_are_locked_as_ever(brokers: Brokers) -> None:
    await brokers.a.lock("old")
    brokers.lead(MOVED)
    assert await brokers.b.lock("new", QUEUE, ORDINARY) == [ORDINARY]
    assert await brokers.a.lock("new", QUEUE, ORDINARY) == [ORDINARY]
