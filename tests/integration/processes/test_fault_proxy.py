"""The fault proxy does what it says: tests that trust it would otherwise prove nothing."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest

from tests.integration.processes.fault_proxy import Direction, FaultProxy

PATIENCE_S = 30.0


@dataclass
class Far:
    """A server that echoes, and remembers the ends of streams that it saw."""

    port: int = 0
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    lost: asyncio.Event = field(default_factory=asyncio.Event)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(1 << 16):
                writer.write(data)
                await writer.drain()
            self.ended.set()
            writer.write(b"bye")
            await writer.drain()
        except OSError:
            self.lost.set()
        writer.close()


@pytest.fixture
async def far() -> AsyncIterator[Far]:
    found = Far()
    server = await asyncio.start_server(found.serve, "127.0.0.1", 0)
    found.port = server.sockets[0].getsockname()[1]
    yield found
    server.close()


@pytest.fixture
async def proxy(far: Far) -> AsyncIterator[FaultProxy]:
    running = await FaultProxy(far.port).start()
    yield running
    await running.stop()


async def echo(proxy: FaultProxy, data: bytes = b"hello") -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection through the proxy that has echoed once."""
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    writer.write(data)
    assert await asyncio.wait_for(reader.readexactly(len(data)), PATIENCE_S) == data
    return reader, writer


async def test_bytes_and_ends_of_streams_go_through(proxy: FaultProxy, far: Far) -> None:
    data = bytes(range(256)) * 4096
    reader, writer = await echo(proxy, data)
    assert proxy.forwarded == {Direction.FROM_CLIENT: len(data), Direction.FROM_SERVER: len(data)}
    writer.write_eof()
    assert await asyncio.wait_for(reader.read(), PATIENCE_S) == b"bye"
    assert far.ended.is_set()
    writer.close()


async def test_a_cut_resets_both_sides_and_lasts_until_mended(proxy: FaultProxy, far: Far) -> None:
    reader, _ = await echo(proxy)
    proxy.cut()
    with pytest.raises(OSError):
        await asyncio.wait_for(reader.readexactly(1), PATIENCE_S)
    await asyncio.wait_for(far.lost.wait(), PATIENCE_S)
    again, _ = await asyncio.open_connection("127.0.0.1", proxy.port)
    with pytest.raises((OSError, asyncio.IncompleteReadError)):
        await asyncio.wait_for(again.readexactly(1), PATIENCE_S)
    proxy.mend()
    await echo(proxy)


async def test_a_stalled_connection_stays_open_and_goes_on_later(proxy: FaultProxy) -> None:
    reader, writer = await echo(proxy)
    proxy.stall(Direction.FROM_SERVER)
    writer.write(b"late")
    waiting = asyncio.ensure_future(reader.readexactly(4))
    done, _ = await asyncio.wait([waiting], timeout=0.05)
    assert not done and proxy.connections == 1
    proxy.mend()
    assert await asyncio.wait_for(waiting, PATIENCE_S) == b"late"


async def test_a_slow_link_takes_its_time(proxy: FaultProxy) -> None:
    proxy.slow(200_000)
    start = asyncio.get_running_loop().time()
    await echo(proxy, bytes(20_000))
    assert asyncio.get_running_loop().time() - start >= 0.1  # one way alone takes that long


async def test_a_half_closed_connection_still_carries_the_other_way(proxy: FaultProxy, far: Far) -> None:
    reader, writer = await echo(proxy)
    proxy.half_close(Direction.FROM_CLIENT)
    assert await asyncio.wait_for(reader.read(), PATIENCE_S) == b"bye"
    assert far.ended.is_set()
    writer.close()


async def test_a_server_that_is_not_there_is_a_reset(proxy: FaultProxy, far: Far) -> None:
    dead = await FaultProxy(1).start()
    reader, _ = await asyncio.open_connection("127.0.0.1", dead.port)
    with pytest.raises((OSError, asyncio.IncompleteReadError)):
        await asyncio.wait_for(reader.readexactly(1), PATIENCE_S)
    await dead.stop()
