"""OpenTelemetry spans and metrics of sends, listener calls, receives, settlements and ends of transactions;
`pip install 'maxq[otel]'`.

    from opentelemetry import metrics, trace
    from maxq.api import system_environment
    from maxq.client.trace.opentelemetry import OpenTelemetryHook

    hook = OpenTelemetryHook(trace.get_tracer("orders"), metrics.get_meter("orders"), system_environment().clock)
    producer = Producer("orders", namesrv, send_message_hooks=[hook], end_transaction_hooks=[hook])
    consumer = PushConsumer("billing", namesrv, listen, consume_message_hooks=[hook])
    reader = hook.watch(SimpleConsumer("readers", namesrv))

Names are those of OpenTelemetry's semantic conventions for messaging, version 1.44, with those for RocketMQ. Attributes
for which the conventions have no name use that of Java's OpenTracing hooks (`rocketmq.…`).

- `send TOPIC` (PRODUCER): each try to send. Its context goes into the message's properties (`traceparent` and
  `tracestate` of W3C, or what the global propagator writes). A message that brings a context of its own keeps it; the
  span is CLIENT then and links to it. Messages of a batch share the span.
- `process TOPIC` (CONSUMER): each listener call. It is the current span while the listener runs. It links to what each
  message brings; with one message that is its parent, too: one trace from the sender to every listener.
- `receive TOPIC`, `poll TOPIC` (CLIENT): each call of a watched consumer that returned messages, or failed. It links to
  what each message brings.
- `ack TOPIC`, `change_invisible_duration TOPIC`, `commit` (CLIENT): each call of a watched consumer. Commits that the
  consumer makes by itself have no span.
- `end_transaction TOPIC` (CLIENT): the broker is told how a transaction ended.

Nothing else in MaxQ imports OpenTelemetry.

Source:
    open-telemetry/semantic-conventions docs/messaging/{messaging-spans,messaging-metrics,rocketmq}.md;
    apache/rocketmq client/trace/hook/{SendMessage,ConsumeMessage,EndTransaction}OpenTracingHookImpl.java.
"""

import functools
import inspect
from collections.abc import Callable, Sequence
from contextvars import Token
from typing import Any, Final, NamedTuple, TypeVar

from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.metrics import Meter
from opentelemetry.propagate import extract, get_global_textmap, inject
from opentelemetry.trace import Link, Span, SpanContext, SpanKind, Status, StatusCode, Tracer
from opentelemetry.util.types import AttributeValue

from maxq.client.blocking import consumers
from maxq.client.consumer.lite_pull_consumer import LitePullConsumer
from maxq.client.consumer.simple_consumer import SimpleConsumer
from maxq.client.errors import SendFailedError, WrongArgumentError
from maxq.client.hooks import (
    ConsumeMessageContext,
    EndTransactionContext,
    SendMessageContext,
)
from maxq.codes import ResponseCode
from maxq.errors import BrokerError
from maxq.protocol.message import message_const as const
from maxq.protocol.message.message import Message, MessageExt
from maxq.protocol.message.message_queue import MessageQueue
from maxq.protocol.namespace import unwrap
from maxq.remoting.client import split_address
from maxq.runtime.interfaces import Clock

_STATE = "maxq.opentelemetry"
#: Seconds: the bounds that the conventions want for durations.
_BOUNDS: Final = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)
_RECEIVING: Final = ("receive", "poll")
_SETTLING: Final = ("ack", "ack_all", "change_invisible_duration", "commit")
#: Attributes of spans that are also attributes of metrics.
_OF_METRICS: Final[tuple[str, ...]] = (
    "messaging.system", "messaging.operation.name", "messaging.operation.type", "messaging.destination.name",
    "messaging.destination.partition.id", "messaging.consumer.group.name", "server.address", "server.port",
    "error.type",
)  # fmt: skip

Attributes = dict[str, AttributeValue]
Watched = TypeVar("Watched", SimpleConsumer, LitePullConsumer, consumers.SimpleConsumer, consumers.LitePullConsumer)


class _Operation(NamedTuple):
    """An OpenTelemetry span that has been started and not ended yet."""

    span: Span
    attributes: Attributes
    started_ns: int
    injected: tuple[Message, ...] = ()  # messages that carry the span's context
    token: Token[Context] | None = None  # token of a span that is the current one


