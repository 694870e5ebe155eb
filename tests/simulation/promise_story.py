"""One seed, one story of a DLedger group that is asked for promises of every kind: locks, offsets, topics, groups,
sends, pops and acks, at all of its brokers, whoever leads; while they are killed, paused, cut off, and hand over.

What clients were told is one history (tests/promise_history.py); at the end, when all is quiet, every promise in it
must have been kept.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from pathlib import PurePath
from typing import Final

from maxq.client.client_config import ClientSeams
from maxq.config.netty_client_config import NettyClientConfig
from maxq.remoting.client import RemotingClient
from maxq.replication.raft.outputs import Role
from maxq.testing.sim_machine import SimMachine
from maxq.testing.sim_network import LinkSettings
from maxq.testing.sim_rng import SimRng
from maxq.testing.simulation import SimWorld, run_simulation
from tests.promise_clients import PromiseClients, PromiseTraffic
from tests.promise_history import History
from tests.simulation.dledger_faults import Faults
from tests.simulation.dledger_servers import BROKERS, Server, small_wheel
from tests.simulation.sim_server import CLIENT, NAMESRV, NAMESRV_ADDRESS

TOPIC: Final = "Promised"
INVISIBLE_MS: Final = 20_000
SAFE_MS: Final = 5_000
_REST_S: Final = 200.0


class Member(Server):
    """Tells the history when what it has in memory may be another's."""

    promises: History

    async def start(self, before: Callable[[], None] = lambda: None) -> None:
        self.promises.changed(self.name)
        await super().start(before)
        if self.member is not None:
            self.member.set_role_listener(
                lambda change: self.promises.changed(self.name, leads=change.role is Role.LEADER)
            )
            self.promises.changed(self.name, leads=self.is_leader)


class PromiseStory:
    """Attributes:
    marks: how often each kind of thing happened.
    history: what happened, for whoever reads a failure.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.marks: Counter[str] = Counter()
        self.history: list[str] = []

    def run(self) -> None:
        """Tell it. AssertionError and whatever the code under test raises are failures."""
        with small_wheel():
            run_simulation(self._main, seed=self.seed, time_limit_s=7200, step_limit=30_000_000)

    async def _main(self, world: SimWorld) -> None:
        rng = SimRng(self.seed).fork("promises")
        world.network.default_link = LinkSettings(delay_ms=(0.1, 5), loss=0.002)
        promises = History(world.loop.time, knows_roles=True)
        servers = self._servers(world, rng, promises)
        for server in servers:
            await server.start()
        machine = SimMachine(world.loop, CLIENT, rng.fork("client"))
        machine.boot()
        await asyncio.sleep(4)
        asking, traffic = await machine.call(lambda: self._clients(machine, promises, servers, rng))
        faults = Faults(world, list(servers), rng, self.marks, self.history, may_jump=False)
        for _ in range(rng.between(3, 8)):
            await faults.one()
            await asyncio.sleep(rng.choice((0.05, 1.0, 8.0)) * rng.uniform(0.5, 1.5))
        await faults.rest()
        await asyncio.sleep(30)
        await machine.call(asking.stop)
        given = await machine.call(lambda: traffic.stop(_REST_S))
        tables = await machine.call(asking.tables)
        self.marks.update(promises.count())
        broken = promises.broken(tables=tables, messages=given)
        assert not broken, f"{len(broken)} promises were broken: " + "; ".join(broken[:6])
        for server in reversed(servers):
            await server.stop()

    def _servers(self, world: SimWorld, rng: SimRng, promises: History) -> list[Member]:
        beat = rng.choice((200, 400, 2000))
        servers = [Member(world, NAMESRV, rng.fork("ns"), -1)]
        servers[0].promises = promises
        for n, address in enumerate(BROKERS[:3]):
            server = Member(
                world, address, rng.fork(address), n, dLegerHeartBeatInterval=str(beat), reviveInterval="500",
                autoCreateSubscriptionGroup="true",
            )  # fmt: skip
            server.promises = promises
            servers.append(server)
        self.history.append(f"a heart-beat every {beat} ms")
        return servers

    async def _clients(
        self, machine: SimMachine, promises: History, servers: list[Member], rng: SimRng
    ) -> tuple[PromiseClients, PromiseTraffic]:
        client = RemotingClient(NettyClientConfig(), clock=machine.clock, rng=rng.fork("remoting"))
        brokers = {server.name: f"{server.machine.address}:10911" for server in servers[1:]}
        asking = PromiseClients(client, promises, brokers, rng.fork("asking"), broker_name="broker-a", pause_s=1.0)
        traffic = PromiseTraffic(
            lambda number: ClientSeams(
                machine.clock, rng.fork(f"client {number}"), machine.disk, CLIENT, 1 + number, PurePath("/home")
            ),
            promises, rng.fork("traffic"), name_server=NAMESRV_ADDRESS, topic=TOPIC, group="Poppers",
            invisible_ms=INVISIBLE_MS, safe_ms=SAFE_MS,
        )  # fmt: skip
        asking.start()
        traffic.start()
        return asking, traffic
