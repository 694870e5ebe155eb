"""The simulated network: hosts, links, and TCP connections between protocols, all in memory.

A connection is two `SimTransport`s. Each direction is a byte stream: the sender's buffer, a **wire** (what is under
way, in order, with arrival times) and the receiver's inbox. At most `window` bytes are under way or unread, as with
TCP's receive window; what does not fit stays in the sender's buffer and drives `pause_writing`/`resume_writing`.

What can be done to it: bytes are split at drawn places and delayed by drawn times (`LinkSettings`); a lost packet
shows, as in TCP, as a longer delay; a **partition** holds the wire and loses nothing until it is healed; a **reset**
breaks connections at both ends; a **crashed host** is gone without a word, its peers stay half-open until they write
to it after it is back; a slow reader is a protocol that pauses reading, or a link with little bandwidth.

Hosts are told apart by `SimNetwork.on_host(address)`, a context variable that tasks inherit.
"""

import asyncio
import contextlib
import contextvars
import errno
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from maxq.testing.sim_rng import SimRng
from maxq.testing.sim_transport import SimSocket, SimTransport

LOOPBACK = "127.0.0.1"
_ANY = ("", "0.0.0.0", "::", "None")

_current_host: contextvars.ContextVar[str] = contextvars.ContextVar("maxq_sim_host", default=LOOPBACK)


@dataclass(frozen=True, slots=True)
class LinkSettings:
    """How one direction between two hosts behaves."""

    delay_ms: tuple[float, float] = (0.05, 2.0)  # one-way delay, drawn for each chunk
    chunk_bytes: tuple[int, int] = (1, 65536)  # sizes of chunks into which the stream is cut, drawn for each chunk
    whole: float = 0.5  # probability that a chunk is as large as it can be instead
    loss: float = 0.0  # probability that a chunk is lost and sent again
    retransmit_ms: float = 200.0  # time until a lost chunk is sent again
    bytes_per_second: float = 0.0  # 0: unlimited


class SimServer(asyncio.AbstractServer):
    """A listening port of the simulated network."""

    def __init__(
        self, network: "SimNetwork", factory: Callable[[], asyncio.BaseProtocol], host: str, address: tuple[str, int]
    ) -> None:
        self.host = host
        self.factory = factory
        self.context = contextvars.copy_context()
        self.sockets: tuple[SimSocket, ...] = (SimSocket(address),)
        self._network = network
        self._closed = network.loop.create_future()

    def close(self) -> None:
        if self.sockets:
            self._network.unlisten(self)
            self.sockets = ()
            if not self._closed.done():
                self._closed.set_result(None)

    def is_serving(self) -> bool:
        return bool(self.sockets)

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return self._network.loop

    async def start_serving(self) -> None:
        pass  # it reads from the start

    async def serve_forever(self) -> None:
        await asyncio.shield(self._closed)

    async def wait_closed(self) -> None:
        await asyncio.shield(self._closed)


