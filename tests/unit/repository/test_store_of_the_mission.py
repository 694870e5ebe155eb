"""Claims of docs/explanation/mechanisms.md about the store that stand between its parts: checkpoint, order of loading,
cleaning."""

import os
import shutil
import struct
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path, PurePath
from typing import Any

import pytest

from maxq.runtime.files.system import SystemDisk
from maxq.runtime.interfaces import DiskUsage, FileInfo, MappedRegion
from maxq.store.message_store import MessageStore
from maxq.store.store_results import PutMessageStatus
from tests.unit.store.stores import IDENTITY, TestClock, message, opened, small_config


def checkpoint_times(root: Path) -> tuple[int, ...]:
    """physicMsgTimestamp, logicsMsgTimestamp, indexMsgTimestamp as they are on disk."""
    page = (root / "checkpoint").read_bytes()
    assert len(page) == 4096
    return struct.unpack_from(">qqq", page)


def put(store: MessageStore, clock: TestClock, count: int, **properties: str) -> int:
    """Store messages a millisecond apart; returns the store time of the last."""
    for number in range(count):
        clock.now_ms += 1
        assert store.put_message(message(body=b"%d" % number, UNIQ_KEY=f"U{clock.now_ms}", **properties)).ok
    return clock.now_ms


def test_after_a_clean_exit_the_checkpoint_has_the_time_of_the_last_message(tmp_path: Path) -> None:
    clock = TestClock()
    store = opened(small_config(tmp_path), clock)
    last = put(store, clock, 10)
    store.close()
    assert checkpoint_times(tmp_path) == (last, last, 0)  # no index file became full


def test_each_time_of_the_checkpoint_follows_the_flush_it_stands_for(tmp_path: Path) -> None:
    clock = TestClock()
    store = opened(small_config(tmp_path, flush_disk_type="SYNC_FLUSH"), clock)
    first = put(store, clock, 1)  # without a loop the group commit is done at once
    assert (store.checkpoint.physic_msg_timestamp, store.checkpoint.logics_msg_timestamp) == (first, 0)
    assert checkpoint_times(tmp_path) == (0, 0, 0)
    store.queue_flusher.flush_inline()
    assert checkpoint_times(tmp_path) == (first, first, 0)
    last = put(store, clock, 250)  # an index file holds 199 entries here
    physic, logics, index = checkpoint_times(tmp_path)
    assert first < index < last
    assert logics == first
    assert physic <= last
    store.close()


class TracingDisk(SystemDisk):
    """Notes what is looked at, by the first name below the store."""

    def __init__(self, root: Path) -> None:
        super().__init__()
        self.root = root
        self.seen: list[str] = []

    def _see(self, path: PurePath) -> None:
        name = Path(path).relative_to(self.root).parts[:1]
        self.seen += name

    def exists(self, path: PurePath) -> bool:
        self._see(path)
        return super().exists(path)

    def list(self, path: PurePath) -> Sequence[FileInfo]:
        self._see(path)
        return super().list(path)

    def map(self, path: PurePath, size: int, *, read_only: bool = False) -> MappedRegion:
        self._see(path)
        return super().map(path, size, read_only=read_only)


def test_parts_are_loaded_in_the_order_that_recovery_needs(tmp_path: Path) -> None:
    clock = TestClock()
    store = opened(small_config(tmp_path), clock)
    put(store, clock, 10)
    store.close()
    disk = TracingDisk(tmp_path)
    again = MessageStore(small_config(tmp_path), disk=disk, clock=clock, broker=IDENTITY)
    again.load()
    again.close()
    position = 0
    for part in ("abort", "commitlog", "consumequeue", "checkpoint", "index"):
        position = disk.seen.index(part, position)
    firsts = [disk.seen.index(part) for part in ("abort", "commitlog", "checkpoint", "index")]
    assert firsts == sorted(firsts)


def test_index_files_younger_than_the_checkpoint_are_built_anew_after_an_unclean_exit(tmp_path: Path) -> None:
    clock = TestClock()
    store = opened(small_config(tmp_path), clock)
    put(store, clock, 450, KEYS="k")  # four index files and more
    copy = tmp_path.parent / f"{tmp_path.name}-killed"
    shutil.copytree(tmp_path, copy)
    page = bytearray((copy / "checkpoint").read_bytes())
    struct.pack_into(">qqq", page, 0, clock.now_ms, clock.now_ms, 1)
    page[48:52] = bytes(4)  # as a Java broker leaves it
    (copy / "checkpoint").write_bytes(page)
    killed = opened(small_config(copy), clock)
    assert [fault for fault in killed.report.faults if "after an unclean exit its end time" in fault]
    assert len(killed.query_message("T", "k", 1000, 0, 2**62).buffers) == 64  # maxMsgsNumBatch
    first = killed.query_message("T", f"U{clock.now_ms - 449}", 10, 0, 2**62)
    assert len(first.buffers) == 1
    killed.close()
    store.close()


