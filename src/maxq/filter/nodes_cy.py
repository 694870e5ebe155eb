"""Nodes of SQL92 predicates: properties of a record, and what is asked of them where they lie in the log.

A compiled expression is a tree of `Node`s. Testing a record is two steps: `PropertyScan.scan` notes where the wanted
properties are (nothing is decoded, the body is not touched), then the root node is tested. A test has four outcomes:

    FALSE, TRUE, NULL   of three-valued logic
    ERROR               Java throws (a text is no number): the record does not match, whatever stands around it

The nodes here are of the shapes that people write (a property against a constant) and work on the bytes; those in
comparisons_cy.py do all others with Java's values. What an expression may say is decided by expressions.py, which
builds the nodes; predicates_cy.py asks the root. The attributes of `PropertyScan` are declared in nodes_cy.pxd.

Source:
    filter/expression/*.java, common/message/MessageDecoder.java (string2messageProperties).
"""

from array import array
from typing import TYPE_CHECKING

from maxq.errors import FilterEvaluationError
from maxq.filter import java_values

try:
    import cython
except ModuleNotFoundError:
    from maxq.runtime import cython  # type: ignore[no-redef]

if cython.compiled:
    from cython.cimports.libc.string import memcmp
    from cython.cimports.maxq.runtime.buffers import find_byte
else:
    from maxq.runtime.buffers import find_byte

if TYPE_CHECKING:
    from collections.abc import Iterable


FALSE, TRUE, NULL, ERROR = range(4)
#: Results of a comparison, as bits, so that several can be accepted.
LESS, EQUAL, GREATER = 1, 2, 4
#: Tests of a text.
CONTAINS, STARTS_WITH, ENDS_WITH = range(3)

_FAST_DIGITS = cython.declare(cython.int, 15)  # decimal digits that a double holds exactly
_POWERS = [10.0**n for n in range(16)]


