"""Half messages and final messages of the compiled path, in both forms of each module, against the general codec."""

import itertools
import json
import struct
from types import ModuleType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maxq.broker.transaction.half_message import final_message, turn_away
from maxq.broker.transaction.transactional_message_service import stored_properties
from maxq.protocol.message.message import MessageExt, decode_record, encode_record
from maxq.protocol.message.message_properties import decode_properties, encode_properties
from maxq.store.append.message_ext_broker_inner import MessageExtBrokerInner
from tests.short_form import times
from tests.unit.both_forms import both_together

SCAN_FORMS = both_together("maxq.protocol.frame.send_scanner_cy", "maxq.protocol.frame.replies_cy")
LOG_FORMS = both_together(
    "maxq.store.log.tails_cy",
    "maxq.store.log.log_cy",
    "maxq.store.append.log_rows_cy",
    "maxq.store.append.log_final_cy",
)
FORMS = list(itertools.product(SCAN_FORMS, LOG_FORMS))
HALF = b"RMQ_SYS_TRANS_HALF_TOPIC"
BORN = bytes([127, 0, 0, 1]) + (40000).to_bytes(4, "big")
STORE = bytes([10, 0, 0, 1]) + (10911).to_bytes(4, "big")
SUFFIX = b"MSG_REGION\x01r\x02CLUSTER\x01c\x02"
TEXT = "TAGS\x01a\x02UNIQ_KEY\x01U1\x02TRAN_MSG\x01true\x02PGROUP\x01G\x02color\x01ж\x02"


class World:
    """A log of one file, topic T with four queues, and the half topic."""

    def __init__(self, frames: ModuleType, log: ModuleType, size: int = 1 << 16) -> None:
        self.frames, self.log = frames, log
        self.memory = bytearray(size)
        self.tail = log.LogTail()
        self.tail.attach(memoryview(self.memory), 0, size, 0)
        self.topics = {}
        for topic, queues in ((b"T", 4), (HALF, 1)):
            tail = self.topics[topic] = log.TopicWriteState(topic.decode())
            tail.is_fast_path_open, tail.max_queue_id = topic == b"T", queues - 1
            for queue_id in range(queues):
                tail.set_queue(queue_id, log.QueueTail(topic.decode(), queue_id, None))
        self.scanner = frames.SendScanner(1 << 20)
        self.scanner.takes_halves = True

    def send(self, text: str = TEXT, **changes: str) -> int:
        """Rows appended of one send."""
        ext = {
            "a": "G", "b": "T", "e": "2", "f": "4", "g": "1700000000000", "h": "5", "i": text, "j": "0", **changes,
        }  # fmt: skip
        header = json.dumps({"code": 310, "extFields": ext, "flag": 0, "opaque": 7}).encode()
        frame = struct.pack(">II", 4 + len(header) + 4, len(header)) + header + b"body"
        if self.scanner.scan(bytearray(frame), 0, len(frame)) == 0:
            return 0
        scanner = self.scanner
        return self.log.append_rows(
            self.tail, bytearray(frame), scanner.scratch, scanner.rows, 0, 1, self.topics, BORN, STORE, 99, SUFFIX, 4096
        )

    def records(self) -> list[MessageExt]:
        found, position = [], 0
        while position < self.tail.wrote_position:
            found.append(decode_record(self.memory, position, check_crc=True))
            position += found[-1].store_size
        return found

    def commit(self, half: MessageExt, group: bytes = b"G") -> int:
        start = half.physical_offset
        record = memoryview(bytes(self.memory[start : start + half.store_size]))
        return self.log.append_final(self.tail, record, group, self.topics, 100)


def a_half(text: str) -> MessageExtBrokerInner:
    """What the SendMessageProcessor stores of `World.send(text)`."""
    message = MessageExtBrokerInner(
        "T", 2, b"body", decode_properties(text) | decode_properties(SUFFIX), flag=5, sys_flag=4,
        born_timestamp=1700000000000, born_host=BORN, store_host=STORE,
    )  # fmt: skip
    assert turn_away(message)
    return message


def as_the_general_way(message: MessageExtBrokerInner, queue_offset: int, at: int, store_timestamp: int) -> bytes:
    """The record of MessageStore.put_message."""
    record = MessageExt(
        message.topic, bytes(message.body), {}, message.flag, "", message.queue_id, queue_offset, at, message.sys_flag,
        message.born_timestamp, message.born_host, store_timestamp, message.store_host or STORE,
        message.reconsume_times, message.prepared_transaction_offset,
    )  # fmt: skip
    return encode_record(record, message.encoded_properties())


@pytest.fixture(params=FORMS, ids=["both uncompiled", "log installed", "frames installed", "both installed"])
def world(request: pytest.FixtureRequest) -> World:
    return World(*request.param)


def test_a_half_message_is_what_the_hook_makes_of_it(world: World) -> None:
    assert world.send() == 1
    assert world.scanner.half_count == 1
    assert world.scanner.rows[4] == 2, "answered with the queue it was sent to"
    (half,) = world.records()
    assert bytes(world.memory[: half.store_size]) == as_the_general_way(a_half(TEXT), 0, 0, 99)
    assert (half.body, half.flag, half.born_timestamp, half.store_timestamp) == (b"body", 5, 1700000000000, 99)
    assert (half.born_host, half.store_host, half.physical_offset) == (BORN, STORE, 0)
    assert world.send() == 1
    assert [message.queue_offset for message in world.records()] == [0, 1]
    assert world.topics[HALF].put_nums == 2


