"""Fixtures: RocketMQ's jars and clients, and servers in every mixture of Java's and ours."""

import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from tests.interop.processes import peers
from tests.interop.processes.java_driver import JavaDriver
from tests.interop.processes.servers import (
    Broker,
    JavaBroker,
    JavaNamesrv,
    MaxqBroker,
    MaxqNamesrv,
    free_port_base,
)

MIXTURES = {
    "ours": (MaxqNamesrv, MaxqBroker),
    "java-namesrv": (JavaNamesrv, MaxqBroker),
    "java-broker": (MaxqNamesrv, JavaBroker),
    "all-java": (JavaNamesrv, JavaBroker),  # shows that the tests describe RocketMQ and not us
}


def or_skip(provide: Callable[[], Path]) -> Path:
    try:
        return provide()
    except peers.PeerUnavailableError as error:
        pytest.skip(f"interop: {error}")


@pytest.fixture(scope="session")
def jars() -> Path:
    """Folder of Apache RocketMQ's jars."""
    return or_skip(peers.rocketmq_jars)


@pytest.fixture(scope="session")
def java_classes(jars: Path) -> Path:
    """Folder of our compiled Java programs."""
    return peers.compiled_drivers(jars)


@pytest.fixture(scope="session")
def cpp_package() -> Path:
    """Folder of the Python package around RocketMQ's C++ client."""
    return or_skip(peers.cpp_client)


@pytest.fixture(scope="module")
def scratch() -> Iterator[Path]:
    """A folder of this module's own, removed at the end."""
    with tempfile.TemporaryDirectory(prefix="maxq-interop-") as folder:
        yield Path(folder)


@pytest.fixture(scope="module")
def driver(jars: Path, java_classes: Path, scratch: Path) -> Iterator[JavaDriver]:
    """RocketMQ's Java clients and mqadmin."""
    running = JavaDriver(jars, java_classes, scratch / "driver")
    yield running
    running.close()


class Deployment:
    """One name server and one broker, each Java's or ours."""

    def __init__(self, mixture: str, folder: Path, jars: Path) -> None:
        self.mixture = mixture
        self._jars = jars
        namesrv_class, broker_class = MIXTURES[mixture]
        self._namesrv = namesrv_class(folder / "namesrv", free_port_base())
        self.broker: Broker = broker_class(folder / "broker", free_port_base())

    def start(self, settings: Mapping[str, str] | None = None) -> "Deployment":
        """`settings` are the broker's."""
        if isinstance(self._namesrv, JavaNamesrv):
            self._namesrv.start(self._jars)
        else:
            self._namesrv.start()
        self.start_broker(settings)
        return self

    def start_broker(self, settings: Mapping[str, str] | None = None) -> None:
        if isinstance(self.broker, JavaBroker):
            self.broker.start(self._jars, self.namesrv, settings)
        elif isinstance(self.broker, MaxqBroker):
            self.broker.start(self.namesrv, settings)

    def stop(self) -> None:
        self.broker.discard()
        self._namesrv.discard()

    @property
    def namesrv(self) -> str:
        return self._namesrv.address


@pytest.fixture(scope="module", params=list(MIXTURES))
def deployment(request: pytest.FixtureRequest, jars: Path, scratch: Path) -> Iterator[Deployment]:
    """Every mixture in turn, each for a whole module."""
    running = Deployment(request.param, scratch / request.param, jars)
    try:
        yield running.start()
    finally:
        running.stop()
