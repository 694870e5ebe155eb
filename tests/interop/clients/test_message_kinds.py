"""The rarer kinds of message between RocketMQ's Java client 5.5.0, MaxQ's client, and both brokers."""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from maxq.api import (
    ConsumeContext,
    ConsumeFromWhere,
    Message,
    MessageExt,
    async_admin,
    async_lite_pull_consumer,
    async_producer,
    async_push_consumer,
    create_reply_message,
)
from maxq.protocol.body.topic_config import TopicConfig
from maxq.protocol.message.compression import CompressionType
from maxq.protocol.message.message_queue import MessageQueue
from maxq.protocol.message.message_sys_flag import MessageSysFlag
from tests.interop.conftest import Deployment
from tests.interop.processes.java_driver import JavaDriver

pytestmark = pytest.mark.interop

FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
SETTINGS = {
    "enableLmq": "true",
    "enableMultiDispatch": "true",
    "compactionMappedFileSize": "20000",
    "compactionCqMappedFileSize": "4600",
    "compactionScheduleInternal": "500",
    "accessMessageInMemoryMaxRatio": "0",  # else a new group begins a young queue at 0, whatever it wants
}
COUNT = 24


@pytest.fixture(scope="module", params=["ours", "all-java"])
def servers(request: pytest.FixtureRequest, jars: Path, scratch: Path) -> Iterator[Deployment]:
    """Name server and broker, all ours or all Java's, with light queues and small compaction files."""
    running = Deployment(request.param, scratch / f"kinds-{request.param}", jars)
    try:
        yield running.start(SETTINGS)
    finally:
        running.stop()


def create(driver: JavaDriver, servers: Deployment, topic: str, attributes: str = "", queues: int = 4) -> str:
    """Create a topic through mqadmin."""
    more = ["-a", attributes] if attributes else []
    count = str(queues)
    said = driver.mqadmin(
        "updateTopic", "-n", servers.namesrv, "-c", "DefaultCluster", "-t", topic, "-r", count, "-w", count, *more
    )
    assert "success" in said, said
    return topic


def numbers(bodies: list[str]) -> list[int]:
    return sorted(int(body.split("|")[1]) for body in bodies)


class Inbox:
    """A listener that keeps what it gets."""

    def __init__(self, count: int) -> None:
        self.messages: list[MessageExt] = []
        self._count = count
        self.full = asyncio.Event()

    def __call__(self, messages: list[MessageExt], _: ConsumeContext) -> None:
        self.messages += messages
        if len(self.messages) >= self._count:
            self.full.set()

    async def bodies(self) -> list[str]:
        async with asyncio.timeout(60):
            await self.full.wait()
        return [bytes(message.body).decode() for message in self.messages]


async def consumed(servers: Deployment, topic: str, count: int, **settings: Any) -> Inbox:
    """What our push consumer of a new group gets."""
    inbox = Inbox(count)
    values = {"consume_from_where": FIRST, **settings}
    consumer = async_push_consumer(f"CG_ours_{topic}_{time.monotonic_ns()}", servers.namesrv, inbox, **values)
    consumer.subscribe(topic)
    async with consumer:
        await inbox.bodies()
    return inbox


# --- request and reply ---


async def test_java_asks_and_we_reply(servers: Deployment, driver: JavaDriver) -> None:
    topic = create(driver, servers, "AskedByJava")
    async with async_producer("PG_reply", servers.namesrv) as replying:

        async def answer(messages: list[MessageExt], _: ConsumeContext) -> None:
            for message in messages:
                await replying.send(create_reply_message(message, message.body * 2))

        consumer = async_push_consumer("CG_AskedByJava", servers.namesrv, answer, consume_from_where=FIRST)
        consumer.subscribe(topic)
        async with consumer:
            loop = asyncio.get_running_loop()

            def ask() -> list[str]:
                with driver.client("kindsProducer", group="PG_ask", namesrv=servers.namesrv) as name:
                    return [driver.call("request", name=name, topic=topic, body=f"q{n}") for n in range(5)]

            assert await loop.run_in_executor(None, ask) == [f"q{n}q{n}" for n in range(5)]


