"""The parts of one store, made and joined.

`AppendPropagation` passes appended records from part to part; `StoreLife` does loading, role and shutdown.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from maxq.errors import StoreFailedError
from maxq.runtime.background import supervise
from maxq.runtime.holds import watched
from maxq.store.append.append_admission import AppendAdmission
from maxq.store.append.append_propagation import AppendPropagation
from maxq.store.append.fast_path_writer import FastPathWriter
from maxq.store.append.message_writer import MessageWriter
from maxq.store.compaction.compaction_store import CompactionStore
from maxq.store.context.store_context import StoreContext
from maxq.store.dispatch.dispatcher import DispatchService
from maxq.store.dledger.dledger_commit_log import DLedgerCommitLog
from maxq.store.dledger.message_ledger import MessageLedger
from maxq.store.durability.consume_queue_flusher import ConsumeQueueFlusher
from maxq.store.durability.flush import CommitLogFlusher
from maxq.store.durability.log_marks import LogMarks
from maxq.store.durability.store_checkpoint import StoreCheckpoint
from maxq.store.files.disk_room import DiskRoom
from maxq.store.files.file_allocator import FileAllocator
from maxq.store.files.page_cache_probe import PageCacheProbe
from maxq.store.files.store_inventory import InventoryFile
from maxq.store.index.index_file import IndexFile
from maxq.store.index.index_flusher import IndexFlusher
from maxq.store.index.index_service import IndexService
from maxq.store.log.commit_log import CommitLog
from maxq.store.log.deletions import Deletions
from maxq.store.queue.consume_queue_store import ConsumeQueueStore
from maxq.store.read.cached_pull_reader_cy import CachedPullReader
from maxq.store.read.message_reader import MessageReader
from maxq.store.recovery.filled_ranges import FilledRanges
from maxq.store.recovery.store_files import machine_memory
from maxq.store.retention.clean import CleanService

log = logging.getLogger(__name__)


class StoreServices:
    """Runs the background loops of a store's parts. A loop that fails is reported to the supervisor, which can stop the
    process.

    Attributes:
        tasks: those that run.
        on_failed: `on_failed(name, error)` is told when a service ends by an error; None: it is only logged.
    """

    def __init__(self) -> None:
        self.tasks: list[asyncio.Task[None]] = []
        self.on_failed: Callable[[str, BaseException], None] | None = None

    def start(self, name: str, service: Coroutine[Any, Any, None]) -> None:
        """Run `service` on the running loop until `stop`."""
        task = asyncio.get_running_loop().create_task(watched(name, service), name=f"store: {name}")
        task.add_done_callback(lambda _: service.close())  # closes a coroutine that was cancelled before it began
        supervise(task, self.failed)
        self.tasks.append(task)

    async def stop(self) -> None:
        """Cancel all services of the store, and wait until they have ended."""
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        self.tasks.clear()

    def failed(self, name: str, error: BaseException) -> None:
        """Note that the part `name` failed and cannot continue."""
        log.critical("%s failed", name, exc_info=None if isinstance(error, StoreFailedError) else error)
        if self.on_failed is not None:
            self.on_failed(name, error)


class StoreParts:
    """The parts of a store, which the store's door, its life and its recovery have in common: each of the three works
    on nearly all of them, and none may import another in a circle.

    Attributes:
        ledger: with enableDLegerCommitLog, this member's log; None without.
        marks: what can be lost no more.
        on_deleted: called with deleted topics and the physical offset of the record that deletes them, when their
            queues have been emptied.
    """

    def __init__(self, context: StoreContext, memory_bytes: int | None, populate_ahead: int) -> None:
        """The arguments are those of MessageStore."""
        self.context = context
        self.services = StoreServices()
        self.on_deleted: Callable[[list[str], int], None] | None = None
        self.allocator = FileAllocator(context)
        self.commit_log = _commit_log(context, self.allocator)
        self.queues = ConsumeQueueStore(context, self.commit_log)
        self.checkpoint = StoreCheckpoint(context)
        self.index = IndexService(context, self._on_index_full, populate_ahead)
        self._index_flusher = IndexFlusher(context, self.index, self.checkpoint, self.services.failed)
        self.deletions = Deletions(context.disk, context.root)
        self.dispatch = DispatchService(context, self.commit_log, self.queues, self.index, self.deletions)
        self.compaction = CompactionStore(context, self.commit_log, self.queues, self.deletions)
        self.inventory_file = InventoryFile(context)
        self.filled_ranges = FilledRanges(context, self.commit_log, self.dispatch.resolver, self.queues, self.deletions)
        self.ledger: MessageLedger | None = None
        if isinstance(self.commit_log, DLedgerCommitLog):
            self.ledger = MessageLedger(context, self.commit_log, self.checkpoint, self.queues, self.dispatch)
            self.flusher = self.ledger.flusher
        else:
            self.flusher = CommitLogFlusher(context, self.commit_log, self.checkpoint, self.dispatch.run_durable)
        self.propagation = AppendPropagation(
            context, self.commit_log, self.flusher, self.dispatch, self.index, self.ledger
        )
        self.dispatch.on_late = self.propagation.dispatch_later
        self.queue_flusher = ConsumeQueueFlusher(
            context, self.commit_log, self.flusher, self.dispatch, self.checkpoint, self.inventory_file
        )
        memory = machine_memory(context.disk) if memory_bytes is None else memory_bytes
        page_cache = PageCacheProbe(context)
        self.reader = MessageReader(
            context, self.commit_log, self.queues, self.index, self.deletions, page_cache, memory
        )
        self.cached_pull_reader = CachedPullReader(
            context, self.commit_log, self.queues, self.compaction.topics, page_cache, memory
        )
        self.disk_room = DiskRoom(context, self.commit_log.find_room, self.propagation.dispatch_all)
        self.admission = AppendAdmission(context, self.commit_log, self.disk_room)
        writing = (context, self.commit_log, self.queues, self.flusher, self.admission, self.propagation)
        self.writer, self.fast_path_writer = MessageWriter(*writing), FastPathWriter(*writing)
        self.cleaner = CleanService(
            context, self.commit_log, self.queues, self.index, self.flusher, self.queue_flusher, self.dispatch
        )
        self.cleaner.compacted = self.compaction.topics
        self.cleaner.needs["compaction"] = self.compaction.what_is_needed_below
        if self.ledger is not None:
            self.ledger.set_no_room_listener(self.disk_room.lacks)
            self.cleaner.ledger = self.writer.ledger = self.ledger
        self.marks = LogMarks(self.commit_log, self.flusher, self.ledger)

    @property
    def max_physical_offset(self) -> int:
        """Return the physical offset of the next record; for a DLedger log, the committed end."""
        return self.commit_log.max_offset if self.ledger is None else self.ledger.committed_position

    def deleted(self, topics: list[str], physical_offset: int) -> None:
        """Handle that the record which deletes these topics was dispatched."""
        for topic in topics:
            self.cleaner.hidden.forget(topic)
        self.compaction.begin_anew(topics)
        self.queue_flusher.wake()
        if self.on_deleted is not None:
            self.on_deleted(topics, physical_offset)

    def _on_index_full(self, file: IndexFile) -> None:
        self._index_flusher.flush_full(file)


def _commit_log(context: StoreContext, allocator: FileAllocator) -> CommitLog:
    if context.is_dledger:
        return DLedgerCommitLog(context, allocator, context.plain_log_folder)
    return CommitLog(context, allocator)
