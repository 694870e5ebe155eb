"""Typed face of the compiled gathering of columns. See arrow_cy.py.

A `table` is a flat array of int64 with `width` columns a row; a part of a record is two neighbouring columns, position
and size, the first of them `column`. `rows` is the table of record_cy.scan.
"""

from typing import Any

#: Columns of find_properties' table; a size of -1: the record has no such property.
PROPERTY_WIDTH: int
(P_TAGS, P_TAGS_SIZE, P_KEYS, P_KEYS_SIZE, P_UNIQUE, P_UNIQUE_SIZE, P_COUNT) = range(7)

EXTRA: int
"""A position of EXTRA + n is byte n of `extra` in gather."""

def find_properties(view: Any, rows: Any, count: int, found: Any) -> int:
    """Fill `found` (PROPERTY_WIDTH columns a row); returns the sum of P_COUNT, an upper bound of the pairs."""

def split_properties(view: Any, rows: Any, count: int, pairs: Any, list_offsets: Any) -> int:
    """Fill `pairs` (name position, size, value position, size) and the count + 1 int32 `list_offsets`; of equal names
    in one record the last value counts. Returns the number of pairs.

    Raises:
        ValueError: there are more than `pairs` has room for: a broker wrote the bytes since they were counted.
    """

def count_words(view: Any, table: Any, width: int, column: int, count: int) -> int:
    """An upper bound of the space-separated words."""

def split_words(view: Any, table: Any, width: int, column: int, count: int, words: Any, list_offsets: Any) -> int:
    """Fill `words` (position, size) and the count + 1 int32 `list_offsets`; returns the number of words.

    Raises:
        ValueError: there are more than `words` has room for: a broker wrote the bytes since they were counted.
    """

def measure(table: Any, width: int, column: int, count: int) -> tuple[int, int]:
    """(bytes of all parts, rows whose size is -1)."""

def gather(
    view: Any, extra: Any, table: Any, width: int, column: int, count: int, offsets: Any, data: Any, validity: Any
) -> None:
    """Copy the parts into `data` (as many bytes as `measure` says), fill the count + 1 int32 `offsets`, and set a bit
    in `validity` (empty: not wanted) for each row that is not missing.

    Raises:
        ValueError: a part lies outside the bytes, or `data` is too small.
    """

def message_ids(view: Any, rows: Any, count: int, offsets: Any, data: Any) -> int:
    """The offset message id of each record (32 or 56 upper-case hex digits); returns the bytes written."""

def text_numbers(
    view: Any, table: Any, width: int, column: int, count: int, numbers: dict[bytes, int], found: Any
) -> None:
    """`found[i]`: the number of row i's part in `numbers`, -1 if it is missing or not there."""

def is_compiled() -> bool: ...
