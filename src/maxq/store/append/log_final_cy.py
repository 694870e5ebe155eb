"""Final messages: what a committed transaction delivers, from the record of its half message to the end of the log.

Body, hosts, born time and properties are copied from record to record. A half message that needs more (a property
that the store acts on, a topic that the compiled path does not know) is left to the slow path, which decodes it.
"""

try:
    import cython
except ModuleNotFoundError:
    from maxq.runtime import cython  # type: ignore[no-redef]

if cython.compiled:
    from cython.cimports.maxq.protocol.message import record_layout as layout
    from cython.cimports.maxq.runtime.buffers import copy_bytes, digits, find_byte, i64, same_bytes, take_bytes, u32
    from cython.cimports.maxq.store.log.log_cy import LogTail
    from cython.cimports.maxq.store.log.tails_cy import QueueTail, TopicWriteState
else:
    from maxq.protocol.message import record_layout as layout
    from maxq.runtime.buffers import copy_bytes, digits, find_byte, i64, same_bytes, take_bytes, u32
    from maxq.store.log.log_cy import LogTail
    from maxq.store.log.tails_cy import QueueTail, TopicWriteState

_HALF_TOPIC = cython.declare(bytes, b"RMQ_SYS_TRANS_HALF_TOPIC")
_MAX_PROPERTIES = cython.declare(cython.int, 32767)
#: Properties of a half message with which MessageWriter writes the final message instead of this module.
_NOT_PLAINLY_FINAL = frozenset(
    b"DELAY CHECK_IMMUNITY_TIME_IN_SECONDS TRAN_PREPARED_QUEUE_OFFSET __CRC32# INNER_NUM INNER_BASE "
    b"INNER_MULTI_DISPATCH INNER_MULTI_QUEUE_OFFSET TIMER_DELAY_SEC TIMER_DELAY_MS TIMER_DELIVER_MS TIMER_OUT_MS "
    b"TIMER_DEL_UNIQKEY TIMER_ROLL_TIMES".split()
)


@cython.cclass
class _HalfRecord:
    """Positions, in a half message's record, of the parts that its final message takes over."""

    stored_at = cython.declare(cython.longlong)  # store timestamp of the final message
    reconsume_times = cython.declare(cython.longlong)
    body = cython.declare(cython.longlong)
    body_size = cython.declare(cython.longlong)
    properties = cython.declare(cython.longlong)
    properties_size = cython.declare(cython.longlong)
    topic = cython.declare(cython.longlong)  # position of the value of REAL_TOPIC
    topic_size = cython.declare(cython.longlong)
    queue_id = cython.declare(cython.longlong)  # value of REAL_QID

    @cython.cfunc
    @cython.exceptval(-1, check=True)
    def read(self, rec: cython.p_uchar, size: cython.longlong, group: bytes) -> cython.bint:
        """Returns whether the record is a half message of this producer group that the compiled path can turn into its
        final message."""
        # All fields before the body's length end before byte 124, even with IPv6 hosts.
        if size < 124 or u32(rec, layout.TOTAL_SIZE) != size or u32(rec, layout.MAGIC) != layout.MAGIC_V1:
            return False
        sys_flag: cython.longlong = u32(rec, layout.SYS_FLAG)
        self.stored_at = layout.store_timestamp_at(sys_flag)
        self.reconsume_times = layout.reconsume_times_at(sys_flag)
        self.body = self.reconsume_times + 16
        self.body_size = u32(rec, self.body - 4)
        at: cython.longlong = self.body + self.body_size
        half_size: cython.longlong = len(_HALF_TOPIC)
        if at + 1 + half_size + 2 > size or rec[at] != half_size:
            return False
        if not same_bytes(rec, at + 1, half_size, _HALF_TOPIC):
            return False
        at += 1 + half_size
        self.properties_size = (rec[at] << 8) | rec[at + 1]
        self.properties = at + 2
        if self.properties + self.properties_size != size or self.properties_size > _MAX_PROPERTIES:
            return False
        return self._read_properties(rec, size, group)

    @cython.cfunc
    @cython.exceptval(-1, check=True)
    def _read_properties(self, rec: cython.p_uchar, end: cython.longlong, group: bytes) -> cython.bint:
        self.topic = self.topic_size = 0
        self.queue_id = -1
        is_of_group: cython.bint = False
        mid: cython.longlong
        value_end: cython.longlong
        n: cython.longlong
        name: bytes
        p: cython.longlong = self.properties
        while p < end:
            value_end = find_byte(rec, p, end, 2)
            mid = find_byte(rec, p, value_end, 1)
            if mid == value_end:
                return False
            n = mid - p
            name = take_bytes(rec, p, n)
            if n == 10 and name == b"REAL_TOPIC":
                self.topic = mid + 1
                self.topic_size = value_end - self.topic
            elif n == 8 and name == b"REAL_QID":
                self.queue_id = digits(rec, mid + 1, value_end)
            elif n == 6 and name == b"PGROUP":
                is_of_group = same_bytes(rec, mid + 1, value_end - mid - 1, group)
            elif name in _NOT_PLAINLY_FINAL:
                return False
            p = value_end + 1
        return is_of_group and 0 < self.topic_size <= 127 and self.queue_id >= 0


