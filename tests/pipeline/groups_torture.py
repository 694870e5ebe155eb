"""Several broker groups at once under Spark: kill -9 of masters while their slaves stand in for them, and of the Spark
application; queues of a static topic move between the groups.

Each group is a SYNC_MASTER and a slave (inSyncReplicas=2, enableSlaveActingMaster). A producer sends to an ordinary
topic and to a static one, which both lie on all groups. A streaming query, an application of its own, copies both,
exactly once, into a third topic, a static one, too; a push consumer reads both; batches read them whenever something
has happened. In each round masters of one or two groups are killed, or a slave, or the application at a random moment,
or queues of the static topic move; then, and again when all is mended:

* a batch that begins now has every message acknowledged before, and no row twice;
* in the end the push consumer has had every acknowledged message, and the copy has each message of both topics once.

    python -m tests.pipeline.groups_torture --rounds 10 [--seed 1] [--groups 3] [--faults kill_driver …]
"""

import argparse
import contextlib
import itertools
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple, Self

from maxq.api import Admin, ConsumeContext, ConsumeFromWhere, Message, MessageExt, Producer, PushConsumer
from maxq.client.results.send_result import SendStatus
from maxq.errors import MaxQError
from maxq.pipeline import register
from maxq.pipeline.options.read_options import ReadOptions
from maxq.pipeline.session import local_session
from maxq.pipeline.source.batch_source import Conditions, plan_batch
from maxq.pipeline.wire.wire_client import WireClient
from maxq.pipeline.wire.wire_reader import WireReader
from maxq.protocol.body.route import MASTER_ID
from maxq.protocol.body.topic_config import TopicConfig
from maxq.testing.server_process import ServerProcess
from tests.interop.processes.servers import free_port_base, wait_until
from tests.pipeline.spark_cluster import QUICK_START

ORDINARY, STATIC, COPY = "Ordinary", "Static", "Copy"
QUEUES: Final = 6
PATIENCE_S: Final = 120.0
SETTINGS: Final = {
    "brokerClusterName": "Groups", "brokerIP1": "127.0.0.1", "brokerIP2": "127.0.0.1", "bindAddress": "127.0.0.1",
    "mappedFileSizeCommitLog": str(16 << 20), "mappedFileSizeConsumeQueue": "60000", "maxHashSlotNum": "1000",
    "maxIndexNum": "4000", "haSendHeartbeatInterval": "300", "haHousekeepingInterval": "1500", "slaveTimeout": "2000",
    "enableSlaveActingMaster": "true", "totalReplicas": "2", "brokerHeartbeatInterval": "200",
    "brokerNotActiveTimeoutMillis": "1500", "syncBrokerMemberGroupPeriod": "200", "autoCreateTopicEnable": "false",
}  # fmt: skip
MASTER: Final = {"brokerId": "0", "brokerRole": "SYNC_MASTER", "inSyncReplicas": "2"}
SLAVE: Final = {"brokerId": "1", "brokerRole": "SLAVE"}


class Row(NamedTuple):
    """One message as a reader of its topic sees it."""

    topic: str
    broker: str
    queue_id: int
    queue_offset: int
    body: str


def _server(name: str, folder: Path, kind: str, settings: dict[str, str]) -> ServerProcess:
    folder.mkdir(parents=True)
    conf = folder / "conf"
    conf.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    return ServerProcess(name, folder, [kind, "-c", str(conf)])


