"""`archive table`: an archive into a table of a format that the session has, such as Delta or Iceberg.

The archive stays what is proved; the table has the same rows, and Spark's catalog, MERGE, time travel and whatever else
the format offers. The job reads from the table itself which offsets it has, so a run that is repeated, or that was
killed, appends nothing twice, provided that the format appends atomically. Delta and Iceberg do; plain Parquet tables
do not.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from maxq.errors import PipelineError
from maxq.pipeline.archive.file_stats import NEEDED_COLUMNS
from maxq.pipeline.archive.folder import ArchiveFolder
from maxq.pipeline.archive.manifest import FileEntry, Manifest
from maxq.pipeline.archive.ranges import Range, intersect, subtract
from maxq.pipeline.archive.same_messages import ArchivedMessage, other_messages
from maxq.pipeline.jobs.archive.job import read_archive
from maxq.pipeline.transforms.archive import DATE, QUEUE_KEY, found_ranges, not_covered, only_covered
from maxq.protocol.message.message_queue import MessageQueue


@dataclass(frozen=True)
class TableConfig:
    """Which archive goes into which table.

    Attributes:
        path: the archive's folder.
        table: its name in the session's catalog; it is made, partitioned by topic and date, if it is not there.
        format: of a new table: what the session knows by this name.
        topics: only these; none: all.
    """

    path: str
    table: str
    format: str = "parquet"
    topics: tuple[str, ...] = ()


@dataclass(frozen=True)
class TableResult:
    """Numbers of messages that were appended, and of those that the table had already."""

    rows: int
    before: int

    def to_json(self) -> dict[str, Any]:
        return {"appended": self.rows, "before": self.before}


def archive_table(spark: SparkSession, config: TableConfig) -> TableResult:
    """Append an archive to a table; see the module's text.

    Raises:
        ConfigError: there is no archive.
        PipelineError: the table has other columns; or messages of another topic of the name.
    """
    folder = ArchiveFolder(config.path)
    manifest = folder.existing()
    coverage, before = _table_coverage(spark, config.table)
    _check_same_topics(spark, config, folder, manifest, coverage)
    files = [
        entry
        for entry in manifest.files
        if (not config.topics or entry.topic in config.topics) and has_more(entry, coverage)
    ]
    if not files:
        return TableResult(0, before)
    rows = not_covered(read_archive(spark, config.path, files=files), coverage)
    if spark.catalog.tableExists(config.table):
        rows.select(*spark.table(config.table).columns).write.insertInto(config.table)
    else:
        rows.write.format(config.format).partitionBy("topic", DATE).saveAsTable(config.table)
    _, after = _table_coverage(spark, config.table)  # read again, because Delta hides what is observed while it writes
    return TableResult(after - before, before)


def _check_same_topics(
    spark: SparkSession,
    config: TableConfig,
    folder: ArchiveFolder,
    manifest: Manifest,
    coverage: Mapping[MessageQueue, list[Range]],
) -> None:
    """Check that the table has the messages of the archive at the offsets that both have, unless somebody has dropped
    columns that tell them apart.

    Raises:
        PipelineError: it has others: the archive is of a topic that was made again, and its first messages would be
            left out.
    """
    both = {
        queue: intersect(ranges, coverage.get(queue, ()))
        for queue, ranges in manifest.coverage().items()
        if not config.topics or queue.topic in config.topics
    }
    newest = {queue: [(ranges[-1][1], ranges[-1][1])] for queue, ranges in both.items() if ranges}
    if not newest or not {*NEEDED_COLUMNS} <= {*spark.table(config.table).columns}:
        return
    rows = only_covered(spark.table(config.table), newest)
    message = ("queueOffset", F.unix_micros("storeTimestamp").alias("us"), "bodyCrc")
    messages = {
        MessageQueue(row.topic, row.brokerName, row.queueId): ArchivedMessage(row.queueOffset, row.us, row.bodyCrc)
        for row in rows.select(*QUEUE_KEY, *message).collect()
    }
    for what in other_messages(folder, manifest, messages):
        raise PipelineError(
            f"table {config.table} is of another topic: {what} the table, and its first messages would be left out. "
            "Append to another table"
        )


def has_more(entry: FileEntry, coverage: dict[MessageQueue, list[Range]]) -> bool:
    """Return whether the file has a message that is not covered."""
    return any(subtract(part.ranges, coverage.get(entry.queue(part), ())) for part in entry.queues)


def _table_coverage(spark: SparkSession, table: str) -> tuple[dict[MessageQueue, list[Range]], int]:
    if not spark.catalog.tableExists(table):
        return {}, 0
    frame = spark.table(table)
    _check_columns(frame.columns, table)
    coverage: dict[MessageQueue, list[Range]] = {}
    count = 0
    for row in found_ranges(frame).collect():
        coverage.setdefault(MessageQueue(row.topic, row.brokerName, row.queueId), []).append(
            (row["first"], row["last"])
        )
        count += row.rows
    return coverage, count


def _check_columns(columns: Sequence[str], table: str) -> None:
    absent = [name for name in (*QUEUE_KEY, "queueOffset", DATE) if name not in columns]
    if absent:
        raise PipelineError(f"table {table} has no {', '.join(absent)}: it is none of an archive; name another")
