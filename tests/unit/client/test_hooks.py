"""Hooks around sends, listener calls and pulls."""

import asyncio

import pytest

from maxq.client.client_config import ProducerConfig, PushConsumerConfig
from maxq.client.consumer.push_consumer import PushConsumer
from maxq.client.hooks import (
    CommunicationMode,
    ConsumeMessageContext,
    ConsumeReturnType,
    FilterMessageContext,
    SendMessageContext,
)
from maxq.client.producer.producer import Producer
from maxq.client.results.consume_result import ConsumeContext, ConsumeResult, MessageListener
from maxq.codes import RequestCode, ResponseCode
from maxq.errors import BrokerError, ClientError
from maxq.protocol.enums import ConsumeFromWhere
from maxq.protocol.message.message import Message, MessageExt, decode_batch, decode_properties
from tests.unit.client.mock_broker import NAMESRV_ADDR, MockCluster, simulate, until


class Sends:
    """Keeps what it is told, and marks messages."""

    def __init__(self) -> None:
        self.before: list[SendMessageContext] = []
        self.after: list[SendMessageContext] = []

    def send_message_before(self, context: SendMessageContext) -> None:
        self.before.append(context)
        context.props["number"] = len(self.before)
        for message in context.messages:
            message.properties["traced"] = "yes"

    def send_message_after(self, context: SendMessageContext) -> None:
        self.after.append(context)


class Broken:
    """Fails whenever it is called."""

    def send_message_before(self, context: SendMessageContext) -> None:
        raise RuntimeError("broken hook")

    send_message_after = send_message_before


class Forbids:
    """Refuses one body."""

    def check_forbidden(self, context: SendMessageContext) -> None:
        if context.messages[0].body == b"forbidden":
            raise ClientError("not this one")


def producer(cluster: MockCluster, **settings: object) -> Producer:
    config = ProducerConfig(namesrv_addr=NAMESRV_ADDR, producer_group="P", **settings)  # type: ignore[arg-type]
    return Producer(config, cluster.environment())


def test_send_hooks_see_each_try_and_what_they_add_travels() -> None:
    async def story(cluster: MockCluster) -> None:
        await cluster.start()
        cluster.route("T")
        hook = Sends()
        async with producer(cluster, send_message_hooks=[Broken(), hook], namespace="N") as sender:
            cluster.route("N%T")
            result = await sender.send(Message("T", b"hello"))
        (request,) = cluster.broker.requests(RequestCode.SEND_MESSAGE_V2)
        assert decode_properties(request.ext["i"])["traced"] == "yes"
        (context,) = hook.after
        assert hook.before == [context]
        assert (context.producer_group, context.namespace, context.broker_address) == (
            "N%P",
            "N",
            cluster.broker.address,
        )
        assert (context.message_queue.topic, context.messages[0].body) == ("N%T", b"hello")
        assert (context.send_result, context.exception, context.props) == (result, None, {"number": 1})
        assert context.communication_mode is CommunicationMode.SYNC

    simulate(story)


def test_send_hooks_are_told_of_failures_try_by_try() -> None:
    async def story(cluster: MockCluster) -> None:
        await cluster.start("broker-a", "broker-b")
        cluster.route("T")
        for broker in cluster.brokers.values():
            broker.scripts[RequestCode.SEND_MESSAGE_V2] = lambda r: r.reply(ResponseCode.SYSTEM_BUSY, "busy")
        hook = Sends()
        async with producer(cluster, send_message_hooks=[hook], retry_times_when_send_failed=1) as sender:
            with pytest.raises(ClientError):
                await sender.send(Message("T", b"hello"))
        assert {context.message_queue.broker_name for context in hook.after} == {"broker-a", "broker-b"}
        assert all(isinstance(context.exception, BrokerError) for context in hook.after)
        assert [context.send_result for context in hook.after] == [None, None]

    simulate(story)


def test_send_hooks_see_batches_and_oneway_sends() -> None:
    async def story(cluster: MockCluster) -> None:
        await cluster.start()
        cluster.route("T")
        hook = Sends()
        async with producer(cluster, send_message_hooks=[hook]) as sender:
            await sender.send_batch([Message("T", b"a"), Message("T", b"b")])
            await sender.send_oneway(Message("T", b"c"))
            await until(lambda: len(cluster.broker.log) == 3, "three messages")
        batch, oneway = hook.after
        assert [message.body for message in batch.messages] == [b"a", b"b"]
        assert batch.send_result is not None
        assert (oneway.communication_mode, oneway.send_result) == (CommunicationMode.ONEWAY, None)
        assert cluster.broker.log[2].properties["traced"] == "yes"

    simulate(story)


def test_a_forbidden_send_is_refused_before_anything_is_sent() -> None:
    async def story(cluster: MockCluster) -> None:
        await cluster.start()
        cluster.route("T")
        hook = Sends()
        async with producer(cluster, send_message_hooks=[hook], check_forbidden_hooks=[Forbids()]) as sender:
            with pytest.raises(ClientError, match="not this one"):
                await sender.send(Message("T", b"forbidden"))
            await sender.send(Message("T", b"allowed"))
        assert [message.body for message in cluster.broker.log] == [b"allowed"]
        assert len(hook.before) == 1

    simulate(story)


