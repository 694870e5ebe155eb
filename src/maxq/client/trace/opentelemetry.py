"""OpenTelemetry spans around sends, listener calls and ends of transactions; `pip install 'maxq[otel]'`.

    from opentelemetry import trace
    from maxq.client.trace.opentelemetry import OpenTelemetryHook

    hook = OpenTelemetryHook(trace.get_tracer("orders"))
    producer = Producer("orders", namesrv, send_message_hooks=[hook], end_transaction_hooks=[hook])
    consumer = PushConsumer("billing", namesrv, listen, consume_message_hooks=[hook])

A send puts its context into the message's properties (`traceparent`, `tracestate` of W3C), and the consumer's span is
a child of it: one trace from the sender to every listener. Messages of a batch share the send's span. Nothing else in
MaxQ imports OpenTelemetry.

Names and attributes follow Java's OpenTracing hooks where OpenTelemetry's conventions for messaging have none.

Source: apache/rocketmq client/trace/hook/{SendMessage,ConsumeMessage,EndTransaction}OpenTracingHookImpl.java.
"""

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.propagate import extract, inject
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer

from maxq.client.hooks import (
    ConsumeMessageContext,
    EndTransactionContext,
    SendMessageContext,
)
from maxq.client.namespace import unwrap
from maxq.protocol.message.message import Message

_SPAN = "maxq.opentelemetry.span"
_SPANS = "maxq.opentelemetry.spans"
_SYSTEM = "rocketmq"


class OpenTelemetryHook:
    """A send, consume and end-of-transaction hook.

    Args:
        tracer: None: the global provider's.
    """

    def __init__(self, tracer: Tracer | None = None) -> None:
        self._tracer = tracer or trace.get_tracer("maxq")

    # --- sends ---

    def send_message_before(self, context: SendMessageContext) -> None:
        first = context.messages[0]
        topic = unwrap(context.namespace, first.topic)
        span = self._tracer.start_span(f"To_{topic}", kind=SpanKind.PRODUCER)
        _describe(span, topic, "publish", first)
        span.set_attribute("messaging.rocketmq.client_group", unwrap(context.namespace, context.producer_group))
        span.set_attribute("server.address", context.broker_address)
        span.set_attribute("messaging.batch.message_count", len(context.messages))
        span.set_attribute("messaging.message.body.size", sum(len(message.body) for message in context.messages))
        parent = trace.set_span_in_context(span)
        for message in context.messages:
            inject(message.properties, parent)
        context.props[_SPAN] = span

    def send_message_after(self, context: SendMessageContext) -> None:
        span = context.props.get(_SPAN)
        if not isinstance(span, Span):
            return
        result = context.send_result
        if result is not None:
            span.set_attribute("messaging.message.id", result.msg_id)
            span.set_attribute("rocketmq.send_result", result.send_status.value)
            span.set_attribute("rocketmq.region_id", result.region_id)
        if context.exception is not None:
            _failed(span, context.exception)
        span.end()

    # --- listener calls ---

    def consume_message_before(self, context: ConsumeMessageContext) -> None:
        spans: list[Span] = []
        for message in context.messages:
            topic = unwrap(context.namespace, message.topic)
            parent: Context = extract(message.properties)
            span = self._tracer.start_span(f"From_{topic}", parent, kind=SpanKind.CONSUMER)
            _describe(span, topic, "process", message)
            span.set_attribute("messaging.message.id", message.msg_id)
            span.set_attribute("messaging.message.body.size", len(message.body))
            span.set_attribute("messaging.consumer.group.name", unwrap(context.namespace, context.consumer_group))
            span.set_attribute("rocketmq.retry_times", message.reconsume_times)
            spans.append(span)
        context.props[_SPANS] = spans

    def consume_message_after(self, context: ConsumeMessageContext) -> None:
        spans = context.props.get(_SPANS)
        for span in spans if isinstance(spans, list) else []:
            span.set_attribute("rocketmq.success", context.success)
            if not context.success:
                kind = context.return_type.value if context.return_type is not None else "FAILED"
                span.set_status(Status(StatusCode.ERROR, kind))
            span.end()

    # --- ends of transactions ---

    def end_transaction(self, context: EndTransactionContext) -> None:
        message = context.message
        span = self._tracer.start_span("EndTransaction", extract(message.properties), kind=SpanKind.PRODUCER)
        _describe(span, message.topic, "settle", message)
        span.set_attribute("messaging.message.id", context.msg_id)
        span.set_attribute("messaging.rocketmq.client_group", context.producer_group)
        span.set_attribute("server.address", context.broker_address)
        span.set_attribute("rocketmq.transaction_id", context.transaction_id or "")
        span.set_attribute("rocketmq.transaction_state", context.transaction_state.name)
        span.set_attribute("rocketmq.is_from_transaction_check", context.from_transaction_check)
        span.end()


def _describe(span: Span, topic: str, operation: str, message: Message) -> None:
    span.set_attribute("messaging.system", _SYSTEM)
    span.set_attribute("messaging.operation.type", operation)
    span.set_attribute("messaging.destination.name", topic)
    if message.tags:
        span.set_attribute("messaging.rocketmq.message.tag", message.tags)
    if message.keys:
        span.set_attribute("messaging.rocketmq.message.keys", message.keys.split())


def _failed(span: Span, error: Exception) -> None:
    span.record_exception(error)
    span.set_status(Status(StatusCode.ERROR, str(error)))
