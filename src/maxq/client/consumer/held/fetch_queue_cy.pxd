# The fields of fetch_queue_cy.py.
cdef class Fetched:
    cdef readonly object assigned  # type: AssignedQueue
    cdef readonly object generation  # type: int
    cdef readonly object messages  # type: list[MessageExt] | PulledRecords
    cdef bint _is_current(self) except? -1
    cdef bint _is_made(self) noexcept
    cdef _split(self, Py_ssize_t count)


cdef class FetchQueue:
    cdef readonly long long message_count  # that wait
    cdef readonly dict given_out  # type: dict[object, list[Fetched]]  # whose last poll gave it out → what; done with the next
    cdef public bint keeps_records  # type: bool  # pulls are kept as records, because they are asked for as columns
    cdef public list finished  # type: list[Fetched]  # done, and not removed from their ProcessQueue yet
    cdef object _fetched  # deque
