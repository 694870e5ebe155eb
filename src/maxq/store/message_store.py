"""The store: the only door to messages on disk (DefaultMessageStore.java).

Life: `load()` recovers and returns a RecoveryReport; `start()`, on a running loop, begins flushing, cleaning and
preallocation; `shutdown()` makes everything durable and removes the abort file. Without a loop (offline tools)
`load()`, `put_message`, the reads and `close()` work too; flushes then happen inline.

Everything runs on the loop's thread; what blocks leaves it through `run_in_executor`.
"""

import asyncio
from collections.abc import Callable, Container, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TypeVarTuple

from maxq.config.message_store_config import MessageStoreConfig
from maxq.protocol.enums import BoundaryType
from maxq.protocol.message.message import MessageExt, decode_record
from maxq.protocol.message.record_layout import MIN_RECORD_SIZE, physical_offset_of
from maxq.runtime.blocking import TOOLS
from maxq.runtime.interfaces import Clock, Disk, SyncFailedError
from maxq.store.append.message_ext_broker_inner import MessageExtBrokerInner
from maxq.store.context.progress import Progress, no_progress
from maxq.store.context.running_flags import RunningFlags
from maxq.store.context.store_context import StoreContext, StoreIdentity
from maxq.store.context.store_stats import StoreStats
from maxq.store.log.log_search import records_with
from maxq.store.log.tails_cy import QueueTail, TopicWriteState
from maxq.store.queue.consume_queue import ConsumeQueue
from maxq.store.queue.property_filter import PropertyFilter
from maxq.store.queue.unit_scan_cy import DAMAGED_TAGS_CODE
from maxq.store.read.message_reader import TagFilter
from maxq.store.read.topic_reader import TopicReader
from maxq.store.recovery.recovery_report import RecoveryReport
from maxq.store.recovery.restore_places import restore_keys, restore_places
from maxq.store.recovery.store_files import refusing
from maxq.store.retention.trusted_time import TrustedTime
from maxq.store.store_life import StoreLife
from maxq.store.store_parts import StoreParts
from maxq.store.store_results import BulkRead, GetMessageResult, PutMessageResult, QueryMessageResult

Ts = TypeVarTuple("Ts")

_MAX_PULL_BYTES = 128 << 20
_DISPATCH_LOOK = 0.02  # seconds
#: Default of `populate_ahead`.
POPULATE_AHEAD = 2 << 20


