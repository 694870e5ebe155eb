"""Makes CommitLog files and their pages ready before the writer needs them (AllocateMappedFileService.java).

The next file and the one after it are created, and pages ahead of the write position are populated, on the loop's
executor. Without a running loop nothing is made ahead: the writer creates its files itself. A writer that arrives
before its file is ready creates it too; both sides open the same file with the same size, which is harmless.
"""

import asyncio
import logging
from collections.abc import Callable

from maxq.runtime.interfaces import MappedRegion
from maxq.store.mapped_file import offset_to_file_name
from maxq.store.store_context import StoreContext

log = logging.getLogger(__name__)

#: Pages are populated in pieces of this many bytes, and at least one piece ahead of the writer.
POPULATE_BYTES = 16 << 20


class FileAllocator:
    """Regions of CommitLog files that nobody writes yet, by start offset."""

    def __init__(self, context: StoreContext, *, populate_ahead: bool = True) -> None:
        self._context = context
        self._populate_ahead = populate_ahead
        self._ready: dict[int, MappedRegion] = {}
        self._pending: set[asyncio.Future[None]] = set()
        self._busy = False
        self._closed = False
        self._populated = 0  # absolute offset up to which pages were asked for

    def take(self, offset: int) -> MappedRegion | None:
        """The region of the file that starts at `offset`, if it is ready."""
        return self._ready.pop(offset, None)

    def prepare(self, *offsets: int) -> None:
        """Create the files that start at `offsets` on the executor."""
        wanted = [offset for offset in offsets if offset not in self._ready]
        if wanted and not self._closed:
            self._in_executor(lambda: self._create(wanted))

    def populate(self, region: MappedRegion, file_from_offset: int, position: int, file_size: int) -> None:
        """Keep pages ahead of byte `position` of the current file ready. Cheap when there is nothing to do."""
        start = max(self._populated - file_from_offset, position)
        if not self._populate_ahead or self._busy or start - position > POPULATE_BYTES or start >= file_size:
            return
        end = min(file_size, start + POPULATE_BYTES)
        self._busy = self._in_executor(lambda: self._touch(region, start, end))
        self._populated = file_from_offset + end

    async def close(self) -> None:
        """Wait for what runs, and delete files that were made ahead and not used."""
        self._closed = True
        while self._pending:
            await asyncio.wait(self._pending)
        self.discard()

    def discard(self) -> None:
        """Delete files that were made ahead and not used. Blocks."""
        self._closed = True
        for offset, region in self._ready.items():
            region.close()
            path = self._context.commit_log_folder / offset_to_file_name(offset)
            if self._context.disk.exists(path):
                self._context.disk.delete(path)
        self._ready.clear()

    def _create(self, offsets: list[int]) -> None:
        folder = self._context.commit_log_folder
        size = self._context.config.mapped_file_size_commit_log
        for offset in offsets:
            self._ready[offset] = self._context.disk.map(folder / offset_to_file_name(offset), size)

    def _touch(self, region: MappedRegion, start: int, end: int) -> None:
        region.populate(start, end)
        self._busy = False

    def _in_executor(self, work: Callable[[], None]) -> bool:
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return False
        future = loop.run_in_executor(None, work)
        self._pending.add(future)
        future.add_done_callback(self._done)
        return True

    def _done(self, future: asyncio.Future[None]) -> None:
        self._pending.discard(future)
        error = None if future.cancelled() else future.exception()
        if error is not None:
            self._busy = False
            log.warning("a CommitLog file could not be made ahead of need: %s", error)
