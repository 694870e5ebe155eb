"""gRPC's own clients, and frames by hand, at a GrpcServer."""

import asyncio
import contextlib
import dataclasses
import logging
import ssl
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
import trustme

from maxq.config.netty_server_config import NettyServerConfig
from maxq.protocol.http2.hpack_cy import HpackDecoder, encode_fields
from maxq.remoting.grpc.calls import Call, GrpcStatus, Streaming, Unary
from maxq.remoting.grpc.server import GrpcServer
from maxq.remoting.tls.contexts import ServerTls
from maxq.runtime.files.system import SystemDisk
from tests.unit.remoting.grpc.http2_peer import (
    DATA,
    END_STREAM,
    GOAWAY,
    HEADERS,
    PING,
    PREFACE,
    SETTINGS,
    Frame,
    frame,
    prefixed,
    settings,
)
from tests.unit.remoting.peers import until

MIB = 1 << 20
OPTIONS = [("grpc.max_receive_message_length", 64 * MIB), ("grpc.max_send_message_length", 64 * MIB)]


class Service:
    """Methods for the clients below."""

    def __init__(self) -> None:
        self.waiting: list[Call] = []
        self.ended: list[Call] = []
        self.passes: list[int] = []  # calls of each arrival
        self.calls = 0
        self.methods = {
            "/t/Echo": Unary(self.echo),
            "/t/Wait": Unary(self.wait),
            "/t/Many": Unary(self.many),
            "/t/Endless": Unary(self.endless),
            "/t/Chat": Streaming(self.chat),
            "/t/Who": Unary(self.who),
        }

    def echo(self, call: Call, message: bytes) -> None:
        self.calls += 1
        call.answer(message)

    def wait(self, call: Call, message: bytes) -> None:
        self.waiting.append(call)
        call.on_end = lambda: self.ended.append(call)

    def many(self, call: Call, message: bytes) -> None:
        for number in range(int(message)):
            call.send(b"%d" % number * 1000)
        call.finish(trailers=[("x-count", message.decode())])

    def endless(self, call: Call, message: bytes) -> None:
        async def answer() -> None:
            while not call.is_over:
                call.send(bytes(MIB))
                await call.drained()
                self.calls += 1

        call.on_end = lambda: self.ended.append(call)
        call.connection.attributes["task"] = asyncio.get_running_loop().create_task(answer())

    def chat(self, call: Call) -> Callable[[bytes | None], None]:
        self.waiting.append(call)
        return lambda message: call.finish() if message is None else call.send(message)

    def who(self, call: Call, message: bytes) -> None:
        facts = f"{call.connection.remote_address} {call.connection.is_tls} {call.metadata.get('x-name')}"
        call.finish(GrpcStatus.ABORTED, facts)

    def pass_ended(self) -> None:
        self.passes.append(self.calls)
        self.calls = 0


@pytest.fixture
def service(caplog: pytest.LogCaptureFixture) -> Iterator[Service]:
    yield Service()
    errors = [record.getMessage() for record in caplog.get_records("call") if record.levelno >= logging.ERROR]
    assert not errors, "what fails in a callback of the loop is only logged"


@contextlib.asynccontextmanager
async def serving(service: Service, **settings: Any) -> AsyncIterator[GrpcServer]:
    server = GrpcServer(service.methods, message_limit=16 * MIB, **settings)
    server.end_of_pass = service.pass_ended
    await server.start("127.0.0.1", 0)
    try:
        yield server
    finally:
        await server.stop(0)


@contextlib.contextmanager
def dialled(
    port: int, credentials: grpc.ChannelCredentials | None = None, *options: tuple[str, Any]
) -> Iterator[grpc.Channel]:
    """A channel of gRPC's own library, to be used by a thread."""
    target, given = f"localhost:{port}", [*OPTIONS, *options]
    with (
        grpc.insecure_channel(target, given) if credentials is None else grpc.secure_channel(target, credentials, given)
    ) as channel:
        yield channel


def unary(channel: grpc.Channel, path: str) -> Any:
    return channel.unary_unary(path, None, None)


async def test_messages_of_any_size_come_back(service: Service) -> None:
    def client(port: int) -> None:
        with dialled(port) as channel:
            echo = unary(channel, "/t/Echo")
            for size in (0, 1, 16_378, 16_379, 16_380, 65_530, 65_536, 7 * MIB):
                assert echo(bytes(size), timeout=20) == bytes(size)
                assert echo(bytes(size), timeout=20, compression=grpc.Compression.Gzip) == bytes(size)
            with pytest.raises(grpc.RpcError) as failed:
                echo(bytes(16 * MIB + 1), timeout=20)
            assert failed.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            with pytest.raises(grpc.RpcError) as failed:
                unary(channel, "/t/Nothing")(b"", timeout=20)
            assert failed.value.code() is grpc.StatusCode.UNIMPLEMENTED

    async with serving(service) as server:
        await asyncio.to_thread(client, server.port)
        assert not server.unfinished.total


