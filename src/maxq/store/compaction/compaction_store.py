"""CompactionStore: all compacted queues of a store, and the service that keeps them.

Every second what is new in the topics' ordinary queues is copied and flushed; every `compactionScheduleInternal` a
queue with something to gain is compacted, off the loop, one at a time. Readers are brought up to date before they read.

A slave whose log begins later than its master's has older keys in its master's compacted queue only. It takes them from
there (`lacking`, `adopt`) before it copies what its own log has; if they do not come for a minute, it goes on without.

Source:
    store/kv/{CompactionStore,CompactionService,CompactionPositionMgr}.java.
"""

import asyncio
import json
import logging
from collections.abc import Callable, Collection, Iterable
from typing import Final, NamedTuple

from maxq.errors import RemoteProtocolError, StoreFailedError, StoreRefusedError
from maxq.protocol.message.message import decode_record
from maxq.protocol.message.record_layout import size_of
from maxq.runtime.blocking import TOOLS
from maxq.runtime.passed_over import PassedOver
from maxq.store.compaction.compaction_log import CompactionLog
from maxq.store.compaction.replacement import QueueFolders
from maxq.store.compaction.segment import Segment
from maxq.store.context.store_context import StoreContext
from maxq.store.log.commit_log import CommitLog
from maxq.store.log.deletions import Deletions
from maxq.store.queue.consume_queue import ConsumeQueue
from maxq.store.queue.consume_queue_store import ConsumeQueueStore
from maxq.store.queue.unit_scan_cy import DAMAGED_TAGS_CODE
from maxq.store.store_results import GetMessageResult, GetMessageStatus

log = logging.getLogger(__name__)

_ROUND_MS: Final = 1_000
_SLICE: Final = 512  # records that are copied before other work gets its turn
_PATIENCE_MS: Final = 60_000  # longest time that a slave waits for its master's older messages
_POSITIONS: Final = "position-checkpoint"


class LackingQueue(NamedTuple):
    """A queue of a slave whose log lacks the messages from `next_offset` up to, but not including, `low`."""

    topic: str
    queue_id: int
    next_offset: int
    low: int


