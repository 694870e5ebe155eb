#!/usr/bin/env python3
"""Many topics and groups: what operators ask of a broker with 10 000 topics and 20 000 consumer groups, its memory, and
whether a scrape of the metrics is noticed by those who send.

    python benches/many_topics.py [--topics 10000] [--groups-per-topic 2] [--java | --only-java] [--json FILE]

Prints one JSON object a server. Times are medians of five, in milliseconds, from request to last byte, by raw frames:
`topic_list` asks the name server (206), `topic_config` the broker for all topics (21), `consumer_progress` is what one
group costs (208; mqadmin asks so for every group), `all_progress` all groups in one answer (317; null: refused),
`scrape` the metrics, asked for as Prometheus does, which takes gzip; `scrape_cpu` is what one costs the server, and
`scrape_cpu_all_written` what one costs after every topic has had a message. `scrape_bytes` are bytes with gzip,
`scrape_bytes_plain` without.
`send_p99` is of one connection that sends 1000/s, without and with a scrape every second by another process.
"""

import argparse
import json
import signal
import socket
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # the other benches and the tests' way to the jars

from tests.interop.processes.peers import ROCKETMQ_VERSION, rocketmq_jars
from tests.interop.processes.servers import free_port_base

from benches.compare_java import JavaServer, rss_anon_mib
from benches.load.frames import encode
from benches.load.request import RefusedError, Target
from benches.many_queues import SEND_MESSAGE_V2, fields, send_each
from benches.results_file import write_results
from maxq.testing.server_process import StandaloneProcess

TOPIC_LIST, GROUP_LIST, COMMIT, TOPICS_OF_CLUSTER = 18, 225, 15, 206
ALL_TOPICS, GROUP_PROGRESS, ALL_PROGRESS = 21, 208, 317
AT_ONCE = 500
PROMETHEUS = {"metricsExporterType": "PROM", "metricsPromExporterHost": "127.0.0.1", "brokerIP1": "127.0.0.1"}


class Asker:
    """One connection, one request at a time."""

    def __init__(self, target: Target) -> None:
        self._socket = socket.create_connection(target.address, timeout=120)
        self._stream = self._socket.makefile("rb")
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask(self, code: int, ext: dict[str, str], body: bytes = b"") -> bytes:
        """The answer behind its length. RefusedError: any code but 0."""
        self._socket.sendall(encode(1, code, ext, body, binary=False))
        size = int.from_bytes(self._stream.read(4), "big")
        frame = self._stream.read(size)
        header = frame[4 : 4 + (int.from_bytes(frame[:4], "big") & 0xFFFFFF)]
        if json.loads(header)["code"]:
            raise RefusedError(f"request {code}: {header!r:.300}")
        return frame


def pieces(names: list[str]) -> Iterator[list[str]]:
    return (names[start : start + AT_ONCE] for start in range(0, len(names), AT_ONCE))


def fill(target: Target, topics: list[str], groups: dict[str, str]) -> None:
    """Make topics and groups, one message in each topic, and a commit of each group."""
    asker = Asker(target)
    for some in pieces(topics):
        configs = [
            {"topicName": name, "readQueueNums": 1, "writeQueueNums": 1, "perm": 6, "topicFilterType": "SINGLE_TAG",
             "topicSysFlag": 0, "order": False, "attributes": {}}
            for name in some
        ]  # fmt: skip
        asker.ask(TOPIC_LIST, {}, json.dumps({"topicConfigList": configs}).encode())
    for some in pieces(list(groups)):
        found = [{"groupName": name, "consumeEnable": True, "retryQueueNums": 1, "retryMaxTimes": 16} for name in some]
        asker.ask(GROUP_LIST, {}, json.dumps({"groupConfigList": found}).encode())
    send_each(target, topics, 1)
    for group, topic in groups.items():
        asker.ask(COMMIT, {"consumerGroup": group, "topic": topic, "queueId": "0", "commitOffset": "0"})


def median_ms(what: Callable[[], object]) -> float:
    times = []
    for _ in range(5):
        began = time.perf_counter()
        what()
        times.append((time.perf_counter() - began) * 1000)
    return round(statistics.median(times), 2)


def scrape(port: int, encoding: str = "gzip") -> int:
    request = urllib.request.Request(f"http://127.0.0.1:{port}/metrics", headers={"Accept-Encoding": encoding})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return len(answer.read())


def scrape_again_and_again(port: int) -> None:
    """What the process of `--scrape-only` does."""
    while True:
        scrape(port)
        time.sleep(1)


@contextmanager
def scraper(port: int) -> Iterator[None]:
    """Another process that scrapes once a second: in this one it would hold up who sends."""
    process = subprocess.Popen([sys.executable, __file__, "--scrape-only", str(port)])
    try:
        yield
        if process.poll() is not None:
            raise SystemExit("the process that scrapes has ended")
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()


