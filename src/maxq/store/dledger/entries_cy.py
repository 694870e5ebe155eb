"""DLedger's data and index files, read in one pass: which bytes are entries, and what their index units must be.

Entry (big-endian; DLedgerEntryCoder.java):

    0 magic:4 = 1   4 size:4 = 48 + n   8 index:8   16 term:8   24 pos:8   32 channel:4   36 chainCrc:4   40 bodyCrc:4
    44 bodyLength:4 = n   48 body:n

`pos` is the entry's own place in the data stream. bodyCrc is CRC-32 of the body; chainCrc is ours, too: CRC-32 of
bytes 4 to 36 and 40 to 48, so of all the rest of the header but magic. Both are 0 for none: Java writes 0, hands on
what it gets, and never looks. In place of an entry there may be filler, -1:4 bytesLeft:4 and zeros to the end of the
file, or zeros: the log ends. Index unit, at 32 × index: magic:4 pos:8 size:4 index:8 term:8.
"""

from isal.isal_zlib import crc32

from maxq.store.log.crc32_function import address

try:
    import cython
except ModuleNotFoundError:
    from maxq.runtime import cython  # type: ignore[no-redef]

if cython.compiled:
    from cython.cimports.maxq.protocol.message import record_layout as layout
    from cython.cimports.maxq.runtime.buffers import i32, i64, u32
    from cython.cimports.maxq.store.log.crc32_function import maxq_crc32_t
    from cython.cimports.maxq.store.log.record_cy import crc31_at

    _crc32 = cython.declare(maxq_crc32_t, cython.cast(maxq_crc32_t, cython.cast(cython.size_t, address())))
else:
    from maxq.protocol.message import record_layout as layout
    from maxq.runtime.buffers import i32, i64, u32
    from maxq.store.log.record_cy import crc31_at

STOP_END = 1  # reached `end`, or fewer than 8 bytes are left before it
STOP_FILLER = 2  # the log goes on in the next file
STOP_ZERO = 3  # eight zero bytes: nothing was written here, the log ends
STOP_BAD = 4  # no entry, or not the one that follows, or not whole before `end`
STOP_BAD_CRC = 5  # the body does not have its bodyCrc; without one, it is a record whose size or body CRC is wrong

ANY_INDEX = -2  # as `index` of scan_entries: the first entry may have any index


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _crc(buf: cython.p_uchar, p: cython.Py_ssize_t, size: cython.Py_ssize_t) -> cython.uint:
    if not cython.compiled:
        return crc32(buf[p : p + size]) & 0xFFFFFFFF
    return _crc32(0, buf + p, size)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _same(
    a: cython.p_uchar, p: cython.Py_ssize_t, b: cython.p_uchar, q: cython.Py_ssize_t, n: cython.int
) -> cython.int:
    """Returns 1 if n bytes are equal; otherwise copies those of `b` over those of `a` and returns 0."""
    i: cython.int
    if not cython.compiled:
        if a[p : p + n] == b[q : q + n]:
            return 1
        a[p : p + n] = b[q : q + n]
        return 0
    for i in range(n):
        if a[p + i] != b[q + i]:
            break
    else:
        return 1
    for i in range(n):
        a[p + i] = b[q + i]
    return 0


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _head_crc(buf: cython.p_uchar, p: cython.Py_ssize_t) -> cython.uint:
    """Return the chainCrc of the entry at p."""
    if not cython.compiled:
        return crc32(buf[p + 40 : p + 48], crc32(buf[p + 4 : p + 36])) & 0xFFFFFFFF
    return _crc32(_crc32(0, buf + p + 4, 32), buf + p + 40, 8)


@cython.cfunc
@cython.exceptval(check=False)
def _record_good(buf: cython.p_uchar, p: cython.Py_ssize_t, size: cython.Py_ssize_t) -> cython.bint:
    """Return False if a body without bodyCrc begins like a record but has a wrong size or CRC, else True."""
    magic: cython.uint
    sys_flag: cython.int
    q: cython.Py_ssize_t
    body_size: cython.longlong
    if size < layout.MIN_RECORD_SIZE:
        return True
    magic = u32(buf, p + layout.MAGIC)
    if magic != layout.MAGIC_V1 and magic != layout.MAGIC_V2:
        return True
    if i32(buf, p) != size:
        return False
    sys_flag = i32(buf, p + layout.SYS_FLAG)
    q = p + layout.body_size_at(sys_flag)
    if q + 4 > p + size:
        return False
    body_size = i32(buf, q)
    if body_size < 0 or q + 4 + body_size + 3 > p + size:
        return False
    return body_size == 0 or crc31_at(buf, q + 4, body_size) == u32(buf, p + layout.BODY_CRC)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _entry_size(
    buf: cython.p_uchar,
    p: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    file_from_offset: cython.longlong,
    index: cython.longlong,
    term: cython.longlong,
) -> cython.longlong:
    """Return the size of the entry at p if it follows (index, term); else a negated STOP_… code."""
    left: cython.longlong = end - p
    magic: cython.int
    size: cython.longlong
    if left < 8:
        return -1
    magic = i32(buf, p)
    size = i32(buf, p + 4)
    if magic == -1:
        return -2
    if magic == 0 and size == 0:
        return -3
    if (
        left < 48
        or magic != 1
        or size < 48
        or size > left
        or size != 48 + cython.cast(cython.longlong, i32(buf, p + 44))
    ):
        return -4
    if i64(buf, p + 24) != file_from_offset + p or i32(buf, p + 32) != 0:
        return -4
    if u32(buf, p + 36) and u32(buf, p + 36) != _head_crc(buf, p):
        return -4
    if index != -2 and i64(buf, p + 8) != index + 1:
        return -4
    if i64(buf, p + 8) < 0 or i64(buf, p + 16) < term:
        return -4
    return size


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _body_good(buf: cython.p_uchar, p: cython.Py_ssize_t, size: cython.longlong) -> cython.bint:
    crc: cython.uint = u32(buf, p + 40)
    if crc:
        return _crc(buf, p + 48, size - 48) == crc
    return _record_good(buf, p + 48, size - 48)


