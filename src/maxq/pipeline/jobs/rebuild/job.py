"""ConsumeQueue and IndexFile files from CommitLog files, by many tasks side by side, byte for byte those of a broker.

In four steps:

1. Each piece of the log is dispatched by a task: units go straight to their places in the files of a new folder, index
   entries into a file beside (log_dispatch.py, rebuild_files.py).
2. Here the runs of units of each queue are seen to join without a gap. If they do not, or the log is damaged, nothing
   of this is used: what a broker then does is a matter of judgement, and `maxq store recover --rebuild` has it.
3. IndexFiles are made, and everything is synced.
4. The new folders take the place of the old ones, and checkpoint, inventory and abort file say what they say after a
   clean exit. In that order, and meanwhile the inventory has the next queue offsets alone, so that a broker that starts
   after a crash in between builds everything anew itself, and numbers go on.

Queues that have no message in the log any more keep their files: numbering must go on where it was.
"""

import dataclasses
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import SparkSession

from maxq.config.message_store_config import MessageStoreConfig
from maxq.errors import ConfigError, PipelineError, StoreError
from maxq.pipeline.jobs.rebuild.files import (
    IndexPlan,
    batch_file_size,
    index_names,
    keep_entries,
    plan_index,
    sync_queue,
    write_batch_units,
    write_index,
    write_pre_blank,
    write_run,
)
from maxq.pipeline.jobs.rebuild.index_tags import has_tag_entries
from maxq.pipeline.jobs.rebuild.log_dispatch import DispatchSettings, PieceResult, dispatch_piece
from maxq.pipeline.jobs.rebuild.plan import PIECE_SCHEMA, LogSummary, QueueBounds, summary_batch
from maxq.pipeline.jobs.task_frame import Runner, spark_runner
from maxq.pipeline.records.losses import Losses
from maxq.pipeline.store.log_pieces import LogPiece, log_pieces, tell_what_is_lost
from maxq.runtime.files.durable_files import DurableFiles, sync_folder
from maxq.runtime.files.system import SystemClock, SystemDisk
from maxq.store.context.store_context import StoreContext, StoreIdentity
from maxq.store.durability.store_checkpoint import StoreCheckpoint
from maxq.store.files.store_inventory import INVENTORY_FILE, InventoryFile, StoreInventory
from maxq.store.index.index_file import HEADER, HEADER_SIZE
from maxq.store.queue.consume_queue import CQ_STORE_UNIT_SIZE
from maxq.store.recovery.store_files import AbortFile, StoreLock, refuse_foreign_store, refusing
from maxq.store.tools.index_files import Geometry
from maxq.store.tools.offsets import TopicNames
from maxq.store.tools.queue_files import QueueFiles
from maxq.store.tools.recover import config_of
from maxq.store.tools.store_files import DataFile, StoreFiles, parse_delay_levels

QUEUES: Final = "consumequeue"
BATCH_QUEUES: Final = "batchconsumequeue"
INDEX: Final = "index"
_FOLDERS: Final = (QUEUES, BATCH_QUEUES, INDEX)
_WORK: Final = "rebuild.maxq"  # folder in the store, or the mark of a folder of our own
_ENTRIES: Final = "entries"
_NOTHING: Final = pa.schema([pa.field("done", pa.int64())])
_BLANK_MAGIC: Final = b"\xcb\xd4\x31\x94"
_QUEUES_A_TASK: Final = 512
_FILES_NOT_FLUSHED: Final = 2  # most files of a log that may be unflushed: Java flushes every half second
_RECOVER: Final = "`maxq store recover --rebuild` decides such cases, one record after the other"


@dataclass(frozen=True, slots=True)
class RebuildOptions:
    """
    Attributes:
        output: a folder of its own for the result; None: in place of the store's files.
        index_tags: index tags, too, as RocketMQ 5.5 does; None: as broker.conf says (indexTagEnable), or as the store's
            own index has it.
        piece_bytes: bytes of log a task. A task costs some 60 ms in Spark, and in memory at most half of its piece.
    """

    output: PurePath | None = None
    index_tags: bool | None = None
    piece_bytes: int = 256 << 20


