"""The part of `maxq store check` that goes over records whose queue units and index entries are as they should be.

`Confirmation.run` takes the rows of a scan one after the other and stops at the first record of which it cannot say so:
one that lacks something, one of an unusual kind, one whose unit lies in a file that is not mapped, the first or last
entry of an IndexFile. The checks in Python (check_queues.py, check_index.py) then judge this one record, and `run` goes
on behind it. The objects here hold the state of a queue and of the index; both checkers use them.

A third implementation of what dispatch does, beside dispatch_cy.py and expectation.py: it must never confirm what the
second would call wrong.
"""

from typing import TYPE_CHECKING

try:
    import cython
except ModuleNotFoundError:
    from maxq.runtime import cython  # type: ignore[no-redef]

if cython.compiled:
    from cython.cimports.maxq.protocol.message import record_layout as layout
    from cython.cimports.maxq.runtime.buffers import digits, find_byte, i32, i64, same_bytes, take_bytes
else:
    from maxq.protocol.message import record_layout as layout
    from maxq.runtime.buffers import digits, find_byte, i32, i64, same_bytes, take_bytes

if TYPE_CHECKING:
    from array import array
    from collections.abc import Iterable


_KEYS_MOST = cython.declare(cython.int, 64)  # index entries of one record that are looked at here
_SECONDS_MOST = cython.declare(cython.longlong, 2147483647)
# units whose bytes can still be numbered with 64 bits
_UNITS_MOST = cython.declare(cython.longlong, 288230376151711744)


@cython.cclass
class Window:
    """The bytes of a queue that are mapped, for `Confirmation`.

    Attributes:
        begin: byte of the queue at which they begin.
        size: bytes; 0: none are mapped.
    """

    _view = cython.declare(cython.const[cython.uchar][::1])
    begin = cython.declare(cython.longlong, visibility="readonly")
    size = cython.declare(cython.longlong, visibility="readonly")

    def __init__(self):
        self._view = None
        self.begin = 0
        self.size = 0

    def show(
        self,
        view,  # type: memoryview
        begin,  # type: int
    ):
        # type: (...) -> None
        """`view` is mapped. It must be cleared before the mapping is closed."""
        self._view = view
        self.begin = begin
        self.size = len(view)

    def clear(self):
        # type: (...) -> None
        """Forget the mapped view; call it before the mapping is closed."""
        self._view = None
        self.size = 0

    @cython.cfunc
    @cython.exceptval(check=False)
    def _holds(
        self, at: cython.longlong, physical_offset: cython.longlong, size: cython.longlong, tags_code: cython.longlong
    ) -> cython.bint:
        """Return whether the unit at byte `at` of the queue is in the window and has these values."""
        at -= self.begin
        if at < 0 or at + 20 > self.size:
            return False
        buf: cython.p_uchar
        if cython.compiled:
            buf = cython.cast(cython.p_uchar, cython.address(self._view[0]))
        else:
            buf = self._view
        return i64(buf, at) == physical_offset and i32(buf, at + 8) == size and i64(buf, at + 12) == tags_code


