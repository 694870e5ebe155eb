"""Append and dispatch: what is written is what a naive reading of the format says, in both forms."""

import struct
import zlib
from array import array
from itertools import pairwise
from types import ModuleType

import pytest

from tests.unit.both_forms import both_together

FORMS = both_together(
    "maxq.protocol.send_rows",
    "maxq.store.tails_cy",
    "maxq.store.log_cy",
    "maxq.store.dispatch_cy",
    "maxq.store.unit_scan_cy",
)
BORN = bytes([127, 0, 0, 1]) + (40000).to_bytes(4, "big")
STORE = bytes([10, 0, 0, 1]) + (10911).to_bytes(4, "big")
SUFFIX = b"CLUSTER\x01c\x02"


@pytest.fixture(params=FORMS, ids=["uncompiled", "installed"])
def form(request: pytest.FixtureRequest) -> ModuleType:
    return request.param


class Owner:
    """Files in memory: queues of 5 units a file, indexes of 8 entries."""

    def __init__(self, form: ModuleType) -> None:
        self.form = form
        self.topics: dict = {}
        self.files: dict = {}
        self.special: list = []
        self.index = form.IndexTail()
        self.index_files: list[bytearray] = []
        self.roll_index(0, 0)

    def open_queue(self, topic: bytes, queue_id: int):
        tail = self.topics.setdefault(topic, self.form.TopicTail(topic.decode()))
        queue = self.form.QueueTail(topic.decode(), queue_id, None)
        tail.set_queue(queue_id, queue)
        return queue

    def roll_queue(self, queue, queue_offset: int, physical_offset: int, size: int) -> bool:
        start = queue_offset * 20 // 100 * 100
        region = self.files.setdefault((queue.topic, queue.queue_id, start), bytearray(100))
        queue.attach(memoryview(region), start, queue_offset * 20 - start)
        return True

    def roll_index(self, physical_offset: int, store_timestamp: int) -> None:
        region = bytearray(40 + 4 * 7 + 20 * 9)
        self.index_files.append(region)
        self.index.attach(memoryview(region), 7, 9)

    def dispatch_special(self, position: int, size: int, physical_offset: int, view: memoryview) -> None:
        self.special.append(physical_offset)

    def units(self, topic: str, queue_id: int) -> list[tuple[int, int, int]]:
        found = []
        for (name, number, _start), region in sorted(self.files.items()):
            if (name, number) == (topic, queue_id):
                found += [unit for unit in struct.iter_unpack(">qiq", region) if unit[1]]
        return found


def record(
    topic: bytes, queue_id: int, queue_offset: int, physical: int, body: bytes, properties: bytes, sys_flag: int = 0
) -> bytes:
    """The naive encoder."""
    rest = struct.pack(
        ">iIiiqqiq",
        0xDAA320A7 - (1 << 32),
        zlib.crc32(body) & 0x7FFFFFFF,
        queue_id,
        7,
        queue_offset,
        physical,
        sys_flag,
        1000,
    )
    rest += BORN + struct.pack(">q", 2000) + STORE + struct.pack(">iq", 0, 0) + struct.pack(">i", len(body)) + body
    rest += bytes([len(topic)]) + topic + struct.pack(">h", len(properties)) + properties
    return struct.pack(">i", len(rest) + 4) + rest


def send_row(
    form: ModuleType, source: bytearray, topic: bytes, queue_id: int, properties: bytes, body: bytes, flags: int = 0
) -> list[int]:
    row = [0] * form.ROW_WIDTH
    for column, data in ((form.R_TOPIC, topic), (form.R_PROPERTIES, properties), (form.R_BODY, body)):
        row[column], row[column + 1] = len(source), len(data)
        source += data
    row[form.R_FLAGS], row[form.R_QUEUE_ID], row[form.R_BORN_TIMESTAMP], row[form.R_FLAG] = flags, queue_id, 1000, 7
    return row


def append(
    form: ModuleType, log, owner: Owner, source: bytearray, rows: list[list[int]], limit: int = 4096
) -> tuple[int, array]:
    flat = array("q", [value for row in rows for value in row])
    count = log.append_rows(source, bytearray(1), flat, 0, len(rows), owner.topics, BORN, STORE, 2000, SUFFIX, limit)
    return count, flat


