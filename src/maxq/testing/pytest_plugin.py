"""The pytest plug-in: fixtures for a server and its clients, and for programs in virtual time (docs/howto/testing.md).

pytest loads this module at every start, so it imports nothing of MaxQ; the fixtures do when a test asks for them.
"""

import importlib.machinery
import itertools
import os
import re
import sys
import time
import types
import warnings
from collections.abc import Awaitable, Callable, Generator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

import pytest

if TYPE_CHECKING:
    from maxq.api import Admin, Message, MessageExt, Producer
    from maxq.client.producer.producer import Producer as AsyncProducer
    from maxq.testing.server_process import MaxQServer
    from maxq.testing.simulated_cluster import Simulation

T = TypeVar("T")

_SEED_FIXTURE: Final = "maxq_seed"
_QUEUES: Final = 4
_NAME_LENGTH: Final = 80  # characters of topic and group names that come from the name of the test
_LOG_BYTES: Final = 4000  # characters of the server's log in the report of a failed test

_WAIT_S: Final = 0.05  # between two looks for a topic

_numbers = itertools.count(1)
_server_key = pytest.StashKey["MaxQServer"]()
_kept_key = pytest.StashKey[list[str]]()
_log_position_key = pytest.StashKey[int]()


# -- the package as it is --


class _AsItIs:
    """Finds the modules of MaxQ for the import system before pytest does. pytest rewrites the assertions of a plug-in's
    whole distribution: half a second for the modules of a broker, two when they are loaded for the first time."""

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return how to load a module; None: it is not a module of MaxQ."""
        return importlib.machinery.PathFinder.find_spec(name, path, target) if name.startswith("maxq.") else None


sys.meta_path.insert(0, _AsItIs)


# -- options --


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of the plug-in."""
    group = parser.getgroup("maxq", "MaxQ")
    group.addoption(
        "--maxq-keep-store", action="store_true",
        help="Keep the store and the topics of maxq_server after the tests, and say where it is.",
    )  # fmt: skip
    group.addoption(
        "--maxq-seed", type=int, default=1, metavar="N", help="First seed of tests in virtual time (default: 1).",
    )  # fmt: skip
    group.addoption(
        "--maxq-seeds", type=int, default=1, metavar="N",
        help="Run each test in virtual time with N seeds, from --maxq-seed on (default: 1).",
    )  # fmt: skip
    parser.addini("maxq_settings", "Broker settings of maxq_server, name=value, one a line.", type="linelist")


def pytest_configure(config: pytest.Config) -> None:
    """Check the options of the plug-in (`--maxq-seeds`). Called by pytest at its start.

    Raises:
        pytest.UsageError: an option has a value that is not allowed.
    """
    if config.getoption("--maxq-seeds") < 1:
        raise pytest.UsageError(f"--maxq-seeds={config.getoption('--maxq-seeds')}: give 1 or more")
    config.stash[_kept_key] = []


# -- a server --


@pytest.fixture(scope="session")
def maxq_server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> "Iterator[MaxQServer]":
    """A name server and a broker in a process of their own, one for the session (one a worker with pytest-xdist).

    `maxq_server.namesrv_address` is for clients. A test may `kill()` it; it is started again for the next test.
    """
    from maxq.errors import MaxQError
    from maxq.testing.server_process import MaxQServer

    config = request.config
    try:
        server = MaxQServer(_server_settings(config), folder=tmp_path_factory.mktemp("maxq"))
        server.start()
    except MaxQError as error:
        pytest.fail(f"maxq_server cannot be started: {error}", pytrace=False)
    config.stash[_server_key] = server
    try:
        yield server
    finally:
        del config.stash[_server_key]
        server.stop()
        if config.getoption("--maxq-keep-store"):
            _note_kept(config, server.store)
        else:
            server.delete_store()


