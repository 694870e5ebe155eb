"""The compiled way of sends, beside the general one."""

from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maxq.protocol.frame.remoting_command import RESPONSE_FLAG, RemotingCommand, SerializeType, decode_frame
from maxq.protocol.grpc import messages as pb
from maxq.proxy.brokers import NotKnownYet
from maxq.proxy.producer.sending import Sending
from tests.short_form import times
from tests.unit.both_forms import both
from tests.unit.proxy.producer.both_sends import FakeCall, World, compared

FORMS = both("maxq.proxy.producer.plain_sends_cy")
form = pytest.mark.parametrize("form", FORMS, ids=["uncompiled", "installed"])

TEXTS = st.sampled_from(["", "a", "green", "a b", " ", "ü", "\x01", "a\x02", "a|b", "TAGS", "x" * 200, "\x7f", "~!"])
BORN = pb.Timestamp(seconds=1_700_000_000, nanos=123_456_789)


def request(**fields: Any) -> pb.SendMessageRequest:
    """A request as official clients make them, with these system properties, `topic`, `body` and `properties`."""
    topic = fields.pop("topic", "orders")
    body = fields.pop("body", b"body")
    properties = fields.pop("properties", {})
    given = {
        "tag": "green", "keys": ["k1", "k2"], "message_id": "01AB", "message_type": pb.MessageType.NORMAL,
        "born_timestamp": BORN, "born_host": "host", "body_encoding": pb.Encoding.IDENTITY, **fields,
    }  # fmt: skip
    system = pb.SystemProperties(**{name: value for name, value in given.items() if value is not None})
    one = pb.Message(topic=pb.Resource(name=topic), body=body, system_properties=system, user_properties=properties)
    return pb.SendMessageRequest(messages=[one])


PLAIN = {
    "all": request(),
    "nothing that may be missing": request(tag=None, keys=None, message_type=None, body_encoding=None),
    "a digest": request(body_digest=pb.Digest(type=pb.DigestType.CRC32, checksum="ABCD")),
    "properties": request(properties={"colour": "green", "n": "1"}),
    "born in a whole second": request(born_timestamp=pb.Timestamp(seconds=1_700_000_000)),
    "a large body": request(body=bytes(range(256)) * 3000),
}

SPECIAL = {
    "no message": pb.SendMessageRequest(),
    "two messages": pb.SendMessageRequest(messages=[request().messages[0]] * 2),
    "a namespace": pb.SendMessageRequest(
        messages=[pb.Message(topic=pb.Resource(name="orders", resource_namespace="n"), body=b"x")]
    ),
    "another topic": request(topic="nothing"),
    "a system topic": request(topic="RMQ_SYS_TRACE_TOPIC"),
    "an illegal topic": request(topic="a+b"),
    "no body": request(body=b""),
    "a body that is too large": request(body=bytes((1 << 20) + 1)),
    "no id": request(message_id=None),
    "no time": request(born_timestamp=None),
    "no host": request(born_host=None),
    "a time before 1970": request(born_timestamp=pb.Timestamp(seconds=-1)),
    "a transaction": request(message_type=pb.MessageType.TRANSACTION),
    "a compressed body": request(body_encoding=pb.Encoding.GZIP),
    "a group": request(message_group="g"),
    "a delay": request(delivery_timestamp=BORN),
    "a priority": request(priority=3),
    "a lite topic": request(lite_topic="l"),
    "a trace": request(trace_context="t"),
    "an attempt": request(delivery_attempt=2),
    "a tag of two": request(tag="a|b"),
    "a key with a space": request(keys=["a b"]),
    "a text that is not ASCII": request(tag="ü"),
    "a reserved property": request(properties={"TAGS": "x"}),
}


@form
@pytest.mark.parametrize("name", PLAIN)
def test_a_plain_send_becomes_the_same_request_as_on_the_general_way(form: ModuleType, name: str) -> None:
    assert compared(World(form), PLAIN[name].SerializeToString())


@form
@pytest.mark.parametrize("name", SPECIAL)
def test_a_special_send_is_left_to_the_general_way(form: ModuleType, name: str) -> None:
    world = World(form)
    before = world.view.next_queue
    assert world.by_plain_way(SPECIAL[name].SerializeToString()) is None
    assert world.view.next_queue == before
    assert not world.to_broker.waiters


@form
@pytest.mark.parametrize("field", ["topic", "system_properties", "body"])
def test_a_field_that_is_there_twice_is_left_to_the_general_way(form: ModuleType, field: str) -> None:
    """Protobuf takes the last one, or joins both."""
    one = request().messages[0]
    again = pb.Message()
    if field == "body":
        again.body = b"another"
    elif field == "topic":
        again.topic.name = "orders"
    else:
        again.system_properties.message_id = "another"
    inner = one.SerializeToString() + again.SerializeToString()
    assert len(inner) < 128
    assert not compared(World(form), b"\x0a" + bytes([len(inner)]) + inner)


