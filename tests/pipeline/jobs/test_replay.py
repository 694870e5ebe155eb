"""The jobs `replay` and `dlq` on Spark."""

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import maxq
from maxq.api import (
    Admin,
    ConsumeContext,
    ConsumeFromWhere,
    ConsumeResult,
    Message,
    MessageExt,
    MessageQueue,
    Producer,
    PushConsumer,
)
from maxq.errors import ConfigError, DataLossError
from maxq.pipeline.archive.folder import ArchiveFolder
from maxq.pipeline.archive.record import SentRecord
from maxq.pipeline.jobs import dlq
from maxq.pipeline.jobs import replay as replay_job
from maxq.pipeline.jobs.archive.job import ArchiveConfig, archive_once
from maxq.pipeline.jobs.dlq import DlqConfig, RedriveConfig, dlq_counts, dlq_groups, dlq_letters, dlq_redrive
from maxq.pipeline.jobs.replay import Ranges, ReplayConfig, replay, replay_counts
from maxq.pipeline.options.read_options import ConnectionOptions
from maxq.pipeline.transforms.archive import only_covered
from maxq.pipeline.transforms.pace import Pace, in_order
from maxq.pipeline.transforms.replay import Chosen, Mapped
from maxq.pipeline.wire.wire_client import WireClient
from maxq.protocol.body.topic_config import TopicConfig

MESSAGES = 20


@pytest.fixture(scope="module")
def cluster(standalone: maxq.Standalone) -> dict[str, str]:
    return {"rocketmq.namesrv": standalone.namesrv_address}


@pytest.fixture(scope="module")
def producer(standalone: maxq.Standalone) -> Iterator[Producer]:
    with Producer("tests", standalone.namesrv_address) as producer:
        yield producer


@pytest.fixture(scope="module")
def archive(
    spark: SparkSession, standalone: maxq.Standalone, producer: Producer, tmp_path_factory: pytest.TempPathFactory
) -> str:
    """Two queues of `Source`."""
    make(standalone, "Source")
    for queue_id in (0, 1):
        batch = []
        for n in range(MESSAGES):
            message = Message("Source", b"%d/%d" % (queue_id, n), {"n": str(n), "odd": str(n % 2)})
            message.tags, message.keys = ("TagA" if n % 2 else "TagB"), [f"k{n}", "all"]
            batch.append(message)
        producer.send_batch(batch, queue=MessageQueue("Source", "broker-a", queue_id))
    path = str(tmp_path_factory.mktemp("archive"))
    config = ArchiveConfig(path, {"rocketmq.namesrv": standalone.namesrv_address, "subscribe": "Source"})
    assert archive_once(spark, config).rows == 2 * MESSAGES
    return path


def make(server: maxq.Standalone, topic: str) -> None:
    with Admin(server.namesrv_address) as admin:
        admin.topics.create(server.broker_address, TopicConfig(topic, 2, 2))


def wait_until(condition: Callable[[], bool]) -> None:
    """Look again and again, for a minute at most."""
    never = threading.Event()
    for _ in range(3000):
        if condition():
            return
        never.wait(0.02)
    raise AssertionError("it did not come about within a minute")


def load(spark: SparkSession, cluster: dict[str, str], topic: str) -> DataFrame:
    return spark.read.format("rocketmq").options(**cluster).option("subscribe", topic).load()


def test_what_is_replayed_is_what_was_there_and_a_record_makes_it_once(
    spark: SparkSession, standalone: maxq.Standalone, cluster: dict[str, str], archive: str, tmp_path: Path
) -> None:
    make(standalone, "Again")
    record = tmp_path / "record.jsonl"
    config = ReplayConfig(
        cluster, archive, mapped=Mapped(topic="Again", queues="same", drop_properties=("odd",)), record=record
    )
    (counted,) = replay_counts(spark, config).collect()
    assert (counted.topic, counted.messages) == ("Again", 2 * MESSAGES)
    assert replay(spark, config).rows == 2 * MESSAGES
    again = replay(spark, config)
    assert (again.rows, again.before) == (0, 2 * MESSAGES)
    same = ["queueId", "queueOffset", "body", "tags", "keys", "properties.n"]
    sent = load(spark, cluster, "Again")
    assert (
        sent.select(same).sort(same[:2]).collect()
        == load(spark, cluster, "Source").select(same).sort(same[:2]).collect()
    )
    assert sent.where("properties['odd'] is not null").count() == 0
    with pytest.raises(ConfigError, match="records other work"):
        replay(spark, ReplayConfig(cluster, archive, mapped=Mapped(topic="Other"), record=record))


