"""Append to the CommitLog and dispatch from it: the compiled heart of the store.

Two movements, and no third:

* **append**: `LogTail` writes records at the end of the log and takes their queue offsets from `QueueTail`. Send rows
  (a batch of plain sends that protocol/frames_cy read straight from the receive buffer) and single records from the
  general path go through the same `_write_head`.
* **dispatch**: `Dispatcher.run` reads a range of log and writes what they lack into ConsumeQueues
  (`QueueTail.append`) and the IndexFile (`IndexTail.put_key`). Normal run, SYNC_FLUSH, slave and recovery differ only
  in the range they give.

The duplicate tests (`max_physical_offset` of a queue, `end_physical_offset` of an index) make dispatch idempotent.
Formats: record_cy.py (record), ConsumeQueue.java (unit), IndexFile.java (index). Files are attached and rolled by their
owners in Python: this module never opens, sizes or deletes one.
"""

from isal.isal_zlib import crc32

from maxq.store.crc32_function import address
from maxq.store.record_cy import encode_prop_crc

try:
    import cython
except ModuleNotFoundError:
    from maxq.runtime import cython  # type: ignore[no-redef]

if cython.compiled:
    from cython.cimports.libc.string import memcmp, memcpy
    from cython.cimports.maxq.store.crc32_function import maxq_crc32_t

    _crc32 = cython.declare(maxq_crc32_t, cython.cast(maxq_crc32_t, cython.cast(cython.size_t, address())))

#: Columns of a send row.
ROW_WIDTH = 20
(
    R_FLAGS,
    R_OPAQUE,
    R_TOPIC,
    R_TOPIC_SIZE,
    R_QUEUE_ID,
    R_SYS_FLAG,
    R_BORN_TIMESTAMP,
    R_FLAG,
    R_PROPERTIES,
    R_PROPERTIES_SIZE,
    R_BODY,
    R_BODY_SIZE,
    R_RECONSUME_TIMES,
    R_PHYSICAL_OFFSET,
    R_QUEUE_OFFSET,
    R_SIZE,
    R_COUNT,
    R_UNIQUE,
    R_UNIQUE_SIZE,
    R_FRAME,
) = range(20)
#: Bits of R_FLAGS.
F_SCRATCH = 1  # properties are in the scratch buffer, not in the source
F_ONEWAY = 2
F_BINARY = 4  # header serialization ROCKETMQ
F_BATCH = 8  # body is a batch (MessageDecoder.encodeMessages)
F_NO_WAIT = 16  # WAIT=false: the answer does not wait for the disk

_MAX_PROPERTIES = cython.declare(cython.int, 32767)
_BLANK_UNIT_SIZE = cython.declare(cython.longlong, 0x7FFFFFFF)

#: Tags code of a unit that keeps the place of a damaged message ("MAXQDAMG"); readers pass over it. No hash and no
#: delivery time has this value, and ConsumeQueueExt addresses are negative.
DAMAGED_TAGS_CODE = 0x4D415851_44414D47
_DAMAGED = cython.declare(cython.longlong, 0x4D415851_44414D47)
_MOST_UNITS = cython.declare(cython.longlong, 1 << 58)
_EXT_ADDRESS_MAX = cython.declare(cython.longlong, -2147483649)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _crc31(buf: cython.p_uchar, p: cython.Py_ssize_t, size: cython.Py_ssize_t) -> cython.uint:
    """UtilAll.crc32 of buf[p : p + size]."""
    if not cython.compiled:
        return crc32(buf[p : p + size]) & 0x7FFFFFFF
    return _crc32(0, buf + p, size) & 0x7FFFFFFF


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _u32(buf: cython.p_uchar, p: cython.Py_ssize_t) -> cython.uint:
    if not cython.compiled:
        return int.from_bytes(buf[p : p + 4], "big")
    return (
        (cython.cast(cython.uint, buf[p]) << 24)
        | (cython.cast(cython.uint, buf[p + 1]) << 16)
        | (cython.cast(cython.uint, buf[p + 2]) << 8)
        | cython.cast(cython.uint, buf[p + 3])
    )


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _i32(buf: cython.p_uchar, p: cython.Py_ssize_t) -> cython.int:
    if not cython.compiled:
        return int.from_bytes(buf[p : p + 4], "big", signed=True)
    return cython.cast(cython.int, _u32(buf, p))


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _i64(buf: cython.p_uchar, p: cython.Py_ssize_t) -> cython.longlong:
    if not cython.compiled:
        return int.from_bytes(buf[p : p + 8], "big", signed=True)
    return cython.cast(
        cython.longlong,
        (cython.cast(cython.ulonglong, _u32(buf, p)) << 32) | cython.cast(cython.ulonglong, _u32(buf, p + 4)),
    )


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _put32(buf: cython.p_uchar, p: cython.Py_ssize_t, value: cython.longlong) -> cython.void:
    if cython.compiled:
        buf[p] = (value >> 24) & 0xFF
        buf[p + 1] = (value >> 16) & 0xFF
        buf[p + 2] = (value >> 8) & 0xFF
        buf[p + 3] = value & 0xFF
    else:
        buf[p : p + 4] = (value & 0xFFFFFFFF).to_bytes(4, "big")


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _put64(buf: cython.p_uchar, p: cython.Py_ssize_t, value: cython.longlong) -> cython.void:
    if cython.compiled:
        _put32(buf, p, value >> 32)
        _put32(buf, p + 4, value)
    else:
        buf[p : p + 8] = (value & 0xFFFFFFFFFFFFFFFF).to_bytes(8, "big")


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _copy(
    target: cython.p_uchar, p: cython.Py_ssize_t, source: cython.p_uchar, q: cython.Py_ssize_t, n: cython.Py_ssize_t
) -> cython.void:
    if cython.compiled:
        memcpy(target + p, source + q, n)
    else:
        target[p : p + n] = source[q : q + n]


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _hash(buf: cython.p_uchar, p: cython.Py_ssize_t, end: cython.Py_ssize_t, h: cython.uint) -> cython.uint:
    """Continue Java's String.hashCode over UTF-8 bytes: 31*h + each UTF-16 code unit."""
    c: cython.uint
    if not cython.compiled:
        units = bytes(buf[p:end]).decode("utf-8", "replace").encode("utf-16-be", "surrogatepass")
        for i in range(0, len(units), 2):
            h = (31 * h + (units[i] << 8 | units[i + 1])) & 0xFFFFFFFF
        return h
    while p < end:
        c = buf[p]
        if c < 0x80:
            p += 1
        elif c < 0xE0 and p + 1 < end:
            c = ((c & 0x1F) << 6) | (buf[p + 1] & 0x3F)
            p += 2
        elif c < 0xF0 and p + 2 < end:
            c = ((c & 0x0F) << 12) | ((buf[p + 1] & 0x3F) << 6) | (buf[p + 2] & 0x3F)
            p += 3
        elif p + 3 < end:
            c = ((c & 0x07) << 18) | ((buf[p + 1] & 0x3F) << 12) | ((buf[p + 2] & 0x3F) << 6) | (buf[p + 3] & 0x3F)
            p += 4
            if c >= 0x10000:
                c -= 0x10000
                h = 31 * h + (0xD800 | (c >> 10))
                c = 0xDC00 | (c & 0x3FF)
        else:
            c = 0xFFFD
            p += 1
        h = 31 * h + c
    return h


