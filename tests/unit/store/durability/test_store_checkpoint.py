"""The checkpoint: what a start believes of it, and what it never does."""

import struct
import zlib
from pathlib import Path

import pytest

from maxq.runtime.files.system import SystemDisk
from maxq.store.context.store_context import StoreContext
from maxq.store.durability.store_checkpoint import StoreCheckpoint
from tests.unit.store.stores import IDENTITY, TestClock, small_config

NUMBERS = (
    "physic_msg_timestamp",
    "logics_msg_timestamp",
    "index_msg_timestamp",
    "master_flushed_offset",
    "confirm_physical_offset",
    "logics_physical_offset",
    "flushed_offset",
)
VALUES = (10_000, 20_000, 30_000, 400, 500, 600, 700)


def new_checkpoint(root: Path) -> StoreCheckpoint:
    return StoreCheckpoint(StoreContext(small_config(root), SystemDisk(), TestClock(), IDENTITY))


def loaded(root: Path) -> tuple[StoreCheckpoint, str | None]:
    checkpoint = new_checkpoint(root)
    return checkpoint, checkpoint.load()


def numbers(checkpoint: StoreCheckpoint) -> tuple[int, ...]:
    return tuple(getattr(checkpoint, name) for name in NUMBERS)


def written(root: Path) -> Path:
    """A checkpoint with `VALUES` in its file."""
    checkpoint, fault = loaded(root)
    assert fault is None
    for name, value in zip(NUMBERS, VALUES, strict=True):
        setattr(checkpoint, name, value)
    checkpoint.flush()
    checkpoint.release()
    return root / "checkpoint"


def test_a_store_without_a_checkpoint_begins_with_nothing_durable(tmp_path: Path) -> None:
    checkpoint, fault = loaded(tmp_path)
    assert (numbers(checkpoint), fault) == ((0,) * 7, None)
    assert (tmp_path / "checkpoint").stat().st_size == 4096


def test_the_file_is_as_its_description_says(tmp_path: Path) -> None:
    page = written(tmp_path).read_bytes()
    assert len(page) == 4096
    assert struct.unpack_from(">6q", page) == VALUES[:6]
    assert struct.unpack_from(">I", page, 48) == (zlib.crc32(page[:48]),)
    assert struct.unpack_from(">q", page, 52) == (VALUES[6],)
    assert struct.unpack_from(">I", page, 60) == (zlib.crc32(page[:60]),)
    assert not any(page[64:])


def test_the_next_start_reads_what_the_last_one_wrote(tmp_path: Path) -> None:
    written(tmp_path)
    checkpoint, fault = loaded(tmp_path)
    assert (numbers(checkpoint), fault) == (VALUES, None)


def test_a_java_brokers_file_counts_but_for_what_only_we_write(tmp_path: Path) -> None:
    (tmp_path / "checkpoint").write_bytes(struct.pack(">6q", *VALUES[:6]).ljust(4096, b"\0"))
    checkpoint, fault = loaded(tmp_path)
    assert (numbers(checkpoint), fault) == ((*VALUES[:6], 0), None)


@pytest.mark.parametrize("position", [0, 8, 16, 24, 32, 40, 48])
def test_a_changed_bit_makes_all_numbers_nothing_and_is_told(tmp_path: Path, position: int) -> None:
    path = written(tmp_path)
    page = bytearray(path.read_bytes())
    page[position + 3] ^= 1
    path.write_bytes(page)
    checkpoint, fault = loaded(tmp_path)
    assert numbers(checkpoint) == (0,) * 7
    assert fault is not None and "CRC does not match" in fault and str(path) in fault
    checkpoint.release()
    again, fault = loaded(tmp_path)
    assert (numbers(again), fault) == ((0,) * 7, None), "what was started anew is a good file"


@pytest.mark.parametrize("position", [52, 59, 60, 63])
def test_a_changed_bit_in_the_flushed_offset_takes_only_that(tmp_path: Path, position: int) -> None:
    path = written(tmp_path)
    page = bytearray(path.read_bytes())
    page[position] ^= 1
    path.write_bytes(page)
    checkpoint, fault = loaded(tmp_path)
    assert (numbers(checkpoint), fault) == ((*VALUES[:6], 0), None)


