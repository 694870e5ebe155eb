"""The small HTTP server of probes and metrics."""

import asyncio
import gzip
import os
import random
import socket
from collections.abc import AsyncIterator, Iterator

import pytest

from maxq.remoting import http_server
from maxq.remoting.http_server import HttpServer, Page, plain, slices
from maxq.runtime.files.system import SystemClock
from maxq.runtime.metrics.packed_text import PackedText
from maxq.testing.sim_clock import SimClock

Ask = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def _long_page() -> Page:
    return Page(f"line {number}\n" for number in range(50_000))


def _packed_page() -> Page:
    """The same, every other thousand lines packed."""
    blocks = ["".join(f"line {number}\n" for number in range(start, start + 1000)) for start in range(0, 50_000, 1000)]
    return Page(PackedText(text.encode()) if index % 2 else text for index, text in enumerate(blocks))


def _broken_page() -> Page:
    raise ValueError("no")


@pytest.fixture
async def port() -> AsyncIterator[int]:
    pages = {"/health": lambda: Page("ok\n"), "/long": _long_page, "/packed": _packed_page, "/broken": _broken_page,
             "/ready": lambda: Page("starting\n", 503)}  # fmt: skip
    server = HttpServer(pages, clock=SystemClock())
    yield await server.start("127.0.0.1", 0)
    await server.shutdown()


async def ask(port: int, request: str) -> str:
    """Everything that comes until the server closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request.encode())
    async with asyncio.timeout(10):
        answer = await reader.read()
    writer.close()
    return answer.decode()


def _get(path: str, *headers: str) -> str:
    return "\r\n".join([f"GET {path} HTTP/1.1", "Host: x", *headers, "", ""])


@pytest.mark.parametrize(
    ("request_text", "status", "body"),
    [
        (_get("/health", "Connection: close"), 200, "ok\n"),
        (_get("/health?probe=1", "connection: Close"), 200, "ok\n"),
        (_get("/ready", "Connection: close"), 503, "starting\n"),
        (_get("/nothing", "Connection: close"), 404, "no such page; there are: /broken /health /long /packed /ready\n"),
        (_get("/broken", "Connection: close"), 500, "the page failed; see the server's log\n"),
        ("POST /health HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc", 405, "only GET and HEAD\n"),
        ("HEAD /health HTTP/1.1\r\nConnection: close\r\n\r\n", 200, ""),
        ("GET /health HTTP/1.0\r\n\r\n", 200, "ok\n"),
        ("hello\r\n\r\n", 400, "this is an HTTP/1.1 server\n"),
    ],
)
async def test_answers(port: int, request_text: str, status: int, body: str) -> None:
    head, _, found = (await ask(port, request_text)).partition("\r\n\r\n")
    assert (int(head.split()[1]), found) == (status, body)


async def test_a_connection_is_used_again(port: int) -> None:
    answer = await ask(port, _get("/health") + _get("/ready") + _get("/health", "Connection: close"))
    assert answer.count("HTTP/1.1 200 OK") == 2 and answer.count("HTTP/1.1 503 Service Unavailable") == 1


async def test_a_long_page_comes_in_chunks_and_whole(port: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(_get("/long").encode())
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    assert "Transfer-Encoding: chunked" in head
    body, chunks = b"", 0
    while size := int(await reader.readline(), 16):
        body += await reader.readexactly(size)
        assert await reader.readexactly(2) == b"\r\n"
        chunks += 1
    writer.close()
    assert chunks > 5 and body == b"".join(b"line %d\n" % number for number in range(50_000))


async def test_what_is_no_http_and_does_not_end_is_closed(port: int) -> None:
    assert await ask(port, "x" * 20_000) == ""


@pytest.mark.parametrize("others_work", [False, True])
async def test_the_loop_turns_while_a_page_is_made_and_more_often_if_others_have_work(others_work: bool) -> None:
    clock = SimClock()
    turns = 0

    def pieces() -> Iterator[str | PackedText]:
        for number in range(100):
            clock.advance_ms(1)
            yield PackedText(b"%d\n" % number) if number % 2 else f"{number}\n"

    async def count_turns() -> None:
        nonlocal turns
        while True:
            if others_work:
                clock.advance_ms(1)
            await asyncio.sleep(0)
            turns += 1

    counting = asyncio.ensure_future(count_turns())
    text = b"".join([piece async for piece in plain(slices(pieces(), clock))])
    counting.cancel()
    assert text == b"".join(b"%d\n" % number for number in range(100))
    assert turns >= 190 if others_work else 90 <= turns <= 110


@pytest.mark.parametrize(
    ("accepted", "is_small"),
    [("gzip", True), ("deflate, gzip;q=0.8", True), ("gzip;q=0, identity", False), ("br", False)],
)
@pytest.mark.parametrize("path", ["/long", "/packed"])
async def test_a_long_page_is_compressed_for_who_takes_gzip(
    port: int, path: str, accepted: str, is_small: bool
) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(_get(path, f"Accept-Encoding: {accepted}", "Connection: close").encode())
    async with asyncio.timeout(10):
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    assert (b"Content-Encoding: gzip" in head) == is_small
    whole = b"".join(b"line %d\n" % number for number in range(50_000))
    assert (gzip.decompress(body) if is_small else body) == whole
    assert not is_small or len(body) < len(whole) / 3


@pytest.mark.parametrize("accepted", ["identity", "gzip"])
async def test_of_a_page_that_nobody_reads_no_more_is_made_than_sockets_hold(accepted: str) -> None:
    made = 0

    def endless() -> Iterator[str]:
        nonlocal made
        while True:
            made += 1
            yield random.Random(made).randbytes(2000).hex()  # does not get smaller

    server = HttpServer({"/endless": lambda: Page(endless())}, clock=SystemClock())
    narrow = socket.socket()
    narrow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    narrow.setblocking(False)
    try:
        await asyncio.get_running_loop().sock_connect(narrow, ("127.0.0.1", await server.start("127.0.0.1", 0)))
        narrow.sendall(_get("/endless", f"Accept-Encoding: {accepted}").encode())
        async with asyncio.timeout(20):
            before, turns = -1, 0
            while turns < 500:  # of the loop in which nothing more was made
                before, turns = made, turns + 1 if made == before and made else 0
                await asyncio.sleep(0)
        assert made * 4000 < 64 << 20
    finally:
        narrow.close()
        await server.shutdown()


async def test_clients_that_do_not_read_keep_no_descriptor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "_ANSWER_SECONDS", 0.2)
    pages = {"/huge": lambda: Page("x" * (1 << 20) for _ in range(32)), "/health": lambda: Page("ok\n")}
    server = HttpServer(pages, clock=SystemClock())
    port = await server.start("127.0.0.1", 0)
    ends: list[asyncio.StreamWriter] = []
    before = len(os.listdir("/proc/self/fd"))
    try:
        for _ in range(20):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(_get("/huge").encode())
            ends.append(writer)
        async with asyncio.timeout(20):
            while len(os.listdir("/proc/self/fd")) > before + len(ends):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        assert "ok" in await ask(port, _get("/health", "Connection: close"))
    finally:
        for writer in ends:
            writer.transport.abort()
        await server.shutdown()
