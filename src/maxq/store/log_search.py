"""Search of the log for records whose properties hold some bytes, in steps that a running loop can take one by one."""

from array import array
from collections.abc import Iterator
from typing import Final

from maxq.store import record_cy
from maxq.store.commit_log import CommitLog

_ROWS: Final = 2048


def records_with(commit_log: CommitLog, needle: bytes, start: int, end: int | None = None) -> Iterator[list[int]]:
    """The physical offsets of records that lie at or above `start` and have `needle` in their properties.

    Args:
        start: a physical offset at which a record begins; one below the log counts as its begin.

        end: look no further, though others may have appended; None: to the end of the log, wherever that is by then.

    Yields:
        What a few thousand records gave, maybe nothing; others may work between two steps. It ends at the end of the
        log, or where no record follows.
    """
    rows = array("q", bytes(8 * record_cy.SCAN_WIDTH * _ROWS))
    offset = max(start, commit_log.min_offset)
    while offset < (commit_log.max_offset if end is None else min(end, commit_log.max_offset)):
        file = commit_log.files.find(offset)
        if file is None:
            return
        begin = offset - file.file_from_offset
        stop_at = min(commit_log.max_offset - file.file_from_offset, file.file_size)
        view = file.view
        count, after, stop = record_cy.scan(view, begin, stop_at, file.file_from_offset, rows, check_crc=False)
        yield _holding(view, rows, count, needle)
        if stop == record_cy.STOP_BLANK or (stop == record_cy.STOP_END and stop_at == file.file_size):
            offset = file.end_offset
        elif after == begin:
            return
        else:
            offset = file.file_from_offset + after


def _holding(view: memoryview, rows: "array[int]", count: int, needle: bytes) -> list[int]:
    width, end = record_cy.SCAN_WIDTH, count * record_cy.SCAN_WIDTH
    columns = (record_cy.C_PHYSICAL_OFFSET, record_cy.C_PROPERTIES_POSITION, record_cy.C_PROPERTIES_SIZE)
    return [
        physical_offset
        for physical_offset, position, size in zip(*(rows[column:end:width] for column in columns), strict=True)
        if needle in bytes(view[position : position + size])
    ]