def jhash(text: str) -> int:
    """Java's String.hashCode, signed 32 bits."""
    h: cython.uint = 0
    units: bytes = text.encode("utf-16-be", "surrogatepass")
    i: cython.Py_ssize_t
    n: cython.Py_ssize_t = len(units)
    value: cython.uint
    for i in range(0, n, 2):
        value = (units[i] << 8) | units[i + 1]
        h = (31 * h + value) & 0xFFFFFFFF
    return h - 0x100000000 if h >= 0x80000000 else h


@cython.cclass
class QueueTail:
    """The writing end of one ConsumeQueue, and the counter that assigns its queue offsets (see log_cy.pyi)."""

    topic = cython.declare(object, visibility="public")
    queue_id = cython.declare(cython.int, visibility="public")
    owner = cython.declare(object, visibility="public")
    next_queue_offset = cython.declare(cython.longlong, visibility="public")
    max_physical_offset = cython.declare(cython.longlong, visibility="public")
    write_offset = cython.declare(cython.longlong, visibility="public")
    watched = cython.declare(cython.bint, visibility="public")
    _view = cython.declare(cython.uchar[::1])
    _buf = cython.declare(cython.p_uchar)
    _file_from = cython.declare(cython.longlong)
    _file_size = cython.declare(cython.longlong)

    def __init__(self, topic, queue_id, owner):
        self.topic = topic
        self.queue_id = queue_id
        self.owner = owner
        self.next_queue_offset = 0
        self.max_physical_offset = -1
        self.write_offset = 0
        self.watched = False
        self._view = None
        self._file_from = 0
        self._file_size = 0

    def attach(self, view, file_from_offset, position):
        self._view = view
        self._file_from = file_from_offset
        self._file_size = 0 if view is None else len(view)
        if view is not None:
            if cython.compiled:
                self._buf = cython.address(self._view[0])
            else:
                self._buf = view
            self.write_offset = file_from_offset + position

    @cython.ccall
    def append(self, physical_offset: cython.longlong, size: cython.int, tags_code: cython.longlong) -> cython.bint:
        p: cython.longlong = self.write_offset - self._file_from
        if p < 0 or p + 20 > self._file_size:
            return False
        _put64(self._buf, p, physical_offset)
        _put32(self._buf, p + 8, size)
        _put64(self._buf, p + 12, tags_code)
        self.write_offset += 20
        self.max_physical_offset = physical_offset + size
        return True


@cython.cclass
class TopicTail:
    """What append and dispatch know of a topic (see log_cy.pyi)."""

    topic = cython.declare(object, visibility="public")
    topic_bytes = cython.declare(bytes, visibility="public")
    plain = cython.declare(cython.bint, visibility="public")
    hooked = cython.declare(cython.bint, visibility="public")
    batch = cython.declare(cython.bint, visibility="public")
    max_queue_id = cython.declare(cython.int, visibility="public")
    write_queue_nums = cython.declare(cython.int, visibility="public")
    multi_tags = cython.declare(cython.bint, visibility="public")
    delay_levels = cython.declare(cython.bint, visibility="public")
    put_nums = cython.declare(cython.longlong, visibility="public")
    put_bytes = cython.declare(cython.longlong, visibility="public")
    queues = cython.declare(dict, visibility="public")
    _key_hash = cython.declare(cython.uint)

    def __init__(self, topic):
        self.topic = topic
        self.topic_bytes = topic.encode()
        self.plain = False
        self.hooked = False
        self.batch = False
        self.max_queue_id = -1
        self.write_queue_nums = 0
        self.multi_tags = False
        self.delay_levels = False
        self.put_nums = 0
        self.put_bytes = 0
        self.queues = {}
        self._key_hash = jhash(topic + "#") & 0xFFFFFFFF

    def set_queue(self, queue_id: cython.Py_ssize_t, tail):
        if tail is None:
            self.queues.pop(queue_id, None)
        else:
            self.queues[queue_id] = tail


