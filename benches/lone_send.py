"""How long one message takes that is sent while nothing else is on its way.

python benches/lone_send.py maxq|maxq_blocking|nats|confluent HOST:PORT COUNT BYTES

Stands alone, because each peer's client has its own environment (client_peers.py). Prints one JSON line: µs from the
call to its result (median, 99th percentile) and this process's processor time a message. Of nats-py it is `publish`
of JetStream, which waits for the server's answer; of confluent-kafka `produce` and `flush`, with linger.ms=0.
"""

import asyncio
import contextlib
import json
import sys
import time
from collections.abc import Iterator

_WARM = 500  # sends before it counts


def main() -> None:
    """Measure the client that the command line names."""
    which, address, count, size = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    took: list[int] = []
    with _cpu(which, size, count, took):
        if which == "maxq":
            asyncio.run(_maxq(address, bytes(size), count, took))
        elif which == "maxq_blocking":
            _maxq_blocking(address, bytes(size), count, took)
        elif which == "nats":
            asyncio.run(_nats(address, bytes(size), count, took))
        else:
            _confluent(address, bytes(size), count, took)


@contextlib.contextmanager
def _cpu(which: str, size: int, count: int, took: list[int]) -> Iterator[None]:
    yield
    times = sorted(took[_WARM:])
    p50, p99 = (round(times[int(len(times) * part)] / 1000, 1) for part in (0.5, 0.99))
    cpu = (_Cpu.end - _Cpu.begin) / 1000 / count
    print(json.dumps({"client": which, "size": size, "p50_us": p50, "p99_us": p99, "cpu_us": round(cpu, 1)}))


class _Cpu:
    """Processor time (ns) of this process when counting began, and when it ended."""

    begin = 0
    end = 0


def _rounds(count: int, took: list[int]) -> Iterator[None]:
    """Yields for each send; notes how long each took."""
    for number in range(_WARM + count):
        if number == _WARM:
            _Cpu.begin = time.process_time_ns()
        began = time.perf_counter_ns()
        yield
        took.append(time.perf_counter_ns() - began)
    _Cpu.end = time.process_time_ns()


async def _maxq(address: str, body: bytes, count: int, took: list[int]) -> None:
    from maxq.aio import Message, Producer

    async with Producer("lone", address) as producer:
        for _ in _rounds(count, took):
            await producer.send(Message("lone", body))


def _maxq_blocking(address: str, body: bytes, count: int, took: list[int]) -> None:
    from maxq.api import Message, Producer

    with Producer("lone", address) as producer:
        for _ in _rounds(count, took):
            producer.send(Message("lone", body))


async def _nats(address: str, body: bytes, count: int, took: list[int]) -> None:
    import nats

    client = await nats.connect(address)
    stream = client.jetstream()
    with contextlib.suppress(Exception):  # it may be there
        await stream.add_stream(name="lone", subjects=["lone"])
    for _ in _rounds(count, took):
        await stream.publish("lone", body)
    await client.close()


def _confluent(address: str, body: bytes, count: int, took: list[int]) -> None:
    import confluent_kafka

    producer = confluent_kafka.Producer({"bootstrap.servers": address, "linger.ms": 0})
    for _ in _rounds(count, took):
        producer.produce("lone", body)
        producer.flush()


if __name__ == "__main__":
    if sys.argv[1].startswith("maxq"):
        main()
    else:
        with contextlib.suppress(ImportError):
            import uvloop

            uvloop.install()
        main()
