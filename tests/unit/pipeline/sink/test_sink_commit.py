"""Exactly once, without Spark: staged messages are seen after the commit, once, whatever is done twice."""

import itertools
from pathlib import Path

import pyarrow as pa
import pytest

from maxq.errors import PipelineError
from maxq.pipeline.options.write_options import WriteOptions
from maxq.pipeline.sink import sink_commit
from maxq.pipeline.sink.sink_commit import BatchName, Coordinator, commit
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

    commit(options_of(server), BatchName(application, 0), results)

    assert seen(server, topic) == sorted(bodies(1000, 20).to_pylist() + bodies(7).to_pylist())


def test_a_commit_may_be_repeated(server: Standalone, topic: str, application: str) -> None:
    results = [stage(server, topic, bodies(500, 20))]
    for _ in range(3):
        commit(options_of(server), BatchName(application, 0), results)
    assert len(seen(server, topic)) == 500


def test_a_batch_that_ran_twice_is_delivered_as_it_ran_first(server: Standalone, topic: str, application: str) -> None:
    commit(options_of(server), BatchName(application, 0), [stage(server, topic, pa.array([b"first"]))])
    commit(options_of(server), BatchName(application, 0), [stage(server, topic, pa.array([b"second", b"third"]))])
    assert seen(server, topic) == [b"first"]


def test_an_attempt_that_was_not_committed_is_never_seen(server: Standalone, topic: str, application: str) -> None:
    stage(server, topic, pa.array([b"of a task that was killed"]))
    commit(options_of(server), BatchName(application, 0), [stage(server, topic, pa.array([b"of its second attempt"]))])
    assert seen(server, topic) == [b"of its second attempt"]


def test_batches_follow_each_other_and_none_comes_again(server: Standalone, topic: str, application: str) -> None:
    for batch in range(3):
        commit(options_of(server), BatchName(application, batch), [stage(server, topic, pa.array([b"%d" % batch]))])
    with pytest.raises(PipelineError, match="another applicationId"):
        commit(options_of(server), BatchName(application, 1), [stage(server, topic, pa.array([b"again"]))])
    assert seen(server, topic) == [b"0", b"1", b"2"]


def test_a_batch_without_rows_is_committed_too(server: Standalone, topic: str, application: str) -> None:
    commit(options_of(server), BatchName(application, 0), [TaskResult(0, "attempt")])
    commit(options_of(server), BatchName(application, 1), [stage(server, topic, pa.array([b"x"]))])
    assert seen(server, topic) == [b"x"]


def test_a_stream_whose_coordinator_is_missing_is_refused(server: Standalone, topic: str, application: str) -> None:
    results = [stage(server, topic, pa.array([b"x"]))]
    with pytest.raises(PipelineError, match="no broker remembers an earlier batch"):
        commit(options_of(server), BatchName(application, 7), results)
    assert seen(server, topic) == []

    commit(options_of(server, coordinator="broker-a"), BatchName(application, 7), results)
    assert seen(server, topic) == [b"x"]


def test_delayed_rows_wait_from_the_commit_on(server: Standalone, topic: str, application: str) -> None:
    levels = pa.array([0, 18], pa.int32())
    results = [stage(server, topic, pa.array([b"now", b"later"]), delayTimeLevel=levels)]
    assert [row for row in read(server, "SCHEDULE_TOPIC_XXXX") if row["body"] == b"later"] == []

    commit(options_of(server), BatchName(application, 0), results)

    assert seen(server, topic) == [b"now"]
    assert len([row for row in read(server, "SCHEDULE_TOPIC_XXXX") if row["body"] == b"later"]) == 1


def test_keys_and_order_are_kept(server: Standalone, topic: str, application: str) -> None:
    keys = pa.array([f"k{n % 5}" for n in range(1000)])
    results = [stage(server, topic, bodies(1000), shardingKey=keys)]
    commit(options_of(server), BatchName(application, 0), results)

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
    commit(options_of(server), BatchName(application, 0), results)
    assert not known
    assert seen(server, topic) == [b"x"]


def test_what_is_decided_is_delivered_after_a_restart(tmp_path: Path, topic: str, application: str) -> None:
    name = BatchName(application, 0)
    with Standalone(tmp_path) as server:
        results = [stage(server, topic, bodies(3000, 20))]
        with WireClient(options_of(server).connection) as client:
            brokers = sink_commit.Brokers(client, options_of(server))
            decision = sink_commit.decide(brokers, Coordinator("broker-a", None), name, results)
    assert list(decision["brokers"]) == ["broker-a"]
    with Standalone(tmp_path) as server:
        assert seen(server, topic) == []
        commit(options_of(server), name, [stage(server, topic, pa.array([b"of the second run"]))])
        assert seen(server, topic) == sorted(bodies(3000, 20).to_pylist())
    with Standalone(tmp_path) as server:
        commit(options_of(server), name, [stage(server, topic, pa.array([b"of the third run"]))])
        assert len(seen(server, topic)) == 3000
