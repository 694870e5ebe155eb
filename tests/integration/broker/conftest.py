"""A real broker on free ports, over a small store in a temporary folder."""

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from maxq.config.namesrv_config import NamesrvConfig
from maxq.config.netty_server_config import NettyServerConfig
from maxq.config.settings import NamesrvSettings
from maxq.namesrv.controller import NamesrvController
from maxq.runtime.files.system import SystemClock, SystemDisk, SystemRng
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
async def namesrv() -> AsyncIterator[str]:
    """The address of a running name server."""
    settings = NamesrvSettings(NamesrvConfig(), NettyServerConfig(bind_address="127.0.0.1"))
    controller = NamesrvController(settings, disk=SystemDisk(), clock=SystemClock(), rng=SystemRng())
    await controller.start()
    yield f"127.0.0.1:{controller.port}"
    await controller.shutdown()


@pytest.fixture
async def broker(start_broker: Start) -> RunningBroker:
    """One with default settings."""
    return await start_broker()
