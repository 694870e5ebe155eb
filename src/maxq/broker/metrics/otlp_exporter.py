"""OtlpExporter: metrics as OpenTelemetry's protocol over gRPC; `pip install 'maxq[otlp]'`.

Names are those of RocketMQ's instruments: a unit that a scrape has in its name (`_milliseconds`, `_bytes`) is a field
of its own here, and `otel_scope_name` is the scope.

Nothing else in MaxQ imports OpenTelemetry's exporter; metrics_export.py loads this module when the settings ask for it.

Source:
    broker/metrics/BrokerMetricsManager.java, BatchSplittingMetricExporter.java.
"""

import logging
from collections.abc import Iterable
from typing import Final

from grpc import Compression
from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricExportResult,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from maxq.broker.metrics.growth import Growth
from maxq.runtime.metrics.families import Buckets, Family, Point, portions

_SCOPE_LABEL: Final = "otel_scope_name"
_OVERFLOW_LABEL: Final = "otel_metric_overflow"
_NOT_SENT: Final = "target_info"  # made by the text form itself
_UNITS: Final = ("milliseconds", "seconds", "bytes")
_LIBRARY_LOG: Final = logging.getLogger("opentelemetry.exporter.otlp.proto.grpc.exporter")
_SILENCE: Final = logging.NullHandler()
_CUMULATIVE: Final = AggregationTemporality.CUMULATIVE
_DELTA: Final = AggregationTemporality.DELTA


class _LastWords(logging.Filter):
    """Keeps the library's messages about each failure and retry for the caller of the export, which logs them once.

    It goes before the library's own filter, which drops what it takes for said already, be it by another exporter.
    """

    text = ""

    def filter(self, record: logging.LogRecord) -> bool:
        self.text = record.getMessage()
        return True


class OtlpExporter:
    """Sends metrics to an OTLP collector. Blocks while it sends: run it in a thread beside the loop."""

    def __init__(
        self,
        endpoint: str,
        headers: dict[str, str],
        *,
        timeout_ms: int,
        most_points: int,
        began_ms: int,
        in_delta: bool,
    ) -> None:
        """
        Args:
            endpoint: http://host:port, or https:// for TLS.
            headers: sent with each request.
            most_points: of one request.
            began_ms: wall time since which the numbers are counted.
            in_delta: counters and histograms are sent as differences to the last export, not as sums since `began_ms`.
        """
        self._exporter = OTLPMetricExporter(
            endpoint=endpoint,
            headers={name.lower(): value for name, value in headers.items()},
            timeout=timeout_ms / 1000,
            compression=Compression.Gzip,
        )
        self._most_points = most_points
        self._growth = Growth() if in_delta else None
        self._began_ns = began_ms * 1_000_000
        self._words = _LastWords()
        _LIBRARY_LOG.filters.insert(0, self._words)
        _LIBRARY_LOG.addHandler(_SILENCE)
        _LIBRARY_LOG.propagate = False

    def export(self, found: list[Family], now_ms: int) -> str | None:
        """Send the metrics of a registry. Returns None if all was accepted, else why not: the requests behind the first
        refused one are not sent."""
        now_ns = now_ms * 1_000_000
        for part in portions([family for family in found if family.name != _NOT_SENT], self._most_points):
            if not self._sent(part, now_ns):
                self._end_round(now_ns, complete=False)
                return self._words.text
        self._end_round(now_ns, complete=True)
        return None

    def _sent(self, part: list[Family], now_ns: int) -> bool:
        growth = self._growth
        shown, temporality = (part, _CUMULATIVE) if growth is None else (growth.of(part), _DELTA)
        data = metrics_data(shown, self._began_ns, now_ns, temporality)
        taken = self._exporter.export(data) is MetricExportResult.SUCCESS
        if taken and growth is not None:
            growth.taken()
        return taken

    def _end_round(self, now_ns: int, *, complete: bool) -> None:
        if self._growth is None:
            return
        self._growth.end_round(complete=complete)
        if complete:
            self._began_ns = now_ns

    def shutdown(self) -> None:
        """Stop exporting at once; a request that is under way is aborted."""
        self._exporter.shutdown()
        _LIBRARY_LOG.removeFilter(self._words)


def metrics_data(
    found: Iterable[Family], began_ns: int, now_ns: int, temporality: AggregationTemporality
) -> MetricsData:
    """Build the data that OpenTelemetry's SDK would have collected."""
    scope = ""
    metrics = []
    for family in found:
        rows: list[Point | Buckets] = [*family.points, *family.buckets]
        scope = scope or next((row.labels.get(_SCOPE_LABEL, "") for row in rows), "")
        metrics.append(_metric(family, began_ns, now_ns, temporality))
    scoped = ScopeMetrics(InstrumentationScope(scope), metrics, "")
    return MetricsData([ResourceMetrics(Resource.get_empty(), [scoped], "")])


def _metric(family: Family, began_ns: int, now_ns: int, temporality: AggregationTemporality) -> Metric:
    name, unit = family.name, ""
    for known in _UNITS:
        if name.endswith(f"_{known}"):
            name, unit = name.removesuffix(f"_{known}"), known
            break
    data: Sum | Gauge | Histogram
    if family.kind == "histogram":
        data = Histogram([_buckets(row, began_ns, now_ns) for row in family.buckets], temporality)
    elif family.kind == "counter":
        data = Sum([_number(row, began_ns, now_ns) for row in family.points], temporality, is_monotonic=True)
    else:
        data = Gauge([_number(row, began_ns, now_ns) for row in family.points])
    return Metric(name, family.about, unit, data)


def _number(row: Point, began_ns: int, now_ns: int) -> NumberDataPoint:
    return NumberDataPoint(_attributes(row.labels), began_ns, now_ns, row.value)


def _buckets(row: Buckets, began_ns: int, now_ns: int) -> HistogramDataPoint:
    return HistogramDataPoint(
        _attributes(row.labels),
        began_ns,
        now_ns,
        count=sum(row.counts),
        sum=row.total,
        bucket_counts=row.counts,
        explicit_bounds=row.bounds,
        min=None,  # type: ignore[arg-type]  # not kept; optional in the protocol
        max=None,  # type: ignore[arg-type]
    )


def _attributes(labels: dict[str, str]) -> dict[str, str | bool]:
    attributes: dict[str, str | bool] = {
        name: value for name, value in labels.items() if name not in (_SCOPE_LABEL, _OVERFLOW_LABEL, "le")
    }
    if _OVERFLOW_LABEL in labels:
        attributes["otel.metric.overflow"] = True
    return attributes
