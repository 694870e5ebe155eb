"""Many small arrivals at once: receive on all sockets that are readable, send all answers, without an object per
message; and answers that lie in pieces in a mapped file, without an object per piece. The sockets belong to transports
of the running loop, which do not read meanwhile (remoting/batched_reads.py).

Columns of the table, one row an arrival: protocol/send_rows, A_….
"""

import os
import select
from typing import TYPE_CHECKING

try:
    import cython
except ModuleNotFoundError:
    from maxq.runtime import cython  # type: ignore[no-redef]

if cython.compiled:
    from cython.cimports.libc.errno import EAGAIN, EINTR, errno
    from cython.cimports.maxq.remoting.system_poll import POLLIN, maxq_watch, poll, pollfd
    from cython.cimports.posix.uio import iovec, writev
    from cython.cimports.posix.unistd import read, write

if TYPE_CHECKING:
    import asyncio
    from array import array
    from collections.abc import Callable, Sequence
    from typing import Any, Protocol, TypeVar

    from maxq.protocol.frame.client_connection import ClientConnection
    from maxq.protocol.frame.remoting_command import RemotingCommand

    class Receiving(Protocol):
        """The fields of a connection (remoting/connection.py) that this module reads and writes."""

        is_closed: bool
        own_buffer: bytearray | None
        partial: bytes
        active: bool
        arrivals: int

        @property
        def remote_host(self) -> bytes: ...
        def direct_socket(self) -> int: ...
        def write(self, buffers: Sequence[bytes | memoryview]) -> None: ...

    class Lent(Receiving, Protocol):
        """The part of a Connection that a thread uses which receives on it."""

        _socket: int

    class Lender(Protocol):
        """The part of BatchedReads that `lend`, `receive_lent` and `give_back` use."""

        descriptor: int
        is_at_work: bool

    C = TypeVar("C", bound=Receiving)

    class Sending(Protocol):
        """Connection, as far as `send_at_once` uses it to send a request."""

        active: bool
        _direct: int
        _is_writing: bool
        _out: list[bytes | memoryview]
        _out_size: int
        _requests: ClientConnection[Any]
        _transport: asyncio.Transport


_IN = 1  # EPOLLIN
_LEAST_WINDOW = cython.declare(cython.Py_ssize_t, 16384)


