"""One seed, one story of what a change of leader or a dead name server costs: two name servers and a DLedger group of
three whole brokers, each on a machine of its own, under producers with a time-out of three seconds.

Leaders hand over, die, lose their power, stand still, end in order, one at a time. A name server hangs meanwhile, at
times, and clients come that have known nobody before. While a majority of the group and one name server live, no send
fails: not one that was under way, and not the first one of a new producer.
"""

import asyncio
from collections import Counter
from pathlib import PurePath
from typing import Final

from maxq.client.client_config import ClientEnvironment, ProducerConfig
from maxq.client.producer.producer import Producer
from maxq.errors import MaxQError
from maxq.protocol.message.message import Message
from maxq.testing.sim_machine import SimMachine
from maxq.testing.sim_network import LinkSettings
from maxq.testing.sim_rng import SimRng
from maxq.testing.simulation import SimWorld, run_simulation
from tests.simulation.dledger.dledger_servers import BROKERS, Server, small_wheel
from tests.simulation.servers.sim_server import CLIENT, NAMESRV, TOPIC

KINDS: Final = ("transfer", "kill", "power", "pause", "end")
_NAME_SERVERS: Final = (NAMESRV, "10.0.0.8")
_ADDRESSES: Final = ";".join(f"{host}:9876" for host in _NAME_SERVERS)
_PRODUCERS: Final = 3
_CALM_S: Final = 5.0  # the one that was away has caught up, and holds its place
_AWAY_S: Final = 5.0


class FailoverStory:
    """Attributes:
    marks: how often each kind of thing happened.
    history: what happened, for whoever reads a failure.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.marks: Counter[str] = Counter()
        self.history: list[str] = []
        self._failed: list[str] = []  # sends, with the event that was felt
        self._event = "the start"
        self._brokers: list[Server] = []
        self._names: list[Server] = []
        self._clients = 0

    def run(self) -> None:
        """Tell it. AssertionError and whatever the code under test raises are failures."""
        with small_wheel():
            run_simulation(self._main, seed=self.seed, time_limit_s=7200, step_limit=30_000_000)

    async def _main(self, world: SimWorld) -> None:
        rng = SimRng(self.seed).fork("dledger failover")
        world.network.default_link = LinkSettings(delay_ms=(0.1, 5))
        self._names = [Server(world, address, rng.fork(f"ns {address}"), -1) for address in _NAME_SERVERS]
        self._brokers = [
            Server(world, address, rng.fork(address), n, dLegerHeartBeatInterval="400", namesrvAddr=_ADDRESSES)
            for n, address in enumerate(BROKERS[:3])
        ]
        for server in (*self._names, *self._brokers):
            await server.start()
        await asyncio.sleep(_CALM_S)
        machine = SimMachine(world.loop, CLIENT, rng.fork("client"))
        machine.boot()
        producing = [machine.spawn(self._produce(machine, rng.fork(f"p{n}"))) for n in range(_PRODUCERS)]
        await asyncio.sleep(3)
        for number in range(2):
            await self._one(world, machine, rng, rng.fork(f"around {number}"))
            await asyncio.sleep(_CALM_S)
        for task in producing:
            task.cancel()
        await asyncio.gather(*producing, return_exceptions=True)
        assert self.marks["sent"] > 100, f"only {self.marks['sent']} messages were sent"
        assert not self._failed, f"{len(self._failed)} sends failed: " + "; ".join(self._failed[:5])

    # -- clients --

    def _producer(self, machine: SimMachine, rng: SimRng) -> Producer:
        self._clients += 1
        name = f"P{self._clients}"
        environment = ClientEnvironment(machine.clock, rng, machine.disk, CLIENT, self._clients, PurePath("/home"))
        return Producer(ProducerConfig(namesrv_addr=_ADDRESSES, producer_group=name, instance_name=name), environment)

    async def _produce(self, machine: SimMachine, rng: SimRng) -> None:
        async with self._producer(machine, rng) as producer:
            while True:
                await self._send(producer, "a producer")
                await asyncio.sleep(rng.uniform(0, 0.4))

    async def _come(self, machine: SimMachine, rng: SimRng) -> None:
        """A client that has known nobody before."""
        async with self._producer(machine, rng) as producer:
            await self._send(producer, "a new producer")

    async def _send(self, producer: Producer, who: str) -> None:
        try:
            await producer.send(Message(TOPIC, b"x"))
        except MaxQError as error:
            self._failed.append(f"{who}, {self._event}: {error}")
        self.marks["sent"] += 1
        self.marks[f"sent by {who}"] += 1

    # -- what happens --

    async def _one(self, world: SimWorld, machine: SimMachine, rng: SimRng, around: SimRng) -> None:
        """A leader ends to lead, perhaps while a name server hangs; new clients come."""
        self._event = kind = rng.choice(KINDS)
        hanging: asyncio.Task[None] | None = None
        if around.chance(0.5):
            self._event += ", a name server hangs"
            hanging = asyncio.ensure_future(around.choice(self._names).machine.pause(around.uniform(6, 12)))
            await asyncio.sleep(around.uniform(0, 1))
        self.marks[self._event] += 1
        self.history.append(f"{world.loop.time() - 1000:9.3f} {self._event}")
        coming = [
            machine.spawn(self._come_later(machine, around.fork(f"new {n}"))) for n in range(around.between(1, 3))
        ]
        await self._end_leading(kind, rng)
        await asyncio.gather(*coming)
        if hanging is not None:
            await hanging

    async def _come_later(self, machine: SimMachine, rng: SimRng) -> None:
        await asyncio.sleep(rng.uniform(0, _AWAY_S))
        await self._come(machine, rng)

    async def _end_leading(self, kind: str, rng: SimRng) -> None:
        leader = next(server for server in self._brokers if server.is_leader)
        others = [server for server in self._brokers if server is not leader]
        if kind == "transfer":
            member, to = leader.member, rng.choice(others)
            assert member is not None
            await leader.machine.call(lambda: member.transfer(to.name))
        elif kind == "pause":
            await leader.machine.pause(_AWAY_S)
        else:
            if kind == "end":
                await leader.machine.call(leader.broker.shutdown)
            if kind == "power":
                leader.machine.power_off()
            else:
                leader.machine.kill()
            await asyncio.sleep(_AWAY_S)
            await leader.start()
