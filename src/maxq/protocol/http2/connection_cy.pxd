# The C face of connection_cy.py, for what is served on its streams.
from maxq.protocol.http2.hpack_cy cimport HeaderBlock, HpackDecoder


cdef class Request:
    cdef readonly str method
    cdef readonly str path
    cdef readonly str content_type
    cdef readonly str timeout
    cdef readonly str encoding
    cdef readonly long long content_length  # -1: it is not said
    cdef readonly str fault  # what makes it malformed; empty: nothing
    cdef public object route  # type: Any  # what the server has found for it
    cdef list _fields
    cdef dict _metadata


cdef class Stream:
    cdef readonly long long number
    cdef readonly Py_ssize_t unsent  # bytes that wait for windows
    cdef Request _request
    cdef Http2Connection _http2
    cdef long long _send_window
    cdef long long _receive_window
    cdef long long _received  # bytes of the body
    cdef bint _remote_ended
    cdef bint _local_ended
    cdef object _pending  # type: deque[bytes] | None
    cdef Py_ssize_t _pending_at
    cdef bytes _last


cdef class Http2Connection:
    cdef readonly str failure  # why the connection ends; empty: it does not
    cdef readonly bint is_draining
    cdef readonly Py_ssize_t unsent  # bytes of all streams that wait for windows
    cdef readonly bint was_answered  # the last ping of ours
    cdef dict _streams
    cdef HpackDecoder _decoder
    cdef bytearray _out
    cdef Py_ssize_t _end
    cdef Py_ssize_t _preface
    cdef bint _has_settings
    cdef bint _is_held
    cdef bint _is_touched
    cdef long long _last_number
    cdef long long _served_number
    cdef long long _stream_limit
    cdef long long _send_window
    cdef long long _receive_window
    cdef long long _initial_send_window
    cdef Py_ssize_t _peer_frame_size
    cdef bytearray _block
    cdef long long _block_number
    cdef bint _block_ends
    cdef dict _blocked  # streams that wait, but not for their own windows
    cdef dict _forgotten
    cdef long long _odd_left
    cdef long long _resets_left
    cdef long long _turn_left  # streams and messages before others have their turn

    cdef Stream _make(self, Request request)
    cdef _opened(self, Stream stream)
    cdef _data(self, Stream stream, unsigned char *buf, Py_ssize_t p, Py_ssize_t size)
    cdef _was_ended(self, Stream stream)
    cdef _was_drained(self, Stream stream)
    cdef _touch(self)

    cdef bint _take_preface(self, unsigned char *buf, Py_ssize_t p, Py_ssize_t end) except? -1
    cdef _frame(self, int kind, int flags, long long number, unsigned char *buf, Py_ssize_t p, Py_ssize_t size)
    cdef _data_frame(self, int flags, long long number, unsigned char *buf, Py_ssize_t p, Py_ssize_t size)
    cdef _headers_frame(self, int flags, long long number, unsigned char *buf, Py_ssize_t p, Py_ssize_t size)
    cdef _continuation_frame(self, int flags, unsigned char *buf, Py_ssize_t p, Py_ssize_t size)
    cdef _header_block(self, long long number, bint ends, unsigned char *buf, Py_ssize_t p, Py_ssize_t size)
    cdef _trailers(self, Stream stream, HeaderBlock block, bint ends)
    cdef _new_stream(self, long long number, HeaderBlock block, bint ends)
    cdef _priority_frame(self, long long number, unsigned char *buf, Py_ssize_t p, Py_ssize_t size)
    cdef _reset_frame(self, long long number, unsigned char *buf, Py_ssize_t p, Py_ssize_t size)
    cdef _settings_frame(self, int flags, long long number, unsigned char *buf, Py_ssize_t p, Py_ssize_t size)
    cdef _setting(self, int name, long long value)
    cdef _change_window(self, long long window)
    cdef _ping_frame(self, int flags, long long number, unsigned char *buf, Py_ssize_t p, Py_ssize_t size)
    cdef _window_frame(self, long long number, unsigned char *buf, Py_ssize_t p, Py_ssize_t size)
    cdef _is_idle(self, long long number)
    cdef _odd(self)
    cdef void _earn(self) noexcept
    cdef _count_reset(self)
    cdef _end_remote(self, Stream stream)

    cdef _fail(self, int code, str why)
    cdef _go_away(self, long long number, int code, bytes why)
    cdef _drop_any(self, long long number, int code)
    cdef _drop(self, long long number, int code)
    cdef _expect_more(self, long long number)
    cdef _send_too_large(self, long long number)
    cdef _reset(self, Stream stream, int code)
    cdef _forget(self, Stream stream)
    cdef _room(self, Py_ssize_t size)
    cdef _head(self, Py_ssize_t size, int kind, int flags, long long number)
    cdef _put(self, bytes data)
    cdef _put_number(self, long long value)
    cdef _window_update(self, long long number, long long size)
    cdef _end_local(self, Stream stream)
    cdef _send_block(self, Stream stream, bytes block, bint ends)
    cdef _send_data(self, Stream stream, bytes data)
    cdef _pump(self, Stream stream, Py_ssize_t most)
    cdef _pump_all(self)
    cdef bint _takes_data(self) noexcept
    cdef _unblock(self, Stream stream)
    cdef _release_out(self)
