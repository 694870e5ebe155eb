"""ColumnBuilder: records of the log → the buffers of Arrow columns, in one pass over the records.

A row costs no Python object: numbers are written where they belong, texts are copied behind each other. A topic or a
host that is the same as the row's before is not decoded again. Bodies that came compressed are the exception: each is
decompressed by itself.

Runs compiled and uncompiled; compiled, buffers are byte pointers. A column makes room before it writes, and no other
Python code runs between the two.
"""

from array import array
from typing import TYPE_CHECKING

import pyarrow as pa

try:
    import cython
except ModuleNotFoundError:
    from maxq.runtime import cython  # type: ignore[no-redef]

if cython.compiled:
    from cython.cimports.libc.string import memcmp, memcpy
    from cython.cimports.maxq.protocol.message import record_layout as rl
    from cython.cimports.maxq.protocol.message.received_cy import PulledRecords
    from cython.cimports.maxq.runtime.buffers import find_byte, i16, i32, i64, same_bytes, take_bytes, u32
else:
    from maxq.protocol.message import record_layout as rl
    from maxq.protocol.message.received_cy import PulledRecords
    from maxq.runtime.buffers import find_byte, i16, i32, i64, same_bytes, take_bytes, u32

from maxq.arrow.schemas import MESSAGE_COLUMNS, arrow_schema, base_column
from maxq.errors import RemoteProtocolError
from maxq.protocol.message.message import inflated
from maxq.protocol.message.message_id import host_text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any


