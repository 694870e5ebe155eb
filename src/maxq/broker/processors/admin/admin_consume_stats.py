"""AdminConsumeStatsProcessor: how far groups have come, and how far they are behind.

Source:
    broker/processor/AdminBrokerProcessor.java.
"""

import logging
from collections.abc import AsyncIterator, Callable, Iterable, Mapping

from maxq.broker.bundles import Clients, Environment, Messages, Tables
from maxq.broker.processors.support import RequestProcessor, topic_not_exist
from maxq.codes import RequestCode
from maxq.lazy_dataclass import dataclass
from maxq.protocol.body.offsets import (
    ConsumeStats,
    ConsumeStatsList,
    OffsetWrapper,
    QueryConsumeTimeSpanBody,
    QueueTimeSpan,
)
from maxq.protocol.frame.answer_limits import LongBody
from maxq.protocol.frame.header_fields import HeaderFields
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.protocol.json.json_body import filled
from maxq.protocol.message.message_queue import MessageQueue
from maxq.remoting.connection import Connection, Processor
from maxq.runtime.turns import Turns

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _TopicStats:
    """Progress of one group in one topic: messages consumed in a second, messages behind, and messages pulled but not
    consumed yet."""

    tps: float
    diff: int = 0
    inflight: int = 0


class AdminConsumeStatsProcessor(RequestProcessor):
    """Answers GET_CONSUME_STATS (208), QUERY_CONSUME_TIME_SPAN (303) and GET_BROKER_CONSUME_STATS (317)."""

    def __init__(self, env: Environment, tables: Tables, clients: Clients, messages: Messages) -> None:
        self._settings = env.settings
        self._clock = env.clock
        self._own = env.own
        self._store = messages.store
        self._topics = tables.topics
        self._groups = tables.groups
        self._offsets = tables.offsets
        self._consumers = clients.consumers
        self._stats = env.stats
        self._is_static = tables.mappings.is_static

    def routes(self) -> Mapping[int, Processor]:
        return {
            RequestCode.GET_CONSUME_STATS: self.get_consume_stats,
            RequestCode.QUERY_CONSUME_TIME_SPAN: self.query_consume_time_span,
            RequestCode.GET_BROKER_CONSUME_STATS: self.get_broker_consume_stats,
        }

    # --- 208 ----------------------------------------------------------------------------------------------------------

    async def get_consume_stats(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Handle request 208: a group's progress by read queue, for the listed topics, for one, or for all of which it
        committed offsets."""
        fields = HeaderFields(request.ext)
        group = fields.required_str("consumerGroup")
        listed = dict.fromkeys(topic for topic in (fields.opt_str("topicList") or "").split(";") if topic.strip())
        turns = Turns()
        rows = LongBody(request.code, connection.answer_limit)
        tps = 0.0
        for topic in listed or self._topics_of(group, fields.opt_str("topic") or ""):
            config = self._topics.select_topic_config(topic)
            if config is None:
                log.warning("consume stats of %s: topic %s does not exist", group, topic)
                continue
            tps += (await self._stats_of(group, topic, range(config.read_queue_nums), turns, rows.add)).tps
        return request.reply(body=rows.filled(ConsumeStats({}, tps).encode(), "offsetTable"))

    def _topics_of(self, group: str, topic: str) -> list[str]:
        topics = [topic] if topic.strip() else sorted(self._offsets.which_topic_by_consumer(group))
        return [name for name in topics if self._is_subscribed(group, name)]

    def _is_subscribed(self, group: str, topic: str) -> bool:
        """Return whether a topic is shown for a group: for an online group only the topics it subscribes to, for an
        offline group all."""
        is_offline = self._consumers.subscription_count(group) == 0
        return is_offline or self._consumers.find_subscription_data(group, topic) is not None

    async def _stats_of(
        self, group: str, topic: str, queue_ids: Iterable[int], turns: Turns, add: Callable[[bytes], None]
    ) -> "_TopicStats":
        """Call `add` with the encoded row of each queue."""
        broker_name = self._settings.broker.broker_name
        stats = _TopicStats(self._stats.tps_group_get_nums(group, topic))
        for queue_id in queue_ids:
            offsets = self._offsets_of(group, topic, queue_id)
            add(ConsumeStats.encode_row(MessageQueue(topic, broker_name, queue_id), offsets))
            stats.diff += offsets.broker_offset - offsets.consumer_offset
            stats.inflight += offsets.pull_offset - offsets.consumer_offset
            await turns.rest()
        return stats

    def _offsets_of(self, group: str, topic: str, queue_id: int) -> OffsetWrapper:
        # whoever adds up the parts must see that this part has no offset, also after a reset
        if self._is_static(topic):
            consumer_offset = self._offsets.query_committed(group, topic, queue_id)
        else:
            consumer_offset = max(self._offsets.query_offset(group, topic, queue_id), 0)
        last = self._store.store_time_at(topic, queue_id, consumer_offset - 1) if consumer_offset > 0 else 0
        return OffsetWrapper(
            broker_offset=max(self._store.max_offset(topic, queue_id), 0),
            consumer_offset=consumer_offset,
            pull_offset=max(consumer_offset, self._offsets.query_pull_offset(group, topic, queue_id)),
            last_timestamp=max(last, 0),
        )

    # --- 317 ----------------------------------------------------------------------------------------------------------

    async def get_broker_consume_stats(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Handle request 317: the progress of all groups by topic and write queue."""
        is_order = HeaderFields(request.ext).required_bool("isOrder")
        total = ConsumeStatsList(broker_addr=self._own.address)
        rows = LongBody(request.code, connection.answer_limit)
        turns = Turns()
        for group in list(self._groups.subscription_group_table):
            topics = sorted(self._offsets.which_topic_by_consumer(group))
            begin = part = ConsumeStatsList.begin_row(group)
            async for stats, body in self._group_stats(group, topics, is_order, turns):
                total.total_diff += stats.diff
                total.total_inflight_diff += stats.inflight
                if part is not begin:
                    rows.add(part)  # a row may be long, and its parts have commas between them as rows have
                    part = body
                else:
                    part += body
            rows.add(part + b"]}")
            await turns.rest()
        return request.reply(body=rows.filled(total.encode(), "consumeStatsList", b"[]"))

    async def _group_stats(
        self, group: str, topics: list[str], is_order: bool, turns: Turns
    ) -> AsyncIterator[tuple["_TopicStats", bytes]]:
        """Yield for each topic its _TopicStats and its ConsumeStats, encoded."""
        for topic in topics:
            config = self._topics.select_topic_config(topic)
            if config is None or (is_order and not config.order) or not self._is_subscribed(group, topic):
                continue
            queues: list[bytes] = []
            stats = await self._stats_of(group, topic, range(config.write_queue_nums), turns, queues.append)
            yield stats, filled(ConsumeStats({}, stats.tps).encode(), "offsetTable", queues)

    # --- 303 ----------------------------------------------------------------------------------------------------------

    async def query_consume_time_span(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Handle request 303: a group's progress by write queue as times instead of offsets."""
        fields = HeaderFields(request.ext)
        topic, group = fields.required_str("topic"), fields.required_str("group")
        config = self._topics.select_topic_config(topic)
        if config is None:
            raise topic_not_exist(topic)
        turns = Turns()
        rows = []
        for queue_id in range(config.write_queue_nums):
            rows.append(self._time_span(group, topic, queue_id).encode())
            await turns.rest()
        return request.reply(body=filled(QueryConsumeTimeSpanBody().encode(), "consumeTimeSpanSet", rows, b"[]"))

    def _time_span(self, group: str, topic: str, queue_id: int) -> QueueTimeSpan:
        store = self._store
        min_time = store.earliest_store_time(topic, queue_id)
        max_offset = store.max_offset(topic, queue_id)
        offset = self._offsets.query_offset(group, topic, queue_id)
        delay = 0
        if offset < max_offset:
            next_time = store.store_time_at(topic, queue_id, max(offset, store.min_offset(topic, queue_id)))
            delay = self._clock.wall_ms() - next_time if next_time > 0 else 0
        return QueueTimeSpan(
            message_queue=MessageQueue(topic, self._settings.broker.broker_name, queue_id),
            min_time_stamp=min_time,
            max_time_stamp=store.store_time_at(topic, queue_id, max_offset - 1) if max_offset > 0 else -1,
            consume_time_stamp=store.store_time_at(topic, queue_id, offset - 1) if offset > 0 else min_time,
            delay_time=delay,
        )
