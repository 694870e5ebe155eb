"""SendMessage and RecallMessage.

The messages of one call become one request each, all in one arrival at the broker, which stores them together.

Source:
    proxy/grpc/v2/producer/{SendMessageActivity,RecallMessageActivity}.java, proxy/processor/ProducerProcessor.java.
"""

from collections.abc import Callable
from typing import Final

from maxq.codes import RequestCode, ResponseCode
from maxq.config.proxy_config import ProxyConfig
from maxq.errors import RemoteProtocolError
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.protocol.grpc import messages as pb
from maxq.protocol.header.send import (
    RecallMessageRequestHeader,
    SendMessageRequestHeader,
    SendMessageResponseHeader,
)
from maxq.protocol.message import message_const as const
from maxq.protocol.message.java_hash import java_hash
from maxq.protocol.message.message_properties import encode_properties
from maxq.protocol.message.recall_handle import RecallHandle
from maxq.protocol.namespace import DLQ_PREFIX, RETRY_PREFIX
from maxq.proxy.brokers import MIXED, Brokers, TopicView
from maxq.proxy.context import Context
from maxq.proxy.message_codec import body_and_flag, stored_properties, type_name, type_of
from maxq.proxy.producer.plain_sends_cy import PlainSend
from maxq.proxy.statuses import OK, CallRefusedError, refusal_of_reply, status, status_of_error, status_of_reply
from maxq.proxy.transactions import transaction_id
from maxq.proxy.validation import check_parts, topic_name
from maxq.runtime.interfaces import Clock

_DEFAULT_TOPIC: Final = "TBW102"
_DEFAULT_QUEUES: Final = 4

#: Codes of sends that were stored and are not as safe as the settings promise.
_UNSAFE: Final = {
    ResponseCode.FLUSH_DISK_TIMEOUT: (pb.Code.MASTER_PERSISTENCE_TIMEOUT, "FLUSH_DISK_TIMEOUT"),
    ResponseCode.FLUSH_SLAVE_TIMEOUT: (pb.Code.SLAVE_PERSISTENCE_TIMEOUT, "FLUSH_SLAVE_TIMEOUT"),
    ResponseCode.SLAVE_NOT_AVAILABLE: (pb.Code.HA_NOT_AVAILABLE, "SLAVE_NOT_AVAILABLE"),
}


class Sending:
    """Serves producers."""

    def __init__(self, brokers: Brokers, config: Callable[[], ProxyConfig], clock: Clock) -> None:
        self._brokers = brokers
        self._config = config
        self._clock = clock

    def send(self, context: Context, request: pb.SendMessageRequest) -> None:
        """Store messages of one topic."""
        messages = request.messages
        count = len(messages)
        if not count:
            raise CallRefusedError(pb.Code.MESSAGE_CORRUPTED, "no message to send")
        check_parts(count)
        first = messages[0]
        topic = topic_name(first.topic)
        for message in messages:
            if count > 1 and message.topic != first.topic:
                raise CallRefusedError(pb.Code.MESSAGE_CORRUPTED, "topic in message is not same")
        view = self._writable(topic)
        commands = [self._command(context, message, view) for message in messages]
        answer = _SendAnswer(context, count)
        for number, (broker_name, command) in enumerate(commands):
            system = messages[number].system_properties
            opens_transaction = system.message_type == pb.MessageType.TRANSACTION
            waits = _Sent(answer, number, system.message_id, opens_transaction, broker_name)
            try:
                context.client.ask(broker_name, command, waits.answered)
            except Exception as error:
                answer.put(number, pb.SendResultEntry(status=status_of_error(error)))

    @staticmethod
    def answer_plain(context: Context, sent: PlainSend, reply: RemotingCommand | None) -> None:
        """Answer a call whose message went to the broker on the compiled way by an answer that is not plain."""
        _Sent(_SendAnswer(context, 1), 0, sent.message_id, False, sent.broker_name).answered(reply)

    def _writable(self, topic: str) -> TopicView:
        view = self._brokers.topic(topic)
        if view is None:
            raise CallRefusedError(
                pb.Code.TOPIC_NOT_FOUND, f"No topic route info in name server for the topic: {topic}"
            )
        if not view.write_queues:
            raise CallRefusedError(pb.Code.FORBIDDEN, "no writable queue")
        return view

    def _command(self, context: Context, message: pb.Message, view: TopicView) -> tuple[str, RemotingCommand]:
        """Return the broker for a message, and the request that stores it there."""
        config, now_ms = self._config(), self._clock.wall_ms()
        topic = view.topic
        body, flag = body_and_flag(message, self._brokers.max_message_size, config)
        host = context.call.connection.remote_address
        properties = stored_properties(message, topic, host, now_ms, config)
        self._check_type(view, properties)
        group = message.system_properties.message_group
        if group:
            broker_name, queue_id = view.write_queues[consistent_hash(java_hash(group), len(view.write_queues))]
        else:
            broker_name, queue_id = view.queue_in_turn()
        born_ms = properties.get(const.PROPERTY_BORN_TIMESTAMP)
        header = SendMessageRequestHeader(
            topic, topic, _DEFAULT_TOPIC, _DEFAULT_QUEUES, queue_id, flag,
            now_ms if born_ms is None else int(born_ms), 0, encode_properties(properties), 0, False, False,
        )  # fmt: skip
        return broker_name, RemotingCommand(RequestCode.SEND_MESSAGE_V2, header.encode_v2(), body)

    def _check_type(self, view: TopicView, properties: dict[str, str]) -> None:
        expected = view.message_type
        if (
            expected == MIXED
            or not self._config().grpc_topic_message_type_check
            or const.PROPERTY_TRANSFER_FLAG in properties
        ):
            return
        actual = type_name(type_of(properties))
        if actual != expected and not view.topic.startswith((RETRY_PREFIX, DLQ_PREFIX)):
            raise CallRefusedError(
                pb.Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
                f"TopicMessageType validate failed, the expected type is {expected}, but actual type is {actual}",
            )

    # --- recall ------------------------------------------------------------------------------------------------------

    def recall(self, context: Context, request: pb.RecallMessageRequest) -> None:
        """Take back a message that is not due yet."""
        topic = topic_name(request.topic)
        try:
            handle = RecallHandle.decode(request.recall_handle)
        except RemoteProtocolError as error:
            raise CallRefusedError(pb.Code.BAD_REQUEST, str(error)) from None
        header = RecallMessageRequestHeader(topic, request.recall_handle, topic)
        command = RemotingCommand(RequestCode.RECALL_MESSAGE, header.encode())
        context.client.ask(handle.broker_name, command, context.guarded(self._recalled, context))

    @staticmethod
    def _recalled(context: Context, reply: RemotingCommand | None) -> None:
        if reply is None or reply.code != ResponseCode.SUCCESS:
            raise refusal_of_reply(reply)
        context.answer(pb.RecallMessageResponse(status=OK, message_id=reply.ext.get("msgId", "")))


