"""ClusterBrokers: the brokers of a cluster behind a proxy that runs by itself, MaxQ's and Java's.

Routes come from the name servers, types of topics and settings of groups from a broker; all are asked for again every
20 seconds while they are used. All clients share one connection to each broker, on which the proxy is the producer of
every topic that its clients send to: brokers ask it about open transactions, and it asks a client.

Source:
    proxy/service/{ClusterServiceManager,route/ClusterTopicRouteService,metadata/ClusterMetadataService}.java,
    proxy/service/transaction/ClusterTransactionService.java.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, Final, Generic, TypeVar

from maxq.codes import RequestCode, ResponseCode
from maxq.errors import BrokerError, MaxQError, RemotingError
from maxq.lazy_dataclass import dataclass
from maxq.protocol.body.heartbeat import HeartbeatData, ProducerData
from maxq.protocol.body.route import BrokerData, ClusterInfo, TopicRouteData
from maxq.protocol.body.subscription import SubscriptionGroupConfig
from maxq.protocol.body.topic_config import TopicConfig
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.protocol.grpc import messages as pb
from maxq.proxy.brokers import MESSAGE_TYPE_ATTRIBUTE, NORMAL, Asking, NotKnownYet, OnReply, TopicView, topic_view
from maxq.proxy.statuses import CallRefusedError
from maxq.remoting.client import RemotingClient, split_address
from maxq.remoting.connection import Connection

log: Final = logging.getLogger(__name__)

_CALL_MS: Final = 3_000
_REFRESH_SECONDS: Final = 20.0
_UNUSED_ROUNDS: Final = 15  # after so many an entry that nobody used is forgotten
_UNKNOWN_SECONDS: Final = 1.0  # for so long it is believed that there is no such topic or group
_MOST_KEPT: Final = 20_000  # topics, and groups
_MOST_WANTED: Final = 4_096  # topics of clients that wait to be looked up
_AT_ONCE: Final = 32  # of them
_LONGEST_ANSWER_S: Final = 40.0  # a pop waits for messages half as long at most

Value = TypeVar("Value")


@dataclass(slots=True)
class _Entry(Generic[Value]):
    """One thing that was asked for and exists."""

    value: Value
    rounds: int = 0  # since it was used


@dataclass(slots=True)
class _Missing:
    """A name of which nothing is known. `error`: because it could not be asked for; None: there is no such thing."""

    asked_at: float  # by the loop
    error: MaxQError | None


class _Cache(Generic[Value]):
    """What was asked for, by name, and is asked for again while it is used."""

    def __init__(self, ask: Callable[[str], Awaitable[Value | None]], *, tells_failures: bool) -> None:
        """`tells_failures`: what could not be asked for is an error, not something that does not exist."""
        self._ask = ask
        self._tells_failures = tells_failures
        self._entries: dict[str, _Entry[Value]] = {}
        self._missing: dict[str, _Missing] = {}
        self._asking: dict[str, asyncio.Task[None]] = {}

    def known(self, name: str) -> Value | None:
        """Return what has this name if it is known now, without use of it."""
        entry = self._entries.get(name)
        return None if entry is None else entry.value

    def get(self, name: str) -> Value | None:
        """Return what has this name, or None.

        Raises:
            NotKnownYet: it has to be asked for.
            CallRefusedError: INTERNAL_SERVER_ERROR: it could not be asked for.
        """
        entry = self._entries.get(name)
        if entry is not None:
            entry.rounds = 0
            return entry.value
        missing = self._missing.get(name)
        if missing is not None and asyncio.get_running_loop().time() - missing.asked_at < _UNKNOWN_SECONDS:
            if missing.error is not None:
                raise CallRefusedError(pb.Code.INTERNAL_SERVER_ERROR, str(missing.error))
            return None
        task = self._asking.get(name)
        if task is None:
            task = self._asking[name] = asyncio.get_running_loop().create_task(self._fill(name))
        raise NotKnownYet(asyncio.shield(task))

    async def _fill(self, name: str) -> None:
        value, failure = None, None
        try:
            value = await self._ask(name)
        except MaxQError as error:
            log.warning("%s is not known: %s", name, error)
            failure = error if self._tells_failures else None
        finally:
            del self._asking[name]
        self._missing.pop(name, None)
        if value is not None:
            _drop_oldest(self._entries)
            self._entries[name] = _Entry(value)
        else:
            _drop_oldest(self._missing)
            self._missing[name] = _Missing(asyncio.get_running_loop().time(), failure)

    async def refresh(self) -> None:
        """Ask again for all that is used; what cannot be had stays as it was."""
        self._missing.clear()
        for name, entry in list(self._entries.items()):
            entry.rounds += 1
            if entry.rounds > _UNUSED_ROUNDS:
                self._entries.pop(name, None)
                continue
            try:
                value = await self._ask(name)
            except MaxQError as error:
                log.warning("%s was not asked for again: %s", name, error)
                continue
            if value is None:
                self._entries.pop(name, None)
            elif value != entry.value:
                entry.value = value


def _drop_oldest(table: dict[str, Any]) -> None:
    """Make room for one more in a table."""
    if len(table) >= _MOST_KEPT:
        del table[next(iter(table))]


class ClusterBrokers:
    """See the module's text.

    Attributes:
        port: the proxy's own.
        sent_to: returns the topics that clients send to.

    Args:
        remoting: its name servers are set.
        cluster: whose brokers know the groups.
        own_id: what the proxy calls itself.
        max_message_size: bytes of a body that is taken.
    """

    def __init__(
        self, remoting: RemotingClient, cluster: Callable[[], str], own_id: str, max_message_size: Callable[[], int]
    ) -> None:
        self._remoting = remoting
        self._cluster = cluster
        self._own_id = own_id
        self._max_message_size = max_message_size
        self._topics = _Cache[TopicView](self._ask_topic, tells_failures=True)
        self._groups = _Cache[SubscriptionGroupConfig](self._ask_group, tells_failures=False)
        self._masters: dict[str, str] = {}  # broker name → address, of all routes
        self._producers: set[str] = set()  # topics that exist
        self._wanted: dict[str, None] = {}  # topics of clients, to be looked up
        self._looks_up = False
        self._told: set[str] = set()  # addresses of the brokers that know of all producers
        self._under_way: deque[tuple[float, Connection, int]] = deque()  # until when, and the request's number
        self._tasks: set[asyncio.Task[Any]] = set()
        self.port = 0
        self.sent_to: Callable[[], set[str]] = lambda: set(self._producers)

    def start(self) -> None:
        """Begin to ask again for what is known."""
        self._run(self._refresh())
        self._run(self._time_out())

    async def stop(self) -> None:
        """End all that runs, and close the connections."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._remoting.close()

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _refresh(self) -> None:
        while True:
            await asyncio.sleep(_REFRESH_SECONDS)
            await self._topics.refresh()
            await self._groups.refresh()
            await self._round_of_producers()

    # --- what is known -----------------------------------------------------------------------------------------------

    def topic(self, name: str) -> TopicView | None:
        return self._topics.get(name)

    def group(self, name: str) -> SubscriptionGroupConfig | None:
        return self._groups.get(name)

    def grpc_address(self, broker: BrokerData) -> tuple[str, int]:
        """Return the address of a broker with this proxy's port: clients get it only if the address at which their call
        arrived is not known."""
        return split_address(broker.master_address or broker.addresses[0])[0], self.port

    @property
    def max_message_size(self) -> int:
        return self._max_message_size()

    @property
    def knows_clients(self) -> bool:
        return False

    async def _ask_topic(self, name: str) -> TopicView | None:
        command = RemotingCommand(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": name, "acceptStandardJsonOnly": "true"})
        answer = await self._remoting.invoke_name_server(command, _CALL_MS)
        if answer.code == ResponseCode.TOPIC_NOT_EXIST:
            return None
        if answer.code != ResponseCode.SUCCESS:
            raise BrokerError(answer.code, answer.remark)
        route = TopicRouteData.decode(answer.body_bytes)
        with_master = [data for data in route.broker_datas if data.master_address]
        self._masters |= {data.broker_name: data.master_address for data in with_master if data.master_address}
        names = {data.broker_name for data in with_master}
        queues = [data for data in route.ordinary_queue_datas if data.broker_name in names]
        if not queues:
            return None
        address = self._masters[queues[0].broker_name]
        answer = await self._remoting.invoke(
            address, RemotingCommand(RequestCode.GET_TOPIC_CONFIG, {"topic": name, "lo": "true"}), _CALL_MS
        )
        kind = NORMAL
        if answer.code == ResponseCode.SUCCESS:
            kind = TopicConfig.decode(answer.body_bytes).attributes.get(MESSAGE_TYPE_ATTRIBUTE, NORMAL)
        masters = [BrokerData(data.cluster, data.broker_name, {0: data.master_address or ""}) for data in with_master]
        view = topic_view(name, kind, queues, masters)
        known = self._topics.known(name)
        if known is not None:
            view.next_queue = known.next_queue
        return view

    async def _ask_group(self, name: str) -> SubscriptionGroupConfig | None:
        answer = await self._remoting.invoke_name_server(RemotingCommand(RequestCode.GET_BROKER_CLUSTER_INFO), _CALL_MS)
        if answer.code != ResponseCode.SUCCESS:
            raise BrokerError(answer.code, answer.remark)
        cluster = ClusterInfo.decode(answer.body_bytes)
        names = cluster.cluster_addr_table.get(self._cluster()) or list(cluster.broker_addr_table)
        masters = [data.master_address for name in names if (data := cluster.broker_addr_table.get(name)) is not None]
        for address in masters:
            if address is None:
                continue
            asked = RemotingCommand(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, {"group": name})
            answer = await self._remoting.invoke(address, asked, _CALL_MS)
            if answer.code == ResponseCode.SUCCESS:
                return SubscriptionGroupConfig.decode(answer.body_bytes)
        return None

    # --- requests ----------------------------------------------------------------------------------------------------

    def ask(self, client: Asking, broker_name: str, command: RemotingCommand, on_reply: OnReply) -> bool:
        address = self._masters.get(broker_name)
        if address is None:
            return False
        command.ext["bname"] = broker_name
        connection = self._remoting.open_connection(address)
        if connection is None:
            self._run(self._connect_and_send(address, command, on_reply))
        else:
            self._send(connection, command, on_reply)
        return True

    def _send(self, connection: Connection, command: RemotingCommand, on_reply: OnReply) -> None:
        self.asked(connection, connection.request(command, on_reply), on_reply)

    def link(self, client: Asking, broker_name: str) -> Connection | None:
        address = self._masters.get(broker_name)
        return None if address is None else self._remoting.open_connection(address)

    def asked(self, link: Connection, opaque: int, on_reply: OnReply) -> None:
        """Note a request, which ends without an answer if its broker has not answered it in time."""
        until = asyncio.get_running_loop().time() + _LONGEST_ANSWER_S
        self._under_way.append((until, link, opaque))

    async def _connect_and_send(self, address: str, command: RemotingCommand, on_reply: OnReply) -> None:
        try:
            connection = await self._remoting.connect(address, _CALL_MS)
            self._send(connection, command, on_reply)
        except MaxQError as error:
            log.warning("%s was not asked: %s", address, error)
            on_reply(None)

    async def _time_out(self) -> None:
        """End each request that its broker has not answered in time, and tell its caller that no answer came."""
        while True:
            await asyncio.sleep(1)
            self._give_up()

    def _give_up(self) -> None:
        now = asyncio.get_running_loop().time()
        while self._under_way and self._under_way[0][0] <= now:
            _, connection, opaque = self._under_way.popleft()
            waiter = connection.waiters.get(opaque)
            if callable(waiter):  # it is not answered
                connection.forget(opaque)
                waiter(None)

    # --- transactions ------------------------------------------------------------------------------------------------

    def keep_producers(self, topics: Iterable[str]) -> None:
        missing = [name for name in topics if name not in self._producers]
        known = {name for name in missing if self._topics.known(name) is not None}
        if known:
            self._producers |= known
            self._told.clear()
            self._run(self._tell_producers())
        for name in missing:
            if name not in known and len(self._wanted) < _MOST_WANTED:
                self._wanted[name] = None
        if self._wanted and not self._looks_up:
            self._looks_up = True
            self._run(self._look_up())

    async def _look_up(self) -> None:
        """Enter those topics of clients that exist, and tell brokers of them."""
        try:
            while self._wanted:
                names = list(self._wanted)[:_AT_ONCE]
                for name in names:
                    del self._wanted[name]
                exist = await asyncio.gather(*map(self._exists, names))
                found = {name for name, is_there in zip(names, exist, strict=True) if is_there} - self._producers
                if found:
                    self._producers |= found
                    self._told.clear()
                    await self._tell_producers()
        finally:
            self._looks_up = False

    async def _exists(self, name: str) -> bool:
        try:
            return self._topics.get(name) is not None
        except NotKnownYet as wait:
            await wait.ready
        except CallRefusedError:
            return False
        return self._topics.known(name) is not None

    async def _round_of_producers(self) -> None:
        """Tell brokers again, and forget topics that have gone or that no client sends to."""
        wanted = self.sent_to()
        self._producers = {name for name in wanted & self._producers if self._topics.known(name) is not None}
        for name in self._producers:
            self._topics.get(name)  # it is used
        self._told.clear()
        await self._tell_producers()
        self.keep_producers(wanted)

    async def _tell_producers(self) -> None:
        """Tell all brokers of the routes which topics the proxy's clients send to."""
        beat = HeartbeatData(self._own_id, [ProducerData(name) for name in sorted(self._producers)])
        if not self._producers:
            return
        for address in set(self._masters.values()) - self._told:
            try:
                await self._remoting.invoke(
                    address, RemotingCommand(RequestCode.HEART_BEAT, {}, beat.encode()), _CALL_MS
                )
                self._told.add(address)
            except RemotingError as error:
                log.warning("%s does not know who sends here: %s", address, error)
