"""DLedger's index files: where entry i is, at 32 × i (DLedgerMmapFileStore's indexFileList).

The data files say all of it again, so units are flushed in the background only; a start compares the units of what it
scans with the entries and writes those anew that differ.
"""

import struct
from pathlib import PurePath

from maxq.errors import StoreRefusedError
from maxq.protocol.dledger.ledger import EntryUnit
from maxq.runtime.interfaces import Disk
from maxq.store.dledger.entries_cy import put_units
from maxq.store.durability.flush import Pieces
from maxq.store.files.disk_room import lacks_room
from maxq.store.files.mapped_file import OS_PAGE_SIZE, MappedFile
from maxq.store.files.mapped_file_queue import MappedFileQueue

UNIT = struct.Struct(">iqiqq")
UNIT_SIZE = UNIT.size
_STEP = 1 << 20
_NOWHERE = 1 << 62


class LedgerIndex:
    """The index units of entries [begin, end]. Units outside that range are not checked."""

    def __init__(self, disk: Disk, folder: PurePath, file_size: int) -> None:
        assert file_size % UNIT_SIZE == 0, "index files hold whole units"
        self._disk = disk
        self.files = MappedFileQueue(disk, folder, "", file_size)
        self._backed = 0  # position in the stream up to which its newest file has blocks
        self._flushed = 0  # position in the stream below which units are durable
        self._written_from = _NOWHERE  # the lowest position that was written since a flush began

    def load(self) -> str:
        """List the files. They can all be rebuilt, so they are deleted if they do not fit.

        Returns:
            Faults that were found; empty if there are none.
        """
        try:
            self.files.load(self._disk.list(self.files.folder), setting="mappedFileSizeDLedgerIndex")
        except StoreRefusedError as error:
            self.files.release()
            self.files.files.clear()
            self._disk.delete_tree(self.files.folder)
            return f"{error} The index is made again."
        return ""

    def opened(self) -> None:
        """Note that recovery has read the index: from now on units are written in order."""
        if self.files.files:
            self.files.files[-1].region.touch_by_page()

    def unit(self, index: int) -> EntryUnit | None:
        """Returns the unit of an entry; None if the unit there belongs to no entry or to another one."""
        magic, position, size, own, term = self._raw(index)
        return EntryUnit(position, size, term) if own == index and magic == 1 else None

    def is_right(self, index: int, head: memoryview) -> bool:
        """Return whether the unit of the entry `index` says what the entry itself says, whose first bytes are
        `head`."""
        file = self.files.find(index * UNIT_SIZE)
        if file is None:
            return False
        wanted = memoryview(bytearray(UNIT_SIZE))
        put_units(head, 0, 48, wanted, 0)
        position = index * UNIT_SIZE - file.file_from_offset
        return file.view[position : position + UNIT_SIZE] == wanted

    def _raw(self, index: int) -> tuple[int, int, int, int, int]:
        position = index * UNIT_SIZE
        file = self.files.find(position)
        if file is None:
            return 0, 0, 0, -1, -1
        found: tuple[int, int, int, int, int] = UNIT.unpack_from(file.view, position - file.file_from_offset)
        return found

    def put(self, view: memoryview, start: int, end: int, first: int) -> int:
        """Write the units of the entries in view[start:end], of which the first is `first`, where they differ from the
        stored ones.

        Returns:
            How many differed.

        Raises:
            OSError: no room on the disk.
        """
        changed, position = 0, first * UNIT_SIZE
        while start < end:
            file = self._file_for(position)
            offset = position - file.file_from_offset
            room = min(file.file_size, self._back(file, offset, (end - start) // 48 * UNIT_SIZE))
            start, count, different = put_units(view, start, end, file.view[:room], offset)
            changed += different
            if different:
                self._written_from = min(self._written_from, position)
                self._flushed = min(self._flushed, position)
            position += count * UNIT_SIZE
            file.wrote_position = max(file.wrote_position, position - file.file_from_offset)
        return changed

    def reserve(self, first: int, last: int) -> None:
        """Allocate blocks for these next units.

        Raises:
            OSError: no room on the disk.
        """
        position, end = first * UNIT_SIZE, (last + 1) * UNIT_SIZE
        while position < end:
            file = self._file_for(position)
            backed = self._back(file, position - file.file_from_offset, end - position)
            position = file.file_from_offset + backed

    def _file_for(self, position: int) -> MappedFile:
        if not self.files.files:
            self._backed = position - position % self.files.file_size
            return self._create(self._backed)
        last = self.files.files[-1]
        while position >= last.end_offset:
            last = self._create(last.end_offset)
        file = self.files.find(position)
        assert file is not None, f"units before {self.files.min_offset} are not written any more"
        return file

    def _create(self, offset: int) -> MappedFile:
        file = self.files.create(offset)
        file.region.touch_by_page()
        return file

    def _back(self, file: MappedFile, offset: int, size: int) -> int:
        """Allocate blocks for at least one unit at `offset`. Returns the position up to which there are blocks."""
        if file is not self.files.files[-1]:
            return file.file_size
        start = max(self._backed, file.file_from_offset)
        position = file.file_from_offset + offset
        stop = min(file.end_offset, -(-(position + max(size, UNIT_SIZE)) // _STEP) * _STEP)
        if stop > start:
            try:
                file.region.allocate(start - file.file_from_offset, stop - file.file_from_offset)
            except OSError as error:  # allocating `size` may fail although the bytes that are needed have blocks
                least = min(stop, (position // OS_PAGE_SIZE + 1) * OS_PAGE_SIZE)
                if least == stop or not lacks_room(error):
                    raise
                stop = max(start, least)
                file.region.allocate(start - file.file_from_offset, stop - file.file_from_offset)
            self._backed = stop
        return max(start, stop) - file.file_from_offset

    def truncate(self, index: int) -> None:
        """Remove the units from `index` on; files that have only such units are deleted. Blocks."""
        position = index * UNIT_SIZE
        while self.files.files and self.files.files[-1].file_from_offset >= position:
            self._delete(self.files.files.pop())
        self._flushed = min(self._flushed, position)
        self._backed = min(self._backed, self.files.files[-1].end_offset if self.files.files else 0)

    def forget_below(self, index: int) -> list[MappedFile]:
        """Take files that hold only units below `index` off the list; the caller deletes them."""
        gone: list[MappedFile] = []
        while len(self.files.files) > 1 and self.files.files[0].end_offset <= index * UNIT_SIZE:
            gone.append(self.files.take_first())
        return gone

    def clear(self) -> None:
        """Delete all units of the index. Blocks."""
        self.truncate(0)
        self._flushed = self._backed = 0

    def _delete(self, file: MappedFile) -> None:
        # A flush on another thread may still hold the mapping, which ends when nobody holds it.
        if self._disk.exists(file.path):
            self._disk.delete(file.path)

    def unflushed(self, end_index: int) -> Pieces:
        """Return the pieces that a flush must make durable so that all units up to `end_index` are durable. Call
        `flushed` afterwards, before the next flush begins."""
        pieces: Pieces = []
        self._written_from = _NOWHERE
        end = (end_index + 1) * UNIT_SIZE
        for file in self.files.files:
            if file.end_offset > self._flushed and file.file_from_offset < end:
                start = max(0, self._flushed - file.file_from_offset)
                pieces.append((file, start, min(file.file_size, end - file.file_from_offset)))
        return pieces

    def flushed(self, end_index: int) -> None:
        """Note that the pieces of `unflushed(end_index)` were flushed."""
        self._flushed = max(self._flushed, min(self._written_from, (end_index + 1) * UNIT_SIZE))

    def release(self) -> None:
        """Unmap the files of the index."""
        self.files.release()
