"""A peer by a real socket that drips, sips or does nothing at all."""

import asyncio
import contextlib
import socket
import time
from typing import Final

SMALL_BUFFER: Final = 4096
_TCP_CLOSE: Final = 7  # a state of the system's


class Peer:
    """A socket with a small buffer that does what it is told, in a thread."""

    def __init__(self, port: int) -> None:
        self.socket = socket.socket()
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL_BUFFER)
        self.socket.connect(("127.0.0.1", port))
        self.connected = time.monotonic()

    async def drips(self, data: bytes, *, every: float) -> None:
        """Send a byte at a time until it is cut off.

        Raises:
            AssertionError: it sent all and was not.
        """

        def work() -> None:
            self.socket.settimeout(every)
            for byte in data:
                try:
                    self.socket.sendall(bytes((byte,)))
                    with contextlib.suppress(TimeoutError):
                        if self.socket.recv(1) == b"":
                            break
                except OSError:
                    break
            else:
                raise AssertionError("it was never cut off")

        await asyncio.to_thread(work)

    async def sips(self, most: int, *, every: float, seconds: float) -> None:
        """Read `most` bytes at a time, nothing if that is 0, until it is cut off.

        Raises:
            AssertionError: it was not within so many seconds.
        """

        def work() -> None:
            self.socket.settimeout(seconds)
            while time.monotonic() - self.connected < seconds:
                if (most and self.socket.recv(most) == b"") or self._is_reset():
                    break
                time.sleep(every)
            else:
                raise AssertionError("it was never cut off")

        await asyncio.to_thread(work)

    def _is_reset(self) -> bool:
        """What was received before can still be read."""
        return self.socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] == _TCP_CLOSE

    def close(self) -> None:
        self.socket.close()
