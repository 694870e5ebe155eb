"""`maxq proxy` in front of RocketMQ's own broker and name server."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from maxq.aio import Admin
from maxq.protocol.body.subscription import SubscriptionGroupConfig
from maxq.protocol.body.topic_config import TopicConfig
from maxq.protocol.grpc import messages as pb
from tests.integration.proxy.grpc_world import GrpcClient
from tests.interop.conftest import Deployment
from tests.interop.processes.servers import free_port_base

pytestmark = pytest.mark.interop


@pytest.fixture(scope="module")
def java(jars: Path, scratch: Path) -> Iterator[Deployment]:
    running = Deployment("all-java", scratch / "all-java", jars)
    try:
        yield running.start({"transactionTimeOut": "500", "transactionCheckInterval": "1000"})
    finally:
        running.stop()


@pytest.fixture(scope="module")
def proxy(java: Deployment) -> Iterator[str]:
    """The address of the proxy."""
    port = free_port_base()
    command = [sys.executable, "-m", "maxq", "proxy", "-n", java.namesrv, "-p", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        assert '"event": "ready"' in process.stdout.readline()
        yield f"127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(60)
        process.stdout.close()


async def _make(java: Deployment, topic: str, message_type: str, group: str) -> None:
    async with Admin(java.namesrv) as admin:
        config = TopicConfig(topic, 4, 4, attributes={"+message.type": message_type})
        for cluster in (await admin.cluster_info()).cluster_addr_table:
            await admin.topics.create_in_cluster(cluster, config)
            await admin.groups.create_in_cluster(cluster, SubscriptionGroupConfig(group))


async def _take(client: GrpcClient, topic: str, group: str, count: int) -> list[pb.Message]:
    got: list[pb.Message] = []
    while len(got) < count:
        got += await client.receive(topic, group)
    return got


async def test_messages_go_to_a_java_broker_and_back(java: Deployment, proxy: str) -> None:
    await _make(java, "normal", "NORMAL", "g-normal")
    client = GrpcClient(proxy, "client")
    await client.receive("normal", "g-normal")
    sent = await client.send("normal", b"a", b"b", b"c", tag="t", keys=["k"], properties={"colour": "green"})
    assert [entry.status.code for entry in sent.entries] == [pb.Code.OK] * 3
    got = await _take(client, "normal", "g-normal", 3)
    assert sorted(message.body for message in got) == [b"a", b"b", b"c"]
    assert {message.system_properties.message_id for message in got} == {entry.message_id for entry in sent.entries}
    for message in got:
        assert (message.system_properties.tag, dict(message.user_properties)) == ("t", {"colour": "green"})
    answer = await client.ack("normal", "g-normal", *got)
    assert [entry.status.code for entry in answer.entries] == [pb.Code.OK] * 3
    await client.close()


async def test_transactions_at_a_java_broker_end_also_when_their_producer_is_asked(
    java: Deployment, proxy: str
) -> None:
    await _make(java, "pays", "TRANSACTION", "g-pays")
    client = GrpcClient(proxy, "producer")
    await client.receive("pays", "g-pays")
    await client.say_settings(client.producer_settings("pays"))
    sent = await client.send("pays", b"x", message_type=pb.MessageType.TRANSACTION)
    assert sent.status.code == pb.Code.OK
    asked = (await client.commands.read()).recover_orphaned_transaction_command
    assert asked.message.body == b"x"
    end = pb.EndTransactionRequest(
        topic=pb.Resource(name="pays"), transaction_id=asked.transaction_id, message_id=sent.entries[0].message_id,
        resolution=pb.TransactionResolution.COMMIT, source=pb.TransactionSource.SOURCE_SERVER_CHECK,
    )  # fmt: skip
    assert (await client.call("EndTransaction", end)).status.code == pb.Code.OK
    (got,) = await _take(client, "pays", "g-pays", 1)
    assert got.body == b"x"
    await client.close()
