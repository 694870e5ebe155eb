"""TopicRoutes: which queues a client's topics have, and at which brokers (MQClientInstance.java, its route tables)."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Final, Generic, TypeVar

from maxq.client.errors import NoMasterError
from maxq.client.instance.broker_table import BrokerTable
from maxq.client.instance.client_api import MQClientAPI
from maxq.client.instance.topic_publish_info import (
    TopicPublishInfo,
    is_route_changed,
    publish_queues,
    subscribe_queues,
)
from maxq.errors import BrokerError, ClientError, NoRouteError, ProtocolError, RemotingError
from maxq.protocol.body.route import MASTER_ID, TopicRouteData
from maxq.protocol.body.static_topic import NO_BROKER, global_queues, is_mock_broker
from maxq.protocol.body.topic_config import PERM_WRITE
from maxq.protocol.message.message_queue import MessageQueue
from maxq.runtime.interfaces import Rng
from maxq.runtime.refusals import Cause, cause_of

log = logging.getLogger(__name__)

Result = TypeVar("Result")

#: A route that was not used for so many rounds of `update_all`, 30 s each by default, is forgotten.
UNUSED_ROUNDS: Final = 20


class TopicRoutes:
    """The routes of one client, from the name server's last answers. Simultaneous requests for a route are joined.

    Attributes:
        table: topic → route.
    """

    def __init__(self, api: MQClientAPI, brokers: BrokerTable, rng: Rng) -> None:
        """`brokers` gets the addresses of every route."""
        self._api = api
        self._brokers = brokers
        self._rng = rng
        self.table: dict[str, TopicRouteData] = {}
        # static topic → global queue → broker name of its leader
        self._leaders: dict[str, dict[MessageQueue, str]] = {}
        # topics that use the route of a template topic until they exist
        self._templates: dict[str, tuple[str, int]] = {}
        self._publish: dict[str, TopicPublishInfo] = {}
        self._unused: dict[str, int] = {}  # by topic: how often in a row `update_all` found that nobody had used it
        self._lookups: SharedLookups[bool] = SharedLookups()
        self._publish_lookups: SharedLookups[TopicPublishInfo] = SharedLookups()

    async def update_all(self, topics: Iterable[str]) -> None:
        """Ask the name server for these topics and those with sends. Topics that were not used for UNUSED_ROUNDS calls
        are forgotten: a program may send to any number of topics in its life."""
        topics = set(topics)
        self._forget_unused(topics)
        for topic in sorted({*self._publish, *topics}):
            try:
                await self.update_route(topic)
            except NoRouteError:
                log.debug("the name server knows no route for %s", topic)
            except (RemotingError, BrokerError, ProtocolError) as error:
                # A route that cannot be had keeps the old one: brokers may well be there without the name server.
                log.warning("no route for %s: %s", topic, error)

    def _forget_unused(self, wanted: set[str]) -> None:
        for topic in list(self.table):
            info = self._publish.get(topic)
            if topic in wanted or (info is not None and info.is_used):
                self._unused.pop(topic, None)
                if info is not None:
                    info.is_used = False
                continue
            self._unused[topic] = rounds = self._unused.get(topic, 0) + 1
            if rounds >= UNUSED_ROUNDS:
                for table in (self.table, self._leaders, self._templates, self._publish, self._unused):
                    table.pop(topic, None)

    async def update_route(self, topic: str) -> bool:
        """Ask the name server for one topic. A topic that does not exist yet and is sent to by the route of its
        template gets the template's present route, because its brokers may have another master since.

        Returns:
            True if the route is another one than before.

        Raises:
            NoRouteError: nobody knows the topic. The old route, if any, stays.
            RemotingError, BrokerError: the name server could not be asked.
        """

        async def ask() -> bool:
            try:
                route = await self._api.topic_route(topic)
            except NoRouteError:
                if topic not in self._templates:
                    raise
                return self._take_route(topic, await self._route_of_template(*self._templates[topic]))
            self._templates.pop(topic, None)
            return self._take_route(topic, route)

        return await self._lookups.share(topic, ask)

    async def update_route_from_default(self, topic: str, create_topic_key: str, queue_nums: int) -> None:
        """Use the route of `create_topic_key`, with at most `queue_nums` queues a broker, for a topic that does not
        exist. The first send creates the topic.

        Raises:
            NoRouteError: no broker creates topics by itself (autoCreateTopicEnable).
        """
        route = await self._route_of_template(create_topic_key, queue_nums)
        self._templates[topic] = (create_topic_key, queue_nums)
        self._take_route(topic, route)

    async def _route_of_template(self, create_topic_key: str, queue_nums: int) -> TopicRouteData:
        route = await self._api.topic_route(create_topic_key)
        for data in route.queue_datas:
            nums = min(queue_nums, data.read_queue_nums)
            data.read_queue_nums = nums
            data.write_queue_nums = nums
        return route

    def _take_route(self, topic: str, route: TopicRouteData) -> bool:
        changed = is_route_changed(self.table.get(topic), route)
        for data in route.broker_datas:  # also if the route has not changed: another topic's may have been older
            self._brokers.replace(data.broker_name, data.broker_addrs)
        if changed:
            log.info("route of %s changed: %s", topic, route)
            self.table[topic] = route
            self._leaders[topic] = global_queues(topic, route.topic_queue_mapping_by_broker or {})
        if topic in self._publish and (changed or not self._publish[topic].queues):
            self._set_publish_info(topic, route)
        return changed

    def _set_publish_info(self, topic: str, route: TopicRouteData) -> TopicPublishInfo:
        old = self._publish.get(topic)
        first = self._rng.below(1 << 16) if old is None else old.index  # the round-robin continues where it was
        info = TopicPublishInfo(publish_queues(topic, route), first=first)
        info.is_used = old is None or old.is_used
        self._publish[topic] = info
        return info

    def known_publish_info(self, topic: str) -> TopicPublishInfo | None:
        """Return the publish queues of a topic if they are known, for the common case of a send."""
        info = self._publish.get(topic)
        if info is not None:
            info.is_used = True
        return info

    async def publish_info(self, topic: str, create_topic_key: str | None, queue_nums: int) -> TopicPublishInfo:
        """Return the publish queues of a topic. The name servers are asked when they are not known yet.

        Args:
            create_topic_key: template topic for one that does not exist; None: do not create.
            queue_nums: queues per broker for such a topic.

        Raises:
            NoRouteError: no such topic, and no way to create it.
            NoMasterError: those that may take its messages have no master just now.
            ClientError: nobody may send to the topic.
        """
        info = self.known_publish_info(topic)
        if info is None or not info.queues:
            info = await self._publish_lookups.share(
                topic, lambda: self._find_publish_info(topic, create_topic_key, queue_nums)
            )
        if not info.queues:
            route = self.table[topic]
            if any(data.perm & PERM_WRITE for data in route.queue_datas):
                raise NoMasterError(
                    f"no master of topic {topic} is online, and slaves take no messages: start a master "
                    "(`maxq admin clusterList` shows which brokers are there), or try again while one starts"
                )
            if any(data.enable_acting_master for data in route.broker_datas):  # an acting slave shows itself as master
                raise NoMasterError(
                    f"no broker of topic {topic} takes messages now: its master may be away, and a slave act for it "
                    "(`maxq admin clusterList` shows which brokers are there), or the topic may lack the write "
                    "permission (`maxq admin updateTopicPerm`, or `addWritePerm` after `wipeWritePerm`)"
                )
            raise ClientError(
                f"no broker of topic {topic} has write permission; an operator gives it (`maxq admin updateTopicPerm`, "
                "or `addWritePerm` after `wipeWritePerm`)"
            )
        return info

    async def _find_publish_info(self, topic: str, create_topic_key: str | None, queue_nums: int) -> TopicPublishInfo:
        try:
            await self.update_route(topic)
        except NoRouteError:
            known = self.table.get(topic)
            # the known route may be the template's, from before the topic had a master
            if known is None or not publish_queues(topic, known):
                if create_topic_key is None:
                    raise
                try:
                    await self.update_route_from_default(topic, create_topic_key, queue_nums)
                except NoRouteError as error:
                    if cause_of(error.remark) == Cause.NO_BROKER:
                        raise
                    text = (
                        f"topic {topic} does not exist, and no broker makes topics of itself (autoCreateTopicEnable): "
                        f"create it, as with `maxq admin updateTopic`; the name server says: {error.remark}"
                    )
                    raise NoRouteError(error.code, text, address=error.address) from None
        except (RemotingError, BrokerError):
            if topic not in self.table:
                raise
        return self._set_publish_info(topic, self.table[topic])

    async def subscribe_queues(self, topic: str) -> list[MessageQueue]:
        """Return all readable queues of a topic, sorted. The name servers are asked if the route is not known.

        Raises:
            NoRouteError: nobody knows the topic.
        """
        if topic not in self.table:
            await self.update_route(topic)
        return subscribe_queues(topic, self.table[topic])

    def known_subscribe_queues(self, topic: str) -> list[MessageQueue]:
        """Return the readable queues of a topic by the route that is known, without asking."""
        route = self.table.get(topic)
        return subscribe_queues(topic, route) if route else []

    def masters(self, topic: str) -> dict[str, str | None]:
        """Return the address of the master of each broker group in a topic's route; None for a group without one."""
        route = self.table.get(topic)
        return (
            {} if route is None else {data.broker_name: data.broker_addrs.get(MASTER_ID) for data in route.broker_datas}
        )

    def has_living_masters(self, topic: str) -> bool:
        """Return whether the route of a topic names a master of each of its groups, none of which was unreachable a
        short while ago."""
        masters = self.masters(topic).values() if topic in self.table else [None]
        return all(master is not None and not self._brokers.is_suspect(master) for master in masters)

    def broker_of(self, queue: MessageQueue) -> str:
        """Return the name of the broker group that serves a queue: of a global queue of a static topic, the one that
        leads it."""
        if not is_mock_broker(queue.broker_name):
            return queue.broker_name
        return self._leaders.get(queue.topic, {}).get(queue, NO_BROKER)

    def first_served(self, queues: Iterable[MessageQueue]) -> MessageQueue | None:
        """Return the first of these queues that a broker serves: the one that leads a queue of a static topic may be
        away, and others of the topic can answer what concerns all of it."""
        return next((queue for queue in queues if self.broker_of(queue) != NO_BROKER), None)


class SharedLookups(Generic[Result]):
    """Lookups under way, by key. When a broker dies, or a topic is new, hundreds of sends want the same route at the
    same moment: one asks, and the others share its answer or its failure."""

    def __init__(self) -> None:
        self._tasks: dict[str, asyncio.Task[Result]] = {}

    async def share(self, key: str, look_up: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
        """Return the answer of the lookup under way for `key`, or start one. Raises what the lookup raises."""
        task = self._tasks.get(key)
        if task is None:
            task = self._tasks[key] = asyncio.create_task(look_up(), name=f"maxq-lookup-{key}")
            task.add_done_callback(lambda ended: self._ended(key, ended))
        return await asyncio.shield(task)

    def _ended(self, key: str, task: asyncio.Task[Result]) -> None:
        del self._tasks[key]
        if not task.cancelled():
            task.exception()  # marks the exception as retrieved, even if every caller was cancelled
