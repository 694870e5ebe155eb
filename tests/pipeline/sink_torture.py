"""Kill -9 at every step of an exactly-once write: each row is there once, whoever died.

A stream reads files of numbers and writes them with a random suffix, so that a batch that runs again has other rows. In
each round more files come, somebody is killed at a step, and the query is run until it has worked:

    worker    the Python worker of a task, before or after its rows are staged
    commit    the process that commits: before the decision, while what the last batch left is delivered, after the
              decision, after the delivery
    broker    while rows are staged; before the decision, after it, during the delivery, after it; it is started again
    driver    the whole Spark application, Java and all, at the steps of `commit` (only here: it costs a start of Spark)
    executor  of a standalone cluster, all that run, while rows are staged and at the steps of `commit` (only here)
    slow      nobody: a task on that cluster stands still, and Spark runs a speculative copy of it (only here)

    python -m tests.pipeline.sink_torture --rounds 3 --seed 1 [--steps driver-decided executor-staged …]
"""

import argparse
import contextlib
import itertools
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, Self

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from maxq.pipeline import register
from maxq.pipeline.options.read_options import ReadOptions
from maxq.pipeline.options.write_options import WriteOptions
from maxq.pipeline.session import local_session
from maxq.pipeline.sink import sink_commit
from maxq.pipeline.sink.writers import StreamSink, TaskCommit
from maxq.pipeline.source.batch_source import Conditions, plan_batch
from maxq.pipeline.source.topic_source import RocketMQDataSource
from maxq.pipeline.wire.wire_reader import WireReader
from maxq.testing.server_process import StandaloneProcess
from tests.pipeline.deaths import Deaths, who_died
from tests.pipeline.spark_cluster import QUICK_START, SparkCluster

TOPIC: Final = "SinkTorture"
SETTINGS: Final = {"mappedFileSizeCommitLog": str(16 << 20)}
CLUSTER: Final = {
    "spark.executor.memory": "512m", "spark.cores.max": "2", "spark.executor.cores": "1",
    "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1",
    "spark.executorEnv.PYTHONPATH": str(Path(__file__).parents[2]),  # what is killed there, is killed by our code
    "spark.executor.extraJavaOptions": QUICK_START,
    "spark.speculation": "true", "spark.speculation.interval": "200ms", "spark.speculation.quantile": "0.5",
    "spark.speculation.minTaskRuntime": "2s", "spark.speculation.multiplier": "1.2",
}  # fmt: skip
PROCESS_STEPS: Final = (
    "worker-staging", "worker-staged", "commit-begin", "commit-before", "commit-decided", "commit-delivered",
)  # fmt: skip
BROKER_STEPS: Final = (
    "broker-staging", "broker-begin", "broker-decided", "broker-delivering", "broker-delivered",
)  # fmt: skip
DRIVER_STEPS: Final = ("driver-begin", "driver-decided", "driver-delivered")
EXECUTOR_STEPS: Final = (
    "executor-staging", "executor-staged", "executor-begin", "executor-decided", "executor-delivered",
    "slow-staging", "slow-staged",
)  # fmt: skip


class Rows:
    """The files that the stream reads; every line is a number that comes once."""

    def __init__(self, folder: Path, lines: int) -> None:
        self.folder = folder
        self._lines = lines
        self._files = itertools.count()
        self.count = 0
        folder.mkdir()

    def add(self) -> None:
        """Two files, for two tasks."""
        for _ in range(2):
            numbers = range(self.count, self.count + self._lines)
            hidden = self.folder / f".{next(self._files)}"
            hidden.write_text("".join(f"{number}\n" for number in numbers))
            hidden.rename(self.folder / f"{hidden.name[1:]}.txt")
            self.count += self._lines


