"""Lines in and out of pipes: `LineReader` and `LineWriter` know what the other side of a pipe has taken.

`maxq consume` commits what the reader of its output has taken out of the pipe, and `maxq produce` takes a line out of
its pipe when the message made of it was acknowledged. So `maxq consume … | maxq produce …` loses nothing, whichever of
the two is interrupted or killed. For other files, and for terminals, written lines count as taken.
"""

import asyncio
import ctypes
import fcntl
import os
import select
import stat
import struct
import sys
import termios
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import BinaryIO, Final, Generic, TypeVar

from maxq.errors import ConfigError

Mark = TypeVar("Mark")

_CHUNK: Final = 64 * 1024
_PIPE_BYTES: Final = 256 * 1024  # size asked for: a line stays in the pipe until its message is acknowledged
_LONGEST_LINE: Final = 64 << 20  # bytes
_ATOMIC: Final = 4096  # bytes that a pipe which poll calls writable takes without waiting (PIPE_BUF)
_LOOK_SECONDS: Final = 0.002
_ALL_AT_ONCE: Final = 1024  # lines; a reader that took so many in a row will take more
_NONBLOCK: Final = 2  # SPLICE_F_NONBLOCK


def _is_pipe(fd: int) -> bool:
    return stat.S_ISFIFO(os.fstat(fd).st_mode)


def _unread(fd: int) -> int:
    """Return the number of bytes in a pipe that have not been read."""
    found: int = struct.unpack("i", fcntl.ioctl(fd, termios.FIONREAD, bytes(4)))[0]
    return found


def _resize(fd: int, size: int) -> None:
    try:
        fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, size)
    except OSError:  # above the user's limit: the pipe keeps its size
        return


# --- in --------------------------------------------------------------------------------------------------------------


class LineReader:
    """Reads lines as they arrive, with the position behind each; one thread reads, any thread may report progress.

    In a pipe a line stays until `done` names a position behind it: a copy is read (tee), and who writes the pipe sees
    the line as not taken. If this process is killed, the line goes with the pipe, and its writer knows.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._fd = file.fileno()
        self._done = 0  # position up to which all lines are finished
        self._told = threading.Event()
        self._is_stopped = False
        self._tee = _tee() if _is_pipe(self._fd) else None

    def done(self, position: int) -> None:
        """Note that the messages of all lines before `position` in the pipe are acknowledged."""
        self._done = position
        self._told.set()

    def stop(self) -> None:
        """Let `lines` end, because nobody waits for more of them."""
        self._is_stopped = True
        self._told.set()

    def lines(self) -> Iterator[tuple[int, bytes]]:
        """Yield each line, including its end of line, and the position behind it. Raises ConfigError at a line that is
        larger than any message."""
        position, size = 0, 0
        begun: list[bytes] = []  # parts of an incomplete line, `size` bytes
        for data in self._data() if self._tee is None else self._peeked():
            if b"\n" not in data:
                begun.append(data)
                size += len(data)
                if size > _LONGEST_LINE:
                    raise ConfigError(
                        f"the line that begins at byte {position} of the input has more than {_LONGEST_LINE >> 20} "
                        "MiB, which no message has"
                    )
                continue
            *whole, rest = b"".join([*begun, data]).split(b"\n")
            begun, size = [rest], len(rest)
            for line in whole:
                position += len(line) + 1
                yield position, line + b"\n"
                if self._is_stopped:
                    return
        if size:
            yield position + size, b"".join(begun)

    def _data(self) -> Iterator[bytes]:
        while data := os.read(self._fd, _CHUNK):
            yield data

    def _peeked(self) -> Iterator[bytes]:
        """Yield the content of the pipe without taking it out."""
        assert self._tee is not None, "it is a pipe"
        # positions up to which bytes were taken out, were seen, and end whole lines
        fd, taken, seen, line_end = self._fd, 0, 0, 0
        out, into = os.pipe()
        _resize(fd, _PIPE_BYTES)
        _resize(into, fcntl.fcntl(fd, fcntl.F_GETPIPE_SZ))
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        while not self._is_stopped:
            self._told.clear()
            # an incomplete line is kept in memory and need not stay in the pipe
            done = seen if self._done >= line_end else self._done
            while taken < done:
                taken += len(os.read(fd, done - taken))
            unread = _unread(fd)
            if taken + unread == seen:
                if any(events & select.POLLHUP for _, events in poll.poll(None if taken == seen else 0)):
                    if taken + _unread(fd) == seen:
                        return
                elif taken < seen:
                    self._told.wait(_LOOK_SECONDS)
                continue
            if seen - taken > _CHUNK:
                # each copy begins with bytes that were seen before: not worth it for a few new ones
                self._told.wait(_LOOK_SECONDS)
            count = self._tee(fd, into, unread, _NONBLOCK)
            if count <= seen - taken:  # the copy was too short to show new bytes: earlier lines must be finished first
                self._told.wait(_LOOK_SECONDS)
            data = b""
            while len(data) < count:
                data += os.read(out, count - len(data))
            new = data[seen - taken :]
            if new:
                last = new.rfind(b"\n")
                line_end = line_end if last < 0 else seen + last + 1
                seen += len(new)
                yield new


def _tee() -> Callable[[int, int, int, int], int] | None:
    """Return Linux's tee(2), or None where there is none."""
    found: Callable[[int, int, int, int], int] | None = getattr(ctypes.CDLL(None), "tee", None)
    return found


