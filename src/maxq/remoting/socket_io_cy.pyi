"""Written by `python -m tests.unit.compiled_stubs`; see socket_io_cy.py."""

import asyncio
from array import array
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

from maxq.protocol.frame.client_connection import ClientConnection
from maxq.protocol.frame.remoting_command import RemotingCommand

class Receiving(Protocol):
    """The fields of a connection (remoting/connection.py) that this module reads and writes."""

    is_closed: bool
    own_buffer: bytearray | None
    partial: bytes
    active: bool
    arrivals: int

    @property
    def remote_host(self) -> bytes: ...
    def direct_socket(self) -> int: ...
    def write(self, buffers: Sequence[bytes | memoryview]) -> None: ...

class Lent(Receiving, Protocol):
    """The part of a Connection that a thread uses which receives on it."""

    _socket: int

class Lender(Protocol):
    """The part of BatchedReads that `lend`, `receive_lent` and `give_back` use."""

    descriptor: int
    is_at_work: bool

C = TypeVar("C", bound=Receiving)

class Sending(Protocol):
    """Connection, as far as `send_at_once` uses it to send a request."""

    active: bool
    _direct: int
    _is_writing: bool
    _out: list[bytes | memoryview]
    _out_size: int
    _requests: ClientConnection[Any]
    _transport: asyncio.Transport

def receive(
    events: list[tuple[int, int]],
    by_fd: dict[int, C],
    buffer: bytearray,
    table: array[int],
    connections: list[C],
    hosts: list[bytes],
    odd: list[C],
) -> int: ...
def untaken(table: array[int], count: int) -> list[int]: ...
def send(answers: bytearray, table: array[int], connections: Sequence[Receiving]) -> None: ...
def send_pieces(fd: int, head: bytes, view: memoryview, places: array[int], count: int) -> int: ...
def send_at_once(
    connection: Sending, opaque: int, waiter: Callable[[RemotingCommand | None], None], head: bytes, body: bytes
) -> int: ...
def lend(connection: Lent, reads: Lender) -> int: ...
def receive_lent(connection: Lent, reads: Lender, buffer: bytearray, wait_ms: int) -> int: ...
def give_back(connection: Lent, reads: Lender, rest: bytes) -> None: ...
def is_compiled() -> bool: ...
