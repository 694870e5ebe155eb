#!/usr/bin/env python3
"""The same load on MaxQ and on Apache RocketMQ (Java), in alternation on this machine, and the ratios.

Rates and latencies of one run say little about another machine; the ratio of two that ran minute by minute beside each
other does. Both servers get the same settings, a fresh store and a warm-up; Java gets a heap of 1 GiB. The jars come
from Maven Central (see tests/interop/processes/peers.py) and are kept in MAXQ_PEERS, by default ~/.cache/peers.

    python benches/compare_java.py [--only send_1k,consume] [--rounds 2] [--set flushDiskType=SYNC_FLUSH] [--json FILE]
"""

import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

sys.path.insert(0, str(Path(__file__).parents[1]))  # the tests' way to the jars is ours

from tests.interop.processes.peers import ROCKETMQ_VERSION, PeerUnavailableError, rocketmq_jars
from tests.interop.processes.servers import free_port_base, java_command, port_answers, wait_until

from benches.load.measure import LoadError, measure
from benches.load.request import RefusedError, Target
from benches.load.workloads import WORKLOADS, plan_of
from benches.results_file import write_results
from maxq.testing.server_process import StandaloneProcess

JAVA_WARM_UP_SECONDS = 25.0
BROKER_HEAP = ("-server", "-Xms1g", "-Xmx1g", "-XX:+UseG1GC", "-XX:MaxDirectMemorySize=4g")
NAMESRV_HEAP = ("-Xms128m", "-Xmx256m")
BOOT_SECONDS = 120.0
MEDIANS = ("sent_per_s", "received_per_s", "server_cpu_us_per_msg", "server_cores", "server_rss_anon_mb", "errors")
SMALLER_IS_BETTER = {"server_cpu_us_per_msg", "server_rss_anon_mb", "ready_s", "idle_rss_anon_mb"}


class Server(Protocol):
    """One broker with its name server, for one round."""

    def __enter__(self) -> object: ...
    def __exit__(self, *_: object) -> None: ...
    @property
    def broker_address(self) -> str: ...
    @property
    def pid(self) -> int: ...
    @property
    def ready_seconds(self) -> float: ...


class JavaServer:
    """Apache RocketMQ's name server and broker."""

    def __init__(self, jars: Path, settings: Mapping[str, str]) -> None:
        self._jars = jars
        self._settings = settings
        self._folder = Path(tempfile.mkdtemp(prefix="java-mq-"))
        self._namesrv_port = free_port_base()
        self._broker_port = free_port_base()
        self.ready_seconds = 0.0
        self._processes: list[subprocess.Popen[bytes]] = []

    @property
    def pid(self) -> int:
        """The broker's; the name server does nothing under load."""
        return self._processes[1].pid

    @property
    def namesrv_address(self) -> str:
        return f"127.0.0.1:{self._namesrv_port}"

    @property
    def broker_address(self) -> str:
        return f"127.0.0.1:{self._broker_port}"

    def __enter__(self) -> "JavaServer":
        namesrv_conf = self._folder / "namesrv.conf"
        namesrv_conf.write_text(f"listenPort={self._namesrv_port}\n")
        self._launch("namesrv.NamesrvStartup", NAMESRV_HEAP, namesrv_conf)
        wait_until(lambda: port_answers(self._namesrv_port), BOOT_SECONDS, "Java's name server listens")
        started = time.monotonic()
        self._launch("broker.BrokerStartup", BROKER_HEAP, self._broker_conf())
        wait_until(self._has_booted, BOOT_SECONDS, "Java's broker says boot success")
        self.ready_seconds = time.monotonic() - started
        return self

    def start_again(self) -> None:
        """After the broker was killed: the same store and port, without waiting for it."""
        self._processes.pop().wait()
        self._launch("broker.BrokerStartup", BROKER_HEAP, self._folder / "broker.conf")

    def _broker_conf(self) -> Path:
        settings = {
            "brokerClusterName": "DefaultCluster",
            "brokerName": "broker-a",
            "brokerId": "0",
            "brokerIP1": "127.0.0.1",
            "listenPort": str(self._broker_port),
            "haListenPort": str(self._broker_port + 1),
            "namesrvAddr": f"127.0.0.1:{self._namesrv_port}",
            "storePathRootDir": str(self._folder / "store"),
            "storePathCommitLog": str(self._folder / "store" / "commitlog"),
            # without these Java refuses load for reasons of its thread pools instead of taking it
            "sendMessageThreadPoolNums": "4",
            "useReentrantLockWhenPutMessage": "true",
            "waitTimeMillsInSendQueue": "20000",
            **self._settings,
        }
        conf = self._folder / "broker.conf"
        conf.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        return conf

    def _launch(self, main: str, heap: tuple[str, ...], conf: Path) -> None:
        command = java_command(self._jars, self._folder, heap, f"org.apache.rocketmq.{main}", "-c", str(conf))
        with open(self._folder / "log", "ab") as log:
            environment = dict(os.environ, ROCKETMQ_HOME=str(self._folder))
            self._processes.append(subprocess.Popen(command, env=environment, stdout=log, stderr=log))

    def _has_booted(self) -> bool:
        text = (self._folder / "log").read_text(errors="replace")
        if self._processes[-1].poll() is not None:
            raise SystemExit(f"Java's broker ended: {text[-2000:]}")
        return "The broker" in text and "boot success" in text.split("The broker")[-1]

    def __exit__(self, *_: object) -> None:
        for process in reversed(self._processes):
            process.send_signal(signal.SIGTERM)
        for process in self._processes:
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)


