"""Bodies about queues and rates of a broker.

Source:
    remoting/protocol/body/{BrokerStatsData,BrokerStatsItem,QueryConsumeQueueResponseBody,ConsumeQueueData}.java.
"""

from dataclasses import field

from maxq.protocol.body.subscription import SubscriptionData
from maxq.protocol.json.json_body import JsonBody, json_body


@json_body
class BrokerStatsItem(JsonBody):
    """Sum over a span, rate a second, average a call."""

    sum: int = 0
    tps: float = 0.0
    avgpt: float = 0.0


@json_body
class BrokerStatsData(JsonBody):
    """Body of the answer to request 315."""

    stats_minute: BrokerStatsItem = field(default_factory=BrokerStatsItem)
    stats_hour: BrokerStatsItem = field(default_factory=BrokerStatsItem)
    stats_day: BrokerStatsItem = field(default_factory=BrokerStatsItem)


@json_body
class ConsumeQueueData(JsonBody):
    """One ConsumeQueue unit, and whether the subscription matches it."""

    physic_offset: int = 0
    physic_size: int = 0
    tags_code: int = 0
    extend_data_json: str | None = None
    bit_map: str | None = None
    eval: bool = False
    msg: str | None = None


@json_body
class QueryConsumeQueueResponseBody(JsonBody):
    """Body of the answer to request 321."""

    subscription_data: SubscriptionData | None = None
    filter_data: str | None = None
    queue_data: list[ConsumeQueueData] = field(default_factory=list)
    max_queue_index: int = 0
    min_queue_index: int = 0
