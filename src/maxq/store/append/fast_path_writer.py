"""Into the log without a Python object a message: rows of fast-path sends, what committed transactions deliver, and
copies. The door of the compiled path (log_rows_cy, log_final_cy, LogTail); what it cannot take, it leaves to
MessageWriter."""

from typing import Any, NamedTuple

from maxq.protocol.dledger.dledger_messages import ENTRY_BODY_MAX
from maxq.protocol.frame.send_rows import F_BATCH, F_HALF, R_FLAGS, R_QUEUE_ID, R_TOPIC, R_TOPIC_SIZE, ROW_WIDTH
from maxq.protocol.message.message_const import PROPERTY_INNER_MULTI_QUEUE_OFFSET
from maxq.protocol.message.record_layout import HEAD_SIZE_MAX, HOSTS_V6, MULTI_TAGS, host_bits
from maxq.store.append.append_admission import AppendAdmission
from maxq.store.append.append_propagation import AppendPropagation
from maxq.store.append.log_final_cy import append_final
from maxq.store.append.log_rows_cy import append_arrivals, append_rows
from maxq.store.append.message_writer import MAX_PROPERTIES
from maxq.store.append.record_copy_cy import RecordCopy
from maxq.store.context.store_context import StoreContext
from maxq.store.dledger.dledger_commit_log import DLedgerCommitLog
from maxq.store.durability.flush import CommitLogFlusher
from maxq.store.log.commit_log import END_FILE_MIN_BLANK_LENGTH, CommitLog
from maxq.store.queue.consume_queue_store import ConsumeQueueStore

_PLACES = PROPERTY_INNER_MULTI_QUEUE_OFFSET.encode()
_ROW_IN_ENTRY = ENTRY_BODY_MAX - 64 * 1024  # largest row that fits into an entry, whatever its properties are


class RowsAppended(NamedTuple):
    """Outcome of `append_rows`.

    Attributes:
        rows: how many were stored; 0: the first one must take the slow path.
        end_offset: physical end of the last record, for `CommitLogFlusher.when_durable`.
        log: what they were written to; it begins at physical offset `file_from_offset`.
        took_ms: how long the append held the log.
    """

    rows: int
    end_offset: int
    log: memoryview
    file_from_offset: int
    took_ms: int


_NO_ROWS = RowsAppended(0, 0, memoryview(b""), 0, 0)


