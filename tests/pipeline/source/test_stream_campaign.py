"""Some of `python -m tests.pipeline.stream_campaign`, against a model of the topics."""

from collections.abc import Iterator

import pytest

import maxq
from maxq.api import Admin, Producer
from tests.pipeline.stream_campaign import Case, server_of
from tests.short_form import times

CASES = times(20)

Served = tuple[maxq.Standalone, Admin, Producer]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with server_of(tmp_path_factory.mktemp("campaign")) as served:
        yield served


def test_a_stream_has_once_what_its_topics_have_whatever_happens(served: Served) -> None:
    marks: set[str] = set()
    for seed in range(CASES):
        case = Case(seed, *served)
        try:
            case.run()
        except Exception as error:
            raise AssertionError("\n".join([f"seed {seed}: {error}", *case.history])) from error
        marks |= case.marks.keys()
    wanted = {"deaths", "remove", "again", "queues", "batches", "losses that were told", "starts, AvailableNow"}
    assert CASES < 20 or marks >= wanted
