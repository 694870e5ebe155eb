"""The manifest of an archive: which messages are in which file. Pure.

JSON lines: a head, then a line for each file, sorted by path:

    {"maxqArchive": 1, "format": "parquet", "columns": ["body", …]}
    {"path": "topic=Orders/date=2026-11-21/…-0000.parquet", "topic": "Orders", "date": "2026-11-21", "rows": 500,
     "bytes": 31337, "crc": 2774129, "firstTime": 1795000000000, "lastTime": 1795000009000, "run": "…",
     "queues": [{"broker": "broker-a", "queue": 0, "ranges": [[0, 499]], "rows": 500, "checksum": 1234}]}

`crc` is the CRC-32 of the file's bytes. `checksum` is one of messages (file_stats.py): it is the same however they are
cut into files, so that compaction can prove that it kept them all.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from maxq.errors import PipelineError
from maxq.pipeline.archive.ranges import Range, overlaps, union
from maxq.protocol.message.message_queue import MessageQueue

VERSION: Final = 1
_CHECKSUM_MASK: Final = (1 << 64) - 1


@dataclass(frozen=True)
class QueuePart:
    """The messages of one queue in one file.

    Attributes:
        ranges: their queue offsets.
        rows: how many there are; more than the ranges have offsets only if some are there twice.
        checksum: see file_stats.py; of several parts it is the sum modulo 2**64.
    """

    broker: str
    queue_id: int
    ranges: tuple[Range, ...]
    rows: int
    checksum: int

    @property
    def first(self) -> int:
        return self.ranges[0][0]

    @property
    def last(self) -> int:
        return self.ranges[-1][1]


@dataclass(frozen=True)
class FileEntry:
    """One data file: its path below the archive's folder, its size in bytes, and the first and last store time in ms
    since 1970."""

    path: str
    topic: str
    date: str
    rows: int
    bytes: int
    crc: int
    first_time: int
    last_time: int
    run: str
    queues: tuple[QueuePart, ...]

    def queue(self, part: QueuePart) -> MessageQueue:
        """Return the queue whose messages a part of the file has."""
        return MessageQueue(self.topic, part.broker, part.queue_id)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object that describes the file in the manifest."""
        return {
            "path": self.path, "topic": self.topic, "date": self.date, "rows": self.rows, "bytes": self.bytes,
            "crc": self.crc, "firstTime": self.first_time, "lastTime": self.last_time, "run": self.run,
            "queues": [
                {"broker": part.broker, "queue": part.queue_id, "ranges": [list(one) for one in part.ranges],
                 "rows": part.rows, "checksum": part.checksum}
                for part in self.queues
            ],
        }  # fmt: skip

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "FileEntry":
        """Make an entry from a line of the manifest. Raises KeyError, TypeError or ValueError for any other value."""
        parts = tuple(
            QueuePart(
                str(part["broker"]),
                int(part["queue"]),
                tuple((int(first), int(last)) for first, last in part["ranges"]),
                int(part["rows"]),
                int(part["checksum"]),
            )
            for part in value["queues"]
        )
        return cls(
            str(value["path"]), str(value["topic"]), str(value["date"]), int(value["rows"]), int(value["bytes"]),
            int(value["crc"]), int(value["firstTime"]), int(value["lastTime"]), str(value["run"]), parts,
        )  # fmt: skip


@dataclass(frozen=True)
class Doubled:
    """Offsets of a queue that are in two files, or twice in one."""

    queue: MessageQueue
    first: int
    last: int
    files: tuple[str, str]


