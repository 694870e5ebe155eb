# The fields of fetch_queue_cy.py.
cdef class Fetched:
    cdef readonly object assigned  # type: AssignedQueue
    cdef readonly object generation  # type: int
    cdef readonly list messages  # type: list[MessageExt]
    cdef bint _is_current(self) except? -1


cdef class FetchQueue:
    cdef readonly long long message_count  # that wait
    cdef readonly dict given_out  # type: dict[object, Fetched]  # whose last poll gave it out → what; done with the next
    cdef public list finished  # type: list[Fetched]  # done, and not removed from their ProcessQueue yet
    cdef object _fetched  # deque
