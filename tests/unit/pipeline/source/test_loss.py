"""One rule for loss: over the wire, from files densely or sparsely, in batches and streams, nothing is less in silence.

The server's log has files of 64 KiB: retention has freed the first ones, some messages are damaged on the disk.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from maxq.api import Admin, Message, MessageQueue, Producer
from maxq.errors import DataLossError
from maxq.pipeline.options.option_values import OptionValues
from maxq.pipeline.options.predicate import given_conditions
from maxq.pipeline.options.read_options import ReadOptions
from maxq.pipeline.source import files as files_module
from maxq.pipeline.source.batch_source import Conditions, plan_batch
from maxq.pipeline.source.pushdown import conditions_of
from maxq.pipeline.source.scan import read_scan
from maxq.pipeline.source.stream_source import TopicStream
from maxq.pipeline.wire.queue_range import QueueRange
from maxq.pipeline.wire.wire_client import TopicRoute, WireClient
from maxq.pipeline.wire.wire_reader import WireReader
from maxq.protocol.body.topic_config import TopicConfig
from maxq.standalone import Standalone

COUNT, SIZE = 400, 500
WAYS = ["wire", "dense", "sparse"]
Read = Callable[..., list[int]]


@pytest.fixture(scope="module")
def cut(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    """A server that retention has freed log files of."""
    folder = tmp_path_factory.mktemp("cut")
    settings = {"mappedFileSizeCommitLog": str(64 << 10), "enablePropertyFilter": "true"}
    with Standalone(folder, settings=settings) as server:
        with Admin(server.namesrv_address) as admin:
            for topic in ("Cut", "Damaged", "Beside"):
                admin.topics.create(server.broker_address, TopicConfig(topic, 1, 1))
        with Producer("tests", server.namesrv_address) as producer:
            for first in range(0, COUNT, 50):
                for topic in ("Cut", "Beside"):
                    producer.send_batch([Message(topic, b"%d" % n + bytes(SIZE)) for n in range(first, first + 50)])
            for n in range(20):
                message = Message("Damaged", b"damaged %d" % n + bytes(SIZE))
                message.tags = "odd" if n % 2 else "even"
                producer.send(message)
    for path in sorted((server.store / "commitlog").iterdir())[:2]:
        path.unlink()  # as retention does
    with Standalone(folder, settings=settings) as server:
        yield server


def options(server: Standalone, topic: str, way: str, **more: str) -> ReadOptions:
    given = {"rocketmq.namesrv": server.namesrv_address, "subscribe": topic, "rocketmq.brokerWait": "2s"}
    if way != "wire":
        given |= {"readFrom": "files", "storePath": str(server.store)}
    streaming = more.pop("streaming", "") == "yes"
    return ReadOptions.parse(given | more, streaming=streaming)


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(files_module, "_DENSE", {"dense": 0.0}.get(request.param, 1.1))
    return str(request.param)


def batch(server: Standalone, topic: str, way: str, conditions: Conditions | None = None, **more: str) -> list[int]:
    """Offsets that a batch gives."""
    wanted, conditions = options(server, topic, way, **more), conditions or Conditions()
    parts = plan_batch(wanted, conditions)
    assert way == "wire" or any(part.files for part in parts), "nothing was read from files"
    return sorted(
        row["queueOffset"]
        for part in parts
        for one in read_scan(wanted, part, conditions.hint)
        for row in one.to_pylist()
    )


def from_zero(topic: str) -> str:
    return f'{{"{topic}": {{"broker-a": {{"0": 0}}}}}}'


def test_what_retention_freed_is_an_error_in_a_batch(
    cut: Standalone, way: str, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(DataLossError, match=r"queue Cut/broker-a/0: wanted offset 0, available are \d+ to 400 "):
        batch(cut, "Cut", way, startingOffsets=from_zero("Cut"))
    found = batch(cut, "Cut", way, startingOffsets=from_zero("Cut"), failOnDataLoss="false")
    assert 0 < found[0] == COUNT - len(found)
    assert f"{found[0]} messages are lost" in caplog.text
    assert batch(cut, "Cut", way) == found  # from the earliest that is there nothing is lost


def test_what_retention_freed_is_an_error_in_a_stream(cut: Standalone, way: str) -> None:
    """The stream stood at 0 when the messages went."""

    def trigger(**more: str) -> list[int]:
        wanted = options(cut, "Cut", way, streaming="yes", **more)
        stream = TopicStream(wanted)
        start = {"Cut": {"broker-a": {"0": 0}}}
        parts = stream.partitions(start, stream.latest_offset(start, limited=False))
        stream.stop()
        return sorted(
            row["queueOffset"] for part in parts for one in read_scan(wanted, part) for row in one.to_pylist()
        )

    with pytest.raises(DataLossError, match="queue Cut/broker-a/0: wanted offset 0"):
        trigger()
    assert trigger(failOnDataLoss="false") == batch(cut, "Cut", way)


def flip(server: Standalone, text: bytes, at: int) -> tuple[Path, int]:
    """Change one byte of the log: `at` bytes from where `text` is."""
    for path in sorted((server.store / "commitlog").iterdir()):
        place = path.read_bytes().find(text)
        if place >= 0:
            with path.open("r+b") as file:
                file.seek(place + at)
                byte = file.read(1)[0] ^ 1
                file.seek(place + at)
                file.write(bytes([byte]))
            return path, place + at
    raise AssertionError("it is not in the log")


@pytest.fixture(scope="module")
def damaged(cut: Standalone) -> Standalone:
    """Of `Damaged`, message 3 has a body that is not what was sent, message 12 a head that is none."""
    flip(cut, b"damaged 3\0", 0)
    body = b"damaged 12\0"
    flip(cut, body, -88 + 4 + 1)  # in the magic code: 88 bytes are before a body
    return cut


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    """Of the topic's 20 messages 12 and 13 are damaged, and the start after it has put a filler over them."""
    folder = tmp_path_factory.mktemp("filled")
    settings = {"mappedFileSizeCommitLog": str(64 << 10), "enablePropertyFilter": "true"}
    with Standalone(folder, settings=settings) as server:
        with Admin(server.namesrv_address) as admin:
            admin.topics.create(server.broker_address, TopicConfig("Damaged", 1, 1))
        with Producer("tests", server.namesrv_address) as producer:
            for n in range(20):
                message = Message("Damaged", b"damaged %d\0" % n + bytes(SIZE))
                message.tags, message.keys = "odd" if n % 2 else "even", "all"
                producer.send(message)
    flip(server, b"damaged 12\0", 0)
    flip(server, b"damaged 13\0", 0)
    (server.store / "abort").touch()  # as after a kill
    for name in ("checkpoint", "inventory.json"):
        (server.store / name).unlink(missing_ok=True)
    with Standalone(folder, settings=settings) as server:
        assert (server.store / "damaged").exists(), "no filler was put over them"
        yield server


