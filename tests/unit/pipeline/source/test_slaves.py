"""What a plan makes of the answers of slaves, which may lag behind what a master has told or has."""

from collections.abc import Iterable
from itertools import count

import pytest

from maxq.api import Admin
from maxq.codes import RequestCode
from maxq.errors import PipelineError
from maxq.pipeline.archive.coverage import broker_ranges, check_same_topics
from maxq.pipeline.options.read_options import ReadOptions
from maxq.pipeline.source.batch_source import Conditions, plan_batch
from maxq.pipeline.wire.wire_client import Ask, Failures, ReportedOffset, WireClient
from maxq.protocol.body.topic_config import TopicConfig
from maxq.protocol.message.message_queue import MessageQueue
from maxq.standalone import Standalone
from tests.unit.pipeline.conftest import Fill

LOW, END = 2, 7  # of the slave's part of a queue with ten messages
QUEUE = MessageQueue("Lagging", "broker-a", 0)


@pytest.fixture(scope="module", autouse=True)
def topic(server: Standalone) -> None:
    with Admin(server.namesrv_address) as admin:
        admin.topics.create(server.broker_address, TopicConfig("Lagging", 1, 1))


@pytest.fixture
def filled(fill: Fill, server: Standalone) -> None:
    with WireClient(options(server).connection) as client:
        if not client.max_offsets([QUEUE])[0][QUEUE].offset:
            fill("Lagging", 0, 10)


def options(server: Standalone, **more: str) -> ReadOptions:
    given = {"rocketmq.namesrv": server.namesrv_address, "subscribe": "Lagging", "rocketmq.brokerWait": "1s"} | more
    return ReadOptions.parse(given, streaming=False)


def stand_in(patch: pytest.MonkeyPatch, first: int, end: int = 1 << 30) -> None:
    """Have a slave with messages LOW to END answer the questions first … end - 1, and the master the others."""
    whole, questions = WireClient._offsets, count()

    def offsets(client: WireClient, given: Iterable[Ask]) -> tuple[dict[MessageQueue, ReportedOffset], Failures]:
        asks = list(given)
        found, failed = whole(client, asks)
        if not asks or not first <= next(questions) < end:
            return found, failed
        bounds = {RequestCode.GET_MAX_OFFSET: (END, END), RequestCode.GET_MIN_OFFSET: (LOW, LOW)}
        lowest, highest = bounds.get(RequestCode(asks[0].code), (LOW, END))
        return {
            queue: ReportedOffset(min(max(one.offset, lowest), highest), is_master=False)
            for queue, one in found.items()
        }, failed

    patch.setattr(WireClient, "_offsets", offsets)


def planned(wanted: ReadOptions, conditions: Conditions = Conditions()) -> list[tuple[int, int]]:
    return [(one.first, one.last) for part in plan_batch(wanted, conditions) for one in part.ranges]


@pytest.mark.usefixtures("filled")
@pytest.mark.parametrize("more", [{}, {"endingOffsets": '{"Lagging": {"broker-a": {"0": -1}}}'}])
def test_a_batch_goes_as_far_as_the_master_told_though_a_slave_answers_later(
    server: Standalone, monkeypatch: pytest.MonkeyPatch, more: dict[str, str]
) -> None:
    """It ended without a word where the slave did."""
    start = '{"Lagging": {"broker-a": {"0": 4}}}'
    stand_in(monkeypatch, 1)
    assert planned(options(server, startingOffsets=start, **more)) == [(4, 10)]


@pytest.mark.usefixtures("filled")
def test_a_slave_that_stands_in_from_the_beginning_is_named(
    server: Standalone, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    stand_in(monkeypatch, 0)
    assert planned(options(server)) == [(LOW, END)]
    assert "such as Lagging/broker-a/0, are away: their slaves report where they begin, and older" in caplog.text
    assert "such as Lagging/broker-a/0, are away: their slaves report where they end, and messages" in caplog.text


@pytest.mark.usefixtures("filled")
@pytest.mark.parametrize("ms", [0, 4_000_000_000_000])
def test_a_time_is_not_looked_up_where_the_message_may_be_missing(
    server: Standalone, monkeypatch: pytest.MonkeyPatch, ms: int
) -> None:
    """The slave has none before, or none behind: the rows of a condition on time began, or ended, with what it has."""
    wanted = Conditions(first_time=ms) if ms == 0 else Conditions(end_time=ms)
    with monkeypatch.context() as patch:
        stand_in(patch, 3)  # the plan has asked where queues begin and end
        with pytest.raises(PipelineError, match="its master is away, and its slave may lack the message of that time"):
            planned(options(server), wanted)
    stand_in(monkeypatch, 3, 6)
    assert planned(options(server), wanted) == [(0, 10)]


@pytest.mark.usefixtures("filled")
def test_a_group_that_is_ahead_of_a_slave_has_nothing_to_read(
    server: Standalone, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was said that its topic was made again."""
    wanted = options(server, startingOffsetsByGroup="ahead-of-slave")
    with WireClient(wanted.connection) as client:
        client.introduce("ahead-of-slave", [QUEUE])
        assert not client.commit("ahead-of-slave", {QUEUE: 9})
    with monkeypatch.context() as patch:
        stand_in(patch, 0)
        assert planned(wanted) == []
    assert planned(wanted) == [(9, 10)]


@pytest.mark.usefixtures("filled")
def test_an_archive_that_is_ahead_of_a_slave_is_of_the_same_topic(
    server: Standalone, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was said that its topic was made again."""
    coverage = {QUEUE: [(0, 8)]}
    stand_in(monkeypatch, 0)
    bounds = broker_ranges(options(server), coverage)
    assert bounds == {QUEUE: (LOW, 9)}
    check_same_topics(bounds, coverage)