@cython.cclass
class IndexTail:
    """The writing end of the newest IndexFile: 40-byte header, slots of 4, entries of 20 (IndexFile.java)."""

    index_count = cython.declare(cython.int, visibility="public")
    begin_timestamp = cython.declare(cython.longlong, visibility="public")
    end_timestamp = cython.declare(cython.longlong, visibility="public")
    begin_physical_offset = cython.declare(cython.longlong, visibility="public")
    end_physical_offset = cython.declare(cython.longlong, visibility="public")
    _hash_slot_count = cython.declare(cython.int)
    _slot_nums = cython.declare(cython.int)
    _max_index_nums = cython.declare(cython.int)
    _view = cython.declare(cython.uchar[::1])
    _buf = cython.declare(cython.p_uchar)

    def __init__(self):
        self._max_index_nums = 0
        self.index_count = 1
        self.begin_timestamp = self.end_timestamp = self.begin_physical_offset = self.end_physical_offset = 0

    def attach(self, view, slot_nums, max_index_nums):
        self._view = view
        self._slot_nums = slot_nums
        self._max_index_nums = 0 if view is None else max_index_nums
        if view is None:
            return
        if cython.compiled:
            self._buf = cython.address(self._view[0])
        else:
            self._buf = view
        self.begin_timestamp = _i64(self._buf, 0)
        self.end_timestamp = _i64(self._buf, 8)
        self.begin_physical_offset = _i64(self._buf, 16)
        self.end_physical_offset = _i64(self._buf, 24)
        self._hash_slot_count = _i32(self._buf, 32)
        self.index_count = _i32(self._buf, 36)
        if self.index_count <= 0:
            self.index_count = 1
            _put32(self._buf, 36, 1)

    def is_full(self) -> bool:
        return self.index_count >= self._max_index_nums

    @cython.ccall
    def put_key(
        self, key_hash: cython.longlong, physical_offset: cython.longlong, store_timestamp: cython.longlong
    ) -> cython.bint:
        if self.index_count >= self._max_index_nums:
            return False
        slot_position: cython.longlong = 40 + 4 * (key_hash % self._slot_nums)
        buf: cython.p_uchar = self._buf
        previous: cython.int = _i32(buf, slot_position)
        if previous <= 0 or previous > self.index_count:
            previous = 0
        seconds: cython.longlong = 0
        if self.begin_timestamp > 0:
            seconds = store_timestamp - self.begin_timestamp
            # Java divides toward zero; negative differences are clamped anyway
            seconds = 0 if seconds < 0 else seconds // 1000
            if seconds > 0x7FFFFFFF:
                seconds = 0x7FFFFFFF
        p: cython.longlong = (
            40 + 4 * cython.cast(cython.longlong, self._slot_nums) + 20 * cython.cast(cython.longlong, self.index_count)
        )
        _put32(buf, p, key_hash)
        _put64(buf, p + 4, physical_offset)
        _put32(buf, p + 12, seconds)
        _put32(buf, p + 16, previous)
        _put32(buf, slot_position, self.index_count)
        if self.index_count <= 1:
            self.begin_physical_offset = physical_offset
            self.begin_timestamp = store_timestamp
            _put64(buf, 0, store_timestamp)
            _put64(buf, 16, physical_offset)
        if previous == 0:
            self._hash_slot_count += 1
            _put32(buf, 32, self._hash_slot_count)
        self.index_count += 1
        self.end_physical_offset = physical_offset
        self.end_timestamp = store_timestamp
        _put64(buf, 8, store_timestamp)
        _put64(buf, 24, physical_offset)
        _put32(buf, 36, self.index_count)
        return True


