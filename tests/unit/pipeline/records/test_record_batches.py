"""A record becomes the row that the codec of single messages would make of it, for any record, in both forms."""

import struct
import zlib
from datetime import UTC, datetime
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maxq.errors import ConfigError
from maxq.pipeline.records import record_batches
from maxq.pipeline.records.record_batches import MAX_BYTES, MAX_NARROW_ROWS, MAX_ROWS, RecordBatches, scan_rows
from maxq.pipeline.records.row_filter import Condition, RowFilter
from maxq.pipeline.records.schemas import MESSAGE_COLUMNS, message_columns, spark_schema
from maxq.protocol.message.compression import CompressionType, compress, compression_flag
from maxq.protocol.message.message_id import host_text
from maxq.protocol.message.message_properties import decode_properties
from maxq.store.log import record_cy as rc
from tests.unit.both_forms import both

FORMS = both("maxq.pipeline.records.arrow_cy")


@pytest.fixture(params=FORMS, ids=["uncompiled", "installed"])
def form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setattr(record_batches, "ac", request.param)
    return request.param


def record(at: int, body: bytes, topic: bytes, properties: bytes, sys_flag: int, born: bytes, stored: bytes) -> bytes:
    rest = struct.pack(
        ">IiiiqqiqI", 0xDAA320A7, zlib.crc32(body) & 0x7FFFFFFF, at % 7, -3, at + 5, at, sys_flag, 1_700_000_000_123, 0
    )[:-4]
    rest += born + struct.pack(">q", 1_700_000_001_456) + stored + struct.pack(">iq", 2, 99)
    rest += struct.pack(">i", len(body)) + body + bytes([len(topic)]) + topic
    rest += struct.pack(">h", len(properties)) + properties
    return struct.pack(">i", len(rest) + 4) + rest


def time_of(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC).replace(microsecond=ms % 1000 * 1000)


def naive_row(at: int, body: bytes, topic: bytes, properties: bytes, sys_flag: int, born: bytes, stored: bytes) -> dict:
    pairs = decode_properties(properties)
    stored_body = compress(body, CompressionType.ZSTD) if sys_flag & 1 else body
    return {
        "body": body,
        "topic": topic.decode(),
        "tags": pairs.get("TAGS"),
        "keys": [word for word in pairs.get("KEYS", "").split(" ") if word],
        "properties": pairs,
        "brokerName": "broker-a",
        "queueId": at % 7,
        "queueOffset": at + 5,
        "physicalOffset": at,
        "msgId": (stored + struct.pack(">q", at)).hex().upper(),
        "uniqKey": pairs.get("UNIQ_KEY"),
        "bornTimestamp": time_of(1_700_000_000_123),
        "storeTimestamp": time_of(1_700_000_001_456),
        "bornHost": host_text(born),
        "storeHost": host_text(stored),
        "sysFlag": sys_flag,
        "flag": -3,
        "reconsumeTimes": 2,
        "preparedTransactionOffset": 99,
        "bodyCrc": zlib.crc32(stored_body) & 0x7FFFFFFF,
    }


PARTS = [b"TAGS", b"KEYS", b"UNIQ_KEY", b"a", b"\x01", b"\x02", b" ", b"k1", "é".encode(), b"\xff", b""]
PROPERTIES = st.lists(st.sampled_from(PARTS), max_size=24).map(b"".join)
PAIRS = st.lists(
    st.tuples(
        st.sampled_from([b"TAGS", b"KEYS", b"UNIQ_KEY", b"x", b"KEYX"]), st.sampled_from([b"v", b"k1 k2", b" k "])
    ),
    max_size=6,
).map(lambda pairs: b"".join(name + b"\x01" + value + b"\x02" for name, value in pairs))
MESSAGES = st.lists(
    st.tuples(
        st.binary(max_size=40), st.sampled_from([b"T", b"Topic"]), PROPERTIES | PAIRS, st.booleans(), st.booleans()
    ),
    min_size=1,
    max_size=12,
)


def log_and_rows(messages: list[tuple[bytes, bytes, bytes, bool, bool]]) -> tuple[memoryview, list[dict[str, Any]]]:
    log = b""
    expected = []
    for body, topic, properties, v6, compressed in messages:
        sys_flag = (0x30 if v6 else 0) | (compression_flag(CompressionType.ZSTD) if compressed else 0)
        hosts = [bytes(range(n, n + 16 * v6 + 4 * (not v6))) + struct.pack(">i", 10911) for n in (1, 40)]
        stored = compress(body, CompressionType.ZSTD) if compressed else body
        expected.append(naive_row(len(log), body, topic, properties, sys_flag, *hosts))
        log += record(len(log), stored, topic, properties, sys_flag, *hosts)
    return memoryview(log), expected


