"""No send fails while a majority of a DLedger group and one name server live: seeds of hand-overs, deaths, pauses and
clean ends of the leader, one at a time, under producers with a time-out of three seconds."""

import asyncio
from pathlib import PurePath
from typing import Final

import pytest

from maxq.client.client_config import ClientSeams, ProducerConfig
from maxq.client.producer import Producer
from maxq.errors import MaxQError
from maxq.protocol.message import Message
from maxq.testing.sim_machine import SimMachine
from maxq.testing.sim_network import LinkSettings
from maxq.testing.sim_rng import SimRng
from maxq.testing.simulation import SimWorld, run_simulation
from tests.simulation.dledger_servers import BROKERS, Server, small_wheel
from tests.simulation.sim_server import CLIENT, NAMESRV, NAMESRV_ADDRESS, TOPIC

pytestmark = pytest.mark.usefixtures("quiet")

KINDS: Final = ("transfer", "kill", "power", "pause", "end")
_PRODUCERS: Final = 3
_CALM_S: Final = 5.0  # the one that was away has caught up, and holds its place


class Story:
    """One seed.

    Attributes:
        sent, failed: of all producers; a failure with the event that was felt.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.sent = 0
        self.failed: list[str] = []
        self._event = "the start"
        self._servers: list[Server] = []

    def run(self) -> None:
        with small_wheel():
            run_simulation(self._main, seed=self.seed, time_limit_s=7200, step_limit=30_000_000)

    async def _main(self, world: SimWorld) -> None:
        rng = SimRng(self.seed).fork("dledger failover")
        world.network.default_link = LinkSettings(delay_ms=(0.1, 5))
        names = Server(world, NAMESRV, rng.fork("ns"), -1)
        self._servers = [
            Server(world, address, rng.fork(address), n, dLegerHeartBeatInterval="400")
            for n, address in enumerate(BROKERS[:3])
        ]
        for server in (names, *self._servers):
            await server.start()
        await asyncio.sleep(_CALM_S)
        machine = SimMachine(world.loop, CLIENT, rng.fork("client"))
        machine.boot()
        producing = [machine.spawn(self._produce(machine, n, rng.fork(f"p{n}"))) for n in range(_PRODUCERS)]
        await asyncio.sleep(3)
        for _ in range(2):
            await self._one(rng)
            await asyncio.sleep(_CALM_S)
        for task in producing:
            task.cancel()
        await asyncio.gather(*producing, return_exceptions=True)

    async def _produce(self, machine: SimMachine, number: int, rng: SimRng) -> None:
        seams = ClientSeams(machine.clock, rng, machine.disk, CLIENT, number + 1, PurePath("/home"))
        name = f"P{number}"
        config = ProducerConfig(namesrv_addr=NAMESRV_ADDRESS, producer_group=name, instance_name=name)
        async with Producer(config, seams) as producer:
            while True:
                try:
                    await producer.send(Message(TOPIC, b"x"))
                except MaxQError as error:
                    self.failed.append(f"{self._event}: {error}")
                self.sent += 1
                await asyncio.sleep(rng.uniform(0, 0.4))

    async def _one(self, rng: SimRng) -> None:
        leader = next(server for server in self._servers if server.is_leader)
        others = [server for server in self._servers if server is not leader]
        self._event = kind = rng.choice(KINDS)
        if kind == "transfer":
            member, to = leader.member, rng.choice(others)
            assert member is not None
            await leader.machine.call(lambda: member.transfer(to.name))
        elif kind == "pause":
            await leader.machine.pause(5.0)
        else:
            if kind == "end":
                await leader.machine.call(leader.broker.shutdown)
            if kind == "power":
                leader.machine.power_off()
            else:
                leader.machine.kill()
            await asyncio.sleep(5)
            await leader.start()


@pytest.mark.parametrize("seed", range(3))
def test_no_send_fails_while_a_majority_lives(seed: int) -> None:
    story = Story(seed)
    story.run()
    assert story.sent > 100
    assert not story.failed, story.failed[:5]