class OpenTelemetryHook:
    """A send, consume and end-of-transaction hook, which also watches consumers that receive or poll.

    Args:
        tracer: None: the global provider's.
        meter: None: no metrics.
        clock: measures durations; None: metrics count only.
    """

    def __init__(self, tracer: Tracer | None = None, meter: Meter | None = None, clock: Clock | None = None) -> None:
        self._tracer = tracer or trace.get_tracer("maxq")
        self._metrics = None if meter is None else _Metrics(meter)
        self._clock = clock

    # --- sends ---

    def send_message_before(self, context: SendMessageContext) -> None:
        messages = context.messages
        attributes = _described("send", "send", context.namespace, messages) | _place(
            context.message_queue, context.broker_address
        )
        attributes["rocketmq.producer_group"] = unwrap(context.namespace, context.producer_group)
        brought = [_creation_context(message) for message in messages]
        links = [Link(one) for one in brought if one is not None]
        without = tuple(message for message, one in zip(messages, brought, strict=True) if one is None)
        kind = SpanKind.PRODUCER if without else SpanKind.CLIENT
        operation = self._start(attributes, kind, links)
        parent = trace.set_span_in_context(operation.span)
        for message in without:
            inject(message.properties, parent)
        context.props[_STATE] = operation._replace(injected=without)

    def send_message_after(self, context: SendMessageContext) -> None:
        operation = context.props.get(_STATE)
        if not isinstance(operation, _Operation):
            return
        result = context.send_result
        if result is not None:
            if len(context.messages) == 1:
                operation.span.set_attribute("messaging.message.id", result.msg_id)
            operation.span.set_attribute("rocketmq.send_result", result.send_status.value)
            operation.span.set_attribute("rocketmq.region_id", result.region_id)
        if context.exception is not None:  # the next try makes a new context
            for message in operation.injected:
                for name in get_global_textmap().fields:
                    message.properties.pop(name, None)
        self._end(operation, context.exception, sent=len(context.messages))

    # --- listener calls ---

    def consume_message_before(self, context: ConsumeMessageContext) -> None:
        messages = context.messages
        attributes = _described("process", "process", context.namespace, messages) | _place(context.message_queue)
        attributes["messaging.consumer.group.name"] = unwrap(context.namespace, context.consumer_group)
        if len(messages) == 1:
            attributes["rocketmq.retry_times"] = messages[0].reconsume_times
        parent = extract(messages[0].properties, Context()) if len(messages) == 1 else None
        operation = self._start(attributes, SpanKind.CONSUMER, _links(messages), parent)
        token = contexts.attach(trace.set_span_in_context(operation.span))
        context.props[_STATE] = operation._replace(token=token)

    def consume_message_after(self, context: ConsumeMessageContext) -> None:
        operation = context.props.get(_STATE)
        if not isinstance(operation, _Operation):
            return
        if operation.token is not None:
            contexts.detach(operation.token)
        operation.span.set_attribute("rocketmq.success", context.success)
        failed = None
        if not context.success:
            failed = context.return_type.value if context.return_type is not None else "FAILED"
        self._end(operation, failed, consumed=len(context.messages), is_processing=True)

    # --- ends of transactions ---

    def end_transaction(self, context: EndTransactionContext) -> None:
        message = context.message
        attributes = _described("end_transaction", None, "", [message]) | _server(context.broker_address)
        attributes |= {
            "messaging.message.id": context.msg_id,
            "rocketmq.producer_group": context.producer_group,
            "rocketmq.transaction_id": context.transaction_id or "",
            "rocketmq.transaction_state": context.transaction_state.name,
            "rocketmq.is_from_transaction_check": context.from_transaction_check,
        }
        parent = extract(message.properties, Context())
        self._tracer.start_span(
            _name(attributes), parent, kind=SpanKind.CLIENT, attributes=attributes, links=_links([message])
        ).end()

    # --- receives and settlements ---

    def watch(self, consumer: Watched) -> Watched:
        """Make spans of what a simple or lite pull consumer, blocking or asynchronous, receives and settles.

        Returns:
            The same consumer.

        Raises:
            WrongArgumentError: it is another client.
        """
        blocking = consumers.SimpleConsumer | consumers.LitePullConsumer
        if not isinstance(consumer, SimpleConsumer | LitePullConsumer | blocking):
            raise WrongArgumentError(
                f"watch takes a SimpleConsumer or a LitePullConsumer, not a {type(consumer).__name__}; "
                "other clients take the hook by send_message_hooks, consume_message_hooks or end_transaction_hooks"
            )
        inner: Any = consumer if isinstance(consumer, SimpleConsumer | LitePullConsumer) else consumer._client
        namespace = inner._config.namespace
        fixed: Attributes = {
            "messaging.rocketmq.namespace": namespace,
            "messaging.consumer.group.name": unwrap(namespace, inner.group),
            "messaging.rocketmq.consumption_model": inner._config.message_model.name.lower(),
        }
        for name in _RECEIVING + _SETTLING:
            if (method := getattr(consumer, name, None)) is not None:
                setattr(consumer, name, self._watched(method, name, fixed))
        return consumer

    def _watched(self, method: Callable[..., Any], name: str, fixed: Attributes) -> Callable[..., Any]:
        def before(args: Sequence[Any]) -> _Operation:
            settled = _messages_among(args)
            operation_name = "ack" if name == "ack_all" else name
            kind = "receive" if name in _RECEIVING else "settle"
            attributes = _described(operation_name, kind, "", settled) | fixed
            if name == "ack_all":
                attributes["messaging.batch.message_count"] = len(settled)
            return self._start(attributes, SpanKind.CLIENT, _links(settled))

        def after(operation: _Operation, result: Any) -> None:
            if name in _RECEIVING:
                if not result:  # no message was delivered, so nobody would end a span
                    return
                attributes = _described(name, "receive", "", result) | fixed
                attributes["messaging.batch.message_count"] = len(result)
                operation.span.update_name(_name(attributes))
                operation.span.set_attributes(attributes)
                for link in _links(result):
                    operation.span.add_link(link.context)
                operation = operation._replace(attributes=attributes)
            self._end(operation, None, consumed=len(result) if name in _RECEIVING else 0)

        if inspect.iscoroutinefunction(method):

            @functools.wraps(method)
            async def call_async(*args: Any, **kwargs: Any) -> Any:
                operation = before(args)
                try:
                    result = await method(*args, **kwargs)
                except Exception as error:
                    self._end(operation, error)
                    raise
                after(operation, result)
                return result

            return call_async

        @functools.wraps(method)
        def call(*args: Any, **kwargs: Any) -> Any:
            operation = before(args)
            try:
                result = method(*args, **kwargs)
            except Exception as error:
                self._end(operation, error)
                raise
            after(operation, result)
            return result

        return call

    # --- spans ---

    def _start(
        self, attributes: Attributes, kind: SpanKind, links: Sequence[Link], parent: Context | None = None
    ) -> _Operation:
        span = self._tracer.start_span(_name(attributes), parent, kind=kind, attributes=attributes, links=links)
        return _Operation(span, attributes, 0 if self._clock is None else self._clock.monotonic_ns())

    def _end(
        self,
        operation: _Operation,
        failed: Exception | str | None,
        *,
        sent: int = 0,
        consumed: int = 0,
        is_processing: bool = False,
    ) -> None:
        span, attributes = operation.span, operation.attributes
        if failed is not None:
            attributes = attributes | {"error.type": _error_type(failed)}
            span.set_attribute("error.type", _error_type(failed))
            span.set_status(Status(StatusCode.ERROR, str(failed)))
            if isinstance(failed, Exception):
                span.record_exception(failed)
        span.end()
        if self._metrics is not None:
            seconds = None if self._clock is None else (self._clock.monotonic_ns() - operation.started_ns) / 1e9
            self._metrics.count(attributes, sent, consumed, seconds, is_processing=is_processing)


