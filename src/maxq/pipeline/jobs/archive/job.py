"""The job `archive`: topics or store files → an archive; once, or as a stream.

    archive_once(spark, ArchiveConfig("/archive", {"rocketmq.namesrv": "127.0.0.1:9876", "subscribe": "Orders"}))
    messages = read_archive(spark, "/archive")

Messages in the manifest are not read again (over the wire), or not written again (store files, streams). So a run may
be repeated, and a back-fill and a live stream may run side by side and meet without a duplicate.
"""

import json
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from maxq.arrow.schemas import MESSAGE_COLUMNS, message_columns, spark_schema
from maxq.errors import ConfigError, PipelineError
from maxq.pipeline.archive.coverage import (
    broker_ranges,
    check_same_topics,
    incarnations,
    missing,
    passes,
    read_options,
)
from maxq.pipeline.archive.file_stats import NEEDED_COLUMNS, entry_of
from maxq.pipeline.archive.folder import ArchiveFolder, ArchiveRun, StagedFile
from maxq.pipeline.archive.manifest import FileEntry, Manifest, coverage_of
from maxq.pipeline.archive.ranges import intersect
from maxq.pipeline.archive.same_messages import ArchivedMessage, check_brokers, check_messages, check_order
from maxq.pipeline.archive.spread import spread
from maxq.pipeline.options.predicate import condition, predicate_option
from maxq.pipeline.options.read_options import FORMAT, ReadOptions
from maxq.pipeline.source.positions import name_of
from maxq.pipeline.store.own_topics import OWN_TOPICS
from maxq.pipeline.store.store_folder import open_store, owner_of
from maxq.pipeline.store.store_source import FORMAT as STORE_FORMAT
from maxq.pipeline.store.store_source import store_options
from maxq.pipeline.transforms.archive import DATE, QUEUE_KEY, archive_rows, not_covered, only_covered
from maxq.protocol.message.message_queue import MessageQueue

log: Final = logging.getLogger(__name__)

ROWS_PER_FILE: Final = 1_000_000
CHECKPOINT: Final = "_checkpoint"
_ATTEMPTS: Final = 3
_REFUSED: Final = {
    "subexpression": "an archive that leaves messages out cannot be proved whole",
    "columns": "give ArchiveConfig.columns",
    "groupid": "the manifest says what was archived",
}
_PER_PASS: Final = ("subscribe", "subscribepattern", "assign", "startingoffsets", "endingoffsets", "startingtimestamp",
                    "endingtimestamp", "startingoffsetsbytimestamp", "endingoffsetsbytimestamp",
                    "startingoffsetsbygroup")  # fmt: skip


@dataclass(frozen=True)
class FileForm:
    """How files are written. `rows`: the most rows of one file; 0: no limit."""

    columns: tuple[str, ...]
    compression: str = "zstd"
    rows: int = 0


@dataclass(frozen=True)
class ArchiveConfig:
    """Source, target and options of an archive.

    Attributes:
        path: the archive's folder; it may have other topics already.
        options: of format("rocketmq"): the connection, what to subscribe to, where to start and end.
        store: store directories instead, broker up or down; then `options` has failOnDataLoss at most.
        topics: of the store directories; none: all but the broker's own.
        broker_name: what the store's broker is called; archives of a topic and of its store files join if it is right.
        columns: of messages; those that prove coverage are always among them.
        rows_per_file: at most so many.
        compression: of Parquet.
    """

    path: str
    options: Mapping[str, str] = field(default_factory=dict)
    store: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()
    broker_name: str = ""
    columns: tuple[str, ...] = tuple(MESSAGE_COLUMNS)
    rows_per_file: int = ROWS_PER_FILE
    compression: str = "zstd"

    def __post_init__(self) -> None:
        if bool(self.store) == bool(self.options.keys() - store_options(self.options).keys()):
            raise ConfigError("an archive is made of topics (options) or of store directories (store), of one of them")
        given = {name.lower() for name in self.options}
        for name, reason in _REFUSED.items():
            if name in given:
                raise ConfigError(f"option {name} cannot be given for an archive: {reason}")
        message_columns(",".join(self.columns))
        absent = [name for name in NEEDED_COLUMNS if name not in self.columns]
        if absent:
            raise ConfigError(f"an archive needs the columns {', '.join(absent)} to be proved whole")

    @property
    def form(self) -> FileForm:
        """Return how the archive's files are written."""
        return FileForm(self.columns, self.compression, self.rows_per_file)


