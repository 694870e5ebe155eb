"""A disk without room: sends are refused with cause and limits, dispatch stops and resumes, nothing is written where
there are no blocks, and nothing is lost or double."""

import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path, PurePath

import pytest

from maxq.runtime.files.system import SystemDisk
from maxq.runtime.interfaces import MappedRegion
from maxq.store.context.running_flags import LOGICS_ERROR, NO_ROOM
from maxq.store.files.block_reserve import BlockReserve, back_units
from maxq.store.files.executor_jobs import ExecutorJobs
from maxq.store.message_store import MessageStore
from maxq.store.queue import consume_queue
from maxq.store.store_results import PutMessageStatus
from maxq.testing.sim_clock import SimClock
from maxq.testing.sim_disk import SimDisk
from maxq.testing.sim_region import SimMappedRegion
from maxq.testing.sim_rng import SimRng
from tests.mounted_disk import MountedDisk, NotAllowedError
from tests.short_form import long_form, seeds
from tests.unit.store.stores import IDENTITY, TestClock, message, opened, small_config

KIB = 1 << 10


def sparse_disk(total_bytes: int) -> SimDisk:
    return SimDisk(SimRng(1), SimClock(), total_bytes=total_bytes, write_back=0.0, sparse=True)


def store_on(disk: SimDisk, **settings: int) -> MessageStore:
    config = small_config(Path("/store"), mapped_file_size_consume_queue=100_000, **settings)
    store = MessageStore(config, disk=disk, clock=TestClock(), broker=IDENTITY, memory_bytes=1 << 30)
    store.load()
    return store


def fill(store: MessageStore, disk: SimDisk, queues: int = 3) -> int:
    """Send until the store refuses; how many messages it took."""
    for number in range(10_000):
        result = store.put_message(message(queue_id=number % queues, body=bytes(900), KEYS=f"k{number} again{number}"))
        assert not disk.unbacked(), "written where a real disk would have killed the process"
        if not result.ok:
            assert result.status is PutMessageStatus.SERVICE_NOT_AVAILABLE, result
            return number
    raise AssertionError("the disk was never full")


def stored(store: MessageStore, queues: int = 3) -> list[int]:
    return [store.max_offset("T", number) for number in range(queues)]


@pytest.mark.parametrize("total", seeds([300 * KIB, 372 * KIB], range(300 * KIB, 420 * KIB, 12 * KIB)))
def test_full_disk_refuses_sends_and_takes_them_again_when_there_is_room(total: int) -> None:
    disk = sparse_disk(total)
    store = store_on(disk)
    taken = fill(store, disk)
    assert taken > 20
    assert store.flags.has(NO_ROOM) or store.flags.has(LOGICS_ERROR)
    store.disk_room.try_again()
    assert store.admission.refusal() is PutMessageStatus.SERVICE_NOT_AVAILABLE
    disk.total_bytes *= 4
    store.disk_room.try_again()
    assert store.admission.refusal() is None and not store.admission.remark()
    assert store.dispatch_behind_bytes == 0
    in_log = sum(stored(store))
    assert in_log >= taken
    assert store.put_message(message()).ok
    for number in range(in_log):
        found = store.query_message("T", f"again{number}", 64, 0, 1 << 62)
        assert len(found.buffers) == 1, f"key of message {number}"
    store.close()
    again = store_on(disk)
    assert again.report.clean_exit and again.report.dispatched_records == 0
    assert sum(stored(again)) == in_log + 1
    again.close()


def test_refusal_names_cause_need_free_bytes_and_remedy() -> None:
    disk = sparse_disk(1 << 20)
    store = store_on(disk)
    assert store.put_message(message(body=bytes(9000))).ok
    disk.other_bytes = disk.total_bytes
    for _ in range(20):
        refused = store.put_message(message(body=bytes(9000)))
    assert refused.status is PutMessageStatus.SERVICE_NOT_AVAILABLE
    assert "the disk is full: /store/commitlog needs room for 91" in refused.remark
    assert "0 bytes are free (No space left on device); free space" in refused.remark
    disk.other_bytes = 0
    store.disk_room.try_again()
    assert store.put_message(message(body=bytes(9000))).ok
    store.close()


