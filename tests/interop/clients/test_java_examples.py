"""The examples that come with RocketMQ's Java client, unmodified but for addresses, against our servers.

Each is a program. Those that end by themselves are waited for; the others have done what they show when they have
printed what is expected. Not here: `openmessaging` and `tracemessage.OpenTracing…`, whose libraries the client does not
bring; `operation`, which does nothing without arguments; `simple.PullConsumer`, which says nothing; `rpc`, which waits
for a reply no longer than 3 s (test_message_kinds.py has request and reply); `batch.SplitBatchProducer` with its
100 000 messages, and `benchmark`, which goes on for ever.
"""

import contextlib
import os
import re
import subprocess
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import maxq
import maxq.api
from maxq.protocol.body.topic_config import TopicConfig
from tests.interop.conftest import or_skip
from tests.interop.processes import peers
from tests.interop.processes.servers import SMALL_HEAP, java_command

pytestmark = pytest.mark.interop

SECONDS = 90
ATTEMPTS = 4
DIED = re.compile(rb'Exception in thread "main"([^\t]*)\tat ')  # its other threads go on
#: A first send has 3 s for all that a new JVM loads, the route and the answer: on a busy machine that is too short.
TOO_LATE = (b"RemotingTimeoutException", b"RemotingTooMuchRequestException: sendDefaultImpl call timeout")
SENT = "sendStatus=SEND_OK"
#: Name → (what it says for each message, how often, does it end).
PRODUCERS = {
    "quickstart.Producer": (SENT, 1000, True),
    "ordermessage.Producer": (SENT, 100, True),
    "filter.TagFilterProducer": (SENT, 60, True),
    "filter.SqlFilterProducer": (SENT, 10, True),
    "schedule.TimerMessageProducer": (SENT, 10, True),
    "tracemessage.TraceProducer": (SENT, 128, True),
    "batch.SimpleBatchProducer": (SENT, 1, False),
    "transaction.TransactionProducer": (SENT, 10, False),
    "simple.AsyncProducer": (" OK ", 100, True),
    "namespace.ProducerWithNamespace": ("send success", 100, True),
    "lmq.LMQProducer": (SENT, 128, True),
}
SETTINGS = {"enablePropertyFilter": "true", "enableLmq": "true", "enableMultiDispatch": "true"}


def readdressed(jar: Path, to: Path, servers: maxq.Standalone) -> Path:
    """The same classes with our addresses where they have one: in a class file a constant follows its length."""
    namesrv, broker = servers.namesrv_address.encode(), servers.broker_address.encode()
    known = {b"127.0.0.1:9876": namesrv, b"localhost:9876": namesrv, b"127.0.0.1:10911": broker}
    with zipfile.ZipFile(jar) as given, zipfile.ZipFile(to, "w") as made:
        for name in given.namelist():
            content = given.read(name)
            for old, new in known.items() if name.endswith(".class") else ():
                content = content.replace(_constant(old), _constant(new))
            made.writestr(name, content)
    return to


def _constant(text: bytes) -> bytes:
    return len(text).to_bytes(2, "big") + text


class BeganTooLateError(AssertionError):
    """A program ended by Java's time-out before it had done anything."""


class Program:
    """One that runs, and what it has said."""

    def __init__(self, name: str, command: list[str]) -> None:
        self._name = name
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self._watch = threading.Timer(SECONDS, self._process.kill)
        self._watch.start()
        self._said = b""

    def says(self, expected: str, count: int = 1, *, ends: bool = False) -> int:
        """How often it said `expected`, once that is `count` times, or once a program that `ends` has ended.

        Raises:
            AssertionError: it ended before that; BeganTooLateError if Java's time-out ended it before it said anything.
        """
        assert self._process.stdout is not None
        while (ends or self._said.count(expected.encode()) < count) and not DIED.search(self._said):
            more = os.read(self._process.stdout.fileno(), 1 << 16)  # what one prints last may have no end of line
            if not more:
                break
            self._said += more
        found = self._said.count(expected.encode())
        died = DIED.search(self._said)
        if died and expected.encode() not in self._said[: died.start()] and any(words in died[1] for words in TOO_LATE):
            raise BeganTooLateError(f"{self._name}: {died[1].decode(errors='replace')}")
        told = self._said[-3000:].decode(errors="replace")
        assert found >= count, f"{self._name} said {expected!r} {found} times, not {count}:\n{told}"
        return found

    def stop(self) -> None:
        self._watch.cancel()
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()


