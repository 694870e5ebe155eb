"""QUERY_MESSAGE (12) by key, unique key or tag, and VIEW_MESSAGE_BY_ID (33) by place in the log.

Source:
    broker/processor/QueryMessageProcessor.java; broker-api.md §16, changes-5.5.md §7.
"""

from maxq.access.guard import Guard
from maxq.auth.needs import need_of_message
from maxq.auth.policy import Action
from maxq.broker.processors.refusal import Refusal
from maxq.codes import RequestCode, ResponseCode
from maxq.config.settings import BrokerSettings
from maxq.protocol import message_const as const
from maxq.protocol.header.offset import QueryMessageRequestHeader, ViewMessageRequestHeader
from maxq.protocol.message import decode_record
from maxq.protocol.remoting_command import RemotingCommand
from maxq.remoting.server import Connection, RemotingServer
from maxq.store.message_store import MessageStore

_UNIQUE_KEY_QUERY = "_UNIQUE_KEY_QUERY"
_BY_KEY = "K"
_BY_UNIQUE_KEY = "U"
_INDEX_TYPES = (_BY_KEY, _BY_UNIQUE_KEY, "T")


class QueryMessageProcessor:
    """Finds messages without a consumer."""

    def __init__(self, *, settings: BrokerSettings, store: MessageStore, guard: Guard | None) -> None:
        """`guard` knows who may see which message; None: everybody."""
        self._settings = settings
        self._store = store
        self._guard = guard

    def register(self, server: RemotingServer) -> None:
        server.register(RequestCode.QUERY_MESSAGE, self.query)
        server.register(RequestCode.VIEW_MESSAGE_BY_ID, self.view)

    def query(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Messages of a topic that carry a key and were stored in a period.

        Keys of different text can have the same hash: the caller compares topic and key again.
        """
        header = QueryMessageRequestHeader.decode(request.ext)
        index_type = header.index_type or _BY_KEY
        max_num = header.max_num
        if request.ext.get(_UNIQUE_KEY_QUERY, "").lower() == "true":
            index_type, max_num = _BY_UNIQUE_KEY, self._settings.store.default_query_max_num
        if index_type not in _INDEX_TYPES:
            return Refusal(
                ResponseCode.INVALID_PARAMETER, f"indexType {index_type!r:.20} is none of {', '.join(_INDEX_TYPES)}"
            ).reply_to(request)
        result = self._store.query_message(
            header.topic, header.key, max_num, header.begin_timestamp, header.end_timestamp, index_type
        )
        ext = {
            "indexLastUpdateTimestamp": str(result.index_last_update_timestamp),
            "indexLastUpdatePhyoffset": str(result.index_last_update_physical_offset),
        }
        result.buffers = [record for record in result.buffers if not self._is_hidden(record)]
        if not result.buffers:
            remark = "can not find message, maybe time range not correct"
            return request.reply(ResponseCode.QUERY_NOT_FOUND, remark, ext)
        return request.reply(ext=ext, body=result.buffers)

    def view(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """The message at a physical offset, as it is stored.

        The request names a topic or does not; who may see the message is judged by its own (Java: by what is named).
        """
        header = ViewMessageRequestHeader.decode(request.ext)
        record = self._store.select_one_message(header.offset)
        if record is None or self._is_hidden(record):
            return request.reply(
                ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {header.offset}"
            )
        if self._guard is not None:
            need = need_of_message(_topic_of(record), Action.SUB, Action.GET)
            refused = self._guard.also(connection, request, need)
            if refused is not None:
                return refused
        return request.reply(body=record)

    def _is_hidden(self, record: memoryview) -> bool:
        """Is the message expired by its topic's own rules, or purged?"""
        hidden = self._store.cleaner.hidden
        if not hidden.is_used:
            return False
        message = decode_record(record)
        return hidden.is_hidden(message.topic, message.queue_id, message.queue_offset)


def _topic_of(record: memoryview) -> str:
    """The topic a message was sent to, also while it waits in another."""
    message = decode_record(record)
    return message.properties.get(const.PROPERTY_REAL_TOPIC, message.topic)
