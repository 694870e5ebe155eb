"""The index files of a store: how they follow one another, what a start believes of them, what a query finds."""

import asyncio
from datetime import datetime
from pathlib import Path

import pytest

from maxq.runtime.files.system import SystemDisk, SystemMappedRegion
from maxq.store.context.store_context import StoreContext
from maxq.store.index import index_service
from maxq.store.index.index_file import IndexFile, index_file_size
from maxq.store.index.index_service import IndexService, index_key, index_key_hash
from tests.unit.store.stores import IDENTITY, TestClock, small_config

SLOTS, MOST = 10, 20
IN_A_FILE = MOST - 1  # entries are numbered from 1
START = 1_700_000_000_000
FOREVER = (0, 1 << 62)


class World:
    """An index on a temporary folder, of which each start makes another one."""

    def __init__(self, root: Path) -> None:
        self.clock = TestClock(START)
        self.root = root
        self.full: list[str] = []

    def index(self) -> IndexService:
        config = small_config(self.root, max_hash_slot_num=SLOTS, max_index_num=MOST)
        context = StoreContext(config, SystemDisk(), self.clock, IDENTITY)
        return IndexService(context, lambda file: self.full.append(file.name), 0)

    def filled(self, count: int) -> IndexService:
        """The index of so many records, at 0, 100, 200, …, each a millisecond younger, with key k0, k1, …"""
        index = self.index()
        for number in range(count):
            index.put_keys("T", [f"k{number}"], 100 * number, START + number)
        return index


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def names(index: IndexService) -> list[str]:
    return [file.name for file in index.files]


def test_hashes_are_javas_made_positive() -> None:
    assert index_key("T", "k") == "T#k"
    assert index_key_hash("T#k") == (ord("T") * 31 + ord("#")) * 31 + ord("k")
    assert index_key_hash("polygenelubricants") == 0, "its String.hashCode has no positive"


# --- files ---


def test_a_full_file_is_told_and_the_next_one_begins_where_it_ends(world: World) -> None:
    index = world.filled(IN_A_FILE)
    assert (len(index.files), world.full) == (1, [])
    index.put_keys("T", ["more"], 5000, START + 70)
    first, second = index.files
    assert world.full == [first.name]
    assert first.is_full
    assert second.begin_timestamp == START + 70 and second.end_physical_offset == 5000
    assert second.index_count == 2
    index.put_keys("T", ["keys", "of", "one"], 5100, START + 71)
    assert second.index_count == 5
    assert world.full == [first.name]


def test_a_new_file_says_the_end_of_the_one_before_until_it_has_an_entry(world: World) -> None:
    index = world.filled(IN_A_FILE)
    index.roll()
    last = START + IN_A_FILE - 1
    assert index.files[1].header() == (last, last, 100 * (IN_A_FILE - 1), 100 * (IN_A_FILE - 1), 0, 1)


def test_files_are_named_by_local_time_and_sort_in_their_order_though_the_clock_stands_or_goes_back(
    world: World,
) -> None:
    index = world.filled(1)
    index.roll()
    world.clock.now_ms -= 60_000
    index.roll()
    world.clock.now_ms += 3_600_000
    index.roll()
    now = datetime.fromtimestamp(START / 1000)
    assert names(index)[0] == now.strftime("%Y%m%d%H%M%S") + "000"
    assert [int(name) - int(names(index)[0]) for name in names(index)[:3]] == [0, 1, 2]
    later = datetime.fromtimestamp(world.clock.now_ms / 1000)
    assert names(index)[3] == later.strftime("%Y%m%d%H%M%S") + "000"
    assert sorted(path.name for path in (world.root / "index").iterdir()) == names(index)


def test_milliseconds_are_the_last_three_digits(world: World) -> None:
    world.clock.now_ms += 7
    assert names(world.filled(1))[0].endswith("007")


def test_a_file_behind_one_whose_name_is_no_time_has_the_next_number(world: World) -> None:
    world.filled(1).release()
    (path,) = (world.root / "index").iterdir()
    path.rename(path.with_name("20999999999999999"))
    index = world.index()
    assert index.load(newest_safe_timestamp=None) == []
    index.attach_last()
    index.put_keys("T", [f"more{number}" for number in range(IN_A_FILE)], 9000, START)
    assert names(index) == ["20999999999999999", "21000000000000000"]


def test_expired_files_are_taken_off_and_never_the_newest(world: World) -> None:
    index = world.filled(3 * IN_A_FILE)
    oldest, second, newest = index.files
    end = second.end_physical_offset
    assert index.delete_expired(oldest.end_physical_offset) == []
    assert index.delete_expired(end) == [oldest]
    assert index.delete_expired(1 << 62) == [second]
    assert index.files == [newest]


def test_a_destroyed_index_begins_anew_also_with_records_that_it_had(world: World) -> None:
    index = world.filled(30)
    index.destroy()
    assert list((world.root / "index").iterdir()) == []
    assert index.query("T#k3", 9, *FOREVER) == ([], 0, 0)
    assert index.tail.end_physical_offset == 0
    index.put_keys("T", ["k3"], 300, START)
    assert index.query("T#k3", 9, *FOREVER)[0] == [300]
    assert len(index.files) == 1


