"""Kill -9 of a broker and of consumers while messages are popped: nothing is lost, nothing acknowledged comes back.

Members of one group receive messages and acknowledge most of them; some die with what they have, some ask for more
time, be it too late, or give it back. The broker is killed and started again; or its slave takes its place; or, of a
DLedger group, another member does (pop_places.py). A message counts as acknowledged when the broker said so before its
invisible time was over; from then on nobody may receive it. At the end every message that was sent has been
acknowledged by somebody.

    python -m tests.integration.torture.pop_torture --rounds 20 --seed 3 [--on pair|dledger] [--set NAME=VALUE]
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

from maxq.api import ConsumeFromWhere, Message, MessageExt, async_producer, async_simple_consumer
from maxq.client.consumer.simple_consumer import SimpleConsumer
from maxq.client.results.pop_result import handle_of
from maxq.client.results.send_result import SendStatus
from maxq.errors import MaxQError
from maxq.runtime.files.system import SystemClock
from tests.integration.torture.pop_places import PLACES, until

TOPIC, GROUP, QUEUES = "PopTorture", "PopTortureGroup", 4
MEMBERS = 6
INVISIBLE_MS = 2_500
LATE_MS = 5_000  # when the time of a message is over, and it has been given again, from the revive topic too
SAFE_MS = 1_500  # an ack that was answered so soon after its message was popped was in time


@dataclass
class Run:
    """What happened.

    Attributes:
        acknowledged: numbers whose ack was answered in time.
        maybe: numbers of whose ack nothing was heard, or too late.
        came_back: numbers that were received after their ack.
    """

    rng: random.Random
    sent: set[int] = field(default_factory=set)
    next_number: int = 0
    received: Counter[int] = field(default_factory=Counter)
    acknowledged: set[int] = field(default_factory=set)
    maybe: set[int] = field(default_factory=set)
    came_back: list[int] = field(default_factory=list)
    clock: SystemClock = field(default_factory=SystemClock)

    async def has_acknowledged_all(self) -> bool:
        """As far as the members know."""
        return self.sent <= self.acknowledged | self.maybe

    async def receives(self, count: int) -> None:
        """Wait until so many were received, in all."""

        async def enough_came() -> bool:
            return self.received.total() >= count

        await until(enough_came, "messages are received")

    async def send(self, namesrv: str, count: int) -> None:
        """Until so many are acknowledged. Each number once; what fails may be there or not."""
        async with async_producer("PG", namesrv, retry_times_when_send_failed=0) as producer:

            async def send_one() -> None:
                number, self.next_number = self.next_number, self.next_number + 1
                with contextlib.suppress(MaxQError):
                    result = await producer.send(Message(TOPIC, b"%d" % number))
                    if result.send_status is SendStatus.SEND_OK:
                        self.sent.add(number)

            enough = len(self.sent) + count

            async def were_sent() -> bool:
                await asyncio.gather(*(send_one() for _ in range(enough - len(self.sent))))
                return len(self.sent) == enough

            await until(were_sent, f"{count} messages are acknowledged")

    async def live(self, namesrv: str, name: str) -> None:
        """One member after the other, each until it dies."""
        while True:
            consumer = async_simple_consumer(
                GROUP, namesrv, instance_name=f"{name}-{self.rng.random()}", poll_name_server_interval=1_000,
                consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
            )  # fmt: skip
            await consumer.subscribe(TOPIC)
            try:
                async with consumer:
                    for _ in range(self.rng.randint(3, 12)):
                        await self._take(consumer)
            except MaxQError:
                await asyncio.sleep(0.05)

    async def _take(self, consumer: SimpleConsumer) -> None:
        messages = await consumer.receive(self.rng.randint(1, 32), INVISIBLE_MS, wait_ms=500)
        self._note(messages)
        fate = self.rng.random()
        if fate < 0.1:
            raise MaxQError("this member dies with what it has")
        if fate < 0.5:
            await self._acknowledge(consumer, messages, together=True)
            return
        for message in messages:
            if self.rng.random() < 0.05:
                if self.rng.random() < 0.1:  # somebody else may have it by then
                    await asyncio.sleep(LATE_MS / 1000)
                await consumer.change_invisible_duration(message, self.rng.choice((0, 300, INVISIBLE_MS)))
            else:
                await self._acknowledge(consumer, [message], together=False)

    def _note(self, messages: list[MessageExt]) -> None:
        for message in messages:
            number = int(message.body)
            self.received[number] += 1
            if number in self.acknowledged:
                self.came_back.append(number)

    async def _acknowledge(self, consumer: SimpleConsumer, messages: list[MessageExt], *, together: bool) -> None:
        popped_ms = min((handle_of(message).pop_time for message in messages), default=0)  # the broker's clock is ours
        numbers = {int(message.body) for message in messages}
        self.maybe |= numbers - self.acknowledged
        if together:
            await consumer.ack_all(messages)
        else:
            await consumer.ack(messages[0])
        if self.clock.wall_ms() - popped_ms < SAFE_MS:
            self.acknowledged |= numbers


async def torture(
    folder: Path, rounds: int, seed: int, settings: Mapping[str, str] | None = None, *, on: str = "alone"
) -> Run:
    """Kill so many times; raises AssertionError for what is lost or comes back. `on`: a name of PLACES."""
    run = Run(random.Random(seed))
    place = PLACES[on](folder, settings or {})
    members: list[asyncio.Task[None]] = []
    try:
        await place.start(TOPIC, QUEUES)
        namesrv = place.namesrv
        members = [asyncio.create_task(run.live(namesrv, f"m{number}")) for number in range(MEMBERS)]
        for _ in range(rounds):
            before = run.received.total()
            await run.send(namesrv, 500)
            await run.receives(before + 200)  # members may be as quick as the sends
            await asyncio.sleep(run.rng.uniform(0, 0.3))
            await place.hit()
        await until(run.has_acknowledged_all, "every message is acknowledged")
        await asyncio.sleep(1)  # what comes back now was not to come
    finally:
        for member in members:
            member.cancel()
        await asyncio.gather(*members, return_exceptions=True)
        await place.end()
    assert not run.came_back, f"acknowledged and received again: {run.came_back[:10]}"
    lost = run.sent - run.received.keys()
    assert not lost, f"never received: {sorted(lost)[:10]}"
    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--on", choices=sorted(PLACES), default="alone")
    parser.add_argument("--set", action="append", default=[], help="broker property, name=value")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="maxq-torture-") as folder:
        settings = dict(text.split("=", 1) for text in options.set)
        run = asyncio.run(torture(Path(folder), options.rounds, options.seed, settings, on=options.on))
    again = sum(count - 1 for count in run.received.values())
    received, acknowledged = run.received.total(), len(run.acknowledged)
    print(f"{len(run.sent)} messages, {received} received ({again} again), {acknowledged} acknowledged")


if __name__ == "__main__":
    main()
