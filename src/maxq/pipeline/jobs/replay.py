"""The job `replay`: messages of an archive or of store directories back into topics.

    cluster = {"rocketmq.namesrv": "127.0.0.1:9876"}
    replay(spark, ReplayConfig(cluster, archive="/archive", mapped=Mapped(topic="Again")))

Work is cut into pieces: files of the archive that are neighbours in time, or all of a store. Pieces go one after the
other, the messages of a queue in their order. A finished piece is written into the record (archive/record.py), which
the next run passes over. With exactly-once (MaxQ brokers) a piece is delivered once even if its line was not written.
"""

import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial, reduce
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from maxq.errors import ConfigError
from maxq.pipeline.archive.folder import ArchiveFolder
from maxq.pipeline.archive.manifest import FileEntry, coverage_of
from maxq.pipeline.archive.ranges import Range, intersect, subtract, union
from maxq.pipeline.archive.record import SentRecord, piece_name
from maxq.pipeline.archive.same_messages import ArchivedMessage
from maxq.pipeline.jobs.archive.job import ArchiveConfig, deleted_in_stores, read_archive, store_messages
from maxq.pipeline.options.option_values import OptionValues
from maxq.pipeline.options.read_options import FORMAT
from maxq.pipeline.options.write_options import EXACTLY_ONCE, WriteOptions
from maxq.pipeline.records.losses import Losses
from maxq.pipeline.sink.sink_commit import deliver_decided
from maxq.pipeline.source.positions import name_of
from maxq.pipeline.store.store_source import store_options
from maxq.pipeline.transforms.archive import QUEUE_KEY, found_ranges, not_covered, only_covered
from maxq.pipeline.transforms.pace import Pace, in_order, timed
from maxq.pipeline.transforms.replay import (
    COUNTS_SCHEMA,
    Chosen,
    Mapped,
    chosen_messages,
    is_chosen,
    sink_messages,
    target_counts,
)
from maxq.protocol.message.message_queue import MessageQueue
from maxq.runtime.files.system import SystemClock

log: Final = logging.getLogger(__name__)

PIECE_BYTES: Final = 256 << 20
ANY_PACE: Final = Pace()
Ranges = Mapping[MessageQueue, Sequence[Range]]


@dataclass(frozen=True)
class ReplayConfig:
    """What is sent again.

    Attributes:
        options: of the sink: the connection, and what write_options.py has besides; and failOnDataLoss, of store
            directories.
        archive: the archive's folder …
        store: … or store directories.
        record: file that records what was sent; None: nothing is recorded, and nothing passed over.
        exactly_once: needs MaxQ brokers.
        piece_bytes: of archive files, about, between two lines of the record.
    """

    options: Mapping[str, str]
    archive: str | None = None
    store: tuple[str, ...] = ()
    broker_name: str = ""
    chosen: Chosen = field(default_factory=Chosen)
    mapped: Mapped = field(default_factory=Mapped)
    pace: Pace = field(default_factory=Pace)
    record: Path | None = None
    exactly_once: bool = False
    piece_bytes: int = PIECE_BYTES

    def __post_init__(self) -> None:
        if (self.archive is None) == (not self.store):
            raise ConfigError("messages come from an archive or from store directories, from one of them")
        if self.exactly_once and self.record is None:
            raise ConfigError("exactly-once needs a record: it names the pieces of the work across runs")

    @property
    def what(self) -> str:
        """Return the text by which the record recognizes the same work: what is replayed, and where to."""
        source = {"archive": self.archive} if self.archive is not None else {"store": list(self.store)}
        work = {**source, "chosen": asdict(self.chosen), "mapped": asdict(self.mapped)}
        return f"replay {json.dumps(work, sort_keys=True)}"


