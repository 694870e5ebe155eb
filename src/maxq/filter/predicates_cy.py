"""SQL92 predicates on the records of a log: the root of a tree of nodes (nodes_cy.py), asked of records where they lie.

Source:
    filter/expression/*.java, broker/filter/ExpressionMessageFilter.java, store/ConsumeQueueExt.java (bit maps).
"""

from typing import TYPE_CHECKING

try:
    import cython
except ModuleNotFoundError:
    from maxq.runtime import cython  # type: ignore[no-redef]

if cython.compiled:
    from cython.cimports.maxq.filter.nodes_cy import Node, PropertyScan
    from cython.cimports.maxq.protocol.message import record_layout as layout
    from cython.cimports.maxq.runtime.buffers import i32, i64, u32
else:
    from maxq.filter.nodes_cy import Node, PropertyScan
    from maxq.protocol.message import record_layout as layout
    from maxq.runtime.buffers import i32, i64, u32

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


_BLANK_UNIT_SIZE = cython.declare(cython.longlong, 0x7FFFFFFF)
_DAMAGED = cython.declare(cython.longlong, 0x4D415851_44414D47)
_EXT_ADDRESS_MAX = cython.declare(cython.longlong, -2147483649)


@cython.cclass
class BitMapTest:
    """Uses the bit maps in one ConsumeQueueExt file to rule out messages for a consumer before its expression is
    tested.

    A message's bit map was made when it was dispatched, of the consumers known then: it says nothing of one that came
    later, and only a clear bit is certain.
    """

    _ext = cython.declare(object)
    _file_from_offset = cython.declare(cython.longlong)
    _end = cython.declare(cython.longlong)
    _live_from = cython.declare(cython.longlong)
    _bit_num = cython.declare(cython.longlong)
    _positions = cython.declare(list)

    def __init__(
        self,
        ext,  # type: memoryview
        file_from_offset,  # type: int
        live_from,  # type: int
        bit_num,  # type: int
        positions,  # type: Sequence[int]
    ):
        """Raises ValueError for a position that is not below `bit_num`."""
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
        """Return whether the message whose unit has this tags code certainly does not match the consumer's
        expression."""
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
    """A whole expression. Not reentrant: it keeps the places of one record's properties while it tests them."""

    _scan = cython.declare(PropertyScan)
    _root = cython.declare(Node)
    _uses = cython.declare(cython.int)

    def __init__(
        self,
        names,  # type: Iterable[bytes]
        root,  # type: Node
        uses=1,  # type: int
    ):
        """names: the properties the nodes' slots mean, UTF-8. uses: how often the expression names one."""
        self._scan = PropertyScan(names)
        self._root = root
        self._uses = uses

    @property
    def uses(self):
        # type: (...) -> int
        return self._uses

    @property
    def names(self):
        # type: (...) -> tuple[bytes, ...]
        return self._scan.names

    def test(
        self,
        properties: cython.const[cython.uchar][::1],  # type: bytes | memoryview
    ):
        # type: (...) -> int
        """FALSE, TRUE, NULL or ERROR for a text of properties (name 0x01 value 0x02 …)."""
        buf: cython.p_uchar = None if not cython.compiled else cython.NULL
        if not cython.compiled:
            buf = memoryview(properties)
        elif len(properties):
            buf = cython.cast(cython.p_uchar, cython.address(properties[0]))
        self._scan.scan(buf, 0, len(properties))
        return self._root.test(self._scan)

    def matches(
        self,
        properties,  # type: bytes | memoryview
    ):
        # type: (...) -> bool
        """Returns whether the predicate is true for a text of properties."""
        return self.test(properties) == 1

    def matches_record(
        self,
        view: cython.const[cython.uchar][::1],  # type: memoryview
        position: cython.Py_ssize_t,
        size: cython.Py_ssize_t,
    ):
        # type: (...) -> bool
        """Is it true of the record in view[position : position + size]? True of bytes that are not records: whoever
        reads them notices that."""
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
        """Return 1 if the record matches, 0 if it does not, 2 if it is not a record."""
        if size < layout.MIN_RECORD_SIZE:
            return 2
        magic: cython.uint = u32(buf, p + layout.MAGIC)
        if (magic != layout.MAGIC_V1 and magic != layout.MAGIC_V2) or i32(buf, p) != size:
            return 2
        sys_flag: cython.int = i32(buf, p + layout.SYS_FLAG)
        q: cython.longlong = p + layout.body_size_at(sys_flag)
        limit: cython.longlong = p + size
        if q + 4 > limit:
            return 2
        body_size: cython.longlong = i32(buf, q)
        if body_size < 0 or q + 4 + body_size + 3 > limit:
            return 2
        q += 4 + body_size
        if magic == layout.MAGIC_V1:
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
        units: cython.const[cython.uchar][::1],  # type: memoryview
        start: cython.Py_ssize_t,
        end: cython.Py_ssize_t,
        log: cython.const[cython.uchar][::1],  # type: memoryview
        file_from_offset: cython.longlong,
        log_end: cython.longlong,
        min_physical_offset: cython.longlong,
        most_hits: cython.longlong,
        places: list,  # type: list[int]
        bit_maps: BitMapTest = None,  # type: BitMapTest | None
    ):
        # type: (...) -> int
        """Test the records of ConsumeQueue units units[start:end], as far as they lie in one log file.

        The position of each unit whose record matches, or is not a record, is appended to `places`. Units without a
        message to test (blank, below `min_physical_offset`, the place of a damaged message) are skipped. Stops when
        `places` has `most_hits` entries, and at a unit whose record is not in [file_from_offset, log_end).

        Returns:
            The position reached.
        """
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
            physical_offset = i64(buf, p)
            size = i32(buf, p + 8)
            tags_code = i64(buf, p + 12)
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
    """Returns whether this module runs compiled by Cython."""
    return cython.compiled
