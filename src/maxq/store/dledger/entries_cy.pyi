"""Written by `python -m tests.unit.compiled_stubs`; see entries_cy.py."""

STOP_END: int
STOP_FILLER: int
STOP_ZERO: int
STOP_BAD: int
STOP_BAD_CRC: int
ANY_INDEX: int

def scan_entries(
    view: memoryview | bytes, start: int, end: int, file_from_offset: int, index: int, term: int, check_crc: bool
) -> tuple[int, int, int, int]: ...
def put_units(
    view: memoryview | bytes, start: int, end: int, units: memoryview, position: int
) -> tuple[int, int, int]: ...
def find_entry(view: memoryview, start: int, end: int, file_from_offset: int, index: int) -> tuple[int, int]: ...
def is_compiled() -> bool: ...
