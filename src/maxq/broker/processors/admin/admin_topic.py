"""AdminTopicProcessor: topics made, changed, deleted and shown.

Source:
    broker/processor/AdminBrokerProcessor.java.
"""

import asyncio
import contextlib
import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final, TypeAlias

from maxq.broker.bundles import Environment, Messages, Tables
from maxq.broker.processors.send.put_outcome import put_refusal
from maxq.broker.processors.support import (
    RequestProcessor,
    body_reply,
    page_of,
    refuse_if,
    refuse_queue_nums,
    topic_not_exist,
)
from maxq.broker.stats.names import TOPIC_PUT_NUMS
from maxq.broker.tables.attributes import (
    CLEANUP_POLICY,
    MESSAGE_TYPE,
    PURGED,
    QUEUE_TYPE,
    TOPIC_ATTRIBUTES,
    parse_attributes,
)
from maxq.broker.tables.topic.compaction_topics import COMPACTION
from maxq.broker.tables.topic.topic_retention import purged_offsets
from maxq.broker.tables.topic.topic_validator import RETRY_PREFIX, is_retry_topic, pop_retry_topics, validate_topic
from maxq.codes import RequestCode, ResponseCode
from maxq.errors import RemoteProtocolError, RequestRefusedError
from maxq.protocol.body.offsets import TopicOffset, TopicStatsTable
from maxq.protocol.body.topic_config import (
    CreateTopicListRequestBody,
    TopicConfig,
    TopicConfigAndMappingSerializeWrapper,
    TopicConfigAndQueueMapping,
    TopicList,
)
from maxq.protocol.enums import TopicFilterType
from maxq.protocol.frame.header_fields import HeaderFields
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.protocol.json.json_body import filled, queue_row
from maxq.protocol.message import message_const as const
from maxq.protocol.message.message import decode_record
from maxq.protocol.message.message_queue import MessageQueue
from maxq.remoting.connection import Connection, Processor
from maxq.runtime.turns import Turns

log = logging.getLogger(__name__)

_DELETED_AT_ONCE: Final = 100  # most topics that one record deletes
_Outcome: TypeAlias = "asyncio.Future[ResponseCode] | None"  # what `Acknowledgement.when` is given to answer with
_MAX_PERM: Final = 15  # inherit 1, write 2, read 4, priority 8


