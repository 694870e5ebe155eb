"""One seed, one story of brokers that are asked for promises of every kind: locks, offsets, topics, groups, sends, pops
and acks, at all of them, whoever leads, and to take back what is not due yet; while they are killed, paused, cut off,
restarted, and hand over. Who leads may also end the moment that a client hears of a promise, after it was cut off from
the other brokers.

`PromiseStory` is told of a DLedger group; `PairPromiseStory` of one broker, of a master with its slave, or of a slave
that acts as master. What clients were told is one history (tests/promise_history.py); at the end, when all is quiet,
every promise in it must have been kept.
"""

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import PurePath
from typing import ClassVar, Final

from maxq.broker.controller import BrokerController
from maxq.client.client_config import ClientEnvironment
from maxq.config.netty_client_config import NettyClientConfig
from maxq.remoting.client import RemotingClient
from maxq.replication.raft.outputs import Role
from maxq.testing.sim_machine import SimMachine
from maxq.testing.sim_network import LinkSettings
from maxq.testing.sim_rng import SimRng
from maxq.testing.simulation import SimWorld, run_simulation
from tests.promise_clients import PromiseClients, PromiseTraffic
from tests.promise_history import History, Kind, Told
from tests.simulation.dledger.dledger_faults import Faults
from tests.simulation.dledger.dledger_servers import BROKERS, Server, small_wheel
from tests.simulation.servers.sim_server import CLIENT, NAMESRV, NAMESRV_ADDRESS, SimServer

TOPIC: Final = "Promised"
INVISIBLE_MS: Final = 20_000
SAFE_MS: Final = 5_000
SLAVE_TIMEOUT_S: Final = 3.0  # the setting's default
#: A master that comes back waits 10 s for a slave that it cannot reach, and goes on without what that one knows.
_REACHED_AGAIN_S: Final = 8.0
_REST_S: Final = 200.0
#: Clients go on to ask for promises so long after all was mended.
_ASKED_S: Final = 10.0
#: Who leads ends when one of these is granted, by choice.
_AWAITED: Final = (Kind.ACK, Kind.ACK, Kind.ACK, Kind.SEND, Kind.GIVEN, Kind.COMMIT, Kind.MAKE)
_AWAITED_S: Final = 4.0


class _Story(ABC):
    """Attributes:
    marks: how often each kind of thing happened.
    history: what happened, for whoever reads a failure.
    """

    HAS_ONE_MASTER: ClassVar = True

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.marks: Counter[str] = Counter()
        self.history: list[str] = []
        self._promises: History
        self._recalls: SimRng | None = None  # messages are taken back in this story
        self._late_s = float("inf")  # see PromiseTraffic

    def run(self) -> None:
        """Tell it. AssertionError and whatever the code under test raises are failures."""
        with small_wheel():
            run_simulation(self._main, seed=self.seed, time_limit_s=7200, step_limit=30_000_000)

    @abstractmethod
    def _servers(self, world: SimWorld, rng: SimRng, promises: History) -> Sequence[SimServer]:
        """The name server, and the brokers."""

    @abstractmethod
    async def _live(self, world: SimWorld, servers: Sequence[SimServer], rng: SimRng) -> None:
        """Things happen, and all is mended."""

    async def _offset(self, machine: SimMachine, promises: History, asking: PromiseClients) -> int | None:
        """What is committed at the end, where brokers hand on what was committed to them."""
        return None

    async def _main(self, world: SimWorld) -> None:
        rng = SimRng(self.seed).fork("promises")
        world.network.default_link = LinkSettings(delay_ms=(0.1, 5), loss=0.002)
        promises = self._promises = History(world.loop.time, knows_roles=True, has_one_master=self.HAS_ONE_MASTER)
        servers = self._servers(world, rng, promises)
        for server in servers:
            await server.start()
        machine = SimMachine(world.loop, CLIENT, rng.fork("client"))
        machine.boot()
        await asyncio.sleep(4)
        brokers = [server for server in servers if server.number >= 0]
        asking, traffic = await machine.call(lambda: self._clients(machine, promises, brokers, rng))
        await self._live(world, servers, rng)
        await asyncio.sleep(_ASKED_S)
        await machine.call(asking.stop)
        await asyncio.sleep(INVISIBLE_MS / 1000)
        given = await machine.call(lambda: traffic.stop(_REST_S))
        offset = await self._offset(machine, promises, asking)
        tables = await machine.call(asking.tables)
        self.marks.update(promises.count())
        broken = promises.broken(tables=tables, messages=given, offset=offset)
        assert not broken, f"{len(broken)} promises were broken: " + "; ".join(broken[:6])
        for server in reversed(servers):
            await server.stop()

    async def _end_after_promise(
        self, world: SimWorld, server: SimServer, others: Sequence[SimServer], rng: SimRng, *, power: bool
    ) -> None:
        """The broker hears no other one any more, and ends when a client hears that something was granted. It comes
        back after a while."""
        kind, heard = rng.choice(_AWAITED), asyncio.Event()
        if self._recalls is not None and self._recalls.chance(0.6):
            kind = Kind.RECALL

        def listen(one: Told) -> None:
            if one.kind is kind:
                heard.set()

        how = "power" if power else "kill"
        self.marks[f"fault: {how} after {kind.value}"] += 1
        self.history.append(f"{world.loop.time() - 1000:9.3f} {server.name} is alone, and {how} after {kind.value}")
        for other in others:
            world.network.partition(server.machine.address, other.machine.address)
        self._promises.on_granted = listen
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(heard.wait(), _AWAITED_S)
        self._promises.on_granted = lambda one: None
        if power:
            server.machine.power_off()
        else:
            server.machine.kill()
        world.network.heal()
        await asyncio.sleep(rng.choice((0.2, 3.0, 20.0)) * rng.uniform(0.5, 1.5))
        await server.start()

    async def _clients(
        self, machine: SimMachine, promises: History, brokers: Sequence[SimServer], rng: SimRng
    ) -> tuple[PromiseClients, PromiseTraffic]:
        client = RemotingClient(NettyClientConfig(), clock=machine.clock, rng=rng.fork("remoting"))
        addresses = {server.name: f"{server.machine.address}:10911" for server in brokers}
        asking = PromiseClients(client, promises, addresses, rng.fork("asking"), broker_name="broker-a", pause_s=1.0)
        traffic = PromiseTraffic(
            lambda number: ClientEnvironment(
                machine.clock, rng.fork(f"client {number}"), machine.disk, CLIENT, 1 + number, PurePath("/home")
            ),
            promises, rng.fork("traffic"), name_server=NAMESRV_ADDRESS, topic=TOPIC, group="Poppers",
            invisible_ms=INVISIBLE_MS, safe_ms=SAFE_MS,
            recalls=None if self._recalls is None else self._recalls.fork("traffic"), late_s=self._late_s,
        )  # fmt: skip
        asking.start()
        traffic.start()
        return asking, traffic


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


