"""What a collector gets, request by request."""

import pytest
from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics.export import MetricExportResult, MetricsData

from maxq.broker.metrics.otlp_exporter import OtlpExporter
from maxq.runtime.metrics.families import Family, Point

_SCOPE = {"otel_scope_name": "broker-meter"}
FOUND = [
    Family("target_info", "gauge", [Point({}, 1.0)]),
    Family("rocketmq_messages_in_total", "counter", [Point({**_SCOPE, "topic": "T"}, 3.0),
                                                     Point({**_SCOPE, "topic": "U"}, 4.0)], about="Messages stored"),
]  # fmt: skip


@pytest.mark.parametrize("most_points", [1, 2, 3])
def test_no_request_is_empty_wherever_a_round_is_cut(most_points: int, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[MetricsData] = []

    def export(_: OTLPMetricExporter, data: MetricsData) -> MetricExportResult:
        sent.append(data)
        return MetricExportResult.SUCCESS

    monkeypatch.setattr(OTLPMetricExporter, "export", export)
    exporter = OtlpExporter(
        "http://127.0.0.1:1", {}, timeout_ms=100, most_points=most_points, began_ms=0, in_delta=False
    )
    assert exporter.export(FOUND, 1_000) is None
    exporter.shutdown()
    scopes = [data.resource_metrics[0].scope_metrics[0] for data in sent]
    assert {scoped.scope.name for scoped in scopes} == {"broker-meter"}
    assert {metric.description for scoped in scopes for metric in scoped.metrics} == {"Messages stored"}
    assert [len(metric.data.data_points) for scoped in scopes for metric in scoped.metrics] == (
        [1, 1] if most_points == 1 else [2]
    )
