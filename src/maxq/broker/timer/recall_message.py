"""RecallMessageProcessor: RECALL_MESSAGE (370), a timer message is taken back before it is due.

The handle came with the answer to the send: base64url of `v1 topic brokerName deliverMs UNIQ_KEY`, blanks between. A
recall stores a marker that is due when the message is; the timer then leaves the message out. A message whose time is
still to come may have been delivered if the clock was set back since: its recall is refused, also where nobody can tell
because there is no index.

Source:
    broker/processor/RecallMessageProcessor.java, common/producer/RecallMessageHandle.java.
"""

from collections.abc import Callable, Mapping
from typing import Final

from maxq.broker.bundles import Environment, Messages, Tables
from maxq.broker.processors.acknowledgement import remark_of
from maxq.broker.processors.refusal import Refusal
from maxq.broker.processors.send.put_outcome import put_refusal
from maxq.broker.processors.support import RequestProcessor
from maxq.codes import RequestCode, ResponseCode
from maxq.errors import RemoteProtocolError
from maxq.protocol.body.topic_config import PERM_WRITE
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.protocol.header.send import RecallMessageRequestHeader, RecallMessageResponseHeader
from maxq.protocol.message import message_const as const
from maxq.protocol.message.message import decode_record
from maxq.protocol.message.recall_handle import RecallHandle
from maxq.remoting.connection import Connection, Processor
from maxq.store.append.message_ext_broker_inner import MessageExtBrokerInner
from maxq.store.timer.roll_window import PRECISIONS
from maxq.store.timer.timer_record import delete_key, long_of

RECALL_MESSAGE_TAG: Final = "_RECALL_TAG_"
LATEST_MS: Final = 1 << 62
_COPIES_MOST: Final = 32
_BODY: Final = b"0"


