"""Typed face of the compiled signatures. See signing_cy.py."""

from array import array
from collections.abc import Mapping, Sequence

class SigningKey:
    """Signs and checks with one secret. Prints nothing of it."""

    def __init__(self, secret: bytes) -> None: ...
    def sign(self, content: bytes, body: bytes = b"") -> bytes:
        """HMAC-SHA1 of content and body, one after the other, as 28 bytes of base64."""

    def matches(self, content: bytes, body: bytes, signature: bytes) -> bool:
        """Is this the signature? Takes as long for one that is nearly right as for any other."""

#: Access key, zero byte, topic → the key that such sends are signed with; None: they need no signature.
Admitted = Mapping[bytes, SigningKey | None]

def verify_rows(
    source: bytearray | memoryview,
    content: bytearray,
    signed: array[int],
    rows: array[int],
    first: int,
    count: int,
    admitted: Admitted,
) -> int:
    """How many of the rows [first, first + count) of a scan, from the first on, may be appended: their access key and
    topic are admitted and they are signed as that says. `content` and `signed` are the SendScanner's."""

def verify_arrivals(
    source: bytearray,
    content: bytearray,
    signed: array[int],
    rows: array[int],
    table: array[int],
    admitted: Sequence[Admitted],
) -> int:
    """The same for each arrival of a turn (columns A_… of protocol/send_rows), with what its connection may. Rows
    behind the first that may not are taken out of their arrival; returns how many are left in all."""

def is_compiled() -> bool: ...
