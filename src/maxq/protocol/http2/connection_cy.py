"""Http2Connection: the server's side of one HTTP/2 connection (RFC 9113), sans-IO.

`receive` works off all complete frames of a buffer and calls what a subclass does with requests and their bodies; what
is to be sent gathers in one buffer, which `send` or `take_output` empties. Nothing here waits, and no frame becomes an
object.

Windows. Each stream and the connection may bring 1 and 4 MiB before they are told to go on, which happens when half of
that has come; data is worked off when it comes, so the connection's window is never used up. What a stream sends waits
(`unsent`) until the peer's windows have room and what is ready has been sent; streams that wait take turns, a frame
each.

Hostile peers. An error of one stream resets it, an error of the connection ends it by GOAWAY with the code that the RFC
names. Frames that bring nothing (pings, settings, empty data, priorities, windows that nobody waits for, unknown kinds)
and streams that are reset are counted against budgets, which `tick` fills again, and the first also each stream and
each frame of data: a peer that uses one up is told to calm down and disconnected. A
header block has a limit in both forms. What is received is worked off or kept by the subclass, never here, except for
one header block.
"""

import os
from collections import deque
from typing import TYPE_CHECKING

try:
    import cython
except ModuleNotFoundError:
    from maxq.runtime import cython  # type: ignore[no-redef]

from maxq.errors import RemoteProtocolError

if cython.compiled:
    from cython.cimports.maxq.protocol.http2.field_kinds import (
        K_AUTHORITY,
        K_CONTENT_LENGTH,
        K_CONTENT_TYPE,
        K_GRPC_ENCODING,
        K_GRPC_TIMEOUT,
        K_MALFORMED,
        K_METHOD,
        K_PATH,
        K_SCHEME,
        K_TE,
    )
    from cython.cimports.maxq.protocol.http2.hpack_cy import Field, HeaderBlock, HpackDecoder
    from cython.cimports.maxq.runtime.buffers import copy_bytes, put32, put_bytes, same_bytes, u32
    from cython.cimports.posix.unistd import write
else:
    from maxq.protocol.http2.field_kinds import (
        K_AUTHORITY,
        K_CONTENT_LENGTH,
        K_CONTENT_TYPE,
        K_GRPC_ENCODING,
        K_GRPC_TIMEOUT,
        K_MALFORMED,
        K_METHOD,
        K_PATH,
        K_SCHEME,
        K_TE,
    )
    from maxq.protocol.http2.hpack_cy import Field, HeaderBlock, HpackDecoder
    from maxq.runtime.buffers import copy_bytes, put32, put_bytes, same_bytes, u32

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"  # type: bytes

# Error codes (RFC 9113, 7).
NO_ERROR = 0
PROTOCOL_ERROR = 1
FLOW_CONTROL_ERROR = 3
STREAM_CLOSED = 5
FRAME_SIZE_ERROR = 6
REFUSED_STREAM = 7
CANCEL = 8
COMPRESSION_ERROR = 9
ENHANCE_YOUR_CALM = 11

_FRAME_SIZE = cython.declare(cython.Py_ssize_t, 16384)  # bytes of a frame's content that the peer may send
_STREAM_WINDOW = cython.declare(cython.longlong, 1048576)
_CONNECTION_WINDOW = cython.declare(cython.longlong, 4194304)
_STREAM_LIMIT = cython.declare(cython.longlong, 2048)  # open streams of one connection
_TURN = cython.declare(cython.longlong, 128)  # streams that are opened, and messages of streams, in one go
_TABLE_SIZE = cython.declare(cython.Py_ssize_t, 4096)  # of the peer's header table
_HEADER_LIMIT = cython.declare(
    cython.Py_ssize_t, 32768
)  # bytes of the header fields of one request, each counted with 32 more
_BLOCK_LIMIT = cython.declare(cython.Py_ssize_t, 32768)  # bytes of a header block in its compressed form
_ODD_LEFT = cython.declare(cython.longlong, 10000)  # frames that bring nothing; used up by a flood only
_EARNED = cython.declare(cython.longlong, 8)  # frames that may go with each stream, and each frame of data either way
_RESETS_LEFT = cython.declare(cython.longlong, 2000)
_FORGOTTEN = cython.declare(cython.Py_ssize_t, 256)  # streams that were reset and may still bring frames
_OUT_SIZE = cython.declare(cython.Py_ssize_t, 16384)
_SPARE_OUT = 8  # buffers that are kept for the next connections that send
_OUT_LIMIT = cython.declare(cython.Py_ssize_t, 524288)  # bytes that are ready; data waits until they have been sent
_LARGE_OUT = cython.declare(cython.Py_ssize_t, 262144)  # a buffer that has grown so far is not kept
_HALF_STREAM = cython.declare(cython.longlong, 524288)
_HALF_CONNECTION = cython.declare(cython.longlong, 2097152)
_MOST_WINDOW = cython.declare(cython.longlong, 2147483647)
_PING = b"maxq\0\0\0\0"
_DRAIN_PING = b"maxqends"