class RecallMessageProcessor(RequestProcessor):
    """Answers RECALL_MESSAGE (370)."""

    def __init__(
        self, env: Environment, tables: Tables, messages: Messages, may_be_delivered: Callable[[int], bool]
    ) -> None:
        """`may_be_delivered` tells whether the timer may have delivered what is due at a time (wall ms) to come."""
        self._may_be_delivered = may_be_delivered
        self._settings = env.settings
        self._store = messages.store
        self._acknowledgement = messages.acknowledgement
        self._topics = tables.topics
        self._broker = env.own
        self._clock = env.clock
        self._hooks = messages.hooks

    def routes(self) -> Mapping[int, Processor]:
        return {RequestCode.RECALL_MESSAGE: self.recall}

    async def recall(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Recall a message. The answer carries its UNIQ_KEY, and is sent when the marker is as safe as the settings
        promise."""
        header = RecallMessageRequestHeader.decode(request.ext)
        refusal = self._forbidden()
        if refusal is not None:
            return refusal.reply_to(request)
        if self._topics.select_topic_config(header.topic) is None:
            remark = f"recall failed, the topic[{header.topic}] not exist"
            return request.reply(ResponseCode.TOPIC_NOT_EXIST, remark)
        handle = self._handle(header)
        if isinstance(handle, Refusal):
            return handle.reply_to(request)
        if self._may_be_delivered(handle.deliver_ms) and (refusal := await self._was_delivered(handle)) is not None:
            return refusal.reply_to(request)
        return await self.cancel(request, handle, connection.remote_host, header.producer_group or "")

    async def _was_delivered(self, handle: RecallHandle) -> Refusal | None:
        """Return the refusal to recall a timer message if the index finds its copy in its topic, or if there is no
        index to look into; None if the message was not delivered."""
        if not self._settings.store.message_index_enable:
            return _illegal(
                "recall failed, the message may have been delivered before the clock was set back: without an index "
                "(messageIndexEnable is false) this cannot be told"
            )
        await self._store.wait_for_dispatch()
        found = self._store.query_message(handle.topic, handle.message_id, _COPIES_MOST, 0, LATEST_MS)
        for copy in map(decode_record, found.buffers):
            out_ms = long_of(copy.properties.get(const.PROPERTY_TIMER_OUT_MS))
            # timerPrecisionMs, to which it was rounded down, may have been another one
            is_due_then = out_ms is not None and 0 < handle.deliver_ms - out_ms <= max(PRECISIONS)
            if copy.uniq_key == handle.message_id and is_due_then:
                return _illegal("recall failed, the message was delivered before the clock was set back")
        return None

    async def cancel(
        self, request: RemotingCommand, handle: RecallHandle, born_host: bytes, producer_group: str
    ) -> RemotingCommand:
        """Store the marker; the answer tells whether it was stored."""
        message = self._marker(handle, born_host, producer_group)
        refusal = self._hooks.apply(message)
        if refusal is not None:
            return refusal.reply_to(request)
        result = self._store.put_message(message)
        if not result.ok:
            refused = put_refusal(result, self._settings.store)
            return request.reply(refused.code, f"recall failed, {refused.remark}")
        outcome = self._acknowledgement.outcome(result.end_offset)
        if outcome is not None and (code := await outcome) is not ResponseCode.SUCCESS:
            what = remark_of(code, "the recall", "the message is delivered all the same")
            return request.reply(code, f"recall failed: {what}; recall it again")
        return request.reply(ext=RecallMessageResponseHeader(handle.message_id).encode())

    def _forbidden(self) -> Refusal | None:
        broker, store = self._settings.broker, self._settings.store
        if not broker.recall_message_enable:
            return Refusal(
                ResponseCode.NO_PERMISSION, "recall failed, operation is forbidden: recallMessageEnable is false"
            )
        if store.broker_role == "SLAVE":
            return Refusal(
                ResponseCode.SLAVE_NOT_AVAILABLE, "recall failed, broker service not available: this broker is a SLAVE"
            )
        if self._clock.wall_ms() < broker.start_accept_send_request_time_stamp:
            return Refusal(
                ResponseCode.SERVICE_NOT_AVAILABLE,
                "recall failed, broker service not available until startAcceptSendRequestTimeStamp="
                f"{broker.start_accept_send_request_time_stamp}",
            )
        if not broker.broker_permission & PERM_WRITE and not broker.allow_recall_when_broker_not_writeable:
            return Refusal(
                ResponseCode.SERVICE_NOT_AVAILABLE,
                f"recall failed, broker service not available: brokerPermission is {broker.broker_permission} and "
                "allowRecallWhenBrokerNotWriteable is false",
            )
        return None

    def _handle(self, header: RecallMessageRequestHeader) -> RecallHandle | Refusal:
        try:
            handle = RecallHandle.decode(header.recall_handle)
        except RemoteProtocolError as error:
            return _illegal(str(error))
        if handle.topic != header.topic:
            return _illegal(f"recall failed, topic not match: the handle is of {handle.topic}")
        if handle.broker_name != self._broker.broker_name:
            return _illegal(
                f"recall failed, broker service not available: the handle is of {handle.broker_name}, this is "
                f"{self._broker.broker_name}"
            )
        left_ms = handle.deliver_ms - self._clock.wall_ms()
        most_ms = self._settings.store.timer_max_delay_sec * 1000
        if not 0 < left_ms < most_ms:
            return _illegal(f"recall failed, timestamp invalid: {left_ms} ms are left, of at most {most_ms}")
        return handle

    def _marker(self, handle: RecallHandle, born_host: bytes, producer_group: str) -> MessageExtBrokerInner:
        key = handle.message_id
        if self._settings.store.append_topic_for_timer_delete_key:
            key = delete_key(handle.topic, key)
        now = self._clock.wall_ms()
        properties = {
            const.PROPERTY_TAGS: RECALL_MESSAGE_TAG,
            const.PROPERTY_TIMER_DEL_UNIQKEY: key,
            const.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX: handle.message_id,
            const.PROPERTY_TIMER_DELIVER_MS: str(handle.deliver_ms),
            const.PROPERTY_BORN_TIMESTAMP: str(now),
            const.PROPERTY_TRACE_CONTEXT: "",
            const.PROPERTY_PRODUCER_GROUP: producer_group,
        }
        return MessageExtBrokerInner(handle.topic, 0, _BODY, properties, born_timestamp=now, born_host=born_host)


def _illegal(remark: str) -> Refusal:
    return Refusal(ResponseCode.ILLEGAL_OPERATION, remark)
