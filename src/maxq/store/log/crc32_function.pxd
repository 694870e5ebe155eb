# The C type of `address()` (crc32_function.py), for the compiled modules.
cdef extern from *:
    """
    typedef unsigned int (*maxq_crc32_t)(unsigned int, const unsigned char *, unsigned long long);
    """
    ctypedef unsigned int (*maxq_crc32_t)(unsigned int, const unsigned char *, unsigned long long) noexcept
