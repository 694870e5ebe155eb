"""A shutdown in the middle of what runs on the executor: it waits, and the newest inventory and checkpoint win."""

import asyncio
import json
import threading
from collections.abc import Callable
from pathlib import Path, PurePath

import pytest

from maxq.runtime.blocking import run_blocking
from maxq.runtime.files.system import SystemDisk, SystemMappedRegion
from maxq.store.message_store import MessageStore
from tests.unit.store.stores import IDENTITY, TestClock, delete_topics, message, new_store, small_config


class Doors:
    """Calls that stop at a door until the test opens it."""

    def __init__(self) -> None:
        self._open = threading.Event()
        self._held = threading.Event()
        self.log: list[str] = []

    def pass_through(self, what: str, work: Callable[[], None], *, stop: bool) -> None:
        self.log.append(f"{what} begins")
        if stop and not self._open.is_set():
            self._held.set()
            assert self._open.wait(30), "the test never opened the door"
        work()
        self.log.append(f"{what} ends")

    async def until_held(self) -> None:
        """Somebody stands at the door."""
        assert await asyncio.to_thread(self._held.wait, 30), "nobody came"

    def open(self) -> None:
        self._open.set()


class DoorDisk(SystemDisk):
    """A disk on which the first inventory takes as long as the test likes."""

    def __init__(self, doors: Doors) -> None:
        super().__init__()
        self.doors = doors

    def replace(self, path: PurePath, data: bytes) -> None:
        first = not any(line.startswith("replace") for line in self.doors.log)
        self.doors.pass_through(f"replace {path.name}", lambda: super(DoorDisk, self).replace(path, data), stop=first)


def store_on(disk: SystemDisk, root: Path) -> MessageStore:
    return MessageStore(small_config(root), disk=disk, clock=TestClock(), broker=IDENTITY, memory_bytes=1 << 30)


async def turns() -> None:
    """Everything on the loop that can go on without an executor does."""
    for _ in range(100):
        await asyncio.sleep(0)


async def test_shutdown_waits_for_the_inventory_that_is_being_written(tmp_path: Path) -> None:
    doors = Doors()
    store = store_on(DoorDisk(doors), tmp_path)
    store.load()
    store.put_message(message())
    store.start()  # the first round is a thorough one
    await doors.until_held()
    store.put_message(message())
    ending = asyncio.create_task(store.shutdown())
    await turns()
    assert not ending.done()
    doors.open()
    await ending
    assert doors.log == [f"replace inventory.json {step}" for step in ("begins", "ends")] * 2
    inventory = json.loads((tmp_path / "inventory.json").read_bytes())
    assert inventory["logEnd"] == store.max_physical_offset
    assert inventory["queues"]["T"]["0"] == [0, 2]


async def test_cancelled_flush_ends_with_its_thread_and_unmaps_nothing_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    doors = Doors()
    real = SystemMappedRegion.flush

    def flush(region: SystemMappedRegion, start: int, end: int) -> None:
        doors.pass_through("flush", lambda: real(region, start, end), stop=True)

    store = new_store(small_config(tmp_path))
    store.load()
    store.put_message(message())
    await store.flusher.flush_all()
    monkeypatch.setattr(SystemMappedRegion, "flush", flush)
    queue = store.queue("T", 0)
    assert queue is not None
    flushing = asyncio.create_task(store.queue_flusher.flush_queues(0))
    await doors.until_held()
    flushing.cancel()
    await turns()
    assert not flushing.done() and queue.in_flush
    doors.open()
    with pytest.raises(asyncio.CancelledError):
        await flushing
    assert not queue.in_flush and doors.log == ["flush begins", "flush ends"]
    await store.shutdown()


async def test_queues_that_are_being_deleted_are_deleted_before_the_store_closes(tmp_path: Path) -> None:
    doors = Doors()
    store = store_on(DoorDisk(doors), tmp_path)
    store.load()
    store.put_message(message("Gone"))
    store.put_message(message("Kept"))
    deleting = asyncio.create_task(delete_topics(store, "Gone"))
    await doors.until_held()
    ending = asyncio.create_task(store.shutdown())
    late = asyncio.create_task(delete_topics(store, "Kept"))
    await turns()
    assert not ending.done()
    doors.open()
    await deleting
    await ending
    await late  # its record was in the log before the store closed
    assert not (tmp_path / "consumequeue" / "Gone").exists()
    assert not (tmp_path / "consumequeue" / "Kept").exists()
    assert not list((tmp_path / "deleted").iterdir())


async def test_blocking_work_ends_before_its_cancelled_caller_does() -> None:
    doors = Doors()
    caller = asyncio.create_task(run_blocking(lambda: doors.pass_through("work", lambda: None, stop=True)))
    await doors.until_held()
    caller.cancel()
    await turns()
    caller.cancel()
    await turns()
    assert not caller.done()
    doors.open()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert doors.log == ["work begins", "work ends"]


async def test_error_of_blocking_work_reaches_its_caller() -> None:
    def fail() -> None:
        raise OSError(5, "Input/output error")

    with pytest.raises(OSError, match="Input/output error"):
        await run_blocking(fail)
