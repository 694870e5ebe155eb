"""`format("rocketmq")` in Spark, writing: batch, stream, exactly once while somebody is killed."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import maxq
from maxq.testing.server_process import StandaloneProcess
from tests.pipeline import sink_torture as torture


def test_rows_are_written_and_read_back(spark: SparkSession, standalone: maxq.Standalone) -> None:
    frame = spark.range(1000).select(
        F.expr("cast(id as string)").alias("value"),
        F.expr("concat('Sink', id % 2)").alias("topic"),
        F.expr("if(id % 3 = 0, 'A', null)").alias("tags"),
        F.expr("array(concat('k', id), 'all')").alias("keys"),
        F.expr("map('n', cast(id as string))").alias("properties"),
        F.expr("cast(id % 4 as int)").alias("queueId"),
    )
    writer = frame.write.format("rocketmq").option("rocketmq.namesrv", standalone.namesrv_address)
    writer.mode("append").save()

    reader = spark.read.format("rocketmq").option("rocketmq.namesrv", standalone.namesrv_address)
    rows = reader.option("subscribe", "Sink0,Sink1").load().collect()
    assert len(rows) == 1000
    for row in rows:
        number = int(row.body)
        assert (row.topic, row.queueId, row.properties["n"]) == (f"Sink{number % 2}", number % 4, str(number))
        assert (row.tags, row["keys"]) == ("A" if number % 3 == 0 else None, [f"k{number}", "all"])


@pytest.mark.parametrize(
    ("select", "mode", "said"),
    [
        ("id", "append", "messages have no column id"),
        ("cast(id as string) AS value", "overwrite", "cannot be overwritten"),
        ("cast(null as string) AS value", "append", "column value is null or empty"),
    ],
)
def test_what_cannot_be_written_is_said(
    spark: SparkSession, standalone: maxq.Standalone, select: str, mode: str, said: str
) -> None:
    writer = spark.range(3).selectExpr(select).write.format("rocketmq").option("topic", "Refused")
    with pytest.raises(Exception, match=said):
        writer.option("rocketmq.namesrv", standalone.namesrv_address).mode(mode).save()


def test_a_batch_is_written_exactly_once_under_its_application_id(
    spark: SparkSession, standalone: maxq.Standalone
) -> None:
    options = {"rocketmq.namesrv": standalone.namesrv_address, "topic": "Once", "delivery": "exactly-once"}
    frame = spark.range(100).selectExpr("cast(id as string) AS value")
    for _ in range(2):  # the second run is the first one again
        frame.write.format("rocketmq").options(**options, applicationId="job-1").mode("append").save()
    reader = spark.read.format("rocketmq").option("rocketmq.namesrv", standalone.namesrv_address)
    assert reader.option("subscribe", "Once").option("columns", "body").load().count() == 100


def test_a_second_job_with_other_rows_under_the_same_application_id_is_an_error(
    spark: SparkSession, standalone: maxq.Standalone
) -> None:
    options = {"rocketmq.namesrv": standalone.namesrv_address, "topic": "Two", "delivery": "exactly-once"}

    def write(rows: int, **more: str) -> None:
        frame = spark.range(rows).selectExpr("cast(id as string) AS value")
        frame.write.format("rocketmq").options(**options, applicationId="job-2", **more).mode("append").save()

    write(100)
    with pytest.raises(Exception, match="batch 0 of application job-2 was committed by another run, with 100 rows"):
        write(200)
    write(10, batchId="1")
    reader = spark.read.format("rocketmq").option("rocketmq.namesrv", standalone.namesrv_address)
    assert reader.option("subscribe", "Two").load().count() == 110


def test_foreach_batch_names_its_batches_and_repeats_them_after_a_restart(
    spark: SparkSession, standalone: maxq.Standalone, tmp_path: Path
) -> None:
    options = {"rocketmq.namesrv": standalone.namesrv_address, "topic": "Each", "delivery": "exactly-once"}
    rows = tmp_path / "rows"
    rows.mkdir()
    dies = [True]

    def write(frame: DataFrame, batch: int) -> None:
        named = frame.selectExpr("concat(value, ':', uuid()) AS value").write.format("rocketmq").mode("append")
        named.options(**options, applicationId="each", batchId=str(batch)).save()
        if dies.pop() if dies else False:
            raise RuntimeError("the program ends behind the commit")

    def run() -> None:
        query = (
            spark.readStream.text(str(rows)).writeStream.foreachBatch(write).trigger(availableNow=True)
            .option("checkpointLocation", str(tmp_path / "checkpoint")).start()
        )  # fmt: skip
        assert query.awaitTermination(600)

    (rows / "1").write_text("a\nb\n")
    with pytest.raises(Exception, match="the program ends"):
        run()
    run()
    (rows / "2").write_text("c\n")
    run()
    reader = spark.read.format("rocketmq").option("rocketmq.namesrv", standalone.namesrv_address)
    found = reader.option("subscribe", "Each").load().selectExpr("cast(body AS STRING) AS body").collect()
    assert sorted(row.body.partition(":")[0] for row in found) == ["a", "b", "c"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneProcess]:
    with StandaloneProcess(torture.SETTINGS, folder=tmp_path_factory.mktemp("server")) as server:
        yield server


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> torture.Rows:
    return torture.Rows(tmp_path_factory.mktemp("sink") / "rows", 500)


def test_whoever_is_killed_each_row_is_there_once(
    spark: SparkSession, server: StandaloneProcess, rows: torture.Rows
) -> None:
    """One batch whose processes are killed at each step, and one whose broker is; drivers and executors are killed in
    the torture."""
    deaths = torture.Deaths(rows.folder.with_name("deaths"))
    rows.add()
    torture.goes_through(spark, server, rows, deaths)  # a batch before the one whose processes are killed
    rows.add()
    for step in torture.PROCESS_STEPS:
        assert torture.dies_at(spark, server, rows, deaths, [step]) == [step]
    torture.goes_through(spark, server, rows, deaths)
    staging, *others = torture.BROKER_STEPS
    for steps in ([staging], others):  # a task that finds no name server fails
        rows.add()
        assert torture.dies_at(spark, server, rows, deaths, steps) == steps
    torture.goes_through(spark, server, rows, deaths)
