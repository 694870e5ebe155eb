"""Typed face of the compiled answers. See replies_cy.py."""

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
) -> int:
    """Append the answers to appended rows (not to one-way ones, nor to rows with R_COUNT 0) to `out`; returns how many
    bytes were written.
    `log` is the file that holds the rows' records (the ids of a batch are read off it)."""
