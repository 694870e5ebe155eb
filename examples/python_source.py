"""The source text of Python's standard library goes line by line through a broker, and comes back.

A standalone server is started as a process of its own; everything else goes through the client library, as a user's
program would. Every message that comes back is compared with the line it was made of: all must come, whole, none twice.
At the end the topic is archived with Spark, and with a terminal the server stays up.
"""

import itertools
import signal
import socket
import sys
import sysconfig
import threading
import time
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path

from examples.archive_and_sql import archive_and_ask
from examples.helpers import PATIENCE_SECONDS, progress, run_example, say
from maxq.api import (
    Admin,
    ConsumeContext,
    Message,
    MessageExt,
    MessageQueue,
    Producer,
    PushConsumer,
    SendResult,
    SendStatus,
)
from maxq.config.settings import DEFAULT_BROKER_PORT, DEFAULT_NAMESRV_PORT
from maxq.errors import MaxQError
from maxq.protocol.body.topic_config import TopicConfig
from maxq.standalone import BROKER_NAME, CLUSTER_NAME
from maxq.testing.server_process import StandaloneProcess

TOPIC = "PythonSource"
GROUP = "readers"
QUEUES = 4
MESSAGES = 200_000
AFTER_RESTART = 10_000  # further lines, sent before the restart and read after it
CHUNK = 10_000
SAMPLES = 3


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a source file."""

    path: str  # below the standard library's folder
    number: int
    text: bytes

    @property
    def key(self) -> str:
        """Where it stands."""
        return f"{self.path}:{self.number}"

    @property
    def package(self) -> str:
        """The top-level module or package."""
        return self.path.partition("/")[0].removesuffix(".py")

    def to_message(self) -> Message:
        """The message that carries the line: found by its key, selected by its tag."""
        return Message(TOPIC, self.text, {"KEYS": self.key, "TAGS": self.package, "line": str(self.number)})


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


class Account:
    """What was sent and what came, by key."""

    def __init__(self) -> None:
        self.sent: dict[str, Line] = {}
        self.seen: set[str] = set()
        self.repeated = 0
        self.wrong: list[str] = []
        self._changed = threading.Condition()

    def enter(self, messages: list[MessageExt]) -> None:
        """Compare messages that came with the lines they were made of."""
        with self._changed:
            for message in messages:
                key = message.keys or ""
                line = self.sent.get(key)
                facts = (bytes(message.body), message.tags, message.properties.get("line"))
                if key in self.seen:
                    self.repeated += 1
                elif line is None or facts != (line.text, line.package, str(line.number)):
                    self.wrong.append(key)
                self.seen.add(key)
            self._changed.notify_all()

    def wait_for(self, count: int) -> None:
        """Wait until `count` different messages have come; MaxQError if nothing new comes for a minute."""
        with self._changed:
            while len(self.seen) < count:
                if not self._changed.wait(PATIENCE_SECONDS):
                    raise MaxQError(f"only {len(self.seen):,} of {count:,} messages came")


def send(namesrv: str, title: str, lines: list[Line], account: Account) -> list[tuple[Line, SendResult]]:
    """Send each line in a request of its own; returns some of them with their results, to look for later."""
    account.sent.update((line.key, line) for line in lines)

    def messages() -> Iterator[Message]:
        for number, line in enumerate(lines):
            if number % CHUNK == 0:
                progress(f"{number:,} sent")
            yield line.to_message()

    with Producer("source", namesrv, send_msg_timeout=30_000) as producer:
        started = time.monotonic()
        results = producer.send_many(messages())
        seconds = time.monotonic() - started
    if any(result.send_status is not SendStatus.SEND_OK for result in results):
        raise MaxQError("a message was not stored in good order")
    say(title, f"{len(lines):,} messages in {seconds:.1f} s: {len(lines) / seconds:,.0f}/s, each acknowledged")
    return list(zip(lines[::CHUNK], results[::CHUNK], strict=True))


def receive(namesrv: str, title: str, count: int, account: Account) -> None:
    """Read `count` further messages with two members of a group.

    The members take nothing until each has its part of the queues: what a member has read and not committed when it
    gives a queue away is read again by the next one (at least once), and this account is to come out even.
    """
    begin = threading.Event()
    by_member: Counter[str] = Counter()

    def member(name: str) -> PushConsumer:
        def listen(messages: list[MessageExt], context: ConsumeContext) -> None:
            begin.wait()
            if context.message_queue in consumer.assigned_queues():
                by_member[name] += len(messages)
                account.enter(messages)

        consumer = PushConsumer(GROUP, namesrv, listen, instance_name=name, consume_message_batch_max_size=32)
        consumer.subscribe(TOPIC)
        return consumer

    with ExitStack() as running:
        running.callback(begin.set)  # so that no listener waits when the members end
        members = [running.enter_context(member(name)) for name in ("one", "two")]
        for consumer in members:
            consumer.wait_for_assignment(has_its_part, timeout_ms=int(PATIENCE_SECONDS * 1000))
        started = time.monotonic()
        begin.set()
        account.wait_for(len(account.seen) + count)
        seconds = time.monotonic() - started
    parts = " + ".join(f"{part:,}" for part in by_member.values())
    say(title, f"{count:,} messages in {seconds:.1f} s: {count / seconds:,.0f}/s, by two members ({parts})")


def has_its_part(queues: Collection[MessageQueue]) -> bool:
    """Tell whether these are half of the topic's queues, the part of each of two members."""
    return sum(queue.topic == TOPIC for queue in queues) == QUEUES // 2


