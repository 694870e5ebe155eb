"""Dead letters: messages of `%DLQ%group` → a table of what they were and why they died.

group               the consumer group that could not handle it
originTopic         the topic it was sent to; null if it does not say
originMsgId         the id it had there
tries               how often the group tried it
cause               TRIES: as often as it may; GIVEN_UP: the consumer wanted no more tries; UNKNOWN
causeText           the same in words
…                   the columns of the message as it lies in the dead-letter topic
"""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from maxq.client.admin.dead_letters import NOT_SENT_AGAIN
from maxq.protocol.message import message_const as const
from maxq.protocol.namespace import DLQ_PREFIX, RETRY_PREFIX

LETTER_COLUMNS: Final = ("group", "originTopic", "originMsgId", "tries", "cause", "causeText")
TRIES: Final = "TRIES"
GIVEN_UP: Final = "GIVEN_UP"
UNKNOWN: Final = "UNKNOWN"
#: Properties that RocketMQ reserves and that a redriven message keeps, for the sink's option keepProperties.
KEPT_PROPERTIES: Final = (const.PROPERTY_RETRY_TOPIC, const.PROPERTY_ORIGIN_MESSAGE_ID)


def dead_letters(messages: DataFrame, most_tries: int | None = None) -> DataFrame:
    """Return dead letters; see the module's text.

    Args:
        messages: of dead-letter topics: topic, properties, reconsumeTimes among the columns.
        most_tries: how often the groups may try (retryMaxTimes), where the messages do not say it.
    """
    most = F.coalesce(_property(const.PROPERTY_MAX_RECONSUME_TIMES).cast("int"), F.lit(most_tries).cast("int"))
    tries = F.greatest(F.col("reconsumeTimes"), _property(const.PROPERTY_RECONSUME_TIME).cast("int"))
    found = messages.select(
        F.substring("topic", len(DLQ_PREFIX) + 1, 1 << 16).alias("group"),
        _property(const.PROPERTY_RETRY_TOPIC).alias("originTopic"),
        _property(const.PROPERTY_ORIGIN_MESSAGE_ID).alias("originMsgId"),
        tries.alias("tries"),
        most.alias("_most"),
        *messages.columns,
    )
    # A dead letter's count includes the try that failed last: 17 of 16.
    cause = F.when(F.col("_most").isNull(), UNKNOWN).when(F.col("tries") >= F.col("_most"), TRIES).otherwise(GIVEN_UP)
    text = (
        F.when(cause == TRIES, F.format_string("failed %d times, and %d more tries are allowed", "tries", "_most"))
        .when(cause == GIVEN_UP, F.format_string("failed %d times, then its consumer gave it up", "tries"))
        .otherwise(F.format_string("failed %d times", "tries"))
    )
    return found.select(
        *LETTER_COLUMNS[:4], cause.alias("cause"), text.alias("causeText"), *messages.columns
    )  # fmt: skip


def redriven(letters: DataFrame, topic: str | None) -> DataFrame:
    """Return the messages to send for dead letters: the original message with reconsumeTimes 0 and a new unique key.

    Args:
        letters: as dead_letters gives them.
        topic: None: the retry topic of the group, where only it gets them; empty: the topic each came from; else there.

    Returns:
        body, topic, tags, keys, properties; for a sink with keepProperties of KEPT_PROPERTIES.
    """
    dropped = set(NOT_SENT_AGAIN)
    if topic is None:
        target: Column = F.concat(F.lit(RETRY_PREFIX), F.col("group"))
    else:
        dropped.add(const.PROPERTY_RETRY_TOPIC)
        target = F.lit(topic) if topic else F.col("originTopic")
    properties = F.map_filter("properties", lambda name, _: ~name.isin(*sorted(dropped)))
    return letters.select("body", target.alias("topic"), "tags", "keys", properties.alias("properties"))


def _property(name: str) -> Column:
    return F.try_element_at("properties", F.lit(name))
