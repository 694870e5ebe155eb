"""A master and its slave, one of them Java's, and their logs read from outside."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePath

from benches.load.request import RefusedError, Target

from maxq.runtime.files.system import SystemDisk
from maxq.store.tools.store_files import StoreFiles
from tests.integration.processes.ha_torture_cluster import Log
from tests.interop.processes import peers
from tests.interop.processes.java_driver import JavaDriver
from tests.interop.processes.servers import (
    Broker,
    JavaBroker,
    JavaNamesrv,
    MaxqBroker,
    MaxqNamesrv,
    free_port_base,
    wait_until,
)

GROUP = {
    "brokerIP2": "127.0.0.1",
    "slaveReadEnable": "true",
    "slaveTimeout": "1500",
    "haSendHeartbeatInterval": "1000",  # a Java slave's first report comes so late
    "waitTimeMillsInSendQueue": "20000",  # a busy machine is not what these tests are about
    "osPageCacheBusyTimeOutMills": "20000",
}
LINK_SECONDS = 60  # a Java slave learns the address with a registration, connects, reports: five seconds each


@dataclass(frozen=True)
class Mixture:
    """Who is Java's, and of which version."""

    master: type[Broker]
    slave: type[Broker]
    namesrv: type[MaxqNamesrv] | type[JavaNamesrv]
    version: str

    def __str__(self) -> str:
        java = "slave" if self.slave is JavaBroker else "master"
        return f"java-{java}-{self.version}"


MIXTURES = [
    Mixture(MaxqBroker, JavaBroker, MaxqNamesrv, peers.ROCKETMQ_VERSION),
    Mixture(JavaBroker, MaxqBroker, MaxqNamesrv, peers.ROCKETMQ_VERSION),
    Mixture(MaxqBroker, JavaBroker, JavaNamesrv, peers.OLDER_ROCKETMQ_VERSION),
    Mixture(JavaBroker, MaxqBroker, JavaNamesrv, peers.OLDER_ROCKETMQ_VERSION),
]


@dataclass
class Pair:
    """One name server, one master, one slave."""

    mixture: Mixture
    folder: Path
    jars: Path
    role: str
    settings: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._namesrv = self.mixture.namesrv(self.folder / "namesrv", free_port_base())
        self.master = self.mixture.master(self.folder / "master", free_port_base())
        self.slave = self.mixture.slave(self.folder / "slave", free_port_base())

    @property
    def namesrv(self) -> str:
        return self._namesrv.address

    def start(self, driver: JavaDriver) -> "Pair":
        """All three, and a first message has gone from one broker to the other."""
        self.start_namesrv()
        self.start_master()
        self.start_slave()
        self.join(driver)
        return self

    def join(self, driver: JavaDriver) -> None:
        """A message goes from one broker to the other: two logs may be equal before there is a link."""
        driver.send(self.namesrv, "First", 1)
        self.wait_for_link()

    def start_namesrv(self) -> None:
        if isinstance(self._namesrv, JavaNamesrv):
            self._namesrv.start(self.jars)
        else:
            self._namesrv.start()

    def start_master(self) -> None:
        replicas = "2" if self.role == "SYNC_MASTER" else "1"
        own = {"brokerId": "0", "brokerRole": self.role, "totalReplicas": "2", "inSyncReplicas": replicas}
        self._start(self.master, own)

    def start_slave(self, **settings: str) -> None:
        self._start(self.slave, {"brokerId": "1", "brokerRole": "SLAVE", **settings})

    def _start(self, broker: Broker, own: Mapping[str, str]) -> None:
        settings = {**GROUP, **self.settings, **own}
        if isinstance(broker, JavaBroker):
            broker.start(self.jars, self.namesrv, settings)
        elif isinstance(broker, MaxqBroker):
            broker.start(self.namesrv, settings)

    def stop(self) -> None:
        for server in (self.slave, self.master, self._namesrv):
            server.discard()

    def wait_for_link(self) -> None:
        """Until the slave has all of the master's log."""
        wait_until(self.is_equal, LINK_SECONDS, f"the slave has the master's log: {self.slave.log_tail()}")

    def is_equal(self) -> bool:
        master, slave = log_of(self.master), log_of(self.slave)
        return 0 < master.end == slave.end and master.first_difference(slave) is None

    def check_logs(self) -> int:
        """Both logs are equal, record for record and byte for byte, once the slave has caught up; their end."""
        self.wait_for_link()
        master, slave = log_of(self.master), log_of(self.slave)
        assert slave.first_difference(master) is None
        assert slave.start % (4 << 20) == 0
        return slave.end


def log_of(broker: Broker) -> Log:
    """The broker's CommitLog, now; empty if it has no store yet."""
    return Log.of(StoreFiles(SystemDisk(), PurePath(broker.store)))


def answer_of(broker: Broker, code: int) -> bytes:
    """The body of the broker's answer to a request without fields; empty while it does not answer."""
    try:
        frame = Target("127.0.0.1", broker.port).call(code, {})
    except (OSError, RefusedError):
        return b""
    return frame[8 + (int.from_bytes(frame[4:8], "big") & 0xFFFFFF) :]
