"""A topic that is deleted and made again between the plan of a read and its tasks: nothing of the new one is taken for
the old one's."""

import json
from collections.abc import Callable, Iterable
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from maxq.api import Admin
from maxq.errors import ConfigError, DataLossError, PipelineError
from maxq.pipeline.options.read_options import ReadOptions
from maxq.pipeline.source import files as files_module
from maxq.pipeline.source.batch_source import Conditions, plan_batch
from maxq.pipeline.source.offsets import OffsetRange
from maxq.pipeline.source.positions import tell_of_slaves
from maxq.pipeline.source.scan import ScanPartition, partitions, read_scan
from maxq.pipeline.source.stream_source import TopicStream
from maxq.pipeline.wire.queue_range import QueueRange
from maxq.pipeline.wire.wire_client import ReportedOffset, WireClient
from maxq.pipeline.wire.wire_reader import WireReader
from maxq.protocol.body.topic_config import TopicConfig
from maxq.protocol.message.message_queue import MessageQueue
from maxq.standalone import Standalone
from tests.unit.pipeline.conftest import Fill

AGAIN = "deleted and made again|made again, or the broker's log was cut"
Remake = Callable[[str, int], None]


@pytest.fixture
def remake(server: Standalone, admin: Admin, fill: Fill) -> Remake:
    """`remake(topic, count)`: delete it if it was made before, make it with one queue, and send so many messages."""
    made: set[str] = set()

    def do(topic: str, count: int) -> None:
        if topic in made:
            admin.topics.delete(topic, "DefaultCluster")
        made.add(topic)
        admin.topics.create(server.broker_address, TopicConfig(topic, 1, 1))
        fill(topic, 0, count)

    return do


def options(server: Standalone, topic: str, *, streaming: bool = False, **more: str) -> ReadOptions:
    given = {"rocketmq.namesrv": server.namesrv_address, "subscribe": topic, "rocketmq.brokerWait": "5s"} | more
    return ReadOptions.parse(given, streaming=streaming)


def offsets(wanted: ReadOptions, parts: list[ScanPartition]) -> list[int]:
    return [row["queueOffset"] for part in parts for one in read_scan(wanted, part) for row in one.to_pylist()]


def test_a_batch(server: Standalone, remake: Remake, caplog: pytest.LogCaptureFixture) -> None:
    remake("MadeAgainBatch", 5)
    strict, lenient = (options(server, "MadeAgainBatch", failOnDataLoss=text) for text in ("true", "false"))
    parts = plan_batch(strict, Conditions())
    remake("MadeAgainBatch", 50)
    with pytest.raises(DataLossError, match=rf"MadeAgainBatch/broker-a/0: wanted offset 0.*({AGAIN})"):
        offsets(strict, parts)
    assert offsets(lenient, parts) == []
    assert "5 messages are lost" in caplog.text
    assert offsets(strict, plan_batch(strict, Conditions())) == [*range(50)]


def test_a_batch_in_the_midst_of_a_queue(server: Standalone, remake: Remake, fill: Fill) -> None:
    remake("MadeAgainMidst", 0)
    fill("MadeAgainMidst", 0, 60, size=40_000)
    wanted = options(server, "MadeAgainMidst", fetchBytes="4k", columns="body,queueOffset")
    (part,) = plan_batch(wanted, Conditions())
    read = WireReader(wanted).read(part.ranges)
    found = [next(read).num_rows]  # some
    remake("MadeAgainMidst", 80)
    with pytest.raises(DataLossError, match=AGAIN):
        found += [one.num_rows for one in read]
    assert sum(found) <= 60


def test_a_trigger_of_a_stream(server: Standalone, remake: Remake) -> None:
    topic = "MadeAgainStream"
    remake(topic, 1)
    remake(topic, 5)  # not the first of its name
    wanted = options(server, topic, streaming=True, startingOffsets="earliest")
    stream = TopicStream(wanted)
    start = stream.initial_offset()
    end = stream.latest_offset(start, limited=False)
    parts = stream.partitions(start, end)
    assert offsets(wanted, parts) == [*range(5)]
    remake(topic, 50)
    with pytest.raises(DataLossError, match=AGAIN):
        offsets(wanted, parts)
    with pytest.raises(DataLossError, match=AGAIN):  # the same trigger, planned again after a restart
        offsets(wanted, TopicStream(wanted).partitions(start, end))
    stream.stop()


