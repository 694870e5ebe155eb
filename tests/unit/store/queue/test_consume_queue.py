"""One queue's files: units, where readers begin, what recovery, flushing, retention and deletion do to them."""

from pathlib import Path

import pytest

from maxq.runtime.files.system import SystemDisk
from maxq.store.queue.consume_queue import BLANK_UNIT_SIZE, CQ_STORE_UNIT_SIZE, ConsumeQueue
from maxq.store.queue.consume_queue_ext import ConsumeQueueExt, CqExtUnit
from maxq.store.queue.unit_scan_cy import DAMAGED_TAGS_CODE

PER_FILE = 500
FILE_SIZE = PER_FILE * CQ_STORE_UNIT_SIZE  # two pages and a half
PAGE = 4096


def new_queue(root: Path) -> ConsumeQueue:
    return ConsumeQueue(SystemDisk(), root, "T", 3, FILE_SIZE, lambda queue: None)


def put(queue: ConsumeQueue, *queue_offsets: int) -> None:
    """Units as dispatch writes them: record n has 10 bytes at 100 + 10 n, and tags code 7 n."""
    for number in queue_offsets:
        if number != queue.max_offset or not queue.tail.append(100 + 10 * number, 10, 7 * number):
            queue.roll(number, 100 + 10 * number, 10)
            assert queue.tail.append(100 + 10 * number, 10, 7 * number)


def filled(root: Path, count: int) -> ConsumeQueue:
    queue = new_queue(root)
    put(queue, *range(count))
    return queue


def names(root: Path) -> list[int]:
    return sorted(int(path.name) for path in (root / "T" / "3").iterdir())


def loaded(root: Path) -> ConsumeQueue:
    queue = new_queue(root)
    queue.files.load(SystemDisk().list(root / "T" / "3"), setting="mappedFileSizeConsumeQueue")
    return queue


def test_units_are_where_their_queue_offset_says(tmp_path: Path) -> None:
    queue = filled(tmp_path, PER_FILE + 2)
    assert queue.max_offset == PER_FILE + 2
    assert queue.unit(0) == (100, 10, 0)
    assert queue.unit(PER_FILE - 1) == (100 + 10 * (PER_FILE - 1), 10, 7 * (PER_FILE - 1))
    assert queue.unit(PER_FILE) == (100 + 10 * PER_FILE, 10, 7 * PER_FILE)
    assert queue.unit(-1) is None
    assert queue.unit(2 * PER_FILE) is None
    assert names(tmp_path) == [0, FILE_SIZE]


def test_dispatch_finds_the_queue_by_its_writing_end(tmp_path: Path) -> None:
    queue = new_queue(tmp_path)
    assert (queue.tail.topic, queue.tail.queue_id, queue.tail.owner) == ("T", 3, queue)


def test_units_are_written_where_blocks_were_allocated(tmp_path: Path) -> None:
    queue = filled(tmp_path, 1)
    written = 1
    while queue.tail.append(100, 10, 0):
        written += 1
    assert written == PAGE // 20
    put(queue, written)
    assert queue.unit(written) == (100 + 10 * written, 10, 7 * written)


def test_nothing_is_in_a_queue_without_files(tmp_path: Path) -> None:
    queue = new_queue(tmp_path)
    assert (queue.max_offset, queue.taken_offset, queue.min_offset(0)) == (0, 0, 0)
    assert queue.unit(0) is None
    assert queue.units_from(0) is None
    assert queue.unflushed(0) == []
    assert queue.delete_expired(1 << 40) == []
    queue.clear_rest()


def test_what_is_taken_is_what_is_visible_or_still_awaited(tmp_path: Path) -> None:
    queue = filled(tmp_path, 5)
    queue.tail.next_queue_offset = 9
    assert (queue.max_offset, queue.taken_offset) == (5, 9)
    queue.tail.next_queue_offset = 2
    assert queue.taken_offset == 5


def test_a_queue_that_begins_late_has_pre_blank_units_before_its_first(tmp_path: Path) -> None:
    queue = new_queue(tmp_path)
    put(queue, PER_FILE + 2, PER_FILE + 3)
    assert names(tmp_path) == [FILE_SIZE]
    assert queue.unit(PER_FILE - 1) is None
    assert queue.unit(PER_FILE) == queue.unit(PER_FILE + 1) == (0, BLANK_UNIT_SIZE, 0)
    assert queue.unit(PER_FILE + 2) == (100 + 10 * (PER_FILE + 2), 10, 7 * (PER_FILE + 2))
    assert (queue.min_offset(0), queue.max_offset) == (PER_FILE + 2, PER_FILE + 4)


