"""UnfinishedFrames: what all connections of an endpoint hold of frames whose ends have not come, bounded in sum.

A frame may have 16 MiB, and anybody can begin one on each of many connections without ever sending its end. Each
connection that keeps more than `COUNTED` bytes is entered with what it keeps. When the sum passes the limit,
connections are ended until it does not: first those from which no request has been let through yet, then the others,
and of each kind the one whose frame began first. Frames of active clients are complete within moments, so old ones
belong to other clients.
"""

from typing import Final, Protocol

__all__ = ["COUNTED", "Holder", "UnfinishedFrames"]

#: Most bytes of an incomplete frame that a connection may keep without being counted.
COUNTED: Final = 16 * 1024


class Holder(Protocol):
    """The interface of a connection that keeps part of a frame, for `UnfinishedFrames`."""

    is_known: bool  # one of its requests was allowed

    def end_unfinished(self, total: int, limit: int) -> None:
        """End the connection, because all connections together hold `total` bytes and only `limit` are allowed. It
        gives its own bytes back (`release`)."""
        ...


class UnfinishedFrames:
    """The bytes of unfinished frames that each connection holds. `total` is their sum and stays at or below `limit`."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.total = 0
        self._held: dict[Holder, int] = {}  # in the order in which the frames began

    def hold(self, holder: Holder, size: int) -> None:
        """Note that `holder` keeps `size` bytes of one frame. Its connection may be ended before this returns."""
        held = self._held
        self.total += size - held.get(holder, 0)
        held[holder] = size
        while self.total > self.limit:
            oldest = next((one for one in held if not one.is_known), None) or next(iter(held))
            oldest.end_unfinished(self.total, self.limit)
            self.release(oldest)

    def release(self, holder: Holder) -> None:
        """Note that a frame is whole, or that its connection is closed."""
        self.total -= self._held.pop(holder, 0)
