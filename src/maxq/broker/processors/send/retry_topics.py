"""RetryTopics: where failed messages of a group wait, and where those end that failed too often.

Source:
    broker/processor/SendMessageProcessor.java handleRetryAndDLQ, AbstractSendMessageProcessor.java.
"""

import logging
from typing import Final

from maxq.broker.bundles import Clients, Environment, Tables
from maxq.broker.processors.refusal import FAQ, Refusal
from maxq.broker.stats import names
from maxq.broker.tables.topic.topic_validator import RETRY_PREFIX, dlq_topic, is_retry_topic, retry_topic
from maxq.codes import MQVersion, ResponseCode
from maxq.protocol.body.subscription import SubscriptionGroupConfig
from maxq.protocol.body.topic_config import PERM_READ, PERM_WRITE, TopicConfig
from maxq.protocol.enums import TopicFilterType
from maxq.protocol.header.send import SendMessageRequestHeader
from maxq.protocol.message import message_const as const
from maxq.protocol.message.message_sys_flag import MessageSysFlag
from maxq.store.append.message_ext_broker_inner import MessageExtBrokerInner

log = logging.getLogger(__name__)

DLQ_QUEUE_NUMS: Final = 1
UNIT_SUB_FLAG: Final = 2  # topicSysFlag: consumed in unit mode


class RetryTopics:
    """The retry and dead-letter topics of one broker's groups."""

    def __init__(self, env: Environment, tables: Tables, clients: Clients) -> None:
        self._topics = tables.topics
        self._groups = tables.groups
        self._locks = clients.locks
        self._stats = env.stats

    def group(self, name: str) -> SubscriptionGroupConfig | Refusal:
        """Returns the group, created if groups are created on demand."""
        config = self._groups.find_subscription_group_config(name)
        if config is not None:
            return config
        remark = f"subscription group not exist, {name}: make it with updateSubGroup. {FAQ}"
        return Refusal(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)

    def retry_topic(self, group: SubscriptionGroupConfig, *, unit_mode: bool) -> TopicConfig:
        """Return the group's retry topic, which is made if it does not exist. An existing one is not changed;
        heartbeats set its order flag."""
        flag = UNIT_SUB_FLAG if unit_mode else 0
        return self._made(retry_topic(group.group_name), max(1, group.retry_queue_nums), flag)

    def dlq_topic(self, group: str) -> TopicConfig:
        """Returns the group's dead-letter topic, created on demand. It is readable from the start, for those who
        examine dead letters."""
        return self._made(dlq_topic(group), DLQ_QUEUE_NUMS, 0)

    def _made(self, topic: str, queue_nums: int, sys_flag: int) -> TopicConfig:
        known = self._topics.select_topic_config(topic)
        if known is not None:
            return known
        return self._topics.create_topic_in_send_message_back_method(
            topic, queue_nums, PERM_READ | PERM_WRITE, sys_flag
        )

    def most_times(self, group: SubscriptionGroupConfig, asked: int | None, version: int) -> int:
        """Return how often a message is retried: as the consumer requests, if its version can, else as the group is
        configured."""
        return asked if asked is not None and version >= MQVersion.V3_4_9 else group.retry_max_times

    def rewrite(self, header: SendMessageRequestHeader, version: int, message: MessageExtBrokerInner) -> Refusal | None:
        """Process a message that a client sends to a retry topic itself. It becomes a dead letter after too many
        attempts; every message from an orderly consumer group does, too, because its members have retried it
        themselves."""
        if header.batch or not is_retry_topic(header.topic):
            return None
        group = self.group(header.topic.removeprefix(RETRY_PREFIX))
        if isinstance(group, Refusal):
            return group
        most = self.most_times(group, header.max_reconsume_times, version)
        in_order = not self._locks.is_lock_all_expired(group.group_name)
        if message.reconsume_times <= most and not in_order:
            return None
        config = self.dlq_topic(group.group_name)
        origin = message.properties.get(const.PROPERTY_RETRY_TOPIC, header.topic)
        self._stats.add(names.DLQ_PUT_NUMS, f"{origin}@{group.group_name}")
        message.topic, message.queue_id = config.topic_name, 0
        message.properties[const.PROPERTY_DELAY_TIME_LEVEL] = "-1"
        if config.topic_filter_type == TopicFilterType.MULTI_TAG:
            message.sys_flag |= MessageSysFlag.MULTI_TAGS
        log.info(
            "message %s of group %s is a dead letter: %s",
            message.properties.get(const.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX), group.group_name,
            "the group consumes in order" if in_order else f"tried {message.reconsume_times} times, {most} are allowed",
        )  # fmt: skip
        return None

    def count_sent_back(self, group: str, topic: str, count: int = 1) -> None:
        """Count messages of `topic` that `group` sent back, each in a request of its own."""
        self._stats.add(names.SNDBCK_PUT_NUMS, f"{topic}@{group}", count, count)

    def count_dead_letter(self, owner: str | None, group: str, topic: str | None, origin: str) -> None:
        """Count a message that became a dead letter.

        Args:
            owner: what Java calls the commercial owner of the consumer.
            topic: as the consumer names it; of a second try that is the retry topic.
            origin: the topic it was first sent to.
        """
        self._stats.add(names.DLQ_PUT_NUMS, f"{origin}@{group}")
        self._stats.add(names.SNDBCK2DLQ_TIMES, f"{owner}@{topic}@{group}@SEND_BACK_TO_DLQ")
