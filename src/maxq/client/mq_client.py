"""MQClientInstance: what all producers and consumers with one client id share.

Connections, routes, the table of broker addresses, heartbeats and the timers (namesrv.md §7). One asyncio task per
timer; a timer whose round fails logs it and goes on with the next round.

Source: apache/rocketmq client/impl/factory/MQClientInstance.java.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from typing import Protocol

from maxq.client.client_api import MQClientAPI
from maxq.client.client_config import ClientConfig, ClientSeams
from maxq.client.request_reply import PendingRequests
from maxq.client.shared_lookups import SharedLookups
from maxq.client.topic_publish_info import (
    TopicPublishInfo,
    is_route_changed,
    publish_queues,
    subscribe_queues,
)
from maxq.errors import BrokerError, ClientError, MaxQError, NoRouteError, RemotingError
from maxq.protocol.body.heartbeat import ConsumerData, HeartbeatData, ProducerData
from maxq.protocol.body.route import MASTER_ID, TopicRouteData
from maxq.protocol.message import UniqIdGenerator
from maxq.protocol.message_queue import MessageQueue
from maxq.remoting.client import RemotingClient

log = logging.getLogger(__name__)

REBALANCE_MIN_INTERVAL_MS = 1_000  # after a round that left something undone
HEARTBEAT_MIN_INTERVAL_MS = 1_000


@dataclass(frozen=True, slots=True)
class BrokerAddress:
    """Where to send, whether that is a slave, and the broker's version (0 unknown)."""

    address: str
    is_slave: bool
    version: int


class ConsumerInner(Protocol):
    """What an instance asks of a consumer."""

    group: str

    def consumer_data(self) -> ConsumerData:
        """Its part of the heartbeat."""
        ...

    def topics(self) -> Collection[str]:
        """Topics whose routes it needs."""
        ...

    async def do_rebalance(self) -> bool:
        """Take and give up queues; True if everything it should have is there."""
        ...

    async def persist_consumer_offset(self) -> None: ...


