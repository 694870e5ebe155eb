"""Syncing a file by somebody who runs on a loop: at once, by the kernel, or not without a thread."""

import asyncio
import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from maxq.runtime import kernel_sync
from maxq.runtime.kernel_sync import KernelSync
from maxq.runtime.loop_syncs import LoopSyncs
from maxq.runtime.system import SystemDisk

pytestmark = pytest.mark.skipif(not kernel_sync.IS_POSSIBLE, reason="Linux AIO is a matter of Linux")


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
from maxq.runtime.kernel_sync import KernelSync

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
        monkeypatch.setattr("maxq.runtime.loop_syncs.time.monotonic_ns", lambda: self.now_ns)
        monkeypatch.setattr("maxq.runtime.loop_syncs.os.fdatasync", self._sync)

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
