"""PurgeTopicProcessor: MAXQ_PURGE_TOPIC (30081), `maxq admin purgeTopic`.

Request: ext topic, queueId (all queues if it is not given), and how far: beforeTimestamp (messages stored before that
time), or beforeOffset (messages with a smaller queue offset), or neither (all that is there). dryRun=true changes
nothing and answers the same.

Answer: JSON {"topic", "dryRun", "messages", "queues": [{"queueId", "minOffset", "maxOffset", "newMinOffset",
"messages"}], "groups": [{"group", "unread"}]}; `unread`: messages among them that the group has not consumed yet.

The new minimum of each queue is kept as the topic's attribute `purged.offsets` (topic/topic_retention.py).
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from maxq.broker.bundles import Environment, Messages, Tables
from maxq.broker.processors.support import RequestProcessor, topic_not_exist
from maxq.broker.tables.attributes import PURGED
from maxq.broker.tables.topic.topic_retention import purged_offsets, why_not
from maxq.codes import RequestCode, ResponseCode
from maxq.errors import RequestRefusedError
from maxq.protocol.body.topic_config import TopicConfig
from maxq.protocol.frame.header_fields import HeaderFields
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.protocol.json import json_dialect
from maxq.remoting.connection import Connection, Processor
from maxq.runtime.turns import Turns


class PurgeTopicProcessor(RequestProcessor):
    """Handles the purge of a topic (see the module)."""

    def __init__(self, env: Environment, tables: Tables, messages: Messages) -> None:
        self._settings = env.settings
        self._topics = tables.topics
        self._offsets = tables.offsets
        self._store = messages.store

    def routes(self) -> Mapping[int, Processor]:
        return {RequestCode.MAXQ_PURGE_TOPIC: self.purge}

    async def purge(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Raises RequestRefusedError: no such topic or queue, a slave, or a topic that cannot be purged."""
        fields = HeaderFields(request.ext)
        config = self._config(fields.required_str("topic"))
        is_dry = bool(fields.opt_bool("dryRun"))
        turns = Turns()
        bounds = await self._bounds(config, fields, turns)
        queues = []
        for queue_id, bound in bounds.items():
            queues.append(self._row(config.topic_name, queue_id, bound))
            await turns.rest()
        body = {
            "topic": config.topic_name,
            "dryRun": is_dry,
            "messages": sum(row["messages"] for row in queues),
            "queues": queues,
            "groups": await self._groups(config.topic_name, bounds, turns),
        }
        if not is_dry and body["messages"]:
            self._keep(config, bounds)
            await self._topics.persisted()
        return request.reply(body=json_dialect.dumps(body))

    def _config(self, topic: str) -> TopicConfig:
        if self._settings.store.broker_role == "SLAVE":
            remark = "this broker is a SLAVE: purge the topic on its master, whose topics it copies"
            raise RequestRefusedError(ResponseCode.SYSTEM_ERROR, remark)
        config = self._topics.select_topic_config(topic)
        if config is None:
            raise topic_not_exist(topic)
        if self._topics.is_system_topic(topic):
            remark = f"{topic} is a system topic: the broker needs its messages"
            raise RequestRefusedError(ResponseCode.INVALID_PARAMETER, remark)
        if remark := why_not(config):
            raise RequestRefusedError(ResponseCode.INVALID_PARAMETER, remark)
        return config

    async def _bounds(self, config: TopicConfig, fields: HeaderFields, turns: Turns) -> dict[int, int]:
        """Returns the new smallest offset by queue id."""
        queue_nums = max(config.read_queue_nums, config.write_queue_nums)
        wanted = fields.opt_int("queueId")
        if wanted is not None and not 0 <= wanted < queue_nums:
            remark = f"queueId {wanted}: topic {config.topic_name} has queues 0 to {queue_nums - 1}"
            raise RequestRefusedError(ResponseCode.INVALID_PARAMETER, remark)
        before_ms, before_offset = fields.opt_long("beforeTimestamp"), fields.opt_long("beforeOffset")
        if before_ms is not None and before_offset is not None:
            remark = "beforeTimestamp and beforeOffset exclude each other"
            raise RequestRefusedError(ResponseCode.INVALID_PARAMETER, remark)
        bounds = {}
        for queue_id in range(queue_nums) if wanted is None else [wanted]:
            low, high = self._range(config.topic_name, queue_id)
            bound = high
            if before_ms is not None:
                bound = self._store.offset_by_time(config.topic_name, queue_id, before_ms)
            elif before_offset is not None:
                bound = before_offset
            bounds[queue_id] = max(low, min(bound, high))
            await turns.rest()
        return bounds

    def _range(self, topic: str, queue_id: int) -> tuple[int, int]:
        return max(0, self._store.min_offset(topic, queue_id)), max(0, self._store.max_offset(topic, queue_id))

    def _row(self, topic: str, queue_id: int, bound: int) -> dict[str, Any]:
        low, high = self._range(topic, queue_id)
        return {
            "queueId": queue_id,
            "minOffset": low,
            "maxOffset": high,
            "newMinOffset": bound,
            "messages": bound - low,
        }

    async def _groups(self, topic: str, bounds: dict[int, int], turns: Turns) -> list[dict[str, Any]]:
        rows = []
        for group in sorted(self._offsets.which_group_by_topic(topic)):
            consumed = self._offsets.query_offsets(group, topic)
            reached = {queue_id: max(at, 0) for queue_id, at in consumed.items() if queue_id in bounds}
            unread = sum(max(0, bounds[queue_id] - at) for queue_id, at in reached.items())
            rows.append({"group": group, "unread": unread})
            await turns.rest()
        return rows

    def _keep(self, config: TopicConfig, bounds: dict[int, int]) -> None:
        places = purged_offsets(config)
        for queue_id, bound in bounds.items():
            if bound:
                places[queue_id] = max(bound, places.get(queue_id, 0))
        text = " ".join(f"{queue_id}:{offset}" for queue_id, offset in sorted(places.items()))
        self._topics.update_topic_config(replace(config, attributes={f"+{PURGED}": text}))
