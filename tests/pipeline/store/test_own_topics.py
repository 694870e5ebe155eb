"""Topics that jobs over store directories leave out, as Python and as Spark read the expression."""

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from maxq.pipeline.store.own_topics import OWN_TOPICS, is_own_topic

OWN = ["RMQ_SYS_TRANS_HALF_TOPIC", "rmq_sys_wheel_timer", "SCHEDULE_TOPIC_XXXX", "TRANS_CHECK_MAX_TIME_TOPIC",
       "OFFSET_MOVED_EVENT", "TBW102"]  # fmt: skip
USERS = [
    "Orders",
    "%RETRY%readers",
    "%DLQ%readers",
    "MY_TRANS_CHECK_MAX_TIME_TOPIC",
    "OFFSET_MOVED_EVENTS",
    "xrmq_sys_",
]


def test_half_messages_that_were_given_up_are_no_messages_of_users(spark: SparkSession) -> None:
    """A replay or an archive of a store that names no topics delivered messages that were never committed."""
    assert [topic for topic in OWN + USERS if not is_own_topic(topic)] == USERS
    names = spark.createDataFrame([(topic,) for topic in OWN + USERS], "topic string")
    assert [row.topic for row in names.where(~F.col("topic").rlike(OWN_TOPICS)).collect()] == USERS
