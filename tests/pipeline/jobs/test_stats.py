"""Statistics of messages, against counting by hand."""

import collections
import datetime
import json
import statistics
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import maxq
from maxq.api import Admin, Message, Producer
from maxq.pipeline.jobs.message_input import MessageInput
from maxq.pipeline.jobs.stats import StatsSettings, run_stats
from maxq.pipeline.reports.stats_report import stats_report
from maxq.pipeline.transforms import group_lag, message_stats
from maxq.pipeline.transforms.time_steps import time_step_ms
from maxq.protocol.body.subscription import SubscriptionGroupConfig

SCHEMA = (
    "body binary, topic string, keys array<string>, brokerName string, queueId int, queueOffset bigint, "
    "physicalOffset bigint, storeTimestamp timestamp"
)
T0 = 1_700_000_000_000
STEP = 1000


def at(milliseconds: int) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(milliseconds / 1000, datetime.UTC)


def message(number: int) -> dict[str, Any]:
    """Topic A has three of four messages, most of them in queue 0 and with the key `hot`, which they name twice."""
    keys = ["hot", f"k{number}", "hot"] if number % 3 else [f"k{number}"] if number % 2 else []
    return {
        "topic": "B" if number % 4 == 0 else "A", "keys": keys, "queueId": 1 if number % 5 == 0 else 0,
        "bytes": number * 7 % 300, "ms": T0 + 333 * number, "physicalOffset": 10_000 + 250 * number,
    }  # fmt: skip


MESSAGES = [message(number) for number in range(60)]
OFFSETS: collections.Counter[tuple[str, int]] = collections.Counter()
for one in MESSAGES:
    one["queueOffset"] = OFFSETS[one["topic"], one["queueId"]]
    OFFSETS[one["topic"], one["queueId"]] += 1


@pytest.fixture(scope="module")
def sized(spark: SparkSession) -> DataFrame:
    rows = [
        (bytearray(m["bytes"]), m["topic"], m["keys"] or None, "a", m["queueId"], m["queueOffset"],
         m["physicalOffset"], at(m["ms"]))
        for m in MESSAGES
    ]  # fmt: skip
    return message_stats.sized_messages(spark.createDataFrame(rows, SCHEMA)).cache()


def of(topic: str) -> list[dict[str, Any]]:
    return [m for m in MESSAGES if m["topic"] == topic]


