"""RpcLatency: how long requests took from their frame to their answer.

Fast-path sends and repeated pulls are counted by the arrival (all sends of one under the code of Java's producers,
SEND_MESSAGE_V2); every other request by the endpoint that answers it. A pull that was parked counts as long polling,
from its arrival on.

Source:
    remoting/metrics/RemotingMetricsManager.java.
"""

from bisect import bisect_left
from collections.abc import Iterator
from typing import Final

from maxq.codes import RequestCode, ResponseCode
from maxq.config.broker_config import BrokerConfig
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.runtime.metrics.registry import HistogramSample, MetricsRegistry

DISABLE: Final = "DISABLE"  # value of metricsExporterType with which nothing is counted
BOUNDS: Final = (1, 3, 5, 7, 10, 100, 1000, 2000, 3000)
_LABELS: Final = ("protocol_type", "request_code", "response_code", "is_long_polling", "result")
_SUCCESS: Final = int(ResponseCode.SUCCESS)

_Key = tuple[int, int, bool, str]  # request code, response code, long polling, result


class _Counts:
    __slots__ = ("buckets", "sum_ms")

    def __init__(self) -> None:
        self.buckets = [0] * (len(BOUNDS) + 1)
        self.sum_ms = 0

    def add(self, milliseconds: int, count: int) -> None:
        if milliseconds <= 1:  # nearly all requests
            self.buckets[0] += count
        else:
            self.buckets[bisect_left(BOUNDS, milliseconds)] += count
        self.sum_ms += milliseconds * count


class RpcLatency:
    """Registers its metrics with the registry it is given."""

    def __init__(self, registry: MetricsRegistry) -> None:
        self._counts: dict[_Key, _Counts] = {}
        self._sends = self._of((int(RequestCode.SEND_MESSAGE_V2), _SUCCESS, False, "success"))
        self._pulls = self._of((int(RequestCode.PULL_MESSAGE), _SUCCESS, False, "success"))
        self._held_pulls = self._of((int(RequestCode.PULL_MESSAGE), _SUCCESS, True, "success"))
        registry.observed_histogram(
            "rocketmq_rpc_latency_milliseconds",
            "Time from the arrival of a request to its answer, in milliseconds",
            BOUNDS,
            self._samples,
            _LABELS,
        )

    def sends(self, milliseconds: int, count: int) -> None:
        """Record fast-path sends of one arrival that were answered with success."""
        self._sends.add(milliseconds, count)

    def pull(self, milliseconds: int) -> None:
        """Record a repeated pull that was answered with messages."""
        self._pulls.add(milliseconds, 1)

    def held_pull(self, milliseconds: int) -> None:
        """Record a repeated pull that waited for messages and was answered."""
        self._held_pulls.add(milliseconds, 1)

    def answered(
        self, request: RemotingCommand, response: RemotingCommand, milliseconds: int, *, long_polling: bool = False
    ) -> None:
        """Record any other request when it was answered or, if it is oneway, processed."""
        result = "oneway" if request.is_oneway else "success"
        if response.code == ResponseCode.SYSTEM_ERROR:
            result = "process_request_failed"
        self._of((request.code, response.code, long_polling, result)).add(milliseconds, 1)

    def _of(self, key: _Key) -> _Counts:
        counts = self._counts.get(key)
        if counts is None:
            counts = self._counts[key] = _Counts()
        return counts

    def _samples(self) -> Iterator[HistogramSample]:
        for (request, response, long_polling, result), counts in list(self._counts.items()):
            if any(counts.buckets):
                labels = ("remoting", _name(RequestCode, request), _name(ResponseCode, response),
                          "true" if long_polling else "false", result)  # fmt: skip
                yield labels, counts.buckets, counts.sum_ms


def _name(codes: type[RequestCode] | type[ResponseCode], code: int) -> str:
    try:
        return codes(code).name.lower()
    except ValueError:
        return str(code)


def rpc_latency_of(broker: BrokerConfig, registry: MetricsRegistry) -> RpcLatency | None:
    """Make the metrics of request times; None if the settings ask for none."""
    if broker.metrics_exporter_type == DISABLE or not broker.enable_remoting_metrics:
        return None
    return RpcLatency(registry)
