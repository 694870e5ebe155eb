"""LogRecovery: where the CommitLog ends, as far as this broker may believe what is in its files.

The log is scanned with CRC from the third last file after a clean exit (LR-09), from the newest file whose first
message is older than the checkpoint's times after an unclean one (LR-10), and to the end in both cases. A torn tail is
cut; on a slave also a last record that looks complete and may be torn, because it is copied from the master again.

Source:
    store/CommitLog.java recoverNormally, recoverAbnormally, isMappedFileMatchedRecover.
"""

import logging
from typing import Final

from maxq.store.context.store_context import StoreContext
from maxq.store.durability.store_checkpoint import StoreCheckpoint
from maxq.store.files.mapped_file import bring_in, clear
from maxq.store.files.store_inventory import StoreInventory
from maxq.store.log.commit_log import CommitLog
from maxq.store.queue.consume_queue_store import ConsumeQueueStore
from maxq.store.recovery.damage import DamagedPlace
from maxq.store.recovery.log_scanner import (
    LogScan,
    LogScanner,
    first_store_timestamp,
    lacks_its_end,
    place_of,
)
from maxq.store.recovery.recovery_report import RecoveryReport
from maxq.store.recovery.unverified_record import UnverifiedRecord

log = logging.getLogger(__name__)

#: Files at the end of the log that are checked after a clean exit.
_NORMAL_RECOVERY_FILES: Final = 3


