#!/usr/bin/env python3
"""Three brokers of one DLedger group: MaxQ's, then Java's, on this machine, and the ratios.

    cold       three processes are started at once → first acknowledged send, its route from the name server
    cpu        1 KiB, 8 connections × 32 in flight: messages a second, CPU of all three brokers a message
    single     one connection, one in flight: latency
    fixed      2000 sends a second, whatever the answers: latency
    fail-over  kill -9 of the leader → first acknowledged send on the new one, which the name server names as master
    catch-up   a follower is stopped, comes back so many GiB behind → its log ends where the leader's does

Java's jars come from Maven Central (tests/interop/processes/peers.py). Durability differs: ours acknowledges what a
majority has synced, Java what is in the page caches of a majority.

    python benches/dledger.py [--only cold,cpu,…] [--side maxq|java|both] [--secs 8] [--gib 1] [--kills 3] [--json FILE]
"""

import argparse
import compileall
import contextlib
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # the tests' way to the jars is ours

from tests.interop.processes.peers import ROCKETMQ_VERSION, PeerUnavailableError, rocketmq_jars
from tests.interop.processes.servers import free_port_base, java_command, port_answers

import maxq
from benches.load.request import RefusedError, Target
from benches.results_file import write_results
from maxq.errors import MaxQError
from maxq.protocol.json.json_dialect import loads

MEMBERS = ("n0", "n1", "n2")
TOPIC = "bench"
BROKER_HEAP = ("-server", "-Xms1g", "-Xmx1g", "-XX:+UseG1GC", "-XX:MaxDirectMemorySize=2g")
NAMESRV_HEAP = ("-Xms128m", "-Xmx256m")
JAVA_WARM_UP_SECONDS = 20.0
PATIENCE_SECONDS = 180.0
STEPS = ("cold", "cpu", "single", "fixed", "fail-over", "catch-up")
GET_ROUTE, UPDATE_TOPIC, SEND_V2, RUNTIME_INFO = 105, 17, 310, 28
_POLL = 0.005


