#!/usr/bin/env python3
"""Spark on topics of ours and on Kafka's, in one session on the same processors.

    python benches/spark_kafka.py noop parquet stream files store count every micro sink
    mkfifo tasks; python benches/spark_kafka.py - < tasks &          # one at a time, as the machine is free

Kafka and the jars of Spark's Kafka source come from Maven Central (peer_servers.py).
It and standalone MaxQ brokers are started, filled with 2 M messages of 200 B and 500 k of 1 KiB in 4 queues, and
stopped at the end. Ours have a key, a tag and the unique key that clients give them; Kafka's a value only. A task is
run `--repeat` times, ours and Kafka's in turn; the last round counts, and ends in a line of ratios beside what is
wanted. `store`, `count` and `every` read the files while the broker runs; the floor is a source of ready Arrow
batches (floor_source.py).
"""

import argparse
import asyncio
import contextlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from benches.floor_source import FloorSource
from benches.load.measure import cpu_seconds_of
from benches.load.request import Target
from benches.peer_servers import Running, client_environment, kafka, spark_kafka_jars
from benches.spark_source import SEVEN, fill
from maxq.testing.server_process import StandaloneProcess

SIZES = {"s200": 200, "s1k": 1024}
KAFKA_COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "headers")
Way = Callable[[], object]

SETTINGS = {"maxMessageSize": str(8 << 20), "defaultTopicQueueNums": "4"}
MICRO_ROWS, TRIGGERS = 100, 40
#: task → of the ratio to Kafka, of 200 B and 1 KiB; of `store` and `micro` to the floor
MUST = {
    "noop": (1.2, 1.2), "parquet": (1.2, 1.2), "stream_noop": (1.2,), "stream_parquet": (1.2,), "files": (2.5, 3.0),
    "store": (0.8, 0.8), "sink": (1.0, 1.0), "micro": (1.15,),
}  # fmt: skip


def emit(**row: object) -> None:
    print(json.dumps(row), flush=True)


def tree_cpu() -> float:
    """Processor seconds of this process and its descendants, ended ones too: Spark's JVM, Python workers, servers."""
    used: dict[int, float] = {}
    children: dict[int, list[int]] = defaultdict(list)
    for folder in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if folder.name.isdigit():
                words = (folder / "stat").read_text().rpartition(")")[2].split()
                used[int(folder.name)] = sum(map(int, words[11:15])) / os.sysconf("SC_CLK_TCK")
                children[int(words[1])].append(int(folder.name))
    total, left = 0.0, [os.getpid()]
    while left:
        one = left.pop()
        total += used[one]
        left += children[one]
    return total


def fill_kafka(address: str, rows: dict[str, int]) -> None:
    """Send the messages, and make the topics that are written to."""
    program = Path(__file__).with_name("client_load.py")
    for topic, count in rows.items():
        words = ["confluent", "send", address, str(count - 1), str(SIZES[topic]), topic]  # and the warm one
        subprocess.run([client_environment() / "bin/python", program, *words], check=True, stdout=sys.stderr)
    for topic in ("w200", "w1024", "m100"):
        subprocess.run(
            [client_environment() / "bin/python", program, "confluent", "send", address, "1", "100", topic],
            check=True, stdout=sys.stderr,
        )  # fmt: skip


