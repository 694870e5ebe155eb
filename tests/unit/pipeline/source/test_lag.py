"""How far a stream is behind, out of Spark's progress."""

import json

from maxq.pipeline.source.lag import offsets_behind


def progress(**source: object) -> dict[str, object]:
    return {"sources": [source]}


def test_offsets_behind_by_source_and_topic() -> None:
    ends = {"A": {"b": {"0": 10, "1": 4}}, "B": {"b": {"0": 7}}}
    latest = {"A": {"b": {"0": 12, "1": 10}}, "B": {"b": {"0": 7}}}
    expected = {
        "minOffsetsBehindLatest": 0, "maxOffsetsBehindLatest": 6, "avgOffsetsBehindLatest": 8 / 3,
        "topics": {
            "A": {"minOffsetsBehindLatest": 2, "maxOffsetsBehindLatest": 6, "avgOffsetsBehindLatest": 4.0},
            "B": {"minOffsetsBehindLatest": 0, "maxOffsetsBehindLatest": 0, "avgOffsetsBehindLatest": 0.0},
        },
    }  # fmt: skip
    for end, newest in ((ends, latest), (json.dumps(ends), json.dumps(latest))):
        assert offsets_behind(progress(endOffset=end, latestOffset=newest)) == [expected]


def test_sources_of_other_formats_and_without_offsets_are_left_out() -> None:
    assert offsets_behind(progress(endOffset="7", latestOffset="9")) == []
    assert offsets_behind(progress(endOffset=None, latestOffset=None)) == []
