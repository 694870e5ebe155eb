"""A stream reads everything once, goes on where it was, and keeps its offsets while brokers come and go."""

import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from maxq.api import Admin, Message, MessageQueue, Producer
from maxq.errors import DataLossError, PipelineError
from maxq.pipeline.options.read_options import ReadOptions
from maxq.pipeline.source.batch_source import Conditions, plan_batch
from maxq.pipeline.source.offsets import OffsetsJson
from maxq.pipeline.source.stream_source import TopicStream
from maxq.pipeline.wire.wire_client import TopicRoute, WireClient
from maxq.pipeline.wire.wire_reader import WireReader
from maxq.protocol.body.topic_config import TopicConfig
from maxq.standalone import Standalone
from tests.unit.pipeline.conftest import Fill

Rows = list[tuple[int, int]]


class Query:
    """Triggers of one stream, as Spark makes them."""

    def __init__(self, server: Standalone, offset: OffsetsJson | None = None, **given: str) -> None:
        base = {"rocketmq.namesrv": server.namesrv_address, "startingOffsets": "earliest", "rocketmq.brokerWait": "1s"}
        self.options = ReadOptions.parse(base | given | {"columns": "queueId,queueOffset"}, streaming=True)
        self.stream = TopicStream(self.options, WireClient(self.options.connection, route_age_ms=0))
        self.limited = bool({"maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxBytesPerTrigger"} & given.keys())
        self.offset = self.stream.initial_offset() if offset is None else offset

    def trigger(self) -> Rows:
        """One micro-batch: (queue, offset) of its rows; [] if there was none."""
        start = json.loads(json.dumps(self.offset))
        end = json.loads(json.dumps(self.stream.latest_offset(start, limited=self.limited)))
        found = self.read(start, end)
        self.offset = end
        return found

    def read(self, start: OffsetsJson, end: OffsetsJson) -> Rows:
        """(queue, offset) of the rows between two offsets."""
        parts = self.stream.partitions(start, end)
        reader = WireReader(self.options)
        return sorted(
            (row["queueId"], row["queueOffset"])
            for part in parts
            for batch in reader.read(part.ranges)
            for row in batch.to_pylist()
        )


def batch_rows(server: Standalone, **given: str) -> Rows:
    """(queue, offset) of the rows of a batch."""
    base = {"rocketmq.namesrv": server.namesrv_address, "columns": "queueId,queueOffset", "rocketmq.brokerWait": "1s"}
    options = ReadOptions.parse(base | given, streaming=False)
    parts = plan_batch(options, Conditions())
    return sorted(
        (row["queueId"], row["queueOffset"])
        for part in parts
        for one in WireReader(options).read(part.ranges)
        for row in one.to_pylist()
    )


@pytest.fixture
def make(admin: Admin, server: Standalone) -> Iterator[object]:
    def create(topic: str, queues: int = 2) -> str:
        admin.topics.create(server.broker_address, TopicConfig(topic, queues, queues))
        return topic

    yield create


def rows(queue: int, first: int, last: int) -> Rows:
    return [(queue, offset) for offset in range(first, last)]


def test_triggers_read_what_is_new_and_a_restart_goes_on(server: Standalone, make, fill: Fill) -> None:  # type: ignore[no-untyped-def]
    topic = make("Stream1")
    query = Query(server, subscribe=topic)
    assert query.trigger() == []
    fill(topic, 0, 10)
    assert query.trigger() == rows(0, 0, 10)
    before = query.offset
    assert query.trigger() == []
    assert query.offset == before
    fill(topic, 1, 5)
    again = Query(server, before, subscribe=topic)
    assert again.trigger() == rows(1, 0, 5)
    assert again.offset == {topic: {"broker-a": {"0": 10, "1": 5}}}
    assert query.stream.report_latest() == before


def test_limits_of_rows_and_bytes_hold_and_everything_comes(server: Standalone, make, fill: Fill) -> None:  # type: ignore[no-untyped-def]
    topic = make("Stream2")
    fill(topic, 0, 100, size=200)
    fill(topic, 1, 20, size=200)
    for limit, value, sizes in (("maxOffsetsPerTrigger", "30", [30]), ("maxBytesPerTrigger", "12k", range(21, 50))):
        query = Query(server, subscribe=topic, **{limit: value})
        batches = []
        while batch := query.trigger():
            batches.append(batch)
        assert sorted(row for batch in batches for row in batch) == rows(0, 0, 100) + rows(1, 0, 20)
        assert len(batches) >= 3
        assert all(len(batch) in sizes for batch in batches[:2]), limit


