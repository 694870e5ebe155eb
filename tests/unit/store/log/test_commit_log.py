"""The log's files: which one is written, what can be read where, what is durable."""

import errno
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from maxq.errors import StoreRefusedError
from maxq.runtime.files.system import SystemDisk, SystemMappedRegion
from maxq.runtime.interfaces import SyncFailedError
from maxq.store.context.store_context import StoreContext
from maxq.store.files.file_allocator import FileAllocator
from maxq.store.log import commit_log, write_buffer
from maxq.store.log.commit_log import CommitLog
from tests.unit.store.stores import IDENTITY, TestClock, small_config

SIZE = 65_536
BLANK_MAGIC = 0xCBD43194
BORN = bytes(8)
FIXED = 91  # bytes of a record around topic, body and properties


def new_context(root: Path, **settings: int) -> StoreContext:
    return StoreContext(small_config(root, **settings), SystemDisk(), TestClock(), IDENTITY)


def new_log(root: Path) -> CommitLog:
    context = new_context(root)
    return CommitLog(context, FileAllocator(context))


@pytest.fixture
def log(tmp_path: Path) -> Iterator[CommitLog]:
    log = new_log(tmp_path)
    log.load()
    log.open_at(0)
    yield log
    log.release_tail()


def put(log: CommitLog, body: bytes = b"hello", store_time: int = 2000) -> tuple[int, int]:
    """Append a record of topic T; returns its physical offset and size."""
    total = FIXED + 1 + len(body)
    while True:
        offset = log.max_offset
        size = log.tail.append_record(
            b"T", 1, 0, 5, 0, 1000, BORN, store_time, BORN, 0, 0, memoryview(body), b"", 0, False
        )
        if size >= 0:
            return offset, size
        log.make_room(total)


def fill(log: CommitLog, count: int, size: int = 1000) -> list[tuple[int, int]]:
    return [put(log, bytes([number % 251]) * size) for number in range(count)]


def files(root: Path) -> list[int]:
    return sorted(int(path.name) for path in (root / "commitlog").iterdir())


def test_an_empty_log_has_no_files_and_nothing_in_it(log: CommitLog, tmp_path: Path) -> None:
    assert (log.min_offset, log.max_offset, log.flushed_offset, log.current) == (0, 0, 0, None)
    assert log.bytes_from(0, 100) is None
    assert log.get(0, 1) is None
    assert log.record(0) is None
    assert log.flush_ranges() == (0, [])
    assert log.store_timestamp(0) == -1


@pytest.mark.parametrize("is_buffered", [False, True])
def test_records_are_read_where_they_were_written_over_all_files(
    log: CommitLog, tmp_path: Path, is_buffered: bool
) -> None:
    log.buffer_appends(is_buffered)
    written = fill(log, 150)
    assert files(tmp_path)[:3] == [0, SIZE, 2 * SIZE]
    for number, (offset, size) in enumerate(written):
        assert log.record_size(offset) == size
        record = log.record(offset)
        assert record is not None
        assert bytes(record).count(bytes([number % 251]) * 1000) == 1
        assert struct.unpack_from(">q", record, 28) == (offset,)
    assert log.record(written[0][0] + 1) is None
    last, size = written[-1]
    assert log.max_offset == last + size


def test_a_file_ends_with_a_blank_record_over_its_rest(log: CommitLog) -> None:
    written = fill(log, 100)
    last, size = max((offset, size) for offset, size in written if offset < SIZE)
    end = last + size
    head = log.get(end, 8)
    assert head is not None
    assert struct.unpack(">iI", head) == (SIZE - end, BLANK_MAGIC)
    assert log.record_size(end) == 0
    assert (SIZE, size) in written


def test_bytes_are_of_one_file_and_end_with_the_log(log: CommitLog) -> None:
    fill(log, 100)
    end = log.max_offset
    whole = log.bytes_from(0, 1 << 30)
    assert whole is not None
    assert len(whole) == SIZE
    piece = log.bytes_from(SIZE, 1 << 30)
    assert piece is not None
    assert len(piece) == end - SIZE
    piece = log.bytes_from(10, 20)
    assert piece is not None
    assert bytes(piece) == bytes(whole[10:30])
    piece = log.bytes_from(end - 1, 100)
    assert piece is not None
    assert len(piece) == 1
    assert log.bytes_from(end, 1) is None


