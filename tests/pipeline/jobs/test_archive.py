"""The job `archive` on Spark: once, again, after a crash, as a stream beside a back-fill, verified, compacted."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import maxq
from maxq.api import Admin, Message, MessageQueue, Producer
from maxq.errors import PipelineError
from maxq.pipeline.archive.coverage import BEHIND, DAMAGED_FILE, GAP, MISSING_FILE
from maxq.pipeline.archive.folder import ArchiveFolder
from maxq.pipeline.jobs.archive import job as archive_job
from maxq.pipeline.jobs.archive.compact import CompactConfig, archive_compact
from maxq.pipeline.jobs.archive.job import (
    ArchiveConfig,
    archive_once,
    archive_stream,
    ranges_frame,
    read_archive,
    write_batch,
)
from maxq.pipeline.jobs.archive.table import TableConfig, archive_table
from maxq.pipeline.jobs.archive.verify import VerifyConfig, archive_repair, archive_verify
from maxq.protocol.body.topic_config import TopicConfig


@pytest.fixture(scope="module")
def producer(standalone: maxq.Standalone) -> Iterator[Producer]:
    with Producer("tests", standalone.namesrv_address) as producer:
        yield producer


def make(server: maxq.Standalone, topic: str) -> None:
    with Admin(server.namesrv_address) as admin:
        admin.topics.create(server.broker_address, TopicConfig(topic, 2, 2))


def send(producer: Producer, topic: str, queue_id: int, first: int, count: int) -> None:
    batch = []
    for n in range(first, first + count):
        message = Message(topic, b"%d" % n, {"n": str(n)})
        message.tags, message.keys = ("TagA" if n % 2 else "TagB"), [f"k{n}", "all"]
        batch.append(message)
    producer.send_batch(batch, queue=MessageQueue(topic, "broker-a", queue_id))


def config(server: maxq.Standalone, path: Path, topic: str, **options: str) -> ArchiveConfig:
    return ArchiveConfig(str(path), {"rocketmq.namesrv": server.namesrv_address, "subscribe": topic, **options})


def places(spark: SparkSession, path: Path) -> list[tuple[int, int]]:
    rows = read_archive(spark, str(path)).select("queueId", "queueOffset").collect()
    return sorted((row.queueId, row.queueOffset) for row in rows)


def expected(*queues: int) -> list[tuple[int, int]]:
    return [(queue, n) for queue, count in enumerate(queues) for n in range(count)]


def test_what_is_archived_is_what_is_in_the_topic_and_twice_is_once(
    spark: SparkSession, standalone: maxq.Standalone, producer: Producer, tmp_path: Path
) -> None:
    make(standalone, "Orders")
    send(producer, "Orders", 0, 0, 30)
    send(producer, "Orders", 1, 0, 10)
    archive = config(standalone, tmp_path, "Orders")
    first = archive_once(spark, archive)
    assert (first.rows, archive_once(spark, archive).files) == (40, ())
    send(producer, "Orders", 1, 10, 5)
    second = archive_once(spark, archive)
    assert second.to_json()["ranges"] == {"Orders/broker-a/1": [[10, 14]]}
    topic = spark.read.format("rocketmq").options(**archive.options).load()
    found = read_archive(spark, str(tmp_path))
    assert found.columns == [*topic.columns, "date"]
    order = ["queueId", "queueOffset"]
    assert found.drop("date").sort(order).collect() == topic.sort(order).collect()
    assert found.where("date <> to_date(to_utc_timestamp(storeTimestamp, current_timezone()))").count() == 0


def test_a_crash_between_data_and_manifest_leaves_nothing_that_counts(
    spark: SparkSession,
    standalone: maxq.Standalone,
    producer: Producer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    make(standalone, "Crashed")
    send(producer, "Crashed", 0, 0, 20)
    archive = config(standalone, tmp_path, "Crashed")

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(ArchiveFolder, "commit", die)
        archive_once(spark, archive)
    (lost,) = ArchiveFolder(str(tmp_path)).data_files()
    again = archive_once(spark, archive)
    assert (again.removed, again.rows) == ((lost,), 20)
    assert places(spark, tmp_path) == expected(20)


def test_a_topic_that_was_made_again_with_more_messages_is_refused(
    spark: SparkSession,
    standalone: maxq.Standalone,
    producer: Producer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    make(standalone, "Anew")
    send(producer, "Anew", 0, 0, 10)
    archive = config(standalone, tmp_path, "Anew")
    assert archive_once(spark, archive).rows == 10
    half = config(standalone, tmp_path / "half", "Anew", startingOffsets='{"Anew":{"broker-a":{"0":5,"1":0}}}')
    assert archive_once(spark, half).rows == 5
    with Admin(standalone.namesrv_address) as admin:
        admin.topics.delete("Anew", "DefaultCluster")
    make(standalone, "Anew")
    send(producer, "Anew", 0, 0, 25)
    for work in (lambda: archive_once(spark, archive), lambda: archive_stream(spark, archive)):
        with pytest.raises(PipelineError, match=r"Anew/broker-a/0 was archived up to offset 9, and then its topic"):
            work()
    batch = spark.read.format("rocketmq").options(**archive.options).load()
    with pytest.raises(PipelineError, match=r"Anew/broker-a/0 was archived up to offset 9, and then its topic"):
        write_batch(batch, archive)  # of a stream with failOnDataLoss=false: its first offsets are there

    monkeypatch.setattr(archive_job, "deleted_now", lambda *_, **__: {})  # as of Java's brokers, which do not tell
    later = batch.where("queueOffset > 9")  # of a stream that did not see that the queue was shorter for a while
    for work in (
        lambda: archive_once(spark, archive),
        lambda: write_batch(batch, archive),
        lambda: write_batch(later, archive),
    ):
        with pytest.raises(PipelineError, match="Anew/broker-a/0 has another message at offset 9 than the archive"):
            work()
    with pytest.raises(PipelineError, match="offset 4 of Anew/broker-a/0 is younger than the archived one at offset 9"):
        write_batch(batch.where("queueOffset < 5"), half)
    assert (places(spark, tmp_path), places(spark, tmp_path / "half")) == (expected(10), expected(10)[5:])
    monkeypatch.undo()
    other = config(standalone, tmp_path / "other", "Anew")
    assert archive_once(spark, other).rows == 25
    send(producer, "Anew", 0, 25, 5)
    assert archive_once(spark, other).rows == 5


def test_a_topic_that_is_made_again_while_it_is_archived_is_refused(
    spark: SparkSession,
    standalone: maxq.Standalone,
    producer: Producer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its messages went on in the archive where those of the deleted topic had ended; its first ones were left out."""
    make(standalone, "Raced")
    send(producer, "Raced", 0, 0, 10)
    archive = config(standalone, tmp_path, "Raced")
    assert archive_once(spark, archive).rows == 10
    send(producer, "Raced", 0, 10, 10)
    planned = ranges_frame

    def made_again(*args: Any) -> DataFrame:
        with Admin(standalone.namesrv_address) as admin:
            admin.topics.delete("Raced", "DefaultCluster")
        make(standalone, "Raced")
        send(producer, "Raced", 0, 0, 40)
        return planned(*args)

    with monkeypatch.context() as patch:
        patch.setattr(archive_job, "ranges_frame", made_again)
        with pytest.raises(PipelineError, match=r"Raced/broker-a/0 was archived up to offset 9, and then its topic"):
            archive_once(spark, archive)
    assert places(spark, tmp_path) == expected(10)


