"""A real broker on free ports, over a small store in a temporary folder."""

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from maxq.runtime.interfaces import Disk
from tests.integration.broker.harness import RunningBroker

Start = Callable[..., Awaitable[RunningBroker]]


@pytest.fixture
async def start_broker(tmp_path: Path) -> AsyncIterator[Start]:
    """`await start_broker(maxMessageSize=8192)`: settings by RocketMQ's names; all are stopped at the end."""
    running: list[RunningBroker] = []

    async def start(folder: str = "store", disk: Disk | None = None, **settings: object) -> RunningBroker:
        broker = RunningBroker(tmp_path / folder, {name: str(value) for name, value in settings.items()}, disk)
        running.append(broker)
        await broker.start()
        return broker

    yield start
    for broker in reversed(running):
        await broker.stop()


@pytest.fixture
async def broker(start_broker: Start) -> RunningBroker:
    """One with default settings."""
    return await start_broker()
