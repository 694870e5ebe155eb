"""The demonstration behind `make demo-dledger`: three brokers elect their master; it is killed three times under load.

A name server and three brokers of one DLedger group run as processes of their own; the client library does the rest.
Producers send all the time; what was acknowledged is written down and must be found in the end. A killed broker comes
back as a slave of the next master, and catches up. The exit code is 0 only if nothing is lost.
"""

import asyncio
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from maxq.cli.demo import say
from maxq.cli.load.server_process import ServerProcess
from maxq.client.admin.admin import Admin
from maxq.client.client_config import ClientConfig, ClientSeams, ProducerConfig, PushConsumerConfig
from maxq.client.consumer.push_consumer import PushConsumer
from maxq.client.instance.dledger_client import DLedgerClient
from maxq.client.producer.producer import Producer
from maxq.client.results.consume_result import ConsumeContext, ConsumeResult
from maxq.client.results.send_result import SendStatus
from maxq.errors import MaxQError
from maxq.machine import new_event_loop, system_seams
from maxq.protocol.body.topic_config import TopicConfig
from maxq.protocol.enums import ConsumeFromWhere
from maxq.protocol.message.message import Message, MessageExt
from maxq.runtime.files.system import SystemRng
from maxq.standalone import free_ports

TOPIC = "Payments"
GROUP = "ledger"
KILLS = 3
MEMBERS = ("n0", "n1", "n2")
_PRODUCERS = 8
_LOAD_SECONDS = 2.0  # between a fail-over and the next kill
_PATIENCE_SECONDS = 60.0
_LOOK_SECONDS = 0.01


class Group:
    """Name server and three brokers below one folder."""

    def __init__(self, folder: Path, **settings: str) -> None:
        rng = SystemRng()
        self.folder = folder
        port = free_ports(rng, "127.0.0.1", ())
        self.namesrv_address = f"127.0.0.1:{port}"
        self.namesrv = ServerProcess("namesrv", folder, ["namesrv", "-p", str(port)])
        ports = {member: free_ports(rng, "127.0.0.1", (-2, 1, 30)) for member in MEMBERS}
        self.addresses = {member: f"127.0.0.1:{port}" for member, port in ports.items()}
        self.peers = {member: f"127.0.0.1:{port + 30}" for member, port in ports.items()}
        self.brokers = {member: self._broker(member, ports[member], settings) for member in MEMBERS}

    def _broker(self, member: str, port: int, more: dict[str, str]) -> ServerProcess:
        settings = {
            "brokerName": "broker-a",
            "brokerIP1": "127.0.0.1",
            "listenPort": str(port),
            "namesrvAddr": self.namesrv_address,
            "storePathRootDir": str(self.folder / member),
            "slaveReadEnable": "true",
            "enableDLegerCommitLog": "true",
            "dLegerGroup": "broker-a",
            "dLegerPeers": ";".join(f"{peer}-{address}" for peer, address in self.peers.items()),
            "dLegerSelfId": member,
            **more,
        }
        self.folder.mkdir(parents=True, exist_ok=True)
        conf = self.folder / f"{member}.conf"
        conf.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        return ServerProcess(member, self.folder, ["broker", "-c", str(conf)])

    def servers(self) -> list[ServerProcess]:
        return [*self.brokers.values(), self.namesrv]


@dataclass
class Load:
    """Producers that send one message after the other, each acknowledged before the next.

    Attributes:
        acknowledged: bodies of the messages that were.
        acknowledged_at: when the latest one that was *sent* after `sent_after` was acknowledged first.
    """

    namesrv_address: str
    acknowledged: set[bytes] = field(default_factory=set)
    failed: int = 0
    ended: bool = False
    sent_after: float = 0.0
    acknowledged_at: float = 0.0

    async def run(self, number: int, seams: ClientSeams) -> None:
        config = ProducerConfig(
            namesrv_addr=self.namesrv_address, producer_group="payments", instance_name=f"producer-{number}",
            send_msg_timeout=3000, retry_times_when_send_failed=0,
        )  # fmt: skip
        async with Producer(config, seams) as producer:
            count = 0
            while not self.ended:
                body = f"{number}-{count}".encode()
                count += 1
                began = time.monotonic()
                try:
                    result = await producer.send(Message(TOPIC, body))
                except MaxQError:
                    self.failed += 1
                    await asyncio.sleep(_LOOK_SECONDS)
                    continue
                if result.send_status is SendStatus.SEND_OK:
                    self.acknowledged.add(body)
                    if began >= self.sent_after and not self.acknowledged_at:
                        self.acknowledged_at = time.monotonic()

    def kill_at(self, moment: float) -> None:
        """The next fail-over began at `moment`."""
        self.sent_after, self.acknowledged_at = moment, 0.0

    async def fail_over_seconds(self) -> float:
        """From the kill to the first acknowledgement of a message sent after it."""
        async with asyncio.timeout(_PATIENCE_SECONDS):
            while not self.acknowledged_at:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
        return self.acknowledged_at - self.sent_after


