"""Written by `python -m tests.unit.compiled_stubs`; see log_rows_cy.py."""

from typing import Any

from maxq.store.log.log_cy import LogTail
from maxq.store.log.tails_cy import TopicWriteState

def append_rows(
    tail: LogTail,
    source: bytearray | memoryview,
    scratch: bytearray,
    rows: Any,
    first: int,
    count: int,
    topics: dict[bytes, TopicWriteState],
    born_host: bytes,
    store_host: bytes,
    store_timestamp: int,
    suffix: bytes,
    max_message_size: int,
) -> int: ...
def append_arrivals(
    tail: LogTail,
    source: bytearray | memoryview,
    scratch: bytearray,
    rows: Any,
    table: Any,
    born_hosts: list[bytes],
    topics: dict[bytes, TopicWriteState],
    store_host: bytes,
    store_timestamp: int,
    suffix: bytes,
    max_message_size: int,
) -> int: ...
def is_compiled() -> bool: ...
