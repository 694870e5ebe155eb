"""What is read out of memory without an object a message is what `get_message` gives, in both forms."""

import random
from array import array
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from maxq.runtime.files.system import SystemMappedRegion
from maxq.store.files.page_cache_probe import PageCacheProbe
from maxq.store.message_store import MessageStore
from maxq.store.read.message_reader import tags_codes
from maxq.store.store_results import GetMessageStatus
from tests.unit.both_forms import both
from tests.unit.store.stores import message, opened, small_config
from tests.unit.store.test_message_store import Tags

_MEMORY = 1 << 30


@pytest.fixture(params=both("maxq.store.read.cached_pull_reader_cy"), ids=["uncompiled", "installed"])
def form(request: pytest.FixtureRequest) -> ModuleType:
    module: ModuleType = request.param
    return module


@pytest.fixture
def store(tmp_path: Path) -> MessageStore:
    """Files large enough for some hundred messages."""
    return opened(small_config(tmp_path, mapped_file_size_commit_log=1 << 20, mapped_file_size_consume_queue=4000))


def reader_of(form: ModuleType, store: MessageStore, compacted: set[str] | None = None) -> Any:
    page_cache = PageCacheProbe(store._context)
    return form.CachedPullReader(
        store._context, store.commit_log, store.queues, compacted or set(), page_cache, _MEMORY
    )


def read(reader: Any, offset: int, *, topic: str = "T", queue_id: int = 0, count: int = 32, size: int = 1 << 27,
         tags: Tags | None = None) -> bool:  # fmt: skip
    codes = tags_codes(tags)
    wanted = None if codes is None else frozenset(codes)
    return bool(reader.read(topic, topic.encode(), queue_id, offset, count, size, wanted))


def fill(store: MessageStore, count: int, *, seed: int = 1, largest: int = 600) -> None:
    """Messages of two topics and three queues, tags x, y, z or none."""
    chance = random.Random(seed)
    for number in range(count):
        tag = chance.choice(["x", "y", "z", ""])
        body = bytes([number & 0xFF]) * chance.randrange(1, largest)
        put = message(chance.choice(["T", "T", "U"]), chance.randrange(3), body, **({"TAGS": tag} if tag else {}))
        assert store.put_message(put).ok


@pytest.mark.parametrize("seed", range(4))
def test_it_takes_what_get_message_takes(form: ModuleType, store: MessageStore, seed: int) -> None:
    fill(store, 500, seed=seed)
    reader, chance, read_times = reader_of(form, store), random.Random(seed), 0
    for _ in range(300):
        topic, queue_id = chance.choice(["T", "U"]), chance.randrange(3)
        offset = chance.randrange(-1, store.max_offset(topic, queue_id) + 2)
        count, size = chance.choice([0, 1, 5, 32, 64]), chance.choice([0, 700, 5000, 1 << 28])
        tags = chance.choice([None, Tags("x"), Tags("x", "z"), Tags("nobody's")])
        wanted = store.get_message("g", topic, queue_id, offset, count, tags, size)
        if not read(reader, offset, topic=topic, queue_id=queue_id, count=count, size=size, tags=tags):
            assert reader.waits == (wanted.status is GetMessageStatus.OFFSET_OVERFLOW_ONE)
            assert wanted.status is not GetMessageStatus.FOUND or not _in_one_place(store, topic, queue_id, wanted)
            continue
        read_times += 1
        assert wanted.status is GetMessageStatus.FOUND
        assert [bytes(piece) for piece in reader.buffers()] == [bytes(buffer) for buffer in wanted.buffers]
        assert (
            reader.message_count, reader.total_bytes, reader.next_index, reader.min_offset, reader.max_offset,
            reader.last_physical_offset,
        ) == (
            wanted.message_count, wanted.total_bytes, wanted.next_begin_offset, wanted.min_offset, wanted.max_offset,
            wanted.last_physical_offset,
        )  # fmt: skip
    assert read_times > 100


def _in_one_place(store: MessageStore, topic: str, queue_id: int, wanted: Any) -> bool:
    """Are all its records in one file of the log?"""
    offsets = range(wanted.next_begin_offset - 1, wanted.next_begin_offset - wanted.message_count - 1, -1)
    queue = store.queues.find(topic, queue_id)
    assert queue is not None
    files = {store.commit_log.file_at(unit[0]) for unit in map(queue.unit, offsets) if unit is not None}
    return len(files) == 1


def test_a_queue_at_its_end_waits_and_grows(form: ModuleType, store: MessageStore) -> None:
    reader = reader_of(form, store)
    assert (read(reader, 0), reader.waits) == (False, False)  # it is not there yet
    assert store.put_message(message(body=b"first")).ok
    assert (read(reader, 1), reader.waits) == (False, True)
    assert (read(reader, 2), reader.waits) == (False, False)
    assert store.put_message(message(body=b"second")).ok
    assert read(reader, 1)
    assert not reader.waits
    assert b"second" in bytes(reader.buffers()[0])


