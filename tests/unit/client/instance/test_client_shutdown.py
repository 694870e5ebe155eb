"""Starts and shutdowns that meet: each start is alone, each shutdown is completed, and none waits for itself."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from maxq.client.client_config import LitePullConsumerConfig, ProducerConfig, PushConsumerConfig, SimpleConsumerConfig
from maxq.client.consumer.lite_pull_consumer import LitePullConsumer
from maxq.client.consumer.push_consumer import PushConsumer
from maxq.client.consumer.simple_consumer import SimpleConsumer
from maxq.client.errors import NotRunningError
from maxq.client.producer.producer import Producer
from maxq.client.producer.transaction_producer import LocalTransactionState, TransactionProducer
from maxq.client.results.consume_result import ConsumeContext
from maxq.errors import ClientError
from maxq.protocol.enums import ConsumeFromWhere
from maxq.protocol.message.message import Message, MessageExt
from maxq.protocol.message.message_queue import MessageQueue
from tests.unit.client.mock_broker import NAMESRV_ADDR, MockCluster, simulate, until

FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
Q0 = MessageQueue("T", "broker-a", 0)

Client = PushConsumer | LitePullConsumer | SimpleConsumer | Producer


class Undecided:
    """A listener of transactions."""

    def execute_local_transaction(self, message: Message, arg: Any) -> LocalTransactionState:
        return LocalTransactionState.UNKNOW

    def check_local_transaction(self, message: MessageExt) -> LocalTransactionState:
        return LocalTransactionState.UNKNOW


def listen(messages: list[MessageExt], context: ConsumeContext) -> None:
    """Do nothing."""


async def make(kind: str, cluster: MockCluster, listener: Callable[..., Any] = listen, **settings: Any) -> Client:
    common: dict[str, Any] = {"namesrv_addr": NAMESRV_ADDR}
    producer = ProducerConfig(**common, producer_group="P")
    if kind == "producer":
        return Producer(producer, cluster.environment())
    if kind == "transactions":
        return TransactionProducer(producer, cluster.environment(), Undecided())
    common |= {"consumer_group": "G", "consume_from_where": FIRST, **settings}
    client: PushConsumer | LitePullConsumer | SimpleConsumer
    if kind in ("push", "orderly"):
        client = PushConsumer(PushConsumerConfig(**common), cluster.environment(), listener, orderly=kind == "orderly")
        client.subscribe("T")
        return client
    if kind == "lite":
        client = LitePullConsumer(LitePullConsumerConfig(**common), cluster.environment())
    else:
        client = SimpleConsumer(SimpleConsumerConfig(**common), cluster.environment())
    await client.subscribe("T")
    return client


async def start(cluster: MockCluster, count: int = 0, queues: int = 1) -> None:
    await cluster.start()
    cluster.route("T", queues=queues)
    cluster.route("%RETRY%G")
    for n in range(count):
        cluster.broker.put("T", b"%d" % n, n % queues)


KINDS = ("push", "orderly", "lite", "simple", "producer", "transactions")


@pytest.mark.parametrize("kind", KINDS)
def test_of_two_starts_at_the_same_time_one_is_refused_and_leaves_no_ghost(kind: str) -> None:
    async def story(cluster: MockCluster) -> None:
        await start(cluster)
        client = await make(kind, cluster)
        outcomes = await asyncio.gather(client.start(), client.start(), client.start(), return_exceptions=True)
        assert sorted(str(outcome) for outcome in outcomes)[0] == "None"
        assert [type(outcome) for outcome in outcomes].count(ClientError) == 2
        await asyncio.sleep(60)
        assert len(cluster.broker.members["G"]) <= 1
        await client.shutdown()
        await asyncio.sleep(1)
        assert not cluster.broker.members["G"]
        assert not cluster.broker.server.connections and not cluster.names.server.connections
        await client.start()
        await client.shutdown()

    simulate(story)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("when_ms", range(0, 12, 2))
def test_a_shutdown_during_a_start_leaves_nothing_behind(kind: str, when_ms: int) -> None:
    async def story(cluster: MockCluster) -> None:
        await start(cluster, 3)
        before = asyncio.all_tasks()
        client = await make(kind, cluster)
        starting = asyncio.create_task(client.start())
        await asyncio.sleep(when_ms / 1000)
        await client.shutdown()
        await asyncio.wait([starting])
        await asyncio.sleep(60)
        assert not cluster.broker.members["G"]
        assert not cluster.broker.server.connections and not cluster.names.server.connections
        left = [task for task in asyncio.all_tasks() - before if "maxq" in task.get_name()]
        assert not left

    simulate(story)


@pytest.mark.parametrize("kind", ["push", "orderly"])
@pytest.mark.parametrize("is_child", [False, True], ids=["the call", "a task of the call"])
def test_a_listener_may_shut_its_own_consumer_down(kind: str, is_child: bool) -> None:
    """The shutdown waits for the call that asks for it, so the call does not wait for the shutdown."""

    async def story(cluster: MockCluster) -> None:
        await start(cluster, 5)
        bodies: list[bytes] = []

        async def last(messages: list[MessageExt], context: ConsumeContext) -> None:
            bodies.extend(message.body for message in messages)
            if len(bodies) == 3:
                await (asyncio.gather(consumer.shutdown()) if is_child else consumer.shutdown())

        consumer = await make(kind, cluster, last, consume_thread_nums=1)
        assert isinstance(consumer, PushConsumer)
        await consumer.start()
        await until(lambda: len(bodies) == 3 and not cluster.broker.members["G"], "the end", 5)
        await consumer.shutdown()
        assert bodies == [b"0", b"1", b"2"]
        assert cluster.broker.committed["G", Q0] == 3
        with pytest.raises(NotRunningError):
            consumer.assigned_queues()

    simulate(story)


@pytest.mark.parametrize("kind", ["push", "orderly"])
@pytest.mark.parametrize("is_child", [False, True], ids=["the call", "a task of the call"])
def test_a_listener_that_starts_its_consumer_again_does_not_wait_for_itself(kind: str, is_child: bool) -> None:
    """The start waits for the shutdown, which waits for the call."""

    async def story(cluster: MockCluster) -> None:
        await start(cluster, 5)
        errors: list[BaseException] = []

        async def restart(messages: list[MessageExt], context: ConsumeContext) -> None:
            await consumer.shutdown()
            try:
                await (asyncio.gather(consumer.start()) if is_child else consumer.start())
            except BaseException as error:
                errors.append(error)
                raise

        consumer = await make(kind, cluster, restart, consume_thread_nums=1)
        await consumer.start()
        await until(lambda: errors, "the start is refused or cancelled", 20)
        assert isinstance(errors[0], asyncio.CancelledError if is_child else ClientError)
        await consumer.shutdown()
        assert not cluster.broker.members["G"]

    simulate(story)


def test_a_task_that_outlives_its_call_may_start_the_consumer_again() -> None:
    async def story(cluster: MockCluster) -> None:
        await start(cluster, 5)
        bodies: list[bytes] = []
        restarts: list[asyncio.Task[None]] = []

        async def restart() -> None:
            await consumer.shutdown()
            await consumer.start()

        async def listen(messages: list[MessageExt], context: ConsumeContext) -> None:
            bodies.extend(message.body for message in messages)
            if len(bodies) == 3:
                restarts.append(asyncio.create_task(restart()))

        consumer = await make("push", cluster, listen, consume_thread_nums=1)
        await consumer.start()
        await until(lambda: len(bodies) == 5, "all messages", 20)
        assert sorted(bodies) == [b"%d" % n for n in range(5)]
        await consumer.shutdown()

    simulate(story)


def test_listeners_that_shut_each_others_consumers_down_do_not_wait_for_ever() -> None:
    """As programs do that end everything when anything fails."""

    async def story(cluster: MockCluster) -> None:
        await start(cluster, 1)
        cluster.route("%RETRY%H")
        began = 0
        both = asyncio.Event()

        async def fail(messages: list[MessageExt], context: ConsumeContext) -> None:
            nonlocal began
            began += 1
            if began == 2:
                both.set()
            await both.wait()
            await asyncio.gather(*(consumer.shutdown() for consumer in consumers))

        consumers = [await make("push", cluster, fail, consumer_group=group) for group in ("G", "H")]
        for consumer in consumers:
            await consumer.start()
        await until(both.is_set, "both calls", 20)
        async with asyncio.timeout(60):
            await asyncio.gather(*(consumer.shutdown() for consumer in consumers))
        assert not cluster.broker.members["G"] and not cluster.broker.members["H"]

    simulate(story)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("when_ms", range(8))
def test_a_shutdown_that_waits_for_a_start_is_completed_when_all_tasks_are_cancelled(kind: str, when_ms: int) -> None:
    """As asyncio.run cancels them at its end."""

    async def story(cluster: MockCluster) -> None:
        await start(cluster, 1)
        client = await make(kind, cluster)
        before = asyncio.all_tasks()
        starting = asyncio.create_task(client.start())
        ending = asyncio.create_task(client.shutdown())
        await asyncio.sleep(0)
        await asyncio.sleep(when_ms / 1000)
        mine = asyncio.all_tasks() - before
        for task in mine:
            task.cancel()
        await asyncio.wait([starting, ending])
        await asyncio.sleep(60)
        assert not cluster.broker.members["G"]
        assert not cluster.broker.server.connections and not cluster.names.server.connections

    simulate(story)