@dataclass(frozen=True)
class ReplayPiece:
    """Messages that are sent between two lines of the record.

    Attributes:
        examined: all messages at `ranges`; those of `chosen` are sent.
        rows: how many were to be sent when they were counted; None: they were not counted, because they stay.
        newest: the last message of each queue, where brokers may not tell that a topic was deleted.
        away: those offsets of an archive's piece that the archive has no more, as after `archive verify --repair`.
    """

    examined: DataFrame
    chosen: Chosen
    ranges: Ranges
    rows: int | None = None
    newest: Mapping[MessageQueue, ArchivedMessage] = field(default_factory=dict)
    away: Ranges = field(default_factory=dict)

    @property
    def messages(self) -> DataFrame:
        return chosen_messages(self.examined, self.chosen)


@dataclass(frozen=True)
class SentResult:
    """What was sent. `before`: messages that earlier runs had sent according to the record."""

    rows: int
    pieces: int
    before: int = 0

    def to_json(self) -> dict[str, Any]:
        return {"sent": self.rows, "pieces": self.pieces, "sentBefore": self.before}


def replay(spark: SparkSession, config: ReplayConfig) -> SentResult:
    """Send what is chosen and not in the record.

    Raises:
        ConfigError: there is no archive; the record is one of other work.
        DataLossError: messages of a store were deleted after they were counted; the others were sent.
        PipelineError: brokers do not take a message.
    """
    record = _record_of(config)
    work = pieces(spark, config, record)
    form = partial(sink_messages, mapped=config.mapped)
    return send_pieces(spark, work, config.options, form, record, pace=config.pace, exactly_once=config.exactly_once)


def replay_counts(spark: SparkSession, config: ReplayConfig) -> DataFrame:
    """Count the messages that `replay` would send; columns as transforms.replay.target_counts."""
    record = _record_of(config)
    messages = [piece.messages for piece in pieces(spark, config, record)]
    if not messages:
        return spark.createDataFrame([], COUNTS_SCHEMA)
    return target_counts(reduce(DataFrame.unionByName, messages), config.mapped)


def _record_of(config: ReplayConfig) -> SentRecord | None:
    """Return the record of sent messages. Raises ConfigError as SentRecord does."""
    if config.record is None:
        return None
    of_stores = partial(deleted_in_stores, _store_source(config)) if config.store else None
    return SentRecord(config.record, config.what, of_stores)


def pieces(spark: SparkSession, config: ReplayConfig, record: SentRecord | None) -> Iterator[ReplayPiece]:
    """Yield the remaining work, in the order in which it is to be done."""
    done = {} if record is None else record.coverage
    if record is not None and record.pending:
        piece = _pending_piece(spark, config, record)
        yield piece
        done = merged(done, piece.ranges)
    if config.archive is not None:
        yield from _archive_pieces(spark, config, config.archive, done)
    else:
        yield from _store_pieces(spark, config, done)


def _pending_piece(spark: SparkSession, config: ReplayConfig, record: SentRecord) -> ReplayPiece:
    """Return the piece of the replay that the record says an earlier run began and did not finish."""
    pending = record.pending
    if config.archive is None:
        messages = store_messages(spark, _store_source(config))
        return ReplayPiece(only_covered(messages, pending), config.chosen, pending, record.pending_rows)
    files = [
        entry
        for entry in ArchiveFolder(config.archive).existing().files
        if any(intersect(part.ranges, pending.get(entry.queue(part), ())) for part in entry.queues)
    ]
    there = coverage_of(files)
    away = {queue: left for queue, some in pending.items() if (left := subtract(some, there.get(queue, ())))}
    messages = only_covered(read_archive(spark, config.archive, files=files), pending)
    return ReplayPiece(messages, config.chosen, pending, away=away)


def merged(some: Ranges, others: Ranges) -> dict[MessageQueue, list[Range]]:
    """Return the offsets of each queue that are in one of two tables, or both."""
    return {queue: union([*some.get(queue, ()), *others.get(queue, ())]) for queue in {*some, *others}}


def _archive_pieces(spark: SparkSession, config: ReplayConfig, path: str, done: Ranges) -> Iterator[ReplayPiece]:
    chosen = config.chosen
    files = [
        entry
        for entry in ArchiveFolder(path).existing().files
        if (not chosen.topics or entry.topic in chosen.topics)
        and (chosen.first_time is None or entry.last_time >= chosen.first_time)
        and (chosen.end_time is None or entry.first_time < chosen.end_time)
    ]
    for group in neighbours(files, config.piece_bytes):
        messages = read_archive(spark, path, files=group)
        piece = piece_of(messages, coverage_of(group), done, chosen)
        if piece is not None:
            yield piece


