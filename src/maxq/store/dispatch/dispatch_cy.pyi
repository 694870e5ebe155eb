"""Typed face of the compiled dispatch. See dispatch_cy.py."""

from typing import Any

from maxq.store.log.tails_cy import IndexTail, QueueTail, TopicWriteState

class Dispatcher:
    """Log range → ConsumeQueue units and index entries."""

    dispatched_offset: int  # everything below has been dispatched
    last_store_timestamp: int  # of the last record dispatched
    records: int  # dispatched since start
    delay_table: list[int]  # milliseconds of delay level 1, 2, …
    index_tags: bool  # also write topic#T#TAGS index entries, as 5.5 does
    entries_from: int  # files that begin at or behind this physical offset hold DLedger entries with a record in each
    arrived: list[QueueTail]  # tails with `watched` that got units since the list was last cleared
    def __init__(self, topics: dict[bytes, TopicWriteState], index: IndexTail | None, owner: Any) -> None:
        """`owner` is called for what C does not do (all take plain ints and bytes):
        owner.open_queue(topic: bytes, queue_id: int) -> QueueTail   # missing topic or queue
        owner.roll_queue(tail: QueueTail, queue_offset: int, physical_offset: int, size: int) -> bool
            # the unit does not go to tail's file, or its offset is not the queue's next: attach the right file, fill a
            # gap; False if the record is not to get a unit
        owner.roll_index(physical_offset: int, store_timestamp: int) -> None   # attach the next IndexFile
        owner.dispatch_uncommon(position: int, size: int, physical_offset: int, view: memoryview) -> None
            # after the normal handling of a record with INNER_MULTI_DISPATCH, with the inner-batch bit (whose unit is
            # NOT written here), of a rollback record, or of a hooked topic. `view` is the whole file.
        """
    def forget_topic(self) -> None: ...
    def run(self, view: memoryview, start: int, end: int, file_from_offset: int) -> int:
        """Dispatch the whole records in view[start:end]; trusted bytes (CRC not checked, sizes are). Returns the
        position after the last record dispatched (a BLANK ends at the end of the file); stops early at anything that
        is not a record. Units and entries that exist already are skipped (duplicate tests); a unit that would leave a
        gap goes through owner.roll_queue, which fills the gap and leaves write_offset at 20 × queue_offset."""
