"""The demonstration behind `make run`: the source text of Python's standard library, line by line, through a broker.

A standalone server is started as a process of its own; everything else goes through the client library, as a user's
program would. Every message that comes back is compared with the line it was made of. The exit code is 0 only if all of
them came, whole, and none twice.
"""

import asyncio
import itertools
import signal
import socket
import sys
import sysconfig
import threading
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack, closing
from dataclasses import dataclass
from pathlib import Path

from maxq.cli.demo_spark import archive_and_ask
from maxq.cli.load.server_process import StandaloneProcess
from maxq.client.admin.admin import Admin
from maxq.client.client_config import ClientConfig, ProducerConfig, PushConsumerConfig
from maxq.client.consumer.push_consumer import PushConsumer
from maxq.client.producer.producer import Producer
from maxq.client.results.consume_result import ConsumeContext
from maxq.client.results.send_result import SendResult, SendStatus
from maxq.config.settings import DEFAULT_BROKER_PORT, DEFAULT_NAMESRV_PORT
from maxq.errors import MaxQError
from maxq.machine import new_event_loop, system_seams
from maxq.protocol.body.topic_config import TopicConfig
from maxq.protocol.message.message import Message, MessageExt
from maxq.standalone import BROKER_NAME, CLUSTER_NAME

TOPIC = "PythonSource"
GROUP = "readers"
QUEUES = 4
MESSAGES = 200_000
AFTER_RESTART = 10_000  # of further lines, sent before the restart and read after it
_CHUNK = 10_000
_SAMPLES = 3
_LOOK_SECONDS = 0.01
_PATIENCE_SECONDS = 60.0  # without a new message


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a source file."""

    path: str  # below the standard library's folder
    number: int
    text: bytes

    @property
    def key(self) -> str:
        return f"{self.path}:{self.number}"

    @property
    def package(self) -> str:
        """The top-level module or package."""
        return self.path.partition("/")[0].removesuffix(".py")

    def to_message(self) -> Message:
        message = Message(TOPIC, self.text)
        message.keys = self.key
        message.tags = self.package
        message.put_user_property("line", str(self.number))
        message.put_user_property("python", sys.version.split()[0])
        return message


def source_lines() -> Iterator[Line]:
    """Every line of the standard library that is not empty, in the order of the files' names."""
    root = Path(sysconfig.get_paths()["stdlib"])
    for path in sorted(root.rglob("*.py")):
        relative = path.relative_to(root).as_posix()
        if "site-packages" in relative or " " in relative:
            continue
        for number, text in enumerate(path.read_bytes().splitlines(), 1):
            if text:
                yield Line(relative, number, text)


class Reader:
    """What the group's members receive goes here and is compared with what was sent."""

    def __init__(self) -> None:
        self.expected: dict[str, Line] = {}
        self.by_member: dict[str, int] = {}
        self.seen: set[str] = set()
        self.repeated = 0
        self.wrong: list[str] = []
        self._changed = asyncio.Event()

    def receive(self, name: str, messages: list[MessageExt]) -> None:
        """Member `name` got these."""
        self.by_member[name] = self.by_member.get(name, 0) + len(messages)
        for message in messages:
            self._check(message)
        self._changed.set()

    def _check(self, message: MessageExt) -> None:
        key = message.keys or ""
        line = self.expected.get(key)
        if key in self.seen:
            self.repeated += 1
        elif (
            line is None
            or bytes(message.body) != line.text
            or message.tags != line.package
            or message.properties.get("line") != str(line.number)
        ):
            self.wrong.append(key)
        self.seen.add(key)

    def take_counts(self) -> str:
        """How many messages each member got since the last call."""
        text = " + ".join(f"{count:,}" for count in self.by_member.values())
        self.by_member.clear()
        return text

    async def wait_for(self, count: int) -> None:
        """Until `count` different messages have come.

        Raises:
            MaxQError: nothing new came for a minute.
        """
        while len(self.seen) < count:
            self._changed.clear()
            try:
                await asyncio.wait_for(self._changed.wait(), _PATIENCE_SECONDS)
            except TimeoutError:
                raise MaxQError(f"only {len(self.seen):,} of {count:,} messages came") from None


