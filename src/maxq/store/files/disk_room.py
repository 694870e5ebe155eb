"""A disk without room is not a broken one: the store waits for room, where any other error of the disk ends it.

Sends are refused as soon as the log gets no blocks any more (block_reserve.py), and dispatch stops where a queue or the
index gets none; readers go on. Once a second both are tried again.
"""

import asyncio
import errno
import logging
from collections.abc import Callable

from maxq.runtime.interfaces import SyncFailedError
from maxq.store.context.running_flags import LOGICS_ERROR, NO_ROOM
from maxq.store.context.store_context import StoreContext

log = logging.getLogger(__name__)

_RETRY_SECONDS = 1.0


class DiskRoom:
    """Whether the disk has room for the log; retries while it has none."""

    def __init__(self, context: StoreContext, make_room: Callable[[int], None], dispatch: Callable[[], None]) -> None:
        """
        Args:
            make_room: get blocks for so many bytes of log; OSError if there are none.
            dispatch: dispatch what there is to dispatch; notes its own errors.
        """
        self._context = context
        self._make_room = make_room
        self._dispatch = dispatch
        self._wanted = 0

    def lacks(self, error: OSError, size: int) -> None:
        """Refuse messages until the disk has room, because the log could not allocate blocks for `size` bytes."""
        self._wanted = max(size, 1)
        reason = (
            f"the disk is full: {self._context.commit_log_folder} needs room for {self._wanted} bytes of log at least, "
            f"{self._free()} bytes are free ({error.strerror}); free space, shorten fileReservedTime, or give the "
            "store a larger disk"
        )
        if not self._context.flags.has(NO_ROOM):
            log.error("%s; it is tried again every second", reason)
        self._context.flags.set(NO_ROOM, reason)

    def _free(self) -> str:
        try:
            return str(self._context.disk.usage(self._context.commit_log_folder).free)
        except OSError as error:
            return f"an unknown number of ({error})"

    async def run(self) -> None:
        """Try again at intervals what failed because the disk was full, until the task is cancelled."""
        while True:
            await asyncio.sleep(_RETRY_SECONDS)
            self.try_again()

    def try_again(self) -> None:
        """Retry the waiting allocations if there are any."""
        flags = self._context.flags
        if flags.has(LOGICS_ERROR):
            self._dispatch()
        if flags.has(NO_ROOM):
            try:
                self._make_room(self._wanted)
            except OSError as error:
                self.lacks(error, self._wanted)
            else:
                flags.clear(NO_ROOM)
                self._dispatch()  # the last file may have been closed, so that dispatch has work again
                log.warning("the disk has room again: messages are accepted")


def lacks_room(error: OSError) -> bool:
    """Return whether an error means that the file system, or the user's quota on it, was full, so that the operation
    may be retried. A failed sync is final, also for want of room: returns False."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT) and not isinstance(error, SyncFailedError)
