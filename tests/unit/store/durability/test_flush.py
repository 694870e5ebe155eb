"""When messages become durable, and who is told."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from maxq.runtime.files.system import SystemMappedRegion
from maxq.store.message_store import MessageStore
from maxq.store.store_results import PutMessageStatus
from tests.durability import durable
from tests.unit.store.stores import TestClock, message, new_store, opened, small_config


@pytest.fixture
async def sync_store(tmp_path: Path) -> AsyncIterator[MessageStore]:
    store = new_store(small_config(tmp_path, flush_disk_type="SYNC_FLUSH"))
    store.load()
    yield store
    await store.shutdown()


class Gate:
    """Lets a test hold back and fail flushes, and count them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        self.error: OSError | None = None
        self._loop = asyncio.get_running_loop()
        self._open = asyncio.Event()
        self._open.set()
        real = SystemMappedRegion.flush

        def flush(region: SystemMappedRegion, start: int, end: int) -> None:
            asyncio.run_coroutine_threadsafe(self._open.wait(), self._loop).result(10)
            self.count += 1
            if self.error is not None:
                raise self.error
            real(region, start, end)

        monkeypatch.setattr(SystemMappedRegion, "flush", flush)
        monkeypatch.setattr(SystemMappedRegion, "flush_at_once", lambda region: False)  # the thread's way
        monkeypatch.setattr(SystemMappedRegion, "flush_soon", lambda region, done: False)

    def close(self) -> None:
        self._open.clear()

    def open(self) -> None:
        self._open.set()


def waiting_for(store: MessageStore, size: int = 100) -> "asyncio.Future[bool]":
    """Send one message; its outcome, which is not known yet."""
    waiting = durable(store, store.put_message(message(body=bytes(size))).end_offset)
    assert waiting is not None
    return waiting


async def test_async_flush_waits_for_nothing_and_shows_messages_at_once(tmp_path: Path) -> None:
    store = new_store(small_config(tmp_path))
    store.load()
    result = store.put_message(message())
    assert durable(store, result.end_offset) is None
    assert store.max_offset("T", 0) == 1
    await store.shutdown()


