"""EscapeBridge: a write that cannot wait for the master goes to another broker group that has the topic.

A master stores the message itself. A slave that acts as master may not write, for its log is a copy; with
enableRemoteEscape it sends the message to a writable queue of another group of the cluster. What the message is keeps:
topic, body, properties, flags, times of reconsumption; queue, offsets and store host are the other group's.

Source:
    broker/failover/EscapeBridge.java, broker/topic/TopicRouteInfoManager.java; ha.md §8.
"""

import logging
from collections.abc import Awaitable, Callable
from typing import Final

from maxq.broker.broker_identity import BrokerAddress
from maxq.codes import RequestCode, ResponseCode
from maxq.config.settings import BrokerSettings
from maxq.errors import MaxQError
from maxq.lazy_dataclass import dataclass
from maxq.protocol import message_const as const
from maxq.protocol.body.route import MASTER_ID, TopicRouteData
from maxq.protocol.body.topic_config import PERM_WRITE
from maxq.protocol.header.send import SendMessageRequestHeader, SendMessageResponseHeader
from maxq.protocol.message_properties import encode_properties
from maxq.protocol.message_sys_flag import MessageSysFlag, with_transaction_type
from maxq.protocol.remoting_command import RemotingCommand
from maxq.remoting.client import RemotingClient
from maxq.runtime.interfaces import Clock
from maxq.store.message_ext_broker_inner import MessageExtBrokerInner
from maxq.store.message_store import MessageStore
from maxq.store.store_results import PutMessageResult, PutMessageStatus

log = logging.getLogger(__name__)

_SEND_TIMEOUT_MS: Final = 3_000
_DEFAULT_TOPIC: Final = "TBW102"
_DEFAULT_QUEUES: Final = 8
_MOST_ROUTES: Final = 10_000

#: Of the copy here. The other group's tell of its own hosts; a Java broker takes these as they come, and a record whose
#: flags name longer hosts than it has cannot be read.
_HOST_BITS: Final = MessageSysFlag.BORN_HOST_V6 | MessageSysFlag.STORE_HOST_V6

_STATUS_OF: Final = {
    ResponseCode.SUCCESS: PutMessageStatus.PUT_OK,
    ResponseCode.FLUSH_DISK_TIMEOUT: PutMessageStatus.FLUSH_DISK_TIMEOUT,
}


@dataclass(frozen=True, slots=True)
class RemoteQueue:
    """A writable queue of another group."""

    broker_name: str
    address: str
    queue_id: int


@dataclass(slots=True)
class _Route:
    queues: list[RemoteQueue]
    read_ms: int  # monotonic
    turn: int = 0


