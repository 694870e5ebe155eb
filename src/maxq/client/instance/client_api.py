"""MQClientAPI: every request that producers and consumers make, as a typed coroutine.

Each takes the address of the server first (host:port; name server calls take none) and raises

    RemotingError   the network: no connection, no answer in time, connection lost
    BrokerError     the server answered another code than the call expects; NoRouteError for a route nobody knows

Source: apache/rocketmq client/impl/MQClientAPIImpl.java.
"""

import re
from collections.abc import Collection, Iterable
from typing import Final

from maxq.client.argument_checks import LONG_MAX
from maxq.client.results.pull_result import PullResult, PullStatus
from maxq.codes import RequestCode, ResponseCode
from maxq.errors import BrokerError, NoRouteError, RemoteProtocolError, RemotingError
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

#: Answer of a broker to a commit that it ignores because an operator's reset waits.
_RESET_WAITS: Final = "Offset has been previously reset"
_NUMBER: Final = re.compile("-?[0-9]{1,19}")
_PULL_STATUS: dict[int, PullStatus] = {
    ResponseCode.SUCCESS: PullStatus.FOUND,
    ResponseCode.PULL_NOT_FOUND: PullStatus.NO_NEW_MSG,
    ResponseCode.PULL_RETRY_IMMEDIATELY: PullStatus.NO_MATCHED_MSG,
    ResponseCode.PULL_OFFSET_MOVED: PullStatus.OFFSET_ILLEGAL,
}


def pull_answer(response: RemotingCommand, address: str) -> tuple[PullResult, bytes]:
    """Decode the header of the answer to a pull.

    Returns:
        The result, whose messages are still to be decoded, and their records as they came.

    Raises:
        BrokerError: the broker at `address` refuses.
        RemoteProtocolError: a header field is not a number, or nextBeginOffset is missing, without which the next pull
            has no offset.
    """
    status = _PULL_STATUS.get(response.code)
    if status is None:
        raise BrokerError(response.code, response.remark, address=address)
    get = response.ext.get
    try:
        result = PullResult(
            status,
            _long(get("nextBeginOffset", "")),
            _long(get("minOffset", "0")),
            _long(get("maxOffset", "0")),
            _long(get("suggestWhichBrokerId", "0")),
            None if (delta := get("offsetDelta")) is None else _long(delta),
        )
    except ValueError as error:
        text = f"pull answer of {address} has a header field that is {error}: {response.ext}"
        raise RemoteProtocolError(text) from None
    body = response.body if status is PullStatus.FOUND else None
    return result, body if isinstance(body, bytes) else response.body_bytes if body is not None else b""


def _long(text: str) -> int:
    """Return a number of 64 bits. Raises ValueError, which says what the text is instead."""
    if not _NUMBER.fullmatch(text) or not -LONG_MAX <= (value := int(text)) <= LONG_MAX:
        raise ValueError("missing" if not text else f"no number of 64 bits ({text:.40})")
    return value


Field = str | int | bool | None


def fields(**values: Field) -> dict[str, str]:
    """Make header fields, under their names on the wire, of those arguments that are not None."""
    return {
        name: value if type(value) is str else ("true" if value else "false") if type(value) is bool else str(value)
        for name, value in values.items()
        if value is not None
    }


