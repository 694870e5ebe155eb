"""One end of a simulated TCP connection, as asyncio shows it to a protocol. How it fits together: sim_network.py."""

import asyncio
import contextvars
import errno
import socket
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

_DATA, _EOF, _RESET = range(3)


@dataclass(frozen=True, slots=True)
class SimSocket:
    """What asyncio shows as `socket`: addresses, and options that do nothing."""

    local: tuple[str, int]
    remote: tuple[str, int] | None = None
    family: int = socket.AF_INET

    def getsockname(self) -> tuple[str, int]:
        return self.local

    def getpeername(self) -> tuple[str, int] | None:
        return self.remote

    def setsockopt(self, *_arguments: Any) -> None:
        pass

    def fileno(self) -> int:
        return -1


class Wires(Protocol):
    """The properties of the network between the ends of a connection, in seconds and bytes."""

    loop: asyncio.AbstractEventLoop
    window: int
    context: contextvars.Context

    def draw_chunk(self, transport: "SimTransport", limit: int) -> int: ...

    def draw_delay(self, transport: "SimTransport") -> float: ...

    def transmission_time(self, transport: "SimTransport", size: int) -> float: ...

    def is_up(self, address: str) -> bool: ...

    def is_cut(self, source: str, target: str) -> bool: ...

    def closed(self, transport: "SimTransport") -> None: ...