class LogRecovery:
    """Finds the end of a log that has a file; the module's docstring explains how.

    Args:
        inventory: None if there is none, or a Java broker wrote the store since.
    """

    def __init__(
        self,
        context: StoreContext,
        commit_log: CommitLog,
        queues: ConsumeQueueStore,
        checkpoint: StoreCheckpoint,
        inventory: StoreInventory | None,
        report: RecoveryReport,
    ) -> None:
        self._context = context
        self._commit_log = commit_log
        self._queues = queues
        self._checkpoint = checkpoint
        self._inventory = inventory
        self._report = report
        self._unverified = UnverifiedRecord(context)

    def scan(self) -> LogScan:
        """Find where the log ends and what in it is damaged; both are noted in the report, too."""
        config = self._context.config
        first = self._first_file()
        self._report.checked_from = self._commit_log.files.files[first].file_from_offset
        if not self._report.clean_exit:
            self._write_again()
        scanner = LogScanner(
            self._commit_log,
            check_crc=config.check_crc_on_recover and not config.force_verify_prop_crc,
            check_prop_crc=config.force_verify_prop_crc,
            check_sectors=not self._report.clean_exit,
            progress=self._context.progress,
        )
        scan = scanner.run(first)
        if config.broker_role == "SLAVE":
            if not self._report.clean_exit:
                self._leave_to_the_master(scan)
            self._check_the_last_record(scan)
        self._report.unverified = self._unverified.read(scan.end_offset)
        if not self._report.unverified:
            self._unverified.forget()
        self._report.scanned_bytes, self._report.records = scan.bytes_read, scan.records
        self._report.damages = scan.damages
        for damage in scan.damages:
            log.error("damage in the middle of the log: %s", damage)
        return scan

    def _write_again(self) -> None:
        """Write everything behind the durable end again before reading it, because the process may have ended after a
        failed sync. Linux then shows pages as clean that are not on the disk, and `cut`'s sync would succeed without
        writing them; consumers would get messages that the next loss of power takes."""
        inventory = self._inventory
        durable = max(self._checkpoint.flushed_offset, 0 if inventory is None else inventory.dispatched_offset)
        start = max(self._report.checked_from, durable)
        for file in self._commit_log.files.files:
            if file.end_offset > start:
                bring_in(file)
                file.region.write_again(max(0, start - file.file_from_offset), file.file_size)

    def _leave_to_the_master(self, scan: LogScan) -> None:
        """Cut a slave's log before the first damage that a torn write may have left; the master sends the rest again.
        If the damage were filled, this log would no longer be a copy of the master's."""
        durable = self._checkpoint.physic_msg_timestamp
        for number, damage in enumerate(scan.damages):
            if damage.store_timestamp >= durable:
                scan.end_offset = damage.physical_offset
                scan.last_record_offset, scan.last_store_timestamp = damage.record_before, damage.store_timestamp
                scan.torn_reason = f"{damage.reason}; the rest comes again from the master"
                del scan.damages[number:]
                return

    def _check_the_last_record(self, scan: LogScan) -> None:
        """Check whether a slave's last record is complete: a slave may be killed while a record arrives, and the
        received part may look whole. If the record is in its queue, it was whole once, unless the machine lost its
        power; then it is kept beside the log until the master sends it again (unverified_record.py). After a clean
        exit this applies if the record was not dispatched."""
        start = scan.last_record_offset
        file = self._commit_log.files.find(start) if start >= 0 else None
        if file is None or scan.end_offset > file.end_offset:
            return
        position, stop = start - file.file_from_offset, scan.end_offset - file.file_from_offset
        inventory = self._inventory
        if self._report.clean_exit and inventory is not None and inventory.dispatched_offset > start:
            return
        if not lacks_its_end(file, position, stop):
            return
        scan.end_offset = start
        record = bytes(file.view[position:stop])
        if self._report.clean_exit or self._is_in_its_queue(place_of(memoryview(record)), start):
            self._unverified.keep(start, record)
            log.warning("the record at %d may lack its end: the log ends before it until the master sends it", start)
        elif not self._unverified.read(start):
            scan.torn_reason = "the last record may lack its end; it comes again from the master"

    def _is_in_its_queue(self, place: DamagedPlace | None, physical_offset: int) -> bool:
        queue = None if place is None else self._queues.find(place.topic, place.queue_id)
        if place is None or queue is None:
            return False
        unit = queue.unit(place.queue_offset)
        return unit is not None and unit[0] == physical_offset

    def _first_file(self) -> int:
        """Returns the number of the file from which the log is checked."""
        files = self._commit_log.files.files
        if self._report.clean_exit:
            return max(0, len(files) - _NORMAL_RECOVERY_FILES)
        safe = self._checkpoint.min_timestamp
        if self._context.config.message_index_enable and self._context.config.message_index_safe:
            safe = self._checkpoint.min_timestamp_index
        for number in range(self._durable_file(), 0, -1):
            if 0 < first_store_timestamp(files[number]) <= safe:
                return number
        return 0

    def _durable_file(self) -> int:
        """Return the index of the last file that surely has durable records. The checkpoint's times do not suffice: if
        the clock was set back, later records have earlier times."""
        durable = 0 if self._inventory is None else self._inventory.dispatched_offset
        files = self._commit_log.files.files
        return max((number for number, file in enumerate(files) if file.file_from_offset <= durable), default=0)

    def cut(self, scan: LogScan) -> None:
        """Cut the log where `scan` found its end. On return everything below is durable, and the log can be appended
        to."""
        commit_log = self._commit_log
        end = scan.end_offset
        file = commit_log.files.find(end)
        if scan.torn_reason and file is not None:
            self._report.cut_reason = scan.torn_reason
            self._report.cut_bytes = _used_bytes(bytes(file.view[end - file.file_from_offset :][: 64 << 20]))
            log.warning("the log is cut at %d: %s (%d bytes)", end, scan.torn_reason, self._report.cut_bytes)
        if file is not None:
            # Whole records behind the end must not reappear when the log has grown up to them.
            clear(file.region, end - file.file_from_offset, file.file_size)
        if not self._report.clean_exit:  # after a kill, pages may never have been synced
            for scanned, start, stop in commit_log.ranges(self._report.checked_from, end):
                scanned.region.flush(start, stop)
        commit_log.open_at(end)


def _used_bytes(data: bytes) -> int:
    return len(data.rstrip(b"\0"))
