"""One segment of a compacted queue: a log file, and beside it a file of units with the same name.

    log    CommitLog records back to back, closed by a BLANK record (`remaining:4, 0xCBD43194`)
    units  46 bytes each, big-endian, ascending message offsets, closed by a unit of physical offset -1:
           physical offset in this log:8  size:4  tags code:8  store time:8  message offset:8  batch size:2 (1)
           compacted offset:4 (-1)  reserved:4 (0)

Records keep the physical offset they have in the CommitLog (Java writes the one in this log over it, so that a consumer
that hands such a message back names another message, or none).

Source:
    store/kv/CompactionLog.java (CompactionAppendMessageCallback), store/queue/SparseConsumeQueue.java.
"""

import struct
from collections.abc import Iterator
from pathlib import PurePath
from typing import Final, NamedTuple

from maxq.errors import RemoteProtocolError
from maxq.protocol.message.message import decode_record
from maxq.protocol.message.record_layout import MAGIC_BLANK
from maxq.runtime.interfaces import Disk
from maxq.store.files.mapped_file import clear, offset_to_file_name

UNIT_SIZE: Final = 46
_UNIT = struct.Struct(">qiqqqhii")
_OFFSET = struct.Struct(">q")
_SIZE = struct.Struct(">i")
_BLANK = struct.Struct(">II")
_END_UNIT: Final = _UNIT.pack(-1, 0, 0, 0, 0, 0, -1, 0)
_OFFSET_AT: Final = 28  # position of the message offset in a unit
_QUEUE_OFFSET_AT: Final = 20  # position of the queue offset in a record
_PHYSICAL_OFFSET_AT: Final = 28
_STEP: Final = 1 << 20  # bytes of the segment's log for which blocks are allocated at a time


class CompactUnit(NamedTuple):
    """Position of a message: `position` in bytes from the start of the segment's log."""

    position: int
    size: int
    tags_code: int
    store_timestamp: int
    offset: int


