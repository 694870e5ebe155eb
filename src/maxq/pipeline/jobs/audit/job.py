"""Every unit and every index entry against the log, and the log against them; copies of a log against each other.

Each store is looked at on its own: what dispatch makes of its log (log_dispatch.py, the broker's own Dispatcher) is
joined with what its files have, so that whatever is missing, wrong, or of no record comes out as a row. CRCs are
checked on the way. The log is read once: what it says is kept by Spark, in memory and on its local disks. Then the logs
of copies are compared with the first store's, byte by byte, as far as both reach.

A broker may run meanwhile: its log is examined up to its end at the time when the audit began.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, Final

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from maxq.errors import ConfigError, StoreError
from maxq.pipeline.jobs.audit import tasks
from maxq.pipeline.jobs.rebuild.index_tags import has_tag_entries
from maxq.pipeline.jobs.rebuild.log_dispatch import DispatchSettings
from maxq.pipeline.jobs.small_tables import in_few_partitions
from maxq.pipeline.jobs.task_frame import task_frame
from maxq.pipeline.store.log_pieces import LogPiece, PieceReader, log_pieces
from maxq.pipeline.store.store_tables import table_schema, table_tasks
from maxq.pipeline.transforms.audit import FAULT_COLUMNS, entry_faults, faults_by_kind, log_faults, unit_faults
from maxq.store.log import record_cy as rc
from maxq.store.tools.delay_levels import delay_levels_ms
from maxq.store.tools.index_files import Geometry, infer_geometry
from maxq.store.tools.offsets import TopicNames
from maxq.store.tools.store_files import StoreFiles

_QUEUE_TASKS: Final = 16
_NO_END: Final = 1 << 62


@dataclass(frozen=True, slots=True)
class AuditOptions:
    """
    Attributes:
        index_tags: does the index have tags, too; None: look.
        piece_bytes: bytes of log a task.
        most: faults that are kept in the result; all are counted.
    """

    index_tags: bool | None = None
    piece_bytes: int = 128 << 20
    most: int = 10_000


@dataclass(slots=True)
class StoreFacts:
    """Counts of what was examined in one store.

    Attributes:
        units, entries: those that the log says there should be.
        compared: bytes of log compared with the first store's.
    """

    store: str
    log_start: int
    log_end: int
    units: int = 0
    entries: int = 0
    compared: int = 0
    is_live: bool = False

    def to_json(self) -> dict[str, Any]:
        return {
            "store": self.store,
            "logStart": self.log_start,
            "logEnd": self.log_end,
            "units": self.units,
            "indexEntries": self.entries,
            "comparedBytes": self.compared,
            "brokerRuns": self.is_live,
        }


@dataclass(slots=True)
class AuditResult:
    """
    Attributes:
        by_kind: (store, kind, how many), most first.
        faults: rows of FAULT_COLUMNS, by store, file and position, the first of them.
    """

    stores: list[StoreFacts] = field(default_factory=list)
    by_kind: list[tuple[str, str, int]] = field(default_factory=list)
    faults: list[dict[str, Any]] = field(default_factory=list)

    @property
    def fault_count(self) -> int:
        return sum(count for _, _, count in self.by_kind)

    def to_json(self) -> dict[str, Any]:
        return {
            "ok": not self.by_kind,
            "faultCount": self.fault_count,
            "stores": [one.to_json() for one in self.stores],
            "byKind": [{"store": store, "kind": kind, "faults": count} for store, kind, count in self.by_kind],
            "faults": self.faults,
        }


def audit(spark: SparkSession, stores: Sequence[StoreFiles], options: AuditOptions) -> AuditResult:
    """Audit stores; the second and later ones are copies of the first (slaves, or members of one DLedger group).

    Raises:
        ConfigError: as `check_stores`; the geometry of an index cannot be told.
    """
    job = _Audit(spark, stores, options)
    return job.run()


def audit_faults(spark: SparkSession, stores: Sequence[StoreFiles], options: AuditOptions) -> DataFrame:
    """Return the faults alone: store, file, position, kind, expected, found.

    The logs are read now. Their results stay cached in Spark until the session ends, or `catalog.clearCache` is called.
    """
    return _Audit(spark, stores, options).faults()


def check_stores(stores: Sequence[StoreFiles]) -> None:
    """Raise ConfigError for a store without a log, or for a DLedger log beside another."""
    for files in stores:
        if not files.log:
            raise ConfigError(f"{files.root} has no log: give the storePathRootDir of a broker, or a copy of it")
        if files.dledger != stores[0].dledger:
            raise ConfigError(
                f"{files.root} and {stores[0].root}: one log is a DLedger one, their bytes can not be compared; "
                "audit them one by one"
            )


class _Audit:
    def __init__(self, spark: SparkSession, stores: Sequence[StoreFiles], options: AuditOptions) -> None:
        self._spark = spark
        self._stores = stores
        self._options = options
        check_stores(stores)
        self._facts = [
            StoreFacts(str(files.root), files.log[0].from_offset, log_end(files), is_live=files.is_live)
            for files in stores
        ]
        self._kept: list[DataFrame] = []

    def run(self) -> AuditResult:
        faults = self.faults().persist()
        self._kept.append(faults)
        try:
            by_kind = [(row["store"], row["kind"], row["faults"]) for row in faults_by_kind(faults).collect()]
            first = faults.orderBy("store", "file", "position").limit(self._options.most).toArrow().to_pylist()
        finally:
            for frame in self._kept:
                frame.unpersist()
        return AuditResult(self._facts, by_kind, first)

    def faults(self) -> DataFrame:
        found = [self._store_faults(files, facts) for files, facts in zip(self._stores, self._facts, strict=True)]
        found += [self._copy_faults(place) for place in range(1, len(self._stores))]
        return reduce(DataFrame.unionByName, found).select(*FAULT_COLUMNS)

    def _store_faults(self, files: StoreFiles, facts: StoreFacts) -> DataFrame:
        spark = self._spark
        bounds = {"log_start": facts.log_start, "log_end": facts.log_end if facts.is_live else _NO_END}
        geometries = [_geometry(files, number) for number in range(len(files.index))]
        pieces = self._pieces(files, facts, geometries[-1] if geometries else None)
        log = task_frame(spark, tasks.log_rows, pieces, tasks.LOG_ROWS).persist(StorageLevel.MEMORY_AND_DISK)
        self._kept.append(log)
        self._count(facts, log)
        queues = table_tasks(files, "consumequeue", [], _QUEUE_TASKS)
        found = task_frame(spark, tasks.found_units, queues, table_schema("consumequeue"))
        index = [
            tasks.IndexTask(str(files.root), file, geometry)
            for file, geometry in zip(files.index, geometries, strict=True)
            if geometry is not None
        ]
        store = facts.store
        parts = [
            log_faults(log.where(F.col("what") == tasks.DAMAGE), store=store),
            in_few_partitions(
                unit_faults(log.where(F.col("what") == tasks.UNIT), found, store=store, **bounds), facts.units
            ),
            task_frame(spark, tasks.index_structure, index, tasks.FAULTS),
        ]
        if files.settings.index_enabled:
            entries = log.where(F.col("what") == tasks.ENTRY)
            there = task_frame(spark, tasks.found_entries, index, tasks.FOUND_ENTRIES)
            parts.append(in_few_partitions(entry_faults(entries, there, store=store, **bounds), facts.entries))
        return reduce(DataFrame.unionByName, parts)

    @staticmethod
    def _count(facts: StoreFacts, log: DataFrame) -> None:
        """Count the units and entries that follow from the log."""
        counts = {row["what"]: row["count"] for row in log.groupBy("what").count().collect()}
        facts.units, facts.entries = counts.get(tasks.UNIT, 0), counts.get(tasks.ENTRY, 0)

    def _pieces(self, files: StoreFiles, facts: StoreFacts, geometry: Geometry | None) -> list[tasks.AuditPiece]:
        tags = self._options.index_tags
        topics = TopicNames(files)
        settings = DispatchSettings(
            delay_levels_ms(files),
            frozenset(topics.batch),
            indexed=files.settings.index_enabled,
            index_tags=has_tag_entries(files, geometry) if tags is None else tags,
            deletions=files.deletions(),
        )
        high = facts.log_end if facts.is_live else _NO_END
        found = log_pieces(files, piece_bytes=self._options.piece_bytes, high=high)
        return [tasks.AuditPiece(piece, settings, topics) for piece in found]

    def _copy_faults(self, place: int) -> DataFrame:
        """Return the differences between a copy's log and the first store's."""
        master, copy = self._facts[0], self._facts[place]
        start, end = max(master.log_start, copy.log_start), min(master.log_end, copy.log_end)
        copy.compared = max(0, end - start)
        step = self._options.piece_bytes
        ours, theirs = tuple(self._stores[0].log), tuple(self._stores[place].log)
        parts = [
            tasks.CompareTask(copy.store, copy.store, ours, theirs, at, min(at + step, end))
            for at in range(start, end, step)
        ]
        return task_frame(self._spark, tasks.compare, parts, tasks.FAULTS)


def log_end(files: StoreFiles) -> int:
    """Return the physical offset behind the last good record of a store's log; its first offset if there is none."""
    for piece in reversed(log_pieces(files)):
        end = _end_of_piece(files, piece)
        if end >= 0:
            return end
    return files.log[0].from_offset


def _end_of_piece(files: StoreFiles, piece: LogPiece) -> int:
    end = -1
    for _, rows in PieceReader(files.disk, piece).rows():
        end = piece.from_offset + int(rows[-1, rc.C_POSITION] + rows[-1, rc.C_SIZE])
    return end


def _geometry(files: StoreFiles, number: int) -> Geometry | None:
    try:
        return infer_geometry(files, files.index[number])
    except StoreError as error:
        raise ConfigError(f"{files.name(files.index[number].path)}: {error}") from None
