"""What tortures of several brokers that keep one log have in common (ha_torture.py, dledger_torture.py).

Producers send all the time. Each round lets one thing happen to the cluster, waits until sends are acknowledged again
and all is well, and looks for everything that was acknowledged. What fails tells what is wrong, and where copies of the
stores as they were then are kept.
"""

import argparse
import asyncio
import contextlib
import hashlib
import os
import random
import shutil
import signal
import tempfile
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Protocol, TypeVar

from maxq.client.client_config import ProducerConfig
from maxq.client.producer.producer import Producer
from maxq.client.results.send_result import SendResult, SendStatus
from maxq.errors import MaxQError
from maxq.machine import system_environment
from maxq.protocol.message.message import Message, decode_record
from tests.integration.processes.maxq_process import Process, StoredProcess

TOPICS = ("Torture_A", "Torture_B")
AT_LEAST = 20  # messages that are acknowledged before and after what a round does
_POLL_S = 0.02
_IN_FLIGHT = 6

T = TypeVar("T", bound="ReplicationTorture")
Fault = Callable[[T], Awaitable[None]]


class LogBytes(Protocol):
    """A log read from outside: whole records lie between two physical offsets."""

    @property
    def start(self) -> int: ...

    @property
    def end(self) -> int: ...

    def between(self, start: int, end: int) -> memoryview: ...


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """What a SEND_OK promised."""

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    body_md5: str

    @classmethod
    def of(cls, result: SendResult, body: bytes) -> "Acknowledged":
        queue, place = result.message_queue, int(result.offset_msg_id[16:], 16)
        return cls(queue.topic, queue.queue_id, result.queue_offset, place, hashlib.md5(body).hexdigest())

    @classmethod
    def in_log(cls, log: LogBytes, place: int) -> "Acknowledged":
        """What the record at `place` says.

        Raises:
            MaxQError: there is none.
        """
        record = decode_record(log.between(place, log.end), inflate=True, check_crc=True)
        md5 = hashlib.md5(record.body).hexdigest()
        return cls(record.topic, record.queue_id, record.queue_offset, record.physical_offset, md5)


@dataclass(slots=True)
class Senders:
    """Producers that send until told to stop; `new` has what was acknowledged since it was last taken."""

    name_server: str
    rng: random.Random
    new: list[Acknowledged] = field(default_factory=list)
    acknowledged: int = 0
    others: Counter[str] = field(default_factory=Counter)  # answers that promise less, and errors
    reasons: set[str] = field(default_factory=set)  # what errors said

    @contextlib.asynccontextmanager
    async def sending(self) -> AsyncIterator[None]:
        tasks = [asyncio.ensure_future(self._send(number)) for number in range(2)]
        try:
            yield
            for task in tasks:
                if task.done():
                    task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _send(self, number: int) -> None:
        config = ProducerConfig(
            namesrv_addr=self.name_server,
            producer_group=f"torture_{number}",
            instance_name=f"torture-{number}-{self.rng.random()}",
            retry_times_when_send_failed=0,
            send_msg_timeout=2_500,
        )
        async with Producer(config, system_environment()) as producer:
            await asyncio.gather(*(self._send_on(producer) for _ in range(_IN_FLIGHT)))

    async def _send_on(self, producer: Producer) -> None:
        while True:
            body = self.rng.randbytes(self.rng.choice((10, 300, 1000, 3000, 20_000)))
            message = Message(self.rng.choice(TOPICS), body, {"TAGS": "T", "KEYS": f"k{self.rng.randrange(1000)}"})
            try:
                result = await producer.send(message)
            except (MaxQError, OSError) as error:
                self.others[type(error).__name__] += 1
                self.reasons.add(str(error))
                await asyncio.sleep(_POLL_S)
                continue
            if result.send_status is SendStatus.SEND_OK:
                self.new.append(Acknowledged.of(result, body))
                self.acknowledged += 1
            else:
                self.others[result.send_status.name] += 1


