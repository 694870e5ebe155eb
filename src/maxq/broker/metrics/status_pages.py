"""StatusPages: what a broker tells over HTTP with `metricsExporterType=PROM`.

    /metrics   for Prometheus, and for whoever speaks its text form
    /health    200 as long as this process turns: a probe that gets no answer may end it
    /ready     200 when clients can use the broker; 503 and the reasons while it recovers or its store takes nothing

They are served before the store is loaded, so that a long recovery does not look like a dead process.
"""

import logging
from collections.abc import Callable
from typing import Final

from maxq.config.host import is_loopback
from maxq.config.settings import BrokerSettings
from maxq.errors import ConfigError
from maxq.remoting.http_server import HttpServer, Page
from maxq.runtime.interfaces import Clock
from maxq.runtime.metrics.registry import MetricsRegistry

log = logging.getLogger(__name__)

_METRICS_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_PROMETHEUS: Final = "PROM"


class StatusPages:
    """Attributes:
    port: where they are served; 0 while they are not.
    """

    def __init__(
        self,
        settings: BrokerSettings,
        registry: MetricsRegistry,
        *,
        clock: Clock,
        not_ready: Callable[[], list[str]],
    ) -> None:
        """`not_ready` returns the reasons why clients cannot use the broker."""
        self._settings = settings
        self._registry = registry
        self._not_ready = not_ready
        self._server = HttpServer({"/metrics": self.metrics, "/health": self.health, "/ready": self.ready}, clock=clock)
        self.port = 0

    async def start(self) -> None:
        """Start serving the pages, if the settings say so. ConfigError if the port is in use."""
        broker = self._settings.broker
        if broker.metrics_exporter_type != _PROMETHEUS:
            return
        host = broker.metrics_prom_exporter_host or broker.broker_ip1 or "127.0.0.1"
        try:
            self.port = await self._server.start(host, broker.metrics_prom_exporter_port)
        except OSError as error:
            raise ConfigError(
                f"metrics cannot be served on {host}:{broker.metrics_prom_exporter_port}: {error}; choose other "
                "metricsPromExporterHost and metricsPromExporterPort, or set metricsExporterType=DISABLE"
            ) from None
        if not is_loopback(host):
            log.warning(
                "metrics: %s:%d is open to other machines and has no access control: anyone who can reach it sees the "
                "names and numbers of topics, groups and clients; set metricsPromExporterHost, or close it with a "
                "firewall",
                host, self.port,
            )  # fmt: skip
        log.info("metrics, health and readiness: http://%s:%d/metrics /health /ready", host, self.port)

    async def shutdown(self) -> None:
        """Stop serving the pages."""
        await self._server.shutdown()
        self.port = 0

    def metrics(self) -> Page:
        """Return the metrics as text, rendered in slices."""
        return Page(self._registry.lines(), content_type=_METRICS_TYPE)

    def health(self) -> Page:
        """Returns the page of `/health`: a process that answers is alive."""
        return Page("ok\n")

    def ready(self) -> Page:
        """Returns the page of `/ready`: whether clients can use the broker, and if not, why."""
        reasons = self._not_ready()
        if reasons:
            return Page("".join(f"{reason}\n" for reason in reasons), 503)
        return Page("ready\n")
