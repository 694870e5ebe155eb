"""LoopThread: an event loop in a thread of its own, for the blocking clients."""

import asyncio
import concurrent.futures
import contextlib
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from maxq.client.errors import NotRunningError

Result = TypeVar("Result")
LoopFactory = Callable[[], asyncio.AbstractEventLoop]


class LoopThread:
    """One loop, one daemon thread. Safe to use from any number of threads.

    Args:
        loop_factory: makes the loop; None: asyncio's own.
        name: of the thread.
    """

    def __init__(self, loop_factory: LoopFactory | None = None, *, name: str = "maxq-client") -> None:
        self._loop_factory = loop_factory or asyncio.new_event_loop
        self._name = name
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread; nothing happens if it runs."""
        if self._thread is not None:
            return
        loop = self._loop_factory()
        self._loop = loop
        self._thread = threading.Thread(target=self._run, args=(loop,), name=self._name, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Cancel what still runs and end the thread."""
        loop, thread = self._loop, self._thread
        self._loop = self._thread = None
        if loop is None or thread is None:
            return
        loop.call_soon_threadsafe(loop.stop)
        thread.join()

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        try:
            loop.run_forever()
        finally:
            tasks = asyncio.all_tasks(loop)
            for task in tasks:
                task.cancel()
            if tasks:
                loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.run_until_complete(loop.shutdown_default_executor())
            loop.close()

    def submit(self, work: Coroutine[Any, Any, Result]) -> concurrent.futures.Future[Result]:
        """Start a coroutine on the loop.

        Raises:
            NotRunningError: the thread does not run.
        """
        if self._loop is None or threading.current_thread() is self._thread:
            work.close()
            if self._loop is None:
                raise NotRunningError("the client is not running: start it first")
            raise NotRunningError("a blocking client must not be called from its own event loop")
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Run a coroutine on the loop and wait for it. An interrupt (Ctrl-C) cancels it."""
        future = self.submit(work)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def post(self, work: Callable[[], object]) -> None:
        """Have a plain function called on the loop."""
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile
                self._loop.call_soon_threadsafe(work)
