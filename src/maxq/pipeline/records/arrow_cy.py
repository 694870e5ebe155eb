"""Columns of variable length out of record bytes, as the buffers that Arrow wants.

`record_cy.scan` leaves a table of int64: where in the bytes each part of a record lies, and how long it is. The
functions here make further such tables (the properties of a record, the words of its keys) and gather what a table
points to into an Arrow pair of offsets and data. Two passes: `measure` says how many bytes, `gather` copies them.

Runs compiled and uncompiled; `buf` is a byte pointer in the one and the memoryview itself in the other.
"""

try:
    import cython
except ModuleNotFoundError:
    from maxq.runtime import cython  # type: ignore[no-redef]

if cython.compiled:
    from cython.cimports.libc.string import memchr, memcpy

PROPERTY_WIDTH = 7
(
    P_TAGS,
    P_TAGS_SIZE,
    P_KEYS,
    P_KEYS_SIZE,
    P_UNIQUE,
    P_UNIQUE_SIZE,
    P_COUNT,
) = range(7)

EXTRA = 1 << 62
_EXTRA = cython.declare(cython.longlong, 1 << 62)

_HEX = cython.declare(bytes, b"0123456789ABCDEF")


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


def find_properties(
    view: cython.const[cython.uchar][::1],  # type: Any
    rows: cython.longlong[::1],  # type: Any
    count: cython.Py_ssize_t,
    found: cython.longlong[::1],  # type: Any
) -> int:
    """Fill `found` (PROPERTY_WIDTH columns a row); returns the sum of P_COUNT, an upper bound of the pairs."""
    buf: cython.p_uchar
    row: cython.Py_ssize_t
    base: cython.Py_ssize_t
    p: cython.Py_ssize_t
    end: cython.Py_ssize_t
    stop: cython.Py_ssize_t
    middle: cython.Py_ssize_t
    size: cython.Py_ssize_t
    pairs: cython.longlong
    total: cython.longlong = 0
    buf = _start(view)
    for row in range(count):
        base = row * 7
        found[base] = found[base + 2] = found[base + 4] = 0  # the table may be memory that was used before
        found[base + 1] = found[base + 3] = found[base + 5] = -1
        p = rows[row * 20 + 16]
        end = p + rows[row * 20 + 17]
        pairs = 0
        while p < end:
            stop = _find(buf, p, end, 2)
            middle = _find(buf, p, stop, 1)
            size = middle - p
            if middle < stop - 1 and size > 0:
                pairs += 1
                if size == 4:
                    if buf[p] == 84 and buf[p + 1] == 65 and buf[p + 2] == 71 and buf[p + 3] == 83:
                        found[base] = middle + 1
                        found[base + 1] = stop - middle - 1
                    elif buf[p] == 75 and buf[p + 1] == 69 and buf[p + 2] == 89 and buf[p + 3] == 83:
                        found[base + 2] = middle + 1
                        found[base + 3] = stop - middle - 1
                elif (
                    size == 8
                    and buf[p] == 85
                    and buf[p + 1] == 78
                    and buf[p + 2] == 73
                    and buf[p + 3] == 81
                    and buf[p + 4] == 95
                    and buf[p + 5] == 75
                    and buf[p + 6] == 69
                    and buf[p + 7] == 89
                ):
                    found[base + 4] = middle + 1
                    found[base + 5] = stop - middle - 1
            p = stop + 1
        found[base + 6] = pairs
        total += pairs
    return total


def split_properties(
    view: cython.const[cython.uchar][::1],  # type: Any
    rows: cython.longlong[::1],  # type: Any
    count: cython.Py_ssize_t,
    pairs: cython.longlong[::1],  # type: Any
    list_offsets: cython.int[::1],  # type: Any
) -> int:
    """Fill `pairs` (name position, size, value position, size) and the count + 1 int32 `list_offsets`; of equal names
    in one record the last value counts. Returns the number of pairs.

    Raises:
        ValueError: there are more than `pairs` has room for: a broker wrote the bytes since they were counted.
    """
    buf: cython.p_uchar
    row: cython.Py_ssize_t
    p: cython.Py_ssize_t
    end: cython.Py_ssize_t
    stop: cython.Py_ssize_t
    middle: cython.Py_ssize_t
    size: cython.Py_ssize_t
    first: cython.Py_ssize_t
    at: cython.Py_ssize_t
    n: cython.Py_ssize_t = 0
    room: cython.Py_ssize_t = len(pairs) // 4
    list_offsets[0] = 0
    buf = _start(view)
    for row in range(count):
        p = rows[row * 20 + 16]
        end = p + rows[row * 20 + 17]
        first = n
        while p < end:
            stop = _find(buf, p, end, 2)
            middle = _find(buf, p, stop, 1)
            size = middle - p
            if middle < stop - 1 and size > 0:
                at = first
                while at < n and not (pairs[at * 4 + 1] == size and _same(buf, pairs[at * 4], p, size)):
                    at += 1
                if at >= room:
                    raise ValueError(f"more than the {room} properties that were counted: the bytes change")
                pairs[at * 4] = p
                pairs[at * 4 + 1] = size
                pairs[at * 4 + 2] = middle + 1
                pairs[at * 4 + 3] = stop - middle - 1
                if at == n:
                    n += 1
            p = stop + 1
        list_offsets[row + 1] = n
    return n