def test_a_piece_that_was_sent_before_a_crash_is_not_sent_twice(
    spark: SparkSession,
    standalone: maxq.Standalone,
    cluster: dict[str, str],
    producer: Producer,
    archive: str,
    tmp_path: Path,
) -> None:
    make(standalone, "Once")
    record = tmp_path / "record.jsonl"
    config = ReplayConfig(cluster, archive, mapped=Mapped(topic="Once"), record=record, exactly_once=True)
    assert replay(spark, config).rows == 2 * MESSAGES
    head, begun, done = record.read_text().splitlines()
    record.write_text(f"{head}\n{begun}\n{done[:9]}")  # it died while it wrote what it had done
    producer.send(Message("Source", b"later"), queue=MessageQueue("Source", "broker-a", 0))
    archive_once(
        spark, ArchiveConfig(archive, {**cluster, "subscribe": "Source"})
    )  # its piece would be another one now
    assert replay(spark, config).rows == 2 * MESSAGES + 1
    assert load(spark, cluster, "Once").count() == 2 * MESSAGES + 1
    assert [json.loads(line)["ranges"] for line in record.read_text().splitlines()[2:]] == [
        {"Source/broker-a/0": [[0, MESSAGES - 1]], "Source/broker-a/1": [[0, MESSAGES - 1]]},
        {"Source/broker-a/0": [[MESSAGES, MESSAGES]]},
        {"Source/broker-a/0": [[MESSAGES, MESSAGES]]},
    ]


