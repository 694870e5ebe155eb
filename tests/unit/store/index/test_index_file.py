"""One index file: what is found in it, and what is believed of one that a crash has left."""

import struct
from pathlib import Path

import pytest

from maxq.runtime.files.system import SystemDisk
from maxq.store.index.index_file import HEADER, IndexFile, index_file_size
from maxq.store.log.tails_cy import IndexTail

SLOTS, MOST = 10, 20
START = 1_700_000_000_000


def new_file(folder: Path, name: str = "20231114221320000") -> IndexFile:
    return IndexFile(SystemDisk(), folder / name, SLOTS, MOST)


def filled(folder: Path, *entries: tuple[int, int, int]) -> IndexFile:
    """A file with these entries: key hash, physical offset, store time."""
    file = new_file(folder)
    file.preset(0, 0)
    tail = IndexTail()
    tail.attach(file.view, SLOTS, MOST)
    for entry in entries:
        assert tail.put_key(*entry)
    return file


def test_a_new_file_is_as_long_as_its_slots_and_entries(tmp_path: Path) -> None:
    file = new_file(tmp_path)
    file.preset(START, 700)
    assert file.path.stat().st_size == 40 + 4 * SLOTS + 20 * MOST == index_file_size(SLOTS, MOST)
    assert file.header() == (START, START, 700, 700, 0, 1)
    assert (file.begin_timestamp, file.end_timestamp) == (START, START)
    assert (file.begin_physical_offset, file.end_physical_offset, file.index_count) == (700, 700, 1)
    assert file.name == "20231114221320000"
    assert not file.is_full


def test_a_file_is_full_when_its_last_entry_number_is_used(tmp_path: Path) -> None:
    file = filled(tmp_path, *[(number, number, START) for number in range(MOST - 2)])
    assert (file.index_count, file.is_full) == (MOST - 1, False)
    tail = IndexTail()
    tail.attach(file.view, SLOTS, MOST)
    assert tail.put_key(1, 1000, START)
    assert not tail.put_key(1, 2000, START)
    assert (file.index_count, file.is_full) == (MOST, True)


def test_the_chain_of_a_slot_is_read_from_the_newest_entry_back(tmp_path: Path) -> None:
    file = filled(
        tmp_path,
        (3, 100, START),
        (3 + SLOTS, 200, START + 1000),  # the same slot, another key
        (3, 300, START + 2000),
        (4, 400, START + 3000),
        (3, 500, START + 4000),
    )
    always = (0, START + 1_000_000)
    assert list(file.select(3, *always)) == [500, 300, 100]
    assert list(file.select(3 + SLOTS, *always)) == [200]
    assert list(file.select(4, *always)) == [400]
    assert list(file.select(5, *always)) == []
    assert file.entry(5) == (3, 500, 4, 3)


def test_only_entries_of_the_asked_time_are_found_with_its_borders(tmp_path: Path) -> None:
    file = filled(tmp_path, *[(3, 100 * number, START + 1000 * number) for number in range(5)])
    assert list(file.select(3, START + 1000, START + 3000)) == [300, 200, 100]
    assert list(file.select(3, START + 1001, START + 2999)) == [200]
    assert list(file.select(3, START + 4000, START + 9000)) == [400]
    assert list(file.select(3, 0, START)) == [0]
    assert list(file.select(3, START + 4001, START + 9000)) == []


def test_an_empty_file_has_nothing_for_anybody(tmp_path: Path) -> None:
    file = filled(tmp_path)
    assert list(file.select(3, 0, 1 << 62)) == []
    assert file.trailing_entries(0) == 0
    assert file.records_within(0, 1 << 62) == set()


@pytest.mark.parametrize("slot", [-1, 5, 1 << 30])
def test_a_slot_that_names_no_entry_ends_the_search(tmp_path: Path, slot: int) -> None:
    file = filled(tmp_path, (3, 100, START), (3, 200, START))
    assert file.index_count == 3
    struct.pack_into(">i", file.view, 40 + 4 * 3, slot)
    assert list(file.select(3, 0, 1 << 62)) == []


