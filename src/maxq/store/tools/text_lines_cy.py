"""The lines that `maxq store messages` prints, many records at a time.

`text_lines` writes what can be copied from a record as it is. A record of another kind, and one whose topic, tags or
keys are not ASCII, is left to the caller's function (message_lines.py), which makes its line in the general way.
"""

from typing import TYPE_CHECKING

try:
    import cython
except ModuleNotFoundError:
    from maxq.runtime import cython  # type: ignore[no-redef]

if cython.compiled:
    from cython.cimports.maxq.protocol.message import record_layout as layout
    from cython.cimports.maxq.runtime.buffers import copy_bytes, find_byte, put_bytes, put_number, same_bytes
else:
    from maxq.protocol.message import record_layout as layout
    from maxq.runtime.buffers import copy_bytes, find_byte, put_bytes, put_number, same_bytes

if TYPE_CHECKING:
    from array import array
    from collections.abc import Callable

_NUMBERS_MOST = cython.declare(cython.Py_ssize_t, 192)  # most bytes of a line beside the texts of the record
_HEX = cython.declare(bytes, b"0123456789ABCDEF")


def text_lines(
    view: cython.const[cython.uchar][::1],  # type: memoryview
    rows: cython.longlong[::1],  # type: array[int]
    count: cython.Py_ssize_t,
    unusual: object,  # type: Callable[[int], bytes]
):
    # type: (...) -> memoryview
    """Return the lines of the first `count` records.

    Args:
        view: what was scanned.
        rows: rows of record_cy.scan.
        unusual: called with the number of a record that is not copied as it is; returns its line, or nothing for one
            that is not a message. A line is no longer than `_NUMBERS_MOST` and three times the topic and properties.
    """
    buf: cython.p_uchar
    out: cython.p_uchar
    row: cython.p_longlong
    number: cython.Py_ssize_t
    p: cython.Py_ssize_t = 0
    end: cython.Py_ssize_t
    most: cython.Py_ssize_t = 0
    if count == 0:
        return memoryview(b"")
    for number in range(count):
        most += _NUMBERS_MOST + 3 * (rows[20 * number + 15] + rows[20 * number + 17])
    target: bytearray = bytearray(most)
    if cython.compiled:
        buf = cython.cast(cython.p_uchar, cython.address(view[0]))
        out = cython.cast(cython.p_uchar, target)
    else:
        buf = view
        out = target
    for number in range(count):
        if cython.compiled:
            row = cython.address(rows[0]) + number * 20
        else:
            row = memoryview(rows)[number * 20 : number * 20 + 20]
        end = _line(buf, row, out, p)
        p = end if end else put_bytes(out, p, unusual(number))
    return memoryview(target)[:p]


@cython.cfunc
@cython.exceptval(-1, check=True)
def _line(buf: cython.p_uchar, row: cython.p_longlong, out: cython.p_uchar, p: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Write the line of one record at `p`; returns the position behind it, 0 if the record is not a usual one."""
    sys_flag: cython.longlong = row[5]
    at: cython.Py_ssize_t = row[16]
    end: cython.Py_ssize_t = at + row[17]
    middle: cython.Py_ssize_t
    stop: cython.Py_ssize_t
    tags: cython.Py_ssize_t = 0
    tags_size: cython.Py_ssize_t = 0
    keys: cython.Py_ssize_t = 0
    keys_size: cython.Py_ssize_t = 0
    if sys_flag & layout.TRANSACTION_MASK == layout.TRANSACTION_ROLLBACK:
        return 0
    while at < end:
        stop = find_byte(buf, at, end, 2)
        if stop - at > 5:
            middle = find_byte(buf, at, stop, 1)
            if middle - at == 4 and middle + 1 < stop:
                if same_bytes(buf, at, 4, b"TAGS"):
                    tags = middle + 1
                    tags_size = stop - tags
                elif same_bytes(buf, at, 4, b"KEYS"):
                    keys = middle + 1
                    keys_size = stop - keys
        at = stop + 1
    if not (_is_ascii(buf, row[14], row[15]) and _is_ascii(buf, tags, tags_size) and _is_ascii(buf, keys, keys_size)):
        return 0
    p = _then_tab(out, put_number(out, p, row[2]))
    p = _then_tab(out, put_number(out, p, row[1]))
    p = _put_text(out, p, buf, row[14], row[15])
    p = _then_tab(out, put_number(out, p, row[3]))
    p = _then_tab(out, put_number(out, p, row[4]))
    p = _then_tab(out, put_number(out, p, row[8]))
    p = _put_id(out, p, buf, row[19], 20 if sys_flag & layout.STORE_HOST_V6 else 8, row[2])
    p = _put_text(out, p, buf, tags, tags_size)
    copy_bytes(out, p, buf, keys, keys_size)
    out[p + keys_size] = 0x0A
    return p + keys_size + 1


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _is_ascii(buf: cython.p_uchar, p: cython.Py_ssize_t, size: cython.Py_ssize_t) -> cython.bint:
    end: cython.Py_ssize_t = p + size
    while p < end and buf[p] < 0x80:
        p += 1
    return p >= end


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _then_tab(out: cython.p_uchar, p: cython.Py_ssize_t) -> cython.Py_ssize_t:
    out[p] = 0x09
    return p + 1


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _put_text(
    out: cython.p_uchar, p: cython.Py_ssize_t, buf: cython.p_uchar, at: cython.Py_ssize_t, size: cython.Py_ssize_t
) -> cython.Py_ssize_t:
    copy_bytes(out, p, buf, at, size)
    return _then_tab(out, p + size)


@cython.cfunc
@cython.exceptval(check=False)
def _put_id(
    out: cython.p_uchar,
    p: cython.Py_ssize_t,
    buf: cython.p_uchar,
    host: cython.Py_ssize_t,
    size: cython.Py_ssize_t,
    physical_offset: cython.longlong,
) -> cython.Py_ssize_t:
    """Write the offset message id, upper-case hex digits of host and physical offset."""
    digits: cython.p_uchar
    i: cython.Py_ssize_t
    if cython.compiled:
        digits = cython.cast(cython.p_uchar, _HEX)
    else:
        digits = _HEX
    for i in range(size):
        out[p] = digits[buf[host + i] >> 4]
        out[p + 1] = digits[buf[host + i] & 15]
        p += 2
    for i in range(16):
        out[p + i] = digits[(physical_offset >> (60 - 4 * i)) & 15]
    return _then_tab(out, p + 16)


def is_compiled() -> bool:
    """Returns whether this module runs compiled by Cython."""
    return cython.compiled