def killing(folder: Path, delay_s: float = 0.0) -> type[RocketMQDataSource]:
    """A source that carries out the deaths that are ordered in `folder`.

    Args:
        delay_s: of the kill during the delivery.
    """
    kill = Deaths(folder).come_by

    class KillingSink(StreamSink):
        """Says where it is."""

        def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskCommit:
            def watched() -> Iterator[pa.RecordBatch]:
                for batch in iterator:
                    yield batch
                    kill("staging")

            found = super().write(watched())
            kill("staged")
            return found

        def commit(self, messages: Any, batchId: int) -> None:
            kill("begin")
            decide, deliver = sink_commit.decide, sink_commit.deliver

            def then_kill(brokers: Any, coordinator: Any, name: Any, ours: Any) -> Any:
                found = decide(brokers, coordinator, name, ours)
                kill("decided" if name.batch_id == batchId else "before")
                return found

            def kill_during(*args: Any) -> Any:
                if args[2].batch_id != batchId:
                    return deliver(*args)
                timer = threading.Timer(delay_s, kill, ["delivering"])
                timer.start()
                try:
                    return deliver(*args)
                finally:
                    timer.join()  # nobody dies after the batch

            sink_commit.decide, sink_commit.deliver = then_kill, kill_during  # type: ignore[assignment]
            try:
                super().commit(messages, batchId)
            finally:
                sink_commit.decide, sink_commit.deliver = decide, deliver
            kill("delivered")

    class KillingSource(RocketMQDataSource):
        """Under a name of its own."""

        @classmethod
        def name(cls) -> str:
            return "rocketmq-killing"

        def streamWriter(self, schema: StructType, overwrite: bool) -> StreamSink:
            return KillingSink(WriteOptions.parse(self.options), schema)

    return KillingSource


def run_stream(spark: SparkSession, rows: Path, checkpoint: Path, namesrv: str, kind: str) -> None:
    """Everything that is there. Raises PySparkException if somebody died."""
    frame = spark.readStream.text(str(rows)).selectExpr("concat(value, ':', uuid()) AS value")
    writer = frame.writeStream.format(kind).option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    options = {"rocketmq.namesrv": namesrv, "topic": TOPIC, "delivery": "exactly-once", "batchBytes": "16k"}
    query = writer.options(**options).start()
    try:
        query.awaitTermination()
    finally:
        query.stop()


def dies_at(
    spark: SparkSession,
    server: StandaloneProcess,
    rows: Rows,
    deaths: Deaths,
    steps: Sequence[str],
    delay_s: float = 0.0,
) -> list[str]:
    """The query runs, with a death ordered at each of the steps, and may fail of it; those that died."""
    spark.dataSource.register(killing(deaths.folder, delay_s))
    checkpoint = deaths.folder.with_name("checkpoint")

    def run() -> None:
        run_stream(spark, rows.folder, checkpoint, server.namesrv_address, "rocketmq-killing")

    return who_died(server, deaths, steps, run)


def goes_through(spark: SparkSession, server: StandaloneProcess, rows: Rows, deaths: Deaths) -> None:
    """The query runs undisturbed, and everything is there once."""
    run_stream(spark, rows.folder, deaths.folder.with_name("checkpoint"), server.namesrv_address, "rocketmq")
    check(server.namesrv_address, rows.count)


def check(namesrv: str, count: int) -> None:
    """Raises AssertionError: a number is missing, or there twice."""
    given = {"rocketmq.namesrv": namesrv, "subscribe": TOPIC, "columns": "body"}
    options = ReadOptions.parse(given, streaming=False)
    found: list[int] = []
    for partition in plan_batch(options, Conditions()):
        for batch in WireReader(options).read(partition.ranges):
            found += [int(body.partition(b":")[0]) for body in batch.column("body").to_pylist()]
    twice = len(found) - len(set(found))
    gone = set(range(count)) - set(found)
    assert not twice, f"{twice} rows of {count} are there twice"
    assert not gone, f"{len(gone)} rows of {count} are missing, {sorted(gone)[:10]} among them"


def applications(server: StandaloneProcess, rows: Rows, deaths: Deaths, step: str, master: str, runs: int) -> None:
    """More rows, and so many runs of an application of its own, in the first of which somebody dies."""
    rows.add()
    deaths.order([step])
    arguments = [str(rows.folder), str(deaths.folder), server.namesrv_address, master]
    command = [sys.executable, "-m", "tests.pipeline.sink_torture", "--application", *arguments]
    done = [subprocess.run(command, check=False, capture_output=True, text=True) for _ in range(runs)]
    said = "\n".join(
        f"run {number} ended with {one.returncode}: {one.stderr[-3000:]}" for number, one in enumerate(done)
    )
    assert not deaths.withdraw([step]), f"nobody was killed at {step}: {said}"
    assert done[-1].returncode == 0, f"after the death at {step} the application failed: {said}"
    assert not deaths.awoke, f"at {step} the application waited for the slow task: {said}"


