"""The rules of SQL92 expressions, and the predicates that they become (the create… methods of
filter/expression/*.java).

The parser (sql92.py) calls `ExpressionBuilder` bottom up. An operand is one of

    Literal     a literal; a minus sign before a number makes a `Negative` of it, which escapes the checks of literals
    Name        a property
    Truth       a boolean expression; TRUE, FALSE and NULL are literals and truths at once (`Literal.outcome`)
    Lost        a minus sign before something that is no number: null

and the builder turns pairs of them into the narrowest node that tests them.
"""

from collections.abc import Sequence
from typing import Final

from maxq.errors import FilterEvaluationError, FilterExpressionError
from maxq.filter import comparisons_cy as comparisons
from maxq.filter import nodes_cy as nodes
from maxq.filter.java_values import (
    INTEGER_BITS,
    LONG_BITS,
    Long,
    Value,
    compare_values,
    negate,
    parse_integer,
)
from maxq.filter.nodes_cy import EQUAL, FALSE, NULL, TRUE, Node
from maxq.filter.predicates_cy import Predicate
from maxq.lazy_dataclass import dataclass

MAX_DEPTH: Final = 200
#: Times an expression says CONTAINS. One search of a property of 32 KiB can take 0.35 ms: 25 ms a message.
MAX_SEARCHES: Final = 64
_SMALLEST_DOUBLE: Final = 5e-324
_FLIPPED: Final = {relation: relation & EQUAL | relation >> 2 & 1 | relation << 2 & 4 for relation in range(8)}


@dataclass(frozen=True, slots=True)
class Literal:
    """A literal. `outcome` is the value of TRUE, FALSE and NULL as boolean expressions; None for others."""

    value: Value
    outcome: int | None = None


@dataclass(frozen=True, slots=True)
class Negative:
    """A number behind minus signs."""

    value: int | float


@dataclass(frozen=True, slots=True)
class Name:
    """A property, by its position in the list of names."""

    slot: int


@dataclass(frozen=True, slots=True)
class BooleanExpression:
    """A boolean expression, `depth` nodes high."""

    node: Node
    depth: int


@dataclass(frozen=True, slots=True)
class Lost:
    """A minus sign before an operand that is not a number: the result is null, after `of` was evaluated."""

    of: BooleanExpression | None


Operand = Literal | Negative | Name | BooleanExpression | Lost