class Group:
    """A name server (of the same side) and three brokers."""

    def __init__(self, side: str, jars: Path | None) -> None:
        self.side = side
        self._jars = jars
        self.folder = Path(tempfile.mkdtemp(prefix=f"{side}-dledger-"))
        self._namesrv_port = free_port_base()
        self.ports = {member: free_port_base() for member in MEMBERS}
        peers = ";".join(f"{member}-127.0.0.1:{free_port_base()}" for member in MEMBERS)
        for member in MEMBERS:
            self._write_conf(member, peers)
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def _write_conf(self, member: str, peers: str) -> None:
        port = self.ports[member]
        settings = {
            "brokerClusterName": "DefaultCluster", "brokerName": "broker-a", "brokerIP1": "127.0.0.1",
            "listenPort": str(port), "haListenPort": str(port + 1),
            "namesrvAddr": f"127.0.0.1:{self._namesrv_port}",
            "storePathRootDir": str(self.folder / member / "store"),
            "storePathCommitLog": str(self.folder / member / "store" / "commitlog"),
            "enableDLegerCommitLog": "true", "dLegerGroup": "broker-a", "dLegerPeers": peers, "dLegerSelfId": member,
            "useReentrantLockWhenPutMessage": "true", "waitTimeMillsInSendQueue": "20000",
            "sendMessageThreadPoolNums": "4",
        }  # fmt: skip
        conf = self.conf(member)
        conf.parent.mkdir(parents=True)
        conf.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))

    def conf(self, member: str) -> Path:
        return self.folder / member / "broker.conf"

    # -- processes --

    def start_names(self) -> None:
        if self.side == "java":
            conf = self.folder / "namesrv.conf"
            conf.write_text(f"listenPort={self._namesrv_port}\n")
            command = self._java("namesrv.NamesrvStartup", NAMESRV_HEAP, conf)
        else:
            command = [sys.executable, "-m", "maxq", "namesrv", "-p", str(self._namesrv_port)]
        self._launch("namesrv", command)
        until(lambda: port_answers(self._namesrv_port), "the name server listens")

    def start(self, member: str) -> None:
        conf = self.conf(member)
        if self.side == "java":
            command = self._java("broker.BrokerStartup", BROKER_HEAP, conf)
        else:
            command = [sys.executable, "-m", "maxq", "broker", "-c", str(conf)]
        self._launch(member, command)

    def _java(self, main: str, heap: tuple[str, ...], conf: Path) -> list[str]:
        assert self._jars is not None, "Java's side has jars"
        return java_command(self._jars, conf.parent, heap, f"org.apache.rocketmq.{main}", "-c", str(conf))

    def _launch(self, name: str, command: list[str]) -> None:
        environment = dict(os.environ, ROCKETMQ_HOME=str(self.folder / name))
        with open(self.folder / f"{name}.log", "ab") as log:
            self.processes[name] = subprocess.Popen(command, env=environment, stdout=log, stderr=log)

    def kill(self, member: str) -> None:
        process = self.processes.pop(member)
        process.kill()
        process.wait()

    def end(self) -> None:
        for process in self.processes.values():
            process.send_signal(signal.SIGTERM)
        for process in self.processes.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(30)
            process.kill()
            process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    # -- asking --

    def master(self, topic: str) -> str | None:
        """The member that the name server names as master of a topic's broker."""
        try:
            answer = Target("127.0.0.1", self._namesrv_port).call(GET_ROUTE, {"topic": topic})
            addresses = loads(body_of(answer))["brokerDatas"][0]["brokerAddrs"]
        except (OSError, RefusedError, MaxQError, KeyError, IndexError):
            return None
        address = addresses.get("0", addresses.get(0))
        return next((member for member, port in self.ports.items() if address == f"127.0.0.1:{port}"), None)

    def target(self, member: str) -> Target:
        return Target("127.0.0.1", self.ports[member])

    def send(self, member: str) -> bool:
        """One message; is it acknowledged?"""
        fields = {
            "a": "PG", "b": TOPIC, "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": str(int(time.time() * 1000)),
            "h": "0", "i": "", "j": "0", "k": "false", "m": "false",
        }  # fmt: skip
        try:
            self.target(member).call(SEND_V2, fields, b"x" * 100)
        except (OSError, RefusedError, MaxQError):
            return False
        return True

    def first_acknowledged(self, *, but: str | None, topic: str = TOPIC) -> str:
        """Wait for a master that the name server names and that acknowledges; which."""

        def taken() -> str | None:
            master = self.master(topic)
            return master if master not in (None, but) and self.send(str(master)) else None

        return str(until(taken, "a send is acknowledged"))

    def make_topic(self) -> None:
        fields = {
            "topic": TOPIC, "defaultTopic": "TBW102", "readQueueNums": "8", "writeQueueNums": "8", "perm": "6",
            "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false",
        }  # fmt: skip
        self.target(str(until(lambda: self.master("TBW102"), "a master"))).call(UPDATE_TOPIC, fields)
        until(lambda: self.master(TOPIC), "the topic is known")

    def end_offset(self, member: str) -> int:
        """Where its readable log ends; -1 while it does not answer."""
        try:
            answer = self.target(member).call(RUNTIME_INFO, {})
            return int(loads(body_of(answer))["table"]["commitLogMaxOffset"])
        except (OSError, RefusedError, MaxQError, KeyError):
            return -1


def body_of(frame: bytes) -> bytes:
    """The body of a whole frame."""
    return frame[8 + (int.from_bytes(frame[4:8], "big") & 0xFFFFFF) :]


def until(holds: Callable[[], Any], what: str) -> Any:
    end = time.monotonic() + PATIENCE_SECONDS
    while not (value := holds()):
        if time.monotonic() > end:
            raise SystemExit(f"within {PATIENCE_SECONDS:.0f} s not: {what}")
        time.sleep(_POLL)
    return value


def load(group: Group, options: argparse.Namespace, *arguments: str) -> dict[str, Any]:
    """`benches.load send` at the master, with the CPU of all three."""
    master = group.first_acknowledged(but=None)
    pids = ",".join(str(group.processes[member].pid) for member in MEMBERS if member in group.processes)
    command = [
        sys.executable, "-m", "benches.load", "send", "--address", f"127.0.0.1:{group.ports[master]}", "--pid", pids,
        "--topic", TOPIC, "--secs", str(options.secs), "--warm", "2", *arguments,
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[1])
    if done.returncode:
        raise SystemExit(f"the load failed: {done.stderr[-1000:]}")
    return dict(json.loads(done.stdout.splitlines()[-1]))


# -- the steps --


def cold(group: Group, options: argparse.Namespace) -> dict[str, Any]:
    began = time.monotonic()
    for member in MEMBERS:
        group.start(member)
    group.first_acknowledged(but=None, topic="TBW102")
    seconds = time.monotonic() - began
    group.make_topic()
    if group.side == "java":
        load(group, argparse.Namespace(secs=JAVA_WARM_UP_SECONDS))
    return {"seconds": round(seconds, 2)}


def cpu(group: Group, options: argparse.Namespace) -> dict[str, Any]:
    result = load(group, options, "--conns", "8", "--inflight", "32", "--size", "1024")
    return {"per_s": result["sent_per_s"], "cpu_us": result.get("server_cpu_us_per_msg"), "us": result["send_us"]}


