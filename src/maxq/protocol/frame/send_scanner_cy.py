"""Fast-path sends, straight from the receive buffer to rows of integers: no Python object per message.

A send is for the **fast path** when it is request 310, 320 or 10, a request and not an answer, names a topic and
queue, carries a UNIQ_KEY (a batch: its messages do), and none of its properties makes the broker do more than store it
(SPECIAL). A message that opens a transaction is for it, too, while `takes_halves` is set: its row says so (F_HALF).
All else is left to the SendMessageProcessor. Columns of a row: send_rows.py, R_….

Properties: name 0x01 value 0x02 ….
"""

from array import array

try:
    import cython
except ModuleNotFoundError:
    from maxq.runtime import cython  # type: ignore[no-redef]

if cython.compiled:
    from cython.cimports.maxq.protocol.frame import send_rows as sr
    from cython.cimports.maxq.protocol.frame.frame_scanner_cy import FrameScanner
    from cython.cimports.maxq.runtime.buffers import find_byte, same_bytes, take_bytes, u32
else:
    from maxq.protocol.frame import send_rows as sr
    from maxq.protocol.frame.frame_scanner_cy import FrameScanner
    from maxq.runtime.buffers import find_byte, same_bytes, take_bytes, u32

#: Properties that the fast path does not handle: the broker sets, strips or acts on them.
SPECIAL = frozenset(
    b"CLUSTER MSG_REGION TRACE_ON DELAY POP_CK __CRC32# __transactionId__ INNER_NUM INNER_BASE INNER_MULTI_DISPATCH "
    b"INNER_MULTI_QUEUE_OFFSET TIMER_DELAY_SEC TIMER_DELAY_MS TIMER_DELIVER_MS TIMER_OUT_MS TIMER_DEL_UNIQKEY "
    b"TIMER_ENQUEUE_MS TIMER_DEQUEUE_MS TIMER_ROLL_TIMES TIMER_ROLL_LABEL DUP_INFO _SYS_MSG_PRIORITY_ __LITE_TOPIC "
    b"REAL_TOPIC REAL_QID RETRY_TOPIC TRAN_PREPARED_QUEUE_OFFSET".split()
)


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


