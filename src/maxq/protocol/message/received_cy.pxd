# The C face of received_cy.py, for the compiled modules that use what is known of received messages.
cdef extern from *:
    """
    #include <structmember.h>
    #define MAXQ_NEW(kind) PyType_GenericAlloc((PyTypeObject *) (kind), 0)

    static inline PyObject **maxq_slot(PyObject *object, Py_ssize_t at) {
        return (PyObject **) ((char *) object + at);
    }

    static inline Py_ssize_t maxq_place_of_slot(PyObject *descriptor) {
        return ((PyMemberDescrObject *) descriptor)->d_member->offset;
    }

    static inline int maxq_slot_is_set(PyObject *object, Py_ssize_t at) {
        return *maxq_slot(object, at) != NULL;
    }

    static inline PyObject *maxq_slot_value(PyObject *object, Py_ssize_t at) {
        return Py_NewRef(*maxq_slot(object, at));
    }

    static inline void maxq_set_slot(PyObject *object, Py_ssize_t at, PyObject *value) {
        PyObject *old = *maxq_slot(object, at);
        *maxq_slot(object, at) = Py_NewRef(value);
        Py_XDECREF(old);
    }

    static inline void maxq_clear_slot(PyObject *object, Py_ssize_t at) {
        PyObject *old = *maxq_slot(object, at);
        *maxq_slot(object, at) = NULL;
        Py_XDECREF(old);
    }
    """
    object new "MAXQ_NEW"(object kind)  # without a call of Python's
    void track "PyObject_GC_Track"(object message)
    void untrack "PyObject_GC_UnTrack"(object message)
    bint is_tracked "PyObject_GC_IsTracked"(object message)
    Py_ssize_t place_of_slot "maxq_place_of_slot"(object descriptor)  # bytes from the start of the object
    bint slot_is_set "maxq_slot_is_set"(object message, Py_ssize_t at)
    object slot_value "maxq_slot_value"(object message, Py_ssize_t at)
    void set_slot "maxq_set_slot"(object message, Py_ssize_t at, object value)
    void clear_slot "maxq_clear_slot"(object message, Py_ssize_t at)


cdef class Pull:
    cdef readonly str broker_name
    cdef readonly long long min_offset
    cdef readonly long long max_offset
    cdef readonly long long queue_id  # of a global queue of a static topic; -1: as records say
    cdef readonly long long offset_delta
    cdef object _unwrap
    cdef str _min_text
    cdef str _max_text
    cdef str topic
    cdef bint _has_one_topic
    cdef _fill(self, dict properties)
    cdef _topic_of(self, bytes rest, Py_ssize_t at)


cdef class Stored:
    cdef bytes rest  # the record without its body
    cdef bytes packed  # the body, if it is compressed
    cdef Pull pull
    cdef object started  # CONSUME_START_TIME, until the properties are decoded
    cdef long long queue_offset
    cdef long long size  # bytes of the record
    cdef int sys_flag
    cdef Py_ssize_t body_at
    cdef bint has_properties  # they were decoded


cdef class PulledRecords:
    cdef const unsigned char[::1] view
    cdef readonly Pull pull
    cdef readonly Py_ssize_t size  # bytes
    cdef readonly Py_ssize_t count
    cdef readonly long long first_offset  # of the queue
    cdef readonly long long last_offset


cdef class LazyField:
    cdef readonly str name
    cdef object _slot
    cdef Py_ssize_t _at
    cdef int _number


cpdef Stored stored_of(object message)
