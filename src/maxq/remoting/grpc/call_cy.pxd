# The C face of call_cy.py.
from maxq.protocol.http2.connection_cy cimport Http2Connection, Request, Stream


cdef class Call(Stream):
    cdef readonly object connection  # type: GrpcConnection
    cdef readonly bint is_over
    cdef public object on_end  # type: Callable[[], None] | None
    cdef public object on_lost  # type: Callable[[], None] | None
    cdef double _deadline  # 0: there is none
    cdef GrpcChannel _channel
    cdef object _receiver
    cdef bint _is_unary
    cdef bint _has_head
    cdef bytes _message
    cdef Py_ssize_t _message_kept  # bytes of it that were counted
    cdef int _compressed
    cdef bytearray _partial
    cdef Py_ssize_t _needed
    cdef list _waiters
    cdef _refuse(self, int status, str text)
    cdef _take(self, unsigned char *buf, Py_ssize_t p, Py_ssize_t size)
    cdef Py_ssize_t _messages(self, unsigned char *buf, Py_ssize_t p, Py_ssize_t end) except? -1
    cdef _received_message(self, bytes message, int compressed)
    cdef _unpacked(self, bytes message, int compressed)
    cdef _tell_end(self)
    cdef _tell_lost(self)
    cdef _tell(self, object told)
    cdef _drop_kept(self)
    cdef _give(self, object message)
    cdef _failed(self)
    cdef _hand_over(self)
    cdef bint _fits(self, bytes message) except? -1
    cdef _put_message(self, bytes message, Py_ssize_t more)
    cdef _put_frame(self, bytes frame)
    cdef _wake(self)


cdef class GrpcChannel(Http2Connection):
    cdef readonly object connection  # type: GrpcConnection
    cdef public double now  # of the loop, when the bytes at work arrived
    cdef readonly long long calls  # that were handed over
    cdef dict _methods
    cdef Py_ssize_t _message_limit
    cdef Py_ssize_t _unsent_limit
    cdef Py_ssize_t _kept
    cdef double _next_deadline
    cdef _keep(self, Py_ssize_t more)
    cdef _refuse_http(self, Call call, bytes block)
    cdef _find_route(self, Request request)
    cdef _set_deadline(self, Call call, str text)
