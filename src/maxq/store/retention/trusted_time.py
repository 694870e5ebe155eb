"""TrustedTime: the time by which things expire and are deleted.

A clock can be years ahead for a moment, and what is deleted then is gone. So a wall clock that has jumped more than a
day ahead of the monotonic clock is not trusted at once: for fileReservedTime, time continues as if the clock had not
jumped, and a line in the log says so. An operator has that long to set the clock right; messages that were kept for
less are not deleted. A start compares with the newest file: a store that was down for longer than fileReservedTime
keeps what it has for that long, too.

A clock that goes back is believed at once, for nothing expires by that. A full disk deletes whatever the time.
"""

import logging
from collections.abc import Callable
from typing import Final

from maxq.runtime.interfaces import Clock

log = logging.getLogger(__name__)

_JUMP_MS: Final = 24 * 3_600_000


class TrustedTime:
    """The clock by which retention of one store judges age."""

    def __init__(self, clock: Clock, patience_ms: Callable[[], int]) -> None:
        """`patience_ms()` returns for how long a forward jump of the wall clock is ignored."""
        self._clock = clock
        self._patience_ms = patience_ms
        self._wall_ms = clock.wall_ms()  # the trusted wall time in ms …
        self._at_ms = clock.monotonic_ms()
        self._doubted_at_ms: int | None = None  # monotonic: since when the clock is ahead

    def begin(self, newest_ms: int) -> None:
        """Start the clock: the store's newest file was written at `newest_ms`."""
        if self._clock.wall_ms() - newest_ms > max(_JUMP_MS, self._patience_ms()):
            self._wall_ms, self._at_ms = newest_ms, self._clock.monotonic_ms()

    def now_ms(self) -> int:
        """Return the time by which expiry is judged, in milliseconds since 1970."""
        wall_ms, at_ms = self._clock.wall_ms(), self._clock.monotonic_ms()
        steady_ms = self._wall_ms + at_ms - self._at_ms
        if wall_ms - steady_ms > _JUMP_MS:
            if self._doubted_at_ms is None:
                self._doubted_at_ms = at_ms
                log.warning(
                    "the clock is %d hours ahead of the expected time: for the next %d hours (fileReservedTime) no "
                    "file is deleted because of this clock; if the clock is wrong, correct it",
                    (wall_ms - steady_ms) // 3_600_000, self._patience_ms() // 3_600_000,
                )  # fmt: skip
            if at_ms - self._doubted_at_ms < self._patience_ms():
                return steady_ms
        self._wall_ms, self._at_ms, self._doubted_at_ms = wall_ms, at_ms, None
        return wall_ms
