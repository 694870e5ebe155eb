"""The queue of one topic and queue id: for each message the place in the log (ConsumeQueue.java).

A unit is 20 bytes, big-endian; unit i of the queue is at logical byte 20 × i:

    physical offset:8  size:4  tags code:8

Special units:

* pre-blank `(0, 0x7FFFFFFF, 0)` from the start of the first file up to the first message of a queue that does not
  begin at 0;
* with ConsumeQueueExt, the address of an extension unit in place of the tags code (consume_queue_ext.py);
* a damaged message's place `(physical offset, size, DAMAGED_TAGS_CODE)`: physical offset and size are those of the
  next good message of this queue, or of the filler record over the damage (damage.py). A Java broker reads a whole
  record there, in order of offsets, so nothing in it stumbles (it may deliver that next message twice to a group that
  subscribes `*`); our readers pass over it.

Units are written by `QueueTail.append` (tails_cy.py). This module owns the files below it. Files are mapped when first
used and given up when idle (see consume_queue_store.py), so 20 000 queues cost neither descriptors nor start-up time.
"""

import struct
from collections.abc import Callable
from pathlib import PurePath

from maxq.runtime.interfaces import Disk
from maxq.store.files.block_reserve import UNIT_ROOM, back_units
from maxq.store.files.mapped_file import OS_PAGE_SIZE, MappedFile, clear, holds_data
from maxq.store.files.mapped_file_queue import MappedFileQueue
from maxq.store.log.tails_cy import QueueTail
from maxq.store.queue.consume_queue_ext import ConsumeQueueExt, is_ext_address
from maxq.store.queue.unit_scan_cy import DAMAGED_TAGS_CODE

CQ_STORE_UNIT_SIZE = 20
BLANK_UNIT_SIZE = 0x7FFFFFFF
UNIT = struct.Struct(">qiq")
_TAGS_CODE, _TAGS_CODE_AT = struct.Struct(">q"), 12
_WRITTEN_LATELY = 256 << 10  # bytes of units: so many of those that this process wrote are in memory
_LOOK_BACK = 1_000  # units in which an extension address is looked for
_PRE_BLANK = UNIT.pack(0, BLANK_UNIT_SIZE, 0)
_NOWHERE = 1 << 62


