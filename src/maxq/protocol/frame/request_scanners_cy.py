"""Requests that come one at a time and often, read where they lie: pulls, ends of transactions, messages given back."""

try:
    import cython
except ModuleNotFoundError:
    from maxq.runtime import cython  # type: ignore[no-redef]

if cython.compiled:
    from cython.cimports.maxq.protocol.frame.frame_scanner_cy import OneFrameScanner
    from cython.cimports.maxq.runtime.buffers import copy_bytes, same_bytes, take_bytes
else:
    from maxq.protocol.frame.frame_scanner_cy import OneFrameScanner
    from maxq.runtime.buffers import copy_bytes, same_bytes, take_bytes


#: Fields of a pull that make its key, in this order. All other fields change with every pull (PullScanner), or exclude
#: the pull from the fast path.
PULL_KEY_FIELDS = (
    "consumerGroup",
    "topic",
    "queueId",
    "maxMsgNums",
    "sysFlag",
    "suspendTimeoutMillis",
    "subVersion",
    "subscription",
    "expressionType",
    "maxMsgBytes",
)


@cython.cclass
class PullScanner(OneFrameScanner):
    """Reads one pull (11 or 361). `key`: the fields a reader repeats from pull to pull, in PULL_KEY_FIELDS order, each
    followed by a zero byte; the rest is what differs. Pulls with other fields, and one-way ones, are not taken."""

    key = cython.declare(bytes, visibility="public")
    code = cython.declare(cython.longlong, visibility="public")
    opaque = cython.declare(cython.longlong, visibility="public")
    queue_offset = cython.declare(cython.longlong, visibility="public")
    commit_offset = cython.declare(cython.longlong, visibility="public")
    binary = cython.declare(cython.bint, visibility="public")
    _slots = cython.declare(cython.Py_ssize_t[20])  # position and size of each key field
    _seen = cython.declare(cython.int)

    def __init__(self):
        OneFrameScanner.__init__(self)
        self.key = b""
        if not cython.compiled:
            self._slots = [0] * 20

    @cython.cfunc
    @cython.exceptval(check=False)
    def _wants(self) -> cython.bint:
        return self._code == 11 or self._code == 361

    @cython.cfunc
    @cython.exceptval(check=False)
    def _field(self, buf: cython.p_uchar, key: cython.Py_ssize_t, key_size: cython.Py_ssize_t) -> cython.bint:
        slot: cython.int = -1
        value: cython.longlong
        if self._escaped:
            return False
        if key_size == 11 and same_bytes(buf, key, key_size, b"queueOffset"):
            self.queue_offset = value = self._integer(buf)
            self._seen |= 1
            return value >= 0
        if key_size == 12 and same_bytes(buf, key, key_size, b"commitOffset"):
            self.commit_offset = value = self._integer(buf)
            self._seen |= 2
            return value > -(cython.cast(cython.longlong, 1) << 62)
        if key_size == 5 and same_bytes(buf, key, key_size, b"topic"):
            slot = 1
        elif key_size == 7:
            if same_bytes(buf, key, key_size, b"queueId"):
                slot = 2
            elif same_bytes(buf, key, key_size, b"sysFlag"):
                slot = 4
        elif key_size == 10:
            if same_bytes(buf, key, key_size, b"maxMsgNums"):
                slot = 3
            elif same_bytes(buf, key, key_size, b"subVersion"):
                slot = 6
        elif key_size == 11 and same_bytes(buf, key, key_size, b"maxMsgBytes"):
            slot = 9
        elif key_size == 12 and same_bytes(buf, key, key_size, b"subscription"):
            slot = 7
        elif key_size == 13 and same_bytes(buf, key, key_size, b"consumerGroup"):
            slot = 0
        elif key_size == 14 and same_bytes(buf, key, key_size, b"expressionType"):
            slot = 8
        elif key_size == 20 and same_bytes(buf, key, key_size, b"suspendTimeoutMillis"):
            slot = 5
        if slot < 0:
            return self._credential(buf, key, key_size)
        self._slots[2 * slot] = self._text
        self._slots[2 * slot + 1] = self._text_size
        return True

    @cython.cfunc
    @cython.exceptval(check=False)
    def _begin(self) -> cython.void:
        i: cython.int
        self._seen = 0
        for i in range(20):
            self._slots[i] = 0

    @cython.cfunc
    @cython.exceptval(check=False)
    def _is_whole(self) -> cython.bint:
        i: cython.int
        size: cython.Py_ssize_t = 10
        for i in range(10):
            size += self._slots[2 * i + 1]
        return size <= 4096 and self._seen == 3 and self._frame_flag == 0

    @cython.cfunc
    def _take(self, buf: cython.p_uchar, is_binary: cython.bint):
        i: cython.int
        size: cython.Py_ssize_t = 10
        p: cython.Py_ssize_t = 0
        target: cython.p_uchar
        for i in range(10):
            size += self._slots[2 * i + 1]
        parts: bytearray = bytearray(size)
        if cython.compiled:
            target = cython.cast(cython.p_uchar, cython.cast(cython.p_char, parts))
        else:
            target = parts
        for i in range(10):
            copy_bytes(target, p, buf, self._slots[2 * i], self._slots[2 * i + 1])
            p += self._slots[2 * i + 1]
            target[p] = 0
            p += 1
        self.key = bytes(parts)
        self.code = self._code
        self.opaque = self._opaque
        self.binary = is_binary