class ReplicationTorture(ABC):
    """One cluster, everything that was acknowledged on it, and what was done to it.

    Attributes:
        faults: what may happen to it; each returns when it is mended.
    """

    PATIENCE_S: ClassVar = 40.0
    faults: "Sequence[Callable[..., Awaitable[None]]]"

    def __init__(self, name_server: str, rng: random.Random) -> None:
        self.rng = rng
        self.senders = Senders(name_server, rng)
        self.acknowledged: list[Acknowledged] = []
        self.happened: Counter[str] = Counter()

    # -- of each kind of cluster --

    @property
    @abstractmethod
    def members(self) -> Sequence[StoredProcess]:
        """Its brokers."""

    @abstractmethod
    async def begin(self) -> None:
        """Start it."""

    @abstractmethod
    async def converge(self) -> None:
        """Nothing is sent: until all have the same."""

    @abstractmethod
    def look(self) -> None:
        """A round is over: what was acknowledged in it (`senders.new`) must be there."""

    @abstractmethod
    async def finish(self) -> None:
        """All end cleanly; everything is compared."""

    @abstractmethod
    async def end(self) -> None:
        """Kill what still runs."""

    @property
    def must_live(self) -> Sequence[Process]:
        """Whose end is a failure while something is waited for."""
        return ()

    async def state(self) -> Iterable[str]:
        """For who reads a failure: a line of each member."""
        return [f"{member.name}: {member.said()}" for member in self.members]

    # -- rounds --

    async def round(self, fault: Callable[..., Awaitable[None]]) -> None:
        """Send, let `fault` happen, wait until the group is healthy again, and check it."""
        self.happened[fault.__name__] += 1
        async with self.senders.sending():
            await self.acknowledges_again()
            await self.pause()
            await fault(self)
            await self.acknowledges_again()
        await self.converge()
        self.look()
        self.acknowledged += self.senders.new
        self.senders.new.clear()

    def said_last(self) -> str:
        """Return some of the answers that senders got."""
        return "\n".join(sorted(self.senders.reasons)[-5:])

    async def pause(self, *, up_to: float = 1.0) -> None:
        await asyncio.sleep(self.rng.uniform(0.1, up_to))

    async def paused(self, member: Process, *, up_to: float) -> None:
        """SIGSTOP for a while."""
        member.pause()
        try:
            await self.pause(up_to=up_to)
        finally:
            member.go_on()

    async def killed_while_starting(self, member: Process) -> None:
        """Twice: as it runs, and as it recovers. It is dead then."""
        await member.kill()
        await member.spawn()
        await asyncio.sleep(self.rng.uniform(0.1, 0.7))
        await member.kill()

    async def acknowledges_again(self) -> None:
        """Until some more messages are acknowledged."""
        wanted = self.senders.acknowledged + AT_LEAST
        await self.until(lambda: self.senders.acknowledged >= wanted, "no sends are acknowledged")

    async def until(self, holds: Callable[[], bool] | Callable[[], Awaitable[bool]], otherwise: str) -> None:
        """Wait for it; it fails if it does not come to hold."""
        end = asyncio.get_running_loop().time() + self.PATIENCE_S
        while True:
            found = holds()
            if found if isinstance(found, bool) else await found:
                return
            for process in self.must_live:
                process.check_alive()
            if asyncio.get_running_loop().time() > end:
                said = "\n".join(await self.state())
                others = f"others: {self.senders.others}\n{self.said_last()}"
                self.claim(False, f"{otherwise} within {self.PATIENCE_S} s; {others}\n{said}")
            await asyncio.sleep(_POLL_S)

    # -- looking --

    def look_in(self, log: LogBytes, name: str, acknowledged: Sequence[Acknowledged]) -> None:
        """Is all of it in the log, byte for byte, where the answer said?"""
        for wanted in acknowledged:
            place = wanted.physical_offset
            inside = log.start <= place < log.end
            self.claim(inside, f"acknowledged, missing on {name}: {wanted}; its log: {log.start}–{log.end}")
            try:
                real = Acknowledged.in_log(log, place)
            except MaxQError as error:
                self.claim(False, f"acknowledged, no record on {name}: {wanted}: {error}")
            self.claim(real == wanted, f"acknowledged as {wanted}, on {name} {real}")

    def claim(self, holds: bool, otherwise: str) -> None:
        """If it does not hold: keep copies of the stores, and say what is wrong and where the copies are."""
        if holds:
            return
        folder = Path(tempfile.mkdtemp(prefix="maxq-replication-torture-failed-"))
        for member in self.members:
            with contextlib.suppress(shutil.Error):  # it lives, and deletes files
                shutil.copytree(member.store, folder / member.name)
        happened = ", ".join(f"{name} {count}×" for name, count in self.happened.items())
        raise AssertionError(f"{otherwise}\nuntil then: {happened}\ncopies of the stores: {folder}")


async def torture(run: T, faults: Sequence[Fault[T]], *, say: bool = False) -> T:
    """One round for each of `faults` on one cluster, then a clean end."""
    try:
        await run.begin()
        for number, fault in enumerate(faults):
            await run.round(fault)
            if say:
                name = fault.__name__.replace("_", " ")
                print(
                    f"round {number + 1} of {len(faults)}: {name}; {run.senders.acknowledged} acknowledged", flush=True
                )
        await run.finish()
    finally:
        await run.end()
    return run


def rounds_of(faults: Sequence[Fault[T]], count: int, rng: random.Random) -> list[Fault[T]]:
    """`count` of them by chance, each before any comes again."""
    chosen: list[Fault[T]] = []
    while len(chosen) < count:
        chosen += rng.sample(list(faults), len(faults))
    return chosen[:count]


def options_of(what: str) -> argparse.ArgumentParser:
    """The command line of a torture of `what`: `rounds` and `seed`."""
    parser = argparse.ArgumentParser(description=f"{what} under faults")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(4), "big"))
    return parser


def run_rounds(made: Callable[[Path, int], T], rounds: int, seed: int, promise: str) -> None:
    """Torture, and say what happened.

    Args:
        made: a cluster in an empty folder, under a seed.
        promise: what held when no round failed.
    """
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))  # what runs is ended, not left behind
    print(f"seed {seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="maxq-replication-torture-") as folder:
        run = made(Path(folder), seed)
        asyncio.run(torture(run, rounds_of(run.faults, rounds, random.Random(seed)), say=True))
    print(
        f"{rounds} rounds: {len(run.acknowledged)} messages acknowledged, none missing; other answers: "
        f"{dict(run.senders.others)}; {promise}",
        flush=True,
    )
