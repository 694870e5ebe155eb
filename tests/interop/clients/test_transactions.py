"""Transactions in every direction: Java's producer and ours on Java's broker and ours, and stores that change hands."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from maxq.api import LocalTransactionState, Message, MessageExt, async_transaction_producer
from tests.interop.processes.java_driver import JavaDriver
from tests.interop.processes.servers import JavaBroker, MaxqBroker, MaxqNamesrv, free_port_base

pytestmark = pytest.mark.interop

#: Short, for Java's first round of checks comes after one interval.
CHECKS = {"transactionTimeOut": "1000", "transactionCheckInterval": "1500", "transactionOpBatchInterval": "300"}
NO_CHECKS = {"transactionTimeOut": "3600000", "transactionCheckInterval": "3600000"}
TEXTS = ["c-committed", "r-rolled back", "uc-committed when asked", "ur-rolled back when asked"]
DELIVERED = ["c-committed", "uc-committed when asked"]
STATE = {"c": LocalTransactionState.COMMIT_MESSAGE, "r": LocalTransactionState.ROLLBACK_MESSAGE}


@pytest.fixture(scope="module")
def namesrv(scratch: Path) -> Iterator[str]:
    server = MaxqNamesrv(scratch / "namesrv", free_port_base())
    server.start()
    yield server.address
    server.stop()


def start(broker: MaxqBroker | JavaBroker, jars: Path, namesrv: str, settings: dict[str, str]) -> None:
    if isinstance(broker, JavaBroker):
        broker.start(jars, namesrv, settings)
    else:
        broker.start(namesrv, settings)


@pytest.fixture(scope="module", params=[MaxqBroker, JavaBroker], ids=["our-broker", "java-broker"])
def broker(
    request: pytest.FixtureRequest, jars: Path, scratch: Path, namesrv: str
) -> Iterator[MaxqBroker | JavaBroker]:
    running = request.param(scratch / request.param.__name__, free_port_base())
    start(running, jars, namesrv, CHECKS)
    yield running
    running.discard()


class Local:
    """As Transactions.java."""

    def __init__(self) -> None:
        self.checked: list[MessageExt] = []

    def execute_local_transaction(self, message: Message, arg: Any) -> LocalTransactionState | None:
        return STATE.get(chr(message.body[0]))

    def check_local_transaction(self, message: MessageExt) -> LocalTransactionState | None:
        self.checked.append(message)
        return STATE.get(chr(message.body[1]))


def bodies(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(row["body"] for row in rows)


def test_java_producer(broker: MaxqBroker | JavaBroker, driver: JavaDriver, namesrv: str) -> None:
    topic = f"TxJava{type(broker).__name__}"
    with driver.client("transactionProducer", group="TxJavaGroup", namesrv=namesrv) as producer:
        sent = driver.call("sendInTransaction", name=producer, topic=topic, texts=TEXTS)
        assert [row["state"] for row in sent] == ["COMMIT_MESSAGE", "ROLLBACK_MESSAGE", "UNKNOW", "UNKNOW"]
        asked = driver.call("received", name=producer, count=2, seconds=60)
        received = driver.consume(namesrv, topic, 2)
        again = driver.call("received", name=producer, count=3, seconds=5)
    assert bodies(received) == DELIVERED
    assert bodies(asked) == bodies(again) == TEXTS[2:], "each was asked for once"
    ids = {row["msgId"] for row in sent}
    for row in received:
        assert row["properties"]["UNIQ_KEY"] in ids
        assert row["properties"]["TRAN_MSG"] == "true"
        assert row["properties"]["PGROUP"] == "TxJavaGroup"
    for row in asked:
        assert row["topic"] == topic
        assert row["properties"]["TRANSACTION_CHECK_TIMES"] == "1"


async def test_our_producer(broker: MaxqBroker | JavaBroker, driver: JavaDriver, namesrv: str) -> None:
    topic, local = f"TxOurs{type(broker).__name__}", Local()
    async with async_transaction_producer("TxOurGroup", namesrv, local) as producer:
        for text in TEXTS:
            result = await producer.send_message_in_transaction(Message(topic, text.encode()))
            assert result.end_error is None
        received = await asyncio.to_thread(driver.consume, namesrv, topic, 2)
        async with asyncio.timeout(60):
            while len(local.checked) < 2:  # noqa: ASYNC110 - the listener is asked on a thread
                await asyncio.sleep(0.01)
    assert bodies(received) == DELIVERED
    assert sorted(message.body.decode() for message in local.checked) == TEXTS[2:]
    assert {message.topic for message in local.checked} == {topic}


@pytest.mark.parametrize(
    ("first", "second"), [(JavaBroker, MaxqBroker), (MaxqBroker, JavaBroker)], ids=["java-then-ours", "ours-then-java"]
)
def test_transactions_in_flight_go_on_when_the_store_changes_hands(
    first: type[MaxqBroker | JavaBroker],
    second: type[MaxqBroker | JavaBroker],
    driver: JavaDriver,
    jars: Path,
    namesrv: str,
    scratch: Path,
) -> None:
    folder, topic, port = scratch / f"hands-{first.__name__}", f"TxHands{first.__name__}", free_port_base()
    with driver.client("transactionProducer", group="TxHandsGroup", namesrv=namesrv) as producer:
        before, after = first(folder, port), second(folder, port)
        start(before, jars, namesrv, {**NO_CHECKS, "brokerName": "broker-hands", "transactionOpBatchInterval": "300"})
        try:
            driver.mqadmin("updateTopic", "-n", namesrv, "-b", before.address, "-t", topic, "-r", "2", "-w", "2")
            driver.call("sendInTransaction", name=producer, topic=topic, texts=TEXTS * 3)
        finally:
            before.stop()
        start(after, jars, namesrv, {**CHECKS, "brokerName": "broker-hands"})
        try:
            received = driver.consume(namesrv, topic, 6)
            asked = driver.call("received", name=producer, count=6, seconds=60)
        finally:
            after.discard()
    assert bodies(received) == sorted(DELIVERED * 3)
    assert bodies(asked) == sorted(TEXTS[2:] * 3)