class ExpressionBuilder:
    """Builds one expression. Its methods implement the grammar's rules; they raise FilterExpressionError."""

    def __init__(self) -> None:
        self._slots: dict[str, int] = {}
        self._uses = 0  # uses of names in the expression
        self._searches = 0

    def finish(self, operand: Operand) -> Predicate:
        """Complete the predicate: the whole expression has been read."""
        root = self.as_truth(operand).node
        return Predicate([name.encode("utf-8", "surrogatepass") for name in self._slots], root, self._uses)

    # --- literals and names ---

    def text(self, image: str) -> Literal:
        """Make a text from its literal as written: with its quotes, quotes in it doubled."""
        return Literal(image[1:-1].replace("''", "'"))

    def decimal(self, image: str) -> Literal:
        digits = image.rstrip("lL")
        try:
            value = parse_integer(digits, LONG_BITS)
        except FilterEvaluationError:
            raise FilterExpressionError(f"{digits:.80} does not fit into 64 bits") from None
        fits = value < 1 << (INTEGER_BITS - 1)
        return Literal(value if fits else Long(value))

    def floating(self, image: str) -> Literal:
        value = float(image)
        if value == float("inf"):
            raise FilterExpressionError(f"{image:.80} is above the largest floating-point number")
        if value < _SMALLEST_DOUBLE:
            raise FilterExpressionError(f"{image:.80} is below the smallest floating-point number above zero; write 0")
        return Literal(value)

    def true(self) -> Literal:
        return Literal(True, TRUE)

    def false(self) -> Literal:
        return Literal(False, FALSE)

    def null(self) -> Literal:
        return Literal(None, NULL)

    def name(self, image: str) -> Name:
        self._uses += 1
        return Name(self._slots.setdefault(image, len(self._slots)))

    # --- logic ---

    def as_truth(self, operand: Operand) -> BooleanExpression:
        """Return an operand as a boolean expression."""
        if isinstance(operand, BooleanExpression):
            return operand
        if isinstance(operand, Name):
            return BooleanExpression(nodes.Cast(operand.slot), 1)
        if isinstance(operand, Literal) and operand.outcome is not None:
            return BooleanExpression(nodes.Fixed(operand.outcome), 1)
        raise FilterExpressionError(f"{_show(operand)} stands where something true or false is wanted")

    def either(self, left: Operand, right: Operand) -> BooleanExpression:
        one, other = self.as_truth(left), self.as_truth(right)
        if isinstance(one.node, nodes.AnyOf):  # a OR b OR c becomes one row, whatever its length
            one.node.nodes.append(other.node)  # no other node refers to it, because the parser reads from left to right
            return BooleanExpression(one.node, max(one.depth, _deeper(other)))
        return BooleanExpression(nodes.AnyOf([one.node, other.node]), max(_deeper(one), _deeper(other)))

    def both(self, left: Operand, right: Operand) -> BooleanExpression:
        one, other = self.as_truth(left), self.as_truth(right)
        if isinstance(one.node, nodes.Every):
            one.node.nodes.append(other.node)
            return BooleanExpression(one.node, max(one.depth, _deeper(other)))
        return BooleanExpression(nodes.Every([one.node, other.node]), max(_deeper(one), _deeper(other)))

    def negation(self, operand: Operand) -> BooleanExpression:
        truth = self.as_truth(operand)
        return BooleanExpression(nodes.Negation(truth.node), _deeper(truth))

    def negative(self, operand: Operand) -> Negative | Lost:
        if isinstance(operand, Negative) or (isinstance(operand, Literal) and _is_number(operand.value)):
            value = operand.value
            assert isinstance(value, int | float), "a number was asked for"
            return Negative(negate(value))
        if isinstance(operand, Lost):
            return operand
        return Lost(operand if isinstance(operand, BooleanExpression) else None)

    # --- comparison ---

    def equal(self, left: Operand, right: Operand) -> BooleanExpression:
        for operand in (left, right):
            if isinstance(operand, Literal) and operand.value is None:
                raise FilterExpressionError("NULL can not be compared; write IS NULL or IS NOT NULL")
        both_literal = isinstance(left, Literal) and isinstance(right, Literal)
        if both_literal and _is_truth(left) and not _is_truth(right):
            raise FilterExpressionError(f"{_show(left)} can not be compared with {_show(right)}")
        return self._equal(left, right)

    def not_equal(self, left: Operand, right: Operand) -> BooleanExpression:
        return self.negation(self.equal(left, right))

    def is_null(self, operand: Operand) -> BooleanExpression:
        if isinstance(operand, Name):
            return BooleanExpression(nodes.Absent(operand.slot), 1)
        return self._equal(operand, Literal(None, NULL))

    def is_not_null(self, operand: Operand) -> BooleanExpression:
        return self.negation(self.is_null(operand))

    def ordered(self, left: Operand, relation: int, right: Operand) -> BooleanExpression:
        """Build an order of two operands. `relation`: LESS or GREATER, with EQUAL or without."""
        for operand in (left, right):
            if isinstance(operand, BooleanExpression) or (
                isinstance(operand, Literal) and not _is_number(operand.value)
            ):
                raise FilterExpressionError(f"{_show(operand)} can not be compared by <, <=, > or >=")
        return self._compare(left, right, relation, if_left_absent=NULL, if_right_absent=NULL)

    def between(self, value: Operand, low: Operand, high: Operand) -> BooleanExpression:
        if isinstance(low, Literal) and isinstance(high, Literal):
            if low.value is None or high.value is None:
                raise FilterExpressionError("the limits of BETWEEN can not be NULL")
            try:
                is_empty = compare_values(high.value, low.value) < 0
            except FilterEvaluationError as error:
                raise FilterExpressionError(f"the limits of BETWEEN can not be compared: {error}") from None
            if is_empty:
                raise FilterExpressionError(
                    f"BETWEEN {_show(low)} AND {_show(high)}: the first limit is the greater one"
                )
        return self.both(self.ordered(value, nodes.GREATER | EQUAL, low), self.ordered(value, nodes.LESS | EQUAL, high))

    def not_between(self, value: Operand, low: Operand, high: Operand) -> BooleanExpression:
        return self.either(self.ordered(value, nodes.LESS, low), self.ordered(value, nodes.GREATER, high))

    def one_of(self, operand: Operand, texts: Sequence[Literal], *, negated: bool) -> BooleanExpression:
        if not isinstance(operand, Name):
            raise FilterExpressionError(f"IN needs a property on its left, not {_show(operand)}")
        node: Node = nodes.OneOf(operand.slot, [_encoded(text) for text in texts])
        return BooleanExpression(nodes.Negation(node), 2) if negated else BooleanExpression(node, 1)

    def text_test(self, operand: Operand, kind: int, text: Literal, *, negated: bool) -> BooleanExpression:
        """Build CONTAINS, STARTSWITH or ENDSWITH. It is false, negated or not, for an operand that is not a text, and
        for an empty text."""
        assert isinstance(text.value, str), "the grammar takes a text only"
        if not text.value:
            return BooleanExpression(nodes.Fixed(FALSE), 1)
        if kind == nodes.CONTAINS:
            self._searches += 1
            if self._searches > MAX_SEARCHES:
                raise FilterExpressionError(
                    f"it has more than {MAX_SEARCHES} CONTAINS; have producers put the text that you look for into a "
                    "property of its own"
                )
        if isinstance(operand, Name):
            return BooleanExpression(nodes.TextTest(operand.slot, kind, _encoded(text), negated), 1)
        depth = 1 + _depth(operand)
        return BooleanExpression(
            comparisons.OperandTextTest(_as_node(operand), kind, text.value, negated), _checked(depth)
        )

    def _equal(self, left: Operand, right: Operand) -> BooleanExpression:
        return self._compare(left, right, EQUAL, if_left_absent=NULL, if_right_absent=FALSE)

    def _compare(
        self, left: Operand, right: Operand, relation: int, *, if_left_absent: int, if_right_absent: int
    ) -> BooleanExpression:
        node = None
        if isinstance(left, Name):
            node = _against_constant(left.slot, relation, right, if_left_absent)
        elif isinstance(right, Name):
            node = _against_constant(right.slot, _FLIPPED[relation], left, if_right_absent)
        if node is None:
            node = comparisons.Comparison(_as_node(left), _as_node(right), relation)
        return BooleanExpression(node, _checked(1 + max(_depth(left), _depth(right))))


