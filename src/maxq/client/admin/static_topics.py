"""Static topics: made, grown, and moved from broker to broker while they are used.

Source:
    tools/admin/MQAdminUtils.java, tools/command/topic/{UpdateStaticTopic,RemappingStaticTopic}SubCommand.java.
"""

from collections.abc import Iterable
from dataclasses import replace

from maxq.client.admin.context import AdminContext
from maxq.client.admin.static_topic_plan import (
    BrokerPart,
    Plan,
    empty_part,
    plan_queues,
    plan_remapping,
    plan_rest,
    round_up,
    total_queues,
)
from maxq.client.admin.topics import topic_fields
from maxq.client.instance.client_api import fields
from maxq.client.validators import check_topic
from maxq.codes import RequestCode, ResponseCode
from maxq.errors import BrokerError, ClientError
from maxq.protocol.body.offsets import TopicStatsTable
from maxq.protocol.body.static_topic import TopicQueueMappingDetail
from maxq.protocol.body.topic_config import TopicConfig, TopicConfigAndQueueMapping
from maxq.protocol.message.message_queue import MessageQueue


class StaticTopicAdmin:
    """Creates and moves static topics; the attribute `static_topics` of an Admin. Brokers are given by name; their
    masters must be online."""

    def __init__(self, context: AdminContext) -> None:
        self._context = context
        self._api = context.api

    async def create(self, topic: str, queues: int, broker_names: Iterable[str], *, force: bool = False) -> Plan:
        """Create a static topic with so many global queues, or extend one to that number.

        Clients see the new queues when all of them are there. A change that an earlier command began and did not finish
        is finished first.

        Args:
            force: replace what brokers have; queues whose broker is away begin anew, and their messages are lost.

        Raises:
            ClientError: illegal name, unknown broker, a broker of the topic is away, or not possible; nothing was
                changed.
            BrokerError: a broker refused; repeat the command, or use `force`.
        """
        check_topic(topic)
        masters = await self._masters()
        names = self._known(broker_names, masters)
        parts = await self.parts(topic, masters)
        if await self._finish(topic, parts, masters, force):
            parts = await self.parts(topic, masters)
            if queues == total_queues(parts):  # the change that was finished is the one that this command asks for
                return Plan(topic, parts)
        known = {name: set(part.mapping.hosted_queues) for name, part in parts.items()}
        total = total_queues(parts)
        plan = plan_queues(topic, queues, names, parts, now_ms=self._context.clock.wall_ms(), force=force)
        self._complete(plan, masters)
        # 1. the new queues, under the old number; 2. the new number: no queue is missing when clients look for it
        for name, part in sorted(plan.parts.items()):
            if part.mapping.hosted_queues.keys() != known.get(name, set()):
                await self._put(masters[name], replace(part, mapping=replace(part.mapping, total_queues=total)), force)
        for name in sorted(plan.parts):
            await self._put(masters[name], plan.parts[name], force)
        return plan

    async def remap(self, topic: str, broker_names: Iterable[str], *, force: bool = False) -> Plan:
        """Move the queues of a static topic to these brokers.

        Writing goes on at the new brokers as soon as the old ones have been told; readers find the old messages where
        they are. A change that an earlier command began and did not finish is finished first. Raises as `create`.
        """
        masters = await self._masters()
        names = self._known(broker_names, masters)
        parts = await self.parts(topic, masters)
        if await self._finish(topic, parts, masters, force):
            parts = await self.parts(topic, masters)
        plan = plan_remapping(topic, names, parts, now_ms=self._context.clock.wall_ms(), force=force)
        await self._carry_out(plan, masters, force)
        return plan

    async def _finish(self, topic: str, parts: dict[str, BrokerPart], masters: dict[str, str], force: bool) -> bool:
        """Finish an interrupted command. Returns whether there was one."""
        rest = plan_rest(topic, parts, now_ms=self._context.clock.wall_ms()) if parts else None
        if rest is None:
            return False
        if away := sorted((rest.map_in | rest.map_out) - masters.keys()):
            raise ClientError(
                f"a command before has begun to move queues of {topic} from or to {', '.join(away)}, which has no "
                "master now: start it, and repeat this command"
            )
        await self._carry_out(rest, masters, force)
        return True

    async def _carry_out(self, plan: Plan, masters: dict[str, str], force: bool) -> None:
        self._complete(plan, masters)
        # 1. the new leaders can be written to, without places; 2. the old ones no longer; 3. now their ends stand still
        for name in [*sorted(plan.map_in), *sorted(plan.map_out - plan.map_in)]:
            await self._put(masters[name], plan.parts[name], force)
        for name in sorted(plan.map_out):
            await self._decide(plan, name, masters[name])
        for name in [*sorted(plan.map_in), *sorted(set(plan.parts) - plan.map_in)]:
            await self._put(masters[name], plan.parts[name], force)

    async def parts(self, topic: str, masters: dict[str, str]) -> dict[str, BrokerPart]:
        """Return each broker's part of a static topic.

        Raises:
            ClientError: a broker has it as an ordinary topic.
        """
        found: dict[str, BrokerPart] = {}
        for name, address in masters.items():
            try:
                response = await self._api.call(address, RequestCode.GET_TOPIC_CONFIG, fields(topic=topic, lo=True))
            except BrokerError as error:
                if error.code != ResponseCode.TOPIC_NOT_EXIST:
                    raise
                continue
            both = TopicConfigAndQueueMapping.decode(response.body_bytes)
            if both.mapping_detail is None:
                raise ClientError(f"topic {topic} is an ordinary one on broker {name}: take another name, or delete it")
            mapping = TopicQueueMappingDetail.from_json(both.mapping_detail)
            config = TopicConfig(
                topic,
                both.read_queue_nums,
                both.write_queue_nums,
                both.perm,
                both.topic_filter_type,
                both.topic_sys_flag,
                both.order,
            )
            found[name] = BrokerPart(config, mapping)
        return found

    async def _masters(self) -> dict[str, str]:
        info = await self._context.cluster_info()
        addresses = {name: data.master_address for name, data in info.broker_addr_table.items()}
        return {name: address for name, address in sorted(addresses.items()) if address is not None}

    @staticmethod
    def _known(broker_names: Iterable[str], masters: dict[str, str]) -> list[str]:
        names = sorted(set(broker_names))
        unknown = [name for name in names if name not in masters]
        if unknown or not names:
            raise ClientError(f"no master of {', '.join(unknown) or 'no broker'}; there are {', '.join(masters)}")
        return names

    @staticmethod
    def _complete(plan: Plan, masters: dict[str, str]) -> None:
        """Give the topic to brokers without queues as well, so that they can name the leaders."""
        some = next(iter(plan.parts.values())).mapping
        for name in masters:
            if name not in plan.parts:
                part = plan.parts[name] = empty_part(plan.topic, name)
                part.mapping.epoch, part.mapping.total_queues = some.epoch, some.total_queues

    async def _decide(self, plan: Plan, name: str, address: str) -> None:
        """Fix the end of the queues that leave a broker: their next parts begin behind it."""
        response = await self._api.call(address, RequestCode.GET_TOPIC_STATS_INFO, fields(topic=plan.topic))
        offsets = TopicStatsTable.decode(response.body_bytes).offset_table
        for items in plan.parts[name].mapping.hosted_queues.values():
            if len(items) < 2 or items[-1].is_decided or items[-2].bname != name:
                continue
            old = items[-2]
            end = offsets[MessageQueue(plan.topic, old.bname, old.queue_id)].max_offset
            old.end_offset = end
            items[-1].logic_offset = round_up(old.to_logic(end))

    async def _put(self, address: str, part: BrokerPart, force: bool) -> None:
        ext = topic_fields(part.config) | fields(force=force)
        await self._api.call(address, RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC, ext, part.mapping.encode())
