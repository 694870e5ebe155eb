"""One store of everything at once goes to the other broker and comes back: Java's first or ours, stopped or killed.

In it: single messages, batches, batch queues, bodies compressed in every way, light queues, delayed messages that have
come and that are waiting, transactions that ended and that are open, messages that were born and stored at IPv6
addresses, keys; several files of log, queue and index.
"""

import asyncio
import hashlib
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from maxq.api import (
    LocalTransactionState,
    Message,
    MessageExt,
    async_admin,
    async_producer,
    async_transaction_producer,
)
from maxq.client.admin.admin import Admin as AsyncAdmin
from maxq.protocol.body.topic_config import TopicConfig
from maxq.protocol.json import json_dialect
from maxq.protocol.message.compression import CompressionType
from tests.integration.cli.harness import maxq
from tests.interop.processes.java_driver import JavaDriver
from tests.interop.processes.servers import Broker, JavaBroker, MaxqBroker, MaxqNamesrv, free_port_base, wait_until

pytestmark = pytest.mark.interop

MIXED = {
    "enableLmq": "true",
    "enableMultiDispatch": "true",
    "messageDelayLevel": "1s 3h",
    "transactionTimeOut": "3600000",
    "transactionCheckInterval": "3600000",
    "transactionOpBatchInterval": "300",
}
PLAIN, BATCH, BATCH_QUEUE, PACKED, LIGHT, DELAYED, TRANSACTED = (
    "MixPlain", "MixBatch", "MixBatchQueue", "MixPacked", "MixLight", "MixDelayed", "MixTransacted",
)  # fmt: skip
TOPICS = (PLAIN, BATCH, BATCH_QUEUE, PACKED, LIGHT, DELAYED, TRANSACTED)
LIGHT_QUEUES = ("%LMQ%one", "%LMQ%two")
BULK = 5_000  # of 0.2 to 2 KiB: two files of log
START_SECONDS = 60
Bodies = dict[str, Counter[str]]  # topic → MD5 of a body → how often


@dataclass
class Sent:
    """What was acknowledged and is to be seen: bodies of each topic, what each light queue gets."""

    bodies: dict[str, list[bytes]] = field(default_factory=lambda: {topic: [] for topic in TOPICS})
    light: dict[str, list[bytes]] = field(default_factory=lambda: {queue: [] for queue in LIGHT_QUEUES})

    def digests(self) -> Bodies:
        return {topic: Counter(map(md5, bodies)) for topic, bodies in self.bodies.items()}


class AsBodySays:
    """c commits, r rolls back, anything else leaves the transaction open."""

    def execute_local_transaction(self, message: Message, arg: Any) -> LocalTransactionState | None:
        first = message.body[:1]
        if first == b"c":
            return LocalTransactionState.COMMIT_MESSAGE
        return LocalTransactionState.ROLLBACK_MESSAGE if first == b"r" else None

    def check_local_transaction(self, message: MessageExt) -> None:
        raise AssertionError("nobody asks within the hour")


def md5(body: bytes) -> str:
    return hashlib.md5(body).hexdigest()


def made(topic: str, body: bytes) -> Message:
    """With two keys, one of them its own, and a tag or none."""
    message = Message(topic, body)
    message.keys = [f"key-{md5(body)}", "ключ"]
    if len(body) % 3:
        message.tags = f"Tag{len(body) % 3}"
    return message


