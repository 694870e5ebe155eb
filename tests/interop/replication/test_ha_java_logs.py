"""Replication with RocketMQ's own broker at the other end, 5.5.0 and 5.3.3, either way round, SYNC and ASYNC: kill -9
and restart of both, and the two CommitLogs are byte for byte the same."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from maxq.protocol.message.message import decode_record
from tests.interop.conftest import or_skip
from tests.interop.processes import peers
from tests.interop.processes.ha_pair import MIXTURES, Pair, log_of
from tests.interop.processes.java_driver import JavaDriver
from tests.interop.processes.servers import Broker, wait_until

pytestmark = pytest.mark.interop
LOG_FILE = 4 << 20
SIZE = 4000  # larger ones are compressed
COUNT = 1200  # more than one file


@pytest.fixture(
    scope="module",
    params=[(mixture, role) for mixture in MIXTURES for role in ("SYNC_MASTER", "ASYNC_MASTER")],
    ids=lambda parameters: f"{parameters[0]}-{parameters[1].partition('_')[0].lower()}",
)
def pair(request: pytest.FixtureRequest, scratch: Path, driver: JavaDriver) -> Iterator[Pair]:
    """A master and its slave, linked."""
    mixture, role = request.param
    jars = or_skip(lambda: peers.rocketmq_jars(mixture.version))
    running = Pair(mixture, scratch / f"{mixture}-{role}", jars, role)
    try:
        yield running.start(driver)
    finally:
        running.stop()


def kill_in_the_middle(driver: JavaDriver, pair: Pair, victim: Broker) -> list[dict[str, Any]]:
    """What became of sends while `victim` was killed -9."""
    rows: list[dict[str, Any]] = []
    killed = threading.Event()

    def send() -> None:
        last = False
        while not last:
            last = killed.is_set()
            rows.extend(driver.send(pair.namesrv, "Load", 100, "async", size=SIZE))

    before = log_of(pair.master).end
    with ThreadPoolExecutor(1) as pool:
        sending = pool.submit(send)
        wait_until(lambda: log_of(pair.master).end > before + 40 * SIZE or sending.done(), 30, "messages arrive")
        victim.kill()
        killed.set()
        sending.result()
    return rows


def check_acknowledged(rows: list[dict[str, Any]], broker: Broker) -> int:
    """Each message with SEND_OK is in this broker's log where the answer said; how many these are."""
    log = log_of(broker)
    acknowledged = [row for row in rows if row.get("status") == "SEND_OK"]
    for row in acknowledged:
        place = int(row["offsetMsgId"][16:], 16)
        assert log.start <= place < log.end, (row, log.start, log.end)
        record = decode_record(log.between(place, log.end), check_crc=True)
        assert (record.properties["UNIQ_KEY"], record.queue_id, record.queue_offset) == (
            row["msgId"],
            row["queueId"],
            row["queueOffset"],
        )
    return len(acknowledged)


def test_everything_arrives_and_is_acknowledged(pair: Pair, driver: JavaDriver) -> None:
    rows = driver.send(pair.namesrv, "Load", COUNT, "async", size=SIZE)
    assert {row["status"] for row in rows} == {"SEND_OK"}
    if pair.role == "SYNC_MASTER":
        assert check_acknowledged(rows, pair.slave) == COUNT  # already there: nothing is waited for
    assert pair.check_logs() > LOG_FILE
    assert check_acknowledged(rows, pair.slave) == COUNT


def test_the_slave_is_killed_and_catches_up(pair: Pair, driver: JavaDriver) -> None:
    rows = kill_in_the_middle(driver, pair, pair.slave)
    check_acknowledged(rows, pair.master)
    if pair.role == "SYNC_MASTER":
        assert check_acknowledged(rows, pair.slave) < len(rows)
        assert {row.get("status") for row in rows} == {"SEND_OK", "FLUSH_SLAVE_TIMEOUT"}
    else:
        assert {row.get("status") for row in rows} == {"SEND_OK"}  # it waits for nobody
    pair.start_slave()
    pair.check_logs()
    again = driver.send(pair.namesrv, "Load", 20, size=SIZE)
    assert {row["status"] for row in again} == {"SEND_OK"}
    pair.check_logs()
    assert check_acknowledged(rows + again, pair.slave) >= 20


def test_the_master_is_killed_and_comes_back(pair: Pair, driver: JavaDriver) -> None:
    rows = kill_in_the_middle(driver, pair, pair.master)
    acknowledged = check_acknowledged(rows, pair.master)
    if pair.role == "SYNC_MASTER":
        assert check_acknowledged(rows, pair.slave) == acknowledged
    assert log_of(pair.slave).first_difference(log_of(pair.master)) is None
    pair.start_master()
    driver.send(pair.namesrv, "Load", 1, size=SIZE)  # the logs were equal: a new message tells that there is a link,
    pair.wait_for_link()  # and a Java slave connects again after 5 s, longer than slaveTimeout
    again = driver.send(pair.namesrv, "Load", 20, size=SIZE)
    assert {row["status"] for row in again} == {"SEND_OK"}
    pair.check_logs()
    assert check_acknowledged(rows + again, pair.slave) >= 20


def test_both_end_cleanly_and_start_again(pair: Pair, driver: JavaDriver) -> None:
    pair.slave.stop()
    pair.master.stop()
    pair.start_master()
    pair.start_slave()
    pair.join(driver)
    rows = driver.send(pair.namesrv, "Load", 20, size=SIZE)
    assert {row["status"] for row in rows} == {"SEND_OK"}
    pair.check_logs()
