"""The memory of our clients over an hour: producers that send as fast as they are told to, and consumers that are
slower than what comes, each a process of its own.

    python -m tests.integration.soak.soak_clients --minutes 60 --rate 20000

A producer sends with `send_many`, another one with many `send` at a time; consumers push to coroutine listeners and to
listeners on threads, poll, and iterate in a thread. Each consumer does fewer messages a second than arrive, so that
what it may hold is always full and what it has not taken grows at the broker. Anonymous memory of each process
(RssAnon) is read at intervals; once the first part is over (`WARM`), it may not grow by more than ALLOWED_KIB. Prints a
JSON object for each look and one at the end; exit 1 if one has grown. Rates are told as they were: a machine that is
busy gives less.
"""

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from maxq.aio import LitePullConsumer, Producer, PushConsumer
from maxq.api import ConsumeFromWhere, Message, MessageExt, async_admin
from maxq.api import LitePullConsumer as BlockingLitePullConsumer
from maxq.api import PushConsumer as BlockingPushConsumer
from maxq.errors import MaxQError
from maxq.protocol.body.topic_config import TopicConfig
from maxq.testing.server_process import StandaloneProcess

TOPIC: Final = "SoakClients"
QUEUES: Final = 8
WARM: Final = 0.25  # of the time: pools, caches and windows fill
_START_S: Final = 120.0  # in which each process must have begun its work
#: What may come and go between two parts of a run: arenas, and how full windows are just then.
ALLOWED_KIB: Final = 6 << 10
_LISTENERS: Final = 20
_SENDS_AT_ONCE: Final = 64
_FIRST: Final = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
_SETTINGS: Final = {"mappedFileSizeCommitLog": str(256 << 20)}


class Told:
    """Tells the parent how many messages were handled, once a second."""

    def __init__(self) -> None:
        self.count = 0
        threading.Thread(target=self._tell, daemon=True).start()

    def _tell(self) -> None:
        while True:
            time.sleep(1)
            print(self.count, flush=True)


# --- what the processes do; each for ever -----------------------------------------------------------------------------


async def _send_many(namesrv: str, rate: float, told: Told) -> None:
    async with Producer("SoakMany", namesrv) as producer:
        while True:
            began = time.monotonic()
            count = max(1, int(rate / 10))
            try:
                await producer.send_many(
                    Message(TOPIC, bytes(100), {"TAGS": "tag", "KEYS": f"key-{told.count + n}"}) for n in range(count)
                )
                told.count += count
            except MaxQError as error:
                print(error, file=sys.stderr, flush=True)
            await asyncio.sleep(max(0.0, began + count / rate - time.monotonic()))


async def _send(namesrv: str, rate: float, told: Told) -> None:
    async with Producer("SoakSend", namesrv) as producer:

        async def one() -> None:
            while True:
                began = time.monotonic()
                try:
                    await producer.send(Message(TOPIC, bytes(100), {"TAGS": "tag", "KEYS": f"key-{told.count}"}))
                    told.count += 1
                except MaxQError as error:
                    print(error, file=sys.stderr, flush=True)
                await asyncio.sleep(max(0.0, began + _SENDS_AT_ONCE / rate - time.monotonic()))

        await asyncio.gather(*(one() for _ in range(_SENDS_AT_ONCE)))


async def _push(namesrv: str, rate: float, told: Told) -> None:
    async def listener(messages: list[MessageExt], _: object) -> None:
        await asyncio.sleep(_LISTENERS * len(messages) / rate)
        told.count += len(messages)

    consumer = PushConsumer(
        "SoakPush", namesrv, listener, consume_from_where=_FIRST, consume_thread_nums=_LISTENERS,
        consume_message_batch_max_size=16,
    )  # fmt: skip
    consumer.subscribe(TOPIC)
    async with consumer:
        await asyncio.Event().wait()


def _push_threads(namesrv: str, rate: float, told: Told) -> None:
    def listener(messages: list[MessageExt], _: object) -> None:
        time.sleep(_LISTENERS * len(messages) / rate)
        told.count += len(messages)

    consumer = BlockingPushConsumer(
        "SoakThreads", namesrv, listener, consume_from_where=_FIRST, consume_thread_nums=_LISTENERS,
        consume_message_batch_max_size=16,
    )  # fmt: skip
    consumer.subscribe(TOPIC)
    with consumer:
        threading.Event().wait()


async def _poll(namesrv: str, rate: float, told: Told) -> None:
    consumer = LitePullConsumer("SoakPoll", namesrv, consume_from_where=_FIRST)
    await consumer.subscribe(TOPIC)
    async with consumer:
        while True:
            messages = await consumer.poll(1_000)
            await asyncio.sleep(len(messages) / rate)
            told.count += len(messages)


