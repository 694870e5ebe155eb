"""Repair writes into files of the log that group commits rely on: a sync of its own that fails is theirs, too."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path, PurePath

import pytest

from maxq.config.message_store_config import MessageStoreConfig
from maxq.errors import LogRangeNotServedError, StoreFailedError
from maxq.protocol.message.message import decode_records
from maxq.replication.ha import repair as repair_module
from maxq.replication.ha.repair import LogRepair
from maxq.store.context.store_context import StoreIdentity
from maxq.store.message_store import MessageStore
from maxq.store.recovery.damage import DamagedRange
from maxq.store.recovery.file_check import UNREADABLE
from maxq.testing.sim_clock import SimClock
from maxq.testing.sim_disk import PowerLoss, SimDisk
from maxq.testing.sim_rng import SimRng
from maxq.testing.simulation import SimWorld, run_simulation
from tests.unit.store.recovery.test_filled_ranges import damaged
from tests.unit.store.stores import message, opened, small_config

ROOT = PurePath("store")


def new_store(disk: SimDisk, clock: SimClock, role: str) -> MessageStore:
    config = MessageStoreConfig(
        store_path_root_dir=str(ROOT if role == "SLAVE" else "master"), broker_role=role, slave_timeout=1,
        mapped_file_size_commit_log=65_536, mapped_file_size_consume_queue=400, max_hash_slot_num=100,
        max_index_num=200, max_message_size=16_384,
    )  # fmt: skip
    store = MessageStore(config, disk=disk, clock=clock, broker=StoreIdentity(), memory_bytes=1 << 30)
    store.load()
    return store


@pytest.mark.parametrize("own_failure", [False, True])
def test_a_repair_whose_sync_fails_ends_the_flusher_before_it_calls_anything_durable(*, own_failure: bool) -> None:
    """A slave with ASYNC_FLUSH copies records; before they are flushed, repair syncs the same file. What the device
    refuses then are the copied records as well: the next flush must not say that they are durable."""
    clock = SimClock()
    disk = SimDisk(SimRng(1), clock, write_back=0)

    async def main(world: SimWorld) -> None:
        master = new_store(disk, clock, "ASYNC_MASTER")
        for number in range(12):
            master.put_message(message(body=b"%05d" % number * 20))
        log = bytes(master.log_bytes(0, 1 << 20) or b"")
        unit = master.queue("T", 0).unit(1)  # type: ignore[union-attr]
        slave = new_store(disk, clock, "SLAVE")
        half = len(log) // 2
        slave.append_from_master(0, memoryview(log)[:half])
        await slave.flush()
        flushed = slave.flushed_offset
        slave.append_from_master(slave.max_physical_offset, memoryview(log)[slave.max_physical_offset :])

        async def fetch(address: str, start: int, end: int) -> bytes:
            return log[start:end]

        repair = LogRepair(slave, lambda: slave.config, lambda: "master:1", fetch)
        disk.fail_flush("store/commitlog/*")
        assert unit is not None
        if not own_failure:  # the failure of the repair's sync reaches nobody but the repair
            slave.commit_log.on_sync_failed = lambda error: None
        assert not await repair.repair(DamagedRange(0, unit[0], unit[1], "for the test"))
        assert "Input/output error" in repair.last_refusal
        if own_failure:
            assert slave.flusher.failure is not None
        await slave.flush()
        assert slave.flusher.failure is not None and "Input/output error" in slave.flusher.failure
        assert slave.flushed_offset == flushed
        assert not slave.flags.writable
        with pytest.raises(StoreFailedError):
            await slave.flusher.run()
        await slave.shutdown()
        await master.shutdown()
        await asyncio.sleep(0)

    run_simulation(main, seed=1, disk=disk, clock=clock)
    assert disk.exists(ROOT / "abort"), "the next start recovers"


class Slave:
    """A slave whose log is its master's; `asked` is what was fetched from whom."""

    def __init__(self, root: Path) -> None:
        self.store = opened(small_config(root))
        self.config = replace(self.store.config, broker_role="SLAVE", slave_timeout=1)
        self.starts = [self.put(b"%03d" % number * 40) for number in range(400)]
        self.log = bytes(self.store.log_bytes(0, 1 << 20) or b"") + bytes(self.store.log_bytes(65_536, 1 << 20) or b"")
        self.asked: list[tuple[str, int, int]] = []
        self.master = "master:1"
        self.repair = LogRepair(self.store, lambda: self.config, lambda: self.master, self.fetch)

    def put(self, body: bytes) -> int:
        result = self.store.put_message(message(body=body))
        assert result.ok, result.remark
        return result.physical_offset

    async def fetch(self, address: str, start: int, end: int) -> bytes:
        self.asked.append((address, start, end))
        return self.log[start:end]

    def damage(self, first: int, behind: int, reason: str = "for the test") -> DamagedRange:
        """Change a bit of each of these messages."""
        start, end = self.starts[first], self.starts[behind]
        for place in range(first, behind):
            file = self.store.commit_log.files.find(self.starts[place])
            assert file is not None
            file.view[self.starts[place] - file.file_from_offset + 120] ^= 8
        position = start % 65_536
        return DamagedRange(start - position, position, end - start, reason)

    def is_whole(self) -> bool:
        own = bytes(self.store.log_bytes(0, 1 << 20) or b"") + bytes(self.store.log_bytes(65_536, 1 << 20) or b"")
        return own == self.log


