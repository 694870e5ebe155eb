"""ClientHousekeepingService: what the broker does when a client's connection ends or falls silent.

Source:
    broker/client/ClientHousekeepingService.java.
"""

from collections.abc import Callable

from maxq.broker.tables.client.consumer_manager import ConsumerManager
from maxq.broker.tables.client.producer_manager import ProducerManager
from maxq.broker.tables.client.rebalance_lock_manager import RebalanceLockManager
from maxq.remoting.connection import Connection


class ClientHousekeepingService:
    """Listens to the RemotingServer, and checks at intervals for clients that stopped sending heartbeats."""

    def __init__(
        self,
        consumers: ConsumerManager,
        producers: ProducerManager,
        locks: RebalanceLockManager,
        *,
        count_event: Callable[[str], None],
    ) -> None:
        """`count_event` counts CONNECT, CLOSE, IDLE and EXCEPTION (statistics CHANNEL_ACTIVITY)."""
        self._consumers = consumers
        self._producers = producers
        self._locks = locks
        self._count_event = count_event

    def on_connect(self, connection: Connection) -> None:
        self._count_event("CONNECT")

    def on_close(self, connection: Connection) -> None:
        self._drop(connection)
        self._count_event("CLOSE")

    def on_exception(self, connection: Connection) -> None:
        self._drop(connection)
        self._count_event("EXCEPTION")

    def on_idle(self, connection: Connection) -> None:
        self._drop(connection)
        self._count_event("IDLE")

    def scan(self) -> None:
        """Remove silent clients. Called at intervals."""
        self._consumers.scan_not_active_channel()
        self._producers.scan_not_active_channel()
        self._locks.drop_expired()

    def _drop(self, connection: Connection) -> None:
        self._consumers.do_channel_close_event(connection)
        self._producers.do_channel_close_event(connection)