def one_round(
    kind: str, server: Server, names: Sequence[str], options: argparse.Namespace
) -> dict[str, dict[str, Any]]:
    """All workloads on one fresh server: results by workload, and `start`."""
    results: dict[str, dict[str, Any]] = {}
    with server:
        results["start"] = {"ready_s": server.ready_seconds, "idle_rss_anon_mb": rss_anon_mib(server.pid)}
        warm_up = JAVA_WARM_UP_SECONDS if kind == "java" and not options.quick else options.warm
        measure(plan_of("send_1k", Target.at(server.broker_address), secs=0.1, warm=warm_up), [])
        for name in names:
            plan = plan_of(name, Target.at(server.broker_address), secs=options.secs, warm=options.warm)
            try:
                results[name] = measure(plan, [server.pid])
            except (LoadError, RefusedError, OSError) as error:
                results[name] = {"error": str(error)}
            print(f"{kind:>5} {name:<14} {brief(results[name])}", file=sys.stderr, flush=True)
    return results


def rss_anon_mib(pid: int) -> float:
    """Private memory of a process."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return round(int(line.split()[1]) / 1024, 1)
    return 0.0


def brief(result: Mapping[str, Any]) -> str:
    """A measurement in one line."""
    shown = {name: result[name] for name in ("error", *MEDIANS) if result.get(name)}
    shown |= {name: result[name] for name in ("send_us", "e2e_us") if name in result}
    return json.dumps(shown)


def medians(rounds: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The middle of each number over the rounds of one workload and one server."""
    row: dict[str, Any] = {}
    for name in (*MEDIANS, "ready_s", "idle_rss_anon_mb"):
        values = [found[name] for found in rounds if name in found]
        if values:
            row[name] = round(statistics.median(values), 2)
    for name in ("send_us", "e2e_us"):
        tables = [found[name] for found in rounds if name in found]
        if tables:
            row[name] = {key: round(statistics.median(table[key] for table in tables), 1) for key in tables[0]}
    generator = [found["generator"]["cores"] for found in rounds if "generator" in found]
    if generator:
        row["generator_cores"] = round(statistics.median(generator), 2)
    return row


def ratios(ours: Mapping[str, Any], java: Mapping[str, Any]) -> dict[str, float]:
    """How many times better MaxQ is: Java's number over ours where small is good, ours over Java's elsewhere."""
    found = {}
    for name in ("sent_per_s", "received_per_s", *sorted(SMALLER_IS_BETTER)):
        if ours.get(name) and java.get(name):
            smaller = name in SMALLER_IS_BETTER
            found[name] = round(java[name] / ours[name] if smaller else ours[name] / java[name], 2)
    for name in ("send_us", "e2e_us"):
        for quantile in ("p50", "p99"):
            if ours.get(name, {}).get(quantile) and java.get(name, {}).get(quantile):
                found[f"{name}.{quantile}"] = round(java[name][quantile] / ours[name][quantile], 2)
    return found


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--only", default="", help=f"of {', '.join(WORKLOADS)}")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--secs", type=float, default=8.0, help="measured seconds of each workload")
    parser.add_argument("--warm", type=float, default=4.0, help="seconds of it before that")
    parser.add_argument("--quick", action="store_true", help="no long warm-up of the JVM: not for publication")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="broker property, for both")
    parser.add_argument("--json", type=Path, help="write everything measured here")
    return parser.parse_args()


def main() -> None:
    """Measure in alternation and print a table."""
    options = parse()
    names = [name for name in options.only.split(",") if name] or list(WORKLOADS)
    unknown = set(names) - set(WORKLOADS)
    if unknown:
        raise SystemExit(f"no workload {', '.join(sorted(unknown))}: there are {', '.join(WORKLOADS)}")
    try:
        jars = rocketmq_jars()
    except PeerUnavailableError as error:
        raise SystemExit(str(error)) from None
    settings = dict(pair.split("=", 1) for pair in options.set)
    results: dict[str, dict[str, list[dict[str, Any]]]] = {"java": {}, "maxq": {}}
    for number in range(options.rounds):
        print(f"round {number + 1} of {options.rounds}", file=sys.stderr)
        servers: dict[str, Server] = {"java": JavaServer(jars, settings), "maxq": StandaloneProcess(settings)}
        for kind, server in servers.items():
            for name, result in one_round(kind, server, names, options).items():
                results[kind].setdefault(name, []).append(result)
    table = {name: {kind: medians(results[kind][name]) for kind in results} for name in ("start", *names)}
    print(f"MaxQ against Apache RocketMQ {ROCKETMQ_VERSION}, medians of {options.rounds} rounds")
    for name, row in table.items():
        row["ratio"] = ratios(row["maxq"], row["java"])
        print(f"\n{name}")
        for kind in ("java", "maxq", "ratio"):
            print(f"  {kind:<6} {json.dumps(row[kind])}")
    if options.json:
        about = {"rocketmq": ROCKETMQ_VERSION, "rounds_each": options.rounds, "seconds_each": options.secs}
        measured = about | {"medians": table, "rounds": results}
        write_results(options.json, "python benches/compare_java.py", measured)


if __name__ == "__main__":
    main()
