"""A store's life: it is found and recovered, runs in a role, and is left as the next start wants to find it
(DefaultMessageStore.load, start, changeToMaster, changeToSlave, appendToCommitLog, shutdown).

A role is what may come into the log: a slave's takes its master's bytes only, a master's messages.
"""

import contextlib
import logging
from collections.abc import Iterator

from maxq.errors import RemoteProtocolError
from maxq.protocol.message.message import MessageExt, decode_record
from maxq.protocol.message.record_layout import physical_offset_of
from maxq.runtime.blocking import run_blocking
from maxq.store.append.replica_append import ReplicaAppender
from maxq.store.dledger.message_recovery import DLedgerRecovery
from maxq.store.files.store_inventory import StoreInventory
from maxq.store.queue.consume_queue_store import ASIDE_NAME
from maxq.store.queue.queue_loader import QueueFault, load_queues
from maxq.store.recovery.recovery import Recovery
from maxq.store.recovery.recovery_report import RecoveryReport
from maxq.store.recovery.store_files import (
    AbortFile,
    StoreLock,
    refuse_foreign_store,
    refuse_lost_log,
    refuse_other_log,
    refusing,
)
from maxq.store.recovery.unverified_record import UnverifiedRecord
from maxq.store.store_parts import StoreParts

log = logging.getLogger(__name__)

_LATE_MS = 3_000  # age of a record at which this slave counts as catching up