def test_topics_are_counted_and_measured(sized: DataFrame) -> None:
    rows = message_stats.topic_stats(sized).collect()
    assert [row.topic for row in rows] == ["A", "B"]
    for row in rows:
        sizes = sorted(m["bytes"] for m in of(row.topic))
        seconds = (of(row.topic)[-1]["ms"] - of(row.topic)[0]["ms"]) / 1000
        assert (row.messages, row.bytes, row.maxBytes) == (len(sizes), sum(sizes), max(sizes))
        assert row.meanBytes == pytest.approx(statistics.mean(sizes))
        assert (row.p50Bytes, row.p99Bytes) == (sizes[(len(sizes) - 1) // 2], sizes[-1])
        assert row.perSecond == pytest.approx(len(sizes) / seconds)
        assert row.bytesPerSecond == pytest.approx(sum(sizes) / seconds)
    steps = {
        (row.topic, row.stepMs): (row.messages, row.bytes)
        for row in message_stats.rates_over_time(sized, STEP).collect()
    }
    expected: dict[tuple[str, int], list[int]] = collections.defaultdict(list)
    for m in MESSAGES:
        expected[m["topic"], m["ms"] // STEP * STEP].append(m["bytes"])
    assert steps == {key: (len(sizes), sum(sizes)) for key, sizes in expected.items()}


def test_steps_of_time_are_round_and_few() -> None:
    assert [time_step_ms(0, span) for span in (0, 100, 119_000, 3_600_000, 86_400_000)] == [1, 1, 2000, 60_000, 900_000]
    for span in range(0, 40 * 86_400_000, 86_399_999):
        assert span // time_step_ms(T0, T0 + span) + 2 <= 120


def test_hot_keys_come_first(sized: DataFrame) -> None:
    rows = message_stats.key_stats(sized).collect()
    hot = {topic: [m for m in of(topic) if "hot" in m["keys"]] for topic in "AB"}
    assert [(row.key, row.topic, row.messages, row.bytes, row.queues) for row in rows] == [
        ("hot", topic, len(hot[topic]), sum(m["bytes"] for m in hot[topic]), len({m["queueId"] for m in hot[topic]}))
        for topic in "AB"
    ]


def test_queues_are_held_against_the_mean_of_all_that_their_topic_has(spark: SparkSession, sized: DataFrame) -> None:
    """Topic B has a third queue, which is empty, and C has no message; queue 1 of A is not in the table any more."""
    there = [("A", "a", 0), ("B", "a", 0), ("B", "a", 1), ("B", "a", 2), ("C", "a", 0)]
    queues = spark.createDataFrame(there, message_stats.QUEUE_SCHEMA)
    rows = message_stats.queue_stats(sized, queues).collect()
    assert sorted((row.topic, row.queueId) for row in rows) == [("A", 0), ("A", 1), ("B", 0), ("B", 1), ("B", 2)]
    for row in rows:
        mine = [m for m in of(row.topic) if m["queueId"] == row.queueId]
        ends = (0, len(mine) - 1) if mine else (None, None)
        assert (row.messages, row.bytes) == (len(mine), sum(m["bytes"] for m in mine))
        assert (row.firstOffset, row.lastOffset) == ends
        assert row.share == pytest.approx(len(mine) / len(of(row.topic)))
        assert row.skew == pytest.approx(len(mine) * (3 if row.topic == "B" else 2) / len(of(row.topic)))
    skews = [row.skew for row in rows]
    assert skews == sorted(skews, reverse=True)


def test_sizes_fall_into_powers_of_two(sized: DataFrame) -> None:
    expected = collections.Counter((m["topic"], 1 << m["bytes"].bit_length()) for m in MESSAGES)
    rows = message_stats.size_distribution(sized).collect()
    assert {(row.topic, row.belowBytes): row.messages for row in rows} == expected


def test_growth_of_the_log_counts_everything_in_between(sized: DataFrame) -> None:
    (row,) = message_stats.log_growth(sized).collect()
    assert (row.brokerName, row.bytes) == ("a", 59 * 250)
    assert row.bytesPerSecond == pytest.approx(59 * 250 / (59 * 0.333))


def test_lag_has_its_age_and_its_course(spark: SparkSession, sized: DataFrame) -> None:
    ends = {("A", 0): OFFSETS["A", 0], ("A", 1): OFFSETS["A", 1]}
    rows = [("g", topic, "a", queue, 5, 7, end, end - 5) for (topic, queue), end in ends.items()]
    groups = spark.createDataFrame(
        rows,
        "consumerGroup string, topic string, brokerName string, queueId int, consumerOffset bigint, minOffset bigint, "
        "maxOffset bigint, lag bigint",
    )
    waiting = [m for m in of("A") if m["queueOffset"] >= 5]
    (row,) = group_lag.group_lag(groups, sized).select("*", F.unix_millis("oldestAt").alias("oldest")).collect()
    assert (row.consumerGroup, row.topic, row.queues, row.lag, row.lost) == ("g", "A", 2, len(waiting), 4)
    assert row.oldest == min(m["ms"] for m in waiting)
    steps = group_lag.waiting_over_time(groups, sized, STEP).collect()
    assert {s.stepMs: s.messages for s in steps} == collections.Counter(m["ms"] // STEP * STEP for m in waiting)
    samples = groups.withColumn("sampledAt", F.lit(at(T0))).union(
        groups.withColumn("lag", F.lit(1)).withColumn("sampledAt", F.lit(at(T0 + 1)))
    )
    assert [s.lag for s in group_lag.lag_over_time(samples).collect()] == [len(waiting), 2]


def test_job_on_a_cluster_and_on_its_store(spark: SparkSession, standalone: maxq.Standalone, tmp_path: Path) -> None:
    with Producer("stats", standalone.namesrv_address) as producer:
        for number in range(1, 41):
            producer.send(Message("Stats", b"x" * number))
    with Admin(standalone.namesrv_address) as admin:
        admin.groups.create(standalone.broker_address, SubscriptionGroupConfig(group_name="readers"))
        for queue in admin.offsets.queues("Stats"):
            admin.offsets.commit("readers", queue, 1)
    source = MessageInput(("Stats",), standalone.namesrv_address)
    history = tmp_path / "history"
    first = run_stats(spark, StatsSettings(source, history=history), now_ms=T0)
    found = run_stats(spark, StatsSettings(source, history=history), now_ms=T0 + 1000).to_json()
    assert first.topics == found["topics"]
    assert [(row["topic"], row["messages"], row["bytes"]) for row in found["topics"]] == [("Stats", 40, sum(range(41)))]
    assert [(row["consumerGroup"], row["lag"]) for row in found["groups"]] == [("readers", 40 - found["queue_count"])]
    assert sum(row["messages"] for row in found["waiting"]) == 40 - found["queue_count"]
    assert [(row["sampledAt"], row["lag"]) for row in found["lag"]] == [
        (T0, 40 - found["queue_count"]), (T0 + 1000, 40 - found["queue_count"]),
    ]  # fmt: skip
    assert json.loads(json.dumps(found))["settings"]["source"]["topics"] == ["Stats"]
    assert [row["disk"]["broker"] for row in found["forecasts"]] == ["broker-a"]
    assert "Stats broker-a:" in stats_report(found, source.describe()).html()
    files = MessageInput(("Stats",), stores=(str(standalone.store),))
    stored = run_stats(spark, StatsSettings(files), now_ms=T0).to_json()
    assert [row["messages"] for row in stored["topics"]] == [40]
    assert stored["groups"] is None
    (disk,) = [row for row in stored["disk_topics"] if row["topic"] == "Stats"]
    assert (disk["messages"], disk["queueBytes"]) == (40, 800)
    assert disk["logBytes"] > sum(range(41)) + 40 * 91
    stats_report(stored, files.describe()).write(tmp_path / "stats.html")
