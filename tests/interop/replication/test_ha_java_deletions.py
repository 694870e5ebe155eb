"""A topic is deleted and made again in a pair of which one broker is Java's: what the slave's readers get."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from maxq.protocol.json.json_dialect import loads
from tests.integration.cli.harness import maxq
from tests.interop.conftest import or_skip
from tests.interop.processes import peers
from tests.interop.processes.ha_pair import MIXTURES, Pair, answer_of
from tests.interop.processes.java_driver import JavaDriver
from tests.interop.processes.servers import MaxqBroker, wait_until

pytestmark = pytest.mark.interop
OLD, NEW = 20, 8
GET_ALL_TOPIC_CONFIG = 21
COPY_SECONDS = 100  # a Java slave asks its master for the first time after a minute
QUEUES = 2  # each gets several messages of the new topic: a Java master leaves no other sign of its deletion


@pytest.fixture(scope="module", params=MIXTURES[:2], ids=str)
def pair(request: pytest.FixtureRequest, scratch: Path, driver: JavaDriver) -> Iterator[Pair]:
    jars = or_skip(lambda: peers.rocketmq_jars(request.param.version))
    running = Pair(request.param, scratch / str(request.param), jars, "SYNC_MASTER")
    try:
        yield running.start(driver)
    finally:
        running.stop()


def admin(pair: Pair, *arguments: str) -> None:
    done = maxq("admin", *arguments, "-n", pair.namesrv, "-c", "DefaultCluster")
    assert done.code == 0, done.err


def make(pair: Pair, topic: str) -> None:
    admin(pair, "updateTopic", "-t", topic, "-r", str(QUEUES), "-w", str(QUEUES))


def has_masters_topics(pair: Pair) -> bool:
    """A topic that was made again looks as it did before: the version of the whole table tells."""
    answers = [answer_of(broker, GET_ALL_TOPIC_CONFIG) for broker in (pair.master, pair.slave)]
    if not all(answers):
        return False
    master, slave = (loads(answer)["dataVersion"] for answer in answers)
    return bool(master == slave)


def test_the_slaves_readers_get_the_new_topic_only(pair: Pair, driver: JavaDriver) -> None:
    make(pair, "Again")
    driver.send(pair.namesrv, "Again", OLD, "orderly", text="old")
    admin(pair, "deleteTopic", "-t", "Again", "--yes")
    make(pair, "Again")
    driver.send(pair.namesrv, "Again", NEW, "orderly", text="new")
    if isinstance(pair.slave, MaxqBroker):
        make(pair, "Gone")
        driver.send(pair.namesrv, "Gone", OLD, "orderly", text="old")
        assert "success" in driver.mqadmin("deleteTopic", "-n", pair.namesrv, "-c", "DefaultCluster", "-t", "Gone")
        make(pair, "Gone")
        driver.send(pair.namesrv, "Gone", NEW, "orderly", text="new")
    pair.check_logs()

    wait_until(lambda: has_masters_topics(pair), COPY_SECONDS, "the slave has the master's topics as they are at last")
    pair.master.stop()
    topics = ["Again", "Gone"] if isinstance(pair.slave, MaxqBroker) else ["Again"]
    try:
        for topic in topics:
            rows = driver.consume(pair.namesrv, topic, NEW, group=f"CG_{topic}_at_slave")
            assert sorted(row["body"] for row in rows) == sorted(f"new|{number}|" for number in range(NEW)), topic
    finally:
        pair.start_master()
    pair.join(driver)
    rows = driver.consume(pair.namesrv, "Again", NEW, group="CG_again_at_master")
    assert sorted(row["body"] for row in rows) == sorted(f"new|{number}|" for number in range(NEW))