def single(group: Group, options: argparse.Namespace) -> dict[str, Any]:
    result = load(group, options, "--conns", "1", "--inflight", "1", "--size", "1024")
    return {"per_s": result["sent_per_s"], "cpu_us": result.get("server_cpu_us_per_msg"), "us": result["send_us"]}


def fixed(group: Group, options: argparse.Namespace) -> dict[str, Any]:
    result = load(group, options, "--conns", "8", "--inflight", "32", "--size", "1024", "--rate", "2000")
    return {"per_s": result["sent_per_s"], "us": result["send_us"]}


def fail_over(group: Group, options: argparse.Namespace) -> dict[str, Any]:
    seconds = []
    for _ in range(options.kills):
        master = group.first_acknowledged(but=None)
        time.sleep(3)  # as long as a group was at rest before
        began = time.monotonic()
        group.kill(master)
        group.first_acknowledged(but=master)
        seconds.append(round(time.monotonic() - began, 3))
        group.start(master)
        level(group, master)
    return {"seconds": statistics.median(seconds), "all": seconds}


def level(group: Group, member: str) -> None:
    """Wait until a follower's log ends where its leader's does."""

    def same() -> bool:
        master = group.master(TOPIC)
        return master is not None and 0 <= group.end_offset(master) <= group.end_offset(member)

    until(same, f"{member} has caught up")


def catch_up(group: Group, options: argparse.Namespace) -> dict[str, Any]:
    master = group.first_acknowledged(but=None)
    follower = next(member for member in MEMBERS if member != master)
    group.processes[follower].send_signal(signal.SIGTERM)
    group.processes.pop(follower).wait()
    before = group.end_offset(master)
    wanted = int(options.gib * (1 << 30))
    while (behind := group.end_offset(master) - before) < wanted:
        load(group, argparse.Namespace(secs=5), "--conns", "4", "--inflight", "8", "--size", "32768")
    group.start(follower)
    began = time.monotonic()
    level(group, follower)
    seconds = time.monotonic() - began
    return {"seconds": round(seconds, 2), "mib": behind >> 20, "mib_per_s": round((behind >> 20) / seconds, 1)}


RUN = {"cold": cold, "cpu": cpu, "single": single, "fixed": fixed, "fail-over": fail_over, "catch-up": catch_up}


def run_side(side: str, jars: Path | None, options: argparse.Namespace) -> dict[str, Any]:
    group = Group(side, jars)
    results: dict[str, Any] = {}
    try:
        group.start_names()
        for step in ("cold", *(step for step in options.only if step != "cold")):
            results[step] = RUN[step](group, options)
            print(f"{side:5} {step:10} {json.dumps(results[step])}", flush=True)
    finally:
        group.end()
    return results


def ratio(ours: dict[str, Any], java: dict[str, Any], *path: str) -> float | None:
    """Ours by Java's; None where one is missing."""
    a: Any = ours
    b: Any = java
    for name in path:
        a, b = (a or {}).get(name), (b or {}).get(name)
    return round(a / b, 4) if a and b else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(STEPS))
    parser.add_argument("--side", choices=("maxq", "java", "both"), default="both")
    parser.add_argument("--secs", type=float, default=8.0)
    parser.add_argument("--gib", type=float, default=1.0)
    parser.add_argument("--kills", type=int, default=3)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    options.only = options.only.split(",")
    compileall.compile_dir(Path(maxq.__file__).parent, quiet=1)  # as an installed package is
    sides = ("maxq", "java") if options.side == "both" else (options.side,)
    try:
        jars = rocketmq_jars() if "java" in sides else None
    except PeerUnavailableError as error:
        raise SystemExit(str(error)) from None
    results = {side: run_side(side, jars, options) for side in sides}
    if len(results) == 2:
        ours, java = results["maxq"], results["java"]
        results["ratio"] = {
            "cold": ratio(ours, java, "cold", "seconds"),
            "cpu": ratio(ours, java, "cpu", "cpu_us"),
            "single p50": ratio(ours, java, "single", "us", "p50"),
            "fixed p99": ratio(ours, java, "fixed", "us", "p99"),
            "fail-over": ratio(ours, java, "fail-over", "seconds"),
            "catch-up": ratio(ours, java, "catch-up", "seconds"),
        }
        print(f"ours by Java's (RocketMQ {ROCKETMQ_VERSION}): {json.dumps(results['ratio'])}")
    if options.json:
        figures = {"rocketmq": ROCKETMQ_VERSION, "sides": results}
        write_results(options.json, "python benches/dledger.py", figures)


if __name__ == "__main__":
    main()
