"""Many who come and go (tests/visitors.py): a server that they have used for long holds what it held before.

After some rounds that fill pools and caches, what the server process holds is counted: descriptors, asyncio tasks,
threads, mapped files, connections, held pulls, anonymous memory. At the end it is counted again, and nothing may have
grown, apart from what `ALLOWED` says. Memory is judged by the round: a server that keeps `KEPT_A_ROUND` of each round
has a leak.

    python -m tests.integration.soak.soak_torture --minutes 10 --seed 3
"""

import argparse
import asyncio
import contextlib
import random
import re
import ssl
import statistics
import tempfile
import time
from collections.abc import Coroutine
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final

from maxq.api import Message, async_producer, system_environment
from maxq.auth.signature import Credentials
from maxq.client.client_config import ClientEnvironment
from maxq.testing.server_process import StandaloneProcess
from tests import visitors
from tests.integration.torture.pop_places import until
from tests.interop.processes.servers import free_port_base
from tests.visitors import ROOT, TIMEOUT_MS, Visitors, page

SETTINGS: Final = {**visitors.SETTINGS, "mappedFileSizeCommitLog": str(1 << 30), "tls.test.mode.enable": "true"}
#: Bytes that a server may keep of a round. 8 KiB were measured: names of 18 deleted topics (2.5 KiB; of over 100,000
#: store/log/deletions.py forgets the oldest), keys that orjson remembers (0.7 KiB; 2,048 at most), samples of ten
#: minutes (0.8 KiB; store/context/store_stats.py), texts of metrics for a hundred looks, and what arenas and the table
#: of interned strings lose to things that come and go. A leak of 10 KiB more is above it.
KEPT_A_ROUND: Final = 12 << 10
_ROUNDS_THAT_TELL: Final = 40  # fewer say nothing about memory, which comes in arenas


@dataclass(frozen=True)
class Held:
    """What a server process holds. Mappings are those of files below its store; memory is RssAnon in KiB."""

    descriptors: int
    tasks: int
    threads: int
    mappings: int
    connections: int
    held_pulls: int
    memory_kib: int


#: Threads are made when work overlaps, up to the size of their pool. A queue of a topic of the server's own is mapped
#: when it is first used, with two descriptors. Memory of a few rounds comes in arenas; that of many is judged by the
#: round.
ALLOWED: Final = Held(descriptors=12, tasks=4, threads=6, mappings=6, connections=0, held_pulls=0, memory_kib=24 << 10)


def mapped_files(pid: int, store: Path) -> list[str]:
    """Files below its store that a server has mapped, a name for each mapping."""
    lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
    return sorted(line.partition(str(store))[2] for line in lines if str(store) in line)


async def held_by(pid: int, store: Path, pages: str) -> Held:
    """What a server holds now, by the system and by the metrics at `pages`, host:port."""
    shown = await page(pages, "/metrics")

    def number(name: str) -> int:
        found = re.search(rf"^{name}(?:\{{.*\}})? (\S+)$", shown, re.MULTILINE)
        assert found, f"{name} is not among the metrics"
        return int(float(found[1]))

    process = Path(f"/proc/{pid}")
    status = (process / "status").read_text()
    return Held(
        descriptors=len(list((process / "fd").iterdir())),
        tasks=number("maxq_tasks"),
        threads=len(list((process / "task").iterdir())),
        mappings=len(mapped_files(pid, store)),
        connections=number("maxq_connections"),
        held_pulls=number("maxq_held_pulls"),
        memory_kib=int(status.partition("RssAnon:")[2].split()[0]),
    )


class RealPlace:
    """See visitors.Place."""

    def __init__(self, server: StandaloneProcess, pages: str, seed: int) -> None:
        self.namesrv = server.namesrv_address
        self.broker = server.broker_address
        self.pages = pages
        self.rng = random.Random(seed)

    def environment(self, credentials: Credentials = ROOT) -> ClientEnvironment:
        own = system_environment(self.namesrv)
        return ClientEnvironment(own.clock, own.rng, own.disk, own.host_ip, own.pid, own.home, credentials)

    async def visit(self, work: Coroutine[Any, Any, None]) -> None:
        await work


