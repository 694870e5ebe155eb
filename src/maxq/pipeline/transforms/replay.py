"""Archived or stored messages → the columns of a sink.

The sink's: body, topic, tags, keys, properties, queueId (with brokerName) or shardingKey.
"""

import operator
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import reduce
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from maxq.client.errors import NameIllegalError
from maxq.client.validators import check_topic
from maxq.errors import ConfigError
from maxq.protocol.message.message_const import PROPERTY_KEYS, PROPERTY_TAGS

#: Properties that tell where a message that is sent again came from; the option `timestamps` adds them.
ORIGIN_PLACE: Final = "ORIGIN_PLACE"  # topic/broker/queue/offset
ORIGIN_BORN: Final = "ORIGIN_BORN_TIMESTAMP"  # ms since 1970
ORIGIN_STORED: Final = "ORIGIN_STORE_TIMESTAMP"
NEEDED: Final = ("body", "tags", "keys", "properties", "bornTimestamp")  # besides those of every archive
COUNTS_SCHEMA: Final = "topic STRING, messages BIGINT, bytes BIGINT, first TIMESTAMP, last TIMESTAMP"
QUEUES: Final = ("any", "same", "key")


@dataclass(frozen=True)
class Mapped:
    """How messages are sent again.

    Attributes:
        topics: original topic → new one; one that is not named keeps its name.
        topic: for all of them instead.
        queues: `same`: the queue of the same number, or as `queue_map` says; `key`: the queue of its first key;
            `any`: as the sink distributes them.
        queue_map: original queue → new one.
        drop_properties: names that are left out.
        set_properties: name → value that every message gets.
        keep_keys, keep_tags: else messages have none.
        keep_timestamps: when and where the message was stored goes with it, as properties.
    """

    topics: Mapping[str, str] = field(default_factory=dict)
    topic: str | None = None
    queues: str = "any"
    queue_map: Mapping[int, int] = field(default_factory=dict)
    drop_properties: tuple[str, ...] = ()
    set_properties: Mapping[str, str] = field(default_factory=dict)
    keep_keys: bool = True
    keep_tags: bool = True
    keep_timestamps: bool = False

    def __post_init__(self) -> None:
        if self.queues not in QUEUES:
            raise ConfigError(f"queues is {self.queues!r}; it must be {', '.join(QUEUES)}")
        if self.queue_map and self.queues != "same":
            raise ConfigError("a map of queues means nothing unless queues is 'same'")
        check_targets([*self.topics.values(), *([] if self.topic is None else [self.topic])])


def check_targets(topics: Iterable[str]) -> None:
    """Check target topics before anything is read. Raises ConfigError for a name that a broker would refuse."""
    for topic in topics:
        try:
            check_topic(topic)
        except NameIllegalError as error:
            raise ConfigError(f"messages can not be sent there: {error}") from None


@dataclass(frozen=True)
class Chosen:
    """Which messages to send. Store times are in ms since 1970, without the end; `where`: a condition of Spark SQL."""

    topics: tuple[str, ...] = ()
    first_time: int | None = None
    end_time: int | None = None
    key: str | None = None
    tags: tuple[str, ...] = ()
    where: str | None = None

    def __post_init__(self) -> None:
        if self.first_time is not None and self.end_time is not None and self.first_time >= self.end_time:
            raise ConfigError(
                f"no message lies from {self.first_time} to {self.end_time} (milliseconds since 1970): swap them"
            )


def chosen_messages(messages: DataFrame, chosen: Chosen) -> DataFrame:
    """Return the chosen messages with all columns unchanged."""
    return messages.where(is_chosen(chosen))


def is_chosen(chosen: Chosen) -> Column:
    """Return the condition that chosen messages meet."""
    found = [F.lit(True)]
    if chosen.topics:
        found.append(F.col("topic").isin(*chosen.topics))
    if chosen.first_time is not None:
        found.append(F.col("storeTimestamp") >= F.timestamp_millis(F.lit(chosen.first_time)))
    if chosen.end_time is not None:
        found.append(F.col("storeTimestamp") < F.timestamp_millis(F.lit(chosen.end_time)))
    if chosen.key is not None:
        found.append(F.array_contains("keys", chosen.key))
    if chosen.tags:
        found.append(F.col("tags").isin(*chosen.tags))
    if chosen.where is not None:
        found.append(F.expr(chosen.where))
    return reduce(operator.and_, found)


def sink_messages(messages: DataFrame, mapped: Mapped) -> DataFrame:
    """Return what the sink takes, in the order of the rows.

    Args:
        messages: message columns, NEEDED and those of every archive among them; the sink's sendAt may be there too.
    """
    columns = [F.col("body"), _topic(mapped).alias("topic")]
    if mapped.keep_tags:
        columns.append(F.col("tags"))
    if mapped.keep_keys:
        columns.append(F.col("keys"))
    columns.append(_properties(mapped).alias("properties"))
    if mapped.queues == "same":
        columns.append(_mapped(F.col("queueId"), mapped.queue_map).cast("int").alias("queueId"))
    elif mapped.queues == "key":
        columns.append(F.try_element_at("keys", F.lit(1)).alias("shardingKey"))
    if "sendAt" in messages.columns:
        columns.append(F.col("sendAt"))
    return messages.select(*columns)


def target_counts(messages: DataFrame, mapped: Mapped) -> DataFrame:
    """Return topic (the target), messages, bytes (of bodies), first, last (store times), sorted by topic."""
    rows = messages.select(
        _topic(mapped).alias("topic"), F.length("body").cast("bigint").alias("size"), "storeTimestamp"
    )
    counted = rows.groupBy("topic").agg(
        F.count("*").alias("messages"),
        F.sum("size").alias("bytes"),
        F.min("storeTimestamp").alias("first"),
        F.max("storeTimestamp").alias("last"),
    )
    return counted.orderBy("topic")


def _topic(mapped: Mapped) -> Column:
    if mapped.topic is not None:
        return F.lit(mapped.topic)
    return _mapped(F.col("topic"), mapped.topics)


def _mapped(column: Column, table: Mapping[str, str] | Mapping[int, int]) -> Column:
    if not table:
        return column
    pairs = F.create_map(*(F.lit(part) for pair in table.items() for part in pair))
    return F.coalesce(F.try_element_at(pairs, column), column)


def _properties(mapped: Mapped) -> Column:
    dropped = {*mapped.drop_properties, *mapped.set_properties}
    # Without a column of keys or tags a sink takes them from the properties.
    if not mapped.keep_keys:
        dropped.add(PROPERTY_KEYS)
    if not mapped.keep_tags:
        dropped.add(PROPERTY_TAGS)
    if mapped.keep_timestamps:
        dropped |= {ORIGIN_PLACE, ORIGIN_BORN, ORIGIN_STORED}
    found = F.coalesce(F.col("properties"), F.create_map().cast("map<string,string>"))
    if dropped:
        found = F.map_filter(found, lambda name, _: ~name.isin(*sorted(dropped)))
    added = [part for name, value in sorted(mapped.set_properties.items()) for part in (F.lit(name), F.lit(value))]
    if mapped.keep_timestamps:
        place = F.concat_ws("/", "topic", "brokerName", F.col("queueId"), F.col("queueOffset"))
        added += [F.lit(ORIGIN_PLACE), place]
        added += [F.lit(ORIGIN_BORN), F.unix_millis("bornTimestamp").cast("string")]
        added += [F.lit(ORIGIN_STORED), F.unix_millis("storeTimestamp").cast("string")]
    return F.map_concat(found, F.create_map(*added)) if added else found