def test_pieces_lie_where_places_says_and_the_file_is_let_go(form: ModuleType, store: MessageStore) -> None:
    fill(store, 100)
    reader = reader_of(form, store)
    assert read(reader, 3)
    assert isinstance(reader.places, array)
    starts, sizes = reader.places[: 2 * reader.count : 2], reader.places[1 : 2 * reader.count : 2]
    pieces = [bytes(reader.view[start : start + size]) for start, size in zip(starts, sizes, strict=True)]
    assert pieces == [bytes(buffer) for buffer in reader.buffers()]
    reader.forget()
    assert reader.view is None


def test_what_is_not_simple_is_left_to_get_message(form: ModuleType, store: MessageStore) -> None:
    fill(store, 100)
    assert read(reader_of(form, store), 0)
    assert not read(reader_of(form, store, compacted={"T"}), 0)
    assert not read(reader_of(form, store), 0, topic="Nowhere")
    assert not read(reader_of(form, store), 0, queue_id=9)
    assert not read(reader_of(form, store), 0, tags=Tags("nobody's"))


@pytest.mark.parametrize("is_there", [True, False])
def test_what_lies_further_back_than_memory_is_read_if_the_page_cache_has_it(
    form: ModuleType, store: MessageStore, is_there: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SystemMappedRegion, "is_resident", lambda self, start, end: is_there)
    fill(store, 100)
    reader = reader_of(form, store)
    assert read(reader, 0)
    assert not reader.is_behind
    store.update_config(replace(store.config, access_message_in_memory_max_ratio=0))
    assert read(reader, 0) == is_there
    if is_there:
        wanted = store.get_message("g", "T", 0, 0, 32, None)
        assert (reader.is_behind, reader.message_count) == (wanted.suggest_pulling_from_slave, wanted.message_count)


def test_units_of_a_queue_that_are_on_the_disk_are_not_touched(
    form: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = opened(small_config(tmp_path, mapped_file_size_commit_log=1 << 20, mapped_file_size_consume_queue=40_000))
    for _ in range(1200):
        assert store.put_message(message()).ok
    reader = reader_of(form, store)
    monkeypatch.setattr(SystemMappedRegion, "is_resident", lambda self, start, end: end <= 64 * 20)
    assert read(reader, 0, count=64)
    assert not read(reader, 0, count=65)
    assert not read(reader, 300)
    assert read(reader, 1190), "those written last are there"


def test_limits_that_change_hold_for_the_next_read(form: ModuleType, store: MessageStore) -> None:
    fill(store, 200)
    reader = reader_of(form, store)
    assert read(reader, 0)
    assert reader.message_count == 32
    store.update_config(replace(store.config, max_transfer_count_on_message_in_memory=5))
    assert read(reader, 0)
    assert reader.message_count == 5


def test_a_unit_that_points_to_no_record_is_left_to_get_message(form: ModuleType, store: MessageStore) -> None:
    fill(store, 100)
    reader, queue = reader_of(form, store), store.queues.find("T", 0)
    assert queue is not None
    good = queue.unit(4)
    assert good is not None
    assert read(reader, 0)
    for bad in ((good[0] + 1, good[1], good[2]), (1 << 40, good[1], good[2]), (good[0], good[1] + 4, good[2])):
        queue.put_unit(4, bad)
        assert not read(reader, 0), bad
    queue.put_unit(4, good)
    assert read(reader, 0)


def test_a_queue_whose_file_is_not_mapped_is_left_to_get_message(form: ModuleType, store: MessageStore) -> None:
    fill(store, 100)
    reader, queue = reader_of(form, store), store.queues.find("T", 0)
    assert queue is not None
    assert read(reader, 0)
    queue.release()
    assert not read(reader, 0)
    assert store.get_message("g", "T", 0, 0, 32, None).status is GetMessageStatus.FOUND
    assert read(reader, 0)


def test_more_pieces_than_one_call_sends_are_left_to_get_message(form: ModuleType, tmp_path: Path) -> None:
    config = small_config(tmp_path, mapped_file_size_commit_log=1 << 20, mapped_file_size_consume_queue=40_000)
    store = opened(replace(config, max_transfer_count_on_message_in_memory=1100))
    for _ in range(1001):
        for topic in ("T", "U"):
            assert store.put_message(message(topic, body=b"x")).ok
    reader = reader_of(form, store)
    assert read(reader, 0, count=1000)
    assert reader.count == 1000
    assert not read(reader, 0, count=1001)
