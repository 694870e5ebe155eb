"""SharedLookups: many askers, one question.

When a broker dies, or a topic is new, hundreds of sends want the same route at the same moment. One asks; the others
wait for its answer, or its failure."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

Result = TypeVar("Result")


class SharedLookups(Generic[Result]):
    """Lookups under way, by key."""

    def __init__(self) -> None:
        self._tasks: dict[str, asyncio.Task[Result]] = {}

    async def share(self, key: str, look_up: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
        """The answer of the lookup under way for `key`; starts one if there is none. Raises what the lookup raises."""
        task = self._tasks.get(key)
        if task is None:
            task = self._tasks[key] = asyncio.create_task(look_up(), name=f"maxq-lookup-{key}")
            task.add_done_callback(lambda ended: self._ended(key, ended))
        return await asyncio.shield(task)

    def _ended(self, key: str, task: asyncio.Task[Result]) -> None:
        del self._tasks[key]
        if not task.cancelled():
            task.exception()  # seen, even if every asker was cancelled meanwhile
