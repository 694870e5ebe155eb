"""Written by `python -m tests.unit.compiled_stubs`; see batch_encode_cy.py."""

from typing import Any

MAX_PROPERTIES: int
OVERHEAD: int

def encode_rows(
    memory: Any,
    at: int,
    rows: Any,
    first: int,
    body_offsets: Any,
    body_data: Any,
    text_offsets: Any,
    text_data: Any,
    prefix: bytes,
    number: int,
) -> tuple[int, int]: ...
def hash_rows(hashes: Any, offsets: Any, values: Any) -> None: ...
def is_compiled() -> bool: ...
