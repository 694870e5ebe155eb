"""PullAnswerReader: scans the answers to pulls of streams, many at a time, where they lie in the receive buffer.

Neither the frame nor its header becomes an object, and records are copied once, into their messages.
"""

from typing import TYPE_CHECKING

try:
    import cython
except ModuleNotFoundError:
    from maxq.runtime import cython  # type: ignore[no-redef]

if cython.compiled:
    from cython.cimports.maxq.protocol.frame.frame_scanner_cy import AnswerScanner
    from cython.cimports.maxq.runtime.buffers import same_bytes
else:
    from maxq.protocol.frame.frame_scanner_cy import AnswerScanner
    from maxq.runtime.buffers import same_bytes

if TYPE_CHECKING:
    from maxq.remoting.connection import Connection


@cython.cclass
class PullAnswerReader(AnswerScanner):
    """Reads answers to pulls that found something.

    Args:
        stream_type: what waits for such an answer has this type, and a method `found`.
    """

    _numbers = cython.declare(cython.longlong[4])  # nextBeginOffset, minOffset, maxOffset, suggestWhichBrokerId

    def __init__(
        self,
        stream_type,  # type: type
    ):
        self.signed = False
        self._waiter_type = stream_type
        if not cython.compiled:
            self._numbers = [0] * 4

    def take(
        self,
        connection,  # type: Connection
        buffer: cython.uchar[::1],  # type: bytearray | memoryview
        start: cython.Py_ssize_t,
        end: cython.Py_ssize_t,
    ):
        # type: (...) -> int
        """Take the leading answers in buffer[start:end]. Returns the position behind them."""
        waiters: dict = connection.waiters
        buf: cython.p_uchar
        if cython.compiled:
            buf = cython.address(buffer[0])
        else:
            buf = memoryview(buffer)
        view: object = None
        while waiters and not connection.is_held_back:
            waiter = self._next(waiters, buf, start, end)
            if waiter is None:
                break
            if view is None:
                view = memoryview(buffer.base if cython.compiled else buffer)  # its `obj` is the buffer itself
            if not waiter.found(
                self._numbers[0],
                self._numbers[1],
                self._numbers[2],
                self._numbers[3],
                view[self._body : self._answer_end],
            ):
                break
            start = self._answer_end
        return start

    @cython.cfunc
    @cython.exceptval(check=False)
    def _begin(self) -> cython.void:
        i: cython.int
        self._numbers[0] = -1
        for i in range(1, 4):
            self._numbers[i] = 0

    @cython.cfunc
    @cython.exceptval(check=False)
    def _is_whole(self) -> cython.bint:
        return self._numbers[0] >= 0

    @cython.cfunc
    @cython.exceptval(check=False)
    def _wants(self) -> cython.bint:
        return self._code == 0

    @cython.cfunc
    @cython.exceptval(check=False)
    def _field(self, buf: cython.p_uchar, key: cython.Py_ssize_t, key_size: cython.Py_ssize_t) -> cython.bint:
        slot: cython.int = -1
        if key_size == 9:
            if same_bytes(buf, key, key_size, b"minOffset"):
                slot = 1
            elif same_bytes(buf, key, key_size, b"maxOffset"):
                slot = 2
        elif key_size == 11:
            if same_bytes(buf, key, key_size, b"offsetDelta"):
                return False  # of a static topic
        elif key_size == 15:
            if same_bytes(buf, key, key_size, b"nextBeginOffset"):
                slot = 0
        elif key_size == 20 and same_bytes(buf, key, key_size, b"suggestWhichBrokerId"):
            slot = 3
        if slot >= 0:
            self._numbers[slot] = self._integer(buf)
            return self._numbers[slot] >= 0
        return True
