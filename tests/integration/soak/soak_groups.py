"""Brokers of a group that come and go: the ones that remain hold what they held before.

A pair: slaves come, with a log or without one, copy, and are stopped, killed, or freeze and are killed; the master
remains. A DLedger group: one member is stopped, killed or frozen again and again; the other two remain, and one of them
leads. Now and then the name server is started again. Each round stores messages.

    python -m tests.integration.soak.soak_groups --rounds 20
"""

import argparse
import asyncio
import contextlib
import tempfile
from collections.abc import Awaitable, Callable
from dataclasses import fields
from pathlib import Path
from typing import Final, Protocol

from maxq.api import Message, async_producer
from maxq.client.results.send_result import SendStatus
from maxq.errors import MaxQError
from tests.integration.processes import dledger_cluster, ha_torture_cluster
from tests.integration.processes.maxq_process import Process, StoredProcess
from tests.integration.soak.soak_torture import Held, held_by, mapped_files
from tests.interop.processes.servers import free_port_base

TOPIC: Final = "SoakGroup"
MESSAGES: Final = 5
TIMEOUT_MS: Final = 5_000
FREEZE_S: Final = 2.0
REST_S: Final = 5.0  # then connections of who is gone are closed
_SETTLE_S: Final = 60.0

#: A queue is mapped, with two descriptors, when its first message comes; threads are made when work overlaps. Messages
#: that are kept in memory, and arenas, take megabytes.
ALLOWED: Final = Held(descriptors=12, tasks=4, threads=6, mappings=6, connections=0, held_pulls=0, memory_kib=12 << 10)


class Remaining:
    """A broker that remains while others come and go."""

    def __init__(self, process: StoredProcess) -> None:
        self.process = process
        self.pages = f"127.0.0.1:{free_port_base(1)}"

    @property
    def settings(self) -> dict[str, str]:
        """What its broker needs to be looked at."""
        host, port = self.pages.split(":")
        return {"metricsExporterType": "PROM", "metricsPromExporterHost": host, "metricsPromExporterPort": port}

    @property
    def _pid(self) -> int:
        assert self.process.process is not None
        return self.process.process.pid

    async def held(self) -> Held:
        return await held_by(self._pid, self.process.store, self.pages)

    def mapped(self) -> list[str]:
        return mapped_files(self._pid, self.process.store)


class Group(Protocol):
    """A group, one of whose brokers comes and goes.

    Attributes:
        namesrv: host:port.
        remaining: those that are looked at.
    """

    namesrv: str
    remaining: list[Remaining]

    async def start(self) -> None: ...

    async def round(self, number: int) -> None:
        """The one that comes and goes does so once."""
        ...

    async def end(self) -> None: ...


async def _goes(process: Process, number: int) -> None:
    """In order, by a kill, or after it took nothing for a while."""
    if number % 3 == 0:
        await process.stop()
        return
    if number % 3 == 1:
        process.pause()
        await asyncio.sleep(FREEZE_S)
    await process.kill()


async def _send_all(namesrv: str) -> None:
    """Messages that all who must have them have; sent again until that is so."""
    async with async_producer("SoakGroupP", namesrv, send_msg_timeout=TIMEOUT_MS) as producer:
        for number in range(MESSAGES):
            async with asyncio.timeout(_SETTLE_S):
                while True:
                    with contextlib.suppress(MaxQError):
                        sent = await producer.send(Message(TOPIC, b"x" * 1000, {"KEYS": str(number)}))
                        if sent.send_status is SendStatus.SEND_OK:
                            break
                    await asyncio.sleep(0.1)


class Pair:
    """See Group. The master waits for its slave."""

    def __init__(self, folder: Path) -> None:
        self._cluster = ha_torture_cluster.Cluster(folder)
        self.namesrv = self._cluster.name_server_address
        self.remaining = [Remaining(self._cluster.master)]
        self._cluster.master.configure(self.remaining[0].settings)

    async def start(self) -> None:
        await self._cluster.start()
        await _send_all(self.namesrv)
        await self._cluster.slave.stop()

    async def round(self, number: int) -> None:
        if number % 4 == 3:
            self._cluster.slave.empty()
        if number % 2:
            await self._cluster.name_server.stop()
            await self._cluster.name_server.start()
        await self._cluster.slave.start()
        await _send_all(self.namesrv)
        await _goes(self._cluster.slave, number)

    async def end(self) -> None:
        await self._cluster.end()


class Members:
    """See Group. The third of three members comes and goes."""

    def __init__(self, folder: Path) -> None:
        self._cluster = dledger_cluster.Cluster(folder, has_links=False)
        self.namesrv = self._cluster.name_server_address
        self._guest = self._cluster.members[2]
        self.remaining = []
        for member in self._cluster.members[:2]:
            one = Remaining(member)
            member.more = one.settings
            self.remaining.append(one)

    async def start(self) -> None:
        await self._cluster.start()
        await _send_all(self.namesrv)
        await self._guest.stop()

    async def round(self, number: int) -> None:
        if number % 2:
            await self._cluster.name_server.stop()
            await self._cluster.name_server.start()
        await self._guest.start()
        await _send_all(self.namesrv)
        await _goes(self._guest, number)

    async def end(self) -> None:
        await self._cluster.end()


def grown(before: Held, now: Held) -> dict[str, tuple[int, int]]:
    """What grew by more than is allowed: before, and now."""
    pairs = {field.name: (getattr(before, field.name), getattr(now, field.name)) for field in fields(Held)}
    return {name: (was, is_) for name, (was, is_) in pairs.items() if is_ > was + getattr(ALLOWED, name)}


async def soak(
    make: Callable[[Path], Group], folder: Path, rounds: int, *, warm_up: int = 3, say: Callable[[str], None] = len
) -> None:
    """Rounds after `warm_up` others.

    Raises:
        AssertionError: a broker that remained holds more than before.
    """
    group = make(folder)
    try:
        await group.start()
        for number in range(warm_up):
            await group.round(number)
        await asyncio.sleep(REST_S)
        before = _most([await one.held() for one in group.remaining])
        for number in range(warm_up, warm_up + rounds):
            await group.round(number)
            say(f"{make.__name__}, round {number}: {[await one.held() for one in group.remaining]}")
        await _until_not_grown(group, before)
    finally:
        await group.end()


def _most(held: list[Held]) -> Held:
    """The most that any of them holds: another one may lead later."""
    return Held(**{field.name: max(getattr(one, field.name) for one in held) for field in fields(Held)})


async def _until_not_grown(group: Group, before: Held) -> None:
    async def look() -> str:
        found = [grown(before, await one.held()) for one in group.remaining]
        mapped = [one.mapped() for one in group.remaining]
        return f"those that remain hold more (before, now): {found}; mapped: {mapped}" if any(found) else ""

    await _until(look)


async def _until(look: Callable[[], Awaitable[str]]) -> None:
    """Until `look` finds nothing; what it finds at the end is raised."""
    deadline = asyncio.get_running_loop().time() + _SETTLE_S
    while found := await look():
        assert asyncio.get_running_loop().time() < deadline, found
        await asyncio.sleep(0.5)


GROUPS: Final[tuple[Callable[[Path], Group], ...]] = (Pair, Members)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()
    for make in GROUPS:
        with tempfile.TemporaryDirectory(prefix="maxq-soak-") as folder:
            asyncio.run(soak(make, Path(folder), options.rounds, say=lambda text: print(text, flush=True)))


if __name__ == "__main__":
    main()
