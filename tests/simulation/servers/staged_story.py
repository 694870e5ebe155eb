"""One seed, one story of exactly once: batches are staged, decided and delivered while brokers and their driver die.

A SYNC_MASTER and its slave (broker_pair.py has what happens to them: they die at any write of the path), and a driver
that speaks the four requests of `maxq.pipeline.sink.sink_commit`. A driver that dies runs its batch again with other
rows; one that lives goes on where it was. Others write to the same topic all the while.

At the end every batch is in the log once and whole, as the run that was decided first had it, and no other run is.
"""

import asyncio
import hashlib
import itertools
import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, ClassVar, Final

from maxq.codes import RequestCode, ResponseCode
from maxq.config.netty_client_config import NettyClientConfig
from maxq.errors import MaxQError
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.protocol.header.send import SendMessageRequestHeader
from maxq.protocol.message.message import Message, encode_batch
from maxq.remoting.client import RemotingClient
from maxq.store.tools.log_walk import LogWalk
from maxq.store.tools.message_lines import messages_of
from maxq.store.tools.store_files import StoreFiles
from maxq.testing.sim_machine import SimMachine
from maxq.testing.sim_network import LinkSettings
from maxq.testing.sim_rng import SimRng
from maxq.testing.simulation import SimWorld, run_simulation
from tests.simulation.servers.broker_pair import HASH_SLOTS, INDEX_ENTRIES, STORE, BrokerPair

DRIVER: Final = "10.0.1.1"
TOPIC: Final = "Exactly"
APPLICATION: Final = "application"
LEAST_BATCHES: Final = 2
QUEUES: Final = 2
TIMEOUT_MS: Final = 4_000
PATIENCE_S: Final = 600.0


class StagedStory:
    """Attributes:
    marks: how often each kind of thing happened.
    history: what happened, for whoever reads a failure.
    """

    FAILS: ClassVar[bool] = False  # disks fail, too

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.marks: Counter[str] = Counter()
        self.history: list[str] = []
        self._rng = SimRng(seed).fork("staged")
        self._flush = self._rng.choice(("SYNC_FLUSH", "ASYNC_FLUSH"))
        self._pair: BrokerPair
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
        self._pair = BrokerPair(
            world, self._rng, self.marks, self.history, {"flushDiskType": self._flush}, fails=self.FAILS
        )
        await self._pair.start()
        machine = SimMachine(world.loop, DRIVER, self._rng.fork("driver"))
        machine.boot()
        driver = machine.spawn(self._drive(machine))
        noise = machine.spawn(self._disturb(machine))
        async with asyncio.timeout(PATIENCE_S):
            for _ in range(self._rng.between(1, 3)):
                await asyncio.sleep(self._rng.uniform(0, 0.3))
                await self._pair.trouble()
            self._is_quiet = True
            await driver
        noise.cancel()
        await asyncio.sleep(0.1)
        await self._pair.stop()
        self._check()

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

    async def _ask(self, client: RemotingClient, code: int, ext: dict[str, str], body: bytes = b"") -> RemotingCommand:
        """Whoever is master now; until it says SUCCESS."""
        while True:
            try:
                answer = await client.invoke(self._pair.address, RemotingCommand(code, ext, body), TIMEOUT_MS)
                if answer.code == ResponseCode.SUCCESS:
                    self._pair.heard(code)
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
        disk = self._pair.master.machine.disk
        files = StoreFiles(disk, STORE, hash_slots=HASH_SLOTS, index_entries=INDEX_ENTRIES)
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


class FaultyStagedStory(StagedStory):
    """The same on disks of which every call can fail."""

    FAILS = True


def _md5(body: bytes) -> str:
    return hashlib.md5(body, usedforsecurity=False).hexdigest()
