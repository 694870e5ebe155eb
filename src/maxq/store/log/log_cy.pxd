# The C face of log_cy.py, for the compiled modules that write records through LogTail.
from maxq.store.log.tails_cy cimport TopicMemory, TopicWriteState


cdef class LogTail:
    cdef public long long wrote_position  # bytes written in the current file
    cdef public long long file_from_offset
    cdef public long long file_size
    cdef public bint full  # the last append_rows or append_final stopped because what it has does not fit in this file
    cdef public int head  # 0, or 48: every record gets a DLedger entry's header in front of it, and files end with its filler
    cdef public long long next_index  # with heads: of the next entry
    cdef public long long term  # with heads: that new entries get
    cdef public TopicWriteState final_topic  # type: TopicWriteState | None  # where the last append_final went
    cdef TopicMemory topic_memory
    cdef unsigned char *buf
    cdef unsigned char[::1] _view
    cdef void close_entry(self, long long p, long long body_size, long long index) noexcept
    cdef long long write_front(
        self,
        long long p,
        long long total,
        long long body_crc,
        long long queue_id,
        long long flag,
        long long queue_offset,
        long long sys_flag,
        long long born_timestamp,
        unsigned char *born_host,
        Py_ssize_t born_size,
        long long store_timestamp,
        unsigned char *store_host,
        Py_ssize_t store_size,
        long long reconsume_times,
        long long prepared_offset,
        unsigned char *body,
        Py_ssize_t body_at,
        long long body_size,
        unsigned char *topic,
        Py_ssize_t topic_at,
        long long topic_size,
        long long properties_size,
    ) noexcept
    cdef void end_record(self, long long p, long long total) noexcept