def test_too_few_rows_wait_until_the_delay_is_over(server: Standalone, make, fill: Fill) -> None:  # type: ignore[no-untyped-def]
    topic = make("Stream3")
    query = Query(server, subscribe=topic, minOffsetsPerTrigger="10", maxTriggerDelay="1h")
    fill(topic, 0, 9)
    assert query.trigger() == []
    fill(topic, 1, 1)
    assert len(query.trigger()) == 10
    impatient = Query(server, query.offset, subscribe=topic, minOffsetsPerTrigger="10", maxTriggerDelay="0ms")
    fill(topic, 0, 1, first=9)
    assert impatient.trigger() == rows(0, 9, 10)


def test_available_now_ends_at_what_was_there(server: Standalone, make, fill: Fill) -> None:  # type: ignore[no-untyped-def]
    topic = make("Stream4")
    fill(topic, 0, 10)
    query = Query(server, subscribe=topic, maxOffsetsPerTrigger="6", minOffsetsPerTrigger="5")
    query.stream.prepare_for_available_now()
    fill(topic, 0, 10, first=10)
    assert [query.trigger(), query.trigger(), query.trigger()] == [rows(0, 0, 6), rows(0, 6, 10), []]


def test_the_first_trigger_is_read_from_where_its_plan_began(  # type: ignore[no-untyped-def]
    server: Standalone, make, fill: Fill
) -> None:
    topic = make("First1", 1)
    fill(topic, 0, 10)
    planned = Query(server, subscribe=topic, startingOffsets="latest")
    fill(topic, 0, 5, first=10)
    end = json.loads(json.dumps(planned.stream.latest_offset(planned.offset, limited=False)))
    fill(topic, 0, 5, first=15)
    restarted = Query(server, subscribe=topic, startingOffsets="latest")
    for query in (planned, restarted):  # Spark keeps no offsets before the end of a first trigger: it asks again
        assert query.read(query.stream.initial_offset(), end) == rows(0, 10, 15)
    restarted.offset = end
    assert restarted.trigger() == rows(0, 15, 20)
    assert restarted.trigger() == []


def test_what_is_deleted_before_the_first_trigger_reads_it_is_a_loss(  # type: ignore[no-untyped-def]
    server: Standalone, make, fill: Fill, admin: Admin
) -> None:
    topic = make("First2", 1)
    fill(topic, 0, 10)
    planned = Query(server, subscribe=topic, maxOffsetsPerTrigger="4")
    end = json.loads(json.dumps(planned.stream.latest_offset(planned.offset, limited=True)))
    assert planned.read(planned.offset, end) == rows(0, 0, 4)
    admin.operations.purge_topic(server.broker_address, topic, queue_id=0, before_offset=2, dry_run=False)
    restarted = Query(server, subscribe=topic, maxOffsetsPerTrigger="4")
    with pytest.raises(DataLossError, match="0 to 1"):
        restarted.read(restarted.offset, end)


def test_a_first_available_now_reads_to_where_it_begins_at_least(  # type: ignore[no-untyped-def]
    server: Standalone, make, fill: Fill
) -> None:
    topic = make("First3", 1)
    fill(topic, 0, 10)
    query = Query(server, {}, subscribe=topic, startingOffsets="latest")
    query.stream.prepare_for_available_now()
    fill(topic, 0, 5, first=10)  # comes before Spark asks where the stream begins
    query.offset = query.stream.initial_offset()
    assert query.trigger() == []
    again = Query(server, query.offset, subscribe=topic, startingOffsets="latest")
    fill(topic, 0, 5, first=15)
    again.stream.prepare_for_available_now()
    assert again.trigger() == rows(0, 15, 20)


def test_queues_that_appear_are_read_from_their_start(server: Standalone, make, fill: Fill) -> None:  # type: ignore[no-untyped-def]
    make("Grow-a", 1)
    fill("Grow-a", 0, 3)
    query = Query(server, subscribePattern="Grow-.*", startingOffsets="latest")
    assert query.trigger() == []
    make("Grow-a", 2)
    make("Grow-b", 1)
    fill("Grow-a", 1, 2)
    fill("Grow-b", 0, 4)
    assert query.trigger() == rows(0, 0, 4) + rows(1, 0, 2)
    assert query.trigger() == []


