# The compiled form of record_layout.py: the same names, as constants and inline functions of the modules that use them.
cdef enum:
    TOTAL_SIZE = 0
    MAGIC = 4
    BODY_CRC = 8
    QUEUE_ID = 12
    FLAG = 16
    QUEUE_OFFSET = 20
    PHYSICAL_OFFSET = 28
    SYS_FLAG = 36
    BORN_TIMESTAMP = 40
    BORN_HOST = 48
    FIXED_SIZE = 75
    MIN_RECORD_SIZE = 91
    BATCH_RECORD_SIZE = 22
    MULTI_TAGS = 0x2
    TRANSACTION_MASK = 0xC
    TRANSACTION_PREPARED = 0x4
    TRANSACTION_COMMIT = 0x8
    TRANSACTION_ROLLBACK = 0xC
    BORN_HOST_V6 = 0x10
    STORE_HOST_V6 = 0x20
    HOSTS_V6 = 0x30
    INNER_BATCH = 0x80

# Not constants of C, whose enums are signed where they fit an int.
cdef extern from *:
    """
    #define MAXQ_MAGIC_V1 0xDAA320A7u
    #define MAXQ_MAGIC_V2 0xDAA320ABu
    #define MAXQ_MAGIC_BLANK 0xCBD43194u
    """
    const unsigned int MAGIC_V1 "MAXQ_MAGIC_V1"
    const unsigned int MAGIC_V2 "MAXQ_MAGIC_V2"
    const unsigned int MAGIC_BLANK "MAXQ_MAGIC_BLANK"


cdef inline Py_ssize_t born_host_size(long long sys_flag) noexcept nogil:
    return 20 if sys_flag & BORN_HOST_V6 else 8


cdef inline Py_ssize_t store_host_size(long long sys_flag) noexcept nogil:
    return 20 if sys_flag & STORE_HOST_V6 else 8


cdef inline Py_ssize_t store_timestamp_at(long long sys_flag) noexcept nogil:
    return BORN_HOST + born_host_size(sys_flag)


cdef inline Py_ssize_t reconsume_times_at(long long sys_flag) noexcept nogil:
    return 56 + born_host_size(sys_flag) + store_host_size(sys_flag)


cdef inline Py_ssize_t body_size_at(long long sys_flag) noexcept nogil:
    return 68 + born_host_size(sys_flag) + store_host_size(sys_flag)


cdef inline long long host_bits(Py_ssize_t born_size, Py_ssize_t store_size) noexcept nogil:
    return (BORN_HOST_V6 if born_size == 20 else 0) | (STORE_HOST_V6 if store_size == 20 else 0)