def plain_topic(owner: Owner, name: bytes, queues: int) -> None:
    for queue_id in range(queues):
        owner.open_queue(name, queue_id)
    owner.topics[name].plain = True
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
    assert [flat[form.R_PHYSICAL_OFFSET + i * form.ROW_WIDTH] for i in (0, 1)] == [8192, 8192 + len(first)]
    assert owner.topics[b"T"].put_nums == 2


def test_each_arrival_has_its_own_born_host_and_ends_where_a_row_needs_something_else(form: ModuleType) -> None:
    owner, log, region = Owner(form), form.LogTail(), bytearray(4096)
    plain_topic(owner, b"T", 2)
    log.attach(memoryview(region), 0, len(region), 0)
    source = bytearray(b"header")
    rows = [send_row(form, source, name, 1, b"UNIQ_KEY\x01A", b"hello") for name in (b"T", b"T", b"other", b"T", b"T")]
    for number, row in enumerate(rows):
        row[form.R_FRAME] = 100 + number
    flat = array("q", [value for row in rows for value in row])
    table = array("q", [0, 0, 50, 0, 1, 0, 0, 60, 1, 3, 0, 0, 70, 4, 0, 0, 0, 80, 4, 1])
    hosts = [bytes([10 + number] * 8) for number in range(4)]
    total = log.append_arrivals(source, bytearray(1), flat, table, hosts, owner.topics, STORE, 2000, SUFFIX, 4096)
    assert total == 3
    assert [table[number * 5 + 4] for number in range(4)] == [1, 1, 0, 1]
    assert [table[number * 5 + 2] for number in range(4)] == [50, 102, 70, 80]
    counts = [flat[number * form.ROW_WIDTH + form.R_COUNT] for number in range(5)]
    assert counts == [1, 1, 0, 0, 1]
    stored = record(b"T", 1, 0, 0, b"hello", b"UNIQ_KEY\x01A\x02" + SUFFIX)
    size = len(stored)
    for number, host in enumerate((hosts[0], hosts[1], hosts[3])):
        expected = record(b"T", 1, number, number * size, b"hello", b"UNIQ_KEY\x01A\x02" + SUFFIX)
        assert region[number * size : (number + 1) * size] == expected.replace(BORN, host, 1)
    assert not any(region[3 * size :])


def test_append_record_equals_append_rows_and_knows_v2_and_prop_crc(form: ModuleType) -> None:
    log, region = form.LogTail(), bytearray(4096)
    log.attach(memoryview(region), 0, len(region), 0)
    size = log.append_record(
        b"T",
        1,
        7,
        0,
        0,
        1000,
        BORN,
        2000,
        STORE,
        0,
        0,
        b"hello",
        b"a\x01b\x02",
        zlib.crc32(b"hello") & 0x7FFFFFFF,
        False,
    )
    assert region[:size] == record(b"T", 1, 0, 0, b"hello", b"a\x01b\x02")
    topic = b"%RETRY%" + b"g" * 200
    long = log.append_record(topic, 0, 0, 0, 0, 0, BORN, 0, STORE, 0, 0, b"x", b"a\x01b", 0, True)
    written = bytes(region[size : size + long])
    assert written[4:8] == bytes.fromhex("daa320ab")
    digits = str(zlib.crc32(written[:-20]) & 0x7FFFFFFF)[::-1].ljust(10, "0").encode()
    assert written.endswith(b"a\x01b\x02__CRC32#\x01" + digits + b"\x02")


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
        owner.topics[b"V"].plain = False
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
    row = send_row(
        form, source, b"T", 0, b"WAIT\x01true", batch((b"b0", b"TAGS\x01TagA\x02"), (b"b1", b"")), form.F_BATCH
    )
    count, flat = append(form, log, owner, source, [row])
    assert (count, flat[form.R_COUNT], flat[form.R_QUEUE_OFFSET]) == (1, 2, 0)
    first = record(b"T", 0, 0, 0, b"b0", b"TAGS\x01TagA\x02")
    second = record(b"T", 0, 1, len(first), b"b1", b"")
    assert region[: len(first + second)] == first + second
    end = log.max_offset
    for body in (batch((b"x" * 40, b""), (b"y" * 300, b"")), batch((b"ok", b""))[:-1], batch((b"ok", b"")) + b"\0"):
        source = bytearray()
        assert append(form, log, owner, source, [send_row(form, source, b"T", 0, b"", body, form.F_BATCH)])[0] == 0
        assert log.max_offset == end
    assert owner.topics[b"T"].queues[0].next_queue_offset == 2


