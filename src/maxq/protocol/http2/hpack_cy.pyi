"""Written by `python -m tests.unit.compiled_stubs`; see hpack_cy.py."""

from collections.abc import Iterable
from typing import Any

class Field:
    name: str
    value: str
    kind: int
    size: int
    def __init__(self, name: str, value: str, kind: int) -> None: ...

class HeaderBlock:
    fields: list[Field]
    size: int
    is_too_large: bool
    meaning: Any
    def __init__(self, fields: list[Field], size: int, is_too_large: bool) -> None: ...

class HpackDecoder:
    def __init__(self, table_size: int, list_limit: int) -> None: ...
    def decode(self, block: bytes) -> HeaderBlock: ...

def encode_fields(fields: Iterable[tuple[str, str]]) -> bytes: ...
def is_compiled() -> bool: ...
