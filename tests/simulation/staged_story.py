"""One seed, one story of exactly once: batches are staged, decided and delivered while brokers and their driver die.

Two brokers on machines of their own, a SYNC_MASTER and its slave, and a driver that speaks the four requests of
`maxq.pipeline.sink.sink_commit`. Processes are killed, and machines lose their power, within a disk operation: at any
write of the path. The slave becomes master, and the master its slave, with what either holds. A driver that dies runs
its batch again with other rows; one that lives goes on where it was. Others write to the same topic all the while.

At the end every batch is in the log once and whole, as the run that was decided first had it, and no other run is.
"""

import asyncio
import hashlib
import itertools
import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import PurePath
from typing import Any, Final

from maxq.broker.controller import BrokerController
from maxq.codes import RequestCode, ResponseCode
from maxq.config import BrokerSettings
from maxq.config.host import broker_on
from maxq.config.netty_client_config import NettyClientConfig
from maxq.errors import MaxQError
from maxq.machine import system_host
from maxq.protocol.header.send import SendMessageRequestHeader
from maxq.protocol.message import Message, encode_batch
from maxq.protocol.remoting_command import RemotingCommand
from maxq.remoting.client import RemotingClient
from maxq.store.tools.log_walk import LogWalk
from maxq.store.tools.message_json import messages_of
from maxq.store.tools.store_files import StoreFiles
from maxq.testing.sim_machine import SimMachine
from maxq.testing.sim_network import LinkSettings
from maxq.testing.sim_rng import SimRng
from maxq.testing.simulation import SimWorld, run_simulation

ADDRESSES: Final = ("10.0.0.1", "10.0.0.2")
DRIVER: Final = "10.0.1.1"
STORE: Final = PurePath("/store")
TOPIC: Final = "Exactly"
APPLICATION: Final = "application"
LEAST_BATCHES: Final = 2
QUEUES: Final = 2
TIMEOUT_MS: Final = 4_000
PATIENCE_S: Final = 600.0


class Member:
    """A machine with a broker that is master or slave."""

    def __init__(self, world: SimWorld, address: str, rng: SimRng, flush: str) -> None:
        self.machine = SimMachine(world.loop, address, rng)
        self.is_master = False
        self._flush = flush
        self._rng = rng
        self.running: BrokerController | None = None

    async def start(self, *, is_master: bool, other: str) -> None:
        self.is_master = is_master
        self.machine.boot()
        self.running = await self.machine.call(lambda: self._start(other))

    async def _start(self, other: str) -> BrokerController:
        address = self.machine.address
        properties = {
            "brokerName": "broker-a", "brokerId": "0" if self.is_master else "1",
            "brokerRole": "SYNC_MASTER" if self.is_master else "SLAVE", "brokerIP1": address, "brokerIP2": address,
            "bindAddress": address, "listenPort": "10911", "haListenPort": "10912", "haMasterAddress": f"{other}:10912",
            "storePathRootDir": str(STORE), "flushDiskType": self._flush, "mappedFileSizeCommitLog": "65536",
            "mappedFileSizeConsumeQueue": "2000", "maxHashSlotNum": "100", "maxIndexNum": "400",
            "slaveTimeout": "2000", "haFullCopy": "true",
        }  # fmt: skip
        settings, _ = BrokerSettings.from_properties(properties, source="simulation")
        machine = self.machine
        broker = BrokerController(
            broker_on(settings, system_host()), disk=machine.disk, clock=machine.clock, rng=self._rng
        )
        await broker.start()
        return broker

    async def stop(self) -> None:
        running, self.running = self.running, None
        if running is not None and self.machine.is_up:
            await self.machine.call(running.shutdown)
            self.machine.kill()


