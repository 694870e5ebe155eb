"""Tells which parts of the store's files were in the page cache a moment ago, for readers that go through old parts of
them.

Whether a page can be read without waiting for the disk only the kernel knows, and asking it for each of a pull's
islands costs more than sending them. Readers of several queues go through the same stretch of log together, so
residence is asked for a whole stretch, and the answer is used for a moment.

When a reader passes from one stretch into the next, the chunks of log behind it are read ahead on threads. The event
loop does not start reads itself, because the kernel would make it fill megabytes of new pages first. How much the
machine reads ahead of a page that is touched does not matter then, and a reader that is far behind waits for the disk
once, not at every pull.
"""

import asyncio
from functools import partial
from typing import Final

from maxq.runtime.blocking import COLD_READS
from maxq.store.context.store_context import StoreContext
from maxq.store.files.mapped_file import MappedFile, PageNotes

CHUNK: Final = 1 << 20  # bytes of log that are read at once
UNITS_AT_END: Final = 16 << 10  # bytes at the end of a queue that are surely in memory
# bytes for which residence is asked at once; bytes of a queue (13,000 messages) that are read at once
STRETCH: Final = 256 << 10
_HOLDS_MS: Final = 100  # how long an answer is trusted: much shorter than the kernel keeps a used page
_CHUNKS_AHEAD: Final = 2
_ASKED_MS: Final = 10_000  # time after which bytes that were read ahead in vain may have left the memory
_MOST_READS: Final = 4  # most reads ahead at once: half of the threads stay free for waiting readers
# most answers kept for a file, of each kind; they are valid for moments and forgotten together
_MOST_NOTES: Final = 256
_MOST_FAILED: Final = 64  # most failed chunks remembered for a file; a forgotten one fails once more
_MOST_GAP: Final = 64 << 10  # most bytes between two messages of a reader that are read together


class PageCacheProbe:
    """Tells which pages of the store's files are in memory, and has those read that will be needed; one per store."""

    def __init__(self, context: StoreContext) -> None:
        self._context = context
        self._reads = 0

    def holds(self, file: MappedFile, start: int, end: int, written: int) -> bool:
        """Returns whether bytes [start, end) of `file`, or rather their surroundings, were in memory a moment ago.

        Args:
            written: bytes from the file's start that have been written; the rest are nobody's surroundings.
        """
        now_ms, seen_ms = self._context.clock.monotonic_ms(), file.pages.seen_ms
        for position in range(start - start % STRETCH, end, STRETCH):
            if now_ms - seen_ms.get(position, -_HOLDS_MS) < _HOLDS_MS:
                continue
            if not file.region.is_resident(position, min(position + STRETCH, file.file_size, max(written, end))):
                return file.region.is_resident(start, end)
            if len(seen_ms) >= _MOST_NOTES:
                seen_ms.clear()
            seen_ms[position] = now_ms
        return True

    def read_on(self, file: MappedFile, start: int, end: int, messages: int, written: int) -> None:
        """Have the log read ahead of a reader that takes `messages` from bytes [start, end) of `file`: the chunk where
        it is, and those behind if it is there for the second time. If its messages lie far apart, most of what would be
        read is for others: nothing is read."""
        if end - start > messages * _MOST_GAP:
            return
        asked_ms, here = file.pages.asked_ms, end - end % CHUNK
        for position in range(here, here + (_CHUNKS_AHEAD if here in asked_ms else 0) * CHUNK + 1, CHUNK):
            self._ask(file, position, min(position + CHUNK, file.file_size, written))

    def _ask(self, file: MappedFile, start: int, end: int) -> None:
        """Have bytes [start, end) of `file` read on a thread, unless they are there, were asked for before, or cannot
        be read."""
        now_ms, region, pages = self._context.clock.monotonic_ms(), file.region, file.pages
        asked_ms = pages.asked_ms
        if now_ms - asked_ms.get(start, -_ASKED_MS) < _ASKED_MS or start >= end or self._reads >= _MOST_READS:
            return
        if start in pages.failed:
            return
        if not region.is_resident(start, end):
            future = self._context.jobs.start(lambda: region.load(start, end), COLD_READS)
            if future is None:
                return
            self._reads += 1
            future.add_done_callback(partial(self._has_read, pages, start))
        if len(asked_ms) >= _MOST_NOTES:
            asked_ms.clear()
        asked_ms[start] = now_ms

    def _has_read(self, pages: PageNotes, start: int, future: "asyncio.Future[None]") -> None:
        self._reads -= 1
        if future.cancelled() or future.exception() is None:
            return
        if len(pages.failed) >= _MOST_FAILED:
            pages.failed.pop()
        pages.failed.add(start)  # readers of this chunk read their own bytes, and are told if these cannot be read

    def is_coming(self, file: MappedFile, start: int, end: int) -> bool:
        """Returns whether all of bytes [start, end) of `file` was read ahead of time, or is being read."""
        failed = file.pages.failed
        if failed and not failed.isdisjoint(range(start - start % CHUNK, end, CHUNK)):
            return False
        now_ms, asked_ms = self._context.clock.monotonic_ms(), file.pages.asked_ms
        positions = range(start - start % CHUNK, end, CHUNK)
        return all(now_ms - asked_ms.get(position, -_ASKED_MS) < _ASKED_MS for position in positions)
