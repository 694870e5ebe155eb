"""Asking several servers the same at the same time, when one of them may hang."""

import asyncio
from collections.abc import Collection
from typing import Final, TypeVar

T = TypeVar("T")

#: How long one name server is waited for when another has answered, or can be asked.
SILENT_SECONDS: Final = 0.25


async def until_answered(asked: Collection[asyncio.Task[T]]) -> list[T]:
    """Wait until all have answered or failed. Once one has answered, wait for the others only for a moment
    (SILENT_SECONDS).

    Returns:
        The answers that came. Tasks that have not ended continue: ending them, and their errors, are left to the
            caller.
    """
    loop = asyncio.get_running_loop()
    waiting = set(asked)
    answers: list[T] = []
    end = 0.0
    while waiting:
        left = max(0.0, end - loop.time()) if answers else None
        done, waiting = await asyncio.wait(waiting, timeout=left, return_when=asyncio.FIRST_COMPLETED)
        if not done:
            break
        had_none = not answers
        answers += [task.result() for task in done if not task.cancelled() and task.exception() is None]
        if had_none:
            end = loop.time() + SILENT_SECONDS
    return answers
