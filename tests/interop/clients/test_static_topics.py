"""Static topics: mqadmin's updateStaticTopic and remappingStaticTopic, RocketMQ's Java client and ours, two brokers."""

import asyncio
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from maxq.api import ConsumeContext, ConsumeFromWhere, Message, MessageExt, async_producer, async_push_consumer
from tests.integration.cli.harness import maxq
from tests.interop.processes.java_driver import JavaDriver
from tests.interop.processes.servers import JavaBroker, JavaNamesrv, MaxqBroker, MaxqNamesrv, free_port_base

pytestmark = pytest.mark.interop

COUNT = 24
FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET


class TwoBrokers:
    """A name server and brokers broker-a and broker-b, all ours, or all Java's."""

    def __init__(self, kind: str, folder: Path, jars: Path) -> None:
        self.kind = kind
        self._jars = jars
        self._namesrv = (MaxqNamesrv if kind == "ours" else JavaNamesrv)(folder / "namesrv", free_port_base())
        broker = MaxqBroker if kind == "ours" else JavaBroker
        self._brokers = {name: broker(folder / name, free_port_base()) for name in ("broker-a", "broker-b")}

    def start(self) -> "TwoBrokers":
        if isinstance(self._namesrv, JavaNamesrv):
            self._namesrv.start(self._jars)
        else:
            self._namesrv.start()
        for name in self._brokers:
            self.start_broker(name)
        return self

    def start_broker(self, name: str) -> None:
        broker = self._brokers[name]
        if isinstance(broker, JavaBroker):
            broker.start(self._jars, self.namesrv, {"brokerName": name})
        else:
            broker.start(self.namesrv, {"brokerName": name})

    def stop_broker(self, name: str) -> None:
        self._brokers[name].stop()

    def stop(self) -> None:
        for broker in self._brokers.values():
            broker.discard()
        self._namesrv.discard()

    @property
    def namesrv(self) -> str:
        return self._namesrv.address


@pytest.fixture(scope="module", params=["ours", "java"])
def servers(request: pytest.FixtureRequest, jars: Path, scratch: Path) -> Iterator[TwoBrokers]:
    running = TwoBrokers(request.param, scratch / f"static-{request.param}", jars)
    try:
        yield running.start()
    finally:
        running.stop()


def create(driver: JavaDriver, servers: TwoBrokers, topic: str, *brokers: str, queues: int = 4) -> str:
    names = ",".join(brokers)
    command = ("updateStaticTopic", "-n", servers.namesrv, "-t", topic, "-qn", str(queues), "-b", names)
    said = driver.mqadmin(*command)
    assert "The new mapping data is written to file" in said, said
    return topic


def remap(driver: JavaDriver, servers: TwoBrokers, topic: str, *brokers: str) -> None:
    said = driver.mqadmin("remappingStaticTopic", "-n", servers.namesrv, "-t", topic, "-b", ",".join(brokers))
    assert not re.search(r"Exception|error", said), said


class Inbox:
    def __init__(self) -> None:
        self.messages: list[MessageExt] = []
        self._grown = asyncio.Event()

    def __call__(self, messages: list[MessageExt], _: ConsumeContext) -> None:
        self.messages += messages
        self._grown.set()

    async def wait_for(self, count: int) -> list[MessageExt]:
        async with asyncio.timeout(60):
            while len(self.messages) < count:
                self._grown.clear()
                await self._grown.wait()
        return self.messages


def places(messages: list[MessageExt]) -> list[tuple[int, int]]:
    return sorted((message.queue_id, message.queue_offset) for message in messages)


async def test_both_clients_send_to_and_read_from_global_queues(servers: TwoBrokers, driver: JavaDriver) -> None:
    topic = create(driver, servers, "StaticBoth", "broker-a", "broker-b")
    loop = asyncio.get_running_loop()
    sent = await loop.run_in_executor(None, lambda: driver.send(servers.namesrv, topic, COUNT, text="java"))
    assert [row["status"] for row in sent] == ["SEND_OK"] * COUNT
    assert {row["broker"] for row in sent} == {"broker-a", "broker-b"}  # Java's result names the leader
    assert {row["queueId"] for row in sent} == {0, 1, 2, 3}
    async with async_producer("PG_static", servers.namesrv) as producer:
        results = [await producer.send(Message(topic, b"ours|%d|" % n)) for n in range(COUNT)]
    assert {(r.message_queue.broker_name, r.message_queue.queue_id) for r in results} == {
        ("__syslo__global__", n) for n in range(4)
    }
    expected = sorted(
        [(row["queueId"], row["queueOffset"]) for row in sent]
        + [(result.message_queue.queue_id, result.queue_offset) for result in results]
    )
    rows = await loop.run_in_executor(None, lambda: driver.consume(servers.namesrv, topic, 2 * COUNT))
    assert sorted((row["queueId"], row["queueOffset"]) for row in rows) == expected
    inbox = Inbox()
    consumer = async_push_consumer("CG_static_ours", servers.namesrv, inbox, consume_from_where=FIRST)
    consumer.subscribe(topic)
    async with consumer:
        assert places(await inbox.wait_for(2 * COUNT)) == expected
    late = Inbox()
    again = async_push_consumer("CG_static_ours", servers.namesrv, late, consume_from_where=FIRST)
    again.subscribe(topic)
    async with again, async_producer("PG_static", servers.namesrv) as producer:
        await producer.send(Message(topic, b"late"))
        assert [message.body for message in await late.wait_for(1)] == [b"late"]  # offsets were kept