class MQClientAPI:
    """Requests of a client to brokers and name servers, over one RemotingClient.

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
        """Return where requests for a broker go: to its address, or to its VIP port."""
        if not self._vip:
            return address
        host, _, port = address.rpartition(":")
        return f"{host}:{int(port) - 2}"

    def command(self, code: int, ext: dict[str, str] | None = None, body: bytes | None = None) -> RemotingCommand:
        """Make a request in this client's header form."""
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
        """Send one request to a broker, and return its answer.

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
        """Send one request to a name server (to any, unless `address` names one), and return its answer."""
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
        """Send one request that the server does not answer."""
        await self.remoting.invoke_oneway(self.address(address), self.command(code, ext, body))

    # --- name server ---

    async def topic_route(self, topic: str) -> TopicRouteData:
        """Ask the name servers for the route of a topic.

        Raises:
            NoRouteError: the name server does not know it.
        """
        try:
            response = await self.call_name_server(
                RequestCode.GET_ROUTEINFO_BY_TOPIC,
                fields(topic=topic, acceptStandardJsonOnly=True),
                expect=(ResponseCode.SUCCESS, ResponseCode.TOPIC_NOT_EXIST),
            )
        except RemotingError as error:
            raise error.told_as(f"the route of topic {topic} is not known: {error}") from None
        if response.code == ResponseCode.TOPIC_NOT_EXIST or not response.body_length:
            raise NoRouteError(ResponseCode.TOPIC_NOT_EXIST, response.remark or f"no route for topic {topic}")
        return TopicRouteData.decode(response.body_bytes)

    # --- clients ---

    async def heartbeat(self, address: str, data: HeartbeatData) -> int:
        """Tell a broker which groups live on this client. Returns the broker's version."""
        response = await self.call(address, RequestCode.HEART_BEAT, None, data.encode())
        return response.version

    async def unregister_client(
        self, address: str, client_id: str, *, producer_group: str | None = None, consumer_group: str | None = None
    ) -> None:
        """Tell a broker that a group has left this client."""
        ext = fields(clientID=client_id, producerGroup=producer_group, consumerGroup=consumer_group)
        await self.call(address, RequestCode.UNREGISTER_CLIENT, ext)

    async def check_client_config(
        self, address: str, client_id: str, group: str, namespace: str, subscription: SubscriptionData
    ) -> None:
        """Ask whether a broker understands an expression that is not a TAG expression. Raises BrokerError with code 23
        or 1 if not."""
        body = CheckClientRequestBody(client_id, group, subscription, namespace or None)
        await self.call(address, RequestCode.CHECK_CLIENT_CONFIG, None, body.encode())

    async def consumer_ids(self, address: str, group: str) -> list[str]:
        """Return the client ids of a group's members that a broker knows."""
        response = await self.call(address, RequestCode.GET_CONSUMER_LIST_BY_GROUP, fields(consumerGroup=group))
        return GetConsumerListByGroupResponseBody.decode(response.body_bytes).consumer_id_list

    # --- offsets ---

    async def query_consumer_offset(
        self, address: str, group: str, queue: MessageQueue, *, zero_if_none: bool = True, goes_on: bool = False
    ) -> int | None:
        """Return the committed queue offset of a group; None if it has none (code 22). With `zero_if_none`, a broker
        that has every message of the queue says 0 instead. With `goes_on`, this client is a member that goes on there:
        a slave takes its commits for those of one that knows where an operator has set the group."""
        ext = fields(
            consumerGroup=group, topic=queue.topic, queueId=queue.queue_id,
            setZeroIfNotFound=None if zero_if_none else False, maxqOnlyLooks=None if goes_on else True,
        )  # fmt: skip
        response = await self.call(
            address,
            RequestCode.QUERY_CONSUMER_OFFSET,
            ext,
            expect=(ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND),
        )
        return int(response.ext["offset"]) if response.code == ResponseCode.SUCCESS else None

    async def update_consumer_offset(
        self,
        address: str,
        group: str,
        queue: MessageQueue,
        offset: int,
        *,
        oneway: bool,
        if_ahead: bool = False,
        if_none: bool = False,
    ) -> bool:
        """Commit a queue offset. With `if_ahead`, nothing happens if the group is further already; with `if_none`, if
        the group has any offset of the queue. Java's brokers ignore both.

        Returns:
            False: the broker has passed it over, because an operator's reset waits for the group's next pull. One that
            is sent one-way does not tell.
        """
        ext = fields(
            consumerGroup=group, topic=queue.topic, queueId=queue.queue_id, commitOffset=offset,
            maxqIfAhead=if_ahead or None, maxqIfNone=if_none or None,
        )  # fmt: skip
        if oneway:
            await self.oneway(address, RequestCode.UPDATE_CONSUMER_OFFSET, ext)
            return True
        response = await self.call(address, RequestCode.UPDATE_CONSUMER_OFFSET, ext)
        return response.remark != _RESET_WAITS

    async def max_offset(self, address: str, queue: MessageQueue) -> int:
        """Return the queue offset behind the newest message."""
        return await self._offset(address, RequestCode.GET_MAX_OFFSET, queue)

    async def min_offset(self, address: str, queue: MessageQueue) -> int:
        """Return the queue offset of the oldest message."""
        return await self._offset(address, RequestCode.GET_MIN_OFFSET, queue)

    async def search_offset(self, address: str, queue: MessageQueue, timestamp_ms: int, boundary: str = "LOWER") -> int:
        """Return a queue offset by store time. LOWER: of the first message that is not older; UPPER: of the last that
        is not younger."""
        ext = fields(topic=queue.topic, queueId=queue.queue_id, timestamp=timestamp_ms, boundaryType=boundary)
        response = await self.call(address, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, ext)
        return int(response.ext["offset"])

    async def earliest_msg_store_time(self, address: str, queue: MessageQueue) -> int:
        """Return the store time of the oldest message, -1 if the queue is empty."""
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
        """Ask which queues of a topic a member of a group should read, and how. None if the broker cannot tell at the
        moment."""
        body = QueryAssignmentRequestBody(topic, group, client_id, strategy).encode()
        response = await self.call(address, RequestCode.QUERY_ASSIGNMENT, body=body)
        if b"messageQueueAssignments" not in response.body_bytes:
            return None
        return QueryAssignmentResponseBody.decode(response.body_bytes).message_queue_assignments

    async def lock_batch(
        self, address: str, group: str, client_id: str, queues: Iterable[MessageQueue], *, timeout_ms: int = 1_000
    ) -> set[MessageQueue]:
        """Lock queues for this client. Returns those whose lock it has."""
        response = await self.call(
            address, RequestCode.LOCK_BATCH_MQ, None, _lock_body(group, client_id, queues), timeout_ms=timeout_ms
        )
        return set(LockBatchResponseBody.decode(response.body_bytes).lock_ok_mq_set)

    async def unlock_batch(
        self, address: str, group: str, client_id: str, queues: Iterable[MessageQueue], *, oneway: bool
    ) -> None:
        """Release locks of queues."""
        body = _lock_body(group, client_id, queues)
        if oneway:
            await self.oneway(address, RequestCode.UNLOCK_BATCH_MQ, None, body)
        else:
            await self.call(address, RequestCode.UNLOCK_BATCH_MQ, None, body, timeout_ms=1_000)

    # --- messages ---

    async def pull(self, address: str, code: RequestCode, ext: dict[str, str], timeout_ms: int) -> PullResult:
        """Send one pull (PULL_MESSAGE or LITE_PULL_MESSAGE) with `ext` as its header. Bodies are decompressed.

        Never goes to the VIP port: pulls are not served there.
        """
        response = await self.remoting.invoke(address, self.command(code, ext), timeout_ms)
        result, body = pull_answer(response, address)
        result.messages = decode_records(body, inflate=True)
        return result

    def end_transaction_command(self, ext: dict[str, str], remark: str | None) -> RemotingCommand:
        """Make an END_TRANSACTION request with this header. `remark` is for the broker's log."""
        command = self.command(RequestCode.END_TRANSACTION, ext)
        command.remark = remark
        return command

    async def end_transaction(
        self, address: str, ext: dict[str, str], remark: str | None, *, oneway: bool, timeout_ms: int
    ) -> None:
        """Report the end of a transaction to a broker. An end that is not decided yet is a oneway request, which has no
        answer.

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