def _against_constant(slot: int, relation: int, constant: Operand, if_absent: int) -> Node | None:
    """Return the specialised node for a property and a constant; None if there is none for it."""
    if not isinstance(constant, Literal | Negative) or isinstance(constant.value, bool):
        return None
    value = constant.value
    if isinstance(value, str):
        return nodes.EqualsText(slot, value.encode("utf-8", "surrogatepass"), if_absent)
    if isinstance(value, int):
        bits = LONG_BITS if isinstance(value, Long) else INTEGER_BITS
        return nodes.IntegerOrder(slot, relation, value, bits, if_absent)
    return None if value is None else nodes.DoubleOrder(slot, relation, value, if_absent)


def _as_node(operand: Operand) -> comparisons.Operand:
    if isinstance(operand, Name):
        return comparisons.Property(operand.slot)
    if isinstance(operand, BooleanExpression):
        return comparisons.Truth(operand.node, False)
    if isinstance(operand, Lost):
        return comparisons.Constant(None) if operand.of is None else comparisons.Truth(operand.of.node, True)
    return comparisons.Constant(operand.value)


def _encoded(literal: Literal) -> bytes:
    assert isinstance(literal.value, str), "the grammar takes a text only"
    return literal.value.encode("utf-8", "surrogatepass")


def _depth(operand: Operand) -> int:
    if isinstance(operand, Lost):
        return 0 if operand.of is None else operand.of.depth
    return operand.depth if isinstance(operand, BooleanExpression) else 0


def _deeper(truth: BooleanExpression) -> int:
    return _checked(truth.depth + 1)


def _checked(depth: int) -> int:
    if depth > MAX_DEPTH:
        raise FilterExpressionError(f"it is nested more than {MAX_DEPTH} deep; take parentheses and NOTs away")
    return depth


def _is_truth(operand: Operand) -> bool:
    return isinstance(operand, Literal) and operand.outcome is not None


def _is_number(value: Value) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _show(operand: Operand) -> str:
    if isinstance(operand, Literal):
        if operand.outcome is not None:
            return {TRUE: "TRUE", FALSE: "FALSE", NULL: "NULL"}[operand.outcome]
        return f"{operand.value!r:.80}"
    if isinstance(operand, Negative):
        return str(operand.value)
    return (
        "a property"
        if isinstance(operand, Name)
        else "a comparison"
        if isinstance(operand, BooleanExpression)
        else "-…"
    )
