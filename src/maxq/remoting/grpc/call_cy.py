"""gRPC on one HTTP/2 connection: calls, their messages and how they end.

A message is 5 bytes (is it compressed, its size) and its bytes, in one or several DATA frames. A whole call of one
message, which most are, is handed over straight from the frame, and its answer is one piece of bytes: constant header
fields, the message, constant trailers.

Source:
    github.com/grpc/grpc, doc/PROTOCOL-HTTP2.md.
"""

import asyncio
import logging
import zlib
from typing import TYPE_CHECKING

try:
    import cython
except ModuleNotFoundError:
    from maxq.runtime import cython  # type: ignore[no-redef]

from maxq.protocol.http2.connection_cy import CANCEL
from maxq.protocol.http2.hpack_cy import encode_fields

if cython.compiled:
    from cython.cimports.maxq.protocol.http2.connection_cy import Http2Connection, Request, Stream
    from cython.cimports.maxq.runtime.buffers import copy_bytes, put32, put_bytes, take_bytes, u32
else:
    from maxq.protocol.http2.connection_cy import Http2Connection, Request, Stream
    from maxq.runtime.buffers import copy_bytes, put32, put_bytes, take_bytes, u32

if TYPE_CHECKING:
    from asyncio import Future
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any, Protocol

    class GrpcConnection(Protocol):
        """What services and their calls know of the connection (connection.py)."""

        attributes: dict[str, Any]
        remote_address: str
        local_address: str
        is_tls: bool
        on_close: list[Callable[[], None]]

        @property
        def peer_ip(self) -> str: ...
        def wrote(self) -> None: ...
        def wake_at(self, deadline: float) -> None: ...
        def kept(self, size: int) -> None: ...
        def end_unread(self, unsent: int) -> None: ...


log = logging.getLogger("maxq.remoting")

_UNKNOWN = 2
_DEADLINE_EXCEEDED = 4
_RESOURCE_EXHAUSTED = 8
_UNIMPLEMENTED = 12
_INTERNAL = 13
_LONGEST_TEXT = 4096  # characters of a status; clients take 8 KiB of trailers
_KEPT_UNSAID = cython.declare(cython.Py_ssize_t, 16384)  # unfinished_frames.COUNTED
_UNPACKED_LIMIT = cython.declare(cython.Py_ssize_t, 8388608)  # bytes; unpacking them takes 20 ms
_UNPACKED_IN_TURN = cython.declare(
    cython.Py_ssize_t, 65536
)  # bytes of unpacked messages that count as one more message: the largest one ends the turn
_PAUSE = cython.declare(cython.double, 0.02)  # seconds between two looks at deadlines
_NEVER = cython.declare(cython.double, 1e300)
_UNITS = {"H": 3600.0, "M": 60.0, "S": 1.0, "m": 1e-3, "u": 1e-6, "n": 1e-9}


def _frame(block: bytes, flags: int) -> bytes:
    """Return a HEADERS frame of stream 0."""
    return len(block).to_bytes(3, "big") + bytes([1, flags, 0, 0, 0, 0]) + block


_HEAD_BLOCK = cython.declare(bytes, encode_fields([(":status", "200"), ("content-type", "application/grpc")]))
_OK_BLOCK = cython.declare(bytes, encode_fields([("grpc-status", "0")]))
_HEAD_FRAME = cython.declare(bytes, _frame(_HEAD_BLOCK, 4))
_OK_FRAME = cython.declare(bytes, _frame(_OK_BLOCK, 5))
_ENCODINGS = encode_fields([("grpc-accept-encoding", "identity,gzip")])
_TEXT = b"This is a gRPC server, for requests of the method POST with the content type application/grpc.\n"
_NOT_POST = encode_fields([(":status", "405"), ("allow", "POST"), ("content-length", str(len(_TEXT)))])
_NOT_GRPC = encode_fields([(":status", "415"), ("content-length", str(len(_TEXT)))])


class Unary:
    """A method whose client sends one message and then waits.

    Attributes:
        handle: gets the call and its message, when the client has sent all. It answers now or later, by one message
            (`Call.answer`), by several (`Call.send`, which the protocol calls a stream of answers) and
            `Call.finish`, or by a status alone.
    """

    __slots__ = ("handle",)

    def __init__(
        self,
        handle,  # type: Callable[[Call, bytes], None]
    ):
        self.handle = handle


