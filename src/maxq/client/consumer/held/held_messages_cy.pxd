# The fields of held_messages_cy.py.
from maxq.protocol.message.received_cy cimport PulledRecords


cdef class HeldMessages:
    cdef readonly long long message_count  # with those at the listener
    cdef readonly long long message_size  # bytes of their records, with those at the listener
    cdef public long long queue_offset_max  # largest queue offset ever put
    cdef public long long backlog  # messages the broker had beyond the last put one
    cdef list _messages  # by place; None where it is gone
    cdef object _offset_array
    cdef object _size_array
    cdef long long[::1] _offsets  # by place, ascending
    cdef long long[::1] _sizes  # by place; -1 where the message is gone
    cdef Py_ssize_t _first  # place of the first message that is here, or _end
    cdef Py_ssize_t _waiting  # place behind those at the listener
    cdef Py_ssize_t _end
    cdef Py_ssize_t _room
    cdef _append(self, object message, long long offset, long long size)
    cdef _make_room(self, Py_ssize_t more)
    cdef long long _put_records(self, PulledRecords records) except? -1
    cdef _put_between(self, list rows)
    cdef _row(self, Py_ssize_t place)
    cdef _remove(self, long long offset)
    cdef _remove_records(self, PulledRecords records)
    cdef Py_ssize_t _place_of(self, long long offset) noexcept
    cdef _skip_gone(self)
    cdef _reset(self)
