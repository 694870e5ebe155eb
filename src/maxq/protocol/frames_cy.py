"""Plain sends, straight from the receive buffer to rows of integers, and their answers: no Python object per message.

A send is **plain** when it is request 310, 320 or 10, a request and not an answer, names a topic and queue, is no part
of a transaction, carries a UNIQ_KEY (a batch: its messages do), and none of its properties makes the broker do more
than store it (SPECIAL). All else is left to the general codec (protocol/remoting_command.py) and the
SendMessageProcessor, which know every rule; this module only has to be right about what it takes. Columns of a row:
store/log_cy.py, R_….

Frame: length:4, serialize type:1, header length:3, header, body (remoting.md §1). Properties: name 0x01 value 0x02 ….
"""

from array import array

try:
    import cython
except ModuleNotFoundError:
    from maxq.runtime import cython  # type: ignore[no-redef]

if cython.compiled:
    from cython.cimports.libc.string import memcmp, memcpy

ROW_WIDTH = 20

#: Properties that need the general way: the broker sets, strips or acts on them.
SPECIAL = frozenset(
    b"CLUSTER MSG_REGION TRACE_ON DELAY TRAN_MSG POP_CK __CRC32# INNER_NUM INNER_BASE INNER_MULTI_DISPATCH "
    b"INNER_MULTI_QUEUE_OFFSET TIMER_DELAY_SEC TIMER_DELAY_MS TIMER_DELIVER_MS TIMER_OUT_MS TIMER_DEL_UNIQKEY "
    b"TIMER_ENQUEUE_MS TIMER_DEQUEUE_MS TIMER_ROLL_TIMES TIMER_ROLL_LABEL DUP_INFO _SYS_MSG_PRIORITY_ __LITE_TOPIC "
    b"REAL_TOPIC REAL_QID RETRY_TOPIC TRAN_PREPARED_QUEUE_OFFSET".split()
)


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
def _same(buf: cython.p_uchar, p: cython.Py_ssize_t, n: cython.Py_ssize_t, word: bytes) -> cython.bint:
    if n != len(word):
        return False
    if cython.compiled:
        return memcmp(buf + p, cython.cast(cython.p_char, word), n) == 0
    return bytes(buf[p : p + n]) == word


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _space(buf: cython.p_uchar, p: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.Py_ssize_t:
    while p < end and (buf[p] == 0x20 or buf[p] == 0x0A or buf[p] == 0x0D or buf[p] == 0x09):
        p += 1
    return p


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _hex(c: cython.int) -> cython.int:
    if 0x30 <= c <= 0x39:
        return c - 0x30
    if 0x61 <= c <= 0x66:
        return c - 0x57
    if 0x41 <= c <= 0x46:
        return c - 0x37
    return -1


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _copy(
    target: cython.p_uchar, p: cython.Py_ssize_t, source: cython.p_uchar, q: cython.Py_ssize_t, n: cython.Py_ssize_t
) -> cython.Py_ssize_t:
    if cython.compiled:
        memcpy(target + p, source + q, n)
    else:
        target[p : p + n] = source[q : q + n]
    return p + n


@cython.cclass
class FrameScanner:
    """Reads the header of one frame, JSON or ROCKETMQ; subclasses say which codes and fields they know."""

    _code = cython.declare(cython.longlong)
    _frame_flag = cython.declare(cython.longlong)
    _opaque = cython.declare(cython.longlong)
    _text = cython.declare(cython.Py_ssize_t)  # the last string or number read: position in the receive buffer
    _text_size = cython.declare(cython.Py_ssize_t)
    _escaped = cython.declare(cython.bint)

    @cython.cfunc
    @cython.exceptval(check=False)
    def _wants(self) -> cython.bint:
        """Is `_code` one of ours?"""
        return False

    @cython.cfunc
    @cython.exceptval(check=False)
    def _field(self, buf: cython.p_uchar, key: cython.Py_ssize_t, key_size: cython.Py_ssize_t) -> cython.bint:
        """One header field whose value is the last text. False: leave this frame to the general codec."""
        return False

    @cython.cfunc
    @cython.exceptval(check=False)
    def _header(self, buf: cython.p_uchar, start: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Read the header of the whole frame [start, end); the position of its body, or 0 to leave it."""
        kind: cython.int = buf[start + 4]
        body: cython.Py_ssize_t = start + 8 + (_u32(buf, start + 4) & 0xFFFFFF)
        if body > end or kind > 1:
            return 0
        self._frame_flag = self._opaque = self._code = 0
        if kind == 0:
            return body if self._json(buf, start + 8, body) and self._wants() else 0
        return body if self._binary(buf, start + 8, body) and self._wants() else 0

    @cython.cfunc
    @cython.exceptval(check=False)
    def _string(self, buf: cython.p_uchar, p: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """A JSON string at p (its opening quote): text set, position behind it; 0 if there is none."""
        if p >= end or buf[p] != 0x22:
            return 0
        p += 1
        self._text = p
        self._escaped = False
        c: cython.int
        while p < end:
            c = buf[p]
            if c == 0x22:
                self._text_size = p - self._text
                return p + 1
            if c == 0x5C:
                self._escaped = True
                p += 1
            elif c < 0x20:
                return 0
            p += 1
        return 0

    @cython.cfunc
    @cython.exceptval(check=False)
    def _scalar(self, buf: cython.p_uchar, p: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """A string, or a bare word or number: text set, position behind it; 0 if there is none."""
        if p < end and buf[p] == 0x22:
            return self._string(buf, p, end)
        self._text = p
        self._escaped = False
        while p < end and (buf[p] == 0x2D or 0x30 <= buf[p] <= 0x39 or 0x61 <= buf[p] <= 0x7A):
            p += 1
        self._text_size = p - self._text
        return p if self._text_size else 0

    @cython.cfunc
    @cython.exceptval(check=False)
    def _integer(self, buf: cython.p_uchar) -> cython.longlong:
        """The text as a number; a value that no field has (−2^62) if it is not one."""
        p: cython.Py_ssize_t = self._text
        end: cython.Py_ssize_t = p + self._text_size
        negative: cython.bint = p < end and buf[p] == 0x2D
        value: cython.longlong = 0
        if negative:
            p += 1
        if p == end or end - p > 18 or self._escaped:
            return -(cython.cast(cython.longlong, 1) << 62)
        while p < end:
            if buf[p] < 0x30 or buf[p] > 0x39:
                return -(cython.cast(cython.longlong, 1) << 62)
            value = value * 10 + (buf[p] - 0x30)
            p += 1
        return -value if negative else value

    @cython.cfunc
    @cython.exceptval(check=False)
    def _json(self, buf: cython.p_uchar, p: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.bint:
        p = _space(buf, p, end)
        if p >= end or buf[p] != 0x7B:
            return False
        p += 1
        key: cython.Py_ssize_t
        key_size: cython.Py_ssize_t
        value: cython.longlong
        while True:
            p = self._string(buf, _space(buf, p, end), end)
            if p == 0 or self._escaped:
                return False
            key = self._text
            key_size = self._text_size
            p = _space(buf, p, end)
            if p >= end or buf[p] != 0x3A:
                return False
            p = _space(buf, p + 1, end)
            if key_size == 9 and _same(buf, key, key_size, b"extFields"):
                p = self._json_fields(buf, p, end)
                if p == 0:
                    return False
            else:
                p = self._scalar(buf, p, end)
                if p == 0:
                    return False
                if key_size == 4 and _same(buf, key, 4, b"code"):
                    self._code = self._integer(buf)
                    if not self._wants():
                        return False
                elif key_size == 4 and _same(buf, key, 4, b"flag"):
                    self._frame_flag = self._integer(buf)
                    if self._frame_flag & ~cython.cast(cython.longlong, 3):
                        return False
                elif key_size == 6 and _same(buf, key, 6, b"opaque"):
                    value = self._integer(buf)
                    if value < -2147483648 or value > 2147483647:
                        return False
                    self._opaque = value
            p = _space(buf, p, end)
            if p >= end:
                return False
            if buf[p] == 0x7D:
                return _space(buf, p + 1, end) == end
            if buf[p] != 0x2C:
                return False
            p += 1

    @cython.cfunc
    @cython.exceptval(check=False)
    def _json_fields(self, buf: cython.p_uchar, p: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """The extFields object at p; position behind it, or 0."""
        if p >= end or buf[p] != 0x7B:
            return 0
        p += 1
        key: cython.Py_ssize_t
        key_size: cython.Py_ssize_t
        while True:
            p = self._string(buf, _space(buf, p, end), end)
            if p == 0 or self._escaped:
                return 0
            key = self._text
            key_size = self._text_size
            p = _space(buf, p, end)
            if p >= end or buf[p] != 0x3A:
                return 0
            p = self._scalar(buf, _space(buf, p + 1, end), end)
            if p == 0 or not self._field(buf, key, key_size):
                return 0
            p = _space(buf, p, end)
            if p >= end:
                return 0
            if buf[p] == 0x7D:
                return p + 1
            if buf[p] != 0x2C:
                return 0
            p += 1

    @cython.cfunc
    @cython.exceptval(check=False)
    def _binary(self, buf: cython.p_uchar, p: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.bint:
        """code:2 language:1 version:2 opaque:4 flag:4 remark:4+n ext length:4 (key:2+n value:4+n)…"""
        if end - p < 21:
            return False
        self._code = (buf[p] << 8) | buf[p + 1]
        if not self._wants():
            return False
        self._opaque = self._signed(_u32(buf, p + 5))
        self._frame_flag = _u32(buf, p + 9)
        size: cython.longlong = _u32(buf, p + 13)
        if self._frame_flag & ~cython.cast(cython.longlong, 3) or size != 0:
            return False
        size = _u32(buf, p + 17)
        p += 21
        if size != end - p:
            return False
        self._escaped = False
        key: cython.Py_ssize_t
        key_size: cython.Py_ssize_t
        while p < end:
            if end - p < 6:
                return False
            key_size = (buf[p] << 8) | buf[p + 1]
            key = p + 2
            p = key + key_size
            if end - p < 4:
                return False
            size = _u32(buf, p)
            p += 4
            if size > end - p:
                return False
            self._text = p
            self._text_size = size
            p += size
            if size and not self._field(buf, key, key_size):
                return False
        return True

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def _signed(self, value: cython.uint) -> cython.longlong:
        if cython.compiled:
            return cython.cast(cython.int, value)
        return value - 0x100000000 if value >= 0x80000000 else value


@cython.cclass
class SendScanner(FrameScanner):
    """See frames_cy.pyi."""

    rows = cython.declare(object, visibility="public")
    scratch = cython.declare(bytearray, visibility="public")
    count = cython.declare(cython.Py_ssize_t, visibility="public")
    _frame_limit = cython.declare(cython.longlong)
    _capacity = cython.declare(cython.Py_ssize_t)
    _scratch_size = cython.declare(cython.Py_ssize_t)
    _rows_view = cython.declare(cython.longlong[::1])
    _used = cython.declare(cython.Py_ssize_t)  # bytes of scratch in use
    # the frame under the eye; positions are in the receive buffer
    _topic = cython.declare(cython.Py_ssize_t)
    _topic_size = cython.declare(cython.Py_ssize_t)
    _properties = cython.declare(cython.Py_ssize_t)
    _properties_size = cython.declare(cython.Py_ssize_t)
    _properties_escaped = cython.declare(cython.bint)
    _queue_id = cython.declare(cython.longlong)
    _sys_flag = cython.declare(cython.longlong)
    _born = cython.declare(cython.longlong)
    _flag = cython.declare(cython.longlong)
    _reconsume = cython.declare(cython.longlong)
    _batch = cython.declare(cython.bint)
    _seen = cython.declare(cython.int)  # bits: topic, queue id, sys flag, born, flag, properties
    _unique = cython.declare(cython.Py_ssize_t)
    _unique_size = cython.declare(cython.Py_ssize_t)
    _no_wait = cython.declare(cython.bint)

    def __init__(self, frame_limit, capacity=1024, scratch_size=262144):
        self._frame_limit = frame_limit
        self._capacity = capacity
        self._scratch_size = scratch_size
        self.rows = array("q", bytes(8 * ROW_WIDTH * capacity))
        self._rows_view = self.rows if cython.compiled else memoryview(self.rows)
        self.scratch = bytearray(scratch_size)
        self.count = 0

    def scan(self, buffer: cython.uchar[::1], start: cython.Py_ssize_t, end: cython.Py_ssize_t):
        self.count = 0
        self._used = 0
        if end > len(buffer) or start < 0:
            raise ValueError(f"range [{start}, {end}) is outside the buffer of {len(buffer)} bytes")
        p: cython.Py_ssize_t = start
        buf: cython.p_uchar
        scratch: cython.p_uchar
        if start >= end:
            return start
        if cython.compiled:
            buf = cython.address(buffer[0])
            scratch = cython.cast(cython.p_uchar, cython.cast(cython.p_char, self.scratch))
        else:
            buf = memoryview(buffer)
            scratch = self.scratch
        length: cython.longlong
        while self.count < self._capacity and end - p >= 8:
            length = _u32(buf, p)
            if length < 4 or length + 4 > self._frame_limit or length + 4 > end - p:
                break
            if not self._frame(buf, scratch, p, p + 4 + length):
                break
            p += 4 + length
            self.count += 1
        return p

    @cython.cfunc
    @cython.exceptval(check=False)
    def _wants(self) -> cython.bint:
        return self._code == 310 or self._code == 320 or self._code == 10

    @cython.cfunc
    @cython.exceptval(-1, check=True)
    def _frame(
        self, buf: cython.p_uchar, scratch: cython.p_uchar, start: cython.Py_ssize_t, end: cython.Py_ssize_t
    ) -> cython.int:
        """One whole frame at [start, end): a row and 1, or 0 if it is not plain."""
        self._seen = 0
        self._reconsume = 0
        self._batch = False
        self._properties = start
        self._properties_size = 0
        self._properties_escaped = False
        body: cython.Py_ssize_t = self._header(buf, start, end)
        if body == 0:
            return 0
        # required: topic, queue id, sys flag, born timestamp, flag; an answer (bit 0) is none of ours
        if (
            (self._seen & 31) != 31
            or self._frame_flag & 1
            or self._sys_flag & ~cython.cast(cython.longlong, 0x733)
            or self._queue_id < 0
        ):
            return 0
        if self._topic_size == 0 or self._topic_size > 127 or buf[self._topic] == 0x25 or body == end:
            return 0
        flags: cython.longlong = (
            (4 if buf[start + 4] == 1 else 0) | (2 if self._frame_flag & 2 else 0) | (8 if self._batch else 0)
        )
        properties: cython.p_uchar = buf
        if self._properties_escaped:
            if not self._to_scratch(buf, scratch):
                return 0
            properties = scratch
            flags |= 1
        if not self._check_properties(properties):
            return 0
        if self._unique_size == 0 and not self._batch:
            return 0
        if self._no_wait:
            flags |= 16
        r: cython.Py_ssize_t = self.count * 20
        row: cython.p_longlong
        if cython.compiled:
            row = cython.address(self._rows_view[r])
        else:
            row = self._rows_view[r : r + 20]
        row[0] = flags
        row[1] = self._opaque
        row[2] = self._topic
        row[3] = self._topic_size
        row[4] = self._queue_id
        row[5] = self._sys_flag
        row[6] = self._born
        row[7] = self._flag
        row[8] = self._properties
        row[9] = self._properties_size
        row[10] = body
        row[11] = end - body
        row[12] = self._reconsume
        row[13] = row[14] = row[15] = row[16] = 0
        row[17] = self._unique
        row[18] = self._unique_size
        row[19] = start
        if flags & 1:
            self._used = self._properties + self._properties_size
        return 1

    @cython.cfunc
    @cython.exceptval(check=False)
    def _field(self, buf: cython.p_uchar, key: cython.Py_ssize_t, key_size: cython.Py_ssize_t) -> cython.bint:
        """One header field whose value is the last text. False: this frame is not plain."""
        letter: cython.int = buf[key] if key_size == 1 else self._letter(buf, key, key_size)
        value: cython.longlong
        if letter == 0x62:  # b topic
            self._topic = self._text
            self._topic_size = self._text_size
            self._seen |= 1
            return not self._escaped
        if letter == 0x69:  # i properties
            self._properties = self._text
            self._properties_size = self._text_size
            self._properties_escaped = self._escaped
            return True
        if letter == 0x6D:  # m batch: the C++ client writes 1
            self._batch = _same(buf, self._text, self._text_size, b"true") or _same(
                buf, self._text, self._text_size, b"1"
            )
            return True
        if letter == 0x65 or letter == 0x66 or letter == 0x68 or letter == 0x6A:
            value = self._integer(buf)
            if value < -2147483648 or value > 2147483647:
                return False
            if letter == 0x65:  # e queue id
                self._queue_id = value
                self._seen |= 2
            elif letter == 0x66:  # f sys flag
                self._sys_flag = value
                self._seen |= 4
            elif letter == 0x68:  # h flag
                self._flag = value
                self._seen |= 16
            else:  # j reconsume times
                self._reconsume = value
            return True
        if letter == 0x67:  # g born timestamp
            value = self._integer(buf)
            self._born = value
            self._seen |= 8
            return value > -(cython.cast(cython.longlong, 1) << 62)
        # a producer group, c default topic, d its queues, k unit mode, l max reconsume times, n broker name: not needed
        # for a known topic
        return letter == 0x61 or letter == 0x63 or letter == 0x64 or letter == 0x6B or letter == 0x6C or letter == 0x6E

    @cython.cfunc
    @cython.exceptval(check=False)
    def _letter(self, buf: cython.p_uchar, key: cython.Py_ssize_t, n: cython.Py_ssize_t) -> cython.int:
        """The V2 letter of a V1 field name; 0 for any other."""
        if n == 5:
            if _same(buf, key, n, b"topic"):
                return 0x62
            if _same(buf, key, n, b"batch"):
                return 0x6D
            return 0x6E if _same(buf, key, n, b"bname") else 0
        if n == 4:
            return 0x68 if _same(buf, key, n, b"flag") else 0
        if n == 7:
            if _same(buf, key, n, b"queueId"):
                return 0x65
            return 0x66 if _same(buf, key, n, b"sysFlag") else 0
        if n == 8:
            return 0x6B if _same(buf, key, n, b"unitMode") else 0
        if n == 10:
            return 0x69 if _same(buf, key, n, b"properties") else 0
        if n == 12:
            return 0x63 if _same(buf, key, n, b"defaultTopic") else 0
        if n == 13:
            if _same(buf, key, n, b"bornTimestamp"):
                return 0x67
            return 0x61 if _same(buf, key, n, b"producerGroup") else 0
        if n == 14:
            return 0x6A if _same(buf, key, n, b"reconsumeTimes") else 0
        if n == 17:
            return 0x6C if _same(buf, key, n, b"maxReconsumeTimes") else 0
        if n == 21:
            return 0x64 if _same(buf, key, n, b"defaultTopicQueueNums") else 0
        return 0

    # -- properties ----------------------------------------------------------------------------------------------

    @cython.cfunc
    @cython.exceptval(check=False)
    def _to_scratch(self, buf: cython.p_uchar, scratch: cython.p_uchar) -> cython.bint:
        """Unescape the property text into scratch. False: no room, or an escape that is not JSON."""
        p: cython.Py_ssize_t = self._properties
        end: cython.Py_ssize_t = p + self._properties_size
        q: cython.Py_ssize_t = self._used
        c: cython.int
        unit: cython.int
        low: cython.int
        if q + self._properties_size > self._scratch_size:
            return False
        self._properties = q
        while p < end:
            c = buf[p]
            if c != 0x5C or not self._properties_escaped:
                scratch[q] = c
                q += 1
                p += 1
                continue
            if p + 1 >= end:
                return False
            c = buf[p + 1]
            p += 2
            if c == 0x75:
                unit = self._unit(buf, p, end)
                p += 4
                if unit < 0:
                    return False
                if 0xD800 <= unit < 0xDC00 and p + 6 <= end and buf[p] == 0x5C and buf[p + 1] == 0x75:
                    low = self._unit(buf, p + 2, end)
                    if 0xDC00 <= low < 0xE000:
                        unit = 0x10000 + ((unit - 0xD800) << 10) + (low - 0xDC00)
                        p += 6
                if 0xD800 <= unit < 0xE000:
                    return False
                if unit < 0x80:
                    scratch[q] = unit
                    q += 1
                elif unit < 0x800:
                    scratch[q] = 0xC0 | (unit >> 6)
                    scratch[q + 1] = 0x80 | (unit & 0x3F)
                    q += 2
                elif unit < 0x10000:
                    scratch[q] = 0xE0 | (unit >> 12)
                    scratch[q + 1] = 0x80 | ((unit >> 6) & 0x3F)
                    scratch[q + 2] = 0x80 | (unit & 0x3F)
                    q += 3
                else:
                    scratch[q] = 0xF0 | (unit >> 18)
                    scratch[q + 1] = 0x80 | ((unit >> 12) & 0x3F)
                    scratch[q + 2] = 0x80 | ((unit >> 6) & 0x3F)
                    scratch[q + 3] = 0x80 | (unit & 0x3F)
                    q += 4
                continue
            if c == 0x6E:
                c = 0x0A
            elif c == 0x74:
                c = 0x09
            elif c == 0x72:
                c = 0x0D
            elif c == 0x62:
                c = 0x08
            elif c == 0x66:
                c = 0x0C
            elif c != 0x22 and c != 0x5C and c != 0x2F:
                return False
            scratch[q] = c
            q += 1
        self._properties_size = q - self._properties
        return True

    @cython.cfunc
    @cython.exceptval(check=False)
    def _unit(self, buf: cython.p_uchar, p: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.int:
        """Four hex digits at p; −1 if they are not there."""
        value: cython.int = 0
        i: cython.Py_ssize_t
        digit: cython.int
        if p + 4 > end:
            return -1
        for i in range(4):
            digit = _hex(buf[p + i])
            if digit < 0:
                return -1
            value = value * 16 + digit
        return value

    @cython.cfunc
    @cython.exceptval(-1, check=True)
    def _check_properties(self, buf: cython.p_uchar) -> cython.int:
        """1 if every pair is well formed, plain and there once; finds UNIQ_KEY and WAIT."""
        p: cython.Py_ssize_t = self._properties
        end: cython.Py_ssize_t = p + self._properties_size
        mid: cython.Py_ssize_t
        value_end: cython.Py_ssize_t
        n: cython.Py_ssize_t
        seen: cython.int = 0
        bit: cython.int
        name: bytes
        self._unique_size = 0
        self._unique = 0
        self._no_wait = False
        while p < end:
            mid = p
            while mid < end and buf[mid] != 1 and buf[mid] != 2:
                mid += 1
            if mid == end or buf[mid] == 2 or mid == p:
                return 0
            value_end = mid + 1
            while value_end < end and buf[value_end] != 2:
                if buf[value_end] == 1:
                    return 0
                value_end += 1
            if value_end == mid + 1:
                return 0
            n = mid - p
            bit = 0
            if n == 4:
                if _same(buf, p, n, b"TAGS"):
                    bit = 1
                elif _same(buf, p, n, b"KEYS"):
                    bit = 2
                elif _same(buf, p, n, b"WAIT"):
                    bit = 4
                    self._no_wait = _same(buf, mid + 1, value_end - mid - 1, b"false")
            elif n == 8 and _same(buf, p, n, b"UNIQ_KEY"):
                bit = 8
                self._unique = mid + 1
                self._unique_size = value_end - mid - 1
                if not self._printable(buf, mid + 1, value_end):
                    return 0
            if bit:
                if seen & bit:
                    return 0
                seen |= bit
            else:
                if cython.compiled:
                    name = cython.cast(cython.p_char, buf + p)[:n]
                else:
                    name = bytes(buf[p:mid])
                if name in SPECIAL:
                    return 0
            p = value_end + 1
        return 1

    @cython.cfunc
    @cython.exceptval(check=False)
    def _printable(self, buf: cython.p_uchar, p: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.bint:
        """May this text go back into JSON as it is?"""
        if end - p > 128:
            return False
        while p < end:
            if buf[p] < 0x21 or buf[p] > 0x7E or buf[p] == 0x22 or buf[p] == 0x5C:
                return False
            p += 1
        return True


#: Fields of a pull in the order of its key; what is not here changes with every pull (PullScanner) or is not plain.
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
class PullScanner(FrameScanner):
    """Reads one pull (11 or 361): its key (all that a reader repeats from pull to pull), and what differs."""

    key = cython.declare(bytes, visibility="public")
    code = cython.declare(cython.longlong, visibility="public")
    opaque = cython.declare(cython.longlong, visibility="public")
    queue_offset = cython.declare(cython.longlong, visibility="public")
    commit_offset = cython.declare(cython.longlong, visibility="public")
    binary = cython.declare(cython.bint, visibility="public")
    _slots = cython.declare(cython.Py_ssize_t[20])  # position and size of each key field
    _seen = cython.declare(cython.int)

    def __init__(self):
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
        if key_size == 11 and _same(buf, key, key_size, b"queueOffset"):
            self.queue_offset = value = self._integer(buf)
            self._seen |= 1
            return value >= 0
        if key_size == 12 and _same(buf, key, key_size, b"commitOffset"):
            self.commit_offset = value = self._integer(buf)
            self._seen |= 2
            return value > -(cython.cast(cython.longlong, 1) << 62)
        if key_size == 5 and _same(buf, key, key_size, b"topic"):
            slot = 1
        elif key_size == 7:
            slot = 2 if _same(buf, key, key_size, b"queueId") else 4 if _same(buf, key, key_size, b"sysFlag") else -1
        elif key_size == 10:
            slot = (
                3 if _same(buf, key, key_size, b"maxMsgNums") else 6 if _same(buf, key, key_size, b"subVersion") else -1
            )
        elif key_size == 11:
            slot = 9 if _same(buf, key, key_size, b"maxMsgBytes") else -1
        elif key_size == 12:
            slot = 7 if _same(buf, key, key_size, b"subscription") else -1
        elif key_size == 13:
            slot = 0 if _same(buf, key, key_size, b"consumerGroup") else -1
        elif key_size == 14:
            slot = 8 if _same(buf, key, key_size, b"expressionType") else -1
        elif key_size == 20:
            slot = 5 if _same(buf, key, key_size, b"suspendTimeoutMillis") else -1
        if slot < 0:
            return False
        self._slots[2 * slot] = self._text
        self._slots[2 * slot + 1] = self._text_size
        return True

    def scan(self, buffer: cython.uchar[::1], start: cython.Py_ssize_t, end: cython.Py_ssize_t):
        """Read the frame at `start`; the position behind it, or `start` if it is incomplete or not such a pull."""
        if end > len(buffer) or start < 0:
            raise ValueError(f"range [{start}, {end}) is outside the buffer of {len(buffer)} bytes")
        if end - start < 8:
            return start
        buf: cython.p_uchar
        i: cython.int
        n: cython.Py_ssize_t = 10
        if cython.compiled:
            buf = cython.address(buffer[0])
        else:
            buf = memoryview(buffer)
        length: cython.longlong = _u32(buf, start)
        if length < 4 or length + 4 > end - start:
            return start
        self._seen = 0
        for i in range(20):
            self._slots[i] = 0
        if self._header(buf, start, start + 4 + length) == 0 or self._seen != 3 or self._frame_flag != 0:
            return start
        for i in range(10):
            n += self._slots[2 * i + 1]
        if n > 4096:
            return start
        parts: bytearray = bytearray(n)
        target: cython.p_uchar
        p: cython.Py_ssize_t = 0
        if cython.compiled:
            target = cython.cast(cython.p_uchar, cython.cast(cython.p_char, parts))
        else:
            target = parts
        for i in range(10):
            p = _copy(target, p, buf, self._slots[2 * i], self._slots[2 * i + 1])
            target[p] = 0
            p += 1
        self.key = bytes(parts)
        self.code = self._code
        self.opaque = self._opaque
        self.binary = buf[start + 4] == 1
        return start + 4 + length


# -- answers -----------------------------------------------------------------------------------------------------


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _put(out: cython.p_uchar, p: cython.Py_ssize_t, data: bytes) -> cython.Py_ssize_t:
    if cython.compiled:
        memcpy(out + p, cython.cast(cython.p_char, data), len(data))
    else:
        out[p : p + len(data)] = data
    return p + len(data)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _put_number(out: cython.p_uchar, p: cython.Py_ssize_t, value: cython.longlong) -> cython.Py_ssize_t:
    """Decimal digits."""
    end: cython.Py_ssize_t
    rest: cython.longlong
    if value < 0:
        out[p] = 0x2D
        p += 1
        value = -value
    end = p + 1
    rest = value // 10
    while rest:
        end += 1
        rest //= 10
    rest = end
    while True:
        rest -= 1
        out[rest] = 0x30 + value % 10
        value //= 10
        if value == 0:
            return end


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _put_hex(out: cython.p_uchar, p: cython.Py_ssize_t, value: cython.longlong) -> cython.Py_ssize_t:
    """Sixteen upper-case hex digits."""
    i: cython.int
    digit: cython.int
    for i in range(16):
        digit = (value >> (60 - 4 * i)) & 15
        out[p + i] = digit + (0x30 if digit < 10 else 0x37)
    return p + 16


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _put32(out: cython.p_uchar, p: cython.Py_ssize_t, value: cython.longlong) -> cython.Py_ssize_t:
    out[p] = (value >> 24) & 0xFF
    out[p + 1] = (value >> 16) & 0xFF
    out[p + 2] = (value >> 8) & 0xFF
    out[p + 3] = value & 0xFF
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
    """The offset ids of `count` records that begin at `offset`, joined with commas."""
    i: cython.longlong
    for i in range(count):
        if i:
            out[p] = 0x2C
            p += 1
        p = _put(out, p, host)
        p = _put_hex(out, p, offset)
        if i + 1 < count:
            offset += _u32(log, offset - file_from_offset)
    return p


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _field(out: cython.p_uchar, p: cython.Py_ssize_t, name: bytes) -> cython.Py_ssize_t:
    """A binary pair's key and room for the value's length."""
    n: cython.Py_ssize_t = len(name)
    out[p] = n >> 8
    out[p + 1] = n & 0xFF
    return _put(out, p + 2, name) + 4


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _close(out: cython.p_uchar, start: cython.Py_ssize_t, p: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Fill in the length of the value that began at start."""
    _put32(out, start - 4, p - start)
    return p


def encode_replies(
    rows: cython.longlong[::1],
    first: cython.Py_ssize_t,
    count: cython.Py_ssize_t,
    source: cython.uchar[::1],
    scratch: bytearray,
    store_host: bytes,
    region: bytes,
    trace_on: bytes,
    language: cython.int,
    version: cython.int,
    log: cython.const[cython.uchar][::1],
    file_from_offset: cython.longlong,
    code: cython.int,
    out: bytearray,
):
    """Answers to appended rows, in order (see frames_cy.pyi). Field order is the Java broker's."""
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
        room += 400 + len(region) + len(trace_on) + rows[number * 20 + 16] * (len(host) + 17) + rows[number * 20 + 18]
    out.extend(bytes(room))
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
            row = cython.address(rows[number * 20])
        else:
            row = memoryview(rows)[number * 20 : number * 20 + 20]
        if row[0] & 2:
            continue
        texts = scr if row[0] & 1 else src
        start = p
        p += 8
        if row[0] & 4:
            target[p] = (code >> 8) & 0xFF
            target[p + 1] = code & 0xFF
            target[p + 2] = language
            target[p + 3] = (version >> 8) & 0xFF
            target[p + 4] = version & 0xFF
            p = _put32(target, p + 5, row[1])
            p = _put32(target, p, 1)
            p = _put32(target, p, 0)
            i = p = p + 4
            mark = p = _field(target, p, b"queueId")
            p = _close(target, mark, _put_number(target, p, row[4]))
            if row[18]:
                mark = p = _field(target, p, b"transactionId")
                p = _close(target, mark, _copy(target, p, texts, row[17], row[18]))
            mark = p = _field(target, p, b"msgId")
            p = _close(target, mark, _put_ids(target, p, host, row[13], row[16], logged, file_from_offset))
            mark = p = _field(target, p, b"TRACE_ON")
            p = _close(target, mark, _put(target, p, trace_on))
            mark = p = _field(target, p, b"MSG_REGION")
            p = _close(target, mark, _put(target, p, region))
            mark = p = _field(target, p, b"queueOffset")
            p = _close(target, mark, _put_number(target, p, row[14]))
            _close(target, i, p)
        else:
            p = _put(target, p, opening)
            p = _put_number(target, p, row[4])
            if row[18]:
                p = _put(target, p, b'","transactionId":"')
                p = _copy(target, p, texts, row[17], row[18])
            p = _put(target, p, b'","msgId":"')
            p = _put_ids(target, p, host, row[13], row[16], logged, file_from_offset)
            p = _put(target, p, fixed)
            p = _put_number(target, p, row[14])
            p = _put(target, p, head)
            p = _put_number(target, p, row[1])
            p = _put(target, p, tail)
        _put32(target, start, p - start - 4)
        _put32(target, start + 4, (p - start - 8) | (0x1000000 if row[0] & 4 else 0))
    del out[p:]
    return p - begin


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


def is_compiled() -> bool:
    """Which form runs."""
    return cython.compiled
