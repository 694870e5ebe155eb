"""Topics whose records are not simply their messages are read as their consumers get them."""

import pytest

from maxq.api import Admin, Message, MessageQueue, Producer
from maxq.pipeline.options.read_options import ReadOptions
from maxq.pipeline.source.batch_source import Conditions, plan_batch
from maxq.pipeline.wire.wire_reader import WireReader
from maxq.protocol.body.topic_config import TopicConfig
from maxq.standalone import Standalone


def rows(server: Standalone, topic: str, **more: str) -> list[dict[str, object]]:
    given = {"rocketmq.namesrv": server.namesrv_address, "subscribe": topic, "rocketmq.brokerWait": "2s"} | more
    options = ReadOptions.parse(given, streaming=False)
    reader = WireReader(options)
    parts = plan_batch(options, Conditions())
    return [row for part in parts for batch in reader.read(part.ranges) for row in batch.to_pylist()]


@pytest.mark.parametrize("parts", ["", "7"])
def test_messages_of_batch_queues_come_one_by_one(
    server: Standalone, admin: Admin, producer: Producer, parts: str
) -> None:
    topic = f"Batches{parts}"
    attributes = {"+queue.type": "BatchCQ"}
    admin.topics.create(server.broker_address, TopicConfig(topic, 1, 1, attributes=attributes))
    queue = MessageQueue(topic, "broker-a", 0)
    for first in range(0, 30, 10):
        batch = [Message(topic, b"%d" % n, {"n": str(n)}) for n in range(first, first + 10)]
        producer.send_batch(batch, queue=queue)
    found = rows(server, topic, minPartitions=parts)
    assert [(row["queueOffset"], row["body"]) for row in found] == [(n, b"%d" % n) for n in range(30)]
    assert all(("n", str(n)) in row["properties"] for n, row in enumerate(found))  # type: ignore[operator]
    assert len(rows(server, topic, minPartitions=parts, columns="queueOffset")) == 30


def test_static_topics_are_read_by_their_global_queues(server: Standalone, admin: Admin, producer: Producer) -> None:
    admin.static_topics.create("Static", 3, ["broker-a"])
    for n in range(30):
        producer.send(Message("Static", b"%d" % n))
    found = rows(server, "Static")
    assert sorted(int(row["body"]) for row in found) == list(range(30))  # type: ignore[call-overload]
    assert {row["brokerName"] for row in found} == {"__syslo__global__"}
    by_queue = {queue: [row["queueOffset"] for row in found if row["queueId"] == queue] for queue in range(3)}
    assert all(offsets == list(range(len(offsets))) for offsets in by_queue.values())
    assert [row["queueOffset"] for row in rows(server, "Static", endingTimestamp="1000")] == []
