"""Received messages are what `decode_records` makes, in both forms, however and whenever they are read."""

import copy
import dataclasses
import gc
import pickle
from types import ModuleType
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from maxq.errors import RemoteProtocolError
from maxq.protocol.message.compression import CompressionType, compress, compression_flag
from maxq.protocol.message.message import MessageExt, decode_properties, decode_records, encode_host, encode_record
from maxq.protocol.namespace import unwrap
from tests.unit.both_forms import both

FORMS = both("maxq.protocol.message.received_cy")
FIELDS = [field.name for field in dataclasses.fields(MessageExt)]
BATCH = 0xC0

texts = st.text(st.sampled_from("ab\x01\x02ж€\U0001f600"), max_size=12).map(str.encode)
property_texts = st.one_of(
    st.sampled_from([b"TAGS\x01a\x02", b"TAGS\x01a", b"TAGS\x01a\x02TAGS\x01b\x02", b"TAGS\x01\x02", b"\x01a\x02"]),
    st.lists(
        st.sampled_from(
            [b"TAGS\x01a\x02", b"TAGS\x01b\x02", b"TAGS\x01\xff\x02", b"TAGS\x01a\x01c\x02", b"XTAGS\x01a\x02", b"\x02",
             b"KEYS\x01k\x02", b"MIN_OFFSET\x017\x02", b"\xe2\x82\x01\xf0\x90\x80\x02", b"\xed\xa0\x80\x01v\x02"]
        ), max_size=6).map(b"".join),
    st.binary(max_size=30),
    texts,
)  # fmt: skip


@st.composite
def records(draw: st.DrawFn, *, is_batch_possible: bool = True) -> bytes:
    kind = draw(st.sampled_from([None, *CompressionType]))
    body = draw(st.binary(max_size=40))
    flag = draw(st.sampled_from([0, 2, 4, 8, BATCH] if is_batch_possible else [0, 2, 4, 8]))
    if kind is not None:
        flag |= compression_flag(kind)
        body = draw(st.sampled_from([compress(body, kind), body]))
    hosts = [encode_host("10.0.0.1", 9), encode_host("::1", 10911)]
    message = MessageExt(
        draw(st.sampled_from(["T", "Tж", "ns%T", "L" * 200, ""])), body, {}, draw(st.integers(-(2**31), 2**31 - 1)), "",
        draw(st.integers(0, 9)), draw(st.integers(-(2**63), 2**62)), draw(st.integers(0, 2**62)), flag,
        draw(st.integers(-1, 2**50)), draw(st.sampled_from(hosts)), draw(st.integers(-1, 2**50)),
        draw(st.sampled_from(hosts)), draw(st.integers(0, 20)), draw(st.integers(0, 2**50)),
        version=draw(st.sampled_from([1, 2])),
    )  # fmt: skip
    return encode_record(message, draw(property_texts))


def expected(body: bytes, namespace: str = "", delta: int | None = None, tags: set[str] | None = None) -> Any:
    """Return what the slow path makes of a pull; see PullAPIWrapper.for_the_user."""
    messages = decode_records(body, inflate=True, broker_name="b")
    for message in messages:
        if delta is not None:
            message.queue_id, message.queue_offset = 77, message.queue_offset + delta
        message.topic = unwrap(namespace, message.topic)
    messages = [message for message in messages if tags is None or message.properties.get("TAGS") in tags]
    for message in messages:
        message.properties["MIN_OFFSET"], message.properties["MAX_OFFSET"] = "3", "99"
    return messages


def pull(form: ModuleType, namespace: str = "", delta: int | None = None) -> Any:
    unwrapped = (lambda topic: unwrap(namespace, topic)) if namespace else None
    return form.Pull("b", 3, 99, -1 if delta is None else 77, delta or 0, unwrapped)


def made(form: ModuleType, *messages: MessageExt) -> list[MessageExt]:
    found: list[MessageExt] = form.read_records(b"".join(map(encode_record, messages)), pull(form))
    assert all(type(message) is form.ReceivedMessage for message in found)
    return found


