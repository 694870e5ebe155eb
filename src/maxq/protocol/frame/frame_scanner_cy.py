"""Header of a frame, JSON or ROCKETMQ, read where it lies: no Python object per field.

A scanner takes frames that are **plain**: of the codes and with the fields that it knows. All else is left to the
general codec (protocol/frame/remoting_command.py), which knows every rule; a scanner need only be right about what it
takes.
The attributes are declared in frame_scanner_cy.pxd, so that the scanners reach them in C.

Frame: length:4, serialize type:1, header length:3, header, body.
"""

try:
    import cython
except ModuleNotFoundError:
    from maxq.runtime import cython  # type: ignore[no-redef]

if cython.compiled:
    from cython.cimports.maxq.runtime.buffers import copy_bytes, find_unplain, same_bytes, take_bytes, u32
else:
    from maxq.runtime.buffers import copy_bytes, find_unplain, same_bytes, take_bytes, u32


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _space(buf: cython.p_uchar, p: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.Py_ssize_t:
    while p < end and (buf[p] == 0x20 or buf[p] == 0x0A or buf[p] == 0x0D or buf[p] == 0x09):
        p += 1
    return p


@cython.cclass
class FrameScanner:
    """Reads the header of one frame, JSON or ROCKETMQ; subclasses say which codes and fields they know."""

    @cython.cfunc
    def _expect_signatures(self, room: cython.Py_ssize_t):
        """Keep the signatures of requests from now on, with `room` bytes for the signed values of one scan."""
        self.content = bytearray(room)
        self.signed = True
        self._used_content = 0
        if not cython.compiled:
            self._kept = [0] * 200

    @cython.cfunc
    @cython.exceptval(check=False)
    def _keep(self, key: cython.Py_ssize_t, key_size: cython.Py_ssize_t) -> cython.bint:
        """Keep a field and its value, the last text. Returns False if there are too many."""
        slot: cython.Py_ssize_t = 5 * self._kept_count
        if slot == 200:
            return False
        self._kept[slot] = key
        self._kept[slot + 1] = key_size
        self._kept[slot + 2] = self._text
        self._kept[slot + 3] = self._text_size
        self._kept[slot + 4] = self._escaped
        self._kept_count += 1
        return True

    @cython.cfunc
    @cython.exceptval(check=False)
    def _credential(self, buf: cython.p_uchar, key: cython.Py_ssize_t, key_size: cython.Py_ssize_t) -> cython.bint:
        """Return whether this is a field that AclClientRPCHook adds. A server that requires no signatures need not
        examine these."""
        if key_size == 9:
            if same_bytes(buf, key, key_size, b"AccessKey"):
                self._access_key = self._text
                self._access_key_size = self._text_size
                return not self._escaped
            if same_bytes(buf, key, key_size, b"Signature"):
                self._signature = self._text
                self._signature_size = self._text_size
                return not self._escaped
            return False
        if key_size == 10:
            return same_bytes(buf, key, key_size, b"OnsChannel")
        return key_size == 13 and same_bytes(buf, key, key_size, b"SecurityToken")

    @cython.cfunc
    @cython.exceptval(check=False)
    def _before(self, buf: cython.p_uchar, left: cython.Py_ssize_t, right: cython.Py_ssize_t) -> cython.bint:
        """Return whether the key in slot `left` sorts before the one in slot `right`."""
        i: cython.Py_ssize_t
        p: cython.Py_ssize_t = self._kept[left]
        q: cython.Py_ssize_t = self._kept[right]
        n: cython.Py_ssize_t = self._kept[left + 1]
        m: cython.Py_ssize_t = self._kept[right + 1]
        for i in range(n if n < m else m):
            if buf[p + i] != buf[q + i]:
                return buf[p + i] < buf[q + i]
        return n < m

    @cython.cfunc
    @cython.exceptval(check=False)
    def _compose(
        self,
        buf: cython.p_uchar,
        scratch: cython.p_uchar,
        raw: cython.Py_ssize_t,
        cooked: cython.Py_ssize_t,
        cooked_size: cython.Py_ssize_t,
    ) -> cython.bint:
        """Append the signed values, in the order of their keys, to `content`. The text at `raw` was unescaped into
        scratch. Returns False if there is no room, or if another value has escapes."""
        target: cython.p_uchar
        i: cython.Py_ssize_t
        j: cython.Py_ssize_t
        moved: cython.Py_ssize_t
        slot: cython.Py_ssize_t
        q: cython.Py_ssize_t = self._used_content
        room: cython.Py_ssize_t = len(self.content)
        order: cython.Py_ssize_t[40]
        if cython.compiled:
            target = cython.cast(cython.p_uchar, cython.cast(cython.p_char, self.content))
        else:
            target = self.content
            order = [0] * 40
        for i in range(self._kept_count):
            j = i
            slot = 5 * i
            while j > 0 and self._before(buf, slot, order[j - 1]):
                moved = order[j - 1]
                order[j] = moved
                j -= 1
            order[j] = slot
        for i in range(self._kept_count):
            slot = order[i]
            if self._kept[slot + 2] == self._signature and self._signature_size:
                continue
            if self._kept[slot + 4]:
                if self._kept[slot + 2] != raw or cooked_size > room - q:
                    return False
                copy_bytes(target, q, scratch, cooked, cooked_size)
                q += cooked_size
            else:
                if self._kept[slot + 3] > room - q:
                    return False
                copy_bytes(target, q, buf, self._kept[slot + 2], self._kept[slot + 3])
                q += self._kept[slot + 3]
        self._used_content = q
        return True

    @cython.cfunc
    @cython.exceptval(check=False)
    def _begin(self) -> cython.void:
        """Reset the fields before the next frame is scanned. Subclasses that have fields override it."""

    @cython.cfunc
    @cython.exceptval(check=False)
    def _is_whole(self) -> cython.bint:
        """Returns whether all required fields were present."""
        return False

    @cython.cfunc
    @cython.exceptval(check=False)
    def _wants(self) -> cython.bint:
        """Returns whether the scanner reads requests of `_code`."""
        return False

    @cython.cfunc
    @cython.exceptval(check=False)
    def _field(self, buf: cython.p_uchar, key: cython.Py_ssize_t, key_size: cython.Py_ssize_t) -> cython.bint:
        """Take a header field whose value is the last text. Returns False if RemotingCommand must decode this frame."""
        return False

    @cython.cfunc
    @cython.exceptval(check=False)
    def _header(self, buf: cython.p_uchar, start: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Read the header of the whole frame [start, end); returns the position of its body, or 0 to leave it."""
        kind: cython.int = buf[start + 4]
        body: cython.Py_ssize_t = start + 8 + (u32(buf, start + 4) & 0xFFFFFF)
        if body > end or kind > 1:
            return 0
        self._frame_flag = self._opaque = self._code = self._version = 0
        self._kept_count = self._access_key = self._access_key_size = self._signature = self._signature_size = 0
        if kind == 0:
            return body if self._json(buf, start + 8, body) and self._wants() else 0
        return body if self._binary(buf, start + 8, body) and self._wants() else 0

    @cython.cfunc
    @cython.exceptval(check=False)
    def _string(self, buf: cython.p_uchar, p: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Read a JSON string at p (its opening quote): sets text, and returns the position behind it; 0 if there is
        none."""
        if p >= end or buf[p] != 0x22:
            return 0
        p += 1
        self._text = p
        self._escaped = False
        while True:
            p = find_unplain(buf, p, end)
            if p >= end:
                return 0
            if buf[p] == 0x22:
                self._text_size = p - self._text
                return p + 1
            if buf[p] != 0x5C:
                return 0
            self._escaped = True
            p += 2

    @cython.cfunc
    @cython.exceptval(check=False)
    def _scalar(self, buf: cython.p_uchar, p: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Read a string, or a bare word or number: sets text, and returns the position behind it; 0 if there is
        none."""
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
        """Return the text as a number; a value that no field has (−2^62) if it is not one."""
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
            if key_size == 9 and same_bytes(buf, key, key_size, b"extFields"):
                p = self._json_fields(buf, p, end)
                if p == 0:
                    return False
            else:
                p = self._scalar(buf, p, end)
                if p == 0:
                    return False
                if key_size == 4 and same_bytes(buf, key, 4, b"code"):
                    self._code = self._integer(buf)
                    if not self._wants():
                        return False
                elif key_size == 4 and same_bytes(buf, key, 4, b"flag"):
                    self._frame_flag = self._integer(buf)
                    if self._frame_flag & ~cython.cast(cython.longlong, 3):
                        return False
                elif key_size == 6 and same_bytes(buf, key, 6, b"opaque"):
                    value = self._integer(buf)
                    if value < -2147483648 or value > 2147483647:
                        return False
                    self._opaque = value
                elif key_size == 7 and same_bytes(buf, key, 7, b"version"):
                    self._version = self._integer(buf)
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
        """Read the extFields object at p; returns the position behind it, or 0."""
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
            p = _space(buf, p + 1, end)
            if p < end and buf[p] == 0x6E:  # null: as if it were not there
                return 0
            p = self._scalar(buf, p, end)
            if p == 0 or not self._field(buf, key, key_size) or (self.signed and not self._keep(key, key_size)):
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
        """Read a header in the ROCKETMQ form: code:2 language:1 version:2 opaque:4 flag:4 remark:4+n ext length:4
        (key:2+n value:4+n)…"""
        if end - p < 21:
            return False
        self._code = (buf[p] << 8) | buf[p + 1]
        if not self._wants():
            return False
        self._version = (buf[p + 3] << 8) | buf[p + 4]
        self._opaque = self._signed(u32(buf, p + 5))
        self._frame_flag = u32(buf, p + 9)
        size: cython.longlong = u32(buf, p + 13)
        if self._frame_flag & ~cython.cast(cython.longlong, 3) or size != 0:
            return False
        size = u32(buf, p + 17)
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
            size = u32(buf, p)
            p += 4
            if size > end - p:
                return False
            self._text = p
            self._text_size = size
            p += size
            if size and (not self._field(buf, key, key_size) or (self.signed and not self._keep(key, key_size))):
                return False
        return True

    @cython.cfunc
    @cython.exceptval(check=False)
    def _signed(self, value: cython.uint) -> cython.longlong:
        if cython.compiled:
            return cython.cast(cython.int, value)
        return value - 0x100000000 if value >= 0x80000000 else value


@cython.cclass
class AnswerScanner(FrameScanner):
    """Reads answers, one behind the other, for those who wait for them; subclasses define which fields they read, and
    set what type their waiters have."""

    @cython.cfunc
    def _next(self, waiters: dict, buf: cython.p_uchar, start: cython.Py_ssize_t, end: cython.Py_ssize_t):
        """Read the answer at `start`. Returns the one who waits for it, and sets where its body begins and where it
        ends; None if it is incomplete, of another kind, or no such one waits for it."""
        if end - start < 8:
            return None
        length: cython.longlong = u32(buf, start)
        if length < 4 or length + 4 > end - start:
            return None
        self._begin()
        self._answer_end = start + 4 + length
        self._body = self._header(buf, start, self._answer_end)
        if self._body == 0 or self._frame_flag != 1 or not self._is_whole():
            return None
        waiter = waiters.get(self._opaque)
        return waiter if type(waiter) is self._waiter_type else None


@cython.cclass
class OneFrameScanner(FrameScanner):
    """Reads the one frame at a place and keeps the bytes that its signature covers; subclasses define which fields they
    read."""

    def __init__(self):
        self.signed = False
        self.access_key = self.signature = self.signed_content = b""

    def expect_signatures(self):
        # type: (...) -> None
        """Keep from now on what requests were signed with. Nothing is judged here."""
        self._expect_signatures(4096)

    def scan(
        self,
        buffer: cython.uchar[::1],  # type: bytearray | memoryview
        start: cython.Py_ssize_t,
        end: cython.Py_ssize_t,
    ):
        # type: (...) -> int
        """Read the frame at `start`; returns the position behind it, or `start` if it is incomplete or of another
        kind."""
        if end > len(buffer) or start < 0:
            raise ValueError(f"range [{start}, {end}) is outside the buffer of {len(buffer)} bytes")
        if end - start < 8:
            return start
        buf: cython.p_uchar
        if cython.compiled:
            buf = cython.address(buffer[0])
        else:
            buf = memoryview(buffer)
        length: cython.longlong = u32(buf, start)
        if length < 4 or length + 4 > end - start:
            return start
        self._begin()
        if self._header(buf, start, start + 4 + length) == 0 or not self._is_whole():
            return start
        if self.signed and not self._take_signature(buf):
            return start
        self._take(buf, buf[start + 4] == 1)
        return start + 4 + length

    @cython.cfunc
    def _take(self, buf: cython.p_uchar, is_binary: cython.bint):
        """Keep the request that was scanned. Subclasses override it."""

    @cython.cfunc
    @cython.exceptval(-1, check=True)
    def _take_signature(self, buf: cython.p_uchar) -> cython.int:
        """Keep the signed content of the frame. Returns 0 if there is too much of it."""
        self._used_content = 0
        if not self._compose(buf, buf, -1, 0, 0):
            return 0
        self.signed_content = bytes(self.content[: self._used_content])
        self.access_key = take_bytes(buf, self._access_key, self._access_key_size)
        self.signature = take_bytes(buf, self._signature, self._signature_size)
        return 1
