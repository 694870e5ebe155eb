"""Durable files: what a failed sync means, and who syncs a file for a loop: the loop, the kernel, or a thread."""

import asyncio
import errno
import os
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from maxq.runtime.files import kernel_sync
from maxq.runtime.files.durable_files import DurableFiles, LoopSyncs
from maxq.runtime.files.kernel_sync import KernelSync
from maxq.runtime.files.system import SystemDisk
from maxq.runtime.interfaces import SyncFailedError

pytestmark = pytest.mark.skipif(not kernel_sync.IS_POSSIBLE, reason="Linux AIO is a matter of Linux")

DURABLE = "maxq.runtime.files.durable_files"


@pytest.fixture
def fd(tmp_path: Path) -> Iterator[int]:
    fd = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    os.write(fd, b"something")
    yield fd
    os.close(fd)


class Ends:
    """Hears the ends of syncs."""

    def __init__(self) -> None:
        self.heard: list[OSError | None] = []
        self._event = asyncio.Event()

    def __call__(self, error: OSError | None) -> None:
        self.heard.append(error)
        self._event.set()

    async def wait(self, count: int) -> None:
        while len(self.heard) < count:
            self._event.clear()
            await asyncio.wait_for(self._event.wait(), 10)


def possible(sync: KernelSync, fd: int, ends: Ends) -> None:
    if not sync.begin(fd, ends):
        pytest.skip("this kernel, or sandbox, refuses Linux AIO")


async def test_the_kernel_syncs_and_tells_the_loop_but_never_from_within(fd: int) -> None:
    sync, ends = KernelSync(), Ends()
    possible(sync, fd, ends)
    assert ends.heard == []
    assert sync.begin(fd, ends)
    await ends.wait(2)
    assert ends.heard == [None, None]


async def test_what_cannot_be_synced_is_not_begun(fd: int) -> None:
    sync, ends = KernelSync(), Ends()
    possible(sync, fd, ends)
    reader, writer = os.pipe()
    assert not sync.begin(writer, ends)
    os.close(reader)
    os.close(writer)
    await ends.wait(1)
    assert ends.heard == [None]


async def test_a_descriptor_may_be_closed_while_it_is_synced(tmp_path: Path) -> None:
    sync, ends = KernelSync(), Ends()
    other = os.open(tmp_path / "other", os.O_RDWR | os.O_CREAT)
    os.write(other, bytes(1 << 20))
    possible(sync, other, ends)
    os.close(other)
    await ends.wait(1)
    assert ends.heard == [None]


LOOPS = """
import asyncio, gc, os, sys
from maxq.runtime.files.kernel_sync import KernelSync

sync, fd = KernelSync(), os.open(sys.argv[1], os.O_RDWR)

async def once():
    ended = asyncio.get_running_loop().create_future()
    if not sync.begin(fd, ended.set_result):
        sys.exit("refused")
    assert await asyncio.wait_for(ended, 10) is None

counts = []
for _ in range(4):
    asyncio.run(once())
    gc.collect()
    counts.append(len(os.listdir("/proc/self/fd")))
print(counts[0] == counts[-1] or counts)
"""


def test_each_loop_hears_of_its_own_syncs_and_nothing_is_left_open(tmp_path: Path) -> None:
    """In a process of its own: what other tests left behind is closed at any moment."""
    (tmp_path / "file").write_bytes(b"something")
    command = (sys.executable, "-c", LOOPS, str(tmp_path / "file"))
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if ran.stderr.strip() == "refused":
        pytest.skip("this kernel, or sandbox, refuses Linux AIO")
    assert (ran.stdout, ran.stderr) == ("True\n", "")


def test_without_a_loop_nothing_is_begun(fd: int) -> None:
    assert not KernelSync().begin(fd, lambda error: None)


async def test_more_than_the_kernel_was_asked_to_keep_get_a_thread(fd: int) -> None:
    sync, ends = KernelSync(), Ends()
    possible(sync, fd, ends)
    begun = 1 + sum(sync.begin(fd, ends) for _ in range(2 * kernel_sync._MOST))
    assert begun <= kernel_sync._MOST
    await ends.wait(begun)
    assert sync.begin(fd, ends)
    await ends.wait(begun + 1)


