"""The CommitLog record scanner: bytes of a log file → rows of int64, one row a record.

Recovery, the offline tools and the data pipeline all read the log through `scan`. Layout of a record: record_layout.py.
TOTALSIZE must be the sum of the parts. The rules are those of CommitLog.checkMessageAndReturnSize plus one: the stored
physical offset must be the place where the record is found, so a stale record behind a truncated end, or a record
copied elsewhere, is not taken for a message.

Runs compiled and uncompiled; `buf` is a byte pointer in the one and the memoryview itself in the other.
"""

from isal.isal_zlib import crc32

from maxq.store.log.crc32_function import address

try:
    import cython
except ModuleNotFoundError:
    from maxq.runtime import cython  # type: ignore[no-redef]

if cython.compiled:
    from cython.cimports.maxq.protocol.message import record_layout as layout
    from cython.cimports.maxq.runtime.buffers import i16, i32, i64, u32
    from cython.cimports.maxq.store.log.crc32_function import maxq_crc32_t

    _crc32 = cython.declare(maxq_crc32_t, cython.cast(maxq_crc32_t, cython.cast(cython.size_t, address())))
else:
    from maxq.protocol.message import record_layout as layout
    from maxq.runtime.buffers import i16, i32, i64, u32

SCAN_WIDTH = 20
(
    C_POSITION,
    C_SIZE,
    C_PHYSICAL_OFFSET,
    C_QUEUE_ID,
    C_QUEUE_OFFSET,
    C_SYS_FLAG,
    C_FLAG,
    C_BORN_TIMESTAMP,
    C_STORE_TIMESTAMP,
    C_RECONSUME_TIMES,
    C_PREPARED_OFFSET,
    C_BODY_CRC,
    C_BODY_POSITION,
    C_BODY_SIZE,
    C_TOPIC_POSITION,
    C_TOPIC_SIZE,
    C_PROPERTIES_POSITION,
    C_PROPERTIES_SIZE,
    C_BORN_HOST_POSITION,
    C_STORE_HOST_POSITION,
) = range(20)

STOP_ROWS_FULL = 0  # the row buffer is full; call again from `position`
STOP_END = 1  # reached `end`
STOP_BLANK = 2  # a BLANK record: the rest of the file is unused
STOP_ZERO = 3  # eight zero bytes: nothing was written here
STOP_BAD_MAGIC = 4
STOP_BAD_SIZE = 5  # size too small, past `end`, or not the sum of its parts
STOP_BAD_CRC = 6  # body CRC (or property CRC when asked) is wrong
STOP_BAD_OFFSET = 7  # the stored physical offset is not this place: a stale or foreign record


#: `__CRC32#` 0x01 ten digits 0x02 (CommitLog.CRC32_RESERVED_LEN).
PROP_CRC_SIZE = 20
_PROP_CRC_NAME = b"__CRC32#\x01"


@cython.cfunc
@cython.exceptval(check=False)
def crc31_at(buf: cython.p_uchar, p: cython.Py_ssize_t, size: cython.Py_ssize_t) -> cython.uint:
    """UtilAll.crc32 of buf[p : p + size]."""
    if not cython.compiled:
        return crc32(buf[p : p + size]) & 0x7FFFFFFF
    return _crc32(0, buf + p, size) & 0x7FFFFFFF