async def test_streams_both_ways_with_metadata_and_trailers(service: Service) -> None:
    def client(port: int) -> None:
        with dialled(port) as channel:
            many = channel.unary_stream("/t/Many", None, None)(b"300", timeout=20)
            assert [message[:3] for message in many][-1] == b"299"
            assert dict(many.trailing_metadata()) == {"x-count": "300"}
            sent = [b"a", b"", bytes(100_000), b"z"]
            assert list(channel.stream_stream("/t/Chat", None, None)(iter(sent), timeout=20)) == sent
            with pytest.raises(grpc.RpcError) as failed:
                unary(channel, "/t/Who")(b"", timeout=20, metadata=[("x-name", "Ada")])
            assert failed.value.details().endswith(" False Ada")
            assert failed.value.code() is grpc.StatusCode.ABORTED

    async with serving(service) as server:
        await asyncio.to_thread(client, server.port)


async def test_many_calls_at_once_on_one_connection(service: Service) -> None:
    def client(port: int) -> None:
        with dialled(port) as channel:
            echo = unary(channel, "/t/Echo")
            calls = [echo.future(b"%d" % number * 100, timeout=30) for number in range(1000)]
            assert [call.result() for call in calls] == [b"%d" % number * 100 for number in range(1000)]

    async with serving(service) as server:
        await asyncio.to_thread(client, server.port)
        assert len(service.passes) < 1000, "an arrival has several calls"


@pytest.mark.parametrize("is_tls", [False, True], ids=["plain", "TLS"])
async def test_others_have_their_turn_while_an_arrival_has_many_calls(service: Service, is_tls: bool) -> None:
    tls = ServerTls(NettyServerConfig(), SystemDisk(), protocols=["h2"]) if is_tls else None
    trusting = ssl.create_default_context() if is_tls else None
    if trusting is not None:
        trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    async with serving(service, tls=tls) as server, Raw.open(server, tls=trusting) as raw:
        raw.send(b"".join(raw.call(stream, "/t/Echo", b"") for stream in range(1, 4000, 2)))
        await until(lambda: sum(service.passes) == 2000, "all are answered")
        assert max(service.passes) <= 128


async def test_cancelled_and_late_calls_are_over_at_the_server(service: Service) -> None:
    def client(port: int) -> None:
        with dialled(port) as channel:
            wait = unary(channel, "/t/Wait")
            with pytest.raises(grpc.RpcError) as failed:
                wait(b"", timeout=0.2)
            assert failed.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
            call = wait.future(b"")
            seen.wait(20)
            call.cancel()

    seen = threading.Event()
    async with serving(service) as server:
        thread = asyncio.create_task(asyncio.to_thread(client, server.port))
        await until(lambda: len(service.waiting) == 2, "both have come")
        assert service.waiting[0].deadline is not None
        seen.set()
        await until(lambda: len(service.ended) == 2, "the service hears of both ends")
        assert all(call.is_over for call in service.waiting)
        await thread


async def test_a_server_ends_a_call_at_its_deadline_though_the_client_is_silent(service: Service) -> None:
    async with serving(service) as server, Raw.open(server) as raw:
        raw.send(raw.call(1, "/t/Wait", b"", ("grpc-timeout", "50m")))
        assert (await raw.until(HEADERS)).flags & END_STREAM
        assert [call.is_over for call in service.ended] == [True]


async def test_a_slow_reader_holds_up_its_stream_only(service: Service) -> None:
    def client(port: int) -> None:
        with dialled(port) as channel:
            stream = channel.unary_stream("/t/Endless", None, None)(b"")
            assert len(next(stream)) == MIB
            assert unary(channel, "/t/Echo")(b"x", timeout=20) == b"x"
            for _ in range(20):
                assert len(next(stream)) == MIB
            stream.cancel()

    async with serving(service) as server:
        await asyncio.to_thread(client, server.port)
        await until(lambda: len(service.ended) == 1, "it was cancelled")


async def test_a_client_that_does_not_read_costs_bounded_memory_and_is_disconnected(service: Service) -> None:
    async with serving(service, unsent_limit=8 * MIB, idle_seconds=1) as server, Raw.open(server) as raw:
        raw.send(settings(window=(1 << 31) - 1) + frame(8, 0, 0, (1 << 30).to_bytes(4, "big")))
        raw.send(raw.call(1, "/t/Endless", b""))
        raw.transport.pause_reading()
        await until(lambda: not server.connections, "it is disconnected")
        assert service.calls * MIB < 64 * MIB
        assert service.ended


