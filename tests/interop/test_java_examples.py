"""The examples that come with RocketMQ's Java client, unmodified, against our servers.

Each is a program. Those that end by themselves are waited for; the others have done what they show when they have
printed what is expected. The examples of request and reply have the address of their name server in the code, so they
are not here; test_message_kinds.py has request and reply.
"""

import os
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import maxq
from tests.interop import peers
from tests.interop.conftest import or_skip
from tests.interop.servers import SMALL_HEAP, java_command

pytestmark = pytest.mark.interop

SECONDS = 90


class Examples:
    """Runs them."""

    def __init__(self, jar: Path, jars: Path, home: Path, namesrv: str) -> None:
        self._classpath = f"{jar}:{jars}/*"
        self._home = home
        self._namesrv = namesrv
        self._sent: dict[str, int] = {}

    def sent(self, name: str, count: int, *, ends: bool = True) -> int:
        """How many messages a producer sent; it runs once."""
        if name not in self._sent:
            self._sent[name] = self.run(name, "sendStatus=SEND_OK", count, ends=ends)
        return self._sent[name]

    def run(self, name: str, expected: str, count: int, *, ends: bool = False) -> int:
        """How often it said `expected`, once that is `count` times, or once a program that `ends` has ended."""
        options = (*SMALL_HEAP, f"-Drocketmq.namesrv.addr={self._namesrv}")
        command = java_command(self._classpath, self._home, options, f"org.apache.rocketmq.example.{name}")
        program = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        watch = threading.Timer(SECONDS, program.kill)
        watch.start()
        said = b""
        try:
            assert program.stdout is not None
            while ends or said.count(expected.encode()) < count:
                more = os.read(program.stdout.fileno(), 1 << 16)  # what one prints last may have no end of line
                if not more:
                    break
                said += more
            found = said.count(expected.encode())
            assert found >= count, f"{name} said {expected!r} {found} times, not {count}:\n{said[-3000:].decode()}"
            return found
        finally:
            watch.cancel()
            program.kill()
            program.wait()
            program.stdout.close()


@pytest.fixture(scope="module")
def examples(jars: Path, scratch: Path) -> Iterator[Examples]:
    jar = or_skip(peers.examples_jar)
    standalone = maxq.Standalone(scratch / "examples", settings={"enablePropertyFilter": "true"}).start()
    yield Examples(jar, jars, scratch / "home", standalone.namesrv_address)
    standalone.stop()


@pytest.mark.parametrize(
    ("name", "count", "ends"),
    [
        ("quickstart.Producer", 1000, True),
        ("ordermessage.Producer", 100, True),
        ("filter.TagFilterProducer", 60, True),
        ("filter.SqlFilterProducer", 10, True),
        ("schedule.TimerMessageProducer", 10, True),
        ("tracemessage.TraceProducer", 128, True),
        ("batch.SimpleBatchProducer", 1, False),
        ("transaction.TransactionProducer", 10, False),
    ],
)
def test_example_producer_is_acknowledged(examples: Examples, name: str, count: int, ends: bool) -> None:
    assert examples.sent(name, count, ends=ends) == count


@pytest.mark.parametrize(
    ("producer", "sent", "consumer", "received"),
    [
        ("quickstart.Producer", 1000, "quickstart.Consumer", 1000),
        ("filter.SqlFilterProducer", 10, "filter.SqlFilterConsumer", 3),
        ("filter.TagFilterProducer", 60, "filter.TagFilterConsumer", 40),
        ("quickstart.Producer", 1000, "tracemessage.TracePushConsumer", 1000),
        ("quickstart.Producer", 1000, "ordermessage.Consumer", 50),
    ],
)
def test_example_consumer_gets_what_the_example_producer_sends(
    examples: Examples, producer: str, sent: int, consumer: str, received: int
) -> None:
    examples.sent(producer, sent)
    examples.run(consumer, "MessageExt [", received)


def test_example_of_delayed_messages(examples: Examples) -> None:
    """Its producer prints nothing and ends; the messages wait for level 3, 10 s."""
    assert examples.run("schedule.ScheduledMessageProducer", "Exception", 0, ends=True) == 0
    assert examples.run("schedule.ScheduledMessageConsumer", "Receive message[", 100) == 100