def _server_settings(config: pytest.Config) -> dict[str, str]:
    from maxq.config import BrokerSettings

    settings = {}
    for line in config.getini("maxq_settings"):
        name, equals, value = line.partition("=")
        if not equals:
            raise pytest.UsageError(f"maxq_settings: {line!r} is not name=value")
        settings[name.strip()] = value.strip()
    for text in BrokerSettings.from_properties(settings, source="maxq_settings")[1]:
        warnings.warn(text, stacklevel=2)
    return settings


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Start the server again if the last test has left it dead, and note where its log is."""
    server = item.config.stash.get(_server_key, None)
    if server is None or "maxq_server" not in getattr(item, "fixturenames", ()):
        return
    if not server.is_running:
        server.start_again()
    item.stash[_log_position_key] = server.log.stat().st_size


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add what the server has logged during a failed test to its report."""
    report = yield
    server = item.config.stash.get(_server_key, None)
    if report.failed and server is not None and "maxq_server" in getattr(item, "fixturenames", ()):
        with open(server.log, "rb") as log:
            log.seek(item.stash.get(_log_position_key, 0))
            said = log.read()[-_LOG_BYTES:].decode(errors="replace")
        if said.strip():
            report.sections.append((f"Captured log of maxq_server, {server.log}", said))
    return report


# -- names --


@pytest.fixture
def maxq_new_topic(
    request: pytest.FixtureRequest, maxq_server: "MaxQServer", maxq_admin: "Admin"
) -> Iterator[Callable[..., str]]:
    """`maxq_new_topic(queues=4)` creates an empty topic that no other test has, and returns its name."""
    from maxq.errors import MaxQError
    from maxq.protocol.body.topic_config import TopicConfig

    made: list[str] = []

    def new_topic(queues: int = _QUEUES) -> str:
        topic = _new_name(request)
        maxq_admin.topics.create(maxq_server.broker_address, TopicConfig(topic, queues, queues))
        made.append(topic)
        return topic

    yield new_topic
    if not request.config.getoption("--maxq-keep-store") and maxq_server.is_running:
        for topic in made:
            try:
                maxq_admin.topics.delete_in_broker(maxq_server.broker_address, topic)
                maxq_admin.topics.delete_in_name_servers(topic)
            except MaxQError:  # the test may have deleted the topic, or have stopped the server
                continue


@pytest.fixture
def maxq_topic(maxq_new_topic: Callable[..., str]) -> str:
    """The name of an empty topic with 4 queues that no other test has. It is deleted after the test."""
    return maxq_new_topic()


@pytest.fixture
def maxq_group(request: pytest.FixtureRequest) -> str:
    """A name for a producer or consumer group that no other test has."""
    return _new_name(request)


def _new_name(request: pytest.FixtureRequest) -> str:
    """Make a legal name that begins as the test's does, and that no other test of this server is given."""
    test = re.sub(r"[^a-zA-Z0-9_]+", "-", request.node.name).strip("-")[:_NAME_LENGTH]
    return f"{test}-{os.getpid()}-{next(_numbers)}"


# -- clients --


@pytest.fixture(scope="session")
def maxq_admin(maxq_server: "MaxQServer") -> "Iterator[Admin]":
    """A blocking Admin of maxq_server."""
    from maxq.api import Admin

    with Admin(maxq_server.namesrv_address) as admin:
        yield admin


@pytest.fixture
def maxq_producer(maxq_server: "MaxQServer", maxq_group: str) -> "Iterator[Producer]":
    """A blocking Producer that runs, of the group maxq_group."""
    from maxq.api import Producer

    with Producer(maxq_group, maxq_server.namesrv_address) as producer:
        yield producer


@pytest.fixture
def maxq_async_producer(maxq_server: "MaxQServer", maxq_group: str) -> "AsyncProducer":
    """An asynchronous Producer that does not run yet: `async with maxq_async_producer as producer`."""
    from maxq.api import async_producer

    return async_producer(maxq_group, maxq_server.namesrv_address)


@pytest.fixture
def maxq_messages(maxq_server: "MaxQServer", maxq_admin: "Admin") -> "Callable[..., list[MessageExt]]":
    """`maxq_messages(topic, count, timeout=10.0)` waits until a topic has `count` messages and returns all that it has.

    The topic need not exist yet. It belongs to no consumer group, so it takes nothing away from the consumers under
    test. With fewer messages after `timeout` seconds the test fails, and the failure shows those that are there.
    """

    def messages(topic: str, count: int, timeout: float = 10.0) -> "list[MessageExt]":
        __tracebackhide__ = True
        return _read(maxq_server, maxq_admin, topic, count, timeout)

    return messages


