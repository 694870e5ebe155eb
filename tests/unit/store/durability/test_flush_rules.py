"""What a flush says and does not say: intervals, cuts while it is under way, those who wait too long, the end."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from maxq.errors import StoreFailedError
from maxq.runtime.files.system import SystemMappedRegion
from maxq.store.durability import flush
from maxq.store.message_store import MessageStore
from tests.durability import durable
from tests.unit.store.stores import TestClock, message, opened, small_config


class Kernel:
    """Takes flushes and ends them when the test says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ends: list[Callable[[OSError | None], None]] = []

        def flush_soon(region: SystemMappedRegion, done: Callable[[OSError | None], None]) -> bool:
            self.ends.append(done)
            return True

        monkeypatch.setattr(SystemMappedRegion, "flush_at_once", lambda region: False)
        monkeypatch.setattr(SystemMappedRegion, "flush_soon", flush_soon)

    def end(self, error: OSError | None = None) -> None:
        self.ends.pop(0)(error)


def store_of(root: Path, clock: TestClock | None = None, flush: str = "SYNC_FLUSH", **changes: Any) -> MessageStore:
    return opened(small_config(root, flush_disk_type=flush, **changes), clock)


def sent(store: MessageStore, size: int = 100) -> int:
    """Send one message, and return where its record ends."""
    return store.put_message(message(body=bytes(size))).end_offset


def waiting(store: MessageStore, end: int) -> "asyncio.Future[bool]":
    found = durable(store, end)
    assert found is not None
    return found


def test_without_a_loop_a_message_is_durable_when_it_is_stored(tmp_path: Path) -> None:
    store = store_of(tmp_path)
    end = sent(store)
    assert store.flushed_offset == end
    assert store.max_offset("T", 0) == 1
    assert store.checkpoint.flushed_offset == end
    store.close()


