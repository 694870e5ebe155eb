"""Servers as processes, Java's and ours behind one face, so that a test is written once for every mixture."""

import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from benches.load.request import RefusedError, Target

OPENS = (
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/java.lang=ALL-UNNAMED",
)
SMALL_HEAP = ("-Xms64m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
BROKER_HEAP = ("-Xms200m", "-Xmx400m", "-XX:MaxDirectMemorySize=600m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
GET_ROUTEINFO_BY_TOPIC = 105
LOOPBACK = "127.0.0.1"
ALWAYS_THERE = "TBW102"  # a topic of every broker
PORTS = (11_200, 18_000)  # below those of maxq.standalone
WORKERS = 8  # so many processes of pytest-xdist have a part of them each
_KEPT = 100
_given: dict[int, None] = {}  # ports, in the order in which they were given
START_SECONDS = 240
STOP_SECONDS = 180
SETTINGS = {  # what both kinds of broker get; small files make roll-over part of every longer test
    "brokerClusterName": "DefaultCluster",
    "brokerName": "broker-a",
    "brokerId": "0",
    "autoCreateTopicEnable": "true",
    "mappedFileSizeCommitLog": str(4 << 20),
    "mappedFileSizeConsumeQueue": "60000",
    "maxHashSlotNum": "5000",
    "maxIndexNum": "20000",
    "waitTimeMillsInSendQueue": "10000",  # on a busy machine a broker drops one-way messages without a word otherwise
    "osPageCacheBusyTimeOutMills": "10000",
}


def free_port_base(count: int = 4) -> int:
    """A port P with P … P + count - 1 and P - 2 (the VIP port) free just now, and of no earlier answer.

    Nobody takes them before the server does: they are below the range from which the kernel gives ports to outgoing
    connections, each process of pytest-xdist has a part of its own, and what was given is not given again.
    """
    worker = os.environ.get("PYTEST_XDIST_WORKER", "").removeprefix("gw")
    low, high = PORTS
    if worker:
        size = (high - low) // WORKERS
        low += int(worker) % WORKERS * size
        high = low + size
    while True:
        base = random.randrange(low + 2, high - count)
        ports = {base - 2, *range(base, base + count)}
        if ports & _given.keys():
            continue
        with contextlib.suppress(OSError), contextlib.ExitStack() as held:
            for port in ports:
                held.enter_context(socket.socket()).bind(("", port))
            _remember(ports)
            return base


def _remember(ports: set[int]) -> None:
    """The last hundred only: whoever has asked before has long started his server."""
    _given.update(dict.fromkeys(ports))
    for port in [*_given][:-_KEPT]:
        del _given[port]


def wait_until(condition, seconds: float, what: str):  # type: ignore[no-untyped-def]
    """Return the first truthy value of `condition()`, which is asked again and again until `seconds` have passed.

    A condition that is costly, such as two logs that are compared, is left alone for as long as it took: what it waits
    for needs the processors, too.
    """
    end = time.monotonic() + seconds
    while True:
        asked = time.monotonic()
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"after {seconds} s still not: {what}")
        time.sleep(max(0.02, time.monotonic() - asked))


def port_answers(port: int, host: str = LOOPBACK) -> bool:
    with contextlib.suppress(OSError):
        socket.create_connection((host, port), 0.5).close()
        return True
    return False


@dataclass
class Server:
    """One server process, its folder and its log. `host`: where it listens, without brackets."""

    folder: Path
    port: int
    host: str = LOOPBACK
    process: subprocess.Popen[bytes] | None = None
    command: list[str] = field(default_factory=list)

    @property
    def address(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def log(self) -> Path:
        return self.folder / f"{type(self).__name__}-{self.port}.log"

    def launch(self, command: list[str]) -> None:
        """Start the process and wait until the port answers; a process that dies first fails the test with its log."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.command = command
        environment = dict(os.environ, ROCKETMQ_HOME=str(self.folder))
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, stdin=subprocess.DEVNULL)

        self.wait_while_running(lambda: port_answers(self.port, self.host), f"listens on {self.port}")

    def wait_while_running(self, condition: Callable[[], object], what: str) -> None:
        """Return when the condition holds; a process that ends first fails the test with its log."""

        def holds() -> object:
            assert self.process is not None and self.process.poll() is None, f"{type(self).__name__} has ended"
            return condition()

        try:
            wait_until(holds, START_SECONDS, f"{type(self).__name__} {what}")
        except AssertionError as error:
            raise AssertionError(f"{error}: {self.log_tail()}") from None

    def log_tail(self) -> str:
        return self.log.read_text(errors="replace")[-3000:] if self.log.exists() else ""

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def discard(self) -> None:
        """End the process, whose files nobody reads afterwards.

        It is asked to stop, so that a server of ours that cannot end fails the test. Java's servers are killed:
        a Java broker sleeps for 15 s while it stops.
        """
        self.stop()

    def _end(self, number: signal.Signals) -> None:
        if self.process is None:
            return
        if self.process.poll() is None:
            self.process.send_signal(number)
            try:
                self.process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
                raise AssertionError(f"{type(self).__name__} did not end: {self.log_tail()}") from None
        self.process = None


class JavaNamesrv(Server):
    def discard(self) -> None:
        self.kill()

    def start(self, jars: Path) -> "JavaNamesrv":
        self.folder.mkdir(parents=True, exist_ok=True)
        conf = self.folder / "namesrv.conf"
        conf.write_text(f"listenPort={self.port}\nbindAddress=127.0.0.1\n")
        self.launch(
            java_command(jars, self.folder, SMALL_HEAP, "org.apache.rocketmq.namesrv.NamesrvStartup", "-c", str(conf))
        )
        return self


class Broker(Server):
    """What Java's broker and ours share: a store folder and a broker.conf."""

    @property
    def store(self) -> Path:
        return self.folder / "store"

    def write_conf(self, namesrv: str, settings: Mapping[str, str]) -> Path:
        self.folder.mkdir(parents=True, exist_ok=True)
        own = {
            "listenPort": str(self.port),
            "haListenPort": str(self.port + 1),
            "namesrvAddr": namesrv,
            "brokerIP1": self.host,
            **({} if self.host == LOOPBACK else {"bindAddress": self.host}),
            "storePathRootDir": str(self.store),
            "storePathCommitLog": str(self.store / "commitlog"),
        }
        conf = self.folder / "broker.conf"
        conf.write_text("".join(f"{key}={value}\n" for key, value in {**SETTINGS, **own, **settings}.items()))
        return conf

    def wait_for_registration(self, namesrv: str) -> None:
        """Until clients find the broker; its port answers before that."""
        self.wait_while_running(lambda: self._is_registered(namesrv), f"is registered at {namesrv}")

    def _is_registered(self, namesrv: str) -> bool:
        """Does the name server know this broker? With Java's it may take ten seconds longer than "boot success"."""
        host, _, port = namesrv.rpartition(":")
        try:
            answer = Target(host, int(port)).call(GET_ROUTEINFO_BY_TOPIC, {"topic": ALWAYS_THERE})
        except RefusedError:
            return False
        return any(f'"{host}:{self.port}"'.encode() in answer for host in (self.host, f"[{self.host}]"))  # Java: bare


class JavaBroker(Broker):
    def discard(self) -> None:
        self.kill()

    def start(self, jars: Path, namesrv: str, settings: Mapping[str, str] | None = None) -> "JavaBroker":
        conf = self.write_conf(namesrv, settings or {})
        self.folder.mkdir(parents=True, exist_ok=True)
        self.log.write_bytes(b"")  # that of an earlier run says boot success too
        self.launch(
            java_command(jars, self.folder, BROKER_HEAP, "org.apache.rocketmq.broker.BrokerStartup", "-c", str(conf))
        )
        self.wait_while_running(lambda: "boot success" in self.log.read_text(), "says boot success")
        self.wait_for_registration(namesrv)
        return self


class MaxqNamesrv(Server):
    def start(self) -> "MaxqNamesrv":
        self.launch([sys.executable, "-m", "maxq", "namesrv", "-p", str(self.port)])
        return self


class MaxqBroker(Broker):
    def start(self, namesrv: str, settings: Mapping[str, str] | None = None) -> "MaxqBroker":
        conf = self.write_conf(namesrv, settings or {})
        self.launch([sys.executable, "-m", "maxq", "broker", "-c", str(conf)])
        self.wait_for_registration(namesrv)
        return self


def java_command(classpath: Path | str, home: Path, heap: tuple[str, ...], main: str, *arguments: str) -> list[str]:
    """A Java process that keeps its logs and local offsets below `home`."""
    jars = f"{classpath}/*" if isinstance(classpath, Path) else classpath
    return ["java", *heap, *OPENS, f"-Duser.home={home}", "-Dfile.encoding=UTF-8", "-cp", jars, main, *arguments]


@contextlib.contextmanager
def stopping(*servers: Server) -> Iterator[None]:
    """Discard the servers in order at the end, whatever happens."""
    try:
        yield
    finally:
        for server in servers:
            server.discard()