@pytest.mark.parametrize("orderly", [False, True], ids=["concurrently", "orderly"])
async def test_remapped_queues_go_on_where_they_were(servers: TwoBrokers, driver: JavaDriver, orderly: bool) -> None:
    topic = create(driver, servers, f"Remapped{orderly}", "broker-a", queues=2)
    loop = asyncio.get_running_loop()

    def send(text: str) -> None:
        rows = driver.send(servers.namesrv, topic, COUNT, text=text)
        assert [row["status"] for row in rows] == ["SEND_OK"] * COUNT

    await loop.run_in_executor(None, send, "before")
    inbox = Inbox()
    consumer = async_push_consumer(
        f"CG_ours_{topic}", servers.namesrv, inbox, orderly=orderly, consume_from_where=FIRST,
        poll_name_server_interval=500, rebalance_interval=500,
    )  # fmt: skip
    consumer.subscribe(topic)
    async with consumer:
        await inbox.wait_for(COUNT // 2)
        await loop.run_in_executor(None, remap, driver, servers, topic, "broker-b")
        await loop.run_in_executor(None, send, "after")
        messages = await inbox.wait_for(2 * COUNT)
    bodies = sorted({message.body.decode() for message in messages})
    assert bodies == sorted(f"{text}|{n}|" for text in ("before", "after") for n in range(COUNT))
    for queue_id in range(2):
        seen = [message for message in messages if message.queue_id == queue_id]
        before = [m.queue_offset for m in seen if m.body.startswith(b"before")]
        after = [m.queue_offset for m in seen if m.body.startswith(b"after")]
        assert max(before) < min(after)
        if orderly:
            assert [m.queue_offset for m in seen] == sorted(m.queue_offset for m in seen)
    rows = await loop.run_in_executor(None, lambda: driver.consume(servers.namesrv, topic, 2 * COUNT))
    assert sorted({row["body"] for row in rows}) == bodies


def test_our_command_line_makes_and_remaps_them(servers: TwoBrokers, driver: JavaDriver) -> None:
    topic = "OurCommands"
    made = maxq(
        "admin", "updateStaticTopic", "-t", topic, "-qn", "3", "-b", "broker-a", "--json", namesrv=servers.namesrv
    )
    assert [(row["queue"], row["broker"]) for row in json.loads(made.out)] == [(n, "broker-a") for n in range(3)], (
        made.err
    )
    driver.send(servers.namesrv, topic, COUNT, text="before")
    command = ("remappingStaticTopic", "-y", "-t", topic, "-b", "broker-b", "--json")
    remapped = maxq("admin", *command, namesrv=servers.namesrv)
    rows = json.loads(remapped.out)
    assert [(row["broker"], row["logicOffset"], row["generation"]) for row in rows] == [("broker-b", 10_000, 1)] * 3
    sent = driver.send(servers.namesrv, topic, COUNT, text="after")
    assert {row["broker"] for row in sent} == {"broker-b"}
    received = driver.consume(servers.namesrv, topic, 2 * COUNT)
    assert len({row["body"] for row in received}) == 2 * COUNT


def rows_of(text: str, *, width: int) -> list[list[str]]:
    """The rows of one of mqadmin's tables, by words."""
    return sorted(line.split()[:width] for line in text.splitlines() if re.search("(broker-|__syslo__)", line))


def test_operators_see_global_queues(servers: TwoBrokers, driver: JavaDriver) -> None:
    topic = create(driver, servers, "StaticSeen", "broker-a", queues=2)
    driver.send(servers.namesrv, topic, 8, text="before")
    assert len(driver.consume(servers.namesrv, topic, 8, group="CG_static_seen")) == 8
    remap(driver, servers, topic, "broker-b")
    driver.send(servers.namesrv, topic, 4, text="after")
    status = maxq("admin", "topicStatus", "-t", topic, "--json", namesrv=servers.namesrv)
    ours = [[row["brokerName"], str(row["queueId"]), str(row["minOffset"]), str(row["maxOffset"])]
            for row in json.loads(status.out)]  # fmt: skip
    java = driver.mqadmin("topicStatus", "-n", servers.namesrv, "-t", topic)
    assert sorted(ours) == rows_of(java, width=4)
    assert [row for row in sorted(ours) if row[0] == "__syslo__global__"] == [
        ["__syslo__global__", str(n), "0", "10002"] for n in range(2)
    ]
    progress = maxq("admin", "consumerProgress", "-g", "CG_static_seen", "-t", topic, "--json", namesrv=servers.namesrv)
    seen = [(r["brokerName"], r["queueId"], r["brokerOffset"], r["consumerOffset"]) for r in json.loads(progress.out)]
    assert seen == [("__syslo__global__", n, 10_002, 4) for n in range(2)]
    java = driver.mqadmin("consumerProgress", "-n", servers.namesrv, "-g", "CG_static_seen", "-t", topic)
    assert [row[1:4] for row in rows_of(java, width=5)] == [["__syslo__global__", str(n), "10002"] for n in range(2)]


def test_a_static_topic_outlives_a_restart_and_is_deleted(servers: TwoBrokers, driver: JavaDriver) -> None:
    topic = create(driver, servers, "StaticKept", "broker-a", queues=2)
    driver.send(servers.namesrv, topic, 4)
    servers.stop_broker("broker-a")
    servers.start_broker("broker-a")
    rows = driver.send(servers.namesrv, topic, 4, text="after")
    assert sorted((row["queueId"], row["queueOffset"]) for row in rows) == [(0, 2), (0, 3), (1, 2), (1, 3)]
    assert len(driver.consume(servers.namesrv, topic, 8)) == 8
    more = driver.mqadmin(
        "updateStaticTopic", "-n", servers.namesrv, "-t", topic, "-qn", "4", "-b", "broker-a,broker-b"
    )
    assert "The new mapping data is written to file" in more, more
    rows = driver.send(servers.namesrv, topic, 8, text="more")
    assert {row["queueId"] for row in rows} == {0, 1, 2, 3}
