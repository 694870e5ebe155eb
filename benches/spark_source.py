#!/usr/bin/env python3
"""Rows a second of `format("rocketmq")` over the wire, and milliseconds a trigger; the broker on the same processors.

    python benches/spark_source.py fill --folder /tmp/bench           # a broker that stays, topics s200 and s1k
    python benches/spark_source.py wire noop parquet stream micro floor --namesrv 127.0.0.1:PORT

`wire` reads without Spark, in this process. `noop` and `parquet` are batches of the seven columns that Kafka's source
has too, `stream` is Trigger.AvailableNow into noop, `micro` triggers of 100 rows, `floor` the same from an empty Python
source. Each is run `--repeat` times in one session; the later runs count. Topics have 4 queues, messages a key, a tag
and the unique key that clients give them.
"""

import argparse
import asyncio
import json
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from benches.load.frames import encode
from benches.load.request import Target
from maxq.pipeline.options.read_options import ReadOptions
from maxq.pipeline.source.batch_source import Conditions, plan_batch
from maxq.pipeline.wire.wire_reader import WireReader
from maxq.protocol.message.message import Message, encode_batch
from maxq.testing.server_process import StandaloneProcess

SEVEN = "body,keys,topic,queueId,queueOffset,storeTimestamp,tags"
QUEUES, BATCH, SEND_BATCH = 4, 256, 320
TOPICS = {"s200": 200, "s1k": 1024}
MICRO_ROWS = 100


def message(topic: str, number: int, size: int) -> Message:
    made = Message(topic, str(number).encode().ljust(size, b"x"))
    made.tags, made.keys = "TagA", str(number)
    made.properties["UNIQ_KEY"] = f"7F0000010000{number:020X}"
    return made