@cython.cclass
class LogTail:
    """The writing end of the CommitLog (see log_cy.pyi)."""

    wrote_position = cython.declare(cython.longlong, visibility="public")
    file_from_offset = cython.declare(cython.longlong, visibility="public")
    file_size = cython.declare(cython.longlong, visibility="public")
    full = cython.declare(cython.bint, visibility="public")
    _view = cython.declare(cython.uchar[::1])
    _buf = cython.declare(cython.p_uchar)
    _topic = cython.declare(TopicTail)  # of the last row: the next one is most often of the same topic

    def __init__(self):
        self.wrote_position = self.file_from_offset = self.file_size = 0
        self.full = False
        self._topic = None

    def attach(self, view, file_from_offset, file_size, position):
        self._view = view
        self.file_from_offset = file_from_offset
        self.file_size = 0 if view is None else file_size
        self.wrote_position = position
        if view is not None:
            if cython.compiled:
                self._buf = cython.address(self._view[0])
            else:
                self._buf = view

    @property
    def max_offset(self):
        return self.file_from_offset + self.wrote_position

    def close_file(self):
        """Write BLANK over the rest of the file."""
        if self.file_size - self.wrote_position >= 8:
            _put32(self._buf, self.wrote_position, self.file_size - self.wrote_position)
            _put32(self._buf, self.wrote_position + 4, 0xCBD43194)
        self.wrote_position = self.file_size

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def _write_head(
        self,
        p: cython.longlong,
        total: cython.longlong,
        v2: cython.bint,
        body_crc: cython.longlong,
        queue_id: cython.int,
        flag: cython.longlong,
        queue_offset: cython.longlong,
        sys_flag: cython.longlong,
        born_timestamp: cython.longlong,
        born_host: cython.p_uchar,
        born_size: cython.Py_ssize_t,
        store_timestamp: cython.longlong,
        store_host: cython.p_uchar,
        store_size: cython.Py_ssize_t,
        reconsume_times: cython.longlong,
        prepared_offset: cython.longlong,
        body_size: cython.longlong,
    ) -> cython.longlong:
        """Fields 1 to 15 up to BODYLEN; returns the position of the body."""
        buf: cython.p_uchar = self._buf
        _put32(buf, p, total)
        _put32(buf, p + 4, 0xDAA320AB if v2 else 0xDAA320A7)
        _put32(buf, p + 8, body_crc)
        _put32(buf, p + 12, queue_id)
        _put32(buf, p + 16, flag)
        _put64(buf, p + 20, queue_offset)
        _put64(buf, p + 28, self.file_from_offset + p)
        _put32(buf, p + 36, sys_flag)
        _put64(buf, p + 40, born_timestamp)
        _copy(buf, p + 48, born_host, 0, born_size)
        p += 48 + born_size
        _put64(buf, p, store_timestamp)
        _copy(buf, p + 8, store_host, 0, store_size)
        p += 8 + store_size
        _put32(buf, p, reconsume_times)
        _put64(buf, p + 4, prepared_offset)
        _put32(buf, p + 12, body_size)
        return p + 16

    def append_record(
        self,
        topic: bytes,
        queue_id: cython.int,
        flag: cython.longlong,
        queue_offset: cython.longlong,
        sys_flag: cython.longlong,
        born_timestamp: cython.longlong,
        born_host: bytes,
        store_timestamp: cython.longlong,
        store_host: bytes,
        reconsume_times: cython.longlong,
        prepared_transaction_offset: cython.longlong,
        body: cython.const[cython.uchar][::1],
        properties: bytes,
        body_crc: cython.longlong,
        append_prop_crc: cython.bint,
    ):
        body_size: cython.longlong = len(body)
        topic_size: cython.longlong = len(topic)
        properties_size: cython.longlong = len(properties)
        v2: cython.bint = topic_size > 127
        if append_prop_crc and properties_size and not properties.endswith(b"\x02"):
            properties += b"\x02"
            properties_size += 1
        reserved: cython.longlong = 20 if append_prop_crc else 0
        total: cython.longlong = (
            75
            + len(born_host)
            + len(store_host)
            + body_size
            + topic_size
            + (1 if v2 else 0)
            + properties_size
            + reserved
        )
        p: cython.longlong = self.wrote_position
        if total + 8 > self.file_size - p:
            return -1
        born: cython.p_uchar
        store: cython.p_uchar
        source: cython.p_uchar
        if cython.compiled:
            born = cython.cast(cython.p_uchar, cython.cast(cython.p_char, born_host))
            store = cython.cast(cython.p_uchar, cython.cast(cython.p_char, store_host))
        else:
            born, store = born_host, store_host
        buf: cython.p_uchar = self._buf
        q: cython.longlong = self._write_head(
            p,
            total,
            v2,
            body_crc,
            queue_id,
            flag,
            queue_offset,
            sys_flag,
            born_timestamp,
            born,
            len(born_host),
            store_timestamp,
            store,
            len(store_host),
            reconsume_times,
            prepared_transaction_offset,
            body_size,
        )
        if body_size:
            if cython.compiled:
                source = cython.cast(cython.p_uchar, cython.address(body[0]))
                _copy(buf, q, source, 0, body_size)
            else:
                _copy(buf, q, body, 0, body_size)
        q += body_size
        if v2:
            buf[q] = topic_size >> 8
            q += 1
        buf[q] = topic_size & 0xFF
        q += 1
        self._put_bytes(q, topic)
        q += topic_size
        buf[q] = (properties_size + reserved) >> 8
        buf[q + 1] = (properties_size + reserved) & 0xFF
        q += 2
        self._put_bytes(q, properties)
        q += properties_size
        if append_prop_crc:
            crc = crc32(memoryview(self._view)[p:q]) & 0x7FFFFFFF
            self._put_bytes(q, b"__CRC32#\x01" + encode_prop_crc(crc) + b"\x02")
        self.wrote_position = p + total
        return total

    @cython.cfunc
    def _put_bytes(self, q: cython.longlong, data: bytes) -> cython.void:
        if cython.compiled:
            memcpy(self._buf + q, cython.cast(cython.p_char, data), len(data))
        else:
            self._buf[q : q + len(data)] = data

    @cython.cfunc
    def _topic_of(self, topics: dict, source: cython.p_uchar, p: cython.Py_ssize_t, n: cython.Py_ssize_t) -> TopicTail:
        tail: TopicTail = self._topic
        if cython.compiled:
            if (
                tail is not None
                and len(tail.topic_bytes) == n
                and memcmp(cython.cast(cython.p_char, tail.topic_bytes), source + p, n) == 0
            ):
                return tail
            name: bytes = cython.cast(cython.p_char, source + p)[:n]
        else:
            name = bytes(source[p : p + n])
        tail = topics.get(name)
        self._topic = tail
        return tail

    def forget_topic(self):
        """Drop the remembered topic: its TopicTail was replaced."""
        self._topic = None

    def append_rows(
        self,
        source: cython.uchar[::1],
        scratch: cython.uchar[::1],
        rows: cython.longlong[::1],
        first: cython.Py_ssize_t,
        count: cython.Py_ssize_t,
        topics: dict,
        born_host: bytes,
        store_host: bytes,
        store_timestamp: cython.longlong,
        suffix: bytes,
        max_message_size: cython.longlong,
    ):
        self.full = False
        if count == 0:
            return 0
        done: cython.Py_ssize_t
        written: cython.longlong
        flags: cython.longlong
        topic: TopicTail
        queue: QueueTail
        queue_id: cython.longlong
        src: cython.p_uchar
        scr: cython.p_uchar
        props: cython.p_uchar
        row: cython.p_longlong
        born: cython.p_uchar
        store: cython.p_uchar
        tail: cython.p_uchar
        if cython.compiled:
            src = cython.address(source[0])
            scr = cython.address(scratch[0])
            born = cython.cast(cython.p_uchar, cython.cast(cython.p_char, born_host))
            store = cython.cast(cython.p_uchar, cython.cast(cython.p_char, store_host))
            tail = cython.cast(cython.p_uchar, cython.cast(cython.p_char, suffix))
        else:
            src, scr, born, store, tail = memoryview(source), scratch, born_host, store_host, suffix
        born_size: cython.Py_ssize_t = len(born_host)
        store_size: cython.Py_ssize_t = len(store_host)
        host_bits: cython.longlong = (0x10 if born_size == 20 else 0) | (0x20 if store_size == 20 else 0)
        for done in range(count):
            if cython.compiled:
                row = cython.address(rows[0]) + (first + done) * 20
            else:
                row = memoryview(rows)[(first + done) * 20 : (first + done + 1) * 20]
            flags = row[0]
            topic = self._topic_of(topics, src, row[2], row[3])
            queue_id = row[4]
            if topic is None or not topic.plain or topic.batch or queue_id < 0 or queue_id > topic.max_queue_id:
                return done
            queue = topic.queues.get(queue_id)
            if queue is None:
                return done
            props = scr if flags & 1 else src
            # the IPv6 bits come from our own sockets, never from the client
            row[5] = (row[5] & ~cython.cast(cython.longlong, 0x30)) | host_bits | (2 if topic.multi_tags else 0)
            if flags & 8:
                written = self._append_batch(
                    src, row, topic, queue, born, born_size, store, store_size, store_timestamp, max_message_size
                )
            else:
                written = self._append_one(
                    src,
                    props,
                    row,
                    topic,
                    queue,
                    born,
                    born_size,
                    store,
                    store_size,
                    store_timestamp,
                    tail,
                    len(suffix),
                    max_message_size,
                )
            if written < 0:
                return done
            topic.put_bytes += written
        return count

    @cython.cfunc
    @cython.exceptval(-2, check=False)
    def _append_one(
        self,
        src: cython.p_uchar,
        props: cython.p_uchar,
        row: cython.p_longlong,
        topic: TopicTail,
        queue: QueueTail,
        born: cython.p_uchar,
        born_size: cython.Py_ssize_t,
        store: cython.p_uchar,
        store_size: cython.Py_ssize_t,
        store_timestamp: cython.longlong,
        suffix: cython.p_uchar,
        suffix_size: cython.Py_ssize_t,
        max_message_size: cython.longlong,
    ) -> cython.longlong:
        """One message. Its size, or -1 when this row needs something else."""
        body_size: cython.longlong = row[11]
        topic_size: cython.longlong = row[3]
        own_size: cython.longlong = row[9]
        mark: cython.longlong = 1 if own_size and props[row[8] + own_size - 1] != 2 else 0
        properties_size: cython.longlong = own_size + mark + suffix_size
        total: cython.longlong = 75 + born_size + store_size + body_size + topic_size + properties_size
        p: cython.longlong = self.wrote_position
        if body_size > max_message_size or body_size == 0 or properties_size > _MAX_PROPERTIES or topic_size > 127:
            return -1
        if total + 8 > self.file_size - p:
            self.full = True
            return -1
        buf: cython.p_uchar = self._buf
        q: cython.longlong = self._write_head(
            p,
            total,
            False,
            _crc31(src, row[10], body_size),
            row[4],
            row[7],
            queue.next_queue_offset,
            row[5],
            row[6],
            born,
            born_size,
            store_timestamp,
            store,
            store_size,
            row[12],
            0,
            body_size,
        )
        _copy(buf, q, src, row[10], body_size)
        q += body_size
        buf[q] = topic_size
        _copy(buf, q + 1, src, row[2], topic_size)
        q += 1 + topic_size
        buf[q] = properties_size >> 8
        buf[q + 1] = properties_size & 0xFF
        q += 2
        _copy(buf, q, props, row[8], own_size)
        q += own_size
        if mark:
            buf[q] = 2
            q += 1
        _copy(buf, q, suffix, 0, suffix_size)
        row[13] = self.file_from_offset + p
        row[14] = queue.next_queue_offset
        row[15] = total
        row[16] = 1
        queue.next_queue_offset += 1
        self.wrote_position = p + total
        topic.put_nums += 1
        return total

    @cython.cfunc
    @cython.exceptval(-2, check=False)
    def _append_batch(
        self,
        src: cython.p_uchar,
        row: cython.p_longlong,
        topic: TopicTail,
        queue: QueueTail,
        born: cython.p_uchar,
        born_size: cython.Py_ssize_t,
        store: cython.p_uchar,
        store_size: cython.Py_ssize_t,
        store_timestamp: cython.longlong,
        max_message_size: cython.longlong,
    ) -> cython.longlong:
        """A batch body (per message: size:4 magic:4 crc:4 flag:4 bodylen:4 body proplen:2 props), all of it or nothing.

        Every record has its message's own properties only, byte for byte, as RocketMQ 5.5 stores them; 5.3 put those of
        the request behind them, whose UNIQ_KEY then hid each message's own.
        The bytes written, or -1 when the row needs something else; nothing counts as written then, for wrote_position
        has not moved.
        """
        p: cython.longlong = row[10]
        end: cython.longlong = p + row[11]
        topic_size: cython.longlong = row[3]
        fixed: cython.longlong = 75 + born_size + store_size + topic_size
        q: cython.longlong
        w: cython.longlong = self.wrote_position
        body_size: cython.longlong
        own_size: cython.longlong
        own: cython.longlong
        total: cython.longlong
        number: cython.longlong = 0
        buf: cython.p_uchar = self._buf
        if row[11] > max_message_size or row[11] == 0 or topic_size > 127:
            return -1
        while p < end:
            if end - p < 22:
                return -1
            body_size = _i32(src, p + 16)
            if body_size <= 0 or p + 22 + body_size > end:
                return -1
            own = p + 22 + body_size
            own_size = (cython.cast(cython.longlong, src[own - 2]) << 8) | src[own - 1]
            if own + own_size > end or _i32(src, p) != 22 + body_size + own_size:
                return -1
            total = fixed + body_size + own_size
            if own_size > _MAX_PROPERTIES:
                return -1
            if total + 8 > self.file_size - w:
                self.full = True
                return -1
            q = self._write_head(
                w,
                total,
                False,
                _crc31(src, p + 20, body_size),
                row[4],
                _i32(src, p + 12),
                queue.next_queue_offset + number,
                row[5],
                row[6],
                born,
                born_size,
                store_timestamp,
                store,
                store_size,
                row[12],
                0,
                body_size,
            )
            _copy(buf, q, src, p + 20, body_size)
            q += body_size
            buf[q] = topic_size
            _copy(buf, q + 1, src, row[2], topic_size)
            q += 1 + topic_size
            buf[q] = own_size >> 8
            buf[q + 1] = own_size & 0xFF
            q += 2
            _copy(buf, q, src, own, own_size)
            w += total
            number += 1
            p = own + own_size
        row[13] = self.file_from_offset + self.wrote_position
        row[14] = queue.next_queue_offset
        row[15] = w - self.wrote_position
        row[16] = number
        queue.next_queue_offset += number
        self.wrote_position = w
        topic.put_nums += number
        return row[15]


