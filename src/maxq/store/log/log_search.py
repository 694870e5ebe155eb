"""Searches of the log: for records whose properties hold some bytes, in steps that a running loop can take one by one,
and for the next good record behind damage."""

import logging
import struct
from array import array
from collections.abc import Iterator
from typing import Final

from maxq.protocol.dledger.dledger_messages import ENTRY_HEADER_SIZE, ENTRY_MAGIC
from maxq.protocol.message.record_layout import MAGIC, MAGIC_START
from maxq.runtime.interfaces import MappedRegion
from maxq.store.files.mapped_file import AT_ONCE
from maxq.store.log import record_cy
from maxq.store.log.commit_log import CommitLog

log = logging.getLogger(__name__)

_ROWS: Final = 2048
_HEAD: Final = struct.Struct(">ii")


def records_with(commit_log: CommitLog, needle: bytes, start: int, end: int | None = None) -> Iterator[list[int]]:
    """Return the physical offsets of records at or above `start` that have `needle` in their properties.

    Args:
        start: a physical offset at which a record, or its DLedger entry, begins; one below the log counts as its begin.
        end: look no further, though others may have appended; None: to the end of the log, wherever that is by then.

    Yields:
        Results from a few thousand records, perhaps none; other work may run between two steps. Where no record
        follows, the search goes on with the next file: the rest of a file may be too short for a DLedger header,
        damaged, or unreadable, which is logged.
    """
    rows = array("q", bytes(8 * record_cy.SCAN_WIDTH * _ROWS))
    offset = max(start, commit_log.min_offset)
    while offset < (commit_log.max_offset if end is None else min(end, commit_log.max_offset)):
        file = commit_log.files.find(offset)
        if file is None:
            return
        begin = offset - file.file_from_offset
        written = min(commit_log.max_offset - file.file_from_offset, file.file_size)
        view, count, after = file.view, 0, begin
        for stop_at in (min(begin + AT_ONCE, written), written):  # one record may be longer than a step
            try:
                file.region.bring_in(begin, stop_at)
            except OSError as error:
                log.error("%s from byte %d on is not searched: %s", file.path, begin, error)
                break
            if commit_log.record_offset(offset) == offset:
                count, after, _ = record_cy.scan(view, begin, stop_at, file.file_from_offset, rows, check_crc=False)
            else:
                count, after = _scan_entries(view, begin, stop_at, file.file_from_offset, rows)
            if after > begin:
                break
        yield _holding(view, rows, count, needle)
        offset = file.file_from_offset + after if after > begin else file.end_offset


def _scan_entries(view: memoryview, start: int, end: int, file_from_offset: int, rows: "array[int]") -> tuple[int, int]:
    """Scan records in DLedger entries as record_cy.scan does; entries whose body is not a record are skipped.

    Returns:
        Rows that were filled, and the position behind the last entry: `start` if none begins there.
    """
    single = array("q", bytes(8 * record_cy.SCAN_WIDTH))
    count, position = 0, start
    if bytes(view[start + MAGIC : start + MAGIC + 3]) == MAGIC_START:  # a record, not an entry's header
        position -= ENTRY_HEADER_SIZE
    while end - position >= ENTRY_HEADER_SIZE:
        magic, size = _HEAD.unpack_from(view, position)
        if magic != ENTRY_MAGIC or size < ENTRY_HEADER_SIZE or position + size > end or count == _ROWS:
            break
        found, _, _ = record_cy.scan(
            view, position + ENTRY_HEADER_SIZE, position + size, file_from_offset, single, check_crc=False
        )
        if found:
            rows[count * record_cy.SCAN_WIDTH : (count + 1) * record_cy.SCAN_WIDTH] = single
            count += 1
        position += size
    return count, max(position, start)


def _holding(view: memoryview, rows: "array[int]", count: int, needle: bytes) -> list[int]:
    width, end = record_cy.SCAN_WIDTH, count * record_cy.SCAN_WIDTH
    columns = (record_cy.C_PHYSICAL_OFFSET, record_cy.C_PROPERTIES_POSITION, record_cy.C_PROPERTIES_SIZE)
    return [
        physical_offset
        for physical_offset, position, size in zip(*(rows[column:end:width] for column in columns), strict=True)
        if needle in bytes(view[position : position + size])
    ]


def next_record(commit_log: CommitLog, offset: int, end: int) -> int:
    """Return the physical offset of the first good record in [offset, end) of the log; `end` if there is none."""
    commit_log.write_buffered()
    for file, start, stop in commit_log.ranges(offset, min(end, commit_log.max_offset)):
        found = find_record(file.region, start, file.file_from_offset)
        if 0 <= found < stop:
            return file.file_from_offset + found
    return end


def find_record(region: MappedRegion, start: int, file_from_offset: int) -> int:
    """Return the position in a log file of the first good record from `start` on; -1 if there is none. Holes are not
    read: a file that was made ahead is mostly one, and reading it would take seconds, and memory on a tmpfs."""
    view = region.view
    for begin, end in region.data_ranges(start, len(view)):
        found = record_cy.find_record(view[:end], max(start, begin - 8), end, file_from_offset)
        if found >= 0:
            return found
    return -1