@dataclass(frozen=True)
class ArchiveResult:
    """What one run wrote. `removed`: files of runs that had died."""

    files: tuple[FileEntry, ...]
    removed: tuple[str, ...] = ()

    @property
    def rows(self) -> int:
        return sum(entry.rows for entry in self.files)

    def to_json(self) -> dict[str, Any]:
        coverage = coverage_of(self.files)
        return {
            "messages": self.rows, "files": len(self.files), "bytes": sum(entry.bytes for entry in self.files),
            "removed": list(self.removed),
            "ranges": {name_of(queue): [list(one) for one in ranges] for queue, ranges in sorted(coverage.items())},
        }  # fmt: skip


class OvertakenError(PipelineError):
    """Raised when another run archived some of the same messages first."""


# --- once ------------------------------------------------------------------------------------------------------------


def archive_once(spark: SparkSession, config: ArchiveConfig) -> ArchiveResult:
    """Archive the messages that exist and are not archived yet.

    Raises:
        ConfigError: see check_names.
        PipelineError: see coverage.check_same_topics, same_messages.check_brokers; other runs are always faster.
    """
    check_names(config)
    folder = ArchiveFolder(config.path)
    with folder.run() as run:
        for _ in range(_ATTEMPTS):
            messages = messages_there(spark, config, folder)
            if messages is None:
                return ArchiveResult((), tuple(run.removed))
            try:
                return write_files(messages, run, config)
            except OvertakenError as error:
                log.warning("%s; the rest is planned again", error)
    raise PipelineError(f"other runs archive the same messages into {folder.root}: let one end")


def check_names(config: ArchiveConfig) -> None:
    """Check that store directories are not archived under the names of their folders though their brokers have others:
    the messages of a broker would be in the archive under two names.

    Raises:
        ConfigError: one is, and `broker_name` says nothing.
    """
    for files in () if config.broker_name else map(open_store, config.store):
        owner = owner_of(files)
        if owner not in (None, files.root.name):
            raise ConfigError(
                f"{files.root} is the store of broker {owner}: give --broker-name {owner}, because the archive of "
                f"this broker has its name (--broker-name {files.root.name} if earlier runs used the folder's name)"
            )


def messages_there(spark: SparkSession, config: ArchiveConfig, folder: ArchiveFolder) -> DataFrame | None:
    """Return the existing messages: over the wire those that are not archived, of store directories all of them. None
    if there are none (over the wire)."""
    manifest = folder.manifest()
    if config.store:
        check_not_deleted(spark, config.path, deleted_now(config, manifest.coverage()), manifest)
        return store_messages(spark, config)
    options = ReadOptions.parse(config.options, streaming=False)
    coverage = manifest.coverage()
    bounds = broker_ranges(options, coverage)
    if options.ending.kind == "latest":
        check_same_topics(bounds, coverage)
    check_not_deleted(spark, config.path, deleted_now(config, bounds), manifest)
    check_brokers(options, bounds, folder, manifest)
    left = missing(bounds, coverage)
    frames = [ranges_frame(spark, config, read_options(one)) for one in passes(left)]
    return reduce(DataFrame.unionByName, frames) if frames else None


def check_not_deleted(spark: SparkSession, path: str, deleted: Mapping[MessageQueue, int], manifest: Manifest) -> None:
    """Check queues whose topics were deleted at the physical offset `deleted`.

    Raises:
        PipelineError: what was archived last of one of them lies before: it is another queue of the same name, however
            long it is.
    """
    if "physicalOffset" not in manifest.columns:
        return
    last: dict[MessageQueue, tuple[int, FileEntry]] = {}
    for entry in manifest.files:
        for part in entry.queues:
            queue = entry.queue(part)
            if queue in deleted and part.last >= last.get(queue, (-1, entry))[0]:
                last[queue] = part.last, entry
    if not last:
        return
    files = {entry.path: entry for _, entry in last.values()}
    newest = read_archive(spark, path, files=files.values()).groupBy("topic", "brokerName", "queueId")
    for row in newest.agg(F.max("physicalOffset").alias("place")).collect():
        queue = MessageQueue(row.topic, row.brokerName, row.queueId)
        if queue in last and row.place < deleted[queue]:
            raise PipelineError(
                f"{name_of(queue)} was archived up to offset {last[queue][0]}, and then its topic was deleted: the "
                "present topic is a new one. Archive it into another folder"
            )


