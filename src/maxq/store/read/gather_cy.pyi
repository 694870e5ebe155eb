"""Typed face of the compiled gathering of records. See gather_cy.py."""

OMIT_NOTHING: int
OMIT_BODY: int
OMIT_BODY_AND_PROPERTIES: int

def gather(
    view: memoryview,
    file_from_offset: int,
    end_offset: int,
    ranges: list[tuple[int, int]],
    out: bytearray | memoryview,
    position: int,
    omit: int,
) -> int:
    """Copy `ranges` (physical offset, bytes) of one file, which begins at `file_from_offset`, into out[position:].

    Args:
        ranges: chains of whole records below `end_offset`.
        omit: one of the OMIT_… values.

    Returns:
        The position behind what was copied; -1 if some range is not a chain of whole records of this file, or `out` is
        too small.
    """

def is_compiled() -> bool: ...
