"""One seed, one story of whole servers: a name server, a SYNC_MASTER broker, two slave brokers, producers, consumers,
each on a machine of its own, all of them the shipped code. Some links between the brokers are slow.

The master may be lost with its disk, the moment that a producer hears that his message is stored: the slave with the
longer log takes its place then. That is tried only while both slaves have what the master has; what they have alone is
not promised. The master may also come back with an empty disk for a while, beside slaves that are full.

Somebody makes mistakes with settings, too: another broker is started with the name and id of one that is there, and
must not serve; one of another name is made a slave of this master, and must take nothing from it.

At the end: what a producer was told is SEND_OK is in the master's log and has reached the consumers, whoever served
them; slaves' logs are beginnings of the master's; the stores are sound.
"""

import asyncio
import itertools
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import PurePath
from typing import ClassVar, Final

from maxq.broker.controller import BrokerController
from maxq.client.client_config import ClientEnvironment, ProducerConfig, PushConsumerConfig
from maxq.client.consumer.push_consumer import PushConsumer
from maxq.client.producer.producer import Producer
from maxq.client.results.consume_result import ConsumeContext, ConsumeResult
from maxq.client.results.send_result import SendStatus
from maxq.errors import ConfigError, MaxQError
from maxq.protocol.body.data_version import DataVersion
from maxq.protocol.enums import ConsumeFromWhere
from maxq.protocol.message.message import Message, MessageExt
from maxq.store.tools.check import StoreCheck
from maxq.store.tools.store_files import StoreFiles
from maxq.testing.sim_machine import MachineDiedError, SimMachine
from maxq.testing.sim_network import LinkSettings
from maxq.testing.sim_rng import SimRng
from maxq.testing.simulation import SimWorld, run_simulation
from tests.simulation.disk_faults import FaultMix
from tests.simulation.servers.sim_server import CLIENT, NAMESRV, NAMESRV_ADDRESS, STORE, TOPIC, FallibleServer

BROKERS: Final = ("10.0.0.1", "10.0.0.2", "10.0.0.3")
_STRAY: Final = "10.0.0.4"
#: Registrations, rebalances, dead channels and reconnects all have had their turn by then.
REST_S: Final = 400.0
_TABLES_S: Final = 15.0  # within that a slave asks its master for its tables
_KNOWN_S: Final = 5.0  # within that name servers know who has started


class Server(FallibleServer):
    """A broker, of which 0 is the first master, or the name server.

    Attributes:
        broker_id: 0 for who is master now.
        more: settings of its broker, beside those that follow from that.
        on_boot: called when the machine has its disk, and before its broker starts.
    """

    def __init__(self, world: SimWorld, address: str, rng: SimRng, number: int, flush: str) -> None:
        super().__init__(world, address, rng, number)
        self.broker_id = number
        self.more: dict[str, str] = {}
        self._flush = flush
        self.on_boot: Callable[[Server], None] = lambda server: None

    def _boot(self) -> None:
        super()._boot()
        self.on_boot(self)

    @property
    def is_master(self) -> bool:
        return self.broker_id == 0

    @property
    def name(self) -> str:
        if self.number < 0:
            return "name server"
        return f"{'master' if self.is_master else 'slave'} {self.number}"

    def broker_properties(self) -> dict[str, str]:
        """Master or slave."""
        return {
            "brokerId": str(self.broker_id), "brokerRole": "SYNC_MASTER" if self.is_master else "SLAVE",
            "brokerIP2": self.machine.address, "haListenPort": "10912", "flushDiskType": self._flush,
            "haFullCopy": "true", **self.more,
        }  # fmt: skip