FILTERS = [
    ({}, range(20)),
    ({"subExpression": "odd"}, range(1, 20, 2)),
    ({"subExpression": "even"}, range(0, 20, 2)),
    ({"predicate": '[["tags","=","odd"]]'}, range(1, 20, 2)),
    ({"predicate": '[["keys","contains","all"]]'}, range(20)),
    ({"subExpressionType": "SQL92", "subExpression": "TAGS = 'odd'"}, range(1, 20, 2)),
    ({"subExpressionType": "SQL92", "subExpression": "TAGS = 'none of them'"}, []),
]


# A broker evaluates SQL92, so that files are not read then.
@pytest.mark.parametrize(
    ("way", "given", "wanted"),
    [(way, *one) for one in FILTERS for way in WAYS if way == "wire" or "subExpressionType" not in one[0]],
    indirect=["way"],
    ids=str,
)
def test_filled_damage_is_seen_through_every_filter(
    filled: Standalone, way: str, given: dict[str, str], wanted: Sequence[int], caplog: pytest.LogCaptureFixture
) -> None:
    predicate = given_conditions(OptionValues(given, "rocketmq"))
    conditions = conditions_of(predicate, with_hint="subExpression" not in given)
    kind = dict(given)
    kind.pop("predicate", None)
    with pytest.raises(DataLossError, match=r"queue Damaged/broker-a/0: wanted offset 12, .* 2 offsets "):
        batch(filled, "Damaged", way, conditions, **kind)
    found = batch(filled, "Damaged", way, conditions, failOnDataLoss="false", **kind)
    assert [n for n in found if n in wanted] == [n for n in wanted if n not in (12, 13)]
    assert "2 messages are lost" in caplog.text


