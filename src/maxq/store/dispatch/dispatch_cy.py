"""Dispatch from the CommitLog: a range of log → the ConsumeQueue units and index entries that it lacks.

Normal run, SYNC_FLUSH, slave and recovery differ only in the range they give. The duplicate tests
(`max_physical_offset` of a queue, `end_physical_offset` of an index) make dispatch idempotent. Formats: record_cy.py
(record), ConsumeQueue.java (unit), IndexFile.java (index).
"""

try:
    import cython
except ModuleNotFoundError:
    from maxq.runtime import cython  # type: ignore[no-redef]

if cython.compiled:
    from cython.cimports.maxq.protocol.message import record_layout as layout
    from cython.cimports.maxq.runtime.buffers import digits, find_byte, i32, i64, same_bytes, take_bytes, u32
    from cython.cimports.maxq.store.log.tails_cy import IndexTail, QueueTail, TopicMemory, TopicWriteState
else:
    from maxq.protocol.message import record_layout as layout
    from maxq.runtime.buffers import digits, find_byte, i32, i64, same_bytes, take_bytes, u32
    from maxq.store.log.tails_cy import IndexTail, QueueTail, TopicMemory, TopicWriteState

_MOST_UNITS = cython.declare(cython.longlong, 1 << 58)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _hash(buf: cython.p_uchar, p: cython.Py_ssize_t, end: cython.Py_ssize_t, h: cython.uint) -> cython.uint:
    """Continue Java's String.hashCode over UTF-8 bytes: 31*h + each UTF-16 code unit."""
    c: cython.uint
    low: cython.uint
    high: cython.uint
    more: cython.int
    if not cython.compiled:
        units = bytes(buf[p:end]).decode("utf-8", "replace").encode("utf-16-be", "surrogatepass")
        for i in range(0, len(units), 2):
            h = (31 * h + (units[i] << 8 | units[i + 1])) & 0xFFFFFFFF
        return h
    while p < end:
        if end - p >= 4 and not (buf[p] | buf[p + 1] | buf[p + 2] | buf[p + 3]) & 0x80:
            h = 923521 * h + 29791 * buf[p] + 961 * buf[p + 1] + 31 * buf[p + 2] + buf[p + 3]
            p += 4
            continue
        c = buf[p]
        p += 1
        if c >= 0x80:
            # invalid UTF-8 counts as U+FFFD, once for a truncated sequence
            low, high = 0x80, 0xBF
            if c < 0xC2 or c > 0xF4:
                more, c = 0, 0xFFFD
            elif c < 0xE0:
                more, c = 1, c & 0x1F
            elif c < 0xF0:
                low, high = 0xA0 if c == 0xE0 else 0x80, 0x9F if c == 0xED else 0xBF
                more, c = 2, c & 0x0F
            else:
                low, high = 0x90 if c == 0xF0 else 0x80, 0x8F if c == 0xF4 else 0xBF
                more, c = 3, c & 0x07
            while more:
                if p == end or buf[p] < low or buf[p] > high:
                    c = 0xFFFD
                    break
                c = (c << 6) | (buf[p] & 0x3F)
                p += 1
                more -= 1
                low, high = 0x80, 0xBF
            if c >= 0x10000:
                c -= 0x10000
                h = 31 * h + (0xD800 | (c >> 10))
                c = 0xDC00 | (c & 0x3FF)
        h = 31 * h + c
    return h


