"""Over the wire every message of a range comes once, from brokers that answer much at once and from others."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from maxq.api import Admin, Message, MessageQueue, Producer
from maxq.arrow.message_columns import batch_of_messages
from maxq.client.instance.pull_api import unpack
from maxq.errors import DataLossError, PipelineError
from maxq.pipeline.options.read_options import ReadOptions
from maxq.pipeline.records.record_batches import RecordBatches, scan_rows
from maxq.pipeline.source.offsets import OffsetRange
from maxq.pipeline.source.scan import wire_partitions
from maxq.pipeline.wire import wire_reader
from maxq.pipeline.wire.queue_range import QueueRange
from maxq.pipeline.wire.wire_client import WireClient
from maxq.pipeline.wire.wire_reader import WireReader
from maxq.protocol.body.topic_config import TopicConfig
from maxq.protocol.message.message import MessageExt, decode_records, encode_record
from maxq.protocol.message.message_sys_flag import MessageSysFlag
from maxq.standalone import Standalone
from maxq.store.log import record_cy
from tests.short_form import times
from tests.unit.pipeline.conftest import Fill


def options(server: Standalone, topic: str, **more: str) -> ReadOptions:
    given = {"rocketmq.namesrv": server.namesrv_address, "subscribe": topic} | more
    return ReadOptions.parse(given, streaming=False)


def read(server: Standalone, topic: str, ranges: list[tuple[int, int, int]], **more: str) -> list[dict[str, object]]:
    reader = WireReader(options(server, topic, **more))
    wanted = [QueueRange(topic, "broker-a", queue, first, last) for queue, first, last in ranges]
    return [row for batch in reader.read(wanted) for row in batch.to_pylist()]


@contextmanager
def plain_answers(admin: Admin, server: Standalone) -> Iterator[None]:
    """The broker answers as a Java broker does."""
    admin.brokers.update_config(server.broker_address, {"bulkPullMaxBytes": "0"})
    yield
    admin.brokers.update_config(server.broker_address, {"bulkPullMaxBytes": str(8 << 20)})


def make(admin: Admin, server: Standalone, topic: str, queues: int = 2) -> None:
    admin.topics.create(server.broker_address, TopicConfig(topic, queues, queues))


@pytest.fixture(scope="module")
def filled(server: Standalone, admin: Admin, producer: Producer) -> str:
    """Queue 0 of Filled has 700 messages, queue 1 has 90."""
    make(admin, server, "Filled")
    for queue_id, count in ((0, 700), (1, 90)):
        for n in range(count):
            message = Message("Filled", b"%d/%d" % (queue_id, n), {"n": str(n)})
            message.tags, message.keys = "TagA" if n % 2 else "TagB", [f"k{n}"]
            producer.send_oneway(message, queue=MessageQueue("Filled", "broker-a", queue_id))
        producer.send(Message("Filled", b"last"), queue=MessageQueue("Filled", "broker-a", queue_id))
    return "Filled"


@pytest.mark.parametrize("large", [True, False])
def test_a_range_comes_whole_and_in_order(server: Standalone, admin: Admin, filled: str, large: bool) -> None:
    if large:
        rows = read(server, filled, [(0, 5, 700), (1, 0, 90)])
    else:
        with plain_answers(admin, server):
            rows = read(server, filled, [(0, 5, 700), (1, 0, 90)])
    assert [(row["queueId"], row["queueOffset"]) for row in rows] == [(0, n) for n in range(5, 700)] + [
        (1, n) for n in range(90)
    ]
    assert all(row["body"] == b"%d/%d" % (row["queueId"], row["queueOffset"]) for row in rows)
    assert ("n", "5") in rows[0]["properties"]  # type: ignore[operator]
    assert (rows[0]["tags"], rows[0]["keys"], rows[0]["brokerName"]) == ("TagA", ["k5"], "broker-a")


@settings(max_examples=times(25), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    ends=st.tuples(st.integers(0, 700), st.integers(0, 90)),
    min_parts=st.none() | st.integers(1, 40),
    max_records=st.none() | st.integers(1, 300),
    fetch=st.sampled_from(["4k", "20k", "4m"]),
)
def test_any_split_gives_the_same_rows_once(
    server: Standalone, filled: str, ends: tuple[int, int], min_parts: int | None, max_records: int | None, fetch: str
) -> None:
    if max_records is not None and max_records < 20:
        max_records += 20
    ranges = [OffsetRange(MessageQueue(filled, "broker-a", queue), 0, end) for queue, end in enumerate(ends) if end]
    parts = wire_partitions(ranges, min_parts=min_parts, max_records=max_records)
    reader = WireReader(options(server, filled, columns="queueId,queueOffset,body", fetchBytes=fetch))
    found = [row for part in parts for batch in reader.read(part.ranges) for row in batch.to_pylist()]
    assert sorted((row["queueId"], row["queueOffset"]) for row in found) == [
        (queue, offset) for queue, end in enumerate(ends) for offset in range(end)
    ]


def test_columns_without_body_do_not_ship_it(server: Standalone, filled: str) -> None:
    from maxq.pipeline.wire.wire_reader import pull_settings

    assert pull_settings(options(server, filled)).omit == ""
    assert pull_settings(options(server, filled, columns="tags,queueId")).omit == "body"
    assert pull_settings(options(server, filled, columns="topic,bodyCrc")).omit == "body,properties"
    assert pull_settings(options(server, filled, columns="topic,bodyFault")).omit == "", "it is told by the body"
    whole = read(server, filled, [(1, 0, 90)])
    for columns in ("queueOffset,bodyCrc,msgId,storeTimestamp", "tags,uniqKey,keys"):
        names = columns.split(",")
        less = read(server, filled, [(1, 0, 90)], columns=columns)
        assert less == [{name: row[name] for name in names} for row in whole]


@pytest.mark.parametrize("kind", ["TAG", "SQL92"])
def test_the_broker_selects_by_tag_or_sql92(server: Standalone, filled: str, kind: str) -> None:
    expression = "TagB" if kind == "TAG" else "n BETWEEN 10 AND 19 AND TAGS = 'TagB'"
    rows = read(server, filled, [(0, 0, 300)], subExpression=expression, subExpressionType=kind)
    assert [row["queueOffset"] for row in rows] == list(range(0, 300, 2) if kind == "TAG" else range(10, 20, 2))


def test_tags_of_equal_hash_are_told_apart(server: Standalone, admin: Admin, producer: Producer) -> None:
    make(admin, server, "Hashes", 1)
    for tag in ("Aa", "BB", "Aa"):
        message = Message("Hashes", tag.encode())
        message.tags = tag
        producer.send(message)
    assert [row["body"] for row in read(server, "Hashes", [(0, 0, 3)], subExpression="BB", columns="body")] == [b"BB"]


def test_compressed_bodies_come_out_as_they_were(server: Standalone, admin: Admin, filled: str) -> None:
    make(admin, server, "Large", 1)
    body = b"abc" * 5_000
    with Producer("zip", server.namesrv_address) as producer:
        producer.send(Message("Large", body))
    (row,) = read(server, "Large", [(0, 0, 1)])
    assert row["body"] == body
    assert row["sysFlag"] & 1  # type: ignore[operator]


def test_expired_offsets_are_an_error_that_names_them_or_are_counted(
    server: Standalone, admin: Admin, fill: Fill, caplog: pytest.LogCaptureFixture
) -> None:
    make(admin, server, "Behind", 1)
    fill("Behind", 0, 10)
    queue = QueueRange("Behind", "broker-a", 0, 12, 20)
    soon = {"rocketmq.brokerWait": "200ms"}
    with pytest.raises(DataLossError) as raised:
        list(WireReader(options(server, "Behind", **soon)).read([queue]))
    assert (raised.value.queue, raised.value.wanted, raised.value.available) == ("Behind/broker-a/0", 12, (0, 10))
    assert "wanted offset 12, available are 0 to 10" in str(raised.value)
    assert list(WireReader(options(server, "Behind", failOnDataLoss="false", **soon)).read([queue])) == []
    assert "8 messages are lost and skipped" in caplog.text
    assert (
        "queue Behind/broker-a/0: wanted offset 12, available are 0 to 10 (excluded), 8 offsets (12 to 19)"
        in caplog.text
    )


def test_a_broker_that_refuses_says_why(server: Standalone, admin: Admin) -> None:
    admin.topics.create(server.broker_address, TopicConfig("Closed", 1, 1, 2))
    more = {"rocketmq.brokerWait": "100ms"}
    with pytest.raises(PipelineError, match=r"Closed/broker-a/0.*(no broker|forbidden|CODE: 16)"):
        list(WireReader(options(server, "Closed", **more)).read([QueueRange("Closed", "broker-a", 0, 0, 5)]))


def test_ends_times_and_group_offsets_are_asked_in_one_go(server: Standalone, filled: str) -> None:
    queues = [MessageQueue(filled, "broker-a", number) for number in range(2)]
    with WireClient(options(server, filled).connection) as client:
        highest, failed = client.max_offsets(queues)
        assert ([highest[queue].offset for queue in queues], failed) == ([701, 91], {})
        assert all(seen.is_master for seen in highest.values())
        lowest, _ = client.min_offsets(queues)
        assert [lowest[queue].offset for queue in queues] == [0, 0]
        later, _ = client.offsets_by_time(dict.fromkeys(queues, 9_000_000_000_000))
        assert [later[queue].offset for queue in queues] == [701, 91]
        client.introduce("wire-group", queues)
        assert client.commit("wire-group", {queues[0]: 17}) == {}
        found, _ = client.group_offsets("wire-group", queues)
        assert found == {queues[0]: 17, queues[1]: None}


def test_schema_is_that_of_the_columns(server: Standalone, filled: str) -> None:
    reader = WireReader(options(server, filled, columns="keys,queueOffset"))
    batch = next(reader.read([QueueRange(filled, "broker-a", 1, 0, 3)]))
    assert batch.schema.names == ["keys", "queueOffset"]
    assert batch.schema.field("queueOffset").type == pa.int64()


@pytest.mark.parametrize("fetch", ["4k", "4m"])
def test_each_record_is_scanned_once(
    server: Standalone, filled: str, fetch: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However small the chunks are that a broker sends, and though the last one is cut at the range's end."""
    scanned = 0
    scan = record_cy.scan

    def counted(view: memoryview, start: int, *others: Any, **checks: bool) -> tuple[int, int, int]:
        nonlocal scanned
        count, position, reason = scan(view, start, *others, **checks)
        scanned += count
        return count, position, reason

    monkeypatch.setattr(record_cy, "scan", counted)
    reader = WireReader(options(server, filled, fetchBytes=fetch))
    ranges = [QueueRange(filled, "broker-a", 0, 3, 700), QueueRange(filled, "broker-a", 1, 0, 90)]
    rows = [row for batch in reader.read(ranges) for row in batch.to_pylist()]
    assert [row["body"] for row in rows] == [b"0/%d" % n for n in range(3, 700)] + [b"1/%d" % n for n in range(90)]
    assert scanned == len(rows)


