"""Written by `python -m tests.unit.compiled_stubs`; see tails_cy.py."""

from typing import Any

def jhash(text: str) -> int: ...

class QueueTail:
    topic: str
    queue_id: int
    owner: Any
    next_queue_offset: int
    max_physical_offset: int
    write_offset: int
    watched: bool
    def __init__(self, topic: str, queue_id: int, owner: Any) -> None: ...
    def attach(self, view: memoryview | None, file_from_offset: int, position: int) -> None: ...
    def append(self, physical_offset: int, size: int, tags_code: int) -> bool: ...

class TopicWriteState:
    topic: str
    topic_bytes: bytes
    is_fast_path_open: bool
    is_static: bool
    has_dispatch_hook: bool
    has_batch_queues: bool
    max_queue_id: int
    write_queue_nums: int
    multi_tags: bool
    is_delay_topic: bool
    put_nums: int
    put_bytes: int
    queues: dict[int, QueueTail]
    key_hash: int
    def __init__(self, topic: str) -> None: ...
    def set_queue(self, queue_id: int, tail: QueueTail | None) -> None: ...

class TopicMemory:
    def __init__(self) -> None: ...
    def forget(self) -> None: ...

class IndexTail:
    index_count: int
    begin_timestamp: int
    end_timestamp: int
    begin_physical_offset: int
    end_physical_offset: int
    def __init__(self) -> None: ...
    def attach(self, view: memoryview | None, slot_nums: int, max_index_nums: int) -> None: ...
    def is_full(self) -> bool: ...
    def put_key(self, key_hash: int, physical_offset: int, store_timestamp: int) -> bool: ...
    def put_collected(self, entries: memoryview | bytes | bytearray, first: int, end: int) -> int: ...

class IndexCollector(IndexTail):
    count: int
    def __init__(self) -> None: ...
    def collect_into(self, view: memoryview) -> None: ...
    def put_key(self, key_hash: int, physical_offset: int, store_timestamp: int) -> bool: ...
