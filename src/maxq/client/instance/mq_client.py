"""MQClientInstance: what all producers and consumers with one client id share.

Connections, routes, the table of broker addresses, heartbeats and the timers. One asyncio task per
timer; a timer whose round fails logs it and goes on with the next round.

Source: apache/rocketmq client/impl/factory/MQClientInstance.java.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection
from functools import cache
from typing import Protocol, TypeVar

from maxq.client.client_config import ClientConfig, ClientEnvironment
from maxq.client.errors import NotRunningError
from maxq.client.failures import Failures
from maxq.client.instance.broker_table import BrokerTable, BrokerTarget
from maxq.client.instance.broker_watch import LOOK_MS_MAX, BrokerWatch
from maxq.client.instance.client_api import MQClientAPI
from maxq.client.instance.pull_stream import scan_answers
from maxq.client.instance.request_reply import PendingRequests
from maxq.client.instance.topic_routes import TopicRoutes
from maxq.codes import ResponseCode
from maxq.errors import BrokerError, ClientError, MaxQError, NoRouteError, RemotingError
from maxq.protocol.body.heartbeat import ConsumerData, HeartbeatData, ProducerData
from maxq.protocol.body.route import MASTER_ID
from maxq.protocol.header.send import CheckTransactionStateRequestHeader
from maxq.protocol.message.message import MessageExt, UniqIdGenerator
from maxq.protocol.message.message_queue import MessageQueue
from maxq.remoting.client import RemotingClient
from maxq.remoting.connection import Connection
from maxq.remoting.socket_io_cy import is_compiled
from maxq.runtime.log_limits import LogThrottle, and_more

log = logging.getLogger(__name__)

REBALANCE_MIN_INTERVAL_MS = 1_000  # shortest time until the next round if a round left something undone
HEARTBEAT_MIN_INTERVAL_MS = 1_000
#: Milliseconds between two questions for the route of a topic whose brokers do not answer where the route says: before
#: the second question, and before later ones.
ROUTE_REFRESH_MS = (50, 100)
# questions after one report; they end sooner if the route names other masters that nobody has reported
_ROUTE_QUESTIONS = 15
_GREETING_SECONDS = 0.5
_ROUTE_REFRESH_SLOW_MS = 1_000  # between further questions, while reports continue
_PROBE_TOPIC = "TBW102"  # every broker answers something about it

#: Codes of brokers that are not the ones to ask, not yet or no longer; and of overloaded brokers, which cannot be told
#: apart everywhere.
NOT_HERE_CODES = frozenset(
    {
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.SLAVE_NOT_AVAILABLE,
        ResponseCode.GO_AWAY,
        ResponseCode.NOT_LEADER_FOR_QUEUE,
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.SYSTEM_ERROR,
    }
)

Result = TypeVar("Result")


class ConsumerInner(Protocol):
    """The interface of a consumer for its client instance."""

    group: str
    failures: Failures

    def consumer_data(self) -> ConsumerData:
        """Return the consumer's part of the heartbeat."""
        ...

    def topics(self) -> Collection[str]:
        """Return the topics whose routes the consumer needs."""
        ...

    async def do_rebalance(self) -> bool:
        """Take and give up queues. Returns True if the consumer holds exactly its share."""
        ...

    async def persist_consumer_offset(self) -> None: ...


class TransactionChecker(Protocol):
    """A function that is called when a broker asks for the state of a transaction."""

    async def __call__(
        self, message: MessageExt, header: CheckTransactionStateRequestHeader, broker_name: str, connection: Connection
    ) -> None: ...


