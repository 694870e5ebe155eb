"""AdminClientProcessor: which clients are connected, what they subscribe to, and requests passed on to one of them.

Source:
    broker/processor/AdminBrokerProcessor.java.
"""

import logging
from collections.abc import Iterable, Mapping
from typing import Final

from maxq.auth.signature import unsigned
from maxq.broker.admission.access import refusal_of_record
from maxq.broker.bundles import Clients, Environment, Messages, Tables
from maxq.broker.processors.support import RequestProcessor, body_reply, forwarded_reply
from maxq.broker.tables.client.client_channel_info import ClientChannelInfo
from maxq.codes import MQVersion, RequestCode, ResponseCode
from maxq.errors import RemotingError, RemotingTimeoutError, RequestRefusedError
from maxq.protocol.body.heartbeat import (
    ConnectionInfo as ConnectionBody,
)
from maxq.protocol.body.heartbeat import (
    ConsumerConnection,
    ProducerConnection,
    ProducerInfo,
    ProducerTableInfo,
)
from maxq.protocol.body.route import GroupList
from maxq.protocol.body.subscription import QuerySubscriptionResponseBody
from maxq.protocol.body.topic_config import TopicList
from maxq.protocol.frame.header_fields import HeaderFields
from maxq.protocol.frame.remoting_command import RemotingCommand, language_name
from maxq.protocol.json import json_dialect
from maxq.protocol.json.json_body import filled
from maxq.protocol.message.message import decode_record
from maxq.protocol.message.message_id import decode_message_id
from maxq.remoting.connection import Connection, Processor
from maxq.runtime.turns import Turns

log = logging.getLogger(__name__)

CALL_CLIENT_TIMEOUT_MS: Final = 10_000


