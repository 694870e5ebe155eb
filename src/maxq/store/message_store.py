"""The store: the only door to messages on disk (DefaultMessageStore.java).

Life: `load()` recovers and returns a RecoveryReport; `start()`, on a running loop, begins flushing, cleaning and
preallocation; `shutdown()` makes everything durable and removes the abort file. Without a loop (offline tools)
`load()`, `put_message`, the reads and `close()` work too; flushes then happen inline.

Everything runs on the loop's thread; what blocks leaves it through `run_in_executor`.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

from maxq.config.message_store_config import MessageStoreConfig
from maxq.errors import StoreFailedError
from maxq.protocol.enums import BoundaryType
from maxq.protocol.message import MessageExt, decode_record
from maxq.runtime.blocking import run_blocking
from maxq.runtime.interfaces import Clock, Disk
from maxq.store.clean import CleanService
from maxq.store.commit_log import CommitLog
from maxq.store.compaction.compaction_store import CompactionStore
from maxq.store.consume_queue import ConsumeQueue
from maxq.store.consume_queue_flusher import ConsumeQueueFlusher
from maxq.store.consume_queue_store import ConsumeQueueStore
from maxq.store.disk_room import DiskRoom
from maxq.store.dispatch import DispatchRequest, DispatchService
from maxq.store.file_allocator import FileAllocator
from maxq.store.flush import CommitLogFlusher
from maxq.store.index_file import IndexFile
from maxq.store.index_flusher import IndexFlusher
from maxq.store.index_service import IndexService
from maxq.store.log_cy import QueueTail, TopicTail
from maxq.store.log_search import records_with
from maxq.store.message_ext_broker_inner import MessageExtBrokerInner
from maxq.store.message_reader import MessageReader, TagFilter, tags_codes
from maxq.store.message_writer import MessageWriter, RowsAppended
from maxq.store.property_filter import PropertyFilter
from maxq.store.queue_loader import load_queues
from maxq.store.recovery import Recovery, RecoveryReport
from maxq.store.replica_append import ReplicaAppender
from maxq.store.restore_places import restore_keys, restore_places
from maxq.store.running_flags import RunningFlags
from maxq.store.seals import Seals
from maxq.store.store_checkpoint import StoreCheckpoint
from maxq.store.store_context import StoreContext, StoreIdentity
from maxq.store.store_files import AbortFile, StoreLock, machine_memory, refuse_foreign_store, refusing
from maxq.store.store_inventory import InventoryFile
from maxq.store.store_results import GetMessageResult, PutMessageResult, PutMessageStatus, QueryMessageResult
from maxq.store.store_stats import StoreStats

log = logging.getLogger(__name__)

_MAX_PULL_BYTES = 128 << 20
#: Default of `populate_ahead`.
POPULATE_AHEAD = 8 << 20


class MessageStore:
    """One broker's messages.

    Attributes:
        topics: topic bytes → TopicTail, as the compiled send path looks it up.
        flags: why the store may not be written, if so.
        seals: ranges of the log where a start, of this store or of its master's, has put a filler.
        stats: counters for GET_BROKER_RUNTIME_INFO.
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
            populate_ahead: bytes of log and index in front of their writers whose pages are made ready on the executor;
                0 for none. Not for a staged log, whose writer touches no pages.
        """
        self._context = StoreContext(config, disk, clock, broker)
        context = self._context
        self._allocator = FileAllocator(context)
        self.commit_log = CommitLog(context, self._allocator, populate_ahead)
        self.queues = ConsumeQueueStore(context)
        self.checkpoint = StoreCheckpoint(context)
        self.index = IndexService(context, self._on_index_full, populate_ahead // 4)
        self._index_flusher = IndexFlusher(context, self.index, self.checkpoint, self._failed)
        self.dispatch = DispatchService(context, self.commit_log, self.queues, self.index)
        self.compaction = CompactionStore(context, self.commit_log, self.queues)
        self._inventory_file = InventoryFile(context)
        self.seals = Seals(context, self.commit_log, self.dispatch.judge)
        self.flusher = CommitLogFlusher(context, self.commit_log, self.checkpoint, self._on_durable)
        self.queue_flusher = ConsumeQueueFlusher(
            context, self.commit_log, self.flusher, self.queues, self.index, self.dispatch.dispatcher, self.checkpoint,
            self._inventory_file,
        )  # fmt: skip
        self.stats = StoreStats(context)
        memory = machine_memory(disk) if memory_bytes is None else memory_bytes
        self.reader = MessageReader(context, self.commit_log, self.queues, self.index, memory)
        self.disk_room = DiskRoom(context, self.commit_log.make_room, self._dispatch_all)
        self.writer = MessageWriter(
            context, self.commit_log, self.queues, self.flusher, self.dispatch, self.disk_room, self._on_appended
        )
        self.cleaner = CleanService(
            context, self.commit_log, self.queues, self.index, self.queue_flusher, self.dispatch
        )
        self.cleaner.compacted = self.compaction.topics
        self._lock = StoreLock(context)
        self._abort = AbortFile(context)
        self._replica: ReplicaAppender | None = None
        self._on_append: Callable[[], None] | None = None
        self._services: list[asyncio.Task[None]] = []
        self._on_service_failed: Callable[[str, BaseException], None] | None = None
        self._loaded = False
        self.report = RecoveryReport()

    # --- life ---

    @property
    def config(self) -> MessageStoreConfig:
        return self._context.config

    def update_config(self, config: MessageStoreConfig) -> None:
        """Take live settings, and the role: a slave takes its master's bytes only, a master messages."""
        self._context.config = config
        if self._loaded:
            self._take_role()

    def _take_role(self) -> None:
        is_slave = self.config.broker_role == "SLAVE"
        self.commit_log.stage(self.flusher.is_sync and not is_slave)
        self.dispatch.is_copy = is_slave
        if is_slave and self._replica is None:
            self._replica = ReplicaAppender(self.commit_log)
        elif not is_slave:
            self.drop_pending()
            self._replica = None

    @property
    def identity(self) -> StoreIdentity:
        return self._context.identity

    def set_store_host(self, store_host: bytes) -> None:
        """The address that records carry from now on: a broker on port 0 learns its port after `load`."""
        self._context.identity = replace(self._context.identity, store_host=store_host)

    @property
    def flags(self) -> RunningFlags:
        return self._context.flags

    @property
    def topics(self) -> dict[bytes, TopicTail]:
        return self.queues.topics

    def load(self) -> RecoveryReport:
        """Lock the folder, find everything, recover. Blocks.

        Raises:
            StoreRefusedError: the store is another process's, of a kind that MaxQ cannot read, on a disk that cannot
                be written, or a CommitLog file is missing or has the wrong size; says which file, what is wrong and
                what to do.
        """
        jobs = self._context.jobs
        jobs.is_closed = True  # all inline, also where a loop runs (recovery as a tool): `close` may follow at once
        try:
            with refusing(self._context):
                return self._load()
        finally:
            jobs.is_closed = False

    def _load(self) -> RecoveryReport:
        context = self._context
        began = context.clock.monotonic_ms()
        refuse_foreign_store(context)
        self._lock.take()
        try:
            report = self.report = RecoveryReport(clean_exit=not self._abort.exists())
            self.commit_log.load()
            queue_faults = load_queues(context, self.queues)
            report.faults += [fault.text for fault in queue_faults]
            fault = self.checkpoint.load()
            report.faults += [fault] if fault else []
            safe = None if report.clean_exit else self.checkpoint.index_msg_timestamp
            if self.config.message_index_enable:
                report.faults += self.index.load(newest_safe_timestamp=safe)
            # from here on files change: a crash must be seen by the next start
            self._abort.create()
            self.seals.load()
            Recovery(
                context, self.commit_log, self.queues, self.index, self.dispatch, self.checkpoint,
                self._inventory_file, queue_faults, report, self.seals,
            ).run()  # fmt: skip
            self.compaction.load(clean_exit=report.clean_exit)
        except BaseException:
            self._lock.release()
            raise
        self.index.attach_last()
        self.checkpoint.not_beyond(self.commit_log.max_offset)
        self.flusher.appended_timestamp = max(
            self.checkpoint.physic_msg_timestamp, self.dispatch.dispatcher.last_store_timestamp
        )
        report.queues = sum(1 for _ in self.queues) + len(self.queues.batch_queues)
        report.duration_ms = context.clock.monotonic_ms() - began
        self._loaded = True
        self._take_role()
        self.stats.damaged_ranges += len(report.damages)
        for line in report.lines():
            log.info("recovery: %s", line)
        return report

    def start(self) -> None:
        """Begin the services; needs a running loop."""
        assert self._loaded, "load() comes before start()"
        loop = asyncio.get_running_loop()
        for name, run in (
            ("commit log flush", self.flusher.run()),
            ("consume queue flush", self.queue_flusher.run()),
            ("clean", self.cleaner.run()),
            ("disk room", self.disk_room.run()),
            ("compaction", self.compaction.run()),
        ):
            task = loop.create_task(run, name=f"store: {name}")
            task.add_done_callback(self._service_ended)
            self._services.append(task)
        self.commit_log.create_ahead()

    def set_service_failed(self, callback: Callable[[str, BaseException], None]) -> None:
        """`callback(name, error)` is told when a service ends by an error: the process should stop."""
        self._on_service_failed = callback

    def _service_ended(self, task: "asyncio.Task[None]") -> None:
        if task.cancelled():
            return
        error = task.exception()
        if error is not None:
            self._failed(task.get_name(), error)

    def _failed(self, name: str, error: BaseException) -> None:
        log.critical("%s failed", name, exc_info=None if isinstance(error, StoreFailedError) else error)
        if self._on_service_failed is not None:
            self._on_service_failed(name, error)

    async def shutdown(self) -> None:
        """End the services, make everything durable, remove the abort file (kept if something could not be written)."""
        if not self._loaded:
            return
        for task in self._services:
            task.cancel()
        await asyncio.gather(*self._services, return_exceptions=True)
        self._services.clear()
        await self.flusher.flush_all()
        async with self.queue_flusher.lock:  # who deletes queues just now has ended before
            with contextlib.suppress(OSError):  # noted by the flusher: the abort file then stays
                await self.queue_flusher.flush_queues(0)
            await self._context.jobs.close()
            await run_blocking(self._close)
        self.flusher.close()

    def close(self) -> None:
        """`shutdown` for a store without a loop. Blocks."""
        if not self._loaded:
            return
        if self.flusher.failure is None:
            self.flusher.flush_inline()
        self._context.jobs.is_closed = True
        self._close()

    def _close(self) -> None:
        self._loaded = False
        self.drop_pending()
        self._allocator.discard()
        end = self.commit_log.max_offset
        self.dispatch.run(self.commit_log.flushed_offset)
        complete = self._write_last(end)
        if not complete:
            behind = f"dispatch is at {self.dispatch.dispatcher.dispatched_offset} of {end}"
            log.error("the abort file stays, the next start recovers: %s; %s", behind, self.flags.why())
        self.compaction.close()
        self.checkpoint.release()
        self.commit_log.release_tail()
        self.commit_log.files.release()
        self.queues.release_all()
        self.index.release()
        if complete:
            self._abort.remove()
        self._lock.release()

    def _write_last(self, end: int) -> bool:
        """Make queues, index and checkpoint durable at shutdown; False if they are not complete."""
        if self.dispatch.dispatcher.dispatched_offset < end or not self.flags.cq_writable:
            return False
        if self.flusher.failure is not None or self.queue_flusher.failure is not None:
            return False
        try:
            self.index.flush_last()
            stored = max(self.checkpoint.physic_msg_timestamp, self.flusher.appended_timestamp)
            self.checkpoint.physic_msg_timestamp = stored
            self.queue_flusher.flush_inline(log_end=end)
        except OSError as error:
            log.error("writing at shutdown failed: %s", error)
            return False
        return True

    # --- writing ---

    def put_message(self, message: MessageExtBrokerInner) -> PutMessageResult:
        """Store one message. Never raises for what a client did wrong: the result says it.

        The message is visible at once with ASYNC_FLUSH, after the group commit with SYNC_FLUSH. It is durable when
        `when_durable(result.end_offset, …)` says so.
        """
        return self.writer.put_message(message)

    def put_batch(self, message: MessageExtBrokerInner) -> PutMessageResult:
        """Store the messages of a batch body (MessageDecoder.encodeMessages), all or none, one after the other."""
        return self.writer.put_batch(message)

    def append_rows(
        self,
        source: bytearray | memoryview,
        scratch: bytearray,
        rows: Any,
        first: int,
        count: int,
        born_host: bytes,
        suffix: bytes,
    ) -> RowsAppended:
        """Store send rows (see protocol/frames_cy): the batch path, into one CommitLog file a call. Rows that are
        stored get their physical offset, queue offset, size and count filled in. Ask `refusal` first.

        Args:
            suffix: property bytes put behind those of every row.

        Returns:
            How many of rows [first, first + count) were stored. Fewer: call again for the rest; 0: row `first` must
            take `put_message`.
        """
        return self.writer.append_rows(source, scratch, rows, first, count, born_host, suffix)

    def when_durable(self, end_offset: int, done: Callable[[bool], None]) -> bool:
        """Call `done(True)` when everything below `end_offset` is durable, `done(False)` after syncFlushTimeout or a
        failed flush; never before this returns.

        Returns:
            False: nothing to wait for (ASYNC_FLUSH, or durable already), and `done` is not called.
        """
        return self.flusher.when_durable(end_offset, done)

    async def flush(self) -> None:
        """Wait until everything that is in the log now is durable, or flushing has failed: compare `flushed_offset`."""
        await self.flusher.flush_all()

    def settle(self) -> None:
        """Have all that is stored in the files: it then outlives the process, though not the machine."""
        try:
            self.commit_log.settle(self.commit_log.max_offset)
        except OSError as error:
            self.flusher.fail(error)

    def refusal(self) -> PutMessageStatus | None:
        """May messages be stored now? None if so. Cheap: ask before every batch."""
        return self.writer.refusal() if self._loaded else PutMessageStatus.SERVICE_NOT_AVAILABLE

    def refusal_remark(self) -> str:
        """The cause of `refusal`, with measured value, limit and remedy; empty if there is none."""
        return self.writer.remark() if self._loaded else "the store is closed: this broker is starting or shutting down"

    @property
    def is_writable(self) -> bool:
        return self._loaded and self.flags.writable

    def _dispatch_all(self) -> None:
        self.dispatch.run(self.commit_log.flushed_offset if self.flusher.is_sync else self.commit_log.max_offset)

    def _on_appended(self) -> None:
        if self._on_append is not None:
            self._on_append()
        if self.flusher.is_sync:
            self.flusher.commit_soon()
        else:
            self.dispatch.run(self.commit_log.max_offset)
        self.commit_log.prepare_ahead()
        self.index.prepare_ahead()

    # --- replication ---

    @property
    def master_address(self) -> str:
        """As `set_master_address` was told last."""
        return self._context.master_address

    def set_master_address(self, address: str) -> None:
        """Where a slave's master is, `host:port`, for the remark of what the slave refuses; empty: unknown."""
        self._context.master_address = address

    def append_from_master(self, physical_offset: int, data: memoryview) -> int:
        """A slave takes `data`, its master's log from `physical_offset` on; see ReplicaAppender.append.

        Returns:
            Physical offset behind the last verified record: what may be acknowledged.

        Raises:
            ReplicationGapError, ReplicationDamageError: not a continuation, or no records.
            OSError: the disk has no room.
        """
        replica = self._replica
        assert replica is not None, "only a loaded store whose brokerRole is SLAVE takes a master's bytes"
        before = self.commit_log.max_offset
        try:
            return replica.append(physical_offset, data)
        finally:
            if self.commit_log.min_offset > self.confirm_offset:  # it has just begun, above 0
                self.dispatch.dispatcher.dispatched_offset = self.commit_log.min_offset
            if self.commit_log.max_offset > before:
                self.flusher.appended_timestamp = max(self.flusher.appended_timestamp, replica.last_store_timestamp)
                self._on_appended()

    def drop_pending(self) -> None:
        """A slave's connection broke: forget the bytes of a record that did not come whole."""
        if self._replica is not None:
            self._replica.drop_pending()

    @property
    def damaged_from_master(self) -> int:
        """Records a slave took although their CRC is wrong, because the master's log has them so."""
        return 0 if self._replica is None else self._replica.damaged_from_master

    @property
    def last_record_offset(self) -> int:
        """Of a slave: physical offset of the last record; -1 if there is none."""
        return -1 if self._replica is None else self._replica.last_record_offset

    def restore_places(self, physical_offset: int, size: int) -> int:
        """A range that a start had sealed as damaged holds its records again: give them their places in the queues, and
        index their keys.

        Returns:
            How many queue units were written.
        """
        dispatcher = self.dispatch.dispatcher
        written = restore_places(self.commit_log, self.queues, dispatcher.delay_table, physical_offset, size)
        if self.config.message_index_enable and physical_offset + size <= dispatcher.dispatched_offset:
            try:
                restore_keys(self.commit_log, self.index, dispatcher.index_tags, physical_offset, size)
            except OSError as error:
                log.error("what is back from physical offset %d on is not all in the index: %s", physical_offset, error)
        return written

    def log_bytes(self, offset: int, limit: int) -> memoryview | None:
        """At most `limit` bytes of the mapped log from physical offset `offset` on, within one file; None if the log
        has nothing there (compare with `min_physical_offset` and `max_physical_offset` to tell why)."""
        file = self.commit_log.file_at(offset)
        end = self.commit_log.max_offset
        if file is None or offset >= end:
            return None
        position = offset - file.file_from_offset
        stop = min(position + limit, file.file_size, end - file.file_from_offset)
        self.commit_log.settle(file.file_from_offset + stop)
        return file.view[position:stop]

    def set_bit_map_source(self, source: Callable[[str, memoryview], bytes]) -> None:
        """`source(topic, record)` gives the bit map of a record's extension unit, empty for none."""
        self.dispatch.bit_map_of = source

    def set_append_listener(self, listener: Callable[[], None]) -> None:
        """`listener` is called after each append to the log, before dispatch: it wakes what sends to slaves."""
        self._on_append = listener

    def _on_durable(self) -> None:
        if self.flusher.is_sync:
            self.dispatch.run(self.commit_log.flushed_offset)

    def _on_index_full(self, file: IndexFile) -> None:
        self._index_flusher.flush_full(file)

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
    ) -> GetMessageResult:
        """Messages from queue offset `offset` on (DefaultMessageStore.getMessage; rules: store-format §19.1).

        Args:
            group: who asks; for the statistics.
            max_nums, max_bytes: at most so much; at least one message is returned even if it is larger.
            subscription: tag filter; None takes every message.
            wanted: filter on properties, in place of the tag filter.
            may_wait: the caller brings in `cold` of a result that must_read_first, and asks again.
        """
        if topic in self.compaction.topics:
            result = self.compaction.get_message(
                topic, queue_id, offset, max_nums, max_bytes, tags_codes(subscription), _test_of(wanted)
            )
        else:
            result = self.reader.get_message(
                topic, queue_id, offset, max_nums, subscription, max_bytes, wanted, may_wait
            )
        self.stats.count_get(result.message_count, result.total_bytes)
        return result

    def min_offset(self, topic: str, queue_id: int) -> int:
        """Smallest queue offset still there; -1 for an unknown queue."""
        if topic in self.compaction.topics and (kept := self.compaction.current(topic, queue_id)) is not None:
            return kept.min_offset
        batch = self.queues.batch_queues.get((topic, queue_id))
        if batch is not None:
            return batch.min_offset(self.commit_log.min_offset)
        queue = self.queues.find(topic, queue_id)
        return -1 if queue is None else queue.min_offset(self.commit_log.min_offset)

    def max_offset(self, topic: str, queue_id: int) -> int:
        """Queue offset behind the last visible message; 0 for an unknown queue."""
        batch = self.queues.batch_queues.get((topic, queue_id))
        if batch is not None:
            return batch.max_offset
        queue = self.queues.find(topic, queue_id)
        return 0 if queue is None else queue.max_offset

    def offset_by_time(
        self, topic: str, queue_id: int, timestamp: int, boundary: BoundaryType = BoundaryType.LOWER
    ) -> int:
        """Queue offset for a store time in ms: LOWER the first message at or after it, UPPER the last at or before it;
        clamped to the queue. Of a compaction topic always the first at or after it."""
        if topic in self.compaction.topics and (kept := self.compaction.current(topic, queue_id)) is not None:
            return kept.offset_by_time(timestamp)
        return self.reader.offset_by_time(topic, queue_id, timestamp, boundary)

    def earliest_store_time(self, topic: str, queue_id: int) -> int:
        """Store time of the oldest message of a queue, ms; -1 if there is none."""
        return self.store_time_at(topic, queue_id, self.min_offset(topic, queue_id))

    def earliest_message_time(self) -> int:
        """Store time of the oldest message of the log, ms; -1 if there is none."""
        return self.commit_log.store_timestamp(self.commit_log.min_offset)

    def store_time_at(self, topic: str, queue_id: int, offset: int) -> int:
        """Store time of message `offset`, ms; -1 if there is none. Of a compaction topic: of the first one kept at or
        behind it."""
        if topic in self.compaction.topics and (kept := self.compaction.current(topic, queue_id)) is not None:
            return kept.store_time_at(offset)
        return self.reader.store_time_at(topic, queue_id, offset)

    def is_in_memory(self, topic: str, queue_id: int, offset: int) -> bool:
        """Is message `offset` there, and near enough to the end of the log to count as being in memory
        (accessMessageInMemoryMaxRatio)?"""
        return self.reader.is_in_memory(topic, queue_id, offset)

    def queue_units(self, topic: str, queue_id: int, offset: int, count: int) -> list[tuple[int, int, int]]:
        """(physical offset, size, tags code) of up to `count` units from `offset` on. Queues of BatchCQ topics have no
        such units."""
        return self.reader.units(topic, queue_id, offset, count)

    def select_one_message(self, physical_offset: int) -> memoryview | None:
        """The record at `physical_offset`; None if none starts there. The offset may come from anybody."""
        record = self.commit_log.record(physical_offset)
        if record is None or int.from_bytes(record[28:36], "big") != physical_offset:
            return None
        return record

    def look_message_by_offset(self, physical_offset: int) -> MessageExt | None:
        """The decoded record at `physical_offset`."""
        record = self.select_one_message(physical_offset)
        return None if record is None else decode_record(record)

    def records_with(self, needle: bytes, start: int) -> Iterator[list[int]]:
        """Physical offsets of the records from `start` on (where one begins) that have `needle` in their properties,
        some thousand records a step."""
        return records_with(self.commit_log, needle, start)

    def query_message(
        self, topic: str, key: str, max_num: int, begin: int, end: int, index_type: str = "K"
    ) -> QueryMessageResult:
        """Records whose key (or unique key; index_type T: tag) has this hash, stored in [begin, end] ms. Only hashes
        are
        compared: the asker checks the text."""
        return self.reader.query_message(topic, key, max_num, begin, end, index_type)

    # --- queues and topics ---

    def topic_tail(self, topic: str) -> TopicTail:
        """What append and dispatch know of a topic; made if missing. The broker sets `plain`, `max_queue_id` …"""
        return self.queues.topic_tail(topic)

    def open_queues(self, topic: str, count: int) -> None:
        """Make queues 0 … count - 1 known, so that the compiled send path finds them."""
        for queue_id in range(count):
            self.queues.open(topic, queue_id)

    def queue(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        return self.queues.find(topic, queue_id)

    def watch(self, topic: str, queue_id: int) -> None:
        """Tell the arrival listener once, when the queue gets its next message."""
        self._tail(topic, queue_id).watched = True

    def unwatch(self, topic: str, queue_id: int) -> None:
        """Nobody waits for this queue any more."""
        self._tail(topic, queue_id).watched = False

    def _tail(self, topic: str, queue_id: int) -> QueueTail:
        if self.queues.topic_tail(topic).batch:
            return self.queues.open_batch(topic, queue_id).tail
        return self.queues.open(topic, queue_id).tail

    def set_arrival_listener(self, callback: Callable[[list[QueueTail]], None]) -> None:
        """`callback(tails)` is called after each dispatch in which watched queues got messages."""
        self.dispatch.on_arrival = callback

    def hook(self, topic: str, function: Callable[[DispatchRequest], None]) -> None:
        """Let `function` see every record of `topic` when it is dispatched."""
        self.dispatch.hook(topic, function)

    def set_batch_topics(self, is_batch_topic: Callable[[str], bool]) -> None:
        """How the store learns which topics have the attribute queue.type=BatchCQ; set before `load`."""
        self.queues.is_batch_topic = is_batch_topic

    async def delete_topics(self, topics: Iterable[str]) -> int:
        """Delete all queues of these topics; their records stay in the log until it is cleaned. Returns how many
        queues were deleted."""
        doomed = set(topics)
        await self.compaction.delete_topics(doomed)
        return await self.cleaner.delete_topics(doomed)

    async def clean_unused_topics(self, keep: Iterable[str]) -> int:
        """Delete the queues of topics that are not in `keep` (system topics stay)."""
        return await self.cleaner.clean_unused_topics(set(keep))

    async def clean_expired_consume_queues(self) -> int:
        """Delete queues whose last message was cleaned away (system topics stay). Returns how many."""
        return await self.cleaner.clean_expired_consume_queues()

    def execute_delete_files_manually(self) -> None:
        """Clean at the next opportunity, whatever the hour."""
        self.cleaner.request()

    # --- facts ---

    @property
    def min_physical_offset(self) -> int:
        return self.commit_log.min_offset

    @property
    def max_physical_offset(self) -> int:
        return self.commit_log.max_offset

    @property
    def flushed_offset(self) -> int:
        """Everything below is durable."""
        return self.commit_log.flushed_offset

    @property
    def confirm_offset(self) -> int:
        """Everything below may be seen by readers."""
        return self.dispatch.dispatcher.dispatched_offset

    @property
    def dispatch_behind_bytes(self) -> int:
        """Bytes of log that are not dispatched yet."""
        return self.commit_log.max_offset - self.confirm_offset

    @property
    def damaged_units(self) -> int:
        """Queue units that readers met and passed over because no record is where they say."""
        return self.reader.damaged_units

    def runtime_info(self) -> dict[str, str]:
        """The store's part of GET_BROKER_RUNTIME_INFO, by RocketMQ's names."""
        return self.stats.runtime_info(self)

    def disk_ratios(self) -> tuple[float, float]:
        """Used share of the partitions of CommitLog and ConsumeQueue, 0…1; -1 unknown."""
        return self.cleaner.disk_ratios()


def _test_of(wanted: PropertyFilter | None) -> Callable[[memoryview], bool] | None:
    if wanted is None:
        return None
    predicate = wanted.predicate
    return lambda record: predicate.matches_record(record, 0, len(record))