@pytest.mark.parametrize("dense", [0.0, 1e9])
def test_files_give_what_was_planned(
    server: Standalone, remake: Remake, monkeypatch: pytest.MonkeyPatch, dense: float
) -> None:
    """The log still has the messages of the deleted topic: pieces of it are read, its queues tell nothing."""
    monkeypatch.setattr(files_module, "_DENSE", dense)
    topic = f"MadeAgainPlanned-{dense:.0f}"
    remake(topic, 30)
    wanted = options(server, topic, readFrom="files", storePath=str(server.store), columns="physicalOffset")
    parts = plan_batch(wanted, Conditions())
    assert all(part.files for part in parts)
    places = [row for part in parts for one in read_scan(wanted, part) for row in one["physicalOffset"].to_pylist()]
    assert len(places) == 30
    remake(topic, 40)
    if dense:
        with pytest.raises(DataLossError, match=AGAIN):
            [*(one for part in parts for one in read_scan(wanted, part))]
    else:
        again = [one["physicalOffset"].to_pylist() for part in parts for one in read_scan(wanted, part)]
        assert [*chain.from_iterable(again)] == places


def test_files_are_not_planned_by_the_queues_of_another_topic(server: Standalone, remake: Remake) -> None:
    topic = "MadeAgainFiles"
    remake(topic, 30)
    wanted = options(server, topic, readFrom="files", storePath=str(server.store))
    with WireClient(wanted.connection) as client:
        queue = MessageQueue(topic, "broker-a", 0)
        of_another = client.max_offsets([queue])[0][queue].incarnation + 1
        (part,) = partitions(client, [OffsetRange(queue, 0, 30, of_another)], wanted, {queue.broker_name})
    assert part.files is None
    with pytest.raises(DataLossError, match=AGAIN):
        offsets(wanted, [part])


def test_what_nobody_knows_the_topic_of_is_read(server: Standalone, remake: Remake) -> None:
    """Static topics, and what a slave told: as Java's brokers."""
    remake("MadeAgainUnknown", 1)
    remake("MadeAgainUnknown", 5)
    wanted = options(server, "MadeAgainUnknown")
    ranges = [QueueRange("MadeAgainUnknown", "broker-a", 0, 0, 5)]
    assert sum(one.num_rows for one in WireReader(wanted).read(ranges)) == 5