class Examples:
    """Runs them."""

    def __init__(self, jar: Path, jars: Path, home: Path, servers: maxq.Standalone) -> None:
        home.mkdir()
        self._classpath = f"{readdressed(jar, home / 'examples.jar', servers)}:{jars}/*"
        self._home = home
        self._namesrv = servers.namesrv_address
        self._sent: dict[str, int] = {}
        with maxq.api.Admin(self._namesrv) as admin:  # an example reads a topic that none of them makes
            admin.topics.create(servers.broker_address, TopicConfig("TopicTest1", 4, 4))

    @contextlib.contextmanager
    def running(self, name: str) -> Iterator[Program]:
        options = (*SMALL_HEAP, f"-Drocketmq.namesrv.addr={self._namesrv}")
        command = java_command(self._classpath, self._home, options, f"org.apache.rocketmq.example.{name}")
        program = Program(name, command)
        try:
            yield program
        finally:
            program.stop()

    def run(self, name: str, expected: str, count: int, *, ends: bool = False) -> int:
        """How often it said `expected`, see Program.says; a program that began too late is run again."""
        for _ in range(ATTEMPTS - 1):
            with contextlib.suppress(BeganTooLateError), self.running(name) as program:
                return program.says(expected, count, ends=ends)
        with self.running(name) as program:
            return program.says(expected, count, ends=ends)

    def sent(self, name: str) -> int:
        """How many messages a producer sent; it runs once."""
        if name not in self._sent:
            said, count, ends = PRODUCERS[name]
            self._sent[name] = self.run(name, said, count, ends=ends)
        return self._sent[name]


@pytest.fixture(scope="module")
def examples(jars: Path, scratch: Path) -> Iterator[Examples]:
    jar = or_skip(peers.examples_jar)
    standalone = maxq.Standalone(scratch / "examples", settings=SETTINGS).start()
    yield Examples(jar, jars, scratch / "home", standalone)
    standalone.stop()


@pytest.mark.parametrize("name", PRODUCERS)
def test_example_producer_is_acknowledged(examples: Examples, name: str) -> None:
    assert examples.sent(name) == PRODUCERS[name][1]


@pytest.mark.parametrize(
    ("producer", "consumer", "said", "received"),
    [
        ("quickstart.Producer", "quickstart.Consumer", "MessageExt [", 1000),
        ("filter.SqlFilterProducer", "filter.SqlFilterConsumer", "MessageExt [", 3),
        ("filter.TagFilterProducer", "filter.TagFilterConsumer", "MessageExt [", 40),
        ("quickstart.Producer", "tracemessage.TracePushConsumer", "MessageExt [", 1000),
        ("quickstart.Producer", "ordermessage.Consumer", "MessageExt [", 50),
        ("quickstart.Producer", "simple.PushConsumer", "MessageExt [", 1000),
        ("quickstart.Producer", "simple.LitePullConsumerSubscribe", "MessageExt [", 100),
        ("quickstart.Producer", "simple.LitePullConsumerAssign", "MessageExt [", 100),
        ("quickstart.Producer", "simple.LitePullConsumerAssignWithSubExpression", "MessageExt [", 100),
        ("quickstart.Producer", "simple.PullScheduleService", "pullStatus=FOUND", 4),
        ("schedule.TimerMessageProducer", "schedule.TimerMessageConsumer", "Receive message[", 10),
        ("namespace.ProducerWithNamespace", "namespace.PushConsumerWithNamespace", "Msg topic is:NAMESPACE_TOPIC", 100),
        ("namespace.ProducerWithNamespace", "namespace.PullConsumerWithNamespace", "Topic is:NAMESPACE_TOPIC", 100),
        ("lmq.LMQProducer", "lmq.LMQPullConsumer", "MessageExt [", 32),
        ("lmq.LMQProducer", "lmq.LMQPushConsumer", "MessageExt [", 128),
        ("lmq.LMQProducer", "lmq.LMQPushPopConsumer", "MessageExt [", 128),
        ("quickstart.Producer", "simple.AclClient", "body : Hello", 500),
    ],
)
def test_example_consumer_gets_what_the_example_producer_sends(
    examples: Examples, producer: str, consumer: str, said: str, received: int
) -> None:
    examples.sent(producer)
    examples.run(consumer, said, received)


@pytest.mark.parametrize("consumer", ["broadcast.PushConsumer", "simple.PopConsumer"])
def test_example_consumer_gets_what_comes_while_it_runs(examples: Examples, consumer: str) -> None:
    with examples.running(consumer) as program:
        program.says("Consumer Started.")
        examples.run("simple.Producer", "sendStatus=SEND_OK", 128, ends=True)
        program.says("MessageExt [", 128)


def test_example_of_one_way_messages(examples: Examples) -> None:
    assert examples.run("simple.OnewayProducer", "Exception", 0, ends=True) == 0


def test_example_of_delayed_messages(examples: Examples) -> None:
    """Its producer prints nothing and ends; the messages wait for level 3, 10 s."""
    assert examples.run("schedule.ScheduledMessageProducer", "Exception", 0, ends=True) == 0
    assert examples.run("schedule.ScheduledMessageConsumer", "Receive message[", 100) == 100
