"""Rows of fast-path sends: what is written is what a naive reading of the format says, in both forms."""

import struct
from array import array
from types import ModuleType

import pytest

from maxq.protocol.frame.send_rows import (
    F_BATCH,
    R_BODY,
    R_BORN_TIMESTAMP,
    R_COUNT,
    R_FLAG,
    R_FLAGS,
    R_FRAME,
    R_PHYSICAL_OFFSET,
    R_PROPERTIES,
    R_QUEUE_ID,
    R_QUEUE_OFFSET,
    R_TOPIC,
    ROW_WIDTH,
)
from tests.unit.both_forms import both_together
from tests.unit.store.log_world import BORN, STORE, Owner, record

SUFFIX = b"CLUSTER\x01c\x02"


@pytest.fixture(
    params=both_together("maxq.store.log.tails_cy", "maxq.store.log.log_cy", "maxq.store.append.log_rows_cy"),
    ids=["uncompiled", "installed"],
)
def form(request: pytest.FixtureRequest) -> ModuleType:
    return request.param


def send_row(
    form: ModuleType, source: bytearray, topic: bytes, queue_id: int, properties: bytes, body: bytes, flags: int = 0
) -> list[int]:
    row = [0] * ROW_WIDTH
    for column, data in ((R_TOPIC, topic), (R_PROPERTIES, properties), (R_BODY, body)):
        row[column], row[column + 1] = len(source), len(data)
        source += data
    row[R_FLAGS], row[R_QUEUE_ID], row[R_BORN_TIMESTAMP], row[R_FLAG] = flags, queue_id, 1000, 7
    return row


def append(
    form: ModuleType, log, owner: Owner, source: bytearray, rows: list[list[int]], limit: int = 4096
) -> tuple[int, array]:
    flat = array("q", [value for row in rows for value in row])
    count = form.append_rows(
        log, source, bytearray(1), flat, 0, len(rows), owner.topics, BORN, STORE, 2000, SUFFIX, limit
    )
    return count, flat


def plain_topic(owner: Owner, name: bytes, queues: int) -> None:
    for queue_id in range(queues):
        owner.open_queue(name, queue_id)
    owner.topics[name].is_fast_path_open = True
    owner.topics[name].max_queue_id = queues - 1


def test_rows_become_the_records_of_the_format(form: ModuleType) -> None:
    owner, log, region = Owner(form), form.LogTail(), bytearray(4096)
    plain_topic(owner, b"T", 2)
    log.attach(memoryview(region), 8192, len(region), 0)
    source = bytearray(b"header")
    rows = [
        send_row(form, source, b"T", 1, b"UNIQ_KEY\x01A\x02TAGS\x01TagA\x02", b"hello"),
        send_row(form, source, b"T", 1, b"KEYS\x01k", b"world"),
    ]
    count, flat = append(form, log, owner, source, rows)
    assert count == 2
    first = record(b"T", 1, 0, 8192, b"hello", b"UNIQ_KEY\x01A\x02TAGS\x01TagA\x02" + SUFFIX)
    second = record(b"T", 1, 1, 8192 + len(first), b"world", b"KEYS\x01k\x02" + SUFFIX)
    assert region[: len(first) + len(second)] == first + second
    assert log.max_offset == 8192 + len(first) + len(second)
    assert [flat[R_PHYSICAL_OFFSET + i * ROW_WIDTH] for i in (0, 1)] == [8192, 8192 + len(first)]
    assert owner.topics[b"T"].put_nums == 2


