"""What goes wrong with the machines of a simulated DLedger group.

The network under brokers is TCP: what it loses comes late, nothing comes twice or in another order on a connection.
Loss, duplication and order of single messages are told of the core alone (tests/simulation/raft).
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Sequence
from pathlib import PurePath
from typing import Final

from maxq.protocol.dledger.dledger_messages import DLedgerResponseCode
from maxq.testing.sim_machine import MachineDiedError
from maxq.testing.sim_rng import SimRng
from maxq.testing.simulation import SimWorld
from tests.simulation.disk_faults import FaultMix
from tests.simulation.dledger.dledger_servers import Server
from tests.simulation.servers.sim_server import STORE

KINDS: Final = (
    "kill", "kill", "power", "power", "all power", "partition", "partition", "ring", "reset", "pause", "transfer",
    "wall clock", "disk full", "damage", "moment",
)  # fmt: skip
FAULTY_KINDS: Final = (*KINDS, *["disk fails"] * len(KINDS))
_DAMAGED: Final = ("data/*", "index/*", "checkpoint", "currterm")


class Faults:
    """Of one story.

    Args:
        servers: the name server and the members.
        marks, history: what happened is told here.
        may_jump: may wall clocks jump far? What is delayed then waits far too long.
        kinds: what may happen.
    """

    def __init__(
        self,
        world: SimWorld,
        servers: list[Server],
        rng: SimRng,
        marks: Counter[str],
        history: list[str],
        *,
        may_jump: bool,
        kinds: Sequence[str] = KINDS,
    ) -> None:
        self._world = world
        self._servers = servers
        self._brokers = [server for server in servers if server.number >= 0]
        self._rng = rng
        self._marks = marks
        self._history = history
        self._kinds = kinds
        self._jumped: Counter[int] = Counter()
        self._jump_ms = 3_600_000 if may_jump else 2_000

    async def one(self) -> None:
        """From its beginning to its end, or at least until it is over for most."""
        rng = self._rng
        leaders = [server for server in self._brokers if server.is_leader]
        server = rng.choice(leaders) if leaders and rng.chance(0.5) else rng.choice(self._servers)
        kind = rng.choice(self._kinds)
        seconds = rng.choice((0.2, 3.0, 30.0)) * rng.uniform(0.5, 1.5)
        what = "leader" if server in leaders else "name server" if server.number < 0 else "follower"
        self._marks[f"fault: {kind} of {what}"] += 1
        now = self._world.loop.time() - 1000
        self._history.append(f"{now:9.3f} {kind} of {server.name}, {what}, for {seconds:.1f} s")
        if kind in ("partition", "ring"):
            self._cut(kind, server)
            await asyncio.sleep(seconds)
            self._world.network.heal()
        elif kind == "reset":
            self._world.network.reset(server.machine.address)
        elif kind == "pause":
            await server.machine.pause(seconds)
        elif kind == "wall clock":
            jump_ms = rng.choice((-self._jump_ms, self._jump_ms))
            server.machine.clock.jump_wall_ms(jump_ms)
            self._jumped[server.number] += jump_ms
        elif kind == "transfer":
            await self._transfer(leaders)
        elif kind == "disk full":
            await self._fill(server, seconds)
        elif kind == "moment":
            server.machine.disk.cut_power_after(rng.below(60), process_only=rng.chance(0.4))
            await asyncio.sleep(seconds)
            server.machine.disk.cut_power_after(-1)
            await self._start(server)
        elif kind == "disk fails":
            await self._fail_disk(server, seconds)
        elif kind == "damage":
            await self._damage(server, seconds)
        else:
            await self._die(kind, self._brokers if kind == "all power" else [server], seconds)

    async def _die(self, kind: str, gone: list[Server], seconds: float) -> None:
        for one in gone:
            if kind == "kill":
                one.machine.kill()
            else:
                one.machine.power_off()
        await asyncio.sleep(seconds)
        for one in gone:
            await self._start(one)

    async def _start(self, server: Server) -> None:
        if not server.machine.is_up:
            await server.start()

    def _cut(self, kind: str, server: Server) -> None:
        network, brokers, rng = self._world.network, self._brokers, self._rng
        if kind == "ring":  # everybody hears the two beside it; of three, two do not hear each other
            first = rng.below(len(brokers))
            ring = brokers[first:] + brokers[:first]
            pairs = [(ring[0], ring[1])] if len(ring) == 3 else [(ring[n], ring[n - 2]) for n in range(len(ring))]
        else:
            others = brokers if rng.chance(0.5) else [rng.choice([one for one in self._servers if one is not server])]
            pairs = [(server, other) for other in others if other is not server]
        for one, other in pairs:
            both_ways = kind == "ring" or rng.chance(0.6)
            network.partition(one.machine.address, other.machine.address, both_ways=both_ways)

    async def _transfer(self, leaders: list[Server]) -> None:
        for leader in leaders:
            member, to = leader.member, self._rng.choice(self._brokers)
            if member is not None:
                with contextlib.suppress(MachineDiedError):
                    code: DLedgerResponseCode = await leader.machine.call(
                        lambda member=member, to=to: member.transfer(to.name)  # type: ignore[misc]
                    )
                    self._marks[f"transfer: {code.name}"] += 1

    async def _fill(self, server: Server, seconds: float) -> None:
        """Somebody else takes all the room that is left on its partition."""
        disk = server.machine.disk
        disk.other_bytes += disk.usage(STORE).free
        await asyncio.sleep(seconds)
        server.machine.disk.other_bytes = 0

    async def _fail_disk(self, server: Server, seconds: float) -> None:
        mix = FaultMix(self._rng.fork(f"disk {self._world.loop.time()}"))
        if await server.live_on_failing_disk(mix, seconds, self._rng):
            self._marks["ended by an error of the disk"] += 1
        await self._start(server)
        self._marks.update(f"failed: {kind}" for kind in mix.seen)
        self._history.append(f"          {dict(mix.seen)}")

    async def _damage(self, server: Server, seconds: float) -> None:
        """Bits change while it is down, of a minority only: while the others all are up and miss nothing."""
        others = [one for one in self._brokers if one is not server]
        forgetful = [one for one in others if one.member is None or one.member.store.amnesiac_until >= 0]
        if server.number < 0 or len(forgetful) >= (len(self._brokers) - 1) // 2:
            return
        if self._rng.chance(0.5):
            server.machine.kill()
        else:
            server.machine.power_off()
        await asyncio.sleep(seconds)
        await server.start(lambda: self._flip(server))

    def _flip(self, server: Server) -> None:
        disk = server.machine.disk
        for _ in range(self._rng.between(1, 3)):
            paths = disk.paths(f"*dledger-{server.name}/{self._rng.choice(_DAMAGED)}")
            content = disk.read(PurePath(paths[-1])) if paths else b""
            used = content.rstrip(b"\0")  # what nobody wrote says nothing
            if used:
                flip = disk.flip_bit(paths[-1], self._rng.below(len(used)), self._rng.below(8))
                self._history.append(f"          {flip}")
                self._marks[f"damaged: {'/'.join(paths[-1].split('/')[3:])[:10]}"] += 1

    async def rest(self) -> None:
        """No more faults; everybody is up, and clocks say about the same again."""
        self._world.network.heal()
        for server in self._servers:
            server.machine.disk.other_bytes = 0
            server.machine.disk.cut_power_after(-1)
            server.machine.clock.jump_wall_ms(-self._jumped.pop(server.number, 0))
            await self._start(server)