async def test_we_ask_and_java_replies(servers: Deployment, driver: JavaDriver) -> None:
    topic = create(driver, servers, "AskedByUs")
    with driver.client("replier", group="CG_AskedByUs", namesrv=servers.namesrv, topic=topic):
        async with async_producer("PG_asking", servers.namesrv) as producer:
            replies = await asyncio.gather(
                *(producer.request(Message(topic, b"q%d" % n), timeout_ms=30_000) for n in range(5))
            )
    assert [reply.body for reply in replies] == [b"q%dq%d" % (n, n) for n in range(5)]


# --- compression ---


@pytest.mark.parametrize("kind", list(CompressionType), ids=lambda kind: kind.name)
async def test_bodies_compressed_by_either_client_are_read_by_both(
    servers: Deployment, driver: JavaDriver, kind: CompressionType
) -> None:
    topic = create(driver, servers, f"Compressed{kind.name}")
    with driver.client("kindsProducer", group="PG_c", namesrv=servers.namesrv, compress=kind.name) as name:
        driver.call("kindsSend", name=name, topic=topic, count=2, text="java", size=50_000)
    async with async_producer("PG_ours_c", servers.namesrv, compress_type=kind) as producer:
        await producer.send(Message(topic, b"ours|0|" + b"y" * 50_000))
    rows = driver.consume(servers.namesrv, topic, 3)
    assert sorted((row["body"][:5], len(row["body"])) for row in rows) == [
        ("java|", 50_000),
        ("java|", 50_000),
        ("ours|", 50_007),
    ]
    ours = await consumed(servers, topic, 3)
    assert sorted(len(message.body) for message in ours.messages) == [50_000, 50_000, 50_007]


# --- batches ---


@pytest.mark.parametrize("attributes", ["", "+queue.type=BatchCQ"], ids=["plain", "batch-queue"])
async def test_batches_of_either_client_are_read_by_both(
    servers: Deployment, driver: JavaDriver, attributes: str
) -> None:
    topic = create(driver, servers, f"Batched{len(attributes)}", attributes, queues=1)
    driver.send(servers.namesrv, topic, COUNT, "batch")
    async with async_producer("PG_batch", servers.namesrv) as producer:
        result = await producer.send_batch([Message(topic, b"ours|%d|" % (COUNT + n)) for n in range(COUNT)])
    assert result.queue_offset == COUNT
    rows = driver.consume(servers.namesrv, topic, 2 * COUNT)
    assert numbers([row["body"] for row in rows]) == list(range(2 * COUNT))
    ours = await consumed(servers, topic, 2 * COUNT)
    assert numbers(await ours.bodies()) == list(range(2 * COUNT))
    assert sorted(message.queue_offset for message in ours.messages) == list(range(2 * COUNT))


@pytest.mark.parametrize("attributes", ["", "+queue.type=BatchCQ"], ids=["plain", "batch-queue"])
async def test_automatic_batches_of_either_client_lose_nothing(
    servers: Deployment, driver: JavaDriver, attributes: str
) -> None:
    topic = create(driver, servers, f"Auto{len(attributes)}", attributes, queues=1)
    with driver.client("kindsProducer", group="PG_auto", namesrv=servers.namesrv, autoBatch=True) as name:
        sent = driver.call("kindsSend", name=name, topic=topic, count=COUNT, threads=8, text="java")
    assert [row["status"] for row in sent] == ["SEND_OK"] * COUNT
    async with async_producer("PG_auto_ours", servers.namesrv, auto_batch=True, batch_max_delay_ms=50) as producer:
        results = await asyncio.gather(
            *(producer.send(Message(topic, b"ours|%d|" % (COUNT + n))) for n in range(COUNT))
        )
    assert sorted(result.queue_offset for result in results) == list(range(COUNT, 2 * COUNT))
    ours = await consumed(servers, topic, 2 * COUNT)
    assert numbers(await ours.bodies()) == list(range(2 * COUNT))
    places = {result.msg_id: result.queue_offset for result in results}
    assert {m.uniq_key: m.queue_offset for m in ours.messages if m.body.startswith(b"ours")} == places


# --- tables ---

TEXT = "ein Körper, der lang genug ist, um gepackt zu werden; " * 200