class MessageStore:
    """The messages of one broker.

    Attributes:
        topics: topic bytes → TopicWriteState, as the compiled send path looks it up.
        flags: why the store may not be written, if so.
        filled_ranges: ranges of the log where a start, of this store or of its master's, has put a filler.
        deletions: where in the log topics were deleted.
        stats: counters for GET_BROKER_RUNTIME_INFO.
        ledger: with enableDLegerCommitLog, this member's log, for whoever drives it (Ledger); None without.
        cached_pull_reader: reads what is in memory without an object a message.
        admission: may something be stored now, and if not, why.
        fast_path_writer: stores fast-path sends and copies without an object a message.
        marks: what can be lost no more, for services that note how far they are.
        report: what the last `load` found and did.
    """

    def __init__(
        self,
        config: MessageStoreConfig,
        *,
        disk: Disk,
        clock: Clock,
        broker: StoreIdentity,
        memory_bytes: int | None = None,
        populate_ahead: int = POPULATE_AHEAD,
    ) -> None:
        """
        Args:
            memory_bytes: physical memory of the machine, for the cold/hot decision; None reads it from the disk's
                /proc/meminfo.
            populate_ahead: bytes of index in front of the writer whose pages are made ready on the executor; 0 for
                none. The log's writer touches no pages.
        """
        self._context = context = StoreContext(config, disk, clock, broker)
        self._parts = parts = StoreParts(context, memory_bytes, populate_ahead)
        self.commit_log = parts.commit_log
        self.queues = parts.queues
        self.checkpoint = parts.checkpoint
        self.index = parts.index
        self.dispatch = parts.dispatch
        self.compaction = parts.compaction
        self.filled_ranges = parts.filled_ranges
        self.deletions = parts.deletions
        self.flusher = parts.flusher
        self.queue_flusher = parts.queue_flusher
        self.reader = parts.reader
        self.cached_pull_reader = parts.cached_pull_reader
        self.disk_room = parts.disk_room
        self.fast_path_writer = parts.fast_path_writer
        self._writer = parts.writer
        self.admission = parts.admission
        self.cleaner = parts.cleaner
        self.ledger = parts.ledger
        self.marks = parts.marks
        self.stats = StoreStats(context)
        self._topic_reader = TopicReader(parts.commit_log, parts.queues, parts.compaction, parts.reader)
        self._life = StoreLife(parts)

    # --- life ---

    @property
    def config(self) -> MessageStoreConfig:
        """Return the store's settings, which `update_config` replaces as a whole."""
        return self._context.config

    def update_config(self, config: MessageStoreConfig) -> None:
        """Apply live settings and the role: a slave appends only its master's bytes, a master only messages."""
        self._context.config = config
        if self._life.is_loaded:
            self._life.take_role()

    @property
    def time(self) -> TrustedTime:
        """Return the clock for retention. It follows a jump of the wall clock by at most a day at once."""
        return self._context.time

    def set_store_host(self, store_host: bytes) -> None:
        """Set the address that future records carry: a broker on port 0 learns its port after `load`."""
        self._context.identity = replace(self._context.identity, store_host=store_host)

    @property
    def flags(self) -> RunningFlags:
        """Return the reasons why nothing may be stored or read now."""
        return self._context.flags

    @property
    def topics(self) -> dict[bytes, TopicWriteState]:
        """Return what the compiled modules keep of each topic, by name."""
        return self.queues.topics

    def lock(self) -> None:
        """Lock the folder for files beside the store's own, such as a broker's tables, which must be read after another
        process has written them for the last time. Blocks. `load` and `shutdown` may follow, and `unlock` must.

        Raises:
            StoreRefusedError: another process uses the store, or the disk refuses.
        """
        with self.refusing():
            self._life.lock.take()

    def unlock(self) -> None:
        """Release what `lock` took; without effect if that was refused."""
        self._life.lock.release()

    def refusing(self) -> AbstractContextManager[None]:
        """Return what makes errors of the disk, while files of the store's folder are read at start, a
        StoreRefusedError that says what to do."""
        return refusing(self._context)

    def load(self, progress: Progress = no_progress) -> RecoveryReport:
        """Lock the folder, find the files and recover. Blocks.

        Args:
            progress: told how far recovery has come.

        Raises:
            StoreRefusedError: the store is another process's, of a kind that MaxQ cannot read, on a disk that cannot
                be written, or a CommitLog file is missing or has the wrong size; says which file, what is wrong and
                what to do.
        """
        self._context.progress = progress
        report = self._life.load()
        self.stats.damaged_ranges += len(report.damages)
        return report

    @property
    def report(self) -> RecoveryReport:
        """The report of the last `load`: the faults that recovery found, and the repairs that it made."""
        return self._life.report

    def start(self) -> None:
        """Start the services; needs a running loop."""
        self._life.start()

    def set_service_failed(self, callback: Callable[[str, BaseException], None]) -> None:
        """Set the callback that is called as `callback(name, error)` when a service ends by an error. The process
        should then stop."""
        self._parts.services.on_failed = callback

    async def shutdown(self) -> None:
        """Stop the services, make everything durable and remove the abort file. The abort file stays if a write
        failed."""
        await self._life.shutdown()

    def close(self) -> None:
        """Shut down a store that has no loop. Blocks."""
        self._life.close()

    # --- writing ---

    def put_message(self, message: MessageExtBrokerInner) -> PutMessageResult:
        """Store one message. Never raises for what a client did wrong: the result says it.

        The message is visible at once with ASYNC_FLUSH, after the group commit with SYNC_FLUSH. It is durable when
        `flusher.when_durable(result.end_offset, …)` says so.
        """
        return self._writer.put_message(message)

    def put_batch(self, message: MessageExtBrokerInner) -> PutMessageResult:
        """Store the messages of a batch body (MessageDecoder.encodeMessages), all or none, one after the other."""
        return self._writer.put_batch(message)

    def appended(self) -> None:
        """Publish records that `fast_path_writer.append_final` and `append_copy` stored to queues, readers and
        slaves."""
        self._parts.propagation.appended()

    async def flush(self) -> None:
        """Wait until everything that is in the log now is durable and, as far as readers may see it, dispatched, or
        until flushing has failed: compare `flushed_offset`."""
        await self.flusher.flush_all()
        await self.dispatch.finish_turns()

    async def wait_for_dispatch(self) -> None:
        """Wait until the queues have everything that is in the log now, or for a DLedger log everything committed.
        While the disk has no room for a queue, or much is to be dispatched, queues lag behind the log and the
        tables."""
        end = self.max_physical_offset
        while self.confirm_offset < min(end, self.max_physical_offset):  # noqa: ASYNC110 - the disk is tried again
            await asyncio.sleep(_DISPATCH_LOOK)

    # --- replication ---

    @property
    def master_address(self) -> str:
        """Return the address that `set_master_address` was given last."""
        return self._context.master_address

    def set_master_address(self, address: str) -> None:
        """Set the address of a slave's master, `host:port`, which the slave's refusals name; empty: unknown."""
        self._context.master_address = address

    def append_from_master(self, physical_offset: int, data: memoryview) -> int:
        """Append `data`, the master's log from `physical_offset` on, to a slave's log; see ReplicaAppender.append.

        Returns:
            Physical offset behind the last verified record: what may be acknowledged.

        Raises:
            ReplicationGapError, ReplicationDamageError: not a continuation, or no records.
            OSError: the disk has no room.
        """
        return self._life.append_from_master(physical_offset, data)

    def drop_pending(self) -> None:
        """Discard the bytes of an incomplete record, because the connection to the master ended."""
        self._life.drop_pending()

    @property
    def damaged_from_master(self) -> int:
        """Return the number of records that a slave accepted although their CRC is wrong, because the master's log has
        the same bytes."""
        replica = self._life.replica
        return 0 if replica is None else replica.damaged_from_master

    @property
    def last_record_offset(self) -> int:
        """Physical offset of the last record of a slave's log; -1 if there is none."""
        replica = self._life.replica
        return -1 if replica is None else replica.last_record_offset

    def restore_places(self, physical_offset: int, size: int) -> int:
        """Dispatch a range again that a start had filled as damaged and that was restored: write its queue units and
        index its keys. Compacted queues copy the messages in the next round.

        Returns:
            How many queue units were written.
        """
        dispatcher = self.dispatch.dispatcher
        if physical_offset + size > dispatcher.dispatched_offset:
            return 0  # dispatch assigns these places, behind those of the messages before
        written = restore_places(
            self.commit_log, self.queues, self.deletions, dispatcher.delay_table, physical_offset, size,
            self.dispatch.resolver.lost_bytes // MIN_RECORD_SIZE, self.compaction.came_back,
        )  # fmt: skip
        if self.config.message_index_enable:
            restore_keys(self.commit_log, self.index, dispatcher.index_tags, physical_offset, size)
        return written

    async def sync_log(self, work: Callable[[*Ts], None], *args: *Ts) -> None:
        """Run `work(*args)`, which writes to a file of the log and syncs it, off the loop.

        Raises:
            OSError: of `work`. If its sync failed, the flusher was told: the same sync covered records that were
                appended meanwhile.
        """
        try:
            await self._context.jobs.run(work, *args, threads=TOOLS)
        except SyncFailedError as error:
            self.commit_log.on_sync_failed(error)
            raise

    def log_bytes(self, offset: int, limit: int) -> memoryview | None:
        """Return at most `limit` bytes of the mapped log from physical offset `offset` on, within one file; None if the
        log has nothing there (compare with `min_physical_offset` and `max_physical_offset` to tell why)."""
        return self.commit_log.bytes_from(offset, limit)

    def add_append_listener(self, listener: Callable[[], None]) -> None:
        """Call `listener` after each append to the log, before dispatch; it wakes the senders to slaves."""
        self._parts.propagation.listeners.append(listener)

    # --- reading ---

    def get_message(
        self,
        group: str,
        topic: str,
        queue_id: int,
        offset: int,
        max_nums: int,
        subscription: TagFilter | None,
        max_bytes: int = _MAX_PULL_BYTES,
        *,
        wanted: PropertyFilter | None = None,
        may_wait: bool = False,
        bulk: BulkRead | None = None,
    ) -> GetMessageResult:
        """Return messages from queue offset `offset` on (DefaultMessageStore.getMessage).

        Args:
            group: the consumer group, for the statistics.
            max_nums, max_bytes: most messages and bytes; at least one message is returned even if it is larger.
            subscription: tag filter; None takes every message.
            wanted: filter on properties, in place of the tag filter.
            may_wait: the caller brings in `cold` of a result that must_read_first, and asks again. Otherwise this call
                waits for the disk.
            bulk: the reader takes much at once. Topics with a store of their own (compaction, batches) do not.

        Raises:
            OSError: the device cannot read what the call waited for.
        """
        result = self._topic_reader.get_message(
            topic, queue_id, offset, max_nums, subscription, max_bytes, wanted, may_wait, bulk
        )
        self.stats.count_get(result.message_count)
        return result

    def min_offset(self, topic: str, queue_id: int) -> int:
        """Return the smallest existing queue offset; -1 for an unknown queue."""
        return self._topic_reader.min_offset(topic, queue_id)

    def max_offset(self, topic: str, queue_id: int) -> int:
        """Returns the queue offset behind the last visible message; 0 for an unknown queue."""
        return self._topic_reader.max_offset(topic, queue_id)

    def taken_offset(self, topic: str, queue_id: int) -> int:
        """Return `max_offset` plus the number of messages stored in the queue that cannot be read here yet."""
        return self._topic_reader.taken_offset(topic, queue_id)

    def offset_by_time(
        self, topic: str, queue_id: int, timestamp: int, boundary: BoundaryType = BoundaryType.LOWER
    ) -> int:
        """Return the queue offset for a store time in ms: LOWER the first message at or after it, UPPER the last at or
        before it; clamped to the queue. For a compaction topic it is always the first at or after it.

        A damaged record has the time of the next one that can be read."""
        return self._topic_reader.offset_by_time(topic, queue_id, timestamp, boundary)

    def earliest_store_time(self, topic: str, queue_id: int) -> int:
        """Store time of the oldest message of a queue, ms; -1 if there is none."""
        return self.store_time_at(topic, queue_id, self.min_offset(topic, queue_id))

    def earliest_message_time(self) -> int:
        """Store time of the oldest message of the log, ms; -1 if there is none."""
        return self.commit_log.store_timestamp(self.commit_log.record_offset(self.commit_log.min_offset))

    def store_time_at(self, topic: str, queue_id: int, offset: int) -> int:
        """Store time of message `offset`, ms; -1 if there is none. Of a compaction topic: of the first one kept at or
        behind it."""
        return self._topic_reader.store_time_at(topic, queue_id, offset)

    def queue_units(self, topic: str, queue_id: int, offset: int, count: int) -> list[tuple[int, int, int]]:
        """Return (physical offset, size, tags code) of up to `count` units from `offset` on. One with
        DAMAGED_TAGS_CODE stands at the place of a damaged message, and names another record. Queues of BatchCQ topics
        have no such units."""
        return self.reader.units(topic, queue_id, offset, count)

    def is_in_queue(self, topic: str, queue_id: int, queue_offset: int, physical_offset: int) -> bool:
        """Return whether a place of a queue is that of the record at a physical offset. Bytes that a client has sent as
        part of a body may look like a record of any topic, but no queue names them."""
        units = self.queue_units(topic, queue_id, queue_offset, 1)
        return bool(units) and units[0][0] == physical_offset and units[0][2] != DAMAGED_TAGS_CODE

    def record_in_queue(self, topic: str, queue_id: int, queue_offset: int) -> memoryview | None:
        """Return the record of the message at a place of a queue; None if there is none. The unit at the place of a
        damaged message names another record, which has its own place."""
        units = self.queue_units(topic, queue_id, queue_offset, 1)
        if not units or units[0][2] == DAMAGED_TAGS_CODE:
            return None
        return self.select_one_message(units[0][0])

    def select_one_message(self, physical_offset: int) -> memoryview | None:
        """Return the record at `physical_offset`; None if none starts there. The offset may come from outside and is
        checked."""
        if physical_offset >= self.max_physical_offset:
            return None
        record = self.commit_log.record(physical_offset)
        if record is None or physical_offset_of(record) != physical_offset:
            return None
        return record

    def look_message_by_offset(self, physical_offset: int) -> MessageExt | None:
        """Return the message whose record begins at `physical_offset`; None if none does."""
        record = self.select_one_message(physical_offset)
        return None if record is None else decode_record(record)

    def records_with(self, needle: bytes, start: int) -> Iterator[list[int]]:
        """Return physical offsets of the records from `start` on (where one begins) that have `needle` in their
        properties, a step of some thousand records at a time."""
        return records_with(self.commit_log, needle, start)

    def query_message(
        self, topic: str, key: str, max_num: int, begin: int, end: int, index_type: str = "K"
    ) -> QueryMessageResult:
        """Return records whose key (or unique key; index_type T: tag) has this hash, stored in [begin, end] ms. Only
        hashes are compared: the caller compares the text."""
        return self.reader.query_message(topic, key, max_num, begin, end, index_type)

    # --- queues and topics ---

    def queue(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """Return the ConsumeQueue; None if it was never written to."""
        return self.queues.find(topic, queue_id)

    def watch(self, topic: str, queue_id: int) -> None:
        """Call the arrival listeners once, when the queue gets its next message."""
        self._tail(topic, queue_id).watched = True

    def _tail(self, topic: str, queue_id: int) -> QueueTail:
        if self.queues.topic_write_state(topic).has_batch_queues:
            return self.queues.open_batch(topic, queue_id).tail
        return self.queues.open(topic, queue_id).tail

    def add_arrival_listener(self, listener: Callable[[list[QueueTail]], None]) -> None:
        """Call `listener(tails)` after each dispatch in which watched queues got messages, after the listeners added
        earlier."""
        self.dispatch.arrival_listeners.append(listener)

    def put_deletion(self, topics: Iterable[str]) -> PutMessageResult:
        """Store the record that deletes these topics (deletions.py). Messages stored later belong to new topics, whose
        queues begin at 0. The deletion is visible when the record is dispatched, as a message is; the records of the
        deleted topics stay in the log until retention deletes them. The result says why nothing was deleted, if so.
        Wait for it as for a message's, then call `finish_deletion`."""
        doomed = set(topics)
        result = self._writer.put_deletion(doomed)
        if result.ok:
            self.compaction.topics -= doomed
        return result

    async def finish_deletion(self, topics: Iterable[str]) -> None:
        """Wait until no message of these topics, which `put_deletion` deleted, can come back, and their files are
        deleted."""
        doomed = set(topics)
        await self.cleaner.finish_deletion(doomed)
        await self.compaction.delete_topics(doomed)

    def put_tables(self, body: bytes) -> PutMessageResult:
        """Store a record of `TABLES_TOPIC`. Wait for its durability as for a message's."""
        return self._writer.put_tables(body)

    def set_table_listener(self, listener: Callable[[MessageExt], None], persist: Callable[[], None]) -> None:
        """Set the `listener` of each dispatched record of `TABLES_TOPIC`; during `load` it is called in the loading
        thread. `persist` is called, in any thread, before the store notes how far it has dispatched, because earlier
        records are not passed to the listener again. It raises OSError if the disk refuses."""
        self._parts.dispatch.on_tables = listener
        self._parts.queue_flusher.before_inventory = persist

    async def unused_topics(self, keep: Container[str]) -> set[str]:
        """Return the topics that have queues and are not in `keep`, without system topics and light queues. On a copy
        of another broker's log the result is empty, because that broker decides which topics are deleted."""
        is_copy = self.config.broker_role == "SLAVE" or (self.ledger is not None and self.leading_term < 0)
        return set() if is_copy else await self.cleaner.unused_topics(keep)

    def incarnation(self, topic: str) -> int:
        """Return the incarnation of a topic: a number that changes when the topic is deleted, and is the same in every
        copy of this log (deletions.py). 0: the topic was never deleted, or not since Java wrote the store."""
        return self.deletions.at(topic)

    def is_gone(self, topic: str, physical_offset: int) -> bool:
        """Returns whether the topic was deleted after the record at `physical_offset` was stored."""
        return self.deletions.is_gone(topic, physical_offset)

    def set_deletion_listener(self, listener: Callable[[list[str], int], None]) -> None:
        """Set the listener that is called as `listener(topics, incarnation)` when topics were deleted. In every copy of
        the log it is called between the same two messages."""
        self._parts.on_deleted = listener

    # --- facts ---

    @property
    def min_physical_offset(self) -> int:
        """Return the physical offset at which the log begins; older files were deleted."""
        return self.commit_log.min_offset

    @property
    def max_physical_offset(self) -> int:
        """Return the physical offset of the next record; for a DLedger log, the committed end."""
        return self._parts.max_physical_offset

    @property
    def appended_offset(self) -> int:
        """Return the physical offset behind the last stored record, visible to readers or not."""
        return self.commit_log.max_offset if self.ledger is None else self.ledger.end_position

    @property
    def leading_term(self) -> int:
        """Return the term in which this member of a DLedger group accepts messages as its leader; -1 if it does not
        lead."""
        return -1 if self.ledger is None else self.ledger.leading_term

    @property
    def newest_file(self) -> int:
        """Physical offset at which the log's last file begins; -1 if there is none."""
        last = self.commit_log.files.last
        return -1 if last is None else last.file_from_offset

    @property
    def flushed_offset(self) -> int:
        """Physical offset below which everything is durable."""
        return self.commit_log.flushed_offset

    @property
    def confirm_offset(self) -> int:
        """Return the physical offset below which readers may see everything."""
        return self.dispatch.dispatcher.dispatched_offset

    @property
    def dispatch_behind_bytes(self) -> int:
        """Bytes of log that are not dispatched yet."""
        return self.max_physical_offset - self.confirm_offset

    def runtime_info(self) -> dict[str, str]:
        """Return the store's part of GET_BROKER_RUNTIME_INFO, by RocketMQ's names."""
        log_ratio, queue_ratio = self.cleaner.disk_ratios()
        return {
            **self.stats.runtime_info(self.topics.values()),
            "commitLogDiskRatio": str(log_ratio),
            "consumeQueueDiskRatio": str(queue_ratio),
            "commitLogMinOffset": str(self.min_physical_offset),
            "commitLogMaxOffset": str(self.max_physical_offset),
            "dispatchBehindBytes": str(self.dispatch_behind_bytes),
            "pageCacheLockTimeMills": "0",
            "earliestMessageTimeStamp": str(self.earliest_message_time()),
            "damagedLogRanges": str(self.stats.damaged_ranges),
            "damagedQueueUnits": str(self.reader.damaged_units),
        }
