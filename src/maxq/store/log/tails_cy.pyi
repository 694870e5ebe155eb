"""Typed face of the writing ends. See tails_cy.py."""

from typing import Any

def jhash(text: str) -> int:
    """Java's String.hashCode."""

class QueueTail:
    """The writing end of one ConsumeQueue, and the counter that assigns its queue offsets.

    Owned by `ConsumeQueue` (store/queue/consume_queue.py), which attaches a file and rolls when `append` says that the
    file is full.
    """

    topic: str
    queue_id: int
    owner: Any  # the ConsumeQueue; None when the store has forgotten it, so that both are gone at once
    next_queue_offset: int  # the offset the next appended message of this queue gets
    max_physical_offset: int  # end of the last record that has a unit here; -1 none
    write_offset: int  # logical byte position of the next unit = 20 × its index
    watched: bool  # somebody waits for arrivals: Dispatcher.run lists this tail in `arrived` once and clears the flag
    def __init__(self, topic: str, queue_id: int, owner: Any) -> None: ...
    def attach(self, view: memoryview | None, file_from_offset: int, position: int) -> None:
        """Write from byte `position` of the file whose logical start is `file_from_offset` bytes; None detaches."""
    def append(self, physical_offset: int, size: int, tags_code: int) -> bool:
        """Write one unit at `write_offset`. False: no file or the file is full; attach the next one and call again."""

class TopicWriteState:
    """What append and dispatch know of a topic."""

    topic: str
    topic_bytes: bytes
    has_dispatch_hook: bool  # every record is also given to owner.dispatch_uncommon
    has_batch_queues: bool  # a BatchCQ topic: no unit is written here, every record is given to owner.dispatch_uncommon
    is_static: bool  # a static topic: what is stored for one of its queues later may belong to another broker by then
    is_fast_path_open: bool  # may send rows go here? False until the broker has configured the topic for fast-path sends
    max_queue_id: int  # queue ids 0 … max_queue_id are legal in a send
    write_queue_nums: int
    multi_tags: bool  # sysFlag |= 2
    is_delay_topic: bool  # SCHEDULE_TOPIC_XXXX: tags code is the delivery time
    put_nums: int  # counters since start, sampled by the statistics
    put_bytes: int
    key_hash: int  # String.hashCode of "topic#", unsigned: how the text of each index key begins
    queues: dict[int, QueueTail]  # a map: a flipped bit in a queue id must not cost memory
    def __init__(self, topic: str) -> None: ...
    def set_queue(self, queue_id: int, tail: QueueTail | None) -> None:
        """None removes."""

class TopicMemory:
    """Finds a TopicWriteState by the bytes of its name; remembers the last one. `find` is for compiled callers."""

    def forget(self) -> None:
        """The TopicWriteState was replaced or removed."""

class IndexTail:
    """The writing end of the newest IndexFile. Owned by store/index/index_service.py."""

    index_count: int
    begin_timestamp: int
    end_timestamp: int
    begin_physical_offset: int
    end_physical_offset: int
    def attach(self, view: memoryview | None, slot_nums: int, max_index_nums: int) -> None:
        """Continue on this file: header fields are read from it (indexCount 0 reads as 1)."""
    def is_full(self) -> bool: ...
    def put_key(self, key_hash: int, physical_offset: int, store_timestamp: int) -> bool:
        """IndexFile.putKey. False when full or detached."""
    def put_collected(self, entries: memoryview | bytes | bytearray, first: int, end: int) -> int:
        """Put entries [first, end) that an IndexCollector took; how many went in before the file was full."""

class IndexCollector(IndexTail):
    """Stands in for an IndexFile that is made later: a Dispatcher's index entries, in their order, as
    n × 20 bytes, big-endian: i32 key hash, i64 physical offset, i64 store timestamp.
    """

    count: int  # entries in the view
    def collect_into(self, view: memoryview) -> None:
        """Go on at the beginning of `view`, of which `put_key` returns False when it is full."""