async def fill(target: Target, topic: str, count: int, size: int) -> None:
    """`count` messages, the same number in each queue."""

    async def one(queue: int) -> None:
        reader, writer = await asyncio.open_connection(*target.address, limit=1 << 22)
        for first in range(0, count // QUEUES, BATCH):
            numbers = range(first, min(first + BATCH, count // QUEUES))
            batch = [message(topic, queue + QUEUES * number, size) for number in numbers]
            fields = {
                "a": "bench", "b": topic, "c": "TBW102", "d": str(QUEUES), "e": str(queue), "f": "0",
                "g": str(int(time.time() * 1000)), "h": "0", "i": "", "j": "0", "k": "false", "m": "true",
            }  # fmt: skip
            writer.write(encode(1, SEND_BATCH, fields, encode_batch(batch), binary=False))
            size_of_answer = int.from_bytes(await reader.readexactly(4), "big")
            answer = await reader.readexactly(size_of_answer)
            assert b'"code":0' in answer, answer
        writer.close()

    await asyncio.gather(*map(one, range(QUEUES)))


def serve(folder: Path, rows: int) -> None:
    """A broker with the topics; ends with this process."""
    settings = {"maxMessageSize": str(8 << 20), "defaultTopicQueueNums": str(QUEUES)}
    with StandaloneProcess(settings, folder=folder) as server:
        for topic, size in TOPICS.items():
            asyncio.run(fill(Target.at(server.broker_address), topic, rows if size < 1000 else rows // 3, size))
        asyncio.run(fill(Target.at(server.broker_address), "micro", 20_000, 200))
        print(f"namesrv {server.namesrv_address} broker pid {server.pid}", flush=True)
        while True:
            time.sleep(3600)


def emit(**row: object) -> None:
    print(json.dumps(row), flush=True)


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def wire(namesrv: str, topic: str, broker_pid: int | None) -> int:
    options = ReadOptions.parse({"rocketmq.namesrv": namesrv, "subscribe": topic, "columns": SEVEN}, streaming=False)
    reader = WireReader(options)
    return sum(batch.num_rows for part in plan_batch(options, Conditions()) for batch in reader.read(part.ranges))


class Bench:
    """Tasks of one session."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        from maxq.pipeline import register
        from maxq.pipeline.session import local_session

        self.arguments = arguments
        self.spark = local_session("bench", master="local[2]", driver_memory="2g")
        register(self.spark)
        self.work = Path(tempfile.mkdtemp(prefix="bench-spark-"))

    def options(self, reader: Any, topic: str, **more: str) -> Any:
        reader = reader.format("rocketmq").option("rocketmq.namesrv", self.arguments.namesrv).option("subscribe", topic)
        return reader.options(startingOffsets="earliest", columns=self.arguments.columns, **more).load()

    def out(self, name: str) -> str:
        shutil.rmtree(self.work / name, ignore_errors=True)
        return str(self.work / name)

    def batch(self, topic: str, sink: str) -> None:
        frame = self.options(self.spark.read, topic)
        if sink == "noop":
            frame.write.format("noop").mode("overwrite").save()
        else:
            frame.write.mode("overwrite").parquet(self.out("batch"))

    def stream(self, topic: str, sink: str) -> None:
        frame = self.options(self.spark.readStream, topic)
        writer = frame.writeStream.option("checkpointLocation", self.out("checkpoint")).trigger(availableNow=True)
        writer = (
            writer.format("noop") if sink == "noop" else writer.format("parquet").option("path", self.out("stream"))
        )
        writer.start().awaitTermination()

    def micro(self, frame: Any, sink: str, name: str, stop_after: int | None = None) -> None:
        writer = frame.writeStream.option("checkpointLocation", self.out("checkpoint"))
        writer = (
            writer.format("noop") if sink == "noop" else writer.format("parquet").option("path", self.out("stream"))
        )
        if stop_after is None:
            query = writer.trigger(availableNow=True).start()
            query.awaitTermination()
        else:
            query = writer.trigger(processingTime="0 seconds").start()
            while len(query.recentProgress) < stop_after and query.isActive:
                time.sleep(0.05)
            query.stop()
        parts = [p if isinstance(p, dict) else json.loads(p.json) for p in query.recentProgress]
        warm = [p["durationMs"] for p in parts if p["durationMs"].get("addBatch")][5:]
        times = sorted(p["triggerExecution"] for p in warm)
        keys = sorted({key for p in warm for key in p})
        emit(what=name, sink=sink, triggers=len(times), median_ms=statistics.median(times), min_ms=times[0],
             p90_ms=times[int(len(times) * 0.9)],
             parts={key: statistics.median(p.get(key, 0) for p in warm) for key in keys})  # fmt: skip

    def floor(self) -> Any:
        self.spark.dataSource.register(floor_source())
        return self.spark.readStream.format("floor").load()


def floor_source() -> Any:
    """A stream of 100 rows a trigger that come from nowhere, in two tasks; pickled by value: workers lack this file."""
    from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

    class Part(InputPartition):
        pass

    class Stream(DataSourceStreamReader):
        def initialOffset(self) -> dict[str, int]:
            return {"n": 0}

        def latestOffset(self, *limits: object) -> dict[str, int]:
            self.at = getattr(self, "at", 0) + MICRO_ROWS
            return {"n": self.at}

        def partitions(self, start: object, end: object) -> list[InputPartition]:
            return [Part(50), Part(50)]

        def read(self, partition: InputPartition) -> Any:
            for _ in range(50):
                yield (b"x" * 200,)

        def commit(self, end: object) -> None:
            pass

    class Floor(DataSource):
        @classmethod
        def name(cls) -> str:
            return "floor"

        def schema(self) -> str:
            return "value binary"

        def streamReader(self, schema: object) -> Any:
            return Stream()

    for made in (Part, Stream, Floor):
        made.__module__ = "__main__"
    return Floor


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tasks", nargs="+", choices=["fill", "wire", "noop", "parquet", "stream", "micro", "floor"])
    parser.add_argument("--folder", type=Path, default=Path("/tmp/bench-spark-source"))
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--namesrv", default="127.0.0.1:9876")
    parser.add_argument("--broker-pid", type=int)
    parser.add_argument("--topics", default=",".join(TOPICS))
    parser.add_argument("--columns", default=SEVEN)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--sinks", default="noop,parquet")
    parser.add_argument("--triggers", type=int, default=45, help="of micro and floor")
    arguments = parser.parse_args()
    if "fill" in arguments.tasks:
        serve(arguments.folder, arguments.rows)
    topics = arguments.topics.split(",")
    bench = Bench(arguments) if set(arguments.tasks) != {"wire"} else None
    counts = {}
    for task in arguments.tasks:
        if task == "micro" and bench is not None:
            for sink in arguments.sinks.split(","):
                bench.micro(
                    bench.options(bench.spark.readStream, "micro", maxOffsetsPerTrigger="100"),
                    sink,
                    "micro",
                    arguments.triggers,
                )
        elif task == "floor" and bench is not None:
            for sink in arguments.sinks.split(","):
                bench.micro(bench.floor(), sink, "floor", arguments.triggers)
        else:
            for topic in topics:
                if topic not in counts:
                    counts[topic] = wire(arguments.namesrv, topic, None)
                for run in range(arguments.repeat):
                    before = cpu_seconds(arguments.broker_pid) if arguments.broker_pid else 0.0
                    began = time.monotonic()
                    if bench is None:
                        wire(arguments.namesrv, topic, None)
                    elif task == "stream":
                        bench.stream(topic, "noop")
                    else:
                        bench.batch(topic, task)
                    seconds = time.monotonic() - began
                    broker = cpu_seconds(arguments.broker_pid) - before if arguments.broker_pid else None
                    emit(what=task, topic=topic, run=run + 1, rows=counts[topic], seconds=round(seconds, 3),
                         rows_s=round(counts[topic] / seconds), broker_cpu_s=broker and round(broker, 2))  # fmt: skip


if __name__ == "__main__":
    main()
