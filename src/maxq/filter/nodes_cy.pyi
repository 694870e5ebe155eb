"""Written by `python -m tests.unit.compiled_stubs`; see nodes_cy.py."""

from collections.abc import Iterable
from typing import Any

FALSE: int
TRUE: int
NULL: int
ERROR: int
LESS: int
EQUAL: int
GREATER: int
CONTAINS: int
STARTS_WITH: int
ENDS_WITH: int

class PropertyScan:
    names: Any
    def __init__(self, names: Iterable[bytes]) -> None: ...

class Node: ...

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

def is_compiled() -> bool: ...
