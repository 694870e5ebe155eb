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
    from cython.cimports.maxq.runtime.prefetch import prefetch
else:
    from maxq.protocol.message import record_layout as rl
    from maxq.protocol.message.received_cy import PulledRecords
    from maxq.runtime.buffers import find_byte, i16, i32, i64, same_bytes, take_bytes, u32

from maxq.arrow.schemas import MESSAGE_COLUMNS, arrow_schema, base_column
from maxq.errors import RemoteProtocolError
from maxq.protocol.message.message import inflated
from maxq.protocol.message.message_id import host_text
from maxq.runtime.reused_memory import ReusedMemory

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any


_PART = cython.declare(cython.Py_ssize_t, 20)  # numbers of a row, as record_cy.scan leaves them
_BLOCK = cython.declare(cython.Py_ssize_t, 128)  # rows that are added at once, a column at a time
_COMPRESSED = cython.declare(cython.int, 0x1)
# largest timestamp in ms that still fits as microseconds
_MOST_MS = cython.declare(cython.longlong, ((1 << 63) - 1) // 1000)
_MOST_BYTES = cython.declare(cython.longlong, (1 << 31) - 1)  # most bytes of one column in a batch
_AHEAD = cython.declare(cython.Py_ssize_t, 256)  # bytes of the next record that are fetched while one is read
# up to this many properties, each name is compared with each; more are hashed
_FEW_PAIRS = cython.declare(cython.Py_ssize_t, 32)
_MOST_HOSTS = 10_000
_HEX = cython.declare(bytes, b"0123456789ABCDEF")
_WIDE = frozenset(("queueOffset", "physicalOffset", "preparedTransactionOffset", "bornTimestamp", "storeTimestamp"))  # type: frozenset[str]
# bytes of each further block when a batch has more bytes than expected
_NEXT_BLOCK = cython.declare(cython.Py_ssize_t, 256 << 10)
_TEXTS = frozenset(("topic", "brokerName", "msgId", "bornHost", "storeHost", "tags", "uniqKey", "bodyFault"))  # type: frozenset[str]
#: Columns of texts whose values are not parts of the records.
_MADE_UP = frozenset(("brokerName", "msgId", "bornHost", "storeHost", "bodyFault"))  # type: frozenset[str]
_NUMBERS = _WIDE | {"queueId", "sysFlag", "flag", "reconsumeTimes", "bodyCrc"}  # type: frozenset[str]
_PAIR_FIELDS = (pa.field("key", pa.string()), pa.field("value", pa.binary()))


@cython.cfunc
@cython.exceptval(check=False)
def _start(view: cython.const[cython.uchar][::1]) -> cython.p_uchar:
    if not cython.compiled:
        return memoryview(view)
    return cython.cast(cython.p_uchar, cython.address(view[0])) if len(view) else cython.NULL


class ColumnMemory:
    """Memory for batches that are made one after the other, of one consumer say: what held the columns of one holds
    those of a later one, when nobody refers to them any more.

    Attributes:
        blocks: where memory comes from.
        sizes: values and bytes a row that a column of texts had in the last batch, by its name.
    """

    def __init__(
        self,
        most_bytes=48 << 20,  # type: int
    ):
        self.blocks = ReusedMemory(most_bytes)
        self.sizes = {}  # type: dict[str, tuple[float, float]]


@cython.final
@cython.cclass
class _Arena:
    """Memory for the buffers of one batch, piece by piece from blocks.

    Args:
        size: so many bytes will be taken, about.
    """

    _blocks = cython.declare(object)
    _least = cython.declare(cython.Py_ssize_t)  # smallest size of a block in bytes
    _whole = cython.declare(object)  # the current block as an Arrow buffer, which keeps its memory in place
    _data = cython.declare(cython.p_uchar)
    _at = cython.declare(cython.Py_ssize_t)
    _room = cython.declare(cython.Py_ssize_t)
    _taken = cython.declare(cython.p_uchar)  # start of the memory that `_take` reserved last

    def __init__(self, blocks, size: cython.Py_ssize_t):
        self._blocks = blocks
        self._least = size
        self._whole = None
        self._at = self._room = 0

    @cython.cfunc
    def _take(self, size: cython.Py_ssize_t):
        """Return a buffer of so many bytes with anything in it."""
        at: cython.Py_ssize_t
        whole: cython.Py_ssize_t = (size + 63) & ~63
        if whole > self._room - self._at:
            block: bytearray = self._blocks.take(max(whole, self._least))
            self._whole = pa.py_buffer(block)
            self._data = _start(block)
            self._at, self._room = 0, len(block)
            self._least = _NEXT_BLOCK
        at = self._at
        self._at += whole
        if cython.compiled:
            self._taken = self._data + at
        else:
            self._taken = self._data[at : at + size]
        return self._whole.slice(at, size)


@cython.final
@cython.cclass
class _Numbers:
    """A column of int32 or int64 for a known number of rows."""

    _buffer = cython.declare(object)
    _count = cython.declare(cython.Py_ssize_t)
    _is_wide = cython.declare(cython.bint)
    _narrow = cython.declare(cython.p_int)
    _broad = cython.declare(cython.p_longlong)

    def __init__(self, arena: _Arena, rows: cython.Py_ssize_t, is_wide: cython.bint):
        self._buffer = arena._take(max(rows, 1) * (8 if is_wide else 4))
        self._count = 0
        self._is_wide = is_wide
        if cython.compiled:
            self._narrow = cython.cast(cython.p_int, arena._taken)
            self._broad = cython.cast(cython.p_longlong, arena._taken)
        else:
            self._narrow = self._broad = arena._taken.cast("q" if is_wide else "i")

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
    @cython.exceptval(check=False)
    def _put_column(self, part: cython.p_longlong, at: cython.Py_ssize_t, count: cython.Py_ssize_t) -> cython.void:
        """Put part[at], and what is in its place in the rows behind."""
        i: cython.Py_ssize_t
        to: cython.Py_ssize_t = self._count
        if self._is_wide:
            for i in range(count):
                self._broad[to + i] = part[at + i * _PART]
        else:
            for i in range(count):
                self._narrow[to + i] = part[at + i * _PART]
        self._count += count

    @cython.cfunc
    @cython.exceptval(check=False)
    def _put_times(self, part: cython.p_longlong, at: cython.Py_ssize_t, count: cython.Py_ssize_t) -> cython.void:
        """Put times that are milliseconds as microseconds."""
        i: cython.Py_ssize_t
        for i in range(count):
            self._broad[self._count + i] = _microseconds(part[at + i * _PART])
        self._count += count

    @cython.cfunc
    def _array(self, kind):
        return pa.Array.from_buffers(kind, self._count, [None, self._buffer], 0)


@cython.final
@cython.cclass
class _Texts:
    """A column of bytes or texts that grows.

    Args:
        rows, size: number of values, and bytes of them together, for which room is made at first.
        is_raw: the values may not be UTF-8; invalid ones are repaired at the end.
    """

    _count = cython.declare(cython.Py_ssize_t)
    _missing = cython.declare(cython.Py_ssize_t)
    _at = cython.declare(cython.Py_ssize_t)
    _room = cython.declare(cython.Py_ssize_t)
    _arena = cython.declare(_Arena)
    _buffer = cython.declare(object)
    _data = cython.declare(cython.p_uchar)
    _offset_room = cython.declare(cython.Py_ssize_t)
    _offset_buffer = cython.declare(object)
    _offsets = cython.declare(cython.p_int)
    _bits = cython.declare(bytearray)
    _is_raw = cython.declare(cython.bint)

    def __init__(self, arena: _Arena, rows: cython.Py_ssize_t, size: cython.Py_ssize_t, is_raw: cython.bint):
        self._arena = arena
        self._count = self._missing = self._at = self._room = self._offset_room = 0
        self._is_raw = is_raw
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
        larger: object = self._arena._take(room)
        data: cython.p_uchar = self._arena._taken
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
        larger: object = self._arena._take(4 * room)
        offsets: cython.p_int
        if cython.compiled:
            offsets = cython.cast(cython.p_int, self._arena._taken)
            if self._offset_room:
                memcpy(offsets, self._offsets, 4 * self._offset_room)
        else:
            offsets = self._arena._taken.cast("i")
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
        self._reserve(size)
        if cython.compiled:
            memcpy(self._data + self._at, buf + p, size)
        else:
            self._data[self._at : self._at + size] = buf[p : p + size]
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
        if self._is_raw and not _is_ascii(self._data, self._at):
            try:
                made.validate(full=True)
            except pa.ArrowInvalid:
                raw = pa.Array.from_buffers(pa.binary(), self._count, buffers, self._missing).to_pylist()
                made = pa.array([None if one is None else one.decode("utf-8", "replace") for one in raw], kind)
        return made


@cython.final
@cython.cclass
class _Known:
    """The previous value and its decoded form, because most rows repeat the value of the row before."""

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
        columns: names of columns of schemas, in the order of the batch.
        rows: the number of records that will be added, or more.
        size: bytes of these records together, about.
        unwrap: makes the user's name of a topic; None: they are the same.
        memory: of this batch and others before; None: this batch has its own.
        enough: so many bytes of bodies are enough for the batch.
    """

    _columns = cython.declare(tuple)
    _rows = cython.declare(cython.Py_ssize_t)
    _size = cython.declare(cython.longlong)
    _added = cython.declare(cython.Py_ssize_t)
    _unwrap = cython.declare(object)
    _body = cython.declare(_Texts)
    _fault = cython.declare(_Texts)
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
    _memory = cython.declare(object)
    _made = cython.declare(dict)
    _has_properties = cython.declare(cython.bint)
    _known_topic = cython.declare(_Known)
    _known_born = cython.declare(_Known)
    _known_store = cython.declare(_Known)
    _known_id = cython.declare(_Known)
    _hosts = cython.declare(dict)
    _pairs = cython.declare(cython.longlong[::1])
    _pair_room = cython.declare(cython.Py_ssize_t)
    _part = cython.declare(cython.longlong[2560])  # of _BLOCK rows
    _enough = cython.declare(cython.longlong)

    def __init__(
        self,
        columns,  # type: Sequence[str]
        rows: cython.Py_ssize_t,
        size: cython.Py_ssize_t,
        unwrap=None,  # type: Callable[[str], str] | None
        memory=None,  # type: ColumnMemory | None
        enough: cython.longlong = (1 << 31) - 1,
    ):
        self._enough = enough
        self._columns = tuple(columns)
        self._rows = rows
        self._size = size
        self._added = 0
        self._unwrap = unwrap
        self._memory = ColumnMemory(0) if memory is None else memory
        wanted: set = {base_column(name) for name in columns}
        texts: set = wanted & _TEXTS
        if "properties" in wanted:
            texts |= {"names", "values"}
        texts |= {"key"} & set(columns)
        if "keys" in columns:
            texts.add("words")
        numbers: set = wanted & _NUMBERS
        arena: _Arena = _Arena(self._memory.blocks, self._expected_bytes(texts, len(numbers) + 2))
        self._made = {}
        self._body = None
        if "body" in wanted:
            size = max(size - rl.MIN_RECORD_SIZE * rows, 0)
            self._body = _Texts(_Arena(self._memory.blocks, size + 4 * rows + 256), rows, size, False)
        self._fault = self._texts(arena, texts, "bodyFault", False)
        self._topic = self._texts(arena, texts, "topic", False)
        self._broker = self._texts(arena, texts, "brokerName", False)
        self._msg_id = self._texts(arena, texts, "msgId", False)
        self._born_host = self._texts(arena, texts, "bornHost", False)
        self._store_host = self._texts(arena, texts, "storeHost", False)
        self._tags = self._texts(arena, texts, "tags", True)
        self._unique = self._texts(arena, texts, "uniqKey", True)
        self._key = self._texts(arena, texts, "key", False)
        self._words = self._texts(arena, texts, "words", True)
        self._names = self._texts(arena, texts, "names", True)
        self._values = self._texts(arena, texts, "values", True)
        self._word_ends = None if self._words is None else _list_ends(arena, rows)
        self._pair_ends = None if self._names is None else _list_ends(arena, rows)
        self._queue_id = _numbers(arena, numbers, "queueId", rows)
        self._queue_offset = _numbers(arena, numbers, "queueOffset", rows)
        self._physical_offset = _numbers(arena, numbers, "physicalOffset", rows)
        self._sys_flag = _numbers(arena, numbers, "sysFlag", rows)
        self._flag = _numbers(arena, numbers, "flag", rows)
        self._reconsume_times = _numbers(arena, numbers, "reconsumeTimes", rows)
        self._prepared_offset = _numbers(arena, numbers, "preparedTransactionOffset", rows)
        self._body_crc = _numbers(arena, numbers, "bodyCrc", rows)
        self._born = _numbers(arena, numbers, "bornTimestamp", rows)
        self._stored = _numbers(arena, numbers, "storeTimestamp", rows)
        self._has_properties = not wanted.isdisjoint(("tags", "keys", "properties", "uniqKey"))
        self._known_topic, self._known_born, self._known_store, self._known_id = _Known(), _Known(), _Known(), _Known()
        self._hosts = {}
        self._pair_room = 64
        self._pairs = array("q", bytes(32 * 64))
        if not cython.compiled:
            self._part = [0] * (_PART * _BLOCK)

    @cython.cfunc
    def _expected(self, name: str):
        """Return how many values a column of texts will have, and how many bytes, by what the last batch had. The
        previous batch may have had few large rows; parts of records are no larger than the records."""
        count, size = self._memory.sizes.get(name, (1.0, 32.0))
        values: cython.longlong = int(count * self._rows)
        total: cython.longlong = int(size * self._rows)
        if name not in _MADE_UP:
            values = min(values, max(self._rows, self._size))
            total = min(total, self._size)
        return values + 16, total + 256

    @cython.cfunc
    def _expected_bytes(self, texts: set, numbers: cython.Py_ssize_t):
        """Return the memory for all columns but that of bodies."""
        total: cython.longlong = numbers * (8 * self._rows + 128)
        for name in texts:
            count, size = self._expected(name)
            total += size + 4 * count + 256
        return total

    @cython.cfunc
    def _texts(self, arena: _Arena, wanted: set, name: str, is_raw: cython.bint) -> _Texts:
        if name not in wanted:
            return None
        count, size = self._expected(name)
        made: _Texts = _Texts(arena, count, size, is_raw)
        self._made[name] = made
        return made

    # --- adding records ---

    def add_rows(
        self,
        view: cython.const[cython.uchar][::1],  # type: Any
        rows: cython.longlong[::1],  # type: Any
        count: cython.Py_ssize_t,
        broker_name: bytes,
    ):
        # type: (...) -> int
        """Add the records of a table of record_cy.scan until there are enough bytes of bodies.

        Args:
            view: where the positions of the table point to.
            rows: 20 numbers a record.
            count: records.

        Returns:
            How many records were added: all but the last ones.

        Raises:
            ValueError: a position lies outside of `view`.
            RemoteProtocolError: a column has 2 GiB or more.
        """
        row: cython.Py_ssize_t
        first: cython.Py_ssize_t = 0
        limit: cython.Py_ssize_t = len(view)
        buf: cython.p_uchar = _start(view)
        table: cython.p_longlong
        if count == 0:
            return 0
        if cython.compiled:
            table = cython.address(rows[0])
        else:
            table = rows
        for row in range(count):
            if not _is_inside(table, row * _PART, limit):
                raise ValueError(f"row {row} points outside the {limit} bytes")
        row = 0
        while row < count:
            row += 1
            if row - first == _BLOCK or row == count or self._may_be_large(table[(row - 1) * _PART + 5]):
                self._add(buf, table, first * _PART, row - first, broker_name)
                first = row
                if self._is_enough():
                    break
        return first

    def add_records(
        self,
        records: PulledRecords,
    ):
        # type: (...) -> int
        """Add the records of a pull until there are enough bytes of bodies. Returns how many records were added; raises
        RemoteProtocolError if a column has 2 GiB or more."""
        broker_name: bytes = records.pull.broker_name.encode()
        p: cython.Py_ssize_t = 0
        base: cython.Py_ssize_t = 0
        added: cython.Py_ssize_t = 0
        end: cython.Py_ssize_t = records.size
        at: cython.Py_ssize_t
        following: cython.Py_ssize_t
        sys_flag: cython.int
        buf: cython.p_uchar
        part: cython.p_longlong
        if cython.compiled:
            buf = _start(records.view)
            part = self._part
        else:
            buf, part = records.view, self._part
        while p < end:  # sizes can be trusted: whoever made `records` has checked each record
            if self._is_enough():
                break
            following = p + u32(buf, p)
            if cython.compiled:
                for at in range(following, min(following + _AHEAD, end), 64):
                    prefetch(buf + at)
            sys_flag = i32(buf, p + rl.SYS_FLAG)
            part[base + 2] = i64(buf, p + rl.PHYSICAL_OFFSET)
            part[base + 3] = i32(buf, p + rl.QUEUE_ID)
            part[base + 4] = i64(buf, p + rl.QUEUE_OFFSET)
            part[base + 5] = sys_flag
            part[base + 6] = i32(buf, p + rl.FLAG)
            part[base + 7] = i64(buf, p + rl.BORN_TIMESTAMP)
            at = p + rl.store_timestamp_at(sys_flag)
            part[base + 8] = i64(buf, at)
            part[base + 18] = p + rl.BORN_HOST
            part[base + 19] = at + 8
            at = p + rl.reconsume_times_at(sys_flag)
            part[base + 9] = i32(buf, at)
            part[base + 10] = i64(buf, at + 4)
            part[base + 11] = i32(buf, p + rl.BODY_CRC)
            part[base + 12] = at + 16
            part[base + 13] = i32(buf, at + 12)
            at += 16 + i32(buf, at + 12)
            if u32(buf, p + rl.MAGIC) == rl.MAGIC_V1:
                part[base + 15] = buf[at]
                at += 1
            else:
                part[base + 15] = i16(buf, at)
                at += 2
            part[base + 14] = at
            at += cython.cast(cython.Py_ssize_t, part[base + 15])
            part[base + 16] = at + 2
            part[base + 17] = i16(buf, at)
            p = following
            base += _PART
            added += 1
            if base == _BLOCK * _PART or self._may_be_large(sys_flag):
                self._add(buf, part, 0, base // _PART, broker_name)
                base = 0
        if base:
            self._add(buf, part, 0, base // _PART, broker_name)
        return added

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def _is_enough(self) -> cython.bint:
        return self._body is not None and self._body._at >= self._enough

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def _may_be_large(self, sys_flag: cython.longlong) -> cython.bint:
        """Return whether the body of a record may need much more memory than the record."""
        return sys_flag & _COMPRESSED and self._body is not None

    @cython.cfunc
    @cython.exceptval(-1)
    def _add(
        self,
        buf: cython.p_uchar,
        part: cython.p_longlong,
        first: cython.Py_ssize_t,
        count: cython.Py_ssize_t,
        broker_name: bytes,
    ) -> cython.int:
        """Add so many records, whose parts begin at part[first], a column at a time."""
        row: cython.Py_ssize_t
        _row: cython.Py_ssize_t
        base: cython.Py_ssize_t
        sys_flag: cython.int
        if self._queue_id is not None:
            self._queue_id._put_column(part, first + 3, count)
        if self._queue_offset is not None:
            self._queue_offset._put_column(part, first + 4, count)
        if self._physical_offset is not None:
            self._physical_offset._put_column(part, first + 2, count)
        if self._sys_flag is not None:
            self._sys_flag._put_column(part, first + 5, count)
        if self._flag is not None:
            self._flag._put_column(part, first + 6, count)
        if self._reconsume_times is not None:
            self._reconsume_times._put_column(part, first + 9, count)
        if self._prepared_offset is not None:
            self._prepared_offset._put_column(part, first + 10, count)
        if self._body_crc is not None:
            self._body_crc._put_column(part, first + 11, count)
        if self._born is not None:
            self._born._put_times(part, first + 7, count)
        if self._stored is not None:
            self._stored._put_times(part, first + 8, count)
        if self._broker is not None:
            for _row in range(count):
                self._broker._put_bytes(broker_name)
        if self._topic is not None:
            for row in range(count):
                base = first + row * _PART
                self._put_topic(buf, part[base + 14], part[base + 15])
        if self._born_host is not None:
            for row in range(count):
                base = first + row * _PART
                self._put_host(self._born_host, self._known_born, buf, part[base + 18], _host_size(part[base + 5], 0))
        if self._store_host is not None:
            for row in range(count):
                base = first + row * _PART
                self._put_host(self._store_host, self._known_store, buf, part[base + 19], _host_size(part[base + 5], 1))
        if self._msg_id is not None:
            for row in range(count):
                base = first + row * _PART
                self._put_msg_id(buf, part[base + 19], _host_size(part[base + 5], 1), part[base + 2])
        if self._has_properties:
            for row in range(count):
                base = first + row * _PART
                self._put_properties(buf, part[base + 16], part[base + 16] + part[base + 17])
        if self._body is not None or self._fault is not None:
            for row in range(count):
                base = first + row * _PART
                sys_flag = part[base + 5]
                if sys_flag & _COMPRESSED:
                    self._put_inflated(take_bytes(buf, part[base + 12], part[base + 13]), sys_flag)
                    continue
                if self._body is not None:
                    self._body._put(buf, part[base + 12], part[base + 13])
                if self._fault is not None:
                    self._fault._put_missing(self._rows)
        self._added += count
        return 0

    @cython.cfunc
    @cython.exceptval(-1)
    def _put_inflated(self, packed: bytes, sys_flag: cython.int) -> cython.int:
        """Put a body that came compressed, and its fault."""
        body, fault = inflated(packed, sys_flag)
        if self._body is not None:
            self._body._put_bytes(body)
        if self._fault is not None:
            if fault:
                self._fault._put_bytes(fault.encode())
            else:
                self._fault._put_missing(self._rows)
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
        known: _Known = self._known_id
        if not known._is(buf, p, size):
            known._raw = take_bytes(buf, p, size)
            known._text = known._raw.hex().upper().encode()
        column._reserve(2 * size + 16)
        data: cython.p_uchar = column._data
        at: cython.Py_ssize_t = column._at + 2 * size
        i: cython.Py_ssize_t
        rest: cython.ulonglong = physical if cython.compiled else int(physical) & 0xFFFFFFFFFFFFFFFF
        digits: cython.p_uchar
        if cython.compiled:
            digits = cython.cast(cython.p_uchar, _HEX)
            memcpy(data + column._at, cython.cast(cython.p_uchar, known._text), 2 * size)
        else:
            digits = _HEX
            data[column._at : at] = known._text
        for i in range(15, -1, -1):
            data[at + i] = digits[rest & 15]
            rest >>= 4
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
        if self._added:
            for name, texts in self._made.items():
                self._note(name, texts)
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
    def _note(self, name: str, texts: _Texts):
        self._memory.sizes[name] = texts._count / self._added, texts._at / self._added

    @cython.cfunc
    def _array(self, name, kind):
        texts: _Texts = {
            "body": self._body, "topic": self._topic, "brokerName": self._broker, "msgId": self._msg_id,
            "bornHost": self._born_host, "storeHost": self._store_host, "tags": self._tags, "uniqKey": self._unique,
            "key": self._key, "bodyFault": self._fault,
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
def _numbers(arena: _Arena, wanted: set, name: str, rows: cython.Py_ssize_t) -> _Numbers:
    return _Numbers(arena, rows, name in _WIDE) if name in wanted else None


@cython.cfunc
def _list_ends(arena: _Arena, rows: cython.Py_ssize_t) -> _Numbers:
    """Return the offsets of a column of lists, with the first."""
    ends: _Numbers = _Numbers(arena, rows + 1, False)
    ends._put(0)
    return ends


@cython.cfunc
@cython.exceptval(check=False)
def _is_ascii(data: cython.p_uchar, size: cython.Py_ssize_t) -> cython.bint:
    i: cython.Py_ssize_t
    high: cython.uchar = 0
    if not cython.compiled:
        return bytes(data[:size]).isascii()
    for i in range(size):
        high |= data[i]
    return high < 128


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _host_size(sys_flag: cython.longlong, is_stores: cython.bint) -> cython.Py_ssize_t:
    """Return the bytes of the host that a message was born at, or stored at."""
    return 20 if sys_flag & (rl.STORE_HOST_V6 if is_stores else rl.BORN_HOST_V6) else 8


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