_PART = cython.declare(cython.Py_ssize_t, 20)  # numbers of a row, as record_cy.scan leaves them
_COMPRESSED = cython.declare(cython.int, 0x1)
_MOST_MS = cython.declare(cython.longlong, ((1 << 63) - 1) // 1000)  # of a timestamp, which has microseconds
_MOST_BYTES = cython.declare(cython.longlong, (1 << 31) - 1)  # of a column in one batch
_FEW_PAIRS = cython.declare(cython.Py_ssize_t, 32)  # of which each name is compared with each; more are hashed
_MOST_HOSTS = 10_000
_HEX = cython.declare(bytes, b"0123456789ABCDEF")
_WIDE = frozenset(("queueOffset", "physicalOffset", "preparedTransactionOffset", "bornTimestamp", "storeTimestamp"))  # type: frozenset[str]
_PAIR_FIELDS = (pa.field("key", pa.string()), pa.field("value", pa.binary()))


@cython.cfunc
@cython.exceptval(check=False)
def _start(view: cython.const[cython.uchar][::1]) -> cython.p_uchar:
    if not cython.compiled:
        return memoryview(view)
    return cython.cast(cython.p_uchar, cython.address(view[0])) if len(view) else cython.NULL


@cython.final
@cython.cclass
class _Numbers:
    """A column of int32 or int64 for a known number of rows."""

    _buffer = cython.declare(object)
    _count = cython.declare(cython.Py_ssize_t)
    _is_wide = cython.declare(cython.bint)
    _narrow = cython.declare(cython.p_int)
    _broad = cython.declare(cython.p_longlong)

    def __init__(self, rows: cython.Py_ssize_t, is_wide: cython.bint):
        self._buffer = pa.allocate_buffer(max(rows, 1) * (8 if is_wide else 4))
        self._count = 0
        self._is_wide = is_wide
        view: object = memoryview(self._buffer).cast("B")
        if cython.compiled:
            self._narrow = cython.cast(cython.p_int, _start(view))
            self._broad = cython.cast(cython.p_longlong, _start(view))
        else:
            self._narrow = self._broad = view.cast("q" if is_wide else "i")

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def _put(self, value: cython.longlong) -> cython.void:
        if self._is_wide:
            self._broad[self._count] = value
        else:
            self._narrow[self._count] = value
        self._count += 1

    @cython.cfunc
    def _array(self, kind):
        return pa.Array.from_buffers(kind, self._count, [None, self._buffer], 0)


@cython.final
@cython.cclass
class _Texts:
    """A column of bytes or texts that grows.

    Args:
        rows, size: room for so many values of so many bytes together, at first.
        is_raw: they are to be texts, and may be none: bytes above 127 are looked for, and mended at the end if they are
            no UTF-8.
    """

    _count = cython.declare(cython.Py_ssize_t)
    _missing = cython.declare(cython.Py_ssize_t)
    _at = cython.declare(cython.Py_ssize_t)
    _room = cython.declare(cython.Py_ssize_t)
    _buffer = cython.declare(object)
    _data = cython.declare(cython.p_uchar)
    _offset_room = cython.declare(cython.Py_ssize_t)
    _offset_buffer = cython.declare(object)
    _offsets = cython.declare(cython.p_int)
    _bits = cython.declare(bytearray)
    _is_raw = cython.declare(cython.bint)
    _high = cython.declare(cython.uchar)

    def __init__(self, rows: cython.Py_ssize_t, size: cython.Py_ssize_t, is_raw: cython.bint):
        self._count = self._missing = self._at = self._room = self._offset_room = 0
        self._is_raw = is_raw
        self._high = 0
        self._bits = None
        self._grow(max(size, 64))
        self._grow_offsets(rows + 1)
        self._offsets[0] = 0

    @cython.cfunc
    @cython.exceptval(-1)
    def _grow(self, size: cython.longlong) -> cython.int:
        """Enlarge the buffer of values to at least `size` bytes."""
        if size <= self._room:
            return 0
        if size > _MOST_BYTES:
            raise RemoteProtocolError(
                f"{self._count + 1} values have {size} bytes together; a batch holds less than 2 GiB"
            )
        room: cython.longlong = min(max(size, 2 * self._room), _MOST_BYTES)
        larger: object = pa.allocate_buffer(room)
        data: cython.p_uchar = _start(memoryview(larger).cast("B"))
        if cython.compiled:
            if self._at:
                memcpy(data, self._data, self._at)
        else:
            if self._at:
                data[: self._at] = self._data[: self._at]
        self._buffer, self._data, self._room = larger, data, room
        return 0

    @cython.cfunc
    @cython.exceptval(-1)
    def _grow_offsets(self, count: cython.Py_ssize_t) -> cython.int:
        """Enlarge the buffer of offsets, 4 bytes each, to at least `count` of them."""
        room: cython.Py_ssize_t = max(count, 2 * self._offset_room)
        larger: object = pa.allocate_buffer(4 * room)
        view: object = memoryview(larger).cast("B")
        offsets: cython.p_int
        if cython.compiled:
            offsets = cython.cast(cython.p_int, _start(view))
            if self._offset_room:
                memcpy(offsets, self._offsets, 4 * self._offset_room)
        else:
            offsets = view.cast("i")
            if self._offset_room:
                offsets[: self._offset_room] = self._offsets
        self._offset_buffer, self._offsets, self._offset_room = larger, offsets, room
        return 0

    @cython.cfunc
    @cython.inline
    @cython.exceptval(-1)
    def _reserve(self, size: cython.Py_ssize_t) -> cython.int:
        """Enlarge both buffers where one more value of `size` bytes does not fit."""
        if self._at + size > self._room:
            self._grow(self._at + size)
        if self._count + 2 > self._offset_room:
            self._grow_offsets(self._count + 2)
        return 0

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def _end(self, size: cython.Py_ssize_t) -> cython.void:
        """End a value of `size` bytes that was written."""
        self._at += size
        self._count += 1
        self._offsets[self._count] = self._at

    @cython.cfunc
    @cython.inline
    @cython.exceptval(-1)
    def _put(self, buf: cython.p_uchar, p: cython.Py_ssize_t, size: cython.Py_ssize_t) -> cython.int:
        i: cython.Py_ssize_t
        high: cython.uchar
        self._reserve(size)
        if cython.compiled:
            memcpy(self._data + self._at, buf + p, size)
            if self._is_raw:
                high = self._high
                for i in range(size):
                    high |= self._data[self._at + i]  # not of `buf`, which a broker may write
                self._high = high
        else:
            self._data[self._at : self._at + size] = buf[p : p + size]
            self._high |= max(bytes(buf[p : p + size]), default=0)
        self._end(size)
        return 0

    @cython.cfunc
    @cython.exceptval(-1)
    def _put_bytes(self, value: bytes) -> cython.int:
        if cython.compiled:
            return self._put(cython.cast(cython.p_uchar, value), 0, len(value))
        return self._put(value, 0, len(value))

    @cython.cfunc
    @cython.exceptval(-1)
    def _put_missing(self, rows: cython.Py_ssize_t) -> cython.int:
        """Add a null; the column has at most `rows` rows."""
        if self._bits is None:
            self._bits = bytearray(b"\xff" * ((rows + 7) // 8))
        self._reserve(0)
        self._bits[self._count >> 3] &= ~(1 << (self._count & 7)) & 0xFF
        self._missing += 1
        self._end(0)
        return 0

    @cython.cfunc
    def _array(self, kind):
        """Return the column. Texts that are not UTF-8 get replacement characters, as the codec of single messages
        has it."""
        bits = None if self._missing == 0 else pa.py_buffer(self._bits)
        buffers = [bits, self._offset_buffer, self._buffer.slice(0, self._at)]
        made = pa.Array.from_buffers(kind, self._count, buffers, self._missing)
        if self._is_raw and self._high > 127:
            try:
                made.validate(full=True)
            except pa.ArrowInvalid:
                raw = pa.Array.from_buffers(pa.binary(), self._count, buffers, self._missing).to_pylist()
                made = pa.array([None if one is None else one.decode("utf-8", "replace") for one in raw], kind)
        return made


@cython.final
@cython.cclass
class _Known:
    """What the value before was, and what was made of it: most rows have the same."""

    _raw = cython.declare(bytes)
    _text = cython.declare(bytes)

    def __init__(self):
        self._raw = None
        self._text = b""

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def _is(self, buf: cython.p_uchar, p: cython.Py_ssize_t, size: cython.Py_ssize_t) -> cython.bint:
        return self._raw is not None and same_bytes(buf, p, size, self._raw)


@cython.final
@cython.cclass
class ColumnBuilder:
    """Makes one batch.

    Args:
        columns: names of schemas.MESSAGE_COLUMNS and KAFKA_COLUMNS, in the order of the batch.
        rows: the number of records that will be added.
        size: bytes of these records together, about.
        unwrap: makes the user's name of a topic; None: they are the same.
    """

    _columns = cython.declare(tuple)
    _rows = cython.declare(cython.Py_ssize_t)
    _unwrap = cython.declare(object)
    _body = cython.declare(_Texts)
    _topic = cython.declare(_Texts)
    _broker = cython.declare(_Texts)
    _msg_id = cython.declare(_Texts)
    _born_host = cython.declare(_Texts)
    _store_host = cython.declare(_Texts)
    _tags = cython.declare(_Texts)
    _key = cython.declare(_Texts)
    _words = cython.declare(_Texts)
    _unique = cython.declare(_Texts)
    _names = cython.declare(_Texts)
    _values = cython.declare(_Texts)
    _word_ends = cython.declare(_Numbers)
    _pair_ends = cython.declare(_Numbers)
    _queue_id = cython.declare(_Numbers)
    _queue_offset = cython.declare(_Numbers)
    _physical_offset = cython.declare(_Numbers)
    _sys_flag = cython.declare(_Numbers)
    _flag = cython.declare(_Numbers)
    _reconsume_times = cython.declare(_Numbers)
    _prepared_offset = cython.declare(_Numbers)
    _body_crc = cython.declare(_Numbers)
    _born = cython.declare(_Numbers)
    _stored = cython.declare(_Numbers)
    _has_properties = cython.declare(cython.bint)
    _known_topic = cython.declare(_Known)
    _known_born = cython.declare(_Known)
    _known_store = cython.declare(_Known)
    _hosts = cython.declare(dict)
    _pairs = cython.declare(cython.longlong[::1])
    _pair_room = cython.declare(cython.Py_ssize_t)
    _part = cython.declare(cython.longlong[20])

    def __init__(
        self,
        columns,  # type: Sequence[str]
        rows: cython.Py_ssize_t,
        size: cython.Py_ssize_t,
        unwrap=None,  # type: Callable[[str], str] | None
    ):
        self._columns = tuple(columns)
        self._rows = rows
        self._unwrap = unwrap
        wanted = {base_column(name) for name in columns}
        few: cython.Py_ssize_t = 32 * rows
        self._body = _Texts(rows, max(size - rl.MIN_RECORD_SIZE * rows, 0), False) if "body" in wanted else None
        self._topic = _texts(wanted, "topic", rows, few, False)
        self._broker = _texts(wanted, "brokerName", rows, few, False)
        self._msg_id = _texts(wanted, "msgId", rows, few, False)
        self._born_host = _texts(wanted, "bornHost", rows, few, False)
        self._store_host = _texts(wanted, "storeHost", rows, few, False)
        self._tags = _texts(wanted, "tags", rows, few, True)
        self._unique = _texts(wanted, "uniqKey", rows, few, True)
        self._key = _Texts(rows, few, False) if "key" in columns else None
        self._words = _texts({"keys"} & set(columns), "keys", rows, few, True)
        self._names = _texts(wanted, "properties", 2 * rows, few, True)
        self._values = _texts(wanted, "properties", 2 * rows, few, True)
        self._word_ends = None if self._words is None else _list_ends(rows)
        self._pair_ends = None if self._names is None else _list_ends(rows)
        self._queue_id = _numbers(wanted, "queueId", rows)
        self._queue_offset = _numbers(wanted, "queueOffset", rows)
        self._physical_offset = _numbers(wanted, "physicalOffset", rows)
        self._sys_flag = _numbers(wanted, "sysFlag", rows)
        self._flag = _numbers(wanted, "flag", rows)
        self._reconsume_times = _numbers(wanted, "reconsumeTimes", rows)
        self._prepared_offset = _numbers(wanted, "preparedTransactionOffset", rows)
        self._body_crc = _numbers(wanted, "bodyCrc", rows)
        self._born = _numbers(wanted, "bornTimestamp", rows)
        self._stored = _numbers(wanted, "storeTimestamp", rows)
        self._has_properties = not wanted.isdisjoint(("tags", "keys", "properties", "uniqKey"))
        self._known_topic, self._known_born, self._known_store = _Known(), _Known(), _Known()
        self._hosts = {}
        self._pair_room = 64
        self._pairs = array("q", bytes(32 * 64))
        if not cython.compiled:
            self._part = [0] * 20

    # --- adding records ---

    def add_rows(
        self,
        view: cython.const[cython.uchar][::1],  # type: Any
        rows: cython.longlong[::1],  # type: Any
        count: cython.Py_ssize_t,
        broker_name: bytes,
    ):
        # type: (...) -> None
        """Add the records of a table of record_cy.scan.

        Args:
            view: where the positions of the table point to.
            rows: 20 numbers a record.
            count: records.

        Raises:
            ValueError: a position lies outside of `view`.
            RemoteProtocolError: a column has 2 GiB or more.
        """
        row: cython.Py_ssize_t
        limit: cython.Py_ssize_t = len(view)
        buf: cython.p_uchar = _start(view)
        table: cython.p_longlong
        if count == 0:
            return
        if cython.compiled:
            table = cython.address(rows[0])
        else:
            table = rows
        for row in range(count):
            if not _is_inside(table, row * _PART, limit):
                raise ValueError(f"row {row} points outside the {limit} bytes")
            self._add(buf, table, row * _PART, broker_name)

    def add_records(
        self,
        records: PulledRecords,
    ):
        # type: (...) -> None
        """Add all records of a pull. Raises RemoteProtocolError if a column has 2 GiB or more."""
        broker_name: bytes = records.pull.broker_name.encode()
        p: cython.Py_ssize_t = 0
        end: cython.Py_ssize_t = records.size
        at: cython.Py_ssize_t
        sys_flag: cython.int
        buf: cython.p_uchar
        part: cython.p_longlong
        if cython.compiled:
            buf = _start(records.view)
            part = self._part
        else:
            buf, part = records.view, self._part
        while p < end:  # who made `records` has checked each of them
            sys_flag = i32(buf, p + rl.SYS_FLAG)
            part[2] = i64(buf, p + rl.PHYSICAL_OFFSET)
            part[3] = i32(buf, p + rl.QUEUE_ID)
            part[4] = i64(buf, p + rl.QUEUE_OFFSET)
            part[5] = sys_flag
            part[6] = i32(buf, p + rl.FLAG)
            part[7] = i64(buf, p + rl.BORN_TIMESTAMP)
            at = p + rl.store_timestamp_at(sys_flag)
            part[8] = i64(buf, at)
            part[18] = p + rl.BORN_HOST
            part[19] = at + 8
            at = p + rl.reconsume_times_at(sys_flag)
            part[9] = i32(buf, at)
            part[10] = i64(buf, at + 4)
            part[11] = i32(buf, p + rl.BODY_CRC)
            part[12] = at + 16
            part[13] = i32(buf, at + 12)
            at += 16 + i32(buf, at + 12)
            if u32(buf, p + rl.MAGIC) == rl.MAGIC_V1:
                part[15] = buf[at]
                at += 1
            else:
                part[15] = i16(buf, at)
                at += 2
            part[14] = at
            at += cython.cast(cython.Py_ssize_t, part[15])
            part[16] = at + 2
            part[17] = i16(buf, at)
            self._add(buf, part, 0, broker_name)
            p += u32(buf, p)

    @cython.cfunc
    @cython.exceptval(-1)
    def _add(
        self, buf: cython.p_uchar, part: cython.p_longlong, base: cython.Py_ssize_t, broker_name: bytes
    ) -> cython.int:
        sys_flag: cython.int = part[base + 5]
        size: cython.Py_ssize_t
        if self._queue_id is not None:
            self._queue_id._put(part[base + 3])
        if self._queue_offset is not None:
            self._queue_offset._put(part[base + 4])
        if self._physical_offset is not None:
            self._physical_offset._put(part[base + 2])
        if self._sys_flag is not None:
            self._sys_flag._put(sys_flag)
        if self._flag is not None:
            self._flag._put(part[base + 6])
        if self._reconsume_times is not None:
            self._reconsume_times._put(part[base + 9])
        if self._prepared_offset is not None:
            self._prepared_offset._put(part[base + 10])
        if self._body_crc is not None:
            self._body_crc._put(part[base + 11])
        if self._born is not None:
            self._born._put(_microseconds(part[base + 7]))
        if self._stored is not None:
            self._stored._put(_microseconds(part[base + 8]))
        if self._broker is not None:
            self._broker._put_bytes(broker_name)
        if self._topic is not None:
            self._put_topic(buf, part[base + 14], part[base + 15])
        if self._born_host is not None:
            size = 20 if sys_flag & rl.BORN_HOST_V6 else 8
            self._put_host(self._born_host, self._known_born, buf, part[base + 18], size)
        if self._store_host is not None or self._msg_id is not None:
            size = 20 if sys_flag & rl.STORE_HOST_V6 else 8
            if self._store_host is not None:
                self._put_host(self._store_host, self._known_store, buf, part[base + 19], size)
            if self._msg_id is not None:
                self._put_msg_id(buf, part[base + 19], size, part[base + 2])
        if self._has_properties:
            self._put_properties(buf, part[base + 16], part[base + 16] + part[base + 17])
        if self._body is not None:
            if sys_flag & _COMPRESSED:
                self._body._put_bytes(inflated(take_bytes(buf, part[base + 12], part[base + 13]), sys_flag)[0])
            else:
                self._body._put(buf, part[base + 12], part[base + 13])
        return 0

    @cython.cfunc
    @cython.exceptval(-1)
    def _put_topic(self, buf: cython.p_uchar, p: cython.Py_ssize_t, size: cython.Py_ssize_t) -> cython.int:
        known: _Known = self._known_topic
        if not known._is(buf, p, size):
            raw: bytes = take_bytes(buf, p, size)
            topic = raw.decode("utf-8", "replace")
            if self._unwrap is not None:
                topic = self._unwrap(topic)
            known._text = topic.encode()
            known._raw = raw
        return self._topic._put_bytes(known._text)

    @cython.cfunc
    @cython.exceptval(-1)
    def _put_host(
        self, column: _Texts, known: _Known, buf: cython.p_uchar, p: cython.Py_ssize_t, size: cython.Py_ssize_t
    ) -> cython.int:
        if not known._is(buf, p, size):
            raw: bytes = take_bytes(buf, p, size)
            text = self._hosts.get(raw)
            if text is None:
                if len(self._hosts) >= _MOST_HOSTS:
                    self._hosts.clear()
                text = self._hosts[raw] = host_text(raw).encode()
            known._text = text
            known._raw = raw
        return column._put_bytes(known._text)

    @cython.cfunc
    @cython.exceptval(-1)
    def _put_msg_id(
        self, buf: cython.p_uchar, p: cython.Py_ssize_t, size: cython.Py_ssize_t, physical: cython.longlong
    ) -> cython.int:
        """Put the offset message id: the host and the physical offset, 32 or 56 upper-case hex digits."""
        column: _Texts = self._msg_id
        column._reserve(2 * size + 16)
        data: cython.p_uchar = column._data
        at: cython.Py_ssize_t = column._at
        i: cython.Py_ssize_t
        byte: cython.int
        digits: cython.p_uchar
        if cython.compiled:
            digits = cython.cast(cython.p_uchar, _HEX)
        else:
            digits = _HEX
        for i in range(size + 8):
            byte = buf[p + i] if i < size else (physical >> (56 - 8 * (i - size))) & 0xFF
            data[at] = digits[byte >> 4]
            data[at + 1] = digits[byte & 15]
            at += 2
        column._end(2 * size + 16)
        return 0

    # --- properties ---

    @cython.cfunc
    @cython.exceptval(-1)
    def _put_properties(self, buf: cython.p_uchar, p: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.int:
        """Put what is made of a property text. Of equal names the last value counts."""
        stop: cython.Py_ssize_t
        middle: cython.Py_ssize_t
        size: cython.Py_ssize_t
        at: cython.Py_ssize_t
        count: cython.Py_ssize_t = 0
        tags: cython.Py_ssize_t = 0
        tags_size: cython.Py_ssize_t = -1
        keys: cython.Py_ssize_t = 0
        keys_size: cython.Py_ssize_t = -1
        unique: cython.Py_ssize_t = 0
        unique_size: cython.Py_ssize_t = -1
        places: dict = None
        while p < end:
            stop = find_byte(buf, p, end, 2)
            middle = find_byte(buf, p, stop, 1)
            size = middle - p
            if middle < stop - 1 and size > 0:
                if size == 4:
                    if same_bytes(buf, p, 4, b"TAGS"):
                        tags, tags_size = middle + 1, stop - middle - 1
                    elif same_bytes(buf, p, 4, b"KEYS"):
                        keys, keys_size = middle + 1, stop - middle - 1
                elif size == 8 and same_bytes(buf, p, 8, b"UNIQ_KEY"):
                    unique, unique_size = middle + 1, stop - middle - 1
                if self._names is not None:
                    if count < _FEW_PAIRS:
                        at = 0
                        while at < count and not (
                            self._pairs[at * 4 + 1] == size and _same(buf, self._pairs[at * 4], p, size)
                        ):
                            at += 1
                    else:
                        if places is None:
                            places = {
                                take_bytes(buf, self._pairs[at * 4], self._pairs[at * 4 + 1]): at for at in range(count)
                            }
                        at = places.setdefault(take_bytes(buf, p, size), count)
                    if at == self._pair_room:
                        self._make_pair_room()
                    self._pairs[at * 4] = p
                    self._pairs[at * 4 + 1] = size
                    self._pairs[at * 4 + 2] = middle + 1
                    self._pairs[at * 4 + 3] = stop - middle - 1
                    if at == count:
                        count += 1
            p = stop + 1
        if self._names is not None:
            for at in range(count):
                self._names._put(buf, self._pairs[at * 4], self._pairs[at * 4 + 1])
                self._values._put(buf, self._pairs[at * 4 + 2], self._pairs[at * 4 + 3])
            self._pair_ends._put(self._names._count)
        if self._tags is not None:
            self._put_or_miss(self._tags, buf, tags, tags_size)
        if self._unique is not None:
            self._put_or_miss(self._unique, buf, unique, unique_size)
        if self._key is not None:
            self._put_or_miss(self._key, buf, keys, keys_size)
        if self._words is not None:
            p, end = keys, keys + keys_size
            while p < end:
                stop = find_byte(buf, p, end, 32)
                if stop > p:
                    self._words._put(buf, p, stop - p)
                p = stop + 1
            self._word_ends._put(self._words._count)
        return 0

    @cython.cfunc
    @cython.exceptval(-1)
    def _put_or_miss(
        self, column: _Texts, buf: cython.p_uchar, p: cython.Py_ssize_t, size: cython.Py_ssize_t
    ) -> cython.int:
        if size < 0:
            return column._put_missing(self._rows)
        return column._put(buf, p, size)

    @cython.cfunc
    @cython.exceptval(-1)
    def _make_pair_room(self) -> cython.int:
        larger = array("q", self._pairs)
        larger.frombytes(bytes(32 * self._pair_room))
        self._pairs = larger
        self._pair_room *= 2
        return 0

    # --- the batch ---

    def batch(self):
        # type: () -> Any
        """Return the pyarrow.RecordBatch of all records that were added."""
        schema = arrow_schema(self._columns)
        made: dict = {}
        arrays: list = []
        for name, kind in zip(self._columns, schema.types, strict=True):
            base = base_column(name)
            source = name if name in ("key", "headers") else base
            if source not in made:
                made[source] = self._array(source, kind if source == name else MESSAGE_COLUMNS[base][0])
            arrays.append(made[source])
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    @cython.cfunc
    def _array(self, name, kind):
        texts: _Texts = {
            "body": self._body, "topic": self._topic, "brokerName": self._broker, "msgId": self._msg_id,
            "bornHost": self._born_host, "storeHost": self._store_host, "tags": self._tags, "uniqKey": self._unique,
            "key": self._key,
        }.get(name)  # fmt: skip
        if texts is not None:
            return texts._array(kind)
        if name == "keys":
            return pa.ListArray.from_arrays(self._word_ends._array(pa.int32()), self._words._array(pa.string()), kind)
        if name == "properties":
            ends, names = self._pair_ends._array(pa.int32()), self._names._array(pa.string())
            return pa.MapArray.from_arrays(ends, names, self._values._array(pa.string()), kind)
        if name == "headers":
            names, values = self._names._array(pa.string()), self._values._array(pa.string())
            pairs = pa.StructArray.from_arrays([names, values.cast(pa.binary())], fields=_PAIR_FIELDS)
            return pa.ListArray.from_arrays(self._pair_ends._array(pa.int32()), pairs, kind)
        numbers: _Numbers = {
            "queueId": self._queue_id, "queueOffset": self._queue_offset, "physicalOffset": self._physical_offset,
            "sysFlag": self._sys_flag, "flag": self._flag, "reconsumeTimes": self._reconsume_times,
            "preparedTransactionOffset": self._prepared_offset, "bodyCrc": self._body_crc,
            "bornTimestamp": self._born, "storeTimestamp": self._stored,
        }[name]  # fmt: skip
        return numbers._array(kind)


@cython.cfunc
def _texts(wanted, name: str, rows: cython.Py_ssize_t, size: cython.Py_ssize_t, is_raw: cython.bint) -> _Texts:
    return _Texts(rows, size, is_raw) if name in wanted else None


@cython.cfunc
def _numbers(wanted, name: str, rows: cython.Py_ssize_t) -> _Numbers:
    return _Numbers(rows, name in _WIDE) if name in wanted else None


@cython.cfunc
def _list_ends(rows: cython.Py_ssize_t) -> _Numbers:
    """Return the offsets of a column of lists, with the first."""
    ends: _Numbers = _Numbers(rows + 1, False)
    ends._put(0)
    return ends


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _microseconds(ms: cython.longlong) -> cython.longlong:
    """Convert a time; those before the first or behind the last possible timestamp become that timestamp."""
    return min(max(ms, -_MOST_MS), _MOST_MS) * 1000


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _same(buf: cython.p_uchar, p: cython.Py_ssize_t, q: cython.Py_ssize_t, size: cython.Py_ssize_t) -> cython.bint:
    if cython.compiled:
        return memcmp(buf + p, buf + q, size) == 0
    return buf[p : p + size] == buf[q : q + size]


@cython.cfunc
@cython.exceptval(check=False)
def _is_inside(part: cython.p_longlong, base: cython.Py_ssize_t, limit: cython.Py_ssize_t) -> cython.bint:
    """Return whether all parts of a row lie in so many bytes."""
    i: cython.Py_ssize_t
    for i in range(12, 18, 2):
        if part[base + i] < 0 or part[base + i + 1] < 0 or part[base + i] > limit - part[base + i + 1]:
            return False
    return 0 <= part[base + 18] <= limit - 20 and 0 <= part[base + 19] <= limit - 20


def is_compiled() -> bool:
    """Return whether this module was loaded as its compiled extension, and not as Python source."""
    return bool(cython.compiled)
