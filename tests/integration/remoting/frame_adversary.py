"""Who owns the network between a client and a server, and knows where frames begin: a proxy that repeats, withholds,
swaps, delays and cuts them, and brings back old ones, also those of connections that are gone."""

import asyncio
import contextlib
import random
import socket
import struct
from collections.abc import Awaitable, Callable
from enum import Enum

_RESET = struct.pack("ii", 1, 0)  # SO_LINGER: closing says RST
_MOST_KEPT = 200  # old frames of a direction
_LONGEST_S = 0.03
_HANDSHAKE = 8  # records of a direction that are let through: without them there is nothing to attack

Read = Callable[[asyncio.StreamReader], Awaitable[bytes]]


async def frame(reader: asyncio.StreamReader) -> bytes:
    """The next frame of the remoting protocol."""
    head = await reader.readexactly(4)
    return head + await reader.readexactly(int.from_bytes(head, "big"))


async def tls_record(reader: asyncio.StreamReader) -> bytes:
    """The next record of TLS."""
    head = await reader.readexactly(5)
    return head + await reader.readexactly(int.from_bytes(head[3:], "big"))


class Fate(Enum):
    """What becomes of a frame."""

    AS_IT_IS = "as it is"
    TWICE = "twice"
    OLD_ONE_AFTER_IT = "with an old one after it"
    AFTER_THE_NEXT = "after the next"
    LATE = "late"
    LOST = "lost"
    CUT_INSIDE = "cut inside"


#: Of a hundred frames.
_OFTEN = {
    Fate.AS_IT_IS: 84, Fate.TWICE: 3, Fate.OLD_ONE_AFTER_IT: 4, Fate.AFTER_THE_NEXT: 3, Fate.LATE: 4, Fate.LOST: 1,
    Fate.CUT_INSIDE: 1,
}  # fmt: skip


class FrameAdversary:
    """In front of a server on loopback.

    Attributes:
        port: where it listens, once started.
        meant: how many frames met each fate.
    """

    def __init__(self, port: int, rng: random.Random, *, tls: bool = False) -> None:
        self.port = 0
        self.meant = dict.fromkeys(Fate, 0)
        self._target = port
        self._rng = rng
        self._read: Read = tls_record if tls else frame
        self._spared = _HANDSHAKE if tls else 0
        self._old: dict[bool, list[bytes]] = {True: [], False: []}
        self._server: asyncio.Server | None = None
        self._links: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._accepted, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Close everything."""
        assert self._server is not None, "started"
        self._server.close()
        for task in self._links:
            task.cancel()
        await asyncio.gather(*self._links, return_exceptions=True)

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._links.add(task)
        from_server, to_server = await asyncio.open_connection("127.0.0.1", self._target)
        ways = [
            asyncio.create_task(self._carry(reader, to_server, is_request=True)),
            asyncio.create_task(self._carry(from_server, writer, is_request=False)),
        ]
        with contextlib.suppress(asyncio.CancelledError):  # by `stop`
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        for way in ways:
            way.cancel()
        for one in (writer, to_server):
            with contextlib.suppress(OSError):
                one.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            one.transport.abort()
        await asyncio.gather(*ways, return_exceptions=True)
        self._links.discard(task)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, is_request: bool) -> None:
        """Until the stream ends or a frame is cut."""
        old, spared, held = self._old[is_request], self._spared, b""
        while True:
            try:
                data = await self._read(reader)
            except (asyncio.IncompleteReadError, OSError):
                return
            fate = Fate.AS_IT_IS
            if spared:
                spared -= 1
            else:
                fate = self._rng.choices(list(_OFTEN), list(_OFTEN.values()))[0]
                if len(old) < _MOST_KEPT:
                    old.append(data)
                else:
                    old[self._rng.randrange(_MOST_KEPT)] = data
            self.meant[fate] += 1
            if fate is Fate.LATE:
                await asyncio.sleep(self._rng.random() * _LONGEST_S)
            if fate is Fate.AFTER_THE_NEXT and not held:
                held = data
                continue
            if fate is Fate.LOST:
                continue
            if fate is Fate.CUT_INSIDE:
                writer.write(data[: self._rng.randrange(len(data))])
                await writer.drain()
                return
            writer.write(data + (data if fate is Fate.TWICE else b"") + held)
            held = b""
            if fate is Fate.OLD_ONE_AFTER_IT:
                writer.write(self._rng.choice(old))
            await writer.drain()