class Segment:
    """A segment of a compacted queue: a log file and a file of units.

    Attributes:
        base: offset of its first byte in the queue's log; the name of both files.
        wrote: bytes of log that are written.
        count: units.
    """

    def __init__(
        self, disk: Disk, log_folder: PurePath, unit_folder: PurePath, base: int, log_size: int, unit_size: int
    ) -> None:
        """Map the segment's two files, messages and units; a file that is missing is created."""
        name = offset_to_file_name(base)
        self.log_path, self.unit_path = log_folder / name, unit_folder / name
        self.base = base
        self._log = disk.map(self.log_path, log_size)
        self._units = disk.map(self.unit_path, unit_size)
        self._log_size = log_size
        self._most = unit_size // UNIT_SIZE - 1  # most units: the last place is for the closing unit
        self._allocated = 0
        self._is_closed = False
        self._durable = (0, 0)  # position and count at the last flush
        self._is_suspect = False  # bytes behind the flushed ones may be shown by the system and yet be lost
        self.wrote = 0
        self.count = 0

    def load(self, *, verify_from: int | None = None) -> None:
        """Find the existing units.

        Args:
            verify_from: message offset: compare each unit from there on with its record and the record with its CRC;
                the first that does not fit, and all behind it, are forgotten. The remaining bytes are durable when
                `flush` has written them again. None: believe all units.
        """
        view = self._units.view
        self.count = self.wrote = 0
        while self.count < self._most:
            physical, size, _, _, offset, batch, _, _ = _UNIT.unpack_from(view, self.count * UNIT_SIZE)
            if physical < 0 or size <= 0 or offset < 0 or batch <= 0 or physical - self.base != self.wrote:
                break
            is_verified = verify_from is not None and offset >= verify_from
            if self.wrote + size > self._log_size or (is_verified and not self._is_whole(self.wrote, size, offset)):
                break
            self.count += 1
            self.wrote += size
        self._allocated = self.wrote
        self._is_suspect = verify_from is not None
        if not self._is_suspect:
            self._durable = (self.wrote, self.count)
        place = self.count * UNIT_SIZE
        if self._is_suspect and bytes(view[place : place + UNIT_SIZE]) not in (_END_UNIT, bytes(UNIT_SIZE)):
            clear(self._units, place, len(view))

    @property
    def is_ended(self) -> bool:
        """Returns whether the closing unit follows the last one. If it does not and later segments exist, units were
        lost."""
        place = self.count * UNIT_SIZE
        return bytes(self._units.view[place : place + UNIT_SIZE]) == _END_UNIT

    def cut(self, offset: int) -> None:
        """Forget the messages at or behind a message offset; others may be appended then. Blocks."""
        self._is_closed = False
        self.count = self.find(offset)
        last = self._unit(self.count - 1) if self.count else None
        self.wrote = self._allocated = 0 if last is None else last.position + last.size
        self._durable = (min(self._durable[0], self.wrote), min(self._durable[1], self.count))
        clear(self._units, self.count * UNIT_SIZE, len(self._units.view))

    def _is_whole(self, position: int, size: int, offset: int) -> bool:
        try:
            message = decode_record(self._log.view[position : position + size], check_crc=True)
        except RemoteProtocolError:
            return False
        return message.store_size == size and message.queue_offset == offset

    @property
    def first_offset(self) -> int:
        """Queue offset of the first message; -1 without one."""
        return self._offset(0) if self.count else -1

    @property
    def last_offset(self) -> int:
        """Queue offset of the last message; -1 without one."""
        return self._offset(self.count - 1) if self.count else -1

    def _offset(self, index: int) -> int:
        offset: int = _OFFSET.unpack_from(self._units.view, index * UNIT_SIZE + _OFFSET_AT)[0]
        return offset

    def has_room(self, size: int) -> bool:
        """Returns whether a record of this size fits, with the BLANK behind it."""
        return self.count < self._most and self.wrote + size + _BLANK.size <= self._log_size

    def append(self, record: memoryview, tags_code: int, store_timestamp: int) -> None:
        """Append one record, for which `has_room` was true.

        Raises:
            OSError: the disk is full; nothing was written.
        """
        position, size = self.wrote, len(record)
        end = position + size + _BLANK.size
        if end > self._allocated:
            stop = min(self._log_size, end + _STEP)
            self._log.allocate(position, stop)
            self._units.allocate(0, min(self._most + 1, self.count + _STEP // UNIT_SIZE) * UNIT_SIZE)
            self._allocated = stop
        offset = _OFFSET.unpack_from(record, _QUEUE_OFFSET_AT)[0]
        # not through the mapping: the first access to a page there zeroes megabytes around it
        self._log.write(position, record)
        unit = (self.base + position, size, tags_code, store_timestamp, offset, 1, -1, 0)
        _UNIT.pack_into(self._units.view, self.count * UNIT_SIZE, *unit)
        self.wrote += size
        self.count += 1

    def close(self) -> None:
        """End the segment: nothing more is appended. Writes the closing unit by which Java recognises that."""
        if self.wrote + _BLANK.size <= self._log_size:
            self._log.write(self.wrote, memoryview(_BLANK.pack(self._log_size - self.wrote, MAGIC_BLANK)))
        place = self.count * UNIT_SIZE
        self._units.view[place : place + UNIT_SIZE] = _END_UNIT
        self._is_closed = True

    def find(self, offset: int) -> int:
        """Index of the first unit at or behind a message offset; `count` if there is none."""
        low, high = 0, self.count
        while low < high:
            middle = (low + high) // 2
            if self._offset(middle) < offset:
                low = middle + 1
            else:
                high = middle
        return low

    def find_time(self, timestamp: int) -> int:
        """Index of the first unit stored at or after `timestamp`; `count` if there is none."""
        low, high = 0, self.count
        while low < high:
            middle = (low + high) // 2
            if self._unit(middle).store_timestamp < timestamp:
                low = middle + 1
            else:
                high = middle
        return low

    def units(self, index: int) -> Iterator[CompactUnit]:
        """Returns the units from number `index` on."""
        while index < self.count:
            yield self._unit(index)
            index += 1

    def _unit(self, index: int) -> CompactUnit:
        physical, size, tags, time, offset, _, _, _ = _UNIT.unpack_from(self._units.view, index * UNIT_SIZE)
        return CompactUnit(physical - self.base, size, tags, time, offset)

    def record(self, unit: CompactUnit) -> memoryview | None:
        """Returns the bytes of a unit's record; None if no record, or another one, is there.

        Raises:
            OSError: the device cannot read them.
        """
        self._log.bring_in(unit.position, unit.position + unit.size)
        view = self._log.view[unit.position : unit.position + unit.size]
        if len(view) != unit.size or unit.size < _QUEUE_OFFSET_AT + 8 or _SIZE.unpack_from(view)[0] != unit.size:
            return None
        return view if _OFFSET.unpack_from(view, _QUEUE_OFFSET_AT)[0] == unit.offset else None

    @property
    def end_in_commit_log(self) -> int:
        """Physical offset behind the last message in the log that it was copied from; 0 without a message, or if it is
        damaged."""
        record = self.record(self._unit(self.count - 1)) if self.count else None
        return 0 if record is None else physical_offset_of(record) + len(record)

    def flush(self) -> None:
        """Make all of it durable. Blocks; may run in another thread than the appends.

        Raises:
            OSError: the disk refuses. The next call writes again what this one did not make durable.
        """
        wrote, count, is_closed = self.wrote, self.count, self._is_closed
        log_end = min(self._log_size, wrote + _BLANK.size) if is_closed else wrote
        unit_end = (count + is_closed) * UNIT_SIZE
        if self._is_suspect:
            self._log.write_again(self._durable[0], log_end)
            self._units.write_again(self._durable[1] * UNIT_SIZE, unit_end)
        self._is_suspect = True
        self._log.flush(0, log_end)
        self._units.flush(0, unit_end)
        self._is_suspect = False
        self._durable = (wrote, count)

    def release(self) -> None:
        """Give up the mappings; slices that readers hold stay valid."""
        self._log.close()
        self._units.close()


def physical_offset_of(record: memoryview) -> int:
    """Returns the physical offset of a message in the log that it was copied from."""
    return int(_OFFSET.unpack_from(record, _PHYSICAL_OFFSET_AT)[0])
