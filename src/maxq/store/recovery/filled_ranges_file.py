"""`seals.json`: the ranges of the log over which a start has put a filler, as a file has them (filled_ranges.py)."""

from collections.abc import Iterable
from typing import Any, Final

import orjson

FILLED_RANGES_FILE: Final = "seals.json"
_VERSION: Final = 1


def encode_ranges(ranges: Iterable[tuple[int, int]]) -> bytes:
    """Returns the bytes of the file that lists these (start, end) ranges."""
    return orjson.dumps({"version": _VERSION, "ranges": sorted(ranges)})


def decode_ranges(data: bytes) -> set[tuple[int, int]]:
    """Return the (start, end) ranges of the file; an empty list if the bytes have another form."""
    try:
        found: Any = orjson.loads(data)
        if found["version"] != _VERSION:
            return set()
        ranges = {(int(start), int(end)) for start, end in found["ranges"]}
    except (ValueError, KeyError, TypeError):
        return set()
    return {(start, end) for start, end in ranges if 0 <= start < end}
