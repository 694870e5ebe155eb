"""ConsumeQueueExt: what does not fit into a ConsumeQueue unit: for which consumers' expressions a message is.

A unit is big-endian, and follows the one before it:

    size:2  tags code:8  store time:8  bit map size:2  bit map[bit map size]        size = 20 + bit map size

The queue's unit then holds, in place of the tags code, the *address* of the extension unit: its logical offset +
Long.MIN_VALUE. A unit never crosses files; where the next one does not fit with 4 bytes to spare, a short of -1 ends
the file. Bit maps: maxq.filter.bloom_filter.

Extensions are weakly reliable: one that cannot be read counts as "perhaps for everybody". A unit from before the queue
began anew must never be read at an address that is used again. So after a start writing continues where the last known
unit ends only if nothing lies behind it; otherwise in a new file behind all others. Files of another size than
mappedFileSizeConsumeQueueExt, of which a start with other settings knows nothing, are not read.

Source:
    store/ConsumeQueueExt.java.
"""

import struct
from pathlib import PurePath
from typing import Final, NamedTuple

from maxq.runtime.interfaces import Disk
from maxq.store.files.mapped_file import MappedFile, holds_data
from maxq.store.files.mapped_file_queue import MappedFileQueue, is_offset_name

MAX_ADDRESS: Final = -2147483649  # values above it are tags codes
_FIRST_ADDRESS: Final = -(1 << 63)
_HEAD: Final = struct.Struct(">hqqh")
_END_BLANK: Final = 4
_MAX_UNIT_SIZE: Final = 32767
_ALLOCATED_BYTES: Final = 65_536  # bytes for which blocks are allocated at a time
_MOST_A_UNIT: Final = 2 * 32_768  # most bytes of a unit, with what is left empty at the end of a file
_MOST_OF_STARTS: Final = 1 << 40  # most bytes that all starts together can have left empty


class CqExtUnit(NamedTuple):
    """One extension unit. `store_time` is wall clock, ms."""

    tags_code: int
    store_time: int
    bit_map: bytes

    @property
    def size(self) -> int:
        return _HEAD.size + len(self.bit_map)


def is_ext_address(tags_code: int) -> bool:
    """Returns whether the tags code of a unit is the address of an extension unit."""
    return tags_code <= MAX_ADDRESS


def offset_of(address: int) -> int:
    """Returns the logical offset that an address stands for."""
    return address - _FIRST_ADDRESS


