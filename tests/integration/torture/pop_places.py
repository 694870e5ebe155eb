"""Where pop_torture runs: one broker, a pair whose slave is made the master, a DLedger group. Real processes."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Final, Protocol

from maxq.api import Message, async_admin, async_producer
from maxq.client.results.send_result import SendStatus
from maxq.errors import MaxQError
from maxq.protocol.body.topic_config import TopicConfig
from maxq.testing.server_process import StandaloneProcess
from tests.integration.processes.dledger_cluster import Cluster as Group
from tests.integration.processes.ha_torture_cluster import MASTER, SLAVE, BrokerProcess
from tests.integration.processes.maxq_process import Process
from tests.interop.processes.servers import free_port_base

SETTLE_SECONDS: Final = 60
QUICK: Final = {
    "mappedFileSizeCommitLog": str(4 << 20),
    "timerPrecisionMs": "100",
    "reviveInterval": "100",
    "popCkStayBufferTime": "1000",
    "popCkStayBufferTimeOut": "200",
}


class Place(Protocol):
    """Attributes: namesrv: address of the name server."""

    namesrv: str

    async def start(self, topic: str, queues: int) -> None:
        """Everything runs and has the topic."""

    async def hit(self) -> None:
        """Kill who serves the clients, and have somebody serve them again."""

    async def end(self) -> None:
        """Kill what still runs."""


class Alone:
    """One broker, killed and started again."""

    def __init__(self, folder: Path, settings: Mapping[str, str]) -> None:
        self._server = StandaloneProcess({**QUICK, **settings}, folder=folder)
        self.namesrv = ""

    async def start(self, topic: str, queues: int) -> None:
        await asyncio.to_thread(self._server.start)
        self.namesrv = self._server.namesrv_address
        await _create(self.namesrv, "DefaultCluster", topic, queues)

    async def hit(self) -> None:
        self._server.kill()
        await asyncio.to_thread(self._server.start_again)

    async def end(self) -> None:
        await asyncio.to_thread(self._server.stop)


class Pair:
    """SYNC_MASTER and slave: both are killed, the slave becomes the master, the master its slave, with nothing."""

    def __init__(self, folder: Path, settings: Mapping[str, str]) -> None:
        port = free_port_base(10)
        self.namesrv = f"127.0.0.1:{port}"
        self._name_server = Process("name server", ["namesrv", "-p", str(port)], folder / "namesrv-ready")
        self._master = BrokerProcess(
            "a", folder / "a", port + 3, self.namesrv, {**MASTER, "slaveTimeout": "3000", **QUICK, **settings}
        )
        self._slave = BrokerProcess("b", folder / "b", port + 8, self.namesrv, {**QUICK, **settings})

    async def start(self, topic: str, queues: int) -> None:
        await self._name_server.start()
        await self._master.start()
        await self._enslave(self._slave)
        await _create(self.namesrv, "TortureCluster", topic, queues)
        await _on_disk(self._slave.store, topic)

    async def _enslave(self, broker: BrokerProcess) -> None:
        broker.configure({**SLAVE, "haMasterAddress": f"127.0.0.1:{self._master.port + 1}"})
        await broker.start()

    async def hit(self) -> None:
        await self._master.kill()
        await self._slave.kill()
        self._master, self._slave = self._slave, self._master
        self._master.configure({**MASTER, "haMasterAddress": ""})
        await self._master.start()
        self._slave.empty()
        await self._enslave(self._slave)
        await until(self._is_in_sync, "the new slave has everything")

    async def _is_in_sync(self) -> bool:
        """A send that is acknowledged by two says so. Before that the next kill would take the only copy."""
        async with async_producer("PG_sync", self.namesrv, retry_times_when_send_failed=0) as producer:
            with contextlib.suppress(MaxQError):
                result = await producer.send(Message("InSync", b"x"))
                return result.send_status is SendStatus.SEND_OK
        return False

    async def end(self) -> None:
        for process in (self._slave, self._master, self._name_server):
            await process.kill()


class DLedgerGroup:
    """The leader is killed, and comes back when another one leads."""

    def __init__(self, folder: Path, settings: Mapping[str, str]) -> None:
        assert not settings, "members of a DLedger group are configured alike"
        self._group = Group(folder)
        self.namesrv = self._group.name_server_address

    async def start(self, topic: str, queues: int) -> None:
        await self._group.start()
        await _create(self.namesrv, "TortureCluster", topic, queues)
        for member in self._group.members:
            await _on_disk(member.store, topic)

    async def hit(self) -> None:
        leader = await self._group.leader()
        assert leader is not None, "nobody leads"
        await leader.kill()

        async def another_leads() -> bool:
            found = await self._group.leader()
            return found is not None and found is not leader

        await until(another_leads, "another member leads")
        await leader.start()

    async def end(self) -> None:
        await self._group.end()


PLACES: Final[Mapping[str, Callable[[Path, Mapping[str, str]], Place]]] = {
    "alone": Alone, "pair": Pair, "dledger": DLedgerGroup,
}  # fmt: skip


async def _create(namesrv: str, cluster: str, topic: str, queues: int) -> None:
    async def created() -> bool:
        try:
            async with async_admin(namesrv) as admin:
                for address in await admin.brokers.masters_of_cluster(cluster):
                    await admin.topics.create(address, TopicConfig(topic, queues, queues))
                    return True
        except MaxQError:
            pass  # not registered yet
        return False

    await until(created, "a master takes the topic")


async def _on_disk(store: Path, topic: str) -> None:
    """Slaves ask their master for its topics every ten seconds."""
    file = store / "config" / "topics.json"

    async def known() -> bool:
        return file.exists() and f'"{topic}"' in file.read_text()

    await until(known, f"{file} has {topic}")


async def until(condition: Callable[[], Awaitable[bool]], what: str) -> None:
    """AssertionError if that takes too long."""
    try:
        async with asyncio.timeout(SETTLE_SECONDS):
            while not await condition():  # noqa: ASYNC110 - other processes
                await asyncio.sleep(0.02)
    except TimeoutError:
        raise AssertionError(f"after {SETTLE_SECONDS} s still not: {what}") from None
