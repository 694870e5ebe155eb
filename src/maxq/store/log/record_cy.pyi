"""Typed face of the compiled record scanner. See record_cy.py."""

from typing import Any

#: Columns of a scan row.
SCAN_WIDTH: int
(
    C_POSITION,
    C_SIZE,
    C_PHYSICAL_OFFSET,
    C_QUEUE_ID,
    C_QUEUE_OFFSET,
    C_SYS_FLAG,
    C_FLAG,
    C_BORN_TIMESTAMP,
    C_STORE_TIMESTAMP,
    C_RECONSUME_TIMES,
    C_PREPARED_OFFSET,
    C_BODY_CRC,
    C_BODY_POSITION,
    C_BODY_SIZE,
    C_TOPIC_POSITION,
    C_TOPIC_SIZE,
    C_PROPERTIES_POSITION,
    C_PROPERTIES_SIZE,
    C_BORN_HOST_POSITION,
    C_STORE_HOST_POSITION,
) = range(20)

#: Why a scan stopped.
STOP_ROWS_FULL: int  # the row buffer is full; call again from `position`
STOP_END: int  # reached `end`
STOP_BLANK: int  # a BLANK record: the rest of the file is unused
STOP_ZERO: int  # eight zero bytes: nothing was written here
STOP_BAD_MAGIC: int
STOP_BAD_SIZE: int  # size too small, past `end`, or not the sum of its parts
STOP_BAD_CRC: int  # body CRC (or property CRC when asked) is wrong
STOP_BAD_OFFSET: int  # the stored physical offset is not this place: a stale or foreign record

def scan(
    view: memoryview,
    start: int,
    end: int,
    file_from_offset: int,
    rows: Any,
    *,
    check_crc: bool = True,
    check_prop_crc: bool = False,
    check_offset: bool = True,
) -> tuple[int, int, int]:
    """Read records from view[start:end] into `rows` (array('q'), SCAN_WIDTH columns a record).
    Returns (count, position after the last good record, stop reason)."""

def find_record(view: memoryview, start: int, end: int, file_from_offset: int) -> int:
    """The first position ≥ start that holds a whole good record (magic, size, parts, own physical offset, body CRC),
    or -1. Used to tell damage in the middle from a torn tail."""

def check_chain(view: memoryview, start: int, end: int) -> bool:
    """Return whether records follow each other from `start` and end exactly at `end`, as far as sizes and magic codes
    tell."""

def cut(
    view: memoryview, file_from_offset: int, end_offset: int, ranges: list[tuple[int, int]]
) -> list[memoryview] | None:
    """Slices of one file (it begins at `file_from_offset`) for ranges of physical offset and size below `end_offset`,
    each a chain of whole records; None if one is not, or is not in this file."""

def crc31(data: bytes | bytearray | memoryview) -> int:
    """CRC-32 with bit 31 cleared (UtilAll.crc32); 0 for empty input."""

def encode_prop_crc(value: int) -> bytes:
    """The ten bytes in which the property __CRC32# holds a checksum."""

def is_compiled() -> bool: ...
