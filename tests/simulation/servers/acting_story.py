"""One seed, one story of a broker group in which slaves may stand in for their master: a master with one or two slaves,
under one or two name servers, with settings by the seed. Brokers and name servers are killed, lose their power, stand
still, are cut off from one another, each from some of the others, and are started again in any order; several of that
at the same time; their clocks jump. One name server of two may not hear a broker for long; and while a slave stands in,
it may end, or the other slave and the name servers may lose it. Clients with old routes ask all of them for everything
(acting_clients.py, and PromiseClients for locks, commits, topics and groups).

What must hold, at the end or all the time:

* no two brokers serve at once, but where docs/explanation/replication.md says so;
* what was acknowledged is in the master's log (not where it was to be flushed later, and the power went), and every
  group that pulls has read it, and the group that pops was given it;
* what a broker gave away, or took an ack of, is known to every later one that could know it (`_knows`);
* a delayed message comes once, and not early; a transaction comes once if it was committed, and never if it was rolled
  back; a topic that was deleted is empty when it is made again; an offset stays where an operator has set it;
* what PromiseClients were told (promise_history.py);
* slaves have the tables and the log of their master when all is quiet.
"""

import asyncio
import contextlib
import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from maxq.broker.controller import BrokerController
from maxq.config.netty_client_config import NettyClientConfig
from maxq.remoting.client import RemotingClient
from maxq.replication.ha.ha_connection import HAConnectionState
from maxq.testing.sim_machine import SimMachine
from maxq.testing.sim_network import LinkSettings
from maxq.testing.sim_rng import SimRng
from maxq.testing.simulation import SimWorld, run_simulation
from tests.promise_clients import PromiseClients
from tests.promise_history import History
from tests.simulation.dledger.dledger_servers import small_wheel
from tests.simulation.servers.acting_clients import (
    AGAIN,
    INVISIBLE_MS,
    LATER,
    PASSING,
    PLAIN,
    POPPED,
    RESETTING,
    SAFE_S,
    TOPICS,
    TRANSACTED,
    ActingTraffic,
    Fact,
)
from tests.simulation.servers.promise_story import PairServer
from tests.simulation.servers.sim_server import CLIENT

BROKERS: Final = ("10.0.0.1", "10.0.0.2", "10.0.0.3")
NAME_SERVERS: Final = ("10.0.0.9", "10.0.0.8")
NAMES: Final = ("master", "slave 1", "slave 2")
NOT_ACTIVE_S: Final = 3.0
#: A cut of the network that is too short for a broker to be replaced.
_SHORT_S: Final = 1.5
_JUMP_MS: Final = 10_000
#: What a master took back from its slaves is in its log, and so on its way to them, after that time.
_SETTLED_S: Final = 3.0
#: A slave that no longer serves keeps what it knew for longer.
_KEPT_S: Final = 8.0
_TIMER_PRECISION_MS: Final = 500
_REST_S: Final = 300
#: A delayed message is there so long after its time, when all is quiet.
_LATE_AT_MOST_MS: Final = 3_000
#: What was given before all was quiet comes again within that, if it comes at all.
_QUIET_S: Final = INVISIBLE_MS / 1000 + 10
_KINDS: Final = (
    "kill", "kill", "kill", "power", "pause", "pause", "restart", "restart", "reset", "cut", "cut", "cut", "clock",
    "all", "unheard", "unheard", "turns", "turns",
)  # fmt: skip


@dataclass(slots=True, eq=False)
class Reign:
    """A time in which a broker served for its group, as far as it knew.

    Attributes:
        log_end: of its log when it began.
        heirs: slaves, and their lives, that the broker could ask for what they kept: the master while it prepared, a
            slave the one that served last.
        settled: of the master: where its log ended some time after it had begun; None: it did not live so long.
    """

    broker: str
    life: int
    began: float
    log_end: int
    heirs: set[tuple[str, int]] = field(default_factory=set)
    settled: int | None = None
    ended: float = float("inf")


@dataclass(slots=True, eq=False)
class Trouble:
    """Of one server, or of the way between two (their names)."""

    kind: str
    of: frozenset[str]
    began: float
    ended: float = float("inf")

    def touches(self, since: float, until: float) -> bool:
        return self.began <= until and self.ended >= since


