"""Makes ConsumeQueues durable and writes down how far they reach (FlushConsumeQueueService.java)."""

import asyncio
import errno
import logging
import os
from collections.abc import Callable
from pathlib import PurePath

from maxq.errors import StoreFailedError
from maxq.runtime.blocking import CHECKPOINTS
from maxq.store.context.running_flags import NOT_WRITABLE
from maxq.store.context.store_context import StoreContext
from maxq.store.dispatch.dispatcher import DispatchService
from maxq.store.durability.flush import CommitLogFlusher, Pieces, flush_pieces
from maxq.store.durability.store_checkpoint import StoreCheckpoint
from maxq.store.files.disk_room import lacks_room
from maxq.store.files.mapped_file import MappedFile
from maxq.store.files.store_inventory import INDEX_LACKS_KEYS, InventoryFile, StoreInventory
from maxq.store.log.commit_log import CommitLog
from maxq.store.log.deletions import DeletionsFile
from maxq.store.log.tails_cy import QueueTail, TopicWriteState
from maxq.store.queue.consume_queue import CQ_STORE_UNIT_SIZE, ConsumeQueue

log = logging.getLogger(__name__)

_QUEUES_AT_A_TIME = 100  # idle queues that are unmapped in one turn of the event loop
_QUEUES_OF_SLICE = 2_000  # queues that are looked at in one turn of the event loop: 3 ms
_FLUSHES_AT_A_TIME = 4  # fewer than CHECKPOINTS has threads


