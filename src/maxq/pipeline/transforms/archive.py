"""Messages → the rows of an archive.

Archive rows: message columns in the order of schemas.MESSAGE_COLUMNS, then `date`, the day of storing in UTC. Key:
topic, brokerName, queueId, queueOffset.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from pyspark.sql import DataFrame, Observation, SparkSession, Window
from pyspark.sql import functions as F

from maxq.pipeline.archive.ranges import Range
from maxq.protocol.message.message_queue import MessageQueue

DATE: Final = "date"
QUEUE_KEY: Final = ("topic", "brokerName", "queueId")
_DAY_MS: Final = 24 * 3600 * 1000
_COVERAGE: Final = (
    "array<struct<topic: string, brokerName: string, queueId: int, ranges: array<struct<first: bigint, last: bigint>>>>"
)


def archive_rows(messages: DataFrame, columns: Sequence[str]) -> DataFrame:
    """Return the rows that are written.

    Args:
        messages: with `columns`, storeTimestamp among them.
        columns: of messages.
    """
    # in UTC, independent of the session's time zone
    days = F.floor(F.unix_millis("storeTimestamp") / _DAY_MS).cast("int")
    return messages.select(*columns, F.date_add(F.lit("1970-01-01").cast("date"), days).alias(DATE))


def not_covered(
    messages: DataFrame, coverage: Mapping[MessageQueue, Sequence[Range]], seen: Observation | None = None
) -> DataFrame:
    """Return the messages whose offsets are in no range of their queue, with all columns unchanged.

    Args:
        messages: with topic, brokerName, queueId and queueOffset.
        coverage: queue → ranges, both ends included.
        seen: observes the number of all other messages, as `covered`, if there is a coverage.
    """
    if not coverage:
        return messages
    inside = F.exists("ranges", lambda one: F.col("queueOffset").between(one["first"], one["last"]))
    joined = messages.join(F.broadcast(coverage_frame(messages.sparkSession, coverage)), list(QUEUE_KEY), "left")
    is_left = F.col("ranges").isNull() | ~inside
    if seen is not None:
        joined = joined.observe(seen, F.count_if(~is_left).alias("covered"))
    return joined.where(is_left).select(*messages.columns)


def only_covered(messages: DataFrame, coverage: Mapping[MessageQueue, Sequence[Range]]) -> DataFrame:
    """Return the messages whose offsets are in some range of their queue."""
    inside = F.exists("ranges", lambda one: F.col("queueOffset").between(one["first"], one["last"]))
    joined = messages.join(F.broadcast(coverage_frame(messages.sparkSession, coverage)), list(QUEUE_KEY), "inner")
    return joined.where(inside).select(*messages.columns)


def coverage_frame(spark: SparkSession, coverage: Mapping[MessageQueue, Sequence[Range]]) -> DataFrame:
    """Return topic, brokerName, queueId, ranges array<struct<first, last>>: one row a queue."""
    rows = [
        {"topic": queue.topic, "brokerName": queue.broker_name, "queueId": queue.queue_id, "ranges": _pairs(ranges)}
        for queue, ranges in sorted(coverage.items())
    ]
    return spark.range(1).select(F.inline(F.from_json(F.lit(json.dumps(rows)), _COVERAGE)))


def _pairs(ranges: Iterable[Range]) -> list[dict[str, int]]:
    return [{"first": first, "last": last} for first, last in ranges]


def found_ranges(messages: DataFrame) -> DataFrame:
    """Return the offsets of messages as ranges: topic, brokerName, queueId, first, last, rows; one row for each run of
    neighbours.

    Args:
        messages: with topic, brokerName, queueId and queueOffset.
    """
    places = messages.select(*QUEUE_KEY, "queueOffset")
    order = Window.partitionBy(*QUEUE_KEY).orderBy("queueOffset")
    # Neighbours have the same distance to their rank; dense_rank gives the same offset the same rank.
    numbered = places.withColumn("island", F.col("queueOffset") - F.dense_rank().over(order))
    grouped = numbered.groupBy(*QUEUE_KEY, "island").agg(
        F.min("queueOffset").alias("first"), F.max("queueOffset").alias("last"), F.count("*").alias("rows")
    )
    return grouped.select(*QUEUE_KEY, "first", "last", "rows")