class Bench:
    """The tasks, in one session."""

    def __init__(
        self, arguments: argparse.Namespace, servers: dict[str, StandaloneProcess], kafka: Running, rows: dict[str, int]
    ) -> None:
        from maxq.pipeline import register
        from maxq.pipeline.session import local_session

        self.bootstrap = kafka.address
        self.repeat, self.servers, self.rows = arguments.repeat, servers, rows
        self.pids = [kafka.pid, *(server.pid for server in servers.values())]
        self.work = Path(tempfile.mkdtemp(prefix="spark-kafka-", dir=arguments.folder))
        settings = {"spark.driver.extraClassPath": f"{spark_kafka_jars()}/*"}
        self.spark = local_session("bench", master="local[2]", driver_memory="2g", settings=settings)
        register(self.spark)
        self.wires: dict[str, Callable[..., Any]] = {"kafka": self.kafka, "ours": self.ours}

    # --- sources and sinks -------------------------------------------------------------------------------------------

    def ours(self, topic: str, *, stream: bool = False, **options: str) -> Any:
        reader = self.spark.readStream if stream else self.spark.read
        chosen = {"rocketmq.namesrv": self.servers[topic].namesrv_address, "subscribe": topic, "columns": SEVEN}
        return reader.format("rocketmq").options(**{"startingOffsets": "earliest", **chosen, **options}).load()

    def kafka(self, topic: str, *, stream: bool = False, **options: str) -> Any:
        reader = self.spark.readStream if stream else self.spark.read
        chosen = {"kafka.bootstrap.servers": self.bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
        return reader.format("kafka").options(includeHeaders="true", **chosen, **options).load().select(*KAFKA_COLUMNS)

    def kafka_value(self, topic: str) -> Any:
        return self.kafka(topic).select("value")

    def store(self, topic: str, **options: str) -> Any:
        return self.spark.read.format("rocketmq-store").options(**options).load(str(self.servers[topic].store))

    def floor(self, topic: str) -> Any:
        return self.spark.read.format("floor").options(rows=self.rows[topic], size=SIZES[topic]).load()

    def out(self, name: str) -> str:
        shutil.rmtree(self.work / name, ignore_errors=True)
        return str(self.work / name)

    def write(self, frame: Any, sink: str) -> None:
        if sink == "noop":
            frame.write.format("noop").mode("overwrite").save()
        else:
            frame.write.mode("overwrite").parquet(self.out("batch"))

    def run_stream(self, frame: Any, sink: str, **trigger: Any) -> Any:
        writer = frame.writeStream.option("checkpointLocation", self.out("checkpoint")).trigger(**trigger)
        if sink == "noop":
            return writer.format("noop").start()
        return writer.format("parquet").option("path", self.out("stream")).start()

    # --- tasks -------------------------------------------------------------------------------------------------------

    def compare(self, task: str, topic: str, ways: dict[str, Way], against: str, rows: int) -> None:
        """Run all `ways` in turn; print the rates, and of the last round the ratios to `against`."""
        rates: dict[str, float] = {}
        for turn in range(self.repeat):
            for name, way in ways.items():
                before = [tree_cpu(), cpu_seconds_of(self.pids)]
                began = time.monotonic()
                way()
                seconds = time.monotonic() - began
                spark, brokers = tree_cpu(), cpu_seconds_of(self.pids)
                rates[name] = rows / seconds
                emit(task=task, topic=topic, what=name, run=turn + 1, rows=rows, seconds=round(seconds, 3),
                     rows_s=round(rates[name]), spark_cpu_s=round(spark - before[0] - (brokers - before[1]), 2),
                     broker_cpu_s=round(brokers - before[1], 2), load=os.getloadavg()[0])  # fmt: skip
        ratios = {name: round(rate / rates[against], 2) for name, rate in rates.items() if name != against}
        must = MUST.get(task, ())
        place = list(SIZES).index(topic)
        emit(task=task, topic=topic, against=against, ratios=ratios, must=must[place] if place < len(must) else None)

    def writing(self, read: Callable[..., Any], sink: str, *arguments: str, **options: str) -> Way:
        """A way that makes the frame anew, as every query does, and writes it."""
        return lambda: self.write(read(*arguments, **options), sink)

    def streaming(self, read: Callable[..., Any], sink: str, topic: str) -> Way:
        return lambda: self.run_stream(read(topic, stream=True), sink, availableNow=True).awaitTermination()

    def batch(self, sink: str) -> None:
        for topic, count in self.rows.items():
            ways = {
                "kafka": self.writing(self.kafka, sink, topic),
                "ours": self.writing(self.ours, sink, topic),
                "kafka, value only": self.writing(self.kafka_value, sink, topic),
            }
            self.compare(sink, topic, ways, "kafka", count)

    def stream(self, topic: str = "s200") -> None:
        for sink in ("noop", "parquet"):
            ways = {name: self.streaming(read, sink, topic) for name, read in self.wires.items()}
            self.compare(f"stream_{sink}", topic, ways, "kafka", self.rows[topic])

    def files(self) -> None:
        for topic, count in self.rows.items():
            path = str(self.servers[topic].store)
            ways = {
                "kafka": self.writing(self.kafka, "noop", topic),
                "ours": self.writing(self.ours, "noop", topic, readFrom="files", storePath=path),
                "floor": self.writing(self.floor, "noop", topic),
            }
            self.compare("files", topic, ways, "kafka", count)

    def scan(self) -> None:
        for topic, count in self.rows.items():
            ways = {
                "floor": self.writing(self.floor, "noop", topic),
                "ours": self.writing(self.store, "noop", topic, columns=SEVEN),
                "body only": self.writing(self.store, "noop", topic, columns="body"),
            }
            self.compare("store", topic, ways, "floor", count)

    def count(self) -> None:
        for topic, count in self.rows.items():
            ways: dict[str, Way] = {
                "kafka": partial(self.counted, self.kafka, topic),
                "ours": partial(self.counted, self.store, topic, columns="queueOffset"),
                "newest of each queue": partial(self.newest, topic),
            }
            self.compare("count", topic, ways, "kafka", count)

    def counted(self, read: Callable[..., Any], topic: str, **options: str) -> None:
        read(topic, **options).count()

    def newest(self, topic: str) -> None:
        self.store(topic, columns="queueId,storeTimestamp").groupBy("queueId").agg({"storeTimestamp": "max"}).collect()

    def every(self) -> None:
        for topic, count in self.rows.items():
            ways = {
                "kafka": self.writing(self.kafka, "noop", topic),
                "store": self.writing(self.store, "noop", topic),
            }
            self.compare("every", topic, ways, "kafka", count)

    def sink(self, count: int = 1_000_000) -> None:
        for topic in SIZES:
            ways: dict[str, Way] = {
                "kafka": partial(self.send_kafka, topic, count),
                "ours": partial(self.send, topic, count),
            }
            self.compare("sink", topic, ways, "kafka", count)

    def made(self, topic: str, count: int) -> Any:
        value = f"rpad(cast(id as string), {SIZES[topic]}, 'x') as value"
        return self.spark.range(0, count, 1, 4).selectExpr("cast(id as string) as key", value)

    def send_kafka(self, topic: str, count: int) -> None:
        writer = self.made(topic, count).write.format("kafka").option("kafka.bootstrap.servers", self.bootstrap)
        writer.option("topic", f"w{SIZES[topic]}").save()

    def send(self, topic: str, count: int) -> None:
        frame = self.made(topic, count).withColumnRenamed("key", "keys")  # the same two columns of text
        writer = frame.write.format("rocketmq").option("rocketmq.namesrv", self.servers["w"].namesrv_address)
        writer.option("topic", f"w_{topic}").mode("append").save()

    def micro(self, topic: str = "micro") -> None:
        floor = self.spark.readStream.format("floor").load()
        mine = self.ours(topic, stream=True, maxOffsetsPerTrigger=str(MICRO_ROWS))
        for sink in ("noop", "parquet"):
            medians = {}
            for _ in range(self.repeat):
                for name, frame in (("floor", floor), ("ours", mine)):
                    query = self.run_stream(frame, sink, processingTime="0 seconds")
                    while query.isActive and len(query.recentProgress) < TRIGGERS:
                        time.sleep(0.05)
                    query.stop()
                    progress = [p if isinstance(p, dict) else json.loads(p.json) for p in query.recentProgress]
                    warm = [p["durationMs"] for p in progress if p["durationMs"].get("addBatch")][5:TRIGGERS]
                    times = sorted(parts["triggerExecution"] for parts in warm)
                    medians[name] = statistics.median(times)
                    emit(task="micro", what=name, sink=sink, triggers=len(times), median_ms=medians[name],
                         min_ms=times[0], load=os.getloadavg()[0],
                         parts={key: statistics.median(parts.get(key, 0) for parts in warm)
                                for key in sorted(warm[0])})  # fmt: skip
            ratio = round(medians["ours"] / medians["floor"], 2)
            emit(task="micro", sink=sink, against="floor", ratios={"ours": ratio}, must=MUST["micro"][0])

    def run(self, task: str) -> None:
        tasks: dict[str, Way] = {
            "noop": lambda: self.batch("noop"),
            "parquet": lambda: self.batch("parquet"),
            "stream": self.stream,
            "files": self.files,
            "store": self.scan,
            "count": self.count,
            "every": self.every,
            "micro": self.micro,
            "sink": self.sink,
        }
        name, _, only = task.partition(":")
        rows = self.rows
        try:
            self.rows = {topic: count for topic, count in rows.items() if not only or topic == only}
            tasks[name]()
        finally:
            self.rows = rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tasks", nargs="+", help="of the above, noop:s1k of one size; - reads them from stdin")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--rows", type=int, default=2_000_000, help="of 200 B; a quarter as many of 1 KiB")
    parser.add_argument("--repeat", type=int, default=2)
    arguments = parser.parse_args()
    rows = {"s200": arguments.rows, "s1k": arguments.rows // 4}
    with contextlib.ExitStack() as running:
        servers = {name: running.enter_context(StandaloneProcess(SETTINGS)) for name in (*rows, "w")}
        servers["micro"] = servers["w"]
        for topic, count in rows.items():
            asyncio.run(fill(Target.at(servers[topic].broker_address), topic, count, SIZES[topic]))
        for topic, count in {"micro": MICRO_ROWS * TRIGGERS * 10, "w_s200": 4, "w_s1k": 4}.items():
            asyncio.run(fill(Target.at(servers["w"].broker_address), topic, count, 200))
        peer = running.enter_context(kafka())
        fill_kafka(peer.address, rows)
        bench = Bench(arguments, servers, peer, rows)
        bench.spark.dataSource.register(FloorSource)
        emit(ready=True, machine=os.cpu_count(), spark=bench.spark.version)
        try:
            for task in (line.strip() for line in sys.stdin) if arguments.tasks == ["-"] else arguments.tasks:
                bench.run(task)
                emit(done=task)
        finally:
            bench.spark.stop()
            shutil.rmtree(bench.work, ignore_errors=True)


if __name__ == "__main__":
    main()
