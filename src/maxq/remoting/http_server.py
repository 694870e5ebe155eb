"""HttpServer: a few pages over HTTP/1.1 on a server's own loop, for Prometheus and for probes.

GET and HEAD only, no TLS, no query strings that mean anything. A long page is made and sent in slices: between two
slices the event loop takes a turn. If there was other work in that turn, the page waits for a moment, so that the
server's real work is not delayed. At most one slice waits for a slow reader. Connections that are silent, send too
much, or do not read are closed. 32 connections are served at a time. One more replaces the connection whose request has
been incomplete for longest, or else the one whose answer has taken longest, so that idle connections cannot lock out a
health probe. Long pages are compressed for who takes gzip, which costs less than sending them: the text of metrics
becomes a fiftieth. Pieces that are kept deflated are sent as they are.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import Final, NamedTuple

from maxq.lazy_dataclass import dataclass
from maxq.remoting.system_sockets import reset
from maxq.runtime.interfaces import Clock
from maxq.runtime.metrics.packed_text import GZIP_HEAD, GzipFrame, PackedText

log: Final = logging.getLogger("maxq.remoting")

_HEAD_LIMIT: Final = 8 * 1024  # bytes of a request
_IDLE_SECONDS: Final = 75.0  # longest pause between two requests; Prometheus keeps its connection open for a minute
_ANSWER_SECONDS: Final = 30.0
_CONNECTIONS: Final = 32
_SLICE_NS: Final = 250_000  # work on a page between two turns of the loop
# a turn of the event loop that takes longer had other work; an empty one takes one to three microseconds
_BUSY_NS: Final = 20_000
_REST_SECONDS: Final = 0.001  # pause of the page in that case: timers of uvloop count milliseconds
_SLICE_BYTES: Final = 64 * 1024
_PACKED_BYTES: Final = 16 * 1024  # compressed bytes that are sent together
_REASONS: Final = {200: "OK", 400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed",
                   500: "Internal Server Error", 503: "Service Unavailable"}  # fmt: skip
TEXT: Final = "text/plain; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Page:
    """An answer: a whole text, or one in pieces."""

    body: str | Iterator[str | PackedText]
    status: int = 200
    content_type: str = TEXT


#: Makes the page of one path for a request.
PageMaker = Callable[[], Page]


class HttpServer:
    """Serves pages over HTTP, each by its path."""

    def __init__(self, pages: Mapping[str, PageMaker], *, clock: Clock) -> None:
        self._pages = dict(pages)
        self._clock = clock
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        # connections whose request has not arrived, the longest wait first
        self._asking: dict[asyncio.StreamWriter, None] = {}
        self._answered: dict[asyncio.StreamWriter, None] = {}  # connections to which an answer is being sent

    async def start(self, host: str, port: int) -> int:
        """Listen, and return the port. Raises OSError if the port is in use."""
        self._server = await asyncio.start_server(self._accept, host, port, limit=_HEAD_LIMIT)
        taken: int = self._server.sockets[0].getsockname()[1]
        return taken

    async def shutdown(self) -> None:
        """Stop listening and close every connection."""
        if self._server is None:
            return
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._server = None

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._asking) + len(self._answered) >= _CONNECTIONS:
            crowd = self._asking or self._answered
            oldest = next(iter(crowd))
            del crowd[oldest]
            reset(oldest.transport)
            log.warning("the HTTP connection that stalled longest is closed: %d are open, the limit", _CONNECTIONS)
        self._asking[writer] = None
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of one connection, one after the other. The connection is counted while its descriptor is
        open."""
        is_over = False
        try:
            goes_on = True
            while goes_on:
                self._answered.pop(writer, None)
                self._asking[writer] = None
                async with asyncio.timeout(_IDLE_SECONDS):
                    head = await reader.readuntil(b"\r\n\r\n")
                self._asking.pop(writer, None)
                self._answered[writer] = None
                async with asyncio.timeout(_ANSWER_SECONDS):
                    goes_on = await self._answer(head, writer)
            is_over = True
        except (TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ConnectionError):
            pass  # the client is gone, is silent, does not read, or does not speak HTTP
        finally:
            try:
                if is_over:  # the client has taken its answer, or soon will have
                    await _close(writer)
                else:
                    reset(writer.transport)
            finally:
                self._asking.pop(writer, None)
                self._answered.pop(writer, None)

    async def _answer(self, head: bytes, writer: asyncio.StreamWriter) -> bool:
        """Answer one request. Returns True if the connection stays open."""
        request = read_head(head)
        if request is None:
            await self._send(Page("this is an HTTP/1.1 server\n", 400), writer, _HttpOptions(False, False, True))
            return False
        page = self._page(request.method, request.path)
        await self._send(page, writer, _HttpOptions(request.keeps, request.takes_gzip, request.method != "HEAD"))
        return request.keeps

    def _page(self, method: str, path: str) -> Page:
        maker = self._pages.get(path)
        if maker is None:
            return Page(f"no such page; there are: {' '.join(sorted(self._pages))}\n", 404)
        if method not in ("GET", "HEAD"):
            return Page("only GET and HEAD\n", 405)
        try:
            return maker()
        except Exception:
            log.exception("the page %s failed", path)
            return Page("the page failed; see the server's log\n", 500)

    async def _send(self, page: Page, writer: asyncio.StreamWriter, options: "_HttpOptions") -> None:
        chunked = options.chunked
        head = [f"HTTP/1.1 {page.status} {_REASONS[page.status]}", f"Content-Type: {page.content_type}"]
        if not chunked:
            head.append("Connection: close")
        body = page.body.encode() if isinstance(page.body, str) else None
        if body is not None:
            head.append(f"Content-Length: {len(body)}")
        else:
            head.append("Vary: Accept-Encoding")
            if chunked:
                head.append("Transfer-Encoding: chunked")
            if options.gzip:
                head.append("Content-Encoding: gzip")
        writer.write(("\r\n".join(head) + "\r\n\r\n").encode("latin-1"))
        if not options.with_body:
            pass
        elif body is not None:
            writer.write(body)
        else:
            assert not isinstance(page.body, str)
            pieces = slices(page.body, self._clock)
            async for piece in compressed(pieces) if options.gzip else plain(pieces):
                writer.write(b"%x\r\n%b\r\n" % (len(piece), piece) if chunked else piece)
                await writer.drain()
            if chunked:
                writer.write(b"0\r\n\r\n")
        await writer.drain()


