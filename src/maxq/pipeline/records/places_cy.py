"""Operations on the bytes of records before they become columns: find their tags, test which of some texts they have,
copy chosen ranges.

`record_cy.scan` leaves a table of int64: where in the bytes each part of a record lies, and how long it is.

Runs compiled and uncompiled; `buf` is a byte pointer in the one and the memoryview itself in the other.
"""

try:
    import cython
except ModuleNotFoundError:
    from maxq.runtime import cython  # type: ignore[no-redef]

if cython.compiled:
    from cython.cimports.libc.string import memchr, memcpy


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _start(view: cython.const[cython.uchar][::1]) -> cython.p_uchar:
    if not cython.compiled:
        return view
    return cython.cast(cython.p_uchar, cython.address(view[0])) if len(view) else cython.NULL


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _find(buf: cython.p_uchar, p: cython.Py_ssize_t, end: cython.Py_ssize_t, byte: cython.int) -> cython.Py_ssize_t:
    """Return the position of `byte` in buf[p:end]; `end` if it is not there."""
    found: cython.p_uchar
    if not cython.compiled:
        while p < end and buf[p] != byte:
            p += 1
        return p
    if p >= end:
        return end
    found = cython.cast(cython.p_uchar, memchr(buf + p, byte, end - p))
    return end if found == cython.NULL else found - buf


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _same(buf: cython.p_uchar, p: cython.Py_ssize_t, q: cython.Py_ssize_t, size: cython.Py_ssize_t) -> cython.bint:
    i: cython.Py_ssize_t = 0
    while i < size:
        if buf[p + i] != buf[q + i]:
            return False
        i += 1
    return True


def find_tags(
    view: cython.const[cython.uchar][::1],  # type: Any
    rows: cython.longlong[::1],  # type: Any
    count: cython.Py_ssize_t,
    found: cython.longlong[::1],  # type: Any
) -> None:
    """Fill `found`: position and size of the last TAGS of each record; 0 and -1 where there is none."""
    buf: cython.p_uchar
    row: cython.Py_ssize_t
    p: cython.Py_ssize_t
    end: cython.Py_ssize_t
    stop: cython.Py_ssize_t
    buf = _start(view)
    for row in range(count):
        found[row * 2] = 0  # cleared, because the table may be reused memory
        found[row * 2 + 1] = -1
        p = rows[row * 20 + 16]
        end = p + rows[row * 20 + 17]
        while p < end:
            stop = _find(buf, p, end, 2)
            if stop > p + 5 and buf[p] == 84 and buf[p + 1] == 65 and buf[p + 2] == 71 and buf[p + 3] == 83:
                if buf[p + 4] == 1:
                    found[row * 2] = p + 5
                    found[row * 2 + 1] = stop - p - 5
            p = stop + 1


def gather(
    view: cython.const[cython.uchar][::1],  # type: Any
    ranges: cython.longlong[::1],  # type: Any
    data: cython.uchar[::1],  # type: Any
) -> None:
    """Copy ranges of `view` (position and size of each) into `data`, one behind the other.

    Raises:
        ValueError: a range lies outside of `view`, or `data` is too small.
    """
    i: cython.Py_ssize_t
    p: cython.longlong
    size: cython.longlong
    at: cython.longlong = 0
    for i in range(0, len(ranges) - 1, 2):
        p, size = ranges[i], ranges[i + 1]
        if p < 0 or size < 0 or p > len(view) - size:
            raise ValueError(f"range {i // 2} points outside the {len(view)} bytes")
        if at + size > len(data):
            raise ValueError(f"the ranges have more than {len(data)} bytes")
        if size > 0:
            if cython.compiled:
                memcpy(cython.address(data[at]), cython.address(view[p]), size)
            else:
                data[at : at + size] = view[p : p + size]
        at += size


def text_numbers(
    view: cython.const[cython.uchar][::1],  # type: Any
    table: cython.longlong[::1],  # type: Any
    width: cython.Py_ssize_t,
    column: cython.Py_ssize_t,
    count: cython.Py_ssize_t,
    numbers: dict,  # type: dict[bytes, int]
    found: cython.longlong[::1],  # type: Any
) -> None:
    """`found[i]`: the number of row i's part in `numbers`, -1 if it is missing or not there."""
    buf: cython.p_uchar
    row: cython.Py_ssize_t
    p: cython.Py_ssize_t
    size: cython.Py_ssize_t
    last: cython.Py_ssize_t = 0
    last_size: cython.Py_ssize_t = -1
    number: cython.longlong = -1
    name: bytes
    buf = _start(view)
    for row in range(count):
        p = table[row * width + column]
        size = table[row * width + column + 1]
        if size < 0:
            found[row] = -1
            continue
        if size != last_size or not _same(buf, last, p, size):
            if cython.compiled:
                name = buf[p : p + size]
            else:
                name = bytes(view[p : p + size])
            number = numbers.get(name, -1)
            last = p
            last_size = size
        found[row] = number


def is_compiled() -> bool:
    """Returns whether this module runs compiled by Cython."""
    return cython.compiled
