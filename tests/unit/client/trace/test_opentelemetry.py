"""Spans and metrics of sends, listener calls, receives, settlements and ends of transactions."""

import asyncio
import subprocess
import sys
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.propagate import inject
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from maxq import api
from maxq.client.client_config import ProducerConfig, PushConsumerConfig, SimpleConsumerConfig
from maxq.client.consumer.push_consumer import PushConsumer
from maxq.client.consumer.simple_consumer import SimpleConsumer
from maxq.client.errors import NotRunningError, WrongArgumentError
from maxq.client.hooks import CommunicationMode, ConsumeMessageContext, EndTransactionContext, SendMessageContext
from maxq.client.producer.producer import Producer
from maxq.client.results.consume_result import ConsumeContext, ConsumeResult
from maxq.client.results.local_transaction_state import LocalTransactionState
from maxq.client.trace.opentelemetry import OpenTelemetryHook
from maxq.codes import RequestCode, ResponseCode
from maxq.errors import BrokerError
from maxq.protocol.enums import ConsumeFromWhere
from maxq.protocol.message.message import Message, MessageExt
from maxq.protocol.message.message_queue import MessageQueue
from maxq.remoting.client import split_address
from maxq.runtime.interfaces import Clock
from tests.unit.client.mock_broker import NAMESRV_ADDR, MockCluster, simulate, until


