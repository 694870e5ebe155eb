"""One seed, one story of a DLedger group that is asked for promises of every kind: locks, offsets, topics, groups,
sends, pops and acks, at all of its brokers, whoever leads; while they are killed, paused, cut off, and hand over.

What clients were told is one history (tests/promise_history.py); at the end, when all is quiet, every promise in it
must have been kept.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable
from pathlib import PurePath
from typing import Final

from maxq.client.client_config import ClientSeams, ProducerConfig, SimpleConsumerConfig
from maxq.client.producer import Producer
from maxq.client.send_result import SendStatus
from maxq.client.simple_consumer import SimpleConsumer
from maxq.config.netty_client_config import NettyClientConfig
from maxq.errors import MaxQError
from maxq.protocol.enums import ConsumeFromWhere
from maxq.protocol.message import Message
from maxq.remoting.client import RemotingClient
from maxq.replication.raft.outputs import Role
from maxq.testing.sim_machine import SimMachine
from maxq.testing.sim_network import LinkSettings
from maxq.testing.sim_rng import SimRng
from maxq.testing.simulation import SimWorld, run_simulation
from tests.promise_clients import PromiseClients
from tests.promise_history import History, Kind
from tests.simulation.dledger_faults import Faults
from tests.simulation.dledger_servers import BROKERS, Server, small_wheel
from tests.simulation.sim_server import CLIENT, NAMESRV, NAMESRV_ADDRESS

TOPIC: Final = "Promised"
INVISIBLE_MS: Final = 20_000
SAFE_S: Final = 5.0  # an ack that took no longer came in time, whatever clocks say
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
        self._ends = False

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
        asking, sending, popping = await machine.call(lambda: self._clients(machine, promises, servers, rng))
        faults = Faults(world, list(servers), rng, self.marks, self.history, may_jump=False)
        for _ in range(rng.between(3, 8)):
            await faults.one()
            await asyncio.sleep(rng.choice((0.05, 1.0, 8.0)) * rng.uniform(0.5, 1.5))
        await faults.rest()
        await asyncio.sleep(30)
        self._ends = True
        await machine.call(asking.stop)
        await sending
        sent = {one.key for one in promises.told if one.kind is Kind.SEND and one.ok}
        given: set[str] = set()
        end = world.loop.time() + _REST_S
        while not sent <= given and world.loop.time() < end:
            await asyncio.sleep(1)
            given = {one.key for one in promises.told if one.kind is Kind.GIVEN}
        for one in popping:
            assert not one.done(), f"a consumer ended: {one.exception()!r}"
            one.cancel()
        await asyncio.gather(*popping, return_exceptions=True)
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
    ) -> "tuple[PromiseClients, asyncio.Task[None], list[asyncio.Task[None]]]":
        client = RemotingClient(NettyClientConfig(), clock=machine.clock, rng=rng.fork("remoting"))
        brokers = {server.name: f"{server.machine.address}:10911" for server in servers[1:]}
        asking = PromiseClients(client, promises, brokers, rng.fork("asking"), broker_name="broker-a", pause_s=1.0)
        asking.start()
        sending = asyncio.ensure_future(self._send(machine, promises, rng.fork("producer")))
        popping = [
            asyncio.ensure_future(self._pop(machine, promises, rng.fork(name), name, at))
            for at, name in enumerate(("pop-1", "pop-2"))
        ]
        return asking, sending, popping

    def _seams(self, machine: SimMachine, rng: SimRng, process_id: int) -> ClientSeams:
        return ClientSeams(machine.clock, rng, machine.disk, CLIENT, process_id, PurePath("/home"))

    async def _send(self, machine: SimMachine, promises: History, rng: SimRng) -> None:
        """No message is sent twice: what comes again was given again."""
        config = ProducerConfig(namesrv_addr=NAMESRV_ADDRESS, producer_group="P", retry_times_when_send_failed=0)
        async with Producer(config, self._seams(machine, rng, 1)) as producer:
            number = 0
            while not self._ends:
                number += 1
                one = promises.ask(Kind.SEND, f"m{number}", "producer", "group")
                try:
                    result = await producer.send(Message(TOPIC, one.key.encode()))
                except MaxQError:
                    await asyncio.sleep(0.2)
                else:
                    promises.answered(one, result.send_status is SendStatus.SEND_OK)
                await asyncio.sleep(rng.uniform(0, 0.6))

    async def _pop(self, machine: SimMachine, promises: History, rng: SimRng, name: str, at: int) -> None:
        config = SimpleConsumerConfig(
            namesrv_addr=NAMESRV_ADDRESS, consumer_group="Poppers", instance_name=name,
            consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        )  # fmt: skip
        consumer = SimpleConsumer(config, self._seams(machine, rng, 2 + at))
        await consumer.subscribe(TOPIC)
        async with consumer:
            while True:
                with contextlib.suppress(MaxQError):
                    await self._take(promises, consumer, rng, name)
                await asyncio.sleep(rng.uniform(0, 0.6))

    async def _take(self, promises: History, consumer: SimpleConsumer, rng: SimRng, name: str) -> None:
        began = promises.now()
        messages = await consumer.receive(rng.between(1, 8), INVISIBLE_MS, wait_ms=1_000)
        for message in messages:
            one = promises.ask(Kind.GIVEN, message.body.decode(), name, "group")
            one.began = began
            promises.answered(one, True)
        kept = [message for message in messages if rng.chance(0.9)]
        if kept and rng.chance(0.5):
            asked = [promises.ask(Kind.ACK, message.body.decode(), name, "group") for message in kept]
            await consumer.ack_all(kept)
            for one in asked:
                promises.answered(one, promises.now() - began < SAFE_S)
            return
        for message in kept:
            one = promises.ask(Kind.ACK, message.body.decode(), name, "group")
            await consumer.ack(message)
            promises.answered(one, promises.now() - began < SAFE_S)
