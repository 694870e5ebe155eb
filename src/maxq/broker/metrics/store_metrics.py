"""Metrics of the store: its size, how far flushing and dispatch are behind, and the timer.

Source:
    store/metrics/DefaultStoreMetricsManager.java.
"""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import PurePath
from typing import Final

from maxq.broker.metrics.labels import STORE_LABELS, forget_deleted
from maxq.broker.tables.topic.topic_config_manager import TopicConfigManager
from maxq.broker.timer.timer_service import TimerService
from maxq.config.message_store_config import MessageStoreConfig
from maxq.runtime.interfaces import Clock, Disk
from maxq.runtime.metrics.registry import MetricsRegistry, Sample
from maxq.store.message_store import MessageStore
from maxq.store.timer.timer_message_store import TimerMessageStore
from maxq.store.timer.timer_record import TimerRecord

#: Seconds; the numbers of messages due between each and the one before it are told.
TIMER_BOUNDS: Final = (5, 60, 300, 900, 3600, 14_400, 28_800, 86_400)
DELAY_BOUNDS: Final = (60, 600, 3600, 43_200, 86_400, 259_200)  # seconds
_SLOTS_LOOKED_AT: Final = 1000  # most slots that are read at once
_LOOK_AGAIN_MS: Final = 60_000


class StoreMetrics:
    """Registers its metrics with the registry it is given."""

    def __init__(
        self, registry: MetricsRegistry, *, config: MessageStoreConfig, store: MessageStore, disk: Disk, clock: Clock
    ) -> None:
        self._store = store
        self._disk = disk
        self._clock = clock
        self._folder = PurePath(config.store_path_commit_log or config.store_path_root_dir)
        registry.gauge(
            "rocketmq_storage_size_bytes",
            "Used bytes of the disk partition that holds the commit log",
            self._used,
            constant=STORE_LABELS,
        )
        registry.number(
            "rocketmq_storage_flush_behind_bytes",
            "Bytes of the commit log that are written and not yet synced to the disk",
            self._flush_behind,
            constant=STORE_LABELS,
        )
        registry.number(
            "rocketmq_storage_dispatch_behind_bytes",
            "Bytes of the commit log whose messages are not yet in their queues",
            lambda: store.dispatch_behind_bytes,
            constant=STORE_LABELS,
        )
        registry.gauge(
            "rocketmq_storage_message_reserve_time_milliseconds",
            "Age of the oldest message in the store, in milliseconds",
            self._reserve_time,
            constant=STORE_LABELS,
        )

    def _used(self) -> Iterator[Sample]:
        try:
            yield (), self._disk.usage(self._folder).used
        except OSError:
            return  # no value is shown, because none is known

    def _flush_behind(self) -> int:
        return max(0, self._store.max_physical_offset - self._store.flushed_offset)

    def _reserve_time(self) -> Iterator[Sample]:
        earliest_ms = self._store.earliest_message_time()
        if earliest_ms > 0:
            yield (), self._clock.wall_ms() - earliest_ms