def test_dispatch_that_finds_no_room_keeps_what_it_did_and_goes_on_there(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = sparse_disk(1 << 22)
    store = store_on(disk, max_index_num=6)
    seen: list[int] = []
    store.dispatch.hook("T", lambda request: seen.append(request.physical_offset))
    real = SimMappedRegion.allocate
    full = [False]

    def allocate(region: SimMappedRegion, start: int, end: int) -> None:
        if full[0] and "commitlog" not in region._path:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(region, start, end)

    monkeypatch.setattr(SimMappedRegion, "allocate", allocate)
    assert store.put_message(message(KEYS="a b c")).ok
    full[0] = True
    stopped = store.put_message(message(KEYS="d e f g"))  # in the log; its keys need another index file
    assert stopped.ok and store.flags.has(LOGICS_ERROR)
    assert not store.put_message(message()).ok
    assert "[DISK_NO_ROOM]the disk is full: dispatch at physical offset" in store.admission.remark()
    store.disk_room.try_again()
    full[0] = False
    store.disk_room.try_again()
    assert store.admission.refusal() is None
    assert store.max_offset("T", 0) == 2 and len(seen) == len(set(seen)) == 2
    for key in "abcdefg":
        assert len(store.query_message("T", key, 64, 0, 1 << 62).buffers) == 1, key
    store.close()


def test_queue_that_begins_late_and_finds_no_room_begins_there_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = sparse_disk(1 << 22)
    store = store_on(disk)
    queue = store.queues.open("T", 0)
    real = SimMappedRegion.allocate

    def allocate(region: SimMappedRegion, start: int, end: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(SimMappedRegion, "allocate", allocate)
    with pytest.raises(OSError, match="No space"):
        queue.roll(1000, 0, 100)
    assert queue.files.files == []
    monkeypatch.setattr(SimMappedRegion, "allocate", real)
    queue.roll(1000, 0, 100)
    queue.append(0, 100, 0)
    assert (queue.max_offset, queue.min_offset(0)) == (1001, 1000)
    assert not disk.unbacked()
    store.close()


async def test_topics_whose_deletion_waits_for_room_number_their_new_messages_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One record deletes both. The disk has no room when the files of the second one are to go aside."""
    store, full, rename = opened(small_config(tmp_path, flush_disk_type="SYNC_FLUSH")), [True], SystemDisk.rename
    for topic in ("First", "Second"):
        assert store.put_message(message(topic)).ok
    await store.flush()

    def rename_if_there_is_room(disk: SystemDisk, source: PurePath, target: PurePath) -> None:
        if full[0] and source.name == "Second":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        rename(disk, source, target)

    monkeypatch.setattr(SystemDisk, "rename", rename_if_there_is_room)
    assert store.put_deletion(["First", "Second"]).ok
    for topic in ("First", "First", "Second"):
        assert store.put_message(message(topic)).ok
    await store.flush()
    assert store.flags.has(LOGICS_ERROR)
    full[0] = False
    store.disk_room.try_again()
    assert [store.put_message(message(topic)).queue_offset for topic in ("First", "Second")] == [2, 1]
    await store.flush()
    assert [store.max_offset(topic, 0) for topic in ("First", "Second")] == [3, 2]
    assert store.dispatch.faults == []
    await store.shutdown()


@pytest.mark.parametrize("deleted", [False, True])
def test_slave_that_becomes_master_while_dispatch_waits_for_room_gives_no_place_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, deleted: bool
) -> None:
    master, full, back = opened(small_config(tmp_path / "master")), [True], back_units
    for number in range(30):
        assert master.put_message(message(queue_id=number % 3)).ok
    if deleted:
        assert master.put_deletion(["T"]).ok
        assert master.put_message(message(queue_id=1)).ok

    def back_until_full(region: MappedRegion, position: int, size: int) -> int:
        if full[0] and position >= 100:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        end = back(region, position, size)
        return min(end, 100) if full[0] else end

    monkeypatch.setattr(consume_queue, "back_units", back_until_full)
    slave = opened(small_config(tmp_path / "slave", broker_role="SLAVE"))
    while slave.max_physical_offset < master.max_physical_offset:
        data = master.log_bytes(slave.max_physical_offset, 1 << 20)
        assert data is not None
        slave.append_from_master(slave.max_physical_offset, data)
    assert slave.flags.has(LOGICS_ERROR)
    slave.update_config(replace(slave.config, broker_role="ASYNC_MASTER"))
    full[0] = False
    slave.disk_room.try_again()
    expected = [0, 1, 0] if deleted else [10, 10, 10]
    assert [slave.put_message(message(queue_id=queue)).queue_offset for queue in range(3)] == expected
    assert stored(slave) == [offset + 1 for offset in expected]
    assert slave.dispatch.faults == []
    slave.close()
    master.close()


def test_store_on_a_full_disk_starts_and_serves_readers() -> None:
    disk = sparse_disk(1 << 20)
    store = store_on(disk)
    assert store.put_message(message()).ok
    store.close()
    disk.other_bytes = disk.total_bytes - disk._used() + disk.other_bytes - 8 * KIB  # a lock and an inventory go in
    again = store_on(disk)
    assert again.get_message("g", "T", 0, 0, 1, None).message_count == 1
    assert not disk.unbacked()
    again.close()


# ---- steps ----------------------------------------------------------------------------------------------------------


def region_on(total: int, size: int) -> SimMappedRegion:
    return sparse_disk(total).map(PurePath("/f"), size)


def test_steps_become_smaller_when_room_does() -> None:
    reserve = BlockReserve(ExecutorJobs(), region_on(300 * KIB, 1 << 20), 0, 1 << 20, 256 * KIB, lambda _: None)
    reserve.more()
    assert reserve.end == 256 * KIB
    with pytest.raises(OSError, match="No space"):
        reserve.more()
    assert reserve.end == 256 * KIB and not reserve.is_whole


async def test_next_step_is_there_before_the_writer_comes() -> None:
    told: list[int] = []
    jobs = ExecutorJobs()
    reserve = BlockReserve(
        jobs, region_on(1 << 20, 512 * KIB), 0, 512 * KIB, 256 * KIB, lambda reserve: told.append(reserve.end)
    )
    reserve.more()
    reserve.move_to(100 * KIB)
    await jobs.close()
    assert told == []
    jobs.is_closed = False
    reserve.move_to(130 * KIB)
    await jobs.close()
    assert told == [512 * KIB] and reserve.is_whole


def test_queue_files_get_few_blocks_first_and_more_as_they_grow() -> None:
    region = region_on(1 << 23, 6_000_000)
    assert [back_units(region, position, 6_000_000) for position in (0, 4080, 8000, 100_000, 1 << 20, 5_999_980)] == [
        4096, 8192, 8192, 131_072, 2 << 20, 6_000_000,
    ]  # fmt: skip


# ---- the real thing -------------------------------------------------------------------------------------------------

#: Fills a real disk from its own process, which a write without blocks would kill.
_FILL = """
import asyncio, os, sys
from pathlib import Path
from maxq.config.message_store_config import MessageStoreConfig
from maxq.runtime.files.system import SystemClock, SystemDisk
from maxq.store.message_store import MessageStore
from maxq.store.context.store_context import StoreIdentity
from tests.durability import durable
from tests.unit.store.stores import message
root = Path(sys.argv[1])
config = MessageStoreConfig(
    store_path_root_dir=str(root / "store"), mapped_file_size_commit_log=4 << 20, max_hash_slot_num=1000,
    max_index_num=20_000, flush_disk_type=sys.argv[2],
)
def new_store():
    store = MessageStore(config, disk=SystemDisk(), clock=SystemClock(), broker=StoreIdentity(), memory_bytes=1 << 30)
    store.load()
    return store
async def main():
    (root / "ballast").write_bytes(bytes(4 << 20))
    store = new_store()
    store.start()
    async def fill():
        number = 0
        while True:
            result = store.put_message(message(f"T{number % 7}", number % 5, os.urandom(1500), KEYS=f"k{number}"))
            if not result.ok:
                return number, result
            number += 1
            if number % 50 == 0:
                waiting = durable(store, result.end_offset)
                if waiting is not None:
                    await waiting
                await asyncio.sleep(0)
    before, refused = await fill()
    print("refused", before, refused.status.name, refused.remark)
    (root / "ballast").unlink()
    async with asyncio.timeout(20):
        while store.admission.refusal() is not None:
            await asyncio.sleep(0.05)
    more, refused = await fill()
    print("refused", more, refused.status.name, refused.remark)
    await store.shutdown()
    again = new_store()
    in_queues = sum(again.max_offset(f"T{topic}", queue) for topic in range(7) for queue in range(5))
    print("found", in_queues, before + more)
    again.close()
asyncio.run(main())
"""


@pytest.fixture(params=["tmpfs", "ext4", *long_form(["ext4-1k"])])
def small_file_system(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A mounted file system of some 24 MB; skipped where one cannot be mounted."""
    disk = MountedDisk(tmp_path / "mounted", request.param, (24 if request.param == "tmpfs" else 32) << 20)
    try:
        disk.mount()
    except NotAllowedError as error:
        pytest.skip(str(error))
    yield disk.folder
    disk.unmount()


@pytest.mark.parametrize("flush", ["SYNC_FLUSH", *long_form(["ASYNC_FLUSH"])])
def test_process_survives_a_disk_that_is_really_full(small_file_system: Path, flush: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _FILL, str(small_file_system), flush],
        capture_output=True, cwd=Path(__file__).parents[4], timeout=100,
    )  # fmt: skip
    assert done.returncode == 0, f"{done.returncode}: {done.stdout.decode()}{done.stderr.decode()[-3000:]}"
    first, second, found = (line.split() for line in done.stdout.decode().splitlines())
    for line in (first, second):
        assert line[2] == "SERVICE_NOT_AVAILABLE" and "No space left on device" in " ".join(line)
    assert int(first[1]) > 1000 and int(second[1]) > 100
    assert int(found[1]) >= int(found[2])


_WRITE = """
import sys
from pathlib import Path
from maxq.runtime.files.system import SystemDisk
SystemDisk().map(Path(sys.argv[1]), 65_536).view[4096:4116] = bytes(range(20))
"""


def test_what_was_allocated_is_written_where_blocks_are_smaller_than_a_page(tmp_path: Path) -> None:
    """A write through a mapping needs all blocks of its page; on a full disk it else kills the process."""
    mounted = MountedDisk(tmp_path / "mounted", "ext4-1k", 32 << 20)
    try:
        mounted.mount()
    except NotAllowedError as error:
        pytest.skip(str(error))
    try:
        path = mounted.folder / "units"
        region = SystemDisk().map(path, 65_536)
        region.allocate(4096, 4116)
        mounted.fill()
        done = subprocess.run([sys.executable, "-c", _WRITE, str(path)], capture_output=True, check=False)
        assert done.returncode == 0, f"{done.returncode}: {done.stderr.decode()[-3000:]}"
        assert bytes(region.view[4096:4116]) == bytes(range(20))
        region.close()
    finally:
        mounted.unmount()