async def test_java_reads_rows_of_a_table_be_they_compressed_or_delayed(
    servers: Deployment, driver: JavaDriver
) -> None:
    topic = create(driver, servers, "RowsForJava")
    plain: list[dict[str, Any]] = [
        {"body": f"row|{n}|", "tags": ("TagÄ", None)[n % 2], "keys": [["k", f"ä{n}"], None, []][n % 3],
         "properties": {"schlüssel": 'w"ert\\', "n": str(n)}, "shardingKey": (None, "a", "b")[n % 3]}
        for n in range(30)
    ]  # fmt: skip
    alone: list[dict[str, Any]] = [{**plain[0], "body": TEXT + "alone"}]
    later: list[dict[str, Any]] = [{**row, "body": body + str(n), "delayTimeLevel": 1} for n, (row, body) in
             enumerate(zip(plain, ("late|", TEXT), strict=False))]  # fmt: skip
    results = {}
    async with async_producer("PG_rows", servers.namesrv, send_msg_timeout=30_000) as producer:
        for rows in (plain, alone, later):
            table = pa.Table.from_pylist(rows)
            for row, result in zip(rows, (await producer.send_arrow(table, topic=topic)).to_pylist(), strict=True):
                assert (result["sendStatus"], result["error"]) == ("SEND_OK", None)
                results[row["body"]] = result
    given = {row["body"]: row for row in (*plain, *alone, *later)}
    got = driver.consume(servers.namesrv, topic, len(given))
    assert sorted(row["body"] for row in got) == sorted(given)
    for one in got:
        row, result = given[one["body"]], results[one["body"]]
        assert (one["msgId"], one.get("tags"), one["flag"]) == (result["uniqKey"], row["tags"], 0)
        assert (one.get("keys") or "").split() == (row["keys"] or [])
        assert one["properties"].items() >= row["properties"].items()
        assert one["properties"].get("__SHARDINGKEY") == row["shardingKey"]
        if "delayTimeLevel" not in row:
            assert (one["queueId"], one["queueOffset"]) == (result["queueId"], result["queueOffset"])
    ours = await consumed(servers, topic, len(given))
    compressed = {message.body.decode() for message in ours.messages if message.sys_flag & MessageSysFlag.COMPRESSED}
    assert compressed == {alone[0]["body"], later[1]["body"]}


async def test_columns_have_what_java_sent(servers: Deployment, driver: JavaDriver) -> None:
    topic = create(driver, servers, "RowsOfJava")
    count = 0
    for mode in ("sync", "orderly", "batch"):
        await asyncio.to_thread(driver.send, servers.namesrv, topic, 20, mode, text=mode, tag="TagÄ")
        count += 20
    for kind in CompressionType:
        with driver.client("kindsProducer", group="PG_c", namesrv=servers.namesrv, compress=kind.name) as name:
            driver.call("kindsSend", name=name, topic=topic, count=2, text=kind.name, size=50_000)
        count += 2
    with driver.client("kindsProducer", group="PG_d", namesrv=servers.namesrv) as name:
        properties = {"DELAY": "1", "schlüssel": 'w"ert\\'}
        driver.call("kindsSend", name=name, topic=topic, count=2, text="late", properties=properties)
    count += 2
    there = {(row["queueId"], row["queueOffset"]): row for row in driver.consume(servers.namesrv, topic, count)}
    assert len(there) == count
    consumer = async_lite_pull_consumer("CG_RowsOfJava_ours", servers.namesrv, consume_from_where=FIRST)
    await consumer.subscribe(topic)
    rows: list[dict[str, Any]] = []
    async with consumer, asyncio.timeout(60):
        while len(rows) < count:
            rows += (await consumer.poll_arrow(5_000)).to_pylist(maps_as_pydicts="strict")
    assert len(rows) == count
    for row in rows:
        one = there.pop((row["queueId"], row["queueOffset"]))
        added = {"MIN_OFFSET", "MAX_OFFSET", "CONSUME_START_TIME"}
        assert row["properties"] == {key: value for key, value in one["properties"].items() if key not in added}
        assert (row["body"].decode(), row["topic"]) == (one["body"], topic)
        assert (row["msgId"], row["uniqKey"]) == (one["offsetMsgId"], one["msgId"])
        assert (row["tags"], row["keys"]) == (one.get("tags"), (one.get("keys") or "").split())
        for name in ("flag", "physicalOffset", "reconsumeTimes", "bornHost", "storeHost"):
            assert row[name] == one[name], name
        for name in ("bornTimestamp", "storeTimestamp"):
            assert round(row[name].timestamp() * 1000) == one[name]


# --- priority, types ---


