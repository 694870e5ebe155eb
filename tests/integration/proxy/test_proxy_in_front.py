"""A proxy that runs by itself, in front of brokers that know nothing of gRPC."""

import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from maxq.config.netty_server_config import NettyServerConfig
from maxq.config.proxy_config import ClusterProxyConfig, ProxyConfig
from maxq.config.settings import ProxySettings
from maxq.protocol.grpc import messages as pb
from maxq.proxy.cluster.controller import ProxyController
from maxq.runtime.files.system import SystemClock, SystemDisk, SystemRng
from maxq.standalone import StandaloneServer
from tests.integration.proxy.grpc_world import World

_SYSTEM = {"disk": SystemDisk(), "clock": SystemClock(), "rng": SystemRng()}
_BROKER = {"transactionTimeOut": "100", "transactionCheckInterval": "200"}


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    server = StandaloneServer(tmp_path, settings=_BROKER, **_SYSTEM)
    await server.start()
    world = World(server)
    settings = ProxySettings(
        ClusterProxyConfig(namesrv_addr=server.namesrv_address),
        ProxyConfig(
            grpc_server_port=0,
            min_invisible_time_mills_for_recv=500,
            grpc_client_consumer_min_long_polling_timeout_millis=0,
        ),
        NettyServerConfig(bind_address="127.0.0.1"),
    )
    proxy = ProxyController(settings, "proxy", **_SYSTEM)
    await proxy.start()
    world.address = f"127.0.0.1:{proxy.port}"
    yield world
    await proxy.shutdown()
    await world.close()


async def test_messages_go_through_it_both_ways(world: World) -> None:
    await world.topic("orders")
    client = world.client()
    await client.begin("orders", "g")
    sent = await client.send("orders", b"a", b"b", b"c", tag="t")
    assert [entry.status.code for entry in sent.entries] == [pb.Code.OK] * 3
    got: list[pb.Message] = []
    while len(got) < 3:
        got += await client.receive("orders", "g")
    assert sorted(message.body for message in got) == [b"a", b"b", b"c"]
    assert {message.system_properties.message_id for message in got} == {entry.message_id for entry in sent.entries}
    answer = await client.ack("orders", "g", *got)
    assert [entry.status.code for entry in answer.entries] == [pb.Code.OK] * 3
    assert [stored.tags for stored in await world.stored("orders")] == ["t"] * 3


async def test_it_knows_types_of_topics_and_settings_of_groups(world: World) -> None:
    await world.topic("steps", "FIFO", queues=1)
    await world.group("in-order", consume_message_orderly=True, retry_max_times=2)
    client = world.client()
    assert (await client.send("steps", b"x")).status.code == pb.Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE
    told = await client.say_settings(client.consumer_settings("in-order", "steps"))
    assert told.subscription.fifo and told.backoff_policy.max_attempts == 3
    beat = pb.HeartbeatRequest(group=pb.Resource(name="in-order"))
    assert (await client.call("Heartbeat", beat)).status.code == pb.Code.OK
    route = await client.call(
        "QueryRoute", pb.QueryRouteRequest(topic=pb.Resource(name="steps"), endpoints=client.endpoints)
    )
    assert [queue.broker.endpoints for queue in route.message_queues] == [client.endpoints]


async def test_what_does_not_exist_is_asked_for_again(world: World) -> None:
    client = world.client()
    assert (await client.send("late", b"x")).status.code == pb.Code.TOPIC_NOT_FOUND
    await world.topic("late")
    while (await client.send("late", b"x")).status.code != pb.Code.OK:
        pass


async def test_open_transactions_are_recovered_through_it(world: World) -> None:
    await world.topic("pays", "TRANSACTION")
    client = world.client()
    await client.say_settings(client.producer_settings("pays"))
    sent = await client.send("pays", b"x", message_type=pb.MessageType.TRANSACTION)
    assert sent.status.code == pb.Code.OK
    asked = (await client.commands.read()).recover_orphaned_transaction_command
    end = pb.EndTransactionRequest(
        topic=pb.Resource(name="pays"), transaction_id=asked.transaction_id, message_id=sent.entries[0].message_id,
        resolution=pb.TransactionResolution.COMMIT, source=pb.TransactionSource.SOURCE_SERVER_CHECK,
    )  # fmt: skip
    assert (await client.call("EndTransaction", end)).status.code == pb.Code.OK
    while not (stored := await world.stored("pays")):
        pass
    assert [each.body for each in stored] == [b"x"]


async def test_delays_acks_and_dead_letters_go_to_the_right_broker(world: World) -> None:
    await world.topic("later", "DELAY")
    client = world.client()
    await client.begin("later", "g")
    due = pb.Timestamp(seconds=int(time.time()) + 1)
    await client.send("later", b"x", delivery_timestamp=due, message_type=pb.MessageType.DELAY)
    (got,) = await client.receive("later", "g", long_polling_timeout=pb.Duration(seconds=10))
    forward = pb.ForwardMessageToDeadLetterQueueRequest(
        group=pb.Resource(name="g"), topic=pb.Resource(name="later"), message_id="m",
        receipt_handle=got.system_properties.receipt_handle,
    )  # fmt: skip
    assert (await client.call("ForwardMessageToDeadLetterQueue", forward)).status.code == pb.Code.OK
    assert [dead.body for dead in await world.stored("%DLQ%g")] == [b"x"]


async def test_a_broker_that_is_gone_is_told_and_comes_back(world: World) -> None:
    await world.topic("orders")
    client = world.client()
    assert (await client.send("orders", b"x")).status.code == pb.Code.OK
    await world.server.shutdown()
    assert (await client.send("orders", b"x")).status.code == pb.Code.INTERNAL_SERVER_ERROR
    await world.server.start()
    assert (await client.send("orders", b"y")).status.code == pb.Code.OK
