"""RecordCopy: what a copy of a record keeps, read off the record's bytes: no Python object per property.

Two copies are made by the thousand: that of a message a consumer gave back (it waits in a delay level), and that of a
delayed message that is due (it goes where its properties say). Both keep body, hosts, born time and properties. A
record that needs anything more is left to the slow path, which decodes it: one with a property that the store or
the broker act on, with a pair that is not well formed or is there twice, a damaged one, part of a transaction that is
not committed, an inner batch.

Properties: name 0x01 value 0x02 …; the last 0x02 may be missing.
"""

try:
    import cython
except ModuleNotFoundError:
    from maxq.runtime import cython  # type: ignore[no-redef]

if cython.compiled:
    from cython.cimports.maxq.protocol.message import record_layout as layout
    from cython.cimports.maxq.runtime.buffers import digits, find_byte, i64, put_bytes, take_bytes, u32
else:
    from maxq.protocol.message import record_layout as layout
    from maxq.runtime.buffers import digits, find_byte, i64, put_bytes, take_bytes, u32

#: Properties of records that MessageWriter copies instead of this module.
_NOT_PLAIN = frozenset(
    b"__CRC32# INNER_NUM INNER_BASE INNER_MULTI_DISPATCH INNER_MULTI_QUEUE_OFFSET MAXQ_DAMAGED __LITE_TOPIC "
    b"TIMER_DELAY_SEC TIMER_DELAY_MS TIMER_DELIVER_MS TIMER_OUT_MS TIMER_DEL_UNIQKEY TRAN_MSG".split()
)
_DELAY = 1
_REAL_TOPIC = 2
_REAL_QUEUE = 4
_WAIT = 8
_RETRY_TOPIC = 16
_ORIGIN = 32
_NAMES = {
    b"DELAY": _DELAY,
    b"REAL_TOPIC": _REAL_TOPIC,
    b"REAL_QID": _REAL_QUEUE,
    b"WAIT": _WAIT,
    b"RETRY_TOPIC": _RETRY_TOPIC,
    b"ORIGIN_MESSAGE_ID": _ORIGIN,
}


