"""EscapeBridge: a write that belongs to another broker group, or cannot wait for the master, goes to another one.

A master stores the message itself. A slave that acts as master may not write, for its log is a copy; with
enableRemoteEscape it sends the message to a writable queue of another group of the cluster. The message keeps its
topic, body, properties, flags and count of reconsumptions; queue, offsets and store host are those of the other group.

When the master of such a slave comes back and asks for its state, nothing more is sent (`rests`), and sends under way
are waited for (`wait_idle`), so that the answers are complete.

A static topic's queue may have been moved to another group between the moment in which a message was stored here
(delayed, timed, in a transaction) and that in which it is delivered. It goes to the group that leads the queue then,
for readers do not come back to where the queue was. Java leaves it in the old queue, where running readers miss it.

Source:
    broker/failover/EscapeBridge.java, broker/topic/TopicRouteInfoManager.java.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from maxq.broker.identity.broker_identity import BrokerAddress
from maxq.broker.tables.static_topic.topic_queue_mapping_manager import TopicQueueMappingManager
from maxq.broker.tables.topic.topic_validator import REVIVE_TOPIC_PREFIX, SELF_TEST_TOPIC
from maxq.codes import RequestCode, ResponseCode
from maxq.config.settings import BrokerSettings
from maxq.errors import MaxQError
from maxq.lazy_dataclass import dataclass
from maxq.protocol.body.route import MASTER_ID, TopicRouteData
from maxq.protocol.body.static_topic import global_queues
from maxq.protocol.body.topic_config import PERM_WRITE
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.protocol.header.send import SendMessageRequestHeader, SendMessageResponseHeader
from maxq.protocol.message import message_const as const
from maxq.protocol.message.java_hash import java_hash
from maxq.protocol.message.message_properties import encode_properties
from maxq.protocol.message.message_sys_flag import MessageSysFlag, with_transaction_type
from maxq.remoting.client import RemotingClient
from maxq.runtime.interfaces import Clock
from maxq.store.append.message_ext_broker_inner import MessageExtBrokerInner
from maxq.store.message_store import MessageStore
from maxq.store.store_results import PutMessageResult, PutMessageStatus

log = logging.getLogger(__name__)

_SEND_TIMEOUT_MS: Final = 10_000  # longer than a master waits for its slaves: a send that is repeated is stored twice
_LOOKS: Final = 50
_LOOK_SECONDS: Final = 0.02
_DEFAULT_TOPIC: Final = "TBW102"
_DEFAULT_QUEUES: Final = 8
_MOST_ROUTES: Final = 10_000

#: sysFlag bits that describe the hosts of the copy stored here. They are cleared before the message is sent to another
#: group: a Java broker takes the bits as they come, and a record whose flags name longer hosts than it has cannot be
#: read.
_HOST_BITS: Final = MessageSysFlag.BORN_HOST_V6 | MessageSysFlag.STORE_HOST_V6

#: The other group has the message, also if its disk or slaves did not have it in time. It counts as delivered then:
#: each repetition would be stored once more, every few seconds for as long as a slave of that group is away.
_STATUS_OF: Final = {
    ResponseCode.SUCCESS: PutMessageStatus.PUT_OK,
    ResponseCode.FLUSH_DISK_TIMEOUT: PutMessageStatus.FLUSH_DISK_TIMEOUT,
    ResponseCode.FLUSH_SLAVE_TIMEOUT: PutMessageStatus.PUT_OK,
    ResponseCode.SLAVE_NOT_AVAILABLE: PutMessageStatus.PUT_OK,
}
#: Answers that say that the other group does not take this message, or its topic.
_REFUSALS: Final = (ResponseCode.MESSAGE_ILLEGAL, ResponseCode.NO_PERMISSION, ResponseCode.TOPIC_NOT_EXIST)


@dataclass(frozen=True, slots=True)
class RemoteQueue:
    """A writable queue of another group; for a static topic the number of the global queue."""

    broker_name: str
    address: str
    queue_id: int


@dataclass(slots=True)
class _Route:
    queues: list[RemoteQueue]
    read_ms: int  # monotonic
    turn: int = 0


class EscapeBridge:
    """Stores messages of services whose writes must not stop while the master is away (`put_message`).

    Attributes:
        rests: does this slave wait for its master, which stores everything itself?
        keeps: what became of a message that this slave keeps for its master; None: it goes to another group.
    """

    def __init__(
        self,
        *,
        settings: BrokerSettings,
        own: BrokerAddress,
        store: MessageStore,
        mappings: TopicQueueMappingManager,
        client: RemotingClient,
        topic_route: Callable[[str], Awaitable[TopicRouteData | None]],
        clock: Clock,
    ) -> None:
        """`topic_route` asks the name servers; it may raise MaxQError."""
        self._settings = settings
        self._own = own
        self._store = store
        self._mappings = mappings
        self._client = client
        self._topic_route = topic_route
        self._clock = clock
        self._routes: dict[str, _Route] = {}
        self._under_way = 0
        self.rests: Callable[[], bool] = lambda: False
        self.keeps: Callable[[MessageExtBrokerInner], PutMessageResult | None] = lambda message: None

    async def wait_idle(self) -> None:
        """Wait until no message is under way to another group, at most a second."""
        for _ in range(_LOOKS):
            if not self._under_way:
                break
            await asyncio.sleep(_LOOK_SECONDS)

    async def put_message(self, message: MessageExtBrokerInner) -> PutMessageResult:
        """Store a message here if this is a master and has the queue, else at another group. Never raises on a failure
        there: the result has the code (QUEUE_HAS_MOVED, PUT_TO_REMOTE_BROKER_FAIL, NO_REMOTE_BROKER_TAKES_IT,
        SERVICE_NOT_AVAILABLE) and a remark."""
        home = self._mappings.home_of(message.topic, message.queue_id)
        if self._own.broker_id == MASTER_ID:
            if home.queue_id is not None:
                message.queue_id = home.queue_id
                return self._store.put_message(message)
            return await self._escape(message, home.global_id, PutMessageStatus.QUEUE_HAS_MOVED)
        broker = self._settings.broker
        if not (broker.enable_slave_acting_master and broker.enable_remote_escape):
            remark = (
                f"this broker is a slave (id {self._own.broker_id}) and stores no messages of its own; "
                "enableSlaveActingMaster and enableRemoteEscape let it send them to another broker group"
            )
            return PutMessageResult(PutMessageStatus.SERVICE_NOT_AVAILABLE, remark=remark)
        if self.rests():
            remark = "the master of this slave comes back, and stores it itself"
            return PutMessageResult(PutMessageStatus.SERVICE_NOT_AVAILABLE, remark=remark)
        kept = self.keeps(message)
        if kept is not None:
            return kept
        wanted = home.global_id if home.queue_id is None else None
        return await self._escape(message, wanted, PutMessageStatus.PUT_TO_REMOTE_BROKER_FAIL)

    async def _escape(
        self, message: MessageExtBrokerInner, global_id: int | None, failure: PutMessageStatus
    ) -> PutMessageResult:
        """
        Args:
            global_id: this queue of a static topic and no other; None: any.
            failure: what the result says if nobody took the message.
        """
        self._under_way += 1
        try:
            return await self._send(message, await self._select(message.topic, global_id))
        except MaxQError as error:
            self._routes.pop(message.topic, None)
            if isinstance(error, _RefusedError) and failure is PutMessageStatus.PUT_TO_REMOTE_BROKER_FAIL:
                failure = PutMessageStatus.NO_REMOTE_BROKER_TAKES_IT
            log.warning("a message of topic %s could not be sent to another broker group: %s", message.topic, error)
            remark = f"the message of {message.topic} could not be given to another broker group: {error}"
            return PutMessageResult(failure, remark=remark)
        finally:
            self._under_way -= 1

    async def _send(self, message: MessageExtBrokerInner, queue: RemoteQueue) -> PutMessageResult:
        answer = await self._client.invoke(queue.address, self._request(message, queue), _SEND_TIMEOUT_MS)
        status = _STATUS_OF.get(ResponseCode(answer.code)) if answer.code in _STATUS_OF else None
        if status is None:
            kind = _RefusedError if answer.code in _REFUSALS else _NotTakenError
            raise kind(f"{queue.broker_name} at {queue.address} answered {answer.code} {answer.remark}")
        stored = SendMessageResponseHeader.decode(answer.ext)
        return PutMessageResult(status, queue_offset=stored.queue_offset, msg_id=stored.msg_id, message_count=1)

    async def _select(self, topic: str, global_id: int | None) -> RemoteQueue:
        """Return the requested queue, or else the next one in turn."""
        now_ms = self._clock.monotonic_ms()
        route = self._routes.get(topic)
        if route is None or now_ms - route.read_ms > self._settings.broker.load_balance_poll_name_server_interval:
            data = await self._topic_route(topic)
            turn = 0 if route is None else route.turn
            queues = [] if data is None else remote_queues(topic, data, self._own.broker_name)
            if route is None and len(self._routes) >= _MOST_ROUTES:
                self._routes.clear()
            route = self._routes[topic] = _Route(queues, now_ms, turn)
        queues = [queue for queue in route.queues if global_id is None or queue.queue_id == global_id]
        if not queues:
            which = "a writable queue of this topic" if global_id is None else f"queue {global_id} of this topic"
            kind = _RefusedError if await self._is_other_group_there() else _NotTakenError
            raise kind(f"no broker group but {self._own.broker_name} has a master and {which}")
        if topic.startswith(REVIVE_TOPIC_PREFIX):  # acks of popped messages must meet their check points there
            return queues[java_hash(self._own.broker_name) % len(queues)]
        route.turn += 1
        return queues[route.turn % len(queues)]

    async def _is_other_group_there(self) -> bool:
        """Return whether another group has a master now, by the route of a topic that each broker has."""
        route = await self._topic_route(SELF_TEST_TOPIC)
        others = [] if route is None else route.broker_datas
        return any(data.broker_name != self._own.broker_name and MASTER_ID in data.broker_addrs for data in others)

    def _request(self, message: MessageExtBrokerInner, queue: RemoteQueue) -> RemotingCommand:
        properties = dict(message.properties)  # the other group's disk has it before it counts as delivered here
        properties.pop(const.PROPERTY_WAIT_STORE_MSG_OK, None)
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


class _NotTakenError(MaxQError):
    """Raised when no other group accepted the message."""


class _RefusedError(_NotTakenError):
    """Raised when no other group accepts this message, while others may be accepted."""


def remote_queues(topic: str, route: TopicRouteData, own_broker_name: str) -> list[RemoteQueue]:
    """Return the writable queues of every group that has a master, except `own_broker_name`, ordered by name; for a
    static topic, the global queues that those groups lead."""
    masters = {
        data.broker_name: data.broker_addrs[MASTER_ID]
        for data in route.broker_datas
        if MASTER_ID in data.broker_addrs and data.broker_name != own_broker_name
    }
    writable = [data for data in route.queue_datas if data.perm & PERM_WRITE and data.broker_name in masters]
    names = {data.broker_name for data in writable}
    leaders = global_queues(topic, route.topic_queue_mapping_by_broker or {})
    led = [RemoteQueue(name, masters[name], queue.queue_id) for queue, name in sorted(leaders.items()) if name in names]
    ordinary = [
        RemoteQueue(data.broker_name, masters[data.broker_name], queue_id)
        for data in sorted(route.ordinary_queue_datas, key=lambda data: data.broker_name)
        if data.broker_name in names
        for queue_id in data.write_queue_ids
    ]
    return [*led, *ordinary]
