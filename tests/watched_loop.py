"""The watchdog of a server under test: what holds its loop is measured by processor time, and fairly.

The time that passes says nothing on a machine that others use, and processor time little: caches, memory and the other
half of a core are shared, and the same work takes up to four times as long. So what held the loop for long is set
against a piece of known work done at once afterwards, and what Python's cycle collector took is left out, for the heap
of a test run is that of hundreds of modules (servers set theirs aside, cli/gc_freeze.py).
"""

import gc
import time
from collections import deque
from typing import Any, Final

from maxq.runtime.holds import LIMIT_MS, Holds

#: Nanoseconds that `_work` takes on a quiet machine (2 virtual processors of a server of 2023, CPython 3.11).
_QUIET_NS: Final = 40_000
_now: Final = time.thread_time_ns
_collections: Final[deque[tuple[int, int]]] = deque(maxlen=50)  # when they ended, and how long they took
_began: Final = [0]


#: What may hold a loop: three times what is counted in service, for the measure of the machine's speed misses that much
#: where others use it. What the tests look for holds a loop five to ten times as long as is counted.
MOST_MS: Final = 3.0 * LIMIT_MS


def watch(holds: Holds, most_ms: float = MOST_MS) -> None:
    """From now on `holds` counts what took more than `most_ms` of fair processor time of the thread that runs it."""
    if _collected not in gc.callbacks:
        gc.callbacks.append(_collected)
    holds.now, holds.limit_ns = _now, int(min(most_ms, LIMIT_MS) * 1_000_000)
    count = type(holds)._count.__get__(holds)

    def count_fairly(cause: int | str, took_ns: int) -> None:
        if holds.now is _now:  # no test has given it a clock of its own
            took_ns = fair_ns(took_ns)
            if took_ns <= most_ms * 1_000_000:
                return
        count(cause, took_ns)

    holds._count = count_fairly  # type: ignore[method-assign]


def fair_ns(took_ns: int) -> int:
    """What work that has just ended after `took_ns` of processor time would have taken on a quiet machine."""
    began = _now() - took_ns
    collecting = sum(took for ended, took in _collections if ended > began)
    return int(max(took_ns - collecting, 0) / max(_work() / _QUIET_NS, 1.0))


def _work() -> int:
    """A piece of work: dictionaries, texts and sums. Returns the nanoseconds it took, the median of three."""
    times = []
    for _ in range(3):
        began = _now()
        table = {}
        for number in range(200):
            table[f"k{number}"] = number * number
        sum(table.values())
        times.append(_now() - began)
    return sorted(times)[1]


def _collected(phase: str, info: dict[str, Any]) -> None:
    if phase == "start":
        _began[0] = _now()
    else:
        _collections.append((_now(), _now() - _began[0]))
