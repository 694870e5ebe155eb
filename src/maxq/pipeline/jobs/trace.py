"""The job `trace`: messages of the trace topic → latencies, what did not arrive, what was slow, the way of one message.

    found = run_trace(spark, TraceSettings(MessageInput((TRACE_TOPIC,), namesrv="127.0.0.1:9876")))
    trace_report(found).write(Path("trace.html"))

It reads and counts; what is read is not changed, so a run may be repeated. Its tables are functions of
maxq.pipeline.transforms: trace_records, trace_tables, latency.
"""

from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from maxq.errors import ConfigError
from maxq.pipeline.jobs.message_input import MessageInput
from maxq.pipeline.jobs.small_tables import Rows, in_few_partitions, kept, rows_of
from maxq.pipeline.transforms.coverage import queue_coverage
from maxq.pipeline.transforms.latency import latency_distribution, latency_over_time, latency_table
from maxq.pipeline.transforms.time_steps import time_step_ms
from maxq.pipeline.transforms.trace_records import TRACE_MESSAGE_COLUMNS, trace_records
from maxq.pipeline.transforms.trace_tables import (
    DELIVER,
    consumptions,
    latencies,
    message_way,
    record_counts,
    sent_messages,
    slow_messages,
    undelivered,
)

TRACE_TOPIC: Final = "RMQ_SYS_TRACE_TOPIC"
_BY: Final = ("measure", "topic", "groupName", "client")


@dataclass(frozen=True)
class TraceSettings:
    """The options of a trace analysis.

    Attributes:
        source: the trace topics to read.
        slow_ms: time in ms from which on a send, a delivery or a consumption counts as slow.
        grace_ms: messages that were sent less than this before the end of the trace do not count as undelivered.
        most: list so many undelivered and slow messages; all are counted.
        store_times: read the traced topics as well, for their store times.
        message_id: id of the message whose path is reported.
    """

    source: MessageInput
    slow_ms: int = 1000
    grace_ms: int = 60_000
    most: int = 100
    store_times: bool = False
    message_id: str | None = None

    def __post_init__(self) -> None:
        for name, value in (("slow_ms", self.slow_ms), ("grace_ms", self.grace_ms), ("most", self.most)):
            if value < 0:
                raise ConfigError(f"{name} is {value}; it must be 0 or more")
        if not self.source.topics:
            raise ConfigError("no trace topic is named")


@dataclass(frozen=True)
class TraceResult:
    """The result of a trace analysis; times and durations in milliseconds. Rows have the columns of the transforms they
    come from.

    Attributes:
        queues: of the trace topic, and what was read of them.
        records: counts by kind and fault.
        first_ms, last_ms: of the records; None if there are none.
        step_ms: of `course`.
        overall: percentiles by measure; `groups` by measure, topic, group and client.
        not_consumed: counts by topic, group and state; `undelivered` lists the oldest of them.
        slow_count: by measure; `slow` lists the slowest.
        backwards: deliveries that began before they were sent: clocks differ by so much at least, `backwards_ms`.
        store_measured: store times are measured, not estimated.
        way: of settings.message_id.
    """

    settings: TraceSettings
    queues: Rows
    records: Rows
    first_ms: int | None
    last_ms: int | None
    sent: int
    consumed: int
    step_ms: int
    overall: Rows
    groups: Rows
    course: Rows
    distribution: Rows
    not_consumed: Rows
    undelivered: Rows
    slow_count: dict[str, int]
    slow: Rows
    backwards: int
    backwards_ms: int
    store_measured: bool
    way: Rows

    @property
    def broken(self) -> int:
        """Return the number of broken trace records."""
        return sum(row["count"] for row in self.records if row["fault"])

    @property
    def undelivered_count(self) -> int:
        return sum(row["count"] for row in self.not_consumed)

    def to_json(self) -> dict[str, Any]:
        found = asdict(self)
        settings = found.pop("settings")
        settings["source"] = self.settings.source.to_json()
        return {"settings": settings, **found, "broken": self.broken, "undelivered_count": self.undelivered_count}


def run_trace(spark: SparkSession, settings: TraceSettings) -> TraceResult:
    """Read the trace topic and count.

    Raises:
        PipelineError: what Spark or the source refuses.
    """
    messages = settings.source.read(spark, TRACE_MESSAGE_COLUMNS)
    with kept(trace_records(messages)) as records:
        (read,) = rows_of(
            records.agg(F.min("at").alias("first"), F.max("at").alias("last"), F.count(F.lit(1)).alias("count"))
        )
        rows = read["count"]
        with (
            kept(in_few_partitions(sent_messages(records), rows)) as sent,
            kept(in_few_partitions(consumptions(records), rows)) as consumed,
        ):
            stored = _stored(spark, settings, sent) if settings.store_times else None
            with kept(in_few_partitions(latencies(sent, consumed, stored), rows)) as measured:
                found = _counted(settings, records, sent, consumed, measured, read["first"], read["last"])
                return replace(found, store_measured=stored is not None)


def _counted(
    settings: TraceSettings,
    records: DataFrame,
    sent: DataFrame,
    consumed: DataFrame,
    measured: DataFrame,
    first_ms: int | None,
    last_ms: int | None,
) -> TraceResult:
    step_ms = time_step_ms(first_ms or 0, last_ms or 0)
    missing = undelivered(sent, consumed, until_ms=last_ms or 0, grace_ms=settings.grace_ms)
    slow = slow_messages(measured, settings.slow_ms)
    early = measured.where((F.col("measure") == DELIVER) & (F.col("ms") < 0))
    (backwards,) = rows_of(early.agg(F.count("ms").alias("count"), F.min("ms").alias("ms")))
    by_state = missing.groupBy("topic", "groupName", "state").count().orderBy(F.desc("count"), "topic", "groupName")
    way = [] if settings.message_id is None else rows_of(message_way(records, settings.message_id))
    return TraceResult(
        settings=settings,
        queues=rows_of(queue_coverage(records, "reportedAt")),
        records=rows_of(record_counts(records)),
        first_ms=first_ms,
        last_ms=last_ms,
        sent=sent.count(),
        consumed=consumed.count(),
        step_ms=step_ms,
        overall=rows_of(latency_table(measured, ("measure",))),
        groups=rows_of(latency_table(measured, _BY)),
        course=rows_of(latency_over_time(measured, ("measure",), step_ms)),
        distribution=rows_of(latency_distribution(measured, ("measure",))),
        not_consumed=rows_of(by_state),
        undelivered=rows_of(missing, settings.most),
        slow_count={row["measure"]: row["count"] for row in rows_of(slow.groupBy("measure").count())},
        slow=rows_of(slow, settings.most),
        backwards=backwards["count"],
        backwards_ms=-(backwards["ms"] or 0),
        store_measured=False,
        way=way,
    )


def _stored(spark: SparkSession, settings: TraceSettings, sent: DataFrame) -> DataFrame | None:
    """Return messageId and storeTimestamp of the traced topics' messages; None if none of the topics exists."""
    topics = {row.topic for row in sent.select("topic").distinct().collect() if row.topic}
    if settings.source.namesrv:
        topics &= set(settings.source.topics_there())
    if not topics:
        return None
    source = replace(settings.source, topics=tuple(sorted(topics)))
    return source.read(spark, ("uniqKey", "storeTimestamp")).select(
        F.col("uniqKey").alias("messageId"), "storeTimestamp"
    )