@cython.cclass
class ConfirmedUnits:
    """Which units of one ConsumeQueue the log confirms.

    Attributes:
        first_index: queue offset of the first unit there is a file for.
        seen: a byte for each unit from `first_index` on, 1 if it is confirmed; units behind its end are not.
        last: greatest queue offset that is confirmed, -1 if none is.
        last_physical: greatest physical offset of a record whose unit is confirmed, -1 if none is.
    """

    first_index = cython.declare(cython.longlong, visibility="readonly")
    last = cython.declare(cython.longlong, visibility="readonly")
    last_physical = cython.declare(cython.longlong, visibility="readonly")
    seen = cython.declare(bytearray, visibility="readonly")
    _window = cython.declare(Window)

    def __init__(
        self,
        first_index,  # type: int
        window,  # type: Window
    ):
        self.first_index = first_index
        self.last = -1
        self.last_physical = -1
        self.seen = bytearray()
        self._window = window

    def add(
        self,
        queue_offset,  # type: int
        physical_offset,  # type: int
    ):
        # type: (...) -> None
        """The unit at `queue_offset` is that of the record at `physical_offset`."""
        self._add(queue_offset, physical_offset)

    @cython.cfunc
    @cython.exceptval(-1, check=True)
    def _add(self, queue_offset: cython.longlong, physical_offset: cython.longlong) -> cython.int:
        place: cython.Py_ssize_t = queue_offset - self.first_index
        known: cython.Py_ssize_t = len(self.seen)
        if place >= known:
            self.seen.extend(bytes(max(place + 1, 2 * known) - known))
        self.seen[place] = 1
        self.last = max(self.last, queue_offset)
        self.last_physical = max(self.last_physical, physical_offset)
        return 0

    def has(
        self,
        queue_offset,  # type: int
    ):
        # type: (...) -> bool
        """Return whether the log confirms the unit at `queue_offset`."""
        place: cython.longlong = queue_offset - self.first_index
        return 0 <= place < len(self.seen) and self.seen[place] == 1


@cython.cclass
class CheckedTopic:
    """What records of one topic are compared with.

    Args:
        queues: by queue id.
        key_hash: Java's hash of the topic's name and `#`.
        deleted_at: physical offset of the record that deleted the topic last; 0: none is known.
        waits: are its units' tags codes times of delivery (SCHEDULE_TOPIC_XXXX)?
    """

    _queues = cython.declare(dict)
    _key_hash = cython.declare(cython.uint)
    _deleted_at = cython.declare(cython.longlong)
    _waits = cython.declare(cython.bint)

    def __init__(
        self,
        queues,  # type: dict[int, ConfirmedUnits]
        key_hash,  # type: int
        deleted_at,  # type: int
        waits,  # type: bool
    ):
        self._queues = queues
        self._key_hash = key_hash & 0xFFFFFFFF
        self._deleted_at = deleted_at
        self._waits = waits


