"""Written by `python -m tests.unit.compiled_stubs`; see predicates_cy.py."""

from collections.abc import Iterable, Sequence

from maxq.filter.nodes_cy import Node

class BitMapTest:
    def __init__(
        self, ext: memoryview, file_from_offset: int, live_from: int, bit_num: int, positions: Sequence[int]
    ) -> None: ...

class Predicate:
    def __init__(self, names: Iterable[bytes], root: Node, uses: int = 1) -> None: ...
    @property
    def uses(self) -> int: ...
    @property
    def names(self) -> tuple[bytes, ...]: ...
    def test(self, properties: bytes | memoryview) -> int: ...
    def matches(self, properties: bytes | memoryview) -> bool: ...
    def matches_record(self, view: memoryview, position: int, size: int) -> bool: ...
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
    ) -> int: ...

def is_compiled() -> bool: ...
