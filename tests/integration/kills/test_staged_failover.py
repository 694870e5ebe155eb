"""Exactly once over a change of master: the batch that a dead master decided is finished by its slave; and what is
decided on a broker that is away is not decided anew on another."""

import asyncio
from pathlib import Path

import pyarrow as pa
import pytest

from maxq.errors import PipelineError
from maxq.pipeline.options.read_options import ReadOptions
from maxq.pipeline.options.write_options import WriteOptions
from maxq.pipeline.sink import sink_commit
from maxq.pipeline.sink.sink_commit import BatchName, Brokers, WriteRun, commit, decision_of, find_coordinator
from maxq.pipeline.sink.sink_task import SinkTask, TaskResult
from maxq.pipeline.source.batch_source import Conditions, plan_batch
from maxq.pipeline.wire.wire_client import WireClient
from maxq.pipeline.wire.wire_reader import WireReader
from tests.integration.processes.ha_torture_cluster import MASTER, SLAVE, BrokerProcess
from tests.integration.processes.maxq_process import Process
from tests.interop.processes.servers import free_port_base

NAME = BatchName("stream", 3)


def options_of(namesrv: str, **more: str) -> WriteOptions:
    given = {"rocketmq.namesrv": namesrv, "topic": "T", "delivery": "exactly-once", "coordinator": "torture"}
    return WriteOptions.parse(given | {"rocketmq.brokerWait": "30s", "batchBytes": "4k"} | more)


def stage(namesrv: str, text: str, count: int) -> TaskResult:
    bodies = pa.array([f"{text}-{number}".encode() for number in range(count)])
    return SinkTask(options_of(namesrv), {"body": "body"}).run([pa.record_batch({"body": bodies})])


def only_decide(namesrv: str, results: list[TaskResult]) -> None:
    """A driver that dies behind the decision."""
    options = options_of(namesrv)
    with WireClient(options.connection) as client:
        brokers = Brokers(client, options)
        coordinator = find_coordinator(brokers, options, NAME)
        sink_commit.decide(brokers, coordinator, NAME, decision_of(results, WriteRun(0, "query", "first")))


def seen(namesrv: str) -> list[bytes]:
    options = ReadOptions.parse({"rocketmq.namesrv": namesrv, "subscribe": "T", "columns": "body"}, streaming=False)
    rows: list[bytes] = []
    for partition in plan_batch(options, Conditions()):
        for batch in WireReader(options).read(partition.ranges):
            rows += batch.column("body").to_pylist()
    return sorted(rows)


async def test_a_slave_that_becomes_master_finishes_what_was_decided(tmp_path: Path) -> None:
    port = free_port_base(10)
    names = f"127.0.0.1:{port}"
    namesrv = Process("name server", ["namesrv", "-p", str(port)], tmp_path / "namesrv-ready")
    master = BrokerProcess("master", tmp_path / "m", port + 3, names, MASTER)
    slave = BrokerProcess("slave", tmp_path / "s", port + 8, names, SLAVE)
    slave.configure({"haMasterAddress": f"127.0.0.1:{master.port + 1}"})
    try:
        for process in (namesrv, master, slave):
            await process.start()
        first = await asyncio.to_thread(stage, names, "first", 500)
        await asyncio.to_thread(only_decide, names, [first])
        await master.kill()
        await slave.kill()
        slave.configure({"brokerId": "0", "brokerRole": "ASYNC_MASTER"})
        await slave.start()

        second = await asyncio.to_thread(stage, names, "second", 10)
        await asyncio.to_thread(commit, options_of(names), NAME, [second], WriteRun(0, "query", "second"))

        expected = sorted(f"first-{number}".encode() for number in range(500))
        assert await asyncio.to_thread(seen, names) == expected
    finally:
        for process in (slave, master, namesrv):
            await process.kill()


async def test_a_first_batch_that_runs_again_while_its_coordinator_is_away_waits_for_it(tmp_path: Path) -> None:
    """`near` decides the batch, `far` holds its rows; then `near` is gone, from the name server too."""
    port = free_port_base(10)
    names = f"127.0.0.1:{port}"
    namesrv = Process("name server", ["namesrv", "-p", str(port)], tmp_path / "namesrv-ready")
    near, far = (
        BrokerProcess(name, tmp_path / name, port + at, names, {"brokerName": name, "brokerRole": "ASYNC_MASTER"})
        for name, at in (("a-near", 3), ("b-far", 8))
    )
    first = BatchName("job", 0)
    options = options_of(names, coordinator="")
    try:
        for process in (namesrv, far):
            await process.start()
        results = [await asyncio.to_thread(stage, names, "first", 50)]
        await near.start()
        await asyncio.to_thread(commit, options, first, results, WriteRun(0, "query", "first"))
        await near.kill()

        again = [await asyncio.to_thread(stage, names, "second", 50)]
        impatient = options_of(names, **{"coordinator": "", "rocketmq.brokerWait": "1s"})
        with pytest.raises(PipelineError, match="does not know a-near"):
            await asyncio.to_thread(commit, impatient, first, again, WriteRun(0, "query", "second"))
        await near.start()
        await asyncio.to_thread(commit, options, first, again, WriteRun(0, "query", "second"))

        expected = sorted(f"first-{number}".encode() for number in range(50))
        assert await asyncio.to_thread(seen, names) == expected
    finally:
        for process in (far, near, namesrv):
            await process.kill()
