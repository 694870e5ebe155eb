"""Two versions of MaxQ on the same stores, in one pair and in one group, real processes:
`python -m tests.integration.torture.upgrade_torture --older TREE --rounds N [--seed S] [--on PLACE]`.

TREE is the source tree of another version, its modules compiled. In each history the brokers of this version become
that one, one after the other, each stopped in order, as docs/howto/upgrade.md tells (in a pair: now the slave first,
now the master), and then this version again; between two of these steps something may happen to them (promise_torture).
Meanwhile clients of this version ask for everything that promise_torture knows, but delete no topics and groups, and
send what waits in the broker: timer messages, some of which they take back, messages of delay levels, and
transactions. What was acknowledged must be in the topic once, what was taken back or rolled back must not, and no
promise may be broken. Whose fault it is if one is, a run with TREE of this version shows.
"""

import argparse
import asyncio
import contextlib
import logging
import os
import random
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Final

from maxq.api import LocalTransactionState, Message, MessageExt, async_admin, async_producer, system_environment
from maxq.client.client_config import ProducerConfig
from maxq.client.producer.producer import Producer
from maxq.client.producer.transaction_producer import TransactionProducer
from maxq.client.results.send_result import SendStatus
from maxq.errors import MaxQError
from tests.integration.processes.ha_torture_cluster import BrokerProcess
from tests.integration.processes.maxq_process import Process
from tests.integration.torture.promise_torture import PATIENCE_S, PLACES, QUICK, Fault, Pair, Place, PromiseTorture
from tests.promise_clients import PromiseClients

#: So that much of it happens within one history.
WAITING: Final = {
    "messageDelayLevel": "1s 2s 3s 5s", "recallMessageEnable": "true", "mappedFileSizeTimerLog": "104000",
    "transactionTimeOut": "300", "transactionCheckInterval": "200", "transactionOpBatchInterval": "400",
    "transactionCheckMax": "1000",
}  # fmt: skip
LEVELS: Final = 4
LONGEST_MS: Final = 12_000
THIS: Final = Path(__file__).parents[3]
COMMIT, ROLLBACK = LocalTransactionState.COMMIT_MESSAGE, LocalTransactionState.ROLLBACK_MESSAGE
UNKNOWN = LocalTransactionState.UNKNOW


def run_as(process: Process, tree: Path) -> None:
    """Its next start is that of the version in `tree`. Whether something holds its loop is another test."""
    process.command = ("env", "-C", str(tree), f"PYTHONPATH={tree / 'src'}")
    process.module = "maxq"


