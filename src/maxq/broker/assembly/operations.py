"""Operations: what an operator sees of a broker and steers it by, put together.

Metrics, the counts of refusals, the stages of sends (`why-slow`), quotas, and retention by topic. It is loaded,
started and ended as a Feature is.
"""

import logging
from collections import Counter
from collections.abc import Iterator

from maxq.broker.bundles import Environment, Limits, Messages, Tables
from maxq.broker.metrics.broker_metrics import BrokerMetrics
from maxq.broker.stats.stage_times import StageTimes
from maxq.broker.tables.topic.topic_retention import TopicRetention
from maxq.codes import RequestCode
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.protocol.json import json_dialect
from maxq.remoting.connection import Connection
from maxq.remoting.server import RemotingServer
from maxq.runtime.holds import Hold
from maxq.runtime.metrics.registry import MetricsRegistry, Sample
from maxq.runtime.periodic import PeriodicTasks

log = logging.getLogger(__name__)


class Operations:
    """Metrics, quotas and the causes of slow requests; see the module's docstring.

    Attributes:
        failures: of background tasks, by name (runtime/background.py).
        retention: hides and frees what topics no longer keep.
    """

    def __init__(
        self,
        registry: MetricsRegistry,
        env: Environment,
        tables: Tables,
        messages: Messages,
        limits: Limits,
        metrics: BrokerMetrics,
        stages: StageTimes,
    ) -> None:
        self._settings = env.settings
        self._rpc_latency = env.rpc_latency
        self._fast_failure = limits.fast_failure
        self._quotas = limits.quotas
        self._metrics = metrics
        self._stages = stages
        self._tasks = PeriodicTasks()
        self._holds: dict[int | str, Hold] = {}
        self.failures: Counter[str] = Counter()
        self.retention = TopicRetention(tables.topics, messages.store)
        registry.observed_counter(
            "maxq_refusals_total", "Requests that the broker refused, by cause", self._refusals, ("cause",)
        )
        registry.observed_counter(
            "maxq_background_failures_total",
            "How often a background task of the broker failed",
            self._background_failures,
            ("task",),
        )
        registry.observed_counter(
            "maxq_loop_holds_total",
            "How often one action kept all others waiting for more than 50 ms, by cause",
            self._held,
            ("cause",),
        )
        registry.observed_counter(
            "maxq_loop_held_milliseconds_total",
            "How long actions of more than 50 ms kept all others waiting, in milliseconds, by cause",
            self._held_ms,
            ("cause",),
        )
        limits.quotas.register(registry)
        registry.number(
            "maxq_retention_topics",
            "Topics that have a retention of their own or were purged",
            lambda: len(self.retention.limited),
        )

    def _refusals(self) -> Iterator[Sample]:
        for cause, count in list(self._fast_failure.refused.by_cause.items()):
            yield (cause,), count

    def _background_failures(self) -> Iterator[Sample]:
        for name, count in list(self.failures.items()):
            yield (name,), count

    def _held(self) -> Iterator[Sample]:
        for cause, hold in list(self._holds.items()):
            yield (_cause_text(cause),), hold.count

    def _held_ms(self) -> Iterator[Sample]:
        for cause, hold in list(self._holds.items()):
            yield (_cause_text(cause),), hold.total_ns / 1_000_000

    def register(self, server: RemotingServer) -> None:
        """Register the processor of MAXQ_WHY_SLOW, which tells what held the event loop and how long sends took."""
        self._holds = server.holds.by_cause
        server.register(RequestCode.MAXQ_WHY_SLOW, self._why_slow)

    def gate(self, connection: Connection, request: RemotingCommand) -> str | None:
        """Return why a request is refused before its processor gets it; None if it is not. Used as
        `RemotingServer.gate`."""
        if self._quotas.limits_users:
            self._quotas.note_user(connection, request)
        return self._fast_failure.gate(connection, request)

    def answered(self, request: RemotingCommand, response: RemotingCommand, milliseconds: int) -> None:
        """Count an answered request, except those of the fast path. Used as `RemotingServer.on_answer`."""
        self._fast_failure.answered(request, response)
        if self._rpc_latency is not None:
            self._rpc_latency.answered(request, response, milliseconds)
        self._metrics.answered(request, response, milliseconds)

    # ---- connections ------------------------------------------------------------------------------------------

    def on_close(self, connection: Connection) -> None:
        """Count the end of a connection, which may be that of a client that did not read."""
        self._fast_failure.refused.heard(connection.close_reason, oneway=False)

    def on_connect(self, connection: Connection) -> None:
        """Do nothing: a new connection has no requests yet that could be counted."""

    def on_idle(self, connection: Connection) -> None:
        """Do nothing: the connection is closed next, which calls `on_close`."""

    def on_exception(self, connection: Connection) -> None:
        """Do nothing: the connection is closed next, which calls `on_close`."""

    # ---- life -------------------------------------------------------------------------------------------------

    def _why_slow(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Answer with the StageTimes as JSON, the refusals by cause, and what blocked the event loop, the longest
        first."""
        refused = self._fast_failure.refused
        holds = sorted(self._holds.items(), key=lambda held: held[1].longest_ns, reverse=True)
        body = self._stages.to_json() | {
            "refused": dict(refused.by_cause),
            "holds": [
                {
                    "cause": _cause_text(cause),
                    "count": hold.count,
                    "totalMs": hold.total_ns / 1_000_000,
                    "longestMs": hold.longest_ns / 1_000_000,
                }
                for cause, hold in holds
            ],
        }
        return request.reply(body=json_dialect.dumps(body))

    async def load(self) -> None:
        """Implements `Feature.load`."""
        self._quotas.load()
        self.retention.load()

    def start(self) -> None:
        """Implements `Feature.start`."""

        def interval() -> float:
            return self._settings.store.clean_resource_interval / 1000

        self._tasks.every("retention by topic", interval, self.retention.look, first=0)

    async def shutdown(self) -> None:
        """Implements `Feature.shutdown`."""
        await self._tasks.stop()
        self._quotas.close()


def _cause_text(cause: int | str) -> str:
    """Return the name that `why-slow` shows for what blocked the event loop: a request by its name and code, a
    background task by its name."""
    if isinstance(cause, str):
        return cause
    try:
        return f"{RequestCode(cause).name.lower()} ({cause})"
    except ValueError:
        return f"request {cause}"