def values(message: MessageExt, names: list[str] = FIELDS) -> dict[str, Any]:
    found = {name: getattr(message, name) for name in names}
    found["properties"] = list(message.properties.items())  # their order counts
    return found


@given(
    st.lists(records(is_batch_possible=False), max_size=4), st.permutations(FIELDS), st.sampled_from(["", "ns"]),
    st.sampled_from([None, 5]), st.sampled_from([None, {"a"}, {"b", "a\x01c"}, {"\ufffd"}]),
)  # fmt: skip
def test_messages_are_those_of_the_general_way_in_whatever_order_their_fields_are_read(
    parts: list[bytes], names: list[str], namespace: str, delta: int | None, tags: set[str] | None
) -> None:
    body = b"".join(parts)
    for form in FORMS:
        found = form.read_records(body, pull(form, namespace, delta), tags)
        wanted = expected(body, namespace, delta, tags)
        assert [values(message, names) for message in found] == [values(message, names) for message in wanted]
        assert found == wanted
        assert wanted == found


@given(
    st.lists(records(), max_size=3), st.lists(st.tuples(st.integers(0), st.integers(0, 255)), max_size=3),
    st.integers(0, 60), st.binary(max_size=5),
)  # fmt: skip
@example([encode_record(MessageExt("T", b"b"))], [(0, 255)], 0, b"")
def test_what_the_general_way_refuses_is_left_to_it_at_once(
    parts: list[bytes], damage: list[tuple[int, int]], cut: int, more: bytes
) -> None:
    body = bytearray(b"".join(parts))
    for at, byte in damage:
        if body:
            body[at % len(body)] = byte
    body = body[: len(body) - cut] + more
    try:
        wanted = expected(bytes(body))
    except RemoteProtocolError:
        wanted = None
    if wanted is not None and any(message.sys_flag & BATCH == BATCH for message in wanted):
        wanted = None
    for form in FORMS:
        found = form.read_records(bytes(body), pull(form))
        assert found == wanted


@given(property_texts)
def test_properties_are_decoded_as_everywhere(text: bytes) -> None:
    for form in FORMS:
        assert list(form.decode_property_text(text).items()) == list(decode_properties(text).items())


@pytest.mark.parametrize("form", FORMS)
def test_a_body_that_does_not_inflate_says_why_whichever_is_read_first(form: ModuleType) -> None:
    broken = MessageExt("T", b"no zlib", sys_flag=compression_flag(CompressionType.ZLIB))
    (first,), (second,) = made(form, broken), made(form, broken)
    assert "not ZLIB" in first.body_fault
    assert first.body == b"no zlib"
    assert second.body == b"no zlib"
    assert second.body_fault == first.body_fault


@pytest.mark.parametrize("form", FORMS)
def test_a_body_and_a_fault_that_were_replaced_before_they_were_read_stay(form: ModuleType) -> None:
    packed = MessageExt("T", compress(b"x" * 100), sys_flag=compression_flag(CompressionType.ZLIB))
    (message,) = made(form, packed)
    message.body = b"mine"
    assert message.body_fault == ""
    assert message.body == b"mine"
    (message,) = made(form, packed)
    message.body = b"mine"
    assert pickle.loads(pickle.dumps(message)).body == b"mine"
    (message,) = made(form, MessageExt("T", b"no zlib", sys_flag=compression_flag(CompressionType.ZLIB)))
    message.body_fault = "known"
    assert message.body == b"no zlib"
    assert message.body_fault == "known"


@pytest.mark.parametrize("form", FORMS)
def test_a_message_can_be_changed_before_and_after_it_was_read(form: ModuleType) -> None:
    message, other = made(form, MessageExt("T", b"b", {"K": "v"}), MessageExt("T", b"c"))
    message.topic, message.reconsume_times = "Mine", 4
    message.reconsume_times += 1
    message.properties["X"] = "y"
    message.tags, message.body = "t", b"other"
    assert (message.topic, message.reconsume_times, message.body, message.queue_id) == ("Mine", 5, b"other", 0)
    assert list(message.properties) == ["K", "MIN_OFFSET", "MAX_OFFSET", "X", "TAGS"]
    assert other.topic == "T", "each has its own"
    assert message != other
    with pytest.raises(AttributeError):
        message.colour = "red"  # type: ignore[attr-defined]
    with pytest.raises(AttributeError):
        message.color  # type: ignore[attr-defined]  # noqa: B018
    with pytest.raises(TypeError):
        hash(message)