class Cluster:
    """A name server and so many groups."""

    def __init__(self, folder: Path, groups: int) -> None:
        port = free_port_base(1 + 8 * groups)
        self.namesrv = f"127.0.0.1:{port}"
        settings = {"listenPort": str(port), "supportActingMaster": "true", "scanNotActiveBrokerInterval": "200"}
        self._name_server = _server("namesrv", folder / "namesrv", "namesrv", settings)
        self.masters: dict[str, ServerProcess] = {}
        self.slaves: dict[str, ServerProcess] = {}
        for number in range(groups):
            name, at = f"group-{number}", port + 3 + 8 * number
            for role, table, broker_port in ((MASTER, self.masters, at), (SLAVE, self.slaves, at + 4)):
                store = folder / f"{name}-{role['brokerId']}"
                settings = {
                    **SETTINGS, **role, "brokerName": name, "namesrvAddr": self.namesrv,
                    "listenPort": str(broker_port), "haListenPort": str(broker_port + 1),
                    "storePathRootDir": str(store / "store"),
                }  # fmt: skip
                table[name] = _server(f"{name}-{role['brokerId']}", store, "broker", settings)

    def __enter__(self) -> Self:
        try:
            for server in (self._name_server, *self.masters.values(), *self.slaves.values()):
                server.start()
            self.wait_for_all()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for server in (*self.slaves.values(), *self.masters.values(), self._name_server):
            server.stop()

    def addresses(self, name: str) -> dict[int, str]:
        """Broker id → address of a group, as the name server has it."""
        with WireClient(_options(self.namesrv, ORDINARY).connection) as client:
            data = client.cluster_info().broker_addr_table.get(name)
        return {} if data is None else dict(data.broker_addrs)

    def wait_for_all(self) -> None:
        for name in self.masters:
            wait_until(lambda name=name: len(self.addresses(name)) == 2, PATIENCE_S, f"{name} is whole")

    def wait_for_stand_in(self, name: str) -> None:
        """Until the route shows the slave alone."""
        wait_until(lambda: len(self.addresses(name)) == 1, PATIENCE_S, f"{name} has its slave only")


def _options(namesrv: str, topics: str) -> ReadOptions:
    columns = "topic,brokerName,queueId,queueOffset,body"
    given = {"rocketmq.namesrv": namesrv, "subscribe": topics, "columns": columns, "rocketmq.brokerWait": "60s"}
    return ReadOptions.parse(given, streaming=False)


def read(namesrv: str, topics: str) -> list[Row]:
    """What a batch reads. Raises DataLossError, PipelineError."""
    options = _options(namesrv, topics)
    found: list[Row] = []
    for partition in plan_batch(options, Conditions()):
        for batch in WireReader(options).read(partition.ranges):
            found += [
                Row(row["topic"], row["brokerName"], row["queueId"], row["queueOffset"], row["body"].decode())
                for row in batch.to_pylist()
            ]
    return found


class Traffic:
    """A thread that sends; what was acknowledged, and what a push consumer had."""

    def __init__(self, namesrv: str) -> None:
        self._producer = Producer("torture", namesrv, poll_name_server_interval=500, send_msg_timeout=3_000)
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, name="torture-traffic", daemon=True)
        self._consumer = PushConsumer(
            "readers", namesrv, self._listen, consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
            poll_name_server_interval=500, rebalance_interval=500,
        )  # fmt: skip
        self.acknowledged: set[str] = set()
        self.heard: set[str] = set()
        self.refused = 0

    def _listen(self, messages: list[MessageExt], _: ConsumeContext) -> None:
        self.heard.update(message.body.decode() for message in messages)

    def __enter__(self) -> Self:
        self._producer.start()
        for topic in (ORDINARY, STATIC):
            self._consumer.subscribe(topic)
        self._consumer.start()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()
        self._consumer.shutdown()
        self._producer.shutdown()

    def end(self) -> None:
        """No more is sent."""
        self._ends.set()
        self._thread.join()

    def _run(self) -> None:
        for number in itertools.count():
            if self._ends.wait(0.003):
                return
            body = f"{(ORDINARY, STATIC)[number % 2]}-{number}"
            try:
                result = self._producer.send(Message(body.partition("-")[0], body.encode()))
            except MaxQError:
                self.refused += 1
                continue
            if result.send_status == SendStatus.SEND_OK:
                self.acknowledged.add(body)


