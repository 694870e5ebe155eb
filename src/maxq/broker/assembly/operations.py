"""Operations: what an operator sees of a broker and how he steers it, put together.

Metrics, the counts of refusals, the stages of sends (`why-slow`), quotas, and retention by topic. A MessageKind, so
that the controller loads, starts and ends it with the other parts.
"""

import logging
from collections.abc import Iterator

from maxq.broker.fast_failure import FastFailure
from maxq.broker.metrics.broker_metrics import BrokerMetrics, MetricsParts
from maxq.broker.periodic import PeriodicTasks
from maxq.broker.processors.admin.purge_topic import PurgeTopicProcessor
from maxq.broker.quota.quotas import Quotas
from maxq.broker.stats.stage_times import StageTimes
from maxq.broker.topic.topic_retention import TopicRetention
from maxq.codes import RequestCode
from maxq.lazy_dataclass import dataclass
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.protocol.json import json_dialect
from maxq.remoting.connection import Connection
from maxq.remoting.server import RemotingServer
from maxq.runtime.holds import Hold
from maxq.runtime.metrics.registry import MetricsRegistry, Sample

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationParts:
    """What it works with."""

    registry: MetricsRegistry
    metrics: MetricsParts
    fast_failure: FastFailure
    stages: StageTimes
    quotas: Quotas
    purges: PurgeTopicProcessor


class Operations:
    """See the module."""

    def __init__(self, parts: OperationParts) -> None:
        self._parts = parts
        looked_at = parts.metrics
        self.retention = TopicRetention(looked_at.topics, looked_at.store)
        self._tasks = PeriodicTasks()
        self.metrics = BrokerMetrics(parts.registry, parts.metrics)
        parts.registry.observed_counter("maxq_refusals_total", self._refusals, ("cause",))
        self._holds: dict[int | str, Hold] = {}
        parts.registry.observed_counter("maxq_loop_holds_total", self._held, ("cause",))
        parts.registry.observed_counter("maxq_loop_held_milliseconds_total", self._held_ms, ("cause",))
        parts.quotas.register(parts.registry)
        parts.registry.number("maxq_retention_topics", lambda: len(self.retention.limited))

    def _refusals(self) -> Iterator[Sample]:
        for cause, count in list(self._parts.fast_failure.refused.by_cause.items()):
            yield (cause,), count

    def _held(self) -> Iterator[Sample]:
        for cause, hold in list(self._holds.items()):
            yield (_cause_text(cause),), hold.count

    def _held_ms(self) -> Iterator[Sample]:
        for cause, hold in list(self._holds.items()):
            yield (_cause_text(cause),), hold.total_ns / 1_000_000

    def register(self, server: RemotingServer) -> None:
        """Hear of every request and answer, and answer MAXQ_WHY_SLOW."""
        self._holds = server.holds.by_cause
        server.on_answer = self._answered
        server.gate = self._gate
        server.register(RequestCode.MAXQ_WHY_SLOW, self._why_slow)
        self._parts.purges.register(server)

    def _gate(self, connection: Connection, request: RemotingCommand) -> str | None:
        if self._parts.quotas.limits_users:
            self._parts.quotas.note_user(connection, request)
        return self._parts.fast_failure.gate(connection, request)

    def _answered(self, request: RemotingCommand, response: RemotingCommand, milliseconds: int) -> None:
        self._parts.fast_failure.answered(request, response)
        self.metrics.answered(request, response, milliseconds)

    def held_answered(self, request: RemotingCommand, response: RemotingCommand, milliseconds: int) -> None:
        """A pull that was parked has its answer."""
        self.metrics.answered(request, response, milliseconds, long_polling=True)

    # ---- connections ------------------------------------------------------------------------------------------

    def on_close(self, connection: Connection) -> None:
        """A client that did not read was refused, too."""
        self._parts.fast_failure.refused.heard(connection.close_reason, oneway=False)

    def on_connect(self, connection: Connection) -> None:
        """Nothing."""

    def on_idle(self, connection: Connection) -> None:
        """Nothing."""

    def on_exception(self, connection: Connection) -> None:
        """Nothing."""

    # ---- life -------------------------------------------------------------------------------------------------

    def _why_slow(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """JSON of StageTimes, the refusals by cause, and what held the loop, the longest first."""
        refused = self._parts.fast_failure.refused
        holds = sorted(self._holds.items(), key=lambda held: held[1].longest_ns, reverse=True)
        body = self._parts.stages.to_json() | {
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
        """See MessageKind."""
        self._parts.quotas.load()
        self.retention.load()

    def start(self) -> None:
        """See MessageKind."""
        settings = self._parts.metrics.settings

        def interval() -> float:
            return settings.store.clean_resource_interval / 1000

        self._tasks.every("retention by topic", interval, self.retention.look, first=0)

    async def shutdown(self) -> None:
        """See MessageKind."""
        await self._tasks.stop()
        self._parts.quotas.close()


def _cause_text(cause: int | str) -> str:
    """How `why-slow` names what held the loop: a request by its name and code, a background task by its name."""
    if isinstance(cause, str):
        return cause
    try:
        return f"{RequestCode(cause).name.lower()} ({cause})"
    except ValueError:
        return f"request {cause}"
