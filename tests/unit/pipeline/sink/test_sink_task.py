"""Rows become messages, without Spark, against a MaxQ server."""

import itertools
from typing import Any

import pyarrow as pa
import pytest

from maxq.api import Admin
from maxq.arrow.sink_columns import check_columns
from maxq.errors import PipelineError
from maxq.pipeline.options.read_options import ReadOptions
from maxq.pipeline.options.write_options import WriteOptions
from maxq.pipeline.sink.sink_task import SinkTask, TaskResult
from maxq.pipeline.source.batch_source import Conditions, plan_batch
from maxq.pipeline.wire.wire_reader import WireReader
from maxq.protocol.body.topic_config import TopicConfig
from maxq.standalone import Standalone

_names = itertools.count()
_KINDS = {
    "body": "binary", "value": "binary", "topic": "string", "tags": "string", "keys": "array<string>",
    "properties": "map<string,string>", "queueId": "int", "brokerName": "string", "shardingKey": "string",
    "delayTimeLevel": "int", "deliverTimestamp": "timestamp", "key": "binary", "partition": "int",
    "headers": "array<struct<key:string,value:binary>>",
}  # fmt: skip


@pytest.fixture
def topic(server: Standalone, admin: Admin) -> str:
    name = f"Sink{next(_names)}"
    admin.topics.create(server.broker_address, TopicConfig(name, 4, 4))
    return name


def write(server: Standalone, batches: list[pa.RecordBatch], **options: str) -> TaskResult:
    parsed = WriteOptions.parse({"rocketmq.namesrv": server.namesrv_address, **options})
    names = check_columns(
        [(name, _KINDS[name]) for name in batches[0].schema.names], has_topic=parsed.topic is not None
    )
    return SinkTask(parsed, names).run(batches)


def read(server: Standalone, topic: str, columns: str = "body,tags,keys,properties,queueId,uniqKey") -> list[Any]:
    """The rows of a topic, queue by queue."""
    given = {"rocketmq.namesrv": server.namesrv_address, "subscribe": topic, "columns": columns}
    options = ReadOptions.parse(given, streaming=False)
    rows: list[Any] = []
    for partition in plan_batch(options, Conditions()):
        for batch in WireReader(options).read(partition.ranges):
            rows += batch.to_pylist()
    return rows


def bodies(count: int, size: int = 0) -> pa.Array:
    return pa.array([b"%d" % n + bytes(size) for n in range(count)])


def test_every_row_becomes_one_message_with_a_unique_key_of_its_own(server: Standalone, topic: str) -> None:
    batches = [pa.record_batch({"value": bodies(3000, 200)}) for _ in range(4)]

    result = write(server, batches, topic=topic, batchBytes="64k")

    rows = read(server, topic)
    assert result.rows == 12_000
    assert sorted(row["body"] for row in rows) == sorted(bodies(3000, 200).to_pylist() * 4)
    assert len({row["uniqKey"] for row in rows}) == 12_000
    assert {row["queueId"] for row in rows} == {0, 1, 2, 3}


def test_tags_keys_and_properties_arrive(server: Standalone, topic: str) -> None:
    batch = pa.record_batch(
        {
            "body": bodies(2),
            "topic": [topic, topic],
            "tags": ["T", None],
            "keys": pa.array([["a", "b"], None], pa.list_(pa.field("element", pa.string(), nullable=False))),
            "properties": pa.array([[("p", "ü"), ("UNIQ_KEY", "reserved")], []], pa.map_(pa.string(), pa.string())),
        }
    )

    write(server, [batch])

    first, second = sorted(read(server, topic), key=lambda row: row["body"])
    assert (first["tags"], first["keys"], dict(first["properties"])["p"]) == ("T", ["a", "b"], "ü")
    assert first["uniqKey"] != "reserved"
    assert (second["tags"], second["keys"]) == (None, [])


HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
#: With spark.sql.execution.arrow.useLargeVarTypes.
LARGE_HEADERS = pa.list_(pa.struct([("key", pa.large_string()), ("value", pa.large_binary())]))


@pytest.mark.parametrize("kind", [HEADERS, LARGE_HEADERS], ids=["texts", "large texts"])
def test_columns_of_the_kafka_sink_arrive(server: Standalone, topic: str, kind: pa.DataType) -> None:
    headers = pa.array(
        [[("a", b"1"), ("b", "ü".encode())], None, [], [("a", b"2"), ("none", None), ("KEYS", b"reserved")]], kind
    )
    columns = {"value": bodies(4), "key": pa.array([b"k1", None, b"k 2", b"k1"]), "headers": headers}
    batch = pa.record_batch({**columns, "topic": pa.array([topic] * 4)})

    write(server, [batch, batch.slice(1, 2), batch.slice(3)])

    rows = sorted(read(server, topic, "key,value,headers,queueId"), key=lambda row: row["value"])
    numbers = [0, 1, 1, 2, 2, 3, 3]
    assert [row["value"] for row in rows] == [b"%d" % n for n in numbers]
    assert [row["key"] for row in rows] == [[b"k1", None, b"k 2", b"k1"][n] for n in numbers]
    own = [{one["key"]: one["value"] for one in row["headers"] if one["key"] in "ab"} for row in rows]
    assert own == [[{"a": b"1", "b": "ü".encode()}, {}, {}, {"a": b"2"}][n] for n in numbers]
    assert len({row["queueId"] for row in rows if row["key"] == b"k1"}) == 1


