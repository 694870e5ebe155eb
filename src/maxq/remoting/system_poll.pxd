# poll(2), which Cython's own declarations of POSIX lack, and the one change of an epoll instance that threads make.

cdef extern from *:
    """
    #include <poll.h>
    #ifdef __linux__
    #include <sys/epoll.h>
    static int maxq_watch(int epoll, int fd, int is_watched)
    {
        struct epoll_event event = {0};
        event.events = is_watched ? EPOLLIN : 0;
        event.data.fd = fd;
        return epoll_ctl(epoll, EPOLL_CTL_MOD, fd, &event);
    }
    #else
    static int maxq_watch(int epoll, int fd, int is_watched)
    {
        return -1;
    }
    #endif
    """
    int maxq_watch(int epoll, int fd, int is_watched) nogil

cdef extern from "poll.h" nogil:
    const short POLLIN
    ctypedef unsigned long nfds_t
    cdef struct pollfd:
        int fd
        short events
        short revents
    int poll(pollfd *fds, nfds_t nfds, int timeout)
