import asyncio
import errno
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import PurePath
from threading import Barrier

import pytest

from maxq.runtime.interfaces import Disk, SyncFailedError
from maxq.testing.sim_clock import SimClock
from maxq.testing.sim_disk import PowerLoss, SimDisk
from maxq.testing.sim_file import PAGE, SECTOR
from maxq.testing.sim_rng import SimRng
from maxq.testing.simulation import SimWorld, run_simulation

P = PurePath


def new_disk(seed: int = 1, **options: object) -> SimDisk:
    return SimDisk(SimRng(seed), SimClock(), **options)  # type: ignore[arg-type]


def test_it_is_a_disk() -> None:
    disk: Disk = new_disk()
    region = disk.map(P("s/commitlog/0"), 100)
    region.view[3:6] = b"abc"
    assert disk.read(P("s/commitlog/0"))[:7] == b"\0\0\0abc\0"
    disk.write(P("s/abort"), b"12")
    disk.replace(P("s/config/topics.json"), b"{}")
    assert [(e.name, e.size, e.is_dir) for e in disk.list(P("s"))] == [
        ("abort", 2, False),
        ("commitlog", 0, True),
        ("config", 0, True),
    ]
    disk.rename(P("s/abort"), P("s/abort2"))
    assert disk.exists(P("s/abort2")) and not disk.exists(P("s/abort"))
    disk.delete(P("s/abort2"))
    with pytest.raises(FileNotFoundError):
        disk.stat(P("s/abort2"))
    disk.delete_tree(P("s/config"))
    assert not disk.exists(P("s/config"))
    assert disk.list(P("nowhere")) == []
    lock = disk.lock(P("s/lock"), b"lock")
    with pytest.raises(BlockingIOError):
        disk.lock(P("s/lock"), b"lock")
    lock.release()
    disk.lock(P("s/lock"), b"lock").release()


def test_mapping_another_length_is_refused_and_read_only_mapping_creates_nothing() -> None:
    disk = new_disk()
    disk.map(P("f"), 100)
    with pytest.raises(ValueError, match="f: 100 bytes, expected 200"):
        disk.map(P("f"), 200)
    with pytest.raises(FileNotFoundError):
        disk.map(P("g"), 100, read_only=True)
    assert disk.map(P("f"), 100, read_only=True).view.readonly


@pytest.mark.parametrize("seed", range(40))
def test_a_crash_keeps_what_was_flushed(seed: int) -> None:
    disk = new_disk(seed)
    region = disk.map(P("log"), 4 * PAGE)
    region.view[0:5000] = b"a" * 5000
    region.flush(0, 5000)
    region.view[5000:9000] = b"b" * 4000
    disk.cut_power()
    with pytest.raises(PowerLoss):
        disk.read(P("log"))
    with pytest.raises(PowerLoss):
        region.flush(0, 9000)
    kept = disk.boot().read(P("log"))
    assert kept[:5000] == b"a" * 5000
    assert set(kept[5000:9000]) <= set(b"b\0")
    assert not any(kept[9000:])


def test_what_was_not_flushed_may_vanish_survive_or_tear_within_a_sector() -> None:
    seen = set()
    for seed in range(300):
        disk = new_disk(seed)
        region = disk.map(P("log"), 4 * PAGE)
        region.flush(0, 1)
        region.view[:] = b"x" * (4 * PAGE)
        disk.cut_power()
        kept = disk.boot().read(P("log"))
        count = kept.count(b"x")
        sectors = [kept[i : i + SECTOR].count(b"x") for i in range(0, len(kept), SECTOR)]
        seen.add("gone" if count == 0 else "whole" if count == len(kept) else "part")
        if any(0 < n < SECTOR for n in sectors):
            seen.add("torn sector")
    assert seen == {"gone", "whole", "part", "torn sector"}


def test_a_torn_head_is_of_two_moments_and_the_rest_is_the_newest() -> None:
    disk = new_disk()
    region = disk.map(P("s/index/0"), PAGE)
    region.view[:60] = b"1" * 60
    region.flush(0, PAGE)
    region.view[:60] = b"2" * 60
    disk.cut_power()
    assert disk.tear_heads("s/index/*", 40, SimRng(3)) == 1
    found = disk.boot().read(P("s/index/0"))[:60]
    assert found == b"1" * found.count(b"1") + b"2" * found.count(b"2")
    assert 1 <= found.count(b"1") <= 40


def test_creation_without_sync_may_vanish_and_flush_makes_the_entry_durable() -> None:
    vanished = empty = 0
    for seed in range(60):
        disk = new_disk(seed)
        disk.map(P("q/synced"), PAGE).flush(0, 10)
        disk.map(P("q/unsynced"), PAGE)
        disk.cut_power()
        after = disk.boot()
        assert after.stat(P("q/synced")).size == PAGE
        vanished += not after.exists(P("q/unsynced"))
        empty += after.exists(P("q/unsynced")) and after.stat(P("q/unsynced")).size == 0
    assert 10 < vanished < 55
    assert empty > 0


