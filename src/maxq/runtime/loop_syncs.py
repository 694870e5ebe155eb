"""How somebody who runs on a loop syncs a disk: at once, if that is a moment, else by the kernel beside the loop.

A quick disk syncs a page in 0.2 ms. Whoever waits for that waits as long again for what comes on top: a thread that
wakes, the interpreter that is handed over twice, turns of the loop. But a loop that waits for the disk does nothing
else, so it does that for a part of the time only, and not while the disk is slow.
"""

import os
import time
from typing import Final

from maxq.runtime.kernel_sync import Done, KernelSync

#: The loop waits for the disk during one part in so many of the time,
_SHARE: Final = 3
#: or for so long, if it has not for some time.
_BURST_NS: Final = 2_000_000
#: After a sync that took longer, which a thread's cost is little beside,
_SLOW_NS: Final = 1_000_000
#: the loop does not wait for this disk for so many times as long.
_REST: Final = 30


class LoopSyncs:
    """Of one disk."""

    def __init__(self) -> None:
        self._kernel = KernelSync()
        self._debt_ns = 0  # time waited, not worked off yet
        self._looked_ns = 0
        self._not_before_ns = 0

    def at_once(self, fd: int) -> bool:
        """fdatasync here and now, if that should be a moment. False: not now; nothing was done.

        Raises:
            OSError: the device refuses.
        """
        began = time.monotonic_ns()
        if began < self._not_before_ns:
            return False
        debt = self._debt_ns = max(0, self._debt_ns - (began - self._looked_ns) // _SHARE)
        self._looked_ns = began
        if debt > _BURST_NS:
            return False
        os.fdatasync(fd)
        ended = time.monotonic_ns()
        self._debt_ns += ended - began
        if ended - began > _SLOW_NS:
            self._not_before_ns = ended + _REST * (ended - began)
        return True

    def begin(self, fd: int, done: Done) -> bool:
        """See KernelSync.begin."""
        return self._kernel.begin(fd, done)
