"""The job `dlq`: dead letters as a table, exported, sent again.

    letters = dlq_letters(spark, DlqConfig({"rocketmq.namesrv": "127.0.0.1:9876"}, groups=("billing",)))
    letters.groupBy("originTopic", "cause").count().show()

Letters that were sent again are written into a record (archive/record.py), and no run with this record sends them once
more. They stay in the dead-letter topic. `maxq dlq redrive` does the same without Spark, and keeps in the cluster how
far it went; the two do not know of each other.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from maxq.arrow.schemas import MESSAGE_COLUMNS, spark_schema
from maxq.errors import ConfigError, PipelineError
from maxq.pipeline.archive.coverage import incarnations
from maxq.pipeline.archive.ranges import Range, union
from maxq.pipeline.archive.record import SentRecord
from maxq.pipeline.archive.same_messages import messages_on_brokers, other_queues
from maxq.pipeline.cluster.cluster_tables import topic_names
from maxq.pipeline.jobs.replay import ReplayPiece, SentResult, send_pieces
from maxq.pipeline.options.option_values import OptionValues
from maxq.pipeline.options.read_options import FORMAT, ConnectionOptions, ReadOptions
from maxq.pipeline.transforms.archive import found_ranges, not_covered, only_covered
from maxq.pipeline.transforms.dead_letters import KEPT_PROPERTIES, dead_letters, redriven
from maxq.pipeline.transforms.replay import Chosen, check_targets, chosen_messages
from maxq.pipeline.wire.wire_client import WireClient
from maxq.protocol.message.message_queue import MessageQueue
from maxq.protocol.namespace import DLQ_PREFIX

EXPORT_FORMATS: Final = ("parquet", "json", "orc")


@dataclass(frozen=True)
class DlqConfig:
    """Which dead letters to read.

    Attributes:
        options: of the connection (rocketmq.…).
        groups: consumer groups; none: all that have dead letters.
        chosen: times are those of dying; its topics are those that the messages came from, and `where` may use the
            columns of transforms/dead_letters.py.
        most_tries: see dead_letters.
    """

    options: Mapping[str, str]
    groups: tuple[str, ...] = ()
    chosen: Chosen = field(default_factory=Chosen)
    most_tries: int | None = None


@dataclass(frozen=True)
class RedriveConfig:
    """Which letters are sent again, and where to.

    Attributes:
        topic: None: the retry topic of the group, where only it gets them; empty: the topic each came from; else there.
        record: file of those that were sent; see the module.
    """

    letters: DlqConfig
    record: Path
    topic: str | None = None

    def __post_init__(self) -> None:
        check_targets([self.topic] if self.topic else [])

    @property
    def what(self) -> str:
        """Name the work in the record, independent of the selection, because letters of the same groups are sent
        once."""
        return f"redrive {json.dumps(sorted(self.letters.groups))}"


def dlq_groups(options: Mapping[str, str]) -> list[str]:
    """Return the groups that have a dead-letter topic, sorted."""
    topics = topic_names(ConnectionOptions.parse(OptionValues(options, FORMAT)))
    return sorted(topic.removeprefix(DLQ_PREFIX) for topic in topics if topic.startswith(DLQ_PREFIX))


def check_groups(config: DlqConfig) -> None:
    """Check that each group of `config` has dead letters before anything else happens.

    Raises:
        PipelineError: one has none.
        RemotingConnectError: no name server answers.
    """
    with WireClient(ConnectionOptions.parse(OptionValues(config.options, FORMAT))) as client:
        for group in config.groups:
            if client.route(DLQ_PREFIX + group) is None:
                raise PipelineError(
                    f"group {group} has no dead letters: no name server knows {DLQ_PREFIX}{group}, which the first one "
                    "makes (`maxq dlq list` names the groups that have some)"
                )


def dlq_letters(spark: SparkSession, config: DlqConfig) -> DataFrame:
    """Return the chosen dead letters; for the columns see transforms/dead_letters.py.

    Raises:
        PipelineError: a group has no dead-letter topic, or it cannot be read.
    """
    groups = config.groups or tuple(dlq_groups(config.options))
    if not groups:
        messages = spark.createDataFrame([], spark_schema(tuple(MESSAGE_COLUMNS)))
    else:
        topics = ",".join(DLQ_PREFIX + group for group in groups)
        messages = spark.read.format(FORMAT).options(**config.options).option("subscribe", topics).load()
    letters = dead_letters(messages, config.most_tries)
    chosen = config.chosen
    if chosen.topics:
        letters = letters.where(F.col("originTopic").isin(*chosen.topics))
    rest = Chosen((), chosen.first_time, chosen.end_time, chosen.key, chosen.tags, chosen.where)
    return chosen_messages(letters, rest)


def dlq_counts(letters: DataFrame) -> DataFrame:
    """Return group, originTopic, cause, letters, first and last (times of dying), sorted."""
    counted = letters.groupBy("group", "originTopic", "cause").agg(
        F.count("*").alias("letters"), F.min("storeTimestamp").alias("first"), F.max("storeTimestamp").alias("last")
    )
    return counted.orderBy("group", "originTopic", "cause")


def check_export(path: str, kind: str) -> None:
    """Raise ConfigError for a format that is not in EXPORT_FORMATS, and for a folder that exists, unless it is a
    URI."""
    if kind not in EXPORT_FORMATS:
        raise ConfigError(f"format is {kind!r}; it must be {', '.join(EXPORT_FORMATS)}")
    if "://" not in path and Path(path).exists():
        raise ConfigError(f"{path} is there already: name a new folder")


def dlq_export(letters: DataFrame, path: str, kind: str = "parquet") -> None:
    """Write the table into a new folder; in JSON, bodies are base64.

    Raises:
        ConfigError: as `check_export`.
    """
    check_export(path, kind)
    letters.write.format(kind).mode("error").save(path)


def dlq_redrive(spark: SparkSession, config: RedriveConfig, *, dry_run: bool = False) -> SentResult:
    """Send chosen letters again that are not in the record.

    Args:
        dry_run: only count them.

    Raises:
        ConfigError: the record is one of other groups, or a dead-letter topic in it was deleted since.
        DataLossError: letters were deleted after they were counted; the others were sent.
        PipelineError: a letter does not say the topic it came from.
    """
    connection = ConnectionOptions.parse(OptionValues(config.letters.options, FORMAT))
    record = SentRecord(config.record, config.what, partial(incarnations, connection))
    reading = ReadOptions.parse({**config.letters.options, "subscribePattern": f"{DLQ_PREFIX}.*"}, streaming=False)
    record.refuse(other_queues(reading, record.newest))
    letters = not_covered(dlq_letters(spark, config.letters), record.coverage)
    ranges: dict[MessageQueue, list[Range]] = {}
    count = 0
    for row in found_ranges(letters).collect():
        queue = MessageQueue(row.topic, row.brokerName, row.queueId)
        ranges[queue] = union([*ranges.get(queue, ()), (row["first"], row["last"])])
        count += row.rows
    if dry_run or not ranges:
        return SentResult(count if dry_run else 0, 0, record.rows)
    letters = only_covered(letters, ranges)  # only messages that were counted, even if brokers die meanwhile
    if config.topic == "":
        _check_origins(letters)
    sink = {**config.letters.options, "keepProperties": ",".join(KEPT_PROPERTIES)}
    form = partial(redriven, topic=config.topic)
    newest = messages_on_brokers(reading, {queue: some[-1][1] for queue, some in ranges.items()})
    return send_pieces(spark, [ReplayPiece(letters, Chosen(), ranges, count, newest)], sink, form, record)


def _check_origins(letters: DataFrame) -> None:
    without = letters.where(F.col("originTopic").isNull()).count()
    if without:
        raise PipelineError(f"{without} dead letters do not say the topic they came from: name one for them")