@form
@given(
    fields=st.fixed_dictionaries(
        {},
        optional={
            "tag": TEXTS, "keys": st.lists(TEXTS, max_size=3), "message_id": TEXTS, "born_host": TEXTS,
            "topic": st.sampled_from(["orders", "", "a b"]), "body": st.binary(max_size=40),
            "properties": st.dictionaries(TEXTS, TEXTS, max_size=3),
            "born_timestamp": st.builds(
                pb.Timestamp, seconds=st.integers(-5, 1 << 45), nanos=st.integers(-5, 2_000_000_000)
            ),
            "message_type": st.integers(0, 7), "body_encoding": st.integers(0, 3),
            "trace_context": TEXTS, "queue_id": st.integers(-1, 3), "store_host": TEXTS,
        },
    ),
    cut=st.none() | st.tuples(st.integers(0, 200), st.integers(0, 255)),
)  # fmt: skip
@settings(max_examples=times(150), deadline=None)
def test_what_is_taken_is_what_the_general_way_would_send(form: ModuleType, fields: dict[str, Any], cut: Any) -> None:
    data = bytearray(request(**fields).SerializeToString())
    if cut is not None and cut[0] < len(data):
        data[cut[0]] = cut[1]
    compared(World(form), bytes(data))


@form
def test_settings_and_types_decide_what_is_plain(form: ModuleType) -> None:
    data = request(properties={"a": "1", "b": "2"}).SerializeToString()
    assert compared(World(form), data)
    assert not compared(World(form, user_property_max_num=1), data)
    assert not compared(World(form, max_user_property_size=12), data)
    assert compared(World(form, max_user_property_size=13), data)
    assert not compared(World(form, message_type="FIFO"), data)
    assert compared(World(form, message_type="FIFO", grpc_topic_message_type_check=False), data)
    world = World(form)
    world.to_broker.is_closed = True
    assert not compared(world, data)


@form
def test_requests_on_a_connection_of_all_clients_name_the_broker_and_are_noted(form: ModuleType) -> None:
    world = World(form, knows_clients=False)
    assert compared(world, PLAIN["all"].SerializeToString())
    ((link, opaque, send),) = world.noted
    assert link.waiters == {opaque: send, -1: link.waiters[-1]}


@form
def test_a_topic_that_has_to_be_asked_for_is_left_to_the_general_way(form: ModuleType) -> None:
    async def ready() -> None: ...

    def topic(name: str) -> None:
        waits = ready()
        waits.close()
        raise NotKnownYet(waits)

    world = World(form)
    world.topic = topic  # type: ignore[method-assign]
    assert world.by_plain_way(PLAIN["all"].SerializeToString()) is None


@form
def test_all_sends_of_a_pass_leave_in_one_write(form: ModuleType) -> None:
    world = World(form)
    for number in range(100):
        assert world.plain.take(FakeCall(), request(message_id=f"id{number}", body=bytes(1000)).SerializeToString())
    assert not world.to_broker.frames
    world.plain.flush()
    sent = [decode_frame(memoryview(frame)[4:]) for frame in world.to_broker.frames]
    assert [f"UNIQ_KEY\x01id{number}\x02" in one.ext["i"] for number, one in enumerate(sent)] == [True] * 100
    assert [one.opaque for one in sent] == list(world.to_broker.waiters) == list(range(1, 101))


REPLIES: dict[str, tuple[int, dict[str, str]]] = {
    "stored": (0, {"msgId": "AC", "queueId": "3", "queueOffset": "0"}),
    "stored next": (0, {"msgId": "AC", "queueId": "3", "queueOffset": "1"}),
    "stored far behind": (0, {"msgId": "AC", "queueId": "3", "queueOffset": "12345678901"}),
    "with an id": (0, {"msgId": "AC", "queueId": "3", "queueOffset": "7", "transactionId": "T1", "MSG_REGION": "R"}),
    "to recall": (0, {"msgId": "AC", "queueId": "3", "queueOffset": "7", "recallHandle": "H"}),
    "not safe": (11, {"msgId": "AC", "queueId": "3", "queueOffset": "7"}),
    "busy": (2, {}),
}


@form
@pytest.mark.parametrize("kind", SerializeType)
@pytest.mark.parametrize("name", REPLIES)
def test_a_call_is_answered_as_on_the_general_way(form: ModuleType, name: str, kind: SerializeType) -> None:
    world, call, other = World(form), FakeCall(), FakeCall()
    assert world.plain.take(call, request().SerializeToString())
    code, ext = REPLIES[name]
    reply = RemotingCommand(code, ext, None, "why", 1, RESPONSE_FLAG, serialize_type=kind)
    if code == 0:
        reply.remark = None
    frame = bytearray(reply.encode())
    taken = world.batch_path(world.to_broker, frame, 0, len(frame))
    if taken == 0:
        world.to_broker.waiters.pop(1)(reply)
        ((send, got),) = world.general
        assert got is reply
        assert send.call is call
        assert name in ("to recall", "not safe", "busy")
        return
    assert not world.to_broker.waiters
    context: Any = type(
        "Context", (), {"answer": staticmethod(lambda message: other.answer(message.SerializeToString()))}
    )
    sent: Any = type("Sent", (), {"message_id": "01AB", "broker_name": "b"})
    Sending.answer_plain(context, sent, reply)
    assert call.answers == other.answers


@form
def test_answers_of_an_arrival_are_taken_up_to_the_first_that_is_not_plain(form: ModuleType) -> None:
    world = World(form)
    calls = [FakeCall() for _ in range(4)]
    for call in calls:
        world.plain.take(call, request().SerializeToString())
    replies = [
        RemotingCommand(0, dict(REPLIES["stored"][1]), None, None, opaque, RESPONSE_FLAG) for opaque in (2, 1, 9, 3)
    ]
    data = bytearray(b"".join(reply.encode() for reply in replies))
    taken = world.batch_path(world.to_broker, data, 0, len(data))
    assert taken == sum(len(reply.encode()) for reply in replies[:2])
    assert [len(call.answers) for call in calls] == [1, 1, 0, 0]
