"""One counted thing and its three histories (StatsItem.java, StatsItemSet.java).

A history is a short list of snapshots. What a view shows is the difference between its newest and its oldest
snapshot, so a view needs no clean-up and costs nothing between samples:

    history   sampled every   snapshots kept   covers
    minute    10 s            7                1 minute
    hour      10 min          7                1 hour
    day       1 h             25               1 day
"""

from maxq.lazy_dataclass import dataclass

MINUTE_SAMPLE_MS = 10_000
HOUR_SAMPLE_MS = 600_000
DAY_SAMPLE_MS = 3_600_000
_MINUTE_KEPT = 7
_HOUR_KEPT = 7
_DAY_KEPT = 25
_LENGTH = 3  # numbers of a snapshot

#: Snapshots one behind the other: wall milliseconds, value, times. Flat, for a broker has five counters a topic.
_History = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class StatsSnapshot:
    """Counts of a period: the sum, the sum per second, and the sum per call."""

    sum: int = 0
    tps: float = 0.0
    avgpt: float = 0.0


def _sampled(history: _History, now_ms: int, value: int, times: int, period_ms: int, kept: int) -> _History:
    """Returns the history with a snapshot of this moment."""
    if not history:  # lets the very first sample show a value
        return now_ms - period_ms, 0, 0, now_ms, value, times
    if history[1] == value and history[2] == times:
        # Nothing moved in the whole period: one snapshot says it, and thousands of idle topics stay small.
        return now_ms, value, times
    return (*history, now_ms, value, times)[-3 * kept :]


def _view(history: _History) -> StatsSnapshot:
    if not history:
        return StatsSnapshot()
    total, times, elapsed = history[-2] - history[1], history[-1] - history[2], history[-3] - history[0]
    return StatsSnapshot(
        sum=total,
        tps=total * 1000.0 / elapsed if elapsed > 0 else 0.0,
        avgpt=total / times if times > 0 else 0.0,
    )


class StatsItem:
    """A counter: `value` is the sum, `times` the number of additions."""

    __slots__ = ("_day", "_hour", "_minute", "times", "value")

    def __init__(self) -> None:
        self.value = 0
        self.times = 0
        self._minute: _History = ()
        self._hour: _History = ()
        self._day: _History = ()

    def add(self, value: int, times: int = 1) -> None:
        """Count `times` events worth `value` together."""
        self.value += value
        self.times += times

    def sample_minute(self, now_ms: int) -> None:
        """Record a snapshot of the counter's totals, from which the statistics of the last minute are computed."""
        self._minute = _sampled(self._minute, now_ms, self.value, self.times, MINUTE_SAMPLE_MS, _MINUTE_KEPT)

    def sample_hour(self, now_ms: int) -> None:
        """Record a snapshot of the counter's totals, from which the statistics of the last hour are computed."""
        self._hour = _sampled(self._hour, now_ms, self.value, self.times, HOUR_SAMPLE_MS, _HOUR_KEPT)

    def sample_day(self, now_ms: int) -> None:
        """Record a snapshot of the counter's totals, from which the statistics of the last day are computed."""
        self._day = _sampled(self._day, now_ms, self.value, self.times, DAY_SAMPLE_MS, _DAY_KEPT)

    @property
    def is_idle_for_a_day(self) -> bool:
        """Return whether nothing was counted since the oldest of the day's snapshots, which covers a whole day."""
        return len(self._day) == _LENGTH and self._day[1:] == (self.value, self.times)

    @property
    def minute(self) -> StatsSnapshot:
        """Return sum, rate and times within the last minute."""
        return _view(self._minute)

    @property
    def hour(self) -> StatsSnapshot:
        """Return sum, rate and times within the last hour."""
        return _view(self._hour)

    @property
    def day(self) -> StatsSnapshot:
        """Return sum, rate and times within the last day."""
        return _view(self._day)
