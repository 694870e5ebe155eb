"""Many who come and go: a server that strangers and friends have used for long holds what it held before.

Each round has names of its own for topics, groups and clients. Producers, readers that pop, transactions that are
committed, rolled back or never decided, clients that only say that they live, peeks, held pulls, peers that ask for
much and do not read, readers of HTTP pages, some of whom never ask, and brokers that a name server is told of: all of
them end, some by closing in the middle. Then the topics and groups are deleted. After some rounds that fill pools and
caches, what the process holds is counted: descriptors, asyncio tasks, threads, mapped files, connections, held pulls,
anonymous memory. At the end it is counted again, and nothing may have grown, apart from what `ALLOWED` says.

    python -m tests.integration.soak_torture --minutes 10 --seed 3
"""

import argparse
import asyncio
import contextlib
import random
import re
import socket
import tempfile
import time
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final

from maxq.api import (
    LocalTransactionState,
    Message,
    MessageExt,
    async_admin,
    async_producer,
    async_simple_consumer,
    async_transaction_producer,
)
from maxq.cli.load.server_process import StandaloneProcess
from maxq.codes import RequestCode
from maxq.config.netty_client_config import NettyClientConfig
from maxq.protocol.body.heartbeat import ConsumerData, HeartbeatData, ProducerData
from maxq.protocol.body.subscription import SubscriptionGroupConfig, build_subscription_data
from maxq.protocol.body.topic_config import TopicConfig
from maxq.protocol.header.pull import PeekMessageRequestHeader, PullMessageRequestHeader
from maxq.protocol.remoting_command import RemotingCommand
from maxq.remoting.client import RemotingClient
from maxq.runtime.system import SystemClock, SystemRng
from tests.integration.namesrv.harness import registering
from tests.integration.pop_places import until
from tests.interop.servers import free_port_base

CLUSTER: Final = "DefaultCluster"
CLIENTS: Final = 4  # of each kind in a round
SILENT_SECONDS: Final = 3  # after which the server closes who is silent or does not read
TIMEOUT_MS: Final = 10_000
MOST_STALLED: Final = 100
LARGE: Final = 256 << 10  # bytes of the messages that stalled readers ask for
_HOLD, _SUBSCRIPTION = 2, 4

SETTINGS: Final = {
    "mappedFileSizeCommitLog": str(1 << 30),
    "serverChannelMaxIdleTimeSeconds": str(SILENT_SECONDS),
    "transactionTimeOut": "500",
    "transactionCheckInterval": "500",
    "transactionCheckMax": "1",
    "transactionOpBatchInterval": "20",
    "metricsExporterType": "PROM",
}


@dataclass(frozen=True)
class Held:
    """What a server process holds. Mappings are those of files below its store; memory is RssAnon in KiB."""

    descriptors: int
    tasks: int
    threads: int
    mappings: int
    connections: int
    held_pulls: int
    memory_kib: int


#: Threads are made when work overlaps, up to the size of their pool. Memory comes in arenas, and counters per minute,
#: hour and day fill while the soak runs. A log, index or table that grew may have a descriptor or mapping more.
ALLOWED: Final = Held(descriptors=2, tasks=2, threads=6, mappings=2, connections=0, held_pulls=0, memory_kib=24 << 10)


class Local:
    """A body says by its first letter how its transaction ends; nobody knows the others when asked."""

    _STATES: Final = {
        "c": LocalTransactionState.COMMIT_MESSAGE, "r": LocalTransactionState.ROLLBACK_MESSAGE
    }  # fmt: skip

    def execute_local_transaction(self, message: Message, arg: Any) -> LocalTransactionState | None:
        return self._STATES.get(chr(message.body[0]))

    def check_local_transaction(self, message: MessageExt) -> LocalTransactionState | None:
        return None


