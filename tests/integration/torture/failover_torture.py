"""What producers and a consumer feel of a DLedger group's fail-overs, real processes:
`python -m tests.integration.torture.failover_torture [--hand-over N] [--kill N] [--pause N] [--rolling-restart N] …`.

Three members, two name servers. Three producers send one message after the other, each with a time-out of 3 s; a push
consumer reads. One thing at a time happens to the group; when it is over and all members are equal again, the next one
follows. A send that fails is a broken promise, as is an acknowledged message that the consumer does not get. The table
tells, for each kind of event, the longest send, the longest time without an acknowledgement, and the consumer's longest
time without a message.

The last column tells what share of the time for which the clients had something to do they waited for a processor.
Where other work leaves them and the members next to none (nice 10 beside fifteen processes that do not yield), sends
fail, and that tells about the machine and not about the group.
"""

import argparse
import asyncio
import contextlib
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

from maxq.client.admin.admin import Admin
from maxq.client.client_config import ClientConfig, ProducerConfig, PushConsumerConfig
from maxq.client.consumer.push_consumer import PushConsumer
from maxq.client.producer.producer import Producer
from maxq.client.results.consume_result import ConsumeContext, ConsumeResult
from maxq.errors import MaxQError
from maxq.machine import system_environment
from maxq.protocol.body.topic_config import TopicConfig
from maxq.protocol.enums import ConsumeFromWhere
from maxq.protocol.message.message import Message, MessageExt
from tests.integration.processes.dledger_cluster import Cluster, Member

TOPIC = "Failover"
PRODUCERS = 3
TIMEOUT_MS = 3_000
PAUSE_S = 5.0
_REST_S = 0.002  # between two sends of a producer
_CALM_S = 0.5  # between two events
_PATIENCE_S = 60.0
_POLL_S = 0.02


def processor_ns() -> tuple[int, int]:
    """For how long this process has run, and for how long it has waited for a processor, up to now; zeros where the
    kernel does not tell."""
    try:
        ran, waited, _ = map(int, Path("/proc/self/schedstat").read_text().split())
    except OSError:
        return 0, 0
    return ran, waited


@dataclass
class Felt:
    """What was felt while events of one kind happened. Times in seconds."""

    events: int = 0
    sends: int = 0
    failures: list[str] = field(default_factory=list)
    sends_longest: list[float] = field(default_factory=list)  # of each event
    silence_longest: list[float] = field(default_factory=list)  # without an acknowledgement, likewise
    hunger_longest: list[float] = field(default_factory=list)  # of the consumer, likewise
    starved: float | None = None  # share of the time with something to do in which the clients waited for a processor

    def row(self, name: str) -> str:
        """A line of the table."""

        def both(times: list[float]) -> str:
            ordered = sorted(times)
            return f"{ordered[len(ordered) // 2]:5.2f} {ordered[-1]:6.2f}" if ordered else "    -      -"

        starved = "-" if self.starved is None else f"{self.starved:.0%}"
        return (
            f"{name:<18}{self.events:>7}{self.sends:>9}{len(self.failures):>8}   {both(self.sends_longest)}   "
            f"{both(self.silence_longest)}   {both(self.hunger_longest)}   {starved:>11}"
        )


HEADER = (
    "event               events    sends  failed   longest send   without an ack   consumer waits   no processor\n"
    "                                              median    max    median    max    median    max  (s)"
)


