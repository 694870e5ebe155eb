"""SQL92 predicates on the properties of records, where they lie in the log.

A compiled expression is a tree of `Node`s. Testing a record is two steps: `PropertyScan.scan` notes where the wanted
properties are (nothing is decoded, the body is not touched), then the root node is tested. A test has four outcomes:

    FALSE, TRUE, NULL   of three-valued logic
    ERROR               Java throws (a text is no number): the record does not match, whatever stands around it

Nodes of the shapes that people write (a property against a constant) work on the bytes; `Comparison` does all others
with Java's values (java_values.py). What an expression may say is decided by expressions.py, which builds the nodes.

Source:
    filter/expression/*.java, common/message/MessageDecoder.java (string2messageProperties).
"""

from array import array

from maxq.errors import FilterEvaluationError
from maxq.filter import java_values

try:
    import cython
except ModuleNotFoundError:
    from maxq.runtime import cython  # type: ignore[no-redef]

if cython.compiled:
    from cython.cimports.libc.string import memcmp

FALSE, TRUE, NULL, ERROR = range(4)
#: How values relate: bits of what an order may be.
LESS, EQUAL, GREATER = 1, 2, 4
#: Tests of a text.
CONTAINS, STARTS_WITH, ENDS_WITH = range(3)

_BLANK_UNIT_SIZE = cython.declare(cython.longlong, 0x7FFFFFFF)
_DAMAGED = cython.declare(cython.longlong, 0x4D415851_44414D47)
_EXT_ADDRESS_MAX = cython.declare(cython.longlong, -2147483649)
_FAST_DIGITS = cython.declare(cython.int, 15)  # decimal digits that a double holds exactly
_POWERS = [10.0**n for n in range(16)]


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _u32(buf: cython.p_uchar, p: cython.Py_ssize_t) -> cython.uint:
    if not cython.compiled:
        return int.from_bytes(buf[p : p + 4], "big")
    return (
        (cython.cast(cython.uint, buf[p]) << 24)
        | (cython.cast(cython.uint, buf[p + 1]) << 16)
        | (cython.cast(cython.uint, buf[p + 2]) << 8)
        | cython.cast(cython.uint, buf[p + 3])
    )


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _i32(buf: cython.p_uchar, p: cython.Py_ssize_t) -> cython.int:
    if not cython.compiled:
        return int.from_bytes(buf[p : p + 4], "big", signed=True)
    return cython.cast(cython.int, _u32(buf, p))


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _i64(buf: cython.p_uchar, p: cython.Py_ssize_t) -> cython.longlong:
    if not cython.compiled:
        return int.from_bytes(buf[p : p + 8], "big", signed=True)
    return cython.cast(
        cython.longlong,
        (cython.cast(cython.ulonglong, _u32(buf, p)) << 32) | cython.cast(cython.ulonglong, _u32(buf, p + 4)),
    )


@cython.cclass
class PropertyScan:
    """Where the wanted properties of one record lie: of each name, first byte and size of its value.

    A name that comes twice counts where it comes last; one without a value is absent.
    """

    names = cython.declare(tuple, visibility="readonly")
    _count = cython.declare(cython.int)
    _spans = cython.declare(cython.longlong[::1])  # 4 a name: position and size of the name in _all, of the value
    _all = cython.declare(bytes)
    _buf = cython.declare(cython.p_uchar)

    def __init__(self, names):
        self.names = tuple(names)
        self._count = len(self.names)
        self._all = b"".join(self.names)
        spans = array("q", [0, 0, 0, -1] * max(1, self._count))
        position = 0
        for slot, name in enumerate(self.names):
            spans[4 * slot] = position
            spans[4 * slot + 1] = len(name)
            position += len(name)
        self._spans = spans

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
            middle = p
            while middle < end and buf[middle] != 1 and buf[middle] != 2:
                middle += 1
            q = middle
            while q < end and buf[q] != 2:
                q += 1
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
        """Which name this is; -1 for none that is wanted."""
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
    @cython.inline
    @cython.exceptval(-2, check=False)
    def size(self, slot: cython.int) -> cython.longlong:
        """Bytes of the value; -1: absent."""
        return self._spans[4 * slot + 3]

    @cython.cfunc
    @cython.inline
    @cython.exceptval(-2, check=False)
    def start(self, slot: cython.int) -> cython.longlong:
        return self._spans[4 * slot + 2]

    @cython.cfunc
    def value(self, slot: cython.int) -> bytes:
        """The bytes of a value that is there."""
        at: cython.longlong = self._spans[4 * slot + 2]
        n: cython.longlong = self._spans[4 * slot + 3]
        if cython.compiled:
            return cython.cast(cython.p_char, self._buf + at)[:n]
        return bytes(self._buf[at : at + n])

    @cython.cfunc
    def text(self, slot: cython.int) -> object:
        """A value as Java sees it; None: absent."""
        if self._spans[4 * slot + 3] < 0:
            return None
        return self.value(slot).decode("utf-8", "replace")


