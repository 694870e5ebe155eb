"""Records, batch bodies and properties, against the specification's vectors and a naive second implementation."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maxq.client.instance.pull_api import unpack
from maxq.errors import LocalProtocolError, RemoteProtocolError
from maxq.protocol.message.compression import CompressionType, compress, compression_flag
from maxq.protocol.message.message import (
    Message,
    MessageExt,
    crc31,
    decode_batch,
    decode_properties,
    decode_record,
    decode_records,
    encode_batch,
    encode_host,
    encode_properties,
    encode_record,
)
from maxq.protocol.message.message_sys_flag import MessageSysFlag
from maxq.protocol.message.record_layout import MAGIC_V1, MAGIC_V2
from tests.unit.protocol.message.naive_record import (
    Bad,
    NaiveRecord,
    read_batch,
    read_properties,
    read_record,
    write_record,
)

V1 = bytes.fromhex(
    "0000009adaa320a758932aac0000000100000000000000000000000500000000000004000000000000"
    "00018bcfe568000a00000200009c400000018bcfe5687b0a00000100002a9f000000000000000000000000000000026869"
    "09546f706963546573740034544147530154616741"
    "02554e49515f4b4559013041303030303031303030303146343041414242434344443030303030303031"
    "02"
)
MESSAGE = MessageExt(
    "TopicTest", b"hi", {"TAGS": "TagA", "UNIQ_KEY": "0A00000100001F40AABBCCDD00000001"}, 0, "", 1, 5, 1024, 0,
    1700000000000, encode_host("10.0.0.2", 40000), 1700000000123, encode_host("10.0.0.1", 10911), 0, 0, 0x58932AAC,
    154, 1,
)  # fmt: skip


def test_vector_of_a_stored_message_goes_both_ways() -> None:
    assert decode_record(V1, check_crc=True) == MESSAGE
    assert encode_record(MESSAGE) == V1
    assert MESSAGE.offset_msg_id == "0A00000100002A9F0000000000000400"
    assert MESSAGE.msg_id == "0A00000100001F40AABBCCDD00000001"


def test_store_formats_worked_example_has_197_bytes_and_198_as_v2() -> None:
    properties = {
        "UNIQ_KEY": "C0A8010A04D2251A69D73B5A6B400001", "CLUSTER": "DefaultCluster", "TAGS": "TagA", "KEYS": "k1",
    }  # fmt: skip
    message = MessageExt(
        "TopicTest", b"Hello RocketMQ", properties, queue_id=3, queue_offset=5, physical_offset=1000,
        born_timestamp=1700000000000, born_host=encode_host("192.168.1.10", 50000), store_timestamp=1700000000123,
        store_host=encode_host("192.168.1.20", 10911),
    )  # fmt: skip
    record = encode_record(message)
    assert record[:12].hex() == "000000c5daa320a769c865ed"
    with_room_for_crc = bytes.fromhex("000000d9") + record[4:112] + bytes.fromhex("0067") + record[114:]
    assert crc31(with_room_for_crc) == 961708305
    assert message.offset_msg_id == "C0A8011400002A9F00000000000003E8"
    message.version = 2
    assert len(encode_record(message)) == 198


def test_topics_over_127_bytes_are_written_as_v2() -> None:
    record = encode_record(MessageExt("é" * 64, b""))
    assert int.from_bytes(record[4:8], "big") == MAGIC_V2
    assert decode_record(record).topic == "é" * 64


@pytest.mark.parametrize("kind", CompressionType)
def test_bodies_are_inflated_on_request_only(kind: CompressionType) -> None:
    message = MessageExt("T", compress(b"x" * 1000, kind), sys_flag=compression_flag(kind))
    assert decode_record(encode_record(message)).body == message.body
    assert decode_record(encode_record(message), inflate=True).body == b"x" * 1000


def test_old_clients_zlib_has_no_type_bits() -> None:
    message = MessageExt("T", compress(b"x" * 1000), sys_flag=1)
    assert decode_record(encode_record(message), inflate=True).body == b"x" * 1000


def test_what_does_not_fit_a_record_is_our_own_fault() -> None:
    with pytest.raises(LocalProtocolError, match="32767"):
        encode_record(MessageExt("T", b"", {"k": "v" * 32767}))
    with pytest.raises(LocalProtocolError, match="32767"):
        encode_record(MessageExt("T" * 32768))
    with pytest.raises(LocalProtocolError, match="32767"):
        encode_batch([Message("T", b"", {"k": "v" * 32767})])


def test_a_wrong_crc_and_cut_records_are_named() -> None:
    damaged = bytearray(V1)
    damaged[88] ^= 1
    with pytest.raises(RemoteProtocolError, match="CRC"):
        decode_record(damaged, check_crc=True)
    for length in range(len(V1)):
        with pytest.raises(RemoteProtocolError):
            decode_record(V1[:length])


def test_records_back_to_back_decode_with_the_brokers_name() -> None:
    messages = decode_records(V1 * 3, broker_name="broker-a")
    assert [message.broker_name for message in messages] == ["broker-a"] * 3
    with pytest.raises(RemoteProtocolError):
        decode_records(V1 + b"\0")


hosts = st.binary(min_size=8, max_size=8) | st.binary(min_size=20, max_size=20)
int32 = st.integers(-(1 << 31), (1 << 31) - 1)
int64 = st.integers(-(1 << 63), (1 << 63) - 1)
names = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x01\x02"), min_size=1, max_size=8)
properties_of = st.dictionaries(names, names, max_size=4)
messages_ext = st.builds(
    MessageExt,
    topic=st.text(st.characters(exclude_categories=["Cs"]), max_size=200),
    body=st.binary(max_size=60),
    properties=properties_of,
    flag=int32,
    queue_id=int32,
    queue_offset=int64,
    physical_offset=int64,
    sys_flag=int32,
    born_timestamp=int64,
    born_host=hosts,
    store_timestamp=int64,
    store_host=hosts,
    reconsume_times=int32,
    prepared_transaction_offset=int64,
    version=st.sampled_from([1, 2]),
)


@given(messages_ext)
def test_records_are_those_of_the_naive_implementation(message: MessageExt) -> None:
    record = encode_record(message)
    naive = read_record(record, check_crc=True)
    assert write_record(naive) == record
    assert naive.magic == (MAGIC_V2 if message.version == 2 or len(message.topic.encode()) > 127 else MAGIC_V1)
    assert_same(decode_record(record, check_crc=True), naive)


def assert_same(message: MessageExt, naive: NaiveRecord) -> None:
    assert message.topic.encode("utf-8", "replace") == naive.topic.decode("utf-8", "replace").encode()
    assert message.body == naive.body
    assert message.properties == read_properties(naive.properties.decode("utf-8", "replace"))
    assert (message.flag, message.queue_id, message.queue_offset) == (naive.flag, naive.queue_id, naive.queue_offset)
    assert (message.physical_offset, message.sys_flag) == (naive.physical_offset, naive.sys_flag)
    assert (message.born_timestamp, message.born_host) == (naive.born_timestamp, naive.born_host)
    assert (message.store_timestamp, message.store_host) == (naive.store_timestamp, naive.store_host)
    assert (message.reconsume_times, message.prepared_transaction_offset) == (naive.reconsume_times, naive.prepared)
    assert (message.store_size, message.body_crc) == (naive.total, naive.body_crc)


@given(messages_ext, st.data())
def test_damaged_records_are_refused_exactly_when_the_naive_implementation_refuses(
    message: MessageExt, data: st.DataObject
) -> None:
    damaged = bytearray(encode_record(message))
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    check_crc = data.draw(st.booleans())
    try:
        naive = read_record(bytes(damaged), check_crc)
    except Bad:
        with pytest.raises(RemoteProtocolError):
            decode_record(damaged, check_crc=check_crc)
    else:
        assert_same(decode_record(damaged, check_crc=check_crc), naive)


def test_vector_of_a_batch_body_goes_both_ways() -> None:
    body = bytes.fromhex(
        "00000022000000000000000000000000000000026230000a54414753015461674102"
        "000000180000000000000000000000000000000262310000"
    )
    assert len(body) == 58
    assert encode_batch([Message("T", b"b0", {"TAGS": "TagA"}), Message("T", b"b1")]) == body
    assert decode_batch(body, "T") == [Message("T", b"b0", {"TAGS": "TagA"}), Message("T", b"b1")]


batches = st.lists(st.builds(Message, st.just("T"), st.binary(max_size=20), properties_of, int32), max_size=5)


@given(batches)
def test_batches_are_those_of_the_naive_implementation(messages: list[Message]) -> None:
    body = encode_batch(messages)
    assert decode_batch(body, "T") == messages
    assert [(flag, data) for flag, data, _ in read_batch(body)] == [(m.flag, m.body) for m in messages]


@given(batches, st.data())
def test_damaged_batches_are_refused_exactly_when_the_naive_implementation_refuses(
    messages: list[Message], data: st.DataObject
) -> None:
    damaged = bytearray(encode_batch(messages) or b"\0")
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    try:
        expected = read_batch(bytes(damaged))
    except Bad:
        with pytest.raises(RemoteProtocolError):
            decode_batch(damaged, "T")
    else:
        assert [(m.flag, m.body) for m in decode_batch(damaged, "T")] == [(flag, body) for flag, body, _ in expected]


@pytest.mark.parametrize(
    ("text", "properties"),
    [
        ("a\x01b\x02c\x01d", {"a": "b", "c": "d"}),
        ("a\x01b\x02a\x01c\x02", {"a": "c"}),
        ("\x01b\x02a\x01\x02ab\x02x\x01y\x01z\x02", {"x": "y\x01z"}),
        ("", {}),
        ("\x02\x02", {}),
    ],
)
def test_property_texts_are_read_as_java_reads_them(text: str, properties: dict[str, str]) -> None:
    assert decode_properties(text) == decode_properties(text.encode()) == properties
    assert read_properties(text) == properties


@given(properties_of)
def test_properties_survive_their_text(properties: dict[str, str]) -> None:
    text = encode_properties(properties)
    assert decode_properties(text) == properties
    assert not text or text.endswith("\x02")


@given(st.text("ab\x01\x02é", max_size=30))
def test_any_property_text_is_read_as_the_naive_implementation_reads_it(text: str) -> None:
    assert decode_properties(text) == read_properties(text)


def test_accessors_read_and_write_properties() -> None:
    message = Message("T")
    message.tags, message.keys, message.delay_level, message.wait_store_msg_ok = "TagA", ["k1", "k2"], 3, False
    assert message.properties == {"TAGS": "TagA", "KEYS": "k1 k2", "DELAY": "3", "WAIT": "false"}
    assert (message.tags, message.keys, message.delay_level, message.wait_store_msg_ok) == ("TagA", "k1 k2", 3, False)
    assert Message("T", properties={"DELAY": "soon"}).delay_level == 0
    assert Message("T").wait_store_msg_ok
    message.put_user_property("color", "blue")
    for name, value in (("TAGS", "x"), ("UNIQ_KEY", "x"), ("", "x"), ("x", "")):
        with pytest.raises(LocalProtocolError):
            message.put_user_property(name, value)


def test_the_bits_of_sys_flag_are_plain_ints_so_that_testing_one_costs_nothing() -> None:
    bits = [value for name, value in vars(MessageSysFlag).items() if name.isupper()]
    assert len(bits) == 12
    assert {type(bit) for bit in bits} == {int}


def test_a_body_that_is_not_what_its_flag_says_stays_as_it_is() -> None:
    for flag in (1, 0x101, 0x201, 0x301, 0x501):
        message = decode_record(encode_record(MessageExt("T", b"raw", sys_flag=flag)), inflate=True)
        assert message.body == b"raw" and message.body_fault
    assert not decode_record(encode_record(MessageExt("T", b"raw", sys_flag=1))).body_fault


def test_what_is_called_an_inner_batch_and_is_none_is_one_message() -> None:
    (empty,) = unpack(MessageExt("T", b"", sys_flag=MessageSysFlag.INNER_BATCH | MessageSysFlag.NEED_UNWRAP))
    assert empty.body_fault, "it is no less a message"
    (message,) = unpack(MessageExt("T", b"no batch", sys_flag=MessageSysFlag.INNER_BATCH | MessageSysFlag.NEED_UNWRAP))
    assert message.body == b"no batch" and message.body_fault


@pytest.mark.parametrize("properties", [{"a": "b\x02c"}, {"a\x01b": "c"}, {"a\x02": "c"}, {"a": 1}, {"a": None}])
def test_properties_that_would_be_read_as_others_are_not_written(properties: dict[str, str]) -> None:
    with pytest.raises(LocalProtocolError, match="propert"):
        encode_properties(properties)
    with pytest.raises(LocalProtocolError, match="propert"):
        Message("T").put_user_property(*next(iter(properties.items())))


def test_a_value_may_hold_the_character_behind_names() -> None:
    assert decode_properties(encode_properties({"a": "b\x01c"})) == {"a": "b\x01c"}


def test_keys_with_a_blank_are_refused_for_they_would_be_two() -> None:
    message = Message("T")
    with pytest.raises(LocalProtocolError, match="the key 'order 7' has a blank, which separates keys"):
        message.keys = ["a", "order 7"]
    assert message.keys is None
    message.keys = ["a", "b"]
    assert message.keys == "a b"
