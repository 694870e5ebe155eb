"""Kill -9 with transactions in flight: each committed one is delivered once, no rolled-back one ever.

A message says by its number how its transaction ends, when executed and when asked for (`planned`). Producers of one
group send without pause; the broker is killed and started again; at the end the topic is compared with what was
decided. Exactly once, also for commits whose broker died between the delivered message and its op message: Java
delivers those twice.

    python -m tests.integration.torture.transaction_torture --rounds 20 --seed 3

With --oneway the ends are told as Java's producers tell them, without an answer, so that the broker's compiled path
takes the commits.
"""

import argparse
import asyncio
import random
import tempfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from maxq.api import LocalTransactionState, Message, MessageExt, async_admin, system_environment
from maxq.client.client_config import ProducerConfig
from maxq.client.instance.client_api import MQClientAPI
from maxq.client.producer.transaction_producer import TransactionProducer
from maxq.errors import MaxQError
from maxq.testing.server_process import StandaloneProcess

TOPIC, GROUP = "Torture", "TortureGroup"
COMMIT, ROLLBACK = LocalTransactionState.COMMIT_MESSAGE, LocalTransactionState.ROLLBACK_MESSAGE
UNKNOWN = LocalTransactionState.UNKNOW
SETTINGS = {
    "transactionTimeOut": "300",
    "transactionCheckInterval": "200",
    "transactionOpBatchInterval": "400",
    "transactionCheckMax": "1000",
    "mappedFileSizeCommitLog": str(4 << 20),
}
SENDERS = 16
SETTLE_SECONDS = 60


def planned(number: int) -> tuple[LocalTransactionState, bool]:
    """What its execution says, and whether it commits in the end."""
    state = (COMMIT, ROLLBACK, UNKNOWN, UNKNOWN, COMMIT)[number % 5]
    return state, state is COMMIT or (state is UNKNOWN and number % 5 == 2)


@dataclass
class Run:
    """The listener of all producers, and what it decided.

    Attributes:
        executed: numbers whose half message was acknowledged.
        told: numbers whose end the broker confirmed, or was sent.
    """

    executed: set[int] = field(default_factory=set)
    told: set[int] = field(default_factory=set)
    asked: Counter[int] = field(default_factory=Counter)
    number: int = 0

    async def execute_local_transaction(self, message: Message, arg: Any) -> LocalTransactionState:
        self.executed.add(arg)
        return planned(arg)[0]

    async def check_local_transaction(self, message: MessageExt) -> LocalTransactionState:
        number = int(message.body)
        self.asked[number] += 1
        return COMMIT if planned(number)[1] else ROLLBACK

    async def send(self, producer: TransactionProducer) -> None:
        """Without pause, whatever happens."""
        while True:
            self.number += 1
            number = self.number
            try:
                message = Message(TOPIC, b"%d" % number)
                result = await producer.send_message_in_transaction(message, number, timeout_ms=2_000)
            except MaxQError:
                await asyncio.sleep(0.02)
                continue
            if result.end_error is None and result.local_transaction_state is not UNKNOWN:
                self.told.add(number)


class OneWayProducer(TransactionProducer):
    """Tells ends as Java's producers do: nobody answers."""

    async def start(self) -> None:
        await super().start()
        api = self._running().instance.api
        api.end_transaction = partial(_end_oneway, api)  # type: ignore[method-assign]


async def _end_oneway(
    api: MQClientAPI, address: str, ext: dict[str, str], remark: str | None, *, oneway: bool, timeout_ms: int
) -> None:
    await MQClientAPI.end_transaction(api, address, ext, remark, oneway=True, timeout_ms=timeout_ms)


async def torture(
    folder: Path, rounds: int, seed: int, settings: Mapping[str, str] | None = None, *, oneway: bool = False
) -> Run:
    """Kill so many times; raises AssertionError for what is lost, visible or delivered twice."""
    rng, run = random.Random(seed), Run()
    server = StandaloneProcess({**SETTINGS, **(settings or {})}, folder=folder)
    await asyncio.to_thread(server.start)
    try:
        config = ProducerConfig(
            producer_group=GROUP, namesrv_addr=server.namesrv_address, retry_times_when_send_failed=0,
            heartbeat_broker_interval=1_000, poll_name_server_interval=1_000,
        )  # fmt: skip
        kind = OneWayProducer if oneway else TransactionProducer
        async with kind(config, system_environment(server.namesrv_address), run) as producer:
            senders = [asyncio.create_task(run.send(producer)) for _ in range(SENDERS)]
            for _ in range(rounds):
                done = len(run.executed)
                await asyncio.sleep(rng.uniform(0.3, 1.2))
                await _until(lambda: len(run.executed) > done + 20, "transactions are executed again")  # noqa: B023
                server.kill()
                await asyncio.to_thread(server.start_again)
            for sender in senders:
                sender.cancel()
            await asyncio.gather(*senders, return_exceptions=True)
            delivered = await _settled(server, run)
    finally:
        server.stop()
    _compare(run, delivered)
    return run


async def _until(condition: Any, what: str) -> None:
    try:
        async with asyncio.timeout(SETTLE_SECONDS):
            while not condition():  # noqa: ASYNC110 - another process
                await asyncio.sleep(0.02)
    except TimeoutError:
        raise AssertionError(f"after {SETTLE_SECONDS} s still not: {what}") from None


async def _settled(server: StandaloneProcess, run: Run) -> Counter[int]:
    """What is in the topic when every executed transaction has ended and nothing new has come for two rounds."""
    wanted = {number for number in run.executed if planned(number)[1]}
    delivered: Counter[int] = Counter()
    calm = 0
    async with async_admin(server.namesrv_address) as admin, asyncio.timeout(SETTLE_SECONDS):
        while calm < 3:
            await asyncio.sleep(0.5)
            now = Counter([int(message.body) async for message in admin.messages.scan(TOPIC)])
            calm = calm + 1 if now == delivered and wanted <= now.keys() else 0
            delivered = now
    return delivered


def _compare(run: Run, delivered: Counter[int]) -> None:
    committed = {number for number in run.executed if planned(number)[1]}
    assert not committed - delivered.keys(), f"committed and lost: {sorted(committed - delivered.keys())[:10]}"
    visible = {number for number in delivered if not planned(number)[1]}
    assert not visible, f"rolled back and visible: {sorted(visible)[:10]}"
    twice = {number: count for number, count in delivered.items() if count > 1}
    assert not twice, f"delivered more than once: {list(twice.items())[:10]}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--oneway", action="store_true", help="tell ends as Java's producers do")
    parser.add_argument("--set", action="append", default=[], help="broker property, name=value")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="maxq-torture-") as folder:
        settings = dict(text.split("=", 1) for text in options.set)
        run = asyncio.run(torture(Path(folder), options.rounds, options.seed, settings, oneway=options.oneway))
    print(f"{len(run.executed)} transactions, {len(run.told)} ends confirmed, {len(run.asked)} asked for: all in order")


if __name__ == "__main__":
    main()
