"""Transactions: this part of a broker, put together."""

from pathlib import PurePath

from maxq.broker.bundles import Clients, Environment, Messages, Tables
from maxq.broker.failover.assembly import Failover
from maxq.broker.fast_path.end_path import EndPath
from maxq.broker.transaction.end_transaction import EndTransactionProcessor
from maxq.broker.transaction.transaction_metrics import FILE_NAME, TransactionMetrics
from maxq.broker.transaction.transactional_message_check_service import (
    TransactionalMessageCheckService,
)
from maxq.broker.transaction.transactional_message_service import TransactionalMessageService
from maxq.remoting.server import RemotingServer
from maxq.runtime.blocking import TABLES, run_blocking
from maxq.runtime.periodic import PeriodicTasks


class Transactions:
    """The feature of transactional messages: half messages, their ends, and the checks of those that stay open."""

    def __init__(
        self, env: Environment, tables: Tables, clients: Clients, messages: Messages, failover: Failover
    ) -> None:
        path = PurePath(env.settings.store.store_path_root_dir) / "config" / FILE_NAME
        self.metrics = TransactionMetrics(env.disk, path, clock=env.clock)
        self.service = TransactionalMessageService(env, tables, messages, self.metrics)
        self.checks = TransactionalMessageCheckService(
            env, clients, messages, self.service, failover.escape.put_message
        )
        self.processor = EndTransactionProcessor(env, messages, self.service, self.checks)
        self.ends = EndPath(env, messages, self.service, self.checks)
        self._settings = env.settings
        self._tasks = PeriodicTasks()

    def register(self, server: RemotingServer) -> None:
        self.processor.register(server)

    async def load(self) -> None:
        """Load nothing: the open transactions are read when this broker becomes its group's active one."""
        await run_blocking(self.metrics.load)

    def start(self) -> None:
        def interval() -> float:
            return self._settings.broker.transaction_metric_flush_interval / 1000

        self._tasks.every("transaction metrics", interval, self.metrics.request_persist)

    async def shutdown(self) -> None:
        await self._tasks.stop()
        await self.checks.shutdown()
        await TABLES.run(self.metrics.persist)
