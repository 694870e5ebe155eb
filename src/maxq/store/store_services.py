"""The loops of a store's parts as tasks: one that fails is told to whoever can stop the process."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from maxq.errors import StoreFailedError
from maxq.runtime.holds import watched

log = logging.getLogger(__name__)


class StoreServices:
    """See the module.

    Attributes:
        tasks: those that run.
        on_failed: `on_failed(name, error)` is told when a service ends by an error; None: it is only logged.
    """

    def __init__(self) -> None:
        self.tasks: list[asyncio.Task[None]] = []
        self.on_failed: Callable[[str, BaseException], None] | None = None

    def start(self, name: str, service: Coroutine[Any, Any, None]) -> None:
        """Run `service` on the running loop until `stop`."""
        task = asyncio.get_running_loop().create_task(watched(name, service), name=f"store: {name}")
        task.add_done_callback(lambda _: service.close())  # one that was cancelled before it began
        task.add_done_callback(self._ended)
        self.tasks.append(task)

    async def stop(self) -> None:
        """End all of them."""
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        self.tasks.clear()

    def failed(self, name: str, error: BaseException) -> None:
        """Part `name` cannot go on."""
        log.critical("%s failed", name, exc_info=None if isinstance(error, StoreFailedError) else error)
        if self.on_failed is not None:
            self.on_failed(name, error)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        if task.cancelled():
            return
        error = task.exception()
        if error is not None:
            self.failed(task.get_name(), error)