def test_deletion_is_durable_on_return_and_not_before() -> None:
    back = set()
    for seed in range(40):
        disk = new_disk(seed)
        disk.put("f", b"old")
        disk.cut_power_after(seed % 2)
        with pytest.raises(PowerLoss):
            disk.delete(P("f"))
        back.add(disk.boot().exists(P("f")))
        disk = new_disk(seed)
        disk.put("g/f", b"old")
        disk.delete_tree(P("g"))
        disk.put("h", b"old")
        disk.delete(P("h"))
        disk.cut_power()
        assert disk.boot().paths() == []
    assert back == {True, False}


def test_a_journal_keeps_its_order_and_posix_does_not() -> None:
    def survivors(in_order: bool) -> set[tuple[str, ...]]:
        found = set()
        for seed in range(60):
            disk = new_disk(seed, metadata_in_order=in_order)
            for name in "abc":
                disk.map(P(name), PAGE)
            disk.cut_power()
            found.add(tuple(disk.boot().paths()))
        return found

    assert survivors(True) == {(), ("a",), ("a", "b"), ("a", "b", "c")}
    assert ("b",) in survivors(False)


def test_replace_is_atomic_wherever_the_power_goes() -> None:
    seen = set()
    for seed in range(200):
        disk = new_disk(seed)
        disk.put("c/topics.json", b"old")
        disk.cut_power_after(seed % 6)
        try:
            disk.replace(P("c/topics.json"), b"a longer new content")
            disk.cut_power()
        except PowerLoss:
            pass
        seen.add(disk.boot().read(P("c/topics.json")))
    assert seen == {b"old", b"a longer new content"}


def test_replace_with_a_spare_file_is_atomic_wherever_the_power_goes() -> None:
    seen = set()
    for seed in range(200):
        disk = new_disk(seed)
        disk.put("c/topics.json", b"old")
        disk.put("c/spare", bytes(30))
        disk.cut_power_after(seed % 6)
        try:
            disk.replace_with(P("c/topics.json"), b"a longer new content", spare=P("c/spare"))
            disk.cut_power()
        except PowerLoss:
            pass
        after = disk.boot()
        found = after.read(P("c/topics.json"))
        seen.add(found)
        assert (found == b"old") or after.read(P("c/spare")) == b"old"
    assert seen == {b"old", b"a longer new content"}


def test_replace_and_write_are_durable_on_return() -> None:
    for seed in range(40):
        disk = new_disk(seed)
        disk.replace(P("a/b/c"), b"one")
        disk.write(P("a/d"), b"two")
        disk.rename(P("a/d"), P("a/e"))
        disk.cut_power()
        after = disk.boot()
        assert (after.read(P("a/b/c")), after.read(P("a/e"))) == (b"one", b"two")
        assert not after.exists(P("a/d"))


def test_write_is_not_atomic() -> None:
    seen = set()
    for seed in range(300):
        disk = new_disk(seed)
        disk.put("f", b"old content")
        disk.cut_power_after(seed % 6)
        with pytest.raises(PowerLoss):
            disk.write(P("f"), b"new")
            disk.read(P("f"))
            disk.cut_power()
            disk.read(P("f"))
        seen.add(disk.boot().read(P("f")))
    assert {b"old content", b"", b"new"} <= seen


def test_a_failed_sync_forgets_the_dirty_pages() -> None:
    disk = new_disk(write_back=0)
    region = disk.map(P("log"), 2 * PAGE)
    region.flush(0, 1)
    region.view[0:4] = b"lost"
    disk.fail_flush("log")
    with pytest.raises(OSError) as failure:
        region.flush(0, 4)
    assert failure.value.errno == errno.EIO
    with pytest.raises(SyncFailedError):  # the process knows better than to believe the next one
        disk.map(P("log"), 2 * PAGE).flush(PAGE, 2 * PAGE)


@pytest.mark.parametrize("keeps_cache", [False, True])
@pytest.mark.parametrize("is_killed", [False, True])
def test_a_restart_without_reboot_shows_what_a_failed_sync_dropped_and_a_loss_of_power_takes_it(
    *, keeps_cache: bool, is_killed: bool
) -> None:
    disk = new_disk(write_back=0, kill_keeps_cache=keeps_cache)
    region = disk.map(P("log"), 3 * PAGE)
    region.flush(0, 1)
    for begin, text in ((0, b"lost"), (PAGE, b"also"), (2 * PAGE, b"here")):
        region.view[begin : begin + 4] = text
    disk.fail_flush("log")
    with pytest.raises(SyncFailedError):
        region.flush(0, 1)  # drops all dirty pages of the file
    if is_killed:
        disk.kill_process()
    disk = disk.boot()
    region = disk.map(P("log"), 3 * PAGE)
    assert [bytes(region.view[begin : begin + 4]) for begin in (0, PAGE, 2 * PAGE)] == [b"lost", b"also", b"here"]
    region.write_again(PAGE, PAGE + 4)
    region.write(2 * PAGE, memoryview(b"here"))
    region.flush(0, 3 * PAGE)  # succeeds, and does not write what it takes for clean
    disk.cut_power()
    after = disk.boot().read(P("log"))
    assert (after[0:4], after[PAGE : PAGE + 4], after[2 * PAGE : 2 * PAGE + 4]) == (bytes(4), b"also", b"here")


