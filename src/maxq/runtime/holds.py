"""Holds: what kept the loop from everything else for more than 50 ms, and how often.

One loop serves everybody, so what takes long there makes all wait. Requests are measured by code, what takes several of
an arrival at once as `batch` (from 32 KiB on), answers, frames that cannot be decoded and what the end of a connection
brings about as such, periodic and store tasks by their names. A coroutine is measured from one of its waits to the
next. The metrics `maxq_loop_holds_total` and `maxq_loop_held_milliseconds_total` and the command `why-slow` tell what
was counted since the start.
"""

import types
from collections.abc import Awaitable, Callable, Generator
from contextvars import ContextVar
from typing import Any, Final, TypeVar

from maxq.runtime.interfaces import Clock

LIMIT_MS: Final = 50
BATCH: Final = "batch"
LONG_BATCH: Final = 32_768  # bytes; shorter batches cannot take long, and reading a clock twice can cost 1 µs
ANSWER: Final = "answer"
FRAME: Final = "frame"
CLOSE: Final = "close"
_OTHERS: Final = "others"
_MOST_CAUSES: Final = 500

Result = TypeVar("Result")


class Hold:
    """How often one request code or task held the event loop for too long, and for how many nanoseconds."""

    __slots__ = ("count", "longest_ns", "total_ns")

    def __init__(self) -> None:
        self.count = self.total_ns = self.longest_ns = 0


class Holds:
    """The holds of one server's loop.

    Attributes:
        now: nanoseconds; `ended` is given what it said before.
        limit_ns: what takes no longer is not counted.
        by_cause: the key is a request code or a name.
    """

    def __init__(self, clock: Clock) -> None:
        self.now: Callable[[], int] = clock.monotonic_ns
        self.limit_ns = LIMIT_MS * 1_000_000
        self.by_cause: dict[int | str, Hold] = {}

    def ended(self, cause: int | str, began_ns: int) -> None:
        """Count work that ran on the event loop from `began_ns` (of `now`) until now, if that was longer than the
        limit."""
        took_ns = self.now() - began_ns
        if took_ns > self.limit_ns:
            self._count(cause, took_ns)

    def _count(self, cause: int | str, took_ns: int) -> None:
        if cause not in self.by_cause and len(self.by_cause) >= _MOST_CAUSES:
            cause = _OTHERS
        hold = self.by_cause.setdefault(cause, Hold())
        hold.count += 1
        hold.total_ns += took_ns
        hold.longest_ns = max(hold.longest_ns, took_ns)

    async def watch(self, cause: int | str, work: Awaitable[Result]) -> Result:
        """Await `work`; each of its runs between two waits that takes longer than the limit counts for `cause`."""
        return await self._steps(cause, work)

    @types.coroutine
    def _steps(self, cause: int | str, work: Awaitable[Result]) -> Generator[Any, Any, Result]:
        steps = work.__await__()
        began_ns = self.now()
        try:
            waits_for = next(steps)
            while True:
                self.ended(cause, began_ns)
                try:
                    sent = yield waits_for
                except BaseException as error:  # every exception that is thrown into the coroutine belongs to `work`
                    began_ns = self.now()
                    waits_for = steps.throw(error)
                else:
                    began_ns = self.now()
                    waits_for = steps.send(sent)
        except StopIteration as end:
            found: Result = end.value
            return found
        finally:
            self.ended(cause, began_ns)


#: The holds of the broker that is started in this context; tasks that begin there inherit it.
CURRENT: Final[ContextVar[Holds | None]] = ContextVar("holds", default=None)


async def watched(name: str, work: Awaitable[Result]) -> Result:
    """Await `work` and return its result. How long each of its steps keeps the event loop is counted under `name` in
    the `Holds` of the server that was started in this context; outside of a server nothing is counted."""
    holds = CURRENT.get()
    return await work if holds is None else await holds.watch(name, work)