@cython.cclass
class Dispatcher:
    """Log range → ConsumeQueue units and index entries."""

    dispatched_offset = cython.declare(cython.longlong, visibility="public")  # everything below has been dispatched
    last_store_timestamp = cython.declare(cython.longlong, visibility="public")  # of the last record dispatched
    records = cython.declare(cython.longlong, visibility="public")  # dispatched since start
    # tails with `watched` that got units since the list was last cleared
    arrived = cython.declare(list, visibility="public")  # type: list[QueueTail]
    delay_table = cython.declare(list, visibility="public")  # type: list[int]  # milliseconds of delay level 1, 2, …
    index_tags = cython.declare(cython.bint, visibility="public")  # also write topic#T#TAGS index entries, as 5.5 does
    # files that begin at or behind this physical offset hold DLedger entries with a record in each
    entries_from = cython.declare(cython.longlong, visibility="public")
    _topics = cython.declare(dict)
    _index = cython.declare(IndexTail)
    _owner = cython.declare(object)
    _topic_memory = cython.declare(TopicMemory)

    def __init__(
        self,
        topics,  # type: dict[bytes, TopicWriteState]
        index,  # type: IndexTail | None
        owner,  # type: Any
    ):
        """`owner` is called for what C does not do (all take plain ints and bytes):
        owner.open_queue(topic: bytes, queue_id: int) -> QueueTail   # missing topic or queue
        owner.roll_queue(tail: QueueTail, queue_offset: int, physical_offset: int, size: int) -> bool
            # the unit does not go to tail's file, or its offset is not the queue's next: attach the right file, fill a
            # gap; False if the record is not to get a unit
        owner.roll_index(physical_offset: int, store_timestamp: int) -> None   # attach the next IndexFile
        owner.dispatch_uncommon(position: int, size: int, physical_offset: int, view: memoryview) -> None
            # after the normal handling of a record with INNER_MULTI_DISPATCH, with the inner-batch bit (whose unit is
            # NOT written here), of a rollback record, or of a hooked topic. `view` is the whole file.
        """
        self._topics = topics
        self._index = index
        self._owner = owner
        self.dispatched_offset = 0
        self.last_store_timestamp = 0
        self.records = 0
        self.arrived = []
        self.delay_table = []
        self.index_tags = False
        self.entries_from = 1 << 62
        self._topic_memory = TopicMemory()

    def forget_topic(self):
        # type: (...) -> None
        self._topic_memory.forget()

    @cython.cfunc
    def _topic_of(self, buf: cython.p_uchar, p: cython.Py_ssize_t, n: cython.Py_ssize_t) -> TopicWriteState:
        topic: TopicWriteState = self._topic_memory.find(self._topics, buf, p, n)
        if topic is None:
            name: bytes = take_bytes(buf, p, n)
            self._owner.open_queue(name, 0)
            topic = self._topics[name]
        return topic

    def run(
        self,
        view: cython.const[cython.uchar][::1],  # type: memoryview
        start: cython.Py_ssize_t,
        end: cython.Py_ssize_t,
        file_from_offset: cython.longlong,
    ):
        # type: (...) -> int
        """Dispatch the whole records in view[start:end]; trusted bytes (CRC not checked, sizes are). Returns the
        position after the last record dispatched (a BLANK ends at the end of the file); stops early at anything that
        is not a record. Units and entries that exist already are skipped (duplicate tests); a unit that would leave a
        gap goes through owner.roll_queue, which fills the gap and leaves write_offset at 20 × queue_offset."""
        p: cython.Py_ssize_t = start
        size: cython.longlong
        buf: cython.p_uchar
        if start < 0 or end > len(view):
            raise ValueError(f"range [{start}, {end}) is outside the file of {len(view)} bytes")
        if start >= end:
            return start
        whole: object = memoryview(view)
        if cython.compiled:
            buf = cython.cast(cython.p_uchar, cython.address(view[0]))
        else:
            buf = whole
        holds_entries: cython.bint = file_from_offset >= self.entries_from
        while end - p >= 8:
            if holds_entries:
                size = self._entry(whole, buf, p, end, file_from_offset)
            else:
                size = self._one(whole, buf, p, end, file_from_offset)
            if size <= 0:
                if size == -1:  # BLANK: the rest of the file is unused
                    p = len(view)
                break
            p += size
        self.dispatched_offset = file_from_offset + p
        return p

    @cython.cfunc
    @cython.exceptval(-2, check=True)
    def _entry(
        self,
        whole: object,
        buf: cython.p_uchar,
        p: cython.Py_ssize_t,
        end: cython.Py_ssize_t,
        file_from_offset: cython.longlong,
    ) -> cython.longlong:
        """Dispatch the record in the DLedger entry at p; a body that is not a record is skipped. Returns the entry's
        size, 0 if there is no complete one, -1 for filler."""
        magic: cython.int = i32(buf, p)
        size: cython.longlong = i32(buf, p + 4)
        if magic == -1:
            return -1
        if magic != 1 or size < 48 or size > end - p:
            return 0
        self._one(whole, buf, p + 48, p + size, file_from_offset)
        return size

    @cython.cfunc
    @cython.exceptval(-2, check=True)
    def _one(
        self,
        whole: object,
        buf: cython.p_uchar,
        p: cython.Py_ssize_t,
        end: cython.Py_ssize_t,
        file_from_offset: cython.longlong,
    ) -> cython.longlong:
        """Dispatch the record at p. Returns the record's size; 0 if no complete record starts at p; -1 for a BLANK
        record."""
        total: cython.longlong = i32(buf, p)
        magic: cython.uint = u32(buf, p + layout.MAGIC)
        if magic == layout.MAGIC_BLANK:
            return -1
        v2: cython.bint = magic == layout.MAGIC_V2
        if (magic != layout.MAGIC_V1 and not v2) or total < layout.MIN_RECORD_SIZE or total > end - p:
            return 0
        sys_flag: cython.int = i32(buf, p + layout.SYS_FLAG)
        limit: cython.longlong = p + total
        q: cython.longlong = p + layout.body_size_at(sys_flag)
        if q + 4 > limit:
            return 0
        body_size: cython.longlong = i32(buf, q)
        q += 4 + body_size
        if body_size < 0 or q + 3 > limit:
            return 0
        topic_size: cython.longlong = buf[q]
        q += 1
        if v2:
            topic_size = (topic_size << 8) | buf[q]
            q += 1
        properties: cython.longlong = q + topic_size + 2
        if properties > limit:
            return 0
        properties_size: cython.longlong = (cython.cast(cython.longlong, buf[properties - 2]) << 8) | buf[
            properties - 1
        ]
        if properties + properties_size != limit:
            return 0
        topic: TopicWriteState = self._topic_of(buf, q, topic_size)
        physical_offset: cython.longlong = file_from_offset + p
        store_timestamp: cython.longlong = i64(buf, p + layout.store_timestamp_at(sys_flag))
        transaction: cython.int = sys_flag & layout.TRANSACTION_MASK
        index: IndexTail = self._index
        rolled_back: cython.bint = transaction == layout.TRANSACTION_ROLLBACK
        indexed: cython.bint = index is not None and not rolled_back and physical_offset >= index.end_physical_offset
        tags_code: cython.longlong = 0
        delay: cython.longlong = 0
        is_of_batch: cython.bint = topic.has_batch_queues or (sys_flag & layout.INNER_BATCH) != 0
        special: cython.bint = topic.has_dispatch_hook or is_of_batch or rolled_back
        keys: cython.longlong = 0
        keys_end: cython.longlong = 0
        tags: cython.longlong = 0
        tags_end: cython.longlong = 0
        unique: cython.longlong = 0
        unique_end: cython.longlong = 0
        name: cython.longlong = properties
        mid: cython.longlong
        value_end: cython.longlong
        n: cython.longlong
        while name < limit:  # name 0x01 value 0x02, the last 0x02 may be missing
            value_end = find_byte(buf, name, limit, 2)
            mid = find_byte(buf, name, value_end, 1)
            n = mid - name
            if mid < value_end and n > 0 and value_end - mid > 1:
                if (
                    n == 4
                    and buf[name] == 0x54
                    and buf[name + 1] == 0x41
                    and buf[name + 2] == 0x47
                    and buf[name + 3] == 0x53
                ):
                    tags = mid + 1
                    tags_end = value_end
                elif (
                    n == 4
                    and buf[name] == 0x4B
                    and buf[name + 1] == 0x45
                    and buf[name + 2] == 0x59
                    and buf[name + 3] == 0x53
                ):
                    keys = mid + 1
                    keys_end = value_end
                elif n == 8 and buf[name] == 0x55 and buf[name + 1] == 0x4E and same_bytes(buf, name, n, b"UNIQ_KEY"):
                    unique = mid + 1
                    unique_end = value_end
                elif n == 5 and buf[name] == 0x44 and topic.is_delay_topic and same_bytes(buf, name, n, b"DELAY"):
                    delay = digits(buf, mid + 1, value_end)
                elif n == 20 and buf[name] == 0x49 and same_bytes(buf, name, n, b"INNER_MULTI_DISPATCH"):
                    special = True
            name = value_end + 1
        if tags:
            tags_code = self._signed(_hash(buf, tags, tags_end, 0))
        if delay > 0:
            tags_code = store_timestamp + self._delay_ms(delay)
        if transaction == 0 or transaction == layout.TRANSACTION_COMMIT:
            if not is_of_batch:
                queue_offset: cython.longlong = i64(buf, p + layout.QUEUE_OFFSET)
                self._put_unit(topic, i32(buf, p + layout.QUEUE_ID), queue_offset, physical_offset, total, tags_code)
        if indexed:
            if unique:
                self._put_index(index, _hash(buf, unique, unique_end, topic.key_hash), physical_offset, store_timestamp)
            if keys:
                name = keys
                while name < keys_end:
                    mid = find_byte(buf, name, keys_end, 0x20)
                    if mid > name:
                        self._put_index(index, _hash(buf, name, mid, topic.key_hash), physical_offset, store_timestamp)
                    name = mid + 1
            if tags and self.index_tags:
                # topic#T#tag, as 5.5 writes it: 'T' and '#' join the topic's hash
                self._put_index(
                    index,
                    _hash(buf, tags, tags_end, 31 * (31 * topic.key_hash + 0x54) + 0x23),
                    physical_offset,
                    store_timestamp,
                )
        if special:
            self._owner.dispatch_uncommon(p, total, physical_offset, whole)
        self.last_store_timestamp = store_timestamp
        self.records += 1
        return total

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def _signed(self, h: cython.uint) -> cython.longlong:
        if cython.compiled:
            return cython.cast(cython.int, h)
        return h - 0x100000000 if h >= 0x80000000 else h

    @cython.cfunc
    @cython.exceptval(-1, check=True)
    def _delay_ms(self, level: cython.longlong) -> cython.longlong:
        if not self.delay_table:
            return 1000
        return self.delay_table[min(level, len(self.delay_table)) - 1]

    @cython.cfunc
    @cython.exceptval(-1, check=True)
    def _put_unit(
        self,
        topic: TopicWriteState,
        queue_id: cython.int,
        queue_offset: cython.longlong,
        physical_offset: cython.longlong,
        size: cython.longlong,
        tags_code: cython.longlong,
    ) -> cython.int:
        queue: QueueTail = topic.queues.get(queue_id)
        if queue is None:
            queue = self._owner.open_queue(topic.topic_bytes, queue_id)
        if physical_offset + size <= queue.max_physical_offset:
            return 0
        # a damaged high bit must not wrap around to a valid place
        believable: cython.bint = 0 <= queue_offset <= _MOST_UNITS and queue_offset * 20 == queue.write_offset
        if not believable or not queue.append(physical_offset, cython.cast(cython.int, size), tags_code):
            if not self._owner.roll_queue(queue, queue_offset, physical_offset, size):
                return 0
            if not queue.append(physical_offset, cython.cast(cython.int, size), tags_code):
                raise AssertionError(f"{queue.topic}-{queue_id}: no room for unit {queue_offset} after a roll")
        if queue.watched:
            queue.watched = False
            self.arrived.append(queue)
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=True)
    def _put_index(
        self, index: IndexTail, h: cython.uint, physical_offset: cython.longlong, store_timestamp: cython.longlong
    ) -> cython.int:
        key_hash: cython.longlong = self._signed(h)
        if key_hash < 0:
            key_hash = 0 if key_hash == -2147483648 else -key_hash
        if not index.put_key(key_hash, physical_offset, store_timestamp):
            self._owner.roll_index(physical_offset, store_timestamp)
            index.put_key(key_hash, physical_offset, store_timestamp)
        return 0
