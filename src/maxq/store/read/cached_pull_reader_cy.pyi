"""Typed face of the compiled reader of what is in memory. See cached_pull_reader_cy.py."""

from array import array
from collections.abc import Container

from maxq.store.context.store_context import StoreContext
from maxq.store.files.page_cache_probe import PageCacheProbe
from maxq.store.log.commit_log import CommitLog
from maxq.store.queue.consume_queue_store import ConsumeQueueStore
from maxq.store.queue.unit_scan_cy import UnitScan

class CachedPullReader(UnitScan):
    """One per store. What was read stands in its attributes until the next `read`."""

    places: array[int]  # of each piece: its first byte in `view`, its size; whole records, neighbours joined
    count: int  # pieces
    view: memoryview  # of the file of the log that they are in
    min_offset: int  # of the queue, as its reader is told
    max_offset: int
    is_behind: bool  # what was read lies further back than memory reaches
    waits: bool  # nothing was read, for the offset is where the queue's next message goes

    def __init__(
        self,
        context: StoreContext,
        commit_log: CommitLog,
        queues: ConsumeQueueStore,
        compacted: Container[str],
        page_cache: PageCacheProbe,
        memory_bytes: int,
    ) -> None:
        """
        Args:
            compacted: names of topics that are read elsewhere.
            page_cache: knows what is in memory of what lies further back.
            memory_bytes: see MessageReader.
        """

    def read(
        self,
        topic: str,
        topic_bytes: bytes,
        queue_id: int,
        offset: int,
        max_nums: int,
        max_bytes: int,
        codes: frozenset[int] | None,
    ) -> bool:
        """Take what a pull from queue offset `offset` takes; `forget` it when it is sent.

        Args:
            topic_bytes: the name in UTF-8.
            max_nums, max_bytes: at most so much, but at least one message.
            codes: the hashes of the tags that are wanted; None: every message.

        Returns:
            False: it is not that simple, or there is nothing. `get_message` knows what to say.
        """

    def forget(self) -> None:
        """Let go of the file."""

    def buffers(self) -> list[memoryview]:
        """The pieces as slices of the file."""

def is_compiled() -> bool: ...