@cython.cclass
class SendScanner(FrameScanner):
    """Reads the leading run of fast-path sends of a receive buffer into rows (columns: send_rows.py, R_…)."""

    rows = cython.declare(object, visibility="public")  # type: array[int]
    scratch = cython.declare(bytearray, visibility="public")
    count = cython.declare(cython.Py_ssize_t, visibility="public")  # rows of the last scan
    _frame_limit = cython.declare(cython.longlong)
    _capacity = cython.declare(cython.Py_ssize_t)
    _scratch_size = cython.declare(cython.Py_ssize_t)
    _rows_view = cython.declare(cython.longlong[::1])
    _used = cython.declare(cython.Py_ssize_t)  # bytes of scratch in use
    # fields of the current frame; positions are in the receive buffer
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
    _seen = cython.declare(cython.int)  # bits of the fields seen: topic, queue id, sys flag, born, flag, properties
    _unique = cython.declare(cython.Py_ssize_t)
    _unique_size = cython.declare(cython.Py_ssize_t)
    _no_wait = cython.declare(cython.bint)
    _half = cython.declare(cython.bint)
    # whether a message that opens a transaction may become a row; False at first
    takes_halves = cython.declare(cython.bint, visibility="public")
    half_count = cython.declare(cython.Py_ssize_t, visibility="public")  # rows with F_HALF of the last scan
    # table of what each row was signed with (columns S_…)
    signed_rows = cython.declare(object, visibility="public")  # type: array[int]
    _signed_view = cython.declare(cython.longlong[::1])

    def __init__(
        self,
        frame_limit,  # type: int
        capacity=1024,  # type: int
        scratch_size=262144,  # type: int
    ):
        """frame_limit: longest whole frame, bytes."""
        self.signed = False
        self._kept_count = 0
        self.takes_halves = False
        self.half_count = 0
        self._frame_limit = frame_limit
        self._capacity = capacity
        self._scratch_size = scratch_size
        self.rows = array("q", bytes(8 * sr.ROW_WIDTH * capacity))
        self._rows_view = self.rows if cython.compiled else memoryview(self.rows)
        self.scratch = bytearray(scratch_size)
        self.count = 0

    def expect_signatures(self):
        # type: (...) -> None
        """Keep from now on what requests were signed with: `content` and `signed_rows`. Nothing is judged here. The
        fields of an AclClientRPCHook are taken either way."""
        self._expect_signatures(self._scratch_size)
        self.signed_rows = array("q", bytes(8 * sr.SIGNED_WIDTH * self._capacity))
        self._signed_view = self.signed_rows if cython.compiled else memoryview(self.signed_rows)

    def scan(
        self,
        buffer: cython.uchar[::1],  # type: bytearray | memoryview
        start: cython.Py_ssize_t,
        end: cython.Py_ssize_t,
    ):
        # type: (...) -> int
        """Fill rows from frames in buffer[start:end]; returns the position after the last frame taken. It stops at the
        first frame that is incomplete, too long, no send, or not plain: RemotingCommand's codec has the last word."""
        self.count = 0
        self.half_count = 0
        self._used = self._used_content = 0
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
        return self._run(buf, scratch, p, end, 0)

    def scan_arrivals(
        self,
        buffer: cython.uchar[::1],  # type: bytearray
        table: cython.longlong[::1],  # type: array[int]
        count: cython.Py_ssize_t,
    ):
        # type: (...) -> None
        """Rows of the leading fast-path sends of each of `count` arrivals (columns A_…), which lie in the buffer
        one behind the other; sets their columns A_TAKEN, A_FIRST and A_ROWS. Stops, in one arrival, also at a send
        that is one-way, does not wait (WAIT=false) or opens a transaction."""
        self.count = 0
        self.half_count = 0
        self._used = self._used_content = 0
        number: cython.Py_ssize_t
        r: cython.Py_ssize_t
        before: cython.Py_ssize_t
        p: cython.Py_ssize_t = 0
        buf: cython.p_uchar
        scratch: cython.p_uchar
        if count == 0:
            return
        if cython.compiled:
            buf = cython.address(buffer[0])
            scratch = cython.cast(cython.p_uchar, cython.cast(cython.p_char, self.scratch))
        else:
            buf = memoryview(buffer)
            scratch = self.scratch
        for number in range(count):
            r = number * sr.ARRIVAL_WIDTH
            if table[r + sr.A_START] < p or table[r + sr.A_END] > len(buffer):
                raise ValueError(f"arrival {number} is not behind the one before it, or not in the buffer")
            before = self.count
            p = self._run(
                buf, scratch, table[r + sr.A_START], table[r + sr.A_END], sr.F_ONEWAY | sr.F_NO_WAIT | sr.F_HALF
            )
            table[r + sr.A_TAKEN] = p
            table[r + sr.A_FIRST] = before
            table[r + sr.A_ROWS] = self.count - before
            p = table[r + sr.A_END]

    @cython.cfunc
    @cython.exceptval(-1, check=True)
    def _run(
        self,
        buf: cython.p_uchar,
        scratch: cython.p_uchar,
        p: cython.Py_ssize_t,
        end: cython.Py_ssize_t,
        left: cython.longlong,
    ) -> cython.Py_ssize_t:
        """Make rows of the leading fast-path sends of [p, end) that have none of the flags `left`; returns the position
        behind them."""
        length: cython.longlong
        while self.count < self._capacity and end - p >= 8:
            length = u32(buf, p)
            if length < 4 or length + 4 > self._frame_limit or length + 4 > end - p:
                break
            if not self._frame(buf, scratch, p, p + 4 + length) or self._rows_view[self.count * sr.ROW_WIDTH] & left:
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
        """Read the frame at [start, end). Returns 1 and adds a row, or 0 if the fast path cannot store the send."""
        self._seen = 0
        self._reconsume = 0
        self._batch = False
        self._properties = start
        self._properties_size = 0
        self._properties_escaped = False
        written: cython.Py_ssize_t = self._used_content
        body: cython.Py_ssize_t = self._header(buf, start, end)
        if body == 0:
            return 0
        # the required fields are topic, queue id, sys flag, born timestamp and flag; bit 0 of the frame's flag marks an
        # answer
        if (
            (self._seen & 31) != 31
            or self._frame_flag & 1
            or self._sys_flag & ~cython.cast(cython.longlong, 0x737)
            or self._queue_id < 0
        ):
            return 0
        if self._topic_size == 0 or self._topic_size > 127 or buf[self._topic] == 0x25 or body == end:
            return 0
        flags: cython.longlong = (
            (sr.F_BINARY if buf[start + 4] == 1 else 0)
            | (sr.F_ONEWAY if self._frame_flag & 2 else 0)
            | (sr.F_BATCH if self._batch else 0)
        )
        properties: cython.p_uchar = buf
        raw: cython.Py_ssize_t = self._properties
        if self._properties_escaped:
            if not self._to_scratch(buf, scratch):
                return 0
            properties = scratch
            flags |= sr.F_SCRATCH
        if not self._check_properties(properties):
            return 0
        if self._unique_size == 0 and not self._batch:
            return 0
        if self._no_wait:
            flags |= sr.F_NO_WAIT
        r: cython.Py_ssize_t
        if self.signed:
            if not self._compose(buf, scratch, raw, self._properties, self._properties_size):
                return 0
            r = self.count * sr.SIGNED_WIDTH
            self._signed_view[r + sr.S_CONTENT] = written
            self._signed_view[r + sr.S_CONTENT_SIZE] = self._used_content - written
            self._signed_view[r + sr.S_ACCESS_KEY] = self._access_key
            self._signed_view[r + sr.S_ACCESS_KEY_SIZE] = self._access_key_size
            self._signed_view[r + sr.S_SIGNATURE] = self._signature
            self._signed_view[r + sr.S_SIGNATURE_SIZE] = self._signature_size
        if self._half:
            if not self.takes_halves or self._batch or self._reconsume:
                return 0
            flags |= sr.F_HALF
            self._sys_flag &= ~cython.cast(cython.longlong, 4)
            self.half_count += 1
        elif self._sys_flag & 4:
            return 0
        r = self.count * sr.ROW_WIDTH
        row: cython.p_longlong
        if cython.compiled:
            row = cython.address(self._rows_view[r])
        else:
            row = self._rows_view[r : r + sr.ROW_WIDTH]
        row[sr.R_FLAGS] = flags
        row[sr.R_OPAQUE] = self._opaque
        row[sr.R_TOPIC] = self._topic
        row[sr.R_TOPIC_SIZE] = self._topic_size
        row[sr.R_QUEUE_ID] = self._queue_id
        row[sr.R_SYS_FLAG] = self._sys_flag
        row[sr.R_BORN_TIMESTAMP] = self._born
        row[sr.R_FLAG] = self._flag
        row[sr.R_PROPERTIES] = self._properties
        row[sr.R_PROPERTIES_SIZE] = self._properties_size
        row[sr.R_BODY] = body
        row[sr.R_BODY_SIZE] = end - body
        row[sr.R_RECONSUME_TIMES] = self._reconsume
        row[sr.R_PHYSICAL_OFFSET] = row[sr.R_QUEUE_OFFSET] = row[sr.R_SIZE] = row[sr.R_COUNT] = 0
        row[sr.R_UNIQUE] = self._unique
        row[sr.R_UNIQUE_SIZE] = self._unique_size
        row[sr.R_FRAME] = start
        if flags & sr.F_SCRATCH:
            self._used = self._properties + self._properties_size
        return 1

    @cython.cfunc
    @cython.exceptval(check=False)
    def _field(self, buf: cython.p_uchar, key: cython.Py_ssize_t, key_size: cython.Py_ssize_t) -> cython.bint:
        """Take a header field whose value is the last text. Returns False if the fast path cannot store this send."""
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
            self._batch = same_bytes(buf, self._text, self._text_size, b"true") or same_bytes(
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
        if letter == 0x61 or letter == 0x63 or letter == 0x64 or letter == 0x6B or letter == 0x6C or letter == 0x6E:
            return True
        return self._credential(buf, key, key_size)

    @cython.cfunc
    @cython.exceptval(check=False)
    def _letter(self, buf: cython.p_uchar, key: cython.Py_ssize_t, n: cython.Py_ssize_t) -> cython.int:
        """Return the V2 letter of a V1 field name; 0 for any other."""
        if n == 5:
            if same_bytes(buf, key, n, b"topic"):
                return 0x62
            if same_bytes(buf, key, n, b"batch"):
                return 0x6D
            return 0x6E if same_bytes(buf, key, n, b"bname") else 0
        if n == 4:
            return 0x68 if same_bytes(buf, key, n, b"flag") else 0
        if n == 7:
            if same_bytes(buf, key, n, b"queueId"):
                return 0x65
            return 0x66 if same_bytes(buf, key, n, b"sysFlag") else 0
        if n == 8:
            return 0x6B if same_bytes(buf, key, n, b"unitMode") else 0
        if n == 10:
            return 0x69 if same_bytes(buf, key, n, b"properties") else 0
        if n == 12:
            return 0x63 if same_bytes(buf, key, n, b"defaultTopic") else 0
        if n == 13:
            if same_bytes(buf, key, n, b"bornTimestamp"):
                return 0x67
            return 0x61 if same_bytes(buf, key, n, b"producerGroup") else 0
        if n == 14:
            return 0x6A if same_bytes(buf, key, n, b"reconsumeTimes") else 0
        if n == 17:
            return 0x6C if same_bytes(buf, key, n, b"maxReconsumeTimes") else 0
        if n == 21:
            return 0x64 if same_bytes(buf, key, n, b"defaultTopicQueueNums") else 0
        return 0

    # -- properties ----------------------------------------------------------------------------------------------

    @cython.cfunc
    @cython.exceptval(check=False)
    def _to_scratch(self, buf: cython.p_uchar, scratch: cython.p_uchar) -> cython.bint:
        """Unescape the property text into scratch. Returns False if there is no room, or if an escape is not JSON."""
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
        """Return the value of four hex digits at p; −1 if they are not there."""
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
        """Return 1 if every pair is well formed, needs no special handling and occurs once; finds UNIQ_KEY and WAIT."""
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
        self._half = False
        while p < end:
            value_end = find_byte(buf, p, end, 2)
            mid = find_byte(buf, p, value_end, 1)
            if mid == p or value_end - mid < 2 or find_byte(buf, mid + 1, value_end, 1) != value_end:
                return 0
            n = mid - p
            bit = 0
            if n == 4:
                if same_bytes(buf, p, n, b"TAGS"):
                    bit = 1
                elif same_bytes(buf, p, n, b"KEYS"):
                    bit = 2
                elif same_bytes(buf, p, n, b"WAIT"):
                    bit = 4
                    self._no_wait = same_bytes(buf, mid + 1, value_end - mid - 1, b"false")
            elif n == 8:
                if same_bytes(buf, p, n, b"UNIQ_KEY"):
                    bit = 8
                    self._unique = mid + 1
                    self._unique_size = value_end - mid - 1
                    if not self._printable(buf, mid + 1, value_end):
                        return 0
                elif same_bytes(buf, p, n, b"TRAN_MSG"):
                    bit = 16
                    self._half = True
                    if not same_bytes(buf, mid + 1, value_end - mid - 1, b"true"):
                        return 0
            if bit:
                if seen & bit:
                    return 0
                seen |= bit
            else:
                name = take_bytes(buf, p, n)
                if name in SPECIAL:
                    return 0
            p = value_end + 1
        return 1

    @cython.cfunc
    @cython.exceptval(check=False)
    def _printable(self, buf: cython.p_uchar, p: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.bint:
        """Returns whether this text can be written into JSON without escapes."""
        if end - p > 128:
            return False
        while p < end:
            if buf[p] < 0x21 or buf[p] > 0x7E or buf[p] == 0x22 or buf[p] == 0x5C:
                return False
            p += 1
        return True
