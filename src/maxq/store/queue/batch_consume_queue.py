"""The queue of a BatchCQ topic: one unit per record, which may hold many messages (BatchConsumeQueue.java).

A unit is 46 bytes, big-endian:

    physical offset:8  size:4  tags code:8  store time:8  message base offset:8  batch size:2  compacted offset:4 (-1)
     reserved:4 (0)

Unit index and queue offset differ, so a queue offset is looked for by bisection of the base offsets.
"""

import struct
from collections.abc import Iterator
from pathlib import PurePath
from typing import NamedTuple

from maxq.runtime.interfaces import Disk
from maxq.store.files.block_reserve import back_units
from maxq.store.files.mapped_file import MappedFile, clear, holds_data
from maxq.store.files.mapped_file_queue import MappedFileQueue
from maxq.store.log.tails_cy import QueueTail

BATCH_UNIT_SIZE = 46
_UNIT = struct.Struct(">qiqqqhii")
_WRITTEN_LATELY = 4096  # units: so many of those that this process wrote are in memory


class BatchUnit(NamedTuple):
    """One unit: a record and the queue offsets [base_offset, base_offset + batch_size) of its messages."""

    physical_offset: int
    size: int
    tags_code: int
    store_timestamp: int
    base_offset: int
    batch_size: int


