"""Which messages a report is made of: topics of a cluster or of store directories, between two times."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from maxq.errors import ConfigError, PipelineError
from maxq.pipeline.cluster.cluster_tables import topic_names
from maxq.pipeline.options.option_values import OptionValues
from maxq.pipeline.options.predicate import condition, moment, predicate_option
from maxq.pipeline.options.read_options import FORMAT, ConnectionOptions
from maxq.pipeline.reports.quantities import time_text
from maxq.pipeline.store.own_topics import OWN_TOPICS
from maxq.pipeline.store.store_source import FORMAT as STORE_FORMAT
from maxq.pipeline.store.store_source import store_options


@dataclass(frozen=True)
class MessageInput:
    """From where messages are read.

    Attributes:
        topics: their names; none: all but the brokers' own.
        namesrv: name servers, host:port separated by ';'; None with `stores`.
        stores: store directories, broker up or down, that are read instead.
        since_ms, until_ms: store times, milliseconds since 1970: from, up to (exclusive); None: no bound.
        options: more of format("rocketmq"), such as those of TLS and ACL.
    """

    topics: tuple[str, ...] = ()
    namesrv: str | None = None
    stores: tuple[str, ...] = ()
    since_ms: int | None = None
    until_ms: int | None = None
    options: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if bool(self.namesrv) == bool(self.stores):
            raise ConfigError("a report reads from a cluster (namesrv) or from store directories, from one of them")
        if self.since_ms is not None and self.until_ms is not None and self.since_ms >= self.until_ms:
            raise ConfigError(f"nothing lies from {time_text(self.since_ms)} to {time_text(self.until_ms)}: swap them")

    @property
    def connection(self) -> dict[str, str]:
        """Return the options with which Spark connects to the cluster; none if the input is no cluster."""
        return {**self.options, "rocketmq.namesrv": self.namesrv} if self.namesrv else {}

    def topics_there(self) -> list[str]:
        """Return the names of the cluster's topics that are not its brokers' own."""
        return topic_names(ConnectionOptions.parse(OptionValues(self.connection, FORMAT)))

    def read(self, spark: SparkSession, columns: Sequence[str]) -> DataFrame:
        """Return the messages, with these columns.

        Raises:
            PipelineError: the cluster has no topic to read.
        """
        return self._from_store(spark, columns) if self.stores else self._from_cluster(spark, columns)

    def describe(self) -> dict[str, str]:
        """Return a description of what is read, for people."""
        since = "the first message" if self.since_ms is None else time_text(self.since_ms)
        until = "the last message" if self.until_ms is None else time_text(self.until_ms)
        return {
            "Topics": ", ".join(self.topics) or "all",
            "Read from": ", ".join(self.stores) if self.stores else f"cluster of {self.namesrv}",
            "Stored": f"from {since} to {until}",
        }

    def to_json(self) -> dict[str, Any]:
        return {
            "topics": list(self.topics), "namesrv": self.namesrv, "stores": list(self.stores),
            "sinceMs": self.since_ms, "untilMs": self.until_ms,
        }  # fmt: skip

    def _from_cluster(self, spark: SparkSession, columns: Sequence[str]) -> DataFrame:
        topics = list(self.topics) or self.topics_there()
        if not topics:
            raise PipelineError(f"the cluster of {self.namesrv} has no topics yet")
        options = {**self.connection, "subscribe": ",".join(topics), "columns": ",".join(columns)}
        if self.since_ms is not None:
            options["startingTimestamp"] = str(self.since_ms)
        if self.until_ms is not None:
            options["endingTimestamp"] = str(self.until_ms)
        return spark.read.format(FORMAT).options(**options).load()

    def _from_store(self, spark: SparkSession, columns: Sequence[str]) -> DataFrame:
        read = list(dict.fromkeys((*columns, "topic", "storeTimestamp")))
        since = None if self.since_ms is None else moment(self.since_ms)
        until = None if self.until_ms is None else moment(self.until_ms)
        options = predicate_option(
            (
                condition("topic", "in", self.topics),
                condition("storeTimestamp", ">=", since),
                condition("storeTimestamp", "<", until),
            )
        )
        options |= {**store_options(self.options), "columns": ",".join(read), "paths": json.dumps(list(self.stores))}
        frame = spark.read.format(STORE_FORMAT).options(**options).load()
        if self.topics:
            frame = frame.where(F.col("topic").isin(*self.topics))
        else:
            frame = frame.where(~F.col("topic").rlike(OWN_TOPICS))
        if since is not None:
            frame = frame.where(F.col("storeTimestamp") >= F.lit(since))
        if until is not None:
            frame = frame.where(F.col("storeTimestamp") < F.lit(until))
        return frame.select(*columns)
