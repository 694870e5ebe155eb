"""Makes CommitLog files ready before the writer needs them (AllocateMappedFileService.java).

The next file and the one after it are created on the loop's executor. Without a running loop nothing is made ahead: the
writer creates its files itself. A writer that arrives before its file is ready creates it too; both sides open the same
file with the same size, which is harmless.
"""

import asyncio
import logging

from maxq.runtime.interfaces import MappedRegion
from maxq.store.context.store_context import StoreContext
from maxq.store.files.mapped_file import offset_to_file_name

log = logging.getLogger(__name__)


class FileAllocator:
    """Makes the regions of CommitLog files ahead of need, by start offset."""

    def __init__(self, context: StoreContext) -> None:
        self._context = context
        self._ready: dict[int, MappedRegion] = {}
        self._used_up_to = -1  # start offset of the newest file that the writer uses

    def take(self, offset: int) -> MappedRegion | None:
        """Return the region of the file that starts at `offset` if it is ready, else None. The writer begins this file
        now and makes it itself if it is not ready: the executor may then come too late with it, and must not delete it
        as unused."""
        self._used_up_to = max(self._used_up_to, offset)
        return self._ready.pop(offset, None)

    def give_back(self, offset: int, region: MappedRegion) -> None:
        """Take back a file that the writer could not begin."""
        self._ready[offset] = region
        self._used_up_to = min(self._used_up_to, offset - 1)

    def prepare(self, *offsets: int) -> None:
        """Create the files that start at `offsets` on the executor. Of a DLedger log only the first: a Java member that
        finds two unused ones, as a kill leaves them, refuses to start."""
        if self._context.is_dledger:
            offsets = offsets[:1]
        wanted = [offset for offset in offsets if offset not in self._ready]
        if wanted:
            future = self._context.jobs.start(lambda: self._create(wanted))
            if future is not None:
                future.add_done_callback(_note_failure)

    def discard(self) -> None:
        """Delete files that were made ahead and not used. Blocks. A file that is being made at this moment stays: the
        next start uses or deletes it."""
        while self._ready:
            offset, region = self._ready.popitem()
            region.close()
            if offset <= self._used_up_to:
                continue
            path = self._context.commit_log_folder / offset_to_file_name(offset)
            if self._context.disk.exists(path):
                self._context.disk.delete(path)

    def _create(self, offsets: list[int]) -> None:
        folder = self._context.commit_log_folder
        size = self._context.config.mapped_file_size_commit_log
        for offset in offsets:
            self._ready[offset] = self._context.disk.map(folder / offset_to_file_name(offset), size)


def _note_failure(future: "asyncio.Future[None]") -> None:
    if not future.cancelled() and future.exception() is not None:
        log.warning("a file could not be prepared in advance: %s", future.exception())
