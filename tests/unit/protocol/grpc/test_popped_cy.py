"""Popped messages from record to bytes, compared with what protobuf's objects make of them."""

from types import ModuleType

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from maxq.protocol.grpc import messages as pb
from maxq.protocol.message.message import MessageExt, encode_record
from maxq.protocol.message.message_id import encode_host
from maxq.proxy.message_codec import grpc_message
from tests.unit.both_forms import both

FORMS = both("maxq.protocol.grpc.popped_cy")

_STORE_HOST = encode_host("10.0.0.1", 10911)
_STARTS = {"0@3": 5, "1@3": 9, "2@3": 11}
_HEAD, _TAIL = "1700000000000 60000 4 ", " broker-a "
_NAMES = st.text(st.characters(min_codepoint=32, max_codepoint=0x2FF), min_size=1, max_size=8)


@pytest.fixture(params=FORMS, ids=["uncompiled", "compiled"])
def form(request: pytest.FixtureRequest) -> ModuleType:
    module: ModuleType = request.param
    return module


def _record(body: bytes = b"x", properties: dict[str, str] | None = None, **fields: object) -> MessageExt:
    given = {
        "topic": "orders", "queue_id": 3, "queue_offset": 7, "physical_offset": 1 << 40,
        "born_timestamp": 1_700_000_000_123, "store_timestamp": 1_700_000_001_000,
        "born_host": encode_host("1.2.3.4", 5), "store_host": _STORE_HOST, **fields,
    }  # fmt: skip
    return MessageExt(body=body, properties={"UNIQ_KEY": "AB"} if properties is None else properties, **given)  # type: ignore[arg-type]


def _encoded(form: ModuleType, *messages: MessageExt) -> list[pb.Message] | None:
    data = b"".join(map(encode_record, messages))
    found = form.encode_popped(data, b"orders", pb.Resource(name="orders").SerializeToString(), _STARTS, _HEAD, _TAIL)
    return None if found is None else [pb.ReceiveMessageResponse.FromString(each.answer).message for each in found]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(
    body=st.binary(max_size=300),
    user=st.dictionaries(_NAMES, _NAMES, max_size=4),
    tag=st.none() | _NAMES,
    keys=st.none() | _NAMES,
    group=st.none() | _NAMES,
    reconsume_times=st.integers(0, 300),
    queue_offset=st.integers(0, 1 << 50),
)
def test_the_bytes_say_what_protobufs_objects_say(
    form: ModuleType, body: bytes, user: dict[str, str], tag: str | None, keys: str | None, group: str | None,
    reconsume_times: int, queue_offset: int,
) -> None:  # fmt: skip
    properties = {"UNIQ_KEY": "AB", "WAIT": "true", **user}
    for name, value in (("TAGS", tag), ("KEYS", keys), ("__SHARDINGKEY", group)):
        if value is not None:
            properties[name] = value
    message = _record(body, properties, reconsume_times=reconsume_times, queue_offset=queue_offset)
    handle = f"5 1700000000000 60000 4 0 broker-a 3 {queue_offset} {1 << 40}"
    assert _encoded(form, message) == [grpc_message(message, handle)]


@pytest.mark.parametrize(
    ("topic", "handle"),
    [
        ("%RETRY%g_orders", "9 1700000000000 60000 4 1 broker-a 3 7"),
        ("%RETRY%g+orders", "11 1700000000000 60000 4 2 broker-a 3 7"),
    ],
)
def test_a_message_of_the_retry_topic_has_its_mark_in_its_handle(form: ModuleType, topic: str, handle: str) -> None:
    (message,) = _encoded(form, _record(topic=topic)) or []
    assert message.system_properties.receipt_handle == f"{handle} {1 << 40}"
    assert message.topic.name == "orders"


def test_kinds_of_messages(form: ModuleType) -> None:
    kinds = {
        pb.MessageType.NORMAL: {},
        pb.MessageType.FIFO: {"__SHARDINGKEY": "g"},
        pb.MessageType.DELAY: {"DELAY": "3", "__SHARDINGKEY": "g"},
        pb.MessageType.TRANSACTION: {"DELAY": "3", "TRAN_MSG": "true"},
    }
    for kind, properties in kinds.items():
        (message,) = _encoded(form, _record(properties=properties)) or []
        assert message.system_properties.message_type == kind
        assert message == grpc_message(
            _record(properties=properties), f"5 1700000000000 60000 4 0 broker-a 3 7 {1 << 40}"
        )


@pytest.mark.parametrize(
    "message",
    [
        _record(sys_flag=1),
        _record(topic="other"),
        _record(queue_id=4),
        _record(properties={"POP_CK": "a"}),
        _record(properties={"DLQ_ORIGIN_TOPIC": "a"}),
        _record(properties={"TIMER_DELIVER_MS": "1700000000000"}),
        _record(reconsume_times=-1),
    ],
)
def test_what_is_unusual_is_left_to_others(form: ModuleType, message: MessageExt) -> None:
    assert _encoded(form, _record(), message) is None


def test_bytes_that_are_no_records_are_left_to_others(form: ModuleType) -> None:
    data = encode_record(_record(properties={"a": "b"}))
    for end in range(1, len(data)):
        assert form.encode_popped(data[:end], b"orders", b"", _STARTS, _HEAD, _TAIL) is None
    damaged = data.replace(b"a\x01b", b"\xff\x01b")
    assert form.encode_popped(damaged, b"orders", b"", _STARTS, _HEAD, _TAIL) is None
    assert form.encode_popped(b"", b"orders", b"", _STARTS, _HEAD, _TAIL) == []