@dataclass
class Waiting:
    """What is sent to one topic and does not come at once; the listener of its transactions.

    Attributes:
        expected: keys that must come, once.
        refused: keys that must not come: what was taken back in time, or rolled back.
    """

    name_server: str
    topic: str
    rng: random.Random
    expected: set[str] = field(default_factory=set)
    refused: set[str] = field(default_factory=set)
    _tasks: list[asyncio.Task[None]] = field(default_factory=list)
    _transactions: TransactionProducer | None = None
    _number: int = 0

    async def start(self) -> None:
        """Send until `stop`."""
        config = ProducerConfig(
            producer_group=f"{self.topic}-TX", namesrv_addr=self.name_server, retry_times_when_send_failed=0,
            heartbeat_broker_interval=1_000, poll_name_server_interval=1_000,
        )  # fmt: skip
        self._transactions = TransactionProducer(config, system_environment(self.name_server), self)
        await self._transactions.start()
        sends: tuple[Callable[[Producer], Any], ...] = (self._plain, self._timed, self._timed, self._leveled)
        self._tasks = [asyncio.create_task(self._with_producer(send)) for send in sends]
        self._tasks.append(asyncio.create_task(self._without_end(partial(self._transaction, self._transactions))))

    async def stop(self) -> list[str]:
        """Send no more, and wait for what must come: what came wrongly, in words."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        try:
            found = await self._settled()
        finally:
            assert self._transactions is not None
            await self._transactions.shutdown()
        return [
            *(f"{key} came {count} times: {self._places(found[key])}" for key, count in _counts(found) if count > 1),
            *(f"{key} was acknowledged and did not come" for key in sorted(self.expected - found.keys())),
            *(f"{key} was taken back or rolled back, and came" for key in sorted(self.refused & found.keys())),
        ]

    @staticmethod
    def _places(copies: list[MessageExt]) -> str:
        return "; ".join(
            f"queue {one.queue_id} offset {one.queue_offset}, stored at {one.store_timestamp}, physical offset "
            f"{one.physical_offset}, {one.properties}"
            for one in copies
        )

    # -- sending --

    async def _with_producer(self, send: Callable[[Producer], Any]) -> None:
        async with async_producer(
            f"{self.topic}-{send.__name__}", self.name_server, retry_times_when_send_failed=0,
            poll_name_server_interval=500, instance_name=f"{self.topic}{self.rng.random()}",
        ) as producer:  # fmt: skip
            await self._without_end(partial(send, producer))

    async def _without_end(self, send: Callable[[], Any]) -> None:
        while True:
            with contextlib.suppress(MaxQError):
                await send()
            await asyncio.sleep(self.rng.uniform(0.02, 0.2))

    def _key(self, kind: str) -> str:
        self._number += 1
        return f"{kind}{self._number}"

    async def _plain(self, producer: Producer) -> None:
        key = self._key("plain")
        result = await producer.send(Message(self.topic, key.encode()), timeout_ms=2_000)
        if result.send_status is SendStatus.SEND_OK:
            self.expected.add(key)

    async def _leveled(self, producer: Producer) -> None:
        key = self._key("level")
        message = Message(self.topic, key.encode())
        message.delay_level = self.rng.randint(1, LEVELS)
        result = await producer.send(message, timeout_ms=2_000)
        if result.send_status is SendStatus.SEND_OK:
            self.expected.add(key)

    async def _timed(self, producer: Producer) -> None:
        key = self._key("timed")
        message = Message(self.topic, key.encode())
        message.delay_time_ms = int(self.rng.uniform(100, LONGEST_MS))
        now = asyncio.get_running_loop().time
        began = now()
        result = await producer.send(message, timeout_ms=2_000)
        if result.send_status is not SendStatus.SEND_OK:
            return
        if not (result.recall_handle and message.delay_time_ms > LONGEST_MS / 2 and self.rng.random() < 0.4):
            self.expected.add(key)
            return
        await producer.recall_message(self.topic, result.recall_handle)
        if now() - began < message.delay_time_ms / 2000:
            self.refused.add(key)

    async def _transaction(self, producer: TransactionProducer) -> None:
        key = self._key(self.rng.choice(("tx-commit", "tx-rollback", "tx-asked-commit", "tx-asked-rollback")))
        message = Message(self.topic, key.encode())
        await producer.send_message_in_transaction(message, key, timeout_ms=2_000)

    async def execute_local_transaction(self, message: Message, arg: Any) -> LocalTransactionState:
        """The half message is stored."""
        (self.expected if arg.rstrip("0123456789").endswith("commit") else self.refused).add(arg)
        if arg.startswith("tx-asked"):
            return UNKNOWN
        return COMMIT if arg.startswith("tx-commit") else ROLLBACK

    async def check_local_transaction(self, message: MessageExt) -> LocalTransactionState:
        """Asked by the broker."""
        key = message.body.decode()
        return COMMIT if key.rstrip("0123456789").endswith("commit") else ROLLBACK

    # -- the end --

    async def _settled(self) -> dict[str, list[MessageExt]]:
        """What is in the topic when all that is expected has come, and nothing more since the longest delay."""
        found: dict[str, list[MessageExt]] = {}
        loop = asyncio.get_running_loop()
        end, calm_since = loop.time() + PATIENCE_S, loop.time()
        while loop.time() < end:
            now = await self._scanned()
            if now is not None and _counts(now) != _counts(found):
                found, calm_since = now, loop.time()
            if self.expected <= found.keys() and loop.time() - calm_since > LONGEST_MS / 1000 + 2:
                break
            await asyncio.sleep(1)
        return found

    async def _scanned(self) -> dict[str, list[MessageExt]] | None:
        found: dict[str, list[MessageExt]] = {}
        try:
            async with async_admin(self.name_server) as admin:
                async for message in admin.messages.scan(self.topic):
                    found.setdefault(message.body.decode(), []).append(message)
        except MaxQError:
            return None
        return found


def _counts(found: dict[str, list[MessageExt]]) -> list[tuple[str, int]]:
    return sorted((key, len(copies)) for key, copies in found.items())


class NoDeletions(PromiseClients):
    """Topics are not deleted while two versions serve."""

    async def _make_and_delete(self, name: str, request: Any, delete: int, field: str) -> None:
        await self._make(name, request)


class UpgradeTorture(PromiseTorture):
    """Each history goes from this version to the other one and back."""

    clients: ClassVar = NoDeletions

    def __init__(self, place: Place, rng: random.Random, older: Path) -> None:
        super().__init__(place, rng)
        self.older = older
        self.kinds: Counter[str] = Counter()
        for broker in place.brokers.values():
            if isinstance(broker, BrokerProcess):
                broker.configure(WAITING)
            else:
                broker.more = {**QUICK, **WAITING}
            run_as(broker, THIS)

    def steps(self, happens: float) -> list[Fault]:
        """All brokers become the other version, in any order, and this one again, in any order. `happens`: how likely
        something happens to them after a step."""
        found: list[Fault] = []
        for tree, word in ((self.older, "is taken back"), (THIS, "is upgraded")):
            for name in self._rng.sample(list(self.place.brokers), len(self.place.brokers)):
                found.append(_named(partial(self.replace, name, tree), f"{name} {word}"))
                if self._rng.random() < happens:
                    found.append(self._rng.choice(self.place.faults))
        return found

    async def replace(self, name: str, tree: Path) -> None:
        """Restart one broker as the version in `tree`."""
        await self.place.end_one(name)
        run_as(self.place.brokers[name], tree)
        await self.place.begin_one(name)
        if isinstance(self.place, Pair):
            await self.place.until_in_sync()

    async def history(self, faults: Sequence[Fault]) -> list[str]:
        topic = f"waiting-{self._number}"
        await self._make_topic(topic)
        waiting = Waiting(self.place.name_server, topic, self._rng)
        await waiting.start()
        broken = await super().history(faults)
        wrong = await waiting.stop()
        self.broken += wrong
        self.kinds.update(key.rstrip("0123456789") for key in waiting.expected | waiting.refused)
        return broken + wrong


def _named(fault: partial[Any], name: str) -> Fault:
    async def happens() -> None:
        await fault()

    happens.__name__ = name
    return happens


async def torture(
    folder: Path, on: str, seed: int, rounds: int, older: Path, happens: float, logs: Path | None = None
) -> UpgradeTorture:
    """So many histories on one place. `logs`: where what the brokers wrote is kept if a promise was broken."""
    rng = random.Random(seed)
    place = PLACES[on](folder, rng)
    run = UpgradeTorture(place, rng, older)
    try:
        await run.begin()
        for number in range(rounds):
            faults = run.steps(happens)
            broken = await run.history(faults)
            told = ", ".join(fault.__name__.replace("_", " ") for fault in faults)
            print(f"{on} {number + 1}: {told}; {sum(place.history.count().values())} answers", file=sys.stderr)
            for one in broken[:20]:
                print(f"  broken: {one}", file=sys.stderr, flush=True)
            if broken and logs is not None:
                for name in place.brokers:
                    (logs / f"{on}-{seed}-{number + 1}-{name}.log").write_text(place.said(name))
        await place.finish()
    finally:
        await place.end()
    return run


def main() -> int:
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))  # what runs is ended, not left behind
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--older", type=Path, required=True, help="source tree of the other version")
    parser.add_argument("--rounds", type=int, default=3, help="histories on each place")
    parser.add_argument("--happens", type=float, default=0.3, help="how likely something happens between two steps")
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(4), "big"))
    parser.add_argument("--logs", type=Path, help="folder for what brokers wrote that broke a promise")
    parser.add_argument("--on", choices=tuple(PLACES), action="append")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)  # clients of brokers that end have much to say
    failed = 0
    for on in options.on or PLACES:
        with tempfile.TemporaryDirectory(prefix="maxq-upgrade-") as folder:
            run = asyncio.run(
                torture(
                    Path(folder),
                    on,
                    options.seed,
                    options.rounds,
                    options.older.absolute(),
                    options.happens,
                    options.logs,
                )
            )
        failed += len(run.broken)
        print(
            f"{on}, seed {options.seed}: {options.rounds} histories, {len(run.broken)} promises broken; answers: "
            f"{dict(sorted(run.told.items()))}; waiting: {dict(sorted(run.kinds.items()))}; "
            f"steps: {dict(sorted(run.happened.items()))}",
            flush=True,
        )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
