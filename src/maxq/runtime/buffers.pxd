# The compiled form of buffers.py: the same functions, inline in each module that imports them.
from cpython.unicode cimport PyUnicode_AsUTF8AndSize, PyUnicode_DecodeASCII
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


cdef inline Py_ssize_t put_number(unsigned char *target, Py_ssize_t p, long long value) noexcept nogil:
    cdef unsigned long long rest = <unsigned long long> value
    cdef unsigned long long left
    cdef Py_ssize_t at
    cdef Py_ssize_t end
    if value < 0:
        target[p] = 0x2D
        p += 1
        rest = 0 - rest
    end = p + 1
    left = rest // 10
    while left:
        end += 1
        left //= 10
    at = end
    while at > p:
        at -= 1
        target[at] = 0x30 + rest % 10
        rest //= 10
    return end


cdef inline bytes take_bytes(const unsigned char *buf, Py_ssize_t p, Py_ssize_t size):
    return (<const char *> buf + p)[:size]


cdef inline str take_ascii(const unsigned char *buf, Py_ssize_t p, Py_ssize_t size):
    return PyUnicode_DecodeASCII(<const char *> buf + p, size, NULL)


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


cdef extern from *:
    """
    #include <string.h>
    #define MAXQ_EACH(byte) (0x0101010101010101ULL * (byte))
    /* The highest bit of the first byte below `limit`, at most 128; bits above it may be set as well. */
    #define MAXQ_BELOW(word, limit) (((word) - MAXQ_EACH(limit)) & ~(word) & MAXQ_EACH(0x80))
    static inline Py_ssize_t maxq_find_unplain(const unsigned char *buf, Py_ssize_t p, Py_ssize_t end)
    {
        for (; p + 8 <= end; p += 8) {
            unsigned long long word, found;
            memcpy(&word, buf + p, 8);
            found = MAXQ_BELOW(word, 0x20) | MAXQ_BELOW(word ^ MAXQ_EACH(0x22), 1) | MAXQ_BELOW(word ^ MAXQ_EACH(0x5C), 1);
            if (found)
    #if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
                return p + (__builtin_ctzll(found) >> 3);
    #else
                break;
    #endif
        }
        while (p < end && buf[p] >= 0x20 && buf[p] != 0x22 && buf[p] != 0x5C)
            p++;
        return p;
    }
    static inline int maxq_has_separator(const unsigned char *buf, Py_ssize_t p, Py_ssize_t end)
    {
        for (; p + 8 <= end; p += 8) {
            unsigned long long word;
            memcpy(&word, buf + p, 8);
            if (MAXQ_BELOW(word, 3))
                break;
        }
        for (; p < end; p++)
            if (buf[p] == 1 || buf[p] == 2)
                return 1;
        return 0;
    }
    """
    Py_ssize_t find_unplain "maxq_find_unplain" (const unsigned char *buf, Py_ssize_t p, Py_ssize_t end) noexcept nogil
    bint has_separator "maxq_has_separator" (const unsigned char *buf, Py_ssize_t p, Py_ssize_t end) noexcept nogil
