"""Messages → rates, sizes, hot keys and hot queues, growth of the log."""

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from maxq.pipeline.transforms.time_steps import step_start_ms

#: Columns of messages that are needed.
STATS_MESSAGE_COLUMNS: Final = (
    "body", "topic", "keys", "brokerName", "queueId", "queueOffset", "physicalOffset", "storeTimestamp",
)  # fmt: skip
#: Columns of a table of queues.
QUEUE_SCHEMA: Final = "topic string, brokerName string, queueId int"
_ACCURACY: Final = 10_000
_QUEUE: Final = ("topic", "brokerName", "queueId")


def sized_messages(messages: DataFrame) -> DataFrame:
    """Return messages of STATS_MESSAGE_COLUMNS with `bytes`, the length of the body, in place of the body."""
    rest = [name for name in STATS_MESSAGE_COLUMNS if name != "body"]
    return messages.select(*rest, F.octet_length("body").cast("bigint").alias("bytes"))


def topic_stats(sized: DataFrame) -> DataFrame:
    """Return one row a topic, the busiest first.

    Returns:
        topic, messages, bytes (of bodies), firstAt, lastAt, perSecond and bytesPerSecond between these two (null if
        they are one), meanBytes, p50Bytes, p99Bytes, maxBytes.
    """
    percentiles = F.percentile_approx("bytes", [0.5, 0.99], _ACCURACY)
    seconds = (F.unix_millis("lastAt") - F.unix_millis("firstAt")) / F.lit(1000.0)
    return (
        sized.groupBy("topic")
        .agg(
            F.count(F.lit(1)).alias("messages"),
            F.sum("bytes").alias("bytes"),
            F.min("storeTimestamp").alias("firstAt"),
            F.max("storeTimestamp").alias("lastAt"),
            F.avg("bytes").alias("meanBytes"),
            percentiles.alias("percentiles"),
            F.max("bytes").alias("maxBytes"),
        )
        .withColumn("seconds", F.when(seconds > 0, seconds))
        .select(
            "topic", "messages", "bytes", "firstAt", "lastAt",
            (F.col("messages") / F.col("seconds")).alias("perSecond"),
            (F.col("bytes") / F.col("seconds")).alias("bytesPerSecond"),
            "meanBytes",
            F.get("percentiles", F.lit(0)).alias("p50Bytes"),
            F.get("percentiles", F.lit(1)).alias("p99Bytes"),
            "maxBytes",
        )
        .orderBy(F.desc("messages"), "topic")
    )  # fmt: skip


def rates_over_time(sized: DataFrame, step_ms: int) -> DataFrame:
    """Return messages and bytes of each topic in each step that has any: topic, stepMs (where it begins), messages,
    bytes."""
    return (
        sized.groupBy("topic", step_start_ms(F.col("storeTimestamp"), step_ms).alias("stepMs"))
        .agg(F.count(F.lit(1)).alias("messages"), F.sum("bytes").alias("bytes"))
        .orderBy("topic", "stepMs")
    )


def queue_stats(sized: DataFrame, queues: DataFrame) -> DataFrame:
    """Return one row a queue of a topic that has messages, the hottest first.

    Args:
        queues: QUEUE_SCHEMA: those that the topics have; a queue without a message counts, too.

    Returns:
        topic, brokerName, queueId, messages, bytes, firstOffset, lastOffset (null of an empty queue), share (of the
        topic's messages), skew (messages against the mean of the topic's queues; 1 is even).
    """
    of_topic = Window.partitionBy("topic")
    counted = sized.groupBy(*_QUEUE).agg(
        F.count(F.lit(1)).alias("messages"),
        F.sum("bytes").alias("bytes"),
        F.min("queueOffset").alias("firstOffset"),
        F.max("queueOffset").alias("lastOffset"),
    )
    return (
        queues.join(counted, list(_QUEUE), "full")
        .fillna(0, ["messages", "bytes"])
        .withColumn("total", F.sum("messages").over(of_topic))
        .where("total > 0")
        .select(
            *counted.columns,
            (F.col("messages") / F.col("total")).alias("share"),
            (F.col("messages") * F.count(F.lit(1)).over(of_topic) / F.col("total")).alias("skew"),
        )
        .orderBy(F.desc("skew"), F.desc("messages"), *_QUEUE)
    )


def key_stats(sized: DataFrame) -> DataFrame:
    """Return topic, key, messages, bytes and queues (that have the key), the hottest first. Keys of a single message
    are left out, because unique keys tell nothing. A message that names a key twice counts once."""
    keys, queue = F.array_distinct("keys"), F.struct("brokerName", "queueId")
    return (
        sized.select("topic", F.explode(keys).alias("key"), "bytes", queue.alias("queue"))
        .groupBy("topic", "key")
        .agg(
            F.count(F.lit(1)).alias("messages"),
            F.sum("bytes").alias("bytes"),
            F.count_distinct("queue").alias("queues"),
        )
        .where("messages > 1")
        .orderBy(F.desc("messages"), F.desc("bytes"), "topic", "key")
    )


def size_distribution(sized: DataFrame) -> DataFrame:
    """Return messages by topic and size of body: topic, belowBytes (a power of two, exclusive), messages."""
    power = F.ceil(F.log2(F.greatest(F.col("bytes") + 1, F.lit(1))))
    return (
        sized.groupBy("topic", F.pow(F.lit(2.0), power).cast("bigint").alias("belowBytes"))
        .agg(F.count(F.lit(1)).alias("messages"))
        .orderBy("topic", "belowBytes")
    )


def log_growth(sized: DataFrame) -> DataFrame:
    """Return how fast each broker's log grew while these messages were stored, other topics and record heads included.

    Returns:
        brokerName, bytes (from the first message's place in the log to the last one's), firstAt, lastAt,
        bytesPerSecond (null if all came at once).
    """
    seconds = (F.unix_millis("lastAt") - F.unix_millis("firstAt")) / F.lit(1000.0)
    return (
        sized.groupBy("brokerName")
        .agg(
            (F.max("physicalOffset") - F.min("physicalOffset")).alias("bytes"),
            F.min("storeTimestamp").alias("firstAt"),
            F.max("storeTimestamp").alias("lastAt"),
        )
        .select("*", F.when(seconds > 0, F.col("bytes") / seconds).alias("bytesPerSecond"))
        .orderBy("brokerName")
    )


def disk_by_topic(units: DataFrame) -> DataFrame:
    """Return the disk space that each topic takes.

    Args:
        units: the store table `consumequeue` (topic, size, messageCount).

    Returns:
        topic, messages, logBytes (whole records), queueBytes (its ConsumeQueue entries); the largest first.
    """
    return (
        units.groupBy("topic")
        .agg(
            F.sum("messageCount").cast("bigint").alias("messages"),
            F.sum("size").cast("bigint").alias("logBytes"),
            (F.count(F.lit(1)) * F.lit(20)).alias("queueBytes"),
        )
        .orderBy(F.desc("logBytes"), "topic")
    )