class EscapeBridge:
    """`put_message` is what services call whose writes must not stop while the master is away."""

    def __init__(
        self,
        *,
        settings: BrokerSettings,
        own: BrokerAddress,
        store: MessageStore,
        client: RemotingClient,
        topic_route: Callable[[str], Awaitable[TopicRouteData | None]],
        clock: Clock,
    ) -> None:
        """`topic_route` asks the name servers; it may raise MaxQError."""
        self._settings = settings
        self._own = own
        self._store = store
        self._client = client
        self._topic_route = topic_route
        self._clock = clock
        self._routes: dict[str, _Route] = {}

    async def put_message(self, message: MessageExtBrokerInner) -> PutMessageResult:
        """Store a message here if this is a master, else at another group. Never raises for what went wrong there:
        the result says it (PUT_TO_REMOTE_BROKER_FAIL, SERVICE_NOT_AVAILABLE) with a remark."""
        if self._own.broker_id == MASTER_ID:
            return self._store.put_message(message)
        broker = self._settings.broker
        if not (broker.enable_slave_acting_master and broker.enable_remote_escape):
            remark = (
                f"this broker is a slave (id {self._own.broker_id}) and stores no messages of its own; "
                "enableSlaveActingMaster and enableRemoteEscape let it send them to another broker group"
            )
            return PutMessageResult(PutMessageStatus.SERVICE_NOT_AVAILABLE, remark=remark)
        try:
            return await self._escape(message)
        except MaxQError as error:
            self._routes.pop(message.topic, None)
            return _failed(message, str(error))

    async def _escape(self, message: MessageExtBrokerInner) -> PutMessageResult:
        queue = await self._select(message.topic)
        if queue is None:
            return _failed(
                message, f"no broker group but {self._own.broker_name} has a master and a writable queue of this topic"
            )
        answer = await self._client.invoke(queue.address, self._request(message, queue), _SEND_TIMEOUT_MS)
        status = _STATUS_OF.get(ResponseCode(answer.code)) if answer.code in _STATUS_OF else None
        if status is None:
            self._routes.pop(message.topic, None)
            return _failed(message, f"{queue.broker_name} at {queue.address} answered {answer.code} {answer.remark}")
        stored = SendMessageResponseHeader.decode(answer.ext)
        return PutMessageResult(status, queue_offset=stored.queue_offset, msg_id=stored.msg_id, message_count=1)

    async def _select(self, topic: str) -> RemoteQueue | None:
        """The next queue in turn."""
        now_ms = self._clock.monotonic_ms()
        route = self._routes.get(topic)
        if route is None or now_ms - route.read_ms > self._settings.broker.load_balance_poll_name_server_interval:
            data = await self._topic_route(topic)
            turn = 0 if route is None else route.turn
            queues = [] if data is None else remote_queues(data, self._own.broker_name)
            if route is None and len(self._routes) >= _MOST_ROUTES:
                self._routes.clear()
            route = self._routes[topic] = _Route(queues, now_ms, turn)
        if not route.queues:
            del self._routes[topic]
            return None
        route.turn += 1
        return route.queues[route.turn % len(route.queues)]

    def _request(self, message: MessageExtBrokerInner, queue: RemoteQueue) -> RemotingCommand:
        properties = {**message.properties, const.PROPERTY_WAIT_STORE_MSG_OK: "false"}
        sys_flag = message.sys_flag & ~_HOST_BITS
        if sys_flag & MessageSysFlag.TRANSACTION_COMMIT:  # it is an ordinary message there, and opens no transaction
            sys_flag = with_transaction_type(sys_flag, 0)
            properties.pop(const.PROPERTY_TRANSACTION_PREPARED, None)
        own = self._own
        header = SendMessageRequestHeader(
            producer_group=message.properties.get(const.PROPERTY_PRODUCER_GROUP)
            or f"InnerProducerGroup_{own.broker_name}_{own.broker_id}",
            topic=message.topic,
            default_topic=_DEFAULT_TOPIC,
            default_topic_queue_nums=_DEFAULT_QUEUES,
            queue_id=queue.queue_id,
            sys_flag=sys_flag,
            born_timestamp=message.born_timestamp,
            flag=message.flag,
            properties=encode_properties(properties),
            reconsume_times=message.reconsume_times,
            batch=False,
        )
        return RemotingCommand(RequestCode.SEND_MESSAGE_V2, header.encode_v2(), bytes(message.body))


def remote_queues(route: TopicRouteData, own_broker_name: str) -> list[RemoteQueue]:
    """Writable queues of every group that has a master, but `own_broker_name`, in order of the names."""
    masters = {
        data.broker_name: data.broker_addrs[MASTER_ID]
        for data in route.broker_datas
        if MASTER_ID in data.broker_addrs and data.broker_name != own_broker_name
    }
    return [
        RemoteQueue(data.broker_name, masters[data.broker_name], queue_id)
        for data in sorted(route.queue_datas, key=lambda data: data.broker_name)
        if data.perm & PERM_WRITE and data.broker_name in masters
        for queue_id in range(data.write_queue_nums)
    ]


def _failed(message: MessageExtBrokerInner, reason: str) -> PutMessageResult:
    log.warning("a message of %s did not escape to another broker group: %s", message.topic, reason)
    remark = f"the message of {message.topic} could not be given to another broker group: {reason}"
    return PutMessageResult(PutMessageStatus.PUT_TO_REMOTE_BROKER_FAIL, remark=remark)
