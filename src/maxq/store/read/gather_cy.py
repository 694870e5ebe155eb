"""Records of one queue copied into one piece, for readers that ask for much at once (`maxqMaxBytes` of a pull).

Where topics share a log, the records of one queue are small islands: an answer of some thousand of them as slices of
the mapped file costs more to send than to copy. On the way parts that the reader does not want are left out: a record
without its body, or without body and properties, is a record still, whose lengths say so.

Layout of a record: record_layout.py. Runs compiled and uncompiled; `buf` is a byte pointer in the one and the
memoryview itself in the other.
"""

try:
    import cython
except ModuleNotFoundError:
    from maxq.runtime import cython  # type: ignore[no-redef]

if cython.compiled:
    from cython.cimports.maxq.protocol.message import record_layout as layout
    from cython.cimports.maxq.runtime.buffers import copy_bytes, i32, put32
else:
    from maxq.protocol.message import record_layout as layout
    from maxq.runtime.buffers import copy_bytes, i32, put32

OMIT_NOTHING = 0
OMIT_BODY = 1
OMIT_BODY_AND_PROPERTIES = 2


@cython.cfunc
@cython.exceptval(check=False)
def _copy_head(
    target: cython.p_uchar,
    at: cython.Py_ssize_t,
    buf: cython.p_uchar,
    p: cython.Py_ssize_t,
    total: cython.Py_ssize_t,
    room: cython.Py_ssize_t,
    wide: cython.bint,
    omit: cython.int,
) -> cython.Py_ssize_t:
    """Copy the record at p without its body (and properties). Returns the bytes written; -1 if the parts do not add up
    to the record's size."""
    head: cython.Py_ssize_t = layout.body_size_at(i32(buf, p + layout.SYS_FLAG))
    body: cython.Py_ssize_t
    topic: cython.Py_ssize_t
    properties: cython.Py_ssize_t
    rest: cython.Py_ssize_t
    if head + 7 > total:
        return -1
    body = i32(buf, p + head)
    rest = head + 4 + body
    if body < 0 or rest + 3 + wide > total:
        return -1
    topic = (buf[p + rest] << 8 | buf[p + rest + 1]) if wide else buf[p + rest]
    topic += 2 if wide else 1
    if rest + topic + 2 > total:
        return -1
    properties = buf[p + rest + topic] << 8 | buf[p + rest + topic + 1]
    if rest + topic + 2 + properties != total:
        return -1
    if omit == 2:
        properties = 0
    if head + 4 + topic + 2 + properties > room:
        return -1
    copy_bytes(target, at, buf, p, head)
    put32(target, at + head, 0)
    copy_bytes(target, at + head + 4, buf, p + rest, topic + 2 + properties)
    rest = head + 4 + topic + 2 + properties
    if omit == 2:
        target[at + rest - 2] = 0
        target[at + rest - 1] = 0
    put32(target, at, rest)
    return rest


def gather(
    view: cython.const[cython.uchar][::1],  # type: memoryview
    file_from_offset: cython.longlong,
    end_offset: cython.longlong,
    ranges: list,  # type: list[tuple[int, int]]
    out: cython.uchar[::1],  # type: bytearray | memoryview
    position: cython.Py_ssize_t,
    omit: cython.int,
) -> cython.Py_ssize_t:
    """Copy `ranges` (physical offset, bytes) of one file, which begins at `file_from_offset`, into out[position:].

    Args:
        ranges: chains of whole records below `end_offset`.
        omit: one of the OMIT_… values.

    Returns:
        The position behind what was copied; -1 if some range is not a chain of whole records of this file, or `out` is
        too small.
    """
    start: cython.longlong
    size: cython.longlong
    p: cython.Py_ssize_t
    end: cython.Py_ssize_t
    total: cython.Py_ssize_t
    written: cython.Py_ssize_t
    at: cython.Py_ssize_t = position
    room: cython.Py_ssize_t = len(out)
    buf: cython.p_uchar
    target: cython.p_uchar
    if not len(view) or not room or position < 0:
        return -1
    if cython.compiled:
        buf = cython.cast(cython.p_uchar, cython.address(view[0]))
        target = cython.address(out[0])
    else:
        buf = memoryview(view)
        target = memoryview(out)
    for start, size in ranges:
        p = start - file_from_offset
        end = p + size
        if size <= 0 or p < 0 or start + size > end_offset or end > len(view) or (omit == 0 and size > room - at):
            return -1
        while p < end:
            total = i32(buf, p) if end - p >= layout.MIN_RECORD_SIZE else 0
            if (
                total < layout.MIN_RECORD_SIZE
                or total > end - p
                or buf[p + 4] != 0xDA
                or buf[p + 5] != 0xA3
                or buf[p + 6] != 0x20
                or (buf[p + 7] != 0xA7 and buf[p + 7] != 0xAB)
            ):
                return -1
            if omit == 0:
                copy_bytes(target, at, buf, p, total)
                at += total
            else:
                written = _copy_head(target, at, buf, p, total, room - at, buf[p + 7] == 0xAB, omit)
                if written < 0:
                    return -1
                at += written
            p += total
    return at


def is_compiled() -> bool:
    """Returns whether this module runs compiled by Cython."""
    return cython.compiled
