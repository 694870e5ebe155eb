"""The forms of a message of a transaction."""

import pytest

from maxq.broker.transaction.half_message import (
    check_body,
    copy_of,
    final_message,
    given_up,
    opened_again,
    turn_away,
)
from maxq.broker.transaction.transactional_message_service import stored_properties
from maxq.protocol.message.message import MessageExt, decode_record, encode_record
from maxq.protocol.message.message_properties import encode_properties
from maxq.protocol.message.transaction_view import origin_of
from maxq.store.append.message_ext_broker_inner import MessageExtBrokerInner

HALF = "RMQ_SYS_TRANS_HALF_TOPIC"


def sent(**properties: str) -> MessageExtBrokerInner:
    known = {"TRAN_MSG": "true", "PGROUP": "G", "UNIQ_KEY": "U", **properties}
    return MessageExtBrokerInner("T", 3, b"body", known, sys_flag=0x4 | 0x1)


def half(**properties: str) -> MessageExt:
    message = sent(**properties)
    assert turn_away(message)
    return MessageExt(
        message.topic, b"body", message.properties, 7, queue_id=0, queue_offset=5, physical_offset=900,
        sys_flag=message.sys_flag, born_timestamp=11, store_timestamp=12, reconsume_times=1,
    )  # fmt: skip


def test_half_message_remembers_where_it_was_sent() -> None:
    message = sent()
    assert turn_away(message)
    assert (message.topic, message.queue_id, message.sys_flag) == (HALF, 0, 0x1)
    assert message.properties["REAL_TOPIC"] == "T"
    assert message.properties["REAL_QID"] == "3"
    assert message.properties["__transactionId__"] == "U"
    assert not turn_away(message), "a half message is not turned away again"


@pytest.mark.parametrize("text", ["false", "", "yes"])
def test_other_messages_go_their_way(text: str) -> None:
    message = MessageExtBrokerInner("T", 3, b"body", {"TRAN_MSG": text})
    assert not turn_away(message)
    assert (message.topic, message.queue_id) == ("T", 3)


def test_second_tries_of_old_clients_are_not_held_back() -> None:
    message = sent(DELAY="3")
    message.reconsume_times = 1
    assert not turn_away(message)
    assert (message.topic, message.sys_flag) == ("T", 0x1)


def test_final_message_has_the_stored_properties_of_the_half_message() -> None:
    known = half(DELAY="2")
    stored = b"as they are"
    message = final_message(known, stored)
    assert (message.topic, message.queue_id, message.body, message.flag) == ("T", 3, b"body", 7)
    assert (message.sys_flag, message.prepared_transaction_offset) == (0x8 | 0x1, 900)
    assert (message.born_timestamp, message.reconsume_times, message.properties_data) == (11, 1, stored)
    assert message.properties["DELAY"] == "2"
    assert not {"REAL_TOPIC", "REAL_QID", "TRAN_MSG"} & message.properties.keys()
    assert not turn_away(message)


def test_final_message_makes_its_own_crc_property() -> None:
    message = final_message(half(**{"__CRC32#": "123"}), b"with a wrong one")
    assert message.properties_data is None
    assert "__CRC32#" not in message.properties


def test_copies_keep_their_origin() -> None:
    first = copy_of(half(), 1)
    assert (first.topic, first.properties["TRANSACTION_CHECK_TIMES"]) == (HALF, "1")
    assert first.properties["TRAN_PREPARED_QUEUE_OFFSET"] == "5"
    again = half()
    again.properties["TRAN_PREPARED_QUEUE_OFFSET"] = "2"
    assert origin_of(again) == 2
    assert copy_of(again).properties["TRAN_PREPARED_QUEUE_OFFSET"] == "2"
    assert given_up(again).properties["TRAN_PREPARED_QUEUE_OFFSET"] == "2"
    assert origin_of(half(TRAN_PREPARED_QUEUE_OFFSET="no number")) == 5


def test_opened_again_elsewhere_it_is_what_was_sent() -> None:
    message = opened_again(half(TRAN_PREPARED_QUEUE_OFFSET="2"))
    assert (message.topic, message.sys_flag & 0xC) == ("T", 4)
    assert message.properties["TRAN_MSG"] == "true"
    assert not {"REAL_TOPIC", "REAL_QID", "TRAN_PREPARED_QUEUE_OFFSET"} & message.properties.keys()


def test_a_producer_is_shown_topic_and_queue_of_his_message() -> None:
    shown = decode_record(check_body(half()))
    assert (shown.topic, shown.queue_id, shown.body, shown.queue_offset) == ("T", 3, b"body", 5)


@pytest.mark.parametrize("topic", ["T", "T" * 200])
@pytest.mark.parametrize("host", [bytes(8), bytes(20)])
def test_stored_properties_are_the_last_part_of_a_record(topic: str, host: bytes) -> None:
    known = half(KEYS="k")
    known.topic, known.born_host, known.store_host = topic, host, host
    assert stored_properties(memoryview(encode_record(known))) == encode_properties(known.properties).encode()