@pytest.mark.parametrize(("previous", "found"), [(0, [300]), (-1, [300]), (3, [300]), (4, [300]), (1, [300, 100])])
def test_a_chain_that_does_not_lead_to_older_entries_is_not_followed(
    tmp_path: Path, previous: int, found: list[int]
) -> None:
    """A changed bit must not lead in circles."""
    file = filled(tmp_path, (3, 100, START), (3, 200, START), (3, 300, START))
    struct.pack_into(">i", file.view, 40 + 4 * SLOTS + 20 * 3 + 16, previous)
    assert list(file.select(3, 0, 1 << 62)) == found


def test_an_entry_of_a_time_before_the_file_ends_the_search(tmp_path: Path) -> None:
    file = filled(tmp_path, (3, 100, START), (3, 200, START), (3, 300, START))
    struct.pack_into(">i", file.view, 40 + 4 * SLOTS + 20 * 2 + 12, -1)
    assert list(file.select(3, 0, 1 << 62)) == [300]


def test_which_times_a_file_is_asked_for(tmp_path: Path) -> None:
    file = filled(tmp_path, (3, 100, START), (3, 200, START + 5000))
    first, last = START, START + 5000
    for begin, end, expected in [
        (first - 2, first - 1, False),
        (first - 2, first, True),
        (first + 1, last - 1, True),
        (first - 1, last + 1, True),
        (first - 1, last, True),
        (first, last + 1, True),
        (last, last + 2, True),
        (last + 1, last + 2, False),
    ]:
        assert file.overlaps(begin, end) is expected, (begin - first, end - first)


def test_a_file_of_one_moment_is_asked_for_that_moment(tmp_path: Path) -> None:
    file = filled(tmp_path, (3, 100, START))
    asked = [(START - 2, START - 1), (START, START), (START + 1, START + 2)]
    assert [file.overlaps(*times) for times in asked] == [False, True, False]


def test_a_file_whose_clock_was_set_back_is_asked_for_every_time(tmp_path: Path) -> None:
    file = filled(tmp_path, (3, 100, START), (3, 200, START - 5000))
    assert file.overlaps(0, 1)


def test_newest_entries_of_a_record_are_counted(tmp_path: Path) -> None:
    file = filled(tmp_path, (1, 100, START), (2, 200, START), (3, 200, START), (4, 200, START))
    assert [file.trailing_entries(offset) for offset in (100, 200, 300)] == [0, 3, 0]
    all_of_one = filled(tmp_path / "other", (1, 100, START), (2, 100, START))
    assert all_of_one.trailing_entries(100) == 2


def test_records_with_entries_are_listed_by_where_they_are(tmp_path: Path) -> None:
    file = filled(tmp_path, *[(number, offset, START) for number, offset in enumerate([100, 100, 200, 300, 400])])
    assert file.records_within(0, 1000) == {100, 200, 300, 400}
    assert file.records_within(100, 400) == {100, 200, 300}
    assert file.records_within(101, 400) == {200, 300}
    assert file.records_within(401, 1000) == set()


def test_a_restored_record_is_listed_though_its_entry_came_late(tmp_path: Path) -> None:
    file = filled(tmp_path, *[(number, offset, START) for number, offset in enumerate([100, 300, 400, 200])])
    file.set_end_physical_offset(400)
    assert file.end_physical_offset == 400
    assert file.records_within(0, 1000) == {100, 200, 300, 400}
    assert file.records_within(150, 250) == {200}
    assert file.records_within(250, 350) == {300}
    more = filled(tmp_path / "more", *[(number, at, START) for number, at in enumerate([100, 200, 300, 400, 150])])
    more.set_end_physical_offset(400)
    assert more.records_within(350, 1000) == {400}


