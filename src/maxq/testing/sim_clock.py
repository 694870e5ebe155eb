"""A clock that only the simulation moves."""

#: 2023-11-14T22:13:20Z, a round number that is easy to recognise in a dump.
DEFAULT_EPOCH_MS = 1_700_000_000_000


class SimClock:
    """Virtual time behind the interface `Clock`, shared by a `SimLoop` (which advances it) and the code under test.

    Monotonic time starts at 1 000 s, so that code which mistakes it for wall time or for zero is found.

    Attributes:
        now_ns: monotonic; `advance_ns` moves it.
    """

    def __init__(self, *, epoch_ms: int = DEFAULT_EPOCH_MS) -> None:
        self._start_ns = 1_000 * 1_000_000_000
        self.now_ns = self._start_ns
        self._wall_offset_ms = epoch_ms

    def wall_ms(self) -> int:
        """Milliseconds since 1970, jumps included."""
        return self._wall_offset_ms + (self.now_ns - self._start_ns) // 1_000_000

    def monotonic_ms(self) -> int:
        """Milliseconds; never goes back."""
        return self.now_ns // 1_000_000

    def monotonic_ns(self) -> int:
        """Nanoseconds; never goes back."""
        return self.now_ns

    def advance_ns(self, duration_ns: int) -> None:
        """Advance virtual time. The loop does this; tests without a loop may call it."""
        if duration_ns < 0:
            raise ValueError(f"time does not go back: {duration_ns} ns")
        self.now_ns += duration_ns

    def advance_ms(self, duration_ms: int) -> None:
        """Advance virtual time by `duration_ms`."""
        self.advance_ns(duration_ms * 1_000_000)

    def jump_wall_ms(self, delta_ms: int) -> None:
        """Move wall time only, either way: an NTP step, or an operator with `date -s`."""
        self._wall_offset_ms += delta_ms