@settings(max_examples=150, deadline=None)
@given(MESSAGES)
def test_rows_are_what_the_codec_of_single_messages_says(
    messages: list[tuple[bytes, bytes, bytes, bool, bool]],
) -> None:
    view, expected = log_and_rows(messages)
    for module in FORMS:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(record_batches, "ac", module)
            rows, position, _ = scan_rows(view, 0, len(view), 0, 64)
            assert position == len(view)
            batch = RecordBatches(tuple(MESSAGE_COLUMNS), "broker-a").batch(view, rows)
            batch.validate(full=True)
            found = batch.to_pylist()
            for row in found:
                row["properties"] = dict(row["properties"])
            assert found == expected


def test_columns_come_in_the_order_asked_for(form: ModuleType) -> None:
    view, expected = log_and_rows([(b"abc", b"T", b"TAGS\x01t\x02", False, False)])
    columns = message_columns("queueOffset, TAGS,body")
    assert columns == ("queueOffset", "tags", "body")
    batch = RecordBatches(columns, "b").batch(view, scan_rows(view, 0, len(view), 0, 8)[0])
    assert batch.to_pylist() == [{name: expected[0][name] for name in columns}]
    assert spark_schema(columns) == "`queueOffset` bigint, `tags` string, `body` binary"


def test_no_rows_make_an_empty_batch(form: ModuleType) -> None:
    batch = RecordBatches(tuple(MESSAGE_COLUMNS), "b").batch(memoryview(b""), np.empty((0, 20), np.int64))
    assert batch.num_rows == 0


def test_a_body_that_does_not_decompress_stays_as_it_is(form: ModuleType) -> None:
    host = bytes(8)
    view = memoryview(record(0, b"not zstd", b"T", b"", compression_flag(CompressionType.ZSTD), host, host))
    batch = RecordBatches(("body",), "b").batch(view, scan_rows(view, 0, len(view), 0, 8)[0])
    assert batch.to_pylist() == [{"body": b"not zstd"}]


