"""`maxq store recover`: what the broker does at start, without a broker. `maxq store rehearse`: the same on a copy.

A store of a Java broker is taken over by recovering it. The rehearsal does that on an overlay (nothing in the store
changes), then compares every ConsumeQueue with the original, unit by unit, and checks the result against the log.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from maxq.config.loader import load
from maxq.config.message_store_config import MessageStoreConfig
from maxq.errors import MaxQError
from maxq.runtime.interfaces import Clock, Disk
from maxq.store.context.progress import Progress, no_progress
from maxq.store.context.store_context import StoreContext, StoreIdentity
from maxq.store.files.store_inventory import InventoryFile
from maxq.store.message_store import MessageStore
from maxq.store.recovery.recovery_report import RecoveryReport
from maxq.store.recovery.store_files import StoreLock, refusing
from maxq.store.tools.check import StoreCheck
from maxq.store.tools.delay_levels import delay_levels_ms, delay_levels_text
from maxq.store.tools.expectation import LMQ_PREFIX
from maxq.store.tools.index_files import infer_geometry
from maxq.store.tools.log_walk import LogWalk
from maxq.store.tools.offsets import TopicNames
from maxq.store.tools.queue_files import (
    BATCH_UNIT_SIZE,
    MAX_EXT_ADDRESS,
    BatchQueueEntry,
    BatchQueueFiles,
    ExtFiles,
    QueueEntry,
    QueueFiles,
)
from maxq.store.tools.store_files import DataFile, StoreFiles

_Key = tuple[str, int]  # topic, queue id
Units = TypeVar("Units", QueueFiles, BatchQueueFiles)


def config_of(files: StoreFiles) -> MessageStoreConfig:
    """Return the settings under which a broker would open this store: broker.conf if it was given, and the files' own
    sizes.

    Raises:
        ConfigError: broker.conf holds a value that is not allowed.
        StoreError: the geometry of the index files cannot be told.
    """
    (config,) = load([MessageStoreConfig()], files.settings.properties, source="broker.conf").configs
    sizes: dict[str, str] = {"storePathRootDir": str(files.root)}
    if files.log:
        sizes["mappedFileSizeCommitLog"] = str(files.log[0].size)
    if files.dledger_folder is not None:
        sizes["enableDLegerCommitLog"] = "true"
        sizes["dLegerSelfId"] = files.dledger_folder.name.removeprefix("dledger-")
        units = [entry.size for entry in files.disk.list(files.dledger_folder / "index")]
        if units:
            sizes["mappedFileSizeDLedgerIndex"] = str(units[0])
    for name, queues in (
        ("mappedFileSizeConsumeQueue", files.queues),
        ("mapperFileSizeBatchConsumeQueue", files.batch_queues),
    ):
        found = [file.size for sequence in queues.values() for file in sequence]
        if found:
            sizes[name] = str(max(set(found), key=found.count))
    if any(topic.startswith(LMQ_PREFIX) for topic, _ in files.queues):
        sizes["enableLmq"] = sizes["enableMultiDispatch"] = "true"
    levels = delay_levels_ms(files)
    if levels != files.settings.delay_levels_ms:
        sizes["messageDelayLevel"] = delay_levels_text(levels)
    geometry = infer_geometry(files, files.index[0]) if files.index else None
    if geometry is not None:
        sizes["maxHashSlotNum"], sizes["maxIndexNum"] = str(geometry.slots), str(geometry.entries)
    (config,) = load([config], sizes, source="the store's files").configs
    return config  # type: ignore[no-any-return]


def recover(
    files: StoreFiles,
    clock: Clock,
    *,
    rebuild: bool = False,
    config: MessageStoreConfig | None = None,
    progress: Progress = no_progress,
) -> RecoveryReport:
    """Load the store as a broker does at its start, then close it cleanly.

    Args:
        config: the broker's settings; by default those that the files show.
        rebuild: build queues, index and checkpoint anew from the whole log. What the queues' files hold is at most
            asked for the place of a record whose own queue offset is in doubt.

    Raises:
        StoreRefusedError: a broker would not start on it; says why.
    """
    config = config or config_of(files)
    if rebuild:
        _forget_indexes(files, StoreContext(config, files.disk, clock, StoreIdentity()))
    store = MessageStore(config, disk=files.disk, clock=clock, broker=StoreIdentity())
    # tells the store what a broker tells it after reading topics.json
    store.queues.is_batch_topic = TopicNames(files).has_batch_type
    report = store.load(progress)
    store.close()
    return report


def recovery_json(report: RecoveryReport) -> dict[str, Any]:
    """Returns the report for programs, as an object for JSON."""
    return {
        "cleanExit": report.clean_exit,
        "logStart": report.min_offset,
        "logEnd": report.end_offset,
        "checkedFrom": report.checked_from,
        "recordsChecked": report.records,
        "bytesChecked": report.scanned_bytes,
        "cutBytes": report.cut_bytes,
        "cutReason": report.cut_reason,
        "damages": [
            {
                "file": f"commitlog/{damage.file_from_offset:020d}",
                "position": damage.position,
                "size": damage.size,
                "reason": damage.reason,
            }
            for damage in report.damages
        ],
        "faults": report.faults,
        "rebuilt": report.rebuild_reasons,
        "dispatchedFrom": report.dispatch_from,
        "dispatchedRecords": report.dispatched_records,
        "queues": report.queues,
        "durationMs": report.duration_ms,
    }


def _forget_indexes(files: StoreFiles, context: StoreContext) -> None:
    lock = StoreLock(context)
    with refusing(context):
        lock.take()  # refuses while a broker runs on the store
        try:
            _delete_indexes(files.disk, files, InventoryFile(context))
        finally:
            lock.release()


def _delete_indexes(disk: Disk, files: StoreFiles, inventory_file: InventoryFile) -> None:
    inventory = inventory_file.load()
    if inventory is not None:  # knowing how far numbering had come is enough to write the queues again
        inventory_file.save(inventory.numbers())
    if disk.exists(files.root / "checkpoint"):
        disk.delete(files.root / "checkpoint")
    disk.delete_tree(files.root / "index")


@dataclass(slots=True)
class RehearsalReport:
    """Whether MaxQ can take over a store.

    Attributes:
        obstacles: what stands in the way; none: yes.
        remarks: worth knowing, no obstacles.
        units, equal: queue entries of the original that still count, and how many are the same afterwards.
        repaired: entries that the original lacks or has wrong, and recovery made right.
    """

    obstacles: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    recovery: RecoveryReport | None = None
    queues: int = 0
    units: int = 0
    equal: int = 0
    repaired: int = 0

    @property
    def possible(self) -> bool:
        return not self.obstacles

    def to_json(self) -> dict[str, Any]:
        return {
            "answer": "yes" if self.possible else "no",
            "obstacles": self.obstacles,
            "remarks": self.remarks,
            "recovery": self.recovery.lines() if self.recovery else [],
            "queues": self.queues,
            "units": self.units,
            "equal": self.equal,
            "repaired": self.repaired,
        }

    def lines(self) -> list[str]:
        """Returns the report as lines of text; the last line begins with yes or no."""
        found = [f"recovery: {line}" for line in (self.recovery.lines() if self.recovery else [])]
        found += [f"remark: {remark}" for remark in self.remarks]
        found += [f"obstacle: {obstacle}" for obstacle in self.obstacles]
        compared = (
            f"{self.queues} queues compared, {self.equal} of {self.units} entries equal, {self.repaired} repaired"
        )
        return [*found, f"{'yes' if self.possible else 'no'}: {compared}"]


class Rehearsal:
    """One rehearsal of a take-over.

    Args:
        original: the store, which is only read.
        copy: the same store on a disk where it may change (OverlayDisk).
    """

    def __init__(self, original: StoreFiles, copy: StoreFiles, clock: Clock, progress: Progress = no_progress) -> None:
        self._original = original
        self._copy = copy
        self._clock = clock
        self._progress = progress
        self._report = RehearsalReport()
        self._log = LogWalk(original)
        self._log_start = original.log[0].from_offset if original.log else 0
        self._log_end = 1 << 62
        self._uncommitted = 0

    def run(self) -> RehearsalReport:
        """Recover the copy of the store, and compare it with the original."""
        report = self._report
        try:
            report.recovery = recover(self._copy, self._clock, progress=self._progress)
        except MaxQError as error:
            report.obstacles.append(str(error))
            return report
        recovered = StoreFiles(
            self._copy.disk,
            self._copy.root,
            self._copy.settings,
        )
        self._compare_queues(recovered)
        check = StoreCheck(recovered, self._progress).run()
        report.obstacles += [f"after recovery: {fault}" for fault in check.faults]
        self._add_remarks(check.damaged_ranges)
        return report

    def _compare_queues(self, recovered: StoreFiles) -> None:
        self._log_end = self._report.recovery.end_offset if self._report.recovery else 1 << 62
        total = len(self._original.queues) + len(self._original.batch_queues)
        self._compare_kind(self._original.queues, recovered.queues, recovered, QueueFiles, self._compare_queue, total)
        self._compare_kind(
            self._original.batch_queues, recovered.batch_queues, recovered, BatchQueueFiles, self._compare_batch_queue,
            total,
        )  # fmt: skip
        self._log.close()

    def _compare_kind(
        self,
        original: Mapping[_Key, list[DataFile]],
        after: Mapping[_Key, list[DataFile]],
        recovered: StoreFiles,
        kind: type[Units],
        compare: Callable[[_Key, Units, Units], None],
        total: int,
    ) -> None:
        """Compare all queues of one kind, each with itself after recovery."""
        for key in sorted(original):
            before, now = kind(self._original, original[key]), kind(recovered, after.get(key, []))
            compare(key, before, now)
            before.close()
            now.close()
            self._report.queues += 1
            self._progress("queues", self._report.queues, total)
        for key in after.keys() - original.keys():
            queue = kind(recovered, after[key])
            self._report.repaired += sum(1 for _ in queue.units())
            queue.close()

    def _compare_queue(self, key: _Key, before: QueueFiles, after: QueueFiles) -> None:
        ext = ExtFiles(self._original, self._original.ext_queues.get(key, []))
        index = before.first_index - 1
        for index, unit in before.units():
            if not unit.is_pre_blank:
                found = after.unit(index)
                is_same = found is not None and _same(unit, found, ext)
                self._compare_entry(f"queue {key[0]}/{key[1]}: entry {index}", unit, found, is_same)
        self._report.repaired += sum(1 for _ in after.units(index + 1))
        ext.close()

    def _compare_batch_queue(self, key: _Key, before: BatchQueueFiles, after: BatchQueueFiles) -> None:
        position = before.start - BATCH_UNIT_SIZE
        for position, unit in before.units():
            found = after.unit(position)
            what = f"batch queue {key[0]}/{key[1]}: entry {position // BATCH_UNIT_SIZE}"
            self._compare_entry(what, unit, found, unit == found)
        self._report.repaired += sum(1 for _ in after.units(position + BATCH_UNIT_SIZE))

    def _compare_entry(
        self,
        what: str,
        unit: QueueEntry | BatchQueueEntry,
        found: QueueEntry | BatchQueueEntry | None,
        is_same: bool,
    ) -> None:
        """Count one entry of the original, and what is in its place after recovery."""
        report = self._report
        if unit.physical_offset < self._log_start:
            return
        if self._original.dledger and unit.physical_offset >= self._log_end:
            self._uncommitted += 1  # Java's recovery after a crash dispatches uncommitted entries, too
        elif is_same:
            report.units += 1
            report.equal += 1
        elif self._log.record_at(unit.physical_offset) is None:
            report.remarks.append(f"{what} pointed to no message")
        elif found is not None and found.is_good:
            report.units += 1
            report.repaired += 1  # the check at the end tells whether it is right now
        else:
            report.units += 1
            report.obstacles.append(f"{what} would be lost")

    def _add_remarks(self, damaged_ranges: int) -> None:
        if self._uncommitted:
            self._report.remarks.append(
                f"{self._uncommitted} entries of queues are of messages that are not known to be committed; they come "
                "back when the group says that they are"
            )
        if damaged_ranges:
            self._report.remarks.append(f"{damaged_ranges} damaged ranges of the log are filled and stepped over")
        if self._original.has_abort:
            self._report.remarks.append("the broker still runs or did not end cleanly; stop it before taking over")


def _same(before: QueueEntry, after: QueueEntry, ext: ExtFiles) -> bool:
    """Return whether two units are equal, or differ only in that a tags code stands where a ConsumeQueueExt address
    was."""
    if before.tags_code > MAX_EXT_ADDRESS or after.tags_code <= MAX_EXT_ADDRESS:
        return before == after
    return before[:2] == after[:2] and ext.tags_code(before.tags_code) == after.tags_code
