"""MQClientAPI: every request that producers and consumers make, as a typed coroutine.

Each takes the address of the server first (host:port; name server calls take none) and raises

    RemotingError   the network: no connection, no answer in time, connection lost
    BrokerError     the server answered another code than the call expects; NoRouteError for a route nobody knows

Source: apache/rocketmq client/impl/MQClientAPIImpl.java.
"""

from collections.abc import Collection, Iterable

from maxq.client.results.pull_result import PullResult, PullStatus
from maxq.codes import RequestCode, ResponseCode
from maxq.errors import BrokerError, NoRouteError, RemoteProtocolError
from maxq.protocol.body.consumer_info import (
    MessageQueueAssignment,
    QueryAssignmentRequestBody,
    QueryAssignmentResponseBody,
)
from maxq.protocol.body.heartbeat import GetConsumerListByGroupResponseBody, HeartbeatData
from maxq.protocol.body.offsets import LockBatchRequestBody, LockBatchResponseBody
from maxq.protocol.body.route import TopicRouteData
from maxq.protocol.body.subscription import CheckClientRequestBody, SubscriptionData
from maxq.protocol.frame.remoting_command import RemotingCommand, SerializeType
from maxq.protocol.message.message import decode_records
from maxq.protocol.message.message_queue import MessageQueue
from maxq.remoting.client import RemotingClient

_PULL_STATUS: dict[int, PullStatus] = {
    ResponseCode.SUCCESS: PullStatus.FOUND,
    ResponseCode.PULL_NOT_FOUND: PullStatus.NO_NEW_MSG,
    ResponseCode.PULL_RETRY_IMMEDIATELY: PullStatus.NO_MATCHED_MSG,
    ResponseCode.PULL_OFFSET_MOVED: PullStatus.OFFSET_ILLEGAL,
}

Field = str | int | bool | None


def fields(**values: Field) -> dict[str, str]:
    """Header fields under their wire names; None is left out."""
    return {
        name: value if type(value) is str else ("true" if value else "false") if type(value) is bool else str(value)
        for name, value in values.items()
        if value is not None
    }


