"""Filter data of consumers: the content of consumerFilter.json.

Source:
    broker/filter/{ConsumerFilterData,ConsumerFilterManager}.java, filter/util/BloomFilterData.java.
"""

from dataclasses import field

from maxq.protocol.json.json_body import JsonBody, json_body


@json_body
class BloomFilterBits(JsonBody):
    """The bits of a message's bit map that belong to a consumer."""

    bit_num: int = 0
    bit_pos: list[int] = field(default_factory=list)


@json_body
class ConsumerFilterData(JsonBody):
    """One group's expression for one topic. Times are wall clock, ms. `client_version` is its subVersion."""

    consumer_group: str = ""
    topic: str = ""
    expression: str = ""
    expression_type: str = ""
    born_time: int = 0
    dead_time: int = 0
    bloom_filter_data: BloomFilterBits | None = None
    client_version: int = 0
    dead: bool = False  # written by Java beside dead_time, and read by nobody


@json_body
class FilterDataMapByTopic(JsonBody):
    """The filter expressions of all groups for one topic, as consumerFilter.json stores them."""

    group_filter_data: dict[str, ConsumerFilterData] = field(default_factory=dict)
    topic: str = ""


@json_body
class ConsumerFilterWrapper(JsonBody):
    """The content of the consumer filters' file."""

    filter_data_by_topic: dict[str, FilterDataMapByTopic] = field(default_factory=dict)
