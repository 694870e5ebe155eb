"""A TCP proxy on loopback that can cut, stall, slow down and half-close what goes through it, on command.

What a network does to a TCP connection between two live processes, without touching the machine's network: a reset, a
peer that is silent, a link of few bytes a second, an end of stream in one direction. Bytes are never changed, dropped
or reordered, because TCP does not do that either.
"""

import asyncio
import contextlib
import socket
import struct
from dataclasses import dataclass, field
from enum import Enum

_CHUNK = 64 * 1024
_RESET = struct.pack("ii", 1, 0)  # SO_LINGER: closing says RST
_SLICE_S = 0.02  # a slow link lets through what belongs to this time at once


class Direction(Enum):
    """Who sends."""

    FROM_CLIENT = "from client"
    FROM_SERVER = "from server"


def _reset(writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    writer.transport.abort()


@dataclass(eq=False)
class _Link:
    """One connection through the proxy."""

    client: asyncio.StreamWriter
    server: asyncio.StreamWriter
    tasks: list["asyncio.Task[None]"] = field(default_factory=list)

    def writer(self, direction: Direction) -> asyncio.StreamWriter:
        return self.server if direction is Direction.FROM_CLIENT else self.client

    def close(self) -> None:
        self.client.close()
        self.server.close()

    def abort(self) -> None:
        for writer in (self.client, self.server):
            _reset(writer)


class FaultProxy:
    """Forwards connections to `host:port` until told otherwise.

    Args:
        port: where the server listens; the process there may come and go.
        host: its address.

    Attributes:
        port: where the proxy listens, once started.
        accepted: connections taken so far.
        forwarded: bytes let through, by direction.
    """

    def __init__(self, port: int, host: str = "127.0.0.1") -> None:
        self.port = 0
        self.accepted = 0
        self.forwarded = dict.fromkeys(Direction, 0)
        self._target = (host, port)
        self._links: set[_Link] = set()
        self._refusing = False
        self._open = {direction: asyncio.Event() for direction in Direction}
        self._bytes_per_second: int | None = None
        self._server: asyncio.Server | None = None
        self.mend()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def connections(self) -> int:
        """Open ones."""
        return len(self._links)

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> "FaultProxy":
        """Listen there; port 0 takes a free one."""
        self._server = await asyncio.start_server(self._accepted, host, port)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def stop(self) -> None:
        """Close everything; the proxy is not used again."""
        assert self._server is not None, "started"
        self._server.close()
        tasks = [task for link in self._links for task in link.tasks]
        self._reset_links()
        await asyncio.gather(*tasks, return_exceptions=True)

    # -- faults --

    def cut(self) -> None:
        """Reset every connection, and each new one at once, until `mend`."""
        self._refusing = True
        self._reset_links()

    def reset(self) -> None:
        """Reset every connection; new ones work."""
        self._reset_links()

    def stall(self, *directions: Direction) -> None:
        """Let nothing through (in these directions, else both) until `mend`. Connections stay open, and new ones are
        accepted: what a host without power behind a switch looks like."""
        for direction in directions or Direction:
            self._open[direction].clear()

    def slow(self, bytes_per_second: int) -> None:
        """Let so many bytes a second through on each connection and direction, until `mend`."""
        self._bytes_per_second = bytes_per_second

    def half_close(self, direction: Direction) -> None:
        """End this direction's stream on every connection; the other one goes on."""
        for link in self._links:
            with contextlib.suppress(OSError, RuntimeError):
                link.writer(direction).write_eof()

    def mend(self) -> None:
        """No fault any more. Connections that were reset stay so; stalled ones go on."""
        self._refusing = False
        self._bytes_per_second = None
        for gate in self._open.values():
            gate.set()

    # -- forwarding --

    def _reset_links(self) -> None:
        for link in list(self._links):
            link.abort()
            for task in link.tasks:
                task.cancel()

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        if self._refusing:
            _reset(writer)
            return
        try:
            from_server, to_server = await asyncio.open_connection(*self._target)
        except OSError:
            _reset(writer)
            return
        link = _Link(writer, to_server)
        if self._refusing:
            link.abort()
            return
        self._links.add(link)
        link.tasks = [
            asyncio.create_task(self._pump(reader, to_server, Direction.FROM_CLIENT)),
            asyncio.create_task(self._pump(from_server, writer, Direction.FROM_SERVER)),
        ]
        try:
            await asyncio.gather(*link.tasks, return_exceptions=True)
        finally:
            self._links.discard(link)
            if all(task.done() and not task.cancelled() and task.exception() is None for task in link.tasks):
                link.close()  # both ends of stream were carried
            else:
                link.abort()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, direction: Direction) -> None:
        """Carry one direction; its end of stream is carried too, a reset resets the other half."""
        try:
            while data := await reader.read(self._portion()):
                await self._open[direction].wait()
                if self._bytes_per_second is not None:
                    await asyncio.sleep(len(data) / self._bytes_per_second)
                writer.write(data)
                self.forwarded[direction] += len(data)
                await writer.drain()
            await self._open[direction].wait()
            writer.write_eof()
        except (OSError, RuntimeError):  # RuntimeError: written after our own half-close
            _reset(writer)

    def _portion(self) -> int:
        if self._bytes_per_second is None:
            return _CHUNK
        return max(1, min(_CHUNK, int(self._bytes_per_second * _SLICE_S)))
