"""AdminStaticTopicProcessor: static topics made and remapped (513), with their mapping in the body.

Source:
    broker/processor/AdminBrokerProcessor.java (updateAndCreateStaticTopic).
"""

import logging
from collections.abc import Mapping

from maxq.broker.bundles import Environment, Messages, Tables
from maxq.broker.processors.support import RequestProcessor, refuse_if, refuse_queue_nums
from maxq.broker.tables.topic.topic_validator import validate_topic
from maxq.codes import RequestCode
from maxq.protocol.body.static_topic import TopicQueueMappingDetail
from maxq.protocol.body.topic_config import MAX_QUEUES, TopicConfig
from maxq.protocol.enums import TopicFilterType
from maxq.protocol.frame.header_fields import HeaderFields
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.remoting.connection import Connection, Processor

log = logging.getLogger(__name__)


class AdminStaticTopicProcessor(RequestProcessor):
    """Answers UPDATE_AND_CREATE_STATIC_TOPIC (513)."""

    def __init__(self, env: Environment, tables: Tables, messages: Messages) -> None:
        self._settings = env.settings
        self._store = messages.store
        self._topics = tables.topics
        self._mappings = tables.mappings

    def routes(self) -> Mapping[int, Processor]:
        return {RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC: self.update_and_create_static_topic}

    async def update_and_create_static_topic(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Answer UPDATE_AND_CREATE_STATIC_TOPIC (513). The mapping is applied first: a topic without its mapping would
        be an ordinary one for a moment. When the request is answered, the end of a queue that moves away no longer
        changes, and readers see everything before it."""
        fields = HeaderFields(request.ext)
        topic = fields.required_str("topic")
        log.info("update or create static topic %s, called by %s", topic, connection.remote_address)
        refuse_if(validate_topic(topic))
        if self._settings.broker.validate_system_topic_when_update_topic and self._topics.is_system_topic(topic):
            refuse_if(f"The topic[{topic}] is conflict with system topic.")
        config = self._config(topic, fields)
        mapping = TopicQueueMappingDetail.decode(request.body_bytes)
        if mapping.topic != topic:
            refuse_if(f"the request is about topic {topic}, its mapping about {mapping.topic}")
        self._check_numbers(mapping)
        self._mappings.update(mapping, force=fields.opt_bool("force"))
        if not self._topics.update_topic_config(config):
            self._topics.update_data_version()  # slaves and name servers notice the change by the version
            self._topics.announce(topic)
        await self._mappings.persisted()
        await self._topics.published()
        await self._until_seen()
        return request.reply()

    async def _until_seen(self) -> None:
        """Wait until readers see all stored messages: the end of a queue does not count messages that are not durable
        with SYNC_FLUSH, not committed in a DLedger group, or behind a long batch."""
        marks = self._store.marks
        if not await marks.make_final(marks.mark()):
            refuse_if("the mapping is stored, but earlier messages were not on disk in time: repeat the command")
        await self._store.dispatch.finish_turns()

    def _check_numbers(self, mapping: TopicQueueMappingDetail) -> None:
        """Refuse numbers of global queues that clients of the topic, and brokers that assign them queues, could not
        visit one by one."""
        known = self._mappings.table.get(mapping.topic or "")
        most, total = self._settings.broker.max_queues_of_topic, 0 if known is None else known.total_queues
        refuse_queue_nums(f"totalQueues in the mapping of topic {mapping.topic}", mapping.total_queues, most, total)
        for global_id in mapping.hosted_queues:
            if not 0 <= global_id < MAX_QUEUES:
                refuse_if(
                    f"the mapping of topic {mapping.topic} has queue {global_id}, allowed is 0 to {MAX_QUEUES - 1}"
                )

    def _config(self, topic: str, fields: HeaderFields) -> TopicConfig:
        known = self._topics.select_topic_config(topic)
        filter_type = fields.opt_str("topicFilterType") or TopicFilterType.SINGLE_TAG.name
        if filter_type not in TopicFilterType.__members__:
            refuse_if(f"topicFilterType {filter_type} is not one of {', '.join(TopicFilterType.__members__)}")
        config = TopicConfig(
            topic_name=topic,
            read_queue_nums=fields.required_int("readQueueNums"),
            write_queue_nums=fields.required_int("writeQueueNums"),
            perm=fields.required_int("perm"),
            topic_filter_type=TopicFilterType[filter_type],
            topic_sys_flag=fields.opt_int("topicSysFlag") or 0,
            order=known is not None and known.order,
        )
        reads, writes = (0, 0) if known is None else (known.read_queue_nums, known.write_queue_nums)
        most = self._settings.broker.max_queues_of_topic
        refuse_queue_nums(f"readQueueNums of topic {topic}", config.read_queue_nums, most, reads)
        refuse_queue_nums(f"writeQueueNums of topic {topic}", config.write_queue_nums, most, writes)
        return config
