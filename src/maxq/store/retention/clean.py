"""Deleting what is old or too much (CleanCommitLogService, CleanConsumeQueueService).

Triggers: the hour of `deleteWhen`, the fill of the disk, a request. Fill of the disk, of the CommitLog's and the
ConsumeQueues' partition:

    above diskSpaceWarningLevelRatio   writes are refused, files are deleted whatever their age
    above diskSpaceCleanForciblyRatio  files are deleted whatever their age (if cleanFileForciblyEnable)
    above diskMaxUsedSpaceRatio        files older than fileReservedTime are deleted

Ages are computed with a clock that is not trusted when it jumps ahead (trusted_time.py). The log's first file goes at
any time if nothing of it is shown to anybody (hidden_messages.py).

Readers may hold slices of a deleted file: the mapping lives until they drop them, so nothing has to be forced and a
file never "hangs" as it can in Java.
"""

import asyncio
import logging
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Container
from datetime import datetime
from pathlib import PurePath
from typing import NamedTuple

from maxq.runtime.passed_over import PassedOver
from maxq.runtime.turns import Turns
from maxq.store.context.running_flags import DISK_FULL
from maxq.store.context.store_context import StoreContext
from maxq.store.dispatch.dispatcher import DispatchService
from maxq.store.dledger.ledger import FileLedger
from maxq.store.durability.consume_queue_flusher import ConsumeQueueFlusher
from maxq.store.durability.flush import CommitLogFlusher
from maxq.store.files.disk_room import lacks_room
from maxq.store.files.mapped_file import MappedFile
from maxq.store.index.index_file import IndexFile
from maxq.store.index.index_service import IndexService
from maxq.store.log.commit_log import CommitLog
from maxq.store.queue.batch_consume_queue import BatchConsumeQueue
from maxq.store.queue.consume_queue import ConsumeQueue
from maxq.store.queue.consume_queue_store import LMQ_PREFIX, ConsumeQueueStore
from maxq.store.retention.hidden_messages import HiddenMessages

log = logging.getLogger(__name__)

_FIRST_RUN_MS = 60_000
_MANUAL_RUNS = 20
_QUEUES_OF_SLICE = 2_000  # looked at in one turn of the loop
_HOUR_MS = 3_600_000
_SYSTEM_TOPICS = frozenset(
    {"SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC"}
)


def is_system_queue(topic: str) -> bool:
    """Return whether queues of this topic are never deleted for being empty."""
    return topic in _SYSTEM_TOPICS or topic.startswith("rmq_sys_")


class _Expired(NamedTuple):
    """Files that were removed from a queue's list when the queue had begun anew `lives` times."""

    queue: ConsumeQueue | BatchConsumeQueue
    lives: int
    files: list[MappedFile]


