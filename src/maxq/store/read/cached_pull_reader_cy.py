"""Pulls of what is in memory, for whoever asks often: no object a message, none a range.

It takes what `MessageStore.get_message` would give, where nothing is unusual: a queue of units without extension, a
filter by tags or none, records of one mapped file of the log that are in memory. Which units are taken says
unit_scan_cy. Where topics share a log, the records of one queue are islands: 32 of them in an answer are 32 places in
the file here, and one system call sends them (remoting/socket_io_cy).
"""

from array import array
from typing import TYPE_CHECKING

try:
    import cython
except ModuleNotFoundError:
    from maxq.runtime import cython  # type: ignore[no-redef]

if cython.compiled:
    from cython.cimports.maxq.store.log.record_cy import check_chain
    from cython.cimports.maxq.store.queue.unit_scan_cy import UnitScan
else:
    from maxq.store.log.record_cy import check_chain
    from maxq.store.queue.unit_scan_cy import UnitScan

if TYPE_CHECKING:
    from collections.abc import Container

    from maxq.store.context.store_context import StoreContext
    from maxq.store.files.page_cache_probe import PageCacheProbe
    from maxq.store.log.commit_log import CommitLog
    from maxq.store.queue.consume_queue_store import ConsumeQueueStore


# most pieces of one write: writev takes 1024, one of them for the answer's header
_MOST_PIECES = cython.declare(cython.Py_ssize_t, 1000)
_MOST_BYTES = cython.declare(cython.longlong, 128 << 20)
_AT_END = cython.declare(cython.longlong, 16384)  # bytes at the end of a queue that are surely in memory
_LEAST_BYTES = cython.declare(cython.longlong, 100)


