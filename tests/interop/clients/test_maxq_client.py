"""MaxQ's client library and command line against Apache RocketMQ's name server and broker."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from maxq.api import (
    ConsumeContext,
    ConsumeFromWhere,
    Message,
    MessageExt,
    MessageModel,
    SendStatus,
    async_admin,
    async_lite_pull_consumer,
    async_producer,
    async_push_consumer,
)
from maxq.protocol.body.topic_config import TopicConfig
from tests.integration.cli.harness import maxq
from tests.interop.conftest import Deployment
from tests.interop.processes.java_driver import JavaDriver

pytestmark = pytest.mark.interop
COUNT = 60


@pytest.fixture(scope="module")
def java(jars: Path, scratch: Path) -> Iterator[Deployment]:
    """Java's name server and broker."""
    running = Deployment("all-java", scratch / "java", jars)
    try:
        yield running.start()
    finally:
        running.stop()


async def created(java: Deployment, topic: str, queues: int = 4) -> str:
    """Create a topic through our admin; its name."""
    async with async_admin(java.namesrv) as admin:
        await admin.topics.create(java.broker.address, TopicConfig(topic, queues, queues))
    return topic


def made(topic: str, number: int) -> Message:
    message = Message(topic, f"{topic}|{number}|".encode())
    message.keys = f"{topic}-key-{number}"
    message.tags = f"Tag{number % 2}"
    message.put_user_property("number", str(number))
    return message


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
        """All of them, once there are enough."""
        async with asyncio.timeout(60):
            await self.full.wait()
        return [bytes(message.body).decode() for message in self.messages]


def everything(topic: str) -> list[str]:
    return sorted(f"{topic}|{number}|" for number in range(COUNT))


async def test_java_consumer_reads_what_we_sent_in_every_way(java: Deployment, driver: JavaDriver) -> None:
    topic = await created(java, "OursToJava")
    async with async_producer("PG_ours", java.namesrv) as producer:
        sent = [await producer.send(made(topic, number)) for number in range(20)]
        sent += await producer.send_many(made(topic, number) for number in range(20, 40))
        await producer.send_batch([made(topic, number) for number in range(40, 50)])
        for number in range(50, COUNT):
            await producer.send_oneway(made(topic, number))
        assert {result.send_status for result in sent} == {SendStatus.SEND_OK}
        rows = driver.consume(java.namesrv, topic, COUNT)
    assert sorted(row["body"] for row in rows) == everything(topic)
    assert all(row["properties"]["number"] == row["body"].split("|")[1] for row in rows)


async def test_large_bodies_compressed_by_us_are_inflated_by_java(java: Deployment, driver: JavaDriver) -> None:
    topic = await created(java, "OursLarge")
    async with async_producer("PG_large", java.namesrv) as producer:
        await producer.send(Message(topic, b"y" * 100_000))
    (row,) = driver.consume(java.namesrv, topic, 1)
    assert row["body"] == "y" * 100_000


@pytest.mark.parametrize("orderly", [False, True], ids=["concurrently", "orderly"])
async def test_push_consumer_gets_every_message(java: Deployment, driver: JavaDriver, orderly: bool) -> None:
    topic = await created(java, f"JavaToOurs{orderly}")
    driver.send(java.namesrv, topic, COUNT, "orderly")
    inbox = Inbox(COUNT)
    consumer = async_push_consumer(
        f"CG_{topic}",
        java.namesrv,
        inbox,
        orderly=orderly,
        consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
    )
    consumer.subscribe(topic)
    async with consumer:
        assert sorted(await inbox.bodies()) == everything(topic)
    if orderly:
        for queue in range(4):
            offsets = [message.queue_offset for message in inbox.messages if message.queue_id == queue]
            assert offsets == sorted(offsets)


async def test_broadcasting_members_get_everything_each(java: Deployment, driver: JavaDriver) -> None:
    topic = await created(java, "JavaBroadcast")
    driver.send(java.namesrv, topic, COUNT)
    inboxes = [Inbox(COUNT), Inbox(COUNT)]
    consumers = []
    for number, inbox in enumerate(inboxes):
        consumer = async_push_consumer(
            "CG_ours_broadcast",
            java.namesrv,
            inbox,
            message_model=MessageModel.BROADCASTING,
            consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
            instance_name=f"member-{number}",
            local_offset_store_dir=str(java.broker.folder / f"offsets-{number}"),
        )
        consumer.subscribe(topic)
        consumers.append(consumer)
    async with consumers[0], consumers[1]:
        for inbox in inboxes:
            assert sorted(await inbox.bodies()) == everything(topic)


async def test_tags_are_filtered(java: Deployment, driver: JavaDriver) -> None:
    topic = await created(java, "JavaTags")
    for tag in ("A", "B", "C"):
        driver.send(java.namesrv, topic, 5, tag=tag, text=tag)
    inbox = Inbox(10)
    consumer = async_push_consumer(
        "CG_tags", java.namesrv, inbox, consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    )
    consumer.subscribe(topic, "A || C")
    async with consumer:
        await inbox.bodies()
    assert sorted(message.tags or "" for message in inbox.messages) == ["A"] * 5 + ["C"] * 5


async def test_lite_pull_polls_seeks_and_commits(java: Deployment, driver: JavaDriver) -> None:
    topic = await created(java, "JavaPull", queues=1)
    driver.send(java.namesrv, topic, COUNT)
    consumer = async_lite_pull_consumer(
        "CG_ours_pull", java.namesrv, consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET, auto_commit=False
    )
    await consumer.subscribe(topic)
    async with consumer:
        got: list[MessageExt] = []
        while len(got) < COUNT:
            got += await consumer.poll(30_000)
        assert sorted(bytes(message.body).decode() for message in got) == everything(topic)
        await consumer.commit()
        (queue,) = await consumer.fetch_message_queues(topic)
        assert await consumer.committed(queue) == COUNT
        await consumer.seek(queue, COUNT - 1)
        (last,) = await consumer.poll(30_000)
        assert last.queue_offset == COUNT - 1


async def test_admin_finds_messages_and_progress(java: Deployment, driver: JavaDriver) -> None:
    topic = await created(java, "JavaAdmin")
    sent = driver.send(java.namesrv, topic, COUNT)
    assert len(driver.consume(java.namesrv, topic, COUNT)) == COUNT
    async with async_admin(java.namesrv) as admin:
        (by_key,) = await admin.messages.query_by_key(topic, f"{topic}-key-7")
        assert bytes(by_key.body).decode() == f"{topic}|7|"
        by_id = await admin.messages.view_by_offset_id(sent[7]["offsetMsgId"], topic)
        assert by_id.body == by_key.body
        assert sum(at.max_offset for at in (await admin.topics.stats(topic)).offset_table.values()) == COUNT
        assert (await admin.groups.consume_stats(f"CG_{topic}", topic)).total_diff == 0
        assert (await admin.brokers.config(java.broker.address))["brokerName"] == "broker-a"


def test_command_line_works_with_javas_servers(java: Deployment) -> None:
    text = "".join(f"line {number}\n" for number in range(COUNT))
    assert maxq("produce", "JavaLines", text=text, namesrv=java.namesrv).code == 0
    got = maxq("consume", "JavaLines", "--group", "CG_lines", "--max", str(COUNT), namesrv=java.namesrv)
    assert sorted(got.out.splitlines()) == sorted(text.splitlines()), got.err
    listed = maxq("admin", "clusterList", "--json", namesrv=java.namesrv)
    assert json.loads(listed.out)[0]["address"] == java.broker.address
