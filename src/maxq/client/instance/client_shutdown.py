"""Ending: a shutdown that is completed, whatever happens to whoever asked for it.

A shutdown that stops half way leaves a ghost: brokers go on counting a member whose queues nobody reads.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any


class ClientShutdown:
    """A shutdown of one client that is completed whatever happens to whoever asked for it."""

    def __init__(self) -> None:
        self._task: asyncio.Task[None] | None = None

    async def run(self, work: Callable[[], Coroutine[Any, Any, None]], hurry: Callable[[], None] | None = None) -> None:
        """Do `work`, or wait for the end of a `work` that is under way. Whoever is cancelled meanwhile is cancelled
        when it is complete.

        Args:
            hurry: called when the one who waits is cancelled.
        """
        if self._task is None:
            self._task = asyncio.create_task(work(), name="maxq-shutdown")
            self._task.add_done_callback(self._forget)
        await self.wait(hurry)

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._task = None

    async def wait(self, hurry: Callable[[], None] | None = None) -> None:
        """Wait until no shutdown is under way. Raises what the shutdown raised."""
        task, cancelled = self._task, None
        if task is None:
            return
        while not task.done():
            try:
                await asyncio.shield(task)
            except asyncio.CancelledError as error:
                cancelled = error
                if hurry is not None:
                    hurry()
            except Exception:
                break
        if cancelled is not None:
            raise cancelled
        task.result()


async def in_turn(*steps: Callable[[], Awaitable[object]]) -> None:
    """Do every step, also after one has failed or was cancelled, and then raise the first error."""
    first: BaseException | None = None
    for step in steps:
        try:
            await step()
        except (Exception, asyncio.CancelledError) as error:
            first = first or error
    if first is not None:
        raise first