class FastPathWriter:
    """Appends parsed sends to the log and its queues in one pass, without an object for each message."""

    def __init__(
        self,
        context: StoreContext,
        commit_log: CommitLog,
        queues: ConsumeQueueStore,
        flusher: CommitLogFlusher,
        admission: AppendAdmission,
        propagation: AppendPropagation,
    ) -> None:
        self._context = context
        self._commit_log = commit_log
        self._queues = queues
        self._flusher = flusher
        self._admission = admission
        self._propagation = propagation

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
        """Store send rows (see protocol/send_rows), into one CommitLog file a call. Rows that are stored get their
        physical offset, queue offset, size and count filled in. Ask `AppendAdmission.refusal` first.

        Args:
            suffix: property bytes put behind those of every row.

        Returns:
            How many of rows [first, first + count) were stored. Fewer: call again for the rest; 0: row `first` must
            take `put_message`.
        """
        if self._brings_places(source):
            return _NO_ROWS
        context = self._context
        log = self._commit_log
        tail = log.tail
        began = context.clock.monotonic_ms()
        now = context.clock.wall_ms()
        done = 0
        if not context.config.enabled_append_prop_crc:  # the slow path writes the CRC property
            while True:
                done = append_rows(
                    tail, source, scratch, rows, first, count, self._queues.topics, born_host,
                    context.identity.store_host, now, suffix, self._most_of_a_row(),
                )  # fmt: skip
                if not done and not tail.full and self._open_queues(source, rows, first, count):
                    continue
                is_whole_and_empty = tail.wrote_position == 0 and tail.file_size == log.files.file_size
                if done or not tail.full or is_whole_and_empty or self._would_part(rows, first):
                    break
                if self._admission.make_room() is not None:
                    break
        return self._appended(done, began, now)

    def _open_queues(self, source: bytearray | memoryview, rows: Any, first: int, count: int) -> bool:
        """Open the queues of rows [first, first + count) that their topics have, and that no message has come to yet.
        Returns whether there are any; their files are made when the messages are dispatched."""
        is_any = False
        for row in range(first * ROW_WIDTH, (first + count) * ROW_WIDTH, ROW_WIDTH):
            name, queue_id = rows[row + R_TOPIC], rows[row + R_QUEUE_ID]
            topic = self._queues.topics.get(bytes(source[name : name + rows[row + R_TOPIC_SIZE]]))
            if topic is None or not topic.is_fast_path_open or topic.has_batch_queues or rows[row + R_FLAGS] & F_HALF:
                continue
            if 0 <= queue_id <= topic.max_queue_id and queue_id not in topic.queues:
                self._queues.open(topic.topic, queue_id)
                is_any = True
        return is_any

    def _most_of_a_row(self) -> int:
        """Returns the longest body in bytes that is stored straight from a row; MessageWriter stores longer ones."""
        config = self._context.config
        most = config.max_message_size
        return min(most, _ROW_IN_ENTRY) if config.enable_dleger_commit_log else most

    def _would_part(self, rows: Any, first: int) -> bool:
        """Return whether row `first` is a batch that does not fit into the current file as a whole although some of its
        messages do. A DLedger log begins a new file only for an entry that does not fit, as Java's followers
        require; MessageWriter splits such a batch over both files."""
        log = self._commit_log
        return (
            isinstance(log, DLedgerCommitLog)
            and bool(int(rows[first * ROW_WIDTH + R_FLAGS]) & F_BATCH)
            and log.must_roll
        )

    def append_arrivals(
        self,
        source: bytearray,
        scratch: bytearray,
        rows: Any,
        table: Any,
        born_hosts: list[bytes],
        suffix: bytes,
    ) -> RowsAppended:
        """Append the rows of all arrivals of one turn of the loop, as `append_rows` does for one arrival. This never
        begins a new file: the row of `table` of an arrival that was not stored completely says so
        (log_rows_cy.append_arrivals)."""
        context = self._context
        began = context.clock.monotonic_ms()
        now = context.clock.wall_ms()
        done = append_arrivals(
            self._commit_log.tail, source, scratch, rows, table, born_hosts, self._queues.topics,
            context.identity.store_host, now, suffix,
            # 0: no body is that small; the slow path writes the CRC property
            0 if context.config.enabled_append_prop_crc or self._brings_places(source) else self._most_of_a_row(),
        )  # fmt: skip
        return self._appended(done, began, now)

    def _brings_places(self, source: bytearray | memoryview) -> bool:
        """Returns whether a client may have named offsets in light queues, which only MessageWriter removes."""
        return self._queues.has_light_places and _PLACES in bytes(source)

    def _appended(self, done: int, began_ms: int, now_ms: int) -> RowsAppended:
        """Count `rows` appended rows and publish them."""
        if done == 0:
            return _NO_ROWS
        log = self._commit_log
        tail = log.tail
        view, file_from_offset = log.tail_view, tail.file_from_offset
        end = file_from_offset + tail.wrote_position
        took = self._admission.took(began_ms)
        self._flusher.appended_timestamp = now_ms
        self._propagation.appended()
        return RowsAppended(done, end, view, file_from_offset, took)

    def append_final(self, record: memoryview, group: bytes) -> int:
        """Store the message that a committed transaction delivers, straight from the record of its half message. Ask
        `AppendAdmission.refusal` first, and call `MessageStore.appended` after one or several.

        Args:
            group: the producer group that commits.

        Returns:
            Bytes of the new record, which is the last one of the log; 0: not stored, this one must take `put_message`.
        """
        context, log = self._context, self._commit_log
        if context.config.enabled_append_prop_crc:  # the slow path writes the CRC property
            return 0
        began = context.clock.monotonic_ms()
        now = context.clock.wall_ms()
        while True:
            size = append_final(log.tail, record, group, self._queues.topics, now)
            is_whole_and_empty = log.tail.wrote_position == 0 and log.tail.file_size == log.files.file_size
            if size or not log.tail.full or is_whole_and_empty or self._admission.make_room() is not None:
                break
        if size:
            self._admission.took(began)
            self._flusher.appended_timestamp = now
        return size

    @property
    def final_topic(self) -> str:
        """Return the topic that the last `append_final` stored into."""
        state = self._commit_log.tail.final_topic
        return "" if state is None else state.topic

    def append_copy(
        self, record: memoryview, copy: RecordCopy, topic: bytes, queue_id: int, properties: bytes,
        reconsume_times: int, store_host: bytes | None = None,
    ) -> int:  # fmt: skip
        """Store a copy of `record`, which `copy` has just read, in another queue. Ask `AppendAdmission.refusal` first,
        and call `MessageStore.appended` after one or several.

        Args:
            store_host: None takes this broker's.

        Returns:
            Bytes of the new record, which is the last one of the log; 0: not stored, this one must take `put_message`.
        """
        context, log = self._context, self._commit_log
        config = context.config
        state = self._queues.topics.get(topic)
        queue = None if state is None or state.has_batch_queues or state.is_static else state.queues.get(queue_id)
        host = store_host or context.identity.store_host
        body_size = copy.body_end - copy.body_start
        size = HEAD_SIZE_MAX + body_size + len(topic) + len(properties)
        if (
            state is None
            or queue is None
            or config.enabled_append_prop_crc  # the slow path writes the CRC property
            or len(properties) > MAX_PROPERTIES
            or body_size > config.max_message_size
            or (context.is_dledger and size > ENTRY_BODY_MAX)
            or size + log.tail.head + END_FILE_MIN_BLANK_LENGTH > config.mapped_file_size_commit_log
        ):
            return 0
        sys_flag = copy.sys_flag & ~HOSTS_V6 | host_bits(len(copy.born_host), len(host))
        began = context.clock.monotonic_ms()
        now = context.clock.wall_ms()
        while True:
            written = log.tail.append_record(
                topic, queue_id, copy.flag, queue.next_queue_offset, sys_flag | (MULTI_TAGS if state.multi_tags else 0),
                copy.born_timestamp, copy.born_host, now, host, reconsume_times, 0,
                record[copy.body_start : copy.body_end], properties, copy.body_crc, False,
            )  # fmt: skip
            if written > 0:
                break
            if self._admission.make_room(size) is not None:
                return 0
        queue.next_queue_offset += 1
        state.put_nums += 1
        state.put_bytes += written
        self._admission.took(began)
        self._flusher.appended_timestamp = now
        return written
