"""Written by `python -m tests.unit.compiled_stubs`; see dispatch_cy.py."""

from typing import Any

from maxq.store.log.tails_cy import IndexTail, QueueTail, TopicWriteState

class Dispatcher:
    dispatched_offset: int
    last_store_timestamp: int
    records: int
    arrived: list[QueueTail]
    delay_table: list[int]
    index_tags: bool
    entries_from: int
    def __init__(self, topics: dict[bytes, TopicWriteState], index: IndexTail | None, owner: Any) -> None: ...
    def forget_topic(self) -> None: ...
    def run(self, view: memoryview, start: int, end: int, file_from_offset: int) -> int: ...