@cython.cclass
class Dispatcher:
    """Log range → ConsumeQueue units and index entries (see log_cy.pyi)."""

    dispatched_offset = cython.declare(cython.longlong, visibility="public")
    last_store_timestamp = cython.declare(cython.longlong, visibility="public")
    records = cython.declare(cython.longlong, visibility="public")
    arrived = cython.declare(list, visibility="public")
    delay_table = cython.declare(list, visibility="public")
    index_tags = cython.declare(cython.bint, visibility="public")
    _topics = cython.declare(dict)
    _index = cython.declare(IndexTail)
    _owner = cython.declare(object)
    _topic = cython.declare(TopicTail)

    def __init__(self, topics, index, owner):
        self._topics = topics
        self._index = index
        self._owner = owner
        self.dispatched_offset = 0
        self.last_store_timestamp = 0
        self.records = 0
        self.arrived = []
        self.delay_table = []
        self.index_tags = False
        self._topic = None

    def forget_topic(self):
        """Drop the remembered topic: its TopicTail was replaced."""
        self._topic = None

    @cython.cfunc
    def _topic_of(self, buf: cython.p_uchar, p: cython.Py_ssize_t, n: cython.Py_ssize_t) -> TopicTail:
        tail: TopicTail = self._topic
        if cython.compiled:
            if (
                tail is not None
                and len(tail.topic_bytes) == n
                and memcmp(cython.cast(cython.p_char, tail.topic_bytes), buf + p, n) == 0
            ):
                return tail
            name: bytes = cython.cast(cython.p_char, buf + p)[:n]
        else:
            name = bytes(buf[p : p + n])
        tail = self._topics.get(name)
        if tail is None:
            self._owner.open_queue(name, 0)
            tail = self._topics[name]
        self._topic = tail
        return tail

    def run(
        self,
        view: cython.const[cython.uchar][::1],
        start: cython.Py_ssize_t,
        end: cython.Py_ssize_t,
        file_from_offset: cython.longlong,
    ):
        p: cython.Py_ssize_t = start
        size: cython.longlong
        buf: cython.p_uchar
        if start < 0 or end > len(view):
            raise ValueError(f"range [{start}, {end}) is outside the file of {len(view)} bytes")
        if start >= end:
            return start
        whole: object = memoryview(view)
        if cython.compiled:
            buf = cython.cast(cython.p_uchar, cython.address(view[0]))
        else:
            buf = whole
        while end - p >= 8:
            size = self._one(whole, buf, p, end, file_from_offset)
            if size <= 0:
                if size == -1:  # BLANK: the rest of the file is unused
                    p = len(view)
                break
            p += size
        self.dispatched_offset = file_from_offset + p
        return p

    @cython.cfunc
    @cython.exceptval(-2, check=True)
    def _one(
        self,
        whole: object,
        buf: cython.p_uchar,
        p: cython.Py_ssize_t,
        end: cython.Py_ssize_t,
        file_from_offset: cython.longlong,
    ) -> cython.longlong:
        """Dispatch the record at p. Its size; 0 if there is none (whole); -1 for BLANK."""
        total: cython.longlong = _i32(buf, p)
        magic: cython.uint = _u32(buf, p + 4)
        if magic == 0xCBD43194:
            return -1
        v2: cython.bint = magic == 0xDAA320AB
        if (magic != 0xDAA320A7 and not v2) or total < 91 or total > end - p:
            return 0
        sys_flag: cython.int = _i32(buf, p + 36)
        hosts: cython.longlong = (20 if sys_flag & 0x10 else 8) + (20 if sys_flag & 0x20 else 8)
        limit: cython.longlong = p + total
        q: cython.longlong = p + 68 + hosts
        if q + 4 > limit:
            return 0
        body_size: cython.longlong = _i32(buf, q)
        q += 4 + body_size
        if body_size < 0 or q + 3 > limit:
            return 0
        topic_size: cython.longlong = buf[q]
        q += 1
        if v2:
            topic_size = (topic_size << 8) | buf[q]
            q += 1
        properties: cython.longlong = q + topic_size + 2
        if properties > limit:
            return 0
        properties_size: cython.longlong = (cython.cast(cython.longlong, buf[properties - 2]) << 8) | buf[
            properties - 1
        ]
        if properties + properties_size != limit:
            return 0
        topic: TopicTail = self._topic_of(buf, q, topic_size)
        physical_offset: cython.longlong = file_from_offset + p
        store_timestamp: cython.longlong = _i64(buf, p + 48 + (20 if sys_flag & 0x10 else 8))
        transaction: cython.int = sys_flag & 0xC
        index: IndexTail = self._index
        indexed: cython.bint = index is not None and transaction != 0xC and physical_offset >= index.end_physical_offset
        tags_code: cython.longlong = 0
        delay: cython.longlong = 0
        special: cython.bint = topic.hooked or topic.batch or (sys_flag & 0x80) != 0 or transaction == 0xC
        keys: cython.longlong = 0
        keys_end: cython.longlong = 0
        tags: cython.longlong = 0
        tags_end: cython.longlong = 0
        unique: cython.longlong = 0
        unique_end: cython.longlong = 0
        name: cython.longlong = properties
        mid: cython.longlong
        value_end: cython.longlong
        n: cython.longlong
        while name < limit:  # name 0x01 value 0x02, the last 0x02 may be missing
            mid = name
            while mid < limit and buf[mid] != 1 and buf[mid] != 2:
                mid += 1
            value_end = mid
            while value_end < limit and buf[value_end] != 2:
                value_end += 1
            n = mid - name
            if mid < value_end and n > 0 and value_end - mid > 1:
                if (
                    n == 4
                    and buf[name] == 0x54
                    and buf[name + 1] == 0x41
                    and buf[name + 2] == 0x47
                    and buf[name + 3] == 0x53
                ):
                    tags = mid + 1
                    tags_end = value_end
                elif (
                    n == 4
                    and buf[name] == 0x4B
                    and buf[name + 1] == 0x45
                    and buf[name + 2] == 0x59
                    and buf[name + 3] == 0x53
                ):
                    keys = mid + 1
                    keys_end = value_end
                elif n == 8 and buf[name] == 0x55 and buf[name + 1] == 0x4E and self._is(buf, name, b"UNIQ_KEY"):
                    unique = mid + 1
                    unique_end = value_end
                elif n == 5 and buf[name] == 0x44 and topic.delay_levels and self._is(buf, name, b"DELAY"):
                    delay = self._number(buf, mid + 1, value_end)
                elif n == 20 and buf[name] == 0x49 and self._is(buf, name, b"INNER_MULTI_DISPATCH"):
                    special = True
            name = value_end + 1
        if tags:
            tags_code = self._signed(_hash(buf, tags, tags_end, 0))
        if delay > 0:
            tags_code = store_timestamp + self._delay_ms(delay)
        if transaction == 0 or transaction == 8:
            if not sys_flag & 0x80 and not topic.batch:
                self._put_unit(topic, _i32(buf, p + 12), _i64(buf, p + 20), physical_offset, total, tags_code)
        if indexed:
            if unique:
                self._put_index(
                    index, _hash(buf, unique, unique_end, topic._key_hash), physical_offset, store_timestamp
                )
            if keys:
                name = keys
                while name < keys_end:
                    mid = name
                    while mid < keys_end and buf[mid] != 0x20:
                        mid += 1
                    if mid > name:
                        self._put_index(index, _hash(buf, name, mid, topic._key_hash), physical_offset, store_timestamp)
                    name = mid + 1
            if tags and self.index_tags:
                # topic#T#tag, as 5.5 writes it: 'T' and '#' join the topic's hash
                self._put_index(
                    index,
                    _hash(buf, tags, tags_end, 31 * (31 * topic._key_hash + 0x54) + 0x23),
                    physical_offset,
                    store_timestamp,
                )
        if special:
            self._owner.dispatch_special(p, total, physical_offset, whole)
        self.last_store_timestamp = store_timestamp
        self.records += 1
        return total

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def _is(self, buf: cython.p_uchar, p: cython.Py_ssize_t, word: bytes) -> cython.bint:
        if cython.compiled:
            return memcmp(buf + p, cython.cast(cython.p_char, word), len(word)) == 0
        return bytes(buf[p : p + len(word)]) == word

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def _signed(self, h: cython.uint) -> cython.longlong:
        if cython.compiled:
            return cython.cast(cython.int, h)
        return h - 0x100000000 if h >= 0x80000000 else h

    @cython.cfunc
    @cython.exceptval(check=False)
    def _number(self, buf: cython.p_uchar, p: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.longlong:
        """A small decimal number; 0 if it is not one."""
        value: cython.longlong = 0
        if end - p > 9:
            return 0
        while p < end:
            if buf[p] < 0x30 or buf[p] > 0x39:
                return 0
            value = value * 10 + (buf[p] - 0x30)
            p += 1
        return value

    @cython.cfunc
    @cython.exceptval(-1, check=True)
    def _delay_ms(self, level: cython.longlong) -> cython.longlong:
        if not self.delay_table:
            return 1000
        return self.delay_table[min(level, len(self.delay_table)) - 1]

    @cython.cfunc
    @cython.exceptval(-1, check=True)
    def _put_unit(
        self,
        topic: TopicTail,
        queue_id: cython.int,
        queue_offset: cython.longlong,
        physical_offset: cython.longlong,
        size: cython.longlong,
        tags_code: cython.longlong,
    ) -> cython.int:
        queue: QueueTail = topic.queues.get(queue_id)
        if queue is None:
            queue = self._owner.open_queue(topic.topic_bytes, queue_id)
        if physical_offset + size <= queue.max_physical_offset:
            return 0
        # a changed high bit must not wrap around to the right place
        believable: cython.bint = 0 <= queue_offset <= _MOST_UNITS and queue_offset * 20 == queue.write_offset
        if not believable or not queue.append(
            physical_offset, cython.cast(cython.int, size), tags_code
        ):
            if not self._owner.roll_queue(queue, queue_offset, physical_offset, size):
                return 0
            if not queue.append(physical_offset, cython.cast(cython.int, size), tags_code):
                raise AssertionError(f"{queue.topic}-{queue_id}: no room for unit {queue_offset} after a roll")
        if queue.watched:
            queue.watched = False
            self.arrived.append(queue)
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=True)
    def _put_index(
        self, index: IndexTail, h: cython.uint, physical_offset: cython.longlong, store_timestamp: cython.longlong
    ) -> cython.int:
        key_hash: cython.longlong = self._signed(h)
        if key_hash < 0:
            key_hash = 0 if key_hash == -2147483648 else -key_hash
        if not index.put_key(key_hash, physical_offset, store_timestamp):
            self._owner.roll_index(physical_offset, store_timestamp)
            index.put_key(key_hash, physical_offset, store_timestamp)
        return 0