@cython.cclass
class PropertyScan:
    """The positions of the wanted properties of one record: of each name, first byte and size of its value.

    A name that comes twice counts where it comes last; one without a value is absent.
    """

    def __init__(
        self,
        names,  # type: Iterable[bytes]
    ):
        self.names = tuple(names)
        self._count = len(self.names)
        self._all = b"".join(self.names)
        spans = array("q", [0, 0, 0, -1] * max(1, self._count))
        position = 0
        for slot, name in enumerate(self.names):
            spans[4 * slot] = position
            spans[4 * slot + 1] = len(name)
            position += len(name)
        self._spans = spans  # 4 numbers a name: position and size of the name in _all, and of the value

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def scan(self, buf: cython.p_uchar, start: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.int:
        """Note the properties of buf[start:end]: name 0x01 value 0x02, the last 0x02 may be missing."""
        spans: cython.longlong[::1] = self._spans
        slot: cython.int
        p: cython.Py_ssize_t = start
        middle: cython.Py_ssize_t
        q: cython.Py_ssize_t
        self._buf = buf
        for slot in range(self._count):
            spans[4 * slot + 3] = -1
        while p < end:
            q = find_byte(buf, p, end, 2)
            middle = find_byte(buf, p, q, 1)
            if middle > p and q - middle > 1:
                slot = self._slot(buf, p, middle - p)
                if slot >= 0:
                    spans[4 * slot + 2] = middle + 1
                    spans[4 * slot + 3] = q - middle - 1
            p = q + 1
        return 0

    @cython.cfunc
    @cython.exceptval(-2, check=False)
    def _slot(self, buf: cython.p_uchar, p: cython.Py_ssize_t, size: cython.Py_ssize_t) -> cython.int:
        """Return the index of this name among the wanted ones; -1 if it is not wanted."""
        spans: cython.longlong[::1] = self._spans
        slot: cython.int
        at: cython.longlong
        names: cython.p_uchar = self._all if not cython.compiled else cython.cast(cython.p_uchar, self._all)
        for slot in range(self._count):
            if spans[4 * slot + 1] != size:
                continue
            at = spans[4 * slot]
            if cython.compiled:
                if names[at] == buf[p] and memcmp(names + at, buf + p, size) == 0:
                    return slot
            elif names[at : at + size] == bytes(buf[p : p + size]):
                return slot
        return -1

    @cython.cfunc
    @cython.exceptval(-2, check=False)
    def size(self, slot: cython.int) -> cython.longlong:
        """Returns the size of the value in bytes; -1 if the property is absent."""
        return self._spans[4 * slot + 3]

    @cython.cfunc
    @cython.exceptval(-2, check=False)
    def start(self, slot: cython.int) -> cython.longlong:
        return self._spans[4 * slot + 2]

    @cython.cfunc
    def value(self, slot: cython.int) -> bytes:
        """Returns the bytes of a property that is present."""
        at: cython.longlong = self._spans[4 * slot + 2]
        n: cython.longlong = self._spans[4 * slot + 3]
        if cython.compiled:
            return cython.cast(cython.p_char, self._buf + at)[:n]
        return bytes(self._buf[at : at + n])

    @cython.cfunc
    def text(self, slot: cython.int) -> object:
        """Returns the value as Java sees it; None if the property is absent."""
        if self._spans[4 * slot + 3] < 0:
            return None
        return self.value(slot).decode("utf-8", "replace")


@cython.cclass
class Node:
    """A boolean expression. Slots are positions in the predicate's names."""

    @cython.cfunc
    @cython.exceptval(-1, check=True)
    def test(self, scan: PropertyScan) -> cython.int:
        raise NotImplementedError


@cython.cclass
class Fixed(Node):
    """A condition that is the same for every message: TRUE, FALSE or NULL."""

    _outcome = cython.declare(cython.int)

    def __init__(
        self,
        outcome,  # type: int
    ):
        self._outcome = outcome

    @cython.cfunc
    @cython.exceptval(-1, check=True)
    def test(self, scan: PropertyScan) -> cython.int:
        return self._outcome


@cython.cclass
class Every(Node):
    """AND: false as soon as one operand is false; the operands behind it are not evaluated."""

    _nodes = cython.declare(list)

    def __init__(
        self,
        nodes,  # type: Iterable[Node]
    ):
        self._nodes = list(nodes)

    @property
    def nodes(self):
        # type: (...) -> list[Node]
        return self._nodes

    @cython.cfunc
    @cython.exceptval(-1, check=True)
    def test(self, scan: PropertyScan) -> cython.int:
        outcome: cython.int = 1
        one: cython.int
        node: Node
        for node in self._nodes:
            one = node.test(scan)
            if one == 0 or one == 3:
                return one
            if one == 2:
                outcome = 2
        return outcome


@cython.cclass
class AnyOf(Node):
    """OR: true as soon as one operand is true; the operands behind it are not evaluated."""

    _nodes = cython.declare(list)

    def __init__(
        self,
        nodes,  # type: Iterable[Node]
    ):
        self._nodes = list(nodes)

    @property
    def nodes(self):
        # type: (...) -> list[Node]
        return self._nodes

    @cython.cfunc
    @cython.exceptval(-1, check=True)
    def test(self, scan: PropertyScan) -> cython.int:
        outcome: cython.int = 0
        one: cython.int
        node: Node
        for node in self._nodes:
            one = node.test(scan)
            if one == 1 or one == 3:
                return one
            if one == 2:
                outcome = 2
        return outcome


@cython.cclass
class Negation(Node):
    """NOT of a condition; NOT of NULL is NULL."""

    _node = cython.declare(Node)

    def __init__(
        self,
        node,  # type: Node
    ):
        self._node = node

    @cython.cfunc
    @cython.exceptval(-1, check=True)
    def test(self, scan: PropertyScan) -> cython.int:
        outcome: cython.int = self._node.test(scan)
        return 1 - outcome if outcome < 2 else outcome


@cython.cclass
class Absent(Node):
    """`property IS NULL`: whether a message lacks the property."""

    _slot = cython.declare(cython.int)

    def __init__(
        self,
        slot,  # type: int
    ):
        self._slot = slot

    @cython.cfunc
    @cython.exceptval(-1, check=True)
    def test(self, scan: PropertyScan) -> cython.int:
        return 1 if scan.size(self._slot) < 0 else 0


@cython.cclass
class Cast(Node):
    """A property used as a boolean: a text is never true."""

    _slot = cython.declare(cython.int)

    def __init__(
        self,
        slot,  # type: int
    ):
        self._slot = slot

    @cython.cfunc
    @cython.exceptval(-1, check=True)
    def test(self, scan: PropertyScan) -> cython.int:
        return 2 if scan.size(self._slot) < 0 else 0


@cython.cclass
class EqualsText(Node):
    """A property = 'text'. `if_absent`: the outcome without the property, which depends on the side of the property."""

    _slot = cython.declare(cython.int)
    _text = cython.declare(bytes)
    _if_absent = cython.declare(cython.int)

    def __init__(
        self,
        slot,  # type: int
        text,  # type: bytes
        if_absent,  # type: int
    ):
        self._slot = slot
        self._text = text
        self._if_absent = if_absent

    @cython.cfunc
    @cython.exceptval(-1, check=True)
    def test(self, scan: PropertyScan) -> cython.int:
        size: cython.longlong = scan.size(self._slot)
        if size < 0:
            return self._if_absent
        if size != len(self._text):
            return 0
        if cython.compiled:
            differs: cython.int = memcmp(
                scan._buf + scan.start(self._slot), cython.cast(cython.p_char, self._text), size
            )
            return 1 if differs == 0 else 0
        return 1 if scan.value(self._slot) == self._text else 0


@cython.cclass
class OneOf(Node):
    """`property IN ('a', 'b')`: whether the property is one of some texts."""

    _slot = cython.declare(cython.int)
    _texts = cython.declare(frozenset)

    def __init__(
        self,
        slot,  # type: int
        texts,  # type: Iterable[bytes]
    ):
        self._slot = slot
        self._texts = frozenset(texts)

    @cython.cfunc
    @cython.exceptval(-1, check=True)
    def test(self, scan: PropertyScan) -> cython.int:
        if scan.size(self._slot) < 0:
            return 2
        return 1 if scan.value(self._slot) in self._texts else 0


@cython.cclass
class TextTest(Node):
    """A property CONTAINS, STARTSWITH or ENDSWITH a text that is not empty; `negated`: the property does not. False if
    absent."""

    _slot = cython.declare(cython.int)
    _kind = cython.declare(cython.int)
    _text = cython.declare(bytes)
    _negated = cython.declare(cython.bint)

    def __init__(
        self,
        slot,  # type: int
        kind,  # type: int
        text,  # type: bytes
        negated,  # type: bool
    ):
        self._slot = slot
        self._kind = kind
        self._text = text
        self._negated = negated

    @cython.cfunc
    @cython.exceptval(-1, check=True)
    def test(self, scan: PropertyScan) -> cython.int:
        size: cython.longlong = scan.size(self._slot)
        found: cython.bint
        if size < 0:
            return 0
        if self._kind == 0:
            found = self._text in scan.value(self._slot)
        elif size < len(self._text):
            found = False
        else:
            value: bytes = scan.value(self._slot)
            found = value.startswith(self._text) if self._kind == 1 else value.endswith(self._text)
        return 1 if found != self._negated else 0


@cython.cclass
class IntegerOrder(Node):
    """A property against an integer of `bits` bits. `relation`: which orders are true."""

    _slot = cython.declare(cython.int)
    _relation = cython.declare(cython.int)
    _constant = cython.declare(cython.longlong)
    _bits = cython.declare(cython.int)
    _if_absent = cython.declare(cython.int)

    def __init__(
        self,
        slot,  # type: int
        relation,  # type: int
        constant,  # type: int
        bits,  # type: int
        if_absent,  # type: int
    ):
        self._slot = slot
        self._relation = relation
        self._constant = constant
        self._bits = bits
        self._if_absent = if_absent

    @cython.cfunc
    @cython.exceptval(-1, check=True)
    def test(self, scan: PropertyScan) -> cython.int:
        n: cython.longlong = scan.size(self._slot)
        if n < 0:
            return self._if_absent
        p: cython.longlong = scan.start(self._slot)
        buf: cython.p_uchar = scan._buf
        end: cython.longlong = p + n
        negative: cython.bint = buf[p] == 0x2D
        value: cython.longlong = 0
        if n > 1 and (negative or buf[p] == 0x2B):
            p += 1
        if end - p > 18:
            return self._slow(scan)
        while p < end:
            if buf[p] < 0x30 or buf[p] > 0x39:
                return self._slow(scan)
            value = value * 10 + (buf[p] - 0x30)
            p += 1
        if negative:
            value = -value
        if self._bits == 32 and (value > 2147483647 or value < -2147483648):
            return 3
        return self._outcome(value)

    @cython.cfunc
    @cython.exceptval(-1, check=True)
    def _slow(self, scan: PropertyScan) -> cython.int:
        try:
            value = java_values.parse_integer(scan.text(self._slot), self._bits)
        except FilterEvaluationError:
            return 3
        return self._outcome(value)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _outcome(self, value: cython.longlong) -> cython.int:
        order: cython.int = 1 if value < self._constant else (4 if value > self._constant else 2)
        return 1 if order & self._relation else 0


@cython.cclass
class DoubleOrder(Node):
    """A property against a floating-point number."""

    _slot = cython.declare(cython.int)
    _relation = cython.declare(cython.int)
    _constant = cython.declare(cython.double)
    _if_absent = cython.declare(cython.int)

    def __init__(
        self,
        slot,  # type: int
        relation,  # type: int
        constant,  # type: float
        if_absent,  # type: int
    ):
        self._slot = slot
        self._relation = relation
        self._constant = constant
        self._if_absent = if_absent

    @cython.cfunc
    @cython.exceptval(-1, check=True)
    def test(self, scan: PropertyScan) -> cython.int:
        n: cython.longlong = scan.size(self._slot)
        if n < 0:
            return self._if_absent
        p: cython.longlong = scan.start(self._slot)
        buf: cython.p_uchar = scan._buf
        end: cython.longlong = p + n
        negative: cython.bint = buf[p] == 0x2D
        digits: cython.int = 0
        fraction: cython.int = -1
        mantissa: cython.longlong = 0
        if negative or buf[p] == 0x2B:
            p += 1
        while p < end and digits <= _FAST_DIGITS:
            if buf[p] == 0x2E and fraction < 0:
                fraction = 0
            elif 0x30 <= buf[p] <= 0x39:
                mantissa = mantissa * 10 + (buf[p] - 0x30)
                digits += 1
                if fraction >= 0:
                    fraction += 1
            else:
                return self._slow(scan)
            p += 1
        if digits == 0 or digits > _FAST_DIGITS or mantissa == 0:
            return self._slow(scan)
        value: cython.double = mantissa
        if fraction > 0:
            value = value / cython.cast(cython.double, _POWERS[fraction])  # both exact, so this is the nearest
        return self._outcome(-value if negative else value)

    @cython.cfunc
    @cython.exceptval(-1, check=True)
    def _slow(self, scan: PropertyScan) -> cython.int:
        try:
            value = java_values.parse_double(scan.text(self._slot))
        except FilterEvaluationError:
            return 3
        return self._outcome(value)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _outcome(self, value: cython.double) -> cython.int:
        # The constant is neither zero nor a NaN; a NaN is above it.
        order: cython.int = 1 if value < self._constant else (2 if value == self._constant else 4)
        return 1 if order & self._relation else 0


def is_compiled() -> bool:
    """Returns whether this module runs compiled by Cython."""
    return cython.compiled