class StagedStory:
    """Attributes:
    marks: how often each kind of thing happened.
    history: what happened, for whoever reads a failure.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.marks: Counter[str] = Counter()
        self.history: list[str] = []
        self._rng = SimRng(seed).fork("staged")
        self._flush = self._rng.choice(("SYNC_FLUSH", "ASYNC_FLUSH"))
        self._members: list[Member] = []
        self._staged: dict[str, set[bytes]] = {}  # attempt → what it staged
        self._decided: dict[int, list[str]] = {}  # batch → attempts, as the coordinator answered first
        self._others = 0
        self._is_quiet = False

    def run(self) -> None:
        """Tell it. AssertionError and whatever the code under test raises are failures."""
        run_simulation(self._main, seed=self.seed, time_limit_s=7200, step_limit=20_000_000)

    async def _main(self, world: SimWorld) -> None:
        world.network.default_link = LinkSettings(delay_ms=(0.1, 5), chunk_bytes=(1, 4000), whole=0.5, loss=0.002)
        self.history.append(self._flush)
        self._members = [Member(world, address, self._rng.fork(address), self._flush) for address in ADDRESSES]
        await self._start(self._members[0], is_master=True)
        await self._start(self._members[1], is_master=False)
        machine = SimMachine(world.loop, DRIVER, self._rng.fork("driver"))
        machine.boot()
        driver = machine.spawn(self._drive(machine))
        noise = machine.spawn(self._disturb(machine))
        async with asyncio.timeout(PATIENCE_S):
            for _ in range(self._rng.between(1, 3)):
                await asyncio.sleep(self._rng.uniform(0, 0.3))
                await self._trouble()
            self._is_quiet = True
            await driver
        noise.cancel()
        await asyncio.sleep(0.1)
        for member in self._members:
            await member.stop()
        self._check()

    async def _start(self, member: Member, *, is_master: bool) -> None:
        other = next(one for one in self._members if one is not member)
        await member.start(is_master=is_master, other=other.machine.address)

    # -- what goes wrong --

    async def _trouble(self) -> None:
        """A broker dies within one of its next disk operations; it comes back, or the other takes its place."""
        await self._be_equal()
        rng, loop = self._rng, asyncio.get_running_loop()
        member = rng.choice(self._members)
        machine, is_master = member.machine, member.is_master
        power, change = rng.chance(0.5), is_master and rng.chance(0.6)
        if power and is_master and self._flush == "ASYNC_FLUSH":
            change = True  # what it had not flushed is gone: nothing is promised of such a master
        machine.disk.cut_power_after(rng.between(1, 120), process_only=not power)
        deadline = loop.time() + 20
        while machine.is_up and loop.time() < deadline:  # noqa: ASYNC110 virtual time
            await asyncio.sleep(0.01)
        assert not machine.is_up, "a broker that is written to has disk operations"
        self.marks[f"{'power' if power else 'kill'} of the {'master' if is_master else 'slave'}"] += 1
        self.marks[f"within {machine.disk.lost_at.partition(' ')[0]}"] += 1
        ending = "change" if change else "no change"
        self.history.append(f"{'power' if power else 'kill'}, master: {is_master}, {ending}, {machine.disk.lost_at}")
        await asyncio.sleep(rng.choice((0.0, 0.5, 6.0)))
        if change:
            await self._change_master(member)
            return
        await self._start(member, is_master=is_master)
        if power and is_master:  # its slave may have what it has lost
            await self._start_anew(next(one for one in self._members if one is not member))

    async def _be_equal(self) -> None:
        """Until the slave has what the master has now: of two that fail together nothing is promised."""
        master, slave = sorted(self._members, key=lambda member: not member.is_master)
        assert master.running is not None and slave.running is not None
        end = master.running.store.max_physical_offset
        while slave.running.store.max_physical_offset < end:  # noqa: ASYNC110 virtual time
            await asyncio.sleep(0.05)

    async def _change_master(self, dead: Member) -> None:
        """What the slave holds is what counts from now on; the old master gets a copy of it."""
        heir = next(one for one in self._members if one is not dead)
        self.marks["change of master"] += 1
        await heir.stop()
        await self._start(heir, is_master=True)
        await self._start_anew(dead)

    async def _start_anew(self, slave: Member) -> None:
        await slave.stop()
        slave.machine.lose_disk()
        await self._start(slave, is_master=False)

    # -- the driver --

    async def _drive(self, machine: SimMachine) -> None:
        rng = self._rng.fork("drive")
        async with self._client(machine) as client:
            for batch in itertools.count():
                if self._is_quiet and batch >= LEAST_BATCHES:
                    return
                while not await self._run_batch(client, batch, rng):
                    self.marks["the driver died"] += 1
                self.marks["batches"] += 1

    async def _run_batch(self, client: RemotingClient, batch: int, rng: SimRng) -> bool:
        """False: the driver dies somewhere in between, and the batch is to run again, with other rows."""
        dies = rng.between(0, 15)  # at which of its five steps; mostly at none
        parts = []
        for task in range(2):
            parts.append(await self._stage(client, batch, rng))
            if dies == task:
                return False
        ext = {"application": APPLICATION, "batch": str(batch)}
        answer = await self._ask(client, RequestCode.MAXQ_STAGED_DECISION, {"application": APPLICATION})
        assert int(answer.ext.get("batch", -1)) in (batch - 1, batch)
        ours = {"brokers": {"broker-a": {"runs": [run for part in parts for run in part]}}}
        answer = await self._ask(client, RequestCode.MAXQ_DECIDE_STAGED, ext, json.dumps(ours).encode())
        found = json.loads(answer.body_bytes)
        runs = found["brokers"]["broker-a"]["runs"]
        if found != ours:
            self.marks["decided before"] += 1
        attempts = sorted({run[0] for run in runs})
        assert self._decided.setdefault(batch, attempts) == attempts, f"batch {batch} is decided another time"
        if dies == 2:
            return False
        body = json.dumps({"runs": runs}).encode()
        while True:
            answer = await self._ask(client, RequestCode.MAXQ_DELIVER_STAGED, ext, body)
            assert answer.ext["lost"] == "0", f"{answer.ext['lost']} messages of batch {batch} are lost"
            if answer.ext["done"] == "true":
                return dies != 3
            if dies == 4:
                return False

    async def _stage(self, client: RemotingClient, batch: int, rng: SimRng) -> list[list[Any]]:
        """One attempt of a task: requests in their order; what was not answered goes again."""
        attempt = rng.bytes(6).hex()
        mine = self._staged[attempt] = set()
        runs: list[list[Any]] = []
        for sequence in range(rng.between(1, 4)):
            name, count = f"{batch}/{attempt}/{sequence}", rng.between(1, 9)
            bodies = [f"{name}/{n} ".encode() * rng.choice((1, 20)) for n in range(count)]
            mine.update(bodies)
            messages = [Message(TOPIC, body, {"UNIQ_KEY": rng.bytes(16).hex().upper()}) for body in bodies]
            ext = {
                "topic": TOPIC, "queueId": str(rng.between(0, QUEUES - 1)), "attempt": attempt,
                "sequence": str(sequence), "count": str(len(bodies)), "plain": "true", "bornTimestamp": "1",
                "defaultTopic": "TBW102", "defaultTopicQueueNums": str(QUEUES),
            }  # fmt: skip
            answer = await self._ask(client, RequestCode.MAXQ_STAGE_MESSAGES, ext, encode_batch(messages))
            runs.append([attempt, sequence, int(answer.ext["queueOffset"]), 1])
        return runs

    async def _ask(
        self, client: RemotingClient, code: int, ext: dict[str, str], body: bytes = b""
    ) -> RemotingCommand:
        """Whoever is master now; until it says SUCCESS."""
        while True:
            address = next(one.machine.address for one in self._members if one.is_master)
            try:
                answer = await client.invoke(f"{address}:10911", RemotingCommand(code, ext, body), TIMEOUT_MS)
                if answer.code == ResponseCode.SUCCESS:
                    return answer
                self.marks[f"answer {ResponseCode(answer.code).name}"] += 1
                assert answer.code != ResponseCode.INVALID_PARAMETER, answer.remark
            except MaxQError:
                self.marks["no answer"] += 1
            await asyncio.sleep(0.2)

    async def _disturb(self, machine: SimMachine) -> None:
        """Ordinary messages between those of the batches."""
        rng = self._rng.fork("others")
        async with self._client(machine) as client:
            while True:
                header = SendMessageRequestHeader("PG", TOPIC, "TBW102", QUEUES, 0, 0, 1, 0, "")
                command = (RequestCode.SEND_MESSAGE_V2, header.encode_v2(), b"other %d" % self._others)
                self._others += 1
                await self._ask(client, *command)
                await asyncio.sleep(rng.uniform(0, 0.1))

    @asynccontextmanager
    async def _client(self, machine: SimMachine) -> AsyncIterator[RemotingClient]:
        client = RemotingClient(NettyClientConfig(), clock=machine.clock, rng=self._rng.fork("client"))
        try:
            yield client
        finally:
            await client.close()

    # -- rules --

    def _check(self) -> None:
        master = next(member for member in self._members if member.is_master)
        files = StoreFiles(master.machine.disk, STORE, hash_slots=100, index_entries=400)
        found: Counter[str] = Counter()
        for batch in LogWalk(files).batches():
            found.update(message["bodyMd5"] for message in messages_of(batch) if message["topic"] == TOPIC)
        bodies = {_md5(body): body for staged in self._staged.values() for body in staged}
        twice = sorted(bodies[md5] for md5, count in found.items() if count > 1 and md5 in bodies)
        assert not twice, f"{len(twice)} messages are there twice, such as {twice[0][:40]!r}"
        there = {body for md5, body in bodies.items() if md5 in found}
        wanted = set().union(*(self._staged[attempt] for attempts in self._decided.values() for attempt in attempts))
        assert not wanted - there, f"{len(wanted - there)} messages are missing"
        strange = sorted(there - wanted)
        assert not strange, f"{len(strange)} messages of runs that nobody decided, such as {strange[0][:40]!r}"


def _md5(body: bytes) -> str:
    return hashlib.md5(body, usedforsecurity=False).hexdigest()
