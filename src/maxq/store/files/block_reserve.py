"""Blocks of the file system below a writer, before it writes.

Mapped files are sparse. A write to a page that has no block makes the kernel find one, and on a full disk it then kills
the process (SIGBUS). So a writer only ever writes where blocks were allocated before, in steps, with `posix_fallocate`;
without room that call fails, and the store refuses messages (disk_room.py).
"""

from collections.abc import Callable

from maxq.runtime.interfaces import MappedRegion
from maxq.store.files.disk_room import lacks_room
from maxq.store.files.executor_jobs import ExecutorJobs
from maxq.store.files.mapped_file import OS_PAGE_SIZE

_NEVER = 1 << 62
_LEAST_STEP = 64 << 10
_SMALL_FILE_STEP = 1 << 20
#: A unit of a queue is written whole if there is this much.
UNIT_ROOM = 64


class BlockReserve:
    """The allocated blocks of one file. It allocates a little more ahead of need.

    Attributes:
        end: bytes below may be written by who goes on writing at `position`.
    """

    __slots__ = ("_busy", "_jobs", "_on_more", "_region", "_size", "_step", "_wake_at", "end")

    def __init__(
        self,
        jobs: ExecutorJobs,
        region: MappedRegion,
        position: int,
        size: int,
        step: int,
        on_more: Callable[["BlockReserve"], None],
    ) -> None:
        """
        Args:
            position: where in the file of `size` bytes the writer goes on. Nothing is allocated yet.
            step: so much at a time.
            on_more: called when more was allocated in the background.
        """
        self._jobs = jobs
        self._region = region
        self._size = size
        self._step = step
        self._on_more = on_more
        self._busy = False
        self._wake_at = _NEVER
        self.end = position

    @property
    def is_whole(self) -> bool:
        """Whether everything up to the file's end is allocated."""
        return self.end >= self._size

    def more(self, least: int = 0) -> None:
        """Allocate the next step, and at least `least` bytes; less than a step if there is no room for a whole one.

        Raises:
            OSError: not even that.
        """
        least = max(least, _LEAST_STEP)
        step = max(least, self._step)
        while True:
            stop = min(self._size, self.end + step)
            try:
                self._region.allocate(self.end, stop)
            except OSError as error:
                if step <= least or not lacks_room(error):
                    raise
                step = max(least, step // 4)
                continue
            self._advance(stop)
            return

    def move_to(self, position: int) -> None:
        """Note that the writer is at `position`, and allocate the next step before it is needed. Cheap."""
        if position >= self._wake_at and not self._busy:
            self._allocate_ahead()

    def _allocate_ahead(self) -> None:
        start, stop = self.end, min(self._size, self.end + self._step)
        future = self._jobs.start(lambda: self._region.allocate(start, stop))
        if future is None:
            self._wake_at = _NEVER  # shutting down: the writer allocates what it needs itself
            return
        self._busy = True

        def done() -> None:
            self._busy = False
            if future.cancelled() or future.exception() is not None:
                self._wake_at = _NEVER  # no room for a whole step: the writer takes what is left
            elif stop > self.end:
                self._advance(stop)
                self._on_more(self)

        future.add_done_callback(lambda _: done())

    def _advance(self, stop: int) -> None:
        self.end = stop
        self._wake_at = _NEVER if stop >= self._size else stop - self._step // 2


def back_units(region: MappedRegion, position: int, size: int) -> int:
    """Allocate blocks for the next units of a queue file: few at first, because there may be many queues, and more as
    the file grows.

    Args:
        position: where the next unit goes.
        size: of the file.

    Returns:
        The byte up to which may be written.

    Raises:
        OSError: there is no room for a single unit.
    """
    wanted = position + UNIT_ROOM
    if wanted < _SMALL_FILE_STEP:
        stop = max(OS_PAGE_SIZE, 1 << wanted.bit_length())
    else:
        stop = -(-wanted // _SMALL_FILE_STEP) * _SMALL_FILE_STEP
    try:
        region.allocate(position, min(size, stop))
    except OSError as error:
        if not lacks_room(error):
            raise
        stop = -(-wanted // OS_PAGE_SIZE) * OS_PAGE_SIZE
        region.allocate(position, min(size, stop))
    return min(size, stop)
