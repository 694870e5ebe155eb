"""Receipt handles, offset lists and records of pop consumption, as Java writes them."""

import pytest

from maxq.errors import RemoteProtocolError
from maxq.protocol.body.pop import (
    MOST_ACKED,
    AckMsg,
    BatchAck,
    PopCheckPoint,
    decode_batch_acks,
    decode_bit_set,
    encode_batch_acks,
    encode_bit_set,
)
from maxq.protocol.message.pop_extra_info import (
    ExtraInfo,
    normal_topic,
    parse_extra_info,
    parse_msg_offset_info,
    parse_order_count_info,
    parse_start_offset_info,
    real_topic,
    retry_mark,
    retry_topic_v1,
    retry_topic_v2,
)

JAVA_POINT = (
    b'{"bm":0,"bn":"broker-a","c":"G","d":[0,1,3],"it":60000,"n":3,"pt":1700000000000,"q":0,'
    b'"reviveTime":1700000060000,"ro":0,"so":12,"sp":false,"t":"T"}'
)


def test_a_handle_is_read_as_it_was_written() -> None:
    handle = ExtraInfo(12, 1_700_000_000_000, 60_000, 3, "2", "broker-a", 1, 15)
    assert str(handle) == "12 1700000000000 60000 3 2 broker-a 1 15"
    assert parse_extra_info(str(handle)) == handle
    old = parse_extra_info("12 1700000000000 60000 999 0 broker-a")
    assert old.is_order and old.queue_id is None and old.queue_offset is None


@pytest.mark.parametrize(
    "text", ["", "1 2 3 4 5", "x 2 3 4 0 b 1 1", "1 2 3 4 7 b 1 1", "1 2 3 4 0 b 1 99999999999999999999", "1 2 3 ٣ 0 b"]
)
def test_what_is_no_handle_is_refused(text: str) -> None:
    with pytest.raises(RemoteProtocolError):
        parse_extra_info(text)


def test_offset_lists() -> None:
    assert parse_start_offset_info("0 1 12;1 0 7") == {"0@1": 12, "1@0": 7}
    assert parse_msg_offset_info("0 1 12,13;1 0 7") == {"0@1": [12, 13], "1@0": [7]}
    assert parse_order_count_info("0 qo1%12 3;0 1 0") == {"0@qo1%12": 3, "0@1": 0}
    assert parse_start_offset_info("") == {}
    for text in ("0 1 1;0 1 2", "0 1", "0 1 x"):
        with pytest.raises(RemoteProtocolError):
            parse_start_offset_info(text)


def test_names_of_retry_topics() -> None:
    assert retry_topic_v1("T", "G") == "%RETRY%G_T" and retry_topic_v2("T", "G") == "%RETRY%G+T"
    assert [retry_mark(topic) for topic in ("T", "%RETRY%G_T", "%RETRY%G+T")] == ["0", "1", "2"]
    assert [real_topic("T", "G", mark) for mark in "012"] == ["T", "%RETRY%G_T", "%RETRY%G+T"]
    assert [normal_topic(topic, "G") for topic in ("T", "%RETRY%G_T", "%RETRY%G+T")] == ["T"] * 3


def test_a_check_point_has_javas_bytes() -> None:
    point = PopCheckPoint.decode(JAVA_POINT)
    assert point.open_offsets() == [12, 13, 15] and point.revive_time == 1_700_000_060_000
    assert point.encode() == JAVA_POINT
    assert point.unique_key == "T@0@12@G@1700000000000@broker-a@ck"


def test_the_bit_map_of_32_messages_is_a_java_int() -> None:
    point = PopCheckPoint("T", "G", 0, 0, 1, 1, "b", list(range(32)), 32, bit_map=0xFFFFFFFF)
    assert b'"bm":-1,' in point.encode()
    assert PopCheckPoint.decode(point.encode()).open_offsets() == []


def test_old_check_points_have_neighbours() -> None:
    point = PopCheckPoint.decode(b'{"c":"G","n":2,"so":5,"t":"T","bm":1}')
    assert point.open_offsets() == [6] and point.index_of(6) == 1 and point.index_of(7) == -1


def test_acks_in_both_spellings() -> None:
    short = AckMsg.decode(b'{"ao":13,"bn":"b","c":"G","pt":7,"q":1,"so":12,"t":"T"}', is_batch=False)
    long_names = (
        b'{"ackOffset":13,"brokerName":"b","consumerGroup":"G","popTime":7,"queueId":1,"startOffset":12,"topic":"T"}'
    )
    assert AckMsg.decode(long_names, is_batch=False) == short
    assert short.encode() == b'{"ao":13,"bn":"b","c":"G","pt":7,"q":1,"so":12,"t":"T"}'
    batch = AckMsg("T", "G", 1, 12, 7, "b", [13, 14], is_batch=True)
    assert AckMsg.decode(batch.encode(), is_batch=True) == batch
    assert batch.encode().startswith(b'{"ao":-1,"aol":[13,14],')


def test_bit_sets_are_javas_base64() -> None:
    assert encode_bit_set([0, 2, 9]) == "BQI="
    assert decode_bit_set("BQI=") == [0, 2, 9]
    name, (ack,) = decode_batch_acks(
        b'{"brokerName":"b","acks":[{"c":"G","t":"T","r":"0","so":12,"q":1,"rq":3,"pt":7,"it":60000,"b":"BQI="}]}'
    )
    assert name == "b" and ack.bits == [0, 2, 9] and ack.revive_queue_id == 3
    for body in (b"[]", b'{"acks":3}', b'{"acks":[1]}', b'{"acks":[{"c":"G","t":"T","b":"!"}]}'):
        with pytest.raises(RemoteProtocolError):
            decode_batch_acks(body)


def test_a_batch_of_acks_names_a_bounded_number_of_messages() -> None:
    def batch(*counts: int) -> bytes:
        acks = [BatchAck("T", "G", "0", 12, 0, 3, 1700000000000, 60000, list(range(count))) for count in counts]
        return encode_batch_acks("b", acks)

    _, acks = decode_batch_acks(batch(MOST_ACKED - 5, 5))
    assert [len(ack.bits) for ack in acks] == [MOST_ACKED - 5, 5]
    for counts in ((MOST_ACKED - 5, 6), (MOST_ACKED + 1,)):
        with pytest.raises(RemoteProtocolError, match=f"{MOST_ACKED}"):
            decode_batch_acks(batch(*counts))
