"""Topics: create, change, delete, look at."""

import logging
from collections.abc import Sequence

from maxq.client.admin.context import AdminContext
from maxq.client.admin.global_progress import global_chains, global_offsets
from maxq.client.admin.name_servers import NAMESPACE_ORDER_TOPIC_CONFIG, NameServerAdmin
from maxq.client.instance.client_api import fields
from maxq.client.validators import check_topic
from maxq.codes import RequestCode, ResponseCode
from maxq.errors import BrokerError, NoRouteError, RemotingError
from maxq.protocol.body.offsets import TopicStatsTable
from maxq.protocol.body.route import BrokerData, GroupList, TopicRouteData
from maxq.protocol.body.static_topic import TopicQueueMappingDetail
from maxq.protocol.body.topic_config import (
    CreateTopicListRequestBody,
    TopicConfig,
    TopicConfigAndMappingSerializeWrapper,
    TopicConfigAndQueueMapping,
    TopicList,
)

log = logging.getLogger(__name__)


class TopicAdmin:
    """Manages topics and shows their queues; the attribute `topics` of an Admin. Addresses are host:port of brokers."""

    def __init__(self, context: AdminContext) -> None:
        self._context = context
        self._api = context.api

    async def create(self, address: str, config: TopicConfig) -> None:
        """Create or change a topic on one broker (17). Attributes are given as `+key=value` or `-key` names.

        Raises:
            ClientError: illegal name. BrokerError: refused.
        """
        check_topic(config.topic_name)
        ext = topic_fields(config) | fields(attributes=_attributes_text(config.attributes))
        await self._api.call(address, RequestCode.UPDATE_AND_CREATE_TOPIC, ext)

    async def create_in_cluster(self, cluster: str, config: TopicConfig) -> list[str]:
        """Create or change a topic on all masters of a cluster; returns their addresses. One that fails keeps none of
        the others from being asked.

        Raises:
            MaxQError: none, or not all, could be changed; names those that could, and why not the others.
        """
        addresses = await self._context.masters_of_cluster(cluster)
        await self._context.at_brokers(lambda address: self.create(address, config), addresses)
        return addresses

    async def create_list(self, address: str, configs: list[TopicConfig]) -> None:
        """Create or change several topics on one broker (18)."""
        body = CreateTopicListRequestBody(configs).encode()
        await self._api.call(address, RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, None, body)

    async def delete(self, topic: str, cluster: str) -> str:
        """Delete a topic: on every broker of the cluster, then on every name server. One broker that fails keeps none
        of the others from being asked, but the name servers, because it would register the topic again.

        Returns:
            A sentence about what must be done when absent brokers are back (`parts_away`); usually empty.

        Raises:
            MaxQError: none, or not all, of the brokers could be asked; names those that could, and why not the others.
        """
        left = await self.parts_away(topic)
        follows = {
            address: address in data.followers
            for data in await self._context.brokers_of_cluster(cluster)
            for address in data.addresses
        }
        await self._context.at_brokers(
            lambda address: self.delete_in_broker(address, topic, follows_master=follows[address]), list(follows)
        )
        await self.delete_in_name_servers(topic, cluster)
        await self.forget_order(topic)
        return left

    async def parts_away(self, topic: str) -> str:
        """Return a sentence about the brokers that have a part of a static topic and cannot be asked to delete it;
        empty if there are none, or if that cannot be learnt. Such a broker brings its part of the deleted topic
        back."""
        try:
            route = await self._context.route(topic)
            masters = {data.broker_name: data.master_address for data in route.broker_datas if data.master_address}
            static = sorted(masters.keys() & (route.topic_queue_mapping_by_broker or {}).keys())
            details = [(await self.config(masters[name], topic)).mapping_detail for name in static]
        except (BrokerError, RemotingError) as error:
            log.debug("which brokers have parts of topic %s: %s", topic, error)
            return ""
        mappings = [TopicQueueMappingDetail.from_json(detail) for detail in details if detail is not None]
        chains = [(number, items) for mapping in mappings for number, items in mapping.hosted_queues.items() if items]
        led = {number for number, items in chains if items[-1].bname in masters}
        away = sorted({item.bname for _, items in chains for item in items} - masters.keys())
        total = max((mapping.total_queues for mapping in mappings), default=0)
        if queues := [str(number) for number in range(total) if number not in led]:
            away.append(f"the one that leads queue {', '.join(queues)}")
        if not away:
            return ""
        return (
            f"brokers with a part of static topic {topic} have no master now ({', '.join(away)}): when they are back, "
            f"delete it there before the name is used again (`maxq admin deleteTopic -t {topic} -b` and the address)"
        )

    async def delete_in_broker(self, address: str, topic: str, *, follows_master: bool = False) -> None:
        """Delete a topic on one broker (215).

        Args:
            follows_master: it is a slave whose master is asked, too. Java's deletes then its own queues; A MaxQ slave
                answers that it does what its master does, which is not an error.
        """
        try:
            await self._api.call(address, RequestCode.DELETE_TOPIC_IN_BROKER, fields(topic=topic))
        except BrokerError as error:
            if not follows_master or error.code != ResponseCode.SLAVE_NOT_AVAILABLE:
                raise

    async def delete_in_name_servers(
        self, topic: str, cluster: str | None = None, *, servers: Sequence[str] | None = None
    ) -> None:
        """Make all name servers, or those of `servers`, forget a topic (216), in one cluster or everywhere."""
        ext = fields(topic=topic, clusterName=cluster)
        await self._context.at_name_servers(
            lambda address: self._api.call_name_server(RequestCode.DELETE_TOPIC_IN_NAMESRV, ext, address=address),
            servers,
        )

    async def delete_alone(self, address: str, topic: str) -> list[str]:
        """Delete a topic on one broker, and from the name servers if no other broker has it.

        Returns:
            The names of the brokers that have it, or that do not say whether they do.
        """
        await self.delete_in_broker(address, topic)
        try:
            route = await self._context.route(topic)
        except NoRouteError:
            return []
        names = [data.broker_name for data in route.broker_datas if await self._may_have(data, topic)]
        if not names:
            await self.delete_in_name_servers(topic)
            await self.forget_order(topic)
        return sorted(names)

    async def forget_order(self, topic: str) -> None:
        """Remove the order configuration of a topic that was deleted, unless a broker still has the topic: a new one of
        the name would be ordered. Does nothing if this user may not read the name servers' configuration."""
        try:
            await self._context.route(topic)
        except NoRouteError:
            names = NameServerAdmin(self._context)
            try:
                is_there = await names.get_kv(NAMESPACE_ORDER_TOPIC_CONFIG, topic) is not None
            except BrokerError as error:
                log.debug("whether topic %s was ordered: %s", topic, error)
                return
            if is_there:
                await names.delete_kv(NAMESPACE_ORDER_TOPIC_CONFIG, topic)

    async def _may_have(self, data: BrokerData, topic: str) -> bool:
        try:
            await self.config(next(iter(data.addresses)), topic)
        except BrokerError as error:
            return error.code != ResponseCode.TOPIC_NOT_EXIST
        except RemotingError:
            return True
        return True

    async def config(self, address: str, topic: str) -> TopicConfigAndQueueMapping:
        """Return a topic's settings on one broker (351)."""
        response = await self._api.call(address, RequestCode.GET_TOPIC_CONFIG, fields(topic=topic, lo=True))
        return TopicConfigAndQueueMapping.decode(response.body_bytes)

    async def all_configs(self, address: str) -> TopicConfigAndMappingSerializeWrapper:
        """Return all topics of one broker (21)."""
        response = await self._api.call(address, RequestCode.GET_ALL_TOPIC_CONFIG)
        return TopicConfigAndMappingSerializeWrapper.decode(response.body_bytes)

    async def names(self) -> list[str]:
        """Return all topics that the name server knows (206), sorted."""
        response = await self._api.call_name_server(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        return sorted(TopicList.decode(response.body_bytes).topic_list)

    async def names_of_cluster(self, cluster: str) -> list[str]:
        """Return the topics of one cluster (224), sorted."""
        response = await self._api.call_name_server(RequestCode.GET_TOPICS_BY_CLUSTER, fields(cluster=cluster))
        return sorted(TopicList.decode(response.body_bytes).topic_list)

    async def system_names(self, address: str) -> list[str]:
        """Return the names of one broker's own topics (305), sorted."""
        response = await self._api.call(address, RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER)
        return sorted(TopicList.decode(response.body_bytes).topic_list)

    async def route(self, topic: str) -> TopicRouteData:
        """Return the route of a topic (105). Raises NoRouteError if no name server knows it."""
        return await self._context.route(topic)

    async def clusters(self, topic: str) -> list[str]:
        """Return the clusters that have the topic, sorted."""
        return sorted({data.cluster for data in (await self._context.route(topic)).broker_datas})

    async def stats(self, topic: str, *, via: str | None = None) -> TopicStatsTable:
        """Return offsets and last update of all queues on all brokers (202), and the messages arriving per second.

        A static topic has its global queues in the table as well, under the broker name `__syslo__global__`.

        Args:
            via: ask the brokers of this topic instead (a cluster's name, or the parent of an LMQ).
        """
        table = TopicStatsTable()
        for _, address in await self._context.brokers_of_topic(via or topic):
            response = await self._api.call(address, RequestCode.GET_TOPIC_STATS_INFO, fields(topic=topic))
            part = TopicStatsTable.decode(response.body_bytes)
            table.offset_table.update(part.offset_table)
            table.topic_put_tps += part.topic_put_tps
        if via is None:
            chains = await global_chains(self._context, topic)
            table.offset_table.update(global_offsets(chains, table.offset_table))
        return table

    async def consumed_by(self, topic: str) -> list[str]:
        """Return the consumer groups of a topic (300), sorted."""
        groups: set[str] = set()
        for _, address in await self._context.brokers_of_topic(topic):
            response = await self._api.call(address, RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, fields(topic=topic))
            groups.update(GroupList.decode(response.body_bytes).group_list)
        return sorted(groups)

    async def consumed_by_group(self, group: str) -> list[str]:
        """Return the topics of which a consumer group has offsets (343), sorted."""
        topics: set[str] = set()
        for _, address in await self._context.brokers_of_group(group):
            response = await self._api.call(address, RequestCode.QUERY_TOPICS_BY_CONSUMER, fields(group=group))
            topics.update(TopicList.decode(response.body_bytes).topic_list)
        return sorted(topics)


def topic_fields(config: TopicConfig) -> dict[str, str]:
    """Make the header of a request to create or change a topic, without attributes (Java: CreateTopicRequestHeader)."""
    return fields(
        topic=config.topic_name,
        defaultTopic="TBW102",
        readQueueNums=config.read_queue_nums,
        writeQueueNums=config.write_queue_nums,
        perm=config.perm,
        topicFilterType=config.topic_filter_type.name,
        topicSysFlag=config.topic_sys_flag,
        order=config.order,
    )


def _attributes_text(attributes: dict[str, str]) -> str | None:
    if not attributes:
        return None
    return ",".join(
        name if name.startswith("-") or not value else f"{name}={value}" for name, value in attributes.items()
    )