class _Metrics:
    """The metrics that OpenTelemetry's semantic conventions define for messaging clients."""

    def __init__(self, meter: Meter) -> None:
        self._sent = meter.create_counter(
            "messaging.client.sent.messages", "{message}", "Messages that a producer tried to send."
        )
        self._consumed = meter.create_counter(
            "messaging.client.consumed.messages", "{message}", "Messages that were given to the application."
        )
        self._operations = meter.create_histogram(
            "messaging.client.operation.duration",
            "s",
            "Duration of sends, receives and settlements.",
            explicit_bucket_boundaries_advisory=_BOUNDS,
        )
        self._processing = meter.create_histogram(
            "messaging.process.duration",
            "s",
            "Duration of listener calls.",
            explicit_bucket_boundaries_advisory=_BOUNDS,
        )

    def count(
        self, attributes: Attributes, sent: int, consumed: int, seconds: float | None, *, is_processing: bool
    ) -> None:
        own = {name: attributes[name] for name in _OF_METRICS if name in attributes}
        typeless = {name: value for name, value in own.items() if name != "messaging.operation.type"}
        if sent:
            self._sent.add(sent, typeless)
        if consumed:
            self._consumed.add(consumed, typeless)
        if seconds is not None:
            if is_processing:
                self._processing.record(seconds, typeless)
            else:
                self._operations.record(seconds, own)


