"""A table that changes all the time is written when it changed, and again when the disk refused."""

import asyncio
import time
from pathlib import Path, PurePath
from typing import Any

import pytest

from maxq.broker.tables.persistent_manager import PeriodicManager, PersistentManager
from maxq.runtime.files.system import SystemDisk
from maxq.testing.sim_clock import SimClock
from maxq.testing.sim_disk import SimDisk
from maxq.testing.sim_rng import SimRng
from maxq.testing.simulation import SimWorld, run_simulation


class Counts(PeriodicManager):
    def __init__(self, path: Path) -> None:
        super().__init__(SystemDisk(), path)
        self.counts: dict[str, int] = {}

    def set(self, name: str, count: int) -> None:
        self.counts = self.counts | {name: count}
        self._is_dirty = True

    def to_json(self) -> dict[str, Any]:
        return dict(self.counts)

    def from_json(self, value: dict[str, Any]) -> None:
        self.counts = value


def loaded(path: Path) -> dict[str, int]:
    table = Counts(path)
    table.load()
    return table.counts


def test_only_a_table_that_changed_is_written(tmp_path: Path) -> None:
    path = tmp_path / "counts.json"
    table = Counts(path)
    table.persist()
    assert not path.exists()
    table.set("a", 1)
    table.persist()
    assert loaded(path) == {"a": 1}
    path.unlink()
    table.persist()
    assert not path.exists()
    table.set("b", 2)
    table.persist()
    assert loaded(path) == {"a": 1, "b": 2}


def test_what_the_disk_refused_is_written_by_the_next_call(tmp_path: Path) -> None:
    folder = tmp_path / "config"
    folder.write_text("where a folder should be")
    table = Counts(folder / "counts.json")
    table.set("a", 1)
    for _ in range(2):
        with pytest.raises(OSError):
            table.persist()
    folder.unlink()
    folder.mkdir()
    table.persist()
    assert loaded(folder / "counts.json") == {"a": 1}


class Names(PersistentManager):
    """A table that is written at each change."""

    names: dict[str, Any]

    def to_json(self) -> dict[str, Any]:
        return dict(self.names)

    def from_json(self, value: dict[str, Any]) -> None:
        self.names = value


def test_a_table_that_found_no_room_is_written_when_there_is_some_and_the_old_one_is_whole_meanwhile() -> None:
    clock = SimClock()
    disk = SimDisk(SimRng(1), clock, total_bytes=100_000, write_back=0)
    path = PurePath("config/names.json")

    def stored() -> dict[str, Any]:
        table = Names(disk, path)
        table.names = {}
        table.load()
        return table.names

    async def main(world: SimWorld) -> None:
        table = Names(disk, path)
        table.names = {"a": 1}
        table.request_persist()
        await table.persisted()
        disk.other_bytes = 99_999
        table.names = {"a": 1, "b": 2}
        table.request_persist()
        with pytest.raises(OSError, match="No space left"):
            await table.persisted()
        assert stored() == {"a": 1}
        await asyncio.sleep(5)
        disk.other_bytes = 0
        await asyncio.sleep(2)
        assert stored() == {"a": 1, "b": 2}

    run_simulation(main, seed=1, disk=disk, clock=clock)


class Slow(Names):
    """Each write takes longer than others need for the next change."""

    def _persist_now(self) -> None:
        time.sleep(0.02)
        super()._persist_now()


async def test_who_waits_for_a_change_does_not_wait_for_those_that_others_make_meanwhile(tmp_path: Path) -> None:
    table = Slow(SystemDisk(), tmp_path / "names.json")
    table.names = {}
    waits = asyncio.Event()

    async def change_all_the_time() -> int:
        number = 0
        while not waits.is_set():
            number += 1
            table.names = {"number": number}
            table.request_persist()
            await asyncio.sleep(0.001)
        return number

    changing = asyncio.create_task(change_all_the_time())
    await asyncio.sleep(0.1)
    async with asyncio.timeout(20):
        await table.persisted()
    waits.set()
    last = await changing
    await table.persisted()
    again = Names(SystemDisk(), tmp_path / "names.json")
    again.load()
    assert again.names == {"number": last}
