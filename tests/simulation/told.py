"""Stories that several tests ask for, told once by a process, so that no test depends on what ran before it."""

from collections import Counter
from collections.abc import Iterable
from functools import cache

from tests.simulation.campaign import Outcome, regressions, tell

told = cache(tell)


def seeds(count: int, kind: str = "store") -> list[int]:
    """The first `count` seeds, and those that failed once."""
    return sorted({*range(count), *regressions(kind)})


def check(seed: int, kind: str = "store") -> None:
    """Fail with the story if it broke a rule."""
    outcome: Outcome = told(seed, kind)
    assert not outcome.failure, outcome.failure


def marks(seeds: Iterable[int], kind: str = "store") -> Counter[str]:
    """What happened in these stories, and in how many of them or how often."""
    seen: Counter[str] = Counter()
    for seed in seeds:
        seen.update(told(seed, kind).marks)
    return seen