def test_a_slice_lies_in_one_file_and_below_the_end(log: CommitLog) -> None:
    fill(log, 100)
    end = log.max_offset
    assert log.get(end - 4, 4) is not None
    assert log.get(end - 4, 5) is None
    assert log.get(SIZE - 4, 4) is not None
    assert log.get(SIZE - 4, 5) is None
    assert log.get(-1, 1) is None
    assert log.get(-1, 2) is None
    assert log.get(0, 0) is None
    assert log.get(0, -1) is None
    assert log.get(3 * SIZE, 1) is None


def test_a_records_store_time_is_found_and_nothing_elses(log: CommitLog) -> None:
    (first, size), (second, _) = put(log, store_time=4711), put(log, store_time=4712)
    assert (log.store_timestamp(first), log.store_timestamp(second)) == (4711, 4712)
    assert log.store_timestamp(first, size) == 4711
    assert log.store_timestamp(first + 1) == -1
    assert log.store_timestamp(log.max_offset) == -1


def test_a_size_that_no_record_has_is_none(log: CommitLog) -> None:
    offset, size = put(log)
    view = log.tail_view
    for wrong in (0, -1, 20):
        struct.pack_into(">i", view, offset, wrong)
        assert log.record_size(offset) == 0
    struct.pack_into(">i", view, offset, size)
    assert log.record_size(offset) == size


def test_a_start_goes_on_where_recovery_says(log: CommitLog, tmp_path: Path) -> None:
    written = fill(log, 150)
    log.release_tail()
    again = new_log(tmp_path)
    again.load()
    end = next(offset for offset, _ in written if offset > SIZE + 3000)
    again.open_at(end)
    assert files(tmp_path) == [0, SIZE]
    assert (again.max_offset, again.flushed_offset) == (end, end)
    assert again.flush_ranges() == (end, [])
    assert again.current is not None
    assert again.current.file_from_offset == SIZE
    offset, size = put(again, b"new")
    assert offset == end
    assert again.flush_ranges() == (end + size, [(again.current, end - SIZE, end - SIZE + size)])
    again.release_tail()


