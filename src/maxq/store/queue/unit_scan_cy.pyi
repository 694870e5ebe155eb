"""Typed face of the compiled walk over units. See unit_scan_cy.py."""

from collections.abc import Sequence

DAMAGED_TAGS_CODE: int  # tags code of a unit that keeps the place of a damaged message; `collect` passes over it

class UnitScan:
    """What a pull takes of the units of its queue."""

    ranges: list[tuple[int, int]]  # (physical offset, bytes), neighbours joined
    message_count: int
    total_bytes: int
    next_index: int  # queue offset after the last examined unit
    last_physical_offset: int  # of the last examined unit, 0 if none

    def __init__(self) -> None: ...

def collect(
    view: memoryview,
    start: int,
    end: int,
    first_index: int,
    codes: Sequence[int] | None,
    max_messages: int,
    max_bytes: int,
    max_physical_offset: int,
    memory_bytes: int,
    limits: tuple[int, int, int, int],
    min_physical_offset: int,
    max_units: int,
) -> UnitScan:
    """Walk ConsumeQueue units view[start:end] (20 bytes each, first has queue offset `first_index`) as
    DefaultMessageStore.getMessage does. codes None: every tag; else the int32 tag hashes.
    limits = (bytes in memory, count in memory, bytes on disk, count on disk); memory_bytes = RAM × accessRatio."""
