"""Trace messages as tables, against a naive reading of the same bytes."""

import datetime
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from maxq.pipeline.transforms import latency, trace_tables
from maxq.pipeline.transforms.coverage import queue_coverage
from maxq.pipeline.transforms.trace_records import trace_records
from tests.pipeline import naive_trace as naive

SCHEMA = "body binary, brokerName string, queueId int, queueOffset bigint, bornHost string, storeTimestamp timestamp"
T0 = 1_700_000_000_000
PRODUCER, CONSUMER = "10.0.0.1", "10.0.0.2"


def at(milliseconds: int) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(milliseconds / 1000, datetime.UTC)


def messages(spark: SparkSession, bodies: list[tuple[str, bytes]]) -> DataFrame:
    rows = [
        (bytearray(data), "broker-a", 0, offset, f"{client}:5{offset:04}", at(T0 + offset))
        for offset, (client, data) in enumerate(bodies)
    ]
    return spark.createDataFrame(rows, SCHEMA)


SENT = [naive.pub(T0 + 10 * n, f"M{n}", tags="a" if n % 2 else "null", cost=n) for n in range(20)]
CONSUMED = [
    record
    for n in range(18)
    for record in (
        naive.begun(T0 + 10 * n + 7 + n, f"R{n}", f"M{n}"),
        naive.ended(T0 + 10 * n + 99, f"R{n}", f"M{n}", cost=2 * n, success=n != 5),
    )
]
OTHERS = [
    naive.pub(T0, "B1,B2,B3", topic="Batch", cost=9),
    naive.pub(T0, "L1", topic="Lonely"),
    naive.pub(T0, "D1", kind=3, cost=1),
    naive.pub(T0, "X1", kind=1, cost=2),
    naive.pub(T0, "X2", kind=1, cost=2),
    naive.transaction(T0 + 500, "X1", "COMMIT_MESSAGE"),
    naive.transaction(T0 + 500, "X2", "ROLLBACK_MESSAGE"),
    naive.pub(T0, "C1", tags="a"),
    naive.recall(T0 + 5, "C1"),
]
LATER = [
    naive.begun(T0 + 520, "RX", "X1"),
    naive.ended(T0 + 530, "RX", "X1", cost=10),
    naive.begun(T0 + 700, "R5b", "M5", retry=1),
    naive.ended(T0 + 710, "R5b", "M5", cost=1),
    naive.begun(T0 + 9000, "RD", "D1"),
    naive.begun(T0 + 9000, "RU", "UNKNOWN"),
    naive.ended(T0 + 9009, "RU", "UNKNOWN"),
]
BODIES = [
    (PRODUCER, naive.body(*SENT[:11])),
    (CONSUMER, naive.body(*CONSUMED)),
    (PRODUCER, naive.body(*SENT[11:], *OTHERS)),
    (CONSUMER, naive.body(*LATER)),
]


@pytest.fixture(scope="module")
def records(spark: SparkSession) -> DataFrame:
    return trace_records(messages(spark, BODIES)).cache()


@pytest.fixture(scope="module")
def sent(records: DataFrame) -> DataFrame:
    return trace_tables.sent_messages(records).cache()


@pytest.fixture(scope="module")
def consumed(records: DataFrame) -> DataFrame:
    return trace_tables.consumptions(records).cache()


def plain(row: Row) -> dict[str, Any]:
    """Return the fields of a row that the naive parser has as well."""
    found = {name: value for name, value in row.asDict().items() if value is not None}
    if "fault" in found:
        return {"fault": True}
    return found


def test_records_are_those_of_a_naive_reading(records: DataFrame) -> None:
    names = [
        "kind", "groupName", "topic", "messageId", "tags", "bodyLength", "costMs", "messageType", "success",
        "requestId", "retryTimes", "outcome", "transactionState", "fromCheck", "fault",
    ]  # fmt: skip
    rows = records.select(*names, F.unix_millis("at").alias("at")).collect()
    expected = [record for _, data in BODIES for record in naive.parse(data)]
    expected = [{k: v for k, v in r.items() if v is not None} for r in expected]
    assert [plain(row) for row in rows] == expected
    assert len(rows) == 20 + 36 + len(OTHERS) + len(LATER)