def neighbours(files: Sequence[FileEntry], piece_bytes: int) -> list[list[FileEntry]]:
    """Group files by time, those of a queue in its order, so that a group has about `piece_bytes` bytes."""
    groups: list[list[FileEntry]] = []
    size = 0
    times = _times_in_order(files)
    for entry in sorted(files, key=lambda one: (times[one.path], min(part.first for part in one.queues), one.path)):
        if not groups or size + entry.bytes > piece_bytes:
            groups.append([])
            size = 0
        groups[-1].append(entry)
        size += entry.bytes
    return groups


def _times_in_order(files: Sequence[FileEntry]) -> dict[str, int]:
    """Return the first store time of each file, by its path. A file that follows another one in a queue has no earlier
    time than that, although the broker's clock may have gone back between them."""
    times = {entry.path: entry.first_time for entry in files}
    queues: dict[MessageQueue, list[tuple[int, str]]] = {}
    for entry in files:
        for part in entry.queues:
            queues.setdefault(entry.queue(part), []).append((part.first, entry.path))
    orders = [[path for _, path in sorted(places)] for places in queues.values()]
    changed = True
    while changed:
        changed = False
        for order in orders:
            for before, behind in pairwise(order):
                if times[behind] < times[before]:
                    times[behind], changed = times[before], True
    return times


def _store_pieces(spark: SparkSession, config: ReplayConfig, done: Ranges) -> Iterator[ReplayPiece]:
    messages = store_messages(spark, _store_source(config))
    counted = (
        not_covered(messages, done)
        .withColumn("isChosen", is_chosen(config.chosen))
        .groupBy(*QUEUE_KEY)
        .agg(
            F.min("queueOffset").alias("first"),
            F.max("queueOffset").alias("last"),
            F.count_if("isChosen").alias("rows"),
        )
        .collect()
    )
    ranges = {MessageQueue(row.topic, row.brokerName, row.queueId): [(row["first"], row["last"])] for row in counted}
    piece = piece_of(messages, ranges, done, config.chosen, sum(row.rows for row in counted))
    if piece is not None:
        yield piece


def _store_source(config: ReplayConfig) -> ArchiveConfig:
    options = store_options(config.options)
    return ArchiveConfig("", options, config.store, config.chosen.topics, config.broker_name)


def piece_of(
    messages: DataFrame, ranges: Ranges, done: Ranges, chosen: Chosen, rows: int | None = None
) -> ReplayPiece | None:
    """Return the chosen ones of these messages; None if all their offsets are done.

    Args:
        ranges: their offsets.
        done: offsets that are passed over.
        rows: see ReplayPiece.
    """
    left = {queue: subtract(some, done.get(queue, ())) for queue, some in ranges.items()}
    left = {queue: some for queue, some in left.items() if some}
    if not left:
        return None
    return ReplayPiece(only_covered(messages, left), chosen, left, rows)


# --- sending ---------------------------------------------------------------------------------------------------------