class Member(PairServer):
    """A broker, or a name server (-1, -2), of this story.

    Attributes:
        life: how often it was started.
        prepares_since: it does not serve since then, s.
    """

    def __init__(
        self, world: SimWorld, address: str, rng: SimRng, number: int, story: "ActingStory", more: dict[str, str]
    ) -> None:
        super().__init__(world, address, rng, number, story.promises, more)
        self._story = story
        self.life = 0
        self.prepares_since = 0.0

    @property
    def name(self) -> str:
        return NAMES[self.number] if self.number >= 0 else f"name server {-self.number}"

    @property
    def broker(self) -> BrokerController | None:
        """That runs."""
        return self.running if self.machine.is_up and isinstance(self.running, BrokerController) else None

    @property
    def acts(self) -> bool:
        """For its group, as far as it knows, be it sure of it or not."""
        broker = self.broker
        return broker is not None and broker.failover.services.is_running

    @property
    def serves(self) -> bool:
        """For its group, as far as it knows and would say."""
        broker = self.broker
        return self.acts and broker is not None and broker.authority.doubt() is None

    @property
    def log_end(self) -> int:
        broker = self.broker
        return 0 if broker is None else broker.store.max_physical_offset

    def broker_properties(self) -> dict[str, str]:
        return super().broker_properties() | self._more

    def namesrv_properties(self) -> dict[str, str]:
        return super().namesrv_properties() | self._more

    async def start(self, *, in_order: bool = False) -> None:
        self.life += 1
        self.prepares_since = self._story.now()
        await super().start(in_order=in_order)

    def _made(self, broker: BrokerController) -> None:
        super()._made(broker)
        self.running = broker
        broker.failover.services.register("reigns", _Reigns(self, self._story))


class _Reigns:
    """A master-only service: it runs while its broker is active."""

    def __init__(self, member: Member, story: "ActingStory") -> None:
        self._member = member
        self._story = story
        self._reign: Reign | None = None

    def start(self) -> None:
        member = self._member
        self._reign = Reign(member.name, member.life, self._story.now(), member.log_end)
        self._story.on_reign(self._reign, member)

    def stop(self) -> None:
        self._member.prepares_since = self._story.now()
        if self._reign is not None:
            self._reign.ended = self._story.now()
            self._reign = None


