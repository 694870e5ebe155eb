"""GrpcServer: listens for gRPC, plain and TLS on one port.

    server = GrpcServer({"/echo.Echo/Say": Unary(say)}, tls=ServerTls(config, disk, protocols=("h2",)))
    port = await server.start("0.0.0.0", 8081)
    ...
    await server.stop(grace_seconds=10)

A server looks at its connections every few seconds: one that is silent without an open call is told to go, one that
is silent with open calls is asked whether it lives, and one that has not begun to speak HTTP/2 is closed.
"""

import asyncio
import contextlib
import logging
import ssl
from collections.abc import Callable, Mapping
from typing import Final

from maxq.remoting.grpc.call_cy import Streaming, Unary
from maxq.remoting.grpc.connection import GrpcConnection
from maxq.remoting.tls.contexts import ServerTls
from maxq.remoting.unfinished_frames import UnfinishedFrames
from maxq.runtime.refusals import Cause, explain

log: Final = logging.getLogger("maxq.remoting")

_RECEIVE_BUFFER_SIZE: Final = 256 * 1024
_MIB: Final = 1024 * 1024
_LOOK_SECONDS: Final = 5.0
_ANSWER_SECONDS: Final = 1.0  # a client that is told to go may still begin calls for so long
_PING_TICKS: Final = 6  # looks of silence after which a connection with open calls is asked for a sign of life
_LOST_TICKS: Final = 4  # looks without an answer