def test_available_now_does_not_end_without_a_new_queue(  # type: ignore[no-untyped-def]
    server: Standalone, make, fill: Fill, monkeypatch: pytest.MonkeyPatch
) -> None:
    make("Fresh", 1)
    query = Query(server, subscribePattern="Fresh.*")
    assert query.trigger() == []
    fill(make("Fresh-more", 1), 0, 3)
    again = Query(server, query.offset, subscribePattern="Fresh.*")
    again.stream.prepare_for_available_now()
    asked, min_offsets = [], WireClient.min_offsets

    def away_at_first(client: WireClient, queues: Iterable[MessageQueue]) -> object:
        asked.append([*queues])
        return ({}, {}) if len(asked) == 1 else min_offsets(client, asked[-1])

    monkeypatch.setattr(WireClient, "min_offsets", away_at_first)
    assert again.trigger() == rows(0, 0, 3)


def test_what_is_deleted_of_a_queue_that_appears_before_its_first_trigger_reads_it_is_a_loss(  # type: ignore[no-untyped-def]
    server: Standalone, make, fill: Fill, admin: Admin
) -> None:
    make("Begin-a", 1)
    fill("Begin-a", 0, 3)
    query = Query(server, subscribePattern="Begin-.*", startingOffsets="latest")
    assert query.trigger() == []
    make("Begin-b", 1)
    fill("Begin-b", 0, 4)
    start = query.offset
    end = json.loads(json.dumps(query.stream.latest_offset(start, limited=False)))
    admin.operations.purge_topic(server.broker_address, "Begin-b", queue_id=0, before_offset=2, dry_run=False)
    again = Query(server, start, subscribePattern="Begin-.*", startingOffsets="latest")
    for stream in (query.stream, again.stream):  # of this run, and of a restart that plans the same trigger
        parts = stream.partitions(start, end)
        with pytest.raises(DataLossError, match="Begin-b"):
            [list(WireReader(query.options).read(part.ranges)) for part in parts]
    assert query.stream.latest_offset(end, limited=False) == end, "nothing is new"


def test_queues_that_vanish_keep_their_offsets_until_they_are_back(server: Standalone, make, fill: Fill) -> None:  # type: ignore[no-untyped-def]
    topic = make("Shrink", 3)
    for queue in range(3):
        fill(topic, queue, 4)
    query = Query(server, subscribe=topic)
    assert query.trigger() == rows(0, 0, 4) + rows(1, 0, 4) + rows(2, 0, 4)
    make(topic, 1)
    fill(topic, 0, 3, first=4)
    assert query.trigger() == rows(0, 4, 7)
    assert query.offset == {topic: {"broker-a": {"0": 7, "1": 4, "2": 4}}}
    again = Query(server, query.offset, subscribe=topic)
    make(topic, 3)
    fill(topic, 2, 2, first=4)
    assert again.trigger() == rows(2, 4, 6)
    assert again.offset == {topic: {"broker-a": {"0": 7, "1": 4, "2": 6}}}


HOW = ["live", "restarted", "available now"]


def go_on(server: Standalone, query: Query, how: str, topic: str, **more: str) -> Query:
    """The same query, or one that was started again."""
    if how == "live":
        return query
    again = Query(server, query.offset, subscribe=topic, **more)
    if how == "available now":
        again.stream.prepare_for_available_now()
    return again


