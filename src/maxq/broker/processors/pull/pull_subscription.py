"""The subscription of a pull: from its own header, or from the group's heartbeats."""

from collections.abc import Mapping

from maxq.broker.processors.refusal import FAQ, Refusal
from maxq.broker.tables.client.consumer_group_info import ConsumerGroupInfo
from maxq.broker.tables.client.consumer_manager import ConsumerManager
from maxq.broker.tables.filter.consumer_filter_manager import ConsumerFilterManager
from maxq.broker.tables.filter.filter_expressions import CLASS_FILTER_REMARK
from maxq.broker.tables.subscription.subscription_group_manager import SubscriptionGroupManager
from maxq.broker.tables.topic.topic_validator import RETRY_PREFIX
from maxq.codes import ResponseCode
from maxq.config.settings import BrokerSettings
from maxq.errors import FilterExpressionError, LocalProtocolError
from maxq.filter.languages import compile_expression, compile_sql92
from maxq.protocol.body.subscription import (
    SubscriptionData,
    SubscriptionGroupConfig,
    build_subscription_data,
)
from maxq.protocol.body.topic_config import TopicConfig
from maxq.protocol.header.pull import PULL_FLAG_CLASS_FILTER, PULL_FLAG_SUBSCRIPTION, PullMessageRequestHeader
from maxq.remoting.server import Connection
from maxq.runtime.bounded_cache import BoundedCache, text_size
from maxq.store.queue.property_filter import PropertyFilter

#: Why a reader is turned away, for clients (ForbiddenType.java).
FORBIDDEN_BROKER = "1"
FORBIDDEN_GROUP = "2"
FORBIDDEN_TOPIC = "3"
FORBIDDEN_BROADCASTING = "4"
FORBIDDEN_SUBSCRIPTION = "5"

_READ_BIT = 2  # PermName.INDEX_PERM_READ
_CACHED_EXPRESSIONS = 1_000
_CACHED_TEXT = 1 << 20  # characters of all expressions together
_TOOLS_GROUP = "TOOLS_CONSUMER"