@cython.cclass
class IndexCursor:
    """A place among the entries of one IndexFile.

    Args:
        view: the file.
        base: byte of entry 0.
        count: number of the last entry.
        newest_of_slot: one zero for each hash slot.
        begin_timestamp: of the header, ms.

    Attributes:
        number: of the current entry; above `count`: there is none.
        is_entered: the current entry is in its chain.
        newest_of_slot: number of the newest entry of each slot, up to the current one.
        slots_used: how many slots have an entry.
        first_offset, last_offset: physical offsets that the header must say, up to the current entry; -1: none.
    """

    number = cython.declare(cython.longlong, visibility="readonly")
    count = cython.declare(cython.longlong, visibility="readonly")
    slots_used = cython.declare(cython.longlong, visibility="readonly")
    first_offset = cython.declare(cython.longlong, visibility="readonly")
    last_offset = cython.declare(cython.longlong, visibility="readonly")
    is_entered = cython.declare(cython.bint, visibility="readonly")
    newest_of_slot = cython.declare(object, visibility="readonly")  # type: array[int]
    _newest = cython.declare(cython.int[::1])
    _view = cython.declare(cython.const[cython.uchar][::1])
    _slots = cython.declare(cython.longlong)
    _begin_timestamp = cython.declare(cython.longlong)
    _base = cython.declare(cython.longlong)

    def __init__(
        self,
        view,  # type: memoryview
        base,  # type: int
        count,  # type: int
        newest_of_slot,  # type: array[int]
        begin_timestamp,  # type: int
    ):
        self._view = view
        self._base = base
        self.count = count
        self.newest_of_slot = newest_of_slot
        self._newest = newest_of_slot if cython.compiled else memoryview(newest_of_slot)
        self._slots = len(newest_of_slot)
        self._begin_timestamp = begin_timestamp
        self.number = 1
        self.slots_used = 0
        self.first_offset = -1
        self.last_offset = -1
        self.is_entered = False

    def enter(
        self,
        key_hash,  # type: int
        physical_offset,  # type: int
        is_last,  # type: bool
    ):
        # type: (...) -> int
        """Put the current entry into the chain of its slot. `is_last`: the header must name its physical offset, if no
        other follows. Returns the number that the entry must name as the one before it."""
        slot: cython.Py_ssize_t = key_hash % len(self.newest_of_slot)
        before: cython.int = self._newest[slot]
        self.slots_used += before == 0
        self._newest[slot] = self.number
        if self.number == 1:
            self.first_offset = physical_offset
        if is_last:
            self.last_offset = physical_offset
        self.is_entered = True
        return before

    def advance(self):
        # type: (...) -> None
        """Move the cursor to the next entry of the file."""
        self.number += 1
        self.is_entered = False

    def close(self):
        # type: (...) -> None
        """Drop the reference to the mapped file."""
        self._view = None

    @cython.cfunc
    @cython.exceptval(check=False)
    def _matches(
        self,
        physical_offset: cython.longlong,
        store_timestamp: cython.longlong,
        hashes: cython.p_longlong,
        expected: cython.int,
        tag_hash: cython.longlong,
    ) -> cython.int:
        """Return how many entries from the current one on belong to the record at `physical_offset`, if all are right:
        each expected hash once, and `tag_hash` perhaps (-1: there is none). Returns -1 if this cannot be decided."""
        buf: cython.p_uchar
        if cython.compiled:
            buf = cython.cast(cython.p_uchar, cython.address(self._view[0]))
        else:
            buf = self._view
        found: cython.int = 0
        missing: cython.int = expected
        p: cython.longlong = self._base + 20 * self.number
        offset: cython.longlong = physical_offset
        key_hash: cython.longlong
        passed: cython.longlong = (store_timestamp - self._begin_timestamp) // 1000
        before: cython.longlong
        i: cython.int
        j: cython.int
        known: cython.bint
        if store_timestamp < self._begin_timestamp:
            passed = 0
        if passed > _SECONDS_MOST:
            passed = _SECONDS_MOST
        while self.number + found <= self.count:
            offset = i64(buf, p + 4)
            if offset != physical_offset:
                break
            if (
                self.number + found == 1
                or self.number + found == self.count
                or found == _KEYS_MOST
                or offset < self.last_offset
                or self._begin_timestamp == 0
            ):
                return -1
            key_hash = i32(buf, p)
            if key_hash < 0 or i32(buf, p + 12) != passed:
                return -1
            known = key_hash == tag_hash
            for i in range(expected):
                if hashes[i] == key_hash:
                    known = True
                    for j in range(found):
                        if i32(buf, p - 20 * (found - j)) == key_hash:
                            break
                    else:
                        missing -= 1
            if not known:
                return -1
            if found or not self.is_entered:
                before = self._newest[key_hash % self._slots]
                for j in range(found):
                    if i32(buf, p - 20 * (found - j)) % self._slots == key_hash % self._slots:
                        before = self.number + j
                if i32(buf, p + 16) != before:
                    return -1
            found += 1
            p += 20
        if missing or (found == 0 and offset < physical_offset):
            return -1
        return found

    @cython.cfunc
    @cython.exceptval(check=False)
    def _take(self, physical_offset: cython.longlong, found: cython.int) -> cython.int:
        """Move past the entries that `_matches` has found; returns how many of them were not entered yet."""
        buf: cython.p_uchar
        if cython.compiled:
            buf = cython.cast(cython.p_uchar, cython.address(self._view[0]))
        else:
            buf = self._view
        slot: cython.longlong
        i: cython.int
        entered: cython.int = 1 if self.is_entered else 0
        for i in range(found):
            if i or not self.is_entered:
                slot = i32(buf, self._base + 20 * self.number) % self._slots
                if self._newest[slot] == 0:
                    self.slots_used += 1
                self._newest[slot] = self.number
            self.number += 1
        if found:
            self.is_entered = False
            self.last_offset = physical_offset
            return found - entered
        return 0


