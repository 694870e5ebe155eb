"""Does a store's index have entries for tags (`topic#T#tag`)? RocketMQ 5.5 always writes them, 5.3 never."""

from bisect import bisect_left
from struct import Struct
from typing import Final

from maxq.pipeline.jobs.rebuild.log_dispatch import ENTRY_SIZE, DispatchSettings, dispatch_piece
from maxq.pipeline.store.log_pieces import log_pieces
from maxq.store.tools.index_files import Geometry, IndexReader
from maxq.store.tools.store_files import StoreFiles

_ENTRY: Final = Struct(">iq")
_LOOK_AT: Final = 1 << 20  # bytes of log


def has_tag_entries(files: StoreFiles, geometry: Geometry | None) -> bool:
    """Return whether the newest IndexFile has entries for tags, judged by its first messages; False if there is none,
    or no message with a tag."""
    if not files.index or not files.log or geometry is None:
        return False
    reader = IndexReader(files, files.index[-1], geometry)
    try:
        start = max(reader.header.begin_physical_offset, files.log[0].from_offset)
        end = start + _LOOK_AT
        there = _entries(reader, start, end)
    finally:
        reader.close()
    return bool(there & (_keys(files, start, end, tags=True) - _keys(files, start, end, tags=False)))


def _entries(reader: IndexReader, start: int, end: int) -> set[tuple[int, int]]:
    """Return (hash, physical offset) of the entries of messages at physical offsets [start, end), which are in log
    order."""

    def entry(number: int) -> tuple[int, int]:
        found: tuple[int, int] = _ENTRY.unpack_from(reader.view, reader.geometry.entry_position(number))
        return found

    found: set[tuple[int, int]] = set()
    number = bisect_left(range(1, reader.entry_count + 1), start, key=lambda number: entry(number)[1]) + 1
    while number <= reader.entry_count and entry(number)[1] < end:
        found.add(entry(number))
        number += 1
    return found


def _keys(files: StoreFiles, start: int, end: int, *, tags: bool) -> set[tuple[int, int]]:
    """Return (hash, physical offset) of the keys of the log's messages."""
    found: set[tuple[int, int]] = set()
    for piece in log_pieces(files, low=start, high=end):
        for chunk in dispatch_piece(files.disk, piece, DispatchSettings((), index_tags=tags)).entries:
            for at in range(0, len(chunk), ENTRY_SIZE):
                found.add((int.from_bytes(chunk[at : at + 4], "big"), int.from_bytes(chunk[at + 4 : at + 12], "big")))
    return found