@cython.cclass
class Node:
    """A boolean expression."""

    @cython.cfunc
    @cython.exceptval(-1, check=True)
    def test(self, scan: PropertyScan) -> cython.int:
        raise NotImplementedError


@cython.cclass
class Fixed(Node):
    """TRUE, FALSE, NULL."""

    _outcome = cython.declare(cython.int)

    def __init__(self, outcome):
        self._outcome = outcome

    @cython.cfunc
    @cython.exceptval(-1, check=True)
    def test(self, scan: PropertyScan) -> cython.int:
        return self._outcome


@cython.cclass
class Every(Node):
    """AND: false as soon as one is, and nothing behind it is looked at."""

    _nodes = cython.declare(list)

    def __init__(self, nodes):
        self._nodes = list(nodes)

    @property
    def nodes(self):
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
    """OR: true as soon as one is, and nothing behind it is looked at."""

    _nodes = cython.declare(list)

    def __init__(self, nodes):
        self._nodes = list(nodes)

    @property
    def nodes(self):
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
    """NOT; of NULL it is NULL."""

    _node = cython.declare(Node)

    def __init__(self, node):
        self._node = node

    @cython.cfunc
    @cython.exceptval(-1, check=True)
    def test(self, scan: PropertyScan) -> cython.int:
        outcome: cython.int = self._node.test(scan)
        return 1 - outcome if outcome < 2 else outcome


@cython.cclass
class Absent(Node):
    """A property IS NULL."""

    _slot = cython.declare(cython.int)

    def __init__(self, slot):
        self._slot = slot

    @cython.cfunc
    @cython.exceptval(-1, check=True)
    def test(self, scan: PropertyScan) -> cython.int:
        return 1 if scan.size(self._slot) < 0 else 0


@cython.cclass
class Cast(Node):
    """A property where a truth is wanted: a text is none."""

    _slot = cython.declare(cython.int)

    def __init__(self, slot):
        self._slot = slot

    @cython.cfunc
    @cython.exceptval(-1, check=True)
    def test(self, scan: PropertyScan) -> cython.int:
        return 2 if scan.size(self._slot) < 0 else 0


@cython.cclass
class EqualsText(Node):
    """A property = 'text'. `if_absent`: outcome without the property, which depends on the side it stands on."""

    _slot = cython.declare(cython.int)
    _text = cython.declare(bytes)
    _if_absent = cython.declare(cython.int)

    def __init__(self, slot, text, if_absent):
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
    """A property IN ('a', 'b')."""

    _slot = cython.declare(cython.int)
    _texts = cython.declare(frozenset)

    def __init__(self, slot, texts):
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
    """A property CONTAINS, STARTSWITH or ENDSWITH a text that is not empty; `negated`: not so. False if absent."""

    _slot = cython.declare(cython.int)
    _kind = cython.declare(cython.int)
    _text = cython.declare(bytes)
    _negated = cython.declare(cython.bint)

    def __init__(self, slot, kind, text, negated):
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

    def __init__(self, slot, relation, constant, bits, if_absent):
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
    @cython.inline
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

    def __init__(self, slot, relation, constant, if_absent):
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
    @cython.inline
    @cython.exceptval(-1, check=False)
    def _outcome(self, value: cython.double) -> cython.int:
        # The constant is neither zero nor a NaN; a NaN is above it.
        order: cython.int = 1 if value < self._constant else (2 if value == self._constant else 4)
        return 1 if order & self._relation else 0