@pytest.mark.parametrize("how", HOW)
def test_a_topic_that_was_deleted_is_an_error_or_forgotten(
    server: Standalone, make, fill: Fill, admin: Admin, caplog: pytest.LogCaptureFixture, how: str
) -> None:  # type: ignore[no-untyped-def]
    topic = make("Deleted-" + how.replace(" ", "-"), 1)
    fill(topic, 0, 20)
    strict, lenient = Query(server, subscribe=topic), Query(server, subscribe=topic, failOnDataLoss="false")
    for query in (strict, lenient):
        assert query.trigger() == rows(0, 0, 20)
    fill(topic, 0, 5, first=20)
    admin.topics.delete(topic, "DefaultCluster")
    with pytest.raises(DataLossError, match=rf"queue {topic}/broker-a/0: wanted offset 20: the topic was deleted; "):
        go_on(server, strict, how, topic).trigger()
    lenient = go_on(server, lenient, how, topic, failOnDataLoss="false")
    assert (lenient.trigger(), lenient.offset) == ([], {})
    assert "the topic was deleted; its unread messages are lost" in caplog.text
    make(topic, 1)
    fill(topic, 0, 3)
    if how != "available now":  # what that reads was fixed when it began
        assert lenient.trigger() == rows(0, 0, 3)


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("count", [7, 30])
def test_a_topic_made_again_is_an_error_or_read_from_its_start(
    server: Standalone, make, fill: Fill, admin: Admin, caplog: pytest.LogCaptureFixture, how: str, count: int
) -> None:  # type: ignore[no-untyped-def]
    """With fewer messages than were read of the deleted one, and with more."""
    topic = make(f"Again-{count}-{how.replace(' ', '-')}", 2)
    for queue in range(2):
        fill(topic, queue, 20)
    strict, lenient = Query(server, subscribe=topic), Query(server, subscribe=topic, failOnDataLoss="false")
    for query in (strict, lenient):
        assert query.trigger() == rows(0, 0, 20) + rows(1, 0, 20)
    admin.topics.delete(topic, "DefaultCluster")
    make(topic, 1)
    fill(topic, 0, count)
    match = rf"queue {topic}/broker-a/0: wanted offset 20, available are 0 to {count} .*deleted and made again"
    with pytest.raises(DataLossError, match=match):
        go_on(server, strict, how, topic).trigger()
    lenient = go_on(server, lenient, how, topic, failOnDataLoss="false")
    assert lenient.trigger() == rows(0, 0, count)
    assert lenient.trigger() == []
    assert "made again" in caplog.text
    offsets = lenient.offset[topic]["broker-a"]
    assert offsets == {"0": count, "first:0": 0, "incarnation": offsets["incarnation"]} and offsets["incarnation"] > 0
    again = Query(server, lenient.offset, subscribe=topic)  # the checkpoint knows which topic it is of
    fill(topic, 0, 2, first=count)
    assert again.trigger() == rows(0, count, count + 2)


@pytest.mark.parametrize("now", [False, True])
def test_a_checkpoint_of_another_selection_is_an_error_or_forgotten(
    server: Standalone, make, fill: Fill, caplog: pytest.LogCaptureFixture, now: bool
) -> None:  # type: ignore[no-untyped-def]
    """Another topic, or fewer queues, with the checkpoint of a query: what it had not read would never be read."""
    one, other = make(f"OneTopic-{now}", 2), make(f"OtherTopic-{now}", 1)
    for queue in range(2):
        fill(one, queue, 4)
    fill(other, 0, 3)
    query = Query(server, subscribe=one)
    query.trigger()

    def again(**options: str) -> Query:
        found = Query(server, query.offset, **options)
        if now:
            found.stream.prepare_for_available_now()
        return found

    with pytest.raises(DataLossError, match=rf"queue {one}/broker-a/0: wanted offset 4.*options do not select it"):
        again(subscribe=other).trigger()
    fewer = {"assign": json.dumps({one: {"broker-a": [0]}})}
    with pytest.raises(DataLossError, match=rf"queue {one}/broker-a/1: wanted offset 4"):
        again(**fewer).trigger()
    lenient = again(subscribe=other, failOnDataLoss="false")
    assert lenient.trigger() == rows(0, 0, 3)
    assert lenient.offset == {other: {"broker-a": {"0": 3, "first:0": 0}}}
    assert "the query's options do not select it any more" in caplog.text
    assert again(subscribe=f"{one},{other}").trigger() == rows(0, 0, 3)


def test_offsets_of_before_know_no_incarnation_and_are_loaded(server: Standalone, make, fill: Fill) -> None:  # type: ignore[no-untyped-def]
    topic = make("Before", 1)
    fill(topic, 0, 5)
    assert Query(server, {topic: {"broker-a": {"0": 3}}}, subscribe=topic).trigger() == rows(0, 3, 5)


def test_a_broker_that_is_away_keeps_its_offsets(make, fill: Fill, tmp_path) -> None:  # type: ignore[no-untyped-def]
    from maxq.api import Message, Producer

    with Standalone(tmp_path / "first") as first:
        with Admin(first.namesrv_address) as admin, Producer("g", first.namesrv_address) as producer:
            admin.topics.create(first.broker_address, TopicConfig("Away", 1, 1))
            for n in range(5):
                producer.send(Message("Away", b"%d" % n))
        query = Query(first, subscribe="Away")
        assert len(query.trigger()) == 5
        offset = query.offset
    start = json.loads(json.dumps(offset))
    assert query.stream.latest_offset(start, limited=False) == offset


