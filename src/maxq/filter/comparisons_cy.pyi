"""Typed face of the compiled nodes that need Java's values. See comparisons_cy.py."""

from maxq.filter.java_values import Value
from maxq.filter.nodes_cy import Node

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

def is_compiled() -> bool: ...
