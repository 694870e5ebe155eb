"""The checks of a pull before anything is read: broker, group, topic, queue, subscription, filter.

Source:
    broker/processor/PullMessageProcessor.java (processRequest, up to the read).
"""

from typing import NamedTuple

from maxq.broker.bundles import Environment, Tables
from maxq.broker.processors.pull.pull_subscription import (
    FORBIDDEN_BROKER,
    FORBIDDEN_GROUP,
    FORBIDDEN_TOPIC,
    PullSubscriptions,
)
from maxq.broker.processors.refusal import FAQ, Refusal
from maxq.broker.tables.topic.topic_validator import validate_reader
from maxq.codes import RequestCode, ResponseCode
from maxq.protocol.body.subscription import SubscriptionData, SubscriptionGroupConfig
from maxq.protocol.body.topic_config import PERM_READ, TopicConfig
from maxq.protocol.header.pull import PULL_FLAG_SUBSCRIPTION, PullMessageRequestHeader
from maxq.remoting.server import Connection
from maxq.store.queue.property_filter import PropertyFilter


class CheckedPull(NamedTuple):
    """A pull request that passed the checks, with the settings that its answer depends on."""

    header: PullMessageRequestHeader
    group: SubscriptionGroupConfig
    topic: TopicConfig
    subscription: SubscriptionData
    wanted: PropertyFilter | None  # filter on properties; None: by tags
    began_ms: int  # monotonic


class PullChecks:
    """Checks pulls before anything is read (see the module)."""

    def __init__(self, env: Environment, tables: Tables, subscriptions: PullSubscriptions) -> None:
        self._settings = env.settings
        self._topics = tables.topics
        self._groups = tables.groups
        self._subscriptions = subscriptions
        self._clock = env.clock
        self._broker = env.own

    def check(self, connection: Connection, code: int, header: PullMessageRequestHeader) -> CheckedPull | Refusal:
        """Check whether the reader may read the queue, and determine its subscription."""
        broker = self._settings.broker
        if not broker.broker_permission & PERM_READ:
            return Refusal(
                ResponseCode.NO_PERMISSION,
                f"the broker[{self._broker.ip}] pulling message is forbidden: "
                f"brokerPermission is {broker.broker_permission}, reading needs {PERM_READ}; set it with "
                "updateBrokerConfig",
                FORBIDDEN_BROKER,
            )
        if code == RequestCode.LITE_PULL_MESSAGE and not broker.lite_pull_message_enable:
            return Refusal(
                ResponseCode.NO_PERMISSION,
                f"the broker[{self._broker.ip}] for lite pull consumer is forbidden: litePullMessageEnable is "
                "false; set it with updateBrokerConfig",
                FORBIDDEN_BROKER,
            )
        if (why := validate_reader(header.consumer_group)) is not None:
            return Refusal(ResponseCode.NO_PERMISSION, why, FORBIDDEN_GROUP)
        group = self._groups.find_subscription_group_config(header.consumer_group)
        if group is None:
            return Refusal(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"subscription group [{header.consumer_group}] does not exist, \n{FAQ}",
            )
        if not group.consume_enable:
            why = self._groups.why_disabled(header.consumer_group)
            why = why or "its consumeEnable is false; set it with updateSubGroup -s true"
            remark = f"subscription group no permission, {header.consumer_group}: {why}"
            return Refusal(ResponseCode.NO_PERMISSION, remark, FORBIDDEN_GROUP)
        topic = self._check_topic(connection, header)
        if isinstance(topic, Refusal):
            return topic
        subscription = self._check_subscription(connection, header, group)
        if isinstance(subscription, Refusal):
            return subscription
        wanted = self._subscriptions.filter_of(header, subscription)
        if isinstance(wanted, Refusal):
            return wanted
        return CheckedPull(header, group, topic, subscription, wanted, self._clock.monotonic_ms())

    def _check_topic(self, connection: Connection, header: PullMessageRequestHeader) -> TopicConfig | Refusal:
        topic = self._topics.select_topic_config(header.topic)
        if topic is None:
            return Refusal(
                ResponseCode.TOPIC_NOT_EXIST, f"topic[{header.topic}] not exist, apply first please! \n{FAQ}"
            )
        if not topic.perm & PERM_READ:
            return Refusal(
                ResponseCode.NO_PERMISSION,
                f"the topic[{header.topic}] pulling message is forbidden: its perm is {topic.perm}, reading needs "
                f"{PERM_READ}; set it with updateTopicPerm",
                FORBIDDEN_TOPIC,
            )
        if not 0 <= header.queue_id < topic.read_queue_nums:
            return Refusal(
                ResponseCode.INVALID_PARAMETER,
                f"queueId[{header.queue_id}] is illegal, topic:[{header.topic}] "
                f"topicConfig.readQueueNums:[{topic.read_queue_nums}] consumer:[/{connection.remote_address}]; "
                "fetch the route again, or give the topic more queues with updateTopic",
            )
        return topic

    def _check_subscription(
        self, connection: Connection, header: PullMessageRequestHeader, group: SubscriptionGroupConfig
    ) -> SubscriptionData | Refusal:
        if header.sys_flag & PULL_FLAG_SUBSCRIPTION:
            found = self._subscriptions.from_header(
                header.topic, header.subscription or "", header.expression_type or ""
            )
        else:
            found = self._subscriptions.from_heartbeat(group, header.topic, header.sub_version)
        if isinstance(found, Refusal):
            return found
        refusal = self._subscriptions.reject_unregistered(header.consumer_group, connection)
        return refusal if refusal is not None else found
