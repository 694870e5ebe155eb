"""AdminOffsetProcessor: offsets of queues (29 to 32), and of groups beyond what consumers do themselves.

Source:
    broker/processor/AdminBrokerProcessor.java.
"""

import logging
from collections.abc import Mapping
from typing import Any, Final

from maxq.broker.bundles import Clients, Messages, Tables
from maxq.broker.processors.support import RequestProcessor, body_reply, refuse_if
from maxq.broker.tables.offset.consumer_offset_manager import ACTS_SINCE, MASTER_SINCE, UNHEARD
from maxq.broker.tables.offset.offset_table import flat_row, offset_row, split_key
from maxq.broker.tables.offset.operator_changes import NAME as OPERATOR_CHANGES
from maxq.broker.tables.topic.topic_validator import validate_reader
from maxq.codes import RequestCode, ResponseCode
from maxq.protocol.body.offsets import QueryCorrectionOffsetBody
from maxq.protocol.enums import BoundaryType
from maxq.protocol.frame.answer_limits import LongBody
from maxq.protocol.frame.header_fields import HeaderFields
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.protocol.json import json_dialect
from maxq.protocol.json.json_body import filled
from maxq.remoting.connection import Connection, Processor
from maxq.runtime.turns import Turns

log = logging.getLogger(__name__)

LONG_MAX: Final = (1 << 63) - 1
#: Size of a page of offsets in bytes: encoding one, and applying it on the slave, takes some 10 ms each.
_PAGE_BYTES: Final = 256 << 10


