from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from maxq.config.netty_client_config import NettyClientConfig
from maxq.remoting.client import RemotingClient
from maxq.runtime.files.system import SystemClock, SystemRng
from tests.integration.access.world import GuardedBroker, GuardedNamesrv


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[GuardedBroker]:
    running = GuardedBroker(tmp_path)
    await running.start()
    yield running
    await running.stop()


@pytest.fixture
async def namesrv(tmp_path: Path) -> AsyncIterator[GuardedNamesrv]:
    running = GuardedNamesrv(tmp_path)
    await running.controller.start()
    yield running
    await running.controller.shutdown()


@pytest.fixture
async def client() -> AsyncIterator[RemotingClient]:
    made = RemotingClient(NettyClientConfig(), clock=SystemClock(), rng=SystemRng())
    yield made
    await made.close()
