# The C face of hpack_cy.py, for connections.
cdef class Field:
    cdef readonly str name
    cdef readonly str value
    cdef readonly int kind
    cdef readonly Py_ssize_t size  # bytes, as tables count them


cdef class HeaderBlock:
    cdef readonly list fields  # type: list[Field]
    cdef readonly Py_ssize_t size
    cdef readonly bint is_too_large
    cdef public object meaning  # type: Any  # what a server has found out about these fields


cdef class HpackDecoder:
    cdef list _dynamic
    cdef Py_ssize_t _evicted
    cdef Py_ssize_t _used
    cdef Py_ssize_t _limit
    cdef Py_ssize_t _most
    cdef Py_ssize_t _list_limit
    cdef dict _known
    cdef Py_ssize_t _p
    cdef Py_ssize_t _text_size
    cdef bint _is_changed
    cdef bytearray _scratch
    cdef HeaderBlock read(self, unsigned char *buf, Py_ssize_t p, Py_ssize_t end)
    cdef HeaderBlock _read(self, unsigned char *buf, Py_ssize_t end)
    cdef Py_ssize_t _integer(self, unsigned char *buf, Py_ssize_t end, int bits) except? -1
    cdef str _string(self, unsigned char *buf, Py_ssize_t end, bint is_name)
    cdef Py_ssize_t _huffman(self, unsigned char *buf, Py_ssize_t p, Py_ssize_t end) except? -1
    cdef str _text(self, unsigned char *buf, Py_ssize_t p, Py_ssize_t size, bint is_name)
    cdef Field _entry(self, Py_ssize_t index)
    cdef Field _literal(self, unsigned char *buf, Py_ssize_t end, int bits)
    cdef _resize(self, Py_ssize_t limit)
    cdef _insert(self, Field field)
    cdef _shrink(self, Py_ssize_t room)