async def test_messages_that_never_end_cost_bounded_memory(service: Service) -> None:
    """Ten connections begin a message of a megabyte on each of three streams; only eight megabytes may be kept."""
    begun = b"\0" + (MIB).to_bytes(4, "big") + bytes(16_000)
    async with serving(service, unfinished_limit=8 * MIB) as server, contextlib.AsyncExitStack() as stack:
        raws = [await stack.enter_async_context(Raw.open(server)) for _ in range(10)]
        raws[0].send(raws[0].call(1, "/t/Echo", b"known"))
        await raws[0].until(DATA)
        for raw in raws:
            for stream in (3, 5, 7):
                raw.send(raw.call(stream, "/t/Echo", b"")[:-14])
                raw.send(frame(DATA, 0, stream, begun) + frame(DATA, 0, stream, bytes(16_000)) * 61)
        await until(lambda: len(server.connections) <= 3, "those whose messages began first are ended")
        assert server.unfinished.total <= 8 * MIB
        assert any(connection.is_known for connection in server.connections), "a client that made a call goes last"


async def test_clients_are_told_to_go_and_their_calls_end(service: Service) -> None:
    def client(port: int) -> list[bytes]:
        with dialled(port) as channel:
            wait = unary(channel, "/t/Wait")
            answers = [wait.future(b"", timeout=20) for _ in range(3)]
            got = [answer.result() for answer in answers]
            with pytest.raises(grpc.RpcError) as failed:
                unary(channel, "/t/Echo")(b"", timeout=20)
            assert failed.value.code() is grpc.StatusCode.UNAVAILABLE
            return got

    server = GrpcServer(service.methods)
    port = await server.start("127.0.0.1", 0)
    thread = asyncio.create_task(asyncio.to_thread(client, port))
    await until(lambda: len(service.waiting) == 3, "the calls have come")
    stop = asyncio.create_task(server.stop(20))
    for number, call in enumerate(service.waiting):
        await asyncio.sleep(0)
        assert server.connections
        call.answer(b"%d" % number)
    await stop
    assert sorted(await thread) == [b"0", b"1", b"2"]
    assert not service.ended


async def test_a_connection_without_calls_that_does_not_answer_holds_up_no_stop(service: Service) -> None:
    server = GrpcServer(service.methods)
    await server.start("127.0.0.1", 0)
    async with Raw.open(server) as raw:
        raw.send(raw.call(1, "/t/Echo", b""))
        await raw.until(DATA)
        await asyncio.wait_for(server.stop(600), 30)
        assert [one.payload[:4] for one in await raw.closed() if one.kind == GOAWAY] == [
            b"\x7f\xff\xff\xff",
            b"\0\0\0\1",
        ]


async def test_calls_that_do_not_end_are_cut_off_after_the_grace_time(service: Service) -> None:
    server = GrpcServer(service.methods)
    await server.start("127.0.0.1", 0)
    async with Raw.open(server) as raw:
        raw.send(raw.call(1, "/t/Wait", b""))
        await until(lambda: len(service.waiting) == 1, "the call has come")
        await server.stop(0.05)
        assert not server.connections
        assert len(service.ended) == 1
        assert await raw.until(GOAWAY)


# --- first bytes, TLS, load balancers ---------------------------------------------------------------------------------


def certified(folder: Path) -> tuple[ServerTls, bytes]:
    """The settings of a server with a certificate for localhost, and the authority that its clients trust."""
    authority = trustme.CA()
    certificate = authority.issue_cert("localhost")
    (folder / "key.pem").write_bytes(certificate.private_key_pem.bytes())
    (folder / "cert.pem").write_bytes(b"".join(pem.bytes() for pem in certificate.cert_chain_pems))
    config = dataclasses.replace(
        NettyServerConfig(),
        tls_test_mode_enable=False,
        tls_server_key_path=str(folder / "key.pem"),
        tls_server_cert_path=str(folder / "cert.pem"),
    )
    return ServerTls(config, SystemDisk(), protocols=["h2"]), authority.cert_pem.bytes()


async def test_tls_and_plain_clients_share_a_port(service: Service, tmp_path: Path) -> None:
    tls, authority = certified(tmp_path)

    def client(port: int) -> None:
        with dialled(port, grpc.ssl_channel_credentials(authority)) as channel:
            assert unary(channel, "/t/Echo")(bytes(5 * MIB), timeout=20) == bytes(5 * MIB)
            assert len(list(channel.unary_stream("/t/Many", None, None)(b"500", timeout=20))) == 500
            with pytest.raises(grpc.RpcError) as failed:
                unary(channel, "/t/Who")(b"", timeout=20)
            assert " True " in failed.value.details()
        with dialled(port) as channel:
            assert unary(channel, "/t/Echo")(b"plain", timeout=20) == b"plain"

    async with serving(service, tls=tls) as server:
        await asyncio.to_thread(client, server.port)
        with pytest.raises(ssl.SSLError):
            await asyncio.open_connection("localhost", server.port, ssl=ssl.create_default_context())
        await until(lambda: not server.connections, "a failed handshake leaves nothing")


