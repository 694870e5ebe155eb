# What is said to the processor about memory. Used by compiled modules alone.
cdef extern from *:
    """
    #if defined(__GNUC__)
    #define maxq_prefetch(place) __builtin_prefetch(place)
    #else
    #define maxq_prefetch(place)
    #endif
    """
    void prefetch "maxq_prefetch"(const void *place) noexcept nogil  # it will be read in a moment
