"""The manifest of an archive and what it covers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maxq.errors import PipelineError
from maxq.pipeline.archive.coverage import (
    ABSENT,
    BEHIND,
    GAP,
    check_same_topics,
    coverage_findings,
    lost_findings,
    missing,
    passes,
    read_options,
)
from maxq.pipeline.archive.manifest import FileEntry, Manifest, QueuePart, content_of
from maxq.pipeline.archive.ranges import Range, union
from maxq.protocol.message.message_queue import MessageQueue

Q0, Q1 = MessageQueue("Orders", "broker-a", 0), MessageQueue("Orders", "broker-a", 1)
RANGES = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 12)).map(lambda pair: (pair[0], sum(pair))), max_size=6)


def entry(path: str, *parts: tuple[int, int, int], rows: int | None = None) -> FileEntry:
    """A file with parts (queue, first, last)."""
    found = tuple(
        QueuePart("broker-a", queue, ((first, last),), rows or last - first + 1, 7 * (last - first + 1))
        for queue, first, last in parts
    )
    return FileEntry(path, "Orders", "2026-11-21", sum(part.rows for part in found), 100, 1, 5, 9, "run", found)


def test_a_manifest_is_read_as_it_was_written() -> None:
    written = Manifest(columns=("topic", "body")).changed([entry("b", (0, 0, 9)), entry("a", (1, 3, 5), (0, 10, 12))])
    read = Manifest.decode(written.encode(), written.number)
    assert read == written
    assert [one.path for one in read.files] == ["a", "b"]
    assert read.coverage() == {Q0: [(0, 12)], Q1: [(3, 5)]}


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (b"", "is empty"),
        (b"{}\n", "line 1"),
        (b'{"maxqArchive": 9}\n', "version 9"),
        (b'{"maxqArchive": 1, "format": "parquet", "columns": []}\n{"path": "a"}\n', "line 2"),
    ],
)
def test_what_is_no_manifest_is_refused(text: bytes, complaint: str) -> None:
    with pytest.raises(PipelineError, match=complaint):
        Manifest.decode(text, 1)


def test_a_file_is_added_once_and_removed_once() -> None:
    manifest = Manifest().changed([entry("a", (0, 0, 9))])
    with pytest.raises(PipelineError, match="already"):
        manifest.changed([entry("a", (0, 10, 19))])
    assert not manifest.changed([], ["a"]).files
    with pytest.raises(PipelineError, match="no longer"):
        manifest.changed([], ["b"])


def test_offsets_in_two_files_or_twice_in_one_are_named() -> None:
    manifest = Manifest().changed(
        [entry("a", (0, 0, 9)), entry("b", (0, 8, 20)), entry("c", (1, 0, 4), rows=6), entry("d", (1, 5, 9))]
    )
    assert [(one.queue, one.first, one.last, one.files) for one in manifest.doubled()] == [
        (Q1, 0, 4, ("c", "c")),
        (Q0, 8, 9, ("a", "b")),
    ]


def test_gaps_ends_and_offsets_without_a_message_are_told_apart() -> None:
    found = coverage_findings({Q0: (0, 100)}, {Q0: [(10, 19), (40, 89)]}, {Q0: [(0, 9), (30, 31)]})
    assert [(one.kind, one.first, one.last) for one in found] == [
        (GAP, 0, 9), (GAP, 30, 31), (ABSENT, 20, 29), (ABSENT, 32, 39), (BEHIND, 90, 99)
    ]  # fmt: skip
    assert [one.is_fault for one in found] == [True, True, False, False, False]


def test_what_brokers_have_no_more_is_missed_all_the_same() -> None:
    coverage = {Q0: [(10, 19), (40, 89)], Q1: [(3, 4)]}
    for bounds, gaps in (
        ({}, [(20, 39)]),
        ({Q0: (30, 100)}, [(20, 29)]),
        ({Q0: (95, 100)}, [(20, 39), (90, 94)]),
        ({Q0: (5, 100), Q1: (3, 5)}, []),
    ):
        assert [(one.first, one.last) for one in lost_findings(bounds, coverage)] == gaps


def test_a_queue_that_ends_before_what_is_archived_is_another_queue() -> None:
    check_same_topics({Q0: (0, 10)}, {Q0: [(0, 9)]})
    with pytest.raises(PipelineError, match="Orders/broker-a/0 ends at offset 9, but offset 9 is archived"):
        check_same_topics({Q0: (0, 9)}, {Q0: [(0, 9)]})


@given(st.integers(0, 40), st.integers(0, 40), RANGES)
def test_what_was_archived_and_what_is_missing_is_what_the_broker_has(low: int, size: int, some: list[Range]) -> None:
    bounds, coverage = {Q0: (low, low + size)}, {Q0: union(some)}
    left = missing(bounds, coverage)
    archived = {offset for first, last in some for offset in range(first, last + 1)}
    expected = set(range(low, low + size)) - archived
    assert {offset for first, last in left.get(Q0, []) for offset in range(first, last + 1)} == expected
    reads = passes(left)
    assert len(reads) == len(left.get(Q0, []))
    assert sorted(offset for one in reads for part in one for offset in range(part.first, part.last)) == sorted(
        expected
    )


def test_a_pass_reads_at_most_one_range_of_each_queue() -> None:
    first, second = passes({Q0: [(0, 4), (8, 9)], Q1: [(3, 3)]})
    assert read_options(first) == {
        "assign": {"Orders": {"broker-a": [0, 1]}},
        "startingOffsets": {"Orders": {"broker-a": {"0": 0, "1": 3}}},
        "endingOffsets": {"Orders": {"broker-a": {"0": 5, "1": 4}}},
    }
    assert [(one.queue, one.first, one.last) for one in second] == [(Q0, 8, 10)]


def test_content_is_the_same_however_it_is_cut() -> None:
    whole = content_of([entry("a", (0, 0, 9), (1, 0, 3))])
    assert whole == content_of([entry("b", (0, 5, 9)), entry("c", (1, 0, 3)), entry("d", (0, 0, 4))])
    assert whole != content_of([entry("b", (0, 5, 9)), entry("c", (1, 0, 3)), entry("d", (0, 0, 3))])