async def leader_of(client: DLedgerClient, *, but: str | None = None) -> str:
    """Id of the member that leads; `but` is dead."""
    async with asyncio.timeout(_PATIENCE_SECONDS):
        while True:
            for member in MEMBERS:
                leader = None if member == but else await _known_leader(client, member)
                if leader not in (None, but):
                    return str(leader)
            await asyncio.sleep(_LOOK_SECONDS)


async def _known_leader(client: DLedgerClient, member: str) -> str | None:
    """Whom `member` takes for the leader; None if it knows of none, or does not answer."""
    try:
        return (await client.metadata(member)).leader_id
    except MaxQError:
        return None


async def run(group: Group) -> None:
    """All steps in order; MaxQError if one does not hold."""
    seams = system_seams(group.namesrv_address)
    began = time.monotonic()
    await asyncio.to_thread(group.namesrv.start)
    await asyncio.gather(*(asyncio.to_thread(broker.start) for broker in group.brokers.values()))
    client = DLedgerClient("broker-a", group.peers, clock=seams.clock, rng=seams.rng)
    leader = await leader_of(client)
    await create_topic(group, seams)
    load = Load(group.namesrv_address)
    load.kill_at(began)
    producers = [asyncio.create_task(load.run(number, seams)) for number in range(_PRODUCERS)]
    first = await load.fail_over_seconds()
    say(
        "servers", f"three brokers; {leader} was elected; first message acknowledged {first:.2f} s after the cold start"
    )
    for _ in range(KILLS):
        await asyncio.sleep(_LOAD_SECONDS)
        leader = await _kill(group, client, load, leader)
    await asyncio.sleep(_LOAD_SECONDS)
    load.ended = True
    await asyncio.gather(*producers)
    await _transfer(client, leader)
    await client.close()
    await _find(group, seams, load)


async def create_topic(group: Group, seams: ClientSeams) -> None:
    """On the master, as soon as the name server knows one."""
    async with (
        asyncio.timeout(_PATIENCE_SECONDS),
        Admin(ClientConfig(namesrv_addr=group.namesrv_address), seams) as admin,
    ):
        while True:
            try:
                masters = await admin.brokers.masters_of_cluster("DefaultCluster")
                for master in masters:
                    await admin.topics.create(master, TopicConfig(TOPIC, 4, 4))
                if masters:
                    return
            except MaxQError:
                pass  # it is not elected yet
            await asyncio.sleep(_LOOK_SECONDS)


async def _kill(group: Group, client: DLedgerClient, load: Load, leader: str) -> str:
    before = len(load.acknowledged)
    load.kill_at(time.monotonic())
    await asyncio.to_thread(group.brokers[leader].kill)
    seconds = await load.fail_over_seconds()
    new = await leader_of(client, but=leader)
    say("kill -9", f"{leader}, the master, after {before:,} acknowledged; {new} acknowledges {seconds:.2f} s later")
    await asyncio.to_thread(group.brokers[leader].start_again)
    return new


async def _transfer(client: DLedgerClient, leader: str) -> None:
    to = next(member for member in MEMBERS if member != leader)
    began = time.monotonic()
    await client.transfer(to)
    say("transfer", f"{leader} hands over to {to} in {1000 * (time.monotonic() - began):.0f} ms")


async def _find(group: Group, seams: ClientSeams, load: Load) -> None:
    found: set[bytes] = set()
    again = 0

    async def listen(messages: list[MessageExt], context: ConsumeContext) -> ConsumeResult | None:
        nonlocal again
        for message in messages:
            again += bytes(message.body) in found
            found.add(bytes(message.body))
        return None

    config = PushConsumerConfig(
        namesrv_addr=group.namesrv_address, consumer_group=GROUP,
        consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET, consume_message_batch_max_size=32,
    )  # fmt: skip
    consumer = PushConsumer(config, seams, listen)
    consumer.subscribe(TOPIC)
    await consumer.start()
    end = time.monotonic() + _PATIENCE_SECONDS
    while not load.acknowledged <= found and time.monotonic() < end:  # noqa: ASYNC110
        await asyncio.sleep(0.05)
    await consumer.shutdown()
    lost = len(load.acknowledged - found)
    say(
        "result",
        f"acknowledged {len(load.acknowledged):,}, found {len(found):,} ({again} twice), refused or unknown "
        f"{load.failed:,}, lost {lost}",
    )
    if lost:
        raise MaxQError(f"{lost} acknowledged messages are lost")


def main() -> int:
    """Run the demonstration on a temporary folder."""
    folder = Path(tempfile.mkdtemp(prefix="maxq-dledger-"))
    group = Group(folder)
    try:
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            runner.run(run(group))
    except (MaxQError, OSError, TimeoutError) as error:
        print(f"maxq: {error or type(error).__name__}", file=sys.stderr)
        return 1
    finally:
        for server in group.servers():
            server.stop()
        shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