async def test_a_group_speaks_for_what_was_there_when_it_began(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = TestClock()
    store = store_of(tmp_path, clock)
    with monkeypatch.context() as patches:
        kernel = Kernel(patches)
        began_ms, first = clock.now_ms, sent(store)
        of_first = waiting(store, first)
        await asyncio.sleep(0)
        clock.now_ms += 50
        of_second = waiting(store, sent(store))
        kernel.end()
        assert (of_first.done(), of_second.done()) == (True, False)
        assert (store.flushed_offset, store.checkpoint.flushed_offset) == (first, first)
        assert store.checkpoint.physic_msg_timestamp == began_ms
        await asyncio.sleep(0)
        kernel.end()
        assert of_second.result() is True
        assert store.checkpoint.physic_msg_timestamp == began_ms + 50
    await store.shutdown()


async def test_bytes_behind_a_cut_are_not_durable_because_a_flush_that_began_before_it_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = store_of(tmp_path)
    with monkeypatch.context() as patches:
        kernel = Kernel(patches)
        first, second = sent(store), sent(store)
        of_first, of_second = waiting(store, first), waiting(store, second)
        await asyncio.sleep(0)
        store.flusher.truncated(second)
        store.flusher.truncated(first)
        store.flusher.truncated(second)  # the lowest cut counts
        kernel.end()
        assert (of_first.result(), of_second.done()) == (True, False)
        assert store.flushed_offset == first
        await asyncio.sleep(0)
        kernel.end()  # the next one is not cut
        assert of_second.result() is True
        assert store.flushed_offset == second
    await store.shutdown()


async def test_a_cut_below_what_was_durable_is_in_the_checkpoint(tmp_path: Path) -> None:
    store = store_of(tmp_path)
    first = sent(store)
    second = sent(store)
    await store.flush()
    assert store.checkpoint.flushed_offset == second
    store.flusher.truncated(first)
    assert store.checkpoint.flushed_offset == first
    await store.shutdown()


async def test_after_a_failure_nobody_is_told_that_a_message_is_safe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = store_of(tmp_path)
    with monkeypatch.context() as patches:
        kernel = Kernel(patches)
        of_first = waiting(store, sent(store))
        await asyncio.sleep(0)
        second = sent(store)
        of_second = waiting(store, second)
        kernel.end(OSError(5, "Input/output error"))
        assert (of_first.result(), of_second.result()) == (False, False)
        late = waiting(store, second)
        assert not late.done(), "never before when_durable returns"
        await asyncio.sleep(0)
        assert late.result() is False
        assert not store.flusher.joins_next(lambda: None)
        store.flusher.commit()
        assert kernel.ends == []
    assert store.flusher.failure is not None and "commitlog failed: [Errno 5] Input/output error" in (
        store.flusher.failure
    )
    await store.shutdown()


async def test_each_sender_waits_for_its_own_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = TestClock()
    store = store_of(tmp_path, clock, sync_flush_timeout=20)
    with monkeypatch.context() as patches:
        kernel = Kernel(patches)
        first = waiting(store, sent(store))
        clock.now_ms += 10
        second = waiting(store, sent(store))
        clock.now_ms += 10
        assert await asyncio.wait_for(first, 10) is False
        assert not second.done()
        clock.now_ms += 10
        assert await asyncio.wait_for(second, 10) is False
        kernel.end()
    await store.shutdown()


async def test_those_who_still_wait_at_the_end_are_told_what_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = store_of(tmp_path)
    with monkeypatch.context() as patches:
        kernel = Kernel(patches)
        first, second = sent(store), sent(store)
        of_first, of_second = waiting(store, first), waiting(store, second)
        await asyncio.sleep(0)
        store.commit_log.flushed_offset = first  # a flush of another way
        store.flusher.close()
        assert (of_first.result(), of_second.result()) == (True, False)
        kernel.end()
    await store.shutdown()


# --- ASYNC_FLUSH ---


async def test_an_interval_flush_waits_for_enough_pages_or_for_its_time(tmp_path: Path) -> None:
    clock = TestClock()
    store = store_of(
        tmp_path, clock, "ASYNC_FLUSH", flush_commit_log_least_pages=4, flush_commit_log_thorough_interval=1000
    )
    flusher = store.flusher
    flusher._last_thorough_ms = clock.monotonic_ms()
    sent(store, 3 * 4096)
    await flusher.flush_some()
    assert store.flushed_offset == 0
    sent(store, 4096)
    await flusher.flush_some()
    assert store.flushed_offset == store.max_physical_offset
    assert store.checkpoint.physic_msg_timestamp == 0, "only a thorough flush says up to when all is durable"
    sent(store)
    clock.now_ms += 999
    await flusher.flush_some()
    assert store.flushed_offset < store.max_physical_offset
    clock.now_ms += 1
    await flusher.flush_some()
    assert store.flushed_offset == store.max_physical_offset
    assert store.checkpoint.physic_msg_timestamp == clock.now_ms - 1000
    sent(store)
    clock.now_ms += 999
    await flusher.flush_some()
    assert store.flushed_offset < store.max_physical_offset, "the interval begins anew"
    await store.shutdown()


async def test_an_interval_flush_that_fails_ends_the_service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = store_of(tmp_path, None, "ASYNC_FLUSH", flush_interval_commit_log=1, flush_commit_log_least_pages=0)
    with monkeypatch.context() as patches:
        kernel = Kernel(patches)
        sent(store)
        running = asyncio.create_task(store.flusher.run())
        while not kernel.ends:  # noqa: ASYNC110 - the interval is a millisecond
            await asyncio.sleep(0)
        kernel.end(OSError(5, "Input/output error"))
        with pytest.raises(StoreFailedError, match="Input/output error"):
            await asyncio.wait_for(running, 10)
    await store.shutdown()


async def test_a_slave_that_catches_up_flushes_in_steps_which_leave_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = store_of(tmp_path, None, "ASYNC_FLUSH")
    monkeypatch.setattr(flush, "_LATE_STEP", 5000)
    monkeypatch.setattr(flush, "_LARGE_PAGE", 300)
    forgotten: list[tuple[int, int]] = []
    with monkeypatch.context() as patches:
        patches.setattr(SystemMappedRegion, "forget", lambda region, start, end: forgotten.append((start, end)))
        first = sent(store, 4000)
        store.flusher.copied(is_late=True)
        assert store.flusher._in_flight is None
        sent(store, 5000 - first + 100)
        store.flusher.copied(is_late=False)
        assert store.flusher._in_flight is None, "only one that is late needs it"
        end = store.max_physical_offset
        assert end >= 5000
        store.flusher.copied(is_late=True)
        await store.flush()
        assert (store.flushed_offset, forgotten) == (end, [(0, end)])
        last = sent(store, 6000)
        store.flusher.copied(is_late=True)
        await store.flush()
        assert forgotten == [(0, end), (end - 300, last)]
        sent(store, 6000)
        store.flusher.copied(is_late=False)
        await store.flush()
        assert len(forgotten) == 2
    await store.shutdown()


async def test_what_comes_during_an_interval_flush_waits_for_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = store_of(tmp_path, None, "ASYNC_FLUSH")
    with monkeypatch.context() as patches:
        kernel = Kernel(patches)
        end = sent(store)
        flushing = asyncio.create_task(store.flush())
        while not kernel.ends:  # noqa: ASYNC110 - the turns until the flush begins
            await asyncio.sleep(0)
        sent(store)
        kernel.end()
        await flushing
        await asyncio.sleep(0)
        assert (store.flushed_offset, kernel.ends) == (end, [])
    await store.shutdown()


async def test_what_the_kernel_has_made_durable_is_not_flushed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = store_of(tmp_path)
    with monkeypatch.context() as patches:
        kernel = Kernel(patches)
        of_first = waiting(store, sent(store))
        await asyncio.sleep(0)
        kernel.end()
        assert of_first.result() is True
        assert store.commit_log.flush_ranges()[1] == []
        end = store.max_physical_offset
        sent(store)
        assert [start for _, start, _ in store.commit_log.flush_ranges()[1]] == [end]
    await store.shutdown()
