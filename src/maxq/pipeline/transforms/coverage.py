"""Summary of the messages that were read: queues with their first and last offsets and store times."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def queue_coverage(messages: DataFrame, at: str = "storeTimestamp") -> DataFrame:
    """Return one row a queue: brokerName, queueId, firstOffset, lastOffset, messages, firstAt, lastAt.

    Args:
        messages: of one topic: brokerName, queueId, queueOffset and `at`; several rows of one message count once.
    """
    by = ("brokerName", "queueId")
    return (
        messages.groupBy(*by)
        .agg(
            F.min("queueOffset").alias("firstOffset"),
            F.max("queueOffset").alias("lastOffset"),
            F.count_distinct("queueOffset").alias("messages"),
            F.min(at).alias("firstAt"),
            F.max(at).alias("lastAt"),
        )
        .orderBy(*by)
    )