@pytest.mark.parametrize("at", range(6))
def test_a_negative_number_makes_all_numbers_nothing(tmp_path: Path, at: int) -> None:
    values = list(VALUES[:6])
    values[at] = -1
    (tmp_path / "checkpoint").write_bytes(struct.pack(">6q", *values).ljust(4096, b"\0"))
    checkpoint, fault = loaded(tmp_path)
    assert numbers(checkpoint) == (0,) * 7
    assert fault is not None and "negative numbers" in fault


def test_a_negative_flushed_offset_is_nothing(tmp_path: Path) -> None:
    head = struct.pack(">6q", *VALUES[:6])
    head += struct.pack(">Iq", zlib.crc32(head), -5)
    (tmp_path / "checkpoint").write_bytes((head + struct.pack(">I", zlib.crc32(head))).ljust(4096, b"\0"))
    checkpoint, fault = loaded(tmp_path)
    assert (checkpoint.flushed_offset, fault) == (0, None)


def test_a_file_of_another_length_is_begun_anew(tmp_path: Path) -> None:
    (tmp_path / "checkpoint").write_bytes(struct.pack(">6q", *VALUES[:6]))
    checkpoint, fault = loaded(tmp_path)
    assert numbers(checkpoint) == (0,) * 7
    assert fault is not None and "a new one is begun" in fault
    assert (tmp_path / "checkpoint").stat().st_size == 4096


@pytest.mark.parametrize(("newest", "expected"), [(15_000, (10_000, 15_000, 15_000)), (5_000, (5_000,) * 3)])
def test_no_time_is_later_than_the_logs_newest_record(
    tmp_path: Path, newest: int, expected: tuple[int, int, int]
) -> None:
    written(tmp_path)
    checkpoint, _ = loaded(tmp_path)
    checkpoint.not_later_than(newest)
    assert numbers(checkpoint) == (*expected, *VALUES[3:])
    checkpoint.release()
    assert numbers(loaded(tmp_path)[0]) == (*expected, *VALUES[3:])


@pytest.mark.parametrize(("end", "expected"), [(550, (400, 500, 550, 550)), (0, (0,) * 4), (1000, VALUES[3:])])
def test_no_offset_lies_behind_the_log(tmp_path: Path, end: int, expected: tuple[int, ...]) -> None:
    written(tmp_path)
    checkpoint, _ = loaded(tmp_path)
    checkpoint.not_beyond(end)
    assert numbers(checkpoint) == (*VALUES[:3], *expected)
    checkpoint.release()
    assert numbers(loaded(tmp_path)[0]) == (*VALUES[:3], *expected)


def test_what_is_surely_durable_is_three_seconds_older_than_log_and_queues(tmp_path: Path) -> None:
    checkpoint, _ = loaded(tmp_path)
    assert (checkpoint.min_timestamp, checkpoint.min_timestamp_index) == (0, 0)
    checkpoint.physic_msg_timestamp, checkpoint.logics_msg_timestamp = 10_000, 20_000
    assert checkpoint.min_timestamp == 7_000
    checkpoint.logics_msg_timestamp = 9_000
    assert checkpoint.min_timestamp == 6_000
    checkpoint.index_msg_timestamp = 5_000
    assert checkpoint.min_timestamp_index == 5_000
    checkpoint.index_msg_timestamp = 6_500
    assert checkpoint.min_timestamp_index == 6_000
    checkpoint.logics_msg_timestamp = 2_999
    assert checkpoint.min_timestamp == 0


def test_write_alone_makes_nothing_durable_and_sync_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint, _ = loaded(tmp_path)
    flushed: list[tuple[int, int]] = []
    region = checkpoint.write()
    monkeypatch.setattr(type(region), "flush", lambda region, start, end: flushed.append((start, end)))
    checkpoint.write()
    assert flushed == []
    checkpoint.sync()
    assert flushed == [(0, 4096)]


def test_a_checkpoint_may_be_given_up_before_and_after(tmp_path: Path) -> None:
    checkpoint = new_checkpoint(tmp_path)
    checkpoint.release()
    checkpoint.load()
    checkpoint.release()
    checkpoint.release()
