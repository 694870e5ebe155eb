"""Bytes a second: what a link carried, and what it may carry still (FlowMonitor.java).

The allowance is refilled as time passes, to at most a tenth of a second's worth: a link at its limit sends evenly
instead of a second's bytes at once and then nothing.
"""


class FlowMonitor:
    """Counts one direction of one connection. Times are monotonic, ms."""

    __slots__ = ("_allowance", "_counted", "_refilled_ms", "_second_began_ms", "_speed", "total")

    def __init__(self, now_ms: int) -> None:
        self.total = 0
        self._speed = 0  # bytes of the last complete second
        self._counted = 0  # bytes of the current second
        self._second_began_ms = now_ms
        self._allowance = 0
        self._refilled_ms = now_ms

    def count(self, size: int, now_ms: int) -> None:
        """Count `size` bytes that went over the link."""
        self._turn(now_ms)
        self._counted += size
        self.total += size
        self._allowance -= size

    def bytes_per_second(self, now_ms: int) -> int:
        """Return the bytes of the last whole second."""
        self._turn(now_ms)
        return self._speed

    def allowance(self, limit: int, now_ms: int) -> int:
        """Return how many bytes may be sent now if `limit` are allowed a second; negative while an earlier large frame
        is being compensated."""
        elapsed = now_ms - self._refilled_ms
        if elapsed > 0:
            self._refilled_ms = now_ms
            self._allowance = min(max(self._allowance, -limit) + limit * elapsed // 1000, max(limit // 10, 1))
        return self._allowance

    def _turn(self, now_ms: int) -> None:
        elapsed = now_ms - self._second_began_ms
        if elapsed >= 1000:
            self._speed = self._counted * 1000 // elapsed
            self._counted = 0
            self._second_began_ms = now_ms
