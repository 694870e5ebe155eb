"""`format("rocketmq")` without Spark against Java's broker 5.5.0: the rows are what a Java consumer receives."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from maxq.api import Admin, Message, MessageQueue, Producer
from maxq.pipeline.options.read_options import ReadOptions
from maxq.pipeline.source.batch_source import Conditions, plan_batch
from maxq.pipeline.source.offsets import OffsetsJson
from maxq.pipeline.source.stream_source import TopicStream
from maxq.pipeline.wire.wire_reader import WireReader
from maxq.protocol.body.topic_config import TopicConfig
from tests.interop.conftest import Deployment
from tests.interop.processes.java_driver import JavaDriver

pytestmark = pytest.mark.interop
TOPIC = "PipelineRead"
COUNT = 900


@pytest.fixture(scope="module")
def java(jars: Path, scratch: Path) -> Iterator[Deployment]:
    running = Deployment("all-java", scratch, jars)
    try:
        running.start()
        yield running
    finally:
        running.stop()


@pytest.fixture(scope="module")
def sent(java: Deployment) -> str:
    """Messages of four queues, from a few bytes to some KiB, so that some are compressed."""
    with Admin(java.namesrv) as admin, Producer("g", java.namesrv) as producer:
        admin.topics.create(java.broker.address, TopicConfig(TOPIC, 4, 4))
        for n in range(COUNT):
            size = 6_000 if n % 50 == 0 else n % 400
            message = Message(TOPIC, f"{n}|".encode() + b"x" * size, {"n": str(n)})
            message.tags, message.keys = ("TagA" if n % 2 else "TagB"), [f"key-{n}"]
            producer.send(message, queue=MessageQueue(TOPIC, "broker-a", n % 4))
    return TOPIC


def options(java: Deployment, *, streaming: bool = False, **more: str) -> ReadOptions:
    given = {"rocketmq.namesrv": java.namesrv, "subscribe": TOPIC} | more
    return ReadOptions.parse(given, streaming=streaming)


def rows(wanted: ReadOptions) -> list[dict[str, object]]:
    reader = WireReader(wanted)
    parts = plan_batch(wanted, Conditions())
    return [row for part in parts for batch in reader.read(part.ranges) for row in batch.to_pylist()]


def test_rows_are_what_a_java_consumer_receives(java: Deployment, sent: str, driver: JavaDriver) -> None:
    received = driver.consume(java.namesrv, sent, COUNT)
    ours = rows(options(java))
    assert len(ours) == COUNT
    assert sorted((row["queueId"], row["queueOffset"]) for row in ours) == [
        (queue, offset) for queue in range(4) for offset in range(COUNT // 4)
    ]
    assert sorted(row["body"].decode() for row in ours) == sorted(row["body"] for row in received)  # type: ignore[attr-defined]
    assert sorted(row["uniqKey"] for row in ours) == sorted(row["msgId"] for row in received)


def test_tags_and_times_and_metadata(java: Deployment, sent: str) -> None:
    tagged = rows(options(java, subExpression="TagB", columns="tags,queueId"))
    assert len(tagged) == COUNT // 2
    everything = rows(options(java, columns="queueId,queueOffset,storeTimestamp"))
    middle = sorted(row["storeTimestamp"] for row in everything)[COUNT // 2]  # type: ignore[type-var]
    middle_ms = int(middle.timestamp() * 1000)  # type: ignore[attr-defined]
    later = rows(options(java, columns="queueId,queueOffset,storeTimestamp", startingTimestamp=str(middle_ms)))
    earlier = rows(options(java, columns="queueId,queueOffset,storeTimestamp", endingTimestamp=str(middle_ms)))
    assert all(row["storeTimestamp"] >= middle for row in later)  # type: ignore[operator]
    key = ("queueId", "queueOffset")
    assert sorted(tuple(row[name] for name in key) for row in earlier + later) == sorted(
        tuple(row[name] for name in key) for row in everything
    )


@pytest.mark.parametrize("limit", [{"maxOffsetsPerTrigger": "250"}, {"maxBytesPerTrigger": "100k"}])
def test_a_stream_reads_all_and_mqadmin_sees_its_progress(
    java: Deployment, sent: str, driver: JavaDriver, limit: dict[str, str]
) -> None:
    group = f"pipeline-{next(iter(limit))}"
    wanted = options(java, streaming=True, startingOffsets="earliest", groupId=group, columns="queueId", **limit)
    stream, reader = TopicStream(wanted), WireReader(wanted)
    offset: OffsetsJson = stream.initial_offset()
    counts = []
    while (end := stream.latest_offset(offset, limited=True)) != offset:
        parts = stream.partitions(offset, end)
        counts.append(sum(batch.num_rows for part in parts for batch in reader.read(part.ranges)))
        stream.commit(end)
        offset = end
    stream.stop()
    assert sum(counts) == COUNT
    assert len(counts) >= 3
    assert "Consume Diff Total: 0" in driver.mqadmin("consumerProgress", "-g", group, "-n", java.namesrv)
