"""A token bucket that may be overdrawn: what is measured afterwards (a batch, an answer) is charged in full, and the
debt is waited off. So the average rate is exact, and a burst is at most a second's worth and one batch."""

from typing import Final

_BURST_MS: Final = 1000


class Bucket:
    """A token bucket that allows `rate` per second."""

    __slots__ = ("_at_ms", "_level", "rate")

    def __init__(self, rate: int, now_ms: int) -> None:
        self.rate = rate
        self._level = float(rate)
        self._at_ms = now_ms

    def take(self, amount: int, now_ms: int) -> None:
        """Charge `amount`."""
        self._refill(now_ms)
        self._level -= amount

    def wait_ms(self, now_ms: int) -> int:
        """Returns the milliseconds until more tokens may be taken; 0 if they may be taken at once."""
        self._refill(now_ms)
        if self._level > 0:
            return 0
        return int(-self._level * 1000 / self.rate) + 1

    def used(self, now_ms: int) -> int:
        """Returns the share of one second's rate that is used."""
        self._refill(now_ms)
        return round(self.rate - self._level)

    def _refill(self, now_ms: int) -> None:
        passed_ms = now_ms - self._at_ms
        if passed_ms > 0:
            self._level = min(self.rate * _BURST_MS / 1000, self._level + self.rate * passed_ms / 1000)
            self._at_ms = now_ms
