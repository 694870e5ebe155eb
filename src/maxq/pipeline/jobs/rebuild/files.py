"""Puts what pieces of the log left into ConsumeQueue and IndexFile files.

Units have their places by their queue offsets, so that every task writes its own straight into the files, in any order
and more than once; a file is as long as its broker makes it from the beginning, and what nobody writes stays a hole.
Index entries have theirs by how many come before them: a task keeps its entries in a file beside, and when all have
been counted each IndexFile is made whole by one task, through the broker's own IndexTail.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby
from mmap import MAP_ANONYMOUS, MAP_PRIVATE, mmap
from operator import itemgetter
from pathlib import Path, PurePath
from struct import Struct
from typing import Final

from maxq.pipeline.jobs.rebuild.log_dispatch import ENTRY_SIZE, UnitRun
from maxq.runtime.files.durable_files import DurableFiles, SyncedFile, sync_folder, write_all
from maxq.store.files.mapped_file import offset_to_file_name
from maxq.store.index.index_file import ENTRY_SIZE as INDEX_ENTRY_SIZE
from maxq.store.index.index_file import HEADER, HEADER_SIZE, SLOT_SIZE
from maxq.store.log.tails_cy import IndexTail
from maxq.store.queue.batch_consume_queue import BATCH_UNIT_SIZE, BatchUnit
from maxq.store.queue.consume_queue import BLANK_UNIT_SIZE, CQ_STORE_UNIT_SIZE, UNIT
from maxq.store.tools.index_files import Geometry

_BATCH_UNIT: Final = Struct(">qiqqqhii")
_ENTRY: Final = Struct(">iqq")
_PRE_BLANK: Final = UNIT.pack(0, BLANK_UNIT_SIZE, 0)


def write_run(folder: PurePath, file_size: int, run: UnitRun) -> None:
    """Put a run of units into the files of its queue.

    Args:
        folder: of all ConsumeQueues.
        file_size: of one file, a multiple of 20.
    """
    for segment in run.segments():
        position = segment.first * CQ_STORE_UNIT_SIZE
        write_at(folder / run.topic / str(run.queue_id), file_size, position, segment.chunks)


def write_pre_blank(folder: PurePath, file_size: int, first: int) -> None:
    """Fill the first file of a queue up to its first unit, at queue offset `first`."""
    position = first * CQ_STORE_UNIT_SIZE
    blank = position % file_size
    write_at(folder, file_size, position - blank, [memoryview(_PRE_BLANK * (blank // CQ_STORE_UNIT_SIZE))])


def write_batch_units(folder: PurePath, file_size: int, units: Iterable[BatchUnit]) -> None:
    """Write all units of one BatchConsumeQueue."""
    data = b"".join(_BATCH_UNIT.pack(*unit, -1, 0) for unit in units)
    write_at(folder, file_size, 0, [memoryview(data)])


def batch_file_size(size: int) -> int:
    """Return the file size of a BatchConsumeQueue, rounded as a broker rounds its setting."""
    return -(-size // BATCH_UNIT_SIZE) * BATCH_UNIT_SIZE


def write_at(folder: PurePath, file_size: int, position: int, chunks: Iterable[memoryview]) -> None:
    """Write chunks, one behind the other, from a logical byte position into the files of a folder."""
    for number, pieces in groupby(_by_file(file_size, position, chunks), itemgetter(0)):
        file = _open_sized(folder / offset_to_file_name(number * file_size), file_size)
        try:
            for _, place, piece in pieces:
                write_all(file.fd, piece, place)
        finally:
            file.close()


def _by_file(file_size: int, position: int, chunks: Iterable[memoryview]) -> Iterator[tuple[int, int, memoryview]]:
    """Cut chunks where files end; yields number of the file, position in it, bytes."""
    for chunk in chunks:
        while chunk:
            number, place = divmod(position, file_size)
            piece = chunk[: file_size - place]
            yield number, place, piece
            position += len(piece)
            chunk = chunk[len(piece) :]


def _open_sized(path: PurePath, size: int) -> SyncedFile:
    """Open for writing; the file is created if it is missing, also by concurrent tasks."""
    file = DurableFiles().open(Path(path), read_only=False)
    file.set_size(size)
    return file


@dataclass(frozen=True, slots=True)
class EntrySlice:
    """Entries [first, end) of one file in which a task has kept them."""

    path: str
    first: int
    end: int

    def read(self) -> bytes:
        with open(self.path, "rb") as file:
            file.seek(self.first * ENTRY_SIZE)
            return file.read((self.end - self.first) * ENTRY_SIZE)


@dataclass(frozen=True, slots=True)
class IndexPlan:
    """Plan of one IndexFile.

    Attributes:
        number: 0 is the oldest.
        slices: its entries, in log order.
        before: the last entry of the file before it, if there is one.
    """

    number: int
    slices: tuple[EntrySlice, ...]
    before: EntrySlice | None

    def first_timestamp(self) -> int:
        """Store time of the first record, milliseconds."""
        first = self.slices[0]
        return int(_ENTRY.unpack(EntrySlice(first.path, first.first, first.first + 1).read())[2])


def index_names(plans: Iterable[IndexPlan]) -> list[str]:
    """Return the files' names in order: the store time of a file's first record, as brokers name files by the time at
    which they make them, or a millisecond later than the file before."""
    names: list[str] = []
    last = -1
    for plan in plans:
        last = max(plan.first_timestamp(), last + 1)
        names.append(index_file_name(last))
    return names


def index_file_name(timestamp_ms: int) -> str:
    """Format a time as yyyyMMddHHmmssSSS, UTC."""
    moment = datetime.fromtimestamp(timestamp_ms // 1000, UTC)
    return f"{moment:%Y%m%d%H%M%S}{timestamp_ms % 1000:03d}"


def keep_entries(path: PurePath, entries: Sequence[memoryview]) -> None:
    """Write a piece's entries to a file of their own."""
    with open(path, "wb", buffering=0) as file:
        for chunk in entries:
            while chunk:
                chunk = chunk[file.write(chunk) :]