def send_pieces(
    spark: SparkSession,
    work: Iterable[ReplayPiece],
    options: Mapping[str, str],
    form: Callable[[DataFrame], DataFrame],
    record: SentRecord | None,
    *,
    pace: Pace = ANY_PACE,
    exactly_once: bool = False,
) -> SentResult:
    """Send pieces one after the other; each goes into the record when all its messages were acknowledged.

    Messages that are deleted after they were counted are lost. The others are sent, and the record has only those.

    Args:
        options: of the sink, and failOnDataLoss.
        form: makes the sink's columns of a piece's.
        exactly_once: see ReplayConfig; needs a record.

    Raises:
        DataLossError: messages were deleted after they were counted, unless failOnDataLoss is false.
        PipelineError: brokers do not take a message.
    """
    of_reading = store_options(options)
    losses = Losses(fail=OptionValues(of_reading, FORMAT).flag("failOnDataLoss", True))
    sink = {name: value for name, value in options.items() if name not in of_reading}
    if record is not None:
        record.begin()
    before = 0 if record is None else record.rows
    tasks = spark.sparkContext.defaultParallelism
    rows = count = 0
    begun: tuple[int, int] | None = None  # now, and the first message's time
    for piece in work:
        chosen = {**sink, **pace.sink_options(tasks)}
        if exactly_once and record is not None:
            chosen |= {"delivery": EXACTLY_ONCE, "applicationId": piece_name(record.id, piece.ranges)}
        sent = None
        if record is not None and record.pending == piece.ranges:
            sent = _sent_before(chosen)
        elif record is not None:
            record.begin_piece(piece.ranges, piece.rows, piece.newest)
        unsent = {} if sent is not None else piece.away
        if sent is None:
            ordered = in_order(piece.messages, tasks)
            if pace.speed is not None:
                begun = begun or _beginning(piece.messages)
                start_ms, first_ms = begun or (0, 0)
                ordered = timed(ordered, pace.speed, start_ms=start_ms, first_ms=first_ms)
            sent = _write(form(ordered), chosen)
        rows, count = rows + sent, count + 1
        counted = sent if piece.rows is None else piece.rows
        if sent < counted:
            unsent = _gone(piece)
        if record is not None:
            record.add(sent, {queue: subtract(some, unsent.get(queue, ())) for queue, some in piece.ranges.items()})
        if sent < counted:
            _tell_gone(unsent, sent, counted, losses)
        elif unsent:
            log.warning(
                "the archive has no more %s, which an earlier run was to send: they are sent when they are archived "
                "again", ", ".join(f"{name_of(queue)} {list(some)}" for queue, some in sorted(unsent.items())),
            )  # fmt: skip
    return SentResult(rows, count, before)


def _beginning(messages: DataFrame) -> tuple[int, int] | None:
    """Return the present time and the store time of the first message, in ms since 1970; None if there is none."""
    first = messages.agg(F.min(F.unix_millis("storeTimestamp")).alias("first")).collect()[0]["first"]
    return None if first is None else (SystemClock().wall_ms(), first)


def _sent_before(options: Mapping[str, str]) -> int | None:
    """Return how many messages of a piece that an earlier run began were sent, if that run decided it (exactly once).
    Perhaps not all of them are there any more, so it could not be written again. None: it was not decided."""
    sink = WriteOptions.parse(options)
    if sink.application_id is None:
        return None
    return deliver_decided(sink, sink.application_id)


def _write(messages: DataFrame, options: Mapping[str, str]) -> int:
    """Send all rows; returns how many there were."""
    seen = Observation()
    counted = messages.observe(seen, F.count(F.lit(1)).alias("rows"))
    counted.write.format(FORMAT).options(**options).mode("append").save()
    return int(seen.get["rows"])


def _gone(piece: ReplayPiece) -> dict[MessageQueue, list[Range]]:
    """Return those offsets of a piece at which no message is any more."""
    there: dict[MessageQueue, list[Range]] = {}
    for row in found_ranges(piece.examined).collect():
        there.setdefault(MessageQueue(row.topic, row.brokerName, row.queueId), []).append((row["first"], row["last"]))
    return {queue: subtract(some, there.get(queue, ())) for queue, some in piece.ranges.items()}


def _tell_gone(gone: Ranges, sent: int, rows: int, losses: Losses) -> None:
    """Report offsets whose messages were deleted after they were counted. Raises DataLossError as Losses does."""
    reason = (
        f"{rows} messages were to be sent and {sent} were: the others were deleted after they were counted (retention, "
        "or a purge)"
    )
    places = [(queue, *one) for queue, some in sorted(gone.items()) for one in some]
    for queue, first, last in places:
        losses.offsets(name_of(queue), first, last + 1, None, reason)
    losses.tell()
    if not places:
        log.warning(
            "%d messages were to be sent and %d were, and all are there: the condition chooses others each time, as "
            "rand() does", rows, sent,
        )  # fmt: skip
