"""Subscriptions: what a consumer wants of a topic.

Source:
    remoting/protocol/heartbeat/SubscriptionData.java, remoting/protocol/filter/FilterAPI.java,
    remoting/protocol/subscription/{SubscriptionGroupConfig,SimpleSubscriptionData}.java.
"""

from dataclasses import field
from typing import Any

from maxq.errors import LocalProtocolError
from maxq.protocol.body.data_version import DataVersion
from maxq.protocol.json.json_body import JsonBody, json_body
from maxq.protocol.message.java_hash import java_hash

SUB_ALL = "*"
TAG = "TAG"
SQL92 = "SQL92"


@json_body
class SubscriptionData(JsonBody):
    """`code_set` holds the java_hash of each tag; `sub_version` is the client's clock in ms."""

    topic: str = ""
    sub_string: str = ""
    tags_set: set[str] = field(default_factory=set)
    code_set: set[int] = field(default_factory=set)
    sub_version: int = 0
    expression_type: str = TAG
    class_filter_mode: bool = False

    @property
    def is_tag_type(self) -> bool:
        return self.expression_type in ("", TAG)

    @property
    def accepts_all(self) -> bool:
        """Return whether there is no tag filter, so that every message matches."""
        return self.is_tag_type and (self.sub_string in ("", SUB_ALL) or not self.tags_set)


def is_tag_type(expression_type: str | None) -> bool:
    """Return whether this is the type of tags: absent, empty or "TAG" (ExpressionType.isTagType)."""
    return not expression_type or expression_type == TAG


def subscription_text(subscription: SubscriptionData) -> str:
    """Return a text for a subscription, equal for subscriptions that select the same by the same text."""
    if not subscription.is_tag_type:
        return f"{subscription.expression_type} {subscription.sub_string!r}"
    return " || ".join(sorted(subscription.tags_set)) or subscription.sub_string or SUB_ALL


def build_subscription_data(
    topic: str, expression: str | None, expression_type: str | None = TAG, *, sub_version: int = 0
) -> SubscriptionData:
    """Parse a tag expression (`a || b`), or carry another kind unchanged (FilterAPI.build).

    Args:
        expression: tags with `||` between them; None, "" and "*" mean every message.
        sub_version: the caller's clock in ms.

    Raises:
        LocalProtocolError: a tag expression without a tag, or another kind without expression.
    """
    if not is_tag_type(expression_type):
        if not expression:
            raise LocalProtocolError(f"a {expression_type} subscription of {topic} needs an expression")
        return SubscriptionData(topic, expression, sub_version=sub_version, expression_type=str(expression_type))
    if not expression or expression == SUB_ALL:
        return SubscriptionData(topic, SUB_ALL, sub_version=sub_version)
    tags = {tag.strip() for tag in expression.split("||")} - {""}
    if not tags:
        raise LocalProtocolError(f'subscription {expression!r:.80} of {topic} names no tag; "*" means all')
    codes = {java_hash(tag) for tag in tags}
    return SubscriptionData(topic, expression, tags, codes, sub_version)


@json_body
class GroupRetryPolicy(JsonBody):
    """The delays between a group's retries; kept as sent."""

    type: str = "CUSTOMIZED"
    customized_retry_policy: dict[str, Any] | None = None
    exponential_retry_policy: dict[str, Any] | None = None


@json_body
class SimpleSubscriptionData(JsonBody):
    """A subscription of a group that an operator has set, with its topic and expression."""

    topic: str = ""
    expression_type: str = TAG
    expression: str = ""
    version: int = 0


@json_body
class SubscriptionGroupConfig(JsonBody):
    """The settings of one consumer group."""

    group_name: str = ""
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_broadcast_enable: bool = True
    consume_message_orderly: bool = False
    retry_queue_nums: int = 1
    retry_max_times: int = 16
    group_retry_policy: GroupRetryPolicy = field(default_factory=GroupRetryPolicy)
    broker_id: int = 0
    which_broker_when_consume_slowly: int = 1
    notify_consumer_ids_changed_enable: bool = True
    group_sys_flag: int = 0
    consume_timeout_minute: int = 15
    subscription_data_set: list[SimpleSubscriptionData] | None = None
    attributes: dict[str, str] = field(default_factory=dict)


@json_body
class SubscriptionGroupWrapper(JsonBody):
    """The group table: `subscriptionGroup.json` and the answer to 201. `forbidden_table`: group → topic → bits."""

    subscription_group_table: dict[str, SubscriptionGroupConfig] = field(default_factory=dict)
    forbidden_table: dict[str, dict[str, int]] = field(default_factory=dict)
    data_version: DataVersion = field(default_factory=DataVersion)


@json_body
class SubscriptionGroupList(JsonBody):
    """Body of request 225."""

    group_config_list: list[SubscriptionGroupConfig] = field(default_factory=list)


@json_body
class GroupForbidden(JsonBody):
    """Body of the answer to request 353."""

    topic: str | None = None
    group: str | None = None
    readable: bool | None = None


@json_body
class QuerySubscriptionResponseBody(JsonBody):
    """Body of the answer to request 345."""

    subscription_data: SubscriptionData | None = None
    group: str | None = None
    topic: str | None = None


@json_body
class CheckClientRequestBody(JsonBody):
    """Body of request 46."""

    client_id: str | None = None
    group: str | None = None
    subscription_data: SubscriptionData | None = None
    namespace: str | None = None
