"""Two machines with a broker each, a SYNC_MASTER and its slave, or one alone, a name server that always answers, and
what goes wrong with the brokers.

A broker is killed, or its machine loses its power, within one of its next disk operations; or the master does, at the
moment that a client hears an answer of it; or a disk fails for a while, any call of any kind of file (disk_faults.py),
and a broker that says it has failed is ended; or the disk refuses a single write of one of the master's tables. It
comes back on the same machine, perhaps on a disk that still fails, or after a loss of power; or the slave takes its
place, and the old master becomes its slave, with an empty disk; or the slave stands in for it until it is back
(`acts`). One thing goes wrong at a time, and only while both have the same: of two that fail together nothing is
promised.

Some disks take tenths of a second for a sync, and some links between the two brokers take as long. An answer that comes
before the disk or the slave has what it promises is then heard before they have it.
"""

import asyncio
import contextlib
import errno
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from maxq.broker.controller import BrokerController
from maxq.codes import RequestCode
from maxq.config import BrokerSettings
from maxq.config.host import broker_on
from maxq.errors import MaxQError
from maxq.machine import system_host
from maxq.store.message_store import MessageStore
from maxq.testing.sim_machine import MachineDiedError, SimMachine
from maxq.testing.sim_network import LinkSettings
from maxq.testing.sim_rng import SimRng
from maxq.testing.simulation import SimWorld
from tests.simulation.disk_faults import FaultMix, OneRefusal, nothing_fails
from tests.simulation.servers.sim_server import NAMESRV, NAMESRV_ADDRESS, STORE, NameServer

ADDRESSES: Final = ("10.0.0.1", "10.0.0.2")
BROKER_NAME: Final = "broker-a"
HASH_SLOTS, INDEX_ENTRIES = 100, 400
_DEADLINE_S: Final = 20.0
_SHUTDOWN_S: Final = 60.0
_NOTICED_S: Final = 1.0
_READY_S: Final = 60.0
_TABLES: Final = ("consumerOffset.json", "delayOffset.json")


class Member:
    """A machine with a broker that is master or slave.

    Attributes:
        failed: what its broker has said to have failed.
        slowness: factor on the time that calls to its disk take.
    """

    def __init__(self, world: SimWorld, address: str, rng: SimRng, settings: Mapping[str, str]) -> None:
        self.machine = SimMachine(world.loop, address, rng, kill_keeps_cache=True)
        self.is_master = False
        self.failed: list[str] = []
        self.slowness = 1
        self._settings = settings
        self._rng = rng
        self.running: BrokerController | None = None

    async def start(self, *, is_master: bool, other: str, faults: FaultMix | None = None) -> None:
        """Boot, on a disk that may fail. What the start raises is raised, and then no process is left."""
        self.is_master = is_master
        self.failed = []
        self.running = None
        self.machine.boot()
        self.machine.process.slowness = self.slowness
        if faults is not None:
            self.machine.disk.faults = faults
        try:
            self.running = await self.machine.call(lambda: self._start(other))
        except (OSError, MaxQError):
            self.machine.kill()
            raise

    async def _start(self, other: str) -> BrokerController:
        address = self.machine.address
        properties = {
            "brokerName": BROKER_NAME, "brokerId": "0" if self.is_master else "1",
            "brokerRole": "SYNC_MASTER" if self.is_master else "SLAVE", "brokerIP1": address, "brokerIP2": address,
            "bindAddress": address, "listenPort": "10911", "haListenPort": "10912", "haMasterAddress": f"{other}:10912",
            "storePathRootDir": str(STORE), "namesrvAddr": NAMESRV_ADDRESS, "mappedFileSizeCommitLog": "65536",
            "mappedFileSizeConsumeQueue": "2000",
            "maxHashSlotNum": str(HASH_SLOTS), "maxIndexNum": str(INDEX_ENTRIES), "slaveTimeout": "2000",
            "haFullCopy": "true", "cleanResourceInterval": "1000", **self._settings,
        }  # fmt: skip
        if not self.is_master:
            properties["brokerRole"] = "SLAVE"
        settings, _ = BrokerSettings.from_properties(properties, source="simulation")
        machine = self.machine
        broker = BrokerController(
            broker_on(settings, system_host()), disk=machine.disk, clock=machine.clock, rng=self._rng
        )
        broker.set_failure_listener(lambda service, error: self.failed.append(f"{service}: {error}"))
        await broker.start()
        return broker

    async def stop(self) -> None:
        """End it in order."""
        running, self.running = self.running, None
        if running is not None and self.machine.is_up:
            await self.machine.call(running.shutdown)
            self.machine.kill()

    async def stop_failed(self) -> None:
        """End it in order as far as its disk lets it."""
        running, self.running = self.running, None
        if running is not None and self.machine.is_up:
            with contextlib.suppress(OSError, MaxQError, MachineDiedError, TimeoutError):
                async with asyncio.timeout(_SHUTDOWN_S):
                    await self.machine.call(running.shutdown)
        self.machine.kill()


