"""ConsumeQueue files, read only.

n × 20 bytes: i64 physical offset, i32 size, i64 tags code           (ConsumeQueue)
n × 46 bytes: i64 physical offset, i32 size, i64 tags code, i64 store time, i64 base offset, i16 batch size,
              i32 compacted offset, i32 reserved                     (BatchConsumeQueue)
"""

import struct
from collections.abc import Iterator
from pathlib import PurePath
from typing import Final, NamedTuple

from maxq.runtime.interfaces import MappedRegion
from maxq.store.tools.check_cy import Window
from maxq.store.tools.store_files import DataFile, StoreFiles

UNIT_SIZE: Final = 20
BATCH_UNIT_SIZE: Final = 46
_UNIT: Final = struct.Struct(">qiq")
_BATCH_UNIT: Final = struct.Struct(">qiqqqhii")

#: Size field of the units that fill a queue's first file up to its first message.
PRE_BLANK_SIZE: Final = 0x7FFFFFFF
#: Tags codes at or below this are addresses in ConsumeQueueExt files.
MAX_EXT_ADDRESS: Final = -(1 << 31) - 1
_EXT_BASE: Final = -(1 << 63)
_EXT_HEAD: Final = struct.Struct(">hqqh")


class QueueEntry(NamedTuple):
    """One expected entry of a ConsumeQueue."""

    physical_offset: int
    size: int
    tags_code: int

    @property
    def is_good(self) -> bool:
        """Return whether the unit is valid, in the sense of ConsumeQueue.recover."""
        return self.physical_offset >= 0 and self.size > 0

    @property
    def is_pre_blank(self) -> bool:
        return self.physical_offset == 0 and self.size == PRE_BLANK_SIZE and self.tags_code == 0


class BatchQueueEntry(NamedTuple):
    """One entry of a BatchConsumeQueue."""

    physical_offset: int
    size: int
    tags_code: int
    store_timestamp: int
    base_offset: int
    batch_size: int
    compacted_offset: int
    reserved: int

    @property
    def is_good(self) -> bool:
        return self.physical_offset >= 0 and self.size > 0 and self.base_offset >= 0


class UnitFiles:
    """The bytes of one queue, by their position in the queue (not in a file).

    Attributes:
        window: the file that is mapped.
    """

    def __init__(self, files: StoreFiles, sequence: list[DataFile]) -> None:
        self._files = files
        self.sequence = sequence
        self.window = Window()
        self._region: MappedRegion | None = None
        self._mapped = -1  # index in `sequence` of the file that is mapped

    @property
    def start(self) -> int:
        """Return the position in the queue, in bytes, of the first file's first byte."""
        return self.sequence[0].from_offset if self.sequence else 0

    @property
    def end(self) -> int:
        """Return the position behind the last file."""
        return self.sequence[-1].from_offset + self.sequence[-1].size if self.sequence else 0

    def place(self, position: int) -> tuple[PurePath, int] | None:
        """Return the file that holds a position, and the byte in it; None if no file holds it."""
        number = self._number(position)
        if number < 0:
            return None
        return self.sequence[number].path, position - self.sequence[number].from_offset

    def read(self, position: int, size: int) -> memoryview | None:
        """Return `size` bytes within one file; None if no file holds them."""
        number = self._number(position)
        if number < 0 or not self._map(number):
            return None
        assert self._region is not None
        at = position - self.sequence[number].from_offset
        found = self._region.view[at : at + size]
        return found if len(found) == size else None

    def close(self) -> None:
        self.window.clear()
        if self._region is not None:
            self._region.close()
        self._region = None
        self._mapped = -1

    def _number(self, position: int) -> int:
        if not self.start <= position < self.end:
            return -1
        number = (position - self.start) // self.sequence[0].size
        if number < len(self.sequence) and self._holds(number, position):
            return number
        # -1: files are missing
        return next((place for place in range(len(self.sequence)) if self._holds(place, position)), -1)

    def _holds(self, number: int, position: int) -> bool:
        file = self.sequence[number]
        return file.from_offset <= position < file.from_offset + file.size

    def _map(self, number: int) -> bool:
        if number != self._mapped:
            self.close()
            file = self.sequence[number]
            try:
                self._region = self._files.disk.map(file.path, file.size, read_only=True)
            except FileNotFoundError:
                return False  # deleted during the check
            self._mapped = number
            self.window.show(self._region.view, file.from_offset)
        return True


class QueueFiles(UnitFiles):
    """The units of one ConsumeQueue, by queue offset."""

    @property
    def first_index(self) -> int:
        """Return the queue offset of the first unit for which there is a file."""
        return self.start // UNIT_SIZE

    def unit(self, queue_offset: int) -> QueueEntry | None:
        """Returns the unit at a queue offset; None where there is no file."""
        found = self.read(queue_offset * UNIT_SIZE, UNIT_SIZE)
        return QueueEntry(*_UNIT.unpack(found)) if found is not None else None

    def units(self, first: int | None = None) -> Iterator[tuple[int, QueueEntry]]:
        """Yield (queue offset, unit) from the first existing one until the first that is not good."""
        index = self.first_index if first is None else first
        while (unit := self.unit(index)) is not None and unit.is_good:
            yield index, unit
            index += 1


class BatchQueueFiles(UnitFiles):
    """The units of one BatchConsumeQueue, in their order."""

    def unit(self, position: int) -> BatchQueueEntry | None:
        """Return the unit at a byte position in the queue; None where there is no file."""
        found = self.read(position, BATCH_UNIT_SIZE)
        return BatchQueueEntry(*_BATCH_UNIT.unpack(found)) if found is not None else None

    def units(self, first: int | None = None) -> Iterator[tuple[int, BatchQueueEntry]]:
        """Yield (byte position in the queue, unit) from the first existing one until the first that is not good."""
        position = self.start if first is None else first
        while (unit := self.unit(position)) is not None and unit.is_good:
            yield position, unit
            position += BATCH_UNIT_SIZE


class ExtFiles(UnitFiles):
    """Reads ConsumeQueueExt files, to which the tags code of a unit may point."""

    def tags_code(self, address: int) -> int | None:
        """Return the tags code stored at an address; None if there is none."""
        head = self.read(address - _EXT_BASE, _EXT_HEAD.size)
        if head is None:
            return None
        size, tags_code, _, bitmap_size = _EXT_HEAD.unpack(head)
        return int(tags_code) if size == _EXT_HEAD.size + bitmap_size else None
