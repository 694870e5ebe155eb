"""Deleting by age, by the fill of the disk, on demand; and what must stay."""

import asyncio
import contextlib
import errno
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from maxq.runtime.files.system import SystemDisk
from maxq.runtime.interfaces import DiskUsage
from maxq.store.log.deletions import Deletions
from maxq.store.message_store import MessageStore
from maxq.store.queue.consume_queue import ConsumeQueue
from maxq.store.retention import clean
from maxq.store.store_results import PutMessageStatus
from tests.unit.store.stores import TestClock, delete_topics, message, opened, small_config

HOUR = 3_600_000
DELETE_WHEN = 4  # the setting's default


@pytest.fixture
def usage(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The disk is as full as the one number in this list says, percent."""
    percent = [10]
    monkeypatch.setattr(
        SystemDisk, "usage", lambda disk, path: DiskUsage(1000, percent[0] * 10, 1000 - percent[0] * 10)
    )
    return percent


@pytest.fixture
def clock() -> TestClock:
    return TestClock()


@pytest.fixture
def store(tmp_path: Path, clock: TestClock, usage: list[int]) -> MessageStore:
    config = small_config(
        tmp_path, delete_commit_log_files_interval=0, delete_consume_queue_files_interval=0, file_reserved_time=72
    )
    store = opened(config, clock)
    for _ in range(40):
        store.put_message(message(body=bytes(8000)))
    for path in (tmp_path / "commitlog").iterdir():
        os.utime(path, (clock.now_ms / 1000, clock.now_ms / 1000))
    return store


def files(store: MessageStore) -> int:
    return len(store.commit_log.files.files)


async def test_young_files_on_a_roomy_disk_stay(store: MessageStore) -> None:
    assert await store.cleaner.clean() == 0


async def test_old_files_go_at_the_hour_and_never_the_last(store: MessageStore, clock: TestClock) -> None:
    before = files(store)
    clock.now_ms += 73 * HOUR
    clock.go_to_hour(DELETE_WHEN - 1)
    assert await store.cleaner.clean() == 0
    clock.go_to_hour(DELETE_WHEN)
    assert await store.cleaner.clean() == before - 1
    assert files(store) == 1
    assert store.commit_log.min_offset > 0


async def test_old_files_go_on_demand(store: MessageStore, clock: TestClock) -> None:
    clock.now_ms += 73 * HOUR
    clock.go_to_hour(DELETE_WHEN + 1)
    store.cleaner.request()
    assert await store.cleaner.clean() > 0


async def test_a_fuller_disk_deletes_old_files_at_any_hour(
    store: MessageStore, clock: TestClock, usage: list[int]
) -> None:
    clock.go_to_hour(DELETE_WHEN + 1)
    usage[0] = 80
    assert await store.cleaner.clean() == 0  # above diskMaxUsedSpaceRatio, but nothing is old
    clock.now_ms += 73 * HOUR
    assert await store.cleaner.clean() > 0


async def test_a_nearly_full_disk_deletes_whatever_the_age(
    store: MessageStore, clock: TestClock, usage: list[int]
) -> None:
    clock.go_to_hour(DELETE_WHEN + 1)
    usage[0] = 87
    assert await store.cleaner.clean() > 0
    assert store.put_message(message()).ok


@pytest.mark.parametrize("percent", [10, 95])
async def test_a_page_that_the_disk_cannot_read_keeps_the_log_but_not_on_a_full_disk(
    store: MessageStore, clock: TestClock, usage: list[int], percent: int, caplog: pytest.LogCaptureFixture
) -> None:
    """It is one that says which messages somebody still needs, of the timer's log, for example."""

    async def unreadable(physical_offset: int) -> str:
        raise OSError(errno.EIO, "Input/output error")

    store.cleaner.needs["timer"] = unreadable
    before, usage[0] = files(store), percent
    clock.go_to_hour(DELETE_WHEN)
    clock.now_ms += 96 * HOUR
    assert (await store.cleaner.clean() > 0) is (percent == 95)
    assert (files(store) < before) is (percent == 95)
    lines = [line for line in caplog.messages if "the disk cannot read what timer needs: " in line]
    assert lines and "Input/output error" in lines[0]


async def test_a_full_disk_refuses_writes_with_cause_measure_and_limit_until_there_is_room(
    store: MessageStore, usage: list[int]
) -> None:
    usage[0] = 95
    await store.cleaner.clean()
    refused = store.put_message(message())
    assert refused.status is PutMessageStatus.SERVICE_NOT_AVAILABLE
    assert "95% full, the limit diskSpaceWarningLevelRatio is 90%" in refused.remark
    usage[0] = 50
    await store.cleaner.clean()
    assert store.put_message(message()).ok


async def test_queues_and_index_lose_what_the_log_lost_and_keep_their_numbers(
    store: MessageStore, usage: list[int], tmp_path: Path
) -> None:
    for number in range(300):
        store.put_message(message(body=bytes(700), KEYS=f"k{number}"))
    usage[0] = 87
    await store.cleaner.clean()
    low, high = store.min_offset("T", 0), store.max_offset("T", 0)
    assert 0 < low < high == 340
    queue = store.queue("T", 0)
    assert queue is not None
    first = queue.unit(low)
    assert first is not None
    assert first[0] >= store.min_physical_offset
    assert queue.files.min_offset > 0
    assert store.get_message("g", "T", 0, low, 1, None).message_count == 1
    store.close()
    again = opened(store.config)
    assert (again.min_offset("T", 0), again.max_offset("T", 0)) == (low, high)
    assert again.report.dispatched_records == 0
    again.close()


async def test_queues_whose_messages_are_all_gone_lose_their_files_and_keep_their_numbers(
    store: MessageStore, usage: list[int], tmp_path: Path, clock: TestClock
) -> None:
    fresh = opened(small_config(tmp_path / "other", delete_commit_log_files_interval=0), clock)
    fresh.put_message(message("Old"))
    fresh.put_message(message("SCHEDULE_TOPIC_XXXX"))
    for _ in range(30):
        fresh.put_message(message("New", body=bytes(8000)))
    usage[0] = 87
    await fresh.cleaner.clean()
    assert await fresh.cleaner.clean_expired_consume_queues() == 1
    assert not list((tmp_path / "other" / "consumequeue").glob("Old/0/*"))
    assert list((tmp_path / "other" / "consumequeue" / "SCHEDULE_TOPIC_XXXX").iterdir())
    assert fresh.min_offset("Old", 0) == fresh.max_offset("Old", 0) == 1
    fresh.close()
    again = opened(fresh.config)
    assert not again.report.rebuild_reasons
    assert again.put_message(message("Old")).queue_offset == 1
    assert again.get_message("g", "Old", 0, 1, 1, None).message_count == 1
    again.close()


async def test_deleted_topics_stay_deleted_after_a_crash_and_begin_anew_at_zero(
    store: MessageStore, tmp_path: Path
) -> None:
    store.put_message(message("Gone", 3))
    await delete_topics(store, "Gone")
    assert not (tmp_path / "consumequeue" / "Gone").exists()
    assert store.put_message(message("Gone", 3)).queue_offset == 0
    store.close()


async def test_unused_topics_go_and_light_queues_stay(tmp_path: Path, usage: list[int]) -> None:
    store = opened(small_config(tmp_path, enable_lmq=True, enable_multi_dispatch=True))
    store.put_message(message("Kept", INNER_MULTI_DISPATCH="%LMQ%a"))
    store.put_message(message("Unused"))
    store.queues.is_batch_topic = {"Batches": True, "Kept batches": True}.get
    for topic in ("Batches", "Kept batches"):
        assert store.put_message(message(topic)).ok
    assert await store.unused_topics({"Kept", "Kept batches"}) == {"Unused", "Batches"}
    await delete_topics(store, "Unused", "Batches")
    assert store.max_offset("Unused", 0) == store.max_offset("Batches", 0) == 0
    assert store.max_offset("Kept", 0) == store.max_offset("%LMQ%a", 0) == 1
    store.close()


async def test_others_are_served_while_the_last_units_of_all_queues_are_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each may have to be mapped first: 2,000 at once held the loop for 90 ms."""
    store = opened(small_config(tmp_path))
    for queue_id in range(60):
        store.put_message(message("T", queue_id))
    look, turns, looked_in = clean._last_physical_offset, 0, []

    def slow(queue: ConsumeQueue) -> int:
        looked_in.append(turns)
        time.sleep(0.001)
        return look(queue)

    monkeypatch.setattr(clean, "_last_physical_offset", slow)
    cleaning = asyncio.create_task(store.cleaner.clean_expired_consume_queues())
    while not cleaning.done():
        await asyncio.sleep(0)
        turns += 1
    assert cleaning.result() == 0
    assert len(looked_in) == 60
    assert looked_in[-1] - looked_in[0] > 5
    store.close()


async def test_a_deletion_is_in_its_own_file_before_its_record_goes_with_the_log(
    store: MessageStore, tmp_path: Path, clock: TestClock
) -> None:
    assert store.put_deletion(["TopicTest"]).ok
    deleted_at = store.incarnation("TopicTest")
    for _ in range(40):
        store.put_message(message(topic="Other", body=bytes(8000)))
    for path in (tmp_path / "commitlog").iterdir():
        os.utime(path, (clock.now_ms / 1000, clock.now_ms / 1000))
    clock.now_ms += 73 * HOUR
    store.cleaner.request()
    while store.commit_log.min_offset <= deleted_at:
        assert await store.cleaner.clean() > 0
    on_disk = Deletions(SystemDisk(), tmp_path)
    on_disk.load()
    assert on_disk.at("TopicTest") == deleted_at


async def test_a_file_that_could_not_be_deleted_goes_before_any_other(
    store: MessageStore, usage: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A log with a gap would not be taken by the next start."""
    delete, first, refusals = SystemDisk.delete, store.commit_log.files.files[0].path, 2

    def refused(disk: SystemDisk, path: Path) -> None:
        nonlocal refusals
        if path == first and refusals:
            refusals -= 1
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
        delete(disk, path)

    monkeypatch.setattr(SystemDisk, "delete", refused)
    usage[0] = 87
    for _ in range(2):
        with contextlib.suppress(OSError):
            await store.cleaner.clean()
    store.close()
    again = opened(store.config)
    assert again.put_message(message()).ok
    usage[0] = 10
    again.close()


async def test_a_file_that_somebody_has_removed_keeps_no_other(store: MessageStore, clock: TestClock) -> None:
    before = files(store)
    Path(store.commit_log.files.files[0].path).unlink()
    clock.now_ms += 73 * HOUR
    store.cleaner.request()
    assert await store.cleaner.clean() == before - 1
    store.close()


async def test_queue_and_index_files_that_could_not_be_deleted_go_with_the_next_run(
    store: MessageStore, usage: list[int], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for number in range(1000):
        store.put_message(message(body=bytes(700), KEYS=f"k{number}"))
    delete = SystemDisk.delete

    def refused(disk: SystemDisk, path: Path) -> None:
        if "commitlog" not in str(path):
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
        delete(disk, path)

    monkeypatch.setattr(SystemDisk, "delete", refused)
    usage[0] = 87
    with pytest.raises(OSError, match=r"Input/output error"):
        await store.cleaner.clean()
    queue = store.queue("T", 0)
    assert queue is not None
    monkeypatch.setattr(SystemDisk, "delete", delete)
    usage[0] = 10
    await store.cleaner.clean()
    assert {path.name for path in (tmp_path / "consumequeue" / "T" / "0").iterdir()} == {
        file.path.name for file in queue.files.files
    }
    assert {path.name for path in (tmp_path / "index").iterdir()} == {file.name for file in store.index.files}
    store.close()


async def test_no_file_of_a_queue_goes_before_an_older_one_that_could_not_be_deleted(
    store: MessageStore, usage: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A queue with a gap would be built anew from the whole log by the next start."""
    queue = store.queue("T", 0)
    assert queue is not None
    for _ in range(200):
        store.put_message(message(body=bytes(700)))
    delete, first, refusals = SystemDisk.delete, queue.files.files[0].path, 2

    def refused(disk: SystemDisk, path: Path) -> None:
        nonlocal refusals
        if path == first and refusals:
            refusals -= 1
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
        delete(disk, path)

    monkeypatch.setattr(SystemDisk, "delete", refused)
    usage[0] = 87
    for _ in range(2):
        with contextlib.suppress(OSError):
            await store.cleaner.clean()
        for _ in range(200):
            store.put_message(message(body=bytes(700)))
    assert refusals == 0
    store.close()
    usage[0] = 10
    again = opened(store.config)
    assert not again.report.rebuild_reasons and not again.report.faults
    again.close()


def refuse_tables(monkeypatch: pytest.MonkeyPatch, is_full: Callable[[], bool]) -> None:
    """Tables find no room while the disk is full."""
    replace = SystemDisk.replace

    def replaced(disk: SystemDisk, path: Path, data: bytes) -> None:
        if is_full():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        replace(disk, path, data)

    monkeypatch.setattr(SystemDisk, "replace", replaced)


async def test_what_a_file_said_that_went_for_room_is_written_down_at_once(
    usage: list[int], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    store = opened(small_config(tmp_path, delete_commit_log_files_interval=0))
    assert store.put_deletion(["T"]).ok
    for _ in range(10):
        store.put_message(message("Other", body=bytes(8000)))
    assert files(store) == 2
    refuse_tables(monkeypatch, lambda: files(store) > 1)
    usage[0] = 87
    assert await store.cleaner.clean() == 1
    on_disk = Deletions(SystemDisk(), tmp_path)
    on_disk.load()
    assert 0 <= on_disk.at("T") < store.min_physical_offset
    assert len(on_disk) == 1
    store.close()


async def test_no_second_file_goes_for_the_room_of_tables_if_the_first_did_not_help(
    store: MessageStore, usage: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They may be on another disk."""
    is_full = True
    refuse_tables(monkeypatch, lambda: is_full)
    usage[0] = 87
    assert [await store.cleaner.clean() for _ in range(3)] == [1, 0, 0]
    is_full = False
    assert await store.cleaner.clean() > 0
    store.close()


async def test_files_of_a_topic_that_is_made_again_while_queues_are_cleaned_stay(
    tmp_path: Path, usage: list[int], clock: TestClock
) -> None:
    config = small_config(tmp_path, delete_commit_log_files_interval=0, delete_consume_queue_files_interval=50)
    store = opened(config, clock)
    for queue_id in (0, 1):
        for _ in range(60):
            store.put_message(message("T", queue_id, bytes(2000)))
    for _ in range(40):
        store.put_message(message("Other", body=bytes(8000)))
    usage[0] = 87
    cleaning = asyncio.create_task(store.cleaner.clean())
    second = tmp_path / "consumequeue" / "T" / "0" / f"{0:020d}"
    while second.exists():  # noqa: ASYNC110 - a thread deletes it
        await asyncio.sleep(0.001)
    await asyncio.sleep(0.01)  # the pause before the files of the next queue
    assert not cleaning.done()
    assert store.put_deletion(["T"]).ok
    assert store.put_message(message("T", 1, b"new")).queue_offset == 0
    await cleaning
    assert list((tmp_path / "consumequeue" / "T" / "1").iterdir()), "the queue of the new topic has its file"
    store.close()
    again = opened(config, clock)
    assert not again.report.rebuild_reasons
    assert again.get_message("g", "T", 1, 0, 1, None).message_count == 1
    again.close()