class CompactionStore:
    """Compacted queues by topic and queue id.

    Attributes:
        topics: the compaction topics there are; the broker keeps it.
        compactions: compactions done since start.
        master_log_begins: on a slave, the physical offset at which its master's log begins; 0 until it is known.
            Readers of both learn of a deleted key as long as the master's log has the message that deletes it.
        failures: topic and queue id → why a queue waits.
    """

    def __init__(
        self, context: StoreContext, commit_log: CommitLog, queues: ConsumeQueueStore, deletions: Deletions
    ) -> None:
        self._context = context
        self._deletions = deletions
        self._commit_log = commit_log
        self._queues = queues
        self._root = context.root / "compaction"
        self._logs: dict[tuple[str, int], CompactionLog] = {}
        self._passed_over = PassedOver(log)
        self._positions: dict[str, int] = {}
        # incarnations of the topics whose messages the files hold (deletions.py)
        self._incarnations: dict[str, int] = {}
        self._doomed: set[str] = set()  # deleted topics whose files are still there
        self._clean_exit = True
        self._due_ms: dict[tuple[str, int], int] = {}  # monotonic: when a queue is compacted next
        self._waiting_ms: dict[tuple[str, int], int] = {}  # monotonic: since when older messages do not come
        self._complete: set[tuple[str, int]] = set()  # queues whose older messages have come, or were given up
        self._came_back: dict[tuple[str, int], int] = {}  # offset of the first message that the log has again
        self._lock = asyncio.Lock()  # flushing, compaction and deletion exclude each other
        self.topics: set[str] = set()
        self.compactions = 0
        self.master_log_begins = 0
        self.failures: dict[tuple[str, int], str] = {}

    # --- life ---

    def load(self, *, clean_exit: bool) -> None:
        """Load the positions and all queues that have files. Blocks."""
        self._clean_exit = clean_exit
        self._positions = self._read_positions()
        disk = self._context.disk
        for topic in disk.list(self._root / "compactionLog"):
            for queue in disk.list(self._root / "compactionLog" / topic.name):
                if queue.is_dir and queue.name.isascii() and queue.name.isdigit():
                    self._open(topic.name, int(queue.name))
        self._clean_exit = True  # queues that are opened later are new

    def _read_positions(self) -> dict[str, int]:
        try:
            found = json.loads(self._context.disk.read(self._root / _POSITIONS))
            table, incarnations = found["queueOffsetMap"], found.get("incarnations", {})
            self._incarnations = {str(name): int(incarnation) for name, incarnation in incarnations.items()}
            return {str(name): int(offset) for name, offset in table.items()}
        except FileNotFoundError:
            return {}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            log.warning("%s cannot be read (%s): everything is compacted again", self._root / _POSITIONS, error)
            return {}

    def _open(self, topic: str, queue_id: int) -> CompactionLog:
        found = self._logs.get((topic, queue_id))
        if found is None:
            folders = QueueFolders(self._root, topic, queue_id)
            if self._is_of_deleted_topic(folders):
                self._destroy(CompactionLog(self._context, folders, -1))
                self._write_positions()
            found = self._loaded(folders)
            queue = self._queues.find(topic, queue_id)
            if queue is None:  # the log has no message of this queue, and nothing else tells how far it was numbered
                found.cut_copies_from(self._commit_log.min_offset)
                if found.next_offset:
                    self._queues.number_on(topic, queue_id, found.next_offset)
            else:
                found.cut(queue.max_offset)
                self._cut_lost(found, queue)
            # messages that come again must be compacted again
            if found.position < self._positions.get(found.folders.name, -1):
                self._positions[found.folders.name] = found.position
                self._write_positions()
            self._logs[topic, queue_id] = found
        return found

    def _loaded(self, folders: QueueFolders) -> CompactionLog:
        found = CompactionLog(self._context, folders, self._positions.get(folders.name, -1))
        queue = self._queues.find(folders.topic, folders.queue_id)
        log_has_from = 0 if queue is None else queue.min_offset(self._commit_log.min_offset)
        if self._context.config.broker_role == "SLAVE":  # its master has them, and they may never have been durable
            log_has_from = 0
        found.load(clean_exit=self._clean_exit, log_has_from=log_has_from)
        return found

    def _is_of_deleted_topic(self, folders: QueueFolders) -> bool:
        """Return whether the files hold messages of a topic that was deleted since. A table of positions that was lost,
        or that Java wrote, does not name the incarnation: then the copies tell from where in the log they were
        taken."""
        deleted_at, name = self._deletions.at(folders.topic), folders.name
        incarnation = self._incarnations.get(name)
        if incarnation is not None or not deleted_at:
            return deleted_at > (incarnation or 0)
        found = self._loaded(folders)
        is_gone = found.is_from_before(deleted_at, self._commit_log.get)
        found.release()
        if not is_gone:
            self._incarnations[name] = deleted_at
        return is_gone

    def _cut_lost(self, found: CompactionLog, queue: ConsumeQueue) -> None:
        """Discard copies of parts of the log that were lost with the power. Such a loss may take any part that was not
        durable, also in the middle. Copies of lost parts, and torn copies, are discarded, and everything behind them
        is copied again."""

        def original(offset: int) -> memoryview | None:
            return self._original(queue, offset)

        low = queue.min_offset(self._commit_log.min_offset)
        lost = None if self._clean_exit else found.first_lost(original, low)
        if lost is not None:
            found.cut(lost)

    def _original(self, queue: ConsumeQueue, offset: int) -> memoryview | None:
        """Return the log's record of a message; None if the log does not have it, or has it damaged."""
        unit = queue.unit(offset)
        return None if unit is None or unit[2] == DAMAGED_TAGS_CODE else self._commit_log.record(unit[0])

    def close(self) -> bool:
        """Flush and release everything. Blocks. Returns False if a queue could not be flushed; the exit is then not a
        clean one."""
        complete = True
        for found in self._logs.values():
            try:
                _flush_all(found.take_unflushed())
            except OSError as error:
                complete = False
                log.error("%s cannot be flushed: %s", found.folders.log, error)
            found.release()
        self._logs.clear()
        return complete

    async def run(self) -> None:
        """Copy, flush and compact until cancelled. A queue whose files the disk refuses is retried later; other queues
        continue."""
        while True:
            await asyncio.sleep(_ROUND_MS / 1000)
            await self._round()

    async def _round(self) -> None:
        try:
            await self.delete_topics(set(self._doomed))
        except OSError as error:
            log.error("compacted files of deleted topics stay for now: %s", error)
        for topic in sorted(self.topics):
            for queue in self._queues.of_topic(topic):
                await self._serve(topic, queue.queue_id)

    async def _serve(self, topic: str, queue_id: int) -> None:
        key = (topic, queue_id)
        try:
            await self._copy_again(key)
            await self._catch_up_slowly(*key)
            await self._flush(*key)
            now_ms, interval_ms = self._context.clock.monotonic_ms(), self._context.config.compaction_schedule_internal
            if now_ms >= self._due_ms.setdefault(key, now_ms + interval_ms):
                self._due_ms[key] = now_ms + interval_ms
                await self.compact(*key)
        except StoreFailedError:
            raise
        except Exception as error:  # other queues continue
            is_foreseen = isinstance(error, (OSError, StoreRefusedError))
            reason = str(error) if is_foreseen else repr(error)
            if self.failures.get(key) != reason:
                log.error("compaction of %s-%d waits and is tried again: %s", *key, reason,
                          exc_info=None if is_foreseen else error)  # fmt: skip
            self.failures[key] = reason
        else:
            self.failures.pop(key, None)

    async def _catch_up_slowly(self, topic: str, queue_id: int) -> None:
        for _ in iter(lambda: self.catch_up(topic, queue_id), False):
            await asyncio.sleep(0)

    async def _flush(self, topic: str, queue_id: int) -> None:
        found = self._logs.get((topic, queue_id))
        if found is None:
            return
        segments, end = found.take_unflushed(), found.next_offset
        if segments:
            try:
                async with self._lock:
                    await self._context.jobs.run(_flush_all, segments, threads=TOOLS)
            except BaseException:  # also after a cancellation: it is unknown how many segments were flushed
                found.give_back_unflushed(segments)
                raise
        found.durable_offset = min(end, found.next_offset)

    # --- copying ---

    async def what_is_needed_below(self, physical_offset: int) -> str:
        """Return, in a clause for the log, which queue still has to copy a message whose record lies before this
        physical offset; empty if there is none. A copy counts when it is durable."""
        low = self._commit_log.min_offset
        for topic in sorted(self.topics - self._doomed):
            for queue in self._queues.of_topic(topic):
                key = (topic, queue.queue_id)
                found = self._logs.get(key)
                start = max(0 if found is None else found.durable_offset, queue.min_offset(low))
                unit = None if start >= queue.max_offset else queue.unit(start)
                if unit is not None and unit[0] < physical_offset:
                    reason = self.failures.get(key, "")
                    copied = f"messages of {topic}-{queue.queue_id} in it are not copied to its compacted queue yet"
                    return f"{copied} ({reason})" if reason else copied
        return ""

    def catch_up(self, topic: str, queue_id: int, most: int = _SLICE) -> bool:
        """Copy up to `most` messages from the ordinary queue that are not copied yet; returns True if there are more.

        Raises:
            OSError: no room on the disk.
        """
        queue = self._queues.find(topic, queue_id)
        if queue is None or topic in self._doomed:
            return False
        found = self._open(topic, queue_id)
        low = queue.min_offset(self._commit_log.min_offset)
        if self._waits(found, low):
            return False
        start = max(found.next_offset, low)
        if 0 < found.next_offset < low:
            log.error("%s-%d: messages %d to %d went with the log before they were copied, as they do while "
                      "enableCompaction is false, or could not be read: where one of them was the newest of its key, "
                      "an older one is served", topic, queue_id, found.next_offset, low - 1)  # fmt: skip
            found.next_offset = low
        end = min(queue.max_offset, start + most)
        for offset in range(start, end):
            unit = queue.unit(offset)
            is_kept = unit is None or unit[2] == DAMAGED_TAGS_CODE  # the unit keeps the place of a damaged message
            record = None if unit is None or is_kept else self._commit_log.record(unit[0])
            if record is None or unit is None or len(record) != unit[1]:
                found.next_offset = offset + 1
            else:
                found.append(record, offset)
        found.next_offset = max(found.next_offset, start)
        return end < queue.max_offset

    def came_back(self, topic: str, queue_id: int, offset: int) -> None:
        """Handle that the log has a damaged message of a topic again. If it was skipped here, the next round copies it,
        and the messages after it once more."""
        if topic in self.topics:
            key = (topic, queue_id)
            self._came_back[key] = min(offset, self._came_back.get(key, offset))

    async def _copy_again(self, key: tuple[str, int]) -> None:
        if key not in self._came_back:
            return
        async with self._lock:
            found, queue = self._logs.get(key), self._queues.find(*key)
            if found is not None and found.is_replacing:
                await self._replace(found)
            offset = self._came_back[key]
            if found is not None and queue is not None and offset >= queue.min_offset(self._commit_log.min_offset):
                await self._take_again(found, offset)
            if self._came_back[key] == offset:  # else an earlier message has come back meanwhile
                del self._came_back[key]

    async def _take_again(self, found: CompactionLog, offset: int) -> None:
        """Copy the messages of a queue from `offset` on once more. The position of its last compaction is lowered
        before that, on the disk as well: a start would take the new copies for compacted ones."""
        if found.position >= offset:
            self._positions[found.folders.name] = offset - 1
            await self._context.jobs.run(self._write_positions, threads=TOOLS)
        found.copy_again(offset)

    # --- what only the master has ---

    def _waits(self, found: CompactionLog, low: int) -> bool:
        key = (found.folders.topic, found.folders.queue_id)
        if found.next_offset >= low or key in self._complete or self._context.config.broker_role != "SLAVE":
            return False
        now_ms = self._context.clock.monotonic_ms()
        if now_ms - self._waiting_ms.setdefault(key, now_ms) < _PATIENCE_MS:
            return True
        log.error(
            "%s-%d: messages %d to %d are not in this log and did not come from the master: keys without newer "
            "messages are missing on this slave; to copy them later, stop it and delete its compaction/ folder",
            *key, found.next_offset, low - 1,
        )  # fmt: skip
        self._complete.add(key)
        return False

    def lacking(self) -> list[LackingQueue]:
        """Return the queues of this slave that wait for the older messages that only their master has kept."""
        found = []
        for topic in sorted(self.topics - self._doomed):
            for queue in self._queues.of_topic(topic):
                kept = self._open(topic, queue.queue_id)
                low = queue.min_offset(self._commit_log.min_offset)
                if self._waits(kept, low):
                    found.append(LackingQueue(topic, queue.queue_id, kept.next_offset, low))
        return found

    def adopt(self, queue: LackingQueue, records: memoryview, next_offset: int) -> None:
        """Append records that only the master has kept, in the order of their queue offsets; those that this log has
        are copied from there.

        Args:
            next_offset: the master has kept nothing else below it.

        Raises:
            OSError: no room on the disk.
        """
        key = (queue.topic, queue.queue_id)
        if queue.topic in self._doomed:
            return
        found = self._open(*key)
        at = 0
        while at < len(records):
            record = records[at : at + size_of(records, at)]
            message = decode_record(record)
            if found.next_offset <= message.queue_offset < queue.low:
                found.append(record, message.queue_offset)
            at += len(record)
        found.next_offset = max(found.next_offset, min(next_offset, queue.low))
        self._waiting_ms[key] = self._context.clock.monotonic_ms()
        if found.next_offset >= queue.low:
            self._complete.add(key)

    async def copy_anew(self, queue: LackingQueue) -> None:
        """Forget what was adopted of a queue, because it is of no one moment: the master has compacted meanwhile."""
        async with self._lock:
            found = self._logs.get((queue.topic, queue.queue_id))
            if found is not None and found.is_replacing:
                await self._replace(found)
            if found is not None:
                await self._take_again(found, 0)

    # --- reading ---

    def position(self, topic: str, queue_id: int) -> int | None:
        """Return the message offset up to which a queue is compacted, -1 if it never was; None if it is not known as
        one of a compaction topic."""
        found = self._logs.get((topic, queue_id)) if topic in self.topics else None
        return None if found is None else found.position

    def get_message(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        max_nums: int,
        max_bytes: int,
        tags_codes: Collection[int] | None,
        test: Callable[[memoryview], bool] | None,
    ) -> GetMessageResult:
        """Do what `CompactionLog.get_message` says."""
        found = None if topic in self._doomed else self.current(topic, queue_id)
        if found is None:
            return GetMessageResult(GetMessageStatus.NO_MATCHED_LOGIC_QUEUE, next_begin_offset=0)
        return found.get_message(offset, max_nums, max_bytes, tags_codes, test)

    def current(self, topic: str, queue_id: int) -> CompactionLog | None:
        """Return a queue after copying new messages, unless its backlog is long; None for an unknown queue."""
        try:
            self.catch_up(topic, queue_id)
        except OSError as error:
            log.warning("%s-%d is served with the messages that it has: %s", topic, queue_id, error)
        return self._logs.get((topic, queue_id))

    # --- compaction ---

    async def compact(self, topic: str, queue_id: int) -> bool:
        """Compact one queue now, after finishing an interrupted replacement. Returns False if there was nothing to
        gain, or if damaged copies are taken again from the log before.

        Raises:
            OSError, StoreRefusedError: the disk refuses. The present segments stay, and compaction is retried later.
        """
        async with self._lock:
            found = self._logs.get((topic, queue_id))
            if found is not None and found.is_replacing:
                await self._replace(found)
            closed = [] if found is None else found.plan(self._commit_log.flushed_offset)
            if found is None or not closed:
                return False
            began_ms, before = self._context.clock.monotonic_ms(), sum(segment.count for segment in closed)
            log_begins = self._commit_log.min_offset
            if self._context.config.broker_role == "SLAVE":
                log_begins = min(log_begins, self.master_log_begins)
            made = await self._context.jobs.run(found.rewrite, closed, log_begins, threads=TOOLS)
            if await self._are_copied_again(found, made.damaged):
                return False
            found.begin(closed, made.replacement)
            after = await self._replace(found)
        self.compactions += 1
        log.info(
            "%s-%d compacted: %d messages became %d within %d ms", topic, queue_id, before, after,
            self._context.clock.monotonic_ms() - began_ms,
        )  # fmt: skip
        return True

    async def _are_copied_again(self, found: CompactionLog, damaged: list[int]) -> bool:
        """Take damaged copies again from the log, and all behind them, if it has one of them whole. Otherwise the older
        message of the key stays."""
        topic, queue_id = found.folders.topic, found.folders.queue_id
        queue = self._queues.find(topic, queue_id)
        for offset in damaged if queue is not None else ():
            if queue is not None and self._has_whole(queue, offset):
                log.warning("%s-%d: the copy of message %d is damaged, and is taken again from the log",
                            topic, queue_id, offset)  # fmt: skip
                await self._take_again(found, offset)
                return True
        return False

    def _has_whole(self, queue: ConsumeQueue, offset: int) -> bool:
        if not queue.min_offset(self._commit_log.min_offset) <= offset < queue.max_offset:
            return False
        record = self._original(queue, offset)
        try:
            return record is not None and decode_record(record, check_crc=True).queue_offset == offset
        except RemoteProtocolError:
            return False

    async def _replace(self, found: CompactionLog) -> int:
        """Complete a replacement that has begun. Returns how many messages the new segments have."""
        fresh = await self._context.jobs.run(found.finish, threads=TOOLS)
        position = found.take_over(fresh)
        self._positions[found.folders.name] = position
        await self._context.jobs.run(self._write_positions, threads=TOOLS)
        await self._context.jobs.run(found.forget, threads=TOOLS)
        return sum(segment.count for segment in fresh)

    def _write_positions(self) -> None:
        body = json.dumps(
            {"queueOffsetMap": dict(self._positions)}
            | ({"incarnations": dict(self._incarnations)} if self._incarnations else {})
        )
        self._context.disk.replace(self._root / _POSITIONS, body.encode())

    def begin_anew(self, topics: Iterable[str]) -> None:
        """Hide all messages of these topics, which were deleted. The next round deletes their files."""
        self._doomed |= {topic for topic, _ in self._logs} & set(topics)

    async def delete_topics(self, doomed: set[str]) -> None:
        """Delete the files of these topics, which `begin_anew` has hidden."""
        if not doomed:
            return
        async with self._lock:
            if self._context.jobs.is_closed:
                return
            gone, left = 0, set()
            for key in [key for key in self._logs if key[0] in doomed]:
                with self._passed_over("%s-%d, whose compacted files are deleted later", *key) as attempt:
                    await self._context.jobs.run(self._destroy, self._logs[key], threads=TOOLS)
                if attempt.failed:
                    left.add(key[0])
                else:
                    del self._logs[key]
                    self._due_ms.pop(key, None)
                    gone += 1
            if gone:
                await self._context.jobs.run(self._write_positions, threads=TOOLS)
            self._doomed -= doomed - left

    def _destroy(self, found: CompactionLog) -> None:
        """Delete the files of a deleted topic; messages that follow belong to the new topic. Blocks."""
        name = found.folders.name
        found.destroy()
        self._positions.pop(name, None)
        self._incarnations[name] = self._deletions.at(found.folders.topic)
        self._complete.discard((found.folders.topic, found.folders.queue_id))


def _flush_all(segments: list[Segment]) -> None:
    for segment in segments:
        segment.flush()
