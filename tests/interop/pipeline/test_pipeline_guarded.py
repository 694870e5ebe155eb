"""The pipeline at Java brokers that ask for signatures, and at slaves of and under Java's: sink and source, without
Spark."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from benches.load.request import Target

from maxq.auth.info import UserInfo
from maxq.client.admin.access import custom_acl
from maxq.codes import RequestCode
from maxq.errors import BrokerError, PipelineError
from maxq.pipeline.options.read_options import ReadOptions
from maxq.pipeline.options.write_options import WriteOptions
from maxq.pipeline.sink.sink_task import SinkTask
from maxq.pipeline.source.batch_source import Conditions, plan_batch
from maxq.pipeline.source.stream_source import TopicStream
from maxq.pipeline.wire.wire_client import WireClient
from maxq.pipeline.wire.wire_reader import WireReader
from maxq.protocol.body.topic_config import TopicConfig
from tests.interop.operators.test_acl import ACL_2, ROOT, admin
from tests.interop.processes.ha_pair import MIXTURES, Mixture, Pair
from tests.interop.processes.java_driver import JavaDriver
from tests.interop.processes.servers import Broker, JavaBroker, JavaNamesrv, free_port_base, stopping, wait_until

pytestmark = pytest.mark.interop
COUNT = 300
COPY_SECONDS = 150  # a Java slave asks its master for its topics after a minute
CAROL = {"rocketmq.accessKey": "carol12", "rocketmq.secretKey": "carol-secret"}
BODIES = pa.array([b"%d" % n for n in range(COUNT)])


def read_options(namesrv: str, topic: str, *, streaming: bool = False, **given: str) -> ReadOptions:
    base = {"rocketmq.namesrv": namesrv, "subscribe": topic, "columns": "body", "rocketmq.brokerWait": "2s"}
    return ReadOptions.parse(base | given, streaming=streaming)


def read(options: ReadOptions) -> list[int]:
    reader = WireReader(options)
    parts = plan_batch(options, Conditions())
    return sorted(int(row["body"]) for part in parts for batch in reader.read(part.ranges) for row in batch.to_pylist())


def write(namesrv: str, topic: str, **given: str) -> int:
    base = {"rocketmq.namesrv": namesrv, "topic": topic, "batchBytes": "2k", "rocketmq.brokerWait": "2s"}
    return SinkTask(WriteOptions.parse(base | given), {"body": "body"}).run([pa.record_batch({"body": BODIES})]).rows


@pytest.fixture(scope="module")
def guarded(jars: Path, scratch: Path) -> Iterator[str]:
    """Address of the name server of a Java broker with access control; carol may write and read T as G.

    Reading takes Get beside Sub: where queues end is asked for."""

    async def prepare(namesrv: str, broker: str) -> None:
        async with admin(namesrv, ROOT) as there:
            for topic in ("T", "U"):
                await there.topics.create(broker, TopicConfig(topic, 4, 4))
            await there.access.create_user(broker, UserInfo("carol12", "carol-secret"))
            for resource, actions in (("Topic:T", ["Pub", "Sub", "Get"]), ("Group:G", ["Sub"])):
                entry = custom_acl("User:carol12", [resource], actions, [], "Allow")
                await there.access.create_acl(broker, entry)

    namesrv = JavaNamesrv(scratch / "acl-namesrv", free_port_base())
    broker = JavaBroker(scratch / "acl-broker", free_port_base())
    with stopping(broker, namesrv):
        namesrv.start(jars)
        broker.start(jars, namesrv.address, ACL_2)
        asyncio.run(prepare(namesrv.address, broker.address))
        yield namesrv.address


@pytest.mark.parametrize(
    "more", [{}, {"rocketmq.useTLS": "true", "rocketmq.tls.client.authServer": "false"}], ids=["plain", "tls"]
)
def test_signed_requests_write_and_read(guarded: str, more: dict[str, str]) -> None:
    before = read(read_options(guarded, "T", groupId="G", **CAROL, **more))
    assert write(guarded, "T", **CAROL, **more) == COUNT
    # A Java broker acknowledges before its queues have a message.
    wanted = sorted([*before, *range(COUNT)])
    wait_until(lambda: read(read_options(guarded, "T", groupId="G", **CAROL, **more)) == wanted, 20, "all rows")


def test_a_stream_commits_as_the_group_that_it_may_be(guarded: str) -> None:
    write(guarded, "T", **CAROL)
    options = read_options(guarded, "T", streaming=True, startingOffsets="earliest", groupId="G", **CAROL)
    stream, reader = TopicStream(options), WireReader(options)
    start = stream.initial_offset()
    end = stream.latest_offset(start, limited=False)
    rows = sum(batch.num_rows for part in stream.partitions(start, end) for batch in reader.read(part.ranges))
    assert rows >= COUNT
    stream.commit(end)
    stream.stop()
    heir = read_options(guarded, "T", startingOffsetsByGroup="G", groupId="G", **CAROL)
    assert read(heir) == []


@pytest.mark.parametrize(
    ("topic", "keys"),
    [
        ("T", {}),
        ("T", CAROL | {"rocketmq.secretKey": "wrong"}),
        ("U", CAROL),
    ],
    ids=["no key", "wrong secret", "no permission"],
)
def test_who_may_not_is_told_so(guarded: str, topic: str, keys: dict[str, Any]) -> None:
    with pytest.raises((PipelineError, BrokerError), match=r"(?i)signature|permission|acl|authenticat|null|denied"):
        write(guarded, topic, **keys)
    with pytest.raises((PipelineError, BrokerError), match=r"(?i)signature|permission|acl|authenticat|null|denied"):
        read(read_options(guarded, topic, groupId="G", **keys))


def served(broker: Broker) -> int:
    """Messages that this broker has given readers."""
    text = Target("127.0.0.1", broker.port).call(RequestCode.GET_BROKER_RUNTIME_INFO, {}).decode(errors="replace")
    return int(text.split('"msgGetTotalTodayNow":"')[1].split('"')[0])


@pytest.mark.parametrize("mixture", MIXTURES[:2], ids=str)
def test_slaves_are_read_if_that_is_wanted(mixture: Mixture, scratch: Path, jars: Path, driver: JavaDriver) -> None:
    """A Java slave of our master, and our slave of a Java master."""
    pair = Pair(mixture, scratch / str(mixture), jars, "SYNC_MASTER")
    try:
        pair.start(driver)
        assert write(pair.namesrv, "Slaves", **{"rocketmq.brokerWait": "60s"}) == COUNT
        pair.check_logs()
        with WireClient(read_options(pair.namesrv, "Slaves").connection) as client:
            wait_until(lambda: _has_slave(client, "Slaves"), 60, "the slave in the route")
        options = read_options(pair.namesrv, "Slaves", **{"readFrom": "slave", "rocketmq.brokerWait": "60s"})
        before = served(pair.slave)

        def slave_serves() -> bool:
            """A slave that does not know the topic yet leaves it to the master."""
            assert read(options) == [*range(COUNT)]
            return served(pair.slave) > before

        wait_until(slave_serves, COPY_SECONDS, "the slave serves")
        by_master = served(pair.master)
        assert read(options) == [*range(COUNT)]
        assert served(pair.master) == by_master
    finally:
        pair.stop()


def _has_slave(client: WireClient, topic: str) -> bool:
    route = client.route_data(topic)
    return route is not None and any(1 in broker.broker_addrs for broker in route.broker_datas)
