"""ResetOffsetProcessor: lets a group go on elsewhere (222), and asks its members where they are (223).

With useServerSideResetOffset the broker itself sends the members elsewhere: their next pull of a queue is answered
PULL_OFFSET_MOVED with the new place. Otherwise the members are told (220) and do it. Of static topics the broker that
leads a global queue asks for each part (static_topic_gate.py), with `lo=false`: these are always reset here. Before it
asks each with maxqOnlyChecks whether it would do that, so that none is reset if another one refuses.

Source:
    broker/processor/AdminBrokerProcessor.java resetOffset, resetOffsetInner, broker/client/net/Broker2Client.java.
"""

import asyncio
import logging
from collections.abc import Mapping
from typing import Final

from maxq.broker.bundles import Clients, Environment, Messages, Tables
from maxq.broker.processors.support import RequestProcessor, refuse_if
from maxq.broker.tables.client.client_channel_info import ClientChannelInfo
from maxq.broker.tables.topic.topic_validator import validate_reader
from maxq.codes import LanguageCode, MQVersion, RequestCode, ResponseCode
from maxq.errors import MaxQError, RequestRefusedError
from maxq.protocol.body.offsets import GetConsumerStatusBody, ResetOffsetBody
from maxq.protocol.body.topic_config import TopicConfig
from maxq.protocol.enums import BoundaryType
from maxq.protocol.frame.header_fields import HeaderFields
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.protocol.json import json_dialect
from maxq.protocol.json.json_body import filled, queue_row
from maxq.protocol.message.message_queue import MessageQueue
from maxq.remoting.connection import Connection, Processor
from maxq.runtime.turns import Turns

log = logging.getLogger(__name__)

CLIENT_STATUS_TIMEOUT_MS: Final = 5_000
_ASKED_AT_ONCE: Final = 100  # members of a group


