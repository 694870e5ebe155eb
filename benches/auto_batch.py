"""What `auto_batch` changes for a program that sends one message a call: latency, throughput, and the client's CPU.

    python -m benches.auto_batch                    # 5 rounds of all ways, each in a process of its own
    python -m benches.auto_batch --rounds 2 --count 20000
    python -m benches.auto_batch --json benches/results/auto_batch.json

A server of this tree takes the sends. Ways to send: `lone` awaits each send before the next one, `gathered` keeps 256
in flight. Settings: `off`, `on` (the defaults, 10 ms and 32 KiB), and `on, 1 ms` (`batch_max_delay_ms=1`). They
alternate within a round; prints medians as a Markdown table. CPU is in µs a message:
the client's own, and the broker's.
"""

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Final

from benches.load.measure import cpu_seconds_of
from benches.results_file import write_results
from maxq.aio import Message, Producer
from maxq.testing.server_process import StandaloneProcess

SETTINGS: Final[dict[str, dict[str, int | bool]]] = {
    "off": {},
    "on": {"auto_batch": True},
    "on, 1 ms": {"auto_batch": True, "batch_max_delay_ms": 1},
}
IN_FLIGHT: Final = 256


def main() -> None:
    """Measure what the command line asks for."""
    parser = argparse.ArgumentParser(prog="benches.auto_batch", description="Compare auto_batch on and off.")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--count", type=int, default=50_000, help="messages of a gathered measurement")
    parser.add_argument("--lone", type=int, default=300, help="messages that are sent one at a time")
    parser.add_argument("--sizes", type=int, nargs="+", default=[1024, 100], help="bytes of a body")
    parser.add_argument("--json", type=Path, help="write the medians, machine and day here")
    parser.add_argument(
        "--one", nargs=5, metavar=("ADDRESS", "SETTING", "WAY", "COUNT", "SIZE"), help=argparse.SUPPRESS
    )
    given = parser.parse_args()
    if given.one is not None:
        address, setting, way, count, size = given.one
        print(json.dumps(asyncio.run(measure(address, setting, way, int(count), bytes(int(size))))))
        return
    found: dict[tuple[str, int, str], list[dict[str, float]]] = defaultdict(list)
    with StandaloneProcess() as server:
        for number in range(given.rounds):
            for size in given.sizes:
                for way, count in (("gathered", given.count), ("lone", given.lone)):
                    for setting in list(SETTINGS)[:: 1 if number % 2 == 0 else -1]:
                        arguments = [server.namesrv_address, setting, way, str(count), str(size)]
                        before = cpu_seconds_of([server.pid])
                        result = _run(arguments)
                        used = cpu_seconds_of([server.pid]) - before
                        found[way, size, setting].append(result | {"server_cpu_us": used * 1e6 / count})
    print("| way, bytes | auto_batch | client CPU | broker CPU | messages a second | p50, p99 µs |")
    print("|---|---|---|---|---|---|")
    rows: list[dict[str, object]] = []
    for (way, size, setting), results in sorted(found.items(), key=lambda item: (item[0][0], -item[0][1])):
        middle = {name: statistics.median(result[name] for result in results) for name in results[0]}
        cpu = f"{middle['cpu_us']:.1f} | {middle['server_cpu_us']:.1f}"
        times = f"{middle['per_s']:,.0f} | {middle['p50_us']:,.0f}, {middle['p99_us']:,.0f}"
        print(f"| {way}, {size} | {setting} | {cpu} | {times} |")
        figures = {name: round(value, 1) for name, value in middle.items()}
        rows.append({"way": way, "size": size, "auto_batch": setting} | figures)
    if given.json:
        write_results(given.json, "python -m benches.auto_batch", {"rounds": given.rounds, "medians": rows})


def _run(arguments: list[str]) -> dict[str, float]:
    command = [sys.executable, "-m", "benches.auto_batch", "--one", *arguments]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=Path(__file__).parents[1])
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return result


async def measure(address: str, setting: str, way: str, count: int, body: bytes) -> dict[str, float]:
    """Send `count` messages.

    Returns:
        `cpu_us` (µs of processor time of this process a message), `per_s` (messages a second), and `p50_us`, `p99_us`
        (from the call of a send to its result).
    """
    took: list[int] = []
    left = iter(range(count))

    async def sends(producer: Producer) -> None:
        for _ in left:
            began = time.perf_counter_ns()
            await producer.send(Message("auto-batch", body))
            took.append(time.perf_counter_ns() - began)

    async with Producer("auto-batch", address, **SETTINGS[setting]) as producer:  # type: ignore[arg-type]
        await producer.send(Message("auto-batch", body))
        began, cpu = time.perf_counter_ns(), time.process_time_ns()
        await asyncio.gather(*(sends(producer) for _ in range(IN_FLIGHT if way == "gathered" else 1)))
        cpu, seconds = time.process_time_ns() - cpu, (time.perf_counter_ns() - began) / 1e9
    took.sort()
    return {
        "cpu_us": cpu / 1000 / len(took),
        "per_s": len(took) / seconds,
        "p50_us": took[len(took) // 2] / 1000,
        "p99_us": took[len(took) * 99 // 100] / 1000,
    }


if __name__ == "__main__":
    main()
