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

from maxq.arrow.schemas import MESSAGE_COLUMNS, message_columns, spark_schema
from maxq.errors import ConfigError
from maxq.pipeline.records import record_batches
from maxq.pipeline.records.record_batches import MAX_BYTES, MAX_NARROW_ROWS, MAX_ROWS, RecordBatches, scan_rows
from maxq.pipeline.records.row_filter import Condition, RowFilter
from maxq.protocol.message.compression import CompressionType, compress, compression_flag
from maxq.protocol.message.message_id import host_text
from maxq.protocol.message.message_properties import decode_properties
from maxq.store.log import record_cy as rc
from tests.short_form import times
from tests.unit.both_forms import both

FORMS = both("maxq.arrow.columns_cy")


@pytest.fixture(params=FORMS, ids=["uncompiled", "installed"])
def form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setattr(record_batches, "ColumnBuilder", request.param.ColumnBuilder)
    return request.param


@pytest.fixture(params=both("maxq.pipeline.records.places_cy"), ids=["uncompiled", "installed"])
def places(request: pytest.FixtureRequest) -> ModuleType:
    found: ModuleType = request.param
    return found


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


@settings(max_examples=times(150), deadline=None)
@given(MESSAGES)
def test_rows_are_what_the_codec_of_single_messages_says(
    messages: list[tuple[bytes, bytes, bytes, bool, bool]],
) -> None:
    view, expected = log_and_rows(messages)
    for module in FORMS:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(record_batches, "ColumnBuilder", module.ColumnBuilder)
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
    batch = RecordBatches(("body", "bodyFault"), "b").batch(view, scan_rows(view, 0, len(view), 0, 8)[0])
    (row,) = batch.to_pylist()
    assert row["body"] == b"not zstd" and "a body of 8 bytes is not ZSTD" in row["bodyFault"]
    assert spark_schema(message_columns("BODYFAULT")) == "`bodyFault` string"


def test_bodies_that_came_compressed_are_no_larger_in_a_batch_than_others(
    form: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thousand messages of zeros are a megabyte of log, and gigabytes in memory."""
    monkeypatch.setattr(record_batches, "ENOUGH_BYTES", 100_000)
    view, _ = log_and_rows([(bytes(60_000), b"T", b"", False, number != 3) for number in range(7)])
    rows, _, _ = scan_rows(view, 0, len(view), 0, 8)
    batches = list(RecordBatches(("queueOffset", "body", "bodyFault"), "b").batches(view, rows))
    assert [batch.num_rows for batch in batches] == [2, 3, 2]  # one that came as it is goes with the next
    whole = [row for batch in batches for row in batch.to_pylist()]
    assert [row["queueOffset"] for row in whole] == rows[:, rc.C_QUEUE_OFFSET].tolist()
    assert {(row["body"], row["bodyFault"]) for row in whole} == {(bytes(60_000), None)}
    (without,) = RecordBatches(("queueOffset", "bodyFault"), "b").batches(view, rows)
    assert without.num_rows == 7


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


def test_ranges_outside_the_bytes_are_refused(places: ModuleType) -> None:
    with pytest.raises(ValueError, match="outside the 8 bytes"):
        places.gather(memoryview(bytes(8)), np.array([5, 10], np.int64), np.empty(10, np.uint8))
    with pytest.raises(ValueError, match="more than 3 bytes"):
        places.gather(memoryview(bytes(8)), np.array([0, 2, 4, 2], np.int64), np.empty(3, np.uint8))


@pytest.mark.parametrize(
    "column", [rc.C_BODY_POSITION, rc.C_TOPIC_SIZE, rc.C_PROPERTIES_SIZE, rc.C_STORE_HOST_POSITION]
)
@pytest.mark.parametrize("value", [-1, 1 << 20, -(1 << 63)])
def test_rows_that_point_outside_the_bytes_are_refused(form: ModuleType, column: int, value: int) -> None:
    view, _ = log_and_rows([(b"abc", b"T", b"TAGS\x01t\x02", False, False)])
    rows, _, _ = scan_rows(view, 0, len(view), 0, 1)
    rows[0, column] = value
    builder = form.ColumnBuilder(tuple(MESSAGE_COLUMNS), 1, len(view))
    with pytest.raises(ValueError, match="row 0 points outside the"):
        builder.add_rows(view, rows.reshape(-1), 1, b"broker-a")


def test_columns_grow_when_more_comes_than_was_said(form: ModuleType) -> None:
    """Sizes are a guess: compressed bodies and records with many properties have more."""
    properties = b"".join(b"name%d\x01value %d\x02" % (n, n) for n in range(200)) + b"name7\x01last\x02"
    view, expected = log_and_rows([(bytes(5000), b"Topic", properties, True, True)] * 9)
    rows, _, _ = scan_rows(view, 0, len(view), 0, 9)
    builder = form.ColumnBuilder(tuple(MESSAGE_COLUMNS), 9, 0)
    builder.add_rows(view, rows.reshape(-1), 9, b"broker-a")
    batch = builder.batch()
    batch.validate(full=True)
    assert [dict(row["properties"]) for row in batch.to_pylist()] == [row["properties"] for row in expected]
    assert batch.column("body").to_pylist() == [bytes(5000)] * 9


def test_texts_are_numbered(places: ModuleType) -> None:
    view, _ = log_and_rows([(b"", topic, b"", False, False) for topic in (b"T", b"T", b"Topic", b"T")])
    rows, _, _ = scan_rows(view, 0, len(view), 0, 8)
    found = np.empty(4, np.int64)
    table = np.ascontiguousarray(rows).reshape(-1)
    places.text_numbers(view, table, rc.SCAN_WIDTH, rc.C_TOPIC_POSITION, 4, {b"T": 7}, found)
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


def test_tags_that_are_missing_are_nowhere_whatever_the_memory_of_the_table_held(places: ModuleType) -> None:
    """The smallest integer as a position, and a size of -1, ended at the largest one: reading went on to a crash."""
    texts = [b"a\x01b\x02", b"TAGS\x01t\x02TAGS\x01last\x02", b"TAGS\x01\x02", b"XTAGS\x01t\x02"]
    view, _ = log_and_rows([(b"text", b"T", text, False, False) for text in texts])
    rows, _, _ = scan_rows(view, 0, len(view), 0, 4)
    found = np.full(8, np.iinfo(np.int64).min, np.int64)
    places.find_tags(view, np.ascontiguousarray(rows).reshape(-1), 4, found)
    position, size = found[2:4]
    assert bytes(view[position : position + size]) == b"last"
    assert found.tolist() == [0, -1, position, size, 0, -1, 0, -1]


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
