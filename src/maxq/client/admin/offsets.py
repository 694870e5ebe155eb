"""Queue offsets: look, search, commit, reset, clone."""

from collections.abc import Sequence

from maxq.client.admin.context import AdminContext, answering_brokers
from maxq.client.instance.client_api import fields
from maxq.client.instance.topic_publish_info import subscribe_queues
from maxq.codes import RequestCode, ResponseCode
from maxq.errors import BrokerError, ClientError, MaxQError
from maxq.protocol.body.offsets import (
    ConsumerOffsetSerializeWrapper,
    GetConsumerStatusBody,
    ResetOffsetBody,
)
from maxq.protocol.body.route import BrokerData, TopicRouteData
from maxq.protocol.body.static_topic import NO_BROKER, global_queues
from maxq.protocol.message.message_queue import MessageQueue

LATEST = -1  # as a reset time: the end of the queue


class OffsetAdmin:
    """Reads and sets consumer offsets; the attribute `offsets` of an Admin. All offsets are queue offsets."""

    def __init__(self, context: AdminContext) -> None:
        self._context = context
        self._api = context.api

    async def queues(self, topic: str) -> list[MessageQueue]:
        """Return all readable queues of a topic, sorted."""
        return subscribe_queues(topic, await self._context.route(topic))

    async def max(self, queue: MessageQueue) -> int:
        """Return the offset behind the newest message of a queue (30)."""
        return await self._api.max_offset(await self._context.address_of(queue), queue)

    async def min(self, queue: MessageQueue) -> int:
        """Return the offset of the oldest message of a queue (31)."""
        return await self._api.min_offset(await self._context.address_of(queue), queue)

    async def search(self, queue: MessageQueue, timestamp_ms: int, boundary: str = "LOWER") -> int:
        """Find an offset by store time (29). LOWER: of the first message that is not older; UPPER: of the last that is
        not younger."""
        return await self._api.search_offset(await self._context.address_of(queue), queue, timestamp_ms, boundary)

    async def earliest_store_time(self, queue: MessageQueue) -> int:
        """Return the store time of the oldest message in ms, -1 if there is none (32)."""
        return await self._api.earliest_msg_store_time(await self._context.address_of(queue), queue)

    async def committed(self, group: str, queue: MessageQueue) -> int | None:
        """Return the offset of a group in a queue (14); None if it has none."""
        return await self._api.query_consumer_offset(await self._context.address_of(queue), group, queue)

    async def commit(self, group: str, queue: MessageQueue, offset: int) -> None:
        """Set a group's offset in a queue (15). Running members notice it only at their next rebalance; see
        `reset_queue`. If a reset waits there for the group's next pull, the group is reset to this offset instead."""
        await self._set(await self._context.address_of(queue), group, queue, offset)

    async def _set(self, address: str, group: str, queue: MessageQueue, offset: int) -> None:
        if not await self._api.update_consumer_offset(address, group, queue, offset, oneway=False):
            await self._reset_one(address, group, queue, offset)

    async def _reset_one(self, address: str, group: str, queue: MessageQueue, offset: int) -> dict[MessageQueue, int]:
        """Reset one queue. Brokers that know only resets of all queues are asked to move none forward."""
        return await self._reset(address, group, queue.topic, force=False, queue_id=queue.queue_id, offset=offset)

    async def all_committed(self, address: str) -> ConsumerOffsetSerializeWrapper:
        """Return all offsets of one broker (43). MaxQ's brokers give them in pages."""
        response = await self._api.call(address, RequestCode.GET_ALL_CONSUMER_OFFSET, {"page": ""})
        table = ConsumerOffsetSerializeWrapper.decode(response.body_bytes)
        while page := (response.ext or {}).get("nextPage"):
            response = await self._api.call(address, RequestCode.GET_ALL_CONSUMER_OFFSET, {"page": page})
            table.offset_table.update(ConsumerOffsetSerializeWrapper.decode(response.body_bytes).offset_table)
        return table

    async def reset_by_time(
        self, group: str, topic: str, timestamp_ms: int, *, force: bool = True, cluster: str | None = None
    ) -> dict[MessageQueue, int]:
        """Set a group to a store time, LATEST for the end (222); on brokers without that request the offsets are
        committed directly.

        Args:
            cluster: only on its brokers.

        Returns:
            The new offsets.

        Raises:
            ClientError: no broker of the cluster has the topic; or the group was set on some brokers and not on others,
                which failed or have no master now, and the error names both.
            MaxQError: what the first broker said, if none did it.
        """
        route = await self._context.route(topic)
        brokers = [
            data for data in route.broker_datas if cluster in (None, data.cluster) and _leads_queues(route, data)
        ]
        if not brokers:
            raise ClientError(f"no broker of cluster {cluster} has topic {topic}")
        result: dict[MessageQueue, int] = {}
        done: list[str] = []
        failed: dict[str, MaxQError] = {}
        for data in sorted(brokers, key=lambda data: data.broker_name):
            queues = [queue for queue in subscribe_queues(topic, route) if queue.broker_name == data.broker_name]
            try:
                result |= await self._reset_broker(data, group, topic, queues, timestamp_ms, force=force)
            except MaxQError as error:
                failed[data.broker_name] = error
            else:
                done.append(data.broker_name)
        leaders = global_queues(topic, route.topic_queue_mapping_by_broker or {})
        if left := [str(queue.queue_id) for queue, name in sorted(leaders.items()) if name == NO_BROKER]:
            failed["the one that leads queue " + ", ".join(left)] = ClientError("it is away")
        if not failed:
            return result
        first = next(iter(failed.values()))
        if not done:
            raise first
        others = "; ".join(f"{name}: {why}" for name, why in failed.items())
        raise ClientError(f"group {group} was reset on {', '.join(done)}, but not on {others}") from first

    async def _reset_broker(
        self,
        data: BrokerData,
        group: str,
        topic: str,
        queues: Sequence[MessageQueue],
        timestamp_ms: int,
        *,
        force: bool,
    ) -> dict[MessageQueue, int]:
        address = data.master_address
        if address is None:
            raise ClientError(f"broker {data.broker_name} has no master now")
        try:
            return await self._reset(address, group, topic, timestamp_ms=timestamp_ms, force=force)
        except BrokerError as error:
            if error.code != ResponseCode.CONSUMER_NOT_ONLINE:
                raise
            return await self._reset_directly(address, group, queues, timestamp_ms)

    async def queue_at(self, topic: str, broker: str, queue_id: int) -> MessageQueue:
        """Return a queue whose broker is given by name or by address.

        Raises:
            ClientError: the topic is not on that broker; lists where it is.
        """
        return MessageQueue(topic, await self._context.broker_name_of(topic, broker), queue_id)

    async def reset_queue(self, group: str, queue: MessageQueue, offset: int) -> int:
        """Set a group to one offset of one queue (222); returns the new offset."""
        address = await self._context.address_of(queue)
        table = await self._reset_one(address, group, queue, offset)
        return table.get(queue, offset)

    async def _reset(
        self,
        address: str,
        group: str,
        topic: str,
        *,
        timestamp_ms: int = LATEST,
        force: bool = True,
        queue_id: int = -1,
        offset: int | None = None,
    ) -> dict[MessageQueue, int]:
        ext = fields(topic=topic, group=group, timestamp=timestamp_ms, isForce=force, queueId=queue_id, offset=offset)
        response = await self._api.call(address, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, ext, timeout_ms=10_000)
        return ResetOffsetBody.decode(response.body_bytes).offset_table

    async def _reset_directly(
        self, address: str, group: str, queues: Sequence[MessageQueue], timestamp_ms: int
    ) -> dict[MessageQueue, int]:
        result = {}
        for queue in queues:
            if timestamp_ms == LATEST:
                offset = await self._api.max_offset(address, queue)
            else:
                offset = await self._api.search_offset(address, queue, timestamp_ms)
            await self._api.update_consumer_offset(address, group, queue, offset, oneway=False)
            result[queue] = offset
        return result

    async def clone(self, source_group: str, target_group: str, topic: str) -> dict[MessageQueue, int]:
        """Set a group's offsets to those of another group, queue by queue (43 and 15), and return them. Queues in which
        the other group has no offset are left alone: consume statistics (208, mqadmin) call that 0, and the group would
        begin anew. Of a static topic these are the global queues."""
        route = await self._context.route(topic)
        mappings = route.topic_queue_mapping_by_broker or {}
        result = {}
        for queue in sorted(global_queues(topic, mappings)):
            address = await self._context.address_of(queue)
            try:
                at = await self._api.query_consumer_offset(address, source_group, queue, zero_if_none=False)
            except BrokerError as error:
                if error.code != ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST:
                    raise
                continue
            if at is not None:
                await self._set(address, target_group, queue, at)
                result[queue] = at
        for broker_name, address in answering_brokers(route):
            if broker_name in mappings:
                continue
            committed = (await self.all_committed(address)).offset_table.get(f"{topic}@{source_group}", {})
            for queue_id, offset in sorted(committed.items()):
                queue = MessageQueue(topic, broker_name, queue_id)
                await self._set(address, target_group, queue, offset)
                result[queue] = offset
        if not result:
            raise ClientError(f"group {source_group} has no offsets of topic {topic} to clone")
        return result

    async def of_members(
        self, group: str, topic: str, client_address: str | None = None
    ) -> dict[str, dict[MessageQueue, int]]:
        """Ask the running members for their offsets (223): client id → queue → offset."""

        async def ask(address: str) -> dict[str, dict[MessageQueue, int]]:
            ext = fields(topic=topic, group=group, clientAddr=client_address)
            response = await self._api.call(
                address, RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, ext, timeout_ms=10_000
            )
            return GetConsumerStatusBody.decode(response.body_bytes).consumer_table

        return await self._context.first_answer(await self._context.brokers_of_topic(topic), ask, group)


def _leads_queues(route: TopicRouteData, data: BrokerData) -> bool:
    """Return whether a broker has queues of a topic that a group can be reset in. Earlier parts of a static topic are
    reset by the brokers that lead its queues."""
    mapping = (route.topic_queue_mapping_by_broker or {}).get(data.broker_name)
    return mapping is None or bool(mapping.curr_id_map)