@pytest.mark.parametrize("end", [SIZE, 2 * SIZE])
def test_a_start_at_the_end_of_a_file_goes_on_in_a_new_one(log: CommitLog, tmp_path: Path, end: int) -> None:
    fill(log, 150)
    log.release_tail()
    again = new_log(tmp_path)
    again.load()
    again.open_at(end)
    assert again.max_offset == end
    assert put(again)[0] == end
    assert files(tmp_path)[: end // SIZE + 1] == [SIZE * number for number in range(end // SIZE + 1)]
    again.release_tail()


def test_files_made_ahead_behind_a_gap_are_deleted(tmp_path: Path) -> None:
    folder = tmp_path / "commitlog"
    folder.mkdir()
    (folder / f"{0:020d}").write_bytes(b"\1".ljust(SIZE, b"\0"))
    for offset in (2 * SIZE, 3 * SIZE):
        (folder / f"{offset:020d}").write_bytes(bytes(SIZE))
    (folder / f"{5 * SIZE:020d}").write_bytes(b"")
    (folder / "other").write_bytes(b"kept")
    log = new_log(tmp_path)
    with pytest.raises(StoreRefusedError):  # 2 and 3 follow each other: nobody knows which of them were written
        log.load()
    for path in folder.glob(f"*{3 * SIZE}"):
        path.unlink()
    log = new_log(tmp_path)
    log.load()
    assert [file.file_from_offset for file in log.files.files] == [0]
    assert sorted(path.name for path in folder.iterdir()) == [f"{0:020d}", "other"]


def test_a_file_made_ahead_behind_one_of_which_a_loss_of_power_took_the_length_keeps_no_start(tmp_path: Path) -> None:
    folder = tmp_path / "commitlog"
    folder.mkdir()
    (folder / f"{0:020d}").write_bytes(b"\1".ljust(SIZE, b"\0"))
    (folder / f"{SIZE:020d}").write_bytes(b"")
    (folder / f"{2 * SIZE:020d}").write_bytes(bytes(SIZE))
    log = new_log(tmp_path)
    log.load()
    assert [file.file_from_offset for file in log.files.files] == [0]
    assert files(tmp_path) == [0]


@pytest.mark.parametrize("position", [0, 90])
def test_a_written_file_behind_one_without_bytes_is_never_deleted(tmp_path: Path, position: int) -> None:
    folder = tmp_path / "commitlog"
    folder.mkdir()
    data = bytearray(SIZE)
    data[position] = 1
    (folder / f"{0:020d}").write_bytes(b"")
    (folder / f"{SIZE:020d}").write_bytes(data)
    log = new_log(tmp_path)
    with pytest.raises(StoreRefusedError, match="has 0 bytes"):
        log.load()
    assert files(tmp_path) == [0, SIZE]


@pytest.mark.parametrize("position", [0, 90])
def test_a_written_file_behind_a_gap_is_never_deleted(tmp_path: Path, position: int) -> None:
    folder = tmp_path / "commitlog"
    folder.mkdir()
    data = bytearray(SIZE)
    data[position] = 1
    (folder / f"{0:020d}").write_bytes(b"\1".ljust(SIZE, b"\0"))
    (folder / f"{2 * SIZE:020d}").write_bytes(data)
    log = new_log(tmp_path)
    with pytest.raises(StoreRefusedError, match=f"{SIZE:020d}"):
        log.load()
    assert files(tmp_path) == [0, 2 * SIZE]


def test_a_file_of_another_size_is_refused_with_the_name_of_the_setting(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "commitlog" / f"{0:020d}").write_bytes(bytes(SIZE + 1))
    with pytest.raises(StoreRefusedError, match="mappedFileSizeCommitLog"):
        new_log(tmp_path).load()


@pytest.mark.parametrize("size", [SIZE // 2, 2 * SIZE])
def test_no_file_is_deleted_because_the_setting_says_another_size(tmp_path: Path, size: int) -> None:
    folder = tmp_path / "commitlog"
    folder.mkdir()
    for number in range(4):
        (folder / f"{number * size:020d}").write_bytes(b"\1".ljust(size, b"\0"))
    with pytest.raises(StoreRefusedError, match=f"has {size} bytes, but mappedFileSizeCommitLog is {SIZE}"):
        new_log(tmp_path).load()
    assert files(tmp_path) == [number * size for number in range(4)]


def test_a_single_file_is_kept_wherever_it_begins(tmp_path: Path) -> None:
    folder = tmp_path / "commitlog"
    folder.mkdir()
    (folder / f"{7 * SIZE:020d}").write_bytes(bytes(SIZE))
    log = new_log(tmp_path)
    log.load()
    assert log.min_offset == 7 * SIZE
    assert log.next_file_offset(7 * SIZE) == log.next_file_offset(8 * SIZE - 1) == 8 * SIZE


def test_pieces_of_a_range_are_by_file(log: CommitLog) -> None:
    fill(log, 150)
    first, second = log.files.files[:2]
    assert list(log.ranges(100, SIZE)) == [(first, 100, SIZE)]
    assert list(log.ranges(100, SIZE + 50)) == [(first, 100, SIZE), (second, 0, 50)]
    assert list(log.ranges(100, 100)) == []
    assert list(log.ranges(100 * SIZE, 100 * SIZE + 1)) == []


def test_what_is_flushed_next_begins_where_the_last_flush_ended(log: CommitLog) -> None:
    fill(log, 100)
    end = log.max_offset
    first, second = log.files.files[:2]
    assert log.flush_ranges() == (end, [(first, 0, SIZE), (second, 0, end - SIZE)])
    assert (first.wrote_position, second.wrote_position) == (SIZE, end - SIZE)
    log.flushed_offset = SIZE + 10
    assert log.flush_ranges() == (end, [(second, 10, end - SIZE)])


def test_a_masters_bytes_become_part_of_the_log_when_they_are_accepted(log: CommitLog) -> None:
    log.make_room(100)
    log.put(0, memoryview(b"x" * 60))
    assert log.max_offset == 0
    log.accept(60)
    assert log.max_offset == 60
    log.put(60, memoryview(b"y" * 10))
    log.accept(10)
    assert log.max_offset == 70
    piece = log.get(0, 70)
    assert piece is not None
    assert bytes(piece) == b"x" * 60 + b"y" * 10


def test_a_damaged_queue_offset_is_mended_durably(log: CommitLog, monkeypatch: pytest.MonkeyPatch) -> None:
    written = fill(log, 100)
    offset, _ = next(one for one in written if one[0] > SIZE)
    flushed: list[tuple[int, int]] = []
    monkeypatch.setattr(SystemMappedRegion, "flush", lambda region, start, end: flushed.append((start, end)))
    log.mend_queue_offset(offset, 123_456)
    record = log.record(offset)
    assert record is not None
    assert struct.unpack_from(">q", record, 20) == (123_456,)
    ((start, end),) = flushed
    assert start <= offset - SIZE + 20 < offset - SIZE + 28 <= end


def test_a_queue_offset_whose_correction_cannot_be_synced_stays_as_it_was(
    log: CommitLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    offset, _ = fill(log, 10)[3]
    before = bytes(log.record(offset) or b"")

    def refuse(region: SystemMappedRegion, start: int, end: int) -> None:
        raise SyncFailedError(errno.EIO, "the device refuses")

    monkeypatch.setattr(SystemMappedRegion, "flush", refuse)
    with pytest.raises(SyncFailedError):
        log.mend_queue_offset(offset, 123_456)
    assert bytes(log.record(offset) or b"") == before


def test_a_sync_that_fails_is_told_to_who_relies_on_it(log: CommitLog, monkeypatch: pytest.MonkeyPatch) -> None:
    put(log)
    told: list[SyncFailedError] = []
    log.on_sync_failed = told.append
    failed = SyncFailedError(errno.EIO, "the device refuses")

    def refuse(region: SystemMappedRegion, start: int, end: int) -> None:
        raise failed

    monkeypatch.setattr(SystemMappedRegion, "flush", refuse)
    with pytest.raises(SyncFailedError):
        log.sync(log.files.files[0], 0, 10)
    assert told == [failed]


def test_a_full_disk_leaves_the_log_as_it_was(log: CommitLog, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(log, 60)
    end = log.max_offset

    def refuse(region: SystemMappedRegion, start: int, stop: int) -> None:
        raise OSError(errno.ENOSPC, "full")

    with monkeypatch.context() as full:
        full.setattr(SystemMappedRegion, "allocate", refuse)
        with pytest.raises(OSError, match="full"):
            fill(log, 60)
        with pytest.raises(OSError, match="full"):
            log.find_room(100)
        assert [file.file_from_offset for file in log.files.files] == [0]
        reached = log.max_offset
    assert end <= reached < SIZE
    assert put(log, b"x" * 4000)[0] in (reached, SIZE)
    assert fill(log, 60)


def test_what_is_in_memory_is_given_from_there(log: CommitLog) -> None:
    offset, _ = put(log)
    assert log.newest_from(offset) is log.tail_view
    fill(log, 100)
    assert log.newest_from(offset) is None
    assert log.newest_from(SIZE) is log.tail_view


def test_buffered_records_reach_the_file_when_they_are_flushed_or_read(log: CommitLog, tmp_path: Path) -> None:
    log.buffer_appends(True)
    _, size = put(log, b"first")
    path = tmp_path / "commitlog" / f"{0:020d}"
    assert not any(path.read_bytes()[:size])
    assert log.flush_ranges()[0] == size
    assert path.read_bytes()[:4] == size.to_bytes(4, "big")
    second, size = put(log, b"second")
    assert not any(path.read_bytes()[second : second + size])
    assert log.bytes_from(second, 10) is not None
    assert b"second" in path.read_bytes()[second : second + size]
    third, size = put(log, b"third")
    log.buffer_appends(False)
    assert b"third" in path.read_bytes()[third : third + size]
    fourth, size = put(log, b"fourth")
    assert b"fourth" in path.read_bytes()[fourth : fourth + size]


def test_who_reads_what_is_in_the_file_makes_nobody_write(log: CommitLog, tmp_path: Path) -> None:
    log.buffer_appends(True)
    first, size = put(log, b"first")
    log.flush_ranges()
    second, _ = put(log, b"second")
    assert log.get(first, size) is not None
    assert log.bytes_from(first, size) is not None
    assert b"second" not in (tmp_path / "commitlog" / f"{0:020d}").read_bytes()
    assert log.newest_from(second) is log.tail_view


def test_of_buffered_records_those_that_are_still_in_memory_are_given_from_there(
    log: CommitLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write_buffer, "RING_SIZE", 8192)
    log.buffer_appends(True)
    written = fill(log, 30)
    end = log.max_offset
    for offset, _ in written:
        assert (log.newest_from(offset) is not None) is (offset >= end - 8192)
    assert log.newest_from(end - 8193) is None


@pytest.mark.parametrize("says_how_much", [False, True])
def test_a_record_larger_than_the_memory_in_front_of_the_log_is_written(
    log: CommitLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says_how_much: bool
) -> None:
    monkeypatch.setattr(write_buffer, "RING_SIZE", 8192)
    log.buffer_appends(True)
    fill(log, 3)
    body = memoryview(b"z" * 30_000)
    for _ in range(6):
        size = log.tail.append_record(b"T", 1, 0, 5, 0, 1000, BORN, 2000, BORN, 0, 0, body, b"", 0, False)
        if size >= 0:
            break
        log.make_room(30_000 + FIXED + 1 if says_how_much else 0)
    assert size == 30_000 + FIXED + 1
    assert fill(log, 60)[-1][0] > SIZE
    for offset in (0, 3 * (1000 + FIXED + 1)):
        assert log.record(offset) is not None
    assert b"z" * 30_000 in (tmp_path / "commitlog" / f"{0:020d}").read_bytes()


async def test_the_next_two_files_are_made_ahead(tmp_path: Path) -> None:
    context = new_context(tmp_path)
    log = CommitLog(context, FileAllocator(context))
    log.open_at(0)
    log.create_ahead()
    assert not (tmp_path / "commitlog").exists(), "a log that nobody has written needs none"
    put(log)
    log.create_ahead()
    await context.jobs.close()
    assert files(tmp_path) == [0, SIZE, 2 * SIZE]
    log.release_tail()


async def test_whoever_begins_a_file_has_the_next_two_made(tmp_path: Path) -> None:
    context = new_context(tmp_path)
    log = CommitLog(context, FileAllocator(context))
    log.open_at(5 * SIZE)
    put(log)
    await context.jobs.close()
    assert files(tmp_path) == [5 * SIZE, 6 * SIZE, 7 * SIZE]
    log.release_tail()


async def test_blocks_are_allocated_ahead_of_the_writer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit_log, "_BLOCKS_STEP", 128 << 10)
    context = new_context(tmp_path, mapped_file_size_commit_log=1 << 20)
    log = CommitLog(context, FileAllocator(context))
    log.open_at(0)
    put(log)
    log.prepare_ahead()
    assert log.tail.file_size == 128 << 10, "half a step is left"
    fill(log, 90)
    log.prepare_ahead()
    await context.jobs.close()
    assert log.tail.file_size == 256 << 10
    log.release_tail()
    log.prepare_ahead()


def test_a_buffered_log_that_ends_with_its_file_has_nothing_in_memory(log: CommitLog, tmp_path: Path) -> None:
    fill(log, 100)
    log.release_tail()
    again = new_log(tmp_path)
    again.buffer_appends(True)
    again.load()
    again.open_at(SIZE)
    assert again.newest_from(SIZE - 10) is None


def test_shutdown_leaves_nothing_in_memory(log: CommitLog, tmp_path: Path) -> None:
    log.buffer_appends(True)
    _, size = put(log, b"last words")
    log.release_tail()
    assert b"last words" in (tmp_path / "commitlog" / f"{0:020d}").read_bytes()[:size]
    assert (log.max_offset, log.current) == (size, None)


def test_the_first_file_is_deleted_or_it_stays_the_first(log: CommitLog) -> None:
    fill(log, 150)
    assert log.get(0, 4) is not None
    with pytest.raises(OSError, match="busy"), log.without_first():
        raise OSError("busy")
    assert log.min_offset == 0
    with log.without_first() as first:
        first.destroy()
    assert log.min_offset == SIZE
    assert log.get(0, 4) is None


def test_offsets_of_records_are_their_own_in_a_log_without_entries(log: CommitLog) -> None:
    assert (log.record_offset(77), log.entry_offset(77)) == (77, 77)