class Spans:
    """A hook, the spans that it has ended, and its metrics."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._exporter = InMemorySpanExporter()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self._reader = InMemoryMetricReader()
        self.tracer = provider.get_tracer("test")
        self.hook = OpenTelemetryHook(self.tracer, MeterProvider([self._reader]).get_meter("test"), clock)

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self._exporter.get_finished_spans() if span.name == name]

    def metrics(self) -> dict[str, list[Any]]:
        """Metric → its data points."""
        found = self._reader.get_metrics_data()
        assert found is not None
        (resource,) = found.resource_metrics
        return {metric.name: list(metric.data.data_points) for metric in resource.scope_metrics[0].metrics}


def trace_of(span: ReadableSpan) -> tuple[int, int]:
    assert span.context is not None
    return span.context.trace_id, span.context.span_id


def linked(span: ReadableSpan) -> list[tuple[int, int]]:
    return [(link.context.trace_id, link.context.span_id) for link in span.links]


def told(span: ReadableSpan, *names: str) -> list[object]:
    assert span.attributes is not None
    return [span.attributes.get(name) for name in names]


def producer(cluster: MockCluster, spans: Spans) -> Producer:
    config = ProducerConfig(namesrv_addr=NAMESRV_ADDR, producer_group="P", send_message_hooks=[spans.hook])
    return Producer(config, cluster.environment())


def test_a_listener_call_is_a_child_of_its_send_and_the_current_span() -> None:
    async def story(cluster: MockCluster) -> None:
        await cluster.start()
        cluster.route("T")
        spans, inside = Spans(cluster.environment().clock), []

        async def listen(messages: list[MessageExt], context: ConsumeContext) -> ConsumeResult:
            await asyncio.sleep(0)
            inside.append(trace.get_current_span().get_span_context().span_id)
            return ConsumeResult.RECONSUME_LATER

        config = PushConsumerConfig(
            namesrv_addr=NAMESRV_ADDR, consumer_group="G", consume_message_hooks=[spans.hook],
            consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        )  # fmt: skip
        consumer = PushConsumer(config, cluster.environment(), listen)
        consumer.subscribe("T")
        async with producer(cluster, spans) as sender, consumer:
            result = await sender.send(Message("T", b"hello", {"TAGS": "a", "KEYS": "k1 k2"}))
            await until(lambda: spans.named("process T"), "the listener call")
        (sent,), consumed = spans.named("send T"), spans.named("process T")[0]
        assert (sent.kind, consumed.kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER)
        assert consumed.parent is not None and consumed.parent.span_id == trace_of(sent)[1]
        assert trace_of(consumed)[0] == trace_of(sent)[0] and linked(consumed) == [trace_of(sent)]
        assert inside[0] == trace_of(consumed)[1]
        host, port = split_address(cluster.broker.address)
        queue = result.message_queue
        for span, operation in ((sent, "send"), (consumed, "process")):
            assert span.attributes is not None
            assert (
                span.attributes.items()
                >= {
                    "messaging.system": "rocketmq",
                    "messaging.operation.name": operation,
                    "messaging.operation.type": operation,
                    "messaging.destination.name": "T",
                    "messaging.destination.partition.id": f"{queue.broker_name}/{queue.queue_id}",
                    "messaging.rocketmq.namespace": "",
                    "messaging.message.id": result.msg_id,
                    "messaging.message.body.size": 5,
                    "messaging.rocketmq.message.type": "normal",
                    "messaging.rocketmq.message.tag": "a",
                    "messaging.rocketmq.message.keys": ("k1", "k2"),
                }.items()
            )
            assert "messaging.batch.message_count" not in span.attributes
        assert told(sent, "server.address", "server.port", "error.type") == [host, port, None]
        assert told(consumed, "messaging.consumer.group.name", "error.type") == ["G", "FAILED"]
        assert (consumed.status.status_code, consumed.status.description) == (StatusCode.ERROR, "FAILED")
        points = spans.metrics()
        assert [point.value for point in points["messaging.client.sent.messages"]] == [1]
        assert sum(point.value for point in points["messaging.client.consumed.messages"]) >= 1
        (duration,) = points["messaging.client.operation.duration"]
        assert duration.attributes["messaging.operation.type"] == "send" and duration.count == 1
        assert duration.explicit_bounds[:2] == (0.005, 0.01)
        assert points["messaging.process.duration"][0].attributes["error.type"] == "FAILED"

    simulate(story)


def test_a_send_that_fails_is_a_span_with_the_error() -> None:
    async def story(cluster: MockCluster) -> None:
        await cluster.start()
        cluster.route("T")
        spans, message = Spans(), Message("T", b"hello")
        cluster.broker.scripts[RequestCode.SEND_MESSAGE_V2] = lambda request: request.reply(
            ResponseCode.MESSAGE_ILLEGAL, "no such thing"
        )
        async with producer(cluster, spans) as sender:
            with pytest.raises(BrokerError):
                await sender.send(message)
        (span,) = spans.named("send T")
        assert span.status.status_code is StatusCode.ERROR and "no such thing" in (span.status.description or "")
        assert [event.name for event in span.events] == ["exception"]
        assert told(span, "error.type") == ["MESSAGE_ILLEGAL"]
        assert "traceparent" not in message.properties  # it is not stored: the next send has a context of its own

    simulate(story)


def test_a_message_keeps_the_context_that_it_brings() -> None:
    async def story(cluster: MockCluster) -> None:
        await cluster.start()
        cluster.route("T")
        spans, message = Spans(), Message("T", b"made elsewhere")
        with spans.tracer.start_as_current_span("create") as created:
            inject(message.properties)
        brought = dict(message.properties)
        async with producer(cluster, spans) as sender:
            await sender.send(message)
            with spans.tracer.start_as_current_span("ambient"):
                await sender.send_batch([Message("T", b"1"), Message("T", b"2")])
        assert message.properties["traceparent"] == brought["traceparent"]
        alone, batch = spans.named("send T")
        context = created.get_span_context()
        assert alone.kind is SpanKind.CLIENT and linked(alone) == [(context.trace_id, context.span_id)]
        assert batch.kind is SpanKind.PRODUCER and batch.parent is not None and linked(batch) == []
        assert told(batch, "messaging.batch.message_count", "messaging.message.id") == [2, None]

    simulate(story)


@pytest.mark.parametrize(
    "message, kind, more",
    [
        (Message("T", b"", {"__SHARDINGKEY": "g"}), "fifo", {"messaging.rocketmq.message.group": "g"}),
        (Message("T", b"", {"DELAY": "3"}), "delay", {"messaging.rocketmq.message.delay_time_level": 3}),
        (
            Message("T", b"", {"TIMER_DELIVER_MS": "1900000000000"}),
            "delay",
            {"messaging.rocketmq.message.delivery_timestamp": 1_900_000_000_000},
        ),
        (Message("T", b"", {"TRAN_MSG": "true"}), "transaction", {}),
        (Message("T", b"", {"CORRELATION_ID": "c"}), "normal", {"messaging.message.conversation_id": "c"}),
    ],
)
def test_kinds_of_messages(message: Message, kind: str, more: dict[str, object]) -> None:
    spans, queue = Spans(), MessageQueue("T", "b", 1)
    context = SendMessageContext("P", "", (message,), queue, "h:1", CommunicationMode.SYNC, False)
    spans.hook.send_message_before(context)
    spans.hook.send_message_after(context)
    (span,) = spans.named("send T")
    assert span.attributes is not None
    assert span.attributes.items() >= {"messaging.rocketmq.message.type": kind, **more}.items()


def received(*ids: str) -> list[MessageExt]:
    """Messages that a consumer got, each with a creation context of its own."""
    return [
        MessageExt("T", b"x", {"UNIQ_KEY": one, "traceparent": f"00-{n:032x}-{n:016x}-01"})
        for n, one in enumerate(ids, 1)
    ]


def test_a_call_with_several_messages_links_to_each() -> None:
    spans = Spans()
    context = ConsumeMessageContext("G", "", received("A", "B"), MessageQueue("T", "b", 1), 0)
    spans.hook.consume_message_before(context)
    context.success = True
    spans.hook.consume_message_after(context)
    (span,) = spans.named("process T")
    assert span.parent is None and linked(span) == [(1, 1), (2, 2)]
    assert told(span, "messaging.batch.message_count", "messaging.message.id") == [2, None]
    assert not trace.get_current_span().get_span_context().is_valid


def test_a_watched_consumer_has_spans_of_what_it_receives_and_settles() -> None:
    async def story(cluster: MockCluster) -> None:
        spans = Spans(cluster.environment().clock)
        config = SimpleConsumerConfig(namesrv_addr=NAMESRV_ADDR, consumer_group="G", namespace="N")
        consumer = SimpleConsumer(config, cluster.environment())
        answers = [[], received("A", "B")]

        async def receive(*_: object, **__: object) -> list[MessageExt]:
            return answers.pop(0)

        async def ack(_: MessageExt) -> None:
            raise BrokerError(ResponseCode.SYSTEM_BUSY, "busy")

        async def ack_all(_: list[MessageExt]) -> None:
            return None

        consumer.receive, consumer.ack, consumer.ack_all = receive, ack, ack_all  # type: ignore[method-assign]
        assert spans.hook.watch(consumer) is consumer
        assert await consumer.receive(wait_ms=1) == []
        messages = await consumer.receive(16)
        with pytest.raises(BrokerError):
            await consumer.ack(messages[0])
        await consumer.ack_all(messages)
        (taken,), (failed, acked) = spans.named("receive T"), spans.named("ack T")
        assert {span.kind for span in (taken, failed, acked)} == {SpanKind.CLIENT}
        names = ("messaging.operation.type", "messaging.batch.message_count", "messaging.consumer.group.name")
        assert told(taken, *names, "messaging.rocketmq.namespace") == ["receive", 2, "G", "N"]
        assert told(acked, *names) == ["settle", 2, "G"]
        assert told(failed, "messaging.message.id", "error.type") == ["A", "SYSTEM_BUSY"]
        assert linked(taken) == linked(acked) == [(1, 1), (2, 2)] and linked(failed) == [(1, 1)]
        assert [point.value for point in spans.metrics()["messaging.client.consumed.messages"]] == [2]

    simulate(story)


def test_a_watched_blocking_consumer_has_spans_of_its_polls() -> None:
    spans = Spans()
    consumer = api.LitePullConsumer("G", "127.0.0.1:1")
    consumer.poll = lambda timeout_ms=None: received("A")  # type: ignore[method-assign]
    spans.hook.watch(consumer)
    assert [message.msg_id for message in consumer.poll(timeout_ms=1)] == ["A"]
    with pytest.raises(NotRunningError):
        consumer.commit()
    (polled,), (failed,) = spans.named("poll T"), spans.named("commit")
    assert told(polled, "messaging.operation.name", "messaging.batch.message_count") == ["poll", 1]
    assert told(failed, "messaging.operation.type", "error.type") == ["settle", "NotRunningError"]
    with pytest.raises(WrongArgumentError, match="not a Producer; other clients take the hook by send_message_hooks"):
        spans.hook.watch(api.Producer("P", "127.0.0.1:1"))  # type: ignore[type-var]


def test_the_end_of_a_transaction_is_a_span_of_the_same_trace() -> None:
    async def story(cluster: MockCluster) -> None:
        await cluster.start()
        cluster.route("T")
        spans, message = Spans(), Message("T", b"half")
        async with producer(cluster, spans) as sender:
            await sender.send(message)
        state = LocalTransactionState.COMMIT_MESSAGE
        spans.hook.end_transaction(EndTransactionContext("P", message, "b:1", "A1", "tx", state, False))
        (sent,), (ended,) = spans.named("send T"), spans.named("end_transaction T")
        assert trace_of(ended)[0] == trace_of(sent)[0] and ended.kind is SpanKind.CLIENT
        assert told(ended, "rocketmq.transaction_state", "server.port") == ["COMMIT_MESSAGE", 1]

    simulate(story)


def test_nothing_else_imports_opentelemetry() -> None:
    code = "import sys, maxq.api, maxq.cli.app; print([name for name in sys.modules if 'opentelemetry' in name])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[]\n"