def deleted_now(
    config: ArchiveConfig, queues: Iterable[MessageQueue], *, waits: bool = True
) -> dict[MessageQueue, int]:
    """Return, by queue, at which physical offset the topic was deleted last, according to brokers (see `incarnations`)
    or store directories."""
    if config.store:
        return deleted_in_stores(config, queues)
    return incarnations(_batch_options(config).connection, queues, waits=waits)


def deleted_in_stores(config: ArchiveConfig, queues: Iterable[MessageQueue]) -> dict[MessageQueue, int]:
    """Return, by queue, where in the log of its store the topic was deleted last; queues of other topics are left
    out."""
    found: dict[MessageQueue, int] = {}
    for path in config.store:
        files = open_store(path)
        name, table = config.broker_name or files.root.name, files.deletions()
        mine = [queue for queue in queues if queue.broker_name == name]
        found |= {queue: table[queue.topic] for queue in mine if queue.topic in table}
    return found


def _batch_options(config: ArchiveConfig) -> ReadOptions:
    """Return the options of `config` without those that only streams have."""
    given = {name: value for name, value in config.options.items() if not name.lower().startswith(_STREAM_ONLY)}
    return ReadOptions.parse(given, streaming=False)


def ranges_frame(spark: SparkSession, config: ArchiveConfig, ranges: Mapping[str, object], **more: str) -> DataFrame:
    """Return the messages of one pass (coverage.read_options)."""
    options = {name: value for name, value in config.options.items() if name.lower() not in _PER_PASS}
    options |= {name: json.dumps(value) for name, value in ranges.items()}
    options["columns"] = ",".join(config.columns)
    options.setdefault("maxRecordsPerPartition", str(config.rows_per_file))
    return spark.read.format(FORMAT).options(**{**options, **more}).load()


def store_messages(spark: SparkSession, config: ArchiveConfig) -> DataFrame:
    """Return the messages of store directories that are to be archived."""
    reader = spark.read.format(STORE_FORMAT).option("columns", ",".join(config.columns))
    if config.broker_name:
        reader = reader.option("brokerName", config.broker_name)
    reader = reader.options(**store_options(config.options))
    reader = reader.options(**predicate_option((condition("topic", "in", config.topics),)))
    messages = reader.option("paths", json.dumps(list(config.store))).load()
    if config.topics:
        return messages.where(F.col("topic").isin(*config.topics))
    return messages.where(~F.col("topic").rlike(OWN_TOPICS))


# --- as a stream -----------------------------------------------------------------------------------------------------


def archive_stream(
    spark: SparkSession, config: ArchiveConfig, *, interval: str | None = None, checkpoint: str | None = None
) -> StreamingQuery:
    """Archive as a stream, from the first message that is not archived yet.

    Args:
        config: of topics; options of streams such as maxOffsetsPerTrigger may be given.
        interval: of triggers, such as "10 seconds", without end; None: what is there now (AvailableNow).
        checkpoint: of Spark's; else in the archive's folder, one for each selection of topics.
    """
    if config.store:
        raise ConfigError("store directories are archived once, not as a stream")
    folder = ArchiveFolder(config.path)
    options = dict(config.options)
    options = {name: value for name, value in options.items() if "starting" not in name.lower()}
    start = _stream_start(spark, config, folder)
    options["startingOffsets"] = json.dumps(start) if start else "earliest"
    options["columns"] = ",".join(config.columns)
    options.setdefault("maxRecordsPerPartition", str(config.rows_per_file))

    def write(batch: DataFrame, number: int) -> None:
        write_batch(batch, config)

    stream = spark.readStream.format(FORMAT).options(**options).load()
    writer = stream.writeStream.foreachBatch(write).queryName(f"archive {Path(folder.root).name}")
    writer = writer.option("checkpointLocation", checkpoint or folder.uri_of(f"{CHECKPOINT}/{_selection_name(config)}"))
    if interval is None:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=interval).start()