class HaClusterStory:
    """Attributes:
    marks: how often each kind of thing happened.
    history: what happened, for whoever reads a failure.
    """

    FAILS: ClassVar[bool] = False  # disks fail, too

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.marks: Counter[str] = Counter()
        self.history: list[str] = []
        self._acknowledged: set[bytes] = set()
        self._consumed: set[bytes] = set()
        self._places: dict[bytes, tuple[int, int]] = {}  # queue id and offset of what was acknowledged
        self._seen: dict[tuple[int, int], set[bytes]] = {}  # and what was consumed there
        self._master_lost_power = False
        self._sending = True
        self._heard = asyncio.Event()  # a message is said to be stored
        self._masters = 0  # that were lost
        self._told: set[bytes] = set()  # by the master there is, of messages since its last boot

    def run(self) -> None:
        """Tell it. AssertionError and whatever the code under test raises are failures."""
        run_simulation(self._main, seed=self.seed, time_limit_s=7200, step_limit=20_000_000)

    async def _main(self, world: SimWorld) -> None:
        rng = SimRng(self.seed).fork("cluster")
        world.network.default_link = LinkSettings(delay_ms=(0.1, 10), chunk_bytes=(1, 4000), whole=0.4, loss=0.005)
        flush = rng.choice(("SYNC_FLUSH", "ASYNC_FLUSH"))
        self.history.append(flush)
        servers = [Server(world, NAMESRV, rng.fork("ns"), -1, flush)]
        servers += [Server(world, address, rng.fork(address), n, flush) for n, address in enumerate(BROKERS)]
        slow = rng.fork("slow")
        if slow.chance(0.4):
            self.history.append("the links of the brokers are slow")
            for one, other in itertools.combinations(BROKERS, 2):
                world.network.set_link(one, other, LinkSettings(delay_ms=(20, 300)))
        for server in servers:
            if flush == "SYNC_FLUSH":
                server.on_boot = self._check_disk
            await server.start()
        client = SimMachine(world.loop, CLIENT, rng.fork("client"))
        client.boot()
        producers = [client.spawn(self._produce(world, client, n, rng.fork(f"p{n}"))) for n in range(2)]
        consumer = await client.call(lambda: self._consume(client, rng.fork("consumer")))
        await asyncio.sleep(3)
        moments, mistakes = rng.fork("moments"), rng.fork("mistakes")
        for _ in range(rng.between(2, 8)):
            if mistakes.chance(0.2):
                await self._start_by_mistake(world, servers[1:], flush, mistakes)
            if not moments.chance(0.25) or not await self._lose_master(world, servers[1:], moments):
                await self._fault(world, servers, flush, rng)
            await asyncio.sleep(rng.choice((0.1, 2.0, 15.0)) * rng.uniform(0.5, 1.5))
        await self._rest(world, servers)
        self._sending = False
        for producer in producers:
            await asyncio.wait_for(producer, 120)
        await self._drain(world)
        await client.call(consumer.shutdown)
        await self._check(servers)

    # -- clients --

    async def _produce(self, world: SimWorld, client: SimMachine, number: int, rng: SimRng) -> None:
        config = ProducerConfig(
            namesrv_addr=NAMESRV_ADDRESS, producer_group=f"P{number}", instance_name=f"p{number}",
            default_topic_queue_nums=2,
        )  # fmt: skip
        environment = ClientEnvironment(client.clock, rng, client.disk, CLIENT, number + 1, PurePath("/home"))
        async with Producer(config, environment) as producer:
            count = 0
            while self._sending:
                count += 1
                body = f"{number}-{count} ".encode() * rng.choice((1, 5, 100))
                masters = self._masters
                try:
                    result = await asyncio.wait_for(producer.send(Message(TOPIC, body)), 120)
                except MaxQError:
                    self.marks["send failed"] += 1
                    await asyncio.sleep(0.2)
                    continue
                self.marks[f"answer: {result.send_status.name}"] += 1
                if result.send_status is SendStatus.SEND_OK:
                    self._acknowledged.add(body)
                    self._places[body] = (result.message_queue.queue_id, result.queue_offset)
                    if masters == self._masters:
                        self._told.add(body)
                    self._heard.set()
                await asyncio.sleep(rng.uniform(0, 0.3))

    async def _consume(self, client: SimMachine, rng: SimRng) -> PushConsumer:
        config = PushConsumerConfig(
            namesrv_addr=NAMESRV_ADDRESS, consumer_group="G", instance_name="c",
            consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        )  # fmt: skip
        environment = ClientEnvironment(client.clock, rng, client.disk, CLIENT, 9, PurePath("/home"))
        consumer = PushConsumer(config, environment, self._listen)
        consumer.subscribe(TOPIC)
        await consumer.start()
        return consumer

    async def _listen(self, messages: list[MessageExt], context: ConsumeContext) -> ConsumeResult | None:
        for message in messages:
            self._consumed.add(message.body)
            if message.topic == TOPIC:
                self._seen.setdefault((message.queue_id, message.queue_offset), set()).add(message.body)
        self.marks["consumed"] += len(messages)
        return None

    async def _drain(self, world: SimWorld) -> None:
        end = world.loop.time() + REST_S
        while not self._acknowledged <= self._consumed and world.loop.time() < end:  # noqa: ASYNC110
            await asyncio.sleep(1)
        missing = self._acknowledged - self._consumed
        covered = {body for body in missing if self._seen.get(self._places[body], set()) - self._acknowledged}
        if covered and self._masters:
            self.marks["a message has the place of one that was read and lost with its master"] += len(covered)
            missing -= covered
        assert not missing, f"{len(missing)} acknowledged messages were never consumed: {sorted(missing)[:5]}"

    # -- faults --

    async def _lose_master(self, world: SimWorld, servers: list[Server], rng: SimRng) -> bool:
        """Its disk is gone: a slave takes its place, and its machine begins again as a slave with an empty disk. False:
        a slave lacks something, and nothing has happened."""
        master = next(server for server in servers if server.is_master)
        slaves = [server for server in servers if server is not master]
        if master.has_ended or not await self._are_equal(servers):
            return False
        self._heard.clear()
        try:
            await asyncio.wait_for(self._heard.wait(), 20)
        except TimeoutError:
            return False
        if any(slave.has_ended for slave in slaves):
            return False
        master.machine.power_off()
        master.machine.lose_disk()
        self._masters += 1
        self._told.clear()
        if rng.fork(f"empty {len(self.history)}").chance(0.5):
            await self._lead_with_nothing(master, slaves)
        heir = max(slaves, key=_end_of)
        self.marks["the master is lost, a slave takes its place"] += 1
        self.history.append(f"{world.loop.time() - 1000:9.3f} {master.name} is lost, {heir.name} takes its place")
        await asyncio.sleep(rng.choice((0.0, 3.0)))
        for slave in slaves:
            await slave.stop()
            slave.machine.kill()
        master.broker_id, heir.broker_id = heir.broker_id, 0
        for server in (heir, *(one for one in servers if one is not heir)):
            await server.start()
        return True

    async def _lead_with_nothing(self, master: Server, slaves: list[Server]) -> None:
        """The master starts with an empty disk, and is lost again. Its slaves have nothing to learn from it."""
        self.marks["the master comes back with an empty disk"] += 1
        self.history.append(f"          {master.name} leads with an empty disk")
        before = [str(_topics_of(slave)) for slave in slaves]
        await master.start()
        await asyncio.sleep(_TABLES_S)
        for slave, version in zip(slaves, before, strict=True):
            assert str(_topics_of(slave)) == version, f"{slave.name} has the topics of a master that begins anew"
        master.machine.power_off()
        master.machine.lose_disk()

    async def _start_by_mistake(self, world: SimWorld, servers: list[Server], flush: str, rng: SimRng) -> None:
        """A broker that nobody wants, on a machine of its own."""
        await asyncio.sleep(_KNOWN_S)
        other, is_foreign = rng.choice(servers), rng.chance(0.4)
        stray = Server(world, _STRAY, rng.fork(f"stray {world.loop.time()}"), len(servers), flush)
        stray.broker_id = other.broker_id
        if is_foreign:
            other = next(server for server in servers if server.is_master)
            stray.broker_id = 1
            stray.more = {"brokerName": "broker-b", "haMasterAddress": f"{other.machine.address}:10912"}
        elif stray.is_master:
            stray.more = {"brokerRole": "ASYNC_MASTER"}
        what = f"a slave of another name at {other.name}" if is_foreign else f"another {other.name.split(' ')[0]}"
        self.marks[f"started by mistake: {what.rstrip(' 0123456789')}"] += 1
        self.history.append(f"{world.loop.time() - 1000:9.3f} {what} is started by mistake")
        try:
            await stray.start()
        except ConfigError:
            assert not is_foreign, f"{what} does not start"
            return
        assert is_foreign, f"{what} was started beside {other.name}: it has the same name and id"
        await asyncio.sleep(_TABLES_S)
        end = _end_of(stray)
        assert end == 0, f"{what} has {end} bytes of its log"
        await stray.stop()
        stray.machine.kill()

    @staticmethod
    async def _are_equal(servers: list[Server]) -> bool:
        """Do all have what the longest has now, before long?"""
        end = max(map(_end_of, servers))
        with suppress(TimeoutError):
            async with asyncio.timeout(10):
                while min(map(_end_of, servers)) < end:  # noqa: ASYNC110 simulated time
                    await asyncio.sleep(0.01)
                return True
        return False

    async def _fault(self, world: SimWorld, servers: list[Server], flush: str, rng: SimRng) -> None:
        server = rng.choice(servers)
        kind = rng.choice(("kill", "kill", "power", "partition", "partition", "reset", "pause"))
        if self.FAILS and rng.chance(0.5):
            kind = "disk fails"
            if rng.chance(0.5):  # the master's is the one that matters
                server = next(one for one in servers if one.number >= 0 and one.is_master)
        if kind == "power" and server.is_master and flush == "ASYNC_FLUSH":
            kind = "kill"  # nothing is promised then
        seconds = rng.choice((0.2, 3.0, 40.0)) * rng.uniform(0.5, 1.5)
        self.marks[f"fault: {kind} of {server.name.split(' ')[0]}"] += 1
        self.history.append(f"{world.loop.time() - 1000:9.3f} {kind} of {server.name} for {seconds:.1f} s")
        machine = server.machine
        if kind == "partition":
            other = rng.choice([*(other.machine.address for other in servers if other is not server), CLIENT])
            world.network.partition(machine.address, other, both_ways=rng.chance(0.6))
            await asyncio.sleep(seconds)
            world.network.heal()
        elif kind == "reset":
            world.network.reset(machine.address)
        elif kind == "pause":
            await machine.pause(seconds)
        elif kind == "disk fails":
            await self._fail_disk(server, seconds, rng, may_lose_power=not server.is_master or flush == "SYNC_FLUSH")
        else:
            if kind == "kill":
                machine.kill()
            else:
                machine.power_off()
                self._master_lost_power |= server.is_master
            await asyncio.sleep(seconds)
            await server.start()

    async def _fail_disk(self, server: Server, seconds: float, rng: SimRng, *, may_lose_power: bool) -> None:
        disk_rng = rng.fork(f"disk {len(self.history)}")
        mix, lost = FaultMix(disk_rng), len(server.machine.data_lost_ms)
        if disk_rng.fork("sync").chance(0.3):  # the call whose failure costs most
            server.machine.disk.fail_flush("*commitlog/*")
        if await server.live_on_failing_disk(mix, seconds, rng, may_lose_power=may_lose_power):
            self.marks["ended by an error of the disk"] += 1
            self.history.append(f"          {server.failed}")
        if not server.machine.is_up:
            await server.start()
        self._master_lost_power |= server.is_master and len(server.machine.data_lost_ms) > lost
        self.marks.update(f"failed: {kind}" for kind in mix.seen)
        self.history.append(f"          {dict(mix.seen)}")

    async def _rest(self, world: SimWorld, servers: list[Server]) -> None:
        world.network.heal()
        for server in servers:
            if not server.machine.is_up:
                await server.start()
        for _ in range(6):  # a link that is dead at one end is given up after 20 s
            if await self._are_equal(servers[1:]):
                break
        await asyncio.sleep(15 if self.FAILS else 5)
        for server in servers:
            assert self.FAILS or not server.failed, f"failed on a disk that works: {server.failed}"
            if server.failed:  # what a disk did before may show only with a later sync
                self.marks["ended by an error of the disk, later"] += 1
                server.machine.kill()
                await server.start()
                await asyncio.sleep(30)

    # -- rules --

    def _check_disk(self, server: Server) -> None:
        """With SYNC_FLUSH what a master has acknowledged is on its own disk, whatever its slaves have."""
        if server.is_master:
            disk = server.machine.disk
            log = b"".join(disk.read(PurePath(path)) for path in disk.paths("*commitlog/*"))
            for body in self._told:
                assert body in log, f"{body[:20]!r} was acknowledged with SYNC_FLUSH and is not on the master's disk"
            self._told.clear()

    async def _check(self, servers: list[Server]) -> None:
        master, *slaves = sorted(servers[1:], key=lambda server: server.broker_id)
        with suppress(TimeoutError):  # what was acknowledged last has one slave's word: the other is a moment behind
            async with asyncio.timeout(5):
                while len({_end_of(server) for server in (master, *slaves)}) > 1:  # noqa: ASYNC110 simulated time
                    await asyncio.sleep(0.01)
        logs = []
        for server in (master, *slaves):
            broker = server.running
            assert isinstance(broker, BrokerController), f"{server.name} runs"
            store = broker.store
            start, end = store.min_physical_offset, store.max_physical_offset
            parts = [bytes(store.log_bytes(at, 65536) or b"") for at in range(start - start % 65536, end, 65536)]
            logs.append((start, b"".join(parts)))
        for server in reversed(servers):
            try:
                await server.stop()
            except MachineDiedError as error:
                raise AssertionError(f"{server.name} died by itself") from error
        (_, whole), *copies = logs
        for body in self._acknowledged:
            assert body in whole, f"{body[:20]!r} was acknowledged and is not in the master's log"
        for server, (start, copy) in zip(slaves, copies, strict=True):
            joined = whole[start : start + len(copy)] == copy and start + len(copy) == len(whole)
            assert joined or self._master_lost_power, (
                f"{server.name} has bytes {start} … {start + len(copy)} of {len(whole)}, or other ones"
            )
            self.marks["slave equal at the end" if joined else "slave apart: the master lost its end"] += 1
        for server in (master, *slaves):
            found = StoreCheck(StoreFiles(server.machine.disk, STORE, hash_slots=100, index_entries=400)).run()
            assert not found.faults, "\n".join([f"the offline check of the {server.name} finds:", *found.lines()])


class FaultyHaClusterStory(HaClusterStory):
    """The same with disks of which every call can fail."""

    FAILS = True


def _topics_of(server: Server) -> DataVersion:
    """The version of its table of topics."""
    assert isinstance(server.running, BrokerController), f"{server.name} runs"
    return server.running.topics.data_version


def _end_of(server: Server) -> int:
    broker = server.running
    return broker.store.max_physical_offset if isinstance(broker, BrokerController) else -1
