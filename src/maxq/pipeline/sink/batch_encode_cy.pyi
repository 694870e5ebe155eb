"""Typed face of the compiled encoder of batch bodies. See batch_encode_cy.py."""

from typing import Any

#: Longest properties of a message, bytes.
MAX_PROPERTIES: int
#: Bytes of a record besides its body, its text and the prefix.
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
) -> tuple[int, int]:
    """Write the records of rows[first], rows[first + 1] … into `memory` from `at` on, as long as they fit.

    Args:
        rows: int64, numbers of rows in the columns that follow.
        body_offsets, text_offsets: int64, one more than there are rows.
        body_data, text_data: at least one byte each, even if no row needs it.
        prefix: begins the properties; 12 hex digits of `number`, `number` + 1 … and a separator follow, then the text.

    Returns:
        The first of `rows` that was not written, and the position behind the last that was.

    Raises:
        ValueError: the properties of a row are longer than MAX_PROPERTIES.
    """

def hash_rows(hashes: Any, offsets: Any, values: Any) -> None:
    """Take a column into the hashes of rows: each of `hashes` becomes a hash of what it was and the row's value.

    Args:
        hashes: uint64, one for each row.
        offsets: int64, one more than there are rows.
        values: at least one byte, even if no row needs it.
    """

def is_compiled() -> bool: ...
