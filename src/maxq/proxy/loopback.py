"""A connection inside one process: two Connections, each on one end of a transport without a socket.

What the gRPC server of a broker asks the broker goes this way. It is bytes, as on a socket, so that the broker's batch
paths take all requests of one turn of the loop at once, and one meaning of each request serves both kinds of clients.

What an end writes in a turn arrives at the other in the next one, as one arrival, up to the size of the receive buffer.
At the end of an arrival of gRPC calls it arrives at once (`LoopbackClient.deliver_after`), and so do the broker's
answers, which then leave with all that the arrival is answered.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from maxq.protocol.frame.remoting_command import FRAME_MAX_LENGTH, LONGEST_HEADER
from maxq.remoting.connection import Connection
from maxq.remoting.endpoint import RemotingEndpoint
from maxq.runtime.interfaces import Clock

log: Final = logging.getLogger(__name__)

_IDLE_SECONDS: Final = 120
_WRITE_MARKS: Final = (4 << 20, 1 << 20)
_UNSENT_LIMIT: Final = 256 << 20
_UNFINISHED_LIMIT: Final = 1 << 40  # bytes; the other end is this process
_REQUEST_LIMIT: Final = 65_536

Address = tuple[str, int]


class LoopbackClient(RemotingEndpoint):
    """The asking ends of connections to an endpoint of this process. Processors that are registered here answer what
    that endpoint asks its clients."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(
            clock,
            idle_seconds=_IDLE_SECONDS,
            frame_limit=FRAME_MAX_LENGTH * 16,  # what a broker answers is at most what it stores
            header_limit=LONGEST_HEADER,
            unsent_limit=_UNSENT_LIMIT,
            unfinished_limit=_UNFINISHED_LIMIT,
            write_marks=_WRITE_MARKS,
            request_limit=_REQUEST_LIMIT,
        )
        self._deliveries = Deliveries()

    def deliver_after(self, write: Callable[[], None]) -> None:
        """Call `write`, and deliver at once what is written to these connections, and what their other ends write
        then."""
        deliveries = self._deliveries
        deliveries.is_held = True
        try:
            write()
        finally:
            deliveries.is_held = False
            deliveries.run()

    def connect(self, server: RemotingEndpoint, peer: Address, local: Address) -> Connection:
        """Make a connection to `server` and return its asking end.

        Args:
            peer: the address that the server sees: that of the client on whose behalf requests are made.
            local: the server's own.
        """
        asking = Connection(self, detect=False)
        answering = Connection(server, detect=False)
        answering.is_vouched = True
        near = LoopbackTransport(asking, local, peer, self._deliveries)
        far = LoopbackTransport(answering, peer, local, self._deliveries)
        near.join(far)
        far.join(near)
        answering.connection_made(far)
        asking.connection_made(near)
        return asking


class Deliveries:
    """The ends that have something for their other ends.

    Attributes:
        is_held: `run` is going to be called in this turn of the loop.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._ends: list[LoopbackTransport] = []
        self._is_scheduled = False
        self.is_held = False

    def add(self, end: "LoopbackTransport") -> None:
        """Deliver what an end has to say, in the next turn of the loop unless others see to it."""
        self._ends.append(end)
        if not self.is_held and not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._is_scheduled = False
        ends, self._ends = self._ends, []
        self._deliver(ends)

    @staticmethod
    def _deliver(ends: "list[LoopbackTransport]") -> None:
        for end in ends:
            try:
                end.deliver()
            except Exception:
                log.exception("a delivery within the process failed")

    def run(self) -> None:
        """Deliver at once, there and back; what is said upon that has its own turn."""
        self.is_held = True
        try:
            for _ in range(2):
                ends, self._ends = self._ends, []
                self._deliver(ends)
        finally:
            self.is_held = False
            if self._ends and not self._is_scheduled:
                self._is_scheduled = True
                self._loop.call_soon(self._turn)


class LoopbackTransport(asyncio.Transport):
    """One end; what is written to it arrives at the protocol of the other."""

    def __init__(self, protocol: Connection, peername: Address, sockname: Address, deliveries: Deliveries) -> None:
        super().__init__()
        self._deliveries = deliveries
        self._loop = asyncio.get_running_loop()
        self._protocol = protocol
        self._names = {"peername": peername, "sockname": sockname}
        self._other: LoopbackTransport | None = None
        self._written: deque[bytes | bytearray | memoryview] = deque()
        self._size = 0  # bytes of it
        self._high, self._low = _WRITE_MARKS
        self._is_paused = False  # the protocol was told not to write
        self._reads = True
        self._is_scheduled = False
        self._is_closing = False
        self._is_lost = False

    def join(self, other: "LoopbackTransport") -> None:
        """Take the other end of the connection, before the first byte."""
        self._other = other

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._names.get(name, default)

    # --- writing -----------------------------------------------------------------------------------------------------

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._is_closing or not data:
            return
        self._written.append(data)
        self._size += len(data)
        self._schedule()
        if self._size > self._high and not self._is_paused:
            self._is_paused = True
            self._protocol.pause_writing()

    def writelines(self, list_of_data: Any) -> None:
        for data in list_of_data:
            self.write(data)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = _WRITE_MARKS[0] if high is None else high
        self._low = self._high // 4 if low is None else low

    def get_write_buffer_size(self) -> int:
        return self._size

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._low, self._high

    def can_write_eof(self) -> bool:
        return False

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._deliveries.add(self)

    def deliver(self) -> None:
        """Give what was written to the other end, an arrival at a time."""
        self._is_scheduled = False
        other = self._other
        assert other is not None, "both ends are joined before the first byte"
        while self._written and other._reads and not other._is_lost:
            window = other._protocol.get_buffer(-1)
            room = len(window)
            filled = 0
            while self._written and filled < room:
                piece = self._written[0]
                size = len(piece)
                if size <= room - filled:
                    window[filled : filled + size] = piece
                    filled += size
                    self._written.popleft()
                else:
                    part = memoryview(piece)
                    taken = room - filled
                    window[filled:room] = part[:taken]
                    self._written[0] = part[taken:]
                    filled = room
            self._size -= filled
            other._protocol.buffer_updated(filled)
        if self._is_lost:
            return
        if self._is_paused and self._size <= self._low:
            self._is_paused = False
            self._protocol.resume_writing()
        if self._is_closing and (not self._written or other._is_lost):
            self._lose()

    # --- reading -----------------------------------------------------------------------------------------------------

    def is_reading(self) -> bool:
        return self._reads and not self._is_closing

    def pause_reading(self) -> None:
        self._reads = False

    def resume_reading(self) -> None:
        self._reads = True
        if self._other is not None and (self._other._written or self._other._is_closing):
            self._other._schedule()

    # --- the end -----------------------------------------------------------------------------------------------------

    def is_closing(self) -> bool:
        return self._is_closing

    def close(self) -> None:
        if not self._is_closing:
            self._is_closing = True
            self._schedule()

    def abort(self) -> None:
        self._is_closing = True
        self._written.clear()
        self._size = 0
        self._schedule()

    def _lose(self) -> None:
        """End both directions; each protocol is told in a later turn, as by a socket."""
        if not self._is_lost:
            self._is_lost = True
            self._written.clear()
            self._size = 0
            self._loop.call_soon(self._protocol.connection_lost, None)
            if self._other is not None:
                self._other._is_closing = True
                self._other._lose()