class ActingStory:
    """Attributes:
    marks: how often each kind of thing happened.
    history: what happened, for whoever reads a failure.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.marks: Counter[str] = Counter()
        self.history: list[str] = []
        self.promises: History
        self._reigns: list[Reign] = []
        self._troubles: list[Trouble] = []
        self._slow_ways: list[Trouble] = []
        self._together: list[str] = []
        self._busy: set[str] = set()
        self._lost_at: list[float] = []  # the master lost what was not flushed
        self._jumped_ms: dict[str, int] = defaultdict(int)  # by those whose clock has jumped
        self._found: list[str] = []

    def run(self) -> None:
        """Tell it. AssertionError and whatever the code under test raises are failures."""
        with small_wheel():
            run_simulation(self._main, seed=self.seed, time_limit_s=7200, step_limit=40_000_000)

    def now(self) -> float:
        return self._world.loop.time()

    def _note(self, text: str) -> None:
        self.history.append(f"{self.now() - 1000:9.3f} {text}")

    # -- the group --

    def _make(self, world: SimWorld, rng: SimRng) -> None:
        self._world = world
        world.network.default_link = LinkSettings(delay_ms=(0.1, 5), loss=0.002)
        self.promises = History(world.loop.time, knows_roles=True, has_one_master=True)
        brokers, name_servers = rng.choice((2, 3, 3)), rng.choice((1, 2))
        self._loses_end = rng.chance(0.3)
        self._acts = rng.chance(0.85) or self._loses_end
        self._flush = "ASYNC_FLUSH" if self._loses_end else rng.choice(("SYNC_FLUSH", "SYNC_FLUSH", "ASYNC_FLUSH"))
        role = rng.choice(("ASYNC_MASTER", "SYNC_MASTER", "SYNC_MASTER"))
        replicas = rng.choice((0, 0, *range(1, brokers + 1)))
        lowers = rng.chance(0.3)
        self._copies_all = role == "SYNC_MASTER" and (replicas or 2) == brokers and not (lowers and self._acts)
        self._may_lose = self._loses_end or (self._flush == "ASYNC_FLUSH" and rng.chance(0.3))
        more = {
            "flushDiskType": self._flush, "totalReplicas": str(brokers),
            "enableSlaveActingMaster": str(self._acts).lower(),
            "brokerNotActiveTimeoutMillis": str(int(NOT_ACTIVE_S * 1000)), "brokerHeartbeatInterval": "500",
            "syncBrokerMemberGroupPeriod": "500", "inSyncReplicas": str(replicas),
            "enableAutoInSyncReplicas": str(lowers).lower(),
            "slaveReadEnable": rng.choice(("true", "false")),
            "enableRemoteEscape": rng.choice(("true", "false", "false")),
            "compatibleWithOldNameSrv": rng.choice(("true", "true", "false")),
            "haSendHeartbeatInterval": rng.choice(("1000", "5000")),
            "useServerSideResetOffset": "true", "timerPrecisionMs": str(_TIMER_PRECISION_MS),
            "namesrvAddr": ";".join(f"{address}:9876" for address in NAME_SERVERS[:name_servers]),
        }  # fmt: skip
        if self._flush == "ASYNC_FLUSH":  # the disk tears a sector at any byte: properties alone have no check sum then
            more |= {"enabledAppendPropCRC": "true", "forceVerifyPropCRC": "true"}
        told = {"notifyMinBrokerIdChanged": rng.choice(("true", "false"))}
        self.history.append(f"{brokers} brokers, {name_servers} name servers, {role}, {told}, {more}")
        self._name_servers = [
            Member(world, address, rng.fork(address), -1 - n, self, told)
            for n, address in enumerate(NAME_SERVERS[:name_servers])
        ]
        self._brokers = [
            Member(world, address, rng.fork(address), n, self, {**more, "brokerRole": role if n == 0 else "SLAVE"})
            for n, address in enumerate(BROKERS[:brokers])
        ]
        slowness = rng.choice((1, 1, 1, 30))
        for member in self._brokers:
            member.slowness = slowness
        self.history.append(f"calls to disks take {slowness} times as long")
        self.history.append(f"the master may lose its end: {self._may_lose}")

    @property
    def _servers(self) -> list[Member]:
        return [*self._name_servers, *self._brokers]

    @property
    def _master(self) -> Member:
        return self._brokers[0]

    def _named(self, name: str) -> Member:
        return next(member for member in self._brokers if member.name == name)

    def on_reign(self, reign: Reign, member: Member) -> None:
        """A broker serves from now on, as far as it knows."""
        self._note(f"{reign.broker} serves, its log ends at {reign.log_end}")
        self.marks[f"{member.name.split()[0]} serves"] += 1
        last = self._reigns[-1] if self._reigns else None
        self._reigns.append(reign)
        if member is not self._master:
            reign.heirs = self._asked_by_slave(member, last)
            return
        reign.heirs = {
            (slave.name, slave.life)
            for slave in self._brokers[1:]
            if slave.broker is not None
            and not slave.broker.ha_service.is_apart
            and not self._disturbed(slave, self._master, member.prepares_since)
        }
        self._world.loop.call_later(_SETTLED_S, lambda: self._settle(reign))
        if self._lost_at or self._ends_power:
            self._traffic_begins_anew()

    def _asked_by_slave(self, member: Member, last: Reign | None) -> set[tuple[str, int]]:
        """The slave that served last, if `member` could ask it a moment after that."""
        now = self.now()
        if last is None or last.broker == self._master.name or min(last.ended, now) < now - _KEPT_S:
            return set()
        slave = self._named(last.broker)
        is_new = slave is member or slave.broker is None or slave.life != last.life
        if is_new or self._disturbed(slave, member, now - 2 * _KEPT_S):
            return set()
        self.marks["a slave took over from another"] += 1
        return {(last.broker, last.life)}

    def _disturbed(self, slave: Member, by: Member, since: float) -> bool:
        """Could `by` not reach it all the time since then?"""
        names = {slave.name, by.name}
        troubles = self._troubles if by is self._master else [*self._troubles, *self._slow_ways]
        return any(trouble.of <= names and slave.name in trouble.of and trouble.touches(since, self.now())
                   for trouble in troubles)  # fmt: skip

    def _settle(self, reign: Reign) -> None:
        if reign.ended == float("inf") and self._master.broker is not None and self._master.life == reign.life:
            reign.settled = self._master.log_end

    async def _watch(self) -> None:
        while True:
            serving = [member for member in self._brokers if member.acts]
            if len(serving) > 1:
                serving = [member for member in serving if member.serves]
            if len(serving) > 1 and not self._both_may_serve(serving):
                self._together.append(f"{self.now() - 1000:.3f}: " + ", ".join(member.name for member in serving))
            await asyncio.sleep(0.01)

    # -- main --

    async def _main(self, world: SimWorld) -> None:
        rng = SimRng(self.seed).fork("acting")
        self._ends_power = False
        self._make(world, rng)
        for server in self._servers:
            await server.start()
        watching = asyncio.ensure_future(self._watch())
        machine = SimMachine(world.loop, CLIENT, rng.fork("client"))
        machine.boot()
        await asyncio.sleep(5)
        asking, traffic = await machine.call(lambda: self._clients(machine, rng))
        self._asking, self._traffic_begins_anew = asking, traffic.readers_begin_anew
        await asyncio.sleep(rng.uniform(2, 10))
        await asyncio.gather(*(self._live(rng.fork(f"faults {n}")) for n in range(rng.choice((1, 1, 2, 2)))))
        await self._rest_faults()
        quiet_since = self.now()
        await self._settled()
        await self._operate()
        await self._settled()
        await machine.call(asking.stop)
        await machine.call(traffic.stop_writing)
        await self._until(lambda: self._are_equal() is None, 60)
        due_ms = max((one.due_ms for one in traffic.sent[LATER]), default=0) + _LATE_AT_MOST_MS
        await self._until(lambda: self._master.machine.clock.wall_ms() > due_ms, _REST_S)
        await asyncio.sleep(max(0.0, quiet_since + _QUIET_S - self.now()))
        there = {
            topic: await machine.call(lambda topic=topic: self._there(traffic, topic))  # type: ignore[misc]
            for topic in TOPICS
        }
        keys = {topic: {message.body.decode() for message in messages} for topic, messages in there.items()}
        await self._until(lambda: not traffic.unread(keys[PLAIN] | keys[POPPED]), _REST_S)
        await machine.call(traffic.stop_reading)
        offset = await self._offset(machine, asking)
        tables = await machine.call(asking.tables)
        broken = self.promises.broken(tables=tables, offset=offset)
        broken += [f"both served at {when}" for when in self._together[:1]]
        broken += self._lost(traffic, keys) + traffic.unread(keys[PLAIN] | keys[POPPED])
        broken += self._forgotten(traffic) + self._delayed_wrong(traffic, there[LATER])
        broken += self._transactions_wrong(traffic, [m.body.decode() for m in there[TRANSACTED]])
        broken += await machine.call(lambda: self._deletions_undone(traffic))
        broken += await machine.call(lambda: self._resets_undone(traffic))
        broken += await machine.call(lambda: self._groups_undeleted(traffic))
        await self._until(lambda: self._are_equal() is None, 60)  # who looked at the end made a group
        unequal = self._are_equal()
        broken += [] if unequal is None else [unequal]
        self.marks.update(self.promises.count())
        self.marks.update({f"sent: {topic}": len(sent) for topic, sent in traffic.sent.items()})
        self.marks.update({"given": len(traffic.given), "acknowledged": len(traffic.acked),
                           "reset": len(traffic.resets), "deleted": len(traffic.generations)})  # fmt: skip
        assert not broken, f"{len(broken)} promises were broken: " + "; ".join(broken[:8])
        watching.cancel()
        for server in reversed(self._servers):
            await server.stop()

    async def _clients(self, machine: SimMachine, rng: SimRng) -> tuple[PromiseClients, ActingTraffic]:
        client = RemotingClient(NettyClientConfig(), clock=machine.clock, rng=rng.fork("remoting"))
        addresses = {member.name: f"{member.machine.address}:10911" for member in self._brokers}
        asking = PromiseClients(client, self.promises, addresses, rng.fork("asking"), broker_name="broker-a",
                                pause_s=1.5)  # fmt: skip
        traffic = ActingTraffic(
            client, addresses, rng.fork("traffic"), now=self.now, life=lambda name: self._named(name).life,
            position=lambda: self._master.log_end, wall_ms=lambda name: self._named(name).machine.clock.wall_ms(),
        )  # fmt: skip
        for topic in TOPICS:
            assert await traffic.make_topic(topic), topic
        asking.start()
        traffic.start()
        return asking, traffic

    async def _settled(self) -> None:
        """The master is back and its slaves copy from it, or some do not join it; clients go on for a moment."""
        await self._until(lambda: self._master.serves and all(self._copies(slave) for slave in self._brokers[1:]), 20)
        await asyncio.sleep(2)

    def _copies(self, slave: Member) -> bool:
        """Of a connection that the master does not know a slave may not have heard that it is dead."""
        master, broker, address = self._master.broker, slave.broker, slave.machine.address
        if master is None or broker is None or not broker.ha_service.joins_master:
            return False
        return any(one.host == address and one.state is HAConnectionState.TRANSFER
                   for one in master.ha_service.connections)  # fmt: skip

    async def _until(self, happened: Callable[[], bool], seconds: float) -> None:
        end = self.now() + seconds
        while not happened() and self.now() < end:  # noqa: ASYNC110 virtual time
            await asyncio.sleep(0.5)

    async def _offset(self, machine: SimMachine, asking: PromiseClients) -> int:
        for _ in range(60):
            offset = await machine.call(asking.offset)
            if not self.promises.commits_beyond(offset):
                break
            await asyncio.sleep(1)
        return offset

    async def _there(self, traffic: ActingTraffic, topic: str) -> list[Any]:
        for _ in range(30):
            messages = await traffic.all_of(self._master.name, topic)
            if messages is not None:
                return messages
            await asyncio.sleep(1)
        raise AssertionError(f"the master does not show {topic} when all is quiet")

    # -- what goes wrong --

    async def _live(self, rng: SimRng) -> None:
        for _ in range(rng.between(2, 6)):
            await self._fault(rng)
            await asyncio.sleep(rng.choice((0.05, 1.0, 8.0)) * rng.uniform(0.5, 1.5))

    async def _fault(self, rng: SimRng) -> None:
        kind = rng.choice(_KINDS)
        seconds = rng.choice((0.2, 2.0, 4.0, 8.0, 20.0)) * rng.uniform(0.5, 1.5)
        if self._loses_end and rng.chance(0.6):
            await self._lose_end(rng)
            return
        if kind == "cut":
            await self._cut(rng, seconds)
            return
        if kind == "unheard":
            await self._unheard(rng)
            return
        if kind == "turns":
            await self._turns(rng)
            return
        if kind == "all":
            await self._end_all(rng)
            return
        free = [server for server in self._servers if server.name not in self._busy]
        if not free:
            await asyncio.sleep(1)
            return
        server = rng.choice(free)
        if rng.chance(0.35) and self._master in free:
            server = self._master
        if self._may_lose and server is self._master and kind in ("kill", "restart", "pause"):
            kind = "power"
        self.marks[f"fault: {kind} of {server.name.rstrip(' 12')}"] += 1
        if kind == "reset":
            self._note(f"reset of {server.name}")
            self._world.network.reset(server.machine.address)
            return
        if kind == "clock":
            jump_ms = rng.choice((-_JUMP_MS, _JUMP_MS)) * rng.below(1000) // 1000
            jump_ms -= self._jumped_ms[server.name]
            self._note(f"the clock of {server.name} jumps by {jump_ms} ms")
            server.machine.clock.jump_wall_ms(jump_ms)
            self._jumped_ms[server.name] += jump_ms
            return
        await self._end_one(server, kind, seconds)

    async def _end_one(self, server: Member, kind: str, seconds: float) -> None:
        if kind == "power" and server is self._master and not self._may_lose and self._flush == "ASYNC_FLUSH":
            kind = "kill"  # nothing is promised then
        if server.number < 0 and seconds > _SHORT_S and self._would_serve_both(kind, frozenset({server.name})):
            seconds = _SHORT_S
        self._note(f"{kind} of {server.name} for {seconds:.1f} s")
        with self._trouble(kind, server.name):
            if kind == "pause":
                await server.machine.pause(seconds)
                return
            if kind == "restart":
                await server.stop()
                server.machine.kill()
            elif kind == "kill":
                server.machine.kill()
            else:
                self._power_off(server)
            await asyncio.sleep(seconds)
            await server.start(in_order=kind == "restart")
        self._note(f"{server.name} is back")

    async def _lose_end(self, rng: SimRng) -> None:
        """The power of the master goes, and with it what it has not flushed, for so long that a slave stands in: what
        that one knows of the lost messages must not count for those that get their places."""
        if self._master.name in self._busy:
            await asyncio.sleep(1)
            return
        self.marks["fault: the master loses its end"] += 1
        await self._end_one(self._master, "power", rng.uniform(NOT_ACTIVE_S + 2, 5 * NOT_ACTIVE_S))

    def _power_off(self, server: Member) -> None:
        server.machine.power_off()
        if server is self._master:
            self._ends_power = True
            self._traffic_begins_anew()
            if self._flush == "ASYNC_FLUSH":
                self._lost_at.append(self.now())
                self._asking.messages_were_lost()

    async def _end_all(self, rng: SimRng) -> None:
        """All brokers end, and begin in any order."""
        brokers = [server for server in self._brokers if server.name not in self._busy]
        if self._master not in brokers:
            return
        power = rng.chance(0.4) and (self._flush == "SYNC_FLUSH" or self._may_lose)
        self.marks["fault: all brokers end"] += 1
        self._note(f"{'power' if power else 'kill'} of {', '.join(server.name for server in brokers)}")
        with contextlib.ExitStack() as ends:
            for server in brokers:
                ends.enter_context(self._trouble("power" if power else "kill", server.name))
                if power:
                    self._power_off(server)
                else:
                    server.machine.kill()
            brokers.sort(key=lambda _: rng.below(1 << 30))
            starting = []
            for server in brokers:
                await asyncio.sleep(rng.choice((0.01, 1.0, 5.0)))
                starting.append(asyncio.ensure_future(server.start()))
            await asyncio.gather(*starting)
        self._note("all are back")

    async def _cut(self, rng: SimRng, seconds: float) -> None:
        """Some ways between two of all servers."""
        servers = self._servers
        ways = [(one, other) for n, one in enumerate(servers) for other in servers[n + 1 :]
                if one.number >= 0 or other.number >= 0]  # fmt: skip
        cut = [way for way in ways if rng.chance(0.3)] or [rng.choice(ways)]
        if seconds > _SHORT_S and self._would_serve_both("cut", *(frozenset({a.name, b.name}) for a, b in cut)):
            seconds = _SHORT_S
        both_ways = rng.chance(0.7)
        if rng.chance(0.25):
            await self._slow(rng, cut, seconds)
            return
        self.marks["fault: cut"] += 1
        said = ", ".join(f"{one.name} and {other.name}" for one, other in cut)
        self._note(f"cut between {said} for {seconds:.1f} s{'' if both_ways else ', one way'}")
        with contextlib.ExitStack() as ends:
            for one, other in cut:
                ends.enter_context(self._trouble("cut", one.name, other.name))
                if not both_ways and rng.chance(0.5):
                    one, other = other, one
                self._world.network.partition(one.machine.address, other.machine.address, both_ways=both_ways)
            await asyncio.sleep(seconds)
            for one, other in cut:
                self._world.network.heal(one.machine.address, other.machine.address)
        self._note("the cut is over")

    async def _unheard(self, rng: SimRng) -> None:
        """One name server of two does not hear a broker for so long that it gives it up."""
        broker = self._master if rng.chance(0.6) else rng.choice(self._brokers)
        name_server, seconds = rng.choice(self._name_servers), rng.uniform(8, 25)
        if len(self._name_servers) == 1 or self._would_serve_both("cut", frozenset({broker.name, name_server.name})):
            return
        self.marks["fault: a name server does not hear a broker"] += 1
        self._note(f"{name_server.name} does not hear {broker.name} for {seconds:.1f} s")
        with self._cut_off(broker, name_server):
            await asyncio.sleep(seconds)
        self._note(f"{name_server.name} hears {broker.name} again")

    async def _turns(self, rng: SimRng) -> None:
        """While a slave stands in for its master, it ends, or the other slave does not hear it, and name servers lose
        it again and again."""
        if len(self._brokers) < 3 or {server.name for server in self._brokers} & self._busy:
            return
        master, acting, other = self._brokers
        self.marks["fault: slaves in turn"] += 1
        self._note("slaves in turn: kill of the master")
        with self._trouble("kill", master.name):
            master.machine.kill()
            await asyncio.sleep(rng.uniform(3, 8))
            if rng.chance(0.3):
                await self._end_one(acting, rng.choice(("kill", "restart", "pause")), rng.uniform(4, 12))
            else:
                await self._lose(rng, acting, other)
            await asyncio.sleep(rng.uniform(0, 5))
            await master.start()
        self._note("slaves in turn: the master is back")

    async def _lose(self, rng: SimRng, acting: Member, other: Member) -> None:
        """Name servers lose a slave for moments, and the other one does not hear it."""
        self._note(f"{acting.name} is lost, again and again")
        with self._cut_off(acting, other):
            for _ in range(rng.between(3, 10)):
                self._world.network.reset(acting.machine.address)
                await asyncio.sleep(rng.uniform(0.2, 1.2))

    @contextlib.contextmanager
    def _cut_off(self, one: Member, other: Member) -> Iterator[None]:
        with self._trouble("cut", one.name, other.name):
            self._world.network.partition(one.machine.address, other.machine.address)
            yield
            self._world.network.heal(one.machine.address, other.machine.address)

    async def _slow(self, rng: SimRng, ways: Sequence[tuple[Member, Member]], seconds: float) -> None:
        """Packets take long on these ways."""
        slow = LinkSettings(delay_ms=rng.choice(((100, 200), (200, 400), (300, 700))))
        self.marks["fault: slow"] += 1
        said = ", ".join(f"{one.name} and {other.name}" for one, other in ways)
        self._note(f"{slow.delay_ms} ms between {said} for {seconds:.1f} s")
        network = self._world.network
        troubles = [Trouble("slow", frozenset({one.name, other.name}), self.now()) for one, other in ways]
        self._slow_ways += troubles
        for one, other in ways:
            network.set_link(one.machine.address, other.machine.address, slow)
        await asyncio.sleep(seconds)
        for trouble in troubles:
            trouble.ended = self.now()
        for one, other in ways:
            network.set_link(one.machine.address, other.machine.address, network.default_link)
        self._note("the ways are quick again")

    @contextlib.contextmanager
    def _trouble(self, kind: str, *names: str) -> Iterator[None]:
        one = Trouble(kind, frozenset(names), self.now())
        self._troubles.append(one)
        if len(names) == 1:
            self._busy.add(names[0])
        yield
        one.ended = self.now()
        if len(names) == 1:
            self._busy.discard(names[0])

    def _would_serve_both(self, kind: str, *more: frozenset[str]) -> bool:
        """Would two brokers serve at once with these troubles, for each of them reaches only name servers that the
        other one does not?"""
        present = [one for one in self._troubles if one.ended == float("inf")]
        present += [Trouble(kind, of, self.now()) for of in more]
        return any(not self._meet(one, other, present) for one, other in itertools.combinations(self._brokers, 2))

    def _meet(self, one: Member, other: Member, troubles: Iterable[Trouble]) -> bool:
        """Do they reach each other, or a name server that both reach, or does one of them reach no name server?"""
        bad = {trouble.of for trouble in troubles}

        def reached(member: Member) -> set[str]:
            return {
                server.name
                for server in self._name_servers
                if not {frozenset({server.name}), frozenset({server.name, member.name})} & bad
            }

        apart = frozenset({one.name, other.name}) in bad
        return not apart or not reached(one) or not reached(other) or bool(reached(one) & reached(other))

    def _both_may_serve(self, serving: Sequence[Member]) -> bool:
        """They are cut from each other, and each of them from the name servers that the other one reaches
        (docs/explanation/replication.md), or were a moment before."""
        recent = [one for one in self._troubles if one.touches(self.now() - 2 * NOT_ACTIVE_S, self.now())]
        return any(not self._meet(one, other, recent) for one, other in itertools.combinations(serving, 2))

    async def _rest_faults(self) -> None:
        """No more faults; everybody is up, and clocks are right."""
        self._world.network.heal()
        for name, jump_ms in self._jumped_ms.items():
            next(server for server in self._servers if server.name == name).machine.clock.jump_wall_ms(-jump_ms)
        self._note("all is quiet")

    async def _operate(self) -> None:
        """An operator empties slaves whose logs do not join their master's."""
        for slave in self._brokers[1:]:
            broker = slave.broker
            assert broker is not None
            if not broker.ha_service.joins_master or slave.log_end > self._master.log_end:
                self._note(f"{slave.name} is emptied: its log is another ({broker.ha_service.client.failure})")
                self.marks["a slave was emptied"] += 1
                assert self._ends_power, f"the log of {slave.name} parts from its master's, whose power never went"
                slave.machine.kill()
                slave.machine.lose_disk()
                await slave.start()

    # -- what must hold --

    def _lost(self, traffic: ActingTraffic, keys: dict[str, set[str]]) -> list[str]:
        return [
            f"{one.key} was acknowledged and is gone" for topic in (PLAIN, POPPED, LATER)
            for one in traffic.sent[topic] if one.key not in keys[topic] and not self._may_be_lost(one.when)
        ]  # fmt: skip

    def _may_be_lost(self, when: float) -> bool:
        return any(lost > when for lost in self._lost_at)

    def _forgotten(self, traffic: ActingTraffic) -> list[str]:
        """Messages that were given again, to who could know better."""
        found = []
        given: dict[str, list[Fact]] = {}
        for fact in traffic.given:
            given.setdefault(fact.key, []).append(fact)
        for key, facts in given.items():
            facts.sort(key=lambda fact: fact.ended)
            acks = [ack for ack in traffic.acked if ack.key == key]
            for n, again in enumerate(facts):
                reign = self._reign_of(again)
                if reign is None:
                    found.append(f"{again}, who did not serve")
                    continue
                found += [
                    f"{again}, and it is another's: {fact}" for fact in facts[:n]
                    if again.ended < fact.began + SAFE_S and self._knows(fact, reign)
                ]  # fmt: skip
                found += [
                    f"{again}, and it was acknowledged: {ack}" for ack in acks
                    if again.began > ack.ended and self._knows(ack, reign) and not self._was_held_by_two(ack, facts)
                ]  # fmt: skip
        return found

    def _reign_of(self, fact: Fact) -> Reign | None:
        """Return the reign in which a fact was answered."""
        own = [reign for reign in self._reigns
               if (reign.broker, reign.life) == (fact.broker, fact.life) and reign.began <= fact.ended]  # fmt: skip
        return own[-1] if own else None

    def _was_held_by_two(self, ack: Fact, facts: list[Fact]) -> bool:
        """Was it given by who could not know that somebody had it (docs/explanation/pop.md)?"""
        assert ack.given is not None
        reign = self._reign_of(ack.given)
        return any(fact is not ack.given and (reign is None or not self._knows(fact, reign)) for fact in facts
                   if fact.ended <= ack.given.ended)  # fmt: skip

    def _knows(self, fact: Fact, reign: Reign) -> bool:
        """Must who serves in this reign, which comes after, know it?"""
        if self._may_be_lost(fact.ended):
            return False
        if reign is self._reign_of(fact):
            return True
        is_masters, end = fact.broker == self._master.name, fact.position
        between = [one for one in self._reigns if one.broker == self._master.name
                   and one.began > fact.ended and one.began <= reign.began]  # fmt: skip
        if not is_masters:
            if not between:
                return (fact.broker, fact.life) in {(reign.broker, reign.life), *self._heirs_since(fact, reign)}
            if (fact.broker, fact.life) not in between[0].heirs:
                return False
            if between[0].settled is None:
                return reign.broker == self._master.name
            end = between[0].settled
        if reign.broker == self._master.name:
            return True
        if is_masters and self._copies_all and fact.ended - fact.began < 3:
            return True
        return end > 0 and reign.log_end >= end

    def _heirs_since(self, fact: Fact, reign: Reign) -> set[tuple[str, int]]:
        """Who told the slave of this reign what it knew, if it had the fact from its last reign before."""
        own = self._reign_of(fact)
        later = [one for one in self._reigns if own is not None and own.began < one.began <= reign.began]
        return reign.heirs if later[:1] == [reign] else set()

    def _delayed_wrong(self, traffic: ActingTraffic, messages: list[Any]) -> list[str]:
        came: dict[str, list[int]] = {}
        for message in messages:
            came.setdefault(message.body.decode(), []).append(message.store_timestamp)
        slack_ms = 2 * _TIMER_PRECISION_MS + (2 * _JUMP_MS if self._master.name in self._jumped_ms else 0)
        found = [f"{key} came {len(times)} times" for key, times in came.items() if len(times) > 1]
        return found + [
            f"{one.key} was due at {one.due_ms} and came at {came[one.key][0]}" for one in traffic.sent[LATER]
            if one.key in came and came[one.key][0] < one.due_ms - slack_ms
        ]  # fmt: skip

    def _transactions_wrong(self, traffic: ActingTraffic, bodies: list[str]) -> list[str]:
        found, counts = [], Counter(bodies)
        for key, one in traffic.transactions.items():
            if counts[key] > 1:
                found.append(f"{key} came {counts[key]} times")
            if counts[key] and not one.commits:
                found.append(f"{key} was rolled back and came")
            if not counts[key] and one.commits and one.when is not None and not self._may_be_lost(one.when):
                found.append(f"{key} was committed and did not come")
        return found + [f"{key} was never ended, and came" for key in counts if key not in traffic.transactions]

    async def _deletions_undone(self, traffic: ActingTraffic) -> list[str]:
        found = []
        last = len(traffic.generations) - 1
        for member in self._brokers:
            messages = await traffic.all_of(member.name, AGAIN)
            if messages is None:
                continue
            bodies = [message.body.decode() for message in messages]
            found += [f"{body} is back at {member.name}" for body in bodies
                      if traffic.generations[int(body.split("-")[1])].is_gone]  # fmt: skip
            is_kept = last >= 0 and traffic.generations[last].is_gone is False and not self._lost_at
            if is_kept and member is self._master:
                found += [f"{body} is gone" for body in traffic.generations[last].sent if body not in bodies]
        return found

    async def _resets_undone(self, traffic: ActingTraffic) -> list[str]:
        done = [n for n, (_, when) in enumerate(traffic.resets) if when is not None]
        if not done or self._lost_at:
            return []
        allowed = {offset for offset, _ in traffic.resets[done[-1] :]}
        allowed |= traffic.unsure | {commit for commit, n in traffic.reset_commits if n > done[-1]}
        is_at = await traffic.committed_of(self._master.name, RESETTING)
        return [] if is_at in allowed else [f"an offset was set to {sorted(allowed)}, and is {is_at}"]

    async def _groups_undeleted(self, traffic: ActingTraffic) -> list[str]:
        """Offsets of a group that was deleted with them."""
        gone = [n for n, one in enumerate(traffic.passing) if one.is_gone]
        lives = traffic.passing[gone[-1] + 1 if gone else 0 :]
        allowed = {-1, 0, *traffic.unsure, *(offset for one in lives for offset in one.commits)}
        is_at = await traffic.committed_of(self._master.name, PASSING)
        return [] if is_at in allowed else [f"a group was deleted, and is at {is_at}, not at one of {sorted(allowed)}"]

    def _are_equal(self) -> str | None:
        """How a slave differs from its master; None: it does not."""
        master = self._master.broker
        if master is None:
            return "the master is away"
        for slave in self._brokers[1:]:
            broker = slave.broker
            if broker is None:
                return f"{slave.name} is away"
            for what, has in (
                ("log", lambda one: one.store.max_physical_offset),
                ("topics", lambda one: sorted(one.topics.topic_config_table)),
                ("groups", lambda one: sorted(one.groups.subscription_group_table)),
            ):
                if has(broker) != has(master):
                    return f"{slave.name} has another {what} than its master: {has(broker)} and {has(master)}"
        return None
