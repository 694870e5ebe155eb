"""Written by `python -m tests.unit.compiled_stubs`; see cached_pull_reader_cy.py."""

from array import array
from collections.abc import Container

from maxq.store.context.store_context import StoreContext
from maxq.store.files.page_cache_probe import PageCacheProbe
from maxq.store.log.commit_log import CommitLog
from maxq.store.queue.consume_queue_store import ConsumeQueueStore
from maxq.store.queue.unit_scan_cy import UnitScan

class CachedPullReader(UnitScan):
    places: array[int]
    count: int
    view: memoryview
    min_offset: int
    max_offset: int
    waits: bool
    is_behind: bool
    def __init__(
        self,
        context: StoreContext,
        commit_log: CommitLog,
        queues: ConsumeQueueStore,
        compacted: Container[str],
        page_cache: PageCacheProbe,
        memory_bytes: int,
    ) -> None: ...
    def read(
        self,
        topic: str,
        topic_bytes: bytes,
        queue_id: int,
        offset: int,
        max_nums: int,
        max_bytes: int,
        codes: frozenset[int] | None,
    ) -> bool: ...
    def forget(self) -> None: ...
    def buffers(self) -> list[memoryview]: ...

def is_compiled() -> bool: ...
