"""ReceiveMessage, AckMessage, ChangeInvisibleDuration, ForwardMessageToDeadLetterQueue."""

import asyncio
from typing import Any

import grpc
import pytest

from maxq.protocol.grpc import messages as pb
from tests.integration.proxy.conftest import StartWorld
from tests.integration.proxy.grpc_world import GrpcClient, World

_SECOND = pb.Duration(seconds=1)
_AT_ONCE = pb.Duration()


@pytest.fixture
async def world(start: StartWorld) -> World:
    world = await start()
    await world.topic("orders")
    return world


async def _all(client: GrpcClient, topic: str, group: str, count: int, **fields: Any) -> list[pb.Message]:
    """Receive until so many messages have come."""
    got: list[pb.Message] = []
    while len(got) < count:
        got += await client.receive(topic, group, **fields)
    return got


async def test_what_is_acknowledged_does_not_come_again_and_the_rest_does(world: World) -> None:
    client = world.client()
    await client.begin("orders", "g")
    await client.send("orders", b"a", b"b")
    first = await _all(client, "orders", "g", 2, invisible_duration=_SECOND)
    (a,) = [message for message in first if message.body == b"a"]
    answer = await client.ack("orders", "g", a)
    assert [entry.status.code for entry in answer.entries] == [pb.Code.OK]
    (again,) = await client.receive("orders", "g", invisible_duration=_SECOND)
    assert (again.body, again.system_properties.delivery_attempt) == (b"b", 2)
    assert again.system_properties.message_id in {message.system_properties.message_id for message in first}


async def test_many_acks_of_one_call_are_answered_one_by_one(world: World) -> None:
    client = world.client()
    await client.begin("orders", "g")
    await client.send("orders", *[b"%d" % number for number in range(8)])
    got = await _all(client, "orders", "g", 8)
    bad = pb.Message(system_properties=pb.SystemProperties(message_id="m", receipt_handle="no handle"))
    answer = await client.ack("orders", "g", *got, bad)
    assert answer.status.code == pb.Code.MULTIPLE_RESULTS
    codes = [entry.status.code for entry in answer.entries]
    assert codes == [pb.Code.OK] * 8 + [pb.Code.INVALID_RECEIPT_HANDLE]
    assert (await client.ack("orders", "g")).status.code == pb.Code.INTERNAL_SERVER_ERROR  # as Java answers


async def test_a_receive_waits_for_a_message(world: World) -> None:
    client, sender = world.client("consumer"), world.client("producer")
    await client.begin("orders", "g")
    waiting = asyncio.ensure_future(client.receive("orders", "g", long_polling_timeout=pb.Duration(seconds=20)))
    await asyncio.sleep(0)
    await sender.send("orders", b"x")
    assert [message.body for message in await waiting] == [b"x"]


async def test_nothing_is_told_by_a_status_and_the_moment(world: World) -> None:
    client = world.client()
    told = await client.receive_all("orders", "g", long_polling_timeout=_AT_ONCE)
    assert [answer.WhichOneof("content") for answer in told] == ["status", "delivery_timestamp"]
    assert told[0].status.code == pb.Code.MESSAGE_NOT_FOUND


@pytest.mark.parametrize(
    ("kind", "expression"),
    [(pb.FilterType.TAG, "a || b"), (pb.FilterType.SQL, "TAGS IN ('a', 'b') AND price > 5")],
)
async def test_messages_are_selected_by_the_server(world: World, kind: int, expression: str) -> None:
    client = world.client()
    wanted = pb.FilterExpression(type=kind, expression=expression)
    await client.receive("orders", "g", filter_expression=wanted, long_polling_timeout=_AT_ONCE)
    for tag in ("a", "b", "c"):
        await client.send("orders", tag.encode(), tag=tag, properties={"price": "7"})
    got = await _all(client, "orders", "g", 2, filter_expression=wanted)
    assert sorted(message.body for message in got) == [b"a", b"b"]
    assert await client.receive("orders", "g", filter_expression=wanted, long_polling_timeout=_AT_ONCE) == []


async def test_a_changed_invisible_time_gives_a_new_handle(world: World) -> None:
    client = world.client()
    await client.begin("orders", "g")
    await client.send("orders", b"x")
    (got,) = await client.receive("orders", "g", invisible_duration=pb.Duration(seconds=30))
    request = pb.ChangeInvisibleDurationRequest(
        group=pb.Resource(name="g"), topic=pb.Resource(name="orders"), invisible_duration=_SECOND,
        receipt_handle=got.system_properties.receipt_handle, message_id=got.system_properties.message_id,
    )  # fmt: skip
    answer = await client.call("ChangeInvisibleDuration", request)
    assert answer.status.code == pb.Code.OK
    assert answer.receipt_handle != got.system_properties.receipt_handle
    (again,) = await client.receive("orders", "g")  # long before the 30 seconds are over
    assert again.system_properties.delivery_attempt == 2
    assert (await client.ack("orders", "g", again)).status.code == pb.Code.OK