def test_coverage_counts_messages_and_not_records(records: DataFrame) -> None:
    (row,) = queue_coverage(records, "reportedAt").collect()
    assert (row.brokerName, row.queueId, row.messages, row.firstOffset, row.lastOffset) == ("broker-a", 0, 4, 0, 3)


def test_broken_records_are_faults_and_harm_no_other(spark: SparkSession) -> None:
    good = naive.pub(T0, "M1")
    broken: dict[str, bytes] = {
        "no record": b"",
        "unknown kind": naive.body(["Pubb", 1]),
        "too few fields": naive.body(good[:12]),
        "timestamp is no number": naive.body(["Pub", "12x", *good[2:]]),
        "cost is no number": naive.body([*good[:10], "", *good[11:]]),
        "retryTimes is no number": naive.body(["SubBefore", T0, "r", "g", "q", "m", "null", "k"]),
        "outcome is no number": naive.body(["SubAfter", "q", "m", 1, "true", "k", "FINE"]),
        "timestamp is no time": naive.body(["Pub", 10**17, *good[2:]]),
    }
    bodies = [("h", data + naive.body(good) if data else data) for data in broken.values()]
    bodies += [("h", b"\xff\xfe\x02" + naive.body(good)), ("h", b"Pub\x01" + bytes(range(256)))]
    found = trace_records(messages(spark, bodies)).collect()
    assert [row.fault for row in found if row.queueOffset < len(broken) and row.fault] == list(broken)
    sound = [row for row in found if row.fault is None]
    assert [row.messageId for row in sound] == ["M1"] * len(broken)  # each but `no record`, and the one after \xff\xfe
    assert all(row.record and row.kind is None for row in found if row.fault and row.fault != "no record")
    counts = trace_tables.record_counts(trace_records(messages(spark, bodies))).collect()
    assert sum(row["count"] for row in counts if row.fault) == len(found) - len(sound)


def test_older_and_cloud_forms_are_read(spark: SparkSession) -> None:
    old = naive.pub(T0, "M1", success=False)
    del old[12]  # the offset message id came later
    newer = [*naive.pub(T0, "M2"), "192.0.2.1"]
    after = naive.ended(T0, "R", "M1")
    bodies = [("h", naive.body(old, newer, after[:6], [*after[:7], ""], after))]
    rows = trace_records(messages(spark, bodies)).collect()
    assert [row.fault for row in rows] == [None] * 5
    assert [(row.success, row.offsetMessageId) for row in rows[:2]] == [(False, None), (True, "0A0B")]
    assert [(row.outcome, row.groupName) for row in rows[2:]] == [(None, None), ("SUCCESS", None), ("SUCCESS", "CG")]


def test_latencies_are_those_of_a_naive_reading(sent: DataFrame, consumed: DataFrame) -> None:
    parsed = [(client, record) for client, data in BODIES for record in naive.parse(data)]
    expected = naive.latency_rows([record for _, record in parsed], [client for client, _ in parsed])
    by = ("measure", "topic", "groupName", "client")
    measured = trace_tables.latencies(sent, consumed).cache()
    found = {tuple(row)[:4]: row for row in latency.latency_table(measured, by).collect()}
    assert found.keys() == expected.keys()
    for key, values in expected.items():
        row = found[key]
        assert [row.p50Ms, row.p90Ms, row.p99Ms, row.p999Ms] == naive.percentiles(values), key
        assert (row["count"], row.minMs, row.maxMs) == (len(values), min(values), max(values))
        assert row.meanMs == pytest.approx(sum(values) / len(values))
    assert found["consume", "T", "CG", CONSUMER].failed == 1
    steps = latency.latency_distribution(measured.where("measure = 'send'"), ("topic",)).collect()
    costs = expected["send", "T", "PG", PRODUCER]
    below_five = sum(row["count"] for row in steps if row.topic == "T" and row.belowMs <= 5)
    assert below_five == sum(value < 5 for value in costs)
    course = latency.latency_over_time(measured.where("measure = 'send' and topic = 'T'"), ("measure",), 50).collect()
    assert sum(row["count"] for row in course) == len(costs)
    assert all(row.stepMs % 50 == 0 for row in course)


