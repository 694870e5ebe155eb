"""`format("rocketmq")` in Spark: batch, stream, checkpoints, push-down, options that are wrong."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

import maxq
from maxq.api import Admin, Message, MessageQueue, Producer
from maxq.pipeline import offsets_behind
from maxq.protocol.body.topic_config import TopicConfig


@pytest.fixture(scope="module")
def producer(standalone: maxq.Standalone) -> Iterator[Producer]:
    with Producer("tests", standalone.namesrv_address) as producer:
        yield producer


def send(producer: Producer, topic: str, queue_id: int, first: int, count: int) -> None:
    for n in range(first, first + count):
        message = Message(topic, b"%d" % n, {"n": str(n)})
        message.tags, message.keys = ("TagA" if n % 2 else "TagB"), [f"k{n}", "all"]
        producer.send(message, queue=MessageQueue(topic, "broker-a", queue_id))


@pytest.fixture(scope="module")
def filled(standalone: maxq.Standalone, producer: Producer) -> str:
    """Two queues of 30 and 10 messages."""
    with Admin(standalone.namesrv_address) as admin:
        for topic in ("Orders", "Stream"):
            admin.topics.create(standalone.broker_address, TopicConfig(topic, 2, 2))
    send(producer, "Orders", 0, 0, 30)
    send(producer, "Orders", 1, 0, 10)
    return "Orders"


def load(spark: SparkSession, server: maxq.Standalone, topic: str, **options: str) -> DataFrame:
    reader = spark.read.format("rocketmq").option("rocketmq.namesrv", server.namesrv_address)
    return reader.option("subscribe", topic).options(**options).load()


def test_a_topic_is_a_table_with_all_columns(spark: SparkSession, standalone: maxq.Standalone, filled: str) -> None:
    frame = load(spark, standalone, filled)
    assert frame.columns[:4] == ["body", "topic", "tags", "keys"]
    assert frame.count() == 40
    (row,) = frame.filter("queueId = 1 and queueOffset = 7").collect()
    assert (bytes(row.body), row.tags, row["keys"], row.properties["n"]) == (b"7", "TagA", ["k7", "all"], "7")
    assert (row.topic, row.brokerName) == ("Orders", "broker-a")
    assert row.msgId.startswith("7F000001")


def test_filters_reach_the_reader_and_agree_with_spark(
    spark: SparkSession, standalone: maxq.Standalone, filled: str
) -> None:
    wheres = [
        "queueId = 0 and queueOffset >= 5 and queueOffset < 9",
        "brokerName = 'elsewhere'",
        "tags = 'TagB' and topic in ('Orders', 'Other')",
        "keys = array('k3', 'all')",
        "storeTimestamp > timestamp'2020-01-01' and queueOffset in (1, 2)",
        "tags <> 'TagA' and queueId <> 1",
    ]
    everything = load(spark, standalone, filled).cache()
    try:
        for where in wheres:
            mine = load(spark, standalone, filled).filter(where)
            assert sorted(mine.select("queueId", "queueOffset").collect()) == sorted(
                everything.filter(where).select("queueId", "queueOffset").collect()
            ), where
    finally:
        everything.unpersist()


def test_uses_of_one_frame_do_not_see_the_filters_of_each_other(
    spark: SparkSession, standalone: maxq.Standalone, filled: str
) -> None:
    """Spark 4.3 keeps what one use pushed down to a Python reader for all uses of a DataFrame."""
    frame = load(spark, standalone, filled)
    one, other = frame.where("queueId = 0"), frame.where("queueId = 1 and queueOffset < 3")
    assert one.union(other).count() == one.count() + 3
    assert frame.count() == 40


def test_rows_outside_of_the_option_predicate_are_not_read(
    spark: SparkSession, standalone: maxq.Standalone, filled: str
) -> None:
    frame = load(spark, standalone, filled, predicate='[["queueId", "=", 0], ["queueOffset", "<", 5]]')
    assert sorted(map(tuple, frame.select("queueId", "queueOffset").collect())) == [(0, n) for n in range(5)]
    with pytest.raises(Exception, match="option predicate is 'queueId = 0'; it must be a JSON list of conditions"):
        load(spark, standalone, filled, predicate="queueId = 0").count()


def test_a_stream_goes_on_from_its_checkpoint(
    spark: SparkSession, standalone: maxq.Standalone, producer: Producer, filled: str, tmp_path: Path
) -> None:
    def run() -> None:
        reader = spark.readStream.format("rocketmq").option("rocketmq.namesrv", standalone.namesrv_address)
        frame = reader.options(
            subscribe="Stream", startingOffsets="earliest", columns="queueId,queueOffset,body",
            maxOffsetsPerTrigger="7", groupId="spark-stream",
        ).load()  # fmt: skip
        writer = frame.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.option("path", str(tmp_path / "out")).trigger(availableNow=True).start()
        assert query.awaitTermination(600)
        (behind,) = offsets_behind(query.lastProgress)
        assert (behind["maxOffsetsBehindLatest"], set(behind["topics"])) == (0, {"Stream"})

    send(producer, "Stream", 0, 0, 20)
    run()
    send(producer, "Stream", 1, 0, 5)
    run()
    rows = spark.read.parquet(str(tmp_path / "out")).select("queueId", "queueOffset").collect()
    assert sorted(map(tuple, rows)) == [(0, n) for n in range(20)] + [(1, n) for n in range(5)]
    last = max((tmp_path / "checkpoint" / "offsets").glob("[0-9]*"), key=lambda path: int(path.name))
    assert json.loads(last.read_text().splitlines()[-1]) == {"Stream": {"broker-a": {"0": 20, "1": 5}}}
    with Admin(standalone.namesrv_address) as admin:
        stats = admin.groups.consume_stats("spark-stream", "Stream")
    assert stats.offset_table[MessageQueue("Stream", "broker-a", 0)].consumer_offset == 20


def test_columns_as_sparks_kafka_source_has_them(spark: SparkSession, standalone: maxq.Standalone, filled: str) -> None:
    frame = load(spark, standalone, filled, columns="key,value,topic,partition,offset,timestamp", includeHeaders="true")
    (row,) = frame.where("partition = 1 and offset = 7").selectExpr("*", "CAST(key AS STRING) AS text").collect()
    assert frame.count() == 40
    assert (row.text, bytes(row.value), row.topic) == ("k7 all", b"7", "Orders")
    assert {"n": b"7", "TAGS": b"TagA"}.items() <= {one.key: bytes(one.value) for one in row.headers}.items()


def test_a_wrong_option_is_an_error_that_names_it(spark: SparkSession, standalone: maxq.Standalone) -> None:
    with pytest.raises(Exception, match="startingOffsets is 'first'; it must be earliest, latest, or JSON") as raised:
        load(spark, standalone, "Orders", startingOffsets="first").count()
    assert "Traceback" not in str(raised.value)
    with pytest.raises(AnalysisException, match="'nothing' is no column"):
        load(spark, standalone, "Orders", columns="nothing")
