"""The sink against brokers of Java 5.5.0: every row is there for a Java consumer, whatever way it went.

Two Java brokers, plainly and over TLS, while one of them dies; the source reads the same back. Without Spark, but for
the last test, which has Spark write to them and read from them.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from maxq.api import Admin
from maxq.errors import PipelineError
from maxq.pipeline.options.read_options import ReadOptions
from maxq.pipeline.options.write_options import WriteOptions
from maxq.pipeline.sink.sink_commit import BatchName, WriteRun, commit
from maxq.pipeline.sink.sink_task import SinkTask, TaskResult
from maxq.pipeline.source.batch_source import Conditions, plan_batch
from maxq.pipeline.wire.wire_reader import WireReader
from maxq.protocol.body.topic_config import TopicConfig
from tests.interop.processes.java_driver import JavaDriver
from tests.interop.processes.servers import JavaBroker, MaxqNamesrv, free_port_base, stopping

pytestmark = pytest.mark.interop
NAMES = ("broker-a", "broker-b")
SETTINGS = {"enablePropertyFilter": "true", "timerWheelEnable": "true", "mappedFileSizeTimerLog": "104000"}
COUNT = 600
TLS = {"rocketmq.useTLS": "true", "rocketmq.tls.client.authServer": "false"}


@dataclass
class Java:
    """A name server of ours and two Java brokers."""

    namesrv: str
    brokers: dict[str, JavaBroker]
    jars: Path

    def topic(self, name: str) -> str:
        """Of four queues on each broker."""
        with Admin(self.namesrv) as admin:
            for broker in self.brokers.values():
                admin.topics.create(broker.address, TopicConfig(name, 4, 4))
        return name

    def start(self, name: str) -> None:
        self.brokers[name].start(self.jars, self.namesrv, SETTINGS | {"brokerName": name})


@pytest.fixture(scope="module")
def java(jars: Path, scratch: Path) -> Iterator[Java]:
    namesrv = MaxqNamesrv(scratch / "namesrv", free_port_base()).start()
    brokers = {name: JavaBroker(scratch / name, free_port_base()) for name in NAMES}
    running = Java(namesrv.address, brokers, jars)
    with stopping(*brokers.values(), namesrv):
        for name in NAMES:
            running.start(name)
        yield running


def columns(count: int = COUNT) -> pa.RecordBatch:
    """Some rows without tag or key, of lengths from a few bytes to some KiB."""
    numbers = range(count)
    return pa.record_batch(
        {
            "body": pa.array([b"%d|" % n + b"x" * (6_000 if n % 50 == 0 else n % 400) for n in numbers]),
            "tags": pa.array([f"Tag{n % 3}" if n % 4 else None for n in numbers]),
            "keys": pa.array([[f"k{n}", "all"] if n % 5 else None for n in numbers], pa.list_(pa.string())),
            "properties": pa.array([[("n", str(n))] for n in numbers], pa.map_(pa.string(), pa.string())),
        }
    )


def write(java: Java, topic: str, batch: pa.RecordBatch, **given: str) -> TaskResult:
    base = {"rocketmq.namesrv": java.namesrv, "topic": topic, "batchBytes": "8k", "rocketmq.brokerWait": "60s"}
    options = WriteOptions.parse(base | given)
    return SinkTask(options, {name: name for name in batch.schema.names}).run([batch])


def read(java: Java, topic: str, **given: str) -> list[dict[str, Any]]:
    options = ReadOptions.parse({"rocketmq.namesrv": java.namesrv, "subscribe": topic} | given, streaming=False)
    reader = WireReader(options)
    parts = plan_batch(options, Conditions())
    return [row for part in parts for batch in reader.read(part.ranges) for row in batch.to_pylist()]


def as_java_says(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """Of messages that a Java consumer received."""
    found = [
        (row["body"].encode(), row.get("tags"), row.get("keys"), row["properties"]["n"], row["queueId"], row["msgId"])
        for row in rows
    ]
    return sorted(found, key=itemgetter(0))


def as_source_says(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    found = [
        (row["body"], row["tags"], " ".join(row["keys"]) or None, dict(row["properties"])["n"], row["queueId"],
         row["uniqKey"]) for row in rows
    ]  # fmt: skip
    return sorted(found, key=itemgetter(0))


@pytest.mark.parametrize("more", [{}, TLS], ids=["plain", "tls"])
def test_every_row_is_what_a_java_consumer_receives(java: Java, driver: JavaDriver, more: dict[str, str]) -> None:
    topic, batch = java.topic(f"Sink{len(more)}"), columns()

    assert write(java, topic, batch, **more).rows == COUNT

    received = driver.consume(java.namesrv, topic, COUNT)
    assert sorted(row["body"].encode() for row in received) == sorted(batch["body"].to_pylist())
    by_number = {int(row["properties"]["n"]): row for row in received}
    assert (by_number[1]["tags"], by_number[1]["keys"]) == ("Tag1", "k1 all")
    assert (by_number[0].get("tags"), by_number[0].get("keys")) == (None, None)
    rows = read(java, topic, **more)
    assert as_source_says(rows) == as_java_says(received)
    assert {(row["brokerName"], row["queueId"]) for row in rows} == {(name, n) for name in NAMES for n in range(4)}


def test_queues_and_keys_are_those_that_were_asked_for(java: Java, driver: JavaDriver) -> None:
    topic = java.topic("SinkQueues")
    numbers = range(80)
    placed = pa.record_batch(
        {
            "body": pa.array([b"%d" % n for n in numbers]),
            "queueId": pa.array([n % 4 for n in numbers], pa.int32()),
            "brokerName": pa.array([NAMES[n // 40] for n in numbers]),
        }
    )
    write(java, topic, placed)
    rows = read(java, topic)
    assert sorted((int(row["body"]), row["queueId"], row["brokerName"]) for row in rows) == [
        (n, n % 4, NAMES[n // 40]) for n in numbers
    ]
    keyed = java.topic("SinkKeys")
    write(java, keyed, pa.record_batch({"body": placed["body"], "shardingKey": [f"k{n % 7}" for n in numbers]}))
    sharded = read(java, keyed)
    for key in range(7):
        own = [row for row in sharded if int(row["body"]) % 7 == key]
        assert len({(row["brokerName"], row["queueId"]) for row in own}) == 1
        assert [int(row["body"]) for row in own] == sorted(int(row["body"]) for row in own), "in the order of the rows"


def test_delayed_rows_come_late(java: Java, driver: JavaDriver) -> None:
    topic = java.topic("SinkDelay")
    batch = pa.record_batch(
        {"body": pa.array([b"now", b"later"]), "delayTimeLevel": pa.array([0, 2], pa.int32())}  # 2: five seconds
    )
    write(java, topic, batch)
    received = {row["body"]: row for row in driver.consume(java.namesrv, topic, 2)}
    assert received.keys() == {"now", "later"}
    assert received["later"]["storeTimestamp"] - received["now"]["storeTimestamp"] >= 4_000


def test_brokers_select_by_sql92_and_by_tag(java: Java) -> None:
    topic = java.topic("SinkSql")
    write(java, topic, columns())
    expression = "n BETWEEN 100 AND 199 AND TAGS IN ('Tag1', 'Tag2')"
    rows = read(java, topic, subExpression=expression, subExpressionType="SQL92", columns="properties,tags")
    wanted = [n for n in range(100, 200) if n % 4 and n % 3]
    assert sorted(int(dict(row["properties"])["n"]) for row in rows) == wanted
    tagged = read(java, topic, subExpression="Tag0 || Tag2", columns="tags")
    assert {row["tags"] for row in tagged} == {"Tag0", "Tag2"}
    assert len(tagged) == len([n for n in range(COUNT) if n % 4 and n % 3 != 1])


def test_exactly_once_is_refused_with_the_reason(java: Java) -> None:
    topic = java.topic("SinkOnce")
    given = {"rocketmq.namesrv": java.namesrv, "topic": topic, "delivery": "exactly-once"}
    with pytest.raises(PipelineError, match=r"request type 30070 not supported|REQUEST_CODE_NOT_SUPPORTED"):
        write(java, topic, columns(10), delivery="exactly-once")
    with pytest.raises(PipelineError, match="exactly-once needs MaxQ brokers; none of broker-a, broker-b is one"):
        commit(WriteOptions.parse(given), BatchName("app", 0), [TaskResult(0)], WriteRun(0))
    assert read(java, topic) == []


def test_a_broker_that_dies_costs_no_row(java: Java) -> None:
    """At least once: what was under way goes to the other broker, or to this one when it is back."""
    topic = java.topic("SinkKill")
    killed: list[str] = []

    def batches() -> Iterator[pa.RecordBatch]:
        for first in range(20):
            if first == 8:
                java.brokers["broker-b"].kill()
                killed.append("broker-b")
            numbers = range(first * 100, first * 100 + 100)
            yield pa.record_batch({"body": pa.array([b"%d|" % n + bytes(200) for n in numbers])})

    options = WriteOptions.parse(
        {"rocketmq.namesrv": java.namesrv, "topic": topic, "batchBytes": "4k", "rocketmq.brokerWait": "60s"}
    )
    try:
        assert SinkTask(options, {"body": "body"}).run(batches()).rows == 2_000
    finally:
        if killed:
            java.brokers["broker-b"].stop()
            java.start("broker-b")
    found = [int(row["body"].partition(b"|")[0]) for row in read(java, topic, columns="body")]
    assert set(found) == set(range(2_000))


def test_spark_writes_and_reads_and_streams(java: Java, driver: JavaDriver, scratch: Path) -> None:
    """The same through Spark, over TLS: a batch out, a batch in, and a stream from one topic to another."""
    from maxq.pipeline import register
    from maxq.pipeline.session import local_session

    topic, copy = java.topic("SparkOut"), java.topic("SparkCopy")
    where = {"rocketmq.namesrv": java.namesrv} | TLS
    with local_session("interop", master="local[2]", java_options="-XX:TieredStopAtLevel=1") as spark:
        register(spark)
        frame = spark.range(1_000).selectExpr(
            "CAST(id AS STRING) AS value", "concat('Tag', id % 3) AS tags", "array(concat('k', id)) AS keys"
        )
        frame.write.format("rocketmq").options(**where, topic=topic).mode("append").save()
        source = spark.read.format("rocketmq").options(**where, subscribe=topic).load()
        assert source.where("tags = 'Tag1'").count() == 333
        assert source.selectExpr("sum(CAST(CAST(body AS STRING) AS BIGINT))").first()[0] == 499_500
        stream = spark.readStream.format("rocketmq").options(
            **where, subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="300", groupId="spark-java"
        )
        writer = stream.load().selectExpr("body", "tags", "keys").writeStream.format("rocketmq")
        query = writer.options(**where, topic=copy, checkpointLocation=str(scratch / "checkpoint"))
        running = query.trigger(availableNow=True).start()
        assert running.awaitTermination(120)
        assert running.exception() is None
        assert len(running.recentProgress) >= 4
    received = driver.consume(java.namesrv, copy, 1_000)
    assert sorted(int(row["body"]) for row in received) == list(range(1_000))
    assert "Consume Diff Total: 0" in driver.mqadmin("consumerProgress", "-g", "spark-java", "-n", java.namesrv)
