"""PullMessage, UpdateOffset, GetOffset, QueryOffset: for programs that keep their places in queues themselves.

Java's proxy answers these calls with UNIMPLEMENTED; their messages are those of the proto files.
"""

from collections.abc import Callable
from typing import Final

from maxq.codes import RequestCode, ResponseCode
from maxq.config.proxy_config import ProxyConfig
from maxq.protocol.frame.header_fields import parse_long
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.protocol.grpc import messages as pb
from maxq.protocol.header.pull import (
    PULL_FLAG_SUBSCRIPTION,
    PULL_FLAG_SUSPEND,
    PullMessageRequestHeader,
    PullMessageResponseHeader,
)
from maxq.protocol.message.message import decode_records
from maxq.proxy.brokers import Brokers, NotKnownYet
from maxq.proxy.context import Context
from maxq.proxy.message_codec import grpc_message
from maxq.proxy.receiving import subscription_of
from maxq.proxy.statuses import OK, CallRefusedError, refusal_of_reply, status, status_of_error
from maxq.proxy.validation import group_name, milliseconds, topic_name

_MOST_MESSAGES: Final = 1024
_ENDS: Final = {
    pb.QueryOffsetPolicy.BEGINNING: RequestCode.GET_MIN_OFFSET,
    pb.QueryOffsetPolicy.END: RequestCode.GET_MAX_OFFSET,
    pb.QueryOffsetPolicy.TIMESTAMP: RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
}
_NOTHING_THERE: Final = (ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_RETRY_IMMEDIATELY)