class AdminClientProcessor(RequestProcessor):
    """Answers GET_CONSUMER_CONNECTION_LIST (203), GET_PRODUCER_CONNECTION_LIST (204), QUERY_TOPIC_CONSUME_BY_WHO (300),
    GET_CONSUMER_RUNNING_INFO (307), CONSUME_MESSAGE_DIRECTLY (309), GET_ALL_PRODUCER_INFO (328),
    QUERY_TOPICS_BY_CONSUMER (343) and QUERY_SUBSCRIPTION_BY_CONSUMER (345)."""

    def __init__(self, env: Environment, tables: Tables, clients: Clients, messages: Messages) -> None:
        self._settings = env.settings
        self._own = env.own
        self._store = messages.store
        self._topics = tables.topics
        self._groups = tables.groups
        self._offsets = tables.offsets
        self._consumers = clients.consumers
        self._producers = clients.producers
        self._guard = env.guard

    def routes(self) -> Mapping[int, Processor]:
        return {
            RequestCode.GET_CONSUMER_CONNECTION_LIST: self.get_consumer_connection_list,
            RequestCode.GET_PRODUCER_CONNECTION_LIST: self.get_producer_connection_list,
            RequestCode.GET_ALL_PRODUCER_INFO: self.get_all_producer_info,
            RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: self.query_topic_consume_by_who,
            RequestCode.QUERY_TOPICS_BY_CONSUMER: self.query_topics_by_consumer,
            RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER: self.query_subscription_by_consumer,
            RequestCode.GET_CONSUMER_RUNNING_INFO: self.get_consumer_running_info,
            RequestCode.CONSUME_MESSAGE_DIRECTLY: self.consume_message_directly,
        }

    # --- who is connected ---------------------------------------------------------------------------------------------

    async def get_consumer_connection_list(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Answer GET_CONSUMER_CONNECTION_LIST (203)."""
        group = HeaderFields(request.ext).required_str("consumerGroup")
        info = self._consumers.get_consumer_group_info(group)
        if info is None:
            raise RequestRefusedError(ResponseCode.CONSUMER_NOT_ONLINE, f"the consumer group[{group}] not online")
        body = ConsumerConnection(
            subscription_table=dict(info.subscription_table),
            consume_type=info.consume_type,
            message_model=info.message_model,
            consume_from_where=info.consume_from_where,
        )
        return await _connections_reply(request, body.encode(), info.channel_info_table.values())

    async def get_producer_connection_list(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Answer GET_PRODUCER_CONNECTION_LIST (204)."""
        group = HeaderFields(request.ext).required_str("producerGroup")
        members = self._producers.group_channel_table.get(group)
        if members is None:
            raise RequestRefusedError(ResponseCode.SYSTEM_ERROR, f"the producer group[{group}] not exist")
        return await _connections_reply(request, ProducerConnection().encode(), members.values())

    async def get_all_producer_info(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Answer GET_ALL_PRODUCER_INFO (328): every producer group with its connected clients."""
        turns, rows = Turns(), []
        for group, members in list(self._producers.group_channel_table.items()):
            infos = []
            for channel in list(members.values()):
                infos.append(_producer_info(channel).encode())
                await turns.rest()
            rows.append(b"%b:[%b]" % (json_dialect.dumps(group), b",".join(infos)))
        return request.reply(body=filled(ProducerTableInfo().encode(), "data", rows))

    # --- who consumes what --------------------------------------------------------------------------------------------

    def query_topic_consume_by_who(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Answer QUERY_TOPIC_CONSUME_BY_WHO (300). Groups that subscribe to the topic, or committed offsets."""
        topic = HeaderFields(request.ext).required_str("topic")
        groups = self._consumers.query_topic_consume_by_who(topic) | self._offsets.which_group_by_topic(topic)
        return body_reply(request, GroupList(sorted(groups)))

    def query_topics_by_consumer(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Answer QUERY_TOPICS_BY_CONSUMER (343). Topics of which the group committed offsets."""
        group = HeaderFields(request.ext).required_str("group")
        topics = sorted(self._offsets.which_topic_by_consumer(group))
        return body_reply(request, TopicList(topics, self._own.address))

    def query_subscription_by_consumer(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Answer QUERY_SUBSCRIPTION_BY_CONSUMER (345): what a consumer group subscribes to in one topic."""
        fields = HeaderFields(request.ext)
        group, topic = fields.required_str("group"), fields.opt_str("topic") or ""
        subscription = self._consumers.find_subscription_data(group, topic)
        return body_reply(request, QuerySubscriptionResponseBody(subscription, group, topic))

    # --- passed on to a client ----------------------------------------------------------------------------------------

    async def get_consumer_running_info(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Answer GET_CONSUMER_RUNNING_INFO (307)."""
        return await self._call_consumer(request, dict(request.ext), request.body_bytes)

    async def consume_message_directly(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Answer CONSUME_MESSAGE_DIRECTLY (309). The broker adds the message: the one with the offset id `msgId`, or
        the request's own body without it. Access is judged by the message's topic, too, because the client may
        belong to the requester."""
        fields = HeaderFields(request.ext)
        record = self._record_of(fields.opt_str("msgId"))
        if record is not None and self._guard is not None:
            message = decode_record(record)
            refused = refusal_of_record(self._guard, connection, request, message)
            if refused is not None:
                return refused
        ext = dict(request.ext)
        ext["brokerName"] = self._settings.broker.broker_name
        topic = self._topics.select_topic_config(fields.opt_str("topic") or "")
        if topic is not None:
            ext["topicSysFlag"] = str(topic.topic_sys_flag)
        group = self._groups.find_subscription_group_config(fields.required_str("consumerGroup"))
        if group is not None:
            ext["groupSysFlag"] = str(group.group_sys_flag)
        return await self._call_consumer(request, ext, request.body_bytes if record is None else bytes(record))

    def _record_of(self, message_id: str | None) -> memoryview | None:
        if not message_id:
            return None
        _, physical_offset = decode_message_id(message_id)
        message = self._store.select_one_message(physical_offset)
        if message is None:
            raise RequestRefusedError(
                ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {physical_offset}, of id {message_id}"
            )
        return message

    async def _call_consumer(self, request: RemotingCommand, ext: dict[str, str], body: bytes) -> RemotingCommand:
        """Forward a request to a client and return its answer. The signature is not passed on to the client, as in
        Java."""
        fields = HeaderFields(ext)
        group, client_id = fields.required_str("consumerGroup"), fields.opt_str("clientId")
        channel = self._consumers.find_channel(group, client_id or "")
        if channel is None or (self._guard is not None and not self._guard.client_counts(channel.connection)):
            raise RequestRefusedError(ResponseCode.SYSTEM_ERROR, f"The Consumer <{group}> <{client_id}> not online")
        if channel.version < MQVersion.V3_1_8_SNAPSHOT:
            raise RequestRefusedError(
                ResponseCode.SYSTEM_ERROR,
                f"The Consumer <{client_id}> Version <{channel.version}> too low to finish, "
                "please upgrade it to V3_1_8_SNAPSHOT",
            )
        try:
            answer = await channel.connection.invoke(
                RemotingCommand(request.code, unsigned(ext), body or None), CALL_CLIENT_TIMEOUT_MS
            )
        except RemotingTimeoutError as error:
            raise RequestRefusedError(
                ResponseCode.CONSUME_MSG_TIMEOUT, f"consumer <{group}> <{client_id}> Timeout: {error}"
            ) from error
        except RemotingError as error:
            raise RequestRefusedError(
                ResponseCode.SYSTEM_ERROR, f"invoke consumer <{group}> <{client_id}> Exception: {error}"
            ) from error
        return forwarded_reply(request, answer)


async def _connections_reply(
    request: RemotingCommand, body: bytes, channels: Iterable[ClientChannelInfo]
) -> RemotingCommand:
    """Reply with `body` and all channels in its connectionSet; a group may have thousands."""
    turns, rows = Turns(), []
    for channel in list(channels):
        rows.append(_connection_body(channel).encode())
        await turns.rest()
    return request.reply(body=filled(body, "connectionSet", rows, b"[]"))


def _producer_info(channel: ClientChannelInfo) -> ProducerInfo:
    return ProducerInfo(
        client_id=channel.client_id,
        remote_ip=channel.connection.remote_address,
        language=language_name(channel.language),
        version=channel.version,
        last_update_timestamp=channel.last_update_timestamp,
    )


def _connection_body(channel: ClientChannelInfo) -> ConnectionBody:
    return ConnectionBody(
        client_id=channel.client_id,
        client_addr=channel.connection.remote_address,
        language=language_name(channel.language),
        version=channel.version,
    )
