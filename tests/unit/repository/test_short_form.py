"""What the short form of the tests leaves out is in the long one, and nothing else is."""

from collections.abc import Iterator

import pytest

from tests import short_form
from tests.short_form import long_form, seeds, times


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    """Let the form be that of this run again."""
    form = short_form._is_short
    yield
    short_form._is_short = form


@pytest.mark.parametrize(
    ("markers", "counts"),
    [
        ("not interop and not slow", (75, 5, 1)),
        ("not interop", (300, 40, 2)),
        ("", (300, 40, 2)),
    ],
)
def test_how_often_depends_on_the_markers_of_a_run(markers: str, counts: tuple[int, ...]) -> None:
    short_form.choose(markers)
    assert (times(300), times(40, short=5), times(2)) == counts


def test_values_of_the_long_form_alone_are_marked_and_those_of_every_run_are_not() -> None:
    cases = [*seeds([7, 2], range(4)), *long_form([("a", 1), ("b", 2)], [("a", 1)]), *long_form([{}])]
    told = [(case.values, bool(case.marks)) if hasattr(case, "values") else ((case,), False) for case in cases[:-2]]
    assert told == [((2,), False), ((7,), False), ((0,), True), ((1,), True), ((3,), True)]
    assert [case.values for case in cases[-2:]] == [("b", 2), ({},)]
    assert {mark.name for case in cases[-2:] for mark in case.marks} == {"slow"}
