"""Rows of fast-path sends → records at the end of the CommitLog, without a Python object a message.

The rows are what protocol/send_scanner_cy read straight from the receive buffer (protocol/send_rows). A row becomes one
record, those of a batch, or a half message; a row that needs anything else ends the run, and takes the slow path.
"""

from maxq.protocol.message.message_const import NOT_IN_BATCHES

try:
    import cython
except ModuleNotFoundError:
    from maxq.runtime import cython  # type: ignore[no-redef]

if cython.compiled:
    from cython.cimports.maxq.protocol.frame import send_rows as sr
    from cython.cimports.maxq.protocol.message import record_layout as layout
    from cython.cimports.maxq.runtime.buffers import copy_bytes, find_byte, i32, put_bytes, take_bytes
    from cython.cimports.maxq.store.log.log_cy import LogTail
    from cython.cimports.maxq.store.log.record_cy import crc31_at
    from cython.cimports.maxq.store.log.tails_cy import QueueTail, TopicWriteState
else:
    from maxq.protocol.frame import send_rows as sr
    from maxq.protocol.message import record_layout as layout
    from maxq.runtime.buffers import copy_bytes, find_byte, i32, put_bytes, take_bytes
    from maxq.store.log.log_cy import LogTail
    from maxq.store.log.record_cy import crc31_at
    from maxq.store.log.tails_cy import QueueTail, TopicWriteState

_NOT_IN_BATCHES = cython.declare(frozenset, frozenset(name.encode() for name in NOT_IN_BATCHES))
_HALF_TOPIC = cython.declare(bytes, b"RMQ_SYS_TRANS_HALF_TOPIC")
_MAX_PROPERTIES = cython.declare(cython.int, 32767)
_BATCH_MOST = cython.declare(cython.int, 32767)  # see BATCH_MOST of protocol/message/message.py
_LATER_ROOM = cython.declare(cython.int, 256)  # see broker/put_hooks.py


@cython.ccall
def append_rows(
    tail: LogTail,
    source: cython.uchar[::1],  # type: bytearray | memoryview
    scratch: cython.uchar[::1],  # type: bytearray
    rows: cython.longlong[::1],  # type: Any
    first: cython.Py_ssize_t,
    count: cython.Py_ssize_t,
    topics: dict,  # type: dict[bytes, TopicWriteState]
    born_host: bytes,
    store_host: bytes,
    store_timestamp: cython.longlong,
    suffix: bytes,
    max_message_size: cython.longlong,
):
    # type: (...) -> int
    """Append rows [first, first+count) (see protocol/send_rows). Returns how many were appended; fewer than count
    means that row first+n needs something else: the file is full, or the row must take the slow path."""
    tail.full = False
    if count == 0:
        return 0
    done: cython.Py_ssize_t
    written: cython.longlong
    flags: cython.longlong
    sys_flag: cython.longlong
    topic: TopicWriteState
    queue: QueueTail
    queue_id: cython.longlong
    src: cython.p_uchar
    scr: cython.p_uchar
    props: cython.p_uchar
    row: cython.p_longlong
    born: cython.p_uchar
    store: cython.p_uchar
    end: cython.p_uchar
    if cython.compiled:
        src = cython.address(source[0])
        scr = cython.address(scratch[0])
        born = cython.cast(cython.p_uchar, cython.cast(cython.p_char, born_host))
        store = cython.cast(cython.p_uchar, cython.cast(cython.p_char, store_host))
        end = cython.cast(cython.p_uchar, cython.cast(cython.p_char, suffix))
    else:
        src, scr, born, store, end = memoryview(source), scratch, born_host, store_host, suffix
    born_size: cython.Py_ssize_t = len(born_host)
    store_size: cython.Py_ssize_t = len(store_host)
    host_bits: cython.longlong = layout.host_bits(born_size, store_size)
    for done in range(count):
        if cython.compiled:
            row = cython.address(rows[0]) + (first + done) * sr.ROW_WIDTH
        else:
            row = memoryview(rows)[(first + done) * sr.ROW_WIDTH : (first + done + 1) * sr.ROW_WIDTH]
        flags = row[sr.R_FLAGS]
        topic = tail.topic_memory.find(topics, src, row[sr.R_TOPIC], row[sr.R_TOPIC_SIZE])
        queue_id = row[sr.R_QUEUE_ID]
        if topic is None or not topic.is_fast_path_open or topic.has_batch_queues:
            return done
        if queue_id < 0 or queue_id > topic.max_queue_id:
            return done
        queue = topic.queues.get(queue_id)
        if queue is None:
            return done
        props = scr if flags & sr.F_SCRATCH else src
        # the IPv6 bits come from our own sockets, never from the client
        sys_flag = row[sr.R_SYS_FLAG] & ~cython.cast(cython.longlong, layout.HOSTS_V6)
        row[sr.R_SYS_FLAG] = sys_flag | host_bits | (layout.MULTI_TAGS if topic.multi_tags else 0)
        if flags & sr.F_HALF:
            written = _append_half(
                tail,
                src,
                props,
                row,
                topics.get(_HALF_TOPIC),
                born,
                born_size,
                store,
                store_size,
                store_timestamp,
                end,
                len(suffix),
                max_message_size,
            )
            if written < 0:
                return done
            continue
        if flags & sr.F_BATCH:
            written = _append_batch(
                tail, src, row, topic, queue, born, born_size, store, store_size, store_timestamp, max_message_size
            )
        else:
            written = _append_one(
                tail,
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
                end,
                len(suffix),
                max_message_size,
            )
        if written < 0:
            return done
        topic.put_bytes += written
    return count


