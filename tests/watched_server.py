"""`python -m maxq`, its loop watched: a line in the file MAXQ_HOLDS for each hold that was too long (watched_loop.py).

MAXQ_HOLDS=FILE python -m tests.watched_server broker …

MAXQ_HOLDS_MS is what may hold the loop, for a test of this. Processes that are forked (tests/forked_preload.py) are
watched in the same way.
"""

import os
import sys

from maxq.runtime import holds
from maxq.runtime.interfaces import Clock
from tests.watched_loop import MOST_MS, watch


class WatchedHolds(holds.Holds):
    """Of a server of this process."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        watch(self, float(os.environ.get("MAXQ_HOLDS_MS", MOST_MS)))

    def _count(self, cause: int | str, took_ns: int) -> None:
        super()._count(cause, took_ns)
        with open(os.environ["MAXQ_HOLDS"], "a") as file:
            file.write(f"{cause} {took_ns // 1_000_000} ms\n")


if __name__ == "__main__":
    holds.Holds = WatchedHolds  # type: ignore[misc]  # before a server imports it
    from maxq.__main__ import main

    sys.exit(main())