def _iterate(namesrv: str, rate: float, told: Told) -> None:
    with BlockingLitePullConsumer("SoakIterate", namesrv, consume_from_where=_FIRST) as consumer:
        consumer.subscribe(TOPIC)
        for _ in consumer:
            told.count += 1
            if told.count % 100 == 0:
                time.sleep(100 / rate)


#: Role → what it does, and which part of the rate it sends or does.
ROLES: Final[dict[str, tuple[Callable[[str, float, Told], Any], float]]] = {
    "send_many": (_send_many, 0.75), "send": (_send, 0.25), "push": (_push, 0.3), "push threads": (_push_threads, 0.3),
    "poll": (_poll, 0.3), "iterate": (_iterate, 0.3),
}  # fmt: skip


def _be(role: str, namesrv: str, rate: float) -> None:
    work, part = ROLES[role]
    done = work(namesrv, rate * part, Told())
    if asyncio.iscoroutine(done):
        asyncio.run(done)


# --- who looks at them ------------------------------------------------------------------------------------------------


class _Client:
    """A process with a role.

    Attributes:
        count: messages it has sent or done.
        memory_kib: RssAnon at each look.
    """

    def __init__(self, role: str, namesrv: str, rate: float) -> None:
        self.role = role
        self.count = 0
        self.memory_kib: list[int] = []
        command = [sys.executable, "-m", __spec__.name, "--role", role, "--namesrv", namesrv, "--rate", str(rate)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.count = int(line)

    def look(self) -> None:
        assert self.process.poll() is None, f"{self.role} has ended with {self.process.returncode}"
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        self.memory_kib.append(int(status.partition("RssAnon:")[2].split()[0]))

    def end(self) -> None:
        self.process.terminate()
        self.process.wait()

    def grown_kib(self) -> int:
        """Return by how much memory has grown from the first third of the looks behind the warm-up to the last one."""
        looks = self.memory_kib[int(len(self.memory_kib) * WARM) :]
        part = max(1, len(looks) // 3)
        return int(statistics.median(looks[-part:]) - statistics.median(looks[:part]))


async def _create(server: StandaloneProcess) -> None:
    async with async_admin(server.namesrv_address) as admin:
        await admin.topics.create(server.broker_address, TopicConfig(TOPIC, QUEUES, QUEUES))


def _wait_until_all_work(clients: list[_Client]) -> None:
    deadline = time.monotonic() + _START_S
    while idle := [client.role for client in clients if not client.count]:
        assert time.monotonic() < deadline, f"{idle} have done nothing in {_START_S} s"
        time.sleep(0.1)


def soak(seconds: float, rate: float, look_s: float, folder: Path, *, is_told: bool = True) -> dict[str, int]:
    """Run all roles for a while.

    Args:
        rate: messages a second that are sent.
        look_s: seconds between two looks.
        folder: for the broker's store.

    Returns:
        Role → how much its memory has grown, in KiB.
    """
    with StandaloneProcess(_SETTINGS, folder=folder) as server:
        asyncio.run(_create(server))
        clients = [_Client(role, server.namesrv_address, rate) for role in ROLES]
        try:
            _wait_until_all_work(clients)
            before = {client.role: client.count for client in clients}
            began = time.monotonic()
            while (passed := time.monotonic() - began) < seconds:
                time.sleep(min(look_s, seconds - passed))
                for client in clients:
                    client.look()
                if is_told:
                    passed = time.monotonic() - began
                    found = {
                        c.role: [c.memory_kib[-1] >> 10, round((c.count - before[c.role]) / passed)] for c in clients
                    }
                    print(json.dumps({"seconds": round(passed), "MiB and messages a second": found}), flush=True)
        finally:
            for client in clients:
                client.end()
    return {client.role: client.grown_kib() for client in clients}


def main() -> int:
    parser = argparse.ArgumentParser(description="Memory of clients over time.")
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--rate", type=float, default=20_000, help="messages a second that are sent")
    parser.add_argument("--look", type=float, default=10, help="seconds between two looks")
    parser.add_argument("--role", choices=ROLES, help=argparse.SUPPRESS)
    parser.add_argument("--namesrv", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.role:
        _be(given.role, given.namesrv, given.rate)
        return 0
    with tempfile.TemporaryDirectory(prefix="maxq-soak-") as folder:
        grown = soak(given.minutes * 60, given.rate, given.look, Path(folder))
    print(json.dumps({"grown KiB": grown, "allowed": ALLOWED_KIB}))
    return 1 if max(grown.values()) > ALLOWED_KIB else 0


if __name__ == "__main__":
    sys.exit(main())