def test_a_released_index_takes_nothing_and_its_files_are_whole(world: World) -> None:
    index = world.filled(30)
    index.release()
    assert not index.tail.put_key(1, 1, 1)
    again = world.index()
    assert again.load(newest_safe_timestamp=None) == []
    assert [file.index_count for file in again.files] == [MOST, 30 - IN_A_FILE + 1]
    assert [file.flushed_count for file in again.files] == [MOST, 30 - IN_A_FILE + 1], "a start finds durable entries"


def test_the_newest_file_is_continued_after_a_start(world: World) -> None:
    world.filled(25).release()
    index = world.index()
    index.load(newest_safe_timestamp=None)
    index.attach_last()
    index.put_keys("T", ["k25"], 2500, START + 25)
    assert len(index.files) == 2
    assert index.query("T#k24", 9, *FOREVER)[0] == [2400]
    assert index.query("T#k25", 9, *FOREVER) == ([2500], START + 25, 2500)


# --- what a start believes ---


def test_after_a_clean_end_all_files_are_believed_and_others_are_left_alone(world: World) -> None:
    world.filled(25).release()
    folder = world.root / "index"
    (folder / "notes.txt").write_bytes(b"mine")
    (folder / "20990101000000000").mkdir()
    index = world.index()
    assert index.load(newest_safe_timestamp=None) == []
    assert len(index.files) == 2
    assert (folder / "notes.txt").exists() and (folder / "20990101000000000").is_dir()


def test_a_file_of_another_size_goes_with_all_newer_ones_and_says_why(world: World) -> None:
    world.filled(3 * IN_A_FILE).release()
    paths = sorted((world.root / "index").iterdir())
    paths[1].write_bytes(paths[1].read_bytes()[:-1])
    index = world.index()
    size = index_file_size(SLOTS, MOST)
    assert index.load(newest_safe_timestamp=None) == [
        f"index file {paths[1]} was deleted, to be rebuilt: {size - 1} bytes where {size} are expected "
        "(maxHashSlotNum, maxIndexNum)",
        f"index file {paths[2]} was deleted, to be rebuilt: it follows a file that was deleted",
    ]
    assert names(index) == [paths[0].name]
    assert [path.name for path in (world.root / "index").iterdir()] == [paths[0].name]


def test_after_a_kill_only_full_files_up_to_the_checkpoints_time_are_believed(world: World) -> None:
    world.filled(2 * IN_A_FILE + 5).release()
    ends = [START + IN_A_FILE - 1, START + 2 * IN_A_FILE - 1]
    saved = {path: path.read_bytes() for path in (world.root / "index").iterdir()}
    for safe, believed in ((1 << 62, 2), (ends[1], 2), (ends[1] - 1, 1), (ends[0], 1), (ends[0] - 1, 0)):
        for path, data in saved.items():
            path.write_bytes(data)
        index = world.index()
        told = index.load(newest_safe_timestamp=safe)
        assert (len(index.files), len(told)) == (believed, 3 - believed), safe - START
        assert ("only full files" if safe >= ends[1] else "is above the checkpoint's") in told[0]
        index.release()


def test_a_restored_record_at_the_end_is_believed_after_a_clean_end_alone(world: World) -> None:
    index = world.filled(IN_A_FILE - 1)
    index.put_restored_keys("T", ["back"], 150, START)
    index.release()
    clean = world.index()
    assert clean.load(newest_safe_timestamp=None) == []
    clean.release()
    (told,) = world.index().load(newest_safe_timestamp=1 << 62)
    assert "its header does not fit its first and last entries" in told


# --- what is found ---


def test_newest_files_are_asked_first_and_no_more_is_found_than_wanted(world: World) -> None:
    index = world.index()
    for number in range(2 * IN_A_FILE):
        index.put_keys("T", ["same"], 100 * number, START + 1000 * number)
    assert len(index.files) == 2
    every = [100 * number for number in range(2 * IN_A_FILE - 1, -1, -1)]
    end = (START + 1000 * (2 * IN_A_FILE - 1), every[0])
    assert index.query("T#same", 99, *FOREVER) == (every, *end)
    assert index.query("T#same", 3, *FOREVER) == (every[:3], *end)
    assert index.query("T#same", 1, *FOREVER) == (every[:1], *end)
    assert index.query("T#same", 99, START, START + 5000) == (every[-6:], *end)
    assert index.query("T#other", 99, *FOREVER) == ([], *end)