@pytest.fixture
def slave(tmp_path: Path) -> Iterator[Slave]:
    slave = Slave(tmp_path)
    yield slave
    slave.store.close()


async def test_a_damaged_range_is_fetched_from_the_master_and_written_in_its_place(slave: Slave) -> None:
    damage = slave.damage(3, 5)
    assert not slave.is_whole()
    assert await slave.repair.repair(damage)
    assert slave.is_whole()
    assert slave.asked == [("master:1", slave.starts[3], slave.starts[5])]
    assert (slave.repair.repaired, slave.repair.repaired_bytes) == (1, damage.size)
    assert (slave.repair.refused, slave.repair.last_refusal) == (0, "")


async def test_a_long_range_is_fetched_a_piece_at_a_time(slave: Slave, monkeypatch: pytest.MonkeyPatch) -> None:
    size = slave.starts[1] - slave.starts[0]
    monkeypatch.setattr(repair_module, "_CHUNK", 2 * size + 10)
    assert await slave.repair.repair(slave.damage(2, 7))
    assert slave.is_whole()
    end = slave.starts[7]
    assert [(start, stop) for _, start, stop in slave.asked] == [
        (slave.starts[at], min(end, slave.starts[at] + 2 * size + 10)) for at in (2, 4, 6)
    ]


async def test_a_record_larger_than_a_piece_is_fetched_whole(slave: Slave, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repair_module, "_CHUNK", 100)
    assert await slave.repair.repair(slave.damage(2, 3))
    assert slave.is_whole()
    start, end = slave.starts[2], slave.starts[3]
    assert [(first, stop) for _, first, stop in slave.asked] == [(start, start + 100), (start, end)]


async def test_the_rest_of_a_file_may_be_damaged(slave: Slave) -> None:
    last = max(at for at, start in enumerate(slave.starts) if start < 65_536)
    start = slave.starts[last]
    damage = DamagedRange(0, start, 65_536 - start, "for the test")
    file = slave.store.commit_log.files.files[0]
    file.view[start:65_536] = bytes(65_536 - start)
    assert await slave.repair.repair(damage)
    assert slave.is_whole()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("master", "this broker is a master"),
        ("off", "haRepairEnable is false"),
        ("unreadable", "the device cannot read this place"),
        ("unknown", "the master is not known"),
        ("refused", "the master says no"),
        ("damaged", "has no valid record at"),
    ],
)
async def test_what_is_not_repaired_says_why_and_is_left_as_it_is(slave: Slave, change: str, says: str) -> None:
    damage = slave.damage(3, 5, UNREADABLE if change == "unreadable" else "for the test")
    if change == "master":
        slave.config = replace(slave.config, broker_role="ASYNC_MASTER")
    elif change == "off":
        slave.config = replace(slave.config, ha_repair_enable=False)
    elif change == "unknown":
        slave.master = ""
    elif change == "damaged":
        changed = bytearray(slave.log)
        changed[slave.starts[4] + 120] ^= 1
        slave.log = bytes(changed)
    elif change == "refused":

        async def refuse(address: str, start: int, end: int) -> bytes:
            raise LogRangeNotServedError("the master says no")

        slave.repair._fetch = refuse
    before = bytes(slave.store.log_bytes(0, 1 << 20) or b"")
    assert not await slave.repair.repair(damage)
    assert says in slave.repair.last_refusal
    assert (slave.repair.repaired, slave.repair.repaired_bytes, slave.repair.refused) == (0, 0, 1)
    assert bytes(slave.store.log_bytes(0, 1 << 20) or b"") == before
    assert not await slave.repair.repair(damage)
    assert slave.repair.refused == 2