def test_priority_chooses_the_queue(servers: Deployment, driver: JavaDriver) -> None:
    topic = create(driver, servers, "Priority", "+message.type=PRIORITY")
    with driver.client("kindsProducer", group="PG_prio", namesrv=servers.namesrv) as name:
        for priority in range(4):
            driver.call("kindsSend", name=name, topic=topic, count=2, text=f"p{priority}", priority=priority)
    rows = driver.consume(servers.namesrv, topic, 8)
    assert sorted((row["body"].split("|")[0], row["queueId"]) for row in rows) == [
        (f"p{n}", n) for n in range(4) for _ in range(2)
    ]


def test_message_types_are_checked_where_the_broker_is_told_to(servers: Deployment, driver: JavaDriver) -> None:
    if servers.mixture != "ours":
        pytest.skip("only RocketMQ's proxy checks it")
    topic = create(driver, servers, "OnlyOrdered", "+message.type=FIFO")
    config = ["updateBrokerConfig", "-n", servers.namesrv, "-b", servers.broker.address]
    driver.mqadmin(*config, "-k", "enableTopicMessageTypeCheck", "-v", "true")
    try:
        with driver.client("kindsProducer", group="PG_type", namesrv=servers.namesrv) as name:
            (refused,) = driver.call("kindsSend", name=name, topic=topic, count=1, text="x")
            properties = {"__SHARDINGKEY": "k"}
            (taken,) = driver.call("kindsSend", name=name, topic=topic, count=1, text="x", properties=properties)
    finally:
        driver.mqadmin(*config, "-k", "enableTopicMessageTypeCheck", "-v", "false")
    assert "CODE: 13" in refused["error"]
    assert "TopicMessageType validate failed, the expected type is FIFO, but actual type is NORMAL" in refused["error"]
    assert taken["status"] == "SEND_OK"


# --- light queues ---


def test_light_queues_get_what_is_addressed_to_them(servers: Deployment, driver: JavaDriver) -> None:
    topic = create(driver, servers, "WithLight")
    with driver.client("kindsProducer", group="PG_lmq", namesrv=servers.namesrv) as name:
        for queues in ("%LMQ%a", "%LMQ%a,%LMQ%b", "%LMQ%b"):
            properties = {"INNER_MULTI_DISPATCH": queues}
            rows = driver.call("kindsSend", name=name, topic=topic, count=2, text=queues, properties=properties)
            assert [row.get("status") for row in rows] == ["SEND_OK"] * 2, rows
    options = {"namesrv": servers.namesrv, "group": "CG_lmq", "broker": "broker-a", "route": topic}

    def read(queue: str) -> list[str]:
        rows = driver.call("pullQueue", name=f"pull-{queue}-{time.monotonic_ns()}", topic=queue, **options)
        return [row["body"].split("|")[0] for row in rows]

    end = time.monotonic() + 30
    while len(read("%LMQ%b")) < 4 and time.monotonic() < end:
        pass
    assert read("%LMQ%a") == ["%LMQ%a"] * 2 + ["%LMQ%a,%LMQ%b"] * 2
    assert read("%LMQ%b") == ["%LMQ%a,%LMQ%b"] * 2 + ["%LMQ%b"] * 2


def test_a_list_that_mixes_light_and_ordinary_queues_is_refused(servers: Deployment, driver: JavaDriver) -> None:
    if servers.mixture != "ours":
        pytest.skip("stops dispatch of a Java broker for good")
    topic = create(driver, servers, "MixedList")
    with driver.client("kindsProducer", group="PG_mixed", namesrv=servers.namesrv) as name:
        properties = {"INNER_MULTI_DISPATCH": "%LMQ%a,Ordinary"}
        (row,) = driver.call("kindsSend", name=name, topic=topic, count=1, text="x", properties=properties)
        assert "CODE: 13" in row["error"] and "only light queues" in row["error"]
        (row,) = driver.call("kindsSend", name=name, topic=topic, count=1, text="after")
    assert row["status"] == "SEND_OK"
    assert [r["body"] for r in driver.consume(servers.namesrv, topic, 1)] == ["after|0|"]


# --- where to start ---


