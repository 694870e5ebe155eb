"""What a store's role means for its log: a slave's takes its master's bytes only, a master's messages
(DefaultMessageStore.changeToMaster, changeToSlave, appendToCommitLog). Members of a DLedger group have none."""

import contextlib
from collections.abc import Iterator

from maxq.errors import RemoteProtocolError
from maxq.protocol.message.message import MessageExt, decode_record
from maxq.protocol.message.record_layout import physical_offset_of
from maxq.store.recovery.doubtful_record import DoubtfulRecord
from maxq.store.recovery.recovery_report import RecoveryReport
from maxq.store.replica.replica_append import ReplicaAppender
from maxq.store.store_parts import StoreParts

_LATE_MS = 3_000  # since a record was stored on the master: this slave catches up


class StoreRole:
    """See the module.

    Attributes:
        report: what the last load found and did; the record in doubt is taken out of it when it is so no more.
        replica: the writing end of a slave; None otherwise.
    """

    def __init__(self, parts: StoreParts) -> None:
        self._parts = parts
        self.report = RecoveryReport()
        self.replica: ReplicaAppender | None = None

    def take(self) -> None:
        """Be what the settings say, from now on."""
        parts = self._parts
        is_slave = parts.context.config.broker_role == "SLAVE"
        if parts.ledger is not None:
            if not is_slave:
                parts.dispatch_visible()  # what was committed before is read by services that begin
            return
        if not is_slave:
            self._end_copying()
        parts.commit_log.stage(not is_slave)
        parts.dispatch.is_copy = is_slave
        if is_slave and self.replica is None:
            self.replica = ReplicaAppender(parts.commit_log, self._doubtful())

    def _doubtful(self) -> bytes:
        record = self.report.doubtful
        return record if physical_offset_of(record) == self._parts.commit_log.max_offset else b""

    def _end_copying(self) -> None:
        parts, log = self._parts, self._parts.commit_log
        replica, self.replica = self.replica, None
        if replica is None and self._doubtful():  # it was a slave's store before this start
            replica = ReplicaAppender(log, self._doubtful())
        if replica is None:
            return
        replica.drop_pending()
        before = log.max_offset
        replica.believe()
        if log.max_offset > before:
            parts.appended()
        if parts.flusher.is_sync and log.flushed_offset < log.max_offset:
            try:
                parts.flusher.flush_inline()
            except OSError as error:
                parts.flusher.fail(error)
        parts.dispatch_visible()
        for queue in parts.queues:  # the master has numbered what came
            queue.tail.next_queue_offset = max(queue.tail.next_queue_offset, queue.max_offset)
        for message in self._not_dispatched():  # for want of room, say
            parts.queues.count(message)

    def _not_dispatched(self) -> Iterator[MessageExt]:
        log, offset = self._parts.commit_log, self._parts.dispatch.dispatcher.dispatched_offset
        while offset < log.max_offset:
            record = log.record(offset)
            if record is None:  # the BLANK at the end of a file
                offset = log.next_file_offset(offset)
                continue
            offset += len(record)
            with contextlib.suppress(RemoteProtocolError):  # dispatch passes over it, too
                yield decode_record(record)

    def append_from_master(self, physical_offset: int, data: memoryview) -> int:
        """See MessageStore.append_from_master."""
        replica = self.replica
        assert replica is not None, "only a loaded store whose brokerRole is SLAVE takes a master's bytes"
        parts, log = self._parts, self._parts.commit_log
        before = log.max_offset
        try:
            return replica.append(physical_offset, data)
        finally:
            if log.min_offset > parts.dispatch.dispatcher.dispatched_offset:  # it has just begun, above 0
                parts.dispatch.begin_at(log.min_offset)
            if log.max_offset > before:
                self._doubt_no_more()
                newest = replica.last_store_timestamp
                parts.flusher.appended_timestamp = max(parts.flusher.appended_timestamp, newest)
                parts.appended()
                parts.flusher.copied(is_late=parts.context.clock.wall_ms() - newest > _LATE_MS)

    def _doubt_no_more(self) -> None:
        if self.report.doubtful:
            self.report.doubtful = b""
            with contextlib.suppress(OSError):  # the next start sees that the log goes on
                DoubtfulRecord(self._parts.context).forget()

    def drop_pending(self) -> None:
        """See MessageStore.drop_pending."""
        if self.replica is not None:
            self.replica.drop_pending()
