"""The real disk and the simulated one keep the same promises."""

import os
from pathlib import Path, PurePath

import pytest

from maxq.runtime import system
from maxq.runtime.interfaces import Disk
from maxq.runtime.system import SystemDisk, SystemDiskLock, SystemMappedRegion
from maxq.testing.sim_clock import SimClock
from maxq.testing.sim_disk import SimDisk
from maxq.testing.sim_rng import SimRng


@pytest.fixture(params=["system", "sim"])
def disk(request: pytest.FixtureRequest) -> Disk:
    return SystemDisk() if request.param == "system" else SimDisk(SimRng(1), SimClock())


def test_both_disks_behave_alike(disk: Disk, tmp_path: Path) -> None:
    root = PurePath(tmp_path, "store")
    log = root / "commitlog" / "00000000000000000000"
    region = disk.map(log, 8192)
    region.view[100:105] = b"hello"
    region.flush(0, 200)
    region.populate(0, 8192)
    assert disk.read(log)[100:105] == b"hello"
    assert disk.stat(log).size == 8192
    with pytest.raises(ValueError, match="8192 bytes, expected 4096"):
        disk.map(log, 4096)
    reader = disk.map(log, 8192, read_only=True)
    assert reader.view.readonly and bytes(reader.view[100:105]) == b"hello"
    kept = reader.view[100:105]
    reader.close()
    region.close()
    disk.delete(log)
    assert bytes(kept) == b"hello"
    kept.release()
    with pytest.raises(FileNotFoundError):
        disk.read(log)
    with pytest.raises(FileNotFoundError):
        disk.delete(log)
    with pytest.raises(FileNotFoundError):
        disk.map(log, 8192, read_only=True)
    disk.replace(root / "config" / "a.json", b"1")
    disk.replace(root / "config" / "a.json", b"22")
    disk.write(root / "abort", b"123")
    disk.write(root / "abort", b"4")
    disk.rename(root / "abort", root / "abort.bak")
    assert [(e.name, e.size, e.is_dir) for e in disk.list(root)] == [
        ("abort.bak", 1, False),
        ("commitlog", 0, True),
        ("config", 0, True),
    ]
    assert [(e.name, e.size) for e in disk.list(root / "config")] == [("a.json", 2)]
    disk.make_dirs(root / "index")
    assert disk.exists(root / "index") and disk.list(root / "index") == []
    disk.delete_tree(root)
    disk.delete_tree(root)
    assert not disk.exists(root)
    usage = disk.usage(root)
    assert 0 <= usage.used <= usage.total


def test_first_flush_of_a_new_file_syncs_every_folder_that_got_an_entry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[Path] = []
    monkeypatch.setattr(system, "_sync_folder", synced.append)
    path = tmp_path / "consumequeue" / "topic" / "0" / "00000000000000000000"
    region = SystemDisk().map(path, 4096)
    region.flush(0, 10)
    region.flush(10, 20)
    region.close()
    assert sorted(synced) == [tmp_path, *reversed(path.parents[:3])]
    again = SystemDisk().map(path, 4096)
    again.flush(0, 10)
    again.close()
    assert len(synced) == 4


def test_lock_is_held_against_this_process_too_until_it_is_released(tmp_path: Path) -> None:
    lock = SystemDisk().lock(tmp_path / "lock", b"lock")
    with pytest.raises(BlockingIOError, match="by this process"):
        SystemDisk().lock(tmp_path / "lock", b"lock")
    lock.release()
    SystemDisk().lock(tmp_path / "lock", b"lock").release()


def test_who_looks_sees_whether_a_lock_is_held(disk: Disk, tmp_path: Path) -> None:
    path = tmp_path / "lock"
    assert not disk.is_locked(path)
    lock = disk.lock(path, b"lock")
    assert disk.is_locked(path)
    lock.release()
    assert not disk.is_locked(path)
    assert disk.read(path) == b"lock"


def test_a_look_from_outside_sees_the_lock_of_another_process_and_leaves_it(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    lock = SystemDisk().lock(path, b"lock")
    read_end, write_end = os.pipe()
    if os.fork() == 0:
        SystemDiskLock._held.clear()  # what the parent holds, the child does not
        os.write(write_end, b"%d%d" % (SystemDisk().is_locked(path), SystemDisk().is_locked(path)))
        os._exit(0)
    os.wait()
    assert os.read(read_end, 10) == b"11"
    os.close(read_end)
    os.close(write_end)
    lock.release()


def test_lock_is_held_against_other_processes(tmp_path: Path) -> None:
    lock = SystemDisk().lock(tmp_path / "lock", b"lock")
    read_end, write_end = os.pipe()
    if os.fork() == 0:  # fcntl locks belong to a process
        try:
            SystemDisk().lock(tmp_path / "lock", b"lock")
            os.write(write_end, b"got it")
        except BlockingIOError:
            os.write(write_end, b"blocked")
        finally:
            os._exit(0)
    os.wait()
    assert os.read(read_end, 10) == b"blocked"
    os.close(read_end)
    os.close(write_end)
    lock.release()


def test_a_region_says_whether_its_pages_are_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    region = SystemDisk().map(tmp_path / "file", 1 << 20)
    assert isinstance(region, SystemMappedRegion)
    region.view[:] = b"x" * (1 << 20)  # more than one look takes
    assert region.is_resident(100, 1 << 20)
    assert not region.is_resident(0, (1 << 20) + 1), "beyond the end there is nothing"
    preadv = os.preadv
    asked = []

    def first_only(descriptor: int, buffers: list[memoryview], position: int, flags: int) -> int:
        asked.append((position, flags))
        if position:
            raise BlockingIOError
        return preadv(descriptor, buffers, position, flags)

    monkeypatch.setattr(os, "preadv", first_only)
    assert not region.is_resident(0, 1 << 20)
    assert [flags for _, flags in asked] == [os.RWF_NOWAIT] * 2
    region.close()
