"""Segments that give way to what compaction made of them: every call to the disk fails once, or is the last one."""

import errno
import json
import zlib
from collections.abc import Callable
from pathlib import Path, PurePath
from typing import Any, Final

import pytest

from maxq.errors import StoreRefusedError
from maxq.protocol.message.message import decode_records
from maxq.runtime.files.system import SystemDisk
from maxq.store.compaction.replacement import QueueFolders, Replacement, committed
from maxq.store.context.store_context import StoreIdentity
from maxq.store.message_store import MessageStore
from maxq.store.store_results import GetMessageStatus
from maxq.testing.sim_clock import SimClock
from maxq.testing.sim_disk import PowerLoss, SimDisk
from maxq.testing.sim_rng import SimRng
from maxq.testing.simulation import SimWorld, run_simulation
from tests.unit.store.stores import message, small_config

ROUNDS: Final = 8
KEYS: Final = 5
Kept = list[tuple[int, str, bytes]]


def opened(world: SimWorld) -> MessageStore:
    config = small_config(Path("/store"), compaction_mapped_file_size=4_500, compaction_cq_mapped_file_size=920)
    store = MessageStore(
        config, disk=world.disk, clock=world.clock, broker=StoreIdentity(), memory_bytes=1 << 30, populate_ahead=0
    )
    store.load()
    store.compaction.topics.add("T")
    return store


def fill(store: MessageStore, rounds: int, first_key: int = 0) -> None:
    for number in range(rounds):
        for key in range(first_key, first_key + KEYS):
            assert store.put_message(message(body=b"%d-%d-%s" % (key, number, b"x" * 100), KEYS=f"key-{key}")).ok


def kept(store: MessageStore) -> Kept:
    """Everything a reader gets."""
    found: Kept = []
    offset = 0
    while True:
        result = store.get_message("g", "T", 0, offset, 32, None)
        if result.status is not GetMessageStatus.FOUND:
            return found
        for record in (r for buffer in result.buffers for r in decode_records(buffer, check_crc=True)):
            found.append((record.queue_offset, record.keys or "", record.body))
        offset = result.next_begin_offset


def newest(rows: Kept) -> dict[str, tuple[int, bytes]]:
    return {key: (offset, body) for offset, key, body in rows}


def is_compaction(path: str) -> bool:
    return "/compaction" in path


class FailsOnce:
    """The call of this number to files of compaction fails; `calls` counts them."""

    def __init__(self, call: int, number: int, *, lasts: bool = False) -> None:
        self._call = call
        self._number = number
        self._lasts = lasts
        self.calls = 0

    def __call__(self, kind: str, path: str) -> int:
        if not is_compaction(path):
            return 0
        self.calls += 1
        fails = self.calls > self._call if self._lasts else self.calls == self._call + 1
        return self._number if fails else 0


class DiesAt:
    """The process dies, or the machine, at the call of this number to files of compaction."""

    def __init__(self, disk: SimDisk, call: int, *, kills: bool) -> None:
        self._disk = disk
        self._left = call
        self._kills = kills

    def __call__(self, kind: str, path: str) -> int:
        if is_compaction(path):
            self._left -= 1
            if self._left < 0:
                if self._kills:
                    self._disk.kill_process()
                else:
                    self._disk.cut_power()
                raise PowerLoss
        return 0


def prepared(clock: SimClock) -> tuple[SimDisk, Kept]:
    """A store with something to compact, and what a reader gets of it."""
    disk = SimDisk(SimRng(1), clock, write_back=0.0, kill_keeps_cache=True)
    rows: Kept = []

    async def main(world: SimWorld) -> None:
        store = opened(world)
        fill(store, ROUNDS)
        rows.extend(kept(store))
        await store.shutdown()

    run_simulation(main, seed=1, disk=disk, clock=clock)
    return disk, rows


async def compacts(store: MessageStore) -> bool:
    await store.flush()
    store.compaction.current("T", 0)
    return await store.compaction.compact("T", 0)


def until_the_last_call(life: Callable[[int], bool]) -> int:
    """Live with the call 0, 1, 2 … in trouble until one comes through; how many there are."""
    number = 0
    while not life(number):
        number += 1
        assert number < 1_000
    return number


def after_a_start(disk: SimDisk, clock: SimClock, rows: Kept, **expected: Any) -> None:
    """Nothing is lost, the replacement is at its end, and the next one does its work."""

    async def main(world: SimWorld) -> None:
        store = opened(world)
        found = kept(store)
        assert newest(found) == newest(rows)
        assert not world.disk.paths("*replacing-*.json") and not world.disk.paths("*compacting-*")
        await compacts(store)
        again = kept(store)
        assert newest(again) == newest(rows)
        assert len(again) < len(rows)
        fill(store, 1)
        assert newest(kept(store)).keys() == newest(rows).keys()
        await store.shutdown()

    run_simulation(main, seed=2, disk=disk, clock=clock)


