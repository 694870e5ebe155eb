"""The real clock and chance, which are the same on every system. Only `main` functions import this module."""

import random
import time


class SystemClock:
    """The clocks of the machine: wall-clock time and monotonic time."""

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def monotonic_ns(self) -> int:
        return time.monotonic_ns()


class SystemRng:
    """Chance from the operating system's generator, reseeded per process."""

    def __init__(self) -> None:
        self._random = random.Random()

    def below(self, bound: int) -> int:
        return self._random.randrange(bound)

    def bytes(self, count: int) -> bytes:
        return self._random.randbytes(count)
