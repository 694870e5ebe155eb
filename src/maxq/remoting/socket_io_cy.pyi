"""Written by `python -m tests.unit.compiled_stubs`; see socket_io_cy.py."""

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
) -> int: ...
def untaken(table: array[int], count: int) -> list[int]: ...
def send(answers: bytearray, table: array[int], connections: Sequence[Receiving]) -> None: ...
def send_pieces(fd: int, head: bytes, view: memoryview, places: array[int], count: int) -> int: ...
def is_compiled() -> bool: ...
