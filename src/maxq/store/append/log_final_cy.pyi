"""Typed face of the append of final messages. See log_final_cy.py."""

from maxq.store.log.log_cy import LogTail
from maxq.store.log.tails_cy import TopicWriteState

def append_final(
    tail: LogTail, record: memoryview, group: bytes, topics: dict[bytes, TopicWriteState], store_timestamp: int
) -> int:
    """Write the final message of the half message `record`, whose producer group must be `group`. Returns its size;
    0 if nothing was written: the file is full, or this half message must take the slow path."""

def is_compiled() -> bool: ...