@settings(max_examples=times(200), deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["TAGS", "KEYS", "WAIT", "цвет", "PGROUP", "DELAY", "a" * 300, "REAL_TOPIC", "REAL"]),
            st.sampled_from(["a", "true", "false", "жё😀", "b" * 300, "G", '"\\']),
        ),
        unique_by=lambda pair: pair[0],
        max_size=6,
    ),
    st.permutations(["UNIQ_KEY\x01U1\x02", "TRAN_MSG\x01true\x02"]),
    st.booleans(),
)
def test_whatever_is_taken_is_stored_as_the_general_way_stores_it(
    pairs: list[tuple[str, str]], both_known: list[str], without_end: bool
) -> None:
    text = both_known[0] + encode_properties(dict(pairs)) + both_known[1]
    text = text[:-1] if without_end else text
    logs = []
    for forms in (FORMS[0], FORMS[-1]):
        world = World(*forms)
        taken = world.send(text)
        assert taken == (not {"DELAY", "REAL_TOPIC"} & {name for name, _ in pairs})
        if taken:
            (half,) = world.records()
            record = bytes(world.memory[: half.store_size])
            assert record == as_the_general_way(a_half(text), 0, 0, 99)
            if world.commit(half):
                assert half.properties.get("PGROUP") == "G"
                final = final_message(half, stored_properties(memoryview(record)))
                at = half.store_size
                assert world.memory[at : world.tail.wrote_position] == as_the_general_way(final, 0, at, 100)
        logs.append(bytes(world.memory))
    assert logs[0] == logs[1]


@pytest.mark.parametrize(
    "changes",
    [
        {"text": TEXT.replace("true", "TRUE")},
        {"text": TEXT + "DELAY\x013\x02"},
        {"text": TEXT + "__transactionId__\x01X\x02"},
        {"text": TEXT + "TRAN_MSG\x01true\x02"},
        {"text": TEXT.replace("TRAN_MSG\x01true\x02", "")},  # sysFlag 4 alone
        {"f": "8"},
        {"f": "12"},
        {"j": "1"},
        {"m": "true"},
        {"e": "4"},
        {"b": "Unknown"},
    ],
    ids=str,
)
def test_what_is_left_to_the_general_way(world: World, changes: dict[str, str]) -> None:
    assert world.send(**changes) == 0
    assert world.tail.wrote_position == 0


def test_no_half_message_is_taken_where_they_are_not_wanted(world: World) -> None:
    world.scanner.takes_halves = False
    assert world.send() == 0


def test_a_full_file_says_so(world: World) -> None:
    world.tail.attach(memoryview(world.memory), 0, len(world.memory), len(world.memory) - 100)
    assert world.send() == 0
    assert world.tail.full


def test_a_final_message_is_what_the_general_way_makes(world: World) -> None:
    world.send()
    (half,) = world.records()
    assert world.commit(half) > 0
    assert world.tail.final_topic is world.topics[b"T"]
    record = memoryview(world.memory)[: half.store_size]
    expected = final_message(half, stored_properties(record))
    final = world.records()[1]
    assert (final.topic, final.queue_id, final.queue_offset) == ("T", 2, 0)
    assert (final.sys_flag, final.prepared_transaction_offset) == (8, half.physical_offset)
    at = final.physical_offset
    assert bytes(world.memory[at : world.tail.wrote_position]) == as_the_general_way(expected, 0, at, 100)
    assert world.commit(half) > 0
    assert world.records()[2].queue_offset == 1


def test_final_messages_of_wide_hosts(world: World) -> None:
    wide = bytes(range(16)) + (1).to_bytes(4, "big")
    world.send()
    (half,) = world.records()
    half.born_host = half.store_host = wide
    record = memoryview(encode_record(half))
    assert world.log.append_final(world.tail, record, b"G", world.topics, 100) > 0
    final = world.records()[1]
    assert (final.born_host, final.store_host, final.sys_flag) == (wide, wide, 0x38)


@pytest.mark.parametrize(
    "extra", ["DELAY\x011\x02", "TRAN_PREPARED_QUEUE_OFFSET\x011\x02", "CHECK_IMMUNITY_TIME_IN_SECONDS\x011\x02"]
)
def test_final_messages_left_to_the_general_way(world: World, extra: str) -> None:
    world.send()
    (half,) = world.records()
    name, _, value = extra.rstrip("\x02").partition("\x01")
    half.properties[name] = value
    assert world.log.append_final(world.tail, memoryview(encode_record(half)), b"G", world.topics, 100) == 0
    del half.properties[name]
    assert world.commit(half, b"OTHER") == 0
    half.properties["REAL_QID"] = "9"
    assert world.log.append_final(world.tail, memoryview(encode_record(half)), b"G", world.topics, 100) == 0
    half.topic = "T"
    assert world.log.append_final(world.tail, memoryview(encode_record(half)), b"G", world.topics, 100) == 0
    assert len(world.records()) == 1


def test_no_bytes_at_all_make_append_final_fail(world: World) -> None:
    world.send()
    (half,) = world.records()
    whole = bytes(world.memory[: half.store_size])
    for cut in range(len(whole)):
        assert world.log.append_final(world.tail, memoryview(whole[:cut] or b"\0"), b"G", world.topics, 100) == 0
    for place in range(len(whole)):
        changed = bytearray(whole)
        changed[place] ^= 0xFF
        world.log.append_final(world.tail, memoryview(changed), b"G", world.topics, 100)
        world.tail.attach(memoryview(world.memory), 0, len(world.memory), half.store_size)