@cython.cclass
class Operand:
    """One side of a `Comparison`."""

    @cython.cfunc
    def get(self, scan: PropertyScan) -> object:
        """A value of java_values. Raises FilterEvaluationError where Java throws."""
        raise NotImplementedError


@cython.cclass
class Constant(Operand):
    """A literal."""

    _value = cython.declare(object)

    def __init__(self, value):
        self._value = value

    @cython.cfunc
    def get(self, scan: PropertyScan) -> object:
        return self._value


@cython.cclass
class Property(Operand):
    """A property's text."""

    _slot = cython.declare(cython.int)

    def __init__(self, slot):
        self._slot = slot

    @cython.cfunc
    def get(self, scan: PropertyScan) -> object:
        return scan.text(self._slot)


@cython.cclass
class Truth(Operand):
    """A boolean expression as a value; `is_lost`: under a minus sign, which leaves null of it."""

    _node = cython.declare(Node)
    _is_lost = cython.declare(cython.bint)

    def __init__(self, node, is_lost):
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
    """Two values of any kinds. `relation` EQUAL is Java's `=`, which knows what null equals; LESS and GREATER, with or
    without EQUAL, are its orders."""

    _left = cython.declare(Operand)
    _right = cython.declare(Operand)
    _relation = cython.declare(cython.int)

    def __init__(self, left, right, relation):
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
    """CONTAINS, STARTSWITH, ENDSWITH on something that is no property."""

    _operand = cython.declare(Operand)
    _kind = cython.declare(cython.int)
    _text = cython.declare(str)
    _negated = cython.declare(cython.bint)

    def __init__(self, operand, kind, text, negated):
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


@cython.cclass
class BitMapTest:
    """What the bit maps in one ConsumeQueueExt file say about a consumer, before its expression is tested.

    A message's bit map was made when it was dispatched, of the consumers known then: it says nothing of one that came
    later, and only a clear bit is certain.
    """

    _ext = cython.declare(object)
    _file_from_offset = cython.declare(cython.longlong)
    _end = cython.declare(cython.longlong)
    _live_from = cython.declare(cython.longlong)
    _bit_num = cython.declare(cython.longlong)
    _positions = cython.declare(list)

    def __init__(self, ext, file_from_offset, live_from, bit_num, positions):
        self._ext = memoryview(ext)
        self._file_from_offset = file_from_offset
        self._end = len(self._ext)
        self._live_from = live_from
        self._bit_num = bit_num
        self._positions = list(positions)
        if any(not 0 <= position < bit_num for position in self._positions):
            raise ValueError(f"bit positions {positions} are not all below {bit_num}")

    @cython.cfunc
    @cython.exceptval(-1, check=True)
    def _rules_out(self, physical_offset: cython.longlong, tags_code: cython.longlong) -> cython.bint:
        """Is the message whose unit has this tags code certainly none for the consumer?"""
        if physical_offset < self._live_from or tags_code > _EXT_ADDRESS_MAX:
            return False
        ext: cython.const[cython.uchar][::1] = self._ext
        # tags_code - Long.MIN_VALUE, in two steps so that no intermediate leaves 64 bits
        p: cython.longlong = (tags_code + 0x7FFFFFFFFFFFFFFF) + 1 - self._file_from_offset
        if p < 0 or p + 20 > self._end:
            return False
        buf: cython.p_uchar
        if not cython.compiled:
            buf = ext
        else:
            buf = cython.cast(cython.p_uchar, cython.address(ext[0]))
        bytes_: cython.longlong = (cython.cast(cython.longlong, buf[p + 18]) << 8) | buf[p + 19]
        size: cython.longlong = (cython.cast(cython.longlong, buf[p]) << 8) | buf[p + 1]
        if size != 20 + bytes_ or bytes_ * 8 != self._bit_num or p + size > self._end:
            return False
        position: cython.longlong
        for position in self._positions:  # noqa: SIM110 - a loop stays in C
            if not buf[p + 20 + (position >> 3)] & (1 << (position & 7)):
                return True
        return False


