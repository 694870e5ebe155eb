"""`maxq store check`: log, queues, index, checkpoint and settings files against each other, in one pass."""

import struct
import zlib
from dataclasses import dataclass, field
from typing import Any

from maxq.errors import MaxQError, StoreError
from maxq.protocol.json import json_dialect
from maxq.protocol.message.message import decode_record
from maxq.runtime.interfaces import MappedRegion
from maxq.store.context.progress import Progress, no_progress
from maxq.store.log import record_cy as rc
from maxq.store.log.deletions import FILE_NAME as DELETIONS_FILE
from maxq.store.log.deletions import deleted_names
from maxq.store.tools.check_cy import Confirmation
from maxq.store.tools.check_index import IndexCheck
from maxq.store.tools.check_ledger import LedgerCheck
from maxq.store.tools.check_queues import QueueCheck
from maxq.store.tools.delay_levels import delay_levels_ms
from maxq.store.tools.expectation import Expectation, expectation_of
from maxq.store.tools.log_walk import Batch, LogWalk
from maxq.store.tools.message_lines import is_deletion, is_filler
from maxq.store.tools.store_files import Fault, StoreFiles

_CHECKPOINT = struct.Struct(">qqqqqqI")  # MaxQ's form of the checkpoint, which has a CRC
_CRC_POSITION = 48
_CHECKPOINT_SIZE = 4096
_CHECKPOINT_REMEDY = "brokers choose by it where recovery begins: move the file away to have everything recovered"


@dataclass(slots=True)
class CheckReport:
    """Result of a check. `faults` are errors; `notes` are findings without harm."""

    log_start: int = 0
    log_end: int = 0
    records: int = 0
    units: int = 0
    index_entries: int = 0
    damaged_ranges: int = 0  # number of damaged ranges of the log, filled or not
    faults: list[Fault] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        return {
            "ok": not self.faults,
            "logStart": self.log_start,
            "logEnd": self.log_end,
            "records": self.records,
            "queueUnits": self.units,
            "indexEntries": self.index_entries,
            "damagedRanges": self.damaged_ranges,
            "faults": [
                {"file": fault.file, "position": fault.position, "what": fault.what, "remedy": fault.remedy}
                for fault in self.faults
            ],
            "notes": self.notes,
        }

    def lines(self) -> list[str]:
        """Return the report as lines of text, for people."""
        counts = f"{self.records} messages, {self.units} queue units, {self.index_entries} index entries"
        if self.damaged_ranges:
            counts += f", {self.damaged_ranges} damaged ranges"
        verdict = "1 fault" if len(self.faults) == 1 else f"{len(self.faults) or 'no'} faults"
        return [
            *(str(fault) for fault in self.faults),
            *(f"note: {note}" for note in self.notes),
            f"log [{self.log_start}, {self.log_end}): {counts}; {verdict}",
        ]


