"""Time in steps of a round length, for tables and plots over time."""

from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F

_STEPS_MS: Final = tuple(
    scale * count
    for scale, counts in (
        (1, (1, 2, 5, 10, 20, 50, 100, 200, 500)),
        (1000, (1, 2, 5, 10, 15, 30)),
        (60_000, (1, 2, 5, 10, 15, 30)),
        (3_600_000, (1, 2, 4, 6, 12)),
        (86_400_000, (1, 2, 7, 14, 28)),
    )
    for count in counts
)
POINTS_MAX: Final = 120


def time_step_ms(first_ms: int, last_ms: int, points: int = POINTS_MAX) -> int:
    """Return the smallest round step with which this range has at most `points` steps, or the largest step there is."""
    span = max(last_ms - first_ms, 0)
    return next((step for step in _STEPS_MS if span // step + 2 <= points), _STEPS_MS[-1])


def step_start_ms(at: Column, step_ms: int) -> Column:
    """Return the beginning of the step in which a timestamp lies, in milliseconds since 1970."""
    return (F.floor(F.unix_millis(at) / F.lit(step_ms)) * F.lit(step_ms)).cast("bigint")
