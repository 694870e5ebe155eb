"""Headers about clients and consumer groups.

Source:
    remoting/protocol/header/.
"""

from collections.abc import Mapping
from typing import ClassVar

from maxq.protocol.frame.header_fields import CommandHeader, header

#: Ext fields of the answer to a heartbeat (34).
IS_SUPPORT_HEART_BEAT_V2 = "IS_SUPPORT_HEART_BEAT_V2"
IS_SUB_CHANGE = "IS_SUB_CHANGE"


@header
class UnregisterClientRequestHeader(CommandHeader):
    """35. The C++ client writes "" for the group that does not apply."""

    WIRE: ClassVar[Mapping[str, str]] = {"client_id": "clientID"}

    client_id: str
    producer_group: str | None = None
    consumer_group: str | None = None


@header
class GetConsumerListByGroupRequestHeader(CommandHeader):
    """38."""

    consumer_group: str


@header
class NotifyConsumerIdsChangedRequestHeader(CommandHeader):
    """40, broker to client."""

    consumer_group: str


@header
class GetConsumerConnectionListRequestHeader(CommandHeader):
    """203."""

    consumer_group: str


@header
class GetProducerConnectionListRequestHeader(CommandHeader):
    """204."""

    producer_group: str


@header
class GetConsumeStatsRequestHeader(CommandHeader):
    """208. `topic_list` has `;` between names."""

    consumer_group: str
    topic: str | None = None
    topic_list: str | None = None


@header
class GetConsumeStatsInBrokerHeader(CommandHeader):
    """317."""

    is_order: bool


@header
class QueryTopicConsumeByWhoRequestHeader(CommandHeader):
    """300."""

    topic: str


@header
class QueryTopicsByConsumerRequestHeader(CommandHeader):
    """343."""

    group: str


@header
class QuerySubscriptionByConsumerRequestHeader(CommandHeader):
    """345."""

    group: str
    topic: str | None = None


@header
class GetConsumerRunningInfoRequestHeader(CommandHeader):
    """307."""

    consumer_group: str
    client_id: str
    jstack_enable: bool = False


@header
class ConsumeMessageDirectlyResultRequestHeader(CommandHeader):
    """309."""

    consumer_group: str
    client_id: str | None = None
    msg_id: str | None = None
    broker_name: str | None = None
    topic: str | None = None
    topic_sys_flag: int | None = None
    group_sys_flag: int | None = None
