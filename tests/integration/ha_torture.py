"""Master and slave as real processes, and everything that may happen to them:
`python -m tests.integration.ha_torture --rounds N [--seed S]`.

Producers send all the time to a SYNC_MASTER with inSyncReplicas=2, its one slave behind a fault proxy. Each round does
something to the two brokers or the link between them. Then, from outside, on the files:

* every message acknowledged with SEND_OK is in the log of whoever is left, byte for byte, where the answer said;
* the slave's log is a prefix of the master's, and no shorter than it was;
* once it is mended, sends are acknowledged again, and both logs become equal;
* in the end both stop cleanly, the offline check finds nothing wrong in either, and the slave's ConsumeQueues and index
  are those of the master.

What fails tells what is wrong, and where copies of both stores as they were then are kept.
"""

import argparse
import asyncio
import contextlib
import hashlib
import json
import os
import random
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from maxq.cli.load.request import RefusedError, Target
from maxq.client.client_config import ProducerConfig
from maxq.client.producer import Producer
from maxq.client.send_result import SendResult, SendStatus
from maxq.errors import MaxQError
from maxq.machine import system_seams
from maxq.protocol.message import Message, decode_record
from tests.integration.fault_proxy import Direction
from tests.integration.ha_torture_cluster import BrokerProcess, Cluster, Log
from tests.integration.torture import entries_of, units_of

TOPICS = ("Torture_A", "Torture_B")
GET_BROKER_RUNTIME_INFO = 28
PATIENCE_S = 30.0
_POLL_S = 0.02
_IN_FLIGHT = 6
_SLOW_LINK = 100_000  # bytes a second


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
    def in_log(cls, log: Log, place: int) -> "Acknowledged":
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
        async with Producer(config, system_seams()) as producer:
            await asyncio.gather(*(self._send_on(producer) for _ in range(_IN_FLIGHT)))

    async def _send_on(self, producer: Producer) -> None:
        while True:
            body = self.rng.randbytes(self.rng.choice((10, 300, 1000, 3000, 20_000)))
            message = Message(self.rng.choice(TOPICS), body, {"TAGS": "T", "KEYS": f"k{self.rng.randrange(1000)}"})
            try:
                result = await producer.send(message)
            except (MaxQError, OSError) as error:
                self.others[type(error).__name__] += 1
                await asyncio.sleep(_POLL_S)
                continue
            if result.send_status is SendStatus.SEND_OK:
                self.new.append(Acknowledged.of(result, body))
                self.acknowledged += 1
            else:
                self.others[result.send_status.name] += 1


