# The compiled form of slots.py: a slot is read where it lies in the object.
cdef extern from *:
    """
    #include <structmember.h>
    static Py_ssize_t maxq_slot_place(PyObject *kind, PyObject *name)
    {
        Py_ssize_t place = -1;
        PyObject *found = PyObject_GetAttr(kind, name);
        if (found != NULL && Py_TYPE(found) == &PyMemberDescr_Type)
            place = ((PyMemberDescrObject *) found)->d_member->offset;
        else if (found != NULL)
            PyErr_Format(PyExc_TypeError, "%R of %R is no slot", name, kind);
        Py_XDECREF(found);
        return place;
    }
    static inline PyObject *maxq_slot_value(PyObject *object, Py_ssize_t place)
    {
        PyObject *value = *(PyObject **) ((char *) object + place);
        if (value == NULL)
            value = Py_None;
        Py_INCREF(value);
        return value;
    }
    """
    Py_ssize_t slot_place "maxq_slot_place" (object kind, str name) except -1
    object slot_value "maxq_slot_value" (object owner, Py_ssize_t place)
    void untrack "PyObject_GC_UnTrack" (object owner)
