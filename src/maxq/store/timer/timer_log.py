"""TimerLog: one unit for each message that was put into the wheel (TimerLog.java).

Files `timerlog/<20 digits>` of mappedFileSizeTimerLog bytes, units of 52 bytes, big-endian:

    0  i32  52
    4  i64  position of the unit before it in the same slot, −1: none
    12 i32  magic: 1 always; 2: on the way, to be put into the wheel again; 4: a marker that recalls a message;
            8: MaxQ's, it lies in another slot than its record says (moved_messages.py)
    16 i64  write time: when it was put into the wheel, ms
    24 i32  ms from there to when it is due; where that does not fit, 0, and the write time is when it is due
    28 i64  physical offset of the message's record
    36 i32  size of the record
    40 i32  Java's hash of the message's topic
    44 i64  0

Where fewer than 52 + 16 bytes are left a blank ends the file: i32 bytes left, i64 0, i32 0xCBD43194 (and whatever else
is left). A position is the byte in the sequence of files.

What no sync has covered yet is kept in memory, too. After a failed sync the system takes pages for clean that are not
on the disk, and a later sync that succeeds says nothing about them: they are written again out of memory first.
"""

import errno
import struct
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import PurePath
from typing import Final, NamedTuple

from maxq.runtime.interfaces import Disk
from maxq.store.files.mapped_file import MappedFile, clear, holds_data
from maxq.store.files.mapped_file_queue import MappedFileQueue

UNIT_SIZE: Final = 52
MAGIC_DEFAULT: Final = 1
MAGIC_ROLL: Final = 2
MAGIC_DELETE: Final = 4
MAGIC_MOVED: Final = 8
#: Longest time between the two times of a unit, which are stored as a 32-bit difference.
LONGEST_WAIT_MS: Final = (1 << 31) - 1
BLANK_MAGIC: Final = -875286124  # 0xCBD43194

_UNIT: Final = struct.Struct(">iqiqiqiiq")
_BLANK: Final = struct.Struct(">iqi")
_RECORD: Final = struct.Struct(">qi")
_PLACE: Final = struct.Struct(">i8xi12xq16x")  # size, magic and physical offset of a unit
_RECORD_AT: Final = 28
_SEARCH_STEP: Final = 20_000 * UNIT_SIZE
_KNOWN_MAGIC: Final = 0xF
_UNSYNCED_MOST: Final = 64 << 20  # bytes; a million units


class TimerUnit(NamedTuple):
    """One unit of the timer log. Times are in ms; `position` and `previous` are positions in the timer log."""

    position: int
    previous: int
    magic: int
    write_time_ms: int
    delay_ms: int
    physical_offset: int
    size: int
    topic_hash: int

    @property
    def due_ms(self) -> int:
        """Return the time of its slot, in ms."""
        return self.write_time_ms + self.delay_ms

    @property
    def rolls(self) -> bool:
        """Whether its message is due later than the wheel reaches."""
        return bool(self.magic & MAGIC_ROLL)

    @property
    def recalls(self) -> bool:
        """Whether it is a marker that recalls another message."""
        return bool(self.magic & MAGIC_DELETE)

    @property
    def is_moved(self) -> bool:
        """Return whether it lies in another slot than its record says."""
        return bool(self.magic & MAGIC_MOVED)


