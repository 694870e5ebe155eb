"""Connection: one TCP connection and the frames on it, on either side.

Receiving. All connections of an endpoint receive into one shared buffer; what is left of an arrival (an incomplete
frame) is kept per connection and put in front of the next arrival. An idle connection therefore owns no buffer. A frame
of more than half the shared buffer is received into a buffer of its own, which grows with what really arrives. The
bytes of unfinished frames of all connections together are limited (unfinished_frames.py).

Sending. Answers to one arrival are collected and sent in one write when the arrival has been handled.

A peer that does not read. When the transport holds more than the high mark, its socket is not read, and earlier
arrivals are not handled, until it has drained. Answers that other events write to it meanwhile (long pulls that wake
up) are limited by `unsent_limit`, above which the connection is closed and logged.

First bytes. A server looks at the first bytes of a connection: a PROXY protocol header is taken off, 0x16 starts TLS,
anything else is a frame (whose first byte is 0 or 1 for every length below 32 MiB).
"""

import asyncio
import logging
import ssl
from array import array
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Protocol, cast

from maxq.errors import RemoteProtocolError, RemotingSendError, RemotingTimeoutError, UntrustedServerError
from maxq.protocol.frame.client_connection import ClientConnection
from maxq.protocol.frame.remoting_command import RemotingCommand, decode_frame
from maxq.protocol.message.message_id import encode_host
from maxq.remoting.addresses import address_text
from maxq.remoting.first_bytes import Opening, opening
from maxq.remoting.proxy_protocol import ProxyHeader, looks_like_proxy_header, parse_proxy_header
from maxq.remoting.socket_io_cy import send_pieces
from maxq.remoting.system_sockets import reset, unacknowledged
from maxq.remoting.tls.contexts import failure_text
from maxq.remoting.tls.tls_channel import TlsChannel
from maxq.remoting.unfinished_frames import COUNTED, UnfinishedFrames
from maxq.runtime.holds import ANSWER, BATCH, FRAME, LONG_BATCH, Holds
from maxq.runtime.refusals import Cause, explain

__all__ = ["OWN_BUFFER_START", "RECEIVE_BUFFER_SIZE", "BatchPath", "Connection", "Processor"]

log: Final = logging.getLogger("maxq.remoting")

#: Bytes of the buffer all connections of an endpoint receive into.
RECEIVE_BUFFER_SIZE: Final = 256 * 1024
OWN_BUFFER_START: Final = 64 * 1024
_JOINED_AT_MOST: Final = 1024 * 1024  # most bytes that a transport copies in order to join several pieces
_FLUSH_AT: Final = 512 * 1024  # bytes of waiting answers that are sent before more of an arrival is handled

# arrivals on the fast path in a row after which a connection may be read together with others
_FAST_PATH_ARRIVALS: Final = 4

# --- what a connection needs of others --------------------------------------------------------------------------------

#: (connection, buffer, start, end) → new start: takes the leading frames it understands.
BatchPath = Callable[["Connection", bytearray, int, int], int]

#: Answers one request. None: answered later through `connection.send(request.reply(...))`, or never.
Processor = Callable[["Connection", RemotingCommand], RemotingCommand | Awaitable[RemotingCommand | None] | None]


class Reader(Protocol):
    """Reads connections instead of their transports, and lends them to threads (batched_reads.py)."""

    descriptor: int
    is_at_work: bool

    def offer(self, connection: "Connection") -> None:
        """Read this connection, once there are some others like it."""
        ...

    def withdraw(self, connection: "Connection") -> None:
        """Forget a connection that was offered and is not read here yet."""
        ...

    def adopt(self, connection: "Connection", fd: int) -> bool:
        """Read this connection, whose transport has stopped, from its socket `fd`. Returns False if that is not
        possible."""
        ...

    def drop(self, fd: int) -> None:
        """Stop reading the socket with the descriptor `fd`."""
        ...


class Pieces(Protocol):
    """Interface of an answer's body that lies in pieces in a mapped file (store/read/cached_pull_reader_cy.py)."""

    @property
    def view(self) -> memoryview:
        """Return the mapped file that has the pieces."""
        ...

    @property
    def places(self) -> "array[int]":
        """Return the first byte and the size of each piece."""
        ...

    @property
    def count(self) -> int: ...

    @property
    def total_bytes(self) -> int: ...

    def buffers(self) -> list[memoryview]: ...