@dataclass
class Failover:
    """One cluster, its clients, and what they felt.

    Attributes:
        felt: by kind of event.
        acknowledged, consumed: message ids.
    """

    folder: Path
    felt: dict[str, Felt] = field(default_factory=dict)
    acknowledged: set[str] = field(default_factory=set)
    consumed: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.cluster = Cluster(self.folder, has_links=False, name_servers=2)
        self._now = Felt()
        self._under_way: dict[int, float] = {}
        self._acked_at = self._consumed_at = time.monotonic()
        self._longest_send = self._longest_silence = self._longest_hunger = 0.0

    # --- clients ---

    async def _produce(self, number: int) -> None:
        async with Producer(self._config(f"failover_{number}"), system_environment()) as producer:
            while True:
                began = self._under_way[number] = time.monotonic()
                self._now.sends += 1
                try:
                    result = await producer.send(Message(TOPIC, b"x" * 100))
                except MaxQError as error:
                    self._now.failures.append(f"after {time.monotonic() - began:.2f} s: {error}")
                else:
                    self.acknowledged.add(result.msg_id)
                    self._acknowledged_now()
                self._longest_send = max(self._longest_send, time.monotonic() - began)
                await asyncio.sleep(_REST_S)

    def _config(self, group: str) -> ProducerConfig:
        return ProducerConfig(
            namesrv_addr=self.cluster.name_server_address, producer_group=group, instance_name=group,
            send_msg_timeout=TIMEOUT_MS,
        )  # fmt: skip

    def _acknowledged_now(self) -> None:
        now = time.monotonic()
        self._longest_silence = max(self._longest_silence, now - self._acked_at)
        self._acked_at = now

    def _listen(self, messages: list[MessageExt], context: ConsumeContext) -> ConsumeResult:
        self.consumed.update(message.msg_id for message in messages)
        now = time.monotonic()
        self._longest_hunger = max(self._longest_hunger, now - self._consumed_at)
        self._consumed_at = now
        return ConsumeResult.SUCCESS

    # --- events ---

    async def hand_over(self) -> None:
        """`dledgerTransfer` to the next member."""
        leader = await self._leader()
        await self.cluster.client.transfer(self._after(leader).name)
        await self._until_another_leads(leader)

    async def kill(self) -> None:
        """kill -9 of the leader, and a start after another one leads."""
        leader = await self._leader()
        await leader.kill()
        await self._until_another_leads(leader)
        await leader.start()

    async def pause(self) -> None:
        """The leader stands still (SIGSTOP)."""
        leader = await self._leader()
        leader.pause()
        try:
            await asyncio.sleep(PAUSE_S)
        finally:
            leader.go_on()
        await self._until_another_leads(leader)

    async def rolling_restart(self) -> None:
        """SIGTERM and start of one member after the other."""
        for member in self.cluster.members:
            await member.stop()
            await member.start()
            await self._until_equal()

    async def name_server_hangs(self) -> None:
        """One of two name servers stands still; a producer that is made then sends; the leader is handed over."""
        name_server = self.cluster.name_servers[self._now.events % 2]
        name_server.pause()
        try:
            await self._new_producer_sends(f"newcomer_h{self._now.events}")
            await self.hand_over()
            await self._new_producer_sends(f"newcomer_i{self._now.events}")
        finally:
            name_server.go_on()

    async def name_servers_restart(self) -> None:
        """Both name servers end and begin again; a producer that is made then sends."""
        for name_server in self.cluster.name_servers:
            await name_server.stop()
        for name_server in self.cluster.name_servers:
            await name_server.start()
        await self._new_producer_sends(f"newcomer_r{self._now.events}")

    async def _new_producer_sends(self, group: str) -> None:
        began = time.monotonic()
        self._now.sends += 1
        try:
            async with Producer(self._config(group), system_environment()) as producer:
                result = await producer.send(Message(TOPIC, b"new"))
                self.acknowledged.add(result.msg_id)
                self._longest_send = max(self._longest_send, time.monotonic() - began)
        except MaxQError as error:
            self._now.failures.append(f"a new producer, after {time.monotonic() - began:.2f} s: {error}")

    # --- one after the other ---

    async def repeat(self, event: Callable[[], Awaitable[None]], times: int) -> Felt:
        """Let `event` happen so often; what was felt of it."""
        name = event.__name__.replace("_", " ")
        self._now = felt = self.felt.setdefault(name, Felt())
        ran_before, waited_before = processor_ns()
        for _ in range(times):
            await self._until_calm()
            now = self._acked_at = self._consumed_at = time.monotonic()
            self._longest_send = self._longest_silence = self._longest_hunger = 0.0
            await event()
            await self._until_calm()
            felt.events += 1
            self._acknowledged_now()
            self._longest_send = max(
                [self._longest_send, *(time.monotonic() - max(began, now) for began in self._under_way.values())]
            )
            felt.sends_longest.append(self._longest_send)
            felt.silence_longest.append(self._longest_silence)
            felt.hunger_longest.append(self._longest_hunger)
        ran, waited = processor_ns()
        wanted = ran - ran_before + waited - waited_before
        felt.starved = (waited - waited_before) / wanted if wanted else None
        return felt

    async def _until_calm(self) -> None:
        """All members are equal, and clients had a quiet while."""
        await self._until_equal()
        acked, consumed = self._acked_at, self._consumed_at
        await self._until(lambda: self._acked_at > acked and self._consumed_at > consumed, "nothing goes through")
        await asyncio.sleep(_CALM_S)

    async def _leader(self) -> Member:
        found: list[Member] = []

        async def leads() -> bool:
            leader = await self.cluster.leader()
            found.extend([] if leader is None else [leader])
            return bool(found)

        await self._until(leads, "nobody leads")
        return found[0]

    async def _until_another_leads(self, but: Member) -> None:
        async def another() -> bool:
            return await self.cluster.leader() not in (None, but)

        await self._until(another, f"{but.name} goes on leading")

    def _after(self, member: Member) -> Member:
        members = self.cluster.members
        return members[(members.index(member) + 1) % len(members)]

    async def _until_equal(self) -> None:
        """The members follow one leader closely, in one term."""

        async def equal() -> bool:
            said = [await self.cluster.status(member) for member in self.cluster.members]
            if not all(said):
                return False
            ends = [int(status["committedIndex"]) for status in said]
            terms = {status["term"] for status in said}
            return len(terms) == 1 and any(one["role"] == "LEADER" for one in said) and max(ends) - min(ends) < 200

        await self._until(equal, "the members do not become equal")

    async def _until(self, holds: Callable[[], Awaitable[bool] | bool], otherwise: str) -> None:
        try:
            async with asyncio.timeout(_PATIENCE_S):
                while True:
                    outcome = holds()
                    if outcome if isinstance(outcome, bool) else await outcome:
                        return
                    await asyncio.sleep(_POLL_S)
        except TimeoutError:
            said = [f"{member.name}: {await self.cluster.status(member)}" for member in self.cluster.members]
            failed = [failure for felt in self.felt.values() for failure in felt.failures][-3:]
            raise AssertionError("\n".join([f"{otherwise} for {_PATIENCE_S:g} s", *said, *failed])) from None

    # --- beginning and end ---

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Cluster and clients; at the end everything acknowledged must have been consumed."""
        try:
            await self.cluster.start()
            await self._create_topic()
            consumer = PushConsumer(
                PushConsumerConfig(
                    namesrv_addr=self.cluster.name_server_address, consumer_group="failover_readers",
                    instance_name="failover-readers", consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
                ),
                system_environment(), self._listen,
            )  # fmt: skip
            consumer.subscribe(TOPIC)
            producing = [asyncio.ensure_future(self._produce(number)) for number in range(PRODUCERS)]
            try:
                async with consumer:
                    yield
                    for task in producing:
                        task.cancel()
                    await asyncio.gather(*producing, return_exceptions=True)
                    await self._until(lambda: self.acknowledged <= self.consumed, "acknowledged and not consumed")
            finally:
                for task in producing:
                    task.cancel()
                outcomes = await asyncio.gather(*producing, return_exceptions=True)
            errors = [one for one in outcomes if isinstance(one, Exception)]
            if errors:
                raise errors[0]
        finally:
            await self.cluster.end()

    async def _create_topic(self) -> None:
        async with Admin(ClientConfig(namesrv_addr=self.cluster.name_server_address), system_environment()) as admin:

            async def created() -> bool:
                with contextlib.suppress(MaxQError):  # not elected yet
                    for master in await admin.brokers.masters_of_cluster("TortureCluster"):
                        await admin.topics.create(master, TopicConfig(TOPIC, 4, 4))
                        return True
                return False

            await self._until(created, "no master takes the topic")

    def table(self) -> str:
        """What was felt, and what failed."""
        lines = [HEADER, *(felt.row(name) for name, felt in self.felt.items())]
        for name, felt in self.felt.items():
            lines += [f"{name}: {failure}" for failure in felt.failures[:5]]
        return "\n".join(lines)


async def run(folder: Path, counts: dict[str, int]) -> Failover:
    """Let happen what `counts` says: name of a method → how often."""
    story = Failover(folder)
    async with story.running():
        for name, count in counts.items():
            if count:
                felt = await story.repeat(getattr(story, name), count)
                print(felt.row(name.replace("_", " ")), file=sys.stderr, flush=True)
    return story


def main() -> int:
    parser = argparse.ArgumentParser(description="what clients feel of fail-overs")
    for name, default in COUNTS.items():
        option = "--" + name.replace("_", "-")
        parser.add_argument(option, dest=name, type=int, default=default)
    counts = vars(parser.parse_args())
    with tempfile.TemporaryDirectory(prefix="maxq-failover-") as folder:
        story = asyncio.run(run(Path(folder), counts))
    print(story.table())
    return 1 if any(felt.failures for felt in story.felt.values()) else 0


COUNTS = {
    "hand_over": 50, "kill": 50, "pause": 50, "rolling_restart": 20, "name_server_hangs": 5, "name_servers_restart": 5,
}  # fmt: skip

if __name__ == "__main__":
    sys.exit(main())