class SimTransport(asyncio.Transport):
    """One end of a simulated TCP connection."""

    def __init__(
        self,
        network: Wires,
        host: str,
        local: tuple[str, int],
        remote: tuple[str, int],
        context: contextvars.Context,
    ) -> None:
        super().__init__({"sockname": local, "peername": remote, "socket": SimSocket(local, remote)})
        self.host = host
        self.peer: SimTransport = self
        self._network = network
        self._loop = network.loop
        self._context = context
        self._protocol: Any = None
        #: Written by the protocol and not on the wire yet, each write with its pieces. As in uvloop the pieces are not
        #: copied before: a buffer that is changed meanwhile goes out changed.
        self._buffer: deque[Sequence[bytes | memoryview]] = deque()
        self._buffer_bytes = 0
        self._unread_by_peer = 0  # bytes on the wire or in the peer's inbox; at most the window
        self._wire: deque[tuple[float, int, bytes]] = deque()  # (arrival, kind, bytes) towards the peer, in order
        self._wire_timer: asyncio.TimerHandle | None = None
        self._last_arrival = 0.0
        self._pump_scheduled = False
        self._inbox: deque[tuple[int, bytes]] = deque()
        self._reading = True
        self._drain_scheduled = False
        self._writing_paused = False
        self._high, self._low = 65536, 16384
        self._eof_wanted = False
        self._eof_sent = False
        self._closing = False
        self._lost = False  # connection_lost was called or will be, or the host is dead
        self._error: Exception | None = None  # reason of the loss
        self.vanished = False  # the host has crashed: nothing is answered any more

    # -- life --

    def open(self, protocol: Any) -> None:
        """Attach the protocol and call its `connection_made`; also for a connection that was lost before it was
        accepted."""
        self._protocol = protocol
        protocol.connection_made(self)
        if self._lost:
            self._soon(protocol.connection_lost, self._error)
        self._schedule_drain()

    def get_protocol(self) -> Any:
        return self._protocol

    def set_protocol(self, protocol: Any) -> None:
        self._protocol = protocol

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        """Send what is buffered, then the end of the stream."""
        if self._closing:
            return
        self._closing = True
        self._eof_wanted = True
        self._schedule_pump()

    def abort(self) -> None:
        """Close the connection without sending what waits to be sent; the peer sees a reset."""
        self._break(None)
        self._put_on_wire(_RESET, b"")

    def _break(self, error: Exception | None) -> None:
        """Close this end of the connection at once, and drop what was not delivered. `error` is why; None if it was
        closed here."""
        self._closing = True
        self._buffer.clear()
        self._buffer_bytes = 0
        self._inbox.clear()
        self._lose(error)

    def _lose(self, error: Exception | None) -> None:
        if not self._lost:
            self._lost = True
            self._error = error
            self._network.closed(self)
            if self._protocol is not None:
                self._soon(self._protocol.connection_lost, error)

    def vanish(self) -> None:
        """Vanish, because the host crashed: no callback here, no packet to the peer."""
        self.vanished = self._closing = self._lost = True
        self._buffer.clear()
        self._wire.clear()
        self._inbox.clear()

    def end_by_system(self) -> None:
        """End the connection as the system does when the process was killed: no callback here; what the process had
        handed to the system is still sent, then the end of the stream, or a reset if it had not read everything."""
        unread = bool(self._inbox)
        self._closing = self._lost = True
        self._buffer.clear()
        self._inbox.clear()
        self._network.closed(self)
        self._put_on_wire(_RESET if unread else _EOF, b"")

    @property
    def has_unacknowledged(self) -> bool:
        """Return whether data is under way that the peer's system has not received."""
        return self._unread_by_peer > 0

    # -- writing --

    def write(self, data: Any) -> None:
        self.writelines((data,))

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        if self._eof_wanted and not self._closing:  # after close() asyncio ignores it silently
            raise RuntimeError("Cannot call write() after write_eof()")
        pieces = [piece if isinstance(piece, bytes) else memoryview(piece) for piece in list_of_data]
        size = sum(map(len, pieces))
        if self._closing or not size:
            return
        self._buffer.append(pieces)
        self._buffer_bytes += size
        self._schedule_pump()
        if self._buffer_bytes > self._high and not self._writing_paused:
            self._writing_paused = True
            self._protocol.pause_writing()

    def write_eof(self) -> None:
        self._eof_wanted = True
        self._schedule_pump()

    def can_write_eof(self) -> bool:
        return True

    def get_write_buffer_size(self) -> int:
        return self._buffer_bytes

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._low, self._high

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        if high is None:
            high = 65536 if low is None else 4 * low
        if low is None:
            low = high // 4
        if not high >= low >= 0:
            raise ValueError(f"high ({high!r}) must be >= low ({low!r}) must be >= 0")
        self._high, self._low = high, low

    def _soon(self, callback: Callable[..., object], *args: Any) -> None:
        self._loop.call_soon(callback, *args, context=self._context)

    def _schedule_pump(self) -> None:
        if not self._pump_scheduled:
            self._pump_scheduled = True
            self._soon(self._pump)

    def _pump(self) -> None:
        """Move bytes from the buffer to the wire as far as the window allows."""
        self._pump_scheduled = False
        if self._lost:
            return
        while self._buffer and self._unread_by_peer < self._network.window:
            head = b"".join(self._buffer.popleft())
            count = self._network.draw_chunk(self, min(len(head), self._network.window - self._unread_by_peer))
            if count < len(head):
                self._buffer.appendleft((head[count:],))
            self._buffer_bytes -= count
            self._unread_by_peer += count
            self._put_on_wire(_DATA, head[:count])
        if self._writing_paused and self._buffer_bytes <= self._low:
            self._writing_paused = False
            self._protocol.resume_writing()
        if self._eof_wanted and not self._buffer and not self._eof_sent:
            self._eof_sent = True
            self._put_on_wire(_EOF, b"")
        if self._closing and not self._buffer:
            self._lose(None)

    # -- the wire --

    def _put_on_wire(self, kind: int, data: bytes) -> None:
        arrival = self._loop.time() + self._network.draw_delay(self)
        # Later than everything sent before: a stream keeps its order, and its chunks share the bandwidth.
        spacing = self._network.transmission_time(self, len(data))
        self._last_arrival = max(arrival + spacing, self._last_arrival + spacing + 2e-6)
        self._wire.append((self._last_arrival, kind, data))
        self.restart_wire()

    def restart_wire(self) -> None:
        """Set the timer of the first chunk on the wire, unless a partition holds it."""
        if self._wire_timer is None and self._wire and not self._network.is_cut(self.host, self.peer.host):
            due = max(self._wire[0][0], self._loop.time())
            self._wire_timer = self._loop.call_at(due, self._deliver, context=self._network.context)

    def hasten(self) -> None:
        """Adapt to a changed link: data under way needs at most the time it needs on the new one."""
        if not self._wire:
            return
        last = self._loop.time() + self._network.draw_delay(self)
        wire = []
        for arrival, kind, data in self._wire:
            last = min(arrival, last + self._network.transmission_time(self, len(data)) + 2e-6)
            wire.append((last, kind, data))
        self._wire = deque(wire)
        self._last_arrival = last
        if self._wire_timer is not None:
            self._wire_timer.cancel()
            self._wire_timer = None
        self.restart_wire()

    def _deliver(self) -> None:
        self._wire_timer = None
        if not self._wire or self._network.is_cut(self.host, self.peer.host):
            return
        _, kind, data = self._wire.popleft()
        self.peer._arrive(kind, data)
        self.restart_wire()

    def _arrive(self, kind: int, data: bytes) -> None:
        if self.vanished:
            if self._network.is_up(self.host) and kind == _DATA:
                self.peer._reset_by_peer()  # the host has restarted and does not know the connection
        elif self._lost:
            if kind == _DATA:
                self.peer._reset_by_peer()
        elif kind == _RESET:
            self._reset_by_peer()
        else:
            self._inbox.append((kind, data))
            self._schedule_drain()

    def _reset_by_peer(self) -> None:
        if not self._lost:
            self._break(ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"))

    def reset(self) -> None:
        """Break this end as a reset from the network would."""
        self._reset_by_peer()

    # -- reading --

    def is_reading(self) -> bool:
        return self._reading and not self._closing

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        if not self._reading:
            self._reading = True
            self._schedule_drain()

    def _schedule_drain(self) -> None:
        if self._inbox and not self._drain_scheduled:
            self._drain_scheduled = True
            self._soon(self._drain)

    def _drain(self) -> None:
        self._drain_scheduled = False
        while self._inbox and self._reading and not self._closing and self._protocol is not None:
            kind, data = self._inbox.popleft()
            try:
                if kind == _EOF:
                    self._end_of_stream()
                else:
                    self._feed(data)
            except Exception as error:
                self._loop.call_exception_handler(
                    {"message": "protocol failed", "exception": error, "transport": self, "protocol": self._protocol}
                )
                self._break(error)
                self._put_on_wire(_RESET, b"")

    def _feed(self, data: bytes) -> None:
        if isinstance(self._protocol, asyncio.BufferedProtocol):
            _feed_buffered(self._protocol, data)
        else:
            self._protocol.data_received(data)
        self.peer._unread_by_peer -= len(data)
        self.peer._schedule_pump()

    def _end_of_stream(self) -> None:
        if not self._protocol.eof_received():
            self.close()


def _feed_buffered(protocol: asyncio.BufferedProtocol, data: bytes) -> None:
    left = memoryview(data)
    while left:
        buffer = protocol.get_buffer(len(left))
        room = memoryview(buffer).cast("B")
        if not len(room):
            raise RuntimeError("get_buffer() returned an empty buffer")
        count = min(len(room), len(left))
        room[:count] = left[:count]
        room.release()
        protocol.buffer_updated(count)
        left = left[count:]