async def _close(writer: asyncio.StreamWriter) -> None:
    """Close a connection whose peer may not have received all of its answer yet."""
    writer.close()
    try:
        async with asyncio.timeout(_ANSWER_SECONDS):
            await writer.wait_closed()
    except (TimeoutError, ConnectionError):
        reset(writer.transport)
    except asyncio.CancelledError:
        reset(writer.transport)
        raise


class _HttpOptions(NamedTuple):
    """In which form a page is sent to a client."""

    chunked: bool  # the answer is sent in chunks, and the connection stays open
    gzip: bool
    with_body: bool


class HttpRequest(NamedTuple):
    """The head of a request. `keeps`: the connection stays open after the answer."""

    method: str
    path: str
    keeps: bool
    takes_gzip: bool


def read_head(head: bytes) -> HttpRequest | None:
    """Parse the head of a request: its lines up to the empty one. None if it is not a request of HTTP/1."""
    request_line, *lines = head.decode("latin-1").split("\r\n")
    words = request_line.split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        return None
    method, target, version = words
    headers = {name.strip().lower(): value.strip().lower() for name, _, value in (x.partition(":") for x in lines)}
    has_body = headers.get("content-length", "0") != "0" or "transfer-encoding" in headers
    keeps = version == "HTTP/1.1" and headers.get("connection") != "close" and not has_body
    return HttpRequest(method, target.partition("?")[0], keeps, _takes_gzip(headers.get("accept-encoding", "")))


def _takes_gzip(accepted: str) -> bool:
    """Return whether a client accepts gzip, by its Accept-Encoding header in lower case."""
    for part in accepted.split(","):
        name, _, weight = part.replace(" ", "").partition(";")
        if name == "gzip":
            return weight not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False


async def plain(pieces: AsyncIterator[bytes | PackedText]) -> AsyncIterator[bytes]:
    """Yield the text unchanged."""
    async for piece in pieces:
        yield piece.unpack() if isinstance(piece, PackedText) else piece


async def compressed(pieces: AsyncIterator[bytes | PackedText]) -> AsyncIterator[bytes]:
    """Yield the text as a gzip stream."""
    frame = GzipFrame()
    gathered, size = [GZIP_HEAD], 0
    async for piece in pieces:
        packed = piece if isinstance(piece, PackedText) else PackedText(piece)
        frame.add(packed)
        gathered.append(packed.deflated)
        size += len(packed.deflated)
        if size >= _PACKED_BYTES:
            yield b"".join(gathered)
            gathered, size = [], 0
    yield b"".join([*gathered, frame.end()])


async def slices(pieces: Iterator[str | PackedText], clock: Clock) -> AsyncIterator[bytes | PackedText]:
    """Join `pieces` to some 64 KiB, except those that are packed already; after each quarter of a millisecond of work
    on them the loop runs other tasks."""
    gathered: list[str] = []
    size = 0
    began_ns = clock.monotonic_ns()
    for piece in pieces:
        if isinstance(piece, str):
            gathered.append(piece)
            size += len(piece)
        if gathered and (size >= _SLICE_BYTES or isinstance(piece, PackedText)):
            yield "".join(gathered).encode()
            gathered, size = [], 0
        if isinstance(piece, PackedText):
            yield piece
        if clock.monotonic_ns() - began_ns >= _SLICE_NS:
            await _give_way(clock)
            began_ns = clock.monotonic_ns()
    if gathered:
        yield "".join(gathered).encode()


async def _give_way(clock: Clock) -> None:
    """Yield to the event loop; for longer than one turn if other tasks are busy."""
    began_ns = clock.monotonic_ns()
    await asyncio.sleep(0)
    if clock.monotonic_ns() - began_ns >= _BUSY_NS:
        await asyncio.sleep(_REST_SECONDS)
