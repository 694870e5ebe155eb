"""Typed face of the append of rows. See log_rows_cy.py; rows: protocol/frame/send_rows.py."""

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
) -> int:
    """Append rows [first, first+count) (see protocol/send_rows). Returns how many were appended; fewer than count
    means that row first+n needs something else: the file is full, or the row must take the slow path."""

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
) -> int:
    """The same for the rows of several arrivals (see protocol/send_rows), one of each born host. Of an arrival of
    which not all could be appended, A_TAKEN and A_ROWS say so, and R_COUNT of the others is 0. Returns how many
    rows were appended altogether."""

def is_compiled() -> bool: ...
