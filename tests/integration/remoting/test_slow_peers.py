"""Who does not read, or never ends what it began, is cut off after a grace time: by real sockets, on every port."""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator
from typing import Final

import pytest

from maxq.config.netty_server_config import NettyServerConfig
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.remoting import http_server
from maxq.remoting.http_server import HttpServer, Page
from maxq.remoting.server import RemotingServer
from maxq.remoting.tls.contexts import ServerTls
from maxq.runtime.files.system import SystemClock, SystemDisk
from tests.integration.remoting.stalling_peer import Peer
from tests.unit.remoting.peers import until
from tests.visitors import page

GRACE: Final = 1  # seconds
DRIP: Final = GRACE / 10
SIP: Final = GRACE / 20
MOST: Final = 60.0 * GRACE
LARGE: Final = 4 << 20


@contextlib.asynccontextmanager
async def serving(tls: bool = False) -> AsyncIterator[tuple[RemotingServer, int]]:
    """A server that answers request 1 with nothing and request 2 with four megabytes."""
    config = NettyServerConfig(server_channel_max_idle_time_seconds=GRACE, proxy_protocol_trusted="127.0.0.1")
    server = RemotingServer(config, clock=SystemClock(), tls=ServerTls(config, SystemDisk()) if tls else None)
    server.register(1, lambda _, command: command.reply())
    server.register(2, lambda _, command: command.reply(body=bytes(LARGE)))
    try:
        yield server, await server.start("127.0.0.1", 0)
    finally:
        await server.shutdown()


BEGINNINGS: Final = {
    "a frame": RemotingCommand(1).encode()[:-1] + b" " * 1000,
    "a frame of two megabytes": (2 << 20).to_bytes(4, "big") + bytes(1000),
    "a PROXY line": b"PROXY TCP4 " + b"1" * 1000,
    "a PROXY header in binary": b"\r\n\r\n\0\r\nQUIT\n\x21\x11\xff\xff" + bytes(1000),
    "TLS": bytes.fromhex("16030103e8010003e40303") + bytes(1000),
}


@pytest.mark.parametrize("what", BEGINNINGS)
async def test_who_never_ends_its_first_frame_is_cut_off_however_it_moves(what: str) -> None:
    async with serving(tls=True) as (server, port):
        peer = Peer(port)
        await peer.drips(BEGINNINGS[what], every=DRIP)
        await until(lambda: not server.connections, "it is cut off")
        assert not server.unfinished.total


async def test_who_only_sends_what_is_refused_is_cut_off() -> None:
    async with serving() as (server, port):
        server.guard = lambda connection, command: command.reply(1, "no")
        peer = Peer(port)
        await peer.drips(RemotingCommand(1).encode() * 20, every=GRACE / 100)
        await until(lambda: not server.connections, "it is cut off")


async def test_who_was_let_through_once_may_take_its_time() -> None:
    async with serving() as (server, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for _ in range(6):
            writer.write(RemotingCommand(1).encode())
            await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
            await asyncio.sleep(GRACE / 2)
        assert server.connections
        writer.close()


async def test_a_reader_that_takes_next_to_nothing_is_cut_off() -> None:
    async with serving() as (server, port):
        peer = Peer(port)
        peer.socket.sendall(RemotingCommand(2).encode())
        await peer.sips(1, every=SIP, seconds=MOST)
        await until(lambda: not server.connections, "it is cut off")


async def test_a_reader_that_takes_little_but_some_is_not() -> None:
    async with serving() as (server, port):
        peer = Peer(port)
        peer.socket.sendall(RemotingCommand(2).encode())
        with pytest.raises(AssertionError, match="never cut off"):
            await peer.sips(8 << 10, every=GRACE / 50, seconds=4 * GRACE)
        assert server.connections


def shake_hands(peer: socket.socket) -> ssl.SSLSocket:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context.wrap_socket(peer, server_hostname="localhost")


async def test_a_reader_behind_tls_that_stalls_is_cut_off() -> None:
    async with serving(tls=True) as (server, port):
        peer = Peer(port)
        peer.socket = await asyncio.to_thread(shake_hands, peer.socket)
        peer.socket.sendall(RemotingCommand(2).encode())
        await until(lambda: any(connection.is_known for connection in server.connections), "it is served")
        await until(lambda: not server.connections, "it is cut off")
        peer.socket.close()


@pytest.mark.parametrize("beginning", [b"", b"GET /metrics HTTP/1.1\r\nX: "], ids=["nothing", "half a request"])
async def test_half_an_http_request_is_cut_off(monkeypatch: pytest.MonkeyPatch, beginning: bytes) -> None:
    monkeypatch.setattr(http_server, "_IDLE_SECONDS", GRACE)
    server = HttpServer({"/metrics": lambda: Page("text")}, clock=SystemClock())
    peer = Peer(await server.start("127.0.0.1", 0))
    peer.socket.sendall(beginning)
    await (peer.drips(b"x" * 1000, every=DRIP) if beginning else peer.sips(1, every=SIP, seconds=MOST))
    await server.shutdown()


async def test_an_http_reader_that_takes_next_to_nothing_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "_ANSWER_SECONDS", GRACE)
    server = HttpServer({"/metrics": lambda: Page("x" * LARGE)}, clock=SystemClock())
    peer = Peer(await server.start("127.0.0.1", 0))
    peer.socket.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
    await peer.sips(1, every=SIP, seconds=MOST)
    await server.shutdown()


@pytest.mark.parametrize("says", [b"", b"GET /he", b"GET /long HTTP/1.1\r\n\r\n"], ids=["nothing", "half", "no-reader"])
async def test_who_holds_http_connections_keeps_no_probe_out(says: bytes) -> None:
    server = HttpServer({"/health": lambda: Page("ok"), "/long": lambda: Page("x" * LARGE)}, clock=SystemClock())
    port = await server.start("127.0.0.1", 0)
    peers = []
    for _ in range(40):
        peers.append(Peer(port))
        peers[-1].socket.sendall(says)
        await asyncio.sleep(0.01)
    async with asyncio.timeout(20):  # those who hold connections are cut off after 30 or 75 seconds
        answer = await page(f"127.0.0.1:{port}", "/health")
    assert answer.startswith("HTTP/1.1 200")
    for peer in peers:
        peer.close()
    await server.shutdown()


async def test_an_http_reader_that_takes_nothing_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "_ANSWER_SECONDS", GRACE)
    server = HttpServer({"/metrics": lambda: Page("x" * LARGE)}, clock=SystemClock())
    peer = Peer(await server.start("127.0.0.1", 0))
    peer.socket.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
    await peer.sips(0, every=SIP, seconds=MOST)
    await server.shutdown()
