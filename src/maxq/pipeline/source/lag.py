"""How far a stream is behind its topics, out of the progress that Spark reports of it.

Spark takes no metrics from Python sources, but its progress has the offsets that were read and the newest ones that
were seen, and that is all it takes.

    query = frame.writeStream…start()
    offsets_behind(query.lastProgress)      # [{"topics": {"Orders": {"maxOffsetsBehindLatest": 3, …}}, …}]
"""

import json
from collections.abc import Mapping
from typing import Any, TypedDict

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
    StreamingQueryProgress,
)

from maxq.errors import ConfigError
from maxq.pipeline.source.offsets import Offsets, from_json


class Behind(TypedDict):
    """Numbers of offsets that are not read yet, by queue: the metrics of Spark's Kafka source under its names."""

    minOffsetsBehindLatest: int
    maxOffsetsBehindLatest: int
    avgOffsetsBehindLatest: float


class SourceBehind(Behind):
    """Number of offsets of all queues of a source that are not read yet. `topics`: the same by topic."""

    topics: dict[str, Behind]


def offsets_behind(progress: StreamingQueryProgress | Mapping[str, Any]) -> list[SourceBehind]:
    """Return how far each source of `format("rocketmq")` of a query is behind.

    Args:
        progress: `query.lastProgress`, or that of a listener's event, as object or dictionary.
    """
    sources = progress["sources"] if isinstance(progress, Mapping) else progress.sources
    found: list[SourceBehind] = []
    for source in sources:
        ends, latest = (_offsets(source, name) for name in ("endOffset", "latestOffset"))
        behind = {queue: max(0, newest - ends.get(queue, 0)) for queue, newest in latest.items()}
        if behind:
            topics = {
                topic: _behind([count for queue, count in behind.items() if queue.topic == topic])
                for topic in sorted({queue.topic for queue in behind})
            }
            found.append({**_behind(list(behind.values())), "topics": topics})
    return found


def _offsets(source: Any, name: str) -> Offsets:
    value = source.get(name) if isinstance(source, Mapping) else getattr(source, name)
    try:
        table = json.loads(value) if isinstance(value, str) else value
        return from_json(table) if isinstance(table, Mapping) else {}
    except (ValueError, ConfigError):
        return {}  # a file of another format


def _behind(counts: list[int]) -> Behind:
    return {
        "minOffsetsBehindLatest": min(counts),
        "maxOffsetsBehindLatest": max(counts),
        "avgOffsetsBehindLatest": sum(counts) / len(counts),
    }


class LagListener(StreamingQueryListener):
    """Knows each query's lag at its last report: `spark.streams.addListener(listener)`.

    Attributes:
        behind: query id → `offsets_behind`; queries that ended are not in it.
    """

    def __init__(self) -> None:
        self.behind: dict[str, list[SourceBehind]] = {}

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Do nothing: there is no progress yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Remember how far the query is behind."""
        self.behind[str(event.progress.id)] = offsets_behind(event.progress)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Do nothing: nothing has changed."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Forget how far behind the query was, because it has ended."""
        self.behind.pop(str(event.id), None)