@cython.cclass
class CachedPullReader(UnitScan):
    """One per store. The result is in its attributes until the next `read`."""

    def __init__(
        self,
        context,  # type: StoreContext
        commit_log,  # type: CommitLog
        queues,  # type: ConsumeQueueStore
        compacted,  # type: Container[str]
        page_cache,  # type: PageCacheProbe
        memory_bytes,  # type: int
    ):
        """
        Args:
            compacted: names of topics that are read elsewhere.
            page_cache: knows which older parts of the log are in memory.
            memory_bytes: see MessageReader.
        """
        UnitScan.__init__(self)
        self._context = context
        self._log = commit_log
        self._queues = queues
        self._compacted = compacted
        self._page_cache = page_cache
        self._memory_bytes = memory_bytes
        self._config = None
        self.places = array("q", bytes(16 * _MOST_PIECES))
        self._table = self.places
        self.count = 0
        self.view = None
        self.waits = self.is_behind = False

    @cython.cfunc
    def _take(self, physical_offset: cython.longlong, size: cython.longlong):
        if self.count < _MOST_PIECES:
            self._table[2 * self.count] = physical_offset
            self._table[2 * self.count + 1] = size
        self.count += 1

    @cython.ccall
    @cython.exceptval(-1)
    def read(
        self,
        topic: str,
        topic_bytes: bytes,
        queue_id: cython.longlong,
        offset: cython.longlong,
        max_nums: cython.longlong,
        max_bytes: cython.longlong,
        codes: object,  # type: frozenset[int] | None
    ) -> cython.bint:
        """Take what a pull from queue offset `offset` takes; `forget` it when it is sent.

        Args:
            topic_bytes: the name in UTF-8.
            max_nums, max_bytes: at most so much, but at least one message.
            codes: the hashes of the tags that are wanted; None: every message.

        Returns:
            False: it is not that simple, or there is nothing. `get_message` knows what to say.
        """
        log: object = self._log
        log_begins: cython.longlong
        log_ends: cython.longlong
        first: cython.longlong
        end: cython.longlong
        index: cython.longlong
        unit_files: list
        self.waits = False
        self.view = None
        if topic in self._compacted or (topic, queue_id) in self._queues.batch_queues:
            return False
        state: object = self._queues.topics.get(topic_bytes)
        tail: object = None if state is None else state.queues.get(queue_id)
        if tail is None:
            return False
        queue: object = tail.owner
        if queue.ext is not None:
            return False
        if self._context.config is not self._config:
            self._take_config()
        log_begins = log.min_offset
        log_ends = log.max_offset
        self.min_offset = queue.min_offset(log_begins)
        self.max_offset = tail.write_offset // 20
        if offset < self.min_offset or offset >= self.max_offset:
            self.waits = offset == self.max_offset > 0
            return False
        unit_files = queue.files.files
        if not unit_files:
            return False
        first = unit_files[0].file_from_offset
        index = (20 * offset - first) // cython.cast(cython.longlong, queue.files.file_size)
        if 20 * offset < first or index >= len(unit_files):
            return False
        file: object = unit_files[index]
        units: object = file.mapped
        if units is None:
            return False
        first = 20 * offset - file.file_from_offset
        end = 20 * self.max_offset - file.file_from_offset
        if first + _AT_END < end and not self._page_cache.holds(file, first, min(first + 20 * max_nums, end), end):
            return False
        if not self._read_units(units, first, end, offset, codes, max_nums, max_bytes, log_ends, log_begins):
            return False
        first = self._table[0]
        file = log.file_at(first)
        if file is None or file.mapped is None:
            return False
        is_far: cython.bint = log_ends - first > self._in_memory or first < log.found_end
        first -= file.file_from_offset
        end = self._table[2 * self.count - 2] + self._table[2 * self.count - 1] - file.file_from_offset
        if is_far and not self._page_cache.holds(file, first, end, log_ends - file.file_from_offset):
            return False
        if not self._place(file.mapped, file.file_from_offset, log_ends):
            return False
        if is_far:
            self._page_cache.read_on(file, first, end, self.message_count, log_ends - file.file_from_offset)
        self.is_behind = log_ends - self.last_physical_offset > self._in_memory
        self.view = file.mapped
        return True

    def _take_config(self):
        config: object = self._context.config
        most: object = config.max_transfer_bytes_on_message_in_memory
        count: object = config.max_transfer_count_on_message_in_memory
        self._config = config
        self._in_memory = self._memory_bytes * config.access_message_in_memory_max_ratio // 100
        self._limits = (most, count, most, count)
        self._most_units_bytes = config.max_filter_message_size

    @cython.cfunc
    @cython.exceptval(-1)
    def _read_units(
        self,
        view: cython.const[cython.uchar][::1],
        start: cython.longlong,
        end: cython.longlong,
        offset: cython.longlong,
        codes: object,
        max_nums: cython.longlong,
        max_bytes: cython.longlong,
        log_ends: cython.longlong,
        log_begins: cython.longlong,
    ) -> cython.int:
        """Select the units of one pull, which begin at byte `start` of their file. Returns 0 if there are none, or too
        many."""
        buf: cython.p_uchar
        self.count = 0
        if end > len(view):
            end = len(view)
        if cython.compiled:
            buf = cython.cast(cython.p_uchar, cython.address(view[0]))
        else:
            buf = memoryview(view)
        if max_bytes > _MOST_BYTES:
            max_bytes = _MOST_BYTES
        self._walk(
            buf, start, end, offset, codes, max_nums if max_nums > 1 else 1,
            max_bytes if max_bytes > _LEAST_BYTES else _LEAST_BYTES, log_ends,
            cython.cast(cython.longlong, 1) << 62,  # no limit: `read` checks how far back the messages lie
            self._limits, log_begins,
            (self._most_units_bytes if self._most_units_bytes > 20 * max_nums else 20 * max_nums) // 20,
        )  # fmt: skip
        return 0 < self.count <= _MOST_PIECES

    @cython.cfunc
    @cython.exceptval(-1)
    def _place(
        self,
        view: cython.const[cython.uchar][::1],
        file_from_offset: cython.longlong,
        end_offset: cython.longlong,
    ) -> cython.int:
        """Fill in the places of the selected records in the log file. Returns 0 if some are missing there, or are not
        whole records."""
        i: cython.Py_ssize_t
        p: cython.longlong
        size: cython.longlong
        limit: cython.longlong = end_offset - file_from_offset
        if limit > len(view):
            limit = len(view)
        for i in range(self.count):
            p = self._table[2 * i] - file_from_offset
            size = self._table[2 * i + 1]
            if p < 0 or p + size > limit or not check_chain(view, p, p + size):
                return 0
            self._table[2 * i] = p
        return 1

    @cython.ccall
    def forget(self) -> cython.void:
        """Drop the reference to the mapped file, so that it can be unmapped."""
        self.view = None

    def buffers(self):
        # type: (...) -> list[memoryview]
        """Return the pieces that were found, as slices of the mapped file."""
        i: cython.Py_ssize_t
        found: list = []
        for i in range(self.count):
            found.append(self.view[self._table[2 * i] : self._table[2 * i] + self._table[2 * i + 1]])
        return found


def is_compiled() -> bool:
    """Returns whether this module runs compiled by Cython."""
    return cython.compiled