class ConsumeQueueFlusher:
    """Flushes the queue files at intervals and thoroughly, and writes checkpoint and inventory.

    Attributes:
        lock: held while queue files are flushed, unmapped or deleted, so that these do not meet.
        begun: how many thorough flushes there were, one that is under way among them.
        failure: what a failed flush of a queue said; None as long as all went well. It is final: the kernel may have
            dropped pages, so nothing is written down as complete any more, and the next start builds the queues anew.
        written_down: physical offset below which the files of queues, deletions and inventory know everything; 0 before
            the first thorough flush.
        before_inventory: called, in any thread, before an inventory is written; OSError keeps it from being written.
    """

    def __init__(
        self,
        context: StoreContext,
        commit_log: CommitLog,
        log_flusher: CommitLogFlusher,
        dispatch: DispatchService,
        checkpoint: StoreCheckpoint,
        inventory_file: InventoryFile,
    ) -> None:
        self._context = context
        self._commit_log = commit_log
        self._log_flusher = log_flusher
        self._queues = dispatch.queues
        self._index = dispatch.index
        self._dispatcher = dispatch.dispatcher
        self._checkpoint = checkpoint
        self._inventory_file = inventory_file
        self._deletions = dispatch.deletions
        self._wanted = False
        self._completed = 0  # number of the last thorough flush that was completed
        self.begun = 0
        self.written_down = 0
        self.before_inventory: Callable[[], None] = lambda: None
        self.lock = asyncio.Lock()
        self.failure: str | None = None

    async def run(self) -> None:
        """Flush at intervals until cancelled; data that recovery wrote is flushed at once.

        Raises:
            StoreFailedError: the disk did not take it, and not for lack of room.
        """
        clock = self._context.clock
        last_thorough = clock.monotonic_ms()
        thorough = True
        while True:
            try:
                await self._round(thorough)
            except OSError as error:
                if self.failure is not None or not lacks_room(error):
                    self._failed(error)
                    raise StoreFailedError(self.failure) from error
                # the files of the last flush stay, and the next start has more to check
                log.warning("checkpoint and inventory could not be written: %s; it is tried again", error)
            config = self._context.config
            await asyncio.sleep(config.flush_interval_consume_queue / 1000)
            is_time = clock.monotonic_ms() - last_thorough >= config.flush_consume_queue_thorough_interval
            thorough, self._wanted = is_time or self._wanted, False
            if thorough:
                last_thorough = clock.monotonic_ms()

    async def _round(self, thorough: bool) -> None:
        async with self.lock:
            if thorough:
                await self.flush_thoroughly()
            else:
                await self.flush_queues(self._context.config.flush_consume_queue_least_pages)
            self._checkpoint.write()
            await self._context.jobs.run(self._checkpoint.sync, threads=CHECKPOINTS)

    async def flush_thoroughly(self) -> None:
        """Make everything that has been dispatched durable, and then write checkpoint and inventory. Runs under `lock`:
        an older inventory must not be written after a newer one."""
        assert self.lock.locked(), "one at a time"
        self.begun += 1
        inventory = await self._snapshot_in_slices()
        deleted, aside = self._deletions.to_file(), list(self._queues.set_aside)
        timestamp = self._dispatcher.last_store_timestamp
        # The log first: after a loss of power the inventory must never name more than the log has.
        await self._log_flusher.flush_all()
        if self._commit_log.flushed_offset < inventory.dispatched_offset:
            return
        await self.flush_queues(0)
        if self.failure is None:
            await self._context.jobs.run(self._flush_batches, threads=CHECKPOINTS)
            self._advance_checkpoint(timestamp)
            await self._context.jobs.run(self._write_down, inventory, deleted, threads=CHECKPOINTS)
            if aside:
                self._forget_aside(await self._context.jobs.run(self._delete_aside, aside, threads=CHECKPOINTS))
            self._completed = self.begun
            self.written_down = inventory.dispatched_offset

    async def flush_thoroughly_since(self, begun: int) -> None:
        """Flush as `flush_thoroughly` does, unless such a flush that began after the first `begun` has ended:
        concurrent callers share one."""
        if self._completed <= begun:
            await self.flush_thoroughly()

    def wake(self) -> None:
        """Make the next round a thorough one, because a topic was deleted: then the next start has no queues to
        rebuild."""
        self._wanted = True

    def flush_inline(self, *, log_end: int = -1) -> None:
        """Do what `flush_thoroughly` does, without a loop. Blocks.

        Args:
            log_end: end of the log if this is a clean shutdown.
        """
        inventory, deleted, aside = self.snapshot(), self._deletions.to_file(), list(self._queues.set_aside)
        inventory.log_end = log_end
        if self._commit_log.flushed_offset < inventory.dispatched_offset:
            self._log_flusher.flush_inline()
        self._flush_queues_inline()
        self._flush_batches()
        self._advance_checkpoint(self._dispatcher.last_store_timestamp)
        self._write_down(inventory, deleted)
        self._forget_aside(self._delete_aside(aside))

    def snapshot(self) -> StoreInventory:
        """Return the present content of the queues and the index."""
        inventory = StoreInventory()
        for topic in self._queues.topics.values():
            inventory.queues[topic.topic] = _bounds_of(topic)
        return self._finished(inventory)

    async def _snapshot_in_slices(self) -> StoreInventory:
        """Take a snapshot of the queues in slices between which the loop runs; it is the state at the moment of return.

        Under `lock` nothing is flushed, so a queue that was appended to has something to flush: those are looked at
        again at the end. Events that make queues begin anew or end earlier change the tables of deletions and of files
        set aside, or the dispatched offset: then all queues are read."""
        inventory = StoreInventory()
        before, reached = self._changes(), self._dispatcher.dispatched_offset
        looked_at = 0
        for topic in list(self._queues.topics.values()):
            inventory.queues[topic.topic] = _bounds_of(topic)
            looked_at += 1 + len(topic.queues)
            if looked_at >= _QUEUES_OF_SLICE:
                looked_at = 0
                await asyncio.sleep(0)
        if self._changes() != before or self._dispatcher.dispatched_offset < reached:
            return self.snapshot()
        for queue in self._queues.unflushed():
            if queue.tail.write_offset:
                inventory.queues.setdefault(queue.topic, {})[queue.queue_id] = _bounds_of_queue(queue.tail)
        return self._finished(inventory)

    def _changes(self) -> tuple[int, int, int]:
        return len(self._deletions), self._deletions.newest, len(self._queues.set_aside)

    def _finished(self, inventory: StoreInventory) -> StoreInventory:
        inventory.dispatched_offset = self._dispatcher.dispatched_offset
        inventory.queues = {topic: bounds for topic, bounds in inventory.queues.items() if bounds}
        for batch in self._queues.batch_queues.values():
            end = max(batch.max_offset, batch.numbered_to)
            if end:
                ids = inventory.batch_queues.setdefault(batch.topic, {})
                ids[batch.queue_id] = (batch.first_index if batch.count else 0, batch.count, end)
        inventory.deletions = len(self._deletions)
        inventory.index_files = [file.name for file in self._index.files]
        inventory.index_count = self._index.tail.index_count if self._index.files else 0
        if not self._context.config.message_index_enable:
            inventory.index_count = INDEX_LACKS_KEYS
        return inventory

    def _flush_batches(self) -> None:
        for batch in list(self._queues.batch_queues.values()):
            batch.flush()

    def _advance_checkpoint(self, timestamp: int) -> None:
        self._checkpoint.logics_msg_timestamp = max(self._checkpoint.logics_msg_timestamp, timestamp)
        self._checkpoint.logics_physical_offset = 0  # a Java broker then uses the timestamps, which are right
        self._checkpoint.write()

    def _write_down(self, inventory: StoreInventory, deleted: DeletionsFile) -> None:
        """Write checkpoint, deletions and inventory; the queues are durable as far as `inventory` says."""
        self._checkpoint.sync()
        self._deletions.save(deleted)
        self.before_inventory()
        self._inventory_file.save(inventory)

    def _delete_aside(self, folders: list[PurePath]) -> list[PurePath]:
        """Delete set-aside files of deleted topics that the inventory no longer needs. Returns the deleted folders; the
        others take room and are deleted later."""
        gone: list[PurePath] = []
        for folder in folders:
            try:
                self._context.disk.delete_tree(folder)
                gone.append(folder)
            except OSError as error:
                log.warning("%s, of a topic that was deleted, cannot be deleted now: %s", folder, error)
        return gone

    def _forget_aside(self, gone: list[PurePath]) -> None:
        self._queues.set_aside = [folder for folder in self._queues.set_aside if folder not in gone]

    async def flush_queues(self, least_pages: int) -> None:
        """Flush queues on the executor, some at a time, because each needs an open file meanwhile."""
        waiting = self._queues.unflushed()
        for start in range(0, len(waiting), _QUEUES_AT_A_TIME):
            some = [queue for queue in waiting[start : start + _QUEUES_AT_A_TIME] if queue.unflushed(least_pages)]
            if not some:
                await asyncio.sleep(0)
                continue
            pieces = [piece for queue in some for piece in queue.unflushed(least_pages)]
            for queue in some:
                queue.in_flush = True
            try:
                # several at a time: flushes that meet share a commit of the file system's journal
                parts = [pieces[number::_FLUSHES_AT_A_TIME] for number in range(_FLUSHES_AT_A_TIME)]
                jobs = [self._context.jobs.run(_flush_those_left, part, threads=CHECKPOINTS) for part in parts if part]
                # wait for all of them before any queue is unmapped
                for outcome in await asyncio.gather(*jobs, return_exceptions=True):
                    if isinstance(outcome, BaseException):
                        raise outcome
                    _refuse_lost(outcome, some)
            except OSError as error:
                self._failed(error)
                raise
            finally:
                for queue in some:
                    queue.in_flush = False
                    self._queues.flushed(queue)

    def _flush_queues_inline(self) -> None:
        waiting = self._queues.unflushed()
        for start in range(0, len(waiting), _QUEUES_AT_A_TIME):
            some = waiting[start : start + _QUEUES_AT_A_TIME]
            try:
                flush_pieces([piece for queue in some for piece in queue.unflushed(0)])
            except OSError as error:
                self._failed(error)
                raise
            for queue in some:
                self._queues.flushed(queue)

    def _failed(self, error: OSError) -> None:
        self.failure = (
            f"flushing ConsumeQueues below {self._queues.folder()} failed: {error}. Unflushed entries may be lost; "
            "repair the disk and start again: they are then rebuilt"
        )
        log.error(self.failure)
        self._context.flags.set(NOT_WRITABLE, self.failure)


