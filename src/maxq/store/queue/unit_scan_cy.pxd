# The C face of unit_scan_cy.py, for the compiled module that keeps what a walk takes in another form.
cdef class UnitScan:
    cdef public list ranges  # type: list[tuple[int, int]]  # (physical offset, bytes), neighbours joined
    cdef public long long message_count
    cdef public long long total_bytes
    cdef public long long next_index  # queue offset after the last examined unit
    cdef public long long last_physical_offset  # of the last examined unit, 0 if none
    cdef _take(self, long long physical_offset, long long size)
    cdef _walk(
        self,
        unsigned char *buf,
        Py_ssize_t p,
        Py_ssize_t end,
        long long first_index,
        object wanted,
        long long max_messages,
        long long max_bytes,
        long long max_physical_offset,
        long long memory_bytes,
        limits,
        long long min_physical_offset,
        long long max_units,
    )
