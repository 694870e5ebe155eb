"""Copies made from record to record are those of the slow path, in both forms of the module."""

from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maxq.broker.processors.send.send_back import sent_back
from maxq.broker.schedule_message.delay_hook import DelayHook
from maxq.broker.schedule_message.delay_levels import DelayLevels
from maxq.broker.schedule_message.delayed_message import time_up
from maxq.protocol.message.message import MessageExt, decode_record, encode_record
from tests.short_form import times
from tests.unit.both_forms import both

FORMS = both("maxq.store.append.record_copy_cy")
V4, V6 = bytes([127, 0, 0, 1, 0, 0, 42, 159]), bytes(range(16)) + (10911).to_bytes(4, "big")
MADE_BY_COPIES = ["DELAY", "REAL_TOPIC", "REAL_QID", "WAIT", "RETRY_TOPIC", "ORIGIN_MESSAGE_ID"]
LEFT = ["__CRC32#", "INNER_NUM", "INNER_MULTI_DISPATCH", "MAXQ_DAMAGED", "TIMER_DELIVER_MS", "TRAN_MSG", "__LITE_TOPIC"]


def _message(properties: dict[str, str], *, topic: str = "T", body: bytes = b"body", **more: Any) -> MessageExt:
    fields: dict[str, Any] = {"born_host": V4, "store_host": V4, "queue_id": 2, "queue_offset": 5, **more}
    times = {"born_timestamp": 1_700_000_000_123, "store_timestamp": 1_700_000_000_456}
    message = MessageExt(topic=topic, body=body, flag=7, properties=properties, physical_offset=4096, **times, **fields)
    return decode_record(encode_record(message))


names = st.one_of(
    st.sampled_from([*MADE_BY_COPIES, "TAGS", "KEYS", "UNIQ_KEY"]), st.text("abж_", min_size=1, max_size=4)
)
values = st.text(st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]), min_size=1, max_size=9)
messages = st.builds(
    _message,
    st.dictionaries(names, values, max_size=8),
    topic=st.sampled_from(["T", "%RETRY%G", "t" * 200]),
    body=st.binary(max_size=40),
    born_host=st.sampled_from([V4, V6]),
    store_host=st.sampled_from([V4, V6]),
    reconsume_times=st.integers(0, 20),
    sys_flag=st.sampled_from([0, 1, 8]),
)


@settings(max_examples=times(200), deadline=None)
@given(messages)
def test_what_comes_back_is_copied_as_the_general_way_does_it(message: MessageExt) -> None:
    record = memoryview(encode_record(message))
    general = sent_back(message, "%RETRY%G", 3, 4)
    DelayHook(DelayLevels("1s 1s 1s 1s 1s"), lambda level: None)(general)
    for form in FORMS:
        copy = form.RecordCopy()
        if not copy.read(record):
            assert not "!" <= message.properties["ORIGIN_MESSAGE_ID"][0] < "\x80"  # it may count as blank
            continue
        properties = copy.sent_back(b"%RETRY%G", b"3", b"4", message.offset_msg_id.encode())
        assert properties == general.encoded_properties(), form
        assert bytes(record[copy.body_start : copy.body_end]) == message.body == bytes(general.body), form
        assert (copy.retry_topic or copy.topic).decode() == general.properties["RETRY_TOPIC"], form
        assert (copy.flag, copy.born_timestamp, copy.born_host, copy.reconsume_times + 1, copy.body_crc) == (
            general.flag, general.born_timestamp, general.born_host, general.reconsume_times, message.body_crc,
        ), form  # fmt: skip


@settings(max_examples=times(200), deadline=None)
@given(messages)
def test_what_is_due_is_copied_as_the_general_way_does_it(message: MessageExt) -> None:
    message.properties |= {"REAL_TOPIC": "Real", "REAL_QID": "12", "ORIGIN_MESSAGE_ID": "7F"}
    record = memoryview(encode_record(message))
    general = time_up(decode_record(record))
    for form in FORMS:
        copy = form.RecordCopy()
        assert copy.read(record), form
        assert (copy.real_topic.decode(), copy.real_queue_id, copy.properties) == (
            general.topic, general.queue_id, general.properties_data,
        ), form  # fmt: skip
        assert (copy.store_host, copy.reconsume_times) == (general.store_host, general.reconsume_times), form


@pytest.mark.parametrize("form", FORMS, ids=["uncompiled", "installed"])
def test_what_is_not_plain_is_left(form: ModuleType) -> None:
    copy = form.RecordCopy()
    plain = encode_record(_message({"TAGS": "a"}))
    assert copy.read(memoryview(plain))
    assert copy.real_queue_id == -1 and copy.real_topic == b""
    for name in LEFT:
        assert not copy.read(memoryview(encode_record(_message({name: "1"})))), name
    for sys_flag in (0x4, 0xC, 0x80):
        assert not copy.read(memoryview(encode_record(_message({"TAGS": "a"}, sys_flag=sys_flag)))), sys_flag
    for text in (b"TAGS\x01a\x02TAGS\x01b\x02", b"TAGS\x02", b"\x01a\x02", b"TAGS\x01\x02", b"TAGS\x01a\x02\x02"):
        assert not copy.read(memoryview(_with_properties(plain, text))), text
    assert copy.read(memoryview(_with_properties(plain, b"TAGS\x01a"))) and copy.properties == b"TAGS\x01a\x02"
    for text in (b"REAL_QID\x01-1\x02", b"REAL_QID\x01x\x02", b"REAL_QID\x011234567890\x02"):
        assert copy.read(memoryview(_with_properties(plain, text))) and copy.real_queue_id == -1


@settings(max_examples=times(300), deadline=None)
@given(st.data())
def test_no_bytes_do_harm(data: st.DataObject) -> None:
    record = bytearray(encode_record(_message({"TAGS": "a", "REAL_TOPIC": "R", "REAL_QID": "1"})))
    for _ in range(data.draw(st.integers(1, 4))):
        record[data.draw(st.integers(0, len(record) - 1))] = data.draw(st.integers(0, 255))
    size = data.draw(st.integers(0, len(record)))
    for form in FORMS:
        copy = form.RecordCopy()
        if copy.read(memoryview(record)[:size]):
            assert 0 <= copy.body_start <= copy.body_end <= len(record)
            copy.sent_back(b"R", b"1", b"2", b"id")


def _with_properties(record: bytes, text: bytes) -> bytes:
    head = record[: -2 - len(b"TAGS\x01a\x02")]
    size = len(head) + 2 + len(text)
    return size.to_bytes(4, "big") + head[4:] + len(text).to_bytes(2, "big") + text