async def test_a_dead_letter_is_in_its_groups_topic_and_comes_no_more(world: World) -> None:
    client = world.client()
    await client.begin("orders", "g")
    await client.send("orders", b"x", tag="t")
    (got,) = await client.receive("orders", "g", invisible_duration=_SECOND)
    request = pb.ForwardMessageToDeadLetterQueueRequest(
        group=pb.Resource(name="g"), topic=pb.Resource(name="orders"), message_id=got.system_properties.message_id,
        receipt_handle=got.system_properties.receipt_handle, delivery_attempt=1, max_delivery_attempts=1,
    )  # fmt: skip
    assert (await client.call("ForwardMessageToDeadLetterQueue", request)).status.code == pb.Code.OK
    (dead,) = await world.stored("%DLQ%g")
    assert (dead.body, dead.msg_id) == (b"x", got.system_properties.message_id)
    assert await client.receive("orders", "g", long_polling_timeout=pb.Duration(seconds=2)) == []


async def test_a_message_that_was_delivered_too_often_becomes_a_dead_letter(world: World) -> None:
    await world.group("once", retry_max_times=0)
    client = world.client()
    await client.begin("orders", "once")
    await client.send("orders", b"x")
    assert len(await client.receive("orders", "once", invisible_duration=pb.Duration(nanos=500_000_000))) == 1
    while not await world.admin_has_topic("%DLQ%once"):
        assert await client.receive("orders", "once", long_polling_timeout=_SECOND) == []
    assert [dead.body for dead in await world.stored("%DLQ%once")] == [b"x"]


async def test_a_group_in_order_gets_the_next_message_when_the_first_is_acknowledged(world: World) -> None:
    await world.topic("steps", "FIFO", queues=1)
    await world.group("in-order", consume_message_orderly=True)
    client = world.client()
    await client.begin("steps", "in-order")
    for body in (b"1", b"2"):
        await client.send("steps", body, message_group="m", message_type=pb.MessageType.FIFO)
    (first,) = await client.receive("steps", "in-order", batch_size=1)
    assert await client.receive("steps", "in-order", batch_size=1, long_polling_timeout=_AT_ONCE) == []
    assert (await client.ack("steps", "in-order", first)).status.code == pb.Code.OK
    (second,) = await client.receive("steps", "in-order", batch_size=1)
    assert [first.body, second.body] == [b"1", b"2"]
    assert second.system_properties.message_group == "m"


async def test_an_attempt_is_answered_again_with_the_same_messages(world: World) -> None:
    await world.topic("steps", "FIFO", queues=1)
    await world.group("in-order", consume_message_orderly=True)
    client = world.client()
    await client.begin("steps", "in-order")
    await client.send("steps", b"1", message_group="m", message_type=pb.MessageType.FIFO)
    (first,) = await client.receive("steps", "in-order", attempt_id="attempt")
    (again,) = await client.receive("steps", "in-order", attempt_id="attempt")
    assert first.system_properties.message_id == again.system_properties.message_id


async def test_a_renewed_receipt_keeps_the_message_until_it_is_acknowledged(start: StartWorld) -> None:
    world = await start(defaultInvisibleTimeMills="1500", renewAheadTimeMillis="1000", renewSchedulePeriodMillis="50")
    await world.topic("orders")
    client = world.client()
    await client.begin("orders", "g")
    await client.send("orders", b"x")
    (got,) = await client.receive("orders", "g", auto_renew=True)
    assert await client.receive("orders", "g", long_polling_timeout=pb.Duration(seconds=4)) == []
    assert (await client.ack("orders", "g", got)).status.code == pb.Code.OK  # with the handle that it was given


async def test_the_messages_of_a_consumer_that_left_go_to_others_soon(start: StartWorld) -> None:
    world = await start(defaultInvisibleTimeMills="600000", invisibleTimeMillisWhenClear="100")
    await world.topic("orders")
    leaving, other = world.client("leaving"), world.client("other")
    await leaving.say_settings(leaving.consumer_settings("g", "orders"))
    await leaving.begin("orders", "g")
    await other.send("orders", b"x")
    assert len(await leaving.receive("orders", "g", auto_renew=True)) == 1
    ended = pb.NotifyClientTerminationRequest(group=pb.Resource(name="g"))
    assert (await leaving.call("NotifyClientTermination", ended)).status.code == pb.Code.OK
    (got,) = await _all(other, "orders", "g", 1)
    assert got.system_properties.delivery_attempt == 2


