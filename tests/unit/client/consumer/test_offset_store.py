"""Offsets in a local file, and what freezing means."""

import asyncio
from pathlib import PurePath, PurePosixPath

import pytest

from maxq.client.consumer.offset_store import LocalFileOffsetStore
from maxq.errors import ClientError
from maxq.protocol.json import json_dialect
from maxq.protocol.message.message_queue import MessageQueue
from maxq.runtime.interfaces import DiskLock
from maxq.testing.simulation import SimWorld, run_simulation

Q0, Q1 = MessageQueue("T", "a", 0), MessageQueue("T", "a", 1)
FOLDER = PurePosixPath("/home/user/.rocketmq_offsets")
FILE = FOLDER / "client" / "G" / "offsets.json"


def store(world: SimWorld) -> LocalFileOffsetStore:
    return LocalFileOffsetStore(world.disk, FOLDER, "client", "G")


def test_what_is_persisted_is_there_after_a_restart_in_javas_form() -> None:
    async def main(world: SimWorld) -> None:
        offsets = store(world)
        await offsets.load()
        offsets.update(Q0, 12, increase_only=True)
        offsets.update(Q1, 5, increase_only=True)
        assert await offsets.read(Q0) == -1
        await offsets.persist_all([Q0, Q1])
        text = world.disk.read(FILE)
        assert json_dialect.loads(text) == {"offsetTable": {Q0: 12, Q1: 5}}
        assert b"{\n" not in text.split(b'"offsetTable":')[0][1:]
        await offsets.close()
        again = store(world)
        await again.load()
        assert await again.read(Q0) == 12
        assert again.snapshot("T") == {Q0: 12, Q1: 5}

    run_simulation(main, seed=1)


def test_the_backup_serves_when_the_file_is_damaged() -> None:
    async def main(world: SimWorld) -> None:
        offsets = store(world)
        await offsets.load()
        for value in (1, 2):
            offsets.update(Q0, value, increase_only=True)
            await offsets.persist_all([Q0])
        world.disk.replace(FILE, b"{{{ rubbish")
        await offsets.close()
        again = store(world)
        await again.load()
        assert again.in_memory(Q0) == 1
        await again.close()
        world.disk.replace(FILE.with_name("offsets.json.bak"), b"rubbish too")
        with pytest.raises(ClientError, match=r"offsets\.json.*repair or delete"):
            await store(world).load()

    run_simulation(main, seed=1)


def test_writes_that_overlap_leave_the_newest_and_a_whole_file() -> None:
    """The timer writes while a queue is given up, and whoever waited for a write may be cancelled."""

    async def main(world: SimWorld) -> None:
        offsets = store(world)
        await offsets.load()
        for value in range(1, 40):
            offsets.update(Q0, value, increase_only=True)
            writes = [asyncio.create_task(offsets.persist_all([Q0])) for _ in range(2)]
            await asyncio.sleep(0.0001 * (value % 5))
            offsets.update(Q1, value, increase_only=True)
            writes.append(asyncio.create_task(offsets.persist(Q1)))
            if value % 3 == 0:
                writes[0].cancel()
            await asyncio.gather(*writes, return_exceptions=True)
            assert json_dialect.loads(world.disk.read(FILE)) == {"offsetTable": {Q0: value, Q1: value}}
        await offsets.close()

    run_simulation(main, seed=1)


def test_a_folder_that_takes_no_lock_is_no_reason_not_to_begin() -> None:
    async def main(world: SimWorld) -> None:
        offsets = store(world)

        def lock(path: PurePath, content: bytes) -> DiskLock:
            raise PermissionError(13, "Permission denied", str(path))

        world.disk.lock = lock  # type: ignore[method-assign]
        await offsets.load()
        assert offsets.in_memory(Q0) == -1
        await offsets.close()

    run_simulation(main, seed=1)


def test_a_frozen_offset_takes_no_late_updates_until_its_queue_is_removed() -> None:
    async def main(world: SimWorld) -> None:
        offsets = store(world)
        offsets.update(Q0, 10, increase_only=True)
        offsets.update(Q0, 7, increase_only=True)
        assert offsets.in_memory(Q0) == 10
        offsets.update(Q0, 7, increase_only=False)
        assert offsets.in_memory(Q0) == 7
        offsets.update_and_freeze(Q0, 100)
        offsets.update(Q0, 50, increase_only=False)
        offsets.update(Q0, 500, increase_only=True)
        assert offsets.in_memory(Q0) == 100
        offsets.remove(Q0)
        offsets.update(Q0, 3, increase_only=True)
        assert offsets.in_memory(Q0) == 3

    run_simulation(main, seed=1)
