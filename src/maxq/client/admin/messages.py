"""Messages: find them by id, key, offset or time; have them consumed; see who consumed them."""

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from enum import Enum

from maxq.client.admin.context import AdminContext
from maxq.client.instance.client_api import fields
from maxq.client.instance.pull_api import unpack
from maxq.client.instance.topic_publish_info import subscribe_queues
from maxq.client.results.pull_result import PullResult, PullStatus
from maxq.codes import RequestCode, ResponseCode
from maxq.errors import BrokerError, ClientError, RemoteProtocolError, RemotingError
from maxq.protocol.body.broker_stats import QueryConsumeQueueResponseBody
from maxq.protocol.body.consumer_info import ConsumeMessageDirectlyResult
from maxq.protocol.body.heartbeat import ConsumerConnection
from maxq.protocol.body.offsets import ConsumeStats
from maxq.protocol.body.route import GroupList
from maxq.protocol.body.subscription import SubscriptionData
from maxq.protocol.enums import ConsumeType, MessageModel
from maxq.protocol.header.pull import PULL_FLAG_SUBSCRIPTION
from maxq.protocol.message import message_const as const
from maxq.protocol.message.message import MessageExt, decode_message_id, decode_record, decode_records, host_text
from maxq.protocol.message.message_queue import MessageQueue
from maxq.protocol.namespace import RETRY_PREFIX

TOOLS_GROUP = "TOOLS_CONSUMER"
_FOR_EVER = 0x7FFF_FFFF_FFFF_FFFF
_QUERY_TIMEOUT_MS = 15_000


class TrackType(Enum):
    """A group's progress with one message (tools TrackType.java)."""

    CONSUMED = "CONSUMED"
    CONSUMED_BUT_FILTERED = "CONSUMED_BUT_FILTERED"
    PULL = "PULL"
    NOT_CONSUME_YET = "NOT_CONSUME_YET"
    NOT_ONLINE = "NOT_ONLINE"
    CONSUME_BROADCASTING = "CONSUME_BROADCASTING"
    UNKNOWN = "UNKNOWN"


@dataclass(frozen=True, slots=True)
class MessageTrack:
    """Whether one group has consumed one message."""

    consumer_group: str
    track_type: TrackType
    exception_desc: str | None = None


