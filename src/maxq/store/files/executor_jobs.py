"""Jobs of a store beside the event loop: flushes, files and pages made ahead, inventory, deletions.

A shutdown writes the same files, and closes them. It closes this list first, which waits for all that runs.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar, TypeVarTuple

from maxq.runtime.blocking import FILES, Threads, ended

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class ExecutorJobs:
    """The jobs of one store on its executor.

    Attributes:
        is_closed: the store is closing: nothing new begins.
    """

    def __init__(self) -> None:
        self._running: set[asyncio.Future[Any]] = set()
        self.is_closed = False
        self._is_inline = False

    @contextmanager
    def inline(self) -> Iterator[None]:
        """Run every job in the caller's thread while a store is loaded, also where a loop runs (recovery as a tool). A
        closed list is open again afterwards."""
        self.is_closed = False
        self._is_inline = True
        try:
            yield
        finally:
            self._is_inline = False

    def start(self, work: Callable[[], T], threads: Threads = FILES) -> "asyncio.Future[T] | None":
        """Run a blocking function on an executor. The caller examines the future's outcome and never cancels it.

        Returns:
            None if no loop runs, the store is closing, or jobs are done inline.
        """
        if self.is_closed or self._is_inline:
            return None
        try:
            future = threads.start(work)
        except RuntimeError:
            return None
        self._running.add(future)
        future.add_done_callback(self._running.discard)
        return future

    def begin(self) -> "asyncio.Future[None] | None":
        """Register asynchronous work that uses no thread; pass the future to `end`. None under the conditions of
        `start`."""
        if self.is_closed or self._is_inline:
            return None
        try:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        except RuntimeError:
            return None
        self._running.add(future)
        return future

    def end(self, future: "asyncio.Future[None]") -> None:
        """Mark a job that `begin` registered as finished."""
        self._running.discard(future)
        if not future.done():
            future.set_result(None)

    async def run(self, work: Callable[[*Ts], T], *args: *Ts, threads: Threads = FILES) -> T:
        """Run `work(*args)` on an executor. If the caller is cancelled, the cancellation is raised after the work has
        ended, so that releasing a lock or a mapping afterwards is safe."""
        assert not self.is_closed, "the store is closed: who comes now must look first"
        future = self.start(lambda: work(*args), threads)
        assert future is not None, "a coroutine runs on a loop"
        return await ended(future)

    async def close(self) -> None:
        """Refuse new jobs, and wait for the running ones."""
        self.is_closed = True
        while self._running:
            await asyncio.wait(self._running)
