"""Queues and index after a start of a broker with a DLedger log.

The log itself is open already: ledger_recovery.py has dealt with its entries. Queues and index are brought to
`committed_position` and no further (Java dispatches what is not committed, too).
"""

import logging

from maxq.store.dledger.dledger_commit_log import DLedgerCommitLog
from maxq.store.dledger.entries_cy import find_entry
from maxq.store.dledger.message_ledger import MessageLedger
from maxq.store.files.store_inventory import StoreInventory
from maxq.store.queue.queue_loader import QueueFault
from maxq.store.recovery.log_scanner import LogScan
from maxq.store.recovery.recovery import Recovery
from maxq.store.recovery.recovery_report import RecoveryReport
from maxq.store.store_parts import StoreParts

log = logging.getLogger(__name__)


class DLedgerRecovery(Recovery):
    """One recovery of a store whose log is `ledger`."""

    def __init__(
        self,
        parts: StoreParts,
        ledger: MessageLedger,
        inventory: StoreInventory | None,
        queue_faults: list[QueueFault],
        report: RecoveryReport,
    ) -> None:
        super().__init__(parts, inventory, queue_faults, report)
        self._ledger = ledger

    def run(self) -> None:
        """Recover the queues and the index from a DLedger log (see `Recovery.run`)."""
        if self._inventory is not None:
            self._ledger.take_as_committed(self._inventory.dispatched_offset)
        super().run()

    def _without_log(self) -> None:
        self._forget_queues()
        self._dispatch.dispatcher.dispatched_offset = self._ledger.committed_position

    def _scan(self) -> LogScan:
        """Scan the log. For readers it ends at the committed end."""
        end, report = self._ledger.committed_position, self._report
        report.checked_from = end
        report.records = self._ledger.report.scanned_entries
        report.faults += self._ledger.report.faults
        report.faults += [f"amnesiac: {reason}" for reason in self._ledger.report.amnesia]
        report.cut_bytes = self._ledger.report.cut_bytes
        report.cut_reason = "the bytes after it are no entry" if report.cut_bytes else ""
        return LogScan(end_offset=end, last_store_timestamp=self._ledger.last_committed_time())

    def _cut_log(self, scan: LogScan) -> None:
        """Does nothing: the ledger has cut the log."""

    def _step_over(self, offset: int) -> int:
        """Return the offset of the next entry behind bytes at `offset` that are not entries, in a file that was not
        scanned. Writes nothing, because this log is a copy."""
        commit_log = self._commit_log
        assert isinstance(commit_log, DLedgerCommitLog), "there is a ledger"
        file = commit_log.files.find(offset)
        assert file is not None, "dispatch stopped in a file"
        if file.file_from_offset < commit_log.divided_offset:
            return super()._step_over(offset)
        position, index = find_entry(
            file.view, offset - file.file_from_offset, file.file_size, file.file_from_offset, -1
        )
        after = file.end_offset if position < 0 else file.file_from_offset + position
        fault = f"{file.path}: bytes {offset - file.file_from_offset} to {after - file.file_from_offset} are no entries"
        log.error("%s; entry %d is the next", fault, index)
        self._report.faults.append(fault)
        return after