class TimerLog:
    """The timer log of one store: a unit of 52 bytes for each message that entered the wheel."""

    def __init__(self, disk: Disk, root: PurePath, file_size: int) -> None:
        """`root` is the store's folder, `file_size` mappedFileSizeTimerLog, bytes."""
        self._disk = disk
        self._files = MappedFileQueue(disk, root, "timerlog", file_size)
        self._unsynced: dict[MappedFile, bytearray] = {}  # file → its bytes behind flushed_position
        # after a failed sync: unsynced bytes below this position are written again before they are synced
        self._suspect_end = 0

    def load(self) -> None:
        """Find the files. Blocks. Raises StoreRefusedError if one has another size, or is missing between others."""
        self._files.load(self._disk.list(self._files.folder), setting="mappedFileSizeTimerLog")

    @property
    def min_offset(self) -> int:
        """Return the position of the first existing unit."""
        return self._files.min_offset

    @property
    def max_offset(self) -> int:
        """Position behind the last unit."""
        last = self._files.last
        return 0 if last is None else last.file_from_offset + last.wrote_position

    @property
    def file_size(self) -> int:
        return self._files.file_size

    # --- writing ---

    def append(self, unit: TimerUnit) -> int:
        """Append one unit; its `position` is ignored.

        Returns:
            Its position.

        Raises:
            OSError: the disk refuses, or has synced nothing for 64 MiB; nothing was appended.
        """
        if sum(map(len, list(self._unsynced.values()))) >= _UNSYNCED_MOST:
            raise OSError(errno.EIO, f"{_UNSYNCED_MOST >> 20} MiB of the timer log could not be synced")
        file = self._writable()
        at = file.wrote_position
        _, previous, magic, write_time_ms, delay_ms, physical_offset, size, topic_hash = unit
        data = _UNIT.pack(
            UNIT_SIZE, previous, magic, write_time_ms, delay_ms, physical_offset, size, topic_hash, 0
        )  # fmt: skip
        self._write(file, data)
        return file.file_from_offset + at

    def _write(self, file: MappedFile, data: bytes) -> None:
        file.region.write(file.wrote_position, memoryview(data))
        self._unsynced.setdefault(file, bytearray()).extend(data)
        file.wrote_position += len(data)

    def _writable(self) -> MappedFile:
        file = self._files.last
        if file is None:
            return self._files.create(0)
        left = file.file_size - file.wrote_position
        if left >= UNIT_SIZE + _BLANK.size:
            return file
        if left >= _BLANK.size:
            self._write(file, _BLANK.pack(left, 0, BLANK_MAGIC))
        file.wrote_position = file.file_size
        return self._files.create(file.end_offset)

    def flush(self, end: int) -> None:
        """Make everything below position `end` durable. Blocks; may run in another thread than the appends.

        Raises:
            OSError: the disk refuses. The next call writes again what this one did not make durable.
        """
        for file, unsynced in list(self._unsynced.items()):
            start = file.flushed_position
            size = min(end - file.file_from_offset - start, len(unsynced))
            if size > 0:
                self._sync(file, start, bytes(unsynced[:size]))
                del unsynced[:size]
                file.flushed_position += size
            if file.is_full and not unsynced:
                self._unsynced.pop(file, None)

    def _sync(self, file: MappedFile, start: int, data: bytes) -> None:
        try:
            if file.file_from_offset + start < self._suspect_end:
                file.region.write(start, memoryview(data))
                file.region.write_again(start, start + len(data))
            file.region.flush(start, start + len(data))
        except OSError:
            self._suspect_end = self.max_offset
            raise

    # --- reading ---

    def read(self, position: int) -> TimerUnit | None:
        """Return the unit at `position`; None if there can be none.

        Raises:
            OSError: the device cannot read it.
        """
        file = self._files.find(position)
        if file is None:
            return None
        at = position - file.file_from_offset
        if at % UNIT_SIZE or at + UNIT_SIZE > file.wrote_position:
            return None
        file.region.bring_in(at, at + UNIT_SIZE)
        return _unit(file.view, at, position)

    def units(self, start: int) -> Iterator[TimerUnit]:
        """Yield every unit from position `start`, at which one begins, to the end."""
        for file in list(self._files.files):
            if file.end_offset <= start:
                continue
            for at in range(max(start - file.file_from_offset, 0), file.wrote_position - UNIT_SIZE + 1, UNIT_SIZE):
                unit = _unit(file.view, at, file.file_from_offset + at)
                if unit is None:
                    break
                yield unit

    def next_position(self, position: int) -> int:
        """Return the position of the unit that follows the one at `position`, which is the log's end for the last."""
        following = position + UNIT_SIZE
        left = self.file_size - following % self.file_size
        return following if left >= UNIT_SIZE + _BLANK.size else following + left

    def last_unit_of(self, physical_offset: int, size: int) -> int | None:
        """Return the position of the last unit of a record; None if it has none. Reads the log backwards: blocks."""
        needle = _RECORD.pack(physical_offset, size)
        for file in reversed(list(self._files.files)):
            end = file.wrote_position
            while end > 0:
                start = max(0, end - _SEARCH_STEP)
                piece = bytes(file.view[start:end])
                hit = piece.rfind(needle)
                while hit >= 0:
                    if (start + hit - _RECORD_AT) % UNIT_SIZE == 0:
                        return file.file_from_offset + start + hit - _RECORD_AT
                    hit = piece.rfind(needle, 0, hit + len(needle) - 1)
                end = start
        return None

    def units_of_records(self, physical_offset: int) -> list[TimerUnit]:
        """Return the units of records that lie at or behind this physical offset."""
        found: list[TimerUnit] = []
        for file in reversed(list(self._files.files)):
            units = list(self.units(file.file_from_offset)) if file is self._files.last else self._of_file(file)
            found += [unit for unit in units if unit.physical_offset >= physical_offset]
            # a moved message may be of any age, so its unit does not count
            first = next((unit for unit in units if not unit.is_moved), None)
            if first is not None and first.physical_offset < physical_offset:
                break
        return found

    def _of_file(self, file: MappedFile) -> list[TimerUnit]:
        stop = (file.file_size - _BLANK.size) // UNIT_SIZE * UNIT_SIZE
        units = (_unit(file.view, at, file.file_from_offset + at) for at in range(0, stop, UNIT_SIZE))
        return [unit for unit in units if unit is not None]

    # --- recovery and cleaning ---

    def unit_position(self, position: int) -> int:
        """Return the start of the unit that holds `position`, within the existing range."""
        file = self._files.find(min(max(position, self.min_offset), self.max_offset))
        if file is None:
            return self.max_offset
        at = min(position - file.file_from_offset, file.file_size)
        return file.file_from_offset + max(at, 0) // UNIT_SIZE * UNIT_SIZE

    def recover(self, start: int, log_end: int) -> list[TimerUnit]:
        """Find the end by reading from position `start`, at which a unit begins; everything before it is whole. Bytes
        behind the end are cleared. On return everything is durable, because it is written again: a killed process
        leaves pages that were not synced, or that a failed sync has marked as clean. Blocks.

        Args:
            log_end: physical end of the CommitLog. A unit whose record lies behind it was written by a broker whose
                log lost its end: it and all after it count for nothing.

        Returns:
            The units from `start` to the end.
        """
        found: list[TimerUnit] = []
        for number, file in enumerate(self._files.files):
            if file.end_offset <= start:
                continue
            begin = max(start - file.file_from_offset, 0)
            end, is_full = self._scan(file, begin, log_end, found)
            _write_again(file, begin, file.file_size if is_full else end)
            if not is_full:
                self._end_at(number, end)
                break
        return found

    def _scan(self, file: MappedFile, at: int, log_end: int, found: list[TimerUnit]) -> tuple[int, bool]:
        """Return where the units of one file end, and whether a blank ends it."""
        view = file.view
        while at + UNIT_SIZE + _BLANK.size <= file.file_size:
            unit = _unit(view, at, file.file_from_offset + at)
            if unit is None or unit.physical_offset + unit.size > log_end:
                return at, False
            found.append(unit)
            at += UNIT_SIZE
        is_blank = at + _BLANK.size <= file.file_size and _BLANK.unpack_from(view, at)[2] == BLANK_MAGIC
        return at, is_blank

    def _end_at(self, number: int, end: int) -> None:
        file = self._files.files[number]
        self._files.truncate(file.file_from_offset + end)
        if self._files.last is file:
            if holds_data(file.region, end, file.file_size):
                clear(file.region, end, file.file_size)
            file.wrote_position = file.flushed_position = end

    def has_expired(self, min_physical_offset: int) -> bool:
        """Return whether the records of all units of the first file are deleted. False for the last file, and for one
        that is not synced yet: a thread may be about to sync it. Blocks; any thread.

        Args:
            min_physical_offset: where the CommitLog begins.
        """
        files = self._files.files[:2]
        if len(files) < 2 or files[0] in self._unsynced:
            return False
        # From the end: the last unit usually decides, but a message may have been moved behind much younger ones.
        view = files[0].view
        end = (files[0].file_size - _BLANK.size) // UNIT_SIZE * UNIT_SIZE
        for stop in range(end, 0, -_SEARCH_STEP):
            units = _PLACE.iter_unpack(view[max(0, stop - _SEARCH_STEP) : stop])
            if any(
                physical_offset >= min_physical_offset and size == UNIT_SIZE and 0 < magic <= _KNOWN_MAGIC
                for size, magic, physical_offset in units
            ):
                return False
        return True

    def without_first(self) -> AbstractContextManager[MappedFile]:
        """Do what `MappedFileQueue.without_first` says."""
        return self._files.without_first()

    def release(self) -> None:
        self._files.release()


def _write_again(file: MappedFile, start: int, end: int) -> None:
    file.region.write_again(start, end)
    file.region.flush(start, end)


def _unit(view: memoryview, at: int, position: int) -> TimerUnit | None:
    size, previous, magic, write_time_ms, delay_ms, physical_offset, record, topic_hash, _ = _UNIT.unpack_from(view, at)
    if size != UNIT_SIZE or not 0 < magic <= _KNOWN_MAGIC or physical_offset < 0 or record <= 0:
        return None
    return TimerUnit(position, previous, magic, write_time_ms, delay_ms, physical_offset, record, topic_hash)
