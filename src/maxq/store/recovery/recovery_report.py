"""RecoveryReport: what a start found and did."""

from dataclasses import field

from maxq.lazy_dataclass import dataclass
from maxq.store.recovery.damage import DamagedRange


@dataclass(slots=True)
class RecoveryReport:
    """Findings and repairs of a start; `maxq store recover` prints them.

    Attributes:
        clean_exit: no abort file was there.
        end_offset: physical end of the log.
        cut_bytes: bytes behind the end that looked like data: a torn tail; `cut_reason` says why.
        unverified: of a slave: the record that belongs behind the end, and may lack its own end (unverified_record.py).
        damages: damage in the middle of the log: named, filled, stepped over.
        checked_from: physical offset from which the log was read with CRC to find its end; what lies below was durable.
        scanned_bytes, records: what was read there.
        dispatch_from: physical offset from which queues and index were built anew; `end_offset` if they lacked nothing.
        dispatched_records: records dispatched again.
        rebuild_reasons: why more than the usual was built anew, one line each.
        faults: files that were wrong and what became of them, one line each.
        queues: number of queues known afterwards.
        duration_ms: all of it.
    """

    clean_exit: bool = True
    min_offset: int = 0
    end_offset: int = 0
    cut_bytes: int = 0
    cut_reason: str = ""
    unverified: bytes = b""
    damages: list[DamagedRange] = field(default_factory=list)
    checked_from: int = 0
    scanned_bytes: int = 0
    records: int = 0
    dispatch_from: int = 0
    dispatched_records: int = 0
    rebuild_reasons: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    queues: int = 0
    duration_ms: int = 0

    def lines(self) -> list[str]:
        """Return the report as lines of text, for the log and for tools."""
        return [
            f"exit before: {'clean' if self.clean_exit else 'unclean (abort file present)'}",
            f"log: {self.min_offset} … {self.end_offset}; {self.records} records in {self.scanned_bytes} bytes checked "
            f"from {self.checked_from} on",
            *([f"torn tail cut: {self.cut_bytes} bytes: {self.cut_reason}"] if self.cut_bytes else []),
            *(f"damage: {damage}" for damage in self.damages),
            *(f"fault: {fault}" for fault in self.faults),
            *(f"rebuilt: {reason}" for reason in self.rebuild_reasons),
            f"dispatched again: {self.dispatched_records} records from {self.dispatch_from}",
            f"queues: {self.queues}; took {self.duration_ms} ms",
        ]