class StoreCheck:
    """Checks the files of one store against each other: log, queues, index, checkpoints."""

    def __init__(self, files: StoreFiles, progress: Progress = no_progress, *, open_queues: int = 200) -> None:
        """`open_queues`: how many ConsumeQueues may be mapped at once, with two descriptors each. If that is less than
        the number of queues in use, the check maps a queue anew for each message."""
        self._files = files
        self._open_queues = open_queues
        self._progress = progress
        self._walk = LogWalk(files, progress)
        self._lookup = LogWalk(files)  # reads single records, independently of the pass over the log
        self._fillers: list[str] = []
        self._checkpoint_notes: list[str] = []
        self._filled = files.filled_ranges()
        self._levels = delay_levels_ms(files)

    def run(self) -> CheckReport:
        """Read every file of the store once and return the findings. Never writes; damage is reported, not raised.

        While a broker runs, everything is read a second time if there are faults, and only faults found both times are
        reported: half an entry, or a header that lacks the newest entry, is no fault.
        """
        report = self._read_all()
        if report.faults and self._files.is_live:
            first = {(fault.file, fault.position) for fault in report.faults}
            report = StoreCheck(self._files.look_again(), self._progress, open_queues=self._open_queues)._read_all()
            report.faults = [fault for fault in report.faults if (fault.file, fault.position) in first]
        return report

    def _read_all(self) -> CheckReport:
        files, walk = self._files, self._walk
        deletions, faults = self._deletions()
        confirmation = Confirmation(self._levels)
        queues = QueueCheck(
            files, self._expectation_at, self._is_damaged, self._is_lost_between, deletions, confirmation,
            self._open_queues,
        )  # fmt: skip
        ledger = LedgerCheck(files)
        ledger.run()
        queues.visible_end = ledger.committed_position
        index = IndexCheck(files, self._expectation_at, self._is_damaged, confirmation)
        for batch in walk.batches():
            number = 0
            while number < batch.count:
                with_keys = confirmation.with_keys
                unindexed = index.is_gap_open and not walk.damages and not self._filled
                number += confirmation.run(batch.view, batch.rows, number, batch.count, unindexed)
                index.passed(confirmation.with_keys - with_keys, confirmation.last_with_keys)
                if number < batch.count:
                    self._look_at(batch, number, queues, index)
                    number += 1
        queues.finish()
        index.finish(queues.is_behind)
        report = CheckReport(walk.start_offset, walk.end_offset, walk.records - len(self._fillers))
        report.units, report.index_entries = queues.units, index.entries
        report.damaged_ranges = len(walk.damages) + len(self._fillers)
        known = {(fault.file, fault.position, fault.what) for fault in ledger.faults}
        of_log = [fault for fault in walk.faults if (fault.file, fault.position, fault.what) not in known]
        report.faults = [*files.faults, *of_log, *ledger.faults, *queues.faults, *index.faults]
        report.faults += [*faults, *self._checkpoint_faults(), *self._config_faults()]
        report.notes = [*self._exit_notes(), *walk.notes, *self._fillers, *self._checkpoint_notes]
        report.notes += [*ledger.notes, *queues.notes, *index.notes]
        walk.close()
        self._lookup.close()
        return report

    def _look_at(self, batch: Batch, number: int, queues: QueueCheck, index: IndexCheck) -> None:
        """Judge one record that the compiled check (`Confirmation`) did not find in order."""
        row = batch.rows[number * rc.SCAN_WIDTH : (number + 1) * rc.SCAN_WIDTH]
        if is_filler(batch.view, row):
            self._note_filler(batch, row)
        elif is_deletion(batch.view, row):
            record = batch.view[row[rc.C_POSITION] : row[rc.C_POSITION] + row[rc.C_SIZE]]
            queues.delete(deleted_names(decode_record(record)), row[rc.C_PHYSICAL_OFFSET])
        else:
            expected = expectation_of(batch.view, row, self._levels)
            queues.expect(expected)
            index.expect(expected)

    def _note_filler(self, batch: Batch, row: Any) -> None:
        name, position, size = self._files.name(batch.file.path), row[rc.C_POSITION], row[rc.C_SIZE]
        self._filled.append((row[rc.C_PHYSICAL_OFFSET], row[rc.C_PHYSICAL_OFFSET] + size))
        kept = self._files.root / "damaged" / f"{row[rc.C_PHYSICAL_OFFSET]:020d}"
        where = f"; the bytes are kept in {self._files.name(kept)}" if self._files.disk.exists(kept) else ""
        self._fillers.append(f"{name}: byte {position}: {size} bytes were damaged and are covered by a filler{where}")

    # -- looking things up --

    def _expectation_at(self, physical_offset: int) -> Expectation | None:
        batch = self._lookup.record_at(physical_offset)
        return expectation_of(batch.view, batch.rows[: rc.SCAN_WIDTH], self._levels) if batch else None

    def _is_damaged(self, physical_offset: int) -> bool:
        if any(damage.covers(physical_offset) for damage in self._walk.damages):
            return True
        return any(start <= physical_offset < end for start, end in self._filled)

    def _is_lost_between(self, start: int, end: int) -> bool:
        return any(first < end and start < last for first, last in self._filled)

    def _exit_notes(self) -> list[str]:
        if self._files.is_live:
            return ["a broker is running on the store"]
        if self._files.has_abort:
            return ["abort file: the broker did not end cleanly and will recover at its next start"]
        return []

    # -- small files --

    def _deletions(self) -> tuple[dict[str, int], list[Fault]]:
        """Return the deletions that the file names, and the fault of the file; if it cannot be read, the log tells
        which topics were deleted."""
        try:
            return self._files.deletions(), []
        except StoreError:
            remedy = "the next start writes it again from the log; a slave takes the rest from its master"
            return {}, [Fault(DELETIONS_FILE, 0, "not readable", remedy)]

    def _checkpoint_faults(self) -> list[Fault]:
        path = self._files.root / "checkpoint"
        if not self._files.disk.exists(path):
            if not self._files.log:
                return []
            return [Fault("checkpoint", 0, "missing", "the next start recovers the whole log; nothing is lost")]
        size = self._files.disk.stat(path).size
        if size != _CHECKPOINT_SIZE:
            return [Fault("checkpoint", 0, f"{size} bytes long, not {_CHECKPOINT_SIZE}", _CHECKPOINT_REMEDY)]
        region: MappedRegion = self._files.disk.map(path, size, read_only=True)
        *values, crc = _CHECKPOINT.unpack_from(region.view)
        is_ours = crc == (zlib.crc32(region.view[:_CRC_POSITION]) or 1)
        if crc and not is_ours:
            self._checkpoint_notes.append(
                f"checkpoint: byte {_CRC_POSITION}: the CRC does not match (a changed bit, or a Java broker wrote it "
                "since); after an unclean exit its numbers will not be believed"
            )
        region.close()
        newest, end = self._newest_timestamp(), self._newest_end()
        faults = self._time_faults(values, newest, is_ours)
        offsets = {24: "masterFlushedOffset", 32: "confirmPhyOffset", 40: "logicsPhysicalOffset"}
        faults += [
            self._checkpoint_fault(position, f"{name} {values[position // 8]}", f"the log ends at {end}")
            for position, name in offsets.items()
            if not -1 <= values[position // 8] <= end
        ]
        return faults

    def _time_faults(self, values: list[int], newest: int, is_ours: bool) -> list[Fault]:
        """Return the faults of the checkpoint's times. With `is_ours`, the CRC says that MaxQ wrote these numbers: a
        time behind the log's newest was then that of a message, and a clock was set back; unless no topic was ever
        deleted."""
        faults = []
        for place, name in enumerate(("physicMsgTimestamp", "logicsMsgTimestamp", "indexMsgTimestamp")):
            if 0 <= values[place] <= newest:
                continue
            real = f"the newest message was stored at {newest}"
            fault = self._checkpoint_fault(8 * place, f"{name} {values[place]}", real)
            if is_ours and values[place] > newest and self._walk.start_offset:
                self._checkpoint_notes.append(
                    f"checkpoint: byte {8 * place}: {fault.what}: one that is deleted may have been stored later, "
                    "before the clock was set back"
                )
            else:
                faults.append(fault)
        return faults

    @staticmethod
    def _checkpoint_fault(position: int, stated: str, real: str) -> Fault:
        return Fault("checkpoint", position, f"{stated}, but {real}", _CHECKPOINT_REMEDY)

    def _newest_timestamp(self) -> int:
        """Return the newest store time of the log at this moment: a broker may have written more since the walk over
        the log."""
        newest, place = self._walk.max_store_timestamp, self._walk.end_offset
        self._files.refresh_log()
        while True:
            batch = self._lookup.record_at(place)
            if batch is not None:
                newest = max(newest, batch.rows[rc.C_STORE_TIMESTAMP])
                place += batch.rows[rc.C_SIZE]
                continue
            following = [file.from_offset for file in self._files.log if file.from_offset > place]
            if not following:
                return newest
            place = following[0]

    def _newest_end(self) -> int:
        last = self._files.log[-1] if self._files.log else None
        return max(self._walk.end_offset, last.from_offset + last.size if last and self._files.has_abort else 0)

    def _config_faults(self) -> list[Fault]:
        faults = []
        folder = self._files.root / "config"
        for entry in self._files.disk.list(folder):
            if not entry.is_dir and entry.name.endswith(".json"):
                try:
                    json_dialect.loads(self._files.disk.read(folder / entry.name))
                except FileNotFoundError:
                    continue  # being replaced
                except MaxQError as error:
                    backup = self._files.disk.exists(folder / (entry.name + ".bak"))
                    remedy = "the next start takes the .bak" if backup else "restore it; there is no .bak"
                    faults.append(Fault(f"config/{entry.name}", 0, f"not readable: {error}", remedy))
        return faults