class HATorture:
    """One cluster, everything that was acknowledged on it, and what can be done to it."""

    def __init__(self, folder: Path, seed: int) -> None:
        self._rng = random.Random(seed)
        self.cluster = Cluster(folder)
        self.senders = Senders(self.cluster.name_server_address, self._rng)
        self.acknowledged: list[Acknowledged] = []
        self.happened: Counter[str] = Counter()
        self._slave_end = 0

    # -- what may happen; each returns when it is mended --

    async def kill_the_master(self) -> None:
        """The slave alone has everything that was acknowledged."""
        await self.cluster.master.kill()
        self._check_survivor(self.cluster.slave)
        await self.cluster.master.start()

    async def kill_the_slave(self) -> None:
        await self.cluster.slave.kill()
        self._check_survivor(self.cluster.slave)  # its files, as they were left
        await self._pause()
        self._check_survivor(self.cluster.master)
        await self.cluster.slave.start()

    async def kill_both(self) -> None:
        brokers = list(self.cluster.brokers)
        self._rng.shuffle(brokers)
        for broker in brokers:
            await broker.kill()
        self._check_survivor(self.cluster.slave)
        self._check_survivor(self.cluster.master)
        self._rng.shuffle(brokers)
        for broker in brokers:
            await broker.start()

    async def kill_while_starting(self) -> None:
        """Twice: as it runs, and as it recovers."""
        broker = self._rng.choice(self.cluster.brokers)
        await broker.kill()
        await broker.spawn()
        await asyncio.sleep(self._rng.uniform(0.1, 0.7))
        await broker.kill()
        self._check_survivor(self.cluster.slave)
        await broker.start()

    async def change_the_flush(self) -> None:
        """Both end cleanly and start with the other flushDiskType."""
        kind = self._rng.choice(["SYNC_FLUSH", "ASYNC_FLUSH"])
        for broker in self.cluster.brokers:
            await broker.stop()
            broker.configure({"flushDiskType": kind})
            self._check_survivor(self.cluster.slave)
            await broker.start()

    async def pause_the_master(self) -> None:
        await self._paused(self.cluster.master)

    async def pause_the_slave(self) -> None:
        await self._paused(self.cluster.slave)

    async def _paused(self, broker: BrokerProcess) -> None:
        broker.pause()
        try:
            await self._pause(up_to=3.0)  # or longer than haHousekeepingInterval
        finally:
            broker.go_on()

    async def cut_the_link(self) -> None:
        await self._with_link(self.cluster.link.cut)

    async def reset_the_link(self) -> None:
        for _ in range(3):
            self.cluster.link.reset()
            await asyncio.sleep(self._rng.uniform(0.0, 0.2))

    async def stall_the_link(self) -> None:
        await self._with_link(self.cluster.link.stall, up_to=3.0)

    async def stall_reports(self) -> None:
        """The slave gets everything, the master never hears of it."""
        await self._with_link(lambda: self.cluster.link.stall(Direction.FROM_CLIENT), up_to=3.0)

    async def slow_the_link(self) -> None:
        await self._with_link(lambda: self.cluster.link.slow(_SLOW_LINK))

    async def half_close_the_link(self) -> None:
        self.cluster.link.half_close(self._rng.choice(list(Direction)))

    async def _with_link(self, fault: Callable[[], None], *, up_to: float = 1.0) -> None:
        fault()
        await self._pause(up_to=up_to)
        self.cluster.link.mend()

    async def cut_and_kill(self) -> None:
        """The slave falls behind, and the master dies: what was acknowledged is on the slave all the same."""
        self.cluster.link.cut()
        await self._pause()
        await self.cluster.master.kill()
        self._check_survivor(self.cluster.slave)
        self.cluster.link.mend()
        await self.cluster.master.start()

    async def empty_the_slave(self) -> None:
        """A new disk: it fetches the whole log (haFullCopy)."""
        await self.cluster.slave.kill()
        self.cluster.slave.empty()
        self._slave_end = 0
        await self.cluster.slave.start()

    FAULTS: Sequence[Callable[["HATorture"], Awaitable[None]]] = (
        kill_the_master, kill_the_slave, kill_both, kill_while_starting, change_the_flush, pause_the_master,
        pause_the_slave, cut_the_link, reset_the_link, stall_the_link, stall_reports, slow_the_link,
        half_close_the_link, cut_and_kill, empty_the_slave,
    )  # fmt: skip

    # -- rounds --

    async def round(self, fault: Callable[["HATorture"], Awaitable[None]]) -> None:
        """Send, let `fault` happen, wait until all is well again, look."""
        self.happened[fault.__name__] += 1
        async with self.senders.sending():
            await self._acknowledges_again()
            await self._pause()
            await fault(self)
            await self._acknowledges_again()
        await self._converge()
        self._check_survivor(self.cluster.slave)
        self._check_survivor(self.cluster.master)
        self.acknowledged += self.senders.new
        self.senders.new.clear()

    async def finish(self) -> None:
        """Both end cleanly; everything is compared."""
        for broker in self.cluster.brokers:
            await broker.stop()
        for broker in self.cluster.brokers:
            self._look_for(self.acknowledged, broker, broker.log())
            faults = broker.faults()
            self._claim(not faults, "\n".join([f"the {broker.name}'s store:", *faults]))
        master, slave = (broker.files() for broker in self.cluster.brokers)
        self._claim(units_of(master) == units_of(slave), "the slave's ConsumeQueues are not the master's")
        self._claim(entries_of(master) == entries_of(slave), "the slave's index is not the master's")

    async def _pause(self, *, up_to: float = 1.0) -> None:
        await asyncio.sleep(self._rng.uniform(0.1, up_to))

    async def _acknowledges_again(self) -> None:
        """Until some more messages are acknowledged."""
        wanted = self.senders.acknowledged + 20
        await self._until(lambda: self.senders.acknowledged >= wanted, "no sends are acknowledged")

    async def _converge(self) -> None:
        """Nothing is sent: until both logs end at the same place."""

        async def same_end() -> bool:
            ends = [await asyncio.to_thread(_end_said_by, broker) for broker in self.cluster.brokers]
            return ends[0] == ends[1]

        await self._until(same_end, "the slave does not catch up")

    async def _until(self, holds: Callable[[], bool] | Callable[[], Awaitable[bool]], otherwise: str) -> None:
        end = asyncio.get_running_loop().time() + PATIENCE_S
        while True:
            found = holds()
            if found if isinstance(found, bool) else await found:
                return
            for broker in self.cluster.brokers:
                broker.check_alive()
            if asyncio.get_running_loop().time() > end:
                said = "\n".join(f"{broker.name}: {broker.said()}" for broker in self.cluster.brokers)
                self._claim(False, f"{otherwise} within {PATIENCE_S} s; others: {self.senders.others}\n{said}")
            await asyncio.sleep(_POLL_S)

    # -- looking --

    def _check_survivor(self, broker: BrokerProcess) -> None:
        """What was acknowledged until now is in this broker's log, and the slave's log is a prefix of the master's."""
        acknowledged = list(self.senders.new)  # first: more may come while we read
        slave = self.cluster.slave.log()
        master = self.cluster.master.log()  # second: it is ahead
        self._look_for(acknowledged, broker, slave if broker is self.cluster.slave else master)
        self._claim(slave.end <= master.end, f"the slave's log ends at {slave.end}, the master's at {master.end}")
        place = slave.first_difference(master)
        self._claim(place is None, f"the slave's log differs from the master's at {place}")
        self._claim(slave.end >= self._slave_end, f"the slave's log went back from {self._slave_end} to {slave.end}")
        self._slave_end = slave.end

    def _look_for(self, acknowledged: list[Acknowledged], broker: BrokerProcess, log: Log) -> None:
        for wanted in acknowledged:
            place = wanted.physical_offset
            inside = log.start <= place < log.end
            self._claim(inside, f"acknowledged, missing on the {broker.name}: {wanted}; its log: {log.start}–{log.end}")
            try:
                real = Acknowledged.in_log(log, place)
            except MaxQError as error:
                self._claim(False, f"acknowledged, no record on the {broker.name}: {wanted}: {error}")
            self._claim(real == wanted, f"acknowledged as {wanted}, on the {broker.name} {real}")

    def _claim(self, holds: bool, otherwise: str) -> None:
        """If it does not hold: keep copies of both stores, and say what is wrong and where the copies are."""
        if holds:
            return
        folder = Path(tempfile.mkdtemp(prefix="maxq-ha-torture-failed-"))
        for broker in self.cluster.brokers:
            shutil.copytree(broker.store, folder / broker.name)
        happened = ", ".join(f"{name} {count}×" for name, count in self.happened.items())
        raise AssertionError(f"{otherwise}\nuntil then: {happened}\ncopies of the stores: {folder}")


