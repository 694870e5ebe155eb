"""The job `stats`: messages → rates, sizes, hot keys and queues, lag, growth of the disk.

    found = run_stats(spark, StatsSettings(MessageInput(("Orders",), namesrv="127.0.0.1:9876")))
    stats_report(found.to_json(), found.settings.source.describe()).write(Path("stats.html"))

Lag over time needs the past: with `history`, a folder, every run adds a sample of the groups' committed offsets there
and shows all that it has. A sample is one file named after its time, so a run that is repeated adds its own and changes
none.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from maxq.client.admin.admin import Admin
from maxq.errors import ConfigError
from maxq.machine import system_environment
from maxq.pipeline.cluster import cluster_source
from maxq.pipeline.cluster.cluster_tables import client_config, cluster_table, run_apart, topic_queues
from maxq.pipeline.jobs.message_input import MessageInput
from maxq.pipeline.jobs.small_tables import Rows, kept, rows_of
from maxq.pipeline.options.option_values import OptionValues
from maxq.pipeline.options.read_options import FORMAT, ConnectionOptions
from maxq.pipeline.store.retention import (
    DEFAULT_RATIO,
    DEFAULT_RESERVED_HOURS,
    BrokerDisk,
    disk_of_broker,
    disk_of_store,
    forecast,
)
from maxq.pipeline.store.store_folder import open_store
from maxq.pipeline.store.store_source import FORMAT as STORE_FORMAT
from maxq.pipeline.transforms.group_lag import group_lag, lag_over_time, waiting_over_time
from maxq.pipeline.transforms.message_stats import (
    QUEUE_SCHEMA,
    STATS_MESSAGE_COLUMNS,
    disk_by_topic,
    key_stats,
    log_growth,
    queue_stats,
    rates_over_time,
    size_distribution,
    sized_messages,
    topic_stats,
)
from maxq.pipeline.transforms.time_steps import time_step_ms
from maxq.runtime.files.durable_files import DurableFiles
from maxq.store.tools.offsets import known_queues

_SAMPLE: Final = "groups-{}.parquet"


@dataclass(frozen=True)
class StatsSettings:
    """What statistics are asked for.

    Attributes:
        source: the messages.
        most: list so many keys and queues; all are counted.
        history: a folder of samples of committed offsets; None: no course of lag.
        ratio, reserved_hours: of store directories, whose broker can not be asked: diskMaxUsedSpaceRatio as a share,
            fileReservedTime.
    """

    source: MessageInput
    most: int = 50
    history: Path | None = None
    ratio: float = DEFAULT_RATIO
    reserved_hours: float = DEFAULT_RESERVED_HOURS

    def __post_init__(self) -> None:
        if self.history is not None and self.source.stores:
            raise ConfigError("history is of a cluster's consumer groups; store directories have none")
        if not 0 < self.ratio <= 1:
            raise ConfigError(f"ratio is {self.ratio}; it must be above 0 and at most 1")


@dataclass(frozen=True)
class StatsResult:
    """Statistics that were found; times in milliseconds. Rows have the columns of the transforms they come from.

    Attributes:
        step_ms: of `rates` and `waiting`.
        key_count: of keys that several messages have; `keys` lists the hottest; so with `queues`.
        groups: lag by group and topic, None if there is no cluster to ask; `waiting`: when came what is not consumed;
            `lag`: its course over the samples.
        disk_topics: of the store directories; empty for a cluster.
        forecasts: by broker.
    """

    settings: StatsSettings
    step_ms: int
    first_ms: int | None
    last_ms: int | None
    topics: Rows
    rates: Rows
    sizes: Rows
    queues: Rows
    queue_count: int
    keys: Rows
    key_count: int
    groups: Rows | None
    waiting: Rows
    lag: Rows
    growth: Rows
    disk_topics: Rows
    forecasts: Rows

    def to_json(self) -> dict[str, Any]:
        found = asdict(self)
        settings = found.pop("settings")
        settings["source"] = self.settings.source.to_json()
        settings["history"] = None if self.settings.history is None else str(self.settings.history)
        return {"settings": settings, **found}


def run_stats(spark: SparkSession, settings: StatsSettings, *, now_ms: int) -> StatsResult:
    """Read and count.

    Args:
        now_ms: when the sample of committed offsets is taken.

    Raises:
        PipelineError: what Spark or the source refuses.
    """
    with kept(sized_messages(settings.source.read(spark, STATS_MESSAGE_COLUMNS))) as sized:
        return _counted(spark, settings, sized, now_ms)


def _counted(spark: SparkSession, settings: StatsSettings, sized: DataFrame, now_ms: int) -> StatsResult:
    topics = rows_of(topic_stats(sized))
    first_ms = min((row["firstAt"] for row in topics), default=None)
    last_ms = max((row["lastAt"] for row in topics), default=None)
    step_ms = time_step_ms(first_ms or 0, last_ms or 0)
    there = spark.createDataFrame(_queues(settings.source, [row["topic"] for row in topics]), QUEUE_SCHEMA)
    queues, keys = rows_of(queue_stats(sized, there)), key_stats(sized)
    groups = _groups(spark, settings.source, [row["topic"] for row in topics])
    growth = rows_of(log_growth(sized))
    return StatsResult(
        settings=settings,
        step_ms=step_ms,
        first_ms=first_ms,
        last_ms=last_ms,
        topics=topics,
        rates=rows_of(rates_over_time(sized, step_ms)),
        sizes=rows_of(size_distribution(sized)),
        queues=queues[: settings.most],
        queue_count=len(queues),
        keys=rows_of(keys, settings.most),
        key_count=keys.count(),
        groups=None if groups is None else rows_of(group_lag(groups, sized)),
        waiting=[] if groups is None else rows_of(waiting_over_time(groups, sized, step_ms)),
        lag=_course_of_lag(spark, settings, now_ms),
        growth=growth,
        disk_topics=_disk_topics(spark, settings.source),
        forecasts=_forecasts(settings, {row["brokerName"]: row["bytesPerSecond"] for row in growth}),
    )


def _connection(source: MessageInput) -> ConnectionOptions:
    return ConnectionOptions.parse(OptionValues(source.connection, FORMAT))


def _queues(source: MessageInput, topics: list[str]) -> list[tuple[str, str, int]]:
    """Return topic, broker's name and id of these topics' queues, empty ones included."""
    if not source.stores:
        return topic_queues(_connection(source), topics)
    return [
        (topic, files.root.name, queue_id)
        for files in map(open_store, source.stores)
        for topic, queue_id in sorted(known_queues(files))
        if topic in topics
    ]


def _groups(spark: SparkSession, source: MessageInput, topics: list[str]) -> DataFrame | None:
    """Return the committed offsets of groups that consume these topics."""
    if not source.namesrv:
        return None
    reader = spark.read.format(cluster_source.FORMAT).options(**source.connection).option("table", "groups")
    return reader.load().where(F.col("topic").isin(*topics))


def _course_of_lag(spark: SparkSession, settings: StatsSettings, now_ms: int) -> Rows:
    """Add a sample to the history and read all samples."""
    folder = settings.history
    if folder is None:
        return []
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / _SAMPLE.format(now_ms)
    unfinished = path.with_suffix(".tmp")
    pq.write_table(pa.Table.from_batches([cluster_table(_connection(settings.source), "groups")]), unfinished)
    files = DurableFiles()
    files.sync(unfinished)
    files.rename(unfinished, path)
    name = F.regexp_extract(F.input_file_name(), r"groups-(\d+)\.parquet$", 1)
    samples = spark.read.parquet(*(str(one) for one in sorted(folder.glob(_SAMPLE.format("*")))))
    if settings.source.topics:
        samples = samples.where(F.col("topic").isin(*settings.source.topics))
    return rows_of(lag_over_time(samples.withColumn("sampledAt", F.timestamp_millis(name.cast("bigint")))))


def _disk_topics(spark: SparkSession, source: MessageInput) -> Rows:
    found: Rows = []
    for path in source.stores:
        units = spark.read.format(STORE_FORMAT).option("table", "consumequeue").load(path)
        found += [{"store": path, **row} for row in rows_of(disk_by_topic(units))]
    return found


def _forecasts(settings: StatsSettings, rates: Mapping[str, float | None]) -> Rows:
    found: Rows = []
    for disk in _disks(settings):
        rate = rates.get(disk.broker)
        if rate is not None:
            found.append(asdict(forecast(disk, rate)))
    return found


def _disks(settings: StatsSettings) -> list[BrokerDisk]:
    source = settings.source
    if not source.stores:
        return run_apart(_disks_of_cluster(_connection(source)))
    disks = (
        disk_of_store(path, Path(path).name, ratio=settings.ratio, reserved_hours=settings.reserved_hours)
        for path in source.stores
    )
    return [disk for disk in disks if disk is not None]


async def _disks_of_cluster(connection: ConnectionOptions) -> list[BrokerDisk]:
    found = []
    async with Admin(client_config(connection), system_environment(connection.namesrv)) as admin:
        for name, data in (await admin.cluster_info()).broker_addr_table.items():
            address = data.master_address
            if address is None:
                continue
            runtime, settings = await admin.brokers.runtime_info(address), await admin.brokers.config(address)
            disk = disk_of_broker(name, runtime, settings)
            if disk is not None:
                found.append(disk)
    return found