@cython.cclass
class UnitScan:
    """Result of `collect` (see log_cy.pyi)."""

    ranges = cython.declare(list, visibility="public")
    message_count = cython.declare(cython.longlong, visibility="public")
    total_bytes = cython.declare(cython.longlong, visibility="public")
    next_index = cython.declare(cython.longlong, visibility="public")
    last_physical_offset = cython.declare(cython.longlong, visibility="public")
    stopped_at_hole = cython.declare(cython.bint, visibility="public")


def collect(
    view: cython.const[cython.uchar][::1],
    start: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    first_index: cython.longlong,
    codes,
    max_messages: cython.longlong,
    max_bytes: cython.longlong,
    max_physical_offset: cython.longlong,
    memory_bytes: cython.longlong,
    limits,
    min_physical_offset: cython.longlong,
    max_units: cython.longlong,
):
    """Walk units as DefaultMessageStore.getMessage does (see log_cy.pyi)."""
    if start < 0 or end > len(view):
        raise ValueError(f"range [{start}, {end}) is outside the file of {len(view)} bytes")
    result: UnitScan = UnitScan()
    ranges: list = []
    wanted: object = None if codes is None else frozenset(codes)
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
    p: cython.Py_ssize_t = start
    buf: cython.p_uchar
    if start >= end:
        end = start
    elif cython.compiled:
        buf = cython.cast(cython.p_uchar, cython.address(view[0]))
    else:
        buf = memoryview(view)
    while p + 20 <= end:
        if index - first_index >= max_units:
            break
        physical_offset = _i64(buf, p)
        size = _i32(buf, p + 8)
        tags_code = _i64(buf, p + 12)
        if size == _BLANK_UNIT_SIZE or size <= 0 or physical_offset < min_physical_offset or tags_code == _DAMAGED:
            p += 20  # pre-blank, a record that was cleaned away, or the place of a damaged one
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
        if wanted is not None and tags_code > _EXT_ADDRESS_MAX:  # a Java store's ext address: the client re-checks
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
                ranges.append((run_start, run_end - run_start))
            run_start = physical_offset
            run_end = physical_offset + size
        count += 1
        total += size
        p += 20
        index += 1
    if run_start >= 0:
        ranges.append((run_start, run_end - run_start))
    result.ranges = ranges
    result.message_count = count
    result.total_bytes = total
    result.next_index = index
    result.last_physical_offset = last
    result.stopped_at_hole = False
    return result


def is_compiled() -> bool:
    """Which form runs."""
    return cython.compiled
