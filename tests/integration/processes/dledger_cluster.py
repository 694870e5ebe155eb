"""A DLedger group of brokers and a name server as processes, each member on a disk of its own where that is allowed;
and the members' logs, read from outside.

The members reach each other through fault proxies, one in front of each, or over a network of namespaces
(`Namespaces`), in which packets get lost by pairs, or directly.
"""

import contextlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from maxq.client.instance.dledger_client import DLedgerClient
from maxq.errors import MaxQError
from maxq.machine import system_environment
from maxq.protocol.dledger.dledger_messages import ENTRY_HEADER, ENTRY_MAGIC
from tests.integration.processes.fault_proxy import FaultProxy
from tests.integration.processes.maxq_process import Process, StoredProcess
from tests.integration.processes.namespaces import Namespaces
from tests.interop.processes.servers import free_port_base
from tests.mounted_disk import MountedDisk, NotAllowedError

MEMBERS = ("n0", "n1", "n2")
GROUP = "torture"
LOG_FILE_SIZE = 1 << 20
DISK_SIZE = 8 << 30  # an image is sparse
_FILLER_MAGIC = -1
_LEADS = re.compile(r"DLedger: (\w+) of group \w+ is LEADER in term (\d+)")


@dataclass(frozen=True)
class EntryLog:
    """A member's data files from outside. `data` begins at position `start`, the last whole entry ends at `end`."""

    start: int
    end: int
    data: bytes
    entries: tuple[tuple[int, int, int], ...]  # index, term, position

    @classmethod
    def of(cls, store: Path, member: str) -> "EntryLog":
        folder = store / f"dledger-{member}" / "data"
        files = sorted(folder.iterdir()) if folder.exists() else []
        data = b"".join(file.read_bytes() for file in files)
        start = int(files[0].name) if files else 0
        entries: list[tuple[int, int, int]] = []
        at = 0
        while at + ENTRY_HEADER.size <= len(data):
            magic, size, index, term, position, *_ = ENTRY_HEADER.unpack_from(data, at)
            if magic == _FILLER_MAGIC:
                at += size
                continue
            if magic != ENTRY_MAGIC or position != start + at or (entries and index != entries[-1][0] + 1):
                break
            if entries and term < entries[-1][1]:
                break
            entries.append((index, term, position))
            at += size
        return cls(start, start + at, data, tuple(entries))

    def between(self, start: int, end: int) -> memoryview:
        """Bytes by positions."""
        return memoryview(self.data)[start - self.start : end - self.start]

    def since(self, position: int) -> list[tuple[int, int, int]]:
        """The entries from there on."""
        return [entry for entry in self.entries if entry[2] >= position]


class Member(StoredProcess):
    """A broker of the group, and its store.

    Attributes:
        host: where clients and the test reach it.
        address: where the other members do.
        link: the proxy there; None in a network of namespaces.
        disk: its store's; None where it has none of its own.
        terms_led: the terms that it said it led, in all its runs.
        more: settings of its broker, beside those that all have.
    """

    def __init__(self, member: str, folder: Path, host: str, port: int, member_port: int) -> None:
        super().__init__(member, [], folder / member / "ready")
        (folder / member).mkdir(parents=True)
        self.host, self.port, self.member_port = host, port, member_port
        self.address = f"{host}:{member_port}"
        self.link: FaultProxy | None = None
        self.disk: MountedDisk | None = None
        self.terms_led: set[int] = set()
        self.more: Mapping[str, str] = {}
        self.store = folder / member / "store"
        self._conf = folder / member / "broker.conf"
        self.arguments = ["broker", "--verbose", "-c", str(self._conf)]

    async def spawn(self) -> None:
        self.note_terms()
        await super().spawn()

    def note_terms(self) -> None:
        """Read in its log which terms it led."""
        self.terms_led |= {int(term) for member, term in _LEADS.findall(self.log_text()) if member == self.name}

    def configure(self, peers: str, namesrv: str) -> None:
        settings = {
            "brokerClusterName": "TortureCluster", "brokerName": GROUP, "brokerIP1": self.host,
            "bindAddress": self.host, "listenPort": str(self.port), "namesrvAddr": namesrv,
            "storePathRootDir": str(self.store), "mappedFileSizeCommitLog": str(LOG_FILE_SIZE),
            "mappedFileSizeConsumeQueue": "20000", "maxHashSlotNum": "1000", "maxIndexNum": "4000",
            "enableDLegerCommitLog": "true", "dLegerGroup": GROUP, "dLegerPeers": peers, "dLegerSelfId": self.name,
            **self.more,
        }  # fmt: skip
        self._conf.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))

    def log(self) -> EntryLog:
        return EntryLog.of(self.store, self.name)


