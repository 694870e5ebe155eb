#!/usr/bin/env python3
"""Memory of an hour of streaming: a topic into Parquet, a trigger each five seconds, and who grows meanwhile.

    python benches/spark_hour.py [--minutes 60] [--rate 400] [--every 30]

Starts a standalone broker, sends `--rate` messages of 200 B a second to four queues from a process of their own, and
streams all columns into Parquet files (`local[2]`). Each `--every` seconds a line of JSON: rows and triggers so far and
the private memory (RssAnon, MiB) of each process: the broker, Spark's JVM, the Python program that started it, Spark's
source runner, its worker daemon with its workers. At the end the sender stops, the query runs until it has everything,
and the last line has, for each process, the medians of the sixth to the fifteenth minute and of the last ten, the
largest, and whether the Parquet files hold every row once. Not a measure of speed: it may run beside other work.
"""

import argparse
import asyncio
import json
import multiprocessing
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from benches.load.frames import encode
from benches.load.request import Target
from benches.spark_source import QUEUES, SEND_BATCH, message
from maxq.protocol.message.message import encode_batch
from maxq.testing.server_process import StandaloneProcess

TOPIC, SIZE = "hour", 200
TRIGGER = "5 seconds"
WARM_MINUTES, WINDOW_MINUTES = 5, 10
#: what stands in the command line of a process of Spark → what it is
ROLES = {"streaming_source_runner": "source runner", "pyspark.daemon": "workers", "java": "JVM"}


async def send(target: Target, rate: int, seconds: float) -> None:
    """Batches to each queue in turn, as many a second as `rate` wants."""
    reader, writer = await asyncio.open_connection(*target.address)
    began, sent, batch = time.monotonic(), 0, max(rate // 20, 1)
    while time.monotonic() - began < seconds:
        rows = [message(TOPIC, number, SIZE) for number in range(sent, sent + batch)]
        fields = {
            "a": "bench", "b": TOPIC, "c": "TBW102", "d": str(QUEUES), "e": str(sent // batch % QUEUES), "f": "0",
            "g": str(int(time.time() * 1000)), "h": "0", "i": "", "j": "0", "k": "false", "m": "true",
        }  # fmt: skip
        writer.write(encode(1, SEND_BATCH, fields, encode_batch(rows), binary=False))
        answer = await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
        assert b'"code":0' in answer, answer
        sent += batch
        await asyncio.sleep(max(began + sent / rate - time.monotonic(), 0))
    writer.close()


def send_for(target: Target, rate: int, seconds: float) -> None:
    asyncio.run(send(target, rate, seconds))


def processes_below(pid: int) -> Iterator[tuple[int, str]]:
    """Number and command line of every process that `pid` started, and those they started."""
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in map(int, (task / "children").read_text().split()):
            try:
                yield child, Path(f"/proc/{child}/cmdline").read_text().replace("\0", " ")
                yield from processes_below(child)
            except FileNotFoundError:
                continue  # it has ended meanwhile


def rss_anon_mib(pid: int) -> float:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except FileNotFoundError:
        return 0.0  # it has ended meanwhile
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("RssAnon:")), 0.0)


def memory(broker: int) -> dict[str, float]:
    """MiB of private memory by what a process is."""
    found: dict[str, float] = defaultdict(float, broker=rss_anon_mib(broker), program=rss_anon_mib(os.getpid()))
    for pid, command in processes_below(os.getpid()):
        role = next((role for part, role in ROLES.items() if part in command), None)
        if role is not None:
            found[role] += rss_anon_mib(pid)
    return {role: round(mib, 1) for role, mib in found.items()}


def summary(samples: list[tuple[float, dict[str, float]]]) -> dict[str, dict[str, float]]:
    """Of each process the median after it was warm and at the end, and the largest."""
    last = samples[-1][0]
    windows = {
        "early": (WARM_MINUTES, WARM_MINUTES + WINDOW_MINUTES),
        "late": (last - WINDOW_MINUTES, last),
        "largest": (0, last),
    }
    roles = {role for _, sizes in samples for role in sizes}
    return {
        role: {
            name: (max if name == "largest" else statistics.median)(
                [sizes[role] for minute, sizes in samples if begin <= minute <= end and role in sizes] or [0.0]
            )
            for name, (begin, end) in windows.items()
        }
        for role in sorted(roles)
    }


def stream(spark: Any, namesrv: str, work: Path) -> Any:
    """The query, from the first message on."""
    source = spark.readStream.format("rocketmq").options(subscribe=TOPIC, startingOffsets="earliest")
    writer = source.option("rocketmq.namesrv", namesrv).load().writeStream.format("parquet")
    places = {"path": str(work / "rows"), "checkpointLocation": str(work / "checkpoint")}
    return writer.options(**places).trigger(processingTime=TRIGGER).start()


def found_rows(spark: Any, work: Path) -> tuple[int, int]:
    """Rows of the Parquet files, and how many places in queues they are of."""
    rows = spark.read.parquet(str(work / "rows"))
    return rows.count(), rows.select("queueId", "queueOffset").distinct().count()


def stored_rows(spark: Any, namesrv: str) -> int:
    options = {"rocketmq.namesrv": namesrv, "subscribe": TOPIC, "columns": "queueOffset"}
    return int(spark.read.format("rocketmq").options(**options).load().count())


def run(arguments: argparse.Namespace, server: StandaloneProcess, work: Path) -> None:
    from maxq.pipeline import register
    from maxq.pipeline.session import local_session

    spark = local_session("hour", master="local[2]")
    register(spark)
    sender = multiprocessing.get_context("spawn").Process(
        target=send_for, args=(Target.at(server.broker_address), arguments.rate, arguments.minutes * 60), daemon=True
    )
    sender.start()
    began, samples = time.monotonic(), list[tuple[float, dict[str, float]]]()
    while stored_rows(spark, server.namesrv_address) == 0:
        time.sleep(0.5)
    query = stream(spark, server.namesrv_address, work)
    while sender.is_alive() and query.isActive:
        time.sleep(arguments.every)
        minute, progress = (time.monotonic() - began) / 60, query.lastProgress
        samples.append((minute, memory(server.pid)))
        batch = progress["batchId"] if progress else None
        print(json.dumps({"minute": round(minute, 1), "trigger": batch, "MiB": samples[-1][1]}), flush=True)
    if query.exception() is not None:
        raise query.exception()
    query.processAllAvailable()
    triggers = query.lastProgress["batchId"] + 1
    query.stop()
    stored, (rows, places) = stored_rows(spark, server.namesrv_address), found_rows(spark, work)
    print(json.dumps({"minutes": round(samples[-1][0], 1), "triggers": triggers, "stored": stored, "rows": rows,
                      "each once": stored == rows == places, "MiB": summary(samples)}))  # fmt: skip
    spark.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--rate", type=int, default=400, help="messages a second")
    parser.add_argument("--every", type=float, default=30, help="seconds between two looks")
    arguments = parser.parse_args()
    work = Path(tempfile.mkdtemp(prefix="spark-hour-"))
    try:
        with StandaloneProcess({"defaultTopicQueueNums": str(QUEUES)}) as server:
            run(arguments, server, work)
    finally:
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    main()
