"""Makes ConsumeQueues durable and writes down how far they reach (FlushConsumeQueueService.java)."""

import asyncio
import logging

from maxq.store.commit_log import CommitLog
from maxq.store.consume_queue_store import ConsumeQueueStore
from maxq.store.flush import CommitLogFlusher
from maxq.store.index_service import IndexService
from maxq.store.log_cy import Dispatcher
from maxq.store.running_flags import LOGICS_ERROR
from maxq.store.store_checkpoint import StoreCheckpoint
from maxq.store.store_context import StoreContext
from maxq.store.store_inventory import InventoryFile, StoreInventory

log = logging.getLogger(__name__)


class ConsumeQueueFlusher:
    """Interval flush, thorough flush, checkpoint, inventory.

    Attributes:
        lock: held while queue files are flushed, unmapped or deleted, so that these do not meet.
        failure: what a failed flush of a queue said; None as long as all went well. It is final: the kernel may have
            dropped pages, so nothing is written down as complete any more, and the next start builds the queues anew.
    """

    def __init__(
        self,
        context: StoreContext,
        commit_log: CommitLog,
        log_flusher: CommitLogFlusher,
        queues: ConsumeQueueStore,
        index: IndexService,
        dispatcher: Dispatcher,
        checkpoint: StoreCheckpoint,
        inventory_file: InventoryFile,
    ) -> None:
        self._context = context
        self._commit_log = commit_log
        self._log_flusher = log_flusher
        self._queues = queues
        self._index = index
        self._dispatcher = dispatcher
        self._checkpoint = checkpoint
        self._inventory_file = inventory_file
        self.lock = asyncio.Lock()
        self.failure: str | None = None

    async def run(self) -> None:
        """Flush in intervals until cancelled."""
        clock = self._context.clock
        last_thorough = clock.monotonic_ms()
        while True:
            config = self._context.config
            await asyncio.sleep(config.flush_interval_consume_queue / 1000)
            thorough = clock.monotonic_ms() - last_thorough >= config.flush_consume_queue_thorough_interval
            if thorough:
                last_thorough = clock.monotonic_ms()
            try:
                await self._round(thorough)
            except OSError as error:
                reason = f"flushing ConsumeQueues below {self._queues.folder()} failed: {error}; repair the disk"
                log.error(reason)
                self._context.flags.set(LOGICS_ERROR, reason)

    async def _round(self, thorough: bool) -> None:
        loop = asyncio.get_running_loop()
        async with self.lock:
            if thorough:
                await self.flush_thoroughly(loop)
            else:
                pages = self._context.config.flush_consume_queue_least_pages
                await loop.run_in_executor(None, self._flush_queues, pages)
            self._queues.give_up_idle()
            await loop.run_in_executor(None, self._checkpoint.flush)

    async def flush_thoroughly(self, loop: asyncio.AbstractEventLoop) -> None:
        """Everything dispatched so far becomes durable; checkpoint and inventory then say so."""
        inventory = self.snapshot()
        timestamp = self._dispatcher.last_store_timestamp
        # the log first: the inventory must never know more than the log has after a loss of power
        await self._log_flusher.flush_all()
        if self._commit_log.flushed_offset < inventory.dispatched_offset:
            return
        await loop.run_in_executor(None, self._write_thoroughly, inventory, timestamp)

    def flush_inline(self, *, log_end: int = -1) -> None:
        """The same without a loop. Blocks.

        Args:
            log_end: end of the log if this is a clean shutdown.
        """
        inventory = self.snapshot()
        inventory.log_end = log_end
        if self._commit_log.flushed_offset < inventory.dispatched_offset:
            self._log_flusher.flush_inline()
        self._write_thoroughly(inventory, self._dispatcher.last_store_timestamp)

    def snapshot(self) -> StoreInventory:
        """What the queues and the index hold now."""
        inventory = StoreInventory(self._dispatcher.dispatched_offset)
        for topic in self._queues.topics.values():
            bounds = {
                tail.queue_id: (tail.owner.files.min_offset // 20, tail.write_offset // 20)
                for tail in topic.queues
                if tail is not None and tail.write_offset
            }
            if bounds:
                inventory.queues[topic.topic] = bounds
        inventory.index_files = [file.name for file in self._index.files]
        inventory.index_count = self._index.tail.index_count if self._index.files else 0
        return inventory

    def _write_thoroughly(self, inventory: StoreInventory, timestamp: int) -> None:
        if self.failure is not None:
            return
        self._flush_queues(0)
        for batch in list(self._queues.batch_queues.values()):
            batch.flush()
        self._checkpoint.logics_msg_timestamp = max(self._checkpoint.logics_msg_timestamp, timestamp)
        self._checkpoint.logics_physical_offset = 0  # a Java broker then goes by the times, which are right
        self._checkpoint.flush()
        self._inventory_file.save(inventory)

    def _flush_queues(self, least_pages: int) -> None:
        try:
            for queue in self._queues.mapped:
                queue.flush(least_pages)
        except OSError as error:
            self.failure = f"flushing ConsumeQueues below {self._queues.folder()} failed: {error}"
            raise
