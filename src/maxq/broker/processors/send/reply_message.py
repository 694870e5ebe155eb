"""SEND_REPLY_MESSAGE (324) and SEND_REPLY_MESSAGE_V2 (325): the answer of a request-reply pair on its way back.

The consumer of a request sends its reply to the broker, and the broker pushes it (326) to the client that asked, over
the connection that client's heartbeat came on. The reply is also stored, if storeReplyMessageEnable; what the caller is
told depends on the push alone.

Source:
    broker/processor/ReplyMessageProcessor.java.
"""

import logging
from collections.abc import Awaitable, Callable

from maxq.broker.bundles import Clients, Environment, Limits, Tables
from maxq.broker.processors.refusal import Refusal
from maxq.broker.processors.send.send_checks import SendChecks
from maxq.broker.processors.send.send_properties import BrokerProperties, received_properties
from maxq.codes import RequestCode, ResponseCode
from maxq.errors import RemotingError
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.protocol.header.send import ReplyMessageRequestHeader, SendMessageRequestHeader, SendMessageResponseHeader
from maxq.protocol.message import message_const as const
from maxq.protocol.message.message_properties import encode_properties
from maxq.remoting.server import Connection, RemotingServer
from maxq.store.append.message_ext_broker_inner import MessageExtBrokerInner
from maxq.store.store_results import PutMessageResult

log = logging.getLogger(__name__)

_PUSH_TIMEOUT_MS = 10_000


class ReplyMessageProcessor:
    """Stores replies and pushes them to the requesting clients."""

    def __init__(
        self,
        env: Environment,
        tables: Tables,
        clients: Clients,
        limits: Limits,
        put_message: Callable[[MessageExtBrokerInner], Awaitable[PutMessageResult]],
    ) -> None:
        """`put_message` stores a reply, here or, on an acting slave, at another broker group."""
        self._settings = env.settings
        self._put_message = put_message
        self._producers = clients.producers
        self._fast_failure = limits.fast_failure
        self._broker = env.own
        self._clock = env.clock
        self._quotas = limits.quotas
        self._guard = env.guard
        self._checks = SendChecks(env.settings, tables.topics)
        self._own_properties = BrokerProperties(env.own, lambda: env.settings.broker)

    def register(self, server: RemotingServer) -> None:
        for code in (RequestCode.SEND_REPLY_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2):
            server.register(code, self)

    async def __call__(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        self._fast_failure.replies.enter()
        try:
            return await self._process(connection, request)
        finally:
            self._fast_failure.replies.leave()

    async def _process(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        header = SendMessageRequestHeader.decode_for(request.code, request.ext)
        ext = self._own_properties.for_reply()
        message = self._message(connection, request, header)
        if isinstance(message, Refusal):
            return message.reply_to(request, ext)
        stored = SendMessageResponseHeader("0", message.queue_id, 0)
        if self._settings.broker.store_reply_message_enable:
            result = await self._put_message(message)
            if result.ok:
                stored = SendMessageResponseHeader(result.msg_id, message.queue_id, result.queue_offset)
            else:
                log.warning("a reply to %s was not stored: %s %s", message.topic, result.status.name, result.remark)
        failure = await self._push(connection, header, message)
        ext = stored.encode() | ext
        if failure is not None:
            return request.reply(ResponseCode.SYSTEM_ERROR, failure, ext)
        return request.reply(ext=ext)

    def _message(
        self, connection: Connection, request: RemotingCommand, header: SendMessageRequestHeader
    ) -> MessageExtBrokerInner | Refusal:
        refusal = self._quotas.send_refusal(header.topic, request)
        if refusal is not None:
            return refusal
        config = self._checks.destination(header, connection.remote_address)
        if isinstance(config, Refusal):
            return config
        properties = received_properties(header.properties)
        refusal = self._checks.message(config, properties, header.sys_flag, request, kind="a reply")
        if refusal is not None:
            return refusal
        properties.update(self._own_properties.for_reply())
        return MessageExtBrokerInner(
            header.topic,
            max(header.queue_id, 0),
            request.body_bytes,
            properties,
            flag=header.flag,
            sys_flag=header.sys_flag,
            born_timestamp=header.born_timestamp,
            born_host=connection.remote_host,
            reconsume_times=header.reconsume_times or 0,
        )

    async def _push(
        self, connection: Connection, header: SendMessageRequestHeader, message: MessageExtBrokerInner
    ) -> str | None:
        """Push the reply to its client. Returns None, or the reason of a failure."""
        client_id = message.properties.get(const.PROPERTY_MESSAGE_REPLY_TO_CLIENT)
        if not client_id:
            return f"reply message properties[{const.PROPERTY_MESSAGE_REPLY_TO_CLIENT}] is null"
        client = self._producers.find_channel(client_id)
        if client is None or (self._guard is not None and not self._guard.client_counts(client)):
            return f"push reply message fail, channel of <{client_id}> not found."
        now_ms = self._clock.wall_ms()
        properties = {**message.properties, const.PROPERTY_PUSH_REPLY_TIME: str(now_ms)}
        push = ReplyMessageRequestHeader(
            producer_group=header.producer_group,
            topic=header.topic,
            default_topic=header.default_topic,
            default_topic_queue_nums=header.default_topic_queue_nums,
            queue_id=header.queue_id,
            sys_flag=header.sys_flag,
            born_timestamp=header.born_timestamp,
            flag=header.flag,
            born_host=connection.remote_address,
            store_host=self._broker.address,
            store_timestamp=now_ms,
            properties=encode_properties(properties),
            reconsume_times=header.reconsume_times,
            unit_mode=bool(header.unit_mode),
        )
        command = RemotingCommand(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, push.encode(), message.body)
        try:
            answer = await client.invoke(command, _PUSH_TIMEOUT_MS)
        except RemotingError as error:
            return f"push reply message to <{client_id}>fail. {error}"
        if answer.code != ResponseCode.SUCCESS:
            return f"push reply message to <{client_id}>fail. It answered {answer.code} {answer.remark or ''}"
        return None
