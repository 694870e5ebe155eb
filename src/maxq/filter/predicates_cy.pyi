"""Typed face of the compiled predicates. See predicates_cy.py."""

from collections.abc import Iterable, Sequence

from maxq.filter.nodes_cy import Node

class BitMapTest:
    """What the bit maps in one ConsumeQueueExt file say about a consumer, of messages from `live_from` (physical
    offset) on."""

    def __init__(
        self, ext: memoryview, file_from_offset: int, live_from: int, bit_num: int, positions: Sequence[int]
    ) -> None:
        """Raises ValueError for a position that is not below `bit_num`."""

class Predicate:
    """A whole expression. Not reentrant: it keeps the places of one record's properties while it tests them."""

    def __init__(self, names: Iterable[bytes], root: Node, uses: int = 1) -> None:
        """names: the properties the nodes' slots mean, UTF-8. uses: how often the expression names one."""
    @property
    def uses(self) -> int: ...
    @property
    def names(self) -> tuple[bytes, ...]: ...
    def test(self, properties: bytes | memoryview) -> int:
        """FALSE, TRUE, NULL or ERROR for a text of properties (name 0x01 value 0x02 …)."""
    def matches(self, properties: bytes | memoryview) -> bool:
        """Is it true of a text of properties?"""
    def matches_record(self, view: memoryview, position: int, size: int) -> bool:
        """Is it true of the record in view[position : position + size]? True of bytes that are no record: whoever reads
        them finds out."""
    def select(
        self,
        units: memoryview,
        start: int,
        end: int,
        log: memoryview,
        file_from_offset: int,
        log_end: int,
        min_physical_offset: int,
        most_hits: int,
        places: list[int],
        bit_maps: BitMapTest | None = None,
    ) -> int:
        """Test the records of ConsumeQueue units units[start:end], as far as they lie in one log file.

        The position of each unit whose record matches, or is no record, is appended to `places`. Units that are none to
        be tested (blank, below `min_physical_offset`, the place of a damaged message) are passed over. Stops when
        `places` has `most_hits` entries, and at a unit whose record is not in [file_from_offset, log_end).

        Returns:
            The position reached.
        """

def is_compiled() -> bool: ...
