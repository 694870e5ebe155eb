"""Written by `python -m tests.unit.compiled_stubs`; see log_final_cy.py."""

from maxq.store.log.log_cy import LogTail
from maxq.store.log.tails_cy import TopicWriteState

def append_final(
    tail: LogTail, record: memoryview, group: bytes, topics: dict[bytes, TopicWriteState], store_timestamp: int
) -> int: ...
def is_compiled() -> bool: ...
