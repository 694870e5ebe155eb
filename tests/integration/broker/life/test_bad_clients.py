"""Clients that hang, or announce what no broker takes: dropped, with the reason; others are served meanwhile."""

import asyncio
import os
import struct

import pytest

from tests.integration.broker.conftest import Start
from tests.integration.broker.harness import until


async def test_half_open_connections_are_dropped_when_they_have_been_silent(start_broker: Start) -> None:
    broker = await start_broker(serverChannelMaxIdleTimeSeconds=1)
    known = set(broker.controller.server.connections)
    peers = [await asyncio.open_connection("127.0.0.1", broker.controller.port) for _ in range(3)]
    half_a_frame = broker.send_request("T", b"x" * 1000).encode()[:500]
    peers[0][1].write(half_a_frame)
    peers[1][1].write(half_a_frame[:2])
    for reader, writer in peers:
        assert await asyncio.wait_for(reader.read(), 30) == b""
        writer.close()
    assert not broker.controller.server.connections.keys() - known
    assert broker.controller.store.max_physical_offset == 0
    assert (await broker.send("T", b"x")).code == 0


async def test_a_frame_announced_above_the_limit_is_not_waited_for(
    start_broker: Start, caplog: pytest.LogCaptureFixture
) -> None:
    broker = await start_broker()
    limit = 16 << 20
    for announced in (limit - 3, 1 << 30, -1):
        reader, writer = await asyncio.open_connection("127.0.0.1", broker.controller.port)
        writer.write(struct.pack(">i", announced) + bytes(1000))
        assert await asyncio.wait_for(reader.read(), 30) == b""
        writer.close()
        size = 4 + announced % (1 << 32)
        told = caplog.records[-1].getMessage()
        assert f"a frame of {size} bytes is announced, the limit is {limit}" in told
        assert "com.rocketmq.remoting.frameMaxLength" in told and told.startswith("127.0.0.1:")
    assert (await broker.send("T", b"x")).code == 0


async def test_connections_leave_descriptors_to_the_files_of_the_store(
    start_broker: Start, caplog: pytest.LogCaptureFixture
) -> None:
    """Without one to flush with, a store fails and its broker ends."""
    taken = set(map(int, os.listdir("/proc/self/fd")))  # by earlier tests; what they gave back is free
    highest = [number for number in range(max(taken) + 101) if number not in taken][99]
    broker = await start_broker(highestDescriptor=highest)
    assert (await broker.send("T", b"before")).code == 0
    peers = [await asyncio.open_connection("127.0.0.1", broker.controller.port) for _ in range(200)]
    refused = broker.controller.fast_failure.refused
    await until(lambda: refused.by_cause.get("CONNECTIONS", 0) + len(broker.controller.server.connections) == 201)
    assert 20 < refused.by_cause["CONNECTIONS"] < 200
    told = [record.getMessage() for record in caplog.records if "[CONNECTIONS]" in record.getMessage()]
    assert len(told) == 1 and f"the limit is {highest} (highestDescriptor); disconnected; close connections" in told[0]
    assert (await broker.send("T", b"meanwhile")).code == 0
    for _, writer in peers:
        writer.close()
    await until(lambda: len(broker.controller.server.connections) == 1)
    _, writer = await asyncio.open_connection("127.0.0.1", broker.controller.port)
    await until(lambda: len(broker.controller.server.connections) == 2)
    writer.close()