class Application:
    """The streaming query in a process group of its own, started again and again on one checkpoint."""

    def __init__(self, folder: Path, namesrv: str) -> None:
        self._folder = folder
        self._namesrv = namesrv
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def _started(self) -> Path:
        return self._folder / "started"

    def start(self, *, once: bool = False) -> None:
        """`once`: it ends when everything that is there is copied; else never."""
        self._started.unlink(missing_ok=True)
        trigger = "once" if once else "always"
        command = [sys.executable, "-m", "tests.pipeline.groups_torture", "--application", str(self._folder)]
        with (self._folder / "application.log").open("wb") as log:
            self._process = subprocess.Popen(
                [*command, self._namesrv, trigger], stdout=log, stderr=log, start_new_session=True
            )

    def wait_until_started(self) -> None:
        """Until its query runs. Raises AssertionError: it ended before."""

        def runs() -> bool:
            self.check()
            return self._started.exists()

        try:
            wait_until(runs, 2 * PATIENCE_S, "the application runs")
        except AssertionError as error:
            raise AssertionError(f"{error}; it said {self._said()}") from None

    def check(self) -> None:
        """Raises AssertionError: its query has failed."""
        assert self._process is not None, "asked of one that was started"
        assert self._process.poll() is None, f"the query ended with {self._process.returncode}: {self._said()}"

    def _said(self) -> str:
        return (self._folder / "application.log").read_text(errors="replace")[-4000:]

    def kill(self) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def wait(self) -> None:
        """Until it has ended. Raises AssertionError: with an error, or not in time."""
        assert self._process is not None, "asked of one that was started"
        code = self._process.wait(3 * PATIENCE_S)
        assert not code, f"the last query ended with {code}: {self._said()}"


def application(folder: Path, namesrv: str, trigger: str) -> None:
    """What `Application` starts."""
    brokers = {"rocketmq.namesrv": namesrv, "rocketmq.brokerWait": "100s"}
    place = "concat_ws(';', topic, brokerName, queueId, queueOffset, cast(body AS string))"
    with local_session("groups torture", master="local[2]", java_options=QUICK_START) as spark:
        register(spark)
        reader = spark.readStream.format("rocketmq").options(**brokers, subscribe=f"{ORDINARY},{STATIC}")
        frame = reader.option("startingOffsets", "earliest").load().selectExpr(f"{place} AS value")
        writer = frame.writeStream.format("rocketmq").options(**brokers, topic=COPY, delivery="exactly-once")
        writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
        if trigger == "once":
            query = writer.trigger(availableNow=True).start()
        else:
            query = writer.trigger(processingTime="300 milliseconds").start()
        (folder / "started").touch()
        query.awaitTermination()


