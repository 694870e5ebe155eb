"""QueryRoute and QueryAssignment."""

import grpc
import pytest

from maxq.protocol.grpc import messages as pb
from tests.integration.proxy.grpc_world import World


def _route(topic: str, client_endpoints: pb.Endpoints) -> pb.QueryRouteRequest:
    return pb.QueryRouteRequest(topic=pb.Resource(name=topic), endpoints=client_endpoints)


async def test_a_route_names_all_queues_with_the_address_that_the_client_has_used(world: World) -> None:
    await world.topic("orders", "FIFO", queues=3)
    client = world.client()
    route = await client.call("QueryRoute", _route("orders", client.endpoints))
    assert route.status.code == pb.Code.OK
    assert [queue.id for queue in route.message_queues] == [0, 1, 2]
    for queue in route.message_queues:
        assert queue.permission == pb.Permission.READ_WRITE
        assert list(queue.accept_message_types) == [pb.MessageType.FIFO]
        assert queue.broker.endpoints == client.endpoints
        assert (queue.broker.name, queue.broker.id) == ("broker-a", 0)


async def test_a_route_of_mixed_messages_names_their_types(world: World) -> None:
    await world.topic("any", "MIXED", queues=1)
    client = world.client()
    route = await client.call("QueryRoute", _route("any", client.endpoints))
    types = {pb.MessageType.NORMAL, pb.MessageType.FIFO, pb.MessageType.DELAY, pb.MessageType.TRANSACTION}
    assert set(route.message_queues[0].accept_message_types) == types


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        ("unknown", pb.Code.TOPIC_NOT_FOUND),
        ("", pb.Code.ILLEGAL_TOPIC),
        ("a b", pb.Code.ILLEGAL_TOPIC),
        ("a" * 128, pb.Code.ILLEGAL_TOPIC),
        ("RMQ_SYS_TRANS_HALF_TOPIC", pb.Code.ILLEGAL_TOPIC),
    ],
)
async def test_what_has_no_route_is_answered_with_a_code(world: World, topic: str, code: pb.Code) -> None:
    client = world.client()
    for name, request in (
        ("QueryRoute", _route(topic, client.endpoints)),
        ("QueryAssignment", pb.QueryAssignmentRequest(topic=pb.Resource(name=topic), group=pb.Resource(name="g"))),
    ):
        assert (await client.call(name, request)).status.code == code


async def test_a_push_consumer_is_assigned_all_queues_of_a_broker_at_once(world: World) -> None:
    await world.topic("orders", queues=3)
    client = world.client()
    request = pb.QueryAssignmentRequest(
        topic=pb.Resource(name="orders"), group=pb.Resource(name="g"), endpoints=client.endpoints
    )
    answer = await client.call("QueryAssignment", request)
    assert [entry.message_queue.id for entry in answer.assignments] == [-1]


async def test_a_push_consumer_in_order_is_assigned_queue_by_queue(world: World) -> None:
    await world.topic("orders", "FIFO", queues=3)
    await world.group("in-order", consume_message_orderly=True)
    client = world.client()
    request = pb.QueryAssignmentRequest(topic=pb.Resource(name="orders"), group=pb.Resource(name="in-order"))
    answer = await client.call("QueryAssignment", request)
    assert [entry.message_queue.id for entry in answer.assignments] == [0, 1, 2]


async def test_a_call_without_client_id_is_refused(world: World) -> None:
    client = world.client()
    answer = await client.call("QueryRoute", _route("orders", client.endpoints), metadata=[])
    assert answer.status.code == pb.Code.CLIENT_ID_REQUIRED


async def test_lite_topics_are_said_to_be_missing(world: World) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await world.client().call("SyncLiteSubscription", pb.SyncLiteSubscriptionRequest())
    assert caught.value.code() == grpc.StatusCode.UNIMPLEMENTED
    assert "lite topics" in (caught.value.details() or "")


async def test_bytes_that_are_no_request_end_the_call_and_not_the_connection(world: World) -> None:
    client = world.client()

    class NoRequest:
        @staticmethod
        def SerializeToString() -> bytes:
            return b"\xff\xff\xff"

    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await client.call("SendMessage", NoRequest())
    assert caught.value.code() == grpc.StatusCode.INTERNAL
    assert (await client.call("QueryRoute", _route("unknown", client.endpoints))).status.code == pb.Code.TOPIC_NOT_FOUND