async def test_sync_flush_shows_a_message_only_when_it_is_durable(
    sync_store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(monkeypatch)
    gate.close()
    result = sync_store.put_message(message())
    waiting = durable(sync_store, result.end_offset)
    assert waiting is not None
    assert sync_store.max_offset("T", 0) == 0
    assert sync_store.flushed_offset == 0
    gate.open()
    assert await waiting is True
    assert sync_store.max_offset("T", 0) == 1
    assert sync_store.flushed_offset == result.end_offset
    assert durable(sync_store, result.end_offset) is None


class Ways:
    """Lets a test choose how regions are flushed, and end what the kernel does."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.at_once = 0
        self.is_quick = True
        self.error: OSError | None = None
        self.ends: list[Callable[[OSError | None], None]] = []
        real = SystemMappedRegion.flush

        def flush_at_once(region: SystemMappedRegion) -> bool:
            if not self.is_quick:
                return False
            if self.error is not None:
                raise self.error
            real(region, 0, 1)
            self.at_once += 1
            return True

        def flush_soon(region: SystemMappedRegion, done: Callable[[OSError | None], None]) -> bool:
            self.ends.append(done)
            return True

        monkeypatch.setattr(SystemMappedRegion, "flush_at_once", flush_at_once)
        monkeypatch.setattr(SystemMappedRegion, "flush_soon", flush_soon)


async def test_a_quick_disk_makes_a_small_group_durable_at_once_and_the_kernel_a_larger_one(
    sync_store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    ways = Ways(monkeypatch)
    assert await waiting_for(sync_store, 100) is True
    assert (ways.at_once, ways.ends) == (1, [])
    group = [waiting_for(sync_store, 6000) for _ in range(3)]
    await asyncio.sleep(0)
    assert (ways.at_once, len(ways.ends)) == (1, 1)
    ways.ends[0](None)
    assert [waiting.result() for waiting in group] == [True] * 3


async def test_a_very_large_group_is_made_durable_by_a_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = new_store(
        small_config(
            tmp_path, flush_disk_type="SYNC_FLUSH", mapped_file_size_commit_log=4 << 20, max_message_size=2 << 20
        )
    )
    store.load()
    with monkeypatch.context() as patches:
        ways = Ways(patches)
        assert await waiting_for(store, 1_200_000) is True
        assert (ways.at_once, ways.ends) == (0, [])
    await store.shutdown()


async def test_the_loop_does_not_wait_for_a_flush_that_no_sender_waits_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = new_store(small_config(tmp_path))
    store.load()
    with monkeypatch.context() as patches:
        ways = Ways(patches)
        store.put_message(message())
        flushing = asyncio.create_task(store.flusher.flush_all())
        await asyncio.sleep(0)
        assert (ways.at_once, len(ways.ends)) == (0, 1)
        ways.ends[0](None)
        await flushing
        assert store.flushed_offset == store.max_physical_offset
    await store.shutdown()


async def test_what_arrives_while_the_kernel_flushes_joins_the_next_group(
    sync_store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    ways = Ways(monkeypatch)
    ways.is_quick = False
    first = waiting_for(sync_store)
    await asyncio.sleep(0)
    second = waiting_for(sync_store)
    await asyncio.sleep(0)
    assert len(ways.ends) == 1
    ways.ends[0](None)
    assert first.result() is True
    await asyncio.sleep(0)
    assert not second.done()
    ways.ends[1](None)
    assert second.result() is True


@pytest.mark.parametrize("is_quick", [True, False])
async def test_a_flush_without_a_thread_that_fails_is_final(
    sync_store: MessageStore, monkeypatch: pytest.MonkeyPatch, is_quick: bool
) -> None:
    ways = Ways(monkeypatch)
    ways.is_quick, ways.error = is_quick, OSError(5, "Input/output error")
    waiting = waiting_for(sync_store)
    await asyncio.sleep(0)
    for end in ways.ends:
        end(ways.error)
    assert await waiting is False
    assert sync_store.put_message(message()).status is PutMessageStatus.SERVICE_NOT_AVAILABLE
    assert sync_store.flushed_offset == 0


async def test_a_shutdown_waits_for_what_the_kernel_flushes(
    sync_store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    ways = Ways(monkeypatch)
    ways.is_quick = False
    waiting = waiting_for(sync_store)
    await asyncio.sleep(0)
    ending = asyncio.create_task(sync_store.shutdown())
    await asyncio.sleep(0)
    ways.ends[0](None)
    await ending
    assert waiting.result() is True


async def test_everything_that_arrives_during_a_flush_joins_the_next(
    sync_store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(monkeypatch)
    gate.close()
    first = durable(sync_store, sync_store.put_message(message()).end_offset)
    await asyncio.sleep(0)  # a group begins at the end of the turn
    others = [durable(sync_store, sync_store.put_message(message()).end_offset) for _ in range(50)]
    gate.open()
    outcomes = await asyncio.gather(*(waiting for waiting in [first, *others] if waiting is not None))
    assert outcomes == [True] * 51
    assert gate.count == 2


async def test_a_queue_offset_is_given_once_while_flushes_are_awaited(sync_store: MessageStore) -> None:
    assert [sync_store.put_message(message()).queue_offset for _ in range(5)] == [0, 1, 2, 3, 4]


async def test_a_flush_that_takes_too_long_is_answered_with_a_timeout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = TestClock()
    store = new_store(small_config(tmp_path, flush_disk_type="SYNC_FLUSH", sync_flush_timeout=1), clock)
    store.load()
    gate = Gate(monkeypatch)
    gate.close()
    waiting = durable(store, store.put_message(message()).end_offset)
    assert waiting is not None
    clock.now_ms += 2
    assert await asyncio.wait_for(waiting, 10) is False
    gate.open()
    await store.shutdown()


async def test_a_failed_flush_is_final_and_says_so(
    sync_store: MessageStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    gate = Gate(monkeypatch)
    gate.error = OSError(5, "Input/output error")
    waiting = durable(sync_store, sync_store.put_message(message()).end_offset)
    assert waiting is not None
    assert await waiting is False
    gate.error = None
    refused = sync_store.put_message(message())
    assert refused.status is PutMessageStatus.SERVICE_NOT_AVAILABLE
    assert "Input/output error" in refused.remark
    await sync_store.shutdown()
    assert (tmp_path / "abort").exists()


async def test_a_shutdown_answers_everybody_and_leaves_a_clean_store(tmp_path: Path) -> None:
    store = new_store(small_config(tmp_path, flush_disk_type="SYNC_FLUSH"))
    store.load()
    store.start()
    waiting = [durable(store, store.put_message(message(body=bytes(5000))).end_offset) for _ in range(40)]
    await store.shutdown()
    assert [future.result() for future in waiting if future is not None] == [True] * len([f for f in waiting if f])
    assert not (tmp_path / "abort").exists()
    again = new_store(small_config(tmp_path))
    assert again.load().dispatched_records == 0
    assert again.max_offset("T", 0) == 40
    again.close()


async def test_files_made_ahead_are_used_and_those_left_over_deleted(tmp_path: Path) -> None:
    store = new_store(small_config(tmp_path))
    store.load()
    store.start()
    for _ in range(30):
        store.put_message(message(body=bytes(9000)))
        await asyncio.sleep(0)
    end = store.max_physical_offset
    await store.shutdown()
    names = sorted(int(path.name) for path in (tmp_path / "commitlog").iterdir())
    assert names == list(range(0, end, 65_536))


async def test_checkpoint_and_inventory_follow_the_thorough_flush(tmp_path: Path) -> None:
    clock = TestClock()
    store = new_store(small_config(tmp_path), clock)
    store.load()
    store.put_message(message())
    async with store.queue_flusher.lock:
        await store.queue_flusher.flush_thoroughly()
    data = (tmp_path / "checkpoint").read_bytes()
    assert int.from_bytes(data[8:16], "big") == clock.now_ms
    assert store.flushed_offset == store.max_physical_offset  # the log is durable before anything speaks for it
    assert b'"T":{"0":[0,1]}' in (tmp_path / "inventory.json").read_bytes()
    await store.shutdown()


async def test_more_queues_than_may_be_mapped_are_all_flushed(tmp_path: Path) -> None:
    store = new_store(small_config(tmp_path, mapped_file_size_commit_log=1 << 20))
    store.queues.max_mapped = 10
    store.load()
    for number in range(300):
        assert store.put_message(message(f"T{number % 100}")).ok
    assert sum(1 for queue in store.queues if queue.files.files[0].is_mapped) <= 11
    await store.shutdown()
    again = new_store(small_config(tmp_path, mapped_file_size_commit_log=1 << 20))
    assert again.load().dispatched_records == 0
    assert all(again.max_offset(f"T{number}", 0) == 3 for number in range(100))
    again.close()


async def test_a_flush_that_comes_late_does_not_make_files_of_deleted_queues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = new_store(small_config(tmp_path))
    store.queues.max_mapped = 1
    store.load()
    topics = [f"T{number}" for number in range(12)]
    for topic in topics:
        store.put_message(message(topic))
    gate = Gate(monkeypatch)
    gate.close()
    async with store.queue_flusher.lock:
        flushing = asyncio.ensure_future(store.queue_flusher.flush_queues(0))
        while not store.queues.unflushed()[0].in_flush:  # noqa: ASYNC110
            await asyncio.sleep(0)
        assert store.put_deletion(topics).ok
        store.flusher.write_buffered()
        gate.open()
        await flushing
    assert gate.count < len(topics)  # some were still to be opened when they were gone
    assert [topic for topic in topics if (tmp_path / "consumequeue" / topic).exists()] == []
    assert store.queue_flusher.failure is None
    await store.shutdown()


async def test_a_queue_file_that_somebody_removed_is_not_called_durable(tmp_path: Path) -> None:
    store = new_store(small_config(tmp_path))
    store.queues.max_mapped = 1
    store.load()
    for topic in ("A", "B"):
        store.put_message(message(topic))
    (tmp_path / "consumequeue" / "A" / "0" / f"{0:020d}").unlink()
    async with store.queue_flusher.lock:
        with pytest.raises(FileNotFoundError, match="consumequeue/A/0"):
            await store.queue_flusher.flush_queues(0)
    assert "consumequeue" in str(store.queue_flusher.failure)
    await store.shutdown()
    again = opened(small_config(tmp_path))
    assert again.max_offset("A", 0) == 1
    assert again.get_message("g", "A", 0, 0, 32, None).buffers
    again.close()


async def test_who_would_join_the_next_group_is_told_when_this_one_has_ended(
    sync_store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    assert not sync_store.flusher.joins_next(lambda: told.append("nothing is in flight"))
    gate = Gate(monkeypatch)
    gate.close()
    waiting = waiting_for(sync_store)
    await asyncio.sleep(0)
    assert sync_store.flusher.joins_next(lambda: told.append("ended" if waiting.done() else "ended too early"))
    assert told == []
    gate.open()
    assert await waiting is True
    assert told == ["ended"]
    assert not sync_store.flusher.joins_next(lambda: told.append("nothing is in flight"))


async def test_nobody_waits_for_an_interval_flush(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = new_store(small_config(tmp_path))
    store.load()
    gate = Gate(monkeypatch)
    gate.close()
    store.put_message(message())
    flushing = asyncio.ensure_future(store.flush())
    await asyncio.sleep(0)
    assert store.flushed_offset == 0
    assert not store.flusher.joins_next(lambda: None)
    gate.open()
    await flushing
    await store.shutdown()


async def test_an_inventory_made_in_slices_is_of_the_moment_at_which_it_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("maxq.store.durability.consume_queue_flusher._QUEUES_OF_SLICE", 2)
    store = opened(small_config(tmp_path))
    for number in range(20):
        store.put_message(message(topic=f"T{number}"))
    for doomed in ([], ["T1", "T2"]):
        async with store.queue_flusher.lock:
            making = asyncio.ensure_future(store.queue_flusher._snapshot_in_slices())
            turns = 0
            while not making.done():
                await asyncio.sleep(0)
                turns += 1
                if making.done():
                    break
                for topic in ("T0", "T19", f"new{turns}"):  # one looked at, one that will be, one that was not there
                    store.put_message(message(topic=topic))
                if turns == 3 and doomed:
                    assert store.put_deletion(doomed).ok
        assert turns > 5
        assert making.result() == store.queue_flusher.snapshot()