@cython.cclass
class EndScanner(OneFrameScanner):
    """Reads one END_TRANSACTION (37) that is one-way and answers no check; others are not taken."""

    commit_or_rollback = cython.declare(cython.longlong, visibility="public")
    commit_log_offset = cython.declare(cython.longlong, visibility="public")
    tran_state_table_offset = cython.declare(cython.longlong, visibility="public")
    producer_group = cython.declare(bytes, visibility="public")
    topic = cython.declare(bytes, visibility="public")  # empty if it names none
    msg_id = cython.declare(bytes, visibility="public")
    _group = cython.declare(cython.Py_ssize_t)
    _group_size = cython.declare(cython.Py_ssize_t)
    _topic = cython.declare(cython.Py_ssize_t)
    _topic_size = cython.declare(cython.Py_ssize_t)
    _id = cython.declare(cython.Py_ssize_t)
    _id_size = cython.declare(cython.Py_ssize_t)
    _seen = cython.declare(cython.int)

    def __init__(self):
        OneFrameScanner.__init__(self)
        self.producer_group = self.topic = self.msg_id = b""
        self.commit_or_rollback = self.commit_log_offset = self.tran_state_table_offset = 0

    @cython.cfunc
    @cython.exceptval(check=False)
    def _wants(self) -> cython.bint:
        return self._code == 37

    @cython.cfunc
    @cython.exceptval(check=False)
    def _field(self, buf: cython.p_uchar, key: cython.Py_ssize_t, key_size: cython.Py_ssize_t) -> cython.bint:
        if self._escaped:
            return False
        if key_size == 13 and same_bytes(buf, key, key_size, b"producerGroup"):
            self._group = self._text
            self._group_size = self._text_size
            self._seen |= 1
            return True
        if key_size == 15 and same_bytes(buf, key, key_size, b"commitLogOffset"):
            self.commit_log_offset = self._integer(buf)
            self._seen |= 2
            return self.commit_log_offset >= 0
        if key_size == 16 and same_bytes(buf, key, key_size, b"commitOrRollback"):
            self.commit_or_rollback = self._integer(buf)
            self._seen |= 4
            return True
        if key_size == 20 and same_bytes(buf, key, key_size, b"tranStateTableOffset"):
            self.tran_state_table_offset = self._integer(buf)
            self._seen |= 8
            return self.tran_state_table_offset >= 0
        if key_size == 5:
            if same_bytes(buf, key, key_size, b"msgId"):
                self._id = self._text
                self._id_size = self._text_size
                self._seen |= 16
                return True
            if same_bytes(buf, key, key_size, b"topic"):
                self._topic = self._text
                self._topic_size = self._text_size
                return True
            return same_bytes(buf, key, key_size, b"bname")
        if key_size == 13 and same_bytes(buf, key, key_size, b"transactionId"):
            return True
        if key_size == 20:
            return same_bytes(buf, key, key_size, b"fromTransactionCheck") and same_bytes(
                buf, self._text, self._text_size, b"false"
            )
        return self._credential(buf, key, key_size)

    @cython.cfunc
    @cython.exceptval(check=False)
    def _begin(self) -> cython.void:
        self._seen = 0
        self._topic = self._topic_size = 0

    @cython.cfunc
    @cython.exceptval(check=False)
    def _is_whole(self) -> cython.bint:
        return self._seen == 31 and self._frame_flag == 2

    @cython.cfunc
    def _take(self, buf: cython.p_uchar, is_binary: cython.bint):
        self.producer_group = take_bytes(buf, self._group, self._group_size)
        self.topic = take_bytes(buf, self._topic, self._topic_size)
        self.msg_id = take_bytes(buf, self._id, self._id_size)


