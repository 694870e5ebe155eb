"""Typed face of receiving and sending on many sockets. See socket_io_cy.py."""

from array import array
from collections.abc import Sequence
from typing import Protocol, TypeVar

class Receiving(Protocol):
    """What is read and written of a connection (remoting/connection.py)."""

    is_closed: bool
    own_buffer: bytearray | None
    partial: bytes
    active: bool
    arrivals: int

    @property
    def remote_host(self) -> bytes: ...
    def direct_socket(self) -> int: ...
    def write(self, buffers: Sequence[bytes | memoryview]) -> None: ...

C = TypeVar("C", bound=Receiving)

def receive(
    events: list[tuple[int, int]],
    by_fd: dict[int, C],
    buffer: bytearray,
    table: array[int],
    connections: list[C],
    hosts: list[bytes],
    odd: list[C],
) -> int:
    """Receive once on each readable socket into `buffer`, one arrival behind the other, each behind what its connection
    kept; returns how many there are. The table, `connections` and `hosts` (the peers, packed) tell of them.

    Args:
        events: what epoll said: descriptor and flags.
        odd: gets those that ended, failed, or expect a frame that needs a buffer of its own.
    """

def untaken(table: array[int], count: int) -> list[int]:
    """Return the arrivals that were not read to their end."""

def send(answers: bytearray, table: array[int], connections: Sequence[Receiving]) -> None:
    """Send each connection its A_ROWS answers, which follow each other in `answers`; what a socket does not take at
    once goes by its transport."""

def send_pieces(fd: int, head: bytes, view: memoryview, places: array[int], count: int) -> int:
    """Write `head`, and then the `count` pieces of `view` whose first bytes and sizes are in `places`, in one call; how
    many bytes the socket took, 0 if none or it is broken."""

def is_compiled() -> bool: ...
