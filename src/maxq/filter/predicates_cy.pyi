"""Typed face of the compiled predicates. See predicates_cy.py."""

from collections.abc import Iterable, Sequence

from maxq.filter.java_values import Value

FALSE: int
TRUE: int
NULL: int
ERROR: int  # Java throws: no match, whatever stands around it
LESS: int
EQUAL: int
GREATER: int
CONTAINS: int
STARTS_WITH: int
ENDS_WITH: int

class Node:
    """A boolean expression. Slots are positions in the predicate's names."""

class Fixed(Node):
    def __init__(self, outcome: int) -> None: ...

class Every(Node):
    def __init__(self, nodes: Iterable[Node]) -> None: ...
    @property
    def nodes(self) -> list[Node]: ...

class AnyOf(Node):
    def __init__(self, nodes: Iterable[Node]) -> None: ...
    @property
    def nodes(self) -> list[Node]: ...

class Negation(Node):
    def __init__(self, node: Node) -> None: ...

class Absent(Node):
    def __init__(self, slot: int) -> None: ...

class Cast(Node):
    def __init__(self, slot: int) -> None: ...

class EqualsText(Node):
    def __init__(self, slot: int, text: bytes, if_absent: int) -> None: ...

class OneOf(Node):
    def __init__(self, slot: int, texts: Iterable[bytes]) -> None: ...

class TextTest(Node):
    def __init__(self, slot: int, kind: int, text: bytes, negated: bool) -> None: ...

class IntegerOrder(Node):
    def __init__(self, slot: int, relation: int, constant: int, bits: int, if_absent: int) -> None: ...

class DoubleOrder(Node):
    def __init__(self, slot: int, relation: int, constant: float, if_absent: int) -> None: ...

class Operand:
    """One side of a Comparison."""

class Constant(Operand):
    def __init__(self, value: Value) -> None: ...

class Property(Operand):
    def __init__(self, slot: int) -> None: ...

class Truth(Operand):
    def __init__(self, node: Node, is_lost: bool) -> None: ...

class Comparison(Node):
    def __init__(self, left: Operand, right: Operand, relation: int) -> None: ...

class OperandTextTest(Node):
    def __init__(self, operand: Operand, kind: int, text: str, negated: bool) -> None: ...

class BitMapTest:
    """What the bit maps in one ConsumeQueueExt file say about a consumer, of messages from `live_from` (physical
    offset) on."""

    def __init__(
        self, ext: memoryview, file_from_offset: int, live_from: int, bit_num: int, positions: Sequence[int]
    ) -> None:
        """Raises ValueError for a position that is not below `bit_num`."""

class Predicate:
    """A whole expression. Not reentrant: it keeps the places of one record's properties while it tests them."""

    def __init__(self, names: Iterable[bytes], root: Node) -> None:
        """names: the properties the nodes' slots mean, UTF-8."""
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
