"""One hash index from message keys to physical offsets (IndexFile.java, IndexHeader.java).

    0  beginTimestamp:8  endTimestamp:8  beginPhyOffset:8  endPhyOffset:8  hashSlotCount:4  indexCount:4
    40 slots: 4 bytes each, number of the newest entry of the chain, 0 = empty
    40 + 4 × slots: entries of 20 bytes: key hash:4  physical offset:8  seconds since beginTimestamp:4  previous entry:4

Entry numbers start at 1; indexCount is the next number. Entries are written by `IndexTail.put_key` (tails_cy.py); this
module reads.
"""

import struct
from bisect import bisect_left
from collections.abc import Iterator
from pathlib import PurePath

from maxq.runtime.interfaces import Disk, MappedRegion

HEADER_SIZE = 40
SLOT_SIZE = 4
ENTRY_SIZE = 20
HEADER = struct.Struct(">qqqqii")
_ENTRY = struct.Struct(">iqii")
_SLOT = struct.Struct(">i")
_OFFSET = struct.Struct(">q")
_END_OFFSET_POSITION = 24


def index_file_size(slot_nums: int, max_index_nums: int) -> int:
    """Return the size of an index file, in bytes."""
    return HEADER_SIZE + SLOT_SIZE * slot_nums + ENTRY_SIZE * max_index_nums