_SPARE: list = []


@cython.cclass
class Request:
    """What the header fields of a request say. Equal blocks of one connection share one.

    Attributes:
        fault: what makes it malformed; empty: nothing.
        content_length: bytes of the body, −1 if it is not said.
        route: what the server has found for it.
    """

    def __init__(
        self,
        block,  # type: HeaderBlock
    ):
        field: Field
        regular: cython.bint = False
        has_scheme: cython.bint = False
        has_path: cython.bint = False
        fault: str = ""
        self.method = self.path = self.content_type = self.timeout = self.encoding = ""
        self.content_length = -1
        self._fields = block.fields
        self._metadata = None
        self.route = None
        for field in self._fields:
            if field.kind == K_METHOD or field.kind == K_PATH or field.kind == K_SCHEME or field.kind == K_AUTHORITY:
                if regular:
                    fault = "a pseudo field behind others"
                if field.kind == K_METHOD:
                    if self.method:
                        fault = "two methods"
                    self.method = field.value
                elif field.kind == K_PATH:
                    if has_path:
                        fault = "two paths"
                    has_path = True
                    self.path = field.value
                elif field.kind == K_SCHEME:
                    if has_scheme:
                        fault = "two schemes"
                    has_scheme = True
                continue
            regular = True
            if field.kind == K_CONTENT_TYPE:
                self.content_type = field.value
            elif field.kind == K_GRPC_TIMEOUT:
                self.timeout = field.value
            elif field.kind == K_GRPC_ENCODING:
                self.encoding = field.value
            elif field.kind == K_CONTENT_LENGTH:
                if not (field.value.isascii() and field.value.isdigit() and len(field.value) < 16):
                    fault = "a content-length that is no number"
                else:
                    self.content_length = int(field.value)
            elif field.kind == K_TE:
                if field.value != "trailers":
                    fault = "a field te that is not trailers"
            elif field.kind == K_MALFORMED:
                fault = f"the field {field.name!r:.60}"
        if not self.method or not has_scheme or not self.path:
            fault = fault or "no method, scheme or path"
        self.fault = fault

    @property
    def metadata(self):
        # type: (...) -> Mapping[str, str]
        """Return the fields without those of HTTP/2 itself. Values of a name that is there twice are joined by
        commas."""
        field: Field
        found: dict
        name: str
        if self._metadata is None:
            found = {}
            for field in self._fields:
                name = field.name
                if name[:1] != ":":
                    found[name] = f"{found[name]},{field.value}" if name in found else field.value
            self._metadata = found
        return self._metadata


@cython.cclass
class Stream:
    """One stream: a request of the peer, and what it is answered.

    Attributes:
        number: the stream's identifier.
        unsent: bytes of its answer that wait for the peer's windows.
    """

    def __init__(
        self,
        request,  # type: Request
    ):
        self._request = request
        self._http2 = None
        self._pending = None
        self._pending_at = 0
        self._last = None
        self.number = self._send_window = self._receive_window = self._received = 0
        self.unsent = 0
        self._remote_ended = self._local_ended = False


