"""Stories that several tests ask for, told once by a process, so that no test depends on what ran before it."""

from collections import Counter
from collections.abc import Iterable
from functools import cache
from typing import Any

from tests import short_form
from tests.simulation.campaign import Outcome, regressions, tell

told = cache(tell)


def seeds(count: int, kind: str = "store") -> list[int]:
    """The first `count` seeds, and those that failed once."""
    return sorted({*range(count), *regressions(kind)})


def always(kind: str, short: Iterable[int], newest: int | None = None) -> list[int]:
    """The seeds of every run: `short`, and those that failed once, or as many of the `newest` of them."""
    failed = regressions(kind)
    return sorted({*short, *(failed if newest is None else failed[len(failed) - newest :])})


def cases(kind: str, short: Iterable[int], long: Iterable[int] = (), newest: int | None = None) -> list[Any]:
    """The seeds of stories as parameters of a test: those of every run, and for the long form `long` and all that
    failed once."""
    return short_form.seeds(always(kind, short, newest), [*long, *regressions(kind)])


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