class CleanService:
    """Deletes expired files and queues.

    Attributes:
        ledger: of a DLedger log: says which files may go.
        hidden: what is not shown any more.
        needs: by the name of a part of the broker, what says whether that part still needs records below a physical
            offset, as the timer those of the messages in its wheel: a clause for the log, empty if it needs none.
        compacted: compaction topics, whose queues go on numbering although all their messages are gone from the log.
    """

    def __init__(
        self,
        context: StoreContext,
        commit_log: CommitLog,
        queues: ConsumeQueueStore,
        index: IndexService,
        flusher: CommitLogFlusher,
        queue_flusher: ConsumeQueueFlusher,
        dispatch: DispatchService,
    ) -> None:
        self._context = context
        self._commit_log = commit_log
        self._queues = queues
        self._index = index
        self._flusher = flusher
        self._queue_flusher = queue_flusher
        self._dispatch = dispatch
        self.hidden = HiddenMessages(commit_log, queues)
        self.needs: dict[str, Callable[[int], Awaitable[str]]] = {}
        self.compacted: Collection[str] = ()
        self.ledger: FileLedger | None = None
        self._passed_over = PassedOver(log)
        self._manual_runs = 0
        self._kept = ("", 0)  # the last logged reason for keeping a file, and when it was logged (monotonic ms)
        self._lacks_room = False  # at the last try, what the log has to say could not be written for lack of room
        self._has_given_room = False  # a file of the log was deleted to make that room, which did not help
        self._expired: list[_Expired] = []
        self._expired_index: list[IndexFile] = []
        self._cleaned_to = -1  # the log's minimum for which queues and index were last cleaned

    async def run(self) -> None:
        """Delete expired files at intervals, until the task is cancelled."""
        await asyncio.sleep(_FIRST_RUN_MS / 1000)
        while True:
            with self._passed_over("the rest of a run of cleaning, with which the next one continues,"):
                await self.clean()
            await asyncio.sleep(self._context.config.clean_resource_interval / 1000)

    def request(self) -> None:
        """Delete expired files in the next runs, at any hour (executeDeleteFilesManually)."""
        self._manual_runs = _MANUAL_RUNS

    async def clean(self) -> int:
        """Run once. Returns how many CommitLog files were deleted."""
        deleted = await self._clean_commit_log()
        if self._commit_log.min_offset > self._cleaned_to:
            await self._clean_queues(self._commit_log.min_offset)
            self._cleaned_to = self._commit_log.min_offset
        return deleted

    # --- the disk ---

    def disk_ratios(self) -> tuple[float, float]:
        """Return the used share of the partitions of CommitLog and ConsumeQueues, rounded up to whole percent; -1:
        unknown."""
        return self._ratio(self._context.commit_log_folder), self._ratio(self._context.consume_queue_folder)

    def _ratio(self, folder: PurePath) -> float:
        try:
            usage = self._context.disk.usage(folder)
        except OSError:
            return -1.0
        usable = usage.used + usage.free
        return math.ceil(100 * usage.used / usable) / 100 if usable > 0 else -1.0

    def _check_disk(self) -> tuple[bool, bool]:
        """Set or clear the disk-full flag. Returns two flags: whether to delete expired files, and whether to delete
        files regardless of age."""
        config = self._context.config
        ratio = max(self.disk_ratios())
        warning = min(90, max(35, config.disk_space_warning_level_ratio)) / 100
        forced = min(85, max(30, config.disk_space_clean_forcibly_ratio)) / 100
        normal = min(95, max(10, config.disk_max_used_space_ratio)) / 100
        if ratio > warning:
            reason = (
                f"the disk of {self._context.root} is {ratio:.0%} full, the limit diskSpaceWarningLevelRatio is "
                f"{warning:.0%}; "
                "free space, shorten fileReservedTime, or raise the limit"
            )
            if not self._context.flags.has(DISK_FULL):
                log.error(reason)
            self._context.flags.set(DISK_FULL, reason)
        elif self._context.flags.has(DISK_FULL):
            self._context.flags.clear(DISK_FULL)
            log.info("the disk of %s is %.0f%% full: writes are accepted again", self._context.root, ratio * 100)
        immediately = ratio > warning or (ratio > forced and config.clean_file_forcibly_enable)
        return ratio > normal or ratio < 0 or immediately, immediately

    # --- CommitLog ---

    def _is_time(self) -> bool:
        hour = datetime.fromtimestamp(self._context.clock.wall_ms() / 1000).strftime("%H")
        return hour in {word.strip().zfill(2) for word in self._context.config.delete_when.split(";")}

    async def _clean_commit_log(self) -> int:
        old, immediately = self._check_disk()
        manual = self._manual_runs > 0
        self._manual_runs = max(0, self._manual_runs - 1)
        is_time = old or manual or self._is_time()
        if not (is_time or self.hidden.is_used):
            return 0
        config = self._context.config
        limit = self._context.time.now_ms() - config.file_reserved_time * _HOUR_MS
        deleted = 0
        while deleted < config.delete_file_batch_max and len(self._commit_log.files.files) > 1:
            first = self._commit_log.files.files[0]
            if first.end_offset > self._dispatch.dispatcher.dispatched_offset:
                break
            if self.ledger is not None and not self.ledger.may_delete(first.end_offset, is_full=immediately):
                break
            modified = await self._context.jobs.run(first.modified_ms)
            expired = is_time and (immediately or modified <= limit) and not await self._keeps(first, immediately)
            if not (expired or self.hidden.is_used) or not await self._is_known(first.end_offset):
                break
            if not (expired or await self.hidden.hides_all_of(first)) or first is not self._commit_log.files.first:
                break
            try:
                with self._commit_log.without_first():
                    await self._context.jobs.run(first.destroy)
            finally:
                if self.ledger is not None:
                    self.ledger.files_deleted()
            why = "older than fileReservedTime" if expired else "nothing of it is shown"
            log.info("deleted %s: %s", first.path, "the disk is full" if immediately else why)
            deleted += 1
            self._has_given_room = not await self._is_written_down(first.end_offset)
            if deleted < config.delete_file_batch_max:
                await asyncio.sleep(config.delete_commit_log_files_interval / 1000)
        return deleted

    async def _keeps(self, file: MappedFile, immediately: bool) -> bool:
        """Return whether an expired file of the log stays because it is needed; the log says so once an hour. A full
        disk has it deleted all the same (`immediately`), with a line in the log."""
        reasons = [reason for part in self.needs if (reason := await self._why_needed(part, file.end_offset))]
        if not reasons:
            return False
        why, now_ms = "; ".join(reasons), self._context.clock.monotonic_ms()
        if immediately:
            log.error("the disk is full, and what %s still has to give is lost with it: %s", file.path, why)
        elif self._kept[0] != str(file.path) or now_ms - self._kept[1] >= _HOUR_MS:
            self._kept = str(file.path), now_ms
            log.warning("%s is older than fileReservedTime, and is kept: %s", file.path, why)
        return not immediately

    async def _why_needed(self, part: str, physical_offset: int) -> str:
        """Return why a part of the broker needs records below a physical offset; empty if it needs none."""
        try:
            return await self.needs[part](physical_offset)
        except OSError as error:
            return f"the disk cannot read what {part} needs: {error}"

    async def _is_known(self, end: int) -> bool:
        """Return whether the store's other files have recorded the deletions of topics below `end`. Otherwise a deleted
        topic would be back after a loss of power, and its queues numbered as before. If the disk has no room for these
        files, one file of the log is deleted all the same; if that does not help, the log is not what fills the
        disk."""
        if await self._is_written_down(end):
            self._has_given_room = False
            return True
        return self._lacks_room and not self._has_given_room

    async def _is_written_down(self, end: int) -> bool:
        flusher = self._queue_flusher
        self._lacks_room = False
        if end > flusher.written_down and flusher.failure is None:
            try:
                async with flusher.lock:
                    await flusher.flush_thoroughly()
            except OSError as error:
                log.warning("a file of the log is not deleted, because its queues cannot be flushed: %s", error)
                self._lacks_room = lacks_room(error)
        return end <= flusher.written_down

    # --- queues and index ---

    async def _clean_queues(self, min_offset: int) -> None:
        async with self._queue_flusher.lock:
            async for queue in self._queues_in_slices():
                if len(queue.files.files) > 1:
                    self._take_expired(queue, min_offset)
            for batch in self._queues.batch_queues.values():
                self._take_expired(batch, min_offset)
            if self._expired:
                # First the inventory, then the files: after a crash in between there are only too many files.
                await self._queue_flusher.flush_thoroughly()
        self._expired_index += self._index.delete_expired(min_offset)
        await self._delete_expired()

    def _take_expired(self, queue: ConsumeQueue | BatchConsumeQueue, min_offset: int) -> None:
        files = queue.delete_expired(min_offset)
        if not files:
            return
        for some in self._expired:
            if some.queue is queue and some.lives == queue.lives:
                some.files.extend(files)  # behind those that could not be deleted, because a queue's files have no gaps
                return
        self._expired.append(_Expired(queue, queue.lives, files))

    async def _delete_expired(self) -> None:
        """Delete the files that were removed from the lists of queues and index, also those that an earlier run could
        not delete.

        Raises:
            OSError: the disk keeps some of them; the next run tries again.
        """
        jobs, config, failures = self._context.jobs, self._context.config, list[OSError]()
        expired, self._expired = self._expired, []
        for some in expired:
            try:
                await jobs.run(self._queues.destroy_files, *some)
            except OSError as error:
                failures.append(error)
                self._expired.append(some)
            await asyncio.sleep(config.delete_consume_queue_files_interval / 1000)
        index, self._expired_index = self._expired_index, []
        for file in index:
            try:
                await jobs.run(file.destroy)
            except OSError as error:
                failures.append(error)
                self._expired_index.append(file)
        if failures:
            raise failures[0]

    async def _queues_in_slices(self) -> AsyncIterator[ConsumeQueue]:
        """Yield all queues; the loop runs other tasks in between. The caller holds the flusher's lock, so that no queue
        is removed meanwhile."""
        passed = 0
        for topic in list(self._queues.topics.values()):
            for tail in list(topic.queues.values()):
                yield tail.owner
            passed += 1 + len(topic.queues)
            if passed >= _QUEUES_OF_SLICE:
                passed = 0
                await asyncio.sleep(0)

    async def clean_expired_consume_queues(self) -> int:
        """Delete the queue files whose last message is gone from the log, and return how many. Queue offsets continue:
        none is given twice."""
        min_offset = self._commit_log.min_offset
        async with self._queue_flusher.lock:
            if self._context.jobs.is_closed:
                return 0
            expired, turns = 0, Turns()
            async for queue in self._queues_in_slices():
                await turns.rest()  # to look at the last unit of a queue may mean to map its file
                if not self._is_expired(queue, min_offset):
                    continue
                expired += 1
                self._queues.empty(queue)
                log.info("deleted the files of queue %s-%d, which has no messages", queue.topic, queue.queue_id)
            await self._queue_flusher.flush_thoroughly()
        return expired

    def _is_expired(self, queue: ConsumeQueue, min_offset: int) -> bool:
        return (
            not is_system_queue(queue.topic)
            and queue.topic not in self.compacted
            and bool(queue.files.files)
            and queue.max_offset > 0
            and _last_physical_offset(queue) < min_offset
        )

    async def unused_topics(self, keep: Container[str]) -> set[str]:
        """Return the topics that have queues and are not in `keep`, without system topics and light queues. The loop
        runs other tasks between calls of `keep`."""
        found: set[str] = set()
        turns = Turns()
        async with self._queue_flusher.lock:
            async for queue in self._queues_in_slices():
                name = queue.topic
                if name not in keep and not is_system_queue(name) and not name.startswith(LMQ_PREFIX):
                    found.add(name)
                await turns.rest()
        found |= {name for name, _ in self._queues.batch_queues if not is_system_queue(name)}
        return {name for name in found if name not in keep}

    async def finish_deletion(self, topics: set[str]) -> None:
        """Finish the deletion of topics whose deletion record is in the log: wait until it is durable and dispatched,
        and record it, so that the next start does not rebuild queues."""
        await self._flusher.flush_all()
        await self._dispatch.finish_turns()
        begun = self._queue_flusher.begun
        async with self._queue_flusher.lock:
            if self._context.jobs.is_closed:
                return
            await self._queue_flusher.flush_thoroughly_since(begun)
            turns = Turns()
            for topic in topics:
                self._queues.forget_topic(topic)
                self._dispatch.forget_topic()
                self._commit_log.tail.forget_topic()
                await turns.rest()


def _last_physical_offset(queue: ConsumeQueue) -> int:
    unit = queue.unit(queue.max_offset - 1)
    return -1 if unit is None else unit[0]
