"""`readFrom=files` gives the rows that come over the wire, from a broker that is writing."""

import json

import pytest
from pyspark.sql import DataFrame, SparkSession

import maxq
from maxq.api import Message, Producer


def send(server: maxq.Standalone, topic: str, first: int, last: int) -> None:
    with Producer("g", server.namesrv_address) as producer:
        for number in range(first, last):
            properties = {"TAGS": "even" if number % 2 == 0 else "odd", "KEYS": f"k{number}"}
            producer.send(Message(topic, b"body %d" % number, properties))
            producer.send(Message(f"Beside{topic}", b"x"))


def read(spark: SparkSession, server: maxq.Standalone, topic: str, **options: str) -> DataFrame:
    reader = spark.read.format("rocketmq").option("rocketmq.namesrv", server.namesrv_address)
    return reader.option("subscribe", topic).options(**options).load()


@pytest.mark.parametrize(
    "more",
    [{"subExpression": "odd"}, *[pytest.param(one, marks=pytest.mark.slow) for one in ({}, {"minPartitions": "3"})]],
)
def test_rows_are_the_same_either_way(spark: SparkSession, standalone: maxq.Standalone, more: dict[str, str]) -> None:
    topic = f"Files{len(more)}{'x' if 'minPartitions' in more else ''}"
    send(standalone, topic, 0, 60)
    files = read(spark, standalone, topic, readFrom="files", storePath=str(standalone.store), **more)
    wire = read(spark, standalone, topic, readFrom="broker", **more)
    found = sorted(files.drop("properties").collect())
    assert found == sorted(wire.drop("properties").collect())
    assert len(found) == (30 if "subExpression" in more else 60)


def test_offsets_choose_rows_of_files(spark: SparkSession, standalone: maxq.Standalone) -> None:
    send(standalone, "Chosen", 0, 40)
    path = json.dumps({"broker-a": str(standalone.store)})
    starts = json.dumps({"Chosen": {"broker-a": {"0": 2, "1": 3, "2": -2, "3": -2}}})
    options = {"startingOffsets": starts, "readFrom": "files", "storePath": path}
    found = read(spark, standalone, "Chosen", **options).groupBy("queueId").min("queueOffset").collect()
    assert {row.queueId: row["min(queueOffset)"] for row in found} == {0: 2, 1: 3, 2: 0, 3: 0}
