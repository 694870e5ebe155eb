"""Dispatch: units and index entries are what a naive reading of the log says, in both forms."""

import struct
from itertools import pairwise
from types import ModuleType

import pytest

from tests.unit.both_forms import both_together
from tests.unit.store.log_world import Owner, record


@pytest.fixture(
    params=both_together("maxq.store.log.tails_cy", "maxq.store.dispatch.dispatch_cy"), ids=["uncompiled", "installed"]
)
def form(request: pytest.FixtureRequest) -> ModuleType:
    return request.param


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


@pytest.mark.parametrize(
    "key",
    [
        b"\xff", b"a\x80\x80b", b"\xc3", b"\xc3(", b"\xc1\x81", b"\xe2\x82", b"\xe2\x82(", b"\xe0\x80\x80",
        b"\xed\xa0\x80",
        b"\xf0\x90\x80", b"\xf0\x90\x80ab", b"\xf0\x80\x80\x80", b"\xf4\x90\x80\x80", b"\xf5\x80\x80\x80",
        "é€𝄞".encode() + b"\xe2\x82\xac\xe2", b"abcd\xc3",
    ],
)  # fmt: skip
def test_bytes_that_are_no_text_count_as_java_reads_them(form: ModuleType, key: bytes) -> None:
    owner = Owner(form)
    log = record(b"T", 0, 0, 0, b"x", b"KEYS\x01" + key + b"\x02TAGS\x01" + key)
    form.Dispatcher(owner.topics, owner.index, owner).run(memoryview(log), 0, len(log), 0)
    text = key.decode("utf-8", "replace")
    assert owner.units("T", 0)[0][2] == form.jhash(text)
    (entry,) = struct.iter_unpack(">iqii", bytes(owner.index_files[0][40 + 28 + 20 : 40 + 28 + 40]))
    assert entry[0] == abs(form.jhash(f"T#{text}"))


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


def test_a_queue_id_that_is_out_of_all_bounds_costs_no_memory(form: ModuleType) -> None:
    owner = Owner(form)
    log = record(b"T", 1 << 30, 0, 0, b"x", b"")
    form.Dispatcher(owner.topics, owner.index, owner).run(memoryview(log), 0, len(log), 0)
    assert set(owner.topics[b"T"].queues) == {0, 1 << 30}


def test_topics_whose_names_begin_alike_and_follow_one_another_are_told_apart(form: ModuleType) -> None:
    owner = Owner(form)
    log, expected = b"", {b"T": [], b"TT": [], b"TU": []}
    for topic in (b"TT", b"T", b"TT", b"TU", b"TT", b"T", b"T"):
        expected[topic].append(len(log))
        log += record(topic, 0, len(expected[topic]) - 1, len(log), b"x", b"")
    form.Dispatcher(owner.topics, owner.index, owner).run(memoryview(log), 0, len(log), 0)
    for topic, places in expected.items():
        assert [unit[0] for unit in owner.units(topic.decode(), 0)] == places


def test_a_topic_that_was_deleted_and_made_again_is_another_one(form: ModuleType) -> None:
    owner = Owner(form)
    log = record(b"T", 0, 0, 0, b"x", b"")
    dispatcher = form.Dispatcher(owner.topics, owner.index, owner)
    dispatcher.run(memoryview(log), 0, len(log), 0)
    gone = owner.topics.pop(b"T")
    owner.files.clear()
    dispatcher.forget_topic()
    again = record(b"T", 0, 0, len(log), b"x", b"")
    dispatcher.run(memoryview(log + again), len(log), len(log + again), 0)
    assert owner.topics[b"T"] is not gone
    assert [unit[0] for unit in owner.units("T", 0)] == [len(log)]


_BLANK = struct.pack(">iI", 8, 0xCBD43194)


class _Hooked(Owner):
    """Attributes:
    seen: the bytes of what it was called for.
    """

    def __init__(self, form: ModuleType) -> None:
        super().__init__(form)
        self.seen: list[bytes] = []

    def dispatch_uncommon(self, position: int, size: int, physical_offset: int, view: memoryview) -> None:
        self.seen.append(bytes(view[position : position + size]))


def _entry(body: bytes) -> bytes:
    """A DLedger entry."""
    return struct.pack(">ii", 1, 48 + len(body)) + bytes(40) + body


def test_a_dispatcher_tells_how_far_it_has_come(form: ModuleType) -> None:
    owner = Owner(form)
    log = record(b"T", 0, 0, 1000, b"x", b"") + _BLANK
    dispatcher = form.Dispatcher(owner.topics, owner.index, owner)
    assert (dispatcher.dispatched_offset, dispatcher.last_store_timestamp, dispatcher.records) == (0, 0, 0)
    begin = len(log) - 8
    assert dispatcher.run(memoryview(log), 0, begin, 1000) == begin, "the range ends before the filler"
    assert (dispatcher.dispatched_offset, dispatcher.last_store_timestamp, dispatcher.records) == (
        1000 + begin,
        2000,
        1,
    )
    assert dispatcher.run(memoryview(log), begin, len(log), 1000) == len(log), "filler may be a head alone"
    assert dispatcher.dispatched_offset == 1000 + len(log)


def test_an_empty_range_is_no_progress_and_one_outside_the_file_is_refused(form: ModuleType) -> None:
    owner = Owner(form)
    dispatcher = form.Dispatcher(owner.topics, owner.index, owner)
    assert dispatcher.run(memoryview(b""), 0, 0, 1000) == 0
    assert dispatcher.dispatched_offset == 0
    for start, end in ((-1, 100), (0, 101)):
        with pytest.raises(ValueError, match="outside the file of 100 bytes"):
            dispatcher.run(memoryview(bytes(100)), start, end, 1000)


def test_files_from_a_place_on_hold_entries_with_a_record_in_each(form: ModuleType) -> None:
    owner = Owner(form)
    dispatcher = form.Dispatcher(owner.topics, owner.index, owner)
    dispatcher.entries_from = 1000
    plain = record(b"T", 0, 0, 0, b"x", b"")
    assert dispatcher.run(memoryview(plain), 0, len(plain), 0) == len(plain)
    log, places = b"", [0]
    for body in (b"no record", b"", None, None):
        place = 1000 + len(log) + 48
        log += _entry(record(b"T", 0, len(places), place, b"y", b"") if body is None else body)
        places += [place] if body is None else []
    filled = log + struct.pack(">i", -1) + bytes(96)
    assert dispatcher.run(memoryview(filled), 0, len(filled), 1000) == len(filled)
    assert [unit[0] for unit in owner.units("T", 0)] == places
    torn = _entry(record(b"T", 0, 3, 3048, b"z", b""))
    assert dispatcher.run(memoryview(torn), 0, len(torn) - 1, 3000) == 0
    assert dispatcher.records == 3


@pytest.mark.parametrize("entries_from", [0, 1 << 40])
def test_who_looks_at_uncommon_records_gets_their_bytes(form: ModuleType, entries_from: int) -> None:
    owner = _Hooked(form)
    dispatcher = form.Dispatcher(owner.topics, owner.index, owner)
    dispatcher.entries_from = entries_from
    rolled_back = record(b"T", 0, 0, 0, b"x", b"", sys_flag=12)
    log = rolled_back if entries_from else _entry(rolled_back)
    dispatcher.run(memoryview(bytes(50) + log), 50, 50 + len(log), 0)
    assert owner.seen == [rolled_back]
