"""Rows of one task held back until they are due: so many a second, or from the times that the column sendAt says."""

from collections.abc import Callable, Iterator
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from maxq.errors import PipelineError
from maxq.pipeline.sink.sink_columns import send_times
from maxq.runtime.interfaces import Clock

_LONGEST_SLEEP: Final = 1.0
_SHORTEST_SLEEP: Final = 0.01  # what comes due in it leaves together
_LONGEST_WAIT_MS: Final = 31 * 86_400_000  # a task that waits longer was given a wrong time, or the wrong unit
_CATCH_UP_MS: Final = 1000  # of a rate: what was missed longer ago stays missed


class SinkPace:
    """Cuts batches where one row is due and the next is not yet. Rows stay in their order: one that is due waits for
    those before it. What is late leaves at once, but of a rate no more than a second's rows.

    Args:
        rate: rows a second, from the first row on; None: any.
        sleep: for so many seconds.
    """

    def __init__(self, names: dict[str, str], rate: float | None, clock: Clock, sleep: Callable[[float], None]) -> None:
        self._names = names
        self._rate = rate
        self._clock = clock
        self._sleep = sleep
        self._next_ms = 0.0  # when the rate allows the next row
        self.is_any = rate is None and "sendAt" not in names

    def due(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """The rows, in pieces, each when all of it is due."""
        if self.is_any:
            yield batch
            return
        times = self._times(batch)
        at = 0
        while at < len(times):
            while (left_ms := max(times[at], self._next_ms) - self._clock.wall_ms()) > 0:
                self._sleep(min(max(left_ms / 1000, _SHORTEST_SLEEP), _LONGEST_SLEEP))
            now_ms = self._clock.wall_ms()
            count = int(np.searchsorted(times[at:], now_ms, "right"))
            if self._rate is not None:
                count = min(count, self._allowed(now_ms, self._rate, len(times) - at))
            yield batch.slice(at, count)
            at += count

    def _allowed(self, now_ms: int, rate: float, wanted: int) -> int:
        """How many rows the rate lets go now, of so many; they count as gone."""
        first_ms = max(self._next_ms, now_ms - _CATCH_UP_MS) if self._next_ms else now_ms
        count = min(wanted, int((now_ms - first_ms) * rate / 1000) + 1)
        self._next_ms = first_ms + count * 1000 / rate
        return count

    def _times(self, batch: pa.RecordBatch) -> npt.NDArray[np.float64]:
        """When each row leaves, ms since 1970; they ascend.

        Raises:
            PipelineError: a row leaves so late that nobody waits for it.
        """
        times = np.zeros(len(batch), np.float64)
        if "sendAt" in self._names and len(batch):
            times += send_times(batch, self._names)
            latest_ms, limit_ms = times.max(), self._clock.wall_ms() + _LONGEST_WAIT_MS
            if latest_ms > limit_ms:
                raise PipelineError(
                    f"column sendAt is {latest_ms:.0f} ms in a row; at most 31 days from now are waited for (until "
                    f"{limit_ms} ms since 1970): is it in seconds or microseconds? A broker keeps messages for later "
                    "with the column deliverTimestamp"
                )
        ascending: npt.NDArray[np.float64] = np.maximum.accumulate(times)
        return ascending