class Endpoint(Protocol):
    """Interface of the server or client to which a connection belongs."""

    turn_seconds: float  # time for requests of one arrival before other connections get their turn
    receive_buffer: bytearray
    receive_view: memoryview
    frame_limit: int  # bytes of a whole frame
    answer_limit: int  # most bytes of an answer's frame: a client accepts no more
    header_limit: int  # most bytes of a header
    first_room: int  # bytes that are made for a large frame at first, however little of it has come
    make_room: Callable[[int], bytearray]  # makes a buffer of at least so many bytes for a large frame
    unsent_limit: int  # most bytes that a transport may hold
    write_marks: tuple[int, int]  # bytes: stop reading above the first, go on below the second
    request_limit: int  # requests of ours that may wait for answers on one connection
    batch_path: BatchPath | None
    holds: Holds  # counts what took long
    unfinished: UnfinishedFrames  # bytes of incomplete frames that its connections keep

    @property
    def batched_reads(self) -> Reader:
        """Return the reader for connections that bring only requests for the fast path."""
        ...

    def next_opaque(self) -> int: ...

    def server_tls(self) -> ssl.SSLContext | None:
        """Return the TLS settings for clients that begin TLS; None: TLS is disabled."""
        ...

    def plain_allowed(self) -> bool:
        """Return whether a connection may continue without TLS."""
        ...

    def trusts_balancer(self, address: str) -> bool:
        """Return whether a peer at this IP address may name another client in a PROXY line."""
        ...

    def connected(self, connection: "Connection") -> None: ...

    def closed(self, connection: "Connection", error: Exception | None) -> None: ...

    def request_received(self, connection: "Connection", command: RemotingCommand) -> None: ...


#: Receiver of an answer: a future, or a function that is called with the answer, or with None if none comes.
_Waiter = asyncio.Future[RemotingCommand] | Callable[[RemotingCommand | None], None]