@pytest.mark.parametrize("client", ["java", "ours"])
async def test_a_new_group_starts_at_a_time(servers: Deployment, driver: JavaDriver, client: str) -> None:
    """Java's setting has a precision of a second."""
    if servers.mixture != "ours":
        pytest.skip("a Java broker starts every new group of a young queue at 0: all of it is in memory")
    topic = create(driver, servers, f"FromTime{client}", queues=2)
    driver.send(servers.namesrv, topic, 8, text="before")
    newest = await _newest_store_time(servers, topic, 8)
    border_ms = (newest // 1000 + 1) * 1000 + 1000
    while time.time() * 1000 < border_ms + 50:  # stamps of the broker, on this machine  # noqa: ASYNC110
        await asyncio.sleep(0.05)
    driver.send(servers.namesrv, topic, 8, text="after")
    if client == "java":
        options = {"group": "CG_time", "namesrv": servers.namesrv, "topic": topic, "timestamp": border_ms}
        with driver.client("kindsConsumer", **{"from": "CONSUME_FROM_TIMESTAMP"}, **options) as name:
            rows = driver.call("received", name=name, count=8, seconds=60)
        bodies = [row["body"] for row in rows]
    else:
        where = ConsumeFromWhere.CONSUME_FROM_TIMESTAMP
        inbox = await consumed(servers, topic, 8, consume_from_where=where, consume_timestamp=border_ms)
        bodies = await inbox.bodies()
    assert sorted(bodies) == [f"after|{n}|" for n in range(8)]


async def _newest_store_time(servers: Deployment, topic: str, count: int) -> int:
    inbox = await consumed(servers, topic, count)
    return max(message.store_timestamp for message in inbox.messages)


# --- order ---


async def test_a_queue_goes_from_a_java_member_to_ours_in_order(servers: Deployment, driver: JavaDriver) -> None:
    topic = create(driver, servers, "HandedOver")
    options = {"namesrv": servers.namesrv, "topic": topic, "group": "CG_HandedOver", "orderly": True}
    loop = asyncio.get_running_loop()
    inbox = Inbox(COUNT)
    consumer = async_push_consumer("CG_HandedOver", servers.namesrv, inbox, orderly=True, consume_from_where=FIRST)
    consumer.subscribe(topic)
    with driver.client("kindsConsumer", **options) as name:
        driver.send(servers.namesrv, topic, COUNT, "orderly", text="first")
        rows = driver.call("received", name=name, count=COUNT, seconds=60)
        assert len(rows) == COUNT
    async with consumer:
        await loop.run_in_executor(None, lambda: driver.send(servers.namesrv, topic, COUNT, "orderly", text="then"))
        bodies = await inbox.bodies()
    assert numbers(bodies) == list(range(COUNT))
    assert all(body.startswith("then|") for body in bodies)
    for queue_id in range(4):
        offsets = [message.queue_offset for message in inbox.messages if message.queue_id == queue_id]
        assert offsets == sorted(offsets)


# --- operators and clients ---


async def test_offsets_reset_by_mqadmin_reach_our_running_consumer(servers: Deployment, driver: JavaDriver) -> None:
    topic = create(driver, servers, "ResetRunning", queues=2)
    driver.send(servers.namesrv, topic, COUNT)
    inbox = Inbox(2 * COUNT)
    consumer = async_push_consumer("CG_ResetRunning", servers.namesrv, inbox, consume_from_where=FIRST)
    consumer.subscribe(topic)
    loop = asyncio.get_running_loop()
    async with consumer:
        while len(inbox.messages) < COUNT:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        command = ["resetOffsetByTime", "-n", servers.namesrv, "-g", "CG_ResetRunning", "-t", topic, "-s", "0"]
        said = await loop.run_in_executor(None, lambda: driver.mqadmin(*command))
        bodies = await inbox.bodies()
    assert numbers(bodies) == sorted([*range(COUNT)] * 2), said


async def test_mqadmin_sees_our_consumer_and_hands_it_one_message(servers: Deployment, driver: JavaDriver) -> None:
    topic = create(driver, servers, "Directly", queues=1)
    (sent,) = driver.send(servers.namesrv, topic, 1)
    inbox = Inbox(2)
    consumer = async_push_consumer("CG_Directly", servers.namesrv, inbox, consume_from_where=FIRST)
    consumer.subscribe(topic)
    loop = asyncio.get_running_loop()

    def ask(*command: str) -> str:
        return driver.mqadmin(command[0], "-n", servers.namesrv, *command[1:])

    async with consumer:
        while not inbox.messages:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        status = await loop.run_in_executor(None, ask, "consumerStatus", "-g", "CG_Directly", "-i", consumer.client_id)
        directly = await loop.run_in_executor(
            None, ask, "queryMsgById", "-i", sent["offsetMsgId"], "-g", "CG_Directly", "-d", consumer.client_id,
            "-t", topic,
        )  # fmt: skip
        assert await inbox.bodies() == [f"{topic}|0|"] * 2, directly
    assert "queueFlowControlTimes" in status
    assert "CR_SUCCESS" in directly


# --- compaction ---


async def test_both_clients_read_the_newest_of_each_key(servers: Deployment, driver: JavaDriver) -> None:
    topic = create(driver, servers, "Compacted", "+cleanup.policy=COMPACTION", queues=1)
    with driver.client("kindsProducer", group="PG_compact", namesrv=servers.namesrv) as name:
        for text in ("old", "new"):
            rows = driver.call("kindsSend", name=name, topic=topic, count=200, keyCount=10, text=text, size=100)
            assert {row.get("status") for row in rows} == {"SEND_OK"}, rows[0]
        (refused,) = driver.call("kindsSend", name=name, topic=topic, count=1, text="x", properties={"KEYS": ""})
    assert "CODE: 13" in refused["error"]
    queue = MessageQueue(topic, "broker-a", 0)

    async def smallest() -> int:
        async with async_admin(servers.namesrv) as admin:
            stats = await admin.topics.stats(topic)
            return stats.offset_table[queue].max_offset

    assert await smallest() == 400
    options = {"namesrv": servers.namesrv, "broker": "broker-a", "route": topic, "group": "CG_compact"}
    end = time.monotonic() + 60
    while True:
        rows = driver.call("pullQueue", name=f"pull-{time.monotonic_ns()}", topic=topic, **options)
        if len(rows) < 390 or time.monotonic() > end:
            break
    latest = {row["keys"]: row["body"].split("|")[:2] for row in rows}
    assert latest == {f"key-{n}": ["new", str(190 + n)] for n in range(10)}
    assert len(rows) < 390
    newest = {row["keys"]: row["queueOffset"] for row in rows}
    inbox = Inbox(len(rows))
    consumer = async_push_consumer(f"CG_ours_{topic}", servers.namesrv, inbox, consume_from_where=FIRST)
    consumer.subscribe(topic)
    async with consumer, asyncio.timeout(60):
        while not {*newest.values()} <= {message.queue_offset for message in inbox.messages}:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    # the broker goes on to compact: older messages of a key may be gone by now, and no others come
    offsets = sorted(message.queue_offset for message in inbox.messages)
    assert len(offsets) == len({*offsets})
    assert {*offsets} <= {row["queueOffset"] for row in rows}
    by_offset = sorted(inbox.messages, key=lambda message: message.queue_offset)
    assert {message.keys: message.queue_offset for message in by_offset} == newest


# --- what the name server says of order ---


def test_order_configuration_names_the_queues_of_both_clients(servers: Deployment, driver: JavaDriver) -> None:
    topic = create(driver, servers, "OrderConf")
    switch = ["updateNamesrvConfig", "-n", servers.namesrv, "-k", "orderMessageEnable", "-v", "true"]
    assert "success" in driver.mqadmin(*switch)
    order = ["updateOrderConf", "-n", servers.namesrv, "-t", topic, "-m", "put", "-v", "broker-a:2"]
    assert "success" in driver.mqadmin(*order)
    with driver.client("producer", group="PG_order", namesrv=servers.namesrv) as name:
        assert driver.call("queues", name=name, topic=topic) == 2

    async def ours() -> int:
        async with async_producer("PG_order_ours", servers.namesrv) as producer:
            return len(await producer.fetch_publish_message_queues(topic))

    assert asyncio.run(ours()) == 2


async def test_topics_made_by_us_have_the_attributes_java_sees(servers: Deployment, driver: JavaDriver) -> None:
    async with async_admin(servers.namesrv) as admin:
        config = TopicConfig("OursTyped", 2, 2, attributes={"+message.type": "FIFO"})
        await admin.topics.create(servers.broker.address, config)
    driver.send(servers.namesrv, "OursTyped", 2)
    assert len(driver.consume(servers.namesrv, "OursTyped", 2)) == 2
