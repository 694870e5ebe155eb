"""Reads the end of the log record by record: where it ends, and what in it is damaged.

The compiled scanner goes over each file in large steps. Where it stops at something that is not a good record, the
question is whether good records follow, in the same file or a later one: then the bytes between are damage in the
middle and the log goes on behind them; else it is a torn tail and the log ends there.

Topic and properties have no check sum (properties may: forceVerifyPropCRC). Damage by a loss of power can be recognized
even so, because a device writes whole sectors, and unwritten parts of a log are zeros.
"""

from array import array
from collections.abc import Sequence
from dataclasses import field

from maxq.lazy_dataclass import dataclass
from maxq.store.context.progress import Progress, no_progress
from maxq.store.files.mapped_file import AT_ONCE, MappedFile, bring_in
from maxq.store.log import record_cy
from maxq.store.log.commit_log import CommitLog
from maxq.store.log.log_search import find_record
from maxq.store.recovery.damage import DamagedPlace, DamagedRange

_ROWS = 4096
_SCANNING = "checking the log"  # title of this step for listeners of progress
_SECTOR = 512
_NO_SECTOR = bytes(_SECTOR)
_PROPERTIES_LENGTH = 2  # bytes between topic and properties
_STOP_LOST_SECTOR = 100  # reason of this module, beside the codes of the compiled scanner
_REASONS = {
    record_cy.STOP_ZERO: "zeros",
    record_cy.STOP_BAD_MAGIC: "no magic code of a message",
    record_cy.STOP_BAD_SIZE: "the size is not the sum of the parts",
    record_cy.STOP_BAD_CRC: "the body does not have the CRC that the record says",
    record_cy.STOP_BAD_OFFSET: "the physical offset in it is not this place",
    record_cy.STOP_END: "too short for a record",
    _STOP_LOST_SECTOR: "a sector of its topic or properties was never written",
}


@dataclass(slots=True)
class LogScan:
    """Result of a scan.

    Attributes:
        end_offset: physical offset behind the last good record.
        damages: ranges before `end_offset` that are not records.
        last_record_offset: start of the last good record; -1 if there is none.
        last_store_timestamp: its store time; 0 if there is none.
        records, bytes_read: good records, and bytes looked at.
        torn_reason: why the log ends where it does, unless zeros follow.
    """

    end_offset: int = 0
    damages: list[DamagedRange] = field(default_factory=list)
    last_record_offset: int = -1
    last_store_timestamp: int = 0
    records: int = 0
    bytes_read: int = 0
    torn_reason: str = ""


