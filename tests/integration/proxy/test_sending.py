"""SendMessage and RecallMessage, and what consumers get of it."""

import gzip
import time
from typing import Any

import pytest

from maxq.protocol.grpc import messages as pb
from tests.integration.proxy.conftest import StartWorld
from tests.integration.proxy.grpc_world import GrpcClient, World, message


async def test_a_message_arrives_with_all_that_was_sent(world: World) -> None:
    await world.topic("orders")
    client = world.client()
    await client.begin("orders", "g")
    sent_ms = int(time.time() * 1000)
    born = pb.Timestamp(seconds=sent_ms // 1000, nanos=sent_ms % 1000 * 1_000_000)
    answer = await client.send(
        "orders", b"hello", tag="green", keys=["k1", "k2"], born_timestamp=born, born_host="here", trace_context="t",
        properties={"colour": "green"},
    )  # fmt: skip
    assert answer.status.code == pb.Code.OK and [entry.status.code for entry in answer.entries] == [pb.Code.OK]
    (got,) = await client.receive("orders", "g")
    system = got.system_properties
    assert (got.topic.name, got.body, dict(got.user_properties)) == ("orders", b"hello", {"colour": "green"})
    assert (system.tag, list(system.keys), system.born_host, system.trace_context) == (
        "green",
        ["k1", "k2"],
        "here",
        "t",
    )
    assert (system.message_type, system.born_timestamp) == (pb.MessageType.NORMAL, born)
    assert (system.message_id, system.queue_offset) == (answer.entries[0].message_id, answer.entries[0].offset)
    assert system.delivery_attempt == 1
    assert system.body_digest.checksum == "5D41402ABC4B2A76B9719D911017C592"


async def test_clients_of_the_remoting_protocol_read_it_with_the_same_id_and_properties(world: World) -> None:
    await world.topic("orders")
    answer = await world.client().send("orders", b"hello", tag="green", keys=["k1"], properties={"colour": "green"})
    (stored,) = await world.stored("orders")
    assert (stored.body, stored.tags, stored.keys, stored.msg_id) == (
        b"hello",
        "green",
        "k1",
        answer.entries[0].message_id,
    )
    assert stored.properties["colour"] == "green"


async def test_messages_of_one_call_are_all_stored_each_with_its_entry(world: World) -> None:
    await world.topic("orders", queues=1)
    answer = await world.client().send("orders", b"a", b"b", b"c")
    assert [entry.offset for entry in answer.entries] == [0, 1, 2]
    assert [stored.msg_id for stored in await world.stored("orders")] == [entry.message_id for entry in answer.entries]


async def test_messages_of_a_group_are_in_one_queue_and_in_order(world: World) -> None:
    await world.topic("orders", "FIFO")
    client = world.client()
    for number in range(6):
        answer = await client.send(
            "orders", b"%d" % number, message_group="customer-7", message_type=pb.MessageType.FIFO
        )
        assert answer.status.code == pb.Code.OK
    stored = await world.stored("orders")
    assert [each.body for each in stored] == [b"0", b"1", b"2", b"3", b"4", b"5"]
    assert len({each.queue_id for each in stored}) == 1


async def test_messages_without_group_go_to_all_queues(world: World) -> None:
    await world.topic("orders")
    for _ in range(8):
        await world.client().send("orders", b"x")
    assert sorted(each.queue_id for each in await world.stored("orders")) == [0, 0, 1, 1, 2, 2, 3, 3]


async def test_a_body_in_gzips_format_is_read_by_clients_of_both_protocols(world: World) -> None:
    await world.topic("orders")
    client = world.client()
    await client.begin("orders", "g")
    body = b"much of the same " * 100
    await client.send("orders", gzip.compress(body), body_encoding=pb.Encoding.GZIP)
    (got,) = await client.receive("orders", "g")
    assert (got.body, got.system_properties.body_encoding) == (body, pb.Encoding.IDENTITY)
    assert [stored.body for stored in await world.stored("orders")] == [body]


async def test_a_delayed_message_comes_when_it_is_due(world: World) -> None:
    await world.topic("later", "DELAY")
    client = world.client()
    await client.begin("later", "g")
    due_s = int(time.time()) + 2
    answer = await client.send(
        "later", b"x", delivery_timestamp=pb.Timestamp(seconds=due_s), message_type=pb.MessageType.DELAY
    )
    assert answer.status.code == pb.Code.OK
    (got,) = await client.receive("later", "g", long_polling_timeout=pb.Duration(seconds=10))
    assert time.time() >= due_s
    assert got.system_properties.message_type == pb.MessageType.DELAY
    assert got.system_properties.message_id == answer.entries[0].message_id


async def test_a_message_that_is_not_due_yet_is_taken_back(start: StartWorld) -> None:
    world = await start(recallMessageEnable="true")
    await world.topic("later", "DELAY")
    client = world.client()
    due = pb.Timestamp(seconds=int(time.time()) + 60)
    sent = (await client.send("later", b"x", delivery_timestamp=due, message_type=pb.MessageType.DELAY)).entries[0]
    request = pb.RecallMessageRequest(topic=pb.Resource(name="later"), recall_handle=sent.recall_handle)
    answer = await client.call("RecallMessage", request)
    assert (answer.status.code, answer.message_id) == (pb.Code.OK, sent.message_id)
    bad = pb.RecallMessageRequest(topic=pb.Resource(name="later"), recall_handle="no handle")
    assert (await client.call("RecallMessage", bad)).status.code == pb.Code.BAD_REQUEST


async def test_a_topic_takes_only_messages_of_its_type(world: World) -> None:
    await world.topic("orders", "FIFO")
    await world.topic("plain")
    client = world.client()
    answer = await client.send("orders", b"x")
    assert answer.status.code == pb.Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE
    assert "the expected type is FIFO, but actual type is NORMAL" in answer.status.message
    answer = await client.send("plain", b"x", message_group="g", message_type=pb.MessageType.FIFO)
    assert answer.status.code == pb.Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE


async def test_namespaces_keep_topics_of_one_name_apart(world: World) -> None:
    await world.topic("ns%orders")
    client = world.client()
    topic = pb.Resource(resource_namespace="ns", name="orders")
    sent = message("orders", b"x")
    sent.topic.CopyFrom(topic)
    answer = await client.call("SendMessage", pb.SendMessageRequest(messages=[sent]))
    assert answer.status.code == pb.Code.OK
    assert [stored.body for stored in await world.stored("ns%orders")] == [b"x"]
    assert (await client.send("orders", b"x")).status.code == pb.Code.TOPIC_NOT_FOUND


_LATER = pb.Timestamp(seconds=int(time.time()) + 2 * 24 * 3600)
_BAD: list[tuple[str, dict[str, Any], pb.Code]] = [
    ("an empty body", {"body": b""}, pb.Code.MESSAGE_BODY_EMPTY),
    ("a long body", {"body": bytes(4 * 1024 * 1024 + 1)}, pb.Code.MESSAGE_BODY_TOO_LARGE),
    ("no id", {"message_id": " "}, pb.Code.ILLEGAL_MESSAGE_ID),
    ("a tag of blanks", {"tag": "  "}, pb.Code.ILLEGAL_MESSAGE_TAG),
    ("two tags", {"tag": "a|b"}, pb.Code.ILLEGAL_MESSAGE_TAG),
    ("a control character in a tag", {"tag": "a\x02b"}, pb.Code.ILLEGAL_MESSAGE_TAG),
    ("a key of blanks", {"keys": [" "]}, pb.Code.ILLEGAL_MESSAGE_KEY),
    ("a control character in a key", {"keys": ["a\x01"]}, pb.Code.ILLEGAL_MESSAGE_KEY),
    ("a name of the system", {"properties": {"TAGS": "a"}}, pb.Code.ILLEGAL_MESSAGE_PROPERTY_KEY),
    ("a separator in a property", {"properties": {"a": "b\x02c\x01d"}}, pb.Code.ILLEGAL_MESSAGE_PROPERTY_KEY),
    ("many properties", {"properties": {f"p{n}": "x" for n in range(129)}}, pb.Code.MESSAGE_PROPERTIES_TOO_LARGE),
    ("long properties", {"properties": {"p": "x" * 16_384}}, pb.Code.MESSAGE_PROPERTIES_TOO_LARGE),
    ("a long delay", {"delivery_timestamp": _LATER}, pb.Code.ILLEGAL_DELIVERY_TIME),
    ("a long group", {"message_group": "g" * 64}, pb.Code.ILLEGAL_MESSAGE_GROUP),
    ("a group of blanks", {"message_group": " "}, pb.Code.ILLEGAL_MESSAGE_GROUP),
    ("damaged gzip", {"body": b"\x1f\x8bxxxxxxxx", "body_encoding": pb.Encoding.GZIP}, pb.Code.MESSAGE_CORRUPTED),
    ("a separator in the born host", {"born_host": "h\x02a\x01b"}, pb.Code.BAD_REQUEST),
]  # fmt: skip


async def test_what_may_not_be_sent_is_answered_with_its_code_and_not_stored(world: World) -> None:
    await world.topic("any", "MIXED")
    client = world.client()
    for what, given, code in _BAD:
        fields = dict(given)
        answer = await client.send("any", fields.pop("body", b"x"), **fields)
        assert pb.Code(answer.status.code) == code, what
    assert await world.stored("any") == []


async def test_a_call_without_messages_or_with_several_topics_is_refused(world: World) -> None:
    await world.topic("a")
    await world.topic("b")
    client: GrpcClient = world.client()
    answer = await client.call("SendMessage", pb.SendMessageRequest())
    assert answer.status.code == pb.Code.MESSAGE_CORRUPTED
    two = pb.SendMessageRequest(messages=[message("a", b"x"), message("b", b"x")])
    assert (await client.call("SendMessage", two)).status.code == pb.Code.MESSAGE_CORRUPTED


async def test_a_topic_that_may_not_be_written_to_refuses(start: StartWorld) -> None:
    world = await start(brokerPermission="4")
    await world.topic("orders")
    assert (await world.client().send("orders", b"x")).status.code == pb.Code.FORBIDDEN


@pytest.mark.parametrize("size", [1, 1024, 4 * 1024 * 1024])
async def test_bodies_up_to_the_limit_arrive(world: World, size: int) -> None:
    await world.topic("orders")
    client = world.client()
    await client.begin("orders", "g")
    body = bytes(range(256)) * (size // 256) or b"x"
    assert (await client.send("orders", body)).status.code == pb.Code.OK
    (got,) = await client.receive("orders", "g")
    assert got.body == body