class ActingNameServer(NameServer):
    """Of brokers whose slave acts."""

    def namesrv_properties(self) -> dict[str, str]:
        return {"supportActingMaster": "true", "scanNotActiveBrokerInterval": "500"}


#: Of brokers of which the slave acts for a master that is away, beside what all have.
ACTING: Final = {
    "enableSlaveActingMaster": "true", "totalReplicas": "2", "brokerHeartbeatInterval": "500",
    "syncBrokerMemberGroupPeriod": "500", "brokerNotActiveTimeoutMillis": "3000",
}  # fmt: skip


class BrokerPair:
    """Attributes:
    members: the first was the first master; one only, if it is alone.
    """

    def __init__(
        self, world: SimWorld, rng: SimRng, marks: Counter[str], history: list[str], settings: Mapping[str, str],
        *, alone: bool = False, fails: bool = False, acts: bool = False, tables: Sequence[str] = _TABLES,
    ) -> None:  # fmt: skip
        """
        Args:
            marks, history: what happened is told here.
            settings: of both brokers, beside those that all have.
            alone: there is no slave; the settings say the role.
            fails: disks fail, too.
            acts: the slave does not become master; it stands in for the master while that is away.
            tables: names of those of which a single write may be refused then.
        """
        self._world = world
        self._tables = tables
        self._rng = rng
        self._marks = marks
        self._history = history
        self._is_sync = settings["flushDiskType"] == "SYNC_FLUSH"
        self._fails = fails
        self._acts = rng.fork("acting") if acts else None
        self._acting: Member | None = None  # the slave that stands in now
        self._moments = rng.fork("moments")
        self._full = rng.fork("full")
        self._refused = rng.fork("refused")
        self._heard: set[int] = set()  # codes of requests that were answered
        self._awaited = -1  # code of the request after whose answer the master dies
        self._dies_now = asyncio.Event()
        self._namesrv = (ActingNameServer if acts else NameServer)(world, NAMESRV, rng.fork("ns"), -1)
        settings = {**settings, **(ACTING if acts else {})}
        self.members = [
            Member(world, address, rng.fork(address), settings) for address in (ADDRESSES[:1] if alone else ADDRESSES)
        ]
        slow = rng.fork("slow")
        slowness = slow.choice((1, 1, 30, 300))
        for member in self.members:
            member.slowness = slowness
        if not alone and slow.chance(0.4):
            world.network.set_link(*ADDRESSES, LinkSettings(delay_ms=(20, 300)))
            history.append("the link of the brokers is slow")
        history.append(f"calls to disks take {slowness} times as long")

    @property
    def master(self) -> Member:
        return next(member for member in self.members if member.is_master)

    @property
    def address(self) -> str:
        """Of whoever is master now, or acts as it."""
        return f"{(self._acting or self.master).machine.address}:10911"

    def heard(self, code: int) -> None:
        """A client has heard the master say that a request with this code was done."""
        self._heard.add(code)
        if code == self._awaited:
            self._dies_now.set()

    async def start(self) -> None:
        """Both, for the first time."""
        await self._namesrv.start()
        for member in self.members:
            await self._start(member, is_master=member is self.members[0])

    async def stop(self) -> None:
        """End them in order."""
        for member in self.members:
            await member.stop()
        await self._namesrv.stop()

    def _other(self, member: Member) -> Member:
        return next((one for one in self.members if one is not member), member)

    async def _start(self, member: Member, *, is_master: bool, faults: FaultMix | None = None) -> None:
        await member.start(is_master=is_master, other=self._other(member).machine.address, faults=faults)

    # -- what goes wrong --

    async def trouble(self) -> None:
        """One thing goes wrong, from its beginning to its end."""
        await self._be_equal()
        rng = self._rng
        if self._acts is not None and self._acts.chance(0.3):
            member = self.master
            await member.stop()
            self._marks["the master ended in order"] += 1
            self._note("an end of the master in order")
            await self._come_back(member, power=False, change=False)
            return
        if self._heard and self._moments.chance(0.35):
            await self._dies_after_answer()
            return
        if self._fails and self._full.chance(0.3):
            await self._dies_without_room()
            return
        if self._fails and self._refused.chance(0.35):
            await self._table_is_refused()
            return
        member = rng.choice(self.members)
        assert not member.failed, f"failed on a disk that works: {member.failed}"
        if self._fails and rng.chance(0.6):
            await self._disk_fails(member)
        else:
            await self._dies_in_operation(member)

    def _may_lose_power(self) -> bool:
        """Alone and with ASYNC_FLUSH nothing is promised then."""
        return self._is_sync or (len(self.members) > 1 and self._acts is None)

    async def _dies_in_operation(self, member: Member) -> None:
        machine, is_master = member.machine, member.is_master
        power = self._rng.chance(0.5) and self._may_lose_power()
        change = self._may_change(member, power=power)
        machine.disk.cut_power_after(self._rng.between(1, 120), process_only=not power)
        await self._until(lambda: not machine.is_up, _DEADLINE_S)
        if machine.is_up:
            machine.disk.cut_power_after(-1)
            return
        self._marks[f"{'power' if power else 'kill'} of the {'master' if is_master else 'slave'}"] += 1
        self._marks[f"within {machine.disk.lost_at.partition(' ')[0]}"] += 1
        ending = "change" if change else "no change"
        self._note(f"{'power' if power else 'kill'}, master: {is_master}, {ending}, {machine.disk.lost_at}")
        await asyncio.sleep(self._rng.choice((0.0, 0.5, 6.0)))
        await self._come_back(member, power=power, change=change)

    async def _dies_after_answer(self) -> None:
        """What the answer says must outlive the master, though nothing has come to it since."""
        member, moments = self.master, self._moments
        code = self._awaited = moments.choice(sorted(self._heard))
        power = moments.chance(0.5) and self._may_lose_power()
        change = self._may_change(member, power=power)
        self._dies_now.clear()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._dies_now.wait(), _DEADLINE_S)
        if power:
            member.machine.power_off()
        else:
            member.machine.kill()
        what = f"{'power' if power else 'kill'} of the master after an answer to {RequestCode(code).name}"
        self._marks[what] += 1
        self._note(f"{what}, {'change' if change else 'no change'}")
        await asyncio.sleep(moments.choice((0.0, 0.5, 6.0)))
        await self._come_back(member, power=power, change=change)

    async def _dies_without_room(self) -> None:
        """Somebody else takes all the room that is left on the master's disk; after a while it takes nothing, and what
        it is asked for then is refused. It is killed, or its power goes, and then there is room again."""
        member, full = self.master, self._full
        store, disk = self._store_of(member), member.machine.disk
        power = full.chance(0.3) and self._may_lose_power()
        change = self._may_change(member, power=power)
        disk.other_bytes += disk.usage(STORE).free
        await self._until(lambda: store.admission.refusal() is not None, _DEADLINE_S)
        self._marks["the master's disk is full"] += 1
        self._note(f"full disk of the master, {store.admission.refusal()}, {'change' if change else 'no change'}")
        await asyncio.sleep(full.choice((0.1, 0.5, 2.0)) * full.uniform(0.5, 1.5))
        if power:
            member.machine.power_off()
        else:
            member.machine.kill()
        await asyncio.sleep(full.choice((0.0, 0.5, 6.0)))
        await self._come_back(member, power=power, change=change)

    async def _table_is_refused(self) -> None:
        """The disk refuses one write of a table of the master, which is killed some time after it."""
        member, rng = self.master, self._refused
        name = rng.choice(self._tables)
        refusal = OneRefusal(name, rng.choice((errno.ENOSPC, errno.EIO)))
        member.machine.disk.faults = refusal
        await self._until(lambda: refusal.has_happened, _DEADLINE_S)
        member.machine.disk.faults = nothing_fails
        await asyncio.sleep(rng.choice((0.1, 1.5, 6.0)) * rng.uniform(0.5, 1.5))
        self._marks[f"a write of {name} was {'refused' if refusal.has_happened else 'awaited in vain'}"] += 1
        self._note(f"a write of {name} was refused: {refusal.has_happened}; kill")
        member.machine.kill()
        await asyncio.sleep(rng.choice((0.0, 0.5)))
        await self._come_back(member, power=False, change=False)

    @staticmethod
    def _store_of(member: Member) -> MessageStore:
        assert member.running is not None
        return member.running.store

    def _may_change(self, member: Member, *, power: bool) -> bool:
        """Shall the slave become master?"""
        if self._acts is not None:
            return False
        change = member.is_master and len(self.members) > 1 and self._rng.chance(0.6)
        if power and member.is_master and not self._is_sync:
            return True  # what it had not flushed is gone: nothing is promised of such a master
        return change

    async def _disk_fails(self, member: Member) -> None:
        rng, is_master = self._rng, member.is_master
        spared: tuple[str, ...] = rng.choice(((), (), (), ("commitlog", "checkpoint"), ("consumequeue", "index")))
        mix = FaultMix(rng.fork(f"faults {self._world.loop.time()}"), spared)
        self._note(f"the {'master' if is_master else 'slave'}'s disk fails")
        member.machine.disk.faults = mix
        await self._until(lambda: bool(member.failed), rng.choice((0.3, 2.0, 8.0)))
        self._marks[f"disk of the {'master' if is_master else 'slave'} fails"] += 1
        if member.failed or rng.chance(0.4):
            await self._end_on_failing_disk(member, mix)
        else:
            member.machine.disk.faults = nothing_fails
            await self._until(lambda: bool(member.failed), _NOTICED_S)
            if member.failed:  # that was on its way
                await self._end_on_failing_disk(member, mix)
        self._marks.update(f"failed: {kind}" for kind in mix.seen)
        self._note(f"  {dict(mix.seen)}")

    async def _end_on_failing_disk(self, member: Member, mix: FaultMix) -> None:
        rng = self._rng
        self._marks["stopped itself" if member.failed else "killed while its disk failed"] += 1
        self._note(f"  ends, {member.failed}")
        if member.failed and rng.chance(0.6):
            await member.stop_failed()
        else:
            member.machine.kill()
        power = rng.chance(0.4) and self._may_lose_power()
        if power:
            member.machine.disk.cut_power()
            self._marks["power lost after a failure"] += 1
        change = self._may_change(member, power=power)
        await asyncio.sleep(rng.choice((0.0, 0.5, 6.0)))
        if not change and rng.chance(0.5):
            await self._start_on_failing_disk(member, mix)
        await self._come_back(member, power=power, change=change)

    async def _start_on_failing_disk(self, member: Member, mix: FaultMix) -> None:
        """A start that the disk may refuse; one that it does not refuse is killed again."""
        try:
            await self._start(member, is_master=member.is_master, faults=mix)
        except (OSError, MaxQError) as error:
            self._marks["start refused"] += 1
            self._note(f"  start refused: {error!r}")
            return
        await self._until(lambda: bool(member.failed), 1.0)
        await member.stop_failed()

    async def _come_back(self, member: Member, *, power: bool, change: bool) -> None:
        if change:
            await self._change_master(member)
            return
        is_master = member.is_master
        if self._acts is not None and is_master and not power and self._acts.chance(0.7):
            await self._stand_in(member, self._acts)
        await self._start(member, is_master=is_master)
        if self._acts is not None:
            self._acting = None
            await self._until(lambda: _pops(self.master), _READY_S)
            assert _pops(self.master), "the master is back, and does not pop"
        if power and is_master and len(self.members) > 1:  # its slave may have what it has lost
            await self._start_anew(self._other(member))

    async def _stand_in(self, dead: Member, rng: SimRng) -> None:
        """The slave serves for a while."""
        slave = self._other(dead)
        await self._until(lambda: _pops(slave), _READY_S)
        assert _pops(slave), "the slave does not act"
        self._acting = slave
        self._marks["the slave acted"] += 1
        self._note("the slave acts")
        await asyncio.sleep(rng.choice((0.5, 3.0, 12.0)) * rng.uniform(0.5, 1.5))
        self._note("the master comes back")

    async def _until(self, happened: Callable[[], bool], seconds: float) -> None:
        end = self._world.loop.time() + seconds
        while not happened() and self._world.loop.time() < end:  # noqa: ASYNC110 virtual time
            await asyncio.sleep(0.01)

    async def _be_equal(self) -> None:
        """Until the slave has what the master has now, in the log and of topics."""
        if len(self.members) == 1:
            return
        master, slave = self.master.running, self._other(self.master).running
        assert master is not None and slave is not None
        end, topics = master.store.max_physical_offset, set(master.topics.topic_config_table)
        while slave.store.max_physical_offset < end or not topics <= slave.topics.topic_config_table.keys():  # noqa: ASYNC110
            await asyncio.sleep(0.05)

    async def _change_master(self, dead: Member) -> None:
        """What the slave holds is what counts from now on; the old master gets a copy of it."""
        heir = self._other(dead)
        self._marks["change of master"] += 1
        await heir.stop()
        await self._start(heir, is_master=True)
        await self._start_anew(dead)

    async def _start_anew(self, slave: Member) -> None:
        await slave.stop()
        slave.machine.lose_disk()
        await self._start(slave, is_master=False)

    def _note(self, text: str) -> None:
        self._history.append(f"{self._world.loop.time() - 1000:9.3f} {text}")


def _pops(member: Member) -> bool:
    return member.running is not None and member.running.popping.service.not_ready() is None
