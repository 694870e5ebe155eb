"""ReceiveMessage: pops for simple and push consumers.

Source:
    proxy/grpc/v2/consumer/{ReceiveMessageActivity,ReceiveMessageResponseStreamWriter,PopMessageResultFilterImpl}.java,
    proxy/processor/ConsumerProcessor.java.
"""

from collections.abc import Callable
from typing import Final

from maxq.codes import RequestCode, ResponseCode
from maxq.config.proxy_config import ProxyConfig
from maxq.errors import LocalProtocolError
from maxq.lazy_dataclass import dataclass
from maxq.protocol.body.subscription import SQL92, TAG, SubscriptionData, build_subscription_data
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.protocol.grpc import messages as pb
from maxq.protocol.grpc.popped import Popped
from maxq.protocol.grpc.popped_cy import encode_popped
from maxq.protocol.header.pull import PopMessageRequestHeader, PopMessageResponseHeader
from maxq.protocol.message import message_const as const
from maxq.protocol.message.pop_extra_info import parse_start_offset_info
from maxq.protocol.message.popped import popped_messages
from maxq.proxy.brokers import Brokers, NotKnownYet
from maxq.proxy.clients import Client
from maxq.proxy.context import CLIENT_VERSION, Context
from maxq.proxy.handles import ReceiptHandle, ask_to_ack, ask_to_change, ask_to_forward, ignored
from maxq.proxy.message_codec import grpc_message, resource
from maxq.proxy.renewal import Renewal
from maxq.proxy.statuses import OK, CallRefusedError, refusal_of_reply, status, status_of_error
from maxq.proxy.validation import check_invisible_ms, group_name, milliseconds, timestamp, topic_name
from maxq.runtime.interfaces import Clock

_MOST_MESSAGES: Final = 32  # of one pop
_FROM_THE_END: Final = 1  # where a group begins that was never there (ConsumeInitMode.MAX)
_NACK_MS: Final = 1000  # after so long others get what could not be delivered
_ANY_QUEUE: Final = -1
_DEFAULT_ATTEMPTS: Final = 17
_POLLING_TIME_CODE_SINCE: Final = "5.0.3"  # clients before it do not know ILLEGAL_POLLING_TIME
_OK_ANSWER: Final = pb.ReceiveMessageResponse(status=OK).SerializeToString()


def subscription_of(topic: str, expression: pb.FilterExpression) -> SubscriptionData:
    """Return what a consumer wants of a topic. Raises CallRefusedError, ILLEGAL_FILTER_EXPRESSION."""
    kind = SQL92 if expression.type == pb.FilterType.SQL else TAG
    try:
        return build_subscription_data(topic, expression.expression, kind)
    except LocalProtocolError as error:
        raise CallRefusedError(pb.Code.ILLEGAL_FILTER_EXPRESSION, str(error)) from None


@dataclass(slots=True)
class _Pop:
    """One ReceiveMessage under way."""

    context: Context
    client: Client
    topic: str
    group: str
    broker_name: str
    subscription: SubscriptionData
    is_fifo: bool
    most_attempts: int
    renews: bool


