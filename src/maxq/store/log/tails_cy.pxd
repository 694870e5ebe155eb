# The C face of tails_cy.py, for the compiled modules that write through the tails.
cdef class QueueTail:
    cdef public object topic  # type: str
    cdef public int queue_id
    cdef public object owner  # type: Any  # the ConsumeQueue; None when the store has forgotten it, so that both are gone at once
    cdef public long long next_queue_offset  # the offset the next appended message of this queue gets
    cdef public long long max_physical_offset  # end of the last record that has a unit here; -1 none
    cdef public long long write_offset  # logical byte position of the next unit = 20 × its index
    cdef public bint watched  # somebody waits for arrivals: Dispatcher.run lists this tail in `arrived` once and clears the flag
    cdef unsigned char[::1] _view
    cdef unsigned char *_buf
    cdef long long _file_from
    cdef long long _file_size
    cpdef bint append(self, long long physical_offset, int size, long long tags_code)


cdef class TopicWriteState:
    cdef public object topic  # type: str
    cdef public bytes topic_bytes
    cdef public bint is_fast_path_open  # may send rows go here? False until the broker has configured the topic for fast-path sends
    cdef public bint is_static  # a static topic: what is stored for one of its queues later may belong to another broker by then
    cdef public bint has_dispatch_hook  # every record is also given to owner.dispatch_uncommon
    cdef public bint has_batch_queues  # a BatchCQ topic: no unit is written here, every record is given to owner.dispatch_uncommon
    cdef public int max_queue_id  # queue ids 0 … max_queue_id are legal in a send
    cdef public int write_queue_nums
    cdef public bint multi_tags  # sysFlag |= 2
    cdef public bint is_delay_topic  # SCHEDULE_TOPIC_XXXX: tags code is the delivery time
    cdef public long long put_nums  # counters since start, sampled by the statistics
    cdef public long long put_bytes
    cdef public dict queues  # type: dict[int, QueueTail]  # a map: a flipped bit in a queue id must not cost memory
    cdef public unsigned int key_hash  # String.hashCode of "topic#", unsigned: how the text of each index key begins


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
    cdef public Py_ssize_t count  # entries in the view