class IndexFile:
    """One IndexFile, mapped when first used. Times are milliseconds since 1970."""

    def __init__(self, disk: Disk, path: PurePath, slot_nums: int, max_index_nums: int) -> None:
        self._disk = disk
        self.path = path
        self.slot_nums = slot_nums
        self.max_index_nums = max_index_nums
        self.size = index_file_size(slot_nums, max_index_nums)
        self._region: MappedRegion | None = None
        self.flushed_count = 0  # entries below this number are durable

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def region(self) -> MappedRegion:
        if self._region is None:
            self._region = self._disk.map(self.path, self.size)
        return self._region

    @property
    def view(self) -> memoryview:
        return self.region.view

    def header(self) -> tuple[int, int, int, int, int, int]:
        """Begin and end timestamp, begin and end physical offset, used slots, next entry number."""
        return HEADER.unpack_from(self.view)

    @property
    def begin_timestamp(self) -> int:
        """Store timestamp of the first entry."""
        return self.header()[0]

    @property
    def end_timestamp(self) -> int:
        """Store timestamp of the last entry."""
        return self.header()[1]

    @property
    def begin_physical_offset(self) -> int:
        """Physical offset of the first entry's record."""
        return self.header()[2]

    @property
    def end_physical_offset(self) -> int:
        """Physical offset of the last entry's record."""
        return self.header()[3]

    @property
    def index_count(self) -> int:
        """Number of the next entry; the first is 1."""
        return self.header()[5]

    @property
    def is_full(self) -> bool:
        """Whether the file is full, so that the next entry goes into a new file."""
        return self.index_count >= self.max_index_nums

    def preset(self, timestamp: int, physical_offset: int) -> None:
        """Write the header of a new file with the previous file's end as begin and end (getAndCreateLastIndexFile)."""
        HEADER.pack_into(self.view, 0, timestamp, timestamp, physical_offset, physical_offset, 0, 1)

    def set_end_physical_offset(self, physical_offset: int) -> None:
        """Set the end of the header: the physical offset of the last record that has entries here."""
        _OFFSET.pack_into(self.view, _END_OFFSET_POSITION, physical_offset)

    def fault(self) -> str | None:
        """Returns what is wrong with the header; None if nothing is."""
        begin, end, begin_offset, end_offset, slots, count = self.header()
        if not 0 <= count <= self.max_index_nums:
            return f"its entry count {count} is outside 0…{self.max_index_nums}"
        if not 0 <= slots <= min(self.slot_nums, max(count, 0)):
            return f"its slot count {slots} is outside 0…{min(self.slot_nums, count)}"
        if not (begin >= 0 and end >= 0 and 0 <= begin_offset <= end_offset):
            return f"its range is {begin_offset}…{end_offset}, {begin}…{end}"
        return None

    def agrees_with_entries(self, *, exactly: bool) -> bool:
        """Return whether the header agrees with the entries. A loss of power may tear a header that was being written;
        its times then look older than those of the entries. A restored record's entry may lie below the end
        (`put_restored_keys`), which `exactly` does not allow."""
        begin, end, begin_offset, end_offset, _, count = self.header()
        if count <= 1:
            return True
        first, last = self.entry(1)[1], self.entry(count - 1)[1]
        ends_there = last == end_offset or (not exactly and last < end_offset)
        return min(begin, end) > 0 and first == begin_offset and ends_there

    def entry(self, number: int) -> tuple[int, int, int, int]:
        """Returns one entry: key hash, physical offset, seconds since the begin time, number of the previous entry.

        Raises:
            OSError: the device cannot read it.
        """
        at = HEADER_SIZE + SLOT_SIZE * self.slot_nums + ENTRY_SIZE * number
        self.region.bring_in(at, at + ENTRY_SIZE)
        return _ENTRY.unpack_from(self.view, at)

    def trailing_entries(self, physical_offset: int) -> int:
        """Return how many of the newest entries belong to the record at `physical_offset`."""
        number = self.index_count - 1
        found = 0
        while number > 0 and self.entry(number)[1] == physical_offset:
            number -= 1
            found += 1
        return found

    def records_within(self, start: int, end: int) -> set[int]:
        """Return the physical offsets in [start, end) of records with an entry. Entries come in the order of the log,
        except those of restored records, of which the newest are found as well."""
        found: set[int] = set()
        last = self.index_count - 1
        while last > 0 and (offset := self.entry(last)[1]) < self.end_physical_offset:
            found.add(offset)
            last -= 1
        number = bisect_left(range(1, last + 1), start, key=lambda number: self.entry(number)[1]) + 1
        while number <= last and (offset := self.entry(number)[1]) < end:
            found.add(offset)
            number += 1
        return {offset for offset in found if start <= offset < end}

    def overlaps(self, begin: int, end: int) -> bool:
        """Returns whether [begin, end] overlaps the file's time range."""
        first, last = self.begin_timestamp, self.end_timestamp
        if last < first:  # the clock was set back meanwhile
            return True
        return (begin < first and end > last) or first <= begin <= last or first <= end <= last

    def select(self, key_hash: int, begin: int, end: int) -> Iterator[int]:
        """Return physical offsets of entries with this hash whose time is in [begin, end], newest first
        (IndexFile.selectPhyOffset). Other keys may have the same hash: the caller compares.

        Raises:
            OSError: the device cannot read one of them.
        """
        at = HEADER_SIZE + SLOT_SIZE * (key_hash % self.slot_nums)
        self.region.bring_in(at, at + SLOT_SIZE)
        slot = _SLOT.unpack_from(self.view, at)[0]
        count = self.index_count
        first = self.begin_timestamp
        number = slot if 0 < slot <= count and count > 1 else 0
        while number:
            stored_hash, physical_offset, seconds, previous = self.entry(number)
            if seconds < 0:
                return
            time = first + seconds * 1000
            if stored_hash == key_hash and begin <= time <= end:
                yield physical_offset
            if not 0 < previous < number or time < begin:  # a chain leads to older entries; anything else is damage
                return
            number = previous

    def flush(self) -> None:
        """Make all new entries durable. Blocks; any thread. A file that is deleted meanwhile is skipped, because
        mapping it would create it again."""
        region = self._region
        count = self.flushed_count if region is None else HEADER.unpack_from(region.view)[5]
        if region is not None and count != self.flushed_count:
            region.flush(0, self.size)
            self.flushed_count = count

    def release(self) -> None:
        """Release the mapping. A mapping that a thread is flushing ends with that thread."""
        self._region = None

    def destroy(self) -> None:
        """Delete the file from the disk. Blocks."""
        self.release()
        if self._disk.exists(self.path):
            self._disk.delete(self.path)
