"""Written by `python -m tests.unit.compiled_stubs`; see unit_scan_cy.py."""

from collections.abc import Sequence

DAMAGED_TAGS_CODE: int

class UnitScan:
    ranges: list[tuple[int, int]]
    message_count: int
    total_bytes: int
    next_index: int
    last_physical_offset: int
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
) -> UnitScan: ...
def lost_units(view: memoryview, start: int, end: int, first_index: int, min_physical_offset: int) -> list[int]: ...
