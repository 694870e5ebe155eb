"""Nodes of SQL92 predicates that need Java's values (java_values.py): operands of any kind, and comparisons of them.

Source:
    filter/expression/ComparisonExpression.java, UnaryExpression.java, PropertyExpression.java.
"""

from typing import TYPE_CHECKING

from maxq.errors import FilterEvaluationError
from maxq.filter import java_values

try:
    import cython
except ModuleNotFoundError:
    from maxq.runtime import cython  # type: ignore[no-redef]

if cython.compiled:
    from cython.cimports.maxq.filter.nodes_cy import Node, PropertyScan
else:
    from maxq.filter.nodes_cy import Node, PropertyScan

if TYPE_CHECKING:
    from maxq.filter.java_values import Value


@cython.cclass
class Operand:
    """One side of a `Comparison`."""

    @cython.cfunc
    def get(self, scan: PropertyScan) -> object:
        """Return a value of java_values. Raises FilterEvaluationError where Java throws."""
        raise NotImplementedError


@cython.cclass
class Constant(Operand):
    """An operand that is a literal."""

    _value = cython.declare(object)

    def __init__(
        self,
        value,  # type: Value
    ):
        self._value = value

    @cython.cfunc
    def get(self, scan: PropertyScan) -> object:
        return self._value


@cython.cclass
class Property(Operand):
    """An operand that is the text of a property."""

    _slot = cython.declare(cython.int)

    def __init__(
        self,
        slot,  # type: int
    ):
        self._slot = slot

    @cython.cfunc
    def get(self, scan: PropertyScan) -> object:
        return scan.text(self._slot)


@cython.cclass
class Truth(Operand):
    """A boolean expression as a value. With `is_lost` it stands under a minus sign, which turns it into null."""

    _node = cython.declare(Node)
    _is_lost = cython.declare(cython.bint)

    def __init__(
        self,
        node,  # type: Node
        is_lost,  # type: bool
    ):
        self._node = node
        self._is_lost = is_lost

    @cython.cfunc
    def get(self, scan: PropertyScan) -> object:
        outcome: cython.int = self._node.test(scan)
        if outcome == 3:
            raise FilterEvaluationError("an operand has no value")
        if self._is_lost or outcome == 2:
            return None
        return outcome == 1


@cython.cclass
class Comparison(Node):
    """Compares two values of any kinds. `relation` EQUAL is Java's `=`, which defines what null equals; LESS and
    GREATER, with or without EQUAL, are its orders."""

    _left = cython.declare(Operand)
    _right = cython.declare(Operand)
    _relation = cython.declare(cython.int)

    def __init__(
        self,
        left,  # type: Operand
        right,  # type: Operand
        relation,  # type: int
    ):
        self._left = left
        self._right = right
        self._relation = relation

    @cython.cfunc
    @cython.exceptval(-1, check=True)
    def test(self, scan: PropertyScan) -> cython.int:
        try:
            left = self._left.get(scan)
            if self._relation != 2:
                return 2 if left is None else self._ordered(left, self._right.get(scan))
            right = self._right.get(scan)
            if left is None:
                return 1 if right is None else 2
            if right is None:
                return 0
            return 1 if java_values.compare_values(left, right) == 0 else 0
        except FilterEvaluationError:
            return 3

    @cython.cfunc
    @cython.exceptval(-1, check=True)
    def _ordered(self, left: object, right: object) -> cython.int:
        if right is None:
            return 2
        if isinstance(left, str) and isinstance(right, str):
            left = java_values.parse_double(left)
            right = java_values.parse_double(right)
        order = java_values.compare_values(left, right)
        bit: cython.int = 1 if order < 0 else (4 if order > 0 else 2)
        return 1 if bit & self._relation else 0


@cython.cclass
class OperandTextTest(Node):
    """CONTAINS, STARTSWITH or ENDSWITH on an operand that is not a property."""

    _operand = cython.declare(Operand)
    _kind = cython.declare(cython.int)
    _text = cython.declare(str)
    _negated = cython.declare(cython.bint)

    def __init__(
        self,
        operand,  # type: Operand
        kind,  # type: int
        text,  # type: str
        negated,  # type: bool
    ):
        self._operand = operand
        self._kind = kind
        self._text = text
        self._negated = negated

    @cython.cfunc
    @cython.exceptval(-1, check=True)
    def test(self, scan: PropertyScan) -> cython.int:
        try:
            value = self._operand.get(scan)
        except FilterEvaluationError:
            return 3
        if not isinstance(value, str):
            return 0
        if self._kind == 0:
            found = self._text in value
        else:
            found = value.startswith(self._text) if self._kind == 1 else value.endswith(self._text)
        return 1 if found != self._negated else 0


def is_compiled() -> bool:
    """Returns whether this module runs compiled by Cython."""
    return cython.compiled