def test_a_queue_that_begins_at_a_file_has_no_pre_blank_units(tmp_path: Path) -> None:
    queue = new_queue(tmp_path)
    put(queue, PER_FILE)
    assert names(tmp_path) == [FILE_SIZE]
    assert queue.unit(PER_FILE) == (100 + 10 * PER_FILE, 10, 7 * PER_FILE)
    assert queue.min_offset(0) == PER_FILE


def test_units_that_are_missing_become_places_of_damaged_messages(tmp_path: Path) -> None:
    queue = filled(tmp_path, 3)
    queue.roll(6, 160, 10)
    assert queue.max_offset == 6
    assert [queue.unit(number) for number in (2, 3, 4, 5)] == [(120, 10, 14), *[(160, 10, DAMAGED_TAGS_CODE)] * 3]
    assert queue.tail.max_physical_offset == 160, "the record itself is still to come"
    assert queue.tail.append(160, 10, 42)
    assert queue.tail.max_physical_offset == 170


def test_missing_units_may_go_over_the_end_of_a_file(tmp_path: Path) -> None:
    queue = filled(tmp_path, PER_FILE - 1)
    queue.roll(PER_FILE + 1, 9000, 10)
    assert queue.unit(PER_FILE) == (9000, 10, DAMAGED_TAGS_CODE)
    assert names(tmp_path) == [0, FILE_SIZE]


def test_a_roll_without_a_gap_keeps_how_far_the_log_is_dispatched(tmp_path: Path) -> None:
    queue = filled(tmp_path, 3)
    queue.roll(3, 500, 10)
    assert queue.tail.max_physical_offset == 130
    assert queue.max_offset == 3


@pytest.mark.parametrize(("log_begins", "first"), [(0, 0), (100, 0), (101, 1), (110, 1), (145, 5), (149, 5), (150, 5)])
def test_readers_begin_with_the_first_record_that_the_log_still_has(
    tmp_path: Path, log_begins: int, first: int
) -> None:
    assert filled(tmp_path, 8).min_offset(log_begins) == first


def test_a_queue_whose_records_are_all_gone_begins_at_its_end(tmp_path: Path) -> None:
    assert filled(tmp_path, 8).min_offset(1 << 40) == 8


def test_the_beginning_is_looked_for_again_when_units_were_changed(tmp_path: Path) -> None:
    queue = filled(tmp_path, 8)
    assert queue.min_offset(130) == 3
    queue.put_unit(3, (50, 10, 0))
    assert queue.min_offset(130) == 3
    queue.reset_min()
    assert queue.min_offset(130) == 4
    assert queue.min_offset(0) == 0


@pytest.mark.parametrize(("hidden_below", "first"), [(0, 2), (1, 2), (2, 2), (5, 5), (8, 8), (20, 8)])
def test_hidden_messages_are_passed_over(tmp_path: Path, hidden_below: int, first: int) -> None:
    queue = filled(tmp_path, 8)
    queue.hidden_below = hidden_below
    assert queue.min_offset(120) == first


def test_units_are_given_to_the_end_of_their_file_or_of_the_queue(tmp_path: Path) -> None:
    queue = filled(tmp_path, PER_FILE + 3)
    found = queue.units_from(PER_FILE - 2)
    assert found is not None
    assert found[1:] == ((PER_FILE - 2) * 20, FILE_SIZE)
    found = queue.units_from(PER_FILE + 1)
    assert found is not None
    assert found[1:] == (20, 60)
    assert bytes(found[0][20:28]) == (100 + 10 * (PER_FILE + 1)).to_bytes(8, "big")
    assert queue.units_from(PER_FILE + 3) is None


def test_the_file_behind_a_unit_begins_at_a_multiple(tmp_path: Path) -> None:
    queue = new_queue(tmp_path)
    answers = [f"{queue.next_file_index(number)}" for number in (0, 1, PER_FILE - 1, PER_FILE)]
    assert answers == ["500", "500", "500", "1000"]


def test_a_unit_that_was_written_over_is_flushed_again(tmp_path: Path) -> None:
    queue = filled(tmp_path, 10)
    file = queue.files.files[0]
    for where, flushed in [(5, 100), (7, 100)]:
        file.flushed_position = 200 if where == 5 else file.flushed_position
        queue.put_unit(where, (1, 2, 3))
        assert queue.unit(where) == (1, 2, 3)
        assert file.flushed_position == flushed
    assert [queue.unit(4), queue.unit(6)] == [(140, 10, 28), (160, 10, 42)]