@cython.cclass
class RecordCopy:
    """The parts of one record that its copies keep; one object is used for one record after the other.

    Attributes:
        topic: of the record.
        body_start, body_end: positions in the record.
        real_topic, real_queue_id: values of REAL_TOPIC and REAL_QID; empty and -1 if they are missing or empty.
        retry_topic: value of RETRY_TOPIC; empty if it is missing.
        properties: its property bytes, with a separator behind the last pair.
        The others are the record's fields, as they are.
    """

    topic = cython.declare(bytes, visibility="public")
    flag = cython.declare(cython.longlong, visibility="public")
    sys_flag = cython.declare(cython.longlong, visibility="public")
    born_timestamp = cython.declare(cython.longlong, visibility="public")
    born_host = cython.declare(bytes, visibility="public")
    store_host = cython.declare(bytes, visibility="public")
    reconsume_times = cython.declare(cython.longlong, visibility="public")
    body_crc = cython.declare(cython.longlong, visibility="public")
    body_start = cython.declare(cython.Py_ssize_t, visibility="public")
    body_end = cython.declare(cython.Py_ssize_t, visibility="public")
    real_topic = cython.declare(bytes, visibility="public")
    real_queue_id = cython.declare(cython.longlong, visibility="public")
    retry_topic = cython.declare(bytes, visibility="public")
    properties = cython.declare(bytes, visibility="public")
    _seen = cython.declare(cython.int)

    def __init__(self):
        self.topic = self.born_host = self.store_host = self.real_topic = self.retry_topic = self.properties = b""
        self.flag = self.sys_flag = self.born_timestamp = self.reconsume_times = self.body_crc = 0
        self.body_start = self.body_end = 0
        self.real_queue_id = -1
        self._seen = 0

    def read(
        self,
        record: cython.const[cython.uchar][::1],  # type: memoryview
    ) -> bool:
        """Take what `record` says. False: leave it to the slow path; the attributes say nothing."""
        rec: cython.p_uchar
        size: cython.Py_ssize_t = len(record)
        if size < layout.BORN_TIMESTAMP:
            return False
        if cython.compiled:
            rec = cython.cast(cython.p_uchar, cython.address(record[0]))
        else:
            rec = memoryview(record)
        magic: cython.uint = u32(rec, layout.MAGIC)
        if u32(rec, layout.TOTAL_SIZE) != size or (magic != layout.MAGIC_V1 and magic != layout.MAGIC_V2):
            return False
        self.sys_flag = u32(rec, layout.SYS_FLAG)
        transaction: cython.longlong = self.sys_flag & layout.TRANSACTION_MASK
        if self.sys_flag & layout.INNER_BATCH or (transaction != 0 and transaction != layout.TRANSACTION_COMMIT):
            return False
        stored_at: cython.Py_ssize_t = layout.store_timestamp_at(self.sys_flag)
        p: cython.Py_ssize_t = layout.reconsume_times_at(self.sys_flag)
        self.body_start = p + 16
        if self.body_start + 4 > size:
            return False
        body_size: cython.longlong = u32(rec, p + 12)
        if body_size > size - self.body_start - 4:
            return False
        self.body_end = self.body_start + body_size
        at: cython.Py_ssize_t = self.body_end
        topic_size: cython.Py_ssize_t = rec[at]
        at += 1
        if magic == layout.MAGIC_V2:
            topic_size = (topic_size << 8) | rec[at]
            at += 1
        if topic_size == 0 or at + topic_size + 2 > size:
            return False
        self.topic = take_bytes(rec, at, topic_size)
        at += topic_size
        if at + 2 + ((cython.cast(cython.Py_ssize_t, rec[at]) << 8) | rec[at + 1]) != size:
            return False
        self.properties = take_bytes(rec, at + 2, size - at - 2)
        if size > at + 2 and rec[size - 1] != 2:
            self.properties += b"\x02"
        self.flag = u32(rec, layout.FLAG)
        self.born_timestamp = i64(rec, layout.BORN_TIMESTAMP)
        self.born_host = take_bytes(rec, layout.BORN_HOST, stored_at - layout.BORN_HOST)
        self.store_host = take_bytes(rec, stored_at + 8, p - stored_at - 8)
        self.reconsume_times = u32(rec, p)
        self.body_crc = u32(rec, layout.BODY_CRC)
        return self.reconsume_times < 0x7FFFFFFF and self._read_properties()

    @cython.cfunc
    @cython.inline
    def _text(self) -> cython.p_uchar:
        if cython.compiled:
            return cython.cast(cython.p_uchar, cython.cast(cython.p_char, self.properties))
        return self.properties

    @cython.cfunc
    @cython.exceptval(-1, check=True)
    def _read_properties(self) -> cython.bint:
        """Returns whether this module can copy a record with these properties; notes which of the properties that
        copies set are present."""
        rec: cython.p_uchar = self._text()
        p: cython.Py_ssize_t = 0
        end: cython.Py_ssize_t = len(self.properties)
        mid: cython.Py_ssize_t
        value_end: cython.Py_ssize_t
        name: bytes
        names: set = set()
        bit: cython.int
        self._seen = 0
        self.real_topic = self.retry_topic = b""
        self.real_queue_id = -1
        while p < end:
            value_end = find_byte(rec, p, end, 2)
            mid = find_byte(rec, p, value_end, 1)
            if mid == p or value_end - mid < 2:
                return False
            name = take_bytes(rec, p, mid - p)
            if name in _NOT_PLAIN or name in names:
                return False
            names.add(name)
            bit = _NAMES.get(name, 0)
            if bit:
                self._seen |= bit
                if bit == _REAL_TOPIC:
                    self.real_topic = take_bytes(rec, mid + 1, value_end - mid - 1)
                elif bit == _REAL_QUEUE:
                    self.real_queue_id = digits(rec, mid + 1, value_end)
                elif bit == _RETRY_TOPIC:
                    self.retry_topic = take_bytes(rec, mid + 1, value_end - mid - 1)
                elif bit == _ORIGIN and (rec[mid + 1] <= 0x20 or rec[mid + 1] >= 0x80):  # may count as blank
                    return False
            p = value_end + 1
        return True

    def sent_back(self, topic: bytes, queue_id: bytes, level: bytes, message_id: bytes) -> bytes:
        """The property bytes of its copy that waits in delay level `level` for queue `queue_id` (decimal numbers) of
        the retry topic `topic`.

        Args:
            message_id: of the record, for ORIGIN_MESSAGE_ID, if it has none yet.
        """
        rec: cython.p_uchar = self._text()
        target: cython.p_uchar
        p: cython.Py_ssize_t = 0
        end: cython.Py_ssize_t = len(self.properties)
        room: cython.Py_ssize_t = (
            end + 100 + len(self.topic) + len(topic) + len(queue_id) + len(level) + len(message_id)
        )
        made: bytearray = bytearray(room)
        if cython.compiled:
            target = cython.cast(cython.p_uchar, cython.cast(cython.p_char, made))
        else:
            target = made
        q: cython.Py_ssize_t = 0
        mid: cython.Py_ssize_t
        value_end: cython.Py_ssize_t
        value: bytes
        while p < end:
            value_end = find_byte(rec, p, end, 2)
            mid = find_byte(rec, p, value_end, 1)
            name: bytes = take_bytes(rec, p, mid - p)
            bit: cython.int = _NAMES.get(name, 0)
            if bit == _DELAY:
                value = level
            elif bit == _REAL_TOPIC:
                value = topic
            elif bit == _REAL_QUEUE:
                value = queue_id
            elif bit == _WAIT:
                value = b"false"
            else:
                value = take_bytes(rec, mid + 1, value_end - mid - 1)
            q = self._pair(target, q, name, value)
            p = value_end + 1
        seen: cython.int = self._seen
        if not seen & _RETRY_TOPIC:
            q = self._pair(target, q, b"RETRY_TOPIC", self.topic)
        if not seen & _WAIT:
            q = self._pair(target, q, b"WAIT", b"false")
        if not seen & _DELAY:
            q = self._pair(target, q, b"DELAY", level)
        if not seen & _ORIGIN:
            q = self._pair(target, q, b"ORIGIN_MESSAGE_ID", message_id)
        if not seen & _REAL_TOPIC:
            q = self._pair(target, q, b"REAL_TOPIC", topic)
        if not seen & _REAL_QUEUE:
            q = self._pair(target, q, b"REAL_QID", queue_id)
        return bytes(made[:q])

    @cython.cfunc
    @cython.exceptval(check=False)
    def _pair(self, target: cython.p_uchar, q: cython.Py_ssize_t, name: bytes, value: bytes) -> cython.Py_ssize_t:
        q = put_bytes(target, q, name)
        target[q] = 1
        q = put_bytes(target, q + 1, value)
        target[q] = 2
        return q + 1


def is_compiled() -> bool:
    """Returns whether this module runs compiled by Cython."""
    return cython.compiled
