"""What a pull subscribes to: from its own header, or from the group's heartbeats (broker-api §10.2, rows 10 to 18)."""

from maxq.broker.client.consumer_group_info import ConsumerGroupInfo
from maxq.broker.client.consumer_manager import ConsumerManager
from maxq.broker.processors.refusal import FAQ, Refusal
from maxq.broker.subscription.subscription_group_manager import SubscriptionGroupManager
from maxq.codes import ResponseCode
from maxq.config.settings import BrokerSettings
from maxq.errors import LocalProtocolError
from maxq.protocol.body.subscription import (
    SubscriptionData,
    SubscriptionGroupConfig,
    build_subscription_data,
)
from maxq.remoting.server import Connection

#: Why a reader is turned away, for clients (ForbiddenType.java).
FORBIDDEN_BROKER = "1"
FORBIDDEN_GROUP = "2"
FORBIDDEN_TOPIC = "3"
FORBIDDEN_BROADCASTING = "4"
FORBIDDEN_SUBSCRIPTION = "5"

_READ_BIT = 2  # PermName.INDEX_PERM_READ
_CACHED_EXPRESSIONS = 1_000
_TOOLS_GROUP = "TOOLS_CONSUMER"


class PullSubscriptions:
    """Finds the subscription of a pull."""

    def __init__(self, settings: BrokerSettings, consumers: ConsumerManager, groups: SubscriptionGroupManager) -> None:
        self._settings = settings
        self._consumers = consumers
        self._groups = groups
        self._built: dict[tuple[str, str, str], SubscriptionData] = {}

    def from_header(self, topic: str, expression: str, expression_type: str) -> SubscriptionData | Refusal:
        """Parse the expression a pull carries. Parsed ones are kept: a consumer sends the same one every time."""
        key = (topic, expression, expression_type)
        built = self._built.get(key)
        if built is not None:
            return built
        try:
            built = build_subscription_data(topic, expression, expression_type)
        except LocalProtocolError as error:
            return Refusal(
                ResponseCode.SUBSCRIPTION_PARSE_FAILED, f"parse the consumer's subscription failed: {error}"
            )
        if len(self._built) >= _CACHED_EXPRESSIONS:
            self._built.clear()
        self._built[key] = built
        return built

    def from_heartbeat(
        self, config: SubscriptionGroupConfig, topic: str, sub_version: int
    ) -> SubscriptionData | Refusal:
        """What the online group says it wants of the topic."""
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

    def filter_supported(self, subscription: SubscriptionData) -> Refusal | None:
        """Only tags are filtered here."""
        if subscription.is_tag_type:
            return None
        kind = subscription.expression_type
        if not self._settings.broker.enable_property_filter:
            return Refusal(
                ResponseCode.SYSTEM_ERROR,
                f"The broker does not support consumer to filter message by {kind} (enablePropertyFilter is false)",
            )
        return Refusal(
            ResponseCode.SUBSCRIPTION_PARSE_FAILED,
            f"{kind} expressions are not supported by this MaxQ release: {subscription.sub_string!r:.200}; use TAG",
        )

    def reject_unregistered(self, group: str, connection: Connection) -> Refusal | None:
        """rejectPullConsumerEnable: only members that send heartbeats may read."""
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
