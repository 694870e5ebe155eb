"""Pop consumption by Java's 5.5.0 clients at our broker and at Java's, and stores that go from one to the other."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from maxq.api import async_admin
from maxq.protocol.body.topic_config import TopicConfig
from tests.interop.processes.java_driver import JavaDriver
from tests.interop.processes.servers import (
    Broker,
    JavaBroker,
    MaxqBroker,
    MaxqNamesrv,
    free_port_base,
    stopping,
    wait_until,
)

pytestmark = pytest.mark.interop

SETTINGS = {"messageDelayLevel": "1s 1s 1s 1s 1s", "timerPrecisionMs": "100"}
COUNT = 20
POP_SECONDS = 120
HANDED_OVER_MS = 60_000  # a broker of the other kind has started before messages that were popped come again


class Place:
    """A name server of ours, a broker of either kind, and Java's calls to it."""

    def __init__(self, namesrv: str, broker: Broker, kind: str, driver: JavaDriver) -> None:
        self.namesrv, self.broker, self.kind, self._driver = namesrv, broker, kind, driver

    def call(self, op: str, topic: str, **arguments: Any) -> Any:
        options = {"address": self.broker.address, "topic": topic, "group": f"PG_{topic}", **arguments}
        return self._driver.call(op, **options)

    def topic(self, name: str, queues: int = 4) -> str:
        async def make() -> None:
            async with async_admin(self.namesrv) as admin:
                await admin.topics.create(self.broker.address, TopicConfig(name, queues, queues))

        asyncio.run(make())
        return name

    def pop_all(self, topic: str, count: int, **arguments: Any) -> list[dict[str, Any]]:
        """`count` messages, however many pops and polls it takes."""
        found: list[dict[str, Any]] = []

        def enough() -> bool:
            found.extend(self.call("pop", topic, pollMs=10_000, **arguments)["messages"])
            return len(found) >= count

        wait_until(enough, POP_SECONDS, f"{count} messages of {topic} came")
        return found


@pytest.fixture(scope="module", params=["ours", "java"])
def place(request: pytest.FixtureRequest, jars: Path, scratch: Path, driver: JavaDriver) -> Iterator[Place]:
    kind = request.param
    namesrv = MaxqNamesrv(scratch / f"{kind}-namesrv", free_port_base()).start()
    with stopping(namesrv):
        if kind == "java":
            broker: Broker = JavaBroker(scratch / kind, free_port_base()).start(jars, namesrv.address, SETTINGS)
        else:
            broker = MaxqBroker(scratch / kind, free_port_base()).start(namesrv.address, SETTINGS)
        with stopping(broker):
            yield Place(namesrv.address, broker, kind, driver)


def test_the_push_consumer_whose_queues_the_broker_assigns(place: Place, driver: JavaDriver) -> None:
    topic, group = place.topic("PopPush"), "CG_PopPush"
    place.call("pop", topic, group=group)  # the group is there
    driver.mqadmin(
        "setConsumeMode", "-n", place.namesrv, "-b", place.broker.address, "-t", topic, "-g", group, "-m", "POP",
        "-q", "0",
    )  # fmt: skip
    driver.send(place.namesrv, topic, COUNT)
    with driver.client("popConsumer", namesrv=place.namesrv, topic=topic, group=group, fail=["3", "7"]) as consumer:
        rows = driver.call("received", name=consumer, count=COUNT, seconds=60)
    assert sorted(row["properties"]["number"] for row in rows) == sorted(map(str, range(COUNT)))
    assert all(row["handle"] != "null" for row in rows)
    assert {row["properties"]["number"]: row["reconsumeTimes"] for row in rows}["3"] == 1
    assert {row["topic"] for row in rows} == {topic}


def test_pop_ack_batch_ack_and_change_of_invisible_time(place: Place, driver: JavaDriver) -> None:
    topic = place.topic("PopCalls")
    driver.send(place.namesrv, topic, COUNT)
    found = place.pop_all(topic, COUNT, invisibleMs=10_000)
    assert place.call("pop", topic)["status"] == "POLLING_NOT_FOUND"
    handles = [row["handle"] for row in found]
    assert place.call("ack", topic, handle=handles[0])["status"] == "OK"
    assert place.call("batchAck", topic, handles=handles[1:15])["status"] == "OK"
    changed = place.call("changeInvisibleTime", topic, handle=handles[15], invisibleMs=60_000)
    assert changed["status"] == "OK"
    back = place.pop_all(topic, 4)
    assert sorted(row["body"] for row in back) == sorted(row["body"] for row in found[16:])
    assert all(row["times"] == 1 and row["topic"] == topic for row in back)
    assert all(place.call("ack", topic, handle=row["handle"])["status"] == "OK" for row in back)
    assert place.call("ack", topic, handle=changed["handle"])["status"] == "OK"
    assert place.call("pop", topic)["status"] == "POLLING_NOT_FOUND"


def test_in_order_with_attempts(place: Place, driver: JavaDriver) -> None:
    topic = place.topic("PopOrder", 1)
    driver.send(place.namesrv, topic, 4)
    first = place.call("pop", topic, order=True, attemptId="a", count=2)["messages"]
    assert place.call("pop", topic, order=True, attemptId="b")["status"] == "POLLING_NOT_FOUND"
    again = place.call("pop", topic, order=True, attemptId="a", count=2)["messages"]
    assert [row["body"] for row in again] == [row["body"] for row in first]
    for row in again:
        assert place.call("ack", topic, handle=row["handle"])["status"] == "OK"
    assert len(place.call("pop", topic, order=True, attemptId="b")["messages"]) == 2


def test_notifications(place: Place, driver: JavaDriver) -> None:
    topic = place.topic("PopNotify")
    assert place.call("notification", topic) is False
    driver.send(place.namesrv, topic, 1)
    assert place.call("notification", topic, pollMs=5_000) is True


@pytest.mark.parametrize(("first", "second"), [("ours", "java"), ("java", "ours")])
def test_open_messages_come_back_when_the_store_goes_to_the_other_broker(
    first: str, second: str, jars: Path, scratch: Path, driver: JavaDriver
) -> None:
    folder, port = scratch / f"store-{first}", free_port_base()
    namesrv = MaxqNamesrv(scratch / f"{first}-store-namesrv", free_port_base()).start()

    def start(kind: str) -> Place:
        if kind == "java":
            broker: Broker = JavaBroker(folder, port).start(jars, namesrv.address, SETTINGS)
        else:
            broker = MaxqBroker(folder, port).start(namesrv.address, SETTINGS)
        return Place(namesrv.address, broker, kind, driver)

    topic = f"PopMoves{first}"
    with stopping(namesrv):
        place = start(first)
        with stopping(place.broker):
            place.topic(topic, 1)
            driver.send(place.namesrv, topic, 6)
            found = place.pop_all(topic, 6, invisibleMs=HANDED_OVER_MS)
            for row in found[:3]:
                place.call("ack", topic, handle=row["handle"])
            place.broker.stop()  # in order: until then Java's keeps some acknowledgements in memory
        place = start(second)
        with stopping(place.broker):
            wait_until(lambda: place.call("ack", topic, handle=found[3]["handle"])["status"] == "OK", 20, "an ack")
            back = place.pop_all(topic, 2) + place.call("pop", topic, pollMs=5_000)["messages"]
    assert sorted(row["body"] for row in back) == sorted(row["body"] for row in found[4:])
