"""Spark's own cluster manager, a master and two workers: the same modules, on executors that are processes elsewhere.

The driver is a process of its own, for this one's session is a local one. Nothing of MaxQ is given to the workers but
the Python that has it.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import maxq
from maxq.api import Admin, Message, Producer
from maxq.protocol.body.topic_config import TopicConfig
from tests.pipeline.spark_cluster import QUICK_START, SparkCluster

DRIVER = """
import json, sys
from maxq.cli.app import run
from maxq.pipeline import register
from maxq.pipeline.session import local_session

master, namesrv, store, offline, target, quick = sys.argv[1:]
spark = local_session("cluster", master=master, java_options=quick, settings={
    "spark.executor.memory": "512m", "spark.cores.max": "2", "spark.executor.cores": "1",
    "spark.executor.extraJavaOptions": quick,
    "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1",
    "spark.scheduler.minRegisteredResourcesRatio": "1.0", "spark.scheduler.maxRegisteredResourcesWaitingTime": "100s"})
register(spark)

def read(topic):
    return spark.read.format("rocketmq").option("rocketmq.namesrv", namesrv).option("subscribe", topic).load()

rows = read("Wide").selectExpr("queueId", "CAST(body AS STRING) AS text").collect()
files = spark.read.format("rocketmq-store").option("columns", "topic").load(store)
in_files = files.where("topic = 'Wide'").count()
write = read("Wide").selectExpr("body", "tags").write.format("rocketmq").option("rocketmq.namesrv", namesrv)
write.option("topic", "Copied").mode("append").save()
copied = read("Copied").selectExpr("CAST(body AS STRING) AS text").collect()
executors = spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size() - 1
code = run(["pipeline", "rebuild", offline, "--output", target, "--json"])
print(json.dumps({
    "executors": executors, "texts": sorted(row.text for row in rows), "queues": len({row.queueId for row in rows}),
    "in files": in_files, "copied": sorted(row.text for row in copied), "rebuild": code,
}))
spark.stop()
"""
TEXTS = [f"message {number:03}" for number in range(200)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    with SparkCluster(tmp_path_factory.mktemp("spark")) as running:
        yield running


def send(server: maxq.Standalone) -> None:
    """TEXTS to the topic Wide."""
    with Admin(server.namesrv_address) as admin:
        for topic in ("Wide", "Copied"):
            admin.topics.create(server.broker_address, TopicConfig(topic, 4, 4))
    with Producer("wide", server.namesrv_address) as producer:
        for number, text in enumerate(TEXTS):
            message = Message("Wide", text.encode())
            message.keys = f"k{number}"
            producer.send(message)


@pytest.fixture(scope="module")
def offline(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The store of a broker that has ended."""
    with maxq.Standalone(store=tmp_path_factory.mktemp("offline") / "store") as server:
        send(server)
    return server.store


def queue_files(store: Path) -> dict[str, bytes]:
    """Of the topic Wide."""
    folder = store / "consumequeue" / "Wide"
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.slow  # six processes of Java
def test_source_sink_and_rebuild_run_on_two_executors(
    cluster: SparkCluster, standalone: maxq.Standalone, offline: Path, tmp_path: Path
) -> None:
    send(standalone)
    target = tmp_path / "rebuilt"
    arguments = [cluster.url, standalone.namesrv_address, str(standalone.store), str(offline), str(target), QUICK_START]
    done = subprocess.run(
        [sys.executable, "-c", DRIVER, *arguments],
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=400,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["executors"] == 2
    assert found["texts"] == TEXTS
    assert found["queues"] == 4
    assert found["in files"] == len(TEXTS)
    assert found["copied"] == TEXTS
    assert found["rebuild"] == 0, done.stderr[-4000:]
    assert queue_files(target) == queue_files(offline)