class ConsumeQueue:
    """One ConsumeQueue: its files, its writing end and its smallest offset.

    Attributes:
        tail: writing end; `tail.write_offset // 20` is the maximum offset that readers see, and
            `tail.next_queue_offset` the one that the next append gets (larger while a flush is awaited).
        ext: the extension units, with enableConsumeQueueExt.
        end_at_start: the maximum offset when this start had recovered the queue; 0 of queues and topics made since.
        hidden_below: messages with a smaller queue offset are not shown (hidden_messages.py); 0: none is hidden.
        in_flush: the executor is flushing files of this queue: they must not be unmapped.
        lives: how often the queue has begun anew; files of another life may have the names of those of this one.
    """

    __slots__ = (
        "_min_checked", "_min_offset", "_on_mapped", "_overwritten_from", "end_at_start", "ext", "files",
        "hidden_below", "in_flush", "lives", "queue_id", "tail", "topic",
    )  # fmt: skip

    def __init__(
        self,
        disk: Disk,
        base: PurePath,
        topic: str,
        queue_id: int,
        file_size: int,
        on_mapped: Callable[["ConsumeQueue"], None],
    ) -> None:
        """`on_mapped(queue)` is called whenever a file of this queue may have been mapped."""
        self.topic = topic
        self.queue_id = queue_id
        self.files = MappedFileQueue(disk, base, f"{topic}/{queue_id}", file_size)
        self.tail = QueueTail(topic, queue_id, self)
        self.ext: ConsumeQueueExt | None = None
        self.in_flush = False
        self.hidden_below = 0
        self.end_at_start = 0
        self.lives = 0
        self._on_mapped = on_mapped
        self._min_offset = 0
        self._min_checked = -1  # the log's minimum for which _min_offset was computed
        self._overwritten_from = _NOWHERE  # where the oldest file begins in which a unit was overwritten

    @property
    def max_offset(self) -> int:
        """Queue offset behind the last visible message."""
        return self.tail.write_offset // CQ_STORE_UNIT_SIZE

    @property
    def taken_offset(self) -> int:
        """Return the queue offset behind the last stored message, readable or not."""
        return max(self.max_offset, self.tail.next_queue_offset)

    def min_offset(self, min_physical_offset: int) -> int:
        """Return the smallest visible queue offset: its record is in the log, which begins at `min_physical_offset`,
        and it is not hidden; the maximum if there is none. It is computed again only when the beginning of the log
        has moved (correctMinOffset)."""
        if min_physical_offset != self._min_checked:
            self._min_offset = self._find_min(min_physical_offset)
            self._min_checked = min_physical_offset
        if self.hidden_below > self._min_offset:
            return min(self.hidden_below, self.max_offset)
        return self._min_offset

    def reset_min(self) -> None:
        """Compute the smallest offset again, because units were changed."""
        self._min_checked = -1

    def _find_min(self, min_physical_offset: int) -> int:
        low, high = self.files.min_offset // CQ_STORE_UNIT_SIZE, self.max_offset
        while low < high:
            middle = (low + high) // 2
            unit = self.unit(middle)
            if unit is None or unit[1] == BLANK_UNIT_SIZE or unit[0] < min_physical_offset:
                low = middle + 1
            else:
                high = middle
        return low

    def unit(self, queue_offset: int) -> tuple[int, int, int] | None:
        """(physical offset, size, tags code) of unit `queue_offset`; None if no file holds it.

        Raises:
            OSError: the device cannot read it.
        """
        position = queue_offset * CQ_STORE_UNIT_SIZE
        file = self.files.find(position)
        if file is None or position < 0:
            return None
        view, at = self._view(file), position - file.file_from_offset
        if queue_offset < self.end_at_start or position + _WRITTEN_LATELY < self.tail.write_offset:
            file.region.bring_in(at, at + CQ_STORE_UNIT_SIZE)
        return UNIT.unpack_from(view, at)

    def units_from(self, queue_offset: int) -> tuple[memoryview, int, int] | None:
        """The units from `queue_offset` to the end of its file or of the queue: (view of the file, first byte, byte
        behind the last); None if no file holds it."""
        position = queue_offset * CQ_STORE_UNIT_SIZE
        file = self.files.find(position)
        if file is None or position >= self.tail.write_offset:
            return None
        start = position - file.file_from_offset
        end = min(self.tail.write_offset - file.file_from_offset, file.file_size)
        return self._view(file), start, end

    def some_units_from(self, queue_offset: int, most: int) -> memoryview | None:
        """Return at most `most` units from `queue_offset` on, within one file; None if no file holds it.

        Raises:
            OSError: the device cannot read them.
        """
        position = queue_offset * CQ_STORE_UNIT_SIZE
        found, file = self.units_from(queue_offset), self.files.find(position)
        if found is None or file is None:
            return None
        view, start, end = found
        end = min(end, start + most * CQ_STORE_UNIT_SIZE)
        if queue_offset < self.end_at_start or position + _WRITTEN_LATELY < self.tail.write_offset:
            file.region.bring_in(start, end)
        return view[start:end]

    def next_file_index(self, queue_offset: int) -> int:
        """First queue offset of the file behind the one that would hold `queue_offset`."""
        per_file = self.files.file_size // CQ_STORE_UNIT_SIZE
        return queue_offset + per_file - queue_offset % per_file

    # --- writing ---

    def roll(self, queue_offset: int, physical_offset: int, size: int) -> None:
        """Prepare `tail` for unit `queue_offset`, which is not below the end and belongs to the record at
        `physical_offset`.

        A queue without units starts at any offset, behind pre-blank units. Units that are missing in an existing
        queue are filled with the places of damaged messages.
        """
        target = queue_offset * CQ_STORE_UNIT_SIZE
        if not self.files.files:
            self._start_at(target)
            return
        gap = (target - self.tail.write_offset) // CQ_STORE_UNIT_SIZE
        for _ in range(gap):
            self.append(physical_offset, size, DAMAGED_TAGS_CODE)
        if gap > 0:
            self.tail.max_physical_offset = physical_offset  # the record itself has not been written yet
        self._attach()

    def append(self, physical_offset: int, size: int, tags_code: int) -> None:
        """Write one unit at the end of the queue."""
        if not self.tail.append(physical_offset, size, tags_code):
            self._attach()
            written = self.tail.append(physical_offset, size, tags_code)
            assert written, f"{self.topic}-{self.queue_id}: no room in a file just attached"

    def put_unit(self, queue_offset: int, unit: tuple[int, int, int]) -> None:
        """Overwrite an existing unit of the consume queue with another one."""
        position = queue_offset * CQ_STORE_UNIT_SIZE
        file = self.files.find(position)
        assert file is not None, f"{self.topic}-{self.queue_id} has no unit {queue_offset}"
        file.region.allocate(position - file.file_from_offset, position - file.file_from_offset + CQ_STORE_UNIT_SIZE)
        UNIT.pack_into(self._view(file), position - file.file_from_offset, *unit)
        file.flushed_position = min(file.flushed_position, position - file.file_from_offset)
        self._overwritten_from = min(self._overwritten_from, file.file_from_offset)

    # --- extension units ---

    def put_address(self, queue_offset: int, address: int) -> None:
        """Replace the tags code of the unit appended last by an extension unit's address. Its blocks are allocated
        already."""
        position = queue_offset * CQ_STORE_UNIT_SIZE
        file = self.files.find(position)
        assert file is not None, f"{self.topic}-{self.queue_id} has no unit {queue_offset}"
        at = position - file.file_from_offset
        _TAGS_CODE.pack_into(self._view(file), at + _TAGS_CODE_AT, address)
        file.flushed_position = min(file.flushed_position, at)

    def place_ext(self, ext: ConsumeQueueExt) -> None:
        """Set the position of the next extension unit after a start: behind the newest one that a queue unit refers
        to."""
        high = self.max_offset
        low = max(self.files.min_offset // CQ_STORE_UNIT_SIZE, high - _LOOK_BACK)
        units = (self.unit(at) for at in range(high - 1, low - 1, -1))
        last = next((unit[2] for unit in units if unit is not None and is_ext_address(unit[2])), None)
        ext.place(last, unknown=low - self.files.min_offset // CQ_STORE_UNIT_SIZE)

    def with_tags(self, unit: tuple[int, int, int]) -> tuple[int, int, int]:
        """Return the unit with its tags code in place of an extension address; unchanged if the extension cannot be
        read."""
        if self.ext is None or not is_ext_address(unit[2]):
            return unit
        found = self.ext.get(unit[2])
        return unit if found is None else (unit[0], unit[1], found.tags_code)

    def _start_at(self, target: int) -> None:
        file_size = self.files.file_size
        position = target % file_size
        file = self._add_file(target - position, min(file_size, position + UNIT_ROOM))
        self._view(file)[:position] = _PRE_BLANK * (position // CQ_STORE_UNIT_SIZE)
        self._write_in(file, position)
        self.reset_min()

    def _attach(self) -> None:
        """Attach the file that holds the write offset, up to its allocated blocks; a new file if the last is full.

        Raises:
            OSError: there is no room for another unit; the queue is as before.
        """
        offset = self.tail.write_offset
        file = self.files.find(offset)
        if file is None:
            last = self.files.last
            if last is not None:
                last.wrote_position = last.file_size
            file = self._add_file(offset - offset % self.files.file_size, 0)
        self._write_in(file, offset - file.file_from_offset)

    def _add_file(self, file_from_offset: int, used: int) -> MappedFile:
        """Add a file with blocks for its first `used` bytes."""
        file = self.files.create(file_from_offset)
        try:
            file.region.allocate(0, used)
        except OSError:
            self.files.files.pop()
            file.release()
            raise
        self._on_mapped(self)
        return file

    def _write_in(self, file: MappedFile, position: int) -> None:
        view = self._view(file)
        end = back_units(file.region, position, file.file_size)
        self.tail.attach(view[:end], file.file_from_offset, position)

    # --- life of the files ---

    def end_at(self, queue_offset: int, max_physical_offset: int) -> None:
        """Set the end that recovery found: `queue_offset` is behind the last good unit. Files behind it are deleted,
        and stale units right behind it are zeroed, so that a search for the last valid unit stops there."""
        offset = queue_offset * CQ_STORE_UNIT_SIZE
        tail = self.tail
        tail.attach(None, 0, 0)
        if self.files.last is not None and offset <= self.files.min_offset and offset < self.files.last.end_offset:
            self.files.destroy()
        self.files.truncate(offset)
        last = self.files.last
        if last is not None and offset < last.end_offset:
            position = offset - last.file_from_offset
            page_end = min(last.file_size, position + OS_PAGE_SIZE - position % OS_PAGE_SIZE)
            zeros = bytes(page_end - position)
            if bytes(last.view[position:page_end]) != zeros:
                last.view[position:page_end] = zeros
                last.region.flush(position, page_end)
        tail.write_offset = offset
        tail.next_queue_offset = queue_offset
        tail.max_physical_offset = max_physical_offset
        self.reset_min()

    def adopt(self, queue_offset: int, max_physical_offset: int) -> None:
        """Adopt the `queue_offset` units that a clean shutdown left, without touching the disk."""
        self.tail.write_offset = queue_offset * CQ_STORE_UNIT_SIZE
        self.tail.next_queue_offset = queue_offset
        self.tail.max_physical_offset = max_physical_offset
        last = self.files.last
        if last is not None:
            last.wrote_position = last.flushed_position = self.tail.write_offset - last.file_from_offset

    def unflushed(self, least_pages: int) -> list[tuple[MappedFile, int, int]]:
        """Return the ranges that a flush must make durable, by file: (file, first byte, byte behind the last). A file
        that is not full and has fewer than `least_pages` dirty pages is left out."""
        end = self.tail.write_offset
        found: list[tuple[MappedFile, int, int]] = []
        for file in reversed(self.files.files):
            file.wrote_position = max(0, min(file.file_size, end - file.file_from_offset))
            start, stop = file.flushed_position, file.wrote_position
            if stop > start and (file.is_full or stop // OS_PAGE_SIZE - start // OS_PAGE_SIZE >= least_pages):
                found.append((file, start, stop))
            elif file.is_full and file.file_from_offset <= self._overwritten_from:
                break  # files before this one were flushed when it was
        if self.ext is not None:
            found += self.ext.unflushed(least_pages * OS_PAGE_SIZE)
        return found

    def release(self) -> None:
        """Unmap all files; written data stays. The next use maps them again."""
        self.tail.attach(None, 0, 0)
        self.files.release()
        if self.ext is not None:
            self.ext.release()

    def destroy(self) -> None:
        """Delete the files and all units; numbering starts again at 0. Blocks."""
        self.tail.attach(None, 0, 0)
        self.files.destroy()
        if self.ext is not None:
            self.ext.destroy()
        self.forget()

    def clear_rest(self) -> None:
        """Zero the part of the last file behind the end of the queue. Blocks if that part is not zero already."""
        last = self.files.last
        position = 0 if last is None else max(0, self.tail.write_offset - last.file_from_offset)
        if last is not None and holds_data(last.region, position, last.file_size):
            clear(last.region, position, last.file_size)

    def forget(self) -> list[MappedFile]:
        """Detach the files, which are returned, and all units; numbering starts again at 0."""
        tail = self.tail
        tail.attach(None, 0, 0)
        self.files.release()
        files, self.files.files = self.files.files, []
        if self.ext is not None:
            self.ext.forget()
        tail.write_offset = tail.next_queue_offset = 0
        tail.max_physical_offset = -1
        self.reset_min()
        return files

    def begin_anew(self) -> None:
        """Empty the queue because its topic was deleted: no units, numbering from 0, nothing hidden. Files that are
        being flushed stay mapped until the flush has ended; `forget` does not include them."""
        self.files.files = []
        self.forget()
        self.hidden_below = self.end_at_start = 0
        self.lives += 1

    def delete_expired(self, min_physical_offset: int) -> list[MappedFile]:
        """Remove files, never the last, whose last unit points below `min_physical_offset` from the list; the caller
        deletes them."""
        gone: list[MappedFile] = []
        while len(self.files.files) > 1:
            first = self.files.files[0]
            last_unit = self.unit(first.end_offset // CQ_STORE_UNIT_SIZE - 1)
            if last_unit is None or last_unit[0] >= min_physical_offset:
                break
            gone.append(self.files.take_first())
        if gone:
            self.reset_min()
            gone += self._expired_ext()
        return gone

    def _expired_ext(self) -> list[MappedFile]:
        """Returns the extension files to which no remaining unit points."""
        first = self.unit(self.files.min_offset // CQ_STORE_UNIT_SIZE)
        return [] if self.ext is None or first is None else self.ext.take_expired(first[2])

    def _view(self, file: MappedFile) -> memoryview:
        if not file.is_mapped:
            view = file.view
            self._on_mapped(self)
            return view
        return file.view