class ConsumeQueueExt:
    """The extension units of one queue. Its files are opened when they are first needed."""

    def __init__(self, disk: Disk, base: PurePath, topic: str, queue_id: int, file_size: int) -> None:
        self._disk = disk
        self._files = MappedFileQueue(disk, base, f"{topic}/{queue_id}", file_size)
        self._is_loaded = False
        self._others: list[MappedFile] = []  # files that are not read: of another size, or before such a file or a gap
        self._is_placed = False  # the place of the next unit is known
        self._begin = 0  # logical offset at which the first file will begin, while there is none
        self._allocated = 0  # logical offset up to which the last file has blocks

    @property
    def folder(self) -> PurePath:
        return self._files.folder

    # --- reading ---

    def file_of(self, address: int) -> MappedFile | None:
        """Return the file that holds the unit at `address`; None if there is none."""
        return self._loaded().find(offset_of(address)) if is_ext_address(address) else None

    def get(self, address: int) -> CqExtUnit | None:
        """Return the unit at `address`; None if there is no whole one.

        Raises:
            OSError: the device cannot read it.
        """
        file = self.file_of(address)
        if file is None:
            return None
        at = offset_of(address) - file.file_from_offset
        if at + _HEAD.size > file.file_size:
            return None
        file.region.bring_in(at, at + _HEAD.size)
        size, tags_code, store_time, bit_map_size = _HEAD.unpack_from(file.view, at)
        end = at + size
        if size != _HEAD.size + bit_map_size or bit_map_size < 0 or end > file.file_size:
            return None
        file.region.bring_in(at, end)
        return CqExtUnit(tags_code, store_time, bytes(file.view[at + _HEAD.size : end]))

    # --- writing ---

    @property
    def is_placed(self) -> bool:
        """Whether the place of the next unit is known; `place` sets it."""
        return self._is_placed

    def place(self, last_address: int | None, *, unknown: int) -> None:
        """Continue behind the newest unit that the queue refers to.

        Args:
            last_address: of that unit; None: the queue's last units know none.
            unknown: so many older units of the queue may refer to extension units; 0 without `last_address`: none, the
                queue itself begins anew, and what is here belongs to nobody. Blocks then.
        """
        files = self._loaded()
        self._is_placed = True
        self._allocated = 0
        if last_address is None and not unknown:
            self._destroy_files()
            self._begin = 0
            return
        file = None if last_address is None else self.file_of(last_address)
        unit = None if last_address is None else self.get(last_address)
        if last_address is not None and file is not None and file is files.last and unit is not None:
            end = offset_of(last_address) - file.file_from_offset + unit.size
            if not holds_data(file.region, end, file.file_size):
                file.wrote_position = file.flushed_position = end
                return
        self._begin_behind_all(last_address, unknown)

    def _begin_behind_all(self, last_address: int | None, unknown: int) -> None:
        """Continue in a new file, at an offset that no unit of the queue refers to, whatever became of the files."""
        files = self._files
        end = max((file.end_offset for file in (*self._others, *files.files)), default=0)
        if last_address is not None:
            end = max(end, offset_of(last_address) + 1)
        elif not end:
            end = unknown * _MOST_A_UNIT + _MOST_OF_STARTS
        self._begin = -(-end // files.file_size) * files.file_size
        if files.last is not None and files.last.end_offset != self._begin:
            self._others += files.files
            files.files = []
        elif files.last is not None:
            files.last.wrote_position = files.last.flushed_position = files.file_size

    def put(self, unit: CqExtUnit) -> int | None:
        """Write a unit and return its address; None if the unit cannot be written.

        Raises:
            OSError: no room for another file, or no blocks for the unit.
        """
        assert self._is_placed, "place comes first"
        files = self._files
        if unit.size > min(_MAX_UNIT_SIZE, files.file_size - _END_BLANK):
            return None
        file = files.last
        if file is not None and not file.is_full and unit.size > file.file_size - file.wrote_position - _END_BLANK:
            self._allocate(file, file.wrote_position + 2)
            file.view[file.wrote_position : file.wrote_position + 2] = b"\xff\xff"
            file.wrote_position = file.file_size
        if file is None or file.is_full:
            file = files.create(self._begin if file is None else file.end_offset)
        start, end = file.wrote_position, file.wrote_position + unit.size
        self._allocate(file, end)
        _HEAD.pack_into(file.view, start, unit.size, unit.tags_code, unit.store_time, len(unit.bit_map))
        file.view[start + _HEAD.size : end] = unit.bit_map
        file.wrote_position = end
        return file.file_from_offset + start + _FIRST_ADDRESS

    def _allocate(self, file: MappedFile, end: int) -> None:
        """Allocate blocks at the end of `file`, up to byte `end`."""
        if file.file_from_offset + end > self._allocated:
            stop = min(file.wrote_position + _ALLOCATED_BYTES, file.file_size)
            file.region.allocate(file.wrote_position, stop)
            self._allocated = file.file_from_offset + stop

    # --- life of the files ---

    def unflushed(self, least_bytes: int) -> list[tuple[MappedFile, int, int]]:
        """Return the ranges that a flush must make durable: file, first byte, byte behind the last."""
        if not self._is_placed:
            return []
        return [
            (file, file.flushed_position, file.wrote_position)
            for file in self._files.files
            if file.wrote_position > file.flushed_position
            and (file.is_full or file.wrote_position - file.flushed_position >= least_bytes)
        ]

    def take_expired(self, min_address: int) -> list[MappedFile]:
        """Remove files whose units are all below `min_address` from the list; the caller deletes them."""
        files = self._loaded()
        if not is_ext_address(min_address):
            return []
        gone = [file for file in self._others if file.end_offset <= offset_of(min_address)]
        self._others = [file for file in self._others if file not in gone]
        while len(files.files) > 1:
            first = files.files[0]
            if first.end_offset > offset_of(min_address):
                break
            gone.append(files.take_first())
        return gone

    def release(self) -> None:
        """Unmap all files of the extension; what was written stays."""
        self._files.release()

    def forget(self) -> None:
        """Forget all files because the queue begins anew; `place` must be called again. Files that are being flushed
        stay mapped until the flush has ended."""
        self._files.files, self._others = [], []
        self._is_loaded = self._is_placed = False

    def _destroy_files(self) -> None:
        for file in self._others:
            file.destroy()
        self._others = []
        self._files.destroy()

    def destroy(self) -> None:
        """Delete the extension's files and folder. Blocks."""
        self._loaded()
        self._destroy_files()
        self._disk.delete_tree(self.folder)
        if not self._disk.list(self.folder.parent):
            self._disk.delete_tree(self.folder.parent)
        self.forget()

    def _loaded(self) -> MappedFileQueue:
        if not self._is_loaded:
            self._is_loaded = True
            self._load()
        return self._files

    def _load(self) -> None:
        """Load the newest files that follow each other without a gap and have the size that the settings say."""
        files = self._files
        for entry in sorted(self._disk.list(self.folder), key=lambda entry: entry.name):
            if not is_offset_name(entry.name) or not entry.size:
                continue
            offset = int(entry.name)
            if files.last is not None and (files.last.end_offset != offset or entry.size != files.file_size):
                self._others += files.files  # files before a gap are not read any more
                files.files = []
            file = MappedFile(self._disk, files, offset, entry.size, position=entry.size)
            (files.files if entry.size == files.file_size else self._others).append(file)