class Connection(asyncio.BufferedProtocol):
    """One connection.

    Attributes:
        attributes: belongs to whoever owns the connection (client id and the like).
    """

    __slots__ = (
        "_detecting", "_direct", "_endpoint", "_fast_path_arrivals", "_in_pass", "_is_writing", "_left_queued",
        "_left_unsent", "_loop", "_out", "_out_size", "_own_end", "_own_filled", "_paused", "_remote_host", "_requests",
        "_resting", "_socket", "_ticks_unread", "_tls", "_transport", "_written", "active", "arrivals", "attributes",
        "close_reason", "excluded_codes", "given_buffer", "has_unfinished", "idle_ticks", "is_closed", "is_introduced",
        "is_known", "is_vouched", "local_address", "opened_ms", "own_buffer", "partial", "ready", "remote_address",
    )  # fmt: skip

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        excluded_codes: frozenset[int] = frozenset(),
        tls: TlsChannel | None = None,
        detect: bool = True,
    ) -> None:
        """
        Args:
            excluded_codes: request codes this connection's port does not serve (VIP port).
            tls: the client side of TLS, which starts at once.
            detect: look for PROXY protocol and TLS in the first bytes (a server).
        """
        self._endpoint = endpoint
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._detecting = detect
        # a load balancer has said for which client it speaks; the following bytes are the client's
        self.is_introduced = False
        self._tls = tls
        self.partial = b""
        self.own_buffer: bytearray | None = None
        self.given_buffer: bytearray | None = None  # a buffer that is being handled and will not be written again
        self.has_unfinished = False  # it is listed in the endpoint's unfinished frames
        self.is_known = False  # one of its requests was allowed
        self.is_vouched = False  # the peer is part of this process, which has checked who asks (proxy/loopback.py)
        self._own_filled = 0
        self._own_end = 0  # bytes of the own buffer that are handled
        self._out: list[bytes | memoryview] = []
        self._out_size = 0
        self._in_pass = False
        self._is_writing = False  # the transport is being given the contents of `_out`
        self._paused = False
        self._resting = False
        self._requests = ClientConnection[_Waiter]("", limit=endpoint.request_limit, numbers=endpoint.next_opaque)
        self._remote_host: bytes | None = None
        self._fast_path_arrivals = 0  # number in a row
        # descriptor of the socket if bytes may be written to it directly; -1: there is none, or TLS is between
        self._direct = -1
        self._socket = -1  # the socket from which the endpoint's BatchedReads reads; -1: the transport reads
        self.excluded_codes = excluded_codes
        self.attributes: dict[str, Any] = {}
        self.remote_address = ""
        self.local_address = ""
        self.is_closed = False
        self.close_reason = ""
        self.opened_ms = 0  # monotonic
        self.active = True  # bytes moved since the endpoint's last look
        self.arrivals = 0  # number of arrivals
        self.idle_ticks = 0  # checks in a row that found it inactive
        self._left_unsent = 0  # bytes that waited in the transport at the last check
        self._left_queued = 0  # bytes that waited in the system at the last check
        self._written = 0  # bytes written since the last check
        self._ticks_unread = 0
        self.ready: asyncio.Future[None] | None = None  # on a client: done when the TLS handshake is

    def __repr__(self) -> str:
        return f"<Connection {self.local_address} ← {self.remote_address}{' closed' if self.is_closed else ''}>"

    @property
    def remote_host(self) -> bytes:
        """Return the peer's address in the form of records: the packed IP address and the int32 port; 8 bytes, or 20
        for IPv6."""
        if self._remote_host is None:
            host, _, port = self.remote_address.rpartition(":")
            self._remote_host = encode_host(host, int(port))
        return self._remote_host

    @property
    def peer_ip(self) -> str:
        """Return the IP address from which the connection comes; behind a trusted load balancer, that of its client."""
        return self.remote_address.rpartition(":")[0].strip("[]")

    @property
    def is_held_back(self) -> bool:
        """Return whether requests of the peer wait because it does not read its answers, or is gone."""
        return self._paused or self.is_closed

    @property
    def descriptor(self) -> int:
        """Return the descriptor of the socket; -1 where the system has none (in the simulator)."""
        socket = None if self._transport is None else self._transport.get_extra_info("socket")
        return -1 if socket is None else int(socket.fileno())

    @property
    def unsent_bytes(self) -> int:
        """Return the bytes that were written and have not left for the peer yet."""
        transport = self._transport
        return self._out_size + (0 if transport is None or self.is_closed else transport.get_write_buffer_size())

    def stalls(self, least: int) -> int:
        """Return the number of checks in a row, this one included, at which the peer had taken less than `least` bytes
        since the last check although more waited for it."""
        transport = self._transport
        unsent = 0 if transport is None else transport.get_write_buffer_size()
        queued = unacknowledged(self.descriptor) if unsent else 0
        taken = self._left_unsent + self._written - unsent
        taken += max(0, self._left_queued - queued)
        is_stuck = taken < min(self._left_unsent, least)
        self._left_unsent, self._left_queued, self._written = unsent, queued, 0
        self._ticks_unread = self._ticks_unread + 1 if is_stuck else 0
        return self._ticks_unread

    # --- using it ----------------------------------------------------------------------------------------------------

    @property
    def waiting(self) -> int:
        """Return how many requests that this side sent wait for their answers."""
        return len(self._requests)

    @property
    def requests(self) -> int:
        """Return how many requests this side has ever sent on this connection, without one-way ones."""
        return self._requests.requests

    def write(self, buffers: Sequence[bytes | memoryview]) -> None:
        """Send whole frames given in pieces. During an arrival they leave together at its end. Nothing happens on a
        closed connection."""
        if self.is_closed:
            return
        size = 0
        for buffer in buffers:
            size += len(buffer)
        self._out += buffers
        self._out_size += size
        if not self._in_pass or self._out_size > _FLUSH_AT:
            self._flush()

    def write_pieces(self, head: bytes, pieces: Pieces) -> None:
        """Send one frame: its head, and a body that lies in pieces in a mapped file. At once and by one system call, if
        nothing is to be sent before it; what the socket does not take is sent as by `write`."""
        fd = self.direct_socket()
        if fd < 0:
            self.write([head, *pieces.buffers()])
            return
        self.active = True
        sent = send_pieces(fd, head, pieces.view, pieces.places, pieces.count)
        if sent < len(head) + pieces.total_bytes:
            self.write(_unsent([head, *pieces.buffers()], sent))

    @property
    def answer_limit(self) -> int:
        """Return the largest frame, in bytes, that the peer accepts as an answer, as far as this side knows."""
        return self._endpoint.answer_limit

    def send(self, command: RemotingCommand) -> None:
        """Send one frame. Raises LocalProtocolError if it cannot be encoded."""
        self.write(command.buffers())

    def send_oneway(self, command: RemotingCommand) -> None:
        """Send a request that the peer does not answer."""
        self.write(self._requests.oneway(command))

    async def invoke(self, command: RemotingCommand, timeout_ms: int) -> RemotingCommand:
        """Send a request and wait for its response.

        Raises:
            RemotingTimeoutError: none came in time.
            RemotingSendError: the connection is closed, breaks meanwhile, or too many requests wait on it.
        """
        self._check_open()
        future: asyncio.Future[RemotingCommand] = self._loop.create_future()
        frame = self._requests.request(command, future)
        opaque = command.opaque
        timer = self._loop.call_later(timeout_ms / 1000, _time_out, future, self.remote_address, timeout_ms)
        try:
            self.write(frame)
            return await future
        finally:
            timer.cancel()
            self._requests.forget(opaque)

    def request(self, command: RemotingCommand, on_reply: Callable[[RemotingCommand | None], None]) -> int:
        """Send a request without a task and a timer of its own. `on_reply` is called with the response, or with None
        when the connection breaks; the caller checks the time-out and calls `forget`.

        Returns:
            The request's opaque.

        Raises:
            RemotingSendError: the connection is closed, or too many requests wait on it.
            LocalProtocolError: the request cannot be encoded.
        """
        self._check_open()
        self.write(self._requests.request(command, on_reply))
        return command.opaque

    @property
    def waiters(self) -> dict[int, _Waiter]:
        """Return who waits for answers, by the number (opaque) of their requests. Callers of `send_requests` add to
        it."""
        return self._requests.waiters

    def send_requests(self, frames: bytes, count: int, body: bytes = b"") -> None:
        """Send `count` encoded requests, whose `waiters` are entered; `body`, if it is not empty, is that of the last
        one."""
        self._requests.requests += count
        self.write([frames, body] if body else [frames])

    def send_left(self) -> None:
        """Send what `send_at_once` (socket_io_cy) has left."""
        if not self.is_closed and not self._in_pass:
            self._flush()

    def broken(self) -> RemotingSendError:
        """Make the error for who waits for an answer when the connection is closed."""
        return RemotingSendError(
            f"the channel <{self.remote_address}> closed before the answer came: {self.close_reason}",
            address=self.remote_address,
        )

    def forget(self, opaque: int) -> None:
        """Stop waiting for the answer to a request of `request`."""
        self._requests.forget(opaque)

    def _check_open(self) -> None:
        address = self.remote_address
        if self.is_closed:
            text = f"send request to <{address}> failed: {self.close_reason}"
            raise RemotingSendError(text, address=address, may_be_stored=False)

    def close(self, reason: str = "closed by us") -> None:
        """Close when what is buffered has been sent."""
        if not self.is_closed:
            self.close_reason = self.close_reason or reason
            self._direct = -1  # another thread must not send requests any more, which would get no answer
            self._in_pass = False
            self._flush()
            if self._tls is not None and self._transport is not None:
                self._transport.write(self._tls.close())
            self._shut(abort=False)

    def abort(self, reason: str) -> None:
        """Close at once; what is buffered is lost."""
        if not self.is_closed:
            self.close_reason = self.close_reason or reason
            self._shut(abort=True)

    def kill(self) -> None:
        """Drop the data that `close` still waits to send, and close at once."""
        if self._transport is not None:
            reset(self._transport)

    def _shut(self, *, abort: bool) -> None:
        self.is_closed = True
        self._direct = -1
        self._drop_socket()
        self._endpoint.batched_reads.withdraw(self)
        self._release()
        self._out, self._out_size, self.partial, self.own_buffer = [], 0, b"", None
        if self._transport is not None:
            if abort:
                reset(self._transport)
            else:
                self._transport.close()

    # --- asyncio -----------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport = cast(asyncio.Transport, transport)
        self.remote_address = address_text(transport.get_extra_info("peername"))
        self._requests.is_at(self.remote_address)
        if not self.remote_address:  # the peer has closed it already, and rules about addresses cannot be applied
            self.abort("reset by the peer before it was accepted")
        self.local_address = address_text(transport.get_extra_info("sockname"))
        high, low = self._endpoint.write_marks
        transport.set_write_buffer_limits(high=high, low=low)
        if self._tls is None and (socket := transport.get_extra_info("socket")) is not None:
            self._direct = socket.fileno()
        self._endpoint.connected(self)
        if self._tls is not None:
            transport.write(self._tls.start())

    def connection_lost(self, error: Exception | None) -> None:
        self.is_closed = True
        self._direct = -1
        self._drop_socket()
        self._endpoint.batched_reads.withdraw(self)
        self.close_reason = self.close_reason or (f"broken: {error}" if error else "closed by the peer")
        self._release()
        self.partial, self.own_buffer, self._out = b"", None, []
        broken = self.broken()
        for waiter in self._requests.end():
            if not isinstance(waiter, asyncio.Future):
                waiter(None)
            elif not waiter.done():
                waiter.set_exception(broken)
        if self.ready is not None and not self.ready.done():
            self.ready.set_exception(broken)
        self._endpoint.closed(self, error)

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._tls is not None or (self.own_buffer is None and not self.partial):
            return self._endpoint.receive_view
        return self._window()

    def buffer_updated(self, nbytes: int) -> None:
        if self.is_closed:
            return
        self.active = True
        self.arrivals += 1
        if self._tls is not None:
            self._tls_received(self._endpoint.receive_view[:nbytes])
        elif self._detecting:
            self._detect(nbytes)
        elif self.own_buffer is None and not self.partial:
            self.work(self._endpoint.receive_buffer, 0, nbytes)
        else:
            self._received(nbytes)

    def pause_writing(self) -> None:
        self._paused = True
        self._drop_socket()
        if self._transport is not None and not self.is_closed:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        self._paused = False
        self.active = True
        if not self._resting:
            self._go_on()

    def _rest(self) -> None:
        """Process the arrivals of other connections before the rest of this one's."""
        self._resting = True
        self._drop_socket()
        if self._transport is not None:
            self._transport.pause_reading()
        self._loop.call_soon(self._rested)

    def _rested(self) -> None:
        self._resting = False
        if not self._paused:
            self._go_on()

    def _go_on(self) -> None:
        """Process the frames that were held back, and read on."""
        if self.is_closed or self._transport is None:
            return
        if len(self.partial) >= 4:
            held, self.partial = bytearray(self.partial), b""
            self.work(held, 0, len(held))
        if not (self._paused or self._resting or self.is_closed or self._socket >= 0):
            self._transport.resume_reading()

    # --- read together with others -----------------------------------------------------------------------------------

    def note_fast_path_arrival(self) -> None:
        """Note that the fast path took all of an arrival. After some of these in a row the connection may be read
        together with others like it."""
        self.is_known = True
        if self.has_unfinished:
            self._release()
        self._fast_path_arrivals += 1
        if self._fast_path_arrivals == _FAST_PATH_ARRIVALS:
            self._endpoint.batched_reads.offer(self)

    def join_batched_reads(self) -> None:
        """Read this connection together with others, if that is possible at this moment; if not, it is offered again
        after some more arrivals."""
        self._fast_path_arrivals = 0
        reads, transport = self._endpoint.batched_reads, self._transport
        if transport is None or transport.is_closing() or self._socket >= 0 or self._tls is not None:
            return
        if self._paused or self._resting or self.is_closed:
            return
        socket = transport.get_extra_info("socket")
        if socket is None or socket.fileno() < 0:  # not a socket of the operating system
            return
        transport.pause_reading()
        if reads.adopt(self, socket.fileno()):
            self._socket = socket.fileno()
        else:
            transport.resume_reading()

    def leave_batched_reads(self) -> None:
        """Make the transport read this connection again, behind what a thread has received that borrowed it and that
        was not what it waited for. The peer may have closed it behind that."""
        self._drop_socket()
        if not (self._paused or self._resting):
            self._go_on()

    def _drop_socket(self) -> None:
        if self._socket >= 0:
            self._endpoint.batched_reads.drop(self._socket)
            self._socket = -1

    @property
    def batched_reads(self) -> Reader:
        """Return who may read this connection together with others."""
        return self._endpoint.batched_reads

    def direct_socket(self) -> int:
        """Return a socket that bytes can be written to past the transport, or -1 while earlier bytes wait: use
        `write`."""
        transport = self._transport
        if self._direct < 0 or self._out or transport is None or transport.is_closing():
            return -1
        return -1 if transport.get_write_buffer_size() else self._direct

    # --- receiving ---------------------------------------------------------------------------------------------------

    def _window(self) -> memoryview:
        """Return the memory for the next bytes of the stream of frames, behind those that are kept."""
        own = self.own_buffer
        if own is None:
            kept = len(self.partial)
            if kept <= RECEIVE_BUFFER_SIZE // 2:
                view = self._endpoint.receive_view
                if kept:
                    view[:kept] = self.partial
                    return view[kept:]
                return view
            # frames held back while the peer does not read, and bytes that arrive in spite of pause_reading
            own = self._make_own(kept + OWN_BUFFER_START)
            own[:kept] = self.partial
            self._own_filled, self.partial = kept, b""
            self._hold(self._own_end)
        return memoryview(own)[self._own_filled : self._own_end]

    def _make_own(self, size: int) -> bytearray:
        """Make a buffer of this connection's own, of which `size` bytes are used."""
        own = self.own_buffer = self._endpoint.make_room(size)
        self._own_end = size
        return own

    def _received(self, count: int) -> None:
        """Process `count` bytes of frames that were put into the window."""
        own = self.own_buffer
        if own is None:
            end = len(self.partial) + count
            self.partial = b""
            self.work(self._endpoint.receive_buffer, 0, end)
            return
        filled = self._own_filled = self._own_filled + count
        total = 4 + int.from_bytes(own[:4], "big")
        if filled >= total or total > self._endpoint.frame_limit:
            self.own_buffer, self.given_buffer = None, own
            self.work(own, 0, filled)
            self.given_buffer = None
        elif filled == self._own_end:
            self._hold(size := min(total, 2 * filled))
            if not self.is_closed:
                self._make_own(size)[:filled] = memoryview(own)[:filled]

    def work(self, buffer: bytearray, start: int, end: int) -> None:
        """Process the whole frames of buffer[start:end], keep the rest, send the answers."""
        self._in_pass = True
        try:
            position = self._frames(buffer, start, end)
        except RemoteProtocolError as error:
            log.warning(
                "%s sent bytes that are not RocketMQ's protocol and is disconnected: %s", self.remote_address, error
            )
            self.close(f"protocol error: {error}")
            return
        except Exception:
            log.exception("a frame from %s could not be processed; the connection is closed", self.remote_address)
            self.abort("internal error")
            return
        finally:
            self._in_pass = False
        if not self.is_closed:
            if self.has_unfinished and position > start:
                self._release()
            if position < end:
                self._keep(buffer, position, end)
            if self._out:
                self._flush()

    def _frames(self, buffer: bytearray, position: int, end: int) -> int:
        endpoint = self._endpoint
        holds = endpoint.holds
        turn_ends = 0.0
        while not self._paused:
            if endpoint.batch_path is not None:
                began_ns = holds.now() if end - position >= LONG_BATCH else 0
                position = endpoint.batch_path(self, buffer, position, end)
                if began_ns:
                    holds.ended(BATCH, began_ns)
                if position == end:
                    break
            turn_ends = turn_ends or self._loop.time() + endpoint.turn_seconds
            if end - position < 4 or self._paused or self.is_closed or self._turn_is_over(turn_ends):
                break
            behind = position + 4 + int.from_bytes(buffer[position : position + 4], "big")
            if behind - position > endpoint.frame_limit:
                raise RemoteProtocolError(
                    f"a frame of {behind - position} bytes is announced, the limit is {endpoint.frame_limit}; send "
                    "less at once, or raise com.rocketmq.remoting.frameMaxLength"
                )
            if behind > end:
                break
            cause: int | str = FRAME
            began_ns = holds.now()
            try:
                command = decode_frame(memoryview(buffer)[position + 4 : behind], endpoint.header_limit)
                position, cause = behind, ANSWER if command.is_response else command.code
                self._command(command)
            finally:
                holds.ended(cause, began_ns)
            if self.is_closed:
                break
            if position < end and self._turn_is_over(turn_ends):
                break
        return position

    def _turn_is_over(self, turn_ends: float) -> bool:
        """Return whether this connection has used up its time, and make it rest if so. Behind TLS everything is
        processed at once, because the peer's end of the stream may have arrived already."""
        if self._tls is not None or self._loop.time() <= turn_ends:
            return False
        self._rest()
        return True

    def _keep(self, buffer: bytearray, position: int, end: int) -> None:
        kept = end - position
        if not (self._paused or self._resting) and kept >= 4:
            total = 4 + int.from_bytes(buffer[position : position + 4], "big")
            if total > RECEIVE_BUFFER_SIZE // 2:
                own = self._make_own(min(total, max(2 * kept, self._endpoint.first_room)))
                own[:kept] = memoryview(buffer)[position:end]
                self._own_filled = kept
                self._hold(self._own_end)
                return
        self.partial = bytes(memoryview(buffer)[position:end])
        if kept > COUNTED:
            self._hold(kept)
        else:
            self._release()

    def _hold(self, size: int) -> None:
        """Record `size` bytes of an unfinished frame as kept. If that is too much, a connection is ended: this one, or
        another."""
        self.has_unfinished = True
        self._endpoint.unfinished.hold(self, size)

    def _release(self) -> None:
        if self.has_unfinished:
            self.has_unfinished = False
            self._endpoint.unfinished.release(self)

    def end_unfinished(self, total: int, limit: int) -> None:
        self._end_for(
            Cause.OVERLOAD,
            f"the frame that it began is not whole, and all such frames together have {total} bytes",
            limit=f"{limit} (maxUnfinishedBytes)",
            remedy="disconnected; send frames as a whole, or raise the limit",
        )

    def _end_for(self, cause: Cause, text: str, *, limit: str, remedy: str) -> None:
        """Close the connection at once because of its peer's behaviour; the log and waiting callers get the reason."""
        reason = explain(cause, text, limit=limit, remedy=remedy)
        log.warning("%s %s", self.remote_address, reason)
        self.abort(reason)

    def _command(self, command: RemotingCommand) -> None:
        if not command.is_response:
            self._endpoint.request_received(self, command)
            return
        waiter = self._requests.answered(command)
        if isinstance(waiter, asyncio.Future):
            if not waiter.done():
                waiter.set_result(command)
        elif waiter is not None:
            waiter(command)
        else:
            log.debug("%s answered opaque %d, which nobody waits for", self.remote_address, command.opaque)

    # --- sending -----------------------------------------------------------------------------------------------------

    def _flush(self) -> None:
        out = self._out
        transport = self._transport
        if not out or transport is None:
            return
        out_size = self._out_size
        self._written += out_size
        self._is_writing = True
        self._out, self._out_size = [], 0
        self.active = True
        try:
            if self._tls is not None:
                transport.write(self._tls.encrypt(out))
            elif len(out) == 1:
                transport.write(out[0])
            elif out_size > _JOINED_AT_MOST:
                for buffer in out:
                    transport.write(buffer)
            else:
                transport.writelines(out)
            self._is_writing = False
        except BaseException:
            # Part of a frame may have left: whatever follows it would be taken for the rest.
            self.abort("a write failed half way")
            raise
        if self._paused and (unsent := transport.get_write_buffer_size()) > self._endpoint.unsent_limit:
            self._end_for(
                Cause.UNREAD_ANSWERS,
                f"does not read its answers: {unsent} bytes unsent",
                limit=f"{self._endpoint.unsent_limit} (maxUnsentBytes)",
                remedy="disconnected; a client that asks must read",
            )

    # --- PROXY protocol and TLS --------------------------------------------------------------------------------------

    def _detect(self, count: int) -> None:
        """Examine the first bytes of the connection for a PROXY header and TLS."""
        end = len(self.partial) + count
        self.partial = b""
        buffer = self._endpoint.receive_buffer
        position = 0
        try:
            if not self.is_introduced and looks_like_proxy_header(buffer[: min(16, end)]):
                header = parse_proxy_header(bytes(memoryview(buffer)[:end]))
                if header is None:
                    self.partial = bytes(memoryview(buffer)[:end])
                    return
                self._adopt_proxy_header(header)
                position = header.size
                if position == end:
                    return  # TLS or a frame follows
            self._start_stream(buffer, position, end)
        except RemoteProtocolError as error:
            log.warning("%s is disconnected: %s", self.remote_address, error)
            self.abort(f"protocol error: {error}")

    def _start_stream(self, buffer: bytearray, position: int, end: int) -> None:
        self._detecting = False
        found = opening(buffer[position : min(position + 24, end)])
        if found is Opening.TLS:
            context = self._endpoint.server_tls()
            if context is None:
                raise RemoteProtocolError("TLS where tls.server.mode is disabled")
            self._tls = TlsChannel(context, server_side=True)
            self._direct = -1
            self._tls_received(memoryview(buffer)[position:end])
        elif not self._endpoint.plain_allowed():
            raise RemoteProtocolError("a connection without TLS where tls.server.mode is enforcing")
        elif found is Opening.HTTP2:
            raise RemoteProtocolError("HTTP/2 where frames of remoting are expected: gRPC has a port of its own")
        else:
            self.work(buffer, position, end)

    def _adopt_proxy_header(self, header: ProxyHeader) -> None:
        """Adopt the client's address that a load balancer names.

        Raises:
            RemoteProtocolError: the peer is not a known load balancer.
        """
        address = self.peer_ip
        if not self._endpoint.trusts_balancer(address):
            raise RemoteProtocolError(
                f"a PROXY line from {address}, which proxyProtocolTrusted does not list; list it there if it is a load "
                "balancer of yours"
            )
        self.is_introduced = True
        self.attributes.update(header.attributes())
        if header.source is not None:
            self.remote_address = address_text(header.source)
            self._requests.is_at(self.remote_address)
            self._remote_host = None

    def _tls_received(self, data: memoryview) -> None:
        tls, transport = self._tls, self._transport
        assert tls is not None and transport is not None
        try:
            tls.feed(data)
            while not self.is_closed and (count := tls.read_into(self._window())):
                self._received(count)
        except (ssl.SSLError, RemoteProtocolError) as error:
            why = failure_text(error)
            transport.write(tls.outgoing())  # sends the alert that tells the peer why
            self.close_reason = f"TLS failed: {why}"
            if isinstance(error, ssl.SSLCertVerificationError) and self.ready is not None and not self.ready.done():
                self.ready.set_exception(UntrustedServerError(why))  # tells whoever waits for the connection
            else:
                log.warning("TLS with %s failed: %s", self.remote_address, why)
            self._shut(abort=False)
            return
        if self.is_closed:
            return
        if answer := tls.outgoing():
            transport.write(answer)
        if tls.is_ended:
            self.close("closed by the peer")
        elif tls.is_ready and self.ready is not None and not self.ready.done():
            self.ready.set_result(None)


def _time_out(future: "asyncio.Future[RemotingCommand]", address: str, timeout_ms: int) -> None:
    """Tell a waiter that no answer of `address` came within `timeout_ms`."""
    if not future.done():
        text = f"wait response on the channel <{address}> timeout, {timeout_ms}(ms)"
        future.set_exception(RemotingTimeoutError(text, address=address, timeout_ms=timeout_ms))


def _unsent(buffers: Sequence[bytes | memoryview], sent: int) -> list[bytes | memoryview]:
    """Return what is left of `buffers` behind the first `sent` bytes."""
    left: list[bytes | memoryview] = []
    for buffer in buffers:
        if sent < len(buffer):
            left.append(memoryview(buffer)[sent:] if sent else buffer)
        sent = max(0, sent - len(buffer))
    return left