def test_progress_is_the_groups_offsets(server: Standalone, make, fill: Fill, admin: Admin) -> None:  # type: ignore[no-untyped-def]
    topic = make("Progress", 2)
    fill(topic, 0, 10)
    query = Query(server, subscribe=topic, groupId="spark-readers")
    query.trigger()
    query.stream.commit(query.offset)
    fill(topic, 0, 4, first=10)
    stats = admin.groups.consume_stats("spark-readers", topic)
    wrapper = stats.offset_table[MessageQueue(topic, "broker-a", 0)]
    assert (wrapper.consumer_offset, wrapper.broker_offset) == (10, 14)
    assert admin.topics.route("%RETRY%spark-readers").queue_datas
    heir = Query(server, subscribe=topic, startingOffsets="", startingOffsetsByGroup="spark-readers")
    assert heir.trigger() == rows(0, 10, 14)


def test_progress_is_told_when_the_next_trigger_begins(server: Standalone, make, fill: Fill, admin: Admin) -> None:  # type: ignore[no-untyped-def]
    """Spark does not say that the last trigger of a query is done."""

    def committed() -> list[int]:
        offsets = admin.groups.consume_stats("spark-late", topic).offset_table
        return [offsets[MessageQueue(topic, "broker-a", queue)].consumer_offset for queue in range(2)]

    topic = make("Late", 2)
    fill(topic, 0, 10)
    query = Query(server, subscribe=topic, groupId="spark-late")
    query.trigger()
    assert query.trigger() == []
    assert committed() == [10, 0]
    fill(topic, 1, 3)
    query.trigger()
    heir = Query(server, query.offset, subscribe=topic, groupId="spark-late")
    assert heir.trigger() == []
    assert committed() == [10, 3]


def test_starts_by_time_and_offset(server: Standalone, make, fill: Fill) -> None:  # type: ignore[no-untyped-def]
    topic = make("Starts", 2)
    fill(topic, 0, 6)
    given = json.dumps({topic: {"broker-a": {"0": 4, "1": -1}}})
    assert Query(server, subscribe=topic, startingOffsets=given).trigger() == rows(0, 4, 6)
    assert Query(server, subscribe=topic, startingOffsets="", startingTimestamp="1000").trigger() == rows(0, 0, 6)
    late = Query(server, subscribe=topic, startingOffsets="", startingTimestamp="9000000000000")
    assert (late.trigger(), late.offset) == ([], {topic: {"broker-a": {"0": 6, "1": 0, "first:0": 6, "first:1": 0}}})
    with pytest.raises(PipelineError, match=r"says nothing about 1 of 2 queues: Starts/broker-a/1"):
        Query(server, subscribe=topic, startingOffsets=json.dumps({topic: {"broker-a": {"0": 4}}}))


def test_available_now_reports_where_it_will_end(server: Standalone, make, fill: Fill) -> None:  # type: ignore[no-untyped-def]
    topic = make("Reported", 1)
    fill(topic, 0, 10)
    query = Query(server, subscribe=topic, maxOffsetsPerTrigger="6")
    query.stream.prepare_for_available_now()
    query.trigger()
    assert query.stream.report_latest() == {topic: {"broker-a": {"0": 10}}}


@pytest.mark.parametrize("streaming", [True, False])
def test_a_start_behind_the_end_is_an_error_or_the_end(server: Standalone, make, fill: Fill, streaming: bool) -> None:  # type: ignore[no-untyped-def]
    topic = make(f"Beyond{streaming}", 1)
    fill(topic, 0, 6)

    def read(first: int, **more: str) -> Rows:
        starts = json.dumps({topic: {"broker-a": {"0": first}}})
        if streaming:
            return Query(server, subscribe=topic, startingOffsets=starts, **more).trigger()
        return batch_rows(server, subscribe=topic, startingOffsets=starts, **more)

    assert read(6) == []
    with pytest.raises(DataLossError, match=rf"queue {topic}/broker-a/0: wanted offset 9, available are 0 to 6"):
        read(9)
    assert read(9, failOnDataLoss="false") == []


