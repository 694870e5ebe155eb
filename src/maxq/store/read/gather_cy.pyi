"""Written by `python -m tests.unit.compiled_stubs`; see gather_cy.py."""

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
) -> int: ...
def is_compiled() -> bool: ...
