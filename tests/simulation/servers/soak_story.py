"""Half an hour of those who come and go (tests/visitors.py) at the shipped servers, in virtual time.

After some rounds all objects of MaxQ's classes are counted, the entries of their tables, tasks, timers and connections.
Many rounds later they are counted again, and nothing may have grown by one a round or more but what `GROWS` names:
clients and servers run in this process, so whatever anybody forgot to forget is seen.

    python -m tests.simulation.servers.soak_story --minutes 30 --seed 1
"""

import argparse
import asyncio
import contextlib
import random
import re
from collections import Counter
from collections.abc import Coroutine
from pathlib import Path, PurePath
from typing import Any, Final

from maxq.auth.signature import Credentials
from maxq.client.client_config import ClientEnvironment
from maxq.standalone import StandaloneServer
from maxq.testing.sim_clock import SimClock
from maxq.testing.sim_disk import SimDisk
from maxq.testing.sim_rng import SimRng
from maxq.testing.simulation import SimWorld, run_simulation
from tests import visitors
from tests.held_tables import held
from tests.visitors import ROOT, Visitors, page

SERVER: Final = "10.0.0.1"
PAGES_PORT: Final = 5557
WARM_UP: Final = 3
QUIET_S: Final = 200.0  # then all that ends by itself has ended

SETTINGS: Final = {
    **visitors.SETTINGS,
    "mappedFileSizeCommitLog": str(16 << 20), "maxHashSlotNum": "1000", "maxIndexNum": "400000",
    "metricsPromExporterHost": SERVER, "metricsPromExporterPort": str(PAGES_PORT),
}  # fmt: skip

#: What may grow: the table has a bound by entries or time that no soak reaches.
GROWS: Final = frozenset(
    {
        "maxq.store.log.deletions.Deletions._rows",  # 100,000 topics
        "maxq.broker.tables.offset.operator_changes.OperatorChanges._numbers",  # 1,000 keys
        "maxq.store.context.store_stats.StoreStats._samples",  # ten minutes, one a second
        "maxq.broker.stats.stats_item.StatsItem",  # by topic and group; what no day has moved is forgotten
        "maxq.broker.transaction.transaction_ledger.TransactionLedger._marks",  # 64 KiB behind the first open one
        "maxq.broker.metrics.rpc_latency._Counts",  # by request and response code
        "maxq.broker.metrics.rpc_latency._Counts.buckets",
        "maxq.runtime.log_limits.LogThrottle._kinds",  # 1,000 kinds
        "maxq.runtime.metrics.registry._Rows._texts",  # a hundred looks
        "maxq.runtime.metrics.registry.MetricsRegistry._texts",
    }
)


class SimPlace:
    """See visitors.Place."""

    def __init__(self, world: SimWorld, server: StandaloneServer, seed: int) -> None:
        self._world = world
        self._hosts = 0
        self.namesrv = server.namesrv_address
        self.broker = server.broker_address
        self.pages = f"{SERVER}:{PAGES_PORT}"
        self.rng = random.Random(seed)

    def environment(self, credentials: Credentials = ROOT) -> ClientEnvironment:
        self._hosts += 1
        world, host = self._world, f"10.1.{self._hosts // 250 % 250}.{self._hosts % 250}"
        return ClientEnvironment(world.clock, world.rng, world.disk, host, self._hosts, PurePath("/home"), credentials)

    async def visit(self, work: Coroutine[Any, Any, None]) -> None:
        self._hosts += 1
        with self._world.network.on_host(f"10.2.{self._hosts // 250 % 250}.{self._hosts % 250}"):
            await asyncio.ensure_future(work)


async def counted(world: SimWorld, guests: Visitors) -> Counter[str]:
    """All that is held when the server has cut off who stayed, and somebody has looked at the metrics.

    Raises:
        AssertionError: it has not cut off all.
    """
    await asyncio.sleep(QUIET_S)
    shown = re.search(r"^maxq_connections\{.*\} (\S+)$", await page(f"{SERVER}:{PAGES_PORT}", "/metrics"), re.MULTILINE)
    assert shown is not None and float(shown[1]) == 0, f"connections that nobody cut off: {shown and shown[1]}"
    guests.end()
    await asyncio.sleep(1)
    found = held()
    found["tasks"] = len(asyncio.all_tasks())
    found["timers"] = sum(not due.timer.cancelled() for due in world.loop._scheduled)
    found["connections"] = len(world.network._transports)
    return found


def grown(before: Counter[str], now: Counter[str], rounds: int) -> dict[str, tuple[int, int]]:
    """What has more than one a round."""
    return {
        name: (before[name], count)
        for name, count in now.items()
        if count - before[name] >= rounds and name not in GROWS
    }


async def soak(world: SimWorld, seconds: float, rounds: int, seed: int) -> dict[str, tuple[int, int]]:
    """`rounds` spread over so many virtual seconds. What has grown."""
    with world.network.on_host(SERVER):
        return await asyncio.ensure_future(_soak(world, seconds, rounds, seed))


async def _soak(world: SimWorld, seconds: float, rounds: int, seed: int) -> dict[str, tuple[int, int]]:
    server = StandaloneServer(
        Path("/store"), SERVER, namesrv_port=9876, broker_port=10911, settings=SETTINGS,
        disk=world.disk, clock=world.clock, rng=world.rng,
    )  # fmt: skip
    await server.start()
    guests = Visitors(SimPlace(world, server, seed))
    try:
        for _ in range(WARM_UP):
            await guests.round()
        before = await counted(world, guests)
        for _ in range(rounds):
            began = world.loop.time()
            await guests.round()
            await asyncio.sleep(max(0.0, seconds / rounds - (world.loop.time() - began)))
        assert not guests.failed, guests.failed
        return grown(before, await counted(world, guests), rounds)
    finally:
        guests.end()
        await server.shutdown()


def run_soak(seconds: float, rounds: int, seed: int) -> dict[str, tuple[int, int]]:
    """See the module."""
    clock = SimClock()
    disk = SimDisk(SimRng(seed), clock, write_back=0.0)  # no power is lost here; looking for dirty pages is most work
    return run_simulation(
        lambda world: soak(world, seconds, rounds, seed), seed=seed, disk=disk, clock=clock, step_limit=1_000_000_000
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    found = run_soak(options.minutes * 60, options.rounds, options.seed)
    for name, (was, now) in sorted(found.items()):
        print(f"{name}: {was} → {now}")
    with contextlib.suppress(KeyboardInterrupt):
        raise SystemExit(bool(found))


if __name__ == "__main__":
    main()
