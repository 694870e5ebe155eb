# The C face of record_cy.py, for the compiled modules that cut records out of the log.
cpdef bint check_chain(const unsigned char[::1] view, Py_ssize_t start, Py_ssize_t end)
