"""Requests of ours on one connection: who waits for which answer, how many may, and what they hear if none comes."""

import asyncio
from collections.abc import Callable

from maxq.errors import RemotingSendError, RemotingTimeoutError
from maxq.protocol.frame.remoting_command import RemotingCommand


class ReplySlot:
    """Where the answer to a request of `Connection.request` goes; one slot may serve many requests."""

    __slots__ = ("_on_reply",)

    def __init__(self, on_reply: Callable[[RemotingCommand | None], None]) -> None:
        self._on_reply = on_reply

    def done(self) -> bool:
        return False

    def set_result(self, command: RemotingCommand) -> None:
        self._on_reply(command)

    def set_exception(self, error: BaseException) -> None:
        self._on_reply(None)


class PendingRequests:
    """By opaque.

    Attributes:
        count: how many there ever were.
    """

    __slots__ = ("_limit", "_waiters", "count")

    def __init__(self, limit: int) -> None:
        """`limit`: so many may wait."""
        self._limit = limit
        self.count = 0
        self._waiters: dict[int, asyncio.Future[RemotingCommand] | ReplySlot] = {}

    def __len__(self) -> int:
        return len(self._waiters)

    def check_room(self, address: str) -> None:
        """RemotingSendError: no further request may wait on this connection, which leads to `address`."""
        if len(self._waiters) >= self._limit:
            text = f"{len(self._waiters)} requests wait for answers of <{address}>, which is the limit"
            raise RemotingSendError(text, address=address)

    def add(self, opaque: int, waiter: "asyncio.Future[RemotingCommand] | ReplySlot") -> None:
        """`waiter` gets the answer to this request."""
        self.count += 1
        self._waiters[opaque] = waiter

    def forget(self, opaque: int) -> None:
        """Nobody waits any more for the answer to this request."""
        self._waiters.pop(opaque, None)

    def answered(self, command: RemotingCommand) -> bool:
        """An answer came. False: nobody waits for it."""
        waiter = self._waiters.pop(command.opaque, None)
        if waiter is None:
            return False
        if not waiter.done():
            waiter.set_result(command)
        return True

    def fail(self, error: Exception) -> None:
        """No answer comes any more."""
        waiters, self._waiters = self._waiters, {}
        for waiter in waiters.values():
            if not waiter.done():
                waiter.set_exception(error)


def time_out(future: "asyncio.Future[RemotingCommand]", address: str, timeout_ms: int) -> None:
    """The answer of `address` did not come within `timeout_ms`, if it did not."""
    if not future.done():
        text = f"wait response on the channel <{address}> timeout, {timeout_ms}(ms)"
        future.set_exception(RemotingTimeoutError(text, address=address, timeout_ms=timeout_ms))