class BatchConsumeQueue:
    """A queue whose units each cover a batch, in order of their base offsets.

    Attributes:
        next_queue_offset: base offset of the next record that is appended to the log.
        numbered_to: lower bound of the next queue offset: messages below it without a unit are no longer in the log, or
            damaged.
        end_at_start, lives: see ConsumeQueue.
        tail: has no units; used for arrivals: `watched`, and 20 × the maximum offset as `write_offset`. Its
            `max_physical_offset` is that of the queue.
    """

    def __init__(self, disk: Disk, base: PurePath, topic: str, queue_id: int, file_size: int) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.files = MappedFileQueue(disk, base, f"{topic}/{queue_id}", file_size)
        self.count = 0  # units; unit i is at logical byte 46 × i
        self.next_queue_offset = self.numbered_to = 0
        self.tail = QueueTail(topic, queue_id, self)
        self.max_physical_offset = -1  # start of the last record that has a unit
        self.end_at_start = 0
        self.lives = 0
        # the file that is written, whose blocks are allocated up to `_backed_end`
        self._backed: MappedFile | None = None
        self._backed_end = 0

    @property
    def first_index(self) -> int:
        return self.files.min_offset // BATCH_UNIT_SIZE

    @property
    def max_offset(self) -> int:
        """Queue offset behind the last message; without units, where numbering goes on."""
        last = self.unit(self.count - 1)
        return self.numbered_to if last is None else last.base_offset + last.batch_size

    @property
    def taken_offset(self) -> int:
        """Return the queue offset behind the last stored message, readable or not."""
        return max(self.max_offset, self.next_queue_offset)

    def number_on(self, queue_offset: int) -> None:
        """Give no later message a queue offset below `queue_offset`."""
        self.numbered_to = max(self.numbered_to, queue_offset)
        self.next_queue_offset = max(self.next_queue_offset, queue_offset)

    def min_offset(self, min_physical_offset: int) -> int:
        """Smallest queue offset still in the log; -1 if there never was a unit."""
        low, high = self.first_index, self.count
        while low < high:
            middle = (low + high) // 2
            unit = self.unit(middle)
            if unit is None or unit.physical_offset < min_physical_offset:
                low = middle + 1
            else:
                high = middle
        found = self.unit(low)
        return found.base_offset if found is not None else (self.max_offset or -1)

    def unit(self, index: int) -> BatchUnit | None:
        """Returns unit number `index`; None if there is none.

        Raises:
            OSError: the device cannot read it.
        """
        if not self.first_index <= index < self.count:
            return None
        return self._read(index)

    def _read(self, index: int) -> BatchUnit | None:
        position = index * BATCH_UNIT_SIZE
        file = self.files.find(position)
        if file is None:
            return None
        view, at = file.view, position - file.file_from_offset
        if index < self.count - _WRITTEN_LATELY:
            file.region.bring_in(at, at + BATCH_UNIT_SIZE)
        return BatchUnit(*_UNIT.unpack_from(view, at)[:6])

    def find_index(self, queue_offset: int) -> int:
        """Return the index of the unit that holds `queue_offset`, or of the first one behind it; `count` if there is
        none."""
        low, high = self.first_index, self.count
        while low < high:
            middle = (low + high) // 2
            unit = self._read(middle)
            if unit is not None and unit.base_offset + unit.batch_size <= queue_offset:
                low = middle + 1
            else:
                high = middle
        return low

    def units(self, index: int) -> Iterator[BatchUnit]:
        """Returns the units from number `index` on."""
        for number in range(max(index, self.first_index), self.count):
            unit = self._read(number)
            if unit is None:
                return
            yield unit

    def append(self, unit: BatchUnit) -> bool:
        """Write one unit. Returns False if its record has one already. Raises OSError if the disk has no room for
        it."""
        if unit.physical_offset <= self.max_physical_offset:
            return False
        position = self.count * BATCH_UNIT_SIZE
        file = self.files.find(position) or self._create(position)
        place = position - file.file_from_offset
        if file is not self._backed or place + BATCH_UNIT_SIZE > self._backed_end:
            self._backed_end = back_units(file.region, place, file.file_size)
            self._backed = file
        _UNIT.pack_into(file.view, place, *unit, -1, 0)
        self.count += 1
        self._ends_with(unit)
        self.tail.write_offset = 20 * (unit.base_offset + unit.batch_size)
        file.wrote_position = position + BATCH_UNIT_SIZE - file.file_from_offset
        return True

    def _ends_with(self, unit: BatchUnit | None) -> None:
        self.max_physical_offset = self.tail.max_physical_offset = -1 if unit is None else unit.physical_offset

    def _create(self, position: int) -> MappedFile:
        last = self.files.last
        if last is not None:
            last.wrote_position = last.file_size
        return self.files.create(position - position % self.files.file_size)

    def has_units(self, first: int, end: int, physical_offset: int) -> bool:
        """Return whether the files have the units `first` to `end` - 1, as far as the last of them tells, which is of
        a record below `physical_offset`."""
        if not self.files.files or self.first_index > first:
            return False
        unit = self._read(end - 1)
        return unit is not None and unit.size > 0 and 0 <= unit.physical_offset < physical_offset

    def end_in(self, ranges: list[tuple[int, int]]) -> int:
        """Return the queue offset behind the last message whose record begins in one of these ranges of the log, as the
        units on disk tell; 0 if there is none."""
        end = 0 if self.files.last is None else self.files.last.end_offset // BATCH_UNIT_SIZE
        found = 0
        for index in range(self.first_index, end):
            unit = self._read(index)
            if unit is None or unit.size <= 0:
                break
            if unit.batch_size > 0 and any(start <= unit.physical_offset < stop for start, stop in ranges):
                found = max(found, unit.base_offset + unit.batch_size)
        return found

    def cut(self, physical_offset: int, most: int | None) -> None:
        """Keep good units whose record lies below `physical_offset`; recovery writes the others again. Bytes behind
        them in the files are zeroed durably, because a later start, when the log has grown, must not read them as
        units. Blocks.

        Args:
            most: unit number behind the last that can be good; None if nothing is known. Then only units in ascending
                order are accepted.
        """
        first = last = self.first_index
        end = 0 if self.files.last is None else self.files.last.end_offset // BATCH_UNIT_SIZE
        before = BatchUnit(-1, 0, 0, 0, 0, 0)
        while last < (end if most is None else min(end, most)):
            unit = self._read(last)
            if (
                unit is None
                or unit.size <= 0
                or unit.batch_size <= 0
                or not 0 <= unit.physical_offset < physical_offset
            ):
                break
            if most is None and (
                unit.physical_offset <= before.physical_offset
                or unit.base_offset < before.base_offset + before.batch_size
            ):
                break
            before = unit
            last += 1
        self.count = last
        if last == first:
            self.files.destroy()
            self.count = 0
        else:
            self.files.truncate(last * BATCH_UNIT_SIZE)
            self._clear_rest()
        self._ends_with(self.unit(self.count - 1))
        self.next_queue_offset = max(self.max_offset, self.numbered_to)

    def _clear_rest(self) -> None:
        """Zero the part of the last file behind the last unit. Blocks if that part is not zero already."""
        last = self.files.last
        assert last is not None, "a queue with units has files"
        position = self.count * BATCH_UNIT_SIZE - last.file_from_offset
        if holds_data(last.region, position, last.file_size):
            clear(last.region, position, last.file_size)

    def flush(self) -> None:
        """Make all units of the queue durable. Blocks."""
        for file in self.files.files:
            file.flush()

    def delete_expired(self, min_physical_offset: int) -> list[MappedFile]:
        """Remove files, never the last, whose last unit points below `min_physical_offset` from the list."""
        gone: list[MappedFile] = []
        while len(self.files.files) > 1:
            unit = self._read(self.files.files[0].end_offset // BATCH_UNIT_SIZE - 1)
            if unit is None or unit.physical_offset >= min_physical_offset:
                break
            gone.append(self.files.take_first())
        return gone

    def release(self) -> None:
        """Unmap all files of the queue."""
        self._backed = None
        self.files.release()

    def destroy(self) -> None:
        """Delete the files; numbering starts again at 0. Blocks."""
        self.files.destroy()
        self.forget()

    def forget(self) -> None:
        """Detach files and units; numbering starts again at 0."""
        self._backed = None
        self._backed_end = 0
        self.lives += 1
        self.files.files = []
        self.count = self.next_queue_offset = self.numbered_to = 0
        self.tail.write_offset = 0
        self._ends_with(None)
