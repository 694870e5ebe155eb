"""Stores go from one broker to the other: every message is found, whichever wrote it, after a clean stop and a kill."""

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from maxq.protocol.json import json_dialect
from tests.integration.cli.harness import maxq
from tests.interop.conftest import Deployment
from tests.interop.processes.java_driver import JavaDriver, read_store
from tests.interop.processes.servers import SETTINGS, JavaBroker, MaxqBroker, MaxqNamesrv, free_port_base

pytestmark = pytest.mark.interop
COUNT = 300
SIZE = 20_000  # with files of 4 MiB the log rolls over
STORE_SETTINGS = [f"{name}={SETTINGS[name]}" for name in SETTINGS if name.startswith(("mappedFileSize", "max"))]


@pytest.fixture
def ours(jars: Path, tmp_path: Path) -> Iterator[Deployment]:
    """Our name server and broker, on a store of their own."""
    running = Deployment("ours", tmp_path, jars)
    try:
        yield running.start()
    finally:
        running.stop()


def expected_bodies(topic: str, count: int = COUNT, size: int = SIZE) -> list[str]:
    return sorted(f"{topic}|{number}|".ljust(size, "x") for number in range(count))


def fill(driver: JavaDriver, namesrv: str, topic: str) -> list[str]:
    """COUNT acknowledged messages; their ids."""
    sent = driver.send(namesrv, topic, COUNT, size=SIZE, tag="TagA")
    assert [row["status"] for row in sent] == ["SEND_OK"] * COUNT
    return [row["msgId"] for row in sent]


def bodies_read_by_java(found: dict[str, Any], topic: str) -> list[str]:
    rows = [row for row in found["messages"] if row["topic"] == topic]
    assert all(row["foundByKey"] for row in rows)
    return sorted(base64.b64decode(row["body"]).decode() for row in rows)


@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])
def test_java_store_reads_what_our_broker_wrote(
    ours: Deployment, driver: JavaDriver, jars: Path, java_classes: Path, tmp_path: Path, clean: bool
) -> None:
    fill(driver, ours.namesrv, "Written")
    if clean:
        ours.broker.stop()
    else:
        ours.broker.kill()
    found = read_store(jars, java_classes, ours.broker.store, tmp_path / "reader", *STORE_SETTINGS)
    assert found["aborted"] is not clean
    assert bodies_read_by_java(found, "Written") == expected_bodies("Written")


def test_java_broker_takes_over_our_store_and_we_take_it_back(
    ours: Deployment, driver: JavaDriver, jars: Path, tmp_path: Path
) -> None:
    """The whole way round on one store: ours, Java's, ours. Messages, topics, groups and offsets stay."""
    namesrv = ours.namesrv
    fill(driver, namesrv, "Round")
    options = {"namesrv": namesrv, "topic": "Round", "group": "CG_round", "expression": "*"}
    with driver.client("consumer", **options) as consumer:
        assert len(driver.call("received", name=consumer, count=COUNT, seconds=60)) == COUNT
    ours.broker.stop()

    java = JavaBroker(ours.broker.folder, ours.broker.port).start(jars, namesrv)
    try:
        received = driver.consume(namesrv, "Round", COUNT, group="CG_all_from_java")
        assert sorted(row["body"] for row in received) == expected_bodies("Round")
        sent = driver.send(namesrv, "Round", 10, text="java")
        with driver.client("consumer", **options) as consumer:  # goes on where it was with our broker
            rows = driver.call("received", name=consumer, count=10, seconds=60)
        assert sorted(row["body"] for row in rows) == sorted(f"java|{number}|" for number in range(10))
    finally:
        java.stop()

    ours.start_broker()
    received = driver.consume(namesrv, "Round", COUNT + 10, group="CG_all_from_ours")
    assert sorted(row["body"] for row in received) == sorted(
        expected_bodies("Round") + [f"java|{number}|" for number in range(10)]
    )
    assert {row["msgId"] for row in received} >= {row["msgId"] for row in sent}
    driver.send(namesrv, "Round", 5, text="again")
    with driver.client("consumer", **options) as consumer:
        rows = driver.call("received", name=consumer, count=5, seconds=60)
    assert sorted(row["body"] for row in rows) == sorted(f"again|{number}|" for number in range(5))