class Receiving:
    """Serves consumers that ask for messages."""

    def __init__(self, brokers: Brokers, config: Callable[[], ProxyConfig], clock: Clock, renewal: Renewal) -> None:
        self._brokers = brokers
        self._config = config
        self._clock = clock
        self._renewal = renewal
        self._waiting: dict[Context, None] = {}
        self._ends = False

    def end_waiting(self) -> None:
        """Tell all who wait, and who will, that there is no message: the server ends."""
        self._ends = True
        for context in list(self._waiting):
            self._end(context, status(pb.Code.MESSAGE_NOT_FOUND, "the server ends"))

    def receive(self, context: Context, request: pb.ReceiveMessageRequest) -> None:
        """Give a consumer messages, or tell it after a while that there are none. The answers are a stream, also if
        they are one refusal."""
        try:
            self._pop(context, request)
        except NotKnownYet:
            raise
        except Exception as error:
            self._refuse(context, error)

    def _pop(self, context: Context, request: pb.ReceiveMessageRequest) -> None:
        config = self._config()
        polling_ms = self._polling_ms(context, request, config)
        topic, group = topic_name(request.message_queue.topic), group_name(request.group)
        renews = config.enable_proxy_auto_renew and request.auto_renew
        if renews:
            invisible_ms = config.default_invisible_time_mills
        else:
            invisible_ms = milliseconds(request.invisible_duration)
            check_invisible_ms(invisible_ms, config.min_invisible_time_mills_for_recv, config)
        subscription = subscription_of(topic, request.filter_expression)
        broker_name = self._broker_of(topic, request.message_queue.broker.name)
        settings = self._brokers.group(group)
        pop = _Pop(
            context, context.client, topic, group, broker_name, subscription,
            settings is not None and settings.consume_message_orderly,
            _DEFAULT_ATTEMPTS if settings is None else settings.retry_max_times + 1,
            renews,
        )  # fmt: skip
        header = PopMessageRequestHeader(
            group, topic, _ANY_QUEUE, min(max(request.batch_size, 1), _MOST_MESSAGES), invisible_ms, polling_ms,
            self._clock.wall_ms(), _FROM_THE_END, subscription.expression_type, subscription.sub_string, pop.is_fifo,
            request.attempt_id if request.HasField("attempt_id") else None,
        )  # fmt: skip
        if self._ends:
            raise CallRefusedError(pb.Code.MESSAGE_NOT_FOUND, "the server ends")
        command = RemotingCommand(RequestCode.POP_MESSAGE, header.encode())
        self._waiting[context] = None
        pop.client.ask(broker_name, command, lambda reply: self._popped(pop, reply))

    def _polling_ms(self, context: Context, request: pb.ReceiveMessageRequest, config: ProxyConfig) -> int:
        """Return how long the broker may wait for messages, in ms."""
        least = config.grpc_client_consumer_min_long_polling_timeout_millis
        most = max(least, config.grpc_client_consumer_max_long_polling_timeout_millis)
        remaining = context.remaining_ms
        if request.HasField("long_polling_timeout"):
            wanted = milliseconds(request.long_polling_timeout)
        elif remaining is None:
            wanted = most
        else:
            client = context.known_client
            settings = None if client is None else client.settings
            wanted = remaining - (0 if settings is None else milliseconds(settings.request_timeout) // 2)
        polling = min(max(wanted, least), most)
        if remaining is None or polling <= remaining:
            return polling
        if remaining >= least:
            return remaining
        version = context.call.metadata.get(CLIENT_VERSION, "")
        code = pb.Code.BAD_REQUEST if version < _POLLING_TIME_CODE_SINCE else pb.Code.ILLEGAL_POLLING_TIME
        raise CallRefusedError(
            code, "The deadline time remaining is not enough for polling, please check network condition"
        )

    def _broker_of(self, topic: str, name: str) -> str:
        """Return the broker to ask: the one that is named, if it has queues of the topic to read."""
        view = self._brokers.topic(topic)
        if view is None:
            raise CallRefusedError(
                pb.Code.TOPIC_NOT_FOUND, f"No topic route info in name server for the topic: {topic}"
            )
        if not view.readable:
            raise CallRefusedError(pb.Code.FORBIDDEN, "no readable queue")
        return name if name in view.readable else view.readable[0]

    # --- answers -----------------------------------------------------------------------------------------------------

    def _popped(self, pop: _Pop, reply: RemotingCommand | None) -> None:
        self._waiting.pop(pop.context, None)
        try:
            if reply is not None and reply.code == ResponseCode.SUCCESS:
                self._found(pop, reply)
            elif reply is not None and reply.code == ResponseCode.POLLING_FULL:
                self._end(pop.context, status(pb.Code.TOO_MANY_REQUESTS, "polling full"))
            elif reply is not None and reply.code in (ResponseCode.POLLING_TIMEOUT, ResponseCode.PULL_NOT_FOUND):
                self._end(pop.context, status(pb.Code.MESSAGE_NOT_FOUND, "no new message"))
            else:
                self._refuse(pop.context, refusal_of_reply(reply))
        except Exception as error:
            self._refuse(pop.context, error)

    def _found(self, pop: _Pop, reply: RemotingCommand) -> None:
        call = pop.context.call
        answers = [_OK_ANSWER]
        kept: list[tuple[Client, str]] = []
        for message in self._messages(pop, reply):
            if not self._is_for(pop, message):
                continue
            if call.is_over:
                handle = ReceiptHandle.decode(message.handle)
                ask_to_change(pop.client, handle, pop.topic, pop.group, _NACK_MS, ignored)
                continue
            answers.append(message.answer)
            if pop.renews:
                handle = ReceiptHandle.decode(message.handle)
                client = pop.context.client  # entered again if it was forgotten meanwhile
                self._renewal.keep(client, pop.topic, pop.group, handle, message.reconsume_times)
                kept.append((client, str(handle)))
        if len(answers) == 1:
            self._end(pop.context, status(pb.Code.MESSAGE_NOT_FOUND, "no match message"))
            return
        if kept:
            call.on_lost = lambda: self._lost(pop.group, kept)
        for answer in answers:
            call.send(answer)
        self._finish(pop.context)

    def _lost(self, group: str, kept: list[tuple[Client, str]]) -> None:
        """Let others have the messages of an answer soon that its client did not get."""
        for client, handle in kept:
            self._renewal.give_back(client, group, handle, _NACK_MS)

    def _messages(self, pop: _Pop, reply: RemotingCommand) -> list[Popped]:
        """Return the messages of a pop for its consumer."""
        header = PopMessageResponseHeader.decode(reply.ext)
        if not pop.is_fifo and header.start_offset_info:
            head = f"{header.pop_time} {header.invisible_time} {header.revive_qid} "
            starts = parse_start_offset_info(header.start_offset_info)
            shown = resource(pop.topic).SerializeToString()
            found = encode_popped(reply.body_bytes, pop.topic.encode(), shown, starts, head, f" {pop.broker_name} ")
            if found is not None:
                return found
        messages = []
        for message in popped_messages(reply, header, pop.topic, pop.broker_name, order=pop.is_fifo):
            handle = f"{message.properties[const.PROPERTY_POP_CK]} {message.physical_offset}"
            answer = pb.ReceiveMessageResponse(message=grpc_message(message, handle)).SerializeToString()
            messages.append(Popped(answer, handle, message.msg_id, message.tags, message.reconsume_times))
        return messages

    @staticmethod
    def _is_for(pop: _Pop, message: Popped) -> bool:
        """Return whether a message is for its consumer. One with another tag, whose hash is that of a wanted one, is
        acknowledged; one that was delivered too often becomes a dead letter."""
        subscription = pop.subscription
        if subscription.is_tag_type and subscription.tags_set and message.tag not in subscription.tags_set:
            ask_to_ack(pop.client, ReceiptHandle.decode(message.handle), pop.topic, pop.group, ignored)
            return False
        if message.reconsume_times >= pop.most_attempts:
            handle = ReceiptHandle.decode(message.handle)
            ask_to_forward(pop.client, handle, pop.topic, pop.group, message.message_id, ignored)
            return False
        return True

    def _refuse(self, context: Context, error: Exception) -> None:
        self._end(context, status_of_error(error))

    def _end(self, context: Context, told: pb.Status) -> None:
        """End a call that brings no message."""
        context.call.send(pb.ReceiveMessageResponse(status=told).SerializeToString())
        self._finish(context)

    def _finish(self, context: Context) -> None:
        now = timestamp(self._clock.wall_ms())
        context.call.send(pb.ReceiveMessageResponse(delivery_timestamp=now).SerializeToString())
        context.call.finish()
