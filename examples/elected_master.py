"""Three brokers elect their master, which is killed three times under load; nothing that was acknowledged is lost.

A name server and three brokers of one DLedger group run as processes of their own. Producers send all the time; what
was acknowledged is written down and must be found in the end. A killed broker comes back as a slave of the next master
and catches up. The clients are the asynchronous ones.
"""

import asyncio
import sys
import time
from contextlib import suppress
from pathlib import Path

from examples.helpers import PATIENCE_SECONDS, broker, free_port, name_server, run_example, say
from maxq.aio import (
    Admin,
    ConsumeContext,
    ConsumeFromWhere,
    Message,
    MessageExt,
    Producer,
    PushConsumer,
    SendStatus,
    system_environment,
)
from maxq.client.instance.dledger_client import DLedgerClient
from maxq.errors import MaxQError
from maxq.machine import new_event_loop
from maxq.protocol.body.topic_config import TopicConfig
from maxq.testing.server_process import ServerProcess

TOPIC = "Payments"
GROUP = "ledger"
KILLS = 3
MEMBERS = ("n0", "n1", "n2")
PRODUCERS = 8
LOAD_SECONDS = 2.0  # between a fail-over and the next kill
LOOK_SECONDS = 0.01


class Group:
    """Name server and three brokers below one folder."""

    def __init__(self, folder: Path) -> None:
        port = free_port()
        self.namesrv_address = f"127.0.0.1:{port}"
        self.namesrv = name_server(folder, port)
        ports = {member: free_port(-2, 1, 30) for member in MEMBERS}
        self.peers = {member: f"127.0.0.1:{ports[member] + 30}" for member in MEMBERS}
        dledger = {
            "enableDLegerCommitLog": "true",
            "dLegerGroup": "broker-a",
            "dLegerPeers": ";".join(f"{member}-{address}" for member, address in self.peers.items()),
        }
        self.brokers = {
            member: broker(member, folder, self.namesrv_address, ports[member], dLegerSelfId=member, **dledger)
            for member in MEMBERS
        }
        self.servers: list[ServerProcess] = [self.namesrv, *self.brokers.values()]

    async def start(self) -> None:
        """Start the name server, then all brokers at once."""
        await asyncio.to_thread(self.namesrv.start)
        await asyncio.gather(*(asyncio.to_thread(server.start) for server in self.brokers.values()))

    async def create_topic(self) -> None:
        """Create the topic on the master, as soon as the name server knows one."""
        async with Admin(self.namesrv_address) as admin, asyncio.timeout(PATIENCE_SECONDS):
            while True:
                try:
                    (master,) = await admin.brokers.masters_of_cluster("DefaultCluster")
                    return await admin.topics.create(master, TopicConfig(TOPIC, 4, 4))
                except (MaxQError, ValueError):
                    await asyncio.sleep(LOOK_SECONDS)


class Load:
    """Producers that send one message after the other, each acknowledged before the next."""

    def __init__(self, namesrv_address: str) -> None:
        self.namesrv_address = namesrv_address
        self.acknowledged: set[bytes] = set()  # bodies
        self.failed = 0
        self.has_ended = False
        self._since = 0.0
        self._first = asyncio.Event()  # a message that was sent after `_since` was acknowledged

    async def run(self, number: int) -> None:
        """Send as producer `number` until the load ends."""
        producer = Producer(
            "payments",
            self.namesrv_address,
            instance_name=f"producer-{number}",
            send_msg_timeout=3000,
            retry_times_when_send_failed=0,
        )
        count = 0
        async with producer:
            while not self.has_ended:
                body, sent_at = f"{number}-{count}".encode(), time.monotonic()
                count += 1
                try:
                    result = await producer.send(Message(TOPIC, body))
                except MaxQError:
                    self.failed += 1
                    await asyncio.sleep(LOOK_SECONDS)
                    continue
                if result.send_status is SendStatus.SEND_OK:
                    self.acknowledged.add(body)
                    if sent_at >= self._since:
                        self._first.set()

    def begin_fail_over(self, moment: float) -> None:
        """Count from `moment` (of the monotonic clock) on."""
        self._since = moment
        self._first.clear()

    async def fail_over_seconds(self) -> float:
        """Seconds from the beginning of the fail-over to the first acknowledgement of a message sent after it."""
        await asyncio.wait_for(self._first.wait(), PATIENCE_SECONDS)
        return time.monotonic() - self._since