def _end_said_by(broker: BrokerProcess) -> int:
    """Where the broker says its log ends; -1 if it says nothing."""
    try:
        frame = Target("127.0.0.1", broker.port).call(GET_BROKER_RUNTIME_INFO, {})
    except (OSError, RefusedError):
        return -1
    header = int.from_bytes(frame[4:8], "big") & 0xFFFFFF
    return int(json.loads(frame[8 + header :])["table"]["commitLogMaxOffset"])


async def ha_torture(
    folder: Path, faults: Sequence[Callable[[HATorture], Awaitable[None]]], seed: int, *, say: bool = False
) -> HATorture:
    """One round for each of `faults` on one cluster, then a clean end."""
    run = HATorture(folder, seed)
    try:
        await run.cluster.start()
        for number, fault in enumerate(faults):
            await run.round(fault)
            if say:
                name = fault.__name__.replace("_", " ")
                print(
                    f"round {number + 1} of {len(faults)}: {name}; {run.senders.acknowledged} acknowledged", flush=True
                )
        await run.finish()
    finally:
        await run.cluster.end()
    return run


def main() -> int:
    parser = argparse.ArgumentParser(description="master and slave under faults")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(4), "big"))
    options = parser.parse_args()
    print(f"seed {options.seed}")
    rng = random.Random(options.seed)
    faults: list[Callable[[HATorture], Awaitable[None]]] = []
    while len(faults) < options.rounds:  # each of them before any comes again
        faults += rng.sample(HATorture.FAULTS, len(HATorture.FAULTS))
    with tempfile.TemporaryDirectory(prefix="maxq-ha-torture-") as folder:
        run = asyncio.run(ha_torture(Path(folder), faults[: options.rounds], options.seed, say=True))
    print(
        f"{options.rounds} rounds: {len(run.acknowledged)} messages acknowledged, none missing on either side; other "
        f"answers: {dict(run.senders.others)}; logs, queues and index of master and slave are equal"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