class AdminTopicProcessor(RequestProcessor):
    """Answers UPDATE_AND_CREATE_TOPIC (17), UPDATE_AND_CREATE_TOPIC_LIST (18), GET_ALL_TOPIC_CONFIG (21),
    GET_TOPIC_STATS_INFO (202), DELETE_TOPIC_IN_BROKER (215), GET_SYSTEM_TOPIC_LIST_FROM_BROKER (305),
    CLEAN_UNUSED_TOPIC (316) and GET_TOPIC_CONFIG (351)."""

    def __init__(self, env: Environment, tables: Tables, messages: Messages) -> None:
        self._settings = env.settings
        self._store = messages.store
        self._topics = tables.topics
        self._groups = tables.groups
        self._offsets = tables.offsets
        self._stats = env.stats
        self._mappings = tables.mappings
        self._acknowledgement = messages.acknowledgement

    def routes(self) -> Mapping[int, Processor]:
        return {
            RequestCode.UPDATE_AND_CREATE_TOPIC: self.update_and_create_topic,
            RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: self.update_and_create_topic_list,
            RequestCode.GET_ALL_TOPIC_CONFIG: self.get_all_topic_config,
            RequestCode.GET_TOPIC_STATS_INFO: self.get_topic_stats_info,
            RequestCode.DELETE_TOPIC_IN_BROKER: self.delete_topic,
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: self.get_system_topic_list,
            RequestCode.CLEAN_UNUSED_TOPIC: self.clean_unused_topic,
            RequestCode.GET_TOPIC_CONFIG: self.get_topic_config,
        }

    # --- change -------------------------------------------------------------------------------------------------------

    async def update_and_create_topic(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Answer UPDATE_AND_CREATE_TOPIC (17)."""
        fields = HeaderFields(request.ext)
        filter_type = fields.opt_str("topicFilterType") or TopicFilterType.SINGLE_TAG.name
        if filter_type not in TopicFilterType.__members__:
            refuse_if(f"topicFilterType {filter_type} is not one of {', '.join(TopicFilterType.__members__)}")
        config = TopicConfig(
            topic_name=fields.required_str("topic"),
            read_queue_nums=fields.required_int("readQueueNums"),
            write_queue_nums=fields.required_int("writeQueueNums"),
            perm=fields.required_int("perm"),
            topic_filter_type=TopicFilterType[filter_type],
            topic_sys_flag=fields.opt_int("topicSysFlag") or 0,
            order=fields.opt_bool("order"),
            attributes=parse_attributes(fields.opt_str("attributes")),
        )
        self._validate(config)
        return await self._update([config], connection, request)

    async def update_and_create_topic_list(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Answer UPDATE_AND_CREATE_TOPIC_LIST (18). All topics are changed, or none."""
        configs = CreateTopicListRequestBody.decode(request.body_bytes).topic_config_list
        turns = Turns()
        for config in configs:
            self._validate(config)
            await turns.rest()
        return await self._update(configs, connection, request)

    async def _update(
        self, configs: list[TopicConfig], connection: Connection, request: RemotingCommand
    ) -> RemotingCommand:
        names = [config.topic_name for config in configs]
        log.info("update or create topics %s, called by %s", names, connection.remote_address)
        self._topics.update_topic_config_list(configs)
        await self._topics.published()
        return request.reply()

    def _validate(self, config: TopicConfig) -> None:
        topic, broker = config.topic_name, self._settings.broker
        refuse_if(validate_topic(topic))
        self._refuse_system_topic(topic)
        known = self._topics.select_topic_config(topic)
        reads, writes = (0, 0) if known is None else (known.read_queue_nums, known.write_queue_nums)
        most = broker.max_queues_of_topic
        refuse_queue_nums(f"readQueueNums of topic {topic}", config.read_queue_nums, most, reads)
        refuse_queue_nums(f"writeQueueNums of topic {topic}", config.write_queue_nums, most, writes)
        if not 0 <= config.perm <= _MAX_PERM:
            refuse_if(f"perm of topic {topic} is {config.perm}, allowed is 0 to {_MAX_PERM}: 4 read + 2 write")
        if config.attributes.get("+" + MESSAGE_TYPE) == "MIXED" and not broker.enable_mixed_message_type:
            refuse_if("MIXED message type is not supported. Set enableMixedMessageType=true to allow it.")
        self._refuse_future_purge(topic, config.attributes.get("+" + PURGED, ""))
        is_compacted = config.attributes.get("+" + CLEANUP_POLICY) == COMPACTION
        if is_compacted and config.attributes.get("+" + QUEUE_TYPE) == "BatchCQ":
            refuse_if(f"{CLEANUP_POLICY}=COMPACTION needs {QUEUE_TYPE}=SimpleCQ: a batch is kept or dropped as a whole")

    def _refuse_future_purge(self, topic: str, places: str) -> None:
        """Refuse to hide messages that are not stored yet; the form of `places` is checked when they are set."""
        if TOPIC_ATTRIBUTES[PURGED].verify(places) is not None:
            return
        for queue_id, offset in purged_offsets(TopicConfig(topic, attributes={PURGED: places})).items():
            end = max(self._store.max_offset(topic, queue_id), 0)
            if offset > end:
                refuse_if(
                    f"{PURGED} of topic {topic} is {offset} for queue {queue_id}, which ends at {end}: messages stored "
                    "there next would be hidden, too; purge it with purgeTopic"
                )

    def _refuse_system_topic(self, topic: str) -> None:
        if self._settings.broker.validate_system_topic_when_update_topic and self._topics.is_system_topic(topic):
            refuse_if(f"The topic[{topic}] is conflict with system topic.")

    async def delete_topic(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Answer DELETE_TOPIC_IN_BROKER (215). The topic's offsets, messages, statistics and the retry topics of pop
        groups are deleted with it. The deletion is a record of the log (store/log/deletions.py): it is stored before
        any other change, and the answer waits for disk and replicas as that of a message does."""
        topic = HeaderFields(request.ext).required_str("topic")
        log.info("delete topic %s, called by %s", topic, connection.remote_address)
        if not topic.strip():
            refuse_if("The specified topic is blank.")
        self._refuse_system_topic(topic)
        doomed = [topic, *self._pop_retry_topics(topic)]
        outcomes = []
        for some in _parts(doomed):
            outcomes.append(self._put_deletion(some))
            self._mappings.delete(some)
            self._topics.delete_topic_configs(some)
            for name in some:
                self._offsets.clean_offset_by_topic(name)
            await asyncio.sleep(0)
        self._offsets.request_persist()
        await self._topics.persisted()
        await self._offsets.persisted()
        await self._finish_deletion(doomed, outcomes)
        return request.reply()

    def _put_deletion(self, topics: Sequence[str]) -> _Outcome:
        """Store the record that deletes these topics. Returns the state of its durability, which is taken at once,
        because later another leader's entries may be committed in its place."""
        if (remark := self._acknowledgement.refusal()) is not None:
            raise RequestRefusedError(self._acknowledgement.refusal_code, remark)
        stored = self._store.put_deletion(topics)
        if not stored.ok:
            refusal = put_refusal(stored, self._settings.store)
            raise RequestRefusedError(
                refusal.code, f"{topics[0]} and its retry topics were not deleted: {refusal.remark}"
            )
        return self._acknowledgement.outcome(stored.end_offset)

    async def _finish_deletion(self, topics: Collection[str], outcomes: Sequence[_Outcome]) -> None:
        code = ResponseCode.SUCCESS
        for outcome in outcomes:
            found = ResponseCode.SUCCESS if outcome is None else await outcome
            code = found if code is ResponseCode.SUCCESS else code
        await self._store.finish_deletion(topics)
        if code is not ResponseCode.SUCCESS:
            remark = f"deleted on this broker, but not safely yet ({code.name}): delete again"
            raise RequestRefusedError(ResponseCode.SYSTEM_ERROR, remark)

    def _pop_retry_topics(self, topic: str) -> list[str]:
        if not self._settings.broker.clear_retry_topic_when_delete_topic:
            return []
        ends = tuple(name.removeprefix(RETRY_PREFIX) for name in pop_retry_topics(topic, ""))
        # topics of the log that the table may not have
        of_log = (name.decode(errors="replace") for name in list(self._store.topics))
        names = {name for name in (*self._topics.topic_config_table, *of_log) if name.endswith(ends)}
        return sorted(name for name in names if is_retry_topic(name) and self._is_pop_retry_topic(name, topic))

    def _is_pop_retry_topic(self, name: str, topic: str) -> bool:
        """Return whether `name`, which ends as a retry topic of `topic`, is one. After a kill the offsets may not tell
        of a group that has popped; but `%RETRY%a_b_c` may also be that of the group a for the topic b_c."""
        group = name[len(RETRY_PREFIX) : -len(topic) - 1]
        if self._groups.has_retry_topic(name):
            return False
        if group in self._offsets.which_group_by_topic(topic):
            return True
        if self._is_of_another(name, topic):
            return False
        return self._groups.contains_subscription_group(group) or self._has_popped_into(name, group, topic)

    def _has_popped_into(self, name: str, group: str, topic: str) -> bool:
        """Return whether the newest message of a queue of the retry topic `name` says that `group` has popped it. The
        group was deleted, and would get the messages if it and the topic were made again."""
        configs = map(self._topics.select_topic_config, (name, topic))
        for queue_id in range(max((config.read_queue_nums for config in configs if config is not None), default=1)):
            record = self._store.record_in_queue(name, queue_id, self._store.max_offset(name, queue_id) - 1)
            with contextlib.suppress(RemoteProtocolError):
                properties = {} if record is None else decode_record(record).properties
                if const.PROPERTY_FIRST_POP_TIME in properties:
                    return properties.get(const.PROPERTY_ORIGIN_GROUP) == group
        return False

    def _is_of_another(self, name: str, topic: str) -> bool:
        """Return whether `name` may be the retry topic of another topic in the older spelling."""
        parts = name.removeprefix(RETRY_PREFIX).split("_")
        splits = (("_".join(parts[:at]), "_".join(parts[at:])) for at in range(1, len(parts)))
        return any(
            other != topic and self._topics.contains_topic(other) and self._groups.contains_subscription_group(group)
            for group, other in splits
        )

    async def clean_unused_topic(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Answer CLEAN_UNUSED_TOPIC (316): delete the queues of topics that no longer exist."""
        log.warning("clean unused topics, called by %s", connection.remote_address)
        known = self._topics.topic_config_table
        unused = sorted(await self._store.unused_topics(known))
        outcomes = []
        for part in _parts(unused):
            if some := [topic for topic in part if topic not in known]:  # one may have been made meanwhile
                outcomes.append(self._put_deletion(some))
            await asyncio.sleep(0)
        if unused:
            await self._finish_deletion(unused, outcomes)
        return request.reply()

    # --- show ---------------------------------------------------------------------------------------------------------

    async def get_all_topic_config(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Answer GET_ALL_TOPIC_CONFIG (21) with the whole table, or a page of it for slaves."""
        table = self._topics.topic_config_table
        page = page_of(
            table,
            request.ext,
            sequence_field="topicSeq",
            count_field="maxTopicNum",
            version=self._topics.data_version,
            broker=self._settings.broker,
        )
        wrapper = TopicConfigAndMappingSerializeWrapper(
            data_version=self._topics.data_version,
            topic_queue_mapping_detail_map={
                topic: detail.to_json() for topic, detail in self._mappings.table.items() if topic in page
            },
            mapping_data_version=self._mappings.data_version,
        )
        body = await self._topics.row_json.put_into(wrapper.encode(), page)
        return request.reply(ResponseCode.SUCCESS, None, {"totalTopicNum": str(len(table))}, body)

    def get_topic_config(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Answer GET_TOPIC_CONFIG (351)."""
        topic = HeaderFields(request.ext).required_str("topic")
        config = self._topics.select_topic_config(topic)
        if config is None:
            raise RequestRefusedError(ResponseCode.TOPIC_NOT_EXIST, f"No topic in this broker. topic: {topic}")
        mapping = self._mappings.table.get(topic) if HeaderFields(request.ext).opt_bool("lo") else None
        if mapping is None:
            return body_reply(request, config)
        both = TopicConfigAndQueueMapping(**vars(config), mapping_detail=mapping.to_json())
        return body_reply(request, both)

    def get_system_topic_list(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Answer GET_SYSTEM_TOPIC_LIST_FROM_BROKER (305)."""
        return body_reply(request, TopicList(sorted(self._topics.system_topics())))

    async def get_topic_stats_info(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Answer GET_TOPIC_STATS_INFO (202)."""
        topic = HeaderFields(request.ext).required_str("topic")
        config = self._topics.select_topic_config(topic)
        if config is None:
            raise topic_not_exist(topic)
        broker_name = self._settings.broker.broker_name
        turns = Turns()
        rows = []
        for queue_id in range(max(config.read_queue_nums, config.write_queue_nums)):
            row = self._topic_offset(topic, queue_id).encode()
            rows.append(queue_row(MessageQueue(topic, broker_name, queue_id), row))
            await turns.rest()
        puts = self._stats.view(TOPIC_PUT_NUMS, topic)
        stats = TopicStatsTable({}, 0.0 if puts is None else puts.minute.tps)
        return request.reply(body=filled(stats.encode(), "offsetTable", rows))

    def _topic_offset(self, topic: str, queue_id: int) -> TopicOffset:
        max_offset = max(self._store.max_offset(topic, queue_id), 0)
        last = self._store.store_time_at(topic, queue_id, max_offset - 1) if max_offset > 0 else 0
        return TopicOffset(max(self._store.min_offset(topic, queue_id), 0), max_offset, last)


def _parts(topics: Sequence[str]) -> Iterator[Sequence[str]]:
    """Split the topics into parts, each of which gets one deletion record: dispatching a record moves the files of all
    its topics."""
    for start in range(0, len(topics), _DELETED_AT_ONCE):
        yield topics[start : start + _DELETED_AT_ONCE]
