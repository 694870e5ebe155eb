"""Residence is asked for once in a while, and the bytes that a reader needs next are read ahead."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from maxq.runtime.files.system import SystemDisk, SystemMappedRegion
from maxq.store.context.store_context import StoreContext, StoreIdentity
from maxq.store.files.mapped_file import MappedFile
from maxq.store.files.page_cache_probe import PageCacheProbe
from tests.unit.store.stores import TestClock, small_config

KIB, MIB = 1 << 10, 1 << 20
SIZE = 8 * MIB


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - threads set nothing on the loop
            await asyncio.sleep(0.001)


class Folder:
    def __init__(self, path: Path) -> None:
        self._path = path

    def path_of(self, name: str) -> Path:
        return self._path / name


@pytest.fixture
def clock() -> TestClock:
    return TestClock()


@pytest.fixture
def context(tmp_path: Path, clock: TestClock) -> StoreContext:
    return StoreContext(small_config(tmp_path), SystemDisk(), clock, StoreIdentity())


@pytest.fixture
def probe(context: StoreContext) -> PageCacheProbe:
    return PageCacheProbe(context)


@pytest.fixture
def file(context: StoreContext, tmp_path: Path) -> MappedFile:
    return MappedFile(context.disk, Folder(tmp_path), 0, SIZE)


class Kernel:
    """Stands for the kernel: says which pages are in memory, and records questions and reads.

    Attributes:
        missing: positions from which on nothing is in memory.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.missing = SIZE
        self.asked: list[tuple[int, int]] = []
        self.loaded: list[tuple[int, int]] = []
        monkeypatch.setattr(SystemMappedRegion, "is_resident", lambda region, start, end: self._is_there(start, end))
        monkeypatch.setattr(SystemMappedRegion, "load", lambda region, start, end: self.loaded.append((start, end)))

    def _is_there(self, start: int, end: int) -> bool:
        self.asked.append((start, end))
        return end <= self.missing


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Kernel:
    return Kernel(monkeypatch)


def test_a_stretch_is_asked_for_at_a_time_and_again_after_a_moment(
    probe: PageCacheProbe, file: MappedFile, clock: TestClock, kernel: Kernel
) -> None:
    kernel.missing = 768 * KIB
    assert probe.holds(file, 10, 300_000, SIZE)
    assert kernel.asked == [(0, 256 * KIB), (256 * KIB, 512 * KIB)]
    clock.now_ms += 99
    assert probe.holds(file, 200_000, 500_000, SIZE)
    assert len(kernel.asked) == 2
    assert not probe.holds(file, 500_000, 800_000, SIZE)
    clock.now_ms += 1
    assert probe.holds(file, 10, 20, SIZE)
    assert kernel.asked[-1] == (0, 256 * KIB)


def test_of_a_stretch_that_is_there_in_part_the_part_counts_and_nothing_that_is_not_written(
    probe: PageCacheProbe, file: MappedFile, kernel: Kernel
) -> None:
    kernel.missing = 100 * KIB
    assert probe.holds(file, 50 * KIB, 90 * KIB, SIZE)
    assert not probe.holds(file, 50 * KIB, 101 * KIB, SIZE)
    assert probe.holds(file, 50 * KIB, 100 * KIB, 100 * KIB)
    assert kernel.asked[-1] == (0, 100 * KIB)


async def test_who_goes_on_reading_has_the_log_read_ahead(
    probe: PageCacheProbe, file: MappedFile, context: StoreContext, kernel: Kernel
) -> None:
    kernel.missing = 0
    written = 5 * MIB - 1
    probe.read_on(file, 2 * MIB + 5, 2 * MIB + 9000, 32, written)  # who is there for the first time may leave again
    await until(lambda: kernel.loaded == [(2 * MIB, 3 * MIB)])
    probe.read_on(file, 2 * MIB + 9000, 2 * MIB + 18_000, 32, written)
    await until(lambda: sorted(kernel.loaded) == [(at * MIB, min(at * MIB + MIB, written)) for at in (2, 3, 4)])
    probe.read_on(file, 2 * MIB + 18_000, 2 * MIB + 27_000, 32, written)
    await context.jobs.close()
    assert len(kernel.loaded) == 3, "nothing twice"
    assert probe.is_coming(file, 2 * MIB + 18_000, 5 * MIB - 1)
    assert not probe.is_coming(file, 2 * MIB - 1, 3 * MIB)