def test_a_partition_is_a_queue(server: Standalone, topic: str) -> None:
    partitions = pa.array([2, 0, 2], pa.int32())
    write(server, [pa.record_batch({"value": bodies(3), "key": ["k"] * 3, "partition": partitions})], topic=topic)
    assert sorted((row["queueId"], row["value"]) for row in read(server, topic, "value,queueId")) == [
        (0, b"1"), (2, b"0"), (2, b"2"),
    ]  # fmt: skip


def test_rows_of_one_queue_and_of_one_sharding_key_keep_their_order(server: Standalone, topic: str) -> None:
    numbers = pa.array([n % 3 for n in range(3000)], pa.int32())
    write(server, [pa.record_batch({"body": bodies(3000), "queueId": numbers})], topic=topic, batchBytes="4k")

    rows = read(server, topic)
    for queue_id in range(3):
        assert [int(row["body"]) for row in rows if row["queueId"] == queue_id] == list(range(queue_id, 3000, 3))


def test_a_sharding_key_chooses_the_queue_that_the_java_client_chooses(server: Standalone, topic: str) -> None:
    keys = ["polygenelubricants", "a", "b", "10", None]
    write(server, [pa.record_batch({"body": bodies(5), "shardingKey": keys})], topic=topic)

    found = {int(row["body"]): row["queueId"] for row in read(server, topic)}
    assert [found[n] for n in range(4)] == [2**31 % 4, 97 % 4, 98 % 4, (49 * 31 + 48) % 4]


def test_a_message_larger_than_a_request_goes_alone(server: Standalone, topic: str) -> None:
    batch = pa.record_batch({"body": pa.array([b"a", b"b" * 2_000_000, b"c"])})

    write(server, [batch], topic=topic, batchBytes="64k")

    assert sorted(len(row["body"]) for row in read(server, topic)) == [1, 1, 2_000_000]


def test_delayed_rows_are_stored_for_later(server: Standalone, topic: str) -> None:
    levels = pa.array([0, 18, None], pa.int32())
    write(server, [pa.record_batch({"body": bodies(3), "delayTimeLevel": levels})], topic=topic)

    assert sorted(row["body"] for row in read(server, topic)) == [b"0", b"2"]
    waiting = [row for row in read(server, "SCHEDULE_TOPIC_XXXX") if dict(row["properties"])["REAL_TOPIC"] == topic]
    assert [row["body"] for row in waiting] == [b"1"]


def test_a_topic_that_is_not_there_is_made(server: Standalone) -> None:
    name = f"Made{next(_names)}"
    write(server, [pa.record_batch({"body": bodies(10)})], topic=name)
    assert len(read(server, name)) == 10


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"body": pa.array([b"a", None])}, "column body is null"),
        ({"body": bodies(1), "tags": ["a\x01b"]}, "column tags contains"),
        ({"body": bodies(1), "key": pa.array([b"\xff"])}, "column key has bytes that are no UTF-8"),
        ({"body": bodies(1), "headers": pa.array([[("a", b"\xff")]], HEADERS)}, "column headers has bytes"),
        ({"body": bodies(1), "headers": pa.array([[(None, b"a")]], HEADERS)}, "a header in column headers is null"),
        ({"body": bodies(1), "queueId": pa.array([17], pa.int32())}, "queue 17 of topic"),
        ({"body": bodies(2), "queueId": pa.array([None, -5], pa.int32())}, "queueId is -5 in a row"),
        ({"body": bodies(1), "delayTimeLevel": pa.array([-1], pa.int32())}, "delayTimeLevel is -1"),
        ({"body": bodies(1), "tags": ["t" * 40_000]}, "at most 32767"),
        ({"body": pa.array([bytes(5 << 20)])}, "MESSAGE_ILLEGAL"),
    ],
)
def test_a_row_that_cannot_be_a_message_ends_the_task(
    server: Standalone, topic: str, columns: dict[str, Any], said: str
) -> None:
    with pytest.raises(PipelineError, match=said):
        write(server, [pa.record_batch(columns)], topic=topic)


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ([("boddy", "binary")], "messages have no column boddy"),
        ([("body", "int")], "body is int; it must be binary or string"),
        ([("tags", "string")], "no column body"),
        ([("body", "binary"), ("Value", "binary")], "same thing twice"),
        ([("body", "binary"), ("queueId", "int"), ("shardingKey", "string")], "same thing twice"),
        ([("value", "binary"), ("key", "binary"), ("keys", "string")], "same thing twice"),
        ([("value", "binary"), ("timestamp", "timestamp")], "timestamp is not written: a broker stores the time"),
        ([("value", "binary"), ("headers", "map<string,string>")], "headers is map<string,string>; it must be array"),
    ],
)
def test_wrong_columns_are_named(columns: list[tuple[str, str]], said: str) -> None:
    with pytest.raises(PipelineError, match=said):
        check_columns(columns, has_topic=True)


def test_without_a_topic_nothing_is_written() -> None:
    with pytest.raises(PipelineError, match="neither a column topic nor the option"):
        check_columns([("body", "binary")], has_topic=False)