def test_what_is_wrongly_marked_as_a_batch_is_one_message() -> None:
    """Java's broker believes its producers; a job must not end at each such message."""
    marked = MessageSysFlag.INNER_BATCH | MessageSysFlag.NEED_UNWRAP
    sent = [(b"before", 0), (b"no batch", marked), (b"", marked), (b"behind", 0)]
    view = memoryview(
        b"".join(
            encode_record(
                MessageExt("T", body, {}, queue_offset=n, sys_flag=flag, store_host=bytes(8), born_host=bytes(8))
            )
            for n, (body, flag) in enumerate(sent)
        )
    )
    rows, _, _ = scan_rows(view, 0, len(view), 0, 9, check_offset=False)
    assert bytes(wire_reader._unpacked(view, rows)) == bytes(view)


def test_what_is_wrongly_marked_as_a_batch_has_the_fault_that_poll_arrow_tells() -> None:
    marked = MessageSysFlag.INNER_BATCH | MessageSysFlag.NEED_UNWRAP
    sent = [
        MessageExt("T", body, {}, queue_offset=n, sys_flag=flag, store_host=bytes(8), born_host=bytes(8))
        for n, (body, flag) in enumerate(
            [(b"before", 0), (b"no batch", marked), (b"", marked), (b"no zip", marked | 1), (b"no zip", 1)]
        )
    ]
    data = b"".join(map(encode_record, sent))
    told = [one for message in decode_records(data, inflate=True) for one in unpack(message)]
    columns = ("body", "bodyFault")
    expected = batch_of_messages(told, columns).to_pylist()
    assert [bool(row["bodyFault"]) for row in expected] == [False, True, True, True, True]
    rows, _, _ = scan_rows(memoryview(data), 0, len(data), 0, 9, check_offset=False)
    reader = WireReader(ReadOptions.parse({"rocketmq.namesrv": "localhost:1", "subscribe": "T"}, streaming=False))
    for cut in (5, 2):
        made = RecordBatches(columns, "b")
        made.max_rows = cut
        batches = list(reader._batches(made, memoryview(data), rows))
        assert [row for batch in batches for row in batch.to_pylist()] == expected
    (without,) = reader._batches(RecordBatches(("body",), "b"), memoryview(data), rows)
    assert without.column("body").to_pylist() == [row["body"] for row in expected]