async def test_a_message_for_a_call_that_was_cancelled_comes_to_the_next(world: World) -> None:
    client, other = world.client("gone"), world.client("other")
    await client.begin("orders", "g")
    waiting = asyncio.ensure_future(
        client.receive("orders", "g", invisible_duration=pb.Duration(seconds=3600), timeout=30)
    )
    await other.begin("orders", "other-group")  # the first request has arrived as well
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await other.send("orders", b"x")
    assert [message.body for message in await _all(other, "orders", "g", 1)] == [b"x"]


async def test_what_may_not_be_asked_for_is_answered_with_its_code(start: StartWorld) -> None:
    world = await start(minInvisibleTimeMillsForRecv="10000", grpcClientConsumerMinLongPollingTimeoutMillis="5000")
    await world.topic("orders")
    client = world.client()
    sql = pb.FilterExpression(type=pb.FilterType.SQL, expression="")
    refused: list[tuple[dict[str, Any], pb.Code]] = [
        ({"invisible_duration": pb.Duration(seconds=9)}, pb.Code.ILLEGAL_INVISIBLE_TIME),
        ({"invisible_duration": pb.Duration(seconds=13 * 3600)}, pb.Code.ILLEGAL_INVISIBLE_TIME),
        ({"filter_expression": sql}, pb.Code.ILLEGAL_FILTER_EXPRESSION),
        ({"group": pb.Resource(name="")}, pb.Code.ILLEGAL_CONSUMER_GROUP),
        ({"group": pb.Resource(name="CID_RMQ_SYS_x")}, pb.Code.ILLEGAL_CONSUMER_GROUP),
        ({"message_queue": pb.MessageQueue(topic=pb.Resource(name="unknown"))}, pb.Code.TOPIC_NOT_FOUND),
        ({"timeout": 2}, pb.Code.BAD_REQUEST),  # less than the shortest wait, and an old client
    ]
    for fields, code in refused:
        told = await client.receive_all("orders", "g", **fields)
        assert pb.Code(told[0].status.code) == code, fields
    client.metadata.append(("x-mq-client-version", "5.0.8"))
    assert (await client.receive_all("orders", "g", timeout=2))[0].status.code == pb.Code.ILLEGAL_POLLING_TIME


@pytest.mark.parametrize(
    "handle",
    [
        "",
        "a",
        "1 2 3 4 0 broker-a 0",
        "x 2 3 4 0 broker-a 0 0 0",
        "0 1 1 0 0 broker-a 0 0 0",
        "0 99999999999999 1000 0 9 broker-a 0 0 0",
        "0 99999999999999 1000 0 0 broker-a 0 0 x",
    ],
)
async def test_bad_handles_are_refused(world: World, handle: str) -> None:
    client = world.client()
    bad = pb.Message(system_properties=pb.SystemProperties(message_id="m", receipt_handle=handle))
    assert (await client.ack("orders", "g", bad)).entries[0].status.code == pb.Code.INVALID_RECEIPT_HANDLE
    group, topic = pb.Resource(name="g"), pb.Resource(name="orders")
    change = pb.ChangeInvisibleDurationRequest(
        group=group, topic=topic, receipt_handle=handle, invisible_duration=_SECOND
    )
    assert (await client.call("ChangeInvisibleDuration", change)).status.code == pb.Code.INVALID_RECEIPT_HANDLE
    forward = pb.ForwardMessageToDeadLetterQueueRequest(group=group, topic=topic, receipt_handle=handle)
    assert (await client.call("ForwardMessageToDeadLetterQueue", forward)).status.code == pb.Code.INVALID_RECEIPT_HANDLE


async def test_a_handle_of_another_broker_is_refused(world: World) -> None:
    client = world.client()
    handle = "0 99999999999999 1000 0 0 elsewhere 0 0 0"
    bad = pb.Message(system_properties=pb.SystemProperties(message_id="m", receipt_handle=handle))
    assert (await client.ack("orders", "g", bad)).entries[0].status.code == pb.Code.BAD_REQUEST


async def test_who_waits_is_answered_when_the_server_ends(start: StartWorld) -> None:
    world = await start(grpcShutdownTimeSeconds="30")
    await world.topic("orders")
    client = world.client()
    await client.begin("orders", "g")
    waiting = asyncio.ensure_future(client.receive_all("orders", "g", long_polling_timeout=pb.Duration(seconds=20)))
    await client.call("QueryRoute", pb.QueryRouteRequest(topic=pb.Resource(name="orders")))  # behind it
    await world.server.shutdown()
    try:
        told = await waiting
    except grpc.aio.AioRpcError as error:  # it had not arrived yet
        assert error.code() == grpc.StatusCode.UNAVAILABLE
    else:
        assert told[0].status.code == pb.Code.MESSAGE_NOT_FOUND