class MQClientAPI:
    """Requests over one RemotingClient.

    Args:
        remoting: the connections.
        vip_channel_enabled: everything but pulls goes to port − 2.
        serialize_type: header form of our requests.
        timeout_ms: of calls that do not say otherwise.
    """

    def __init__(
        self,
        remoting: RemotingClient,
        *,
        vip_channel_enabled: bool = False,
        serialize_type: SerializeType = SerializeType.JSON,
        timeout_ms: int = 3_000,
    ) -> None:
        self.remoting = remoting
        self._vip = vip_channel_enabled
        self._serialize_type = serialize_type
        self._timeout_ms = timeout_ms

    def address(self, address: str) -> str:
        """Where requests for a broker go: its address, or its VIP port."""
        if not self._vip:
            return address
        host, _, port = address.rpartition(":")
        return f"{host}:{int(port) - 2}"

    def command(self, code: int, ext: dict[str, str] | None = None, body: bytes | None = None) -> RemotingCommand:
        """A request of ours."""
        return RemotingCommand(code, ext or {}, body, serialize_type=self._serialize_type)

    async def call(
        self,
        address: str,
        code: int,
        ext: dict[str, str] | None = None,
        body: bytes | None = None,
        *,
        timeout_ms: int | None = None,
        expect: Collection[int] = (ResponseCode.SUCCESS,),
    ) -> RemotingCommand:
        """One request to a broker and its answer.

        Raises:
            BrokerError: the answer's code is not one of `expect`.
        """
        target = self.address(address)
        response = await self.remoting.invoke(target, self.command(code, ext, body), timeout_ms or self._timeout_ms)
        if response.code not in expect:
            raise BrokerError(response.code, response.remark, address=target)
        return response

    async def call_name_server(
        self,
        code: int,
        ext: dict[str, str] | None = None,
        body: bytes | None = None,
        *,
        address: str | None = None,
        timeout_ms: int | None = None,
        expect: Collection[int] = (ResponseCode.SUCCESS,),
    ) -> RemotingCommand:
        """One request to a name server (any, unless `address` names one)."""
        request = self.command(code, ext, body)
        timeout_ms = timeout_ms or self._timeout_ms
        if address is None:
            response = await self.remoting.invoke_name_server(request, timeout_ms)
        else:
            response = await self.remoting.invoke(address, request, timeout_ms)
        if response.code not in expect:
            raise BrokerError(response.code, response.remark, address=address or "")
        return response

    async def oneway(
        self, address: str, code: int, ext: dict[str, str] | None = None, body: bytes | None = None
    ) -> None:
        """One request that nobody answers."""
        await self.remoting.invoke_oneway(self.address(address), self.command(code, ext, body))

    # --- name server ---

    async def topic_route(self, topic: str) -> TopicRouteData:
        """Where a topic is.

        Raises:
            NoRouteError: the name server does not know it.
        """
        response = await self.call_name_server(
            RequestCode.GET_ROUTEINFO_BY_TOPIC,
            fields(topic=topic, acceptStandardJsonOnly=True),
            expect=(ResponseCode.SUCCESS, ResponseCode.TOPIC_NOT_EXIST),
        )
        if response.code == ResponseCode.TOPIC_NOT_EXIST or not response.body_length:
            raise NoRouteError(ResponseCode.TOPIC_NOT_EXIST, response.remark or f"no route for topic {topic}")
        return TopicRouteData.decode(response.body_bytes)

    # --- clients ---

    async def heartbeat(self, address: str, data: HeartbeatData) -> int:
        """Say who we are; returns the broker's version number."""
        response = await self.call(address, RequestCode.HEART_BEAT, None, data.encode())
        return response.version

    async def unregister_client(
        self, address: str, client_id: str, *, producer_group: str | None = None, consumer_group: str | None = None
    ) -> None:
        """Leave."""
        ext = fields(clientID=client_id, producerGroup=producer_group, consumerGroup=consumer_group)
        await self.call(address, RequestCode.UNREGISTER_CLIENT, ext)

    async def check_client_config(
        self, address: str, client_id: str, group: str, namespace: str, subscription: SubscriptionData
    ) -> None:
        """Does the broker understand this (non-TAG) expression? BrokerError with 23 or 1 if not."""
        body = CheckClientRequestBody(client_id, group, subscription, namespace or None)
        await self.call(address, RequestCode.CHECK_CLIENT_CONFIG, None, body.encode())

    async def consumer_ids(self, address: str, group: str) -> list[str]:
        """Client ids of the group's members known at this broker."""
        response = await self.call(address, RequestCode.GET_CONSUMER_LIST_BY_GROUP, fields(consumerGroup=group))
        return GetConsumerListByGroupResponseBody.decode(response.body_bytes).consumer_id_list

    # --- offsets ---

    async def query_consumer_offset(self, address: str, group: str, queue: MessageQueue) -> int | None:
        """Committed queue offset; None if the group has none (22)."""
        ext = fields(consumerGroup=group, topic=queue.topic, queueId=queue.queue_id)
        response = await self.call(
            address,
            RequestCode.QUERY_CONSUMER_OFFSET,
            ext,
            expect=(ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND),
        )
        return int(response.ext["offset"]) if response.code == ResponseCode.SUCCESS else None

    async def update_consumer_offset(
        self, address: str, group: str, queue: MessageQueue, offset: int, *, oneway: bool, if_ahead: bool = False
    ) -> None:
        """Commit a queue offset. `if_ahead`: not if the group is further already; Java's brokers do not know of it."""
        ext = fields(
            consumerGroup=group, topic=queue.topic, queueId=queue.queue_id, commitOffset=offset,
            maxqIfAhead=if_ahead or None,
        )  # fmt: skip
        if oneway:
            await self.oneway(address, RequestCode.UPDATE_CONSUMER_OFFSET, ext)
        else:
            await self.call(address, RequestCode.UPDATE_CONSUMER_OFFSET, ext)

    async def max_offset(self, address: str, queue: MessageQueue) -> int:
        """One past the newest queue offset."""
        return await self._offset(address, RequestCode.GET_MAX_OFFSET, queue)

    async def min_offset(self, address: str, queue: MessageQueue) -> int:
        """The oldest queue offset."""
        return await self._offset(address, RequestCode.GET_MIN_OFFSET, queue)

    async def search_offset(self, address: str, queue: MessageQueue, timestamp_ms: int, boundary: str = "LOWER") -> int:
        """Queue offset by store time; LOWER: the first not older, UPPER: the last not younger."""
        ext = fields(topic=queue.topic, queueId=queue.queue_id, timestamp=timestamp_ms, boundaryType=boundary)
        response = await self.call(address, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, ext)
        return int(response.ext["offset"])

    async def earliest_msg_store_time(self, address: str, queue: MessageQueue) -> int:
        """Store time of the oldest message, -1 if the queue is empty."""
        ext = fields(topic=queue.topic, queueId=queue.queue_id)
        response = await self.call(address, RequestCode.GET_EARLIEST_MSG_STORETIME, ext)
        return int(response.ext["timestamp"])

    async def _offset(self, address: str, code: RequestCode, queue: MessageQueue) -> int:
        response = await self.call(address, code, fields(topic=queue.topic, queueId=queue.queue_id))
        return int(response.ext["offset"])

    # --- queue locks ---

    async def query_assignment(
        self, address: str, topic: str, group: str, client_id: str, strategy: str = "AVG"
    ) -> list[MessageQueueAssignment] | None:
        """Which queues of a topic a member of a group should read, and how; None: the broker cannot tell now."""
        body = QueryAssignmentRequestBody(topic, group, client_id, strategy).encode()
        response = await self.call(address, RequestCode.QUERY_ASSIGNMENT, body=body)
        if b"messageQueueAssignments" not in response.body_bytes:
            return None
        return QueryAssignmentResponseBody.decode(response.body_bytes).message_queue_assignments

    async def lock_batch(
        self, address: str, group: str, client_id: str, queues: Iterable[MessageQueue], *, timeout_ms: int = 1_000
    ) -> set[MessageQueue]:
        """Lock queues for this client; returns those that are ours now."""
        response = await self.call(
            address, RequestCode.LOCK_BATCH_MQ, None, _lock_body(group, client_id, queues), timeout_ms=timeout_ms
        )
        return set(LockBatchResponseBody.decode(response.body_bytes).lock_ok_mq_set)

    async def unlock_batch(
        self, address: str, group: str, client_id: str, queues: Iterable[MessageQueue], *, oneway: bool
    ) -> None:
        """Give up locks."""
        body = _lock_body(group, client_id, queues)
        if oneway:
            await self.oneway(address, RequestCode.UNLOCK_BATCH_MQ, None, body)
        else:
            await self.call(address, RequestCode.UNLOCK_BATCH_MQ, None, body, timeout_ms=1_000)

    # --- messages ---

    async def pull(self, address: str, code: RequestCode, ext: dict[str, str], timeout_ms: int) -> PullResult:
        """One pull (PULL_MESSAGE or LITE_PULL_MESSAGE); `ext` is its whole header. Bodies come inflated.

        Never goes to the VIP port: pulls are not served there.
        """
        response = await self.remoting.invoke(address, self.command(code, ext), timeout_ms)
        status = _PULL_STATUS.get(response.code)
        if status is None:
            raise BrokerError(response.code, response.remark, address=address)
        get = response.ext.get
        try:
            result = PullResult(
                status,
                int(get("nextBeginOffset", "0")),
                int(get("minOffset", "0")),
                int(get("maxOffset", "0")),
                int(get("suggestWhichBrokerId", "0")),
                None if (delta := get("offsetDelta")) is None else int(delta),
            )
        except ValueError:
            raise RemoteProtocolError(f"pull answer of {address} has a header field that is no number") from None
        if status is PullStatus.FOUND and response.body is not None:
            result.messages = decode_records(response.body_bytes, inflate=True)
        return result

    def end_transaction_command(self, ext: dict[str, str], remark: str | None) -> RemotingCommand:
        """END_TRANSACTION with this header; `remark` is for the broker's log."""
        command = self.command(RequestCode.END_TRANSACTION, ext)
        command.remark = remark
        return command

    async def end_transaction(
        self, address: str, ext: dict[str, str], remark: str | None, *, oneway: bool, timeout_ms: int
    ) -> None:
        """Tell a broker how a transaction ended. Those that are not decided are one-way: they have no answer.

        Raises:
            BrokerError: it does not count.
        """
        target, command = self.address(address), self.end_transaction_command(ext, remark)
        if oneway:
            await self.remoting.invoke_oneway(target, command)
            return
        response = await self.remoting.invoke(target, command, timeout_ms)
        if response.code != ResponseCode.SUCCESS:
            raise BrokerError(response.code, response.remark, address=target)

    async def send_message_back(
        self,
        address: str,
        group: str,
        physical_offset: int,
        *,
        delay_level: int,
        origin_msg_id: str,
        origin_topic: str,
        max_reconsume_times: int,
        unit_mode: bool = False,
        broker_name: str | None = None,
        timeout_ms: int = 5_000,
    ) -> None:
        """Ask the broker to deliver a stored message again later (CONSUMER_SEND_MSG_BACK)."""
        ext = fields(
            offset=physical_offset,
            group=group,
            delayLevel=delay_level,
            originMsgId=origin_msg_id,
            originTopic=origin_topic,
            unitMode=unit_mode,
            maxReconsumeTimes=max_reconsume_times,
            bname=broker_name,
        )
        await self.call(address, RequestCode.CONSUMER_SEND_MSG_BACK, ext, timeout_ms=timeout_ms)


def _lock_body(group: str, client_id: str, queues: Iterable[MessageQueue]) -> bytes:
    return LockBatchRequestBody(group, client_id, mq_set=list(queues)).encode()
