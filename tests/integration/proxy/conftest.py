"""A broker with a gRPC server, in the process of the test."""

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from maxq.runtime.files.system import SystemClock, SystemDisk, SystemRng
from maxq.standalone import StandaloneServer
from tests.integration.proxy.grpc_world import World

_QUICK = {"minInvisibleTimeMillsForRecv": "500", "grpcClientConsumerMinLongPollingTimeoutMillis": "0"}

StartWorld = Callable[..., Awaitable[World]]


@pytest.fixture
async def start(tmp_path: Path) -> AsyncIterator[StartWorld]:
    """Starts a broker with these settings."""
    worlds: list[World] = []

    async def start(**settings: str) -> World:
        given = {"enablePropertyFilter": "true", "enableMixedMessageType": "true", **_QUICK, **settings}
        server = StandaloneServer(
            tmp_path / f"store-{len(worlds)}", settings=given, grpc_port=0, disk=SystemDisk(), clock=SystemClock(),
            rng=SystemRng(),
        )  # fmt: skip
        await server.start()
        root = {"access_key": "root", "secret_key": "root-secret"} if "authenticationEnabled" in settings else {}
        worlds.append(World(server, **root))
        return worlds[-1]

    yield start
    for world in worlds:
        await world.close()


@pytest.fixture
async def world(start: StartWorld) -> World:
    return await start()
