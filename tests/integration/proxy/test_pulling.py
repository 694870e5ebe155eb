"""PullMessage, UpdateOffset, GetOffset, QueryOffset."""

import asyncio
from typing import Any

from maxq.protocol.grpc import messages as pb
from tests.integration.proxy.grpc_world import GrpcClient, World

_GROUP = pb.Resource(name="g")
_QUEUE = pb.MessageQueue(topic=pb.Resource(name="orders"), id=0, broker=pb.Broker(name="broker-a"))
_ALL = pb.FilterExpression(type=pb.FilterType.TAG, expression="*")


async def _pull(client: GrpcClient, offset: int, **fields: Any) -> list[Any]:
    given: dict[str, Any] = {
        "group": _GROUP, "message_queue": _QUEUE, "offset": offset, "batch_size": 32, "filter_expression": _ALL,
        **fields,
    }  # fmt: skip
    return await client.stream("PullMessage", pb.PullMessageRequest(**given))


async def test_messages_are_pulled_from_an_offset_on(world: World) -> None:
    await world.topic("orders", queues=1)
    client = world.client()
    await client.send("orders", b"a", b"b", b"c")
    status, *messages, following = await _pull(client, 1)
    assert status.status.code == pb.Code.OK
    assert [each.message.body for each in messages] == [b"b", b"c"]
    assert [each.message.system_properties.queue_offset for each in messages] == [1, 2]
    assert following.next_offset == 3


async def test_a_pull_at_the_end_waits_as_long_as_it_says(world: World) -> None:
    await world.topic("orders", queues=1)
    client = world.client()
    (status, following) = await _pull(client, 0)
    assert (status.status.code, following.next_offset) == (pb.Code.MESSAGE_NOT_FOUND, 0)
    waiting = asyncio.ensure_future(_pull(client, 0, long_polling_timeout=pb.Duration(seconds=10)))
    await asyncio.sleep(0)
    await world.client("other").send("orders", b"x")
    assert [each.message.body for each in (await waiting)[1:-1]] == [b"x"]


async def test_an_offset_beyond_the_queue_is_told_with_the_right_one(world: World) -> None:
    await world.topic("orders", queues=1)
    client = world.client()
    await client.send("orders", b"a")
    status, following = await _pull(client, 100)
    assert (status.status.code, following.next_offset) == (pb.Code.ILLEGAL_OFFSET, 1)
    assert (await _pull(client, -1))[0].status.code == pb.Code.ILLEGAL_OFFSET


async def test_a_group_keeps_its_offset(world: World) -> None:
    await world.topic("orders", queues=1)
    await world.group("g")
    client = world.client()
    await client.send("orders", b"a", b"b")
    get = pb.GetOffsetRequest(group=_GROUP, message_queue=_QUEUE)
    update = pb.UpdateOffsetRequest(group=_GROUP, message_queue=_QUEUE, offset=2)
    assert (await client.call("UpdateOffset", update)).status.code == pb.Code.OK
    answer = await client.call("GetOffset", get)
    assert (answer.status.code, answer.offset) == (pb.Code.OK, 2)


async def test_a_queue_tells_its_ends_and_where_it_was(world: World) -> None:
    await world.topic("orders", queues=1)
    client = world.client()
    await client.send("orders", b"a", b"b")
    for policy, offset in (
        (pb.QueryOffsetPolicy.BEGINNING, 0),
        (pb.QueryOffsetPolicy.END, 2),
        (pb.QueryOffsetPolicy.TIMESTAMP, 0),
    ):
        request = pb.QueryOffsetRequest(
            message_queue=_QUEUE, query_offset_policy=policy, timestamp=pb.Timestamp(seconds=1)
        )
        answer = await client.call("QueryOffset", request)
        assert (answer.status.code, answer.offset) == (pb.Code.OK, offset)


async def test_queues_of_other_brokers_are_refused(world: World) -> None:
    await world.topic("orders", queues=1)
    client = world.client()
    elsewhere = pb.MessageQueue(topic=pb.Resource(name="orders"), broker=pb.Broker(name="elsewhere"))
    assert (await _pull(client, 0, message_queue=elsewhere))[0].status.code == pb.Code.BAD_REQUEST
    request = pb.QueryOffsetRequest(message_queue=elsewhere, query_offset_policy=pb.QueryOffsetPolicy.END)
    assert (await client.call("QueryOffset", request)).status.code == pb.Code.BAD_REQUEST