async def test_a_kernel_that_refuses_is_not_asked_again(fd: int, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def refuse(which: int, *arguments: object) -> int:
        asked.append(which)
        return -1

    monkeypatch.setattr(kernel_sync, "_call", refuse)
    sync = KernelSync()
    assert not sync.begin(fd, lambda error: None)
    assert not sync.begin(fd, lambda error: None)
    assert asked == [0]


class Time:
    """Stands still, but for what a sync takes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_ns = 10**15
        self.takes_ns = 200_000
        self.syncs = 0
        monkeypatch.setattr("maxq.runtime.files.durable_files.time.monotonic_ns", lambda: self.now_ns)
        monkeypatch.setattr("maxq.runtime.files.durable_files.os.fdatasync", self._sync)

    def _sync(self, fd: int) -> None:
        self.syncs += 1
        self.now_ns += self.takes_ns


def test_a_loop_waits_for_the_disk_during_a_third_of_the_time_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    time, syncs = Time(monkeypatch), LoopSyncs()
    began = time.now_ns
    for _ in range(100_000):
        syncs.at_once(0)
        time.now_ns += 10_000
    waited = time.syncs * time.takes_ns
    assert 0.3 < waited / (time.now_ns - began) < 0.35


def test_a_single_sender_with_a_quick_disk_is_always_served_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    time, syncs = Time(monkeypatch), LoopSyncs()
    for _ in range(10_000):
        assert syncs.at_once(0)
        time.now_ns += 500_000


@pytest.mark.parametrize("takes_ms", [3, 10, 50])
def test_a_loop_hardly_ever_waits_for_a_slow_disk(monkeypatch: pytest.MonkeyPatch, takes_ms: int) -> None:
    time, syncs = Time(monkeypatch), LoopSyncs()
    time.takes_ns = takes_ms * 1_000_000
    began = time.now_ns
    for _ in range(100_000):
        syncs.at_once(0)
        time.now_ns += 100_000
    assert time.syncs > 1
    assert time.syncs * time.takes_ns < 0.04 * (time.now_ns - began)


def test_after_one_slow_sync_a_quick_disk_is_soon_trusted_again(monkeypatch: pytest.MonkeyPatch) -> None:
    time, syncs = Time(monkeypatch), LoopSyncs()
    time.takes_ns = 2_000_000
    assert syncs.at_once(0)
    time.takes_ns = 200_000
    time.now_ns += 55_000_000
    assert not syncs.at_once(0)
    time.now_ns += 10_000_000
    assert syncs.at_once(0)


def test_a_refusal_of_the_device_is_told(fd: int) -> None:
    reader, writer = os.pipe()
    try:
        with pytest.raises(OSError) as refused:
            LoopSyncs().at_once(writer)
        assert refused.value.errno == errno.EINVAL
    finally:
        os.close(reader)
        os.close(writer)


async def test_a_new_file_whose_name_is_not_durable_yet_needs_a_thread(tmp_path: Path) -> None:
    ends = Ends()
    region = SystemDisk().map(tmp_path / "folder" / "file", 4096)
    assert not region.flush_at_once()
    assert not region.flush_soon(ends)
    region.flush(0, 1)
    assert region.flush_at_once()
    if region.flush_soon(ends):
        await ends.wait(1)
    region.close()


class Device:
    """Refuses syncs while it is `broken`; counts those it did."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.broken = False
        self.syncs = 0
        monkeypatch.setattr(f"{DURABLE}.os.fdatasync", self._sync)

    def _sync(self, fd: int) -> None:
        if self.broken:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        self.syncs += 1


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Device:
    return Device(monkeypatch)


def test_a_failed_sync_stays_failed_through_every_mapping_of_the_file(tmp_path: Path, device: Device) -> None:
    disk, path = SystemDisk(), tmp_path / "log"
    asked, beside = disk.map(path, 8192), disk.map(path, 8192)
    asked.flush(0, 1)
    device.broken = True
    with pytest.raises(SyncFailedError, match="Input/output error"):
        asked.flush(0, 1)
    device.broken = False
    asked.close()
    for region in (beside, disk.map(path, 8192)):
        with pytest.raises(SyncFailedError, match="has failed before"):
            region.flush(4096, 4097)
        with pytest.raises(SyncFailedError, match="has failed before"):
            region.flush_at_once()
        assert not region.flush_soon(lambda error: None)
    disk.map(tmp_path / "other", 4096).flush(0, 1)


def test_what_was_written_again_is_synced_again(tmp_path: Path, device: Device) -> None:
    disk = SystemDisk()
    region = disk.map(tmp_path / "log", 3 << 20)
    region.view[5000:5004] = b"data"
    region.view[-4:] = b"last"
    device.broken = True
    with pytest.raises(SyncFailedError):
        region.flush(0, 1)
    device.broken = False
    region.write_again(5000, 3 << 20)
    region.flush(0, 1)
    assert (bytes(region.view[5000:5004]), bytes(region.view[-4:])) == (b"data", b"last")
    assert region.data_ranges(0, 3 << 20) == [(4096, 8192), ((3 << 20) - 4096, 3 << 20)], "holes stay holes"
    region.close()


async def test_a_sync_by_the_kernel_that_fails_is_as_final(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: KernelSync, fd: int, done: Callable[[OSError | None], None]) -> bool:
        asyncio.get_running_loop().call_soon(done, OSError(errno.EIO, os.strerror(errno.EIO)))
        return True

    region, ends = SystemDisk().map(tmp_path / "log", 4096), Ends()
    region.flush(0, 1)
    monkeypatch.setattr(KernelSync, "begin", refuse)
    assert region.flush_soon(ends)
    assert region.flush_soon(ends)
    await ends.wait(2)
    assert [type(error) for error in ends.heard] == [SyncFailedError, SyncFailedError]
    with pytest.raises(SyncFailedError):
        region.flush(0, 1)


def test_a_file_that_was_deleted_takes_its_failure_with_it(tmp_path: Path, device: Device) -> None:
    disk, path = SystemDisk(), tmp_path / "log"
    region = disk.map(path, 4096)
    device.broken = True
    with pytest.raises(SyncFailedError):
        region.flush(0, 1)
    device.broken = False
    disk.delete(path)
    disk.map(path, 4096).flush(0, 1)


def test_a_table_whose_sync_failed_may_be_written_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A replacement is written as a whole each time."""
    disk, path, real = SystemDisk(), tmp_path / "table", os.fsync

    def refuse(fd: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    disk.replace(path, b"old")
    monkeypatch.setattr(f"{DURABLE}.os.fsync", refuse)
    with pytest.raises(OSError):
        disk.replace(path, b"new")
    assert disk.read(path) == b"old"
    monkeypatch.setattr(f"{DURABLE}.os.fsync", real)
    disk.replace(path, b"new")
    assert disk.read(path) == b"new"


@pytest.mark.parametrize(("can_exchange", "can_link"), [(True, True), (False, True), (False, False)])
def test_a_table_is_replaced_in_the_blocks_of_a_spare_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, can_exchange: bool, can_link: bool
) -> None:
    """Its own blocks are spare then, for the next time."""

    def refuse(source: object, target: object) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM), str(source), None, str(target))

    disk, path, spare = SystemDisk(), tmp_path / "table", tmp_path / "spare"
    disk.replace(path, b"old")
    disk.write(spare, bytes(4096))
    blocks = {path.stat().st_ino, spare.stat().st_ino}
    if not can_exchange:
        monkeypatch.setattr(f"{DURABLE}._renameat2", None)
    if not can_link:
        monkeypatch.setattr(f"{DURABLE}.os.link", refuse)
    disk.replace_with(path, b"newer", spare=spare)
    assert disk.read(path) == b"newer"
    assert {one.name for one in tmp_path.iterdir()} == ({"table", "spare"} if can_link else {"table"})
    if can_link:
        assert spare.read_bytes() == b"old"
        assert {path.stat().st_ino, spare.stat().st_ino} == blocks
        with pytest.raises(OSError, match="No space left"):
            disk.replace_with(path, bytes(100_000), spare=spare)
        assert disk.read(path) == b"newer"


@pytest.mark.parametrize("can_exchange", [True, False])
def test_a_spare_file_becomes_a_file_that_is_not_there_yet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, can_exchange: bool
) -> None:
    disk, path, spare = SystemDisk(), tmp_path / "table", tmp_path / "spare"
    disk.write(spare, bytes(4096))
    if not can_exchange:
        monkeypatch.setattr(f"{DURABLE}._renameat2", None)
    disk.replace_with(path, b"new", spare=spare)
    assert disk.read(path) == b"new"
    assert {one.name for one in tmp_path.iterdir()} == {"table"}


def test_a_rename_syncs_both_folders_and_a_new_file_all_folders_that_were_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[Path] = []
    monkeypatch.setattr(f"{DURABLE}.sync_folder", synced.append)
    files = DurableFiles()
    files.replace(tmp_path / "a" / "b" / "file", b"1")
    assert set(synced) == {tmp_path, tmp_path / "a", tmp_path / "a" / "b"}
    synced.clear()
    files.rename(tmp_path / "a" / "b" / "file", tmp_path / "file")
    assert set(synced) == {tmp_path, tmp_path / "a" / "b"}


def test_a_partial_write_is_gone_on_with_and_one_that_takes_nothing_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, most = os.pwrite, 3
    monkeypatch.setattr(f"{DURABLE}.os.pwrite", lambda fd, data, at: real(fd, data[:most], at))
    region = SystemDisk().map(tmp_path / "log", 4096)
    region.write(10, memoryview(b"0123456789"))
    assert bytes(region.view[10:20]) == b"0123456789"
    most = 0
    with pytest.raises(OSError, match="took nothing of 10 bytes"):
        region.write(10, memoryview(b"0123456789"))
    region.close()


def test_a_table_is_whole_after_partial_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.write
    monkeypatch.setattr(f"{DURABLE}.os.write", lambda fd, data: real(fd, data[:2]))
    SystemDisk().replace(tmp_path / "table", b"0123456789")
    assert (tmp_path / "table").read_bytes() == b"0123456789"


def test_only_one_of_two_makes_a_new_file(tmp_path: Path) -> None:
    files, path = DurableFiles(), tmp_path / "manifest"
    assert files.put_new(path, b"first", temporary=tmp_path / "1.tmp")
    assert not files.put_new(path, b"second", temporary=tmp_path / "2.tmp")
    assert [file.name for file in tmp_path.iterdir()] == ["manifest"]
    assert path.read_bytes() == b"first"


def test_what_is_appended_follows_what_was_there(tmp_path: Path) -> None:
    files = DurableFiles()
    files.append(tmp_path / "new" / "journal", b"1")
    files.append(tmp_path / "new" / "journal", b"2")
    assert (tmp_path / "new" / "journal").read_bytes() == b"12"


def test_a_file_that_cannot_be_written_is_named() -> None:
    with pytest.raises(OSError, match=r"No space left on device: '/dev/full'"):
        DurableFiles().write(Path("/dev/full"), b"x")


def test_a_file_is_replaced_where_files_have_no_owners_that_can_be_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise OSError(errno.EINVAL, "as for an id that the user namespace does not have")

    path = tmp_path / "file"
    path.write_bytes(b"before")
    path.chmod(0o640)
    monkeypatch.setattr(os, "fchown", refused)
    DurableFiles().replace(path, b"after")
    assert (path.read_bytes(), stat.S_IMODE(path.stat().st_mode)) == (b"after", 0o640)


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o666])
def test_a_file_that_is_replaced_stays_open_to_the_same_users(tmp_path: Path, mode: int) -> None:
    """A settings file with passwords is written again when a setting changes."""
    path, left_behind = tmp_path / "broker.conf", tmp_path / "broker.conf.tmp"
    path.write_text("before")
    path.chmod(mode)
    left_behind.write_text("of a crash")
    left_behind.chmod(0o644)
    SystemDisk().replace(path, b"after")
    assert (path.read_bytes(), stat.S_IMODE(path.stat().st_mode)) == (b"after", mode)


def test_a_file_whose_predecessor_has_become_its_bak_stays_open_to_the_same_users(tmp_path: Path) -> None:
    path, backup = tmp_path / "topics.json", tmp_path / "topics.json.bak"
    path.write_text("before")
    path.chmod(0o600)
    SystemDisk().replace(backup, b"before")
    assert stat.S_IMODE(backup.stat().st_mode) == 0o600
    path.unlink()
    SystemDisk().replace(path, b"after")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_file_that_takes_the_blocks_of_another_keeps_its_permissions(tmp_path: Path) -> None:
    path, spare = tmp_path / "file", tmp_path / "file.room"
    path.write_text("before")
    path.chmod(0o600)
    spare.write_bytes(bytes(4096))
    SystemDisk().replace_with(path, b"after", spare=spare)
    assert (path.read_bytes(), stat.S_IMODE(path.stat().st_mode)) == (b"after", 0o600)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
@pytest.mark.parametrize("is_new", [True, False])
def test_a_private_file_that_root_writes_is_of_the_user_whose_folder_it_is_in(tmp_path: Path, is_new: bool) -> None:
    """An administrator writes it; the broker's user is to read it."""
    folder = tmp_path / "config"
    folder.mkdir()
    path = folder / "users.json"
    if not is_new:
        path.write_text("before")
    for one in (folder, path):
        if one.exists():
            os.chown(one, 4321, 8765)
    SystemDisk().replace(path, b"after", private=True)
    facts = path.stat()
    assert (facts.st_uid, facts.st_gid, stat.S_IMODE(facts.st_mode)) == (4321, 8765, 0o600)