def append_arrivals(
    tail: LogTail,
    source: cython.uchar[::1],  # type: bytearray | memoryview
    scratch: cython.uchar[::1],  # type: bytearray
    rows: cython.longlong[::1],  # type: Any
    table: cython.longlong[::1],  # type: Any
    born_hosts: list,  # type: list[bytes]
    topics: dict,  # type: dict[bytes, TopicWriteState]
    store_host: bytes,
    store_timestamp: cython.longlong,
    suffix: bytes,
    max_message_size: cython.longlong,
):
    # type: (...) -> int
    """The same for the rows of several arrivals (see protocol/send_rows), one of each born host. If not all rows of an
    arrival could be appended, its A_TAKEN and A_ROWS count those that were, and R_COUNT of the others is 0. Returns how
    many rows were appended altogether."""
    total: cython.Py_ssize_t = 0
    number: cython.Py_ssize_t
    first: cython.Py_ssize_t
    count: cython.Py_ssize_t
    done: cython.Py_ssize_t
    row: cython.Py_ssize_t
    for number in range(len(born_hosts)):
        first = table[number * sr.ARRIVAL_WIDTH + sr.A_FIRST]
        count = table[number * sr.ARRIVAL_WIDTH + sr.A_ROWS]
        done = append_rows(
            tail, source, scratch, rows, first, count, topics, born_hosts[number], store_host, store_timestamp,
            suffix, max_message_size,
        )  # fmt: skip
        if done < count:
            table[number * sr.ARRIVAL_WIDTH + sr.A_TAKEN] = rows[(first + done) * sr.ROW_WIDTH + sr.R_FRAME]
            table[number * sr.ARRIVAL_WIDTH + sr.A_ROWS] = done
            for row in range(first + done, first + count):
                rows[row * sr.ROW_WIDTH + sr.R_COUNT] = 0
        total += done
    return total