class Streaming:
    """A method whose client sends any number of messages.

    Attributes:
        start: gets the call when it begins. It returns a function that gets each message, and None when the client has
            said that it sends no more.
    """

    __slots__ = ("start",)

    def __init__(
        self,
        start,  # type: Callable[[Call], Callable[[bytes | None], None]]
    ):
        self.start = start


class _Refusal:
    """Why a request is no call of this server: the header fields that it is answered with. `waits`: it is HTTP of
    another kind, whose client is answered when it has sent all."""

    __slots__ = ("block", "waits")

    def __init__(self, block: bytes, waits: bool):
        self.block = block
        self.waits = waits


def _percent_encoded(text: str) -> str:
    """Return a status text in the form of trailers."""
    return "".join(
        chr(byte) if 0x20 <= byte <= 0x7E and byte != 0x25 else f"%{byte:02X}"
        for byte in text.encode("utf-8", "replace")
    )


def _trailers(status: int, text: str, others: object) -> bytes:
    fields = [("grpc-status", str(status))]
    if text:
        fields.append(("grpc-message", _percent_encoded(text[:_LONGEST_TEXT])))
    return encode_fields([*fields, *others])


@cython.cclass
class Call(Stream):
    """One call.

    Attributes:
        connection: where it came from.
        is_over: it was finished or cancelled, its deadline has passed, or its connection is gone. Nothing can be sent.
        on_end: is called once if the call is over without this side having finished it.
        on_lost: is called once if answers are dropped that were sent, also after this side has finished the call.
        unsent: bytes of answers that wait for the peer.
    """

    def __init__(
        self,
        request,  # type: Request
        channel,  # type: GrpcChannel
    ):
        Stream.__init__(self, request)
        self._channel = channel
        self.connection = channel.connection
        self.is_over = False
        self.on_end = None
        self.on_lost = None
        self._deadline = 0
        self._receiver = None
        self._is_unary = True
        self._has_head = False
        self._message = None
        self._message_kept = 0
        self._compressed = 0
        self._partial = None
        self._needed = 5
        self._waiters = []

    @property
    def path(self):
        # type: (...) -> str
        """Return /package.Service/Method."""
        return self._request.path

    @property
    def metadata(self):
        # type: (...) -> Mapping[str, str]
        """Return what the client said besides, by lower-case names. Values of a name that is there twice are joined by
        commas."""
        return self._request.metadata

    @property
    def deadline(self):
        # type: (...) -> float | None
        """Return the time of the loop, in seconds, at which the client gives up; None: it does not say."""
        return self._deadline or None

    # --- answers ------------------------------------------------------------------------------------------------------

    def answer(self, message: bytes):
        # type: (...) -> None
        """Send the one message of a unary call, and the status OK. Nothing happens if the call is over."""
        channel: GrpcChannel = self._channel
        if self.is_over:
            return
        if not self._fits(message):
            self.send(message)
            self.finish()
            return
        self.is_over = True
        self._put_message(message, len(_OK_FRAME))
        self._put_frame(_OK_FRAME)
        channel._end_local(self)
        channel._touch()

    def send(self, message: bytes):
        # type: (...) -> None
        """Send one message of several. Nothing happens if the call is over."""
        channel: GrpcChannel = self._channel
        if self.is_over:
            return
        if self._fits(message):
            self._put_message(message, 0)
        elif channel.failure and channel._is_held:
            self._tell_lost()  # the connection is being closed, and nothing that waits is ever sent
            return
        else:
            if not self._has_head:
                self._has_head = True
                channel._send_block(self, _HEAD_BLOCK, False)
            channel._send_data(self, b"\0" + len(message).to_bytes(4, "big") + message)
            if channel.unsent > channel._unsent_limit:
                channel.connection.end_unread(channel.unsent)
        channel._touch()

    @cython.cfunc
    @cython.exceptval(-1, check=True)
    def _fits(self, message: bytes) -> cython.bint:
        """Return whether a message can be sent at once, in one frame."""
        channel: GrpcChannel = self._channel
        size: cython.Py_ssize_t = 5 + len(message)
        return (
            not self.unsent
            and channel._takes_data()
            and size <= channel._peer_frame_size
            and size <= self._send_window
            and size <= channel._send_window
        )

    @cython.cfunc
    def _put_message(self, message: bytes, more: cython.Py_ssize_t):
        """Write a message that fits, behind the call's header fields if it is the first one, and make room for `more`
        bytes behind it."""
        channel: GrpcChannel = self._channel
        size: cython.Py_ssize_t = 5 + len(message)
        p: cython.Py_ssize_t
        out: cython.p_uchar
        channel._room(len(_HEAD_FRAME) + 9 + size + more)
        if not self._has_head:
            self._has_head = True
            self._put_frame(_HEAD_FRAME)
        channel._earn()
        channel._head(size, 0, 0, self.number)
        out = channel._out
        p = channel._end
        out[p] = 0
        put32(out, p + 1, size - 5)
        channel._end = put_bytes(out, p + 5, message)
        self._send_window -= size
        channel._send_window -= size

    @cython.cfunc
    def _put_frame(self, frame: bytes):
        """Write a constant frame as one of this stream; there is room."""
        channel: GrpcChannel = self._channel
        out: cython.p_uchar = channel._out
        p: cython.Py_ssize_t = channel._end
        channel._end = put_bytes(out, p, frame)
        put32(out, p + 5, self.number)

    def finish(
        self,
        status: cython.int = 0,
        text: str = "",
        trailers=(),  # type: Iterable[tuple[str, str]]
    ):
        # type: (...) -> None
        """End the call with a status of gRPC, a text for people and trailers (lower-case names and values). Nothing
        happens if the call is over."""
        if self.is_over:
            return
        self.is_over = True
        block: bytes = _OK_BLOCK if status == 0 and not text and not trailers else _trailers(status, text, trailers)
        if not self._has_head:
            self._has_head = True
            block = _HEAD_BLOCK + block  # trailers only
        self._channel._send_block(self, block, True)
        self._drop_kept()
        self._wake()
        self._channel._touch()

    def drained(self):
        # type: (...) -> Future[None]
        """Return a future that is done when nothing of this call is unsent, or the call is over."""
        waiter = asyncio.get_running_loop().create_future()
        if self.unsent and not self.is_over:
            self._waiters.append(waiter)
        else:
            waiter.set_result(None)
        return waiter

    @cython.cfunc
    def _wake(self):
        """Wake who waits until the call is drained."""
        waiters: list = self._waiters
        if waiters:
            self._waiters = []
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)

    @cython.cfunc
    def _refuse(self, status: cython.int, text: str):
        """End the call because of what its client sent; the service hears of it."""
        if not self.is_over:
            self.finish(status, text)
            self._tell_end()

    @cython.cfunc
    def _tell_end(self):
        told: object = self.on_end
        self.on_end = None
        self._tell(told)

    @cython.cfunc
    def _tell_lost(self):
        told: object = self.on_lost
        self.on_lost = None
        self._tell(told)

    @cython.cfunc
    def _tell(self, told: object):
        if told is not None:
            try:
                told()
            except Exception:
                log.exception("the end of a call of %s could not be processed", self._request.path)

    @cython.cfunc
    def _drop_kept(self):
        """Free what has come of messages that nobody is going to get."""
        kept: cython.Py_ssize_t = self._message_kept
        if self._partial is not None:
            kept += len(self._partial)
            self._partial = None
        if self._message_kept:
            self._message_kept = 0
            self._message = None
        if kept:
            self._channel._keep(-kept)

    # --- messages -----------------------------------------------------------------------------------------------------

    @cython.cfunc
    def _take(self, buf: cython.p_uchar, p: cython.Py_ssize_t, size: cython.Py_ssize_t):
        """Take bytes of the body, which may be its last ones."""
        end: cython.Py_ssize_t = p + size
        partial: bytearray = self._partial
        used: cython.Py_ssize_t
        if partial is None:
            p = self._messages(buf, p, end)
            if p < end and not self.is_over:
                self._partial = bytearray(take_bytes(buf, p, end - p))
                self._channel._keep(end - p)
        else:
            partial += take_bytes(buf, p, size)
            self._channel._keep(size)
            if len(partial) >= self._needed:
                used = self._messages(partial if cython.compiled else memoryview(partial), 0, len(partial))
                if self._partial is partial:
                    self._channel._keep(-used)
                    if used == len(partial):
                        self._partial = None
                    else:
                        del partial[:used]
        if self._remote_ended and not self.is_over:
            if self._partial is not None:
                self._refuse(_INTERNAL, "the stream ends within a message")
            elif self._is_unary:
                self._hand_over()
            else:
                self._give(None)

    @cython.cfunc
    @cython.exceptval(-1, check=True)
    def _messages(self, buf: cython.p_uchar, p: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Take the whole messages of buf[p:end]; returns the position behind them."""
        size: cython.longlong
        while end - p >= 5 and not self.is_over:
            size = u32(buf, p + 1)
            if size > self._channel._message_limit:
                self._refuse(
                    _RESOURCE_EXHAUSTED,
                    f"gRPC message exceeds maximum size {self._channel._message_limit}: {size}",
                )
                return end
            if end - p < 5 + size:
                self._needed = 5 + size
                return p
            self._received_message(take_bytes(buf, p + 5, size), buf[p])
            p += 5 + size
        self._needed = 5
        return p

    @cython.cfunc
    def _received_message(self, message: bytes, compressed: cython.int):
        """Take a whole message. That of a unary call is kept as it came until its client has ended the stream."""
        if self._is_unary:
            if self._message is not None:
                self._refuse(_INTERNAL, "Too many requests")
                return
            self._message = message
            self._compressed = compressed
            if not self._remote_ended:
                self._message_kept = len(message)
                self._channel._keep(len(message))
            return
        if compressed:
            message = self._unpacked(message, compressed)
            if message is None:
                return
        self._channel.calls += 1
        self._channel._turn_left -= 1
        self._give(message)

    @cython.cfunc
    def _unpacked(self, message: bytes, compressed: cython.int):
        """Return what a compressed message holds. If that fails, the call is over and None is returned."""
        limit: cython.Py_ssize_t = min(self._channel._message_limit, _UNPACKED_LIMIT)
        if self._request.encoding != "gzip" or compressed != 1:
            self._refuse(_INTERNAL, "a compressed message, and grpc-encoding does not say how")
            return None
        unpacker = zlib.decompressobj(31)
        try:
            message = unpacker.decompress(message, limit + 1)
        except zlib.error as error:
            self._refuse(_INTERNAL, f"a message that is not compressed by gzip: {error}")
            return None
        self._channel._turn_left -= len(message) // _UNPACKED_IN_TURN
        if len(message) > limit:
            self._refuse(_RESOURCE_EXHAUSTED, f"Decompressed gRPC message exceeds maximum size {limit}")
            return None
        if not unpacker.eof:
            self._refuse(_INTERNAL, "a compressed message that is not whole")
            return None
        return message

    @cython.cfunc
    def _hand_over(self):
        """Give a unary call to its service."""
        message: bytes = self._message
        if message is None:
            self._refuse(_INTERNAL, "Half-closed without a request")
            return
        self._message = None
        if self._message_kept:
            self._channel._keep(-self._message_kept)
            self._message_kept = 0
        if self._compressed:
            message = self._unpacked(message, self._compressed)
            if message is None:
                return
        self._channel.calls += 1
        try:
            self._request.route.handle(self, message)
        except Exception:
            self._failed()

    @cython.cfunc
    def _give(self, message: object):
        """Give a message, or None for the end, to the receiver of a stream."""
        if self._receiver is not None:
            try:
                self._receiver(message)
            except Exception:
                self._failed()

    @cython.cfunc
    def _failed(self):
        log.exception("a call of %s failed", self._request.path)
        self._refuse(_UNKNOWN, "the server failed; see its log")


@cython.cclass
class GrpcChannel(Http2Connection):
    """The calls of one connection.

    Args:
        connection: the GrpcConnection; it hears of what is to be sent (`wrote`), of deadlines (`wake_at`), of bytes of
            messages that are not whole (`kept`) and of a peer that does not read (`end_unread`).
        methods: what is served, by path.
        message_limit: bytes of a message, also when it is decompressed.
        unsent_limit: bytes of answers that may wait for the peer.
    """

    def __init__(
        self,
        connection,  # type: GrpcConnection
        methods: dict,  # type: dict[str, Unary | Streaming]
        message_limit: cython.Py_ssize_t,
        unsent_limit: cython.Py_ssize_t,
    ):
        self.connection = connection
        self.now = 0
        self.calls = 0
        self._methods = methods
        self._message_limit = message_limit
        self._unsent_limit = unsent_limit
        self._kept = 0
        self._next_deadline = _NEVER
        Http2Connection.__init__(self)

    @cython.cfunc
    def _make(self, request: Request) -> Stream:
        return Call(request, self)

    @cython.cfunc
    def _opened(self, stream: Stream):
        call: Call = stream
        request: Request = call._request
        route: object = request.route
        if route is None:
            route = request.route = self._find_route(request)
        if type(route) is _Refusal:
            call.is_over = True
            if not route.waits:
                self._send_block(call, route.block, True)
            elif call._remote_ended:
                self._refuse_http(call, route.block)
            else:
                call._message = route.block
            return
        if request.timeout and not self._set_deadline(call, request.timeout):
            return
        if type(route) is Streaming:
            call._is_unary = False
            try:
                call._receiver = route.start(call)
            except Exception:
                call._failed()
        if call._remote_ended:
            call._take(cython.cast(cython.p_uchar, b"") if cython.compiled else b"", 0, 0)

    @cython.cfunc
    def _refuse_http(self, call: Call, block: bytes):
        """Answer a request that is none of gRPC, and tell people why."""
        call._message = None
        self._send_block(call, block, False)
        self._send_data(call, _TEXT)
        self._send_block(call, _trailers(_UNIMPLEMENTED, "", ()), True)

    @cython.cfunc
    def _data(self, stream: Stream, buf: cython.p_uchar, p: cython.Py_ssize_t, size: cython.Py_ssize_t):
        call: Call = stream
        if not call.is_over:
            call._take(buf, p, size)
        elif call._remote_ended and call._message is not None:
            self._refuse_http(call, call._message)

    @cython.cfunc
    def _was_ended(self, stream: Stream):
        call: Call = stream
        call._drop_kept()
        if not call.is_over:
            call.is_over = True
            call._tell_end()
        if call.unsent:
            call._tell_lost()
        call._wake()

    @cython.cfunc
    def _was_drained(self, stream: Stream):
        call: Call = stream
        call._wake()

    @cython.cfunc
    def _touch(self):
        if not self._is_touched:
            self._is_touched = True
            self.connection.wrote()

    @cython.cfunc
    def _find_route(self, request: Request):
        """Return what serves a request, or why nothing does."""
        content_type: str = request.content_type
        if request.method != "POST":
            return _Refusal(_NOT_POST, True)
        if not content_type.startswith("application/grpc") or content_type[16:17] not in ("", "+", ";"):
            return _Refusal(_NOT_GRPC, True)
        route: object = self._methods.get(request.path)
        text: str
        if route is None:
            text = f"Method not found: {request.path[1:]:.200}"
            return _Refusal(_HEAD_BLOCK + _trailers(_UNIMPLEMENTED, text, ()), False)
        if request.encoding not in ("", "identity", "gzip"):
            text = f"Can't find decompressor for {request.encoding:.100}"
            return _Refusal(_HEAD_BLOCK + _ENCODINGS + _trailers(_UNIMPLEMENTED, text, ()), False)
        return route

    @cython.cfunc
    def _set_deadline(self, call: Call, text: str):
        """Note when a call is to end. Returns False if it has ended because the text says no time."""
        last: cython.Py_ssize_t = len(text) - 1
        unit: object = _UNITS.get(text[last:])
        digits: str = text[:last]
        if unit is None or not 0 < len(digits) <= 8 or not (digits.isascii() and digits.isdigit()):
            call._refuse(_INTERNAL, f"grpc-timeout {text!r:.40} is no time")
            return False
        call._deadline = self.now + int(digits) * unit
        if call._deadline < self._next_deadline:
            self._next_deadline = call._deadline
            self.connection.wake_at(call._deadline)
        return True

    def expire(self, now: cython.double):
        # type: (...) -> None
        """End the calls whose deadlines have passed at `now`, the time of the loop. What of their answers is unsent by
        then is dropped, also of those that the server has finished."""
        call: Call
        following: cython.double = _NEVER
        self.now = now
        for call in list(self._streams.values()):
            if call._deadline == 0 or (call.is_over and not call.unsent):
                continue
            if call._deadline <= now:
                call._refuse(_DEADLINE_EXCEEDED, "the deadline has passed")
                if call.unsent and self._streams.get(call.number) is call:
                    self._reset(call, CANCEL)  # its client waits for nothing any more
            elif call._deadline < following:
                following = call._deadline
        self._next_deadline = following
        if following < _NEVER:
            self.connection.wake_at(max(following, now + _PAUSE))

    @cython.cfunc
    def _keep(self, more: cython.Py_ssize_t):
        """Count bytes of messages that are not whole, or whose calls are not."""
        before: cython.Py_ssize_t = self._kept
        self._kept += more
        if self._kept > _KEPT_UNSAID or before > _KEPT_UNSAID:
            self.connection.kept(self._kept)


def is_compiled() -> bool:
    """Returns whether this module runs compiled by Cython."""
    return cython.compiled
