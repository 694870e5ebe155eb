"""Delayed messages, second tries and dead letters: Java's clients and ours, at our broker and at Java's."""

import asyncio
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from maxq.api import (
    ConsumeContext,
    ConsumeFromWhere,
    ConsumeResult,
    Message,
    MessageExt,
    async_admin,
    async_producer,
    async_push_consumer,
)
from maxq.protocol.body.topic_config import TopicConfig
from tests.integration.cli.harness import maxq
from tests.interop.processes.java_driver import JavaDriver
from tests.interop.processes.servers import Broker, JavaBroker, MaxqBroker, MaxqNamesrv, free_port_base, stopping

pytestmark = pytest.mark.interop
LEVELS = {"messageDelayLevel": "1s 2s 1s 1s 1s 1s 1s 1s"}  # the first try comes back by level 3
COUNT = 6
LATE_MOST_MS = 2_000  # both brokers were 60 ms late with 15 processes waiting for two processors


@dataclass
class Place:
    """A name server of ours, a broker of either kind."""

    namesrv: str
    broker: Broker
    kind: str


@pytest.fixture(scope="module", params=["ours", "java"])
def place(request: pytest.FixtureRequest, jars: Path, scratch: Path) -> Iterator[Place]:
    kind = request.param
    namesrv = MaxqNamesrv(scratch / f"{kind}-namesrv", free_port_base()).start()
    with stopping(namesrv):
        if kind == "java":
            broker: Broker = JavaBroker(scratch / kind, free_port_base()).start(jars, namesrv.address, LEVELS)
        else:
            broker = MaxqBroker(scratch / kind, free_port_base()).start(namesrv.address, LEVELS)
        with stopping(broker):
            yield Place(namesrv.address, broker, kind)


async def _created(place: Place, topic: str, queues: int = 1) -> str:
    async with async_admin(place.namesrv) as admin:
        await admin.topics.create(place.broker.address, TopicConfig(topic, queues, queues))
    return topic


def _row(message: MessageExt) -> dict[str, Any]:
    return {
        "topic": message.topic,
        "body": bytes(message.body).decode(),
        "msgId": message.msg_id,
        "reconsumeTimes": message.reconsume_times,
        "bornTimestamp": message.born_timestamp,
        "storeTimestamp": message.store_timestamp,
        "properties": dict(message.properties),
    }


class OurClients:
    """This project's."""

    async def send(self, place: Place, topic: str, level: int = 0) -> None:
        async with async_producer(f"PG_{topic}", place.namesrv) as producer:
            for number in range(COUNT):
                message = Message(topic, f"{topic}|{number}|".encode())
                if level:
                    message.delay_level = level
                await producer.send(message)

    async def consume(
        self,
        place: Place,
        topic: str,
        count: int,
        *,
        fail_times: int = 0,
        most: int = -1,
        orderly: bool = False,
        quiet: float = 0,
    ) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = []
        full = asyncio.Event()

        def listen(messages: list[MessageExt], _: ConsumeContext) -> ConsumeResult:
            rows.extend(_row(message) for message in messages)
            if len(rows) >= count:
                full.set()
            if messages[0].reconsume_times >= fail_times:
                return ConsumeResult.SUCCESS
            return ConsumeResult.SUSPEND_CURRENT_QUEUE_A_MOMENT if orderly else ConsumeResult.RECONSUME_LATER

        consumer = async_push_consumer(
            f"CG_{topic}", place.namesrv, listen, orderly=orderly, max_reconsume_times=most,
            suspend_current_queue_time=50, consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        )  # fmt: skip
        consumer.subscribe(topic)
        async with consumer:
            async with asyncio.timeout(60):
                await full.wait()
            await asyncio.sleep(quiet)  # what must not come
        return rows


class JavaClients:
    """Apache RocketMQ's."""

    def __init__(self, driver: JavaDriver) -> None:
        self._driver = driver

    async def send(self, place: Place, topic: str, level: int = 0) -> None:
        sent = self._driver.send(place.namesrv, topic, COUNT, **({"delayLevel": level} if level else {}))
        assert [row["status"] for row in sent] == ["SEND_OK"] * COUNT

    async def consume(
        self,
        place: Place,
        topic: str,
        count: int,
        *,
        fail_times: int = 0,
        most: int = -1,
        orderly: bool = False,
        quiet: float = 0,
    ) -> list[dict[str, Any]]:
        options = {
            "group": f"CG_{topic}", "expression": "*", "failTimes": fail_times, "maxReconsumeTimes": most,
            "orderly": orderly, "suspendMs": 50,
        }  # fmt: skip
        with self._driver.client("consumer", namesrv=place.namesrv, topic=topic, **options) as consumer:
            rows = self._driver.call("received", name=consumer, count=count, seconds=60)
            if quiet:
                rows = self._driver.call("received", name=consumer, count=count + 1, seconds=quiet)
        return list(rows)


@pytest.fixture(params=["our-clients", "java-clients"])
def clients(request: pytest.FixtureRequest, driver: JavaDriver, place: Place) -> OurClients | JavaClients:
    return OurClients() if request.param == "our-clients" else JavaClients(driver)


