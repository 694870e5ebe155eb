"""TopicQueueMappingCleanService: chains of static topics lose what nobody needs any more.

Every five minutes of the hours in `deleteWhen` a broker that is no slave looks at its mappings:

* The first part of a queue that it leads is dropped once its messages have expired. Groups that had stopped in there
  get the start of the next part as their place; without it they would start anew (in Java they do).
* A chain of a queue that it once led is kept while it names the leader; when that one has passed the queue on, too, the
  chain is forgotten.

Source:
    broker/topic/TopicQueueMappingCleanService.java.
"""

import logging
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Final

from maxq.broker.tables.static_topic.other_brokers import OtherBrokers
from maxq.broker.tables.static_topic.topic_queue_mapping_manager import TopicQueueMappingManager
from maxq.codes import RequestCode, ResponseCode
from maxq.config.message_store_config import MessageStoreConfig
from maxq.errors import MaxQError, RequestRefusedError
from maxq.protocol.body.offsets import TopicStatsTable
from maxq.protocol.body.route import GroupList, TopicRouteData
from maxq.protocol.body.static_topic import (
    GLOBAL_SCOPE,
    NO_BROKER,
    LogicQueueMappingItem,
    TopicQueueMappingDetail,
    decided,
    global_queues,
    mock_broker_name,
)
from maxq.protocol.body.topic_config import TopicConfigAndQueueMapping
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.protocol.message.message_queue import MessageQueue
from maxq.runtime.interfaces import Clock
from maxq.runtime.periodic import PeriodicTasks

log = logging.getLogger(__name__)

_PERIOD_SECONDS: Final = 300.0

Chain = list[LogicQueueMappingItem]