def _read(server: "MaxQServer", admin: "Admin", topic: str, count: int, timeout: float) -> "list[MessageExt]":
    __tracebackhide__ = True
    from maxq.api import LitePullConsumer
    from maxq.errors import NoRouteError
    from maxq.runtime.files.system import SystemClock

    clock = SystemClock()
    end_ms = clock.monotonic_ms() + round(timeout * 1000)
    messages: list[MessageExt] = []
    with LitePullConsumer("maxq-messages", server.namesrv_address, auto_commit=False) as consumer:
        while True:
            try:
                queues = consumer.fetch_message_queues(topic)
                break
            except NoRouteError:  # the program under test may create the topic with its first message
                if clock.monotonic_ms() >= end_ms:
                    pytest.fail(f"there is no topic {topic} after {timeout:g} s, {count} messages are expected")
                time.sleep(_WAIT_S)
        consumer.assign(queues)
        for queue in queues:
            consumer.seek_to_begin(queue)

        def stored() -> int:
            return sum(admin.offsets.max(queue) - admin.offsets.min(queue) for queue in queues)

        while len(messages) < max(count, stored()) and (left_ms := end_ms - clock.monotonic_ms()) > 0:
            messages += consumer.poll(timeout_ms=min(left_ms, 500))
    if len(messages) < count:
        there = "\n".join(f"  {_shown(message)}" for message in messages)
        pytest.fail(f"{topic} has {len(messages)} messages after {timeout:g} s, {count} are expected\n{there}".rstrip())
    return messages


def _shown(message: "Message") -> str:
    return f"{message.body[:200]!r}" + (f", tags {message.tags}" if message.tags else "")


# -- virtual time --


class Simulate(Protocol):
    """What the fixture maxq_simulate is: `maxq_simulate(story)`."""

    def __call__(
        self,
        story: "Callable[[Simulation], Awaitable[T]]",
        *,
        brokers: int = 1,
        settings: Mapping[str, str] | None = None,
        time_limit_s: float = 24 * 3600.0,
    ) -> T:
        """Run `await story(sim)` in virtual time under the test's seed, and return its result."""
        ...


@pytest.fixture
def maxq_simulate(request: pytest.FixtureRequest, maxq_seed: int) -> Simulate:
    """`maxq_simulate(story, brokers=1)` runs `await story(sim)` in virtual time, against brokers that can be killed.

    See maxq.testing.simulate. A test that has this fixture runs once for each seed (--maxq-seed, --maxq-seeds), and its
    failure says the seed.
    """
    from maxq.testing.simulated_cluster import simulate

    def run(story: "Callable[[Simulation], Awaitable[T]]", **options: Any) -> T:
        __tracebackhide__ = True
        try:
            return simulate(story, seed=maxq_seed, **options)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # also pytest.fail, which raises no Exception
            error.add_note(f"the same again: pytest {request.node.nodeid!r} --maxq-seed {maxq_seed}")
            raise

    return run


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each test in virtual time with every seed that the options ask for."""
    if _SEED_FIXTURE in metafunc.fixturenames:
        first, count = metafunc.config.getoption("--maxq-seed"), metafunc.config.getoption("--maxq-seeds")
        metafunc.parametrize(_SEED_FIXTURE, range(first, first + count), ids=lambda seed: f"seed-{seed}")


# -- stores that are kept --


def _note_kept(config: pytest.Config, store: Path) -> None:
    output = getattr(config, "workeroutput", None)  # set in a worker of pytest-xdist, whose values go to the controller
    if output is None:
        config.stash[_kept_key].append(str(store))
    else:
        output["maxq_kept"] = str(store)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take the name of the store that a worker has kept."""
    kept = getattr(node, "workeroutput", {}).get("maxq_kept")
    if kept:
        node.config.stash[_kept_key].append(kept)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Say which stores were kept."""
    for store in config.stash.get(_kept_key, []):
        terminalreporter.write_line(f"maxq: the store is kept: {store} (maxq store --help shows how to look into it)")