def test_store_times_come_from_the_messages_where_they_are_given(
    spark: SparkSession, sent: DataFrame, consumed: DataFrame
) -> None:
    stored = spark.createDataFrame(
        [("M3", at(T0 + 31)), ("M3", at(T0 + 35))], "messageId string, storeTimestamp timestamp"
    )
    rows = trace_tables.latencies(sent, consumed, stored).where("measure = 'store'").collect()
    assert [(row.messageId, row.ms) for row in rows] == [("M3", 1)]


def test_undelivered_messages_are_named_with_their_group_and_state(
    spark: SparkSession, sent: DataFrame, consumed: DataFrame
) -> None:
    found = trace_tables.undelivered(sent, consumed, until_ms=T0 + 20_000, grace_ms=5_000).collect()
    assert {(row.messageId, row.groupName, row.state) for row in found} == {
        ("M18", "CG", "not begun"), ("M19", "CG", "not begun"),
        ("L1", None, "not begun"),  # and not those of the batch, whose consumption is not traced
    }  # fmt: skip
    early = trace_tables.undelivered(sent, consumed, until_ms=T0 + 5_175, grace_ms=5_000).collect()
    assert {row.messageId for row in early} == {"L1"}
    assert [row.sentAt for row in found] == sorted(row.sentAt for row in found)


def test_failed_and_unfinished_consumptions_are_undelivered(spark: SparkSession) -> None:
    data = naive.body(
        naive.pub(T0, "F"), naive.begun(T0 + 1, "R1", "F"), naive.ended(T0 + 2, "R1", "F", success=False),
        naive.pub(T0, "U"), naive.begun(T0 + 1, "R2", "U"),
        naive.pub(T0, "G"), naive.begun(T0 + 1, "R3", "G"), naive.ended(T0 + 2, "R3", "G", success=False),
        naive.begun(T0 + 9, "R4", "G", retry=1), naive.ended(T0 + 12, "R4", "G"),
        naive.begun(T0 + 9, "R5", "G", group="Other"), naive.ended(T0 + 12, "R5", "G", group="Other"),
    )  # fmt: skip
    records = trace_records(messages(spark, [("h", data), ("h", data)]))  # a trace may come twice
    sent, consumed = trace_tables.sent_messages(records), trace_tables.consumptions(records)
    found = trace_tables.undelivered(sent, consumed, until_ms=T0 + 10_000, grace_ms=0).collect()
    assert [(row.messageId, row.groupName, row.state, row.retryTimes) for row in found] == [
        ("F", "CG", "failed", 0), ("F", "Other", "not begun", None),
        ("U", "CG", "not ended", 0), ("U", "Other", "not begun", None),
    ]  # fmt: skip
    assert (sent.count(), consumed.count()) == (3, 5)


def test_slow_messages_are_the_slowest_first(sent: DataFrame, consumed: DataFrame) -> None:
    measured = trace_tables.latencies(sent, consumed)
    found = trace_tables.slow_messages(measured, 30).collect()
    assert [(row.messageId, row.measure, row.ms) for row in found] == [
        ("M17", "consume", 34), ("M16", "consume", 32), ("M15", "consume", 30),
    ]  # fmt: skip


def test_way_of_one_message(records: DataFrame) -> None:
    rows = trace_tables.message_way(records, "M5").collect()
    assert [(row.event, row.success, row.retryTimes, row.client) for row in rows] == [
        ("sent", True, None, PRODUCER),
        ("consumption begun", None, 0, CONSUMER),
        ("consumption ended", False, None, CONSUMER),
        ("consumption begun", None, 1, CONSUMER),
        ("consumption ended", True, None, CONSUMER),
    ]
    assert [row.event for row in trace_tables.message_way(records, "B2").collect()] == ["sent"]
    assert rows[2].detail == "FAILED"