def _name(place: Place, clients: OurClients | JavaClients, what: str) -> str:
    return f"{what}_{type(clients).__name__}_{place.kind}"


def _bodies(topic: str) -> list[str]:
    return [f"{topic}|{number}|" for number in range(COUNT)]


def _late_ms(place: Place, rows: list[dict[str, Any]], delay_ms: int) -> list[int]:
    """How late each message was put into its topic: by the records of the broker, for it answers for its own time, and
    not for that of a client which starts on a busy machine."""
    listed = maxq("store", "messages", str(place.broker.store), "--json")
    assert listed.code == 0, listed.err
    records = map(json.loads, listed.out.splitlines())
    waits_from = {
        record["uniqKey"]: record["storeTimestamp"] for record in records if record["topic"] == "SCHEDULE_TOPIC_XXXX"
    }
    return [row["storeTimestamp"] - waits_from[row["msgId"]] - delay_ms for row in rows]


async def test_delayed_messages_come_once_and_not_early(place: Place, clients: OurClients | JavaClients) -> None:
    topic = await _created(place, _name(place, clients, "Delayed"))
    await clients.send(place, topic, level=2)
    rows = await clients.consume(place, topic, COUNT, quiet=1)
    assert sorted(row["body"] for row in rows) == _bodies(topic)
    late = _late_ms(place, rows, 2000)
    assert min(late) >= 0 and max(late) <= LATE_MOST_MS, late
    assert {row["properties"]["DELAY"] for row in rows} == {"2"}
    assert {row["topic"] for row in rows} == {topic}


async def test_failed_messages_come_again_until_they_are_handled(
    place: Place, clients: OurClients | JavaClients
) -> None:
    topic = await _created(place, _name(place, clients, "Again"))
    await clients.send(place, topic)
    rows = await clients.consume(place, topic, 3 * COUNT, fail_times=2, quiet=2)
    for body in _bodies(topic):
        tries = [row for row in rows if row["body"] == body]
        assert [row["reconsumeTimes"] for row in tries] == [0, 1, 2]
        assert {row["topic"] for row in tries} == {topic}
        assert len({row["msgId"] for row in tries}) == 1
        assert tries[1]["properties"]["ORIGIN_MESSAGE_ID"] == tries[2]["properties"]["ORIGIN_MESSAGE_ID"]
        assert tries[1]["properties"]["RETRY_TOPIC"] == topic


@pytest.mark.parametrize("orderly", [False, True], ids=["concurrently", "orderly"])
async def test_message_that_always_fails_ends_as_a_dead_letter(
    place: Place, clients: OurClients | JavaClients, orderly: bool
) -> None:
    topic = await _created(place, _name(place, clients, f"Dead{orderly}"))
    await clients.send(place, topic)
    rows = await clients.consume(place, topic, 3 * COUNT, fail_times=99, most=2, orderly=orderly, quiet=2)
    for body in _bodies(topic):
        assert [row["reconsumeTimes"] for row in rows if row["body"] == body] == [0, 1, 2]
    dlq = f"%DLQ%CG_{topic}"
    shown = json.loads(maxq("dlq", "show", f"CG_{topic}", "--json", "-n", place.namesrv).out)
    assert sorted(letter["body"] for letter in shown) == _bodies(topic)
    assert {letter["originTopic"] for letter in shown} == {topic}
    assert {letter["topic"] for letter in shown} == {dlq}


def test_what_waits_goes_on_in_a_store_that_changes_hands(driver: JavaDriver, jars: Path, tmp_path: Path) -> None:
    """Ours, Java's, ours: what was delivered does not come again, what waits comes once and not early."""
    settings = {"messageDelayLevel": "1s 8s"}
    namesrv = MaxqNamesrv(tmp_path / "namesrv", free_port_base()).start()
    ours = MaxqBroker(tmp_path / "broker", free_port_base())
    java = JavaBroker(ours.folder, ours.port)
    wanted: list[str] = []

    def send(text: str, level: int) -> None:
        rows = driver.send(namesrv.address, "Hands", COUNT, text=text, delayLevel=level)
        assert [row["status"] for row in rows] == ["SEND_OK"] * COUNT
        wanted.extend(f"{text}|{number}|" for number in range(COUNT))

    def received() -> list[dict[str, Any]]:
        return driver.consume(namesrv.address, "Hands", len(wanted), group=f"CG_hands_{len(wanted)}")

    with stopping(java, ours, namesrv):
        ours.start(namesrv.address, settings)
        send("first", 1)
        received()
        send("from-ours", 2)
        ours.stop()
        java.start(jars, namesrv.address, settings)
        assert sorted(row["body"] for row in received()) == sorted(wanted)
        send("from-java", 2)
        java.stop()
        ours.start(namesrv.address, settings)
        rows = received()
        assert sorted(row["body"] for row in rows) == sorted(wanted)
        for row in rows:
            level = 1000 if row["body"].startswith("first") else 8000
            assert row["storeTimestamp"] - row["bornTimestamp"] >= level
