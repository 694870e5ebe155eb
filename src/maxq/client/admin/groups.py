"""Consumer and producer groups: settings, members, progress."""

from maxq.client.admin.context import AdminContext
from maxq.client.admin.global_progress import global_chains, global_progress
from maxq.client.admin.topics import TopicAdmin
from maxq.client.instance.client_api import fields
from maxq.client.validators import check_group
from maxq.codes import RequestCode, ResponseCode
from maxq.errors import BrokerError, ClientError, NoRouteError, RemotingError
from maxq.protocol.body.consumer_info import ConsumerRunningInfo, SetMessageRequestModeRequestBody
from maxq.protocol.body.heartbeat import ConsumerConnection, ProducerConnection, ProducerTableInfo
from maxq.protocol.body.offsets import ConsumeStats, OffsetWrapper
from maxq.protocol.body.subscription import (
    GroupForbidden,
    QuerySubscriptionResponseBody,
    SubscriptionData,
    SubscriptionGroupConfig,
    SubscriptionGroupList,
    SubscriptionGroupWrapper,
)
from maxq.protocol.body.topic_config import TopicList
from maxq.protocol.message.message_queue import MessageQueue
from maxq.protocol.namespace import RETRY_PREFIX, dlq_topic, retry_topic


class GroupAdmin:
    """Manages consumer groups and shows their members and progress; the attribute `groups` of an Admin. Addresses are
    host:port of brokers."""

    def __init__(self, context: AdminContext) -> None:
        self._context = context
        self._api = context.api
        self._topics = TopicAdmin(context)

    # --- settings ---

    async def create(self, address: str, config: SubscriptionGroupConfig) -> None:
        """Create or change a consumer group on one broker (200)."""
        check_group(config.group_name)
        await self._api.call(address, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, config.encode())

    async def create_in_cluster(self, cluster: str, config: SubscriptionGroupConfig) -> list[str]:
        """Create a group on all masters of a cluster; returns their addresses. One that fails keeps none of the others
        from being asked.

        Raises:
            MaxQError: none, or not all, could be changed; names those that could, and why not the others.
        """
        addresses = await self._context.masters_of_cluster(cluster)
        await self._context.at_brokers(lambda address: self.create(address, config), addresses)
        return addresses

    async def create_list(self, address: str, configs: list[SubscriptionGroupConfig]) -> None:
        """Create or change several groups on one broker (225)."""
        body = SubscriptionGroupList(configs).encode()
        await self._api.call(address, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, None, body)

    async def delete(self, address: str, group: str, *, clean_offset: bool = False) -> None:
        """Delete a consumer group on one broker (207), with `clean_offset` its offsets too."""
        ext = fields(groupName=group, cleanOffset=clean_offset)
        await self._api.call(address, RequestCode.DELETE_SUBSCRIPTIONGROUP, ext)

    async def config(self, address: str, group: str) -> SubscriptionGroupConfig:
        """Return a group's settings on one broker (352)."""
        response = await self._api.call(address, RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, fields(group=group))
        return SubscriptionGroupConfig.decode(response.body_bytes)

    async def all_configs(self, address: str) -> SubscriptionGroupWrapper:
        """Return all groups of one broker (201)."""
        response = await self._api.call(address, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
        return SubscriptionGroupWrapper.decode(response.body_bytes)

    async def forbid(self, address: str, group: str, topic: str, readable: bool | None = None) -> GroupForbidden:
        """Allow or forbid a group to read a topic (353); None only asks."""
        ext = fields(group=group, topic=topic, readable=readable)
        response = await self._api.call(address, RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN, ext)
        return GroupForbidden.decode(response.body_bytes)

    async def set_message_request_mode(self, address: str, body: SetMessageRequestModeRequestBody) -> None:
        """Set whether members of a group pull or pop a topic (401)."""
        await self._api.call(address, RequestCode.SET_MESSAGE_REQUEST_MODE, None, body.encode())

    # --- members ---

    async def connections(self, group: str, address: str | None = None) -> ConsumerConnection:
        """Return members and subscriptions of a consumer group (203), from all brokers it uses or from one.

        Raises:
            BrokerError: 206, no member is online.
            ClientError: nobody knows the group.
        """
        brokers = [("", address)] if address else await self._context.brokers_of_group(group)
        merged: ConsumerConnection | None = None
        last: Exception | None = None
        for _, broker in brokers:
            try:
                response = await self._api.call(
                    broker, RequestCode.GET_CONSUMER_CONNECTION_LIST, fields(consumerGroup=group)
                )
            except (BrokerError, RemotingError) as error:
                last = error
                continue
            part = ConsumerConnection.decode(response.body_bytes)
            if merged is None:
                merged = part
                continue
            known = {connection.client_id for connection in merged.connection_set}
            merged.connection_set += [c for c in part.connection_set if c.client_id not in known]
        if merged is None:
            raise last or ClientError(f"no broker to ask for the members of {group}")
        return merged

    async def consumer_ids(self, address: str, group: str) -> list[str]:
        """Return the client ids of a group's members at one broker (38)."""
        return await self._api.consumer_ids(address, group)

    async def producer_connections(self, group: str, topic: str) -> ProducerConnection:
        """Return the members of a producer group (204) at the brokers of a topic."""
        return await self._context.first_answer(
            await self._context.brokers_of_topic(topic), lambda address: self._producers(address, group), group
        )

    async def _producers(self, address: str, group: str) -> ProducerConnection:
        response = await self._api.call(address, RequestCode.GET_PRODUCER_CONNECTION_LIST, fields(producerGroup=group))
        return ProducerConnection.decode(response.body_bytes)

    async def all_producers(self, address: str) -> ProducerTableInfo:
        """Return all producers of one broker (328)."""
        response = await self._api.call(address, RequestCode.GET_ALL_PRODUCER_INFO)
        return ProducerTableInfo.decode(response.body_bytes)

    async def running_info(self, group: str, client_id: str, *, jstack: bool = False) -> ConsumerRunningInfo:
        """Ask one member for its state (307), through a broker that it is connected to."""

        async def ask(address: str) -> ConsumerRunningInfo:
            ext = fields(consumerGroup=group, clientId=client_id, jstackEnable=jstack)
            response = await self._api.call(address, RequestCode.GET_CONSUMER_RUNNING_INFO, ext, timeout_ms=12_000)
            return ConsumerRunningInfo.decode(response.body_bytes)

        return await self._context.first_answer(await self._context.brokers_of_group(group), ask, client_id)

    async def subscription(self, group: str, topic: str) -> SubscriptionData | None:
        """Return the subscription of a group to a topic (345)."""

        async def ask(address: str) -> SubscriptionData | None:
            ext = fields(group=group, topic=topic)
            response = await self._api.call(address, RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER, ext)
            return QuerySubscriptionResponseBody.decode(response.body_bytes).subscription_data

        return await self._context.first_answer(await self._context.brokers_of_topic(topic), ask, group)

    # --- progress ---

    async def consume_stats(self, group: str, topic: str | None = None, *, via: str | None = None) -> ConsumeStats:
        """Return committed offsets and backlog of a group, of one topic or all (208). Of static topics, these are those
        of the global queues.

        Args:
            via: ask the brokers of this topic instead (a cluster's name, or the parent of an LMQ).

        Raises:
            ClientError: nobody knows the group.
        """
        stats = ConsumeStats()
        context = self._context
        brokers = await (context.brokers_of_topic(via) if via else context.brokers_of_group(group, topic))
        for _, address in brokers:
            part = await self._stats_at(address, group, topic)
            stats.offset_table.update(part.offset_table)
            stats.consume_tps += part.consume_tps
        if via is None:
            for name in {queue.topic for queue in stats.offset_table}:
                await self._make_global(group, name, stats)
        return stats

    async def _make_global(self, group: str, topic: str, stats: ConsumeStats) -> None:
        """Replace a static topic's physical queues by its global queues."""
        chains = await global_chains(self._context, topic)
        if chains:
            physical: dict[MessageQueue, OffsetWrapper] = {}
            # also topics for which the group has committed nothing yet
            for _, address in await self._context.brokers_of_topic(topic):
                physical |= (await self._stats_at(address, group, topic)).offset_table
            found = global_progress(chains, physical)
            others = {queue: at for queue, at in stats.offset_table.items() if queue.topic != topic}
            stats.offset_table = {**others, **found}

    async def _stats_at(self, address: str, group: str, topic: str | None) -> ConsumeStats:
        response = await self._api.call(
            address, RequestCode.GET_CONSUME_STATS, fields(consumerGroup=group, topic=topic)
        )
        return ConsumeStats.decode(response.body_bytes)

    async def names(self) -> list[str]:
        """Return the consumer groups of which the name server has a retry topic, sorted."""
        response = await self._api.call_name_server(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        names = TopicList.decode(response.body_bytes).topic_list
        return sorted(name.removeprefix(RETRY_PREFIX) for name in names if name.startswith(RETRY_PREFIX))

    async def is_online(self, group: str) -> bool:
        """Tell whether the group has a member at this moment."""
        try:
            return bool((await self.connections(group)).connection_set)
        except NoRouteError:
            return False
        except BrokerError as error:
            if error.code in (ResponseCode.CONSUMER_NOT_ONLINE, ResponseCode.SYSTEM_ERROR):
                return False
            raise
        except ClientError:
            return False

    async def delete_in_cluster(self, group: str, cluster: str, *, clean_offset: bool = False) -> list[str]:
        """Delete a group on all masters of a cluster, then its retry and dead-letter topics; returns the addresses. One
        master that fails keeps none of the others from being asked, but the topics stay.

        Raises:
            MaxQError: none, or not all, could be asked; names those that could, and why not the others.
        """
        addresses = await self._context.masters_of_cluster(cluster)
        await self._context.at_brokers(
            lambda address: self.delete(address, group, clean_offset=clean_offset), addresses
        )
        await self.delete_topics(group, cluster)
        return addresses

    async def delete_topics(self, group: str, cluster: str) -> None:
        """Delete the retry and the dead-letter topic of a group in a cluster."""
        for topic in (retry_topic(group), dlq_topic(group)):
            await self._topics.delete(topic, cluster)
