"""Slaves are read if that is wanted, and stand in for a master that is away."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from benches.load.request import RefusedError, Target

from maxq.api import Message, MessageQueue, Producer
from maxq.codes import RequestCode
from maxq.pipeline.options.read_options import ReadOptions
from maxq.pipeline.source.batch_source import Conditions, plan_batch
from maxq.pipeline.source.offsets import from_json
from maxq.pipeline.source.stream_source import TopicStream
from maxq.pipeline.wire.wire_client import WireClient
from maxq.pipeline.wire.wire_reader import WireReader
from tests.interop.processes.servers import MaxqBroker, MaxqNamesrv, free_port_base, wait_until

ROWS = 40
BOTH = {"slaveReadEnable": "true", "brokerIP2": "127.0.0.1"}


class Group:
    """One name server, a SYNC_MASTER and its slave."""

    def __init__(self, folder: Path) -> None:
        self.namesrv = MaxqNamesrv(folder / "namesrv", free_port_base())
        self.master = MaxqBroker(folder / "master", free_port_base())
        self.slave = MaxqBroker(folder / "slave", free_port_base())

    def start(self) -> None:
        self.namesrv.start()
        self.master.start(self.namesrv.address, BOTH | {"brokerRole": "SYNC_MASTER", "inSyncReplicas": "1"})
        self.slave.start(self.namesrv.address, BOTH | {"brokerRole": "SLAVE", "brokerId": "1"})
        with Producer("g", self.namesrv.address) as producer:
            for n in range(ROWS):
                producer.send(Message("T", b"%d" % n), queue=MessageQueue("T", "broker-a", 0))
        fields = {"topic": "T", "queueId": "0"}
        slave = Target("127.0.0.1", self.slave.port)
        wait_until(
            lambda: f'"offset":"{ROWS}"'.encode() in slave.call(RequestCode.GET_MAX_OFFSET, fields), 30, "a whole copy"
        )
        wait_until(self.slave_has_registered, 30, "the slave in the route")
        wait_until(self.slave_knows_the_topic, 30, "the master's table of topics; without it readers are sent away")

    def slave_has_registered(self) -> bool:
        with WireClient(options(self).connection) as client:
            route = client.route_data("T")
        return route is not None and any(1 in broker.broker_addrs for broker in route.broker_datas)

    def slave_knows_the_topic(self) -> bool:
        try:
            Target("127.0.0.1", self.slave.port).call(RequestCode.GET_TOPIC_CONFIG, {"topic": "T"})
        except RefusedError:
            return False
        return True

    def stop(self) -> None:
        for server in (self.slave, self.master, self.namesrv):
            server.stop()


@pytest.fixture(scope="module")
def group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Group]:
    running = Group(tmp_path_factory.mktemp("group"))
    try:
        running.start()
        yield running
    finally:
        running.stop()


def options(group: Group, *, streaming: bool = False, **more: str) -> ReadOptions:
    given = {"rocketmq.namesrv": group.namesrv.address, "subscribe": "T", "columns": "body"} | more
    return ReadOptions.parse(given, streaming=streaming)


def bodies(wanted: ReadOptions) -> list[bytes]:
    reader = WireReader(wanted)
    parts = plan_batch(wanted, Conditions())
    return [row["body"] for part in parts for batch in reader.read(part.ranges) for row in batch.to_pylist()]


def served(broker: MaxqBroker) -> int:
    """Messages that this broker has given readers."""
    answer = Target("127.0.0.1", broker.port).call(RequestCode.GET_BROKER_RUNTIME_INFO, {})
    text = answer.decode(errors="replace")
    return int(text.split('"msgGetTotalTodayNow":"')[1].split('"')[0])


def test_the_slave_is_read_if_that_is_wanted(group: Group) -> None:
    before = served(group.master), served(group.slave)
    assert bodies(options(group, readFrom="slave")) == [b"%d" % n for n in range(ROWS)]
    assert served(group.master) == before[0]
    assert bodies(options(group, readFrom="broker")) == [b"%d" % n for n in range(ROWS)]
    wait_until(lambda: served(group.slave) > before[1], 30, "the slave's count")


def test_the_slave_stands_in_for_a_master_that_is_away(group: Group) -> None:
    wanted = options(group, streaming=True, startingOffsets="earliest")
    stream = TopicStream(wanted, WireClient(wanted.connection, route_age_ms=0))
    start = stream.initial_offset()
    group.master.kill()
    end = stream.latest_offset(start, limited=False)
    assert from_json(end) == from_json(start) | {MessageQueue("T", "broker-a", 0): ROWS}
    reader = WireReader(wanted)
    parts = stream.partitions(start, end)
    assert sum(batch.num_rows for part in parts for batch in reader.read(part.ranges)) == ROWS
    assert stream.latest_offset(end, limited=False) == end
    stream.stop()