async def test_who_asks_from_an_offset_waits_until_no_sender_waits_for_what_is_below(slave: Slave) -> None:
    slave.config = replace(slave.config, slave_timeout=50)
    loop = asyncio.get_running_loop()
    began = loop.time()
    assert await slave.repair.repair(slave.damage(3, 4))
    assert loop.time() - began >= 0.1
    began = loop.time()
    slave.config = replace(slave.config, slave_timeout=50_000)
    assert await slave.repair.repair(slave.damage(9, 10)), "all that was there then is settled"
    assert loop.time() - began < 100


async def test_of_a_piece_with_something_else_in_it_nothing_is_written(
    slave: Slave, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repair_module, "_CHUNK", 3 * (slave.starts[1] - slave.starts[0]))
    damage = slave.damage(2, 7)
    changed = bytearray(slave.log)
    changed[slave.starts[3] + 120] ^= 1
    slave.log = bytes(changed)
    before = bytes(slave.store.log_bytes(0, 1 << 20) or b"")
    assert not await slave.repair.repair(damage)
    assert bytes(slave.store.log_bytes(0, 1 << 20) or b"") == before
    assert len(slave.asked) == 1


async def test_a_master_takes_back_from_a_slave_what_its_start_has_filled(tmp_path: Path) -> None:
    store, starts = damaged(tmp_path, 4)
    start, end = starts[4], starts[5]
    true = bytearray((tmp_path / "damaged" / f"{start:020d}").read_bytes())
    true[130] ^= 8  # the bit that has changed
    filler = bytes(store.commit_log.get(start, end - start) or b"")
    served: list[bytes] = [filler, bytes(true)]
    asked: list[tuple[str, int, int]] = []

    async def fetch(address: str, first: int, behind: int) -> bytes:
        asked.append((address, first, behind))
        return served.pop(0)

    repair = LogRepair(store, lambda: replace(store.config, broker_role="ASYNC_MASTER"), lambda: "", fetch)
    assert await repair.take_back("slave:1") == 0
    assert "the slave at slave:1 has it no more than this master" in repair.last_refusal
    assert repair.sealed_left == 1
    assert await repair.take_back("slave:1") == 1
    assert asked == [("slave:1", start, end)] * 2
    assert bytes(store.commit_log.get(start, end - start) or b"") == bytes(true)
    queue = store.queue("T", 0)
    assert queue is not None
    unit = queue.unit(4)
    assert unit is not None
    assert unit[:2] == (start, end - start)
    assert (repair.sealed_left, repair.repaired, repair.repaired_bytes) == (0, 1, end - start)
    assert await repair.take_back("slave:1") == 0
    assert len(asked) == 2, "nothing is left to ask for"
    store.close()


def cared_for(disk: SimDisk, clock: SimClock, start: int, true: bytes) -> tuple[MessageStore, LogRepair]:
    """The master, started, and its repair, to which a slave serves its log, which is `true` from `start` on."""
    store = new_store(disk, clock, "ASYNC_MASTER")

    async def fetch(address: str, first: int, behind: int) -> bytes:
        return true[first - start : behind - start]

    return store, LogRepair(store, lambda: store.config, lambda: "", fetch)


def bodies(store: MessageStore) -> list[bytes]:
    found = store.get_message("G", "T", 0, 0, 5, None)
    return [one.body[:3] for one in decode_records(b"".join(found.buffers))]