def test_a_java_broker_passes_over_what_our_table_of_offsets_says_beside_them(
    ours: Deployment, driver: JavaDriver, jars: Path
) -> None:
    """`deletions` and `operators` (docs/explanation/differences.md): the offsets count, and Java writes neither."""
    namesrv = ours.namesrv
    fill(driver, namesrv, "Marks")
    options = {"namesrv": namesrv, "topic": "Marks", "group": "CG_marks", "expression": "*"}
    with driver.client("consumer", **options) as consumer:
        assert len(driver.call("received", name=consumer, count=COUNT, seconds=60)) == COUNT
    ours.broker.stop()
    path = ours.broker.store / "config" / "consumerOffset.json"
    said = json_dialect.loads(path.read_bytes())
    said.update({"deletions": {"upTo": 77}, "operators": {"upTo": 123}})
    path.write_bytes(json_dialect.dumps_pretty(said))
    java = JavaBroker(ours.broker.folder, ours.broker.port).start(jars, namesrv)
    try:
        driver.send(namesrv, "Marks", 10, text="java")
        with driver.client("consumer", **options) as consumer:
            rows = driver.call("received", name=consumer, count=10, seconds=60)
        assert sorted(row["body"] for row in rows) == expected("java", 10)
    finally:
        java.stop()
    written = json_dialect.loads(path.read_bytes())
    assert sum(written["offsetTable"]["Marks@CG_marks"].values()) == COUNT + 10
    assert not {"deletions", "operators"} & written.keys()


def test_we_recover_a_store_whose_java_broker_was_killed(driver: JavaDriver, jars: Path, tmp_path: Path) -> None:
    namesrv = MaxqNamesrv(tmp_path / "namesrv", free_port_base()).start()
    try:
        java = JavaBroker(tmp_path / "broker", free_port_base()).start(jars, namesrv.address)
        ids = fill(driver, namesrv.address, "Killed")
        java.kill()
        rehearsed = maxq("store", "rehearse", str(java.store))
        assert rehearsed.code == 0, rehearsed.out + rehearsed.err
        listed = maxq("store", "messages", str(java.store), "--json")
        rows = [json.loads(line) for line in listed.out.splitlines()]
        assert sorted(row["uniqKey"] for row in rows if row["topic"] == "Killed") == sorted(ids)
        ours = MaxqBroker(java.folder, java.port).start(namesrv.address)
        try:
            received = driver.consume(namesrv.address, "Killed", COUNT)
            assert sorted(row["body"] for row in received) == expected_bodies("Killed")
            found = driver.mqadmin("queryMsgByKey", "-n", namesrv.address, "-t", "Killed", "-k", "Killed-key-17")
            assert ids[0][:20] in found
        finally:
            ours.stop()
    finally:
        namesrv.stop()


@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])
def test_a_java_broker_takes_over_a_store_with_deleted_topics_and_deletes_some_itself(
    ours: Deployment, driver: JavaDriver, jars: Path, clean: bool
) -> None:
    """The record that deletes a topic is nothing to Java: it goes on with the new topic, and so do we behind it. Nor do
    we need one of Java's: where each queue of its new topic has more than one message, we see that it begins anew."""
    namesrv, cluster = ours.namesrv, SETTINGS["brokerClusterName"]
    driver.send(namesrv, "Again", 20, text="old")
    driver.send(namesrv, "Theirs", 20, text="old")
    done = maxq("admin", "deleteTopic", "-n", namesrv, "-c", cluster, "-t", "Again", "--yes")
    assert done.code == 0, done.err
    driver.send(namesrv, "Again", 10, text="new")
    ours.broker.stop()
    java = JavaBroker(ours.broker.folder, ours.broker.port).start(jars, namesrv)
    try:
        received = driver.consume(namesrv, "Again", 10, group="CG_java")
        assert sorted(row["body"] for row in received) == expected("new", 10)
        assert "success" in driver.mqadmin("deleteTopic", "-n", namesrv, "-c", cluster, "-t", "Theirs")
        driver.mqadmin("updateTopic", "-n", namesrv, "-c", cluster, "-t", "Theirs", "-r", "2", "-w", "2")
        driver.send(namesrv, "Theirs", 10, "orderly", text="java")
        driver.send(namesrv, "Again", 5, text="java")
    finally:
        if clean:
            java.stop()
        else:
            java.kill()
    for number in range(2):  # a store that Java left, and one that we left
        ours.start_broker()
        received = driver.consume(namesrv, "Again", 15, group=f"CG_ours_{number}")
        assert sorted(row["body"] for row in received) == sorted(expected("new", 10) + expected("java", 5))
        received = driver.consume(namesrv, "Theirs", 10, group=f"CG_ours_{number}")
        assert sorted(row["body"] for row in received) == expected("java", 10)
        if clean or number:
            ours.broker.stop()
        else:
            ours.broker.kill()


def expected(text: str, count: int) -> list[str]:
    return sorted(f"{text}|{number}|" for number in range(count))