def test_an_address_takes_the_place_of_the_tags_code_alone(tmp_path: Path) -> None:
    queue = filled(tmp_path, PER_FILE + 5)
    file = queue.files.files[1]
    file.flushed_position = 80
    queue.put_address(PER_FILE + 2, -77)
    physical = 100 + 10 * (PER_FILE + 2)
    assert queue.unit(PER_FILE + 2) == (physical, 10, -77)
    assert queue.unit(PER_FILE + 3) == (physical + 10, 10, 7 * (PER_FILE + 3))
    assert file.flushed_position == 40


# --- recovery


def test_recovery_ends_a_queue_and_nothing_stale_follows(tmp_path: Path) -> None:
    filled(tmp_path, 2 * PER_FILE + 5)
    queue = loaded(tmp_path)
    queue.end_at(PER_FILE + 3, 777)
    assert names(tmp_path) == [0, FILE_SIZE]
    assert (queue.max_offset, queue.tail.next_queue_offset) == (PER_FILE + 3, PER_FILE + 3)
    assert queue.tail.max_physical_offset == 777
    assert queue.unit(PER_FILE + 2) == (100 + 10 * (PER_FILE + 2), 10, 7 * (PER_FILE + 2))
    stale = bytes(queue.files.files[1].view[60:])
    assert not any(stale[: PAGE - 60]), "to the end of the page"
    put(queue, PER_FILE + 3)
    assert queue.unit(PER_FILE + 3) == (100 + 10 * (PER_FILE + 3), 10, 7 * (PER_FILE + 3))


