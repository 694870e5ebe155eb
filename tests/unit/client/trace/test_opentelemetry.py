"""Spans around sends, listener calls and ends of transactions."""

import asyncio
import subprocess
import sys

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from maxq.client.client_config import ProducerConfig, PushConsumerConfig
from maxq.client.consumer.push_consumer import PushConsumer
from maxq.client.hooks import EndTransactionContext
from maxq.client.producer.producer import Producer
from maxq.client.results.consume_result import ConsumeContext, ConsumeResult
from maxq.client.results.local_transaction_state import LocalTransactionState
from maxq.client.trace.opentelemetry import OpenTelemetryHook
from maxq.codes import RequestCode, ResponseCode
from maxq.errors import BrokerError
from maxq.protocol.enums import ConsumeFromWhere
from maxq.protocol.message.message import Message, MessageExt
from tests.unit.client.mock_broker import NAMESRV_ADDR, MockCluster, simulate, until


class Spans:
    """A hook, and the spans that it has ended."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.hook = OpenTelemetryHook(provider.get_tracer("test"))

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self._exporter.get_finished_spans() if span.name == name]


def producer(cluster: MockCluster, spans: Spans) -> Producer:
    config = ProducerConfig(namesrv_addr=NAMESRV_ADDR, producer_group="P", send_message_hooks=[spans.hook])
    return Producer(config, cluster.environment())


def test_a_listener_call_is_a_child_of_its_send() -> None:
    async def story(cluster: MockCluster) -> None:
        await cluster.start()
        cluster.route("T")
        spans, seen = Spans(), []

        async def listen(messages: list[MessageExt], context: ConsumeContext) -> ConsumeResult:
            seen.extend(messages)
            await asyncio.sleep(0)
            return ConsumeResult.RECONSUME_LATER

        config = PushConsumerConfig(
            namesrv_addr=NAMESRV_ADDR, consumer_group="G", consume_message_hooks=[spans.hook],
            consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        )  # fmt: skip
        consumer = PushConsumer(config, cluster.environment(), listen)
        consumer.subscribe("T")
        async with producer(cluster, spans) as sender, consumer:
            result = await sender.send(Message("T", b"hello", {"TAGS": "a", "KEYS": "k1 k2"}))
            await until(lambda: spans.named("From_T"), "the listener call")
        (sent,), consumed = spans.named("To_T"), spans.named("From_T")[0]
        assert (sent.kind, consumed.kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER)
        assert sent.context is not None and consumed.context is not None and consumed.parent is not None
        assert consumed.context.trace_id == sent.context.trace_id
        assert consumed.parent.span_id == sent.context.span_id
        assert sent.attributes is not None and consumed.attributes is not None
        assert sent.attributes["messaging.message.id"] == consumed.attributes["messaging.message.id"] == result.msg_id
        assert sent.attributes["messaging.rocketmq.message.keys"] == ("k1", "k2")
        assert sent.attributes["server.address"] == cluster.broker.address
        assert consumed.attributes["messaging.consumer.group.name"] == "G"
        assert (consumed.status.status_code, consumed.status.description) == (StatusCode.ERROR, "FAILED")

    simulate(story)


def test_a_send_that_fails_is_a_span_with_the_error() -> None:
    async def story(cluster: MockCluster) -> None:
        await cluster.start()
        cluster.route("T")
        spans = Spans()
        cluster.broker.scripts[RequestCode.SEND_MESSAGE_V2] = lambda request: request.reply(
            ResponseCode.MESSAGE_ILLEGAL, "no such thing"
        )
        async with producer(cluster, spans) as sender:
            with pytest.raises(BrokerError):
                await sender.send(Message("T", b"hello"))
        (span,) = spans.named("To_T")
        assert span.status.status_code is StatusCode.ERROR and "no such thing" in (span.status.description or "")
        assert [event.name for event in span.events] == ["exception"]

    simulate(story)


def test_the_end_of_a_transaction_is_a_span_of_the_same_trace() -> None:
    async def story(cluster: MockCluster) -> None:
        await cluster.start()
        cluster.route("T")
        spans, message = Spans(), Message("T", b"half")
        async with producer(cluster, spans) as sender:
            await sender.send(message)
        state = LocalTransactionState.COMMIT_MESSAGE
        spans.hook.end_transaction(EndTransactionContext("P", message, "b:1", "A1", "tx", state, False))
        (sent,), (ended,) = spans.named("To_T"), spans.named("EndTransaction")
        assert ended.context is not None and sent.context is not None and ended.attributes is not None
        assert ended.context.trace_id == sent.context.trace_id
        assert ended.attributes["rocketmq.transaction_state"] == "COMMIT_MESSAGE"

    simulate(story)


def test_nothing_else_imports_opentelemetry() -> None:
    code = "import sys, maxq.api, maxq.cli.app; print([name for name in sys.modules if 'opentelemetry' in name])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[]\n"