class AdminOffsetProcessor(RequestProcessor):
    """Answers SEARCH_OFFSET_BY_TIMESTAMP (29), GET_MAX_OFFSET (30), GET_MIN_OFFSET (31), GET_EARLIEST_MSG_STORETIME
    (32), GET_ALL_CONSUMER_OFFSET (43), QUERY_CORRECTION_OFFSET (308) and CLONE_GROUP_OFFSET (314)."""

    def __init__(self, tables: Tables, clients: Clients, messages: Messages) -> None:
        self._store = messages.store
        self._topics = tables.topics
        self._offsets = tables.offsets
        self._consumers = clients.consumers

    def routes(self) -> Mapping[int, Processor]:
        return {
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: self.search_offset_by_timestamp,
            RequestCode.GET_MAX_OFFSET: self.get_max_offset,
            RequestCode.GET_MIN_OFFSET: self.get_min_offset,
            RequestCode.GET_EARLIEST_MSG_STORETIME: self.get_earliest_store_time,
            RequestCode.GET_ALL_CONSUMER_OFFSET: self.get_all_consumer_offset,
            RequestCode.QUERY_CORRECTION_OFFSET: self.query_correction_offset,
            RequestCode.CLONE_GROUP_OFFSET: self.clone_group_offset,
        }

    # --- queues -------------------------------------------------------------------------------------------------------

    def search_offset_by_timestamp(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Answer SEARCH_OFFSET_BY_TIMESTAMP (29) with the first message at or after a time, or the last at or before
        it."""
        fields = HeaderFields(request.ext)
        topic, queue_id = fields.required_str("topic"), fields.required_int("queueId")
        boundary = BoundaryType.parse(fields.opt_str("boundaryType"))
        offset = self._store.offset_by_time(topic, queue_id, fields.required_long("timestamp"), boundary)
        return request.reply(ext={"offset": str(offset)})

    def get_max_offset(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Answer GET_MAX_OFFSET (30) with the next offset of the queue, 0 for a queue without messages, and the topic's
        incarnation."""
        fields = HeaderFields(request.ext)
        topic = fields.required_str("topic")
        offset = self._store.max_offset(topic, fields.required_int("queueId"))
        return request.reply(ext={"offset": str(offset)} | self._incarnation(topic))

    def get_min_offset(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Answer GET_MIN_OFFSET (31). The answer is 0 for a queue without messages, because Java creates the queue at
        the request, and tools then refuse less. The field `maxqCompactedTo` of a compacted queue changes with each
        compaction: a slave that copies the queue asks for it."""
        fields = HeaderFields(request.ext)
        topic, queue_id = fields.required_str("topic"), fields.required_int("queueId")
        ext = {"offset": str(max(self._store.min_offset(topic, queue_id), 0))} | self._incarnation(topic)
        compacted_to = self._store.compaction.position(topic, queue_id)
        return request.reply(ext=ext if compacted_to is None else ext | {"maxqCompactedTo": str(compacted_to)})

    def _incarnation(self, topic: str) -> dict[str, str]:
        """Return the field `incarnation` of an answer: a number that changes when the topic is deleted, the same on
        master, slaves and members of a group (MessageStore.incarnation). It is absent for a topic that was never
        deleted, as in answers of Java's brokers; Java's clients ignore it."""
        incarnation = self._store.incarnation(topic)
        return {"incarnation": str(incarnation)} if incarnation else {}

    def get_earliest_store_time(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Answer GET_EARLIEST_MSG_STORETIME (32) with -1 for a queue that has no message."""
        fields = HeaderFields(request.ext)
        timestamp = self._store.earliest_store_time(fields.required_str("topic"), fields.required_int("queueId"))
        return request.reply(ext={"timestamp": str(timestamp)})

    # --- groups -------------------------------------------------------------------------------------------------------

    async def get_all_consumer_offset(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Answer GET_ALL_CONSUMER_OFFSET (43). A MaxQ slave also gets the deletions of topics that the table reflects,
        or all deletions if it asks for them (store/log/deletions.py), the end of the log at the time of the table, and
        on the first page which offsets operators have set or removed (tables/offset/operator_changes.py). It asks for
        one `page` after the other, because the whole table may be longer than a frame; RocketMQ's slaves know no
        pages."""
        body = self._offsets.head()
        mark = HeaderFields(request.ext).opt_str("page")
        if "deletions" in request.ext:
            body["deletions"] = {"upTo": self._offsets.deleted_up_to}
            body["logEnd"] = self._store.max_physical_offset
            if not mark:
                body[OPERATOR_CHANGES] = self._offsets.changes.to_json()
                body[UNHEARD] = self._offsets.unheard()
                body[MASTER_SINCE] = self._offsets.master_since
                body[ACTS_SINCE] = self._offsets.acts_since
        if not mark and HeaderFields(request.ext).opt_bool("deletions"):
            body["deletedTopics"] = self._store.deletions.to_json()
        if mark is not None:
            return self._page_of_offsets(request, body, mark)
        turns = Turns()
        rows = LongBody(request.code, connection.answer_limit)
        topics: dict[str, list[str]] = {}
        for key, offsets in list(self._offsets.offset_table.items()):
            topic, group = split_key(key)
            topics.setdefault(group, []).append(topic)
            rows.add(offset_row(key, offsets))
            await turns.rest()
        lists = []
        for group, names in topics.items():
            lists.append(json_dialect.dumps({group: names})[1:-1])
            await turns.rest()
        encoded = filled(json_dialect.dumps(body), "groupTopicMap", lists)
        if "lmqOffsetTable" in body:
            encoded = filled(encoded, "lmqOffsetTable", await self._flat_rows())
        return request.reply(body=rows.filled(encoded, "offsetTable"))

    async def _flat_rows(self) -> list[bytes]:
        turns = Turns()
        rows = []
        for key, offset in list(self._offsets.flat_offsets().items()):
            rows.append(flat_row(key, offset))
            await turns.rest()
        return rows

    def _page_of_offsets(self, request: RemotingCommand, body: dict[str, Any], mark: str) -> RemotingCommand:
        """Return one page, with the mark of the next page in the field `nextPage` if there is one."""
        rows, following = self._offsets.page(mark, _PAGE_BYTES)
        encoded = json_dialect.dumps(body)
        for name, some in rows.items():
            encoded = filled(encoded, name, some)
        return request.reply(ext={"nextPage": following} if following else {}, body=encoded)

    async def query_correction_offset(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Answer QUERY_CORRECTION_OFFSET (308) with the smallest offset of all groups by queue; Long.MAX_VALUE where
        `compareGroup` is behind even that."""
        fields = HeaderFields(request.ext)
        topic, compare_group = fields.required_str("topic"), fields.required_str("compareGroup")
        filter_groups = [group for group in (fields.opt_str("filterGroups") or "").split(",") if group]
        smallest = await self._offsets.query_min_offset_in_all_group(topic, filter_groups, self._store.min_offset)
        for queue_id, offset in self._offsets.query_offsets(compare_group, topic).items():
            if smallest.get(queue_id, -1) > offset:
                smallest[queue_id] = LONG_MAX
        return body_reply(request, QueryCorrectionOffsetBody(smallest))

    async def clone_group_offset(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Answer CLONE_GROUP_OFFSET (314). Set a group's offsets to those of another group: in one topic, or in all
        that the other has consumed."""
        fields = HeaderFields(request.ext)
        source, target = fields.required_str("srcGroup"), fields.required_str("destGroup")
        refuse_if(validate_reader(target), ResponseCode.NO_PERMISSION)
        # as access control has judged it: with blanks around it, it is another name
        topic = fields.opt_str("topic") or ""
        is_offline = fields.opt_bool("offline")
        turns = Turns()
        for name in [topic] if topic.strip() else sorted(self._offsets.which_topic_by_consumer(source)):
            if not self._topics.contains_topic(name):
                log.warning("clone offsets of %s: topic %s does not exist", source, name)
            elif not is_offline and self._is_not_subscribed(source, name):
                log.warning("clone offsets of %s: it is online and does not subscribe to %s", source, name)
            else:
                self._offsets.clone_offset(source, target, name)
            await turns.rest()
        await self._offsets.set_is_kept()
        return request.reply()

    def _is_not_subscribed(self, group: str, topic: str) -> bool:
        is_online = self._consumers.subscription_count(group) > 0
        return is_online and self._consumers.find_subscription_data(group, topic) is None