@cython.cfunc
@cython.exceptval(-100, check=False)
def _record(
    view: object,
    buf: cython.p_uchar,
    p: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    file_from_offset: cython.longlong,
    row: cython.p_longlong,
    check_crc: cython.bint,
    check_prop_crc: cython.bint,
    check_offset: cython.bint,
) -> cython.int:
    """Check the record at p and fill `row`. 0 if it is good, else a STOP_… code."""
    left: cython.longlong = end - p
    if left < 8:
        return 1
    total: cython.longlong = i32(buf, p)
    magic: cython.uint = u32(buf, p + layout.MAGIC)
    if magic == layout.MAGIC_BLANK:
        return 2
    if magic != layout.MAGIC_V1 and magic != layout.MAGIC_V2:
        return 3 if magic == 0 and total == 0 else 4
    if total < layout.MIN_RECORD_SIZE or total > left:
        return 5
    sys_flag: cython.int = i32(buf, p + layout.SYS_FLAG)
    born_size: cython.Py_ssize_t = layout.born_host_size(sys_flag)
    store_size: cython.Py_ssize_t = layout.store_host_size(sys_flag)
    q: cython.Py_ssize_t = p + layout.body_size_at(sys_flag)
    limit: cython.Py_ssize_t = p + total
    if q + 4 > limit:
        return 5
    body_size: cython.longlong = i32(buf, q)
    body: cython.Py_ssize_t = q + 4
    if body_size < 0 or body + body_size + 3 > limit:
        return 5
    q = body + body_size
    topic_size: cython.Py_ssize_t
    if magic == layout.MAGIC_V1:
        topic_size = buf[q]
        q += 1
        if topic_size > 127:
            return 5
    else:
        topic_size = i16(buf, q)
        q += 2
        if topic_size < 0:
            return 5
    topic: cython.Py_ssize_t = q
    q += topic_size
    if q + 2 > limit:
        return 5
    properties_size: cython.Py_ssize_t = i16(buf, q)
    q += 2
    if properties_size < 0 or q + properties_size != limit:
        return 5
    physical_offset: cython.longlong = i64(buf, p + layout.PHYSICAL_OFFSET)
    if check_offset and physical_offset != file_from_offset + p:
        return 7
    if check_crc and body_size > 0 and crc31_at(buf, body, body_size) != u32(buf, p + layout.BODY_CRC):
        return 6
    if check_prop_crc and not _is_whole(
        view[p:limit], view[body : body + body_size], u32(buf, p + layout.BODY_CRC), properties_size
    ):
        return 6
    row[0] = p
    row[1] = total
    row[2] = physical_offset
    row[3] = i32(buf, p + layout.QUEUE_ID)
    row[4] = i64(buf, p + layout.QUEUE_OFFSET)
    row[5] = sys_flag
    row[6] = i32(buf, p + layout.FLAG)
    row[7] = i64(buf, p + layout.BORN_TIMESTAMP)
    row[8] = i64(buf, p + layout.BORN_HOST + born_size)
    row[9] = i32(buf, p + 56 + born_size + store_size)
    row[10] = i64(buf, p + 60 + born_size + store_size)
    row[11] = i32(buf, p + layout.BODY_CRC)
    row[12] = body
    row[13] = body_size
    row[14] = topic
    row[15] = topic_size
    row[16] = q
    row[17] = properties_size
    row[18] = p + layout.BORN_HOST
    row[19] = p + 56 + born_size
    return 0


@cython.wraparound(True)
def _is_whole(record: memoryview, body: memoryview, body_crc: int, properties_size: int) -> bool:
    """Return whether the `__CRC32#` property at the end of `record` is right (forceVerifyPropCRC). Its digits stand
    least significant first. A record without it was written without enabledAppendPropCRC, or is a filler: the CRC of
    its body tells, and its last byte, for properties do not end with a zero byte, as torn ones do."""
    if not _has_prop_crc(record):
        return (not body or crc31(body) == body_crc) and (properties_size == 0 or record[-1] != 0)
    digits = bytes(record[-PROP_CRC_SIZE + len(_PROP_CRC_NAME) : -1])
    return digits == encode_prop_crc(crc31(record[:-PROP_CRC_SIZE]))


@cython.wraparound(True)
def _has_prop_crc(record: memoryview) -> bool:
    """Returns whether the properties of `record` end with the property `__CRC32#`."""
    tail = bytes(record[-PROP_CRC_SIZE:])
    return tail.startswith(_PROP_CRC_NAME) and tail[-1] == 2


@cython.wraparound(True)
def renew_prop_crc(record: memoryview) -> None:
    """Set the `__CRC32#` property at the end of a record that was changed, if it has one."""
    if _has_prop_crc(record):
        record[-PROP_CRC_SIZE + len(_PROP_CRC_NAME) : -1] = encode_prop_crc(crc31(record[:-PROP_CRC_SIZE]))


@cython.wraparound(True)
def encode_prop_crc(value: int) -> bytes:
    """The ten bytes in which the property __CRC32# holds a checksum."""
    return str(value).encode()[::-1].ljust(10, b"0")


def scan(
    view: cython.const[cython.uchar][::1],  # type: memoryview
    start: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    file_from_offset: cython.longlong,
    rows: cython.longlong[::1],  # type: Any
    *,
    check_crc: cython.bint = True,
    check_prop_crc: cython.bint = False,
    check_offset: cython.bint = True,
):
    # type: (...) -> tuple[int, int, int]
    """Read records from view[start:end] into `rows` (array('q'), SCAN_WIDTH columns a record).
    Returns (count, position after the last good record, stop reason)."""
    if end > len(view) or start < 0 or start > end:
        raise ValueError(f"range [{start}, {end}) is outside the file of {len(view)} bytes")
    if start == end:
        return 0, start, 1
    room: cython.Py_ssize_t = len(rows) // 20
    count: cython.Py_ssize_t = 0
    p: cython.Py_ssize_t = start
    result: cython.int
    whole: object = view if not cython.compiled else memoryview(view)
    buf: cython.p_uchar
    out: cython.p_longlong
    row: object
    if cython.compiled:
        if room == 0:
            return 0, start, 0
        buf = cython.cast(cython.p_uchar, cython.address(view[0]))
        out = cython.address(rows[0])
        while count < room:
            result = _record(
                whole, buf, p, end, file_from_offset, out + count * 20, check_crc, check_prop_crc, check_offset
            )
            if result != 0:
                return count, p, result
            p += out[count * 20 + 1]
            count += 1
            if p >= end:
                return count, p, 1
    else:
        if not isinstance(view, memoryview):
            view = whole = memoryview(view)
        row = [0] * 20
        while count < room:
            result = _record(whole, view, p, end, file_from_offset, row, check_crc, check_prop_crc, check_offset)
            if result != 0:
                return count, p, result
            for column in range(20):
                rows[count * 20 + column] = row[column]
            p += row[1]
            count += 1
            if p >= end:
                return count, p, 1
    return count, p, 0


