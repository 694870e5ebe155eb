"""AckMessage, ChangeInvisibleDuration, ForwardMessageToDeadLetterQueue.

Source:
    proxy/grpc/v2/consumer/{AckMessageActivity,ChangeInvisibleDurationActivity}.java,
    proxy/grpc/v2/producer/ForwardMessageToDLQActivity.java.
"""

from collections.abc import Callable, Iterable

from maxq.codes import ResponseCode
from maxq.config.proxy_config import ProxyConfig
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.protocol.grpc import messages as pb
from maxq.proxy.brokers import OnReply
from maxq.proxy.context import Context
from maxq.proxy.handles import ReceiptHandle, ask_to_ack, ask_to_ack_all, ask_to_change, ask_to_forward, changed_handle
from maxq.proxy.renewal import Renewal
from maxq.proxy.statuses import OK, CallRefusedError, status, status_of_error, status_of_reply
from maxq.proxy.validation import check_invisible_ms, check_parts, group_name, milliseconds, topic_name
from maxq.runtime.interfaces import Clock


class Receipts:
    """Serves consumers that have received messages."""

    def __init__(self, config: Callable[[], ProxyConfig], clock: Clock, renewal: Renewal) -> None:
        self._config = config
        self._clock = clock
        self._renewal = renewal

    def valid(self, text: str, now_ms: int | None = None) -> ReceiptHandle:
        """Decode a handle. Raises CallRefusedError, INVALID_RECEIPT_HANDLE, if it is none, or has expired."""
        handle = ReceiptHandle.decode(text)
        if handle.visible_again_ms <= (self._clock.wall_ms() if now_ms is None else now_ms):
            raise CallRefusedError(pb.Code.INVALID_RECEIPT_HANDLE, "receipt handle is expired")
        return handle

    # --- ack ---------------------------------------------------------------------------------------------------------

    def ack(self, context: Context, request: pb.AckMessageRequest) -> None:
        """Acknowledge messages. Those of one broker are one request, if there are several."""
        topic, group = topic_name(request.topic), group_name(request.group)
        entries = request.entries
        if not entries:
            raise CallRefusedError(pb.Code.INTERNAL_SERVER_ERROR, "ack message result is empty")
        check_parts(len(entries))
        client = context.client
        self._renewal.wait_for(client, group, (entry.receipt_handle for entry in entries))
        now_ms, is_one = self._clock.wall_ms(), len(entries) == 1
        answer = _AckAnswer(context, entries, len(entries))
        together: dict[str, dict[int, ReceiptHandle]] = {}
        for number, entry in enumerate(entries):
            try:
                handle = self.valid(self._renewal.take(client, group, entry.receipt_handle), now_ms)
                if not is_one and handle.may_be_in_batch:
                    together.setdefault(handle.broker_name, {})[number] = handle
                else:
                    ask_to_ack(client, handle, topic, group, answer.of([number]))
            except Exception as error:
                answer.put([number], status_of_error(error))
        for broker_name, handles in together.items():
            try:
                ask_to_ack_all(client, broker_name, handles.values(), topic, group, answer.of(list(handles)))
            except Exception as error:
                answer.put(list(handles), status_of_error(error))

    # --- other invisible time ----------------------------------------------------------------------------------------

    def change_invisible_duration(self, context: Context, request: pb.ChangeInvisibleDurationRequest) -> None:
        """Set after how long others may get a message."""
        topic, group = topic_name(request.topic), group_name(request.group)
        invisible_ms = milliseconds(request.invisible_duration)
        check_invisible_ms(invisible_ms, 0, self._config())
        client = context.client
        self._renewal.wait_for(client, group, [request.receipt_handle])
        handle = self.valid(self._renewal.take(client, group, request.receipt_handle))
        replied = context.guarded(self._changed, context, handle)
        ask_to_change(client, handle, topic, group, invisible_ms, replied, suspend=request.suspend)

    @staticmethod
    def _changed(context: Context, handle: ReceiptHandle, reply: RemotingCommand | None) -> None:
        changed = changed_handle(handle, reply)
        context.answer(pb.ChangeInvisibleDurationResponse(status=OK, receipt_handle=str(changed)))

    # --- dead letters ------------------------------------------------------------------------------------------------

    def forward(self, context: Context, request: pb.ForwardMessageToDeadLetterQueueRequest) -> None:
        """Put a message into its group's dead letters, and acknowledge it."""
        topic, group = topic_name(request.topic), group_name(request.group)
        client = context.client
        self._renewal.wait_for(client, group, [request.receipt_handle])
        handle = self.valid(self._renewal.take(client, group, request.receipt_handle))
        told = context.guarded(self._forwarded, context)
        ask_to_forward(client, handle, topic, group, request.message_id, told)

    @staticmethod
    def _forwarded(context: Context, reply: RemotingCommand | None) -> None:
        context.answer(pb.ForwardMessageToDeadLetterQueueResponse(status=status_of_reply(reply)))


class _AckAnswer:
    """The answer to one call, with a place for each message."""

    __slots__ = ("_answer", "_codes", "_context", "_left")

    def __init__(self, context: Context, entries: Iterable[pb.AckMessageEntry], count: int) -> None:
        self._context = context
        self._answer = pb.AckMessageResponse()
        for entry in entries:
            self._answer.entries.add(message_id=entry.message_id, receipt_handle=entry.receipt_handle)
        self._codes: set[int] = set()
        self._left = count

    def of(self, numbers: list[int]) -> OnReply:
        """Return the function that hears of the broker's answer for the messages with these numbers."""

        def answered(reply: RemotingCommand | None) -> None:
            told = status_of_reply(reply)
            if reply is not None and reply.code == ResponseCode.NO_MESSAGE:
                told = status(pb.Code.INVALID_RECEIPT_HANDLE, reply.remark or "the broker knows no such receipt")
            self.put(numbers, told)

        return answered

    def put(self, numbers: list[int], told: pb.Status) -> None:
        """Enter what became of messages; with the last ones the call is answered."""
        entries = self._answer.entries
        for number in numbers:
            entries[number].status.CopyFrom(told)
        self._codes.add(told.code)
        self._left -= len(numbers)
        if self._left:
            return
        codes = self._codes
        whole = status(pb.Code.MULTIPLE_RESULTS) if len(codes) > 1 else status(pb.Code(codes.pop()))
        self._answer.status.CopyFrom(whole)
        self._context.answer(self._answer)