class MQClientInstance:
    """Shared part of the clients of one client id. Made and started by MQClientManager."""

    def __init__(self, client_id: str, config: ClientConfig, seams: ClientSeams, remoting: RemotingClient) -> None:
        self.client_id = client_id
        self.config = config
        self.seams = seams
        self.remoting = remoting
        self.api = MQClientAPI(
            remoting,
            vip_channel_enabled=config.vip_channel_enabled,
            serialize_type=config.serialize_type,
            timeout_ms=config.mq_client_api_timeout,
        )
        self.ids = UniqIdGenerator(seams.pid, seams.host_ip, seams.clock, seams.rng)
        self.routes: dict[str, TopicRouteData] = {}
        self.broker_addresses: dict[str, dict[int, str]] = {}  # broker name → broker id → address
        self._broker_versions: dict[str, int] = {}  # address → version
        self._publish: dict[str, TopicPublishInfo] = {}
        self._producer_groups: set[str] = set()
        self._consumers: dict[str, ConsumerInner] = {}
        self.pending_requests = PendingRequests()
        self._route_lookups: SharedLookups[bool] = SharedLookups()
        self._publish_lookups: SharedLookups[TopicPublishInfo] = SharedLookups()
        self._heartbeat_lock = asyncio.Lock()
        self._heartbeat_wanted = asyncio.Event()
        self._introduced: set[str] = set()  # brokers that know all our producer groups
        self._rebalance_wanted = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self.started_at_ms = 0  # wall time; 0 not running

    # --- life ---

    async def start(self) -> None:
        """Start the timers."""
        self.remoting.update_name_servers(self.config.name_servers())
        self.started_at_ms = self.seams.clock.wall_ms()
        config = self.config
        self._every("routes", 10, config.poll_name_server_interval, self.update_all_routes)
        self._tasks.append(asyncio.create_task(self._heartbeat_loop(), name=f"maxq-heartbeat-{self.client_id}"))
        self._every("offsets", 10_000, config.persist_consumer_offset_interval, self.persist_all_offsets)
        self._tasks.append(asyncio.create_task(self._rebalance_loop(), name=f"maxq-rebalance-{self.client_id}"))

    async def shutdown(self) -> None:
        """Stop the timers and close all connections. Clients have been unregistered before."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()
        self.started_at_ms = 0
        await self.remoting.close()

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
        except Exception:
            log.exception("%s of client %s failed", name, self.client_id)

    # --- members ---

    def register_producer(self, group: str) -> None:
        """A producer group lives here from now on.

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

    def register_consumer(self, consumer: ConsumerInner) -> None:
        """A consumer lives here from now on.

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
        await self._unregister(producer_group=group)

    async def unregister_consumer(self, group: str) -> None:
        """Tell all brokers that the consumer is gone."""
        self._consumers.pop(group, None)
        await self._unregister(consumer_group=group)

    async def _unregister(self, **groups: str) -> None:
        async def leave(address: str) -> None:
            try:
                await self.api.unregister_client(address, self.client_id, **groups)
            except (RemotingError, BrokerError) as error:
                log.warning("unregistering %s at %s failed: %s", groups, address, error)

        await asyncio.gather(*(leave(address) for _, _, address in self._all_brokers()))

    def consumer(self, group: str) -> ConsumerInner | None:
        """The consumer of this group on this client."""
        return self._consumers.get(group)

    @property
    def is_idle(self) -> bool:
        """Does nobody use this instance any more?"""
        return not self._producer_groups and not self._consumers

    # --- routes ---

    async def update_all_routes(self) -> None:
        """Ask the name server for every topic in use, and forget brokers that no route mentions any more."""
        topics = set(self._publish)
        for consumer in self._consumers.values():
            topics.update(consumer.topics())
        for topic in sorted(topics):
            try:
                await self.update_route(topic)
            except NoRouteError:
                log.debug("the name server knows no route for %s", topic)
            except (RemotingError, BrokerError) as error:
                # A route that cannot be had keeps the old one: brokers may well be there without the name server.
                log.warning("no route for %s: %s", topic, error)

    async def update_route(self, topic: str) -> bool:
        """Ask the name server for one topic.

        Returns:
            True if the route is another one than before.

        Raises:
            NoRouteError: nobody knows the topic. The old route, if any, stays.
            RemotingError, BrokerError: the name server could not be asked.
        """

        async def ask() -> bool:
            return self._take_route(topic, await self.api.topic_route(topic))

        return await self._route_lookups.share(topic, ask)

    async def update_route_from_default(self, topic: str, create_topic_key: str, queue_nums: int) -> None:
        """A topic that does not exist: use the route of `create_topic_key` with at most `queue_nums` queues a broker;
        the first send creates the topic.

        Raises:
            NoRouteError: no broker creates topics by itself (autoCreateTopicEnable).
        """
        route = await self.api.topic_route(create_topic_key)
        for data in route.queue_datas:
            nums = min(queue_nums, data.read_queue_nums)
            data.read_queue_nums = nums
            data.write_queue_nums = nums
        self._take_route(topic, route)

    def _take_route(self, topic: str, route: TopicRouteData) -> bool:
        changed = is_route_changed(self.routes.get(topic), route)
        if changed:
            log.info("route of %s changed: %s", topic, route)
            for data in route.broker_datas:
                self.broker_addresses[data.broker_name] = dict(data.broker_addrs)
            self.routes[topic] = route
        if topic in self._publish and (changed or not self._publish[topic].queues):
            self._set_publish_info(topic, route)
        return changed

    def _set_publish_info(self, topic: str, route: TopicRouteData) -> TopicPublishInfo:
        old = self._publish.get(topic)
        first = self.seams.rng.below(1 << 16) if old is None else old.index  # the round goes on
        info = TopicPublishInfo(publish_queues(topic, route), first=first)
        self._publish[topic] = info
        return info

    def known_publish_info(self, topic: str) -> TopicPublishInfo | None:
        """Publish queues of a topic if they are at hand; the fast path of sends."""
        return self._publish.get(topic)

    async def publish_info(self, topic: str, create_topic_key: str | None, queue_nums: int) -> TopicPublishInfo:
        """Publish queues of a topic; asks the name server when they are not known yet.

        Args:
            create_topic_key: template topic for one that does not exist; None: do not create.
            queue_nums: queues per broker for such a topic.

        Raises:
            NoRouteError: no such topic, and no way to create it.
            ClientError: the topic is there but no broker takes messages for it.
        """
        info = self._publish.get(topic)
        if info is None or not info.queues:
            info = await self._publish_lookups.share(
                topic, lambda: self._find_publish_info(topic, create_topic_key, queue_nums)
            )
        if not info.queues:
            raise ClientError(
                f"topic {topic} has a route but no queue that takes messages: no broker of it has write permission "
                "and a master online"
            )
        return info

    async def _find_publish_info(self, topic: str, create_topic_key: str | None, queue_nums: int) -> TopicPublishInfo:
        try:
            await self.update_route(topic)
        except NoRouteError:
            if topic not in self.routes:
                if create_topic_key is None:
                    raise
                await self.update_route_from_default(topic, create_topic_key, queue_nums)
        except (RemotingError, BrokerError):
            if topic not in self.routes:
                raise
        return self._set_publish_info(topic, self.routes[topic])

    async def subscribe_queues(self, topic: str) -> list[MessageQueue]:
        """All readable queues of a topic, sorted; asks the name server if the route is not known.

        Raises:
            NoRouteError: nobody knows the topic.
        """
        if topic not in self.routes:
            await self.update_route(topic)
        return subscribe_queues(topic, self.routes[topic])

    def known_subscribe_queues(self, topic: str) -> list[MessageQueue]:
        """The same from what is known now."""
        route = self.routes.get(topic)
        return subscribe_queues(topic, route) if route else []

    # --- brokers ---

    def find_broker_address_in_publish(self, broker_name: str) -> str | None:
        """Address of the master of a broker group."""
        return self.broker_addresses.get(broker_name, {}).get(MASTER_ID)

    def find_broker_address_in_subscribe(
        self, broker_name: str, broker_id: int, only_this_broker: bool
    ) -> BrokerAddress | None:
        """Whom to read from (RW-01).

        The asked broker of the group; if a slave was asked that is not there, the next id; else, unless
        `only_this_broker`, any of the group."""
        addresses = self.broker_addresses.get(broker_name)
        if not addresses:
            return None
        found_id: int | None = broker_id
        if broker_id not in addresses and broker_id != MASTER_ID:
            found_id = broker_id + 1
        if found_id not in addresses:
            found_id = None if only_this_broker else next(iter(sorted(addresses)))
        if found_id is None:
            return None
        address = addresses[found_id]
        return BrokerAddress(address, found_id != MASTER_ID, self._broker_versions.get(address, 0))

    async def broker_address(self, queue: MessageQueue) -> str:
        """Master of a queue's broker, any other broker of the group if there is none; asks for the route once if
        unknown.

        Raises:
            ClientError: the broker group is not known.
        """
        found = self.find_broker_address_in_subscribe(queue.broker_name, MASTER_ID, False)
        if found is None:
            with contextlib.suppress(NoRouteError):
                await self.update_route(queue.topic)
            found = self.find_broker_address_in_subscribe(queue.broker_name, MASTER_ID, False)
        if found is None:
            raise ClientError(f"broker {queue.broker_name} of topic {queue.topic} is in no route of the name server")
        return found.address

    async def find_consumer_ids(self, topic: str, group: str) -> list[str] | None:
        """Members of a group, asked from one random broker of the topic; None if nobody can tell."""
        route = self.routes.get(topic)
        if route is None or not route.broker_datas:
            try:
                await self.update_route(topic)
            except (RemotingError, BrokerError):
                return None
            route = self.routes[topic]
        if not route.broker_datas:
            return None
        data = route.broker_datas[self.seams.rng.below(len(route.broker_datas))]
        address = data.broker_addrs.get(MASTER_ID) or next(iter(data.broker_addrs.values()), None)
        if address is None:
            return None
        try:
            return await self.api.consumer_ids(address, group)
        except (RemotingError, BrokerError) as error:
            log.warning("members of group %s are unknown, %s did not say: %s", group, address, error)
            if isinstance(error, BrokerError):
                self.heartbeat_soon()  # it knows no member, and we are one
            return None

    def _all_brokers(self) -> list[tuple[str, int, str]]:
        return [
            (name, broker_id, address)
            for name, addresses in sorted(self.broker_addresses.items())
            for broker_id, address in sorted(addresses.items())
        ]

    def _forget_offline_brokers(self) -> None:
        alive: dict[str, set[str]] = {}
        for route in self.routes.values():
            for data in route.broker_datas:
                alive.setdefault(data.broker_name, set()).update(data.broker_addrs.values())
        for name, addresses in list(self.broker_addresses.items()):
            kept = {broker_id: address for broker_id, address in addresses.items() if address in alive.get(name, ())}
            if kept:
                self.broker_addresses[name] = kept
            else:
                del self.broker_addresses[name]

    # --- heartbeat ---

    def heartbeat_soon(self) -> None:
        """A broker does not know us (it was restarted, say): do not let it wait for the timer."""
        self._heartbeat_wanted.set()

    async def _heartbeat_loop(self) -> None:
        await asyncio.sleep(HEARTBEAT_MIN_INTERVAL_MS / 1000)
        while True:
            await self._survive("heartbeat", self._heartbeat_round)
            await asyncio.sleep(HEARTBEAT_MIN_INTERVAL_MS / 1000)
            rest_ms = self.config.heartbeat_broker_interval - HEARTBEAT_MIN_INTERVAL_MS
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._heartbeat_wanted.wait(), max(rest_ms, 0) / 1000)
            self._heartbeat_wanted.clear()

    async def _heartbeat_round(self) -> None:
        self._forget_offline_brokers()
        await self.heartbeat_all()

    def heartbeat_data(self) -> HeartbeatData:
        """Who we are, for all members."""
        return HeartbeatData(
            client_id=self.client_id,
            producer_data_set=[ProducerData(group) for group in sorted(self._producer_groups)],
            consumer_data_set=[consumer.consumer_data() for consumer in self._consumers.values()],
        )

    async def introduce(self) -> None:
        """Make sure that every broker we know has had a heartbeat of all our producer groups."""
        if any(address not in self._introduced for _, _, address in self._all_brokers()):
            await self.heartbeat_all()

    async def heartbeat_all(self) -> None:
        """Tell every broker (slaves only when there are consumers). Failures are logged: the next round comes."""
        if self.is_idle:
            return
        async with self._heartbeat_lock:
            groups = set(self._producer_groups)
            data = self.heartbeat_data()
            await asyncio.gather(
                *(
                    self._heartbeat_one(name, address, data, groups)
                    for name, broker_id, address in self._all_brokers()
                    if broker_id == MASTER_ID or self._consumers
                )
            )

    async def _heartbeat_one(self, name: str, address: str, data: HeartbeatData, groups: set[str]) -> None:
        try:
            self._broker_versions[address] = await self.api.heartbeat(address, data)
            if groups == self._producer_groups:  # else a producer came while this was under way
                self._introduced.add(address)
        except (RemotingError, BrokerError) as error:
            log.warning("heartbeat to broker %s at %s failed: %s", name, address, error)

    # --- consumers ---

    def rebalance_immediately(self) -> None:
        """Members or subscriptions changed."""
        self._rebalance_wanted.set()

    async def _rebalance_loop(self) -> None:
        while True:
            balanced = await self._rebalance_round()
            wait_ms = self.config.rebalance_interval if balanced else REBALANCE_MIN_INTERVAL_MS
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._rebalance_wanted.wait(), wait_ms / 1000)
            self._rebalance_wanted.clear()

    async def _rebalance_round(self) -> bool:
        balanced = True
        for consumer in list(self._consumers.values()):
            try:
                balanced &= await consumer.do_rebalance()
            except Exception:
                log.exception("rebalance of group %s failed", consumer.group)
                balanced = False
        return balanced

    async def persist_all_offsets(self) -> None:
        """Commit what all consumers have done."""
        for consumer in list(self._consumers.values()):
            await consumer.persist_consumer_offset()
