"""Access control: who makes a call is told by its metadata, and what they may do by the rules for all clients."""

import asyncio
import hashlib
import hmac

import grpc
import pytest

from maxq.protocol.grpc import messages as pb
from tests.integration.access.world import ACL_2
from tests.integration.proxy.conftest import StartWorld
from tests.integration.proxy.grpc_world import GrpcClient, World


def signed_by(user: str, secret: str, date_time: str = "20260101T000000Z") -> list[tuple[str, str]]:
    """The metadata of a client that signs its calls."""
    signature = hmac.new(secret.encode(), date_time.encode(), hashlib.sha1).hexdigest().upper()
    text = f"MQv2-HMAC-SHA1 Credential={user}//RocketMQ, SignedHeaders=x-mq-date-time, Signature={signature}"
    return [("authorization", text), ("x-mq-date-time", date_time)]


@pytest.fixture
async def world(start: StartWorld) -> World:
    world = await start(**ACL_2)
    await world.topic("orders")
    await world.topic("pays", "TRANSACTION")
    await world.make_alice()
    return world


def _alice(world: World) -> GrpcClient:
    return world.client("alice", signed_by("alice", "alice-secret"))


@pytest.mark.parametrize(
    "metadata",
    [
        [],
        signed_by("alice", "another-secret"),
        signed_by("nobody", "alice-secret"),
        [("authorization", "MQv2-HMAC-SHA1 Credential=alice, Signature=xyz"), ("x-mq-date-time", "20260101T000000Z")],
        signed_by("alice", "alice-secret")[:1],
    ],
    ids=["none", "secret", "user", "form", "time"],
)
async def test_who_does_not_show_who_it_is_is_not_served(world: World, metadata: list[tuple[str, str]]) -> None:
    client = world.client("stranger", metadata)
    assert (await client.send("orders", b"x")).status.code == pb.Code.UNAUTHORIZED
    assert (await client.receive_all("orders", "g"))[0].status.code == pb.Code.UNAUTHORIZED
    route = pb.QueryRouteRequest(topic=pb.Resource(name="orders"))
    assert (await client.call("QueryRoute", route)).status.code == pb.Code.UNAUTHORIZED
    commands = client.telemetry()
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await commands.read()
    assert caught.value.code() == grpc.StatusCode.UNAUTHENTICATED
    assert await world.stored("orders") == []


async def test_a_user_may_do_what_its_policies_allow_and_no_more(world: World) -> None:
    client = _alice(world)
    assert (await client.send("orders", b"x")).status.code == pb.Code.FORBIDDEN
    route = pb.QueryRouteRequest(topic=pb.Resource(name="orders"))
    assert (await client.call("QueryRoute", route)).status.code == pb.Code.FORBIDDEN
    assert (await client.receive_all("orders", "g"))[0].status.code == pb.Code.FORBIDDEN
    await world.allow_alice("Topic:orders", "Pub")
    for body in (b"1", b"2", b"3"):  # the later ones on the fast path
        assert (await client.send("orders", body)).status.code == pb.Code.OK
    assert (await client.call("QueryRoute", route)).status.code == pb.Code.OK
    assert (await client.send("pays", b"x", message_type=pb.MessageType.TRANSACTION)).status.code == pb.Code.FORBIDDEN
    assert [stored.body for stored in await world.stored("orders")] == [b"1", b"2", b"3"]


async def test_a_user_whose_password_changes_is_served_no_more(world: World) -> None:
    client = _alice(world)
    await world.allow_alice("Topic:orders", "Pub")
    assert (await client.send("orders", b"x")).status.code == pb.Code.OK
    await world.change_password_of_alice()
    assert (await client.send("orders", b"x")).status.code == pb.Code.UNAUTHORIZED


async def test_open_transactions_are_shown_to_those_only_who_may_send_them(start: StartWorld) -> None:
    world = await start(**ACL_2, transactionTimeOut="100", transactionCheckInterval="200")
    await world.topic("pays", "TRANSACTION")
    await world.make_alice()
    alice, root = _alice(world), world.client("root", signed_by("root", "root-secret"))
    for client in (alice, root):
        await client.say_settings(client.producer_settings("pays"))
    assert (await root.send("pays", b"x", message_type=pb.MessageType.TRANSACTION)).status.code == pb.Code.OK
    shown = asyncio.ensure_future(alice.commands.read())
    for _ in range(2):  # both would be asked in turn
        command = await root.commands.read()
        assert command.recover_orphaned_transaction_command.message.body == b"x"
    assert not shown.done()
    shown.cancel()