class Cluster:
    """Name server and members.

    Attributes:
        network: of namespaces; None: loopback.
        name_servers: the first one is `name_server`.
        why_no_disks: why members have no disks of their own; empty if they have.
    """

    def __init__(
        self,
        folder: Path,
        network: Namespaces | None = None,
        *,
        has_disks: bool = False,
        has_links: bool = True,
        name_servers: int = 1,
    ) -> None:
        """
        Args:
            network: it is up, and its hosts are MEMBERS.
            has_disks: give each member a disk of its own, if that is allowed.
            has_links: without a network, put a proxy in front of each member.
            name_servers: how many there are; at most two.
        """
        ports = free_port_base(30)
        self.network = network
        here = network.outside if network else "127.0.0.1"
        self._has_links = network is None and has_links
        self.name_servers = [
            _name_server(folder / f"namesrv-{number}", here, ports + 29 - number) for number in range(name_servers)
        ]
        self.name_server = self.name_servers[0]
        self.name_server_address = ";".join(f"{here}:{ports + 29 - number}" for number in range(name_servers))
        self.members = [
            Member(
                member, folder, network.address(member) if network else "127.0.0.1", ports + 10 + 5 * number,
                ports + number,
            )
            for number, member in enumerate(MEMBERS)
        ]  # fmt: skip
        environment = system_environment()
        # asked behind the proxies, so that who leads can be known whatever they do
        direct = {member.name: member.address for member in self.members}
        self.client = DLedgerClient(GROUP, direct, clock=environment.clock, rng=environment.rng, timeout_ms=1000)
        self.why_no_disks = "" if has_disks else "nobody wanted any"
        if has_disks:
            try:
                self._mount(folder)
            except NotAllowedError as error:
                self.why_no_disks = str(error)

    def _mount(self, folder: Path) -> None:
        for member in self.members:
            disk = MountedDisk(folder / member.name / "disk", "ext4", DISK_SIZE)
            disk.mount()
            member.disk, member.store = disk, disk.folder / "store"

    async def start(self) -> None:
        for number, member in enumerate(self.members, start=1):
            if self.network is not None:
                member.command = self.network.command(member.name)
            if not self._has_links:
                continue
            member.link = FaultProxy(member.member_port)
            await member.link.start(f"127.0.1.{number}", member.member_port)
            member.address = f"127.0.1.{number}:{member.member_port}"
        peers = ";".join(f"{member.name}-{member.address}" for member in self.members)
        for name_server in self.name_servers:
            await name_server.start()
        for member in self.members:
            member.configure(peers, self.name_server_address)
            await member.start()

    async def end(self) -> None:
        """Kill what still runs."""
        for process in (*self.members, *self.name_servers):
            await process.kill()
        await self.client.close()
        for member in self.members:
            if member.link is not None:
                await member.link.stop()
            if member.disk is not None:
                member.disk.unmount()

    async def status(self, member: Member) -> dict[str, str]:
        """What it says of itself; empty if it says nothing."""
        try:
            return (await self.client.metadata(member.name)).status or {}
        except MaxQError:
            return {}

    async def leader(self) -> Member | None:
        """The member of the highest term that says it leads."""
        found: list[tuple[int, Member]] = []
        for member in self.members:
            status = await self.status(member)
            if status.get("role") == "LEADER":
                found.append((int(status["term"]), member))
        return max(found, key=lambda pair: pair[0])[1] if found else None

    def leaders_by_term(self) -> dict[int, set[str]]:
        """Who said that he led a term, of all terms."""
        found: dict[int, set[str]] = {}
        for member in self.members:
            member.note_terms()
            for term in member.terms_led:
                found.setdefault(term, set()).add(member.name)
        return found


def _name_server(folder: Path, host: str, port: int) -> Process:
    folder.mkdir(parents=True)
    conf = folder / "namesrv.conf"
    conf.write_text(f"listenPort={port}\nbindAddress={host}\n")
    return Process("name server", ["namesrv", "-c", str(conf)], folder / "ready")


@contextlib.contextmanager
def namespaces() -> Iterator[Namespaces]:
    """A network of namespaces for the members.

    Raises:
        NotAllowedError: not here.
    """
    network = Namespaces(MEMBERS)
    network.up()
    try:
        yield network
    finally:
        network.down()