async def test_a_load_balancer_that_is_trusted_names_the_client(service: Service) -> None:
    line = b"PROXY TCP4 192.0.2.1 10.0.0.1 56324 8081\r\n"
    trusting = serving(service, is_trusted=lambda address: address == "127.0.0.1")
    async with trusting as server, Raw.open(server, before=line) as raw:
        raw.send(raw.call(1, "/t/Who", b""))
        assert b"192.0.2.1:56324" in raw.text(await raw.until(HEADERS))
    async with serving(service) as server, Raw.open(server, before=line) as raw:
        assert await raw.closed() == []


@pytest.mark.parametrize(
    ("first", "answer"),
    [
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"HTTP/1.1 505 "),
        (b"\0\0\0\x60\0\0\0\x5c{}", b""),
        (b"\x16\x03\x01\0\x05hello", b""),
        (b"nonsense", b""),
    ],
)
async def test_what_is_not_http2_is_turned_away(service: Service, first: bytes, answer: bytes) -> None:
    async with serving(service) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(first[:1])
        writer.write(first[1:])
        with contextlib.suppress(ConnectionError):
            assert (await reader.read()).startswith(answer)
        writer.transport.abort()
        await until(lambda: not server.connections, "it is disconnected")


# --- silence ----------------------------------------------------------------------------------------------------------


async def test_a_silent_connection_without_calls_is_told_to_go(service: Service) -> None:
    async with serving(service, idle_seconds=0.4) as server, Raw.open(server) as raw:
        assert (await raw.until(GOAWAY)).code == 0
        await until(lambda: not server.connections, "it is disconnected though it does not answer")


async def test_a_silent_connection_with_calls_is_asked_whether_it_lives(service: Service) -> None:
    async with serving(service, idle_seconds=0.4) as server, Raw.open(server) as raw:
        raw.send(raw.call(1, "/t/Wait", b""))
        for _ in range(2):
            ping = await raw.until(PING)
            raw.send(frame(PING, 1, 0, ping.payload))
        await until(lambda: not server.connections, "it has not answered the third one")
        assert len(service.ended) == 1


@pytest.mark.parametrize("first", [b"", PREFACE[:5], PREFACE, b"PROXY TCP4 1"])
async def test_a_connection_that_never_begins_is_cut_off(service: Service, first: bytes) -> None:
    async with serving(service, idle_seconds=0.4, is_trusted=lambda address: True) as server:
        _, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(first)
        await until(lambda: bool(server.connections), "it has come")
        await until(lambda: not server.connections, "it is cut off")
        writer.transport.abort()


class Raw:
    """A connection on which frames are written by hand. Nothing is answered by itself."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self.transport = writer.transport

    @classmethod
    @contextlib.asynccontextmanager
    async def open(
        cls, server: GrpcServer, before: bytes = b"", tls: ssl.SSLContext | None = None
    ) -> AsyncIterator["Raw"]:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=tls)
        raw = cls(reader, writer)
        raw.send(before + PREFACE + settings() + frame(SETTINGS, 1, 0))
        try:
            yield raw
        finally:
            writer.transport.abort()

    def send(self, data: bytes) -> None:
        self._writer.write(data)

    @staticmethod
    def call(stream: int, path: str, message: bytes, *more: tuple[str, str]) -> bytes:
        fields = [
            (":method", "POST"),
            (":scheme", "http"),
            (":path", path),
            ("content-type", "application/grpc"),
            *more,
        ]
        return frame(HEADERS, 4, stream, encode_fields(fields)) + frame(DATA, END_STREAM, stream, prefixed(message))

    async def next(self) -> Frame:
        head = await self._reader.readexactly(9)
        payload = await self._reader.readexactly(int.from_bytes(head[:3], "big"))
        return Frame(head[3], head[4], int.from_bytes(head[5:9], "big"), payload)

    async def until(self, kind: int) -> Frame:
        """Return the next frame of a kind."""
        async with asyncio.timeout(20):
            while (one := await self.next()).kind != kind:
                pass
        return one

    async def closed(self) -> list[Frame]:
        """Return all frames that come before the end."""
        found = []
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                found.append(await self.next())
        return found

    @staticmethod
    def text(one: Frame) -> bytes:
        """Return the text of a status."""
        block = HpackDecoder(4096, 1 << 16).decode(one.payload)
        return next(field.value for field in block.fields if field.name == "grpc-message").encode()
