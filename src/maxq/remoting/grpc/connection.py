"""GrpcConnection: one TCP connection to a gRPC server.

All connections of a server receive into one shared buffer; what is left of an arrival, part of a frame, is kept per
connection, so an idle one owns no buffer. A PROXY header is taken off and TLS begins by the first bytes, as on
remoting's port. When the transport holds more than the high mark, the peer does not read: its socket is not read
either, and what answers wait is bounded (`unsent_limit`).

What calls are answered leaves at the end of the arrival that brought them, or of the turn of the loop.
"""

import asyncio
import logging
import ssl
from collections.abc import Callable
from typing import Any, Final, Protocol, cast

from maxq.errors import RemoteProtocolError
from maxq.remoting.addresses import address_text
from maxq.remoting.first_bytes import Opening, opening
from maxq.remoting.grpc.call_cy import GrpcChannel, Streaming, Unary
from maxq.remoting.proxy_protocol import ProxyHeader, parse_proxy_header
from maxq.remoting.system_sockets import reset
from maxq.remoting.tls.contexts import failure_text
from maxq.remoting.tls.tls_channel import TlsChannel
from maxq.remoting.unfinished_frames import COUNTED, UnfinishedFrames
from maxq.runtime.refusals import Cause, explain

log: Final = logging.getLogger("maxq.remoting")

_HTTP1_TEXT: Final = b"This port speaks gRPC, which is HTTP/2 and not HTTP/1.1.\n"
_HTTP1_ANSWER: Final = (
    b"HTTP/1.1 505 HTTP Version Not Supported\r\ncontent-type: text/plain\r\nconnection: close\r\n"
    b"content-length: %d\r\n\r\n%b" % (len(_HTTP1_TEXT), _HTTP1_TEXT)
)


class GrpcEndpoint(Protocol):
    """The interface of the server to which a connection belongs."""

    receive_buffer: bytearray
    receive_view: memoryview
    methods: dict[str, Unary | Streaming]
    message_limit: int
    unsent_limit: int
    write_marks: tuple[int, int]  # bytes: stop reading above the first, go on below the second
    unfinished: UnfinishedFrames

    def server_tls(self) -> ssl.SSLContext | None: ...

    def plain_allowed(self) -> bool: ...

    def trusts_balancer(self, address: str) -> bool: ...

    def connected(self, connection: "GrpcConnection") -> None: ...

    def closed(self, connection: "GrpcConnection") -> None: ...

    def pass_began(self) -> None:
        """Take note that an arrival is worked off."""
        ...

    def pass_ended(self) -> None:
        """Take note that all calls of an arrival were handed over."""
        ...

    def wrote(self, connection: "GrpcConnection") -> None:
        """Call `flush` of this connection soon."""
        ...


