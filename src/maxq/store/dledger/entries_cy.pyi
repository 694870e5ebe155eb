"""Typed face of the compiled entry scanner. See entries_cy.py."""

#: Why a scan stopped.
STOP_END: int  # reached `end`, or fewer than 8 bytes are left before it
STOP_FILLER: int  # the log goes on in the next file
STOP_ZERO: int  # eight zero bytes: nothing was written here, the log ends
STOP_BAD: int  # no entry, or not the one that follows, or not whole before `end`
STOP_BAD_CRC: int  # the body does not have its bodyCrc; without one, it is a record whose size or body CRC is wrong

ANY_INDEX: int  # as `index` of scan_entries: the first entry may have any index

def scan_entries(
    view: memoryview | bytes, start: int, end: int, file_from_offset: int, index: int, term: int, check_crc: bool
) -> tuple[int, int, int, int]:
    """Go over the entries in view[start:end] that follow entry `index` of `term`: consecutive indexes, terms that never
    fall, each at its `pos`. Returns (position behind the last good one, its index, its term, STOP_ code); index and
    term are the arguments if there was none."""

def put_units(view: memoryview | bytes, start: int, end: int, units: memoryview, position: int) -> tuple[int, int, int]:
    """Write the index units of the entries in view[start:end], which a scan has found good, to `units` from byte
    `position` on, as far as there is room; equal ones are not touched. Returns (position in `view` behind the last
    entry that has its unit, how many units these are, how many were changed). ValueError if there is no entry."""

def find_entry(view: memoryview, start: int, end: int, file_from_offset: int, index: int) -> tuple[int, int]:
    """The first whole entry at or behind `start`, its body good, whose index is above `index`: (position, index), or
    (-1, -1)."""

def is_compiled() -> bool: ...
