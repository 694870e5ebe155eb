"""`archive compact`: many small files of one topic and day become few.

The new files must have exactly the messages of the old ones (ranges, counts and checksums of every queue), and take
their place in one version of the manifest. Then the old files are removed; a reader that uses them at that moment has
to begin again.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import SparkSession

from maxq.errors import PipelineError
from maxq.pipeline.archive.folder import ArchiveFolder, ArchiveRun
from maxq.pipeline.archive.manifest import FileEntry, content_of
from maxq.pipeline.jobs.archive.job import FileForm, read_archive, stage

TARGET_BYTES: Final = 128 << 20
_ORDER: Final = ("brokerName", "queueId", "queueOffset")


@dataclass(frozen=True)
class CompactConfig:
    """Which files are compacted, and how.

    Attributes:
        path: the archive's folder.
        target_bytes: of a file, about; files of half of it or more stay as they are.
        topics: only these; none: all.
        compression: of Parquet.
    """

    path: str
    target_bytes: int = TARGET_BYTES
    topics: tuple[str, ...] = ()
    compression: str = "zstd"


@dataclass(frozen=True)
class CompactResult:
    """Numbers of files and bytes before and after, of the files that were rewritten."""

    before: int
    after: int
    rows: int

    def to_json(self) -> dict[str, Any]:
        return {"filesBefore": self.before, "filesAfter": self.after, "messages": self.rows}


def archive_compact(spark: SparkSession, config: CompactConfig) -> CompactResult:
    """Merge small files of an archive; see the module's text.

    Raises:
        ConfigError: there is no archive.
        PipelineError: old files are damaged (nothing was changed); another run rewrites the same.
    """
    folder = ArchiveFolder(config.path)
    done = CompactResult(0, 0, 0)
    with folder.run() as run:
        for files in small_files(folder.existing().files, config):
            new = _rewrite(spark, run, config, files)
            done = CompactResult(
                done.before + len(files), done.after + len(new), done.rows + sum(entry.rows for entry in new)
            )
    return done


def small_files(files: Iterable[FileEntry], config: CompactConfig) -> list[list[FileEntry]]:
    """Return the groups of files that are rewritten together: the small files of one topic and day, if fewer can hold
    them."""
    groups: dict[tuple[str, str], list[FileEntry]] = {}
    for entry in files:
        if entry.bytes * 2 < config.target_bytes and (not config.topics or entry.topic in config.topics):
            groups.setdefault((entry.topic, entry.date), []).append(entry)
    return [group for _, group in sorted(groups.items()) if files_after(group, config) < len(group)]


def files_after(group: Iterable[FileEntry], config: CompactConfig) -> int:
    """Return how many files hold the messages of a group."""
    return max(1, -(-sum(entry.bytes for entry in group) // config.target_bytes))


def _rewrite(spark: SparkSession, run: ArchiveRun, config: CompactConfig, files: list[FileEntry]) -> list[FileEntry]:
    folder = run.folder
    form = FileForm(folder.manifest().columns, config.compression)
    messages = read_archive(spark, config.path, files=files).coalesce(files_after(files, config))
    staged, entries = stage(messages.sortWithinPartitions(*_ORDER), run, form)
    if content_of(entries) != content_of(files):
        raise PipelineError(
            f"{len(files)} files of {files[0].topic}, {files[0].date} do not match the manifest: nothing was "
            "changed. See archive verify"
        )
    placed = run.place(staged, entries)
    try:
        folder.commit(lambda manifest: manifest.changed(placed, [entry.path for entry in files]))
    except PipelineError:
        run.withdraw(placed)
        raise
    for entry in files:
        folder.delete(entry.path)
    return placed