class PullSubscriptions:
    """Finds the subscription by which the messages of a pull request are filtered."""

    def __init__(
        self,
        settings: BrokerSettings,
        groups: SubscriptionGroupManager,
        consumers: ConsumerManager,
        filters: ConsumerFilterManager,
    ) -> None:
        self._settings = settings
        self._consumers = consumers
        self._groups = groups
        self._filters = filters
        #: By topic, expression and type.
        self._built: BoundedCache[tuple[str, str, str], SubscriptionData] = BoundedCache(
            _CACHED_EXPRESSIONS, _CACHED_TEXT, text_size
        )
        #: By type and expression.
        self._header_filters: BoundedCache[tuple[str, str], PropertyFilter] = BoundedCache(
            _CACHED_EXPRESSIONS, _CACHED_TEXT, text_size
        )

    def topics_changed(self, changed: list[TopicConfig], deleted: list[str]) -> None:
        """Remove cached subscriptions of deleted topics."""
        if gone := frozenset(deleted):
            self._built.forget(lambda key, _: key[0] in gone)

    def from_header(self, topic: str, expression: str, expression_type: str) -> SubscriptionData | Refusal:
        """Parse the expression that a pull carries. Results are cached, because a consumer sends the same one every
        time."""
        key = (topic, expression, expression_type)
        built = self._built.get(key)
        if built is not None:
            return built
        try:
            built = build_subscription_data(topic, expression, expression_type)
        except LocalProtocolError as error:
            return Refusal(ResponseCode.SUBSCRIPTION_PARSE_FAILED, f"parse the consumer's subscription failed: {error}")
        self._built.keep(key, built)
        return built

    def from_heartbeat(
        self, config: SubscriptionGroupConfig, topic: str, sub_version: int
    ) -> SubscriptionData | Refusal:
        """Returns the online group's subscription to the topic."""
        group = config.group_name
        info = self._consumers.get_consumer_group_info(group)
        if info is None:
            return Refusal(
                ResponseCode.SUBSCRIPTION_NOT_EXIST,
                f"the consumer's group info not exist: no member of {group} has sent a heartbeat to this broker\n{FAQ}",
            )
        refusal = self._may_read(config, info, topic)
        if refusal is not None:
            return refusal
        subscription = info.find_subscription_data(topic)
        if subscription is None:
            return Refusal(
                ResponseCode.SUBSCRIPTION_NOT_EXIST,
                f"the consumer's subscription not exist: {group} subscribes to {sorted(info.subscription_table)}, "
                f"not to {topic}; members of one group must subscribe alike\n{FAQ}",
            )
        if subscription.sub_version < sub_version:
            return Refusal(
                ResponseCode.SUBSCRIPTION_NOT_LATEST,
                f"the consumer's subscription not latest: the pull has version {sub_version}, "
                f"the last heartbeat {subscription.sub_version}",
            )
        return subscription

    def filter_of(
        self, header: PullMessageRequestHeader, subscription: SubscriptionData
    ) -> PropertyFilter | Refusal | None:
        """Returns the filter on properties that the subscription contains; None if it selects by tags."""
        if subscription.class_filter_mode or header.sys_flag & PULL_FLAG_CLASS_FILTER:
            return Refusal(ResponseCode.SUBSCRIPTION_PARSE_FAILED, CLASS_FILTER_REMARK)
        if subscription.is_tag_type:
            return None
        if header.sys_flag & PULL_FLAG_SUBSCRIPTION:
            wanted = self._of_header(subscription)
        else:
            wanted = self._registered(header, subscription)
        if isinstance(wanted, Refusal):
            return wanted
        broker = self._settings.broker
        if not broker.enable_property_filter:
            return Refusal(
                ResponseCode.SYSTEM_ERROR,
                "The broker does not support consumer to filter message by "
                f"{subscription.expression_type}: its enablePropertyFilter is false; set it with updateBrokerConfig",
            )
        if broker.filter_support_retry and header.topic.startswith(RETRY_PREFIX):
            return self._of_original_topics(header.consumer_group)
        return wanted

    def _of_header(self, subscription: SubscriptionData) -> PropertyFilter | Refusal:
        key = (subscription.expression_type, subscription.sub_string)
        kept = self._header_filters.get(key)
        if kept is not None:
            return kept
        try:
            kept = PropertyFilter(compile_expression(*key))
        except FilterExpressionError as error:
            return Refusal(ResponseCode.SUBSCRIPTION_PARSE_FAILED, f"parse the consumer's subscription failed: {error}")
        self._header_filters.keep(key, kept)
        return kept

    def _registered(self, header: PullMessageRequestHeader, subscription: SubscriptionData) -> PropertyFilter | Refusal:
        """Return the filter that the group's heartbeats registered."""
        entry = self._filters.get(header.topic, header.consumer_group)
        if entry is None:
            return Refusal(
                ResponseCode.FILTER_DATA_NOT_EXIST,
                "The broker's consumer filter data is not exist!Your expression may be wrong! "
                f"{header.consumer_group} subscribes to {header.topic} by {subscription.expression_type} "
                f"{subscription.sub_string!r:.200}",
            )
        if entry.data.client_version < header.sub_version:
            return Refusal(
                ResponseCode.FILTER_DATA_NOT_LATEST,
                f"the consumer's consumer filter data not latest: the pull has version {header.sub_version}, the last "
                f"heartbeat {entry.data.client_version}",
            )
        return entry.wanted

    def _of_original_topics(self, group: str) -> PropertyFilter:
        """Return the filter for retried messages: each must still match the group's subscription to its original topic
        (filterSupportRetry)."""
        wanted = {
            entry.data.topic: entry.data.expression for entry in self._filters.of_group(group) if not entry.is_dead
        }
        return PropertyFilter(compile_sql92(retry_expression(wanted)))

    def reject_unregistered(self, group: str, connection: Connection) -> Refusal | None:
        """Refuse readers that are not members of the group by heartbeat, with rejectPullConsumerEnable."""
        if not self._settings.broker.reject_pull_consumer_enable or group == _TOOLS_GROUP:
            return None
        info = self._consumers.get_consumer_group_info(group)
        if info is not None and connection in info.channel_info_table:
            return None
        return Refusal(
            ResponseCode.SUBSCRIPTION_NOT_EXIST,
            f"the consumer's group info not exist: {connection.remote_address} sent no heartbeat for {group} "
            f"and rejectPullConsumerEnable is true\n{FAQ}",
        )

    def _may_read(self, config: SubscriptionGroupConfig, info: ConsumerGroupInfo, topic: str) -> Refusal | None:
        group = config.group_name
        if not config.consume_broadcast_enable and info.is_broadcasting:
            return Refusal(
                ResponseCode.NO_PERMISSION,
                f"the consumer group[{group}] can not consume by broadcast way: its consumeBroadcastEnable is false; "
                "set it with updateSubGroup -d true",
                FORBIDDEN_BROADCASTING,
            )
        if self._groups.is_forbidden(group, topic, _READ_BIT):
            return Refusal(
                ResponseCode.NO_PERMISSION,
                f"the consumer group[{group}] is forbidden for topic[{topic}]; an administrator can allow it again",
                FORBIDDEN_SUBSCRIPTION,
            )
        return None


def retry_expression(wanted: Mapping[str, str]) -> str:
    """Combine the expressions for the original topics into one for the group's retry topic. Messages of other topics,
    and those without an original topic, pass."""
    if not wanted:
        return "TRUE"
    topics = {topic: "'" + topic.replace("'", "''") + "'" for topic in wanted}
    parts = [f"RETRY_TOPIC = {topics[topic]} AND (\n{expression}\n)" for topic, expression in sorted(wanted.items())]
    others = f"RETRY_TOPIC IS NULL OR RETRY_TOPIC NOT IN ({', '.join(sorted(topics.values()))})"
    return " OR ".join([*parts, others])