def test_restored_keys_are_found_and_leave_the_end_where_it_is(world: World) -> None:
    index = world.filled(5)
    index.put_restored_keys("T", ["a", "b"], 150, START - 9000)
    assert index.query("T#a", 9, START, START + 9)[0] == [150], "they have the newest time: chains are read up to it"
    assert index.query("T#b", 9, START, START + 9)[0] == [150]
    assert index.query("T#k0", 9, START, START)[0] == [0]
    assert index.tail.end_physical_offset == index.files[-1].end_physical_offset == 400
    index.put_restored_keys("T", ["c"], 900, START + 50)
    assert index.tail.end_physical_offset == index.files[-1].end_physical_offset == 900
    assert index.tail.end_timestamp == START + 50


def test_newest_entries_of_a_record_are_counted_over_files(world: World) -> None:
    index = world.filled(IN_A_FILE - 2)
    index.put_keys("T", [f"w{number}" for number in range(5)], 7000, START + 60)
    assert len(index.files) == 2
    assert index.trailing_entries(7000) == 5
    assert index.trailing_entries(0) == 0
    many = World(world.root / "many").index()
    many.put_keys("T", [f"w{number}" for number in range(2 * IN_A_FILE)], 7000, START)
    assert many.trailing_entries(7000) == 2 * IN_A_FILE


def test_records_of_all_files_are_listed(world: World) -> None:
    index = world.filled(2 * IN_A_FILE)
    low, high = 100 * (IN_A_FILE - 1), 100 * (IN_A_FILE + 1)
    assert index.records_within(low, high) == {low, low + 100}


def test_a_flush_makes_the_newest_file_durable(world: World) -> None:
    index = world.index()
    index.flush_last()
    index = world.filled(IN_A_FILE + 3)
    index.flush_last()
    assert [file.flushed_count for file in index.files] == [0, 4]


def test_a_file_for_which_there_is_no_room_is_not_left_behind(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    index = world.filled(IN_A_FILE)

    def refuse(region: object, start: int, end: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as full_disk:
        full_disk.setattr(type(index.files[0].region), "allocate", refuse)
        with pytest.raises(OSError, match="No space left"):
            index.put_keys("T", ["more"], 9000, START + 90)
    assert (len(index.files), world.full) == (1, [])
    assert len(list((world.root / "index").iterdir())) == 1
    index.put_keys("T", ["more"], 9000, START + 90)
    assert index.query("T#more", 9, *FOREVER) == ([9000], START + 90, 9000)
    assert isinstance(index.files[1], IndexFile)


def test_no_entry_is_written_where_the_disk_has_given_no_blocks(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    most, given = 5000, [0]
    monkeypatch.setattr(index_service, "_BLOCKS_STEP", 64 << 10)
    config = small_config(world.root, max_hash_slot_num=SLOTS, max_index_num=most)
    index = IndexService(StoreContext(config, SystemDisk(), world.clock, IDENTITY), lambda file: None, 0)
    real = SystemMappedRegion.allocate
    asked: list[tuple[int, int]] = []

    def allocate(region: SystemMappedRegion, start: int, end: int) -> None:
        asked.append((start, end))
        given[0] = max(given[0], end)
        real(region, start, end)

    monkeypatch.setattr(SystemMappedRegion, "allocate", allocate)
    for number in range(most - 1):
        index.put_keys("T", ["k"], number, START)
        assert 40 + 4 * SLOTS + 20 * index.tail.index_count <= given[0]
    assert asked[0] == (0, 40 + 4 * SLOTS), "the table of slots, which are written anywhere"
    assert len(asked) >= 3, "and entries in steps"
    assert len(index.files) == 1 and index.files[0].is_full


async def test_blocks_that_were_allocated_in_the_background_are_written_to(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_service, "_BLOCKS_STEP", 64 << 10)
    config = small_config(world.root, max_hash_slot_num=SLOTS, max_index_num=50_000)
    index = IndexService(StoreContext(config, SystemDisk(), world.clock, IDENTITY), lambda file: None, 0)
    index.roll()

    def fill() -> int:
        while index.tail.put_key(1, index.tail.index_count, START):
            pass
        return index.tail.index_count

    first = fill()
    index.prepare_ahead()
    async with asyncio.timeout(10):
        while not index.tail.put_key(1, first, START):  # noqa: ASYNC110 - a thread allocates
            await asyncio.sleep(0)
    assert fill() > first + 1000
    index.release()


@pytest.mark.parametrize("how", ["destroy", "load"])
def test_no_file_is_left_whose_predecessors_are_gone_when_the_disk_refuses_a_deletion(
    world: World, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = world.filled(4 * IN_A_FILE)
    before = names(index)
    assert len(before) > 3
    if how == "load":
        index.release()
        index = world.index()
    delete, calls = IndexFile.destroy, 0

    def refuse_the_second(file: IndexFile) -> None:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise OSError("read-only file system")
        delete(file)

    monkeypatch.setattr(IndexFile, "destroy", refuse_the_second)
    with pytest.raises(OSError, match="read-only"):
        if how == "destroy":
            index.destroy()
        else:
            index.load(newest_safe_timestamp=0)
    monkeypatch.undo()
    left = world.index()
    left.load(newest_safe_timestamp=None)
    assert names(left) == before[: len(names(left))]
    left.release()