class ResetOffsetProcessor(RequestProcessor):
    """Answers INVOKE_BROKER_TO_RESET_OFFSET (222) and INVOKE_BROKER_TO_GET_CONSUMER_STATUS (223)."""

    def __init__(self, env: Environment, tables: Tables, clients: Clients, messages: Messages) -> None:
        self._settings = env.settings
        self._store = messages.store
        self._topics = tables.topics
        self._groups = tables.groups
        self._offsets = tables.offsets
        self._consumers = clients.consumers

    def routes(self) -> Mapping[int, Processor]:
        return {
            RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: self.reset_offset,
            RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: self.get_consumer_status,
        }

    # --- 222 ----------------------------------------------------------------------------------------------------------

    async def reset_offset(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Reset the offsets and answer with the new ones by queue."""
        fields = HeaderFields(request.ext)
        topic, group = fields.required_str("topic"), fields.required_str("group")
        timestamp = fields.required_long("timestamp")
        refuse_if(validate_reader(group), ResponseCode.NO_PERMISSION)
        log.info(
            "reset offset of %s in %s to time %d, called by %s", group, topic, timestamp, connection.remote_address
        )
        config = self._topics.select_topic_config(topic)
        if config is None:
            raise RequestRefusedError(ResponseCode.TOPIC_NOT_EXIST, f"Topic {topic} does not exist")
        if self._settings.broker.use_server_side_reset_offset or fields.opt_str("lo") == "false":
            table = await self._wanted_here(group, config, timestamp, fields)
            if not fields.opt_bool("maxqOnlyChecks"):
                # in a part of a static topic to which the group goes back, -1: members that pull are in an earlier part
                committed = dict.fromkeys(table, -1) if fields.opt_bool("maxqGoesBack") else table
                self._offsets.assign_reset_offsets(topic, group, table, committed)
                await self._offsets.set_is_kept()
        else:
            table = await self._reset_at_clients(group, config, timestamp, fields)
        return request.reply(body=await self._encoded(request.language, topic, table))

    async def _wanted_here(
        self, group: str, config: TopicConfig, timestamp: int, fields: HeaderFields
    ) -> dict[int, int]:
        """Return the wanted offsets by queue id, if this broker may set them."""
        if self._settings.store.broker_role == "SLAVE":
            raise RequestRefusedError(ResponseCode.SYSTEM_ERROR, "Can not reset offset in slave broker")
        if not self._groups.contains_subscription_group(group):
            raise RequestRefusedError(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group {group} does not exist")
        table = await self._places(config, timestamp, fields, config.read_queue_nums)
        refuse_if(None if table else "No queues to reset.", ResponseCode.SYSTEM_ERROR)
        return table

    async def _places(self, config: TopicConfig, timestamp: int, fields: HeaderFields, queues: int) -> dict[int, int]:
        """Return where a reset leads in each of so many `queues`, or in the one that it names.

        Raises:
            RequestRefusedError: there is no such queue, or it does not have the offset.
        """
        topic = config.topic_name
        queue_id, offset = fields.opt_int("queueId"), fields.opt_long("offset")
        if queue_id is None or queue_id < 0:
            turns, table = Turns(), {}
            for queue in range(queues):
                table[queue] = self._offset_at(topic, queue, timestamp)
                await turns.rest()
            return table
        if queue_id >= config.read_queue_nums:
            raise RequestRefusedError(
                ResponseCode.INVALID_PARAMETER,
                f"queueId {queue_id} of topic {topic} does not exist, it has {config.read_queue_nums} read queues",
            )
        if offset is None or offset == -1:
            return {queue_id: self._offset_at(topic, queue_id, timestamp)}
        refuse_if(self._outside(topic, queue_id, offset), ResponseCode.SYSTEM_ERROR)
        return {queue_id: min(offset, self._store.max_offset(topic, queue_id))}

    def _outside(self, topic: str, queue_id: int, offset: int) -> str | None:
        low, high = self._store.min_offset(topic, queue_id), self._store.max_offset(topic, queue_id)
        if max(low, 0) <= offset <= high + 1:
            return None
        return f"Target offset {offset} not in consume queue range [{low}-{high}]"

    def _offset_at(self, topic: str, queue_id: int, timestamp: int) -> int:
        """Returns the end of the queue for a negative time, else the offset of the first message at or after it."""
        if timestamp < 0:
            return max(self._store.max_offset(topic, queue_id), 0)
        return max(self._store.offset_by_time(topic, queue_id, timestamp, BoundaryType.LOWER), 0)

    async def _reset_at_clients(
        self, group: str, config: TopicConfig, timestamp: int, fields: HeaderFields
    ) -> dict[int, int]:
        topic = config.topic_name
        queue_id, offset = fields.opt_int("queueId"), fields.opt_long("offset")
        is_place = queue_id is not None and queue_id >= 0 and offset is not None and offset >= 0
        is_force = fields.opt_bool("isForce") or is_place
        table: dict[int, int] = {}
        for queue_id, target in (await self._places(config, timestamp, fields, config.write_queue_nums)).items():
            committed = self._offsets.query_offset(group, topic, queue_id)
            if committed == -1:
                raise RequestRefusedError(
                    ResponseCode.SYSTEM_ERROR,
                    f"The consumer group <{group}> not exist: it committed no offset of queue {queue_id} of {topic}",
                )
            table[queue_id] = target if is_force or target < committed else committed
        await self._tell_clients(group, topic, timestamp, table)
        return table

    async def _tell_clients(self, group: str, topic: str, timestamp: int, table: dict[int, int]) -> None:
        members = self._members(group)
        if not members:
            raise RequestRefusedError(
                ResponseCode.CONSUMER_NOT_ONLINE,
                f"Consumer not online, so can not reset offset, Group: {group} Topic: {topic} Timestamp: {timestamp}",
            )
        _refuse_old_clients(members)
        ext = {"topic": topic, "group": group, "timestamp": str(timestamp), "isForce": "false", "queueId": "-1"}
        bodies: dict[int, bytes] = {}
        turns = Turns()
        for member in members:
            told = bodies.get(member.language)
            if told is None:
                told = bodies[member.language] = await self._encoded(member.language, topic, table)
            if not member.connection.is_closed:  # it may have closed meanwhile
                command = RemotingCommand(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, dict(ext), told)
                member.connection.send_oneway(command)
            await turns.rest()

    async def _encoded(self, language: int, topic: str, table: dict[int, int]) -> bytes:
        """Encode the table: a list for C++ clients, Java's map with objects as keys for all others."""
        if language == LanguageCode.CPP:
            body = ResetOffsetBody({self._queue(topic, queue_id): offset for queue_id, offset in table.items()})
            return json_dialect.dumps(body.to_json_for_cpp())
        turns, rows = Turns(), []
        for queue_id, offset in table.items():
            rows.append(queue_row(self._queue(topic, queue_id), b"%d" % offset))
            await turns.rest()
        return filled(ResetOffsetBody().encode(), "offsetTable", rows)

    def _queue(self, topic: str, queue_id: int) -> MessageQueue:
        return MessageQueue(topic, self._settings.broker.broker_name, queue_id)

    def _members(self, group: str) -> list[ClientChannelInfo]:
        info = self._consumers.get_consumer_group_info(group)
        return [] if info is None else list(info.channel_info_table.values())

    # --- 223 ----------------------------------------------------------------------------------------------------------

    async def get_consumer_status(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Return the offsets that each member holds, or those of the member that `clientAddr` (a client id) names."""
        fields = HeaderFields(request.ext)
        topic, group = fields.required_str("topic"), fields.required_str("group")
        client_id = (fields.opt_str("clientAddr") or "").strip()
        members = self._members(group)
        if not members:
            refuse_if(f"No Any Consumer online in the consumer group: [{group}]", ResponseCode.SYSTEM_ERROR)
        _refuse_old_clients(members)
        asked = [member for member in members if client_id in ("", member.client_id)]
        turns, rows = Turns(), []
        for start in range(0, len(asked), _ASKED_AT_ONCE):
            some = asked[start : start + _ASKED_AT_ONCE]
            for row in await asyncio.gather(*(self._ask_status(member, topic, group) for member in some)):
                if row is not None:
                    rows.append(row)
                await turns.rest()
        return request.reply(body=filled(GetConsumerStatusBody().encode(), "consumerTable", rows))

    async def _ask_status(self, member: ClientChannelInfo, topic: str, group: str) -> bytes | None:
        """Ask one member for its offsets; returns a row of the answer with the member's client id."""
        ask = RemotingCommand(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, {"topic": topic, "group": group})
        try:
            answer = await member.connection.invoke(ask, CLIENT_STATUS_TIMEOUT_MS)
            if answer.code != ResponseCode.SUCCESS:
                log.warning("consumer status of %s: code %d, %s", member, answer.code, answer.remark)
                return None
            table = GetConsumerStatusBody.decode(answer.body_bytes).message_queue_table
            return json_dialect.dumps({member.client_id: table})[1:-1]
        except MaxQError as error:
            log.warning("consumer status of %s: %s", member, error)
            return None


def _refuse_old_clients(members: list[ClientChannelInfo]) -> None:
    for member in members:
        if member.version < MQVersion.V3_0_7_SNAPSHOT:
            refuse_if(
                f"the client {member} does not support this feature. version={member.version}",
                ResponseCode.SYSTEM_ERROR,
            )
