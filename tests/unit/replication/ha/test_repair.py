"""Repair writes into files of the log that group commits rely on: a sync of its own that fails is theirs, too."""

import asyncio
from pathlib import PurePath

import pytest

from maxq.config.message_store_config import MessageStoreConfig
from maxq.errors import StoreFailedError
from maxq.replication.ha.repair import LogRepair
from maxq.store.context.store_context import StoreIdentity
from maxq.store.message_store import MessageStore
from maxq.store.recovery.damage import DamagedRange
from maxq.testing.sim_clock import SimClock
from maxq.testing.sim_disk import SimDisk
from maxq.testing.sim_rng import SimRng
from maxq.testing.simulation import SimWorld, run_simulation
from tests.unit.store.stores import message

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
