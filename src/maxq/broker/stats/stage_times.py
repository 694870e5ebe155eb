"""Where the time of sends goes: one arrival of fast-path sends in 128 is followed through its stages.

    queue      other arrivals of the same turn of the loop were worked off first (whole milliseconds)
    receive    frames were read
    append     records were written into the mapped log, and dispatched to queues and index
    flush      the disk had not said yet that they are safe (SYNC_FLUSH); beside it, at the same time,
    replicate  the slaves had not said yet that they have them
    answer     answers were written

The last thousand or so are kept; `maxq admin why-slow` shows them. An arrival that is not followed pays for one
subtraction.
"""

from collections import deque
from enum import IntEnum
from typing import Any, Final

from maxq.runtime.interfaces import Clock

#: One arrival in this many is timed.
ONE_IN: Final = 128
_KEPT: Final = 1024


class Stage(IntEnum):
    """Stages of a send, in the order in which they happen."""

    QUEUE = 0
    RECEIVE = 1
    APPEND = 2
    FLUSH = 3
    REPLICATE = 4
    ANSWER = 5


class StageSample:
    """The times of one arrival, in nanoseconds by stage."""

    __slots__ = ("_clock", "_kept", "_last_ns", "messages", "stages", "total_ns", "wall_ms")

    def __init__(self, clock: Clock, kept: "deque[StageSample]", queue_ns: int) -> None:
        self._clock = clock
        self._kept = kept
        self.wall_ms = clock.wall_ms()
        self.messages = 0
        self.stages = [0] * len(Stage)
        self.stages[Stage.QUEUE] = queue_ns
        self.total_ns = queue_ns
        self._last_ns = clock.monotonic_ns()

    def ended(self, stage: Stage) -> None:
        """Note that a stage has ended and the next one begins."""
        now_ns = self._clock.monotonic_ns()
        self.stages[stage] += now_ns - self._last_ns
        self.total_ns += now_ns - self._last_ns
        self._last_ns = now_ns

    def heard(self, stage: Stage) -> None:
        """Note that the disk or the replicas have confirmed; the waits for both overlap."""
        self.stages[stage] = self._clock.monotonic_ns() - self._last_ns

    def waited(self) -> None:
        """Note that disk and replicas have both confirmed; the wait since the append counts once."""
        now_ns = self._clock.monotonic_ns()
        self.total_ns += now_ns - self._last_ns
        self._last_ns = now_ns

    def finish(self, messages: int) -> None:
        """Add the sample to the statistics after its requests were answered."""
        self.messages = messages
        self._kept.append(self)


class StageTimes:
    """Samples how long the stages of sends take in one broker."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.kept: deque[StageSample] = deque(maxlen=_KEPT)

    def begin(self, queue_ms: int) -> StageSample:
        """Start timing an arrival that is processed now, after it waited `queue_ms` in this turn of the loop."""
        return StageSample(self._clock, self.kept, queue_ms * 1_000_000)

    def to_json(self) -> dict[str, Any]:
        """Return the answer of MAXQ_WHY_SLOW: microseconds by stage, and the slowest arrivals."""
        samples = list(self.kept)
        totals = sorted(sample.total_ns for sample in samples)
        slowest = sorted(samples, key=lambda sample: sample.total_ns, reverse=True)[:10]
        all_ns = sum(totals)
        return {
            "samples": len(samples),
            "oneIn": ONE_IN,
            "messages": sum(sample.messages for sample in samples),
            "fromMs": min((sample.wall_ms for sample in samples), default=0),
            "toMs": max((sample.wall_ms for sample in samples), default=0),
            "stages": [
                _figures(stage.name.lower(), sorted(sample.stages[stage] for sample in samples), all_ns)
                for stage in Stage
            ],
            "total": _figures("total", totals, all_ns),
            "slowest": [
                {
                    "wallMs": sample.wall_ms,
                    "messages": sample.messages,
                    "totalUs": sample.total_ns / 1000,
                    **{f"{stage.name.lower()}Us": sample.stages[stage] / 1000 for stage in Stage},
                }
                for sample in slowest
            ],
        }


def _figures(name: str, ordered: list[int], all_ns: int) -> dict[str, Any]:
    if not ordered:
        return {"stage": name, "share": 0.0, "p50Us": 0.0, "p99Us": 0.0, "maxUs": 0.0}
    return {
        "stage": name,
        "share": sum(ordered) / all_ns if all_ns else 0.0,
        "p50Us": ordered[len(ordered) // 2] / 1000,
        "p99Us": ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)] / 1000,
        "maxUs": ordered[-1] / 1000,
    }
