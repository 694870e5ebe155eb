"""A log makes its records in memory and writes a group at a time."""

import asyncio
import resource
import sys
from pathlib import Path

import pytest

from maxq.broker.processors.acknowledgement import Acknowledgement
from maxq.protocol.message.message import decode_record
from maxq.runtime.files.system import SystemDisk, SystemMappedRegion
from maxq.store.log import write_buffer as log_write_buffer
from maxq.store.message_store import MessageStore
from tests.durability import durable
from tests.unit.store.stores import message, new_store, small_config


@pytest.fixture
def writes(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """(position, length) of every write to a file."""
    seen: list[tuple[int, int]] = []
    write = SystemMappedRegion.write

    def noted(self: SystemMappedRegion, position: int, data: memoryview) -> None:
        seen.append((position, len(data)))
        write(self, position, data)

    monkeypatch.setattr(SystemMappedRegion, "write", noted)
    return seen


def buffered(tmp_path: Path, flush: str = "SYNC_FLUSH", **settings: int) -> MessageStore:
    store = new_store(small_config(tmp_path, flush_disk_type=flush, max_message_size=1 << 20, **settings))
    store.load()
    return store


FLUSH_TYPES = pytest.mark.parametrize("flush", ["SYNC_FLUSH", "ASYNC_FLUSH"])


async def test_with_async_flush_what_is_stored_outlives_the_process_at_once(
    tmp_path: Path, writes: list[tuple[int, int]]
) -> None:
    store = buffered(tmp_path, "ASYNC_FLUSH")
    ends = [store.put_message(message()).end_offset for _ in range(3)]
    assert writes == [(0, ends[0]), (ends[0], ends[0]), (ends[1], ends[0])]
    assert [durable(store, end) for end in ends] == [None] * 3, "nobody waits for the disk"
    await store.shutdown()


def test_what_is_still_in_the_ring_is_known(tmp_path: Path) -> None:
    buffer = log_write_buffer.LogWriteBuffer(SystemDisk(), 8 << 20)
    region = SystemDisk().map(tmp_path / "file", 8 << 20)
    buffer.attach(region, 5000)
    buffer.write_out(9000)
    assert [buffer.has(position, 9000) for position in (4999, 5000, 9000)] == [False, True, True]
    size = buffer.limit - buffer.written
    assert [buffer.has(position, 5000 + size + 1) for position in (5000, 5001)] == [False, True], "written over"
    buffer.skip(20_000)
    assert [buffer.has(position, 20_000) for position in (9000, 20_000)] == [False, True]
    region.close()


async def test_what_arrives_in_one_turn_is_written_at_once(tmp_path: Path, writes: list[tuple[int, int]]) -> None:
    store = buffered(tmp_path)
    results = [store.put_message(message()) for _ in range(20)]
    waiting = [durable(store, result.end_offset) for result in results]
    assert writes == []
    assert await asyncio.gather(*(future for future in waiting if future is not None)) == [True] * 20
    assert writes == [(0, results[-1].end_offset)]
    await store.shutdown()


async def test_replication_reads_what_was_not_flushed_yet(tmp_path: Path) -> None:
    store = buffered(tmp_path)
    body = b"not flushed"
    result = store.put_message(message(body=body))
    piece = store.log_bytes(0, 1 << 20)
    assert piece is not None
    assert len(piece) == result.end_offset
    assert body in bytes(piece)
    await store.shutdown()


@FLUSH_TYPES
async def test_records_larger_than_the_memory_in_front_of_the_file_are_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flush: str
) -> None:
    monkeypatch.setattr(log_write_buffer, "RING_SIZE", 4096)
    store = buffered(tmp_path, flush, mapped_file_size_commit_log=256 << 10)
    bodies = [bytes([n % 251]) * size for n, size in enumerate((100, 5000, 3900, 60_000, 4000, 90_000, 10) * 5)]
    for body in bodies:
        result = store.put_message(message(body=body))
        assert result.ok, result.remark
    await store.shutdown()
    again = buffered(tmp_path, mapped_file_size_commit_log=256 << 10)
    assert again.report.damages == []
    assert [read(again, offset) for offset in range(len(bodies))] == bodies
    again.close()


def read(store: MessageStore, offset: int) -> bytes:
    (record,) = store.get_message("G", "T", 0, offset, 1, None).buffers
    return decode_record(record).body


async def test_the_rest_of_a_file_that_is_closed_stays_empty(tmp_path: Path) -> None:
    store = buffered(tmp_path, mapped_file_size_commit_log=64 << 10)
    for _ in range(40):
        assert store.put_message(message(body=b"\xff" * 5000)).ok
    await store.shutdown()
    files = sorted((tmp_path / "commitlog").iterdir())
    again = buffered(tmp_path, mapped_file_size_commit_log=64 << 10)
    size = again.get_message("G", "T", 0, 0, 1, None).total_bytes
    again.close()
    used = (64 << 10) // size * size
    content = files[0].read_bytes()
    assert content[used + 8 :] == bytes(len(content) - used - 8)


@FLUSH_TYPES
async def test_a_write_that_the_device_refuses_ends_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flush: str
) -> None:
    store = buffered(tmp_path, flush)

    def refuse(self: SystemMappedRegion, position: int, data: memoryview) -> None:
        raise OSError(5, "no such luck")

    with monkeypatch.context() as patched:
        patched.setattr(SystemMappedRegion, "write", refuse)
        waiting = durable(store, store.put_message(message()).end_offset)
        assert waiting is not None
        assert await waiting is False
    assert store.flusher.failure is not None
    assert "no such luck" in store.flusher.failure
    assert store.admission.refusal() is not None
    await store.shutdown()


async def test_what_is_told_without_waiting_is_in_the_file(tmp_path: Path, writes: list[tuple[int, int]]) -> None:
    store = buffered(tmp_path)
    end = store.put_message(message()).end_offset
    Acknowledgement(store.flusher).without_waiting()
    assert writes == [(0, end)]
    await store.shutdown()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the ring is Linux's")
def test_the_ring_is_mapped_ahead_of_its_writer(tmp_path: Path) -> None:
    """A first write to each page is a fault, and faults were half of a batch's copy."""
    size, group = 16 << 20, 40_000
    buffer = log_write_buffer.LogWriteBuffer(SystemDisk(), size)
    region = SystemDisk().map(tmp_path / "file", size)
    region.allocate(0, size)
    buffer.attach(region, 0)
    records = bytes(group)
    position, faults = 0, 0
    while position + group < size:
        before = resource.getrusage(resource.RUSAGE_THREAD).ru_minflt
        buffer.view[position : position + group] = records
        if position > log_write_buffer.RING_SIZE:  # once around: its memory is there
            faults += resource.getrusage(resource.RUSAGE_THREAD).ru_minflt - before
        position += group
        buffer.write_out(position)
    region.close()
    assert faults < (position >> 12) // 8