def scan_entries(
    view: cython.const[cython.uchar][::1],  # type: memoryview | bytes
    start: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    file_from_offset: cython.longlong,
    index: cython.longlong,
    term: cython.longlong,
    check_crc: cython.bint,
):
    # type: (...) -> tuple[int, int, int, int]
    """Go over the entries in view[start:end] that follow entry `index` of `term`: consecutive indexes, terms that never
    fall, each at its `pos`. Returns (position behind the last good one, its index, its term, STOP_ code); index and
    term are the arguments if there was none."""
    p: cython.Py_ssize_t = start
    size: cython.longlong
    buf: cython.p_uchar
    if start < 0 or end > len(view):
        raise ValueError(f"range [{start}, {end}) is outside the file of {len(view)} bytes")
    if start >= end:
        return start, index, term, 1
    if cython.compiled:
        buf = cython.cast(cython.p_uchar, cython.address(view[0]))
    else:
        buf = memoryview(view)
    while p < end:
        size = _entry_size(buf, p, end, file_from_offset, index, term)
        if size < 0:
            return p, index, term, -size
        if check_crc and not _body_good(buf, p, size):
            return p, index, term, 5
        index = i64(buf, p + 8)
        term = i64(buf, p + 16)
        p += size
    return p, index, term, 1


def put_units(
    view: cython.const[cython.uchar][::1],  # type: memoryview | bytes
    start: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    units: cython.uchar[::1],  # type: memoryview
    position: cython.Py_ssize_t,
):
    # type: (...) -> tuple[int, int, int]
    """Write the index units of the entries in view[start:end], which a scan has found good, to `units` from byte
    `position` on, as far as there is room; equal ones are not touched. Returns (position in `view` behind the last
    entry that has its unit, how many units these are, how many were changed). ValueError if there is no entry."""
    p: cython.Py_ssize_t = start
    changed: cython.Py_ssize_t = 0
    count: cython.Py_ssize_t = 0
    size: cython.longlong
    room: cython.Py_ssize_t = len(units)
    buf: cython.p_uchar
    out: cython.p_uchar
    if start < 0 or end > len(view) or position < 0:
        raise ValueError(f"range [{start}, {end}) is outside the file of {len(view)} bytes")
    if start >= end or position + 32 > room:
        return start, 0, 0
    if cython.compiled:
        buf = cython.cast(cython.p_uchar, cython.address(view[0]))
        out = cython.address(units[0])
    else:
        buf, out = memoryview(view), units
    while p + 48 <= end and position + 32 <= room:
        if (
            _same(out, position, buf, p, 4)
            + _same(out, position + 4, buf, p + 24, 8)
            + _same(out, position + 12, buf, p + 4, 4)
            + _same(out, position + 16, buf, p + 8, 16)
            != 4
        ):
            changed += 1
        size = i32(buf, p + 4)
        if size < 48:
            raise ValueError(f"no entry at byte {p}: its size is {size}")
        p += size
        position += 32
        count += 1
    return p, count, changed


def find_entry(
    view: cython.const[cython.uchar][::1],  # type: memoryview
    start: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    file_from_offset: cython.longlong,
    index: cython.longlong,
):
    # type: (...) -> tuple[int, int]
    """The first whole entry at or behind `start`, its body good, whose index is above `index`: (position, index), or
    (-1, -1)."""
    p: cython.Py_ssize_t = start
    size: cython.longlong
    buf: cython.p_uchar
    if start < 0 or end > len(view):
        raise ValueError(f"range [{start}, {end}) is outside the file of {len(view)} bytes")
    if start >= end:
        return -1, -1
    whole: object = memoryview(view)
    if cython.compiled:
        buf = cython.cast(cython.p_uchar, cython.address(view[0]))
    else:
        buf = whole
    while p + 48 <= end:
        if not cython.compiled:
            found = bytes(whole[p:end]).find(b"\0\0\0\x01")
            if found < 0:
                return -1, -1
            p += found
            if p + 48 > end:
                return -1, -1
        if buf[p + 3] == 1 and buf[p] == 0 and buf[p + 1] == 0 and buf[p + 2] == 0:
            size = _entry_size(buf, p, end, file_from_offset, -2, 0)
            if size > 0 and i64(buf, p + 8) > index and _body_good(buf, p, size):
                return p, i64(buf, p + 8)
        p += 1
    return -1, -1


def is_compiled() -> bool:
    """Returns whether this module runs compiled by Cython."""
    return cython.compiled
