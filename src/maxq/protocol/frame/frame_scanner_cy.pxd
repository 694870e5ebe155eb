# The C face of frame_scanner_cy.py, for the compiled scanners.
cdef class FrameScanner:
    cdef long long _code
    cdef long long _frame_flag
    cdef long long _opaque
    cdef long long _version
    cdef Py_ssize_t _text  # the last string or number read: position in the receive buffer
    cdef Py_ssize_t _text_size
    cdef bint _escaped
    # what a request was signed with; kept only while `signed` is set
    cdef public bint signed
    cdef public bytearray content
    cdef Py_ssize_t _used_content
    cdef Py_ssize_t _kept[200]  # of each field: key, its size, text, its size, is it escaped
    cdef Py_ssize_t _kept_count
    cdef Py_ssize_t _access_key
    cdef Py_ssize_t _access_key_size
    cdef Py_ssize_t _signature
    cdef Py_ssize_t _signature_size
    cdef _expect_signatures(self, Py_ssize_t room)
    cdef bint _keep(self, Py_ssize_t key, Py_ssize_t key_size) noexcept
    cdef bint _credential(self, unsigned char *buf, Py_ssize_t key, Py_ssize_t key_size) noexcept
    cdef bint _before(self, unsigned char *buf, Py_ssize_t left, Py_ssize_t right) noexcept
    cdef bint _compose(
        self, unsigned char *buf, unsigned char *scratch, Py_ssize_t raw, Py_ssize_t cooked, Py_ssize_t cooked_size
    ) noexcept
    cdef void _begin(self) noexcept
    cdef bint _is_whole(self) noexcept
    cdef bint _wants(self) noexcept
    cdef bint _field(self, unsigned char *buf, Py_ssize_t key, Py_ssize_t key_size) noexcept
    cdef Py_ssize_t _header(self, unsigned char *buf, Py_ssize_t start, Py_ssize_t end) noexcept
    cdef Py_ssize_t _string(self, unsigned char *buf, Py_ssize_t p, Py_ssize_t end) noexcept
    cdef Py_ssize_t _scalar(self, unsigned char *buf, Py_ssize_t p, Py_ssize_t end) noexcept
    cdef long long _integer(self, unsigned char *buf) noexcept
    cdef bint _json(self, unsigned char *buf, Py_ssize_t p, Py_ssize_t end) noexcept
    cdef Py_ssize_t _json_fields(self, unsigned char *buf, Py_ssize_t p, Py_ssize_t end) noexcept
    cdef bint _binary(self, unsigned char *buf, Py_ssize_t p, Py_ssize_t end) noexcept
    cdef long long _signed(self, unsigned int value) noexcept


cdef class AnswerScanner(FrameScanner):
    cdef object _waiter_type
    cdef Py_ssize_t _body  # of the last answer
    cdef Py_ssize_t _answer_end
    cdef _next(self, dict waiters, unsigned char *buf, Py_ssize_t start, Py_ssize_t end)


cdef class OneFrameScanner(FrameScanner):
    cdef public bytes access_key  # these three after `expect_signatures` only
    cdef public bytes signature
    cdef public bytes signed_content  # the values it was signed for
    cdef _take(self, unsigned char *buf, bint is_binary)
    cdef int _take_signature(self, unsigned char *buf) except? -1
