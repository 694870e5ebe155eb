"""NamesrvController: joins the parts of a name server and runs them on the current loop.

Source:
    apache/rocketmq namesrv/NamesrvController.java, routeinfo/BrokerHousekeepingService.java.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from pathlib import PurePath

from maxq.access.access_control import AccessControl, AccessSettings
from maxq.codes import RequestCode
from maxq.config import NamesrvSettings
from maxq.config.host import listening
from maxq.namesrv.broker_registration import MinBrokerIdChange
from maxq.namesrv.client_request_processor import ClientRequestProcessor
from maxq.namesrv.config_service import ConfigService
from maxq.namesrv.default_request_processor import DefaultRequestProcessor
from maxq.namesrv.kv_config_manager import KVConfigManager
from maxq.namesrv.min_broker_id_notifier import MinBrokerIdNotifier
from maxq.namesrv.route_info_manager import RouteInfoManager
from maxq.remoting.rpc_hooks import HookedRemotingClient
from maxq.remoting.server import Connection, RemotingServer
from maxq.remoting.tls.contexts import ClientTls, ServerTls
from maxq.runtime.blocking import end_threads
from maxq.runtime.interfaces import Clock, Disk, Rng
from maxq.runtime.turns import Turns

_log = logging.getLogger(__name__)

_KV_LOG_PERIOD_SECONDS = 600.0


class NamesrvController:
    """One name server.

    Args:
        settings: an empty kvConfigPath keeps the key-value table in memory only, an empty configStorePath live
            updates; config.host.namesrv_on fills both in.

        access: shared with another server of this process.

    Raises:
        ConfigError: TLS files are configured and cannot be used, or settings of access control contradict each other.
    """

    def __init__(
        self,
        settings: NamesrvSettings,
        *,
        disk: Disk,
        clock: Clock,
        rng: Rng,
        access: AccessControl | None = None,
    ) -> None:
        namesrv = settings.namesrv
        self._access = access or _access_control(settings, disk, clock)
        settings.server = listening(settings.server, self._access.guard is not None)
        self._settings = settings
        self._clock = clock
        self._routes = RouteInfoManager(settings)
        self._kv_configs = KVConfigManager(disk, _path(namesrv.kv_config_path))
        self._configs = ConfigService(settings, disk, _path(namesrv.config_store_path))
        self._server = RemotingServer(settings.server, clock=clock, tls=ServerTls(settings.server, disk))
        self._access.stand_before(self._server)
        tls = ClientTls(settings.client, disk) if settings.client.use_tls else None
        self._client = HookedRemotingClient(settings.client, self._access.hooks(), clock=clock, rng=rng, tls=tls)
        self._notifier = MinBrokerIdNotifier(self._client)
        self._tasks: list[asyncio.Task[None]] = []
        self._working_off: asyncio.Task[None] | None = None
        self._routes.when_unfinished = self._work_off_later
        self._register_processors()
        self._server.add_listener(_BrokerHousekeeping(self._routes, self._notify_all))

    def _register_processors(self) -> None:
        routes = ClientRequestProcessor(self._settings, self._routes, self._kv_configs, self._clock)
        self._server.register(RequestCode.GET_ROUTEINFO_BY_TOPIC, routes.process)
        rest = DefaultRequestProcessor(
            self._settings, self._routes, self._kv_configs, self._configs, self._clock, self._notifier.notify
        )
        for code, handler in rest.handlers().items():
            self._server.register(code, handler)
        for number, processor in self._access.routes(lambda: {"brokerName": "", "clusterName": ""}).items():
            self._server.register(number, processor)

    @property
    def port(self) -> int:
        """Port on which it listens, once started."""
        return self._server.port

    async def start(self, host: str | None = None, port: int | None = None) -> None:
        """Load the key-value table, listen, and watch the brokers.

        Args:
            host, port: None takes bindAddress and listenPort; port 0 takes a free one.

        Raises:
            ConfigError: the key-value file is damaged, or a file of access control cannot be used.
            OSError: the port is in use.
        """
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, self._kv_configs.load)
        await loop.run_in_executor(None, self._access.load)
        server = self._settings.server
        await self._server.start(
            server.bind_address if host is None else host, server.listen_port if port is None else port
        )
        self._access.start()
        self._tasks = [
            loop.create_task(_every(self._scan_seconds, self._scan_not_active_broker)),
            loop.create_task(_every(lambda: _KV_LOG_PERIOD_SECONDS, self._kv_configs.log_all)),
        ]

    async def shutdown(self) -> None:
        """Stop listening, close all connections, end all tasks."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.shutdown()
        if self._working_off is not None:
            await self._working_off
        await self._access.shutdown()
        await self._notifier.shutdown()
        await self._client.close()
        end_threads()

    def _scan_seconds(self) -> float:
        return self._settings.namesrv.scan_not_active_broker_interval / 1000

    def _scan_not_active_broker(self) -> None:
        now_ms = self._clock.monotonic_ms()
        silent = self._routes.expired(now_ms)
        self._notify_all(self._routes.scan_not_active_broker(now_ms))
        for broker, connection in silent:
            if isinstance(connection, Connection):
                connection.close(f"broker {broker.broker_addr} sent no heartbeat")

    def _work_off_later(self) -> None:
        """Remove the topics of a broker that has left, in several turns of the loop."""
        if self._working_off is None or self._working_off.done():
            self._working_off = asyncio.ensure_future(self._server.holds.watch("route tables", self._work_off()))

    async def _work_off(self) -> None:
        turns = Turns()
        while self._routes.work_off():
            await turns.rest()

    def _notify_all(self, changes: Iterable[MinBrokerIdChange]) -> None:
        for change in changes:
            self._notifier.notify(change)


def _access_control(settings: NamesrvSettings, disk: Disk, clock: Clock) -> AccessControl:
    namesrv = settings.namesrv
    folder = PurePath(namesrv.kv_config_path or ".").parent
    return AccessControl(
        AccessSettings(settings.auth, namesrv.acl_enable, namesrv.rocketmq_home, folder), disk=disk, clock=clock
    )


class _BrokerHousekeeping:
    """Forgets a broker as soon as its connection ends, for any reason."""

    def __init__(self, routes: RouteInfoManager, notify: Callable[[Iterable[MinBrokerIdChange]], None]) -> None:
        self._routes = routes
        self._notify = notify

    def on_connect(self, connection: Connection) -> None:
        """Does nothing: a connection becomes a broker's when the broker registers."""

    def on_close(self, connection: Connection) -> None:
        self._notify(self._routes.on_connection_closed(connection))

    def on_idle(self, connection: Connection) -> None:
        """Does nothing: the close that follows handles it."""

    def on_exception(self, connection: Connection) -> None:
        """Does nothing: the close that follows handles it."""


def _path(text: str) -> PurePath | None:
    return PurePath(text) if text else None


async def _every(seconds: Callable[[], float], work: Callable[[], None]) -> None:
    """Run `work` again and again; the pause is asked for each time, so that a live change takes effect."""
    while True:
        await asyncio.sleep(seconds())
        try:
            work()
        except Exception:  # a failure must not prevent the next turn
            _log.exception("%s failed", work)
