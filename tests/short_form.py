"""The short and the long form of the tests: `make test` runs the one, `make test-long` the other.

What differs only in how much of the same it tries (more seeds of a story, more rows of a matrix, a second run of a
campaign) has the marker `slow`, which the short form leaves out:

    @pytest.mark.parametrize("seed", [*SHORT, *long_form(range(40))])

What a test repeats within itself, and the examples of Hypothesis, it asks for by `times`:

    @settings(max_examples=times(300), deadline=None)
    for seed in range(times(40, short=5)):

A run is in the short form if it is asked for tests that are "not slow"; one that names a file alone is in the long one.
"""

from collections.abc import Collection, Iterable
from typing import Any

import pytest

_is_short = False


def choose(markers: str) -> None:
    """Set the form of this run by its expression of markers (pytest's -m), before any test is collected."""
    global _is_short
    _is_short = "not slow" in markers


def times(count: int, short: int = 0) -> int:
    """Return how often to do something: `count` times, or in the short form `short`, which is a quarter if it is 0."""
    return count if not _is_short else short or max(count // 4, 1)


def long_form(values: Iterable[Any], but: Collection[Any] = ()) -> list[Any]:
    """Return what only the long form runs, as parameters of a test: `values` without `but`, in their order.

    A value that is a tuple stands for several parameters.
    """
    wanted = [value for value in values if value not in but]
    return [
        pytest.param(*value, marks=pytest.mark.slow)
        if isinstance(value, tuple)
        else pytest.param(value, marks=pytest.mark.slow)
        for value in wanted
    ]


def seeds(short: Iterable[int], long: Iterable[int]) -> list[Any]:
    """Return the seeds of a story as parameters: `short` for every run, and the rest of `long` for the long form."""
    always = sorted(set(short))
    return [*always, *long_form(sorted(set(long)), always)]