class Member:
    """One member of the group. It takes nothing until every member has its part of the queues.

    What a member has read and not committed when it gives a queue away is read again by the next one, as RocketMQ
    promises (at least once); this account is to come out even.
    """

    def __init__(self, name: str, servers: str, reader: Reader, begin: asyncio.Event) -> None:
        self._name = name
        self._reader = reader
        self._begin = begin
        config = PushConsumerConfig(
            namesrv_addr=servers, consumer_group=GROUP, instance_name=name, consume_message_batch_max_size=32
        )
        self.consumer = PushConsumer(config, system_seams(servers), self._receive)
        self.consumer.subscribe(TOPIC)

    @property
    def queues(self) -> int:
        """How many of the topic's queues it has."""
        return sum(queue.topic == TOPIC for queue in self.consumer.assigned_queues())

    async def _receive(self, messages: list[MessageExt], context: ConsumeContext) -> None:
        await self._begin.wait()
        if context.message_queue in self.consumer.assigned_queues():
            self._reader.receive(self._name, messages)


class Demonstration:
    """The whole run against one server."""

    def __init__(self, server: StandaloneProcess) -> None:
        self._server = server
        self._reader = Reader()
        self._lines = source_lines()
        self._sent: list[tuple[Line, SendResult]] = []  # a few, to look for later

    async def run(self) -> None:
        """All steps in order; MaxQError if one does not hold."""
        first = list(itertools.islice(self._lines, MESSAGES))
        files = len({line.path for line in first})
        async with self._admin() as admin:
            address = f"127.0.0.1:{self._server.target.port}"
            await admin.topics.create(address, TopicConfig(TOPIC, QUEUES, QUEUES))
        size = sum(len(line.text) for line in first) / 2**20
        say("input", f"{len(first):,} lines of {files} files of Python's standard library, {size:.1f} MiB")
        await self._send("send", first)
        await self._receive("receive", len(first))
        async with self._admin() as admin:
            await self._find(admin)
            await self._show(admin)
        second = list(itertools.islice(self._lines, AFTER_RESTART))
        await self._send("send more", second)
        self._restart()
        await self._receive("read on", len(second))
        async with self._admin() as admin:
            stats = await admin.groups.consume_stats(GROUP, TOPIC)
            say("lag", f"group {GROUP} is {stats.total_diff} messages behind")
        self._conclude(len(first) + len(second))

    def _admin(self) -> Admin:
        servers = self._server.namesrv_address
        return Admin(ClientConfig(namesrv_addr=servers), system_seams(servers))

    async def _send(self, title: str, lines: list[Line]) -> None:
        self._reader.expected.update((line.key, line) for line in lines)
        servers = self._server.namesrv_address
        config = ProducerConfig(namesrv_addr=servers, producer_group="source", send_msg_timeout=30_000)
        started = time.monotonic()
        async with Producer(config, system_seams(servers)) as producer:
            for at in range(0, len(lines), _CHUNK):
                chunk = lines[at : at + _CHUNK]
                results = await producer.send_many(line.to_message() for line in chunk)
                if any(result.send_status is not SendStatus.SEND_OK for result in results):
                    raise MaxQError("a message was not stored in good order")
                self._sent.append((chunk[0], results[0]))
                progress(f"{at + len(chunk):,} sent")
        seconds = time.monotonic() - started
        say(title, f"{len(lines):,} messages in {seconds:.1f} s: {len(lines) / seconds:,.0f}/s, each acknowledged")

    async def _receive(self, title: str, count: int) -> None:
        reader = self._reader
        wanted = len(reader.seen) + count
        servers = self._server.namesrv_address
        begin = asyncio.Event()
        members = [Member(name, servers, reader, begin) for name in ("one", "two")]
        started = time.monotonic()
        async with AsyncExitStack() as running:
            for member in members:
                await running.enter_async_context(member.consumer)
            await self._shared(members)
            begin.set()
            await reader.wait_for(wanted)
            seconds = time.monotonic() - started
        say(
            title,
            f"{count:,} messages in {seconds:.1f} s: {count / seconds:,.0f}/s, by two members ({reader.take_counts()})",
        )

    async def _shared(self, members: list[Member]) -> None:
        """Until each member has an equal part of the queues."""
        async with asyncio.timeout(_PATIENCE_SECONDS):
            while any(member.queues != QUEUES // len(members) for member in members):  # noqa: ASYNC110 (no event for it)
                await asyncio.sleep(_LOOK_SECONDS)

    async def _find(self, admin: Admin) -> None:
        """Some messages by their key, and by the id that the producer gave them."""
        for line, result in self._sent[:_SAMPLES]:
            by_key = await admin.messages.query_by_key(TOPIC, line.key)
            by_id = await admin.messages.query_by_unique_key(TOPIC, result.msg_id)
            found = [message for message in by_key + by_id if bytes(message.body) == line.text]
            if len(found) != 2:
                raise MaxQError(f"{line.key} was found {len(by_key)} times by key and {len(by_id)} times by id")
            text = line.text.decode(errors="replace").strip()[:48]
            say("find", f"key {line.key}, id …{result.msg_id[-8:]}: {text!r}")

    async def _show(self, admin: Admin) -> None:
        """Route, queues, lag and files."""
        route = await admin.topics.route(TOPIC)
        addresses = ", ".join(f"{data.broker_name} {data.master_address}" for data in route.broker_datas)
        say("route", f"{TOPIC}: {route.queue_datas[0].read_queue_nums} queues on {addresses}")
        offsets = (await admin.topics.stats(TOPIC)).offset_table
        parts = [f"{queue.queue_id}: {at.min_offset}–{at.max_offset:,}" for queue, at in sorted(offsets.items())]
        say("queues", "  ".join(parts))
        stats = await admin.groups.consume_stats(GROUP, TOPIC)
        say("lag", f"group {GROUP} is {stats.total_diff} messages behind")
        for name in ("commitlog", "consumequeue", "index", "config"):
            files = [path for path in (self._server.store / name).rglob("*") if path.is_file()]
            used = sum(path.stat().st_blocks * 512 for path in files) / 2**20
            say("store", f"{name + '/':<14} {len(files):>3} files, {used:8.1f} MiB on disk")

    def _restart(self) -> None:
        code = self._server.stop()
        if code:
            raise MaxQError(f"the server ended with exit code {code}; see {self._server.log}")
        self._server.start()
        say("restart", f"stopped cleanly, ready again after {self._server.ready_seconds:.2f} s")

    def _conclude(self, sent: int) -> None:
        reader = self._reader
        if reader.wrong or reader.repeated or len(reader.seen) != sent:
            raise MaxQError(
                f"of {sent:,} messages {len(reader.seen):,} came, {len(reader.wrong)} differ from what was sent "
                f"({', '.join(reader.wrong[:3])}), {reader.repeated} came twice"
            )
        say("result", f"all {sent:,} messages came back once, each as it was sent")


def say(title: str, text: str) -> None:
    """One line of the account."""
    print(f"{title:>10}  {text}", flush=True)


def progress(text: str) -> None:
    """A passing remark, on a terminal only."""
    if sys.stdout.isatty():
        print(f"{'':>10}  {text} …", end="\r", flush=True)


def _port_if_free(port: int) -> int:
    """The usual port, or 0 (any) if somebody has it."""
    with closing(socket.socket()) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return 0
    return port


def main() -> int:
    """Run the demonstration; with a terminal the server stays up until Ctrl-C."""
    ports = (_port_if_free(DEFAULT_NAMESRV_PORT), _port_if_free(DEFAULT_BROKER_PORT))
    try:
        with StandaloneProcess(namesrv_port=ports[0], broker_port=ports[1]) as server:
            where = f"name server {server.namesrv_address}, broker {BROKER_NAME} of {CLUSTER_NAME}"
            say("server", f"{where}, ready after {server.ready_seconds:.2f} s")
            with asyncio.Runner(loop_factory=new_event_loop) as runner:
                runner.run(Demonstration(server).run())
            archive_and_ask(server.namesrv_address, TOPIC, MESSAGES + AFTER_RESTART, server.folder, say)
            if sys.stdin.isatty() and sys.stdout.isatty():
                _stay(server)
    except (MaxQError, OSError) as error:
        print(f"maxq: {error or type(error).__name__}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def _stay(server: StandaloneProcess) -> None:
    print(f"\nThe server stays up; Ctrl-C ends it. Its name server is {server.namesrv_address}:\n")
    option = f"-n {server.namesrv_address}"
    for command in (
        f"admin topicStatus -t {TOPIC} {option}",
        f"admin consumerProgress -g {GROUP} {option}",
        f"consume {TOPIC} --group me --max 5 {option}",
        f"produce {TOPIC} --file README.md {option}",
        f"sql 'SELECT tags, count(*) FROM {TOPIC} GROUP BY tags ORDER BY 2 DESC LIMIT 5' {option}",
    ):
        print(f"    .venv/bin/maxq {command}")
    sys.stdout.flush()
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    stop.wait()


if __name__ == "__main__":
    sys.exit(main())