@pytest.mark.parametrize("streaming", [True, False])
def test_queues_that_are_not_there_are_named(server: Standalone, make, fill: Fill, streaming: bool) -> None:  # type: ignore[no-untyped-def]
    topic = make(f"Absent{streaming}", 2)
    fill(topic, 0, 6)

    def read(starts: object, **more: str) -> Rows:
        given = {"subscribe": topic, "startingOffsets": json.dumps(starts)} | more
        return Query(server, **given).trigger() if streaming else batch_rows(server, **given)

    starts = {"0": 0, "1": -2, "7": 3}
    with pytest.raises(DataLossError, match=rf"queue {topic}/broker-a/7: wanted offset 3.* has the queues 0 to 1"):
        read({topic: {"broker-a": starts}})
    assert read({topic: {"broker-a": starts}}, failOnDataLoss="false") == rows(0, 0, 6)
    with pytest.raises(PipelineError, match="startingOffsets names the queue Other/broker-a/0, which is not read"):
        read({topic: {"broker-a": {"0": 0, "1": 0}}, "Other": {"broker-a": {"0": 0}}})


def test_an_end_behind_the_end_is_an_error_at_once_or_the_end(server: Standalone, make, fill: Fill) -> None:  # type: ignore[no-untyped-def]
    topic = make("EndBeyond", 1)
    fill(topic, 0, 6)
    ends = {"subscribe": topic, "endingOffsets": json.dumps({topic: {"broker-a": {"0": 9}}})}
    with pytest.raises(DataLossError, match=r"wanted offset 6, available are 0 to 6 .*3 offsets \(6 to 8\) are lost"):
        batch_rows(server, **ends)
    assert batch_rows(server, failOnDataLoss="false", **ends) == rows(0, 0, 6)


def test_a_name_server_that_is_away_is_told_once(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    server = Standalone(tmp_path).start()
    with Admin(server.namesrv_address) as admin, Producer("g", server.namesrv_address) as producer:
        for topic in ("AwayA", "AwayB"):
            admin.topics.create(server.broker_address, TopicConfig(topic, 8, 8))
            producer.send(Message(topic, b"x"))
    query = Query(server, subscribePattern="Away.*")
    assert len(query.trigger()) == 2
    server.stop()
    for _ in range(5):
        assert query.trigger() == []
    lines = [record.getMessage() for record in caplog.records if record.name.startswith("maxq.pipeline")]
    assert len([line for line in lines if "the known queues and brokers are used" in line]) == 1
    assert len([line for line in lines if "queues cannot be reached" in line]) == 1
    again = Query(server, query.offset, subscribePattern="Away.*")  # it never heard of any queue
    assert again.trigger() == []
    assert again.offset == query.offset


def test_a_time_without_a_message_is_an_error_where_that_is_asked_for(server: Standalone, make, fill: Fill) -> None:  # type: ignore[no-untyped-def]
    topic = make("Strategy", 1)
    fill(topic, 0, 3)
    given = {"subscribe": topic, "startingOffsets": "", "startingOffsetsByTimestampStrategy": "error"}
    assert Query(server, startingTimestamp="1000", **given).trigger() == rows(0, 0, 3)
    with pytest.raises(PipelineError, match="1 of 1 queues, such as Strategy/broker-a/0, have no message stored at"):
        Query(server, startingTimestamp="9000000000000", **given)


def test_what_is_not_there_is_said(server: Standalone) -> None:
    with pytest.raises(PipelineError, match="topic NoSuchTopic cannot be read"):
        Query(server, subscribe="NoSuchTopic")
    with pytest.raises(PipelineError, match="no name server answers"):
        Query(server, subscribe="T", **{"rocketmq.namesrv": "127.0.0.1:1"})


def test_available_now_waits_for_a_topic_that_no_name_server_knows(
    server: Standalone, make: Callable[[str, int], str], fill: Fill, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name server that has started again knows a topic when its brokers have registered."""
    topic = make("Forgotten", 1)
    query = Query(server, subscribe=topic)
    fill(topic, 0, 3)
    route, asked = WireClient.route, []

    def registers_later(client: WireClient, name: str) -> TopicRoute | None:
        asked.append(name)
        return None if len(asked) < 5 else route(client, name)

    monkeypatch.setattr(WireClient, "route", registers_later)
    query.stream.prepare_for_available_now()
    assert query.trigger() == rows(0, 0, 3)


def test_available_now_does_not_pass_over_a_topic_that_stays_away(server: Standalone) -> None:
    query = Query(server, {"Away": {"broker-that-is-away": {"0": 5}}}, subscribePattern="Away.*")
    query.stream.prepare_for_available_now()
    with pytest.raises(PipelineError, match=r"1 queues, such as Away/broker-that-is-away/0, .* no name server knows"):
        query.trigger()