def test_large_and_many_records_are_cut_into_batches(form: ModuleType) -> None:
    body = bytes(MAX_BYTES // 3)
    log = b""
    for _ in range(5):
        log += record(len(log), body, b"T", b"", 0, bytes(8), bytes(8))
    view = memoryview(log)
    batches = RecordBatches(("queueOffset", "body"), "b").batches(view, scan_rows(view, 0, len(view), 0, 8)[0])
    assert [batch.num_rows for batch in batches] == [2, 2, 1]
    small = np.tile(scan_rows(view, 0, len(view), 0, 1)[0] * 0 + 1, (MAX_ROWS + 1, 1))
    assert [b.num_rows for b in RecordBatches(("brokerName",), "b").batches(view, small)] == [MAX_ROWS, 1]


def test_batches_of_numbers_alone_are_long_whatever_their_records_hold() -> None:
    view, _ = log_and_rows([(b"", b"T", b"", False, False)])
    rows = np.tile(scan_rows(view, 0, len(view), 0, 1)[0], (MAX_NARROW_ROWS + 1, 1))
    rows[:, rc.C_SIZE] = MAX_BYTES
    batches = RecordBatches(("queueId", "storeTimestamp"), "b")
    assert batches.max_rows == MAX_NARROW_ROWS
    assert [batch.num_rows for batch in batches.batches(view, rows)] == [MAX_NARROW_ROWS, 1]


def test_a_batch_stays_as_it_is_when_the_scanner_uses_its_table_again() -> None:
    view, _ = log_and_rows([(b"", b"T", b"", False, False)])
    table = np.empty(rc.SCAN_WIDTH, np.int64)
    rows, _, _ = scan_rows(view, 0, len(view), 0, table)
    batch = RecordBatches(("queueOffset", "bodyCrc", "bornTimestamp"), "b").batch(view, rows)
    before = batch.to_pylist()
    table[:] = 77
    assert batch.to_pylist() == before


@pytest.mark.parametrize("text", ["body,nonsense", "body,Body", ","])
def test_wrong_columns_are_named(text: str) -> None:
    with pytest.raises(ConfigError, match="columns"):
        message_columns(text)


def test_offsets_outside_the_bytes_are_refused(form: ModuleType) -> None:
    table = np.array([5, 10], np.int64)
    empty = np.empty(0, np.uint8)
    with pytest.raises(ValueError, match="outside the 8 bytes"):
        form.gather(
            memoryview(bytes(8)), bytearray(), table, 2, 0, 1, np.empty(2, np.int32), np.empty(10, np.uint8), empty
        )


def test_texts_are_numbered(form: ModuleType) -> None:
    view, _ = log_and_rows([(b"", topic, b"", False, False) for topic in (b"T", b"T", b"Topic", b"T")])
    rows, _, _ = scan_rows(view, 0, len(view), 0, 8)
    found = np.empty(4, np.int64)
    table = np.ascontiguousarray(rows).reshape(-1)
    form.text_numbers(view, table, rc.SCAN_WIDTH, rc.C_TOPIC_POSITION, 4, {b"T": 7}, found)
    assert found.tolist() == [7, 7, -1, 7]


def test_columns_of_sparks_kafka_source_are_ours_under_its_names(form: ModuleType) -> None:
    data = record(0, b"text", b"T", b"KEYS\x01k1 k2\x02a\x01b\x02", 0, bytes(8), bytes(8))
    data += record(len(data), b"more", b"T", b"", 0, bytes(8), bytes(8))
    view = memoryview(data)
    rows, _, _ = scan_rows(view, 0, len(view), 0, 2)
    columns = message_columns("key,value,partition,offset,timestamp,headers")
    batch = RecordBatches(columns, "b").batch(view, rows)
    first, second = batch.to_pylist()
    assert (first["key"], first["value"], first["partition"], first["offset"]) == (b"k1 k2", b"text", 0, 5)
    assert first["headers"] == [{"key": "KEYS", "value": b"k1 k2"}, {"key": "a", "value": b"b"}]
    assert (second["key"], second["headers"]) == (None, [])
    assert first["timestamp"] == time_of(1_700_000_001_456)
    assert "`headers` array<struct<key:string,value:binary>>" in spark_schema(columns)


def test_bytes_that_change_between_counting_and_filling_write_nothing_behind_the_table(form: ModuleType) -> None:
    """A broker finishes a record while its properties are read: more of them are there than were counted."""
    data = bytearray(record(0, b"text", b"T", b"KEYS\x01k1 k2\x02a\x01b\x02", 0, bytes(8), bytes(8)))
    view = memoryview(data)
    rows, _, _ = scan_rows(view, 0, len(view), 0, 1)
    table = np.ascontiguousarray(rows).reshape(-1)
    memory = np.full(64, -7, np.int64)
    list_offsets = np.zeros(2, np.int32)
    with pytest.raises(ValueError, match="more than the 1 properties that were counted"):
        form.split_properties(view, table, 1, memory[:4], list_offsets)
    assert (memory[4:] == -7).all()
    memory[:] = -7
    found = np.empty(form.PROPERTY_WIDTH, np.int64)
    form.find_properties(view, table, 1, found)
    with pytest.raises(ValueError, match="more than the 1 words that were counted"):
        form.split_words(view, found, form.PROPERTY_WIDTH, form.P_KEYS, 1, memory[:2], list_offsets)
    assert (memory[2:] == -7).all()


def test_a_property_that_is_missing_is_nowhere_whatever_the_memory_of_the_table_held(form: ModuleType) -> None:
    """The smallest integer as a position, and a size of -1, ended at the largest one: reading went on to a crash."""
    data = record(0, b"text", b"T", b"a\x01b\x02", 0, bytes(8), bytes(8))
    view = memoryview(data)
    rows, _, _ = scan_rows(view, 0, len(view), 0, 1)
    found = np.full(form.PROPERTY_WIDTH, np.iinfo(np.int64).min, np.int64)
    form.find_properties(view, np.ascontiguousarray(rows).reshape(-1), 1, found)
    assert (found[0:6:2] == 0).all()
    assert form.count_words(view, found, form.PROPERTY_WIDTH, form.P_KEYS, 1) == 0


@pytest.mark.parametrize("born", [-(1 << 63), -62_135_596_800_000, -1, 1 << 62, (1 << 63) - 1])
def test_a_time_of_birth_that_no_timestamp_can_say_is_the_nearest(born: int) -> None:
    """A client may say anything: products that overflow would be another day."""
    data = bytearray(record(0, b"text", b"T", b"", 0, bytes(8), bytes(8)))
    data[40:48] = struct.pack(">q", born)
    view = memoryview(data)
    rows, _, _ = scan_rows(view, 0, len(view), 0, 1)
    column = RecordBatches(("bornTimestamp",), "b").batch(view, rows).column(0)
    most = ((1 << 63) - 1) // 1000 * 1000
    assert column.cast("int64").to_pylist() == [max(-most, min(most, born * 1000))]
    late = datetime(2026, 1, 1, tzinfo=UTC)
    kept = RowFilter([Condition("bornTimestamp", ">", (late,))]).select(view, rows)
    assert len(kept) == (born >= 1 << 62)
