"""IndexFiles, read only.

    header 40 bytes: i64 begin time, i64 end time, i64 begin physical offset, i64 end physical offset,
                     i32 slots in use, i32 next entry number
    slots  4 bytes each: number of the newest entry of the chain, 0 = empty
    entries 20 bytes each, entry 0 unused: i32 key hash, i64 physical offset, i32 seconds since begin time,
                     i32 previous entry of the chain

Nothing in a file says how many slots it has; `infer_geometry` finds out.
"""

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from maxq.errors import StoreError
from maxq.runtime.interfaces import MappedRegion
from maxq.store.tools.store_files import DataFile, StoreFiles

HEADER_SIZE: Final = 40
SLOT_SIZE: Final = 4
ENTRY_SIZE: Final = 20
_HEADER: Final = struct.Struct(">qqqqii")
_ENTRY: Final = struct.Struct(">iqii")
_SLOT: Final = struct.Struct(">i")

_DEFAULT_SLOTS: Final = 5_000_000
_DEFAULT_ENTRIES: Final = 20_000_000
_PROBE: Final = 200  # entries that are read to distinguish two geometries


class IndexHeader(NamedTuple):
    """The first 40 bytes of a file. Times are ms since 1970."""

    begin_timestamp: int
    end_timestamp: int
    begin_physical_offset: int
    end_physical_offset: int
    hash_slot_count: int
    index_count: int  # number of the next entry


class IndexEntry(NamedTuple):
    """One entry, 20 bytes."""

    key_hash: int
    physical_offset: int
    seconds: int  # seconds since the header's begin time
    previous: int


class Geometry(NamedTuple):
    """How many hash slots and entries a file has room for."""

    slots: int
    entries: int

    @property
    def file_size(self) -> int:
        return HEADER_SIZE + SLOT_SIZE * self.slots + ENTRY_SIZE * self.entries

    def slot_position(self, slot: int) -> int:
        return HEADER_SIZE + SLOT_SIZE * slot

    def entry_position(self, number: int) -> int:
        return HEADER_SIZE + SLOT_SIZE * self.slots + ENTRY_SIZE * number


class IndexReader:
    """Reads one IndexFile: its header, its slots, and its entries by number."""

    def __init__(self, files: StoreFiles, file: DataFile, geometry: Geometry) -> None:
        self.file = file
        self.geometry = geometry
        self._region: MappedRegion = files.disk.map(file.path, file.size, read_only=True)
        self.view = self._region.view
        self.header = IndexHeader(*_HEADER.unpack_from(self.view))

    @property
    def entry_count(self) -> int:
        """Return how many entries the header claims, at most as many as the file has room for."""
        return max(0, min(self.header.index_count, self.geometry.entries) - 1)

    def entries(self) -> Iterator[tuple[int, IndexEntry]]:
        """Yield (number, entry) of every entry, from number 1 on."""
        start = self.geometry.entry_position(1)
        end = start + ENTRY_SIZE * self.entry_count
        for number, values in enumerate(_ENTRY.iter_unpack(self.view[start:end]), start=1):
            yield number, IndexEntry(*values)

    def entry(self, number: int) -> IndexEntry:
        """Return the entry of this number, from 1 to `entry_count`."""
        return IndexEntry(*_ENTRY.unpack_from(self.view, self.geometry.entry_position(number)))

    def slots(self) -> memoryview:
        """Return the bytes of all slots: 4 bytes each, a big-endian number of an entry, 0 if the slot has none."""
        return self.view[HEADER_SIZE : HEADER_SIZE + SLOT_SIZE * self.geometry.slots]

    def close(self) -> None:
        self.view = memoryview(b"")
        self._region.close()


def infer_geometry(files: StoreFiles, file: DataFile) -> Geometry | None:
    """Infer the number of slots and entries of a file; None if it has no entries, and no file of its size has any.

    Raises:
        StoreError: not told (settings), not the default, and the content fits more than one or none.
    """
    slots, entries = files.settings.hash_slots, files.settings.index_entries
    if slots and entries:
        told = Geometry(slots, entries)
        if told.file_size != file.size:
            raise StoreError(f"{file.size} bytes long, {slots} slots and {entries} entries make {told.file_size}")
        return told
    default = Geometry(_DEFAULT_SLOTS, _DEFAULT_ENTRIES)
    if file.size == default.file_size:
        return default
    empty = True
    for other in (file, *(other for other in files.index if other.size == file.size and other is not file)):
        best = sorted(probe for probe in _probes(files, other, slots) if probe[0])
        if best and (len(best) == 1 or best[-2][0] < best[-1][0]):
            return best[-1][1]
        empty = empty and not best and not any(files.disk.read(other.path)[32:HEADER_SIZE])
    if empty:
        return None
    raise StoreError(
        f"cannot tell the number of slots of a file of {file.size} bytes; "
        "give --hash-slots and --index-entries, or --conf"
    )


def _candidates(size: int, slots: int) -> Iterator[Geometry]:
    room = size - HEADER_SIZE
    if room <= 0 or room % SLOT_SIZE:
        return
    if slots:
        yield Geometry(slots, (room - SLOT_SIZE * slots) // ENTRY_SIZE)
        return
    # Entries fill what the slots leave: 4 s + 20 e = room.
    for count in range((room // SLOT_SIZE) % 5 or 5, room // SLOT_SIZE, 5):
        yield Geometry(count, (room - SLOT_SIZE * count) // ENTRY_SIZE)


def _probes(files: StoreFiles, file: DataFile, slots: int) -> list[tuple[int, Geometry]]:
    """Return the geometries that a file may have, each with the result of `_probe`; with `slots` only those with that
    many slots."""
    candidates = [*_candidates(file.size, slots)]
    if not candidates:
        return []
    reader = IndexReader(files, file, candidates[0])
    try:
        claimed = reader.header.index_count - 1
        return [(_probe(reader.view, claimed, geometry), geometry) for geometry in candidates]
    finally:
        reader.close()


def _probe(view: memoryview, claimed: int, geometry: Geometry) -> int:
    """Return how many of the first entries are in the chains of their slots; 0 if one is not. `claimed` is the header's
    number of entries."""
    count = max(0, min(claimed, geometry.entries - 1, _PROBE))
    start = geometry.entry_position(1)
    newest_of_slot: dict[int, int] = {}
    entries = _ENTRY.iter_unpack(view[start : start + ENTRY_SIZE * count])
    for number, (key_hash, _, _, previous) in enumerate(entries, start=1):
        slot = key_hash % geometry.slots
        newest = _SLOT.unpack_from(view, geometry.slot_position(slot))[0]
        if key_hash < 0 or previous != newest_of_slot.get(slot, 0) or newest < number:
            return 0
        newest_of_slot[slot] = number
    return count
