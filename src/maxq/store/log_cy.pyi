"""Typed face of the compiled append and dispatch core. See log_cy.py."""

from collections.abc import Sequence
from typing import Any

#: Columns of a send row (int64 each); positions are byte positions in `source`. R_PROPERTIES is one in `scratch` if
#: F_SCRATCH is set. R_PHYSICAL_OFFSET (of the first record), R_QUEUE_OFFSET (of the first), R_SIZE (bytes of log) and
#: R_COUNT (records) are filled in by append_rows.
ROW_WIDTH: int
(
    R_FLAGS,
    R_OPAQUE,
    R_TOPIC,
    R_TOPIC_SIZE,
    R_QUEUE_ID,
    R_SYS_FLAG,
    R_BORN_TIMESTAMP,
    R_FLAG,
    R_PROPERTIES,
    R_PROPERTIES_SIZE,
    R_BODY,
    R_BODY_SIZE,
    R_RECONSUME_TIMES,
    R_PHYSICAL_OFFSET,
    R_QUEUE_OFFSET,
    R_SIZE,
    R_COUNT,
    R_UNIQUE,
    R_UNIQUE_SIZE,
    R_FRAME,
) = range(20)
F_SCRATCH: int  # properties are in the scratch buffer
F_ONEWAY: int
F_BINARY: int  # header serialization ROCKETMQ
F_BATCH: int  # the body is a batch
F_NO_WAIT: int  # WAIT=false
DAMAGED_TAGS_CODE: int  # tags code of a unit that keeps the place of a damaged message; `collect` passes over it

class QueueTail:
    """The writing end of one ConsumeQueue, and the counter that assigns its queue offsets.

    Owned by `store/consume_queue.py:ConsumeQueue`, which attaches a file and rolls when `append` says the file is full.
    """

    topic: str
    queue_id: int
    owner: Any  # the ConsumeQueue
    next_queue_offset: int  # the offset the next appended message of this queue gets
    max_physical_offset: int  # end of the last record that has a unit here; -1 none
    write_offset: int  # logical byte position of the next unit = 20 × its index
    watched: bool  # somebody waits for arrivals: Dispatcher.run lists this tail in `arrived` once and clears the flag
    def __init__(self, topic: str, queue_id: int, owner: Any) -> None: ...
    def attach(self, view: memoryview | None, file_from_offset: int, position: int) -> None:
        """Write from byte `position` of the file whose logical start is `file_from_offset` bytes; None detaches."""
    def append(self, physical_offset: int, size: int, tags_code: int) -> bool:
        """Write one unit at `write_offset`. False: no file or the file is full; attach the next one and call again."""

class TopicTail:
    """What append and dispatch know of a topic."""

    topic: str
    topic_bytes: bytes
    hooked: bool  # every record is also given to owner.dispatch_special
    batch: bool  # a BatchCQ topic: no unit is written here, every record is given to owner.dispatch_special
    plain: bool  # may send rows go here? False until the broker has configured the topic for plain sends
    max_queue_id: int  # queue ids 0 … max_queue_id are legal in a send
    write_queue_nums: int
    multi_tags: bool  # sysFlag |= 2
    delay_levels: bool  # SCHEDULE_TOPIC_XXXX: tags code is the delivery time
    put_nums: int  # counters since start, sampled by the statistics
    put_bytes: int
    queues: dict[int, QueueTail]  # a map: a flipped bit in a queue id must not cost memory
    def __init__(self, topic: str) -> None: ...
    def set_queue(self, queue_id: int, tail: QueueTail | None) -> None:
        """None removes."""

class IndexTail:
    """The writing end of the newest IndexFile. Owned by store/index_service.py."""

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