def cpu_ms(pid: int) -> float:
    """What all threads of a process have used."""
    return time.clock_gettime_ns(~pid << 3 | 2) / 1e6  # the kernel's number for "CPU clock of that process"


def scrape_cpu(pid: int, port: int) -> float:
    began = cpu_ms(pid)
    for _ in range(5):
        scrape(port)
    return round((cpu_ms(pid) - began) / 5, 1)


def rest(pid: int) -> None:
    """Return when the server has nothing left to do: it used less than 5 % of a processor for half a second."""
    while True:
        began = cpu_ms(pid)
        time.sleep(0.5)
        if cpu_ms(pid) - began < 25:
            return


def scrape_cpu_all_written(pid: int, port: int, target: Target, topics: list[str]) -> float:
    """The median of five scrapes, each after a message to every topic."""
    costs = []
    for _ in range(5):
        send_each(target, topics, 1)
        rest(pid)
        began = cpu_ms(pid)
        scrape(port)
        costs.append(cpu_ms(pid) - began)
    return round(statistics.median(costs), 1)


def send_p99(target: Target, topic: str, *, seconds: float) -> float:
    """Milliseconds from when a send was due to its answer, at 1000/s."""
    asker, times = Asker(target), []
    began = time.perf_counter()
    for number in range(int(seconds * 1000)):
        due = began + number / 1000
        if (left := due - time.perf_counter()) > 0:
            time.sleep(left)
        asker.ask(SEND_MESSAGE_V2, fields(topic, 0, number), b"x" * 100)
        times.append(time.perf_counter() - due)
    return round(statistics.quantiles(times, n=100)[98] * 1000, 3)


def all_progress(broker: Asker) -> float | None:
    try:
        return median_ms(lambda: broker.ask(ALL_PROGRESS, {"isOrder": "false", "timeoutMillis": "60000"}))
    except RefusedError:
        return None


def run(
    server: JavaServer | StandaloneProcess, topics: list[str], groups: dict[str, str], port: int
) -> dict[str, float | None]:
    with server:
        began = time.monotonic()
        fill(Target.at(server.broker_address), topics, groups)
        filled = time.monotonic() - began
        broker = Asker(Target.at(server.broker_address))
        namesrv_port = int(server.namesrv_address.rpartition(":")[2])
        namesrv = Asker(Target("127.0.0.1", namesrv_port))
        some = list(groups)[:100]
        found: dict[str, float | None] = {
            "fill_s": round(filled, 2),
            "topic_list": median_ms(lambda: namesrv.ask(TOPICS_OF_CLUSTER, {})),
            "topic_config": median_ms(lambda: broker.ask(ALL_TOPICS, {})),
            "consumer_progress": round(
                median_ms(lambda: [broker.ask(GROUP_PROGRESS, {"consumerGroup": group}) for group in some]) / 100, 3
            ),
            "all_progress": all_progress(broker),
            "scrape": median_ms(lambda: scrape(port)),
            "scrape_bytes": scrape(port),
            "scrape_bytes_plain": scrape(port, "identity"),
            "scrape_cpu": scrape_cpu(server.pid, port),
            "scrape_cpu_all_written": scrape_cpu_all_written(
                server.pid, port, Target.at(server.broker_address), topics
            ),
            "send_p99": send_p99(Target.at(server.broker_address), topics[0], seconds=5),
        }
        with scraper(port):
            found["send_p99_scraped"] = send_p99(Target.at(server.broker_address), topics[0], seconds=5)
        return found | {"rss_anon_mb": round(rss_anon_mib(server.pid), 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--topics", type=int, default=10_000)
    parser.add_argument("--groups-per-topic", type=int, default=2)
    parser.add_argument("--java", action="store_true", help="Apache RocketMQ beside ours")
    parser.add_argument("--only-java", action="store_true", help="only Apache RocketMQ")
    parser.add_argument("--json", type=Path, help="write the figures, machine and day here")
    parser.add_argument("--scrape-only", type=int, default=0, metavar="PORT", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.scrape_only:
        scrape_again_and_again(options.scrape_only)
    topics = [f"Topic{number:05}" for number in range(options.topics)]
    groups = {f"G{turn}-{topic}": topic for topic in topics for turn in range(options.groups_per_topic)}
    port = free_port_base()
    settings = PROMETHEUS | {"metricsPromExporterPort": str(port)}
    servers: dict[str, JavaServer | StandaloneProcess] = {}
    if not options.only_java:
        servers["maxq"] = StandaloneProcess(settings)
    if options.java or options.only_java:
        servers["java"] = JavaServer(rocketmq_jars(), settings)
    rows = []
    for name, server in servers.items():
        sizes = {"server": name, "topics": len(topics), "groups": len(groups)}
        rows.append(sizes | run(server, topics, groups, port))
        print(json.dumps(rows[-1]), flush=True)
    if options.json:
        write_results(options.json, "python benches/many_topics.py", {"rocketmq": ROCKETMQ_VERSION, "rows": rows})


if __name__ == "__main__":
    main()
