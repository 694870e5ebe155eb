"""Kill -9 with messages in flight that wait: each acknowledged one comes once, none early, none that was recalled.

Several senders send messages of all delay levels, and such with a delivery time, without pause; one in ten of the
latter is taken back at once. The broker is killed and started again; at the end the topic is compared with what was
acknowledged. Exactly once, also for deliveries that delayOffset.json and the timer's checkpoint did not tell of yet:
Java makes those again.

    python -m tests.integration.torture.delay_torture --rounds 20 --seed 3
"""

import argparse
import asyncio
import contextlib
import random
import tempfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from maxq.api import Message, MessageExt, async_admin, async_producer
from maxq.client.producer.producer import Producer
from maxq.errors import MaxQError
from maxq.testing.server_process import StandaloneProcess
from tests.integration.torture.pop_places import until

TOPIC = "Torture"
DELAYS_MS = (1_000, 2_000, 1_000, 3_000)
SETTINGS = {
    "messageDelayLevel": "1s 2s 1s 3s", "mappedFileSizeCommitLog": str(4 << 20), "recallMessageEnable": "true",
    "mappedFileSizeTimerLog": "104000",
}  # fmt: skip
SENDERS = 4
LEAST = 30  # messages that are acknowledged before each kill
SETTLE_SECONDS = 60


@dataclass
class Run:
    """What was acknowledged, by number.

    Attributes:
        recalled: taken back for sure.
        doubtful: may have been taken back, for the answer to that did not come.
    """

    acknowledged: set[int] = field(default_factory=set)
    recalled: set[int] = field(default_factory=set)
    doubtful: set[int] = field(default_factory=set)
    number: int = 0

    @property
    def expected(self) -> set[int]:
        """What must come."""
        return self.acknowledged - self.recalled - self.doubtful

    async def send(self, producer: Producer) -> None:
        """Without pause, whatever happens."""
        while True:
            self.number += 1
            number = self.number
            message = Message(TOPIC, b"%d" % number)
            if is_timed(number):
                message.delay_time_ms = delay_of(number)
            else:
                message.delay_level = number % len(DELAYS_MS) + 1
            try:
                result = await producer.send(message, timeout_ms=2_000)
            except MaxQError:
                await asyncio.sleep(0.02)
                continue
            self.acknowledged.add(number)
            if number % 20 == 7:
                assert result.recall_handle is not None, "a message with a delivery time has a handle"
                await self._recall(producer, number, result.recall_handle)

    async def _recall(self, producer: Producer, number: int, handle: str) -> None:
        self.doubtful.add(number)
        with contextlib.suppress(MaxQError):
            await producer.recall_message(TOPIC, handle)
            self.doubtful.remove(number)
            self.recalled.add(number)


def is_timed(number: int) -> bool:
    """It has a delivery time, and no level."""
    return number % 2 == 1


def delay_of(number: int) -> int:
    """How long it waits at least, ms."""
    return DELAYS_MS[number % len(DELAYS_MS)] + (number % 1_000 if is_timed(number) else 0)


async def torture(folder: Path, rounds: int, seed: int, settings: Mapping[str, str] | None = None) -> Run:
    """Kill so many times; raises AssertionError for what is lost, early or delivered twice."""
    rng, run = random.Random(seed), Run()
    server = StandaloneProcess({**SETTINGS, **(settings or {})}, folder=folder)
    await asyncio.to_thread(server.start)
    try:
        async with async_producer(
            "PG", server.namesrv_address, retry_times_when_send_failed=0, poll_name_server_interval=1_000
        ) as producer:
            senders = [asyncio.create_task(run.send(producer)) for _ in range(SENDERS)]
            for _ in range(rounds):
                wanted = len(run.acknowledged) + LEAST

                async def are_sent(wanted: int = wanted) -> bool:
                    return len(run.acknowledged) >= wanted and bool(run.recalled)

                await asyncio.sleep(rng.uniform(0.5, 2.5))
                await until(are_sent, "messages are acknowledged, and some taken back")
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


async def _settled(server: StandaloneProcess, run: Run) -> list[MessageExt]:
    """What is in the topic when every acknowledged message has come, and nothing new since the longest delay."""
    delivered: list[MessageExt] = []
    async with async_admin(server.namesrv_address) as admin, asyncio.timeout(SETTLE_SECONDS):
        while True:
            await asyncio.sleep(max(DELAYS_MS) / 1000 + 2.5)
            before = len(delivered)
            delivered = [message async for message in admin.messages.scan(TOPIC)]
            if len(delivered) == before and run.expected <= {int(message.body) for message in delivered}:
                return delivered


def _compare(run: Run, delivered: list[MessageExt]) -> None:
    twice = {number: count for number, count in Counter(int(m.body) for m in delivered).items() if count > 1}
    assert not twice, f"delivered more than once: {list(twice.items())[:10]}"
    came = run.recalled & {int(message.body) for message in delivered}
    assert not came, f"recalled, and came: {sorted(came)[:10]}"
    for message in delivered:
        waited = message.store_timestamp - message.born_timestamp
        delay = delay_of(int(message.body))
        assert waited >= delay, f"message {message.body!r} came after {waited} ms, its delay is {delay} ms"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--set", action="append", default=[], help="broker property, name=value")
    arguments = parser.parse_args()
    settings = dict(pair.split("=", 1) for pair in arguments.set)
    with tempfile.TemporaryDirectory(prefix="maxq-delay-torture-") as folder:
        run = asyncio.run(torture(Path(folder), arguments.rounds, arguments.seed, settings))
    print(
        f"{len(run.acknowledged)} messages that waited, {len(run.recalled)} of them recalled: each other one delivered "
        "once, none early"
    )


if __name__ == "__main__":
    main()
