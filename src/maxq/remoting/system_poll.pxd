# poll(2), which Cython's own declarations of POSIX lack.

cdef extern from "poll.h" nogil:
    const short POLLIN
    ctypedef unsigned long nfds_t
    cdef struct pollfd:
        int fd
        short events
        short revents
    int poll(pollfd *fds, nfds_t nfds, int timeout)
