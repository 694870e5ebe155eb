# C types that a Python file cannot spell: the three functions of OpenSSL's SHA-1.
ctypedef int (*sha1_init_t)(void*) noexcept nogil
ctypedef int (*sha1_update_t)(void*, const void*, size_t) noexcept nogil
ctypedef int (*sha1_final_t)(unsigned char*, void*) noexcept nogil
