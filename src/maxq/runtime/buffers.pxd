# The compiled form of buffers.py: the same functions, inline in each module that imports them.
from cpython.unicode cimport PyUnicode_AsUTF8AndSize
from libc.string cimport memchr, memcmp, memcpy


cdef inline unsigned int u32(const unsigned char *buf, Py_ssize_t p) noexcept nogil:
    return (
        (<unsigned int> buf[p] << 24) | (<unsigned int> buf[p + 1] << 16) | (<unsigned int> buf[p + 2] << 8) | buf[p + 3]
    )


cdef inline int i32(const unsigned char *buf, Py_ssize_t p) noexcept nogil:
    return <int> u32(buf, p)


cdef inline long long i64(const unsigned char *buf, Py_ssize_t p) noexcept nogil:
    return <long long> ((<unsigned long long> u32(buf, p) << 32) | u32(buf, p + 4))


cdef inline int i16(const unsigned char *buf, Py_ssize_t p) noexcept nogil:
    return <short> ((<int> buf[p] << 8) | buf[p + 1])


cdef inline void put32(unsigned char *buf, Py_ssize_t p, long long value) noexcept nogil:
    buf[p] = (value >> 24) & 0xFF
    buf[p + 1] = (value >> 16) & 0xFF
    buf[p + 2] = (value >> 8) & 0xFF
    buf[p + 3] = value & 0xFF


cdef inline void put64(unsigned char *buf, Py_ssize_t p, long long value) noexcept nogil:
    put32(buf, p, value >> 32)
    put32(buf, p + 4, value)


cdef inline void copy_bytes(
    unsigned char *target, Py_ssize_t p, const unsigned char *source, Py_ssize_t q, Py_ssize_t size
) noexcept nogil:
    memcpy(target + p, source + q, size)


cdef inline Py_ssize_t put_bytes(unsigned char *target, Py_ssize_t p, bytes data) noexcept:
    memcpy(target + p, <const char *> data, len(data))
    return p + len(data)


cdef inline Py_ssize_t put_utf8(unsigned char *target, Py_ssize_t p, str text) except -1:
    cdef Py_ssize_t size
    cdef const char *data = PyUnicode_AsUTF8AndSize(text, &size)
    memcpy(target + p, data, size)
    return p + size


cdef inline bytes take_bytes(const unsigned char *buf, Py_ssize_t p, Py_ssize_t size):
    return (<const char *> buf + p)[:size]


cdef inline bint same_bytes(const unsigned char *buf, Py_ssize_t p, Py_ssize_t size, bytes word) noexcept:
    return size == len(word) and memcmp(buf + p, <const char *> word, size) == 0


cdef inline Py_ssize_t find_byte(const unsigned char *buf, Py_ssize_t p, Py_ssize_t end, int byte) noexcept nogil:
    cdef const void *found = memchr(buf + p, byte, end - p) if p < end else NULL
    return end if found is NULL else <const unsigned char *> found - buf


cdef inline long long digits(const unsigned char *buf, Py_ssize_t p, Py_ssize_t end) noexcept nogil:
    cdef long long value = 0
    if end <= p or end - p > 9:
        return -1
    while p < end:
        if buf[p] < 0x30 or buf[p] > 0x39:
            return -1
        value = value * 10 + buf[p] - 0x30
        p += 1
    return value