class Torture:
    """A cluster, its traffic, and the application."""

    def __init__(self, folder: Path, seed: int, groups: int, faults: Sequence[str]) -> None:
        self._rng = random.Random(seed)
        self._running = contextlib.ExitStack()
        self._cluster = Cluster(folder / "cluster", groups)
        self._application = Application(folder, self._cluster.namesrv)
        self._faults = faults

    def __enter__(self) -> Self:
        with self._running as running:
            cluster = running.enter_context(self._cluster)
            with Admin(cluster.namesrv) as admin:
                for name in cluster.masters:
                    admin.topics.create(cluster.addresses(name)[MASTER_ID], TopicConfig(ORDINARY, 2, 2))
                for topic in (STATIC, COPY):
                    admin.static_topics.create(topic, QUEUES, list(cluster.masters))
            self.traffic = running.enter_context(Traffic(cluster.namesrv))
            running.callback(self._application.kill)
            self._application.start()
            self._application.wait_until_started()
            self._running = running.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._running.close()

    # --- what happens ---

    def kill_masters(self) -> None:
        """One or two of them; their slaves stand in, and they come back on their files."""
        names = self._rng.sample(sorted(self._cluster.masters), self._rng.choice((1, 1, 2)))
        for name in names:
            self._cluster.masters[name].kill()
        self._look("while the masters are dead, before anybody knows")
        for name in names:
            self._cluster.wait_for_stand_in(name)
        self._look("while slaves stand in")
        for name in names:
            self._cluster.masters[name].start_again()

    def kill_a_slave(self) -> None:
        name = self._rng.choice(sorted(self._cluster.slaves))
        self._cluster.slaves[name].kill()
        self._look("while a slave is dead")
        self._cluster.slaves[name].start_again()

    def move_queues(self) -> None:
        """Of the static topic, to one or two groups."""
        names = self._rng.sample(sorted(self._cluster.masters), self._rng.choice((1, 2)))
        with Admin(self._cluster.namesrv) as admin:
            admin.static_topics.remap(STATIC, names)
        self._look("after queues have moved")

    def kill_where_the_queues_were(self) -> None:
        """The queues move, and at once a master dies that has, or had, some of them."""
        self.move_queues()
        self.kill_masters()

    def kill_driver(self) -> None:
        """The application, Java and all, at some moment; it goes on from its checkpoint."""
        time.sleep(self._rng.random() * 3)
        self._application.kill()
        self._application.start()
        self._application.wait_until_started()

    def kill_driver_and_master(self) -> None:
        """Both, and the application begins anew while a slave stands in."""
        name = self._rng.choice(sorted(self._cluster.masters))
        self._cluster.masters[name].kill()
        self._application.kill()
        self._application.start()
        self._cluster.wait_for_stand_in(name)
        self._look("while a slave stands in")
        self._cluster.masters[name].start_again()
        self._application.wait_until_started()

    def _look(self, when: str) -> None:
        """A batch that begins now."""
        before = set(self.traffic.acknowledged)
        rows = read(self._cluster.namesrv, f"{ORDINARY},{STATIC}")
        twice = [place for place, count in Counter(row[:4] for row in rows).items() if count > 1]
        assert not twice, f"{when}: rows of {len(twice)} places are there twice, such as {twice[0]}"
        missing = before - {row.body for row in rows}
        assert not missing, f"{when}: {len(missing)} of {len(before)} are missing, such as {sorted(missing)[:5]}"

    def round(self, number: int) -> None:
        fault = self._rng.choice(self._faults)
        getattr(self, fault)()
        self._cluster.wait_for_all()
        self._look("when all is mended")
        self._application.check()
        told = f"{len(self.traffic.acknowledged)} acknowledged, {self.traffic.refused} refused"
        print(f"round {number} {fault}: {told}, {len(self.traffic.heard)} heard", flush=True)

    def end(self) -> None:
        """Start all brokers, and check what the group has in the end."""
        self.traffic.end()
        self._look("at the end")
        self._application.kill()
        self._application.start(once=True)
        self._application.wait()
        rows = read(self._cluster.namesrv, f"{ORDINARY},{STATIC}")
        wanted = Counter(";".join(map(str, row)) for row in rows)
        copies = Counter(row.body for row in read(self._cluster.namesrv, COPY))
        twice, gone = copies - wanted, wanted - copies
        assert not twice, f"{twice.total()} copies too many of {len(rows)}, such as {min(twice)}"
        assert not gone, f"{gone.total()} copies of {len(rows)} are missing, such as {min(gone)}"
        acknowledged = self.traffic.acknowledged
        wait_until(lambda: acknowledged <= self.traffic.heard, PATIENCE_S, "the push consumer has had all of them")
        print(f"{len(rows)} rows, copied once each", flush=True)


FAULTS: Final = (
    "kill_masters", "kill_masters", "kill_a_slave", "move_queues", "kill_where_the_queues_were", "kill_driver",
    "kill_driver_and_master",
)  # fmt: skip


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--groups", type=int, default=3)
    parser.add_argument("--faults", nargs="+", choices=FAULTS, default=FAULTS, metavar="FAULT")
    parser.add_argument("--application", nargs=3)
    arguments = parser.parse_args()
    if arguments.application:
        folder, namesrv, trigger = arguments.application
        application(Path(folder), namesrv, trigger)
        return
    print(f"seed {arguments.seed}", flush=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))  # and with it all that it started
    with (
        tempfile.TemporaryDirectory() as name,
        Torture(Path(name), arguments.seed, arguments.groups, arguments.faults) as running,
    ):
        for number in range(1, arguments.rounds + 1):
            running.round(number)
        running.end()


if __name__ == "__main__":
    main()
