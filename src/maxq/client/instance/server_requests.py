"""Requests of brokers to their clients: 39, 40, 220, 221, 307, 309, 326.

Source: apache/rocketmq client/impl/ClientRemotingProcessor.java.
"""

import logging
from typing import Protocol, runtime_checkable

from maxq.client.instance.mq_client import MQClientInstance
from maxq.client.instance.stacks import stacks
from maxq.codes import RequestCode, ResponseCode
from maxq.protocol.body.consumer_info import ConsumeMessageDirectlyResult, ConsumerRunningInfo
from maxq.protocol.body.offsets import GetConsumerStatusBody, ResetOffsetBody
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.protocol.header.send import CheckTransactionStateRequestHeader, ReplyMessageRequestHeader
from maxq.protocol.message import message_const as const
from maxq.protocol.message.message import MessageExt, MessageSysFlag, decode_properties, decode_record, inflated
from maxq.protocol.message.message_queue import MessageQueue
from maxq.protocol.namespace import unwrap
from maxq.remoting.connection import Connection

log = logging.getLogger(__name__)


@runtime_checkable
class ManagedConsumer(Protocol):
    """A consumer whose state and offsets operators can see and change."""

    async def reset_offset(self, topic: str, offsets: dict[MessageQueue, int]) -> None: ...

    def offsets_of(self, topic: str) -> dict[MessageQueue, int]: ...

    def running_info(self) -> ConsumerRunningInfo: ...


@runtime_checkable
class ListeningConsumer(Protocol):
    """A consumer with a listener that can be given one message."""

    async def consume_directly(self, message: MessageExt, broker_name: str) -> ConsumeMessageDirectlyResult: ...


class ServerRequests:
    """Answers the requests that brokers send to one client instance."""

    def __init__(self, instance: MQClientInstance) -> None:
        self._instance = instance

    def register(self) -> None:
        """Register the handlers of requests that come on the instance's connections."""
        register = self._instance.remoting.register
        register(RequestCode.CHECK_TRANSACTION_STATE, self._check_transaction)
        register(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, self._consumer_ids_changed)
        register(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, self._reset_offset)
        register(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, self._consumer_status)
        register(RequestCode.GET_CONSUMER_RUNNING_INFO, self._running_info)
        register(RequestCode.CONSUME_MESSAGE_DIRECTLY, self._consume_directly)
        register(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, self._push_reply)

    async def _check_transaction(self, connection: Connection, request: RemotingCommand) -> None:
        header = CheckTransactionStateRequestHeader.decode(request.ext)
        message = decode_record(request.body_bytes, inflate=True)
        group = message.properties.get(const.PROPERTY_PRODUCER_GROUP, "")
        checker = self._instance.transaction_checker(group)
        if checker is None:
            log.warning("this client has no transaction producer of group %r: %s", group, header.transaction_id)
            return
        message.topic = unwrap(self._instance.config.namespace, message.topic)
        await checker(message, header, request.ext.get("bname", ""), connection)

    async def _consumer_ids_changed(self, connection: object, request: RemotingCommand) -> None:
        group = request.ext.get("consumerGroup", "")
        log.info("members of group %s changed", group)
        self._instance.rebalance_immediately()
        consumer = self._instance.consumer(group)
        if consumer is not None:  # a member that takes over a queue asks in a moment where to continue
            await consumer.persist_consumer_offset()

    async def _reset_offset(self, connection: object, request: RemotingCommand) -> None:
        topic, group = request.ext.get("topic", ""), request.ext.get("group", "")
        consumer = self._consumer(group)
        offsets = ResetOffsetBody.decode(request.body_bytes).offset_table
        log.info("offsets of group %s, topic %s are reset: %s", group, topic, offsets)
        if consumer is not None:
            await consumer.reset_offset(topic, offsets)

    async def _consumer_status(self, connection: object, request: RemotingCommand) -> RemotingCommand:
        consumer = self._consumer(request.ext.get("group", ""))
        offsets = consumer.offsets_of(request.ext.get("topic", "")) if consumer is not None else {}
        return request.reply(body=GetConsumerStatusBody(message_queue_table=offsets).encode())

    async def _running_info(self, connection: object, request: RemotingCommand) -> RemotingCommand:
        consumer = self._consumer(request.ext.get("consumerGroup", ""))
        if consumer is None:
            return self._not_here(request)
        info = consumer.running_info()
        if request.ext.get("jstackEnable") == "true":
            info.jstack = stacks()
        return request.reply(body=info.encode())

    async def _consume_directly(self, connection: object, request: RemotingCommand) -> RemotingCommand:
        consumer = self._instance.consumer(request.ext.get("consumerGroup", ""))
        if not isinstance(consumer, ListeningConsumer):
            return self._not_here(request)
        message = decode_record(request.body_bytes, inflate=True)
        result = await consumer.consume_directly(message, request.ext.get("brokerName", ""))
        return request.reply(body=result.encode())

    async def _push_reply(self, connection: object, request: RemotingCommand) -> RemotingCommand:
        header = ReplyMessageRequestHeader.decode(request.ext)
        body, fault = request.body_bytes, ""
        if header.sys_flag & MessageSysFlag.COMPRESSED:
            body, fault = inflated(body, header.sys_flag)
        message = MessageExt(
            header.topic,
            body,
            decode_properties(header.properties),
            header.flag,
            queue_id=header.queue_id,
            sys_flag=header.sys_flag,
            born_timestamp=header.born_timestamp,
            store_timestamp=header.store_timestamp,
            reconsume_times=header.reconsume_times or 0,
            body_fault=fault,
        )
        now_ms = self._instance.environment.clock.wall_ms()
        message.properties[const.PROPERTY_REPLY_MESSAGE_ARRIVE_TIME] = str(now_ms)
        if not self._instance.pending_requests.on_reply(message):
            log.info("a reply came too late: correlation id %s", message.properties.get(const.PROPERTY_CORRELATION_ID))
        return request.reply()

    def _consumer(self, group: str) -> ManagedConsumer | None:
        consumer = self._instance.consumer(group)
        return consumer if isinstance(consumer, ManagedConsumer) else None

    def _not_here(self, request: RemotingCommand) -> RemotingCommand:
        group = request.ext.get("consumerGroup", "")
        return request.reply(ResponseCode.SYSTEM_ERROR, f"The Consumer Group <{group}> not exist in this consumer")
