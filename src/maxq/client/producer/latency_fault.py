"""Fault latency: which brokers a producer keeps away from for a while. Pure: the time is an argument.

A call's latency decides how long its broker is not available (table below). A failed call counts as 10 000 ms. Two
facts are kept per broker: available (the penalty is over) and reachable (the last contact, call or probe, did not
fail).

Source: apache/rocketmq client/latency/{MQFaultStrategy,LatencyFaultToleranceImpl}.java.
"""

from collections.abc import Sequence
from dataclasses import dataclass

LATENCY_MAX: tuple[int, ...] = (50, 100, 550, 1800, 3000, 5000, 15000)  # ms
NOT_AVAILABLE_DURATION: tuple[int, ...] = (0, 0, 2000, 5000, 6000, 10000, 30000)  # ms
ISOLATION_LATENCY = 10_000  # ms, what a failed call counts as


@dataclass(slots=True)
class FaultItem:
    """The recorded faults of one broker. Times are monotonic milliseconds."""

    current_latency_ms: int
    start_timestamp: int  # time from which the broker is available again
    reachable: bool
    check_stamp: int  # time of the next probe


class LatencyFaultTolerance:
    """Tells which brokers a producer should avoid, because they were slow or could not be reached.

    Args:
        enabled: `sendLatencyEnable`; off (the default) every broker is available.
        latency_max: ascending latencies in ms.
        not_available_duration: penalty in ms from the latency at the same position on.
    """

    def __init__(
        self,
        *,
        enabled: bool = False,
        latency_max: Sequence[int] = LATENCY_MAX,
        not_available_duration: Sequence[int] = NOT_AVAILABLE_DURATION,
    ) -> None:
        assert len(latency_max) == len(not_available_duration), "one penalty per latency"
        self.enabled = enabled
        self._latency_max = tuple(latency_max)
        self._not_available_duration = tuple(not_available_duration)
        self._items: dict[str, FaultItem] = {}

    def update(self, broker_name: str, latency_ms: int, now_ms: int, *, isolation: bool, reachable: bool) -> None:
        """Note that a call to `broker_name` ended after `latency_ms`.

        Args:
            isolation: the call failed; it counts as ISOLATION_LATENCY.
            reachable: the broker answered something.
        """
        if not self.enabled:
            return
        duration = self.not_available_duration(ISOLATION_LATENCY if isolation else latency_ms)
        item = self._items.get(broker_name)
        if item is None:
            self._items[broker_name] = FaultItem(latency_ms, now_ms + duration, reachable, now_ms)
            return
        item.current_latency_ms = latency_ms
        item.reachable = reachable
        if duration > 0:
            item.start_timestamp = max(item.start_timestamp, now_ms + duration)

    def not_available_duration(self, latency_ms: int) -> int:
        """Return how long a broker with this latency is avoided. Both are in ms."""
        for limit, duration in zip(reversed(self._latency_max), reversed(self._not_available_duration), strict=True):
            if latency_ms >= limit:
                return duration
        return 0

    def is_available(self, broker_name: str, now_ms: int) -> bool:
        """Return whether a broker need not be avoided."""
        item = self._items.get(broker_name)
        return item is None or now_ms >= item.start_timestamp

    def is_reachable(self, broker_name: str) -> bool:
        """Return whether the last contact with a broker worked. An unknown broker counts as reachable."""
        item = self._items.get(broker_name)
        return item is None or item.reachable

    def due_probes(self, now_ms: int, interval_ms: int) -> list[str]:
        """Return the brokers that are unreachable or avoided and should be probed now. The next probe of each is due
        `interval_ms` later."""
        due = []
        for name, item in self._items.items():
            if now_ms >= item.check_stamp and (not item.reachable or now_ms < item.start_timestamp):
                item.check_stamp = now_ms + interval_ms
                due.append(name)
        return due

    def on_probe(self, broker_name: str, reached: bool) -> None:
        """Note whether a probe of `broker_name` was answered."""
        item = self._items.get(broker_name)
        if item is not None and reached:
            item.reachable = True

    def remove(self, broker_name: str) -> None:
        """Forget what is known of the latency and faults of a broker."""
        self._items.pop(broker_name, None)