@dataclass(slots=True)
class RebuildReport:
    """The result of a rebuild.

    Attributes:
        folder: the folder of the rebuilt files.
        kept_queues: queues without a message in the log, whose files were kept.
        torn_tail: description of bytes behind the last record that are not zeros; a broker cuts them.
        lost: messages of which the old ConsumeQueues had units behind the end of the log, as far as their newest files
            show; they are in no queue any more.
    """

    folder: str
    log_start: int = 0
    log_end: int = 0
    records: int = 0
    queues: int = 0
    units: int = 0
    batch_units: int = 0
    index_entries: int = 0
    index_files: list[str] = field(default_factory=list)
    kept_queues: int = 0
    torn_tail: str = ""
    lost: int = 0

    def to_json(self) -> dict[str, Any]:
        return {
            "folder": self.folder,
            "logStart": self.log_start,
            "logEnd": self.log_end,
            "records": self.records,
            "queues": self.queues,
            "units": self.units,
            "batchUnits": self.batch_units,
            "indexEntries": self.index_entries,
            "indexFiles": self.index_files,
            "keptQueues": self.kept_queues,
            "tornTail": self.torn_tail,
            "lostMessages": self.lost,
        }


def rebuild(spark: SparkSession, files: StoreFiles, options: RebuildOptions) -> RebuildReport:
    """Build the queue and index files of a store anew; the folder must be reachable by the workers, too.

    Raises:
        ConfigError, PipelineError: as `checked_config`; the log is damaged. Nothing was changed.
        StoreRefusedError: a broker holds the store, or its queues are in RocksDB.
    """
    return Rebuild(files, options, spark_runner(spark)).run()


def checked_config(files: StoreFiles, options: RebuildOptions) -> MessageStoreConfig:
    """Return the settings by which the files are made.

    Raises:
        ConfigError: the folders, or what the files do not show, are not given as they must be.
        PipelineError: what is in the store cannot be rebuilt here, and what to do about it.
    """
    if not files.log:
        raise ConfigError(f"{files.root} has no CommitLog files to build from; give the storePathRootDir of a broker")
    if files.dledger:
        raise PipelineError(
            f"{files.root}: the log is a DLedger one (dledger-*/data); rebuild makes files beside a CommitLog. "
            "Remove consumequeue and index: its broker rebuilds them"
        )
    if files.ext_queues or files.settings.properties.get("enableConsumeQueueExt", "").lower() == "true":
        raise PipelineError(
            f"{files.root} has consumequeue_ext files (enableConsumeQueueExt): they hold what consumers' filters "
            f"were when messages came, which the log does not tell. {_RECOVER}, with tags codes in their place"
        )
    if options.output is None and files.has_abort and files.disk.list(files.root / "compaction" / "compactionLog"):
        raise PipelineError(
            f"{files.root} was not closed cleanly (abort file) and has compacted topics, whose files a broker "
            "checks only after such an end: start the broker once, or rebuild into another folder"
        )
    for fault in files.faults:
        if fault.file.startswith("commitlog"):
            raise PipelineError(f"the log is not whole: {fault}")
    if options.output is not None and files.disk.list(options.output) and not files.disk.exists(options.output / _WORK):
        raise ConfigError(f"{options.output} is not empty, and no rebuild made it: give a folder of its own")
    try:
        config = config_of(files)
    except StoreError as error:
        raise ConfigError(f"{files.root}: {error}") from None
    return dataclasses.replace(config, store_path_root_dir=str(files.root))


@dataclass(frozen=True, slots=True)
class PieceTask:
    """One piece of the log, and where its units and entries go."""

    number: int
    piece: LogPiece
    settings: DispatchSettings
    folder: str
    queue_file_size: int

    @property
    def entries(self) -> str:
        return f"{self.folder}/{_ENTRIES}/{self.number:06d}"


@dataclass(frozen=True, slots=True)
class SealTask:
    """An IndexFile to be made, or queues to be synced."""

    folder: str
    geometry: Geometry
    index: tuple[str, IndexPlan] | None = None
    queues: tuple[str, ...] = ()


def build_piece(task: PieceTask) -> Iterator[pa.RecordBatch]:
    """Dispatch a piece, write its units and entries; one row of PIECE_SCHEMA."""
    result = dispatch_piece(SystemDisk(), task.piece, task.settings)
    if not result.faults:
        write_piece(task, result)
    yield summary_batch(task.number, result)


def write_piece(task: PieceTask, result: PieceResult) -> None:
    """Write the units and index entries that one piece of the log has."""
    for run in result.runs.values():
        write_run(PurePath(task.folder, QUEUES), task.queue_file_size, run)
    keep_entries(PurePath(task.entries), result.entries)


