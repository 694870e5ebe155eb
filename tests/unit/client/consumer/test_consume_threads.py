"""How many listener calls are made at a time, changed while the consumer runs; and flow control's figures."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any

import pytest

from maxq.client.client_config import PushConsumerConfig
from maxq.client.consumer.flow_control import FlowControl, FlowControlReason
from maxq.client.consumer.held.process_queue import ProcessQueue
from maxq.client.consumer.push_consumer import PushConsumer
from maxq.client.results.consume_result import ConsumeContext
from maxq.errors import ClientError
from maxq.protocol.enums import ConsumeFromWhere
from maxq.protocol.message.message import MessageExt
from maxq.protocol.message.message_queue import MessageQueue
from tests.unit.client.mock_broker import NAMESRV_ADDR, MockCluster, simulate, until

QUEUES = 12


class Busy:
    """A listener whose calls last a second; knows how many are under way."""

    def __init__(self) -> None:
        self.now = 0
        self.most = 0
        self.done = 0

    async def __call__(self, messages: list[MessageExt], context: ConsumeContext) -> None:
        self.now += 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(1)
        self.now -= 1
        self.done += 1


class Replaced(Executor):
    """Closed in the moment in which a thread wants to be started by it, because the user has given another one."""

    def __init__(self) -> None:
        self.give_another = lambda: None

    def submit(self, work: Callable[..., Any], /, *args: Any, **more: Any) -> Future[Any]:
        self.give_another()
        raise RuntimeError("cannot schedule new futures after shutdown")


class AtOnce(Executor):
    """Makes calls when they are submitted."""

    def submit(self, work: Callable[..., Any], /, *args: Any, **more: Any) -> Future[Any]:
        work(*args, **more)
        return Future()


def test_calls_that_meet_the_end_of_the_threads_of_before_are_made_on_the_new_ones() -> None:
    async def story(cluster: MockCluster) -> None:
        await cluster.start()
        cluster.route("T")
        cluster.broker.put("T", b"message")
        config = PushConsumerConfig(
            namesrv_addr=NAMESRV_ADDR, consumer_group="G",
            consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        )  # fmt: skip
        got: list[MessageExt] = []
        before = Replaced()
        consumer = PushConsumer(
            config, cluster.environment(), lambda messages, context: got.extend(messages), executor=before
        )
        before.give_another = lambda: consumer._caller.replace_executor(AtOnce())
        consumer.subscribe("T")
        async with consumer:
            await until(lambda: got, "the call", 10)

    simulate(story)


@pytest.mark.parametrize("orderly", [False, True], ids=["concurrently", "orderly"])
def test_thread_numbers_follow_the_user_up_and_down(orderly: bool) -> None:
    async def story(cluster: MockCluster) -> None:
        await cluster.start()
        cluster.route("T", queues=QUEUES)
        cluster.route("%RETRY%G")
        for n in range(QUEUES * 20):
            cluster.broker.put("T", b"%d" % n, n % QUEUES)
        config = PushConsumerConfig(
            namesrv_addr=NAMESRV_ADDR,
            consumer_group="G",
            consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
            consume_thread_nums=3,
        )
        busy = Busy()
        consumer = PushConsumer(config, cluster.environment(), busy, orderly=orderly)
        consumer.subscribe("T")
        async with consumer:
            await until(lambda: busy.done >= 6, "some calls")
            assert busy.most == 3
            consumer.set_consume_thread_nums(9)
            await until(lambda: busy.now == 9, "nine at a time")
            consumer.set_consume_thread_nums(2)
            consumer.set_consume_thread_nums(4)
            await until(lambda: busy.now <= 4, "the surplus to end")
            busy.most, done = 0, busy.done
            await until(lambda: busy.done >= done + 12, "more calls")
            assert busy.most == 4
            assert consumer.running_info().properties["PROP_THREADPOOL_CORE_SIZE"] == "4"
            await until(lambda: busy.done >= QUEUES * 20, "all of them")
        assert busy.done == QUEUES * 20

    simulate(story)


@pytest.mark.parametrize("count", [0, 1001])
def test_thread_numbers_have_bounds(count: int) -> None:
    async def story(cluster: MockCluster) -> None:
        config = PushConsumerConfig(namesrv_addr=NAMESRV_ADDR, consumer_group="G")
        with pytest.raises(ClientError, match=f"consume_thread_nums is a whole number from 1 to 1000, not {count}"):
            PushConsumer(config, cluster.environment(), Busy()).set_consume_thread_nums(count)

    simulate(story)


def held(count: int, size: int = 1, step: int = 1) -> ProcessQueue:
    queue = ProcessQueue(0)
    messages = [MessageExt("T", b"x", queue_offset=n * step, store_size=size) for n in range(count)]
    queue.put_messages(messages)
    return queue


def test_flow_control_counts_when_a_queue_begins_to_be_held_back_and_why() -> None:
    flow = FlowControl(10, 1_000, 50)
    q0, q1, q2 = (MessageQueue("T", "b", n) for n in range(3))
    assert not flow.holds_back(q0, held(10))
    for _ in range(3):
        assert flow.holds_back(q0, held(11))
    assert flow.holds_back(q1, held(5, size=300))
    assert flow.holds_back(q2, held(5, step=20))
    assert dict(flow.times) == {FlowControlReason.COUNT: 1, FlowControlReason.SIZE: 1, FlowControlReason.SPAN: 1}
    assert not flow.holds_back(q0, held(1))
    assert flow.holds_back(q0, held(11))
    assert flow.figures() == {
        "queueFlowControlTimes": "3",
        "queueMaxSpanFlowControlTimes": "1",
        "queuesHeldBack": "3",
    }
    flow.forget(q0)
    assert flow.figures()["queuesHeldBack"] == "2"


def test_orderly_consumers_have_no_span() -> None:
    assert not FlowControl(10, 1_000, None).holds_back(MessageQueue("T", "b", 0), held(5, step=1_000))