def append_final(
    tail: LogTail,
    record: cython.const[cython.uchar][::1],  # type: memoryview
    group: bytes,
    topics: dict,  # type: dict[bytes, TopicWriteState]
    store_timestamp: cython.longlong,
):
    # type: (...) -> int
    """Write the final message of the half message `record`, whose producer group must be `group`. Returns its size;
    0 if nothing was written: the file is full, or this half message must take the slow path."""
    tail.full = False
    rec: cython.p_uchar
    if cython.compiled:
        rec = cython.cast(cython.p_uchar, cython.address(record[0]))
    else:
        rec = record
    half: _HalfRecord = _HalfRecord()
    if not half.read(rec, len(record), group):
        return 0
    topic: TopicWriteState = tail.topic_memory.find(topics, rec, half.topic, half.topic_size)
    if topic is None or topic.has_batch_queues or topic.is_static or half.queue_id > topic.max_queue_id:
        return 0
    queue: QueueTail = topic.queues.get(half.queue_id)
    if queue is None:
        return 0
    born_size: cython.Py_ssize_t = half.stored_at - layout.BORN_HOST
    store_size: cython.Py_ssize_t = half.reconsume_times - half.stored_at - 8
    hosts: cython.longlong = born_size + store_size
    total: cython.longlong = layout.FIXED_SIZE + hosts + half.body_size + half.topic_size + half.properties_size
    p: cython.longlong = tail.wrote_position + tail.head
    if total + 8 > tail.file_size - p:
        tail.full = True
        return 0
    born: cython.p_uchar
    store: cython.p_uchar
    if cython.compiled:
        born, store = rec + layout.BORN_HOST, rec + half.stored_at + 8
    else:
        born, store = rec[layout.BORN_HOST : half.stored_at], rec[half.stored_at + 8 : half.reconsume_times]
    sys_flag: cython.longlong = u32(rec, layout.SYS_FLAG) & ~cython.cast(cython.longlong, layout.TRANSACTION_MASK)
    sys_flag |= layout.TRANSACTION_COMMIT | (layout.MULTI_TAGS if topic.multi_tags else 0)
    q: cython.longlong = tail.write_front(
        p,
        total,
        u32(rec, layout.BODY_CRC),
        half.queue_id,
        u32(rec, layout.FLAG),
        queue.next_queue_offset,
        sys_flag,
        i64(rec, layout.BORN_TIMESTAMP),
        born,
        born_size,
        store_timestamp,
        store,
        store_size,
        u32(rec, half.reconsume_times),
        i64(rec, layout.PHYSICAL_OFFSET),
        rec,
        half.body,
        half.body_size,
        rec,
        half.topic,
        half.topic_size,
        half.properties_size,
    )
    copy_bytes(tail.buf, q, rec, half.properties, half.properties_size)
    queue.next_queue_offset += 1
    tail.end_record(p, total)
    topic.put_nums += 1
    topic.put_bytes += total
    tail.final_topic = topic
    return total


def is_compiled() -> bool:
    """Returns whether this module runs compiled by Cython."""
    return cython.compiled
