"""Functions on TCP sockets that asyncio's transports do not offer."""

import asyncio
import contextlib
import socket
import struct
import sys
from typing import Final

# imported early: a process without free descriptors could not load the module when it is needed
if sys.platform != "win32":
    import fcntl
    import termios

_DROP: Final = struct.pack("ii", 1, 0)  # value of SO_LINGER: on, zero seconds


def unacknowledged(descriptor: int) -> int:
    """Return the bytes that the system has taken to send and the peer has not received; 0 if that cannot be known, as
    for descriptor -1."""
    count = bytearray(4)
    if sys.platform != "win32":
        with contextlib.suppress(OSError, ValueError):
            fcntl.ioctl(descriptor, termios.TIOCOUTQ, count)
    return int.from_bytes(count, "little")


def reset(transport: asyncio.WriteTransport) -> None:
    """End a connection at once. A transport's own `abort` drops only its own buffer; data that the system has accepted,
    perhaps megabytes, would be kept for as long as a peer that does not read keeps its end open."""
    own = transport.get_extra_info("socket")
    if own is not None and (transport.get_write_buffer_size() or unacknowledged(own.fileno())):
        with contextlib.suppress(OSError):  # it is closed already
            own.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _DROP)
    transport.abort()