def test_what_the_archive_lost_of_a_piece_that_was_begun_is_not_recorded_as_sent(
    spark: SparkSession,
    standalone: maxq.Standalone,
    cluster: dict[str, str],
    producer: Producer,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A damaged file is taken out by `archive verify --repair`, and its messages are archived once more."""
    make(standalone, "Repaired")
    taken = ArchiveConfig(str(tmp_path / "archive"), {**cluster, "subscribe": "Repaired"})
    for first in (0, 10):
        messages = [Message("Repaired", b"%d" % n) for n in range(first, first + 10)]
        producer.send_batch(messages, queue=MessageQueue("Repaired", "broker-a", 0))
        assert archive_once(spark, taken).rows == 10
    folder = ArchiveFolder(taken.path)
    make(standalone, "Repaired-again")
    config = ReplayConfig(cluster, taken.path, mapped=Mapped(topic="Repaired-again"), record=tmp_path / "record")
    SentRecord(tmp_path / "record", config.what).begin_piece(folder.manifest().coverage())
    (damaged,) = (entry.path for entry in folder.manifest().files if entry.queues[0].first == 10)
    folder.commit(lambda manifest: manifest.changed([], [damaged]))
    assert replay(spark, config).rows == 10
    assert done_of(tmp_path / "record") == {"Repaired/broker-a/0": [[0, 9]]}
    assert "the archive has no more Repaired/broker-a/0 [(10, 19)]" in caplog.text
    assert archive_once(spark, taken).rows == 10
    assert replay(spark, config).rows == 10
    assert load(spark, cluster, "Repaired-again").count() == 20


@pytest.mark.parametrize("keeps", ["keys", "tags"])
def test_keys_and_tags_are_left_out_where_they_are_not_wanted(
    spark: SparkSession, standalone: maxq.Standalone, cluster: dict[str, str], archive: str, keeps: str
) -> None:
    target = f"Only-{keeps}"
    make(standalone, target)
    mapped = Mapped(topic=target, keep_keys=keeps == "keys", keep_tags=keeps == "tags")
    assert replay(spark, ReplayConfig(cluster, archive, chosen=Chosen(("Source",), key="all"), mapped=mapped)).rows
    there = load(spark, cluster, target).selectExpr("count_if(size(keys) > 0) AS keys", "count(tags) AS tags").first()
    assert there is not None
    assert [name for name in ("keys", "tags") if there[name]] == [keeps]


def test_a_selection_goes_where_it_is_mapped_to_at_a_rate(
    spark: SparkSession, standalone: maxq.Standalone, cluster: dict[str, str], archive: str
) -> None:
    make(standalone, "Chosen")
    config = ReplayConfig(
        cluster,
        archive,
        chosen=Chosen(("Source",), key="all", tags=("TagA",), where="properties['n'] >= 5 and queueId = 1"),
        mapped=Mapped({"Source": "Chosen"}, queues="same", queue_map={1: 0}, keep_timestamps=True),
        pace=Pace(rate=10),
    )
    chosen = [n for n in range(MESSAGES) if n % 2 and n >= 5]
    assert replay(spark, config).rows == len(chosen)
    rows = load(spark, cluster, "Chosen").sort("queueOffset").collect()
    spread = (rows[-1].storeTimestamp - rows[0].storeTimestamp).total_seconds()
    assert spread >= (len(chosen) - 1) / 10, "one by one, all in a task, which has half of the rate"
    assert [(row.queueId, row.properties["n"], row.properties["ORIGIN_PLACE"]) for row in rows] == [
        (0, str(n), f"Source/broker-a/1/{n}") for n in chosen
    ]


def test_a_queue_keeps_its_order_where_the_clock_of_its_broker_went_back(spark: SparkSession) -> None:
    times = {("a", 0): (1000, 1005, 1003, 1004), ("a", 1): (1001, 1002, 1006, 1004)}
    rows = [("T", broker, queue, n, ms) for (broker, queue), stored in times.items() for n, ms in enumerate(stored)]
    messages = spark.createDataFrame(
        rows[::-1], "topic string, brokerName string, queueId int, queueOffset long, ms long"
    )
    ordered = in_order(messages.withColumn("storeTimestamp", F.timestamp_millis("ms")), 2)
    assert ordered.columns == [*messages.columns, "storeTimestamp"]
    sent = [(row.queueId, row.queueOffset) for row in ordered.collect()]
    assert [[offset for queue, offset in sent if queue == one] for one in (0, 1)] == [[0, 1, 2, 3], [0, 1, 2, 3]]


def test_letters_that_are_deleted_between_count_and_send_are_told(
    spark: SparkSession,
    standalone: maxq.Standalone,
    cluster: dict[str, str],
    producer: Producer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They were recorded as sent, and the job ended well."""
    for topic in ("%DLQ%expiring", "Expiring"):
        make(standalone, topic)
    producer.send_batch([Message("%DLQ%expiring", b"%d" % n, {"RETRY_TOPIC": "Expiring"}) for n in range(10)],
                        queue=MessageQueue("%DLQ%expiring", "broker-a", 0))  # fmt: skip

    def only_covered_and_purged(letters: DataFrame, ranges: Ranges) -> DataFrame:
        with Admin(standalone.namesrv_address) as admin:
            admin.operations.purge_topic(standalone.broker_address, "%DLQ%expiring", before_offset=6, dry_run=False)
        return only_covered(letters, ranges)

    monkeypatch.setattr(dlq, "only_covered", only_covered_and_purged)
    config = RedriveConfig(DlqConfig(cluster, ("expiring",)), tmp_path / "record", topic="Expiring")
    with pytest.raises(DataLossError, match=r"6 offsets \(0 to 5\) are lost: 10 messages were to be sent and 4 were"):
        dlq_redrive(spark, config)
    monkeypatch.undo()
    assert dlq_redrive(spark, config).rows == 0
    assert done_of(config.record) == {"%DLQ%expiring/broker-a/0": [[6, 9]]}

    with Admin(standalone.namesrv_address) as admin:
        admin.topics.delete("%DLQ%expiring", "DefaultCluster")
    make(standalone, "%DLQ%expiring")
    producer.send_batch([Message("%DLQ%expiring", b"%d" % n, {"RETRY_TOPIC": "Expiring"}) for n in range(12)],
                        queue=MessageQueue("%DLQ%expiring", "broker-a", 0))  # fmt: skip
    monkeypatch.setattr(dlq, "incarnations", lambda *_: {})  # as of Java's brokers, which do not tell
    with pytest.raises(ConfigError, match="%DLQ%expiring/broker-a/0 whose topic was deleted since"):
        dlq_redrive(spark, config)


def done_of(record: Path) -> Any:
    """Offsets in the last line of a record."""
    line = json.loads(record.read_text().splitlines()[-1])
    assert "done" in line
    return line["ranges"]


def test_messages_of_a_store_that_are_deleted_between_count_and_send_are_lost_and_the_piece_is_finished(
    spark: SparkSession,
    cluster: dict[str, str],
    standalone: maxq.Standalone,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They were recorded as sent. A piece of which a run died behind the commit was refused for good."""
    make(standalone, "Back")
    config = ReplayConfig(
        cluster, store=(str(tmp_path / "store"),), broker_name="broker-a", chosen=Chosen(("Old",)),
        mapped=Mapped(topic="Back"), record=tmp_path / "record", exactly_once=True,
    )  # fmt: skip
    ordered = in_order

    with maxq.Standalone(store=tmp_path / "store") as server, Admin(server.namesrv_address) as admin:
        make(server, "Old")
        with Producer("old", server.namesrv_address) as producer:
            producer.send_batch(
                [Message("Old", b"%d" % n) for n in range(10)], queue=MessageQueue("Old", "broker-a", 0)
            )

        def purged(before: int) -> None:
            admin.operations.purge_topic(server.broker_address, "Old", before_offset=before, dry_run=False)

        def purged_and_ordered(*args: Any) -> DataFrame:
            purged(6)
            return ordered(*args)

        monkeypatch.setattr(replay_job, "in_order", purged_and_ordered)
        with pytest.raises(
            DataLossError, match=r"6 offsets \(0 to 5\) are lost: 10 messages were to be sent and 4 were"
        ):
            replay(spark, config)
        monkeypatch.undo()
        assert done_of(tmp_path / "record") == {"Old/broker-a/0": [[6, 9]]}
        head, begun, _ = (tmp_path / "record").read_text().splitlines()
        (tmp_path / "record").write_text(f"{head}\n{begun}\n")  # it died behind the commit
        purged(8)
        lenient = replace(config, options={**cluster, "failOnDataLoss": "false"})
        assert replay(spark, lenient).rows == 4
        assert done_of(tmp_path / "record") == {"Old/broker-a/0": [[8, 9]]}
    assert load(spark, cluster, "Back").count() == 4


def test_dead_letters_are_told_with_their_cause_and_redriven_once(
    spark: SparkSession, standalone: maxq.Standalone, cluster: dict[str, str], producer: Producer, tmp_path: Path
) -> None:
    make(standalone, "Deadly")
    for n in range(6):
        message = Message("Deadly", b"%d" % n)
        message.keys = f"k{n}"
        producer.send(message)

    def give_up(messages: list[MessageExt], context: ConsumeContext) -> ConsumeResult:
        context.delay_level_when_next_consume = -1
        return ConsumeResult.RECONSUME_LATER

    first = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    config = DlqConfig(cluster, ("undertakers",), most_tries=16)
    consumer = PushConsumer("undertakers", standalone.namesrv_address, give_up, consume_from_where=first)
    consumer.subscribe("Deadly")
    dead = MessageQueue("%DLQ%undertakers", "broker-a", 0)
    with consumer, WireClient(ConnectionOptions(standalone.namesrv_address), route_age_ms=0) as client:
        wait_until(lambda: dead in (ends := client.max_offsets([dead])[0]) and ends[dead].offset == 6)
    assert "undertakers" in dlq_groups(cluster)
    letters = dlq_letters(spark, config)
    (counted,) = dlq_counts(letters).collect()
    assert tuple(counted)[:4] == ("undertakers", "Deadly", "GIVEN_UP", 6)
    some = DlqConfig(cluster, ("undertakers",), Chosen(key="k3"))
    record = tmp_path / "redriven.jsonl"
    assert dlq_redrive(spark, RedriveConfig(some, record), dry_run=True).rows == 1
    assert dlq_redrive(spark, RedriveConfig(some, record)).rows == 1
    assert dlq_redrive(spark, RedriveConfig(config, record)).rows == 5
    assert dlq_redrive(spark, RedriveConfig(config, record)).to_json() == {"sent": 0, "pieces": 0, "sentBefore": 6}
    sent = load(spark, cluster, "%RETRY%undertakers").select("body", "keys", "reconsumeTimes", "properties.RETRY_TOPIC")
    assert sorted((bytes(row[0]), *row[1:]) for row in sent.collect()) == [
        (b"%d" % n, [f"k{n}"], 0, "Deadly") for n in range(6)
    ]
    received: set[tuple[str, bytes]] = set()  # also what the first member had consumed and not committed yet

    def listen(messages: list[MessageExt], _: ConsumeContext) -> ConsumeResult:
        received.update((message.topic, bytes(message.body)) for message in messages)
        return ConsumeResult.CONSUME_SUCCESS

    consumer = PushConsumer("undertakers", standalone.namesrv_address, listen, consume_from_where=first)
    consumer.subscribe("Deadly")
    with consumer:
        wait_until(lambda: len(received) >= 6)
    assert received == {("Deadly", b"%d" % n) for n in range(6)}
