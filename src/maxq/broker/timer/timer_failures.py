"""TimerFailures: timer messages that could not be delivered, and when each is tried again.

10 s later at first, twice as long each time, 10 minutes at most. None is dropped here: what is forgotten for want of
room is only how often it was tried.
"""

from typing import Final

from maxq.lazy_dataclass import dataclass

_AGAIN_MS: Final = 10_000
_AGAIN_MOST_MS: Final = 600_000
_REMEMBERED: Final = 1_000


@dataclass(frozen=True, slots=True)
class TimerFailure:
    """Why a message is late: the number of attempts, and the last outcome."""

    times: int
    reason: str

    @property
    def wait_ms(self) -> int:
        """Return how long, in ms, to wait before the next try."""
        return min(_AGAIN_MS << min(self.times - 1, 20), _AGAIN_MOST_MS)


class TimerFailures:
    """Messages that could not be delivered yet, by the physical offset of their record; see the module's text."""

    def __init__(self) -> None:
        self._failures: dict[int, TimerFailure] = {}

    def get(self, physical_offset: int) -> TimerFailure | None:
        """Return the failure of a message; None if it has not failed."""
        return self._failures.get(physical_offset)

    def next(self, physical_offset: int, reason: str) -> TimerFailure:
        """Return the failure after one more failed attempt; `put` keeps it."""
        before = self._failures.get(physical_offset)
        return TimerFailure(1 if before is None else before.times + 1, reason)

    def put(self, physical_offset: int, failure: TimerFailure) -> None:
        """Remember a failed delivery, which will be tried again."""
        self._failures.pop(physical_offset, None)
        while len(self._failures) >= _REMEMBERED:
            del self._failures[next(iter(self._failures))]
        self._failures[physical_offset] = failure

    def forget(self, physical_offset: int) -> None:
        """Forget a message that was delivered or recalled."""
        self._failures.pop(physical_offset, None)

    def all(self) -> list[TimerFailure]:
        """Return all failures, the latest last."""
        return list(self._failures.values())