def write_batch(batch: DataFrame, config: ArchiveConfig) -> ArchiveResult:
    """Archive the messages of one trigger without those that are archived already, because the batch was written before
    a crash, or by a back-fill.

    Raises:
        PipelineError: as archive_once.
    """
    folder = ArchiveFolder(config.path)
    with folder.run() as run:
        _check_stream(batch.sparkSession, config, folder.manifest())
        for _ in range(_ATTEMPTS):
            try:
                return write_files(batch, run, config)
            except OvertakenError as error:
                log.warning("%s; the rest is written again", error)
    raise PipelineError(f"other runs archive the same messages into {folder.root}: let one end")


def _check_stream(spark: SparkSession, config: ArchiveConfig, manifest: Manifest) -> None:
    """Check that a stream with failOnDataLoss=false, which continues where a topic was made again, uses another
    archive. Brokers that are away have no messages in this batch."""
    options = _batch_options(config)
    queues = [queue for queue in manifest.coverage() if options.selection.names(queue.topic)]
    check_not_deleted(spark, config.path, deleted_now(config, queues, waits=False), manifest)


def _stream_start(spark: SparkSession, config: ArchiveConfig, folder: ArchiveFolder) -> dict[str, Any]:
    """Return topic → broker → queue → the first offset that is wanted and not archived."""
    options, manifest = _batch_options(config), folder.manifest()
    coverage = manifest.coverage()
    bounds = broker_ranges(options, coverage)
    check_same_topics(bounds, coverage)
    check_not_deleted(spark, config.path, deleted_now(config, bounds), manifest)
    check_brokers(options, bounds, folder, manifest)
    left = missing(bounds, coverage)
    found: dict[str, Any] = {}
    for queue, (_, end) in bounds.items():
        start = left[queue][0][0] if queue in left else end
        found.setdefault(queue.topic, {}).setdefault(queue.broker_name, {})[str(queue.queue_id)] = start
    return found


_STREAM_ONLY: Final = ("maxoffsetspertrigger", "minoffsetspertrigger", "maxtriggerdelay", "maxbytespertrigger")


def _selection_name(config: ArchiveConfig) -> str:
    """Return the part of a checkpoint's name for the selection: another selection of topics is another stream."""
    names = sorted(f"{name.lower()}-{value}" for name, value in config.options.items() if name.lower() in _PER_PASS[:3])
    return "".join(letter if letter.isalnum() or letter in "-_" else "_" for letter in ",".join(names))[:150]


# --- both ------------------------------------------------------------------------------------------------------------


def write_files(messages: DataFrame, run: ArchiveRun, config: ArchiveConfig) -> ArchiveResult:
    """Write messages as new files of the archive and make them part of it. Messages that are archived already are left
    out.

    Raises:
        OvertakenError: some were archived meanwhile; nothing was changed.
        PipelineError: some of them are there twice; or they are of another topic of the name than the archived ones.
    """
    folder = run.folder
    manifest, seen = folder.manifest(), Observation()
    staged, entries = stage(not_covered(messages, manifest.coverage(), seen), run, config.form)
    if manifest.files and seen.get["covered"]:
        check_messages(folder, manifest, newest_covered(messages, manifest))
    if not entries:
        return ArchiveResult((), tuple(run.removed))
    twice = Manifest(files=tuple(entries)).doubled()
    if twice:
        one = twice[0]
        raise PipelineError(
            f"{name_of(one.queue)} has offsets {one.first} to {one.last} twice among the messages read: are two of the "
            "store directories copies of one another?"
        )
    check_order(folder, manifest, entries)
    new = coverage_of(entries)
    manifest = folder.manifest()
    archived = {queue: ranges[-1][1] for queue, ranges in manifest.coverage().items() if queue in new}
    check_not_deleted(messages.sparkSession, config.path, deleted_now(config, archived), manifest)
    if not config.store:
        ends = {queue: (last, last + 1) for queue, last in archived.items()}
        check_brokers(_batch_options(config), ends, folder, manifest)
    placed = run.place(staged, entries)

    def change(manifest: Manifest) -> Manifest:
        check_fits(manifest, config.columns, folder)
        there = manifest.coverage()
        for queue, ranges in new.items():
            if intersect(ranges, there.get(queue, ())):
                raise OvertakenError(f"another run archived some of {name_of(queue)}")
        return manifest.changed(placed, columns=config.columns)

    try:
        folder.commit(change)
    except PipelineError:
        run.withdraw(placed)
        raise
    return ArchiveResult(tuple(placed), tuple(run.removed))