def test_dispatch_writes_units_rolls_files_and_is_idempotent(form: ModuleType) -> None:
    owner = Owner(form)
    log, places = b"", []
    for i in range(12):
        places.append(1000 + len(log))
        log += record(b"T", 0, i, 1000 + len(log), b"b%d" % i, b"TAGS\x01payment\x02")
    view = memoryview(log + struct.pack(">iI", 100, 0xCBD43194) + bytes(92))
    dispatcher = form.Dispatcher(owner.topics, owner.index, owner)
    assert dispatcher.run(view, 0, len(view), 1000) == len(view)
    units = owner.units("T", 0)
    assert [(unit[0], unit[0] + unit[1]) for unit in units] == list(pairwise([*places, 1000 + len(log)]))
    assert len(owner.files) > 1
    assert {unit[2] for unit in units} == {-786681338}
    before = [bytes(region) for region in owner.files.values()]
    form.Dispatcher(owner.topics, None, owner).run(view, 0, len(view), 1000)
    assert [bytes(region) for region in owner.files.values()] == before
    assert dispatcher.records == 12


def test_dispatch_indexes_unique_key_and_each_key(form: ModuleType) -> None:
    owner = Owner(form)
    log = record(
        b"TopicTest",
        0,
        0,
        0,
        b"x",
        b"UNIQ_KEY\x01C0A8010A04D2251A69D73B5A6B400001\x02KEYS\x01k1 \xd0\x96\x02TAGS\x01TagA",
    )
    form.Dispatcher(owner.topics, owner.index, owner).run(memoryview(log), 0, len(log), 0)
    region = owner.index_files[0]
    begin, end, first, last, _slots, count = struct.unpack_from(">qqqqii", region, 0)
    assert (begin, end, first, last, count) == (2000, 2000, 0, 0, 4)
    entries = list(struct.iter_unpack(">iqii", bytes(region[40 + 28 + 20 : 40 + 28 + 80])))
    assert [entry[0] for entry in entries] == [558974775, 2746024, abs(form.jhash("TopicTest#Ж"))]


def test_collected_entries_make_the_file_that_dispatch_makes(form: ModuleType) -> None:
    keys = [(number * 7 % 5, 100 * number, 1_700_000_000_000 + 900 * number) for number in range(12)]
    direct, later = bytearray(40 + 4 * 3 + 20 * 9), bytearray(40 + 4 * 3 + 20 * 9)
    tail = form.IndexTail()
    tail.attach(memoryview(direct), 3, 9)
    written = [tail.put_key(*key) for key in keys]
    collector, entries = form.IndexCollector(), bytearray(20 * 12)
    collector.collect_into(memoryview(entries))
    assert all(collector.put_key(*key) for key in keys)
    assert not collector.put_key(1, 2, 3)
    assert collector.count == 12
    tail.attach(memoryview(later), 3, 9)
    assert tail.put_collected(entries, 0, 5) == 5
    assert tail.put_collected(entries, 5, 12) == 3 == written.count(True) - 5
    assert later == direct
    with pytest.raises(ValueError, match="outside the 12 that are there"):
        tail.put_collected(entries, 5, 13)


def test_watched_queues_are_reported_once(form: ModuleType) -> None:
    owner = Owner(form)
    queue = owner.open_queue(b"T", 0)
    queue.watched = True
    log = record(b"T", 0, 0, 0, b"x", b"")
    log += record(b"T", 0, 1, len(log), b"x", b"")
    dispatcher = form.Dispatcher(owner.topics, owner.index, owner)
    dispatcher.run(memoryview(log), 0, len(log), 0)
    assert dispatcher.arrived == [queue]
    assert not queue.watched