class GrpcServer:
    """Listens and serves calls; see the module's text.

    Attributes:
        port: the first port on which it listens.
        connections: those that are open.
        end_of_pass: is called after all calls of an arrival were handed over, before their answers are sent.
        on_connected, on_closed: are told of each connection.
    """

    def __init__(
        self,
        methods: Mapping[str, Unary | Streaming],
        *,
        tls: ServerTls | None = None,
        is_trusted: Callable[[str], bool] | None = None,
        message_limit: int = 4 * _MIB,
        unsent_limit: int = 64 * _MIB,
        unfinished_limit: int = 256 * _MIB,
        idle_seconds: float = 120,
        highest_descriptor: int = 0,
        backlog: int = 1024,
    ) -> None:
        """
        Args:
            methods: what is served, by /package.Service/Method.
            tls: None: connections that begin with TLS are closed.
            is_trusted: tells whether the peer at an IP address may name another client in a PROXY
                header; None: none may.
            message_limit: bytes of a message that is received.
            unsent_limit: bytes of answers that may wait on one connection for its peer.
            unfinished_limit: bytes of messages that are not whole, of all connections together.
            idle_seconds: a connection without open calls is told to go after so many seconds of silence.
            highest_descriptor: connections with a higher one are refused; 0: none.
            backlog: connections that may wait to be accepted.
        """
        self.methods = dict(methods)
        self.message_limit = message_limit
        self.unsent_limit = unsent_limit
        self.write_marks = (_MIB, _MIB // 4)
        self.unfinished = UnfinishedFrames(unfinished_limit)
        self.receive_buffer = bytearray(_RECEIVE_BUFFER_SIZE)
        self.receive_view = memoryview(self.receive_buffer)
        self.connections: set[GrpcConnection] = set()
        self.end_of_pass: Callable[[], None] | None = None
        self.on_connected: list[Callable[[GrpcConnection], None]] = []
        self.on_closed: list[Callable[[GrpcConnection], None]] = []
        self.port = 0
        self._tls = tls
        self._is_trusted = is_trusted
        self._look_seconds = min(_LOOK_SECONDS, idle_seconds / 4)
        self._idle_ticks = round(idle_seconds / self._look_seconds)
        self._highest_descriptor = highest_descriptor
        self._backlog = backlog
        self._listening: list[asyncio.Server] = []
        self._written: list[GrpcConnection] = []  # they have something to send
        self._is_due = False  # they are going to be flushed
        self._goes_away = False
        self._is_empty: asyncio.Event | None = None
        self._look_timer: asyncio.TimerHandle | None = None

    async def start(self, host: str, port: int) -> int:
        """Listen, and return the port (a free one for 0). Raises OSError, which names the port, if it is in use."""
        self.port = await self.listen(host, port)
        return self.port

    async def listen(self, host: str, port: int) -> int:
        """Listen on one more port."""
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: GrpcConnection(self), host, port, backlog=self._backlog)
        self._listening.append(server)
        taken: int = server.sockets[0].getsockname()[1]
        if self._look_timer is None:
            self._look_timer = loop.call_later(self._look_seconds, self._look)
        log.info("listening for gRPC on %s:%d", host, taken)
        return taken

    async def stop(self, grace_seconds: float) -> None:
        """Stop listening, tell clients to open no more calls here, and close each connection when its calls have ended,
        after `grace_seconds` at the latest."""
        self._goes_away = True
        for server in self._listening:
            server.close()
        self._is_empty = asyncio.Event()
        for connection in list(self.connections):
            connection.channel.drain()
        if self.connections and grace_seconds > 0:
            refuses = asyncio.get_running_loop().call_later(min(_ANSWER_SECONDS, grace_seconds / 2), self._refuse_more)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(grace_seconds):
                    await self._is_empty.wait()
            refuses.cancel()
        for connection in list(self.connections):
            connection.abort("the server shuts down")
        if self.connections:
            await self._is_empty.wait()
        if self._look_timer is not None:
            self._look_timer.cancel()
            self._look_timer = None
        for server in self._listening:
            await server.wait_closed()
        self._listening.clear()

    def _refuse_more(self) -> None:
        """Wait for no more calls of clients that have not answered that they are to go."""
        for connection in list(self.connections):
            connection.channel.refuse_more()

    # --- what connections ask -----------------------------------------------------------------------------------------

    def server_tls(self) -> ssl.SSLContext | None:
        return None if self._tls is None else self._tls.context()

    def plain_allowed(self) -> bool:
        return self._tls is None or self._tls.plain_allowed

    def trusts_balancer(self, address: str) -> bool:
        return self._is_trusted is not None and self._is_trusted(address)

    def connected(self, connection: GrpcConnection) -> None:
        self.connections.add(connection)
        highest = self._highest_descriptor
        if highest and connection.descriptor > highest:
            reason = explain(
                Cause.CONNECTIONS,
                f"too many connections: {len(self.connections)}, this one's descriptor is {connection.descriptor}",
                limit=f"{highest} (highestDescriptor)",
                remedy="disconnected; close connections, or raise the limit of open files (ulimit -n, LimitNOFILE)",
            )
            log.warning("%s %s", connection.remote_address, reason)
            connection.abort(reason)
        if self._goes_away:
            connection.abort("the server shuts down")
        for told in self.on_connected:
            told(connection)

    def closed(self, connection: GrpcConnection) -> None:
        self.connections.discard(connection)
        for told in self.on_closed:
            told(connection)
        if not self.connections and self._is_empty is not None:
            self._is_empty.set()

    def pass_began(self) -> None:
        self._is_due = True

    def pass_ended(self) -> None:
        try:
            if self.end_of_pass is not None:
                self.end_of_pass()
        finally:
            self._flush()

    def wrote(self, connection: GrpcConnection) -> None:
        self._written.append(connection)
        if not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        """Write the answers of finished calls to the sockets of their connections."""
        self._is_due = False
        written, self._written = self._written, []
        for connection in written:
            try:
                connection.flush()
            except Exception:
                log.exception("%s: what it is answered could not be sent", connection.remote_address)
                connection.abort("what it is answered could not be sent")

    def _look(self) -> None:
        """Check all gRPC connections every few seconds: deadlines of calls, and peers that are silent."""
        self._look_timer = asyncio.get_running_loop().call_later(self._look_seconds, self._look)
        for connection in list(self.connections):
            self._look_at(connection)

    def _look_at(self, connection: GrpcConnection) -> None:
        channel = connection.channel
        channel.tick()
        connection.ticks += 1
        connection.idle_ticks = 0 if connection.active else connection.idle_ticks + 1
        connection.active = False
        silent = connection.idle_ticks
        if not channel.is_introduced:
            if connection.ticks >= _LOST_TICKS:
                connection.abort("did not begin to speak HTTP/2 in time")
        elif channel.streams:
            if silent == _PING_TICKS:
                channel.ping()
            elif silent >= _PING_TICKS + _LOST_TICKS:
                connection.abort("does not answer")
        elif silent == self._idle_ticks:
            channel.drain()
        elif silent >= self._idle_ticks + _LOST_TICKS:
            connection.abort("idle")
