# The C face of cached_pull_reader_cy.py, for the compiled module that answers pulls.
from maxq.store.queue.unit_scan_cy cimport UnitScan


cdef class CachedPullReader(UnitScan):
    cdef public object places  # type: array[int]  # of each piece: its first byte in `view`, its size; whole records, neighbours joined
    cdef public Py_ssize_t count  # pieces
    cdef public object view  # type: memoryview  # of the file of the log that they are in
    cdef public long long min_offset  # of the queue, as its reader is told
    cdef public long long max_offset
    cdef public bint waits  # nothing was read, for the offset is where the queue's next message goes
    cdef public bint is_behind  # what was read lies further back than memory reaches
    cdef long long[::1] _table
    cdef object _context
    cdef object _log
    cdef object _queues
    cdef object _compacted
    cdef object _page_cache
    cdef object _config
    cdef object _limits
    cdef long long _memory_bytes
    cdef long long _in_memory
    cdef long long _most_units_bytes
    cpdef bint read(
        self,
        str topic,
        bytes topic_bytes,
        long long queue_id,
        long long offset,
        long long max_nums,
        long long max_bytes,
        object codes,
    ) except? -1
    cpdef void forget(self)
    cdef int _read_units(
        self,
        const unsigned char[::1] view,
        long long start,
        long long end,
        long long offset,
        object codes,
        long long max_nums,
        long long max_bytes,
        long long log_ends,
        long long log_begins,
    ) except? -1
    cdef int _place(self, const unsigned char[::1] view, long long file_from_offset, long long end_offset) except? -1
