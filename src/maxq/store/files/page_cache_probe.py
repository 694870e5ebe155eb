"""What of the log was in the page cache a moment ago, for readers that go through old parts of it.

Whether a page can be read without waiting for the disk only the kernel knows, and asking it for each of a pull's
islands costs more than sending them. Readers of several queues go through the same stretch of log together, so a
stretch is asked for as a whole, and what is said of it holds for a moment. Who is told no asks more closely.
"""

from typing import Final

from maxq.runtime.interfaces import Clock
from maxq.store.files.mapped_file import MappedFile

_STRETCH: Final = 256 << 10
_HOLDS_MS: Final = 100  # much shorter than the kernel keeps a page that is used
_MOST: Final = 4096  # stretches, 1 GiB


class PageCacheProbe:
    """Tells which pages of the log are in memory; one per store."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seen_ms: dict[int, int] = {}  # by physical offset of a stretch: when all of it was there

    def holds(self, file: MappedFile, start: int, end: int) -> bool:
        """Returns whether the surroundings of bytes [start, end) of `file` were in memory a moment ago."""
        now_ms, seen_ms = self._clock.monotonic_ms(), self._seen_ms
        for position in range(start - start % _STRETCH, end, _STRETCH):
            offset = file.file_from_offset + position
            if now_ms - seen_ms.get(offset, -_HOLDS_MS) < _HOLDS_MS:
                continue
            if not file.region.is_resident(position, min(position + _STRETCH, file.file_size)):
                return False
            if len(seen_ms) >= _MOST:
                seen_ms.clear()
            seen_ms[offset] = now_ms
        return True
