"""The hooks that make trace records: of sends, ends of transactions, listener calls, recalls.

Sends are traced when they are stored (Java's clients, too, do not trace failures), unless the broker says not to
(TRACE_ON=false). Hooks are called where sends and listeners run and only append to the dispatcher.

Source: apache/rocketmq client/trace/hook/*.java. Other than Java's: listener calls with messages of a batch, which have
no region, are traced as of the default region; recalls are traced without a system property.
"""

from maxq.client.hooks import (
    ConsumeMessageContext,
    ConsumeReturnType,
    EndTransactionContext,
    SendMessageContext,
)
from maxq.client.results.send_result import SendStatus
from maxq.client.trace.async_trace_dispatcher import AsyncTraceDispatcher
from maxq.protocol.message import message_const as const
from maxq.protocol.message.message import Message, MessageExt
from maxq.protocol.message.message_trace import DEFAULT_REGION, ContextCode, TracedMessageType, TraceRecord, TraceType
from maxq.protocol.namespace import unwrap

_STARTED = "maxq.trace.started"
_BEFORE = "maxq.trace.before"
_CODES = {
    ConsumeReturnType.SUCCESS: ContextCode.SUCCESS,
    ConsumeReturnType.TIME_OUT: ContextCode.TIME_OUT,
    ConsumeReturnType.EXCEPTION: ContextCode.EXCEPTION,
    ConsumeReturnType.FAILED: ContextCode.FAILED,
}
_DELAYS = (
    const.PROPERTY_DELAY_TIME_LEVEL,
    const.PROPERTY_TIMER_DELAY_SEC,
    const.PROPERTY_TIMER_DELAY_MS,
    const.PROPERTY_TIMER_DELIVER_MS,
)


class SendMessageTraceHook:
    """Records a trace (type Pub) of each message that a producer sends."""

    def __init__(self, dispatcher: AsyncTraceDispatcher) -> None:
        self._dispatcher = dispatcher

    def send_message_before(self, context: SendMessageContext) -> None:
        context.props[_STARTED] = self._dispatcher.clock.wall_ms()

    def send_message_after(self, context: SendMessageContext) -> None:
        result, started_ms = context.send_result, context.props.get(_STARTED)
        dispatcher = self._dispatcher
        if result is None or not result.trace_on or not isinstance(started_ms, int):
            return
        first = context.messages[0]
        if not dispatcher.is_traced(first.topic):
            return
        is_batch = len(context.messages) > 1
        record = TraceRecord(
            TraceType.PUB,
            timestamp=started_ms,
            region_id=result.region_id,
            group_name=unwrap(context.namespace, context.producer_group),
            topic=unwrap(context.namespace, first.topic),
            msg_id=result.msg_id,
            tags=None if is_batch else first.tags,
            keys=None if is_batch else first.keys,
            store_host=context.broker_address,
            body_length=sum(len(message.body) for message in context.messages),
            cost_time_ms=dispatcher.clock.wall_ms() - started_ms,
            message_type=_type_of(first),
            offset_msg_id=result.offset_msg_id,
            success=result.send_status is SendStatus.SEND_OK,
        )
        dispatcher.append([record])


def _type_of(message: Message) -> TracedMessageType:
    properties = message.properties
    if properties.get(const.PROPERTY_TRANSACTION_PREPARED) == "true":
        return TracedMessageType.TRANSACTION_HALF
    if any(name in properties for name in _DELAYS):
        return TracedMessageType.DELAY
    return TracedMessageType.NORMAL


class EndTransactionTraceHook:
    """Makes an EndTransaction record for each end of a transaction that is reported to a broker."""

    def __init__(self, dispatcher: AsyncTraceDispatcher) -> None:
        self._dispatcher = dispatcher

    def end_transaction(self, context: EndTransactionContext) -> None:
        dispatcher, message = self._dispatcher, context.message
        if not dispatcher.is_traced(message.topic):
            return
        record = TraceRecord(
            TraceType.END_TRANSACTION,
            timestamp=dispatcher.clock.wall_ms(),
            region_id=message.properties.get(const.PROPERTY_MSG_REGION) or DEFAULT_REGION,
            group_name=unwrap(dispatcher.namespace, context.producer_group),
            topic=unwrap(dispatcher.namespace, message.topic),
            msg_id=context.msg_id,
            tags=message.tags,
            keys=message.keys,
            store_host=context.broker_address,
            message_type=TracedMessageType.TRANSACTION_COMMIT,
            transaction_id=context.transaction_id,
            transaction_state=context.transaction_state.name,
            from_transaction_check=context.from_transaction_check,
        )
        dispatcher.append([record])


class ConsumeMessageTraceHook:
    """Makes a SubBefore and a SubAfter record for each message of each listener call."""

    def __init__(self, dispatcher: AsyncTraceDispatcher) -> None:
        self._dispatcher = dispatcher

    def consume_message_before(self, context: ConsumeMessageContext) -> None:
        dispatcher = self._dispatcher
        traced = [message for message in context.messages if _is_traced(dispatcher, message)]
        if not traced:
            return
        started_ms, request_id = dispatcher.clock.wall_ms(), dispatcher.request_id()
        group = unwrap(context.namespace, context.consumer_group)
        before = [
            TraceRecord(
                TraceType.SUB_BEFORE,
                timestamp=started_ms,
                region_id=message.properties.get(const.PROPERTY_MSG_REGION) or DEFAULT_REGION,
                group_name=group,
                topic=unwrap(context.namespace, message.topic),
                msg_id=message.msg_id,
                request_id=request_id,
                retry_times=message.reconsume_times,
                keys=message.keys,
            )
            for message in traced
        ]
        context.props[_BEFORE] = before
        dispatcher.append(before)

    def consume_message_after(self, context: ConsumeMessageContext) -> None:
        before = context.props.get(_BEFORE)
        if not isinstance(before, list) or context.return_type is None:
            return
        now_ms = self._dispatcher.clock.wall_ms()
        cost_ms = (now_ms - before[0].timestamp) // max(1, len(context.messages))
        after = [
            TraceRecord(
                TraceType.SUB_AFTER,
                timestamp=now_ms,
                group_name=begun.group_name,
                msg_id=begun.msg_id,
                request_id=begun.request_id,
                keys=begun.keys,
                cost_time_ms=cost_ms,
                success=context.success,
                context_code=_CODES[context.return_type],
            )
            for begun in before
        ]
        self._dispatcher.append(after)


def _is_traced(dispatcher: AsyncTraceDispatcher, message: MessageExt) -> bool:
    return message.properties.get(const.PROPERTY_TRACE_SWITCH) != "false" and dispatcher.is_traced(message.topic)


def recall_record(
    dispatcher: AsyncTraceDispatcher, group: str, topic: str, msg_id: str, region_id: str | None, *, success: bool
) -> TraceRecord:
    """Make the record that a producer of `group` (without a namespace) has asked a broker to take `msg_id` back."""
    return TraceRecord(
        TraceType.RECALL,
        timestamp=dispatcher.clock.wall_ms(),
        region_id=region_id or DEFAULT_REGION,
        group_name=group,
        topic=topic,
        msg_id=msg_id,
        success=success,
    )