@cython.cclass
class Confirmation:
    """Confirms records whose units and index entries are as they should be.

    Args:
        delay_levels_ms: how long messages of level 1, 2, … wait.

    Attributes:
        topics: what it may confirm records of, by the name's UTF-8 bytes. A topic that is not here is left to others.
        cursor: where the index goes on; None: it has ended, or there is none.
        units, entries: queue units and index entries confirmed.
        confirmed_end: physical offset behind the last record whose unit was confirmed.
        with_keys, last_with_keys: records confirmed that have keys, and the physical offset of the last; -1: none.
    """

    topics = cython.declare(dict, visibility="public")  # type: dict[bytes, CheckedTopic]
    cursor = cython.declare(IndexCursor, visibility="public")  # type: IndexCursor | None
    units = cython.declare(cython.longlong, visibility="readonly")
    entries = cython.declare(cython.longlong, visibility="readonly")
    confirmed_end = cython.declare(cython.longlong, visibility="readonly")
    with_keys = cython.declare(cython.longlong, visibility="readonly")
    last_with_keys = cython.declare(cython.longlong, visibility="readonly")
    _delays = cython.declare(tuple)
    _name = cython.declare(bytes)
    _topic = cython.declare(CheckedTopic)
    _hashes = cython.declare(cython.longlong[64])
    _expected = cython.declare(cython.int)
    _tag_hash = cython.declare(cython.longlong)
    _tags_code = cython.declare(cython.longlong)

    def __init__(
        self,
        delay_levels_ms,  # type: tuple[int, ...]
    ):
        self.topics = {}
        self.cursor = None
        self.units = 0
        self.entries = 0
        self.confirmed_end = 0
        self.with_keys = 0
        self.last_with_keys = -1
        self._delays = delay_levels_ms
        self._name = b""
        self._topic = None
        if not cython.compiled:
            self._hashes = [0] * _KEYS_MOST

    def forget(
        self,
        names,  # type: Iterable[bytes]
    ):
        # type: (...) -> None
        """Remove the topics of these names from `topics`, because they were deleted."""
        for name in names:
            self.topics.pop(name, None)
        self._name = b""
        self._topic = None

    def run(
        self,
        view: cython.const[cython.uchar][::1],  # type: memoryview
        rows: cython.longlong[::1],  # type: array[int]
        start: cython.Py_ssize_t,
        count: cython.Py_ssize_t,
        unindexed: cython.bint,
    ):
        # type: (...) -> int
        """Confirm rows of record_cy.scan from number `start` on, below `count`.

        Args:
            view: what was scanned.
            unindexed: without a cursor, records with keys pass as well.

        Returns:
            How many were confirmed; the next one, if there is one, is left to others.
        """
        buf: cython.p_uchar
        row: cython.p_longlong
        number: cython.Py_ssize_t
        if len(view) == 0 or start >= count:
            return 0
        if cython.compiled:
            buf = cython.cast(cython.p_uchar, cython.address(view[0]))
        else:
            buf = view
        for number in range(start, count):
            if cython.compiled:
                row = cython.address(rows[0]) + number * 20
            else:
                row = memoryview(rows)[number * 20 : number * 20 + 20]
            if not self._one(buf, row, unindexed):
                return number - start
        return count - start

    @cython.cfunc
    @cython.exceptval(-1, check=True)
    def _one(self, buf: cython.p_uchar, row: cython.p_longlong, unindexed: cython.bint) -> cython.int:
        """Return 1 if the record of this row is right, and count its entries as found."""
        physical_offset: cython.longlong = row[2]
        sys_flag: cython.longlong = row[5]
        kind: cython.longlong = sys_flag & layout.TRANSACTION_MASK
        found: cython.int = 0
        queue: ConfirmedUnits = None
        if kind == layout.TRANSACTION_ROLLBACK or sys_flag & layout.INNER_BATCH:  # it is no message, or an inner batch
            return 0
        topic: CheckedTopic = self._topic_of(buf, row[14], row[15])
        if topic is None or physical_offset < topic._deleted_at:
            return 0
        if not self._properties(buf, row[16], row[16] + row[17], topic, row[8]):
            return 0
        if kind != layout.TRANSACTION_PREPARED:
            queue = topic._queues.get(row[3])
            if queue is None or row[4] < queue.first_index or row[4] > _UNITS_MOST:  # no CRC covers a queue offset
                return 0
            if not queue._window._holds(row[4] * 20, physical_offset, row[1], self._tags_code):
                return 0
        if self.cursor is not None:
            found = self.cursor._matches(physical_offset, row[8], self._hashes, self._expected, self._tag_hash)
            if found < 0:
                return 0
            self.entries += self.cursor._take(physical_offset, found)
        elif self._expected and not unindexed:
            return 0
        if self._expected:
            self.with_keys += 1
            self.last_with_keys = physical_offset
        if kind != layout.TRANSACTION_PREPARED:
            queue._add(row[4], physical_offset)
            self.units += 1
            self.confirmed_end = max(self.confirmed_end, physical_offset + row[1])
        return 1

    @cython.cfunc
    def _topic_of(self, buf: cython.p_uchar, p: cython.Py_ssize_t, n: cython.Py_ssize_t) -> CheckedTopic:
        if not same_bytes(buf, p, n, self._name) or n == 0:
            self._name = take_bytes(buf, p, n)
            self._topic = self.topics.get(self._name)
            if self._topic is None:
                self._name = b""
        return self._topic

    @cython.cfunc
    @cython.exceptval(-1, check=True)
    def _properties(
        self,
        buf: cython.p_uchar,
        p: cython.Py_ssize_t,
        end: cython.Py_ssize_t,
        topic: CheckedTopic,
        store_timestamp: cython.longlong,
    ) -> cython.int:
        """Derive the record's expected unit and index entries; returns 0 if the properties are unusual."""
        mid: cython.Py_ssize_t
        value_end: cython.Py_ssize_t
        n: cython.Py_ssize_t
        tags: cython.Py_ssize_t = 0
        tags_end: cython.Py_ssize_t = 0
        keys: cython.Py_ssize_t = 0
        keys_end: cython.Py_ssize_t = 0
        unique: cython.Py_ssize_t = 0
        unique_end: cython.Py_ssize_t = 0
        level: cython.longlong = 0
        self._expected = 0
        self._tag_hash = -1
        self._tags_code = 0
        while p < end:
            value_end = find_byte(buf, p, end, 2)
            mid = find_byte(buf, p, value_end, 1)
            if mid == p or value_end - mid < 2 or find_byte(buf, mid + 1, value_end, 1) != value_end:
                return 0
            n = mid - p
            if n == 4 and same_bytes(buf, p, n, b"TAGS"):
                tags = mid + 1
                tags_end = value_end
            elif n == 4 and same_bytes(buf, p, n, b"KEYS"):
                keys = mid + 1
                keys_end = value_end
            elif n == 8 and same_bytes(buf, p, n, b"UNIQ_KEY"):
                unique = mid + 1
                unique_end = value_end
            elif n == 5 and topic._waits and same_bytes(buf, p, n, b"DELAY"):
                level = digits(buf, mid + 1, value_end)
                if level < 0:
                    return 0
            elif n == 20 and same_bytes(buf, p, n, b"INNER_MULTI_DISPATCH"):
                return 0
            p = value_end + 1
        h: cython.longlong
        if tags:
            h = self._hash(buf, tags, tags_end, 0)
            if h < 0:
                return 0
            self._tags_code = self._signed(h)
            # topic#T#tag: "T" and "#" join the topic's hash
            self._tag_hash = self._positive(self._hash(buf, tags, tags_end, 31 * (31 * topic._key_hash + 0x54) + 0x23))
        if level > 0 and self._delays:
            self._tags_code = store_timestamp + self._delays[min(level, len(self._delays)) - 1]
        if unique:
            h = self._hash(buf, unique, unique_end, topic._key_hash)
            if h < 0:
                return 0
            self._expect(h)
        p = keys
        while p < keys_end:
            mid = p
            while mid < keys_end and buf[mid] != 0x20:
                mid += 1
            if mid > p:
                h = self._hash(buf, p, mid, topic._key_hash)
                if h < 0 or self._expected == _KEYS_MOST:
                    return 0
                self._expect(h)
            p = mid + 1
        return 1

    @cython.cfunc
    @cython.exceptval(check=False)
    def _expect(self, h: cython.longlong) -> cython.int:
        """Expect one more index entry, unless one with this hash is expected already."""
        value: cython.longlong = self._positive(h)
        i: cython.int
        for i in range(self._expected):
            if self._hashes[i] == value:
                return 0
        self._hashes[self._expected] = value
        self._expected += 1
        return 0

    @cython.cfunc
    @cython.exceptval(check=False)
    def _hash(
        self, buf: cython.p_uchar, p: cython.Py_ssize_t, end: cython.Py_ssize_t, start: cython.uint
    ) -> cython.longlong:
        """Continue Java's String.hashCode from `start` over text in UTF-8; returns 0 to 2^32 - 1, or -1 if it is not
        UTF-8."""
        h: cython.uint = start
        code: cython.int
        while p < end:
            code = buf[p]
            if code < 0x80:
                p += 1
            else:
                code = self._code(buf, p, end)
                if code < 0:
                    return -1
                p += 2 if code < 0x800 else 3 if code < 0x10000 else 4
                if code >= 0x10000:  # two UTF-16 units
                    code -= 0x10000
                    h = (31 * h + (0xD800 | (code >> 10))) & 0xFFFFFFFF
                    code = 0xDC00 | (code & 0x3FF)
            h = (31 * h + code) & 0xFFFFFFFF
        return h

    @cython.cfunc
    @cython.exceptval(check=False)
    def _code(self, buf: cython.p_uchar, p: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.int:
        """Return the code point of the two to four bytes at p; -1 if they are not UTF-8."""
        first: cython.int = buf[p]
        more: cython.int = 1 if first < 0xE0 else 2 if first < 0xF0 else 3
        code: cython.int = first & (0x3F >> more)
        i: cython.int
        if first < 0xC2 or first > 0xF4 or p + more >= end:
            return -1
        for i in range(1, more + 1):
            if buf[p + i] & 0xC0 != 0x80:
                return -1
            code = code << 6 | (buf[p + i] & 0x3F)
        if more == 2 and (code < 0x800 or 0xD800 <= code < 0xE000):
            return -1
        if more == 3 and (code < 0x10000 or code > 0x10FFFF):
            return -1
        return code

    @cython.cfunc
    @cython.exceptval(check=False)
    def _signed(self, h: cython.longlong) -> cython.longlong:
        return h - 0x100000000 if h >= 0x80000000 else h

    @cython.cfunc
    @cython.exceptval(check=False)
    def _positive(self, h: cython.longlong) -> cython.longlong:
        """Make a hash non-negative (IndexFile.indexKeyHashMethod)."""
        value: cython.longlong = self._signed(h)
        if value < 0:
            value = 0 if value == -2147483648 else -value
        return value


def is_compiled() -> bool:
    """Returns whether this module runs compiled by Cython."""
    return cython.compiled