class TimerMetricsView:
    """Shows the timer's metrics (RocketMQ's names) in a registry, in which its constructor registers them."""

    def __init__(
        self, registry: MetricsRegistry, service: TimerService, topics: TopicConfigManager, *, clock: Clock
    ) -> None:
        self._service = service
        self._clock = clock
        self._due = [0] * len(TIMER_BOUNDS)
        self._looked_ms: int | None = None  # monotonic
        registry.before(self._sample)
        for name, about, read in (
            (
                "rocketmq_timer_enqueue_lag",
                "Delayed messages that are stored and not yet taken in by the timer",
                self._enqueue_lag,
            ),
            (
                "rocketmq_timer_enqueue_latency_milliseconds",
                "How long the next message that the timer takes in has been waiting, in milliseconds",
                self._enqueue_latency,
            ),
            (
                "rocketmq_timer_dequeue_lag",
                "Delayed messages whose time has come and that are not yet delivered",
                self._dequeue_lag,
            ),
            (
                "rocketmq_timer_dequeue_latency_milliseconds",
                "How late the timer delivers messages, in milliseconds",
                self._dequeue_latency,
            ),
        ):
            registry.gauge(name, about, partial(self._if_loaded, read), constant=STORE_LABELS)
        registry.gauge(
            "rocketmq_timing_messages",
            "Delayed messages in the timer whose time has not come, by the topic to which they will be delivered",
            self._timing,
            ("topic",),
            constant=STORE_LABELS,
        )
        registry.gauge(
            "rocketmq_timer_message_snapshot",
            "Delayed messages that are due within timer_bound_s seconds, but not within the next smaller bound",
            self._snapshot,
            ("timer_bound_s",),
            constant=STORE_LABELS,
        )
        enqueued = registry.counter(
            "rocketmq_timer_enqueue_total",
            "Delayed messages that the timer has taken in, by the topic to which they will be delivered",
            ("topic",),
            constant=STORE_LABELS,
        )
        dequeued = registry.counter(
            "rocketmq_timer_dequeue_total",
            "Delayed messages that the timer has delivered, by the topic to which they were delivered",
            ("topic",),
            constant=STORE_LABELS,
        )
        delays = registry.histogram(
            "rocketmq_delay_message_latency_seconds",
            "Delay that producers asked for, in seconds",
            DELAY_BOUNDS,
            ("topic",),
            constant=STORE_LABELS,
        )

        forget_deleted(topics, enqueued, dequeued, delays)

        def on_enqueued(record: TimerRecord) -> None:
            enqueued.add(1, record.real_topic)
            delays.observe(max(0, record.out_ms - record.message.born_timestamp) // 1000, record.real_topic)

        service.on_enqueued = on_enqueued
        service.on_dequeued = lambda record: dequeued.add(1, record.real_topic)

    def _if_loaded(self, read: Callable[[TimerMessageStore], int]) -> Iterator[Sample]:
        if self._service.is_loaded:
            yield (), read(self._service.timer)

    @staticmethod
    def _enqueue_lag(timer: TimerMessageStore) -> int:
        return max(0, timer.topic.max_queue_offset - timer.topic.queue_offset)

    def _enqueue_latency(self, timer: TimerMessageStore) -> int:
        record = timer.topic.next_record()
        return 0 if record is None else max(0, self._clock.wall_ms() - record.message.store_timestamp)

    @staticmethod
    def _dequeue_lag(timer: TimerMessageStore) -> int:
        """Count the messages of slots whose time is over, among the first thousand."""
        end = min(timer.write_time_ms, timer.read_time_ms + _SLOTS_LOOKED_AT * timer.precision_ms)
        return sum(timer.slot_count(due_ms) for due_ms in range(timer.read_time_ms, end, timer.precision_ms))

    def _dequeue_latency(self, timer: TimerMessageStore) -> int:
        return max(0, self._clock.wall_ms() - timer.read_time_ms - timer.precision_ms)

    def _timing(self) -> Iterator[Sample]:
        if self._service.is_loaded:
            for topic, count in list(self._service.timer.metrics.counts.items()):
                yield (topic,), count

    def _sample(self) -> Iterator[None]:
        """Count the messages due within a day, in several turns of the loop; once a minute, because a day has 86 400
        slots."""
        now_ms = self._clock.monotonic_ms()
        if not self._service.is_loaded or (self._looked_ms is not None and now_ms - self._looked_ms < _LOOK_AGAIN_MS):
            return
        self._looked_ms = now_ms
        timer = self._service.timer
        start_ms, due, slots = timer.write_time_ms, [0] * len(TIMER_BOUNDS), 0
        if timer.pending:
            lower = 0
            for index, bound in enumerate(TIMER_BOUNDS):
                for behind_ms in range(lower * 1000, bound * 1000, timer.precision_ms):
                    due[index] += timer.slot_count(start_ms + behind_ms)
                    slots += 1
                    if slots % _SLOTS_LOOKED_AT == 0:
                        yield
                lower = bound
        self._due = due

    def _snapshot(self) -> Iterator[Sample]:
        if self._service.is_loaded:
            for bound, count in zip(TIMER_BOUNDS, self._due, strict=True):
                yield (str(bound),), count
