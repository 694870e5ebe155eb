"""The store of a bare member, `maxq dledger` (DLedgerMmapFileStore.java, FlushDataService, CleanSpaceService).

A `FileLedger` with a log and a flusher of its own. Everything is flushed as it comes; beside that, in the background,
index and checkpoint follow, and old files go.
"""

import asyncio
import logging
from collections.abc import Callable
from datetime import datetime
from pathlib import PurePath

from maxq.config.message_store_config import MessageStoreConfig
from maxq.runtime.blocking import run_blocking
from maxq.runtime.interfaces import Clock, Disk
from maxq.store.context.store_context import StoreContext, StoreIdentity
from maxq.store.dledger.dledger_commit_log import DLedgerCommitLog
from maxq.store.dledger.ledger import INDEX_FILE_SIZE, FileLedger
from maxq.store.dledger.ledger_recovery import LedgerReport
from maxq.store.durability.store_checkpoint import StoreCheckpoint
from maxq.store.files.disk_room import DiskRoom
from maxq.store.files.file_allocator import FileAllocator
from maxq.store.recovery.store_files import StoreLock, refusing

log = logging.getLogger(__name__)

#: DLedgerConfig.mappedFileSizeForEntryData.
DATA_FILE_SIZE = 1 << 30
_CLEAN_SECONDS = 10.0
#: Files older than this are deleted at _DELETE_HOUR, as DLedgerConfig has it.
_RESERVED_MS = 72 * 3_600_000
_DELETE_HOUR = 4
#: They are deleted at any hour when more of the disk is used than this.
_CLEAN_RATIO = 0.7
#: Above this share, files are deleted whatever their age, even if a follower needs them, as far as they are committed.
_FULL_RATIO = 0.9
_DELETE_AT_ONCE = 10


class DLedgerMmapFileStore(FileLedger):
    """The files of one bare member below `<base>/dledger-<self_id>`. Call `load`, then `start` on a running loop, then
    `shutdown`; without a loop call `load` and `close_inline`."""

    def __init__(
        self,
        base: PurePath,
        self_id: str,
        *,
        disk: Disk,
        clock: Clock,
        data_file_size: int = DATA_FILE_SIZE,
        index_file_size: int = INDEX_FILE_SIZE,
    ) -> None:
        """
        Args:
            data_file_size, index_file_size: bytes; the first must be equal on all members.
        """
        folder = base / f"dledger-{self_id}"
        config = MessageStoreConfig(
            store_path_root_dir=str(folder),
            enable_dleger_commit_log=True,
            store_path_dledger_commit_log=str(folder / "data"),
            mapped_file_size_commit_log=data_file_size,
            flush_disk_type="SYNC_FLUSH",
        )
        context = StoreContext(config, disk, clock, StoreIdentity())
        self._lock = StoreLock(context)
        self._allocator = FileAllocator(context)
        commit_log = DLedgerCommitLog(context, self._allocator, None)
        super().__init__(context, commit_log, StoreCheckpoint(context), folder, index_file_size)
        self._disk_room = DiskRoom(context, commit_log.find_room, self.appended)
        self.set_no_room_listener(self._disk_room.lacks)
        self._reserved_ms, self._clean_ratio, self._full_ratio = _RESERVED_MS, _CLEAN_RATIO, _FULL_RATIO
        self._services: list[asyncio.Task[None]] = []
        self._on_service_failed: Callable[[str, BaseException], None] = _log_failure

    def load(self) -> LedgerReport:
        """Do what `FileLedger.load` says.

        Raises:
            StoreRefusedError: also if another process has the store, or the disk cannot be written.
        """
        with refusing(self._context), self._context.jobs.inline():
            self._lock.take()
            try:
                return super().load()
            except BaseException:
                self._lock.release()
                raise

    def start(self) -> None:
        """Start flushing, notes and cleaning in the background; needs a running loop."""
        loop = asyncio.get_running_loop()
        services = (
            ("flush", self.flusher.run()),
            ("checkpoint", self.run()),
            ("clean", self._clean()),
            ("disk room", self._disk_room.run()),
        )
        for name, run in services:
            task = loop.create_task(run, name=f"DLedger store: {name}")
            task.add_done_callback(self._service_ended)
            self._services.append(task)
        self._log.create_ahead()

    def set_service_failed(self, callback: Callable[[str, BaseException], None]) -> None:
        """Set the callback that is called as `callback(name, error)` when a service ends by an error, for example after
        a failed flush. The process should then stop, because nothing becomes durable any more."""
        self._on_service_failed = callback

    def _service_ended(self, task: "asyncio.Task[None]") -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._on_service_failed(task.get_name(), error)

    async def shutdown(self) -> None:
        """Make everything durable and write the notes."""
        for task in self._services:
            task.cancel()
        await asyncio.gather(*self._services, return_exceptions=True)
        self._services.clear()
        await self.flusher.flush_all()
        await self._context.jobs.close()
        await run_blocking(self.close_inline)
        self.flusher.close()

    def close_inline(self) -> None:
        """Shut down a store that has no loop. Blocks."""
        if self._is_loaded and self.flusher.failure is None:
            self.flusher.flush_inline()
        self._context.jobs.is_closed = True
        self._allocator.discard()
        self.close()
        self._log.release_tail()
        self._log.files.release()
        self._lock.release()

    async def _clean(self) -> None:
        while True:
            await asyncio.sleep(_CLEAN_SECONDS)
            try:
                await self.clean()
            except OSError as error:
                log.error("old files of %s are not deleted now: %s", self._log.files.folder, error)

    async def clean(self) -> int:
        """Delete old files as far as retention allows (S17). Returns how many."""
        usage = self._context.disk.usage(self._context.commit_log_folder)
        ratio = usage.used / max(1, usage.used + usage.free)
        is_full = ratio > self._full_ratio
        now = self._context.clock.wall_ms()
        is_time = datetime.fromtimestamp(now / 1000).hour == _DELETE_HOUR
        expired_ms = self._context.time.now_ms() - self._reserved_ms
        deleted = 0
        while (is_full or is_time or ratio > self._clean_ratio) and deleted < _DELETE_AT_ONCE:
            files = self._log.files.files
            if len(files) < 2 or not self.may_delete(files[0].end_offset, is_full=is_full):
                break
            if not is_full and files[0].modified_ms() > expired_ms:
                break
            try:
                with self._log.without_first() as first:
                    await self._context.jobs.run(first.destroy)
            finally:
                self.files_deleted()
            log.info("deleted %s: %s", first.path, "the disk is full" if is_full else "older than fileReservedTime")
            deleted += 1
        return deleted


def _log_failure(name: str, error: BaseException) -> None:
    log.critical("%s failed", name, exc_info=error)
