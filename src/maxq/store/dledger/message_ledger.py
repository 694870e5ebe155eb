"""The broker's DLedger log: messages inside entries (DLedgerCommitLog.java, DLedgerRoleChangeHandler.java).

Messages come in through the same compiled writing end as without DLedger, which puts a header in front of each record;
they become visible when they are committed, and not before: dispatch never passes `committed_position`, in a recovery
neither. Queue offsets are given by the leader when it appends, so one that begins to lead counts what lies between the
end of its queues and the end of its log.
"""

import struct

from maxq.errors import RemoteProtocolError
from maxq.protocol.message.message import MessageExt, decode_record, encode_record
from maxq.protocol.message.message_sys_flag import MessageSysFlag
from maxq.protocol.message.record_layout import MESSAGE_MAGICS, MIN_RECORD_SIZE, PHYSICAL_OFFSET, store_timestamp_of
from maxq.store.context.store_context import StoreContext
from maxq.store.dispatch.dispatcher import DispatchService
from maxq.store.dledger.dledger_commit_log import ENTRY_HEADER_SIZE, DLedgerCommitLog
from maxq.store.dledger.ledger import FileLedger
from maxq.store.durability.store_checkpoint import StoreCheckpoint
from maxq.store.queue.consume_queue_store import ConsumeQueueStore

BARRIER_TOPIC = "rmq_sys_maxq_barrier"
_HEAD = struct.Struct(">iI")


class MessageLedger(FileLedger):
    """A FileLedger whose bodies are records of the CommitLog."""

    def __init__(
        self,
        context: StoreContext,
        commit_log: DLedgerCommitLog,
        checkpoint: StoreCheckpoint,
        queues: ConsumeQueueStore,
        dispatch: DispatchService,
    ) -> None:
        index_file_size = context.config.mapped_file_size_dledger_index // 32 * 32
        super().__init__(context, commit_log, checkpoint, context.dledger_folder, index_file_size)
        self._queues = queues
        self._dispatch = dispatch

    # --- leading ---

    def begin_leading(self, term: int) -> None:
        """Implements Ledger.begin_leading. Queue offsets continue from the end of the log, committed or not."""
        super().begin_leading(term)
        self._queues.forget_numbering()
        for queue in self._queues:
            queue.tail.next_queue_offset = queue.max_offset
        for batch in self._queues.batch_queues.values():
            batch.next_queue_offset = max(batch.max_offset, batch.numbered_to)
        for record in self._records_from(self._dispatch.dispatcher.dispatched_offset):
            self._queues.count(record)
        self._context.is_leading = True

    def end_leading(self) -> None:
        self._context.is_leading = False
        super().end_leading()

    @property
    def leading_term(self) -> int:
        """The term in which this member takes messages as the leader; -1 if it does not lead."""
        return self._log.tail.term if self._context.is_leading else -1

    @property
    def end_position(self) -> int:
        """Position behind the last entry, committed or not."""
        return self.committed_position if self.is_empty else self._end_of(self.end_index)

    def _records_from(self, position: int) -> "list[MessageExt]":
        """Return the records of the entries from `position` to the end of the log."""
        found: list[MessageExt] = []
        if self.is_empty:
            return found
        for index in range(self.index_at(position), self.end_index + 1):
            body = self.entry(index).body
            try:
                if is_record(body):
                    found.append(decode_record(memoryview(body)))
            except RemoteProtocolError:
                continue  # dispatch ignores such a record, too
        return found

    # --- entries ---

    def barrier(self) -> bytes:
        """Return a record of transaction type ROLLBACK, which every broker's dispatch leaves out of queues and
        index."""
        now = self._context.clock.wall_ms()
        return encode_record(
            MessageExt(
                topic=BARRIER_TOPIC,
                body=b"",
                sys_flag=MessageSysFlag.TRANSACTION_ROLLBACK,
                born_timestamp=now,
                store_timestamp=now,
            ),
            b"",
        )

    def body_at(self, position: int, body: bytes) -> bytes:
        """Returns the record with its own physical offset written into it."""
        if not is_record(body):
            return body
        placed = bytearray(body)
        placed[PHYSICAL_OFFSET : PHYSICAL_OFFSET + 8] = (position + ENTRY_HEADER_SIZE).to_bytes(8, "big")
        return bytes(placed)

    def reset(self, index: int, position: int) -> None:
        """Implements Ledger.reset. The queues lose all messages and begin with the next one, at its own queue
        offset."""
        super().reset(index, position)
        with self._changing():
            self._queues.empty_all(position)
        self._dispatch.begin_at(self.committed_position)

    # --- what is committed ---

    def commit(self, index: int) -> None:
        """Implement `Ledger.commit`. The committed entries are then dispatched."""
        before = self.committed_index
        super().commit(index)
        if self.committed_index > before:
            self._dispatch.run(self.committed_position, in_turns=True)
            newest = self._dispatch.dispatcher.last_store_timestamp
            self.flusher.appended_timestamp = max(self.flusher.appended_timestamp, newest)

    def take_as_committed(self, position: int) -> None:
        """Treat everything below `position` as committed at a start, because it was dispatched before. This dispatches
        nothing."""
        if not self.is_empty and position > self.committed_position:
            super().commit(self.index_at(position) - 1)

    def last_committed_time(self) -> int:
        """Store time of the newest committed record, ms; 0 if there is none."""
        if not max(self.begin_index, 0) <= self.committed_index <= self.end_index:
            return 0
        body = memoryview(self.entry(self.committed_index).body)
        return store_timestamp_of(body) if is_record(body) else 0


def is_record(body: bytes | memoryview) -> bool:
    """Returns whether an entry's body begins like a record of this size."""
    if len(body) < MIN_RECORD_SIZE:
        return False
    size, magic = _HEAD.unpack_from(body)
    return size == len(body) and magic in MESSAGE_MAGICS
