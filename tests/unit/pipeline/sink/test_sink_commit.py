"""Exactly once, without Spark: staged messages are seen after the commit, once, whatever is done twice."""

import itertools
import json
import re
from pathlib import Path

import pyarrow as pa
import pytest

from maxq.cli.app import run
from maxq.errors import PipelineError
from maxq.pipeline.options.write_options import WriteOptions
from maxq.pipeline.sink import sink_commit
from maxq.pipeline.sink.sink_commit import BatchName, Coordinator, WriteRun, commit, decision_of
from maxq.pipeline.sink.sink_task import SinkTask, TaskResult
from maxq.pipeline.wire.wire_client import WireClient
from maxq.protocol.body.route import BrokerData, ClusterInfo
from maxq.standalone import Standalone
from tests.unit.pipeline.sink.test_sink_task import bodies, read

_names = itertools.count()


@pytest.fixture
def application() -> str:
    return f"app-{next(_names)}"


@pytest.fixture
def topic() -> str:
    return f"Staged{next(_names)}"


def started() -> WriteRun:
    """The same streaming query, started anew."""
    return WriteRun(0, "query", f"start {next(_names)}")


def options_of(server: Standalone, **more: str) -> WriteOptions:
    given = {"rocketmq.namesrv": server.namesrv_address, "delivery": "exactly-once", "rocketmq.brokerWait": "20s"}
    return WriteOptions.parse(given | more)


def stage(server: Standalone, topic: str, column: pa.Array, **columns: pa.Array) -> TaskResult:
    options = options_of(server, topic=topic, batchBytes="4k")
    return SinkTask(options, {name: name for name in ["body", *columns]}).run(
        [pa.record_batch({"body": column, **columns})]
    )


def seen(server: Standalone, topic: str) -> list[bytes]:
    return sorted(row["body"] for row in read(server, topic, "body"))


def test_staged_messages_are_seen_after_the_commit_and_not_before(
    server: Standalone, topic: str, application: str
) -> None:
    results = [stage(server, topic, bodies(1000, 20)), stage(server, topic, bodies(7))]
    assert seen(server, topic) == []

    commit(options_of(server), BatchName(application, 0), results, started())

    assert seen(server, topic) == sorted(bodies(1000, 20).to_pylist() + bodies(7).to_pylist())


def test_a_commit_may_be_repeated(server: Standalone, topic: str, application: str) -> None:
    results = [stage(server, topic, bodies(500, 20))]
    for _ in range(3):
        commit(options_of(server), BatchName(application, 0), results, started())
    assert len(seen(server, topic)) == 500


def test_a_batch_that_ran_twice_is_delivered_as_it_ran_first(
    server: Standalone, topic: str, application: str, caplog: pytest.LogCaptureFixture
) -> None:
    for rows in ([b"first"], [b"other"], [b"second", b"third"]):
        assert "not written" not in caplog.text
        commit(options_of(server), BatchName(application, 0), [stage(server, topic, pa.array(rows))], started())
    assert seen(server, topic) == [b"first"]
    said = rf"batch 0 of application {application} was committed by an earlier .*with 1 rows.*with 2 rows.*not written"
    assert re.search(said, caplog.text)


def test_an_attempt_that_was_not_committed_is_never_seen(server: Standalone, topic: str, application: str) -> None:
    stage(server, topic, pa.array([b"of a task that was killed"]))
    second = stage(server, topic, pa.array([b"of its second attempt"]))
    commit(options_of(server), BatchName(application, 0), [second], started())
    assert seen(server, topic) == [b"of its second attempt"]


def test_batches_follow_each_other_and_none_comes_again(server: Standalone, topic: str, application: str) -> None:
    for batch in range(3):
        rows = pa.array([b"%d" % batch])
        commit(options_of(server), BatchName(application, batch), [stage(server, topic, rows)], started())
    with pytest.raises(PipelineError, match="another applicationId"):
        commit(options_of(server), BatchName(application, 1), [stage(server, topic, pa.array([b"again"]))], started())
    assert seen(server, topic) == [b"0", b"1", b"2"]


def test_a_batch_without_rows_is_committed_too(server: Standalone, topic: str, application: str) -> None:
    commit(options_of(server), BatchName(application, 0), [TaskResult(0, "attempt")], started())
    commit(options_of(server), BatchName(application, 1), [stage(server, topic, pa.array([b"x"]))], started())
    assert seen(server, topic) == [b"x"]


def test_a_stream_whose_coordinator_is_missing_is_refused(server: Standalone, topic: str, application: str) -> None:
    results = [stage(server, topic, pa.array([b"x"]))]
    with pytest.raises(PipelineError, match="no broker remembers an earlier batch"):
        commit(options_of(server), BatchName(application, 7), results, started())
    assert seen(server, topic) == []

    commit(options_of(server, coordinator="broker-a"), BatchName(application, 7), results, started())
    assert seen(server, topic) == [b"x"]


