"""Blocking work off the loop, seen through to its end.

A thread cannot be cancelled. Whoever only awaits `run_in_executor` and is cancelled goes on, and closes or rewrites
files, while the thread still works on them. So here a cancelled caller is cancelled only when the work has ended.
"""

import asyncio
from collections.abc import Callable
from typing import TypeVar, TypeVarTuple

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


async def run_blocking(work: Callable[[*Ts], T], *args: *Ts) -> T:
    """`work(*args)` on the loop's executor; its value or error. A cancellation waits for its end."""
    return await ended(asyncio.get_running_loop().run_in_executor(None, work, *args))


async def ended(future: "asyncio.Future[T]") -> T:
    """The outcome of `future`, which is never cancelled from here: a cancellation waits for its end."""
    cancellation: asyncio.CancelledError | None = None
    while not future.done():
        try:
            await asyncio.wait([future])
        except asyncio.CancelledError as error:
            cancellation = error
    if cancellation is not None:
        if not future.cancelled():
            future.exception()  # seen: the caller does not want it any more
        raise cancellation
    return future.result()
