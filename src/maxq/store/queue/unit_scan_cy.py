"""Walk the units of a ConsumeQueue for a pull: which ranges of the log it takes."""

from typing import TYPE_CHECKING

try:
    import cython
except ModuleNotFoundError:
    from maxq.runtime import cython  # type: ignore[no-redef]

if cython.compiled:
    from cython.cimports.maxq.runtime.buffers import i32, i64
else:
    from maxq.runtime.buffers import i32, i64

if TYPE_CHECKING:
    from collections.abc import Sequence


#: Tags code of a unit that keeps the place of a damaged message ("MAXQDAMG"); readers pass over it. No hash and no
#: delivery time has this value, and ConsumeQueueExt addresses are negative.
DAMAGED_TAGS_CODE = 0x4D415851_44414D47
_DAMAGED = cython.declare(cython.longlong, 0x4D415851_44414D47)
_EXT_ADDRESS_MAX = cython.declare(cython.longlong, -2147483649)
_BLANK_UNIT_SIZE = cython.declare(cython.longlong, 0x7FFFFFFF)


@cython.cclass
class UnitScan:
    """The units of a queue that a pull takes."""

    def __init__(self):
        self.ranges = []

    @cython.cfunc
    def _take(self, physical_offset: cython.longlong, size: cython.longlong):
        """Add the range of one record to those that were found."""
        self.ranges.append((physical_offset, size))

    @cython.cfunc
    def _walk(
        self,
        buf: cython.p_uchar,
        p: cython.Py_ssize_t,
        end: cython.Py_ssize_t,
        first_index: cython.longlong,
        wanted: object,
        max_messages: cython.longlong,
        max_bytes: cython.longlong,
        max_physical_offset: cython.longlong,
        memory_bytes: cython.longlong,
        limits,
        min_physical_offset: cython.longlong,
        max_units: cython.longlong,
    ):
        """Walk units as DefaultMessageStore.getMessage does."""
        memory_limit: cython.longlong = limits[0]
        memory_count: cython.longlong = limits[1]
        disk_limit: cython.longlong = limits[2]
        disk_count: cython.longlong = limits[3]
        count: cython.longlong = 0
        total: cython.longlong = 0
        index: cython.longlong = first_index
        last: cython.longlong = 0
        run_start: cython.longlong = -1
        run_end: cython.longlong = -1
        physical_offset: cython.longlong
        size: cython.longlong
        tags_code: cython.longlong
        in_memory: cython.bint
        while p + 20 <= end:
            if index - first_index >= max_units:
                break
            physical_offset = i64(buf, p)
            size = i32(buf, p + 8)
            tags_code = i64(buf, p + 12)
            if size == _BLANK_UNIT_SIZE or size <= 0 or physical_offset < min_physical_offset or tags_code == _DAMAGED:
                p += 20  # a pre-blank unit, a record that was deleted with its file, or the place of a damaged message
                index += 1
                continue
            in_memory = max_physical_offset - physical_offset <= memory_bytes
            if count > 0:
                if count + 1 > max_messages or total + size > max_bytes:
                    break
                if in_memory:
                    if total + size > memory_limit or count > memory_count - 1:
                        break
                elif total + size > disk_limit or count > disk_count - 1:
                    break
            last = physical_offset
            # an extension address of a Java store: the client checks the tags again
            if wanted is not None and tags_code > _EXT_ADDRESS_MAX:
                if cython.compiled:
                    tags_code = cython.cast(cython.int, tags_code)  # the low 32 bits, signed
                else:
                    tags_code = (tags_code & 0xFFFFFFFF) - ((tags_code & 0x80000000) << 1)
                if tags_code not in wanted:
                    p += 20
                    index += 1
                    continue
            if physical_offset == run_end:
                run_end += size
            else:
                if run_start >= 0:
                    self._take(run_start, run_end - run_start)
                run_start = physical_offset
                run_end = physical_offset + size
            count += 1
            total += size
            p += 20
            index += 1
        if run_start >= 0:
            self._take(run_start, run_end - run_start)
        self.message_count = count
        self.total_bytes = total
        self.next_index = index
        self.last_physical_offset = last


def collect(
    view: cython.const[cython.uchar][::1],  # type: memoryview
    start: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    first_index: cython.longlong,
    codes,  # type: Sequence[int] | None
    max_messages: cython.longlong,
    max_bytes: cython.longlong,
    max_physical_offset: cython.longlong,
    memory_bytes: cython.longlong,
    limits,  # type: tuple[int, int, int, int]
    min_physical_offset: cython.longlong,
    max_units: cython.longlong,
):
    # type: (...) -> UnitScan
    """Walk ConsumeQueue units view[start:end] (20 bytes each, first has queue offset `first_index`) as
    DefaultMessageStore.getMessage does. codes None: every tag; else the int32 tag hashes.
    limits = (bytes in memory, count in memory, bytes on disk, count on disk); memory_bytes = RAM × accessRatio."""
    if start < 0 or end > len(view):
        raise ValueError(f"range [{start}, {end}) is outside the file of {len(view)} bytes")
    result: UnitScan = UnitScan()
    wanted: object = None if codes is None else frozenset(codes)
    buf: cython.p_uchar
    if start >= end:
        start = end = 0
    if cython.compiled:
        buf = cython.cast(cython.p_uchar, cython.address(view[0])) if end else cython.NULL
    else:
        buf = memoryview(view)
    result._walk(
        buf, start, end, first_index, wanted, max_messages, max_bytes, max_physical_offset, memory_bytes, limits,
        min_physical_offset, max_units,
    )  # fmt: skip
    return result


def lost_units(
    view: cython.const[cython.uchar][::1],  # type: memoryview
    start: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    first_index: cython.longlong,
    min_physical_offset: cython.longlong,
):
    # type: (...) -> list[int]
    """Return the queue offsets of those units in view[start:end] that keep the place of a message that the log does not
    have: of a damaged one, blanks, zeros. `collect` passes over them. Units of what retention freed are not among them.

    Args:
        first_index: queue offset of the first unit.
        min_physical_offset: where the log begins.
    """
    if start < 0 or end > len(view):
        raise ValueError(f"range [{start}, {end}) is outside the file of {len(view)} bytes")
    found = []
    buf: cython.p_uchar
    p: cython.Py_ssize_t = start
    index: cython.longlong = first_index
    size: cython.longlong
    is_damaged: cython.bint
    if start >= end:
        return found
    if cython.compiled:
        buf = cython.cast(cython.p_uchar, cython.address(view[0]))
    else:
        buf = memoryview(view)
    while p + 20 <= end:
        size = i32(buf, p + 8)
        is_damaged = i64(buf, p + 12) == _DAMAGED and i64(buf, p) >= min_physical_offset
        if is_damaged or size == _BLANK_UNIT_SIZE or size <= 0:
            found.append(index)
        p += 20
        index += 1
    return found