def test_a_topic_that_was_made_again_in_a_store_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    """Its first messages were left out, for their offsets were there, and the others put behind the old ones."""
    with maxq.Standalone(store=tmp_path / "store") as server, Producer("tests", server.namesrv_address) as producer:
        make(server, "Anew")
        send(producer, "Anew", 0, 0, 10)
        assert archive_once(spark, config(server, tmp_path / "archive", "Anew")).rows == 10
        with Admin(server.namesrv_address) as admin:
            admin.topics.delete("Anew", "DefaultCluster")
        make(server, "Anew")
        send(producer, "Anew", 0, 0, 25)
    store = ArchiveConfig(str(tmp_path / "archive"), store=(str(tmp_path / "store"),), broker_name="broker-a")
    with pytest.raises(PipelineError, match=r"Anew/broker-a/0 was archived up to offset 9, and then its topic"):
        archive_once(spark, store)


def test_a_stream_and_a_back_fill_join_without_a_duplicate(
    spark: SparkSession, standalone: maxq.Standalone, producer: Producer, tmp_path: Path
) -> None:
    make(standalone, "Joined")
    send(producer, "Joined", 0, 0, 30)
    old = '{"Joined":{"broker-a":{"0":10,"1":0}}}'
    assert archive_once(spark, config(standalone, tmp_path, "Joined", startingOffsets=old)).rows == 20
    send(producer, "Joined", 1, 0, 12)
    live = config(standalone, tmp_path, "Joined", maxOffsetsPerTrigger="25")

    def run() -> None:
        query = archive_stream(spark, live)
        assert query.awaitTermination(600)

    run()  # begins with what nobody archived, passes over what is there, and goes on
    assert places(spark, tmp_path) == expected(30, 12)
    send(producer, "Joined", 0, 30, 5)
    run()
    run()
    assert places(spark, tmp_path) == expected(35, 12)