@pytest.mark.parametrize("form", FORMS)
def test_copies_and_pickles_are_plain_messages_with_the_same_fields(form: ModuleType) -> None:
    (message,) = made(form, MessageExt("T", b"b", {"K": "v"}, queue_offset=5, sys_flag=4))
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        again = pickle.loads(pickle.dumps(message, protocol))
        assert type(again) is MessageExt
        assert again == message
    deep = copy.deepcopy(message)
    assert deep == message
    assert copy.copy(message) == message
    assert deep.properties is not message.properties
    assert dataclasses.replace(message, topic="Other").topic == "Other"
    assert dataclasses.asdict(message) == dataclasses.asdict(deep)
    assert repr(message) == repr(deep).replace("MessageExt", "ReceivedMessage", 1)


@pytest.mark.parametrize("form", FORMS)
def test_a_kept_message_keeps_its_own_record_alone(form: ModuleType) -> None:
    kept = made(form, *(MessageExt("T", bytes(100_000), {"K": "v"}) for _ in range(3)))[1]
    held, seen = [kept], set()
    sizes = 0
    while held:
        item = held.pop()
        if id(item) not in seen and not isinstance(item, type):
            seen.add(id(item))
            sizes += len(item) if isinstance(item, bytes) else 0
            held += gc.get_referents(item)
    assert sizes < 101_000


@pytest.mark.parametrize("form", FORMS)
def test_a_message_that_refers_to_itself_is_collected(form: ModuleType) -> None:
    class Told:
        alive = 0

        def __init__(self) -> None:
            Told.alive += 1

        def __del__(self) -> None:
            Told.alive -= 1

    for way in ("field", "properties"):
        (message,) = made(form, MessageExt("T", b"b"))
        if way == "field":
            message.body = [message, Told()]  # type: ignore[assignment]
        else:
            message.properties["me"] = [message, Told()]  # type: ignore[assignment]
        del message
    gc.collect()
    assert Told.alive == 0


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("is_read", [False, True])
def test_consumers_mark_messages_as_they_mark_plain_ones(form: ModuleType, is_read: bool) -> None:
    retried = MessageExt("%RETRY%G", b"", {"RETRY_TOPIC": "T"})
    sent = [MessageExt("T", b"1"), retried, MessageExt("%RETRY%G", b"2"), MessageExt("U", b"3")]
    plain, received = expected(b"".join(map(encode_record, sent))), made(form, *sent)
    alike = made(form, *(MessageExt("T", b"x") for _ in range(3)))
    if is_read:
        assert all(message.properties for message in received)
    for messages in (plain, received, alike):
        form.show_own_topics(messages, "%RETRY%G")
        form.mark_started(messages, "123")
    assert [message.topic for message in received] == ["T", "T", "%RETRY%G", "U"]
    assert received == plain
    assert all(message.topic == "T" and message.properties["CONSUME_START_TIME"] == "123" for message in alike)
    form.mark_started(received, "124")
    assert all(message.properties["CONSUME_START_TIME"] == "124" for message in received)


def test_fields_are_no_way_into_foreign_memory() -> None:
    field = FORMS[1].ReceivedMessage.__dict__["body"]
    for use in (lambda: field.__get__(5, int), lambda: field.__set__(5, b""), lambda: field.__delete__(5)):
        with pytest.raises((TypeError, AttributeError)):
            use()
    (message,) = made(FORMS[1], MessageExt("T", b"b"))
    del message.topic
    assert message.topic == "T", "it is decoded again"
    empty = FORMS[1].ReceivedMessage.__new__(FORMS[1].ReceivedMessage)
    with pytest.raises(AttributeError):
        empty.topic  # noqa: B018