class PromiseStory(_Story):
    """Of a DLedger group."""

    HAS_ONE_MASTER = False

    async def _live(self, world: SimWorld, servers: Sequence[SimServer], rng: SimRng) -> None:
        members = [server for server in servers if isinstance(server, Member)]
        faults = Faults(world, list(members), rng, self.marks, self.history, may_jump=False)
        moments = rng.fork("moments")
        for _ in range(rng.between(3, 8)):
            leader = next((member for member in members if member.is_leader), None)
            if leader is not None and moments.chance(0.3):
                others = [member for member in members if member is not leader and member.number >= 0]
                await self._end_after_promise(world, leader, others, moments, power=moments.chance(0.5))
            else:
                await faults.one()
            await asyncio.sleep(rng.choice((0.05, 1.0, 8.0)) * rng.uniform(0.5, 1.5))
        await faults.rest()

    def _servers(self, world: SimWorld, rng: SimRng, promises: History) -> Sequence[Member]:
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


class PairServer(SimServer):
    """A broker, of which 0 is the master, or the name server. It tells the history when it becomes the active one of
    its group and when it ends.

    Args:
        more: settings of its broker, beside those that all have.
    """

    def __init__(
        self, world: SimWorld, address: str, rng: SimRng, number: int, promises: History, more: dict[str, str]
    ) -> None:
        super().__init__(world, address, rng, number)
        self._promises = promises
        self._more = more
        self._in_order = False  # it ended so before its last start

    @property
    def name(self) -> str:
        return ("name server", "master", "slave")[self.number + 1]

    @property
    def speaks(self) -> bool:
        """For its group, as far as it knows."""
        running = self.running
        return self.machine.is_up and isinstance(running, BrokerController) and running.failover.services.is_running

    def broker_properties(self) -> dict[str, str]:
        return {
            "brokerId": str(self.number), "brokerIP2": self.machine.address, "haListenPort": "10912",
            "reviveInterval": "500", "timerPrecisionMs": "500", "autoCreateSubscriptionGroup": "true",
            "recallMessageEnable": "true", "slaveReadEnable": "false", **self._more,
        }  # fmt: skip

    def namesrv_properties(self) -> dict[str, str]:
        return {"supportActingMaster": "true", "scanNotActiveBrokerInterval": "500"}

    async def start(self, *, in_order: bool = False) -> None:
        """See SimServer. `in_order`: it ended so."""
        self._promises.changed(self.name, keeps_offsets=in_order)
        self._in_order = in_order
        await super().start()

    def _made(self, broker: BrokerController) -> None:
        broker.failover.services.register("promises", _Speaks(self._promises, self.name, self._in_order))

    async def restart(self, seconds: float) -> None:
        """SIGTERM, and another start."""
        await self.stop()
        self.machine.kill()
        await asyncio.sleep(seconds)
        await self.start(in_order=True)


