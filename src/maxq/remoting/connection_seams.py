"""What a connection needs of others: the server or client it belongs to, and who reads and answers beside it."""

import ssl
from array import array
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Protocol

from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.remoting.unfinished_frames import UnfinishedFrames
from maxq.runtime.holds import Holds

if TYPE_CHECKING:
    from maxq.remoting.connection import Connection

#: (connection, buffer, start, end) → new start: takes the leading frames it understands.
BatchPath = Callable[["Connection", bytearray, int, int], int]

#: Answers one request. None: answered later through `connection.send(request.reply(...))`, or never.
Processor = Callable[["Connection", RemotingCommand], RemotingCommand | Awaitable[RemotingCommand | None] | None]


class Reader(Protocol):
    """Who reads connections instead of their transports (arrivals.py)."""

    def offer(self, connection: "Connection") -> None: ...

    def withdraw(self, connection: "Connection") -> None: ...

    def adopt(self, connection: "Connection", fd: int) -> bool: ...

    def drop(self, fd: int) -> None: ...


class Pieces(Protocol):
    """A body that lies in pieces in a mapped file (store/hot_reader_cy)."""

    @property
    def view(self) -> memoryview:
        """The file."""
        ...

    @property
    def places(self) -> "array[int]":
        """Of each piece its first byte and its size."""
        ...

    @property
    def count(self) -> int: ...

    @property
    def total_bytes(self) -> int: ...

    def buffers(self) -> list[memoryview]: ...


class Endpoint(Protocol):
    """What a connection needs of the server or client it belongs to."""

    turn_seconds: float  # processors work on requests of one arrival so long, then other connections get their turn
    receive_buffer: bytearray
    receive_view: memoryview
    frame_limit: int  # bytes of a whole frame
    answer_limit: int  # bytes of the frame of an answer: more than that a client does not take
    header_limit: int  # bytes of its header
    unsent_limit: int  # bytes a transport may hold
    write_marks: tuple[int, int]  # bytes: stop reading above the first, go on below the second
    request_limit: int  # requests of ours that may wait for answers on one connection
    batch_path: BatchPath | None
    holds: Holds  # what took long
    unfinished: UnfinishedFrames  # what its connections keep of frames that have not come as a whole

    @property
    def arrivals(self) -> Reader:
        """Reads connections on which only plain sends and known pulls come."""
        ...

    def next_opaque(self) -> int: ...

    def server_tls(self) -> ssl.SSLContext | None:
        """What to answer TLS with; None: TLS is disabled."""
        ...

    def plain_allowed(self) -> bool:
        """May a connection go on without TLS?"""
        ...

    def trusts_balancer(self, address: str) -> bool:
        """May a peer at this IP address say in a PROXY line who is behind it?"""
        ...

    def connected(self, connection: "Connection") -> None: ...

    def closed(self, connection: "Connection", error: Exception | None) -> None: ...

    def request_received(self, connection: "Connection", command: RemotingCommand) -> None: ...
