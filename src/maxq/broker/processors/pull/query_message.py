"""QUERY_MESSAGE (12) by key, unique key or tag, and VIEW_MESSAGE_BY_ID (33) by place in the log.

Source:
    broker/processor/QueryMessageProcessor.java.
"""

from maxq.broker.admission.access import refusal_of_record, sent_to
from maxq.broker.bundles import Environment, Messages
from maxq.broker.processors.refusal import Refusal
from maxq.codes import RequestCode, ResponseCode
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.protocol.header.query import QueryMessageRequestHeader, ViewMessageRequestHeader
from maxq.protocol.message import message_const as const
from maxq.protocol.message.message import MessageExt, decode_record
from maxq.remoting.server import Connection, RemotingServer

_UNIQUE_KEY_QUERY = "_UNIQUE_KEY_QUERY"
_BY_KEY = "K"
_BY_UNIQUE_KEY = "U"
_INDEX_TYPES = (_BY_KEY, _BY_UNIQUE_KEY, "T")
#: Properties that hold what an index type means.
_UNIQUE = (const.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX,)
_EITHER = (const.PROPERTY_KEYS, *_UNIQUE)
_TAG = (const.PROPERTY_TAGS,)


class QueryMessageProcessor:
    """Answers queries for messages by key, unique key or offset."""

    def __init__(self, env: Environment, messages: Messages) -> None:
        self._settings = env.settings
        self._store = messages.store
        self._guard = env.guard

    def register(self, server: RemotingServer) -> None:
        server.register(RequestCode.QUERY_MESSAGE, self.query)
        server.register(RequestCode.VIEW_MESSAGE_BY_ID, self.view)

    def query(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Return the messages of a topic that carry a key and were stored in a period.

        The index knows hashes only, and texts of the same hash are easily found: topic and key of each record are
        compared (Java leaves that to the client). For a message in one of the broker's own topics, the permission on
        the topic that it was sent to counts.
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
        wanted = _UNIQUE if index_type == _BY_UNIQUE_KEY else _EITHER if index_type == _BY_KEY else _TAG
        result.buffers = [
            record
            for record in result.buffers
            if self._may_show(connection, request, decode_record(record), header, wanted)
        ]
        if not result.buffers:
            remark = "can not find message, maybe time range not correct"
            return request.reply(ResponseCode.QUERY_NOT_FOUND, remark, ext)
        return request.reply(ext=ext, body=result.buffers)

    def view(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Return the message at a physical offset, as it is stored.

        The request names a topic or does not; who may see the message is judged by its own (Java: by what is named).
        """
        header = ViewMessageRequestHeader.decode(request.ext)
        record = self._store.select_one_message(header.offset)
        message = None if record is None else decode_record(record)
        if record is None or message is None or self._is_hidden(message):
            return request.reply(ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {header.offset}")
        refused = refusal_of_record(self._guard, connection, request, message)
        return request.reply(body=record) if refused is None else refused

    def _may_show(
        self,
        connection: Connection,
        request: RemotingCommand,
        message: MessageExt,
        header: QueryMessageRequestHeader,
        key_in: tuple[str, ...],
    ) -> bool:
        """Return whether the message matches the query and this client may see it."""
        if message.topic != header.topic or self._is_hidden(message):
            return False
        if not any(header.key in message.properties.get(name, "").split(" ") for name in key_in):
            return False
        if sent_to(message) == message.topic:
            return True
        return refusal_of_record(self._guard, connection, request, message) is None

    def _is_hidden(self, message: MessageExt) -> bool:
        """Return whether the message is expired by its topic's own rules, or purged."""
        hidden = self._store.cleaner.hidden
        if not hidden.is_used:
            return False
        return hidden.is_hidden(message.topic, message.queue_id, message.queue_offset)
