"""Answers to fast-path sends, a batch at a time, from the rows that were appended (send_rows.py)."""

from typing import TYPE_CHECKING

try:
    import cython
except ModuleNotFoundError:
    from maxq.runtime import cython  # type: ignore[no-redef]

if cython.compiled:
    from cython.cimports.maxq.protocol.frame import send_rows as sr
    from cython.cimports.maxq.runtime.buffers import copy_bytes, put32, put_bytes, put_number, u32
else:
    from maxq.protocol.frame import send_rows as sr
    from maxq.runtime.buffers import copy_bytes, put32, put_bytes, put_number, u32

if TYPE_CHECKING:
    from array import array


_LANGUAGES = (
    b"JAVA",
    b"CPP",
    b"DOTNET",
    b"PYTHON",
    b"DELPHI",
    b"ERLANG",
    b"RUBY",
    b"OTHER",
    b"HTTP",
    b"GO",
    b"PHP",
    b"OMS",
    b"RUST",
    b"NODE_JS",
)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _put_hex(out: cython.p_uchar, p: cython.Py_ssize_t, value: cython.longlong) -> cython.Py_ssize_t:
    """Write a number as sixteen upper-case hex digits."""
    i: cython.int
    digit: cython.int
    for i in range(16):
        digit = (value >> (60 - 4 * i)) & 15
        out[p + i] = digit + (0x30 if digit < 10 else 0x37)
    return p + 16


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _put_int(out: cython.p_uchar, p: cython.Py_ssize_t, value: cython.longlong) -> cython.Py_ssize_t:
    """Write a 32-bit number; returns the position behind it."""
    put32(out, p, value)
    return p + 4


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _put_ids(
    out: cython.p_uchar,
    p: cython.Py_ssize_t,
    host: bytes,
    offset: cython.longlong,
    count: cython.longlong,
    log: cython.p_uchar,
    file_from_offset: cython.longlong,
) -> cython.Py_ssize_t:
    """Write the offset ids of `count` records that begin at `offset`, joined with commas."""
    i: cython.longlong
    for i in range(count):
        if i:
            out[p] = 0x2C
            p += 1
        p = put_bytes(out, p, host)
        p = _put_hex(out, p, offset)
        if i + 1 < count:
            offset += u32(log, offset - file_from_offset)
            if u32(log, offset - file_from_offset) == 1:  # the header of a DLedger entry; no record is that short
                offset += 48
    return p


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _field(out: cython.p_uchar, p: cython.Py_ssize_t, name: bytes) -> cython.Py_ssize_t:
    """Write a binary pair's key and leave room for the value's length."""
    n: cython.Py_ssize_t = len(name)
    out[p] = n >> 8
    out[p + 1] = n & 0xFF
    return put_bytes(out, p + 2, name) + 4


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _close(out: cython.p_uchar, start: cython.Py_ssize_t, p: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Fill in the length of the value that began at start."""
    _put_int(out, start - 4, p - start)
    return p


def encode_replies(
    rows: cython.longlong[::1],  # type: array[int]
    first: cython.Py_ssize_t,
    count: cython.Py_ssize_t,
    source: cython.uchar[::1],  # type: bytearray | memoryview
    scratch: bytearray,
    store_host: bytes,
    region: bytes,
    trace_on: bytes,
    language: cython.int,
    version: cython.int,
    log: cython.const[cython.uchar][::1],  # type: memoryview
    file_from_offset: cython.longlong,
    code: cython.int,
    out: bytearray,
):
    # type: (...) -> int
    """Append the answers to appended rows (not to one-way ones, nor to rows with R_COUNT 0) to `out`; returns how many
    bytes were written.
    `log` is the file that holds the rows' records (the ids of a batch are read off it)."""
    if count <= 0:
        return 0
    host: bytes = store_host.hex().upper().encode()
    number: cython.Py_ssize_t
    room: cython.Py_ssize_t = 0
    row: cython.p_longlong
    texts: cython.p_uchar
    src: cython.p_uchar
    scr: cython.p_uchar
    logged: cython.p_uchar
    target: cython.p_uchar
    begin: cython.Py_ssize_t = len(out)
    p: cython.Py_ssize_t
    start: cython.Py_ssize_t
    i: cython.Py_ssize_t
    mark: cython.Py_ssize_t
    for number in range(first, first + count):
        room += 400 + len(region) + len(trace_on) + rows[number * sr.ROW_WIDTH + sr.R_UNIQUE_SIZE]
        room += rows[number * sr.ROW_WIDTH + sr.R_COUNT] * (len(host) + 17)
    out += bytes(room)  # not extend: for it Cython 3.3 leaves out a macro in modules that share their memory views
    if cython.compiled:
        src = cython.address(source[0])
        scr = cython.cast(cython.p_uchar, cython.cast(cython.p_char, scratch))
        target = cython.cast(cython.p_uchar, cython.cast(cython.p_char, out))
        logged = cython.cast(cython.p_uchar, cython.address(log[0]))
    else:
        src, scr, target, logged = source, scratch, out, log
    p = begin
    head: bytes = b'"},"flag":1,"language":"' + _LANGUAGES[language] + b'","opaque":'
    tail: bytes = b',"serializeTypeCurrentRPC":"JSON","version":%d}' % version
    fixed: bytes = b'","TRACE_ON":"' + trace_on + b'","MSG_REGION":"' + region + b'","queueOffset":"'
    opening: bytes = b'{"code":%d,"extFields":{"queueId":"' % code
    for number in range(first, first + count):
        if cython.compiled:
            row = cython.address(rows[number * sr.ROW_WIDTH])
        else:
            row = memoryview(rows)[number * sr.ROW_WIDTH : (number + 1) * sr.ROW_WIDTH]
        if row[sr.R_FLAGS] & sr.F_ONEWAY or row[sr.R_COUNT] == 0:
            continue
        texts = scr if row[sr.R_FLAGS] & sr.F_SCRATCH else src
        start = p
        p += 8
        if row[sr.R_FLAGS] & sr.F_BINARY:
            target[p] = (code >> 8) & 0xFF
            target[p + 1] = code & 0xFF
            target[p + 2] = language
            target[p + 3] = (version >> 8) & 0xFF
            target[p + 4] = version & 0xFF
            p = _put_int(target, p + 5, row[sr.R_OPAQUE])
            p = _put_int(target, p, 1)
            p = _put_int(target, p, 0)
            i = p = p + 4
            mark = p = _field(target, p, b"queueId")
            p = _close(target, mark, put_number(target, p, row[sr.R_QUEUE_ID]))
            if row[sr.R_UNIQUE_SIZE]:
                mark = p = _field(target, p, b"transactionId")
                copy_bytes(target, p, texts, row[sr.R_UNIQUE], row[sr.R_UNIQUE_SIZE])
                p = _close(target, mark, p + row[sr.R_UNIQUE_SIZE])
            mark = p = _field(target, p, b"msgId")
            p = _close(
                target,
                mark,
                _put_ids(target, p, host, row[sr.R_PHYSICAL_OFFSET], row[sr.R_COUNT], logged, file_from_offset),
            )
            mark = p = _field(target, p, b"TRACE_ON")
            p = _close(target, mark, put_bytes(target, p, trace_on))
            mark = p = _field(target, p, b"MSG_REGION")
            p = _close(target, mark, put_bytes(target, p, region))
            mark = p = _field(target, p, b"queueOffset")
            p = _close(target, mark, put_number(target, p, row[sr.R_QUEUE_OFFSET]))
            _close(target, i, p)
        else:
            p = put_bytes(target, p, opening)
            p = put_number(target, p, row[sr.R_QUEUE_ID])
            if row[sr.R_UNIQUE_SIZE]:
                p = put_bytes(target, p, b'","transactionId":"')
                copy_bytes(target, p, texts, row[sr.R_UNIQUE], row[sr.R_UNIQUE_SIZE])
                p += row[sr.R_UNIQUE_SIZE]
            p = put_bytes(target, p, b'","msgId":"')
            p = _put_ids(target, p, host, row[sr.R_PHYSICAL_OFFSET], row[sr.R_COUNT], logged, file_from_offset)
            p = put_bytes(target, p, fixed)
            p = put_number(target, p, row[sr.R_QUEUE_OFFSET])
            p = put_bytes(target, p, head)
            p = put_number(target, p, row[sr.R_OPAQUE])
            p = put_bytes(target, p, tail)
        _put_int(target, start, p - start - 4)
        _put_int(target, start + 4, (p - start - 8) | (0x1000000 if row[sr.R_FLAGS] & sr.F_BINARY else 0))
    del out[p:]
    return p - begin
