"""Committed offsets of consumer groups against what was stored: lag, its age, its course.

Groups are rows of `rocketmq-cluster`, table `groups`: consumerGroup, topic, brokerName, queueId, consumerOffset,
minOffset, maxOffset, lag.
"""

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from maxq.pipeline.transforms.time_steps import step_start_ms

_QUEUE: Final = ("topic", "brokerName", "queueId")


def group_lag(groups: DataFrame, sized: DataFrame) -> DataFrame:
    """Return one row a group and topic, the largest lag first.

    Args:
        sized: messages (topic, brokerName, queueId, queueOffset, storeTimestamp).

    Returns:
        consumerGroup, topic, queues, lag (messages), lost (messages behind the committed offset that are deleted
        already), oldestAt (store time of the oldest message, of those in `sized`, that is not consumed).
    """
    waiting = _waiting(groups, sized).groupBy("consumerGroup", "topic").agg(F.min("storeTimestamp").alias("oldestAt"))
    return (
        groups.groupBy("consumerGroup", "topic")
        .agg(
            F.count(F.lit(1)).alias("queues"),
            F.sum("lag").alias("lag"),
            F.sum(F.greatest(F.col("minOffset") - F.col("consumerOffset"), F.lit(0))).alias("lost"),
        )
        .join(waiting, ["consumerGroup", "topic"], "left")
        .orderBy(F.desc("lag"), "consumerGroup", "topic")
    )


def waiting_over_time(groups: DataFrame, sized: DataFrame, step_ms: int) -> DataFrame:
    """Return when the unconsumed messages were stored: consumerGroup, topic, stepMs, messages."""
    return (
        _waiting(groups, sized)
        .groupBy("consumerGroup", "topic", step_start_ms(F.col("storeTimestamp"), step_ms).alias("stepMs"))
        .agg(F.count(F.lit(1)).alias("messages"))
        .orderBy("consumerGroup", "topic", "stepMs")
    )


def lag_over_time(samples: DataFrame) -> DataFrame:
    """Return the lag over time from samples taken one after another.

    Args:
        samples: rows of `groups`, with sampledAt.

    Returns:
        consumerGroup, topic, sampledAt, lag, consumed (committed in all queues), produced (their maximal offsets).
    """
    return (
        samples.groupBy("consumerGroup", "topic", "sampledAt")
        .agg(
            F.sum("lag").alias("lag"), F.sum("consumerOffset").alias("consumed"), F.sum("maxOffset").alias("produced")
        )
        .orderBy("consumerGroup", "topic", "sampledAt")
    )  # fmt: skip


def _waiting(groups: DataFrame, sized: DataFrame) -> DataFrame:
    """Return a row for each group and message that it has not consumed."""
    committed = groups.select("consumerGroup", *_QUEUE, "consumerOffset")
    return (
        sized.select(*_QUEUE, "queueOffset", "storeTimestamp")
        .join(F.broadcast(committed), list(_QUEUE), "inner")
        .where(F.col("queueOffset") >= F.col("consumerOffset"))
    )
