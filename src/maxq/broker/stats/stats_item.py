"""One counted thing and its three histories (StatsItem.java, StatsItemSet.java).

A history is a short list of snapshots. What a view shows is the difference between its newest and its oldest
snapshot, so a view needs no clean-up and costs nothing between samples:

    history   sampled every   snapshots kept   covers
    minute    10 s            7                1 minute
    hour      10 min          7                1 hour
    day       1 h             25               1 day
"""

from dataclasses import dataclass

MINUTE_SAMPLE_MS = 10_000
HOUR_SAMPLE_MS = 600_000
DAY_SAMPLE_MS = 3_600_000
_MINUTE_KEPT = 7
_HOUR_KEPT = 7
_DAY_KEPT = 25

_Snapshot = tuple[int, int, int]  # wall milliseconds, value, times


@dataclass(frozen=True, slots=True)
class StatsSnapshot:
    """What happened in a period: the sum, the sum per second, and the sum per call."""

    sum: int = 0
    tps: float = 0.0
    avgpt: float = 0.0


class _History:
    __slots__ = ("_kept", "_period_ms", "_snapshots")

    def __init__(self, period_ms: int, kept: int) -> None:
        self._period_ms = period_ms
        self._kept = kept
        self._snapshots: list[_Snapshot] = []

    def sample(self, now_ms: int, value: int, times: int) -> None:
        snapshots = self._snapshots
        if not snapshots:  # so that the very first sample already shows something
            snapshots.append((now_ms - self._period_ms, 0, 0))
        elif snapshots[0][1:] == (value, times):
            # Nothing moved in the whole period: one snapshot says it, and thousands of idle topics stay small.
            self._snapshots = [(now_ms, value, times)]
            return
        snapshots.append((now_ms, value, times))
        if len(snapshots) > self._kept:
            del snapshots[0]

    def view(self) -> StatsSnapshot:
        if not self._snapshots:
            return StatsSnapshot()
        first_ms, first_value, first_times = self._snapshots[0]
        last_ms, last_value, last_times = self._snapshots[-1]
        total = last_value - first_value
        times = last_times - first_times
        elapsed = last_ms - first_ms
        return StatsSnapshot(
            sum=total,
            tps=total * 1000.0 / elapsed if elapsed > 0 else 0.0,
            avgpt=total / times if times > 0 else 0.0,
        )


class StatsItem:
    """A counter: `value` is what was counted, `times` how often."""

    __slots__ = ("_day", "_hour", "_minute", "times", "value")

    def __init__(self) -> None:
        self.value = 0
        self.times = 0
        self._minute = _History(MINUTE_SAMPLE_MS, _MINUTE_KEPT)
        self._hour = _History(HOUR_SAMPLE_MS, _HOUR_KEPT)
        self._day = _History(DAY_SAMPLE_MS, _DAY_KEPT)

    def add(self, value: int, times: int = 1) -> None:
        self.value += value
        self.times += times

    def sample_minute(self, now_ms: int) -> None:
        self._minute.sample(now_ms, self.value, self.times)

    def sample_hour(self, now_ms: int) -> None:
        self._hour.sample(now_ms, self.value, self.times)

    def sample_day(self, now_ms: int) -> None:
        self._day.sample(now_ms, self.value, self.times)

    @property
    def minute(self) -> StatsSnapshot:
        return self._minute.view()

    @property
    def hour(self) -> StatsSnapshot:
        return self._hour.view()

    @property
    def day(self) -> StatsSnapshot:
        return self._day.view()
