"""Written by `python -m tests.unit.compiled_stubs`; see columns_cy.py."""

from collections.abc import Callable, Sequence
from typing import Any

from maxq.protocol.message.received_cy import PulledRecords

class ColumnMemory:
    def __init__(self, most_bytes: int = 48 << 20) -> None: ...

class ColumnBuilder:
    def __init__(
        self,
        columns: Sequence[str],
        rows: int,
        size: int,
        unwrap: Callable[[str], str] | None = None,
        memory: ColumnMemory | None = None,
        enough: int = (1 << 31) - 1,
    ) -> None: ...
    def add_rows(self, view: Any, rows: Any, count: int, broker_name: bytes) -> int: ...
    def add_records(self, records: PulledRecords) -> int: ...
    def batch(self) -> Any: ...

def is_compiled() -> bool: ...