class Soak:
    """One server and its rounds.

    Attributes:
        guests: who comes and goes.
        grown: what the last look found more of: before, and then.
    """

    guests: Visitors

    def __init__(self, folder: Path, seed: int) -> None:
        port = free_port_base(1)
        self._pages = f"127.0.0.1:{port}"
        settings = {**SETTINGS, "metricsPromExporterHost": "127.0.0.1", "metricsPromExporterPort": str(port)}
        self._server = StandaloneProcess(settings, folder=folder)
        self._seed = seed
        self.grown: dict[str, tuple[int, int]] = {}

    async def start(self) -> None:
        await asyncio.to_thread(self._server.start)
        self._place = RealPlace(self._server, self._pages, self._seed)
        self.guests = Visitors(self._place)

    async def end(self) -> int | None:
        """Its exit code."""
        self.guests.end()
        return await asyncio.to_thread(self._server.stop)

    async def round(self) -> None:
        """Everybody comes and goes once, and some speak TLS."""
        await asyncio.gather(self.guests.round(), self._over_tls(), self._end_in_the_handshake())

    async def _over_tls(self) -> None:
        """Whoever sends here makes the topic; it is the same in every round."""
        producer = async_producer(
            "SoakTls", self._place.namesrv, use_tls="insecure", access_key="root", secret_key="root-secret",
            send_msg_timeout=TIMEOUT_MS, mq_client_api_timeout=TIMEOUT_MS,
        )  # fmt: skip
        async with producer:
            await producer.send(Message("SoakTlsTopic", b"behind TLS"))

    async def _end_in_the_handshake(self) -> None:
        host, port = self._place.broker.split(":")
        with contextlib.suppress(OSError, ssl.SSLError):  # nobody can know this server's certificate
            await asyncio.open_connection(host, int(port), ssl=ssl.create_default_context())

    # --- what is held ------------------------------------------------------------------------------------------------

    def mapped(self) -> list[str]:
        """See `mapped_files`."""
        return mapped_files(self._server.pid, self._server.store)

    async def held(self) -> Held:
        """Now. The connection that asks is closed before it counts."""
        return await held_by(self._server.pid, self._server.store, self._pages)

    async def quiet(self) -> Held:
        """What is held when nobody is connected."""

        async def nobody_is_connected() -> bool:
            return (await self.held()).connections == 0

        await until(nobody_is_connected, "nobody is connected")
        return await self.held()

    async def settled(self, before: Held) -> Held:
        """What is held when all that ends by itself has ended; AssertionError if it does not."""

        async def nothing_has_grown() -> bool:
            self.grown = grown(before, await self.held())
            return not self.grown

        try:
            await until(nothing_has_grown, "nothing has grown")
        except AssertionError:
            raise AssertionError(
                f"after {self.guests.rounds} rounds the server holds more (before, now): {self.grown}; "
                f"mapped: {self.mapped()}"
            ) from None
        return await self.held()


def grown(before: Held, now: Held) -> dict[str, tuple[int, int]]:
    """Return the counts that grew by more than is allowed: before, and now."""
    pairs = {field.name: (getattr(before, field.name), getattr(now, field.name)) for field in fields(Held)}
    return {name: (was, is_) for name, (was, is_) in pairs.items() if is_ > was + getattr(ALLOWED, name)}


def kept_a_round(memory_kib: list[int]) -> float:
    """Bytes that memory grew by from round to round, a measurement a round: the median of the slopes between those of
    the second half that lie apart by an eighth to a quarter of it, for arenas and caches fill in the first. A single
    step, by a larger answer than any before, is in few of them."""
    later = memory_kib[len(memory_kib) // 2 :]
    least, most = max(1, len(later) // 8), max(2, len(later) // 4)
    return 1024 * statistics.median(
        (later[start + apart] - later[start]) / apart
        for apart in range(least, most)
        for start in range(len(later) - apart)
    )


async def soak(folder: Path, seconds: float, seed: int, *, warm_up: int = 3, say: bool = False) -> tuple[Held, Held]:
    """Rounds for so long after `warm_up` others. What was held before and after; AssertionError for what grew."""
    run = Soak(folder, seed)
    await run.start()
    memory_kib = []
    try:
        for _ in range(warm_up):
            await run.round()
        before = await run.quiet()
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            await run.round()
            now = await run.held()
            memory_kib.append(now.memory_kib)
            if say:
                print(f"round {run.guests.rounds}: {now}", flush=True)
        after = await run.settled(before)
    finally:
        code = await run.end()
    assert code == 0, f"the server ended with {code}"
    failed, visits = run.guests.failed, run.guests.visits
    assert len(failed) * 10 < visits, f"{len(failed)} of {visits} visits failed: {failed[:5]}"
    if len(memory_kib) >= _ROUNDS_THAT_TELL:
        kept = kept_a_round(memory_kib)
        assert kept < KEPT_A_ROUND, f"the server keeps {kept:.0f} bytes of each round, the limit is {KEPT_A_ROUND}"
        if say:
            print(f"kept of each round: {kept:.0f} bytes")
    return before, after


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="maxq-soak-") as folder:
        before, after = asyncio.run(soak(Path(folder), options.minutes * 60, options.seed, warm_up=20, say=True))
    print(f"before: {before}\nafter:  {after}")


if __name__ == "__main__":
    main()
