"""How queues become durable, and what checkpoint and inventory say of them then."""

import asyncio
import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from maxq.errors import StoreFailedError
from maxq.protocol.message.message import Message, encode_batch
from maxq.protocol.message.message_sys_flag import MessageSysFlag
from maxq.runtime.files.system import SystemDisk, SystemMappedRegion
from maxq.store.durability.store_checkpoint import StoreCheckpoint
from maxq.store.files.store_inventory import InventoryFile
from maxq.store.message_store import MessageStore
from tests.unit.store.stores import TestClock, message, opened, small_config

FULL = OSError(28, "No space left on device")
BROKEN = OSError(5, "Input/output error")


def store_of(root: Path, clock: TestClock | None = None, **changes: Any) -> MessageStore:
    return opened(small_config(root, flush_interval_consume_queue=1, **changes), clock)


def inventory(root: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((root / "inventory.json").read_bytes())
    return found


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - the interval is a millisecond
            await asyncio.sleep(0)


async def flushed(store: MessageStore) -> None:
    async with store.queue_flusher.lock:
        await store.queue_flusher.flush_thoroughly()


async def test_a_thorough_flush_writes_down_what_queues_and_index_hold(tmp_path: Path) -> None:
    clock = TestClock()
    store = store_of(tmp_path, clock)
    for number in range(30):
        store.put_message(message(f"T{number % 2}", number % 3, KEYS=f"k{number}"))
    newest_ms = clock.now_ms
    clock.now_ms += 5000
    assert store.queue_flusher.written_down == 0
    await flushed(store)
    end = store.max_physical_offset
    found = inventory(tmp_path)
    assert found["queues"] == {f"T{topic}": {str(queue): [0, 5] for queue in range(3)} for topic in range(2)}
    assert store.queue_flusher.written_down == end
    assert (store.flushed_offset, store.checkpoint.logics_msg_timestamp) == (end, newest_ms)
    assert store.checkpoint.logics_physical_offset == 0
    assert [queue for queue in store.queues if queue.unflushed(0)] == []
    await store.shutdown()


async def test_the_checkpoints_time_of_the_queues_never_goes_back(tmp_path: Path) -> None:
    clock = TestClock()
    store = store_of(tmp_path, clock)
    store.put_message(message())
    await flushed(store)
    first_ms = clock.now_ms
    clock.now_ms -= 60_000
    store.put_message(message())
    await flushed(store)
    assert store.checkpoint.logics_msg_timestamp == first_ms
    await store.shutdown()


async def test_an_inventory_never_knows_more_than_the_log_has_durably(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = store_of(tmp_path)
    store.put_message(message())
    await flushed(store)
    before = (tmp_path / "inventory.json").read_bytes()
    store.put_message(message())
    with monkeypatch.context() as broken:
        broken.setattr(SystemMappedRegion, "flush_soon", lambda region, done: done(BROKEN) or True)
        await flushed(store)
    assert (tmp_path / "inventory.json").read_bytes() == before
    assert store.queue_flusher.written_down < store.max_physical_offset
    await store.shutdown()


async def test_callers_share_a_thorough_flush_that_began_after_they_asked(tmp_path: Path) -> None:
    store = store_of(tmp_path)
    flusher = store.queue_flusher
    store.put_message(message())
    asked = flusher.begun
    async with flusher.lock:
        await flusher.flush_thoroughly_since(asked)
        assert flusher.begun == asked + 1
        await flusher.flush_thoroughly_since(asked)
        assert flusher.begun == asked + 1, "the one that has ended began later"
        await flusher.flush_thoroughly_since(flusher.begun)
        assert flusher.begun == asked + 2
    await store.shutdown()


async def test_a_thorough_flush_that_could_not_do_all_is_done_again_for_those_who_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = store_of(tmp_path)
    flusher = store.queue_flusher
    store.put_message(message())
    asked = flusher.begun
    with monkeypatch.context() as full_disk:
        full_disk.setattr(InventoryFile, "save", _refuse(FULL))
        async with flusher.lock:
            with pytest.raises(OSError, match="No space"):
                await flusher.flush_thoroughly_since(asked)
    async with flusher.lock:
        await flusher.flush_thoroughly_since(asked)
    assert inventory(tmp_path)["queues"] == {"T": {"0": [0, 1]}}
    await store.shutdown()


def _refuse(error: OSError) -> Callable[..., None]:
    def refuse(*_: object) -> None:
        raise error

    return refuse


async def test_a_flush_of_few_pages_waits_for_the_next_round(tmp_path: Path) -> None:
    store = store_of(tmp_path, mapped_file_size_consume_queue=20 * 1000)
    for number in range(410):  # 8,200 bytes: two pages and a little
        store.put_message(message("Two" if number else "One"))
    await store.queue_flusher.flush_queues(3)
    assert {queue.topic for queue in store.queues if queue.unflushed(0)} == {"One", "Two"}
    await store.queue_flusher.flush_queues(1)
    assert {queue.topic for queue in store.queues if queue.unflushed(0)} == {"One"}
    await store.queue_flusher.flush_queues(0)
    assert [queue.topic for queue in store.queues if queue.unflushed(0)] == []
    assert not any(queue.in_flush for queue in store.queues)
    await store.shutdown()


async def test_rounds_are_thorough_at_first_then_after_their_time_or_when_they_are_woken(tmp_path: Path) -> None:
    clock = TestClock()
    store = store_of(tmp_path, clock, flush_consume_queue_thorough_interval=1000)
    flusher, rounds = store.queue_flusher, []
    real = StoreCheckpoint.write

    def write(checkpoint: StoreCheckpoint) -> None:
        rounds.append(flusher.begun)
        real(checkpoint)

    with pytest.MonkeyPatch.context() as patches:
        patches.setattr(StoreCheckpoint, "write", write)
        running = asyncio.create_task(flusher.run())
        await until(lambda: flusher.begun == 1 and len(rounds) >= 4)
        assert flusher.begun == 1
        clock.now_ms += 999
        seen = len(rounds)
        await until(lambda: len(rounds) >= seen + 3)
        assert flusher.begun == 1
        clock.now_ms += 1
        await until(lambda: flusher.begun == 2)
        seen = len(rounds)
        await until(lambda: len(rounds) >= seen + 4)
        assert flusher.begun == 2
        flusher.wake()
        await until(lambda: flusher.begun == 3)
        seen = len(rounds)
        await until(lambda: len(rounds) >= seen + 4)
        assert flusher.begun == 3, "it was woken once"
        running.cancel()
        await asyncio.wait([running])
    await store.shutdown()


async def test_a_disk_without_room_for_the_inventory_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = store_of(tmp_path)
    store.put_message(message())
    with monkeypatch.context() as full_disk:
        full_disk.setattr(InventoryFile, "save", _refuse(FULL))
        running = asyncio.create_task(store.queue_flusher.run())
        await until(lambda: store.queue_flusher.begun == 1)
        await until(lambda: not store.queue_flusher.lock.locked())
    store.queue_flusher.wake()
    await until(lambda: store.queue_flusher.written_down > 0)
    assert store.flags.writable
    assert inventory(tmp_path)["queues"] == {"T": {"0": [0, 1]}}
    running.cancel()
    await asyncio.wait([running])
    await store.shutdown()


async def test_a_disk_that_does_not_take_the_inventory_ends_the_service_and_sends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = store_of(tmp_path)
    store.put_message(message())
    with monkeypatch.context() as broken:
        broken.setattr(InventoryFile, "save", _refuse(BROKEN))
        with pytest.raises(StoreFailedError, match=r"ConsumeQueues below .*consumequeue failed: .*Input/output"):
            await asyncio.wait_for(store.queue_flusher.run(), 10)
    assert not store.flags.writable
    refused = store.put_message(message())
    assert "Input/output error" in refused.remark
    await store.shutdown()


async def test_a_queue_that_cannot_be_flushed_is_not_written_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = store_of(tmp_path)
    store.put_message(message())
    await store.flusher.flush_all()
    with monkeypatch.context() as broken:
        broken.setattr(SystemMappedRegion, "flush", _refuse(FULL))
        with pytest.raises(StoreFailedError, match="No space left"):
            await asyncio.wait_for(store.queue_flusher.run(), 10)
    assert store.queue_flusher.failure is not None
    assert not (tmp_path / "inventory.json").exists()
    await flushed(store)  # even if a later one succeeds: pages may have been dropped
    assert store.queue_flusher.written_down == 0
    await store.shutdown()


async def test_nothing_is_written_down_while_what_comes_before_it_fails(tmp_path: Path) -> None:
    store = store_of(tmp_path)
    store.put_message(message())
    calls: list[int] = []

    def fail_once() -> None:
        calls.append(store.queue_flusher.begun)
        if len(calls) == 1:
            raise FULL

    store.queue_flusher.before_inventory = fail_once
    async with store.queue_flusher.lock:
        with pytest.raises(OSError, match="No space"):
            await store.queue_flusher.flush_thoroughly()
    assert store.queue_flusher.written_down == 0
    await flushed(store)
    assert calls == [1, 2]
    assert store.queue_flusher.written_down == store.max_physical_offset
    await store.shutdown()


async def test_folders_of_a_deleted_topic_that_cannot_be_deleted_now_go_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = store_of(tmp_path)
    for topic in ("Gone", "Stays"):
        store.put_message(message(topic))
    assert store.put_deletion(["Gone"]).ok
    aside = list(store.queues.set_aside)
    assert len(aside) == 1
    with monkeypatch.context() as stubborn:
        stubborn.setattr(SystemDisk, "delete_tree", _refuse(BROKEN))
        await flushed(store)
    assert store.queues.set_aside == aside
    await flushed(store)
    assert store.queues.set_aside == []
    assert not Path(aside[0]).exists()
    assert inventory(tmp_path)["deletions"] == 1
    await store.shutdown()


def test_a_clean_end_without_a_loop_says_where_the_log_ends(tmp_path: Path) -> None:
    store = store_of(tmp_path)
    store.put_message(message())
    store.put_message(message(KEYS="k"))
    end = store.max_physical_offset
    store.put_message(message("Other"))
    end = store.max_physical_offset
    store.queue_flusher.flush_inline()
    assert [queue for queue in store.queues if queue.unflushed(0)] == []
    assert inventory(tmp_path)["logEnd"] == -1
    assert store.flushed_offset == end
    store.close()
    found = inventory(tmp_path)
    assert (found["logEnd"], found["queues"], found["indexCount"]) == (
        end,
        {"Other": {"0": [0, 1]}, "T": {"0": [0, 2]}},
        2,
    )


async def test_nothing_is_given_up_while_other_threads_still_flush(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A queue that is unmapped under a thread that flushes it would be the end of the process."""
    store = store_of(tmp_path)
    for topic in ("A", "B"):
        store.put_message(message(topic))
    await store.flusher.flush_all()
    gate, calls = threading.Event(), [0]

    def flush(region: SystemMappedRegion, start: int, end: int) -> None:
        calls[0] += 1
        if calls[0] == 1:
            raise BROKEN
        assert gate.wait(10)

    with monkeypatch.context() as patches:
        patches.setattr(SystemMappedRegion, "flush", flush)
        flushing = asyncio.create_task(store.queue_flusher.flush_queues(0))
        await until(lambda: calls[0] == 2)
        ended, _ = await asyncio.wait([flushing], timeout=0.02)
        assert not ended
        assert all(queue.in_flush for queue in store.queues)
        gate.set()
        with pytest.raises(OSError, match="Input/output"):
            await flushing
    await store.shutdown()


async def test_queues_of_inner_batches_are_written_down_by_their_units_and_messages(tmp_path: Path) -> None:
    store = store_of(tmp_path)
    store.queues.topic_write_state("B").has_batch_queues = True
    inner = message("B", body=encode_batch([Message("B", b"1"), Message("B", b"2")]), INNER_NUM="2")
    inner.sys_flag = MessageSysFlag.INNER_BATCH | MessageSysFlag.NEED_UNWRAP
    for _ in range(3):
        assert store.put_message(inner).ok
    await flushed(store)
    assert inventory(tmp_path)["batchQueues"] == {"B": {"0": [0, 3, 6]}}
    await store.shutdown()
