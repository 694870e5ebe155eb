"""Rates of a consumer by topic: pulled, consumed, failed. Pure; whoever owns it calls `sample` every 10 s.

Source: apache/rocketmq client/stat/ConsumerStatsManager.java.
"""

from collections import deque

from maxq.protocol.body.consumer_info import ConsumeStatus

SAMPLE_INTERVAL_MS = 10_000
_MINUTE_SAMPLES = 7  # six intervals
_HOUR_SAMPLES = 361


class _TopicCounters:
    """Sums of one topic since the start. Times are in ms."""

    __slots__ = ("consume_rt", "failed", "ok", "pull_rt", "pulled", "pulls", "samples")

    def __init__(self) -> None:
        self.pulled = 0  # messages
        self.pulls = 0
        self.pull_rt = 0
        self.ok = 0
        self.failed = 0
        self.consume_rt = 0
        self.samples: deque[tuple[int, tuple[int, ...]]] = deque(maxlen=_HOUR_SAMPLES)

    def values(self) -> tuple[int, ...]:
        return self.pulled, self.pulls, self.pull_rt, self.ok, self.failed, self.consume_rt


class ConsumerStats:
    """Counts what one consumer pulls and consumes, by topic."""

    def __init__(self) -> None:
        self._topics: dict[str, _TopicCounters] = {}

    def on_pull(self, topic: str, messages: int, rt_ms: int) -> None:
        """Count a pull that brought `messages` messages after `rt_ms`."""
        counters = self._counters(topic)
        counters.pulled += messages
        counters.pulls += 1
        counters.pull_rt += rt_ms

    def on_consume(self, topic: str, ok: int, failed: int, rt_ms: int) -> None:
        """Count a listener call that ended after `rt_ms`, by messages that succeeded and failed."""
        counters = self._counters(topic)
        counters.ok += ok
        counters.failed += failed
        counters.consume_rt += rt_ms * (ok + failed)

    def _counters(self, topic: str) -> _TopicCounters:
        counters = self._topics.get(topic)
        if counters is None:
            counters = self._topics[topic] = _TopicCounters()
        return counters

    def sample(self, now_ms: int) -> None:
        """Remember the counters as of `now_ms`, monotonic."""
        for counters in self._topics.values():
            counters.samples.append((now_ms, counters.values()))

    def consume_status(self, topic: str, now_ms: int) -> ConsumeStatus:
        """Return the rates of a topic over the last minute, and its failures of the last hour."""
        counters = self._topics.get(topic)
        if counters is None:
            return ConsumeStatus()
        now = counters.values()
        samples = counters.samples
        zero = (now_ms, (0,) * len(now))
        start_ms, then = samples[-min(len(samples), _MINUTE_SAMPLES)] if samples else zero
        pulled, pulls, pull_rt, ok, failed, consume_rt = (a - b for a, b in zip(now, then, strict=True))
        seconds = max(now_ms - start_ms, 1) / 1000
        hour_failed = now[4] - (samples[0][1][4] if len(samples) == _HOUR_SAMPLES else 0)
        return ConsumeStatus(
            pull_rt=pull_rt / pulls if pulls else 0.0,
            pull_tps=pulled / seconds,
            consume_rt=consume_rt / (ok + failed) if ok + failed else 0.0,
            consume_ok_tps=ok / seconds,
            consume_failed_tps=failed / seconds,
            consume_failed_msgs=hour_failed,
        )