@cython.cclass
class Http2Connection:
    """One connection; see the module's text. A subclass says what is served.

    Attributes:
        failure: why the connection ends; empty: it does not. What is to be sent says so to the peer.
        is_draining: the peer has been told to open no more streams here.
        unsent: bytes that wait for the peer's windows, or because the socket takes no more.
        was_answered: the last ping of this side was answered.
    """

    def __init__(self) -> None:
        self.failure = ""
        self.is_draining = False
        self.unsent = 0
        self.was_answered = True
        self._streams = {}
        self._decoder = HpackDecoder(_TABLE_SIZE, _HEADER_LIMIT)
        self._out = None
        self._end = 0
        self._preface = 0
        self._has_settings = False
        self._is_held = self._is_touched = False
        self._last_number = 0
        self._served_number = _MOST_WINDOW
        self._stream_limit = _STREAM_LIMIT
        self._send_window = self._initial_send_window = 65535
        self._receive_window = _CONNECTION_WINDOW
        self._peer_frame_size = 16384
        self._block = None
        self._block_number = 0
        self._block_ends = False
        self._blocked = {}
        self._forgotten = {}
        self._odd_left = _ODD_LEFT
        self._resets_left = _RESETS_LEFT
        self._turn_left = _TURN
        self._room(64)
        self._head(18, 4, 0, 0)  # SETTINGS
        for name, value in ((3, _STREAM_LIMIT), (4, _STREAM_WINDOW), (6, _HEADER_LIMIT)):
            self._put(name.to_bytes(2, "big") + value.to_bytes(4, "big"))
        self._window_update(0, _CONNECTION_WINDOW - 65535)

    # --- what a subclass does -----------------------------------------------------------------------------------------

    @cython.cfunc
    def _make(self, request: Request) -> Stream:
        """Return the stream for a new request."""
        return Stream(request)

    @cython.cfunc
    def _opened(self, stream: Stream):
        """Take note of a new stream, whose peer may have ended its side already."""

    @cython.cfunc
    def _data(self, stream: Stream, buf: cython.p_uchar, p: cython.Py_ssize_t, size: cython.Py_ssize_t):
        """Take bytes of a stream's body, and look at its `_remote_ended`. `size` is 0 for an end without more bytes."""

    @cython.cfunc
    def _was_ended(self, stream: Stream):
        """Take note that a stream is over although this side has not ended it."""

    @cython.cfunc
    def _was_drained(self, stream: Stream):
        """Take note that nothing of a stream waits any more."""

    @cython.cfunc
    def _touch(self):
        """Take note that there is something to send."""

    # --- receiving ----------------------------------------------------------------------------------------------------

    @property
    def streams(self):
        # type: (...) -> int
        """Return how many streams are open."""
        return len(self._streams)

    @property
    def is_drained(self):
        # type: (...) -> bool
        """Return whether no stream is served here any more."""
        return self._served_number < _MOST_WINDOW and not self._streams

    @property
    def is_resting(self):
        # type: (...) -> bool
        """Return whether `receive` stopped before the end because others are to have their turn."""
        return self._turn_left <= 0

    @property
    def is_introduced(self):
        # type: (...) -> bool
        """Return whether the peer has sent its preface and settings."""
        return self._has_settings

    def receive(
        self,
        buffer: bytearray,
        start: cython.Py_ssize_t,
        end: cython.Py_ssize_t,
    ):
        # type: (...) -> int
        """Work off the complete frames of buffer[start:end], which nobody may resize meanwhile; returns the position
        behind them. Nothing is taken after a failure. After so many new streams and messages that others are to have
        their turn, `is_resting` is True, and the rest is to be given again later."""
        if start < 0 or end > len(buffer) or start > end:
            raise ValueError(f"range [{start}, {end}) is outside the buffer of {len(buffer)} bytes")
        buf: cython.p_uchar = buffer if cython.compiled else memoryview(buffer)
        p: cython.Py_ssize_t = start
        self._turn_left = _TURN
        size: cython.Py_ssize_t
        if self._preface < 24:
            size = min(24 - self._preface, end - p)
            if not self._take_preface(buf, p, p + size):
                return end
            p += size
        while end - p >= 9 and not self.failure and self._turn_left > 0:
            size = (cython.cast(cython.Py_ssize_t, buf[p]) << 16) | (buf[p + 1] << 8) | buf[p + 2]
            if size > _FRAME_SIZE:
                self._fail(FRAME_SIZE_ERROR, f"a frame of {size} bytes, the limit is {_FRAME_SIZE}")
                break
            if end - p < 9 + size:
                break
            self._frame(buf[p + 3], buf[p + 4], u32(buf, p + 5) & 0x7FFFFFFF, buf, p + 9, size)
            p += 9 + size
        if self._end:
            self._touch()
        return end if self.failure else p

    @cython.cfunc
    @cython.exceptval(-1, check=True)
    def _take_preface(self, buf: cython.p_uchar, p: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.bint:
        if not same_bytes(buf, p, end - p, PREFACE[self._preface : self._preface + end - p]):
            self._fail(PROTOCOL_ERROR, "the connection does not begin with the preface of HTTP/2")
            self._touch()
            return False
        self._preface += end - p
        return True

    @cython.cfunc
    def _frame(
        self,
        kind: cython.int,
        flags: cython.int,
        number: cython.longlong,
        buf: cython.p_uchar,
        p: cython.Py_ssize_t,
        size: cython.Py_ssize_t,
    ):
        if self._block_number and (kind != 9 or number != self._block_number):
            self._fail(PROTOCOL_ERROR, "another frame between those of one header block")
        elif kind == 0:
            self._data_frame(flags, number, buf, p, size)
        elif kind == 1:
            self._headers_frame(flags, number, buf, p, size)
        elif kind == 4:
            self._settings_frame(flags, number, buf, p, size)
        elif not self._has_settings:
            self._fail(PROTOCOL_ERROR, "the first frame is not SETTINGS")
        elif kind == 8:
            self._window_frame(number, buf, p, size)
        elif kind == 3:
            self._reset_frame(number, buf, p, size)
        elif kind == 6:
            self._ping_frame(flags, number, buf, p, size)
        elif kind == 9:
            if self._block_number:
                self._continuation_frame(flags, buf, p, size)
            else:
                self._fail(PROTOCOL_ERROR, "CONTINUATION without a header block")
        elif kind == 2:
            self._priority_frame(number, buf, p, size)
        elif kind == 5:
            self._fail(PROTOCOL_ERROR, "PUSH_PROMISE of a client")
        elif kind == 7 and (number or size < 8):
            self._fail(PROTOCOL_ERROR if number else FRAME_SIZE_ERROR, "a GOAWAY that is none")
        else:
            self._odd()

    @cython.cfunc
    def _data_frame(
        self,
        flags: cython.int,
        number: cython.longlong,
        buf: cython.p_uchar,
        p: cython.Py_ssize_t,
        size: cython.Py_ssize_t,
    ):
        stream: Stream = self._streams.get(number)
        whole: cython.Py_ssize_t = size
        self._receive_window -= whole
        if flags & 8:
            if size < 1 or buf[p] >= size:
                self._fail(PROTOCOL_ERROR, "padding that is longer than its frame")
                return
            size -= 1 + buf[p]
            p += 1
        if stream is None:
            if not number or self._is_idle(number):
                self._fail(PROTOCOL_ERROR, f"DATA on stream {number}, which was never opened")
                return
            if number not in self._forgotten:
                self._odd()
                self._drop(number, STREAM_CLOSED)
        elif stream._remote_ended:
            self._reset(stream, STREAM_CLOSED)
        else:
            stream._receive_window -= whole
            stream._received += size
            if stream._receive_window < 0:
                self._reset(stream, FLOW_CONTROL_ERROR)
            elif flags & 1:
                self._end_remote(stream)
                if self._streams.get(number) is stream:
                    self._data(stream, buf, p, size)
            else:
                if size:
                    self._earn()
                else:
                    self._odd()
                self._data(stream, buf, p, size)
                if stream._receive_window < _HALF_STREAM and not stream._local_ended:
                    self._window_update(number, _STREAM_WINDOW - stream._receive_window)
                    stream._receive_window = _STREAM_WINDOW
        if self._receive_window < _HALF_CONNECTION and not self.failure:
            self._window_update(0, _CONNECTION_WINDOW - self._receive_window)
            self._receive_window = _CONNECTION_WINDOW

    @cython.cfunc
    def _end_remote(self, stream: Stream):
        """Take note that the peer sends no more on a stream."""
        stream._remote_ended = True
        if stream._request.content_length >= 0 and stream._request.content_length != stream._received:
            self._reset(stream, PROTOCOL_ERROR)

    @cython.cfunc
    def _headers_frame(
        self,
        flags: cython.int,
        number: cython.longlong,
        buf: cython.p_uchar,
        p: cython.Py_ssize_t,
        size: cython.Py_ssize_t,
    ):
        end: cython.Py_ssize_t = p + size
        if not self._has_settings or not number & 1:
            self._fail(PROTOCOL_ERROR, f"HEADERS before SETTINGS, or on stream {number}, which no client opens")
            return
        if flags & 8:
            if size < 1:
                self._fail(FRAME_SIZE_ERROR, "padding that is longer than its frame")
                return
            end -= buf[p]
            p += 1
        if flags & 0x20:
            if end - p < 5:
                self._fail(FRAME_SIZE_ERROR, "a priority that is longer than its frame")
                return
            if u32(buf, p) & 0x7FFFFFFF == number:
                self._fail(PROTOCOL_ERROR, "a stream that depends on itself")
                return
            p += 5
        if end < p:
            self._fail(PROTOCOL_ERROR, "padding that is longer than its frame")
            return
        if flags & 4:
            self._header_block(number, (flags & 1) != 0, buf, p, end - p)
            return
        self._block = bytearray(end - p)
        copy_bytes(self._block, 0, buf, p, end - p)
        self._block_number = number
        self._block_ends = (flags & 1) != 0

    @cython.cfunc
    def _continuation_frame(
        self, flags: cython.int, buf: cython.p_uchar, p: cython.Py_ssize_t, size: cython.Py_ssize_t
    ):
        block: bytearray = self._block
        had: cython.Py_ssize_t = len(block)
        number: cython.longlong = self._block_number
        if had + size > _BLOCK_LIMIT:
            self._fail(ENHANCE_YOUR_CALM, f"a header block of more than {_BLOCK_LIMIT} bytes")
            return
        if not size:
            self._odd()
        block += bytes(size)
        copy_bytes(block, had, buf, p, size)
        if flags & 4:
            self._block = None
            self._block_number = 0
            self._header_block(number, self._block_ends, block if cython.compiled else memoryview(block), 0, len(block))

    @cython.cfunc
    def _header_block(
        self,
        number: cython.longlong,
        ends: cython.bint,
        buf: cython.p_uchar,
        p: cython.Py_ssize_t,
        size: cython.Py_ssize_t,
    ):
        block: HeaderBlock
        stream: Stream
        try:
            block = self._decoder.read(buf, p, p + size)
        except RemoteProtocolError as error:
            self._fail(COMPRESSION_ERROR, str(error))
            return
        stream = self._streams.get(number)
        if stream is not None:
            self._trailers(stream, block, ends)
        elif self._is_idle(number):
            self._new_stream(number, block, ends)
        elif number not in self._forgotten:
            self._fail(STREAM_CLOSED, f"HEADERS on stream {number}, which is closed")

    @cython.cfunc
    def _trailers(self, stream: Stream, block: HeaderBlock, ends: cython.bint):
        field: Field
        if stream._remote_ended:
            self._reset(stream, STREAM_CLOSED)
            return
        is_malformed: cython.bint = not ends
        for field in block.fields:
            if field.kind == K_MALFORMED or field.name[:1] == ":":
                is_malformed = True
        if is_malformed:
            self._reset(stream, PROTOCOL_ERROR)
            return
        self._end_remote(stream)
        if self._streams.get(stream.number) is stream:
            self._data(stream, cython.cast(cython.p_uchar, b"") if cython.compiled else b"", 0, 0)

    @cython.cfunc
    def _new_stream(self, number: cython.longlong, block: HeaderBlock, ends: cython.bint):
        request: Request = block.meaning
        stream: Stream
        self._last_number = number
        if number > self._served_number:
            self._odd()
            self._expect_more(number)  # the peer is told by GOAWAY that nobody serves this one
            return
        if len(self._streams) >= self._stream_limit:
            self._drop(number, REFUSED_STREAM)
            return
        if request is None:
            request = block.meaning = Request(block)
        if request.fault and not block.is_too_large:
            self._odd()
            self._drop(number, PROTOCOL_ERROR)
            return
        if block.is_too_large:
            self._send_too_large(number)
            return
        stream = self._make(request)
        stream._http2 = self
        stream.number = number
        stream._send_window = self._initial_send_window
        stream._receive_window = _STREAM_WINDOW
        self._streams[number] = stream
        self._turn_left -= 1
        self._earn()
        if ends:
            self._end_remote(stream)
            if self._streams.get(number) is not stream:
                return
        self._opened(stream)

    @cython.cfunc
    def _priority_frame(
        self, number: cython.longlong, buf: cython.p_uchar, p: cython.Py_ssize_t, size: cython.Py_ssize_t
    ):
        self._odd()
        if not number:
            self._fail(PROTOCOL_ERROR, "PRIORITY on stream 0")
        elif size != 5:
            self._drop_any(number, FRAME_SIZE_ERROR)
        elif u32(buf, p) & 0x7FFFFFFF == number:
            self._drop_any(number, PROTOCOL_ERROR)

    @cython.cfunc
    def _reset_frame(self, number: cython.longlong, buf: cython.p_uchar, p: cython.Py_ssize_t, size: cython.Py_ssize_t):
        stream: Stream
        if size != 4:
            self._fail(FRAME_SIZE_ERROR, f"RST_STREAM of {size} bytes")
        elif not number or self._is_idle(number):
            self._fail(PROTOCOL_ERROR, f"RST_STREAM on stream {number}, which was never opened")
        else:
            stream = self._streams.get(number)
            if stream is None:
                self._odd()
                return
            self._count_reset()
            self._forget(stream)
            if not stream._local_ended or stream.unsent:
                self._was_ended(stream)

    @cython.cfunc
    def _settings_frame(
        self,
        flags: cython.int,
        number: cython.longlong,
        buf: cython.p_uchar,
        p: cython.Py_ssize_t,
        size: cython.Py_ssize_t,
    ):
        end: cython.Py_ssize_t = p + size
        name: cython.int
        window: cython.longlong
        if number:
            self._fail(PROTOCOL_ERROR, f"SETTINGS on stream {number}")
        elif flags & 1:
            if size:
                self._fail(FRAME_SIZE_ERROR, "an acknowledgement of SETTINGS that is not empty")
            self._odd()
        elif size % 6:
            self._fail(FRAME_SIZE_ERROR, f"SETTINGS of {size} bytes")
        else:
            if self._has_settings:
                self._odd()
            self._has_settings = True
            window = self._initial_send_window
            while p < end and not self.failure:
                name = (buf[p] << 8) | buf[p + 1]
                if name == 4:
                    window = u32(buf, p + 2)
                else:
                    self._setting(name, u32(buf, p + 2))
                p += 6
            if window != self._initial_send_window and not self.failure:
                self._change_window(window)
            if not self.failure:
                self._room(9)
                self._head(0, 4, 1, 0)
                self._pump_all()

    @cython.cfunc
    def _setting(self, name: cython.int, value: cython.longlong):
        if name == 2 and value > 1:
            self._fail(PROTOCOL_ERROR, "SETTINGS_ENABLE_PUSH that is neither 0 nor 1")
        elif name == 5:
            if value < 16384 or value > 16777215:
                self._fail(PROTOCOL_ERROR, "SETTINGS_MAX_FRAME_SIZE out of its range")
            else:
                self._peer_frame_size = value

    @cython.cfunc
    def _change_window(self, window: cython.longlong):
        """Change the first window of streams, which is a change of those that are open. Each of them costs time, so a
        flood of such changes is ended the sooner the more there are."""
        stream: Stream
        change: cython.longlong = window - self._initial_send_window
        if window > _MOST_WINDOW:
            self._fail(FLOW_CONTROL_ERROR, "SETTINGS_INITIAL_WINDOW_SIZE that is too large")
            return
        self._initial_send_window = window
        self._odd_left -= len(self._streams) >> 3
        for stream in self._streams.values():
            stream._send_window += change
            if stream._send_window > _MOST_WINDOW:
                self._fail(FLOW_CONTROL_ERROR, "SETTINGS_INITIAL_WINDOW_SIZE that makes a window too large")
                return
            if stream.unsent and stream._send_window > 0:
                self._blocked[stream.number] = stream

    @cython.cfunc
    def _ping_frame(
        self,
        flags: cython.int,
        number: cython.longlong,
        buf: cython.p_uchar,
        p: cython.Py_ssize_t,
        size: cython.Py_ssize_t,
    ):
        if number or size != 8:
            self._fail(PROTOCOL_ERROR if number else FRAME_SIZE_ERROR, f"a PING of {size} bytes on stream {number}")
            return
        self._odd()
        if self.failure:
            return
        if not flags & 1:
            self._room(17)
            self._head(8, 6, 1, 0)
            copy_bytes(self._out, self._end, buf, p, 8)
            self._end += 8
            return
        self.was_answered = True
        if same_bytes(buf, p, 8, _DRAIN_PING) and self.is_draining:
            self.refuse_more()

    @cython.cfunc
    def _window_frame(
        self, number: cython.longlong, buf: cython.p_uchar, p: cython.Py_ssize_t, size: cython.Py_ssize_t
    ):
        more: cython.longlong
        stream: Stream
        if size != 4:
            self._fail(FRAME_SIZE_ERROR, f"WINDOW_UPDATE of {size} bytes")
            return
        more = u32(buf, p) & 0x7FFFFFFF
        if not number:
            if not more:
                self._fail(PROTOCOL_ERROR, "WINDOW_UPDATE by 0")
                return
            self._send_window += more
            if self._send_window > _MOST_WINDOW:
                self._fail(FLOW_CONTROL_ERROR, "the window of the connection is too large")
            elif self._blocked:
                self._pump_all()
            else:
                self._odd()
            return
        stream = self._streams.get(number)
        if stream is None:
            self._odd()
            if self._is_idle(number):
                self._fail(PROTOCOL_ERROR, f"WINDOW_UPDATE on stream {number}, which was never opened")
            return
        if not more:
            self._reset(stream, PROTOCOL_ERROR)
            return
        stream._send_window += more
        if stream._send_window > _MOST_WINDOW:
            self._reset(stream, FLOW_CONTROL_ERROR)
        elif stream.unsent:
            self._pump(stream, _MOST_WINDOW)
        else:
            self._odd()

    @cython.cfunc
    def _is_idle(self, number: cython.longlong):
        """Return whether a stream was never opened."""
        return number > self._last_number or not number & 1

    @cython.cfunc
    def _odd(self):
        """Count a frame that brings nothing."""
        self._odd_left -= 1
        if self._odd_left < 0:
            self._fail(ENHANCE_YOUR_CALM, "a flood of frames that bring nothing")

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def _earn(self) -> cython.void:
        """Allow some frames that bring nothing of themselves: windows and pings go with all traffic."""
        self._odd_left = min(_ODD_LEFT, self._odd_left + _EARNED)

    @cython.cfunc
    def _count_reset(self):
        self._resets_left -= 1
        if self._resets_left < 0:
            self._fail(ENHANCE_YOUR_CALM, "a flood of streams that are reset")

    def tick(self):
        # type: (...) -> None
        """Fill the budgets again, by a twentieth and, of resets, by half: every few seconds."""
        self._odd_left = min(_ODD_LEFT, self._odd_left + _ODD_LEFT // 20)
        self._resets_left = min(_RESETS_LEFT, self._resets_left + _RESETS_LEFT // 2)

    # --- ends ---------------------------------------------------------------------------------------------------------

    @cython.cfunc
    def _fail(self, code: cython.int, why: str):
        """End the connection, for an error of the peer."""
        if not self.failure:
            self.failure = why
            self._go_away(self._last_number, code, why.encode()[:200])

    @cython.cfunc
    def _go_away(self, number: cython.longlong, code: cython.int, why: bytes):
        self._room(17 + len(why))
        self._head(8 + len(why), 7, 0, 0)
        self._put_number(number)
        self._put_number(code)
        self._put(why)

    def drain(self):
        # type: (...) -> None
        """Tell the peer to open no more streams here. Those that it has begun meanwhile are served until it has
        answered, or `refuse_more` is called."""
        if not self.is_draining and not self.failure:
            self.is_draining = True
            self._go_away(_MOST_WINDOW, NO_ERROR, b"")
            self._room(17)
            self._head(8, 6, 0, 0)
            self._put(_DRAIN_PING)
            self._touch()

    def refuse_more(self):
        # type: (...) -> None
        """Serve no streams but those that are open."""
        if self._served_number == _MOST_WINDOW and not self.failure:
            self._served_number = self._last_number
            self._go_away(self._last_number, NO_ERROR, b"")
            self._touch()

    def ping(self):
        # type: (...) -> None
        """Ask the peer for a sign of life."""
        self.was_answered = False
        self._room(17)
        self._head(8, 6, 0, 0)
        self._put(_PING)
        self._touch()

    def stop(
        self,
        why: str,
    ):
        # type: (...) -> None
        """Take nothing more and send no more data, for the connection is being closed."""
        self.failure = self.failure or why
        self._is_held = True

    def lost(self):
        # type: (...) -> None
        """Take note that the connection is gone: all streams are over."""
        stream: Stream
        self.stop("the connection is gone")
        left: list = list(self._streams.values())
        self._streams.clear()
        self._blocked.clear()
        for stream in left:
            if not stream._local_ended or stream.unsent:
                stream._local_ended = True
                self._was_ended(stream)
        self._out, self._end = None, 0

    @cython.cfunc
    def _drop_any(self, number: cython.longlong, code: cython.int):
        stream: Stream = self._streams.get(number)
        if stream is None:
            self._drop(number, code)
        else:
            self._reset(stream, code)

    @cython.cfunc
    def _drop(self, number: cython.longlong, code: cython.int):
        """Reset a stream that is not served."""
        self._room(13)
        self._head(4, 3, 0, number)
        self._put_number(code)
        if code != NO_ERROR:
            self._count_reset()
        self._expect_more(number)

    @cython.cfunc
    def _expect_more(self, number: cython.longlong):
        """Note that frames of a stream may still come, which nobody reads."""
        self._forgotten[number] = None
        if len(self._forgotten) > _FORGOTTEN:
            del self._forgotten[next(iter(self._forgotten))]

    @cython.cfunc
    def _reset(self, stream: Stream, code: cython.int):
        """End a stream for an error of the peer."""
        self._drop(stream.number, code)
        self._forget(stream)
        if not stream._local_ended or stream.unsent:
            stream._local_ended = True
            self._was_ended(stream)

    @cython.cfunc
    def _forget(self, stream: Stream):
        """Take a stream out of all tables."""
        self._streams.pop(stream.number, None)
        if stream.unsent:
            self._blocked.pop(stream.number, None)
            self.unsent -= stream.unsent

    @cython.cfunc
    def _send_too_large(self, number: cython.longlong):
        """Answer a request whose header fields are too large: status 431."""
        self._room(22)
        self._head(5, 1, 5, number)
        self._put(b"\x08\x03431")
        self._drop(number, NO_ERROR)

    # --- sending ------------------------------------------------------------------------------------------------------

    @cython.cfunc
    def _room(self, size: cython.Py_ssize_t):
        """Make room for so many bytes more."""
        out: bytearray = self._out
        bigger: bytearray
        if out is None:
            out = self._out = _SPARE.pop() if _SPARE else bytearray(_OUT_SIZE)
        if self._end + size > len(out):
            bigger = bytearray(max(self._end + size, 2 * len(out)))
            bigger[: self._end] = memoryview(out)[: self._end]
            self._out = bigger

    @cython.cfunc
    def _head(self, size: cython.Py_ssize_t, kind: cython.int, flags: cython.int, number: cython.longlong):
        """Write the head of a frame; there is room."""
        out: cython.p_uchar = self._out
        p: cython.Py_ssize_t = self._end
        put32(out, p, (size << 8) | kind)
        out[p + 4] = flags
        put32(out, p + 5, number)
        self._end = p + 9

    @cython.cfunc
    def _put(self, data: bytes):
        """Write bytes; there is room."""
        self._end = put_bytes(self._out, self._end, data)

    @cython.cfunc
    def _put_number(self, value: cython.longlong):
        """Write four bytes; there is room."""
        put32(self._out, self._end, value)
        self._end += 4

    @cython.cfunc
    def _window_update(self, number: cython.longlong, size: cython.longlong):
        self._room(13)
        self._head(4, 8, 0, number)
        self._put_number(size)

    @cython.cfunc
    def _end_local(self, stream: Stream):
        """Take note that all of a stream has been sent. A peer that has not ended its side is told to."""
        stream._local_ended = True
        self._forget(stream)
        if not stream._remote_ended:
            self._drop(stream.number, NO_ERROR)

    @cython.cfunc
    def _send_block(self, stream: Stream, block: bytes, ends: cython.bint):
        """Send header fields; those that end the stream go behind all that waits."""
        if ends and stream.unsent:
            stream._last = block
            stream._local_ended = True
            return
        self._room(9 + len(block))
        self._head(len(block), 1, 5 if ends else 4, stream.number)
        self._put(block)
        if ends:
            self._end_local(stream)

    @cython.cfunc
    def _send_data(self, stream: Stream, data: bytes):
        """Send bytes, as far as there are windows; the rest waits."""
        if stream._pending is None:
            stream._pending = deque()
        stream._pending.append(data)
        stream.unsent += len(data)
        self.unsent += len(data)
        self._pump(stream, _MOST_WINDOW)

    @cython.cfunc
    def _pump(self, stream: Stream, most: cython.Py_ssize_t):
        """Send what waits of a stream, `most` bytes of it or as much as windows allow."""
        data: bytes
        size: cython.Py_ssize_t
        sent: cython.Py_ssize_t = 0
        while stream.unsent and sent < most and self._takes_data():
            data = stream._pending[0]
            size = min(len(data) - stream._pending_at, most - sent, self._peer_frame_size)
            size = min(size, stream._send_window, self._send_window)
            if size <= 0:
                break
            self._earn()
            self._room(9 + size)
            self._head(size, 0, 0, stream.number)
            copy_bytes(
                self._out,
                self._end,
                cython.cast(cython.p_uchar, data) if cython.compiled else data,
                stream._pending_at,
                size,
            )
            self._end += size
            stream._send_window -= size
            self._send_window -= size
            stream.unsent -= size
            self.unsent -= size
            sent += size
            stream._pending_at += size
            if stream._pending_at == len(data):
                stream._pending.popleft()
                stream._pending_at = 0
        if stream.unsent and stream._send_window > 0:
            self._blocked[stream.number] = stream
        else:
            self._blocked.pop(stream.number, None)  # nothing waits, or for the stream's own window
        if not stream.unsent:
            self._unblock(stream)

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def _takes_data(self) -> cython.bint:
        """Return whether data may be put behind what is ready to be sent."""
        return not self._is_held and self._end < _OUT_LIMIT

    @cython.cfunc
    def _unblock(self, stream: Stream):
        last: bytes = stream._last
        if last is not None:
            stream._last = None
            self._send_block(stream, last, True)
        self._was_drained(stream)

    @cython.cfunc
    def _pump_all(self):
        """Send what waits of streams whose own windows are open, a frame of each in turn."""
        stream: Stream
        while self._blocked and self._send_window > 0 and self._takes_data():
            stream = self._blocked.pop(next(iter(self._blocked)))
            self._pump(stream, self._peer_frame_size)

    def hold(self, is_held: cython.bint):
        # type: (...) -> None
        """Send no data while the socket takes none (True), or go on."""
        if not self.failure:
            self._is_held = is_held
            self.go_on()

    def go_on(self):
        # type: (...) -> None
        """Make data ready that waits, now that what was ready has been sent."""
        self._pump_all()
        if self._end:
            self._touch()

    @property
    def to_send(self):
        # type: (...) -> int
        """Return how many bytes are ready to be sent."""
        return self._end

    def send(self, fd: cython.int):
        # type: (...) -> int
        """Write what is ready to a socket that does not block; returns how many bytes are left, which `take_output`
        returns."""
        sent: cython.Py_ssize_t = 0
        self._is_touched = False
        if not self._end:
            return 0
        out: cython.p_uchar = self._out
        if cython.compiled:
            sent = write(fd, out, self._end)
        else:
            try:
                sent = os.write(fd, memoryview(self._out)[: self._end])
            except OSError:
                sent = 0
        if sent > 0:
            if sent < self._end:
                self._out[: self._end - sent] = self._out[sent : self._end]
            self._end -= sent
        if not self._end:
            self._release_out()
        return self._end

    def take_output(self):
        # type: (...) -> bytes
        """Return what is ready to be sent, for somebody who sends it."""
        self._is_touched = False
        if not self._end:
            return b""
        data: bytes = bytes(memoryview(self._out)[: self._end])
        self._end = 0
        self._release_out()
        return data

    @cython.cfunc
    def _release_out(self):
        """Give the buffer back; an idle connection has none."""
        if len(_SPARE) < _SPARE_OUT and len(self._out) <= _LARGE_OUT:
            _SPARE.append(self._out)
        self._out = None


def is_compiled() -> bool:
    """Returns whether this module runs compiled by Cython."""
    return cython.compiled