class LogTail:
    """The writing end of the CommitLog: the newest mapped file and the position in it."""

    wrote_position: int  # bytes written in the current file
    file_from_offset: int
    file_size: int
    full: bool  # the last append_rows stopped because its next row does not fit in this file
    def attach(self, view: memoryview | None, file_from_offset: int, file_size: int, position: int) -> None: ...
    @property
    def max_offset(self) -> int:
        """file_from_offset + wrote_position."""
    def append_record(
        self,
        topic: bytes,
        queue_id: int,
        flag: int,
        queue_offset: int,
        sys_flag: int,
        born_timestamp: int,
        born_host: bytes,
        store_timestamp: int,
        store_host: bytes,
        reconsume_times: int,
        prepared_transaction_offset: int,
        body: bytes | memoryview,
        properties: bytes,
        body_crc: int,
        append_prop_crc: bool,
    ) -> int:
        """Write one record (V2 if topic is over 127 bytes). Returns its size, or -1 when it does not fit in this file
        with 8 bytes to spare (nothing written: call `close_file`, attach the next file, call again).
        born_host and store_host are 8 or 20 bytes (address, 4-byte port); the IPv6 bits of sys_flag must agree.
        append_prop_crc: put the `__CRC32#` property at the end (store-format §3.4)."""
    def forget_topic(self) -> None:
        """Drop the remembered TopicTail: it was replaced or removed."""
    def close_file(self) -> None:
        """Write the BLANK record over the rest of the file; wrote_position becomes file_size."""
    def append_rows(
        self,
        source: bytearray | memoryview,
        scratch: bytearray,
        rows: Any,
        first: int,
        count: int,
        topics: dict[bytes, TopicTail],
        born_host: bytes,
        store_host: bytes,
        store_timestamp: int,
        suffix: bytes,
        max_message_size: int,
    ) -> int:
        """Append rows [first, first+count) (see protocol/frames_cy). Returns how many were appended; fewer than count
        means that row first+n needs something else: the file is full, or the row must take the general way."""

class Dispatcher:
    """Log range → ConsumeQueue units and index entries."""

    dispatched_offset: int  # everything below has been dispatched
    last_store_timestamp: int  # of the last record dispatched
    records: int  # dispatched since start
    delay_table: list[int]  # milliseconds of delay level 1, 2, …
    index_tags: bool  # also write topic#T#TAGS index entries, as 5.5 does
    arrived: list[QueueTail]  # tails with `watched` that got units since the list was last cleared
    def __init__(self, topics: dict[bytes, TopicTail], index: IndexTail | None, owner: Any) -> None:
        """`owner` is called for what C does not do (all take plain ints and bytes):
        owner.open_queue(topic: bytes, queue_id: int) -> QueueTail   # missing topic or queue
        owner.roll_queue(tail: QueueTail, queue_offset: int, physical_offset: int, size: int) -> bool
            # the unit does not go to tail's file, or its offset is not the queue's next: attach the right file, fill a
            # gap; False if the record is not to get a unit
        owner.roll_index(physical_offset: int, store_timestamp: int) -> None   # attach the next IndexFile
        owner.dispatch_special(position: int, size: int, physical_offset: int, view: memoryview) -> None
            # after the normal handling of a record with INNER_MULTI_DISPATCH, with the inner-batch bit (whose unit is
            # NOT written here), of a rollback record, or of a hooked topic. `view` is the whole file.
        """
    def forget_topic(self) -> None: ...
    def run(self, view: memoryview, start: int, end: int, file_from_offset: int) -> int:
        """Dispatch the whole records in view[start:end]; trusted bytes (CRC not checked, sizes are). Returns the
        position after the last record dispatched (a BLANK ends at the end of the file); stops early at anything that
        is not a record. Units and entries that exist already are skipped (duplicate tests); a unit that would leave a
        gap goes through owner.roll_queue, which fills the gap and leaves write_offset at 20 × queue_offset."""

class UnitScan:
    """Result of `collect`: what a pull takes."""

    ranges: list[tuple[int, int]]  # (physical offset, bytes), neighbours joined
    message_count: int
    total_bytes: int
    next_index: int  # queue offset after the last examined unit
    last_physical_offset: int  # of the last examined unit, 0 if none
    stopped_at_hole: bool

def collect(
    view: memoryview,
    start: int,
    end: int,
    first_index: int,
    codes: Sequence[int] | None,
    max_messages: int,
    max_bytes: int,
    max_physical_offset: int,
    memory_bytes: int,
    limits: tuple[int, int, int, int],
    min_physical_offset: int,
    max_units: int,
) -> UnitScan:
    """Walk ConsumeQueue units view[start:end] (20 bytes each, first has queue offset `first_index`) as
    DefaultMessageStore.getMessage does (store-format §19.1). codes None: every tag; else the int32 tag hashes.
    limits = (bytes in memory, count in memory, bytes on disk, count on disk); memory_bytes = RAM × accessRatio."""

def jhash(text: str) -> int:
    """Java's String.hashCode."""

def is_compiled() -> bool: ...