@dataclass(frozen=True)
class Manifest:
    """The content of an archive. `number` counts its versions; 0: nothing was ever written.

    Attributes:
        format: of the data files.
        columns: of messages that they have; empty until there are files.
        files: sorted by path.
    """

    format: str = "parquet"
    columns: tuple[str, ...] = ()
    files: tuple[FileEntry, ...] = ()
    number: int = 0

    def encode(self) -> bytes:
        """Return the content of the manifest's file: a head and one line for each file, as JSON in UTF-8."""
        head = {"maxqArchive": VERSION, "format": self.format, "columns": list(self.columns)}
        lines = [head, *(entry.to_json() for entry in self.files)]
        return "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines).encode()

    @classmethod
    def decode(cls, data: bytes, number: int, name: str = "manifest") -> "Manifest":
        """Decode a manifest's file. Raises PipelineError that names the line."""
        entries: list[FileEntry] = []
        head: dict[str, Any] | None = None
        for at, line in enumerate(data.splitlines(), 1):
            try:
                value = json.loads(line)
                if head is None:
                    head = _head(value, name)
                else:
                    entries.append(FileEntry.from_json(value))
            except (ValueError, KeyError, TypeError) as error:
                raise PipelineError(f"{name}, line {at} is no line of an archive's manifest: {error!r}") from None
        if head is None:
            raise PipelineError(f"{name} is empty: it is no archive's manifest")
        return cls(str(head["format"]), tuple(head["columns"]), tuple(entries), number)

    def changed(
        self, added: Iterable[FileEntry], removed: Iterable[str] = (), columns: Iterable[str] = ()
    ) -> "Manifest":
        """Return the next version of the manifest.

        Args:
            added: new files.
            removed: paths of files that are no longer part of it.
            columns: columns of the new files; used if the archive had no files before.

        Raises:
            PipelineError: a removed file is not there, an added one is.
        """
        files = {entry.path: entry for entry in self.files}
        for path in removed:
            if files.pop(path, None) is None:
                raise PipelineError(f"{path} is no longer in the archive: somebody else rewrote it")
        for entry in added:
            if entry.path in files:
                raise PipelineError(f"{entry.path} is in the archive already")
            files[entry.path] = entry
        ordered = tuple(files[path] for path in sorted(files))
        return replace(self, files=ordered, number=self.number + 1, columns=self.columns or tuple(columns))

    def topics(self) -> list[str]:
        """Return the topics of which the archive has files, sorted."""
        return sorted({entry.topic for entry in self.files})

    def coverage(self) -> dict[MessageQueue, list[Range]]:
        """Return the offsets of each queue that are in some file."""
        return coverage_of(self.files)

    def doubled(self) -> list[Doubled]:
        """Return the offsets that are in the archive more than once."""
        by_queue: dict[MessageQueue, list[tuple[int, int, int]]] = {}
        found: list[Doubled] = []
        for number, entry in enumerate(self.files):
            for part in entry.queues:
                queue = entry.queue(part)
                by_queue.setdefault(queue, []).extend((first, last, number) for first, last in part.ranges)
                if part.rows > sum(last - first + 1 for first, last in part.ranges):
                    found.append(Doubled(queue, part.first, part.last, (entry.path, entry.path)))
        for queue, ranges in sorted(by_queue.items()):
            for one in overlaps(ranges):
                found.append(
                    Doubled(queue, one.first, one.last, (self.files[one.one].path, self.files[one.other].path))
                )
        return found


def coverage_of(files: Iterable[FileEntry]) -> dict[MessageQueue, list[Range]]:
    """Return the offsets of each queue that are in some of these files."""
    found: dict[MessageQueue, list[Range]] = {}
    for entry in files:
        for part in entry.queues:
            found.setdefault(entry.queue(part), []).extend(part.ranges)
    return {queue: union(ranges) for queue, ranges in found.items()}


def content_of(files: Iterable[FileEntry]) -> dict[MessageQueue, tuple[tuple[Range, ...], int, int]]:
    """Return (ranges, rows, checksum) of each queue: equal for two sets of files only if they have the same
    messages."""
    files = list(files)
    rows: dict[MessageQueue, int] = {}
    sums: dict[MessageQueue, int] = {}
    for entry in files:
        for part in entry.queues:
            queue = entry.queue(part)
            rows[queue] = rows.get(queue, 0) + part.rows
            sums[queue] = (sums.get(queue, 0) + part.checksum) & _CHECKSUM_MASK
    return {queue: (tuple(ranges), rows[queue], sums[queue]) for queue, ranges in coverage_of(files).items()}


def _head(value: Any, name: str) -> dict[str, Any]:
    if not isinstance(value, dict) or "maxqArchive" not in value:
        raise ValueError("the first line has no maxqArchive")
    if value["maxqArchive"] != VERSION:
        raise PipelineError(
            f"{name} has version {value['maxqArchive']!r}; this release reads version {VERSION}: use a newer one"
        )
    return {"format": value["format"], "columns": list(value["columns"])}