@cython.cclass
class SendBackScanner(OneFrameScanner):
    """Reads one CONSUMER_SEND_MSG_BACK (36) that asks for an answer and does not ask for a dead letter; others are not
    taken. `most_times` is maxReconsumeTimes, -1 if it is not given; `version` that of the client."""

    group = cython.declare(bytes, visibility="public")
    offset = cython.declare(cython.longlong, visibility="public")
    origin = cython.declare(bytes, visibility="public")  # originMsgId; empty if there is none
    delay_level = cython.declare(cython.longlong, visibility="public")
    most_times = cython.declare(cython.longlong, visibility="public")
    unit_mode = cython.declare(cython.bint, visibility="public")
    version = cython.declare(cython.longlong, visibility="public")
    opaque = cython.declare(cython.longlong, visibility="public")
    binary = cython.declare(cython.bint, visibility="public")
    _group = cython.declare(cython.Py_ssize_t)
    _group_size = cython.declare(cython.Py_ssize_t)
    _origin = cython.declare(cython.Py_ssize_t)
    _origin_size = cython.declare(cython.Py_ssize_t)
    _seen = cython.declare(cython.int)

    def __init__(self):
        OneFrameScanner.__init__(self)
        self.group = self.origin = b""
        self.offset = self.delay_level = self.version = self.opaque = 0
        self.most_times = -1
        self.unit_mode = self.binary = False

    @cython.cfunc
    @cython.exceptval(check=False)
    def _wants(self) -> cython.bint:
        return self._code == 36

    @cython.cfunc
    @cython.exceptval(check=False)
    def _field(self, buf: cython.p_uchar, key: cython.Py_ssize_t, key_size: cython.Py_ssize_t) -> cython.bint:
        if self._escaped:
            return False
        if key_size == 5 and same_bytes(buf, key, key_size, b"group"):
            self._group = self._text
            self._group_size = self._text_size
            self._seen |= 1
            return self._text_size > 0
        if key_size == 6 and same_bytes(buf, key, key_size, b"offset"):
            self.offset = self._integer(buf)
            self._seen |= 2
            return self.offset >= 0
        if key_size == 10 and same_bytes(buf, key, key_size, b"delayLevel"):
            self.delay_level = self._integer(buf)
            self._seen |= 4
            return 0 <= self.delay_level <= 1000
        if key_size == 17 and same_bytes(buf, key, key_size, b"maxReconsumeTimes"):
            self.most_times = self._integer(buf)
            return 0 <= self.most_times <= 2147483647
        if key_size == 8 and same_bytes(buf, key, key_size, b"unitMode"):
            self.unit_mode = same_bytes(buf, self._text, self._text_size, b"true")
            return self.unit_mode or same_bytes(buf, self._text, self._text_size, b"false")
        if key_size == 11:
            if same_bytes(buf, key, key_size, b"originMsgId"):
                self._origin = self._text
                self._origin_size = self._text_size
                return True
            return same_bytes(buf, key, key_size, b"originTopic")
        return (key_size == 5 and same_bytes(buf, key, key_size, b"bname")) or self._credential(buf, key, key_size)

    @cython.cfunc
    @cython.exceptval(check=False)
    def _begin(self) -> cython.void:
        self._seen = 0
        self._origin = self._origin_size = 0
        self.most_times = -1
        self.unit_mode = False

    @cython.cfunc
    @cython.exceptval(check=False)
    def _is_whole(self) -> cython.bint:
        return self._seen == 7 and self._frame_flag == 0

    @cython.cfunc
    def _take(self, buf: cython.p_uchar, is_binary: cython.bint):
        self.group = take_bytes(buf, self._group, self._group_size)
        self.origin = take_bytes(buf, self._origin, self._origin_size)
        self.version = self._version
        self.opaque = self._opaque
        self.binary = is_binary
