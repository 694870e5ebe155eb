"""Columns of a pull are, field by field, what its messages are in the slow path, in both forms."""

import struct
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from maxq.arrow.message_columns import batch_of_messages
from maxq.arrow.schemas import BODY_FAULT, KAFKA_COLUMNS, MESSAGE_COLUMNS, checked_columns
from maxq.errors import ConfigError
from maxq.protocol.message.compression import CompressionType, compress, compression_flag
from maxq.protocol.message.message import MessageExt, encode_record
from maxq.protocol.namespace import unwrap
from tests.unit.both_forms import both
from tests.unit.protocol.message.test_received_cy import expected, pull, records

EVERYTHING = (*MESSAGE_COLUMNS, BODY_FAULT, *KAFKA_COLUMNS)
FORMS = list(zip(both("maxq.protocol.message.received_cy"), both("maxq.arrow.columns_cy"), strict=True))


def rows_of(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """The rows, but for what a consumer adds to properties, and the order of properties."""
    batch.validate(full=True)
    columns = [one.cast("int64") if pa.types.is_timestamp(one.type) else one for one in batch.columns]
    rows: list[dict[str, Any]] = pa.RecordBatch.from_arrays(columns, names=batch.schema.names).to_pylist()
    for row in rows:
        if "properties" in row:
            row["properties"] = {
                name: value for name, value in row["properties"] if name not in ("MIN_OFFSET", "MAX_OFFSET")
            }
        if "headers" in row:
            row["headers"] = {
                pair["key"]: pair["value"].decode("utf-8", "replace")
                for pair in row["headers"]
                if pair["key"] not in ("MIN_OFFSET", "MAX_OFFSET")
            }
        if row.get("key") is not None:
            row["key"] = row["key"].decode("utf-8", "replace")
    return rows


def ascending(parts: list[bytes]) -> bytes:
    """The records with the queue offsets of one pull."""
    return b"".join(part[:20] + struct.pack(">q", 3 * n) + part[28:] for n, part in enumerate(parts))


def built(form: tuple[ModuleType, ModuleType], bodies: list[bytes], namespace: str, tags: Any, columns: Any) -> Any:
    received, module = form
    kept = [received.keep_records(body, pull(received, namespace), tags) for body in bodies]
    unwrapped = (lambda topic: unwrap(namespace, topic)) if namespace else None
    builder = module.ColumnBuilder(columns, sum(map(len, kept)), sum(one.size for one in kept), unwrapped)
    for one in kept:
        builder.add_records(one)
    return builder.batch()


@given(
    st.lists(st.lists(records(is_batch_possible=False), max_size=4), max_size=3), st.sampled_from(["", "ns"]),
    st.sampled_from([None, {"a"}, {"b", "a\x01c"}, {"\ufffd"}]),
    st.one_of(st.just(EVERYTHING), st.lists(st.sampled_from(EVERYTHING), unique=True, min_size=1).map(tuple)),
)  # fmt: skip
def test_columns_are_those_of_the_messages_of_the_general_way(
    pulls: list[list[bytes]], namespace: str, tags: set[str] | None, columns: tuple[str, ...]
) -> None:
    bodies = [ascending(parts) for parts in pulls]
    messages = [message for body in bodies for message in expected(body, namespace, tags=tags)]
    wanted = rows_of(batch_of_messages(messages, columns))
    for form in FORMS:
        batch = built(form, bodies, namespace, tags, columns)
        assert tuple(batch.schema.names) == columns
        assert rows_of(batch) == wanted


@given(st.lists(records(), max_size=3), st.integers(0, 60), st.binary(max_size=5))
def test_records_are_kept_where_messages_could_be_made_of_them(parts: list[bytes], cut: int, more: bytes) -> None:
    body = ascending(parts)
    body = body[: len(body) - cut] + more
    for received, _ in FORMS:
        messages = received.read_records(body, pull(received))
        kept = received.keep_records(body, pull(received))
        assert (messages is None) == (kept is None)
        if kept is not None:
            assert (kept.data(), kept.size, len(kept)) == (body, len(body), len(messages))
            assert kept.messages() == messages
            given_body = bytearray(body)
            given = received.keep_records(given_body, pull(received), None, True)
            assert given.messages() == messages
            if messages:
                assert (kept.first_offset, kept.last_offset) == (messages[0].queue_offset, messages[-1].queue_offset)


@given(st.lists(st.integers(0, 9), min_size=2, max_size=5))
def test_records_whose_offsets_do_not_ascend_are_left_to_the_general_way(offsets: list[int]) -> None:
    """A pull that is done is removed by its first and last offset."""
    messages = [MessageExt("T", b"b", queue_offset=n, store_host=bytes(8), born_host=bytes(8)) for n in offsets]
    body = b"".join(map(encode_record, messages))
    for received, _ in FORMS:
        kept = received.keep_records(body, pull(received))
        assert (kept is None) == (sorted(set(offsets)) != offsets)


def test_many_properties_of_equal_names_take_no_long_time() -> None:
    """A record has room for eight thousand pairs; each name compared with each would be seconds a batch."""
    pairs = [b"%x\x01v\x02" % n for n in range(5000)]
    text = b"".join(pairs[:3000]) + b"0\x01last\x02" + b"b\x01last\x02"
    body = encode_record(MessageExt("T", b"b", {}, store_host=bytes(8), born_host=bytes(8)), text[:32767])
    for form in FORMS:
        (row,) = rows_of(built(form, [body], "", None, ("properties", "headers")))
        assert len(row["properties"]) == 3000
        assert (row["properties"]["0"], row["properties"]["b"], row["properties"]["bb"]) == ("last", "last", "v")


@pytest.mark.parametrize("form", FORMS, ids=["uncompiled", "installed"])
def test_no_records_are_a_batch_without_rows(form: tuple[ModuleType, ModuleType]) -> None:
    batch = built(form, [], "", None, EVERYTHING)
    assert (batch.num_rows, tuple(batch.schema.names)) == (0, EVERYTHING)
    assert batch.schema == batch_of_messages([], EVERYTHING).schema


def test_a_time_that_no_timestamp_can_say_is_the_nearest() -> None:
    for born in (-(1 << 63), -1, 1 << 62, (1 << 63) - 1):
        record = bytearray(encode_record(MessageExt("T", b"b", {}, store_host=bytes(8), born_host=bytes(8))))
        record[40:48] = struct.pack(">q", born)
        for form in FORMS:
            batch = built(form, [bytes(record)], "", None, ("bornTimestamp",))
            most = ((1 << 63) - 1) // 1000 * 1000
            assert batch.column(0).cast("int64").to_pylist() == [max(-most, min(most, born * 1000))]


def test_what_is_wrong_with_a_compressed_body_is_a_column_that_can_be_asked_for() -> None:
    host = bytes(8)
    flag = compression_flag(CompressionType.ZLIB)
    sent = [(b"plain", 0), (b"no zlib", flag), (compress(b"whole", CompressionType.ZLIB), flag)]
    bodies = [
        encode_record(MessageExt("T", body, {}, queue_offset=n, sys_flag=flag, store_host=host, born_host=host))
        for n, (body, flag) in enumerate(sent)
    ]
    for form in FORMS:
        rows = rows_of(built(form, [b"".join(bodies)], "", None, ("body", "bodyFault")))
        assert [row["body"] for row in rows] == [b"plain", b"no zlib", b"whole"]
        assert [row["bodyFault"] is None for row in rows] == [True, False, True]
        assert "a body of 7 bytes is not ZLIB" in rows[1]["bodyFault"]
        alone = rows_of(built(form, [b"".join(bodies)], "", None, ("bodyFault",)))
        assert [row["bodyFault"] for row in alone] == [row["bodyFault"] for row in rows]


class Blocks:
    """Counts the blocks that are asked for."""

    def __init__(self) -> None:
        self.asked = 0

    def take(self, size: int) -> bytearray:
        self.asked += size
        return bytearray(size)


@pytest.mark.parametrize("form", FORMS, ids=["uncompiled", "installed"])
def test_a_batch_of_one_large_message_does_not_make_the_next_one_large(form: tuple[ModuleType, ModuleType]) -> None:
    """What a row needs is guessed by the last batch."""
    received, module = form
    host, memory = bytes(8), module.ColumnMemory()
    memory.blocks = blocks = Blocks()
    large = MessageExt("T", b"b", {"name": "v" * 32_000}, store_host=host, born_host=host)
    small = [MessageExt("T", b"b", {"a": "b"}, queue_offset=n, store_host=host, born_host=host) for n in range(2_000)]
    for messages in ([large], small):
        body = b"".join(map(encode_record, messages))
        kept = received.keep_records(body, pull(received))
        blocks.asked = 0
        builder = module.ColumnBuilder(tuple(MESSAGE_COLUMNS), len(messages), len(body), None, memory)
        builder.add_records(kept)
        assert builder.batch().num_rows == len(messages)
    assert blocks.asked < 10 * len(body)


def test_kept_records_are_made_by_who_checks_them_alone() -> None:
    """The builder trusts them: it reads without looking at the end."""
    for received, _ in FORMS:
        with pytest.raises(TypeError, match="keep_records makes these"):
            received.PulledRecords()


def test_columns_are_checked() -> None:
    assert checked_columns(["BODY", "queueid"]) == ("body", "queueId")
    with pytest.raises(ConfigError, match="'nonsense' is no column"):
        checked_columns(["nonsense"])
