"""Makes index files durable when they are full (IndexService.flush)."""

import asyncio
import logging
from collections.abc import Callable

from maxq.runtime.blocking import CHECKPOINTS
from maxq.store.context.running_flags import INDEX_ERROR
from maxq.store.context.store_context import StoreContext
from maxq.store.durability.store_checkpoint import StoreCheckpoint
from maxq.store.index.index_file import IndexFile
from maxq.store.index.index_service import IndexService

log = logging.getLogger(__name__)


class IndexFlusher:
    """Flushes full files and then records them in the checkpoint."""

    def __init__(
        self,
        context: StoreContext,
        index: IndexService,
        checkpoint: StoreCheckpoint,
        on_failed: Callable[[str, BaseException], None],
    ) -> None:
        """`on_failed(service, error)` is called when a flush failed, which is final, as for the log."""
        self._context = context
        self._index = index
        self._checkpoint = checkpoint
        self._on_failed = on_failed

    def flush_full(self, file: IndexFile) -> None:
        """Make a file that has become full durable; off the loop if one runs."""
        if self._context.flags.has(INDEX_ERROR):
            return
        # Older files first: threads may run two flushes in the wrong order, and the checkpoint covers everything before
        # it.
        files = [other for other in self._index.files if other.name < file.name] + [file]
        end_timestamp = file.end_timestamp  # read now, because retention may have deleted the file when the flush ends
        future = self._context.jobs.start(lambda: _flush(files), CHECKPOINTS)
        if future is not None:
            future.add_done_callback(lambda done: self._flushed(done, file, end_timestamp))
            return
        try:
            _flush(files)
        except OSError as error:
            self._failed(file, error)
            return
        self._advance(end_timestamp)
        self._checkpoint.sync()

    def _flushed(self, done: "asyncio.Future[None]", file: IndexFile, end_timestamp: int) -> None:
        if done.cancelled():
            return
        error = done.exception()
        if error is not None:
            self._failed(file, error)
            return
        self._advance(end_timestamp)
        syncing = self._context.jobs.start(self._checkpoint.sync, CHECKPOINTS)
        if syncing is not None:  # otherwise the store is closing, and syncs the file itself
            syncing.add_done_callback(lambda done: self._synced(done, file))

    def _synced(self, done: "asyncio.Future[None]", file: IndexFile) -> None:
        error = None if done.cancelled() else done.exception()
        if error is not None:
            self._failed(file, error)

    def _advance(self, end_timestamp: int) -> None:
        self._checkpoint.index_msg_timestamp = max(self._checkpoint.index_msg_timestamp, end_timestamp)
        self._checkpoint.write()

    def _failed(self, file: IndexFile, error: BaseException) -> None:
        # After a failed sync, a later success proves nothing.
        reason = f"flushing index file {file.path} failed: {error}; repair the disk and start again"
        log.error(reason)
        self._context.flags.set(INDEX_ERROR, reason)
        self._on_failed("store: index flush", error)


def _flush(files: list[IndexFile]) -> None:
    for file in files:
        file.flush()