class GrpcConnection(asyncio.BufferedProtocol):
    """One connection.

    Attributes:
        attributes: belongs to the services.
        remote_address: host:port of the client, which a trusted load balancer may have named.
        on_close: functions that are called when the connection is gone, after all of its calls are over.
    """

    __slots__ = (
        "_deadline", "_detecting", "_direct", "_endpoint", "_loop", "_partial", "_paused", "_resting", "_tls",
        "_transport", "active", "attributes", "channel", "close_reason", "has_unfinished", "idle_ticks", "is_closed",
        "is_introduced", "is_known", "is_tls", "local_address", "on_close", "remote_address", "ticks",
    )  # fmt: skip

    def __init__(self, endpoint: GrpcEndpoint) -> None:
        self._endpoint = endpoint
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._tls: TlsChannel | None = None
        self._detecting = True
        self._direct = -1  # the socket, where what is written to it is what the peer gets
        self._partial = b""
        self._paused = False
        self._resting = False  # others have their turn before the rest of an arrival is worked off
        self._deadline: asyncio.TimerHandle | None = None
        self.is_introduced = False  # a load balancer has said whom it speaks for
        self.is_known = False  # a call of it was handed over
        self.has_unfinished = False  # entered in the endpoint's unfinished frames
        self.is_tls = False
        self.is_closed = False
        self.close_reason = ""
        self.attributes: dict[str, Any] = {}
        self.on_close: list[Callable[[], None]] = []
        self.remote_address = ""
        self.local_address = ""
        self.active = True  # bytes came since the endpoint's last look
        self.ticks = 0  # looks of the endpoint
        self.idle_ticks = 0  # those in a row that found it inactive
        self.channel = GrpcChannel(self, endpoint.methods, endpoint.message_limit, endpoint.unsent_limit)

    def __repr__(self) -> str:
        return f"<GrpcConnection {self.local_address} ← {self.remote_address}{' closed' if self.is_closed else ''}>"

    @property
    def peer_ip(self) -> str:
        """Return the IP address from which the connection comes; behind a trusted load balancer, that of its client."""
        return self.remote_address.rpartition(":")[0].strip("[]")

    @property
    def descriptor(self) -> int:
        """Return the descriptor of the socket; -1 where the system has none (in the simulator)."""
        socket = None if self._transport is None else self._transport.get_extra_info("socket")
        return -1 if socket is None else int(socket.fileno())

    def close(self, reason: str) -> None:
        """Close when what is ready has been sent."""
        if not self.is_closed:
            self.flush()
            self._shut(reason)

    def _shut(self, reason: str) -> None:
        if not self.is_closed and self._transport is not None:
            self.close_reason = self.close_reason or reason
            self.is_closed = True
            if self._tls is not None:
                self._transport.write(self._tls.close())
            self._transport.close()

    def abort(self, reason: str) -> None:
        """Close at once; what is buffered is lost."""
        if self._transport is not None:
            self.close_reason = self.close_reason or reason
            self.is_closed = True
            self.channel.stop(reason)
            reset(self._transport)

    # --- asyncio ------------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport = cast(asyncio.Transport, transport)
        self.remote_address = address_text(transport.get_extra_info("peername"))
        self.local_address = address_text(transport.get_extra_info("sockname"))
        high, low = self._endpoint.write_marks
        transport.set_write_buffer_limits(high=high, low=low)
        self._direct = self.descriptor
        if not self.remote_address:  # the peer has reset it already: rules about addresses need one
            self.abort("reset by the peer before it was accepted")
        self._endpoint.connected(self)

    def connection_lost(self, error: Exception | None) -> None:
        self.is_closed = True
        self._direct = -1
        self._partial = b""
        self.close_reason = self.close_reason or (f"broken: {error}" if error else "closed by the peer")
        self.kept(0)
        if self._deadline is not None:
            self._deadline.cancel()
        self.channel.lost()
        try:
            for told in self.on_close:
                told()
        except Exception:
            log.exception("the end of the connection %s could not be processed", self.remote_address)
        self.on_close.clear()
        self._endpoint.closed(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._endpoint.receive_view if self._tls is not None else self._window()

    def buffer_updated(self, nbytes: int) -> None:
        if self.is_closed:
            return
        self.active = True
        if self._tls is not None:
            self._tls_received(self._endpoint.receive_view[:nbytes])
        elif self._detecting:
            self._detect(nbytes)
        else:
            self._received(nbytes)

    def pause_writing(self) -> None:
        self._paused = True
        self.channel.hold(True)
        if self._transport is not None and not self.is_closed:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        self._paused = False
        self.channel.hold(False)
        self._go_on()

    def _rest(self) -> None:
        """Let other connections have their turn before the rest of an arrival is worked off."""
        self._resting = True
        if self._transport is not None:
            self._transport.pause_reading()
        self._loop.call_soon(self._rested)

    def _rested(self) -> None:
        self._resting = False
        if self.is_closed:
            return
        self._window()  # puts what is kept into the buffer
        self._received(0)
        if self._tls is not None and not self._resting:
            self._tls_received(memoryview(b""))
        self._go_on()

    def _go_on(self) -> None:
        if self._transport is not None and not (self.is_closed or self._paused or self._resting):
            self._transport.resume_reading()

    # --- receiving ----------------------------------------------------------------------------------------------------

    def _window(self) -> memoryview:
        """Return the memory for the next bytes, behind those that are kept."""
        view = self._endpoint.receive_view
        kept = len(self._partial)
        if kept:
            view[:kept] = self._partial
            return view[kept:]
        return view

    def _received(self, count: int) -> None:
        """Work off `count` bytes that were put into the window."""
        end = len(self._partial) + count
        self._partial = b""
        self._work(0, end)

    def _work(self, start: int, end: int) -> None:
        """Hand over the calls in buffer[start:end] of the endpoint, and send what is there to be sent."""
        channel = self.channel
        calls = channel.calls
        channel.now = self._loop.time()
        self._endpoint.pass_began()
        try:
            position = channel.receive(self._endpoint.receive_buffer, start, end)
        finally:
            self._endpoint.pass_ended()
        if self.is_closed:
            return
        if position < end:
            self._partial = bytes(self._endpoint.receive_view[position:end])
        if channel.calls != calls:
            self.is_known = True
        if channel.is_resting and not self._resting:
            self._rest()
        if channel.failure:
            log.warning("%s is disconnected: %s", self.remote_address, channel.failure)
            self.close(f"protocol error: {channel.failure}")
        elif channel.is_drained:
            self.close("drained")

    def kept(self, size: int) -> None:
        """Count bytes of messages that are not whole. If all connections keep too many, one is ended."""
        if size > COUNTED:
            self.has_unfinished = True
            self._endpoint.unfinished.hold(self, size)
        elif self.has_unfinished:
            self.has_unfinished = False
            self._endpoint.unfinished.release(self)

    def end_unfinished(self, total: int, limit: int) -> None:
        self._end_for(
            Cause.OVERLOAD,
            f"messages that it began are not whole, and all such messages together have {total} bytes",
            limit=f"{limit} (maxUnfinishedBytes)",
            remedy="disconnected; send messages as a whole, or raise the limit",
        )

    def end_unread(self, unsent: int) -> None:
        """Close the connection of a peer that does not read its answers."""
        self._end_for(
            Cause.UNREAD_ANSWERS,
            f"does not read its answers: {unsent} bytes unsent",
            limit=f"{self._endpoint.unsent_limit} (maxUnsentBytes)",
            remedy="disconnected; a client that asks must read",
        )

    def _end_for(self, cause: Cause, text: str, *, limit: str, remedy: str) -> None:
        if not self.is_closed:
            reason = explain(cause, text, limit=limit, remedy=remedy)
            log.warning("%s %s", self.remote_address, reason)
            self.abort(reason)

    # --- deadlines ----------------------------------------------------------------------------------------------------

    def wake_at(self, deadline: float) -> None:
        """Let calls end whose deadlines have passed at `deadline`, of the loop's time."""
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = self._loop.call_at(deadline, self._expire)

    def _expire(self) -> None:
        self._deadline = None
        self.channel.expire(self._loop.time())

    # --- sending ------------------------------------------------------------------------------------------------------

    def wrote(self) -> None:
        """Take note that the channel has something to send."""
        self._endpoint.wrote(self)

    def flush(self) -> None:
        """Send what is ready."""
        transport = self._transport
        if transport is None or self.is_closed:
            return
        channel = self.channel
        if self._direct < 0 or transport.get_write_buffer_size() or channel.send(self._direct):
            data = channel.take_output()
            transport.write(data if self._tls is None else self._tls.encrypt([data]))
            unsent = transport.get_write_buffer_size()
            if self._paused and unsent > self._endpoint.unsent_limit:
                self.end_unread(unsent)
        if channel.unsent:
            channel.go_on()
        elif channel.is_drained:
            self._shut("drained")

    # --- PROXY protocol and TLS ---------------------------------------------------------------------------------------

    def _detect(self, count: int) -> None:
        """Look at the first bytes of the connection."""
        end = len(self._partial) + count
        self._partial = b""
        buffer = self._endpoint.receive_buffer
        position = 0
        try:
            if not self.is_introduced and opening(buffer[: min(24, end)]) is Opening.PROXY:
                header = parse_proxy_header(bytes(memoryview(buffer)[:end]))
                if header is None:
                    self._partial = bytes(memoryview(buffer)[:end])
                    return
                self._believe(header)
                position = header.size
            self._start(buffer, position, end)
        except RemoteProtocolError as error:
            log.warning("%s is disconnected: %s", self.remote_address, error)
            self.abort(f"protocol error: {error}")

    def _start(self, buffer: bytearray, position: int, end: int) -> None:
        """Begin TLS or HTTP/2, whichever comes."""
        found = opening(buffer[position : min(position + 24, end)])
        if found is Opening.MORE:
            self._partial = bytes(memoryview(buffer)[position:end])
            return
        self._detecting = False
        if found is Opening.TLS:
            context = self._endpoint.server_tls()
            if context is None:
                raise RemoteProtocolError("TLS where tls.server.mode is disabled")
            self._tls = TlsChannel(context, server_side=True)
            self._direct = -1
            self.is_tls = True
            self._tls_received(memoryview(buffer)[position:end])
        elif not self._endpoint.plain_allowed():
            raise RemoteProtocolError("a connection without TLS where tls.server.mode is enforcing")
        elif found is Opening.HTTP2:
            self._work(position, end)
        elif found is Opening.HTTP1 and self._transport is not None:
            self._transport.write(_HTTP1_ANSWER)
            self.is_closed = True
            self._transport.close()
        else:
            raise RemoteProtocolError(f"{found.value} where HTTP/2 is expected: this is the port for gRPC")

    def _believe(self, header: ProxyHeader) -> None:
        """Adopt the client's address that a load balancer names.

        Raises:
            RemoteProtocolError: the peer is none of ours.
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

    def _tls_received(self, data: memoryview) -> None:
        tls, transport = self._tls, self._transport
        assert tls is not None and transport is not None
        try:
            tls.feed(data)
            while not (self.is_closed or self._resting) and (count := tls.read_into(self._window())):
                self._received(count)
        except ssl.SSLError as error:
            why = failure_text(error)
            log.warning("TLS with %s failed: %s", self.remote_address, why)
            self.close_reason = f"TLS failed: {why}"
            self.is_closed = True
            transport.write(tls.outgoing())  # the alert tells the peer why
            transport.close()
            return
        if self.is_closed:
            return
        if answer := tls.outgoing():
            transport.write(answer)
        if tls.is_ended:
            self.close("closed by the peer")