async def leader_of(client: DLedgerClient, *, but: str | None = None) -> str:
    """Id of the member that leads; `but` is dead."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            for member in MEMBERS:
                if member == but:
                    continue
                try:
                    leader = (await client.metadata(member)).leader_id
                except MaxQError:  # it does not answer
                    continue
                if leader not in (None, but):
                    return str(leader)
            await asyncio.sleep(LOOK_SECONDS)


async def tell(group: Group) -> None:
    """All steps in order; MaxQError if one does not hold."""
    began = time.monotonic()
    await group.start()
    environment = system_environment(group.namesrv_address)
    client = DLedgerClient("broker-a", group.peers, clock=environment.clock, rng=environment.rng)
    leader = await leader_of(client)
    await group.create_topic()
    load = Load(group.namesrv_address)
    load.begin_fail_over(began)
    producers = [asyncio.create_task(load.run(number)) for number in range(PRODUCERS)]
    seconds = await load.fail_over_seconds()
    since = f"first message acknowledged {seconds:.2f} s after the cold start"
    say("servers", f"three brokers; {leader} was elected; {since}")
    for _ in range(KILLS):
        await asyncio.sleep(LOAD_SECONDS)
        leader = await kill(group, client, load, leader)
    await asyncio.sleep(LOAD_SECONDS)
    load.has_ended = True
    await asyncio.gather(*producers)
    await hand_over(client, leader)
    await client.close()
    await find(group, load)


async def kill(group: Group, client: DLedgerClient, load: Load, leader: str) -> str:
    """Kill the master, and start it again when another one acknowledges; returns who that is."""
    before = len(load.acknowledged)
    load.begin_fail_over(time.monotonic())
    await asyncio.to_thread(group.brokers[leader].kill)
    seconds = await load.fail_over_seconds()
    new = await leader_of(client, but=leader)
    say("kill -9", f"{leader}, the master, after {before:,} acknowledged; {new} acknowledges {seconds:.2f} s later")
    await asyncio.to_thread(group.brokers[leader].start_again)
    return new


async def hand_over(client: DLedgerClient, leader: str) -> None:
    """Hand the leadership over without any kill."""
    to = next(member for member in MEMBERS if member != leader)
    began = time.monotonic()
    await client.transfer(to)
    say("transfer", f"{leader} hands over to {to} in {1000 * (time.monotonic() - began):.0f} ms")


async def find(group: Group, load: Load) -> None:
    """Read everything, and hold it against what was acknowledged."""
    found: set[bytes] = set()
    again = 0
    complete = asyncio.Event()

    async def listen(messages: list[MessageExt], context: ConsumeContext) -> None:
        nonlocal again
        for message in messages:
            again += bytes(message.body) in found
            found.add(bytes(message.body))
        if load.acknowledged <= found:
            complete.set()

    consumer = PushConsumer(
        GROUP,
        group.namesrv_address,
        listen,
        consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        consume_message_batch_max_size=32,
    )
    consumer.subscribe(TOPIC)
    async with consumer:
        with suppress(TimeoutError):  # what is missing then is counted
            await asyncio.wait_for(complete.wait(), PATIENCE_SECONDS)
    lost = len(load.acknowledged - found)
    counts = f"found {len(found):,} ({again} twice), refused or unknown {load.failed:,}, lost {lost}"
    say("result", f"acknowledged {len(load.acknowledged):,}, {counts}")
    if lost:
        raise MaxQError(f"{lost} acknowledged messages are lost")


def example(folder: Path) -> None:
    """Run the account on servers below `folder`."""
    group = Group(folder)
    try:
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            runner.run(tell(group))
    finally:
        for server in reversed(group.servers):
            server.stop()


if __name__ == "__main__":
    sys.exit(run_example(example))
