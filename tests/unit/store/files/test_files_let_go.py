"""Files that a store has done with: closed when their last user is, without Python's cycle collector."""

import asyncio
import gc
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from maxq.runtime.files.system import SystemMappedRegion
from maxq.store.log.tails_cy import QueueTail
from maxq.store.message_store import MessageStore
from maxq.store.queue.consume_queue import ConsumeQueue
from tests.unit.store.stores import delete_topics, message, opened, small_config
from tests.unit.store.test_shutdown import Doors, turns


@pytest.fixture(autouse=True)
def no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def all_open_files(root: Path) -> list[str]:
    """Files below `root` that this process has open or mapped."""
    links = [f"/proc/self/fd/{number}" for number in os.listdir("/proc/self/fd")]
    names = [os.readlink(link) for link in links if os.path.islink(link)]
    return [name for name in names + Path("/proc/self/maps").read_text().splitlines() if str(root) in name]


def open_files(root: Path) -> list[str]:
    """Those of queues of `Gone`, wherever they lie now."""
    return [name for name in all_open_files(root) if "/Gone/" in name or "/deleted/" in name]


def queues_in_memory(topic: str) -> list[ConsumeQueue | QueueTail]:
    return [one for one in gc.get_objects() if isinstance(one, ConsumeQueue | QueueTail) and one.topic == topic]


@pytest.mark.parametrize("ext", [False, True], ids=["", "ext"])
async def test_a_topic_that_is_deleted_while_its_queue_is_flushed_keeps_no_file_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, ext: bool
) -> None:
    doors = Doors()
    real = SystemMappedRegion.flush

    def flush(region: SystemMappedRegion, start: int, end: int) -> None:
        doors.pass_through("flush", lambda: real(region, start, end), stop=True)

    store = opened(small_config(tmp_path, enable_consume_queue_ext=ext))
    store.put_message(message("Gone"))
    await store.flusher.flush_all()
    monkeypatch.setattr(SystemMappedRegion, "flush", flush)

    async def flush_queues() -> None:
        async with store.queue_flusher.lock:
            await store.queue_flusher.flush_queues(0)

    flushing = asyncio.create_task(flush_queues())
    await doors.until_held()
    assert open_files(tmp_path)
    deleting = asyncio.create_task(delete_topics(store, "Gone"))
    await turns()
    doors.open()
    await asyncio.gather(flushing, deleting)
    assert store.queue_flusher.failure is None
    assert open_files(tmp_path) == []
    assert store.put_message(message("Gone")).queue_offset == 0
    await store.shutdown()


async def test_queues_of_deleted_topics_are_gone_from_memory(tmp_path: Path) -> None:
    store = opened(small_config(tmp_path))
    store.put_message(message("Gone"))
    assert queues_in_memory("Gone")
    await delete_topics(store, "Gone")
    assert queues_in_memory("Gone") == []
    await store.shutdown()


async def test_a_reader_of_a_deleted_topic_keeps_what_it_reads_and_no_longer(tmp_path: Path) -> None:
    store = opened(small_config(tmp_path))
    store.put_message(message("Gone"))
    read = units_of(store)
    assert read is not None
    await delete_topics(store, "Gone")
    assert len(bytes(read)) == 20 and open_files(tmp_path)
    read = None
    assert open_files(tmp_path) == []
    await store.shutdown()


def units_of(store: MessageStore) -> memoryview | None:
    queue = store.queue("Gone", 0)
    units = None if queue is None else queue.units_from(0)
    return None if units is None else units[0][units[1] : units[2]]


async def test_a_store_that_was_shut_down_has_no_file_open(tmp_path: Path) -> None:
    store = opened(small_config(tmp_path, enable_consume_queue_ext=True))
    store.start()
    for number in range(300):  # several files of the log, a queue and the index
        store.put_message(message("T", number % 3, bytes(600), KEYS=str(number)))
        await asyncio.sleep(0)
    await delete_topics(store, "T")
    store.put_message(message("T"))
    await store.shutdown()
    assert all_open_files(tmp_path) == []