class Consumes:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.before: list[ConsumeMessageContext] = []
        self.after: list[ConsumeMessageContext] = []

    def consume_message_before(self, context: ConsumeMessageContext) -> None:
        assert context.status is None
        self.before.append(context)

    def consume_message_after(self, context: ConsumeMessageContext) -> None:
        self.after.append(context)


def consumer(cluster: MockCluster, listener: MessageListener, *, orderly: bool, **settings: object) -> PushConsumer:
    config = PushConsumerConfig(
        namesrv_addr=NAMESRV_ADDR,
        consumer_group="G",
        consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        **settings,  # type: ignore[arg-type]
    )
    made = PushConsumer(config, cluster.environment(), listener, orderly=orderly)
    made.subscribe("T")
    return made


@pytest.mark.parametrize("orderly", [False, True], ids=["concurrently", "orderly"])
def test_consume_hooks_see_how_each_listener_call_ends(orderly: bool) -> None:
    later = ConsumeResult.SUSPEND_CURRENT_QUEUE_A_MOMENT if orderly else ConsumeResult.RECONSUME_LATER
    calls: dict[bytes, int] = {}

    def listener(messages: list[MessageExt], context: ConsumeContext) -> ConsumeResult | None:
        body = messages[0].body
        calls[body] = calls.get(body, 0) + 1
        if body == b"raises" and calls[body] == 1:
            raise ValueError("listener")
        return later if body == b"fails" and calls[body] == 1 else None

    async def story(cluster: MockCluster) -> list[ConsumeMessageContext]:
        await cluster.start()
        cluster.route("T")
        cluster.route("%RETRY%G")
        for body in (b"works", b"raises", b"fails"):
            cluster.broker.put("T", body)
        hook = Consumes()
        async with consumer(cluster, listener, orderly=orderly, consume_thread_nums=1, consume_message_hooks=[hook]):
            await until(lambda: len(hook.after) == 5, "three calls and two repeats")
        assert hook.before == hook.after
        return hook.after

    contexts = simulate(story)
    ends = [(context.messages[0].body, context.return_type, context.success, context.status) for context in contexts]
    success = ConsumeResult.SUCCESS
    assert ends[0] == (b"works", ConsumeReturnType.SUCCESS, True, success)
    assert (b"raises", ConsumeReturnType.EXCEPTION, False, later) in ends
    assert (b"fails", ConsumeReturnType.FAILED, False, later) in ends
    assert sorted(end[0] for end in ends if end[2]) == [b"fails", b"raises", b"works"]


def test_a_listener_call_that_took_too_long_is_a_time_out() -> None:
    async def slow(messages: list[MessageExt], context: ConsumeContext) -> None:
        await asyncio.sleep(61)

    async def story(cluster: MockCluster) -> None:
        await cluster.start()
        cluster.route("T")
        cluster.route("%RETRY%G")
        cluster.broker.put("T", b"slow")
        hook = Consumes()
        async with consumer(cluster, slow, orderly=True, consume_timeout_minutes=1, consume_message_hooks=[hook]):
            await until(lambda: hook.after, "the end of the call")
        assert (hook.after[0].return_type, hook.after[0].success) == (ConsumeReturnType.TIME_OUT, True)

    simulate(story)


class OnlyEven:
    """Takes odd messages away."""

    def filter_message(self, context: FilterMessageContext) -> None:
        context.messages = [message for message in context.messages if int(message.body) % 2 == 0]


def test_what_a_filter_hook_takes_away_is_passed_over() -> None:
    got: list[bytes] = []

    def listener(messages: list[MessageExt], context: ConsumeContext) -> None:
        got.extend(bytes(message.body) for message in messages)

    async def story(cluster: MockCluster) -> None:
        await cluster.start()
        cluster.route("T")
        cluster.route("%RETRY%G")
        for n in range(10):
            cluster.broker.put("T", b"%d" % n)
        member = consumer(cluster, listener, orderly=False, filter_message_hooks=[OnlyEven()])
        async with member:
            await until(lambda: len(got) == 5, "the even ones")
        (committed,) = [offset for (_, queue), offset in cluster.broker.committed.items() if queue.topic == "T"]
        assert committed >= 9

    simulate(story)
    assert got == [b"0", b"2", b"4", b"6", b"8"]


def test_batches_decode_as_they_were_given() -> None:
    """A hook cannot change what is in a batch: its messages are encoded when the batch is made."""

    async def story(cluster: MockCluster) -> None:
        await cluster.start()
        cluster.route("T")
        async with producer(cluster, send_message_hooks=[Sends()]) as sender:
            await sender.send_batch([Message("T", b"a")])
        (request,) = cluster.broker.requests(RequestCode.SEND_BATCH_MESSAGE)
        (message,) = decode_batch(request.body_bytes, "T")
        assert "traced" not in message.properties

    simulate(story)
