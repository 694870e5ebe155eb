"""The part of interop that belongs to every test run: it needs Java and RocketMQ's jars (fetched once), and seconds."""

import base64
from collections.abc import Iterator
from pathlib import Path

import pytest

import maxq
from tests.interop.processes.java_driver import JavaDriver, read_store

COUNT = 30


@pytest.fixture(scope="module")
def standalone(jars: Path, scratch: Path) -> Iterator[maxq.Standalone]:
    """Our servers in this process; stopped by the last test."""
    running = maxq.Standalone(scratch / "store").start()
    yield running
    running.stop()


def test_java_client_sends_and_consumes(standalone: maxq.Standalone, driver: JavaDriver) -> None:
    sent = driver.send(standalone.namesrv_address, "Short", COUNT, tag="TagA")
    assert [row["status"] for row in sent] == ["SEND_OK"] * COUNT
    received = driver.consume(standalone.namesrv_address, "Short", COUNT)
    assert sorted(row["msgId"] for row in received) == sorted(row["msgId"] for row in sent)
    assert sorted(row["body"] for row in received) == sorted(f"Short|{number}|" for number in range(COUNT))


def test_mqadmin_sees_broker_topic_and_progress(standalone: maxq.Standalone, driver: JavaDriver) -> None:
    namesrv = ("-n", standalone.namesrv_address)
    assert standalone.broker_address in driver.mqadmin("topicRoute", "-t", "Short", *namesrv)
    assert "Consume Diff Total: 0" in driver.mqadmin("consumerProgress", "-g", "CG_Short", *namesrv)
    assert "Short-key-7" in driver.mqadmin("printMsg", "-t", "Short", *namesrv)


def test_java_store_opens_what_we_wrote(
    standalone: maxq.Standalone, jars: Path, java_classes: Path, scratch: Path
) -> None:
    standalone.stop()
    found = read_store(jars, java_classes, standalone.store, scratch / "reader")
    rows = [row for row in found["messages"] if row["topic"] == "Short"]
    assert all(row["foundByKey"] for row in rows)
    bodies = sorted(base64.b64decode(row["body"]).decode() for row in rows)
    assert bodies == sorted(f"Short|{number}|" for number in range(COUNT))
