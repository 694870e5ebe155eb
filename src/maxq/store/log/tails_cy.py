"""Writing ends of the files that dispatch fills: of a ConsumeQueue (`QueueTail`), of the newest IndexFile
(`IndexTail`), and what append and dispatch know of a topic (`TopicWriteState`, found by `TopicMemory`).

Files are attached and rolled by their owners in Python: nothing here opens, sizes or deletes one. The attributes are
declared in tails_cy.pxd, so that append and dispatch reach them in C. Formats: ConsumeQueue.java (unit),
IndexFile.java (index).
"""

try:
    import cython
except ModuleNotFoundError:
    from maxq.runtime import cython  # type: ignore[no-redef]

if cython.compiled:
    from cython.cimports.libc.string import memcmp
    from cython.cimports.maxq.runtime.buffers import i32, i64, put32, put64, take_bytes
else:
    from maxq.runtime.buffers import i32, i64, put32, put64, take_bytes


def jhash(text: str) -> int:
    """Java's String.hashCode, signed 32 bits."""
    h: cython.uint = 0
    units: bytes = text.encode("utf-16-be", "surrogatepass")
    i: cython.Py_ssize_t
    n: cython.Py_ssize_t = len(units)
    value: cython.uint
    for i in range(0, n, 2):
        value = (units[i] << 8) | units[i + 1]
        h = (31 * h + value) & 0xFFFFFFFF
    return h - 0x100000000 if h >= 0x80000000 else h


@cython.cclass
class QueueTail:
    """The writing end of one ConsumeQueue, and the counter that assigns its queue offsets.

    Owned by `ConsumeQueue` (store/queue/consume_queue.py), which attaches a file and rolls when `append` says that the
    file is full.
    """

    def __init__(
        self,
        topic,  # type: str
        queue_id,  # type: int
        owner,  # type: Any
    ):
        self.topic = topic
        self.queue_id = queue_id
        self.owner = owner
        self.next_queue_offset = 0
        self.max_physical_offset = -1
        self.write_offset = 0
        self.watched = False
        self._view = None
        self._file_from = 0
        self._file_size = 0

    def attach(
        self,
        view,  # type: memoryview | None
        file_from_offset,  # type: int
        position,  # type: int
    ):
        # type: (...) -> None
        """Write from byte `position` of the file whose logical start is `file_from_offset` bytes; None detaches."""
        self._view = view
        self._file_from = file_from_offset
        self._file_size = 0 if view is None else len(view)
        if view is not None:
            if cython.compiled:
                self._buf = cython.address(self._view[0])
            else:
                self._buf = view
            self.write_offset = file_from_offset + position

    @cython.ccall
    def append(self, physical_offset: cython.longlong, size: cython.int, tags_code: cython.longlong) -> cython.bint:
        """Write one unit at `write_offset`. False: no file or the file is full; attach the next one and call again."""
        p: cython.longlong = self.write_offset - self._file_from
        if p < 0 or p + 20 > self._file_size:
            return False
        put64(self._buf, p, physical_offset)
        put32(self._buf, p + 8, size)
        put64(self._buf, p + 12, tags_code)
        self.write_offset += 20
        self.max_physical_offset = physical_offset + size
        return True


@cython.cclass
class TopicWriteState:
    """The state of a topic for append and dispatch."""

    def __init__(
        self,
        topic,  # type: str
    ):
        self.topic = topic
        self.topic_bytes = topic.encode()
        self.is_fast_path_open = False
        self.is_static = False
        self.has_dispatch_hook = False
        self.has_batch_queues = False
        self.max_queue_id = -1
        self.write_queue_nums = 0
        self.multi_tags = False
        self.is_delay_topic = False
        self.put_nums = 0
        self.put_bytes = 0
        self.queues = {}
        self.key_hash = jhash(topic + "#") & 0xFFFFFFFF

    def set_queue(
        self,
        queue_id: cython.Py_ssize_t,
        tail,  # type: QueueTail | None
    ):
        # type: (...) -> None
        """Set the tail of a queue; None removes it."""
        if tail is None:
            self.queues.pop(queue_id, None)
        else:
            self.queues[queue_id] = tail


@cython.cclass
class TopicMemory:
    """Finds a topic by the bytes of its name; the next record is most often of the same topic as the last one."""

    def __init__(self):
        self._last = None

    @cython.cfunc
    def find(self, topics: dict, buf: cython.p_uchar, p: cython.Py_ssize_t, n: cython.Py_ssize_t) -> TopicWriteState:
        """Returns the topic that buf[p : p + n] names; None if `topics` has none of that name."""
        topic: TopicWriteState = self._last
        if cython.compiled:
            if (
                topic is not None
                and len(topic.topic_bytes) == n
                and memcmp(cython.cast(cython.p_char, topic.topic_bytes), buf + p, n) == 0
            ):
                return topic
        topic = topics.get(take_bytes(buf, p, n))
        self._last = topic
        return topic

    @cython.ccall
    def forget(self) -> cython.void:
        """Forget the topic found last, because it was replaced or removed."""
        self._last = None


