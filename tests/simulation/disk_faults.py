"""Faults of the disk, drawn from a seed: any call may fail, of any kind of file, alone or for a while.

A failed sync drops the pages that it covered, a failed write may have put a part, and a call that does several things
fails between them (see SimDisk.faults).
"""

import asyncio
import errno
from collections import Counter
from typing import Final

from maxq.store.message_store import MessageStore
from maxq.testing.sim_rng import SimRng

_STOPS_AFTER_S: Final = 0.002
_WRITES: Final = (errno.ENOSPC, errno.ENOSPC, errno.EIO, errno.EDQUOT)
_ERRORS: Final[dict[str, tuple[int, ...]]] = {
    "read": (errno.EIO, errno.EINTR), "list": (errno.EIO, errno.EMFILE), "usage": (errno.EIO,),
    "make_dirs": _WRITES, "open": (errno.EMFILE, errno.EIO), "create": (*_WRITES, errno.EMFILE),
    "write": _WRITES, "replace": _WRITES, "rename": (errno.EIO, errno.ENOSPC), "delete": (errno.EIO, errno.EROFS),
    "lock": (errno.EIO,), "put": (*_WRITES, errno.EINTR), "allocate": (errno.ENOSPC, errno.EDQUOT, errno.EINTR),
    "flush": (errno.EIO, errno.EIO, errno.ENOSPC),
}  # fmt: skip


class FaultMix:
    """A SimDisk.faults.

    Attributes:
        seen: how often a call of a kind has failed, by kind and kind of file.
    """

    def __init__(self, rng: SimRng, spared: tuple[str, ...] = ()) -> None:
        """Calls to paths that contain one of `spared` never fail."""
        self._rng = rng
        self._spared = spared
        self._rate = rng.choice((0.0005, 0.003, 0.02))
        self._burst = rng.choice((1, 1, 3, 12))
        self._left = 0  # calls of the burst that are still to come
        self.seen: Counter[str] = Counter()

    def __call__(self, kind: str, path: str) -> int:
        if any(part in path for part in self._spared):
            return 0
        if self._left:
            self._left -= 1
            fails = self._rng.chance(0.7)
        else:
            fails = self._rng.chance(self._rate)
            if fails:
                self._left = self._rng.below(self._burst)
        if not fails:
            return 0
        self.seen[f"{kind} {_kind_of_file(path)}"] += 1
        return self._rng.choice(_ERRORS[kind])


class OneRefusal:
    """A SimDisk.faults: the first write of a file that is replaced as a whole, with this name, is refused, and nothing
    else is.

    Attributes:
        has_happened: it was.
    """

    def __init__(self, name: str, error: int) -> None:
        self._name = name
        self._error = error
        self.has_happened = False

    def __call__(self, kind: str, path: str) -> int:
        if self.has_happened or kind != "replace" or not path.endswith(f"/{self._name}"):
            return 0
        self.has_happened = True
        return self._error


class SelfStop:
    """A broker whose log failed to sync, or one of whose services has failed, stops itself; not before it has answered
    some more requests."""

    def __init__(self) -> None:
        self.ordered = asyncio.Event()

    def watch(self, store: MessageStore) -> None:
        """Order it when the log of this one fails to sync."""
        inner = store.flusher.fail

        def fail(error: BaseException) -> None:
            inner(error)
            self.ordered.set()

        store.flusher.fail = fail  # type: ignore[method-assign]

    async def come(self) -> None:
        """Return when the process is to end."""
        await self.ordered.wait()
        await asyncio.sleep(_STOPS_AFTER_S)


def nothing_fails(kind: str, path: str) -> int:
    """A SimDisk.faults of a disk that works."""
    return 0


def _kind_of_file(path: str) -> str:
    """The folder below the store's, or the file's name without what differs from one to the next."""
    parts = path.split("/")
    return parts[2].rstrip("0123456789-.") if len(parts) > 2 else path
