"""Typed face of the compiled part of `maxq store check`. See check_cy.py."""

from array import array
from collections.abc import Iterable

class Window:
    """The bytes of a queue that are mapped, for `Confirmation`.

    Attributes:
        begin: byte of the queue at which they begin.
        size: bytes; 0: none are mapped.
    """

    begin: int
    size: int

    def __init__(self) -> None: ...
    def show(self, view: memoryview, begin: int) -> None:
        """`view` is mapped. It must be cleared before the mapping is closed."""

    def clear(self) -> None:
        """Forget the mapped view; call it before the mapping is closed."""

class ConfirmedUnits:
    """Which units of one ConsumeQueue the log confirms.

    Attributes:
        first_index: queue offset of the first unit there is a file for.
        seen: a byte for each unit from `first_index` on, 1 if it is confirmed; units behind its end are not.
        last: greatest queue offset that is confirmed, -1 if none is.
        last_physical: greatest physical offset of a record whose unit is confirmed, -1 if none is.
    """

    first_index: int
    seen: bytearray
    last: int
    last_physical: int

    def __init__(self, first_index: int, window: Window) -> None: ...
    def add(self, queue_offset: int, physical_offset: int) -> None:
        """The unit at `queue_offset` is that of the record at `physical_offset`."""

    def has(self, queue_offset: int) -> bool:
        """Is this unit confirmed?"""

class CheckedTopic:
    """What records of one topic are compared with.

    Args:
        queues: by queue id.
        key_hash: Java's hash of the topic's name and `#`.
        deleted_at: physical offset of the record that deleted the topic last; 0: none is known.
        waits: are its units' tags codes times of delivery (SCHEDULE_TOPIC_XXXX)?
    """

    def __init__(self, queues: dict[int, ConfirmedUnits], key_hash: int, deleted_at: int, waits: bool) -> None: ...

class IndexCursor:
    """A place among the entries of one IndexFile.

    Args:
        view: the file.
        base: byte of entry 0.
        count: number of the last entry.
        newest_of_slot: one zero for each hash slot.
        begin_timestamp: of the header, ms.

    Attributes:
        number: of the current entry; above `count`: there is none.
        is_entered: the current entry is in its chain.
        newest_of_slot: number of the newest entry of each slot, up to the current one.
        slots_used: how many have one.
        first_offset, last_offset: physical offsets that the header must say, up to the current entry; -1: none.
    """

    number: int
    count: int
    slots_used: int
    first_offset: int
    last_offset: int
    is_entered: bool
    newest_of_slot: array[int]

    def __init__(
        self, view: memoryview, base: int, count: int, newest_of_slot: array[int], begin_timestamp: int
    ) -> None: ...
    def enter(self, key_hash: int, physical_offset: int, is_last: bool) -> int:
        """Put the current entry into the chain of its slot. `is_last`: the header must name its physical offset, if no
        other follows. Returns the number that the entry must name as the one before it."""

    def advance(self) -> None:
        """Go on to the next entry."""

    def close(self) -> None:
        """Let go of the file."""

class Confirmation:
    """Confirms records whose units and index entries are as they should be.

    Args:
        delay_levels_ms: how long messages of level 1, 2, … wait.

    Attributes:
        topics: what it may confirm records of, by the name's UTF-8 bytes. A topic that is not here is left to others.
        cursor: where the index goes on; None: it has ended, or there is none.
        units, entries: queue units and index entries confirmed.
        confirmed_end: physical offset behind the last record whose unit was confirmed.
        with_keys, last_with_keys: records confirmed that have keys, and the physical offset of the last; -1: none.
    """

    topics: dict[bytes, CheckedTopic]
    cursor: IndexCursor | None
    units: int
    entries: int
    confirmed_end: int
    with_keys: int
    last_with_keys: int

    def __init__(self, delay_levels_ms: tuple[int, ...]) -> None: ...
    def forget(self, names: Iterable[bytes]) -> None:
        """Remove the topics of these names from `topics`, because they were deleted."""

    def run(self, view: memoryview, rows: array[int], start: int, count: int, unindexed: bool) -> int:
        """Confirm rows of record_cy.scan from number `start` on, below `count`.

        Args:
            view: what was scanned.
            unindexed: without a cursor, records with keys pass as well.

        Returns:
            How many were confirmed; the next one, if there is one, is left to others.
        """

def is_compiled() -> bool:
    """Returns whether this module runs compiled by Cython."""
