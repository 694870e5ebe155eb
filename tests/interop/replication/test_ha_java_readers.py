"""What a slave is for, with RocketMQ's own broker at the other end: it knows its master's topics, groups and offsets,
and Java consumers read on from either broker after the other died."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from maxq.protocol.json.json_dialect import loads
from tests.integration.cli.harness import maxq
from tests.interop.conftest import or_skip
from tests.interop.processes import peers
from tests.interop.processes.ha_pair import MIXTURES, Pair, answer_of, log_of
from tests.interop.processes.java_driver import JavaDriver
from tests.interop.processes.servers import Broker, wait_until

pytestmark = pytest.mark.interop
COUNT = 40
GET_ALL_TOPIC_CONFIG, GET_ALL_CONSUMER_OFFSET, GET_ALL_SUBSCRIPTIONGROUP_CONFIG = 21, 43, 201
COPY_SECONDS = 100  # a Java slave asks its master for the first time after a minute
READER = {"topic": "Read", "group": "CG_Read", "expression": "*"}


@pytest.fixture(scope="module", params=MIXTURES, ids=str)
def pair(request: pytest.FixtureRequest, scratch: Path, driver: JavaDriver) -> Iterator[Pair]:
    """A master and its slave, linked; topic Read of 4 queues, group CG_Read has consumed its COUNT messages."""
    jars = or_skip(lambda: peers.rocketmq_jars(request.param.version))
    running = Pair(request.param, scratch / str(request.param), jars, "SYNC_MASTER")
    try:
        running.start(driver)
        admin(driver, running, "updateTopic", "-c", "DefaultCluster", "-t", "Read", "-r", "4", "-w", "4")
        admin(driver, running, "updateSubGroup", "-c", "DefaultCluster", "-g", "CG_Read", "-r", "5")
        driver.send(running.namesrv, "Read", COUNT, "orderly", text="early")
        assert len(driver.consume(running.namesrv, "Read", COUNT)) == COUNT
        yield running
    finally:
        running.stop()


def admin(driver: JavaDriver, pair: Pair, command: str, *arguments: str) -> str:
    text = driver.mqadmin(command, "-n", pair.namesrv, *arguments)
    assert "Exception" not in text, text
    return text


def table(broker: Broker, code: int, name: str) -> dict[str, Any]:
    """What the broker itself answers; empty while it does not."""
    body = answer_of(broker, code)
    return dict(loads(body)[name]) if body else {}


def in_file(broker: Broker, file: str, name: str) -> dict[str, Any]:
    """What the broker has saved; empty while it has not."""
    path = broker.store / "config" / file
    return dict(loads(path.read_bytes())[name]) if path.exists() else {}


def committed(broker: Broker) -> int:
    """How many messages CG_Read has consumed, says the broker."""
    return sum(table(broker, GET_ALL_CONSUMER_OFFSET, "offsetTable").get("Read@CG_Read", {}).values())


def bodies(text: str, count: int) -> list[str]:
    return sorted(f"{text}|{number}|" for number in range(count))


def test_ha_status_tells_of_the_slave(pair: Pair, driver: JavaDriver) -> None:
    """mqadmin prints what either master says; ours prints the same of a Java master."""
    pair.check_logs()
    end = log_of(pair.master).end
    text = admin(driver, pair, "haStatus", "-b", pair.master.address)
    assert f"#MasterAddr\t{pair.master.address}" in text
    assert f"#MasterCommitLogMaxOffset\t{end}" in text
    assert "#SlaveNum\t1" in text and "#InSyncSlaveNum\t1" in text
    assert re.search(rf"127\.0\.0\.1:\d+\s+{end}\s+0\s+[\d.]+\s+OK\s+{end}\b", text), text
    ours = maxq("admin", "haStatus", "-n", pair.namesrv, "-b", pair.master.address)
    assert ours.code == 0 and str(end) in ours.out, ours.out + ours.err
    of_slave = admin(driver, pair, "haStatus", "-b", pair.slave.address)
    assert f"#CommitLogMaxOffset\t{end}" in of_slave


def test_topics_groups_and_offsets_are_copied(pair: Pair) -> None:
    slave, master = pair.slave, pair.master
    wanted = table(master, GET_ALL_CONSUMER_OFFSET, "offsetTable")["Read@CG_Read"]
    assert sum(wanted.values()) == COUNT

    def copied() -> bool:
        offsets = table(slave, GET_ALL_CONSUMER_OFFSET, "offsetTable")
        return bool(offsets.get("Read@CG_Read") == wanted)

    wait_until(copied, COPY_SECONDS, f"the slave has the offsets: {slave.log_tail()}")
    topic = table(slave, GET_ALL_TOPIC_CONFIG, "topicConfigTable")["Read"]
    assert (topic["readQueueNums"], topic["writeQueueNums"], topic["perm"]) == (4, 4, 6)
    groups = "subscriptionGroupTable"

    def group() -> dict[str, Any]:
        return dict(table(slave, GET_ALL_SUBSCRIPTIONGROUP_CONFIG, groups).get("CG_Read", {}))

    # Last in Java's round; until then a Java slave has a group of its own making, from the consumer's heartbeat.
    wait_until(lambda: group().get("retryMaxTimes") == 5, COPY_SECONDS, "the slave has the group")
    found = group()
    for file, name, key, copy in (
        ("topics.json", "topicConfigTable", "Read", topic),
        ("subscriptionGroup.json", groups, "CG_Read", found),
        ("consumerOffset.json", "offsetTable", "Read@CG_Read", wanted),
    ):
        wait_until(lambda: in_file(slave, file, name).get(key) == copy, COPY_SECONDS, f"{key} is in {file}")  # noqa: B023
    theirs, ours = (table(broker, GET_ALL_TOPIC_CONFIG, "topicConfigTable") for broker in (master, slave))
    assert set(theirs) <= set(ours)


def test_consumers_go_on_at_the_slave_when_the_master_dies_and_stay_when_it_is_back(
    pair: Pair, driver: JavaDriver
) -> None:
    rows = driver.send(pair.namesrv, "Read", COUNT, text="late")
    assert [row["status"] for row in rows] == ["SEND_OK"] * COUNT
    pair.master.kill()
    try:
        with driver.client("consumer", namesrv=pair.namesrv, **READER) as consumer:  # knows no master at all
            rows = driver.call("received", name=consumer, count=COUNT, seconds=60)
            assert sorted(row["body"] for row in rows) == bodies("late", COUNT)  # none of those it had before
            everything = driver.consume(pair.namesrv, "Read", 2 * COUNT, group="CG_New")
            assert sorted(row["body"] for row in everything) == sorted(bodies("early", COUNT) + bodies("late", COUNT))
            pair.start_master()
            pair.join(driver)
            driver.send(pair.namesrv, "Read", 5, text="after")
            rows = driver.call("received", name=consumer, count=COUNT + 5, seconds=60)
            assert sorted(row["body"] for row in rows) == sorted(bodies("late", COUNT) + bodies("after", 5))
            # The client hears of the master within 30 s; until then it commits to the slave, and only ours hands it on.
            wait_until(lambda: committed(pair.master) == 2 * COUNT + 5, COPY_SECONDS, "the master knows the progress")
        driver.send(pair.namesrv, "Read", 5, text="again")
        with driver.client("consumer", namesrv=pair.namesrv, **READER) as consumer:  # its progress is the master's
            rows = driver.call("received", name=consumer, count=5, seconds=60)
            assert sorted(row["body"] for row in rows) == bodies("again", 5)
            # What its listener had just got when it is closed would come again.
            wait_until(lambda: committed(pair.master) == 2 * COUNT + 10, COPY_SECONDS, "the master knows the progress")
    finally:
        if pair.master.process is None:
            pair.start_master()


def test_consumers_go_on_at_the_master_when_the_slave_dies(pair: Pair, driver: JavaDriver) -> None:
    with driver.client("consumer", namesrv=pair.namesrv, **READER) as consumer:
        driver.send(pair.namesrv, "Read", 5, text="with")
        assert len(driver.call("received", name=consumer, count=5, seconds=60)) == 5
        pair.slave.kill()
        rows = driver.send(pair.namesrv, "Read", 5, "async", text="without")
        assert {row["status"] for row in rows} == {"FLUSH_SLAVE_TIMEOUT"}
        rows = driver.call("received", name=consumer, count=10, seconds=60)
        assert sorted(row["body"] for row in rows) == sorted(bodies("with", 5) + bodies("without", 5))
    pair.start_slave()
    pair.check_logs()
