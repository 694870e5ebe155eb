# The C face of record_cy.py, for the compiled modules that write records, or cut them out of the log.
cdef unsigned int crc31_at(unsigned char *buf, Py_ssize_t p, Py_ssize_t size) noexcept
cpdef bint check_chain(const unsigned char[::1] view, Py_ssize_t start, Py_ssize_t end)
