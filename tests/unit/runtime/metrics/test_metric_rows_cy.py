"""Lines of a histogram, in both forms."""

from types import ModuleType

import pytest

from tests.unit.both_forms import both

FORMS = both("maxq.runtime.metrics.metric_rows_cy")
LABELS = 'topic="T",unit="µs"'


@pytest.fixture(params=FORMS, ids=["uncompiled", "installed"])
def form(request: pytest.FixtureRequest) -> ModuleType:
    return request.param


def test_buckets_count_all_below_their_bound(form: ModuleType) -> None:
    rows = form.HistogramRows("h", (1, 2.5))
    assert rows.text(LABELS, [3, 0, 40], 99) == (
        'h_bucket{topic="T",unit="µs",le="1.0"} 3.0\n'
        'h_bucket{topic="T",unit="µs",le="2.5"} 3.0\n'
        'h_bucket{topic="T",unit="µs",le="+Inf"} 43.0\n'
        'h_count{topic="T",unit="µs"} 43.0\n'
        'h_sum{topic="T",unit="µs"} 99.0\n'
    )


def test_numbers_and_labels_may_be_long(form: ModuleType) -> None:
    labels, largest = 'topic="' + "x" * 5000 + '"', 2**63 - 1
    rows = form.HistogramRows("h", range(20))
    lines = rows.text(labels, [largest] + [0] * 20, 1.5e300).splitlines()
    assert lines[0] == f'h_bucket{{{labels},le="0.0"}} {largest}.0' and len(lines) == 23
    assert lines[-1] == f"h_sum{{{labels}}} 1.5e+300"
    assert rows.text("", [0] * 21, 0).startswith('h_bucket{,le="0.0"} 0.0\n')


def test_counts_must_fit_the_bounds(form: ModuleType) -> None:
    with pytest.raises(AssertionError, match="a count for each bound"):
        form.HistogramRows("h", (1,)).text("", [1], 0)


def test_which_form_is_tested() -> None:
    assert not FORMS[0].is_compiled()
