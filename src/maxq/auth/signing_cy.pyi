"""Written by `python -m tests.unit.compiled_stubs`; see signing_cy.py."""

from array import array
from collections.abc import Mapping, Sequence

#: Access key, zero byte, topic → the key that such sends are signed with; None: they need no signature.
Admitted = Mapping[bytes, SigningKey | None]

class SigningKey:
    def __init__(self, secret: bytes) -> None: ...
    def sign(self, content: bytes, body: bytes = b"") -> bytes: ...
    def matches(self, content: bytes, body: bytes, signature: bytes) -> bool: ...

def verify_rows(
    source: bytearray | memoryview,
    content: bytearray,
    signed: array[int],
    rows: array[int],
    first: int,
    count: int,
    admitted: Admitted,
) -> int: ...
def verify_arrivals(
    source: bytearray,
    content: bytearray,
    signed: array[int],
    rows: array[int],
    table: array[int],
    admitted: Sequence[Admitted],
) -> int: ...
def is_compiled() -> bool: ...