class _Speaks:
    """A master-only service: it runs while its broker is active."""

    def __init__(self, promises: History, name: str, keeps_offsets: bool) -> None:
        self._promises = promises
        self._name = name
        self._keeps_offsets = keeps_offsets

    def start(self) -> None:
        self._promises.changed(self._name, leads=True, keeps_offsets=self._keeps_offsets)
        self._keeps_offsets = True  # a process that goes on has them

    def stop(self) -> None:
        self._promises.changed(self._name, keeps_offsets=True)


class PairPromiseStory(_Story):
    """Of one broker, of a master and its slave, or of a slave that acts as master."""

    def _servers(self, world: SimWorld, rng: SimRng, promises: History) -> Sequence[PairServer]:
        self._place = rng.choice(("alone", "pair", "acting", "acting"))
        self._flush = rng.choice(("SYNC_FLUSH", "ASYNC_FLUSH"))
        self.history.append(f"{self._place}, {self._flush}")
        recalls = rng.fork("recalls")
        if recalls.chance(0.4):
            self._recalls = recalls
            self.history.append("messages are taken back")
        more = {"flushDiskType": self._flush}
        if self._place == "acting":
            self._late_s = SLAVE_TIMEOUT_S
            more |= {
                "enableSlaveActingMaster": "true", "totalReplicas": "2", "brokerNotActiveTimeoutMillis": "3000",
                "brokerHeartbeatInterval": "500", "syncBrokerMemberGroupPeriod": "500",
            }  # fmt: skip
        alone = self._place == "alone"
        roles = ("ASYNC_MASTER",) if alone else ("SYNC_MASTER", "SLAVE")
        slowness = rng.fork("slow").choice((1, 1, 30, 100))
        self.history.append(f"calls to disks take {slowness} times as long")
        servers = [PairServer(world, NAMESRV, rng.fork("ns"), -1, promises, {})]
        for number, role in enumerate(roles):
            address = BROKERS[number]
            server = PairServer(world, address, rng.fork(address), number, promises, {**more, "brokerRole": role})
            server.slowness = slowness
            servers.append(server)
        return servers

    async def _live(self, world: SimWorld, servers: Sequence[SimServer], rng: SimRng) -> None:
        running = [server for server in servers if isinstance(server, PairServer)]
        moments, master = rng.fork("moments"), running[1]
        for _ in range(rng.between(3, 8)):
            if master.speaks and moments.chance(0.3):
                power = self._flush == "SYNC_FLUSH" and moments.chance(0.7)
                await self._end_after_promise(world, master, running[2:], moments, power=power)
            else:
                await self._fault(world, running, rng)
            await asyncio.sleep(rng.choice((0.05, 1.0, 8.0)) * rng.uniform(0.5, 1.5))

    async def _fault(self, world: SimWorld, servers: list[PairServer], rng: SimRng) -> None:
        server = rng.choice((*servers, servers[1], servers[1]))  # the master is the one that matters
        kind = rng.choice(("kill", "kill", "power", "pause", "pause", "partition", "reset", "restart", "restart"))
        if kind == "power" and self._flush == "ASYNC_FLUSH":
            kind = "kill"  # nothing is promised then
        if self._place == "acting" and server.name == "slave" and not servers[1].speaks:
            return  # what it has in memory alone, its master has not taken yet (docs/explanation/pop.md)
        seconds = rng.choice((0.2, 3.0, 20.0)) * rng.uniform(0.5, 1.5)
        self.marks[f"fault: {kind} of {server.name}, {self._place}"] += 1
        self.history.append(f"{world.loop.time() - 1000:9.3f} {kind} of {server.name} for {seconds:.1f} s")
        machine = server.machine
        if kind == "partition":
            if self._place == "acting" and (servers[2].speaks or not servers[1].speaks):
                seconds = min(seconds, _REACHED_AGAIN_S)  # else what the slave was told comes again
            await self._part(world, servers, seconds)
        elif kind == "reset":
            world.network.reset(machine.address)
        elif kind == "pause":
            await machine.pause(seconds)
        elif kind == "restart":
            await server.restart(seconds)
        else:
            if kind == "kill":
                machine.kill()
            else:
                machine.power_off()
            await asyncio.sleep(seconds)
            await server.start()

    async def _part(self, world: SimWorld, servers: list[PairServer], seconds: float) -> None:
        """The last two: master and slave, or the one broker and its name server. A master that its name servers do not
        hear while its slave and its clients do is not the only one to answer (docs/explanation/replication.md)."""
        one, other = (server.machine.address for server in servers[-2:])
        world.network.partition(one, other)
        await asyncio.sleep(seconds)
        world.network.heal()

    async def _offset(self, machine: SimMachine, promises: History, asking: PromiseClients) -> int | None:
        for _ in range(int(_REST_S)):
            offset = await machine.call(asking.offset)
            if not promises.commits_beyond(offset):
                break
            await asyncio.sleep(1)
        return offset
