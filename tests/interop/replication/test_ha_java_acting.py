"""enableSlaveActingMaster with RocketMQ's own broker at the other end: when the master dies its slave is shown in its
place, without the right to write, grants queue locks and hands back what was committed to it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from benches.load.request import RefusedError, Target

from maxq.protocol.body.route import TopicRouteData
from tests.interop.conftest import or_skip
from tests.interop.processes import peers
from tests.interop.processes.ha_pair import Mixture, Pair
from tests.interop.processes.java_driver import JavaDriver
from tests.interop.processes.servers import JavaBroker, MaxqBroker, MaxqNamesrv, wait_until
from tests.interop.replication.test_ha_java_readers import COPY_SECONDS, COUNT, READER, admin, bodies, committed

pytestmark = pytest.mark.interop
ACTING = {"enableSlaveActingMaster": "true"}
GET_ROUTEINFO_BY_TOPIC = 105
NOTICE_SECONDS = 30
PERM_READ, PERM_READ_WRITE = 4, 6


class ActingNamesrv(MaxqNamesrv):
    """One that shows a slave in its dead master's place."""

    def launch(self, command: list[str]) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        conf = self.folder / "namesrv.conf"
        conf.write_text("supportActingMaster=true\n")
        super().launch([*command, "-c", str(conf)])


MIXTURES = [
    Mixture(JavaBroker, MaxqBroker, ActingNamesrv, peers.ROCKETMQ_VERSION),
    Mixture(MaxqBroker, JavaBroker, ActingNamesrv, peers.ROCKETMQ_VERSION),
]


@pytest.fixture(scope="module", params=MIXTURES, ids=str)
def pair(request: pytest.FixtureRequest, scratch: Path, driver: JavaDriver) -> Iterator[Pair]:
    """A master and its slave, linked; of topic Read group CG_Read has consumed COUNT messages, and COUNT are left."""
    jars = or_skip(lambda: peers.rocketmq_jars(request.param.version))
    running = Pair(request.param, scratch / f"acting-{request.param}", jars, "ASYNC_MASTER", ACTING)
    try:
        running.start_namesrv()
        running.start_master()
        admin(driver, running, "updateTopic", "-c", "DefaultCluster", "-t", "Read", "-r", "4", "-w", "4")
        driver.send(running.namesrv, "Read", COUNT, "orderly", text="early")
        assert len(driver.consume(running.namesrv, "Read", COUNT)) == COUNT
        wait_until(lambda: committed(running.master) == COUNT, COPY_SECONDS, "the master knows the progress")
        driver.send(running.namesrv, "Read", COUNT, "orderly", text="late")
        running.start_slave()
        running.wait_for_link()
        wait_until(lambda: committed(running.slave) == COUNT, COPY_SECONDS, "the slave knows the progress")
        yield running
    finally:
        running.stop()


def shown(pair: Pair) -> tuple[dict[int, str], int]:
    """Brokers by id and the right to topic Read, as the name server says it; nothing while it knows no broker."""
    host, _, port = pair.namesrv.rpartition(":")
    try:
        frame = Target(host, int(port)).call(
            GET_ROUTEINFO_BY_TOPIC, {"topic": "Read", "acceptStandardJsonOnly": "true"}
        )
    except RefusedError:
        return {}, 0
    route = TopicRouteData.decode(frame[8 + (int.from_bytes(frame[4:8], "big") & 0xFFFFFF) :])
    return dict(route.broker_datas[0].broker_addrs), route.queue_datas[0].perm


def test_a_slave_acts_for_its_dead_master_and_steps_back(pair: Pair, driver: JavaDriver) -> None:
    master, slave = pair.master.address, pair.slave.address
    assert shown(pair) == ({0: master, 1: slave}, PERM_READ_WRITE)
    pair.master.kill()
    wait_until(lambda: shown(pair) == ({0: slave}, PERM_READ), NOTICE_SECONDS, "the slave is shown as the master")
    with driver.client("consumer", namesrv=pair.namesrv, orderly=True, **READER) as consumer:
        rows = driver.call("received", name=consumer, count=COUNT, seconds=60)
        assert sorted(row["body"] for row in rows) == bodies("late", COUNT)  # locks, offsets and messages: all there
    wait_until(lambda: committed(pair.slave) == 2 * COUNT, COPY_SECONDS, "the slave knows the progress")
    pair.start_master()
    back = {0: master, 1: slave}
    wait_until(lambda: shown(pair) == (back, PERM_READ_WRITE), COPY_SECONDS, "both are shown as what they are")
    wait_until(lambda: committed(pair.master) == 2 * COUNT, COPY_SECONDS, "the master knows the progress")
    driver.send(pair.namesrv, "Read", 5, text="after")
    with driver.client("consumer", namesrv=pair.namesrv, orderly=True, **READER) as consumer:
        rows = driver.call("received", name=consumer, count=5, seconds=60)
        assert sorted(row["body"] for row in rows) == bodies("after", 5)
