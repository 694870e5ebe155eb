"""The checks of every request of pop consumption: whether this group may read that topic here."""

from typing import Final, NamedTuple

from maxq.broker.bundles import Clients, Environment, Messages, Tables
from maxq.broker.processors.pull.pull_subscription import PullSubscriptions
from maxq.broker.processors.refusal import FAQ, Refusal
from maxq.broker.tables.topic.topic_validator import RETRY_PREFIX, validate_reader
from maxq.codes import ResponseCode
from maxq.config.settings import BrokerSettings
from maxq.errors import FilterExpressionError, RequestRefusedError
from maxq.filter.languages import compile_expression
from maxq.protocol.body.subscription import SubscriptionData, SubscriptionGroupConfig
from maxq.protocol.body.topic_config import PERM_READ, TopicConfig
from maxq.protocol.message.pop_extra_info import retry_topic_v1
from maxq.remoting.server import Connection
from maxq.runtime.bounded_cache import BoundedCache, text_size
from maxq.store.queue.property_filter import PropertyFilter

_CACHED_FILTERS: Final = 1_000
_CACHED_TEXT: Final = 1 << 20  # characters of all expressions together


class Allowed(NamedTuple):
    """The topic and group that a request names."""

    topic: TopicConfig
    group: SubscriptionGroupConfig


class PopFilters:
    """Builds the filters of pop requests, and keeps each for repeated requests."""

    def __init__(self, settings: BrokerSettings, subscriptions: PullSubscriptions) -> None:
        self._settings = settings
        self._subscriptions = subscriptions
        self._built: BoundedCache[tuple[str, str], PropertyFilter] = BoundedCache(
            _CACHED_FILTERS, _CACHED_TEXT, text_size
        )

    def of(
        self, topic: str, expression: str | None, kind: str | None
    ) -> tuple[SubscriptionData, PropertyFilter | None]:
        """Return the subscription, and the filter on properties unless the expression selects tags. Raises
        RequestRefusedError if the expression is wrong, or if property filters are disabled."""
        found = self._subscriptions.from_header(topic, expression or "*", kind or "TAG")
        if isinstance(found, Refusal):
            raise RequestRefusedError(found.code, found.remark)
        if found.is_tag_type:
            return found, None
        if not self._settings.broker.enable_property_filter:
            raise RequestRefusedError(
                ResponseCode.SYSTEM_ERROR,
                f"The broker does not support consumer to filter message by {found.expression_type}: its "
                "enablePropertyFilter is false; set it with updateBrokerConfig",
            )
        return found, self._filter(found.expression_type, found.sub_string)

    def _filter(self, kind: str, expression: str) -> PropertyFilter:
        kept = self._built.get((kind, expression))
        if kept is not None:
            return kept
        try:
            kept = PropertyFilter(compile_expression(kind, expression))
        except FilterExpressionError as error:
            raise RequestRefusedError(
                ResponseCode.SUBSCRIPTION_PARSE_FAILED, f"parse the consumer's subscription failed: {error}"
            ) from error
        self._built.keep((kind, expression), kept)
        return kept


class PopChecks:
    """Checks requests of pop consumers for one broker. Every method raises RequestRefusedError with the text for the
    client.

    Attributes:
        filters: what pops, notifications and peeks filter by.
    """

    def __init__(self, env: Environment, tables: Tables, clients: Clients, messages: Messages) -> None:
        self.filters = PopFilters(env.settings, clients.subscriptions)
        self._settings = env.settings
        self._own = env.own
        self._topics = tables.topics
        self._groups = tables.groups
        self._store = messages.store

    def may_read(self, connection: Connection, topic: str, group: str, queue_id: int, doing: str) -> Allowed:
        """Check that the client may read. `doing` goes into the remark; queue_id -1: any queue."""
        permission = self._settings.broker.broker_permission
        if not permission & PERM_READ:
            raise RequestRefusedError(
                ResponseCode.NO_PERMISSION,
                f"the broker[{self._own.ip}] {doing} message is forbidden: brokerPermission is {permission}, reading "
                f"needs {PERM_READ}; set it with updateBrokerConfig",
            )
        config = self.topic(topic)
        if not config.perm & PERM_READ:
            raise RequestRefusedError(
                ResponseCode.NO_PERMISSION,
                f"the topic[{topic}] {doing} message is forbidden: its perm is {config.perm}, reading needs "
                f"{PERM_READ}; set it with updateTopicPerm",
            )
        if queue_id >= config.read_queue_nums:
            raise RequestRefusedError(
                ResponseCode.INVALID_PARAMETER, self._bad_queue(connection, topic, queue_id, config)
            )
        if (why := validate_reader(group)) is not None:
            raise RequestRefusedError(ResponseCode.NO_PERMISSION, why)
        found = self._groups.find_subscription_group_config(group)
        if found is None:
            raise RequestRefusedError(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group [{group}] does not exist, {FAQ}"
            )
        if not found.consume_enable:
            raise RequestRefusedError(
                ResponseCode.NO_PERMISSION,
                f"subscription group no permission, {group}: its consumeEnable is false; set it with updateSubGroup -s "
                "true",
            )
        return Allowed(config, found)

    def topic(self, topic: str) -> TopicConfig:
        """Return the settings of a topic, which must exist.

        Raises:
            RequestRefusedError: there is no such topic.
        """
        config = self._topics.select_topic_config(topic)
        if config is None:
            raise RequestRefusedError(
                ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist, apply first please! {FAQ}"
            )
        return config

    def retry_topic(self, topic: str, group: str) -> None:
        """Check that `topic`, if it is a retry topic of `group` in the older spelling, is not another group's."""
        if topic.startswith(retry_topic_v1("", group)) and self._groups.has_retry_topic(topic):
            raise RequestRefusedError(
                ResponseCode.NO_PERMISSION,
                f"{topic} is the retry topic of the group {topic.removeprefix(RETRY_PREFIX)}, not of {group}: name the "
                "topic that was popped",
            )

    def message(
        self, connection: Connection, topic: str, group: str, queue_id: int, offset: int, *, may_be_end: bool
    ) -> None:
        """Check that the message exists and that the group may name it. With `may_be_end` the offset behind the last
        message is valid, too."""
        self.retry_topic(topic, group)
        config = self.topic(topic)
        if not 0 <= queue_id < config.read_queue_nums:
            raise RequestRefusedError(
                ResponseCode.MESSAGE_ILLEGAL, self._bad_queue(connection, topic, queue_id, config)
            )
        low, high = self._store.min_offset(topic, queue_id), self._store.max_offset(topic, queue_id)
        if not low <= offset < high + may_be_end:
            raise RequestRefusedError(
                ResponseCode.NO_MESSAGE,
                f"offset is illegal, key:{topic}@{queue_id}, commit:{offset}, store:{low}~{high}",
            )

    @staticmethod
    def _bad_queue(connection: Connection, topic: str, queue_id: int, config: TopicConfig) -> str:
        return (
            f"queueId[{queue_id}] is illegal, topic:[{topic}] topicConfig.readQueueNums:[{config.read_queue_nums}] "
            f"consumer:[/{connection.remote_address}]"
        )