FULL_HEADER = (START, START + 9, 100, 900, 3, 5)


@pytest.mark.parametrize(
    ("header", "fault"),
    [
        (FULL_HEADER, None),
        ((0, 0, 0, 0, 0, 0), None),
        ((0, 0, 0, 0, 0, 1), None),
        ((START, START, 100, 100, 5, 5), None),
        ((START, START, 100, 100, SLOTS, MOST), None),
        ((START, START - 5, 100, 900, 3, 5), None),  # a clock that was set back
        ((START, START, 100, 900, 3, -1), "entry count -1"),
        ((START, START, 100, 900, 3, MOST + 1), f"entry count {MOST + 1}"),
        ((START, START, 100, 900, -1, 5), "slot count -1 is outside 0…5"),
        ((START, START, 100, 900, 6, 5), "slot count 6 is outside 0…5"),
        ((0, 0, 0, 0, 1, 0), "slot count 1 is outside 0…0"),
        ((START, START, 100, 900, SLOTS + 1, MOST), f"slot count {SLOTS + 1} is outside 0…{SLOTS}"),
        ((-1, START, 100, 900, 3, 5), "range is"),
        ((START, -1, 100, 900, 3, 5), "range is"),
        ((START, START, -1, 900, 3, 5), "range is"),
        ((START, START, 901, 900, 3, 5), "range is"),
    ],
)
def test_headers_that_cannot_be_are_told(tmp_path: Path, header: tuple[int, ...], fault: str | None) -> None:
    file = new_file(tmp_path)
    HEADER.pack_into(file.view, 0, *header)
    found = file.fault()
    assert found is None if fault is None else found is not None and fault in found


def test_a_header_is_that_of_its_first_and_last_entry(tmp_path: Path) -> None:
    def with_header(*header: int) -> list[bool]:
        HEADER.pack_into(file.view, 0, *header)
        return [file.agrees_with_entries(exactly=exactly) for exactly in (True, False)]

    file = filled(tmp_path, (1, 100, START), (2, 200, START), (3, 300, START + 5))
    begin, end, first, last, slots, count = file.header()
    assert with_header(begin, end, first, last, slots, count) == [True, True]
    assert with_header(begin, end, first, last + 1, slots, count) == [False, True], "a restored record came last"
    assert with_header(begin, end, first, last - 1, slots, count) == [False, False]
    assert with_header(begin, end, first + 1, last, slots, count) == [False, False]
    assert with_header(0, end, first, last, slots, count) == [False, False], "torn: times that were not written"
    assert with_header(begin, 0, first, last, slots, count) == [False, False]
    assert with_header(1, 1, first, last, slots, count) == [True, True]
    assert with_header(begin, end, first, last, slots, count - 1) == [False, True]
    assert with_header(0, 0, 0, 0, 0, 1) == [True, True], "no entry says anything"
    assert with_header(0, 0, 0, 0, 0, 0) == [True, True]
    assert with_header(0, 0, first, first, 1, 2) == [False, False]


def test_a_flush_makes_new_entries_durable_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = filled(tmp_path, (3, 100, START))
    flushed: list[tuple[int, int]] = []
    monkeypatch.setattr(type(file.region), "flush", lambda region, start, end: flushed.append((start, end)))
    file.flush()
    assert (flushed, file.flushed_count) == ([(0, file.size)], 2)
    file.flush()
    assert flushed == [(0, file.size)]


def test_a_file_that_nobody_has_mapped_is_not_made_by_a_flush(tmp_path: Path) -> None:
    file = new_file(tmp_path)
    file.flush()
    assert not file.path.exists()


def test_a_file_that_was_given_up_is_mapped_again_and_a_deleted_one_is_gone(tmp_path: Path) -> None:
    file = filled(tmp_path, (3, 100, START))
    file.release()
    assert list(file.select(3, 0, 1 << 62)) == [100]
    file.destroy()
    assert not file.path.exists()
    file.destroy()