class MessageAdmin:
    """Finds messages and their fate; the attribute `messages` of an Admin. Bodies are decompressed.

    Where `via` is taken, it is the topic whose route says which brokers to ask: a cluster's name, or the parent of an
    LMQ, which has no route of its own.
    """

    def __init__(self, context: AdminContext) -> None:
        self._context = context
        self._api = context.api

    # --- find ---

    async def view(self, topic: str, msg_id: str, *, via: str | None = None) -> MessageExt:
        """Find a message by its offset message id, or by its unique key if there is none with that id.

        Raises:
            ClientError: no such message.
        """
        found = await self.find(topic, msg_id, via=via)
        if found is None:
            raise ClientError(f"no message {msg_id} in topic {topic}, neither as offset id nor as unique key")
        return found

    async def find(self, topic: str, msg_id: str, *, via: str | None = None) -> MessageExt | None:
        """Find a message as `view` does; None if there is no such message."""
        if await self._is_offset_id(via or topic, msg_id):
            with contextlib.suppress(RemotingError, BrokerError):
                return await self.view_by_offset_id(msg_id, topic)
        found = await self.query_by_unique_key(topic, msg_id, via=via)
        return found[0] if found else None

    async def _is_offset_id(self, topic: str, msg_id: str) -> bool:
        """Tell whether an id is an offset message id. Both kinds have one form, but an offset id begins with the
        address of a broker of the topic."""
        try:
            host, _ = decode_message_id(msg_id)
        except RemoteProtocolError:
            return False
        route = await self._context.route(topic)
        return any(host_text(host) in data.broker_addrs.values() for data in route.broker_datas)

    async def view_by_offset_id(self, offset_msg_id: str, topic: str | None = None) -> MessageExt:
        """Find a message at the broker whose address is in its offset message id (33).

        Raises:
            RemoteProtocolError: not an offset message id.
            BrokerError: no message there.
        """
        host, physical_offset = decode_message_id(offset_msg_id)
        response = await self._api.call(
            host_text(host), RequestCode.VIEW_MESSAGE_BY_ID, fields(topic=topic, offset=physical_offset)
        )
        return decode_record(response.body_bytes, inflate=True)

    async def query_by_key(
        self,
        topic: str,
        key: str,
        *,
        max_num: int = 64,
        begin_ms: int = 0,
        end_ms: int = _FOR_EVER,
        via: str | None = None,
    ) -> list[MessageExt]:
        """Find messages of a topic that carry `key` (12), in the order of their store times."""
        found = await self._query(topic, key, "K", max_num, begin_ms, end_ms, via)
        return [message for message in found if key in (message.keys or "").split(const.KEY_SEPARATOR)][:max_num]

    async def query_by_tag(
        self,
        topic: str,
        tag: str,
        *,
        max_num: int = 64,
        begin_ms: int = 0,
        end_ms: int = _FOR_EVER,
        via: str | None = None,
    ) -> list[MessageExt]:
        """Find messages of a topic with a tag. Only brokers of RocketMQ 5.5 know this."""
        found = await self._query(topic, tag, "T", max_num, begin_ms, end_ms, via)
        return [message for message in found if message.tags == tag][:max_num]

    async def query_by_unique_key(
        self,
        topic: str,
        unique_key: str,
        *,
        max_num: int = 32,
        begin_ms: int = 0,
        end_ms: int = _FOR_EVER,
        via: str | None = None,
    ) -> list[MessageExt]:
        """Find messages with this client id (12), in the order of their store times. There are several if the producer
        needed more than one attempt."""
        found = await self._query(topic, unique_key, "U", max_num, begin_ms, end_ms, via)
        return [message for message in found if message.uniq_key == unique_key][:max_num]

    async def _query(
        self, topic: str, key: str, index_type: str, max_num: int, begin_ms: int, end_ms: int, via: str | None
    ) -> list[MessageExt]:
        ext = fields(
            topic=topic, key=key, maxNum=max_num, beginTimestamp=begin_ms, endTimestamp=end_ms, indexType=index_type
        )
        if index_type == "U":
            ext["_UNIQUE_KEY_QUERY"] = "true"
        found: list[MessageExt] = []
        for name, address in await self._context.brokers_of_topic(via or topic):
            response = await self._api.call(
                address,
                RequestCode.QUERY_MESSAGE,
                ext,
                timeout_ms=_QUERY_TIMEOUT_MS,
                expect=(ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND),
            )
            if response.code == ResponseCode.SUCCESS:
                found += decode_records(response.body_bytes, inflate=True, broker_name=name)
        # Brokers compare hashes only, so messages of other topics and keys may be among these.
        return sorted((m for m in found if m.topic == topic), key=lambda m: (m.store_timestamp, m.physical_offset))

    # --- read ---

    async def pull(
        self,
        queue: MessageQueue,
        offset: int,
        *,
        max_nums: int = 32,
        expression: str = "*",
        address: str | None = None,
        group: str = TOOLS_GROUP,
    ) -> PullResult:
        """Read a queue from a queue offset on, without being a member of anything (11)."""
        ext = fields(
            consumerGroup=group,
            topic=queue.topic,
            queueId=queue.queue_id,
            queueOffset=offset,
            maxMsgNums=max_nums,
            sysFlag=PULL_FLAG_SUBSCRIPTION,
            commitOffset=0,
            suspendTimeoutMillis=0,
            subscription=expression,
            subVersion=0,
            expressionType="TAG",
        )
        target = address or await self._context.address_of(queue)
        result = await self._api.pull(target, RequestCode.PULL_MESSAGE, ext, 10_000)
        result.messages = [
            inner for message in result.messages for inner in unpack(message) if inner.queue_offset >= offset
        ]
        for message in result.messages:
            message.broker_name = queue.broker_name
        return result

    async def view_by_queue_offset(self, queue: MessageQueue, offset: int, *, via: str | None = None) -> MessageExt:
        """Return the message at one queue offset.

        Raises:
            ClientError: none there; names the range of the queue.
        """
        result = await self.pull(queue, offset, max_nums=1, address=await self._context.address_of(queue, via))
        if result.messages and result.messages[0].queue_offset == offset:
            return result.messages[0]
        first, behind = result.min_offset, result.max_offset
        there = f"holds {first} to {behind - 1}" if behind > first else "has no messages"
        raise ClientError(f"no message at offset {offset} of {queue}: the queue {there}")

    async def scan(
        self,
        topic: str,
        *,
        queues: list[MessageQueue] | None = None,
        begin_ms: int | None = None,
        end_ms: int | None = None,
        expression: str = "*",
        via: str | None = None,
        group: str = TOOLS_GROUP,
    ) -> AsyncIterator[MessageExt]:
        """Yield all messages of a topic, queue after queue, from the oldest (or `begin_ms`) to the end at the time of
        the call (or `end_ms`). Times are store times."""
        if queues is None and via is not None:
            queues = [MessageQueue(topic, name, 0) for name, _ in await self._context.brokers_of_topic(via)]
        for queue in queues or subscribe_queues(topic, await self._context.route(topic)):
            address = await self._context.address_of(queue, via)
            if begin_ms is None:
                offset = await self._api.min_offset(address, queue)
            else:
                offset = await self._api.search_offset(address, queue, begin_ms)
            end = await self._api.max_offset(address, queue)
            while offset < end:
                result = await self.pull(queue, offset, expression=expression, address=address, group=group)
                for message in result.messages:
                    if message.queue_offset >= end or (end_ms is not None and message.store_timestamp > end_ms):
                        break
                    yield message
                else:
                    if result.next_begin_offset > offset:
                        offset = result.next_begin_offset
                        continue
                    if result.status is PullStatus.NO_MATCHED_MSG:
                        continue
                break

    async def query_consume_queue(
        self, address: str, queue: MessageQueue, index: int, count: int = 10, group: str | None = None
    ) -> QueryConsumeQueueResponseBody:
        """Return units of a ConsumeQueue from `index` on (321)."""
        ext = fields(topic=queue.topic, queueId=queue.queue_id, index=index, count=count, consumerGroup=group)
        response = await self._api.call(address, RequestCode.QUERY_CONSUME_QUEUE, ext)
        return QueryConsumeQueueResponseBody.decode(response.body_bytes)

    # --- do ---

    async def consume_directly(
        self, group: str, client_id: str, topic: str, msg_id: str
    ) -> ConsumeMessageDirectlyResult:
        """Make one member consume one message now (309)."""
        message = await self.view(topic, msg_id)
        ext = fields(consumerGroup=group, clientId=client_id, msgId=message.offset_msg_id, topic=topic)
        address = host_text(message.store_host)
        response = await self._api.call(address, RequestCode.CONSUME_MESSAGE_DIRECTLY, ext, timeout_ms=12_000)
        return ConsumeMessageDirectlyResult.decode(response.body_bytes)

    async def resume_check_half_message(self, address: str, topic: str, msg_id: str) -> None:
        """Check a half message again that was abandoned (323)."""
        await self._api.call(address, RequestCode.RESUME_CHECK_HALF_MESSAGE, fields(topic=topic, msgId=msg_id))

    # --- track ---

    async def track(self, message: MessageExt) -> list[MessageTrack]:
        """Return what each group has done with a message, by group name."""
        groups: set[str] = set()
        brokers = await self._context.brokers_of_topic(message.topic)
        for _, address in brokers:
            response = await self._api.call(
                address, RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, fields(topic=message.topic)
            )
            groups.update(GroupList.decode(response.body_bytes).group_list)
        names = {address: name for name, address in brokers}
        broker_name = message.broker_name or names.get(host_text(message.store_host), "")
        return [await self._track_one(group, message, broker_name) for group in sorted(groups)]

    async def _track_one(self, group: str, message: MessageExt, broker_name: str) -> MessageTrack:
        try:
            brokers = await self._context.brokers_of_group(group, message.topic)
            connection = await self._context.first_answer(
                brokers, lambda address: self._connections(address, group), group
            )
        except BrokerError as error:
            if error.code == ResponseCode.CONSUMER_NOT_ONLINE:
                return MessageTrack(group, TrackType.NOT_ONLINE, error.remark)
            return MessageTrack(group, TrackType.UNKNOWN, str(error))
        except (ClientError, RemotingError) as error:
            return MessageTrack(group, TrackType.UNKNOWN, str(error))
        if connection.consume_type == ConsumeType.CONSUME_ACTIVELY:
            return MessageTrack(group, TrackType.PULL)
        if connection.message_model == MessageModel.BROADCASTING:
            return MessageTrack(group, TrackType.CONSUME_BROADCASTING)
        if not await self._has_consumed(group, message, broker_name):
            return MessageTrack(group, TrackType.NOT_CONSUME_YET)
        if _is_filtered(connection.subscription_table.get(message.topic), message):
            return MessageTrack(group, TrackType.CONSUMED_BUT_FILTERED)
        return MessageTrack(group, TrackType.CONSUMED)

    async def _connections(self, address: str, group: str) -> ConsumerConnection:
        response = await self._api.call(address, RequestCode.GET_CONSUMER_CONNECTION_LIST, fields(consumerGroup=group))
        return ConsumerConnection.decode(response.body_bytes)

    async def _has_consumed(self, group: str, message: MessageExt, broker_name: str) -> bool:
        queue = MessageQueue(message.topic, broker_name, message.queue_id)
        for _, address in await self._context.brokers_of_group(group, message.topic):
            response = await self._api.call(
                address, RequestCode.GET_CONSUME_STATS, fields(consumerGroup=group, topic=message.topic)
            )
            wrapper = ConsumeStats.decode(response.body_bytes).offset_table.get(queue)
            if wrapper is not None:
                return wrapper.consumer_offset > message.queue_offset
        return False


def _is_filtered(subscription: SubscriptionData | None, message: MessageExt) -> bool:
    if subscription is None or message.topic.startswith(RETRY_PREFIX):
        return False
    return bool(subscription.tags_set) and message.tags not in subscription.tags_set
