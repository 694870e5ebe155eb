"""Transactions in a DLedger group whose members are farther from each other than from the producer."""

import asyncio
from pathlib import PurePath
from typing import Any

import pytest

from maxq.client.client_config import ClientEnvironment, ProducerConfig
from maxq.client.producer.transaction_producer import LocalTransactionState, TransactionProducer
from maxq.protocol.message.message import Message, MessageExt
from maxq.testing.sim_machine import SimMachine
from maxq.testing.sim_network import LinkSettings
from maxq.testing.sim_rng import SimRng
from maxq.testing.simulation import SimWorld, run_simulation
from tests.simulation.dledger.dledger_servers import BROKERS, Server, small_wheel
from tests.simulation.servers.sim_server import CLIENT, NAMESRV, NAMESRV_ADDRESS, TOPIC

pytestmark = pytest.mark.usefixtures("quiet")

COUNT = 5


class Undecided:
    """A producer's listener that knows the end of a transaction only when it is asked for."""

    def __init__(self) -> None:
        self.asked = 0

    async def execute_local_transaction(self, message: Message, arg: Any) -> LocalTransactionState:
        return LocalTransactionState.UNKNOW

    async def check_local_transaction(self, message: MessageExt) -> LocalTransactionState:
        self.asked += 1
        return LocalTransactionState.COMMIT_MESSAGE


def test_an_answer_that_comes_at_once_ends_its_transaction() -> None:
    """A producer is asked for a copy of its half message that a majority has: no answer is quicker than that."""
    seed, listener, there = 1, Undecided(), []

    async def main(world: SimWorld) -> None:
        rng = SimRng(seed).fork("dledger transactions")
        world.network.default_link = LinkSettings(delay_ms=(0.1, 0.2))
        for one in BROKERS[:3]:
            for other in BROKERS[:3]:
                if one != other:
                    world.network.set_link(one, other, LinkSettings(delay_ms=(20, 30)))
        names = Server(world, NAMESRV, rng.fork("ns"), -1)
        servers = [Server(world, address, rng.fork(address), n) for n, address in enumerate(BROKERS[:3])]
        for server in (names, *servers):
            await server.start()
        await asyncio.sleep(5)
        machine = SimMachine(world.loop, CLIENT, rng.fork("client"))
        machine.boot()
        await machine.call(lambda: _send(machine, rng.fork("producer"), listener))
        leader = next(server for server in servers if server.is_leader)
        there.extend(leader.broker.store.max_offset(TOPIC, queue) for queue in range(4))

    with small_wheel():
        run_simulation(main, seed=seed, time_limit_s=7200, step_limit=30_000_000)
    assert (sum(there), listener.asked) == (COUNT, COUNT)


async def _send(machine: SimMachine, rng: SimRng, listener: Undecided) -> None:
    environment = ClientEnvironment(machine.clock, rng, machine.disk, CLIENT, 1, PurePath("/home"))
    config = ProducerConfig(namesrv_addr=NAMESRV_ADDRESS, producer_group="PG", heartbeat_broker_interval=1_000)
    async with TransactionProducer(config, environment, listener) as producer:
        for number in range(COUNT):
            await producer.send_message_in_transaction(Message(TOPIC, b"%d" % number), None)
        await asyncio.sleep(30)