def find(admin: Admin, samples: list[tuple[Line, SendResult]]) -> None:
    """Find some messages by their key, and by the id that the producer gave them."""
    for line, result in samples:
        by_key = admin.messages.query_by_key(TOPIC, line.key)
        by_id = admin.messages.query_by_unique_key(TOPIC, result.msg_id)
        found = [message for message in by_key + by_id if bytes(message.body) == line.text]
        if len(found) != 2:
            raise MaxQError(f"{line.key} was found {len(by_key)} times by key and {len(by_id)} times by id")
        text = line.text.decode(errors="replace").strip()[:48]
        say("find", f"key {line.key}, id …{result.msg_id[-8:]}: {text!r}")


def show(admin: Admin, store: Path) -> None:
    """Tell route, queues, lag and files."""
    route = admin.topics.route(TOPIC)
    addresses = ", ".join(f"{data.broker_name} {data.master_address}" for data in route.broker_datas)
    say("route", f"{TOPIC}: {route.queue_datas[0].read_queue_nums} queues on {addresses}")
    offsets = admin.topics.stats(TOPIC).offset_table
    say("queues", "  ".join(f"{q.queue_id}: {at.min_offset}–{at.max_offset:,}" for q, at in sorted(offsets.items())))
    lag(admin)
    for name in ("commitlog", "consumequeue", "index", "config"):
        files = [path for path in (store / name).rglob("*") if path.is_file()]
        used = sum(path.stat().st_blocks * 512 for path in files) / 2**20
        say("store", f"{name + '/':<14} {len(files):>3} files, {used:8.1f} MiB on disk")


def lag(admin: Admin) -> None:
    """Tell how far the group is behind."""
    say("lag", f"group {GROUP} is {admin.groups.consume_stats(GROUP, TOPIC).total_diff} messages behind")


def restart(server: StandaloneProcess) -> None:
    """Stop the server in good order and start it on its files again."""
    code = server.stop()
    if code:
        raise MaxQError(f"the server ended with exit code {code}; see {server.log}")
    server.start()
    say("restart", f"stopped cleanly, ready again after {server.ready_seconds:.2f} s")


def conclude(account: Account) -> None:
    """Hold what came against what was sent."""
    sent, seen = len(account.sent), len(account.seen)
    if account.wrong or account.repeated or seen != sent:
        raise MaxQError(
            f"of {sent:,} messages {seen:,} came, {len(account.wrong)} differ from what was sent "
            f"({', '.join(account.wrong[:3])}), {account.repeated} came twice"
        )
    say("result", f"all {sent:,} messages came back once, each as it was sent")


def tell(server: StandaloneProcess) -> None:
    """All steps in order; MaxQError if one does not hold."""
    namesrv, account, lines = server.namesrv_address, Account(), source_lines()
    first = list(itertools.islice(lines, MESSAGES))
    second = list(itertools.islice(lines, AFTER_RESTART))
    files, size = len({line.path for line in first}), sum(len(line.text) for line in first) / 2**20
    say("input", f"{len(first):,} lines of {files} files of Python's standard library, {size:.1f} MiB")
    with Admin(namesrv) as admin:
        admin.topics.create(server.broker_address, TopicConfig(TOPIC, QUEUES, QUEUES))
    samples = send(namesrv, "send", first, account)
    receive(namesrv, "receive", len(first), account)
    with Admin(namesrv) as admin:
        find(admin, samples[:SAMPLES])
        show(admin, server.store)
    send(namesrv, "send more", second, account)
    restart(server)
    receive(namesrv, "read on", len(second), account)
    with Admin(namesrv) as admin:
        lag(admin)
    conclude(account)
    archived = archive_and_ask(namesrv, TOPIC, str(server.folder / "archive"))
    if archived != len(account.sent):
        raise MaxQError(f"{archived:,} of {len(account.sent):,} messages are in the archive")


def port_if_free(port: int) -> int:
    """The usual port, or 0 (any) if somebody has it."""
    with closing(socket.socket()) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return 0
    return port


def stay(server: StandaloneProcess) -> None:
    """Say what can be asked of the server, and wait for Ctrl-C."""
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


def example(folder: Path) -> None:
    """Run the account against a server below `folder`; with a terminal the server stays up until Ctrl-C."""
    ports = port_if_free(DEFAULT_NAMESRV_PORT), port_if_free(DEFAULT_BROKER_PORT)
    with StandaloneProcess(folder=folder, namesrv_port=ports[0], broker_port=ports[1]) as server:
        where = f"name server {server.namesrv_address}, broker {BROKER_NAME} of {CLUSTER_NAME}"
        say("server", f"{where}, ready after {server.ready_seconds:.2f} s")
        tell(server)
        if sys.stdin.isatty() and sys.stdout.isatty():
            stay(server)


if __name__ == "__main__":
    sys.exit(run_example(example))