def plan_index(kept: Sequence[tuple[str, int]], geometry: Geometry) -> list[IndexPlan]:
    """Decide which entries go into which file.

    Args:
        kept: (file, number of entries) of each piece, in log order.
    """
    room = geometry.entries - 1  # entry 0 is never used
    plans: list[IndexPlan] = []
    slices: list[EntrySlice] = []
    held = 0
    before: EntrySlice | None = None

    def close() -> None:
        nonlocal held, before
        plans.append(IndexPlan(len(plans), tuple(slices), before))
        before = EntrySlice(slices[-1].path, slices[-1].end - 1, slices[-1].end)
        slices.clear()
        held = 0

    for path, count in kept:
        first = 0
        while first < count:
            if held == room:
                close()
            end = min(count, first + room - held)
            slices.append(EntrySlice(path, first, end))
            held += end - first
            first = end
    if slices:
        close()
    return plans


def write_index(path: PurePath, geometry: Geometry, plan: IndexPlan) -> None:
    """Write one IndexFile, durably."""
    with mmap(-1, geometry.file_size, MAP_PRIVATE | MAP_ANONYMOUS) as memory:
        view = memoryview(memory)
        _preset(view, plan.before)
        tail = IndexTail()
        tail.attach(view, geometry.slots, geometry.entries)
        for part in plan.slices:
            taken = tail.put_collected(part.read(), 0, part.end - part.first)
            assert taken == part.end - part.first, f"{path}: {taken} of {part} found room"
        tail.attach(None, 0, 0)
        used = HEADER_SIZE + SLOT_SIZE * geometry.slots + INDEX_ENTRY_SIZE * tail.index_count
        file = _open_sized(path, geometry.file_size)
        try:
            for start, end in _used_pages(view, used):
                write_all(file.fd, view[start:end], start)
            file.sync()
        finally:
            file.close()
            view.release()


def _preset(view: memoryview, before: EntrySlice | None) -> None:
    """Write the header that a broker gives the next file: the end of the previous one."""
    offset, timestamp = (0, 0) if before is None else _ENTRY.unpack(before.read())[1:]
    HEADER.pack_into(view, 0, timestamp, timestamp, offset, offset, 0, 1)


_PAGES: Final = 1 << 20


def _used_pages(view: memoryview, end: int) -> Iterator[tuple[int, int]]:
    """Yield the ranges that are not all zero, so that a slot table with few keys stays sparse."""
    zeros = bytes(_PAGES)
    for start in range(0, end, _PAGES):
        stop = min(end, start + _PAGES)
        if view[start:stop] != zeros[: stop - start]:
            yield start, stop


def sync_queue(folder: PurePath) -> None:
    """Make one queue's files durable, and their names."""
    files = DurableFiles()
    for name in os.listdir(folder):
        files.sync(Path(folder, name))
    sync_folder(folder)