@cython.cclass
class IndexTail:
    """The writing end of the newest IndexFile: 40-byte header, slots of 4, entries of 20 (IndexFile.java)."""

    def __init__(self):
        self._max_index_nums = 0
        self.index_count = 1
        self.begin_timestamp = self.end_timestamp = self.begin_physical_offset = self.end_physical_offset = 0

    def attach(
        self,
        view,  # type: memoryview | None
        slot_nums,  # type: int
        max_index_nums,  # type: int
    ):
        # type: (...) -> None
        """Continue on this file: header fields are read from it (indexCount 0 reads as 1)."""
        self._view = view
        self._slot_nums = slot_nums
        self._max_index_nums = 0 if view is None else max_index_nums
        if view is None:
            return
        if cython.compiled:
            self._buf = cython.address(self._view[0])
        else:
            self._buf = view
        self.begin_timestamp = i64(self._buf, 0)
        self.end_timestamp = i64(self._buf, 8)
        self.begin_physical_offset = i64(self._buf, 16)
        self.end_physical_offset = i64(self._buf, 24)
        self._hash_slot_count = i32(self._buf, 32)
        self.index_count = i32(self._buf, 36)
        if self.index_count <= 0:
            self.index_count = 1
            put32(self._buf, 36, 1)

    def is_full(self) -> bool:
        return self.index_count >= self._max_index_nums

    @cython.ccall
    def put_key(
        self, key_hash: cython.longlong, physical_offset: cython.longlong, store_timestamp: cython.longlong
    ) -> cython.bint:
        """IndexFile.putKey. False when full or detached."""
        if self.index_count >= self._max_index_nums:
            return False
        slot_position: cython.longlong = 40 + 4 * (key_hash % self._slot_nums)
        buf: cython.p_uchar = self._buf
        previous: cython.int = i32(buf, slot_position)
        if previous <= 0 or previous > self.index_count:
            previous = 0
        seconds: cython.longlong = 0
        if self.begin_timestamp > 0:
            seconds = store_timestamp - self.begin_timestamp
            # Java's division truncates; negative differences count as 0 anyway
            seconds = 0 if seconds < 0 else seconds // 1000
            if seconds > 0x7FFFFFFF:
                seconds = 0x7FFFFFFF
        p: cython.longlong = (
            40 + 4 * cython.cast(cython.longlong, self._slot_nums) + 20 * cython.cast(cython.longlong, self.index_count)
        )
        put32(buf, p, key_hash)
        put64(buf, p + 4, physical_offset)
        put32(buf, p + 12, seconds)
        put32(buf, p + 16, previous)
        put32(buf, slot_position, self.index_count)
        if self.index_count <= 1:
            self.begin_physical_offset = physical_offset
            self.begin_timestamp = store_timestamp
            put64(buf, 0, store_timestamp)
            put64(buf, 16, physical_offset)
        if previous == 0:
            self._hash_slot_count += 1
            put32(buf, 32, self._hash_slot_count)
        self.index_count += 1
        self.end_physical_offset = physical_offset
        self.end_timestamp = store_timestamp
        put64(buf, 8, store_timestamp)
        put64(buf, 24, physical_offset)
        put32(buf, 36, self.index_count)
        return True

    def put_collected(
        self,
        entries: cython.const[cython.uchar][::1],  # type: memoryview | bytes | bytearray
        first: cython.Py_ssize_t,
        end: cython.Py_ssize_t,
    ) -> int:
        """Put entries [first, end) of an IndexCollector. Returns how many went in before the file was full."""
        number: cython.Py_ssize_t
        buf: cython.p_uchar
        if first < 0 or end > len(entries) // 20:
            raise ValueError(f"entries [{first}, {end}) are outside the {len(entries) // 20} that are there")
        if first >= end:
            return 0
        if cython.compiled:
            buf = cython.cast(cython.p_uchar, cython.address(entries[0]))
        else:
            buf = memoryview(entries)
        for number in range(first, end):
            if not self.put_key(i32(buf, 20 * number), i64(buf, 20 * number + 4), i64(buf, 20 * number + 12)):
                return number - first
        return end - first


@cython.cclass
class IndexCollector(IndexTail):
    """Stands in for an IndexFile that is made later: a Dispatcher's index entries, in their order, as
    n × 20 bytes, big-endian: i32 key hash, i64 physical offset, i64 store timestamp.
    """

    def __init__(self):
        IndexTail.__init__(self)
        self.count = 0
        self._room = 0
        self._entries = None

    def collect_into(
        self,
        view,  # type: memoryview
    ):
        # type: (...) -> None
        """Go on at the beginning of `view`, of which `put_key` returns False when it is full."""
        self._entries = view
        self.count = 0
        self._room = len(view) // 20
        if cython.compiled:
            self._collected = cython.address(self._entries[0])
        else:
            self._collected = view

    @cython.ccall
    def put_key(
        self, key_hash: cython.longlong, physical_offset: cython.longlong, store_timestamp: cython.longlong
    ) -> cython.bint:
        p: cython.Py_ssize_t = 20 * self.count
        if self.count >= self._room:
            return False
        put32(self._collected, p, key_hash)
        put64(self._collected, p + 4, physical_offset)
        put64(self._collected, p + 12, store_timestamp)
        self.count += 1
        return True