# --- names of the conventions ---


def _described(operation: str, kind: str | None, namespace: str, messages: Sequence[Message]) -> Attributes:
    """Return what an operation is, and what all of its messages have in common."""
    found: Attributes = {
        "messaging.system": "rocketmq",
        "messaging.operation.name": operation,
        "messaging.rocketmq.namespace": namespace,
    }
    if kind is not None:
        found["messaging.operation.type"] = kind
    topics = {message.topic for message in messages}
    if len(topics) == 1:
        found["messaging.destination.name"] = unwrap(namespace, topics.pop())
    if len(messages) > 1:
        found["messaging.batch.message_count"] = len(messages)
    elif messages:
        found |= _one(messages[0])
    return found


def _one(message: Message) -> Attributes:
    """Return what the conventions say of a single message."""
    properties = message.properties
    found: Attributes = {
        "messaging.message.body.size": len(message.body),
        "messaging.rocketmq.message.type": _type(message),
    }
    if isinstance(message, MessageExt):
        found["messaging.message.id"] = message.msg_id
    if message.tags:
        found["messaging.rocketmq.message.tag"] = message.tags
    if message.keys:
        found["messaging.rocketmq.message.keys"] = message.keys.split()
    if group := properties.get(const.PROPERTY_SHARDING_KEY):
        found["messaging.rocketmq.message.group"] = group
    if conversation := properties.get(const.PROPERTY_CORRELATION_ID):
        found["messaging.message.conversation_id"] = conversation
    if message.deliver_time_ms:
        found["messaging.rocketmq.message.delivery_timestamp"] = message.deliver_time_ms
    elif message.delay_level:
        found["messaging.rocketmq.message.delay_time_level"] = message.delay_level
    return found


def _type(message: Message) -> str:
    if message.properties.get(const.PROPERTY_TRANSACTION_PREPARED) == "true":
        return "transaction"
    if message.delay_level or message.delay_time_ms or message.deliver_time_ms:
        return "delay"
    return "fifo" if message.properties.get(const.PROPERTY_SHARDING_KEY) else "normal"


def _place(queue: MessageQueue, address: str = "") -> Attributes:
    """Return which queue of the topic it is: its number is unique only together with its broker's name."""
    return {"messaging.destination.partition.id": f"{queue.broker_name}/{queue.queue_id}"} | _server(address)


def _server(address: str) -> Attributes:
    if not address:
        return {}
    host, port = split_address(address)
    return {"server.address": host, "server.port": port}


def _name(attributes: Attributes) -> str:
    """Return the name of a span."""
    return " ".join(
        str(attributes[part])
        for part in ("messaging.operation.name", "messaging.destination.name")
        if part in attributes
    )


def _creation_context(message: Message) -> SpanContext | None:
    """Return the context that a message brings; None if it brings none."""
    found = trace.get_current_span(extract(message.properties, Context())).get_span_context()
    return found if found.is_valid else None


def _links(messages: Sequence[Message]) -> list[Link]:
    return [Link(found) for message in messages if (found := _creation_context(message)) is not None]


def _messages_among(args: Sequence[Any]) -> list[Message]:
    """Return the messages among the arguments of a call."""
    first = args[0] if args else ()
    return [one for one in (first if isinstance(first, Sequence) else [first]) if isinstance(one, Message)]


def _error_type(failed: Exception | str) -> str:
    """Return the class of an error: the name of a broker's response code, or of the exception's class."""
    if isinstance(failed, str):
        return failed
    if isinstance(failed, SendFailedError) and isinstance(failed.__cause__, Exception):
        failed = failed.__cause__
    if isinstance(failed, BrokerError):
        return ResponseCode(failed.code).name if failed.code in set(ResponseCode) else str(failed.code)
    return type(failed).__name__