class Pulling:
    """Serves readers that say at which offset they are."""

    def __init__(self, brokers: Brokers, config: Callable[[], ProxyConfig]) -> None:
        self._brokers = brokers
        self._config = config

    def pull(self, context: Context, request: pb.PullMessageRequest) -> None:
        """Give the messages of a queue from an offset on. The answers are a stream: status, messages, next offset."""
        try:
            self._pull(context, request)
        except NotKnownYet:
            raise
        except Exception as error:
            self._end(context, status_of_error(error), None)

    def _pull(self, context: Context, request: pb.PullMessageRequest) -> None:
        topic, group, broker_name = self._place(request.message_queue, request.group)
        if request.offset < 0:
            raise CallRefusedError(pb.Code.ILLEGAL_OFFSET, "the offset is negative")
        subscription = subscription_of(topic, request.filter_expression)
        most_ms = self._config().grpc_client_consumer_max_long_polling_timeout_millis
        polling_ms = min(max(milliseconds(request.long_polling_timeout), 0), most_ms)
        remaining = context.remaining_ms
        if remaining is not None:
            polling_ms = max(0, min(polling_ms, remaining // 2))
        flags = PULL_FLAG_SUBSCRIPTION | (PULL_FLAG_SUSPEND if polling_ms else 0)
        header = PullMessageRequestHeader(
            group, topic, request.message_queue.id, request.offset, min(max(request.batch_size, 1), _MOST_MESSAGES),
            flags, 0, polling_ms, 0, subscription.sub_string, subscription.expression_type,
        )  # fmt: skip
        command = RemotingCommand(RequestCode.PULL_MESSAGE, header.encode())
        context.client.ask(broker_name, command, lambda reply: self._pulled(context, broker_name, reply))

    def _pulled(self, context: Context, broker_name: str, reply: RemotingCommand | None) -> None:
        try:
            if reply is not None and reply.code == ResponseCode.SUCCESS:
                header = PullMessageResponseHeader.decode(reply.ext)
                messages = decode_records(reply.body_bytes, inflate=True, broker_name=broker_name)
                context.call.send(pb.PullMessageResponse(status=OK).SerializeToString())
                for message in messages:
                    context.call.send(pb.PullMessageResponse(message=grpc_message(message)).SerializeToString())
                self._end(context, None, header.next_begin_offset)
            elif reply is not None and reply.code in _NOTHING_THERE:
                following = PullMessageResponseHeader.decode(reply.ext).next_begin_offset
                self._end(context, status(pb.Code.MESSAGE_NOT_FOUND, "no new message"), following)
            elif reply is not None and reply.code == ResponseCode.PULL_OFFSET_MOVED:
                following = PullMessageResponseHeader.decode(reply.ext).next_begin_offset
                self._end(context, status(pb.Code.ILLEGAL_OFFSET, reply.remark or "offset moved"), following)
            else:
                self._end(context, status_of_error(refusal_of_reply(reply)), None)
        except Exception as error:
            self._end(context, status_of_error(error), None)

    @staticmethod
    def _end(context: Context, told: pb.Status | None, next_offset: int | None) -> None:
        if told is not None:
            context.call.send(pb.PullMessageResponse(status=told).SerializeToString())
        if next_offset is not None:
            context.call.send(pb.PullMessageResponse(next_offset=next_offset).SerializeToString())
        context.call.finish()

    def _place(self, queue: pb.MessageQueue, group: pb.Resource | None) -> tuple[str, str, str]:
        """Return topic, group and broker of a request about a queue."""
        topic = topic_name(queue.topic)
        name = "" if group is None else group_name(group)
        view = self._brokers.topic(topic)
        if view is None:
            raise CallRefusedError(
                pb.Code.TOPIC_NOT_FOUND, f"No topic route info in name server for the topic: {topic}"
            )
        if queue.broker.name not in view.brokers:
            raise CallRefusedError(
                pb.Code.BAD_REQUEST, f"broker {queue.broker.name!r:.80} has no queue of topic {topic}"
            )
        return topic, name, queue.broker.name

    # --- offsets -----------------------------------------------------------------------------------------------------

    def update_offset(self, context: Context, request: pb.UpdateOffsetRequest) -> None:
        """Store how far a group is in a queue."""
        topic, group, broker_name = self._place(request.message_queue, request.group)
        if request.offset < 0:
            raise CallRefusedError(pb.Code.ILLEGAL_OFFSET, "the offset is negative")
        fields = {
            "consumerGroup": group,
            "topic": topic,
            "queueId": str(request.message_queue.id),
            "commitOffset": str(request.offset),
        }
        command = RemotingCommand(RequestCode.UPDATE_CONSUMER_OFFSET, fields)
        context.client.ask(broker_name, command, context.guarded(self._updated, context))

    @staticmethod
    def _updated(context: Context, reply: RemotingCommand | None) -> None:
        if reply is None or reply.code != ResponseCode.SUCCESS:
            raise refusal_of_reply(reply)
        context.answer(pb.UpdateOffsetResponse(status=OK))

    def get_offset(self, context: Context, request: pb.GetOffsetRequest) -> None:
        """Tell how far a group is in a queue."""
        topic, group, broker_name = self._place(request.message_queue, request.group)
        fields = {"consumerGroup": group, "topic": topic, "queueId": str(request.message_queue.id)}
        command = RemotingCommand(RequestCode.QUERY_CONSUMER_OFFSET, fields)
        context.client.ask(broker_name, command, context.guarded(self._told_offset, context, pb.GetOffsetResponse))

    def query_offset(self, context: Context, request: pb.QueryOffsetRequest) -> None:
        """Tell where a queue begins, ends, or was at a moment."""
        topic, _, broker_name = self._place(request.message_queue, None)
        code = next((code for policy, code in _ENDS.items() if policy == request.query_offset_policy), None)
        if code is None:
            raise CallRefusedError(pb.Code.BAD_REQUEST, "the policy is none of BEGINNING, END and TIMESTAMP")
        fields = {"topic": topic, "queueId": str(request.message_queue.id)}
        if code == RequestCode.SEARCH_OFFSET_BY_TIMESTAMP:
            fields["timestamp"] = str(milliseconds(request.timestamp))
        command = RemotingCommand(code, fields)
        context.client.ask(broker_name, command, context.guarded(self._told_offset, context, pb.QueryOffsetResponse))

    @staticmethod
    def _told_offset(
        context: Context,
        answer_type: type[pb.GetOffsetResponse] | type[pb.QueryOffsetResponse],
        reply: RemotingCommand | None,
    ) -> None:
        if reply is not None and reply.code == ResponseCode.QUERY_NOT_FOUND:
            raise CallRefusedError(pb.Code.OFFSET_NOT_FOUND, reply.remark or "the group has no offset there")
        offset = None if reply is None else parse_long(reply.ext.get("offset", ""))
        if reply is None or reply.code != ResponseCode.SUCCESS or offset is None:
            raise refusal_of_reply(reply)
        context.answer(answer_type(status=OK, offset=offset))