@cython.cfunc
@cython.exceptval(check=False)
def _read(fd: cython.int, buffer: cython.uchar[::1], p: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Return the number of received bytes; 0 at the end of the stream, -1 if there are none now, -2 for an error."""
    count: cython.Py_ssize_t
    if cython.compiled:
        count = read(fd, cython.address(buffer[p]), end - p)
        if count < 0:
            return -1 if errno == EAGAIN or errno == EINTR else -2
        return count
    try:
        return os.readv(fd, [memoryview(buffer)[p:end]])
    except (BlockingIOError, InterruptedError):
        return -1
    except OSError:
        return -2


@cython.cfunc
@cython.exceptval(check=False)
def _write(fd: cython.int, data: cython.uchar[::1], p: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Return the number of bytes that the kernel accepted, or a negative number."""
    if cython.compiled:
        return write(fd, cython.address(data[p]), end - p)
    try:
        return os.write(fd, memoryview(data)[p:end])
    except OSError:
        return -1


def receive(
    events: list,  # type: list[tuple[int, int]]
    by_fd: dict,  # type: dict[int, C]
    buffer: cython.uchar[::1],  # type: bytearray
    table: cython.longlong[::1],  # type: array[int]
    connections: list,  # type: list[C]
    hosts: list,  # type: list[bytes]
    odd: list,  # type: list[C]
):
    # type: (...) -> int
    """Receive once on each readable socket into `buffer`, one arrival behind the other, each behind what its connection
    kept; returns how many there are. The table, `connections` and `hosts` (the peers, packed) tell of them.

    Args:
        events: what epoll said: descriptor and flags.
        odd: gets those that ended, failed, or expect a frame that needs a buffer of its own.
    """
    size: cython.Py_ssize_t = buffer.shape[0] if cython.compiled else len(buffer)
    most: cython.Py_ssize_t = (table.shape[0] if cython.compiled else len(table)) // 5
    p: cython.Py_ssize_t = 0
    q: cython.Py_ssize_t
    got: cython.Py_ssize_t
    r: cython.Py_ssize_t
    count: cython.Py_ssize_t = 0
    kept: bytes
    fd: cython.int
    flags: cython.int
    for fd, flags in events:
        connection = by_fd.get(fd)
        if connection is None:
            continue
        if flags & ~_IN or connection.is_closed or connection.own_buffer is not None:
            odd.append(connection)
            continue
        kept = connection.partial
        q = p + len(kept)
        if count == most or (count and q + _LEAST_WINDOW > size):
            break  # the others are still readable in the next turn
        got = _read(fd, buffer, q, size)
        if got <= 0:
            if got != -1:
                odd.append(connection)
            continue
        if kept:
            memoryview(buffer)[p:q] = kept
            connection.partial = b""
        connection.active = True
        connection.arrivals += 1
        q += got
        r = count * 5
        table[r] = p
        table[r + 1] = q
        table[r + 2] = p
        table[r + 3] = table[r + 4] = 0
        connections.append(connection)
        hosts.append(connection.remote_host)
        p = q
        count += 1
    return count


def untaken(
    table: cython.longlong[::1],  # type: array[int]
    count: cython.Py_ssize_t,
):
    # type: (...) -> list[int]
    """Return the arrivals that were not read to their end."""
    found: list = []
    number: cython.Py_ssize_t
    for number in range(count):
        if table[number * 5 + 2] < table[number * 5 + 1]:
            found.append(number)
    return found


def send(
    answers: cython.uchar[::1],  # type: bytearray
    table: cython.longlong[::1],  # type: array[int]
    connections: list,  # type: Sequence[Receiving]
):
    # type: (...) -> None
    """Send each connection its A_ROWS answers, which follow each other in `answers`; what a socket does not take at
    once goes by its transport."""
    p: cython.Py_ssize_t = 0
    q: cython.Py_ssize_t
    sent: cython.Py_ssize_t
    number: cython.Py_ssize_t
    _row: cython.longlong
    fd: cython.int
    for number in range(len(connections)):
        q = p
        for _row in range(table[number * 5 + 4]):
            q += 4 + (
                (cython.cast(cython.Py_ssize_t, answers[q]) << 24)
                | (cython.cast(cython.Py_ssize_t, answers[q + 1]) << 16)
                | (cython.cast(cython.Py_ssize_t, answers[q + 2]) << 8)
                | cython.cast(cython.Py_ssize_t, answers[q + 3])
            )
        if p == q:
            continue
        connection = connections[number]
        fd = connection.direct_socket()
        if fd >= 0:
            sent = _write(fd, answers, p, q)
            if sent > 0:
                p += sent
        if p < q:
            connection.write([memoryview(answers)[p:q]])
        p = q


def send_pieces(
    fd: cython.int,
    head: bytes,
    view: cython.const[cython.uchar][::1],  # type: memoryview
    places: cython.longlong[::1],  # type: array[int]
    count: cython.Py_ssize_t,
):
    # type: (...) -> int
    """Write `head`, and then the `count` pieces of `view` whose first bytes and sizes are in `places`, in one call; how
    many bytes the socket took, 0 if none or it is broken."""
    i: cython.Py_ssize_t
    size: cython.longlong
    room: cython.longlong = len(view)
    if count > 1000 or 2 * count > len(places):
        raise ValueError(f"{count} pieces are more than one call takes, 1000, or than there are places for")
    for i in range(count):
        size = places[2 * i + 1]
        if places[2 * i] < 0 or size <= 0 or size > room or places[2 * i] > room - size:
            raise ValueError(f"piece {i} is outside the file of {room} bytes")
    if cython.compiled:
        pieces: iovec[1001]
        sent: cython.Py_ssize_t
        pieces[0].iov_base = cython.cast(cython.p_void, cython.cast(cython.p_char, head))
        pieces[0].iov_len = len(head)
        for i in range(count):
            pieces[i + 1].iov_base = cython.cast(cython.p_void, cython.address(view[places[2 * i]]))
            pieces[i + 1].iov_len = places[2 * i + 1]
        sent = writev(fd, pieces, count + 1)
        return sent if sent > 0 else 0
    slices = [memoryview(view)[places[2 * i] : places[2 * i] + places[2 * i + 1]] for i in range(count)]
    try:
        return os.writev(fd, [head, *slices])
    except OSError:
        return 0


def send_at_once(
    connection,  # type: Sending
    opaque: object,  # type: int
    waiter: object,  # type: Callable[[RemotingCommand | None], None]
    head: bytes,
    body: bytes,
):
    # type: (...) -> int
    """Send a request, `head` and `body`, and note who waits for its answer, unless the connection has something to send
    before it. Any thread may call this where the module is compiled and the loop is uvloop's: from the look at the
    connection until the bytes are sent nothing else runs.

    Returns:
        Bytes that the socket has not taken: the loop is to call `send_left`. -1: nothing was done.
    """
    size: cython.Py_ssize_t = len(head) + len(body)
    sent: cython.Py_ssize_t
    fd: cython.int = connection._direct
    transport: object = connection._transport
    if fd < 0 or connection._out or connection._is_writing or transport.is_closing():
        return -1
    if transport.get_write_buffer_size():
        return -1
    requests: object = connection._requests
    requests.waiters[opaque] = waiter
    requests.requests += 1
    connection.active = True
    if cython.compiled:
        pieces: iovec[2]
        pieces[0].iov_base = cython.cast(cython.p_void, cython.cast(cython.p_char, head))
        pieces[0].iov_len = len(head)
        pieces[1].iov_base = cython.cast(cython.p_void, cython.cast(cython.p_char, body))
        pieces[1].iov_len = len(body)
        sent = max(writev(fd, pieces, 2 if body else 1), 0)
    else:
        try:
            sent = os.writev(fd, [head, body])
        except OSError:
            sent = 0
    if sent < size:
        connection._out.append((head + body)[sent:])
        connection._out_size += size - sent
    return size - sent


@cython.cfunc
@cython.exceptval(check=False)
def _watch(epoll: cython.int, fd: cython.int, is_watched: cython.bint) -> cython.bint:
    """Let an epoll instance tell of a socket that is readable, or not; returns False if it does not know the socket."""
    if cython.compiled:
        return maxq_watch(epoll, fd, is_watched) == 0
    with select.epoll.fromfd(os.dup(epoll)) as instance:
        try:
            instance.modify(fd, select.EPOLLIN if is_watched else 0)
        except (OSError, ValueError):
            return False
    return True


def lend(
    connection,  # type: Lent
    reads,  # type: Lender
):
    # type: (...) -> int
    """Let the calling thread receive on a connection that the loop reads together with others, until `give_back`. It
    calls `receive_lent` next, and runs no Python code in between: that could wait for something that comes on this
    connection.

    Returns:
        1: it is lent. 0: the loop has something of it in hands. -1: its transport reads it
        (`Connection.join_batched_reads`).
    """
    fd: cython.int = connection._socket
    if fd < 0:
        return -1
    if reads.is_at_work or connection.partial or connection.own_buffer is not None:
        return 0
    return 1 if _watch(reads.descriptor, fd, False) else 0


def receive_lent(
    connection,  # type: Lent
    reads,  # type: Lender
    buffer: bytearray,
    wait_ms: cython.int,
):
    # type: (...) -> int
    """Wait until something comes on a connection that is lent, and receive it. Other threads run while this waits, and
    only then.

    Returns:
        The number of bytes, which are in `buffer` and begin where a frame begins: call `give_back`. 0: nothing came in
        time, there was a signal, or it is for the loop; the connection is given back.
    """
    fd: cython.int = connection._socket
    ready: cython.int
    got: cython.Py_ssize_t = 0
    if fd < 0:
        return 0
    if cython.compiled:
        waited: pollfd
        waited.fd = fd
        waited.events = POLLIN
        with cython.nogil:
            ready = poll(cython.address(waited), 1, wait_ms)
    else:
        poller = select.poll()
        poller.register(fd, select.POLLIN)
        ready = len(poller.poll(wait_ms))
    if connection._socket != fd:  # it was closed, or is read by its transport again
        return 0
    if ready > 0 and not (reads.is_at_work or connection.partial or connection.own_buffer is not None):
        if cython.compiled:
            got = read(fd, cython.cast(cython.p_char, buffer), len(buffer))
        else:
            got = _read(fd, buffer, 0, len(buffer))
    if got <= 0:
        _watch(reads.descriptor, fd, True)
        return 0
    connection.active = True
    connection.arrivals += 1
    return got


def give_back(
    connection,  # type: Lent
    reads,  # type: Lender
    rest: bytes,
):
    # type: (...) -> None
    """Let the loop read a connection again that was lent. `rest`: what was received and is for the loop, which is to
    call `Connection.leave_batched_reads` if that is not empty."""
    if rest:
        connection.partial = rest
    _watch(reads.descriptor, connection._socket, True)


def is_compiled() -> bool:
    """Returns whether this module runs compiled by Cython."""
    return cython.compiled