def application(rows: str, deaths: str, namesrv: str, master: str) -> None:
    """What `applications` starts; a process that is to kill the driver kills this group."""
    os.setpgrp()
    Deaths(Path(deaths)).introduce("driver", os.getpgrp())
    with local_session("sink torture", master=master, java_options=QUICK_START, settings=CLUSTER) as spark:
        register(spark)
        spark.dataSource.register(killing(Path(deaths)))
        run_stream(spark, Path(rows), Path(deaths).with_name("checkpoint"), namesrv, "rocketmq-killing")


class Torture:
    """A server, its rows and who is to die; every step counts on what the last one left."""

    def __init__(self, folder: Path, seed: int) -> None:
        self._folder = folder
        self._rng = random.Random(seed)
        self._deaths = Deaths(folder / "deaths")
        self._rows = Rows(folder / "rows", 20_000)
        self._running = contextlib.ExitStack()

    def __enter__(self) -> Self:
        self._server = self._running.enter_context(StandaloneProcess(SETTINGS, folder=self._folder / "server"))
        return self

    def __exit__(self, *_: object) -> None:
        self._running.close()

    def in_one_application(self, steps: Sequence[str], rounds: int) -> None:
        """The steps at which the application outlives the death, in any order."""
        with local_session("sink torture", master="local[2]", java_options=QUICK_START) as spark:
            register(spark)
            self._rows.add()
            goes_through(spark, self._server, self._rows, self._deaths)  # a batch before the first
            for number in range(1, rounds + 1):
                for step in self._rng.sample(steps, len(steps)):
                    self._rows.add()
                    delay_s = self._rng.random() * 0.1
                    killed = dies_at(spark, self._server, self._rows, self._deaths, [step], delay_s)
                    goes_through(spark, self._server, self._rows, self._deaths)
                    assert killed or step == "broker-delivering", f"nobody was killed at {step}"
                    self._tell(number, step)

    def applications(self, steps: Sequence[str], rounds: int, master: str, runs: int) -> None:
        """Steps that take an application each, run so many times."""
        for number in range(1, rounds + 1):
            for step in steps:
                applications(self._server, self._rows, self._deaths, step, master, runs)
                self._tell(number, step)

    def start_cluster(self) -> str:
        """A master and two workers; the master's URL."""
        cluster = self._running.enter_context(SparkCluster(self._folder))
        self._deaths.introduce("workers", *cluster.worker_pids)
        return cluster.url

    def _tell(self, number: int, step: str) -> None:
        check(self._server.namesrv_address, self._rows.count)
        print(f"round {number} {step}: killed, {self._rows.count} rows, once each", flush=True)


def torture(rounds: int, seed: int, steps: Sequence[str]) -> None:
    """Each of the steps so many times."""

    def those(kind: Sequence[str]) -> list[str]:
        return [step for step in kind if step in steps]

    with tempfile.TemporaryDirectory() as name, Torture(Path(name), seed) as running:
        if near := those([*PROCESS_STEPS, *BROKER_STEPS]):
            running.in_one_application(near, rounds)
        running.applications(those(DRIVER_STEPS), rounds, "local[2]", runs=2)
        if far := those(EXECUTOR_STEPS):
            running.applications(far, rounds, running.start_cluster(), runs=1)


def main() -> None:
    """See the module."""
    every = [*PROCESS_STEPS, *BROKER_STEPS, *DRIVER_STEPS, *EXECUTOR_STEPS]
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", nargs="+", choices=every, default=every, metavar="STEP")
    parser.add_argument("--application", nargs=4)
    arguments = parser.parse_args()
    if arguments.application:
        application(*arguments.application)
    else:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))  # and with it all that it started
        torture(arguments.rounds, arguments.seed, arguments.steps)


if __name__ == "__main__":
    main()
