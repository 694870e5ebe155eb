"""MetricsExport: metrics that are not fetched but sent, `metricsExporterType` OTLP_GRPC, or written, LOG.

The numbers of the registry, or its text, are gathered on the loop, in turns. They are sent by a thread.

Source:
    broker/metrics/BrokerMetricsManager.java.
"""

import importlib
import logging
from typing import Any, Final

from maxq.config.broker_config import BrokerConfig
from maxq.errors import ConfigError
from maxq.remoting.http_server import plain, slices
from maxq.runtime.blocking import TOOLS
from maxq.runtime.interfaces import Clock
from maxq.runtime.metrics.registry import MetricsRegistry
from maxq.runtime.periodic import PeriodicTasks
from maxq.runtime.turns import Turns

log = logging.getLogger(__name__)
metrics_log: Final = logging.getLogger("maxq.metrics")

OTLP: Final = "OTLP_GRPC"
LOG: Final = "LOG"


class MetricsExport:
    """Exports the broker's metrics by OTLP; with another exporter type it does nothing."""

    def __init__(self, broker: BrokerConfig, registry: MetricsRegistry, clock: Clock) -> None:
        self._broker = broker
        self._registry = registry
        self._clock = clock
        self._tasks = PeriodicTasks()
        self._otlp: Any = None
        self._fails = False

    def start(self) -> None:
        """Start exporting. Raises ConfigError if the OTLP settings are incomplete, or the package is not installed."""
        broker = self._broker
        if broker.metrics_in_delta and broker.metrics_exporter_type == LOG:
            raise ConfigError(f"metricsInDelta=true with metricsExporterType={LOG}: the log has totals, use {OTLP}")
        if broker.metrics_exporter_type == LOG:
            metrics_log.setLevel(logging.INFO)
            self._tasks.every("metrics log", broker.metric_logging_exporter_interval_in_mills / 1000, self._write)
        elif broker.metrics_exporter_type == OTLP:
            self._otlp = self._exporter()
            self._tasks.every("metrics export", broker.metric_grpc_exporter_interval_in_mills / 1000, self._send)

    async def shutdown(self) -> None:
        """Stop exporting, and abandon an export that is under way."""
        if self._otlp is not None:
            await TOOLS.run(self._otlp.shutdown)
        await self._tasks.stop()

    def _exporter(self) -> Any:
        broker = self._broker
        target = broker.metrics_grpc_exporter_target
        if not target:
            raise ConfigError(
                f"metricsExporterType={OTLP} needs metricsGrpcExporterTarget=http://host:port of a collector"
            )
        try:
            module = importlib.import_module("maxq.broker.metrics.otlp_exporter")
        except ModuleNotFoundError as error:
            raise ConfigError(f"metricsExporterType={OTLP} needs {error.name}: pip install 'maxq[otlp]'") from None
        endpoint = target if target.startswith("http") else f"https://{target}"
        log.info("metrics are sent to %s every %d ms", endpoint, broker.metric_grpc_exporter_interval_in_mills)
        return module.OtlpExporter(
            endpoint,
            headers_of(broker.metrics_grpc_exporter_header),
            timeout_ms=broker.metric_grpc_exporter_time_out_in_mills,
            most_points=broker.metrics_export_batch_max_data_points,
            began_ms=self._clock.wall_ms(),
            in_delta=broker.metrics_in_delta,
        )

    async def _send(self) -> None:
        turns = Turns()
        found = [family async for family in turns.over(self._registry.families()) if family is not None]
        why_not = await TOOLS.run(self._otlp.export, found, self._clock.wall_ms())
        fails = why_not is not None
        if fails != self._fails:
            target = self._broker.metrics_grpc_exporter_target
            if fails:
                log.warning("%s does not take metrics (logged once until it does): %s", target, why_not)
            else:
                log.info("%s takes metrics again", target)
        self._fails = fails

    async def _write(self) -> None:
        async for piece in plain(slices(self._registry.lines(), self._clock)):
            metrics_log.info("metrics\n%s", piece.decode().rstrip("\n"))


def headers_of(text: str) -> dict[str, str]:
    """Parse `name:value,name:value` of metricsGrpcExporterHeader. Raises ConfigError for another form; the error does
    not show the values."""
    headers = {}
    for number, part in enumerate(filter(None, text.split(",")), 1):
        name, colon, value = part.partition(":")
        if not (colon and name.strip()):
            raise ConfigError(f"metricsGrpcExporterHeader: part {number} is not name:value")
        headers[name.strip()] = value.strip()
    return headers