def test_a_group_that_is_ahead_of_its_queue_is_lost_data(
    server: Standalone, remake: Remake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its offset is of a topic that was there before; a batch from it on was empty, and nobody said so."""
    remake("AheadOfQueue", 5)
    wanted = options(server, "AheadOfQueue", startingOffsetsByGroup="ahead")
    committed = {MessageQueue("AheadOfQueue", "broker-a", 0): 9}  # MaxQ's brokers drop it with its topic, Java's do not
    monkeypatch.setattr(WireClient, "group_offsets", lambda *_: (committed, {}))
    with pytest.raises(DataLossError, match="AheadOfQueue/broker-a/0: wanted offset 9"):
        plan_batch(wanted, Conditions())
    lenient = options(server, "AheadOfQueue", startingOffsetsByGroup="ahead", failOnDataLoss="false")
    assert plan_batch(lenient, Conditions()) == []


def test_times_by_queue_that_end_before_they_begin_are_refused(server: Standalone, remake: Remake) -> None:
    remake("TimesTurned", 5)
    given = {"startingOffsetsByTimestamp": 4_000_000_000_000, "endingOffsetsByTimestamp": 0}
    times = {name: f'{{"TimesTurned": {{"broker-a": {{"0": {ms}}}}}}}' for name, ms in given.items()}
    with pytest.raises(PipelineError, match="TimesTurned/broker-a/0: its end, offset 0, lies before its start, 5"):
        plan_batch(options(server, "TimesTurned", **times), Conditions())


def test_that_slaves_say_where_queues_end_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """They may lag: a batch that ends there has fewer rows than the master acknowledged."""
    queues = [MessageQueue("T", "broker-a", number) for number in range(3)]
    tell_of_slaves({queue: ReportedOffset(5, is_master=True) for queue in queues})
    assert not caplog.records
    tell_of_slaves({queue: ReportedOffset(5, is_master=queue.queue_id == 0) for queue in queues})
    assert "the masters of 2 queues, such as T/broker-a/1, are away: their slaves report where they end" in caplog.text


def test_a_stream_that_begins_while_a_slave_answers_knows_which_topic_it_reads(
    server: Standalone, remake: Remake, fill: Fill, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = "MadeAgainSlave"
    remake(topic, 1)
    remake(topic, 5)  # not the first of its name
    wanted = options(server, topic, streaming=True, startingOffsets="earliest")
    of_master = WireClient.max_offsets

    def of_slave(client: WireClient, queues: Iterable[MessageQueue]) -> tuple[dict[MessageQueue, ReportedOffset], Any]:
        found, failed = of_master(client, queues)
        return {queue: one._replace(is_master=False) for queue, one in found.items()}, failed

    for is_initial in (True, False):
        stream = TopicStream(wanted)
        with monkeypatch.context() as patch:
            patch.setattr(WireClient, "max_offsets", of_slave)
            start = stream.initial_offset() if is_initial else {}
            end = stream.latest_offset(start, limited=False)
        assert offsets(wanted, stream.partitions(start, end)) == [*range(5)]
        assert stream.latest_offset(end, limited=False) == end
        stream.stop()


def test_files_of_another_brokers_store_are_not_read(server: Standalone, remake: Remake, tmp_path: Path) -> None:
    topic = "MadeElsewhere"
    remake(topic, 5)
    wanted = options(server, topic, streaming=True, readFrom="files", storePath=str(server.store))
    stream = TopicStream(wanted)
    on_both = {topic: {"broker-a": {"0": 0}, "broker-b": {"0": 7}}}
    end = {topic: {"broker-a": {"0": 5}, "broker-b": {"0": 7}}}
    with pytest.raises(ConfigError, match="lie on 2 brokers"):  # also where only one has something to be read
        stream.partitions(on_both, end)
    stream.stop()

    owner = json.loads((server.store / "owner.json").read_text())
    assert owner["brokerName"] == "broker-a"
    (tmp_path / "checkpoint").write_bytes(bytes(4096))
    (tmp_path / "owner.json").write_text(json.dumps(owner | {"brokerName": "broker-b"}))
    swapped = options(server, topic, storePath=json.dumps({"broker-a": str(tmp_path)}))
    with pytest.raises(ConfigError, match="as the store of broker broker-a, but it is that of broker-b"):
        plan_batch(swapped, Conditions())


@pytest.mark.parametrize("read_from", ["broker", "files"])
def test_a_planned_trigger_whose_topic_is_deleted_ends_and_tells_its_loss(
    server: Standalone, remake: Remake, admin: Admin, read_from: str
) -> None:
    """Where files were read the query waited for the queues of that topic, and failed at each start."""
    topic = f"Deleted-{read_from}"
    remake(topic, 3)
    more = {"startingOffsets": "earliest", "rocketmq.brokerWait": "1s", "readFrom": read_from}
    more |= {"storePath": str(server.store)} if read_from == "files" else {}
    strict, lenient = (
        options(server, topic, streaming=True, failOnDataLoss=text, **more) for text in ("true", "false")
    )
    stream = TopicStream(strict, WireClient(strict.connection, route_age_ms=0))
    start = stream.initial_offset()
    end = stream.latest_offset(start, limited=False)
    admin.topics.delete(topic, "DefaultCluster")
    with pytest.raises(DataLossError, match="deleted"):
        offsets(strict, stream.partitions(start, end))
    assert offsets(lenient, TopicStream(lenient).partitions(start, end)) == []