def _flush_those_left(pieces: Pieces) -> list[MappedFile]:
    """Make parts of files durable. Blocks. Returns the files that no longer exist."""
    gone: list[MappedFile] = []
    for piece in pieces:
        try:
            flush_pieces([piece])
        except FileNotFoundError:
            gone.append(piece[0])
    return gone


def _refuse_lost(gone: list[MappedFile], queues: list[ConsumeQueue]) -> None:
    """Skip queues that were deleted meanwhile. Raises FileNotFoundError if one of these queues still needs one of the
    missing files."""
    needed = {file for queue in queues for file, _, _ in queue.unflushed(0)} if gone else set()
    for file in needed.intersection(gone):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(file.path))


def _bounds_of(topic: TopicWriteState) -> dict[int, tuple[int, int]]:
    """Returns the bounds of the queues of a topic that hold units, by queue id."""
    return {tail.queue_id: _bounds_of_queue(tail) for tail in topic.queues.values() if tail.write_offset}


def _bounds_of_queue(tail: QueueTail) -> tuple[int, int]:
    """Return the queue offset of the first file's start (without files: the next offset), and the queue offset of the
    end."""
    queue: ConsumeQueue = tail.owner
    first = queue.files.min_offset if queue.files.files else tail.write_offset
    return first // CQ_STORE_UNIT_SIZE, tail.write_offset // CQ_STORE_UNIT_SIZE
