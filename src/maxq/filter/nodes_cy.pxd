# The C face of nodes_cy.py, for the compiled modules that make nodes of other kinds and test them.
cdef class PropertyScan:
    cdef readonly tuple names
    cdef int _count
    cdef long long[::1] _spans
    cdef bytes _all
    cdef unsigned char *_buf
    cdef int scan(self, unsigned char *buf, Py_ssize_t start, Py_ssize_t end) except -1
    cdef int _slot(self, unsigned char *buf, Py_ssize_t p, Py_ssize_t size) except -2
    cdef long long size(self, int slot) except -2
    cdef long long start(self, int slot) except -2
    cdef bytes value(self, int slot)
    cdef object text(self, int slot)


cdef class Node:
    cdef int test(self, PropertyScan scan) except? -1