def newest_covered(messages: DataFrame, manifest: Manifest) -> dict[MessageQueue, ArchivedMessage]:
    """Return of each queue the last message whose offset is archived."""
    message = F.struct("queueOffset", F.unix_micros("storeTimestamp").alias("us"), "bodyCrc")
    newest = only_covered(messages, manifest.coverage()).groupBy(*QUEUE_KEY).agg(F.max(message).alias("newest"))
    return {
        MessageQueue(row.topic, row.brokerName, row.queueId): ArchivedMessage(*row.newest) for row in newest.collect()
    }


def stage(messages: DataFrame, run: ArchiveRun, form: FileForm) -> tuple[list[StagedFile], list[FileEntry]]:
    """Write messages into files of the run's own; returns the files and their entries."""
    part = run.new_part()
    writer = archive_rows(messages, form.columns).write.format("parquet").partitionBy("topic", DATE)
    writer = writer.option("maxRecordsPerFile", form.rows).option("compression", form.compression)
    writer.save(run.folder.uri_of(part))
    staged = run.staged(part)
    return staged, file_entries(messages.sparkSession, run, [file.path for file in staged])


def file_entries(spark: SparkSession, run: ArchiveRun, paths: Iterable[str]) -> list[FileEntry]:
    """Return the entries of data files, in their order."""
    uri, name = run.folder.uri if not run.folder.is_local else run.folder.root, run.name

    def describe(path: str) -> dict[str, Any]:
        folder = ArchiveFolder(uri)
        return entry_of(folder.filesystem, folder.root, path, name).to_json()

    return [FileEntry.from_json(value) for value in spread(spark, list(paths), describe)]


def check_fits(manifest: Manifest, columns: Iterable[str], folder: ArchiveFolder) -> None:
    """Raise PipelineError if the archive has other columns."""
    if manifest.columns and tuple(columns) != manifest.columns:
        raise PipelineError(
            f"the archive {folder.root} has the columns {', '.join(manifest.columns)}: archive the same, or into "
            "another folder"
        )


def read_archive(
    spark: SparkSession,
    path: str,
    topics: Iterable[str] = (),
    *,
    first_time: int | None = None,
    end_time: int | None = None,
    files: Iterable[FileEntry] | None = None,
) -> DataFrame:
    """Read the messages of an archive, with the column `date`. Only files that the manifest names are read.

    Args:
        topics: only these; none: all.
        first_time, end_time: leave out files without a message that was stored from then on, and before then (ms).
        files: these instead.

    Raises:
        ConfigError: there is no archive.
    """
    folder = ArchiveFolder(path)
    manifest = folder.existing()
    wanted = set(topics)
    chosen = [
        entry
        for entry in (manifest.files if files is None else files)
        if (not wanted or entry.topic in wanted)
        and (first_time is None or entry.last_time >= first_time)
        and (end_time is None or entry.first_time < end_time)
    ]
    columns = manifest.columns or tuple(MESSAGE_COLUMNS)
    in_files = [name for name in columns if name != "topic"]
    schema = f"{spark_schema(in_files)}, `topic` STRING, `{DATE}` DATE"
    if not chosen:
        return spark.createDataFrame([], schema).select(*columns, DATE)
    reader = spark.read.schema(schema).option("basePath", folder.uri)
    return reader.parquet(*(folder.uri_of(entry.path) for entry in chosen)).select(*columns, DATE)
