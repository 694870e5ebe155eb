"""Marks of logs, by which two brokers of a group notice without a replication link that their logs differ.

Equal lengths prove nothing: a master that lost the end of its log, and continued, has other messages at the same
offsets. A mark is the checksum of the last bytes of a log that are not fillers of damage. A broker that has that part
of the log, too, compares its own bytes. Equal bytes say nothing about what follows them.
"""

import zlib
from typing import Final, Protocol

#: Most bytes that are compared: some records, or the end of a large one, with its unique key.
_MARKED: Final = 1 << 16


class Fillers(Protocol):
    """The part of FilledRanges that matters to marks."""

    def ranges(self) -> list[tuple[int, int]]:
        """Return the (start, end) of the ranges that lie in the log, in order."""
        ...


class MarkedLog(Protocol):
    """The part of MessageStore whose bytes two brokers compare."""

    @property
    def filled_ranges(self) -> Fillers:
        """Damaged ranges of this log that recovery has replaced by fillers."""
        ...

    @property
    def min_physical_offset(self) -> int:
        """Physical offset of the first byte that the log still has."""
        ...

    @property
    def max_physical_offset(self) -> int:
        """Physical offset behind the last byte of the log."""
        ...

    def log_bytes(self, offset: int, limit: int) -> memoryview | None:
        """At most `limit` bytes of the log from physical offset `offset` on, within one file; None if it has nothing
        there."""
        ...


def log_mark(log: MarkedLog) -> str:
    """Return offset, size and CRC-32 of the last bytes of a log, as `offset:size:crc`; an empty text if the log has no
    bytes that can be compared."""
    end = log.max_physical_offset
    start = max(end - _MARKED, log.min_physical_offset, *(behind for _, behind in log.filled_ranges.ranges()[-1:]))
    while start < end:
        data = log.log_bytes(start, end - start)
        if data is None:
            return ""
        if start + len(data) == end:
            return f"{start}:{len(data)}:{zlib.crc32(data)}"
        start += len(data)  # a mark lies within one file
    return ""


def has_other_bytes(log: MarkedLog, mark: str) -> bool:
    """Return whether a log has other bytes than the log with this mark has there. False if this log has no bytes there,
    or fillers, or if the text is not a mark."""
    fields = mark.split(":")
    if len(fields) != 3 or not all(field.isascii() and field.isdigit() and len(field) < 20 for field in fields):
        return False
    start, size, crc = map(int, fields)
    end = start + size
    if not 0 < size <= _MARKED or start < log.min_physical_offset or end > log.max_physical_offset:
        return False
    if any(first < end and start < behind for first, behind in log.filled_ranges.ranges()):
        return False
    own = log.log_bytes(start, size)
    return own is not None and len(own) == size and zlib.crc32(own) != crc
