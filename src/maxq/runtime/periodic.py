"""Things done again and again: the loop's form of ScheduledExecutorService.scheduleAtFixedRate."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from maxq.runtime.background import count_failure
from maxq.runtime.holds import watched

log = logging.getLogger(__name__)

#: What is done. It may be a plain function or a coroutine function; a failure is logged and the next turn comes anyway.
Work = Callable[[], Awaitable[object] | None]


class PeriodicTasks:
    """Named periodic tasks of one broker. A turn that is not finished delays the next one; turns never overlap."""

    def __init__(self) -> None:
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def every(self, name: str, seconds: float | Callable[[], float], work: Work, *, first: float | None = None) -> None:
        """Run `work` every `seconds`, the first time after `first` seconds (default: one period).

        A callable period is asked anew before each turn, so that a changed setting counts at once.
        """
        assert name not in self._tasks, f"{name} is already scheduled"
        self._tasks[name] = asyncio.get_running_loop().create_task(self._run(name, seconds, work, first), name=name)

    def names(self) -> list[str]:
        return list(self._tasks)

    async def stop(self) -> None:
        """Stop: running tasks are cancelled and have ended on return."""
        tasks = list(self._tasks.values())
        self._tasks.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    @staticmethod
    async def _run(name: str, seconds: float | Callable[[], float], work: Work, first: float | None) -> None:
        delay = first if first is not None else _period(seconds)
        while True:
            await asyncio.sleep(delay)
            try:
                await watched(name, _once(work))
            except Exception:  # a task that failed once must not stop: tomorrow's clean-up is still wanted
                count_failure(name)
                log.exception("scheduled task %s failed", name)
            delay = _period(seconds)


async def _once(work: Work) -> None:
    doing = work()
    if doing is not None:
        await doing


def _period(seconds: float | Callable[[], float]) -> float:
    return seconds() if callable(seconds) else seconds