def test_prepared_and_rollback_records_have_no_unit(form: ModuleType) -> None:
    owner = Owner(form)
    log = record(b"T", 0, 0, 0, b"x", b"KEYS\x01a\x02", sys_flag=4)
    log += record(b"T", 0, 0, len(log), b"x", b"KEYS\x01a\x02", sys_flag=12)
    form.Dispatcher(owner.topics, owner.index, owner).run(memoryview(log), 0, len(log), 0)
    assert owner.units("T", 0) == []
    assert owner.index.index_count == 2  # the prepared one only


def test_dispatch_stops_at_what_is_not_a_record(form: ModuleType) -> None:
    owner = Owner(form)
    log = record(b"T", 0, 0, 0, b"x", b"")
    dispatcher = form.Dispatcher(owner.topics, owner.index, owner)
    assert dispatcher.run(memoryview(log + b"\xff" * 200), 0, len(log) + 200, 0) == len(log)
    assert dispatcher.run(memoryview(log[:-1] + bytes(200)), 0, len(log) - 1, 0) == 0


def test_jhash_is_javas(form: ModuleType) -> None:
    for text, value in (
        ("TagA", 2598919),
        ("RocketMQ", -453554280),
        ("polygenelubricants", -2147483648),
        ("", 0),
        ("😀", 1772899),
    ):
        assert form.jhash(text) == value


def unit(physical: int, size: int, code: int) -> bytes:
    return struct.pack(">qiq", physical, size, code)


def take(form: ModuleType, units: bytes, **options: object):
    args = {
        "first_index": 10,
        "codes": None,
        "max_messages": 32,
        "max_bytes": 1 << 27,
        "max_physical_offset": 10_000,
        "memory_bytes": 1 << 30,
        "limits": (262144, 32, 65536, 8),
        "min_physical_offset": 0,
        "max_units": 800,
    } | options
    return form.collect(memoryview(units), 0, len(units), *args.values())


def test_collect_joins_neighbours_and_filters_by_tag(form: ModuleType) -> None:
    units = unit(0, 100, 5) + unit(100, 50, 5) + unit(200, 10, 6) + unit(210, 10, -3)
    found = take(form, units)
    assert (found.ranges, found.message_count, found.total_bytes, found.next_index) == (
        [(0, 150), (200, 20)],
        4,
        170,
        14,
    )
    found = take(form, units, codes=[-3])
    assert (found.ranges, found.next_index, found.last_physical_offset) == ([(210, 10)], 14, 210)
    found = take(form, units, codes=[77])
    assert (found.message_count, found.next_index) == (0, 14)


def test_collect_keeps_the_limits_but_always_gives_one(form: ModuleType) -> None:
    units = b"".join(unit(i * 100_000, 100_000, 0) for i in range(10))
    assert take(form, units).message_count == 2
    assert take(form, units, max_bytes=1).message_count == 1
    assert take(form, units, max_messages=1).next_index == 11
    assert take(form, units, memory_bytes=-(1 << 40)).message_count == 1
    small = b"".join(unit(i, 1, 0) for i in range(40))
    assert take(form, small).message_count == 32
    assert take(form, small, memory_bytes=-(1 << 40)).message_count == 8
    assert take(form, small, max_units=3).message_count == 3


def test_collect_passes_over_blanks_and_cleaned_records(form: ModuleType) -> None:
    units = unit(0, 0x7FFFFFFF, 0) + unit(50, 10, 0) + unit(100, 10, 0)
    found = take(form, units, min_physical_offset=100)
    assert (found.ranges, found.next_index) == ([(100, 10)], 13)


def test_a_queue_id_that_is_out_of_all_bounds_costs_no_memory(form: ModuleType) -> None:
    owner = Owner(form)
    log = record(b"T", 1 << 30, 0, 0, b"x", b"")
    form.Dispatcher(owner.topics, owner.index, owner).run(memoryview(log), 0, len(log), 0)
    assert set(owner.topics[b"T"].queues) == {0, 1 << 30}