class Soak:
    """One server and its rounds.

    Attributes:
        rounds: done so far.
        grown: what the last look found more of: before, and then.
    """

    def __init__(self, folder: Path, seed: int) -> None:
        self._http_port = free_port_base(1)
        settings = {**SETTINGS, "metricsPromExporterHost": "127.0.0.1", "metricsPromExporterPort": str(self._http_port)}
        self._server = StandaloneProcess(settings, folder=folder)
        self._rng = random.Random(seed)
        self._stalled: list[socket.socket] = []
        self.rounds = 0
        self.grown: dict[str, tuple[int, int]] = {}

    async def start(self) -> None:
        await asyncio.to_thread(self._server.start)

    async def end(self) -> int | None:
        """Its exit code."""
        for peer in self._stalled:
            peer.close()
        return await asyncio.to_thread(self._server.stop)

    @property
    def _namesrv(self) -> str:
        return self._server.namesrv_address

    @property
    def _broker(self) -> str:
        return f"{self._server.target.host}:{self._server.target.port}"

    # --- what is held ------------------------------------------------------------------------------------------------

    async def held(self) -> Held:
        """Now. The connection that asks is closed before it counts."""
        page = await self._page("/metrics")

        def number(name: str) -> int:
            found = re.search(rf"^{name}(?:\{{.*\}})? (\S+)$", page, re.MULTILINE)
            assert found, f"{name} is not among the metrics"
            return int(float(found[1]))

        process = Path(f"/proc/{self._server.pid}")
        status = (process / "status").read_text()
        return Held(
            descriptors=len(list((process / "fd").iterdir())),
            tasks=number("maxq_tasks"),
            threads=len(list((process / "task").iterdir())),
            mappings=(process / "maps").read_text().count(str(self._server.store)),
            connections=number("maxq_connections"),
            held_pulls=number("maxq_held_pulls"),
            memory_kib=int(status.partition("RssAnon:")[2].split()[0]),
        )

    async def quiet(self) -> Held:
        """What is held when nobody is connected."""

        async def nobody_is_connected() -> bool:
            return (await self.held()).connections == 0

        await until(nobody_is_connected, "nobody is connected")
        return await self.held()

    async def settled(self, before: Held) -> Held:
        """What is held when all that ends by itself has ended; AssertionError if it does not."""

        async def nothing_has_grown() -> bool:
            self.grown = grown(before, await self.held())
            return not self.grown

        try:
            await until(nothing_has_grown, "nothing has grown")
        except AssertionError:
            raise AssertionError(
                f"after {self.rounds} rounds the server holds more (before, now): {self.grown}"
            ) from None
        return await self.held()

    async def _page(self, path: str) -> str:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._http_port)
        try:
            writer.write(f"GET {path} HTTP/1.1\r\nHost: soak\r\nConnection: close\r\n\r\n".encode())
            return (await reader.read()).decode()
        finally:
            writer.close()
            await writer.wait_closed()

    # --- one round ---------------------------------------------------------------------------------------------------

    async def round(self) -> None:
        """Everybody comes and goes once."""
        self.rounds += 1
        name = f"Soak{self.rounds}"
        async with async_admin(self._namesrv) as admin:
            await admin.topics.create_in_cluster(CLUSTER, TopicConfig(name, 4, 4))
            await admin.groups.create_in_cluster(CLUSTER, SubscriptionGroupConfig(f"{name}G"))
            work = [self._produce(name, number) for number in range(CLIENTS)]
            work += [self._pop(name) for _ in range(CLIENTS)]
            work += [self._strange(name, number) for number in range(CLIENTS)]
            work += [self._stall(name) for _ in range(CLIENTS)]
            work += [self._transact(name), self._read_pages(), self._register(name)]
            self._rng.shuffle(work)
            await asyncio.gather(*work)
            for topic in (await admin.topics.all_configs(self._broker)).topic_config_table:
                if name in topic:
                    await admin.topics.delete(topic, CLUSTER)
            for group in (await admin.groups.all_configs(self._broker)).subscription_group_table:
                if name in group:
                    await admin.groups.delete(self._broker, group, clean_offset=True)

    async def _produce(self, name: str, number: int) -> None:
        async with async_producer(f"{name}P{number}", self._namesrv, instance_name=f"{name}-{number}") as producer:
            for body in (b"small", bytes(LARGE), b"small"):
                await producer.send(Message(name, body, {"TAGS": f"tag{number}", "KEYS": f"{name}-{number}"}))

    async def _pop(self, name: str) -> None:
        """Half of what comes is acknowledged, the rest is left behind."""
        consumer = async_simple_consumer(f"{name}G", self._namesrv, instance_name=f"{name}-{self._rng.random()}")
        async with consumer:
            await consumer.subscribe(name)
            messages = await consumer.receive(8, invisible_ms=1_000, wait_ms=300)
            await consumer.ack_all(messages[: len(messages) // 2])

    async def _strange(self, name: str, number: int) -> None:
        """Heart-beats, peeks of made-up groups, a pull that is held, and the line is cut."""
        async with self._raw() as client:
            for at in range(CLIENTS):
                group = f"{name}H{number}-{at}"
                subscription = build_subscription_data(name, f"tag{at}", "TAG", sub_version=1)
                body = HeartbeatData(
                    f"{name}-{number}-{at}",
                    [ProducerData(group)],
                    [ConsumerData(group, subscription_data_set=[subscription])],
                )
                await client.invoke(
                    self._broker, RemotingCommand(RequestCode.HEART_BEAT, body=body.encode()), TIMEOUT_MS
                )
                peek = PeekMessageRequestHeader(name, -1, 4, group)
                await client.invoke(self._broker, RemotingCommand(RequestCode.PEEK_MESSAGE, peek.encode()), TIMEOUT_MS)
            held = _pull(f"{name}H{number}-0", name, 3, 1 << 20, wait_ms=60_000, flag=_HOLD | _SUBSCRIPTION)
            with contextlib.suppress(Exception):  # whether it is held or answered, the line is cut soon
                await asyncio.wait_for(client.invoke(self._broker, held, TIMEOUT_MS), 0.2)

    async def _stall(self, name: str) -> None:
        """Asks for much and reads nothing. Some go by themselves; the others stay until the server cuts them off."""
        peer = socket.socket()
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        peer.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(peer, ("127.0.0.1", self._server.target.port))
        for at in range(40):
            request = _pull(f"{name}G", name, at % 4, 0, wait_ms=0, flag=_SUBSCRIPTION)
            request.opaque = at
            await loop.sock_sendall(peer, request.encode())
        if self._rng.random() < 0.5:
            peer.close()
        else:
            self._stalled.append(peer)
            if len(self._stalled) > MOST_STALLED:
                self._stalled.pop(0).close()

    async def _transact(self, name: str) -> None:
        async with async_transaction_producer(f"{name}T", self._namesrv, Local()) as producer:
            for text in ("commit", "rollback", "undecided"):
                await producer.send_message_in_transaction(Message(name, text.encode()))

    async def _read_pages(self) -> None:
        silent = [await asyncio.open_connection("127.0.0.1", self._http_port) for _ in range(CLIENTS)]
        for path in ("/metrics", "/health", "/ready", "/nowhere"):
            await self._page(path)
        for _, writer in silent:
            writer.transport.abort()

    async def _register(self, name: str) -> None:
        """A broker that a name server is told of, and whose line is cut."""
        async with self._raw() as client:
            request = registering(
                f"{name}Elsewhere", f"{name}There", name=f"{name}B", addr=f"127.0.0.1:{self.rounds % 60_000 + 1}"
            )
            await client.invoke(self._namesrv, request, TIMEOUT_MS)

    @contextlib.asynccontextmanager
    async def _raw(self) -> Any:
        client = RemotingClient(NettyClientConfig(), clock=SystemClock(), rng=SystemRng())
        try:
            yield client
        finally:
            await client.close()


def _pull(group: str, topic: str, queue_id: int, offset: int, *, wait_ms: int, flag: int) -> RemotingCommand:
    header = PullMessageRequestHeader(group, topic, queue_id, offset, 32, flag, 0, wait_ms, 0, "*", "TAG")
    return RemotingCommand(RequestCode.PULL_MESSAGE, header.encode())


def grown(before: Held, now: Held) -> dict[str, tuple[int, int]]:
    """What grew by more than is allowed: before, and now."""
    pairs = {field.name: (getattr(before, field.name), getattr(now, field.name)) for field in fields(Held)}
    return {name: (was, is_) for name, (was, is_) in pairs.items() if is_ > was + getattr(ALLOWED, name)}


async def soak(folder: Path, seconds: float, seed: int, *, warm_up: int = 3, say: bool = False) -> tuple[Held, Held]:
    """Rounds for so long after `warm_up` others. What was held before and after; AssertionError for what grew."""
    run = Soak(folder, seed)
    await run.start()
    try:
        for _ in range(warm_up):
            await run.round()
        before = await run.quiet()
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            await run.round()
            if say:
                print(f"round {run.rounds}: {await run.held()}", flush=True)
        after = await run.settled(before)
    finally:
        code = await run.end()
    assert code == 0, f"the server ended with {code}"
    return before, after


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="maxq-soak-") as folder:
        before, after = asyncio.run(soak(Path(folder), options.minutes * 60, options.seed, warm_up=20, say=True))
    print(f"before: {before}\nafter:  {after}")


if __name__ == "__main__":
    main()