def test_what_was_written_again_after_a_failed_sync_may_be_synced() -> None:
    disk = new_disk(write_back=0)
    region = disk.map(P("log"), PAGE)
    region.view[0:4] = b"text"
    disk.fail_flush("log")
    with pytest.raises(SyncFailedError):
        region.flush(0, 4)
    region.write_again(0, PAGE)
    region.flush(0, 4)
    disk.cut_power()
    assert disk.boot().read(P("log"))[0:4] == b"text"


def test_full_disk_and_read_only_disk_refuse_with_the_kernels_error() -> None:
    disk = new_disk(total_bytes=10_000)
    disk.map(P("a"), 6000)
    with pytest.raises(OSError) as full:
        disk.map(P("b"), 6000)
    assert full.value.errno == errno.ENOSPC
    assert not disk.exists(P("b"))
    assert disk.usage(P("a")).free == 4000
    disk.read_only = True
    for change in (lambda: disk.map(P("a"), 6000), lambda: disk.write(P("c"), b""), lambda: disk.delete(P("a"))):
        with pytest.raises(OSError) as refused:
            change()
        assert refused.value.errno == errno.EROFS
    assert disk.map(P("a"), 6000, read_only=True).view.nbytes == 6000


def test_bit_flips_change_one_bit_for_good() -> None:
    disk = new_disk()
    disk.put("log", bytes(100))
    assert str(disk.flip_bit("log", 7, 3)) == "log: byte 7 bit 3"
    disk.cut_power()
    assert disk.boot().read(P("log")) == bytes(7) + b"\x08" + bytes(92)


def test_a_killed_process_leaves_all_it_wrote() -> None:
    disk = new_disk()
    region = disk.map(P("log"), 100)
    region.view[0] = 9
    disk.lock(P("lock"), b"lock")
    after = disk.boot()
    assert after.read(P("log"))[0] == 9
    after.lock(P("lock"), b"lock")
    region.view[1] = 9  # the dead process's mapping is not the next one's
    assert after.read(P("log"))[1] == 0


def test_what_a_killed_process_had_not_flushed_goes_with_the_power() -> None:
    kept = set()
    for seed in range(60):
        disk = new_disk(seed, write_back=0.0, kill_keeps_cache=True)
        region = disk.map(P("log"), 2 * PAGE)
        region.view[0] = 9
        region.flush(0, 1)
        region.view[PAGE] = 9
        disk.map(P("new"), 10)
        after = disk.boot()
        assert after.read(P("log"))[PAGE] == 9 and after.exists(P("new"))
        after.cut_power()
        later = after.boot()
        assert later.read(P("log"))[0] == 9
        kept.add((later.read(P("log"))[PAGE], later.exists(P("new"))))
    assert kept == {(0, False), (0, True), (9, False), (9, True)}


def test_the_next_process_can_flush_what_a_killed_one_wrote() -> None:
    for seed in range(20):
        disk = new_disk(seed, write_back=0.0, kill_keeps_cache=True)
        disk.map(P("log"), 10).view[0] = 9
        after = disk.boot()
        after.map(P("log"), 10).flush(0, 10)
        after.cut_power()
        assert after.boot().read(P("log"))[0] == 9


def test_power_loss_ends_a_simulation_whoever_waits() -> None:
    disks = []

    async def main(world: SimWorld) -> None:
        disks.append(world.disk)
        region = world.disk.map(P("log"), PAGE)
        world.disk.cut_power_after(3)

        async def flusher() -> None:
            try:
                while True:
                    region.view[0] = 1
                    await world.loop.run_in_executor(None, region.flush, 0, 10)
            except Exception:
                pytest.fail("the code under test caught the power loss")

        tasks = [asyncio.ensure_future(flusher()), asyncio.ensure_future(flusher())]
        await asyncio.gather(*tasks)

    with pytest.raises(PowerLoss):
        run_simulation(main, seed=4)
    assert disks[0].is_dead
    disks[0].boot()


@pytest.fixture
def threads_that_alternate() -> Iterator[None]:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


@pytest.mark.usefixtures("threads_that_alternate")
def test_two_threads_that_map_a_new_file_at_once_have_the_same_one() -> None:
    disk = new_disk()
    together = Barrier(2)

    def mapped(number: int) -> memoryview:
        together.wait()
        return disk.map(PurePath(f"made-ahead/{number:020d}"), 64).view

    with ThreadPoolExecutor(2) as pool:
        for number in range(2000):
            ahead, own = pool.map(mapped, (number, number))
            own[:5] = b"entry"
            assert ahead[:5] == b"entry" == disk.read(PurePath(f"made-ahead/{number:020d}"))[:5]