class MQClientInstance:
    """The connections, routes and timers that the clients of one client id share. MQClientManager makes and starts
    it."""

    def __init__(
        self, client_id: str, config: ClientConfig, environment: ClientEnvironment, remoting: RemotingClient
    ) -> None:
        self.client_id = client_id
        self.config = config
        self.environment = environment
        self.remoting = remoting
        self._failures = Failures(config.on_failure, environment.clock)
        self.api = MQClientAPI(
            remoting,
            vip_channel_enabled=config.vip_channel_enabled,
            serialize_type=config.serialize_type,
            timeout_ms=config.mq_client_api_timeout,
        )
        self.ids = UniqIdGenerator(environment.pid, environment.host_ip, environment.clock, environment.rng)
        self.brokers = BrokerTable(environment.clock, on_move=self._greet)
        remoting.on_lost = self._lost
        scan_answers(remoting)
        self.routes = TopicRoutes(self.api, self.brokers, environment.rng)
        self._refreshing: dict[str, asyncio.Task[None]] = {}
        # topics that were reported to refresh_route_soon since their route was last asked for
        self._wrong_routes: set[str] = set()
        self._watch = BrokerWatch(self.api, self.brokers, environment.clock, self._refresh_group, _PROBE_TOPIC)
        self._producer_groups: set[str] = set()
        self._consumers: dict[str, ConsumerInner] = {}
        self._transaction_checkers: dict[str, TransactionChecker] = {}
        self.pending_requests = PendingRequests()
        self._heartbeat_lock = asyncio.Lock()
        self._heartbeat_wanted = asyncio.Event()
        self._failed_heartbeats = LogThrottle(environment.clock)  # a consumer without its share asks for one a second
        self._introduced: set[str] = set()  # brokers that have heard of all producer groups since they were connected
        self._greeting: set[asyncio.Task[None]] = set()
        self._rebalance_wanted = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self.started_at_ms = 0  # wall time of the start in ms; 0: not running
        self.is_forsaken = False  # its event loop ended before it was shut down
        self.loop: asyncio.AbstractEventLoop | None = None  # the event loop on which it runs
        self._loop_end: AsyncGenerator[None, None] | None = None

    # --- life ---

    def check_loop(self, what: str) -> None:
        """Check that the calling code runs on the loop of this instance.

        Args:
            what: the client, for the error: "producer of group P".

        Raises:
            NotRunningError: it runs on another one, or on none.
        """
        if self.is_forsaken:
            raise NotRunningError(f"{what} was not shut down before its event loop ended: make another one")
        if asyncio._get_running_loop() is not self.loop:
            raise NotRunningError(
                f"{what} runs on another event loop: call it there (asyncio.run_coroutine_threadsafe), or use the "
                "clients of maxq.api, which any thread may call"
            )

    async def start(self) -> None:
        """Start the tasks that run at intervals: routes, heartbeats, offsets, …."""
        _tell_if_slow()
        self.remoting.update_name_servers(self.config.name_servers())
        self.loop = asyncio.get_running_loop()
        self._loop_end = self._close_at_the_end_of_the_loop()
        await anext(self._loop_end)
        self.started_at_ms = self.environment.clock.wall_ms()
        config = self.config
        self._every("routes", 10, config.poll_name_server_interval, self.update_all_routes)
        self._tasks.append(asyncio.create_task(self._heartbeat_loop(), name=f"maxq-heartbeat-{self.client_id}"))
        self._every("offsets", 10_000, config.persist_consumer_offset_interval, self.persist_all_offsets)
        self._tasks.append(asyncio.create_task(self._rebalance_loop(), name=f"maxq-rebalance-{self.client_id}"))
        self._tasks.append(asyncio.create_task(self._watch_loop(), name=f"maxq-watch-{self.client_id}"))

    async def shutdown(self) -> None:
        """Stop the timers and close all connections. Clients have been unregistered before."""
        tasks = [*self._tasks, *self._refreshing.values(), *self._greeting]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._tasks.clear()
        self.started_at_ms = 0
        await self.remoting.close()
        if self._loop_end is not None:
            await self._loop_end.aclose()

    async def _close_at_the_end_of_the_loop(self) -> AsyncGenerator[None, None]:
        """Close all connections when the event loop ends, which closes its asynchronous generators then: brokers would
        otherwise count a member that was not shut down for two minutes, and give its queues to no other member."""
        try:
            yield
        finally:
            self.is_forsaken = self.started_at_ms > 0
            for connection in list(self.remoting.connections):
                connection.abort("the event loop of the client has ended")

    def _every(self, name: str, first_ms: int, period_ms: int, work: Callable[[], Awaitable[object]]) -> None:
        self._tasks.append(
            asyncio.create_task(self._periodic(name, first_ms, period_ms, work), name=f"maxq-{name}-{self.client_id}")
        )

    async def _periodic(self, name: str, first_ms: int, period_ms: int, work: Callable[[], Awaitable[object]]) -> None:
        await asyncio.sleep(first_ms / 1000)
        while True:
            await self._survive(name, work)
            await asyncio.sleep(period_ms / 1000)

    async def _survive(self, name: str, work: Callable[[], Awaitable[object]]) -> None:
        try:
            await work()
        except MaxQError as error:
            log.warning("%s of client %s failed: %s", name, self.client_id, error)
        except Exception as error:
            self._failures.report(error, "%s of client %s", name, self.client_id)

    # --- members ---

    def register_producer(self, group: str) -> None:
        """Add a producer group, which the next heartbeats announce to brokers.

        Raises:
            ClientError: it does already.
        """
        if group in self._producer_groups:
            raise ClientError(
                f"producer group {group} already exists on client {self.client_id}; "
                "use another group or another instance_name"
            )
        self._producer_groups.add(group)
        self._introduced.clear()

    def set_transaction_checker(self, group: str, checker: TransactionChecker | None) -> None:
        """Set the function that is called when a broker asks how a transaction of this producer group ended; None: no
        function."""
        if checker is None:
            self._transaction_checkers.pop(group, None)
        else:
            self._transaction_checkers[group] = checker

    def transaction_checker(self, group: str) -> TransactionChecker | None:
        """Return the function that decides on open transactions of a producer group; None if it has none here."""
        return self._transaction_checkers.get(group)

    def register_consumer(self, consumer: ConsumerInner) -> None:
        """Add a consumer, which the next heartbeats announce to brokers.

        Raises:
            ClientError: its group has one here already.
        """
        if consumer.group in self._consumers:
            raise ClientError(
                f"consumer group {consumer.group} already exists on client {self.client_id}; "
                "use another group or another instance_name"
            )
        self._consumers[consumer.group] = consumer

    async def unregister_producer(self, group: str) -> None:
        """Tell all brokers that the producer group is gone."""
        self._producer_groups.discard(group)
        await self._unregister(f"producer group {group}", producer_group=group)

    async def unregister_consumer(self, group: str) -> None:
        """Tell all brokers that the consumer is gone."""
        self._consumers.pop(group, None)
        await self._unregister(f"consumer group {group}", consumer_group=group)

    async def _unregister(self, what: str, **groups: str) -> None:
        async def leave(address: str) -> None:
            try:
                await self.api.unregister_client(address, self.client_id, **groups)
            except (RemotingError, BrokerError) as error:
                level = logging.WARNING if address in self._introduced else logging.INFO  # it knows no member of ours
                log.log(level, "broker %s was not told that a member of %s leaves: %s", address, what, error)

        await asyncio.gather(*(leave(address) for _, _, address in self.brokers.all()))

    def consumer(self, group: str) -> ConsumerInner | None:
        """Return the consumer of this group on this client; None if there is none."""
        return self._consumers.get(group)

    @property
    def is_idle(self) -> bool:
        """Return whether no client uses this instance any more."""
        return not self._producer_groups and not self._consumers

    # --- routes ---

    async def update_all_routes(self) -> None:
        """Ask the name server for every topic in use, and forget brokers that no route mentions any more."""
        await self.routes.update_all({topic for consumer in self._consumers.values() for topic in consumer.topics()})

    def refresh_route_soon(self, topic: str) -> None:
        """Ask soon for the route of a topic whose brokers are not where it says; repeats as long as this is called."""
        self._wrong_routes.add(topic)
        if self.started_at_ms and topic not in self._refreshing:
            task = asyncio.create_task(self._refresh_while_wrong(topic), name=f"maxq-route-{topic}")
            self._refreshing[topic] = task
            task.add_done_callback(lambda ended: self._refreshing.pop(topic, None))

    async def _refresh_while_wrong(self, topic: str) -> None:
        asked, before = 0, self.routes.masters(topic)
        while asked < _ROUTE_QUESTIONS or topic in self._wrong_routes:
            self._wrong_routes.discard(topic)
            asked += 1
            try:
                await self.routes.update_route(topic)
                if self.routes.masters(topic) != before and self.routes.has_living_masters(topic):
                    # the search ends; a slave that came back would be a new route too, and does not end it
                    asked = _ROUTE_QUESTIONS
            except (RemotingError, BrokerError) as error:
                log.info("the route of %s could not be renewed, the old one is used on: %s", topic, error)
            pause_ms = ROUTE_REFRESH_MS[asked > 1] if asked < _ROUTE_QUESTIONS else _ROUTE_REFRESH_SLOW_MS
            await asyncio.sleep(pause_ms / 1000)

    def _refresh_group(self, broker_name: str) -> None:
        """Ask for the master of a silent broker group, by the route of one of its topics."""
        for topic, route in self.routes.table.items():
            if any(data.broker_name == broker_name for data in route.broker_datas):
                self.refresh_route_soon(topic)
                return

    async def _watch_loop(self) -> None:
        while True:
            changes = self.brokers.changes
            try:
                pause_ms = self._watch.look()
            except Exception as error:
                self._failures.report(error, "looking for silent brokers of client %s", self.client_id)
                pause_ms = LOOK_MS_MAX
            # wakes at once when another broker has taken a place
            await self.brokers.wait_for_change(pause_ms, since=changes)

    # --- brokers ---

    def find_broker_address_in_publish(self, broker_name: str) -> str | None:
        """Return the address of the master of a broker group; None if no route names one."""
        return self.brokers.master(broker_name)

    def find_broker_address_in_subscribe(
        self, broker_name: str, broker_id: int, only_this_broker: bool
    ) -> BrokerTarget | None:
        """Return the broker to read from; see BrokerTable.find_in_subscribe."""
        return self.brokers.find_in_subscribe(broker_name, broker_id, only_this_broker)

    def broker_failed(self, address: str, topic: str) -> None:
        """Note that a broker of `topic` could not be reached or does not serve: others of its group are asked first for
        a while, and the name servers are asked for the route."""
        self.brokers.suspect(address)
        self.refresh_route_soon(topic)

    def note_failure(self, address: str, topic: str, error: Exception) -> None:
        """Ask other brokers for a while if a request to a broker of `topic` failed because it cannot be reached or is
        the wrong one."""
        if isinstance(error, RemotingError):
            self.broker_failed(address, topic)
        elif isinstance(error, BrokerError) and error.code in NOT_HERE_CODES:
            self.refresh_route_soon(topic)

    async def broker_address(self, queue: MessageQueue) -> str:
        """Return the address of the master of a queue's broker group, or of another broker of the group if there is no
        master. Asks for the route once if the group is unknown.

        Raises:
            ClientError: the broker group is not known.
        """
        return (await self._group_of(queue))[0].address

    async def _group_of(self, queue: MessageQueue) -> list[BrokerTarget]:
        if self.brokers.master(self.routes.broker_of(queue)) is None:
            with contextlib.suppress(NoRouteError):
                await self.routes.update_route(queue.topic)
        group = self.brokers.candidates(self.routes.broker_of(queue))
        if not group:
            raise ClientError(
                f"broker {queue.broker_name} of topic {queue.topic} is in no route of the name server: see whether it "
                "runs, and is registered there (`maxq admin clusterList`)"
            )
        return group

    async def ask_group(
        self, queue: MessageQueue, ask: Callable[[BrokerTarget], Awaitable[Result]], *, master_first: bool = False
    ) -> Result:
        """Ask the master of a queue's broker; while it cannot be reached, the next of its group.

        Args:
            master_first: also if it could not be reached a moment ago.

        Raises:
            ClientError: the broker group is not known.
            RemotingError: none of the group could be reached; what the last one failed with.
            BrokerError, ClientError: what the one that answered said.
        """
        failure: RemotingError | None = None
        group = await self._group_of(queue)
        if master_first:
            group.sort(key=lambda broker: broker.is_slave)
        for broker in group:
            try:
                result = await ask(broker)
            except RemotingError as error:
                log.info("broker %s of %s does not answer: %s", broker.address, queue, error)
                self.broker_failed(broker.address, queue.topic)
                failure = error
            except BrokerError as error:
                self.note_failure(broker.address, queue.topic, error)
                raise
            else:
                self.brokers.trust(broker.address)
                return result
        assert failure is not None, "a group has a broker"
        raise failure

    async def find_consumer_ids(self, topic: str, group: str) -> list[str]:
        """Return the members of a group according to a random broker of the topic; empty if the topic has no broker.

        Raises:
            RemotingError, BrokerError, ClientError: the name servers or that broker did not say.
        """
        route = self.routes.table.get(topic)
        if route is None or not route.broker_datas:
            await self.routes.update_route(topic)
            route = self.routes.table[topic]
        if not route.broker_datas:
            return []
        data = route.broker_datas[self.environment.rng.below(len(route.broker_datas))]
        queue = MessageQueue(topic, data.broker_name, 0)
        try:
            return await self.ask_group(queue, lambda broker: self.api.consumer_ids(broker.address, group))
        except BrokerError:
            self.heartbeat_soon()  # it knows no member of the group
            raise

    # --- heartbeat ---

    def _lost(self, address: str) -> None:
        """Note that the connection to a broker broke, which then forgets its clients."""
        self._introduced.discard(address)

    def _greet(self) -> None:
        """Send heartbeats to new masters, which must know this client before the first request."""
        if self.started_at_ms:
            task = asyncio.create_task(self._survive("heartbeat", self.introduce), name=f"maxq-greet-{self.client_id}")
            self._greeting.add(task)
            task.add_done_callback(self._greeting.discard)

    async def wait_for_brokers(self, limit_ms: int, *, since: int | None) -> None:
        """Wait after a failure until routes name other brokers than when `brokers.changes` was `since` and a new master
        has this client's heartbeat, but not longer than `limit_ms`, plus a moment for the new master."""
        await self.brokers.wait_for_change(limit_ms, since=since)
        if self._greeting:
            await asyncio.wait(set(self._greeting), timeout=_GREETING_SECONDS)

    def heartbeat_soon(self) -> None:
        """Send heartbeats without waiting for the timer, because a broker does not know this client; it may have been
        restarted."""
        self._heartbeat_wanted.set()

    async def _heartbeat_loop(self) -> None:
        await asyncio.sleep(HEARTBEAT_MIN_INTERVAL_MS / 1000)
        while True:
            await self._survive("heartbeat", self._heartbeat_round)
            await asyncio.sleep(HEARTBEAT_MIN_INTERVAL_MS / 1000)
            rest_ms = self.config.heartbeat_broker_interval - HEARTBEAT_MIN_INTERVAL_MS
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(rest_ms, 0) / 1000):  # not wait_for, which may lose a cancellation
                    await self._heartbeat_wanted.wait()
            self._heartbeat_wanted.clear()

    async def _heartbeat_round(self) -> None:
        self.brokers.forget_offline(self.routes.table.values())
        await self.heartbeat_all()

    def heartbeat_data(self) -> HeartbeatData:
        """Return the heartbeat: all producer and consumer groups that live on this client."""
        return HeartbeatData(
            client_id=self.client_id,
            producer_data_set=[ProducerData(group) for group in sorted(self._producer_groups)],
            consumer_data_set=[consumer.consumer_data() for consumer in self._consumers.values()],
        )

    async def introduce(self) -> None:
        """Make sure that every known master has had a heartbeat of all producer groups."""
        strangers = [(name, address) for name, address in self._whom_to_tell() if address not in self._introduced]
        if strangers:
            await self._heartbeats(strangers)

    def _whom_to_tell(self) -> list[tuple[str, str]]:
        """Return (name, address) of the brokers that get heartbeats: slaves only when there are consumers."""
        return [
            (name, address)
            for name, broker_id, address in self.brokers.all()
            if broker_id == MASTER_ID or self._consumers
        ]

    async def heartbeat_all(self) -> None:
        """Send a heartbeat to every broker of `_whom_to_tell`. Failures are logged, for another round follows."""
        await self._heartbeats(self._whom_to_tell())

    async def _heartbeats(self, brokers: list[tuple[str, str]]) -> None:
        if self.is_idle:
            return
        async with self._heartbeat_lock:
            groups = set(self._producer_groups)
            data = self.heartbeat_data()
            await asyncio.gather(*(self._heartbeat_one(name, address, data, groups) for name, address in brokers))

    async def _heartbeat_one(self, name: str, address: str, data: HeartbeatData, groups: set[str]) -> None:
        try:
            self.brokers.versions[address] = await self.api.heartbeat(address, data)
            self.brokers.trust(address)
            if groups == self._producer_groups:  # otherwise a producer was added meanwhile
                self._introduced.add(address)
        except MaxQError as error:  # also an answer that cannot be read
            if (left_out := self._failed_heartbeats.admits((address, type(error)))) is not None:
                log.warning("heartbeat to broker %s at %s failed: %s%s", name, address, error, and_more(left_out))
            if isinstance(error, RemotingError):
                self.brokers.suspect(address)

    # --- consumers ---

    def rebalance_immediately(self) -> None:
        """Start a round of rebalance without waiting for the timer, because members or subscriptions changed."""
        self._rebalance_wanted.set()

    async def _rebalance_loop(self) -> None:
        while True:
            balanced = await self._rebalance_round()
            wait_ms = self.config.rebalance_interval if balanced else REBALANCE_MIN_INTERVAL_MS
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_ms / 1000):  # not wait_for, which may lose a cancellation
                    await self._rebalance_wanted.wait()
            self._rebalance_wanted.clear()

    async def _rebalance_round(self) -> bool:
        balanced = True
        for consumer in list(self._consumers.values()):
            try:
                balanced &= await consumer.do_rebalance()
            except Exception as error:
                consumer.failures.report(error, "rebalance of group %s", consumer.group)
                balanced = False
        return balanced

    async def persist_all_offsets(self) -> None:
        """Commit the finished messages of all consumers."""
        for consumer in list(self._consumers.values()):
            await consumer.persist_consumer_offset()


def already_started(what: str, instance: MQClientInstance) -> ClientError:
    """Make the error of a start of a client that runs, or that was never shut down, on an instance."""
    if instance.is_forsaken:
        return ClientError(f"{what} was not shut down before its event loop ended: make another one")
    return ClientError(f"{what} is already started")


@cache
def _tell_if_slow() -> None:
    """Warn once in a process that has none of the compiled modules."""
    if not is_compiled():
        log.warning(
            "maxq is installed without its compiled modules: a message takes several times the processor time; install "
            "a wheel, or a C compiler and then maxq again"
        )
