"""Metrics that a broker sends to a collector of OpenTelemetry, or writes to its log."""

import asyncio
import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2_grpc import (
    MetricsServiceServicer,
    add_MetricsServiceServicer_to_server,
)

from maxq.broker.metrics.metrics_export import headers_of
from maxq.errors import ConfigError
from tests.integration.broker.conftest import Start
from tests.integration.broker.harness import until

POINTS = 5  # in one request


class Collector(MetricsServiceServicer):  # type: ignore[misc]
    """Keeps what it gets."""

    def __init__(self) -> None:
        self.requests: list[ExportMetricsServiceRequest] = []
        self.headers: dict[str, str] = {}
        self.taken = True

    def Export(self, request: Any, context: Any) -> Any:
        self.headers = dict(context.invocation_metadata())
        if not self.taken:
            context.abort(grpc.StatusCode.PERMISSION_DENIED, "no")
        self.requests.append(request)
        return ExportMetricsServiceResponse()

    def metrics(self) -> dict[str, Any]:
        """The last of each name."""
        return {
            metric.name: metric
            for request in list(self.requests)
            for scoped in request.resource_metrics[0].scope_metrics
            for metric in scoped.metrics
        }


@pytest.fixture
def collector() -> Iterator[tuple[Collector, str]]:
    """It, and where it listens."""
    kept = Collector()
    server = grpc.server(ThreadPoolExecutor(1))
    add_MetricsServiceServicer_to_server(kept, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield kept, f"http://127.0.0.1:{port}"
    server.stop(None).wait()


def otlp(target: str) -> dict[str, Any]:
    return {
        "metricsExporterType": "OTLP_GRPC", "metricsGrpcExporterTarget": target,
        "metricsGrpcExporterHeader": "Authorization:Bearer hush,zone:a", "metricGrpcExporterIntervalInMills": 100,
        "metricsExportBatchMaxDataPoints": POINTS,
    }  # fmt: skip


async def test_a_collector_gets_rocketmq_s_instruments(start_broker: Start, collector: tuple[Collector, str]) -> None:
    kept, target = collector
    broker = await start_broker(**otlp(target))
    broker.create_topic("orders", queues=1)
    for _ in range(3):
        assert (await broker.send("orders", b"x" * 100)).code == 0

    def counted() -> bool:
        found = kept.metrics()  # a round has several requests
        if not {"rocketmq_messages_in_total", "rocketmq_message_size", "rocketmq_storage_size"} <= found.keys():
            return False
        sizes = found["rocketmq_message_size"].histogram
        return found["rocketmq_messages_in_total"].sum.data_points[0].as_double == sizes.data_points[0].count == 3

    await until(counted)
    assert (kept.headers["authorization"], kept.headers["zone"]) == ("Bearer hush", "a")
    metrics = kept.metrics()
    counter = metrics["rocketmq_messages_in_total"].sum
    assert counter.is_monotonic and counter.aggregation_temporality == 2  # cumulative
    labels = {each.key: each.value.string_value for each in counter.data_points[0].attributes}
    assert labels == {
        "cluster": "DefaultCluster", "node_id": "broker-a", "node_type": "broker", "topic": "orders",
        "message_type": "normal", "is_system": "false",
    }  # fmt: skip
    size = metrics["rocketmq_storage_size"]
    assert size.unit == "bytes" and size.gauge.data_points[0].as_double >= 0
    histogram = metrics["rocketmq_message_size"].histogram.data_points[0]
    assert (histogram.count, next(iter(histogram.bucket_counts)), len(histogram.explicit_bounds)) == (3, 3, 6)
    assert "target_info" not in metrics
    scopes = {request.resource_metrics[0].scope_metrics[0].scope.name for request in kept.requests}
    assert scopes == {"broker-meter"}
    assert all(_points(request) <= POINTS for request in kept.requests)


def _points(request: ExportMetricsServiceRequest) -> int:
    return sum(
        len(getattr(metric, metric.WhichOneof("data")).data_points)
        for scoped in request.resource_metrics[0].scope_metrics
        for metric in scoped.metrics
    )


async def test_in_delta_a_collector_gets_what_came_since_the_last_time(
    start_broker: Start, collector: tuple[Collector, str]
) -> None:
    kept, target = collector
    broker = await start_broker(**otlp(target), metricsInDelta="true")
    broker.create_topic("orders", queues=1)

    def points() -> list[Any]:
        return [
            point
            for request in list(kept.requests)
            for metric in request.resource_metrics[0].scope_metrics[0].metrics
            if metric.name == "rocketmq_messages_in_total"
            for point in metric.sum.data_points
        ]

    for count, total in ((3, 3), (2, 5)):
        for _ in range(count):
            assert (await broker.send("orders", b"x" * 100)).code == 0
        await until(lambda: sum(point.as_double for point in points()) >= total)  # noqa: B023  # waited for at once
    kept.taken = False
    assert (await broker.send("orders", b"x" * 100)).code == 0
    kept.headers.clear()
    await until(lambda: bool(kept.headers))  # it was asked, and refused
    kept.taken = True
    await until(lambda: sum(point.as_double for point in points()) >= 6)
    told = points()
    assert sum(point.as_double for point in told) == 6 and max(point.as_double for point in told) < 6
    ends = {point.time_unix_nano for point in told}
    assert all(point.start_time_unix_nano in ends for point in told[1:])  # each begins where another ended
    assert "delta" in {each.value.string_value for each in told[0].attributes if each.key == "aggregation"}
    metrics = kept.metrics()
    assert metrics["rocketmq_messages_in_total"].sum.aggregation_temporality == 1
    assert metrics["rocketmq_message_size"].histogram.aggregation_temporality == 1


async def test_a_collector_that_takes_nothing_is_named_once(
    start_broker: Start, collector: tuple[Collector, str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "maxq.broker")
    kept, target = collector
    kept.taken = False
    for name in ("one", "two"):  # the library takes what the second is told for said already
        await start_broker(name, **otlp(target))
    await until(lambda: caplog.text.count("does not take metrics") == 2)
    kept.taken = True
    await until(lambda: caplog.text.count("takes metrics again") == 2)
    assert caplog.text.count("does not take metrics") == 2 and "hush" not in caplog.text
    reasons = [record for record in caplog.records if "PERMISSION_DENIED" in record.getMessage()]
    assert len([record for record in reasons if record.name.startswith("maxq.")]) == 2
    assert not any(logging.getLogger(record.name).propagate for record in reasons if record.name.startswith("opentel"))


async def test_metrics_are_written_to_the_log(start_broker: Start, caplog: pytest.LogCaptureFixture) -> None:
    broker = await start_broker(metricsExporterType="LOG", metricLoggingExporterIntervalInMills=100)
    broker.create_topic("orders", queues=1)
    assert (await broker.send("orders", b"x")).code == 0

    def written() -> bool:
        texts = [record.getMessage() for record in caplog.records if record.name == "maxq.metrics"]
        return any("rocketmq_messages_in_total{" in text and 'topic="orders"' in text for text in texts)

    await until(written)


async def test_otlp_without_a_collector_and_a_log_in_delta_are_refused_at_the_start(start_broker: Start) -> None:
    with pytest.raises(ConfigError, match="needs metricsGrpcExporterTarget=http://host:port"):
        await start_broker(metricsExporterType="OTLP_GRPC")
    with pytest.raises(ConfigError, match="the log has totals"):
        await start_broker(metricsExporterType="LOG", metricsInDelta="true")
    assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("metrics")]


def test_headers_of_another_form_are_refused_without_showing_them() -> None:
    assert headers_of("a:b:c, d : e") == {"a": "b:c", "d": "e"}
    with pytest.raises(ConfigError, match="part 2 is not name:value") as caught:
        headers_of("a:b,hush")
    assert "hush" not in str(caught.value)
