"""A name server, a master and its slave as processes, the replication link through a fault proxy; and their logs, read
from outside."""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePath

from maxq.runtime.files.system import SystemDisk
from maxq.store.tools.check import StoreCheck
from maxq.store.tools.log_walk import LogWalk
from maxq.store.tools.store_files import StoreFiles
from tests.integration.processes.fault_proxy import FaultProxy
from tests.integration.processes.maxq_process import Process, StoredProcess
from tests.interop.processes.servers import free_port_base

LOG_FILE_SIZE = 1 << 20
SHARED = {
    "brokerClusterName": "TortureCluster",
    "brokerName": "torture",
    "brokerIP1": "127.0.0.1",
    "brokerIP2": "127.0.0.1",
    "mappedFileSizeCommitLog": str(LOG_FILE_SIZE),
    "mappedFileSizeConsumeQueue": "20000",
    "maxHashSlotNum": "1000",
    "maxIndexNum": "4000",
    "haSendHeartbeatInterval": "300",
    "haHousekeepingInterval": "1500",
    "haFullCopy": "true",
}
MASTER = {"brokerId": "0", "brokerRole": "SYNC_MASTER", "inSyncReplicas": "2", "slaveTimeout": "1000"}
SLAVE = {"brokerId": "1", "brokerRole": "SLAVE"}


class BrokerProcess(StoredProcess):
    """A broker, and its store as it lies on the disk."""

    def __init__(self, name: str, folder: Path, port: int, namesrv: str, settings: Mapping[str, str]) -> None:
        super().__init__(name, [], folder / "ready")
        folder.mkdir(parents=True)
        self.store = folder / "store"
        self.port = port
        self._conf = folder / "broker.conf"
        self._settings = {
            **SHARED,
            "namesrvAddr": namesrv,
            "listenPort": str(port),
            "haListenPort": str(port + 1),
            "storePathRootDir": str(self.store),
            **settings,
        }
        self.arguments = ["broker", "-c", str(self._conf)]
        self.configure({})

    def configure(self, settings: Mapping[str, str]) -> None:
        """Settings of the next start, kept for later ones."""
        self._settings.update(settings)
        self._conf.write_text("".join(f"{key}={value}\n" for key, value in self._settings.items()))

    def files(self) -> StoreFiles:
        return StoreFiles(
            SystemDisk(), PurePath(self.store),
            hash_slots=int(SHARED["maxHashSlotNum"]), index_entries=int(SHARED["maxIndexNum"]),
        )  # fmt: skip

    def log(self) -> "Log":
        """Its CommitLog, now."""
        return Log.of(self.files())

    def faults(self) -> list[str]:
        """What the offline check finds."""
        report = StoreCheck(self.files()).run()
        return report.lines() if report.faults else []

    def empty(self) -> None:
        shutil.rmtree(self.store)


@dataclass(frozen=True)
class Log:
    """A CommitLog from outside: `data` begins at physical offset `start`, its last whole record ends at `end`."""

    start: int
    end: int
    data: bytes

    @classmethod
    def of(cls, files: StoreFiles) -> "Log":
        walk = LogWalk(files)
        for _ in walk.batches():
            pass
        walk.close()
        data = b"".join(Path(file.path).read_bytes() for file in files.log)
        return cls(walk.start_offset, walk.end_offset, data)

    def between(self, start: int, end: int) -> memoryview:
        """Bytes by physical offsets."""
        return memoryview(self.data)[start - self.start : end - self.start]

    def first_difference(self, other: "Log") -> int | None:
        """The physical offset at which two logs part, as far as both go; None: they do not."""
        start, end = max(self.start, other.start), min(self.end, other.end)
        if start >= end or self.between(start, end) == other.between(start, end):
            return None
        low, high = start, end  # equal up to low, different before high
        while high - low > 1:
            middle = (low + high) // 2
            if self.between(low, middle) == other.between(low, middle):
                low = middle
            else:
                high = middle
        return low


class Cluster:
    """The whole of it. The slave reaches the master's HA port through `link` only."""

    def __init__(self, folder: Path) -> None:
        ports = free_port_base(10)  # a broker also takes the port two below (VIP) and one above (HA)
        self.name_server_address = f"127.0.0.1:{ports}"
        self.name_server = Process("name server", ["namesrv", "-p", str(ports)], folder / "namesrv-ready")
        self.master = BrokerProcess("master", folder / "master", ports + 3, self.name_server_address, MASTER)
        self.link = FaultProxy(self.master.port + 1)
        self.slave = BrokerProcess("slave", folder / "slave", ports + 8, self.name_server_address, SLAVE)

    @property
    def brokers(self) -> tuple[BrokerProcess, BrokerProcess]:
        return self.master, self.slave

    async def start(self) -> None:
        await self.link.start()
        self.slave.configure({"haMasterAddress": self.link.address})
        await self.name_server.start()
        await self.master.start()
        await self.slave.start()

    async def end(self) -> None:
        """Kill what still runs."""
        for process in (self.slave, self.master, self.name_server):
            await process.kill()
        await self.link.stop()
