#!/usr/bin/env python3
"""Rows a second into `format("rocketmq")`; a standalone broker of ours on the same processors.

    python benches/spark_sink.py --rows 1000000                    # in Spark, local[2]: both sizes, both deliveries
    python benches/spark_sink.py --rows 1000000 --without-spark    # one task's rows from memory: encoder, wire, broker

A row is a body. Each case is run `--repeat` times on a topic of 4 queues; the later runs count.
One JSON line per run: rows/s, and the processor time of this process and of the broker.
"""

import argparse
import itertools
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import pyarrow as pa

from maxq.pipeline.options.write_options import AT_LEAST_ONCE, EXACTLY_ONCE, WriteOptions
from maxq.pipeline.sink.sink_commit import BatchName, WriteRun, commit
from maxq.pipeline.sink.sink_task import SinkTask
from maxq.testing.server_process import StandaloneProcess

SIZES = {"200B": 200, "1KiB": 1024}
ARROW_ROWS = 10_000  # as Spark cuts them


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


class Bench:
    """Cases against one broker."""

    def __init__(self, arguments: argparse.Namespace, server: StandaloneProcess) -> None:
        self.arguments = arguments
        self.server = server
        self._names = itertools.count()

    def options(self, size: str, delivery: str) -> dict[str, str]:
        given = {"rocketmq.namesrv": self.server.namesrv_address, "topic": f"sink{size}", "delivery": delivery}
        if delivery == EXACTLY_ONCE:
            given["applicationId"] = f"bench-{next(self._names)}"
        return given

    def run(self, what: str, size: str, delivery: str, write: Callable[[dict[str, str], int], None]) -> None:
        for number in range(self.arguments.repeat):
            before, own, started = cpu_seconds(self.server.pid), time.process_time(), time.monotonic()
            write(self.options(size, delivery), SIZES[size])
            seconds = time.monotonic() - started
            row = {"what": what, "size": size, "delivery": delivery, "run": number + 1, "seconds": round(seconds, 2)}
            row["rows_s"] = round(self.arguments.rows / seconds)
            row["own_cpu_s"] = round(time.process_time() - own, 2)  # of this process: not Spark's
            row["broker_cpu_s"] = round(cpu_seconds(self.server.pid) - before, 2)
            print(json.dumps(row), flush=True)

    def task(self, given: dict[str, str], size: int) -> None:
        """Without Spark."""
        options = WriteOptions.parse(given)
        body = pa.array([str(number).encode().ljust(size, b"x") for number in range(ARROW_ROWS)])
        batch = pa.record_batch({"body": body})
        result = SinkTask(options, {"body": "body"}).run(itertools.repeat(batch, self.arguments.rows // ARROW_ROWS))
        if options.exactly_once:
            commit(options, BatchName(options.application_id or "", 0), [result], WriteRun(began_ms=0))

    def in_spark(self) -> Callable[[dict[str, str], int], None]:
        from maxq.pipeline import register
        from maxq.pipeline.session import local_session

        spark = local_session("bench", master="local[2]", driver_memory="2g")
        register(spark)

        def write(given: dict[str, str], size: int) -> None:
            text = f"cast(rpad(cast(id as string), {size}, 'x') as binary) AS body"
            frame = spark.range(0, self.arguments.rows, 1, 2).selectExpr(text)
            frame.write.format("rocketmq").options(**given).mode("append").save()

        return write


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--repeat", type=int, default=2)
    parser.add_argument("--without-spark", action="store_true")
    parser.add_argument("--sizes", nargs="+", default=list(SIZES), choices=list(SIZES))
    parser.add_argument("--deliveries", nargs="+", default=[AT_LEAST_ONCE, EXACTLY_ONCE])
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, StandaloneProcess({}, folder=Path(folder)) as server:
        bench = Bench(arguments, server)
        write = bench.task if arguments.without_spark else bench.in_spark()
        for size in arguments.sizes:
            for delivery in arguments.deliveries:
                bench.run("task" if arguments.without_spark else "spark", size, delivery, write)


if __name__ == "__main__":
    main()