def test_delayed_rows_wait_from_the_commit_on(server: Standalone, topic: str, application: str) -> None:
    levels = pa.array([0, 18], pa.int32())
    results = [stage(server, topic, pa.array([b"now", b"later"]), delayTimeLevel=levels)]
    assert [row for row in read(server, "SCHEDULE_TOPIC_XXXX") if row["body"] == b"later"] == []

    commit(options_of(server), BatchName(application, 0), results, started())

    assert seen(server, topic) == [b"now"]
    assert len([row for row in read(server, "SCHEDULE_TOPIC_XXXX") if row["body"] == b"later"]) == 1


def test_keys_and_order_are_kept(server: Standalone, topic: str, application: str) -> None:
    keys = pa.array([f"k{n % 5}" for n in range(1000)])
    results = [stage(server, topic, bodies(1000), shardingKey=keys)]
    commit(options_of(server), BatchName(application, 0), results, started())

    rows = read(server, topic, "body,properties,queueId")
    for key in range(5):
        own = [int(row["body"]) for row in rows if dict(row["properties"])["__SHARDINGKEY"] == f"k{key}"]
        assert own == list(range(key, 1000, 5))


# --- a broker that goes away at each step ---


def test_a_commit_waits_for_brokers_that_the_name_server_does_not_know_yet(
    server: Standalone, topic: str, application: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has just started, and brokers register again one after the other."""
    results = [stage(server, topic, pa.array([b"x"]))]
    known = [ClusterInfo({}, {}), ClusterInfo({"another": BrokerData("C", "another", {0: "127.0.0.1:1"})}, {})]
    real = WireClient.cluster_info
    monkeypatch.setattr(WireClient, "cluster_info", lambda client: known.pop(0) if known else real(client))
    commit(options_of(server), BatchName(application, 0), results, started())
    assert not known
    assert seen(server, topic) == [b"x"]


def test_what_is_decided_is_delivered_after_a_restart(tmp_path: Path, topic: str, application: str) -> None:
    name = BatchName(application, 0)
    with Standalone(tmp_path) as server:
        results = [stage(server, topic, bodies(3000, 20))]
        with WireClient(options_of(server).connection) as client:
            brokers = sink_commit.Brokers(client, options_of(server))
            decision = sink_commit.decide(brokers, Coordinator("broker-a", None), name, decision_of(results, started()))
    assert list(decision["brokers"]) == ["broker-a"]
    with Standalone(tmp_path) as server:
        assert seen(server, topic) == []
        commit(options_of(server), name, [stage(server, topic, pa.array([b"of the second run"]))], started())
        assert seen(server, topic) == sorted(bodies(3000, 20).to_pylist())
    with Standalone(tmp_path) as server:
        commit(options_of(server), name, [stage(server, topic, pa.array([b"of the third run"]))], started())
        assert len(seen(server, topic)) == 3000


JOB = WriteRun(1_767_225_600_000)  # a batch job, of no streaming query


def stage_named(server: Standalone, topic: str, column: pa.Array, application: str) -> TaskResult:
    """Of a job whose application has a name, so that another run of it can come."""
    options = options_of(server, topic=topic, applicationId=application)
    return SinkTask(options, {"body": "body"}).run([pa.record_batch({"body": column})])


def test_another_run_with_other_rows_is_an_error_that_names_both(
    server: Standalone, topic: str, application: str
) -> None:
    name = BatchName(application, 0)
    commit(options_of(server), name, [stage_named(server, topic, bodies(3), application)], JOB)
    said = (
        f"batch 0 of application {application} was committed by another run, with 3 rows, begun at "
        r"2026-01-01T00:00:00.000\+00:00; this one, with 4 rows, .* has written none of them.*option batchId"
    )
    with pytest.raises(PipelineError, match=said):
        commit(options_of(server), name, [stage_named(server, topic, bodies(4), application)], JOB)
    with pytest.raises(PipelineError, match="with 3 rows"):  # as many, but others
        commit(options_of(server), name, [stage_named(server, topic, bodies(4)[1:], application)], JOB)
    assert seen(server, topic) == sorted(bodies(3).to_pylist())


def test_the_same_rows_in_another_order_and_division_are_a_repetition(
    server: Standalone, topic: str, application: str
) -> None:
    name, rows = BatchName(application, 5), bodies(50)
    options = options_of(server, coordinator="broker-a")
    commit(options, name, [stage_named(server, topic, rows, application)], JOB)
    parts = [rows[30:], pa.array([], pa.binary()), rows[:30].take(pa.array(range(29, -1, -1)))]
    commit(options, name, [stage_named(server, topic, part, application) for part in parts], JOB)
    commit(options, name, [], JOB)  # writes nothing, so nothing of it is left out
    assert seen(server, topic) == sorted(rows.to_pylist())


def test_of_one_start_of_a_query_two_writes_with_one_name_are_two_runs(
    server: Standalone, topic: str, application: str
) -> None:
    name, start = BatchName(application, 0), started()
    commit(options_of(server), name, [stage_named(server, topic, bodies(2), application)], start)
    with pytest.raises(PipelineError, match="of the streaming query query"):
        commit(options_of(server), name, [stage_named(server, topic, bodies(3), application)], start)
    commit(options_of(server), name, [stage_named(server, topic, bodies(3), application)], started())


def test_a_second_write_of_a_batch_to_another_topic_is_refused_also_when_its_query_starts_again(
    server: Standalone, topic: str, application: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A function of foreachBatch that writes twice under one name was refused, and lost the second write when its query
    was started again."""
    name, options = BatchName(application, 0), options_of(server)
    for start in ("first", "second"):
        runs = [WriteRun(0, "query", start, topic), WriteRun(0, "query", start, f"{topic}-copy")]
        commit(options, name, [stage_named(server, topic, bodies(3), application)], runs[0])
        with pytest.raises(PipelineError, match=f"with 3 rows to the topic {topic}, .*this one, .* {topic}-copy"):
            commit(options, name, [stage_named(server, f"{topic}-copy", bodies(3)[::-1], application)], runs[1])
    assert "counts as its repetition" not in caplog.text
    again = WriteRun(0, "query", "third", topic)
    commit(options, name, [stage_named(server, topic, pa.array([b"x", b"y", b"z"]), application)], again)
    assert "counts as its repetition" in caplog.text


def test_a_second_write_to_the_same_topic_is_refused_also_when_its_query_starts_again(
    server: Standalone, topic: str, application: str
) -> None:
    """The rows of two writes by one function of foreachBatch can not be told apart by their topic."""
    name, options = BatchName(application, 0), options_of(server)
    for start in ("first", "second", "third"):
        run = WriteRun(0, "query", start)
        commit(options, name, [stage_named(server, topic, bodies(2), application)], run)
        for _ in range(2):
            with pytest.raises(PipelineError, match=r"with 2 rows, .*this one, with 3 rows"):
                commit(options, name, [stage_named(server, topic, bodies(3), application)], run)
    assert seen(server, topic) == sorted(bodies(2).to_pylist())


def test_what_an_earlier_batch_left_undelivered_is_delivered_by_the_next(
    server: Standalone, topic: str, application: str
) -> None:
    options, first = options_of(server), bodies(500, 20)
    with WireClient(options.connection) as client:
        decided = decision_of([stage(server, topic, first)], started())
        brokers = sink_commit.Brokers(client, options)
        sink_commit.decide(brokers, Coordinator("broker-a", None), BatchName(application, 0), decided)
    assert seen(server, topic) == []
    commit(options, BatchName(application, 1), [stage(server, topic, pa.array([b"next"]))], started())
    assert seen(server, topic) == sorted([*first.to_pylist(), b"next"])


def test_a_decision_of_an_earlier_version_is_that_of_a_query_started_again_but_of_no_other_job() -> None:
    found, rows = {"brokers": {"a": {"runs": [["x", 0, 0, 1]]}}}, [TaskResult(1, "y", {"a": [(0, 1)]}, digest=7)]
    assert sink_commit.is_repetition(found, decision_of(rows, started()))
    assert not sink_commit.is_repetition(found, decision_of(rows, JOB))


def test_the_last_batch_of_an_application_that_does_not_come_back_is_delivered_by_command(
    server: Standalone, topic: str, application: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its driver died between the decision and the delivery, and nobody starts it again."""
    arguments = ["pipeline", "deliver", application, "-n", server.namesrv_address, "--json"]
    assert run([*arguments, "-o", "rocketmq.brokerWait=2s"]) != 0
    assert f"no broker has decided a batch of application {application}" in capsys.readouterr().err
    options = options_of(server)
    with WireClient(options.connection) as client:
        brokers = sink_commit.Brokers(client, options)
        decided = decision_of([stage(server, topic, bodies(30))], started())
        coordinator = sink_commit.find_coordinator(brokers, options, BatchName(application, 0))
        sink_commit.decide(brokers, coordinator, BatchName(application, 0), decided)
    assert seen(server, topic) == []
    for _ in range(2):  # it may be repeated
        assert run(arguments) == 0
        told = json.loads(capsys.readouterr().out)
        assert (told["application"], told["batch"], told["rows"]) == (application, 0, 30)
        assert len(seen(server, topic)) == 30


def test_who_asks_learns_how_many_rows_were_decided_and_that_none_were(
    server: Standalone, topic: str, application: str
) -> None:
    options = options_of(server)
    assert sink_commit.deliver_decided(options, application) is None
    commit(options, BatchName(application, 0), [stage(server, topic, bodies(7))], started())
    assert sink_commit.deliver_decided(options, application) == 7
    assert len(seen(server, topic)) == 7