async def fill(namesrv: str, text: str, sent: Sent, bulk: int) -> None:
    """Some of every kind; returns when what is delayed for a second has come."""
    bodies = sent.bodies

    def more(topic: str, count: int, filler: bytes = b"x") -> list[Message]:
        """Of 0 to 1999 fillers each."""
        first = len(bodies[topic])
        some = [f"{text}|{topic}|{n}|".encode() + filler * (n * 37 % 2000) for n in range(first, first + count)]
        bodies[topic] += some
        return [made(topic, body) for body in some]

    async with async_producer(f"PG_{text}", namesrv, send_msg_timeout=30_000) as producer:
        await producer.send_many(more(PLAIN, bulk))
        for topic in (BATCH, BATCH_QUEUE):
            for _ in range(3):
                await producer.send_batch(more(topic, 25))
        for queues in (LIGHT_QUEUES[:1], LIGHT_QUEUES):
            for message in more(LIGHT, 5):
                message.properties["INNER_MULTI_DISPATCH"] = ",".join(queues)
                await producer.send(message)
                for queue in queues:
                    sent.light[queue].append(message.body)
        for message in more(DELAYED, 10):
            message.properties["DELAY"] = "1"
            await producer.send(message)
        waits = made(DELAYED, b"waits")
        waits.properties["DELAY"] = "2"
        await producer.send(waits)
    for kind in CompressionType:
        async with async_producer(
            f"PG_{text}_{kind.name}", namesrv, compress_type=kind, send_msg_timeout=30_000
        ) as producer:
            await producer.send_many(more(PACKED, 20, kind.name.encode()))
    async with async_transaction_producer(f"PGT_{text}", namesrv, AsBodySays()) as producer:
        for n in range(12):
            body = b"%c-%d of " % (b"cro"[n % 3], n) + text.encode()
            await producer.send_message_in_transaction(made(TRANSACTED, body))
            if body.startswith(b"c"):
                bodies[TRANSACTED].append(body)
    async with async_admin(namesrv) as admin, asyncio.timeout(START_SECONDS):
        while await stored(admin, DELAYED) < len(bodies[DELAYED]):  # noqa: ASYNC110 - the broker tells nobody
            await asyncio.sleep(0.05)


async def stored(admin: AsyncAdmin, topic: str) -> int:
    """How many messages a topic has."""
    stats = await admin.topics.stats(topic)
    return sum(offsets.max_offset for offsets in stats.offset_table.values())


async def create_topics(namesrv: str, address: str) -> None:
    async with async_admin(namesrv) as admin:
        for topic in TOPICS:
            attributes = {"+queue.type": "BatchCQ"} if topic == BATCH_QUEUE else {}
            queues = 4 if topic == PLAIN else 1
            await admin.topics.create(address, TopicConfig(topic, queues, queues, attributes=attributes))


class Place:
    """One store, its name server, and the broker that has it now."""

    def __init__(self, folder: Path, driver: JavaDriver, jars: Path) -> None:
        self._folder = folder
        self._driver = driver
        self._jars = jars
        self._names = MaxqNamesrv(folder / "namesrv", free_port_base()).start()
        self._port = free_port_base()
        self.namesrv = self._names.address
        self.broker: Broker | None = None
        self._asked = 0

    @property
    def store(self) -> Path:
        return self._folder / "broker" / "store"

    def start(self, kind: str, host: str = "127.0.0.1") -> Broker:
        folder = self._folder / "broker"
        if kind == "java":
            broker: Broker = JavaBroker(folder, self._port, host)
            self.broker = broker
            broker.start(self._jars, self.namesrv, MIXED)  # type: ignore[attr-defined]
        else:
            self.broker = broker = MaxqBroker(folder, self._port, host)
            broker.start(self.namesrv, MIXED)
        return broker

    def end(self, how: str) -> None:
        broker, self.broker = self.broker, None
        assert broker is not None
        if how == "stopped":
            broker.stop()
        else:
            broker.kill()

    def close(self) -> None:
        if self.broker is not None:
            self.broker.kill()
        self._names.stop()

    # -- looked at with Java's clients --

    def group(self) -> str:
        self._asked += 1
        return f"CG_mixed_{self._asked}"

    def digests(self) -> dict[str, Any]:
        """Topic → queue id → number of messages, hash over ids, places, times, properties and bodies."""
        return {
            topic: self._driver.call("digests", namesrv=self.namesrv, topic=topic, group=self.group())
            for topic in TOPICS
        }

    def received(self, expected: Bodies) -> Bodies:
        """What Java's push consumer gets of each topic."""
        found = {}
        for topic, bodies in expected.items():
            rows = self._driver.consume(self.namesrv, topic, bodies.total(), group=self.group())
            found[topic] = Counter(md5(row["body"].encode()) for row in rows)
        return found

    def light(self) -> dict[str, list[bytes]]:
        options = {"namesrv": self.namesrv, "broker": "broker-a", "route": LIGHT}
        return {
            queue: [
                row["body"].encode()
                for row in self._driver.call("pullQueue", name=self.group(), topic=queue, group=self.group(), **options)
            ]
            for queue in LIGHT_QUEUES
        }

    def found_by_key(self, topic: str, body: bytes) -> bool:
        said = self._driver.mqadmin("queryMsgByKey", "-n", self.namesrv, "-t", topic, "-k", f"key-{md5(body)}")
        return len(said.splitlines()) > 1

    # -- looked at with the tools --

    def wait_for_progress_of_delays(self, count: int) -> None:
        """Until it is on disk that `count` messages of level 1 were delivered: after a kill the others come again."""
        table = self.store / "config" / "delayOffset.json"

        def known() -> bool:
            return table.exists() and json_dialect.loads(table.read_bytes())["offsetTable"].get("1", 0) >= count

        wait_until(known, START_SECONDS, "the progress of delayed messages is on disk")

    def records(self) -> list[dict[str, Any]]:
        done = maxq("store", "messages", str(self.store), "--json")
        assert done.code == 0, done.err
        return [json.loads(line) for line in done.out.splitlines()]

    def check(self, what: str) -> None:
        done = maxq("store", what, str(self.store), "-c", str(self._folder / "broker" / "broker.conf"))
        assert done.code == 0, done.out + done.err


