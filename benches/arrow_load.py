"""Processor time of a client that sends or receives tables.

python benches/arrow_load.py maxq_arrow send|receive HOST:PORT COUNT BYTES [COLUMN ...]

The loops are those of client_load.py: a warm client, COUNT messages with a tag, every received body
looked at (its length). Columns are those that a receiver asks for; without them it gets all. Prints one JSON line.
"""

import json
import sys
import time

import pyarrow as pa
import pyarrow.compute as pc

from maxq.api import ConsumeFromWhere, LitePullConsumer, Producer

_WAIT_MS = 10_000  # for the first batch
_TIMEOUT_MS = 3_000


def main() -> None:
    """Measure what the command line names."""
    which, what, address, count, size = *sys.argv[1:4], int(sys.argv[4]), int(sys.argv[5])
    work = _send if what == "send" else _receive
    done, wall, cpu = work(address, f"Bench{size}", count, size)
    times = {"per_s": round(done / wall), "wall_us": round(wall / done * 1e6, 2), "cpu_us": round(cpu / done * 1e6, 3)}
    print(json.dumps({"client": which, "what": what, "size": size, "messages": done, **times}))


def _send(address: str, topic: str, count: int, size: int) -> tuple[int, float, float]:
    """Returns messages, seconds, and seconds of this process's processor time."""
    table = pa.table({"body": [bytes(size)] * count, "tags": ["a"] * count})
    with Producer("bench", address) as producer:
        producer.send_arrow(table.slice(0, 1), topic=topic)  # loads what it needs
        wall, cpu = time.perf_counter(), time.process_time()
        done = producer.send_arrow(table, topic=topic).num_rows
        return done, time.perf_counter() - wall, time.process_time() - cpu


def _receive(address: str, topic: str, count: int, size: int) -> tuple[int, float, float]:
    columns, done = sys.argv[6:] or None, 0
    first = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    with LitePullConsumer(f"g{time.time_ns()}", address, consume_from_where=first) as consumer:
        consumer.subscribe(topic)
        _right(consumer.poll_arrow(_WAIT_MS, columns=columns), size)  # pyarrow loads pandas with the first comparison
        wall, cpu = time.perf_counter(), time.process_time()
        while done < count and (batch := consumer.poll_arrow(_TIMEOUT_MS, columns=columns)).num_rows:
            done += _right(batch, size)
        return done, time.perf_counter() - wall, time.process_time() - cpu


def _right(batch: pa.RecordBatch, size: int) -> int:
    """Return how many bodies have this size."""
    return int(pc.sum(pc.equal(pc.binary_length(batch.column("body")), size)).as_py() or 0)


if __name__ == "__main__":
    main()
