"""Topics whose records are not simply their messages are read as their consumers get them."""

import pytest

from maxq.api import Admin, Message, MessageQueue, Producer
from maxq.pipeline.options.read_options import ReadOptions
from maxq.pipeline.source.batch_source import Conditions, plan_batch
from maxq.pipeline.wire.wire_client import _route_of
from maxq.pipeline.wire.wire_reader import WireReader
from maxq.protocol.body.route import BrokerData, QueueData, TopicRouteData
from maxq.protocol.body.topic_config import TopicConfig, TopicQueueMappingInfo
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


def test_a_topic_that_is_static_at_some_brokers_only_is_read_at_all() -> None:
    """A broker that was away brings back the static topic that was deleted and made again."""
    mapping = TopicQueueMappingInfo("T", "__global__", 2, "b", 1, False, {0: 3})
    data = TopicRouteData(
        None,
        [QueueData("a", 2, 2, 6), QueueData("b", 4, 4, 6)],
        [BrokerData("c", name, {0: f"{name}:1"}) for name in ("a", "b")],
        topic_queue_mapping_by_broker={"b": mapping},
    )
    queues = {("a", 0): "a", ("a", 1): "a", ("__syslo__global__", 0): "b"}
    found = _route_of("T", data).queues
    assert {(queue.broker_name, queue.queue_id): broker for queue, broker in found.items()} == queues
