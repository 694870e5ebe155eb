"""Rows equal what a Java consumer receives, message by message: one hash a queue.

MAXQ_INTEROP_ROWS says how many messages; 2 000 000 were compared once."""

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from maxq.api import Admin, Message, MessageQueue, Producer
from maxq.pipeline.options.read_options import ReadOptions
from maxq.pipeline.source.batch_source import Conditions, plan_batch
from maxq.pipeline.source.scan import read_scan
from maxq.protocol.body.topic_config import TopicConfig
from tests.interop.conftest import Deployment
from tests.interop.processes.java_driver import JavaDriver

pytestmark = pytest.mark.interop
TOPIC = "PipelineDigests"
QUEUES = 4
ROWS = int(os.environ.get("MAXQ_INTEROP_ROWS", "20000"))
COLUMNS = "queueId,queueOffset,bornTimestamp,storeTimestamp,uniqKey,tags,keys,properties,body"
PATIENT = {"waitTimeMillsInSendQueue": "60000", "osPageCacheBusyTimeOutMills": "60000"}  # a long run has neighbours
Digests = dict[int, tuple[int, str]]


def mixed(n: int) -> Message:
    """Some bytes to some KiB, some of them compressed, with and without tag, keys and properties."""
    size = 5_000 if n % 500 == 0 else n * 7 % 300
    message = Message(TOPIC, f"{n}|".encode() + bytes((n + i) % 251 for i in range(size % 61)) * (size // 61 + 1))
    if n % 3:
        message.tags = f"Tag{n % 5}"
    if n % 4:
        message.keys = [f"key-{n}", "ключ"] if n % 8 == 1 else [f"key-{n}"]
    if n % 2:
        message.properties["n"] = str(n)
    return message


@pytest.fixture(scope="module")
def ours(jars: Path, scratch: Path) -> Iterator[Deployment]:
    running = Deployment("ours", scratch, jars)
    try:
        running.start(PATIENT)
        with Admin(running.namesrv) as admin, Producer("g", running.namesrv, send_msg_timeout=60_000) as producer:
            admin.topics.create(running.broker.address, TopicConfig(TOPIC, QUEUES, QUEUES))
            for first in range(0, ROWS, 1000):
                batch = [mixed(n) for n in range(first, min(first + 1000, ROWS))]
                if first // 1000 % 2:
                    producer.send_many(batch)
                else:
                    queue = MessageQueue(TOPIC, "broker-a", first // 1000 % QUEUES)
                    for at in range(0, len(batch), 50):
                        producer.send_batch(batch[at : at + 50], queue=queue)
        yield running
    finally:
        running.stop()


@pytest.fixture(scope="module")
def received(ours: Deployment, driver: JavaDriver) -> Digests:
    found = driver.call("digests", namesrv=ours.namesrv, topic=TOPIC, group="digests")
    return {int(queue): (count, text) for queue, (count, text) in found.items()}


def milliseconds(time: object) -> int:
    return round(time.timestamp() * 1000)  # type: ignore[attr-defined]


def line(row: dict[str, object]) -> bytes:
    """As Digests.java makes it."""
    keys, properties, body = row["keys"], dict(row["properties"]), row["body"]  # type: ignore[call-overload]
    parts = (
        row["queueOffset"], milliseconds(row["bornTimestamp"]), milliseconds(row["storeTimestamp"]), row["uniqKey"],
        row["tags"] or "null", " ".join(keys) if keys else "null",  # type: ignore[arg-type]
        properties.get("n", "null"), len(body),  # type: ignore[arg-type]
    )  # fmt: skip
    return ("|".join(map(str, parts)) + "\n").encode() + body  # type: ignore[operator]


@pytest.mark.parametrize("read_from", ["broker", "files"])
def test_every_row_is_what_a_java_consumer_receives(ours: Deployment, received: Digests, read_from: str) -> None:
    given = {"rocketmq.namesrv": ours.namesrv, "subscribe": TOPIC, "columns": COLUMNS, "readFrom": read_from}
    if read_from == "files":
        given["storePath"] = str(ours.broker.store)
    options = ReadOptions.parse(given, streaming=False)
    digests = {queue: hashlib.sha256() for queue in range(QUEUES)}
    following = dict.fromkeys(range(QUEUES), 0)
    for part in plan_batch(options, Conditions()):
        for batch in read_scan(options, part):
            for row in batch.to_pylist():
                queue = row["queueId"]
                assert row["queueOffset"] == following[queue], "each once and in order"
                following[queue] += 1
                digests[queue].update(line(row))
    assert sum(following.values()) == ROWS
    assert {queue: (following[queue], one.hexdigest()) for queue, one in digests.items()} == received
