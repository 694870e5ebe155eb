"""Written by `python -m tests.unit.compiled_stubs`; see check_cy.py."""

from array import array
from collections.abc import Iterable

class Window:
    begin: int
    size: int
    def __init__(self) -> None: ...
    def show(self, view: memoryview, begin: int) -> None: ...
    def clear(self) -> None: ...

class ConfirmedUnits:
    first_index: int
    last: int
    last_physical: int
    seen: bytearray
    def __init__(self, first_index: int, window: Window) -> None: ...
    def add(self, queue_offset: int, physical_offset: int) -> None: ...
    def has(self, queue_offset: int) -> bool: ...

class CheckedTopic:
    def __init__(self, queues: dict[int, ConfirmedUnits], key_hash: int, deleted_at: int, waits: bool) -> None: ...

class IndexCursor:
    number: int
    count: int
    slots_used: int
    first_offset: int
    last_offset: int
    is_entered: bool
    newest_of_slot: array[int]
    def __init__(
        self, view: memoryview, base: int, count: int, newest_of_slot: array[int], begin_timestamp: int
    ) -> None: ...
    def enter(self, key_hash: int, physical_offset: int, is_last: bool) -> int: ...
    def advance(self) -> None: ...
    def close(self) -> None: ...

class Confirmation:
    topics: dict[bytes, CheckedTopic]
    cursor: IndexCursor | None
    units: int
    entries: int
    confirmed_end: int
    with_keys: int
    last_with_keys: int
    def __init__(self, delay_levels_ms: tuple[int, ...]) -> None: ...
    def forget(self, names: Iterable[bytes]) -> None: ...
    def run(self, view: memoryview, rows: array[int], start: int, count: int, unindexed: bool) -> int: ...

def is_compiled() -> bool: ...