class InOrder:
    """Tracks which of numbered items are done, up to the first that is not. Numbers go from 0, in the order of
    `add`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: deque[int] = deque()  # positions behind lines that are not finished
        self._first = 0  # number of the first of these lines
        self._done: set[int] = set()

    def add(self, position: int) -> None:
        """Add the next item, which ends at `position`."""
        with self._lock:
            self._open.append(position)

    def skip(self, position: int) -> int | None:
        """Note that no further item ends before `position`. Returns the position up to which all are done, if that has
        changed."""
        with self._lock:
            if not self._open:
                return position
            self._open[-1] = position
            return None

    def finish(self, number: int) -> int | None:
        """Note that an item is done. Returns the position up to which all are done, if that has changed."""
        with self._lock:
            self._done.add(number)
            position = None
            while self._first in self._done:
                self._done.remove(self._first)
                self._first += 1
                position = self._open.popleft()
            return position


# --- out -------------------------------------------------------------------------------------------------------------


class LineWriter(Generic[Mark]):
    """Writes lines to standard output, and tells the marks of those that its reader has taken.

    Into a pipe the first line goes alone, and more follow when it was taken: twice as many each time, so that of
    `maxq consume … | head -1` one line is taken. It never makes the loop wait for a reader.
    """

    def __init__(self) -> None:
        sys.stdout.flush()
        self._fd = sys.stdout.buffer.fileno()
        self._is_pipe = _is_pipe(self._fd)
        self._written = 0  # bytes
        self._marks: deque[tuple[int, Mark]] = deque()  # position behind a line, its mark
        self._window = 1 if self._is_pipe else _ALL_AT_ONCE
        self._poll = select.poll()
        self._poll.register(self._fd, select.POLLOUT)

    async def write(self, lines: Iterable[tuple[bytes, Mark]]) -> None:
        """Write lines (without their end) in turn.

        Raises:
            BrokenPipeError: nobody reads any more.
        """
        waiting = deque(lines)
        while waiting:
            count = len(waiting) if self._window >= _ALL_AT_ONCE else min(self._window, len(waiting))
            some = [waiting.popleft() for _ in range(count)]
            position = self._written
            for line, mark in some:
                position += len(line) + 1
                self._marks.append((position, mark))
            await self._put(b"".join([line + b"\n" for line, _ in some]))
            if self._window < _ALL_AT_ONCE:
                await self.all_taken()
                self._window *= 2

    async def _put(self, data: bytes) -> None:
        step = _ATOMIC if self._is_pipe else len(data)
        for start in range(0, len(data), step):
            piece = memoryview(data)[start : start + step]
            while self._is_pipe and not self._has_reader_with_room():  # noqa: ASYNC110 (its reader offers no event)
                await asyncio.sleep(_LOOK_SECONDS)
            while piece:
                count = os.write(self._fd, piece)
                self._written += count
                piece = piece[count:]

    def _has_reader_with_room(self) -> bool:
        events = sum(found for _, found in self._poll.poll(0))
        if events & (select.POLLERR | select.POLLHUP):
            raise BrokenPipeError
        return bool(events & select.POLLOUT)

    async def all_taken(self) -> None:
        """Wait until the reader has taken everything. Raises BrokenPipeError: it never will."""
        while self._is_pipe and _unread(self._fd):
            self._has_reader_with_room()
            await asyncio.sleep(_LOOK_SECONDS / 4)

    def taken(self) -> list[Mark]:
        """Marks of lines that were taken since the last call, in order."""
        position = self._written - (_unread(self._fd) if self._is_pipe else 0)
        found = []
        while self._marks and self._marks[0][0] <= position:
            found.append(self._marks.popleft()[1])
        return found