@pytest.fixture
def place(driver: JavaDriver, jars: Path, tmp_path: Path) -> Iterator[Place]:
    running = Place(tmp_path, driver, jars)
    yield running
    running.close()


def of_topics(records: list[dict[str, Any]]) -> Bodies:
    """What a log has of each topic; a record of a batch queue is a batch, so those are left out."""
    found: Bodies = {topic: Counter() for topic in TOPICS if topic != BATCH_QUEUE}
    for record in records:
        if record["topic"] in found:
            found[record["topic"]][record["bodyMd5"]] += 1
    return found


@pytest.mark.parametrize(
    ("first", "second", "how"),
    [
        ("ours", "java", "killed"),
        ("ours", "java", "stopped"),
        ("java", "ours", "stopped"),
    ],
)
def test_a_store_of_everything_goes_to_the_other_broker_and_back(
    place: Place, driver: JavaDriver, first: str, second: str, how: str
) -> None:
    sent = Sent()
    broker = place.start(first, "::1")
    asyncio.run(create_topics(place.namesrv, broker.address))
    asyncio.run(fill(place.namesrv, "six", sent, 100))
    place.end("stopped")
    place.start(first)
    asyncio.run(fill(place.namesrv, "four", sent, BULK))
    place.wait_for_progress_of_delays(len(sent.bodies[DELAYED]))
    at_first = place.digests()
    place.end(how)
    written = place.records()
    assert {record["storeHost"].rpartition(":")[0].strip("[]") for record in written} == {"::1", "127.0.0.1"}
    expected = sent.digests()
    assert of_topics(written) == {topic: found for topic, found in expected.items() if topic != BATCH_QUEUE}
    if first == "java":
        place.check("rehearse")

    place.start(second)
    assert place.digests() == at_first
    assert place.received(expected) == expected
    assert place.light() == sent.light
    if how == "stopped" or second == "ours":  # Java's recovery drops the index of what is before the checkpoint
        for topic in TOPICS:
            assert place.found_by_key(topic, sent.bodies[topic][0]), topic
    driver.send(place.namesrv, PLAIN, 40, text="then")
    at_second = place.digests()
    place.end("stopped")
    assert place.records()[: len(written)] == written
    place.check("check")

    place.start(first)
    assert place.digests() == at_second
    assert place.light() == sent.light
    place.end("stopped")
    place.check("check")