@pytest.mark.parametrize("kills", [True, False], ids=["kill", "power loss"])
def test_whichever_call_is_the_last_one_no_key_is_lost(kills: bool) -> None:
    clock = SimClock()
    start, rows = prepared(clock)

    def life(number: int) -> bool:
        disk = start.boot()
        ended = False

        async def main(world: SimWorld) -> None:
            nonlocal ended
            store = opened(world)
            store.compaction.current("T", 0)
            world.disk.faults = DiesAt(world.disk, number, kills=kills)
            assert await store.compaction.compact("T", 0)
            ended = True
            world.disk.cut_power()
            raise PowerLoss

        with pytest.raises(PowerLoss):
            run_simulation(main, seed=number, disk=disk, clock=clock)
        after_a_start(disk.boot(), clock, rows)
        return ended

    assert until_the_last_call(life) > 20


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO], ids=["ENOSPC", "EIO"])
@pytest.mark.parametrize("ending", ["goes on", "kill", "power loss"])
def test_whichever_call_fails_no_key_is_lost(number: int, ending: str) -> None:
    clock = SimClock()
    start, rows = prepared(clock)

    def life(call: int) -> bool:
        disk = start.boot()
        faults = FailsOnce(call, number, lasts=ending != "goes on")

        async def main(world: SimWorld) -> None:
            store = opened(world)
            store.compaction.current("T", 0)
            world.disk.faults = faults
            try:
                await store.compaction.compact("T", 0)
            except OSError:
                assert newest(kept(store)) == newest(rows)
            if ending == "goes on":
                world.disk.faults = lambda kind, path: 0
                fill(store, ROUNDS)
                await compacts(store)  # what was begun is finished, then the rest
                assert newest(kept(store)) == {key: (offset + ROUNDS * KEYS, body)
                                               for key, (offset, body) in newest(rows).items()}  # fmt: skip
                await store.shutdown()
                return
            if ending == "kill":
                world.disk.kill_process()
            else:
                world.disk.cut_power()
            raise PowerLoss

        if ending == "goes on":
            run_simulation(main, seed=call, disk=disk, clock=clock)
            return faults.calls <= call
        with pytest.raises(PowerLoss):
            run_simulation(main, seed=call, disk=disk, clock=clock)
        after_a_start(disk.boot(), clock, rows)
        return faults.calls <= call

    assert until_the_last_call(life) > 20


@pytest.mark.parametrize("kills", [True, False], ids=["kill", "power loss"])
def test_a_replacement_that_could_not_be_forgotten_is_not_mixed_with_the_next_one(kills: bool) -> None:
    """The disk is full while positions are written, has room again, and the next compaction is killed at any call."""
    clock = SimClock()
    start, rows = prepared(clock)

    def life(number: int) -> bool:
        disk = start.boot()
        ended = False
        after: Kept = []

        async def main(world: SimWorld) -> None:
            nonlocal ended
            store = opened(world)
            store.compaction.current("T", 0)
            world.disk.faults = lambda kind, path: errno.ENOSPC if "position-checkpoint" in path else 0
            with pytest.raises(OSError, match="No space"):
                await store.compaction.compact("T", 0)
            world.disk.faults = lambda kind, path: 0
            fill(store, ROUNDS, first_key=KEYS)
            after.extend(kept(store))
            await store.flush()
            world.disk.faults = DiesAt(world.disk, number, kills=kills)
            await store.compaction.compact("T", 0)
            ended = True
            world.disk.kill_process()
            raise PowerLoss

        with pytest.raises(PowerLoss):
            run_simulation(main, seed=number, disk=disk, clock=clock)
        after_a_start(disk.boot(), clock, after or rows)
        return ended

    assert until_the_last_call(life) > 20


def test_a_replacement_says_what_it_replaces_and_a_damaged_one_is_refused(tmp_path: Path) -> None:
    disk = SystemDisk()
    folders = QueueFolders(PurePath(tmp_path), "T", 3)
    for folder in (folders.log, folders.units):
        (tmp_path / folder / "compacting-17").mkdir(parents=True)
        (tmp_path / folder / "compacting-17" / f"{0:020}").write_bytes(b"new")
        for base in (0, 4_600):
            (tmp_path / folder / f"{base:020}").write_bytes(b"old")
    Replacement.of_written(disk, folders, (0, 4_600), (0,), 17).commit(disk)
    crc = zlib.crc32(b"new")
    note = json.loads((tmp_path / "replacing-T-3.json").read_text())
    assert json.loads(note["body"]) == {"old": [0, 4_600], "new": [[0, crc, crc]], "position": 17}
    assert note["crc"] == zlib.crc32(note["body"].encode())
    found = committed(disk, folders)
    assert found is not None
    made = tmp_path / folders.log / "compacting-17" / f"{0:020}"
    made.write_bytes(b"neW")
    with pytest.raises(StoreRefusedError, match="not as it was written"):
        found.finish(disk)
    assert (tmp_path / folders.log / f"{4_600:020}").exists()
    made.write_bytes(b"new")
    found.finish(disk)
    found.finish(disk)
    assert [path.name for path in sorted((tmp_path / folders.log).iterdir())] == [f"{0:020}"]
    assert (tmp_path / folders.log / f"{0:020}").read_bytes() == b"new"
    (tmp_path / "replacing-T-3.json").write_text('{"old": [0, 4600], "new": [0], "position": 17}')
    with pytest.raises(StoreRefusedError, match="cannot be read"):
        committed(disk, folders)