def test_each_arrival_has_its_own_born_host_and_ends_where_a_row_needs_something_else(form: ModuleType) -> None:
    owner, log, region = Owner(form), form.LogTail(), bytearray(4096)
    plain_topic(owner, b"T", 2)
    log.attach(memoryview(region), 0, len(region), 0)
    source = bytearray(b"header")
    rows = [send_row(form, source, name, 1, b"UNIQ_KEY\x01A", b"hello") for name in (b"T", b"T", b"other", b"T", b"T")]
    for number, row in enumerate(rows):
        row[R_FRAME] = 100 + number
    flat = array("q", [value for row in rows for value in row])
    table = array("q", [0, 0, 50, 0, 1, 0, 0, 60, 1, 3, 0, 0, 70, 4, 0, 0, 0, 80, 4, 1])
    hosts = [bytes([10 + number] * 8) for number in range(4)]
    total = form.append_arrivals(log, source, bytearray(1), flat, table, hosts, owner.topics, STORE, 2000, SUFFIX, 4096)
    assert total == 3
    assert [table[number * 5 + 4] for number in range(4)] == [1, 1, 0, 1]
    assert [table[number * 5 + 2] for number in range(4)] == [50, 102, 70, 80]
    counts = [flat[number * ROW_WIDTH + R_COUNT] for number in range(5)]
    assert counts == [1, 1, 0, 0, 1]
    stored = record(b"T", 1, 0, 0, b"hello", b"UNIQ_KEY\x01A\x02" + SUFFIX)
    size = len(stored)
    for number, host in enumerate((hosts[0], hosts[1], hosts[3])):
        expected = record(b"T", 1, number, number * size, b"hello", b"UNIQ_KEY\x01A\x02" + SUFFIX)
        assert region[number * size : (number + 1) * size] == expected.replace(BORN, host, 1)
    assert not any(region[3 * size :])


def test_a_record_never_touches_the_last_eight_bytes_of_a_file(form: ModuleType) -> None:
    body = b"x" * 50
    size = len(record(b"T", 0, 0, 0, body, SUFFIX))
    for room, fits in ((size + 8, 1), (size + 7, 0)):
        owner, log, region = Owner(form), form.LogTail(), bytearray(room)
        plain_topic(owner, b"T", 1)
        log.attach(memoryview(region), 0, room, 0)
        source = bytearray()
        assert append(form, log, owner, source, [send_row(form, source, b"T", 0, b"", body)])[0] == fits
    log.close_file()
    assert region[:8] == struct.pack(">iI", size + 7, 0xCBD43194)
    assert log.wrote_position == log.file_size


@pytest.mark.parametrize("spoil", ["unknown topic", "not plain", "queue too high", "body too large", "no body"])
def test_rows_that_need_the_general_way_end_the_run(form: ModuleType, spoil: str) -> None:
    owner, log, region = Owner(form), form.LogTail(), bytearray(4096)
    plain_topic(owner, b"T", 1)
    log.attach(memoryview(region), 0, len(region), 0)
    source = bytearray()
    good = send_row(form, source, b"T", 0, b"", b"ok")
    topic = b"U" if spoil == "unknown topic" else b"T"
    body = {"body too large": b"x" * 101, "no body": b""}.get(spoil, b"ok")
    bad = send_row(form, source, topic, 1 if spoil == "queue too high" else 0, b"", body)
    if spoil == "not plain":
        plain_topic(owner, b"V", 1)
        owner.topics[b"V"].is_fast_path_open = False
        bad = send_row(form, source, b"V", 0, b"", b"ok")
    assert append(form, log, owner, source, [good, bad, good], limit=100)[0] == 1
    assert log.max_offset == len(record(b"T", 0, 0, 0, b"ok", SUFFIX))


def batch(*messages: tuple[bytes, bytes]) -> bytes:
    return b"".join(
        struct.pack(">iiiii", 22 + len(b) + len(p), 0, 0, 7, len(b)) + b + struct.pack(">h", len(p)) + p
        for b, p in messages
    )


def test_a_batch_is_split_into_consecutive_records_or_not_written_at_all(form: ModuleType) -> None:
    owner, log, region = Owner(form), form.LogTail(), bytearray(600)
    plain_topic(owner, b"T", 1)
    log.attach(memoryview(region), 0, len(region), 0)
    source = bytearray()
    row = send_row(form, source, b"T", 0, b"WAIT\x01true", batch((b"b0", b"TAGS\x01TagA\x02"), (b"b1", b"")), F_BATCH)
    count, flat = append(form, log, owner, source, [row])
    assert (count, flat[R_COUNT], flat[R_QUEUE_OFFSET]) == (1, 2, 0)
    first = record(b"T", 0, 0, 0, b"b0", b"TAGS\x01TagA\x02")
    second = record(b"T", 0, 1, len(first), b"b1", b"")
    assert region[: len(first + second)] == first + second
    end = log.max_offset
    for body in (batch((b"x" * 40, b""), (b"y" * 300, b"")), batch((b"ok", b""))[:-1], batch((b"ok", b"")) + b"\0"):
        source = bytearray()
        assert append(form, log, owner, source, [send_row(form, source, b"T", 0, b"", body, F_BATCH)])[0] == 0
        assert log.max_offset == end
    assert owner.topics[b"T"].queues[0].next_queue_offset == 2
