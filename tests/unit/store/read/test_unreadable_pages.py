"""Pages of the store that the device cannot read: a touch of one is SIGBUS, which ends the process.

The pages are real ones: a file that is cut behind a mapping has none where it was, as one on a broken disk. What looks
at them does so in a child process, so that a touch fails the test alone.
"""

import asyncio
import os
import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from maxq.errors import StoreRefusedError
from maxq.protocol.enums import BoundaryType
from maxq.runtime.files.system import SystemMappedRegion
from maxq.store.message_store import MessageStore
from maxq.store.read.cached_pull_reader_cy import CachedPullReader
from maxq.store.store_results import GetMessageResult
from maxq.store.timer.timer_topic import TimerTopic
from tests.unit.store.stores import message, opened, small_config

_MESSAGES = 60
_CUT_AT = 16 << 10  # of the first file of the log


def filled(root: Path, *, again: bool = False) -> MessageStore:
    """A store whose first log file is full; `again`: opened anew, so that nothing of it was written by this one."""
    config = small_config(root, mapped_file_size_consume_queue=4000, max_hash_slot_num=5000)
    store = opened(config)
    for number in range(_MESSAGES):
        assert store.put_message(message(body=bytes(2000), KEYS=f"k{number}")).ok
    if again:
        asyncio.run(store.shutdown())
        store = opened(config)
    return store


def lose(store: MessageStore) -> None:
    """Make the pages of the first log file unreadable, from _CUT_AT on."""
    file = store.commit_log.file_at(0)
    assert file is not None
    file.view[:1]  # mapped
    os.truncate(file.path, _CUT_AT)


def assert_survives(work: Callable[[], None]) -> None:
    """Do `work` in a child process; fail if it ends by a signal or an error."""
    child = os.fork()
    if not child:
        try:
            work()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0


def pull(store: MessageStore, offset: int, count: int = 32, *, may_wait: bool = True) -> GetMessageResult:
    return store.get_message("G", "T", 0, offset, count, None, may_wait=may_wait)


def refused(work: Callable[[], object]) -> None:
    with pytest.raises(OSError, match="cannot read"):
        work()


@pytest.mark.parametrize("again", [False, True], ids=["far behind", "after a restart"])
def test_a_pull_of_what_the_disk_cannot_read_is_refused_and_its_neighbours_are_given(
    tmp_path: Path, again: bool
) -> None:
    store = filled(tmp_path, again=again)
    if not again:
        store.update_config(replace(store.config, access_message_in_memory_max_ratio=0))
    lose(store)

    def work() -> None:
        told = pull(store, 20)
        assert (told.must_read_first, told.buffers) == (True, [])
        refused(told.bring_in)
        refused(lambda: pull(store, 20, may_wait=False))
        reader = CachedPullReader(
            store._context, store.commit_log, store.queues, set(), store.reader._page_cache, 1 << 30
        )
        assert not reader.read("T", b"T", 0, 20, 32, 1 << 20, None)
        assert pull(store, 0, 3, may_wait=False).message_count == 3
        assert pull(store, 40, may_wait=False).message_count

    assert_survives(work)


def test_what_asks_for_single_records_is_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = filled(tmp_path, again=True)
    place = store.queue_units("T", 0, 20, 1)[0][0]
    lose(store)

    def work() -> None:
        refused(lambda: store.select_one_message(place))
        refused(lambda: store.look_message_by_offset(place))
        refused(lambda: store.store_time_at("T", 0, 20))
        refused(lambda: store.offset_by_time("T", 0, 1_700_000_000_001, BoundaryType.UPPER))
        refused(lambda: store.query_message("T", "k20", 10, 0, 1 << 62))
        refused(lambda: store.log_bytes(place, 100))
        found = [offset for step in store.records_with(b"KEYS", 0) for offset in step]
        assert found and min(found) >= 65_536 and "is not searched" in caplog.text
        assert store.select_one_message(0) is not None

    assert_survives(work)


def test_units_of_a_queue_and_entries_of_an_index_are_refused(tmp_path: Path) -> None:
    store = filled(tmp_path, again=True)
    queue = store.queue("T", 0)
    index = store.index.files[0]
    assert queue is not None and queue.unit(0) is not None and queue.files.first is not None
    os.truncate(queue.files.first.path, 0)
    assert index.entry(1)
    os.truncate(index.path, 4096)

    def work() -> None:
        refused(lambda: queue.unit(0))
        refused(lambda: queue.some_units_from(0, 10))
        refused(lambda: list(index.select(1 << 12, 0, 1 << 62)))
        refused(lambda: index.entry(1))

    assert_survives(work)


def test_a_timer_message_that_the_disk_cannot_read_is_passed_over_with_a_line_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = filled(tmp_path, again=True)
    place, size, _ = store.queue_units("T", 0, 20, 1)[0]
    lose(store)

    def work() -> None:
        assert TimerTopic(store).record_at(place, size) is None
        assert TimerTopic(store).out_ms_at(place, size) is None
        assert f"the timer message at physical offset {place} cannot be read, and is lost" in caplog.text

    assert_survives(work)


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_start_names_the_place_that_the_disk_cannot_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_clean: bool
) -> None:
    asyncio.run(filled(tmp_path).shutdown())
    if not is_clean:
        (tmp_path / "abort").touch()
        (tmp_path / "checkpoint").unlink()

    def load(region: SystemMappedRegion, start: int, end: int) -> None:
        if len(region.view) == 65_536 and start <= _CUT_AT < end:
            raise OSError(5, "the device cannot read it")

    monkeypatch.setattr(SystemMappedRegion, "load", load)
    monkeypatch.setattr(SystemMappedRegion, "is_resident", lambda region, start, end: False)
    with pytest.raises(StoreRefusedError, match=r"\d{20}: the device cannot read .*ddrescue"):
        filled(tmp_path)