class _SendAnswer:
    """The answer to one call, with a place for each message."""

    __slots__ = ("_context", "_entries", "_left")

    def __init__(self, context: Context, count: int) -> None:
        self._context = context
        self._entries: list[pb.SendResultEntry | None] = [None] * count
        self._left = count

    def put(self, number: int, entry: pb.SendResultEntry) -> None:
        """Put what became of a message into its place; with the last one the call is answered."""
        self._entries[number] = entry
        self._left -= 1
        if self._left:
            return
        entries = [entry for entry in self._entries if entry is not None]
        codes = {entry.status.code for entry in entries}
        if len(codes) > 1:
            told = status(pb.Code.MULTIPLE_RESULTS)
        else:
            told = entries[0].status
        self._context.answer(pb.SendMessageResponse(status=told, entries=entries))


class _Sent:
    """One message on its way to a broker."""

    __slots__ = ("_answer", "_broker_name", "_message_id", "_number", "_opens_transaction")

    def __init__(
        self, answer: _SendAnswer, number: int, message_id: str, opens_transaction: bool, broker_name: str
    ) -> None:
        self._answer = answer
        self._number = number
        self._message_id = message_id
        self._opens_transaction = opens_transaction
        self._broker_name = broker_name

    def answered(self, reply: RemotingCommand | None) -> None:
        try:
            entry = self._entry(reply)
        except Exception as error:
            entry = pb.SendResultEntry(status=status_of_error(error))
        self._answer.put(self._number, entry)

    def _entry(self, reply: RemotingCommand | None) -> pb.SendResultEntry:
        if reply is None or reply.code != ResponseCode.SUCCESS:
            unsafe = None if reply is None else _UNSAFE.get(ResponseCode(reply.code)) if reply.code in _UNSAFE else None
            if unsafe is None:
                return pb.SendResultEntry(status=status_of_reply(reply))
            return pb.SendResultEntry(status=status(unsafe[0], f"send message failed, sendStatus={unsafe[1]}"))
        header = SendMessageResponseHeader.decode(reply.ext)
        entry = pb.SendResultEntry(status=OK, message_id=self._message_id, offset=header.queue_offset)
        if self._opens_transaction:
            entry.transaction_id = transaction_id(self._message_id, self._broker_name, header)
        elif header.transaction_id:
            entry.transaction_id = header.transaction_id
        if header.recall_handle:
            entry.recall_handle = header.recall_handle
        return entry


def consistent_hash(value: int, buckets: int) -> int:
    """Return the bucket of an int64 as Guava's Hashing.consistentHash does, so that the messages of a group go to the
    same queue whichever proxy takes them."""
    state = value & 0xFFFFFFFFFFFFFFFF
    candidate = 0
    while True:
        state = (2862933555777941757 * state + 1) & 0xFFFFFFFFFFFFFFFF
        upper = state >> 33
        following = int((candidate + 1) / ((upper + 1) / 0x80000000))
        if not 0 <= following < buckets:
            return candidate
        candidate = following
