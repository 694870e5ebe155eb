"""Shared parts of Admin: calls, and finding the brokers of a topic, group or cluster."""

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from maxq.client.instance.client_api import MQClientAPI
from maxq.codes import RequestCode
from maxq.errors import BrokerError, ClientError, MaxQError, NoRouteError, RemotingError
from maxq.protocol.body.route import BrokerData, ClusterInfo, TopicRouteData
from maxq.protocol.body.static_topic import NO_BROKER, global_queues, is_mock_broker
from maxq.protocol.message.message_queue import MessageQueue
from maxq.protocol.namespace import retry_topic
from maxq.runtime.interfaces import Clock

Result = TypeVar("Result")


class AdminContext:
    """Calls of an operator. Nothing is cached, because an operator wants the present state."""

    def __init__(self, api: MQClientAPI, name_servers: list[str], clock: Clock) -> None:
        self.api = api
        self.name_servers = name_servers
        self.clock = clock

    async def at_name_servers(
        self, ask: Callable[[str], Awaitable[Result]], servers: Sequence[str] | None = None
    ) -> dict[str, Result]:
        """Ask each name server, or each of `servers`, and return the answers by address. They do not talk to each
        other, so one that fails keeps none of the others from being told.

        Raises:
            MaxQError: of the first that failed, if none was told.
            ClientError: some were told; it names them and the others.
        """
        return await _at_each("name server", servers or self.name_servers, ask)

    async def at_brokers(self, ask: Callable[[str], Awaitable[Result]], addresses: Sequence[str]) -> dict[str, Result]:
        """Ask each of these brokers, and return the answers by address. One that fails keeps none of the others from
        being told.

        Raises:
            MaxQError: of the first that failed, if none was told.
            ClientError: some were told; it names them and the others.
        """
        return await _at_each("broker", addresses, ask)

    async def cluster_info(self) -> ClusterInfo:
        """Return all clusters and brokers that the name servers know (106)."""
        response = await self.api.call_name_server(RequestCode.GET_BROKER_CLUSTER_INFO)
        return ClusterInfo.decode(response.body_bytes)

    async def route(self, topic: str) -> TopicRouteData:
        """Return the route of a topic (105); raises NoRouteError if no name server knows it."""
        return await self.api.topic_route(topic)

    async def brokers_of_cluster(self, cluster: str) -> list[BrokerData]:
        """Return the broker groups of a cluster, by name.

        Raises:
            ClientError: no such cluster; lists those there are.
        """
        info = await self.cluster_info()
        names = info.cluster_addr_table.get(cluster)
        if not names:
            known = ", ".join(sorted(info.cluster_addr_table)) or "none"
            raise ClientError(f"cluster {cluster} is not known to the name server; known clusters: {known}")
        return [info.broker_addr_table[name] for name in sorted(names) if name in info.broker_addr_table]

    async def masters_of_cluster(self, cluster: str) -> list[str]:
        """Return the addresses of the masters of a cluster."""
        return [data.master_address for data in await self.brokers_of_cluster(cluster) if data.master_address]

    async def addresses_of_cluster(self, cluster: str) -> list[str]:
        """Return the addresses of all brokers of a cluster."""
        return [address for data in await self.brokers_of_cluster(cluster) for address in data.addresses]

    async def brokers_of_topic(self, topic: str) -> list[tuple[str, str]]:
        """Return (broker name, address) per broker group of a topic: the master, or the first slave where there is
        none."""
        return answering_brokers(await self.route(topic))

    async def brokers_of_group(self, group: str, topic: str | None = None) -> list[tuple[str, str]]:
        """Return the broker groups that know a consumer group: those of its retry topic, else those of `topic`.

        Raises:
            ClientError: neither has a route; the group has never been online.
        """
        for name in (retry_topic(group), topic):
            if name is None:
                continue
            try:
                return await self.brokers_of_topic(name)
            except NoRouteError:
                continue
        raise ClientError(
            f"consumer group {group} is not known: no route for its retry topic; has it ever been online?"
        )

    async def address_of(self, queue: MessageQueue, via: str | None = None) -> str:
        """Return the address of a queue's broker; of the one that leads it, if it is a global queue of a static topic.

        Args:
            via: look into the route of this topic instead (an LMQ has none of its own).

        Raises:
            ClientError: the topic is not on that broker, or the broker that leads the queue is away.
        """
        topic = via or queue.topic
        route = await self.route(topic)
        wanted = queue.broker_name
        if is_mock_broker(wanted):
            wanted = global_queues(topic, route.topic_queue_mapping_by_broker or {}).get(queue, NO_BROKER)
        for name, address in answering_brokers(route):
            if name == wanted:
                return address
        if is_mock_broker(wanted):
            raise ClientError(f"no broker that is online leads queue {queue.queue_id} of static topic {topic}")
        raise ClientError(f"topic {topic} is not on broker {wanted}")

    async def broker_name_of(self, topic: str, broker: str) -> str:
        """Return the name of a broker of a topic that is given by name or by address (host:port).

        Raises:
            ClientError: the topic is not there; lists where it is.
        """
        brokers = sorted((await self.route(topic)).broker_datas, key=lambda data: data.broker_name)
        for data in brokers:
            if broker == data.broker_name or broker in data.broker_addrs.values():
                return data.broker_name
        known = ", ".join(f"{data.broker_name} ({data.master_address or 'no master'})" for data in brokers)
        raise ClientError(f"topic {topic} is not on broker {broker}; its brokers are {known or 'none'}")

    async def first_answer(
        self, brokers: list[tuple[str, str]], ask: Callable[[str], Awaitable[Result]], what: str
    ) -> Result:
        """Return the answer of the first broker that has it.

        Raises:
            MaxQError: what the last one said, if all refused or failed.
        """
        last: MaxQError | None = None
        for _, address in brokers:
            try:
                return await ask(address)
            except (BrokerError, RemotingError) as error:
                last = error
        raise last or ClientError(f"no broker to ask for {what}")


def answering_brokers(route: TopicRouteData) -> list[tuple[str, str]]:
    """Return (broker name, address) of each group in a route, by name."""
    return [
        (data.broker_name, data.master_address or data.broker_addrs[min(data.broker_addrs)])
        for data in sorted(route.broker_datas, key=lambda data: data.broker_name)
        if data.broker_addrs
    ]


async def _at_each(kind: str, addresses: Sequence[str], ask: Callable[[str], Awaitable[Result]]) -> dict[str, Result]:
    answers: dict[str, Result] = {}
    failed: dict[str, MaxQError] = {}
    for address in addresses:
        try:
            answers[address] = await ask(address)
        except MaxQError as error:
            failed[address] = error
    if not failed:
        return answers
    first = next(iter(failed.values()))
    if not answers:
        raise first
    others = "; ".join(f"{address}: {why}" for address, why in failed.items())
    raise ClientError(f"{kind} {', '.join(answers)} was told, but not {others}") from first