PATH = f"master/commitlog/{0:020d}"


def master_with_a_filler(disk: SimDisk, clock: SimClock) -> tuple[int, bytes]:
    """One that fills messages 2 and 3 at its start, and whose next starts do not look so far back. Returns where the
    messages lie, and what they were."""
    store = new_store(disk, clock, "ASYNC_MASTER")
    for number in range(600):
        clock.jump_wall_ms(1000)
        assert store.put_message(message(body=b"%03d" % number * 100)).ok
    start, size, _ = store.queue("T", 0).unit(2)  # type: ignore[union-attr,misc]
    true = bytes(store.commit_log.get(start, 2 * size) or b"")
    store.close()
    for record in (start, start + size):
        disk.flip_bit(PATH, record + 3, 7)
    for name in ("inventory.json", "checkpoint"):
        disk.delete(PurePath("master") / name)
    disk.write(PurePath("master/abort"), b"")
    store, _ = cared_for(disk, clock, start, true)
    assert store.filled_ranges.still_filled() == [(start, start + 2 * size)]
    store.close()
    return start, true


@pytest.mark.parametrize(("kept", "shown"), [(0, [0, 1, 4, 5, 6]), (1, [0, 1, 2, 4, 5])])
def test_what_came_back_while_the_power_went_is_taken_back_again_and_no_filler_is_shown(
    kept: int, shown: list[int]
) -> None:
    """The queue's units were on the disk already, and the records were not: in their place is the filler again, or in
    that of the second one."""
    clock = SimClock()
    disk = SimDisk(SimRng(1), clock, write_back=0)
    start, true = master_with_a_filler(disk, clock)
    filler = disk.on_platters(PATH)[start : start + len(true)]

    async def taken_back(world: SimWorld) -> None:
        store, repair = cared_for(world.disk, clock, start, true)
        assert await repair.take_back("slave:1") == 1
        store.queue("T", 0).files.files[0].region.flush(0, 400)  # type: ignore[union-attr]
        world.disk.cut_power()

    with pytest.raises(PowerLoss):
        run_simulation(taken_back, seed=1, disk=disk, clock=clock)
    disk = disk.boot()
    lost, end = start + kept * len(true) // 2, start + len(true)
    data = disk.read(PurePath(PATH))
    disk.put(PATH, data[:start] + true[: lost - start] + filler[lost - start :] + data[end:])
    store, _ = cared_for(disk, clock, start, true)
    assert store.report.checked_from > 0, "the start does not look there"
    assert bodies(store) == [b"%03d" % number for number in shown]
    store.close()
    disk.cut_power()
    disk = disk.boot()

    async def again(world: SimWorld) -> None:
        store, repair = cared_for(world.disk, clock, start, true)
        assert bodies(store) == [b"%03d" % number for number in shown]
        assert await repair.take_back("slave:1") == 1
        assert bodies(store) == [b"000", b"001", b"002", b"003", b"004"]
        await store.shutdown()

    run_simulation(again, seed=1, disk=disk, clock=clock)


def test_what_came_back_and_was_not_synced_is_written_again_by_the_next_start() -> None:
    """The system goes on showing the record after the failed sync, also to the next process."""
    clock = SimClock()
    disk = SimDisk(SimRng(1), clock, write_back=0, kill_keeps_cache=True)
    start, true = master_with_a_filler(disk, clock)

    async def taken_back(world: SimWorld) -> None:
        store, repair = cared_for(world.disk, clock, start, true)
        world.disk.fail_flush(PATH)
        assert await repair.take_back("slave:1") == 0
        assert store.flusher.failure is not None
        world.disk.kill_process()

    with pytest.raises(PowerLoss):
        run_simulation(taken_back, seed=1, disk=disk, clock=clock)
    disk = disk.boot()
    assert disk.on_platters(PATH)[start : start + len(true)] != true
    store, _ = cared_for(disk, clock, start, true)
    assert store.report.checked_from > 0, "the start does not look there"
    assert bodies(store) == [b"000", b"001", b"002", b"003", b"004"]
    assert disk.on_platters(PATH)[start : start + len(true)] == true
    store.close()