def test_verify_names_what_is_gone_harmed_or_late_and_a_new_run_mends_it(
    spark: SparkSession, standalone: maxq.Standalone, producer: Producer, tmp_path: Path
) -> None:
    make(standalone, "Proved")
    archive = config(standalone, tmp_path, "Proved")
    for first in (0, 10, 20, 30):
        send(producer, "Proved", 0, first, 10)
        archive_once(spark, archive)
    send(producer, "Proved", 1, 0, 3)
    proof = VerifyConfig(str(tmp_path), archive.options)
    result = archive_verify(spark, proof)
    assert result.ok
    assert [(one.kind, one.first, one.last) for one in result.findings] == [(BEHIND, 0, 2)]
    complete = archive_verify(spark, replace(proof, complete=True))
    assert not complete.ok
    assert ([one["fault"] for one in complete.to_json()["findings"]], complete.frame(spark).first()["fault"]) == (
        [True],
        True,
    )
    folder = ArchiveFolder(str(tmp_path))
    by_offset = {entry.queues[0].first: tmp_path / entry.path for entry in folder.manifest().files}
    by_offset[10].unlink()
    data = bytearray(by_offset[20].read_bytes())
    data[len(data) // 2] ^= 1
    by_offset[20].write_bytes(data)
    result = archive_verify(spark, proof)
    assert [(one.kind, one.first, one.last) for one in result.findings] == [
        (MISSING_FILE, 10, 19), (DAMAGED_FILE, 20, 29), (GAP, 10, 29), (BEHIND, 0, 2)
    ]  # fmt: skip
    assert result.findings[0].file == by_offset[10].relative_to(tmp_path).as_posix()
    assert result.frame(spark).where("fault").count() == 3
    assert archive_repair(spark, proof) == 2
    assert archive_once(spark, archive).rows == 23
    assert archive_verify(spark, replace(proof, complete=True)).ok
    assert places(spark, tmp_path) == expected(40, 3)


@pytest.mark.slow
def test_an_archive_of_many_files_is_written_and_verified(
    spark: SparkSession, standalone: maxq.Standalone, producer: Producer, tmp_path: Path
) -> None:
    """More than a handful of files are checked by tasks of Spark."""
    make(standalone, "Many")
    send(producer, "Many", 0, 0, 30)
    archive = replace(config(standalone, tmp_path, "Many"), rows_per_file=2)
    assert len(archive_once(spark, archive).files) == 15
    assert places(spark, tmp_path) == expected(30)
    assert archive_verify(spark, VerifyConfig(str(tmp_path), archive.options, complete=True)).ok


def test_compacted_files_have_the_same_messages(
    spark: SparkSession, standalone: maxq.Standalone, producer: Producer, tmp_path: Path
) -> None:
    make(standalone, "Small")
    archive = config(standalone, tmp_path, "Small")
    for first in (0, 10, 20):
        send(producer, "Small", 0, first, 10)
        send(producer, "Small", 1, first, 10)
        archive_once(spark, archive)
    before = read_archive(spark, str(tmp_path)).sort("queueId", "queueOffset").collect()
    result = archive_compact(spark, CompactConfig(str(tmp_path)))
    assert result.to_json() == {"filesBefore": 3, "filesAfter": 1, "messages": 60}
    assert read_archive(spark, str(tmp_path)).sort("queueId", "queueOffset").collect() == before
    assert len(ArchiveFolder(str(tmp_path)).data_files()) == 1
    assert archive_compact(spark, CompactConfig(str(tmp_path))).before == 0
    assert archive_verify(spark, VerifyConfig(str(tmp_path), archive.options, complete=True)).ok
    assert archive_once(spark, archive).files == ()


def test_a_store_continues_the_archive_of_its_topic(
    spark: SparkSession, standalone: maxq.Standalone, producer: Producer, tmp_path: Path
) -> None:
    make(standalone, "Stored")
    send(producer, "Stored", 0, 0, 10)
    archive_once(spark, config(standalone, tmp_path, "Stored"))
    send(producer, "Stored", 0, 10, 7)
    store = ArchiveConfig(str(tmp_path), store=(str(standalone.store),), topics=("Stored",), broker_name="broker-a")
    assert archive_once(spark, store).to_json()["ranges"] == {"Stored/broker-a/0": [[10, 16]]}
    assert archive_once(spark, store).rows == 0
    assert places(spark, tmp_path) == expected(17)


def test_a_table_gets_what_it_has_not(
    spark: SparkSession, standalone: maxq.Standalone, producer: Producer, tmp_path: Path
) -> None:
    make(standalone, "Tabled")
    archive, table = config(standalone, tmp_path, "Tabled"), TableConfig(str(tmp_path), "lake.tabled")
    spark.sql(f"CREATE DATABASE lake LOCATION '{tmp_path / 'lake'}'")
    try:
        for first, before in ((0, 0), (10, 10)):
            send(producer, "Tabled", 0, first, 10)
            archive_once(spark, archive)
            assert archive_table(spark, table).to_json() == {"appended": 10, "before": before}
        archive_compact(spark, CompactConfig(str(tmp_path)))
        assert archive_table(spark, table).to_json() == {"appended": 0, "before": 20}
        assert sorted(row.queueOffset for row in spark.table("lake.tabled").collect()) == list(range(20))

        with Admin(standalone.namesrv_address) as admin:
            admin.topics.delete("Tabled", "DefaultCluster")
        make(standalone, "Tabled")
        send(producer, "Tabled", 0, 0, 25)  # its first messages were left out, for the table has their offsets
        archive_once(spark, config(standalone, tmp_path / "anew", "Tabled"))
        with pytest.raises(PipelineError, match=r"lake.tabled is of another topic: Tabled/broker-a/0 has .* offset 19"):
            archive_table(spark, replace(table, path=str(tmp_path / "anew")))
    finally:
        spark.sql("DROP DATABASE lake CASCADE")
