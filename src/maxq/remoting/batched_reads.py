"""BatchedReads: receives, handles and answers in one pass what arrived on many connections in one turn of the event
loop.

With one request in flight on each of many connections an arrival is one small frame, and a transport's way of
delivering it (a callback, a window, a call, a write) costs more than the broker's work. So a connection that brings
only requests which the fast path takes (fast-path sends, pulls that are remembered) is read here: its transport stops
reading, its socket is watched by an epoll instance of this module, which the loop watches as one reader, and each turn
receives on all readable sockets, one arrival behind the other in one buffer (socket_io_cy). `path` takes the sends at
the head of all arrivals together, and then the pulls that it knows; whatever else came is worked off by its connection,
as if the transport had delivered it. A connection that ends, fails, is not read by its peer or gets a very large frame
goes back to its transport, which handles all of that.

A turn costs 40 µs beside its messages. While an append would only wait for the disk (SYNC_FLUSH), reading pauses for at
most a millisecond: all arrivals of that time are then taken together.

A thread that waits for one answer may receive on such a connection itself: the epoll instance is told not to watch the
socket meanwhile (`receive_lent` in socket_io_cy), so that no turn begins for it.

Only connections with a socket of this process are read so: not those with TLS, not the simulator's, and none where the
system has no epoll.
"""

import asyncio
import logging
import select
from array import array
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from maxq.protocol.frame.send_rows import A_END, A_TAKEN, ARRIVAL_WIDTH
from maxq.remoting.connection import RECEIVE_BUFFER_SIZE, Connection
from maxq.remoting.socket_io_cy import receive, send, untaken
from maxq.runtime.holds import BATCH, LONG_BATCH, Holds

log: Final = logging.getLogger("maxq.remoting")

_MOST: Final = 256  # most arrivals that are read in one turn
_REST_S: Final = 0.001  # longest rest while `may_rest` allows one
_FEW: Final = 3  # fewest sending connections for which batching is worth it; with fewer, a transport is 1 µs faster


class BatchedReads:
    """The connections of one endpoint that are read together.

    Attributes:
        buffer: holds the arrivals of this turn, one behind the other.
        table: a row for each arrival (columns A_… of protocol/frame/send_rows.py), in which `path` notes what it took.
        connections, hosts: the connection of each arrival, and its peer's address as records have it.
        path: called with this object when arrivals have been received; takes what it understands of them.
        may_rest: called with a function; True promises that requests that are taken now would not be answered before
            that function is called.
        is_at_work: bytes were received that have not been handled or kept by their connections yet.
        descriptor: the epoll instance; -1: there is none.
    """

    def __init__(self, holds: Holds) -> None:
        self._holds = holds
        self.buffer = bytearray(RECEIVE_BUFFER_SIZE)
        self.table = array("q", bytes(8 * ARRIVAL_WIDTH * _MOST))
        self.connections: list[Connection] = []
        self.hosts: list[bytes] = []
        self.path: Callable[[BatchedReads], None] | None = None
        self.may_rest: Callable[[Callable[[], None]], bool] | None = None
        self._resting: asyncio.TimerHandle | None = None
        self._offered: dict[Connection, None] = {}  # in the order in which they came
        self._by_fd: dict[int, Connection] = {}
        self._epoll: Any = None
        self.descriptor = -1
        self.is_at_work = False

    def __len__(self) -> int:
        """Return how many connections are read here."""
        return len(self._by_fd)

    def offer(self, connection: Connection) -> None:
        """Read this connection, once there are some others like it."""
        self._offered[connection] = None
        if len(self._offered) + len(self._by_fd) >= _FEW:
            offered, self._offered = self._offered, {}
            for one in offered:
                one.join_batched_reads()

    def withdraw(self, connection: Connection) -> None:
        """Forget an offered connection, because it ends."""
        self._offered.pop(connection, None)

    def adopt(self, connection: Connection, fd: int) -> bool:
        """Read this connection, whose transport has stopped, from its socket `fd`. Returns False if the system has no
        epoll, or does not allow one more descriptor or watched socket."""
        try:
            if self._epoll is None:
                self._watch()
            self._epoll.register(fd, select.EPOLLIN)
        except (AttributeError, OSError):
            return False
        self._by_fd[fd] = connection
        return True

    def _watch(self) -> None:
        """Make an epoll instance that the loop watches. Raises AttributeError or OSError."""
        epoll = select.epoll()
        try:
            asyncio.get_running_loop().add_reader(epoll.fileno(), self._readable)
        except OSError:
            epoll.close()
            raise
        self._epoll, self.descriptor = epoll, epoll.fileno()

    def drop(self, fd: int) -> None:
        """Stop reading the socket with the descriptor `fd`."""
        if self._by_fd.pop(fd, None) is not None:
            with suppress(OSError):  # closed already: the kernel has forgotten it
                self._epoll.unregister(fd)

    def close(self) -> None:
        """Stop reading all connections, when the server ends."""
        if self._resting is not None:
            self._resting.cancel()
            self._resting = None
        if self._epoll is not None:
            asyncio.get_running_loop().remove_reader(self.descriptor)
            self._epoll.close()
            self._epoll = None
            self.descriptor = -1

    def answer(self, answers: bytearray, table: "array[int]", connections: list[Connection]) -> None:
        """Send each connection its answers (socket_io_cy.send)."""
        send(answers, table, connections)

    def _readable(self) -> None:
        if self.may_rest is None or not self.may_rest(self._go_on):
            self._receive()
            return
        loop = asyncio.get_running_loop()
        loop.remove_reader(self.descriptor)
        self._resting = loop.call_later(_REST_S, self._rested)

    def _go_on(self) -> None:
        """End a rest before its time, and read again."""
        if self._resting is not None:
            self._resting.cancel()
            self._rested()

    def _rested(self) -> None:
        self._resting = None
        asyncio.get_running_loop().add_reader(self.descriptor, self._readable)
        self._receive()

    def _receive(self) -> None:
        self.connections, self.hosts = [], []
        odd: list[Connection] = []
        events = self._epoll.poll(0, _MOST)
        self.is_at_work = True
        try:
            count = receive(events, self._by_fd, self.buffer, self.table, self.connections, self.hosts, odd)
            if count:
                self._work(count)
        finally:
            self.is_at_work = False
        for connection in odd:
            connection.leave_batched_reads()

    def _work(self, count: int) -> None:
        if self.path is not None:
            bytes_of_all = self.table[(count - 1) * ARRIVAL_WIDTH + A_END]
            began_ns = self._holds.now() if bytes_of_all >= LONG_BATCH else 0
            try:
                self.path(self)
            except Exception:
                log.exception("requests that arrived together could not be processed; their connections are closed")
                for connection in self.connections:
                    connection.abort("internal error")
            if began_ns:
                self._holds.ended(BATCH, began_ns)
        table = self.table
        for number in untaken(table, count):
            row = number * ARRIVAL_WIDTH
            self.connections[number].work(self.buffer, table[row + A_TAKEN], table[row + A_END])