class StoreLife:
    """Loads, starts and ends a store, and gives it its role. A method without its own docstring is MessageStore's.

    Attributes:
        report: what the last `load` found and did; the record in doubt is taken out of it when it is so no more.
        replica: the writing end of a slave; None otherwise.
        lock: of the folder, held from `load` on.
    """

    def __init__(self, parts: StoreParts) -> None:
        self._parts = parts
        self.replica: ReplicaAppender | None = None
        self.report = RecoveryReport()
        self.lock = StoreLock(parts.context)
        self._abort = AbortFile(parts.context)

    @property
    def is_loaded(self) -> bool:
        """Whether the store may be used."""
        return self._parts.admission.is_open

    # --- beginning ---

    def load(self) -> RecoveryReport:
        """Load and recover the store (see `MessageStore.load`)."""
        context = self._parts.context
        with refusing(context), context.jobs.inline():  # `close` may follow at once
            return self._load()

    def _load(self) -> RecoveryReport:
        parts, clock = self._parts, self._parts.context.clock
        began = clock.monotonic_ms()
        refuse_foreign_store(parts.context)
        refuse_other_log(parts.context)
        self.lock.take()
        try:
            report = self.report = RecoveryReport(clean_exit=not self._abort.exists())
            inventory = parts.inventory_file.load()
            queue_faults = self._load_files(inventory, report)
            # from here on files change: a crash must be seen by the next start
            self._abort.create()
            self._recover(inventory, queue_faults, report)
        except BaseException:
            self.lock.release()
            raise
        parts.index.attach_last()
        parts.checkpoint.not_beyond(parts.commit_log.max_offset)
        parts.flusher.appended_timestamp = max(
            parts.checkpoint.physic_msg_timestamp, parts.dispatch.dispatcher.last_store_timestamp
        )
        report.queues = sum(1 for _ in parts.queues) + len(parts.queues.batch_queues)
        report.duration_ms = clock.monotonic_ms() - began
        parts.admission.is_open = True
        parts.reader.may_lack_messages = not report.clean_exit
        self.take_role()
        for line in report.lines():
            log.info("recovery: %s", line)
        return report

    def _load_files(self, inventory: StoreInventory | None, report: RecoveryReport) -> list[QueueFault]:
        """Find the log, queues, checkpoint and index without changing anything. Returns the faults of queues."""
        parts = self._parts
        context = parts.context
        written = [file.modified_ms for file in context.disk.list(context.commit_log_folder) if not file.is_dir]
        if written:
            context.time.begin(max(written))
        if parts.ledger is None:
            parts.commit_log.load()
            refuse_lost_log(parts.context, parts.commit_log.files.last, inventory)
        queue_faults = load_queues(parts.context, parts.queues)
        report.faults += [fault.text for fault in queue_faults]
        for fault in (parts.checkpoint.load(), parts.deletions.load()):
            report.faults += [fault] if fault else []
        aside = parts.context.root / ASIDE_NAME
        parts.queues.set_aside = [aside / entry.name for entry in parts.context.disk.list(aside)]
        safe = None if report.clean_exit else parts.checkpoint.index_msg_timestamp
        report.faults += parts.index.load(newest_safe_timestamp=safe)
        return queue_faults

    def _recover(
        self, inventory: StoreInventory | None, queue_faults: list[QueueFault], report: RecoveryReport
    ) -> None:
        parts = self._parts
        if parts.ledger is not None:
            parts.ledger.load()
            parts.dispatch.entries_from(parts.ledger.divided_offset)
        parts.filled_ranges.load()
        if parts.ledger is None:
            Recovery(parts, inventory, queue_faults, report).run()
        else:
            DLedgerRecovery(parts, parts.ledger, inventory, queue_faults, report).run()
        parts.dispatch.on_deleted = parts.deleted
        parts.compaction.load(clean_exit=report.clean_exit)

    def start(self) -> None:
        """Start the services of the store (see `MessageStore.start`)."""
        assert self.is_loaded, "load() comes before start()"
        parts, services = self._parts, self._parts.services
        if parts.ledger is not None:
            services.start("DLedger checkpoint", parts.ledger.run())
        services.start("commit log flush", parts.flusher.run())
        services.start("consume queue flush", parts.queue_flusher.run())
        services.start("clean", parts.cleaner.run())
        services.start("disk room", parts.disk_room.run())
        services.start("compaction", parts.compaction.run())
        parts.commit_log.create_ahead()

    # --- the role ---

    def take_role(self) -> None:
        """Switch to the role, master or slave, that the settings name. Members of a DLedger group have none."""
        parts = self._parts
        is_slave = parts.context.config.broker_role == "SLAVE"
        if parts.ledger is not None:
            if not is_slave:
                # so that services that start now can read what was committed before
                parts.propagation.dispatch_visible()
            return
        if not is_slave:
            self._end_copying()
        parts.commit_log.buffer_appends(not is_slave)
        parts.dispatch.is_copy = is_slave
        if is_slave and self.replica is None:
            self.replica = ReplicaAppender(parts.commit_log, self._unverified())

    def _unverified(self) -> bytes:
        record = self.report.unverified
        return record if physical_offset_of(record) == self._parts.commit_log.max_offset else b""

    def _end_copying(self) -> None:
        parts, log = self._parts, self._parts.commit_log
        replica, self.replica = self.replica, None
        if replica is None and self._unverified():  # a slave that was restarted as master: verify the last record first
            replica = ReplicaAppender(log, self._unverified())
        if replica is None:
            return
        replica.drop_pending()
        before = log.max_offset
        replica.accept_unverified_record()
        if log.max_offset > before:
            parts.propagation.appended()
        if parts.flusher.is_sync and log.flushed_offset < log.max_offset:
            try:
                parts.flusher.flush_inline()
            except OSError as error:
                parts.flusher.fail(error)
        parts.propagation.dispatch_visible()
        for queue in parts.queues:  # copied records carry queue offsets: numbering continues behind them
            queue.tail.next_queue_offset = max(queue.tail.next_queue_offset, queue.max_offset)
        for batch in parts.queues.batch_queues.values():
            batch.next_queue_offset = max(batch.next_queue_offset, batch.max_offset)
        parts.queues.take_kinds()
        for message in self._not_dispatched():  # records may be undispatched, for example for lack of room on the disk
            parts.queues.count(message)

    def _not_dispatched(self) -> Iterator[MessageExt]:
        log, offset = self._parts.commit_log, self._parts.dispatch.dispatcher.dispatched_offset
        while offset < log.max_offset:
            record = log.record(offset)
            if record is None:  # the BLANK at the end of a file
                offset = log.next_file_offset(offset)
                continue
            offset += len(record)
            with contextlib.suppress(RemoteProtocolError):  # dispatch ignores such a record, too
                yield decode_record(record)

    def append_from_master(self, physical_offset: int, data: memoryview) -> int:
        """Do what `MessageStore.append_from_master` says."""
        replica = self.replica
        assert replica is not None, "only a loaded store whose brokerRole is SLAVE takes a master's bytes"
        parts, log = self._parts, self._parts.commit_log
        before = log.max_offset
        try:
            return replica.append(physical_offset, data)
        finally:
            # the log has just begun, at an offset above 0
            if log.min_offset > parts.dispatch.dispatcher.dispatched_offset:
                parts.dispatch.begin_at(log.min_offset)
            if log.max_offset > before:
                self._forget_unverified()
                newest = replica.last_store_timestamp
                parts.flusher.appended_timestamp = max(parts.flusher.appended_timestamp, newest)
                parts.propagation.appended()
                parts.flusher.copied(is_late=parts.context.clock.wall_ms() - newest > _LATE_MS)

    def _forget_unverified(self) -> None:
        if self.report.unverified:
            self.report.unverified = b""
            with contextlib.suppress(OSError):  # the next start notices that the log is longer
                UnverifiedRecord(self._parts.context).forget()

    def drop_pending(self) -> None:
        """Do what `MessageStore.drop_pending` says."""
        if self.replica is not None:
            self.replica.drop_pending()

    # --- ending ---

    async def shutdown(self) -> None:
        """Stop the services, and make everything durable (see `MessageStore.shutdown`)."""
        if not self.is_loaded:
            return
        parts = self._parts
        await parts.services.stop()
        await parts.flusher.flush_all()
        async with parts.queue_flusher.lock:  # waits for a deletion of queues that is under way
            with contextlib.suppress(OSError):  # the flusher has noted the failure, so the abort file stays
                await parts.queue_flusher.flush_queues(0)
            await parts.context.jobs.close()
            await run_blocking(self._close)
        parts.flusher.close()

    def close(self) -> None:
        """Unmap and close all files (see `MessageStore.close`)."""
        if not self.is_loaded:
            return
        parts = self._parts
        if parts.flusher.failure is None:
            parts.flusher.flush_inline()
        parts.context.jobs.is_closed = True
        self._close()

    def _close(self) -> None:
        parts = self._parts
        parts.admission.is_open = False
        self.drop_pending()
        parts.allocator.discard()
        end = parts.max_physical_offset
        parts.dispatch.run(min(end, parts.commit_log.flushed_offset))
        complete = self._write_last(end)
        if not complete:
            behind = f"dispatch is at {parts.dispatch.dispatcher.dispatched_offset} of {end}"
            log.error("the abort file stays, the next start recovers: %s; %s", behind, parts.context.flags.why())
        complete = parts.compaction.close() and complete
        if parts.ledger is not None:
            complete = parts.ledger.close() and complete
        parts.checkpoint.release()
        parts.commit_log.release_tail()
        parts.commit_log.files.release()
        parts.queues.release_all()
        parts.index.release()
        if complete:
            self._abort.remove()
        self.lock.release()

    def _write_last(self, end: int) -> bool:
        """Make queues, index and checkpoint durable at shutdown; returns False if they are not complete."""
        parts = self._parts
        flusher, checkpoint = parts.flusher, parts.checkpoint
        if parts.dispatch.dispatcher.dispatched_offset < end or not parts.context.flags.cq_writable:
            return False
        if flusher.failure is not None or parts.queue_flusher.failure is not None:
            return False
        try:
            parts.index.flush_last()
            checkpoint.physic_msg_timestamp = max(checkpoint.physic_msg_timestamp, flusher.appended_timestamp)
            parts.queue_flusher.flush_inline(log_end=end)
        except OSError as error:
            log.error("writing at shutdown failed: %s", error)
            return False
        return True
