"""Servers, clients and raw peers for the tests of this folder."""

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from maxq.config.netty_client_config import NettyClientConfig
from maxq.config.netty_server_config import NettyServerConfig
from maxq.protocol.frame.remoting_command import RemotingCommand, decode_frame
from maxq.remoting.client import RemotingClient
from maxq.remoting.server import Connection, RemotingServer
from maxq.remoting.tls.contexts import ClientTls, ServerTls
from maxq.runtime.files.system import SystemClock, SystemRng

ECHO, LATER, FAIL, SILENT = 1, 2, 3, 4


def echo(connection: Connection, command: RemotingCommand) -> RemotingCommand:
    return command.reply(0, command.remark, dict(command.ext), command.body)


def silent(connection: Connection, command: RemotingCommand) -> None:
    return None


@asynccontextmanager
async def serving(
    prepare: Callable[[RemotingServer], object] | None = None, tls: ServerTls | None = None, **settings: Any
) -> AsyncIterator[RemotingServer]:
    """A server on a free port of this machine that answers ECHO and SILENT."""
    server = RemotingServer(dataclasses.replace(NettyServerConfig(), **settings), clock=SystemClock(), tls=tls)
    server.register(ECHO, echo)
    server.register(SILENT, silent)
    if prepare is not None:
        prepare(server)
    await server.start("127.0.0.1", 0)
    try:
        yield server
    finally:
        await server.shutdown()


@asynccontextmanager
async def calling(tls: ClientTls | None = None, **settings: Any) -> AsyncIterator[RemotingClient]:
    client = RemotingClient(
        dataclasses.replace(NettyClientConfig(), **settings), clock=SystemClock(), rng=SystemRng(), tls=tls
    )
    try:
        yield client
    finally:
        await client.close()


class RawPeer:
    """Bytes in and out."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, *parts: RemotingCommand | bytes) -> None:
        self.writer.write(b"".join(part if isinstance(part, bytes) else part.encode() for part in parts))

    async def receive(self) -> RemotingCommand:
        length = int.from_bytes(await self.reader.readexactly(4), "big")
        return decode_frame(await self.reader.readexactly(length))

    async def ask(self, command: RemotingCommand) -> RemotingCommand:
        self.send(command)
        return await self.receive()

    async def ended(self) -> bytes:
        """What still came before the other side closed."""
        try:
            return await self.reader.read()
        except ConnectionError:
            return b""


@asynccontextmanager
async def connected(port: int, **options: Any) -> AsyncIterator[RawPeer]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, **options)
    try:
        yield RawPeer(reader, writer)
    finally:
        writer.transport.abort()


async def until(condition: Callable[[], object], what: str, seconds: float = 30.0) -> None:
    """Wait for a condition, a turn of the loop at a time."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110  (any condition, not one event)
            await asyncio.sleep(0.001)
    assert condition(), what


class FakeTransport(asyncio.Transport):
    """Remembers what is written; holds as much as it is told to."""

    def __init__(self) -> None:
        super().__init__({"peername": ("10.0.0.9", 4711), "sockname": ("10.0.0.1", 10911)})
        self.writes: list[bytes] = []
        self.held = 0
        self.reading = True
        self.state = "open"
        self.limits: tuple[int | None, int | None] = (None, None)

    def write(self, data: Any) -> None:
        self.writes.append(bytes(data))

    def writelines(self, list_of_data: Any) -> None:
        self.writes.append(b"".join(list_of_data))

    def get_write_buffer_size(self) -> int:
        return self.held

    def is_closing(self) -> bool:
        return self.state != "open"

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self.limits = (high, low)

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def close(self) -> None:
        self.state = "closed"

    def abort(self) -> None:
        self.state = "aborted"


def arrive(connection: Connection, data: bytes) -> None:
    """Bytes as a loop hands them to a BufferedProtocol."""
    left = memoryview(data)
    while left:
        window = connection.get_buffer(-1)
        count = min(len(window), len(left))
        window[:count] = left[:count]
        connection.buffer_updated(count)
        left = left[count:]


def frames_of(data: bytes) -> list[RemotingCommand]:
    found = []
    while data:
        length = int.from_bytes(data[:4], "big")
        found.append(decode_frame(data[4 : 4 + length]))
        data = data[4 + length :]
    return found
