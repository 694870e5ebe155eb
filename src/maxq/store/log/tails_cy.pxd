# The C face of tails_cy.py, for the compiled modules that write through the tails.
cdef class QueueTail:
    cdef public object topic
    cdef public int queue_id
    cdef public object owner
    cdef public long long next_queue_offset
    cdef public long long max_physical_offset
    cdef public long long write_offset
    cdef public bint watched
    cdef unsigned char[::1] _view
    cdef unsigned char *_buf
    cdef long long _file_from
    cdef long long _file_size
    cpdef bint append(self, long long physical_offset, int size, long long tags_code)


cdef class TopicWriteState:
    cdef public object topic
    cdef public bytes topic_bytes
    cdef public bint is_fast_path_open
    cdef public bint is_static
    cdef public bint has_dispatch_hook
    cdef public bint has_batch_queues
    cdef public int max_queue_id
    cdef public int write_queue_nums
    cdef public bint multi_tags
    cdef public bint is_delay_topic
    cdef public long long put_nums
    cdef public long long put_bytes
    cdef public dict queues
    cdef public unsigned int key_hash


cdef class TopicMemory:
    cdef TopicWriteState _last
    cdef TopicWriteState find(self, dict topics, unsigned char *buf, Py_ssize_t p, Py_ssize_t n)
    cpdef void forget(self)


cdef class IndexTail:
    cdef public int index_count
    cdef public long long begin_timestamp
    cdef public long long end_timestamp
    cdef public long long begin_physical_offset
    cdef public long long end_physical_offset
    cdef int _hash_slot_count
    cdef int _slot_nums
    cdef int _max_index_nums
    cdef unsigned char[::1] _view
    cdef unsigned char *_buf
    cpdef bint put_key(self, long long key_hash, long long physical_offset, long long store_timestamp)


cdef class IndexCollector(IndexTail):
    cdef unsigned char[::1] _entries
    cdef unsigned char *_collected
    cdef Py_ssize_t _room
    cdef public Py_ssize_t count