def test_a_damaged_record_is_an_error_or_counted(
    damaged: Standalone, way: str, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(DataLossError, match=r"queue Damaged/broker-a/0: wanted offset (3|12), "):
        batch(damaged, "Damaged", way)
    found = batch(damaged, "Damaged", way, failOnDataLoss="false")
    assert found == [n for n in range(20) if n not in (3, 12)]
    lines = [record.getMessage() for record in caplog.records if "are lost" in record.getMessage()]
    assert sum(int(line.split()[0]) for line in lines) == 2
    assert "the CRC of its body is wrong" in caplog.text


def test_a_damaged_body_that_nobody_wants_is_no_loss(damaged: Standalone, way: str) -> None:
    """Every way gives the same rows."""
    found = batch(damaged, "Damaged", way, columns="queueOffset", failOnDataLoss="false")
    assert found == [n for n in range(20) if n != 12]


def test_a_damaged_record_is_seen_through_a_filter_by_tags(damaged: Standalone, way: str) -> None:
    with pytest.raises(DataLossError, match=r"queue Damaged/broker-a/0: wanted offset 3, "):
        batch(damaged, "Damaged", way, subExpression="odd")
    found = batch(damaged, "Damaged", way, subExpression="odd", failOnDataLoss="false")
    assert found == [n for n in range(1, 20, 2) if n != 3]
    lost = "12" if way == "wire" else "3"  # of what files do not give, nobody knows the tags
    with pytest.raises(DataLossError, match=rf"queue Damaged/broker-a/0: wanted offset {lost}, "):
        batch(damaged, "Damaged", way, subExpression="even")
    found = batch(damaged, "Damaged", way, subExpression="even", failOnDataLoss="false")
    assert found == [n for n in range(0, 20, 2) if n != 12]


def test_a_damaged_record_is_seen_through_a_filter_by_properties(damaged: Standalone) -> None:
    """Its properties can not be read: it may be one of those that are wanted."""
    given = {"subExpressionType": "SQL92", "subExpression": "TAGS = 'odd'"}
    with pytest.raises(DataLossError, match=r"queue Damaged/broker-a/0: wanted offset (3|12), "):
        batch(damaged, "Damaged", "wire", **given)
    found = batch(damaged, "Damaged", "wire", failOnDataLoss="false", **given)
    assert found == [n for n in range(1, 20, 2) if n != 3]


def test_a_batch_is_whole_while_the_broker_writes(cut: Standalone, way: str) -> None:
    """Whatever of it the files have already, and whatever they do not have yet."""
    topic = f"Growing-{way}"
    with Admin(cut.namesrv_address) as admin:
        admin.topics.create(cut.broker_address, TopicConfig(topic, 1, 1))
    rounds = threading.Semaphore(0)

    def write() -> None:
        with Producer("growing", cut.namesrv_address) as producer:
            for n in range(0, 1_200, 20):
                if n % 200 == 0:
                    rounds.acquire()
                producer.send_batch([Message(topic, b"%d" % n + bytes(200)) for _ in range(20)])

    def read() -> int:
        wanted = options(cut, topic, way)
        parts = plan_batch(wanted, Conditions())
        found = [row["queueOffset"] for part in parts for one in read_scan(wanted, part) for row in one.to_pylist()]
        assert sorted(found) == list(range(len(found)))
        return len(found)

    writer = threading.Thread(target=write)
    writer.start()
    counts = []
    for _ in range(6):
        rounds.release()
        counts.append(read())
    writer.join()
    assert counts == sorted(counts)
    assert read() == 1_200


@pytest.mark.parametrize("topic", ["Cut", "Damaged"])
def test_what_only_a_slave_does_not_have_is_read_of_the_master(
    damaged: Standalone, tmp_path: Path, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The slave is one that corrects offsets (offsetCheckInSlave) below those that it has."""
    with Standalone(tmp_path) as master:
        with Admin(master.namesrv_address) as admin:
            admin.topics.create(master.broker_address, TopicConfig(topic, 1, 1))
        with Producer("tests", master.namesrv_address) as producer:
            producer.send_batch([Message(topic, b"%d" % n) for n in range(20)])
        brokers = {0: master.broker_address, 1: damaged.broker_address}
        route = TopicRoute({MessageQueue(topic, "broker-a", 0): "broker-a"}, {"broker-a": brokers})
        monkeypatch.setattr(WireClient, "route", lambda client, name: route)
        wanted = options(master, topic, "wire", readFrom="slave", failOnDataLoss="false")
        reader = WireReader(wanted).read([QueueRange(topic, "broker-a", 0, 0, 20)])
        assert [row["queueOffset"] for one in reader for row in one.to_pylist()] == list(range(20))