def seal(task: SealTask) -> Iterator[pa.RecordBatch]:
    """Write an IndexFile from the entries of all pieces, or make the files of queues durable. Yields no rows."""
    if task.index is not None:
        name, plan = task.index
        write_index(PurePath(task.folder, INDEX, name), task.geometry, plan)
    for queue in task.queues:
        sync_queue(PurePath(task.folder, queue))
    yield from ()


class Rebuild:
    """One rebuild of a store's files.

    Args:
        files: of the store, as they are now.
        run: how tasks are run (task_frame.py).
    """

    def __init__(self, files: StoreFiles, options: RebuildOptions, run: Runner) -> None:
        self._files = files
        self._options = options
        self._run = run
        self._in_place = options.output is None
        self._folder = files.root / _WORK if options.output is None else options.output
        self._report = RebuildReport(str(files.root if self._in_place else self._folder))

    def run(self) -> RebuildReport:
        """Make queues and index anew, in the four steps that the module describes. Blocks."""
        config = checked_config(self._files, self._options)
        context = StoreContext(config, SystemDisk(), SystemClock(), StoreIdentity())
        refuse_foreign_store(context)
        losses, lock = Losses(fail=False), StoreLock(context)
        tell_what_is_lost(self._files, self._files.root.name, losses)
        self._report.lost = losses.count
        with refusing(context):
            lock.take()
        try:
            self._prepare_folder()
            if self._in_place and self._files.has_abort:
                self._write_log_again(context)
            summary = self._build(config)
            self._finish(context, summary)
        finally:
            lock.release()
        return self._report

    # -- before --

    def _prepare_folder(self) -> None:
        """Prepare an empty folder; what an earlier rebuild left in it is removed."""
        folder, disk = self._folder, self._files.disk
        if not self._in_place:
            self._clear(folder)
            if disk.exists(folder / INVENTORY_FILE):
                disk.delete(folder / INVENTORY_FILE)
            os.makedirs(folder, exist_ok=True)
            disk.write(folder / _WORK, b"")
        else:
            disk.delete_tree(folder)
        for name in (QUEUES, INDEX, _ENTRIES):
            os.makedirs(folder / name, exist_ok=True)

    def _clear(self, folder: PurePath) -> None:
        disk = self._files.disk
        for name in (*_FOLDERS, _ENTRIES):
            disk.delete_tree(folder / name)
        if disk.exists(folder / "checkpoint"):
            disk.delete(folder / "checkpoint")

    def _write_log_again(self, context: StoreContext) -> None:
        """Rewrite parts of the log after an unclean end of the broker, before they are read: records that may not be
        durable, or that a failed sync has left only in the page cache. At the end all of it is synced, and the files
        record that. For a Java broker's log, which does not tell how far it is durable, these are the last files."""
        disk, log = self._files.disk, self._files.log
        inventory, checkpoint = InventoryFile(context).load(), StoreCheckpoint(context)
        durable = 0 if inventory is None else max(0, inventory.dispatched_offset)
        if disk.exists(checkpoint.path):
            checkpoint.load()
            durable = max(durable, checkpoint.flushed_offset)
            checkpoint.release()
        start = durable or log[max(0, len(log) - _FILES_NOT_FLUSHED)].from_offset
        for file in log:
            if file.from_offset + file.size > start:
                region = disk.map(file.path, file.size)
                region.write_again(max(0, start - file.from_offset), file.size)
                region.close()

    # -- building --

    def _build(self, config: MessageStoreConfig) -> LogSummary:
        files, folder = self._files, str(self._folder)
        pieces = log_pieces(files, piece_bytes=self._options.piece_bytes)
        settings = self._settings(config)
        queue_file_size = -(-config.mapped_file_size_consume_queue // CQ_STORE_UNIT_SIZE) * CQ_STORE_UNIT_SIZE
        tasks = [PieceTask(number, piece, settings, folder, queue_file_size) for number, piece in enumerate(pieces)]
        rows = self._run(build_piece, tasks, PIECE_SCHEMA)
        summary = LogSummary.of(rows, files.log[0].from_offset)
        if summary.faults:
            self._give_up(summary.faults)
        for (topic, queue_id), bounds in summary.queues.items():
            queue = PurePath(folder, QUEUES, topic, str(queue_id))
            write_pre_blank(queue, queue_file_size, bounds.first)
        for (topic, queue_id), units in summary.batch_units.items():
            queue = PurePath(folder, BATCH_QUEUES, topic, str(queue_id))
            write_batch_units(queue, batch_file_size(config.mapper_file_size_batch_consume_queue), units)
        self._keep_old_queues(summary)
        kept = [(task.entries, row["entryCount"]) for task, row in zip(tasks, rows, strict=True)]
        self._seal(Geometry(config.max_hash_slot_num, config.max_index_num), kept)
        self._count(summary)
        return summary

    def _settings(self, config: MessageStoreConfig) -> DispatchSettings:
        tags = self._options.index_tags
        if tags is None:
            geometry = Geometry(config.max_hash_slot_num, config.max_index_num)
            tags = config.index_tag_enable or has_tag_entries(self._files, geometry)
        return DispatchSettings(
            parse_delay_levels(config.message_delay_level),
            frozenset(TopicNames(self._files).batch),
            config.message_index_enable,
            tags,
            self._files.deletions(),
        )

    def _give_up(self, faults: Sequence[str]) -> None:
        self._clear(self._folder)
        if self._in_place:
            self._files.disk.delete_tree(self._folder)
        more = f" (and {len(faults) - 3} more)" if len(faults) > 3 else ""
        raise PipelineError(f"{self._files.root} cannot be rebuilt: {'; '.join(faults[:3])}{more}. {_RECOVER}")

    def _keep_old_queues(self, summary: LogSummary) -> None:
        """Keep the files of queues without messages in the log: they tell the next queue offset."""
        for (topic, queue_id), sequence in self._files.queues.items():
            end = _end_of(self._files, sequence) if (topic, queue_id) not in summary.queues else 0
            if end:
                folder = self._folder / QUEUES / topic / str(queue_id)
                os.makedirs(folder)
                for file in sequence:
                    _link(file.path, folder / file.path.name)
                summary.kept[topic, queue_id] = QueueBounds(sequence[0].from_offset // CQ_STORE_UNIT_SIZE, end)
                self._report.kept_queues += 1
        self._keep_numbers(summary)

    def _keep_numbers(self, summary: LogSummary) -> None:
        """Keep the next queue offsets of queues without messages and files, which only the inventory has."""
        inventory = self._files.inventory()
        if inventory is None:
            return
        known_to, deletions = inventory.dispatched_offset, self._files.deletions()
        if not inventory.is_whole:
            known_to = self._files.log[0].from_offset
        for topic, ids in inventory.queues.items():
            if deletions.get(topic, -1) < known_to:
                for queue_id, (_, end) in ids.items():
                    if (topic, queue_id) not in summary.queues:
                        summary.kept.setdefault((topic, queue_id), QueueBounds(end, end))
        summary.batch_ends = {
            topic: ends
            for topic, ends in inventory.numbers().batch_queues.items()
            if deletions.get(topic, -1) < known_to
        }

    def _seal(self, geometry: Geometry, kept: Sequence[tuple[str, int]]) -> None:
        folder = str(self._folder)
        plans = plan_index([part for part in kept if part[1]], geometry)
        names = index_names(plans)
        tasks = [SealTask(folder, geometry, index=pair) for pair in zip(names, plans, strict=True)]
        queues = [
            f"{kind}/{topic.name}/{queue.name}"
            for kind in (QUEUES, BATCH_QUEUES)
            for topic in self._files.disk.list(self._folder / kind)
            for queue in self._files.disk.list(self._folder / kind / topic.name)
        ]
        tasks += [
            SealTask(folder, geometry, queues=tuple(queues[at : at + _QUEUES_A_TASK]))
            for at in range(0, len(queues), _QUEUES_A_TASK)
        ]
        self._run(seal, tasks, _NOTHING)
        self._sync_folders()
        self._report.index_files = names
        self._report.index_entries = sum(count for _, count in kept)
        self._files.disk.delete_tree(self._folder / _ENTRIES)

    def _sync_folders(self) -> None:
        for kind in (QUEUES, BATCH_QUEUES):
            for topic in self._files.disk.list(self._folder / kind):
                sync_folder(self._folder / kind / topic.name)
        for name in _FOLDERS:
            if self._files.disk.exists(self._folder / name):
                sync_folder(self._folder / name)
        sync_folder(self._folder)

    def _count(self, summary: LogSummary) -> None:
        report = self._report
        report.log_start = self._files.log[0].from_offset
        report.log_end = self._log_end(summary)
        report.records = summary.records
        report.queues = len(summary.queues) + len(summary.batch_units)
        report.units = sum(bounds.end - bounds.first for bounds in summary.queues.values())
        report.batch_units = sum(map(len, summary.batch_units.values()))
        report.torn_tail = summary.torn_tail

    def _log_end(self, summary: LogSummary) -> int:
        """Return the position at which a broker continues writing: behind the BLANK record, if that is the last one."""
        end = summary.end_offset
        for file in self._files.log:
            if file.from_offset <= end < file.from_offset + file.size:
                with open(file.path, "rb") as opened:
                    opened.seek(end - file.from_offset + 4)
                    return file.from_offset + file.size if opened.read(4) == _BLANK_MAGIC else end
        return end

    # -- after --

    def _finish(self, context: StoreContext, summary: LogSummary) -> None:
        disk, root = self._files.disk, self._files.root
        checkpoint = StoreCheckpoint(context)
        before = (0, 0)
        if disk.exists(checkpoint.path):
            checkpoint.load()
            before = (checkpoint.master_flushed_offset, checkpoint.confirm_physical_offset)
            checkpoint.release()
        if self._in_place:
            self._sync_log()
            InventoryFile(context).save(self._inventory(context, summary).numbers())
            self._clear(root)
            for name in _FOLDERS:
                if disk.exists(self._folder / name):
                    disk.rename(self._folder / name, root / name)
            sync_folder(root)
            disk.delete_tree(self._folder)
        else:
            target = dataclasses.replace(context.config, store_path_root_dir=str(self._folder))
            context = StoreContext(target, disk, context.clock, context.identity)
        self._write_state(context, summary, before)
        if self._in_place:
            AbortFile(context).remove()
            sync_folder(root)

    def _sync_log(self) -> None:
        """Sync the log, because the new files will say that all of it is durable."""
        files = DurableFiles()
        for file in self._files.log:
            files.sync(Path(file.path))

    def _write_state(self, context: StoreContext, summary: LogSummary, before: tuple[int, int]) -> None:
        """Write checkpoint and inventory as a clean exit leaves them."""
        end, names = self._report.log_end, self._report.index_files
        index = [_index_header(context.root / INDEX / name) for name in names]
        checkpoint = StoreCheckpoint(context)
        checkpoint.load()
        checkpoint.physic_msg_timestamp = checkpoint.logics_msg_timestamp = summary.last_store_timestamp
        full = [header[1] for header in index if header[5] >= context.config.max_index_num]
        checkpoint.index_msg_timestamp = full[-1] if full else 0
        checkpoint.master_flushed_offset, checkpoint.confirm_physical_offset = (min(value, end) for value in before)
        checkpoint.flushed_offset = end
        checkpoint.flush()
        checkpoint.release()
        inventory = self._inventory(context, summary)
        inventory.index_files = names
        inventory.index_count = index[-1][5] if index else 0
        InventoryFile(context).save(inventory)

    def _inventory(self, context: StoreContext, summary: LogSummary) -> StoreInventory:
        """Return the store's inventory: the end of the log, and where each of the rebuilt queues ends."""
        end = self._report.log_end
        found = StoreInventory(end, end, summary.inventory_queues(context.config.mapped_file_size_consume_queue))
        found.batch_queues = summary.batch_ends
        found.deletions = len(self._files.deletions())
        return found


def _end_of(files: StoreFiles, sequence: list[DataFile]) -> int:
    """Return the queue offset behind the last unit of a queue's files; 0 if there is none."""
    queue = QueueFiles(files, sequence)
    try:
        for file in reversed(sequence):
            first = file.from_offset // CQ_STORE_UNIT_SIZE
            count = sum(1 for _ in queue.units(first))
            if count:
                return first + count
    finally:
        queue.close()
    return 0


def _link(source: PurePath, target: PurePath) -> None:
    """Link the file under another name, or copy it where a link is not possible."""
    DurableFiles().add_name(Path(source), Path(target))


def _index_header(path: PurePath) -> tuple[int, ...]:
    with open(path, "rb") as file:
        return HEADER.unpack(file.read(HEADER_SIZE))
