"""LoopThread: an event loop in a thread of its own, for the blocking clients."""

import asyncio
import concurrent.futures
import contextlib
import logging
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from maxq.client.errors import NotRunningError
from maxq.client.message_feed import MessageFeed
from maxq.client.results.send_result import SendResult
from maxq.errors import ClientError

log = logging.getLogger(__name__)

_FORKED: Final = (
    "the client was started before this process was forked, and belongs to the parent: make and start one of your own "
    "here"
)

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
        self._is_stopping = False

    @property
    def is_running(self) -> bool:
        """Does the thread run in this process? After a fork it does in the parent alone."""
        return self._thread is not None and self._thread.is_alive()

    def start(self) -> None:
        """Start the thread.

        Raises:
            ClientError: it runs, here or in the process that this one was forked from.
        """
        if self._thread is not None:
            raise ClientError("the client is already started" if self.is_running else _FORKED)
        loop = self._loop_factory()
        self._loop = loop
        self._is_stopping = False
        self._thread = threading.Thread(target=self._run, args=(loop,), name=self._name, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Cancel what still runs and end the thread. In a process that was forked, forget what is the parent's."""
        was_running, loop, thread = self.is_running, self._loop, self._thread
        self._loop = self._thread = None
        if not was_running or loop is None or thread is None:
            return
        self._is_stopping = True
        loop.call_soon_threadsafe(loop.stop)
        thread.join()

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        try:
            while not self._is_stopping:
                try:
                    loop.run_forever()
                except BaseException:  # a callback raised SystemExit, say: others wait for this loop
                    log.exception("a callback of the client's loop raised what ends loops; it goes on")
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
        try:
            self._check()
        except NotRunningError:
            work.close()
            raise
        assert self._loop is not None, "it was checked"
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def _check(self) -> None:
        if self._loop is None:
            raise NotRunningError("the client is not running: start it first")
        if not self.is_running:
            raise NotRunningError(_FORKED)
        if threading.current_thread() is self._thread:
            raise NotRunningError("a blocking client must not be called from its own event loop")

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Run a coroutine on the loop and wait for it. An interrupt (Ctrl-C) cancels it."""
        future = self.submit(work)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def make_feed(self, limit: int, on_result: Callable[[int, SendResult], None]) -> MessageFeed:
        """A feed of the loop; see MessageFeed.

        Raises:
            NotRunningError: the thread does not run.
        """
        self._check()
        assert self._loop is not None, "it was checked"
        return MessageFeed(self._loop, limit, on_result)

    def post(self, work: Callable[[], object]) -> None:
        """Have a plain function called on the loop."""
        if self._loop is not None and self.is_running:
            with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile
                self._loop.call_soon_threadsafe(work)