@cython.cclass
class Predicate:
    """A whole expression; see predicates_cy.pyi."""

    _scan = cython.declare(PropertyScan)
    _root = cython.declare(Node)

    def __init__(self, names, root):
        self._scan = PropertyScan(names)
        self._root = root

    @property
    def names(self):
        return self._scan.names

    def test(self, properties: cython.const[cython.uchar][::1]):
        """The outcome on a text of properties."""
        buf: cython.p_uchar = None if not cython.compiled else cython.NULL
        if not cython.compiled:
            buf = memoryview(properties)
        elif len(properties):
            buf = cython.cast(cython.p_uchar, cython.address(properties[0]))
        self._scan.scan(buf, 0, len(properties))
        return self._root.test(self._scan)

    def matches(self, properties):
        """Is it true of a text of properties?"""
        return self.test(properties) == 1

    def matches_record(
        self, view: cython.const[cython.uchar][::1], position: cython.Py_ssize_t, size: cython.Py_ssize_t
    ):
        """Is it true of the record in view[position : position + size]? Also of bytes that are no record."""
        if position < 0 or size < 0 or position + size > len(view):
            raise ValueError(f"[{position}, {position + size}) is outside the {len(view)} bytes")
        buf: cython.p_uchar
        if not cython.compiled:
            buf = memoryview(view)
        else:
            buf = cython.cast(cython.p_uchar, cython.address(view[0]))
        return self._test_record(buf, position, size) != 0

    @cython.cfunc
    @cython.exceptval(-1, check=True)
    def _test_record(self, buf: cython.p_uchar, p: cython.Py_ssize_t, size: cython.longlong) -> cython.int:
        """1: it matches, 0: it does not, 2: it is no record."""
        if size < 91:
            return 2
        magic: cython.uint = _u32(buf, p + 4)
        if (magic != 0xDAA320A7 and magic != 0xDAA320AB) or _i32(buf, p) != size:
            return 2
        sys_flag: cython.int = _i32(buf, p + 36)
        q: cython.longlong = p + 68 + (20 if sys_flag & 0x10 else 8) + (20 if sys_flag & 0x20 else 8)
        limit: cython.longlong = p + size
        if q + 4 > limit:
            return 2
        body_size: cython.longlong = _i32(buf, q)
        if body_size < 0 or q + 4 + body_size + 3 > limit:
            return 2
        q += 4 + body_size
        if magic == 0xDAA320A7:
            q += 1 + buf[q]
        else:
            q += 2 + ((cython.cast(cython.longlong, buf[q]) << 8) | buf[q + 1])
        if q + 2 > limit:
            return 2
        if q + 2 + ((cython.cast(cython.longlong, buf[q]) << 8) | buf[q + 1]) != limit:
            return 2
        self._scan.scan(buf, q + 2, limit)
        return 1 if self._root.test(self._scan) == 1 else 0

    def select(
        self,
        units: cython.const[cython.uchar][::1],
        start: cython.Py_ssize_t,
        end: cython.Py_ssize_t,
        log: cython.const[cython.uchar][::1],
        file_from_offset: cython.longlong,
        log_end: cython.longlong,
        min_physical_offset: cython.longlong,
        most_hits: cython.longlong,
        places: list,
        bit_maps: BitMapTest = None,
    ):
        """Test the records of queue units (see predicates_cy.pyi)."""
        if start < 0 or end > len(units) or log_end - file_from_offset > len(log):
            raise ValueError("a range is outside its file")
        p: cython.Py_ssize_t = start
        physical_offset: cython.longlong
        size: cython.longlong
        tags_code: cython.longlong
        if p >= end:
            return p
        buf: cython.p_uchar
        records: cython.p_uchar
        if not cython.compiled:
            buf = memoryview(units)
            records = memoryview(log)
        else:
            buf = cython.cast(cython.p_uchar, cython.address(units[0]))
            records = cython.cast(cython.p_uchar, cython.address(log[0]))
        while p + 20 <= end and len(places) < most_hits:
            physical_offset = _i64(buf, p)
            size = _i32(buf, p + 8)
            tags_code = _i64(buf, p + 12)
            if (
                size > 0
                and size != _BLANK_UNIT_SIZE
                and physical_offset >= min_physical_offset
                and tags_code != _DAMAGED
            ):
                if physical_offset < file_from_offset or physical_offset + size > log_end:
                    break
                if (bit_maps is None or not bit_maps._rules_out(physical_offset, tags_code)) and self._test_record(
                    records, physical_offset - file_from_offset, size
                ):
                    places.append(p)
            p += 20
        return p


def is_compiled() -> bool:
    """Which form runs."""
    return cython.compiled
