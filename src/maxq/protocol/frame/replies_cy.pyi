"""Written by `python -m tests.unit.compiled_stubs`; see replies_cy.py."""

from array import array

def encode_replies(
    rows: array[int],
    first: int,
    count: int,
    source: bytearray | memoryview,
    scratch: bytearray,
    store_host: bytes,
    region: bytes,
    trace_on: bytes,
    language: int,
    version: int,
    log: memoryview,
    file_from_offset: int,
    code: int,
    out: bytearray,
) -> int: ...