class LogScanner:
    """Scans the files of a CommitLog once, and finds what in them is damaged."""

    def __init__(
        self,
        commit_log: CommitLog,
        *,
        check_crc: bool,
        check_prop_crc: bool,
        check_sectors: bool = False,
        progress: Progress = no_progress,
    ) -> None:
        """`check_sectors` is set after an unclean exit; `progress` is told of `run`."""
        self._files: Sequence[MappedFile] = commit_log.files.files
        self._check_crc = check_crc
        self._check_prop_crc = check_prop_crc
        self._check_sectors = check_sectors
        self._progress = progress
        self._total = 0  # bytes of the files that are scanned
        self._rows = array("q", bytes(8 * record_cy.SCAN_WIDTH * _ROWS))

    def run(self, first: int) -> LogScan:
        """Scan from the start of file number `first` to the end of the log.

        Raises:
            StoreRefusedError: the device cannot read a part of it.
        """
        scan = LogScan(end_offset=self._files[first].file_from_offset)
        self._total = sum(file.file_size for file in self._files[first:])
        bad: list[DamagedRange] = []  # damaged ranges behind which no good record has been found yet
        for number in range(first, len(self._files)):
            file = self._files[number]
            position, stop = self._scan_file(scan, file, bad)
            if stop == record_cy.STOP_END:
                continue
            rest = _damage(file, position, file.file_size, stop, scan)
            if not self._anything_behind(number):
                if not bad:
                    scan.torn_reason = "" if stop == record_cy.STOP_ZERO else rest.reason
                break
            bad.append(rest)
        if bad:
            scan.end_offset = bad[0].physical_offset
            scan.torn_reason = bad[0].reason
        self._progress(_SCANNING, self._total, self._total)
        return scan

    def _scan_file(self, scan: LogScan, file: MappedFile, bad: list[DamagedRange]) -> tuple[int, int]:
        """Scan one file.

        Returns:
            The position where its good part ends, and why (a STOP_ code); STOP_END if the log goes on in the next file.
        """
        view, size = file.view, file.file_size
        bring_in(file)
        position = 0
        while True:
            count, after, stop = record_cy.scan(
                view, position, size, file.file_from_offset, self._rows,
                check_crc=self._check_crc, check_prop_crc=self._check_prop_crc,
            )  # fmt: skip
            scan.bytes_read += after - position
            self._progress(_SCANNING, scan.bytes_read, self._total)
            if self._check_sectors:
                count, after, stop = self._up_to_lost_sector(view, count, after, stop)
            position = after
            if count:
                self._take(scan, file, count, after, bad)
            if stop == record_cy.STOP_ROWS_FULL:
                continue
            if stop == record_cy.STOP_BLANK:
                self._confirm(scan, bad)
            if stop == record_cy.STOP_BLANK or (stop == record_cy.STOP_END and size - position < 8):
                scan.end_offset = file.end_offset
                return size, record_cy.STOP_END
            is_whole = stop in (record_cy.STOP_BAD_CRC, _STOP_LOST_SECTOR)
            damage = self._whole_header(file, position, scan, _REASONS[stop]) if is_whole else None
            if damage is None:
                found = find_record(file.region, position + 1, file.file_from_offset)
                if found < 0:
                    return position, stop
                damage = _damage(file, position, found, stop, scan)
            bad.append(damage)
            position = damage.position + damage.size

    def _take(self, scan: LogScan, file: MappedFile, count: int, after: int, bad: list[DamagedRange]) -> None:
        base = (count - 1) * record_cy.SCAN_WIDTH
        scan.records += count
        scan.last_record_offset = self._rows[base + record_cy.C_PHYSICAL_OFFSET]
        scan.last_store_timestamp = self._rows[base + record_cy.C_STORE_TIMESTAMP]
        scan.end_offset = file.file_from_offset + after
        self._confirm(scan, bad)

    def _confirm(self, scan: LogScan, bad: list[DamagedRange]) -> None:
        """Count the bad bytes as damage in the middle of the log, because a good record follows them."""
        scan.damages += bad
        bad.clear()

    def _up_to_lost_sector(self, view: memoryview, count: int, after: int, stop: int) -> tuple[int, int, int]:
        """Return the outcome of scanning a file if the scan stopped at a record whose topic or properties lack a
        sector."""
        rows, width = self._rows, record_cy.SCAN_WIDTH
        columns = (
            record_cy.C_POSITION, record_cy.C_SIZE, record_cy.C_TOPIC_POSITION, record_cy.C_PROPERTIES_SIZE,
        )  # fmt: skip
        for number, (position, size, topic, properties) in enumerate(
            zip(*(rows[column : count * width : width] for column in columns), strict=True)
        ):
            # without properties, the length field at the end is zero, too
            end = position + size - (0 if properties else 2)
            for sector in range(-(-topic // _SECTOR) * _SECTOR, end, _SECTOR):
                if view[sector] == 0 and view[sector : sector + _SECTOR] == _NO_SECTOR:
                    return number, position, _STOP_LOST_SECTOR
        return count, after, stop

    def _whole_header(self, file: MappedFile, position: int, scan: LogScan, reason: str) -> DamagedRange | None:
        """Return the damage of exactly the record at `position` if its structure is whole and only its content is
        wrong; else None."""
        count, after, _ = record_cy.scan(
            file.view, position, file.file_size, file.file_from_offset, array("q", bytes(8 * record_cy.SCAN_WIDTH)),
            check_crc=False,
        )  # fmt: skip
        if count != 1:
            return None
        place = place_of(file.view[position:after])
        return DamagedRange(
            file.file_from_offset, position, after - position, reason, scan.last_store_timestamp, place,
            scan.last_record_offset,
        )  # fmt: skip

    def damage_at(self, offset: int) -> DamagedRange:
        """Returns the damaged range at `offset`, in the middle of the log, up to the next good record."""
        file = next(file for file in self._files if file.file_from_offset <= offset < file.end_offset)
        position = offset - file.file_from_offset
        found = find_record(file.region, position + 1, file.file_from_offset)
        return _damage(file, position, found if found >= 0 else file.file_size, record_cy.STOP_BAD_MAGIC, LogScan())

    def _anything_behind(self, number: int) -> bool:
        """Returns whether a later file holds a good record."""
        return any(find_record(file.region, 0, file.file_from_offset) >= 0 for file in self._files[number + 1 :])


def _damage(file: MappedFile, position: int, end: int, stop: int, scan: LogScan) -> DamagedRange:
    return DamagedRange(
        file.file_from_offset, position, end - position, _REASONS[stop], scan.last_store_timestamp, None,
        scan.last_record_offset,
    )  # fmt: skip


def place_of(record: memoryview) -> DamagedPlace | None:
    """Returns topic, queue id and queue offset of a record whose structure is whole."""
    rows = array("q", bytes(8 * record_cy.SCAN_WIDTH))
    count, _, _ = record_cy.scan(record, 0, len(record), 0, rows, check_crc=False, check_offset=False)
    if count != 1:
        return None
    start = rows[record_cy.C_TOPIC_POSITION]
    topic = bytes(record[start : start + rows[record_cy.C_TOPIC_SIZE]])
    if b"\0" in topic:
        return None
    try:
        return DamagedPlace(topic.decode(), rows[record_cy.C_QUEUE_ID], rows[record_cy.C_QUEUE_OFFSET])
    except UnicodeDecodeError:
        return None


def lacks_its_end(file: MappedFile, position: int, end: int) -> bool:
    """Return whether the record in [position, end) may have arrived, or been written, without its last bytes. Neither
    properties nor a topic end with a zero byte. If a record with properties were cut before them, or any other before
    its topic, its parts would contradict each other."""
    rows = array("q", bytes(8 * record_cy.SCAN_WIDTH))
    count, after, _ = record_cy.scan(
        file.view, position, file.file_size, file.file_from_offset, rows, check_crc=False, check_offset=False
    )
    if count != 1 or after != end or file.view[end - 1]:
        return False
    topic_end = rows[record_cy.C_TOPIC_POSITION] + rows[record_cy.C_TOPIC_SIZE]
    return end > topic_end + _PROPERTIES_LENGTH or not file.view[topic_end - 1]


def first_store_timestamp(file: MappedFile) -> int:
    """Return the store time of the first record of a file; 0 if there is no good one.

    Raises:
        StoreRefusedError: the device cannot read it.
    """
    bring_in(file, AT_ONCE)
    rows = array("q", bytes(8 * record_cy.SCAN_WIDTH))
    count, _, _ = record_cy.scan(file.view, 0, file.file_size, file.file_from_offset, rows, check_crc=False)
    return rows[record_cy.C_STORE_TIMESTAMP] if count else 0
