"""Metrics of pop consumption: how far reviving is behind, how many check points are in memory, and what went through
the revive topic and the retry topics.

Records go through the revive topic only when a check point has been open for long, so these counters grow less than
Java's do under the same load.

Source:
    broker/metrics/PopMetricsManager.java.
"""

from collections.abc import Iterator

from maxq.broker.pop.check_point_buffer import CheckPointBuffer
from maxq.broker.pop.pop_counts import SCAN_BOUNDS_MS, PopCounts
from maxq.broker.pop.pop_revive import PopReviveService
from maxq.config.settings import BrokerSettings
from maxq.runtime.metrics.registry import MetricsRegistry, Sample


class PopMetrics:
    """Registers its metrics with the registry it is given."""

    def __init__(
        self,
        registry: MetricsRegistry,
        *,
        settings: BrokerSettings,
        buffer: CheckPointBuffer,
        revive: PopReviveService,
        counts: PopCounts,
    ) -> None:
        self._settings = settings
        self._revive = revive
        registry.number(
            "rocketmq_pop_checkpoint_buffer_size",
            "Check points in memory: each is a set of messages popped together that are not all acknowledged",
            lambda: len(buffer),
        )
        registry.number(
            "rocketmq_pop_offset_buffer_size",
            "Queues, by consumer group, of which check points are in memory",
            lambda: len(buffer.queues()),
        )
        registry.gauge(
            "rocketmq_pop_revive_lag_milliseconds",
            "Records of the revive topic that are not read yet; a number in spite of the name, as in Java",
            lambda: self._behind(0),
            ("queue_id",),
        )
        registry.gauge(
            "rocketmq_pop_revive_latency_milliseconds",
            "How late the broker delivers unacknowledged messages again, in milliseconds",
            lambda: self._behind(1),
            ("queue_id",),
        )
        registry.observed_counter(
            "rocketmq_pop_revive_in_message_total",
            "Records written to the revive topic, which holds pops that stay unacknowledged for long",
            lambda: list(counts.put.items()),
            ("consumer_group", "topic", "revive_message_type", "put_status"),
        )
        registry.observed_counter(
            "rocketmq_pop_revive_out_message_total",
            "Records read from the revive topic, which holds pops that stay unacknowledged for long",
            lambda: list(counts.got.items()),
            ("consumer_group", "topic", "queue_id", "revive_message_type"),
        )
        registry.observed_counter(
            "rocketmq_pop_revive_retry_messages_total",
            "Messages put into retry topics, because they were popped and not acknowledged in time",
            lambda: list(counts.retried.items()),
            ("consumer_group", "topic", "put_status"),
        )
        registry.observed_histogram(
            "rocketmq_pop_buffer_scan_time_consume_milliseconds",
            "Duration of a pass over the check points in memory, in milliseconds",
            SCAN_BOUNDS_MS,
            lambda: [((), counts.scans, counts.scan_ms)] if any(counts.scans) else [],
        )

    def _behind(self, which: int) -> Iterator[Sample]:
        """Yield samples of how far pops are behind. `which` 0: messages, though the metric's name says milliseconds, as
        in Java; 1: milliseconds."""
        for queue_id in range(self._settings.broker.revive_queue_num):
            yield (str(queue_id),), self._revive.behind(queue_id)[which]