# --- cleaning (S-16) ---


class FilledDisk(SystemDisk):
    """A disk that says how full it is."""

    def __init__(self, percent: int) -> None:
        super().__init__()
        self.percent = percent

    def usage(self, path: PurePath) -> DiskUsage:
        return DiskUsage(100, self.percent, 100 - self.percent)


async def cleaned(
    root: Path, *, age_hours: int, percent: int = 10, hour: bool = False, **changes: Any
) -> tuple[int, MessageStore]:
    """Fill ten files, let all but the last grow old, clean once; (files deleted, the store)."""
    clock = TestClock()
    config = small_config(root, delete_when="04", delete_commit_log_files_interval=0, **changes)
    disk = FilledDisk(10)
    store = MessageStore(config, disk=disk, clock=clock, broker=IDENTITY)
    store.load()
    while store.commit_log.max_offset < 10 * 65_536:
        clock.now_ms += 1
        assert store.put_message(message(body=bytes(3000), UNIQ_KEY=f"U{clock.now_ms}")).ok
    disk.percent = percent
    for file in (root / "commitlog").iterdir():
        os.utime(file, times=((clock.now_ms / 1000) - age_hours * 3600,) * 2)
    clock.now_ms = at_hour(clock.now_ms, 4 if hour else 12)
    return await store.cleaner.clean(), store


def at_hour(now_ms: int, hour: int) -> int:
    """The given local hour of the same day."""
    moment = datetime.fromtimestamp(now_ms / 1000).replace(hour=hour, minute=30)
    return int(moment.timestamp() * 1000)


@pytest.mark.parametrize(
    ("age_hours", "percent", "hour", "expected"),
    [
        (200, 10, False, 0),  # old, but neither the hour nor a full disk
        (200, 10, True, 10),  # old, and the hour
        (10, 10, True, 0),  # not old
        (200, 80, False, 10),  # old, and the disk is fuller than diskMaxUsedSpaceRatio
        (10, 80, False, 0),  # not old, and not full enough for force
        (10, 87, False, 10),  # fuller than diskSpaceCleanForciblyRatio: whatever the age
    ],
)
async def test_log_files_go_when_they_are_old_or_the_disk_is_full(
    tmp_path: Path, age_hours: int, percent: int, hour: bool, expected: int
) -> None:
    deleted, store = await cleaned(tmp_path, age_hours=age_hours, percent=percent, hour=hour)
    assert deleted == expected
    await store.shutdown()


async def test_files_that_have_not_expired_stay_if_force_is_off(tmp_path: Path) -> None:
    deleted, store = await cleaned(tmp_path, age_hours=10, percent=87, clean_file_forcibly_enable=False)
    assert deleted == 0
    await store.shutdown()


async def test_a_disk_above_the_warning_level_takes_no_messages_and_says_why(tmp_path: Path) -> None:
    deleted, store = await cleaned(tmp_path, age_hours=10, percent=95)
    assert deleted == 10
    assert store.admission.refusal() is PutMessageStatus.SERVICE_NOT_AVAILABLE
    assert "95% full" in store.admission.remark() and "diskSpaceWarningLevelRatio" in store.admission.remark()
    await store.shutdown()


async def test_queues_and_index_follow_the_log_and_readers_keep_what_they_hold(tmp_path: Path) -> None:
    deleted, store = await cleaned(tmp_path, age_hours=200, hour=True, delete_file_batch_max=4)
    assert deleted == 4
    assert store.commit_log.min_offset == 4 * 65_536
    first = store.min_offset("T", 0)
    assert first > 0
    assert store.get_message("G", "T", 0, 0, 1, None).next_begin_offset == first
    held = store.get_message("G", "T", 0, first, 1, None).buffers[0]
    before = bytes(held)
    store.cleaner.request()
    await store.cleaner.clean()
    assert store.min_offset("T", 0) > first
    assert bytes(held) == before
    await store.shutdown()
