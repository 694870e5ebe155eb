"""`maxq pipeline trace` and `stats` on a server and its store, with traces that Java's clients made."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import maxq
from maxq.api import Message, Producer
from maxq.cli.app import run
from tests.json_output import check_output
from tests.pipeline import naive_trace

pytestmark = pytest.mark.usefixtures("spark")  # the commands take the session that is there

CAPTURED = json.loads((Path(__file__).parents[2] / "data" / "trace" / "java-clients.json").read_text())
RECORDS = [record for row in CAPTURED for record in naive_trace.parse(row["body"].encode())]
SENT = {one for record in RECORDS if record["kind"] == "Pub" for one in record["messageId"].split(",")}
BEGUN = {(record["requestId"], record["messageId"]) for record in RECORDS if record["kind"] == "SubBefore"}
ENDED = {(record["requestId"], record["messageId"]) for record in RECORDS if record["kind"] == "SubAfter"}
FIRST = {record["messageId"] for record in RECORDS if record["kind"] == "SubBefore" and record["retryTimes"] == 0}
DONE = {record["messageId"] for record in RECORDS if record["kind"] == "SubAfter" and record["success"]}


@pytest.fixture(scope="module")
def traced(standalone: maxq.Standalone) -> maxq.Standalone:
    """Has the captured trace messages, one that is broken, and a message of another topic."""
    with Producer("traces", standalone.namesrv_address) as producer:
        for row in CAPTURED:
            producer.send(Message("Traces", row["body"].encode()))
        producer.send(Message("Traced", b"not one of those that were traced"))
        producer.send(Message("Traces", b"Pub\x01no time\x02\xff\xfe\x02"))
        producer.send(Message("Other", b"12345"))
    return standalone


def pipeline(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert run(["pipeline", *arguments, "--master", "local[2]"]) == 0
    return capsys.readouterr().out


@pytest.fixture
def tasks(spark: SparkSession) -> Iterator[Callable[[], int]]:
    """How many tasks the test's reports have had, with Spark's own 200 partitions of shuffles.

    What a job keeps had as many partitions once, and a union of it 800, for each of its questions: on two small
    executors a trace did not come to its end.
    """
    ours = spark.conf.get("spark.sql.shuffle.partitions")
    assert ours is not None
    context, group = spark.sparkContext, "counted"

    def count() -> int:
        told = context.statusTracker()
        jobs = [told.getJobInfo(job) for job in told.getJobIdsForGroup(group)]
        stages = {stage for job in jobs if job is not None for stage in job.stageIds}
        infos = [told.getStageInfo(stage) for stage in stages]
        return sum(info.numCompletedTasks for info in infos if info is not None)

    before = count()
    context.setJobGroup(group, "counted")
    spark.conf.set("spark.sql.shuffle.partitions", "200")
    yield lambda: count() - before
    spark.conf.set("spark.sql.shuffle.partitions", ours)
    context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]


def test_traces_of_java_clients_are_told(
    traced: maxq.Standalone, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    page, one = tmp_path / "trace.html", min(FIRST)
    options = ("-n", traced.namesrv_address, "-t", "Traces", "-i", one, "--grace-ms", "0", "--store-times")
    found: dict[str, Any] = json.loads(pipeline(capsys, "trace", *options, "--html", str(page), "--json"))
    check_output("pipeline trace", found)
    assert (found["sent"], found["broken"]) == (len(SENT), 2)
    assert found["consumed"] == len(BEGUN)
    measured = {(row["measure"], row["topic"], row["groupName"]): row["count"] for row in found["groups"]}
    assert measured["send", "Traced", "PG"] == len(SENT) - 2  # two transactions are another group's
    assert measured["consume", "Traced", "CG"] == len(BEGUN & ENDED)
    assert measured["deliver", "Traced", "CG"] == len(FIRST)
    assert found["store_measured"] and not any(row["measure"] == "store" for row in found["groups"])
    missed = {row["messageId"] for row in found["undelivered"]}
    assert missed == FIRST - DONE  # the transaction that was rolled back is expected nowhere
    assert found["way"][0]["event"] == "sent"
    assert "The way of one message" in page.read_text() and one in page.read_text()


def test_a_store_directory_tells_the_same_in_few_tasks(
    traced: maxq.Standalone, capsys: pytest.CaptureFixture[str], tasks: Callable[[], int]
) -> None:
    text = pipeline(capsys, "trace", "--store", str(traced.store), "-t", "Traces", "--slow-ms", "100000")
    assert f"{len(SENT)} messages sent" in text and "2 broken trace records" in text
    assert "store is an estimate" in text
    assert 5 < tasks() < 150


def test_statistics_of_a_cluster_in_few_tasks(
    traced: maxq.Standalone, capsys: pytest.CaptureFixture[str], tmp_path: Path, tasks: Callable[[], int]
) -> None:
    page, history = tmp_path / "stats.html", tmp_path / "history"
    options = ("-n", traced.namesrv_address, "--history", str(history), "--html", str(page))
    found = json.loads(pipeline(capsys, "stats", *options, "--json"))
    check_output("pipeline stats", found)
    assert {row["topic"]: (row["messages"], row["bytes"]) for row in found["topics"]}["Other"] == (1, 5)
    assert len(list(history.iterdir())) == 1
    assert "Message statistics" in page.read_text()
    assert 5 < tasks() < 150


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("trace", "--store", "/nowhere", "-t", "T"), "holds no store"),
        (("stats", "--store", "/nowhere", "-n", "127.0.0.1:1"), "from one of them"),
        (("stats", "--store", "/nowhere", "-b", "2026-02-02", "-e", "2026-02-01"), "swap them"),
        (("stats", "--history", __file__), "is a file"),
        (("audit", "/nowhere", "-c", "/nowhere.conf"), "'/nowhere.conf' does not exist"),
        (("replay", "archive", "--to", "T", "-b", "2026-02-02", "-e", "2026-02-01"), "swap them"),
    ],
)
def test_what_can_not_be_done_is_told(
    arguments: tuple[str, ...], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["pipeline", *arguments, "--master", "local[2]"]) != 0
    assert named in capsys.readouterr().err


def test_what_only_a_worker_finds_wrong_is_a_wrong_option_all_the_same(
    traced: maxq.Standalone, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["pipeline", "stats", "-t", "no topic", "-n", traced.namesrv_address]) == 2
    assert "option subscribe is 'no topic'" in capsys.readouterr().err