class SimNetwork:
    """Hosts, listeners, links and connections. One per loop: `loop.network`."""

    def __init__(self, loop: asyncio.AbstractEventLoop, rng: SimRng) -> None:
        self.loop = loop
        self.window = 256 * 1024  # bytes per direction that may be sent and unread
        self.connect_timeout_s = 127.0  # Linux: six retries of a SYN
        self.default_link = LinkSettings()
        self.context = contextvars.Context()  # the context of callbacks of the network, which belong to no process
        self._rng = rng
        self._links: dict[tuple[str, str], LinkSettings] = {}
        self._cuts: set[tuple[str, str]] = set()
        self._down: set[str] = set()
        self._listeners: dict[tuple[str, int], SimServer] = {}
        self._transports: dict[int, SimTransport] = {}  # by id, in order of creation
        self._next_port = 40000

    # -- hosts --

    @contextlib.contextmanager
    def on_host(self, address: str) -> Iterator[None]:
        """Run the code of this block, and every task it creates, on the host with this (IPv4) address."""
        token = _current_host.set(address)
        try:
            yield
        finally:
            _current_host.reset(token)

    def crash_host(self, address: str) -> None:
        """Crash the host: its connections and listeners end, and peers are told nothing. The caller ends its tasks."""
        self._down.add(address)
        for transport in self.connections(address):
            transport.vanish()
            self._transports.pop(id(transport), None)
        self._close_listeners(address)

    def kill_host(self, address: str) -> None:
        """Kill the host's process: its listeners close, and its system ends its connections for it, which the peers
        see."""
        for transport in self.connections(address):
            transport.end_by_system()
        self._close_listeners(address)

    def _close_listeners(self, address: str) -> None:
        for server in list(self._listeners.values()):
            if server.host == address:
                server.close()

    def restart_host(self, address: str) -> None:
        """Restart the host. It has lost its connections: it resets them when TCP retransmits unacknowledged data, or at
        the next write."""
        if address not in self._down:
            return
        self._down.discard(address)
        for transport in self._transports.values():
            if transport.peer.host == address and transport.has_unacknowledged:
                self.loop.call_later(self._rng.uniform(0.2, 20), transport.reset)

    def is_up(self, address: str) -> bool:
        return address not in self._down

    def connections(self, host: str, other: str | None = None) -> list[SimTransport]:
        """Open transport ends on `host` (towards `other`), oldest first."""
        return [t for t in self._transports.values() if t.host == host and other in (None, t.peer.host)]

    # -- links --

    def set_link(self, source: str, target: str, settings: LinkSettings, *, both_ways: bool = True) -> None:
        """Set the link's behaviour from now on; packets under way are not delayed by it."""
        self._links[source, target] = settings
        if both_ways:
            self._links[target, source] = settings
        for transport in list(self._transports.values()):
            for end in (transport, transport.peer):
                if self._links.get((end.host, end.peer.host)) is settings:
                    end.hasten()

    def partition(self, source: str, target: str, *, both_ways: bool = True) -> None:
        """Drop all packets from source to target (and back) until `heal`."""
        self._cuts.add((source, target))
        if both_ways:
            self._cuts.add((target, source))

    def heal(self, source: str | None = None, target: str | None = None) -> None:
        """End partitions: all, or those between two hosts. Packets under way are delivered."""
        if source is None or target is None:
            self._cuts.clear()
        else:
            self._cuts -= {(source, target), (target, source)}
        for transport in list(self._transports.values()):
            transport.restart_wire()
            transport.peer.restart_wire()

    def is_cut(self, source: str, target: str) -> bool:
        return (source, target) in self._cuts

    def reset(self, host: str, other: str | None = None) -> None:
        """Break the connections of `host` (with `other`) at both ends."""
        for transport in self.connections(host, other):
            transport.reset()
            transport.peer.reset()

    def draw_chunk(self, transport: SimTransport, limit: int) -> int:
        """Draw how many of `limit` bytes travel together."""
        link = self._link(transport)
        low, high = link.chunk_bytes
        if limit <= 1 or (high >= limit and self._rng.chance(link.whole)):
            return limit
        return min(limit, self._rng.between(low, max(low, min(high, limit))))

    def draw_delay(self, transport: SimTransport) -> float:
        """Draw the seconds for which one chunk is under way."""
        link = self._link(transport)
        delay = self._rng.uniform(*link.delay_ms) / 1000
        if link.loss and self._rng.chance(link.loss):
            delay += link.retransmit_ms / 1000
        return delay

    def transmission_time(self, transport: SimTransport, size: int) -> float:
        """Return the seconds for which the connection is busy with `size` bytes."""
        rate = self._link(transport).bytes_per_second
        return size / rate if rate else 0.0

    def _link(self, transport: SimTransport) -> LinkSettings:
        return self._links.get((transport.host, transport.peer.host), self.default_link)

    # -- listening and connecting --

    def listen(self, factory: Callable[[], asyncio.BaseProtocol], host: Any, port: int) -> SimServer:
        """Listen on the current host; raises OSError EADDRINUSE as bind does."""
        here = _current_host.get()
        wanted = host[0] if isinstance(host, (list, tuple)) and host else host
        address = here if str(wanted) in (*_ANY, LOOPBACK, "localhost") else str(wanted)
        port = port or self._free_port()
        if (address, port) in self._listeners:
            raise OSError(errno.EADDRINUSE, f"error while attempting to bind on address {(address, port)!r}")
        server = SimServer(self, factory, address, (address, port))
        self._listeners[address, port] = server
        return server

    def unlisten(self, server: SimServer) -> None:
        self._listeners = {key: value for key, value in self._listeners.items() if value is not server}

    def _free_port(self) -> int:
        self._next_port += 1
        return self._next_port

    async def connect(self, factory: Callable[[], Any], host: str, port: int) -> tuple[SimTransport, Any]:
        """Connect by a TCP handshake: refused if the port is closed, a time-out if no packet passes."""
        here = _current_host.get()
        there = here if host in (LOOPBACK, "localhost") else host
        await asyncio.sleep(self._handshake_delay(here, there))
        if not self._passes(here, there) or not self._passes(there, here):
            await asyncio.sleep(self.connect_timeout_s)
            raise TimeoutError(errno.ETIMEDOUT, f"Connect call failed ({there!r}, {port})")
        server = self._listeners.get((there, port))
        if server is None:
            raise ConnectionRefusedError(errno.ECONNREFUSED, f"Connect call failed ({there!r}, {port})")
        client_address = (here, self._free_port())
        client = SimTransport(self, here, client_address, (there, port), contextvars.copy_context())
        accepted = SimTransport(self, there, (there, port), client_address, server.context.copy())
        client.peer, accepted.peer = accepted, client
        self._transports[id(client)] = client
        self._transports[id(accepted)] = accepted
        accepted._soon(self._accept, server, accepted)
        try:
            await asyncio.sleep(self._handshake_delay(there, here))
        except asyncio.CancelledError:
            client.abort()
            raise
        protocol = factory()
        client.open(protocol)
        return client, protocol

    def _accept(self, server: SimServer, accepted: SimTransport) -> None:
        if not accepted.vanished:
            accepted.open(server.factory())

    def _passes(self, source: str, target: str) -> bool:
        return self.is_up(source) and self.is_up(target) and not self.is_cut(source, target)

    def _handshake_delay(self, source: str, target: str) -> float:
        low, high = self._links.get((source, target), self.default_link).delay_ms
        return self._rng.uniform(low, high) / 1000

    def closed(self, transport: SimTransport) -> None:
        self._transports.pop(id(transport), None)

    def forget(self) -> None:
        """Break reference cycles after the simulation."""
        self._transports.clear()
        self._listeners.clear()
