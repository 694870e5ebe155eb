"""Rows as the records of a RocketMQ batch body.

    size:4  magic:4 (0)  crc:4 (0)  flag:4 (0)  body size:4  body  properties size:2  properties

all big-endian. The properties begin with the message's unique key; the rest is text that the caller has ready.

Runs compiled and uncompiled; `out` is a byte pointer in the one and the array itself in the other.
"""

try:
    import cython
except ModuleNotFoundError:
    from maxq.runtime import cython  # type: ignore[no-redef]

if cython.compiled:
    from cython.cimports.maxq.runtime.buffers import copy_bytes, i64, put32
else:
    from maxq.runtime.buffers import copy_bytes, i64, put32

MAX_PROPERTIES = 32767
_MAX_PROPERTIES = cython.declare(cython.Py_ssize_t, 32767)
#: What a record has besides body, properties and prefix: 22 bytes of sizes, 12 digits, a separator.
OVERHEAD = 35
_DIGITS = cython.declare(bytes, b"0123456789ABCDEF")
_WORD = cython.declare(cython.ulonglong, 0xFFFFFFFFFFFFFFFF)
_FACTOR = cython.declare(cython.ulonglong, 0x9E3779B97F4A7C15)


def encode_rows(
    memory: cython.uchar[::1],  # type: Any
    at: cython.Py_ssize_t,
    rows: cython.longlong[::1],  # type: Any
    first: cython.Py_ssize_t,
    body_offsets: cython.const[cython.longlong][::1],  # type: Any
    body_data: cython.const[cython.uchar][::1],  # type: Any
    text_offsets: cython.const[cython.longlong][::1],  # type: Any
    text_data: cython.const[cython.uchar][::1],  # type: Any
    prefix: bytes,
    number: cython.longlong,
) -> tuple[int, int]:
    """Write the records of rows[first], rows[first + 1] … into `memory` from `at` on, as long as they fit.

    Args:
        rows: int64, numbers of rows in the columns that follow.
        body_offsets, text_offsets: int64, one more than there are rows.
        body_data, text_data: at least one byte each, even if no row needs it.
        prefix: begins the properties; 12 hex digits of `number`, `number` + 1 … and a separator follow, then the text.

    Returns:
        The first of `rows` that was not written, and the position behind the last that was.

    Raises:
        ValueError: the properties of a row are longer than MAX_PROPERTIES.
    """
    out: cython.p_uchar
    body: cython.p_uchar
    text: cython.p_uchar
    head: cython.p_uchar
    digits: cython.p_uchar
    limit: cython.Py_ssize_t = len(memory)
    count: cython.Py_ssize_t = len(rows)
    prefix_size: cython.Py_ssize_t = len(prefix)
    row: cython.Py_ssize_t
    i: cython.Py_ssize_t = first
    j: cython.Py_ssize_t
    body_at: cython.Py_ssize_t
    body_size: cython.Py_ssize_t
    text_at: cython.Py_ssize_t
    text_size: cython.Py_ssize_t
    own_size: cython.Py_ssize_t
    size: cython.Py_ssize_t
    key: cython.longlong
    if limit == 0:
        return first, at
    if cython.compiled:
        out = cython.cast(cython.p_uchar, cython.address(memory[0]))
        body = cython.cast(cython.p_uchar, cython.address(body_data[0]))
        text = cython.cast(cython.p_uchar, cython.address(text_data[0]))
        head = cython.cast(cython.p_uchar, prefix)
        digits = cython.cast(cython.p_uchar, _DIGITS)
    else:
        out, body, text, head, digits = memory, memoryview(body_data), memoryview(text_data), prefix, _DIGITS
    while i < count:
        row = rows[i]
        body_at = body_offsets[row]
        body_size = body_offsets[row + 1] - body_at
        text_at = text_offsets[row]
        text_size = text_offsets[row + 1] - text_at
        own_size = prefix_size + 13 + text_size
        if own_size > _MAX_PROPERTIES:
            raise ValueError(f"the properties of row {row} have {own_size} bytes")
        size = 22 + body_size + own_size
        if size > limit - at:
            break
        put32(out, at, size)
        put32(out, at + 4, 0)
        put32(out, at + 8, 0)
        put32(out, at + 12, 0)
        put32(out, at + 16, body_size)
        at += 20
        copy_bytes(out, at, body, body_at, body_size)
        at += body_size
        out[at] = (own_size >> 8) & 0xFF
        out[at + 1] = own_size & 0xFF
        at += 2
        copy_bytes(out, at, head, 0, prefix_size)
        at += prefix_size
        key = number + i - first
        for j in range(12):
            out[at + 11 - j] = digits[key & 15]
            key >>= 4
        out[at + 12] = 2
        at += 13
        copy_bytes(out, at, text, text_at, text_size)
        at += text_size
        i += 1
    return i, at


def hash_rows(
    hashes: cython.ulonglong[::1],  # type: Any
    offsets: cython.const[cython.longlong][::1],  # type: Any
    values: cython.const[cython.uchar][::1],  # type: Any
) -> None:
    """Take a column into the hashes of rows: each of `hashes` becomes a hash of what it was and the row's value.

    Args:
        hashes: uint64, one for each row.
        offsets: int64, one more than there are rows.
        values: at least one byte, even if no row needs it.
    """
    data: cython.p_uchar
    row: cython.Py_ssize_t
    at: cython.Py_ssize_t
    end: cython.Py_ssize_t
    found: cython.ulonglong
    if cython.compiled:
        data = cython.cast(cython.p_uchar, cython.address(values[0]))
    else:
        data = memoryview(values)
    for row in range(len(hashes)):
        at, end = offsets[row], offsets[row + 1]
        found = int(hashes[row]) if not cython.compiled else hashes[row]
        found = ((found ^ cython.cast(cython.ulonglong, end - at)) * _FACTOR) & _WORD
        while at + 8 <= end:
            found = ((found ^ (cython.cast(cython.ulonglong, i64(data, at)) & _WORD)) * _FACTOR) & _WORD
            found ^= found >> 32
            at += 8
        while at < end:
            found = ((found ^ data[at]) * _FACTOR) & _WORD
            at += 1
        hashes[row] = found ^ (found >> 32)


def is_compiled() -> bool:
    """Return whether this module was loaded as its compiled extension, and not as Python source."""
    return bool(cython.compiled)