@pytest.mark.parametrize("kept", [205, 300, PER_FILE - 1])
def test_stale_units_are_zeroed_to_the_end_of_the_page_or_file(tmp_path: Path, kept: int) -> None:
    filled(tmp_path, PER_FILE)
    queue = loaded(tmp_path)
    queue.end_at(kept, 777)
    view = bytes(queue.files.files[0].view)
    end = min(FILE_SIZE, (kept * 20 // PAGE + 1) * PAGE)
    assert not any(view[kept * 20 : end])
    assert view[(kept - 1) * 20 : kept * 20] != bytes(20)
    assert queue.max_offset == kept


def test_a_queue_of_which_nothing_is_left_has_no_files(tmp_path: Path) -> None:
    queue = new_queue(tmp_path)
    put(queue, PER_FILE + 2)
    queue.release()
    queue = loaded(tmp_path)
    queue.end_at(PER_FILE, -1)
    assert names(tmp_path) == []
    assert (queue.max_offset, queue.tail.max_physical_offset) == (PER_FILE, -1)


def test_a_queue_that_ends_with_its_last_file_keeps_it(tmp_path: Path) -> None:
    filled(tmp_path, PER_FILE)
    queue = loaded(tmp_path)
    queue.end_at(PER_FILE, 5100)
    assert names(tmp_path) == [0]
    put(queue, PER_FILE)
    assert names(tmp_path) == [0, FILE_SIZE]
    assert queue.unit(PER_FILE - 1) == (100 + 10 * (PER_FILE - 1), 10, 7 * (PER_FILE - 1))


def test_recovery_begins_to_look_for_the_beginning_anew(tmp_path: Path) -> None:
    queue = filled(tmp_path, 8)
    assert queue.min_offset(150) == 5
    queue.end_at(3, 130)
    assert queue.min_offset(150) == 3


def test_a_clean_queue_is_taken_over_as_it_is(tmp_path: Path) -> None:
    filled(tmp_path, PER_FILE + 4)
    queue = loaded(tmp_path)
    queue.adopt(PER_FILE + 4, 5140)
    assert (queue.max_offset, queue.tail.next_queue_offset, queue.tail.max_physical_offset) == (
        PER_FILE + 4, PER_FILE + 4, 5140,
    )  # fmt: skip
    last = queue.files.files[-1]
    assert last.wrote_position == last.flushed_position == 80
    assert queue.unflushed(0) == []
    put(queue, PER_FILE + 4)
    assert queue.unflushed(0) == [(last, 80, 100)]


# --- flush


def pieces(queue: ConsumeQueue, least_pages: int) -> list[tuple[int, int, int]]:
    return [(file.file_from_offset, start, end) for file, start, end in queue.unflushed(least_pages)]


def test_a_flush_takes_what_is_not_durable_of_every_file(tmp_path: Path) -> None:
    queue = filled(tmp_path, 2 * PER_FILE + 5)
    assert pieces(queue, 0) == [(2 * FILE_SIZE, 0, 100), (FILE_SIZE, 0, FILE_SIZE), (0, 0, FILE_SIZE)]
    assert pieces(queue, 1) == [(FILE_SIZE, 0, FILE_SIZE), (0, 0, FILE_SIZE)], "less than a page waits"
    queue.files.files[0].flushed_position = queue.files.files[1].flushed_position = FILE_SIZE
    queue.files.files[2].flushed_position = 40
    assert pieces(queue, 0) == [(2 * FILE_SIZE, 40, 100)]
    assert pieces(queue, 1) == []


def test_a_flush_takes_a_unit_that_was_overwritten_in_an_older_file(tmp_path: Path) -> None:
    queue = filled(tmp_path, 3 * PER_FILE + 5)
    for file, start, end in queue.unflushed(0):
        file.flushed_position = end
        assert start == 0
    queue.put_unit(PER_FILE + 1, (5, 6, 7))
    assert pieces(queue, 0) == pieces(queue, 1) == [(FILE_SIZE, 20, FILE_SIZE)]
    queue.files.files[1].flushed_position = FILE_SIZE
    assert pieces(queue, 0) == []


@pytest.mark.parametrize(
    ("count", "least", "is_due"), [(204, 1, False), (205, 1, True), (409, 2, False), (410, 2, True)]
)
def test_a_file_that_is_not_full_waits_for_whole_pages(tmp_path: Path, count: int, least: int, is_due: bool) -> None:
    assert bool(filled(tmp_path, count).unflushed(least)) is is_due


def test_pages_are_counted_from_where_the_last_flush_ended(tmp_path: Path) -> None:
    queue = filled(tmp_path, 410)
    queue.files.files[0].flushed_position = PAGE + 10
    assert pieces(queue, 1) == [(0, PAGE + 10, 8200)]
    assert pieces(queue, 2) == []


# --- retention and deletion


def test_files_whose_last_record_is_gone_are_taken_off_but_never_the_last(tmp_path: Path) -> None:
    queue = filled(tmp_path, 2 * PER_FILE + 1)
    last_of_first = 100 + 10 * (PER_FILE - 1)
    assert queue.delete_expired(last_of_first) == []
    assert queue.min_offset(last_of_first + 1) == PER_FILE
    (gone,) = queue.delete_expired(last_of_first + 1)
    assert gone.file_from_offset == 0
    assert queue.unit(0) is None
    assert [file.file_from_offset for file in queue.delete_expired(1 << 40)] == [FILE_SIZE]
    assert queue.min_offset(1 << 40) == 2 * PER_FILE + 1
    assert queue.delete_expired(1 << 40) == []


def test_a_destroyed_queue_counts_from_zero(tmp_path: Path) -> None:
    queue = filled(tmp_path, PER_FILE + 2)
    assert queue.min_offset(150) == 5
    queue.destroy()
    assert names(tmp_path) == []
    assert (queue.max_offset, queue.taken_offset, queue.min_offset(150)) == (0, 0, 0)
    assert queue.tail.max_physical_offset == -1
    put(queue, 0)
    assert queue.unit(0) == (100, 10, 0)


def test_a_forgotten_queue_leaves_its_files_to_the_caller(tmp_path: Path) -> None:
    queue = filled(tmp_path, PER_FILE + 2)
    assert [file.file_from_offset for file in queue.forget()] == [0, FILE_SIZE]
    assert names(tmp_path) == [0, FILE_SIZE]
    assert (queue.max_offset, queue.unit(0), queue.tail.max_physical_offset) == (0, None, -1)


def test_a_queue_of_a_deleted_topic_begins_anew_with_nothing_hidden(tmp_path: Path) -> None:
    queue = filled(tmp_path, 5)
    queue.hidden_below, queue.end_at_start, lives = 3, 5, queue.lives
    files = queue.files.files[:]
    queue.begin_anew()
    assert (queue.hidden_below, queue.end_at_start, queue.lives) == (0, 0, lives + 1)
    assert (queue.max_offset, queue.min_offset(0)) == (0, 0)
    assert files[0].is_mapped, "a flush may be under way"


def test_what_lies_behind_the_end_is_cleared(tmp_path: Path) -> None:
    queue = filled(tmp_path, 10)
    view = queue.files.files[0].view
    view[200:300] = b"x" * 100
    view[FILE_SIZE - 1] = 7
    queue.clear_rest()
    assert not any(view[200:])
    assert queue.unit(9) == (190, 10, 63)


def test_a_queue_that_was_given_up_is_mapped_again_for_its_next_reader(tmp_path: Path) -> None:
    seen: list[ConsumeQueue] = []
    queue = ConsumeQueue(SystemDisk(), tmp_path, "T", 3, FILE_SIZE, seen.append)
    put(queue, 0)
    assert seen == [queue]
    queue.release()
    assert not queue.files.files[0].is_mapped
    assert queue.unit(0) == (100, 10, 0)
    assert queue.unit(0) == (100, 10, 0)
    assert seen == [queue, queue]
    queue.release()
    put(queue, 1)
    assert queue.unit(1) == (110, 10, 7)


# --- extension units


def with_ext(root: Path, count: int, *, addresses: int) -> tuple[ConsumeQueue, list[int]]:
    """A queue of `count` units, of which the last `addresses` have extension units; and their addresses."""
    queue = filled(root, count)
    queue.ext = ConsumeQueueExt(SystemDisk(), root / "ext", "T", 3, 1024)
    queue.ext.place(None, unknown=0)
    found = []
    for number in range(count - addresses, count):
        address = queue.ext.put(CqExtUnit(1000 + number, number, b"bits"))
        assert address is not None
        queue.put_address(number, address)
        found.append(address)
    return queue, found


def test_a_unit_with_an_address_has_the_tags_code_of_its_extension(tmp_path: Path) -> None:
    queue, addresses = with_ext(tmp_path, 3, addresses=1)
    assert queue.with_tags((100, 10, 7)) == (100, 10, 7)
    assert queue.with_tags((120, 10, addresses[0])) == (120, 10, 1002)
    assert queue.with_tags((120, 10, addresses[0] + 1)) == (120, 10, addresses[0] + 1), "nothing can be read there"
    queue.ext = None
    assert queue.with_tags((120, 10, addresses[0])) == (120, 10, addresses[0])


@pytest.mark.parametrize("behind", [0, 1, 5, 999, 1000])
def test_extension_units_go_on_behind_the_newest_that_a_unit_knows(tmp_path: Path, behind: int) -> None:
    """Of the last thousand; else in a new file."""
    queue, addresses = with_ext(tmp_path, 3, addresses=2)
    put(queue, *range(3, 3 + behind))
    again = ConsumeQueueExt(SystemDisk(), tmp_path / "ext", "T", 3, 1024)
    queue.place_ext(again)
    expected = addresses[1] + (addresses[1] - addresses[0]) if behind < 1000 else addresses[0] + 1024
    assert again.put(CqExtUnit(1, 2, b"bits")) == expected


def test_extension_units_of_an_earlier_life_of_the_queue_are_deleted(tmp_path: Path) -> None:
    _, addresses = with_ext(tmp_path, 3, addresses=3)
    queue = ConsumeQueue(SystemDisk(), tmp_path / "new", "T", 3, FILE_SIZE, lambda queue: None)
    put(queue, 0, 1)
    again = ConsumeQueueExt(SystemDisk(), tmp_path / "ext", "T", 3, 1024)
    queue.place_ext(again)
    assert again.put(CqExtUnit(1, 2, b"bits")) == addresses[0]


def test_extension_files_go_with_the_last_unit_that_points_to_them(tmp_path: Path) -> None:
    queue, addresses = with_ext(tmp_path, 2 * PER_FILE + 1, addresses=2 * PER_FILE + 1)
    gone = queue.delete_expired(100 + 10 * PER_FILE)
    first_kept = (addresses[PER_FILE] + (1 << 63)) // 1024 * 1024
    assert [file.file_from_offset for file in gone] == [0, *range(0, first_kept, 1024)]
    assert queue.with_tags((0, 0, addresses[PER_FILE]))[2] == 1000 + PER_FILE
    assert queue.with_tags((0, 0, addresses[0]))[2] == addresses[0]


def test_a_flush_takes_extension_units_too(tmp_path: Path) -> None:
    queue, _ = with_ext(tmp_path, 3, addresses=1)
    assert [(start, end) for _, start, end in queue.unflushed(0)] == [(0, 60), (0, 24)]
    assert queue.unflushed(1) == []
