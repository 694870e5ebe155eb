"""Staged messages: this part of a broker, put together."""

from maxq.broker.bundles import Environment, Messages, Tables
from maxq.broker.processors.send.send_checks import SendChecks
from maxq.broker.processors.send.send_properties import BrokerProperties
from maxq.broker.two_phase.batch_delivery import StagedDelivery
from maxq.broker.two_phase.two_phase_processor import TwoPhaseProcessor
from maxq.broker.two_phase.two_phase_service import TwoPhaseService
from maxq.remoting.server import RemotingServer
from maxq.runtime.periodic import PeriodicTasks
from maxq.store.store_results import PutMessageResult

_SNAPSHOT_SECONDS = 60.0


class TwoPhaseBatches:
    """The feature of batches that are written in two phases, as the exactly-once sink of Spark writes them."""

    def __init__(self, env: Environment, tables: Tables, messages: Messages) -> None:
        settings = env.settings
        self._stats = env.stats
        checks = SendChecks(settings, tables.topics)
        delivery = StagedDelivery(
            messages.store,
            checks,
            tables.mappings,
            messages.hooks,
            BrokerProperties(env.own, lambda: settings.broker),
            settings.server.frame_max_length,
            self._count,
        )
        self.service = TwoPhaseService(env, messages, delivery)
        self._processor = TwoPhaseProcessor(env, tables, messages, checks, self.service)
        self._tasks = PeriodicTasks()

    def _count(self, topic: str, queue_id: int, result: PutMessageResult) -> None:
        self._stats.put_counter(topic, queue_id).add(result.message_count, result.size, 0)

    def register(self, server: RemotingServer) -> None:
        self._processor.register(server)

    async def load(self) -> None:
        """Load nothing: the ledger is read on demand."""

    def start(self) -> None:
        self._tasks.every("snapshot of staged messages", _SNAPSHOT_SECONDS, self.service.keep_short)

    async def shutdown(self) -> None:
        await self._tasks.stop()
