"""The real disk and the simulated one keep the same promises."""

import errno
import gc
import os
import resource
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePath

import pytest

from maxq.runtime.files import durable_files
from maxq.runtime.files.system import SystemDisk, SystemMappedRegion
from maxq.runtime.interfaces import Disk
from maxq.testing.sim_clock import SimClock
from maxq.testing.sim_disk import SimDisk
from maxq.testing.sim_rng import SimRng


@pytest.fixture(params=["system", "sim"])
def disk(request: pytest.FixtureRequest) -> Disk:
    return SystemDisk() if request.param == "system" else SimDisk(SimRng(1), SimClock())


def test_a_file_that_goes_while_a_folder_is_listed_hides_no_other_one(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"1")
    (tmp_path / "b").symlink_to(tmp_path / "nothing")
    (tmp_path / "c").write_bytes(b"12")
    assert [(entry.name, entry.size) for entry in SystemDisk().list(tmp_path)] == [("a", 1), ("c", 2)]


def test_a_file_that_cannot_be_looked_at_is_not_called_missing(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to(tmp_path / "a")
    disk = SystemDisk()
    with pytest.raises(OSError, match="symbolic links"):
        disk.exists(tmp_path / "a")
    (tmp_path / "b").write_bytes(b"")
    assert disk.exists(tmp_path / "b")
    assert not disk.exists(tmp_path / "c")
    assert not disk.exists(tmp_path / "b" / "c")


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
    monkeypatch.setattr(durable_files, "sync_folder", synced.append)
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


def test_a_new_file_is_named_durably_by_whichever_mapping_of_it_is_flushed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[Path] = []
    monkeypatch.setattr(durable_files, "sync_folder", synced.append)
    disk, path = SystemDisk(), tmp_path / "commitlog" / "00000000000000000000"
    ahead = disk.map(path, 4096)  # on a thread, which came too late
    own = disk.map(path, 4096)
    assert not own.flush_at_once(), "the folder is not synced yet"
    own.flush(0, 10)
    assert sorted(synced) == [tmp_path, path.parent]
    ahead.close()
    own.close()


def test_a_new_file_that_was_unmapped_unflushed_is_still_new_when_it_is_mapped_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[Path] = []
    monkeypatch.setattr(durable_files, "sync_folder", synced.append)
    disk, path = SystemDisk(), tmp_path / "0"
    disk.map(path, 4096).close()
    again = disk.map(path, 4096)
    again.flush(0, 10)
    assert synced == [tmp_path]
    again.close()


def test_a_file_that_was_deleted_asks_for_no_folder_any_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[Path] = []
    monkeypatch.setattr(durable_files, "sync_folder", synced.append)
    disk, path = SystemDisk(), tmp_path / "queue" / "0"
    region, beside = disk.map(path, 4096), disk.map(tmp_path / "queue" / "4096", 4096)
    disk.delete(path)
    disk.delete_tree(path.parent)
    synced.clear()
    region.flush(0, 10)  # nobody looks at what it wrote
    beside.flush(0, 10)
    assert synced == [] and not path.parent.exists()
    region.close()
    beside.close()


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


def elsewhere(code: str, path: Path) -> str:
    """The last line that code on `path` says in a process of its own, to which fcntl locks of this one are foreign."""
    head = "import pathlib, sys\nfrom maxq.runtime.files.system import SystemDisk\npath = pathlib.Path(sys.argv[1])\n"
    command = [sys.executable, "-c", head + code, str(path)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60, check=False)
    return done.stdout.splitlines()[-1]


def test_a_look_from_outside_sees_the_lock_of_another_process_and_leaves_it(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    lock = SystemDisk().lock(path, b"lock")
    assert elsewhere("print(SystemDisk().is_locked(path), SystemDisk().is_locked(path))", path) == "True True"
    lock.release()


def test_lock_is_held_against_other_processes(tmp_path: Path) -> None:
    lock = SystemDisk().lock(tmp_path / "lock", b"lock")
    assert elsewhere("SystemDisk().lock(path, b'lock')", tmp_path / "lock").startswith("BlockingIOError: ")
    lock.release()


def test_a_region_says_whether_its_pages_are_in_memory_and_reads_none_for_it(disk_path: Path) -> None:
    region = SystemDisk().map(disk_path / "file", 32 << 20)
    region.write(0, memoryview(b"x" * (32 << 20)))  # more than one look takes
    assert region.is_resident(100, 32 << 20)
    assert not region.is_resident(0, (32 << 20) + 1), "beyond the end there is nothing"
    region.flush(0, 32 << 20)
    region.forget(8 << 20, 24 << 20)
    assert not region.is_resident(10 << 20, 20 << 20)
    assert not region.is_resident(0, 32 << 20)
    assert region.is_resident(0, 4 << 20)
    assert not region.is_resident(16 << 20, (16 << 20) + 1), "whoever asked did not read it"
    region.close()
    assert not region.is_resident(0, 1)


def test_a_read_only_mapping_does_not_say_what_is_in_memory(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(8192))
    region = SystemDisk().map(tmp_path / "file", 8192, read_only=True)
    assert not region.is_resident(0, 1)
    region.close()


def test_a_mapped_file_that_is_dropped_without_closing_leaves_no_descriptor(tmp_path: Path) -> None:
    path = tmp_path / "dropped"
    region = SystemDisk().map(path, 4096)
    kept = region.view[:8]
    del region
    gc.collect()
    kept[:] = b"readers!"  # what readers hold stays mapped
    kept.release()
    gc.collect()
    open_files = [os.path.realpath(f"/proc/self/fd/{descriptor}") for descriptor in os.listdir("/proc/self/fd")]
    assert str(path) not in open_files


def test_mappings_leave_descriptors_for_what_makes_them_durable(tmp_path: Path) -> None:
    """With none left a broker could not sync the folders of its new queue files, nor unmap them after that."""
    limit, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    disk, mapped = SystemDisk(), list[SystemMappedRegion]()
    highest = max(map(int, os.listdir("/proc/self/fd")))
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 100, hard))
    try:
        with pytest.raises(OSError, match="raise the limit") as refused:
            for number in range(highest + 100):
                mapped.append(disk.map(tmp_path / str(number) / "0", 4096))
        assert refused.value.errno == errno.EMFILE
        assert not (tmp_path / str(len(mapped))).exists()  # nothing was made
        for region in mapped:
            region.view[0] = 1
            region.flush(0, 1)
            region.close()
        disk.map(tmp_path / "more" / "0", 4096).close()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
        for region in mapped:
            region.close()


def test_two_threads_may_make_a_new_file_durable_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    both = threading.Barrier(2, timeout=10)
    monkeypatch.setattr(durable_files, "sync_folder", lambda folder: both.wait())
    region = SystemDisk().map(tmp_path / "0", 4096)
    with ThreadPoolExecutor(2) as threads:
        for done in [threads.submit(region.flush, 0, 4096) for _ in range(2)]:
            done.result(timeout=20)
    region.flush(0, 4096)  # there is no folder left, so nobody waits
    region.close()


def test_a_folder_that_could_not_be_synced_is_synced_by_the_next_flush(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: list[Path] = []

    def sync(folder: Path) -> None:
        tries.append(folder)
        if len(tries) == 1:
            raise OSError(errno.EMFILE, "none left")

    region = SystemDisk().map(tmp_path / "new" / "0", 4096)
    monkeypatch.setattr(durable_files, "sync_folder", sync)
    with pytest.raises(OSError, match="none left"):
        region.flush(0, 1)
    region.flush(0, 1)
    assert tries[0] == tries[1] and set(tries) == {tmp_path / "new", tmp_path}
    region.close()