def count_words(
    view: cython.const[cython.uchar][::1],  # type: Any
    table: cython.longlong[::1],  # type: Any
    width: cython.Py_ssize_t,
    column: cython.Py_ssize_t,
    count: cython.Py_ssize_t,
) -> int:
    """An upper bound of the space-separated words."""
    buf: cython.p_uchar
    row: cython.Py_ssize_t
    p: cython.Py_ssize_t
    end: cython.Py_ssize_t
    words: cython.Py_ssize_t = 0
    buf = _start(view)
    for row in range(count):
        p = table[row * width + column]
        end = p + table[row * width + column + 1]
        while p < end:
            words += 1
            p = _find(buf, p, end, 32) + 1
    return words


def split_words(
    view: cython.const[cython.uchar][::1],  # type: Any
    table: cython.longlong[::1],  # type: Any
    width: cython.Py_ssize_t,
    column: cython.Py_ssize_t,
    count: cython.Py_ssize_t,
    words: cython.longlong[::1],  # type: Any
    list_offsets: cython.int[::1],  # type: Any
) -> int:
    """Fill `words` (position, size) and the count + 1 int32 `list_offsets`; returns the number of words.

    Raises:
        ValueError: there are more than `words` has room for: a broker wrote the bytes since they were counted.
    """
    buf: cython.p_uchar
    row: cython.Py_ssize_t
    p: cython.Py_ssize_t
    end: cython.Py_ssize_t
    stop: cython.Py_ssize_t
    n: cython.Py_ssize_t = 0
    room: cython.Py_ssize_t = len(words) // 2
    list_offsets[0] = 0
    buf = _start(view)
    for row in range(count):
        p = table[row * width + column]
        end = p + table[row * width + column + 1]
        while p < end:
            stop = _find(buf, p, end, 32)
            if stop > p:
                if n >= room:
                    raise ValueError(f"more than the {room} words that were counted: the bytes change")
                words[n * 2] = p
                words[n * 2 + 1] = stop - p
                n += 1
            p = stop + 1
        list_offsets[row + 1] = n
    return n


def measure(
    table: cython.longlong[::1],  # type: Any
    width: cython.Py_ssize_t,
    column: cython.Py_ssize_t,
    count: cython.Py_ssize_t,
) -> tuple:
    # type: (...) -> tuple[int, int]
    """(bytes of all parts, rows whose size is -1)."""
    row: cython.Py_ssize_t
    size: cython.longlong
    total: cython.longlong = 0
    missing: cython.longlong = 0
    for row in range(count):
        size = table[row * width + column + 1]
        if size < 0:
            missing += 1
        else:
            total += size
    return total, missing


def gather(
    view: cython.const[cython.uchar][::1],  # type: Any
    extra: cython.const[cython.uchar][::1],  # type: Any
    table: cython.longlong[::1],  # type: Any
    width: cython.Py_ssize_t,
    column: cython.Py_ssize_t,
    count: cython.Py_ssize_t,
    offsets: cython.int[::1],  # type: Any
    data: cython.uchar[::1],  # type: Any
    validity: cython.uchar[::1],  # type: Any
) -> None:
    """Copy the parts into `data` (as many bytes as `measure` says), fill the count + 1 int32 `offsets`, and set a bit
    in `validity` (empty: not wanted) for each row that is not missing.

    Raises:
        ValueError: a part lies outside the bytes, or `data` is too small.
    """
    row: cython.Py_ssize_t
    p: cython.longlong
    size: cython.longlong
    at: cython.longlong = 0
    limit: cython.longlong = len(data)
    view_size: cython.longlong = len(view)
    extra_size: cython.longlong = len(extra)
    has_validity: cython.bint = len(validity) > 0
    offsets[0] = 0
    for row in range(count):
        p = table[row * width + column]
        size = table[row * width + column + 1]
        if size < 0:
            size = 0
        elif has_validity:
            validity[row >> 3] |= 1 << (row & 7)
        if size > 0:
            if at + size > limit:
                raise ValueError(f"more than the {limit} bytes that were measured")
            if p >= _EXTRA:
                p -= _EXTRA
                if p + size > extra_size:
                    raise ValueError(f"row {row} points behind the {extra_size} extra bytes")
                if cython.compiled:
                    memcpy(cython.address(data[at]), cython.address(extra[p]), size)
                else:
                    data[at : at + size] = extra[p : p + size]
            else:
                if p < 0 or p + size > view_size:
                    raise ValueError(f"row {row} points outside the {view_size} bytes")
                if cython.compiled:
                    memcpy(cython.address(data[at]), cython.address(view[p]), size)
                else:
                    data[at : at + size] = view[p : p + size]
            at += size
        offsets[row + 1] = at


def message_ids(
    view: cython.const[cython.uchar][::1],  # type: Any
    rows: cython.longlong[::1],  # type: Any
    count: cython.Py_ssize_t,
    offsets: cython.int[::1],  # type: Any
    data: cython.uchar[::1],  # type: Any
) -> int:
    """The offset message id of each record (32 or 56 upper-case hex digits); returns the bytes written."""
    row: cython.Py_ssize_t
    i: cython.Py_ssize_t
    size: cython.Py_ssize_t
    p: cython.Py_ssize_t
    physical: cython.ulonglong
    byte: cython.uint
    at: cython.Py_ssize_t = 0
    offsets[0] = 0
    for row in range(count):
        size = 20 if rows[row * 20 + 5] & 0x20 else 8
        p = rows[row * 20 + 19]
        for i in range(size):
            byte = view[p + i]
            data[at] = _HEX[byte >> 4]
            data[at + 1] = _HEX[byte & 15]
            at += 2
        physical = rows[row * 20 + 2]
        for i in range(8):
            byte = (physical >> (56 - 8 * i)) & 0xFF
            data[at] = _HEX[byte >> 4]
            data[at + 1] = _HEX[byte & 15]
            at += 2
        offsets[row + 1] = at
    return at


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
