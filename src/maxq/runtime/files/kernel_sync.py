"""fdatasync that the kernel does by itself (Linux AIO, IOCB_CMD_FDSYNC), its end told to the running loop.

A thread for each sync costs more than a quick disk: two changes of thread, a fight for the interpreter, and three turns
of the loop. Here the kernel takes the order in one call, and an eventfd that the loop watches tells when it is done.
Where the kernel has none of it, or refuses (a sandbox, aio-max-nr), there is a thread for each sync as before.
"""

import asyncio
import ctypes
import os
import struct
import sys
from collections.abc import Callable
from errno import EINTR
from typing import Final

#: io_setup, io_destroy, io_getevents, io_submit
_CALLS: Final = {"x86_64": (206, 207, 208, 209), "aarch64": (0, 1, 4, 2)}.get(os.uname().machine)
#: Has this system Linux AIO and eventfd? The kernel may refuse it all the same.
IS_POSSIBLE: Final = _CALLS is not None and sys.platform == "linux" and hasattr(os, "eventfd")
#: struct iocb: data, key, flags, opcode, priority, descriptor, buffer, bytes, offset, reserved, flags, eventfd
_ORDER: Final = struct.Struct("=QIIHhIQQqQII")
_FDSYNC: Final = 3
_RESFD: Final = 1  # flag: the eventfd is signalled at the end
_EVENT: Final = struct.Struct("=QQqq")  # struct io_event: data, order, result, second result
_MOST: Final = 32  # most syncs under way at a time; further ones use threads

Done = Callable[[OSError | None], None]


class KernelSync:
    """Asynchronous syncs by the kernel (Linux AIO) for one disk; used by one loop at a time."""

    def __init__(self) -> None:
        self._ring: _Ring | None = None
        self._is_refused = not IS_POSSIBLE

    def begin(self, fd: int, done: Done) -> bool:
        """Make the data of a file durable in the kernel, as fdatasync does. The descriptor may be closed meanwhile.

        Args:
            done: called on the running loop, never from within: None, or the device's refusal.

        Returns:
            False: not here and now; nothing was begun.
        """
        if self._is_refused:
            return False
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return False
        ring = self._ring
        if ring is None or ring.loop is not loop:
            try:
                ring = self._ring = _Ring(loop)
            except (OSError, NotImplementedError):
                self._is_refused = True
                return False
        return ring.submit(fd, done)


class _Ring:
    """The syncs of one loop that are on their way; it lives as long as the loop watches it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        """Open the ring. Raises OSError if the kernel refuses, NotImplementedError if the loop cannot watch
        descriptors."""
        self.loop = loop
        self._orders: dict[int, Done] = {}
        self._last = 0
        self._events = ctypes.create_string_buffer(_EVENT.size * _MOST)
        self._order = ctypes.create_string_buffer(_ORDER.size)
        self._list = (ctypes.c_void_p * 1)(ctypes.addressof(self._order))
        self._context = ctypes.c_ulong(0)
        self._eventfd = -1
        if _call(0, _MOST, ctypes.byref(self._context)) < 0:
            raise OSError(ctypes.get_errno(), "io_setup")
        self._eventfd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        loop.add_reader(self._eventfd, self._ended)

    def submit(self, fd: int, done: Done) -> bool:
        """Submit a sync. Returns False if the kernel accepts none now."""
        if len(self._orders) >= _MOST:
            return False
        self._last += 1
        _ORDER.pack_into(self._order, 0, self._last, 0, 0, _FDSYNC, 0, fd, 0, 0, 0, 0, _RESFD, self._eventfd)
        if _call(3, self._context, 1, self._list) != 1:
            return False
        self._orders[self._last] = done
        return True

    def _ended(self) -> None:
        try:
            os.eventfd_read(self._eventfd)
        except BlockingIOError:  # a second signal for the same events
            return
        count = _call(2, self._context, 0, _MOST, self._events, None)
        while count < 0 and ctypes.get_errno() == EINTR:
            count = _call(2, self._context, 0, _MOST, self._events, None)
        assert count >= 0, f"io_getevents: {os.strerror(ctypes.get_errno())}"
        for number, _, result, _ in list(_EVENT.iter_unpack(self._events.raw[: count * _EVENT.size])):
            self._orders.pop(number)(None if result == 0 else OSError(-result, os.strerror(-result)))

    def __del__(self) -> None:
        if self._context.value:
            _call(1, self._context)  # waits for syncs that are under way
        if self._eventfd >= 0:
            os.close(self._eventfd)


def _system_call() -> Callable[..., int]:
    call = ctypes.CDLL(None, use_errno=True).syscall
    call.restype = ctypes.c_long
    return lambda which, *arguments: int(call(_CALLS[which], *arguments))  # type: ignore[index]


_call: Final = _system_call()