@cython.cfunc
@cython.exceptval(-2, check=False)
def _append_one(
    tail: LogTail,
    src: cython.p_uchar,
    props: cython.p_uchar,
    row: cython.p_longlong,
    topic: TopicWriteState,
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
    """Append one message. Returns the record's size in bytes, or -1 when this path cannot store the row."""
    body_size: cython.longlong = row[sr.R_BODY_SIZE]
    topic_size: cython.longlong = row[sr.R_TOPIC_SIZE]
    properties_size: cython.longlong = row[sr.R_PROPERTIES_SIZE] + _mark(props, row) + suffix_size
    total: cython.longlong = layout.FIXED_SIZE + born_size + store_size + body_size + topic_size + properties_size
    p: cython.longlong = tail.wrote_position + tail.head
    if body_size > max_message_size or body_size == 0 or properties_size > _MAX_PROPERTIES or topic_size > 127:
        return -1
    if total + 8 > tail.file_size - p:
        tail.full = True
        return -1
    q: cython.longlong = tail.write_front(
        p,
        total,
        crc31_at(src, row[sr.R_BODY], body_size),
        row[sr.R_QUEUE_ID],
        row[sr.R_FLAG],
        queue.next_queue_offset,
        row[sr.R_SYS_FLAG],
        row[sr.R_BORN_TIMESTAMP],
        born,
        born_size,
        store_timestamp,
        store,
        store_size,
        row[sr.R_RECONSUME_TIMES],
        0,
        src,
        row[sr.R_BODY],
        body_size,
        src,
        row[sr.R_TOPIC],
        topic_size,
        properties_size,
    )
    _put_properties(tail.buf, q, props, row, suffix, suffix_size)
    _stored(tail, row, p, total, queue)
    topic.put_nums += 1
    return total


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _mark(props: cython.p_uchar, row: cython.p_longlong) -> cython.longlong:
    """Returns 1 if the row's properties need a separator behind them, 0 if they end with one."""
    own_size: cython.longlong = row[sr.R_PROPERTIES_SIZE]
    return 1 if own_size and props[row[sr.R_PROPERTIES] + own_size - 1] != 2 else 0


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _put_properties(
    buf: cython.p_uchar,
    q: cython.longlong,
    props: cython.p_uchar,
    row: cython.p_longlong,
    suffix: cython.p_uchar,
    suffix_size: cython.Py_ssize_t,
) -> cython.longlong:
    """Write the row's own properties and those that every row gets. Returns the position behind them."""
    copy_bytes(buf, q, props, row[sr.R_PROPERTIES], row[sr.R_PROPERTIES_SIZE])
    q += row[sr.R_PROPERTIES_SIZE]
    if _mark(props, row):
        buf[q] = 2
        q += 1
    copy_bytes(buf, q, suffix, 0, suffix_size)
    return q + suffix_size


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _stored(
    tail: LogTail, row: cython.p_longlong, p: cython.longlong, total: cython.longlong, queue: QueueTail
) -> cython.void:
    """Note in the row, the queue and the log that the row's record was written at p."""
    row[sr.R_PHYSICAL_OFFSET] = tail.file_from_offset + p
    row[sr.R_QUEUE_OFFSET] = queue.next_queue_offset
    row[sr.R_SIZE] = total
    row[sr.R_COUNT] = 1
    queue.next_queue_offset += 1
    tail.end_record(p, total)


@cython.cfunc
@cython.exceptval(-2, check=True)
def _append_half(
    tail: LogTail,
    src: cython.p_uchar,
    props: cython.p_uchar,
    row: cython.p_longlong,
    half: TopicWriteState,
    born: cython.p_uchar,
    born_size: cython.Py_ssize_t,
    store: cython.p_uchar,
    store_size: cython.Py_ssize_t,
    store_timestamp: cython.longlong,
    suffix: cython.p_uchar,
    suffix_size: cython.Py_ssize_t,
    max_message_size: cython.longlong,
) -> cython.longlong:
    """Append a message that opens a transaction as a half message. Returns the record's size in bytes, or -1 when this
    path cannot store the row."""
    queue: QueueTail = None if half is None else half.queues.get(0)
    if queue is None:
        return -1
    body_size: cython.longlong = row[sr.R_BODY_SIZE]
    topic_size: cython.longlong = row[sr.R_TOPIC_SIZE]
    queue_id: bytes = b"\x02REAL_QID\x01%d\x02" % row[sr.R_QUEUE_ID]
    properties_size: cython.longlong = (
        row[sr.R_PROPERTIES_SIZE]
        + _mark(props, row)
        + suffix_size
        + row[sr.R_UNIQUE_SIZE]
        + topic_size
        + 30
        + len(queue_id)
    )
    half_size: cython.longlong = len(_HALF_TOPIC)
    total: cython.longlong = layout.FIXED_SIZE + born_size + store_size + body_size + half_size + properties_size
    p: cython.longlong = tail.wrote_position + tail.head
    if body_size > max_message_size or body_size == 0 or properties_size > _MAX_PROPERTIES - _LATER_ROOM:
        return -1
    if total + 8 > tail.file_size - p:
        tail.full = True
        return -1
    name: cython.p_uchar
    if cython.compiled:
        name = cython.cast(cython.p_uchar, cython.cast(cython.p_char, _HALF_TOPIC))
    else:
        name = _HALF_TOPIC
    buf: cython.p_uchar = tail.buf
    q: cython.longlong = tail.write_front(
        p,
        total,
        crc31_at(src, row[sr.R_BODY], body_size),
        0,
        row[sr.R_FLAG],
        queue.next_queue_offset,
        row[sr.R_SYS_FLAG],
        row[sr.R_BORN_TIMESTAMP],
        born,
        born_size,
        store_timestamp,
        store,
        store_size,
        row[sr.R_RECONSUME_TIMES],
        0,
        src,
        row[sr.R_BODY],
        body_size,
        name,
        0,
        half_size,
        properties_size,
    )
    q = _put_properties(buf, q, props, row, suffix, suffix_size)
    q = put_bytes(buf, q, b"__transactionId__\x01")
    copy_bytes(buf, q, props, row[sr.R_UNIQUE], row[sr.R_UNIQUE_SIZE])
    q = put_bytes(buf, q + row[sr.R_UNIQUE_SIZE], b"\x02REAL_TOPIC\x01")
    copy_bytes(buf, q, src, row[sr.R_TOPIC], topic_size)
    put_bytes(buf, q + topic_size, queue_id)
    _stored(tail, row, p, total, queue)
    half.put_nums += 1
    half.put_bytes += total
    return total


@cython.cfunc
@cython.exceptval(-1, check=True)
def _may_be_in_batch(src: cython.p_uchar, p: cython.longlong, size: cython.longlong) -> cython.int:
    """Return 1 if the properties contain none of NOT_IN_BATCHES, all of which begin with D, P or T; else 0."""
    end: cython.longlong = p + size
    property_end: cython.longlong
    name_end: cython.longlong
    while p < end:
        property_end = find_byte(src, p, end, 2)
        if src[p] == 0x44 or src[p] == 0x50 or src[p] == 0x54:
            name_end = find_byte(src, p, property_end, 1)
            if name_end - p > 4 and take_bytes(src, p, name_end - p) in _NOT_IN_BATCHES:  # TAGS has 4
                return 0
        p = property_end + 1
    return 1


@cython.cfunc
@cython.exceptval(-2, check=True)
def _count_batch(
    tail: LogTail, src: cython.p_uchar, p: cython.longlong, end: cython.longlong, fixed: cython.longlong
) -> cython.longlong:
    """Return the number of messages in the batch body src[p : end]; -1 if the full processor must handle the batch, or
    if it does not fit into the current file.

    Args:
        fixed: bytes of each record besides its body and properties.
    """
    w: cython.longlong = tail.wrote_position
    body_size: cython.longlong
    own_size: cython.longlong
    own: cython.longlong
    number: cython.longlong = 0
    while p < end:
        if end - p < layout.BATCH_RECORD_SIZE:
            return -1
        body_size = i32(src, p + 16)
        if body_size <= 0 or p + layout.BATCH_RECORD_SIZE + body_size > end:
            return -1
        own = p + layout.BATCH_RECORD_SIZE + body_size
        own_size = (cython.cast(cython.longlong, src[own - 2]) << 8) | src[own - 1]
        if own + own_size > end or i32(src, p) != layout.BATCH_RECORD_SIZE + body_size + own_size:
            return -1
        if own_size > _MAX_PROPERTIES or number == _BATCH_MOST or not _may_be_in_batch(src, own, own_size):
            return -1
        w += tail.head + fixed + body_size + own_size
        if w + 8 > tail.file_size:
            tail.full = True
            return -1
        number += 1
        p = own + own_size
    return number


@cython.cfunc
@cython.exceptval(-2, check=True)
def _append_batch(
    tail: LogTail,
    src: cython.p_uchar,
    row: cython.p_longlong,
    topic: TopicWriteState,
    queue: QueueTail,
    born: cython.p_uchar,
    born_size: cython.Py_ssize_t,
    store: cython.p_uchar,
    store_size: cython.Py_ssize_t,
    store_timestamp: cython.longlong,
    max_message_size: cython.longlong,
) -> cython.longlong:
    """Append the messages of a batch body (each: size:4 magic:4 crc:4 flag:4 bodylen:4 body proplen:2 props): all of
    them or none.

    Every record has its message's own properties only, byte for byte, as RocketMQ 5.5 stores them; 5.3 put those of
    the request behind them, whose UNIQ_KEY then hid each message's own.
    The bytes written, or -1 when the row needs something else. Nothing is written then, not behind the end of the log
    either: that may be where its newest records lie that are not dispatched yet (LogWriteBuffer).
    """
    p: cython.longlong = row[sr.R_BODY]
    topic_size: cython.longlong = row[sr.R_TOPIC_SIZE]
    fixed: cython.longlong = layout.FIXED_SIZE + born_size + store_size + topic_size
    q: cython.longlong
    w: cython.longlong = tail.wrote_position
    body_size: cython.longlong
    own_size: cython.longlong
    own: cython.longlong
    total: cython.longlong
    number: cython.longlong
    count: cython.longlong
    if row[sr.R_BODY_SIZE] > max_message_size or row[sr.R_BODY_SIZE] == 0 or topic_size > 127:
        return -1
    count = _count_batch(tail, src, p, p + row[sr.R_BODY_SIZE], fixed)
    if count < 0:
        return -1
    for number in range(count):
        body_size = i32(src, p + 16)
        own = p + layout.BATCH_RECORD_SIZE + body_size
        own_size = (cython.cast(cython.longlong, src[own - 2]) << 8) | src[own - 1]
        total = fixed + body_size + own_size
        w += tail.head
        q = tail.write_front(
            w,
            total,
            crc31_at(src, p + 20, body_size),
            row[sr.R_QUEUE_ID],
            i32(src, p + 12),
            queue.next_queue_offset + number,
            row[sr.R_SYS_FLAG],
            row[sr.R_BORN_TIMESTAMP],
            born,
            born_size,
            store_timestamp,
            store,
            store_size,
            row[sr.R_RECONSUME_TIMES],
            0,
            src,
            p + 20,
            body_size,
            src,
            row[sr.R_TOPIC],
            topic_size,
            own_size,
        )
        copy_bytes(tail.buf, q, src, own, own_size)
        if tail.head:
            tail.close_entry(w - 48, total, tail.next_index + number)
        w += total
        p = own + own_size
    row[sr.R_PHYSICAL_OFFSET] = tail.file_from_offset + tail.wrote_position + tail.head
    row[sr.R_QUEUE_OFFSET] = queue.next_queue_offset
    row[sr.R_SIZE] = w - tail.wrote_position
    row[sr.R_COUNT] = count
    queue.next_queue_offset += count
    if tail.head:
        tail.next_index += count
    tail.wrote_position = w
    topic.put_nums += count
    return row[sr.R_SIZE]


def is_compiled() -> bool:
    """Returns whether this module runs compiled by Cython."""
    return cython.compiled