class TopicQueueMappingCleanService:
    """Cleans mappings; one per broker. Other brokers, and this one about its own parts, are asked over the network, as
    in Java.

    Args:
        topic_route: asks the name servers.
        config: `deleteWhen` and `brokerRole` are looked at each time.
    """

    def __init__(
        self,
        mappings: TopicQueueMappingManager,
        others: OtherBrokers,
        topic_route: Callable[[str], Awaitable[TopicRouteData | None]],
        *,
        config: Callable[[], MessageStoreConfig],
        clock: Clock,
    ) -> None:
        self._mappings = mappings
        self._others = others
        self._topic_route = topic_route
        self._config = config
        self._clock = clock
        self._tasks = PeriodicTasks()

    def start(self) -> None:
        self._tasks.every("old parts of static topics", _PERIOD_SECONDS, self._turn)

    async def shutdown(self) -> None:
        await self._tasks.stop()

    async def _turn(self) -> None:
        if self._config().broker_role != "SLAVE" and self._is_time():
            await self.clean()

    def _is_time(self) -> bool:
        hour = datetime.fromtimestamp(self._clock.wall_ms() / 1000).strftime("%H")
        return hour in {word.strip().zfill(2) for word in self._config().delete_when.split(";")}

    async def clean(self) -> None:
        """Check every mapping once. One that cannot be checked is kept."""
        for topic in sorted(self._mappings.table):
            for step in (self._drop_expired, self._forget_passed_on):
                detail = self._mappings.table.get(topic)
                if detail is None or not detail.hosted_queues:
                    continue
                try:
                    chains = await step(topic, detail)
                except MaxQError as error:
                    log.warning("old parts of static topic %s are kept until the next round: %s", topic, error)
                    continue
                if chains != detail.hosted_queues:
                    self._mappings.replace_chains(detail, chains)

    # --- parts that have expired --------------------------------------------------------------------------------------

    async def _drop_expired(self, topic: str, detail: TopicQueueMappingDetail) -> dict[int, Chain]:
        """Return the chains without leading parts that have no messages left."""
        chains = dict(detail.hosted_queues)
        old = {
            global_id: items
            for global_id, items in chains.items()
            if len(items) > 1 and items[-1].bname == detail.bname and items[1].is_decided
        }
        stats: dict[str, TopicStatsTable] = {}
        for global_id, items in old.items():
            first = items[0]
            if first.bname not in stats:
                answer = await self._ask(first.bname, topic, RequestCode.GET_TOPIC_STATS_INFO)
                stats[first.bname] = TopicStatsTable.decode(answer.body_bytes)
            place = stats[first.bname].offset_table.get(MessageQueue(topic, first.bname, first.queue_id))
            if place is None or place.max_offset > max(place.min_offset, 0):
                continue
            await self._carry_progress(topic, items)
            chains[global_id] = items[1:]
            log.info("queue %d of %s: its part %s has expired", global_id, topic, first)
        return chains

    async def _carry_progress(self, topic: str, items: Sequence[LogicQueueMappingItem]) -> None:
        """Let groups that have an offset in the first part only continue at the start of the next that has messages."""
        first, known = items[0], decided(items[1:])
        following = next((item for item in known if not item.is_empty), known[-1])
        answer = await self._ask(first.bname, topic, RequestCode.QUERY_TOPIC_CONSUME_BY_WHO)
        for group in GroupList.decode(answer.body_bytes).group_list:
            if not await self._has_progress(topic, group, first):
                continue
            later = [await self._has_progress(topic, group, item) for item in known]
            if not any(later):
                ext = {"consumerGroup": group, "queueId": str(following.queue_id)}
                ext["commitOffset"] = str(following.start_offset)
                await self._ask(following.bname, topic, RequestCode.UPDATE_CONSUMER_OFFSET, ext)

    async def _has_progress(self, topic: str, group: str, item: LogicQueueMappingItem) -> bool:
        ext = {"consumerGroup": group, "queueId": str(item.queue_id), "setZeroIfNotFound": "false"}
        absent = ResponseCode.QUERY_NOT_FOUND
        answer = await self._ask(item.bname, topic, RequestCode.QUERY_CONSUMER_OFFSET, ext, allowed=absent)
        return answer.code == ResponseCode.SUCCESS

    # --- chains of queues that went on --------------------------------------------------------------------------------

    async def _forget_passed_on(self, topic: str, detail: TopicQueueMappingDetail) -> dict[int, Chain]:
        """Return the chains without those that, by all that this broker knows, another broker leads now."""
        led_by = {
            global_id: items[-1].bname
            for global_id, items in detail.hosted_queues.items()
            if items and items[-1].bname != detail.bname
        }
        if not led_by:
            return detail.hosted_queues
        real = await self._real_leaders(topic, detail)
        mappings: dict[str, TopicQueueMappingDetail | None] = {}
        chains = dict(detail.hosted_queues)
        for global_id, known in led_by.items():
            name = real.get(global_id, NO_BROKER)
            if name in (known, NO_BROKER):
                continue
            if name not in mappings:
                mappings[name] = await self._mapping_of(name, topic)
            other = mappings[name]
            if other is None or (other.epoch, other.total_queues) != (detail.epoch, detail.total_queues):
                continue
            items = other.hosted_queues.get(global_id)
            if items and items[-1].bname == name:
                log.info("queue %d of %s: %s passed it on to %s, forgotten here", global_id, topic, known, name)
                del chains[global_id]
        return chains

    async def _real_leaders(self, topic: str, detail: TopicQueueMappingDetail) -> dict[int, str]:
        """Return global queue id → leader, according to name servers."""
        route = await self._topic_route(topic)
        if route is None:
            return {}
        scope = mock_broker_name(detail.scope or GLOBAL_SCOPE)
        leaders = global_queues(topic, route.topic_queue_mapping_by_broker or {})
        return {queue.queue_id: name for queue, name in leaders.items() if queue.broker_name == scope}

    async def _mapping_of(self, broker_name: str, topic: str) -> TopicQueueMappingDetail | None:
        answer = await self._ask(broker_name, topic, RequestCode.GET_TOPIC_CONFIG, physical=False)
        both = TopicConfigAndQueueMapping.decode(answer.body_bytes)
        return None if both.mapping_detail is None else TopicQueueMappingDetail.from_json(both.mapping_detail)

    async def _ask(
        self,
        broker_name: str,
        topic: str,
        code: RequestCode,
        ext: dict[str, str] | None = None,
        *,
        allowed: int = ResponseCode.SUCCESS,
        physical: bool = True,
    ) -> RemotingCommand:
        answer = await self._others.ask(broker_name, topic, code, {"topic": topic, **(ext or {})}, physical=physical)
        if answer.code not in (ResponseCode.SUCCESS, allowed):
            raise RequestRefusedError(answer.code, f"{broker_name} to {code.name}: {answer.remark}")
        return answer