async def test_what_was_read_ahead_long_ago_is_read_again(
    probe: PageCacheProbe, file: MappedFile, clock: TestClock, kernel: Kernel
) -> None:
    kernel.missing = 0
    probe.read_on(file, 0, 9000, 32, SIZE)
    clock.now_ms += 10_000
    assert not probe.is_coming(file, 0, 9000)
    probe.read_on(file, 0, 9000, 32, MIB)
    await until(lambda: kernel.loaded == [(0, MIB)] * 2)


async def test_what_is_in_memory_and_what_lies_between_far_messages_is_not_read(
    probe: PageCacheProbe, file: MappedFile, context: StoreContext, kernel: Kernel
) -> None:
    for _ in range(2):
        probe.read_on(file, 0, 9000, 32, SIZE)
    kernel.missing = 0
    for _ in range(2):
        probe.read_on(file, 4 * MIB, 4 * MIB + 2 * 64 * KIB + 1, 2, SIZE)
    await context.jobs.close()
    assert kernel.loaded == []


async def test_half_of_the_threads_stay_free_for_those_who_wait(
    probe: PageCacheProbe, file: MappedFile, context: StoreContext, kernel: Kernel
) -> None:
    kernel.missing = 0
    for at in range(6):
        probe.read_on(file, at * MIB, at * MIB + 9000, 32, SIZE)
    await until(lambda: len(kernel.loaded) == 4)
    probe.read_on(file, 5 * MIB, 5 * MIB + 9000, 32, SIZE)
    await context.jobs.close()
    assert len(kernel.loaded) in (4, 5)
    assert not probe.is_coming(file, 4 * MIB, 5 * MIB)


async def test_a_chunk_that_the_disk_cannot_read_is_read_ahead_once_and_is_not_coming(
    probe: PageCacheProbe,
    file: MappedFile,
    context: StoreContext,
    clock: TestClock,
    kernel: Kernel,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def load(region: SystemMappedRegion, start: int, end: int) -> None:
        kernel.loaded.append((start, end))
        if start == MIB:
            raise OSError(5, "the device cannot read it")

    kernel.missing = 0
    monkeypatch.setattr(SystemMappedRegion, "load", load)
    for _ in range(6):
        probe.read_on(file, 0, 9000, 32, SIZE)
    await until(lambda: bool(file.pages.failed) and len(kernel.loaded) == 3)
    assert sorted(kernel.loaded) == [(at * MIB, at * MIB + MIB) for at in (0, 1, 2)]
    assert [probe.is_coming(file, at * MIB, at * MIB + 9000) for at in (0, 1, 2)] == [True, False, True]
    assert not probe.is_coming(file, MIB - 1, MIB + 9000), "a part of it is"
    clock.now_ms += 10_000
    probe.read_on(file, MIB, MIB + 9000, 32, SIZE)
    await context.jobs.close()
    assert kernel.loaded.count((MIB, 2 * MIB)) == 1


async def test_what_is_noted_of_a_files_pages_has_a_bound(
    context: StoreContext, probe: PageCacheProbe, tmp_path: Path, kernel: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load(region: SystemMappedRegion, start: int, end: int) -> None:
        raise OSError(5, "the device cannot read it")

    log = MappedFile(context.disk, Folder(tmp_path), 0, 1 << 30)
    kernel.missing = log.file_size
    for at in range(0, log.file_size, MIB):
        assert probe.holds(log, at, at + MIB, log.file_size)
        probe.read_on(log, at, at + 9000, 32, log.file_size)
        assert probe.is_coming(log, at, at + 9000)
    assert max(len(log.pages.seen_ms), len(log.pages.asked_ms)) <= 256
    monkeypatch.setattr(SystemMappedRegion, "load", load)
    kernel.missing = 0
    for at in range(100):
        probe.read_on(log, at * MIB, at * MIB + 9000, 32, log.file_size)
        await until(lambda at=at: at * MIB in log.pages.failed)  # type: ignore[misc]
    assert len(log.pages.failed) <= 64
