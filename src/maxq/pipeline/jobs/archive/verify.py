"""`archive verify`: proof that an archive has every message that brokers have, each once and unharmed.

1. Every file of the manifest is there, has its CRC-32, and its rows are those of its entry.
2. No offset is in two files.
3. Every offset between the ends that the brokers report is in a file that passed. Missing offsets are looked for on the
   broker: if the broker has the message, the archive has a gap; if not (compaction topics), the offset is reported and
   is no fault.

Without brokers the third part looks for holes between archived offsets only.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession

from maxq.pipeline.archive.check import check_file, overlap_findings
from maxq.pipeline.archive.coverage import (
    BEHIND,
    MISSING_FILE,
    ORPHAN,
    UNREADABLE_FILE,
    Finding,
    broker_ranges,
    check_same_topics,
    coverage_findings,
    incarnations,
    lost_findings,
    missing,
    passes,
    read_options,
)
from maxq.pipeline.archive.folder import ArchiveFolder
from maxq.pipeline.archive.manifest import FileEntry, coverage_of
from maxq.pipeline.archive.ranges import Range, size, union
from maxq.pipeline.archive.same_messages import check_brokers
from maxq.pipeline.archive.spread import spread
from maxq.pipeline.jobs.archive.job import ArchiveConfig, check_not_deleted, ranges_frame
from maxq.pipeline.options.read_options import ReadOptions
from maxq.pipeline.source.positions import name_of
from maxq.pipeline.transforms.archive import found_ranges
from maxq.protocol.message.message_queue import MessageQueue

Ranges = dict[MessageQueue, list[Range]]

FINDINGS_SCHEMA: Final = (
    "kind STRING, fault BOOLEAN, topic STRING, brokerName STRING, queueId INT, firstOffset BIGINT, lastOffset BIGINT,"
    " file STRING, detail STRING"
)


@dataclass(frozen=True)
class VerifyConfig:
    """What is verified.

    Attributes:
        path: the archive's folder.
        options: of format("rocketmq"): which topics, from where to where; empty: no broker is asked.
        quick: do not read the files, look at their sizes only.
        complete: messages at the end of queues that are not archived yet are a fault, too.
    """

    path: str
    options: Mapping[str, str] = field(default_factory=dict)
    quick: bool = False
    complete: bool = False


@dataclass(frozen=True)
class VerifyResult:
    """Outcome of a verification.

    Attributes:
        findings: faults first.
        coverage: what the files that passed have.
        bounds: queue → (first, one past the last) offset of the brokers; empty if none were asked.
    """

    findings: tuple[Finding, ...]
    coverage: Mapping[MessageQueue, list[Range]]
    bounds: Mapping[MessageQueue, tuple[int, int]]
    files: int
    complete: bool = False

    @property
    def ok(self) -> bool:
        """Return whether none of the findings is a fault."""
        return not any(is_fault(one, complete=self.complete) for one in self.findings)

    def frame(self, spark: SparkSession) -> DataFrame:
        """Return the findings as a table of Spark."""
        rows = [tuple(one.values()) for one in self._findings()]
        return spark.createDataFrame(rows, FINDINGS_SCHEMA)

    def to_json(self) -> dict[str, Any]:
        queues = [
            {
                "queue": name_of(queue), "messages": size(self.coverage.get(queue, ())),
                "ranges": [list(one) for one in self.coverage.get(queue, ())],
                "broker": list(self.bounds[queue]) if queue in self.bounds else None,
            }
            for queue in sorted({*self.coverage, *self.bounds})
        ]  # fmt: skip
        return {
            "ok": self.ok, "files": self.files, "messages": sum(map(size, self.coverage.values())),
            "findings": self._findings(), "queues": queues,
        }  # fmt: skip

    def _findings(self) -> list[dict[str, object]]:
        return [one.to_json() | {"fault": is_fault(one, complete=self.complete)} for one in self.findings]


def is_fault(finding: Finding, *, complete: bool) -> bool:
    """Return whether a finding is a fault. `complete` means that the archive must have everything up to the end of each
    queue."""
    return finding.is_fault or (complete and finding.kind == BEHIND)


def archive_verify(spark: SparkSession, config: VerifyConfig) -> VerifyResult:
    """Verify an archive; see the module's text.

    Raises:
        ConfigError: there is no archive.
        PipelineError: a topic was made again since it was archived; brokers do not answer.
    """
    folder = ArchiveFolder(config.path)
    manifest = folder.existing()
    findings = [Finding(ORPHAN, file=path, detail="the next run removes it") for path in folder.orphans()]
    findings += overlap_findings(manifest)
    faults = check_files(spark, folder, manifest.files, quick=config.quick)
    findings += faults
    bad = {one.file for one in faults}
    coverage = coverage_of(entry for entry in manifest.files if entry.path not in bad)
    bounds: dict[MessageQueue, tuple[int, int]] = {}
    if config.options:
        options = ReadOptions.parse(config.options, streaming=False)
        bounds = broker_ranges(options, coverage)
        if options.ending.kind == "latest":
            check_same_topics(bounds, coverage)
        check_not_deleted(spark, config.path, incarnations(options.connection, bounds), manifest)
        check_brokers(options, bounds, folder, manifest)
        findings += coverage_findings(bounds, coverage, held_by_brokers(spark, config, bounds, coverage))
    findings += lost_findings(bounds, coverage)
    ordered = sorted(findings, key=lambda one: (not is_fault(one, complete=config.complete), one.kind != MISSING_FILE))
    return VerifyResult(tuple(ordered), coverage, bounds, len(manifest.files), config.complete)


def archive_repair(spark: SparkSession, config: VerifyConfig) -> int:
    """Remove missing and damaged files from the manifest, so that the next run archives their messages anew, as far as
    brokers still have them. Files that cannot be read now, but may be later, stay. Returns how many were removed; see
    ArchiveFolder.take_out for what becomes of them."""
    folder = ArchiveFolder(config.path)
    faults = check_files(spark, folder, folder.existing().files, quick=config.quick)
    bad = {one.file for one in faults if one.file is not None and one.kind != UNREADABLE_FILE}
    if bad:
        folder.take_out(bad)
    return len(bad)


def check_files(
    spark: SparkSession, folder: ArchiveFolder, entries: tuple[FileEntry, ...], *, quick: bool
) -> list[Finding]:
    """Compare files of the archive with their entries in the manifest, and return what differs."""
    work = partial(_faults_of, folder.uri if not folder.is_local else folder.root, quick)
    by_path = {entry.path: entry for entry in entries}
    bad = [path for path in spread(spark, [entry.to_json() for entry in entries], work) if path]
    return [one for path in bad for one in check_file(folder, by_path[path], quick=quick)]


def _faults_of(root: str, quick: bool, entry: Mapping[str, Any]) -> str:
    """Return the file's path if it has a fault, else an empty text."""
    one = FileEntry.from_json(entry)
    return one.path if check_file(ArchiveFolder(root), one, quick=quick) else ""


def held_by_brokers(
    spark: SparkSession,
    config: VerifyConfig,
    bounds: Mapping[MessageQueue, tuple[int, int]],
    coverage: Mapping[MessageQueue, list[Range]],
) -> Ranges:
    """Return those offsets at which brokers have a message, among those that are missing and not at the end of their
    queue."""
    holes = {
        queue: [(first, last) for first, last in ranges if last != bounds[queue][1] - 1]
        for queue, ranges in missing(bounds, coverage).items()
    }
    reading = ArchiveConfig(config.path, config.options)
    found: Ranges = {}
    for one in passes({queue: ranges for queue, ranges in holes.items() if ranges}):
        frame = ranges_frame(
            spark, reading, read_options(one), columns="topic,brokerName,queueId,queueOffset", failOnDataLoss="false"
        )
        for row in found_ranges(frame).collect():
            queue = MessageQueue(row.topic, row.brokerName, row.queueId)
            found.setdefault(queue, []).append((row["first"], row["last"]))
    return {queue: union(ranges) for queue, ranges in found.items()}