def find_record(
    view: cython.const[cython.uchar][::1],  # type: memoryview
    start: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    file_from_offset: cython.longlong,
) -> int:
    """The first position ≥ start that holds a whole good record (magic, size, parts, own physical offset, body CRC),
    or -1. Used to tell damage in the middle from a torn tail."""
    whole: object = memoryview(view)
    p: cython.Py_ssize_t = start
    found: cython.Py_ssize_t
    needle: bytes
    row: cython.longlong[20]
    row: cython.longlong[20]
    buf: cython.p_uchar
    if end > len(view):
        raise ValueError(f"end {end} is outside the file of {len(view)} bytes")
    if end - start < layout.MIN_RECORD_SIZE:
        return -1
    if cython.compiled:
        buf = cython.cast(cython.p_uchar, cython.address(view[0]))
        while p + layout.MIN_RECORD_SIZE <= end:
            # Byte 4 of a record is 0xDA, so the magic code is searched for; everything else is checked then.
            if (
                buf[p + 4] == 0xDA
                and buf[p + 5] == 0xA3
                and buf[p + 6] == 0x20
                and _record(
                    whole,
                    buf,
                    p,
                    end,
                    file_from_offset,
                    row,
                    True,
                    False,
                    True,
                )
                == 0
            ):
                return p
            p += 1
        return -1
    columns = [0] * 20
    while p + layout.MIN_RECORD_SIZE <= end:
        step = 1 << 20
        needle = bytes(whole[p + 4 : min(end, p + 4 + step + 3)])
        found = needle.find(b"\xda\xa3\x20")
        if found < 0:
            p += step
            continue
        p += found
        if _record(whole, whole, p, end, file_from_offset, columns, True, False, True) == 0:
            return p
        p += 1
    return -1


@cython.ccall
def check_chain(
    view: cython.const[cython.uchar][::1],  # type: memoryview
    start: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
) -> cython.bint:
    """Return whether records follow each other from `start` and end exactly at `end`, by their sizes and magic
    codes."""
    p: cython.Py_ssize_t = start
    total: cython.longlong
    magic: cython.uint
    buf: cython.p_uchar
    if start < 0 or end > len(view) or start >= end:
        return False
    if cython.compiled:
        buf = cython.cast(cython.p_uchar, cython.address(view[0]))
    else:
        buf = memoryview(view)
    while end - p >= layout.MIN_RECORD_SIZE:
        total = i32(buf, p)
        magic = u32(buf, p + layout.MAGIC)
        if total < layout.MIN_RECORD_SIZE or (magic != layout.MAGIC_V1 and magic != layout.MAGIC_V2):
            return False
        p += total
    return p == end


def cut(
    view: cython.const[cython.uchar][::1],  # type: memoryview
    file_from_offset: cython.longlong,
    end_offset: cython.longlong,
    ranges: list,  # type: list[tuple[int, int]]
) -> list:
    # type: (...) -> list[memoryview] | None
    """Slices of one file (it begins at `file_from_offset`) for ranges of physical offset and size below `end_offset`,
    each a chain of whole records; None if one is not, or is not in this file."""
    whole: object = memoryview(view)
    found: list = []
    start: cython.longlong
    size: cython.longlong
    for start, size in ranges:
        if start < file_from_offset or start + size > end_offset:
            return None
        start -= file_from_offset
        if start + size > len(view) or not check_chain(view, start, start + size):
            return None
        found.append(whole[start : start + size])
    return found


def crc31(
    data,  # type: bytes | bytearray | memoryview
) -> int:
    """CRC-32 with bit 31 cleared (UtilAll.crc32); 0 for empty input."""
    return crc32(data) & 0x7FFFFFFF


def is_compiled() -> bool:
    """Returns whether this module runs compiled by Cython."""
    return cython.compiled
